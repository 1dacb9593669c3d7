"""What vLLM needs besides checkpoint and cache, derived from what it allocates while it loads and profiles itself.

The profile run sends `max_num_batched_tokens` tokens through the model without attention and samples once for each of
`max_num_seqs` requests (v1/worker/gpu/model_runner.py and v1/worker/gpu_model_runner.py, profile_run, 0.32). What
stands in memory at its widest point follows from shapes; what the driver and libraries take does not, and is fitted.
Each function returns a low, a best and a high figure; coefficients are rows in `kvbudget.facts.vllm`, with the starts
they were held against.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.engines.estimate import Estimate
from kvbudget.engines.vllm_classes import through_transformers
from kvbudget.facts import speculation
from kvbudget.facts import vllm as facts
from kvbudget.facts.vllm import at
from kvbudget.model.config import MAX_DIM
from kvbudget.model.shapes import Attention, Group, Indexer, LatentAttention, RecurrentState, Split
from kvbudget.multimodal import Limits
from kvbudget.parallel import padded_vocab, rank_weight

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvbudget.engines.vllm_draft import Draft
    from kvbudget.facts.gpus import Gpu
    from kvbudget.facts.vllm import Version
    from kvbudget.model import Layer, Model, Tower, Weight

FAST_LINK_BYTES_PER_S = 150 * 10**9
"""Between PCIe 5 (64 GB/s) and the slowest NVLink of a server card (200 GB/s)."""

DATACENTRE_BLACKWELL = 10
"""Major compute capability of B200 and its kin (platforms/interface.py, is_device_capability_family(100))."""

LONG_ROPE = ("longrope", "su")
WHOLE_ROPE = "proportional"
"""A rope type that rotates the whole head, some of it by nothing, so that its table has the full width."""


class Share(NamedTuple):
    """The part of a model that one rank holds: its tensor-parallel share of a pipeline stage."""

    tensor_parallel_size: int
    expert_ranks: int
    expert_parallel: bool
    stage: tuple[int, int] | None

    def of(self, weight: Weight) -> Weight:
        """Return the part of a weight that the rank holds."""
        return rank_weight(
            weight, self.tensor_parallel_size, expert_parallel=self.expert_parallel, expert_ranks=self.expert_ranks
        )

    @property
    def replicas(self) -> int:
        """Data-parallel replicas whose tokens meet at the experts."""
        return max(1, self.expert_ranks // self.tensor_parallel_size) if self.expert_parallel else 1

    def layers(self, model: Model) -> tuple[Layer, ...]:
        """Return the decoder layers of the stage."""
        return model.layers if self.stage is None else model.layers[self.stage[0] : self.stage[1]]

    def is_last(self, model: Model) -> bool:
        """Whether the stage ends with the head, so that it samples."""
        return self.stage is None or self.stage[1] == len(model.layers)

    def is_first(self) -> bool:
        """Whether the stage begins with the embeddings, so that it encodes images."""
        return self.stage is None or self.stage[0] == 0


# --- beside the checkpoint ---------------------------------------------------------------------------------------


def beside_weights(model: Model, version: Version, share: Share, element_bytes: int) -> tuple[int, int, int]:
    """Return what the loaded model holds beside the checkpoint's tensors: low, best, high in bytes of one rank.

    RoPE tables, the absorbed matrices of latent attention (W_UK and W_UV in the model's type, next to `kv_b_proj`;
    model_executor/layers/attention/mla_attention.py, process_weights_after_loading), and experts that kernels pad.

    Known error: against 394 loads of vLLM's own code, parameters and tables are within 0.1 % of its parameters and
    buffers for 386 (docs/accuracy.md); gpt-oss keeps its table in float32.
    """
    tables = rope_bytes(model, version, element_bytes)
    absorbed = element_bytes * _shapes(model, share).absorbed
    return tables, tables + absorbed, tables + absorbed


def padding(model: Model, share: Share, expert_bytes: int) -> tuple[int, int, int]:
    """Return what kernels add to the experts' bytes by rounding their widths up: low, best, high; 0 if they do not."""
    method = model.quantization.method if model.quantization else ""
    shape = _shapes(model, share).experts
    if method not in facts.PACKED_EXPERTS or not shape.inner:
        return 0, 0, 0
    hidden, inner, usual = facts.PACKED_EXPERTS[method]
    width = model.hidden_size
    area = width * shape.inner
    added = expert_bytes * (_up(width, hidden) * _up(shape.inner, inner) - area) // area
    return 0, added if usual else 0, added


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


