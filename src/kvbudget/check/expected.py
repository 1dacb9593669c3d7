"""What a plan expects under load, and how far beyond it is no longer as planned.

`kvbudget check` and the rules of `kvbudget emit` hold an engine against the same lines.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.check.metrics import ratio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.check.plan import Plan

ROOM = 0.05
"""The share of the cache by which an expectation may be passed."""

QUEUE = 5
"""Requests that may wait where nobody planned a queue, and beyond those that were planned."""

RUNNING = 5
RUNNING_ROOM = 0.25
"""Requests that may run beyond the most that were planned, the larger of a number and a share: a day has more chances
for a crowd than a simulation, and a tenth more may arrive."""

MORE_PREEMPTIONS = 1.5
"""Preemptions over the planned ones from which they are more than planned."""

RATE_ROOM = 0.1
"""The share by which more requests may arrive than were planned."""

MOST_ENGINES = 1 << 16
"""Data-parallel engines that a deployment may have."""

LARGEST = 1e12
"""No figure of an expectation lies above it, and none below nothing."""


class Expected(NamedTuple):
    """What one engine is expected to do; None where nobody simulated it.

    Attributes:
        kv_p95: The share of the cache that is in use for 95 % of the time.
        kv_max: The most of it.
        running_max: The most requests that run.
        waiting_max: The most requests that wait.
        preemptions_per_s: How often a request loses its part of the cache.
        preemptions_each: How often one request of the workload does, on average.
        requests_per_s: How often one arrives.
        prompt_p50: The median prompt, in tokens.
        prompt_mean: The mean prompt.
        output_p50: The median answer, in tokens.
        output_mean: The mean answer.
    """

    kv_p95: float | None
    kv_max: float | None
    running_max: float | None
    waiting_max: float | None
    preemptions_per_s: float | None
    preemptions_each: float | None
    requests_per_s: float | None
    prompt_p50: float | None
    prompt_mean: float | None
    output_p50: float | None
    output_mean: float | None


def expected_of(plan: Plan | None) -> Expected:
    """Return what a plan expects of each of its engines: a simulation counts those of all together."""
    found = plan.expectation if plan is not None else {}
    engines = (number_of(found, "engines") or engines_of(plan)) if plan is not None else 1
    preemptions, rate = number_of(found, "preemptions_per_s"), number_of(found, "rate_per_s")
    count, requests = number_of(found, "preemptions"), number_of(found, "requests")
    if preemptions is None:
        preemptions = ratio(count, number_of(found, "simulated_s"))
    return Expected(
        kv_p95=_share(found, "p95"),
        kv_max=_share(found, "max"),
        running_max=number_of(found, "running", "max"),
        waiting_max=number_of(found, "waiting", "max"),
        preemptions_per_s=None if preemptions is None else preemptions / engines,
        preemptions_each=ratio(count, requests) if requests else ratio(preemptions, rate),
        requests_per_s=None if rate is None else rate / engines,
        prompt_p50=number_of(found, "prompt_tokens", "p50"),
        prompt_mean=number_of(found, "prompt_tokens", "mean"),
        output_p50=number_of(found, "output_tokens", "p50"),
        output_mean=number_of(found, "output_tokens", "mean"),
    )


def preemptions_line(planned: float | None) -> float:
    """Return the preemptions a second of one engine above which they are more than planned; unplanned ones all are."""
    return 0.0 if planned is None else max(MORE_PREEMPTIONS * planned, planned + 0.01)


def waiting_line(planned: float | None) -> int:
    """Return how many requests may wait, beyond which more do than planned."""
    return QUEUE + ceil(planned or 0)


def number_of(expected: Mapping[str, Any], *path: str) -> float | None:
    """Return a number of an expectation, None where it is not there or cannot be one."""
    value: Any = expected
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= LARGEST else None


def _share(found: Mapping[str, Any], end: str) -> float | None:
    share = number_of(found, "kv_used", end)
    return share if share is not None and share <= 1 else None


def engines_of(plan: Plan) -> int:
    """Return the data-parallel engines of one deployment."""
    found = plan.choices.get("data_parallel_size")
    return found if type(found) is int and 0 < found <= MOST_ENGINES else 1
