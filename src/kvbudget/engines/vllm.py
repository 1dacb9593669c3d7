"""vLLM: what it decides from the flags, the card and the model, by version.

Source: vLLM 0.32 and the differences of the versions since 0.8.5 as listed in `kvbudget.facts.vllm`; the cache's own
arithmetic is in `vllm_cache`, the estimated parts are in `vllm_overhead`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.basis import Basis
from kvbudget.deployment import AUTO
from kvbudget.engines import vllm_overhead, vllm_specs
from kvbudget.engines.estimate import Estimate
from kvbudget.engines.vllm_cache import CachePlan, CacheSettings, plan_cache
from kvbudget.engines.vllm_classes import built_model
from kvbudget.engines.vllm_towers import optional_towers, served_model, text_only
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import multimodal
from kvbudget.facts import vllm as facts
from kvbudget.facts.formats import dtype_bytes
from kvbudget.model.shapes import Attention, Group, Indexer, Split
from kvbudget.multimodal import Limits
from kvbudget.parallel import divisors, padded_vocab, rank_weight, stage_bounds
from kvbudget.units import GIB, gib, human_count

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbudget.deployment import Deployment
    from kvbudget.engines.vllm_draft import Draft
    from kvbudget.engines.vllm_lora import Slots
    from kvbudget.facts.gpus import Gpu
    from kvbudget.facts.vllm import Version
    from kvbudget.model import Layer, Model, Weight
    from kvbudget.model.schemes import Recipe

DEFAULT_MODEL_LEN = 2048
"""What vLLM takes when the config names no length (config/model.py, _get_and_verify_max_len)."""

HALF = "float16"
WHOLE = "float32"
BRAIN = "bfloat16"
FIRST_WITH_BRAIN = (8, 0)
"""Compute capability from which vLLM prefers bfloat16 (platforms/cuda.py)."""

READ: Version = (0, 32, 0)
"""The version whose drafts, adapters and towers were read."""

BATCH_LIMITS = 2
"""Tokens and requests of a step."""


class Settings(NamedTuple):
    """Every choice resolved: given by the user or decided by the engine's rule."""

    version: Version
    rules: facts.Rules
    dtype: str
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    enforce_eager: bool
    async_scheduling: bool
    cache: CacheSettings
    limits: Limits = Limits()
    draft: Draft | None = None
    slots: Slots | None = None


class Fixed(NamedTuple):
    """What one rank holds whatever the requests are; `draft` and `lora` are None where it has none."""

    weights: Estimate
    weights_basis: Basis
    activations: Estimate
    cuda_graphs: Estimate
    non_torch: Estimate
    context: Estimate
    draft: Estimate | None = None
    lora: Estimate | None = None

    @property
    def inside(self) -> tuple[tuple[str, Estimate, Basis], ...]:
        """The parts inside the budget but for the CUDA graphs, in the order of allocation: name, figures, basis."""
        beside = (("draft", self.draft), ("lora", self.lora))
        return (
            ("weights", self.weights, self.weights_basis),
            *((name, part, _basis(part)) for name, part in beside if part is not None),
            ("activations", self.activations, Basis.ESTIMATED),
            ("non_torch", self.non_torch, Basis.ESTIMATED),
        )


def _basis(part: Estimate) -> Basis:
    """Return exact for a figure without bounds."""
    return Basis.EXACT if part.low == part.high else Basis.ESTIMATED


def settings(d: Deployment, fitted: int | None = None) -> Settings:
    """Return what the engine makes of the deployment's choices.

    Args:
        d: The deployment.
        fitted: The length that `--max-model-len auto` has led to; the model's own while it is not known.

    Raises:
        InputError: The layout or the length is one that the engine refuses.
    """
    check_layout(d)
    here = _where(d.engine_version, d.card)
    version, rules = here.version, here.rules
    dtype = _dtype(d.dtype, d.model, here.capability)
    check_card(d.model, d.card, dtype)
    max_model_len = fitted or _model_len(d)
    batched, seqs = _batch_limits(d, here, max_model_len)
    utilization = rules.utilization if d.gpu_memory_utilization is None else d.gpu_memory_utilization
    draft = _draft(d, max_model_len)
    if draft and d.enable_lora and batched < seqs * (1 + draft.tokens):
        raise InputError(
            f"--max-num-batched-tokens {batched} has no room for {draft.tokens} proposed tokens of each of {seqs:,} "
            "requests, which vLLM refuses with --enable-lora; raise it or lower --max-num-seqs."
        )
    given = _async_scheduling(d)
    in_flight = rules.async_scheduling if given is None else given
    return Settings(
        version=version,
        rules=rules,
        dtype=dtype,
        max_model_len=max_model_len,
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        gpu_memory_utilization=utilization,
        enforce_eager=d.enforce_eager,
        async_scheduling=in_flight,
        cache=CacheSettings(
            version=version,
            tensor_parallel_size=d.tensor_parallel_size,
            pipeline_parallel_size=d.pipeline_parallel_size,
            decode_context_parallel_size=d.decode_context_parallel_size,
            dtype=dtype,
            kv_cache_dtype=d.kv_cache_dtype,
            block_size=d.block_size,
            compute_capability=here.capability,
            max_model_len=max_model_len,
            max_num_batched_tokens=batched,
            max_num_seqs=seqs,
            async_scheduling=given,
            enable_prefix_caching=d.enable_prefix_caching,
            disable_hybrid_kv_cache_manager=d.disable_hybrid_kv_cache_manager or _merges_chunks(d.model, draft),
            num_speculative_tokens=draft.tokens if draft else 0,
            draft_layers=draft.layers if draft else (),
            lookahead_tokens=draft.lookahead if draft else 0,
            retained_tokens=draft.retained if draft else 0,
            text_only=version >= multimodal.TEXT_ONLY_ATTENTION and text_only(d.model, d.limits),
        ),
        limits=d.limits,
        draft=draft,
        slots=_slots(d),
    )


