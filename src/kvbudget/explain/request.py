"""What a request keeps on the GPU, kind of layer by kind of layer; the bytes are those of vLLM's own specs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.engines.vllm_specs import Pages, layer_specs
from kvbudget.facts.formats import dtype_bytes
from kvbudget.model.mixers import state_bytes
from kvbudget.model.shapes import Attention, CrossAttention, Indexer, LatentAttention, RecurrentState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kvbudget.engines.vllm_specs import CacheSettings, Spec
    from kvbudget.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the layers with one kind of cache keep for a request, on one rank.

    Args:
        cache: The shape that these layers share (one of `kvbudget.model`); None for layers that keep nothing.
        layers: How many there are.
        shares_kv: They read an earlier layer's cache and keep none of their own.
        own_type: They keep the model's own type, whatever the cache's type is.
        slope_bytes: What one more token takes in all of them together, while it is kept.
        window: Tokens kept at most, None if all are.
        chunk: The window is a chunk that starts again when it is full.
        held_bytes: What they hold whatever the length (recurrent state, an encoder's keys).
        block_size: Tokens of their blocks.
        contexts: Ranks that share out the tokens of a request (decode context parallelism).
    """

    cache: object
    layers: int
    shares_kv: bool = False
    own_type: bool = False
    slope_bytes: int = 0
    window: int | None = None
    chunk: bool = False
    held_bytes: int = 0
    block_size: int = 1
    contexts: int = 1

    @property
    def label(self) -> str:
        """The kind in words, e.g. ``full``, ``window 4,096``, ``mla``."""
        if self.cache is None:
            return "reads another's" if self.shares_kv else "no cache"
        if self.window is not None:
            word = f"{'chunk' if self.chunk else 'window'} {self.window:,}"
        elif isinstance(self.cache, Attention):
            word = "full"
        else:
            word = self._own_words()
        return f"{word}, own type" if self.own_type else word

    def _own_words(self) -> str:
        """Return the kind that a cache calls itself, with what tells compressed caches apart."""
        words = str(getattr(self.cache, "kind", "cache")).replace("_", " ")
        window, ratio = getattr(self.cache, "sliding_window", None), getattr(self.cache, "compress_ratio", 1)
        words += f" {window:,}" if window else ""
        return words + (f" 1/{ratio:,}" if ratio > 1 else "")

    @property
    def grows(self) -> bool:
        """Whether it takes more for each token, however long the request is."""
        return bool(self.slope_bytes) and self.window is None

    def tokens(self, length: int) -> int:
        """Return the tokens kept of a request of `length`; 0 where none are kept as tokens."""
        if not self.slope_bytes:
            return 0
        return -(-length // self.contexts) if self.window is None else min(length, self.window)

    def bytes_at(self, length: int) -> int:
        """Return the bytes of all these layers for a request of `length` tokens."""
        return self.held_bytes + self.slope_bytes * self.tokens(length)

    def blocks_at(self, length: int) -> int:
        """Return the same with the last block counted whole."""
        step = self.block_size * self.contexts
        return self.bytes_at(-(-length // step) * step)


def kept(model: Model, s: CacheSettings, stage: tuple[int, int] | None = None) -> tuple[Kept, ...]:
    """Return what each kind of layer keeps for a request on one rank, in the order of the layers.

    A window that is no shorter than the model's own limit never ends, so its layers grow like full ones.

    Args:
        model: The model.
        s: The cache's settings.
        stage: (first, end) layer of a pipeline stage, None for all; a draft's layers are on the last.
    """
    first, end = stage or (0, len(model.layers))
    last = end + len(s.draft_layers) if end == len(model.layers) else end
    specs = {
        spec: inside
        for spec, numbers in layer_specs(model, s).specs.items()
        if (inside := [i for i in numbers if first <= i < last])
    }
    rows = [(numbers[0], _kept(model, s, spec, numbers)) for spec, numbers in specs.items()]
    empty: dict[bool, list[int]] = {}
    for i, layer in enumerate(model.layers[first:end], first):
        if not layer.caches:
            empty.setdefault(layer.shares_kv, []).append(i)
    rows += [(numbers[0], Kept(cache=None, layers=len(numbers), shares_kv=shares)) for shares, numbers in empty.items()]
    return tuple(row for _, row in sorted(rows, key=lambda item: item[0]))


_SHAPES: Mapping[str, type] = {
    "mla": LatentAttention,
    "indexer": Indexer,
    "state": RecurrentState,
    "cross": CrossAttention,
}
"""The shape of a cache by vLLM's kind; all others are attention with keys and values of heads."""


def _kept(model: Model, s: CacheSettings, spec: Spec, numbers: Sequence[int]) -> Kept:
    caches = (model.layers + s.draft_layers)[numbers[0]].caches
    if isinstance(spec.shape[0], Pages):
        return _paged(caches, s, spec.shape[0], len(numbers))
    shape = _SHAPES.get(spec.kind, Attention)
    cache = next((one for one in caches if isinstance(one, shape)), caches[0])
    layers = len(numbers)
    if isinstance(cache, LatentAttention) and spec.kind == "full":
        cache = _spelled_out(cache, spec)
    if isinstance(cache, RecurrentState):
        ahead = s.num_speculative_tokens
        held = state_bytes(cache, dtype_bytes(s.dtype), s.tensor_parallel_size, ahead) * (1 + ahead)
        return Kept(cache=cache, layers=layers, held_bytes=held * layers, block_size=spec.block_size)
    if spec.kind == "cross":
        return Kept(
            cache=cache, layers=layers, held_bytes=spec.token_bytes * spec.limit * layers, block_size=spec.block_size
        )
    longest = model.max_position_embeddings
    ends = spec.limit > 0 and (longest is None or spec.limit < longest)
    return Kept(
        cache=cache,
        layers=layers,
        own_type=bool(spec.shape[-1]) and s.kv_cache_dtype != "auto",
        slope_bytes=spec.token_bytes * layers,
        window=spec.limit if ends else None,
        chunk=spec.kind == "chunked",
        block_size=spec.block_size,
        contexts=1 if ends else s.decode_context_parallel_size,
    )


def _paged(caches: Sequence[object], s: CacheSettings, pages: Pages, layers: int) -> Kept:
    """Return what layers keep in pages of their own (compressed latents, keys of a block-sparse indexer)."""
    own = dtype_bytes(s.dtype)
    size = -(-pages.page_bytes * (pages.limit or 1) // pages.block_size) * layers  # as `vllm_specs.growth` rounds
    cache = next((one for one in caches if _in_pages(one, own) == pages[1:4]), caches[-1])
    held, slope = (size, 0) if pages.limit else (0, size)
    return Kept(cache=cache, layers=layers, slope_bytes=slope, held_bytes=held, block_size=pages.block_size)


def _in_pages(cache: object, own_bytes: int) -> tuple[int, int, int] | None:
    """Return (window, tokens of a page, bytes of a page) of a cache that has pages of its own, None for others."""
    from kvbudget.model.special import CompressedCache, IndexKeys  # noqa: PLC0415 - only rare models have them

    if isinstance(cache, CompressedCache):
        return cache.sliding_window or 0, cache.block_tokens, cache.page_bytes(own_bytes)
    if isinstance(cache, IndexKeys):
        return 0, 1, cache.index_head_dim * dtype_bytes(cache.dtype)
    return None


def _spelled_out(cache: LatentAttention, spec: Spec) -> Attention:
    """Return a latent as vLLM caches it for model types without a kernel for it: the full K and V of every head."""
    heads = cache.num_attention_heads
    _, head_dim, v_head_dim, *_ = spec.shape
    assert isinstance(head_dim, int)  # noqa: S101 - `Spec.shape` of heads
    assert isinstance(v_head_dim, int)  # noqa: S101
    return Attention(num_attention_heads=heads, num_key_value_heads=heads, head_dim=head_dim, v_head_dim=v_head_dim)


def request_bytes(rows: Iterable[Kept], length: int) -> int:
    """Return what a request of `length` tokens keeps on one rank, its last block counted whole."""
    return sum(row.blocks_at(length) for row in rows)
