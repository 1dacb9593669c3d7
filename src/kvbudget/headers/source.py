"""Where the bytes of a header come from: a local file, or anything else that is read in ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kvbudget.errors import AccessError, InputError

if TYPE_CHECKING:
    from pathlib import Path

LFS_POINTER = b"version "
"""How the small text file begins that Git LFS leaves in place of a large one (git-lfs, docs/spec.md)."""


class Source(Protocol):
    """A file that is read in ranges.

    The readers move from the front to the back of a header and ask for small ranges; where a range is dear, as over a
    network, it is the source that reads ahead and keeps what it got.
    """

    @property
    def name(self) -> str:
        """What messages call it: short, on one line."""

    @property
    def size(self) -> int | None:
        """Bytes of the whole file, None if that is not known; the end of the data is checked only if it is."""

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes from `offset` on: `length` of them, fewer only where the file ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """A `Source` on this machine; each range is a read of its own, without a buffer that reads further."""

    path: Path
    name: str
    size: int

    @classmethod
    def at(cls, path: Path) -> LocalFile:
        """Return the file at `path`.

        Raises:
            AccessError: The file system does not let us in.
            InputError: There is no such file, or it is not a regular one.
        """
        name = shown(path.name)
        if not is_there(path):
            raise InputError(f"{name}: there is no such file, or it is not a regular one; give a weight file.")
        try:
            return cls(path=path, name=name, size=path.stat().st_size)
        except OSError as error:
            raise _unreadable(name, error) from None

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes from `offset` on, fewer than `length` only at the end of the file.

        Raises:
            AccessError: The file system does not let us read it.
            InputError: It cannot be read.
        """
        parts = []
        try:
            with self.path.open("rb", buffering=0) as file:
                file.seek(offset)
                while length > 0 and (part := file.read(length)):  # one read returns no more than 2 GiB
                    parts.append(part)
                    length -= len(part)
        except OSError as error:
            raise _unreadable(self.name, error) from None
        return b"".join(parts)


def _unreadable(name: str, error: OSError) -> AccessError | InputError:
    if isinstance(error, PermissionError):
        return AccessError(f"{name}: cannot be read ({error.strerror}); give a file that you may read.")
    return InputError(f"{name}: cannot be read ({error.strerror or type(error).__name__}); check the file.")


def is_there(path: Path) -> bool:
    """Return whether a path is a regular file.

    Raises:
        AccessError: The file system does not let us look.
        InputError: It can be no path.
    """
    try:
        return path.is_file()
    except OSError as error:
        raise _unreadable(shown(path.name), error) from None


def read_exactly(source: Source, offset: int, length: int, what: str) -> bytes:
    """Return `length` bytes from `offset` on.

    Raises:
        InputError: The file ends before; `what` names the part for the message.
    """
    if source.size is None or offset + length <= source.size:
        content = source.read(offset, length)
        if len(content) >= length:
            return content[:length]
    raise broken(source, f"ends within its {what}, which takes {length:,} bytes")


def broken(
    source: Source, what: str, advice: str = "the file is damaged or cut off, so download it again"
) -> InputError:
    """Return the error for a file in which `what` is wrong."""
    return InputError(f"{source.name}: {what}; {advice}.")


def pointer(source: Source) -> InputError:
    """Return the error for a file that Git LFS has not fetched yet."""
    return broken(source, "is a Git LFS pointer and not the file it stands for", "run `git lfs pull`")


def shown(text: str, limit: int = 80) -> str:
    """Return a foreign text for a message: on one line, without control characters, cut to `limit` characters."""
    text = text[: limit + 1]
    text = text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= limit else text[: limit - 1] + "…"