def _slots(d: Deployment) -> Slots | None:
    """Return the slots for adapters that were asked for, None if there are none."""
    if not d.enable_lora:
        return None
    from kvbudget.engines.vllm_lora import Slots  # noqa: PLC0415 - few deployments have adapters

    return Slots(d.max_loras, d.max_lora_rank, d.lora_dtype, d.fully_sharded_loras)


def _draft(d: Deployment, max_model_len: int) -> Draft | None:
    """Return what proposes tokens, None if nothing does."""
    if d.speculation is None:
        return None
    from kvbudget.engines.vllm_draft import draft_of  # noqa: PLC0415 - few deployments have a draft

    draft = draft_of(d.model, d.speculation, d.pipeline_parallel_size, max_model_len)
    if draft.model is not None:
        version = facts.parse_version(d.engine_version)
        _check_layout(draft.model, version, d.tensor_parallel_size, 1, d.enable_expert_parallel)
    return draft


def _async_scheduling(d: Deployment) -> bool | None:
    """Return the flag, off where the way of drafting needs the last step's tokens (config/vllm.py, __post_init__).

    Raises:
        InputError: The flag asks for it nevertheless, which vLLM refuses.
    """
    if d.speculation is None or d.speculation.ahead:
        return d.async_scheduling
    if d.async_scheduling:
        raise InputError(
            f"--async-scheduling: vLLM cannot schedule ahead with speculative method {d.speculation.method} as "
            "it is configured; leave the flag out."
        )
    return False


def _merges_chunks(model: Model, draft: Draft | None) -> bool:
    """Whether chunked layers are cached in full beside a draft that reads the target (config/vllm.py)."""
    return draft is not None and draft.reads_target and _is_chunked(model)


@lru_cache(maxsize=256)
def _is_chunked(model: Model) -> bool:
    return any(isinstance(c, Attention) and c.kind == "chunked" for layer in _distinct(model) for c in layer.caches)


def assumptions(d: Deployment, s: Settings) -> tuple[str, ...]:
    """Return what nobody said and the engine decides, one sentence each with the flag that changes it."""
    found = []
    stated = (d.model.dtype or "nothing").removeprefix("torch.")
    if d.dtype == "auto" and stated != s.dtype:
        found.append(f"dtype {s.dtype}: the config says {stated} (--dtype)")
    if d.max_model_len == AUTO:
        found.append(f"max_model_len {s.max_model_len:,}, the longest that fits by the best estimate (auto)")
    if d.max_model_len is None:
        reason = "the model's own" if d.model.max_position_embeddings else "vLLM's fallback, the config names none"
        found.append(f"max_model_len {s.max_model_len:,}, {reason} (--max-model-len)")
    if d.max_num_batched_tokens is None:
        found.append(f"max_num_batched_tokens {s.max_num_batched_tokens:,}, the default (--max-num-batched-tokens)")
    if d.max_num_seqs is None:
        found.append(f"max_num_seqs {s.max_num_seqs:,}, the default (--max-num-seqs)")
    if d.gpu_memory_utilization is None and d.kv_cache_memory_bytes is None:
        found.append(f"gpu_memory_utilization {s.gpu_memory_utilization:g}, the default (--gpu-memory-utilization)")
    encoders = optional_towers(d.model, s.limits)
    if encoders and not s.limits.each:
        size = human_count(sum(tower.parameters for tower in encoders))
        names = " and ".join(dict.fromkeys(tower.group.value for tower in encoders))
        found.append(f"{names} encoders are loaded, {size} parameters (--language-model-only leaves them out)")
    return tuple(found)


