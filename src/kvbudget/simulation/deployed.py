"""From a budget to a scheduler and its clock: the pool and the limits that the engine would run with, its steps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.errors import CannotTell, InputError
from kvbudget.simulation.fitting import (
    Scaled,
    bench_points,
    calibrate,
    fit_line,
    parse_points,
    parse_step_time,
)
from kvbudget.simulation.operations import roofline
from kvbudget.simulation.roofline import Roofline
from kvbudget.simulation.settings import resolved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.budgeting import Budget
    from kvbudget.deployment import Deployment
    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.settings import SchedulerSettings

FAR = 2
"""How many times as long as the largest measured step another may be before its time is called a guess."""

LEAST_BLOCKS = 2
"""The null block, and one to use."""


def scheduler_settings(b: Budget, *, num_gpu_blocks: int | None = None) -> SchedulerSettings:
    """Return what the engine of a budget would schedule with.

    Args:
        b: The budget; its pool is the best estimate.
        num_gpu_blocks: Blocks of the pool instead of those of the budget.

    Raises:
        CannotTell: The model has caches that the scheduler does not cover (an encoder's), or nothing is left for a
            pool.
    """
    blocks = b.kv.num_gpu_blocks if num_gpu_blocks is None else num_gpu_blocks
    if num_gpu_blocks is not None and num_gpu_blocks < LEAST_BLOCKS:
        raise InputError(f"--num-gpu-blocks is {num_gpu_blocks}; give {LEAST_BLOCKS} or more.")
    if blocks < LEAST_BLOCKS:
        raise CannotTell(
            f"Nothing is left for a KV cache ({b.reason}); give --num-gpu-blocks or a layout that fits.",
            key="num_gpu_blocks",
        )
    return resolved(b.settings, b.plan, blocks)


def pool_assumptions(b: Budget, num_gpu_blocks: int) -> tuple[str, ...]:
    """Return how sure the size of the pool is, nothing where it was given."""
    if (
        num_gpu_blocks != b.kv.num_gpu_blocks
        or b.smallest.given_pool is not None
        or b.deployment.num_gpu_blocks_override
    ):
        return ()
    low, high = (
        max(0, size) // b.plan.bytes_per_block
        for size in (b.smallest.available_low_bytes, b.smallest.available_high_bytes)
    )
    return (f"num_gpu_blocks {b.kv.num_gpu_blocks:,}, the best estimate of {low:,}–{high:,} (--num-gpu-blocks)",)


class Timing(NamedTuple):
    """A clock and what is known of it.

    Attributes:
        clock: How long steps take.
        source: Where that comes from, in words.
        error: The share of a step's time by which it may be off either way; None where it was given.
        reach: The most tokens of a step that was measured; None where steps of any size are known as well.
    """

    clock: Clock
    source: str
    error: float | None = None
    reach: int | None = None

    def scaled(self, factor: float) -> Clock:
        """Return the clock with every step so many times as long."""
        if not isinstance(self.clock, Roofline):
            return self.clock
        costs = Scaled(self.clock.costs, factor)
        return Roofline(costs, source=self.source, error=self.clock.error)


def timing_warnings(timing: Timing, settings: SchedulerSettings) -> tuple[str, ...]:
    """Return what the interval of the clock does not cover: steps much longer than any that was measured."""
    longest = settings.max_num_batched_tokens
    if timing.reach is None or timing.reach * FAR >= longest:
        return ()
    text = (
        f"The largest measured step has {timing.reach:,} tokens and prompts are computed in steps of up to "
        f"{longest:,}: their time is a guess beyond the interval; give --step-points with such a step."
    )
    return (text,)


def timing_of(
    d: Deployment, *, step_time: str | None = None, points: str | None = None, benches: Sequence[str] = ()
) -> Timing:
    """Return the clock of a deployment.

    Args:
        d: The deployment.
        step_time: ``BASE_MS,PER_TOKEN_US``.
        points: Measured steps, ``TOKENS:MS`` or ``TOKENS:CONTEXT:MS`` separated by commas.
        benches: Results of ``vllm bench serve --save-result`` on this deployment, which scale the roofline.

    Raises:
        InputError: Several ways are given, or one is not understood.
        CannotTell: None is given, and too little is known of the card.
    """
    if sum((step_time is not None, points is not None, bool(benches))) > 1:
        raise InputError(
            "--step-time, --step-points and --bench-result each say what a step takes; give one of the three."
        )
    if step_time is not None:
        return Timing(parse_step_time(step_time), f"--step-time {step_time}")
    if points is not None:
        measured = parse_points(points)
        clock = fit_line(measured)
        return Timing(clock, clock.source, clock.error, max(point.batch.tokens for point in measured))
    clock = roofline(d)
    if benches:
        clock = calibrate(clock, bench_points(map(Path, benches)), what=", ".join(Path(b).name for b in benches))
    return Timing(clock, clock.source, clock.error)
