"""Workloads out of what benchmarks and engines report: single requests where they kept them, else distributions."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.workload.files import HEAD, Bytes, Lines, open_trace
from kvbudget.workload.lengths import MAX_TOKENS, Constant, Histogram
from kvbudget.workload.recorded import Entries, Profile, Trace, in_order, request_of, seconds_of, tokens_of
from kvbudget.workload.records import aiperf_requests, objects
from kvbudget.workload.rows import json_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from kvbudget.workload.request import Request


def vllm_bench(name: str, content: Bytes, path: Path) -> Trace | Profile:  # noqa: ARG001 - one signature
    """Read a result of `vllm bench serve`; without --save-detailed it has means only."""
    document = json_document(name, content)
    inputs, outputs, starts = (document.get(key) for key in ("input_lens", "output_lens", "start_times"))
    if not isinstance(inputs, list) or not isinstance(outputs, list):
        return _vllm_means(name, document)
    if len(inputs) != len(outputs) or (isinstance(starts, list) and len(starts) != len(inputs)):
        raise InputError(f"{name}: input_lens, output_lens and start_times differ in length; the file is damaged.")
    times = starts if isinstance(starts, list) else [0.0] * len(inputs)

    def requests(trace: Trace, seed: int) -> Iterator[Request]:  # noqa: ARG001 - nothing is left to chance
        rows = Entries(name, zip(times, inputs, outputs, strict=True))

        def read() -> Iterator[Request]:
            for start, prompt, output in rows:
                yield from request_of(
                    trace,
                    seconds_of(rows, start),
                    tokens_of(rows, prompt, "input_lens"),
                    tokens_of(rows, output, "output_lens"),
                )

        return in_order(read(), name, from_first=True)

    return Trace(name=name, format="vllm-bench", timed=times is starts, reading=requests)


def _vllm_means(name: str, document: Mapping[str, Any]) -> Profile:
    """Without --save-detailed the file has totals only."""
    rows = Entries(name, ())
    done = tokens_of(rows, document.get("completed"), "completed")
    means = [tokens_of(rows, document.get(key), key) for key in ("total_input_tokens", "total_output_tokens")]
    if not done or min(means) < done:
        raise InputError(f"{name}: no request was completed; give the result of a run that worked.")
    prompt, output = (Constant(round(total / done)) for total in means)
    return Profile(
        name, "vllm-bench", prompt, output, _rate(document.get("request_throughput")),
        ("The result has mean lengths only, so all requests are taken as equal: --save-detailed keeps each one's.",),
    )  # fmt: skip


def _rate(value: object) -> float | None:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value) and value > 0:
        return float(value)
    return None


def guidellm(name: str, content: Bytes, path: Path) -> Trace | Profile:  # noqa: ARG001 - one signature
    """Read a report of guidellm: its successful requests, or percentiles where it left them out."""
    document = json_document(name, content)
    runs = document.get("benchmarks")
    if not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs) or not runs:
        raise InputError(f"{name}: has no list of benchmarks; give guidellm's benchmarks.json.")
    entries = [entry for run in runs for entry in _successful(run.get("requests"))]
    if not entries:
        return _guidellm_summary(name, runs[0])

    def requests(trace: Trace, seed: int) -> Iterator[Request]:  # noqa: ARG001 - nothing is left to chance
        rows = Entries(name, entries)

        def read() -> Iterator[Request]:
            for row in objects(rows):
                start = row.get("request_start_time", row.get("start_time"))
                prompt, output = (tokens_of(rows, row.get(key), key) for key in ("prompt_tokens", "output_tokens"))
                yield from request_of(trace, seconds_of(rows, start), prompt, output)

        return in_order(read(), name, from_first=True)

    notes = ("The file has several benchmarks, which are played one after the other.",) if len(runs) > 1 else ()
    return Trace(name=name, format="guidellm", timed=True, notes=notes, reading=requests)


def _successful(value: object) -> list[Any]:
    found = value.get("successful") if isinstance(value, dict) else value
    return found if isinstance(found, list) else []


def _guidellm_summary(name: str, run: Mapping[str, Any]) -> Profile:
    def metric(key: str) -> Mapping[str, Any]:
        value: Any = run
        for part in ("metrics", key, "successful"):
            value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, dict):
            raise InputError(f"{name}: has neither requests nor the metric {key}; give guidellm's benchmarks.json.")
        percentiles = value.get("percentiles")
        return {**value, **(percentiles if isinstance(percentiles, dict) else {})}

    prompt, output = (_quantiles(name, key, metric(key)) for key in ("prompt_token_count", "output_token_count"))
    return Profile(name, "guidellm", prompt, output, _rate(metric("requests_per_second").get("mean")), (_BY_QUANTILES,))


_QUANTILES: dict[str, float] = {
    "min": 0,
    "max": 100,
    "p999": 99.9,
    "p001": 0.1,
    **{f"p{at}": at for at in (1, 5, 10, 25, 50, 75, 90, 95, 99)},
    **{f"p{at:02}": at for at in (1, 5)},
}
"""What aiperf and guidellm call the percentiles -> percent of the requests that are no longer."""

_BY_QUANTILES = (
    "The file has percentiles of the lengths only; between two of them all lengths are taken as equally likely."
)


def _quantiles(name: str, what: str, metric: Mapping[str, Any]) -> Histogram:
    """Return the distribution that a summary's percentiles describe."""
    rows = Entries(name, ())
    known = {
        at: round(value)
        for key, at in _QUANTILES.items()
        if isinstance(value := metric.get(key), (int, float)) and isfinite(value) and 0 <= value <= MAX_TOKENS
    }
    if len(known) < 2 or 100 not in known:  # noqa: PLR2004
        raise InputError(f"{name}: {what} has no percentiles and no max; give the file as its tool wrote it.")
    counts, below, highest = [], 0.0, 0
    low = max(1, known.get(0, 1))
    for at, value in sorted(known.items()):
        if value < highest:
            raise rows.error(f"has percentiles of {what} that fall")
        highest = max(value, low)
        if at:
            counts.append((highest, at - below))
        below = at
    return Histogram.of(((edge, weight) for edge, weight in counts), low)


