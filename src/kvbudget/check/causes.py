"""Why a running engine is not as planned, a sentence each, and the change to make with its direction.

Start-up and serving ask for opposite turns of `--gpu-memory-utilization`: a pool that is too small at start-up wants it
higher, an allocation that fails while serving wants it lower. Each cause says which it was.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.check.metrics import names_of
from kvbudget.check.observation import CAPTURING, LOADING, PROFILING, SERVING, UNSEEN
from kvbudget.check.settings import typed
from kvbudget.deployment import flag
from kvbudget.errors import InputError
from kvbudget.facts import metric_names
from kvbudget.facts import vllm as facts
from kvbudget.units import GIB, gib

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kvbudget.check.metrics import Metrics
    from kvbudget.check.observation import Observation, Refusal
    from kvbudget.check.plan import Plan
    from kvbudget.check.settings import Difference
    from kvbudget.check.verdict import Row

UTILIZATION = "--gpu-memory-utilization"

FULL = 95.0
"""Percent of the cache in use from which it is called full."""

NEARLY_FULL = 90.0
"""Percent from which waiting requests mean that preemptions are near."""

LOW_USE = 60.0
HIGH_HITS = 0.3
"""Below so much use and above so many hits, the cache is fuller than the gauge says."""

OTHER_PROCESS = GIB // 2
"""Bytes beyond what a CUDA context takes from which another process is likely."""

HIGHEST_FRACTION = 0.98
"""Above it nothing is left for the CUDA context."""

OWN_CONTEXT = GIB
"""Bytes of a card that the context of the one process on it, with NCCL's buffers, may take."""

UNEVEN = GIB // 4
"""Bytes by which ranks must differ for the smallest to be worth naming."""

PRINTED = GIB // 100
"""The last digit of a printed GiB."""

DOUBLE = 1.8
"""Weights so many times the plan's are of another type."""


class _Flags(NamedTuple):
    """What an engine calls the choices that a full cache asks for, and what it does when the cache is full.

    Attributes:
        at_once: How many requests run together.
        pool: What sizes the cache.
        others: What else gives it more.
        events: What the count is of: one, several.
        meaning: What happened, a sentence.
    """

    at_once: str
    pool: str
    others: str
    events: tuple[str, str]
    meaning: str


_LOST = "the cache was full, running requests lost their part of it, and it was computed again."

_FLAGS: dict[str, _Flags] = {
    "vllm": _Flags(
        "--max-num-seqs", UTILIZATION, "--kv-cache-dtype fp8, more GPUs", ("preemption", "preemptions"), _LOST
    ),
    "sglang": _Flags(
        "--max-running-requests",
        "--mem-fraction-static",
        "--kv-cache-dtype fp8_e4m3, more GPUs",
        ("retraction", "retractions"),
        _LOST,
    ),
    "llama.cpp": _Flags(
        "-np",
        "-c",
        "-ctk q8_0 -ctv q8_0",
        ("failed search for room in the cache", "failed searches for room in the cache"),
        "each time the batch was halved and tried again; where not one token had room, a request ended.",
    ),
}

_FLAGS |= {
    "tensorrt-llm": _FLAGS["vllm"]._replace(
        at_once="--max_batch_size", pool="--free_gpu_memory_fraction", others="kv_cache_config.dtype fp8, more GPUs"
    ),
    "lmdeploy": _FLAGS["vllm"]._replace(
        at_once="--max-batch-size", pool="--cache-max-entry-count", others="--quant-policy 8, more GPUs"
    ),
    "tgi": _FLAGS["vllm"]._replace(
        at_once="--max-concurrent-requests", pool="--cuda-memory-fraction", others="--kv-cache-dtype, more GPUs"
    ),
}

_FIXED_POOL = ("num_gpu_blocks_override", "kv_cache_memory_bytes")
"""Choices beside which the fraction does not size the pool; the first of them wins."""


def _flags(seen: Observation, metrics: Metrics | None) -> _Flags:
    found = _FLAGS.get(seen.engine or (metrics.engine if metrics is not None else ""), _FLAGS["vllm"])
    fixed = _fixed_pool(seen)
    if fixed is None:
        return found
    blocks = fixed[0] == "num_gpu_blocks_override"  # of whatever size
    return found._replace(pool=flag(fixed[0]), others="" if blocks else found.others)


