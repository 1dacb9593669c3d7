"""A budget as one page: the report's words and tables, with the bar of the GPU's memory.

It stands alone and runs nothing, as the page of a grid does (`kvbudget.present.html`), whose frame and style it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget import __version__
from kvbudget.present.html import MAX_NAME, esc, memory_bar, page
from kvbudget.present.report import budget_document, budget_words, gpu_words
from kvbudget.suggestions import smallest_changes

if TYPE_CHECKING:
    from kvbudget.budgeting import Budget
    from kvbudget.present.document import Block, Table


def budget_page(b: Budget) -> str:
    """Return the page of a budget; it says the same as the text."""
    document = budget_document(b, smallest_changes(b.deployment, b))
    rank = b.smallest
    parts = [(line.name, line.takes_bytes) for line in rank.lines]
    total = b.deployment.card.memory_bytes
    bar = memory_bar(gpu_words(b, rank), budget_words(b, rank), parts, total)
    body = [
        f"<header><p class=kind>{esc(b.deployment.model.name[:MAX_NAME])}</p><h1>{esc(document.title)}</h1>",
        *(f"<p>{esc(line)}</p>" for line in document.lead),
        f"</header><main><section>{bar}</section>",
        *map(section, document.blocks),
        f"</main><footer><p>kvbudget {__version__}. GiB is 2<sup>30</sup> bytes.</p></footer>",
    ]
    return page(document.title, "".join(body))


def section(block: Block) -> str:
    """Return a block of a report as a section of a page."""
    heading = f"<h2>{esc(block.heading)}</h2>" if block.heading else ""
    table = _table(block.table, block.heading or "Figures") if block.table is not None else ""
    lines = f"<ul>{''.join(f'<li>{esc(line)}</li>' for line in block.lines)}</ul>" if block.lines else ""
    return f"<section{'' if table else ' class=notes'}>{heading}{table}{lines}</section>"


def _table(table: Table, label: str) -> str:
    """Return a table that scrolls inside itself; columns of words are aligned to the left."""

    def word(i: int) -> str:
        return "" if i in table.right else " class=word"

    heads = "".join(f"<th scope=col{word(i)}>{esc(name)}</th>" for i, name in enumerate(table.header))
    rows = "".join(
        f"<tr><th scope=row>{esc(first)}</th>"
        + "".join(f"<td{word(i)}>{esc(cell)}</td>" for i, cell in enumerate(rest, 1))
        + "</tr>"
        for first, *rest in table.rows
    )
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="{esc(label)}"><table>'
        f"{'' if table.bare else f'<thead><tr>{heads}</tr></thead>'}<tbody>{rows}</tbody></table></div>"
    )
