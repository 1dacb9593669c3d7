"""Questions that take many simulations: where pressure begins, and which limit avoids it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.simulation.summary import Summary

    Sign = Callable[[Summary], bool]

STEPS_PER_DOUBLING = 8
"""Load is searched in steps of 2^(1/8), which is 9 %."""

DOUBLINGS = 6
"""From a 64th of the workload's own load to 64 times as much."""

LEAST_LOAD, MOST_LOAD = 2.0**-DOUBLINGS, 2.0**DOUBLINGS

RARE = 0.001
"""The share of the requests that may lose their blocks before it counts: any workload has one unlucky moment."""

FULL = 0.9
"""The share of the blocks that a cache with room to spare stays below for 95 % of the time."""


class Knee(NamedTuple):
    """Loads at which pressure begins, as multiples of the workload's own; None where it does not up to 64 times.

    Each is true of the load named and not of the next smaller one that was tried, which is 9 % less; of `LEAST_LOAD`
    it is not known whether it is true of less.

    Attributes:
        preemptions: More than one request in a thousand loses its blocks.
        waiting: Somebody waits for more than 5 % of the time.
        full: The cache is more than 90 % full for 5 % of the time.
    """

    preemptions: float | None
    waiting: float | None
    full: float | None


def find_knee(at: Callable[[float], Summary]) -> Knee:
    """Return where pressure begins.

    Args:
        at: Simulates the workload with its arrivals so many times as fast.
    """
    seen: dict[int, Summary] = {}

    def summary(step: int) -> Summary:
        if step not in seen:
            seen[step] = at(2 ** (step / STEPS_PER_DOUBLING))
        return seen[step]

    return Knee(*(_first(_pressed_by(sign, summary)) for sign in _SIGNS))


_SIGNS: tuple[Sign, ...] = (
    lambda s: s.preempted_requests > RARE * s.requests,
    lambda s: s.waiting.p95 > 0,
    lambda s: s.kv_used.p95 > FULL,
)
"""In the order of `Knee`."""


def _pressed_by(sign: Sign, summary: Callable[[int], Summary]) -> Callable[[int], bool]:
    return lambda step: sign(summary(step))


def _first(is_pressed: Callable[[int], bool]) -> float | None:
    """Return the least load with pressure, where more load is taken to mean no less of it."""
    low, high = -DOUBLINGS * STEPS_PER_DOUBLING, DOUBLINGS * STEPS_PER_DOUBLING
    pressed = 0
    if is_pressed(0):
        step = STEPS_PER_DOUBLING
        while pressed > low and is_pressed(max(pressed - step, low)):
            pressed = max(pressed - step, low)
        if pressed == low:
            return 2 ** (low / STEPS_PER_DOUBLING)
        calm = max(pressed - step, low)
    else:
        calm, step = 0, STEPS_PER_DOUBLING
        while not is_pressed(min(calm + step, high)):
            calm = min(calm + step, high)
            if calm == high:
                return None
        pressed = min(calm + step, high)
    while pressed - calm > 1:
        middle = (calm + pressed) // 2
        calm, pressed = (calm, middle) if is_pressed(middle) else (middle, pressed)
    return 2 ** (pressed / STEPS_PER_DOUBLING)


def largest_without(is_pressed: Callable[[int], bool], most: int) -> int | None:
    """Return the largest limit below `most` without pressure, None if there is none.

    Args:
        is_pressed: Whether there is pressure at a limit; more is taken to mean no less.
        most: A limit at which there is.
    """
    low, high = 0, most
    while high - low > max(1, low // 32):  # a limit need not be known to the last request
        middle = (low + high) // 2
        low, high = (low, middle) if is_pressed(middle) else (middle, high)
    return low or None
