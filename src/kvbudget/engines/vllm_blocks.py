"""vLLM: which attention backend serves a layer on a card, and so how many tokens a block of the cache holds.

Source: vLLM 0.32, v1/attention/selector.py, platforms/cuda.py (get_valid_backends) and platforms/interface.py
(update_block_size_for_backend); the facts by version are in `kvbudget.facts.vllm_backends`.
"""

from __future__ import annotations

from itertools import product
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.errors import InputError
from kvbudget.facts import vllm_backends as facts
from kvbudget.facts.vllm import at
from kvbudget.facts.vllm_cache import DEFAULT_BLOCK_SIZE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kvbudget.facts.vllm import Version
    from kvbudget.facts.vllm_backends import Backend, Capability


class Asked(NamedTuple):
    """What a layer of attention asks of a backend, on one rank.

    Attributes:
        version: The engine's version.
        capability: The card's compute capability.
        dtype: The model's data type.
        kv_cache_dtype: The cache's type, "auto" for the model's own.
        block_size: The one given by flag, or None.
        heads, kv_heads: Query heads and KV heads of the rank.
        head_dim, v_head_dim: Widths of a key and a value; of the latent, both.
        window: It has a sliding window.
        sinks: It has attention sinks.
        images: The model attends in both directions inside images.
        softcap: The model caps its logits.
        contexts: Decode context parallelism is on.
        latent: It is latent attention (MLA).
        sparse: With an indexer.
        block_sparse: It is no latent attention, and an indexer chooses blocks of its keys.
        compressed: Its latents stand for several tokens each.
        nope: `qk_nope_head_dim`, 0 if it is not latent or not known.
        topk: `index_topk`, 0 without an indexer.
    """

    version: Version
    capability: Capability
    dtype: str
    kv_cache_dtype: str
    block_size: int | None
    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    window: bool = False
    sinks: bool = False
    images: bool = False
    softcap: bool = False
    contexts: bool = False
    latent: bool = False
    sparse: bool = False
    block_sparse: bool = False
    compressed: bool = False
    nope: int = 0
    topk: int = 0


