"""vLLM's KV cache arithmetic: what a block holds, how many there are, how many a request needs.

All of it is exact: it repeats, for version 0.32, v1/core/kv_cache_utils.py (groups, blocks, the check at start-up, the
two reported numbers) and the differences of the versions since 0.8.5 that `kvbudget.facts.vllm_cache` lists. What a
layer keeps is in `vllm_specs`, which attention backend serves it in `vllm_blocks`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.engines.vllm_groups import group_layers
from kvbudget.engines.vllm_parts import CacheSettings, cdiv
from kvbudget.engines.vllm_specs import layer_specs
from kvbudget.errors import InputError
from kvbudget.facts import vllm as versions
from kvbudget.facts import vllm_cache as facts
from kvbudget.facts.vllm import at
from kvbudget.parallel import stage_bounds
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.engines.vllm_specs import Kept, Spec
    from kvbudget.facts.vllm import Version
    from kvbudget.model import Model
    from kvbudget.model.shapes import Layer

__all__ = [
    "CacheGroup",
    "CachePlan",
    "CacheSettings",
    "blocks_for_request",
    "checked_bytes",
    "fitting_requests",
    "kv_cache_size_tokens",
    "largest_model_len",
    "max_concurrency",
    "needed_bytes_by_rank",
    "needed_for_one_request_bytes",
    "num_gpu_blocks",
    "plan_cache",
    "refusal",
    "reserved_blocks",
]

NULL_BLOCKS = 1
"""Blocks that the engine keeps for itself (v1/core/block_pool.py)."""

UNKNOWN_CARD = "The card's attention backends are not known; blocks of 16 tokens are assumed (--block-size)."


class CacheGroup(NamedTuple):
    """Layers that share a block table.

    Attributes:
        kind: "full", "sliding", "chunked", "mla", "state", "cross"; "mla+indexer" and "full+indexer" with index keys.
        layers: How many it holds in the whole model.
        layers_by_rank: And on each pipeline stage.
        block_size: Tokens of one block.
        page_bytes: Bytes of one layer's block; of all layers together where they differ.
        bytes_by_rank: Bytes that one block of the group takes on each pipeline stage.
        limit: Tokens of the window or the chunk, or of the encoder.
        state_blocks: Blocks that a state reserves.
        blocks_per_request: Blocks that the engine reserves for a request of `max_model_len`.
    """

    kind: str
    layers: int
    layers_by_rank: tuple[int, ...]
    block_size: int
    page_bytes: int
    bytes_by_rank: tuple[int, ...]
    limit: int = 0
    state_blocks: int = 0
    blocks_per_request: int = 0


class CachePlan(NamedTuple):
    """The cache without its size.

    Attributes:
        settings: What it was planned for.
        groups: The groups of layers; a block belongs to one of them at a time.
        block_size: What the engine calls its block size: the smallest of its groups.
        bytes_per_block_by_rank: Bytes of a block on each pipeline stage; equal on its tensor-parallel ranks.
        in_flight_tokens: Tokens that windows reserve for what is scheduled and not yet done.
        kv_cache_dtype: The type that the flag, the checkpoint and the backend have led to.
        enable_prefix_caching: Whether prefixes are cached.
        backends: The attention backends, where they decide.
        exact: False if something had to be assumed.
        notes: What was assumed, and what the engine does that its flags do not tell.
    """

    settings: CacheSettings
    groups: tuple[CacheGroup, ...]
    block_size: int
    bytes_per_block_by_rank: tuple[int, ...]
    in_flight_tokens: int
    kv_cache_dtype: str
    enable_prefix_caching: bool
    backends: tuple[str, ...] = ()
    exact: bool = True
    notes: tuple[str, ...] = ()

    @property
    def bytes_per_block(self) -> int:
        """Bytes of a block on the pipeline stage where it is largest."""
        return max(self.bytes_per_block_by_rank)

    @property
    def blocks_per_request(self) -> int:
        """Blocks that one request of `max_model_len` reserves, all groups together."""
        return sum(group.blocks_per_request for group in self.groups)


def plan_cache(model: Model, s: CacheSettings) -> CachePlan:
    """Return the groups of layers and the bytes of a block.

    Args:
        model: The model.
        s: The settings.

    Raises:
        InputError: The engine refuses the choices: no backend, a layout that does not divide.
        CannotTell: A rule for this model, card or version is not known; the message says which.
    """
    layout = _layout(
        model,
        s.version,
        s.tensor_parallel_size,
        s.pipeline_parallel_size,
        s.decode_context_parallel_size,
        s.dtype,
        s.kv_cache_dtype,
        s.block_size,
        s.compute_capability,
        s.enable_prefix_caching,
        s.disable_hybrid_kv_cache_manager,
        s.num_speculative_tokens,
        s.draft_layers,
        s.text_only,
    )
    in_flight = _in_flight(s)
    groups = tuple(_for_length(group, s, in_flight) for group in layout.groups)
    return CachePlan(
        settings=s,
        groups=groups,
        block_size=min((group.block_size for group in groups), default=layout.block_size),
        bytes_per_block_by_rank=layout.bytes_per_block_by_rank,
        in_flight_tokens=in_flight,
        kv_cache_dtype=layout.kv_cache_dtype,
        enable_prefix_caching=layout.caching,
        backends=layout.backends,
        exact=s.compute_capability is not None,
        notes=layout.notes,
    )


class _Layout(NamedTuple):
    """What does not depend on the length of requests and the size of batches; see `CachePlan`."""

    groups: tuple[CacheGroup, ...]
    block_size: int
    bytes_per_block_by_rank: tuple[int, ...]
    kv_cache_dtype: str
    caching: bool
    backends: tuple[str, ...]
    notes: tuple[str, ...]


BY_LENGTH = 0
"""Stands for `max_model_len` where a state's block has that size."""


