"""Many simulations at once: rates, settings and seeds, here or on other cores and hosts, each row the same wherever.

A point says all that a simulation needs, and a row depends on its point alone, so it does not matter where a point is
run or when, and rows that were kept from an earlier run are as good as new ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget import __version__
from kvbudget.simulation.clock import Batch
from kvbudget.simulation.replicas import ALONE, Fleet, simulated_fleet
from kvbudget.workload.kept import shared_workload
from kvbudget.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.settings import SchedulerSettings
    from kvbudget.simulation.summary import Summary

    Work = Callable[["Chunk"], list["Row"]]
    FanOut = Callable[[Work, Iterable["Chunk"]], Iterator[list["Row"]]]
    """Runs a function on chunks somewhere, and gives what it returns, whichever comes first."""

CHUNK_SECONDS = 0.05
"""Work that is sent away in one go at least: less would cost more on its way than it takes."""

WORTH_SECONDS = 1.0
"""Work that is left, below which it is done here: other processes take about as long to start."""

PROBES = (Batch(1, 1, 1, 1), Batch(64, 64, 1 << 16, 1 << 16), Batch(2048, 1, 1 << 15, 1 << 25))
"""Steps by which clocks are told apart: one token, many requests, a piece of a long prompt."""

Option = str | int | float | bool | None
Options = tuple[tuple[str, Option], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One simulation of a sweep.

    Args:
        key: What tells it from all others, from `point_key`.
        options: What it has of its own, by name, in the order of the columns.
        settings: What the scheduler can do.
        workload: What arrives; a trace is read where the point is run.
        clock: How long steps take.
        fleet: The engines that share it.
    """

    key: str
    options: Options
    settings: SchedulerSettings
    workload: WorkloadSpec
    clock: Clock
    fleet: Fleet = ALONE


Chunk = tuple[Point, ...]


class Figures(NamedTuple):
    """What a row says; p95 is over time for requests and blocks, over requests for seconds unless it says otherwise.

    Attributes:
        requests: Requests of the workload.
        completed: Those that got their whole answer.
        preempted_share: The share of them that lost their blocks at least once.
        preemptions: How often any did.
        running_p95: Requests that run.
        waiting_p95: Requests that wait.
        kv_used_p95: The share of the blocks that requests hold.
        ttft_p95_s: Seconds to the first token.
        itl_p95_s: Seconds of the step that brings a token, over tokens.
        e2e_p95_s: Seconds to the last token.
        requests_per_s: Requests answered in each second of the simulated time.
        output_tokens_per_s: Tokens of their answers.
        simulated_s: Seconds until the last answer.
    """

    requests: int
    completed: int
    preempted_share: float
    preemptions: int
    running_p95: float
    waiting_p95: float
    kv_used_p95: float
    ttft_p95_s: float
    itl_p95_s: float
    e2e_p95_s: float
    requests_per_s: float
    output_tokens_per_s: float
    simulated_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of a point.

    Args:
        key: The point's.
        options: The point's.
        figures: What was simulated, None if the engine would refuse to start so.
        refusal: Why it would, in a sentence.
    """

    key: str
    options: Options
    figures: Figures | None
    refusal: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data; figures that do not exist are None."""
        figures = dict.fromkeys(Figures._fields) if self.figures is None else self.figures._asdict()
        return {"options": dict(self.options), **figures, "refusal": self.refusal or None}


def point_key(
    options: Mapping[str, Option],
    settings: SchedulerSettings,
    workload: WorkloadSpec,
    trace_digest: str = "",
    fleet: Fleet = ALONE,
    clock: Clock | None = None,
) -> str:
    """Return what tells a point from others, now and in later runs of this version.

    Args:
        options: All that was chosen, where the key cannot see it otherwise: the model's name.
        settings: The scheduler.
        workload: What arrives.
        trace_digest: A digest of the trace's content, whatever its file is called.
        fleet: The engines.
        clock: How long steps take; it is known by a few of them, so that a folder whose model was changed is another.
    """
    from hashlib import sha256  # noqa: PLC0415 - slow to import

    spec = {name: getattr(workload, name) for name in WorkloadSpec.__dataclass_fields__}
    paces = () if clock is None else [clock.step(batch) for batch in PROBES]
    told: Any = [__version__, sorted(options.items()), settings, {**spec, "trace": trace_digest}, fleet, paces]
    return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:32]


def run_point(point: Point) -> Row:
    """Return what comes of a point.

    Raises:
        KvbudgetError: Its trace cannot be read here, or its settings contradict each other.
    """
    stream = shared_workload(point.workload).stream()
    summary = simulated_fleet(stream, point.settings, point.clock, point.fleet)
    return Row(key=point.key, options=point.options, figures=figures_of(summary))


def figures_of(s: Summary) -> Figures:
    """Return the figures of a summary."""
    seconds = s.simulated_s or 1.0
    return Figures(
        requests=s.requests,
        completed=s.completed,
        preempted_share=s.preempted_requests / s.requests if s.requests else 0.0,
        preemptions=s.preemptions,
        running_p95=s.running.p95,
        waiting_p95=s.waiting.p95,
        kv_used_p95=s.kv_used.p95,
        ttft_p95_s=s.ttft_s.p95,
        itl_p95_s=s.itl_s.p95,
        e2e_p95_s=s.e2e_s.p95,
        requests_per_s=s.completed / seconds,
        output_tokens_per_s=s.generated_tokens / seconds,
        simulated_s=s.simulated_s,
    )


def sweep(
    points: Sequence[Point],
    run: Callable[[Point], Row] = run_point,
    *,
    fan_out: FanOut | None = None,
    known: Mapping[str, Row] | None = None,
    keep: Callable[[Sequence[Row]], object] | None = None,
) -> list[Row]:
    """Return a row for each point, in the order of the points.

    Points of the same key are run once.
    Where work can be sent away, a few points are run here first to learn how many make `CHUNK_SECONDS` of work.

    Args:
        points: What to simulate.
        run: Simulates a point; it must be a function of a module, so that other processes find it.
        fan_out: Where to send chunks of points; None runs them here, one after the other.
        known: Rows by key that need not be computed again.
        keep: Called with new rows as they come, in any order, for example to write them down.

    Raises:
        KvbudgetError: A point cannot be run; rows that came before were kept.
    """
    keys = {point.key for point in points}
    rows = {key: row for key, row in (known or {}).items() if key in keys}
    missing = list({point.key: point for point in points if point.key not in rows}.values())

    def take(found: Sequence[Row]) -> None:
        rows.update((row.key, row) for row in found)
        if keep is not None:
            keep(found)

    times: list[float] = []
    while missing:
        if fan_out is not None and sum(times) >= CHUNK_SECONDS and _mean(times) * len(missing) >= WORTH_SECONDS:
            size = ceil(CHUNK_SECONDS / min(times))
            chunks = (tuple(missing[at : at + size]) for at in range(0, len(missing), size))
            for found in fan_out(partial(run_chunk, run), chunks):
                take(found)
            break
        # From the front, the back and the middle: points at the ends of a sweep take the least and the most.
        point = missing.pop((0, -1, len(missing) // 2)[len(times) % 3] if fan_out is not None else 0)
        begins = perf_counter()
        row = run(point)
        times.append(perf_counter() - begins)
        take([row])
    return [replace(rows[point.key], options=point.options) for point in points]


def run_chunk(run: Callable[[Point], Row], points: Chunk) -> list[Row]:
    """Return the rows of some points; what is sent to another process."""
    return [run(point) for point in points]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
