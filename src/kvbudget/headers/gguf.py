"""GGUF files: a magic, a version, metadata by key, a list of tensors, the data.

The checks are those of llama.cpp (ggml 0.25, gguf.cpp): versions 2 and 3 in little-endian order, no array of arrays, at
most four dimensions, rows of whole blocks, each tensor where the one before it ends. Vocabularies are passed over:
arrays of texts and long arrays of numbers leave only their length behind.
"""

from __future__ import annotations

import re
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.formats import GGML_TYPE_IDS, GGML_TYPES
from kvbudget.headers.source import LFS_POINTER, LocalFile, broken, is_there, pointer, shown
from kvbudget.headers.tensors import MAX_TENSORS, Tensor, checked_name, checked_values

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kvbudget.headers.source import Source

MAGIC = b"GGUF"

VERSIONS = (2, 3)
"""They are laid out alike; version 1 had lengths of 32 bits (gguf.md)."""

MAX_HEADER_BYTES = 128 << 20
"""Metadata and tensor list; the largest vocabularies with their merges take some 20 MiB."""

MAX_KEYS = 1 << 12
"""Of metadata; files have below a hundred."""

MAX_FILE_TENSORS = 1 << 16
"""Of one file, where a layer's experts share a tensor; files have below two thousand."""

MAX_NAME_BYTES = 1 << 10
"""Of a key or a tensor's name; llama.cpp itself allows a tensor 63."""

MAX_KEPT_BYTES = 1 << 12
"""Of a text that is kept; chat templates and whole tokenizers are longer and not needed."""

MAX_KEPT_ITEMS = 1 << 10
"""Of an array that is kept; those with a number for each layer are shorter, vocabularies longer."""

MAX_RANK = 4
"""Dimensions of a tensor (ggml.h, GGML_MAX_DIMS)."""

DEFAULT_ALIGNMENT = 32
"""Of a tensor's data where general.alignment does not say (gguf.h, GGUF_DEFAULT_ALIGNMENT)."""

CHUNK_BYTES = 1 << 18
"""What is read at a time; a header's end is not known before it is reached, so the last chunk may pass it."""


class Skipped(NamedTuple):
    """A value of which only the length is kept: `length` items of type `item`, or a text of that many bytes."""

    item: str
    length: int


Scalar = int | float | str
Value = Scalar | tuple[int | float, ...] | Skipped


class GgufFile(NamedTuple):
    """What a header says.

    Attributes:
        version: Of the format.
        metadata: By key. Texts are foreign: they may hold control characters.
        tensors: In the order of the file.
    """

    version: int
    metadata: Mapping[str, Value]
    tensors: tuple[Tensor, ...]


class _Number(NamedTuple):
    """A number as metadata holds it: its name in llama.cpp, the struct module's letter, bytes."""

    name: str
    letter: str
    size: int


_NUMBERS: Mapping[int, _Number] = MappingProxyType(
    {
        0: _Number("u8", "B", 1),
        1: _Number("i8", "b", 1),
        2: _Number("u16", "H", 2),
        3: _Number("i16", "h", 2),
        4: _Number("u32", "I", 4),
        5: _Number("i32", "i", 4),
        6: _Number("f32", "f", 4),
        7: _Number("bool", "?", 1),
        10: _Number("u64", "Q", 8),
        11: _Number("i64", "q", 8),
        12: _Number("f64", "d", 8),
    }
)
"""By the number of the value type (gguf.h, gguf_type)."""

_TEXT, _ARRAY = 8, 9
"""The two value types that are no numbers."""

_LENGTH_BYTES = 8
_LENGTH = struct.Struct("<Q")


def read_gguf(source: Source) -> GgufFile:
    """Return the header of one GGUF file; of a split model it is one part's.

    Raises:
        InputError: It is not a GGUF file, is big-endian or of version 1, or is broken.
        CannotTell: The version or the type of a tensor is not known.
    """
    cursor = _Cursor(source)
    magic = cursor.take(len(MAGIC))
    if magic != MAGIC:
        if LFS_POINTER.startswith(magic):
            raise pointer(source)
        raise broken(source, "does not begin with the letters GGUF", "give a GGUF file")
    version = _version(cursor)
    tensor_count, key_count = cursor.length(), cursor.length()
    for count, bound, what in ((tensor_count, MAX_FILE_TENSORS, "tensors"), (key_count, MAX_KEYS, "metadata keys")):
        if count > bound:
            raise broken(source, f"claims {count:,} {what}, more than the {bound:,} that are read")
    metadata = _metadata(cursor, key_count)
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        raise broken(source, "its general.alignment is no power of two")
    return GgufFile(version, metadata, _tensors(cursor, tensor_count, alignment))


def _version(cursor: _Cursor) -> int:
    (version,) = cursor.unpack("<I")
    source = cursor.source
    if version in VERSIONS:
        return int(version)
    if version and not version & 0xFFFF:  # the test of llama.cpp's gguf.cpp
        raise broken(source, "is a big-endian GGUF file", "give the little-endian one")
    if version <= 1:
        raise broken(source, f"is of GGUF version {version}, which llama.cpp does not read", "convert it anew")
    raise CannotTell(f"{source.name}: is of GGUF version {version}, and only 2 and 3 are known.", key="version")