@lru_cache(maxsize=1024)
def _layout(
    model: Model,
    version: Version,
    tensor_parallel_size: int,
    pipeline_parallel_size: int,
    decode_context_parallel_size: int,
    dtype: str,
    kv_cache_dtype: str,
    block_size: int | None,
    compute_capability: tuple[int, int] | None,
    enable_prefix_caching: bool | None,
    disable_hybrid_kv_cache_manager: bool,
    num_speculative_tokens: int,
    draft_layers: tuple[Layer, ...],
    text_only: bool,
) -> _Layout:
    """Return the layout; sweeps over lengths and batches ask for the same one many times."""
    s = CacheSettings(
        version=version,
        tensor_parallel_size=tensor_parallel_size,
        pipeline_parallel_size=pipeline_parallel_size,
        decode_context_parallel_size=decode_context_parallel_size,
        dtype=dtype,
        kv_cache_dtype=kv_cache_dtype,
        block_size=block_size,
        compute_capability=compute_capability,
        max_model_len=BY_LENGTH,
        max_num_batched_tokens=0,
        enable_prefix_caching=enable_prefix_caching,
        disable_hybrid_kv_cache_manager=disable_hybrid_kv_cache_manager,
        num_speculative_tokens=num_speculative_tokens,
        draft_layers=draft_layers,
        text_only=text_only,
    )
    kept = layer_specs(model, s)
    groups = _groups(s, kept, len(model.layers))
    notes = []
    if compute_capability is None:
        notes.append(UNKNOWN_CARD)
    if kept.own_type and kept.kv_cache_dtype != "auto":
        notes.append(f"vLLM's code for this model ignores --kv-cache-dtype {kept.kv_cache_dtype} and keeps {dtype}.")
    return _Layout(
        groups,
        kept.block_size,
        tuple(
            max((group.bytes_by_rank[rank] for group in groups), default=0) for rank in range(pipeline_parallel_size)
        ),
        kept.kv_cache_dtype,
        kept.caching,
        kept.backends,
        tuple(notes),
    )


