"""Softmax attention and multi-head latent attention: their caches and their weights.

Sources: transformers 5.24 (models/*/modeling_*.py: the projections and their norms), vLLM 0.32
(model_executor/layers/attention/, model_executor/models/deepseek_v2.py: what is cached and what is split).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.model.build import linear, vector
from kvbudget.model.shapes import Attention, Group, Indexer, LatentAttention, Split, Weight

if TYPE_CHECKING:
    from kvbudget.facts.architectures import Switch, Traits
    from kvbudget.model.config import Config
    from kvbudget.model.shapes import Cache

ATTENTION_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_KEYS = ("num_key_value_heads", "num_kv_heads", "n_head_kv")

INDEXER_TYPES = ("full", "shared")


def switched(c: Config, switch: Switch) -> bool:
    """Return whether a building block is there: a constant, or what the config key says (absent is no)."""
    return c.flag(*switch.split("|")) if isinstance(switch, str) else switch


def norm(name: str, size: int, traits: Traits) -> tuple[Weight, ...]:
    """Return a norm over `size` values in the architecture's style; empty if its norms have no parameters."""
    if traits.norm == "none":
        return ()
    return (vector(name, size, bias=traits.norm == "layer"),)


def head_counts(c: Config, prefix: str = "") -> tuple[int, int]:
    """Return (query heads, KV heads) of the layers whose keys start with `prefix`; KV heads default to query heads.

    Raises:
        InputError: There are more KV heads than query heads, or they do not divide them.
    """
    heads = c.dim(*(prefix + key for key in ATTENTION_KEYS), maximum=1 << 20)
    kv_heads = c.integer(*(prefix + key for key in KV_KEYS), minimum=1, maximum=1 << 20) or heads
    if heads % kv_heads:
        raise InputError(
            f"{c.name('num_key_value_heads')} {kv_heads} does not divide num_attention_heads {heads}; check the config."
        )
    return heads, kv_heads


def head_dims(c: Config, heads: int, prefix: str = "") -> tuple[int, int]:
    """Return (width of a key head, width of a value head): explicit, or hidden size / query heads."""
    head_dim = c.integer(prefix + "head_dim", prefix + "attention_head_dim", minimum=1, maximum=1 << 16)
    if head_dim is None:
        hidden = c.dim("hidden_size")
        if hidden % heads:
            raise InputError(
                f"{c.name('hidden_size')} {hidden} is not a multiple of num_attention_heads {heads} "
                "and there is no head_dim; check the config."
            )
        head_dim = hidden // heads
    return head_dim, c.integer(prefix + "v_head_dim", maximum=1 << 16) or head_dim


def softmax_attention(
    c: Config,
    traits: Traits,
    *,
    window: int | None = None,
    chunk: int | None = None,
    keeps_kv: bool = True,
    name: str = "self_attn",
) -> tuple[tuple[Cache, ...], tuple[Weight, ...]]:
    """Return the cache and the weights of one softmax attention.

    Args:
        c: The text config.
        traits: The architecture's building blocks.
        window: Tokens that a sliding window keeps, None for all.
        chunk: Tokens of a local chunk, None for all.
        keeps_kv: False for a layer that reads an earlier layer's cache and has no K and V projection.
        name: Module path of the attention.
    """
    # Some architectures give their window layers a second shape, spelled with a prefix of its own.
    prefix = "swa_" if window is not None and c.has("swa_num_attention_heads", "swa_num_key_value_heads") else ""
    heads, kv_heads = head_counts(c, prefix)
    head_dim, v_head_dim = head_dims(c, heads, prefix)
    hidden = c.dim("hidden_size")
    in_bias = switched(c, traits.qkv_bias)

    query_width = heads * head_dim
    q_out = query_width * 2 if traits.output_gate == "query" else query_width
    weights = [linear(f"{name}.q_proj", Group.ATTENTION, hidden, q_out, bias=in_bias, split=Split.COLUMN)]
    if keeps_kv:
        for part, width in (("k_proj", kv_heads * head_dim), ("v_proj", kv_heads * v_head_dim)):
            weights.append(
                linear(
                    f"{name}.{part}",
                    Group.ATTENTION,
                    hidden,
                    width,
                    bias=in_bias,
                    split=Split.KV,
                    heads=kv_heads,
                )
            )
    weights.append(
        linear(
            f"{name}.o_proj",
            Group.ATTENTION,
            heads * v_head_dim,
            hidden,
            bias=switched(c, traits.out_bias),
            split=Split.ROW,
        )
    )
    if traits.output_gate in ("full", "heads") and (not traits.output_gate_if or c.flag(traits.output_gate_if)):
        gate = heads * v_head_dim if traits.output_gate == "full" else heads
        weights.append(linear(f"{name}.gate_proj", Group.ATTENTION, hidden, gate, split=Split.COLUMN))
    if traits.qk_norm and (not traits.qk_norm_if or c.flag(traits.qk_norm_if)):
        widths = {
            "head": (head_dim, head_dim),
            "full": (query_width, kv_heads * head_dim),
            "per_head": (query_width, kv_heads * head_dim),
        }[traits.qk_norm]
        for part, width in zip(("q_norm", "k_norm"), widths, strict=True):
            if keeps_kv or part == "q_norm":
                weights.append(vector(f"{name}.{part}", width, bias=traits.qk_norm_shift))
    if traits.sinks == "all" or (traits.sinks == "window" and window is not None):
        weights.append(vector(f"{name}.sinks", heads, group=Group.ATTENTION, split=Split.COLUMN))

    cache = Attention(
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=v_head_dim,
        sliding_window=window,
        attention_chunk_size=chunk,
    )
    return ((cache,) if keeps_kv else ()), tuple(weights)


