"""A running engine against its plan: verdicts, causes with their directions, reports at 80 columns, the command line.

`KVBUDGET_UPDATE_GOLDEN=1 pytest tests/test_check.py` rewrites the reports; read the difference before keeping it.
"""

# ruff: noqa: E501 - a printed line stays whole

from __future__ import annotations

import gzip
import io
import json
import os
import shlex
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.budgeting import budget
from kvbudget.check import CANNOT_TELL, DRIFT, HEALTHY, Check, Metrics, Plan, check, plan_of, read_log, read_metrics
from kvbudget.check.expected import number_of
from kvbudget.check.live import live_verdict
from kvbudget.check.metrics import Lengths
from kvbudget.check.replan import replan_command
from kvbudget.cli import main
from kvbudget.deployment import Deployment
from kvbudget.emit import limits_of
from kvbudget.hub import load_model
from kvbudget.present.checked import check_document
from kvbudget.present.document import as_markdown, as_text
from kvbudget.units import GIB
from test_check_metrics import prometheus, serve
from vllm_lines import start_up

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvbudget.check.observation import Observation

HERE = Path(__file__).parent
LOGS = HERE / "logs"
GOLDEN = HERE / "golden"

CHOICES: dict[str, Any] = {"max_model_len": 8192, "gpu_memory_utilization": 0.95, "max_num_seqs": 1024}
ARGS = {"model": "meta-llama/Llama-3.1-8B-Instruct", **CHOICES}

MEASURED: dict[str, Any] = {
    "weights": 14.99,
    "activations": 1.89,
    "non_torch": 0.25,
    "graphs": 0.6,
    "available": 58.11,
    "tokens": 476_032,
    "concurrency": 58.11,
    "length": 8192,
    "total": 79.19,
    "free": 78.6,
    "fraction": 0.95,
}
"""Llama 3.1 8B on an H100 80GB under vLLM 0.19, as a capacity study of 2026-04 published it part by part (bench/public_starts.py); tokens and concurrency follow."""


@cache
def plan(**choices: Any) -> Plan:  # noqa: ANN401 - any choice
    d = Deployment(model=load_model("llama-3.1-8b"), gpu="h100", **{"engine_version": "0.19.0", **CHOICES, **choices})
    return plan_of(budget(d))


def expecting(base: Plan, **expectation: Any) -> Plan:  # noqa: ANN401 - any JSON
    return Plan(path="plan.json", document={**base.document, "expectation": expectation})


def log(
    version: tuple[int, int, int] = (0, 19, 0),
    args: dict[str, Any] | None = None,
    **figures: Any,  # noqa: ANN401 - any figure
) -> Observation:
    return read_log(start_up(version, {**MEASURED, **figures}, ARGS if args is None else args), "engine.log")


NGRAM: dict[str, Any] = {"method": "ngram", "num_speculative_tokens": 4}


def names(found: Check) -> list[str]:
    return [finding.name for finding in found.findings]


def recorded(name: str) -> Observation:
    return read_log((LOGS / name).read_text(encoding="utf-8").splitlines(), name)


def page(name: str) -> str:
    return (LOGS / f"vllm_0.32_metrics_{name}.txt").read_text(encoding="utf-8")


# -- verdicts


def test_a_published_start_is_as_planned() -> None:
    found = check(plan(), log())
    assert (found.verdict, found.findings, found.settings) == (HEALTHY, (), ())
    judged = {row.name for row in found.rows if row.ok}
    assert judged >= {
        "GPU memory",
        "budget",
        "weights",
        "activations, peak",
        "non-torch",
        "CUDA graphs",
        "available KV",
        "KV size",
    }


def test_nothing_known_cannot_be_told() -> None:
    assert check(None, read_log(["hello"])).verdict == CANNOT_TELL
    assert check(None, log()).verdict == CANNOT_TELL


def test_preemptions_come_first() -> None:
    found = check(None, recorded("vllm_0.32_preempting.log"), read_metrics(page("after")))
    assert found.verdict == DRIFT
    assert names(found)[0] == "preemptions"
    first = found.findings[0]
    assert first.cause.startswith("135 preemptions for 48 finished requests")
    assert "the cache of 4,128 holds 4 of them whole" in first.cause
    assert first.change.startswith("--max-num-seqs 4 ")


def test_no_preemptions_are_healthy_and_pressure_is_said() -> None:
    found = check(None, None, read_metrics(page("peak")))
    assert (found.verdict, names(found)) == (HEALTHY, ["near"])
    assert "94 % full and 43 requests wait" in found.findings[0].cause


@pytest.mark.parametrize(
    ("figures", "name"),
    [
        ({"weights": 29.98}, "weights"),
        ({"activations": 9.0}, "activations"),
        ({"graphs": 5.0}, "cuda_graphs"),
        ({"non_torch": 3.0}, "non_torch"),
        ({"total": 94.0}, "gpu_memory"),
        ({"free": 60.0}, "other_process"),
    ],
)
def test_the_term_that_differs_is_named(figures: dict[str, Any], name: str) -> None:
    found = check(plan(), log(**figures))
    assert found.verdict == DRIFT
    assert name in names(found)


def test_the_sum_of_weights_and_non_torch_is_named_where_its_parts_are_not_printed() -> None:
    found = check(plan(engine_version="0.28.0"), log((0, 28, 0), non_torch=4.0, activations=1.5))
    (finding,) = [finding for finding in found.findings if finding.drift]
    assert finding.name == "weights_non_torch"
    only = check(plan(engine_version="0.28.0"), log((0, 28, 0), weights=29.98, activations=1.5))
    assert [finding.name for finding in only.findings] == ["weights"]


def test_twice_the_weights_are_another_precision() -> None:
    (finding,) = check(plan(), log(weights=29.98)).findings
    assert "another precision" in finding.cause


@pytest.mark.parametrize("available", [57.0, 57.2, 59.5])
def test_a_pool_outside_the_interval(available: float) -> None:
    found = check(plan(), log(available=available))
    (row,) = [row for row in found.rows if row.name == "available KV"]
    assert row.low is not None
    assert row.high is not None
    assert row.ok == (row.low - 0.005 * GIB <= available * GIB <= row.high + 0.005 * GIB)


def test_a_refusal_of_what_was_planned_to_fit_does_not_explain_itself() -> None:
    """The pool is smaller than planned, and a shorter length only hides why."""
    refusal: dict[str, Any] = {"needed": 16.0, "fits": 20480, "available": 10.0}
    found = check(plan(), log(**refusal))
    assert names(found) == ["refused:cache_too_small", "pool"]
    assert "GiB less than planned" in found.findings[1].cause


