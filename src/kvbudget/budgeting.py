"""The budget of a deployment: what each GPU's memory goes to, what fits, and the nearest changes that fit.

Everything is integer bytes of one rank. Two columns never mix: what a part *needs*, and what the engine *will take*
for it (the KV cache takes what is left, however little is needed).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget import __version__
from kvbudget.basis import Basis
from kvbudget.deployment import AUTO, DEFAULT_ENGINE_VERSION, flag
from kvbudget.engines import vllm
from kvbudget.engines import vllm_cache as cache
from kvbudget.engines.estimate import Estimate
from kvbudget.errors import CannotTell
from kvbudget.facts import vllm as facts
from kvbudget.measured import key_of
from kvbudget.model.shapes import Attention
from kvbudget.parallel import stage_bounds
from kvbudget.units import gib

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbudget.deployment import Deployment
    from kvbudget.engines.vllm import Fixed, Settings
    from kvbudget.engines.vllm_cache import CachePlan
    from kvbudget.model import Model
    from kvbudget.model.shapes import Group

SCHEMA = 1

ENGINES = ("vllm",)

LOADED = ("weights", "draft", "lora")
"""Lines of what is in memory before the engine profiles itself."""

FITS, TIGHT, DOES_NOT_FIT, CANNOT_TELL = "fits", "tight", "does_not_fit", "cannot_tell"


class Line(NamedTuple):
    """One part of a GPU's memory, in bytes.

    Attributes:
        name: "weights", "draft" with speculative decoding, "lora" with slots for adapters, "activations",
            "cuda_graphs", "non_torch", "kv_cache", "outside_budget".
        needs_bytes: What the part needs; for the KV cache, one request of `max_model_len`.
        takes_bytes: What the engine will take for it; all lines of a rank add up to the GPU's memory.
        low_bytes: The lower bound of `needs_bytes` where it is estimated, else equal to it.
        high_bytes: The upper bound.
        basis: How the number is known.
        source: Where it comes from.
    """

    name: str
    needs_bytes: int
    takes_bytes: int
    low_bytes: int
    high_bytes: int
    basis: Basis
    source: str


class Rank(NamedTuple):
    """One distinct GPU of the layout: pipeline stages differ, tensor-parallel ranks of a stage do not.

    Attributes:
        rank: Its number.
        budget_bytes: What the engine may use of the card.
        fixed: What it holds whatever the requests are.
        available_low_bytes: What is left for the KV cache if every estimate is at its high end.
        available_bytes: What is left by the best estimates; negative if the rest does not fit.
        available_high_bytes: What is left if every estimate is at its low end.
        kv_needs_bytes: What one request of `max_model_len` needs.
        bytes_per_block: What a block takes.
        deployment: What was asked.
        graphs_inside: Whether CUDA graphs count into the budget.
    """

    rank: int
    budget_bytes: int
    fixed: Fixed
    available_low_bytes: int
    available_bytes: int
    available_high_bytes: int
    kv_needs_bytes: int
    bytes_per_block: int
    deployment: Deployment
    graphs_inside: bool

    @property
    def given_pool(self) -> tuple[int, str] | None:
        """The size of the pool and the flag that asks for it; None where the pool takes what is left."""
        d = self.deployment
        if d.num_gpu_blocks_override is not None:
            return d.num_gpu_blocks_override * self.bytes_per_block, flag("num_gpu_blocks_override")
        if d.kv_cache_memory_bytes is not None:
            return d.kv_cache_memory_bytes, flag("kv_cache_memory_bytes")
        return None

    @property
    def pool_bytes(self) -> int:
        """The pool: what was asked for, or what is left."""
        return self.given_pool[0] if self.given_pool else max(0, self.available_bytes)

    @property
    def free_at_start(self) -> tuple[int, int]:
        """What the engine finds free when it starts, with the CUDA context at its high end and at its low end."""
        total = self.deployment.card.visible_bytes
        return total - self.fixed.context.high, total - self.fixed.context.low

    @property
    def room_bytes(self) -> tuple[int, int]:
        """What stays free beside a pool of a given size, with the rest at its high end and at its low end.

        The engine takes such a pool at its word (v1/worker/gpu_worker.py, determine_available_memory, 0.32) and runs
        out of memory where the rest has no place.
        """
        fixed = self.fixed
        rest = (*(part for _, part, _ in fixed.inside), fixed.cuda_graphs)
        low, high = (free - self.pool_bytes for free in self.free_at_start)
        return low - sum(part.high for part in rest), high - sum(part.low for part in rest)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The parts of the card's memory; what they will take adds up to it.

        Parts take their memory in the order in which the engine allocates; what does not fit takes nothing.
        """
        d, fixed = self.deployment, self.fixed
        total = d.card.memory_bytes
        given = self.given_pool
        budget_left = total if given else min(self.budget_bytes, total)
        inside = list(fixed.inside)
        graphs = ("cuda_graphs", fixed.cuda_graphs, Basis.ESTIMATED)
        if self.graphs_inside:
            inside.insert(-1, graphs)
        lines = []
        for name, part, basis in inside:
            takes = min(part.best, budget_left)
            budget_left -= takes
            lines.append(Line(name, part.best, takes, part.low, part.high, basis, part.source))
        pool = min(budget_left, self.pool_bytes)
        need = self.kv_needs_bytes
        block = self.bytes_per_block
        low, high = (gib(max(0, left)) for left in (self.available_low_bytes, self.available_high_bytes))
        rest_of_it = f"the rest of the budget, {low}–{high}: {pool // max(1, block):,} blocks of {block:,} B"
        source = given[1] if given else rest_of_it
        lines.append(Line("kv_cache", need, pool, need, need, Basis.GIVEN if given else Basis.EXACT, source))
        rest = total - sum(line.takes_bytes for line in lines)
        if not self.graphs_inside:
            name, part, basis = graphs
            takes = min(part.best, rest)
            rest -= takes
            lines.append(Line(name, part.best, takes, part.low, part.high, basis, part.source))
        outside = fixed.context
        lines.append(
            Line(
                "outside_budget",
                outside.best,
                rest,
                outside.low,
                outside.high,
                Basis.ESTIMATED,
                outside.source,
            )
        )
        return tuple(lines)


