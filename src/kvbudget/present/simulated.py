"""A simulation for people: one table of spreads, curves of blocks, the knee, what to try."""

from __future__ import annotations

import csv
import io
from operator import itemgetter
from typing import TYPE_CHECKING

from kvbudget.present.document import Block, Document, Table, as_text
from kvbudget.simulation.search import LEAST_LOAD, MOST_LOAD

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvbudget.simulation.answer import Answer
    from kvbudget.simulation.results import Stretch
    from kvbudget.simulation.summary import Spread, Summary

BARS = "▁▂▃▄▅▆▇█"
CURVE_WIDTH = 40


def simulated_document(a: Answer, *, curves: bool = True) -> Document:
    """Return the report of a simulation; `curves` adds lines of blocks for text."""
    s = a.summary
    rows = (
        ("running", *_counts(s.running), _of_limit(a)),
        ("waiting", *_counts(s.waiting), ""),
        ("KV used", *(f"{value:.0%}" for value in s.kv_used[:4]), ""),
        *(_latencies(a) if s.completed else ()),
    )
    table = Table(header=("", "p50", "p95", "p99", "max", ""), rows=rows, right=frozenset({1, 2, 3, 4}))
    blocks = [Block(table=table, lines=(_preemptions(a),))]
    if curves and s.completed:
        blocks.append(Block(lines=tuple(_curves(a))))
    blocks.append(Block(lines=tuple(_answers(a))))
    blocks.append(Block(lines=(*(f"! {text}" for text in a.warnings), *(f"assumed: {text}" for text in a.assumptions))))
    behind = (
        f"More comes in than it can do: {a.summary.backlog:,} requests had not begun when the last one came.",
    ) * a.summary.falls_behind
    return Document(title=_title(a), lead=(a.workload, *behind), blocks=tuple(blocks))


def _latencies(a: Answer) -> tuple[tuple[str, ...], ...]:
    s = a.summary
    return (
        ("time to first token, s", *_times(s.ttft_s), _bounds(a, lambda each: each.ttft_s.p95, "{:,.2f}")),
        (
            "time between tokens, ms",
            *(f"{value * 1000:.1f}" for value in s.itl_s[:4]),
            _bounds(a, lambda each: each.itl_s.p95 * 1000, "{:,.1f}"),
        ),
        ("whole answer, s", *_times(s.e2e_s), _bounds(a, lambda each: each.e2e_s.p95, "{:,.2f}")),
    )


def simulated_text(a: Answer, width: int) -> str:
    """Return the report as text."""
    return as_text(simulated_document(a), width)


