"""Rows of a trace, whatever the file is: CSV, JSON lines, or the elements of one JSON list, one at a time.

Each source remembers where the row it gave last stands, so that a message can name it.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Protocol

from kvbudget.errors import InputError
from kvbudget.headers.source import shown
from kvbudget.workload.files import MAX_LINE, Bytes, Lines, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Rows(Protocol):
    """A source of rows that knows where it stands."""

    name: str

    def __iter__(self) -> Iterator[Any]:
        """Yield the rows in the file's order."""

    def error(self, what: str, advice: str = "correct or remove it") -> InputError:
        """Return the error for the row that was yielded last."""


_DECODER = json.JSONDecoder()
"""It takes NaN and Infinity, which tools write into fields that nobody reads here; those that are read are checked."""

_SPACE = re.compile(r"[ \t\n\r]*")


class JsonLines:
    """One JSON value a line."""

    def __init__(self, lines: Lines) -> None:
        self.name, self._lines = lines.name, lines
        self.error = lines.error

    def __iter__(self) -> Iterator[Any]:
        """Yield the values.

        Raises:
            InputError: A line is not JSON.
        """
        for line in self._lines:
            if not line.isspace():
                yield _parsed(line.strip(), self.error)


def _parsed(text: str, error: Any) -> Any:  # noqa: ANN401 - JSON is anything
    value, end = _value_at(text, 0, error)
    if end != len(text):
        raise error("has something behind its JSON value")
    return value


def _value_at(text: str, at: int, error: Any) -> tuple[Any, int]:  # noqa: ANN401
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise error("is nested too deeply") from None
    except ValueError as problem:
        raise error(f"is not JSON ({shown(str(problem), 60)})") from None


class JsonList:
    """The elements of one JSON list, read piece by piece: the memory is that of the largest element, not the list's."""

    def __init__(self, name: str, content: Bytes) -> None:
        import codecs  # noqa: PLC0415

        self.name, self.number = name, 0
        self._content = content
        self._text = codecs.getincrementaldecoder("utf-8-sig")()
        self._buffer, self._at, self._line, self._ended = "", 0, 1, False

    def __iter__(self) -> Iterator[Any]:
        """Yield the elements.

        Raises:
            InputError: It is not a JSON list, or ends within it.
        """
        if self._next_char() != "[":
            raise self.error("is not a JSON list")
        self._at += 1
        if self._next_char() == "]":
            self._end()
            return
        while True:
            self.number += 1
            self._next_char()
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except (ValueError, RecursionError):  # cut off by the buffer's end, or broken
                end = len(self._buffer)
            if self._buffer.startswith(",", end):  # nearly always
                self._at = end + 1
                yield value
                continue
            yield self._value()
            separator = self._next_char()
            if separator == "]":
                self._end()
                return
            if separator != ",":
                raise self.error("is not followed by a comma" if separator else "is the last: the list has no end")
            self._at += 1

    def error(self, what: str, advice: str = "correct or remove it") -> InputError:
        """Return the error for the element that was yielded last."""
        line = self._line + self._buffer.count("\n", 0, self._at)
        return InputError(f"{self.name}: entry {self.number} (line {line}) {what}; {advice}.")

    def _fill(self, size: int) -> None:
        data = self._content.read(size)
        self._ended = not data
        try:
            more = self._text.decode(data, final=self._ended)
        except UnicodeDecodeError:
            raise self.error("is not UTF-8 text") from None
        self._line += self._buffer.count("\n", 0, self._at)
        self._buffer, self._at = self._buffer[self._at :] + more, 0

    def _next_char(self) -> str:
        """Move to the next character that is not a blank and return it, "" at the end of the file."""
        while True:
            match = _SPACE.match(self._buffer, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._buffer) or self._ended:
                return self._buffer[self._at : self._at + 1]
            self._fill(_PIECE)

    def _value(self) -> Any:  # noqa: ANN401
        size = _PIECE
        while True:
            problem = ""
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except RecursionError:
                raise self.error("is nested too deeply") from None
            except json.JSONDecodeError as error:
                problem = error.msg
            except ValueError as error:
                raise self.error(f"is not JSON ({shown(str(error), 60)})") from None
            if not problem and (end < len(self._buffer) or self._ended):  # 12 may go on as 123
                self._at = end
                return value
            if self._ended:
                raise self.error(f"is cut off or not JSON ({problem})")
            if len(self._buffer) - self._at > MAX_LINE:
                raise self.error(f"is not JSON, or longer than {MAX_LINE:,} characters")
            self._fill(size)
            size *= 2

    def _end(self) -> None:
        self._at += 1
        if self._next_char():
            raise self.error("is the last, and something follows the list")


_PIECE = 1 << 16


class CsvRows:
    """The rows of a CSV file behind its header, as lists of text."""

    def __init__(self, lines: Lines, delimiter: str = ",") -> None:
        self.name, self._lines, self._delimiter = lines.name, lines, delimiter
        self.error = lines.error

    def __iter__(self) -> Iterator[list[str]]:
        """Yield header and rows; blank lines are passed over.

        Raises:
            InputError: A row is not CSV.
        """
        import csv  # noqa: PLC0415

        rows = csv.reader(self._lines, delimiter=self._delimiter, strict=True)
        while True:
            try:
                row = next(rows)
            except StopIteration:
                return
            except csv.Error as problem:
                raise self.error(f"is not CSV ({shown(str(problem))})") from None
            yield row


def json_documents(name: str, content: Bytes) -> list[Mapping[str, Any]]:
    """Return the JSON objects of a file that is read whole, one behind the other.

    Raises:
        InputError: It is not JSON, not of objects, or too large.
    """

    def error(what: str) -> InputError:
        return InputError(f"{name}: {what}; give the file as its tool wrote it.")

    try:
        text = whole(name, content).decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise error("is not UTF-8 text") from None
    found: list[Mapping[str, Any]] = []
    at = 0
    while at < len(text) or not found:
        value, end = _value_at(text, at, error)
        if not isinstance(value, dict):
            raise error("is not a JSON object")
        found.append(value)
        space = _SPACE.match(text, end)
        at = space.end() if space else end
    return found


def json_document(name: str, content: Bytes) -> Mapping[str, Any]:
    """Return the one JSON object of a file.

    Raises:
        InputError: It is not JSON, not one object, or too large.
    """
    found = json_documents(name, content)
    if len(found) > 1:
        raise InputError(f"{name}: holds {len(found):,} results, one behind the other; give a file with one of them.")
    return found[0]
