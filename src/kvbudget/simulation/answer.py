"""What `simulate` answers: a workload on a deployment, where pressure begins, and which limit avoids it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget import __version__
from kvbudget.budgeting import SCHEMA
from kvbudget.errors import InputError
from kvbudget.simulation.fast import can_jump
from kvbudget.simulation.replicas import ALONE, MOST_ENGINES, Fleet, fewest_replicas, simulated_fleet
from kvbudget.simulation.search import find_knee, largest_without
from kvbudget.simulation.settings import SchedulerSettings
from kvbudget.simulation.simulate import simulate, simulate_users
from kvbudget.simulation.summary import Recorder, summarize
from kvbudget.workload.arrivals import ClosedLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.deployed import Timing
    from kvbudget.simulation.results import Result, Step
    from kvbudget.simulation.search import Knee
    from kvbudget.simulation.simulate import Settings
    from kvbudget.simulation.summary import Summary
    from kvbudget.workload.request import Request

    Begin = Callable[[], Iterable[Request] | ClosedLoop]
    """Begins a workload anew."""

    Simulation = Callable[[Any, Any, Clock], Summary]
    """Runs a workload, as `simulated` does."""

PROMPTS_OF_WORK = 4096
TOKENS_OF_WORK = 3
BLOCKS_OF_WORK = 2
WORK_OF_REQUEST = 10
"""What takes about as long as a request of the jumping loop, measured on searches: tokens computed there, tokens
generated in the loops of other policies, blocks of an answer where requests are counted; and how long its beginning and
its end take there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A simulated workload.

    Args:
        place: Where it ran, in words.
        workload: What arrived, in words.
        timing: Where the times of steps come from, in words.
        timing_error: The share by which they may be off either way; None where they were given.
        bounds: The same workload with all steps as short, and as long, as that allows; None where they were given.
        rate: Requests a second, None where they do not come at a rate.
        settings: What the scheduler could do.
        summary: What came of it.
        knee: Where pressure begins, None if that was not asked.
        fleet: The engines that shared the workload; running, waiting and blocks are those of one engine.
        counted: Whether the replicas of the fleet were counted, as few as are enough.
        target_ttft_s: The p95 of the time to the first token for which the replicas were counted, None if it was not.
        calm: The largest `max_num_seqs` without preemptions and what it leads to; None without preemptions.
        left_out: Whether the searches for both were left out because they would take long.
        warnings: What makes it less certain, a sentence each.
        assumptions: What nobody said.
    """

    place: str
    workload: str
    timing: str
    rate: float | None
    settings: Settings
    summary: Summary
    timing_error: float | None = None
    bounds: tuple[Summary, Summary] | None = None
    knee: Knee | None = None
    fleet: Fleet = ALONE
    counted: bool = False
    target_ttft_s: float | None = None
    calm: tuple[int, Summary] | None = None
    left_out: bool = False
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as the JSON object of schema 1."""
        knee, rate = self.knee, self.rate
        return {
            "schema": SCHEMA,
            "kvbudget": __version__,
            **self.summary.to_dict(),
            "knee": None
            if knee is None
            else {
                "load": knee._asdict(),
                "requests_per_s": {k: v * rate if v is not None and rate else None for k, v in knee._asdict().items()},
            },
            "max_num_seqs_without_preemption": self.calm[0] if self.calm else None,
            "place": self.place,
            "workload": self.workload,
            "rate": rate,
            **self.fleet._asdict(),
            "target_ttft_s": self.target_ttft_s,
            "timing": {
                "source": self.timing,
                "basis": "given" if self.timing_error is None else "estimated",
                "error": self.timing_error,
            },
            "faster": self.bounds[0].to_dict() if self.bounds else None,
            "slower": self.bounds[1].to_dict() if self.bounds else None,
            "policy": self.settings.words.policy,
            "preemption_is_called": self.settings.words.loss,
            "settings": self.settings.to_dict(),
            "warnings": list(self.warnings),
            "assumptions": list(self.assumptions),
        }


def simulated(arriving: Iterable[Request] | ClosedLoop, settings: Settings, clock: Clock) -> Summary:
    """Return what comes of requests, or of users who wait for their answers."""
    recorder = Recorder()
    result = play(arriving, settings, clock, recorder)
    closed = isinstance(arriving, ClosedLoop) and not arriving.one_talk
    return summarize(result, recorder.finish(result.ends), settings.usable_blocks, closed=closed)