class Kv(NamedTuple):
    """The KV cache in the engine's own terms, on one rank.

    Attributes:
        bytes_per_token: The slope while a request grows.
        fixed_bytes_per_request: What a long request holds on top (windows, recurrent state).
        available_kv_cache_memory_bytes: The pool; the engine prints it in GiB.
        num_gpu_blocks: Blocks in the pool.
        block_size: Tokens of one block.
        bytes_per_block: Bytes of one block, all layers.
        kv_cache_size_tokens: "GPU KV cache size" of the engine's log.
        max_concurrency: "Maximum concurrency" of the engine's log.
        needed_for_one_request_bytes: What one request of `max_model_len` needs.
        available_kv_cache_memory_low_bytes: The pool if every estimate is at its high end.
        available_kv_cache_memory_high_bytes: The pool if every estimate is at its low end.
    """

    bytes_per_token: int
    fixed_bytes_per_request: int
    available_kv_cache_memory_bytes: int
    num_gpu_blocks: int
    block_size: int
    bytes_per_block: int
    kv_cache_size_tokens: int
    max_concurrency: float
    needed_for_one_request_bytes: int
    available_kv_cache_memory_low_bytes: int
    available_kv_cache_memory_high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The answer for one deployment.

    Args:
        deployment: What was asked.
        settings: Every choice, resolved.
        plan: The KV cache's groups and blocks.
        verdict: "fits", "tight" (inside the error bar), "does_not_fit".
        ranks: The distinct GPUs.
        fitted_lengths: With `--max-model-len auto`, the longest request that fits if the estimates are at their high
            end, at their best, at their low end; empty otherwise or if the model's own length fits.
    """

    deployment: Deployment
    settings: Settings
    plan: CachePlan
    verdict: str
    ranks: tuple[Rank, ...]
    fitted_lengths: tuple[int, ...] = ()

    @property
    def kv(self) -> Kv:
        """The KV cache in the engine's own terms."""
        d, plan = self.deployment, self.plan
        available = tuple(max(0, rank.available_bytes) for rank in self.ranks)
        blocks = cache.num_gpu_blocks(plan, available, override=d.num_gpu_blocks_override)
        slope, held = vllm.growth(d.model, self.settings)
        return Kv(
            bytes_per_token=slope,
            fixed_bytes_per_request=held,
            available_kv_cache_memory_bytes=min(available),
            num_gpu_blocks=blocks,
            block_size=plan.block_size,
            bytes_per_block=plan.bytes_per_block,
            kv_cache_size_tokens=cache.kv_cache_size_tokens(plan, blocks),
            max_concurrency=cache.max_concurrency(plan, blocks),
            needed_for_one_request_bytes=max(rank.kv_needs_bytes for rank in self.ranks),
            available_kv_cache_memory_low_bytes=max(0, min(rank.available_low_bytes for rank in self.ranks)),
            available_kv_cache_memory_high_bytes=max(0, min(rank.available_high_bytes for rank in self.ranks)),
        )

    @property
    def engine_refusal(self) -> str | None:
        """What the engine itself would say when it refuses to start for lack of cache memory; None if it starts."""
        available = [max(0, rank.available_bytes) for rank in self.ranks]
        return cache.refusal(self.plan, available, override=self.deployment.num_gpu_blocks_override)

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the first rank."""
        return self.ranks[0].lines

    @property
    def smallest(self) -> Rank:
        """The rank with the least room for the KV cache; it decides for all."""
        return _smallest(self.ranks)

    @property
    def fits(self) -> bool:
        """Whether the deployment starts, even if only just."""
        return self.verdict in (FITS, TIGHT)

    @property
    def reason(self) -> str:
        """The verdict in a sentence, with the figures."""
        return _reason(self)

    @property
    def max_concurrent_requests(self) -> int:
        """Requests of `context` tokens (by default `max_model_len`) that hold their KV at once.

        One block is never given out: the engine keeps it as the null block (v1/core/block_pool.py).
        """
        context = self.deployment.context or self.settings.max_model_len
        return cache.fitting_requests(self.plan, self.kv.num_gpu_blocks, context)

    @property
    def max_model_len_that_fits(self) -> int:
        """The longest request for which there is room, at most the model's own limit; 0 if there is none."""
        d = self.deployment
        longest = d.model.max_position_embeddings
        if longest is None or d.allow_long:
            longest = max(longest or 0, self.settings.max_model_len)
        pools = [rank.pool_bytes for rank in self.ranks]
        return cache.largest_model_len(self.plan, pools, limit=longest, override=d.num_gpu_blocks_override)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the user should know before acting on the verdict, a sentence each."""
        return tuple(_warnings(self))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What nobody said, a sentence each with the flag that changes it."""
        return tuple(_assumptions(self))

    def to_dict(self) -> dict[str, Any]:
        """Return the budget as the JSON object of schema 1: plain dicts, lists, numbers and text."""
        return as_dict(self)


