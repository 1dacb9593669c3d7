"""vLLM's scheduler with the requests that decode counted, not visited, while a step does the same to each of them.

Most requests of most steps get one token, have room for it, and leave nothing behind. Such a request is counted: it has
computed `offset` tokens more than the engine has scheduled steps, so a step is over when the steps are counted. It is
visited in the steps in which its next token takes or gives back a block or completes one that can be found, which it
knows beforehand, and it is named again, as the plain scheduler has it, for the step of its last token.

Nothing is decided here. Where blocks do not suffice all requests are named, and the plain scheduler goes on from there.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kvbudget.simulation.clock import Batch
from kvbudget.simulation.scheduler import Scheduled, Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.simulation.sequence import Sequence
    from kvbudget.simulation.settings import SchedulerSettings


class CountingScheduler(Scheduler):
    """The scheduler's state between steps.

    Attributes:
        counted: How many requests are counted.
        context: Tokens that those have computed.
    """

    def __init__(self, settings: SchedulerSettings) -> None:
        super().__init__(settings)
        self.counted = self.context = 0
        self._ahead = int(settings.async_scheduling)
        self._steps = self._admissions = 0
        self._due: dict[int, list[Sequence]] = {}  # who is visited in which step
        self._ends: list[tuple[int, int, Sequence]] = []  # their last steps, first those that come first
        self._named: dict[Sequence, None] = {}  # who runs and is not counted
        self._flying: Scheduled | None = None  # the last step, while it is not done
        self._barred: tuple[Sequence, int, int, int] | None = None

    # -- steps of which some requests are named

    def schedule(self) -> Scheduled:
        """Return the next step, with its blocks taken."""
        step = super().schedule()
        count = self.counted
        if count:
            self.context += count
            step = step._replace(counted=Batch(count, count, self.context, self.context))
        self._steps += 1
        if self._ahead:
            self._flying = step
        return step

    def finish(self, step: Scheduled) -> list[Sequence]:
        """Take in the tokens of a step that is done, and return the requests that end with them."""
        if step is self._flying:
            self._flying = None
        return super().finish(step)

    def _schedule_running(
        self, scheduled: dict[Sequence, int], budget: int, limit: int, at: int = 0
    ) -> tuple[list[Sequence], int]:
        visits = self._visits()
        if visits is None:
            self._name(self.running)
            return super()._schedule_running(scheduled, budget, limit, at)
        budget -= self.counted
        for request in visits:
            if request.counted:
                fits = self._visit(request)
            else:
                new = self._share(request, budget, limit) if budget else 0
                fits = new == 0 or self.cache.allocate(request, new)
                if new and fits:
                    scheduled[request] = new
                    budget -= new
            if not fits:
                return self._plainly(request, scheduled, budget, limit)
        return [], budget

    def _visits(self) -> list[Sequence] | None:
        """Return the running requests for which there is something to do in this step, in order.

        None if somebody decodes behind a prompt that goes on, and gets what that leaves of the step.
        """
        self._count()
        now = self._steps
        visits = self._due.pop(now, [])
        self._name([request for request in visits if request.last_step == now])
        if self._named:
            prefilling = {request for request in self._named if request.prefilling}
            if prefilling and prefilling != set(self.running[-len(prefilling) :]):
                return None
            visits = [request for request in visits if request.counted]
            visits += self._named
        visits.sort(key=_place)
        return visits

    def _plainly(
        self, request: Sequence, scheduled: dict[Sequence, int], budget: int, limit: int
    ) -> tuple[list[Sequence], int]:
        """Go on from a running request that lacks a block, with all requests named."""
        at = self.running.index(request)
        before = {other: 1 if other.counted else scheduled.get(other, 0) for other in self.running[:at]}
        budget += self.counted - sum(other.counted for other in before)
        scheduled.clear()
        scheduled.update((other, new) for other, new in before.items() if new)
        self._name(self.running)
        return super()._schedule_running(scheduled, budget, limit, at)

    def _admit(self, scheduled: dict[Sequence, int], budget: int, limit: int) -> list[tuple[Sequence, int]]:
        if self._is_barred(budget, limit):
            return []
        running = len(self.running)
        admitted = super()._admit(scheduled, budget, limit)
        for request, _ in admitted:
            request.place = self._admissions
            self._admissions += 1
            self._named[request] = None
        self._barred = None
        if running and not admitted and len(self.waiting) and budget > 0 and running < self.settings.max_num_seqs:
            first = self.waiting.first()
            if not first.preemptions and self.cache.finds_nothing(first):
                self._barred = (first, self.cache.pool.free, budget, limit)
        return admitted

    def _is_barred(self, budget: int, limit: int) -> bool:
        """Return whether the first one waiting was refused before, finds nothing, and finds no more room now."""
        if self._barred is None or not len(self.waiting):
            return False
        first, free, *left = self._barred
        return first is self.waiting.first() and self.cache.pool.free <= free and left == [budget, limit]

    def _preempt(self, request: Sequence) -> None:
        self._named.pop(request, None)
        super()._preempt(request)

    def _end(self, request: Sequence) -> None:
        self._named.pop(request, None)
        super()._end(request)

    # -- who is counted

    def _count(self) -> None:
        """Count the requests whose next steps are all alike."""
        flying = self._flying
        steady = []
        for request in self._named:
            computed = request.computed
            if (
                not request.prefilling
                and request.in_flight == request.promised == self._ahead
                and request.tokens + request.promised == computed + 1
                and request.reached <= computed < request.last_token - 2
            ):
                steady.append(request)
        for request in steady:
            del self._named[request]
            if flying is not None:
                del flying.tokens[request]  # what the end of that step changes is counted too
            request.counted = True
            request.offset = request.computed - self._steps
            request.last_step = request.last_token - 2 - request.offset
            self.counted += 1
            self.context += request.computed
            heappush(self._ends, (request.last_step, request.index, request))
            self._plan(request, self._steps)

    def _plan(self, request: Sequence, step: int) -> None:
        """Note when a request is visited, which is in no step before `step`."""
        at = self.cache.busy_at(request) - request.offset
        at = min(at, request.last_step) if at > step else step
        visits = self._due.get(at)
        if visits is None:
            self._due[at] = [request]
        else:
            visits.append(request)

    def _visit(self, request: Sequence) -> bool:
        """Do what a counted request's next token does to its blocks, and return whether there are enough."""
        request.computed = computed = self._steps + request.offset
        request.tokens = computed + 1 - self._ahead
        if not self.cache.allocate(request, 1):
            return False
        self._plan(request, self._steps + 1)
        return True

    def _name(self, requests: Iterable[Sequence]) -> None:
        """Let those of some requests who are counted be as the plain scheduler has them."""
        named = [request for request in requests if request.counted]
        for request in named:
            request.computed = request.reached = self._steps + request.offset
            request.tokens = request.computed + 1 - self._ahead
            request.promised = request.in_flight = self._ahead
            request.counted = False
            self._named[request] = None
            self.counted -= 1
            self.context -= request.computed
        if not self.counted:
            self._due.clear()
            self._ends.clear()
        flying = self._flying
        if flying is not None and named:
            flying.yields.extend(named)
            tokens = {**flying.tokens, **dict.fromkeys(named, 1)}
            flying.tokens.clear()
            flying.tokens.update((request, tokens[request]) for request in sorted(tokens, key=_place))

    # -- steps of which none is

    def alike(self) -> int:
        """Return how many steps follow in which all requests are counted, if nobody comes; 0 if somebody may start."""
        if self._named:
            self._count()
        if self._named or not self.counted or (self._flying is not None and self._flying.tokens):
            return 0
        if self._looks_for_more() and not self._is_barred(
            self.settings.max_num_batched_tokens - self.counted, self.settings.long_prefill_token_threshold
        ):
            return 0
        ends = self._ends
        while not (ends[0][2].counted and ends[0][2].last_step == ends[0][0]):
            heappop(ends)
        return ends[0][0] - self._steps

    def _looks_for_more(self) -> bool:
        return len(self.waiting) > 0 and self.counted < self.settings.max_num_seqs

    def jump(self, steps: int) -> list[tuple[int, int]]:
        """Go on by `steps` of the steps that are alike, or up to the first one in which blocks may not suffice.

        Returns:
            How many steps, and how many blocks are used in each of them; again and again, in their order.
        """
        pool, due, groups = self.cache.pool, self._due, len(self.cache.tables)
        barred = self._looks_for_more()  # by free blocks, of which a visit may make more
        begins, end = self._steps, self._steps + steps
        spans: list[tuple[int, int]] = []
        while self._steps < end:
            visits = due.get(self._steps)
            if visits:
                if barred or len(visits) * groups > pool.free:
                    break
                if self._steps > begins:
                    spans.append((self._steps - begins, pool.used))
                    begins = self._steps
                del due[self._steps]
                visits.sort(key=_place)
                for request in visits:
                    self._visit(request)
            self._steps += 1
        if self._steps > begins:
            spans.append((self._steps - begins, pool.used))
        self.context += self.counted * sum(count for count, _ in spans)
        if spans:
            self._finished_since = False
        return spans


def _place(request: Sequence) -> int:
    return request.place
