"""Safetensors headers and indexes: what is written is read, and nothing else comes out of a broken or hostile file."""

from __future__ import annotations

import contextlib
import json
import os
import time
import tracemalloc
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from header_files import NAME, Memory, outcome, refusal
from kvbudget.errors import AccessError, InputError
from kvbudget.headers.safetensors import (
    DTYPE_BITS,
    MAX_HEADER_BYTES,
    MAX_MARKS,
    Index,
    local_shards,
    read_index,
    read_safetensors,
    read_shards,
)
from kvbudget.headers.source import LocalFile
from kvbudget.headers.tensors import Tensor
from safetensors_files import framed, header_of, tensor, written

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

answer = partial(outcome, read_safetensors)

unhurried = settings(deadline=None)  # a loaded machine is no failure
thorough = settings(deadline=None, max_examples=400)


def entry(**changes: object) -> str:
    """Return a header with one tensor of eight bytes, some of its fields changed; None leaves a field out."""
    fields = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changes}
    return json.dumps({"w": {key: value for key, value in fields.items() if value is not None}})


names = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=40).filter(
    lambda name: name.isprintable() and name != "__metadata__"
)


@st.composite
def tensor_lists(draw: st.DrawFn, max_size: int = 12) -> list[Tensor]:
    """Return tensors of all types; the last axis makes every one fill whole bytes."""
    drawn = draw(st.lists(names, unique=True, max_size=max_size))
    return [
        tensor(name, draw(st.sampled_from(sorted(DTYPE_BITS))), [*draw(st.lists(st.integers(0, 9), max_size=4)), 4])
        for name in drawn
    ]


# -- what is written is read


@unhurried
@given(tensor_lists(), st.none() | st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=3))
def test_round_trip(tensors: list[Tensor], metadata: dict[str, str] | None) -> None:
    """Names, types, shapes and bytes come back in the order of the header, and so does the metadata."""
    source = Memory(written(tensors, metadata))
    assert read_safetensors(source) == (tuple(tensors), metadata or {})


@unhurried
@given(tensor_lists(), st.randoms(use_true_random=False))
def test_order_of_the_header_is_free(tensors: list[Tensor], random: Random) -> None:
    """Entries may stand in any order as long as the data has neither gap nor overlap."""
    entries = list(header_of(tensors).items())
    random.shuffle(entries)
    found = read_safetensors(Memory(framed(json.dumps(dict(entries)), sum(each.nbytes for each in tensors))))
    assert sorted(found.tensors) == sorted(tensors)


@pytest.mark.parametrize(
    ("dtype", "nbytes"),
    [  # safetensors 0.8, Dtype.bitsize, for eight values
        *[(dtype, 64) for dtype in ("C64", "F64", "I64", "U64")],
        *[(dtype, 32) for dtype in ("F32", "I32", "U32")],
        *[(dtype, 16) for dtype in ("BF16", "F16", "I16", "U16")],
        *[(dtype, 8) for dtype in ("BOOL", "I8", "U8", "F8_E4M3", "F8_E4M3FNUZ", "F8_E5M2", "F8_E5M2FNUZ", "F8_E8M0")],
        ("F6_E2M3", 6),
        ("F6_E3M2", 6),
        ("F4", 4),
    ],
)
def test_every_type_of_the_format(dtype: str, nbytes: int) -> None:
    text = entry(dtype=dtype, shape=[2, 4], data_offsets=[0, nbytes])
    assert read_safetensors(Memory(framed(text, nbytes))).tensors == (Tensor("w", dtype, (2, 4), nbytes),)


def test_no_other_type_is_known() -> None:
    assert len(DTYPE_BITS) == 22  # safetensors 0.8, the variants its own error message lists


def test_scalars_and_empty_tensors() -> None:
    """A shape without sizes is one value, a size of zero none."""
    tensors = [tensor("none", "F4", (0, 3)), tensor("one", "F32", ()), tensor("none too", "F64", (0,))]
    found = read_safetensors(Memory(written(tensors))).tensors
    assert [(each.values, each.nbytes) for each in found] == [(0, 0), (1, 4), (0, 0)]


