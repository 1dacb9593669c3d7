"""vLLM: what each layer of a model keeps on one rank, and in blocks of how many tokens.

Source: vLLM 0.32, v1/kv_cache_interface.py (pages) and platforms/interface.py (the block size); the differences of the
versions since 0.8.5 are in `kvbudget.facts.vllm_cache`.
"""

from __future__ import annotations

from dataclasses import replace
from math import lcm
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.engines import vllm_blocks
from kvbudget.engines.vllm_blocks import Asked, Kernels
from kvbudget.engines.vllm_parts import (
    CacheSettings,
    Context,
    Pages,
    Part,
    cdiv,
    check_layout,
    context_of,
    dotted,
    parts_of,
)
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import vllm_backends as backends
from kvbudget.facts import vllm_cache as facts
from kvbudget.facts.formats import dtype_bytes
from kvbudget.facts.vllm import at
from kvbudget.model.shapes import Attention, CrossAttention, Indexer, LatentAttention, RecurrentState
from kvbudget.parallel import local_heads, stage_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.facts.vllm_backends import Backend
    from kvbudget.model import Model
    from kvbudget.model.shapes import Cache

__all__ = ["CacheSettings", "Kept", "Pages", "Spec", "growth", "layer_specs"]


class Spec(NamedTuple):
    """What one layer keeps on one rank, as the engine sees it; layers with equal specs may share a group.

    Attributes:
        kind: See `CacheGroup.kind`; "indexer" besides.
        block_size: Tokens of a block.
        page_bytes: Bytes of a block, padding included.
        token_bytes: Bytes of a token, 0 for a state.
        limit: Tokens of the window or the chunk, or of the encoder.
        state_blocks: Blocks that a state reserves.
        shape: What else must be equal.
    """

    kind: str
    block_size: int
    page_bytes: int
    token_bytes: int
    limit: int
    state_blocks: int
    shape: tuple[object, ...]

    @property
    def family(self) -> tuple[object, ...]:
        """Specs of one family always need the same slots, so they may share a group with different pages."""
        if self.kind in ("full", "mla", "indexer"):
            return ("full",)
        if self.kind == "state":
            return ("state", self.page_bytes, self.state_blocks)
        return (self.kind, self.limit)


class Served(NamedTuple):
    """A part of the model with the backend that serves it (None for an indexer) and the kernels' blocks."""

    part: Part
    asked: Asked | None
    backend: Backend | None
    kernels: Kernels


class Kept(NamedTuple):
    """What the layers of a model keep.

    Attributes:
        specs: What layers keep, and the numbers of the layers that do, in the order of their first layer.
        block_size: Tokens of a block of attention.
        kv_cache_dtype: The type that the flag, the checkpoint and the backend have led to.
        caching: Prefixes are cached.
        backends: The attention backends, where they decide.
        own_type: All layers keep the model's own type whatever `kv_cache_dtype` says.
        packed: Pages of different sizes stand side by side in a block.
    """

    specs: dict[Spec, list[int]]
    block_size: int
    kv_cache_dtype: str
    caching: bool
    backends: tuple[str, ...]
    own_type: bool
    packed: bool


def layer_specs(model: Model, s: CacheSettings) -> Kept:
    """Return what each layer keeps on one rank.

    Args:
        model: The model.
        s: The settings.

    Raises:
        InputError: The engine refuses the choices: no backend, a layout that does not divide.
        CannotTell: A rule for this model, card or version is not known; the message says which.
    """
    parts = parts_of(model, s)
    context = context_of(model, s, parts)
    check_layout(context, parts)
    served = _served(context, parts)
    context = _renamed(context, served)
    block = _block(context, parts, served)
    block = _mixed_types_block(context, parts, served, block)
    block, state_page = _state_page(context, parts, served, block)
    return Kept(
        _specs(context, parts, served, block, state_page),
        block,
        context.kv_cache_dtype,
        context.caching,
        tuple(dict.fromkeys(item.backend.name for item in served if item.backend)),
        bool(parts) and all(part.own_type for part in parts),
        any(isinstance(part.cache, Pages) and part.cache.compressed for part in parts),
    )