@lru_cache(maxsize=64)
def _parsed_capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor or 0)


def _capability(card: Gpu) -> tuple[int, int] | None:
    return None if card.compute_capability is None else _parsed_capability(card.compute_capability)


class Where(NamedTuple):
    """What the engine's version and the card decide by themselves."""

    version: Version
    rules: facts.Rules
    capability: tuple[int, int] | None
    tokens: Mapping[str, int]
    seqs: int


@lru_cache(maxsize=256)
def _where(engine_version: str, card: Gpu) -> Where:
    """Return it; the batch defaults are those of the first row that holds (engine/arg_utils.py, get_batch_defaults)."""
    version = facts.parse_version(engine_version)
    rules = facts.rules(version)
    is_a100 = card.name.startswith("A100")
    row = next(
        row
        for row in rules.batch_defaults
        if card.memory_bytes >= row.smallest_gib * GIB and not (row.spares_a100 and is_a100)
    )
    return Where(version, rules, _capability(card), row.tokens, row.seqs)


def _dtype(choice: str, model: Model, capability: tuple[int, int] | None) -> str:
    """Resolve `--dtype`: auto keeps 16-bit types and turns float32 into one (config/model.py, _resolve_auto_dtype)."""
    if choice != "auto":
        return {"half": HALF, "float": WHOLE}.get(choice, choice)
    supported = [BRAIN, HALF, WHOLE]
    if capability is not None and capability < FIRST_WITH_BRAIN:
        supported.remove(BRAIN)
    if model.model_type in facts.NO_FLOAT16:
        supported.remove(HALF)
    stated = (model.dtype or "").removeprefix("torch.")
    return stated if stated in supported and stated != WHOLE else supported[0]


def _model_len(d: Deployment) -> int:
    """Resolve `--max-model-len`, and refuse one above the model's own as the engine does."""
    own = d.model.max_position_embeddings
    if d.max_model_len == AUTO and facts.parse_version(d.engine_version) < facts.AUTO_LENGTH:
        raise InputError(
            f"--max-model-len auto: vLLM {d.engine_version} does not know it; give a length or "
            "--engine-version 0.14.1 or newer."
        )
    if d.max_model_len is None or d.max_model_len == AUTO:
        return d.model.default_model_len or own or DEFAULT_MODEL_LEN
    if own is not None and d.max_model_len > own and not d.allow_long:
        raise InputError(
            f"--max-model-len {d.max_model_len} exceeds the model's {own:,} (max_position_embeddings); vLLM refuses "
            "this unless VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 or a rope override is given; continue with --allow-long."
        )
    return d.max_model_len


def _batch_limits(d: Deployment, here: Where, max_model_len: int) -> tuple[int, int]:
    """Resolve the batch limits: each default is capped by the other (engine/arg_utils.py, get_batch_defaults)."""
    wanted = d.max_num_seqs or here.seqs
    batched = d.max_num_batched_tokens or min(here.tokens[d.usage_context], wanted * max_model_len)
    seqs = d.max_num_seqs or min(here.seqs, batched)
    if batched < seqs:
        raise InputError(
            f"--max-num-batched-tokens {batched} is less than --max-num-seqs {seqs}, which vLLM refuses "
            "(config/scheduler.py); raise the one or lower the other."
        )
    return batched, seqs


def check_layout(d: Deployment) -> None:
    """Refuse layouts that the engine refuses, naming the legal ones (config/model.py, verify_with_parallel_config)."""
    version = facts.parse_version(d.engine_version)
    _check_layout(d.model, version, d.tensor_parallel_size, d.pipeline_parallel_size, d.enable_expert_parallel)


@lru_cache(maxsize=1024)
def _check_layout(model: Model, version: Version, tp: int, stages: int, expert_parallel: bool) -> None:
    uneven = _uneven(model, version, tp, expert_parallel) if tp > 1 else None
    if uneven is not None:
        name, size, unit = uneven
        sizes = divisors(model.num_attention_heads or size)
        valid = ", ".join(str(i) for i in sizes if _uneven(model, version, i, expert_parallel) is None)
        blocks = f" in whole blocks of {unit}" if unit > 1 else ""
        raise InputError(
            f"--tensor-parallel-size {tp}: {size:,} {name} cannot be split by {tp}{blocks}; valid here: {valid}. "
            f"With {tp} GPUs --pipeline-parallel-size {tp} splits the layers instead."
        )
    stage_bounds(len(model.layers), stages)


