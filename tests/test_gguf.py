"""GGUF headers: what is written is read, vocabularies are passed over, and nothing else comes out of a hostile file."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from functools import partial
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gguf_files import ARRAY, TEXT, TYPE_NUMBERS, Typed, framed, info, tensor, text, u32, u64, written
from header_files import NAME, Memory, outcome, refusal
from kvbudget.errors import CannotTell
from kvbudget.facts.formats import GGML_TYPE_IDS, GGML_TYPES
from kvbudget.headers.gguf import (
    CHUNK_BYTES,
    MAX_FILE_TENSORS,
    MAX_KEPT_BYTES,
    MAX_KEPT_ITEMS,
    MAX_KEYS,
    MAX_NAME_BYTES,
    GgufFile,
    Skipped,
    local_parts,
    read_gguf,
    read_split,
    split_names,
)
from kvbudget.headers.source import LocalFile
from kvbudget.headers.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kvbudget.headers.gguf import Value

answer = partial(outcome, read_gguf)

unhurried = settings(deadline=None)  # a loaded machine is no failure
thorough = settings(deadline=None, max_examples=400)

# -- sources


class Endless(Memory):
    """A source of nothing but zeros behind its content."""

    def read(self, offset: int, length: int) -> bytes:
        return Memory.read(self, offset, length).ljust(length, b"\0")


# -- what is written is read

names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20).filter(str.isprintable)
layouts = st.sampled_from(sorted(GGML_TYPES))


@st.composite
def tensor_lists(draw: st.DrawFn) -> list[Tensor]:
    """Return tensors of all types with up to four dimensions and rows of whole blocks."""
    found = []
    for name in draw(st.lists(names, unique=True, max_size=8)):
        dtype = draw(layouts)
        row = draw(st.integers(0, 3)) * GGML_TYPES[dtype].block_elems
        found.append(tensor(name, dtype, [*draw(st.lists(st.integers(0, 5), max_size=3)), row]))
    return found


ranges = {
    "u8": st.integers(0, 2**8 - 1),
    "i8": st.integers(-(2**7), 2**7 - 1),
    "u16": st.integers(0, 2**16 - 1),
    "i16": st.integers(-(2**15), 2**15 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "f32": st.floats(allow_nan=False, width=32),
    "bool": st.booleans(),
    "u64": st.integers(0, 2**64 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "f64": st.floats(allow_nan=False),
}
scalars = st.one_of(
    st.builds(Typed, st.just("str"), st.text(max_size=20)),
    *(st.builds(Typed, st.just(name), values) for name, values in ranges.items()),
)
arrays = st.one_of(
    st.builds(Typed, st.just("str"), st.lists(st.text(max_size=9), max_size=9)),
    *(st.builds(Typed, st.just(name), st.lists(values, max_size=9)) for name, values in ranges.items()),
)


def kept(value: Typed) -> Value:
    """Return what the reader makes of a value."""
    if not isinstance(value.value, list):
        scalar: int | float | str = value.value
        return scalar
    return Skipped("str", len(value.value)) if value.type == "str" else tuple(value.value)


@unhurried
@given(
    st.dictionaries(names, scalars | arrays, max_size=8), tensor_lists(), st.sampled_from([2, 3]), st.integers(0, 12)
)
def test_round_trip(metadata: dict[str, Typed], tensors: list[Tensor], version: int, exponent: int) -> None:
    """All value types, tensor types, both versions and any alignment come back as they were written."""
    alignment = 1 << exponent
    metadata = {**metadata, "general.alignment": Typed("u32", alignment)}
    source = Memory(written(metadata, tensors, version=version, alignment=alignment))
    expected = {key: kept(value) for key, value in metadata.items()}
    assert read_gguf(source) == GgufFile(version, expected, tuple(tensors))


@pytest.mark.parametrize(
    ("dtype", "shape", "nbytes"),
    [  # rows of ne0 values in blocks: ggml_row_size of llama.cpp
        ("f32", (), 4),
        ("f16", (3,), 6),
        ("q4_0", (2, 64), 2 * 2 * 18),
        ("q8_0", (5, 4096), 5 * 128 * 34),
        ("q4_K", (128256, 4096), 128256 * 16 * 144),
        ("q6_K", (2, 3, 256), 2 * 3 * 210),
        ("mxfp4", (32, 2880, 2880), 32 * 2880 * 90 * 17),
        ("iq2_xxs", (1, 1, 1, 256), 66),
        ("bf16", (0, 8), 0),
    ],
)
def test_bytes_of_a_tensor(dtype: str, shape: tuple[int, ...], nbytes: int) -> None:
    content = framed((), [info("w", shape[::-1], TYPE_NUMBERS[dtype])])
    source = Memory(content, known_size=len(content) + nbytes)
    assert read_gguf(source).tensors == (Tensor("w", dtype, shape, nbytes),)


def test_the_default_alignment_is_32() -> None:
    lines = [info("a", (1,)), info("b", (1,), offset=32)]
    assert len(read_gguf(Memory(framed((), lines, data=36))).tensors) == 2
    assert "and not at 32" in refusal(lambda: read_gguf(Memory(framed((), [lines[0], info("b", (1,), offset=4)]))))


def test_the_last_tensor_needs_no_padding() -> None:
    content = framed((), [info("w", (1,))])
    assert answer(Memory(content + bytes(4))) is None
    assert "of the" in str(answer(Memory(content + bytes(3))))


def test_a_file_without_anything() -> None:
    assert read_gguf(Memory(framed())) == GgufFile(3, {}, ())


def test_a_text_that_is_not_utf8_is_let_in() -> None:
    """llama.cpp does not look at texts either."""
    assert read_gguf(Memory(framed([text("general.name") + u32(TEXT) + text(b"\xff")]))).metadata == {
        "general.name": "\ufffd"
    }


# -- what is not kept


@pytest.mark.parametrize("length", [MAX_KEPT_ITEMS, MAX_KEPT_ITEMS + 1, 3 * CHUNK_BYTES])
def test_long_arrays_leave_their_length(length: int) -> None:
    """Numbers for each layer are kept, numbers for each token are not, and what follows is read."""
    metadata = {"a": Typed("i32", [7] * length), "b": Typed("u8", 9)}
    expected = (7,) * length if length <= MAX_KEPT_ITEMS else Skipped("i32", length)
    assert read_gguf(Memory(written(metadata))).metadata == {"a": expected, "b": 9}


@pytest.mark.parametrize("length", [MAX_KEPT_BYTES, MAX_KEPT_BYTES + 1, 3 * CHUNK_BYTES])
def test_long_texts_leave_their_length(length: int) -> None:
    metadata = {"a": Typed("str", "x" * length), "b": Typed("u8", 9)}
    expected = "x" * length if length <= MAX_KEPT_BYTES else Skipped("byte", length)
    assert read_gguf(Memory(written(metadata))).metadata == {"a": expected, "b": 9}


@unhurried
@given(st.lists(st.sampled_from([0, 1, 7, 8, 9, 100, CHUNK_BYTES - 8, CHUNK_BYTES, CHUNK_BYTES + 1]), max_size=12))
def test_texts_are_passed_over_across_chunks(lengths: list[int]) -> None:
    metadata = {"tokens": Typed("str", ["x" * length for length in lengths]), "end": Typed("u64", 1 << 63)}
    found = read_gguf(Memory(written(metadata, [tensor("w")])))
    assert found.metadata == {"tokens": Skipped("str", len(lengths)), "end": 1 << 63}
    assert found.tensors == (tensor("w"),)


def test_long_values_are_not_read() -> None:
    """Scores, types and chat templates are jumped over; of texts only the chunks they lie in are read."""
    metadata = {
        "scores": Typed("f32", [0.0] * (4 * CHUNK_BYTES)),
        "template": Typed("str", "x" * (16 * CHUNK_BYTES)),
        "end": Typed("u8", 1),
    }
    source = Memory(written(metadata))
    assert read_gguf(source).metadata["end"] == 1
    assert len(source.content) > 32 * CHUNK_BYTES
    assert sum(min(length, len(source.content) - offset) for offset, length in source.asked) <= 3 * CHUNK_BYTES


def test_a_vocabulary_of_a_quarter_million_takes_no_memory() -> None:
    content = written({"tokens": Typed("str", ["token"] * 262_144)})
    source = Memory(content)
    tracemalloc.start()
    try:
        assert read_gguf(source).metadata == {"tokens": Skipped("str", 262_144)}
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * CHUNK_BYTES


def test_the_data_is_not_read(tmp_path: Path) -> None:
    """The data is a hole of 100 GiB; reading stops in the chunk that the header ends in."""
    path = tmp_path / NAME
    values = 25 << 30
    path.write_bytes(framed((), [info("w", (values,))]))
    os.truncate(path, path.stat().st_size + 4 * values)
    begin = time.monotonic()
    file = LocalFile.at(path)
    assert read_gguf(file).tensors == (Tensor("w", "f32", (values,), 100 << 30),)
    assert time.monotonic() - begin < 5
    source = Endless(framed((), [info("w", (values,))]), known_size=file.size)
    read_gguf(source)
    assert source.asked == [(0, CHUNK_BYTES)]


# -- broken and hostile files

KEY = text("key")
VALID = text("a") + Typed("u8", 1).packed()

HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "leads past the end of the file at 0 bytes"),
    "magic only": (b"GGUF", "leads past the end of the file at 4 bytes"),
    "other magic": (b"GGML" + bytes(40), "does not begin with the letters GGUF"),
    "safetensors": ((2).to_bytes(8, "little") + b"{}" + bytes(40), "does not begin with the letters GGUF"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "run `git lfs pull`"),
    "big-endian 3": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "is a big-endian GGUF file; give the little-endian one"),
    "big-endian 2": (b"GGUF" + struct.pack(">IQQ", 2, 0, 0), "is a big-endian GGUF file"),
    "version 1": (framed(version=1), "GGUF version 1, which llama.cpp does not read; convert it anew"),
    "version 0": (framed(version=0), "GGUF version 0"),
    "tensors without end": (framed(counts=(1 << 63, 0)), "claims 9,223,372,036,854,775,808 tensors"),
    "ten million tensors": (framed(counts=(10_000_000, 0)), "claims 10,000,000 tensors, more than the 65,536"),
    "one tensor too many": (framed(counts=(MAX_FILE_TENSORS + 1, 0)), "more than the 65,536"),
    "keys without end": (framed(counts=(0, 1 << 64 - 1)), "metadata keys, more than the 4,096"),
    "one key too many": (framed(counts=(0, MAX_KEYS + 1)), "more than the 4,096"),
    "fewer keys than told": (framed([VALID], counts=(0, 2), alignment=1), "leads past the end of the file"),
    "fewer tensors than told": (framed((), [info()], counts=(2, 0), alignment=1), "leads past the end of the file"),
    "key of 2^63": (framed([u64(1 << 63)]), "has a name of 9,223,372,036,854,775,808 bytes"),
    "key too long": (framed([text("k" * (MAX_NAME_BYTES + 1)) + u32(0) + b"\0"]), "has a name of 1,025 bytes"),
    "key beyond the file": (framed([u64(1000)]), "leads past the end of the file"),
    "key without letters": (framed([text("") + u32(0) + b"\0"]), "has an empty key"),
    "key twice": (framed([VALID, VALID]), 'has the metadata key "a" twice'),
    "key with control characters": (framed([text("a\x1b[2J") + u32(0) + b"\0"]), r'"a\x1b[2J" holds control'),
    "key not utf-8": (framed([text(b"\xff") + u32(0) + b"\0"]), "a name that is not UTF-8"),
    "text of 2^63": (framed([KEY + u32(TEXT) + u64(1 << 63)]), "leads past the end of the file"),
    "text beyond the file": (framed([KEY + u32(TEXT) + u64(100)]), "leads past the end of the file"),
    "value type 13": (framed([KEY + u32(13)]), 'metadata key "key" has the value type 13, which does not exist'),
    "value type 2^32 - 1": (framed([KEY + u32((1 << 32) - 1)]), "which does not exist"),
    "value cut off": (framed([KEY + u32(10) + b"\0\0"], alignment=1), "leads past the end of the file"),
    "array of 2^64 - 1 numbers": (framed([KEY + u32(ARRAY) + u32(12) + u64((1 << 64) - 1)]), "leads past the end"),
    "array of 2^61 numbers": (framed([KEY + u32(ARRAY) + u32(12) + u64(1 << 61)]), "leads past the end"),
    "array of 2^64 - 1 texts": (framed([KEY + u32(ARRAY) + u32(TEXT) + u64((1 << 64) - 1)]), "leads past the end"),
    "array of 2^61 texts": (framed([KEY + u32(ARRAY) + u32(TEXT) + u64(1 << 61)]), "leads past the end"),
    "array with a text of 2^64 - 1": (
        framed([KEY + u32(ARRAY) + u32(TEXT) + u64(2) + u64((1 << 64) - 1) + u64(0)]),
        "leads past the end",
    ),
    "array whose last text is too long": (
        framed([KEY + u32(ARRAY) + u32(TEXT) + u64(1) + u64(1 << 62)]),
        "leads past the end",
    ),
    "array of arrays": (framed([KEY + u32(ARRAY) + u32(ARRAY) + u64(1)]), "array of arrays, which llama.cpp does not"),
    "array of type 13": (framed([KEY + u32(ARRAY) + u32(13) + u64(1)]), "has the value type 13"),
    "alignment 0": (written({"general.alignment": Typed("u32", 0)}), "general.alignment is no power of two"),
    "alignment 33": (written({"general.alignment": Typed("u32", 33)}), "general.alignment is no power of two"),
    "alignment -32": (written({"general.alignment": Typed("i32", -32)}), "general.alignment is no power of two"),
    "alignment in words": (written({"general.alignment": Typed("str", "32")}), "general.alignment is no power of two"),
    "alignment true": (written({"general.alignment": Typed("bool", True)}), "general.alignment is no power of two"),
    "alignment 2^63": (
        framed([text("general.alignment") + Typed("u64", 1 << 63).packed()], [info("w", (1,))], data=4),
        "of the 9,223,372,036,854,775,812 bytes",
    ),
    "five dimensions": (framed((), [info(sizes=(1,) * 5)], data=32), '"w" has 5 dimensions, more than 4'),
    "2^32 - 1 dimensions": (framed((), [info(rank=(1 << 32) - 1)]), "4,294,967,295 dimensions"),
    "product beyond 64 bits": (framed((), [info(sizes=(1 << 32, 1 << 33))]), "claims more than 2^50 values"),
    "product that wraps to 0": (framed((), [info(sizes=(1 << 32, 1 << 32))]), "claims more than 2^50 values"),
    "negative dimension": (framed((), [info(sizes=((1 << 64) - 1,))]), "claims more than 2^50 values"),
    "overflow behind a zero": (framed((), [info(sizes=(0, 1 << 62))]), "claims more than 2^50 values"),
    "half a block": (framed((), [info(sizes=(48, 2), number=8)]), "rows of 48 values, which do not fill q8_0 blocks"),
    "scalar of blocks": (framed((), [info(sizes=(), number=8)]), "rows of 1 values, which do not fill q8_0 blocks"),
    "tensor twice": (framed((), [info(), info(offset=128)], data=256), 'has the tensor "w" twice'),
    "tensor with control characters": (framed((), [info("a\r\nb")]), r'"a\r\nb" holds control characters'),
    "tensor's name of 2^63": (framed((), [u64(1 << 63)]), "has a name of"),
    "overlap": (framed((), [info("a"), info("b", offset=96)], data=256), '"b" begins at 96 of the data and not at 128'),
    "same place": (framed((), [info("a"), info("b")], data=256), '"b" begins at 0 of the data and not at 128'),
    "gap": (framed((), [info("a", offset=32)], data=256), '"a" begins at 32 of the data and not at 0'),
    "offset of 2^64 - 1": (framed((), [info(offset=(1 << 64) - 1)], data=128), "begins at 18,446,744,073,709,551,615"),
    "data cut off": (framed((), [info()], data=127), "bytes that its header lists"),
    "no data": (framed((), [info()], alignment=1), "bytes that its header lists"),
}
"""Case -> (the file, what the message says)."""


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile(case: str) -> None:
    content, fragment = HOSTILE[case]
    assert fragment in refusal(lambda: read_gguf(Memory(content)))


def test_a_later_version_cannot_be_told() -> None:
    assert "version 4, and only 2 and 3" in refusal(lambda: read_gguf(Memory(framed(version=4))), kind=CannotTell)


@pytest.mark.parametrize("number", [4, 5, 31, 36, 43, 1 << 31, (1 << 32) - 1])
def test_a_tensor_type_that_is_not_known(number: int) -> None:
    """Withdrawn numbers and those of later versions are named, and not guessed at."""
    assert number not in GGML_TYPE_IDS
    message = refusal(lambda: read_gguf(Memory(framed((), [info(number=number)]))), kind=CannotTell)
    assert f'tensor "w" is of ggml type {number}, which is not known' in message


@pytest.mark.parametrize(
    "line",
    [
        KEY + u32(ARRAY) + u32(TEXT) + u64(1 << 50),
        KEY + u32(ARRAY) + u32(12) + u64(1 << 50),
        KEY + u32(TEXT) + u64(1 << 53),
    ],
    ids=["texts", "numbers", "text"],
)
def test_a_claim_beyond_the_limit_is_not_followed(line: bytes) -> None:
    """In a file that is large enough to hold what it claims, the header's limit stops the reader, not the end."""
    source = Endless(framed([line], alignment=1), known_size=1 << 60)
    assert "a header of more than 128 MiB" in refusal(lambda: read_gguf(source))
    assert len(source.asked) == 1


