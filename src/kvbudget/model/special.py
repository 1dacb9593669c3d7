"""Decoders whose layers follow no common plan, a function a family.

Each returns (layers in order, weights outside the layers beyond embedding, final norm and output head). Equal
layers are one object. Weights are those of transformers 5.24 or, where it has no class, of vLLM 0.32; where
vLLM loads more than the checkpoint stores (a copy of K as V, a padded table), the copy is a `Weight` with
``buffer=True``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.architectures import SANDWICH, Experts, Traits
from kvbudget.model.attention import latent_attention, softmax_attention
from kvbudget.model.build import linear, vector, vocabulary
from kvbudget.model.config import MAX_LAYERS
from kvbudget.model.feed_forward import dense_mlp, expert_count, expert_layers, gated_mlp
from kvbudget.model.mixers import MAX_HEADS, kda, mamba2, rg_lru
from kvbudget.model.shapes import Attention, Group, Layer, Split, Weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kvbudget.model.config import Config
    from kvbudget.model.shapes import Cache

Stack = tuple[tuple[Layer, ...], tuple[Weight, ...]]
"""The decoder layers in order, and the weights outside them that not every model has."""

LAYER_KEYS = ("head_dim", "num_key_value_heads", "num_attention_heads")
"""What `per_layer_config` may change in a layer's shape."""

MAX_DIGITS = 8

MLP_WORDS: Mapping[str, bool] = MappingProxyType({"sparse": True, "moe": True, "dense": False})
"""Words of `mlp_layer_types`: is it a mixture of experts?"""

PLAIN = Traits(qkv_bias="attention_bias", out_bias="attention_bias")
"""Softmax attention and gated MLP without anything else."""


def _alike(layers: int, build: Callable[..., Layer], plans: Sequence[tuple[Any, ...]]) -> tuple[Layer, ...]:
    """Return a layer for each plan, the same object for equal layers."""
    built: dict[tuple[Any, ...], Layer] = {}
    unique: dict[Layer, Layer] = {}
    for plan in plans[:layers]:
        if plan not in built:
            layer = build(*plan)
            built[plan] = unique.setdefault(layer, layer)
    return tuple(built[plan] for plan in plans[:layers])


def _depth(c: Config, *keys: str) -> int:
    return c.dim(*(keys or ("num_hidden_layers",)), maximum=MAX_LAYERS)


def _sliding(c: Config, layers: int, *, period: int) -> tuple[bool, ...]:
    """Return which layers have the window: `layer_types`, or all but every `period`-th."""
    types = c.per_layer("layer_types", layers=layers)
    if types is None:
        return tuple((i + 1) % period != 0 for i in range(layers))
    return _words(c, "layer_types", types, {"sliding_attention": True, "full_attention": False})


def _words(c: Config, key: str, listed: Sequence[Any], known: Mapping[str, bool]) -> tuple[bool, ...]:
    """Return what each word of a layer map means.

    Raises:
        CannotTell: A word is not known.
    """
    for i, word in enumerate(listed):
        if not isinstance(word, str) or word not in known:
            raise CannotTell(
                f"{c.name(key)}[{i}] is {str(word)[:40]!r}, a layer kind that is not known for this architecture; "
                "update kvbudget or describe the layers.",
                key=f"{c.name(key)}[{i}]",
            )
    return tuple(known[word] for word in listed)


def _switches(c: Config, key: str, listed: Sequence[Any]) -> tuple[bool, ...]:
    """Return a list of 0 and 1, one a layer, as booleans."""
    return tuple(bool(c.checked(int(item) if isinstance(item, bool) else item, key, maximum=1)) for item in listed)


def _producers(c: Config, layers: int, sliding: Sequence[bool]) -> int:
    """Return how many layers keep K and V; the rest read the last one of their kind.

    Raises:
        InputError: A sharing layer has none of its kind to read.
    """
    shared = c.integer("num_kv_shared_layers", maximum=MAX_LAYERS) or 0
    kept = max(layers - shared, 0)
    if shared and not set(sliding[kept:]) <= set(sliding[:kept]):
        raise InputError(
            f"{c.name('num_kv_shared_layers')} {shared} of {layers} layers leaves no layer of their kind "
            "whose cache they could read; check the config."
        )
    return kept


def _per_layer_inputs(c: Config, layers: int) -> tuple[Weight, ...]:
    """Return the embeddings that give each layer an input of its own (Gemma 3n, Gemma 4 E2B and E4B).

    vLLM 0.32 splits the table over the vocabulary (model_executor/models/gemma3n.py, gemma4.py).
    """
    width = c.count("hidden_size_per_layer_input")
    if not width:
        return ()
    return (
        vocabulary(
            "model.embed_tokens_per_layer",
            Group.EMBEDDINGS,
            c.dim("vocab_size_per_layer_input"),
            layers * width,
        ),
        linear(
            "model.per_layer_model_projection",
            Group.EMBEDDINGS,
            c.dim("hidden_size"),
            layers * width,
            split=Split.COLUMN,
        ),
        vector("model.per_layer_projection_norm", width),
    )


def _per_layer_gate(c: Config) -> tuple[Weight, ...]:
    width, hidden = c.count("hidden_size_per_layer_input"), c.dim("hidden_size")
    if not width:
        return ()
    return (
        linear("per_layer_input_gate", Group.MLP, hidden, width),
        linear("per_layer_projection", Group.MLP, width, hidden),
        vector("post_per_layer_input_norm", hidden),
    )


# -- Gemma 3n and Gemma 4

GEMMA3N = PLAIN._replace(qk_norm="head", layer_norms=SANDWICH)
GEMMA3N_PERIOD = 5
"""Every fifth layer is global (transformers 5.24, configuration_gemma3n.py)."""


