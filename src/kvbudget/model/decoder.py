"""The decoder stack of a language model: which layer is what, assembled from the building blocks.

One reader serves every architecture that has a row in `kvbudget.facts.architectures`; what is different about a
layer comes from config keys (`plan`), what is in it from `attention`, `feed_forward` and `mixers`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvbudget.errors import CannotTell, InputError
from kvbudget.model.attention import (
    indexer_layers,
    is_latent,
    latent_attention,
    norm,
    softmax_attention,
    switched,
)
from kvbudget.model.build import linear, table, vector, vocabulary
from kvbudget.model.config import MAX_LAYERS
from kvbudget.model.feed_forward import dense_mlp, expert_layers, mixture
from kvbudget.model.shapes import Group, Layer, Weight

if TYPE_CHECKING:
    from kvbudget.facts.architectures import Traits
    from kvbudget.model.config import Config
    from kvbudget.model.shapes import Cache

LAYER_KINDS = {
    "full_attention": "full",
    "attention": "full",
    "full": "full",
    "deepseek_sparse_attention": "full",
    "indexed_attention": "full",
    "global": "full",
    "global_attention": "full",
    "sliding_attention": "sliding",
    "sliding_window": "sliding",
    "sliding": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "conv": "state",
    "short_conv": "state",
    "recurrent": "state",
    "hybrid": "parallel",
    "moe": "moe",
    "mlp": "mlp",
}
"""What the entries of `layer_types` and `layers_block_type` mean."""

PATTERN_KINDS = {"M": "state", "*": "full", "-": "mlp", "E": "moe"}
"""The letters of `hybrid_override_pattern` (transformers 5.24, nemotron_h)."""


class Plan(NamedTuple):
    """What one layer is made of.

    Attributes:
        mixer: "full", "sliding", "chunked", "state", "parallel" (attention beside state) or "none".
        feed_forward: "dense", "moe" or "none".
        indexer: Sparse attention's indexer is in this layer.
        keeps_kv: False if the layer reads an earlier layer's cache.
    """

    mixer: str
    feed_forward: str
    indexer: bool = False
    keeps_kv: bool = True


class Decoder(NamedTuple):
    """A decoder stack: its layers in order and what stands around them."""

    layers: tuple[Layer, ...]
    outside: tuple[Weight, ...]
    mtp: tuple[Layer, ...] = ()


LETTER_PLANS = {
    "M": Plan("state", "none"),
    "*": Plan("full", "none"),
    "-": Plan("none", "dense"),
    "E": Plan("none", "moe"),
}
"""The same letters as plans, for architectures whose layers are a mixer or a feed-forward part alone."""


def read_decoder(c: Config, traits: Traits, *, tied: bool, labels: int | None = None) -> Decoder:
    """Return the decoder that the config describes.

    Args:
        c: The text config, with its class's defaults.
        traits: The architecture's building blocks.
        tied: The output head is the input embedding.
        labels: Classes of a classifier that stands in place of the output head, 0 for no head at all, None for a
            language model.

    Raises:
        CannotTell: A key is missing, or has a value that is not known; the message names it.
        InputError: A value is broken or two contradict each other.
    """
    window = window_size(c)
    plans = plan(c, traits, window)
    built: dict[Plan, Layer] = {}
    for entry in plans:
        if entry not in built:
            built[entry] = build_layer(c, traits, entry, window)
    layers = tuple(built[entry] for entry in plans)
    return Decoder(layers=layers, outside=outside(c, traits, tied=tied, labels=labels), mtp=mtp_layers(c, traits))


def layer_count(c: Config) -> int:
    """Return the number of decoder layers, from its key or the length of the layer map."""
    if not c.has("num_hidden_layers", "n_layer", "n_layers", "num_layers"):
        for key in ("layers_block_type", "layer_types", "hybrid_override_pattern"):
            value = c.raw(key)
            if isinstance(value, (list, tuple, str)) and 0 < len(value) <= MAX_LAYERS:
                return len(value)
    return c.dim("num_hidden_layers", "n_layer", "n_layers", "num_layers", maximum=MAX_LAYERS)


def window_size(c: Config) -> int | None:
    """Return the tokens of the sliding window, None if there is none (0 and `use_sliding_window: false` say so)."""
    if c.has("use_sliding_window") and not c.flag("use_sliding_window"):
        return None
    if not c.has("use_sliding_window") and c.defaults.get("use_sliding_window") is False:
        return None
    return c.integer("sliding_window", "sliding_window_size") or None


def plan(c: Config, traits: Traits, window: int | None) -> tuple[Plan, ...]:
    """Return what each layer is made of, in order."""
    layers = layer_count(c)
    kinds = mixer_kinds(c, traits, layers, window)
    experts = expert_layers(c, traits, layers)
    indexers = indexer_layers(c, layers) if is_latent(c, traits) else (False,) * layers
    share = c.integer("cla_share_factor", minimum=1) or 1 if traits.shares_kv_if and c.flag(traits.shares_kv_if) else 1
    plans = []
    for i, kind in enumerate(kinds):
        if kind in ("mlp", "moe"):  # a layer that is a feed-forward part alone
            plans.append(Plan("none", "dense" if kind == "mlp" else "moe"))
            continue
        alone = len(traits.layer_norms) == 1 and bool(traits.state)  # one norm: a mixer alone
        feed_forward = "none" if alone else "moe" if experts[i] else "dense"
        is_attention = kind not in ("state", "none")
        plans.append(Plan(kind, feed_forward, indexers[i] and is_attention, keeps_kv=i % share == 0))
    return tuple(plans)


def mixer_kinds(c: Config, traits: Traits, layers: int, window: int | None) -> tuple[str, ...]:
    """Return for each layer "full", "sliding", "chunked", "state", "parallel", "mlp" or "moe".

    The keys, in the order of preference: `layer_types`, `layers_block_type`; `hybrid_override_pattern`;
    `hybrid_layer_pattern` (1 slides); `attn_type_list` (1 is full, 0 linear); `linear_attn_config` (layer numbers
    from 1); `full_attn_idxs`, `attn_layer_indices`; `attn_layer_period` with `_offset`; `full_attention_interval`;
    a window pattern; a window for all.
    """
    if traits.attention == "none":
        return ("state",) * layers
    found = _listed_kinds(c, traits, layers) or _mapped_kinds(c, layers)
    if found is not None:
        return found
    if traits.state:
        return _state_kinds(c, traits, layers)
    return _window_kinds(c, traits, layers, window)


def _listed_kinds(c: Config, traits: Traits, layers: int) -> tuple[str, ...] | None:
    """Read a list with a word a layer, or a text with a letter a layer."""
    for key in ("layer_types", "layers_block_type"):
        listed = c.per_layer(key, layers=layers)
        if listed is None:
            continue
        kinds = []
        for i, word in enumerate(listed):
            kind = LAYER_KINDS.get(word) if isinstance(word, str) else None
            if kind is None or (kind == "state" and not traits.state):
                raise CannotTell(
                    f"{c.name(key)}[{i}] is {word!r}, a layer kind that is not known for this architecture; "
                    "update kvbudget or describe the layers.",
                    key=f"{c.name(key)}[{i}]",
                )
            kinds.append(kind)
        return tuple(kinds)
    letters = c.text("hybrid_override_pattern")
    if letters is None:
        return None
    if len(letters) < layers or any(letter not in PATTERN_KINDS for letter in letters):
        raise InputError(
            f"{c.name('hybrid_override_pattern')} must have one of {' '.join(PATTERN_KINDS)} for each of {layers} "
            f"layers, found {letters[:40]!r}; check the config."
        )
    return tuple(PATTERN_KINDS[letter] for letter in letters[:layers])


def _mapped_kinds(c: Config, layers: int) -> tuple[str, ...] | None:
    """Read the maps that single architectures use: 0/1 lists, layer numbers, periods."""
    pattern = c.per_layer("hybrid_layer_pattern", layers=layers)
    if pattern is not None:
        return tuple("sliding" if item else "full" for item in pattern)
    listed = c.per_layer("attn_type_list", layers=layers)
    if listed is not None:
        return tuple("full" if item else "state" for item in listed)
    linear_config = c.sub("linear_attn_config")
    if linear_config is not None:
        full = set(linear_config.integers("full_attn_layers", minimum=1) or ())
        return tuple("full" if i + 1 in full else "state" for i in range(layers))
    indices = c.integers("full_attn_idxs", "attn_layer_indices")
    if indices is not None:
        return tuple("full" if i in indices else "state" for i in range(layers))
    return None


def _state_kinds(c: Config, traits: Traits, layers: int) -> tuple[str, ...]:
    """Read a period of attention layers among state layers."""
    if c.raw("attn_layer_period") is not None:
        period, offset = c.count("attn_layer_period", minimum=1), c.count("attn_layer_offset")
        return tuple("full" if i % period == offset else "state" for i in range(layers))
    if c.raw("full_attention_interval") is not None:
        period = c.count("full_attention_interval", minimum=1)
        return tuple("full" if (i + 1) % period == 0 else "state" for i in range(layers))
    if traits.parallel_state:
        return ("parallel",) * layers
    if "attn_layer_indices" in c.data:  # written as null: no attention layer at all
        return ("state",) * layers
    raise CannotTell(
        f"{c.name('layer_types')} is missing, so which of {layers} layers keep a KV cache is unknown; "
        "add it to the config.",
        key=c.name("layer_types"),
    )


def _window_kinds(c: Config, traits: Traits, layers: int, window: int | None) -> tuple[str, ...]:
    """Read which layers slide, or stay in a chunk."""
    if traits.chunk_key:
        return _chunk_kinds(c, traits, layers)
    if window is None:
        return ("full",) * layers
    period: int | None = traits.window_period or None
    if traits.window_period_key:
        value = c.raw(*traits.window_period_key)
        if isinstance(value, str):
            return _letter_kinds(c, value, traits.window_period_key[0], layers)
        period = period if value is None else c.checked(value, traits.window_period_key[0], minimum=1)
    if period:
        shift = 0 if traits.global_first else 1
        return tuple("full" if (i + shift) % period == 0 else "sliding" for i in range(layers))
    first = c.integer("max_window_layers")
    if first is not None and c.raw("use_sliding_window") is not None:
        return tuple("sliding" if i >= first else "full" for i in range(layers))
    return ("sliding",) * layers


def _letter_kinds(c: Config, letters: str, key: str, layers: int) -> tuple[str, ...]:
    """Read a repeating pattern such as LLLG: L for local, G for global; the last layer is always global."""
    if not letters or set(letters) - {"L", "G"}:
        raise InputError(f"{c.name(key)} must be a pattern of L and G, found {letters[:40]!r}; check the config.")
    kinds = ["sliding" if letters[i % len(letters)] == "L" else "full" for i in range(layers)]
    kinds[-1] = "full"
    return tuple(kinds)


def _chunk_kinds(c: Config, traits: Traits, layers: int) -> tuple[str, ...]:
    if c.raw(traits.chunk_key) is None:
        return ("full",) * layers
    flags = c.per_layer("no_rope_layers", layers=layers) if c.raw("no_rope_layers") else None
    if flags is None:
        period = c.integer("no_rope_layer_interval", minimum=1) or traits.window_period
        flags = tuple((i + 1) % period != 0 for i in range(layers))
    return tuple("chunked" if flag else "full" for flag in flags)


def build_layer(c: Config, traits: Traits, entry: Plan, window: int | None) -> Layer:
    """Return the caches and weights of one layer."""
    caches: tuple[Cache, ...] = ()
    weights: list[Weight] = []
    hidden = c.dim("hidden_size")
    for name in traits.layer_norms[:1] if _one_norm(c, traits) else traits.layer_norms:
        weights += norm(name, hidden, traits)
    if entry.mixer in ("state", "parallel"):
        from kvbudget.model.mixers import MIXERS  # noqa: PLC0415 - only hybrids pay for it

        mixer = MIXERS[traits.state](c)
        caches += mixer.caches
        weights += mixer.weights
    if entry.mixer in ("full", "sliding", "chunked", "parallel"):
        if is_latent(c, traits):
            kept, added = latent_attention(c, traits, indexer=entry.indexer)
        else:
            kept, added = softmax_attention(
                c,
                traits,
                window=_needed(c, window, "sliding_window") if entry.mixer == "sliding" else None,
                chunk=c.dim(traits.chunk_key) if entry.mixer == "chunked" else None,
                keeps_kv=entry.keeps_kv,
            )
        caches += kept
        weights += added
    if entry.feed_forward == "dense":
        weights += dense_mlp(c, traits)
    elif entry.feed_forward == "moe":
        weights += mixture(c, traits)
    return Layer(caches, tuple(weights), shares_kv=not entry.keeps_kv)


def mtp_layers(c: Config, traits: Traits) -> tuple[Layer, ...]:
    """Return the multi-token-prediction layers of the checkpoint.

    Each is a decoder layer with full attention behind a projection of the embedding beside the hidden state, with
    three norms (vllm/model_executor/models/*_mtp.py, 0.32; the sizes were checked against the published counts of
    DeepSeek-V3.2, GLM-4.5, GLM-5, MiMo-7B and Qwen3.5).
    """
    stated = c.integer("num_nextn_predict_layers", "mtp_num_hidden_layers", maximum=MAX_LAYERS)
    count = traits.mtp_layers if stated is None else stated
    if not count:
        return ()
    hidden = c.dim("hidden_size")
    feed_forward = "moe" if any(expert_layers(c, traits, layer_count(c))) else "dense"
    letters = c.text("mtp_hybrid_override_pattern")
    if letters is None:
        plans = [Plan("full", feed_forward, indexer=c.has("index_topk", "index_n_heads"))]
    else:
        plans = [LETTER_PLANS[letter] for letter in letters if letter in LETTER_PLANS]
    extra = [
        linear("eh_proj", Group.MTP, 2 * hidden, hidden),
        *(weight for name in ("enorm", "hnorm", "shared_head.norm") for weight in norm(name, hidden, traits)),
    ]
    if traits.mtp_copies:
        vocab = c.dim("vocab_size")
        extra.append(vocabulary("embed_tokens", Group.EMBEDDINGS, vocab, hidden))
        extra.append(vocabulary("shared_head.head", Group.HEAD, vocab, hidden, linear=True))
    parts = [build_layer(c, traits, entry, None) for entry in plans]
    layer = Layer(
        tuple(cache for part in parts for cache in part.caches),
        (*(weight for part in parts for weight in part.weights), *extra),
    )
    return (layer,) * count


def _needed(c: Config, value: int | None, key: str) -> int:
    if value is None:
        raise CannotTell(
            f"{c.name(key)} is missing although the layer map has sliding layers; add it to the config.",
            key=c.name(key),
        )
    return value


def _one_norm(c: Config, traits: Traits) -> bool:
    return bool(traits.parallel_norm_key) and c.flag(traits.parallel_norm_key)


def outside(c: Config, traits: Traits, *, tied: bool, labels: int | None) -> tuple[Weight, ...]:
    """Return the weights around the layers: embeddings, positions, final norm, output head or classifier."""
    hidden, vocab = c.dim("hidden_size"), c.dim("vocab_size")
    prefix = traits.prefix
    narrow = c.integer("word_embed_proj_dim", minimum=1) if traits.narrow_embedding else None
    width = narrow or hidden
    weights = [vocabulary(f"{prefix}.embed_tokens", Group.EMBEDDINGS, vocab, width)]
    if width != hidden:
        weights.append(linear(f"{prefix}.project_in", Group.EMBEDDINGS, width, hidden))
        weights.append(linear(f"{prefix}.project_out", Group.HEAD, hidden, width))
    if traits.embedding_norm:
        weights += norm(f"{prefix}.{traits.embedding_norm}", hidden, traits)
    if traits.positions:
        rows = c.dim(traits.positions) + traits.position_offset
        weights.append(table(f"{prefix}.embed_positions", rows, hidden))
    if traits.final_norm:
        weights += norm(f"{prefix}.{traits.final_norm}", hidden, traits)
    head_bias = switched(c, traits.head_bias)
    if labels is not None:
        if labels:
            weights.append(linear("score", Group.HEAD, hidden, labels))
    elif not tied:
        weights.append(vocabulary("lm_head", Group.HEAD, vocab, width, bias=head_bias, linear=True))
    elif head_bias:
        weights.append(vector("lm_head.bias", vocab, group=Group.HEAD))
    return tuple(weights)