def budget(d: Deployment) -> Budget:
    """Return the budget of a deployment.

    Raises:
        InputError: A choice that the engine refuses at once (a layout, a length).
        CannotTell: The engine, or something about the model, is not known.
    """
    if d.engine not in ENGINES:
        raise CannotTell(
            f"Engine {d.engine!r} is not known to this version of kvbudget; choose one of {', '.join(ENGINES)}.",
            key="engine",
        )
    d = vllm.served(d)
    return _fitted(d) if d.max_model_len == AUTO else _budget(d, vllm.settings(d))


def _fitted(d: Deployment) -> Budget:
    """Return the budget at the longest `max_model_len` that fits, as the engine takes it with `auto`.

    It starts as soon as one token fits, so the verdict asks for no more; the length has the error bar instead.
    """
    whole = _budget(d, vllm.settings(d))
    if whole.verdict == FITS:
        return whole
    low, best, high = (_longest(whole, end) for end in range(3))
    b = whole if best == 0 else _budget(d, vllm.settings(d, fitted=best))
    verdict = FITS if low else TIGHT if high else DOES_NOT_FIT
    verdict = _worst(verdict, _start_verdict(b.ranks), _room_verdict(b.ranks))
    return replace(b, verdict=verdict, fitted_lengths=(low, best, high))


