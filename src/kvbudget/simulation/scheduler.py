"""vLLM's scheduler, a step at a time: running requests first, then waiting ones, preemption where blocks run out.

Plain and complete, it is what faster ways are held against.
Source: vLLM 0.32, v1/core/sched/scheduler.py and async_scheduler.py.
Not covered: drafts, adapters, encoders, connectors, structured output, pipeline stages, data parallel balancing.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.simulation.cache import Cache
from kvbudget.simulation.clock import NOTHING, Batch
from kvbudget.simulation.groups import can_checkpoint, checkpoint

if TYPE_CHECKING:
    from kvbudget.simulation.sequence import Sequence
    from kvbudget.simulation.settings import SchedulerSettings


class Waiting:
    """Requests that wait, the next one in front: as they came, or by priority."""

    __slots__ = ("_by_priority", "_queue")

    def __init__(self, *, by_priority: bool) -> None:
        self._by_priority = by_priority
        self._queue: deque[Sequence] = deque()

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._queue)

    def add(self, request: Sequence) -> None:
        """Add a request that has arrived."""
        if self._by_priority:
            insort(self._queue, request, key=_order)
        else:
            self._queue.append(request)

    def put_back(self, request: Sequence) -> None:
        """Add a request that was taken out before, in front."""
        if self._by_priority:
            insort(self._queue, request, key=_order)
        else:
            self._queue.appendleft(request)

    def first(self) -> Sequence:
        """Return the next request."""
        return self._queue[0]

    def take(self) -> Sequence:
        """Take the next request out."""
        return self._queue.popleft()

    def remove(self, request: Sequence) -> None:
        """Take a request out, wherever it is."""
        self._queue.remove(request)


def _order(request: Sequence) -> tuple[int, int, int]:
    return request.order


class Scheduled(NamedTuple):
    """A step.

    Attributes:
        tokens: The requests of the step, and how many tokens of each.
        yields: Those that get a token from it: all but the ones whose prompt goes on.
        preempted: The requests whose blocks were taken, in that order.
        admitted: The requests that were waiting, and how many tokens of each were found.
        passes: What the device computes one after the other, where it does not compute all of it at once.
        counted: What requests compute that are counted and not named; each of them gets a token from it.
    """

    tokens: dict[Sequence, int]
    yields: list[Sequence]
    preempted: tuple[Sequence, ...]
    admitted: tuple[tuple[Sequence, int], ...]
    passes: tuple[Batch, ...] = ()
    counted: Batch = NOTHING


class Scheduler:
    """The scheduler's state between steps."""

    def __init__(self, settings: SchedulerSettings) -> None:
        self.settings = settings
        self.cache = Cache(settings)
        self.waiting = Waiting(by_priority=settings.policy == "priority")
        self.running: list[Sequence] = []
        self._finished_since = False
        self._has_states = any(group.kind == "state" for group in settings.cache_groups)
        self._aligned_states = self._has_states and settings.enable_prefix_caching
        self._checkpoints = self._has_states and all(
            group.checkpoint_blocks for group in settings.cache_groups if group.kind == "state"
        )
        self._state_size = min(group.block_size for group in settings.cache_groups)

    @property
    def has_work(self) -> bool:
        """Whether there is a step to schedule; one more, an empty one, after the last request has ended."""
        return bool(self.running) or len(self.waiting) > 0 or self._finished_since

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold."""
        return self.cache.pool.used

    def add(self, request: Sequence) -> None:
        """Let a request wait."""
        self.waiting.add(request)

    def schedule(self) -> Scheduled:
        """Return the next step, with its blocks taken."""
        self.cache.begin_step()
        scheduled: dict[Sequence, int] = {}
        limit = self.settings.long_prefill_token_threshold if len(self.running) + len(self.waiting) > 1 else 0
        budget = self.settings.max_num_batched_tokens
        preempted, budget = self._schedule_running(scheduled, budget, limit)
        admitted = [] if preempted else self._admit(scheduled, budget, limit)
        self._advance(scheduled)
        yields = []
        for request in scheduled:
            if not request.prefilling:
                yields.append(request)
                if self.settings.async_scheduling:
                    request.promised += 1
        self._finished_since = False
        return Scheduled(scheduled, yields, tuple(preempted), tuple(admitted))

    # -- running requests

    def _schedule_running(
        self, scheduled: dict[Sequence, int], budget: int, limit: int, at: int = 0
    ) -> tuple[list[Sequence], int]:
        """Schedule the running requests from place `at` on; return those that are preempted and what is left."""
        preempted: list[Sequence] = []
        while at < len(self.running) and budget > 0:
            request = self.running[at]
            new = self._share(request, budget, limit)
            if new == 0:
                at += 1
                continue
            while not (fits := self.cache.allocate(request, new)):
                victim = self._victim()
                place = self.running.index(victim) if self.settings.policy == "priority" else len(self.running) - 1
                del self.running[place]
                if place < at:
                    at -= 1
                budget += scheduled.pop(victim, 0)
                self._preempt(victim)
                preempted.append(victim)
                if victim is request:
                    break
            if not fits:
                break
            scheduled[request] = new
            budget -= new
            at += 1
        return preempted, budget

    def _share(self, request: Sequence, budget: int, limit: int) -> int:
        """Return how many tokens of a running request are computed, with `budget` left of the step."""
        if request.promised and request.computed + 2 - request.promised >= request.last_token:
            return 0  # its last token is on its way
        new = request.tokens + request.promised - request.computed
        if 0 < limit < new:
            new = limit
        new = min(new, budget, self.settings.max_model_len - 1 - request.computed)
        return self._end_at_block(request, new, request.computed) if self._aligned_states else new

    def _victim(self) -> Sequence:
        if self.settings.policy == "priority":
            return max(self.running, key=lambda request: (request.priority, request.arrival))
        return self.running[-1]

    def _preempt(self, request: Sequence) -> None:
        self.cache.free(request)
        request.computed = request.promised = 0
        request.stale = request.in_flight
        request.preemptions += 1
        self.waiting.put_back(request)

    # -- waiting requests

    def _admit(self, scheduled: dict[Sequence, int], budget: int, limit: int) -> list[tuple[Sequence, int]]:
        admitted: list[tuple[Sequence, int]] = []
        skipped: list[Sequence] = []
        while budget > 0 and len(self.waiting) and len(self.running) < self.settings.max_num_seqs:
            request = self.waiting.first()
            if request.stale:  # its tokens from before it was preempted are on their way
                skipped.append(self.waiting.take())
                continue
            found = self.cache.find(request)
            request.shared_boundary = found.boundary
            new = request.tokens - found.tokens
            if 0 < limit < new:
                new = limit
            if not self.settings.enable_chunked_prefill and new > budget:
                break
            new = min(new, budget)
            if self._aligned_states:
                new = self._end_at_block(request, new, found.tokens)
                if new == 0:
                    break
            if not self.cache.allocate(
                request,
                new,
                found,
                whole=self.settings.scheduler_reserve_full_isl,
                watermark=bool(self.running),
            ):
                break
            self.running.append(self.waiting.take())
            request.computed = found.tokens
            scheduled[request] = new
            budget -= new
            admitted.append((request, found.tokens))
        for request in reversed(skipped):
            self.waiting.put_back(request)
        return admitted

    def _end_at_block(self, request: Sequence, new: int, start: int) -> int:
        """Return how many of `new` tokens to compute, so that states are there where they are kept.

        Source: vLLM 0.32, Scheduler._mamba_block_aligned_split.
        """
        prefill_end = request.prefill_end
        if start >= prefill_end:
            return new
        size, end = self._state_size, start + new
        last = checkpoint(request.tokens, size)
        inside = (
            self._checkpoints and end >= prefill_end and can_checkpoint(start, end, checkpoint(prefill_end, size), size)
        )
        if inside:
            last = 0
        if end < prefill_end:
            most = self.settings.max_num_batched_tokens
            if self.settings.long_prefill_token_threshold:
                most = min(most, self.settings.long_prefill_token_threshold)
            if end // size * size > start or size <= most:
                end = end // size * size
        junction = request.shared_boundary
        stops = (
            (start // size + 1) * size if start % size and not inside else 0,
            last,
            start + (junction - start) // size * size if start < junction < end else 0,
        )
        return max(min((stop for stop in stops if start < stop < end), default=end) - start, 0)

    # -- what a step changes

    @staticmethod
    def _advance(scheduled: dict[Sequence, int]) -> None:
        for request, new in scheduled.items():
            request.computed += new
            request.in_flight += new
            request.prefilling = request.computed < request.tokens + request.promised

    def finish(self, step: Scheduled) -> list[Sequence]:
        """Take in the tokens of a step that is done, and return the requests that end with them."""
        got = set(step.yields)
        ended = []
        for request, new in step.tokens.items():
            request.in_flight -= new
            stale = request.stale > 0
            if stale:
                request.stale -= new
            if request not in got:
                continue
            request.tokens += 1
            if self.settings.async_scheduling:
                if not stale:
                    request.promised -= 1
                if request.computed:
                    self.cache.keep(request, request.computed - request.promised)
            if request.tokens >= request.last_token:
                ended.append(request)
                self._end(request)
        return ended

    def _end(self, request: Sequence) -> None:
        self.cache.free(request)
        if request.computed:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._finished_since = True


def batch_of(scheduled: Scheduled) -> Batch:
    """Return what a step computes, for a clock."""
    tokens, requests, context, pairs = scheduled.counted
    for request, new in scheduled.tokens.items():
        end = request.computed
        tokens += new
        context += end
        pairs += new * (end - new) + new * (new + 1) // 2
    return Batch(tokens, requests + len(scheduled.tokens), context, pairs)