def growth(model: Model, s: CacheSettings) -> tuple[int, int]:
    """Return (bytes a token adds while a request grows, bytes a long request holds on top) on one rank.

    These follow from the shapes alone, without blocks and padding: windows, chunks, encoder tokens and states are
    held, everything else grows. A window at least as long as the model's own limit never ends, so its layers grow.
    With pipeline stages they are those of the stage where a token adds most; decode context parallelism spreads the
    tokens over its ranks.
    """
    parts = parts_of(model, s)
    context = _renamed(context_of(model, s, parts), _served(context_of(model, s, parts), parts))
    stages = stage_bounds(len(model.layers), s.pipeline_parallel_size)
    totals = [[0, 0] for _ in stages]
    longest = model.max_position_embeddings
    for part in parts:
        grows, size = _part_growth(context, part, longest)
        for i in part.layers:
            stage = next((n for n, (_, end) in enumerate(stages) if i < end), len(stages) - 1)  # a draft's is the last
            totals[stage][0 if grows else 1] += size
    slope, held = max(totals)
    return cdiv(slope, s.decode_context_parallel_size), held


def _part_growth(context: Context, part: Part, longest: int | None) -> tuple[bool, int]:
    """Return whether one layer's cache grows, and the bytes of a token or of all that it holds."""
    cache = part.cache
    if isinstance(cache, RecurrentState):
        from kvbudget.model.mixers import state_bytes  # noqa: PLC0415 - only models with states pay for it

        s = context.s
        ahead = s.num_speculative_tokens
        state = state_bytes(cache, dtype_bytes(s.dtype), s.tensor_parallel_size, ahead)
        return False, state * (1 + ahead)
    if isinstance(cache, Pages):
        return not cache.limit, cdiv(cache.page_bytes * (cache.limit or 1), cache.block_size)
    kind, limit = _kind(context, cache)
    token = context.token_bytes(cache, kind, own=part.own_type)
    if kind == "cross":
        return False, token * limit
    if kind in ("sliding", "chunked") and not (longest is not None and limit >= longest):
        return False, token * limit
    return True, token


# -- the block size


def _served(context: Context, parts: Sequence[Part]) -> list[Served]:
    """Return each part that attends with its backend; empty before backends decided or for unknown cards."""
    s = context.s
    if s.compute_capability is None or s.version < backends.BACKENDS_DECIDE:
        return []
    served = []
    for part in parts:
        if isinstance(part.cache, RecurrentState):
            continue
        if isinstance(part.cache, Indexer):
            served.append(Served(part, None, None, Kernels((backends.INDEXER_BLOCK,))))
            continue
        if isinstance(part.cache, Pages) and not part.cache.compressed:
            served.append(Served(part, None, None, Kernels((backends.INDEX_KEYS_BLOCK,))))
            continue
        asked = _asked(context, part)
        backend = vllm_blocks.choose_backend(asked)
        served.append(Served(part, asked, backend, vllm_blocks.kernels(backend, asked, widest=context.widest)))
    return served


