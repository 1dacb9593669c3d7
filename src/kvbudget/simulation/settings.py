"""What a scheduler may do: vLLM's flags, the size of the pool and the groups of the cache."""

from __future__ import annotations

from math import lcm
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kvbudget.deployment import flag
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import policies as facts
from kvbudget.facts.vllm import FULL_PROMPT_ADMISSION, WATERMARK, at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvbudget.engines.vllm import Settings
    from kvbudget.engines.vllm_cache import CacheGroup, CachePlan
    from kvbudget.facts.policies import Words
    from kvbudget.facts.vllm import Version

FULL = {"mla": "full", "mla+indexer": "full", "full+indexer": "full"}
"""Kinds of groups that keep all of a request, but in other bytes."""
ALIGNED_STATES = 2
"""Blocks of a state whose copies are cached: the last one and the next."""
BATCHES_IN_FLIGHT = 2
"""Batches of an engine that schedules before it knows the last tokens (vLLM ``max_concurrent_batches``)."""


class Group(NamedTuple):
    """Layers that share a block table, as `kvbudget.engines.vllm_cache.CacheGroup` names them.

    Attributes:
        kind: What the layers keep of a request: all of it, a sliding window, the current chunk, or a state.
        block_size: Tokens of a block.
        limit: Tokens of the window or the chunk.
        checkpoint_blocks: Blocks of a state in which a backend saves the end of a prompt (vLLM's Mamba 2).
    """

    kind: Literal["full", "sliding", "chunked", "state"]
    block_size: int
    limit: int = 0
    checkpoint_blocks: int = 0


