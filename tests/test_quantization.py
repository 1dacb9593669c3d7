"""Quantization: bytes of published checkpoints and of vLLM's tensors, matching of names, laws, refusals."""

from __future__ import annotations

import csv
import gzip
import json
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.errors import CannotTell, InputError, KvbudgetError
from kvbudget.facts.formats import WEIGHT_FORMATS
from kvbudget.model import Group, Weight
from kvbudget.model.build import linear, vector, vocabulary
from kvbudget.model.quantization import Recipe, Scheme, read_recipe, weight_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Placed = tuple[str, Weight]
Config = dict[str, Any]

KV_SCALES = 8
"""vLLM keeps a float32 scale for K and one for V a layer in quantized models; checkpoints need not."""


# --- models by hand ---


def decoder(
    *,
    hidden: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    vocab: int,
    width: int = 0,
    experts: int = 0,
    qk_norm: bool = False,
    bias: bool = False,
    sinks: bool = False,
    router_dtype: str | None = None,
) -> list[Placed]:
    """Return the weights of a decoder with untied embeddings, dense or with experts."""
    attention = (("q_proj", hidden, heads), ("k_proj", hidden, kv_heads), ("v_proj", hidden, kv_heads))
    placed: list[Placed] = [
        ("model.embed_tokens", vocabulary("embed_tokens", Group.EMBEDDINGS, vocab, hidden)),
        ("model.norm", vector("norm", hidden)),
        ("lm_head", vocabulary("lm_head", Group.HEAD, vocab, hidden, linear=True)),
    ]
    for layer in range(layers):
        weights = [
            *(
                linear(f"self_attn.{n}", Group.ATTENTION, size, count * head_dim, bias=bias)
                for n, size, count in attention
            ),
            linear("self_attn.o_proj", Group.ATTENTION, heads * head_dim, hidden, bias=bias),
            vector("input_layernorm", hidden),
            vector("post_attention_layernorm", hidden),
        ]
        if qk_norm:
            weights += [vector("self_attn.q_norm", head_dim), vector("self_attn.k_norm", head_dim)]
        if sinks:
            weights.append(vector("self_attn.sinks", heads, group=Group.ATTENTION))
        name, group = ("mlp.experts.*", Group.EXPERTS) if experts else ("mlp", Group.MLP)
        for part, inputs, outputs in (
            ("gate_proj", hidden, width),
            ("up_proj", hidden, width),
            ("down_proj", width, hidden),
        ):
            weights.append(linear(f"{name}.{part}", group, inputs, outputs, bias=bias, count=experts or 1))
        if experts:
            router = linear("mlp.gate", Group.ROUTER, hidden, experts, bias=bias)
            weights.append(pinned(router, router_dtype))
        placed += [(f"model.layers.{layer}.{weight.name}", weight) for weight in weights]
    return placed


def pinned(weight: Weight, dtype: str | None) -> Weight:
    return Weight(
        weight.name,
        weight.group,
        weight.out_features,
        weight.in_features,
        bias=weight.bias,
        count=weight.count,
        linear=weight.linear,
        dtype=dtype,
    )


@cache
def llama_8b() -> list[Placed]:
    return decoder(hidden=4096, layers=32, heads=32, kv_heads=8, head_dim=128, vocab=128256, width=14336)


@cache
def llama_13b() -> list[Placed]:
    return decoder(hidden=5120, layers=40, heads=40, kv_heads=40, head_dim=128, vocab=32000, width=13824)


@cache
def llama_70b() -> list[Placed]:
    return decoder(hidden=8192, layers=80, heads=64, kv_heads=8, head_dim=128, vocab=32000, width=28672)


@cache
def qwen3_14b() -> list[Placed]:
    return decoder(hidden=5120, layers=40, heads=40, kv_heads=8, head_dim=128, vocab=151936, width=17408, qk_norm=True)


@cache
def qwen3_8b() -> list[Placed]:
    return decoder(hidden=4096, layers=36, heads=32, kv_heads=8, head_dim=128, vocab=151936, width=12288, qk_norm=True)


@cache
def qwen3_32b() -> list[Placed]:
    return decoder(hidden=5120, layers=64, heads=64, kv_heads=8, head_dim=128, vocab=151936, width=25600, qk_norm=True)


@cache
def qwen3_235b() -> list[Placed]:
    return decoder(
        hidden=4096,
        layers=94,
        heads=64,
        kv_heads=4,
        head_dim=128,
        vocab=151936,
        width=1536,
        experts=128,
        qk_norm=True,
    )


@cache
def gpt_oss_20b() -> list[Placed]:
    return decoder(
        hidden=2880,
        layers=24,
        heads=64,
        kv_heads=8,
        head_dim=64,
        vocab=201088,
        width=2880,
        experts=32,
        bias=True,
        sinks=True,
    )


@cache
def minimax_m2() -> list[Placed]:
    placed = decoder(
        hidden=3072,
        layers=62,
        heads=48,
        kv_heads=8,
        head_dim=128,
        vocab=200064,
        width=1536,
        experts=256,
        router_dtype="float32",
    )
    extra = (("q_norm", 48 * 128), ("k_norm", 8 * 128))
    for layer in range(62):
        placed += [(f"model.layers.{layer}.self_attn.{name}", vector(name, size)) for name, size in extra]
        bias = vector("mlp.gate.e_score_correction_bias", 256, group=Group.ROUTER, dtype="float32")
        placed.append((f"model.layers.{layer}.{bias.name}", bias))
    return placed