def _metadata(cursor: _Cursor, count: int) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for _ in range(count):
        key = cursor.name()
        if not key or key in found:
            raise broken(cursor.source, f'has the metadata key "{shown(key)}" twice' if key else "has an empty key")
        found[key] = _value(cursor, key)
    return found


def _value(cursor: _Cursor, key: str) -> Value:
    (number,) = cursor.unpack("<I")
    if number == _TEXT:
        return _text(cursor)
    if number == _ARRAY:
        return _array(cursor, key)
    value: int | float = cursor.unpack(f"<{_number_type(number, key, cursor.source).letter}")[0]
    return value


def _number_type(number: int, key: str, source: Source) -> _Number:
    found = _NUMBERS.get(number)
    if found is None:
        raise broken(source, f'metadata key "{shown(key)}" has the value type {number}, which does not exist')
    return found


def _text(cursor: _Cursor) -> Value:
    length = cursor.length()
    if length > MAX_KEPT_BYTES:
        cursor.skip(length)
        return Skipped("byte", length)
    return cursor.take(length).decode(errors="replace")


def _array(cursor: _Cursor, key: str) -> Value:
    (number,) = cursor.unpack("<I")
    length = cursor.length()
    if number == _TEXT:
        cursor.skip_texts(length)
        return Skipped("str", length)
    if number == _ARRAY:
        raise broken(cursor.source, f'metadata key "{shown(key)}" is an array of arrays, which llama.cpp does not read')
    item = _number_type(number, key, cursor.source)
    if length > MAX_KEPT_ITEMS:
        cursor.skip(length * item.size)
        return Skipped(item.name, length)
    return cursor.unpack(f"<{length}{item.letter}")


def _tensors(cursor: _Cursor, count: int, alignment: int) -> tuple[Tensor, ...]:
    """Return the tensors; their data must lie without gaps in the order of the list, and within the file."""
    found: dict[str, Tensor] = {}
    reached = end = 0
    for _ in range(count):
        tensor, offset = _tensor(cursor)
        shown_name = shown(tensor.name)
        if tensor.name in found:
            raise broken(cursor.source, f'has the tensor "{shown_name}" twice')
        if offset != reached:
            raise broken(
                cursor.source, f'tensor "{shown_name}" begins at {offset:,} of the data and not at {reached:,}'
            )
        found[tensor.name] = tensor
        end = offset + tensor.nbytes
        reached = _padded(end, alignment)
    size, begin = cursor.source.size, _padded(cursor.position, alignment)
    if found and size is not None and begin + end > size:
        raise broken(cursor.source, f"has {size:,} of the {begin + end:,} bytes that its header lists")
    return tuple(found.values())


def _tensor(cursor: _Cursor) -> tuple[Tensor, int]:
    """Return a tensor and where its data begins, counted from the begin of all data."""
    source, name = cursor.source, cursor.name()
    (rank,) = cursor.unpack("<I")
    if rank > MAX_RANK:
        raise broken(source, f'tensor "{shown(name)}" has {rank:,} dimensions, more than {MAX_RANK}')
    sizes = cursor.unpack(f"<{rank}Q")
    number, offset = cursor.unpack("<IQ")
    if number not in GGML_TYPE_IDS:
        raise CannotTell(
            f'{source.name}: tensor "{shown(name)}" is of ggml type {number}, which is not known here; see '
            "`kvbudget formats` for those that are.",
            key=f"ggml type {number}",
        )
    layout = GGML_TYPES[GGML_TYPE_IDS[number]]
    values = checked_values(sizes, name, source)
    row = sizes[0] if sizes else 1
    if row % layout.block_elems:
        raise broken(
            source,
            f'tensor "{shown(name)}" has rows of {row:,} values, which do not fill {layout.name} blocks of '
            f"{layout.block_elems}",
        )
    return Tensor(name, layout.name, tuple(reversed(sizes)), layout.bytes_for(values)), offset


