"""Compare the simulated scheduler with vLLM's own, step by step, on random small workloads.

    PYTHONPATH=src python bench/vllm_scheduler.py --vllm VENV/bin/python --tool oracle_sched.py --cases 50
    ... --config configs/gpt-oss-20b --cases 20        a hybrid model's own groups of layers
    ... --record tests/recorded/scheduler.json         write the cases that the tests repeat without vLLM

One process of vLLM's Python answers all cases; `oracle_sched.py` drives the engine's Scheduler and KVCacheManager.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from itertools import groupby
from math import log
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.simulation.clock import StepCount, StepTime
from kvbudget.simulation.settings import Group, SchedulerSettings, longest_needs
from kvbudget.simulation.simulate import simulate
from kvbudget.workload.request import Request, Segment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEP_TIME = (15.0, 20.0)
UNIFORM = "configs/llama-3-8b"
DRIVER = """
import contextlib, io, json, os, runpy, sys, time, types
tool = sys.argv[1]
sys.path.insert(0, os.path.dirname(tool))
os.chdir(os.path.dirname(tool))
stub = types.ModuleType("vllm.third_party.flashmla.flash_mla_interface")  # Python that the CPU wheel leaves out
for name in ("FlashMLASchedMeta", "flash_attn_varlen_func", "flash_attn_varlen_kvpacked_func",
             "flash_attn_varlen_qkvpacked_func", "flash_mla_sparse_fwd", "flash_mla_with_kvcache", "get_mla_metadata"):
    setattr(stub, name, type(name, (), {}))
sys.modules[stub.__name__] = stub
import fakecuda
install, once = fakecuda.install, []
fakecuda.install = lambda *given: once[0] if once else once.append(install(*given)) or once[0]
for line in sys.stdin:
    sys.argv = [tool, *json.loads(line)]
    began = time.process_time()
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            told = runpy.run_path(tool, run_name="__main__")
        groups = [{"type": type(spec).__name__} | {
            name: getattr(spec, name, 0) or 0
            for name in ("block_size", "sliding_window", "attention_chunk_size", "num_prefill_checkpoint_blocks")
        } for spec in (group.kv_cache_spec for group in told["kvc"].kv_cache_groups)]
        print("\\n" + json.dumps({"groups": groups, "cpu_s": time.process_time() - began}), flush=True)
    except BaseException as error:
        print("\\n" + json.dumps({"error": repr(error)}), flush=True)
"""
KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "full",
    "SlidingWindowSpec": "sliding",
    "ChunkedLocalAttentionSpec": "chunked",
    "MambaSpec": "state",
}
TOTALS = {
    "preemptions": "total_preemptions",
    "scheduled_tokens": "scheduled_tokens",
    "recomputed_tokens": "recomputed_tokens",
    "prefix_queries": "prefix_queries",
    "prefix_hits": "prefix_hits",
    "prefix_preempted_queries": "resumed_queries",
    "prefix_preempted_hits": "resumed_hits",
    "peak_running": "peak_running",
    "peak_used_blocks": "peak_used_blocks",
}
"""What the engine's totals are called here."""
NO_TOTALS: Mapping[str, int] = MappingProxyType({})

Row = tuple[float, int, int, int, int, int]
"""A request: arrival, prompt, output, prefix, tokens of the prefix, priority; the prefix is 0 where it has none."""
Line = tuple[int, int, int, int, int, int]
"""A step: running, waiting, tokens, requests with tokens, used blocks, preempted."""


class Case(NamedTuple):
    """A workload, the scheduler's settings, and what vLLM did with them."""

    name: str
    settings: SchedulerSettings
    clocked: bool
    rows: list[Row]
    steps: Sequence[Line] = ()
    totals: Mapping[str, int] = NO_TOTALS


