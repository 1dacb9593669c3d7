"""Decoders without a common plan against the classes of transformers 5.24 and vLLM 0.32."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.class_defaults import CLASS_DEFAULTS
from kvbudget.model.config import Config
from kvbudget.model.shapes import Attention, LatentAttention, RecurrentState
from kvbudget.model.special import SPECIAL, CompressedCache, IndexKeys, Stack
from kvbudget.parallel import rank_weight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.model.shapes import Layer, Weight

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared"))


def pattern(sliding: int, times: int) -> list[str]:
    return (["sliding_attention"] * sliding + ["full_attention"]) * times


GEMMA4_MOE = {
    "attention_k_eq_v": True,
    "enable_moe_block": True,
    "global_head_dim": 512,
    "head_dim": 256,
    "hidden_size": 2816,
    "hidden_size_per_layer_input": 0,
    "intermediate_size": 2112,
    "layer_types": pattern(5, 5),
    "moe_intermediate_size": 704,
    "num_attention_heads": 16,
    "num_experts": 128,
    "num_global_key_value_heads": 2,
    "num_hidden_layers": 30,
    "num_key_value_heads": 8,
    "num_kv_shared_layers": 0,
    "sliding_window": 1024,
}
GEMMA4_E2B = {
    "global_head_dim": 512,
    "head_dim": 256,
    "hidden_size": 1536,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": 6144,
    "layer_types": pattern(4, 7),
    "num_attention_heads": 8,
    "num_hidden_layers": 35,
    "num_key_value_heads": 1,
    "num_kv_shared_layers": 20,
    "sliding_window": 512,
    "use_double_wide_mlp": True,
    "vocab_size_per_layer_input": 262144,
}
GEMMA3N = {
    "altup_num_inputs": 4,
    "head_dim": 256,
    "hidden_size": 2048,
    "hidden_size_per_layer_input": 256,
    "intermediate_size": [16384] * 35,
    "laurel_rank": 64,
    "layer_types": pattern(4, 7),
    "num_attention_heads": 8,
    "num_hidden_layers": 35,
    "num_key_value_heads": 2,
    "num_kv_shared_layers": 15,
    "sliding_window": 512,
    "vocab_size_per_layer_input": 262144,
}
DEEPSEEK_V4 = {
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "hc_mult": 4,
    "head_dim": 512,
    "hidden_size": 4096,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_experts_per_tok": 6,
    "num_hash_layers": 3,
    "num_hidden_layers": 43,
    "o_groups": 8,
    "o_lora_rank": 1024,
    "q_lora_rank": 1024,
    "qk_rope_head_dim": 64,
    "sliding_window": 128,
    "vocab_size": 129280,
}
SPARSE_M3 = {
    "sparse_attention_freq": [0, 0, 0, 1, 1],
    "sparse_disable_index_value": [0, 0, 0, 1, 1],
    "sparse_index_dim": 128,
    "sparse_num_index_heads": 4,
}
MINIMAX_M3 = {
    "dense_intermediate_size": 12288,
    "head_dim": 128,
    "hidden_size": 6144,
    "intermediate_size": 3072,
    "moe_layer_freq": [0, 0, 0, 1, 1],
    "n_shared_experts": 1,
    "num_attention_heads": 64,
    "num_hidden_layers": 5,
    "num_key_value_heads": 4,
    "num_local_experts": 128,
    "sparse_attention_config": SPARSE_M3,
}
STEP = {
    "attention_other_setting": {
        "attention_type": "sliding_attention",
        "head_dim": 128,
        "num_attention_groups": 8,
        "num_attention_heads": 96,
    },
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 11264,
    "layer_types": (["full_attention"] + ["sliding_attention"] * 3) * 2,
    "moe_intermediate_size": 1280,
    "moe_layers_enum": "3,4,5,6,7",
    "moe_num_experts": 288,
    "num_attention_groups": 8,
    "num_attention_heads": 64,
    "num_hidden_layers": 8,
    "share_expert_dim": 1280,
    "sliding_window": 512,
    "use_head_wise_attn_gate": True,
}
KIMI_LINEAR = {
    "first_k_dense_replace": 1,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "kv_lora_rank": 512,
    "linear_attn_config": {
        "head_dim": 128,
        "kda_layers": [i for i in range(1, 28) if i not in {4, 8, 12, 16, 20, 24, 27}],
        "num_heads": 32,
        "short_conv_kernel_size": 4,
    },
    "moe_intermediate_size": 1024,
    "num_attention_heads": 32,
    "num_experts": 256,
    "num_hidden_layers": 27,
    "num_shared_experts": 1,
    "q_lora_rank": None,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
KIMI_K3 = {
    "attn_res_block_size": 12,
    "first_k_dense_replace": 1,
    "hidden_size": 7168,
    "intermediate_size": 33792,
    "kv_lora_rank": 512,
    "latent_moe_use_norm": True,
    "linear_attn_config": {
        "head_dim": 128,
        "kda_layers": [1, 2, 3, 5, 6, 7],
        "num_heads": 96,
        "short_conv_kernel_size": 4,
        "use_full_rank_gate": True,
    },
    "mla_use_output_gate": True,
    "moe_intermediate_size": 3072,
    "num_attention_heads": 96,
    "num_experts": 896,
    "num_hidden_layers": 8,
    "num_shared_experts": 2,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "routed_expert_hidden_size": 3584,
    "v_head_dim": 128,
}
LONGCAT = {
    "expert_ffn_hidden_size": 2048,
    "ffn_hidden_size": 12288,
    "hidden_size": 6144,
    "kv_lora_rank": 512,
    "n_routed_experts": 512,
    "num_attention_heads": 64,
    "num_layers": 28,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "zero_expert_num": 256,
}
ZAMBA2 = {
    "adapter_rank": 128,
    "hidden_size": 2560,
    "layers_block_type": ["hybrid" if i in {6, 12, 18, 24, 30, 36, 42, 47, 51} else "mamba" for i in range(54)],
    "mamba_d_conv": 4,
    "mamba_d_state": 64,
    "mamba_expand": 2,
    "mamba_ngroups": 1,
    "n_mamba_heads": 8,
    "num_attention_heads": 32,
    "num_hidden_layers": 54,
    "num_mem_blocks": 1,
}
RECURRENT_GEMMA = {
    "attention_window_size": 2048,
    "block_types": ["recurrent", "recurrent", "attention"],
    "conv1d_width": 4,
    "hidden_size": 2560,
    "intermediate_size": 15360,
    "lru_width": 2560,
    "num_attention_heads": 10,
    "num_hidden_layers": 26,
    "num_key_value_heads": 1,
}
OPENELM = {
    "ffn_dim_divisor": 256,
    "ffn_multipliers": [
        *(0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13),
        *(2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0),
    ],
    "head_dim": 64,
    "model_dim": 1280,
    "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4,
    "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4,
    "num_transformer_layers": 16,
}
NAS_ATTENTION = "AAAAAA--AAA-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA----------A------------------AAAAAAAAA"
NAS_WIDTHS = [
    *([2.625], [5.25] * 5, [2.625] * 2, [5.25] * 3, [3.28125], [5.25] * 30, [1.3125], [2.625] * 2, [1.3125], [5.25]),
    *([1.3125, 2.625], [1.3125] * 3, [5.25, 1.3125], [1.0] * 2, [1.3125], [1.0] * 3, [1.3125] * 2, [0.5] * 2),
    *([1.0] * 2, [0.5] * 2, [1.0], [0.5] * 2, [5.25] * 9),
]
NEMOTRON_NAS = {
    "block_configs": [
        {
            "attention": {"n_heads_in_group": 8 if letter == "A" else None, "no_op": letter == "-"},
            "ffn": {"ffn_mult": width, "no_op": False},
        }
        for letter, width in zip(NAS_ATTENTION, [width for run in NAS_WIDTHS for width in run], strict=True)
    ],
    "hidden_size": 8192,
    "intermediate_size": None,
    "num_attention_heads": 64,
    "num_hidden_layers": 80,
    "num_key_value_heads": None,
}


@dataclass(frozen=True, slots=True)
class Row:
    """One published model (or its first layers).

    `parameters` are those of the layers and of what `SPECIAL` puts outside them, by transformers 5.24, or by vLLM 0.32
    without correction biases and copies, or by the publisher; `one` and `eight` are the values that vLLM 0.32 builds
    on one rank of 1 and of 8, 0 where its class could not be asked. Read off the classes on the meta device.
    """

    name: str
    kind: str
    config: dict[str, Any]
    parameters: int
    one: int = 0
    eight: int = 0


ROWS = (
    Row("gemma-4-26B-A4B", "gemma4_text", GEMMA4_MOE, 24_494_941_440, 24_509_359_360, 3_084_555_520),
    Row("gemma-4-E2B", "gemma4_text", GEMMA4_E2B, 4_225_914_624, 4_225_914_624, 564_958_976),
    Row("gemma-3n-E4B", "gemma3n_text", GEMMA3N, 6_297_838_320, 6_297_838_320, 835_838_704),
    Row("DeepSeek-V4-Flash", "deepseek_v4", DEEPSEEK_V4, 283_273_164_375, 283_275_501_655, 36_143_964_247),
    Row("MiniMax-M3, 5 layers", "minimax_m3", MINIMAX_M3, 15_832_512_256, 15_832_512_512, 1_986_590_720),
    Row("Step-3.5, 8 layers", "step3p5", STEP, 23_957_276_672, 23_957_278_112, 2_999_881_120),
    # vLLM pads the experts of 8 ranks to a width of 256, which is not counted
    Row("Kimi-Linear-48B", "kimi_linear", KIMI_LINEAR, 48_367_698_048, 48_367_704_704, 6_077_952_080),
    # vLLM pads the projection of 8 ranks by 4 rows in 6 layers, which is not counted
    Row(
        "Kimi-K3, 8 layers",
        "kimi_linear",
        KIMI_K3,
        212_348_407_616,
        212_348_413_888,
        26_929_420_744 - 6 * 4 * 7168,
    ),
    Row("LongCat-Flash", "longcat_flash", LONGCAT, 559_054_340_096, 559_054_361_600, 70_633_952_256),
    Row("Zamba2-2.7B", "zamba2", ZAMBA2, 2_399_925_776, 2_399_925_776, 367_241_122),
    Row("RecurrentGemma-2B", "recurrent_gemma", RECURRENT_GEMMA, 2_027_499_520),
    # the publisher's 271,527,168 without embedding and final norm
    Row("OpenELM-270M", "openelm", OPENELM, 271_527_168 - 32000 * 1280 - 1280),
    # the publisher's 49,867,145,216 without embedding, output head and final norm
    Row("Nemotron-Super-49B", "nemotron-nas", NEMOTRON_NAS, 49_867_145_216 - 2 * 128256 * 8192 - 8192),
)


def read(kind: str, config: dict[str, Any], **more: Any) -> Stack:  # noqa: ANN401 - JSON values
    return SPECIAL[kind](Config(config | more))


def all_weights(stack: Stack) -> Iterable[Weight]:
    layers, outside = stack
    return (*(weight for layer in layers for weight in layer.weights), *outside)


def kept(layers: Iterable[Layer]) -> Counter[object]:
    return Counter(cache for layer in layers for cache in layer.caches)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_decoder_has_the_parameters_of_its_class(row: Row) -> None:
    stack = read(row.kind, row.config)
    assert sum(weight.parameters for weight in all_weights(stack)) == row.parameters


@pytest.mark.parametrize("row", [row for row in ROWS if row.one], ids=lambda row: row.name)
def test_a_rank_holds_what_vllm_builds(row: Row) -> None:
    stack = read(row.kind, row.config)
    assert sum(weight.values for weight in all_weights(stack)) == row.one
    assert sum(rank_weight(weight, 8).values for weight in all_weights(stack)) == row.eight


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_equal_layers_are_one_object(row: Row) -> None:
    layers, _ = read(row.kind, row.config)
    assert len({id(layer) for layer in layers}) == len(set(layers))


def test_gemma_4_global_layers_have_a_shape_of_their_own_and_shared_ones_keep_nothing() -> None:
    # vLLM 0.32: 25 SlidingWindowSpec of 8 heads of 256 and 5 FullAttentionSpec of 2 heads of 512
    layers, _ = read("gemma4_text", GEMMA4_MOE)
    shapes = Counter((c.num_key_value_heads, c.head_dim, c.sliding_window) for c in attentions(layers))
    assert shapes == {(8, 256, 1024): 25, (2, 512, None): 5}
    # E2B: 12 and 3; 20 layers share
    layers, _ = read("gemma4_text", GEMMA4_E2B)
    shapes = Counter((c.num_key_value_heads, c.head_dim, c.sliding_window) for c in attentions(layers))
    assert shapes == {(1, 256, 512): 12, (1, 512, None): 3}
    assert [layer.shares_kv for layer in layers] == [False] * 15 + [True] * 20
    assert all(not layer.caches for layer in layers[15:])


def attentions(layers: Iterable[Layer]) -> Iterable[Attention]:
    return (cache for layer in layers for cache in layer.caches if isinstance(cache, Attention))


def test_gemma_4_saved_by_transformers_reads_the_same() -> None:
    """The classes of 5.24 write the global layers' shape as `per_layer_config`, with padded numbers."""
    saved = {key: value for key, value in GEMMA4_MOE.items() if "global" not in key}
    saved["per_layer_config"] = {f"{i:02}": {"head_dim": 512, "num_key_value_heads": 2} for i in (5, 11, 17, 23, 29)}
    assert read("gemma4_text", saved) == read("gemma4_text", GEMMA4_MOE)


