"""Prometheus rules whose thresholds are a plan's lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.check.expected import ROOM
from kvbudget.check.promql import checked_selector, either
from kvbudget.emit.limits import Limits, limits_of
from kvbudget.emit.promql import capacity_differs
from kvbudget.facts import metric_names as facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.check.plan import Plan

GROUP = "kvbudget"

GROWTH = "10m"
GROWTH_S = 600
"""Over how long a queue must grow, by more than one request, to be growing."""


class _Alert(NamedTuple):
    name: str
    expr: str
    lasts: str
    severity: str
    summary: str
    description: str


def rules(plan: Plan, selector: str = "") -> dict[str, Any]:
    """Return a file of Prometheus alerting rules as plain data, for `as_yaml`.

    Each engine is watched by itself: a mean over pods hides the one that is full.

    Args:
        plan: The plan; what it expects under load sets the thresholds where it has been simulated.
        selector: Labels that the series must have: ``namespace="prod"``; else every vLLM that is scraped counts.

    Raises:
        InputError: The plan does not fit, lacks a figure, or the selector is not understood.
        CannotTell: It is of an engine that has no such metrics.
    """
    limits = limits_of(plan)
    return {
        "groups": [{"name": GROUP, "rules": [_rule(a, limits) for a in _alerts(limits, checked_selector(selector))]}]
    }


def _rule(alert: _Alert, limits: Limits) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.lasts,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": f"{alert.summary} on {{{{ $labels.instance }}}}",
            "description": alert.description,
            "plan": literal(f"{limits.model} on {limits.where}, vLLM {limits.version}"),
        },
    }


def literal(text: str) -> str:
    """Return a text that Prometheus's templates print as it is: annotations are templates, and names are foreign."""
    return text.replace("{", '{{ "{" }}')


def _alerts(limits: Limits, selector: str) -> Iterator[_Alert]:
    usage = either(facts.KV_USAGE, limits.engine, selector, "avg_over_time({}[5m])")
    yield _Alert(
        "KvbudgetCacheNearlyFull",
        f"{usage} > {limits.kv_full:g}",
        "5m",
        "warning",
        "The KV cache is nearly full",
        f"{{{{ $value | humanizePercentage }}}} of the KV cache is in use; above {limits.kv_full:.0%} requests begin "
        "to wait and to be preempted. Send less, or give the cache more.",
    )
    line = None if limits.kv_expected is None else limits.kv_expected + ROOM
    if line is not None and line < limits.kv_full:
        yield _Alert(
            "KvbudgetCacheAbovePlan",
            f"{usage} > {line:.4g}",
            "15m",
            "info",
            "The KV cache is fuller than planned",
            f"{{{{ $value | humanizePercentage }}}} of the KV cache is in use; the plan expects at most "
            f"{limits.kv_expected:.0%} for 95 % of the time. The traffic is more or longer than planned.",
        )
    planned = "has none" if limits.preemptions_per_s is None else f"expects {limits.preemptions_per_s:.4g} a second"
    yield _Alert(
        "KvbudgetPreemptions",
        f"{either(facts.PREEMPTIONS, limits.engine, selector, 'rate({}[5m])')} > {limits.preemptions_line:.6g}",
        "1m",
        "warning",
        "Requests are preempted",
        f'{{{{ $value | printf "%.3g" }}}} requests a second lose their part of the KV cache and are computed again; '
        f"the plan {planned}. A smaller --max-num-seqs ends most of them; so does a larger cache.",
    )
    waiting = facts.WAITING, limits.engine, selector
    yield _Alert(
        "KvbudgetQueueGrows",
        f"{either(*waiting, 'min_over_time({}[5m])')} > {limits.waiting_line} "
        f"and {either(*waiting, f'deriv({{}}[{GROWTH}])')} * {GROWTH_S} > 1",
        "5m",
        "warning",
        "The queue grows",
        f'At least {{{{ $value | printf "%.0f" }}}} requests wait, and more all the time; the plan\'s line is '
        f"{limits.waiting_line}. More comes in than this engine can do.",
    )
    low, high = limits.num_gpu_blocks
    blocks = f"{low:,}" if low == high else f"{low:,} to {high:,}"
    each = ", for each engine that is behind the address" if limits.engines > 1 else ""
    yield _Alert(
        "KvbudgetCapacityChanged",
        capacity_differs(limits, selector),
        "5m",
        "warning",
        "The KV cache is not of the planned size",
        "The engine has {{ $labels.num_gpu_blocks }} blocks of {{ $labels.block_size }} tokens; the plan is "
        f"{blocks} of {limits.block_size}{each}. Ask why: kvbudget check plan.json --log FILE.",
    )