def random_case(seed: int, groups: tuple[Group, ...] = ()) -> Case:
    """Return a small workload that tends to fill its pool."""
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    hybrid = bool(groups)
    unit = max((group.block_size for group in groups), default=16)
    longest = draw.choice([3000, 6000] if hybrid else [128, 256, 400, 512])
    by_priority = draw.random() < 0.25
    clocked = draw.random() < 0.5
    gap = draw.choice([0, 0.3, 2, 8])
    prefixes = draw.choice([0, 0, 1, 3])
    most_prompt, most_output = draw.choice([20, 90, 300]), draw.choice([3, 40, 200])
    rows: list[Row] = []
    now = 0.0
    for _ in range(draw.choice([3, 8, 20, 40])):
        now += draw.expovariate(1) * gap if gap else 0.01 * by_priority  # the engine breaks ties by names of its own
        if hybrid:
            prompt = int(min(draw.lognormvariate(log(max(500, 2.5 * unit)), 0.8) + 2, longest - 2))
        else:
            prompt = draw.randint(1, min(longest - 1, most_prompt))
        prefix = tokens = 0
        if prefixes and draw.random() < 0.8:
            prefix = draw.randint(1, prefixes)
            tokens = min(prompt - 1, (unit * 3 + 5, unit, unit * 2 + 1)[prefix - 1])
            if draw.random() < 0.3:  # all of the prompt
                tokens = prompt = min(longest - 1, (unit * 3 + 5, unit, unit * 2 + 1)[prefix - 1])
        if tokens < 1:
            prefix = tokens = 0
        priority = draw.randrange(3) if by_priority else 0
        arrival = round(now * (0.02 if clocked else 1), 6)
        rows.append((arrival, prompt, draw.randint(1, most_output), prefix, tokens, priority))
    settings = SchedulerSettings(
        num_gpu_blocks=2,
        max_num_seqs=draw.choice([4, 16, 32]),
        max_num_batched_tokens=draw.choice([600, 1200, 2048] if hybrid else [64, 128, 512]),
        max_model_len=longest,
        enable_prefix_caching=draw.random() < 0.75,
        async_scheduling=draw.random() < 0.6,
        policy="priority" if by_priority else "fcfs",
        scheduler_reserve_full_isl=draw.random() < 0.7,
        watermark=draw.choice([0, 0, 0, 0.05, 0.2]),
        long_prefill_token_threshold=draw.choice([0, 0, 0, 700 if hybrid else 20]),
        groups=groups,
    )
    need = longest_needs(settings)
    settings = settings._replace(num_gpu_blocks=need + 1 + draw.choice([0, 1, 3, need // 2, need]))
    return Case(f"{seed}", settings, clocked, rows)


def requests_of(case: Case) -> list[Request]:
    """Return the workload; equal prompts get equal answers, as the tool's model gives them."""
    return [
        Request(
            arrival,
            prompt,
            output,
            (Segment(prefix, tokens),) if prefix else (),
            -prefix if prefix and tokens == prompt else None,
            priority,
        )
        for arrival, prompt, output, prefix, tokens, priority in case.rows
    ]


def simulated(case: Case, *, plainly: bool = False) -> tuple[list[Line], dict[str, int]]:
    """Return the steps and the totals of our own scheduler."""
    steps: list[Line] = []
    clock = StepTime(*STEP_TIME) if case.clocked else StepCount()
    result = simulate(requests_of(case), case.settings, clock, lambda step: steps.append(step[2:8]), plainly=plainly)
    return steps, {name: getattr(result, own) for name, own in TOTALS.items()}


def arguments(case: Case, folder: Path, config: str, *, gpu: str = "H100-80") -> list[str]:
    """Return what to call the tool with."""
    trace = [
        {"arrival": arrival, "prompt": prompt, "output": output, "priority": priority}
        | ({"prefix_id": prefix, "prefix_len": tokens} if prefix else {})
        for arrival, prompt, output, prefix, tokens, priority in case.rows
    ]
    path = folder / f"{case.name}.json"
    path.write_text(json.dumps(trace))
    settings = case.settings
    given: dict[str, Any] = {
        "--config": config,
        "--gpu": gpu,
        "--trace": path,
        "--groups": "uniform" if config == UNIFORM else "real",
        "--num-gpu-blocks": settings.num_gpu_blocks,
        "--max-num-seqs": settings.max_num_seqs,
        "--max-num-batched-tokens": settings.max_num_batched_tokens,
        "--max-model-len": settings.max_model_len,
        "--watermark": settings.watermark,
        "--policy": settings.policy,
        "--long-prefill-token-threshold": settings.long_prefill_token_threshold,
        "--steps-out": folder / f"{case.name}.steps",
        "--json": folder / f"{case.name}.totals",
    }
    if config == UNIFORM:
        given["--block-size"] = settings.block_size
    if case.clocked:
        given["--step-ms"] = ",".join(map(str, STEP_TIME))
    flags = {
        "--no-prefix-caching": not settings.enable_prefix_caching,
        "--sync": not settings.async_scheduling,
        "--no-reserve-full-isl": not settings.scheduler_reserve_full_isl,
    }
    return [str(part) for pair in given.items() for part in pair] + [flag for flag, on in flags.items() if on]


def ask(python: str, tool: Path, jobs: list[list[str]]) -> list[dict[str, Any]]:
    """Return what one process of vLLM's Python answers to each call of the tool."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [python, "-c", DRIVER, str(tool.resolve())],
            input="".join(json.dumps(job) + "\n" for job in jobs),
            text=True,
            check=True,
            capture_output=True,
            env=os.environ | {"VLLM_CACHE_ROOT": cache, "PYTHONDONTWRITEBYTECODE": "1"},
        )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith(('{"groups"', '{"error"'))]


def groups_of(answer: dict[str, Any]) -> tuple[Group, ...]:
    """Return the groups of layers that vLLM made."""
    groups = []
    for spec in answer["groups"]:
        kind = KINDS[spec["type"]]
        limit = {"sliding": spec["sliding_window"], "chunked": spec["attention_chunk_size"]}.get(kind, 0)
        groups.append(Group(kind, spec["block_size"], limit, spec["num_prefill_checkpoint_blocks"]))  # type: ignore[arg-type]
    return tuple(groups)


def answered(python: str, tool: Path, seeds: range, folder: Path, config: str = UNIFORM) -> list[Case]:
    """Return random cases with what vLLM did with them; those that it refuses are left out."""
    groups: tuple[Group, ...] = ()
    if config != UNIFORM:
        probe = random_case(0)._replace(name="probe", rows=[(0.0, 9, 2, 0, 0, 0)], clocked=False)
        roomy = SchedulerSettings(10**6, max_model_len=6000, max_num_seqs=8)
        groups = groups_of(ask(python, tool, [arguments(probe._replace(settings=roomy), folder, config)])[0])
    cases = [random_case(seed, groups) for seed in seeds]
    found = []
    for case, answer in zip(cases, ask(python, tool, [arguments(case, folder, config) for case in cases]), strict=True):
        if "error" in answer:
            print(f"{case.name}: {answer['error'][:200]}", file=sys.stderr)
            continue
        rows = [json.loads(line) for line in (folder / f"{case.name}.steps").read_text().splitlines()]
        steps = [
            (
                row["running"],
                row["waiting"],
                row["tokens"],
                row["sched_reqs"],
                row["used_blocks"],
                len(row["preempted"]),
            )
            for row in rows
        ]
        totals = json.loads((folder / f"{case.name}.totals").read_text())
        own = groups_of(answer) if config != UNIFORM else ()
        found.append(
            case._replace(
                name=f"{Path(config).name} {case.name}",
                settings=case.settings._replace(groups=own),
                steps=steps,
                totals={name: totals[name] for name in TOTALS},
            )
        )
    return found


def to_json(case: Case) -> dict[str, Any]:
    """Return a case as it is written; equal steps in a row are one line with their number in front."""
    lines = [[sum(1 for _ in equal), *line] for line, equal in groupby(case.steps)]
    return case._asdict() | {"settings": case.settings._asdict(), "steps": lines}


def from_json(text: dict[str, Any]) -> Case:
    """Return a case that was written."""
    settings = text["settings"] | {"groups": tuple(Group(*group) for group in text["settings"]["groups"])}
    steps = [tuple(line) for times, *line in text["steps"] for _ in range(times)]
    rows = [tuple(row) for row in text["rows"]]
    return Case(**text | {"settings": SchedulerSettings(**settings), "steps": steps, "rows": rows})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vllm", required=True)
    parser.add_argument("--tool", required=True, type=Path)
    parser.add_argument("--config", action="append")
    parser.add_argument("--cases", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--record", type=Path)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.cases)
    kept: list[Case] = []
    wrong = 0
    for config in asked.config or [UNIFORM]:
        with tempfile.TemporaryDirectory() as folder:
            cases = answered(asked.vllm, asked.tool, seeds, Path(folder), config)
        different = [case.name for case in cases if simulated(case) != (case.steps, case.totals)]
        wrong += len(different)
        pressed = sum(case.totals["preemptions"] > 0 for case in cases)
        found = sum(case.totals["prefix_hits"] > 0 for case in cases)
        print(f"{config}: {len(cases)} compared, {pressed} preempt, {found} find prefixes, different: {different}")
        kept += cases
    if asked.record:
        asked.record.write_text("[\n" + ",\n".join(json.dumps(to_json(case)) for case in kept) + "\n]\n")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