def aiperf(name: str, content: Bytes, path: Path) -> Trace | Profile:
    """Records of single requests, or the summary of a run."""
    if b'"request_start_ns"' in content.peek(HEAD):

        def requests(trace: Trace, seed: int) -> Iterator[Request]:  # noqa: ARG001 - nothing is left to chance
            with open_trace(path) as opened:
                yield from in_order(aiperf_requests(trace, *opened), name, from_first=True)

        return Trace(name=name, format="aiperf", timed=True, reading=requests)
    document = json_document(name, content)
    metrics = [document.get(key) for key in ("input_sequence_length", "output_sequence_length")]
    if not all(isinstance(metric, dict) for metric in metrics):
        raise InputError(f"{name}: has no input_sequence_length and output_sequence_length; give aiperf's own export.")
    prompt, output = (_quantiles(name, "sequence_length", metric or {}) for metric in metrics)
    speed = document.get("request_throughput")
    rate = _rate(speed.get("avg")) if isinstance(speed, dict) else None
    return Profile(name, "aiperf", prompt, output, rate, (_BY_QUANTILES,))


_HISTOGRAMS: tuple[tuple[str, str], ...] = (
    ("vllm:request_prompt_tokens", "vllm:request_generation_tokens"),
    ("sglang:prompt_tokens_histogram", "sglang:generation_tokens_histogram"),
    ("lmdeploy:request_prompt_tokens", "lmdeploy:request_generation_tokens"),
    ("tgi_request_input_length", "tgi_request_generated_tokens"),
)
"""(prompt, answer) histograms of each engine's metrics page; vLLM's: vllm/v1/metrics/loggers.py, 0.32."""

_MAX_BUCKETS = 1 << 16


def prometheus(name: str, content: Bytes, path: Path) -> Profile:  # noqa: ARG001 - one signature
    """Read the length histograms on an engine's metrics page, of all its replicas and models together."""
    lines = Lines(name, content)
    wanted = {f"{metric}_bucket" for pair in _HISTOGRAMS for metric in pair}
    found: dict[str, dict[float, float]] = {}
    for line in lines:
        metric, brace, rest = line.partition("{")
        if not brace or metric not in wanted:
            continue
        buckets = found.setdefault(metric.removesuffix("_bucket"), {})
        edge, count = _bucket(lines, rest)
        buckets[edge] = buckets.get(edge, 0.0) + count  # of all replicas and models together
        if len(buckets) > _MAX_BUCKETS:
            raise lines.error("is one bucket too many", "give one engine's metrics")
    for prompt, output in _HISTOGRAMS:
        if prompt in found and output in found:
            prompts, longer = _cumulative(name, prompt, found[prompt])
            outputs, longer_too = _cumulative(name, output, found[output])
            return Profile(name, "prometheus", prompts, outputs, None, (_BY_BUCKETS, *longer, *longer_too))
    raise InputError(
        f"{name}: has no histogram of prompt and answer lengths such as {_HISTOGRAMS[0][0]}; give an engine's page."
    )


_BY_BUCKETS = "The metrics count lengths in buckets; inside a bucket all lengths are taken as equally likely."


def _bucket(lines: Lines, rest: str) -> tuple[float, float]:
    """Return edge and count of ``le="500.0",model="x"} 12``."""
    labels, closed, value = rest.partition(" # ")[0].rpartition("}")  # an exemplar may follow
    _, has_edge, edge = labels.partition('le="')
    try:
        result = float(edge.partition('"')[0]), float(value.split()[0])
    except (ValueError, IndexError):
        result = (-1.0, -1.0)
    if not closed or not has_edge or not result[0] >= 0 or not isfinite(result[1]) or result[1] < 0:
        raise lines.error("is no bucket of a histogram")
    return result


def _cumulative(name: str, metric: str, buckets: Mapping[float, float]) -> tuple[Histogram, tuple[str, ...]]:
    """Return the distribution that cumulative buckets describe, and what is not known of it."""
    counts: list[tuple[int, float]] = []
    below, beyond, largest = 0.0, 0.0, 0
    for edge, total in sorted(buckets.items()):
        if total < below:
            raise InputError(
                f"{name}: {metric} counts fewer requests up to {edge:g} than before; give the page of one engine."
            )
        if not isfinite(edge):
            beyond = total - below
        elif counts and counts[-1][0] == min(int(edge), MAX_TOKENS):
            counts[-1] = (largest, counts[-1][1] + total - below)
        else:
            largest = min(int(edge), MAX_TOKENS)
            counts.append((largest, total - below))
        below = total
    if not below:
        raise InputError(f"{name}: {metric} counts no request; take the page of an engine that has served some.")
    if not largest:
        raise InputError(f"{name}: {metric} has no bucket but +Inf; take it from an engine with buckets.")
    if not beyond:
        return Histogram.of(counts), ()
    note = (
        f"{beyond / below:.1%} of the requests lie beyond the last bucket of {metric}, {largest:,} tokens, and are "
        "taken to be a token longer: how much longer they are is not told."
    )
    return Histogram.of([*counts, (largest + 1, beyond)]), (note,)
