"""A workload through the engine: requests come, steps are scheduled, time passes.

Source: vLLM 0.32, EngineCore.step and EngineCore.step_with_batch_queue.
"""

from __future__ import annotations

from array import array
from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, Protocol

from kvbudget.errors import InputError
from kvbudget.simulation import compiled
from kvbudget.simulation.clock import LATEST, NOTHING, SECOND, Batch, picoseconds, steps_until, too_late
from kvbudget.simulation.counting import CountingScheduler
from kvbudget.simulation.fast import FOREVER, can_jump, run, write
from kvbudget.simulation.prefixes import Keys, Prefixes, shared_by
from kvbudget.simulation.results import NEVER, Load, Result, Step
from kvbudget.simulation.scheduler import Scheduled, Scheduler, batch_of
from kvbudget.simulation.sequence import Sequence
from kvbudget.simulation.settings import SchedulerSettings, check
from kvbudget.workload.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.policy import OtherSettings, Policy, PolicySettings
    from kvbudget.simulation.prefixes import Shared
    from kvbudget.simulation.results import Row

    Settings = SchedulerSettings | OtherSettings

AT_A_TIME = 16
"""Steps that are recorded as one: the blocks of most caches change as often, and lengths hardly change in so few."""
STANDING_STEPS, STANDING_LENGTHS = 10_000, 4
"""Steps without a new token after which an engine is taken to stand still for ever, and as many again for each token of
the longest request, which may have to be computed anew one by one: more than any engine takes that goes on."""

ALONE = Request(0.0, 0, 0)
"""What stands for a request that shares nothing and is as urgent as others."""


def simulate(
    requests: Iterable[Request],
    settings: Settings,
    clock: Clock,
    record: Callable[[Step], object] | None = None,
    *,
    as_served: bool = False,
    plainly: bool = False,
) -> Result:
    """Return what becomes of requests.

    Args:
        requests: The workload, in any order; a stream is read once and not kept.
        settings: What the scheduler may do.
        clock: How long a step takes.
        record: Called with each step, in order.
        as_served: Let a request that comes while a step runs wait for the step after the next one where the next one is
            scheduled already, as a server does; otherwise it is in the first step that begins no earlier, as in vLLM's
            scheduler when it is driven by a trace.
        plainly: Go one step after the other even where steps can be jumped over; the result is the same.

    Raises:
        InputError: The settings contradict each other, or a request arrives at no time.
        CannotTell: The cache's groups are not covered.
    """
    checked(settings)
    result, special = result_of(requests, settings)
    served = [index for index, tokens in enumerate(result.output_tokens) if tokens]
    order = sorted(served, key=result.arrival.__getitem__)
    shared = None
    if not plainly and isinstance(settings, SchedulerSettings) and can_jump(settings):
        alike = [special.get(index, ALONE) for index in order] if special and settings.enable_prefix_caching else []
        shared = shared_by(alike)
    if shared is None or not isinstance(settings, SchedulerSettings):
        Engine(special, result, settings, clock, record, as_served=as_served, plainly=plainly).run()
    elif len(order) == len(result) and order == served:
        _jump(result, settings, clock, record, shared, as_served=as_served)
    else:
        in_order = result.chosen(order)
        _jump(in_order, settings, clock, record, shared, as_served=as_served)
        result.put(order, in_order)
    return result


def _jump(
    result: Result,
    settings: SchedulerSettings,
    clock: Clock,
    record: Callable[[Step], object] | None,
    shared: dict[int, Shared],
    *,
    as_served: bool,
) -> None:
    if shared or not compiled.is_worth(result, settings, clock):
        run(result, settings, clock, record, shared, as_served=as_served)
    else:
        compiled.run(result, settings, clock, record, as_served=as_served)


def simulate_users(
    loop: Users,
    settings: Settings,
    clock: Clock,
    record: Callable[[Step], object] | None = None,
    *,
    plainly: bool = False,
) -> Result:
    """Return what becomes of the requests of users who wait for an answer before they send the next, in that order.

    A request that the engine refuses is answered when it arrives.

    Args:
        loop: The users.
        settings: What the scheduler may do.
        clock: How long a step takes.
        record: Called with each step, in order.
        plainly: Go one step after the other, and to each request in each; the result is the same.

    Raises:
        InputError, CannotTell: As `simulate`.
    """
    checked(settings)
    result = Result()
    _UsersEngine(loop, result, settings, clock, record, plainly=plainly).run()
    return result


