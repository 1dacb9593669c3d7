"""Two readings of one engine, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.check.causes import FULL
from kvbudget.check.expected import ROOM, expected_of, preemptions_line, waiting_line

if TYPE_CHECKING:
    from kvbudget.check.metrics import Metrics
    from kvbudget.check.plan import Plan

OK, QUEUEING, NO_ROOM, PREEMPTING = "ok", "queueing", "full", "preempting"
ABOVE_PLAN = "above plan"

ALARMING = (PREEMPTING, ABOVE_PLAN)
"""Verdicts by which a watch fails."""


def grown(before: float | None, now: float | None) -> float:
    """Return by how much a counter grew; one that is smaller than before began again at nothing."""
    if now is None or before is None:
        return 0.0
    return now - before if now >= before else now


def live_verdict(plan: Plan | None, now: Metrics, lost: float, seconds: float) -> str:
    """Return how an engine does, in a word or two.

    Args:
        plan: What was planned; its lines count where it has been simulated.
        now: The newest reading.
        lost: Requests that lost their part of the cache since the one before.
        seconds: The time between the two.
    """
    expected = expected_of(plan)
    if lost > preemptions_line(expected.preemptions_per_s) * now.engines * seconds:
        return PREEMPTING
    usage, waiting = now.kv_usage_max or 0.0, now.waiting_max or 0.0
    if expected.kv_max is not None and usage > expected.kv_max + ROOM:
        return ABOVE_PLAN
    if expected.waiting_max is not None and waiting > waiting_line(expected.waiting_max):
        return ABOVE_PLAN
    if 100 * usage >= FULL:
        return NO_ROOM
    return QUEUEING if waiting else OK
