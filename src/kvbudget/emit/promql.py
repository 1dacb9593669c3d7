"""Queries for rules: whether a cache is of the planned size, by ranges of numbers in labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.check.metrics import names_of
from kvbudget.check.promql import of_selected
from kvbudget.facts import metric_names as facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.emit.limits import Limits

BLOCK_SIZES = (16, 32, 64, 128, 256)
"""Sizes of blocks under which a cache of the same tokens is the same; the plan's own counts besides."""


def capacity_differs(limits: Limits, selector: str) -> str:
    """Return a query for engines whose cache is not of the plan's size.

    The number of blocks is a label, which PromQL compares as text: the range that the plan allows is a pattern, one
    for each size of a block, so that the same tokens in other blocks are the same cache. An engine that has not yet
    sized its cache says `None`, and is no match.

    Data-parallel engines behind one address each tell the blocks of all that are there: the whole deployment, or an
    equal part of it.
    """
    name = names_of(facts.CONFIG, limits.engine)[0]
    sized = f'{name}{{num_gpu_blocks=~"[0-9]+"}}'
    parts = [count for count in range(1, limits.engines + 1) if limits.engines % count == 0]
    differs = [f"{sized} unless ({_planned(limits, name, count)})" for count in parts]
    if len(parts) > 1:
        differs = [
            f"({query}) and on (job, instance) count by (job, instance) ({sized}) == {count}"
            for query, count in zip(differs, parts, strict=True)
        ]
    query = " or ".join(differs)
    chosen = of_selected(limits.engine, selector)
    return f"({query}){chosen}" if chosen and len(parts) > 1 else f"{query}{chosen}"


def _planned(limits: Limits, name: str, engines: int) -> str:
    """Return a query for caches of the plan's size where so many engines tell their blocks together."""
    low, high = (end * engines for end in limits.num_gpu_blocks)
    fewest, most = low * limits.block_size, (high + 1) * limits.block_size - 1
    return " or ".join(
        f'{name}{{block_size="{size}", num_gpu_blocks=~"{range_pattern(fewest // size, most // size)}"}}'
        for size in sorted({*BLOCK_SIZES, limits.block_size})
    )


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
