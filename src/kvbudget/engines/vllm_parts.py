"""vLLM: the caches of a model as the engine sees them, and what its rules ask of the model.

Source: vLLM 0.32, model_executor/layers/attention/ (which cache a layer asks for), models/config.py (what a model
changes), config/model.py and config/vllm.py (what is refused); the differences of the versions since 0.8.5 are in
`kvbudget.facts.vllm_cache`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import vllm_backends as backends
from kvbudget.facts import vllm_cache as facts
from kvbudget.facts.formats import dtype_bytes, kv_format
from kvbudget.facts.vllm import at
from kvbudget.model.shapes import Attention, CrossAttention, Indexer, LatentAttention, RecurrentState
from kvbudget.parallel import local_heads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.facts.vllm import Version
    from kvbudget.model import Model
    from kvbudget.model.shapes import Cache, Layer

INDEXER_SCALE_VALUES = 128
INDEXER_SCALE_BYTES = 4
"""The indexer keeps one FP8 byte a value and one float32 scale for so many values (models/deepseek_v2.py)."""

PLAIN = (Attention, LatentAttention, Indexer, CrossAttention, RecurrentState)
"""The usual kinds of cache; few models have others, which `kvbudget.model.special` describes."""

TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")


class CacheSettings(NamedTuple):
    """Every choice that the cache depends on, resolved.

    Attributes:
        version: The engine's version.
        dtype: The model's data type ("bfloat16").
        kv_cache_dtype: As given by the flag ("auto", "fp8", …).
        block_size: As given by the flag, or None.
        compute_capability: The card's, such as (9, 0), or None if it has none.
        max_num_seqs: Not used by the arithmetic, kept for who prints the settings.
        async_scheduling: Scheduling runs a step ahead; None is what the engine does by itself.
        enable_prefix_caching: None is what the engine does by itself for this model.
        num_speculative_tokens: Tokens that a draft proposes in a step.
        draft_layers: Layers of a draft that share the cache, on the last pipeline stage.
        lookahead_tokens: Tokens beyond a request's own for which it holds blocks, those that a draft writes.
        text_only: Nothing but text can reach a multimodal model, so it attends as a text model.
        retained_tokens: Tokens that windows keep longer, because several draft layers read on before each other.
    """

    version: Version
    max_model_len: int
    max_num_batched_tokens: int
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    dtype: str = "bfloat16"
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    compute_capability: tuple[int, int] | None = (9, 0)
    max_num_seqs: int = 0
    async_scheduling: bool | None = None
    enable_prefix_caching: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    num_speculative_tokens: int = 0
    draft_layers: tuple[Layer, ...] = ()
    lookahead_tokens: int = 0
    retained_tokens: int = 0
    text_only: bool = False


class Pages(NamedTuple):
    """A cache whose pages depend neither on the cache's type nor on the layout.

    Attributes:
        kind: See `Spec.kind`.
        limit: Tokens of its window, 0 for none.
        block_size: Tokens of a page.
        page_bytes: Bytes of it.
        compressed: It is one of the caches of compressed latents, all of which have their own block size.
    """

    kind: str
    limit: int
    block_size: int
    page_bytes: int
    compressed: bool


class Part(NamedTuple):
    """One cache of one kind of layer.

    Attributes:
        cache: Its shape.
        own_type: It keeps the model's own type whatever the others do.
        sinks: Its attention has sinks.
        block_sparse: An indexer chooses blocks of its keys.
        layers: The numbers of its layers.
    """

    cache: Cache | Pages
    own_type: bool
    sinks: bool
    block_sparse: bool
    layers: list[int]


class Context(NamedTuple):
    """The settings and what rules ask of the model.

    Attributes:
        s: The settings.
        outer_type: The model type of the whole model.
        kv_cache_dtype: The cache's type as resolved so far.
        caching: Prefixes are cached.
        states: The kinds of state that layers keep.
        images: The model attends in both directions inside images.
        softcap: It caps the logits of attention.
        nope: Its `qk_nope_head_dim`, or 0.
        topk: Its `index_topk`, or 0.
        sparse: Its latent attention has an indexer.
        widest: Its widest head.
    """

    s: CacheSettings
    outer_type: str
    kv_cache_dtype: str
    caching: bool
    states: frozenset[str]
    images: bool
    softcap: bool
    nope: int
    topk: int
    sparse: bool
    widest: int

    def token_bytes(
        self, cache: Attention | LatentAttention | CrossAttention | Indexer, kind: str, *, own: bool
    ) -> int:
        """Return the bytes of one token in one layer's cache on one rank."""
        if isinstance(cache, Indexer):
            return cache.index_head_dim + cache.index_head_dim // INDEXER_SCALE_VALUES * INDEXER_SCALE_BYTES
        named = self.s.dtype if own or self.kv_cache_dtype == "auto" else self.kv_cache_dtype
        layout = kv_format(named)
        if isinstance(cache, LatentAttention):
            return layout.latent_row_bytes(cache.kv_lora_rank, cache.qk_rope_head_dim)
        heads = local_heads(cache.num_key_value_heads, self.s.tensor_parallel_size)
        width = cache.v_head_dim if isinstance(cache, Attention) else cache.head_dim
        if kind not in at(facts.OWN_VALUE_WIDTH, self.s.version):
            width = cache.head_dim
        return heads * layout.head_bytes(cache.head_dim, width)


