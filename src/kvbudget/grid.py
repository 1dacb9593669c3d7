"""Many budgets at once: a cell for each combination of choices and for each batch.

An axis is a field of `Deployment`; a batch is so many requests of `max_model_len` (of `context`, where it is given) at
the same time. A layout that the engine refuses gives a cell with its reason, not an exception, so a table keeps its
shape.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from kvbudget.budgeting import CANNOT_TELL, DOES_NOT_FIT, FITS, TIGHT, budget
from kvbudget.deployment import Deployment
from kvbudget.errors import CannotTell, InputError
from kvbudget.explain.request import kept, request_bytes
from kvbudget.parallel import stage_bounds
from kvbudget.textbook import TABLE_CONTEXTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvbudget.budgeting import Budget
    from kvbudget.explain.request import Kept
    from kvbudget.model import Model

MAX_CELLS = 100_000
"""More than anybody reads, and some seconds of work."""

REFUSED = "refused"
"""The verdict of a combination that the engine does not take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a cell shows of its budget; bytes are those of one rank, the fullest where pipeline stages differ.

    Args:
        context: Tokens of each request.
        kv_bytes: KV of the whole batch, its last blocks counted whole.
        memory_bytes: The GPU's memory.
        weights_bytes: The weights.
        available_kv_cache_memory_bytes: The pool, with its low and high end.
        needed_for_one_request_bytes: What the engine's check at start-up asks for a request of `max_model_len`.
        bytes_per_token: The slope of one request.
        fixed_bytes_per_request: What a long request holds on top.
        block_size: Tokens of a block.
        kv_cache_size_tokens: "GPU KV cache size" of the engine's log.
        max_concurrency: "Maximum concurrency" of the engine's log.
        starts: The engine starts, if only just.
        max_concurrent_requests: Requests of `context` tokens that hold their KV at once.
        max_num_seqs: Requests that the engine runs at once, whatever the memory.
        max_model_len_that_fits: The longest request for which there is room.
        over_bytes: By how much the rest exceeds the budget, so that nothing is left for the cache; 0 if it does not.
        parts: (name, bytes it will take) of each line of the budget; they add up to `memory_bytes`.
        warnings: The budget's.
        assumptions: The budget's.
    """

    context: int
    kv_bytes: int
    memory_bytes: int
    weights_bytes: int
    available_kv_cache_memory_bytes: int
    available_low_bytes: int
    available_high_bytes: int
    needed_for_one_request_bytes: int
    bytes_per_token: int
    fixed_bytes_per_request: int
    block_size: int
    kv_cache_size_tokens: int
    max_concurrency: float
    starts: bool
    max_concurrent_requests: int
    max_num_seqs: int
    max_model_len_that_fits: int
    over_bytes: int
    parts: tuple[tuple[str, int], ...]
    warnings: tuple[str, ...]
    assumptions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One combination.

    Args:
        choices: (axis, value) in the order of the axes.
        batch: Requests at the same time.
        verdict: Of the batch: "fits", "tight", "does_not_fit", "refused" or "cannot_tell".
        reason: The verdict in a sentence.
        figures: None if the combination is refused.
    """

    choices: tuple[tuple[str, Any], ...]
    batch: int
    verdict: str
    reason: str
    figures: Figures | None

    def choice(self, axis: str) -> Any:  # noqa: ANN401 - any field's type
        """Return the value on an axis, None if there is no such axis."""
        return dict(self.choices).get(axis)


def grid(base: Deployment, *, batches: Iterable[int] = (1,), **axes: Iterable[Any]) -> tuple[Cell, ...]:
    """Return a cell for each combination of the axes' values and each batch; batches vary fastest, then the last axis.

    Args:
        base: What all combinations share.
        batches: Requests at the same time.
        **axes: Values by field of `Deployment`, such as ``max_model_len=(4096, 32768)`` or ``gpu=("L4", "H100")``. A
            value that occurs twice counts once.

    Raises:
        InputError: An axis is not known or empty, a batch is not a positive number, or there are too many cells.
    """
    sizes = tuple(dict.fromkeys(batches))
    values = {name: tuple(dict.fromkeys(axis)) for name, axis in axes.items()}
    _check(sizes, values)
    rows: dict[Any, list[tuple[Kept, ...]]] = {}
    cells: list[Cell] = []
    for chosen in product(*values.values()):
        choices = dict(zip(values, chosen, strict=True))
        cells += _cells(base, choices, sizes, rows)
    return tuple(cells)