def test_gemma_4_loads_keys_once_more_as_values() -> None:
    layers, _ = read("gemma4_text", GEMMA4_MOE)
    copies = [weight for layer in layers for weight in layer.weights if weight.name.endswith("v_proj")]
    assert Counter(weight.buffer for weight in copies) == {False: 25, True: 5}


def test_deepseek_v4_caches_have_vllms_pages() -> None:
    """Pages of one layer's block: DeepSeek-V4-Flash on an H100, layout fp8_ds_mla."""
    layers, _ = read("deepseek_v4", DEEPSEEK_V4)
    counts = kept(layers)
    pages = Counter(
        {
            (cache.role, cache.compress_ratio, cache.sliding_window, cache.block_tokens, cache.page_bytes(2)): number
            for cache, number in counts.items()
            if isinstance(cache, CompressedCache)
        }
    )
    assert pages == {
        ("window", 1, 128, 64, 37440): 43,
        ("latent", 4, None, 256, 37440): 21,
        ("index", 4, None, 256, 8640): 21,
        ("state", 1, 8, 4, 32832): 21,
        ("state", 1, 8, 4, 8640): 21,
        ("latent", 128, None, 256, 1728): 20,
        ("state", 1, 128, 8, 32832): 20,
    }


def test_a_plain_row_is_as_wide_as_its_values() -> None:
    # vllm/models/deepseek_v4/attention.py, 0.32: bf16 rows of a FlashInfer backend, pages aligned to 512 bytes
    cache = CompressedCache(role="latent", width=512, rope_dim=64, compress_ratio=4, block_tokens=256)
    assert cache.row_bytes(2, packed=False) == 1024
    assert cache.row_bytes(2) == 448 + 2 * 64 + 8
    assert cache.page_bytes(2, packed=False) == 64 * 1024