@lru_cache(maxsize=256)
def rope_bytes(model: Model, version: Version, element_bytes: int) -> int:
    """Return the bytes of the RoPE tables, one for each kind of layer that rotates differently.

    A table has a row for each position the config allows and a value for each rotated one, in the model's type
    (model_executor/layers/rotary_embedding/, 0.32). LongRoPE keeps a short and a long table; multimodal RoPE has four
    times the positions, where its sections are interleaved not in all versions.

    Known error: classes that vLLM runs through transformers keep frequencies alone, some 100 bytes, which do not count.
    """
    positions = model.max_position_embeddings
    if not positions or model.model_type in facts.WITHOUT_ROPE or through_transformers(model, version):
        return 0
    settings = _rope_settings(model.config)
    total = 0
    for width, local in _rotated(model, settings):
        kind = settings.local if local else settings.full
        name = kind.get("rope_type", kind.get("type"))
        rows = settings.positions if local and settings.positions else positions
        if name == "linear" and rows == settings.positions and not local:
            rows = int(rows * _fraction(kind.get("factor")))
        if "mrope_section" in kind:
            rows *= _mrope_factor(model, version, kind)
        if name in LONG_ROPE:
            rows += settings.original
        part = 1.0 if name == WHOLE_ROPE else _fraction(kind.get("partial_rotary_factor"), settings.part)
        total += rows * int(width * part) * element_bytes
    return total


@lru_cache(maxsize=256)
def rope_keys(model: Model) -> frozenset[tuple[object, ...]]:
    """Return what tells the RoPE tables of a model apart; models with an equal key share the table.

    Source: model_executor/layers/rotary_embedding/__init__.py, get_rope, which keeps each table once.
    """
    settings, base = _rope_settings(model.config), _text(model.config).get("rope_theta")
    theta = float(base) if isinstance(base, (int, float)) and abs(base) < MAX_DIM else str(base)
    return frozenset(
        (
            model.max_position_embeddings,
            width,
            settings.part,
            theta,
            repr(sorted((settings.local if local else settings.full).items())),
        )
        for width, local in _rotated(model, settings)
    )


def _mrope_factor(model: Model, version: Version, kind: Mapping[str, object]) -> int:
    """Return how many times the positions a multimodal table has; a model served without its towers has them once."""
    if not kind.get("mrope_interleaved"):
        return facts.MROPE_POSITIONS
    return at(facts.INTERLEAVED_POSITIONS, version) if model.towers else 1


def _fraction(value: object, default: float = 1.0) -> float:
    return float(value) if isinstance(value, (int, float)) and value else default


class _Rope(NamedTuple):
    """A config's rope settings: of layers with full attention and of local ones, and what holds for both."""

    full: Mapping[str, object]
    local: Mapping[str, object]
    positions: int
    original: int
    part: float


def _rope_settings(config: Mapping[str, object]) -> _Rope:
    """Return the rope settings of the language model."""
    c = _text(config)
    found = c.get("rope_parameters") or c.get("rope_scaling") or {}
    kinds: dict[str, object] = found if isinstance(found, dict) else {}
    nested = {key: value for key, value in kinds.items() if isinstance(value, dict)}
    full = nested.get("full_attention", next(iter(nested.values()), kinds)) if nested else kinds
    local = nested.get("sliding_attention", full) if nested else ({} if "rope_local_base_freq" in c else kinds)
    part = c.get("partial_rotary_factor", c.get("rotary_pct", 1.0))
    return _Rope(
        full=full,
        local=local,
        positions=_number(c.get("max_position_embeddings")),
        original=_number(full.get("original_max_position_embeddings", c.get("original_max_position_embeddings"))),
        part=_fraction(part),
    )