def _longest(b: Budget, end: int) -> int:
    """Return the longest request that fits with the estimates at their high end (0), best (1) or low end (2)."""
    available = [
        max(0, (rank.available_low_bytes, rank.available_bytes, rank.available_high_bytes)[end]) for rank in b.ranks
    ]
    return cache.largest_model_len(b.plan, available, override=b.deployment.num_gpu_blocks_override)


def _budget(d: Deployment, s: Settings) -> Budget:
    """Return the budget with every choice resolved."""
    plan = vllm.cache_plan(d.model, s.cache)
    needs = cache.needed_bytes_by_rank(plan)
    ranks = tuple(_rank(d, s, plan, number, stage, needs[number]) for number, stage in enumerate(_stages(d)))
    cached = _cache_verdict(plan, ranks, d.num_gpu_blocks_override)
    verdict = _worst(cached, _start_verdict(ranks), _room_verdict(ranks))
    return Budget(deployment=d, settings=s, plan=plan, verdict=verdict, ranks=ranks)


def _stages(d: Deployment) -> tuple[tuple[int, int] | None, ...]:
    """The distinct ranks: one, or one a pipeline stage."""
    if d.pipeline_parallel_size == 1:
        return (None,)
    return stage_bounds(len(d.model.layers), d.pipeline_parallel_size)


def _rank(d: Deployment, s: Settings, plan: CachePlan, number: int, stage: tuple[int, int] | None, needed: int) -> Rank:
    """Return one rank's budget."""
    tp = d.tensor_parallel_size
    fixed = vllm.fixed(
        d.model,
        s.version,
        s.dtype,
        (tp, tp * d.data_parallel_size, d.enable_expert_parallel),
        stage,
        vllm.batch_key(d.model, s),
        s.enforce_eager,
        d.card,
        s.draft,
        s.slots,
        s.limits,
    )
    if d.measured:
        fixed = _corrected(fixed, d)
    requested = vllm.requested_bytes(d.card, s)
    inside = s.rules.graphs_in_budget
    given = d.kv_cache_memory_bytes
    low, best, high = (given, given, given) if given else _left(fixed, requested, graphs_inside=inside)
    return Rank(number, requested, fixed, low, best, high, needed, plan.bytes_per_block_by_rank[number], d, inside)


def _corrected(fixed: Fixed, d: Deployment) -> Fixed:
    """Return a rank's parts with the corrections that were measured for such a deployment."""
    here = key_of(d)
    changes: dict[str, Any] = {}
    for correction in d.measured:
        part = getattr(fixed, correction.part)
        if correction.key == here and part.best > 0:
            source = f"measured here, n = {correction.n}; {part.source}"
            changes[correction.part] = Estimate(*correction.bounds(*part[:3]), source)
    return fixed._replace(**changes)


def _left(fixed: Fixed, requested: int, *, graphs_inside: bool) -> tuple[int, int, int]:
    """Return what is left of the budget with every estimate at its high end, at its best and at its low end."""
    parts = [part for _, part, _ in fixed.inside] + ([fixed.cuda_graphs] if graphs_inside else [])
    return (
        requested - sum(part.high for part in parts),
        requested - sum(part.best for part in parts),
        requested - sum(part.low for part in parts),
    )


def _smallest(ranks: tuple[Rank, ...]) -> Rank:
    """Return the rank with the least room for what it needs, of several the one with the most weights."""
    if len(ranks) == 1:
        return ranks[0]
    return min(ranks, key=lambda rank: (rank.available_bytes - rank.kv_needs_bytes, -rank.fixed.weights.best))


