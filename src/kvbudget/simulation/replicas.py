"""Several engines behind one router share a stream of requests.

A router sees the engines as they are when a request arrives: what the step under way will have left behind, and all
that was sent before. Real ones see a little less: vLLM's own balancer counts what it sent itself exactly and the rest
from counts that are up to 100 ms old.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from kvbudget.errors import InputError
from kvbudget.simulation.fast import FOREVER, can_jump, stepping
from kvbudget.simulation.prefixes import shared_by
from kvbudget.simulation.results import COLUMNS, NEVER, TOTALS, Load, Result
from kvbudget.simulation.settings import check
from kvbudget.simulation.simulate import Engine, result_of, simulate
from kvbudget.simulation.summary import Recorder, summarize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.prefixes import Shared
    from kvbudget.simulation.settings import SchedulerSettings
    from kvbudget.simulation.summary import Summary
    from kvbudget.workload.request import Request

Routing = Literal["round-robin", "least-loaded", "prefix-aware"]
ROUTINGS: tuple[Routing, ...] = ("round-robin", "least-loaded", "prefix-aware")

MOST_ENGINES = 4096
"""Engines of one simulation."""

PRESSED, PENALTY = 0.5, 6.0
"""vLLM's balancer counts waiting requests this many times more for each part of the cache used beyond a half."""


class Fleet(NamedTuple):
    """Engines of one deployment, and how requests are shared out.

    Attributes:
        replicas: How many times the deployment is there.
        routing: To which replica a request goes. In turn; to the one with the fewest running and waiting requests, of
            equal ones the first; or to the one that last got a request which begins the same, else to the least loaded.
            The last two are models of what routers do, not the code of one.
        data_parallel_size: Engines of a replica, between which vLLM's own balancer chooses.
    """

    replicas: int = 1
    routing: Routing = "round-robin"
    data_parallel_size: int = 1

    @property
    def engines(self) -> int:
        """Engines in all."""
        return self.replicas * self.data_parallel_size


ALONE = Fleet()


def check_fleet(fleet: Fleet) -> None:
    """Refuse a fleet of no engines, or of too many.

    Raises:
        InputError: It is one.
    """
    if not isinstance(fleet.replicas, int) or fleet.replicas < 1:
        raise InputError(f"--replicas is {fleet.replicas!r}; give a whole number of 1 or more, or auto.")
    if fleet.routing not in ROUTINGS:
        raise InputError(f"--routing is {str(fleet.routing)[:40]!r}; give one of {', '.join(ROUTINGS)}.")
    if fleet.engines > MOST_ENGINES:
        raise InputError(
            f"{fleet.engines:,} engines are more than {MOST_ENGINES:,}, which one simulation has at most; simulate "
            "a part of the traffic on a part of the engines."
        )


def simulated_fleet(
    requests: Iterable[Request], settings: SchedulerSettings, clock: Clock, fleet: Fleet = ALONE
) -> Summary:
    """Return what comes of requests; running, waiting and blocks are those of one engine.

    Args:
        requests: The workload of all engines together.
        settings: The scheduler of each engine.
        clock: How long an engine's steps take.
        fleet: The engines.

    Raises:
        InputError: The fleet or the settings are refused, or a request arrives at no time.
        CannotTell: The cache's groups are not covered.
    """
    check_fleet(fleet)
    check(settings)
    result, recorders = simulate_fleet(requests, settings, clock, fleet)
    occupancy = recorders[0].finish_with(recorders[1:], result.ends)
    return summarize(result, occupancy, settings.usable_blocks, fleet.engines)


