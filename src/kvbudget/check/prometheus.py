"""What a Prometheus server has kept of a fleet: averages over its engines, maxima for what is alarming.

Every name is asked for under all that it had (`new or old`), so that a fleet of mixed versions is read as a whole.
Source: Prometheus's HTTP API v1.
"""

from __future__ import annotations

import json
import re
import time
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from kvbudget.check.fetch import get
from kvbudget.check.metrics import Lengths, Metrics, lengths_of, names_of
from kvbudget.errors import AccessError, InputError
from kvbudget.facts import metric_names as facts
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

POINTS = 500
"""Samples of a range; the step follows from it."""

SHORTEST_STEP_S = 15
SHORTEST_WINDOW_S = 60

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_RANGE = re.compile(r"([1-9][0-9]{0,6})([smhdw])")
MAX_RANGE_S = 90 * 86400

_SELECTOR = re.compile(
    r"\s*[A-Za-z_][A-Za-z0-9_]{0,100}\s*(?:=|!=|=~|!~)\s*\"[^\"\\\n]{0,300}\""
    r"(?:\s*,\s*[A-Za-z_][A-Za-z0-9_]{0,100}\s*(?:=|!=|=~|!~)\s*\"[^\"\\\n]{0,300}\")*\s*"
)

MAX_SERIES = 10_000


class Question(NamedTuple):
    """What is asked.

    Attributes:
        url: The server's root.
        seconds: How far back.
        selector: Labels that all series must have: ``namespace="prod"``.
        now: The end of the range, seconds since 1970.
    """

    url: str
    seconds: int
    selector: str
    now: float


def parse_range(text: str) -> int:
    """Return the seconds of a range such as ``24h``.

    Raises:
        InputError: It is none, or longer than 90 days.
    """
    match = _RANGE.fullmatch(text.strip())
    seconds = int(match[1]) * _UNITS[match[2]] if match else 0
    if not 0 < seconds <= MAX_RANGE_S:
        raise InputError(f"--range {shown(text)} is not understood; write for example 30m, 24h or 7d (at most 90d).")
    return seconds


def ask_prometheus(url: str, seconds: int, selector: str = "", now: float | None = None) -> Metrics:
    """Return what a Prometheus server has kept of the engines of one model.

    Raises:
        InputError: The selector is not understood, or the series belong to several models.
        AccessError: The server cannot be reached, refuses the question, or has no engine's metrics.
    """
    if selector and not _SELECTOR.fullmatch(selector):
        raise InputError(f"--selector {shown(selector)} is not understood; write for example 'namespace=\"prod\"'.")
    q = Question(url.rstrip("/"), seconds, selector.strip(), time.time() if now is None else now)
    for engine in ("vllm", "sglang"):
        running = list(_instant(q, f"count by (model_name) ({_either(q, facts.RUNNING, engine)})"))
        if running:
            return _fleet(q, engine, running)
    raise AccessError(
        f"{shown(q.url)} has no metrics of vLLM or SGLang{f' with {q.selector}' if q.selector else ''} now; check that "
        "it scrapes the engines."
    )