@lru_cache(maxsize=1024)
def _uneven(model: Model, version: Version, tp: int, expert_parallel: bool) -> tuple[str, int, int] | None:
    """Return (name, size, unit) of the first dimension that does not divide into whole units for `tp` ranks.

    Heads come first (config/model.py, verify_with_parallel_config).

    Units are the blocks of FP8 in squares (layers/quantization/utils/fp8_utils.py, validate_fp8_block_shape and
    validate_fp8_block_shape_moe), which newer versions make smaller for experts, else single features
    (distributed/utils.py, divide); the vocabulary counts with its padding. KV heads are divided or multiplied, experts
    are whole in expert parallelism (the shared ones where replicas meet), towers are loaded whole where they do not
    divide.
    """
    if model.num_attention_heads % tp:
        return "attention heads", model.num_attention_heads, 1
    for layer in _distinct(model):
        for cache in layer.caches:
            kv_heads = cache.num_key_value_heads if isinstance(cache, Attention) else 0
            if kv_heads and max(kv_heads, tp) % min(kv_heads, tp):
                return "KV heads", kv_heads, 1
        for weight in layer.weights:
            whole_experts = weight.group is not Group.MLP and expert_parallel
            if weight.group not in _BY_WIDTH or not weight.linear or whole_experts:
                continue
            into = weight.split is Split.ROW or (weight.split is Split.EXPERT and weight.name.endswith("down_proj"))
            size = weight.in_features if into else weight.out_features
            path = f"{model.prefix}.0.{weight.name}"
            unit = 1 if _refined(model, version, path, weight, tp) else _block(model, path, weight, into=into)
            if weight.split in (Split.COLUMN, Split.ROW, Split.EXPERT) and size % (tp * unit):
                return f"features of {weight.name}", size, unit
    for weight in model.outside:
        padded = padded_vocab(weight.out_features, 1)
        if weight.split is Split.VOCAB and padded % tp:
            return "rows of the padded vocabulary", padded, 1
    return None


_BY_WIDTH = frozenset({Group.MLP, Group.SHARED_EXPERTS, Group.EXPERTS})


def _block(model: Model, path: str, weight: Weight, *, into: bool) -> int:
    """Return the side of a weight's square blocks along the divided dimension, 1 where a shard may cut a block.

    Blocks that are made while loading are those of the shard (online/fp8.py, per_block_cast_to_fp8 pads the last ones).
    """
    recipe = model.quantization
    scheme = recipe.scheme_for(path, weight) if recipe is not None and recipe.origin != "loading" else None
    if scheme is None or scheme.rows <= 1 or scheme.columns <= 1:
        return 1
    return scheme.columns if into else scheme.rows


def _refined(model: Model, version: Version, path: str, weight: Weight, tp: int) -> bool:
    """Return whether the engine makes an expert's blocks smaller where a shard cuts them; see `Scheme.of_shard`."""
    recipe = model.quantization
    if recipe is None or recipe.method not in facts.REFINES_BLOCKS or version < facts.REFINES_BLOCKS[recipe.method]:
        return False
    scheme = recipe.scheme_for(path, weight)
    return scheme is not None and weight.group is Group.EXPERTS and scheme.of_shard(rank_weight(weight, tp)) != scheme


@lru_cache(maxsize=1024)
def check_card(model: Model, card: Gpu, dtype: str) -> None:
    """Refuse a card that the engine, the quantization or the data type does not run on.

    Raises:
        InputError: The card is too old, or the model type cannot be served in the type.
        CannotTell: The card has an engine, a plugin or a backend of its own, whose rules are not known.
    """
    if card.maker in facts.PLUGIN_MAKERS:
        raise CannotTell(
            f"{card.name} is not served by vLLM itself but by a plugin, whose rules this version of kvbudget does not "
            "know; choose a card of NVIDIA or AMD (kvbudget gpus).",
            key="gpu",
        )
    if dtype == HALF and model.model_type in facts.NO_FLOAT16:
        raise InputError(
            f"--dtype {HALF}: vLLM refuses it for {model.model_type}, which overflows in it; use {BRAIN} or {WHOLE}."
        )
    capability = _capability(card)
    if capability is None:
        return
    if dtype == BRAIN and capability < FIRST_WITH_BRAIN:
        raise InputError(
            f"--dtype {BRAIN}: {card.name} has compute capability {card.compute_capability} and vLLM wants 8.0 for it; "
            f"use {HALF} or auto."
        )
    method = model.quantization.method if model.quantization else ""
    least = facts.MIN_CAPABILITY.get(method, (0, 0))
    if capability < least:
        raise InputError(
            f"{card.name} has compute capability {card.compute_capability}, and vLLM runs {method} from "
            f"{least[0]}.{least[1]} on; choose a newer card or a checkpoint in another format."
        )


