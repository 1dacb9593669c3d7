"""The smallest changes that make a deployment fit.

Nothing is derived here: every change is tried by asking `budget` again, so what is said to fit does fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kvbudget.budgeting import DOES_NOT_FIT, FITS, TIGHT, budget, most_kv_heads
from kvbudget.deployment import flag
from kvbudget.errors import KvbudgetError
from kvbudget.model.shapes import LatentAttention
from kvbudget.units import MIB, gib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kvbudget.budgeting import Budget
    from kvbudget.deployment import Deployment
    from kvbudget.model import Model

MAX_TENSOR_PARALLEL = 16
"""Two machines of eight GPUs; a larger group is a design of its own, not a change."""

MAX_STAGES = 8

UTILIZATIONS = (0.90, 0.92, 0.94, 0.95, 0.96, 0.97)
"""Fractions people use; above the last one nothing is left for a driver's own needs."""

SMALLEST_BATCH = 2048
"""vLLM's own smallest default of max_num_batched_tokens (engine/arg_utils.py, get_batch_defaults, 0.32)."""

SMALLEST_SEQS = 32
"""Below this a server hardly batches any more."""

WORTH_SAYING = 4
"""A change that is not enough is told if it brings at least one part in so many of what is missing."""

SHORTEST = 512
"""A shorter context serves nobody."""

FP8_SINCE = (8, 9)
"""Compute capability with 8-bit floats in hardware; older cards store them by emulation, if their backend does."""

