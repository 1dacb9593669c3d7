"""Hold the roofline clock against logs of real engines: LLMServingSim's runs of vLLM 0.19.

    python bench/step_time.py GROUND_TRUTH.tar.xz [--blocks RUN=N]

First each second in which a run only decoded: the step that the log shows (requests / tokens a second) and the one that
the clock gives for the same requests and contexts. Then the whole run, its arrivals through the simulated scheduler:
median times to the first token, between tokens and to the end; once more with the clock held to those decoding seconds,
as a user would hold it to a few measured steps. Says what lies in the interval that the clock claims.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from kvbudget import Deployment, Model, budget
from kvbudget.errors import CannotTell
from kvbudget.simulation.clock import Batch
from kvbudget.simulation.fitting import Measured, calibrate
from kvbudget.simulation.operations import roofline
from kvbudget.workload.request import Request

try:
    from kvbudget.simulation.settings import SchedulerSettings  # type: ignore[import-not-found,unused-ignore]
    from kvbudget.simulation.simulate import simulate  # type: ignore[import-not-found,unused-ignore]
except ImportError:  # only the steps are compared then
    simulate = None  # type: ignore[assignment,unused-ignore]

if TYPE_CHECKING:
    from kvbudget.simulation.roofline import Roofline


@dataclass(frozen=True, slots=True)
class Run:
    """A recorded run, and the deployment that it was of."""

    name: str
    model: str
    gpu: str
    layout: dict[str, Any]
    max_num_seqs: int


RUNS = (
    Run("RTX4090_Llama-3.1-8B", "llama-3.1-8b", "rtx4090", {"max_model_len": 32768}, 256),
    Run("RTXPRO6000_Llama-3.1-8B", "llama-3.1-8b", "rtxpro6000", {}, 128),
    Run("RTXPRO6000_Qwen3-32B", "qwen3-32b", "rtxpro6000", {"tensor_parallel_size": 2}, 128),
    Run(
        "RTXPRO6000_Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b-2507", "rtxpro6000",
        {"data_parallel_size": 2, "enable_expert_parallel": True}, 128,
    ),
)  # fmt: skip

Log = list[dict[str, Any]]


def decoding(log: Log, series: list[dict[str, str]]) -> list[tuple[int, int, float]]:
    """Return (requests, context, seconds of a step) of each second in which the same requests decoded throughout."""
    begin = min(row["queued_ts"] for row in log)
    found = []
    for second in series:
        end = begin + float(second["t"])
        tokens = float(second["gen_throughput"])
        during = [row for row in log if row["scheduled_ts"] < end and row["last_token_ts"] > end - 1]
        steady = [row for row in during if row["first_token_ts"] < end - 1 and row["last_token_ts"] > end]
        if float(second["prompt_throughput"]) or not tokens or len(during) != len(steady):
            continue
        if 0 < len(steady) == int(second["running"]):  # nobody is preempted
            found.append((len(steady), round(sum(context(row, end - 0.5) for row in steady)), len(steady) / tokens))
    return found


def context(row: dict[str, Any], now: float) -> float:
    """Return how long a request is at a time, its tokens taken to come evenly."""
    passed = (now - row["first_token_ts"]) / (row["last_token_ts"] - row["first_token_ts"])
    return float(row["input_toks"] + passed * row["output_toks"])


def batches(points: list[tuple[int, int, float]], replicas: int) -> list[Measured]:
    """Return the steps of one replica."""
    found = []
    for requests, tokens, seconds in points:
        each, held = -(-requests // replicas), round(tokens / replicas)
        found.append(Measured(Batch(each, each, held, held), seconds))
    return found


def compare_steps(clock: Roofline, points: list[Measured]) -> None:
    """Print predicted against observed steps."""
    errors = [clock.step(point.batch) / 1e12 / point.seconds - 1 for point in points]
    if errors:
        inside = sum(abs(error) <= clock.error for error in errors)
        print(
            f"  decoding seconds: {len(errors)}, error of a step {min(errors):+.1%} to {max(errors):+.1%}, "
            f"median {median(errors):+.1%}, {inside} inside ±{clock.error:.0%}"
        )


def compare_runs(run: Run, d: Deployment, clock: Roofline, log: Log, blocks: int | None) -> None:
    """Print medians of the simulated and of the real run."""
    begin = min(row["queued_ts"] for row in log)
    requests = [Request(row["queued_ts"] - begin, row["input_toks"], row["output_toks"]) for row in log]
    settings = SchedulerSettings(
        num_gpu_blocks=blocks or budget(d).kv.num_gpu_blocks,
        max_num_seqs=run.max_num_seqs,
        max_num_batched_tokens=2048,
        max_model_len=32768,
    )
    replicas = d.data_parallel_size
    ours: dict[str, list[float]] = {"ttft": [], "tpot": [], "e2e": []}
    for replica in range(replicas):
        result = simulate(sorted(requests, key=lambda request: request.arrival)[replica::replicas], settings, clock)
        for number in range(len(result)):
            times = (getattr(result, name)[number] / 1e12 for name in ("arrival", "first_token", "finished"))
            arrival, first, last = times
            add(ours, arrival, first, last, result.output_tokens[number])
    theirs: dict[str, list[float]] = {"ttft": [], "tpot": [], "e2e": []}
    for row in log:
        add(theirs, row["queued_ts"], row["first_token_ts"], row["last_token_ts"], row["output_toks"])
    for what, values in ours.items():
        predicted, observed = median(values), median(theirs[what])
        error = predicted / observed - 1
        inside = "inside" if abs(error) <= clock.error else "outside"
        print(f"  {what} median: {predicted:.4g} s, was {observed:.4g} s ({error:+.1%}, {inside} ±{clock.error:.0%})")


def add(times: dict[str, list[float]], arrival: float, first: float, last: float, tokens: int) -> None:
    """Put one request's times into the lists."""
    times["ttft"].append(first - arrival)
    times["e2e"].append(last - arrival)
    if tokens > 1:
        times["tpot"].append((last - first) / (tokens - 1))


def main() -> None:
    with tarfile.open(sys.argv[1]) as archive:
        files = {Path(member.name).name: archive.extractfile(member) for member in archive if member.isfile()}
        texts = {name: file.read().decode() for name, file in files.items() if file is not None}
    for run in RUNS:
        log: Log = [json.loads(line) for line in texts[f"{run.name}.requests.jsonl"].splitlines()]
        series = list(csv.DictReader(io.StringIO(texts[f"{run.name}.timeseries.csv"])))
        blocks = json.loads(texts[f"{run.name}.meta.json"]).get("kv_cache", {}).get("num_gpu_blocks")
        d = Deployment(
            model=Model.from_pretrained(run.model), gpu=run.gpu, engine_version="0.19",
            max_num_seqs=run.max_num_seqs, max_num_batched_tokens=2048, **run.layout,
        )  # fmt: skip
        try:
            clock = roofline(d)
        except CannotTell as refused:
            print(f"{run.name}: {refused}")
            continue
        print(f"{run.name}: {clock.source}")
        points = batches(decoding(log, series), d.data_parallel_size)
        compare_steps(clock, points)
        if simulate is not None:
            compare_runs(run, d, clock, log, blocks)
            print(f"  the same clock held to {len(points)} of its own steps:")
            compare_runs(run, d, calibrate(clock, points), log, blocks)


if __name__ == "__main__":
    main()
