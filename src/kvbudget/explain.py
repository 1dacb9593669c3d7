"""Where a number comes from: the KV cache factor by factor, the weights group by group, a log line, a flag.

Nothing is computed here that the budget computes: the bytes come from the engine's own arithmetic, and an explanation
takes them apart. The factors of an explanation multiply to the figure that the budget shows, or they are not shown.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget import __version__
from kvbudget.budgeting import SCHEMA, budget
from kvbudget.engines import vllm
from kvbudget.engines.vllm_specs import Pages, layer_specs
from kvbudget.errors import InputError
from kvbudget.facts.architectures import SAME_AS, TRAITS
from kvbudget.facts.formats import dtype_bytes
from kvbudget.model.mixers import state_bytes
from kvbudget.model.reader import TEXT_KEYS
from kvbudget.model.schemes import weight_bytes as stored_bytes
from kvbudget.model.shapes import (
    Attention,
    CrossAttention,
    Group,
    Indexer,
    LatentAttention,
    RecurrentState,
)
from kvbudget.parallel import rank_weight
from kvbudget.textbook import BLOCK_SIZE, CONTRADICTIONS, KEYS_AND_VALUES, OVER, TIMES
from kvbudget.units import gib

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from kvbudget.budgeting import Budget
    from kvbudget.deployment import Deployment
    from kvbudget.engines.vllm import Settings
    from kvbudget.engines.vllm_specs import CacheSettings, Spec
    from kvbudget.facts.flags import Flag
    from kvbudget.facts.log_lines import LogLine
    from kvbudget.model import Model
    from kvbudget.model.shapes import Weight

STAND_IN_GPU = "H100-SXM-80GB"
"""The card whose block size and defaults hold where nobody named one; no figure of its memory is shown."""


# --- what a request keeps -------------------------------------------------------------------------------------------


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
        stage: (first, end) layer of a pipeline stage, None for all.
    """
    first, end = stage or (0, len(model.layers))
    specs = {
        spec: inside
        for spec, numbers in layer_specs(model, s).specs.items()
        if (inside := [i for i in numbers if first <= i < end])
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
    caches = model.layers[numbers[0]].caches
    if isinstance(spec.shape[0], Pages):
        return _paged(caches, s, spec.shape[0], len(numbers))
    shape = _SHAPES.get(spec.kind, Attention)
    cache = next((one for one in caches if isinstance(one, shape)), caches[0])
    layers = len(numbers)
    if isinstance(cache, LatentAttention) and spec.kind == "full":
        cache = _spelled_out(cache, spec)
    if isinstance(cache, RecurrentState):
        held = state_bytes(cache, dtype_bytes(s.dtype), s.tensor_parallel_size)
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


# --- the config that a figure was read from -------------------------------------------------------------------------


_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key in a JSON text, by its path; keys inside lists are left out."""
    lines: dict[tuple[str, ...], int] = {}
    path: list[str | None] = []
    string = ""
    key: str | None = None
    line, seen = 1, 0
    for match in _MARK.finditer(text):
        mark = match.group()
        line += text.count("\n", seen, match.start())
        seen = match.start()
        if mark[0] == '"':
            string = mark
        elif mark == ":":
            key = str(json.loads(string))
            if None not in path:
                lines[(*(part for part in path if part), key)] = line
        elif mark in "{[":
            path.append("" if not path else key if mark == "{" else None)
            key = None
        elif mark in "}]" and path:
            path.pop()
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A config as text, for the line numbers of its keys."""

    name: str
    text: str


class Origin(NamedTuple):
    """Where a factor was read: the key's dotted path, and the file with its line or what stands for it."""

    key: str
    where: str


_LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers")
_HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
_HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model")
_KV_KEYS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "multi_query_group_num",
    "kv_n_heads",
    "swa_num_key_value_heads",
    "num_global_key_value_heads",
)
_ONE_KV_HEAD_KEYS = ("multi_query", "multi_query_attention")
_DIM_KEYS = ("head_dim", "attention_head_dim", "kv_channels", "d_kv", "swa_head_dim", "global_head_dim")
_PART_DIM_KEYS = ("qk_nope_head_dim", "qk_rope_head_dim")
_VALUE_DIM_KEYS = ("v_head_dim", "swa_v_head_dim")
_MAP_KEYS = (
    "layer_types",
    "layers_block_type",
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
    "attn_type_list",
    "linear_attn_config",
    "full_attn_idxs",
    "attn_layer_indices",
    "attn_layer_period",
    "full_attention_interval",
    "sliding_window_pattern",
    "no_rope_layers",
    "no_rope_layer_interval",
    "max_window_layers",
    "block_configs",
    "compress_ratios",
    "indexer_types",
    "index_topk_pattern",
    "index_topk_freq",
    "cla_share_factor",
    "num_kv_shared_layers",
)
"""Keys that say which layers are of which kind."""


