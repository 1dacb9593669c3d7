"""How fast the scheduler is simulated: requests a second of the loop, against vLLM's own scheduler in the same run.

    PYTHONPATH=src python bench/simulate.py [--traces ../shared/data/traces] [--requests 1000000]
        [--vllm VENV/bin/python --tool oracle_sched.py]

Prints a row for each workload: seconds of the loop alone, requests and steps a second, preemptions, and the most memory
that the process has had so far. vLLM's scheduler, on a part of the same workloads, gives the ratio; its own figures
come from its process, without start-up. Times are of the processor, so that other work on the machine counts less.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import resource
import sys
import tempfile
import time
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import vllm_scheduler as own

from kvbudget.simulation.clock import StepTime
from kvbudget.simulation.settings import SchedulerSettings
from kvbudget.simulation.simulate import simulate
from kvbudget.workload.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULTS = SchedulerSettings(num_gpu_blocks=27_000, max_model_len=16_384)
"""vLLM's defaults (steps scheduled ahead, prefixes cached) on the pool of an 8B model and 60 GiB."""
STEP_TIME = (8.0, 20.0)
PART = 1000
"""Requests that vLLM's scheduler and the plain one are given."""


class Workload(NamedTuple):
    """What is simulated."""

    name: str
    requests: list[Request]
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
    began = time.process_time()
    result = simulate(workload.requests, workload.settings, StepTime(*STEP_TIME), plainly=plainly)
    took = time.process_time() - began
    rate = len(result) / took
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{workload.name:34} {len(result):>9,} requests {took:8.2f} s {rate:>9,.0f} requests/s "
        f"{result.steps / took:>11,.0f} steps/s {result.total_preemptions:>7,} preemptions {memory:>6,} MiB",
        flush=True,
    )
    return rate


def theirs(workload: Workload, python: str, tool: Path) -> float:
    """Print what vLLM's own scheduler does with the first requests, and return its requests a second."""
    rows = [(request.arrival, request.prompt_tokens, request.output_tokens, 0, 0, 0) for request in workload.requests]
    case = own.Case("part", workload.settings._replace(max_model_len=8192), clocked=True, rows=rows)
    with tempfile.TemporaryDirectory() as folder:
        own.ask(python, tool, [own.arguments(case, Path(folder), own.UNIFORM)])
        told = json.loads((Path(folder) / "part.totals").read_text())
    print(f"{'vLLM, ' + workload.name:34} {told['requests']:>9,} requests {told['wall_s']:8.2f} s", flush=True)
    return float(told["requests_per_s"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=Path("../shared/data/traces"))
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--vllm")
    parser.add_argument("--tool", type=Path)
    asked = parser.parse_args()
    workloads = []
    if (asked.traces / "azure2023_conv.csv.gz").exists():
        workloads.append(Workload("Azure conversation", azure(asked.traces), DEFAULTS))
    tight = DEFAULTS._replace(num_gpu_blocks=6_000)
    many = list(islice(chat(20), 100_000))
    workloads += [
        Workload("chat, 10/s", list(islice(chat(10), 100_000)), DEFAULTS),
        Workload("chat, 10/s, 6,000 blocks", list(islice(chat(10), 100_000)), tight),
        Workload("chat, 20/s, overload", many, DEFAULTS),
    ]
    rates = {workload.name: measured(workload) for workload in workloads}
    for workload in workloads[:1]:
        part = workload._replace(name=f"{workload.name}, {PART}", requests=workload.requests[:PART])
        fast, plain = measured(part), measured(part._replace(name=f"{part.name}, plain"), plainly=True)
        print(f"fast against plain: {fast / plain:.0f} times")
        if asked.vllm and asked.tool:
            print(f"fast against vLLM: {rates[workload.name] / theirs(part, asked.vllm, asked.tool):.0f} times")
    if asked.requests:
        measured(Workload("chat, 10/s", list(islice(chat(10), asked.requests)), DEFAULTS))
        measured(Workload("chat, 20/s, overload", list(islice(chat(20), asked.requests)), DEFAULTS))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