def test_a_file_without_tensors() -> None:
    assert read_safetensors(Memory(framed("{}"))) == ((), {})


def test_null_metadata_is_none() -> None:
    assert read_safetensors(Memory(framed('{"__metadata__": null}'))).metadata == {}


def test_fields_of_later_versions_are_passed_over() -> None:
    assert read_safetensors(Memory(framed(entry(strides=[1]), 8))).tensors == (tensor("w", "F32", (2,)),)


def test_two_reads_and_never_the_data() -> None:
    """The length, then the header; a server is asked no more than that."""
    source = Memory(written([tensor("w")]))
    read_safetensors(source)
    length = int.from_bytes(source.content[:8], "little")
    assert source.asked == [(0, 8), (8, length)]


# -- local files


def test_a_file_larger_than_any_memory(tmp_path: Path) -> None:
    """The data is a hole of 100 GiB, of which nothing is read."""
    path = tmp_path / NAME
    text = entry(shape=[25 << 30], data_offsets=[0, 100 << 30])
    path.write_bytes(framed(text))
    os.truncate(path, path.stat().st_size + (100 << 30))
    begin = time.monotonic()
    assert read_safetensors(LocalFile.at(path)).tensors[0].nbytes == 100 << 30
    assert time.monotonic() - begin < 5


def test_reads_end_where_the_file_ends(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"0123456789")
    file = LocalFile.at(path)
    assert (file.name, file.size) == (NAME, 10)
    assert [file.read(2, 3), file.read(8, 9), file.read(11, 1), file.read(0, 0)] == [b"234", b"89", b"", b""]


def test_what_is_no_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(lambda: LocalFile.at(tmp_path / "none"), "none")
    assert "not a regular one" in refusal(lambda: LocalFile.at(tmp_path), tmp_path.name)
    assert "cannot be read" in refusal(lambda: LocalFile.at(tmp_path / ("n" * 4000)), "n" * 79 + "…")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.safetensors"
    os.mkfifo(path)
    assert "not a regular one" in refusal(lambda: LocalFile.at(path), path.name)