class _Finder:
    """Finds the key that a figure was read from."""

    def __init__(self, model: Model, file: ConfigFile | None) -> None:
        self.model = model
        self.file = file
        self.lines = key_lines(file.text) if file else {}
        self.one_line = bool(file) and "\n" not in (file.text.strip() if file else "")
        self.sections = list(_sections(model.config))
        traits = TRAITS.get(SAME_AS.get(model.model_type, model.model_type))
        self.aliases: Mapping[str, str] = traits.aliases if traits else {}

    def find(self, keys: Sequence[str], value: object = None) -> Origin | None:
        """Return where one of `keys` holds `value` (or anything), the language model's own part first."""
        spellings = [*keys, *(self.aliases[key] for key in keys if key in self.aliases)]
        for path, section in self.sections:
            for key in spellings:
                found = section.get(key)
                if found is not None and (value is None or _equals(found, value)):
                    return Origin(".".join((*path, key)), self._where((*path, key)))
        for name, default in self.model.assumptions:
            if name.rpartition(".")[2] in spellings and (value is None or _equals(default, value)):
                return Origin(name, f"default of {self.model.model_type}")
        return None

    def any(self, keys: Sequence[str], value: object, otherwise: str) -> Origin:
        """Return where `value` was read, or else say what it was taken from."""
        return self.find(keys, value) or Origin(otherwise, self._where(()))

    def _where(self, path: tuple[str, ...]) -> str:
        if self.file is None:
            return "catalogue" if self.model.source.startswith("built-in") else "config"
        line = self.lines.get(path)
        return self.file.name if line is None or self.one_line else f"{self.file.name}:{line}"


