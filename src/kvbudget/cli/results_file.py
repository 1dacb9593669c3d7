"""Finished points of a sweep in a file of JSON lines, so that a sweep that was stopped goes on where it was."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.simulation.sweep import Figures, Row

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from typing import BinaryIO

LONGEST_LINE = 1 << 16
"""Bytes; a row has about five hundred."""

BEGINS = b'{"key": "'
"""How each line begins, by which a line that was cut off is told from a line of another file."""


class ResultsFile:
    """Rows on disk, one a line; whole lines are added in one write each, so that a stop loses none that was written.

    Args:
        target: The file, which need not exist.
    """

    def __init__(self, target: str) -> None:
        self.target = target
        self._path = Path(target).expanduser()

    def rows(self, keys: Collection[str]) -> dict[str, Row]:
        """Return the rows with one of these keys; a last line that was cut off is taken away.

        Raises:
            InputError: The file cannot be read, or is of something else.
        """
        found = {}
        try:
            with self._path.open("rb") as file:
                for row in self._read(file):
                    if row.key in keys:
                        found[row.key] = row
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise self._unusable("read", error) from None
        return found

    def _read(self, file: BinaryIO) -> Iterator[Row]:
        number = end = 0
        while line := file.readline(LONGEST_LINE):
            number += 1
            if not line.endswith(b"\n"):
                if len(line) == LONGEST_LINE or not (line.startswith(BEGINS) or BEGINS.startswith(line)):
                    raise self._foreign(number)
                os.truncate(self._path, end)
                return
            end += len(line)
            yield self._row(line, number)

    def _row(self, line: bytes, number: int) -> Row:
        try:
            entry: dict[str, Any] = json.loads(line)
            key, options, refusal = entry.pop("key"), entry.pop("options"), entry.pop("refusal", None)
            figures = Figures(**entry)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise self._foreign(number) from None
        sound = isinstance(key, str) and isinstance(options, dict)
        if not sound or not all(type(value) in (int, float) for value in figures):
            raise self._foreign(number)
        return Row(key=key, options=tuple(options.items()), figures=figures, refusal=refusal or "")

    def add(self, rows: Sequence[Row]) -> None:
        """Add rows.

        Raises:
            InputError: The file cannot be written.
        """
        lines = "".join(json.dumps({"key": row.key, **row.to_dict()}) + "\n" for row in rows if row.figures is not None)
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                left = memoryview(lines.encode())
                while left:
                    left = left[os.write(file, left) :]
            finally:
                os.close(file)
        except OSError as error:
            raise self._unusable("written", error) from None

    def _foreign(self, number: int) -> InputError:
        return InputError(
            f"{self.target}, line {number}: is no row of a sweep; "
            "give a new file, or one of `kvbudget sweep --results`."
        )

    def _unusable(self, how: str, error: OSError) -> InputError:
        return InputError(f"{self.target} cannot be {how}: {error.strerror or error}.")
