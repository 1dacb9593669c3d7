"""A sweep for people and for scripts: one row a point."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget import __version__
from kvbudget.budgeting import SCHEMA
from kvbudget.present.document import Block, Document, Table, as_csv, as_markdown, as_text
from kvbudget.simulation.sweep import Figures

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.simulation.sweep import Option, Row

SHORT_NAMES = {
    "gpu": "GPU",
    "tensor_parallel_size": "TP",
    "pipeline_parallel_size": "PP",
    "data_parallel_size": "DP",
    "kv_cache_dtype": "KV type",
    "rate": "req/s",
}
"""Columns whose heading is not the option's own name."""

_HEADER = ("preempted", "running", "waiting", "KV", "TTFT s", "ITL ms", "answers/s", "tokens/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A sweep, as it is shown.

    Args:
        place: Where it ran, in words.
        workload: What arrived at the first point, in words.
        clock: Where the timing comes from, in words.
        rows: What came of each point.
        warnings: What makes it less certain, a sentence each.
        assumptions: What nobody said.
    """

    place: str
    workload: str
    clock: str
    rows: Sequence[Row]
    warnings: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def swept_text(s: Swept, width: int) -> str:
    """Return the sweep as text."""
    return as_text(_document(s), width)


def swept_markdown(s: Swept) -> str:
    """Return the sweep as Markdown."""
    return as_markdown(_document(s))


def swept_csv(s: Swept) -> str:
    """Return the sweep as CSV: the options of a point, then its figures, named as in the JSON."""
    names = _names(s.rows)
    none = (None,) * len(Figures._fields)
    return as_csv(
        (*names, *Figures._fields, "refusal"),
        ((*(value for _, value in row.options), *(row.figures or none), row.refusal) for row in s.rows),
    )


def swept_json(s: Swept) -> str:
    """Return the sweep as the JSON object of schema 1."""
    found = {
        "schema": SCHEMA,
        "kvbudget": __version__,
        "place": s.place,
        "clock": s.clock,
        "rows": [row.to_dict() for row in s.rows],
        "warnings": list(s.warnings),
        "assumptions": list(s.assumptions),
    }
    return json.dumps(found, indent=1) + "\n"


def _names(rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(name for name, _ in rows[0].options) if rows else ()


def _document(s: Swept) -> Document:
    names = _names(s.rows)
    header = (*(SHORT_NAMES.get(name, name) for name in names), *_HEADER)
    table = Table(
        header=header,
        rows=tuple((*(_said(value) for _, value in row.options), *_cells(row)) for row in s.rows),
        right=frozenset(range(len(header))),
    )
    calm = sum(row.figures is not None and not row.figures.preemptions for row in s.rows)
    refusals = dict.fromkeys(row.refusal for row in s.rows if row.refusal)
    return Document(
        title=f"{calm} of {len(s.rows)} points without preemptions   {s.place}",
        lead=(f"The first point: {s.workload}",),
        blocks=(
            Block(
                table=table,
                lines=("Running, waiting, KV, TTFT and ITL are 95th percentiles.", f"Timing from {s.clock}."),
            ),
            Block(
                lines=(
                    *(f"- {text}" for text in refusals),
                    *(f"! {text}" for text in (*_unanswered(s.rows), *s.warnings)),
                    *(f"assumed: {text}" for text in s.assumptions),
                )
            ),
        ),
    )


def _unanswered(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return that requests of some points get no answer: those whose prompts are too long, or fail."""
    shares = [1 - row.figures.completed / row.figures.requests for row in rows if row.figures and row.figures.requests]
    some = [share for share in shares if share]
    if not some:
        return ()
    return (f"At {len(some):,} of the points requests are refused, up to {max(some):.1%} of them (see `simulate`).",)


def _said(value: Option) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _cells(row: Row) -> tuple[str, ...]:
    f = row.figures
    if f is None:
        return ("refused", *("",) * (len(_HEADER) - 1))
    return (
        f"{f.preempted_share:.1%}",
        f"{f.running_p95:,.0f}",
        f"{f.waiting_p95:,.0f}",
        f"{f.kv_used_p95:.0%}",
        f"{f.ttft_p95_s:,.2f}",
        f"{f.itl_p95_s * 1000:.1f}",
        f"{f.requests_per_s:,.2f}",
        f"{f.output_tokens_per_s:,.0f}",
    )