def _worst(*verdicts: str) -> str:
    return max(verdicts, key=(FITS, TIGHT, DOES_NOT_FIT).index)


def _start_verdict(ranks: tuple[Rank, ...]) -> str:
    """Return whether the budget is free when the engine starts.

    It stops otherwise, whatever the size of the pool (v1/worker/utils.py, request_memory).
    """
    low, high = ranks[0].free_at_start
    asked = ranks[0].budget_bytes
    return FITS if asked <= low else TIGHT if asked <= high else DOES_NOT_FIT


def _room_verdict(ranks: tuple[Rank, ...]) -> str:
    """Return whether a pool of a given size has its place beside the rest; without one it takes what is left."""
    if ranks[0].given_pool is None:
        return FITS
    low, high = (min(room) for room in zip(*(rank.room_bytes for rank in ranks), strict=True))
    return FITS if low >= 0 else TIGHT if high >= 0 else DOES_NOT_FIT


def _cache_verdict(plan: CachePlan, ranks: tuple[Rank, ...], override: int | None) -> str:
    """Only the high end of every estimate makes it fit; between the bounds it is tight."""
    if override is not None and any(rank.pool_bytes < rank.kv_needs_bytes for rank in ranks):
        return DOES_NOT_FIT  # older engines start with such a pool, and the request waits for ever
    for verdict, end in ((FITS, 0), (TIGHT, 1)):
        available = [rank.available_high_bytes if end else rank.available_low_bytes for rank in ranks]
        if _spare(plan, ranks, available, override) >= 0:
            return verdict
    return DOES_NOT_FIT


def _spare(plan: CachePlan, ranks: tuple[Rank, ...], available: list[int], override: int | None) -> int:
    """Return the bytes that the start-up check leaves on its worst rank; negative if it fails."""
    rooms = cache.checked_bytes(plan, available, override=override)
    return min(room - rank.kv_needs_bytes for room, rank in zip(rooms, ranks, strict=True))


@lru_cache(maxsize=256)
def most_kv_heads(model: Model) -> int:
    """Return the largest number of KV heads of any layer, 0 for a model without plain attention."""
    return max(
        (
            part.num_key_value_heads
            for layer in set(model.layers)
            for part in layer.caches
            if isinstance(part, Attention)
        ),
        default=0,
    )


def _reason(b: Budget) -> str:
    rank, needed = b.smallest, b.kv.needed_for_one_request_bytes
    if b.verdict != FITS and _start_decides(b):
        low, high = (gib(free) for free in rank.free_at_start)
        return (
            f"{flag('gpu_memory_utilization')} {b.settings.gpu_memory_utilization:g} asks for "
            f"{gib(rank.budget_bytes)} GiB, and beside the CUDA context {low}–{high} are free when vLLM starts"
        )
    if rank.given_pool and b.verdict != FITS and _room_verdict(b.ranks) == b.verdict:
        (pool, name), total = rank.given_pool, b.deployment.card.visible_bytes
        least, most = (gib(total - pool - room) for room in reversed(rank.room_bytes))
        return f"{name} takes {gib(pool)} GiB, the rest needs {least}–{most}, and vLLM sees {gib(total)}"
    if b.fitted_lengths and b.fitted_lengths[1]:
        low, best, high = (f"{length:,}" for length in b.fitted_lengths)
        return f"the engine will take max_model_len {best} ({low}–{high}), the longest request that fits"
    need = f"one request of {b.settings.max_model_len:,} tokens needs {gib(needed)} GiB of KV cache"
    if rank.given_pool:
        pool, name = rank.given_pool
        return f"{need}; {name} gives {gib(pool)} GiB"
    have = f"{gib(max(0, rank.available_bytes))} GiB is left"
    bounds = f"{gib(max(0, rank.available_low_bytes))}–{gib(max(0, rank.available_high_bytes))}"
    if b.verdict == TIGHT:
        return f"{need}; {have}, but the estimate is {bounds}: inside the error bar"
    if rank.available_bytes <= 0:
        return f"{need}, and nothing is left for it: the rest is over the budget by {gib(-rank.available_bytes)} GiB"
    if b.verdict == DOES_NOT_FIT:
        at_least = gib(needed - max(0, rank.available_high_bytes))
        return f"{need}; {have} (short by {gib(needed - rank.available_bytes)}, by {at_least} at the least)"
    return f"{need}; {have} ({bounds})"