class Kernels(NamedTuple):
    """The blocks in which a layer's kernels read the cache: these sizes, or all multiples of the one."""

    sizes: tuple[int, ...]
    multiple: bool = False

    def take(self, block_size: int) -> bool:
        """Whether a block of the cache splits into blocks of the kernels."""
        return any(block_size % size == 0 for size in self.sizes)

    def largest_within(self, block_size: int) -> int:
        """Return the largest block of the kernels that is no larger than `block_size`, or the smallest there is."""
        smallest = min(self.sizes)
        if self.multiple:
            return max(smallest, block_size // smallest * smallest)
        return max((size for size in self.sizes if size <= block_size), default=smallest)


def choose_backend(asked: Asked) -> Backend:
    """Return the backend that serves the layer: the first by preference that accepts it.

    Raises:
        InputError: None does, so the engine refuses to start.
    """
    rows, order = _candidates(asked)
    for name in order:
        if name in facts.COMPOSITES and not asked.images:
            continue
        backend = rows[name]
        if _accepts(backend, asked):
            _check_native_fp8(backend, asked)
            return backend
    major, minor = asked.capability
    kind = "sparse latent attention" if asked.sparse else "latent attention" if asked.latent else "attention"
    what = "compressed latents" if asked.compressed else f"{kind} with heads of {asked.head_dim}"
    raise InputError(
        f"vLLM has no backend for {what}, dtype {asked.dtype}, --kv-cache-dtype "
        f"{asked.kv_cache_dtype}{_and_block(asked.block_size)} on compute capability {major}.{minor}"
        f"{' with decode context parallelism' if asked.contexts else ''}; choose another type, size or card."
    )


def _check_native_fp8(backend: Backend, asked: Asked) -> None:
    """Refuse an FP8 cache where the chosen backend has no instructions for it."""
    since = facts.NATIVE_FP8.get(backend.name)
    if (
        since is not None
        and asked.version >= since
        and asked.kv_cache_dtype.startswith("fp8")
        and asked.capability < facts.NATIVE_FP8_FROM
    ):
        major, minor = asked.capability
        raise InputError(
            f"--kv-cache-dtype {asked.kv_cache_dtype}: vLLM's {backend.name}, which serves this model on compute "
            f"capability {major}.{minor}, reads FP8 from {'.'.join(map(str, facts.NATIVE_FP8_FROM))} on; choose auto."
        )


def _and_block(block_size: int | None) -> str:
    return "" if block_size is None else f" and --block-size {block_size}"


def _candidates(asked: Asked) -> tuple[Mapping[str, Backend], Sequence[str]]:
    """Return the backends of the layer's kind and their names by preference."""
    if asked.compressed:
        rows, table = facts.COMPRESSED, facts.COMPRESSED_ORDER
    elif asked.block_sparse:
        rows, table = facts.BLOCK_SPARSE, facts.BLOCK_SPARSE_ORDER
    elif asked.sparse:
        rows, table = facts.SPARSE, facts.SPARSE_ORDER
    elif asked.latent:
        rows, table = facts.LATENT, facts.LATENT_ORDER
    else:
        rows, table = facts.SOFTMAX, facts.SOFTMAX_ORDER
    orders = at(table, asked.version)
    order = orders.get(asked.capability[0]) or orders[None]
    if asked.sparse and asked.version < facts.FEW_HEADS_FIRST and asked.heads <= facts.FEW_HEADS:
        order = order[::-1]
    return rows, order


def _accepts(backend: Backend, asked: Asked) -> bool:
    first, last = backend.on
    return (
        asked.kv_cache_dtype in backend.kv
        and asked.capability[0] in facts.KV_MAJORS.get(asked.kv_cache_dtype, (asked.capability[0],))
        and first <= asked.capability <= last
        and (not backend.heads or asked.head_dim in backend.heads)
        and asked.dtype in backend.dtypes
        and (asked.block_size is None or kernels(backend, asked).take(asked.block_size))
        and (not asked.sinks or asked.capability[0] in backend.sinks)
        and (not asked.window or backend.window)
        and (not asked.images or backend.images)
        and (not asked.contexts or backend.contexts)
        and (not backend.flash or _flash_accepts(backend, asked))
        and (not asked.latent or _latent_accepts(backend, asked))
        and (asked.block_sparse or not asked.kv_cache_dtype.startswith("nvfp4") or _nvfp4_accepted(asked))
    )


def flash_version(asked: Asked) -> int:
    """Return the version of FlashAttention for the layer (fa_utils.py, get_flash_attn_version)."""
    major, width = asked.capability[0], asked.head_dim
    version = facts.FLASH_VERSIONS.get(major, 2)
    if version == 3:  # noqa: PLR2004 - the version itself
        mixed = asked.sinks and asked.v_head_dim != width
        return 4 if width > facts.FLASH_WIDEST[3] or mixed else 3
    if version == 4 and width > facts.FLASH_4_BLACKWELL and not _own_kernel(asked):  # noqa: PLR2004
        return 2
    return version


def _own_kernel(asked: Asked) -> bool:
    """Whether capability 10's kernel for heads of 256 takes the layer (fa_utils.py, _fa4_hd256_fallback_reason)."""
    block = at(facts.FLASH_4_OWN_BLOCK, asked.version)
    return (
        asked.head_dim == asked.v_head_dim == facts.FLASH_4_OWN_HEAD
        and block > 0
        and asked.kv_cache_dtype in facts.OWN
        and not (asked.sinks or asked.softcap or asked.images or asked.contexts)
        and (asked.block_size is None or asked.block_size % block == 0)
    )


def _flash_accepts(backend: Backend, asked: Asked) -> bool:
    """The rules of FlashAttention (flash_attn.py, supports_head_size, supports_combination)."""
    major, width = asked.capability[0], asked.head_dim
    widest = facts.FLASH_WIDEST[4 if major in facts.FLASH_4_MAJORS else 2]
    if width % facts.FLASH_MULTIPLE or width > widest:
        return False
    version = flash_version(asked)
    if backend.name in facts.COMPOSITES:
        return version > 2 and (asked.kv_cache_dtype in facts.OWN or _flash_reads_fp8(asked, version))  # noqa: PLR2004
    if asked.images and version != 4:  # noqa: PLR2004
        return False
    if asked.kv_cache_dtype not in facts.OWN:
        return _flash_reads_fp8(asked, version) and not (asked.images and major == facts.HOPPER[0][0])
    return True


def _flash_reads_fp8(asked: Asked, version: int) -> bool:
    """Whether FlashAttention reads an FP8 cache (fa_utils.py, flash_attn_supports_kv_cache_dtype)."""
    major = asked.capability[0]
    if major == facts.HOPPER[0][0]:
        special = asked.head_dim == facts.FLASH_FP8_HEAD and at(facts.FLASH_FP8_BLOCK, asked.version) > 0
        return version == 3 or special  # noqa: PLR2004
    return major == facts.BLACKWELL[0][0] and version == 4  # noqa: PLR2004


def _latent_accepts(backend: Backend, asked: Asked) -> bool:
    """What kernels for latent attention ask of the model's shape."""
    nope, topk = facts.NOPE_HEADS.get(backend.name), facts.SPARSE_TOPK.get(backend.name)
    return (nope is None or asked.nope in nope) and (topk is None or asked.topk == topk)


def _nvfp4_accepted(asked: Asked) -> bool:
    if asked.latent or asked.capability[0] not in facts.NVFP4_GENERAL:
        return True
    return asked.kv_cache_dtype == "nvfp4" and asked.head_dim != facts.NVFP4_EXCLUDED_HEAD and not asked.sinks


def kernels(backend: Backend, asked: Asked, *, widest: int | None = None) -> Kernels:
    """Return the blocks in which `backend` reads the layer's cache.

    Args:
        backend: The layer's backend.
        asked: What the layer asks.
        widest: The width of the model's widest head, which decides for the model; by default the layer's own.
    """
    major = asked.capability[0]
    width = asked.head_dim if widest is None else widest
    if backend.flash:
        fp8 = at(facts.FLASH_FP8_BLOCK, asked.version)
        if (
            fp8
            and major == facts.HOPPER[0][0]
            and width == facts.FLASH_FP8_HEAD
            and asked.kv_cache_dtype not in facts.OWN
        ):
            return Kernels((fp8,))
        if major == facts.BLACKWELL[0][0] and width == asked.head_dim and _own_kernel(asked):
            return Kernels((at(facts.FLASH_4_OWN_BLOCK, asked.version),))
    if backend.name == "FLASHINFER" and major == facts.BLACKWELL[0][0] and asked.heads > asked.kv_heads:
        return Kernels(backend.blocks + facts.LARGE_PAGES)
    return Kernels(backend.blocks, backend.multiple)


def common_block(choices: Iterable[Kernels], given: int | None) -> int:
    """Return the tokens of a block: as given, or the default if all kernels take it, or the smallest they share.

    Raises:
        InputError: Kernels of the model do not take the given one.
    """
    every = list(dict.fromkeys(choices))
    if given is not None:
        refusing = [kernel for kernel in every if not kernel.take(given)]
        if refusing:
            sizes = ", ".join(str(size) for size in refusing[0].sizes)
            raise InputError(f"--block-size {given}: kernels of this model need a multiple of {sizes}; leave it out.")
        return given
    if all(kernel.take(DEFAULT_BLOCK_SIZE) for kernel in every):
        return DEFAULT_BLOCK_SIZE
    shared = sorted({lcm(*sizes) for sizes in product(*(kernel.sizes for kernel in every))})
    return next(size for size in shared if all(kernel.take(size) for kernel in every))


def forced_block(
    version: Version, capability: Capability, given: int | None, *, latent: bool, sparse: bool, nope: int
) -> int:
    """Return the tokens of a block before backends decided (platforms/cuda.py, check_and_update_config)."""
    block = DEFAULT_BLOCK_SIZE if given is None else given
    if not latent:
        return block
    forced = at(facts.LATENT_BLOCK, version).get(capability[0])
    if (
        forced
        and version >= facts.LATENT_BLOCK_NOPE_SINCE
        and capability[0] == facts.BLACKWELL[0][0]
        and nope != facts.LATENT_BLOCK_NOPE
    ):
        forced = facts.LATENT_BLOCK_OTHER
    if sparse:
        forced = facts.INDEXER_BLOCK
    return forced if forced and block % forced else block