def cautions(d: Deployment, version: Version) -> Iterator[str]:
    """Yield what makes the answer less certain than it looks: a sentence each."""
    last = facts.SERVED_UNTIL.get(d.model.architecture)
    if last is not None and version > last:
        was = ".".join(map(str, last))
        yield (
            f"vLLM {d.engine_version} refuses {d.model.architecture}: it was served until {was}; the figures hold if "
            f"it were loaded (--engine-version {was})."
        )
    recipe = d.model.quantization
    method = recipe.method if recipe is not None and recipe.origin == "checkpoint" else ""
    yield from quantization_cautions(d, version)
    if method in facts.METHODS_GONE and version >= facts.METHODS_GONE[method]:
        yield (
            f"vLLM {d.engine_version} has no quantization method {method}, so it refuses this checkpoint unless a "
            "plugin adds it; the figures hold if it were loaded."
        )
    if d.card.maker in facts.UNMEASURED_MAKERS:
        yield (
            f"{d.card.name}: the rules are those of vLLM on NVIDIA's cards; on {d.card.maker}'s the parts marked "
            "estimated were never measured, and backends may choose other block sizes."
        )
    yield from _encoder_cautions(d)
    if version < READ:
        asked = [
            name
            for name, given in (
                ("speculative decoding", d.speculation is not None),
                ("LoRA", d.enable_lora),
                ("limits on images", bool(d.model.towers) and d.limits != Limits()),
            )
            if given
        ]
        if asked:
            yield (
                f"{', '.join(asked)}: counted as vLLM {'.'.join(map(str, READ[:2]))} does it, whose code was read; "
                f"{d.engine_version} may differ."
            )
    if d.card.unified:
        yield (
            f"{d.card.name} shares its memory with the system: what the system uses is missing from what vLLM finds "
            "free, so leave room with --gpu-memory-utilization."
        )


def quantization_cautions(d: Deployment, version: Version) -> Iterator[str]:
    """Yield what to know about weights that are not the checkpoint's own: a guess, or made while loading."""
    recipe = d.model.quantization
    if recipe is None or recipe.origin == "checkpoint":
        return
    if recipe.origin == "imagined":
        yield _imagined(d, version, recipe)
        return
    from kvbudget.facts import what_if  # noqa: PLC0415 - few deployments quantize while loading

    told = f"--quantization {d.quantization}: vLLM {d.engine_version}"
    if recipe.scheme is None and Group.EXPERTS not in d.model.parameters_by_group():
        yield f"{told} quantizes routed experts alone, and this model has none: nothing changes."
        return
    if recipe.varies:
        yield f"{told}: low and high of the weights tell {recipe.varies}."
    if version >= what_if.WHILE_LOADING[recipe.asked].streamed:
        largest = max(sum(weight.values for weight in layer.weights) for layer in _distinct(d.model))
        size = dtype_bytes(_dtype(d.dtype, d.model, _capability(d.card)))
        yield (
            f"{told} reads the plain weights and quantizes them layer by layer; loading peaks at most one plain layer "
            f"({gib(largest * size // d.tensor_parallel_size)} GiB) above the weights line."
        )
        return
    more = "more than " if version >= what_if.WHOLE_AND_MORE else ""
    yield (
        f"{told} holds all plain weights on the GPU before it quantizes them: loading peaks at {more}"
        f"{gib(plain_weight_bytes(d))} GiB and may run out of memory though the quantized weights fit; since "
        f"{'.'.join(map(str, what_if.STREAMED[:2]))} it goes layer by layer."
    )


def _imagined(d: Deployment, version: Version, recipe: Recipe) -> str:
    """Return what to know about weights that are a guess at a checkpoint which was not given."""
    here, method = f"vLLM {d.engine_version}", recipe.method.partition(":")[0]
    if method in facts.METHODS_GONE and version >= facts.METHODS_GONE[method]:
        then = f"{here} reads no checkpoints in {method} format, so the rest holds for an engine that did"
    elif d.quantization in facts.QUANTIZATIONS:
        then = f"serve one in {method} format without the flag, on which {here} stops with a plain one"
    else:
        then = f"serve one in {method} format without the flag, which is none of vLLM's"
    varies = f"; low and high: {recipe.varies}" if recipe.varies else ""
    name = d.model.name or "the model"
    return f"What if: the weights are a guess at another checkpoint, since {name} is not quantized; {then}{varies}."


def plain_weight_bytes(d: Deployment) -> int:
    """Return the bytes of the weights on one GPU before the engine quantizes them; stages count as one."""
    share = vllm_overhead.Share(d.tensor_parallel_size, d.tensor_parallel_size, d.enable_expert_parallel, None)
    size = dtype_bytes(_dtype(d.dtype, d.model, _capability(d.card)))
    model = built_model(d.model, facts.parse_version(d.engine_version))
    return sum(share.of(weight).values for _, weight in _placed(model, None)) * size


