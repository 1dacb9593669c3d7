"""A running engine against its plan: what differs, why, and what to turn.

A row compares one figure: the plan's interval, widened by nothing but what rounding in print may hide. A finding is a
cause in a sentence with the change to make. Preemptions come first: a card looks busy while requests are recomputed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.budgeting import LOADED
from kvbudget.check.causes import causes
from kvbudget.check.expected import (
    MORE_PREEMPTIONS,
    QUEUE,
    RATE_ROOM,
    ROOM,
    RUNNING,
    RUNNING_ROOM,
    expected_of,
    preemptions_line,
)
from kvbudget.check.observation import Observation
from kvbudget.check.settings import differences
from kvbudget.errors import InputError
from kvbudget.facts import vllm as facts
from kvbudget.units import MIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbudget.check.causes import Finding
    from kvbudget.check.expected import Expected
    from kvbudget.check.metrics import Metrics
    from kvbudget.check.plan import Plan
    from kvbudget.check.settings import Difference

HEALTHY, DRIFT, CANNOT_TELL = "healthy", "drift", "cannot_tell"

BYTES, TOKENS, BLOCKS, TIMES, SHARE, REQUESTS, PER_SECOND, PLAIN = (
    "GiB",
    "tokens",
    "blocks",
    "x",
    "%",
    "requests",
    "per s",
    "",
)

SMALL_TENSORS = 2 * MIB
"""Scales and rounding of the allocator, which nobody counts."""

WEIGHTS_TOLERANCE = 0.001

DRIVER_SLACK = 150 * MIB
"""By which the total that CUDA shows moves between drivers."""

GIVEN_TOTAL_TOLERANCE = 0.02
"""The same where a card was given by a size that may be the driver's or the one on the box."""

LONGER_TRAFFIC = 1.25
"""Measured over planned length from which the traffic is another one."""