def _fixed_pool(seen: Observation) -> tuple[str, Any] | None:
    """Return the choice that fixes the pool and its value, None where a fraction sizes it."""
    for name in _FIXED_POOL:
        said = seen.setting(name)
        if said is not None and said.value:
            return name, said.value
    return None


class Finding(NamedTuple):
    """One cause.

    Attributes:
        name: A stable word for scripts.
        cause: What it is, with figures.
        change: What to do, "" where nothing is to be done.
        drift: Whether it makes the check fail.
        place: Where it was seen.
    """

    name: str
    cause: str
    change: str
    drift: bool
    place: str = ""


def causes(
    plan: Plan | None,
    seen: Observation,
    metrics: Metrics | None,
    rows: Sequence[Row],
    differing: Sequence[Difference],
) -> Iterator[Finding]:
    """Yield the causes, the gravest first."""
    found = tuple(_all(plan, seen, metrics, rows, differing))
    yield from found
    wrong = [row for row in rows if row.ok is False]
    if wrong and not any(finding.drift for finding in found):
        yield Finding(
            "unexplained",
            f"{' and '.join(row.name for row in wrong)}: not as planned, and nothing that was read says why.",
            "Compare the flags of the server and its version with the plan's.",
            drift=True,
            place=wrong[0].place,
        )


def _all(
    plan: Plan | None,
    seen: Observation,
    metrics: Metrics | None,
    rows: Sequence[Row],
    differing: Sequence[Difference],
) -> Iterator[Finding]:
    """Yield each known cause."""
    yield from _preemptions(seen, metrics, rows)
    yield from _full(seen, metrics)
    for refusal in seen.refusals:
        yield _refused(refusal, seen, plan)
    yield from _settings(plan, differing)
    yield from _traffic(plan, rows)
    refused = any(refusal.name == "start_free" for refusal in seen.refusals)  # which has said it
    others = () if refused else tuple(_other_process(plan, seen))
    yield from others
    yield from _smallest_rank(seen)
    terms = tuple(_terms(plan, rows, differing))
    yield from terms
    named = {finding.name for finding in (*others, *terms)} | {item.name for item in differing}
    yield from _pool(plan, rows, named)
    yield from _prefix_cache(seen, metrics)


# -- load


def _preemptions(seen: Observation, metrics: Metrics | None, rows: Sequence[Row]) -> Iterator[Finding]:
    found = [row for row in rows if row.name.startswith("preemptions")]
    row = next((row for row in found if row.ok is False), found[0] if found else None)
    if row is None or not any(row.actual for row in found):
        return
    count = metrics.preemptions if metrics is not None and metrics.preemptions else seen.preemptions or row.actual or 0
    of = f" for {metrics.finished:,.0f} finished requests" if metrics is not None and metrics.finished else ""
    rate = metrics.preemptions_per_s if metrics is not None else None
    often = f", {rate:.2g} per s" if rate else ""
    peak = metrics.preemptions_per_s_max if metrics is not None else None
    often += f" and up to {peak:.2g} of one engine" if rate and peak else ""
    most = max((row.actual or 0 for row in rows if row.name.startswith("running")), default=0)
    flags = _flags(seen, metrics)
    words = f"{count:,.0f} {flags.events[count != 1]}{of}{often}: {flags.meaning}"
    change, held = _fewer_at_once(seen, metrics, most)
    if held is not None:
        words += f" {held}"
        if most:
            words += f" Up to {most:,.0f} ran."
    yield Finding("preemptions", words, change, drift=row.ok is False, place=row.place)


