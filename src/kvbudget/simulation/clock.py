"""How long a step takes, in whole picoseconds: sums are then exact, in any order and on any machine."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from kvbudget.errors import InputError

SECOND = 10**12
"""Picoseconds."""
MOST = 10**9
"""What a step may take of milliseconds, and a token of microseconds: eleven days."""
LONGEST = 100 * 24 * 3600 * SECOND
"""A hundred days, which still fits in 64 bits."""


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


class Clock(Protocol):
    """Tells what steps take.

    `decodes` must equal the sum of `step` over the batches that it stands for, to the picosecond.
    """

    def step(self, batch: Batch) -> int:
        """Return the picoseconds of one step; of an empty one too."""

    def decodes(self, requests: int, context: int, steps: int) -> int:
        """Return the picoseconds of `steps` steps in each of which the same requests compute one token each.

        Args:
            requests: How many requests decode.
            context: `Batch.context` of the first of the steps; it grows by `requests` with each step.
            steps: How many steps.
        """

    def steps_until(self, requests: int, context: int, gap: int) -> int:
        """Return the least number of such steps that take `gap` picoseconds or more."""

    def wake(self, arrival: int) -> int:
        """Return when an idle engine begins the step for a request that arrives at `arrival` picoseconds."""


class StepTime:
    """A constant for each step and a cost for each of its tokens.

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

    def step(self, batch: Batch) -> int:
        """Return the picoseconds of one step; an empty one takes none."""
        return self.base + self.per_token * batch.tokens if batch.tokens else 0

    def decodes(self, requests: int, context: int, steps: int) -> int:
        """Return the picoseconds of `steps` decoding steps."""
        del context
        return steps * (self.base + self.per_token * requests)

    def steps_until(self, requests: int, context: int, gap: int) -> int:
        """Return how many decoding steps it takes until `gap` is over."""
        del context
        return -(-gap // (self.base + self.per_token * requests))

    def wake(self, arrival: int) -> int:
        """Return when an idle engine begins: at once."""
        return arrival


class StepCount:
    """Time counted in steps: each takes a second, empty ones too, and begins on a whole one."""

    __slots__ = ()

    def step(self, batch: Batch) -> int:
        """Return a second."""
        del batch
        return SECOND

    def decodes(self, requests: int, context: int, steps: int) -> int:
        """Return a second for each step."""
        del requests, context
        return steps * SECOND

    def steps_until(self, requests: int, context: int, gap: int) -> int:
        """Return the seconds that have begun."""
        del requests, context
        return -(-gap // SECOND)

    def wake(self, arrival: int) -> int:
        """Return the next whole second."""
        return -(-arrival // SECOND) * SECOND


def picoseconds(seconds: float) -> int:
    """Return a time of a workload in picoseconds.

    Raises:
        InputError: It is negative, no number, or later than a hundred days.
    """
    if not 0 <= seconds <= LONGEST // SECOND:
        raise InputError(f"A request arrives at {seconds!r} seconds; give a number from 0 to a hundred days.")
    return round(seconds * SECOND)