def test_a_header_of_empty_texts_ends_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many texts as the limit has room for are passed over and not one more is looked at; here with a lower one."""
    limit = 8 * CHUNK_BYTES
    monkeypatch.setattr("kvbudget.headers.gguf.MAX_HEADER_BYTES", limit)
    head = len(framed([KEY + u32(ARRAY) + u32(TEXT) + u64(0)], alignment=1))
    for count, fits in (((limit - head) // 8, True), ((limit - head) // 8 + 1, False)):
        source = Endless(framed([KEY + u32(ARRAY) + u32(TEXT) + u64(count)], alignment=1), known_size=1 << 60)
        assert (answer(source) is None) is fits
        assert sum(length for _, length in source.asked) <= limit + CHUNK_BYTES


def test_most_that_is_kept_takes_little_memory() -> None:
    """A quarter of the keys that are allowed, each with the longest array that is kept: the most is 256 MiB."""
    array = u32(ARRAY) + u32(3) + u64(MAX_KEPT_ITEMS) + b"\1\7" * MAX_KEPT_ITEMS
    content = framed([text(str(number)) + array for number in range(MAX_KEYS // 4)])
    tracemalloc.start()
    try:
        assert len(read_gguf(Memory(content)).metadata) == MAX_KEYS // 4
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


def small() -> bytes:
    metadata = {
        "general.architecture": Typed("str", "llama"),
        "tokens": Typed("str", ["a", "", "ccc"]),
        "layers": Typed("u32", [1, 2]),
        "general.alignment": Typed("u32", 64),
    }
    return written(metadata, [tensor("a", "q4_0", (2, 64)), tensor("b", "f16", (5,))], alignment=64)


def test_cut_off_anywhere() -> None:
    """A file that ends early is refused, wherever it ends; only the padding behind the data may be missing."""
    content = small()
    end = len(content) - 64 + 10
    read = [answer(Memory(content[:length])) is None for length in range(len(content) + 1)]
    assert read == [length >= end for length in range(len(content) + 1)]


def test_cut_off_anywhere_with_a_size_nobody_knows() -> None:
    """Without the file's size a header must still be whole; the data cannot be judged."""
    content = small()
    refused = [answer(Memory(content[:length], known_size=None)) for length in range(len(content) + 1)]
    header_end = next(length for length, message in enumerate(refused) if message is None)
    assert header_end == content.index(b"b" + u32(1)) + 1 + 4 + 8 + 4 + 8
    assert all(message is None for message in refused[header_end:])
    assert all("ends within its header" in str(message) for message in refused[:header_end])


