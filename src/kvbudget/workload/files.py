"""Trace files as bytes: plain or compressed, alone or in a tar archive, read front to back in bounded memory.

A compressed file is a claim about how much follows. What comes out of one is counted, and a file that grows more than
any trace does is refused before it has filled the memory or the day.
"""

from __future__ import annotations

import io
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from kvbudget.errors import AccessError, InputError
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from tarfile import TarInfo

MAX_LINE = 16 << 20
"""Bytes of one line or one element of a JSON list; a request of a million tokens takes 20 kB."""

MAX_DOCUMENT = 128 << 20
"""Bytes of a JSON document that is one object, which is read whole."""

FREE_GROWTH = 64 << 20
MAX_GROWTH = 250
"""Traces compress 4 to 30 times; a file that comes out more than 250 times as large, and above 64 MiB, is a bomb."""

_MAX_DICTIONARY = 256 << 20
"""Memory that an xz header may ask for; `xz -9` takes 65 MiB."""

_CHUNK = 1 << 16

_TAR_MAGIC = slice(257, 262)

HEAD = 1 << 16
"""Bytes at the front that tell a format."""


class Bytes(Protocol):
    """What the readers read from: a buffered binary file."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes, none only at the end."""

    def readline(self, size: int, /) -> bytes:
        """Return the next line, at most `size` bytes of it."""

    def peek(self, size: int, /) -> bytes:
        """Return bytes from here on without moving."""