def simulate_fleet(
    requests: Iterable[Request], settings: SchedulerSettings, clock: Clock, fleet: Fleet, *, plainly: bool = False
) -> tuple[Result, list[Recorder]]:
    """Return what becomes of each request, and what each engine did; a stream for one engine is not kept."""
    if fleet.engines == 1:
        recorder = Recorder()
        return simulate(requests, settings, clock, recorder, plainly=plainly), [recorder]
    requests = list(requests)
    whole, _ = result_of(requests, settings)
    order = sorted(range(len(requests)), key=whole.arrival.__getitem__)
    recorders = [Recorder() for _ in range(fleet.engines)]
    if fleet.data_parallel_size == 1 and fleet.routing == "round-robin":
        shares = [order[first :: fleet.replicas] for first in range(fleet.replicas)]
        results = [
            simulate([requests[index] for index in share], settings, clock, recorder, plainly=plainly)
            for share, recorder in zip(shares, recorders, strict=True)
        ]
    else:
        shares, results = _routed(requests, whole, order, settings, clock, fleet, recorders, plainly=plainly)
    _put(whole, shares, results)
    return whole, recorders


def _put(whole: Result, shares: list[list[int]], results: list[Result]) -> None:
    """Fill in what several engines did; peaks are the highest of one engine."""
    for share, result in zip(shares, results, strict=True):
        whole.put(share, result)
    for name in TOTALS:
        values = [getattr(result, name) for result in results]
        setattr(whole, name, max(values) if name == "ends" or name.startswith("peak") else sum(values))


# -- engines that go on together


class _Goes(Protocol):
    """An engine that goes on a while, and gets requests in between."""

    result: Result

    def advance(self, horizon: int) -> Load:
        """Go on up to the first step at `horizon` or later."""

    def add(self, request: Request, shared: Shared | None) -> None:
        """Let a request come that was added to the result."""


class _Jumping:
    """An engine of `kvbudget.simulation.fast`."""

    def __init__(self, settings: SchedulerSettings, clock: Clock, recorder: Recorder, shared: Shared | None) -> None:
        self.result = Result()
        self._shared = {} if shared is None else {NEVER: shared}  # so that it is not empty: some will share
        self._steps = stepping(self.result, settings, clock, recorder, self._shared, horizon=0)
        self._load = next(self._steps)

    def advance(self, horizon: int) -> Load:
        """Go on."""
        try:
            self._load = self._steps.send(horizon)
        except StopIteration:
            return Load(0, 0, 0)
        return self._load

    def add(self, request: Request, shared: Shared | None) -> None:
        """Note what it shares with others."""
        del request
        if shared is not None:
            self._shared[len(self.result) - 1] = shared


class _Plain:
    """An engine that takes one step after the other."""

    def __init__(self, settings: SchedulerSettings, clock: Clock, recorder: Recorder) -> None:
        self.result = Result()
        self._engine = Engine({}, self.result, settings, clock, recorder, as_served=False)
        self.advance = self._engine.advance

    def add(self, request: Request, shared: Shared | None) -> None:
        """Let it come."""
        del shared
        self._engine.add(request)


def _routed(
    requests: list[Request],
    whole: Result,
    order: list[int],
    settings: SchedulerSettings,
    clock: Clock,
    fleet: Fleet,
    recorders: list[Recorder],
    *,
    plainly: bool,
) -> tuple[list[list[int]], list[Result]]:
    """Return which requests each engine serves, and what becomes of them."""
    shared: dict[int, Shared] | None = None
    if not plainly and can_jump(settings):
        shared = shared_by([requests[index] for index in order]) if settings.enable_prefix_caching else {}
    engines: list[_Goes]
    if shared is None:
        engines = [_Plain(settings, clock, recorder) for recorder in recorders]
    else:
        example = next(iter(shared.values()), None)
        engines = [_Jumping(settings, clock, recorder, example) for recorder in recorders]
    shares: list[list[int]] = [[] for _ in engines]
    choose = _chooser(fleet)
    for place, index in enumerate(order):
        now = whole.arrival[index]
        chosen = choose(requests[index], [engine.advance(now) for engine in engines], settings.usable_blocks)
        if not whole.output_tokens[index]:  # refused wherever it goes
            continue
        shares[chosen].append(index)
        result = engines[chosen].result
        for name in COLUMNS:
            getattr(result, name).append(getattr(whole, name)[index])
        engines[chosen].add(requests[index], shared.get(place) if shared else None)
    for engine in engines:
        engine.advance(FOREVER)
    return shares, [engine.result for engine in engines]