def _full(seen: Observation, metrics: Metrics | None) -> Iterator[Finding]:
    """Say that the cache was full where nothing counts what that led to, or nearly full before it led to anything."""
    usage = seen.load.kv_usage
    most = metrics.kv_usage_max or 0.0 if metrics is not None else 0.0
    waits = max(metrics.waiting or 0.0, metrics.waiting_max or 0.0) if metrics is not None else 0.0
    flags = _flags(seen, metrics)
    fewer = flags.at_once
    if metrics is not None and not metrics.preemptions and 100 * most >= NEARLY_FULL and waits:
        counts = bool(names_of(metric_names.PREEMPTIONS, metrics.engine))
        follows = "preemptions are near" if counts else "they wait for room in it"
        yield Finding(
            "near",
            f"The cache is up to {100 * most:.0f} % full and {waits:,.0f} request"
            f"{'s wait' if waits > 1 else ' waits'}: {follows}.",
            f"Fewer at once (a lower {fewer}) or more cache prevents them; --watch 10 counts them."
            if counts
            else f"Give the cache more: a higher {flags.pool}, {flags.others}; or send less.",
            drift=False,
            place=metrics.source,
        )
    if metrics is None and seen.preemptions is None and usage.count and usage.largest >= FULL:
        yield Finding(
            "full",
            f"The cache was up to {usage.largest:.0f} % full and up to {seen.load.waiting.largest:,.0f} requests "
            "waited: running ones were probably preempted, which this log does not say.",
            "Look at vllm:num_preemptions_total: --metrics URL."
            if seen.engine == "vllm"
            else f"Let fewer run at once (a lower {fewer}), or give the cache more.",
            drift=False,
        )


def _fewer_at_once(seen: Observation, metrics: Metrics | None, most: float) -> tuple[str, str | None]:
    """Return what to do about a cache that is full, and how many mean requests it holds.

    Args:
        seen: The log.
        metrics: The metrics.
        most: How many ran at once, 0 where nobody saw it.
    """
    flags = _flags(seen, metrics)
    more = f"or give the cache more: {', '.join(filter(None, (f'a higher {flags.pool}', flags.others)))}"
    fewer = f"let fewer run at once (a lower {flags.at_once}), {more}."
    fewer_first = f"{fewer[0].upper()}{fewer[1:]}"
    tokens = seen.smallest("kv_cache_size_tokens")
    size = tokens.value if tokens else metrics.config_number("kv_cache_size_tokens") if metrics else None
    if metrics is None or metrics.prompt is None or metrics.output is None or not size:
        return fewer_first, None
    mean = metrics.prompt.mean + metrics.output.mean
    if mean <= 0:
        return fewer_first, None
    whole = int(size / mean)
    held = (
        f"A request of the measured means ({metrics.prompt.mean:,.0f} + {metrics.output.mean:,.0f} tokens) ends at "
        f"{mean:,.0f}; the cache of {size:,.0f} holds {whole:,} of them whole."
    )
    if most and whole >= most:
        return f"Longer requests than the mean filled it: {fewer}", held
    return f"{flags.at_once} {max(1, whole)} ends most of them, at the price of a longer queue; {more}.", held


_MORE: Mapping[str, str] = {
    "KV used, p95": "The cache is fuller",
    "running": "More requests run",
    "waiting": "More requests wait",
}


def _traffic(plan: Plan | None, rows: Sequence[Row]) -> Iterator[Finding]:
    """Name traffic that is not the planned one."""
    longer: set[str] = set()
    same_cache = not any(row.ok is False and row.name in ("available KV", "KV size", "KV blocks") for row in rows)
    for row in rows:
        if row.ok is not False or row.plan in (None, 0) or row.actual is None:
            continue
        if row.name.startswith(("prompt tokens", "output tokens")):
            what = row.name.split()[0]
            if what in longer:  # the mean says what the median has said
                continue
            longer.add(what)
            yield Finding(
                "traffic",
                f"The {what}s are {row.actual / row.plan:.1f}× as long as planned"
                f"{': the traffic, not the memory' if same_cache else ''}.",
                "Plan again with the measured lengths (below).",
                drift=True,
                place=row.place,
            )
        elif row.name == "requests":
            yield Finding(
                "traffic",
                f"{row.actual:.3g} requests a second arrive, {row.plan:.3g} were planned.",
                "Plan again with the measured rate (below), or spread them over more replicas.",
                drift=True,
                place=row.place,
            )
        elif plan is not None and (words := _MORE.get(row.name.removesuffix(", now").removesuffix(", max"))):
            yield Finding(
                "pressure",
                f"{words} than planned: {row.actual:,.0f} against {row.plan:,.0f}{' %' if row.unit == '%' else ''}.",
                "Compare the lengths and the rate with the plan's; preemptions follow when the cache is full.",
                drift=True,
                place=row.place,
            )