CHECKPOINTS: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("an FP8 checkpoint", {"quant_method": "fp8", "activation_scheme": "dynamic"}),
    ("a 4-bit checkpoint (groups of 128)", {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}),
)
"""Other weights of the same shape: what to call them, and their `quantization_config`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing to do.

    Args:
        flags: What to add to the launch command, or in words what to serve instead.
        fields: The same as fields of a `Deployment`.
        gives_up: What it costs, in words.
    """

    flags: str
    fields: Mapping[str, Any]
    gives_up: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change, of one or more steps, and what it leads to.

    Args:
        steps: What to do.
        deployment: The deployment after the change.
        verdict: Its verdict; DOES_NOT_FIT means that this change alone is not enough.
        requests: Requests of `length` tokens that hold their KV at once after the change.
        length: The asked length, or the new `max_model_len` where that is what changes.
        shorter: Whether `length` is less than what was asked.
        short_bytes: What is still missing, 0 if it is enough.
    """

    steps: tuple[Step, ...]
    deployment: Deployment
    verdict: str
    requests: int
    length: int
    shorter: bool
    short_bytes: int

    @property
    def flags(self) -> str:
        """All steps as one line."""
        return " ".join(step.flags for step in self.steps)

    @property
    def enough(self) -> bool:
        """Whether the deployment starts with this change alone."""
        return self.verdict in (FITS, TIGHT)


def smallest_changes(d: Deployment, b: Budget) -> tuple[Change, ...]:
    """Return the nearest changes that make a deployment fit, the cheapest kind first; none if it fits already.

    Of each kind the smallest step that is enough is taken. A kind that is not enough alone comes last and says how
    much is missing; if none of the free ones is, they are tried together.

    Args:
        d: The deployment.
        b: Its budget.
    """
    if b.verdict == FITS:
        return ()
    missing = _short(b)
    tuning = [steps for steps in (list(way(d, b)) for way in _TUNING) if steps]
    found = [change for steps in tuning for change in _smallest(d, b, steps)[-1:]]
    if not any(_better(change.verdict, b.verdict) for change in found):
        found += _together(d, b, tuning)
    found += _shorter(d, b)
    found += _smallest(d, b, list(_checkpoints(d, b)))
    found += _smallest(d, b, list(_more_gpus(d, b)))
    told = [change for change in found if change.enough or 0 < missing <= (missing - change.short_bytes) * WORTH_SAYING]
    return tuple(sorted(told, key=lambda change: not change.enough))


# -- what can be tried, each from the smallest step on


def _utilization(d: Deployment, b: Budget) -> Iterator[Step]:
    """A larger fraction as long as the CUDA context surely has its place outside, a smaller one where it has not."""
    too_much = b.smallest.budget_bytes > b.smallest.free_at_start[0]
    if not too_much and (b.smallest.given_pool or d.card.unified):
        return
    outside = b.smallest.fixed.context.high
    for step in reversed(UTILIZATIONS) if too_much else UTILIZATIONS:
        left = int(d.card.memory_bytes * (1 - step))
        if (step < b.settings.gpu_memory_utilization) == too_much and left >= outside:
            yield _step({"gpu_memory_utilization": step}, f"{gib(left)} GiB stays outside")


def _other_pool(d: Deployment, b: Budget) -> Iterator[Step]:
    """A pool that holds a request and surely has its place beside the rest, where its size was given."""
    pool, room, block = b.smallest.pool_bytes, b.smallest.room_bytes[0], b.smallest.bytes_per_block
    least = b.kv.needed_for_one_request_bytes + block  # one block is kept back
    grows = pool < least
    if b.smallest.given_pool is None or least > pool + room or (room >= 0 and not grows):
        return
    by_blocks = d.num_gpu_blocks_override is not None
    name, unit, step = ("num_gpu_blocks_override", block, 1) if by_blocks else ("kv_cache_memory_bytes", MIB, MIB)
    units = -(-least // unit) if grows else (pool + room) // unit
    yield _step(
        {name: units * step}, f"{gib(abs(pool - units * unit))} GiB of {'what is free' if grows else 'KV cache'}"
    )


def _fewer_seqs(d: Deployment, b: Budget) -> Iterator[Step]:  # noqa: ARG001 - all ways are called alike
    seqs = b.settings.max_num_seqs // 2
    while seqs >= SMALLEST_SEQS:
        yield _step({"max_num_seqs": seqs}, f"at most {seqs} requests run at once")
        seqs //= 2


def _smaller_batch(d: Deployment, b: Budget) -> Iterator[Step]:
    tokens = b.settings.max_num_batched_tokens // 2
    while tokens >= SMALLEST_BATCH and tokens >= (d.max_num_seqs or 0):
        yield _step({"max_num_batched_tokens": tokens}, "long prompts take more steps")
        tokens //= 2


def _eager(d: Deployment, b: Budget) -> Iterator[Step]:  # noqa: ARG001
    if not d.enforce_eager:
        yield _step({"enforce_eager": True}, "CUDA graphs: slower decoding")


def _fp8_cache(d: Deployment, b: Budget) -> Iterator[Step]:
    capability = b.settings.cache.compute_capability
    if d.kv_cache_dtype == "auto" and (capability is None or capability >= FP8_SINCE):
        yield _step({"kv_cache_dtype": "fp8"}, "16-bit keys and values: check quality")


def _context_parallel(d: Deployment, b: Budget) -> Iterator[Step]:  # noqa: ARG001
    """Latent attention is stored whole on every rank; context parallelism divides its tokens instead."""
    latent = any(isinstance(part, LatentAttention) for layer in set(d.model.layers) for part in layer.caches)
    if latent and d.decode_context_parallel_size == 1 < d.tensor_parallel_size:
        yield _step({"decode_context_parallel_size": d.tensor_parallel_size}, "more traffic between GPUs")


_TUNING: Sequence[Callable[[Deployment, Budget], Iterator[Step]]] = (
    _utilization,
    _other_pool,
    _fewer_seqs,
    _smaller_batch,
    _eager,
    _fp8_cache,
    _context_parallel,
)
"""Changes that cost nothing but a restart, the least harmful first."""


def _checkpoints(d: Deployment, b: Budget) -> Iterator[Step]:  # noqa: ARG001
    if d.model.quantization is None and d.quantization is None:
        for name, section in CHECKPOINTS:
            model = _quantized(d.model, name, tuple(section.items()))
            yield Step(flags=name, fields={"model": model}, gives_up="other weights: check quality")


def _more_gpus(d: Deployment, b: Budget) -> Iterator[Step]:  # noqa: ARG001
    """Twice the tensor parallelism, and again; where the heads cannot be split, stages."""
    heads, tp, stages = d.model.num_attention_heads, d.tensor_parallel_size, d.pipeline_parallel_size
    sizes = [tp << i for i in range(1, MAX_TENSOR_PARALLEL.bit_length()) if tp << i <= MAX_TENSOR_PARALLEL]
    legal = [size for size in sizes if heads % size == 0]
    layouts = [{"tensor_parallel_size": size} for size in legal] or [
        {"pipeline_parallel_size": size} for size in range(stages + 1, MAX_STAGES + 1)
    ]
    for layout in layouts:
        count = d.gpu_count * next(iter(layout.values())) // (tp if legal else stages)
        spare = (d.num_gpus or d.gpu_count) - count
        more = count - d.gpu_count
        cost = "GPUs you have" if spare >= 0 else f"{more} more GPU{'s' if more > 1 else ''}"
        copies = layout.get("tensor_parallel_size", 0) // (most_kv_heads(d.model) or MAX_TENSOR_PARALLEL)
        if copies > 1:
            cost += f"; each KV head is stored {copies} times"
        step = _step(layout, cost)
        yield Step(flags=step.flags, fields={**layout, "num_gpus": max(count, d.num_gpus or 0)}, gives_up=cost)


@lru_cache(maxsize=64)
def _quantized(model: Model, name: str, section: tuple[tuple[str, Any], ...]) -> Model:
    from kvbudget.model.quantization import read_recipe  # noqa: PLC0415 - few deployments get here

    recipe = read_recipe({"quantization_config": dict(section)})
    return replace(model, quantization=recipe, name=f"{model.name} as {name}")


def _step(fields: Mapping[str, Any], gives_up: str) -> Step:
    return Step(flags=_spelled(fields), fields=fields, gives_up=gives_up)


def _spelled(fields: Mapping[str, Any]) -> str:
    return " ".join(flag(name) if value is True else f"{flag(name)} {value}" for name, value in fields.items())


# -- which of them is enough


def _smallest(d: Deployment, b: Budget, steps: list[Step]) -> list[Change]:
    """Return the first step that fits, before it one that is tight; or the last that helps at all."""
    tight: list[Change] = []
    helps: list[Change] = []
    missing = _short(b)
    for step in steps:
        change = _try(d, step)
        if change is None:
            continue
        if change.verdict == FITS:
            return [*tight, change]
        if _better(change.verdict, b.verdict):
            tight = tight or [change]
        elif not change.enough and change.short_bytes < missing:
            helps, missing = [change], change.short_bytes
    return tight or helps


def _together(d: Deployment, b: Budget, ways: list[list[Step]]) -> list[Change]:
    """Return the fewest ways that are enough together, the harmless ones first, each with its smallest step."""

    def enough(steps: list[Step]) -> bool:
        change = _try(d, *steps)
        return change is not None and _better(change.verdict, b.verdict)

    largest = [steps[-1] for steps in ways]
    taken = next((largest[:count] for count in range(2, len(largest) + 1) if enough(largest[:count])), None)
    if taken is None:
        return []
    for step in largest[::-1]:
        fewer = [other for other in taken if other is not step]
        if step in taken and enough(fewer):
            taken = fewer
    for steps in ways:
        if steps[-1] in taken:
            place = taken.index(steps[-1])
            taken[place] = next(step for step in steps if enough([*taken[:place], step, *taken[place + 1 :]]))
    change = _try(d, *taken)
    return [change] if change is not None else []


def _shorter(d: Deployment, b: Budget) -> list[Change]:
    """Return the longest `max_model_len` that surely fits; failing that, the longest that may."""
    for wanted in (FITS, TIGHT):
        low, high = 0, b.settings.max_model_len
        while high - low > 1:
            length = (low + high) // 2
            change = _try(d, _length(d, length))
            enough = change is not None and not _better(wanted, change.verdict)
            low, high = (length, high) if enough else (low, length)
        whole_blocks = low // b.kv.block_size * b.kv.block_size or low
        change = _try(d, _length(d, whole_blocks)) if whole_blocks >= SHORTEST else None
        if change is not None and _better(change.verdict, b.verdict):
            return [replace(change, shorter=change.length < (d.context or b.settings.max_model_len))]
    return []


def _length(d: Deployment, length: int) -> Step:
    context = d.context if d.context is not None and d.context <= length else None
    fields = {"max_model_len": length}
    return Step(
        flags=_spelled(fields), fields={**fields, "context": context}, gives_up=f"requests over {length:,} tokens"
    )


def _try(d: Deployment, *steps: Step) -> Change | None:
    """Return what steps lead to, None if the engine refuses them or it cannot be told."""
    fields = {name: value for step in steps for name, value in step.fields.items()}
    try:
        after = d.replaced(**fields)
        b = budget(after)
    except KvbudgetError:
        return None
    return Change(
        steps=steps,
        deployment=after,
        verdict=b.verdict,
        requests=b.max_concurrent_requests,
        length=after.context or b.settings.max_model_len,
        shorter=False,
        short_bytes=0 if b.fits else _short(b),
    )


def _short(b: Budget) -> int:
    """Return what the fullest GPU lacks for one request, by the best estimate; negative if there is room."""
    given = b.smallest.given_pool
    short = b.kv.needed_for_one_request_bytes - (given[0] if given else b.smallest.available_bytes)
    if given:
        short = max(short, -sum(b.smallest.room_bytes) // 2)
    return short


_ORDER = (DOES_NOT_FIT, TIGHT, FITS)


def _better(verdict: str, than: str) -> bool:
    return _ORDER.index(verdict) > _ORDER.index(than)