class _Decoder(Protocol):
    """One member of a compressed file, as `lzma` and `bz2` decode it."""

    @property
    def eof(self) -> bool:
        """Whether the member has ended."""

    @property
    def needs_input(self) -> bool:
        """Whether more input is needed before more comes out."""

    @property
    def unused_data(self) -> bytes:
        """What follows the member."""

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return what comes out, at most so much of it."""


class _Gzip:
    """zlib's decoder, which hands back the input it did not use, in the others' clothes."""

    def __init__(self) -> None:
        import zlib  # noqa: PLC0415

        self._inner = zlib.decompressobj(31)  # with a gzip header

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._inner.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


def _xz() -> _Decoder:
    import lzma  # noqa: PLC0415

    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_DICTIONARY)


def _bz2() -> _Decoder:
    import bz2  # noqa: PLC0415

    return bz2.BZ2Decompressor()


_PACKED: tuple[tuple[bytes, Callable[[], _Decoder]], ...] = (
    (b"\x1f\x8b", _Gzip),
    (b"\xfd7zXZ\x00", _xz),
    (b"BZh", _bz2),
)
"""How compressed files begin -> what decodes them."""

_FOREIGN = ((b"(\xb5/\xfd", "compressed with zstd"), (b"PK\x03\x04", "a zip archive"), (b"PAR1", "Parquet"))
"""How files begin that are not read -> what they are."""


def _damage() -> tuple[type[Exception], ...]:
    """Return what decoders raise of damaged data; `bz2` raises OSError."""
    import lzma  # noqa: PLC0415
    import zlib  # noqa: PLC0415

    return zlib.error, lzma.LZMAError, OSError, ValueError, EOFError, MemoryError


class _Inflated(io.RawIOBase):
    """The content of a gzip or xz file, several members in a row included, as a raw file."""

    def __init__(self, packed: io.BufferedReader, kind: Callable[[], _Decoder], name: str) -> None:
        self._packed, self._kind, self._name = packed, kind, name
        self._decoder = kind()
        self._taken = self._given = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:  # noqa: ANN401 - whatever can be written to
        with memoryview(buffer).cast("B") as view:
            part = self._next(len(view))
            view[: len(part)] = part
        return len(part)

    def close(self) -> None:
        self._packed.close()
        super().close()

    def _more(self) -> bytes:
        data = self._packed.read(_CHUNK)
        self._taken += len(data)
        return data

    def _next(self, most: int) -> bytes:
        while True:
            data = b""
            if self._decoder.eof:
                data = (self._decoder.unused_data or self._more()).lstrip(b"\0")  # padding may follow
                if not data:
                    return b""
                self._decoder = self._kind()
            elif self._decoder.needs_input:
                data = self._more()
                if not data:
                    raise InputError(
                        f"{self._name}: ends within its compressed data; the file is cut off, so get it again."
                    )
            try:
                part = self._decoder.decompress(data, most)
            except _damage() as error:
                what = shown(str(error))
                raise InputError(
                    f"{self._name}: its compressed data is damaged ({what}); get the file again."
                ) from None
            self._given += len(part)
            if self._given > FREE_GROWTH + MAX_GROWTH * self._taken:
                raise InputError(
                    f"{self._name}: {self._taken:,} compressed bytes grow to over {self._given:,}, as no trace does; "
                    "unpack the file yourself if you trust it."
                )
            if part:
                return part


@contextmanager
def open_trace(path: Path) -> Iterator[tuple[str, Bytes]]:
    """Hold a file open, and give its name for messages and its content, unpacked.

    A path that goes on behind an archive, ``pack.tar.xz/folder/run.jsonl``, names a file in it.

    Raises:
        InputError: There is no such file, or it is damaged.
        AccessError: The file system does not let us read it.
    """
    packed, member = _split(path)
    name = shown(path.name)
    with _unpacked(packed, shown(packed.name)) as content:
        if member is not None:
            yield name, _member(content, shown(packed.name), member)
        elif _is_tar(content):
            raise _not_one(content, name)
        else:
            yield name, content


def members(path: Path) -> Iterator[tuple[str, Bytes]]:
    """Yield name and content of each file of a folder or an archive; a content is read before the next one comes.

    Raises:
        InputError: The archive is damaged.
        AccessError: The file system does not let us read it.
    """
    if path.is_dir():
        for part in sorted(path.iterdir()):
            if part.is_file():
                with _unpacked(part, shown(part.name)) as content:
                    yield part.name, content
        return
    with _unpacked(path, shown(path.name)) as whole_file:
        for info, part_of_it in _members(whole_file, shown(path.name)):
            yield info.name, part_of_it


def is_archive(path: Path) -> bool:
    """Return whether a path is a folder or an archive of several files."""
    try:
        if not path.is_file():
            return path.is_dir()
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    with _unpacked(path, shown(path.name)) as content:
        return _is_tar(content)


def _split(path: Path) -> tuple[Path, str | None]:
    """Return the file on disk, and the part of the path that names a file in it."""
    try:
        if path.is_file():
            return path, None
        there = path.exists()
        for parent in path.parents:
            if parent.is_file():
                return parent, path.relative_to(parent).as_posix()
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    if there:
        raise InputError(f"{shown(path.name)}: is no file that can be read several times; save it to one.")
    raise InputError(f"{shown(path.name)}: there is no such file; check its path.")


def _unpacked(path: Path, name: str) -> io.BufferedReader:
    try:
        file: io.BufferedReader = io.BufferedReader(path.open("rb", buffering=0), HEAD)
        head = file.peek(HEAD)
    except (OSError, ValueError) as error:
        raise _refused(path, error) from None
    for magic, what in _FOREIGN:
        if head.startswith(magic):
            file.close()
            raise InputError(
                f"{name}: is {what}, which is not read; give the file as text, or packed by gzip, xz or bzip2."
            )
    for magic, kind in _PACKED:
        if head.startswith(magic):
            return io.BufferedReader(_Inflated(file, kind, name), HEAD)
    return file


def _refused(path: Path, error: Exception) -> AccessError | InputError:
    name = shown(path.name)
    if isinstance(error, PermissionError):
        return AccessError(f"{name}: cannot be read ({error.strerror}); give a file that you may read.")
    what = getattr(error, "strerror", None) or type(error).__name__
    return InputError(f"{name}: cannot be read ({what}); give a trace, or a folder or archive of them.")


def _is_tar(content: io.BufferedReader) -> bool:
    return content.peek(HEAD)[_TAR_MAGIC] == b"ustar"


def _members(content: io.BufferedReader, name: str) -> Iterator[tuple[TarInfo, Bytes]]:
    import tarfile  # noqa: PLC0415

    try:
        with tarfile.open(fileobj=content, mode="r|") as pack:
            for info in pack:
                part = pack.extractfile(info) if info.isreg() else None
                if isinstance(part, io.BufferedReader):
                    yield info, part
                pack.members = []  # type: ignore[attr-defined] # it would remember every name
    except (tarfile.TarError, EOFError) as error:
        raise InputError(f"{name}: the archive is damaged ({shown(str(error))}); get it again.") from None


_MOST_NAMED = 8


def _member(content: io.BufferedReader, name: str, member: str) -> Bytes:
    for info, part in _members(content, name):
        if info.name == member:
            return part
    raise InputError(f"{name}: has no file {shown(member)}; `tar tf` lists them.")


def _not_one(content: io.BufferedReader, name: str) -> InputError:
    """Return the error for an archive in the place of a file."""
    names = [info.name for info, _ in islice(_members(content, name), _MOST_NAMED + 1)]
    listed = ", ".join(shown(item) for item in names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else "")
    return InputError(f"{name}: is an archive of several files; say which as {name}/FILE: {listed}.")


class Lines:
    """The lines of a file, each with its number; blank ones are passed over.

    `number` is the line that was yielded last, for messages.
    """

    def __init__(self, name: str, content: Bytes) -> None:
        self.name, self.number = name, 0
        self._content = content

    def __iter__(self) -> Iterator[str]:
        """Yield the lines as text, without their ends.

        Raises:
            InputError: A line is too long, or not UTF-8.
        """
        readline, most = self._content.readline, MAX_LINE + 1
        while line := readline(most):
            self.number += 1
            if len(line) == most:
                raise self.error(f"is longer than {MAX_LINE:,} bytes")
            try:
                text = line.decode("utf-8-sig" if self.number == 1 else "utf-8")
            except UnicodeDecodeError:
                raise self.error("is not UTF-8 text") from None
            if text := text.strip("\r\n\x1e"):
                yield text

    def error(self, what: str, advice: str = "correct or remove it") -> InputError:
        """Return the error for the line that was yielded last."""
        return InputError(f"{self.name}: line {self.number} {what}; {advice}.")


def whole(name: str, content: Bytes) -> bytes:
    """Return all of a document that is read at once.

    Raises:
        InputError: It is larger than `MAX_DOCUMENT`.
    """
    parts, size = [], 0
    while part := content.read(1 << 20):
        parts.append(part)
        size += len(part)
        if size > MAX_DOCUMENT:
            raise InputError(
                f"{name}: is one JSON object of more than {MAX_DOCUMENT:,} bytes; give its rows as JSON lines."
            )
    return b"".join(parts)