def _prefix_cache(seen: Observation, metrics: Metrics | None) -> Iterator[Finding]:
    """Say that the gauge leaves out what only the prefix cache keeps, where that may mislead."""
    hits = metrics.prefix_hit_rate if metrics is not None else None
    if hits is None and seen.load.prefix_hit_rate is not None:
        hits = seen.load.prefix_hit_rate / 100
    largest = seen.load.kv_usage.largest if seen.load.kv_usage.count else 0.0
    if metrics is not None and metrics.kv_usage_max is not None:
        largest = max(largest, 100 * metrics.kv_usage_max)
    if hits is not None and hits >= HIGH_HITS and 0 < largest < LOW_USE:
        yield Finding(
            "prefix_cache",
            f"{hits:.0%} of the prompts' tokens come from the prefix cache, whose blocks count as free: the cache "
            f"holds more than the {largest:.0f} % that are shown.",
            "Do not make it smaller on account of the low figure.",
            drift=False,
        )


# -- refusals


def _refused(refusal: Refusal, seen: Observation, plan: Plan | None) -> Finding:
    """Return what an error about memory means, with the direction to turn the flag."""
    words, change = _meaning(refusal, seen, plan)
    often = f" ({refusal.times:,} times)" if refusal.times > 1 else ""
    over = seen.phase == SERVING and refusal.phase != SERVING
    if over:
        words += " A later start got past it."
    return Finding(
        f"refused:{refusal.name}", f"{_when(refusal)}{often}: {words}", change, drift=not over, place=str(refusal.place)
    )


def _when(refusal: Refusal) -> str:
    if refusal.name == "out_of_memory":
        words = {
            UNSEEN: "Out of memory",
            LOADING: "Out of memory while loading",
            PROFILING: "Out of memory in the profile run",
            CAPTURING: "Out of memory while starting",
            SERVING: "Out of memory while serving",
        }
        return words[refusal.phase]
    return "A start-up failure"


def _meaning(refusal: Refusal, seen: Observation, plan: Plan | None) -> tuple[str, str]:
    """Return (what it means, what to do)."""
    f = refusal.figures
    if refusal.name == "start_free":
        held = f.get("total", 0) - f.get("free", 0)
        least = int(100 * f["free"] / f["total"]) / 100 if f.get("total") else 0
        words = (
            f"{UTILIZATION} {f.get('fraction', 0):g} asks for {gib(int(f.get('budget', 0)))} GiB and "
            f"{gib(int(f.get('free', 0)))} of {gib(int(f.get('total', 0)))} are free: "
        )
        lower = f"ower {UTILIZATION} to {least:g} or less."
        if held <= OWN_CONTEXT:
            return f"{words}a CUDA context takes {gib(int(held))}.", f"L{lower}"
        return f"{words}another process holds {gib(int(held))}.", f"End the other process, or l{lower}"
    if refusal.name == "cache_too_small":
        return _too_small(f, seen, plan)
    if refusal.name == "cache_too_small_v0":
        return (
            f"one request may have {f.get('length', 0):,.0f} tokens and the cache holds {f.get('fits', 0):,.0f}.",
            f"Raise {UTILIZATION}, or lower --max-model-len to {f.get('fits', 0):.0f}.",
        )
    if refusal.name == "no_cache_memory":
        if seen.engine == "sglang":
            return "nothing is left for the cache.", "Raise --mem-fraction-static."
        weights, total = seen.largest("weights"), _card_bytes(seen, plan)
        if weights is not None and total and weights.value > HIGHEST_FRACTION * total:
            return (
                "the weights fill the card; not one block of the cache fits.",
                "Use more GPUs (-tp) or smaller weights; no fraction helps.",
            )
        return (
            "weights, activations and graphs alone exceed the budget; not one block of the cache fits.",
            f"Raise {UTILIZATION}, lower --max-num-batched-tokens, use more GPUs or smaller weights.",
        )
    if refusal.name == "memory_changed":
        return (
            "the card's free memory grew during the profile run: another process gave some back in the middle of it.",
            "Start it again when nothing else starts or stops on the card.",
        )
    if refusal.name == "host_memory":
        needed, free = (gib(int(f.get(name, 0))) for name in ("needed", "free"))
        return (
            f"the cache needs {needed} GiB of the host's memory and {free} are free.",
            "Lower --kv-cache-memory-bytes (VLLM_CPU_KVCACHE_SPACE), or end what else uses the memory.",
        )
    return _out_of_memory(refusal, seen.engine)


