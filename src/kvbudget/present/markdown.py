"""A budget as Markdown, for tickets and pull requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.present.document import as_markdown
from kvbudget.present.report import budget_document
from kvbudget.suggestions import smallest_changes

if TYPE_CHECKING:
    from kvbudget.budgeting import Budget


def budget_markdown(b: Budget) -> str:
    """Return the report of a budget with its tables; it says the same as the text, without the bar."""
    return as_markdown(budget_document(b, smallest_changes(b.deployment, b)))
