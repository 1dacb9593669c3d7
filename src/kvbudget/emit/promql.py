"""Queries: a meaning under every name that an engine's versions give it, and ranges of numbers in labels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kvbudget.check.metrics import names_of
from kvbudget.errors import InputError
from kvbudget.facts import metric_names as facts
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.emit.limits import Limits

BLOCK_SIZES = (16, 32, 64, 128, 256)
"""Sizes of blocks under which a cache of the same tokens is the same; the plan's own counts besides."""

_MATCHER = r'[A-Za-z_][A-Za-z0-9_]*\s*(?:!?=\s*"[^"\\]*"|[=!]~\s*"[A-Za-z0-9_.:/|*-]*")'
_SELECTOR = re.compile(rf"\s*{_MATCHER}\s*(?:,\s*{_MATCHER}\s*)*")

_LONGEST_SELECTOR = 1000


def checked_selector(text: str) -> str:
    """Return labels that all series must have, as they stand between PromQL's braces.

    Raises:
        InputError: They are none.
    """
    if not text.strip():
        return ""
    if (
        len(text) > _LONGEST_SELECTOR
        or not text.isprintable()
        or not _SELECTOR.fullmatch(text)
        or not all(map(_is_pattern, re.findall(r'~\s*"([^"]*)"', text)))
    ):
        raise InputError(f"--selector {shown(text)} is not understood; write for example 'namespace=\"prod\"'.")
    return text.strip()


def _is_pattern(text: str) -> bool:
    """Return whether a text of the few characters that a selector's patterns may have is a regular expression."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def either(meaning: str, engine: str, selector: str, pattern: str = "{}") -> str:
    """Return a query for a meaning under any of its names, the newest first where an engine has both.

    Args:
        meaning: One of `kvbudget.facts.metric_names`.
        engine: Whose.
        selector: Labels that the series must have.
        pattern: What is asked of each: ``rate({}[5m])``.
    """
    labels = f"{{{selector}}}" if selector else ""
    found = [pattern.replace("{}", name + labels) for name in names_of(meaning, engine)]
    return found[0] if len(found) == 1 else f"({' or '.join(found)})"


def capacity_differs(limits: Limits, selector: str) -> str:
    """Return a query for engines whose cache is not of the plan's size.

    The number of blocks is a label, which PromQL compares as text: the range that the plan allows is a pattern, one
    for each size of a block, so that the same tokens in other blocks are the same cache. An engine that has not yet
    sized its cache says `None`, and is no match.
    """
    name = names_of(facts.CONFIG, limits.engine)[0]
    low, high = limits.num_gpu_blocks
    fewest, most = low * limits.block_size, (high + 1) * limits.block_size - 1
    planned = [
        f'{name}{{block_size="{size}", num_gpu_blocks=~"{range_pattern(fewest // size, most // size)}"}}'
        for size in sorted({*BLOCK_SIZES, limits.block_size})
    ]
    sized = f'{name}{{num_gpu_blocks=~"[0-9]+"}}'
    return f"{sized} unless ({' or '.join(planned)}){_of_selected(limits.engine, selector)}"


def capacity(engine: str, selector: str) -> str:
    """Return a query for the caches' configurations, one series an engine."""
    return f"{names_of(facts.CONFIG, engine)[0]}{_of_selected(engine, selector)}"


def _of_selected(engine: str, selector: str) -> str:
    """Return what keeps the engines that a selector names, by another metric: the cache's has no `model_name`."""
    return f" and on (job, instance) {either(facts.RUNNING, engine, selector)}" if selector else ""


def range_pattern(low: int, high: int) -> str:
    """Return a regular expression of the whole numbers from `low` to `high`, both included, in decimal."""
    return "|".join(_pieces(low, high))


def _pieces(low: int, high: int) -> Iterator[str]:
    """Yield patterns that together stand for a range, each for numbers of one length and beginning."""
    while low <= high:
        top = 10 ** len(str(low)) - 1
        zeros = 0
        while low % 10 ** (zeros + 1) == 0 and low + 10 ** (zeros + 1) - 1 <= min(high, top) and low:
            zeros += 1
        unit = 10**zeros
        head, last = divmod(low // unit, 10)
        steps = min(9 - last, (min(high, top) - low + 1) // unit - 1)
        digit = str(last) if steps == 0 else f"[{last}-{last + steps}]"
        rest = "" if zeros == 0 else "[0-9]" if zeros == 1 else f"[0-9]{{{zeros}}}"
        yield f"{head or ''}{digit}{rest}"
        low += (steps + 1) * unit