def test_a_file_that_must_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lack of permission is a matter of access and not of the input."""
    path = tmp_path / NAME
    path.write_bytes(framed("{}"))
    file = LocalFile.at(path)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert "Permission denied" in refusal(lambda: read_safetensors(file), kind=AccessError)


def test_a_name_with_control_characters_reaches_no_terminal(tmp_path: Path) -> None:
    path = tmp_path / "m\x1b[31m.safetensors"
    path.write_bytes(b"")
    assert "ends within" in refusal(lambda: read_safetensors(LocalFile.at(path)), r"m\x1b[31m.safetensors")


# -- broken and hostile headers

HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "ends within its first field"),
    "seven bytes": (b"\x02" + bytes(6), "ends within its first field"),
    "header of 2^63": ((1 << 63).to_bytes(8, "little") + b"{}", "9,223,372,036,854,775,808 bytes, more than"),
    "header above the limit": ((MAX_HEADER_BYTES + 1).to_bytes(8, "little"), "more than the 100,000,000"),
    "header beyond the file": ((100).to_bytes(8, "little") + b"{}", "ends within its header, which takes 100 bytes"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n", "run `git lfs pull`"),
    "no header": (framed(""), "is not valid"),
    "not utf-8": (framed(b'{"\xff": 1}'), "not UTF-8"),
    "not json": (framed("{'w': 1}"), "is not valid"),
    "cut json": (framed(entry()[:-1]), "is not valid"),
    "text behind": (framed(entry() + "x", 8), "is not valid"),
    "byte order mark": (framed(b"\xef\xbb\xbf{}"), "is not valid"),
    "not an object": (framed("[]"), "must be an object, found list"),
    "a number": (framed("1"), "must be an object, found int"),
    "nan": (framed('{"w": NaN}'), "has NaN"),
    "infinity": (framed('{"w": -Infinity}'), "has -Infinity"),
    "deep lists": (framed('{"w":' + "[" * 500_000 + "]" * 500_000 + "}"), "nests too deeply"),
    "deep objects": (framed('{"w":' * 500_000 + "1" + "}" * 500_000), "nests too deeply"),
    "long integer": (framed('{"w":' + "1" * 100_000 + "}"), "a number too long"),
    "long float": (framed('{"w":1.' + "1" * 100_000 + "}"), "a number too long"),
    "tensor twice": (framed(f"{entry()[:-1]}, {entry()[1:]}", 8), 'has "w" twice'),
    "field twice": (framed('{"w":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', 1), '"dtype" twice'),
    "metadata twice": (framed('{"__metadata__":{},"__metadata__":{}}'), '"__metadata__" twice'),
    "metadata of numbers": (framed('{"__metadata__":{"a":1}}'), "not an object of texts"),
    "metadata list": (framed('{"__metadata__":[]}'), "not an object of texts"),
    "control characters": (framed(json.dumps({"a\x1b[2J\n": 1})), r'"a\x1b[2J\n" holds control'),
    "half a character": (framed(r'{"a\ud800": 1}'), r'"a\ud800" holds control'),
    "right to left": (framed(json.dumps({"a\u202eb": 1})), r'"a\u202eb" holds control'),
    "entry is a number": (framed('{"w": 1}'), '"w" is int and not an object'),
    "entry is null": (framed('{"w": null}'), '"w" is NoneType and not an object'),
    "no dtype": (framed(entry(dtype=None), 8), "data type of NoneType"),
    "unknown dtype": (framed(entry(dtype="F3"), 8), 'data type "F3", which safetensors 0.8 does not know'),
    "lower-case dtype": (framed(entry(dtype="f32"), 8), 'data type "f32"'),
    "dtype is a list": (framed(entry(dtype=["F32"]), 8), "data type of list"),
    "dtype with an escape": (framed(entry(dtype="\x1b"), 8), r'data type "\x1b"'),
    "long dtype": (framed(entry(dtype="F" * 10_000), 8), "F…"),
    "no shape": (framed(entry(shape=None), 8), "no shape"),
    "negative size": (framed(entry(shape=[-2]), 8), "no shape"),
    "two negative sizes": (framed(entry(shape=[-1, -2]), 8), "no shape"),
    "fractional size": (framed(entry(shape=[2.0]), 8), "no shape"),
    "true as a size": (framed(entry(shape=[2, True]), 8), "no shape"),
    "text as a size": (framed(entry(shape=["2"]), 8), "no shape"),
    "number as a shape": (framed(entry(shape=2), 8), "no shape"),
    "product beyond 64 bits": (framed(entry(shape=[1 << 32, 1 << 33]), 8), "more than 2^50 values"),
    "product that wraps to 2": (framed(entry(shape=[(1 << 63) + 1, 2]), 8), "more than 2^50 values"),
    "overflow behind a zero": (framed(entry(shape=[0, 1 << 62, 1 << 62], data_offsets=[0, 0])), "more than 2^50"),
    "many sizes": (framed(entry(shape=[2] * 100_000), 8), "more than 2^50 values"),
    "no offsets": (framed(entry(data_offsets=None), 8), "no data_offsets"),
    "one offset": (framed(entry(data_offsets=[8]), 8), "no data_offsets"),
    "three offsets": (framed(entry(data_offsets=[0, 4, 8]), 8), "no data_offsets"),
    "negative offset": (framed(entry(data_offsets=[-8, 0]), 8), "no data_offsets"),
    "fractional offset": (framed(entry(data_offsets=[0.0, 8]), 8), "no data_offsets"),
    "offsets reversed": (framed(entry(data_offsets=[8, 0]), 8), "needs 8 bytes and has -8"),
    "too few bytes": (framed(entry(data_offsets=[0, 7]), 7), "needs 8 bytes and has 7"),
    "absurd offset": (framed(entry(data_offsets=[0, 10**4000])), "has an absurd number"),
    "absurd begin": (framed(entry(data_offsets=[10**4000, 10**4000 + 8])), "leaves a gap"),
    "half a byte": (framed(entry(dtype="F4", shape=[3], data_offsets=[0, 1]), 1), "does not fill whole bytes"),
    "gap at the begin": (framed(entry(data_offsets=[1, 9]), 9), "leaves a gap before it"),
    "gap within": (
        framed(
            '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}',
            5,
        ),
        '"b" leaves a gap before it',
    ),
    "overlap": (
        framed(
            '{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}',
            3,
        ),
        '"b" overlaps the tensor before it',
    ),
    "data cut off": (framed(entry(), 7), "holds 7 of the 8 bytes of data"),
    "no data": (framed(entry()), "holds 0 of the 8 bytes of data"),
    "data behind": (framed(entry(), 9), "holds 1 bytes behind the last tensor"),
}
"""Case -> (the file, what the message says)."""


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile(case: str) -> None:
    content, fragment = HOSTILE[case]
    assert fragment in refusal(lambda: read_safetensors(Memory(content)))


def test_a_claimed_length_is_not_allocated() -> None:
    """A header that the file cannot hold is not asked for."""
    source = Memory((1 << 62).to_bytes(8, "little"), known_size=1 << 63)
    refusal(lambda: read_safetensors(source))
    assert source.asked == [(0, 8)]


@pytest.mark.parametrize(
    "body",
    [
        ",".join(['"":{"dtype":"U8","shape":[],"data_offsets":[0,0]}'] * (MAX_MARKS // 11 + 1)),
        '"w":[' + ",".join(["[]"] * (MAX_MARKS // 2)) + "]",
        '"w":[' + ",".join(["0"] * MAX_MARKS) + "]",
        "[" * MAX_MARKS,
    ],
    ids=["tensors", "lists", "numbers", "brackets"],
)
def test_a_list_without_end_is_not_parsed(body: str) -> None:
    """What would take gigabytes as Python objects is counted first."""
    content = framed("{" + body + "}")
    tracemalloc.start()
    try:
        assert "more than 4,194,304 braces" in refusal(lambda: read_safetensors(Memory(content)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < len(content) + (1 << 20)


def test_ten_million_tensors() -> None:
    """At fifty bytes each they do not fit into the longest header that the format allows."""
    one = '"00000000":{"dtype":"U8","shape":[],"data_offsets":[0,1]},'
    length = 10_000_000 * len(one)
    source = Memory(length.to_bytes(8, "little"), known_size=1 << 40)
    assert "more than the 100,000,000" in refusal(lambda: read_safetensors(source))


@settings(deadline=None, max_examples=20)
@given(tensor_lists(max_size=3))
def test_cut_off_anywhere(tensors: list[Tensor]) -> None:
    """A file that ends early is refused, wherever it ends."""
    content = written([*tensors, tensor("the last")])
    for length in range(len(content)):
        assert answer(Memory(content[:length])) is not None


def test_cut_off_anywhere_with_a_size_nobody_knows() -> None:
    """Without the file's size a header must still be whole; the data cannot be judged."""
    content = written([tensor("w")])
    header_end = 8 + int.from_bytes(content[:8], "little")
    read = [answer(Memory(content[:length], known_size=None)) is None for length in range(len(content) + 1)]
    assert read == [length >= header_end for length in range(len(content) + 1)]