_AXES = frozenset(item.name for item in fields(Deployment)) - {"model"}


def _check(batches: tuple[int, ...], axes: Mapping[str, tuple[Any, ...]]) -> None:
    unknown = next((name for name in axes if name not in _AXES), None)
    if unknown is not None:
        raise InputError(f"{unknown[:40]!r} is no axis; use fields of Deployment, such as max_model_len or gpu.")
    empty = next((name for name, values in axes.items() if not values), None if batches else "batches")
    if empty is not None:
        raise InputError(f"Axis {empty} has no values; give at least one.")
    wrong = next((size for size in batches if not isinstance(size, int) or isinstance(size, bool) or size < 1), None)
    if wrong is not None:
        raise InputError(f"A batch is {str(wrong)[:40]}; give a positive whole number of requests.")
    count = len(batches) * prod(map(len, axes.values()))
    if count > MAX_CELLS:
        raise InputError(f"The table would have {count:,} cells, more than {MAX_CELLS:,}; give fewer values.")


def _cells(
    base: Deployment, choices: dict[str, Any], batches: tuple[int, ...], rows: dict[Any, list[tuple[Kept, ...]]]
) -> Iterable[Cell]:
    """Yield the cells of one combination; `rows` remembers what requests keep."""
    try:
        d = base.replaced(**choices)
        b = budget(d)
    except (InputError, CannotTell) as error:
        verdict = CANNOT_TELL if isinstance(error, CannotTell) else REFUSED
        for batch in batches:
            yield Cell(choices=tuple(choices.items()), batch=batch, verdict=verdict, reason=str(error), figures=None)
        return
    requests = b.max_concurrent_requests
    low = high = requests
    if b.fits and max(batches) > 1:
        low, high = (_requests(d, pool) for pool in (b.smallest.available_low_bytes, b.smallest.available_high_bytes))
    one = _figures(b, requests, rows)
    for batch in batches:
        verdict = _verdict(b, batch, low, requests, high)
        yield Cell(
            choices=tuple(choices.items()),
            batch=batch,
            verdict=verdict,
            reason=_reason(b, batch, requests, verdict),
            figures=one if batch == 1 else replace(one, kv_bytes=one.kv_bytes * batch),
        )


def _requests(d: Deployment, pool: int) -> int:
    """Return how many requests hold their KV in a pool of so many bytes."""
    return budget(d.replaced(kv_cache_memory_bytes=pool)).max_concurrent_requests if pool > 0 else 0


def _verdict(b: Budget, batch: int, low: int, best: int, high: int) -> str:
    """Return the verdict of a batch: as the budget's own, and the batch must hold its KV at once.

    Between the requests that fit at the low and at the high end of the estimate it is tight.
    """
    if batch == 1 or not b.fits:
        return b.verdict
    if max(best, high) < batch:
        return DOES_NOT_FIT
    return FITS if b.verdict == FITS and min(low, best) >= batch else TIGHT


def _reason(b: Budget, batch: int, requests: int, verdict: str) -> str:
    if batch == 1 or not b.fits:
        return b.reason
    length = b.deployment.context or b.settings.max_model_len
    inside = ", inside the error bar" if verdict == TIGHT else ""
    return f"{requests:,} requests of {length:,} tokens hold their KV at once, {batch:,} are asked for{inside}"