def _for_length(group: CacheGroup, s: CacheSettings, in_flight: int) -> CacheGroup:
    """Return the group with what depends on the length of requests."""
    size = group.block_size or s.max_model_len
    sized = group if size == group.block_size else group._replace(block_size=size)
    return sized._replace(blocks_per_request=_reserved(sized, s.max_model_len, s, in_flight))


# -- groups


def _groups(s: CacheSettings, kept: Kept, model_layers: int) -> tuple[CacheGroup, ...]:
    """Return the groups of layers, in the order in which the engine makes them."""
    stages = s.pipeline_parallel_size
    bounds = stage_bounds(model_layers, stages) if stages > 1 else ()
    every = group_layers(s.version, kept.specs, packed=kept.packed, stages=stages)
    return tuple(_group(held, bounds) for held in every)


def _group(held: Sequence[tuple[Spec, list[int]]], bounds: Sequence[tuple[int, int]]) -> CacheGroup:
    """Return the group of these layers."""
    first = held[0][0]
    by_rank = [_by_stage(numbers, bounds) for _, numbers in held]
    kinds = {spec.kind: None for spec, _ in held}
    return CacheGroup(
        kind="+".join(sorted(kinds, key=lambda kind: kind == "indexer")),
        layers=sum(len(numbers) for _, numbers in held),
        layers_by_rank=tuple(map(sum, zip(*by_rank, strict=True))),
        block_size=first.block_size,
        page_bytes=first.page_bytes
        if len(held) == 1
        else sum(spec.page_bytes * len(numbers) for spec, numbers in held),
        bytes_by_rank=tuple(
            sum(spec.page_bytes * count for (spec, _), count in zip(held, counts, strict=True))
            for counts in zip(*by_rank, strict=True)
        ),
        limit=first.limit,
        state_blocks=first.state_blocks,
    )


