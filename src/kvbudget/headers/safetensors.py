"""Safetensors files: eight bytes with the length of the header, the header as JSON, the data.

The checks are those of the reference reader (safetensors 0.8, tensor.rs: 22 data types, a header of at most 100 MB,
data without gaps or overlaps up to the end of the file), and some for files that mean harm: names told twice, names
with control characters, headers whose JSON would take gigabytes once parsed.
"""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from kvbudget.errors import InputError
from kvbudget.headers.source import LFS_POINTER, LocalFile, broken, is_there, pointer, read_exactly, shown
from kvbudget.headers.tensors import MAX_TENSORS, Tensor, checked_name, checked_values
from kvbudget.units import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kvbudget.headers.source import Source

DTYPE_BITS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("C64", "F64", "I64", "U64"), 64),
        **dict.fromkeys(("F32", "I32", "U32"), 32),
        **dict.fromkeys(("BF16", "F16", "I16", "U16"), 16),
        **dict.fromkeys(("BOOL", "I8", "U8"), 8),
        **dict.fromkeys(("F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0"), 8),
        **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
        "F4": 4,
    }
)
"""Bits a value takes by the header's data type (safetensors 0.8, Dtype); a tensor fills whole bytes."""

MAX_HEADER_BYTES = 100_000_000
"""The format's own limit (safetensors 0.8, MAX_HEADER_SIZE), held for an index as well."""

MAX_FILES = 1 << 14
"""Of an index; each is looked for on the disk. The largest published checkpoints have some hundred."""

MAX_MARKS = 1 << 22
"""Of ``{ [ : ,`` in a header or an index, which bound what parsed JSON takes: a tensor has twelve, a line of an index
two."""

MAX_DIGITS = 64
"""Of a number with a decimal point; more are an attack on the parser."""

METADATA = "__metadata__"

_LENGTH_BYTES = 8
_BYTE_BITS = 8
_MARKS = b"{[:,"


class SafetensorsFile(NamedTuple):
    """What a header says: the tensors in its own order, and the free text beside them."""

    tensors: tuple[Tensor, ...]
    metadata: Mapping[str, str]


def read_safetensors(source: Source) -> SafetensorsFile:
    """Return the header of a safetensors file, in two reads: its length and itself.

    Raises:
        InputError: The header or the extent of the data is not as the format demands.
    """
    prefix = read_exactly(source, 0, _LENGTH_BYTES, "first field")
    if prefix == LFS_POINTER:
        raise pointer(source)
    length = int.from_bytes(prefix, "little")
    if length > MAX_HEADER_BYTES:
        raise broken(
            source,
            f"claims a header of {length:,} bytes, more than the {MAX_HEADER_BYTES:,} that the format allows",
            "it is damaged or not a safetensors file",
        )
    header = _parse_object(read_exactly(source, _LENGTH_BYTES, length, "header"), source)
    metadata = _metadata(header.pop(METADATA, None), source)
    tensors: list[Tensor] = []
    spans: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        tensor, begin, end = _tensor(name, entry, source)
        tensors.append(tensor)
        spans.append((begin, end, name))
    _check_extent(spans, None if source.size is None else source.size - _LENGTH_BYTES - length, source)
    return SafetensorsFile(tuple(tensors), metadata)


def fetch_header(source: Source) -> None:
    """Have a source that reads ahead fetch just the header, which `read_safetensors` then finds there.

    A length that the format does not allow is left for that reader to refuse.
    """
    length = int.from_bytes(source.read(0, _LENGTH_BYTES), "little")
    if length <= MAX_HEADER_BYTES:
        source.read(_LENGTH_BYTES, length)


def _tensor(name: str, entry: object, source: Source) -> tuple[Tensor, int, int]:
    """Return a tensor with the begin and the end of its data, counted from the end of the header."""
    checked_name(name, source)
    if not isinstance(entry, dict):
        raise broken(source, f'tensor "{shown(name)}" is {type(entry).__name__} and not an object')
    dtype: object = entry.get("dtype")
    bits = DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if not isinstance(dtype, str) or bits is None:
        raise broken(
            source,
            f'tensor "{shown(name)}" has the data type {_spelled(dtype)}, which safetensors 0.8 does not know',
            "check where the file comes from",
        )
    shape, offsets = _sizes(entry.get("shape")), _sizes(entry.get("data_offsets"))
    if shape is None:
        raise broken(source, f'tensor "{shown(name)}" has no shape of whole numbers from zero')
    if offsets is None or len(offsets) != 2:  # noqa: PLR2004 - begin and end
        raise broken(source, f'tensor "{shown(name)}" has no data_offsets of two whole numbers from zero')
    begin, end = offsets
    nbytes, rest = divmod(checked_values(shape, name, source) * bits, _BYTE_BITS)
    if rest:
        raise broken(source, f'tensor "{shown(name)}" of type {dtype} does not fill whole bytes')
    if end - begin != nbytes:
        raise broken(source, f'tensor "{shown(name)}" needs {nbytes:,} bytes and has {_number(end - begin)}')
    return Tensor(name, dtype, shape, nbytes), begin, end