def _too_small(figures: Mapping[str, float], seen: Observation, plan: Plan | None) -> tuple[str, str]:
    length, fits = figures.get("length", 0), figures.get("fits", 0)
    needed, available = figures.get("needed", 0), figures.get("available", 0)
    words = (
        f"one request of {length:,.0f} tokens needs {gib(int(needed))} GiB of cache and {gib(int(available))} are there"
    )
    if needed - available < PRINTED and fits:  # both round to the same figure, or to nothing
        words = f"one request may have {length:,.0f} tokens and the cache holds one of {fits:,.0f}"
    shorter = f"lower --max-model-len to {fits:.0f}" if fits else "lower --max-model-len"
    fixed = _fixed_pool(seen)
    if fixed is not None:
        name, value = flag(fixed[0]), fixed[1]
        enough = ""
        if fixed[0] == "kv_cache_memory_bytes":
            enough = f" to {gib(int(needed))}GiB or more" if needed > available else ""
        elif fits and isinstance(value, int):
            enough = f" to {ceil(value * length / fits)} or more"
        return (
            f"{words}: {name} {value} fixes the pool, so that no fraction helps.",
            f"Leave {name} out or raise it{enough}, or {shorter}.",
        )
    total, fraction = _card_bytes(seen, plan), _fraction(seen)
    wanted = ceil(100 * (fraction + (needed - available) / total)) / 100 if total and fraction else 0.0
    raise_it = (
        f"Raise {UTILIZATION}{f' to {wanted:g} or more' if wanted > fraction else ''} (an allocation that fails while "
        f"serving would ask for the opposite), {shorter}, use --kv-cache-dtype fp8 or more GPUs."
    )
    if wanted > HIGHEST_FRACTION:  # the context needs the rest
        raise_it = (
            f"A higher {UTILIZATION} is not enough (it would have to be {wanted:g}): {shorter}, use --kv-cache-dtype "
            "fp8 or more GPUs."
        )
    return f"{words}, short by {gib(int(needed - available))}.", raise_it


def _card_bytes(seen: Observation, plan: Plan | None) -> float:
    """Return the memory of the card as the engine sees it, 0 where neither the log nor the plan tells."""
    figure = seen.smallest("total")
    if figure is not None:
        return figure.value
    if plan is None or seen.on_cpu:
        return 0.0
    gpu = plan.document["gpu"]
    return float(gpu["engine_total_bytes"] or gpu["memory_bytes"])


def _fraction(seen: Observation) -> float:
    """Return the fraction that the engine runs with: printed, typed, or its version's own; 0 where none is known."""
    figure = seen.largest("gpu_memory_utilization")
    if figure is not None:
        return figure.value
    said = seen.flags.get("gpu_memory_utilization")
    if said is not None and isinstance(said.value, float):
        return said.value
    try:
        return facts.rules(facts.parse_version(str(seen.version.value))).utilization if seen.version else 0.0
    except InputError:
        return 0.0


def _held_by_others(figures: Mapping[str, float]) -> float:
    """Return the bytes of a card that others hold, as torch's error tells; 0 where it does not or they are few."""
    if not {"capacity", "unused", "own"} <= figures.keys():
        return 0.0
    others = figures["capacity"] - figures["unused"] - figures["own"]
    return others if others > OTHER_PROCESS else 0.0


