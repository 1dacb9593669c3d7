"""The KV cache of one request, taken apart into factors.

The factors multiply to the figure that the budget shows, or they are not shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvbudget import __version__
from kvbudget.budgeting import SCHEMA, budget
from kvbudget.explain.origin import (
    DIM_KEYS,
    HEAD_KEYS,
    HIDDEN_KEYS,
    KV_KEYS,
    LAYER_KEYS,
    MAP_KEYS,
    ONE_KV_HEAD_KEYS,
    PART_DIM_KEYS,
    VALUE_DIM_KEYS,
    ConfigFile,
    Finder,
    Origin,
)
from kvbudget.explain.request import Kept, kept, request_bytes
from kvbudget.explain.slips import Slip, attentions, common_slips
from kvbudget.model.shapes import Attention, CrossAttention, Indexer, LatentAttention
from kvbudget.textbook import CONTRADICTIONS, KEYS_AND_VALUES, OVER, TIMES
from kvbudget.units import gib

if TYPE_CHECKING:
    from kvbudget.budgeting import Budget
    from kvbudget.deployment import Deployment
    from kvbudget.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One factor of the bytes of a token.

    Args:
        sign: "" for the first, else a times or a division sign.
        value: The number.
        meaning: What it is.
        key: The config key or the flag it came from.
        where: The file and its line, the catalogue, the engine.
    """

    sign: str
    value: int
    meaning: str
    key: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The bytes that a token takes in the layers of one kind, as factors; their product is `bytes_per_token`."""

    kept: Kept
    bytes_per_token: int
    factors: tuple[Factor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KvExplanation:
    """The KV cache of one request, taken apart.

    Args:
        budget: What it explains.
        context: The length of the request.
        rows: What each kind of layer keeps.
        parts: The growing kinds as factors; windows too where nothing else grows.
        request_bytes: What the request keeps on one rank.
        slips: Common mistakes, the largest first.
        notes: Sentences.
    """

    budget: Budget
    context: int
    rows: tuple[Kept, ...]
    parts: tuple[Part, ...]
    request_bytes: int
    slips: tuple[Slip, ...]
    notes: tuple[str, ...]

    @property
    def all_full_bytes(self) -> int:
        """What the request would keep if every layer kept all tokens."""
        return sum(row.held_bytes + row.slope_bytes * self.context for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        b, d = self.budget, self.budget.deployment
        return {
            "schema": SCHEMA,
            "kvbudget": __version__,
            "explains": "kv",
            "model": {"id": d.model.name, "source": d.model.source},
            "engine": {"name": d.engine, "version": d.engine_version},
            "settings": {
                "tensor_parallel_size": d.tensor_parallel_size,
                "dtype": b.settings.dtype,
                "kv_cache_dtype": d.kv_cache_dtype,
                "block_size": b.kv.block_size,
            },
            "bytes_per_token": b.kv.bytes_per_token,
            "total_bytes_per_token": b.kv.bytes_per_token * d.tensor_parallel_size,
            "fixed_bytes_per_request": b.kv.fixed_bytes_per_request,
            "parts": [
                {
                    "kind": part.kept.label,
                    "bytes_per_token": part.bytes_per_token,
                    "factors": [
                        {"sign": f.sign, "value": f.value, "meaning": f.meaning, "key": f.key, "where": f.where}
                        for f in part.factors
                    ],
                }
                for part in self.parts
            ],
            "context": self.context,
            "layers": [
                {
                    "kind": row.label,
                    "count": row.layers,
                    "bytes_per_token": row.slope_bytes,
                    "kept_tokens": row.tokens(self.context),
                    "fixed_bytes": row.held_bytes,
                    "bytes": row.bytes_at(self.context),
                }
                for row in self.rows
            ],
            "request_bytes": self.request_bytes,
            "needed_for_one_request_bytes": b.kv.needed_for_one_request_bytes,
            "slips": [{"name": s.name, "factor": float(s.factor), "sentence": s.sentence} for s in self.slips],
            "notes": list(self.notes),
            "assumptions": list(b.assumptions),
        }


def explain_kv(d: Deployment, *, file: ConfigFile | None = None) -> KvExplanation:
    """Return the KV cache of one request of `d.context` (by default `max_model_len`) tokens, taken apart.

    Args:
        d: The deployment; its card decides the block size alone.
        file: The config as text, if the model came from a file: then factors name lines.

    Raises:
        InputError, CannotTell: As `kvbudget.budget`.
    """
    b = budget(d)
    context = d.context or b.settings.max_model_len
    rows = kept(d.model, b.settings.cache)
    finder = Finder(d.model, file)
    growing = [row for row in rows if row.grows]
    shown = growing or [row for row in rows if row.slope_bytes]
    return KvExplanation(
        budget=b,
        context=context,
        rows=rows,
        parts=tuple(_part(row, b, finder) for row in shown),
        request_bytes=request_bytes(rows, context),
        slips=common_slips(d, b.settings, rows, context),
        notes=_notes(b, rows, context),
    )


def _part(row: Kept, b: Budget, finder: Finder) -> Part:
    """Return the factors of one kind; if they do not multiply to the engine's figure, that figure alone."""
    d = b.deployment
    if row.slope_bytes % row.layers:
        whole = Factor(sign="", value=row.slope_bytes, meaning="bytes of a token in these layers, not stored alike")
        return Part(kept=row, bytes_per_token=row.slope_bytes, factors=(whole,))
    layers = _layer_factor(row, d.model, finder)
    per_layer = row.slope_bytes // row.layers
    factors: list[Factor] = []
    if isinstance(row.cache, Attention):
        factors = _attention_factors(row.cache, per_layer, layers, b, finder)
    elif isinstance(row.cache, LatentAttention):
        factors = _latent_factors(row.cache, per_layer, layers, b, finder)
    elif isinstance(row.cache, Indexer):
        key = finder.any(("index_head_dim",), row.cache.index_head_dim, "index_head_dim")
        factors = [
            replace(layers, sign=""),
            Factor(
                sign=TIMES,
                value=per_layer,
                meaning=f"an indexer key of {row.cache.index_head_dim} values in FP8, with its scale",
                key=key.key,
                where=key.where,
            ),
        ]
    product = Fraction(1)
    for factor in factors:
        product = product / factor.value if factor.sign == OVER else product * factor.value
    if product != row.slope_bytes:
        each = Factor(sign=TIMES, value=per_layer, meaning="bytes of a token in one layer", where=_engine(d))
        factors = [replace(layers, sign=""), each]
    return Part(kept=row, bytes_per_token=row.slope_bytes, factors=tuple(factors))