def play(
    arriving: Iterable[Request] | ClosedLoop,
    settings: Settings,
    clock: Clock,
    record: Callable[[Step], object] | None = None,
) -> Result:
    """Simulate requests, or users who wait for their answers."""
    if isinstance(arriving, ClosedLoop):
        return simulate_users(arriving, settings, clock, record)
    return simulate(arriving, settings, clock, record)


def bounds_of(
    begin: Begin, settings: Settings, timing: Timing, run: Simulation = simulated
) -> tuple[Summary, Summary] | None:
    """Return what comes of a workload if all steps are as short, and as long, as the clock's interval allows."""
    if timing.error is None:
        return None
    fast, slow = (run(begin(), settings, timing.scaled(1 + sign * timing.error)) for sign in (-1, 1))
    return fast, slow


def work_of(summary: Summary, settings: Settings, *, closed: bool = False) -> int:
    """Return how long a simulation takes, in requests of the loop that jumps over steps.

    That loop takes its time for each request and for long prompts; the one that counts the requests that decode, for
    the beginning and the end of each and for each block of its answer; those of other policies for each token.

    Args:
        summary: What came of it.
        settings: What it ran with.
        closed: Whether answers brought new requests, which the first loop does not know.
    """
    if not isinstance(settings, SchedulerSettings):
        return summary.generated_tokens // TOKENS_OF_WORK
    begun = summary.requests + summary.preemptions
    if can_jump(settings) and not closed:
        return begun + summary.scheduled_tokens // PROMPTS_OF_WORK
    blocks = sum(summary.generated_tokens // group.block_size for group in settings.cache_groups)
    return begun * WORK_OF_REQUEST + blocks // BLOCKS_OF_WORK


def knee_of(
    requests: Iterable[Request],
    settings: Settings,
    clock: Clock,
    own: Summary | None = None,
    run: Simulation = simulated,
) -> Knee:
    """Return where pressure begins, with the arrivals of the workload brought together or drawn apart.

    Args:
        requests: The workload, which can be read several times.
        settings: The scheduler.
        clock: How long steps take.
        own: What comes of the workload as it is, if that is known.
        run: What simulates; for several engines it is `simulated_fleet`.
    """

    def at(load: float) -> Summary:
        if load == 1 and own is not None:
            return own
        return run((request._replace(arrival=request.arrival / load) for request in requests), settings, clock)

    return find_knee(at)


def calm_limit(
    begin: Begin, settings: Settings, clock: Clock, reached: int, run: Simulation = simulated
) -> tuple[int, Summary] | None:
    """Return the largest limit without preemptions (and errors) and what it leads to, None if there is none.

    Args:
        begin: Begins the workload anew.
        settings: The scheduler, under which there are preemptions.
        clock: How long steps take.
        reached: The most requests that ran at a time.
        run: What simulates; for several engines it is `simulated_fleet`.
    """
    seen: dict[int, Summary] = {}

    def is_pressed(limit: int) -> bool:
        seen[limit] = run(begin(), settings.with_seats(limit), clock)
        return seen[limit].preemptions + seen[limit].unfinished > 0

    limit = largest_without(is_pressed, min(settings.seats, reached))
    return None if limit is None else (limit, seen[limit])


def replicas_for(
    requests: Iterable[Request],
    settings: SchedulerSettings,
    clock: Clock,
    fleet: Fleet,
    target_ttft_s: float | None = None,
) -> tuple[Fleet, Summary]:
    """Return the fleet with the fewest replicas that does, and what comes of the workload there.

    Args:
        requests: The workload of all replicas together.
        settings: The scheduler of each engine.
        clock: How long steps take.
        fleet: The fleet, whatever its number of replicas.
        target_ttft_s: The p95 of the time to the first token that is wanted; None asks for no preemptions.

    Raises:
        InputError: No number of replicas does.
    """
    requests = list(requests)
    most = max(1, min(MOST_ENGINES // fleet.data_parallel_size, len(requests)))
    seen: dict[int, Summary] = {}

    def holds(replicas: int) -> bool:
        seen[replicas] = s = simulated_fleet(requests, settings, clock, fleet._replace(replicas=replicas))
        return s.preemptions == 0 if target_ttft_s is None else s.ttft_s.p95 <= target_ttft_s

    found = fewest_replicas(holds, most)
    if found is not None:
        return fleet._replace(replicas=found), seen[found]
    left = seen[most]
    if target_ttft_s is None:
        raise InputError(f"Even {most:,} replicas preempt {left.preempted_requests:,} requests; give more memory.")
    raise InputError(
        f"Even with {most:,} replicas the first token takes {left.ttft_s.p95:.3g} s (p95), more than --target-ttft "
        f"{target_ttft_s:g}; give a longer target or a faster card."
    )
