"""What a simulation tells: what became of each request, and what each step did."""

from __future__ import annotations

from array import array
from dataclasses import MISSING, dataclass, field, fields
from typing import NamedTuple

NEVER = -1
"""The time of what did not happen."""


class Step(NamedTuple):
    """A step of the scheduler, as its metrics show it right after it is scheduled.

    Attributes:
        number: Its number, from 0.
        begins: When it begins, in picoseconds.
        running: Requests that run, those whose last token is on its way included.
        waiting: Requests that wait.
        tokens: Tokens that it computes.
        requests: Requests whose tokens they are.
        used_blocks: Blocks that requests hold.
        preempted: Requests that lost their blocks for it.
        outputs: Requests that get a token from it.
        ends: When it ends.
    """

    number: int
    begins: int
    running: int
    waiting: int
    tokens: int
    requests: int
    used_blocks: int
    preempted: int
    outputs: int
    ends: int


Row = tuple[int, int, int, int, int, int, int, int, int, int, int]
"""Steps: the number of the first, how many, and the rest of a `Step`, which the last of them has; it ends then."""
ROW = 11
"""The numbers of a `Row`."""


class Stretch(NamedTuple):
    """The most of each in a stretch of time, and the preemptions in it."""

    running: int
    waiting: int
    used_blocks: int
    preempted: int


class Load(NamedTuple):
    """How busy an engine is, between two steps.

    Attributes:
        running: Requests that run.
        waiting: Requests that wait.
        used_blocks: Blocks that requests hold.
    """

    running: int
    waiting: int
    used_blocks: int


def _times() -> array[int]:
    return array("q")


def _numbers() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Result:
    """What became of a workload. Times are picoseconds, `NEVER` for what did not happen; one entry a request, as given.

    Attributes:
        arrival: When each request arrived.
        prompt_tokens: Tokens of its prompt.
        output_tokens: Tokens that it generated: those asked for, cut at the longest length; 0 if it was refused.
        scheduled: When the first step began that computed some of it.
        first_token: When the step ended that brought its first token.
        finished: When the step ended that brought its last one.
        preemptions: How often it lost its blocks.
        cached_tokens: Tokens of its prompt that it found when it was first admitted.
        steps: Steps of the engine, empty ones included.
        empty_steps: Steps in which nothing could be computed.
        scheduled_tokens: Tokens that were computed, those twice that had to be.
        recomputed_tokens: Tokens that were computed a second time.
        prefix_queries: Tokens for which new requests looked in the cache.
        prefix_hits: Tokens that they found.
        resumed_queries: The same for requests that were preempted.
        resumed_hits: The same for requests that were preempted.
        peak_running: The most requests that ran at a time.
        peak_waiting: The most requests that waited at a time.
        peak_used_blocks: The most blocks that were held at a time.
        ends: When the last step ended.
    """

    arrival: array[int] = field(default_factory=_times)
    prompt_tokens: array[int] = field(default_factory=_numbers)
    output_tokens: array[int] = field(default_factory=_numbers)
    scheduled: array[int] = field(default_factory=_times)
    first_token: array[int] = field(default_factory=_times)
    finished: array[int] = field(default_factory=_times)
    preemptions: array[int] = field(default_factory=_numbers)
    cached_tokens: array[int] = field(default_factory=_numbers)
    steps: int = 0
    empty_steps: int = 0
    scheduled_tokens: int = 0
    recomputed_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0
    resumed_queries: int = 0
    resumed_hits: int = 0
    peak_running: int = 0
    peak_waiting: int = 0
    peak_used_blocks: int = 0
    ends: int = 0

    def __len__(self) -> int:
        """Return how many requests the workload has."""
        return len(self.arrival)

    def chosen(self, order: list[int]) -> Result:
        """Return the entries of some requests, in another order, before anything has happened."""
        other = Result()
        for name in COLUMNS:
            getattr(other, name).extend(map(getattr(self, name).__getitem__, order))
        return other

    def put(self, order: list[int], other: Result) -> None:
        """Take over what became of those requests, and what all of them did together."""
        for name in COLUMNS:
            column = getattr(self, name)
            for index, value in zip(order, getattr(other, name), strict=True):
                column[index] = value
        for name in TOTALS:
            setattr(self, name, getattr(other, name))

    @property
    def total_preemptions(self) -> int:
        """How often any request lost its blocks."""
        return sum(self.preemptions)

    @property
    def refused(self) -> int:
        """How many requests the engine refused: without a prompt, or with one that leaves no room for an answer."""
        return sum(tokens == 0 for tokens in self.output_tokens)


COLUMNS = tuple(entry.name for entry in fields(Result) if entry.default is MISSING)
"""What a result has of each request."""
TOTALS = tuple(entry.name for entry in fields(Result) if entry.default is not MISSING)
"""And of all together."""
