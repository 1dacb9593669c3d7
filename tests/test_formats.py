"""Storage formats: sourced figures, laws, and refusals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.errors import InputError
from kvbudget.facts.formats import (
    DTYPE_ALIASES,
    DTYPES,
    GGML_TYPE_IDS,
    GGML_TYPES,
    KV_FORMATS,
    WEIGHT_FORMATS,
    Format,
    dtype,
    dtype_bytes,
    kv_format,
)

unhurried = settings(deadline=None)  # a loaded machine is no failure

FORMATS = [*DTYPES.values(), *GGML_TYPES.values()]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("torch.bfloat16", 2),
        ("bfloat16", 2),
        ("bf16", 2),
        ("BF16", 2),
        ("half", 2),
        ("F16", 2),
        ("float", 4),
        ("F32", 4),
        ("float64", 8),
        ("fp8", 1),
        ("float8_e4m3fn", 1),
        ("F8_E4M3", 1),
        ("fp8_e5m2", 1),
        ("F8_E8M0", 1),
        ("int8", 1),
        ("U8", 1),
        ("I32", 4),
        ("int64", 8),
    ],
)
def test_dtype_bytes(name: str, size: int) -> None:
    assert dtype_bytes(name) == size


@pytest.mark.parametrize("name", ["bfloat", "", "float33", "x" * 10_000, "auto"])
def test_unknown_dtype_names_the_known(name: str) -> None:
    with pytest.raises(InputError, match=r"bfloat16.*float8_e4m3fn") as caught:
        dtype_bytes(name)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["int4", "fp4", "uint4"])
def test_half_a_byte_has_no_whole_bytes(name: str) -> None:
    assert dtype(name).bytes_for(10) == 5
    with pytest.raises(InputError, match="2 values a byte"):
        dtype_bytes(name)


def test_aliases_lead_somewhere() -> None:
    assert set(DTYPE_ALIASES.values()) <= set(DTYPES)
    assert not set(DTYPE_ALIASES) & set(DTYPES)


@pytest.mark.parametrize(
    ("name", "elems", "size"),
    [  # pypi gguf 0.19.0, GGML_QUANT_SIZES
        ("q4_0", 32, 18),
        ("q8_0", 32, 34),
        ("q4_K", 256, 144),
        ("q6_K", 256, 210),
        ("iq4_xs", 256, 136),
        ("iq2_xxs", 256, 66),
        ("mxfp4", 32, 17),
        ("nvfp4", 64, 36),
        ("bf16", 1, 2),
    ],
)
def test_ggml_blocks(name: str, elems: int, size: int) -> None:
    assert GGML_TYPES[name].bytes_for(elems) == size
    assert GGML_TYPES[name].bits == 8 * size / elems


def test_ggml_numbers_name_each_type_once() -> None:
    assert sorted(GGML_TYPE_IDS.values()) == sorted(GGML_TYPES)
    assert (GGML_TYPE_IDS[0], GGML_TYPE_IDS[8], GGML_TYPE_IDS[12], GGML_TYPE_IDS[39]) == (
        "f32",
        "q8_0",
        "q4_K",
        "mxfp4",
    )


@unhurried
@given(st.sampled_from(FORMATS), st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_bytes_add_up(form: Format, blocks: int, more: int) -> None:
    some, rest = blocks * form.block_elems, more * form.block_elems
    assert form.bytes_for(some) + form.bytes_for(rest) == form.bytes_for(some + rest)
    assert form.bytes_for(some) <= form.bytes_for(some + rest)


@unhurried
@given(st.sampled_from([form for form in FORMATS if form.block_elems > 1]), st.integers(0, 1 << 40))
def test_part_of_a_block_is_refused(form: Format, blocks: int) -> None:
    with pytest.raises(ValueError, match="do not fill"):
        form.bytes_for(blocks * form.block_elems + 1)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_rows_have_a_source(form: Format) -> None:
    assert form.source
    assert form.block_elems > 0 < form.block_bytes


@pytest.mark.parametrize(
    ("name", "size"),
    [  # vLLM 0.32 run without a GPU: Llama-3-8B, page of 16 tokens / (16 tokens x 8 heads)
        ("bfloat16", 65536 // 128),
        ("fp8", 32768 // 128),
        ("fp8_e5m2", 32768 // 128),
        ("fp8_per_token_head", 33792 // 128),
        ("int8_per_token_head", 33792 // 128),
        ("int4_per_token_head", 17408 // 128),
        ("nvfp4", 18432 // 128),
        # computed with vLLM 0.32's TurboQuantConfig.slot_size_aligned and ultraquant's slot_size
        ("turboquant_k8v4", 196),
        ("turboquant_4bit_nc", 134),
        ("turboquant_k3v4_nc", 118),
        ("turboquant_3bit_nc", 102),
        ("ultraquant_4bit", 136),
    ],
)
def test_kv_bytes_of_a_head_of_128(name: str, size: int) -> None:
    assert kv_format(name).head_bytes(128, 128) == size


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("bfloat16", 1152),
        ("fp8", 576),
        ("fp8_ds_mla", 656),
        ("nvfp4_ds_mla", 352),
    ],  # vLLM 0.32, mla_attention.py
)
def test_kv_bytes_of_a_latent(name: str, size: int) -> None:
    assert kv_format(name).latent_row_bytes(512, 64) == size


def test_kv_names_have_aliases() -> None:
    assert kv_format("bf16") is KV_FORMATS["bfloat16"]
    assert kv_format("half") is KV_FORMATS["float16"]


@pytest.mark.parametrize(
    "ask",
    [
        lambda: kv_format("auto"),
        lambda: kv_format("fp7"),
        lambda: kv_format("fp8_ds_mla").head_bytes(128, 128),
        lambda: kv_format("fp8_ds_mla").latent_row_bytes(256, 64),
        lambda: kv_format("int8_per_token_head").latent_row_bytes(512, 64),
        lambda: kv_format("nvfp4").head_bytes(72, 72),
    ],
)
def test_kv_refusals_say_what_to_do(ask: object) -> None:
    assert callable(ask)
    with pytest.raises(InputError, match=r"choose another|use one of"):
        ask()


@unhurried
@given(st.sampled_from([form for form in KV_FORMATS.values() if form.per_head]), st.integers(1, 64))
def test_kv_bytes_grow_with_the_head(name: object, steps: int) -> None:
    assert hasattr(name, "head_bytes")
    dim = 32 * steps
    assert name.head_bytes(dim, dim) < name.head_bytes(dim + 32, dim + 32) <= 8 * (dim + 32)


def test_weight_formats_are_complete() -> None:
    assert all(
        row.family and row.name and row.bits and row.formula and row.keeps and row.source for row in WEIGHT_FORMATS
    )
    assert len({(row.family, row.name) for row in WEIGHT_FORMATS}) == len(WEIGHT_FORMATS)
    assert {"GPTQ", "AWQ", "FP8", "INT8", "NVFP4", "MXFP4", "bitsandbytes"} <= {row.family for row in WEIGHT_FORMATS}
