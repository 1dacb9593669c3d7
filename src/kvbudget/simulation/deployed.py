"""From a budget to a scheduler: the pool and the limits that the engine would run with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from kvbudget.errors import CannotTell
from kvbudget.facts.vllm_scheduler import RESERVES_WHOLE_PROMPT
from kvbudget.simulation.settings import Group, SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.budgeting import Budget
    from kvbudget.engines.vllm_cache import CacheGroup

_KINDS: Mapping[str, Literal["full", "sliding", "chunked", "state"]] = {
    "full": "full",
    "mla": "full",
    "mla+indexer": "full",
    "full+indexer": "full",
    "sliding": "sliding",
    "chunked": "chunked",
    "state": "state",
}
"""How long the layers of a cache group keep a token; a latent cache keeps all of them."""

STATES_IN_USE = 2
"""Blocks of a state while a request moves from one to the next, where prefixes are cached."""


def scheduler_settings(b: Budget, *, num_gpu_blocks: int | None = None) -> SchedulerSettings:
    """Return what the engine of a budget would schedule with.

    Args:
        b: The budget; its pool is the best estimate.
        num_gpu_blocks: Blocks of the pool instead of those of the budget.

    Raises:
        CannotTell: The model has caches that the scheduler does not cover (an encoder's), or nothing is left for a
            pool.
    """
    s, plan = b.settings, b.plan
    blocks = b.kv.num_gpu_blocks if num_gpu_blocks is None else num_gpu_blocks
    if blocks < 2:  # noqa: PLR2004 - the null block and one to use
        raise CannotTell(
            f"Nothing is left for a KV cache ({b.reason}); give --num-gpu-blocks or a layout that fits.",
            key="num_gpu_blocks",
        )
    return SchedulerSettings(
        num_gpu_blocks=blocks,
        block_size=plan.block_size,
        max_num_seqs=s.max_num_seqs,
        max_num_batched_tokens=s.max_num_batched_tokens,
        max_model_len=s.max_model_len,
        enable_prefix_caching=plan.enable_prefix_caching,
        async_scheduling=s.async_scheduling,
        scheduler_reserve_full_isl=s.version >= RESERVES_WHOLE_PROMPT,
        groups=tuple(_group(group, caching=plan.enable_prefix_caching) for group in plan.groups),
    )


def _group(group: CacheGroup, *, caching: bool) -> Group:
    kind = _KINDS.get(group.kind)
    if kind is None:
        raise CannotTell(
            f"The scheduler of models with a {group.kind} cache is not known to this version of kvbudget; simulate a "
            "decoder-only model.",
            key=group.kind,
        )
    saved = max(0, group.state_blocks - STATES_IN_USE) if kind == "state" and caching else 0
    limit = group.limit if kind in ("sliding", "chunked") else 0
    return Group(kind, group.block_size, limit, saved)
