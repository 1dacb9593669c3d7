"""The lines that a plan draws: how full, how many waiting, how many preempted, how large a cache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.budgeting import DOES_NOT_FIT
from kvbudget.check.expected import ROOM, engines_of, expected_of, preemptions_line, waiting_line
from kvbudget.check.metrics import names_of
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import metric_names as facts
from kvbudget.headers.source import shown
from kvbudget.simulation.search import FULL

if TYPE_CHECKING:
    from kvbudget.check.plan import Plan

FULLEST = 0.98
"""No line lies above it: an engine that preempts may never be seen at 100 %."""

MOST_BLOCKS = 10**12
"""Blocks of a cache; of the smallest, of a few bytes, a card holds some 10^10."""

_LONGEST_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a plan comes to, for one engine of it.

    Args:
        engine: Whose metrics are watched.
        version: The version that was planned.
        model: The model's name, printable.
        where: The card and the layout, printable.
        num_gpu_blocks: The fewest and the most blocks that the plan allows.
        block_size: Tokens of a block.
        kv_cache_size_tokens: What the engine's log was planned to say.
        max_num_seqs: Requests that may run at once.
        engines: Data-parallel engines of the plan.
        kv_full: The share of the cache from which pressure is near.
        kv_expected: The share that is expected to be in use 95 % of the time; None where nobody simulated it.
        preemptions_per_s: The rate that is expected; None where nobody simulated it.
        waiting_expected: The most requests that are expected to wait; None where nobody simulated it.
    """

    engine: str
    version: str
    model: str
    where: str
    num_gpu_blocks: tuple[int, int]
    block_size: int
    kv_cache_size_tokens: int
    max_num_seqs: int | None
    engines: int
    kv_full: float
    kv_expected: float | None = None
    preemptions_per_s: float | None = None
    waiting_expected: float | None = None

    @property
    def preemptions_line(self) -> float:
        """Preemptions per second that are more than planned; where nobody simulated it, any are."""
        return preemptions_line(self.preemptions_per_s)

    @property
    def waiting_line(self) -> int:
        """Waiting requests that are more than planned."""
        return waiting_line(self.waiting_expected)


def limits_of(plan: Plan) -> Limits:
    """Return the lines that a plan draws.

    The expectation under load counts where the plan has one. Pressure is near at 90 % of the cache, where `simulate`
    puts the knee too, or above what the plan itself expects if that is more.

    Raises:
        InputError: The plan does not fit, or lacks a figure.
        CannotTell: It is of an engine that has no such metrics.
    """
    b, name = plan.budget, plan.path or "the plan"
    if b.get("verdict") == DOES_NOT_FIT:
        raise InputError(f"{name} does not fit, so that no engine will run by it; plan one that fits: kvbudget fit.")
    engine = b["engine"].get("name")
    if engine != "vllm" or not names_of(facts.KV_USAGE, engine):
        raise CannotTell(
            f"{name} is for {shown(str(engine), 20)}, whose cache no metric tells; only vLLM is watched.",
            key="engine.name",
        )
    low, high = _bounds(plan)
    expected = expected_of(plan)
    return Limits(
        engine=engine,
        version=shown(plan.engine_version, 20),
        model=shown(str(plan.document["model"]["name"])),
        where=_where(plan),
        num_gpu_blocks=(low, high),
        block_size=_whole(plan, "block_size", _LONGEST_BLOCK),
        kv_cache_size_tokens=_whole(plan, "kv_cache_size_tokens", MOST_BLOCKS * _LONGEST_BLOCK),
        max_num_seqs=_seqs(plan),
        engines=engines_of(plan),
        kv_full=round(min(FULLEST, max(FULL, (expected.kv_p95 or 0.0) + ROOM)), 4),
        kv_expected=expected.kv_p95,
        preemptions_per_s=expected.preemptions_per_s,
        waiting_expected=expected.waiting_max,
    )


def _bounds(plan: Plan) -> tuple[int, int]:
    found = plan.budget["bounds"].get("num_gpu_blocks")
    if isinstance(found, list) and len(found) == 2 and all(type(end) is int for end in found):  # noqa: PLR2004
        low, high = found
        if 0 <= low <= high and 0 < high <= MOST_BLOCKS:
            return low, high
    raise _damaged(plan, "budget.bounds.num_gpu_blocks")


def _whole(plan: Plan, key: str, most: int) -> int:
    found = plan.budget["kv"].get(key)
    if type(found) is int and 0 < found <= most:
        return found
    raise _damaged(plan, f"budget.kv.{key}")


def _damaged(plan: Plan, what: str) -> InputError:
    name = plan.path or "The plan"
    return InputError(f"{name} is damaged: {what} is missing or not what it should be; make the plan again.")


def _seqs(plan: Plan) -> int | None:
    found = plan.budget["settings"].get("max_num_seqs")
    return found if type(found) is int and 0 < found <= MOST_BLOCKS else None


def _where(plan: Plan) -> str:
    gpu = plan.budget.get("gpu")
    count, name = (gpu.get("count"), gpu.get("name")) if isinstance(gpu, dict) else (None, None)
    known = isinstance(name, str) and name != "given"  # `--gpu-memory` names no card
    return shown(f"{count if type(count) is int and 0 < count <= MOST_BLOCKS else 1} × {name if known else 'GPU'}", 40)
