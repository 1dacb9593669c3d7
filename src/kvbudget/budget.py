"""The budget of a deployment: what each GPU's memory goes to, what fits, and the nearest changes that fit.

Everything is integer bytes of one rank. Two columns never mix: what a part *needs*, and what the engine *will take*
for it (the KV cache takes what is left, however little is needed).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvbudget import __version__
from kvbudget.basis import Basis
from kvbudget.engines import vllm
from kvbudget.engines.vllm_cache import cache_token_bytes
from kvbudget.errors import CannotTell
from kvbudget.facts import vllm as facts
from kvbudget.model.shapes import Attention, Indexer, LatentAttention
from kvbudget.parallel import stage_bounds
from kvbudget.units import gib

if TYPE_CHECKING:
    from kvbudget.deployment import Deployment
    from kvbudget.engines.estimate import Estimate
    from kvbudget.engines.vllm import Settings
    from kvbudget.engines.vllm_cache import CachePlan
    from kvbudget.model import Model

SCHEMA = 1

ENGINES = ("vllm",)

FITS, TIGHT, DOES_NOT_FIT, CANNOT_TELL = "fits", "tight", "does_not_fit", "cannot_tell"


@dataclass(frozen=True, slots=True)
class Line:
    """One part of a GPU's memory, in bytes.

    Args:
        name: "weights", "activations", "cuda_graphs", "non_torch", "kv_cache", "outside_budget".
        needs_bytes: What the part needs; for the KV cache, one request of `max_model_len`.
        takes_bytes: What the engine will take for it; all lines of a rank add up to the GPU's memory.
        low_bytes, high_bytes: The bounds of `needs_bytes` where it is estimated, else equal to it.
        basis: How the number is known.
        source: Where it comes from.
        in_budget: Whether the engine takes it out of the fraction of the memory that it may use.
    """

    name: str
    needs_bytes: int
    takes_bytes: int
    low_bytes: int
    high_bytes: int
    basis: Basis
    source: str
    in_budget: bool = True


@dataclass(frozen=True, slots=True)
class Rank:
    """One distinct GPU of the layout: pipeline stages differ, tensor-parallel ranks of a stage do not."""

    rank: int
    budget_bytes: int
    lines: tuple[Line, ...]
    available_low_bytes: int
    available_bytes: int
    available_high_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Kv:
    """The KV cache in the engine's own terms, on one rank.

    Args:
        bytes_per_token: The slope while a request grows.
        fixed_bytes_per_request: What a long request holds on top (windows, recurrent state).
        available_kv_cache_memory_bytes: The pool; the engine prints it in GiB.
        num_gpu_blocks: Blocks in the pool.
        block_size: Tokens of one block.
        bytes_per_block: Bytes of one block, all layers.
        kv_cache_size_tokens: "GPU KV cache size" of the engine's log.
        max_concurrency: "Maximum concurrency" of the engine's log.
        needed_for_one_request_bytes: What one request of `max_model_len` needs.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The answer for one deployment.

    Args:
        deployment: What was asked.
        settings: Every choice, resolved.
        verdict: "fits", "tight" (inside the error bar), "does_not_fit".
        reason: The verdict in a sentence.
        ranks: The distinct GPUs.
        kv: The KV cache.
        cache: The KV cache's groups and blocks.
        max_concurrent_requests: Requests of `context` tokens (by default `max_model_len`) that hold their KV at once.
        max_model_len_that_fits: The longest request for which there is room, 0 if there is none.
        warnings, assumptions: Sentences.
    """

    deployment: Deployment
    settings: Settings
    verdict: str
    reason: str
    ranks: tuple[Rank, ...]
    kv: Kv
    cache: CachePlan
    max_concurrent_requests: int
    max_model_len_that_fits: int
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the first rank."""
        return self.ranks[0].lines

    @property
    def tightest(self) -> Rank:
        """The rank with the least room for the KV cache; the engine gives all ranks as many blocks as it can hold."""
        return min(self.ranks, key=lambda rank: rank.available_bytes)

    @property
    def fits(self) -> bool:
        """Whether the deployment starts, even if only just."""
        return self.verdict in (FITS, TIGHT)

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
    s = vllm.settings(d)
    plan = vllm.cache_plan(d.model, s.cache)
    ranks = tuple(_rank(d, s, number, stage) for number, stage in enumerate(_stages(d)))
    reserve = plan.bytes_per_block if facts.at(facts.RESERVE_BLOCK, s.version) else 0
    needed = plan.blocks_per_request * plan.bytes_per_block
    smallest = min(ranks, key=lambda rank: rank.available_bytes)
    blocks = d.num_gpu_blocks_override or max(0, smallest.available_bytes) // plan.bytes_per_block
    concurrency = blocks / plan.blocks_per_request
    verdict = _verdict(smallest, needed + reserve)
    reason = _reason(verdict, smallest, needed, s.max_model_len)
    if verdict != DOES_NOT_FIT and d.kv_cache_memory_bytes:
        verdict, reason = _beside_given_pool(d, ranks, d.kv_cache_memory_bytes) or (verdict, reason)
    slope, held = growth(d.model, vllm.kv_element_bytes(s), d.tensor_parallel_size)
    kv = Kv(
        bytes_per_token=slope,
        fixed_bytes_per_request=held,
        available_kv_cache_memory_bytes=max(0, smallest.available_bytes),
        num_gpu_blocks=blocks,
        block_size=plan.block_size,
        bytes_per_block=plan.bytes_per_block,
        kv_cache_size_tokens=int(concurrency * s.max_model_len),
        max_concurrency=concurrency,
        needed_for_one_request_bytes=needed,
    )
    context = d.context or s.max_model_len
    usable = max(0, blocks - 1)  # the null block
    return Budget(
        deployment=d,
        settings=s,
        verdict=verdict,
        reason=reason,
        ranks=tuple(_with_cache(d, rank, needed, plan.bytes_per_block) for rank in ranks),
        kv=kv,
        cache=plan,
        max_concurrent_requests=usable // -(-context // plan.block_size),
        max_model_len_that_fits=_largest(d, blocks, plan.block_size, reserve > 0),
        warnings=s.warnings + tuple(_warnings(d, s, smallest)),
        assumptions=_assumptions(d, s),
    )


