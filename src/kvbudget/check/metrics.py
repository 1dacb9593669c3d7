"""What an engine's metrics say: one page of them, or what a Prometheus server has kept."""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.errors import AccessError, InputError
from kvbudget.facts import metric_names as facts
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

MAX_LINE = 1 << 14
MAX_BAD_LINES = 1000
MAX_NAMED = 5

MOST_USED = 2.0
"""A share of the cache above it is none; one that counts what is promised may pass 1."""

NEARLY_ALL = 0.9
"""The share of requests in one bucket from which the mean stands for them."""

_SUFFIXES = ("", "_bucket", "_sum", "_count")

_WANTED = frozenset(name + end for row in facts.METRIC_NAMES for name in row.names for end in _SUFFIXES)
"""Names that say something here; most of a page, and all that grows with adapters, says something else."""

_NAME = re.compile(r"\s*(?:# (?:TYPE|HELP) )?([A-Za-z_:][\w:]*)")


class Sample(NamedTuple):
    """One value of a metric with its labels."""

    name: str
    labels: Mapping[str, str]
    value: float


class Lengths(NamedTuple):
    """A histogram of lengths in tokens, of all engines together.

    Attributes:
        requests: How many.
        total: Tokens of all of them.
        edges: Upper bounds of the buckets, ascending, without infinity.
        below: Requests up to each bound.
    """

    requests: float
    total: float
    edges: tuple[float, ...]
    below: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean length."""
        return self.total / self.requests if self.requests else 0.0

    def quantile(self, share: float) -> float:
        """Return a quantile, interpolated inside its bucket; above the last bound it is that bound.

        Where one bucket holds nearly all requests, the mean says more than a point inside it.
        """
        wanted = share * self.requests
        at = bisect_left(self.below, wanted)
        if not self.edges or at >= len(self.edges):
            return self.edges[-1] if self.edges else self.mean
        low, start = (self.edges[at - 1], self.below[at - 1]) if at else (0.0, 0.0)
        inside = self.below[at] - start
        if inside >= NEARLY_ALL * self.requests and low <= self.mean <= self.edges[at]:
            return self.mean
        return low + (self.edges[at] - low) * ((wanted - start) / inside if inside > 0 else 1.0)

    def bucket(self, share: float) -> tuple[float, float]:
        """Return the bounds between which a quantile certainly lies."""
        at = bisect_left(self.below, share * self.requests)
        if at >= len(self.edges):
            return (self.edges[-1] if self.edges else 0.0), inf
        return (self.edges[at - 1] if at else 0.0), self.edges[at]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What the metrics say, of all engines behind one address together.

    Args:
        source: The address or file.
        engine: "vllm", "sglang", "llama.cpp", "tensorrt-llm", "lmdeploy", "tgi".
        over_time: Whether they are those of a range, and not of a moment.
        models: Names of what is served.
        engines: How many engines there are (data-parallel replicas, pods), of a range in the mean.
        kv_usage: The share of the KV cache in use now, 0 to 1: the mean over engines.
        kv_usage_max: The largest: of the engines now, of a range over all its time.
        kv_usage_p95: Of a range; None for a single page.
        running: Requests that run: of all engines now, of a range the mean of one.
        running_max: The most of one engine: now, of a range over all its time.
        waiting: Requests that wait, as those that run.
        waiting_max: The most of one engine.
        preemptions: Requests that lost their cache since the start, or in the range.
        preemptions_per_s: Their rate, None where the time is not known.
        preemptions_per_s_max: The highest of one engine over some minutes of a range.
        finished: Requests finished in the same time.
        requests_per_s: Their rate.
        seconds: The time that the counts cover: since the process began, of a range as much as has engines.
        generated_tokens: Since the start; None of a range.
        prompt: Lengths of prompts.
        output: Lengths of answers.
        prefix_hit_rate: Tokens of prompts found in the cache, 0 to 1, None where none was looked for.
        cache_config: Labels of `vllm:cache_config_info`, of the engine with the fewest blocks.
        notes: What was odd, a sentence each.
    """

    source: str
    engine: str
    over_time: bool = False
    models: tuple[str, ...] = ()
    engines: int = 1
    kv_usage: float | None = None
    kv_usage_max: float | None = None
    kv_usage_p95: float | None = None
    running: float | None = None
    running_max: float | None = None
    waiting: float | None = None
    waiting_max: float | None = None
    preemptions: float | None = None
    preemptions_per_s: float | None = None
    preemptions_per_s_max: float | None = None
    finished: float | None = None
    requests_per_s: float | None = None
    seconds: float | None = None
    generated_tokens: float | None = None
    prompt: Lengths | None = None
    output: Lengths | None = None
    prefix_hit_rate: float | None = None
    cache_config: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def config_number(self, name: str) -> float | None:
        """Return a figure of the cache's configuration, None if it is not there."""
        return finite(self.cache_config.get(name, ""))

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        names = [name for name in self.__slots__ if name not in ("prompt", "output", "cache_config")]
        found = {name: getattr(self, name) for name in names}
        found |= {"models": list(self.models), "notes": list(self.notes), "cache_config": dict(self.cache_config)}
        for name, lengths in (("prompt_tokens", self.prompt), ("output_tokens", self.output)):
            found[name] = lengths and {
                "requests": lengths.requests,
                "mean": lengths.mean,
                "p50": lengths.quantile(0.5),
                "p95": lengths.quantile(0.95),
            }
        return found


