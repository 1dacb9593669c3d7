"""vLLM's KV cache arithmetic against vLLM 0.32's own code, and the laws that it keeps.

The rows were answered by vLLM 0.32.0's Python, asked without a GPU for the configs below (2026-11-29): the pool's
memory was given, so no figure depends on a measurement. Rules of older versions come from their wheels, named in
`kvbudget.facts.vllm_cache`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.engines.vllm_cache import (
    CachePlan,
    CacheSettings,
    blocks_for_request,
    checked_bytes,
    fitting_requests,
    kv_cache_size_tokens,
    largest_model_len,
    max_concurrency,
    needed_bytes_by_rank,
    needed_for_one_request_bytes,
    num_gpu_blocks,
    plan_cache,
    refusal,
    reserved_blocks,
)
from kvbudget.errors import CannotTell, InputError
from kvbudget.model import Model
from kvbudget.units import GIB

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("KVBUDGET_SHARED") or ROOT.parent / "shared")
VLLM_PYTHON = os.environ.get("KVBUDGET_VLLM_PYTHON", "")

V032 = (0, 32, 0)
AMPERE, HOPPER, BLACKWELL = (8, 0), (9, 0), (10, 0)
BATCH = 8192
MOST_REFUSED = 0.02
"""Share of vLLM's own answers that may be refused with a reason; none may differ."""


# -- the configs


Config = Mapping[str, Any]


def _config(model_type: str, architecture: str, **values: object) -> Config:
    fixed = {"vocab_size": 128000, "torch_dtype": "bfloat16", "tie_word_embeddings": False}
    return MappingProxyType({"model_type": model_type, "architectures": [architecture], **fixed, **values})


def _changed(config: Config, **values: object) -> Config:
    return MappingProxyType({**config, **values})


LLAMA_8B = _config(
    "llama",
    "LlamaForCausalLM",
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    max_position_embeddings=8192,
)
LLAMA_70B = _changed(
    LLAMA_8B,
    hidden_size=8192,
    intermediate_size=28672,
    num_hidden_layers=80,
    num_attention_heads=64,
    max_position_embeddings=131072,
)
DEEPSEEK_V3 = _config(
    "deepseek_v3",
    "DeepseekV3ForCausalLM",
    hidden_size=7168,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    num_hidden_layers=61,
    num_attention_heads=128,
    num_key_value_heads=128,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=8,
    first_k_dense_replace=3,
    max_position_embeddings=163840,
)
DEEPSEEK_V32 = _changed(
    DEEPSEEK_V3,
    model_type="deepseek_v32",
    architectures=["DeepseekV32ForCausalLM"],
    index_head_dim=128,
    index_n_heads=64,
    index_topk=2048,
)
GEMMA_3_27B = _config(
    "gemma3_text",
    "Gemma3ForCausalLM",
    hidden_size=5376,
    intermediate_size=21504,
    num_hidden_layers=62,
    num_attention_heads=32,
    num_key_value_heads=16,
    head_dim=128,
    sliding_window=1024,
    sliding_window_pattern=6,
    max_position_embeddings=131072,
)
GPT_OSS_20B = _config(
    "gpt_oss",
    "GptOssForCausalLM",
    hidden_size=2880,
    intermediate_size=2880,
    num_hidden_layers=24,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=64,
    num_local_experts=32,
    num_experts_per_tok=4,
    sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 12,
    max_position_embeddings=131072,
)
LLAMA_4_SCOUT = _config(
    "llama4_text",
    "Llama4ForCausalLM",
    hidden_size=5120,
    intermediate_size=8192,
    intermediate_size_mlp=16384,
    num_hidden_layers=48,
    num_attention_heads=40,
    num_key_value_heads=8,
    head_dim=128,
    num_local_experts=16,
    num_experts_per_tok=1,
    interleave_moe_layer_step=1,
    attention_chunk_size=8192,
    no_rope_layers=[1, 1, 1, 0] * 12,
    max_position_embeddings=10485760,
)
QWEN3_NEXT = _config(
    "qwen3_next",
    "Qwen3NextForCausalLM",
    hidden_size=2048,
    intermediate_size=5120,
    moe_intermediate_size=512,
    shared_expert_intermediate_size=512,
    num_hidden_layers=48,
    num_attention_heads=16,
    num_key_value_heads=2,
    head_dim=256,
    linear_conv_kernel_dim=4,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    full_attention_interval=4,
    num_experts=512,
    num_experts_per_tok=10,
    max_position_embeddings=262144,
)
NEMOTRON_H = _config(
    "nemotron_h",
    "NemotronHForCausalLM",
    hidden_size=4096,
    intermediate_size=21504,
    num_hidden_layers=52,
    hybrid_override_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    num_attention_heads=32,
    num_key_value_heads=8,
    head_dim=128,
    mamba_num_heads=128,
    mamba_head_dim=64,
    n_groups=8,
    ssm_state_size=128,
    conv_kernel=4,
    expand=2,
    max_position_embeddings=8192,
)
JAMBA = _config(
    "jamba",
    "JambaForCausalLM",
    hidden_size=4096,
    intermediate_size=14336,
    num_hidden_layers=32,
    num_attention_heads=32,
    num_key_value_heads=8,
    attn_layer_offset=4,
    attn_layer_period=8,
    expert_layer_offset=1,
    expert_layer_period=2,
    num_experts=16,
    num_experts_per_tok=2,
    mamba_d_state=16,
    mamba_d_conv=4,
    mamba_expand=2,
    mamba_dt_rank=256,
    max_position_embeddings=262144,
)
MISTRAL_7B = _changed(
    LLAMA_8B,
    model_type="mistral",
    architectures=["MistralForCausalLM"],
    sliding_window=4096,
    max_position_embeddings=32768,
)
WHISPER = MappingProxyType(
    {
        "model_type": "whisper",
        "architectures": ["WhisperForConditionalGeneration"],
        "torch_dtype": "float16",
        "vocab_size": 51866,
        "d_model": 1280,
        "encoder_layers": 32,
        "decoder_layers": 32,
        "encoder_attention_heads": 20,
        "decoder_attention_heads": 20,
        "encoder_ffn_dim": 5120,
        "decoder_ffn_dim": 5120,
        "num_mel_bins": 128,
        "max_source_positions": 1500,
        "max_target_positions": 448,
        "is_encoder_decoder": True,
    }
)
DEEPSEEK_V4_FLASH = _config(
    "deepseek_v4",
    "DeepseekV4ForCausalLM",
    hidden_size=4096,
    moe_intermediate_size=2048,
    num_hidden_layers=43,
    num_attention_heads=64,
    num_key_value_heads=1,
    head_dim=512,
    qk_rope_head_dim=64,
    q_lora_rank=1024,
    o_lora_rank=1024,
    o_groups=8,
    index_head_dim=128,
    index_n_heads=64,
    index_topk=512,
    sliding_window=128,
    compress_ratios=[0, 0, *[4, 128] * 20, 4, 0],
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=6,
    num_hash_layers=3,
    hc_mult=4,
    max_position_embeddings=1048576,
)
CONFIGS = MappingProxyType(
    {
        "llama-8b": LLAMA_8B,
        "llama-70b": LLAMA_70B,
        "deepseek-v3": DEEPSEEK_V3,
        "deepseek-v3.2": DEEPSEEK_V32,
        "gemma-3-27b": GEMMA_3_27B,
        "gpt-oss-20b": GPT_OSS_20B,
        "llama-4-scout": LLAMA_4_SCOUT,
        "qwen3-next": QWEN3_NEXT,
        "nemotron-h": NEMOTRON_H,
        "jamba": JAMBA,
        "mistral-7b": MISTRAL_7B,
        "whisper": WHISPER,
        "deepseek-v4-flash": DEEPSEEK_V4_FLASH,
    }
)