def served(d: Deployment) -> Deployment:
    """Return the deployment with its model as it is held: as it is given, or as `--quantization` would make it.

    Raises:
        InputError, CannotTell: As `check_quantization`.
    """
    check_quantization(d)
    recipe = d.model.quantization
    if d.quantization is None or (recipe is not None and recipe.origin == "checkpoint"):
        return d
    return d.replaced(model=d.model.with_quantization(d.quantization, facts.parse_version(d.engine_version)))


def draft_cautions(d: Deployment, s: Settings) -> Iterator[str]:
    """Yield what the profile run leaves open where tokens are proposed: it samples one row a request, not all of them.

    Source: v1/worker/gpu/model_runner.py, _dummy_sampler_run, 0.32.
    """
    if s.draft is None:
        return
    profiled = min(s.max_num_batched_tokens, s.max_num_seqs)
    sampled = min(s.max_num_batched_tokens, s.max_num_seqs * (1 + s.draft.tokens))
    more = (sampled - profiled) * d.model.vocab_size * dtype_bytes(s.dtype)
    if more:
        yield (
            f"{s.max_num_seqs:,} requests sample {sampled:,} rows with their proposed tokens, and the profile "
            f"run {profiled:,}: {gib(more)} GiB of logits more than is kept free; lower --max-num-seqs if so many come."
        )


def _encoder_cautions(d: Deployment) -> Iterator[str]:
    """Yield what the flags about images leave open."""
    if d.model.towers and not d.limits.profiled and not text_only(d.model, d.limits):
        yield (
            "--skip-mm-profiling: nothing is kept free for the encoder at work, so a large image may run out of "
            "memory; leave room with --gpu-memory-utilization."
        )
    if d.limits.encoder_tp_mode == "data" and d.model.architecture not in multimodal.DATA_PARALLEL:
        yield f"--mm-encoder-tp-mode data: vLLM has it not for {d.model.architecture}, so it changes nothing."


def check_quantization(d: Deployment) -> None:
    """Refuse a `--quantization` that is unknown, or that the checkpoint is not.

    Over a checkpoint that is not quantized, a name that the engine would refuse is a question, unless
    `Deployment.what_if` says that it is to be launched: then it is refused as well.

    Raises:
        InputError: No such method, or not this checkpoint's.
        CannotTell: A method that takes the layers from a configuration of its own.
    """
    name, recipe = d.quantization, d.model.quantization
    if name is None:
        return
    from kvbudget.model.what_if import can_imagine, unknown, while_loading  # noqa: PLC0415 - the flag is rare

    imagined = can_imagine(name)
    if name not in facts.QUANTIZATIONS and not imagined:
        raise unknown(name)
    if recipe is not None and recipe.origin == "checkpoint":
        if facts.same_method(name, recipe.method):
            return
        then = "vLLM would stop; leave the flag out" if name in facts.QUANTIZATIONS else "give the plain checkpoint"
        raise InputError(
            f"--quantization {name[:40]}, but the checkpoint's quantization is {recipe.method}, so {then}."
        )
    if imagined and (d.what_if or while_loading(name, facts.parse_version(d.engine_version)) is not None):
        return
    if name in ("online", "torchao"):
        raise unknown(name)
    raise InputError(
        f"--quantization {name[:40]}, but config.json has no quantization_config, so vLLM would stop; pick a "
        "checkpoint in that format or leave the flag out."
    )


def weight_bytes(model: Model, dtype: str, tp: int, stage: tuple[int, int] | None, expert_parallel: bool) -> int:
    """Return the bytes of the weights on one rank, as the newest engine loads them before any repacking.

    Args:
        model: The model; its quantization decides how matrices are stored.
        dtype: The type of what is not quantized.
        tp: Tensor-parallel ranks.
        stage: (first, end) layer of the pipeline stage, None for all of the model.
        expert_parallel: Experts are divided whole.
    """
    built = built_model(model, facts.NEWEST)
    return sum(_weight_bytes(built, dtype, vllm_overhead.Share(tp, tp, expert_parallel, stage)))


@lru_cache(maxsize=512)
def _weight_bytes(model: Model, dtype: str, share: vllm_overhead.Share) -> tuple[int, int]:
    """Return (bytes of routed experts, bytes of all else) on one rank; see `weight_bytes`."""
    experts = others = 0
    for _, weight, _, held in rank_weights(model, dtype, share):
        if weight.group is Group.EXPERTS:
            experts += held
        else:
            others += held
    return experts, others


def rank_weights(model: Model, dtype: str, share: vllm_overhead.Share) -> Iterator[tuple[str, Weight, Weight, int]]:
    """Yield (path, weight, the part of it on one rank, bytes of that part) of all that a rank loads."""
    size = dtype_bytes(dtype)
    parts: dict[int, Weight] = {}  # equal layers share their weights, so a weight is divided once
    for path, weight in _placed(model, share.stage):
        part = parts.get(id(weight))
        if part is None:
            part = parts[id(weight)] = share.of(weight)
        yield path, weight, part, model.held_bytes(path, weight, size, shard=part)


