"""How long a step takes, in whole picoseconds: sums are then exact, in any order and on any machine.

A step's time has a part that its tokens tell, a part that its requests tell, and one that grows with the context that
attention reads. Any clock is tables of these (`Pace`); the four functions below are all that a simulation asks of one.
They use nothing but numbers, loops and tables, so that `kvbudget.simulation.compiled` can compile them as they are.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECOND = 10**12
"""Picoseconds."""
MOST = 10**9
"""What a step may take of milliseconds, and a token of microseconds: eleven days."""
LONGEST = 100 * 24 * 3600 * SECOND
"""A hundred days, the latest that a request may come."""
LATEST = LONGEST + (1 << 58)
"""A step later is refused; what one adds still fits in 63 bits."""


class Batch(NamedTuple):
    """What a step computes.

    Attributes:
        tokens: Tokens of all its requests together; 0 where nothing could be scheduled.
        requests: How many requests they belong to.
        context: Tokens whose keys and values it reads, the new ones included, summed over its requests.
        pairs: Pairs of a new token and one that it sees, summed over its requests; a decoding request has as many as
            its context is long.
    """

    tokens: int
    requests: int
    context: int
    pairs: int


NOTHING = Batch(0, 0, 0, 0)
"""A step that computes nothing."""


class Times(Protocol):
    """Picoseconds by a number of tokens or of requests."""

    def __getitem__(self, count: int, /) -> int:
        """Return the picoseconds of that many."""


class Pace(NamedTuple):
    """What the parts of a step take, in picoseconds.

    Attributes:
        flat: Whether a step's tokens tell its time, so that all else is nothing.
        by_tokens: What depends on the tokens of a step alone; it never falls with them.
        by_requests: What depends on its requests alone; it never falls with them.
        read: For each token of context that attention to all of it reads.
        pair: For each pair of a new token and one that it sees.
        windows: The last tokens that other layers see, of each kind of them.
        window_reads: As `read`, for each of those kinds.
        window_pairs: As `pair`.
        tick: An idle engine begins at a multiple of it.
    """

    flat: bool
    by_tokens: Times
    by_requests: Times
    read: int
    pair: int
    windows: Sequence[int]
    window_reads: Sequence[int]
    window_pairs: Sequence[int]
    tick: int


def step_time(pace: Pace, tokens: int, requests: int, context: int, pairs: int) -> int:
    """Return the picoseconds of one step, whose arguments are those of a `Batch`; of an empty one too."""
    if pace.flat:
        return pace.by_tokens[tokens]
    _, by_tokens, by_requests, read, pair, windows, window_reads, window_pairs, _ = pace
    time = by_tokens[tokens] + by_requests[requests] + read * context + pair * pairs
    for i in range(len(windows)):
        time += window_reads[i] * min(context, requests * windows[i])
        time += window_pairs[i] * min(pairs, tokens * windows[i])
    return time


def decodes_time(pace: Pace, requests: int, context: int, steps: int) -> int:
    """Return the picoseconds of `steps` steps in each of which the same requests compute one token each.

    The context is `context` in the first and grows by `requests` with each, which is an arithmetic series up to the
    step in which it fills a window, and constant from there on.
    """
    if pace.flat:
        return steps * pace.by_tokens[requests]
    _, by_tokens, by_requests, read, pair, windows, window_reads, window_pairs, _ = pace
    time = steps * (by_tokens[requests] + by_requests[requests])
    time += (read + pair) * (steps * context + requests * (steps * (steps - 1) // 2))
    for i in range(len(windows)):
        full = requests * windows[i]
        growing = min(steps, max(0, -(-(full - context) // requests)))
        seen = (steps - growing) * full + growing * context + requests * (growing * (growing - 1) // 2)
        time += (window_reads[i] + window_pairs[i]) * seen
    return time


def steps_until(pace: Pace, requests: int, context: int, gap: int, most: int) -> int:
    """Return the least number of such steps that take `gap` picoseconds or more, `most` at most."""
    if gap <= 0:
        return 0
    if pace.flat:
        return min(-(-gap // pace.by_tokens[requests]), most)
    first = decodes_time(pace, requests, context, 1)
    if first == 0:
        return most
    low, high = 0, min(-(-gap // first), most)  # steps only grow longer
    growth = (pace.read + pace.pair) * requests
    if growth and high > 1:  # near where the series ends if no window fills
        half = first / growth - 0.5
        guess = int(sqrt(half * half + 2 * gap / growth) - half)
        for probe in (guess + 1, guess):
            if low < probe < high:
                if decodes_time(pace, requests, context, probe) >= gap:
                    high = probe
                else:
                    low = probe
    while high - low > 1:
        middle = (low + high) // 2
        if decodes_time(pace, requests, context, middle) >= gap:
            high = middle
        else:
            low = middle
    return high


def wake(pace: Pace, arrival: int) -> int:
    """Return when an idle engine begins the step for a request that arrives at `arrival` picoseconds."""
    return -(-arrival // pace.tick) * pace.tick


class Known(dict[int, int]):
    """Times that are worked out when they are first asked for."""

    __slots__ = ("_of",)

    def __init__(self, of: Callable[[int], int]) -> None:
        self._of = of

    def __missing__(self, count: int) -> int:
        """Work out one."""
        self[count] = time = self._of(count)
        return time


class Attended(NamedTuple):
    """Layers that attend to the same part of the context.

    Attributes:
        window: The last tokens they see, 0 for all.
        read: Picoseconds for each token of context that is read.
        pair: Picoseconds for each pair of a new token and one that it sees.
    """

    window: int
    read: int
    pair: int


class Clock:
    """Tells what steps take.

    Attributes:
        pace: The same as tables.
    """

    __slots__ = ("pace",)

    def __init__(self, attended: Sequence[Attended] = (), *, flat: bool = False, tick: int = 1) -> None:
        whole = [kind for kind in attended if not kind.window]
        part = [kind for kind in attended if kind.window]
        self.pace = Pace(
            flat,
            Known(self.by_tokens),
            Known(self.by_requests),
            sum(kind.read for kind in whole),
            sum(kind.pair for kind in whole),
            tuple(kind.window for kind in part),
            tuple(kind.read for kind in part),
            tuple(kind.pair for kind in part),
            tick,
        )

    def by_tokens(self, tokens: int) -> int:
        """Return the picoseconds of what depends on the tokens of a step alone; it never falls with them."""
        raise NotImplementedError

    def by_requests(self, requests: int) -> int:  # noqa: ARG002 - most clocks see tokens alone
        """Return the picoseconds of what depends on the requests of a step alone; it never falls with them."""
        return 0

    def step(self, batch: Batch) -> int:
        """Return the picoseconds of one step; of an empty one too."""
        return step_time(self.pace, *batch)

    def decodes(self, requests: int, context: int, steps: int) -> int:
        """Return the picoseconds of `steps` steps of the same decoding requests, as `decodes_time`."""
        return decodes_time(self.pace, requests, context, steps)

    def wake(self, arrival: int) -> int:
        """Return when an idle engine begins the step for a request that arrives at `arrival` picoseconds."""
        return wake(self.pace, arrival)


class StepTime(Clock):
    """A constant for each step and a cost for each of its tokens; an empty step takes none.

    Args:
        base_ms: Milliseconds of a step.
        per_token_us: Microseconds that each of its tokens adds.

    Raises:
        InputError: A cost is negative, or both are zero.
    """

    __slots__ = ("base", "per_token")

    def __init__(self, base_ms: float, per_token_us: float) -> None:
        sound = 0 <= base_ms < MOST and 0 <= per_token_us < MOST
        self.base = round(base_ms * 10**9) if sound else 0
        self.per_token = round(per_token_us * 10**6) if sound else 0
        if self.base + self.per_token == 0:
            raise InputError(
                f"A step takes {base_ms!r} ms and {per_token_us!r} us for each token; give two numbers from 0 to less "
                f"than {MOST:,}, of which one is a picosecond or more."
            )
        super().__init__(flat=True)

    def by_tokens(self, tokens: int) -> int:
        """Return the constant and the tokens' cost."""
        return self.base + self.per_token * tokens if tokens else 0


class StepCount(Clock):
    """Time counted in steps: each takes a second, empty ones too, and begins on a whole one."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(flat=True, tick=SECOND)

    def by_tokens(self, tokens: int) -> int:
        """Return a second."""
        del tokens
        return SECOND


def too_late() -> InputError:
    """Return the refusal of a simulation that goes on for longer than `LATEST`."""
    days = LATEST // SECOND // 86_400
    return InputError(
        f"The simulation goes on for more than {days} days of its own time; give shorter steps or fewer requests."
    )


def picoseconds(seconds: float) -> int:
    """Return a time of a workload in picoseconds.

    Raises:
        InputError: It is negative, no number, or later than a hundred days.
    """
    if not 0 <= seconds <= LONGEST // SECOND:
        raise InputError(f"A request arrives at {seconds!r} seconds; give a number from 0 to a hundred days.")
    return round(seconds * SECOND)