@cache
def deepseek_v3(*, mtp: bool) -> list[Placed]:
    """DeepSeek-V3 and R1: 61 layers, 3 of them dense, and an MTP layer with copies of embeddings and head."""
    hidden, heads, vocab, experts = 7168, 128, 129280, 256
    placed: list[Placed] = [
        ("model.embed_tokens", vocabulary("embed_tokens", Group.EMBEDDINGS, vocab, hidden)),
        ("model.norm", vector("norm", hidden)),
        ("lm_head", vocabulary("lm_head", Group.HEAD, vocab, hidden, linear=True)),
    ]
    attention = [
        linear("self_attn.q_a_proj", Group.ATTENTION, hidden, 1536),
        vector("self_attn.q_a_layernorm", 1536),
        linear("self_attn.q_b_proj", Group.ATTENTION, 1536, heads * 192),
        linear("self_attn.kv_a_proj_with_mqa", Group.ATTENTION, hidden, 576),
        vector("self_attn.kv_a_layernorm", 512),
        linear("self_attn.kv_b_proj", Group.ATTENTION, 512, heads * 256),
        linear("self_attn.o_proj", Group.ATTENTION, heads * 128, hidden),
        vector("input_layernorm", hidden),
        vector("post_attention_layernorm", hidden),
    ]

    def mlp(name: str, group: Group, width: int, count: int = 1) -> list[Weight]:
        return [
            linear(f"{name}.gate_proj", group, hidden, width, count=count),
            linear(f"{name}.up_proj", group, hidden, width, count=count),
            linear(f"{name}.down_proj", group, width, hidden, count=count),
        ]

    dense = attention + mlp("mlp", Group.MLP, 18432)
    sparse = [
        *attention,
        *mlp("mlp.experts.*", Group.EXPERTS, 2048, experts),
        *mlp("mlp.shared_experts", Group.SHARED_EXPERTS, 2048),
        linear("mlp.gate", Group.ROUTER, hidden, experts),
        vector("mlp.gate.e_score_correction_bias", experts, group=Group.ROUTER, dtype="float32"),
    ]
    extra = [
        linear("eh_proj", Group.MTP, 2 * hidden, hidden),
        *(vector(name, hidden) for name in ("enorm", "hnorm", "shared_head.norm")),
        vocabulary("embed_tokens", Group.EMBEDDINGS, vocab, hidden),
        vocabulary("shared_head.head", Group.HEAD, vocab, hidden, linear=True),
    ]
    for layer in range(62 if mtp else 61):
        weights = dense if layer < 3 else sparse if layer < 61 else sparse + extra
        placed += [(f"model.layers.{layer}.{weight.name}", weight) for weight in weights]
    return placed


def total(recipe: Recipe | None, placed: Iterable[Placed], own: int = 2) -> int:
    assert recipe is not None
    return sum(recipe.weight_bytes(path, weight, own) for path, weight in placed)


def read(section: Config, **around: object) -> Recipe:
    recipe = read_recipe({"quantization_config": section, **around})
    assert recipe is not None
    return recipe


# --- sections as published ---

GPTQ: Config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ: Config = {
    "quant_method": "awq",
    "bits": 4,
    "group_size": 128,
    "version": "gemm",
    "zero_point": True,
    "modules_to_not_convert": None,
}
FP8: Config = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
}
INT8: Config = {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}
NF4: Config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
MLX: Config = {"group_size": 64, "bits": 4}
MXFP4: Config = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn",
        "model.layers.*.mlp.router",
        "model.embed_tokens",
        "lm_head",
    ],
}
NVFP4: Config = {
    "producer": {"name": "modelopt", "version": "0.33.0"},
    "quantization": {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": [*(f"model.layers.{i}.mlp.gate" for i in range(94)), "lm_head"],
    },
}


def ct(weights: Config, layout: str = "float-quantized", *, group: Config | None = None, **rest: object) -> Config:
    group = {"targets": ["Linear"], "weights": weights, **(group or {})}
    return {
        "quant_method": "compressed-tensors",
        "format": layout,
        "config_groups": {"group_0": group},
        **rest,
    }