def _stages(d: Deployment) -> tuple[tuple[int, int] | None, ...]:
    """The distinct ranks: one, or one a pipeline stage."""
    if d.pipeline_parallel_size == 1:
        return (None,)
    return stage_bounds(len(d.model.layers), d.pipeline_parallel_size)


def _rank(d: Deployment, s: Settings, number: int, stage: tuple[int, int] | None) -> Rank:
    """Return one rank's budget with the lines that do not depend on the requests."""
    parts = vllm.fixed(
        d.model,
        s.version,
        s.dtype,
        (d.tensor_parallel_size, d.tensor_parallel_size * d.pipeline_parallel_size, d.enable_expert_parallel),
        stage,
        (s.max_num_batched_tokens, s.max_num_seqs),
        s.enforce_eager,
    )
    requested = vllm.requested_bytes(d.card, s)
    inside = [parts.weights, parts.activations, parts.non_torch]
    graphs_inside = facts.at(facts.GRAPHS_IN_BUDGET, s.version)
    if graphs_inside:
        inside.append(parts.cuda_graphs)
    given = d.kv_cache_memory_bytes
    available = [given or requested - sum(part[i] for part in inside) for i in (2, 1, 0)]
    lines = (
        _line("weights", parts.weights, parts.weights_basis),
        _line("activations", parts.activations, Basis.ESTIMATED),
        _line("cuda_graphs", parts.cuda_graphs, Basis.ESTIMATED, in_budget=graphs_inside),
        _line("non_torch", parts.non_torch, Basis.ESTIMATED),
        _line("outside_budget", parts.context, Basis.ESTIMATED, in_budget=False),
    )
    return Rank(number, requested, lines, *available)


def _line(name: str, part: Estimate, basis: Basis, *, in_budget: bool = True) -> Line:
    return Line(name, part.best, part.best, part.low, part.high, basis, part.source, in_budget)