def dotted(version: Version) -> str:
    """Return a version as people write it."""
    return ".".join(map(str, version))


def cdiv(a: int, b: int) -> int:
    """Return a / b, rounded up."""
    return -(-a // b)


def parts_of(model: Model, s: CacheSettings) -> list[Part]:
    """Return each kind of cache once, in the order of its first layer."""
    layers = model.layers + s.draft_layers
    numbers: dict[int, list[int]] = {}
    for i, layer in enumerate(layers):
        numbers.setdefault(id(layer), []).append(i)
    edge = _edge(model, s)
    whole = model.model_type in facts.OWN_TYPE_ALWAYS
    parts = []
    for where in numbers.values():
        layer = layers[where[0]]
        sinks = any(weight.name.endswith(".sinks") for weight in layer.weights)
        caches = [_as_cached(cache, model, s) for cache in layer.caches]
        chosen = any(isinstance(cache, Pages) for cache in caches)
        for kept in caches:
            outer = [i for i in where if whole or i < edge or len(model.layers) - edge <= i] if edge or whole else []
            if outer:
                parts.append(Part(kept, own_type=True, sinks=sinks, block_sparse=chosen, layers=outer))
            inner = [i for i in where if i not in outer] if outer else where
            if inner:
                parts.append(Part(kept, own_type=False, sinks=sinks, block_sparse=chosen, layers=inner))
    return sorted(parts, key=lambda part: part.layers[0])


def _edge(model: Model, s: CacheSettings) -> int:
    """Return how many first and last layers keep the model's own type."""
    edge = facts.BOUNDARY_LAYERS.get(s.kv_cache_dtype, 0)
    if not edge or any(isinstance(cache, RecurrentState) for layer in model.layers for cache in layer.caches):
        return 0
    return min(edge, len(model.layers) // 2)


def _as_cached(cache: object, model: Model, s: CacheSettings) -> Cache | Pages:
    """Return what vLLM caches of a latent: the latent, or every head's full key and value for other model types."""
    if not isinstance(cache, PLAIN):
        return _pages(cache, model, s)
    if not isinstance(cache, LatentAttention) or model.model_type in backends.LATENT_TYPES:
        return cache
    nope = _text_value(model, "qk_nope_head_dim")
    if not isinstance(nope, int):
        raise CannotTell(
            f"vLLM caches full keys for model type {model.model_type!r}, and qk_nope_head_dim, which sizes them, is "
            "missing; add it to the config.",
            key="qk_nope_head_dim",
        )
    heads, width = cache.num_attention_heads, nope + cache.qk_rope_head_dim
    return Attention(num_attention_heads=heads, num_key_value_heads=heads, head_dim=width, v_head_dim=width)


def _pages(cache: object, model: Model, s: CacheSettings) -> Pages:
    """Return the pages of the rare kinds of cache."""
    from kvbudget.model.special import CompressedCache, IndexKeys  # noqa: PLC0415 - see PLAIN

    if isinstance(cache, IndexKeys):
        return Pages("indexer", 0, 1, cache.index_head_dim * dtype_bytes(cache.dtype), compressed=False)
    if isinstance(cache, CompressedCache):
        kind = "sliding" if cache.sliding_window else "indexer" if cache.role == "index" else "mla"
        page = cache.page_bytes(dtype_bytes(s.dtype))
        return Pages(kind, cache.sliding_window or 0, cache.block_tokens, page, compressed=True)
    raise CannotTell(
        f"How vLLM caches a {type(cache).__name__} of model type {model.model_type!r} is not known to this version of "
        "kvbudget; choose a newer one.",
        key="model_type",
    )


def _text_value(model: Model, key: str) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Return a value of the config, from the language model's part if there is one."""
    config: Mapping[str, Any] = model.config
    for name in TEXT_KEYS:
        inner = model.config.get(name)
        if isinstance(inner, Mapping):
            config = inner
            break
    return config.get(key, model.config.get(key))


def context_of(model: Model, s: CacheSettings, parts: Sequence[Part]) -> Context:
    """Return the settings with what rules ask of the model."""
    states = frozenset(part.cache.kind for part in parts if isinstance(part.cache, RecurrentState))
    latent = any(isinstance(part.cache, LatentAttention) for part in parts)
    sparse = latent and any(isinstance(part.cache, Indexer) for part in parts)
    top = str(model.config.get("model_type", ""))
    key, value = backends.IMAGE_KEY
    images = top in backends.IMAGE_TYPES or (top in backends.IMAGE_KEY_TYPES and _text_value(model, key) == value)
    return Context(
        s=s,
        outer_type=top,
        kv_cache_dtype=_kv_cache_dtype(model, s),
        caching=_caching(s, parts, states),
        states=states,
        images=images and not s.text_only,
        softcap=bool(_text_value(model, "attn_logit_softcapping")),
        nope=_text_value(model, "qk_nope_head_dim") or 0 if latent else 0,
        topk=_text_value(model, "index_topk") or 0 if sparse else 0,
        sparse=sparse,
        widest=max((part.cache.head_dim for part in parts if isinstance(part.cache, Attention)), default=0),
    )


def _kv_cache_dtype(model: Model, s: CacheSettings) -> str:
    """Return the cache's type: the flag's, what the checkpoint declares, what the architecture makes of it."""
    given = s.kv_cache_dtype
    if given != "auto":
        kv_format(given)
        since = facts.KV_SINCE.get(given)
        if since and s.version < since:
            raise InputError(
                f"--kv-cache-dtype {given}: vLLM knows it since {dotted(since)}, and this is {dotted(s.version)}; "
                "choose another or a newer version."
            )
    elif model.quantization is not None and at(facts.KV_BY_CHECKPOINT, s.version):
        given = model.quantization.kv_cache_dtype or given
    major = s.compute_capability[0] if s.compute_capability else None
    rules = at(facts.KV_BY_ARCHITECTURE, s.version)
    rule = rules.get((model.architecture, None)) or rules.get((model.architecture, major)) or {}
    return rule.get(given, given)


def _caching(s: CacheSettings, parts: Sequence[Part], states: frozenset[str]) -> bool:
    """Return whether prefixes are cached: the flag, or what the engine does for this kind of model."""
    if states and at(facts.STATE_MODE, s.version) == "never":
        return False
    if s.enable_prefix_caching is not None:
        return s.enable_prefix_caching
    if any(isinstance(part.cache, CrossAttention) for part in parts):
        return False
    if states:
        attends = any(isinstance(part.cache, (Attention, LatentAttention)) for part in parts)
        return attends and at(facts.STATE_CACHING_DEFAULT, s.version)
    return True


def check_layout(context: Context, parts: Sequence[Part]) -> None:
    """Refuse what the engine refuses (config/model.py, verify_with_parallel_config, and the model classes)."""
    tp, contexts = context.s.tensor_parallel_size, context.s.decode_context_parallel_size
    if tp % contexts:
        raise InputError(
            f"--decode-context-parallel-size {contexts} does not divide --tensor-parallel-size {tp}; choose one "
            "that does."
        )
    if contexts > 1 and any(isinstance(part.cache, Pages) for part in parts):
        raise CannotTell(
            f"--decode-context-parallel-size {contexts}: how vLLM divides the caches of this kind of model was not "
            "read; leave it out.",
            key="decode_context_parallel_size",
        )
    for part in parts:
        if isinstance(part.cache, Attention) and (tp, contexts) != (1, 1):
            _check_heads(part.cache, tp, contexts)


def _check_heads(cache: Attention, tp: int, contexts: int) -> None:
    heads, kv_heads = cache.num_attention_heads, cache.num_key_value_heads
    if heads % tp or (kv_heads % tp and tp % kv_heads):
        raise InputError(
            f"--tensor-parallel-size {tp} neither divides nor copies {heads} query and {kv_heads} KV heads evenly; "
            "choose one that does."
        )
    if contexts == 1:
        return
    if cache.window:
        raise InputError(f"--decode-context-parallel-size {contexts}: vLLM has none for windows; leave it out.")
    copies = tp // kv_heads
    if copies < contexts or copies < 2 or heads // kv_heads % contexts:  # noqa: PLR2004 - nothing to share out
        raise InputError(
            f"--decode-context-parallel-size {contexts}: with {kv_heads} KV heads on --tensor-parallel-size {tp} "
            f"there are {max(1, copies)} copies of each to share out; choose at most that many, and a divisor of the "
            f"{heads // kv_heads} query heads of a KV head."
        )