def test_deepseek_v4_ratios_may_be_words() -> None:
    words = {0: "sliding_attention", 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
    ratios = DEEPSEEK_V4["compress_ratios"]
    assert isinstance(ratios, list)
    named = {key: value for key, value in DEEPSEEK_V4.items() if key != "compress_ratios"}
    named["layer_types"] = [words[ratio] for ratio in ratios]
    assert read("deepseek_v4", named) == read("deepseek_v4", DEEPSEEK_V4)


def test_minimax_m3_indexers_keep_a_key_a_token() -> None:
    # vLLM 0.32: MLAAttentionSpec of one head of 128 in bfloat16 besides FullAttentionSpec, 8 ranks and fp8 or not
    layers, _ = read("minimax_m3", MINIMAX_M3)
    assert kept(layers) == {
        Attention(num_attention_heads=64, num_key_value_heads=4, head_dim=128, v_head_dim=128): 5,
        IndexKeys(index_head_dim=128): 2,
    }
    flat = {key: value for key, value in MINIMAX_M3.items() if key != "sparse_attention_config"}
    flat |= {
        "index_head_dim": 128,
        "index_n_heads": 4,
        "layer_types": ["full_attention"] * 3 + ["minimax_m3_sparse"] * 2,
    }
    assert read("minimax_m3", flat) == read("minimax_m3", MINIMAX_M3)


def test_step_window_layers_have_heads_of_their_own() -> None:
    layers, _ = read("step3p5", STEP)
    shapes = Counter((c.num_attention_heads, c.num_key_value_heads, c.sliding_window) for c in attentions(layers))
    assert shapes == {(64, 8, None): 2, (96, 8, 512): 6}


def test_kimi_takes_turns() -> None:
    layers, _ = read("kimi_linear", KIMI_LINEAR)
    assert Counter(type(cache) for layer in layers for cache in layer.caches) == {
        RecurrentState: 20,
        LatentAttention: 7,
    }


def test_longcat_has_two_caches_a_layer_and_zamba_two_where_it_attends() -> None:
    layers, _ = read("longcat_flash", LONGCAT)
    assert Counter(type(cache) for layer in layers for cache in layer.caches) == {LatentAttention: 56}
    layers, _ = read("zamba2", ZAMBA2)
    assert Counter(type(cache) for layer in layers for cache in layer.caches) == {
        RecurrentState: 54,
        Attention: 9,
    }


def test_nemotron_nas_keeps_kv_in_49_of_80_layers() -> None:
    layers, _ = read("nemotron-nas", NEMOTRON_NAS)
    assert kept(layers) == {Attention(num_attention_heads=64, num_key_value_heads=8, head_dim=128, v_head_dim=128): 49}


def test_openelm_heads_grow_with_depth() -> None:
    layers, _ = read("openelm", OPENELM)
    assert [c.num_key_value_heads for c in attentions(layers)] == [3] * 5 + [4] * 7 + [5] * 4


def test_recurrent_gemma_attends_in_every_third_layer() -> None:
    layers, _ = read("recurrent_gemma", RECURRENT_GEMMA)
    assert [bool(list(attentions([layer]))) for layer in layers[:6]] == [False, False, True] * 2
    assert {c.sliding_window for c in attentions(layers)} == {2048}


REFUSED = (
    ("gemma4_text", GEMMA4_E2B | {"layer_types": ["sliding_attention", "odd"] * 18}, "layer_types[1]"),
    ("gemma4_text", GEMMA4_E2B | {"layer_types": [[1]] * 35}, "layer_types[0]"),
    ("deepseek_v4", DEEPSEEK_V4 | {"compress_ratios": [8] * 43}, "compress_ratios[0]"),
    ("deepseek_v4", DEEPSEEK_V4 | {"compress_ratios": None}, "compress_ratios"),
    ("deepseek_v4", DEEPSEEK_V4 | {"num_hash_layers": None}, "num_hash_layers"),
    (
        "minimax_m3",
        MINIMAX_M3 | {"sparse_attention_config": SPARSE_M3 | {"sparse_disable_index_value": [0] * 5}},
        "sparse_attention_config.sparse_disable_index_value[3]",
    ),
    ("step3p5", STEP | {"layer_types": None}, "layer_types"),
    ("kimi_linear", KIMI_LINEAR | {"linear_attn_config": None}, "linear_attn_config.kda_layers"),
    ("nemotron-nas", NEMOTRON_NAS | {"block_configs": None}, "block_configs"),
    (
        "nemotron-nas",
        NEMOTRON_NAS | {"block_configs": [{"attention": {"replace_with_linear": True}, "ffn": {}}] * 80},
        "block_configs[0].attention.replace_with_linear",
    ),
    ("openelm", OPENELM | {"num_kv_heads": None}, "num_kv_heads"),
    ("zamba2", ZAMBA2 | {"layers_block_type": ["mamba", "moe"] * 27}, "layers_block_type[1]"),
    ("recurrent_gemma", RECURRENT_GEMMA | {"block_types": None}, "block_types"),
)


@pytest.mark.parametrize(("kind", "config", "key"), REFUSED, ids=[f"{row[0]}-{row[2]}" for row in REFUSED])
def test_what_is_not_known_is_refused_by_name(kind: str, config: dict[str, Any], key: str) -> None:
    with pytest.raises(CannotTell) as caught:
        read(kind, config)
    assert caught.value.key == key


BROKEN = (
    ("gemma4_text", GEMMA4_E2B | {"num_kv_shared_layers": 35}),
    ("gemma4_text", GEMMA4_E2B | {"num_kv_shared_layers": 40}),
    ("gemma4_text", GEMMA4_E2B | {"per_layer_config": {"last": {"head_dim": 512}}}),
    ("gemma4_text", GEMMA4_E2B | {"per_layer_config": {"4": {"head_dim": -1}}}),
    ("gemma3n_text", GEMMA3N | {"intermediate_size": [[]] * 35}),
    ("gemma3n_text", GEMMA3N | {"intermediate_size": [16384]}),
    ("deepseek_v4", DEEPSEEK_V4 | {"o_groups": 7}),
    ("deepseek_v4", DEEPSEEK_V4 | {"compress_ratios": [4]}),
    ("minimax_m3", MINIMAX_M3 | {"moe_layer_freq": [0, 0, 2, 1, 1]}),
    ("minimax_m3", MINIMAX_M3 | {"moe_layer_freq": ["0"] * 5}),
    (
        "nemotron-nas",
        NEMOTRON_NAS | {"block_configs": [{"attention": {"n_heads_in_group": 7}, "ffn": {"ffn_mult": 1.0}}] * 80},
    ),
    ("openelm", OPENELM | {"ffn_multipliers": ["wide"] * 16}),
    ("zamba2", ZAMBA2 | {"num_attention_heads": 7}),
)


@pytest.mark.parametrize(("kind", "config"), BROKEN, ids=[str(i) for i in range(len(BROKEN))])
def test_what_contradicts_itself_is_told(kind: str, config: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        read(kind, config)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@given(data=st.data())
def test_no_value_of_a_key_breaks_the_reader(row: Row, data: st.DataObject) -> None:
    """Law: whatever stands at a key, the answer is a decoder or a refusal that a user can read."""
    key = data.draw(st.sampled_from(sorted(row.config)))
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(-4, 9), st.floats(), st.text(max_size=3), st.just([[]] * 99), st.just({})
    )
    try:
        read(row.kind, row.config | {key: data.draw(junk)})
    except (InputError, CannotTell) as error:
        assert str(error)  # noqa: PT017 - either outcome is right


def test_every_config_at_hand_is_read() -> None:
    configs = SHARED / "data" / "configs"
    if not configs.exists():
        pytest.skip("shared/data/configs is not here")
    read_ones = 0
    for path in sorted(configs.glob("*/config.json")):
        outer = json.loads(path.read_text())
        inner = outer.get("text_config") or outer
        kind = inner.get("model_type") or outer.get("model_type")
        kind = {"gemma4": "gemma4_text", "step3p7": "step3p5"}.get(kind, kind)
        if kind not in SPECIAL:
            continue
        c = Config(inner, defaults=CLASS_DEFAULTS.get(kind, {}), nested=inner is not outer)
        layers, _ = SPECIAL[kind](c)
        assert any(layer.caches for layer in layers), path
        read_ones += 1
    assert read_ones > 15