def _asked(context: Context, part: Part) -> Asked:
    s, cache = context.s, part.cache
    latent = isinstance(cache, LatentAttention)
    if isinstance(cache, Pages):
        heads = kv_heads = width = value_width = 0
    elif isinstance(cache, LatentAttention):
        kv_heads, width = 1, cache.kv_lora_rank + cache.qk_rope_head_dim
        value_width = width
        heads = cache.num_attention_heads
    else:
        assert isinstance(cache, (Attention, CrossAttention))  # noqa: S101 - the caller leaves out the others
        kv_heads, width, heads = cache.num_key_value_heads, cache.head_dim, cache.num_attention_heads
        value_width = cache.v_head_dim if isinstance(cache, Attention) else width
    return Asked(
        version=s.version,
        capability=s.compute_capability or (0, 0),
        dtype=s.dtype,
        kv_cache_dtype="auto" if part.own_type else context.kv_cache_dtype,
        block_size=s.block_size,
        heads=heads // s.tensor_parallel_size,
        kv_heads=local_heads(kv_heads, s.tensor_parallel_size),
        head_dim=width,
        v_head_dim=value_width,
        window=isinstance(cache, Attention) and cache.sliding_window is not None,
        sinks=part.sinks,
        images=context.images,
        softcap=context.softcap,
        contexts=s.decode_context_parallel_size > 1,
        latent=latent,
        sparse=latent and context.sparse,
        block_sparse=part.block_sparse,
        compressed=isinstance(cache, Pages),
        nope=context.nope,
        topk=context.topk,
    )


def _renamed(context: Context, served: Sequence[Served]) -> Context:
    """Return the context with the cache's type that the backend stores it as."""
    for item in served:
        if item.backend is not None:
            names = backends.KV_BY_BACKEND.get(item.backend.name, {})
            if context.kv_cache_dtype in names:
                return context._replace(kv_cache_dtype=names[context.kv_cache_dtype])
    return context


def _block(context: Context, parts: Sequence[Part], served: Sequence[Served]) -> int:
    """Return the tokens of a block before states and mixed types enlarge it."""
    s = context.s
    if s.compute_capability is None:
        return s.block_size or facts.DEFAULT_BLOCK_SIZE
    if s.version < backends.BACKENDS_DECIDE:
        return vllm_blocks.forced_block(
            s.version,
            s.compute_capability,
            s.block_size,
            latent=any(isinstance(part.cache, LatentAttention) for part in parts),
            sparse=context.sparse,
            nope=context.nope,
        )
    asked = served[:1] if at(backends.FIRST_BACKEND_ONLY, s.version) and not context.sparse else served
    return vllm_blocks.common_block([item.kernels for item in asked], s.block_size)


def _mixed_types_block(context: Context, parts: Sequence[Part], served: Sequence[Served], block: int) -> int:
    """Enlarge the block until a page of the cached type covers a smallest page of the model's own type.

    The engine computes the cached type's page with the first layer's backend, which does not pack it.
    """
    s = context.s
    own = [part.cache for part in parts if part.own_type and isinstance(part.cache, Attention)]
    mixed = own and any(isinstance(part.cache, Attention) and not part.own_type for part in parts)
    if not mixed or not served or s.version < facts.MIXED_TYPES_ALIGN:
        return block
    page = context.token_bytes(own[0], "full", own=True)
    cached = page // dtype_bytes(s.dtype)
    smallest = min(served[0].kernels.sizes)
    step = max(smallest, block)
    return max(block, step * cdiv(page * smallest, step * cached))


def _state_page(context: Context, parts: Sequence[Part], served: Sequence[Served], block: int) -> tuple[int, int]:
    """Return (tokens of a block, bytes of a state's page): a block of attention is made to cover a state.

    The page is 0 without states, and the largest state itself without attention.
    """
    s = context.s
    states = [
        _speculative(part.cache, s.num_speculative_tokens) for part in parts if isinstance(part.cache, RecurrentState)
    ]
    if not states:
        return block, 0
    if s.version < facts.STATE_SINCE:
        raise CannotTell(
            f"How vLLM {dotted(s.version)} lays out recurrent states was not read; choose --engine-version "
            f"{dotted(facts.STATE_SINCE)} or newer.",
            key="engine_version",
        )
    from kvbudget.model.mixers import state_bytes  # noqa: PLC0415 - only models with states pay for it

    largest = max(state_bytes(state, dtype_bytes(s.dtype), s.tensor_parallel_size) for state in states)
    attention = next((part.cache for part in parts if isinstance(part.cache, (Attention, LatentAttention))), None)
    if attention is None:
        return block, largest
    token = context.token_bytes(attention, "", own=False)
    step, multiple = _state_steps(context, attention, served, block)
    needed = step * cdiv(largest, step * token)
    block = max(block, multiple * cdiv(needed, multiple))
    return block, block * token


