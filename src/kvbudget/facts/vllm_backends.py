"""vLLM's attention backends: which layers each serves, in which blocks its kernels read the cache, and who is preferred.

Source: vLLM 0.32.0, v1/attention/backends/ (supports_*, get_supported_kernel_block_sizes) and platforms/cuda.py, and the
differences in the wheels since 0.8.5, read 2026-11-29. CUDA builds only.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvbudget.facts.vllm import Version

Capability = tuple[int, int]
Range = tuple[Capability, Capability]

ALL: Range = ((7, 0), (99, 9))
AMPERE: Range = ((8, 0), (99, 9))
HOPPER: Range = ((9, 0), (9, 9))
BLACKWELL: Range = ((10, 0), (10, 9))
WORKSTATION: Range = ((12, 0), (12, 9))

OWN = frozenset({"auto", "float16", "bfloat16"})
FP8 = OWN | {"fp8", "fp8_e4m3"}
E5M2 = FP8 | {"fp8_e5m2"}
PER_HEAD = frozenset({"int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"})
TURBO = frozenset({"turboquant_k8v4", "turboquant_4bit_nc", "turboquant_k3v4_nc", "turboquant_3bit_nc"})

HALF = frozenset({"float16", "bfloat16"})
ANY = HALF | {"float32"}
BRAIN = frozenset({"bfloat16"})

EVERYWHERE = (7, 8, 9, 10, 11, 12)
LATENT_HEADS = (320, 512, 576)
SPARSE_HEADS = (512, 576)


class Backend(NamedTuple):
    """An attention backend.

    Attributes:
        name: vLLM's name.
        blocks: Block sizes of its kernels; a list of one stands for all its multiples if `multiple`.
        multiple: See `blocks`.
        kv: The KV cache types that it reads.
        on: First and last compute capability.
        heads: Head sizes, () for any.
        dtypes: The model's data types that it computes in.
        sinks: Compute capabilities (major) on which it supports attention sinks.
        window: It supports sliding windows.
        images: It supports attention in both directions inside images.
        contexts: It supports decode context parallelism.
        flash: It is FlashAttention, whose version depends on the card and the layer.
    """

    name: str
    blocks: tuple[int, ...]
    multiple: bool
    kv: frozenset[str]
    on: Range = ALL
    heads: tuple[int, ...] = ()
    dtypes: frozenset[str] = HALF
    sinks: tuple[int, ...] = ()
    window: bool = True
    images: bool = False
    contexts: bool = False
    flash: bool = False


SOFTMAX: Mapping[str, Backend] = MappingProxyType(
    {
        row.name: row
        for row in (
            Backend("FLASH_ATTN", (16,), True, FP8, AMPERE, sinks=(9, 10), images=True, contexts=True, flash=True),
            Backend(
                "FLASHINFER",
                (16, 32, 64),
                False,
                E5M2 | {"nvfp4", "nvfp4_4over6"},
                ((8, 0), (12, 1)),
                (64, 128, 256, 512),
                sinks=(9, 10, 12),
                contexts=True,
            ),
            Backend("TRITON_ATTN", (16,), True, E5M2 | PER_HEAD, dtypes=ANY, sinks=EVERYWHERE, images=True),
            Backend("FLEX_ATTENTION", (16,), True, OWN, dtypes=ANY, images=True),
            Backend("TURBOQUANT", (16, 32, 64, 128), False, TURBO, window=False),
            # Two in one: Triton for images, the other for text.
            Backend("TRITON_FLASH_ATTN", (16,), True, FP8, HOPPER, (256, 512), sinks=(9,), images=True, flash=True),
            Backend("TRITON_FLASHINFER", (64,), False, E5M2, BLACKWELL, (256, 512), sinks=(10,), images=True),
        )
    }
)
"""Backends for keys and values of heads."""

LATENT: Mapping[str, Backend] = MappingProxyType(
    {
        row.name: row
        for row in (
            Backend("FLASH_ATTN_MLA", (16,), True, OWN, HOPPER, LATENT_HEADS, contexts=True),
            Backend("FLASHMLA", (64,), False, FP8, HOPPER, LATENT_HEADS, contexts=True),
            Backend("FLASHINFER_MLA", (32, 64), False, FP8, BLACKWELL, LATENT_HEADS, contexts=True),
            Backend("CUTLASS_MLA", (128,), False, FP8, BLACKWELL, LATENT_HEADS, contexts=True),
            Backend("TRITON_MLA", (16,), True, FP8, contexts=True),
        )
    }
)
"""Backends for latent attention (MLA); one that needs a package which the wheel does not bring (TOKENSPEED_MLA) is left
out."""

SPARSE: Mapping[str, Backend] = MappingProxyType(
    {
        row.name: row
        for row in (
            Backend("FLASH_ATTN_MLA_SPARSE", (64,), True, OWN, HOPPER),
            Backend(
                "FLASHMLA_SPARSE",
                (64,),
                True,
                frozenset({"auto", "bfloat16", "fp8", "fp8_ds_mla", "nvfp4_ds_mla"}),
                (HOPPER[0], BLACKWELL[1]),
                SPARSE_HEADS,
                BRAIN,
                contexts=True,
            ),
            Backend("FLASHINFER_MLA_SPARSE", (32,), True, FP8, BLACKWELL, SPARSE_HEADS, contexts=True),
            Backend("FLASHINFER_MLA_SPARSE_SM90", (64,), True, FP8, HOPPER, SPARSE_HEADS, BRAIN),
            Backend(
                "FLASHINFER_MLA_SPARSE_SM120",
                (64,),
                True,
                FP8 | {"fp8_ds_mla"},
                WORKSTATION,
                SPARSE_HEADS,
                BRAIN,
            ),
        )
    }
)
"""Backends for latent attention with an indexer."""

BLOCK_SPARSE: Mapping[str, Backend] = MappingProxyType(
    {
        row.name: row
        for row in (
            Backend("TRITON_MSA", (128,), False, FP8 | {"nvfp4"}, BLACKWELL, (128,)),
            Backend("MINIMAX_M3_SPARSE", (128,), False, E5M2, heads=(128,)),
        )
    }
)
"""Backends for layers whose indexer chooses blocks of keys (models/minimax_m3/common/sparse_attention.py,
select_main_backend_and_impl_cls; capability 10 reports the first under the second's name)."""

_DS_MLA = frozenset({"auto", "fp8", "fp8_e4m3", "fp8_e5m2", "fp8_ds_mla"})

COMPRESSED: Mapping[str, Backend] = MappingProxyType(
    {
        row.name: row
        for row in (
            Backend("FLASHMLA_SPARSE_DSV4", (256,), False, _DS_MLA, (HOPPER[0], BLACKWELL[1])),
            Backend("FLASHINFER_MLA_SPARSE_DSV4", (256,), False, _DS_MLA, WORKSTATION),
        )
    }
)
"""Backends for compressed latents (models/deepseek_v4/nvidia/model.py, _select_dsv4_attn_cls)."""

INDEXER_BLOCK = 64
"""Tokens of a block of the indexer's cache (mla/indexer.py, DeepseekV32IndexerBackend)."""

INDEX_KEYS_BLOCK = 128
"""Tokens of a block of index keys (models/minimax_m3/common/indexer.py, MiniMaxM3IndexerBackend)."""

COMPRESSED_BLOCK = 256
"""Tokens of a block of compressed latents (models/deepseek_v4/sparse_mla.py, DeepseekV4SparseMLABackend)."""

BACKENDS_DECIDE: Version = (0, 18, 1)
"""Since then the chosen backend names the block size (platforms/interface.py, update_block_size_for_backend)."""

FIRST_BACKEND_ONLY: Sequence[tuple[Version, bool]] = (((0, 0, 0), True), ((0, 31, 0), False))
"""Only the first layer's backend is asked; since 0.31 all of them have to take the block."""

_FLASH_FIRST = ("FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")
_FLASHINFER_FIRST = ("FLASHINFER", "FLASH_ATTN", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT")

SOFTMAX_ORDER: Sequence[tuple[Version, Mapping[int | None, tuple[str, ...]]]] = (
    ((0, 18, 1), {10: _FLASHINFER_FIRST, None: _FLASH_FIRST}),
    (
        (0, 30, 0),
        {
            10: ("TRITON_FLASHINFER", *_FLASHINFER_FIRST),
            9: ("TRITON_FLASH_ATTN", *_FLASH_FIRST),
            None: _FLASH_FIRST,
        },
    ),
)
"""Compute capability (major; None for the others) to backends by preference (platforms/cuda.py,
_get_backend_priorities)."""

LATENT_ORDER: Sequence[tuple[Version, Mapping[int | None, tuple[str, ...]]]] = (
    (
        (0, 18, 1),
        {
            10: ("FLASHINFER_MLA", "CUTLASS_MLA", "TRITON_MLA"),
            None: ("FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA"),
        },
    ),
)

SPARSE_ORDER: Sequence[tuple[Version, Mapping[int | None, tuple[str, ...]]]] = (
    ((0, 18, 1), {10: ("FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE"), None: ("FLASHMLA_SPARSE",)}),
    ((0, 19, 0), {10: ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"), None: ("FLASHMLA_SPARSE",)}),
    (
        (0, 24, 0),
        {
            10: ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"),
            12: ("FLASHINFER_MLA_SPARSE_SM120",),
            None: ("FLASHMLA_SPARSE",),
        },
    ),
    (
        (0, 25, 1),
        {
            10: ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"),
            12: ("FLASHINFER_MLA_SPARSE_SM120",),
            None: ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE"),
        },
    ),
    (
        (0, 30, 0),
        {
            10: ("FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE"),
            12: ("FLASHINFER_MLA_SPARSE_SM120",),
            None: ("FLASH_ATTN_MLA_SPARSE", "FLASHMLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM90"),
        },
    ),
)
"""On capability 10 an FP8 cache goes to FlashInfer since 0.19, and before for at most `FEW_HEADS` query heads a rank; with
the model's own type the two backends cache the same bytes."""

BLOCK_SPARSE_ORDER: Sequence[tuple[Version, Mapping[int | None, tuple[str, ...]]]] = (
    ((0, 24, 0), {None: tuple(BLOCK_SPARSE)}),
)

COMPRESSED_ORDER: Sequence[tuple[Version, Mapping[int | None, tuple[str, ...]]]] = (
    ((0, 20, 0), {None: tuple(COMPRESSED)}),
)

FEW_HEADS = 16
FEW_HEADS_FIRST: Version = (0, 19, 0)
"""Before, the order of capability 10 is turned round for few heads."""

COMPOSITES = frozenset({"TRITON_FLASH_ATTN", "TRITON_FLASHINFER"})
"""Backends that are tried only for models that attend in both directions inside images."""

IMAGE_TYPES = frozenset({"bagel", "gemma3", "molmo2", "moondream3", "paligemma"})
"""Outer model types that do so (transformers_utils/model_arch_config_convertor.py, is_mm_prefix_lm)."""

IMAGE_KEY_TYPES = frozenset({"gemma4", "gemma4_unified", "diffusion_gemma"})
IMAGE_KEY = ("use_bidirectional_attention", "vision")
"""Key of the text config and its value that say so for `IMAGE_KEY_TYPES` (the same file)."""

LATENT_TYPES = frozenset(
    {
        "axk1",
        "bailing_hybrid",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots3_note",
        "glm4_moe_lite",
        "glm5_next",
        "glm5_next_text",
        "glm_moe_dsa",
        "hy_v4",
        "kimi_k2",
        "kimi_linear",
        "longcat_flash",
        "pangu_ultra_moe",
    }
)
"""Model types whose latent is cached as such; others cache the full key and value of every head, the value padded to the
key's width (transformers_utils/model_arch_config_convertor.py, is_deepseek_mla)."""

NOPE_HEADS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"FLASHINFER_MLA": (64, 128, 192), "FLASHINFER_MLA_SPARSE": (128, 192)}
)
"""`qk_nope_head_dim` that a backend is made for (mla/flashinfer_mla.py, flashinfer_mla_sparse.py, supports_combination)."""

KV_MAJORS: Mapping[str, tuple[int, ...]] = MappingProxyType({"nvfp4_ds_mla": (10,)})
"""Compute capabilities (major) that a KV cache type is confined to (mla/flashmla_sparse.py, supports_combination)."""

NATIVE_FP8: Mapping[str, Version] = MappingProxyType({"TRITON_ATTN": (0, 24, 0), "TRITON_MLA": (0, 26, 0)})
NATIVE_FP8_FROM: Capability = (8, 9)
"""Backends that refuse an FP8 cache on older cards after they were chosen, and since when (triton_attn.py,
mla/triton_mla.py)."""

SPARSE_TOPK: Mapping[str, int] = MappingProxyType({"FLASHINFER_MLA_SPARSE_SM120": 2048})
"""`index_topk` that a backend is made for (mla/flashinfer_mla_sparse.py)."""

KV_BY_BACKEND: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "FLASHMLA_SPARSE": {"fp8": "fp8_ds_mla", "fp8_e4m3": "fp8_ds_mla"},
        "FLASHINFER_MLA_SPARSE_SM120": {"auto": "fp8_ds_mla", "fp8": "fp8_ds_mla", "fp8_e4m3": "fp8_ds_mla"},
        "FLASHMLA_SPARSE_DSV4": dict.fromkeys(_DS_MLA, "fp8_ds_mla"),
        "FLASHINFER_MLA_SPARSE_DSV4": dict.fromkeys(_DS_MLA, "fp8_ds_mla"),
    }
)
"""Backend to what a KV cache type becomes for it (mla_attention.py, _canonicalize_sparse_mla_kv_cache_dtype;
models/deepseek_v4/attention.py, _resolve_dsv4_kv_cache_dtype)."""