@cache
def model_of(name: str) -> Model:
    """Return the model of a config; the same one every time, as in a process that budgets it often."""
    return Model.from_config(dict(CONFIGS[name]), name=name)


def plan_of(name: str, **choices: Any) -> CachePlan:  # noqa: ANN401 - any setting
    """Return the plan of a model at its own longest context, unless told otherwise."""
    model = model_of(name)
    defaults = {
        "version": V032,
        "dtype": model.dtype,
        "max_model_len": model.max_position_embeddings,
        "max_num_batched_tokens": BATCH,
    }
    return plan_cache(model, CacheSettings(**(defaults | choices)))


# -- rows of vLLM 0.32's own answers


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What vLLM 0.32 answered for a config, the settings and 50 GiB of cache memory unless given."""

    model: str
    blocks: int
    bytes_per_block: int
    sizes: Mapping[int, int]
    """Block size -> groups that have it."""
    tokens: int
    available: int = 50 * GIB
    choices: Mapping[str, object] = field(default_factory=dict)


Choices = dict[str, Any]

TP2: Choices = {"tensor_parallel_size": 2}
TP4: Choices = {"tensor_parallel_size": 4}
TP8: Choices = {"tensor_parallel_size": 8}
TP16: Choices = {"tensor_parallel_size": 16}
FP8: Choices = {"kv_cache_dtype": "fp8"}
ON_BLACKWELL: Choices = {"compute_capability": BLACKWELL, "max_num_batched_tokens": 16384}
ON_AMPERE: Choices = {"compute_capability": AMPERE, "max_num_batched_tokens": 2048}
UNCACHED: Choices = {"enable_prefix_caching": False}
ONE_KIND: Choices = {"disable_hybrid_kv_cache_manager": True}

ROWS = (
    # keys and values of heads
    Row(model="llama-8b", blocks=25_600, bytes_per_block=2_097_152, sizes={16: 1}, tokens=409_600),
    Row(model="llama-8b", blocks=51_200, bytes_per_block=1_048_576, sizes={16: 1}, tokens=819_200, choices=FP8),
    Row(
        model="llama-8b",
        blocks=3_200,
        bytes_per_block=16_777_216,
        sizes={128: 1},
        tokens=409_600,
        choices={"block_size": 128},
    ),
    Row(
        model="llama-8b",
        blocks=96_376,
        bytes_per_block=557_056,
        sizes={16: 1},
        tokens=1_542_016,
        choices={"kv_cache_dtype": "int4_per_token_head"},
    ),
    Row(
        model="llama-8b",
        blocks=49_648,
        bytes_per_block=1_081_344,
        sizes={16: 1},
        tokens=794_368,
        choices={"kv_cache_dtype": "int8_per_token_head"},
    ),
    Row(
        model="llama-8b",
        blocks=91_022,
        bytes_per_block=589_824,
        sizes={16: 1},
        tokens=1_456_352,
        choices={"kv_cache_dtype": "nvfp4"},
    ),
    Row(  # the first and last two layers stay in bfloat16, and blocks grow until the pages are comparable
        model="llama-8b",
        blocks=27_828,
        bytes_per_block=1_929_216,
        sizes={32: 1},
        tokens=890_496,
        choices={"kv_cache_dtype": "turboquant_k8v4"},
    ),
    # parallel layouts: 27 + 27 + 26 layers; 16 ranks for 8 KV heads
    Row(
        model="llama-70b",
        blocks=24_272,
        bytes_per_block=884_736,
        sizes={16: 1},
        tokens=388_352,
        available=20 * GIB,
        choices={**TP2, "pipeline_parallel_size": 3},
    ),
    Row(
        model="llama-70b",
        blocks=32_768,
        bytes_per_block=655_360,
        sizes={16: 1},
        tokens=524_288,
        available=20 * GIB,
        choices=TP16,
    ),
    Row(
        model="llama-70b",
        blocks=32_768,
        bytes_per_block=655_360,
        sizes={16: 1},
        tokens=1_048_576,
        available=20 * GIB,
        choices={**TP16, "decode_context_parallel_size": 2},
    ),
    # latents: whole on every rank; blocks of the card's kernels
    Row(model="deepseek-v3", blocks=47_749, bytes_per_block=1_124_352, sizes={16: 1}, tokens=763_984, choices=TP8),
    Row(
        model="deepseek-v3",
        blocks=23_874,
        bytes_per_block=2_248_704,
        sizes={64: 1},
        tokens=1_527_936,
        choices=TP8 | FP8,
    ),
    Row(
        model="deepseek-v3",
        blocks=47_749,
        bytes_per_block=1_124_352,
        sizes={32: 1},
        tokens=1_527_968,
        choices=TP8 | FP8 | ON_BLACKWELL,
    ),
    Row(
        model="deepseek-v3",
        blocks=47_749,
        bytes_per_block=1_124_352,
        sizes={16: 1},
        tokens=6_111_872,
        choices=TP8 | {"decode_context_parallel_size": 8},
    ),
    Row(
        model="deepseek-v3",
        blocks=19_099,
        bytes_per_block=1_124_352,
        sizes={16: 1},
        tokens=305_584,
        available=20 * GIB,
        choices=TP16 | ON_AMPERE,
    ),
    # with an indexer; rows of 656 bytes on Hopper, of 576 on Blackwell
    Row(model="deepseek-v3.2", blocks=10_710, bytes_per_block=5_012_736, sizes={64: 1}, tokens=685_440, choices=TP8),
    Row(
        model="deepseek-v3.2",
        blocks=17_451,
        bytes_per_block=3_076_352,
        sizes={64: 1},
        tokens=1_116_864,
        choices=TP8 | FP8,
    ),
    Row(
        model="deepseek-v3.2",
        blocks=19_423,
        bytes_per_block=2_764_032,
        sizes={64: 1},
        tokens=1_243_072,
        choices=TP8 | FP8 | ON_BLACKWELL,
    ),
    # windows and chunks
    Row(model="gemma-3-27b", blocks=40_960, bytes_per_block=1_310_720, sizes={16: 7}, tokens=364_573),
    Row(
        model="gemma-3-27b",
        blocks=40_960,
        bytes_per_block=1_310_720,
        sizes={16: 7},
        tokens=530_609,
        choices={"max_num_batched_tokens": 2048},
    ),
    Row(
        model="gemma-3-27b",
        blocks=163_840,
        bytes_per_block=327_680,
        sizes={16: 7},
        tokens=1_206_587,
        choices=TP2 | {"pipeline_parallel_size": 2},
    ),
    Row(model="gpt-oss-20b", blocks=136_533, bytes_per_block=393_216, sizes={16: 2}, tokens=1_939_908),
    Row(
        model="gpt-oss-20b",
        blocks=136_533,
        bytes_per_block=393_216,
        sizes={16: 2},
        tokens=2_053_902,
        choices={"async_scheduling": False},
    ),
    Row(
        model="gpt-oss-20b",
        blocks=68_266,
        bytes_per_block=786_432,
        sizes={16: 1},
        tokens=1_092_256,
        choices=ONE_KIND,
    ),
    Row(
        model="llama-4-scout",
        blocks=68_266,
        bytes_per_block=786_432,
        sizes={16: 4},
        tokens=699_043,
        choices={"max_model_len": 131_072},
    ),
    Row(model="mistral-7b", blocks=25_600, bytes_per_block=2_097_152, sizes={16: 1}, tokens=654_848),
    # states beside attention, whose block grows to cover one
    Row(model="qwen3-next", blocks=4_015, bytes_per_block=13_369_344, sizes={544: 4}, tokens=2_156_779),
    Row(
        model="qwen3-next",
        blocks=4_015,
        bytes_per_block=13_369_344,
        sizes={262_144: 3, 544: 1},
        tokens=2_170_119,
        choices=UNCACHED,
    ),
    Row(
        model="qwen3-next",
        blocks=16_062,
        bytes_per_block=3_342_336,
        sizes={272: 4},
        tokens=4_340_780,
        choices=TP4,
    ),
    Row(model="nemotron-h", blocks=3_150, bytes_per_block=17_039_360, sizes={1040: 7}, tokens=992_492),
    Row(model="jamba", blocks=40_960, bytes_per_block=1_310_720, sizes={80: 8}, tokens=3_262_661),
    Row(model="whisper", blocks=20_480, bytes_per_block=2_621_440, sizes={16: 2}, tokens=16_990),
    # compressed latents, whose pages of different sizes stand side by side
    Row(
        model="deepseek-v4-flash",
        blocks=53_567,
        bytes_per_block=1_002_240,
        sizes={64: 2, 256: 1, 4: 1, 8: 1},
        tokens=130_446,
        choices={"max_model_len": 8192},
    ),
)


def _name(row: Row) -> str:
    return " ".join([row.model, *map(str, row.choices.values())])


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_answers_as_vllm_does(row: Row) -> None:
    plan = plan_of(row.model, **row.choices)
    blocks = num_gpu_blocks(plan, row.available)
    assert refusal(plan, row.available) is None
    assert (blocks, plan.bytes_per_block_by_rank[0]) == (row.blocks, row.bytes_per_block)
    assert Counter(group.block_size for group in plan.groups) == Counter(row.sizes)
    assert kv_cache_size_tokens(plan, blocks) == row.tokens
    assert row.tokens == int(max_concurrency(plan, blocks) * plan.settings.max_model_len)
    assert plan.exact


def test_pipeline_stages_differ_and_the_poorest_decides() -> None:
    plan = plan_of("llama-70b", tensor_parallel_size=2, pipeline_parallel_size=3)
    assert plan.bytes_per_block_by_rank == (884_736, 884_736, 851_968)
    assert plan.groups[0].layers_by_rank == (27, 27, 26)
    assert num_gpu_blocks(plan, (20 * GIB, 20 * GIB, 10 * GIB)) == 10 * GIB // 851_968
    with pytest.raises(InputError, match="3 pipeline stages"):
        num_gpu_blocks(plan, (20 * GIB,))


HELD = (
    ("gemma-3-27b", 5_000, 300, 2048, None, 703, 722),
    ("gpt-oss-20b", 3_000, 200, 2048, None, 197, 209),
    ("qwen3-next", 3_000, 1_200, 2048, None, 9, 11),
    ("nemotron-h", 3_000, 1_200, 2048, None, 9, 11),
    ("nemotron-h", 3_000, 1_200, 2048, False, 9, 11),
    ("jamba", 1_000, 500, 2048, None, 20, 26),
    ("mistral-7b", 9_000, 100, 2048, None, 257, 257),
)
"""Model, prompt, output, batch, prefix caching; blocks in use at the first and the last step of the output, as counted
by vLLM 0.32's scheduler and block manager for one request alone."""