def _sections(
    config: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterable[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the parts of a config that describe the language model, the innermost first."""
    for key in (*TEXT_KEYS, "attn_config"):
        nested = config.get(key)
        if isinstance(nested, dict):
            yield from _sections(nested, (*path, key))
    yield path, config


def _equals(found: object, value: object) -> bool:
    if isinstance(found, (list, tuple)):
        return value in found
    return found == value and isinstance(found, bool) == isinstance(value, bool)


# --- the KV cache ---------------------------------------------------------------------------------------------------


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
class Slip:
    """A common mistake for this model, and by what it is off: more than 1 is too much."""

    name: str
    factor: Fraction
    sentence: str


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
    finder = _Finder(d.model, file)
    growing = [row for row in rows if row.grows]
    shown = growing or [row for row in rows if row.slope_bytes]
    return KvExplanation(
        budget=b,
        context=context,
        rows=rows,
        parts=tuple(_part(row, b, finder) for row in shown),
        request_bytes=request_bytes(rows, context),
        slips=_slips(d, b.settings, rows, context),
        notes=_notes(b, rows, context),
    )


def _part(row: Kept, b: Budget, finder: _Finder) -> Part:
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


def _layer_factor(row: Kept, model: Model, finder: _Finder) -> Factor:
    """Return the number of layers, from its key or from the key that says which layers are of this kind."""
    total = len(model.layers)
    origin = None
    if row.layers != total:
        origin = finder.find(_MAP_KEYS)
    if origin is None:
        origin = finder.any(_LAYER_KEYS, total, "layers")
    kind = "" if row.layers == total else f" that are {row.label}, of {total}"
    return Factor(sign=TIMES, value=row.layers, meaning=f"layers{kind}", key=origin.key, where=origin.where)


def _attention_factors(cache: Attention, per_layer: int, layers: Factor, b: Budget, finder: _Finder) -> list[Factor]:
    tp = b.deployment.tensor_parallel_size
    heads = cache.num_key_value_heads
    local = max(1, heads // tp)
    key = finder.find(_KV_KEYS, heads)
    if key is None and heads == 1:
        key = finder.find(_ONE_KV_HEAD_KEYS)
    if key is None and heads == cache.num_attention_heads:
        key = finder.find(_HEAD_KEYS, heads)
    if key is None:
        key = finder.find(_MAP_KEYS) or Origin("num_key_value_heads", finder.any((), None, "").where)
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
    origin = finder.any(_VALUE_DIM_KEYS, cache.v_head_dim, "v_head_dim")
    meaning = f"values: K {cache.head_dim} + V {cache.v_head_dim}"
    wide = Factor(sign=TIMES, value=width, meaning=meaning, key=origin.key, where=origin.where)
    return [replace(layers, sign=""), *found[1:], wide, _value(size, b)]


def _head_dim(cache: Attention, finder: _Finder) -> Factor:
    """Return the width of a head; whether it is explicit is a common slip, so it says so."""
    model = finder.model
    usual, rest = divmod(model.hidden_size, cache.num_attention_heads)
    origin = finder.find(_DIM_KEYS, cache.head_dim)
    if origin is not None:
        same = f"; hidden ÷ heads is {'also ' if usual == cache.head_dim else ''}{usual}" if not rest else ""
        meaning = f"head dim, explicit{same}"
        return Factor(sign=TIMES, value=cache.head_dim, meaning=meaning, key=origin.key, where=origin.where)
    if usual == cache.head_dim and not rest:
        origin = finder.any(_HIDDEN_KEYS, model.hidden_size, "hidden_size")
        meaning = f"head dim: hidden {model.hidden_size:,} ÷ {cache.num_attention_heads} heads"
    else:
        origin = finder.find(_PART_DIM_KEYS) or finder.any((), None, "head_dim")
        meaning = "head dim, the sum of its parts"
    return Factor(sign=TIMES, value=cache.head_dim, meaning=meaning, key=origin.key, where=origin.where)


def _latent_factors(cache: LatentAttention, per_layer: int, layers: Factor, b: Budget, finder: _Finder) -> list[Factor]:
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


def _slips(d: Deployment, s: Settings, rows: tuple[Kept, ...], context: int) -> tuple[Slip, ...]:
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


def _attentions(rows: Iterable[Kept]) -> list[tuple[Attention, int]]:
    """Return the attention shapes that grow, or else those with windows, with their layers."""
    found = [row for row in rows if isinstance(row.cache, Attention) and row.slope_bytes]
    growing = [row for row in found if row.grows] or found
    return [(row.cache, row.layers) for row in growing if isinstance(row.cache, Attention)]


def _query_heads(rows: tuple[Kept, ...]) -> Slip | None:
    shapes = _attentions(rows)
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
    shapes = {(cache.num_attention_heads, cache.head_dim) for cache, _ in _attentions(rows)}
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
    heads = max((cache.num_key_value_heads for cache, _ in _attentions(rows)), default=tp)
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


def _notes(b: Budget, rows: tuple[Kept, ...], context: int) -> tuple[str, ...]:
    """Return what must be known to read the figures, with the contradictions of by-hand figures that they meet."""
    notes = []
    shapes = {(cache.num_attention_heads, cache.num_key_value_heads) for cache, _ in _attentions(rows)}
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


# --- the weights ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRow:
    """The weights of one group that are stored alike.

    Args:
        group: The part of the model.
        format: How they are stored, in words.
        quantized: Whether that is another type than the model's own.
        parameters: As people count them, in the whole model.
        bytes: On one rank, scales and buffers included.
        whole_bytes: The same in the whole model.
    """

    group: Group
    format: str
    quantized: bool
    parameters: int
    bytes: int
    whole_bytes: int

    @property
    def bits(self) -> float | None:
        """Bits of one parameter, scales included; None for buffers, which are no parameters, and what is not loaded."""
        return 8 * self.whole_bytes / self.parameters if self.parameters and self.whole_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightExplanation:
    """The weights, group by group.

    Args:
        deployment: What it explains.
        dtype: The type of what is not quantized.
        rows: Groups and formats in the order of `Group`, MTP apart.
        mtp: The multi-token-prediction layers, which are loaded only for speculative decoding.
        notes: Sentences.
    """

    deployment: Deployment
    dtype: str
    rows: tuple[WeightRow, ...]
    mtp: tuple[WeightRow, ...]
    notes: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Parameters of all rows without MTP: the model's."""
        return sum(row.parameters for row in self.rows)

    @property
    def bytes(self) -> int:
        """Bytes of all rows without MTP on one rank."""
        return sum(row.bytes for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        d, model = self.deployment, self.deployment.model
        return {
            "schema": SCHEMA,
            "kvbudget": __version__,
            "explains": "weights",
            "model": {"id": model.name, "source": model.source},
            "dtype": self.dtype,
            "quantization": model.quantization.describes if model.quantization else None,
            "tensor_parallel_size": d.tensor_parallel_size,
            "parameters": self.parameters,
            "active_parameters": model.active_parameters,
            "bytes": self.bytes,
            "groups": [_weight_dict(row) for row in self.rows],
            "mtp": [_weight_dict(row) for row in self.mtp],
            "notes": list(self.notes),
        }


def _weight_dict(row: WeightRow) -> dict[str, Any]:
    return {
        "group": row.group.value,
        "format": row.format,
        "quantized": row.quantized,
        "parameters": row.parameters,
        "bytes": row.bytes,
    }


def explain_weights(d: Deployment) -> WeightExplanation:
    """Return the weights of one rank by group and format; parameters are those of the whole model.

    Raises:
        InputError, CannotTell: As `kvbudget.budget`.
    """
    model, dtype = d.model, vllm.settings(d).dtype
    unloaded = {id(weight) for tower in model.towers if not tower.loaded for weight in tower.weights}
    rows = _weight_rows(((path, weight) for _, path, weight in model.weights()), d, dtype, unloaded)
    last = len(model.layers)
    behind = (
        (f"{model.prefix}.{last + i}.{weight.name}", weight)
        for i, layer in enumerate(model.mtp)
        for weight in layer.weights
    )
    mtp = _weight_rows(behind, d, dtype)
    return WeightExplanation(deployment=d, dtype=dtype, rows=rows, mtp=mtp, notes=_weight_notes(model, dtype, rows))


NOT_LOADED = "not loaded by vLLM"


def _weight_rows(
    weights: Iterable[tuple[str, Weight]], d: Deployment, dtype: str, unloaded: Collection[int] = ()
) -> tuple[WeightRow, ...]:
    """Return the rows of some weights; `unloaded` holds the identities of those that the engine leaves out."""
    own, recipe = dtype_bytes(dtype), d.model.quantization
    totals: dict[tuple[Group, str, bool], list[int]] = {}
    for path, weight in weights:
        part = rank_weight(weight, d.tensor_parallel_size, expert_parallel=d.enable_expert_parallel)
        scheme = recipe.scheme_for(path, weight) if recipe else None
        left_out = id(weight) in unloaded
        name = NOT_LOADED if left_out else scheme.name if scheme else weight.dtype or dtype
        total = totals.setdefault((weight.group, name, scheme is not None), [0, 0, 0])
        total[0] += weight.parameters
        for i, stored in ((1, part), (2, weight)):
            total[i] += 0 if left_out else stored_bytes(stored, own, scheme)
    order = list(Group)
    return tuple(
        WeightRow(group=group, format=name, quantized=quantized, parameters=parameters, bytes=size, whole_bytes=whole)
        for (group, name, quantized), (parameters, size, whole) in sorted(
            totals.items(), key=lambda item: (order.index(item[0][0]), -item[1][1])
        )
    )


def _weight_notes(model: Model, dtype: str, rows: tuple[WeightRow, ...]) -> tuple[str, ...]:
    notes = []
    if model.quantization is not None:
        plain = [row for row in rows if not row.quantized and row.bytes]
        share = sum(row.bytes for row in plain) / max(1, sum(row.bytes for row in rows))
        groups = ", ".join(dict.fromkeys(row.group.value for row in plain if row.parameters))
        notes.append(f"Not quantized: {groups}; {share:.0%} of the bytes.")
        notes.append(
            "Smaller weights, and memory hardly shrank? The KV cache takes what the weights leave, so the GPU looks as "
            "full as before; what grew is the number of requests (the kv_cache line of `kvbudget fit`)."
        )
        asked = model.quantization.kv_cache_dtype
        said = (
            f"the checkpoint asks for {asked}"
            if asked
            else f"it stays in {dtype} until --kv-cache-dtype says otherwise"
        )
        notes.append(f"The KV cache is another setting: {said}.")
    if model.active_parameters != model.parameters:
        notes.append(
            f"All {model.num_experts} experts stay in memory; a token uses {model.num_experts_per_tok} of them, which "
            "saves arithmetic and no bytes."
        )
    if model.tied:
        notes.append("The head is the embedding and is counted once.")
    return tuple(notes)


# --- a log line -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one line says: its figures, those derived from them, and sentences about them."""

    line: LogLine
    figures: Mapping[str, int | float | str]
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the reading as plain data."""
        return {
            "name": self.line.name,
            "title": self.line.title,
            "figures": dict(self.figures),
            "sentences": list(self.sentences),
            "versions": self.line.versions,
            "source": f"vLLM {self.line.source}",
        }


SHORT_REQUEST = 1500
"""Tokens of an ordinary request, to say that the longest length is not what people send."""

MAX_LOG_CHARACTERS = 1 << 20


def explain_log(text: str) -> tuple[Reading, ...]:
    """Return what each known line in `text` says, in the order of the text.

    Raises:
        InputError: Nothing in it is known, or it is too long to be a few lines.
    """
    from kvbudget.facts.log_lines import LOG_LINES  # noqa: PLC0415 - only this job needs it

    if len(text) > MAX_LOG_CHARACTERS:
        raise InputError(f"The text has {len(text):,} characters; paste the lines in question, not the whole log.")
    joined = " ".join(text.split())
    found = [(match.start(), _reading(line, match)) for line in LOG_LINES if (match := re.search(line.pattern, joined))]
    if not found:
        titles = ", ".join(line.title for line in LOG_LINES[:_NAMED_LINES])
        raise InputError(f"No known line of vLLM's log was found in the text; known are among others: {titles}.")
    return tuple(reading for _, reading in sorted(found, key=lambda item: item[0]))


_NAMED_LINES = 6


def _reading(line: LogLine, match: re.Match[str]) -> Reading:
    """Return the line's figures and those of its sentences whose figures are all there."""
    figures = {name: _figure(value) for name, value in match.groupdict().items() if value is not None}
    figures |= {name: value for name, value in _derived(figures) if value is not None}
    sentences = []
    for sentence in line.sentences:
        try:
            sentences.append(sentence.format_map(figures))
        except KeyError:
            continue
    return Reading(line=line, figures=figures, sentences=tuple(sentences))


def _figure(text: str) -> int | float | str:
    """Return a number without its separators, or the text if it is none."""
    plain = text.replace(",", "").rstrip(".")
    try:
        return float(plain) if "." in plain else int(plain)
    except ValueError:
        return text


def _derived(f: Mapping[str, Any]) -> Iterable[tuple[str, int | float | None]]:
    """Yield the figures that follow from a line's own; None where one does not apply."""
    if "concurrency" in f:
        tokens = int(Fraction(str(f["concurrency"])) * f["length"])
        yield "tokens", tokens
        yield "short", SHORT_REQUEST
        yield "short_requests", tokens // SHORT_REQUEST
        yield "part", f["concurrency"] if f["concurrency"] < 1 else None
    if "blocks" in f:
        yield "tokens", f["blocks"] * BLOCK_SIZE
        yield "block_size", BLOCK_SIZE
    if "pool" in f:
        yield "left", f["pool"] if f["pool"] > 0 else None
        yield "over", -f["pool"] if f["pool"] <= 0 else None
    if "estimated" in f:
        yield "more", round(f["actual"] - f["estimated"], 2)
    if "needed" in f:
        yield "short_by", round(f["needed"] - f["available"], 2)
    if "budget" in f:
        yield "outside", round(f["total"] - f["budget"], 2)
        yield "fraction_that_starts", int(100 * f["free"] / f["total"]) / 100 if f["total"] else None
    if "waiting" in f:
        yield "queue", f["waiting"] or None


# --- a flag ---------------------------------------------------------------------------------------------------------


def explain_flag(name: str) -> Flag:
    """Return the row of a flag.

    Raises:
        InputError: It is not known; the message names close ones.
    """
    from kvbudget.facts.flags import FLAGS, find_flag  # noqa: PLC0415 - only this job needs it

    found = find_flag(name)
    if found is not None:
        return found
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    key = name.strip().lstrip("-").replace("-", "_").lower()[:64]
    close = get_close_matches(key, [flag.name for flag in FLAGS], n=3, cutoff=0.5)
    hint = f"Close: {', '.join(close)}." if close else f"Known: {', '.join(flag.name for flag in FLAGS)}."
    raise InputError(f"No flag {name[:40]!r} is explained here. {hint}")


def flag_dict(flag: Flag) -> dict[str, Any]:
    """Return a flag as plain data."""
    return {
        "schema": SCHEMA,
        "kvbudget": __version__,
        "explains": "flag",
        "name": flag.name,
        "unit": flag.unit,
        "meaning": flag.meaning,
        "defaults": [{"since": ".".join(map(str, since)), "value": value} for since, value in flag.defaults],
        "not_covered": list(flag.not_covered),
        "aliases": list(flag.aliases),
        "source": f"vLLM {flag.source}",
    }