def _with_cache(d: Deployment, rank: Rank, needed: int, block: int) -> Rank:
    """Return the rank with its cache line, and with what each part will take adding up to the GPU's memory.

    Parts take their memory in the order in which the engine allocates; what does not fit takes nothing.
    """
    total = d.card.memory_bytes
    *parts, outside = rank.lines
    left = total if d.kv_cache_memory_bytes else min(rank.budget_bytes, total)
    lines = []
    for line in parts:
        takes = min(line.needs_bytes, left) if line.in_budget else 0
        left -= takes
        lines.append(replace(line, takes_bytes=takes))
    pool = min(left, max(0, rank.available_bytes))
    basis = Basis.GIVEN if d.kv_cache_memory_bytes else Basis.EXACT
    lines.append(Line("kv_cache", needed, pool, needed, needed, basis, _pool_source(d, pool, block)))
    rest = total - sum(line.takes_bytes for line in lines)
    for i, line in enumerate(lines):
        if not line.in_budget:  # it comes after the cache, out of what the engine may not touch
            lines[i] = replace(line, takes_bytes=min(line.needs_bytes, rest))
            rest -= lines[i].takes_bytes
    lines.append(replace(outside, takes_bytes=rest))
    return replace(rank, lines=tuple(lines))


def _pool_source(d: Deployment, pool: int, block: int) -> str:
    if d.kv_cache_memory_bytes:
        return "--kv-cache-memory-bytes"
    return f"what is left of the budget: {pool // block:,} blocks of {block:,} B"


def _verdict(rank: Rank, needed: int) -> str:
    """Only the high end of every estimate makes it fit; between the bounds it is tight."""
    if rank.available_low_bytes >= needed:
        return FITS
    return TIGHT if rank.available_high_bytes >= needed else DOES_NOT_FIT


def _beside_given_pool(d: Deployment, ranks: tuple[Rank, ...], pool: int) -> tuple[str, str] | None:
    """Return what speaks against a pool of a given size, or None.

    The engine takes such a pool at its word (v1/worker/gpu_worker.py, determine_available_memory, 0.32) and runs out
    of memory when the rest has no place beside it.
    """
    low = max(sum(line.low_bytes for line in rank.lines) for rank in ranks)
    high = max(sum(line.high_bytes for line in rank.lines) for rank in ranks)
    room = d.card.memory_bytes - pool
    if high <= room:
        return None
    rest = f"{gib(low)}–{gib(high)}" if low < high else gib(high)
    reason = (
        f"--kv-cache-memory-bytes takes {gib(pool)} GiB, the rest needs {rest} GiB, and the GPU has "
        f"{gib(d.card.memory_bytes)}"
    )
    return (TIGHT if low <= room else DOES_NOT_FIT), reason


@lru_cache(maxsize=1024)
def growth(model: Model, element_bytes: int, tensor_parallel_size: int) -> tuple[int, int]:
    """Return (bytes a token adds while a request grows, bytes a long request holds on top) on one rank.

    A window at least as long as the model's own limit never ends, so its layers grow like full ones.
    """
    longest = model.max_position_embeddings
    slope = held = 0
    for layer in model.layers:
        for part in layer.caches:
            if not isinstance(part, (Attention, LatentAttention, Indexer)):
                continue
            size = cache_token_bytes(part, element_bytes, tensor_parallel_size)
            window = part.window if isinstance(part, Attention) else None
            if window is None or (longest is not None and window >= longest):
                slope += size
            else:
                held += size * window
    return slope, held


@lru_cache(maxsize=256)
def most_kv_heads(model: Model) -> int:
    """Return the largest number of KV heads of any layer, 0 for a model without plain attention."""
    return max(
        (part.num_key_value_heads for layer in set(model.layers) for part in layer.caches if isinstance(part, Attention)),
        default=0,
    )