@pytest.mark.parametrize(("name", "prompt", "output", "batch", "caching", "first", "last"), HELD)
def test_a_request_holds_the_blocks_that_vllm_counts(
    name: str, prompt: int, output: int, batch: int, caching: bool | None, first: int, last: int
) -> None:
    plan = plan_of(name, max_num_batched_tokens=batch, enable_prefix_caching=caching)
    assert blocks_for_request(plan, prompt + 1) == first
    assert blocks_for_request(plan, prompt + output) == last


# -- the check at start-up


MORE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."
TOO_LONG = (
    "To serve at least one request with the model's max seq len ({length}), ({need} GiB KV cache is needed, which is "
    "larger than the available KV cache memory ({have} GiB). Based on the available memory, the estimated maximum "
    "model length is {estimate}. Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU "
    "backend) or decreasing `max_model_len` when initializing the engine. " + MORE
)


@pytest.mark.parametrize(
    ("name", "available", "choices", "need", "have", "estimate"),
    [
        ("llama-8b", 966_367_641, {}, "1.0", "0.9", 7_344),
        ("llama-8b", GIB, {}, "1.0", "1.0", 8_176),  # one block is left out
        ("gemma-3-27b", 50 * GIB, ONE_KIND, "62.0", "49.99", 105_680),
        ("llama-4-scout", 50 * GIB, {}, "483.38", "50.0", 1_018_512),
    ],
)
def test_refuses_in_vllms_words(
    name: str, available: int, choices: Mapping[str, Any], need: str, have: str, estimate: int
) -> None:
    plan = plan_of(name, **choices)
    length = plan.settings.max_model_len
    assert refusal(plan, available) == TOO_LONG.format(length=length, need=need, have=have, estimate=estimate)
    assert largest_model_len(plan, available) == estimate