def read_metrics(text: str, source: str = "metrics", now: float | None = None) -> Metrics:
    """Return what a metrics page says.

    Args:
        text: The page, in Prometheus's text format.
        source: Its address or file, for messages.
        now: When it was fetched, seconds since 1970; None where that is not known, and there are no rates then.

    Raises:
        InputError: It is no metrics page, or that of several models.
        AccessError: It is another page (HTML), or that of a router.
    """
    _refuse_html(text, source)
    samples, bad, names = _samples(text)
    _refuse_router(names, source)
    by_name: dict[str, list[Sample]] = {}
    for sample in _once_an_engine(samples):
        by_name.setdefault(sample.name, []).append(sample)
    engine = next((row.engine for row in facts.METRIC_NAMES if _found(by_name, row.names)), None)
    if engine is None:
        what = (
            "has no metric of a known engine (vllm:…, sglang:…, llamacpp:…, trtllm_…, lmdeploy:…, tgi_…)"
            if text.strip()
            else "is empty"
        )
        raise InputError(f"{shown(source)} {what}; give an engine's own /metrics.")
    started = [sample.value for sample in by_name.get(facts.STARTED, ()) if sample.value > 0]
    seconds = now - min(started) if now is not None and started and now > min(started) else None
    notes = (f"{bad:,} lines of {shown(source)} were not understood.",) if bad else ()
    return _metrics(_Page(engine, by_name), source, seconds, notes)


class _Page(NamedTuple):
    """An engine's samples by name."""

    engine: str
    by_name: Mapping[str, list[Sample]]

    def samples(self, meaning: str) -> list[Sample]:
        """Return the samples of a meaning under its newest name."""
        names = names_of(meaning, self.engine)
        return next((self.by_name[name] for name in names if name in self.by_name), [])

    def values(self, meaning: str) -> list[float]:
        """Return the finite values of a meaning."""
        return [sample.value for sample in self.samples(meaning) if isfinite(sample.value)]

    def total(self, meaning: str) -> float | None:
        """Return the sum over engines, None if the metric is not there."""
        values = self.values(meaning)
        total = sum(values)
        return total if values and isfinite(total) else None

    def lengths(self, meaning: str) -> Lengths | None:
        """Return a histogram, of all engines together."""
        for name in names_of(meaning, self.engine):
            buckets = [
                (finite(sample.labels.get("le", ""), infinite=True), sample.value)
                for sample in self.by_name.get(f"{name}_bucket", ())
            ]
            count, total = (
                [sample.value for sample in self.by_name.get(f"{name}{end}", ())] for end in ("_count", "_sum")
            )
            if buckets and total:  # a page that was cut off may lack the sum
                return lengths_of(buckets, sum(count), sum(total))
        return None