# -- FlashAttention's versions (v1/attention/backends/fa_utils.py, get_flash_attn_version)

FLASH_VERSIONS: Mapping[int, int] = MappingProxyType({9: 3, 10: 4})
"""Compute capability (major) to the version used; 2 on others."""

FLASH_WIDEST: Mapping[int, int] = MappingProxyType({2: 256, 3: 256, 4: 512})
"""Version to its widest head; capabilities 9 and 10 have version 4 for those that 3 does not take."""

FLASH_4_MAJORS = (9, 10)
FLASH_MULTIPLE = 8
"""Heads are multiples of this (flash_attn.py, supports_head_size)."""

FLASH_4_BLACKWELL = 128
"""Widest head of version 4 on capability 10; 256 has a kernel of its own, wider ones fall back to version 2."""

FLASH_4_OWN_HEAD = 256
FLASH_4_OWN_BLOCK: Sequence[tuple[Version, int]] = (((0, 0, 0), 0), ((0, 29, 0), 128))
"""That kernel reads pages of this many tokens (flash_attn.py, _get_fa4_hd256_block_size); 0 before it was used."""

FLASH_FP8_HEAD = 512
FLASH_FP8_BLOCK: Sequence[tuple[Version, int]] = (((0, 0, 0), 0), ((0, 31, 0), 64))
"""Version 4 on capability 9 reads an FP8 cache of such heads, in pages of this many tokens (flash_attn.py,
_get_sm90_fa4_fp8_kv_block_size); 0 before it did."""