def _out_of_memory(refusal: Refusal, engine: str) -> tuple[str, str]:
    """Return what an allocation that failed means; it depends on how far the engine had come."""
    if engine == "llama.cpp":
        return "a buffer has no place on the device.", "Lower -ngl, -c, -np or -ub, or let --fit choose them."
    fraction = "--mem-fraction-static" if engine == "sglang" else UTILIZATION
    others = _held_by_others(refusal.figures)
    if others:
        return (
            f"{gib(int(others))} GiB of the card belong to other processes.",
            f"Find them with nvidia-smi and end them, or leave them room: a lower {fraction}.",
        )
    if engine == "sglang" and refusal.phase in (CAPTURING, SERVING):
        return "the pool took what activations need.", "Lower --mem-fraction-static or --chunked-prefill-size."
    if refusal.phase == UNSEEN:
        either = f"If it was serving, lower {fraction}; if it was loading, use more GPUs (-tp) or smaller weights."
        return "the log does not show how far the engine had come.", f"{either} The log from its start on tells."
    if refusal.phase == LOADING:
        return "the weights do not fit.", "Use more GPUs (-tp) or smaller weights; no fraction helps."
    if refusal.phase == PROFILING and "requests" in refusal.figures:
        return (
            f"sampling for {refusal.figures['requests']:,.0f} requests at once does not fit beside the weights.",
            "Lower --max-num-seqs, or use more GPUs (-tp) or smaller weights.",
        )
    if refusal.phase == PROFILING:
        return (
            "the largest batch does not fit beside the weights.",
            "Lower --max-num-batched-tokens, or limit images with --limit-mm-per-prompt.",
        )
    if refusal.phase == CAPTURING:
        return (
            "the pool left no room for CUDA graphs and buffers.",
            f"Lower {UTILIZATION} by some hundredths, or --max-num-seqs, or use --enforce-eager.",
        )
    return (
        "the pool took what activations and other processes need.",
        f"Lower {UTILIZATION} (a pool too small at start-up would ask for the opposite) or --max-num-batched-tokens.",
    )


# -- the start-up


def _settings(plan: Plan | None, differing: Sequence[Difference]) -> Iterator[Finding]:
    for item in differing:
        if item.name == "engine_version":
            words, changed = _version_words(item)
            yield Finding("version", words, _again(plan, item), drift=changed, place=item.place)
            continue
        name = flag(item.name)
        if item.missing:
            runs = "" if item.actual is None or isinstance(item.actual, bool) else f", which runs with {item.actual}"
            words = f"{typed(item.name, item.plan)} of the plan is missing on the server{runs}."
        else:
            words = f"{item.name}: the plan has {'none' if item.plan is None else item.plan}, the server {item.actual}."
        yield Finding(
            f"setting:{item.name}",
            words,
            f"Start the server with {typed(item.name, item.plan)}, or plan again with its own."
            if item.plan is not None
            else f"Start the server without {name}, or plan again with it.",
            drift=True,
            place=item.place,
        )


def _version_words(item: Difference) -> tuple[str, bool]:
    """Return what changed between the plan's version and the server's, and whether anything did."""
    words = f"The plan is for vLLM {item.plan}, the server runs {item.actual}"
    try:
        old, new = (facts.rules(facts.parse_version(str(text))) for text in (item.plan, item.actual))
    except InputError:
        return f"{words}, and the rules of one of them are not known: the terms may differ for that alone.", True
    changed = []
    if old.graphs_in_budget != new.graphs_in_budget:
        inside = "counts" if new.graphs_in_budget else "does not count"
        changed.append(f"it {inside} CUDA graphs into the budget")
    if old.utilization != new.utilization:
        changed.append(f"its default {UTILIZATION} is {new.utilization:g} in place of {old.utilization:g}")
    if old.reserve_block != new.reserve_block:
        changed.append("its start-up check leaves a block out" if new.reserve_block else "its check counts every block")
    if old.async_scheduling != new.async_scheduling:
        changed.append("it schedules a step ahead" if new.async_scheduling else "it does not schedule ahead")
    if old.batch_defaults != new.batch_defaults:
        changed.append("its batch limits are others on large cards")
    if not changed:
        return f"{words}; the rules that are known to move memory are the same.", False
    return f"{words}: {'; '.join(changed)}.", True


