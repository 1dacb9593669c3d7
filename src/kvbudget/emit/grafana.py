"""A Grafana dashboard of an engine beside its plan's lines."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.check.promql import capacity, checked_selector, either
from kvbudget.emit.limits import Limits, limits_of
from kvbudget.facts import metric_names as facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.check.plan import Plan

SCHEMA_VERSION = 39
"""Of Grafana 11's dashboards; a later Grafana moves it on by itself."""

SOURCE = {"type": "prometheus", "uid": "${datasource}"}

WIDTH, HEIGHT = 12, 8
"""Of a panel; the grid is 24 wide."""

_ENGINE = "{{instance}} {{engine}}"


class _Panel(NamedTuple):
    """A graph: what is measured, and the plan's lines by name."""

    title: str
    unit: str
    expr: str
    lines: tuple[tuple[str, float | None], ...]
    description: str


def dashboard(plan: Plan, selector: str = "") -> dict[str, Any]:
    """Return a Grafana dashboard as the JSON object that Grafana imports.

    Panels: the cache's size, its use, preemptions, waiting and running requests, each beside the plan's lines.

    Args:
        plan: The plan.
        selector: Labels that the series must have; else every vLLM that is scraped counts.

    Raises:
        InputError: The plan does not fit, lacks a figure, or the selector is not understood.
        CannotTell: It is of an engine that has no such metrics.
    """
    limits = limits_of(plan)
    labels = checked_selector(selector)
    what = f"{limits.model} on {limits.where}, vLLM {limits.version}"
    panels = [_capacity(limits, labels), *(_graph(panel) for panel in _panels(limits, labels))]
    return {
        "uid": f"kvbudget-{zlib.crc32(what.encode()):08x}",
        "title": f"kvbudget: {what}",
        "tags": ["kvbudget", "vllm"],
        "schemaVersion": SCHEMA_VERSION,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {
            "list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]
        },
        "panels": [
            {"id": i + 1, "gridPos": {"x": i % 2 * WIDTH, "y": i // 2 * HEIGHT, "w": WIDTH, "h": HEIGHT}, **panel}
            for i, panel in enumerate(panels)
        ],
    }


def _panels(limits: Limits, labels: str) -> Iterator[_Panel]:
    engine = limits.engine
    yield _Panel(
        "KV cache in use",
        "percentunit",
        either(facts.KV_USAGE, engine, labels),
        (("nearly full", limits.kv_full), ("plan, p95", limits.kv_expected)),
        "Cached prefixes that no request holds count as free.",
    )
    yield _Panel(
        "Preemptions a second",
        "short",
        either(facts.PREEMPTIONS, engine, labels, "rate({}[5m])"),
        (("more than planned", limits.preemptions_line), ("plan", limits.preemptions_per_s)),
        "Requests that lost their part of the cache and are computed again.",
    )
    yield _Panel(
        "Requests waiting",
        "short",
        either(facts.WAITING, engine, labels),
        (("more than planned", limits.waiting_line), ("plan, most", limits.waiting_expected)),
        "Requests that have come and do not run.",
    )
    yield _Panel(
        "Requests running",
        "short",
        either(facts.RUNNING, engine, labels),
        (("max_num_seqs", limits.max_num_seqs),),
        "Requests in the engine's batch.",
    )


def _graph(panel: _Panel) -> dict[str, Any]:
    asked = [(_ENGINE, panel.expr)]
    asked += [(name, f"vector({value:.6g})") for name, value in panel.lines if value is not None]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": SOURCE,
        "fieldConfig": {
            "defaults": {"unit": panel.unit, "min": 0},
            "overrides": [_dashed(name) for name, value in panel.lines if value is not None],
        },
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": expr, "legendFormat": legend}
            for i, (legend, expr) in enumerate(asked)
        ],
    }


def _dashed(name: str) -> dict[str, Any]:
    """Return what makes a plan's line look like one."""
    style = {"id": "custom.lineStyle", "value": {"fill": "dash", "dash": [10, 10]}}
    return {"matcher": {"id": "byName", "options": name}, "properties": [style]}


def _capacity(limits: Limits, labels: str) -> dict[str, Any]:
    """Return a table of the engines' caches; their sizes are labels, which no graph can draw."""
    low, high = limits.num_gpu_blocks
    each = "; data-parallel engines tell their blocks together" if limits.engines > 1 else ""
    shown = ("instance", "engine", "num_gpu_blocks", "block_size", "kv_cache_size_tokens", "gpu_memory_utilization")
    return {
        "type": "table",
        "title": f"KV cache; plan: {low:,} to {high:,} blocks of {limits.block_size} tokens",
        "description": f"The plan's best figure is {limits.kv_cache_size_tokens:,} tokens{each}.",
        "datasource": SOURCE,
        "targets": [
            {
                "refId": "A",
                "datasource": SOURCE,
                "expr": capacity(limits.engine, labels),
                "format": "table",
                "instant": True,
            }
        ],
        "transformations": [
            {"id": "filterFieldsByName", "options": {"include": {"names": list(shown)}}},
            {"id": "organize", "options": {"indexByName": {name: i for i, name in enumerate(shown)}}},
        ],
    }