def is_latent(c: Config, traits: Traits) -> bool:
    """Whether the layers use latent attention: some configs of such architectures switch it off.

    Source: vllm/model_executor/models/deepseek_v2.py, DeepseekV2DecoderLayer, 0.32.
    """
    return traits.attention == "mla" and c.flag("use_mla", default=True)


def latent_attention(
    c: Config, traits: Traits, *, indexer: bool, name: str = "self_attn"
) -> tuple[tuple[Cache, ...], tuple[Weight, ...]]:
    """Return the caches and the weights of one multi-head latent attention, with its indexer if `indexer`.

    The latent and its down-projections are the same on every tensor-parallel rank; only heads are split.
    """
    heads = c.dim(*ATTENTION_KEYS, maximum=1 << 20)
    hidden = c.dim("hidden_size")
    rank, rope = c.dim("kv_lora_rank"), c.dim("qk_rope_head_dim")
    nope, value = c.dim("qk_nope_head_dim", minimum=0), c.dim("v_head_dim")
    q_rank = c.integer("q_lora_rank", minimum=1)
    bias = switched(c, traits.qkv_bias)
    group = Group.ATTENTION

    query = heads * (nope + rope)
    if q_rank is None:
        weights = [linear(f"{name}.q_proj", group, hidden, query, split=Split.COLUMN)]
    else:
        weights = [
            linear(f"{name}.q_a_proj", group, hidden, q_rank, bias=bias),
            vector(f"{name}.q_a_layernorm", q_rank),
            linear(f"{name}.q_b_proj", group, q_rank, query, split=Split.COLUMN),
        ]
    weights += [
        linear(f"{name}.kv_a_proj_with_mqa", group, hidden, rank + rope, bias=bias),
        vector(f"{name}.kv_a_layernorm", rank),
        linear(f"{name}.kv_b_proj", group, rank, heads * (nope + value), split=Split.COLUMN),
        linear(f"{name}.o_proj", group, heads * value, hidden, bias=switched(c, traits.out_bias), split=Split.ROW),
    ]
    caches: list[Cache] = [LatentAttention(num_attention_heads=heads, kv_lora_rank=rank, qk_rope_head_dim=rope)]
    if indexer:
        index_heads, index_dim = c.dim("index_n_heads"), c.dim("index_head_dim")
        caches.append(Indexer(index_head_dim=index_dim))
        weights += [
            linear(f"{name}.indexer.wq_b", Group.INDEXER, q_rank or hidden, index_heads * index_dim),
            linear(f"{name}.indexer.wk", Group.INDEXER, hidden, index_dim),
            vector(f"{name}.indexer.k_norm", index_dim, group=Group.INDEXER, bias=True, dtype="float32"),
            linear(f"{name}.indexer.weights_proj", Group.INDEXER, hidden, index_heads),
        ]
    return tuple(caches), tuple(weights)


def indexer_layers(c: Config, layers: int) -> tuple[bool, ...]:
    """Return for each layer whether it has an indexer of its own (others reuse the last one's choice).

    Source: vllm/model_executor/models/deepseek_v2.py 0.32 (index_topk_freq, index_topk_pattern,
    index_skip_topk_offset) and transformers 5.24 glm_moe_dsa (indexer_types, which spells the same out).
    """
    if not c.has("index_topk", "index_n_heads", "index_head_dim"):
        return (False,) * layers
    types = c.per_layer("indexer_types", layers=layers)
    if types is None:
        pattern = c.per_layer("index_topk_pattern", layers=layers) if not c.text_like("index_topk_pattern") else None
        if pattern is None and c.text_like("index_topk_pattern"):
            pattern = tuple((c.text("index_topk_pattern") or "")[:layers])
        if pattern is not None:
            types = tuple({"F": "full", "S": "shared"}.get(str(letter), letter) for letter in pattern)
    if types is not None:
        unknown = next((kind for kind in types if kind not in INDEXER_TYPES), None)
        if unknown is not None or len(types) < layers:
            raise InputError(
                f"{c.name('indexer_types')} must say full or shared for each of {layers} layers, "
                f"found {unknown!r}; check the config."
            )
        return tuple(kind == "full" for kind in types)
    frequency = c.integer("index_topk_freq", minimum=1) or 1
    offset = c.integer("index_skip_topk_offset")
    offset = 2 if offset is None else offset
    return tuple(max(i - offset + 1, 0) % frequency == 0 for i in range(layers))