@thorough
@given(st.binary(max_size=200), st.sampled_from([-1, None]))
def test_random_bytes(content: bytes, known_size: int | None) -> None:
    answer(Memory(content, known_size=known_size))


@thorough
@given(st.binary(max_size=200))
def test_random_headers(text: bytes) -> None:
    answer(Memory(framed(text)))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
sizes = st.integers(-2, 9) | st.sampled_from([1 << 31, 1 << 63, 1 << 64, 10**30]) | values
entries = values | st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(sorted(DTYPE_BITS)) | values,
        "shape": st.lists(sizes, max_size=3) | values,
        "data_offsets": st.lists(sizes, min_size=2, max_size=2) | values,
    },
)


@thorough
@given(st.dictionaries(st.text(max_size=5) | st.just("__metadata__"), entries, max_size=3), st.integers(0, 20))
def test_random_entries(header: dict[str, Any], data: int) -> None:
    """Headers that are almost right; what is accepted owns every byte of the data."""
    source = Memory(framed(json.dumps(header), data))
    if answer(source) is None:
        assert sum(each.nbytes for each in read_safetensors(source).tensors) == data


@thorough
@given(tensor_lists(max_size=4), st.data())
def test_flipped_bits(tensors: list[Tensor], data: st.DataObject) -> None:
    content = bytearray(written(tensors, {"format": "pt"}))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    answer(Memory(bytes(content)))