# -- what FlashInfer adds and excludes, all in v1/attention/backends/flashinfer.py

LARGE_PAGES = (128, 256, 512, 1024)
"""Further blocks on capability 10 for grouped heads (get_supported_kernel_block_sizes)."""

NVFP4_GENERAL = (8, 9, 12)
"""Capabilities (major) on which NVFP4 is read by the general kernels: no other scaling than ``nvfp4``'s, no sinks, no
heads of `NVFP4_EXCLUDED_HEAD` (supports_combination)."""
NVFP4_EXCLUDED_HEAD = 64

# -- before backends decided (platforms/cuda.py, check_and_update_config)

LATENT_BLOCK: Sequence[tuple[Version, Mapping[int, int]]] = (
    ((0, 0, 0), {9: 64}),
    ((0, 10, 2), {9: 64, 10: 128}),
    ((0, 15, 1), {9: 64, 10: 64}),
)
"""Compute capability (major) to the block that latent attention was forced to a multiple of; none elsewhere."""

LATENT_BLOCK_NOPE = 128
LATENT_BLOCK_OTHER = 128
"""From 0.15 capability 10 took `LATENT_BLOCK` for this `qk_nope_head_dim`, and this one for others."""
LATENT_BLOCK_NOPE_SINCE: Version = (0, 15, 1)
