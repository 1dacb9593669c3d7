"""Many budgets at once: every cell is the budget of its deployment, and a refused layout is a cell with a reason."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.budgeting import CANNOT_TELL, DOES_NOT_FIT, FITS, TIGHT, budget
from kvbudget.deployment import Deployment
from kvbudget.errors import CannotTell, InputError
from kvbudget.grid import MAX_CELLS, REFUSED, Cell, grid, sheet, steps_between, usual_contexts
from kvbudget.hub import load_model
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.budgeting import Budget
    from kvbudget.model import Model

model = cache(load_model)

NAMES = ("llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "mistral-7b-v0.1", "qwen3-8b-awq")
"""Grouped heads, experts, latents, mixed windows, windows alone, quantized weights."""


def base(name: str = "llama-3.1-8b", **choices: Any) -> Deployment:  # noqa: ANN401 - any choice
    """Return a deployment on an H100."""
    return Deployment(model=model(name), gpu="H100-SXM-80GB", **choices)


def one(*cells: Cell) -> Cell:
    """Return the only cell."""
    (cell,) = cells
    return cell


def answer(start: Deployment, choices: dict[str, Any]) -> tuple[Budget | None, Exception | None]:
    """Return the budget, or why there is none."""
    try:
        return budget(start.replaced(**choices)), None
    except (InputError, CannotTell) as error:
        return None, error


@settings(max_examples=80, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    gpus=st.lists(st.sampled_from(["L4", "H100", "H200", "A100-SXM-80GB"]), min_size=1, max_size=2),
    tps=st.lists(st.sampled_from([1, 2, 3, 4, 8]), min_size=1, max_size=3),
    kinds=st.lists(st.sampled_from(["auto", "fp8"]), min_size=1, max_size=2),
    contexts=st.lists(st.integers(1, 300_000), min_size=1, max_size=3),
    utilization=st.sampled_from([0.5, 0.9, 0.95]),
)
def test_a_cell_is_the_budget_of_its_deployment(
    name: str, gpus: list[str], tps: list[int], kinds: list[str], contexts: list[int], utilization: float
) -> None:
    """Whatever a cell shows, the budget of the same deployment says."""
    start = base(name, gpu_memory_utilization=utilization)
    cells = grid(start, gpu=gpus, tensor_parallel_size=tps, kv_cache_dtype=kinds, max_model_len=contexts)
    assert len(cells) == len(set(gpus)) * len(set(tps)) * len(set(kinds)) * len(set(contexts))
    for cell in cells:
        b, error = answer(start, dict(cell.choices))
        f = cell.figures
        if b is None or f is None:
            assert (b, f) == (None, None)
            assert cell.verdict == (CANNOT_TELL if isinstance(error, CannotTell) else REFUSED)
            assert cell.reason == str(error)
            continue
        assert (cell.verdict, cell.reason) == (b.verdict, b.reason)
        assert f.context == b.settings.max_model_len
        assert f.memory_bytes == b.deployment.card.memory_bytes == sum(size for _, size in f.parts)
        assert f.weights_bytes == b.lines[0].needs_bytes
        assert f.available_kv_cache_memory_bytes == b.kv.available_kv_cache_memory_bytes
        assert f.needed_for_one_request_bytes == b.kv.needed_for_one_request_bytes
        assert f.bytes_per_token == b.kv.bytes_per_token
        assert f.kv_cache_size_tokens == b.kv.kv_cache_size_tokens
        assert f.max_concurrency == b.kv.max_concurrency
        assert f.max_concurrent_requests == b.max_concurrent_requests
        assert f.max_model_len_that_fits == b.max_model_len_that_fits
        assert f.warnings == b.warnings


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    context=st.integers(16, 32_768),
    batches=st.lists(st.integers(1, 4096), min_size=2, max_size=4, unique=True),
    pool=st.integers(1, 60),
)
def test_batches(name: str, context: int, batches: list[int], pool: int) -> None:
    """KV grows with the batch, and with a pool that is given a batch fits just when so many requests do."""
    start = base(name, kv_cache_memory_bytes=pool * GIB, max_model_len=context)
    cells = grid(start, batches=batches)
    figures = [cell.figures for cell in cells]
    assert all(f is not None for f in figures)
    unit = next(f.kv_bytes // cell.batch for cell, f in zip(cells, figures, strict=True) if f)
    for cell, f in zip(cells, figures, strict=True):
        assert f is not None
        assert f.kv_bytes == unit * cell.batch
        alone = budget(start).verdict
        if alone == DOES_NOT_FIT or f.max_concurrent_requests < cell.batch:
            assert cell.verdict == DOES_NOT_FIT
        else:
            assert cell.verdict == alone


def test_a_batch_inside_the_error_bar_is_tight() -> None:
    """Between what fits at the low and at the high end of the estimate the answer is tight, and the words say so."""
    start = base("llama-3.1-8b", max_model_len=4096)
    requests = budget(start).max_concurrent_requests
    cells = grid(start, batches=(1, requests // 2, requests, requests * 2))
    assert [cell.verdict for cell in cells] == [FITS, FITS, TIGHT, DOES_NOT_FIT]
    assert cells[2].reason.endswith("inside the error bar")
    assert f"{requests:,} requests of 4,096 tokens hold their KV at once" in cells[3].reason


def test_the_textbook_table() -> None:
    """A model with a KV head for each query head gives the textbook's figures: 2, 16, 64 and 16, 128, 512 GiB."""
    start = base("llama-2-7b", allow_long=True)
    cells = grid(start, batches=(1, 8), max_model_len=(4096, 32768, 131072))
    sizes = [cell.figures.kv_bytes / GIB for cell in cells if cell.figures]
    assert sizes == [2, 16, 16, 128, 64, 512]