def _sizes(value: object) -> tuple[int, ...] | None:
    """Return a list of whole numbers from zero as a tuple, None if it is anything else; true is no number."""
    if isinstance(value, list) and set(map(type, value)) <= {int} and min(value, default=0) >= 0:
        return tuple(value)
    return None


def _spelled(value: object) -> str:
    """Return a value from a file for a message."""
    return f'"{shown(value)}"' if isinstance(value, str) else f"of {type(value).__name__}"


def _number(value: int) -> str:
    """Return a number from a file for a message; Python refuses to write very long ones."""
    return f"{value:,}" if abs(value) <= MAX_BYTES else "an absurd number"


def _metadata(value: object, source: Source) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise broken(source, f"its {METADATA} is not an object of texts")
    return value


def _check_extent(spans: list[tuple[int, int, str]], data_bytes: int | None, source: Source) -> None:
    """Refuse data with overlaps or gaps, or with another end than that of the file."""
    spans.sort()
    reached = 0
    for begin, end, name in spans:
        if begin != reached:
            fault = "overlaps the tensor before it" if begin < reached else "leaves a gap before it"
            raise broken(source, f'tensor "{shown(name)}" {fault}')
        reached = end
    if data_bytes is None or reached == data_bytes:
        return
    if reached > data_bytes:
        raise broken(source, f"holds {data_bytes:,} of the {_number(reached)} bytes of data that its header lists")
    raise broken(source, f"holds {data_bytes - reached:,} bytes behind the last tensor")


class Index(NamedTuple):
    """What ``model.safetensors.index.json`` or ``pytorch_model.bin.index.json`` says of a checkpoint in several files.

    Attributes:
        weight_map: The file of each tensor, by the tensor's name; the files lie beside the index or below it.
        total_size: Bytes of all tensors as the writer of the checkpoint counted them, None if not told.
    """

    weight_map: Mapping[str, str]
    total_size: int | None

    @property
    def files(self) -> tuple[str, ...]:
        """The files, each once, in the order in which the index first names them."""
        return tuple(dict.fromkeys(self.weight_map.values()))


def read_index(source: Source) -> Index:
    """Return the index of a checkpoint in several files, of safetensors or of PyTorch's ``.bin``.

    Only its own bytes are read: names and the total are there even if no file is. The total is the writer's figure and
    need not be what the headers of the files add up to.

    Raises:
        InputError: It is not such an index, or names a file outside its own folder.
    """
    if source.size is None or source.size > MAX_HEADER_BYTES:
        raise broken(source, f"has no size of at most {MAX_HEADER_BYTES:,} bytes", "give the index of a checkpoint")
    content = read_exactly(source, 0, source.size, "text")
    if content.startswith(LFS_POINTER):
        raise pointer(source)
    document = _parse_object(content, source)
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise broken(source, "has no weight_map with tensors", "give the index of a checkpoint")
    files: set[str] = set()
    for name, file in weight_map.items():
        checked_name(name, source)
        if not isinstance(file, str):
            raise broken(source, f'names no file for tensor "{shown(name)}"', "check where the index comes from")
        if file not in files and not _is_beside(file):
            raise broken(
                source,
                f'puts tensor "{shown(name)}" into "{shown(file)}", which is no file beside it',
                "check where the index comes from",
            )
        files.add(file)
    if len(files) > MAX_FILES:
        raise broken(source, f"names {len(files):,} files, more than {MAX_FILES:,}", "check where the index comes from")
    return Index(weight_map, _total_size(document.get("metadata"), source))


def _is_beside(file: str) -> bool:
    """Return whether a name stays within the folder it is looked up in, on any system."""
    parts = file.split("/")
    return file.isprintable() and not any(mark in file for mark in "\\:") and not {"", ".", ".."} & set(parts)


def _total_size(metadata: object, source: Source) -> int | None:
    """Return metadata.total_size; one written as a float is let in."""
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if total is None:
        return None
    if type(total) not in (int, float) or not 0 <= total <= MAX_BYTES:
        raise broken(source, "its metadata.total_size is no number of bytes up to 2^60", "check the index")
    return int(total)