def _engine(d: Deployment) -> str:
    return f"vLLM {d.engine_version}"


def _layer_factor(row: Kept, model: Model, finder: Finder) -> Factor:
    """Return the number of layers, from its key or from the key that says which layers are of this kind."""
    total = len(model.layers)
    origin = None
    if row.layers != total:
        origin = finder.find(MAP_KEYS)
    if origin is None:
        origin = finder.any(LAYER_KEYS, total, "layers")
    kind = "" if row.layers == total else f" that are {row.label}, of {total}"
    return Factor(sign=TIMES, value=row.layers, meaning=f"layers{kind}", key=origin.key, where=origin.where)


def _attention_factors(cache: Attention, per_layer: int, layers: Factor, b: Budget, finder: Finder) -> list[Factor]:
    tp = b.deployment.tensor_parallel_size
    heads = cache.num_key_value_heads
    local = max(1, heads // tp)
    key = finder.find(KV_KEYS, heads)
    if key is None and heads == 1:
        key = finder.find(ONE_KV_HEAD_KEYS)
    if key is None and heads == cache.num_attention_heads:
        key = finder.find(HEAD_KEYS, heads)
    if key is None:
        key = finder.find(MAP_KEYS) or Origin("num_key_value_heads", finder.any((), None, "").where)
    found = [layers]
    if heads % tp == 0:
        found.append(Factor(sign=TIMES, value=heads, meaning="KV heads", key=key.key, where=key.where))
        if tp > 1:
            found.append(_flag(OVER, tp, "tensor_parallel_size"))
    else:
        meaning = f"KV head{'s' * (local > 1)} on a rank: {heads} over {tp} ranks"
        found.append(Factor(sign=TIMES, value=local, meaning=meaning, key=key.key, where=key.where))
    width = cache.head_dim + cache.v_head_dim
    size, rest = divmod(per_layer, local * width)
    if rest:
        per_head, rest = divmod(per_layer, local)
        if rest:
            return []
        meaning = f"bytes of K and V of a head, scales included ({cache.head_dim} + {cache.v_head_dim} values)"
        return [replace(layers, sign=""), *found[1:], _flag(TIMES, per_head, "kv_cache_dtype", meaning, b)]
    if cache.head_dim == cache.v_head_dim:
        both = Factor(sign="", value=KEYS_AND_VALUES, meaning="K and V", where=_engine(b.deployment))
        return [both, *found, _head_dim(cache, finder), _value(size, b)]
    origin = finder.any(VALUE_DIM_KEYS, cache.v_head_dim, "v_head_dim")
    meaning = f"values: K {cache.head_dim} + V {cache.v_head_dim}"
    wide = Factor(sign=TIMES, value=width, meaning=meaning, key=origin.key, where=origin.where)
    return [replace(layers, sign=""), *found[1:], wide, _value(size, b)]


def _head_dim(cache: Attention, finder: Finder) -> Factor:
    """Return the width of a head; whether it is explicit is a common slip, so it says so."""
    model = finder.model
    usual, rest = divmod(model.hidden_size, cache.num_attention_heads)
    origin = finder.find(DIM_KEYS, cache.head_dim)
    if origin is not None:
        same = f"; hidden ÷ heads is {'also ' if usual == cache.head_dim else ''}{usual}" if not rest else ""
        meaning = f"head dim, explicit{same}"
        return Factor(sign=TIMES, value=cache.head_dim, meaning=meaning, key=origin.key, where=origin.where)
    if usual == cache.head_dim and not rest:
        origin = finder.any(HIDDEN_KEYS, model.hidden_size, "hidden_size")
        meaning = f"head dim: hidden {model.hidden_size:,} ÷ {cache.num_attention_heads} heads"
    else:
        origin = finder.find(PART_DIM_KEYS) or finder.any((), None, "head_dim")
        meaning = "head dim, the sum of its parts"
    return Factor(sign=TIMES, value=cache.head_dim, meaning=meaning, key=origin.key, where=origin.where)


def _latent_factors(cache: LatentAttention, per_layer: int, layers: Factor, b: Budget, finder: Finder) -> list[Factor]:
    width = cache.kv_lora_rank + cache.qk_rope_head_dim
    key = finder.any(("kv_lora_rank",), cache.kv_lora_rank, "kv_lora_rank")
    values = f"latent {cache.kv_lora_rank} + rope key {cache.qk_rope_head_dim}"
    first = replace(layers, sign="")
    size, rest = divmod(per_layer, width)
    if rest:
        return [first, _flag(TIMES, per_layer, "kv_cache_dtype", f"bytes of a row of {values}", b)]
    wide = Factor(
        sign=TIMES, value=width, meaning=f"values, one row for all heads: {values}", key=key.key, where=key.where
    )
    return [first, wide, _value(size, b)]


def _value(size: int, b: Budget) -> Factor:
    """Return the bytes of one cached value."""
    choice, found = b.deployment.kv_cache_dtype, b.plan.kv_cache_dtype
    if choice == found == "auto":
        meaning = f"bytes of a value: {b.settings.dtype}, the model's own type"
    elif choice == "auto":
        meaning = f"bytes of a value: {found}, as the checkpoint or the architecture says"
    else:
        meaning = f"bytes of a value: {found}"
    return _flag(TIMES, size, "kv_cache_dtype", meaning, b)


def _flag(sign: str, value: int, name: str, meaning: str = "", b: Budget | None = None) -> Factor:
    where = _engine(b.deployment) if b is not None and b.deployment.kv_cache_dtype == "auto" else "given"
    key = f"{name}=auto" if where != "given" else name
    return Factor(sign=sign, value=value, meaning=meaning or name.replace("_", " "), key=key, where=where)


def _notes(b: Budget, rows: tuple[Kept, ...], context: int) -> tuple[str, ...]:
    """Return what must be known to read the figures, with the contradictions of by-hand figures that they meet."""
    notes = []
    shapes = {(cache.num_attention_heads, cache.num_key_value_heads) for cache, _ in attentions(rows)}
    if len(shapes) == 1:
        ((heads, kv),) = shapes
        if heads != kv:
            divisor = f"{float(Fraction(heads, kv)):g}, the query heads that share a KV head"
            counted = f"{kv} KV head{'s' * (kv > 1)} of {heads} query heads: the divisor is {divisor}."
            notes.append(f"{counted} {CONTRADICTIONS['heads'].holds}")
    block = b.kv.block_size
    scaled = any(part in b.deployment.kv_cache_dtype for part in ("per_token_head", "nvfp4", "quant"))
    if context % block or scaled:
        notes.append(CONTRADICTIONS["exceptions"].holds)
    needed, holds = b.kv.needed_for_one_request_bytes, request_bytes(rows, context)
    if b.settings.max_model_len == context and needed > holds:
        notes.append(
            f"vLLM's start-up check asks for {gib(needed)} GiB for one such request: windows hold the tokens in flight "
            "too, state and padding take whole blocks."
        )
    latents = any(isinstance(cache, LatentAttention) for layer in b.deployment.model.layers for cache in layer.caches)
    if latents and not any(isinstance(row.cache, LatentAttention) for row in rows):
        notes.append(
            "The model has latent attention (MLA), but vLLM has no kernel for this model type's latent and caches the "
            "full keys and values of every head."
        )
    if any(isinstance(row.cache, CrossAttention) for row in rows):
        notes.append("Cross attention holds the encoder's tokens, written once for each request.")
    return tuple(notes)