@thorough
@given(st.binary(max_size=200), st.sampled_from([-1, None]))
def test_random_bytes(content: bytes, known_size: int | None) -> None:
    answer(Memory(content, known_size=known_size))


@thorough
@given(st.binary(max_size=200), st.integers(0, 3), st.integers(0, 3), st.sampled_from([2, 3]))
def test_random_lists(content: bytes, tensors: int, keys: int, version: int) -> None:
    answer(Memory(framed([content], version=version, counts=(tensors, keys))))


lengths = st.integers(0, 9) | st.sampled_from([1 << 20, 1 << 31, 1 << 32, 1 << 61, 1 << 63, (1 << 64) - 1])
lines = st.one_of(
    st.builds(lambda key, value: text(key) + value.packed(), st.text(max_size=3), scalars | arrays),
    st.builds(
        lambda key, number, length, rest: text(key) + u32(ARRAY) + u32(number) + u64(length) + rest,
        st.text(max_size=3),
        st.integers(0, 14),
        lengths,
        st.binary(max_size=40),
    ),
)
infos = st.builds(
    info,
    st.text(max_size=3),
    st.lists(lengths, max_size=5),
    st.integers(0, 45),
    st.integers(0, 2).map(lambda place: place * 32) | lengths,
)


@thorough
@given(st.lists(lines, max_size=3), st.lists(infos, max_size=3), st.integers(0, 200))
def test_random_entries(keys: list[bytes], tensors: list[bytes], data: int) -> None:
    """Headers that are almost right; what is accepted fits into the file."""
    source = Memory(framed(keys, tensors, data=data))
    if answer(source) is None:
        assert sum(each.nbytes for each in read_gguf(source).tensors) <= len(source.content)


