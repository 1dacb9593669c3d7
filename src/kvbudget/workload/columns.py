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
    """Where a CSV file has what."""

    format: str
    time: int | None
    prompt: int
    output: int
    width: int


_TIMES = ("timestamp", "arrival", "arrivaltime", "arrivedat", "time")
_PROMPTS = (
    *("contexttokens", "requesttokens", "numprefilltokens", "prompt", "prompttokens"),
    *("inputtokens", "inputlength", "promptlen", "inputlen"),
)
_OUTPUTS = (
    *("generatedtokens", "responsetokens", "numdecodetokens", "output", "outputtokens"),
    *("outputlength", "outputlen", "completiontokens"),
)

CSV = ("azure", "burstgpt", "csv")


def header_of(line: str) -> Columns | None:
    """Return where the columns of a header stand, None if it names no lengths."""
    names = ["".join(char for char in part.casefold() if char.isalnum()) for part in line.split(",")]

    def at(known: Iterable[str]) -> int | None:
        return next((names.index(name) for name in known if name in names), None)

    prompt, output = at(_PROMPTS), at(_OUTPUTS)
    if prompt is None or output is None:
        return None
    form = {"contexttokens": "azure", "requesttokens": "burstgpt"}.get(names[prompt], "csv")
    return Columns(form, at(_TIMES), prompt, output, len(names))


def columns_of(name: str, content: Bytes) -> Columns:
    """Return where the columns of a file stand, without reading on.

    Raises:
        InputError: Its header names no lengths.
    """
    line = content.peek(HEAD).decode("utf-8-sig", "replace").lstrip().partition("\n")[0]
    found = header_of(line.strip("\r"))
    if found is None:
        raise InputError(
            f"{name}: its header {shown(line)!r} names no column of prompt and output tokens; name them "
            "prompt_tokens and output_tokens."
        )
    return found


def csv_requests(trace: Trace, name: str, content: Bytes) -> Iterator[Request]:
    """Yield the requests of a CSV file; without a column of times all come at 0."""
    columns = columns_of(name, content)
    rows = CsvRows(Lines(name, content))
    clock = _Clock(rows)
    lines = iter(rows)
    next(lines)
    for row in lines:
        if len(row) != columns.width:
            raise rows.error(f"has {len(row)} columns instead of {columns.width}")
        arrival = 0.0 if columns.time is None else clock.seconds(row[columns.time])
        prompt = tokens_of(rows, row[columns.prompt], "prompt tokens")
        output = tokens_of(rows, row[columns.output], "output tokens")
        if prompt and output:  # as request_of, written out for the million rows
            yield Request(arrival, prompt, output)
        else:
            trace.left_out += 1


_SECOND = 19
"""Characters of ``2023-11-16 18:15:46``."""


class _Clock:
    """Reads a column of times: seconds as they are, dates as seconds since the first row."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._first: int | None = None
        self._second, self._seconds = "", 0

    def seconds(self, text: str) -> float:
        """Return a row's time in seconds."""
        if "-" not in text[4:5]:  # which a date has behind its year
            return seconds_of(self._rows, text.strip())
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