CT_FP8 = ct({"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}, ignore=["lm_head"])
CT_INT4 = ct(
    {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
    "pack-quantized",
    ignore=[
        "lm_head",
        "re:.*self_attn.*",
        "re:.*shared_experts.*",
        "re:.*mlp\\.(gate|up|gate_up|down)_proj.*",
    ],
)
EVERY = [GPTQ, AWQ, FP8, INT8, NF4, MLX, MXFP4, {**NVFP4, "quant_method": "modelopt"}, CT_FP8, CT_INT4]


# --- figures ---


def test_bitsandbytes_int8_llama() -> None:
    """The checkpoint's index states 9,086,705,888 bytes (meta-llama/Llama-3.1-8B-Instruct, bnb-int8)."""
    assert total(read(INT8), llama_8b()) == 9_086_705_888


def test_mlx_qwen() -> None:
    """The index of mlx-community/Qwen3-14B-4bit states 8,307,783,680 bytes; embeddings are packed."""
    assert total(read_recipe({"quantization": MLX, "quantization_config": MLX}), qwen3_14b()) == 8_307_783_680


def test_mxfp4_gpt_oss() -> None:
    """The checkpoint's index states 13,761,264,768 bytes (openai/gpt-oss-20b)."""
    assert total(read(MXFP4), gpt_oss_20b()) == 13_761_264_768


def test_awq_qwen() -> None:
    """In vLLM 0.32 it is 6,098,479,104 bytes; the file of Qwen/Qwen3-8B-AWQ has 0.006 % more, its header."""
    ours = total(read(AWQ), qwen3_8b())
    assert ours == 6_098_479_104
    assert 0 < 6_098_853_560 - ours < 500_000


@pytest.mark.parametrize(
    ("model", "bits", "group", "file", "tensors"),
    [
        (llama_13b, 4, 128, 7_259_435_192, 40 * 37 + 3),  # TheBloke/MythoMax-L2-13B-GPTQ
        (llama_70b, 3, -1, 26_774_982_616, 80 * 37 + 3),  # TheBloke/Genz-70b-GPTQ, 3 bits
    ],
)
def test_gptq_file(model: Callable[[], list[Placed]], bits: int, group: int, file: int, tensors: int) -> None:
    """The file has a header besides and, by AutoGPTQ before 0.5, an all-zero float16 bias for each matrix."""
    recipe = read({**GPTQ, "bits": bits, "group_size": group})
    zero_biases = sum(2 * w.out_features for p, w in model() if recipe.scheme_for(p, w) is not None)
    header = file - zero_biases - total(recipe, model())
    assert 90 * tensors < header < 130 * tensors


def test_gptq_in_vllm() -> None:
    """In vLLM 0.32 it is 7,247,882,240 bytes: all but g_idx, four bytes an input feature of each matrix."""
    recipe = read(GPTQ)
    order = sum(4 * w.in_features for p, w in llama_13b() if recipe.scheme_for(p, w) is not None)
    assert total(recipe, llama_13b()) - order == 7_247_882_240


def test_fp8_blocks_qwen() -> None:
    """In vLLM 0.32 Qwen/Qwen3-32B-FP8 is 34,326,243,840 bytes, KV scales included."""
    assert total(read(FP8), qwen3_32b()) + 64 * KV_SCALES == 34_326_243_840


def test_fp8_blocks_deepseek() -> None:
    """In vLLM 0.32 it is 673,150,611,808 bytes; the files are 688,586,727,753 with MTP and headers."""
    recipe = read(FP8)
    assert total(recipe, deepseek_v3(mtp=False)) == 673_150_611_808
    headers = 688_586_727_753 - total(recipe, deepseek_v3(mtp=True))
    tensors = 61 * 9 + 58 * 2 * 257 * 3 + 10_000
    assert 90 * tensors < headers < 130 * tensors


def test_fp8_blocks_minimax() -> None:
    """In vLLM 0.32 MiniMax-M2.7 is 230,121,631,216 bytes; its routers are float32."""
    recipe = read(
        {
            **FP8,
            "fmt": "float8_e4m3fn",
            "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
        }
    )
    assert total(recipe, minimax_m2()) + 62 * KV_SCALES == 230_121_631_216


def stored_elements(recipe: Recipe | None, placed: Iterable[Placed]) -> int:
    """Count as the hub does: packed values by the byte, each scale, no scalars."""
    assert recipe is not None
    found = 0
    for path, weight in placed:
        scheme = recipe.scheme_for(path, weight)
        if scheme is None:
            found += weight.values
            continue
        parts = scheme.parts(weight.out_features, weight.in_features, 2)
        sizes = {"values": 1, "scales": scheme.scale_bytes or 2}
        found += sum(part.bytes // sizes[part.name] for part in parts if part.name in sizes) * weight.count
    return found


def test_nvfp4_qwen() -> None:
    """The hub counts 132,806,618,624 values (nvidia), vLLM 0.32 holds 134,101,652,144 bytes."""
    recipe = read_recipe({}, NVFP4)
    assert stored_elements(recipe, qwen3_235b()) == 132_806_618_624
    assert total(recipe, qwen3_235b()) + 94 * KV_SCALES == 134_101_652_144


def test_fp8_elements_deepseek() -> None:
    """The hub counts 684,531,386,000 values of DeepSeek-V3, scales and MTP included."""
    assert stored_elements(read(FP8), deepseek_v3(mtp=True)) == 684_531_386_000


# --- each scheme's bits, against the table that `kvbudget formats` shows ---

BIG = linear("mlp.down_proj", Group.MLP, 1 << 14, 1 << 14)

BITS: list[tuple[str, str, Config]] = [
    ("GPTQ", "4-bit, groups of 128", GPTQ),
    ("AWQ", "4-bit, groups of 128", AWQ),
    ("bitsandbytes", "nf4 / fp4, blocks of 64", NF4),
    ("bitsandbytes", "nf4 / fp4, double quantization", {**NF4, "bnb_4bit_use_double_quant": True}),
    ("FP8", "per tensor", {**FP8, "weight_block_size": None}),
    ("FP8", "blocks of 128 x 128", FP8),
    ("MXFP8", "groups of 32", {"quant_method": "mxfp8", "ignored_layers": []}),
    ("INT4", "compressed-tensors, groups of 32", ct({"num_bits": 4, "group_size": 32}, "pack-quantized")),
    ("INT4", "compressed-tensors, groups of 128", ct({"num_bits": 4, "group_size": 128}, "pack-quantized")),
    ("NVFP4", "groups of 16", {**NVFP4, "quant_method": "modelopt"}),
    ("MLX", "affine 4-bit, groups of 64", MLX),
]


@pytest.mark.parametrize(("family", "name", "section"), BITS, ids=str)
def test_bits_match_the_table(family: str, name: str, section: Config) -> None:
    row = next(row for row in WEIGHT_FORMATS if (row.family, row.name) == (family, name))
    bits = 8 * read(section).weight_bytes("model.layers.0.mlp.down_proj", BIG, 2) / BIG.parameters
    assert bits == pytest.approx(float(row.bits), abs=0.0025)


@pytest.mark.parametrize(
    ("section", "size"),
    [
        (ct({"num_bits": 8, "type": "float", "strategy": "channel"}), 8192 * 4096 + 8192 * 2),
        (
            ct({"num_bits": 8, "type": "float", "strategy": "channel", "scale_dtype": "torch.float32"}),
            8192 * 4096 + 8192 * 4,
        ),
        (ct({"num_bits": 8, "type": "float", "strategy": "tensor"}), 8192 * 4096 + 2),
        (
            ct({"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": False}, "int-quantized"),
            8192 * (4096 + 3),
        ),
        (
            ct({"num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128]}),
            8192 * 4096 + 64 * 32 * 2,
        ),
        (
            ct({"num_bits": 4, "group_size": 128, "symmetric": False}, "pack-quantized"),
            8192 * (2048 + 32 * 2) + 8192 * 32 // 2 + 16,
        ),
        (ct({"num_bits": 3, "group_size": -1}, "pack-quantized"), 8192 * (410 * 4 + 2) + 16),
        (
            ct({"num_bits": 4, "group_size": 128, "actorder": "group"}, "pack-quantized"),
            8192 * (2048 + 64) + 4096 * 4 + 16,
        ),
        (
            ct(
                {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"},
                "nvfp4-pack-quantized",
            ),
            8192 * (2048 + 256) + 4,
        ),
        (ct({"num_bits": 4, "type": "float", "group_size": 32}, "mxfp4-pack-quantized"), 8192 * (2048 + 128)),
        (ct({"num_bits": 8, "type": "float", "group_size": 32}, "mxfp8-quantized"), 8192 * (4096 + 128)),
        ({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"]}, 8192 * (4096 + 4)),
        ({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": []}, 8192 * 4096 + 8),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO", "ignore": []}, 8192 * 4096 + 64 * 32 * 4),
        (
            {"quant_method": "modelopt", "quant_algo": "fp8_per_channel_per_token", "ignore": []},
            8192 * (4096 + 4),
        ),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8", "ignore": []}, 8192 * (4096 + 128)),
        ({**GPTQ, "bits": 8, "group_size": -1}, 8192 * (4096 + 2 + 1) + 4096 * 4),
        ({**MLX, "bits": 6}, 8192 * (3072 + 64 * 4)),
        ({**MLX, "bits": 3}, 8192 * (1536 + 64 * 4)),
        ({"group_size": 32, "bits": 4, "mode": "mxfp4"}, 8192 * (2048 + 128)),
        ({"group_size": 16, "bits": 4, "mode": "nvfp4"}, 8192 * (2048 + 256)),
    ],
)
def test_layouts(section: Config, size: int) -> None:
    """One matrix of 8192 x 4096, by hand from the layouts in vLLM 0.32 and compressed-tensors 0.17."""
    weight = linear("mlp.up_proj", Group.MLP, 4096, 8192)
    assert read(section).weight_bytes("model.layers.0.mlp.up_proj", weight, 2) == size


def test_bias_stays_in_the_own_type() -> None:
    plain, biased = (linear("mlp.up_proj", Group.MLP, 4096, 8192, bias=bias) for bias in (False, True))
    for section in (GPTQ, FP8, INT8):
        recipe = read(section)
        sizes = [recipe.weight_bytes("model.layers.0.mlp.up_proj", weight, 2) for weight in (plain, biased)]
        assert sizes[1] - sizes[0] == 2 * 8192


def test_a_pinned_type_is_not_quantized() -> None:
    weight = pinned(linear("mlp.up_proj", Group.MLP, 64, 128), "float32")
    assert read(FP8).weight_bytes("model.layers.0.mlp.up_proj", weight, 2) == 4 * 64 * 128


def test_a_shard_keeps_the_scheme_of_the_whole() -> None:
    """Half of 192 rows of input is no multiple of 128, which must not turn the shard into bfloat16."""
    whole, half = (linear("mlp.down_proj", Group.MLP, size, 512) for size in (256, 96))
    recipe = read(AWQ)
    path = "model.layers.0.mlp.down_proj"
    assert recipe.weight_bytes(path, half, 2) == 2 * 96 * 512
    assert recipe.weight_bytes(path, whole, 2, shard=half) == 512 * (48 + 2) + 256


# --- which weights ---


def quantized(recipe: Recipe, path: str, group: Group, *, size: int = 4096) -> bool:
    is_linear = group is not Group.EMBEDDINGS
    weight = Weight(path.rpartition(".")[2], group, size, size, linear=is_linear)
    return recipe.scheme_for(path, weight) is not None


@pytest.mark.parametrize("section", EVERY, ids=lambda section: str(read(section).method))
def test_routers_and_norms_stay(section: Config) -> None:
    recipe = read(section)
    norm = vector("input_layernorm", 4096)
    assert not quantized(recipe, "model.layers.3.mlp.gate", Group.ROUTER) or recipe.method == "mlx"
    assert recipe.weight_bytes("model.layers.3.input_layernorm", norm, 2) == 8192


@pytest.mark.parametrize(
    ("section", "head", "embeddings", "vision"),
    [
        (GPTQ, False, False, False),
        ({**GPTQ, "lm_head": True}, True, False, False),
        (AWQ, False, False, False),
        (FP8, False, False, True),
        (INT8, False, False, True),
        ({**INT8, "llm_int8_skip_modules": ["vision_tower"]}, True, False, False),
        ({**INT8, "llm_int8_skip_modules": ["lm_head"]}, False, False, True),
        (MLX, True, True, True),
        (MXFP4, False, False, False),
        ({**NVFP4, "quant_method": "modelopt"}, False, False, False),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["model.visual*"]},
            True,
            False,
            False,
        ),
        (CT_FP8, False, False, True),
        ({**CT_FP8, "ignore": ["re:.*vision.*"]}, True, False, False),
    ],
)
def test_head_embeddings_and_towers(section: Config, head: bool, embeddings: bool, vision: bool) -> None:
    recipe = read(section)
    assert quantized(recipe, "lm_head", Group.HEAD) is head
    assert quantized(recipe, "model.embed_tokens", Group.EMBEDDINGS) is embeddings
    assert quantized(recipe, "vision_tower.blocks.*.attn.qkv", Group.VISION) is vision


def test_a_nested_section_leaves_the_towers() -> None:
    recipe = read_recipe({"text_config": {"quantization_config": {**CT_FP8, "ignore": []}}})
    assert recipe is not None
    assert quantized(recipe, "language_model.model.layers.0.mlp.up_proj", Group.MLP)
    assert not quantized(recipe, "vision_tower.blocks.0.mlp.fc1", Group.VISION)


@pytest.mark.parametrize("kept", ["self_attn.indexer.weights_proj", "eh_proj", "self_attn.compressor.wkv"])
def test_modules_that_vllm_never_quantizes(kept: str) -> None:
    assert not quantized(read(FP8), f"model.layers.61.{kept}", Group.MTP)


SPELLINGS = (
    "model.layers.3",
    "model.language_model.layers.3",
    "language_model.model.layers.3",
    "backbone.layers.3",
)


@pytest.mark.parametrize("path", SPELLINGS)
@pytest.mark.parametrize("entry", [f"{layer}.self_attn.q_proj" for layer in SPELLINGS])
def test_spellings_of_one_module_are_one(entry: str, path: str) -> None:
    sections = (
        {**FP8, "modules_to_not_convert": [entry]},
        {**CT_FP8, "ignore": [entry]},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [entry]},
        {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [entry + "*"]},
    )
    for section in sections:
        recipe = read(section)
        assert not quantized(recipe, f"{path}.self_attn.q_proj", Group.ATTENTION)
        assert quantized(recipe, f"{path}.self_attn.k_proj", Group.ATTENTION)
        assert quantized(recipe, f"{path}1.self_attn.q_proj", Group.ATTENTION)


@pytest.mark.parametrize(
    ("entry", "path", "named"),
    [
        ("lm_head", "lm_head", True),
        ("gate", "model.layers.0.mlp.gate", True),
        ("mlp.gate", "model.layers.0.block_sparse_moe.gate", True),
        ("mlp.gate", "model.layers.0.mlp.gate_proj", False),
        ("model.layers.1", "model.layers.1.mlp.up_proj", True),
        ("model.layers.1", "model.layers.10.mlp.up_proj", False),
        ("model.layers.1", "mtp.layers.1.mlp.up_proj", False),
        ("self_attn.qkv_proj", "model.layers.0.self_attn.k_proj", True),
        ("model.layers.*.self_attn", "model.layers.5.self_attn.q_proj", True),
        ("model.layers.0.mlp.experts.7.w1", "model.layers.0.mlp.experts.7.gate_proj", True),
        ("model.layers.0.mlp.experts", "model.layers.0.mlp.experts.*.up_proj", True),
        ("backbone.layers.4.mixer.in_proj", "model.layers.4.mixer.in_proj", True),
        ("backbone.layers.5.mixer.q_proj", "model.layers.5.self_attn.q_proj", True),
        ("mtp*", "mtp.layers.0.mlp.up_proj", True),
        ("*.attn.*", "layers.0.self_attn.wq_a", True),
        ("*.ffn.shared_experts.*", "layers.0.mlp.shared_experts.up_proj", True),
        (
            "model.layers.3.mlp.shared_expert*",
            "model.language_model.layers.3.mlp.shared_expert.up_proj",
            True,
        ),
    ],
)
def test_entries(entry: str, path: str, named: bool) -> None:
    recipe = read({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": [entry]})
    assert quantized(recipe, path, Group.HEAD if path == "lm_head" else Group.MLP) is not named


def test_compressed_tensors_names_one_module() -> None:
    """An entry names a module and nothing below it (vLLM 0.32, should_ignore_layer)."""
    recipe = read({**CT_FP8, "ignore": ["model.layers.0.self_attn", "model.layers.1.mlp.experts.0.up_proj"]})
    assert quantized(recipe, "model.layers.0.self_attn.q_proj", Group.ATTENTION)
    assert not quantized(recipe, "model.layers.1.mlp.experts.*.up_proj", Group.EXPERTS)


def test_expressions_reach_experts_alone() -> None:
    """Kimi-K2.5's list leaves attention, shared experts and dense layers, and packs the experts."""
    recipe = read(CT_INT4)
    layer = "language_model.model.layers.3"
    assert quantized(recipe, f"{layer}.mlp.experts.*.gate_proj", Group.EXPERTS)
    assert not quantized(recipe, f"{layer}.mlp.gate_proj", Group.MLP)
    assert not quantized(recipe, f"{layer}.mlp.shared_experts.up_proj", Group.SHARED_EXPERTS)
    assert not quantized(recipe, f"{layer}.self_attn.o_proj", Group.ATTENTION)


def test_awq_lists_are_substrings() -> None:
    recipe = read({**AWQ, "modules_to_not_convert": ["gate", "shared_expert"]})
    assert quantized(recipe, "model.layers.0.mlp.experts.*.gate_proj", Group.EXPERTS)
    assert not quantized(recipe, "model.layers.0.mlp.gate_proj", Group.MLP)
    assert not quantized(recipe, "model.layers.0.mlp.shared_expert.up_proj", Group.SHARED_EXPERTS)


def test_gptq_lists_and_dynamic_rules() -> None:
    recipe = read(
        {
            **GPTQ,
            "modules_in_block_to_quantize": [["self_attn.k_proj", "self_attn.q_proj"], ["mlp.down_proj"]],
            "dynamic": {
                "-:.*\\.1\\.mlp.*": {},
                "+:.*\\.2\\..*": {"bits": 8, "group_size": 64},
                ".*\\.3\\..*": {},
            },
        }
    )
    weight = linear("mlp.down_proj", Group.MLP, 4096, 4096)
    schemes = [recipe.scheme_for(f"model.layers.{layer}.mlp.down_proj", weight) for layer in range(4)]
    names = [None if scheme is None else scheme.name for scheme in schemes]
    assert names == ["INT4 in groups of 128", None, "INT8 in groups of 64", "INT4 in groups of 128"]
    assert not quantized(recipe, "model.layers.0.mlp.up_proj", Group.MLP)


def test_modelopt_mixed_precision() -> None:
    """A map from modules to algorithms; what it does not name stays (nvidia/Qwen3.6-35B-A3B-NVFP4)."""
    layer = "model.language_model.layers.0"
    recipe = read(
        {
            "quant_method": "modelopt",
            "quant_algo": "MIXED_PRECISION",
            "ignore": ["mtp*"],
            "quantized_layers": {
                f"{layer}.linear_attn.in_proj_qkv": {"quant_algo": "FP8"},
                f"{layer}.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
            },
            "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
        }
    )
    state = linear("linear_attn.in_proj_qkv", Group.STATE, 2048, 4096)
    expert = linear("mlp.experts.*.up_proj", Group.EXPERTS, 2048, 512, count=256)
    assert recipe.weight_bytes(f"{layer}.linear_attn.in_proj_qkv", state, 2) == 2048 * 4096 + 8
    assert recipe.weight_bytes(f"{layer}.mlp.experts.*.up_proj", expert, 2) == 256 * (512 * 1024 + 512 * 128 + 4)
    assert quantized(recipe, "lm_head", Group.HEAD)
    assert not quantized(recipe, f"{layer}.linear_attn.in_proj_b", Group.STATE)
    assert not quantized(recipe, "mtp.layers.0.mlp.experts.*.up_proj", Group.EXPERTS)
    assert recipe.kv_cache_dtype == "fp8_e4m3"


def test_deepseek_v4_experts() -> None:
    """FP8 with one-byte scales, experts in MXFP4; ModelOpt's copy has NVFP4 experts but for the MTP layer."""
    linear_weight = linear("mlp.shared_experts.up_proj", Group.SHARED_EXPERTS, 4096, 2048)
    expert = linear("mlp.experts.*.up_proj", Group.EXPERTS, 4096, 2048)
    path, shared = "layers.0.ffn.experts.*.w3", "layers.0.ffn.shared_experts.w3"
    native = read({**FP8, "scale_fmt": "ue8m0"}, expert_dtype="fp4", model_type="deepseek_v4")
    assert native.weight_bytes(shared, linear_weight, 2) == 2048 * 4096 + 16 * 32
    assert native.weight_bytes(path, expert, 2) == 2048 * (2048 + 128)
    assert read(FP8, model_type="deepseek_v4") == native
    assert read(FP8, model_type="deepseek_v4", expert_dtype="fp8") == read(FP8)
    modelopt = read(
        {**FP8, "moe_quant_algo": "NVFP4", "ignore": ["*.attn.*", "*.ffn.shared_experts.*", "head", "mtp.*"]},
        expert_dtype="fp4",
    )
    assert modelopt.weight_bytes(path, expert, 2) == 2048 * (2048 + 256) + 8
    assert modelopt.weight_bytes("mtp.0.ffn.experts.*.w3", expert, 2) == 2048 * (2048 + 128)
    assert modelopt.weight_bytes(shared, linear_weight, 2) == 2048 * 4096 + 16 * 32


def test_mlx_settings_by_module() -> None:
    recipe = read(
        {**MLX, "model.layers.0.mlp.gate": {"group_size": 64, "bits": 8}, "model.layers.1.mlp.up_proj": False}
    )
    router = linear("mlp.gate", Group.ROUTER, 4096, 128)
    assert recipe.weight_bytes("model.layers.0.mlp.gate", router, 2) == 128 * (4096 + 64 * 4)
    assert recipe.weight_bytes("model.layers.1.mlp.gate", router, 2) == 2 * 128 * 4096
    assert not quantized(recipe, "model.layers.1.mlp.up_proj", Group.MLP)
    assert not quantized(recipe, "model.layers.2.mlp.up_proj", Group.MLP, size=4090)


def test_compressed_tensors_groups() -> None:
    """Names are tried before the class; an embedding is packed only if it is a target."""
    section = ct({"num_bits": 4, "group_size": 128}, "mixed-precision", group={"format": "pack-quantized"})
    section["config_groups"]["group_1"] = {
        "targets": ["re:.*down_proj", "lm_head"],
        "format": "float-quantized",
        "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
    }
    section["config_groups"]["group_2"] = {
        "targets": ["LlamaAttention"],
        "weights": None,
        "output_activations": {},
    }
    recipe = read(section)
    weight = linear("x", Group.MLP, 4096, 4096)
    down = recipe.scheme_for("model.layers.0.mlp.down_proj", weight)
    other = recipe.scheme_for("model.layers.0.mlp.up_proj", weight)
    assert down is not None
    assert other is not None
    assert (down.name, other.name) == ("FP8 per channel", "INT4 in groups of 128")
    assert not quantized(recipe, "model.embed_tokens", Group.EMBEDDINGS)
    section["config_groups"]["group_1"]["targets"] = ["Embedding"]
    assert quantized(read(section), "model.embed_tokens", Group.EMBEDDINGS)


@pytest.mark.parametrize(
    ("config", "beside", "found"),
    [
        ({}, (None, None), None),
        ({"quantization_config": None}, (None, None), None),
        ({"quantization_config": {}}, (None, None), None),
        ({"quantization_config": {**INT8, "load_in_8bit": False}}, (None, None), None),
        ({}, (NVFP4, None), "modelopt_fp4"),
        ({"quantization_config": FP8}, (NVFP4, None), "fp8"),
        ({}, (None, {"bits": 4, "group_size": 128}), "gptq"),
        ({}, (None, {"w_bit": 4, "q_group_size": 128, "zero_point": True, "version": "GEMM"}), "awq"),
        ({"compression_config": CT_FP8}, (None, None), "compressed-tensors"),
        ({"quantization": MLX}, (None, None), "mlx"),
        ({"text_config": {"quantization_config": FP8}}, (None, None), "fp8"),
        (
            {"quantization_config": {**CT_FP8, "quant_method": "compressed_tensors"}},
            (None, None),
            "compressed-tensors",
        ),
    ],
)
def test_where_the_section_stands(
    config: Config, beside: tuple[Config | None, Config | None], found: str | None
) -> None:
    recipe = read_recipe(config, *beside)
    assert (None if recipe is None else recipe.method) == found


@pytest.mark.parametrize(
    ("config", "hf_quant_config", "dtype"),
    [  # vLLM 0.32, get_kv_cache_quant_algo_string; only what vLLM takes for ModelOpt's counts
        ({"quantization_config": GPTQ}, None, None),
        ({}, NVFP4, "fp8_e4m3"),
        ({}, {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}, None),
        (
            {"quantization_config": {"quant_algo": "FP8", "kv_cache_scheme": "FP8", "ignore": ["lm_head"]}},
            None,
            None,
        ),
        (
            {
                "quantization_config": {
                    "quant_method": "modelopt",
                    "quant_algo": "FP8",
                    "kv_cache_quant_algo": "NVFP4",
                }
            },
            None,
            "nvfp4",
        ),
        (
            {"quantization_config": {**CT_FP8, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}},
            None,
            "fp8",
        ),
        ({"quantization_config": {**CT_FP8, "kv_cache_scheme": None}}, None, None),
    ],
)
def test_kv_cache_dtype_of_the_checkpoint(config: Config, hf_quant_config: Config | None, dtype: str | None) -> None:
    recipe = read_recipe(config, hf_quant_config)
    assert recipe is not None
    assert recipe.kv_cache_dtype == dtype


def test_a_missing_list_is_an_assumption() -> None:
    recipe = read({"quant_method": "modelopt", "quant_algo": "NVFP4"})
    assert "excluded" in recipe.assumptions[0]
    assert not quantized(recipe, "lm_head", Group.HEAD)
    assert read({**NVFP4, "quant_method": "modelopt"}).assumptions == ()


@pytest.mark.parametrize("section", EVERY, ids=lambda section: str(read(section).method))
def test_recipes_describe_themselves(section: Config) -> None:
    text = read(section).describes
    assert 5 < len(text) < 90
    assert "\n" not in text


def test_description_of_blocks() -> None:
    assert read(FP8).describes == "FP8 in blocks of 128 x 128, float32 scales"


# --- laws ---

unhurried = settings(deadline=None)  # a loaded machine is no failure
sections = st.sampled_from(EVERY)
multiples = st.integers(1, 64).map(lambda n: 128 * n)


def expert(out: int, inputs: int, count: int = 1) -> Weight:
    return linear("mlp.experts.*.up_proj", Group.EXPERTS, inputs, out, count=count)


PATH = "model.layers.0.mlp.experts.*.up_proj"


@unhurried
@given(sections, multiples, multiples)
def test_quantized_is_smaller_than_bf16(section: Config, out: int, inputs: int) -> None:
    weight = expert(out, inputs)
    assert read(section).weight_bytes(PATH, weight, 2) < weight_bytes(weight, 2) == 2 * out * inputs


@unhurried
@given(sections, multiples, multiples, multiples)
def test_bytes_grow_with_the_shape(section: Config, out: int, inputs: int, more: int) -> None:
    recipe = read(section)
    size = recipe.weight_bytes(PATH, expert(out, inputs), 2)
    assert size < recipe.weight_bytes(PATH, expert(out + more, inputs), 2)
    assert size < recipe.weight_bytes(PATH, expert(out, inputs + more), 2)


@unhurried
@given(sections, multiples, multiples, st.integers(1, 512))
def test_count_scales_linearly(section: Config, out: int, inputs: int, count: int) -> None:
    recipe = read(section)
    assert recipe.weight_bytes(PATH, expert(out, inputs, count), 2) == count * recipe.weight_bytes(
        PATH, expert(out, inputs), 2
    )


@unhurried
@given(sections, multiples, multiples, st.integers(1, 8))
def test_column_shards_add_up_to_the_whole_and_shared_parts(section: Config, out: int, inputs: int, ranks: int) -> None:
    """Shards of output features repeat only what is stored once a matrix or once an input feature."""
    recipe = read(section)
    whole, shard = expert(out * ranks, inputs), expert(out, inputs)
    scheme = recipe.scheme_for(PATH, whole)
    assert scheme is not None
    repeated = scheme.matrix_bytes + scheme.order_bytes * inputs + 4 * bool(scheme.superblock)
    together = ranks * recipe.weight_bytes(PATH, whole, 2, shard=shard)
    assert 0 <= together - recipe.weight_bytes(PATH, whole, 2) <= (ranks - 1) * repeated


IGNORE_ALL: list[Config] = [
    {**FP8, "modules_to_not_convert": ["model.layers", "mtp"]},
    {**AWQ, "modules_to_not_convert": ["layers"]},
    {**GPTQ, "dynamic": {"-:.*": {}}},
    {**CT_FP8, "ignore": ["re:.*"]},
    {**INT8, "llm_int8_skip_modules": ["model.layers", "lm_head"]},
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*"]},
    {**MXFP4, "modules_to_not_convert": ["model.layers.*"]},
]


@pytest.mark.parametrize("section", IGNORE_ALL, ids=lambda section: str(section["quant_method"]))
def test_a_list_of_everything_is_no_quantization(section: Config) -> None:
    recipe = read(section)
    for placed in (llama_8b()[:20], gpt_oss_20b()[:20]):
        assert total(recipe, placed) == sum(weight_bytes(weight, 2) for _, weight in placed)


@unhurried
@given(multiples, multiples, st.sampled_from([1, 2, 4]))
def test_own_type_counts_for_what_stays(out: int, inputs: int, own: int) -> None:
    assert weight_bytes(expert(out, inputs), own) == own * out * inputs


def scheme_of(section: Config) -> Scheme:
    scheme = read(section).scheme_for(PATH, expert(512, 512))
    assert scheme is not None
    return scheme


@unhurried
@given(sections, multiples, multiples)
def test_parts_add_up(section: Config, out: int, inputs: int) -> None:
    parts = scheme_of(section).parts(out, inputs, 2)
    assert sum(part.bytes for part in parts) == weight_bytes(expert(out, inputs), 2, scheme_of(section))
    assert all(part.bytes > 0 for part in parts)


# --- refusals ---


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ({"quant_method": "aqlm"}, "quantization_config.quant_method"),
        ({"quant_method": "x" * 999}, "quantization_config.quant_method"),
        ({"something": 1}, "quantization_config.quant_method"),
        ({**GPTQ, "bits": 5}, "quantization_config.bits"),
        ({**GPTQ, "bits": None}, "quantization_config.bits"),
        ({**GPTQ, "checkpoint_format": "marlin"}, "quantization_config.checkpoint_format"),
        ({**AWQ, "version": "gemv_fast"}, "quantization_config.version"),
        ({**AWQ, "group_size": None}, "quantization_config.group_size"),
        ({**FP8, "moe_quant_algo": "INT3"}, "quantization_config.moe_quant_algo"),
        ({**NF4, "bnb_4bit_quant_type": "nf3"}, "quantization_config.bnb_4bit_quant_type"),
        ({**CT_FP8, "format": "marlin-24"}, "quantization_config.format"),
        (
            {**CT_FP8, "sparsity_config": {"format": "sparse-24-bitmask"}},
            "quantization_config.sparsity_config.format",
        ),
        (ct({"strategy": "hexagon"}), "quantization_config.config_groups.group_0.weights.strategy"),
        (ct({"strategy": "group"}), "quantization_config.config_groups.group_0.weights.group_size"),
        (ct({}, group={"targets": ["SparseMoeBlock"]}), "quantization_config.config_groups"),
        ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "quantization_config.quant_algo"),
        (
            {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"},
            "quantization_config.quantized_layers",
        ),
        ({**MLX, "mode": "ternary"}, "quantization_config.mode"),
    ],
)
def test_what_is_not_known_is_not_guessed(section: Config, key: str) -> None:
    config = {"quantization_config": section, "expert_dtype": "fp4"}
    with pytest.raises(CannotTell) as caught:
        read_recipe(config)
    assert caught.value.key == key
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "section",
    [
        [],
        "fp8",
        {**INT8, "load_in_4bit": True},
        {**FP8, "weight_block_size": [128]},
        {**FP8, "weight_block_size": [0, 128]},
        {**FP8, "modules_to_not_convert": "lm_head"},
        {**FP8, "modules_to_not_convert": [1]},
        {**GPTQ, "group_size": 0},
        {**GPTQ, "group_size": "big"},
        {**GPTQ, "dynamic": {"-:(": {}}},
        {**GPTQ, "quant_method": 7},
        {**CT_FP8, "ignore": ["re:*"]},
        ct({"strategy": "block", "block_structure": [128]}),
        ct({"strategy": "block"}),
        {"quant_method": "modelopt", "quantization": "NVFP4"},
        {**MLX, "bits": 0},
    ],
)
def test_broken_sections_are_named(section: object) -> None:
    with pytest.raises(InputError) as caught:
        read_recipe({"quantization_config": section})
    assert "quantization_config" in str(caught.value)
    assert len(str(caught.value)) < 400


def test_expert_dtype_is_known_or_refused() -> None:
    with pytest.raises(CannotTell) as caught:
        read_recipe({"quantization_config": FP8, "expert_dtype": "fp2"})
    assert caught.value.key == "expert_dtype"


def test_quantization_while_loading_is_refused() -> None:
    with pytest.raises(CannotTell) as caught:
        read_recipe({"quantization_bit": 4})
    assert caught.value.key == "quantization_bit"
    assert read_recipe({"quantization_bit": 0}) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None, max_examples=300)
@given(st.data(), sections, json_values)
def test_no_section_breaks_the_reader(data: st.DataObject, section: Config, value: object) -> None:
    """Any value under any key is read or refused, never a traceback."""
    key = data.draw(st.sampled_from([*section, "ignore", "dynamic", "group_size", "quantization", "sparsity_config"]))
    try:
        recipe = read_recipe({"quantization_config": {**section, key: value}})
    except KvbudgetError:
        return
    if recipe is not None:
        assert recipe.weight_bytes(PATH, expert(512, 512), 2) > 0


# --- vLLM's own tensors ---

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).resolve().parents[2] / "shared"))
CONFIGS = SHARED / "data" / "configs"
ORACLE = SHARED / "data" / "vllm_oracle.jsonl.gz"
PARAMS = SHARED / "data" / "params.tsv"

VLLM: list[tuple[str, int, str]] = [
    # config, bytes that vLLM 0.32 holds beyond ours, why
    ("Qwen__Qwen3-235B-A22B-FP8", 94 * KV_SCALES, "KV scales"),
    ("Qwen__Qwen3-30B-A3B-FP8", 48 * KV_SCALES, "KV scales"),
    ("Qwen__Qwen3-32B-FP8", 64 * KV_SCALES, "KV scales"),
    ("Qwen__Qwen3-8B-AWQ", 0, ""),
    ("deepseek-ai__DeepSeek-R1", 0, ""),
    ("deepseek-ai__DeepSeek-V3", 0, ""),
    ("nvidia__DeepSeek-V3.1-NVFP4", 61 * KV_SCALES, "KV scales"),
    ("nvidia__Qwen3-235B-A22B-NVFP4", 94 * KV_SCALES, "KV scales"),
    ("nvidia__Qwen3.5-122B-A10B-NVFP4", 12 * KV_SCALES, "KV scales of the 12 attention layers"),
    ("nvidia__Kimi-K2.5-NVFP4", 61 * KV_SCALES, "KV scales"),
    ("nvidia__Kimi-K2.7-Code-NVFP4", 61 * KV_SCALES, "KV scales"),
    (
        "moonshotai__Kimi-K2.5",
        -60 * 384 * (3 * 16 - 2 * 4),
        "shapes of experts: two bfloat16 pairs for three of int64",
    ),
    ("openai__gpt-oss-120b", 0, ""),
    ("TheBloke__MythoMax-L2-13B-GPTQ", -4 * 40 * (6 * 5120 + 13824), "g_idx is dropped"),
    ("TheBloke__Llama-2-13B-chat-GPTQ", -4 * 40 * (6 * 5120 + 13824), "g_idx is dropped"),
]

CLOSE: list[tuple[str, float, str]] = [
    # config, relative difference allowed, why
    ("MiniMaxAI__MiniMax-M2.7", 5e-4, "vLLM holds routers in float32"),
    ("XiaomiMiMo__MiMo-V2-Flash", 5e-4, "vLLM holds routers in float32"),
    ("deepseek-ai__DeepSeek-V3.2", 1e-4, "vLLM upcasts the indexer's wk"),
    ("zai-org__GLM-5-FP8", 1e-4, "vLLM upcasts the indexer's wk"),
    ("zai-org__GLM-5.2-FP8", 1e-4, "vLLM upcasts the indexer's wk"),
    ("nvidia__Qwen3.6-27B-NVFP4", 1e-5, "scales of joined projections"),
    ("nvidia__Qwen3.6-35B-A3B-NVFP4", 1e-4, "vLLM keeps room for input scales that W4A16 does without"),
    ("nvidia__NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4", 1e-5, "scales of joined projections"),
]

ELEMENTS: list[tuple[str, bool]] = [
    # config, whether the published count holds the MTP layers
    ("Qwen__Qwen3-235B-A22B-FP8", False),
    ("Qwen__Qwen3-30B-A3B-FP8", False),
    ("Qwen__Qwen3-32B-FP8", False),
    ("deepseek-ai__DeepSeek-V3", True),
    ("nvidia__DeepSeek-V3.1-NVFP4", True),
    ("nvidia__DeepSeek-V3.2-NVFP4", True),
    ("nvidia__GLM-5-NVFP4", True),
    ("nvidia__Qwen3-235B-A22B-NVFP4", False),
    ("zai-org__GLM-5-FP8", True),
    ("zai-org__GLM-5.1-FP8", True),
]


@cache
def published() -> dict[str, int]:
    with PARAMS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {row["hub"].replace("/", "__"): int(row["published_params"]) for row in rows if row["published_params"]}


@cache
def oracle() -> dict[str, int]:
    with gzip.open(ORACLE, "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    return {row["config"]: row["weights"][0]["param_bytes"] for row in rows if row["tp"] == 1 and row["weights"]}


def shared_model(name: str, *, mtp: bool = False) -> tuple[Recipe, list[Placed]]:
    """Return the recipe and the weights of a config of the shared data, with its MTP layers if asked to."""
    from kvbudget.model import Model  # noqa: PLC0415 - the readers are not this file's subject

    if not CONFIGS.is_dir():
        pytest.skip("the shared configs are not here")
    folder = CONFIGS / name
    config, hf_quant, quantize = (
        json.loads((folder / file).read_text(encoding="utf-8")) if (folder / file).is_file() else None
        for file in ("config.json", "hf_quant_config.json", "quantize_config.json")
    )
    assert config is not None
    recipe = read_recipe(config, hf_quant, quantize)
    assert recipe is not None
    model = Model.from_config(config, hf_quant_config=hf_quant, quantize_config=quantize)
    placed = [(path, weight) for _, path, weight in model.weights()]
    for number, layer in enumerate(model.mtp if mtp else (), start=len(model.layers)):
        placed += [(f"{model.prefix}.{number}.{weight.name}", weight) for weight in layer.weights]
    return recipe, placed


@pytest.mark.parametrize(("name", "more", "why"), VLLM, ids=[row[0] for row in VLLM])
def test_bytes_that_vllm_holds(name: str, more: int, why: str) -> None:
    """At tensor parallel 1, before repacking; each difference is accounted for to the byte."""
    recipe, placed = shared_model(name)
    assert oracle()[name] - total(recipe, placed) == more, why


@pytest.mark.parametrize(("name", "allowed", "why"), CLOSE, ids=[row[0] for row in CLOSE])
def test_bytes_that_vllm_holds_in_other_types(name: str, allowed: float, why: str) -> None:
    recipe, placed = shared_model(name)
    assert total(recipe, placed) == pytest.approx(oracle()[name], rel=allowed), why


@pytest.mark.parametrize(("name", "mtp"), ELEMENTS, ids=[row[0] for row in ELEMENTS])
def test_values_that_the_hub_counts(name: str, mtp: bool) -> None:
    recipe, placed = shared_model(name, mtp=mtp)
    assert stored_elements(recipe, placed) == published()[name]


def test_mlx_mistral_without_its_tower() -> None:
    """The index of mlx-community/Mistral-Small-4-119B-2603-4bit states 66,949,842,944 bytes: the text part."""
    recipe, placed = shared_model("mlx-community__Mistral-Small-4-119B-2603-4bit")
    text = [(path, weight) for path, weight in placed if weight.group is not Group.VISION]
    assert total(recipe, text) == 66_949_842_944


def test_every_shared_section_is_read_or_refused() -> None:
    if not CONFIGS.is_dir():
        pytest.skip("the shared configs are not here")
    methods = set()
    for path in sorted(CONFIGS.glob("*/config.json")):
        beside = path.with_name("hf_quant_config.json")
        config = json.loads(path.read_text(encoding="utf-8"))
        recipe = read_recipe(config, json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else None)
        methods.add(recipe.method if recipe is not None else None)
    assert methods == {
        None,
        "gptq",
        "awq",
        "fp8",
        "modelopt",
        "modelopt_fp4",
        "modelopt_mixed",
        "compressed-tensors",
        "bitsandbytes",
        "mlx",
        "mxfp4",
    }
