"""What a Prometheus server has kept of a fleet: averages over its engines, maxima for what is alarming.

Every name is asked for under all that it had (`new or old`), so that a fleet of mixed versions is read as a whole.
Maxima are those of all samples, not only of the points that a range query looks at. The 95th percentile is each
engine's own over the time, and then their mean: what one engine does for 95 % of the time, as a plan says it.
Source: Prometheus's HTTP API v1.
"""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

from kvbudget.check.fetch import get, public
from kvbudget.check.metrics import Lengths, Metrics, finite, lengths_of, names_of, poorest, ratio, refuse_several
from kvbudget.check.promql import capacity, checked_selector, either
from kvbudget.errors import AccessError, InputError
from kvbudget.facts import metric_names as facts
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

POINTS = 500
"""Samples of a range; the step follows from it."""

SHORTEST_STEP_S = 15
SHORTEST_WINDOW_S = 60

RATE_WINDOW_S = 300
"""Over how long a rate is taken at least, as the rules of `kvbudget emit` take it."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_RANGE = re.compile(r"([1-9][0-9]{0,6})([smhdw])")
MAX_RANGE_S = 90 * 86400

MAX_SERIES = 10_000
MAX_WARNINGS = 5


class Question(NamedTuple):
    """What is asked.

    Attributes:
        url: The server's root.
        seconds: How far back.
        selector: Labels that all series must have: ``namespace="prod"``.
        now: The end of the range, seconds since 1970.
        warnings: What the server says of its answers, such as that a part of it did not answer.
    """

    url: str
    seconds: int
    selector: str
    now: float
    warnings: dict[str, None]


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
    q = Question(url.rstrip("/"), seconds, checked_selector(selector), time.time() if now is None else now, {})
    for engine in ("vllm", "sglang"):
        running = list(_instant(q, f"count by ({facts.MODEL}) ({_each(q, facts.RUNNING, engine)})"))
        if running:
            return _fleet(q, engine, running)
    raise AccessError(
        f"{public(q.url)} has no metrics of vLLM or SGLang{f' with {q.selector}' if q.selector else ''} now; check "
        "that it scrapes the engines."
    )


def _fleet(q: Question, engine: str, running: list[tuple[Mapping[str, str], float]]) -> Metrics:
    models = [labels.get(facts.MODEL, "") for labels, _ in running]
    refuse_several(models, public(q.url), "choose one: --selector 'model_name=\"…\"'")
    q, step, counts = _seen(q, engine)
    whole = f"[{q.seconds}s]"
    peak = f"max_over_time({{}}[{max(SHORTEST_WINDOW_S, step)}s])"
    rate = f"rate({{}}[{max(RATE_WINDOW_S, 4 * step)}s])"

    def mean(meaning: str) -> float | None:
        values = _range(q, f"avg({_each(q, meaning, engine)})", step)
        return ratio(sum(values), len(values))

    def most(meaning: str, pattern: str) -> float | None:
        return max(_range(q, f"max({_each(q, meaning, engine, pattern)})", step), default=None)

    def grown(meaning: str) -> float | None:
        return _one(q, f"sum({_each(q, meaning, engine, f'increase({{}}{whole})')})")

    usage = _each(q, facts.KV_USAGE, engine)
    seen_s = min(q.seconds, len(counts) * step) or q.seconds  # there may have been none at night
    count, done = grown(facts.PREEMPTIONS), grown(facts.FINISHED)
    hits, queries = grown(facts.PREFIX_HITS), grown(facts.PREFIX_QUERIES)
    return Metrics(
        source=public(q.url),
        over_time=True,
        engine=engine,
        models=tuple(shown(name) for name in models if name),
        engines=max(1, round(sum(counts) / len(counts))) if counts else int(sum(value for _, value in running)),
        kv_usage=mean(facts.KV_USAGE),
        kv_usage_max=most(facts.KV_USAGE, peak),
        kv_usage_p95=_one(q, f"avg(quantile_over_time(0.95, ({usage})[{q.seconds}s:{step}s]))"),
        running=mean(facts.RUNNING),
        running_max=most(facts.RUNNING, peak),
        waiting=mean(facts.WAITING),
        waiting_max=most(facts.WAITING, peak),
        preemptions=count,
        preemptions_per_s=ratio(count, seen_s),
        preemptions_per_s_max=most(facts.PREEMPTIONS, rate),
        finished=done,
        requests_per_s=ratio(done, seen_s),
        seconds=seen_s,
        prompt=_lengths(q, facts.PROMPT_LENGTHS, engine, whole),
        output=_lengths(q, facts.OUTPUT_LENGTHS, engine, whole),
        prefix_hit_rate=ratio(hits, queries),
        cache_config=_smallest_cache(q, engine),
        notes=tuple(f"{public(q.url)} warns: {text}" for text in q.warnings),
    )


def _seen(q: Question, engine: str) -> tuple[Question, int, list[float]]:
    """Return the part of the range that begins with the first engine, its step, and how many engines each point has."""
    while True:
        step = max(SHORTEST_STEP_S, -(-q.seconds // POINTS))
        points = _points(q, f"count({_each(q, facts.RUNNING, engine)})", step)
        age_s = int(q.now - min(at for at, _ in points)) if points else q.seconds
        whole_s = max(1, min(q.seconds, age_s + step))
        if 2 * whole_s > q.seconds or step == SHORTEST_STEP_S:
            return q._replace(seconds=whole_s), step, [count for _, count in points]
        q = q._replace(seconds=whole_s)


def _smallest_cache(q: Question, engine: str) -> Mapping[str, str]:
    """Return the configuration of the engine with the smallest cache."""
    if names_of(facts.CONFIG, engine):
        return poorest([labels for labels, _ in _instant(q, capacity(engine, q.selector))])
    tokens = _one(q, f"min({_each(q, facts.KV_TOKENS, engine)})")
    return {} if tokens is None else {"kv_cache_size_tokens": f"{tokens:.0f}"}


def _each(q: Question, meaning: str, engine: str, pattern: str = "{}", suffix: str = "") -> str:
    """Return a query for a meaning of every engine that is asked for; of one that an engine lacks, for nothing."""
    known = names_of(meaning, engine)
    return either(meaning, engine, q.selector, pattern, suffix) if known else "vector(0) < 0"


def _lengths(q: Question, meaning: str, engine: str, window: str) -> Lengths | None:
    """Return a histogram over the range, of all engines."""
    grown = f"increase({{}}{window})"
    buckets = [
        (finite(labels.get("le", ""), infinite=True), value)
        for labels, value in _instant(q, f"sum by (le) ({_each(q, meaning, engine, grown, '_bucket')})")
    ]
    total = _one(q, f"sum({_each(q, meaning, engine, grown, '_sum')})")
    return lengths_of(buckets, 0.0, total) if total is not None else None


def _one(q: Question, query: str) -> float | None:
    return next((value for _, value in _instant(q, query)), None)


def _instant(q: Question, query: str) -> Iterator[tuple[Mapping[str, str], float]]:
    """Yield (labels, value) of a query at the end of the range."""
    for item in _answer(q, "query", {"query": query, "time": f"{q.now:.3f}"}):
        value = finite(_at(item.get("value"), 1))
        if value is not None:
            labels = item.get("metric")
            yield (labels if isinstance(labels, dict) else {}), value


def _range(q: Question, query: str, step: int) -> list[float]:
    """Return the values of a query over the range, of all its series."""
    return [value for _, value in _points(q, query, step)]


def _points(q: Question, query: str, step: int) -> list[tuple[float, float]]:
    """Return (time, value) of a query over the range, of all its series."""
    fields = {"query": query, "start": f"{q.now - q.seconds:.3f}", "end": f"{q.now:.3f}", "step": str(step)}
    found: list[tuple[float, float]] = []
    for item in _answer(q, "query_range", fields):
        points = item.get("values")
        for point in points if isinstance(points, list) else ():
            at, value = finite(_at(point, 0)), finite(_at(point, 1))
            if at is not None and value is not None:
                found.append((at, value))
    return found


def _answer(q: Question, path: str, fields: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the series that a question is answered with."""
    text = get(f"{q.url}/api/v1/{path}?{urlencode(fields)}", what="prometheus")
    name = public(q.url)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise AccessError(f"{name} did not answer as Prometheus does; give the server's root address.") from None
    if not isinstance(document, dict) or document.get("status") != "success":
        error = document.get("error") if isinstance(document, dict) else None
        raise AccessError(f"{name} refused the question: {shown(str(error or 'no reason given'))}.")
    data = document.get("data")
    result = data.get("result") if isinstance(data, dict) else None
    if not isinstance(result, list):
        raise AccessError(f"{name} answered with something that is no list of series; give the server's root address.")
    if len(result) > MAX_SERIES:
        raise AccessError(f"{name} answered with more than {MAX_SERIES:,} series; narrow it with --selector.")
    warnings = document.get("warnings")
    for warning in warnings[:MAX_WARNINGS] if isinstance(warnings, list) else ():
        if len(q.warnings) < MAX_WARNINGS:
            q.warnings[shown(str(warning), 200)] = None
    return [item for item in result if isinstance(item, dict)]


def _at(value: object, index: int) -> object:
    return value[index] if isinstance(value, list) and len(value) > index else ""