def _speculative(state: RecurrentState, tokens: int) -> RecurrentState:
    """Return the state with room for the tokens that a draft proposes."""
    if not tokens or state.kind not in facts.STATE_SPECULATIVE:
        return state
    return replace(
        state,
        tensors=tuple(
            tensor._replace(shape=(tensor.shape[0] + tokens, *tensor.shape[1:])) if tensor.split else tensor
            for tensor in state.tensors
        ),
    )


def _state_steps(
    context: Context, attention: Attention | LatentAttention, served: Sequence[Served], block: int
) -> tuple[int, int]:
    """Return what the block is counted in, and what it must be a multiple of after that."""
    s = context.s
    latent = isinstance(attention, LatentAttention)
    floor = at(facts.LATENT_STATE_ALIGNMENT, s.version) if latent else 1
    if s.version < facts.STATES_ASK_BACKENDS or not served:
        major, width, wide = at(facts.WIDE_HEAD_ALIGNMENT, s.version)
        capability = s.compute_capability or (0, 0)
        special = isinstance(attention, Attention) and (capability[0], context.widest) == (major, width)
        return max(floor, wide if special else facts.DEFAULT_BLOCK_SIZE), 1
    step = max(min(served[0].kernels.sizes), block, floor)
    return step, lcm(*(min(item.kernels.sizes) for item in served))


# -- specs: what each layer keeps


def _specs(
    context: Context, parts: Sequence[Part], served: Sequence[Served], block: int, state_page: int
) -> dict[Spec, list[int]]:
    """Return what layers keep and the numbers of the layers that do, in the order of their first layer."""
    kernels = {id(item.part): item for item in served}
    specs: dict[Spec, list[int]] = {}
    for part in parts:
        spec = _spec(context, part, kernels.get(id(part)), block, state_page)
        specs.setdefault(spec, []).extend(part.layers)
    for numbers in specs.values():
        numbers.sort()
    return _promoted(context, specs)


def _spec(context: Context, part: Part, served: Served | None, block: int, state_page: int) -> Spec:
    s, cache = context.s, part.cache
    if isinstance(cache, RecurrentState):
        size = block if context.caching else s.max_model_len
        return Spec("state", size, state_page, 0, 0, _state_blocks(context, cache), (cache,))
    if isinstance(cache, Pages):
        return _spec_of_pages(context, cache, block)
    kind, limit = _kind(context, cache)
    token = context.token_bytes(cache, kind, own=part.own_type)
    if kind == "sliding":
        block = _sliding_block(context, served, block)
    shape = (*_shape(cache, s.tensor_parallel_size), part.own_type)
    return Spec(kind, block, token * block, token, limit, 0, shape)


def _spec_of_pages(context: Context, cache: Pages, block: int) -> Spec:
    """Return what a layer keeps whose pages were known beforehand."""
    if not cache.compressed:
        return Spec(cache.kind, block, cache.page_bytes * block, cache.page_bytes, 0, 0, (cache,))
    if context.s.block_size not in (None, backends.COMPRESSED_BLOCK):
        raise CannotTell(
            f"--block-size {block}: how vLLM rounds blocks of compressed latents other than of "
            f"{backends.COMPRESSED_BLOCK} is not covered; leave it out.",
            key="block_size",
        )
    return Spec(cache.kind, cache.block_size, cache.page_bytes, 0, cache.limit, 0, (cache,))