def gemma3n_layers(c: Config) -> Stack:
    """Return the text layers of Gemma 3n: AltUp, LAuReL, per-layer inputs, shared K and V.

    Source: transformers 5.24, models/gemma3n; the splits: vllm/model_executor/models/gemma3n.py, 0.32.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    layers, hidden = _depth(c), c.dim("hidden_size")
    sliding = _sliding(c, layers, period=GEMMA3N_PERIOD)
    kept = _producers(c, layers, sliding)
    window = c.dim("sliding_window") if any(sliding) else None
    if isinstance(c.raw("intermediate_size"), (list, tuple)):
        listed = c.per_layer("intermediate_size", layers=layers) or ()
        widths = tuple(c.checked(width, "intermediate_size", minimum=1) for width in listed)
    else:
        widths = (c.dim("intermediate_size"),) * layers
    inputs, rank = c.count("altup_num_inputs", minimum=1, maximum=1 << 10), c.count("laurel_rank", minimum=1)

    def build(slides: bool, keeps_kv: bool, width: int) -> Layer:
        caches, attention = softmax_attention(c, GEMMA3N, window=window if slides else None, keeps_kv=keeps_kv)
        weights = (
            *(vector(name, hidden) for name in GEMMA3N.layer_norms),
            *attention,
            *dense_mlp(c, GEMMA3N, width=width),
            vector("altup.correct_output_scale", hidden, group=Group.MLP, dtype="float32"),
            Weight("altup.correction_coefs", Group.MLP, inputs, inputs),
            Weight("altup.prediction_coefs", Group.MLP, inputs * inputs, inputs),
            Weight("altup.modality_router", Group.MLP, inputs, hidden),
            vector("altup.router_norm", hidden),
            linear("laurel.linear_left", Group.MLP, hidden, rank, split=Split.COLUMN),
            linear("laurel.linear_right", Group.MLP, rank, hidden, split=Split.ROW),
            vector("laurel.post_laurel_norm", hidden),
            *_per_layer_gate(c),
        )
        return Layer(caches, weights, shares_kv=not keeps_kv)

    plans = [(sliding[i], i < kept, widths[i]) for i in range(layers)]
    outside = (
        *_per_layer_inputs(c, layers),
        *(
            Weight(
                f"model.{name}",
                Group.EMBEDDINGS,
                hidden,
                hidden,
                count=inputs - 1,
                linear=True,
                split=Split.COLUMN,
            )
            for name in ("altup_projections", "altup_unembed_projections")
            if inputs > 1
        ),
    )
    return _alike(layers, build, plans), outside


GEMMA4_PERIOD = 6
GEMMA4_GLOBAL_HEAD_DIM = 512
"""The global layers' head size when the config names none (transformers 5.24, configuration_gemma4.py)."""


def gemma4_layers(c: Config) -> Stack:
    """Return the text layers of Gemma 4.

    Global layers have a head size (`global_head_dim`) and, where K serves as V (`attention_k_eq_v`), a number
    of KV heads of their own; the last `num_kv_shared_layers` read an earlier cache and may have an MLP twice
    as wide; experts stand beside the dense MLP (`enable_moe_block`). vLLM loads K once more as V, which is
    counted as a buffer.

    Source: transformers 5.24, models/gemma4; vllm/model_executor/models/gemma4.py, 0.32 (copies and splits).

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    layers, hidden = _depth(c), c.dim("hidden_size")
    sliding = (*_sliding(c, layers, period=GEMMA4_PERIOD)[:-1], False)  # the last layer is always global
    kept = _producers(c, layers, sliding)
    window = c.dim("sliding_window") if any(sliding) else None
    same = c.flag("attention_k_eq_v")
    wide = c.flag("use_double_wide_mlp")
    shapes = _overrides(c)
    if shapes is None:
        own = _gemma4_global(c, same=same)
        shapes = {i: own for i in range(layers) if not sliding[i]}

    def build(slides: bool, keeps_kv: bool, shape: tuple[tuple[str, Any], ...]) -> Layer:
        part = c.extended(dict(shape), c.defaults) if shape else c
        caches, attention = softmax_attention(part, GEMMA3N, window=window if slides else None, keeps_kv=keeps_kv)
        if same and not slides:
            attention = tuple(
                replace(weight, buffer=True) if weight.name.endswith("v_proj") else weight for weight in attention
            )
        width = c.dim("intermediate_size") * (2 if wide and not keeps_kv else 1)
        weights = (
            *(vector(name, hidden) for name in SANDWICH),
            *attention,
            *dense_mlp(c, GEMMA3N, width=width),
            *_per_layer_gate(c),
            *_gemma4_experts(c, hidden),
        )
        return Layer(caches, weights, shares_kv=not keeps_kv)

    plans = [(sliding[i], i < kept, tuple(shapes.get(i, {}).items())) for i in range(layers)]
    return _alike(layers, build, plans), _per_layer_inputs(c, layers)


def _gemma4_global(c: Config, *, same: bool) -> dict[str, Any]:
    """Return what global layers have instead of the config's own shape."""
    head_dim = c.integer("global_head_dim", minimum=1)
    if head_dim is None:
        head_dim = GEMMA4_GLOBAL_HEAD_DIM
        c.assumed.append((c.name("global_head_dim"), head_dim))
    shape: dict[str, Any] = {"head_dim": head_dim}
    kv_heads = c.integer("num_global_key_value_heads", minimum=1) if same else None
    if kv_heads is not None:
        shape["num_key_value_heads"] = kv_heads
    return shape


def _overrides(c: Config) -> dict[int, dict[str, Any]] | None:
    """Return what `per_layer_config` says of single layers, or None if the config has none.

    transformers 5.24 writes it instead of the keys it follows from, a layer's number padded with zeros.

    Raises:
        InputError: A key is not a layer's number, or an entry is broken.
    """
    listed = c.sub("per_layer_config")
    if listed is None:
        return None
    found: dict[int, dict[str, Any]] = {}
    for number in listed.data:
        entry = listed.sub(number) if number.isdecimal() and len(number) <= MAX_DIGITS else None
        if entry is None:
            raise InputError(
                f"{c.name('per_layer_config')} must map layer numbers to objects, found {number[:40]!r}; "
                "check the config."
            )
        found[int(number)] = {key: entry.count(key, minimum=1) for key in LAYER_KEYS if entry.has(key)}
    return found


def _gemma4_experts(c: Config, hidden: int) -> tuple[Weight, ...]:
    if not c.flag("enable_moe_block"):
        return ()
    experts = c.dim("num_experts", maximum=MAX_HEADS)
    return (
        linear("router.proj", Group.ROUTER, hidden, experts),
        vector("router.scale", hidden, group=Group.ROUTER),
        vector("router.per_expert_scale", experts, group=Group.ROUTER),
        *_experts("experts.*", hidden, c.dim("moe_intermediate_size"), experts),
        *(
            vector(name, hidden)
            for name in (
                "post_feedforward_layernorm_1",
                "post_feedforward_layernorm_2",
                "pre_feedforward_layernorm_2",
            )
        ),
    )


def _experts(name: str, hidden: int, width: int, count: int) -> tuple[Weight, ...]:
    """Return `count` gated experts of `width`."""
    return gated_mlp(name, Group.EXPERTS, hidden, width, count=count, split_in=Split.EXPERT, split_out=Split.EXPERT)


def _correction(name: str, experts: int) -> Weight:
    """Return a router's correction bias, which transformers counts as a buffer and vLLM keeps in float32."""
    return vector(name, experts, group=Group.ROUTER, dtype="float32", buffer=True)