# -- routers


def _chooser(fleet: Fleet) -> Callable[[Request, Sequence[Load], int], int]:
    """Return what chooses an engine for a request by the engines' loads."""
    size = fleet.data_parallel_size
    balancers = [_Balancer() for _ in range(fleet.replicas)]
    router = _ROUTERS[fleet.routing]()

    def choose(request: Request, loads: Sequence[Load], usable_blocks: int) -> int:
        replica = 0
        if fleet.replicas > 1:
            parts = (loads[at : at + size] for at in range(0, len(loads), size))
            replica = router.choose(request, [sum(load.running + load.waiting for load in part) for part in parts])
        if size == 1:
            return replica
        first = replica * size
        return first + balancers[replica].choose(loads[first : first + size], usable_blocks)

    return choose


class _Router(Protocol):
    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """Return the replica for a request, by how many requests each has."""


class _RoundRobin:
    def __init__(self) -> None:
        self._next = 0

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """Return the next replica."""
        del request
        chosen = self._next % len(loads)
        self._next += 1
        return chosen


class _LeastLoaded:
    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """Return the replica with the fewest requests."""
        del request
        return loads.index(min(loads))


class _PrefixAware(_LeastLoaded):
    """Remembers which replica last got each beginning."""

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], list[int]] = {}

    def choose(self, request: Request, loads: Sequence[int]) -> int:
        """Return the replica that last got the longest beginning that is known."""
        nodes, node = self._nodes, 0
        path: list[list[int]] = []
        chosen = NEVER
        for segment in request.segments:
            known = nodes.get((node, segment.id))
            if known is None:
                known = nodes[node, segment.id] = [len(nodes) + 1, NEVER]
            elif len(path) == 0 or path[-1][1] != NEVER:
                chosen = known[1]
            path.append(known)
            node = known[0]
        if chosen == NEVER:
            chosen = super().choose(request, loads)
        for known in path:
            known[1] = chosen
        return chosen


_ROUTERS: Mapping[Routing, Callable[[], _Router]] = {
    "round-robin": _RoundRobin,
    "least-loaded": _LeastLoaded,
    "prefix-aware": _PrefixAware,
}


class _Balancer:
    """vLLM's own balancer between the engines of a data parallel deployment, with one front end.

    Source: vLLM 0.32, v1/engine/core_client.py (DPLBAsyncMPClient.get_core_engine_for_request).
    """

    def __init__(self) -> None:
        self._start = 0

    def choose(self, loads: Sequence[Load], usable_blocks: int) -> int:
        """Return the engine with the lowest score, looking from the next one on each time."""
        turns = [(self._start + i) % len(loads) for i in range(len(loads))]
        self._start = turns[1 % len(turns)]
        return min(turns, key=lambda index: _score(loads[index], usable_blocks))


def _score(load: Load, usable_blocks: int) -> float:
    pressure = max(0.0, load.used_blocks / usable_blocks - PRESSED)
    return load.running + load.waiting + load.waiting * PENALTY * pressure


# -- how many


def fewest_replicas(holds: Callable[[int], bool], most: int) -> int | None:
    """Return the least number of replicas that holds, None if `most` do not: doubled until it does, then halved in.

    Args:
        holds: Whether a number is enough; more are taken to be enough too.
        most: The most that are tried.
    """
    short, enough = 0, 1
    while not holds(enough):
        if enough == most:
            return None
        short, enough = enough, min(2 * enough, most)
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (short, middle) if holds(middle) else (middle, enough)
    return enough
