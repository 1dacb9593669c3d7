"""The smallest changes that fit: what is said to fit does, what it costs is in order."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from kvbudget.budgeting import DOES_NOT_FIT, FITS, TIGHT, Budget, budget
from kvbudget.deployment import Deployment
from kvbudget.errors import KvbudgetError
from kvbudget.hub import load_model
from kvbudget.suggestions import UTILIZATIONS, Change, smallest_changes

if TYPE_CHECKING:
    from kvbudget.model import Model

ORDER = (DOES_NOT_FIT, TIGHT, FITS)

MODELS = (
    "llama-3.1-8b",
    "llama-3.3-70b",
    "qwen2.5-7b",
    "qwen3-32b-fp8",
    "gpt-oss-120b",
    "gemma-3-27b",
    "deepseek-v2-lite",
    "qwen3-next-80b-a3b",
    "falcon-mamba-7b",
)


@cache
def model(name: str) -> Model:
    return load_model(name)


def asked(name: str, gpu: str, **choices: Any) -> tuple[Budget, tuple[Change, ...]]:  # noqa: ANN401
    d = Deployment(model=model(name), gpu=gpu, **choices)
    b = budget(d)
    return b, smallest_changes(d, b)


def named(changes: tuple[Change, ...], word: str) -> Change:
    return next(change for change in changes if word in change.flags)


QUESTIONS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "gpu": st.sampled_from(["l4", "a100-80", "h100", "rtx-5090"]),
        "engine_version": st.sampled_from(["0.18.1", "0.32"]),
        "tensor_parallel_size": st.sampled_from([1, 2, 4]),
        "max_model_len": st.one_of(st.none(), st.integers(512, 1 << 17)),
        "context": st.one_of(st.none(), st.integers(128, 4096)),
        "max_num_seqs": st.sampled_from([None, 128]),
        "allow_long": st.just(True),
    }
)


def answer(question: dict[str, Any]) -> Budget:
    """Return the budget of a drawn question; what the engine refuses is no example."""
    try:
        return budget(Deployment(**{**question, "model": model(question["model"])}))
    except KvbudgetError:
        reject()


@settings(max_examples=60, deadline=None)
@given(QUESTIONS)
def test_what_is_said_holds_when_applied(question: dict[str, Any]) -> None:
    b = answer(question)
    d = b.deployment
    for change in smallest_changes(d, b):
        after = budget(change.deployment)
        assert after.verdict == change.verdict
        assert after.max_concurrent_requests == change.requests
        assert change.enough == after.fits
        assert change.shorter == (change.length < (d.context or b.settings.max_model_len))
        assert change.short_bytes >= 0
        if change.enough:
            assert ORDER.index(change.verdict) > ORDER.index(b.verdict)
            assert change.short_bytes == 0


@settings(max_examples=60, deadline=None)
@given(QUESTIONS)
def test_a_change_changes_what_it_names_and_nothing_else(question: dict[str, Any]) -> None:
    b = answer(question)
    d = b.deployment
    for change in smallest_changes(d, b):
        changed = {name for step in change.steps for name in step.fields}
        for item in fields(d):
            if item.name not in changed:
                assert getattr(change.deployment, item.name) == getattr(d, item.name)


@settings(max_examples=60, deadline=None)
@given(QUESTIONS)
def test_the_sufficient_stand_first_and_nothing_is_said_twice(question: dict[str, Any]) -> None:
    b = answer(question)
    changes = smallest_changes(b.deployment, b)
    assert [change.enough for change in changes] == sorted((change.enough for change in changes), reverse=True)
    assert len({change.flags for change in changes}) == len(changes)
    if b.verdict == FITS:
        assert changes == ()


def test_the_length_is_the_longest_that_surely_fits() -> None:
    b, changes = asked("llama-3.1-8b", "l4", max_model_len=65536)
    change = named(changes, "--max-model-len")
    assert change.verdict == FITS
    assert change.shorter
    longer = change.deployment.replaced(max_model_len=change.length + b.kv.block_size)
    assert budget(longer).verdict != FITS


def test_more_gpus_are_the_next_legal_sizes() -> None:
    """28 heads split by 2 and 4, never by 8 or 16."""
    _, changes = asked("qwen2.5-7b", "t4")
    sizes = {change.deployment.tensor_parallel_size for change in changes} - {1}
    assert sizes <= {2, 4}


def test_stages_where_heads_cannot_be_split() -> None:
    """28 heads over 4 GPUs cannot be split further by twos."""
    _, changes = asked("qwen2-57b-a14b", "l4", tensor_parallel_size=4)
    change = named(changes, "--pipeline-parallel-size")
    assert change.enough
    assert change.deployment.gpu_count == 4 * change.deployment.pipeline_parallel_size


def test_gpus_that_are_there_cost_nothing() -> None:
    _, changes = asked("llama-3.3-70b", "h100", max_model_len=16384, num_gpus=4)
    change = next(change for change in changes if change.deployment.tensor_parallel_size == 4)
    assert change.steps[0].gives_up == "GPUs you have"
    _, changes = asked("llama-3.3-70b", "h100", max_model_len=16384)
    assert named(changes, "--tensor-parallel-size 4").steps[0].gives_up == "3 more GPUs"


def test_utilization_leaves_room_for_the_context() -> None:
    """On a small card the last hundredths are the CUDA context's own."""
    for gpu in ("l4", "h100"):
        b, changes = asked("llama-3.1-8b", gpu, max_model_len=131072, tensor_parallel_size=1)
        for change in changes:
            fraction = change.deployment.gpu_memory_utilization
            if fraction is not None:
                assert fraction <= UTILIZATIONS[-1]
                outside = b.smallest.lines[-1].high_bytes
                assert change.deployment.card.memory_bytes * (1 - fraction) >= outside


