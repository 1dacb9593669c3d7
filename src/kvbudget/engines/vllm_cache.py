"""vLLM's KV cache arithmetic: what a block holds, how many there are, how many a request needs.

All of it is exact: it repeats v1/core/kv_cache_utils.py and v1/kv_cache_interface.py of vLLM 0.32.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.facts.formats import dtype_bytes
from kvbudget.model.shapes import Attention, Indexer, LatentAttention

if TYPE_CHECKING:
    from kvbudget.facts.vllm import Version
    from kvbudget.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSettings:
    """Every choice that the cache depends on, resolved.

    Args:
        version: The engine's version.
        dtype: The model's data type ("bfloat16").
        kv_cache_dtype: As given by the flag ("auto", "fp8", …).
        block_size: As given by the flag, or None.
        compute_capability: The card's, such as (9, 0), or None if it has none.
        max_in_flight_tokens: Tokens that may be scheduled and not yet done.
    """

    version: Version
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    compute_capability: tuple[int, int] | None = (9, 0)
    max_model_len: int
    max_num_batched_tokens: int
    max_num_seqs: int
    async_scheduling: bool = True
    enable_prefix_caching: bool = True
    disable_hybrid_kv_cache_manager: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that share a block table.

    Args:
        kind: "full", "sliding", "chunked", "mla", "mla+indexer", "state", "cross".
        layers: How many layers it holds on the rank.
        block_size: Tokens of one block.
        page_bytes: Bytes of one layer's block.
        blocks_per_request: Blocks that a request of `max_model_len` needs.
    """

    kind: str
    layers: int
    block_size: int
    page_bytes: int
    blocks_per_request: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CachePlan:
    """The cache of one rank, without its size."""

    groups: tuple[CacheGroup, ...]
    block_size: int
    bytes_per_block: int
    exact: bool = True
    notes: tuple[str, ...] = ()

    @property
    def blocks_per_request(self) -> int:
        """Blocks that one request of `max_model_len` needs, all groups together."""
        return sum(group.blocks_per_request for group in self.groups)


def cache_token_bytes(cache: Attention | LatentAttention | Indexer, element_bytes: int, tensor_parallel_size: int) -> int:
    """Return the bytes that one token takes in one layer's cache on one rank."""
    if isinstance(cache, LatentAttention):
        return (cache.kv_lora_rank + cache.qk_rope_head_dim) * element_bytes
    if isinstance(cache, Indexer):
        return cache.index_head_dim + cache.index_head_dim // 128 * 4
    heads = max(1, cache.num_key_value_heads // tensor_parallel_size)
    return heads * (cache.head_dim + cache.v_head_dim) * element_bytes


def plan_cache(model: Model, s: CacheSettings) -> CachePlan:
    """Return the groups and the bytes of a block (the simple case: one group of full attention or MLA)."""
    element = dtype_bytes(s.dtype) if s.kv_cache_dtype == "auto" else 1
    block = s.block_size or 16
    caches = [cache for layer in model.layers for cache in layer.caches]
    per_token = sum(
        cache_token_bytes(cache, element, s.tensor_parallel_size)
        for cache in caches
        if isinstance(cache, (Attention, LatentAttention, Indexer))
    )
    group = CacheGroup(
        kind="full",
        layers=len(model.layers),
        block_size=block,
        page_bytes=per_token * block // max(1, len(model.layers)),
        blocks_per_request=-(-s.max_model_len // block),
    )
    return CachePlan(groups=(group,), block_size=block, bytes_per_block=per_token * block)
