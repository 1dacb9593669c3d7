"""The mistakes that people make for a model, and by what each is off."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from kvbudget.facts.formats import dtype_bytes
from kvbudget.model.shapes import Attention, LatentAttention, RecurrentState
from kvbudget.textbook import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.deployment import Deployment
    from kvbudget.engines.vllm import Settings
    from kvbudget.explain.request import Kept
    from kvbudget.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Slip:
    """A common mistake for this model, and by what it is off: more than 1 is too much."""

    name: str
    factor: Fraction
    sentence: str


def common_slips(d: Deployment, s: Settings, rows: tuple[Kept, ...], context: int) -> tuple[Slip, ...]:
    """Return the common mistakes that change this model's figure."""
    found = [
        slip
        for slip in (
            _query_heads(rows),
            _hidden_over_heads(d.model, rows),
            _latent_as_heads(d.model, rows),
            _ignored_window(rows, context),
            _all_layers(d.model, rows),
            _latent_divided(d, rows),
            _heads_divided(d, rows),
            _weight_bits(d.model, s, rows),
        )
        if slip is not None and slip.factor != 1
    ]
    return tuple(sorted(found, key=lambda slip: max(slip.factor, 1 / slip.factor), reverse=True))


def times(factor: Fraction) -> str:
    """Return how far a slip is off in words, e.g. ``8× too much``."""
    off, word = (factor, "much") if factor > 1 else (1 / factor, "little")
    digits = 0 if off.denominator == 1 or off >= 100 else 1 if off >= 10 else 2  # noqa: PLR2004 - three figures will do
    return f"{float(off):,.{digits}f}{TIMES} too {word}"


def attentions(rows: Iterable[Kept]) -> list[tuple[Attention, int]]:
    """Return the attention shapes that grow, or else those with windows, with their layers."""
    found = [row for row in rows if isinstance(row.cache, Attention) and row.slope_bytes]
    growing = [row for row in found if row.grows] or found
    return [(row.cache, row.layers) for row in growing if isinstance(row.cache, Attention)]


def _query_heads(rows: tuple[Kept, ...]) -> Slip | None:
    shapes = attentions(rows)
    right = sum(n * cache.num_key_value_heads * (cache.head_dim + cache.v_head_dim) for cache, n in shapes)
    wrong = sum(n * cache.num_attention_heads * (cache.head_dim + cache.v_head_dim) for cache, n in shapes)
    if right == wrong:
        return None
    factor = Fraction(wrong, right)
    pairs = {(cache.num_attention_heads, cache.num_key_value_heads) for cache, _ in shapes}
    (heads, kv), *more = pairs
    counts = (
        "query heads instead of KV heads" if more else f"{heads} query heads instead of {kv} KV head{'s' * (kv > 1)}"
    )
    return Slip(name="query heads", factor=factor, sentence=f"{counts} would give {times(factor)}")


def _hidden_over_heads(model: Model, rows: tuple[Kept, ...]) -> Slip | None:
    shapes = {(cache.num_attention_heads, cache.head_dim) for cache, _ in attentions(rows)}
    if len(shapes) != 1:
        return None
    ((heads, head_dim),) = shapes
    factor = Fraction(model.hidden_size, heads * head_dim)
    shown = f"{float(Fraction(model.hidden_size, heads)):g}"
    return Slip(
        name="hidden over heads",
        factor=factor,
        sentence=f"Hidden ÷ heads = {shown} instead of head_dim {head_dim} would give {times(factor)}",
    )


def _latent_as_heads(model: Model, rows: tuple[Kept, ...]) -> Slip | None:
    """MLA read as multi-head attention: K and V of every head, as the up-projection makes them."""
    cache = next((row.cache for row in rows if isinstance(row.cache, LatentAttention)), None)
    if cache is None:
        return None
    up = next(
        (w for layer in model.layers for w in layer.weights if w.name.endswith("kv_b_proj") and cache in layer.caches),
        None,
    )
    if up is None:
        return None
    wrong = up.out_features + cache.num_attention_heads * cache.qk_rope_head_dim
    factor = Fraction(wrong, cache.kv_lora_rank + cache.qk_rope_head_dim)
    return Slip(
        name="MLA as MHA",
        factor=factor,
        sentence=f"K and V of all {cache.num_attention_heads} heads instead of the latent would give {times(factor)}",
    )


def _ignored_window(rows: tuple[Kept, ...], context: int) -> Slip | None:
    right = sum(row.bytes_at(context) for row in rows)
    wrong = sum(row.held_bytes + row.slope_bytes * context for row in rows)
    if right == wrong or not right:
        return None
    factor = Fraction(wrong, right)
    kind = "chunk" if any(row.label.startswith("chunk") for row in rows) else "window"
    return Slip(
        name=f"{kind} ignored",
        factor=factor,
        sentence=f"Ignoring the {kind}s would give {times(factor)} at {context:,} tokens",
    )


def _all_layers(model: Model, rows: tuple[Kept, ...]) -> Slip | None:
    """State layers, layers without attention and layers that share KV counted as if they kept tokens."""
    keeping = sum(row.layers for row in rows if isinstance(row.cache, (Attention, LatentAttention)))
    others = [row for row in rows if row.cache is None or isinstance(row.cache, RecurrentState)]
    total = len(model.layers)
    if not others or not keeping or keeping >= total:
        return None
    factor = Fraction(total, keeping)
    kinds = ", ".join(dict.fromkeys(row.label for row in others))
    return Slip(
        name="all layers",
        factor=factor,
        sentence=f"Counting all {total} layers would give {times(factor)}: {keeping} keep K and V ({kinds}: the rest)",
    )


def _latent_divided(d: Deployment, rows: tuple[Kept, ...]) -> Slip | None:
    tp = d.tensor_parallel_size
    if tp == 1 or not any(isinstance(row.cache, LatentAttention) for row in rows):
        return None
    factor = Fraction(1, tp)
    return Slip(
        name="MLA divided by TP",
        factor=factor,
        sentence=f"Dividing by TP {tp} would give {times(factor)}: the latent is whole on every GPU",
    )


def _heads_divided(d: Deployment, rows: tuple[Kept, ...]) -> Slip | None:
    tp = d.tensor_parallel_size
    heads = max((cache.num_key_value_heads for cache, _ in attentions(rows)), default=tp)
    if heads >= tp:
        return None
    factor = Fraction(heads, tp)
    return Slip(
        name="replicated heads",
        factor=factor,
        sentence=f"Dividing by TP {tp} would give {times(factor)}: {heads} KV head{'s' * (heads > 1)}, each stored "
        f"{tp // heads} times",
    )


def _weight_bits(model: Model, s: Settings, rows: tuple[Kept, ...]) -> Slip | None:
    """The type of the weights taken for that of the cache."""
    scheme = model.quantization.scheme if model.quantization else None
    cache = next((row for row in rows if isinstance(row.cache, Attention) and row.slope_bytes), None)
    own = dtype_bytes(s.dtype)
    if scheme is None or cache is None or s.cache.kv_cache_dtype != "auto":
        return None
    factor = Fraction(scheme.values.block_bytes, scheme.values.block_elems * own)
    bits = f"{scheme.values.bits:g} bits instead of the cache's {own * 8}"
    return Slip(
        name="weight bits",
        factor=factor,
        sentence=f"The weights' {bits} would give {times(factor)}: the cache has its own type (kv_cache_dtype)",
    )