def test_refuses_without_memory_in_vllms_words() -> None:
    assert refusal(plan_of("llama-8b"), 0) == (
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the "
        "engine (this flag also controls CPU memory reservation on the CPU backend, despite its name). " + MORE
    )


def test_one_more_block_than_a_request_needs_is_enough() -> None:
    plan = plan_of("llama-8b")
    assert needed_for_one_request_bytes(plan) == GIB
    assert refusal(plan, GIB + plan.bytes_per_block - 1) is not None
    assert refusal(plan, GIB + plan.bytes_per_block) is None
    assert num_gpu_blocks(plan, GIB + plan.bytes_per_block) == 513
    # vLLM 0.32 says 8,208 tokens here, 16 more than a request can ever have
    assert kv_cache_size_tokens(plan, 513) == 8_208
    assert fitting_requests(plan, 513, 8_192) == 1


def test_the_fitted_length_is_what_vllm_takes() -> None:
    plan = plan_of("llama-8b", max_model_len=7_344)
    assert (num_gpu_blocks(plan, 966_367_641), kv_cache_size_tokens(plan, 460)) == (460, 7_359)


def test_an_override_replaces_the_blocks_and_the_checked_memory() -> None:
    plan = plan_of("llama-8b")
    assert num_gpu_blocks(plan, 50 * GIB, override=1000) == 1000
    assert kv_cache_size_tokens(plan, 1000) == 16_000
    assert refusal(plan, 50 * GIB, override=100) is not None
    assert refusal(plan, 0, override=1000) is None
    old = plan_of("llama-8b", version=(0, 20, 0))
    assert refusal(old, 50 * GIB, override=100) is None, "before 0.20.2 only the pool followed the override"