def _by_stage(numbers: Sequence[int], bounds: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return how many of the layers are on each pipeline stage; a draft's are on the last."""
    if not bounds:
        return (len(numbers),)
    last = len(bounds) - 1
    return tuple(
        sum(first <= i and (i < end or stage == last) for i in numbers) for stage, (first, end) in enumerate(bounds)
    )


# -- blocks of a request


def _in_flight(s: CacheSettings) -> int:
    """Return the tokens that may be scheduled and not yet done (config/vllm.py, max_in_flight_tokens)."""
    rule = at(facts.IN_FLIGHT_BATCHES, s.version)
    ahead = at(versions.ASYNC_SCHEDULING, s.version) if s.async_scheduling is None else s.async_scheduling
    stages = s.pipeline_parallel_size
    if rule == "one":
        batches = 1
    elif rule == "second":
        batches = stages + ahead
    else:
        batches = 2 if ahead and stages == 1 else stages
    return batches * s.max_num_batched_tokens


def _reserved(group: CacheGroup, tokens: int, s: CacheSettings, in_flight: int) -> int:
    """Return the blocks that the engine reserves in a group for a request of `tokens`."""
    block = group.block_size
    if group.kind == "state":
        return group.state_blocks
    if group.kind == "sliding":
        return cdiv(min(group.limit - 1 + s.retained_tokens + in_flight, tokens), block) + 1
    if group.kind == "chunked":
        return cdiv(min(group.limit + in_flight, tokens), block)
    if group.kind == "cross":
        batch = at(facts.CROSS_TOKENS, s.version) == "batch"
        return cdiv(s.max_num_batched_tokens if batch else group.limit, block)
    return cdiv(cdiv(tokens, s.decode_context_parallel_size), block)


def _held(group: CacheGroup, tokens: int, s: CacheSettings) -> int:
    """Return the most blocks that a request of `tokens` holds in a group while it generates."""
    block = group.block_size
    if group.kind == "state":
        return 1 + s.num_speculative_tokens
    if group.kind == "cross":
        return cdiv(group.limit, block)
    ahead = s.num_speculative_tokens + s.lookahead_tokens
    every = cdiv(max(tokens, min(tokens + ahead, s.max_model_len)), block * s.decode_context_parallel_size)
    if group.kind == "sliding":
        return min(every, cdiv(group.limit - 1 + s.retained_tokens + ahead, block) + 1)
    if group.kind == "chunked":
        return min(every, cdiv(group.limit + ahead, block))
    return every


def reserved_blocks(plan: CachePlan, tokens: int) -> int:
    """Return the blocks that the engine reserves for a request of `tokens`, all groups together.

    Windows reserve room for what is in flight on top, states for the step from one block to the next; this is what the
    check at start-up and the reported concurrency count.
    """
    return sum(_reserved(group, tokens, plan.settings, plan.in_flight_tokens) for group in plan.groups)


def blocks_for_request(plan: CachePlan, tokens: int) -> int:
    """Return the blocks that a request of `tokens` tokens holds while it generates, all groups together.

    A window keeps only its own blocks and a state one, so this is less than `reserved_blocks`. The pool has one block
    less than `num_gpu_blocks`: the engine takes block 0 for itself (v1/core/block_pool.py).
    """
    return sum(_held(group, tokens, plan.settings) for group in plan.groups)


def fitting_requests(plan: CachePlan, num_blocks: int, tokens: int) -> int:
    """Return how many requests of `tokens` tokens can hold their cache at once, the engine's own block left out."""
    each = blocks_for_request(plan, tokens)
    return max(0, num_blocks - NULL_BLOCKS) // each if each else 0


# -- blocks of the pool, and what is reported


def _by_rank(plan: CachePlan, available: int | Sequence[int]) -> Sequence[int]:
    """Return the available bytes of each pipeline stage; one number stands for all."""
    if isinstance(available, int):
        return (available,) * len(plan.bytes_per_block_by_rank)
    if len(available) != len(plan.bytes_per_block_by_rank):
        raise InputError(
            f"Available bytes are needed for each of {len(plan.bytes_per_block_by_rank)} pipeline stages, found "
            f"{len(available)}."
        )
    return available


def num_gpu_blocks(plan: CachePlan, available: int | Sequence[int], *, override: int | None = None) -> int:
    """Return the blocks of the pool: what the poorest worker has room for, all workers get.

    Args:
        plan: The cache.
        available: "Available KV cache memory" in bytes, of every worker or of the poorest one of each pipeline stage.
        override: `num_gpu_blocks_override`, which replaces the number.
    """
    if not plan.groups:
        return 1
    if override is not None:
        return override
    rooms = zip(_by_rank(plan, available), plan.bytes_per_block_by_rank, strict=True)
    return max(0, min(room // size for room, size in rooms if size))


def max_concurrency(plan: CachePlan, num_blocks: int) -> float:
    """Return "Maximum concurrency for … tokens per request": blocks over what a longest request reserves."""
    if not plan.groups:
        return float("inf")
    if at(facts.TOKENS, plan.settings.version) == "slots":
        return num_blocks * plan.block_size / plan.settings.max_model_len
    return num_blocks / plan.blocks_per_request


def kv_cache_size_tokens(plan: CachePlan, num_blocks: int) -> int:
    """Return "GPU KV cache size" as the engine's version prints it."""
    if not plan.groups:
        return 0
    s = plan.settings
    rule = at(facts.TOKENS, s.version)
    if rule == "slots":
        return num_blocks * plan.block_size
    if rule == "groups":
        return num_blocks // len(plan.groups) * plan.block_size * s.decode_context_parallel_size
    return int(max_concurrency(plan, num_blocks) * s.max_model_len)


# -- the check at start-up


def needed_bytes_by_rank(plan: CachePlan, tokens: int | None = None) -> tuple[int, ...]:
    """Return the bytes that the engine says one request needs, on each pipeline stage.

    Args:
        plan: The cache.
        tokens: The request's length; `max_model_len` by default.
    """
    s = plan.settings
    length = s.max_model_len if tokens is None else tokens
    blocks = [_reserved(group, length, s, plan.in_flight_tokens) for group in plan.groups]
    rule = at(facts.NEED, s.version)
    sizes = plan.bytes_per_block_by_rank
    if rule == "layers":
        return tuple(
            sum(group.bytes_by_rank[rank] * count for group, count in zip(plan.groups, blocks, strict=True))
            for rank in range(len(sizes))
        )
    if rule == "groups":
        return tuple(size * sum(blocks) for size in sizes)
    if rule == "whole model":
        return (max((sum(group.bytes_by_rank) for group in plan.groups), default=0) * sum(blocks[:1]),) * len(sizes)
    return tuple(size * sum(blocks[:1]) for size in sizes)


def needed_for_one_request_bytes(plan: CachePlan, tokens: int | None = None) -> int:
    """Return the bytes that one request needs on the pipeline stage where it needs most; see `needed_bytes_by_rank`."""
    return max(needed_bytes_by_rank(plan, tokens), default=0)


def checked_bytes(plan: CachePlan, available: int | Sequence[int], *, override: int | None = None) -> tuple[int, ...]:
    """Return the bytes that the check holds the need against, on each pipeline stage.

    The engine leaves one block out, which it takes for itself, since 0.29.
    """
    rooms = tuple(_by_rank(plan, available))
    sizes = plan.bytes_per_block_by_rank
    version = plan.settings.version
    if override is not None and at(facts.OVERRIDE_CHECKED, version):
        rooms = tuple(override * size for size in sizes)
    if at(facts.NEED, version) == "whole model":
        rooms = (min(rooms),) * len(rooms)
    if at(versions.RESERVE_BLOCK, version):
        rooms = tuple(room - size for room, size in zip(rooms, sizes, strict=True))
    return rooms


def largest_model_len(
    plan: CachePlan, available: int | Sequence[int], *, limit: int | None = None, override: int | None = None
) -> int:
    """Return the longest `max_model_len` whose one request passes the check, 0 if not even one token does.

    This is the estimate in the refusal, and what `--max-model-len auto` takes.

    Args:
        plan: The cache, planned for any length.
        available: See `num_gpu_blocks`.
        limit: The longest to try; the planned `max_model_len` by default.
        override: `num_gpu_blocks_override`.
    """
    rooms = checked_bytes(plan, available, override=override)
    longest = plan.settings.max_model_len if limit is None else limit
    return _longest(plan, rooms, longest)


def _longest(plan: CachePlan, rooms: Sequence[int], longest: int) -> int:
    """Return the longest request up to `longest` that fits, by bisection."""

    def fits(tokens: int) -> bool:
        needs = needed_bytes_by_rank(plan, tokens)
        return all(need <= room for need, room in zip(needs, rooms, strict=True))

    low, high = 0, longest
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low


def refusal(plan: CachePlan, available: int | Sequence[int], *, override: int | None = None) -> str | None:
    """Return the engine's own words when it refuses to start for lack of cache memory, None when it starts."""
    if not plan.groups:
        return None
    version = plan.settings.version
    rooms = checked_bytes(plan, available, override=override)
    needs = needed_bytes_by_rank(plan)
    for rank, (need, room, size) in enumerate(zip(needs, rooms, plan.bytes_per_block_by_rank, strict=True)):
        if not size:
            continue
        if room <= 0:
            return at(facts.NO_MEMORY, version)
        if need > room:
            start, estimate, end = at(facts.TOO_LONG, version)
            longest = _longest_on(plan, rank, room)
            text = start.format(
                length=plan.settings.max_model_len,
                needed=format_gib(need, version),
                available=format_gib(room, version),
            )
            return text + (estimate.format(estimate=longest) if longest else "") + end
    return None


def _longest_on(plan: CachePlan, rank: int, room: int) -> int:
    """Return the longest request that fits on one pipeline stage."""
    rooms = list(needed_bytes_by_rank(plan))
    rooms[rank] = room
    return _longest(plan, rooms, plan.settings.max_model_len)


def format_gib(size: int, version: Version) -> str:
    """Return bytes in GiB as the engine's messages print them."""
    if at(facts.TWO_DECIMALS, version):
        return f"{size / GIB:.2f}"
    return str(round(size / GIB, 2))