# -- DeepSeek-V4


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressedCache:
    """One of the caches of DeepSeek-V4's attention, whole on every tensor-parallel rank.

    Args:
        role: "window" (K and V of the last tokens in one row), "latent" (one row for `compress_ratio`
        tokens), "index"
            (the indexer's FP8 key of such a row and its scale), or "state" (what a compressor has gathered,
            float32).
        width: Values of one row; bytes for "index".
        rope_dim: Of these, the values that keep their type in the packed layout.
        compress_ratio: Tokens of one row.
        sliding_window: Tokens kept, None for all.
        block_tokens: Tokens of one block.
    """

    role: str
    width: int
    rope_dim: int = 0
    compress_ratio: int = 1
    sliding_window: int | None = None
    block_tokens: int

    @property
    def kind(self) -> str:
        """The word for it in reports."""
        return f"compressed {self.role}"

    def row_bytes(self, element_bytes: int, *, packed: bool = True) -> int:
        """Return the bytes of one row.

        Args:
            element_bytes: Bytes of one value in the plain layout.
            packed: The layout ``fp8_ds_mla``: values in FP8, rope values in 16 bits, a scale byte for each 64
            values
                and one more. It is vLLM's choice, also for ``auto``, unless a FlashInfer backend is asked for
                or the card has compute capability 12.
        """
        if self.role == "index":
            return self.width
        if self.role == "state":
            return self.width * FLOAT32_BYTES
        if not packed:
            return self.width * element_bytes
        plain = self.width - self.rope_dim
        return plain + 2 * self.rope_dim + plain // PACKED_SCALE_VALUES + 1

    def page_bytes(self, element_bytes: int, *, packed: bool = True) -> int:
        """Return the bytes of one layer's block, rounded up to what the kernels ask for."""
        rows = self.block_tokens // self.compress_ratio
        align = PACKED_ALIGNMENT if packed else PLAIN_ALIGNMENT
        return -(-rows * self.row_bytes(element_bytes, packed=packed) // align) * align


FLOAT32_BYTES = 4
PACKED_SCALE_VALUES = 64
PACKED_ALIGNMENT = 576
PLAIN_ALIGNMENT = 512
"""The packed row and the alignment of a page (vllm/models/deepseek_v4/attention.py, get_kv_cache_spec,
0.32)."""

WINDOW_BLOCK = 64
LATENT_BLOCK = 256
STATE_BLOCK: Mapping[int, int] = MappingProxyType({4: 4, 128: 8})
"""Tokens of a block: v1/attention/backends/mla/sparse_swa.py, compressor.py, and what the backends agree on,
0.32."""

INDEXED_RATIO = 4
"""Only layers of this ratio have an indexer, and their compressors overlap (compressor.py)."""

INDEX_SCALE_VALUES = 128
COMPRESS_TYPES: Mapping[str, int] = MappingProxyType(
    {"sliding_attention": 1, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
)
"""Usual ratio of each word of `layer_types` (transformers 5.24, configuration_deepseek_v4.py)."""


def deepseek_v4_layers(c: Config) -> Stack:
    """Return the layers of DeepSeek-V4: compressed attention, hyper-connections, hash-routed experts.

    A layer compresses 4 or 128 tokens to one row (`compress_ratios`; 0 or 1 for none) beside a window of
    single tokens. Caches are `CompressedCache`. The first `num_hash_layers` route by a table of token ids
    instead of a correction bias. Names are the checkpoint's, with expert matrices as transformers names them.

    Source: vllm/models/deepseek_v4/{attention,compressor,nvidia/model}.py, 0.32 (caches, splits, float32);
    transformers 5.24, models/deepseek_v4 (the same weights). vLLM pads the sinks of a rank to 64 or 128
    heads.

    Raises:
        CannotTell: A key is missing, or a ratio is not known.
        InputError: A key is broken.
    """
    layers = _depth(c)
    ratios = _compress_ratios(c, layers)
    hashed = _hash_routed(c, layers)

    def build(ratio: int, hash_routed: bool) -> Layer:
        caches, attention = _compressed_attention(c, ratio)
        return Layer(caches, (*attention, *_v4_experts(c, hash_routed=hash_routed), *_hyper(c)))

    plans = list(zip(ratios, hashed, strict=True))
    streams, hidden = c.count("hc_mult", minimum=1, maximum=1 << 10), c.dim("hidden_size")
    outside = (
        Weight("hc_head_fn", Group.NORMS, streams, streams * hidden, dtype="float32"),
        vector("hc_head_base", streams, dtype="float32"),
        vector("hc_head_scale", 1, dtype="float32"),
    )
    return _alike(layers, build, plans), outside


def _hash_routed(c: Config, layers: int) -> tuple[bool, ...]:
    """Return which layers route by a table of token ids."""
    types = c.per_layer("mlp_layer_types", layers=layers)
    if types is not None:
        return _words(c, "mlp_layer_types", types, {"hash_moe": True, "moe": False})
    first = c.integer("num_hash_layers", maximum=MAX_LAYERS)
    if first is None:
        raise CannotTell(
            f"{c.name('num_hash_layers')} is missing, so which layers route by a table is unknown; "
            "add it to the config.",
            key=c.name("num_hash_layers"),
        )
    return tuple(i < first for i in range(layers))


def _compress_ratios(c: Config, layers: int) -> tuple[int, ...]:
    """Return the tokens of one compressed row for each layer, 1 for a layer that has the window alone."""
    listed = c.per_layer("compress_ratios", layers=layers)
    if listed is None:
        types = c.per_layer("layer_types", layers=layers)
        if types is None:
            raise CannotTell(
                f"{c.name('compress_ratios')} is missing, so what the layers keep is unknown; add it to the config.",
                key=c.name("compress_ratios"),
            )
        rates = c.sub("compress_rates")
        known = dict(COMPRESS_TYPES)
        for word in COMPRESS_TYPES:
            known[word] = (rates.integer(word) if rates is not None else None) or known[word]
        listed = tuple(known.get(word, word) if isinstance(word, str) else word for word in types)
    for i, ratio in enumerate(listed):
        if ratio not in (0, 1, *STATE_BLOCK):
            raise CannotTell(
                f"{c.name('compress_ratios')}[{i}] is {ratio!r}, and only 0, 1, 4 and 128 are known; update kvbudget.",
                key=f"{c.name('compress_ratios')}[{i}]",
            )
    return tuple(max(1, int(ratio)) for ratio in listed)


def _compressed_attention(c: Config, ratio: int) -> tuple[tuple[Any, ...], tuple[Weight, ...]]:
    """Return the caches and the weights of one attention; K and V are one row of `head_dim` for all heads."""
    hidden, head_dim = c.dim("hidden_size"), c.dim("head_dim")
    heads = c.dim("num_attention_heads", maximum=MAX_HEADS)
    q_rank, o_rank = c.dim("q_lora_rank"), c.dim("o_lora_rank")
    o_groups = c.dim("o_groups", maximum=MAX_HEADS)
    if heads * head_dim % o_groups:
        raise InputError(
            f"{c.name('o_groups')} {o_groups} does not divide {heads} heads of {head_dim}; check the config."
        )
    rope = c.dim("qk_rope_head_dim", maximum=head_dim)
    group = Group.ATTENTION
    weights = [
        vector("attn.attn_sink", heads, group=group, dtype="float32"),
        linear("attn.wq_a", group, hidden, q_rank),
        vector("attn.q_norm", q_rank),
        linear("attn.wq_b", group, q_rank, heads * head_dim, split=Split.COLUMN),
        linear("attn.wkv", group, hidden, head_dim),
        vector("attn.kv_norm", head_dim),
        linear("attn.wo_a", group, heads * head_dim // o_groups, o_groups * o_rank, split=Split.COLUMN),
        linear("attn.wo_b", group, o_groups * o_rank, hidden, split=Split.ROW),
        *(vector(name, hidden) for name in ("attn_norm", "ffn_norm")),
    ]
    caches = [
        CompressedCache(
            role="window",
            width=head_dim,
            rope_dim=rope,
            sliding_window=c.dim("sliding_window"),
            block_tokens=WINDOW_BLOCK,
        )
    ]
    if ratio > 1:
        state, added = _compressor("attn.compressor", group, hidden, head_dim, ratio)
        weights += added
        caches += [
            CompressedCache(
                role="latent",
                width=head_dim,
                rope_dim=rope,
                compress_ratio=ratio,
                block_tokens=LATENT_BLOCK,
            ),
            state,
        ]
    if ratio == INDEXED_RATIO:
        index_heads, index_dim = c.dim("index_n_heads", maximum=MAX_HEADS), c.dim("index_head_dim")
        state, added = _compressor("attn.indexer.compressor", Group.INDEXER, hidden, index_dim, ratio)
        weights += [
            linear("attn.indexer.wq_b", Group.INDEXER, q_rank, index_heads * index_dim),
            linear("attn.indexer.weights_proj", Group.INDEXER, hidden, index_heads),
            *added,
        ]
        caches += [
            CompressedCache(
                role="index",
                width=index_dim + index_dim // INDEX_SCALE_VALUES * FLOAT32_BYTES,
                compress_ratio=ratio,
                block_tokens=LATENT_BLOCK,
            ),
            state,
        ]
    return tuple(caches), tuple(weights)


def _compressor(
    name: str, group: Group, hidden: int, width: int, ratio: int
) -> tuple[CompressedCache, tuple[Weight, ...]]:
    """Return what a compressor gathers, twice as wide if it overlaps, and its weights."""
    overlap = 2 if ratio == INDEXED_RATIO else 1
    state = CompressedCache(
        role="state",
        width=2 * overlap * width,
        sliding_window=overlap * ratio,
        block_tokens=STATE_BLOCK[ratio],
    )
    return state, (
        Weight(f"{name}.ape", group, ratio, overlap * width, dtype="float32"),
        linear(f"{name}.wkv", group, hidden, overlap * width),
        linear(f"{name}.wgate", group, hidden, overlap * width),
        vector(f"{name}.norm", width),
    )


def _v4_experts(c: Config, *, hash_routed: bool) -> tuple[Weight, ...]:
    hidden, experts = c.dim("hidden_size"), c.dim("n_routed_experts", maximum=MAX_HEADS)
    width = c.dim("moe_intermediate_size")
    shared = c.count("n_shared_experts", maximum=MAX_HEADS)
    if hash_routed:
        rows, columns = c.dim("vocab_size"), c.dim("num_experts_per_tok", maximum=MAX_HEADS)
        routing = Weight("ffn.gate.tid2eid", Group.ROUTER, rows, columns, dtype="int32", buffer=True)
    else:
        routing = _correction("ffn.gate.bias", experts)
    return (
        linear("ffn.gate", Group.ROUTER, hidden, experts),
        routing,
        *_experts("ffn.experts.*", hidden, width, experts),
        *(gated_mlp("ffn.shared_experts", Group.SHARED_EXPERTS, hidden, width * shared) if shared else ()),
    )


def _hyper(c: Config) -> tuple[Weight, ...]:
    """Return a layer's hyper-connections: `hc_mult` residual streams mixed before each half."""
    streams, hidden = c.count("hc_mult", minimum=1, maximum=1 << 10), c.dim("hidden_size")
    mixes = (2 + streams) * streams
    return tuple(
        weight
        for part in ("hc_attn", "hc_ffn")
        for weight in (
            Weight(f"{part}_fn", Group.NORMS, mixes, streams * hidden, dtype="float32"),
            vector(f"{part}_base", mixes, dtype="float32"),
            vector(f"{part}_scale", 3, dtype="float32"),
        )
    )


# -- MiniMax-M3


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexKeys:
    """The key cache of a block-sparse attention's indexer: one key a token on every tensor-parallel rank.

    vLLM 0.32 keeps it in bfloat16 whatever the KV cache type, unless told otherwise by ``indexer_kv_dtype``
    (vllm/models/minimax_m3/common/indexer.py).
    """

    index_head_dim: int
    dtype: str = "bfloat16"

    @property
    def kind(self) -> str:
        """The word for it in reports."""
        return "indexer"


MINIMAX_M3 = Traits(qk_norm="head")


def minimax_m3_layers(c: Config) -> Stack:
    """Return the text layers of MiniMax-M3: GQA, on most layers with an indexer that chooses blocks of keys.

    Source: transformers 5.24, models/minimax_m3_vl; vllm/models/minimax_m3/nvidia/model.py, 0.32 (splits; the
    router in float32; index heads are split like KV heads).

    Raises:
        CannotTell: A key is missing, or an indexer has values of its own.
        InputError: A key is broken.
    """
    layers, hidden = _depth(c), c.dim("hidden_size")
    sparse = c.sub("sparse_attention_config")
    indexed = _indexed_layers(c, sparse, layers)
    mixtures = _m3_mixtures(c, layers)

    def build(has_indexer: bool, is_mixture: bool) -> Layer:
        caches, attention = softmax_attention(c, MINIMAX_M3)
        weights = [*(vector(name, hidden) for name in MINIMAX_M3.layer_norms), *attention]
        kept: tuple[Any, ...] = caches
        if has_indexer:
            keys, added = _block_indexer(c, sparse, hidden)
            kept += (keys,)
            weights += added
        weights += (
            _m3_experts(c, hidden)
            if is_mixture
            else gated_mlp("mlp", Group.MLP, hidden, c.dim("dense_intermediate_size", "intermediate_size"))
        )
        return Layer(kept, tuple(weights))

    return _alike(layers, build, list(zip(indexed, mixtures, strict=True))), ()


def _m3_mixtures(c: Config, layers: int) -> tuple[bool, ...]:
    types = c.per_layer("mlp_layer_types", layers=layers)
    if types is not None:
        return _words(c, "mlp_layer_types", types, MLP_WORDS)
    flags = c.per_layer("moe_layer_freq", layers=layers)
    return (True,) * layers if flags is None else _switches(c, "moe_layer_freq", flags)


def _indexed_layers(c: Config, sparse: Config | None, layers: int) -> tuple[bool, ...]:
    types = c.per_layer("layer_types", layers=layers)
    if types is not None:
        return _words(c, "layer_types", types, {"minimax_m3_sparse": True, "full_attention": False})
    flags = None if sparse is None else sparse.per_layer("sparse_attention_freq", layers=layers)
    if sparse is None or flags is None:
        return (False,) * layers
    indexed = _switches(sparse, "sparse_attention_freq", flags)
    disabled = sparse.per_layer("sparse_disable_index_value", layers=layers)
    for i, has_indexer in enumerate(indexed):
        if has_indexer and disabled is not None and not disabled[i]:
            key = f"{sparse.name('sparse_disable_index_value')}[{i}]"
            raise CannotTell(
                f"{key} is {disabled[i]!r}, and an indexer with values of its own is not known; update kvbudget.",
                key=key,
            )
    return indexed


def _block_indexer(c: Config, sparse: Config | None, hidden: int) -> tuple[IndexKeys, tuple[Weight, ...]]:
    if sparse is not None and sparse.has("sparse_index_dim"):
        heads, width = (
            sparse.dim("sparse_num_index_heads", maximum=MAX_HEADS),
            sparse.dim("sparse_index_dim"),
        )
    else:
        heads, width = c.dim("index_n_heads", maximum=MAX_HEADS), c.dim("index_head_dim")
    return IndexKeys(index_head_dim=width), (
        linear("self_attn.index_q_proj", Group.INDEXER, hidden, heads * width, split=Split.KV, heads=heads),
        linear("self_attn.index_k_proj", Group.INDEXER, hidden, width),
        vector("self_attn.index_q_norm", width),
        vector("self_attn.index_k_norm", width),
    )


def _m3_experts(c: Config, hidden: int) -> tuple[Weight, ...]:
    name, width = "block_sparse_moe", c.dim("intermediate_size")
    experts = c.dim("num_local_experts", "num_experts", maximum=MAX_HEADS)
    shared = c.integer("shared_intermediate_size")
    if shared is None:
        shared = width * (c.integer("n_shared_experts", maximum=MAX_HEADS) or 0)
    return (
        Weight(f"{name}.gate", Group.ROUTER, experts, hidden, dtype="float32"),
        _correction(f"{name}.e_score_correction_bias", experts),
        *_experts(f"{name}.experts.*", hidden, width, experts),
        *(gated_mlp(f"{name}.shared_experts", Group.SHARED_EXPERTS, hidden, shared) if shared else ()),
    )


# -- Step 3.5 and 3.7

STEP = Traits(
    qk_norm="head",
    qkv_bias="attention_bias",
    out_bias="attention_bias",
    experts=Experts(number=("moe_num_experts", "n_routed_experts", "num_experts", "num_local_experts"), name="moe"),
)


def step3p5_layers(c: Config) -> Stack:
    """Return the text layers of Step 3.5 and 3.7: window layers with heads of their own, a gate a head.

    `attention_other_setting` (or `num_sliding_attention_heads`) gives the window layers their heads.

    Source: transformers 5.24, models/step3p7; vllm/model_executor/models/step3p5.py, 0.32 (splits; the router
    in float32). A config that flattens them away, as some copies do, is read with the same heads for all
    layers.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    layers, hidden = _depth(c), c.dim("hidden_size")
    window = c.integer("sliding_window") or None
    if window is not None and c.raw("layer_types") is None:
        raise CannotTell(
            f"{c.name('layer_types')} is missing, so which of {layers} layers have the window is unknown; "
            "add it to the config.",
            key=c.name("layer_types"),
        )
    sliding = _sliding(c, layers, period=1) if window is not None else (False,) * layers
    mixtures = expert_layers(c, STEP, layers)
    shapes = _overrides(c)
    if shapes is None:
        own = _step_window_shape(c)
        shapes = {i: own for i in range(layers) if sliding[i]}
    groups = c.integer("num_attention_groups", minimum=1)
    base = (
        c if groups is None or c.has("num_key_value_heads") else c.extended({"num_key_value_heads": groups}, c.defaults)
    )
    gated = c.flag("use_head_wise_attn_gate", default=True)

    def build(slides: bool, is_mixture: bool, shape: tuple[tuple[str, Any], ...]) -> Layer:
        part = base.extended(dict(shape), base.defaults) if shape else base
        caches, attention = softmax_attention(part, STEP, window=window if slides else None)
        weights = [*(vector(name, hidden) for name in STEP.layer_norms), *attention]
        if gated:
            heads = part.dim("num_attention_heads", maximum=MAX_HEADS)
            weights.append(linear("self_attn.g_proj", Group.ATTENTION, hidden, heads, split=Split.COLUMN))
        weights += _step_experts(c, hidden) if is_mixture else dense_mlp(c, STEP)
        return Layer(caches, tuple(weights))

    plans = [(sliding[i], mixtures[i], tuple(shapes.get(i, {}).items())) for i in range(layers)]
    return _alike(layers, build, plans), ()


def _step_window_shape(c: Config) -> dict[str, Any]:
    """Return the heads of the window layers where they differ from the others'."""
    other = c.sub("attention_other_setting")
    if other is None or other.text("attention_type") not in (None, "sliding_attention"):
        heads = c.integer("num_sliding_attention_heads", minimum=1, maximum=MAX_HEADS)
        return {} if heads is None else {"num_attention_heads": heads}
    shape: dict[str, Any] = {"num_attention_heads": other.dim("num_attention_heads", maximum=MAX_HEADS)}
    for key, ours in (("num_attention_groups", "num_key_value_heads"), ("head_dim", "head_dim")):
        value = other.integer(key, minimum=1)
        if value is not None:
            shape[ours] = value
    return shape


def _step_experts(c: Config, hidden: int) -> tuple[Weight, ...]:
    assert STEP.experts is not None  # noqa: S101 - the row above
    experts, width = expert_count(c, STEP.experts), c.dim("moe_intermediate_size")
    return (
        Weight("moe.gate", Group.ROUTER, experts, hidden, dtype="float32"),
        _correction("moe.router_bias", experts),
        *_experts("moe.experts.*", hidden, width, experts),
        *gated_mlp("share_expert", Group.SHARED_EXPERTS, hidden, c.dim("share_expert_dim", "share_expert_dims")),
    )


# -- Kimi Linear and Kimi K3

KIMI = Traits(attention="mla")


def kimi_linear_layers(c: Config) -> Stack:
    """Return the layers of Kimi Linear and of Kimi K3's text model: KDA and latent attention in turns.

    K3 adds an output gate to the latent attention (`mla_use_output_gate`), experts in a narrower space
    (`routed_expert_hidden_size`) and attention over earlier blocks of layers (`attn_res_block_size`).

    Source: vllm/models/kimi_k3/nvidia/model.py and mla.py, 0.32; transformers 5.24, models/kimi_linear. Known
    difference: vLLM pads the experts of a rank to a width of 256.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    layers, hidden = _depth(c), c.dim("hidden_size")
    states = _kda_layers(c, layers)
    mixtures = _kimi_mixtures(c, layers)
    residual = c.integer("attn_res_block_size", minimum=1) is not None

    def build(is_state: bool, is_mixture: bool) -> Layer:
        weights = [vector(name, hidden) for name in KIMI.layer_norms]
        caches: tuple[Cache, ...]
        if is_state:
            mixer = kda(c)
            caches = mixer.caches
            weights += mixer.weights
        else:
            caches, attention = latent_attention(c, KIMI, indexer=False)
            weights += attention
            if c.flag("mla_use_output_gate"):
                gate = c.dim("num_attention_heads", maximum=MAX_HEADS) * c.dim("v_head_dim")
                weights.append(linear("self_attn.g_proj", Group.ATTENTION, hidden, gate, split=Split.COLUMN))
        weights += _kimi_experts(c, hidden) if is_mixture else dense_mlp(c, KIMI)
        if residual:
            weights += _attention_residual(("self_attention_res", "mlp_res"), hidden)
        return Layer(caches, tuple(weights))

    outside = _attention_residual(("model.output_attn_res",), hidden) if residual else ()
    return _alike(layers, build, list(zip(states, mixtures, strict=True))), outside


def _kda_layers(c: Config, layers: int) -> tuple[bool, ...]:
    """Return which layers keep a state: `linear_attn_config` counts them from 1."""
    sizes = c.sub("linear_attn_config")
    numbers = None if sizes is None else sizes.integers("kda_layers", minimum=1)
    if numbers is not None:
        return tuple(i + 1 in numbers for i in range(layers))
    types = c.per_layer("layer_types", layers=layers)
    if types is None:
        raise CannotTell(
            f"{c.name('linear_attn_config.kda_layers')} is missing, so which layers keep a KV cache is unknown; "
            "add it to the config.",
            key=c.name("linear_attn_config.kda_layers"),
        )
    return _words(c, "layer_types", types, {"linear_attention": True, "full_attention": False})


def _kimi_mixtures(c: Config, layers: int) -> tuple[bool, ...]:
    types = c.per_layer("mlp_layer_types", layers=layers)
    if types is not None:
        return _words(c, "mlp_layer_types", types, MLP_WORDS)
    if not c.raw("num_experts", "num_local_experts"):
        return (False,) * layers
    first = c.integer("first_k_dense_replace", maximum=MAX_LAYERS) or 0
    step = c.integer("moe_layer_freq", minimum=1) or 1
    return tuple(i >= first and i % step == 0 for i in range(layers))


def _kimi_experts(c: Config, hidden: int) -> tuple[Weight, ...]:
    name, width = "block_sparse_moe", c.dim("moe_intermediate_size")
    experts = c.dim("num_experts", "num_local_experts", maximum=MAX_HEADS)
    shared = c.integer("num_shared_experts", "n_shared_experts", maximum=MAX_HEADS) or 0
    latent = c.integer("routed_expert_hidden_size", minimum=1)
    weights = [
        linear(f"{name}.gate", Group.ROUTER, hidden, experts),
        _correction(f"{name}.gate.e_score_correction_bias", experts),
        *_experts(f"{name}.experts.*", latent or hidden, width, experts),
    ]
    if shared:
        weights += gated_mlp(f"{name}.shared_experts", Group.SHARED_EXPERTS, hidden, width * shared)
    if latent:
        # vLLM's MXFP4 packs the experts alone, so these two are no matrices that a format may pack.
        weights += [
            Weight(f"{name}.routed_expert_down_proj", Group.MLP, latent, hidden),
            Weight(f"{name}.routed_expert_up_proj", Group.MLP, hidden, latent),
        ]
        if c.flag("latent_moe_use_norm"):
            weights.append(vector(f"{name}.routed_expert_norm", latent))
    return tuple(weights)


def _attention_residual(names: tuple[str, ...], hidden: int) -> tuple[Weight, ...]:
    return tuple(
        weight
        for name in names
        for weight in (
            vector(f"{name}_norm", hidden),
            Weight(f"{name}_proj", Group.ATTENTION, 1, hidden),
        )
    )


# -- Nemotron-NAS, OpenELM: every layer has sizes of its own

FFN_MULTIPLE = 256
"""Nemotron-NAS rounds an MLP's width up to this (vllm/model_executor/models/nemotron_nas.py, 0.32)."""


def nemotron_nas_layers(c: Config) -> Stack:
    """Return the layers of a Nemotron-NAS model: `block_configs` says what each one is.

    A layer may lack attention or MLP, together with the norm before it.

    Source: vllm/model_executor/models/nemotron_nas.py, 0.32.

    Raises:
        CannotTell: A block uses a replacement that vLLM does not serve, or a key is missing.
        InputError: A key is broken.
    """
    layers, hidden = _depth(c), c.dim("hidden_size")
    heads = c.dim("num_attention_heads", maximum=MAX_HEADS)
    blocks = c.per_layer("block_configs", layers=layers)
    if blocks is None:
        raise CannotTell(
            f"{c.name('block_configs')} is missing, so what the layers are is unknown; add it to the config.",
            key=c.name("block_configs"),
        )

    def build(kv_heads: int, width: int) -> Layer:
        caches: tuple[Cache, ...] = ()
        weights: list[Weight] = []
        if kv_heads:
            part = c.extended({"num_key_value_heads": kv_heads}, c.defaults)
            caches, attention = softmax_attention(part, PLAIN)
            weights += [vector("input_layernorm", hidden), *attention]
        if width:
            bias = c.flag("mlp_bias")
            weights += [
                vector("post_attention_layernorm", hidden),
                *gated_mlp("mlp", Group.MLP, hidden, width, bias=bias),
            ]
        return Layer(caches, tuple(weights))

    plans = [_nas_plan(c, i, block, heads, hidden) for i, block in enumerate(blocks)]
    return _alike(layers, build, plans), ()


def _nas_plan(c: Config, layer: int, block: object, heads: int, hidden: int) -> tuple[int, int]:
    """Return (KV heads, MLP width) of one block, 0 for a part that it lacks."""
    path = f"block_configs[{layer}]"
    parent = c.extended({path: block}, c.defaults).sub(path)
    attention = parent.sub("attention") if parent is not None else None
    ffn = parent.sub("ffn") if parent is not None else None
    if attention is None or ffn is None:
        raise CannotTell(
            f"{c.name(path)} has no attention or no ffn, so what the layer is is unknown; check the config.",
            key=c.name(path),
        )
    for part, key in ((attention, "replace_with_linear"), (ffn, "replace_with_linear"), (attention, "window_length")):
        if part.raw(key):
            raise CannotTell(
                f"{part.name(key)} is {part.raw(key)!r}, which vLLM does not serve and kvbudget does not know; "
                "give the checkpoint's headers.",
                key=part.name(key),
            )
    kv_heads = 0
    if not attention.flag("no_op"):
        group = attention.dim("n_heads_in_group", maximum=MAX_HEADS)
        if heads % group:
            raise InputError(
                f"{attention.name('n_heads_in_group')} {group} does not divide {heads} heads; check the config."
            )
        kv_heads = heads // group
    return kv_heads, 0 if ffn.flag("no_op") else _nas_width(ffn, hidden)


def _nas_width(ffn: Config, hidden: int) -> int:
    if not ffn.has("ffn_mult"):
        return ffn.dim("intermediate_size")
    width = int(2 * ffn.number("ffn_mult", default=1.0) * hidden / 3)
    return -(-width // FFN_MULTIPLE) * FFN_MULTIPLE


SHRINK_LIMIT = 0.9
"""Rounding may not take more than a tenth off a width (OpenELM's modeling_openelm.py, make_divisible)."""


def openelm_layers(c: Config) -> Stack:
    """Return the layers of OpenELM: heads, KV heads and MLP width differ from layer to layer.

    Source: apple/OpenELM's modeling_openelm.py (no class in transformers 5.24 or vLLM 0.32); the total of
    OpenELM-270M, 271,527,168, was checked.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    layers = _depth(c, "num_transformer_layers", "num_hidden_layers")
    hidden, head_dim = c.dim("model_dim", "hidden_size"), c.dim("head_dim")
    gated, normed = c.flag("ffn_with_glu", default=True), c.flag("normalize_qk_projections", default=True)
    multiple = c.count("ffn_dim_divisor", minimum=1)
    columns = []
    for key in ("num_query_heads", "num_kv_heads", "ffn_multipliers"):
        values = c.per_layer(key, layers=layers)
        if values is None:
            raise CannotTell(
                f"{c.name(key)} is missing, so the sizes of the layers are unknown; add it to the config.",
                key=c.name(key),
            )
        columns.append(values)

    def build(heads: int, kv_heads: int, width: int) -> Layer:
        cache = Attention(
            num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, v_head_dim=head_dim
        )
        group, split = Group.ATTENTION, Split.COLUMN
        weights = [
            vector("attn_norm", hidden),
            linear("attn.qkv_proj", group, hidden, heads * head_dim, split=split),
            linear("attn.qkv_proj", group, hidden, 2 * kv_heads * head_dim, split=Split.KV, heads=kv_heads),
            linear("attn.out_proj", group, heads * head_dim, hidden, split=Split.ROW),
            *(vector(f"attn.{part}_norm", head_dim) for part in "qk" if normed),
            vector("ffn_norm", hidden),
            linear("ffn.proj_1", Group.MLP, hidden, width * (2 if gated else 1), split=split),
            linear("ffn.proj_2", Group.MLP, width, hidden, split=Split.ROW),
        ]
        return Layer((cache,), tuple(weights))

    plans = [
        (
            c.checked(columns[0][i], "num_query_heads", minimum=1, maximum=MAX_HEADS),
            c.checked(columns[1][i], "num_kv_heads", minimum=1, maximum=MAX_HEADS),
            _openelm_width(c, columns[2][i], hidden, multiple),
        )
        for i in range(layers)
    ]
    return _alike(layers, build, plans), ()


def _openelm_width(c: Config, multiplier: object, hidden: int, multiple: int) -> int:
    """Return the nearest multiple of the divisor, one more if that takes too much off."""
    entry = c.extended({"ffn_multipliers": multiplier}, c.defaults)
    exact = entry.number("ffn_multipliers", default=1.0) * hidden
    width = max(multiple, int(exact + multiple / 2) // multiple * multiple)
    return width + multiple if width < SHRINK_LIMIT * exact else width


# -- LongCat-Flash: two attentions and two MLPs a layer beside one mixture

LONGCAT = Traits(attention="mla")


def longcat_flash_layers(c: Config) -> Stack:
    """Return the layers of LongCat-Flash: two latent attentions and two MLPs beside one mixture.

    The router also scores `zero_expert_num` experts that pass their input through and have no weights.

    Source: vllm/model_executor/models/longcat_flash.py, 0.32 (the router in float32); transformers 5.24,
    models/longcat_flash, whose count of 741 billion takes the zero experts for real ones.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    layers = (
        _depth(c, "num_layers")
        if c.has("num_layers")
        else c.dim("num_hidden_layers", minimum=2, maximum=MAX_LAYERS) // 2
    )
    hidden, experts = c.dim("hidden_size"), c.dim("n_routed_experts", maximum=MAX_HEADS)
    scored = experts + (c.integer("zero_expert_num", maximum=MAX_HEADS) or 0)
    caches: tuple[Cache, ...] = ()
    weights: list[Weight] = []
    for half in ("0", "1"):
        kept, attention = latent_attention(c, LONGCAT, indexer=False, name=f"self_attn.{half}")
        caches += kept
        weights += [vector(f"{name}.{half}", hidden) for name in LONGCAT.layer_norms]
        weights += attention
        weights += gated_mlp(f"mlps.{half}", Group.MLP, hidden, c.dim("ffn_hidden_size", "intermediate_size"))
    width = c.dim("expert_ffn_hidden_size", "moe_intermediate_size")
    weights += [
        Weight("mlp.router.classifier", Group.ROUTER, scored, hidden, dtype="float32"),
        _correction("mlp.router.e_score_correction_bias", scored),
        *_experts("mlp.experts.*", hidden, width, experts),
    ]
    return (Layer(caches, tuple(weights)),) * layers, ()


# -- Zamba2: one transformer block that many layers share

ZAMBA2_KINDS: Mapping[str, bool] = MappingProxyType(
    {"mamba": False, "linear_attention": False, "m": False, "hybrid": True, "g": True}
)
"""Words of `layers_block_type`: does the shared block stand before the layer's Mamba-2?"""


def zamba2_layers(c: Config) -> Stack:
    """Return the layers of Zamba2: Mamba-2, and before some of them a transformer block that they share.

    There are `num_mem_blocks` such blocks, used in turns; each use has adapters of its own. Weights of a
    block stand in the first layer that uses it. The block reads the hidden state beside the embedding, hence
    twice the width.

    Source: transformers 5.24, models/zamba2; vllm/model_executor/models/zamba2.py, 0.32.

    Raises:
        CannotTell: A key is missing, or a layer's kind is not known.
        InputError: A key is broken.
    """
    layers, hidden = _depth(c), c.dim("hidden_size")
    words = c.per_layer("layers_block_type", "layer_types", layers=layers)
    if words is None:
        key = c.name("layers_block_type")
        raise CannotTell(
            f"{key} is missing, so where attention stands among {layers} layers is unknown; add it to the config.",
            key=key,
        )
    blocks = c.count("num_mem_blocks", minimum=1, maximum=MAX_LAYERS)
    uses = 0
    plans = []
    for shared in _words(c, "layers_block_type", words, ZAMBA2_KINDS):
        plans.append((shared, shared and uses < blocks))
        uses += shared

    def build(shared: bool, owns_block: bool) -> Layer:
        name = "mamba_decoder.mamba" if shared else "mamba"
        mixer = mamba2(c, name=name)
        norm_name = "mamba_decoder.input_layernorm" if shared else "input_layernorm"
        weights = [vector(norm_name, hidden), *mixer.weights]
        caches: tuple[Cache, ...] = mixer.caches
        if shared:
            kept, added = _zamba2_block(c, hidden, owns_block=owns_block)
            caches += kept
            weights += added
        return Layer(caches, tuple(weights))

    return _alike(layers, build, plans), ()


def _zamba2_block(c: Config, hidden: int, *, owns_block: bool) -> tuple[tuple[Cache, ...], tuple[Weight, ...]]:
    """Return the cache of one use of the shared block, its adapters, and the block itself if `owns_block`."""
    name, group = "shared_transformer", Group.ATTENTION
    heads = c.dim("num_attention_heads", maximum=MAX_HEADS)
    kv_heads = c.integer("num_key_value_heads", minimum=1, maximum=MAX_HEADS) or heads
    inner, head_dim = 2 * hidden, 2 * hidden // heads
    if inner % heads or heads % kv_heads:
        raise InputError(
            f"{c.name('num_attention_heads')} {heads} does not fit a width of {inner} and {kv_heads} KV heads; "
            "check the config."
        )
    width = c.integer("intermediate_size", minimum=1) or 4 * hidden
    rank, bias = c.count("adapter_rank", minimum=1), c.flag("add_bias_linear")
    weights = [linear("linear", group, hidden, hidden)]
    if owns_block:
        q, kv = heads * head_dim, kv_heads * head_dim
        weights += [
            linear(f"{name}.self_attn.q_proj", group, inner, q, split=Split.COLUMN),
            *(
                linear(f"{name}.self_attn.{part}", group, inner, kv, split=Split.KV, heads=kv_heads)
                for part in ("k_proj", "v_proj")
            ),
            linear(f"{name}.self_attn.o_proj", group, q, hidden, split=Split.ROW),
            linear(f"{name}.feed_forward.gate_up_proj", Group.MLP, hidden, 2 * width, bias=bias, split=Split.COLUMN),
            linear(f"{name}.feed_forward.down_proj", Group.MLP, width, hidden, bias=bias, split=Split.ROW),
            vector(f"{name}.input_layernorm", inner),
            vector(f"{name}.pre_ff_layernorm", hidden),
        ]
    adapters = [(f"{name}.feed_forward.gate_up_proj_adapter_list", Group.MLP, hidden, 2 * width)]
    if c.flag("use_shared_attention_adapter"):
        adapters += [(f"{name}.self_attn.linear_{part}_adapter_list", group, inner, inner) for part in "qkv"]
    for path, part_group, width_in, width_out in adapters:
        weights += [
            linear(f"{path}.0", part_group, width_in, rank, split=Split.COLUMN),
            linear(f"{path}.1", part_group, rank, width_out, split=Split.COLUMN),
        ]
    cache = Attention(num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim, v_head_dim=head_dim)
    return (cache,), tuple(weights)


# -- RecurrentGemma

RECURRENT_KINDS: Mapping[str, bool] = MappingProxyType(
    {"recurrent": True, "linear_attention": True, "attention": False, "sliding_attention": False}
)
"""Words of `block_types`: is the layer a recurrence?"""


def recurrent_gemma_layers(c: Config) -> Stack:
    """Return the layers of RecurrentGemma: recurrences and window attention in a repeating pattern.

    Source: transformers 5.24, models/recurrent_gemma; vLLM 0.32 does not serve it.

    Raises:
        CannotTell: A key is missing, or a layer's kind is not known.
        InputError: A key is broken.
    """
    layers, hidden = _depth(c), c.dim("hidden_size")
    pattern = c.raw("block_types", "layers_block_type", "layer_types")
    if not isinstance(pattern, (list, tuple)) or not pattern:
        raise CannotTell(
            f"{c.name('block_types')} must list recurrent and attention, so which layers keep a KV cache is "
            "unknown; add it to the config.",
            key=c.name("block_types"),
        )
    recurrences = _words(c, "block_types", pattern[:layers], RECURRENT_KINDS)
    width = c.dim("intermediate_size") // 2  # of gate and up together

    def build(recurrent: bool) -> Layer:
        if recurrent:
            mixer = rg_lru(c)
            caches, mixing = mixer.caches, mixer.weights
        else:
            caches, mixing = softmax_attention(
                c,
                PLAIN._replace(out_bias=True),
                window=c.dim("attention_window_size", "sliding_window"),
                name="temporal_block",
            )
        return Layer(
            caches,
            (
                vector("temporal_pre_norm", hidden),
                *mixing,
                vector("channel_pre_norm", hidden),
                *gated_mlp("mlp_block", Group.MLP, hidden, width, bias=True),
            ),
        )

    plans = [(recurrences[i % len(recurrences)],) for i in range(layers)]
    return _alike(layers, build, plans), ()


SPECIAL: Mapping[str, Callable[[Config], Stack]] = MappingProxyType(
    {
        "gemma3n_text": gemma3n_layers,
        "gemma4_text": gemma4_layers,
        "deepseek_v4": deepseek_v4_layers,
        "deepseek_ref": deepseek_v4_layers,
        "minimax_m3": minimax_m3_layers,
        "minimax_m3_vl": minimax_m3_layers,
        "minimax_m3_vl_text": minimax_m3_layers,
        "step3p5": step3p5_layers,
        "step3p7_text": step3p5_layers,
        "kimi_linear": kimi_linear_layers,
        "nemotron-nas": nemotron_nas_layers,
        "openelm": openelm_layers,
        "longcat_flash": longcat_flash_layers,
        "zamba2": zamba2_layers,
        "recurrent_gemma": recurrent_gemma_layers,
    }
)
"""Model type of the language model -> its layers."""