# -- rules of versions


@pytest.mark.parametrize(
    ("version", "groups", "tokens"),
    [((0, 9, 0), 1, 40_960 * 16), ((0, 9, 2), 7, 40_960 // 7 * 16), ((0, 20, 0), 7, 40_960 // 7 * 16)],
)
def test_tokens_were_counted_otherwise_before(version: tuple[int, int, int], groups: int, tokens: int) -> None:
    plan = plan_of("gemma-3-27b", version=version)
    assert len(plan.groups) == groups
    assert kv_cache_size_tokens(plan, 40_960) == tokens


def test_windows_were_cached_in_full_before_0_9_2() -> None:
    assert [group.kind for group in plan_of("gpt-oss-20b", version=(0, 9, 0)).groups] == ["full"]
    assert sorted(group.kind for group in plan_of("gpt-oss-20b", version=(0, 10, 0)).groups) == ["full", "sliding"]


@pytest.mark.parametrize(
    ("version", "batches"),
    [((0, 25, 1), 1), ((0, 26, 0), 2), ((0, 32, 0), 2)],
)
def test_windows_reserve_the_batches_in_flight(version: tuple[int, int, int], batches: int) -> None:
    plan = plan_of("gpt-oss-20b", version=version, async_scheduling=True)
    assert plan.in_flight_tokens == batches * BATCH
    sliding = next(group for group in plan.groups if group.kind == "sliding")
    assert sliding.blocks_per_request == -(-(127 + batches * BATCH) // 16) + 1


def test_chunks_were_cached_in_full_in_between() -> None:
    kinds = {
        version: {group.kind for group in plan_of("llama-4-scout", version=version, max_model_len=131_072).groups}
        for version in ((0, 8, 5), (0, 10, 0), (0, 10, 2), (0, 14, 1), V032)
    }
    both = {"full", "chunked"}
    assert kinds == {(0, 8, 5): {"full"}, (0, 10, 0): both, (0, 10, 2): {"full"}, (0, 14, 1): both, V032: both}


@pytest.mark.parametrize(("version", "caching"), [((0, 25, 1), False), ((0, 26, 0), True), (V032, True)])
def test_prefixes_of_hybrids_are_cached_by_default_since_0_26(version: tuple[int, int, int], caching: bool) -> None:
    assert plan_of("qwen3-next", version=version).enable_prefix_caching is caching


def test_the_check_leaves_a_block_out_since_0_29() -> None:
    for version, left_out in (((0, 28, 0), 0), ((0, 29, 0), 1)):
        plan = plan_of("llama-8b", version=version)
        assert checked_bytes(plan, GIB) == (GIB - left_out * plan.bytes_per_block,)


def test_the_refusal_reads_as_in_its_version() -> None:
    texts = {
        version: refusal(plan_of("llama-8b", version=version), GIB // 2) for version in ((0, 9, 0), (0, 12, 0), V032)
    }
    assert "models's max seq len (8192), (1.00 GiB" in str(texts[0, 9, 0])
    assert "estimated maximum model length is 4096." in str(texts[0, 12, 0])
    assert "model's max seq len (8192), (1.0 GiB" in str(texts[V032])


@pytest.mark.parametrize(
    ("name", "choices", "error", "words"),
    [
        ("llama-8b", {"version": (0, 19, 0), "kv_cache_dtype": "nvfp4"}, InputError, "since 0.20.0"),
        ("llama-8b", {"kv_cache_dtype": "fp7"}, InputError, "not known"),
        ("llama-8b", {"tensor_parallel_size": 3}, InputError, "neither divides nor copies"),
        ("llama-8b", {"tensor_parallel_size": 4, "decode_context_parallel_size": 3}, InputError, "does not divide"),
        ("llama-8b", {"tensor_parallel_size": 4, "decode_context_parallel_size": 2}, InputError, "copies"),
        ("llama-8b", {"block_size": 24}, InputError, "24"),
        ("llama-8b", {"kv_cache_dtype": "fp8", "compute_capability": (7, 5)}, InputError, "8.9"),
        ("gpt-oss-20b", {"tensor_parallel_size": 16, "decode_context_parallel_size": 2}, InputError, "windows"),
        ("deepseek-v3.2", {"compute_capability": AMPERE}, InputError, "no backend for sparse latent attention"),
        ("qwen3-next", {"disable_hybrid_kv_cache_manager": True}, InputError, "cannot be made one"),
        ("qwen3-next", {"version": (0, 10, 0)}, CannotTell, "0.10.2"),
        ("deepseek-v4-flash", {"compute_capability": AMPERE}, InputError, "compressed latents"),
        ("deepseek-v4-flash", {"kv_cache_dtype": "bfloat16"}, InputError, "compressed latents"),
        ("deepseek-v4-flash", {"version": (0, 28, 0)}, CannotTell, "0.29.0"),
        ("deepseek-v4-flash", {"block_size": 512}, CannotTell, "256"),
        ("deepseek-v4-flash", {"disable_hybrid_kv_cache_manager": True}, InputError, "compressed caches"),
    ],
)
def test_says_why_it_refuses(name: str, choices: Mapping[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        plan_of(name, **choices)


def test_an_unknown_card_is_planned_but_not_called_exact() -> None:
    plan = plan_of("llama-8b", compute_capability=None)
    assert (plan.block_size, plan.exact) == (16, False)
    assert any("--block-size" in note for note in plan.notes)


def test_a_model_that_ignores_the_cache_type_says_so() -> None:
    falcon = Model.from_config(
        {
            "model_type": "falcon",
            "architectures": ["FalconForCausalLM"],
            "hidden_size": 4544,
            "num_hidden_layers": 32,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "multi_query": True,
            "torch_dtype": "bfloat16",
            "max_position_embeddings": 2048,
        },
        name="falcon",
    )
    choices = CacheSettings(version=V032, kv_cache_dtype="fp8", max_model_len=2048, max_num_batched_tokens=BATCH)
    plan = plan_cache(falcon, choices)
    assert plan.bytes_per_block == 131_072
    assert any("ignores --kv-cache-dtype fp8" in note for note in plan.notes)


def test_a_draft_adds_its_layers_to_the_last_stage() -> None:
    model = model_of("llama-70b")
    draft = model.layers[:2]
    plan = plan_of("llama-70b", tensor_parallel_size=8, pipeline_parallel_size=2, draft_layers=draft)
    assert plan.groups[0].layers_by_rank == (40, 42)


# -- laws

NAMES = tuple(name for name in CONFIGS if name not in ("deepseek-v4-flash", "whisper"))
lengths = st.integers(1, 200_000)
memory = st.integers(0, 200 * GIB)
names = st.sampled_from(NAMES)
versions = st.sampled_from([V032, (0, 29, 0), (0, 26, 0), (0, 19, 0), (0, 15, 1), (0, 11, 0)])


@given(name=names, version=versions, available=memory, more=memory, length=lengths)
def test_more_memory_never_holds_less(
    name: str, version: tuple[int, int, int], available: int, more: int, length: int
) -> None:
    plan = plan_of(name, version=version, max_model_len=length, enable_prefix_caching=False)
    few, many = num_gpu_blocks(plan, available), num_gpu_blocks(plan, available + more)
    assert few <= many
    assert max_concurrency(plan, few) <= max_concurrency(plan, many)
    assert kv_cache_size_tokens(plan, few) <= kv_cache_size_tokens(plan, many)
    assert fitting_requests(plan, few, length) <= fitting_requests(plan, many, length)
    assert largest_model_len(plan, available) <= largest_model_len(plan, available + more)


@given(name=names, length=lengths, more=lengths)
def test_a_longer_request_never_needs_less(name: str, length: int, more: int) -> None:
    plan = plan_of(name)
    assert reserved_blocks(plan, length) <= reserved_blocks(plan, length + more)
    assert blocks_for_request(plan, length) <= blocks_for_request(plan, length + more)
    assert needed_for_one_request_bytes(plan, length) <= needed_for_one_request_bytes(plan, length + more)


@given(name=names, length=lengths, batch=st.integers(1, 65_536))
def test_what_is_reserved_covers_what_is_held(name: str, length: int, batch: int) -> None:
    plan = plan_of(name, max_num_batched_tokens=batch)
    assert blocks_for_request(plan, length) <= reserved_blocks(plan, length)


@settings(deadline=None)
@given(name=names, version=versions, available=memory, limit=lengths, stages=st.sampled_from([1, 2, 3]))
def test_the_longest_length_is_the_boundary_of_the_check(
    name: str, version: tuple[int, int, int], available: int, limit: int, stages: int
) -> None:
    plan = plan_of(
        name, version=version, max_model_len=limit, pipeline_parallel_size=stages, enable_prefix_caching=False
    )
    longest = largest_model_len(plan, available)
    assert 0 <= longest <= limit
    rooms = checked_bytes(plan, available)

    def fits(length: int) -> bool:
        return all(need <= room for need, room in zip(needed_bytes_by_rank(plan, length), rooms, strict=True))

    assert longest == 0 or fits(longest)
    assert longest == limit or not fits(longest + 1)
    assert (refusal(plan, available) is None) == (longest == limit)


@given(kv_heads=st.sampled_from([1, 2, 4, 8]), copies=st.integers(0, 3), version=versions)
def test_kv_heads_are_copied_when_there_are_more_ranks(
    kv_heads: int, copies: int, version: tuple[int, int, int]
) -> None:
    config = dict(LLAMA_8B) | {"num_key_value_heads": kv_heads}
    model = Model.from_config(config, name="copied")
    sizes = [
        plan_cache(
            model,
            CacheSettings(version=version, tensor_parallel_size=tp, max_model_len=4096, max_num_batched_tokens=BATCH),
        ).bytes_per_block
        for tp in (1, kv_heads, min(32, kv_heads << copies))
    ]
    assert sizes[0] == kv_heads * sizes[1]
    assert sizes[1] == sizes[2], "a rank has at least one head"


@given(name=names, ranks=st.sampled_from([1, 2, 4, 8]))
def test_latents_are_whole_on_every_rank(name: str, ranks: int) -> None:
    one = plan_of(name, enable_prefix_caching=False)
    try:
        many = plan_of(name, tensor_parallel_size=ranks, enable_prefix_caching=False)
    except InputError:
        return  # heads that do not divide
    if name.startswith("deepseek"):
        assert many.bytes_per_block == one.bytes_per_block
    else:
        assert many.bytes_per_block <= one.bytes_per_block


@given(
    name=names,
    stages=st.integers(1, 8),
    available=st.lists(memory, min_size=8, max_size=8),
)
def test_the_pool_is_the_poorest_stages(name: str, stages: int, available: list[int]) -> None:
    plan = plan_of(name, pipeline_parallel_size=stages)
    rooms = available[:stages]
    each = [room // size for room, size in zip(rooms, plan.bytes_per_block_by_rank, strict=True) if size]
    assert num_gpu_blocks(plan, rooms) == min(each)
    layers = [sum(group.layers_by_rank[rank] for group in plan.groups) for rank in range(stages)]
    assert sum(layers) == sum(group.layers for group in plan.groups)


@given(name=names, version=versions, capability=st.sampled_from([AMPERE, (8, 9), HOPPER, BLACKWELL, (12, 0), None]))
def test_every_layer_is_in_one_group_and_its_page_has_room(
    name: str, version: tuple[int, int, int], capability: tuple[int, int] | None
) -> None:
    try:
        plan = plan_of(name, version=version, compute_capability=capability)
    except (InputError, CannotTell):
        return
    caches = sum(len(layer.caches) for layer in model_of(name).layers)
    assert sum(group.layers for group in plan.groups) == caches
    assert all(max(group.bytes_by_rank) <= plan.bytes_per_block for group in plan.groups)
    assert plan.block_size == min(group.block_size for group in plan.groups)


def test_every_answer_is_an_answer_or_a_reason() -> None:
    """No combination of choices ends in anything but a plan or one sentence that says what is wrong."""
    choices = product(
        ((0, 8, 5), (0, 11, 0), (0, 25, 1), V032),
        ((7, 5), AMPERE, BLACKWELL, None),
        ("auto", "fp8", "nvfp4", "turboquant_4bit_nc"),
        ((1, 1, 1), (2, 3, 1), (8, 1, 2)),
        (None, True),
    )
    for version, capability, kv_cache_dtype, (tp, pp, dcp), caching in choices:
        for name in CONFIGS:
            try:
                plan = plan_of(
                    name,
                    version=version,
                    compute_capability=capability,
                    kv_cache_dtype=kv_cache_dtype,
                    tensor_parallel_size=tp,
                    pipeline_parallel_size=pp,
                    decode_context_parallel_size=dcp,
                    enable_prefix_caching=caching,
                    num_speculative_tokens=2,
                    max_model_len=4096,
                )
            except (InputError, CannotTell) as error:
                sentence = str(error)
            else:
                sentence = "" if num_gpu_blocks(plan, GIB) > 0 else "no block"
            assert sentence == "" or sentence.endswith(".")


# -- the whole sweep, and vLLM itself


@cache
def bench() -> ModuleType:
    """Return the comparison that `bench/vllm_oracle.py` makes."""
    spec = importlib.util.spec_from_file_location("vllm_oracle", ROOT / "bench" / "vllm_oracle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(
    not (SHARED / "data" / "vllm_oracle.jsonl.gz").exists(), reason="vLLM's answers are not here (KVBUDGET_SHARED)"
)
def test_answers_all_that_vllm_answered() -> None:
    outcomes = [bench().compare(row) for row in bench().rows(SHARED / "data")]
    assert len(outcomes) > 400
    assert [outcome for outcome in outcomes if outcome.different] == []
    refused = [outcome for outcome in outcomes if outcome.refused]
    assert len(refused) <= MOST_REFUSED * len(outcomes), refused


LIVE_GPU = "H100-80"
LIVE = (
    ("llama-8b", "--tp 2 --block-size 64"),
    ("llama-8b", "--kv-cache-dtype fp8 --max-model-len 5000"),
    ("llama-70b", "--tp 4 --pp 3 --kv-memory 9GiB"),
    ("deepseek-v3", "--tp 4 --max-model-len 30000"),
    ("gpt-oss-20b", "--tp 4 --max-num-batched-tokens 4096"),
    ("gemma-3-27b", "--tp 4 --kv-cache-dtype fp8"),
    ("qwen3-next", "--tp 2 --max-model-len 10000"),
    ("jamba", "--tp 4 --kv-cache-dtype fp8"),
)


@pytest.mark.skipif(not VLLM_PYTHON, reason="KVBUDGET_VLLM_PYTHON names no python that has vLLM")
@pytest.mark.skipif(not (SHARED / "tools" / "vllm_oracle").exists(), reason="the oracle is not here (KVBUDGET_SHARED)")
def test_answers_as_the_vllm_that_is_here(tmp_path: Path) -> None:
    jobs = []
    for number, (name, flags) in enumerate(LIVE):
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(dict(CONFIGS[name])))
        memory_flag = "" if "--kv-memory" in flags else "--kv-memory 20GiB"
        jobs.append(f"--config {folder} --json {folder / 'answer.json'} {memory_flag} {flags}")
    tool = SHARED / "tools" / "vllm_oracle" / "oracle_kv_batch.py"
    subprocess.run(
        [VLLM_PYTHON, str(tool), "--gpu", LIVE_GPU],
        input="\n".join(jobs) + "\n",
        text=True,
        check=True,
        capture_output=True,
        cwd=tmp_path,
        env=os.environ | {"VLLM_CACHE_ROOT": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    for number, (name, flags) in enumerate(LIVE):
        folder = tmp_path / f"{number}"
        answer = json.loads((folder / "answer.json").read_text())
        given_flags = dict(zip(shlex.split(flags)[::2], shlex.split(flags)[1::2], strict=True))
        asked = (
            bench()
            .settings_of(answer)
            ._replace(
                kv_cache_dtype=given_flags.get("--kv-cache-dtype", "auto"),
                block_size=int(given_flags["--block-size"]) if "--block-size" in given_flags else None,
            )
        )
        row = bench().Row(
            name=f"{name} {flags}",
            folder=folder,
            settings=asked,
            available=answer["available_kv_bytes"],
            answer=answer,
        )
        outcome = bench().compare(row)
        assert (outcome.name, outcome.refused, outcome.different) == (row.name, "", ())