def test_small_steps_are_joined_when_none_is_enough_alone() -> None:
    """What is joined is enough, and no step of it can be left out."""
    d = Deployment(model=model("llama-3.3-70b"), gpu="h100", tensor_parallel_size=2, max_model_len=32768)
    b = budget(d)
    joined = [change for change in smallest_changes(d, b) if len(change.steps) > 1]
    for change in joined:
        for step in change.steps:
            rest = {k: v for other in change.steps if other is not step for k, v in other.fields.items()}
            verdict = budget(d.replaced(**rest)).verdict
            assert ORDER.index(verdict) <= ORDER.index(b.verdict)


@pytest.mark.parametrize(
    ("gpu", "offered"),
    [("a100-80", False), ("h100", True), ("l4", True)],
)
def test_fp8_cache_only_where_the_card_has_fp8(gpu: str, offered: bool) -> None:
    _, changes = asked("llama-3.1-8b", gpu, gpu_memory_utilization=0.9, max_model_len=131072, max_num_seqs=256)
    d = Deployment(model=model("llama-3.1-70b"), gpu=gpu, tensor_parallel_size=2, max_model_len=131072)
    changes += smallest_changes(d, budget(d))
    assert any("--kv-cache-dtype fp8" in change.flags for change in changes) is offered


def test_other_weights_only_for_a_plain_checkpoint() -> None:
    _, plain = asked("qwen3-32b", "l4", tensor_parallel_size=2)
    assert any("checkpoint" in change.flags for change in plain)
    _, quantized = asked("qwen3-32b-fp8", "l4")
    assert not any("checkpoint" in change.flags for change in quantized)


def test_a_pool_that_is_too_large_is_made_smaller() -> None:
    _, changes = asked("llama-3.1-8b", "h100", kv_cache_memory_bytes=100 << 30)
    change = named(changes, "--kv-cache-memory-bytes")
    assert change.verdict == FITS
    assert change.requests >= 1