def simulated_csv(a: Answer) -> str:
    """Return the curves as CSV, one row a stretch of time."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("from_s", "running", "waiting", "used_blocks", "preemptions"))
    seconds = a.summary.curves.seconds
    for number, stretch in enumerate(a.summary.curves.stretches):
        writer.writerow((f"{number * seconds:g}", *stretch))
    return out.getvalue()


def _title(a: Answer) -> str:
    s = a.summary
    share = s.preempted_requests / s.requests if s.requests else 0
    if s.refused == s.requests:
        return f"REFUSES   {_engines(a)}{a.place}: no request leaves room for an answer"
    words, failed = a.settings.words, s.unfinished
    word = "FAILS" if failed else words.verb if s.preemptions else "QUEUES" if s.waiting.p95 > 0 else "KEEPS UP"
    detail = (
        f"{share:.1%} of requests lose their {words.held}" if s.preemptions else f"no request loses its {words.held}"
    )
    if failed:
        detail = f"{failed / s.requests:.1%} of requests end with an error"
    return f"{word}   {_engines(a)}{a.place}: {detail}"


def _engines(a: Answer) -> str:
    if a.fleet.engines == 1:
        return ""
    replicas, routing, size = a.fleet
    each = f" of {size} engines each" if size > 1 else ""
    return f"{replicas:,} replicas{each} ({routing}) of " if replicas > 1 else f"{size} data parallel engines of "


def _bounds(a: Answer, of: Callable[[Summary], float], form: str) -> str:
    """Return between which figures the 95th percentile lies; a queue may be worse off where steps are shorter."""
    if a.bounds is None:
        return ""
    figures = [of(each) for each in (a.summary, *a.bounds)]
    return f"p95 {form.format(min(figures))}–{form.format(max(figures))}"


def _counts(values: Spread) -> tuple[str, ...]:
    return tuple(f"{value:,.0f}" for value in values[:4])


def _times(values: Spread) -> tuple[str, ...]:
    return tuple(f"{value:,.2f}" for value in values[:4])


def _of_limit(a: Answer) -> str:
    limit = a.settings.seats
    return f"of {a.settings.words.limit} {limit:,}" + (": reached" if a.summary.running.max >= limit else "")


def _preemptions(a: Answer) -> str:
    s = a.summary
    done = f"{s.completed:,} of {s.requests:,} requests answered in {s.simulated_s:,.0f} s and {s.steps:,} steps"
    loss = f"{a.settings.words.loss}s"
    longest = f"no prompt, or one of more than {a.settings.max_prompt_len:,} tokens"
    refused = f"; {s.refused:,} refused ({longest})" if s.refused else ""
    if s.unfinished:
        refused += f"; {s.unfinished:,} ended with an error when the cache was full"
    if s.prefix_hit_rate:
        refused += f"; {s.prefix_hit_rate:.0%} of the prompts' tokens found in the cache"
    if not s.preemptions:
        return f"{done}{refused}; no {loss}."
    return (
        f"{done}{refused}; {s.preemptions:,} {loss} ({s.preemptions / s.simulated_s:.2f}/s) of "
        f"{s.preempted_requests:,} requests, the worst {_times_over(s.worst_preemptions)}; "
        f"{s.recomputed_tokens / s.scheduled_tokens:.1%} of all tokens were computed twice."
    )


def _times_over(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _curves(a: Answer) -> list[str]:
    stretches = a.summary.curves.stretches
    usable = a.settings.usable_blocks
    lines = [
        f"KV used  {_sparkline(stretches, lambda s: s.used_blocks / usable, 1)}",
        f"running  {_sparkline(stretches, lambda s: s.running, a.settings.seats)}",
    ]
    loss = a.settings.words.loss
    for name, field in (("waiting", 1), (loss if len(loss) <= len("waiting") else f"{loss[:7]}.", 3)):
        most = max((stretch[field] for stretch in stretches), default=0)
        if most:
            lines.append(f"{name:8} {_sparkline(stretches, itemgetter(field), most)} up to {most:,}")
    return lines


def _sparkline(stretches: Sequence[Stretch], of: Callable[[Stretch], float], most: float) -> str:
    """Return the highest value of each of some equal parts as a character."""
    count = min(CURVE_WIDTH, len(stretches))
    line = ""
    for i in range(count):
        part = stretches[i * len(stretches) // count : (i + 1) * len(stretches) // count]
        level = max(of(stretch) for stretch in part) / most if most else 0
        line += BARS[min(len(BARS) - 1, int(level * len(BARS)))]
    return line


def _answers(a: Answer) -> list[str]:
    lines = []
    knee = a.knee
    if knee is not None:
        for words, load in (
            ("The cache is 90 % full (p95) from", knee.full),
            ("Somebody waits from", knee.waiting),
            (f"{a.settings.words.loss.capitalize()}s start at", knee.preemptions),
        ):
            if load is not None:
                lines.append(f"{words} {_load(a, load)}{' or less' if load == LEAST_LOAD else ''}.")
        if knee == (None, None, None):
            lines.append(f"No pressure up to {_load(a, MOST_LOAD)}.")
    if a.calm is not None:
        limit, summary = a.calm
        gone = "errors" if a.summary.unfinished else f"{a.settings.words.loss}s"
        lines.append(
            f"Try {_limit_option(a)} {limit}: no {gone}; waiting p95 {summary.waiting.p95:,.0f}, first token p95 "
            f"{summary.ttft_s.p95:,.2f} s."
        )
    if a.counted:
        lines.append(_enough(a))
    if a.fleet.engines > 1:
        lines.append("Running, waiting and KV are those of one engine; times are those of all requests.")
    if a.left_out:
        lines.append("Where pressure begins was not searched: it takes some twenty such simulations; --knee does it.")
    error = f"; each step ±{a.timing_error:.0%}" if a.timing_error else ""
    lines.append(f"Timing from {a.timing}{error}.")
    return lines


def _enough(a: Answer) -> str:
    count = a.fleet.replicas
    if a.target_ttft_s is None:
        held = f"no request loses its {a.settings.words.held}"
    else:
        held = f"the first token comes within {a.target_ttft_s:g} s (p95)"
    return f"{count:,} {'replica is' if count == 1 else 'replicas are'} enough: {held}."


def _limit_option(a: Answer) -> str:
    return "--" + a.settings.words.limit.replace("_", "-")


def _load(a: Answer, load: float) -> str:
    times = f"{load:.2g} times this load"
    return f"about {a.rate * load:.3g} requests a second ({times})" if a.rate else f"about {times}"