def _again(plan: Plan | None, item: Difference) -> str:
    try:
        facts.parse_version(str(item.actual))
    except InputError:
        return "Nothing can be planned for it; without a plan, kvbudget check --log FILE says what it took."
    model = plan.document["model"]["name"] if plan is not None else "MODEL"
    return f"Plan again: kvbudget fit {model} … --engine-version {item.actual} --save-plan FILE."


def _other_process(plan: Plan | None, seen: Observation) -> Iterator[Finding]:
    """Name memory that was taken before the engine started."""
    total, free = seen.smallest("total"), seen.smallest("free_at_start")
    if total is None or free is None or plan is None:
        return
    try:
        context = next(
            line["high_bytes"] for line in plan.budget["ranks"][0]["lines"] if line["name"] == "outside_budget"
        )
    except (StopIteration, KeyError, IndexError, TypeError):
        return
    taken = total.value - free.value
    if taken > context + OTHER_PROCESS:
        yield Finding(
            "other_process",
            f"{gib(int(taken))} GiB of the card were taken when the engine started, where a CUDA context takes "
            f"{gib(int(context))} at the most: another process is on it.",
            f"Find it with nvidia-smi; the budget must leave it room: {UTILIZATION} below "
            f"{int(100 * free.value / total.value) / 100:g}.",
            drift=True,
            place=str(free.place),
        )


def _smallest_rank(seen: Observation) -> Iterator[Finding]:
    """Name the rank that decides for all where they differ."""
    pools = seen.terms.get("available_kv_cache_memory", ())
    if len(pools) < 2:  # noqa: PLR2004 - one rank is the smallest and the largest
        return
    low, high = (end(pools, key=lambda figure: figure.value) for end in (min, max))
    if high.value - low.value < UNEVEN:
        return
    yield Finding(
        "smallest_rank",
        f"{low.place.process or 'One rank'} has {gib(int(low.value))} GiB for the cache and "
        f"{high.place.process or 'another'} {gib(int(high.value))}: the smallest decides for all.",
        "Pipeline stages differ by their layers (VLLM_PP_LAYER_PARTITION moves them); equal ranks differ by what else "
        "is on their card.",
        drift=False,
        place=str(low.place),
    )


def _terms(plan: Plan | None, rows: Sequence[Row], differing: Sequence[Difference]) -> Iterator[Finding]:
    """Name terms outside their interval."""
    if plan is None:
        return
    explained = {item.name for item in differing}
    wrong = {row.name for row in rows if row.ok is False}
    for row in rows:
        meaning = _TERMS.get(row.name)
        if meaning is None or row.ok is not False or not row.plan or row.actual is None:
            continue
        if row.name == "weights + non-torch" and "weights" in wrong:  # the sum says it again
            continue
        figures = f"{gib(int(row.actual))} GiB, {gib(int(row.low or 0))}–{gib(int(row.high or 0))} planned"
        why, change = meaning(row.actual - row.plan, row.actual / row.plan, explained)
        name = row.name.partition(",")[0].replace(" + ", "_").replace(" ", "_").replace("-", "_").lower()
        yield Finding(name, f"{row.name.partition(',')[0]}: {figures}: {why}.", change, drift=True, place=row.place)


PER_TOKEN = 0.02
"""By how much the bytes of a token must differ to be another cache."""


NOT_THE_POOL = frozenset(
    {"data_parallel_size", "max_model_len", "enable_prefix_caching", "block_size", "kv_cache_dtype"}
)
"""Choices that change what the pool is used for and not how many bytes it has."""

ANOTHER_CACHE = frozenset({"kv_cache_dtype", "tensor_parallel_size", "pipeline_parallel_size"})
"""Choices that change the bytes of a token."""