def _kind(context: Context, cache: Cache) -> tuple[str, int]:
    """Return a cache's kind and the tokens of its window, chunk or encoder."""
    if isinstance(cache, LatentAttention):
        return "mla", 0
    if isinstance(cache, Indexer):
        return "indexer", 0
    if isinstance(cache, CrossAttention):
        return "cross", cache.encoder_tokens
    assert isinstance(cache, Attention)  # noqa: S101 - the caller has taken states out
    if cache.sliding_window is not None:
        return "sliding", cache.sliding_window
    if cache.attention_chunk_size is not None and at(facts.CHUNKS_KEPT, context.s.version) != "full":
        return "chunked", cache.attention_chunk_size
    return "full", 0


def _shape(cache: Cache, tensor_parallel_size: int) -> tuple[object, ...]:
    if isinstance(cache, (Attention, CrossAttention)):
        width = cache.v_head_dim if isinstance(cache, Attention) else cache.head_dim
        return local_heads(cache.num_key_value_heads, tensor_parallel_size), cache.head_dim, width
    return (cache,)


def _sliding_block(context: Context, served: Served | None, block: int) -> int:
    """Return the tokens of a sliding layer's block."""
    rule = at(facts.SLIDING_BLOCK, context.s.version)
    if rule == "primary" or served is None or served.asked is None or served.backend is None:
        return block
    own = vllm_blocks.kernels(served.backend, served.asked)
    return min(own.sizes) if rule == "smallest" else own.largest_within(block)


def _state_blocks(context: Context, state: RecurrentState) -> int:
    """Return the blocks that a request reserves for a state."""
    s = context.s
    if not context.caching:
        return 1 + s.num_speculative_tokens
    mode = at(facts.STATE_MODE, s.version)
    if mode == "unknown" or (mode == "kind" and state.kind in facts.STATE_KINDS_ALL):
        raise CannotTell(
            f"How vLLM {dotted(s.version)} caches prefixes of a {state.kind} state depends on the model class; "
            "leave --enable-prefix-caching out, or choose --engine-version 0.28 or newer.",
            key="enable_prefix_caching",
        )
    checkpoints = at(facts.STATE_CHECKPOINTS, s.version)
    major = s.compute_capability[0] if s.compute_capability else None
    checkpoint = not checkpoints.isdisjoint({(state.kind, None), (state.kind, context.outer_type)}) and (
        major is None or major in facts.CHECKPOINT_MAJORS.get(state.kind, (major,))
    )
    return facts.STATE_ALIGNED_BLOCKS + s.num_speculative_tokens + checkpoint


def _promoted(context: Context, specs: dict[Spec, list[int]]) -> dict[Spec, list[int]]:
    """Return the specs with windows and chunks cached in full, if the manager of several kinds is off.

    Only next to full attention; a model with windows alone keeps them (unify_hybrid_kv_cache_specs).
    """
    s = context.s
    chunks = any(spec.kind == "chunked" for spec in specs)
    off = (
        s.disable_hybrid_kv_cache_manager
        or not at(facts.GROUPING, s.version).hybrid
        or (chunks and at(facts.CHUNKS_KEPT, s.version) == "flag")
    )
    if not off or len({spec.family for spec in specs}) <= 1:
        return specs
    if any(spec.kind == "sliding" and not spec.token_bytes for spec in specs):
        raise InputError(
            "--disable-hybrid-kv-cache-manager: vLLM fails with the compressed caches of this model; leave it out."
        )
    full = [spec.block_size for spec in specs if spec.kind in ("full", "mla", "indexer")]
    promoted: dict[Spec, list[int]] = {}
    for spec, numbers in specs.items():
        if full and spec.kind in ("sliding", "chunked"):
            block = full[0] if len(set(full)) == 1 else spec.block_size
            spec = spec._replace(kind="full", block_size=block, page_bytes=spec.token_bytes * block, limit=0)  # noqa: PLW2901
        promoted[spec] = sorted(promoted.get(spec, []) + numbers)
    if len({spec.family for spec in promoted}) > 1:
        raise InputError(
            "--disable-hybrid-kv-cache-manager: the kinds of cache of this model cannot be made one, so vLLM refuses; "
            "leave it out."
        )
    return promoted