class SchedulerSettings(NamedTuple):
    """A scheduler's choices, spelled as vLLM's flags; the defaults are those of vLLM 0.32 where it has one.

    Attributes:
        num_gpu_blocks: Blocks of the pool, the null block included.
        block_size: Tokens of a block, where all layers keep everything.
        max_num_seqs: Requests that run at a time.
        max_num_batched_tokens: Tokens of a step.
        max_model_len: Tokens of a request; longer outputs are cut, longer prompts refused.
        enable_prefix_caching: Whether blocks are kept for later requests after they are freed.
        async_scheduling: Whether a step is scheduled before the tokens of the last one are known.
        policy: Who is served first, and who is preempted last.
        scheduler_reserve_full_isl: Whether a request is admitted only if its whole prompt fits (since 0.19.0), not
            its first chunk alone.
        watermark: Share of the pool that admission leaves free (since 0.24.0).
        long_prefill_token_threshold: Tokens that one prompt may take of a step, 0 for no limit.
        enable_chunked_prefill: Whether a prompt may take several steps.
        groups: The groups of a cache that is not one of full attention, in the engine's order.
    """

    num_gpu_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    max_model_len: int = 8192
    enable_prefix_caching: bool = True
    async_scheduling: bool = True
    policy: Literal["fcfs", "priority"] = "fcfs"
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    long_prefill_token_threshold: int = 0
    enable_chunked_prefill: bool = True
    groups: tuple[Group, ...] = ()

    @property
    def words(self) -> Words:
        """How the policy is spoken of."""
        return facts.VLLM

    @property
    def seats(self) -> int:
        """Requests that run at a time."""
        return self.max_num_seqs

    @property
    def max_prompt_len(self) -> int:
        """Tokens of a prompt; longer ones are refused."""
        return self.max_model_len - 1

    def with_seats(self, seats: int) -> SchedulerSettings:
        """Return the same with another number of seats."""
        return self._replace(max_num_seqs=seats)

    def to_dict(self) -> dict[str, Any]:
        """Return them as plain data."""
        return {**self._asdict(), "groups": [group._asdict() for group in self.cache_groups]}

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can hold: all but the null block."""
        return self.num_gpu_blocks - 1

    @property
    def cache_groups(self) -> tuple[Group, ...]:
        """The groups, one of full attention where none are named."""
        return self.groups or (Group("full", self.block_size),)

    @property
    def batches_in_flight(self) -> int:
        """Steps that are scheduled and not yet done."""
        return BATCHES_IN_FLIGHT if self.async_scheduling else 1

    @property
    def max_in_flight_tokens(self) -> int:
        """Tokens that may be scheduled and not yet done."""
        return self.max_num_batched_tokens * self.batches_in_flight

    @property
    def scheduler_block_size(self) -> int:
        """Tokens at whose multiples a prefix hit of all groups can end (vLLM ``resolve_kv_cache_block_sizes``)."""
        return lcm(*(group.block_size for group in self.cache_groups))

    @property
    def watermark_blocks(self) -> int:
        """Blocks that admission leaves free."""
        return int(self.watermark * self.num_gpu_blocks)


def resolved(chosen: Settings, plan: CachePlan, num_gpu_blocks: int) -> SchedulerSettings:
    """Return the scheduler's settings of a deployment; what its flags do not tell is the engine's default.

    The rules are those of vLLM 0.32, but for what an older version is known to do otherwise when it admits.

    Args:
        chosen: The deployment's choices, as the engine resolves them.
        plan: The groups of its cache.
        num_gpu_blocks: Blocks of the pool.

    Raises:
        CannotTell: Its cache, its stages or its drafts are not covered.
    """
    for name in ("pipeline_parallel_size", "decode_context_parallel_size"):
        if getattr(plan.settings, name) > 1:
            raise CannotTell(
                f"The scheduler of {flag(name)} {getattr(plan.settings, name)} is not simulated; leave it out.",
                key=name,
            )
    if plan.settings.num_speculative_tokens:
        raise CannotTell("The scheduler with drafts is not simulated; leave them out.", key="num_speculative_tokens")
    groups = tuple(_group(group, caching=plan.enable_prefix_caching) for group in plan.groups)
    alone = len(groups) == 1 and groups[0].kind == "full"
    return SchedulerSettings(
        num_gpu_blocks=num_gpu_blocks,
        block_size=plan.block_size,
        max_num_seqs=chosen.max_num_seqs,
        max_num_batched_tokens=chosen.max_num_batched_tokens,
        max_model_len=chosen.max_model_len,
        enable_prefix_caching=plan.enable_prefix_caching,
        async_scheduling=chosen.async_scheduling,
        scheduler_reserve_full_isl=at(FULL_PROMPT_ADMISSION, chosen.version),
        groups=() if alone else groups,
    )


SINCE = {"scheduler_reserve_full_isl": FULL_PROMPT_ADMISSION, "watermark": WATERMARK}
"""Flags that not every version of V1 has."""


def with_flags(settings: SchedulerSettings, flags: Mapping[str, Any], version: Version) -> SchedulerSettings:
    """Return the scheduler with vLLM's flags in place of its own.

    Args:
        settings: The scheduler.
        flags: Name -> value, spelled as vLLM does.
        version: The engine's.

    Raises:
        InputError: The version has no such flag.
    """
    for name, rows in SINCE.items():
        if name in flags and not at(rows, version):
            first = ".".join(map(str, next(since for since, there in rows if there)))
            raise InputError(
                f"{flag(name)} is no flag of vLLM {'.'.join(map(str, version))}: it exists since {first}; leave it out "
                "or give a later --engine-version."
            )
    return settings._replace(**{RENAMED.get(name, name): value for name, value in flags.items()})


RENAMED = {"scheduling_policy": "policy"}
"""Flags whose field has another name, in vLLM too."""


def _group(group: CacheGroup, *, caching: bool) -> Group:
    kind = FULL.get(group.kind, group.kind)
    if kind not in ("full", "sliding", "chunked", "state"):
        raise CannotTell(
            f"The model has a cache of kind {group.kind!r}, which is not simulated; `kvbudget fit` counts it.",
            key="groups",
        )
    saved = max(group.state_blocks - ALIGNED_STATES, 0) if kind == "state" and caching else 0
    return Group(kind, group.block_size, group.limit, saved)  # type: ignore[arg-type]  # one of those four


def admission_cap(group: Group, settings: SchedulerSettings) -> int | None:
    """Return the blocks that admission reserves for a request at most, None where blocks are never given back.

    Source: vLLM 0.32, v1/kv_cache_interface.py (max_admission_blocks_per_request).
    """
    in_flight = settings.max_in_flight_tokens
    if group.kind == "sliding":
        return -(-min(group.limit - 1 + in_flight, settings.max_model_len) // group.block_size) + 1
    if group.kind == "chunked":
        return -(-min(group.limit + in_flight, settings.max_model_len) // group.block_size)
    return None


def longest_needs(settings: SchedulerSettings) -> int:
    """Return the blocks that the engine wants to have for one request of `max_model_len` tokens before it starts.

    For a window it wants one more than fill it, even where that is one more than the whole request fills.
    Source: vLLM 0.32, v1/kv_cache_interface.py (max_memory_usage_bytes).
    """
    blocks = 0
    for group in settings.cache_groups:
        cap = admission_cap(group, settings)
        if group.kind == "state":
            blocks += ALIGNED_STATES + group.checkpoint_blocks if settings.enable_prefix_caching else 1
        else:
            blocks += -(-settings.max_model_len // group.block_size) if cap is None else cap
    return blocks


def check(settings: SchedulerSettings) -> None:
    """Refuse settings with which the engine would not start, or would never end.

    Raises:
        InputError: A number is out of its range, or the longest request does not fit in the pool.
        CannotTell: The groups' blocks are of sizes that are not covered.
    """
    least = {"num_gpu_blocks": 2, "long_prefill_token_threshold": 0}
    for name in (
        "num_gpu_blocks",
        "block_size",
        "max_num_seqs",
        "max_num_batched_tokens",
        "max_model_len",
        "long_prefill_token_threshold",
    ):
        value = getattr(settings, name)
        if not isinstance(value, int) or value < least.get(name, 1):
            raise InputError(f"{name} is {value!r}; give a whole number of {least.get(name, 1)} or more.")
    if not 0 <= settings.watermark < 1:
        raise InputError(f"watermark is {settings.watermark!r}; give a share of the pool from 0 to less than 1.")
    if settings.policy not in ("fcfs", "priority"):
        raise InputError(f"policy is {settings.policy!r}; give fcfs or priority.")
    if settings.max_num_batched_tokens < settings.max_num_seqs:
        raise InputError(
            f"max_num_batched_tokens is {settings.max_num_batched_tokens}, less than max_num_seqs "
            f"({settings.max_num_seqs}); each running request needs a token of a step."
        )
    if settings.long_prefill_token_threshold > settings.max_model_len:
        raise InputError(
            f"long_prefill_token_threshold is {settings.long_prefill_token_threshold}, more than max_model_len "
            f"({settings.max_model_len}), with which the engine does not start; give less, or 0 for no limit."
        )
    if not settings.enable_chunked_prefill and settings.max_num_batched_tokens < settings.max_model_len:
        raise InputError(
            f"max_num_batched_tokens is {settings.max_num_batched_tokens}, less than max_model_len "
            f"({settings.max_model_len}); without chunked prefill a prompt must fit in one step."
        )
    _check_groups(settings.cache_groups, caching=settings.enable_prefix_caching)
    need = longest_needs(settings)
    if need > settings.usable_blocks:
        fits = _longest_that_fits(settings)
        shorter = f"give --max-model-len {fits} or less, or more blocks" if fits else "give more blocks"
        raise InputError(
            f"One request of max_model_len {settings.max_model_len} needs {need:,} blocks and the pool has "
            f"{settings.usable_blocks:,} to use; {shorter}."
        )


def _longest_that_fits(settings: SchedulerSettings) -> int:
    """Return the largest `max_model_len` of which one request fits in the pool, 0 if none does."""
    fits, too_long = 0, settings.max_model_len
    while too_long - fits > 1:
        middle = (fits + too_long) // 2
        need = longest_needs(settings._replace(max_model_len=middle))
        fits, too_long = (fits, middle) if need > settings.usable_blocks else (middle, too_long)
    return fits


def _check_groups(groups: Iterable[Group], *, caching: bool) -> None:
    groups = tuple(groups)
    for group in groups:
        if group.kind not in ("full", "sliding", "chunked", "state"):
            raise CannotTell(f"A cache group of kind {group.kind!r} is not covered by the simulation.", key="groups")
        if group.block_size < 1 or (group.kind in ("sliding", "chunked") and group.limit < 1):
            raise InputError(f"{group} is no group; its block size and its window must be 1 or more.")
    uneven = len({group.block_size for group in groups}) > 1
    if caching and uneven and any(group.kind in ("state", "chunked") for group in groups):
        raise CannotTell(
            "States and chunks that share a prefix cache with blocks of another size are not covered by the "
            "simulation; turn prefix caching off.",
            key="groups",
        )