def _padded(position: int, alignment: int) -> int:
    return -(-position // alignment) * alignment


class _Cursor:
    """A place in a header that moves forward only, with one chunk of the file in memory."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._end = MAX_HEADER_BYTES if source.size is None else min(source.size, MAX_HEADER_BYTES)
        self._chunk = b""
        self._begin = 0
        self._at = 0

    @property
    def position(self) -> int:
        """Bytes from the begin of the file."""
        return self._begin + self._at

    def take(self, length: int) -> bytes:
        """Return the next `length` bytes."""
        self._reach(length)
        begin = self._at
        self._at += length
        return self._chunk[begin : self._at]

    def unpack(self, layout: str) -> tuple[Any, ...]:
        """Return the next numbers, in the struct module's notation."""
        return struct.unpack(layout, self.take(struct.calcsize(layout)))

    def length(self) -> int:
        """Return the next count or length."""
        return int.from_bytes(self.take(_LENGTH_BYTES), "little")

    def name(self) -> str:
        """Return the next text as a name: short, UTF-8, printable."""
        length = self.length()
        if length > MAX_NAME_BYTES:
            raise broken(self.source, f"has a name of {length:,} bytes, more than {MAX_NAME_BYTES:,}")
        try:
            return checked_name(self.take(length).decode(), self.source)
        except UnicodeDecodeError:
            raise broken(self.source, "has a name that is not UTF-8 text") from None

    def skip(self, length: int) -> None:
        """Pass over `length` bytes without reading them."""
        if self.position + length > self._end:
            raise self._past_the_end()
        self._at += length

    def skip_texts(self, count: int) -> None:
        """Pass over `count` texts, reading their lengths only."""
        if self.position + count * _LENGTH_BYTES > self._end:
            raise self._past_the_end()
        chunk, at = self._chunk, self._at
        for _ in range(count):
            if at + _LENGTH_BYTES > len(chunk):
                self._at = at
                self._reach(_LENGTH_BYTES)
                chunk, at = self._chunk, self._at
            at += _LENGTH_BYTES + _LENGTH.unpack_from(chunk, at)[0]
        self._at = at
        self.skip(0)

    def _reach(self, length: int) -> None:
        """Have the next `length` bytes in the chunk."""
        if self._at + length <= len(self._chunk):
            return
        begin = self.position
        left = self._end - begin
        if length > left:
            raise self._past_the_end()
        self._chunk, self._begin, self._at = self.source.read(begin, min(max(length, CHUNK_BYTES), left)), begin, 0
        if length > len(self._chunk):
            raise broken(self.source, "ends within its header")

    def _past_the_end(self) -> InputError:
        if self._end == MAX_HEADER_BYTES:
            return broken(self.source, f"claims a header of more than {MAX_HEADER_BYTES >> 20} MiB")
        return broken(self.source, f"its header leads past the end of the file at {self._end:,} bytes")


_PART = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})(\.gguf)", re.IGNORECASE | re.DOTALL)
"""How llama.cpp names the parts of a split model (llama.cpp, llama_split_path)."""


def split_names(name: str) -> tuple[str, ...]:
    """Return the names of all parts of the split model that a file's name belongs to, or that name alone.

    Raises:
        InputError: The name says that it is a part that cannot be, such as the fourth of three.
    """
    match = _PART.fullmatch(name)
    if match is None:
        return (name,)
    stem, number, count, suffix = match.groups()
    if not 1 <= int(number) <= int(count):
        raise InputError(f"{shown(name)}: there is no part {number} of {count}; check the file's name.")
    return tuple(f"{stem}-{part:05d}-of-{count}{suffix}" for part in range(1, int(count) + 1))


def local_parts(path: Path) -> tuple[LocalFile, ...]:
    """Return all parts of the split model that a file belongs to, or that file alone.

    Raises:
        AccessError: The file system does not let us in.
        InputError: A file is missing.
    """
    names = split_names(path.name)
    if len(names) == 1:
        return (LocalFile.at(path),)
    missing = [number for number, name in enumerate(names, 1) if not is_there(path.with_name(name))]
    if missing:
        first = f"{missing[0]:05d}"
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        there = (number for number, name in enumerate(names, 1) if name == path.name and number not in missing)
        found = next((f"part {number:05d} of {len(names):05d} found, " for number in there), "")
        raise InputError(f"{shown(path.name)}: {found}{first}{more} missing; download the rest into the same folder.")
    return tuple(LocalFile.at(path.with_name(name)) for name in names)


def read_split(parts: Sequence[Source]) -> GgufFile:
    """Return the header of a model from all its parts in order; a whole file is one part.

    The metadata is the first part's, as in llama.cpp, where the others hold little else than their number.

    Raises:
        InputError: A part is broken, is not what its place says, or holds a tensor of another.
        CannotTell: The version or the type of a tensor is not known.
    """
    first = read_gguf(parts[0])
    found: dict[str, Tensor] = {}
    for number, source in enumerate(parts):
        part = read_gguf(source) if number else first
        _check_place(part, number, len(parts), source)
        for tensor in part.tensors:
            if tensor.name in found:
                raise broken(source, f'holds tensor "{shown(tensor.name)}", which another part holds too')
            found[tensor.name] = tensor
        if len(found) > MAX_TENSORS:
            raise broken(source, f"brings the tensors of all parts to more than {MAX_TENSORS:,}")
    expected = first.metadata.get("split.tensors.count", len(found))
    if expected != len(found):
        raise broken(parts[0], f"its split.tensors.count is not the {len(found):,} tensors that the parts hold")
    return first._replace(tensors=tuple(found.values()))


def _check_place(part: GgufFile, number: int, count: int, source: Source) -> None:
    """Refuse a part whose metadata says another place than its name; split.no counts from zero."""
    said_count = part.metadata.get("split.count", 1)
    said_number = part.metadata.get("split.no", 0)
    if type(said_count) is not int or type(said_number) is not int:
        raise broken(source, "its split.count or split.no is no whole number")
    if (max(said_count, 1), said_number) != (count, number):
        raise broken(
            source,
            f"is part {said_number + 1} of {said_count} by its metadata and part {number + 1} of {count} by its name",
            "keep the names that end in -00001-of-00002.gguf and the like",
        )
