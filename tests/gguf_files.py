"""A writer of GGUF files, for the tests."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget.facts.formats import GGML_TYPE_IDS, GGML_TYPES
from kvbudget.headers.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TYPE_NUMBERS = {name: number for number, name in GGML_TYPE_IDS.items()}

NUMBERS = {
    "u8": (0, "<B"),
    "i8": (1, "<b"),
    "u16": (2, "<H"),
    "i16": (3, "<h"),
    "u32": (4, "<I"),
    "i32": (5, "<i"),
    "f32": (6, "<f"),
    "bool": (7, "<?"),
    "u64": (10, "<Q"),
    "i64": (11, "<q"),
    "f64": (12, "<d"),
}
"""Value type -> (its number in the file, how it is packed); gguf.h, gguf_type."""

TEXT, ARRAY = 8, 9


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


@dataclass(frozen=True, slots=True)
class Typed:
    """A value with the type it is stored as; a list is an array of that type."""

    type: str
    value: Any

    @property
    def number(self) -> int:
        return TEXT if self.type == "str" else NUMBERS[self.type][0]

    def one(self, value: Any) -> bytes:  # noqa: ANN401 - of any of the thirteen types
        return text(value) if self.type == "str" else struct.pack(NUMBERS[self.type][1], value)

    def packed(self) -> bytes:
        if isinstance(self.value, list):
            return u32(ARRAY) + u32(self.number) + u64(len(self.value)) + b"".join(map(self.one, self.value))
        return u32(self.number) + self.one(self.value)


def padded(size: int, alignment: int = 32) -> int:
    return -(-size // alignment) * alignment


def tensor(name: str, dtype: str = "f32", shape: Sequence[int] = (4, 8)) -> Tensor:
    values = 1
    for size in shape:
        values *= size
    layout = GGML_TYPES[dtype]
    return Tensor(name, dtype, tuple(shape), values // layout.block_elems * layout.block_bytes)


def info(
    name: str | bytes = "w", sizes: Sequence[int] = (8, 4), number: int = 0, offset: int = 0, rank: int | None = None
) -> bytes:
    """Return a tensor's line of the list; sizes as the file has them, the row's length first."""
    head = text(name) + u32(len(sizes) if rank is None else rank)
    return head + b"".join(map(u64, sizes)) + u32(number) + u64(offset)


def framed(
    keys: Sequence[bytes] = (),
    infos: Sequence[bytes] = (),
    *,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    data: int = 0,
    alignment: int = 32,
) -> bytes:
    """Return a file from the packed lines of its header, padded, with so many bytes of data."""
    tensor_count, key_count = counts or (len(infos), len(keys))
    head = b"GGUF" + u32(version) + u64(tensor_count) + u64(key_count) + b"".join(keys) + b"".join(infos)
    return head + bytes(padded(len(head), alignment) - len(head) + data)


def written(
    metadata: Mapping[str, Typed], tensors: Sequence[Tensor] = (), *, version: int = 3, alignment: int = 32
) -> bytes:
    keys = [text(key) + value.packed() for key, value in metadata.items()]
    infos, offset = [], 0
    for each in tensors:
        infos.append(info(each.name, each.shape[::-1], TYPE_NUMBERS[each.dtype], offset))
        offset += padded(each.nbytes, alignment)
    return framed(keys, infos, version=version, data=offset, alignment=alignment)