def checked(settings: Settings) -> None:
    """Refuse settings with which the engine would not start, or would never end.

    Raises:
        InputError, CannotTell: As `simulate`.
    """
    if isinstance(settings, SchedulerSettings):
        check(settings)
    else:
        settings.check()


def scheduler_of(settings: Settings) -> Policy:
    """Return the scheduler of an engine before it has begun."""
    return Scheduler(settings) if isinstance(settings, SchedulerSettings) else settings.scheduler()


class Users(Protocol):
    """Who sends requests when the last one is answered (`kvbudget.workload.arrivals.ClosedLoop`)."""

    def first(self) -> Iterator[Request]:
        """Yield each user's first request by rising arrival, the n-th one that of user n."""

    def next(self, user: int, finished_at: float) -> Request | None:
        """Return what a user sends after an answer at `finished_at` seconds, None if nothing."""


class Engine:
    """The loop around the scheduler."""

    def __init__(
        self,
        special: dict[int, Request],
        result: Result,
        settings: Settings,
        clock: Clock,
        record: Callable[[Step], object] | None,
        *,
        as_served: bool,
        plainly: bool = False,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._record = record
        self._counting = (
            CountingScheduler(settings) if isinstance(settings, SchedulerSettings) and not plainly else None
        )
        self._scheduler: Policy = self._counting or scheduler_of(settings)
        self._result = result
        self._prefixes = Prefixes()
        served = (index for index, tokens in enumerate(result.output_tokens) if tokens)
        coming = (self._sequence(index, special.get(index, ALONE)) for index in served)
        self._coming = deque(sorted(coming, key=_arrival))
        self._in_flight: deque[tuple[Scheduled, int]] = deque()
        self._now = 0  # when the steps that are scheduled end
        self._done = 0  # when the next one is scheduled: when the last one ended whose tokens are known
        self._as_served = as_served
        self._stood = 0  # steps since one computed a token for the first time
        self._most_stood = STANDING_STEPS + STANDING_LENGTHS * settings.max_model_len

    def _sequence(self, index: int, request: Request) -> Sequence:
        result = self._result
        return Sequence(
            index,
            result.arrival[index],
            result.prompt_tokens[index],
            result.output_tokens[index],
            request.priority,
            Keys(self._prefixes, request, index),
        )

    def add(self, request: Request) -> None:
        """Let a request come that was just added to the result; it arrives no earlier than those before."""
        self._coming.append(self._sequence(len(self._result) - 1, request))

    def _more(self) -> bool:
        """Return whether requests are still to come."""
        return bool(self._coming)

    def _others_first(self) -> bool:
        """Return whether somebody not known yet may come before those who are known to come."""
        return False

    def run(self) -> None:
        """Fill in the result, until all requests have ended."""
        self.advance(FOREVER)

    def advance(self, horizon: int) -> Load:
        """Go on, up to the first step that would begin at `horizon` or later, and return how busy the engine is."""
        scheduler, coming, in_flight = self._scheduler, self._coming, self._in_flight
        while self._now < horizon and (self._more() or scheduler.has_work or in_flight):
            if coming and not scheduler.has_work and not in_flight:
                self._now = self._done = max(self._now, self._clock.wake(coming[0].arrival))
                if self._now >= horizon:
                    break
            seen = self._done if self._as_served else self._now
            while coming and coming[0].arrival <= seen:
                scheduler.add(coming.popleft())
            if not self._jump(horizon):
                self._iterate()
            if self._now > LATEST:
                raise too_late()
        self._result.ends = self._now
        return Load(len(scheduler.running), len(scheduler.waiting) + len(coming), scheduler.used_blocks)

    def _jump(self, horizon: int) -> bool:
        """Go on by as many steps as differ in blocks and lengths alone; return whether there are any."""
        scheduler, clock, begins = self._counting, self._clock, self._now
        if scheduler is None or self._others_first():
            return False
        steps = scheduler.alike()
        if steps <= 0:
            return False
        count, context = scheduler.counted, scheduler.context + scheduler.counted
        ahead = self._settings.batches_in_flight > 1
        if horizon < FOREVER:
            steps = self._until(horizon, steps, count, context)
        if self._coming:
            late = int(ahead and self._as_served)  # who comes while a step runs is seen after it
            steps = min(steps, self._until(self._coming[0].arrival, steps, count, context) + late)
        spans = scheduler.jump(steps)
        done = sum(number for number, _ in spans)
        if not done:
            return False
        before = clock.decodes(count, context, done - 1)
        last = clock.decodes(count, context + (done - 1) * count, 1)
        self._now = begins + before + last
        self._done = begins + before if ahead else self._now
        if ahead:
            self._in_flight[0] = (self._in_flight[0][0], self._now)
        result = self._result
        result.steps += done
        result.scheduled_tokens += done * count
        result.peak_running = max(result.peak_running, count)
        result.peak_waiting = max(result.peak_waiting, len(scheduler.waiting))
        result.peak_used_blocks = max(result.peak_used_blocks, *(used for _, used in spans))
        if self._record:
            self._tell(self._record, spans, begins, count, context)
        return True

    def _until(self, time: int, steps: int, requests: int, context: int) -> int:
        """Return how many of `steps` decoding steps begin before `time`."""
        gap = time - self._now
        if gap > 0 and self._clock.decodes(requests, context, steps) <= gap:
            return steps
        return steps_until(self._clock.pace, requests, context, gap, steps)

    def _tell(
        self, record: Callable[[Step], object], spans: list[tuple[int, int]], begins: int, count: int, context: int
    ) -> None:
        """Record steps that were jumped over: one by one, or where `record` takes them together a few at a time."""
        clock, waiting = self._clock, len(self._scheduler.waiting)
        number = self._result.steps - sum(steps for steps, _ in spans)
        most = AT_A_TIME if hasattr(record, "rows") else 1
        rows: list[Row] = []
        for steps, used in spans:
            for first in range(0, steps, most):
                some = min(most, steps - first)
                ends = begins + clock.decodes(count, context, some)
                rows.append((number, some, begins, count, waiting, count, count, used, 0, count, ends))
                number += some
                begins, context = ends, context + some * count
        write(record, rows, len(rows))

    def _iterate(self) -> None:
        scheduler, in_flight, result = self._scheduler, self._in_flight, self._result
        result.steps += 1
        if not scheduler.has_work:
            self._now += self._clock.step(NOTHING)
        else:
            step = scheduler.schedule()
            begins = self._now
            batch = batch_of(step)
            self._now += sum(map(self._clock.step, step.passes or (batch,)))
            in_flight.append((step, self._now))
            self._note(step, batch, begins)
            room = len(in_flight) < self._settings.batches_in_flight
            if room and (batch.tokens or scheduler.has_work):
                return
        if in_flight:
            step, ends = in_flight.popleft()
            self._done = ends
            for request in scheduler.finish(step):
                if not request.failed:
                    result.finished[request.index] = ends
                self._ended(request.index, ends)

    def _ended(self, index: int, ends: int) -> None:
        """Note that a request has its answer."""

    def _note(self, step: Scheduled, batch: Batch, begins: int) -> None:
        result, scheduler = self._result, self._scheduler
        recomputed = result.recomputed_tokens
        for request, found in step.admitted:
            queried = request.tokens if self._settings.enable_prefix_caching else 0
            if request.preemptions:
                result.resumed_queries += queried
                result.resumed_hits += found
            else:
                result.prefix_queries += queried
                result.prefix_hits += found
                result.cached_tokens[request.index] = found
                result.scheduled[request.index] = begins
        for request, new in step.tokens.items():
            start = request.computed - new
            if start < request.reached:
                result.recomputed_tokens += min(request.reached, request.computed) - start
            request.reached = max(request.reached, request.computed)
        self._stood = 0 if batch.tokens > result.recomputed_tokens - recomputed else self._stood + 1
        if self._stood > self._most_stood:
            raise InputError(
                f"The engine comes to no end: from {begins / SECOND:,.1f} s on, {len(scheduler.running):,} running and "
                f"{len(scheduler.waiting):,} waiting requests take blocks from each other and none gets a new token; "
                "give more blocks or a lower --max-num-seqs."
            )
        for request in step.yields:
            if result.first_token[request.index] == NEVER:
                result.first_token[request.index] = self._now
        for request in step.preempted:
            result.preemptions[request.index] += 1
        running, waiting, used = len(scheduler.running), len(scheduler.waiting), scheduler.used_blocks
        result.scheduled_tokens += batch.tokens
        result.empty_steps += batch.tokens == 0
        result.peak_running = max(result.peak_running, running)
        result.peak_waiting = max(result.peak_waiting, waiting)
        result.peak_used_blocks = max(result.peak_used_blocks, used)
        if self._record:
            self._record(
                Step(
                    result.steps - 1,
                    begins,
                    running,
                    waiting,
                    batch.tokens,
                    batch.requests,
                    used,
                    len(step.preempted),
                    len(step.yields) + step.counted.requests,
                    self._now,
                )
            )


class _UsersEngine(Engine):
    """The same loop, in which answers bring new requests."""

    def __init__(
        self,
        loop: Users,
        result: Result,
        settings: Settings,
        clock: Clock,
        record: Callable[[Step], object] | None,
        *,
        plainly: bool,
    ) -> None:
        super().__init__({}, result, settings, clock, record, as_served=False, plainly=plainly)
        self._loop = loop
        self._user_of: list[int] = []
        self._firsts = enumerate(loop.first())
        self._next_first: tuple[int, Request] | None = None
        self._take_first()

    def _more(self) -> bool:
        """Let in the users who come before what is known to come next."""
        while self._next_first is not None:
            user, request = self._next_first
            if self._coming and self._coming[0].arrival < picoseconds(request.arrival):
                break
            self._send(user, request)
            self._take_first()
        return bool(self._coming)

    def _others_first(self) -> bool:
        if self._next_first is None:
            return False
        return not self._coming or self._coming[0].arrival >= picoseconds(self._next_first[1].arrival)

    def _take_first(self) -> None:
        self._next_first = next(self._firsts, None)

    def _ended(self, index: int, ends: int) -> None:
        user = self._user_of[index]
        request = self._loop.next(user, ends / SECOND)
        if request is not None:
            self._send(user, request)

    def _send(self, user: int, request: Request) -> None:
        """Let a request come, and in place of those that are refused the user's next one."""
        result = self._result
        coming: Request | None = request
        while coming is not None:
            request, index = coming, len(result)
            _note(result, request, self._settings)
            result.arrival[index] = max(result.arrival[index], self._now)
            self._user_of.append(user)
            if result.output_tokens[index]:
                break
            coming = self._loop.next(user, result.arrival[index] / SECOND)
        else:
            return
        insort(self._coming, self._sequence(index, request), key=_arrival)


def _arrival(sequence: Sequence) -> int:
    return sequence.arrival


def _note(result: Result, request: Request, settings: PolicySettings) -> None:
    """Add a request to a result before anything has happened to it."""
    result.arrival.append(picoseconds(request.arrival))
    result.prompt_tokens.append(request.prompt_tokens)
    result.output_tokens.append(_served(request, settings.max_model_len, settings.max_prompt_len))
    for times in (result.scheduled, result.first_token, result.finished):
        times.append(NEVER)
    for numbers in (result.preemptions, result.cached_tokens):
        numbers.append(0)


def result_of(requests: Iterable[Request], settings: PolicySettings) -> tuple[Result, dict[int, Request]]:
    """Return the result of a workload before it has begun, and the requests that are more than their lengths.

    A request that generates nothing generates one token, as an engine does; one without a prompt, or with a prompt that
    leaves no room for a token, is refused. The workload may be a stream: only what is returned is kept of it.
    """
    result = Result()
    special: dict[int, Request] = {}
    longest, longest_prompt = settings.max_model_len, settings.max_prompt_len
    arrival, prompt, output = result.arrival.append, result.prompt_tokens.append, result.output_tokens.append
    for index, request in enumerate(requests):
        arrival(picoseconds(request.arrival))
        prompt(request.prompt_tokens)
        output(_served(request, longest, longest_prompt))
        if request.segments or request.priority:
            special[index] = request
    count = len(result)
    result.scheduled, result.first_token, result.finished = (array("q", [NEVER]) * count for _ in range(3))
    result.preemptions, result.cached_tokens = (array("q", [0]) * count for _ in range(2))
    return result, special


def _served(request: Request, longest: int, longest_prompt: int) -> int:
    """Return the tokens that a request generates, 0 if it is refused."""
    tokens = request.prompt_tokens
    room = longest - tokens
    return min(max(request.output_tokens, 1), room) if 0 < tokens <= longest_prompt and room > 0 else 0