@thorough
@given(st.dictionaries(names, scalars | arrays, max_size=4), tensor_lists(), st.data())
def test_flipped_bits(metadata: dict[str, Typed], tensors: list[Tensor], data: st.DataObject) -> None:
    content = bytearray(written(metadata, tensors))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    answer(Memory(bytes(content)))


# -- split models


def part(number: int, count: int, tensors: Sequence[Tensor], total: int | None = None) -> bytes:
    metadata = {"split.no": Typed("u16", number), "split.count": Typed("u16", count)}
    if number == 0:
        metadata["general.architecture"] = Typed("str", "llama")
    if total is not None:
        metadata["split.tensors.count"] = Typed("i32", total)
    return written(metadata, tensors)


def test_names_of_all_parts() -> None:
    assert split_names("m-Q4_K_M-00002-of-00003.gguf") == tuple(f"m-Q4_K_M-0000{n}-of-00003.gguf" for n in (1, 2, 3))
    assert split_names("m.00001-of-00001.gguf") == ("m.00001-of-00001.gguf",)
    assert split_names("m-00001-of-00001.GGUF") == ("m-00001-of-00001.GGUF",)


@pytest.mark.parametrize(
    "name", ["m.gguf", "m-1-of-3.gguf", "m-00001-of-00003.safetensors", "-00001-of-00003.gguf", ""]
)
def test_names_that_are_no_part(name: str) -> None:
    assert split_names(name) == (name,)