def _text(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the language model's section of a config."""
    for key in ("text_config", "llm_config", "thinker_config", "language_config"):
        value = config.get(key)
        if isinstance(value, dict):
            return _text(value)
    return config


def _number(value: object) -> int:
    """Return a whole number that only an estimate depends on, 0 for anything that is not one of sensible size."""
    plain = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < MAX_DIM
    return int(value) if plain and isinstance(value, (int, float)) else 0


def _rotated(model: Model, settings: _Rope) -> Iterable[tuple[int, bool]]:
    """Return (width of what may be rotated, whether its rope is the local one) of each distinct table."""
    same = settings.full is settings.local
    seen = set()
    for layer in {id(layer): layer for layer in model.layers}.values():
        for cache in layer.caches:
            if isinstance(cache, Attention):
                seen.add((cache.head_dim, not same and cache.kind == "sliding"))
            elif isinstance(cache, LatentAttention):
                seen.add((cache.qk_rope_head_dim, False))
    return sorted(seen)


# --- the profile run ---------------------------------------------------------------------------------------------


def activations(
    model: Model,
    version: Version,
    share: Share,
    *,
    batched_tokens: int,
    num_seqs: int,
    max_model_len: int,
    element_bytes: int,
    draft: Draft | None = None,
    limits: Limits = Limits(),  # noqa: B008 - a tuple cannot change
    lora_rank: int = 0,
) -> Estimate:
    """Return the peak of the profile run on one rank, with what the model runner keeps beside the weights.

    The peak is the larger of two moments: the widest layer over all tokens, or sampling over the vocabulary, each with
    what stays in memory meanwhile: an encoder's inputs and outputs, the experts' workspace. An encoder at work comes
    before both. A draft runs once behind the target, over as many tokens.

    Known error: within 2 % where the sampler decides (28 starts of 0.15 to 0.19), a layer's peak within 9 % (6 starts).
    """
    shapes = _shapes(model, share)
    second = second_runner(model, version) and not (draft and draft.method in speculation.FIRST_RUNNER)
    gathered = batched_tokens * share.replicas
    chunk = max(batched_tokens, min(gathered, facts.EXPERT_CHUNK_TOKENS))
    workspace, whole = (experts_workspace(model, share, tokens) * element_bytes for tokens in (chunk, gathered))
    least, usual = (_workspace_share(model, end) for end in ("low", "best"))
    keeps = at(facts.EXPERT_WORKSPACE_KEPT, version)
    layer = max(batched_tokens * shapes.token, facts.LATENT_PREFILL_TOKENS * shapes.latent) * element_bytes
    if not share.is_last(model) or not share.is_first():
        layer += 2 * batched_tokens * model.hidden_size * element_bytes
    if draft and draft.model:
        layer = max(layer, batched_tokens * _draft_token(model, draft, share) * element_bytes)
    sampling = 0
    if share.is_last(model):
        rows = min(batched_tokens, num_seqs)
        hidden = (batched_tokens + 2 * rows) * model.hidden_size * element_bytes
        sampling = hidden + _logits(model, version, share, rows=rows, second=second)
    seen = _encoder_tokens(model, share, batched_tokens, num_seqs, limits) if share.is_first() else 0
    encoder = _encoder(model, share, seen)
    encoder = _Encoder(encoder.peak * element_bytes, encoder.held * element_bytes)
    buffers = runner_buffers(model, version, num_seqs=num_seqs, second=second)
    if draft and draft.model and at(facts.RUNNER_BUFFERS_COUNTED, version):
        buffers += _draft_buffers(model, draft, batched_tokens, num_seqs) * element_bytes
    if shapes.sparse:
        layer += facts.SPARSE_LOGITS_BYTES
        buffers += facts.SPARSE_WORKSPACE_FACTOR * facts.SPARSE_WORKSPACE_TOKEN_BYTES * max_model_len

    def peak(layer_factor: float, sampler_factor: float, encoder_factor: float, scratch: int, extra: int) -> int:
        held = encoder.held * encoder_factor
        moments = (
            layer * layer_factor + scratch + held,
            sampling * sampler_factor + (scratch if keeps else 0) + held,
            encoder.peak * encoder_factor + held,
        )
        return int(max(moments) + extra + buffers)

    low, high = zip(facts.LAYER_SPREAD, facts.SAMPLER_SPREAD, facts.ENCODER_SPREAD, strict=True)
    small, common, large = facts.WORKSPACE_BYTES
    large += facts.ADAPTER_SLICES * 4 * lora_rank * gathered * max(1, model.num_experts_per_tok)
    return Estimate(
        low=peak(*low, least * workspace, small),
        best=peak(1, 1, 1, usual * workspace, common),
        high=peak(*high, whole, large),
        source=f"profile run of {batched_tokens:,} tokens and {min(batched_tokens, num_seqs):,} requests"
        + (f", an encoder's {seen:,}" if seen else "")
        + (", and what the model runner keeps" if buffers else ""),
    )


def _workspace_share(model: Model, end: str) -> int:
    """Return whether experts take their workspace from outside their kernels, at the low end and at the best.

    Triton's and Marlin's kernels do, those for 4-bit floats often bring their own, and for packed weights in general
    the kernel depends on the card.
    """
    if model.quantization is None:
        return 1
    return int(end == "best" and model.quantization.method not in facts.OWN_WORKSPACE)


def second_runner(model: Model, version: Version) -> bool:
    """Return whether the second model runner is the default for a model (config/vllm.py, use_v2_model_runner)."""
    rule = at(facts.SECOND_RUNNER, version)
    if rule.everything:
        return True
    named = model.architecture in rule.architectures
    plain = not model.num_experts and not _is_stateful(model) and (rule.quantized or model.quantization is None)
    if rule.only_named:
        return rule.plain and plain and named
    return named or (rule.plain and plain)


@lru_cache(maxsize=256)
def _is_stateful(model: Model) -> bool:
    return any(isinstance(cache, RecurrentState) for layer in model.layers for cache in layer.caches)


def runner_buffers(model: Model, version: Version, *, num_seqs: int, second: bool) -> int:
    """Return what the model runner keeps for its requests, as far as the engine counts it."""
    if not second or not at(facts.RUNNER_BUFFERS_COUNTED, version):
        return 0
    return int(num_seqs * model.vocab_size * facts.SECOND_RUNNER_LOGIT_BYTES)


def _draft_token(model: Model, draft: Draft, share: Share) -> int:
    """Return the values that one token keeps alive while a draft runs: its widest layer's, and what it reads.

    Drafts that read the target hold its hidden state, EAGLE-3 those of several layers.
    """
    assert draft.model is not None  # noqa: S101 - the caller asks for drafts with weights alone
    states = 1 + (speculation.EAGLE3_STATES if draft.method == speculation.EAGLE3 else 0)
    read = states * model.hidden_size if draft.reads_target else 0
    return _shapes(draft.model, share._replace(stage=None)).token + read


def _draft_buffers(model: Model, draft: Draft, batched_tokens: int, num_seqs: int) -> int:
    """Return the values that a draft's runner keeps: hidden states, embeddings of images, logits to sample from.

    Source: v1/worker/gpu/spec_decode/speculator.py and target_dependent_ar/speculator.py, 0.32.
    """
    assert draft.model is not None  # noqa: S101 - the caller asks for drafts with weights alone
    values = 0
    if draft.reads_target:
        images = draft.method == speculation.MTP and any(tower.loaded for tower in model.towers)
        values += (2 if images else 1) * batched_tokens * draft.model.hidden_size
    if draft.probabilistic:
        values += num_seqs * draft.tokens * draft.model.vocab_size
    return values


def _logits(model: Model, version: Version, share: Share, *, rows: int, second: bool) -> int:
    """Return the bytes over the vocabulary at the sampler's peak, gathered from all tensor-parallel ranks."""
    vocab = model.vocab_size
    if not second:
        per_logit = at(facts.FIRST_SAMPLER_BYTES, version)
        scratch = facts.FIRST_SAMPLER_ROWS * vocab * 4 if per_logit < facts.FIRST_SAMPLER_BYTES[0][1] else 0
        return rows * vocab * per_logit + scratch
    tp = share.tensor_parallel_size
    own = at(facts.SECOND_SAMPLER_BYTES, version)
    if tp == 1:
        return rows * vocab * own
    gathering = 2 * rows * padded_vocab(vocab, tp) + 4 * rows * vocab  # a rank's part, all parts, all parts in order
    return max(gathering, rows * vocab * own)


class _Experts(NamedTuple):
    """The widths of a layer's routed experts on one rank; 0 where there are none."""

    inner: int = 0
    first: int = 0


class _Shapes(NamedTuple):
    """What a rank's part of the model looks like at its widest points, in values; independent of any batch.

    Attributes:
        token: What one token keeps alive in the widest layer.
        latent: What latent attention expands a token to, 0 without it.
        absorbed: The matrices that latent attention expands with, of all layers together.
        experts: The widest routed experts.
        sparse: Whether there is an indexer.
        encoder_token: What the largest encoder keeps alive for one token of its output.
        encoder_input: What its input holds for one token of its output.
    """

    token: int
    latent: int
    absorbed: int
    experts: _Experts
    sparse: bool
    encoder_token: int
    encoder_input: int


@lru_cache(maxsize=1024)
def _shapes(model: Model, share: Share) -> _Shapes:
    """Return the widest points of the part of a model that one rank holds."""
    layers = share.layers(model)
    distinct = tuple({id(layer): layer for layer in layers}.values())  # equal layers are the same object
    packed = _packs_inputs(model)
    widest = max((_widest(layer.weights, share, packed=packed) for layer in distinct), default=0)
    latent = {
        id(layer): next((share.of(w) for w in layer.weights if w.name.endswith("kv_b_proj")), None)
        for layer in distinct
    }
    patches = _patches_per_token(model.config, _vision(model.config))
    towers = [_tower_values(tower, share) for tower in model.towers if tower.loaded and tower.group in _ENCODERS]
    return _Shapes(
        token=facts.RESIDUAL_COPIES * model.hidden_size + widest,
        latent=max((part.out_features for part in latent.values() if part is not None), default=0),
        absorbed=sum(part.values for layer in layers if (part := latent[id(layer)]) is not None),
        experts=max((_experts(layer, share) for layer in distinct), key=lambda found: found.first, default=_Experts()),
        sparse=any(isinstance(cache, Indexer) for layer in distinct for cache in layer.caches),
        encoder_token=patches * max((peak for peak, _ in towers), default=0),
        encoder_input=patches * max((inputs for _, inputs in towers), default=0),
    )


_ENCODERS = (Group.VISION, Group.AUDIO)


def _experts(layer: Layer, share: Share) -> _Experts:
    """Return the routed experts' inner width, and that of their first matrix: gate and up side by side."""
    first = inner = 0
    for weight in layer.weights:
        if weight.group is not Group.EXPERTS or not weight.linear:
            continue
        part = share.of(weight)
        if weight.name.endswith(("down_proj", "w2")):
            inner = part.in_features
        else:
            first += part.out_features
    return _Experts(inner, first)


def experts_workspace(model: Model, share: Share, tokens: int) -> int:
    """Return the values of the experts' workspace: the first matrix's output, and the activation's or the second's.

    Each token stands there once for each expert it is sent to, as wide as the wider of its two uses
    (layers/fused_moe/experts/triton_moe.py, workspace_shapes).
    """
    inner, first = _shapes(model, share).experts
    if not inner:
        return 0
    hidden = model.hidden_size
    return tokens * max(1, model.num_experts_per_tok) * (max(inner, hidden) + max(first, hidden))


def _widest(weights: Iterable[Weight], share: Share, *, packed: bool) -> int:
    """Return the widest of a layer's moments: the mixer's projections and their rotated copies, or the MLP's tensors.

    The MLP holds the output of its first matrices and the activation's at once; FP8 and INT8 kernels copy the latter.
    """
    mixer = mlp = 0
    for weight in weights:
        if not weight.linear:
            continue
        part = share.of(weight)
        if weight.group in (Group.MLP, Group.SHARED_EXPERTS, Group.VISION, Group.AUDIO) and "attn" not in weight.name:
            mlp += _mlp_values(part, packed=packed)
        elif weight.split is not Split.ROW:
            mixer += 2 * part.out_features if weight.group is not Group.EXPERTS else 0
    return max(mixer, mlp)


def _mlp_values(part: Weight, *, packed: bool) -> int:
    """The input of an MLP's last matrix is one more live tensor; its output is in the residual."""
    if part.name.endswith(("down_proj", "w2", "fc2")):
        return part.in_features * 3 // 2 if packed else part.in_features
    return part.out_features


def _packs_inputs(model: Model) -> bool:
    """Whether linear layers turn their inputs into a byte a value before they multiply."""
    scheme = model.quantization.scheme if model.quantization else None
    return scheme is not None and scheme.values.block_bytes == scheme.values.block_elems


class _Encoder(NamedTuple):
    """Values of a vision or audio encoder: at its peak, and of the inputs and outputs that stay afterwards."""

    peak: int
    held: int


def _encoder(model: Model, share: Share, tokens: int) -> _Encoder:
    """Return the values of the largest encoder when its output has so many tokens."""
    shapes = _shapes(model, share)
    return _Encoder(tokens * shapes.encoder_token, tokens * (model.hidden_size + shapes.encoder_input))


def _encoder_tokens(model: Model, share: Share, batched_tokens: int, num_seqs: int, limits: Limits) -> int:
    """Return the tokens of the encoder's output in the profile run, 0 where there is none or it is left out.

    The budget is `max_num_batched_tokens`, or one item where that is longer; it is filled with items of the largest
    size, at most as many as all requests may have (multimodal/encoder_budget.py, MultiModalBudget).
    """
    if not limits.profiled or not _shapes(model, share).encoder_token:
        return 0
    section = _vision(model.config)
    if "spatial_merge_size" in section and not section.get("image_size"):
        item = _sized(section, limits) or facts.ENCODER_ITEM_TOKENS
    else:
        item = _number(model.config.get("mm_tokens_per_image"))
    if not item:  # how the processor cuts an image into tiles is not in the config
        return batched_tokens
    count = limits.allowed("image") or limits.allowed("video")
    return item * max(1, min(batched_tokens // item, num_seqs * max(1, count)))


def _sized(section: Mapping[str, object], limits: Limits) -> int:
    """Return the tokens of an image of the size that the flag names; 0 if it names none, or videos may be longer."""
    image = limits.image()
    patch = _number(section.get("patch_size")) * _number(section.get("spatial_merge_size"))
    if image is None or not image.width or not image.height or not patch or limits.allowed("video"):
        return 0
    return _up(image.width, patch) // patch * (_up(image.height, patch) // patch)


def _vision(config: Mapping[str, object]) -> Mapping[str, object]:
    """Return a config's section about images, empty if it has none."""
    return next(
        (value for key, value in config.items() if key.endswith("vision_config") and isinstance(value, dict)), {}
    )


def _patches_per_token(config: Mapping[str, object], section: Mapping[str, object]) -> int:
    """Return how many patches of an image become one token: of a square of them, or a fixed number of tokens."""
    side, patch, fixed = (
        _number(value)
        for value in (section.get("image_size"), section.get("patch_size"), config.get("mm_tokens_per_image"))
    )
    if side and patch and fixed:
        return max(1, (side // patch) ** 2 // fixed)
    merge = _number(section.get("spatial_merge_size", config.get("spatial_merge_size"))) or facts.USUAL_MERGE
    return merge * merge


def _tower_values(tower: Tower, share: Share) -> tuple[int, int]:
    """Return (values at the peak, values of the input) of one patch in one encoder."""
    blocks = [weight for weight in tower.weights if weight.count > 1]
    entry = next((w for w in tower.weights if "patch" in w.name or "conv" in w.name), None)
    if not blocks or entry is None:
        return 0, 0
    peak = facts.RESIDUAL_COPIES * entry.out_features + _widest(blocks, share, packed=False)
    return peak, entry.in_features


# --- what the driver and libraries take --------------------------------------------------------------------------


def cuda_graphs(
    layers: int, *, num_seqs: int, capability: tuple[int, int] | None, enforce_eager: bool, adapters: bool = False
) -> Estimate:
    """Return the memory of captured CUDA graphs on one rank; none with `--enforce-eager`.

    Graphs are captured for batches up to twice `max_num_seqs`; a layer's graphs take the same each. With adapters each
    batch is captured twice, with and without them (config/compilation.py, cudagraph_specialize_lora).
    """
    if enforce_eager:
        return Estimate(0, 0, 0, "--enforce-eager")
    usual, larger = facts.GRAPH_SIZES
    default = larger if capability is not None and capability[0] == DATACENTRE_BLACKWELL else usual
    largest = min(2 * num_seqs, default)
    best = facts.GRAPH_BASE_BYTES + facts.GRAPH_LAYER_BYTES * layers * captured_sizes(largest) // captured_sizes(usual)
    low, high = facts.GRAPH_SPREAD
    sets = 2 if adapters else 1
    return Estimate(
        int(best * low), best * sets, int(best * sets * high), f"fitted: {layers} layers, batches up to {largest}"
    )


def captured_sizes(largest: int) -> int:
    """Return how many batch sizes are captured: 1, 2, 4, every 8th below 256, every 16th from there."""
    small = sum(size <= largest for size in (1, 2, 4))
    return small + len(range(8, min(largest + 1, 256), 8)) + len(range(256, largest + 1, 16))


def non_torch(card: Gpu, version: Version, *, tensor_parallel_size: int) -> Estimate:
    """Return what libraries allocate outside torch while the model loads and runs once.

    Where processor and GPU share their memory the driver's figures move with the system's own use of it.
    """
    parts = [at(facts.NON_TORCH_BYTES, version)]
    source = "fitted: cuBLAS, kernels"
    if card.unified:
        parts.append(facts.UNIFIED_BYTES)
        source += ", the system's share of unified memory"
    if at(facts.CONTEXT_INSIDE, version):
        parts.append(facts.CONTEXT_BYTES)
        source += ", the CUDA context"
    if tensor_parallel_size > 1:
        parts.append(_all_reduce(card.interconnect_bytes_per_s))
        source += ", NCCL, all-reduce"
    low, best, high = (sum(part[end] for part in parts) for end in range(3))
    return Estimate(low, best, high, source)


def _all_reduce(link: int | None) -> tuple[int, int, int]:
    """Return what several ranks take, by how fast their link is; an unknown one may be either kind."""
    if link is None:
        return (*facts.UNLINKED_BYTES[:2], facts.LINKED_BYTES[2])
    return facts.LINKED_BYTES if link > FAST_LINK_BYTES_PER_S else facts.UNLINKED_BYTES


def context() -> Estimate:
    """Return the CUDA context, which lives outside the budget."""
    return Estimate(*facts.CONTEXT_BYTES, "CUDA context and driver")