def _start_decides(b: Budget) -> bool:
    """Whether it is the budget, not the cache, that makes the verdict what it is."""
    cached = FITS if b.fitted_lengths else _cache_verdict(b.plan, b.ranks, b.deployment.num_gpu_blocks_override)
    return _start_verdict(b.ranks) == b.verdict != cached


def _warnings(b: Budget) -> Iterator[str]:
    d, s = b.deployment, b.settings
    note = facts.version_note(s.version)
    if note:
        yield note
    yield from vllm.cautions(d, s.version)
    yield from vllm.draft_cautions(d, s)
    yield from b.plan.notes
    if d.model.stored is not None:
        yield from d.model.stored.notes
    yield from d.uncounted
    tp, heads = d.tensor_parallel_size, most_kv_heads(d.model)
    if 0 < heads < tp:
        yield (
            f"TP={tp} but {heads} KV head{'s' if heads > 1 else ''}: each KV head is stored {tp // heads} times; "
            f"the KV cache gains nothing over TP={heads}. Consider DP={tp // heads} × TP={heads}."
        )
    if _start_verdict(b.ranks) != FITS and not _start_decides(b):
        context = b.smallest.fixed.context
        room = max(0, context.high + b.smallest.free_at_start[0] - b.smallest.budget_bytes)
        yield (
            f"{gib(room)} GiB stays outside the budget, less than the CUDA context may need "
            f"({gib(context.low)}–{gib(context.high)}); lower --gpu-memory-utilization."
        )


def _assumptions(b: Budget) -> Iterator[str]:
    d = b.deployment
    yield f"vLLM {d.engine_version} (--engine-version)"
    yield from vllm.assumptions(d, b.settings)
    if d.card.basis is Basis.ASSUMED:
        yield f"{d.card.name}: {gib(d.card.memory_bytes)} GiB from the marketing figure (--gpu-memory)"
    if d.measured and d.measured[0].key == key_of(d):
        parts = ", ".join(f"{item.part.replace('_', ' ')} (n = {item.n})" for item in d.measured)
        yield f"as measured here: {parts}; --no-calibration leaves it out"
    for key, value in d.model.assumptions:
        yield f"{key} = {value}, the class's default: the config leaves it out"