def _figures(b: Budget, requests: int, rows: dict[Any, list[tuple[Kept, ...]]]) -> Figures:
    d, s, rank = b.deployment, b.settings, b.smallest
    context = d.context or s.max_model_len
    key = s.cache._replace(max_model_len=0, max_num_batched_tokens=0, max_num_seqs=0)  # what is kept ignores these
    if key not in rows:
        stages = stage_bounds(len(d.model.layers), d.pipeline_parallel_size)
        rows[key] = [kept(d.model, s.cache, stage) for stage in stages]
    parts = {line.name: line.takes_bytes for line in rank.lines}
    return Figures(
        context=context,
        kv_bytes=max(request_bytes(stage, context) for stage in rows[key]),
        memory_bytes=d.card.memory_bytes,
        weights_bytes=rank.fixed.weights.best,
        available_kv_cache_memory_bytes=min(rank.pool_bytes for rank in b.ranks),
        available_low_bytes=max(0, rank.available_low_bytes),
        available_high_bytes=max(0, rank.available_high_bytes),
        needed_for_one_request_bytes=b.kv.needed_for_one_request_bytes,
        bytes_per_token=b.kv.bytes_per_token,
        fixed_bytes_per_request=b.kv.fixed_bytes_per_request,
        block_size=b.kv.block_size,
        kv_cache_size_tokens=b.kv.kv_cache_size_tokens,
        max_concurrency=b.kv.max_concurrency,
        starts=b.fits,
        max_concurrent_requests=requests,
        max_num_seqs=s.max_num_seqs,
        max_model_len_that_fits=b.max_model_len_that_fits,
        over_bytes=max(0, -rank.available_bytes),
        parts=tuple(parts.items()),
        warnings=b.warnings,
        assumptions=b.assumptions,
    )


# --- a table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """A grid to be shown: the cells with the axes that they lie on.

    Args:
        base: What all combinations share.
        axes: (name, values) in the order of the cells, contexts last but for the batches.
        batches: Requests at the same time.
        cells: The grid.
        with_gpu: Cards were named; otherwise `base` has a stand-in and only the KV is shown.
        curve: The same combinations with one request at more contexts, for charts; empty if nobody draws.
    """

    base: Deployment
    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    batches: tuple[int, ...]
    cells: tuple[Cell, ...]
    with_gpu: bool
    curve: tuple[Cell, ...] = ()

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions that all answered cells share."""
        answered = [cell.figures.assumptions for cell in self.cells if cell.figures is not None]
        shared = set(answered[0]).intersection(*answered) if answered else set()
        return tuple(line for line in answered[0] if line in shared) if answered else ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Every warning of any cell once, in the order of the cells."""
        found = (line for cell in self.cells if cell.figures is not None for line in cell.figures.warnings)
        return tuple(dict.fromkeys(found))

    @property
    def refusals(self) -> tuple[str, ...]:
        """Every reason of a refused cell once, in the order of the cells."""
        return tuple(dict.fromkeys(cell.reason for cell in self.cells if cell.figures is None))


def sheet(
    base: Deployment,
    *,
    batches: Iterable[int],
    with_gpu: bool,
    curve_contexts: Iterable[int] = (),
    **axes: Iterable[Any],
) -> Sheet:
    """Return the grid as a table to be shown.

    Args:
        base: What all combinations share.
        batches: Requests at the same time.
        with_gpu: Cards were named, by `base` or an axis.
        curve_contexts: Contexts for charts, in place of those of the table.
        **axes: As for `grid`; the one with the contexts comes last.

    Raises:
        InputError: As `grid`; or every combination is refused, with the first reason.
        CannotTell: The same, if the model or the engine is not known well enough.
    """
    values = {name: tuple(dict.fromkeys(axis)) for name, axis in axes.items()}
    sizes = tuple(dict.fromkeys(batches))
    cells = grid(base, batches=sizes, **values)
    if all(cell.figures is None for cell in cells):
        if cells[0].verdict == CANNOT_TELL:
            raise CannotTell(cells[0].reason, key="table")
        raise InputError(cells[0].reason)
    curve: tuple[Cell, ...] = ()
    drawn = tuple(curve_contexts)
    if drawn:
        curve = grid(base, **{**values, list(values)[-1]: drawn})
    return Sheet(base=base, axes=tuple(values.items()), batches=sizes, cells=cells, with_gpu=with_gpu, curve=curve)


def usual_contexts(model: Model) -> tuple[int, ...]:
    """Return the contexts of the textbook's table that the model allows, and its own limit beyond them."""
    longest = model.max_position_embeddings
    if longest is None:
        return TABLE_CONTEXTS
    short = [context for context in TABLE_CONTEXTS if context < longest]
    return (*short, longest)


def steps_between(low: int, high: int) -> tuple[int, ...]:
    """Return `low`, `high` and the powers of two between them: contexts for a chart with a logarithmic axis."""
    powers = (1 << i for i in range(low.bit_length(), high.bit_length() + 1))
    return (low, *(power for power in powers if low < power < high), high) if low < high else (low,)