@pytest.mark.parametrize(("available", "ok"), [(-2.14, True), (0.0, True), (8.11, False)])
def test_a_plan_that_leaves_nothing_for_the_cache(available: float, ok: bool) -> None:
    """The engine prints by how much the rest exceeds the budget; to a plan nothing is left, and that is the same."""
    full = plan(engine_version="0.9.2", gpu_memory_utilization=0.2, max_model_len=128)
    found = check(
        full, log((0, 9, 2), ARGS | {"max_model_len": 4096, "gpu_memory_utilization": 0.2}, available=available)
    )
    (row,) = [row for row in found.rows if row.name == "available KV"]
    assert (row.plan, row.ok) == (0, ok)
    assert ("pool" in names(found)) == (not ok)


def test_another_process_is_named_once() -> None:
    assert names(check(plan(), log(free=60.0, available=50.0, tokens=409_600, concurrency=50.0))) == ["other_process"]
    refusal = (
        "ValueError: Free memory on device cuda:0 (20.1/79.19 GiB) on startup is less than desired GPU memory "
        "utilization (0.95, 75.23 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    )
    lines = [*start_up((0, 19, 0), {**MEASURED, "length": 8192}, ARGS)[:3], refusal]
    assert names(check(plan(), read_log(lines))) == ["refused:start_free"]


def test_a_cache_of_another_type_that_was_asked_for_is_named_once() -> None:
    found = check(plan(), log(args={**ARGS, "kv_cache_dtype": "fp8"}, tokens=952_064, concurrency=116.22))
    assert names(found) == ["setting:kv_cache_dtype"]


def test_a_pool_that_nothing_explains() -> None:
    """The log of vLLM 0.9 has the pool and none of its parts."""
    short = check(plan(engine_version="0.9.2"), log((0, 9, 2), available=50.0, tokens=409_600, concurrency=50.0))
    assert "pool" in names(short)
    (finding,) = [finding for finding in short.findings if finding.name == "pool"]
    assert "GiB less than planned" in finding.cause
    assert "bytes_per_token" not in names(short)


def test_a_cache_of_another_type() -> None:
    """The same pool holds twice the tokens: the server's cache is fp8."""
    found = check(plan(), log(tokens=952_064, concurrency=116.22))
    (finding,) = [finding for finding in found.findings if finding.drift]
    assert finding.name == "bytes_per_token"
    assert finding.cause.startswith("A token takes 65,5")


def test_every_drift_has_a_cause() -> None:
    for figures in (
        {"concurrency": 30.0},
        {"weights": 20.0},
        {"available": 40.0},
        {"tokens": 1000},
        {"graphs": 9.0},
        {"total": 60.0},
    ):
        for version in ((0, 9, 2), (0, 13, 0), (0, 19, 0), (0, 28, 0)):
            found = check(plan(), log(version, **figures))
            assert found.verdict == DRIFT
            assert any(finding.drift for finding in found.findings), (version, figures)


# -- choices


def test_a_flag_that_is_missing_on_the_server() -> None:
    args = {key: value for key, value in ARGS.items() if key != "max_num_seqs"}
    found = check(plan(max_num_seqs=160), log(args=args))
    (item,) = found.settings
    assert (item.name, item.plan, item.actual, item.missing) == ("max_num_seqs", 160, 1024, True)
    (cause,) = [finding for finding in found.findings if finding.name == "setting:max_num_seqs"]
    assert cause.cause == "--max-num-seqs 160 of the plan is missing on the server, which runs with 1024."
    assert "--max-num-seqs 160" in cause.change


def test_a_flag_that_is_missing_and_the_default_anyway() -> None:
    args = {key: value for key, value in ARGS.items() if key != "max_num_seqs"}
    assert check(plan(), log(args=args)).settings == ()


def test_a_flag_with_another_value() -> None:
    found = check(plan(), log(args={**ARGS, "max_num_seqs": 256}))
    (item,) = found.settings
    assert (item.plan, item.actual, item.missing) == (1024, 256, False)


@pytest.mark.parametrize(
    ("planned", "typed", "differ"),
    [
        ({"quantization": "fp8"}, {}, ["quantization"]),
        ({"quantization": "fp8"}, {"quantization": "fp8"}, []),
        ({"quantization": "awq"}, {"quantization": "awq_marlin"}, []),
        ({}, {"quantization": "fp8"}, ["quantization"]),
        ({"dtype": "bfloat16"}, {}, []),  # the model's own
        ({"dtype": "float16"}, {"dtype": "half"}, []),
        ({"dtype": "float16"}, {}, ["dtype"]),
        ({"enable_lora": True, "max_loras": 4}, {}, ["enable_lora"]),
        ({"enable_lora": True, "max_loras": 4}, {"enable_lora": True}, ["max_loras"]),
        ({"enable_lora": True}, {"enable_lora": True, "max_loras": 1, "dtype": "auto"}, []),
        ({}, {"enable_lora": True}, ["enable_lora"]),
        ({}, {"enable_lora": False, "speculative_config": None, "quantization": None, "dtype": "auto"}, []),
        ({"speculative_config": NGRAM}, {}, ["speculative_config"]),
        ({"speculative_config": NGRAM}, {"speculative_config": NGRAM | {"prompt_lookup_max": 4}}, []),
        ({"speculative_config": NGRAM}, {"speculative_config": {"method": "eagle3"}}, ["speculative_config"]),
        ({}, {"speculative_config": NGRAM}, ["speculative_config"]),
        ({"async_scheduling": False}, {}, ["async_scheduling"]),
        ({"async_scheduling": True}, {}, []),  # the version's default
    ],
)
def test_what_moves_the_terms_is_compared_by_what_was_asked_for(
    planned: dict[str, Any], typed: dict[str, Any], differ: list[str]
) -> None:
    document = plan().document
    other = Plan(path="", document={**document, "deployment": {**document["deployment"], **planned}})
    found = check(other, log(args={**ARGS, **typed}))
    assert [item.name for item in found.settings] == differ
    assert found.verdict == (DRIFT if differ else HEALTHY)


def test_a_pool_that_the_plan_does_not_fix() -> None:
    metrics = read_metrics('vllm:cache_config_info{num_gpu_blocks="129",num_gpu_blocks_override="129"} 1\n')
    found = check(plan(), None, metrics)
    assert [item.name for item in found.settings] == ["num_gpu_blocks_override"]
    (finding,) = [item for item in found.findings if item.name == "setting:num_gpu_blocks_override"]
    assert finding.cause == "num_gpu_blocks_override: the plan has none, the server 129."
    assert finding.change == "Start the server without --num-gpu-blocks-override, or plan again with it."


@pytest.mark.parametrize(("prefix", "turn"), [("vllm:", "--max-num-seqs"), ("sglang:", "--max-running-requests")])
def test_what_to_turn_is_the_engine_s_own(prefix: str, turn: str) -> None:
    name = "num_preemptions_total" if prefix == "vllm:" else "num_retracted_requests_total"
    (finding,) = check(None, None, read_metrics(f"{prefix}{name} 5\n")).findings
    assert f"(a lower {turn})" in finding.change
    assert ("--gpu-memory-utilization" in finding.change) == (prefix == "vllm:")


def test_another_version_says_what_changed() -> None:
    found = check(plan(), log((0, 28, 0)))
    (finding,) = [finding for finding in found.findings if finding.name == "version"]
    assert "counts CUDA graphs into the budget" in finding.cause
    assert "--engine-version 0.28.0" in finding.change


def test_a_patch_release_is_the_same_version() -> None:
    assert check(plan(), log((0, 19, 1))).settings == ()


def test_a_version_whose_rules_are_not_known_is_another_one() -> None:
    version = next(item for item in check(plan(), log((0, 6, 6))).findings if item.name == "version")
    assert version.drift
    assert "the server runs 0.6.6, and the rules of one of them are not known" in version.cause
    assert "Nothing can be planned for it" in version.change


@pytest.mark.parametrize(("typed", "alike"), [("auto", True), ("bfloat16", True), ("fp8", False)])
def test_cache_types(typed: str, alike: bool) -> None:
    found = check(plan(), log(args={**ARGS, "kv_cache_dtype": typed}))
    assert (found.settings == ()) == alike


# -- ranks


def test_the_smallest_rank_decides() -> None:
    lines = start_up((0, 19, 0), MEASURED, ARGS)
    more = [
        f"(Worker_TP{i} pid={i}) INFO 06-10 12:00:01 [g.py:1] Available KV cache memory: {size} GiB"
        for i, size in ((1, 58.11), (3, 50.0))
    ]
    found = check(plan(), read_log([*lines, *more]))
    (row,) = [row for row in found.rows if row.name == "available KV"]
    assert row.actual == 50 * GIB
    assert "smallest_rank" in names(found)
    assert any("Worker_TP3 has 50.00 GiB" in finding.cause for finding in found.findings)


# -- refusals and their directions


def refused(*lines: str) -> Check:
    return check(None, read_log(["INFO 06-10 12:00:00 [a.py:1] vLLM API server version 0.28.0", *lines], "engine.log"))


OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
WORDS_OF_THE_POOL = "Available KV cache memory: 55.69 GiB"
WARM_UP = (
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try lowering "
    "`max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
)
SERVES = "init engine (profile, create kv cache, warmup model) took 20.10 seconds"


@pytest.mark.parametrize(
    ("lines", "says", "turn"),
    [
        (
            (
                "ValueError: To serve at least one request with the model's max seq len (32768), (4.0 GiB KV cache is needed, which is larger than the available KV cache memory (2.5 GiB). Based on the available memory, the estimated maximum model length is 20480.",
            ),
            "short by 1.50",
            "Raise --gpu-memory-utilization",
        ),
        (("ValueError: No available memory for the cache blocks.",), "not one block", "Raise --gpu-memory-utilization"),
        (
            (
                "ValueError: Free memory on device cuda:0 (60.0/79.19 GiB) on startup is less than desired GPU memory utilization (0.92, 72.85 GiB). Decrease GPU memory utilization",
            ),
            "another process holds 19.19",
            "lower --gpu-memory-utilization to 0.75",
        ),
        ((SERVES, OUT_OF_MEMORY), "Out of memory while serving", "Lower --gpu-memory-utilization"),
        ((OUT_OF_MEMORY,), "while loading", "Use more GPUs"),
        (
            ("Model loading took 14.99 GiB memory and 3.1 seconds", OUT_OF_MEMORY),
            "in the profile run",
            "Lower --max-num-batched-tokens",
        ),
        (("Available KV cache memory: 6.51 GiB", OUT_OF_MEMORY), "while starting", "Lower --gpu-memory-utilization"),
        (
            (
                f"{OUT_OF_MEMORY} GPU 0 has a total capacity of 79.19 GiB of which 99.12 MiB is free. Process 7 has 60.00 GiB memory in use. Including non-PyTorch memory, this process has 19.00 GiB memory in use. Of the allocated memory 18.00 GiB is allocated by PyTorch",
            ),
            "60.09 GiB of the card belong to other processes",
            "end them",
        ),
        (
            (
                f"{OUT_OF_MEMORY} GPU 0 has a total capacity of 79.19 GiB of which 99.12 MiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use.",
            ),
            "while loading",
            "Use more GPUs",
        ),
        (
            (
                "ValueError: Free memory on device cuda:0 (78.6/79.19 GiB) on startup is less than desired GPU memory utilization (0.995, 78.79 GiB).",
            ),
            "a CUDA context takes 0.59",
            "Lower --gpu-memory-utilization to 0.99",
        ),
        (  # v1/worker/utils.py of 0.33: the direction is the other one
            (
                "ValueError: Externally held weights on device cuda:0 (60.0/79.19 GiB) exceed the desired GPU memory utilization (0.5, 39.6 GiB). Increase GPU memory utilization or reduce",
            ),
            "not one block",
            "Raise --gpu-memory-utilization",
        ),
        (  # v1/worker/cpu_worker.py of 0.33
            (
                "ValueError: The worker already uses 3.1 GiB (model weights and runtime), more than the 2.5 GiB of CPU memory reserved for it on node 0, leaving none for the KV cache. On the CPU backend, the",
            ),
            "not one block",
            "Raise --gpu-memory-utilization",
        ),
        (
            (
                "ValueError: Available memory on node 0 (3.0/23.54 GiB) on kv cache allocation is less than requested memory for kv (4.0 GiB). Decrease --kv-cache-memory-bytes",
            ),
            "the cache needs 4.00 GiB of the host's memory and 3.00 are free",
            "Lower --kv-cache-memory-bytes",
        ),
        (
            (
                "non-default args: {'model': 'm', 'kv_cache_memory_bytes': 1073741824}",
                "ValueError: To serve at least one request with the model's max seq len (32768), (4.0 GiB KV cache is needed, which is larger than the available KV cache memory (1.0 GiB). Based on the available memory, the estimated maximum model length is 8176.",
            ),
            "--kv-cache-memory-bytes 1073741824 fixes the pool, so that no fraction helps",
            "Leave --kv-cache-memory-bytes out or raise it to 4.00GiB or more, or lower --max-model-len to 8176",
        ),
        (
            (
                "ValueError: The model's max seq len (29000) is larger than the maximum number of tokens that can be stored in KV cache (23648).",
            ),
            "the cache holds 23,648",
            "Raise --gpu-memory-utilization, or lower --max-model-len to 23648",
        ),
        (
            ("Model loading took 14.99 GiB memory and 3.1 seconds", WARM_UP),
            "sampling for 1,024 requests at once does not fit",
            "Lower --max-num-seqs",
        ),
        (
            ("Model loading took 14.99 GiB memory and 3.1 seconds", WORDS_OF_THE_POOL, WARM_UP),
            "the pool left no room",
            "Lower --gpu-memory-utilization by some hundredths, or --max-num-seqs",
        ),
        (
            ("AssertionError: Error in memory profiling. Initial free memory 1, current free memory 2.",),
            "grew during the profile run",
            "Start it again",
        ),
    ],
)
def test_each_failure_has_its_direction(lines: tuple[str, ...], says: str, turn: str) -> None:
    found = refused(*lines)
    assert found.verdict == DRIFT
    assert says in found.findings[0].cause
    assert turn in found.findings[0].change


@pytest.mark.parametrize(
    ("lines", "turn"),
    [
        (
            (
                "The server is fired up and ready to roll!",
                "[2025-09-01 10:00:20 TP0] Load weight end. type=X, dtype=y, avail mem=63.10 GB, mem usage=15.40 GB.",
                OUT_OF_MEMORY,
            ),
            "Lower --mem-fraction-static",
        ),
        (
            (
                "build: 6500 (abc) with gcc",
                "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 826.00 MiB on device 0: cudaMalloc failed: out of memory",
            ),
            "Lower -ngl",
        ),
    ],
)
def test_other_engines_have_other_flags(lines: tuple[str, ...], turn: str) -> None:
    assert turn in check(None, read_log(lines)).findings[0].change


def test_an_end_of_a_log_does_not_tell_loading_from_serving() -> None:
    """The two ask for opposite turns, and a log that was cut has the start of neither."""
    found = check(None, read_log([OUT_OF_MEMORY]))
    (finding,) = found.findings
    assert found.verdict == DRIFT
    assert "does not show how far" in finding.cause
    assert "If it was serving, lower --gpu-memory-utilization; if it was loading, use more GPUs" in finding.change


RETRACTED = "KV cache pool is full. Retract requests. #retracted_reqs: 5, #new_tokens_gained: 100"


@pytest.mark.parametrize(
    ("line", "flags"),
    [
        (f"[2026-09-01 10:00:00 TP0] {RETRACTED}", ("--max-running-requests", "--mem-fraction-static")),
        ("srv update_slots: failed to find free space in the KV cache, retrying", ("-np", "a higher -c")),
    ],
)
def test_a_full_cache_is_answered_in_the_flags_of_its_engine(line: str, flags: tuple[str, ...]) -> None:
    (finding,) = check(None, read_log([line])).findings
    assert all(name in finding.change for name in flags)
    assert "--max-num-seqs" not in finding.change
    assert "--gpu-memory-utilization" not in finding.change


def test_a_fixed_pool_is_not_made_larger_by_a_fraction_while_serving() -> None:
    found = check(None, recorded("vllm_0.32_preempting.log"), read_metrics(page("after")))
    change = next(finding.change for finding in found.findings if finding.name == "preemptions")
    assert "a higher --num-gpu-blocks-override" in change
    assert "--gpu-memory-utilization" not in change


def test_the_fraction_that_would_be_enough() -> None:
    """1.5 GiB are missing of 79.19: 0.92 + 0.019."""
    lines = (
        "Initial free memory: 78.0 GiB; Requested memory: 0.920000 (util), 72.85 GiB",
        "Free memory on device (78.0/79.19 GiB) on startup. Desired GPU memory utilization is (0.92, 72.85 GiB). Actual usage is 60.0 GiB for consumed memory (weights + non-torch), 1.0 GiB for peak activation, and 0.5 GiB for CUDAGraph memory.",
        "ValueError: To serve at least one request with the model's max seq len (32768), (4.0 GiB KV cache is needed, which is larger than the available KV cache memory (2.5 GiB).",
    )
    assert "Raise --gpu-memory-utilization to 0.94 or more" in refused(*lines).findings[0].change


@pytest.mark.parametrize(
    ("available", "turn"),
    [(15.8, "Raise --gpu-memory-utilization to 0.96 or more"), (4.3, "is not enough (it would have to be 1.1)")],
)
def test_the_card_of_the_plan_tells_what_fraction_would_be_enough(available: float, turn: str) -> None:
    """A start that is refused prints neither the card's memory nor its fraction; the plan and the flags have them."""
    lines = start_up((0, 19, 0), {"weights": 14.99, "available": available, "needed": 16.0, "length": 131_072}, ARGS)
    refused_ones = [finding for finding in check(plan(), read_log(lines)).findings if "refused" in finding.name]
    assert [turn in finding.change for finding in refused_ones] == [True]


def test_weights_that_fill_the_card_are_not_helped_by_a_fraction() -> None:
    lines = start_up((0, 19, 0), {"weights": 78.9, "available": -3.0, "needed": 16.0, "length": 8192}, ARGS)
    (change,) = [finding.change for finding in check(plan(), read_log(lines)).findings if "refused" in finding.name]
    assert "no fraction helps" in change


def test_a_fixed_pool_is_not_helped_by_a_fraction() -> None:
    (finding,) = check(None, recorded("vllm_0.32_refused.log")).findings
    assert "--num-gpu-blocks-override 65 fixes the pool" in finding.cause
    assert "raise it to 130 or more" in finding.change


def test_a_failure_that_a_later_start_got_past_is_history() -> None:
    first = [
        "INFO 06-10 12:00:00 [a.py:1] vLLM API server version 0.19.0",
        "ValueError: No available memory for the cache blocks.",
    ]
    found = check(plan(), read_log([*first, *start_up((0, 19, 0), MEASURED, ARGS)]))
    (finding,) = found.findings
    assert (finding.drift, found.verdict) == (False, HEALTHY)
    assert "A later start got past it." in finding.cause


# -- traffic

EXPECTED = {
    "kv_used": {"p50": 0.4, "p95": 0.51, "max": 0.6},
    "running": {"p50": 4, "p95": 6, "max": 8},
    "waiting": {"p50": 0, "p95": 0, "max": 2},
    "preemptions_per_s": 0.0,
    "prompt_tokens": {"p50": 30, "p95": 60},
    "output_tokens": {"p50": 790, "p95": 800},
    "rate_per_s": 0.2,
}


def traffic() -> Metrics:
    """Return the recorded page without its cache, which is not that of the plan here."""
    lines = [line for line in page("after").splitlines() if not line.startswith("vllm:cache_config_info")]
    return read_metrics("\n".join(lines), "http://127.0.0.1:8000/metrics", now=1795976155.61 + 100)


def test_traffic_that_is_longer_than_planned() -> None:
    found = check(expecting(plan(), **EXPECTED), None, traffic())
    assert names(found)[:2] == ["preemptions", "traffic"]
    assert "The prompts are 3.3× as long as planned: the traffic, not the memory." in found.findings[1].cause
    rows = {row.name: row for row in found.rows}
    assert rows["output tokens, median"].ok
    assert rows["requests"].ok is False
    assert (rows["preemptions"].plan, rows["preemptions"].ok) == (0.0, False)


def test_traffic_as_planned() -> None:
    expected = {**EXPECTED, "prompt_tokens": {"p50": 100}, "rate_per_s": 0.5, "preemptions_per_s": 1.5}
    found = check(expecting(plan(), **expected), None, traffic())
    assert found.verdict == HEALTHY


def test_a_mean_tells_what_a_bucket_hides() -> None:
    """Prompts of 1,990 tokens share a bucket with the 1,200 that were planned; their sum does not."""
    lengths = Lengths(requests=100, total=199_000, edges=(1000, 2000), below=(0, 100))
    planned = {"prompt_tokens": {"p50": 1200, "mean": 1200}, "output_tokens": {"p50": 1200}}
    found = check(expecting(plan(), **planned), None, Metrics(source="page", engine="vllm", prompt=lengths))
    assert [(row.name, row.ok) for row in found.rows] == [
        ("prompt tokens, median", True),
        ("prompt tokens, mean", False),
    ]
    (finding,) = found.findings
    assert "The prompts are 1.7× as long as planned" in finding.cause


def test_a_cache_of_another_size_is_named_beside_other_traffic() -> None:
    lengths = Lengths(requests=100, total=199_000, edges=(1000, 2000), below=(0, 100))
    config = {"num_gpu_blocks": "129", "block_size": "16"}  # vLLM before 0.24 tells no tokens
    metrics = Metrics(source="page", engine="vllm", prompt=lengths, cache_config=config)
    found = check(expecting(plan(), prompt_tokens={"p50": 100}), None, metrics)
    causes = {finding.name: finding.cause for finding in found.findings}
    assert "The cache holds 129 blocks" in causes["kv_size"]
    assert "not the memory" not in causes["traffic"]


@pytest.mark.parametrize(("most", "verdict"), [(8, HEALTHY), (13, HEALTHY), (14, DRIFT), (50, DRIFT)])
def test_a_day_has_more_chances_for_a_crowd_than_a_simulation(most: float, verdict: str) -> None:
    found = check(expecting(plan(), **EXPECTED), None, Metrics(source="page", engine="vllm", running_max=most))
    assert found.verdict == verdict
    assert verdict == HEALTHY or "More requests run than planned" in found.findings[0].cause


def fleet(engines: int, **figures: Any) -> Metrics:  # noqa: ANN401 - any figures
    """Return a range of so many engines, each of which runs by `LOAD`."""
    return Metrics(
        source="http://prometheus",
        over_time=True,
        engine="vllm",
        engines=engines,
        running_max=30,
        waiting_max=2,
        kv_usage_max=0.6,
        kv_usage_p95=0.5,
        **{"preemptions": 0.0, "preemptions_per_s": 0.0, "requests_per_s": 4.0 * engines, "seconds": 3600.0} | figures,
    )


LOAD = {"kv_used": {"p95": 0.5, "max": 0.6}, "running": {"max": 30}, "waiting": {"max": 2}, "simulated_s": 100}


@pytest.mark.parametrize("planned", [1, 2])
def test_a_fleet_is_held_against_so_many_engines(planned: int) -> None:
    """A simulation's rates are those of all its engines; a fleet of ten of them does ten times one's share."""
    together = {"engines": planned, "rate_per_s": 4.0 * planned, "preemptions_per_s": 0.02 * planned}
    planned_load = expecting(plan(), **LOAD, **together)
    assert check(planned_load, None, fleet(10, preemptions_per_s=0.3)).verdict == HEALTHY
    assert check(planned_load, None, fleet(10, preemptions_per_s=0.4)).verdict == DRIFT
    assert check(planned_load, None, fleet(10, requests_per_s=45)).verdict == DRIFT
    assert limits_of(planned_load).preemptions_per_s == 0.02


@pytest.mark.parametrize(("most", "verdict"), [(0.0, HEALTHY), (0.029, HEALTHY), (0.06, DRIFT)])
def test_an_hour_of_preemptions_is_not_lost_in_the_mean_of_a_day(most: float, verdict: str) -> None:
    planned = expecting(plan(), **LOAD, preemptions_per_s=0.02)
    found = check(planned, None, fleet(1, preemptions=400, preemptions_per_s=0.005, preemptions_per_s_max=most))
    assert found.verdict == verdict
    (finding,) = found.findings
    assert (finding.name, finding.drift) == ("preemptions", verdict == DRIFT)
    assert most == 0 or f"0.005 per s and up to {most:.2g} of one engine" in finding.cause


@pytest.mark.parametrize(
    ("count", "finished", "ok"),
    [(0, 1000, True), (5, 1000, False), (2, 1000, True), (300, 100_000, True), (5000, None, None), (0, None, True)],
)
def test_a_page_without_a_rate_is_held_against_the_preemptions_of_as_many_requests(
    count: int, finished: int | None, ok: bool | None
) -> None:
    """Two thousand requests were planned to lose four caches: so many are no licence for any number of them."""
    planned = expecting(plan(), preemptions=4, requests=2000, simulated_s=500, rate_per_s=4)
    page = Metrics(source="page", engine="vllm", preemptions=count, finished=finished)
    row = next(row for row in check(planned, None, page).rows if row.name == "preemptions")
    assert (row.actual, row.ok) == (count, ok)


def test_engines_of_one_page_are_held_one_by_one() -> None:
    """Eight data-parallel engines run thirty requests each, as each was planned to."""
    planned_load = expecting(plan(), **LOAD)
    text = "".join(
        f'vllm:num_requests_{what}{{engine="{i}",model_name="m"}} {count}\n'
        for i in range(8)
        for what, count in (("running", 30), ("waiting", 2))
    )
    found = check(planned_load, None, read_metrics(text))
    assert {row.name: (row.actual, row.ok) for row in found.rows} == {
        "running, now": (30, True),
        "waiting, now": (2, True),
    }
    assert "8 engines: running, waiting" in found.notes[0]


def test_prefix_blocks_count_as_free() -> None:
    text = "vllm:kv_cache_usage_perc 0.2\nvllm:num_requests_running 3\nvllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 80\n"
    (finding,) = check(None, None, read_metrics(text)).findings
    assert (finding.name, finding.drift) == ("prefix_cache", False)
    assert "80% of the prompts' tokens" in finding.cause


@pytest.mark.parametrize(
    "expectation",
    [
        {"kv_used": 3},
        {"kv_used": {"p95": "x"}},
        {"running": None},
        {"preemptions": [1]},
        {"prompt_tokens": {"p50": True}},
    ],
)
def test_odd_expectations_are_passed_over(expectation: dict[str, Any]) -> None:
    assert check(expecting(plan(), **expectation), log(), read_metrics(page("peak"))).rows


# -- laws


@given(
    st.fixed_dictionaries(
        {},
        optional={
            name: st.floats(0, 200)
            for name in ("weights", "activations", "non_torch", "graphs", "available", "free", "total")
        },
    ),
    st.sampled_from([(0, 6, 6), (0, 9, 2), (0, 13, 0), (0, 19, 0), (0, 28, 0), (0, 33, 0)]),
    st.booleans(),
)
def test_any_figures_give_a_report(figures: dict[str, Any], version: tuple[int, int, int], planned: bool) -> None:
    found = check(plan() if planned else None, log(version, **figures))
    json.dumps(found.to_dict(), allow_nan=False)
    text = as_text(check_document(found, "kvbudget simulate plan.json"))
    assert max(map(len, text.splitlines())) <= 80
    assert (found.verdict == DRIFT) == (
        any(row.ok is False for row in found.rows)
        or bool(found.settings)
        or any(finding.drift for finding in found.findings)
    )


@given(st.floats(50, 65))
def test_a_row_is_well_within_the_plans_interval_alone(available: float) -> None:
    found = check(plan(), log(available=available))
    (row,) = [row for row in found.rows if row.name == "available KV"]
    assert row.low is not None
    assert row.high is not None
    assert row.actual is not None
    assert (
        row.ok == (row.low - 0.005001 * GIB <= row.actual <= row.high + 0.005001 * GIB)
        or abs(row.actual - row.low) < 0.006 * GIB
        or abs(row.actual - row.high) < 0.006 * GIB
    )


# -- reports


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("KVBUDGET_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_text(encoding="utf-8")
    assert max(map(len, text.splitlines())) <= 80 or name.endswith(".md")


@pytest.mark.parametrize("name", ["healthy", "drift", "preempting", "refused"])
def test_reports(name: str) -> None:
    if name == "healthy":
        found, command = check(plan(), log()), ""
    elif name == "drift":
        args = {key: value for key, value in ARGS.items() if key != "max_num_seqs"}
        found = check(expecting(plan(), **EXPECTED), log((0, 28, 0), args=args, free=60.0, activations=3.5), traffic())
        command = "kvbudget simulate plan.json --rate 0.48 --prompt-tokens 100 --output-tokens 800"
    elif name == "preempting":
        found, command = check(None, recorded("vllm_0.32_preempting.log"), read_metrics(page("after"), "after.txt")), ""
    else:
        found, command = check(None, recorded("vllm_0.32_refused.log")), ""
    compare(f"check_{name}.txt", as_text(check_document(found, command)))


@pytest.mark.parametrize("width", [40, 80])
def test_a_command_that_is_wrapped_is_one_command(width: int) -> None:
    words = ["kvbudget", "simulate", "a plan.json", "--rate", "0.48", *(f'--option-{i}="{i}"' for i in range(9))]
    text = as_text(check_document(check(None, recorded("vllm_0.32_preempting.log")), shlex.join(words)), width)
    command = text[text.index("  kvbudget simulate") :].partition("\n\n")[0]
    assert all(len(line) <= width for line in command.splitlines())
    assert shlex.split(command.replace("\\\n", " ")) == words
    assert command.count("\\\n") == command.count("\n")


def test_one_source_has_no_column() -> None:
    """Where every figure was read in one place, the lead has said it."""
    text = as_text(check_document(check(None, None, read_metrics(page("after"), "after.txt"))))
    assert "read in" not in text
    assert text.count("after.txt") == 2  # in the lead, and beside the cause


def test_a_page_on_which_nothing_is_judged() -> None:
    """llama.cpp counts no preemptions: the column of marks is empty."""
    found = check(None, None, read_metrics("llamacpp:requests_processing 2\nllamacpp:requests_deferred 3\n"))
    assert found.verdict == CANNOT_TELL
    text = as_text(check_document(found))
    assert "running, now, requests       2\n" in text
    assert "Plans are of vLLM: what llama.cpp tells is read, and not compared." in text


def test_requests_that_wait_for_room_where_none_is_preempted() -> None:
    """TensorRT-LLM keeps room for whole answers, and counts no preemptions."""
    text = "trtllm_kv_cache_utilization 0.97\ntrtllm_num_requests_running 3\ntrtllm_num_requests_waiting 9\n"
    (finding,) = check(None, None, read_metrics(text)).findings
    assert "they wait for room in it" in finding.cause
    assert "--free_gpu_memory_fraction" in finding.change


def test_markdown_report() -> None:
    compare("check_healthy.md", as_markdown(check_document(check(plan(), log()))))


def test_the_page_shows_the_report() -> None:
    page_text = (HERE.parent / "docs" / "check.md").read_text(encoding="utf-8")
    assert (GOLDEN / "check_preempting.txt").read_text(encoding="utf-8") in page_text


# -- the command line


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(["check", *arguments])
    code = leaving.value.code
    return code if isinstance(code, int) else 0


@pytest.fixture
def engine_log(tmp_path: Path) -> Path:
    path = tmp_path / "engine.log"
    path.write_text("\n".join(start_up((0, 19, 0), MEASURED, ARGS)) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan().document), encoding="utf-8")
    return path


def test_plan_and_log(plan_file: Path, engine_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(str(plan_file), "--log", str(engine_log)) == 0
    assert capsys.readouterr().out.startswith("AS PLANNED   vLLM 0.19.0")


def test_a_log_alone_is_rebuilt_from_its_own_arguments(engine_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--log", str(engine_log), "--gpu", "h100") == 0
    out = capsys.readouterr().out
    assert out.startswith("AS PLANNED")
    assert "with the arguments in the log" in " ".join(out.split())


def test_a_log_of_an_unknown_model_is_split(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--log", str(LOGS / "vllm_0.32_preempting.log")) == 3
    out = capsys.readouterr().out
    assert out.startswith("CANNOT TELL")
    assert "KV size, tokens" in out
    assert "--metrics URL counts them" in out


def test_recorded_check(capsys: pytest.CaptureFixture[str]) -> None:
    code = run(
        "--log",
        str(LOGS / "vllm_0.32_preempting.log"),
        "--metrics",
        str(LOGS / "vllm_0.32_metrics_after.txt"),
        "--json",
    )
    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["verdict"], answer["findings"][0]["name"]) == (1, "drift", "preemptions")
    assert answer["metrics"]["preemptions"] == 135
    assert answer["replan"] == "kvbudget simulate MODEL --gpu NAME --rate N --prompt-tokens 100 --output-tokens 800"


def test_a_launch_command_is_the_plan(engine_log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "vllm",
        "serve",
        "llama-3.1-8b",
        "--max-model-len",
        "8192",
        "--max-num-seqs",
        "160",
        "--gpu-memory-utilization",
        "0.95",
    ]
    assert run("--log", str(engine_log), "--gpu", "h100", "--json", "--", *command) == 1
    (item,) = json.loads(capsys.readouterr().out)["settings"]
    assert (item["name"], item["plan"], item["actual"]) == ("max_num_seqs", 160, 1024)


def test_compressed_logs(engine_log: Path, tmp_path: Path) -> None:
    path = tmp_path / "engine.log.gz"
    path.write_bytes(gzip.compress(engine_log.read_bytes()))
    assert run("llama-3.1-8b", "--gpu", "h100", "--log", str(path)) == 0


def test_a_compressed_log_by_another_name_and_one_that_breaks_off(
    engine_log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rotation renames what it compresses, and what is still being written has no end."""
    path = tmp_path / "engine.log.1"
    whole = gzip.compress(engine_log.read_bytes() + b"\n" + b"x\n" * 200_000)
    path.write_bytes(whole)
    assert run("llama-3.1-8b", "--gpu", "h100", "--log", str(path)) == 0
    path.write_bytes(whole[:-20])
    assert run("llama-3.1-8b", "--gpu", "h100", "--log", str(path)) == 0
    assert "what stands before was read" in capsys.readouterr().err
    path.write_bytes(whole[:4])
    assert run("llama-3.1-8b", "--gpu", "h100", "--log", str(path)) == 4


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ("<!DOCTYPE html>\n<html>", "it begins as a web page"),
        ("# HELP vllm:x y\nvllm:x 1", "a page of metrics, which --metrics takes"),
        ('{"schema": 1}', "its one line is not one that vLLM, SGLang or llama.cpp is known to write"),
        ("hello\nworld", "none of its 2 lines is one"),
    ],
)
def test_a_file_that_is_no_log(content: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.log"
    path.write_text(content)
    assert run("--log", str(path)) == 3
    assert says in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_standard_input(packed: Callable[[bytes], bytes], engine_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(packed(engine_log.read_bytes()))))
    assert run("llama-3.1-8b", "--gpu", "h100", "--log", "-") == 0


def test_the_worst_of_several_engines_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fleet.log"
    lines = [
        f"[pod/{name}/server] {line}"
        for name, weights in (("a", 14.99), ("b", 29.98))
        for line in start_up((0, 19, 0), {**MEASURED, "weights": weights}, ARGS)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert run("llama-3.1-8b", "--gpu", "h100", "--log", str(path)) == 1
    shown = capsys.readouterr()
    assert "pod/b/server" in shown.out
    assert "the log has 2 engines" in shown.err


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "Nothing to check"),
        (("--log", "missing.log"), 4, "cannot be read"),
        (("--metrics", "missing.txt"), 4, "cannot be read"),
        (("--metrics", "a", "--prometheus", "http://x"), 2, "exclude each other"),
        (("--metrics", "a", "--watch", "5"), 2, "--watch needs an address"),
        (("--metrics", "http://127.0.0.1:9/metrics", "--watch", "0"), 2, "expected 0.2 to 86,400 seconds"),
        (("--metrics", "http://127.0.0.1:9/metrics", "--watch", "1e300"), 2, "expected 0.2 to"),
        (("--metrics", "http://127.0.0.1:9/metrics", "--samples", "3"), 2, "give --watch SECONDS too"),
        (("--metrics", "http://127.0.0.1:9/metrics", "--watch", "1", "--samples", "0"), 2, "expected 1 or more"),
        (("--metrics", "http://127.0.0.1:9/metrics"), 4, "cannot be reached"),
        (("--metrics", "127.0.0.1:9/metrics"), 4, "No such file or directory; give a saved page, or an address with"),
        (("--prometheus", "http://127.0.0.1:9", "--range", "soon"), 2, "--range"),
        (("--metrics", "a", "--selector", 'a="b"'), 2, "--selector says which series of --prometheus"),
        (("--log", "x", "--json", "--md"), 2, "exclude each other"),
        (("nowhere.json", "--log", str(LOGS / "vllm_0.32_refused.log")), 2, "No such file"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == code
    shown = capsys.readouterr()
    assert shown.out == ""
    assert words in shown.err
    assert shown.err.count("\n") == 1


@pytest.mark.parametrize("saved", [True, False])
def test_the_command_that_plans_again(saved: bool, plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = (
        Plan(path=str(plan_file), document=plan().document) if saved else plan(kv_cache_dtype="fp8", enforce_eager=True)
    )
    words = shlex.split(replan_command(base, traffic()))
    assert words[:2] == ["kvbudget", "simulate"]
    assert words[-6:] == ["--rate", "0.48", "--prompt-tokens", "100", "--output-tokens", "800"]
    if saved:
        assert words[2] == str(plan_file)
        return
    with pytest.raises(SystemExit) as leaving:
        main([*words[1:], "--requests", "20", "--no-knee", "--json"])
    assert leaving.value.code == 0
    assert json.loads(capsys.readouterr().out)["completed"] == 20


@pytest.mark.parametrize(
    ("expected", "engines", "words"),
    [
        ({}, 1, "--rate N --prompt-tokens"),
        ({"rate_per_s": 2.5}, 1, "--rate 2.5 --prompt-tokens"),
        ({"rate_per_s": 5.0, "engines": 2}, 6, "--rate 15 --replicas 6 --prompt-tokens"),
    ],
)
def test_a_saved_page_has_no_rate(expected: dict[str, Any], engines: int, words: str) -> None:
    metrics = replace(read_metrics(page("after")), engines=engines)
    assert words in replan_command(expecting(plan(), **expected), metrics)


def test_a_deployment_of_several_engines_is_one_replica() -> None:
    metrics = replace(traffic(), engines=8)
    assert "--replicas 2 " in replan_command(plan(data_parallel_size=4, num_gpus=4), metrics)


def test_a_plan_has_its_own_choices(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = ("--metrics", str(LOGS / "vllm_0.32_metrics_peak.txt"))
    assert run(str(plan_file), *metrics, "--max-model-len", "4K") == 2
    assert "--max-model-len: " in (error := capsys.readouterr().err)
    assert "holds its own choices; leave it out, or plan again" in error


# -- a model that is elsewhere


@pytest.mark.parametrize(
    ("named", "known"),
    [
        ("/models/Llama-3.1-8B-Instruct", True),
        ("/root/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B-Instruct/snapshots/0123abcd", True),
        ("/models/my-own", False),
    ],
)
def test_a_path_on_the_server(named: str, known: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "engine.log"
    path.write_text("\n".join(start_up((0, 19, 0), MEASURED, {**ARGS, "model": named})))
    assert run("--log", str(path), "--gpu", "h100") == (0 if known else 3)
    out = " ".join(capsys.readouterr().out.split())
    assert ("(taken for it: " in out) == known
    assert ("There is no plan to compare with" in out) == (not known)


def test_a_version_without_known_rules_is_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "engine.log"
    path.write_text("\n".join(start_up((0, 6, 6), {**MEASURED, "blocks": 29_752}, ARGS)))
    assert run("llama-3.1-8b", "--log", str(path), "--gpu", "h100") == 3
    out = capsys.readouterr().out
    assert "The rules of vLLM 0.6.6 are not known" in out
    assert "activations, peak, GiB" in out


def test_another_engine_is_not_compared() -> None:
    lines = ["[2025-09-01 10:00:20 TP0] Load weight end. type=X, dtype=y, avail mem=63.10 GB, mem usage=15.40 GB."]
    found = check(plan(), read_log(lines))
    assert (found.verdict, found.plan, found.settings) == (CANNOT_TELL, None, ())
    assert found.notes == ("The plan is for vllm and sglang runs: not compared.",)


# -- servers on the loopback interface


def answering(counts: Iterator[int]) -> Callable[[str, dict[str, str]], tuple[int, str]]:
    def answer(path: str, _: dict[str, str]) -> tuple[int, str]:
        return (
            (
                200,
                page("peak").replace(
                    'num_preemptions_total{engine="0",model_name="/models/tiny"} 0.0',
                    f'num_preemptions_total{{engine="0",model_name="/models/tiny"}} {next(counts)}.0',
                ),
            )
            if path == "/metrics"
            else (404, "")
        )

    return answer


@pytest.mark.parametrize(("counts", "code", "word"), [((0, 0, 0, 0), 0, "queueing"), ((0, 0, 7, 7), 1, "preempting")])
def test_watch(counts: tuple[int, ...], code: int, word: str, capsys: pytest.CaptureFixture[str]) -> None:
    for server in serve(answering(iter(counts))):
        assert run("--metrics", f"{server.url}/metrics", "--watch", "0.2", "--samples", "3") == code
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines[0].split() == ["time", "running", "waiting", "KV", "preempted", "tokens/s", "verdict"]
    assert any(line.endswith(word) for line in lines[1:])
    assert all(line.split()[1:4] == ["5", "43", "94%"] for line in lines[1:])


def test_the_first_reading_counts(capsys: pytest.CaptureFixture[str]) -> None:
    """What was lost between it and the second is in the first line."""
    for server in serve(answering(iter((0, 7)))):
        assert run("--metrics", f"{server.url}/metrics", "--watch", "0.2", "--samples", "1") == 1
    assert capsys.readouterr().out.splitlines()[-1].split()[4:] == ["7", "0", "preempting"]


def test_a_watch_outlives_a_restart(capsys: pytest.CaptureFixture[str]) -> None:
    """While an engine starts again, its page is nothing, or another one; its counters begin again at nothing."""
    counts = answering(iter((135, 3)))
    pages: Iterator[Callable[[str, dict[str, str]], tuple[int, str]]] = iter(
        (counts, lambda *_: (503, ""), lambda *_: (200, ""), lambda *_: (200, "<html>"), counts)
    )
    for server in serve(lambda path, fields: next(pages)(path, fields)):  # noqa: PLW0108 - another one each time
        assert run("--metrics", f"{server.url}/metrics", "--watch", "0.2", "--samples", "4") == 1
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert [any(word in line for word in ("503", "is empty", "HTML")) for line in lines] == [True, True, True, False]
    assert lines[-1].split()[4] == "3"


@pytest.mark.parametrize(
    ("expected", "figures", "verdict"),
    [
        ({}, {}, "ok"),
        ({}, {"waiting_max": 3}, "queueing"),
        ({}, {"kv_usage_max": 0.97}, "full"),
        ({"kv_used": {"max": 0.4}}, {"kv_usage_max": 0.46}, "above plan"),
        ({"kv_used": {"max": 0.96}}, {"kv_usage_max": 0.97}, "full"),
        ({"waiting": {"max": 10}}, {"waiting_max": 15}, "queueing"),
        ({"waiting": {"max": 10}}, {"waiting_max": 16}, "above plan"),
    ],
)
def test_a_reading_is_held_against_the_plan(expected: dict[str, Any], figures: dict[str, Any], verdict: str) -> None:
    now = Metrics(source="x", engine="vllm", **{"kv_usage_max": 0.3, **figures})
    assert live_verdict(expecting(plan(), **expected), now, lost=0, seconds=10) == verdict


def test_planned_preemptions_are_no_alarm() -> None:
    now = Metrics(source="x", engine="vllm", engines=2)
    planned_load = expecting(plan(), preemptions_per_s=0.2)
    assert [live_verdict(planned_load, now, lost, 10) for lost in (6, 7)] == ["ok", "preempting"]
    assert live_verdict(None, now, 1, 10) == "preempting"


def test_a_saved_page_may_be_packed_or_come_through_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = page("after").encode()
    (tmp_path / "page.gz").write_bytes(gzip.compress(content))
    assert run("--metrics", str(tmp_path / "page.gz")) == 1
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert run("--metrics", "-") == 1


def test_a_fleet(plan_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for server in serve(prometheus()):
        code = run(str(plan_file), "--prometheus", server.url, "--range", "2h", "--json")
    answer = json.loads(capsys.readouterr().out)
    assert (code, answer["findings"][0]["name"]) == (1, "preemptions")
    assert answer["metrics"]["engines"] == 4
    assert answer["replan"].startswith("kvbudget simulate ")
    assert "--rate 1 --replicas 4 " in answer["replan"]


@pytest.mark.parametrize(("value", "number"), [(3, 3.0), (0.5, 0.5), (True, None), ("3", None), (10**400, None)])
def test_an_expectation_has_numbers_or_nothing(value: object, number: float | None) -> None:
    assert number_of({"kv_used": {"p95": value}}, "kv_used", "p95") == number
    assert number_of({}, "kv_used", "p95") is None


def test_a_plan_of_another_name_is_held_against_the_log_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    log = str(LOGS / "vllm_0.32_preempting.log")
    for read in (("--log", log), ("--metrics", str(LOGS / "vllm_0.32_metrics_peak.txt"))):
        run("llama-3.1-8b", "--gpu", "h100", *read)
        assert "they are taken to be the same model" in " ".join(capsys.readouterr().out.split())
