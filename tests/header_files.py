"""What the tests of all header readers share: a file in memory, and what a refusal must look like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kvbudget.errors import CannotTell, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

NAME = "model.file"
"""What a file is called where its name does not matter."""

LONGEST_MESSAGE = 400


@dataclass(slots=True)
class Memory:
    """A source in memory that notes what was asked of it."""

    content: bytes
    name: str = NAME
    known_size: int | None = -1
    asked: list[tuple[int, int]] = field(default_factory=list)

    @property
    def size(self) -> int | None:
        return len(self.content) if self.known_size == -1 else self.known_size

    def read(self, offset: int, length: int) -> bytes:
        self.asked.append((offset, length))
        return self.content[offset : offset + length]


def refusal(call: Callable[[], object], name: str = NAME, kind: type[Exception] = InputError) -> str:
    """Return the message of the error a call ends in, which is one printable sentence that begins with the file."""
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert message.startswith(f"{name}: ")
    assert message.endswith(".")
    assert message.isprintable()
    assert len(message) <= LONGEST_MESSAGE
    return message


def outcome(read: Callable[[Any], object], source: Memory) -> str | None:
    """Return the message if the source is refused, None if it is read; anything else fails the test."""
    try:
        read(source)
    except (InputError, CannotTell) as error:
        message = str(error)
    else:
        return None
    assert message.isprintable()
    assert len(message) <= LONGEST_MESSAGE
    return message