def _placed(model: Model, stage: tuple[int, int] | None) -> Iterator[tuple[str, Weight]]:
    """Yield (path, weight) of what one pipeline stage loads; towers stand on every stage."""
    layers = len(model.layers)
    begin, end = stage or (0, layers)
    for weight in model.outside:
        if stage is None or _on_stage(model, weight, first=begin == 0, last=end == layers):
            yield weight.name, weight
    for i in range(begin, end):
        for weight in model.layers[i].weights:
            yield f"{model.prefix}.{i}.{weight.name}", weight
    for tower in model.towers:
        if tower.loaded:
            for weight in tower.weights:
                yield f"{tower.name}.{weight.name}", weight


def _on_stage(model: Model, weight: Weight, *, first: bool, last: bool) -> bool:
    """Embeddings are on the first stage, the final norm and the head on the last, a tied embedding on both.

    Some classes build the vocabulary's matrices on all stages.
    """
    vocabulary = weight.split is Split.VOCAB
    if weight.group is Group.EMBEDDINGS:
        everywhere = model.architecture in facts.EMBEDDING_ON_EVERY_STAGE
        return first or (vocabulary and (everywhere or (last and model.tied)))
    return last or (vocabulary and model.architecture in facts.HEAD_ON_EVERY_STAGE)


@lru_cache(maxsize=1024)
def fixed(
    model: Model,
    version: Version,
    dtype: str,
    layout: tuple[int, int, bool],
    stage: tuple[int, int] | None,
    batch: tuple[int, ...],
    enforce_eager: bool,
    card: Gpu,
    draft: Draft | None = None,
    slots: Slots | None = None,
    limits: Limits = Limits(),  # noqa: B008 - a tuple cannot change
) -> Fixed:
    """Return what one rank holds whatever the requests are.

    Args:
        model: The model.
        version: The engine's version.
        dtype: The type of what is not quantized.
        layout: (tensor-parallel size, GPUs that share the experts, expert parallel).
        stage: (first, end) layer of the pipeline stage, None for all.
        batch: (max_num_batched_tokens, max_num_seqs, max_model_len); the last is needed for sparse attention alone.
        enforce_eager: No CUDA graphs.
        card: The GPU: how its kin are linked, and its generation.
        draft: What proposes tokens; it stands on the last stage.
        slots: Slots for LoRA adapters.
        limits: What may reach a multimodal model; it decides which towers are loaded.
    """
    model = built_model(served_model(model, limits), version)
    share = vllm_overhead.Share(*layout, stage)
    weights, exact = _loaded(model, version, dtype, share)
    if not share.is_last(model):
        draft = None
    return Fixed(
        weights=weights,
        weights_basis=Basis.EXACT if exact else Basis.ESTIMATED,
        activations=vllm_overhead.activations(
            model,
            version,
            share,
            batched_tokens=batch[0],
            num_seqs=batch[1],
            max_model_len=batch[2] if len(batch) > BATCH_LIMITS else 0,
            element_bytes=dtype_bytes(dtype),
            draft=draft,
            limits=limits,
            lora_rank=slots.max_lora_rank if slots else 0,
        ),
        cuda_graphs=vllm_overhead.cuda_graphs(
            len(share.layers(model)) + (len(draft.layers) if draft else 0),
            num_seqs=batch[1] * (1 + draft.tokens if draft else 1),
            capability=_capability(card),
            enforce_eager=enforce_eager,
            adapters=slots is not None,
        ),
        non_torch=vllm_overhead.non_torch(card, version, tensor_parallel_size=share.tensor_parallel_size),
        context=vllm_overhead.context(),
        draft=_loaded_draft(draft, version, dtype, share) if draft and draft.model else None,
        lora=_lora(model, slots, dtype, share) if slots else None,
    )


def _lora(model: Model, slots: Slots, dtype: str, share: vllm_overhead.Share) -> Estimate:
    from kvbudget.engines.vllm_lora import lora  # noqa: PLC0415 - few deployments have adapters

    return lora(model, slots, dtype, share)


def batch_key(model: Model, s: Settings) -> tuple[int, ...]:
    """Return what of a step's limits the rest of the memory depends on; the length only where attention is sparse."""
    limits = (s.max_num_batched_tokens, s.max_num_seqs)
    return (*limits, s.max_model_len) if _is_sparse(model) else limits


@lru_cache(maxsize=256)
def _is_sparse(model: Model) -> bool:
    return any(isinstance(cache, Indexer) for layer in _distinct(model) for cache in layer.caches)


@lru_cache(maxsize=256)
def _distinct(model: Model) -> tuple[Layer, ...]:
    return tuple({id(layer): layer for layer in model.layers}.values())


