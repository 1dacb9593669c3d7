"""How fast the scheduler is simulated: requests a second of the loop, against vLLM's own scheduler in the same run.

    PYTHONPATH=src python bench/simulate.py [--traces ../shared/data/traces] [--requests 1000000]
        [--vllm VENV/bin/python --tool oracle_sched.py] [--peer-python VENV/bin/python]

Prints a row for each workload: seconds of the loop alone, requests and steps a second, preemptions, and the most memory
that the process has had so far; and once more for the compiled loop if numba is here, after a first run that compiles
or loads it, with the ratio. vLLM's scheduler, on a part of the same workload, gives the ratio. Times are of the
processor, so that other work on the machine counts less; vLLM's are without its start-up. Peers (`simulate_peer.py`)
are given the whole workload with steps of one length, which all of them can play.
"""

from __future__ import annotations

import argparse
import copy
import csv
import gzip
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import vllm_scheduler as own

from kvbudget.simulation import compiled
from kvbudget.simulation.clock import StepTime
from kvbudget.simulation.fast import run
from kvbudget.simulation.settings import SchedulerSettings
from kvbudget.simulation.simulate import result_of, simulate
from kvbudget.workload.request import Request

sys.path[:] = [folder for folder in sys.path if Path(folder) != Path(__file__).parent]
"""Numba asks for a module named coverage, which `coverage.py` beside this file is not."""

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvbudget.simulation.results import Result

DEFAULTS = SchedulerSettings(num_gpu_blocks=27_000, max_model_len=16_384)
"""vLLM's defaults (steps scheduled ahead, prefixes cached) on the pool of an 8B model and 60 GiB."""
STEP_TIME = (8.0, 20.0)
EVEN_MS = 10.0
"""What every step takes where peers are measured."""
PEERS = ("dynamo", "sr-sim")
PEERED = 10_000
"""Drawn requests that they are given."""
PART = 1000
"""Requests that vLLM's scheduler and the plain one are given."""


class Workload(NamedTuple):
    """What is simulated."""

    name: str
    requests: Iterable[Request]
    settings: SchedulerSettings


def azure(folder: Path) -> list[Request]:
    """Return Azure's conversation trace of 2023."""
    with gzip.open(folder / "azure2023_conv.csv.gz", "rt") as file:
        rows = [
            (datetime.fromisoformat(row["TIMESTAMP"][:26]), int(row["ContextTokens"]), int(row["GeneratedTokens"]))
            for row in csv.DictReader(file)
        ]
    return [Request((when - rows[0][0]).total_seconds(), prompt, output) for when, prompt, output in rows]


def chat(rate: float, seed: int = 1) -> Iterator[Request]:
    """Yield requests of a Poisson process with lognormal lengths: about 1,250 tokens in and 400 out."""
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    now = 0.0
    while True:
        now += draw.expovariate(rate)
        prompt = min(int(draw.lognormvariate(6.8, 0.9)) + 1, 3500)
        yield Request(now, prompt, min(int(draw.lognormvariate(5.7, 0.8)) + 1, 4095 - prompt))


def measured(workload: Workload, *, plainly: bool = False) -> float:
    """Print a row, and return the requests a second."""
    clock = StepTime(*STEP_TIME)
    if plainly:
        began = time.process_time()
        result = simulate(workload.requests, workload.settings, clock, plainly=True)
        return _print(workload.name, result, time.process_time() - began)
    result, _ = result_of(workload.requests, workload.settings)
    fresh = copy.deepcopy(result) if compiled.is_here() else result
    began = time.process_time()
    run(result, workload.settings, clock)
    rate = _print(workload.name, result, time.process_time() - began)
    if compiled.is_here():
        began = time.process_time()
        compiled.run(fresh, workload.settings, clock)
        there = _print("  compiled", fresh, time.process_time() - began)
        print(f"  {there / rate:.1f} times, {'the same' if fresh == result else 'ANOTHER'} result")
    return rate


def _print(name: str, result: Result, took: float) -> float:
    rate = len(result) / took
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{name:34} {len(result):>9,} requests {took:8.2f} s {rate:>9,.0f} requests/s "
        f"{result.steps / took:>11,.0f} steps/s {result.total_preemptions:>7,} preemptions {memory:>6,} MiB",
        flush=True,
    )
    return rate


