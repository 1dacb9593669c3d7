"""A figure that is known within bounds."""

from __future__ import annotations

from typing import NamedTuple


class Estimate(NamedTuple):
    """Bytes with the bounds they are expected in, and the rule they come from."""

    low: int
    best: int
    high: int
    source: str