def names_of(meaning: str, engine: str) -> tuple[str, ...]:
    """Return the names of a meaning, newest first."""
    return next((row.names for row in facts.METRIC_NAMES if (row.meaning, row.engine) == (meaning, engine)), ())


def lengths_of(buckets: Iterable[tuple[float | None, float]], count: float, total: float) -> Lengths | None:
    """Return a histogram from (upper bound, requests up to it), several of which may have one bound; None if empty."""
    summed: dict[float, float] = {}
    for edge, value in buckets:
        if edge is not None and isfinite(value):
            summed[edge] = summed.get(edge, 0.0) + value
    count = count or summed.pop(inf, 0.0)
    summed.pop(inf, None)
    if not count > 0 or not isfinite(count + total) or not isfinite(total / count):
        return None
    edges = tuple(sorted(summed))
    below = [summed[edge] for edge in edges]
    for i, (before, here) in enumerate(pairwise(below), 1):  # a scrape between two updates may count backwards
        below[i] = max(before, here, below[i - 1])
    return Lengths(count, total, edges, tuple(below))


def _metrics(page: _Page, source: str, seconds: float | None, notes: tuple[str, ...]) -> Metrics:
    """Return the figures of a page."""
    usage = [value for value in page.values(facts.KV_USAGE) if 0 <= value <= MOST_USED]
    queries, hits = page.total(facts.PREFIX_QUERIES), page.total(facts.PREFIX_HITS)
    preemptions, finished = page.total(facts.PREEMPTIONS), page.total(facts.FINISHED)
    every = page.samples(facts.RUNNING) or page.samples(facts.KV_USAGE)
    models = [name for name in dict.fromkeys(sample.labels.get(facts.MODEL, "") for sample in every) if name]
    refuse_several(models, source, "give one engine's page")
    config = dict(poorest([sample.labels for sample in page.samples(facts.CONFIG)]))
    tokens = page.values(facts.KV_TOKENS)
    if tokens:
        config["kv_cache_size_tokens"] = f"{min(tokens):.0f}"
    return Metrics(
        source=source,
        engine=page.engine,
        models=tuple(map(shown, models)),
        engines=max(1, len(every)),
        kv_usage=ratio(sum(usage), len(usage)),
        kv_usage_max=max(usage, default=None),
        running=page.total(facts.RUNNING),
        running_max=max(page.values(facts.RUNNING), default=None),
        waiting=page.total(facts.WAITING),
        waiting_max=max(page.values(facts.WAITING), default=None),
        preemptions=preemptions,
        preemptions_per_s=ratio(preemptions, seconds),
        finished=finished,
        requests_per_s=ratio(finished, seconds),
        seconds=seconds,
        generated_tokens=page.total(facts.OUTPUT_TOKENS),
        prompt=page.lengths(facts.PROMPT_LENGTHS),
        output=page.lengths(facts.OUTPUT_LENGTHS),
        prefix_hit_rate=ratio(hits, queries) if queries else _share(page, facts.PREFIX_RATE),
        cache_config=config,
        notes=notes,
    )


