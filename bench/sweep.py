"""Measure how many simulations a second a sweep does: in process, on all cores, on a Dask cluster of this host.

python bench/sweep.py [--points 200] [--requests 500] [--workers 2]

Each way computes the same rows, which are compared, start-up included. Only the ratios of one run should be compared:
what a simulation takes depends on its workload and on what else the machine does.
"""

from __future__ import annotations

import argparse
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from kvbudget.simulation import fan_out
from kvbudget.simulation.clock import StepTime
from kvbudget.simulation.settings import SchedulerSettings
from kvbudget.simulation.sweep import Point, point_key, sweep
from kvbudget.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from kvbudget.simulation.sweep import FanOut, Row

SETTINGS = SchedulerSettings(num_gpu_blocks=27_000, max_num_batched_tokens=8192)
RATES = (2, 4, 6, 8, 10)


def points(count: int, requests: int) -> list[Point]:
    """Return points of several rates, each with a seed of its own."""
    found = []
    for seed in range(count):
        rate = RATES[seed % len(RATES)]
        workload = WorkloadSpec(
            rate=str(rate),
            requests=str(requests),
            prompt_tokens="lognormal:800:3000:6000",
            output_tokens="lognormal:200:800:1500",
            seed=seed,
        )
        key = point_key({}, SETTINGS, workload)
        options = (("rate", rate), ("seed", seed))
        found.append(Point(key=key, options=options, settings=SETTINGS, workload=workload, clock=StepTime(10, 20)))
    return found


def measured(asked: list[Point], where: FanOut | None) -> tuple[float, list[Row]]:
    """Return simulations a second, and their rows."""
    began = time.perf_counter()
    rows = sweep(asked, fan_out=where)
    return len(asked) / (time.perf_counter() - began), rows


def main() -> None:
    """Print a line for each way."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    work = points(asked.points, asked.requests)
    first, expected = measured(work, None)
    print(f"{'in process':24} {first:8.1f} simulations/s  1.00")
    ways = []
    if find_spec("joblib"):
        ways.append((f"joblib, {asked.workers} processes", fan_out.on_cores(asked.workers)))
    cluster = None
    if find_spec("joblib") and find_spec("distributed"):
        from distributed import LocalCluster  # noqa: PLC0415 - an extra

        cluster = LocalCluster(
            n_workers=asked.workers, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, processes=True
        )
        ways.append((f"Dask, {asked.workers} workers", fan_out.on_cluster(cluster.scheduler_address)))
    for name, where in ways:
        rate, rows = measured(work, where)
        same = "the same rows" if rows == expected else "OTHER ROWS"
        print(f"{name:24} {rate:8.1f} simulations/s  {rate / first:.2f}  {same}")
    if cluster is not None:
        cluster.close()


if __name__ == "__main__":
    main()