def test_windows_are_kept_to_their_tokens() -> None:
    """A model of windows alone holds no more at 32K than at its window, whatever the engine reserves besides."""
    cells = grid(base("mistral-7b-v0.1"), max_model_len=(4096, 32768))
    small, large = (cell.figures for cell in cells)
    assert small is not None
    assert large is not None
    assert small.kv_bytes == large.kv_bytes == 512 << 20
    assert large.needed_for_one_request_bytes > large.kv_bytes


def test_an_illegal_layout_is_a_cell() -> None:
    """The grid keeps its shape: three GPUs cannot split 32 heads, the other cells answer."""
    cells = grid(base(), tensor_parallel_size=(1, 3), max_model_len=(8192, 1 << 20))
    assert [(cell.choice("tensor_parallel_size"), cell.verdict) for cell in cells] == [
        (1, FITS),
        (1, REFUSED),
        (3, REFUSED),
        (3, REFUSED),
    ]
    assert "exceeds the model's 131,072" in cells[1].reason
    assert "32 attention heads cannot be split by 3" in cells[2].reason


def test_stages_and_shared_contexts() -> None:
    """KV is that of the fullest pipeline stage; decode context parallelism shares out the tokens of a latent."""
    start = base("llama-3.1-70b", tensor_parallel_size=8, max_model_len=32768)
    whole, staged = (one(*grid(start, pipeline_parallel_size=(stages,))).figures for stages in (1, 3))
    assert whole is not None
    assert staged is not None
    assert staged.kv_bytes * 80 == whole.kv_bytes * 27
    start = base("deepseek-v3", tensor_parallel_size=8, max_model_len=32768)
    alone, shared = (one(*grid(start, decode_context_parallel_size=(ranks,))).figures for ranks in (1, 8))
    assert alone is not None
    assert shared is not None
    assert shared.kv_bytes * 8 == alone.kv_bytes
    assert shared.max_concurrent_requests >= 7 * alone.max_concurrent_requests


def test_context_counts_shorter_requests() -> None:
    """With `context` the engine serves `max_model_len`, and shorter requests are counted."""
    cells = grid(base(max_model_len=32768), context=(1024, 2048))
    requests = [cell.figures.max_concurrent_requests for cell in cells if cell.figures]
    assert [cell.figures.context for cell in cells if cell.figures] == [1024, 2048]
    assert requests[0] // 2 == pytest.approx(requests[1], abs=1)


def test_values_that_occur_twice_count_once() -> None:
    """The order is that of the first mention; batches vary fastest."""
    cells = grid(base(), batches=(8, 1, 8), max_model_len=(8192, 4096, 8192))
    assert [(cell.choice("max_model_len"), cell.batch) for cell in cells] == [
        (8192, 8),
        (8192, 1),
        (4096, 8),
        (4096, 1),
    ]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"colour": (1,)}, "'colour' is no axis"),
        ({"model": (1,)}, "'model' is no axis"),
        ({"gpu": ()}, "Axis gpu has no values"),
        ({"batches": ()}, "Axis batches has no values"),
        ({"batches": (0,)}, "A batch is 0"),
        ({"batches": (True,)}, "A batch is True"),
        ({"max_model_len": range(1, 1001), "batches": range(1, 1001)}, "1,000,000 cells, more than 100,000"),
    ],
)
def test_axes_are_checked(axes: dict[str, Any], message: str) -> None:
    """One sentence says what is wrong with the axes."""
    with pytest.raises(InputError, match=message):
        grid(base(), **axes)


def test_the_bound_is_inclusive() -> None:
    """As many cells as the bound are not too many; nothing is computed before the count is known."""
    with pytest.raises(InputError, match=f"more than {MAX_CELLS:,}"):
        grid(base(), max_model_len=range(1, MAX_CELLS + 2))


def test_a_sheet_that_is_refused_as_a_whole() -> None:
    """If no combination answers, the first reason is the error."""
    with pytest.raises(InputError, match="cannot be split by 3"):
        sheet(base(tensor_parallel_size=3), batches=(1,), with_gpu=True, max_model_len=(4096,))


def test_a_sheet_shares_what_its_cells_share() -> None:
    """Assumptions are those of all cells; what differs between cards is left out."""
    found = sheet(base(), batches=(1,), with_gpu=True, gpu=("L4", "H100"), max_model_len=(4096,))
    assert any(line.startswith("gpu_memory_utilization 0.92") for line in found.assumptions)
    assert not any(line.startswith("max_num_seqs") for line in found.assumptions)


def test_contexts() -> None:
    """The usual contexts end at the model's own; the steps of a chart are powers of two between its ends."""
    small: Model = model("llama-3-8b")
    assert usual_contexts(small) == (4096, 8192)
    assert usual_contexts(model("llama-3.1-8b")) == (4096, 32768, 131072)
    assert steps_between(1000, 10_000) == (1000, 1024, 2048, 4096, 8192, 10_000)
    assert steps_between(1024, 4096) == (1024, 2048, 4096)
    assert steps_between(5, 5) == (5,)