def poorest(configs: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """Return the configuration of the engine with the fewest blocks, which are its own.

    Data-parallel engines behind one address all tell the blocks of all of them together, as vLLM adds them up from 0.9
    on (v1/engine/core_client.py: "Sum num_gpu_blocks from all engines in DP case"); the size in tokens, where it is
    told, is one engine's.
    """
    engines: dict[tuple[str | None, ...], set[str | None]] = {}
    for labels in configs:
        engines.setdefault(_address(labels), set()).add(labels.get("engine"))
    own = [_of_one(labels, len(engines[_address(labels)])) for labels in configs]
    return min(own, key=lambda labels: finite(labels.get("num_gpu_blocks", "")) or inf, default={})


def _address(labels: Mapping[str, str]) -> tuple[str | None, ...]:
    return labels.get("job"), labels.get("instance")


def _of_one(labels: Mapping[str, str], engines: int) -> Mapping[str, str]:
    """Return a configuration with the blocks of one of so many engines."""
    blocks, size, tokens = (
        finite(labels.get(name, "")) for name in ("num_gpu_blocks", "block_size", "kv_cache_size_tokens")
    )
    if engines == 1 or not blocks or (size and blocks * size == tokens):
        return labels
    return {**labels, "num_gpu_blocks": f"{blocks // engines:.0f}"}


def ratio(part: float | None, whole: float | None) -> float | None:
    """Return one figure by another, None where either is missing, or no number comes of them."""
    if part is None or not whole:
        return None
    found = part / whole
    return found if isfinite(found) else None


def _share(page: _Page, meaning: str) -> float | None:
    """Return the mean of shares over the engines, None where none is one: V0 says -1 where nothing is looked for."""
    values = [value for value in page.values(meaning) if 0 <= value <= 1]
    return ratio(sum(values), len(values))


def refuse_several(models: Sequence[str], source: str, advice: str) -> None:
    """Refuse to mix the figures of several models, which have caches of several kinds.

    Raises:
        InputError: There are several.
    """
    if len(models) > 1:
        names = ", ".join(shown(name, 40) for name in models[:MAX_NAMED])
        raise InputError(f"{shown(source)} has several models ({names}); {advice}.")


def _once_an_engine(samples: list[Sample]) -> Iterator[Sample]:
    """Yield each sample of an engine once: ranks that work on the same requests all tell them."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], Sample] = {}
    for sample in samples:
        labels = {name: value for name, value in sample.labels.items() if name not in facts.RANKS}
        key = sample.name, frozenset(labels.items())
        known = found.get(key)
        if known is None or not known.value >= sample.value:
            found[key] = sample
    yield from found.values()


def _samples(text: str) -> tuple[list[Sample], int, set[str]]:
    """Return the samples of names that matter, how many lines were not understood, and all names on the page."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - few commands read metrics

    def parsed(lines: str) -> list[Sample]:
        return [
            Sample(sample.name, sample.labels, float(sample.value))
            for family in text_string_to_metric_families(lines)
            for sample in family.samples
        ]

    names: set[str] = set()
    kept: list[str] = []
    bad = 0
    for line in text.splitlines():
        match = _NAME.match(line)
        if match is None:
            continue
        names.add(match[1])
        if (match[1] not in _WANTED and match[1] != facts.STARTED) or line.lstrip().startswith("#"):
            continue
        if len(line) > MAX_LINE:
            bad += 1
        else:
            kept.append(line.strip())
    try:
        return parsed("\n".join(kept)), bad, names
    except (ValueError, IndexError, KeyError):
        samples: list[Sample] = []
        for line in kept:
            try:
                samples += parsed(line)
            except (ValueError, IndexError, KeyError):
                bad += 1
                if bad > MAX_BAD_LINES:
                    break
        return samples, bad, names


def _found(by_name: Mapping[str, list[Sample]], names: tuple[str, ...]) -> bool:
    return any(name + end in by_name for name in names for end in _SUFFIXES)


def _refuse_html(text: str, source: str) -> None:
    head = text[:1000].lstrip().lower()
    what = "HTML" if head.startswith(("<!doctype", "<html", "<?xml", "<head", "<body")) else "JSON"
    if what == "HTML" or head.startswith(("{", "[")):
        raise AccessError(f"{shown(source)} answered {what}, not Prometheus text; give the engine's own /metrics.")


def _refuse_router(names: set[str], source: str) -> None:
    """Refuse a router's page: it has no cache."""
    if any(name in names for row in facts.METRIC_NAMES if row.meaning == facts.CONFIG for name in row.names):
        return
    for start, what in facts.ROUTERS.items():
        if any(name.startswith(start) for name in names):
            raise AccessError(
                f"{shown(source)} is {what} (it names {start}…); give an engine's pod, or --prometheus URL for all."
            )


def finite(text: object, *, infinite: bool = False) -> float | None:
    """Return a number, None if the text is none."""
    try:
        value = float(str(text)[:40])
    except ValueError:
        return None
    return value if isfinite(value) or (infinite and value == inf) else None
