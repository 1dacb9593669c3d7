"""A small document of tables and sentences, and its two faces: text of a given width, and Markdown.

Verbs say what is to be read; how it is laid out is decided here once. Text that came from outside (the name of a model)
is made harmless: no control characters on a terminal, no markup in Markdown.
"""

from __future__ import annotations

import csv
import io
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WIDTH = 80
GAP = "  "
_NARROWEST = 16
"""A column that wraps is never made narrower than this, or it cannot be read."""

_UNDER = "    "
"""Where the last column starts when it is set under its row."""

Row = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of equal length under a header.

    Args:
        header: The columns' names.
        rows: Their texts.
        right: Columns aligned to the right.
        bare: Leave the header out in text; Markdown always has one.
        total: The last row is a sum, set off by a rule.
    """

    header: Row
    rows: tuple[Row, ...]
    right: frozenset[int] = frozenset()
    bare: bool = False
    total: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Something to read in one go: a heading, a table, sentences, a command to paste; each may be absent."""

    heading: str = ""
    table: Table | None = None
    lines: tuple[str, ...] = ()
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A title with the answer, and blocks that give the rest."""

    title: str
    lead: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()


def clean(text: str) -> str:
    """Return `text` without what a terminal would act on: every unprintable character becomes a question mark."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def as_text(document: Document, width: int = WIDTH) -> str:
    """Return the document as plain text, at most `width` columns wide where words allow it."""
    lines = [*_wrapped(document.title, width), *_all_wrapped(document.lead, width)]
    for block in document.blocks:
        lines.append("")
        if block.heading:
            lines += _wrapped(block.heading, width)
        if block.table is not None:
            lines += table_lines(block.table, width)
        lines += _all_wrapped(block.lines, width)
        lines += command_lines(block.command, width)
    return "\n".join(lines) + "\n"


def as_markdown(document: Document) -> str:
    """Return the document as Markdown."""
    parts = [f"**{_escaped(document.title)}**"]
    if document.lead:
        parts.append("  \n".join(map(_escaped, document.lead)))
    for block in document.blocks:
        if block.heading:
            parts.append(f"**{_escaped(block.heading)}**")
        if block.table is not None:
            parts.append(_markdown_table(block.table))
        if block.lines:
            parts.append("\n".join(f"- {_escaped(line)}" for line in block.lines))
        if block.command:
            parts.append("\n".join(f"    {line}" for line in command_lines(block.command, WIDTH)))
    return "\n\n".join(parts) + "\n"


def as_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV with a header; None is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in row] for row in rows)
    return out.getvalue()


def table_lines(table: Table, width: int = WIDTH) -> list[str]:
    """Return a table as lines of text.

    A last column that does not fit is wrapped under itself, or set under its row where too little room is left.
    """
    rows = [[clean(cell) for cell in row] for row in ([] if table.bare else [table.header]) + list(table.rows)]
    if not rows:
        return []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    taken = sum(widths[:last]) + len(GAP) * last
    below = False
    if last not in table.right and taken + widths[last] > width:
        below = taken + _NARROWEST > width
        widths[last] = width - len(_UNDER) if below else width - taken
    lines = []
    for row in rows:
        tail = textwrap.wrap(row[last], max(1, widths[last]), break_long_words=False, break_on_hyphens=False) or [""]
        cells = [
            cell.rjust(size) if i in table.right else cell.ljust(size)
            for i, (cell, size) in enumerate(zip(row[:last], widths[:last], strict=True))
        ]
        if below:
            lines.append(GAP.join(cells).rstrip())
            lines += [_UNDER + more for more in tail if more]
            continue
        first = tail[0].rjust(widths[last]) if last in table.right else tail[0]
        lines.append(GAP.join([*cells, first]).rstrip())
        lines += [" " * (taken) + more for more in tail[1:]]
    if table.total:
        length = len(lines[-1]) - len(lines[-1].lstrip())
        lines.insert(-1, " " * length + "-" * (max(map(len, lines)) - length))
    return lines


_WORD = r"(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+"
_PIECE = re.compile(rf"-\S+ (?!-){_WORD}|{_WORD}")
"""A word of a command, an option with its value; what is quoted is not broken."""


def command_lines(command: str, width: int = WIDTH) -> list[str]:
    """Return a command as lines that a shell reads as one: all but the last end with a backslash."""
    lines: list[str] = []
    for word in _PIECE.findall(clean(command)):
        if lines and len(lines[-1]) + len(word) + len(" \\ ") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(f"{_UNDER if lines else GAP}{word}")
    return [*(f"{line} \\" for line in lines[:-1]), *lines[-1:]]


def _wrapped(line: str, width: int) -> list[str]:
    """Return a sentence as lines; continuation lines are set in, and so is what starts set in."""
    text = clean(line)
    indent = " " * (len(text) - len(text.lstrip()))
    return textwrap.wrap(
        text.strip(),
        width,
        initial_indent=indent,
        subsequent_indent=indent + "  ",
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]


def _all_wrapped(lines: Iterable[str], width: int) -> list[str]:
    return [part for line in lines for part in _wrapped(line, width)]


_MARKUP = str.maketrans({char: f"\\{char}" for char in "\\`*_[]|#"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def _escaped(text: str) -> str:
    return clean(text).strip().translate(_MARKUP)


def _markdown_table(table: Table) -> str:
    rule = tuple("---:" if i in table.right else "---" for i in range(len(table.header)))
    head, *rest = (tuple(map(_escaped, table.header)), rule, *(tuple(map(_escaped, row)) for row in table.rows))
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, *rest))