def _reason(verdict: str, rank: Rank, needed: int, length: int) -> str:
    have = max(0, rank.available_bytes)
    need = f"one request of {length:,} tokens needs {gib(needed)} GiB of KV cache"
    if rank.available_bytes <= 0:
        return f"{need}, and nothing is left for it: the rest is over the budget by {gib(-rank.available_bytes)} GiB"
    if verdict == DOES_NOT_FIT:
        at_least = gib(needed - max(0, rank.available_high_bytes))
        return f"{need}; {gib(have)} GiB is left (short by {gib(needed - have)}, by {at_least} at the least)"
    bounds = f"{gib(max(0, rank.available_low_bytes))}–{gib(rank.available_high_bytes)}"
    if verdict == TIGHT:
        return f"{need}; {gib(have)} GiB is left, but the estimate is {bounds}: inside the error bar"
    return f"{need}; {gib(have)} GiB is left ({bounds})"


def _largest(d: Deployment, blocks: int, block_size: int, reserve: bool) -> int:
    """Return the longest request that the pool can hold, at most the model's own limit."""
    tokens = max(0, blocks - (1 if reserve else 0)) * block_size
    longest = d.model.max_position_embeddings
    return tokens if longest is None else min(tokens, longest)


def _warnings(d: Deployment, s: Settings, rank: Rank) -> list[str]:
    found = []
    tp = d.tensor_parallel_size
    heads = most_kv_heads(d.model)
    if 0 < heads < tp:
        found.append(
            f"TP={tp} but {heads} KV head{'s' if heads > 1 else ''}: each KV head is stored {tp // heads} times; "
            f"the KV cache gains nothing over TP={heads}. Consider DP={tp // heads} × TP={heads}."
        )
    outside = rank.lines[-1]
    room = d.card.memory_bytes - rank.budget_bytes
    if not d.kv_cache_memory_bytes and room < outside.high_bytes:
        found.append(
            f"{gib(room)} GiB stays outside the budget, less than the CUDA context may need "
            f"({gib(outside.low_bytes)}–{gib(outside.high_bytes)}); lower --gpu-memory-utilization."
        )
    return found


def _assumptions(d: Deployment, s: Settings) -> tuple[str, ...]:
    found = [f"vLLM {d.engine_version} (--engine-version)", *s.assumptions]
    if d.card.basis is Basis.ASSUMED:
        found.append(f"{d.card.name}: {gib(d.card.memory_bytes)} GiB from the marketing figure (--gpu-memory)")
    found.extend(
        f"{key} {value} is the class's default, the config leaves it out" for key, value in d.model.assumptions[:8]
    )
    return tuple(found)


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
            "max_model_len": s.max_model_len,
            "max_num_seqs": s.max_num_seqs,
            "max_num_batched_tokens": s.max_num_batched_tokens,
            "gpu_memory_utilization": s.gpu_memory_utilization,
            "block_size": b.kv.block_size,
            "dtype": s.dtype,
            "kv_cache_dtype": s.cache.kv_cache_dtype,
            "enforce_eager": s.enforce_eager,
            "enable_prefix_caching": s.enable_prefix_caching,
            "async_scheduling": s.async_scheduling,
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
        "kv": {field.name: getattr(b.kv, field.name) for field in fields(b.kv)},
        "max_concurrent_requests": b.max_concurrent_requests,
        "max_model_len_that_fits": b.max_model_len_that_fits,
        "warnings": list(b.warnings),
        "assumptions": list(b.assumptions),
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
        "parameters_by_group": {group.value: count for group, count in model.parameters_by_group().items()},
        "layers": layer_kinds(model),
    }


def layer_kinds(model: Model) -> list[dict[str, Any]]:
    """Return one entry for each distinct cache in the model: its kind, how many layers keep it, its figures."""
    counts: dict[Any, int] = {}
    for layer in model.layers:
        for cache in layer.caches or (None,):
            key = "shared" if cache is None and layer.shares_kv else cache
            counts[key] = counts.get(key, 0) + 1
    entries = []
    for cache, count in counts.items():
        if cache is None or cache == "shared":
            entries.append({"kind": "shared_kv" if cache else "none", "count": count})
            continue
        figures = {field.name: getattr(cache, field.name) for field in fields(cache)}
        kind = figures.pop("kind", None) or cache.kind
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
        "engine": {"name": options.get("engine"), "version": options.get("engine_version")},
        "warnings": [],
        "assumptions": [],
    }
