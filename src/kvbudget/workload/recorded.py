"""What a file tells of a workload: single requests or only distributions; and how a row becomes a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.errors import InputError
from kvbudget.headers.source import shown
from kvbudget.workload.lengths import MAX_TOKENS, Lengths
from kvbudget.workload.request import Request, Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kvbudget.workload.rows import Rows

REORDERED = 1 << 16
"""How many rows a row may come late; no more are held in memory at a time, twice over."""

MAX_SECONDS = 1e10
"""Three centuries; a larger time is in another unit."""

CLOCK_SECONDS = 100 * 86_400.0
"""A hundred days, as long as a simulation may be; a trace that begins later has the times of a clock."""


class Profile(NamedTuple):
    """What a summary tells of a workload: distributions of lengths, at most a rate.

    Attributes:
        name: The file, for messages.
        format: One of `FORMATS`.
        prompt: Lengths of prompts.
        output: Lengths of answers.
        rate: Requests a second, None if the file does not say.
        notes: What the reader must know of it, a sentence each.
    """

    name: str
    format: str
    prompt: Lengths
    output: Lengths
    rate: float | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class Trace:
    """Requests in a file, read anew each time they are asked for.

    Attributes:
        name: The file, for messages.
        format: One of `FORMATS`.
        timed: Whether its rows say when they came; the arrivals of others are all 0.
        notes: What the reader must know of it, a sentence each.
        drawn: Whether its requests are drawn from what it tells, by a seed.
        left_out: Rows of the last reading that can be no request.
    """

    name: str
    format: str
    timed: bool
    notes: tuple[str, ...] = ()
    drawn: bool = False
    left_out: int = field(default=0)
    reading: Callable[[Trace, int], Iterator[Request]]

    def requests(self, seed: int = 0) -> Iterator[Request]:
        """Yield the requests by rising arrival, of equal ones the earlier row first.

        Args:
            seed: What chance begins with, where the file describes sources of requests and not single ones (ServeGen).

        Raises:
            InputError: A row is broken, or comes more than `REORDERED` rows late.
        """
        self.left_out = 0
        return self.reading(self, seed)


def tokens_of(rows: Rows, value: object, what: str) -> int:
    """Return a count of tokens, 0 included."""
    if type(value) is int and 0 <= value <= MAX_TOKENS:  # nearly always
        return value
    try:
        number = int(value) if isinstance(value, str) and value.isdigit() else float(value)  # type: ignore[arg-type]
        if 0 <= number <= MAX_TOKENS and number == int(number) and not isinstance(value, bool):
            return int(number)
    except (ValueError, TypeError, OverflowError):
        pass
    seen = "no" if value is None else shown(repr(value), 40)
    raise rows.error(f"has {seen} {what}, where a whole number from 0 to {MAX_TOKENS:,} is expected")


def seconds_of(rows: Rows, value: object, unit: float = 1.0, advice: str = "correct or remove it") -> float:
    """Return a time in seconds; `unit` is how many of the value's make one."""
    try:
        seconds = float(value) / unit  # type: ignore[arg-type]
        if 0 <= seconds <= MAX_SECONDS and not isinstance(value, bool):
            return seconds
    except (ValueError, TypeError, OverflowError):
        pass
    seen = "no time" if value is None else f"the time {shown(repr(value), 40)}"
    raise rows.error(f"has {seen}, where 0 to {MAX_SECONDS:,.0f} seconds are expected", advice)


def request_of(
    trace: Trace,
    arrival: float,
    prompt: int,
    output: int,
    segments: tuple[Segment, ...] = (),
    priority: int = 0,
) -> Iterator[Request]:
    """Yield the request of a row, or count it as none."""
    if prompt and output:
        yield Request(arrival, prompt, output, segments, None, priority)
    else:
        trace.left_out += 1


def in_order(requests: Iterator[Request], name: str, *, from_first: bool) -> Iterator[Request]:
    """Yield requests by rising arrival, counted from the first one if `from_first` or if that one is on a clock."""
    held: list[Request] = []
    by_arrival = attrgetter("arrival")
    first: float | None = None
    last = 0.0
    while True:
        more = list(islice(requests, REORDERED))
        held += more
        held.sort(key=by_arrival)  # stable, and linear where the rows are in order
        ready = held[:REORDERED] if more else held
        if not ready:
            return
        if first is None:
            first = last = ready[0].arrival
            from_first = from_first or not 0 <= first <= CLOCK_SECONDS
        if ready[0].arrival < last:
            raise InputError(
                f"{name}: a request of second {ready[0].arrival:g} comes more than {REORDERED:,} rows behind one of "
                f"second {last:g}; sort the file by time."
            )
        last = ready[-1].arrival
        if from_first and first:
            yield from (request._replace(arrival=request.arrival - first) for request in ready)
        else:
            yield from ready
        held = held[len(ready) :]
        if not more and not held:
            return


class Entries:
    """The requests of a document that was read whole, as rows."""

    def __init__(self, name: str, entries: Iterable[Any]) -> None:
        self.name, self.number = name, 0
        self._entries = entries

    def __iter__(self) -> Iterator[Any]:
        """Yield the entries."""
        for self.number, entry in enumerate(self._entries, 1):  # noqa: B020 - the number is kept for messages
            yield entry

    def error(self, what: str, advice: str = "give the file as its tool wrote it") -> InputError:
        """Return the error for the entry that was yielded last."""
        return InputError(f"{self.name}: request {self.number} {what}; {advice}.")
