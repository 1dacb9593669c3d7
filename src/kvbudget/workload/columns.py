"""Traces as CSV: which column is what, by the header's names."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.errors import InputError
from kvbudget.headers.source import shown
from kvbudget.workload.files import HEAD, Bytes, Lines
from kvbudget.workload.recorded import Trace, seconds_of, tokens_of
from kvbudget.workload.request import Request
from kvbudget.workload.rows import CsvRows, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Columns(NamedTuple):
    """Where a CSV file has what, None for what its header does not name.

    Attributes:
        format: One of `CSV`.
        time: The column of times.
        unit: How many of its units make a second.
        prompt: The column of prompt tokens.
        output: The column of generated tokens.
        width: How many columns there are.
        delimiter: What stands between them.
    """

    format: str
    time: int | None
    unit: float
    prompt: int | None
    output: int | None
    width: int
    delimiter: str


_UNITS = {
    **dict.fromkeys(("", "s", "sec", "secs", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "milliseconds"), 1e3),
    **dict.fromkeys(("us", "usec", "microseconds"), 1e6),
    **dict.fromkeys(("ns", "nsec", "nanoseconds"), 1e9),
}
"""How the name of a column of times ends -> how many of its units make a second."""

_TIMES = {
    name + ending: unit
    for name in (
        "timestamp",
        "arrival",
        "arrivaltime",
        "arrivaltimestamp",
        "arrivedat",
        "time",
        "starttime",
        "datetime",
    )
    for ending, unit in _UNITS.items()
}
_PROMPTS = (
    *("contexttokens", "requesttokens", "numprefilltokens", "prompt", "prompttokens", "numprompttokens"),
    *("inputtokens", "numinputtokens", "inputlength", "promptlength", "promptlen", "inputlen"),
)
_OUTPUTS = (
    *("generatedtokens", "responsetokens", "numdecodetokens", "output", "outputtokens", "numoutputtokens"),
    *("outputlength", "outputlen", "completiontokens"),
)

CSV = ("azure", "burstgpt", "csv")

_DELIMITERS = (",", ";", "\t")


def header_of(line: str) -> Columns | None:
    """Return where the columns of a header stand, None if it names no lengths at all."""
    for delimiter in _DELIMITERS:
        names = ["".join(char for char in part.casefold() if char.isalnum()) for part in line.split(delimiter)]
        time, prompt, output = (_first(names, known) for known in (_TIMES, _PROMPTS, _OUTPUTS))
        if prompt is None and output is None:
            continue
        form = {"contexttokens": "azure", "requesttokens": "burstgpt"}.get(
            "" if prompt is None else names[prompt], "csv"
        )
        unit = 1.0 if time is None else _TIMES[names[time]]
        return Columns(form, time, unit, prompt, output, len(names), delimiter)
    return None


def _first(names: list[str], known: Iterable[str]) -> int | None:
    return next((names.index(name) for name in known if name in names), None)


def columns_of(name: str, content: Bytes) -> Columns:
    """Return where the columns of a file stand, without reading on.

    Raises:
        InputError: Its header does not name both lengths.
    """
    line = content.peek(HEAD).decode("utf-8-sig", "replace").lstrip().partition("\n")[0].strip("\r")
    found = header_of(line)
    prompt, output = (None, None) if found is None else (found.prompt, found.output)
    if found is None or prompt is None or output is None:
        lacking = [what for what, at in (("prompt_tokens", prompt), ("output_tokens", output)) if at is None]
        raise InputError(
            f"{name}: its header {shown(repr(line))} has no column {' and no column '.join(lacking)}; name "
            f"{'them' if len(lacking) > 1 else 'it'} so."
        )
    return found


def csv_requests(trace: Trace, name: str, content: Bytes) -> Iterator[Request]:
    """Yield the requests of a CSV file; without a column of times all come at 0."""
    columns = columns_of(name, content)
    rows = CsvRows(Lines(name, content), columns.delimiter)
    clock = _Clock(rows, columns.unit)
    at, prompt_at, output_at = columns.time, columns.prompt or 0, columns.output or 0
    lines = iter(rows)
    next(lines)
    for row in lines:
        if len(row) != columns.width:
            raise rows.error(f"has {len(row)} columns instead of {columns.width}")
        arrival = 0.0 if at is None else clock.seconds(row[at])
        prompt = tokens_of(rows, row[prompt_at], "prompt tokens")
        output = tokens_of(rows, row[output_at], "output tokens")
        if prompt and output:  # as request_of, written out for the million rows
            yield Request(arrival, prompt, output)
        else:
            trace.left_out += 1


_ADVICE = "write seconds, or dates such as 2024-05-12 18:15:46, or end the column's name in _ms, _us or _ns"

_SECOND = 19
"""Characters of ``2023-11-16 18:15:46``."""


class _Clock:
    """Reads a column of times: numbers in its unit, dates as seconds since the first row, negative for earlier ones."""

    def __init__(self, rows: Rows, unit: float) -> None:
        self._rows, self._unit = rows, unit
        self._first: int | None = None
        self._second, self._seconds = "", 0

    def seconds(self, text: str) -> float:
        """Return a row's time in seconds."""
        text = text.strip()
        if "-" not in text[4:5]:  # which a date has behind its year
            return seconds_of(self._rows, text, self._unit, _ADVICE)
        nanoseconds = self._nanoseconds(text)
        if self._first is None:
            self._first = nanoseconds
        return (nanoseconds - self._first) / 1e9

    def _nanoseconds(self, text: str) -> int:
        """Return nanoseconds since the epoch of a date with any number of decimals and an optional offset."""
        second, rest = text[:_SECOND], text[_SECOND:]
        try:
            if second != self._second:
                date = datetime.fromisoformat(second).replace(tzinfo=UTC)
                self._second, self._seconds = second, round(date.timestamp())
            decimals, offset = "", 0
            if rest.startswith("."):
                decimals = rest[1:].partition("+")[0].partition("-")[0].rstrip("Z")
                rest = rest[1 + len(decimals) :]
            if rest not in ("", "Z", "+00:00"):
                zone = datetime.fromisoformat("2000-01-01T00:00:00" + rest).utcoffset()
                offset = round(zone.total_seconds()) if zone else 0
            fraction = int((decimals + "000000000")[:9])
        except (ValueError, OverflowError):
            raise self._rows.error(f"has the time {shown(repr(text), 60)}, which is no date") from None
        return (self._seconds - offset) * 10**9 + fraction
