"""A writer of safetensors files, for the tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvbudget.headers.safetensors import DTYPE_BITS
from kvbudget.headers.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def tensor(name: str, dtype: str = "BF16", shape: Sequence[int] = (4, 8)) -> Tensor:
    values = 1
    for size in shape:
        values *= size
    return Tensor(name, dtype, tuple(shape), values * DTYPE_BITS[dtype] // 8)


def header_of(tensors: Sequence[Tensor], metadata: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the JSON of a header whose tensors lie one behind the other."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    begin = 0
    for each in tensors:
        end = begin + each.nbytes
        header[each.name] = {"dtype": each.dtype, "shape": list(each.shape), "data_offsets": [begin, end]}
        begin = end
    return header


def framed(text: str | bytes, data: int = 0) -> bytes:
    """Return a file with that header and so many bytes of data."""
    raw = text.encode() if isinstance(text, str) else text
    return len(raw).to_bytes(8, "little") + raw + bytes(data)


def written(tensors: Sequence[Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    text = json.dumps(header_of(tensors, metadata))
    return framed(text + " " * (-len(text) % 8), sum(each.nbytes for each in tensors))