def _pool(plan: Plan | None, rows: Sequence[Row], explained: set[str]) -> Iterator[Finding]:
    """Name a cache that is not as planned where no term and no choice says why."""
    if plan is None:
        return
    by_name = {row.name: row for row in rows if row.plan is not None and row.actual is not None}
    pool, tokens = by_name.get("available KV"), by_name.get("KV size") or by_name.get("KV blocks")
    if pool is not None and pool.ok is False and not explained - NOT_THE_POOL:
        more = (pool.actual or 0) - (pool.plan or 0)
        side = "more" if more > 0 else "less"
        yield Finding(
            "pool",
            f"The pool has {gib(int(abs(more)))} GiB {side} than planned, and no figure in the log says where they "
            f"{'come from' if more > 0 else 'went'}.",
            "Start it once with VLLM_LOGGING_LEVEL=DEBUG, which prints the parts; another process on the card shows in "
            "nvidia-smi.",
            drift=True,
            place=pool.place,
        )
    if tokens is None or tokens.ok is not False:
        return
    if pool is None or not pool.actual or not tokens.actual or tokens.name != "KV size":
        if not explained:
            yield Finding(
                "kv_size",
                f"The cache holds {tokens.actual:,.0f} {tokens.unit}, {tokens.plan:,.0f} were planned.",
                "Compare --gpu-memory-utilization, --kv-cache-dtype and --max-model-len with the plan's.",
                drift=True,
                place=tokens.place,
            )
        return
    seen, planned = pool.actual / tokens.actual, (pool.plan or 0) / (tokens.plan or 1)
    if planned and abs(seen / planned - 1) > PER_TOKEN and not explained & ANOTHER_CACHE:
        yield Finding(
            "bytes_per_token",
            f"A token takes {seen:,.0f} B of the pool, {planned:,.0f} were planned: another cache, not another size.",
            "Compare --kv-cache-dtype, -tp, the model and, where layers differ, the engine's version.",
            drift=True,
            place=tokens.place,
        )


def _card(more: float, ratio: float, explained: set[str]) -> tuple[str, str]:  # noqa: ARG001 - one signature
    return "the card is another one", "Plan again with its --gpu or --gpu-memory."


def _weights(more: float, ratio: float, explained: set[str]) -> tuple[str, str]:  # noqa: ARG001
    other = ratio > DOUBLE or ratio < 1 / DOUBLE
    words = "another precision or layout is loaded" if other else "another checkpoint, or another kernel's copy"
    return words, "Compare --dtype, --quantization, -tp and the model's revision with the plan's."


def _consumed(more: float, ratio: float, explained: set[str]) -> tuple[str, str]:  # noqa: ARG001
    """Since 0.27 the engine prints the two as one."""
    if more > 0:
        return (
            "other weights, communication buffers, or another process that grew meanwhile",
            "Compare the row of the weights with the plan's; see who is on the card with nvidia-smi.",
        )
    return "other weights or fewer buffers than estimated", "Compare the row of the weights with the plan's."


def _graphs(more: float, ratio: float, explained: set[str]) -> tuple[str, str]:  # noqa: ARG001
    if more > 0:
        return (
            "more of them were captured, or larger ones",
            f"Lower {UTILIZATION} where memory runs short while serving, or capture fewer sizes (--max-num-seqs).",
        )
    return "fewer of them were captured", f"{UTILIZATION} may be raised by as much."


def _activations(more: float, ratio: float, explained: set[str]) -> tuple[str, str]:  # noqa: ARG001
    known = explained & {"max_num_batched_tokens", "max_num_seqs"}
    return (
        "the batch limits differ" if known else "the profile run is another than estimated",
        "--max-num-batched-tokens and --limit-mm-per-prompt move it; --learn remembers what was seen here.",
    )


def _non_torch(more: float, ratio: float, explained: set[str]) -> tuple[str, str]:  # noqa: ARG001
    return (
        "communication buffers, or another process that grew meanwhile" if more > 0 else "fewer buffers than estimated",
        "See who is on the card with nvidia-smi; --learn remembers what was seen here.",
    )


_TERMS: Mapping[str, Callable[[float, float, set[str]], tuple[str, str]]] = {
    "GPU memory": _card,
    "weights": _weights,
    "weights + non-torch": _consumed,
    "CUDA graphs": _graphs,
    "activations, peak": _activations,
    "activations + graphs": _activations,
    "non-torch": _non_torch,
}
"""What a term outside its interval means: (bytes more than planned, actual over planned, choices that differ)."""