# -- indexes

INDEX = "model.safetensors.index.json"


def index_of(document: object) -> Memory:
    return Memory(json.dumps(document).encode(), name=INDEX)


@unhurried
@given(
    st.dictionaries(names, st.sampled_from(["a.safetensors", "b.safetensors", "part/c.bin"]), min_size=1),
    st.none() | st.integers(0, 1 << 60),
)
def test_index_round_trip(weight_map: dict[str, str], total: int | None) -> None:
    metadata = {} if total is None else {"metadata": {"total_size": total}}
    found = read_index(index_of({"weight_map": weight_map, **metadata}))
    assert found == Index(weight_map, total)
    assert sorted(found.files) == sorted(set(weight_map.values()))


def test_a_pytorch_index_gives_its_total_and_names() -> None:
    """Nothing of a .bin file is needed for them."""
    found = read_index(
        index_of({"metadata": {"total_size": 14.0}, "weight_map": {"w": "pytorch_model-00001-of-00002.bin"}})
    )
    assert (found.total_size, found.files) == (14, ("pytorch_model-00001-of-00002.bin",))


BAD_INDEXES: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is not valid"),
    "list": (b"[]", "must be an object"),
    "no map": (b"{}", "no weight_map"),
    "empty map": (b'{"weight_map":{}}', "no weight_map"),
    "map is a list": (b'{"weight_map":["a"]}', "no weight_map"),
    "name twice": (b'{"weight_map":{"w":"a","w":"a"}}', 'has "w" twice'),
    "control characters": (b'{"weight_map":{"w\\u0007":"a"}}', "holds control characters"),
    "file is a number": (b'{"weight_map":{"w":1}}', 'names no file for tensor "w"'),
    "too many files": (json.dumps({"weight_map": {f"w{i}": f"{i}" for i in range(20_000)}}).encode(), "20,000 files"),
    "parent folder": (b'{"weight_map":{"w":"../a.safetensors"}}', "no file beside it"),
    "parent folder within": (b'{"weight_map":{"w":"a/../../b"}}', "no file beside it"),
    "absolute": (b'{"weight_map":{"w":"/etc/passwd"}}', "no file beside it"),
    "another drive": (b'{"weight_map":{"w":"C:\\\\a"}}', "no file beside it"),
    "backslash": (b'{"weight_map":{"w":"..\\\\a"}}', "no file beside it"),
    "empty file name": (b'{"weight_map":{"w":""}}', "no file beside it"),
    "control in a file name": (b'{"weight_map":{"w":"a\\u001b"}}', "no file beside it"),
    "negative total": (b'{"metadata":{"total_size":-1},"weight_map":{"w":"a"}}', "total_size"),
    "infinite total": (b'{"metadata":{"total_size":1e999},"weight_map":{"w":"a"}}', "total_size"),
    "absurd total": (b'{"metadata":{"total_size":1' + b"0" * 4000 + b'},"weight_map":{"w":"a"}}', "total_size"),
    "true total": (b'{"metadata":{"total_size":true},"weight_map":{"w":"a"}}', "total_size"),
    "text total": (b'{"metadata":{"total_size":"1"},"weight_map":{"w":"a"}}', "total_size"),
    "deep": (b'{"weight_map":' + b"[" * 500_000 + b"]" * 500_000 + b"}", "nests too deeply"),
    "ten million tensors": (b'{"weight_map":{' + b'"w":"a",' * 10_000_000 + b"}}", "more than 4,194,304 braces"),
    "git lfs pointer": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
}