def _loaded(model: Model, version: Version, dtype: str, share: vllm_overhead.Share) -> tuple[Estimate, bool]:
    """Return the model's memory after loading, and whether it follows from the config alone."""
    experts, others = _weight_bytes(model, dtype, share)
    tp = share.tensor_parallel_size
    size = experts + others
    beside = vllm_overhead.beside_weights(model, version, share, dtype_bytes(dtype))
    padding = vllm_overhead.padding(model, share, experts)
    spread = 0 if model.quantization is None or tp == 1 else size // 100
    known = model.stored.read if model.stored is not None and model.stored.modules else "shapes from the config"
    guess = model.quantization is not None and model.quantization.origin == "imagined"
    told = model.quantization.describes if model.quantization else dtype
    source = f"{'what if: ' if guess else ''}{known}, {told}"
    low, best, high = (size + part + pad for part, pad in zip(beside, padding, strict=True))
    sizes = (size, *(sum(_weight_bytes(other, dtype, share)) for other in _variants(model)))
    low, high = low + min(sizes) - size, high + max(sizes) - size
    loaded = Estimate(low - spread, best, high + spread, source)
    return loaded, loaded.low == loaded.high


@lru_cache(maxsize=256)
def _variants(model: Model) -> tuple[Model, ...]:
    """Return the model under each other recipe that its quantization may stand for."""
    recipe = model.quantization
    return tuple(replace(model, quantization=other) for other in recipe.variants) if recipe is not None else ()


def _loaded_draft(draft: Draft, version: Version, dtype: str, share: vllm_overhead.Share) -> Estimate:
    """Return what a draft adds to the loaded model: its weights without what it shares with the target.

    Known error: against the classes of vLLM 0.32 on the meta device the tensors are equal but for 16 bytes of scales a
    layer (docs/accuracy.md).
    """
    model = draft.model
    assert model is not None  # noqa: S101 - the caller asks for drafts with weights alone
    own = share._replace(stage=None)
    size = dtype_bytes(dtype)
    tensors = {True: 0, False: 0}
    for path, weight in draft.placed():
        tensors[weight.group is Group.EXPERTS] += model.held_bytes(path, weight, size, shard=own.of(weight))
    rope = vllm_overhead.rope_bytes(model, version, size)
    beside = [
        part - (rope if draft.shares_rope else 0) for part in vllm_overhead.beside_weights(model, version, own, size)
    ]
    padding = vllm_overhead.padding(model, own, tensors[True])
    low, best, high = (sum(tensors.values()) + part + pad for part, pad in zip(beside, padding, strict=True))
    shared, copied = (
        model.held_bytes(weight.name, weight, size, shard=own.of(weight)) if weight else 0
        for weight in (draft.own, draft.copy)
    )
    doubt = ", embedding and head as the target's or its own" if shared or copied else ""
    return Estimate(low - shared, best, high + copied, draft.name + doubt)


@lru_cache(maxsize=1024)
def cache_plan(model: Model, cache: CacheSettings) -> CachePlan:
    """Return the cache's groups and blocks; see `vllm_cache.plan_cache`."""
    return plan_cache(model, cache)


def requested_bytes(card: Gpu, s: Settings) -> int:
    """Return the budget: the fraction of the total that the driver gives to an engine (v1/worker/utils.py)."""
    share = card.visible_bytes * s.gpu_memory_utilization
    return ceil(share) if s.rules.budget_ceil else int(share)


def growth(model: Model, s: Settings) -> tuple[int, int]:
    """Return (bytes a token adds, bytes a long request holds on top) on one rank; see `vllm_specs.growth`."""
    c = s.cache
    layout = (c.tensor_parallel_size, c.pipeline_parallel_size, c.decode_context_parallel_size)
    draft = (c.num_speculative_tokens, c.draft_layers)
    return _growth(model, s.version, layout, c.dtype, c.kv_cache_dtype, c.block_size, c.compute_capability, draft)


@lru_cache(maxsize=1024)
def _growth(
    model: Model,
    version: Version,
    layout: tuple[int, int, int],
    dtype: str,
    kv_cache_dtype: str,
    block_size: int | None,
    capability: tuple[int, int] | None,
    draft: tuple[int, tuple[Layer, ...]],
) -> tuple[int, int]:
    tp, pp, dcp = layout
    return vllm_specs.growth(
        model,
        CacheSettings(
            version=version,
            tensor_parallel_size=tp,
            pipeline_parallel_size=pp,
            decode_context_parallel_size=dcp,
            dtype=dtype,
            kv_cache_dtype=kv_cache_dtype,
            block_size=block_size,
            compute_capability=capability,
            max_model_len=1,
            max_num_batched_tokens=1,
            num_speculative_tokens=draft[0],
            draft_layers=draft[1],
        ),
    )