def _fleet(q: Question, engine: str, running: list[tuple[Mapping[str, str], float]]) -> Metrics:
    models = [labels.get("model_name", "") for labels, _ in running]
    if len(models) > 1:
        names = ", ".join(shown(name, 40) for name in models[:5])
        raise InputError(f"{shown(q.url)} has several models ({names}); choose one: --selector 'model_name=\"…\"'.")
    usage = _either(q, facts.KV_USAGE, engine)
    waiting = _either(q, facts.WAITING, engine)
    whole = f"[{q.seconds}s]"
    step = max(SHORTEST_STEP_S, -(-q.seconds // POINTS))
    window = f"[{max(SHORTEST_WINDOW_S, 4 * step)}s]"
    lost = _rates(q, facts.PREEMPTIONS, engine, "increase", whole)
    done = _one(q, _rates(q, facts.FINISHED, engine, "increase", whole))
    over_time = sorted(_range(q, f"max({usage})", step))
    preempted = _range(q, _rates(q, facts.PREEMPTIONS, engine, "rate", window), step)
    hits, queries = (
        _one(q, _rates(q, name, engine, "increase", whole)) for name in (facts.PREFIX_HITS, facts.PREFIX_QUERIES)
    )
    count = _one(q, lost)
    configs = [labels for labels, _ in _instant(q, _either(q, facts.CONFIG, engine))] if engine == "vllm" else []
    config = min(configs, key=lambda labels: _number(labels.get("num_gpu_blocks", "")) or 1e18, default={})
    return Metrics(
        source=q.url,
        engine=engine,
        models=tuple(shown(name) for name in models if name),
        engines=int(sum(value for _, value in running)),
        kv_usage=_mean(_range(q, f"avg({usage})", step)),
        kv_usage_max=over_time[-1] if over_time else None,
        kv_usage_p95=over_time[min(len(over_time) - 1, int(0.95 * len(over_time)))] if over_time else None,
        running=_mean(_range(q, f"avg({_either(q, facts.RUNNING, engine)})", step)),
        waiting=_mean(_range(q, f"avg({waiting})", step)),
        waiting_max=max(_range(q, f"max({waiting})", step), default=None),
        preemptions=count,
        preemptions_per_s=None if count is None else count / q.seconds,
        preemptions_per_s_max=max(preempted, default=None),
        finished=done,
        requests_per_s=None if done is None else done / q.seconds,
        seconds=q.seconds,
        prompt=_lengths(q, facts.PROMPT_LENGTHS, engine, whole),
        output=_lengths(q, facts.OUTPUT_LENGTHS, engine, whole),
        prefix_hit_rate=hits / queries if hits is not None and queries else None,
        cache_config=config,
    )


def _series(q: Question, name: str, window: str = "") -> str:
    return f"{name}{{{q.selector}}}{window}" if q.selector else f"{name}{window}"


def _either(q: Question, meaning: str, engine: str) -> str:
    """Return a query for a meaning under any of its names."""
    return " or ".join(_series(q, name) for name in names_of(meaning, engine)) or "vector(0) < 0"


def _rates(q: Question, meaning: str, engine: str, function: str, window: str) -> str:
    """Return a query for the growth of a counter over all engines."""
    each = " or ".join(f"{function}({_series(q, name, window)})" for name in names_of(meaning, engine))
    return f"sum({each})"


def _lengths(q: Question, meaning: str, engine: str, window: str) -> Lengths | None:
    """Return a histogram over the range, of all engines."""
    for name in names_of(meaning, engine):
        buckets = [
            (_number(labels.get("le", ""), infinite=True), value)
            for labels, value in _instant(q, f"sum by (le) (increase({_series(q, f'{name}_bucket', window)}))")
        ]
        if buckets:
            total = _one(q, f"sum(increase({_series(q, f'{name}_sum', window)}))")
            return lengths_of(buckets, 0.0, total or 0.0)
    return None


def _one(q: Question, query: str) -> float | None:
    return next((value for _, value in _instant(q, query)), None)


def _instant(q: Question, query: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield (labels, value) of a query at the end of the range."""
    for item in _answer(q, "query", {"query": query, "time": f"{q.now:.3f}"}):
        value = _number(_at(item.get("value"), 1))
        if value is not None:
            labels = item.get("metric")
            yield (labels if isinstance(labels, dict) else {}), value


def _range(q: Question, query: str, step: int) -> list[float]:
    """Return the values of a query over the range, of all its series."""
    fields = {"query": query, "start": f"{q.now - q.seconds:.3f}", "end": f"{q.now:.3f}", "step": str(step)}
    values: list[float] = []
    for item in _answer(q, "query_range", fields):
        points = item.get("values")
        found = (_number(_at(point, 1)) for point in (points if isinstance(points, list) else ()))
        values += [value for value in found if value is not None]
    return values


def _answer(q: Question, path: str, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the series that a question is answered with."""
    text = get(f"{q.url}/api/v1/{path}?{urlencode(fields)}", what="prometheus")
    name = shown(q.url)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise AccessError(f"{name} did not answer as Prometheus does; give the server's root address.") from None
    if not isinstance(document, dict) or document.get("status") != "success":
        error = document.get("error") if isinstance(document, dict) else None
        raise AccessError(f"{name} refused the question: {shown(str(error or 'no reason given'))}.")
    data = document.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list) or len(result) > MAX_SERIES:
        raise AccessError(f"{name} answered with something that is no list of series; narrow it with --selector.")
    return [item for item in result if isinstance(item, dict)]


def _at(value: object, index: int) -> object:
    return value[index] if isinstance(value, list) and len(value) > index else ""


def _number(value: object, *, infinite: bool = False) -> float | None:
    try:
        number = float(str(value)[:40])
    except ValueError:
        return None
    return number if isfinite(number) or (infinite and number > 0) else None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