@pytest.mark.parametrize("case", BAD_INDEXES)
def test_bad_index(case: str) -> None:
    content, fragment = BAD_INDEXES[case]
    assert fragment in refusal(lambda: read_index(Memory(content, name=INDEX)), INDEX)


def test_an_index_too_large_is_not_read() -> None:
    source = Memory(b"{}", name=INDEX, known_size=MAX_HEADER_BYTES + 1)
    assert "at most 100,000,000" in refusal(lambda: read_index(source), INDEX)
    assert source.asked == []


@thorough
@given(st.binary(max_size=100) | values.map(lambda value: json.dumps({"weight_map": value}).encode()))
def test_random_indexes(content: bytes) -> None:
    with contextlib.suppress(InputError):
        read_index(Memory(content, name=INDEX))


# -- checkpoints in several files

FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
EMBED, HEAD, NORM = tensor("embed", shape=(16, 4)), tensor("head", shape=(16, 4)), tensor("norm", "F32", (4,))
SHARDS = Index({"embed": FIRST, "norm": SECOND, "head": SECOND}, 288)


def shards(first: Sequence[Tensor], second: Sequence[Tensor]) -> dict[str, Memory]:
    return {FIRST: Memory(written(first), name=FIRST), SECOND: Memory(written(second), name=SECOND)}


def test_shards_are_joined() -> None:
    found = read_shards(SHARDS, shards([EMBED], [HEAD, NORM]), INDEX)
    assert found == (EMBED, HEAD, NORM)
    assert sum(each.nbytes for each in found) == 272


def test_a_tensor_in_two_files_counts_where_the_index_puts_it() -> None:
    other = tensor("embed", "F32", (99,))
    assert read_shards(SHARDS, shards([EMBED], [other, HEAD, NORM]), INDEX) == (EMBED, HEAD, NORM)


def test_a_tensor_that_the_index_forgot_counts() -> None:
    """Engines load whole files."""
    more = tensor("rotary.inv_freq", "F32", (2,))
    assert read_shards(SHARDS, shards([EMBED, more], [HEAD, NORM]), INDEX) == (EMBED, more, HEAD, NORM)


def test_a_forgotten_tensor_in_two_files_is_nobodys() -> None:
    more = tensor("rotary.inv_freq", "F32", (2,))
    message = refusal(lambda: read_shards(SHARDS, shards([EMBED, more], [HEAD, NORM, more]), INDEX), SECOND)
    assert "which another file holds too" in message


def test_a_tensor_that_no_file_holds() -> None:
    message = refusal(lambda: read_shards(SHARDS, shards([EMBED], [NORM]), INDEX), INDEX)
    assert f'puts tensor "head" into {SECOND}, which does not hold it' in message


def test_a_file_that_is_missing() -> None:
    sources = shards([EMBED], [HEAD, NORM])
    del sources[SECOND]
    assert f"lists {SECOND}, which is missing" in refusal(lambda: read_shards(SHARDS, sources, INDEX), INDEX)


def test_local_shards(tmp_path: Path) -> None:
    """All files, none of them, or a refusal that names the first missing one."""
    assert local_shards(SHARDS, tmp_path, INDEX) == {}
    contents = shards([EMBED], [HEAD, NORM])
    (tmp_path / FIRST).write_bytes(contents[FIRST].content)
    message = refusal(lambda: local_shards(SHARDS, tmp_path, INDEX), INDEX)
    assert f"lists 2 files of which 1 are missing, the first {SECOND}" in message
    (tmp_path / SECOND).write_bytes(contents[SECOND].content)
    assert read_shards(SHARDS, local_shards(SHARDS, tmp_path, INDEX), INDEX) == (EMBED, HEAD, NORM)


def test_a_file_name_too_long_to_look_for(tmp_path: Path) -> None:
    index = Index({"w": "n" * 4000}, None)
    assert "cannot be read" in refusal(lambda: local_shards(index, tmp_path, INDEX), "n" * 79 + "…")
