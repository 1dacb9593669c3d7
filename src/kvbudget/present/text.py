"""A budget as text for a terminal: the verdict, a bar of the GPU's memory, and the tables of the report."""

from __future__ import annotations

import textwrap
from itertools import groupby
from typing import TYPE_CHECKING

from kvbudget.budgeting import DOES_NOT_FIT, FITS, LOADED, TIGHT
from kvbudget.present.document import WIDTH, Document, as_text
from kvbudget.present.report import NAMES, budget_document, budget_words, gpu_words, split_lines, verdict_words
from kvbudget.suggestions import smallest_changes
from kvbudget.units import gib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.budgeting import Budget, Rank

NARROWEST = 72
"""Columns below which tables cannot be read."""

_ASCII = str.maketrans("█▓▒░·│┘└–×÷≤≥±…", "#%=+.|''-x/<>~.")

_COLORS = {FITS: "32", TIGHT: "33", DOES_NOT_FIT: "31"}
_PARTS_COLORS = {"█": "34", "▓": "36", "▒": "32", "░": "32", "·": "2", "│": "1"}


def plain(text: str) -> str:
    """Return the text in ASCII, character for character, for outputs that cannot hold more."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def budget_text(b: Budget, width: int = WIDTH, *, color: bool = False) -> str:
    """Return the report of a budget.

    Args:
        b: The budget.
        width: Columns; no line is longer.
        color: Add ANSI colours; they never carry a meaning of their own.
    """
    width = max(width, NARROWEST)
    document = budget_document(b, smallest_changes(b.deployment, b))
    head = as_text(Document(title=document.title, lead=document.lead), width)
    body = as_text(Document(title="", blocks=document.blocks), width).lstrip("\n")
    bar = _bar(b, b.smallest, width)
    if color:
        word = verdict_words(b)
        head = head.replace(word, f"\x1b[1;{_COLORS[b.verdict]}m{word}\x1b[0m", 1)
        bar = [_colored(line) for line in bar]
    return f"{head}\n{chr(10).join(bar)}\n\n{body}"


def _colored(line: str) -> str:
    """Return a line with the characters of the bar in their colours, runs of one at once."""
    runs = ("".join(run) for _, run in groupby(line))
    return "".join(f"\x1b[{_PARTS_COLORS[run[0]]}m{run}\x1b[0m" if run[0] in _PARTS_COLORS else run for run in runs)


def _bar(b: Budget, rank: Rank, width: int) -> list[str]:
    """Return a heading, the bar, the mark of the budget's end under it, and the legend with the figures."""
    inside, _ = split_lines(rank)
    needs = {line.name: line.needs_bytes for line in inside}
    total = b.deployment.card.memory_bytes
    weights = sum(needs.get(name, 0) for name in LOADED)
    cache = needs["kv_cache"]
    working = sum(needs.values()) - weights - cache
    given = rank.given_pool[0] if rank.given_pool else None
    budget, limit = (total, "GPU") if given else (rank.budget_bytes, "budget")
    pool = max(given or 0, cache)
    over = weights + working + pool - budget
    more = pool - cache if given else max(0, -over)
    parts = [
        ("█", ", ".join(NAMES.get(name, name) for name in LOADED if name in needs), weights),
        ("▓", "activations, graphs, non-torch", working),
        ("▒", "KV, one request", cache),
        ("░", "KV, more requests", more),
    ]
    if over <= 0:
        parts.append(("·", "outside", total - budget if not given else -over))
    scale = max(total, weights + working + pool)
    line = _cells(parts, width - 1, scale)
    end = round(budget / scale * (width - 1))
    line = f"{line[:end]}│{line[end:]}"
    words = f"{limit} ends: over by {gib(over)}" if over > 0 else f"{limit} ends"
    legend = [f"{char} {name} {gib(size)}" for char, name, size in parts if size]
    return [
        *textwrap.wrap(f"{gpu_words(b, rank)}: {budget_words(b, rank)}", width),
        line,
        _mark(words, end, width),
        *_flow(legend, width),
    ]


def _cells(parts: Sequence[tuple[str, str, int]], cells: int, scale: int) -> str:
    """Return a character a cell; each part that is there has one at least, and rounding never adds up."""
    drawn, done = "", 0
    for char, _, size in parts:
        done += size
        end = round(done / scale * cells)
        drawn += char * max(end - len(drawn), 1 if size else 0)
    return drawn[:cells]


def _mark(words: str, column: int, width: int) -> str:
    if column + 2 + len(words) <= width:
        return f"{' ' * column}└ {words}"
    return f"{words} ┘".rjust(column + 1)


def _flow(items: Sequence[str], width: int) -> list[str]:
    """Return items side by side, as many on a line as have room."""
    lines = [""]
    for item in items:
        joined = f"{lines[-1]}   {item}" if lines[-1] else item
        if len(joined) <= width:
            lines[-1] = joined
        else:
            lines.append(item)
    return lines