@pytest.mark.parametrize("name", ["m-00004-of-00003.gguf", "m-00000-of-00003.gguf", "m-00000-of-00000.gguf"])
def test_a_part_that_cannot_be(name: str) -> None:
    assert "there is no part" in refusal(lambda: split_names(name), name)


def test_parts_are_joined(tmp_path: Path) -> None:
    """From any of its files a split model is read whole, with the metadata of the first."""
    tensors = [tensor("a"), tensor("b", "q8_0", (2, 32)), tensor("c")]
    for number, each in enumerate(tensors):
        (tmp_path / f"m-0000{number + 1}-of-00003.gguf").write_bytes(part(number, 3, [each], 3))
    for number in (1, 2, 3):
        parts = local_parts(tmp_path / f"m-0000{number}-of-00003.gguf")
        assert [each.name for each in parts] == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
        found = read_split(parts)
        assert found.tensors == tuple(tensors)
        assert (found.metadata["general.architecture"], found.metadata["split.no"]) == ("llama", 0)


def test_one_file_is_one_part(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(written({}, [tensor("w")]))
    assert read_split(local_parts(path)).tensors == (tensor("w"),)
    path.write_bytes(part(0, 1, [tensor("w")], 1))
    assert read_split(local_parts(path)).tensors == (tensor("w"),)
    path.write_bytes(part(0, 0, [tensor("w")]))  # llama.cpp takes a count of zero for a whole file
    assert read_split(local_parts(path)).tensors == (tensor("w"),)


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    for number in range(9):
        (tmp_path / f"m-0000{number + 1}-of-00009.gguf").write_bytes(part(number, 9, [tensor(f"w{number}")]))
    first = tmp_path / "m-00001-of-00009.gguf"
    (tmp_path / "m-00004-of-00009.gguf").unlink()
    message = refusal(lambda: local_parts(first), first.name)
    assert "part 00001 of 00009 found, 00004 missing" in message
    (tmp_path / "m-00007-of-00009.gguf").unlink()
    (tmp_path / "m-00008-of-00009.gguf").unlink()
    assert "00004 and 2 more missing" in refusal(lambda: local_parts(first), first.name)
    first.unlink()
    message = refusal(lambda: local_parts(first), first.name)
    assert ": 00001 and 3 more missing; download the rest" in message


def sources(*contents: bytes) -> list[Memory]:
    return [
        Memory(content, name=f"m-{number:05d}-of-{len(contents):05d}.gguf")
        for number, content in enumerate(contents, 1)
    ]


W = [tensor("w")]

BAD_SPLITS: dict[str, tuple[list[Memory], int, str]] = {
    "only the first of three": (sources(part(0, 3, W)), 0, "is part 1 of 3 by its metadata and part 1 of 1"),
    "parts exchanged": (sources(part(1, 2, W), part(0, 2, W)), 0, "is part 2 of 2 by its metadata and part 1 of 2"),
    "the first twice": (sources(part(0, 2, W), part(0, 2, W)), 1, "is part 1 of 2 by its metadata and part 2 of 2"),
    "another model's": (sources(part(0, 2, W), part(1, 3, W)), 1, "is part 2 of 3 by its metadata and part 2 of 2"),
    "no part at all": (sources(part(0, 2, W), written({})), 1, "is part 1 of 1 by its metadata and part 2 of 2"),
    "a tensor in both": (sources(part(0, 2, W), part(1, 2, W)), 1, 'holds tensor "w", which another part holds'),
    "a tensor too few": (sources(part(0, 2, W, 2), part(1, 2, [])), 0, "split.tensors.count is not the 1 tensors"),
    "a count in words": (sources(written({"split.count": Typed("str", "2")})), 0, "is no whole number"),
    "a negative count": (
        sources(written({"split.count": Typed("i32", -2), "split.no": Typed("i32", 1)})),
        0,
        "is part 2",
    ),
    "a broken part": (sources(part(0, 2, W), part(1, 2, W)[:40]), 1, "leads past the end of the file"),
}
"""Case -> (the parts, which of them the message names, what it says)."""


@pytest.mark.parametrize("case", BAD_SPLITS)
def test_bad_splits(case: str) -> None:
    parts, named, fragment = BAD_SPLITS[case]
    assert fragment in refusal(lambda: read_split(parts), parts[named].name)
