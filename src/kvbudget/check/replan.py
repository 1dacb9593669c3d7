"""The command that plans again with what was measured."""

from __future__ import annotations

import shlex
from math import ceil
from typing import TYPE_CHECKING

from kvbudget.check.expected import engines_of, expected_of
from kvbudget.check.settings import typed

if TYPE_CHECKING:
    from kvbudget.check.metrics import Lengths, Metrics
    from kvbudget.check.plan import Plan


def replan_command(plan: Plan | None, metrics: Metrics | None) -> str:
    """Return the `kvbudget simulate` command with the measured lengths and rate, "" if they were not measured.

    A page that was saved tells no rate; the planned one stands for it, or N.

    Args:
        plan: What was planned: its file, or its model with the choices; MODEL stands where there was none.
        metrics: What was measured; medians are interpolated inside a histogram's buckets.
    """
    if metrics is None or metrics.prompt is None or metrics.output is None:
        return ""
    words = ["kvbudget simulate", *_named(plan)]
    planned = expected_of(plan).requests_per_s
    rate = metrics.requests_per_s or (planned and planned * metrics.engines)
    words += [f"--rate {rate:.3g}" if rate else "--rate N", *_replicas(plan, metrics.engines)]
    words += [f"--prompt-tokens {_spelled(metrics.prompt)}", f"--output-tokens {_spelled(metrics.output)}"]
    return " ".join(words)


def _replicas(plan: Plan | None, engines: int) -> list[str]:
    """Return how often the deployment is there where a rate is that of several."""
    replicas = ceil(engines / engines_of(plan)) if plan is not None else engines
    return [f"--replicas {replicas}"] if replicas > 1 else []


def _named(plan: Plan | None) -> list[str]:
    """Return the words that name a deployment on a command line."""
    if plan is None:
        return ["MODEL --gpu NAME"]
    if plan.path:
        return [shlex.quote(plan.path)]
    gpu = plan.document["gpu"]
    card = f"--gpu-memory {gpu['memory_bytes']}" if gpu["name"] == "given" else f"--gpu {shlex.quote(gpu['name'])}"
    return [shlex.quote(plan.document["model"]["name"]), card, *(typed(*item) for item in plan.choices.items())]


def _spelled(lengths: Lengths) -> str:
    """Return lengths as `simulate` takes them: lognormal with median and 95th percentile, or one length."""
    p50, p95 = (max(1, round(lengths.quantile(share))) for share in (0.5, 0.95))
    return f"lognormal:{p50}:{p95}" if p95 > p50 else f"{p50}"