class Row(NamedTuple):
    """One figure: planned and actual.

    Attributes:
        name: What it is.
        unit: One of the units above.
        low: The plan's lower bound, None where nothing was planned.
        plan: The plan's best figure.
        high: The plan's upper bound.
        actual: What was seen, None where it was not.
        ok: Whether it lies within the plan; None where that cannot be told or does not matter.
        place: Where it was seen.
    """

    name: str
    unit: str
    low: float | None
    plan: float | None
    high: float | None
    actual: float | None
    ok: bool | None
    place: str

    @property
    def difference(self) -> float | None:
        """Actual less plan, relative to the plan; None where either is missing or the plan is nothing."""
        if self.plan is None or self.actual is None or not self.plan:
            return None
        return (self.actual - self.plan) / abs(self.plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The answer.

    Args:
        verdict: "healthy", "drift" or "cannot_tell".
        engine: Its name.
        version: What runs, "" where it is not known.
        plan: The plan, None where there was none.
        observation: What the log says, None where none was read.
        metrics: What the metrics say, None where none were read.
        rows: Figures.
        settings: Choices that differ.
        same: How many choices are as planned.
        findings: Causes, the gravest first.
        notes: What the reader should know of how this was told, a sentence each.
    """

    verdict: str
    engine: str
    version: str
    plan: Plan | None
    observation: Observation | None
    metrics: Metrics | None
    rows: tuple[Row, ...]
    settings: tuple[Difference, ...]
    same: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "schema": 1,
            "verdict": self.verdict,
            "engine": {"name": self.engine or None, "version": self.version or None},
            "plan": None
            if self.plan is None
            else {"path": self.plan.path or None, "engine_version": self.plan.engine_version},
            "rows": [row._asdict() | {"difference": row.difference} for row in self.rows],
            "settings": [item._asdict() for item in self.settings],
            "findings": [item._asdict() for item in self.findings],
            "observation": self.observation.to_dict() if self.observation else None,
            "metrics": self.metrics.to_dict() if self.metrics else None,
            "notes": list(self.notes),
        }


def check(
    plan: Plan | None,
    observation: Observation | None = None,
    metrics: Metrics | None = None,
    notes: tuple[str, ...] = (),
) -> Check:
    """Return how a running engine stands to its plan.

    Args:
        plan: What was planned; without one the figures stand alone.
        observation: What its log says.
        metrics: What its metrics say.
        notes: Sentences to hand on.
    """
    seen = observation or Observation(engine="")
    runs = seen.engine or (metrics.engine if metrics is not None else "vllm")
    if plan is not None and runs != plan.budget["engine"].get("name", "vllm"):
        notes = (*notes, f"The plan is for {plan.budget['engine'].get('name', 'vllm')} and {runs} runs: not compared.")
        plan = None
    rows = tuple(_rows(plan, seen, metrics))
    differing, same = differences(plan, seen, metrics) if plan is not None else ((), 0)
    findings = tuple(causes(plan, seen, metrics, rows, differing))
    judged = [row.ok for row in rows if row.ok is not None]
    if False in judged or any(finding.drift for finding in findings):
        verdict = DRIFT
    elif judged:
        verdict = HEALTHY
    else:
        verdict = CANNOT_TELL
    version = str(seen.version.value) if seen.version else ""
    return Check(
        verdict=verdict,
        engine=seen.engine or (metrics.engine if metrics else ""),
        version=version,
        plan=plan,
        observation=observation,
        metrics=metrics,
        rows=rows,
        settings=differing,
        same=same,
        findings=findings,
        notes=(*notes, *_notes(plan, seen, metrics), *seen.notes, *(metrics.notes if metrics else ())),
    )


def _notes(plan: Plan | None, seen: Observation, metrics: Metrics | None) -> Iterator[str]:
    """Yield what limits the answer."""
    if seen.on_cpu and plan is not None:
        yield "The engine runs on a CPU: its memory is the host's, so that the card's figures are not compared."
    if metrics is not None and metrics.engines > 1:
        yield (
            f"{metrics.engines} engines: running, waiting and the cache's use are of the one with the most (p95 is the "
            "mean), counts and rates are of all together."
        )
    if metrics is not None and metrics.requests_per_s is not None and not metrics.over_time:
        yield "Rates are means since the engine's process began, idle time included; --prometheus has those of a range."
    if seen.engine == "vllm" and seen.load.running.count and preemptions_of(seen, metrics) is None:
        yield "vLLM V1 writes no line for a preemption; --metrics URL counts them."
    if seen.engine == "vllm" and seen.preemptions and metrics is None:
        yield "vLLM V0 writes a line for every 50th preemption, so that up to 49 more may have happened since the last."


# -- rows


class _Planned(NamedTuple):
    """One planned figure."""

    low: float
    best: float
    high: float


def planned(plan: Plan) -> dict[str, _Planned]:
    """Return the plan's figures by the names of an observation's terms; of several ranks what the engine prints."""
    b = plan.budget
    found: dict[str, _Planned] = {}
    try:
        ranks = [{line["name"]: line for line in rank["lines"]} for rank in b["ranks"]]
        loaded = [[line for name, line in rank.items() if name in LOADED] for rank in ranks]
        weights = max(loaded, key=lambda lines: sum(line["needs_bytes"] for line in lines))
        found["weights"] = _Planned(*(sum(line[key] for line in weights) for key in _ENDS))
        for name in ("activations", "non_torch", "cuda_graphs"):
            line = max((rank[name] for rank in ranks), key=lambda item: item["needs_bytes"])
            found[name] = _Planned(*(line[key] for key in _ENDS))
        graphs = (_Planned(0, 0, 0), found["cuda_graphs"])[_graphs_inside(plan)]
        found["activations_and_graphs"] = _Planned(*map(sum, zip(found["activations"], graphs, strict=True)))
        found["consumed"] = _Planned(*map(sum, zip(found["weights"], found["non_torch"], strict=True)))
        found["budget"] = _Planned(*3 * (max(rank["budget_bytes"] for rank in b["ranks"]),))
        found["total"] = _total(plan)
        kv, bounds = b["kv"], b["bounds"]
        pool = "available_kv_cache_memory"
        found[pool] = _Planned(kv[f"{pool}_low_bytes"], kv[f"{pool}_bytes"], kv[f"{pool}_high_bytes"])
        for name in ("num_gpu_blocks", "kv_cache_size_tokens", "max_concurrency"):
            low, high = bounds[name]
            if kv[name] is not None and low is not None and high is not None:
                found[name] = _Planned(low, kv[name], high)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"The plan is damaged ({type(error).__name__}: {error}); make it again.") from None
    return found


def _graphs_inside(plan: Plan) -> bool:
    """Return whether the plan's version takes an estimate of the graphs from the cache."""
    try:
        return facts.rules(facts.parse_version(plan.engine_version)).graphs_in_budget
    except InputError:
        return False


_ENDS = ("low_bytes", "needs_bytes", "high_bytes")


def _total(plan: Plan) -> _Planned:
    gpu = plan.document["gpu"]
    seen = gpu["engine_total_bytes"]
    size = seen or gpu["memory_bytes"]
    slack = DRIVER_SLACK if seen else int(size * GIVEN_TOTAL_TOLERANCE)
    return _Planned(size - slack, size, size + slack)


class _Term(NamedTuple):
    """A term of the log: its name for people, its unit, and whether the process where it is smallest counts."""

    title: str
    unit: str
    smallest: bool = False


_TERMS: Mapping[str, _Term] = {
    "total": _Term("GPU memory", BYTES, smallest=True),
    "budget": _Term("budget", BYTES, smallest=True),
    "weights": _Term("weights", BYTES),
    "activations": _Term("activations, peak", BYTES),
    "activations_and_graphs": _Term("activations + graphs", BYTES),
    "non_torch": _Term("non-torch", BYTES),
    "consumed": _Term("weights + non-torch", BYTES),
    "cuda_graphs": _Term("CUDA graphs", BYTES),
    "kv_cache": _Term("KV buffer", BYTES),
    "k_cache": _Term("K cache", BYTES),
    "v_cache": _Term("V cache", BYTES),
    "state": _Term("state", BYTES),
    "compute_buffer": _Term("compute buffer", BYTES),
    "output_buffer": _Term("output buffer", BYTES),
    "available_kv_cache_memory": _Term("available KV", BYTES, smallest=True),
    "num_gpu_blocks": _Term("KV blocks", BLOCKS, smallest=True),
    "kv_cache_size_tokens": _Term("KV size", TOKENS, smallest=True),
    "max_concurrency": _Term("max concurrency", TIMES, smallest=True),
}

SAME_WHERE_PLANNED = (_TERMS["total"].title, _TERMS["weights"].title)
"""Rows that differ only where another card or another model runs than was planned."""

_OF_THE_CARD = ("total", "budget", "available_kv_cache_memory")
"""Terms that mean the host's memory where the engine runs on a CPU."""


def _rows(plan: Plan | None, seen: Observation, metrics: Metrics | None) -> Iterator[Row]:
    """Yield the figures of the start-up, then those of the load."""
    figures = planned(plan) if plan is not None else {}
    on_cpu = seen.on_cpu
    for name, term in _TERMS.items():
        figure = seen.smallest(name) if term.smallest else seen.largest(name)
        if figure is None and metrics is not None and name in ("num_gpu_blocks", "kv_cache_size_tokens"):
            number = metrics.config_number(name)
            if number is not None:
                yield _row(name, term, figures.get(name), number, 0.0, metrics.source)
            continue
        if figure is None:
            continue
        wanted = None if on_cpu and name in _OF_THE_CARD else figures.get(name)
        yield _row(name, term, wanted, figure.value, figure.slack, str(figure.place))
    yield from _load_rows(plan, seen, metrics)


def _row(name: str, term: _Term, wanted: _Planned | None, actual: float, slack: float, place: str) -> Row:
    if wanted is None:
        return Row(term.title, term.unit, None, None, None, actual, None, place)
    if name == "weights":
        slack += max(SMALL_TENSORS, wanted.best * WEIGHTS_TOLERANCE)
    there = (
        max(0.0, actual) if name == "available_kv_cache_memory" else actual
    )  # a plan has nothing, not less than that
    ok = wanted.low - slack <= there <= wanted.high + slack
    return Row(term.title, term.unit, *wanted, actual, ok, place)


def _load_rows(plan: Plan | None, seen: Observation, metrics: Metrics | None) -> Iterator[Row]:
    """Yield what is seen under load; without an expectation only preemptions are judged: nobody plans them."""
    expected = expected_of(plan)
    load = seen.load
    where = metrics.source if metrics is not None else "log"
    p95, largest = _usage(seen, metrics)
    over_time = bool(load.running.count) or (metrics is not None and metrics.over_time)
    most_of = "max" if over_time else "now"
    for title, share, actual in (
        ("KV used, p95", expected.kv_p95, p95),
        (f"KV used, {most_of}", expected.kv_max, largest),
    ):
        if actual is not None:
            yield _under(title, SHARE, None if share is None else 100 * share, actual, where, room=100 * ROOM)
    running, waiting = (metrics.running_max, metrics.waiting_max) if metrics is not None else (None, None)
    if load.running.count or running is not None:
        most = max(load.running.largest, running or 0)
        room = max(RUNNING, RUNNING_ROOM * (expected.running_max or 0))
        yield _under(f"running, {most_of}", REQUESTS, expected.running_max, most, where, room=room)
    if load.waiting.count or waiting is not None:
        most = max(load.waiting.largest, waiting or 0)
        yield _under(f"waiting, {most_of}", REQUESTS, expected.waiting_max, most, where, room=QUEUE)
    yield from _preemption_rows(expected, seen, metrics)
    if metrics is not None:
        for title, lengths, wanted, mean in (
            ("prompt tokens", metrics.prompt, expected.prompt_p50, expected.prompt_mean),
            ("output tokens", metrics.output, expected.output_p50, expected.output_mean),
        ):
            if lengths is None:
                continue
            yield _length_row(f"{title}, median", wanted, lengths.quantile(0.5), lengths.bucket(0.5)[0], where)
            if mean is not None:  # which no bucket hides
                yield _length_row(f"{title}, mean", mean, lengths.mean, lengths.mean, where)
        if metrics.requests_per_s is not None:
            rate = _of_all(expected.requests_per_s, metrics)
            yield _under("requests", PER_SECOND, rate, metrics.requests_per_s, where, room=RATE_ROOM * (rate or 0))


def _of_all(each: float | None, metrics: Metrics) -> float | None:
    """Return what is planned for as many engines as run."""
    return None if each is None else each * metrics.engines


def _usage(seen: Observation, metrics: Metrics | None) -> tuple[float | None, float | None]:
    """Return how full the cache was, in percent: (95th percentile over time, the most)."""
    spread = seen.load.kv_usage
    p95, largest = (spread.quantile(0.95), spread.largest) if spread.count else (None, None)
    if metrics is not None and metrics.kv_usage_max is not None:
        largest = max(largest or 0.0, 100 * metrics.kv_usage_max)
        p95 = 100 * metrics.kv_usage_p95 if metrics.kv_usage_p95 is not None else p95
    return p95, largest


def _preemption_rows(expected: Expected, seen: Observation, metrics: Metrics | None) -> Iterator[Row]:
    count = preemptions_of(seen, metrics)
    if count is None:
        return
    where = metrics.source if metrics is not None and metrics.preemptions is not None else str(seen.preempted or "log")
    each = expected.preemptions_per_s
    rate = metrics.preemptions_per_s if metrics is not None else None
    if metrics is not None and rate is not None and each is not None:
        wanted = _of_all(each, metrics)
        ok = rate <= preemptions_line(each) * metrics.engines
        yield Row("preemptions", PER_SECOND, wanted, wanted, wanted, rate, ok, where)
        most = metrics.preemptions_per_s_max
        if most is not None:  # an hour of them is lost in the mean of a day; an alert sees it
            yield Row("preemptions, max", PER_SECOND, each, each, each, most, most <= preemptions_line(each), where)
    elif not each:
        yield Row("preemptions", PLAIN, 0.0, 0.0, 0.0, count, count == 0, where)
    else:  # some were planned, and nobody knows in what time these came: so many requests have so many
        wanted = _of_so_many(expected, metrics)
        known = count == 0 or None if wanted is None else count <= ceil(MORE_PREEMPTIONS * wanted)
        yield Row("preemptions", PLAIN, wanted, wanted, wanted, count, known, where)


def _of_so_many(expected: Expected, metrics: Metrics | None) -> float | None:
    """Return the preemptions that are planned for the requests that came so far, None where nobody counted them."""
    each = expected.preemptions_each
    if each is None or metrics is None or metrics.finished is None:
        return None
    return each * (metrics.finished + (metrics.running or 0.0) + (metrics.waiting or 0.0))


def preemptions_of(seen: Observation, metrics: Metrics | None) -> float | None:
    """Return how many requests lost their cache, None where nothing says it."""
    counts = [seen.preemptions, metrics.preemptions if metrics is not None else None]
    known = [count for count in counts if count is not None]
    return max(known) if known else None


def _under(title: str, unit: str, wanted: float | None, actual: float, where: str, *, room: float) -> Row:
    """Return a row that is well as long as the figure is not above what was planned."""
    ok = None if wanted is None else actual <= wanted + room
    return Row(title, unit, wanted, wanted, wanted, actual, ok, where)


def _length_row(title: str, wanted: float | None, actual: float, least: float, where: str) -> Row:
    """Return a row of lengths: it is well if what they certainly are is not far above the plan."""
    ok = None if wanted is None else least <= wanted * LONGER_TRAFFIC
    return Row(title, TOKENS, wanted, wanted, wanted, actual, ok, where)