def theirs(workload: Workload, python: str, tool: Path) -> float:
    """Print what vLLM's own scheduler does with the first requests, and return its requests a second."""
    rows = [(request.arrival, request.prompt_tokens, request.output_tokens, 0, 0, 0) for request in workload.requests]
    case = own.Case("part", workload.settings._replace(max_model_len=8192), clocked=True, rows=rows)
    with tempfile.TemporaryDirectory() as folder:
        one = case._replace(name="one", rows=rows[:1])
        jobs = [own.arguments(each, Path(folder), own.UNIFORM) for each in (one, one, case)]
        first, start, whole = (float(answer["cpu_s"]) for answer in own.ask(python, tool, jobs))
    took = whole - min(first, start)
    print(f"{'vLLM, ' + workload.name:34} {len(rows):>9,} requests {took:8.2f} s {len(rows) / took:>9,.0f} requests/s")
    return len(rows) / took


def against_peers(workload: Workload, python: str) -> None:
    """Print how fast other simulators are where all steps take as long, and the ratio of each to ours."""
    rows = list(workload.requests)
    settings = workload.settings
    result, _ = result_of(rows, settings)
    began = time.process_time()
    run(result, settings, StepTime(EVEN_MS, 0))
    took = time.process_time() - began
    waited = sum(end - begin for begin, end in zip(result.arrival, result.finished, strict=True))
    _print_peer(f"{workload.name}, even steps", len(rows), took, waited / len(rows) / 10**9)
    case = {
        "requests": [(request.arrival, request.prompt_tokens, request.output_tokens) for request in rows],
        "blocks": settings.num_gpu_blocks,
        "block_size": settings.block_size,
        "seqs": settings.max_num_seqs,
        "tokens": settings.max_num_batched_tokens,
        "step_ms": EVEN_MS,
    }
    script = Path(__file__).with_name("simulate_peer.py")
    for name in PEERS:
        peer = subprocess.run(
            [python, str(script), name], input=json.dumps(case), capture_output=True, text=True, check=False
        )
        if peer.returncode:
            print(f"  {name}: {(peer.stderr.strip().splitlines() or ['ended without a word'])[-1]}")
            continue
        told = json.loads(peer.stdout.splitlines()[-1])
        _print_peer(f"  {name}", len(rows), told["cpu_s"], told["mean_e2e_ms"])
        print(f"  ours against {name}: {told['cpu_s'] / took:,.1f} times")


def _print_peer(name: str, requests: int, took: float, mean_ms: float) -> None:
    print(
        f"{name:44} {requests:>9,} requests {took:8.2f} s {requests / took:>9,.0f} requests/s, "
        f"whole answer {mean_ms:,.0f} ms on average",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=Path("../shared/data/traces"))
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--vllm")
    parser.add_argument("--tool", type=Path)
    parser.add_argument("--peer-python", help="a Python with ai-dynamo-runtime and vllm-sr-sim")
    asked = parser.parse_args()
    workloads = []
    parts = []
    if compiled.is_here():
        compiled.run(result_of(islice(chat(10), 10), DEFAULTS)[0], DEFAULTS, StepTime(*STEP_TIME))
    if (asked.traces / "azure2023_conv.csv.gz").exists():
        rows = azure(asked.traces)
        workloads.append(Workload("Azure conversation", rows, DEFAULTS))
        parts.append(Workload(f"Azure conversation, {PART:,}", rows[:PART], DEFAULTS))
    tight = DEFAULTS._replace(num_gpu_blocks=6_000)
    for requests in (100_000, asked.requests):
        workloads += [
            Workload("chat, 10/s", islice(chat(10), requests), DEFAULTS),
            Workload("chat, 10/s, 6,000 blocks", islice(chat(10), requests), tight),
            Workload("chat, 20/s, overload", islice(chat(20), requests), DEFAULTS),
        ]
    for workload in workloads:
        measured(workload)
    if asked.peer_python:
        crowded = Workload("chat, 20/s, 6,000 blocks", list(islice(chat(20), PEERED)), tight)
        for workload in (
            *workloads[: len(parts)],
            Workload("chat, 10/s", list(islice(chat(10), PEERED)), DEFAULTS),
            crowded,
        ):
            against_peers(workload, asked.peer_python)
    for part in parts:
        fast, plain = measured(part), measured(part._replace(name=f"{part.name}, plain"), plainly=True)
        print(f"fast against plain: {fast / plain:,.0f} times")
        if asked.vllm and asked.tool:
            print(f"fast against vLLM: {fast / theirs(part, asked.vllm, asked.tool):,.0f} times")


if __name__ == "__main__":
    main()
