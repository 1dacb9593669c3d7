"""What a line of an engine's log says; the patterns and the sentences stand in `kvbudget.facts.log_lines`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.facts.log_lines import LOG_LINES
from kvbudget.textbook import BLOCK_SIZE
from kvbudget.units import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvbudget.facts.log_lines import LogLine


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one line says: its figures, those derived from them, and sentences about them."""

    line: LogLine
    figures: Mapping[str, int | float | str]
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the reading as plain data."""
        return {
            "name": self.line.name,
            "title": self.line.title,
            "figures": dict(self.figures),
            "sentences": list(self.sentences),
            "versions": self.line.versions,
            "source": f"{self.line.engine} {self.line.source}",
        }


OWN_CONTEXT_GIB = 1
"""What a CUDA context and NCCL may take of a card; more is another process's."""

SHORT_REQUEST = 1500
"""Tokens of an ordinary request, to say that the longest length is not what people send."""

MAX_LOG_CHARACTERS = 1 << 20


def explain_log(text: str) -> tuple[Reading, ...]:
    """Return what each known line in `text` says, in the order of the text.

    Raises:
        InputError: Nothing in it is known, or it is too long to be a few lines.
    """
    if len(text) > MAX_LOG_CHARACTERS:
        raise InputError(f"The text has {len(text):,} characters; paste the lines in question, not the whole log.")
    joined = " ".join(text.split())
    found = [(match.start(), _reading(line, match)) for line in LOG_LINES if (match := re.search(line.pattern, joined))]
    if not found:
        titles = ", ".join(line.title for line in LOG_LINES[:_NAMED_LINES])
        raise InputError(f"No known line of an engine's log was found in the text; known are among others: {titles}.")
    return tuple(reading for _, reading in sorted(found, key=lambda item: item[0]))


_NAMED_LINES = 6


def _reading(line: LogLine, match: re.Match[str]) -> Reading:
    """Return the line's figures and those of its sentences whose figures are all there."""
    figures = {name: _figure(value) for name, value in match.groupdict().items() if value is not None}
    figures |= {name: value for name, value in _derived(figures) if value is not None}
    sentences = []
    for sentence in line.sentences:
        try:
            sentences.append(sentence.format_map(figures))
        except KeyError:
            continue
    return Reading(line=line, figures=figures, sentences=tuple(sentences))


def _figure(text: str) -> int | float | str:
    """Return a number without its separators, or the text if it is none."""
    plain = text.replace(",", "").rstrip(".")
    try:
        return float(plain) if "." in plain else int(plain)
    except ValueError:
        return text


def _derived(f: Mapping[str, Any]) -> Iterable[tuple[str, int | float | str | None]]:
    """Yield the figures that follow from a line's own; None where one does not apply."""
    yield from _of_tokens(f)
    if "pool" in f:
        yield "left", f["pool"] if f["pool"] > 0 else None
        yield "over", -f["pool"] if f["pool"] <= 0 else None
    if "estimated" in f:
        yield "more", round(f["actual"] - f["estimated"], 2)
    if "needed" in f:
        yield "short_by", round(f["needed"] - f["available"], 2)
    if "budget" in f:
        yield "outside", round(f["total"] - f["budget"], 2)
    if "free" in f and f.get("total"):
        taken = round(f["total"] - f["free"], 2)
        yield "others" if taken > OWN_CONTEXT_GIB else "context", taken
        yield "fraction_that_starts", int(100 * f["free"] / f["total"]) / 100
    if "waiting" in f:
        yield "queue", f["waiting"] or None
    if "recompute" in f:
        yield "later", "is computed again later"
    if "swap" in f:
        yield "later", "is copied to the host's memory and back later"


def _of_tokens(f: Mapping[str, Any]) -> Iterable[tuple[str, int | float | None]]:
    """Yield what follows for tokens, requests and bytes of a token."""
    if "concurrency" in f:
        tokens = int(Fraction(str(f["concurrency"])) * f["length"])
        yield "tokens", tokens
        yield "short", SHORT_REQUEST
        yield "short_requests", tokens // SHORT_REQUEST
        yield "part", f["concurrency"] if f["concurrency"] < 1 else None
    if "blocks" in f:
        yield "tokens", f["blocks"] * BLOCK_SIZE
        yield "block_size", BLOCK_SIZE
    if "k" in f and f["tokens"]:
        yield "bytes_per_token", round((f["k"] + f.get("v", 0)) * GIB / f["tokens"])
    if f.get("length") and "tokens" in f:
        yield "times", f["tokens"] / f["length"]
    if "kv_share" in f:
        yield "usage", round(100 * f["kv_share"], 1)
    if "bytes" in f:
        yield "bytes_gib", f["bytes"] / GIB
    if f.get("cells"):
        yield "cell_bytes", round(f["size"] * MIB / f["cells"])
