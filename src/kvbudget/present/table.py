"""A budget as CSV, for spreadsheets: a row for each line of each distinct GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.present.document import as_csv

if TYPE_CHECKING:
    from kvbudget.budgeting import Budget

HEADER = ("rank", "name", "needs_bytes", "takes_bytes", "low_bytes", "high_bytes", "basis", "source")
"""The columns, named as in the JSON; scripts rely on them."""


def budget_csv(b: Budget) -> str:
    """Return the lines of all distinct GPUs, in bytes; the takes of a rank add up to the GPU's memory."""
    return as_csv(
        HEADER,
        (
            (
                rank.rank,
                line.name,
                line.needs_bytes,
                line.takes_bytes,
                line.low_bytes,
                line.high_bytes,
                line.basis.value,
                line.source,
            )
            for rank in b.ranks
            for line in rank.lines
        ),
    )