def local_shards(index: Index, folder: Path, name: str) -> dict[str, LocalFile]:
    """Return the files of an index that lie in a folder, by name; none if none is there.

    Args:
        index: The index.
        folder: Where it lies.
        name: What messages call the index.

    Raises:
        AccessError: The file system does not let us in.
        InputError: Some files are there and others are missing.
    """
    files = index.files
    missing = [file for file in files if not is_there(folder / file)]
    if len(missing) == len(files):
        return {}
    if missing:
        raise InputError(
            f"{name}: lists {len(files)} files of which {len(missing)} are missing, the first {shown(missing[0])}; "
            "download the rest."
        )
    return {file: LocalFile.at(folder / file) for file in files}


def read_shards(index: Index, sources: Mapping[str, Source], name: str) -> tuple[Tensor, ...]:
    """Return the tensors of a checkpoint in several safetensors files, each once, file by file.

    A tensor that lies in two files counts where the index puts it. One that the index does not know counts too, because
    engines load whole files (as does safetensors_weights_iterator of vLLM).

    Args:
        index: The index.
        sources: Its files by name.
        name: What messages call the index.

    Raises:
        InputError: A file is missing or broken, or does not hold what the index says.
    """
    for file in index.files:
        if file not in sources:
            raise InputError(f"{name}: lists {shown(file)}, which is missing; download it.")
    return join_shards(((file, read_safetensors(sources[file]).tensors) for file in index.files), name, index)


def join_shards(
    shards: Iterable[tuple[str, tuple[Tensor, ...]]], name: str, index: Index | None = None
) -> tuple[Tensor, ...]:
    """Return the tensors of several files, each once, as `read_shards` does; headers may come while it runs.

    Args:
        shards: (file, its tensors), each file once.
        name: What messages call the checkpoint.
        index: What its index says; None where there is none, or where nobody asked for it.

    Raises:
        InputError: Two files hold the same tensor, or a file lacks what the index says.
    """
    weight_map: Mapping[str, str] = index.weight_map if index else {}
    found: dict[str, Tensor] = {}
    for file, tensors in shards:
        for tensor in tensors:
            if weight_map.get(tensor.name, file) != file:
                continue
            if tensor.name in found:
                raise InputError(
                    f'{shown(file)}: holds tensor "{shown(tensor.name)}", which another file holds too; the file is '
                    "damaged or of another checkpoint, so download it again."
                )
            found[tensor.name] = tensor
        if len(found) > MAX_TENSORS:
            raise InputError(f"{name}: leads to more than {MAX_TENSORS:,} tensors; check where the files come from.")
    for tensor_name, file in weight_map.items():
        if tensor_name not in found:
            raise InputError(
                f'{name}: puts tensor "{shown(tensor_name)}" into {shown(file)}, which does not hold it; index and '
                "files are of different checkpoints, so download them again."
            )
    return tuple(found.values())


class _BrokenError(ValueError):
    """What the JSON module takes without a word and these files must not have."""


def _parse_object(content: bytes, source: Source) -> dict[str, Any]:
    """Return the JSON object in a header or an index, in memory that the length of `content` and `MAX_MARKS` bound."""
    if sum(content.count(mark) for mark in _MARKS) > MAX_MARKS:
        raise broken(
            source,
            f"its JSON has more than {MAX_MARKS:,} braces, brackets, colons and commas",
            "no checkpoint has as many tensors, so check where the file comes from",
        )
    try:
        value = json.loads(
            content.decode(), object_pairs_hook=_unique, parse_float=_short_float, parse_constant=_no_constant
        )
    except _BrokenError as error:
        raise broken(source, f"its JSON {error}") from None
    except UnicodeDecodeError:
        raise broken(source, "its JSON is not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise broken(source, f"its JSON is not valid ({error.msg} at character {error.pos:,})") from None
    except (RecursionError, ValueError):  # nesting beyond Python's stack, integers beyond its limit of digits
        raise broken(source, "its JSON nests too deeply or has a number too long") from None
    if not isinstance(value, dict):
        raise broken(source, f"its JSON must be an object, found {type(value).__name__}")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _BrokenError(f'has "{shown(key)}" twice')
            seen.add(key)
    return found


def _short_float(text: str) -> float:
    if len(text) > MAX_DIGITS:
        raise _BrokenError("has a number too long")
    return float(text)


def _no_constant(text: str) -> NoReturn:
    raise _BrokenError(f"has {text}, which is no JSON")