def as_dict(b: Budget) -> dict[str, Any]:
    """Return a budget as plain data; the fields are those that scripts may rely on."""
    d, s, model = b.deployment, b.settings, b.deployment.model
    return {
        "schema": SCHEMA,
        "kvbudget": __version__,
        "verdict": b.verdict,
        "reason": b.reason,
        "model": model_dict(model),
        "engine": {"name": d.engine, "version": d.engine_version},
        "gpu": {"name": d.card.name, "memory_bytes": d.card.memory_bytes, "count": d.gpu_count},
        "settings": {
            "tensor_parallel_size": d.tensor_parallel_size,
            "pipeline_parallel_size": d.pipeline_parallel_size,
            "data_parallel_size": d.data_parallel_size,
            "decode_context_parallel_size": d.decode_context_parallel_size,
            "enable_expert_parallel": d.enable_expert_parallel,
            "max_model_len": s.max_model_len,
            "max_num_seqs": s.max_num_seqs,
            "max_num_batched_tokens": s.max_num_batched_tokens,
            "gpu_memory_utilization": s.gpu_memory_utilization,
            "kv_cache_memory_bytes": d.kv_cache_memory_bytes,
            "num_gpu_blocks_override": d.num_gpu_blocks_override,
            "block_size": b.kv.block_size,
            "dtype": s.dtype,
            "quantization": d.model.quantization.method if d.model.quantization else None,
            "quantization_origin": d.model.quantization.origin if d.model.quantization else None,
            "kv_cache_dtype": b.plan.kv_cache_dtype,
            "enforce_eager": s.enforce_eager,
            "enable_prefix_caching": b.plan.enable_prefix_caching,
            "async_scheduling": s.async_scheduling,
            "speculative_config": _speculative_dict(s),
            "lora": s.slots._asdict() if s.slots else None,
        },
        "ranks": [
            {
                "rank": rank.rank,
                "budget_bytes": rank.budget_bytes,
                "lines": [
                    {
                        "name": line.name,
                        "needs_bytes": line.needs_bytes,
                        "takes_bytes": line.takes_bytes,
                        "low_bytes": line.low_bytes,
                        "high_bytes": line.high_bytes,
                        "basis": line.basis.value,
                        "source": line.source,
                    }
                    for line in rank.lines
                ],
            }
            for rank in b.ranks
        ],
        "kv": {key: value if isfinite(value) else None for key, value in b.kv._asdict().items()},
        "engine_message": b.engine_refusal,
        "max_concurrent_requests": b.max_concurrent_requests,
        "max_model_len_that_fits": b.max_model_len_that_fits,
        "warnings": list(b.warnings),
        "assumptions": list(b.assumptions),
    }


def _speculative_dict(s: Settings) -> dict[str, Any] | None:
    """Return what proposes tokens as plain data, None if nothing does."""
    if s.draft is None:
        return None
    return {
        "method": s.draft.method,
        "num_speculative_tokens": s.draft.tokens,
        "model": s.draft.model.name if s.draft.model else None,
        "layers": len(s.draft.layers),
    }


def model_dict(model: Model) -> dict[str, Any]:
    """Return a model as plain data: counts by group, and its layers by kind."""
    return {
        "id": model.name,
        "source": model.source,
        "model_type": model.model_type,
        "parameters": model.parameters,
        "active_parameters": model.active_parameters,
        "mtp_parameters": model.mtp_parameters,
        "parameters_by_group": _by_name(model.parameters_by_group()),
        "stored_bytes": model.stored.nbytes if model.stored else None,
        "stored_bytes_by_group": _by_name(model.stored.bytes_by_group) if model.stored else None,
        "layers": layer_kinds(model),
    }


def _by_name(amounts: Mapping[Group, int]) -> dict[str, int]:
    return {group.value: amount for group, amount in amounts.items()}


def layer_kinds(model: Model) -> list[dict[str, Any]]:
    """Return one entry for each distinct cache in the model: its kind, how many layers keep it, its figures."""
    counts: dict[Any, int] = {}
    for layer in model.layers:
        for part in layer.caches or (None,):
            key = "shared" if part is None and layer.shares_kv else part
            counts[key] = counts.get(key, 0) + 1
    entries = []
    for part, count in counts.items():
        if part is None or part == "shared":
            entries.append({"kind": "shared_kv" if part else "none", "count": count})
            continue
        figures = {field.name: getattr(part, field.name) for field in fields(part)}
        kind = figures.pop("kind", None) or part.kind
        figures.pop("tensors", None)
        entries.append({"kind": kind, "count": count, **{k: v for k, v in figures.items() if v is not None}})
    return entries


def refusal_dict(name: str, error: CannotTell, options: dict[str, Any]) -> dict[str, Any]:
    """Return a refusal as plain data: the same fields as a budget where something is known."""
    return {
        "schema": SCHEMA,
        "kvbudget": __version__,
        "verdict": CANNOT_TELL,
        "reason": str(error),
        "key": error.key,
        "model": {"id": name},
        "engine": {"name": options.get("engine"), "version": options.get("engine_version") or DEFAULT_ENGINE_VERSION},
        "gpu": {"name": options.get("gpu"), "memory_bytes": options.get("gpu_memory"), "count": None},
        "warnings": [],
        "assumptions": [],
    }
