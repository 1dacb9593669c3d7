"""The same scheduler, with the steps jumped over in which nothing changes but the lengths of the requests.

It decides as `kvbudget.simulation.scheduler` does, to the last block, for a cache of full attention, first come first
served; what holds there in general is used here as a shortcut:

* All decoding requests advance by one token a step. A counter of steps stands for all their lengths: a request that
  decodes has computed `counter - offset` tokens, and ends when the counter has reached a number known from the start.
* A step takes a new block for each request whose length is a multiple of the block size. How many those are is counted
  by the remainder of their offsets, so the blocks of any number of steps are a sum over at most one block's remainders.
* At most one prompt is unfinished after a step, and it is the last running request: only it can have used up the step.
* Who waits does not matter while the first one does not fit: free blocks only become fewer until a request ends.
* Blocks that no other request can find need no name: see `kvbudget.simulation.runs`.
"""

# ruff: noqa: PLR1730 - a comparison in the loop costs less than a call of max

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kvbudget.simulation.clock import NOTHING, Batch
from kvbudget.simulation.results import NEVER, Load, Result, Step, Stretch
from kvbudget.simulation.runs import Runs, SharedRuns

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Generator, Mapping

    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.prefixes import Shared
    from kvbudget.simulation.settings import SchedulerSettings

SHIFT = 32
"""Bits of a request's number in the heap of ends."""
LOW = (1 << SHIFT) - 1
FOREVER = 1 << 100
"""A time that does not come."""


def can_jump(settings: SchedulerSettings) -> bool:
    """Return whether these rules hold for a scheduler."""
    kinds = {group.kind for group in settings.cache_groups}
    return (
        len(settings.cache_groups) == 1
        and kinds == {"full"}
        and settings.policy == "fcfs"
        and settings.long_prefill_token_threshold == 0
    )


def run(
    result: Result,
    settings: SchedulerSettings,
    clock: Clock,
    record: Callable[[Step], object] | None = None,
    shared: Mapping[int, Shared] | None = None,
    *,
    as_served: bool = False,
) -> None:
    """Fill in what becomes of the requests of `result`, which are in the order of their arrival and all served.

    Args:
        result: The workload before it has begun.
        settings: What the scheduler may do; `can_jump` holds.
        clock: How long a step takes.
        record: Called with each step, those that were jumped over included.
        shared: What requests share with others, by their place in `result`.
        as_served: Whether who comes while a step runs is seen after it, where the next one is scheduled already.
    """
    deque(stepping(result, settings, clock, record, shared, as_served=as_served), 0)


def stepping(  # noqa: C901, PLR0912, PLR0915 - one loop, whose speed is that its state is in local variables
    result: Result,
    settings: SchedulerSettings,
    clock: Clock,
    record: Callable[[Step], object] | None = None,
    shared: Mapping[int, Shared] | None = None,
    *,
    as_served: bool = False,
    horizon: int = FOREVER,
) -> Generator[Load, int, None]:
    """Do what `run` does, but stop before the first step that begins at `horizon` or later, and where nothing is left.

    Each stop gives how busy the engine is. Then requests may be added to `result`, which arrive at `horizon` or later,
    and the next `horizon` is sent; after `FOREVER` no more come.
    """
    size = settings.cache_groups[0].block_size
    seats, budget = settings.max_num_seqs, settings.max_num_batched_tokens
    caching, ahead = settings.enable_prefix_caching, settings.async_scheduling
    whole, chunked = settings.scheduler_reserve_full_isl, settings.enable_chunked_prefill
    watermark = settings.watermark_blocks
    late = ahead and as_served
    total = settings.usable_blocks
    arrivals, prompts, outputs = result.arrival, result.prompt_tokens, result.output_tokens
    scheduled, first_token, finished = result.scheduled, result.first_token, result.finished
    preemptions, cached_tokens = result.preemptions, result.cached_tokens
    clock_step, clock_decodes, clock_until = clock.step, clock.decodes, clock.steps_until

    count = len(arrivals)
    targets: dict[int, int] = {}  # tokens of a request that was preempted, when it is admitted again
    reached: dict[int, int] = {}  # tokens that were computed before it was
    running: dict[int, int] = {}  # in the order of admission; the counter when it ends, `NEVER` if it does not decode
    front: deque[int] = deque()  # preempted requests, who wait before all that come
    ends: list[int] = []  # when decoding requests end, by the counter
    phases = [0] * (2 * size)  # decoding requests by offset, twice over so that sums need not wrap around
    pool = SharedRuns(total, size, shared) if shared else Runs(total, size)

    now = counter = came = admitted_to = 0  # requests before `came` have arrived, those before `admitted_to` run or ran
    seen = 0  # requests that have come until then are in the next step
    next_arrival = arrivals[0] if count else FOREVER
    decoding = context = 0  # requests, and the tokens that they have computed
    partial, partial_at, partial_target = NEVER, 0, 0  # the request whose prompt goes on
    leaving: list[tuple[int, int]] = []  # whose last token is on its way, and when the step ends that brings it
    in_flight = finished_since = False
    steps = empty_steps = scheduled_tokens = recomputed = 0
    peak_running = peak_waiting = peak_used = 0
    queries = hits = resumed_queries = resumed_hits = 0

    while True:
        # -- who has come
        working = bool(running) or bool(front) or came > admitted_to or finished_since
        if now >= horizon or (came == count and not working and not in_flight):
            if horizon == FOREVER:
                break
            horizon = yield Load(len(running), len(front) + count - admitted_to, total - pool.free)
            count = len(arrivals)
            if came < count:
                next_arrival = arrivals[came]
            continue
        if not working and not in_flight:
            now = seen = max(now, clock.wake(next_arrival))
            if now >= horizon:
                continue
        if not late:
            seen = now
        if next_arrival <= seen:
            working = True
            while next_arrival <= seen:
                came += 1
                next_arrival = arrivals[came] if came < count else FOREVER
        waiting = len(front) + came - admitted_to

        # -- a jump, while nobody comes, goes or is admitted
        if decoding and partial < 0 and (in_flight or not ahead):
            while running.get(ends[0] & LOW) != ends[0] >> SHIFT:
                heappop(ends)  # it was preempted
            jump = most = (ends[0] >> SHIFT) + 1 - counter
            free = pool.free
            full = len(running) >= seats or decoding >= budget
            if waiting and not full:
                head = front[0] if front else admitted_to
                target = targets.get(head, 0) or prompts[head]
                found, loose = pool.find(head, target) if caching else (0, 0)
                if whole:
                    need = -(-target // size) - found + loose
                else:
                    start = found * size
                    new = target - start
                    if new > budget - decoding:
                        new = budget - decoding
                        if start or not chunked:
                            jump = 0  # what it finds, and with it what it needs, becomes less
                    need = -(-(start + new) // size) - found + loose
                if need + watermark <= free:
                    jump = 0
            if leaving and (waiting or full or record) and jump:
                jump = 1  # who leaves makes room
            if decoding * (jump // size + 1) > free:
                jump = _lasting(phases, size, counter % size, decoding, free, jump)
            took = clock_decodes(decoding, context + decoding, jump) if jump else 0
            if horizon < FOREVER and took > horizon - now:
                jump = min(jump, clock_until(decoding, context + decoding, horizon - now))
                took = clock_decodes(decoding, context + decoding, jump)
            if jump and took > next_arrival - now and not waiting and not full:
                gap = next_arrival - now
                until = clock_until(decoding, context + decoding, gap) if gap > 0 else 0
                jump = min(jump, until + late)
                took = clock_decodes(decoding, context + decoding, jump)
            if jump:
                at = counter % size
                if record:
                    _expand(
                        record, steps, now, clock, len(running), waiting, decoding, context, total - free,
                        phases, at, size, jump, arrivals, came, seen if late else NEVER,
                    )  # fmt: skip
                if waiting or full:
                    if next_arrival <= now + took:
                        in_last = now + clock_decodes(decoding, context + decoding, max(jump - 1 - late, 0))
                        if late and jump == 1:
                            in_last = seen
                        at_end = came
                        while at_end < count and arrivals[at_end] <= in_last:
                            at_end += 1
                        waiting += at_end - came
                    if waiting > peak_waiting:
                        peak_waiting = waiting
                if len(running) > peak_running:
                    peak_running = len(running)
                if late:
                    seen = now + clock_decodes(decoding, context + decoding, jump - 1)
                now += took
                steps += jump
                scheduled_tokens += decoding * jump
                finished_since = False
                rounds, rest = divmod(jump, size)
                blocks = rounds * decoding + sum(phases[at : at + rest])
                if leaving:
                    pool.take(phases[at])
                    blocks -= phases[at]
                    if total - pool.free > peak_used:
                        peak_used = total - pool.free
                    for owner, when in leaving:
                        finished[owner] = when
                        del running[owner]
                        pool.give_back(owner, prompts[owner] + outputs[owner] - 1, caching=caching)
                        if owner in targets:
                            del targets[owner], reached[owner]
                    finished_since = jump == 1
                    leaving = []
                pool.free -= blocks
                pool.owed += blocks
                if total - pool.free > peak_used:
                    peak_used = total - pool.free
                context += decoding * jump
                counter += jump
                if jump == most:
                    while ends and ends[0] >> SHIFT < counter:
                        end = heappop(ends)
                        owner, end = end & LOW, end >> SHIFT
                        if running.get(owner) != end:
                            continue
                        last = prompts[owner] + outputs[owner]
                        decoding -= 1
                        context -= last - 1
                        phase = (end + 2 - last) % size
                        phases[phase] -= 1
                        phases[phase + size] -= 1
                        if ahead:
                            running[owner] = NEVER
                            leaving.append((owner, now))
                            continue
                        finished[owner] = now
                        finished_since = True
                        del running[owner]
                        pool.give_back(owner, last - 1, caching=caching)
                        if owner in targets:
                            del targets[owner], reached[owner]
                continue

        # -- one step
        steps += 1
        if not working:
            now += clock_step(NOTHING)
            in_flight = False  # the last, empty step is done
            continue
        begins = now
        room = budget
        fewer = 0  # preempted
        joined: list[tuple[int, int]] = []  # whose prompt ends in this step, and its tokens

        # running requests
        demand = phases[counter % size]
        more = 0
        if partial >= 0:
            new = min(partial_target - partial_at, room - decoding)
            more = -(-(partial_at + new) // size) - -(-partial_at // size)
        if demand + more <= pool.free:
            pool.free -= demand + more
            pool.owed += demand + more
            room -= decoding
        else:
            # in order, each takes its block or the last one loses its own
            zombies = {owner for owner, _ in leaving}
            for owner in list(running):
                if owner not in running:
                    break
                if owner in zombies:
                    continue
                if owner == partial:
                    new = min(partial_target - partial_at, room)
                    if new == 0:
                        continue
                    need = -(-(partial_at + new) // size) - -(-partial_at // size)
                else:
                    need = (counter - running[owner] - 2 + prompts[owner] + outputs[owner]) % size == 0
                while need > pool.free:
                    victim, end = running.popitem()
                    fewer += 1
                    preemptions[victim] += 1
                    front.appendleft(victim)
                    if victim == partial:
                        computed, kept, target = partial_at, partial_at // size, partial_target
                        partial = NEVER
                    else:
                        last = prompts[victim] + outputs[victim]
                        target = targets.get(victim, 0) or prompts[victim]
                        if victim in zombies:
                            computed = last - 1
                        else:
                            computed = counter - end - 2 + last
                            decoding -= 1
                            context -= computed
                            phase = (end + 2 - last) % size
                            phases[phase] -= 1
                            phases[phase + size] -= 1
                        kept = (computed - 1 if ahead and computed > target else computed) // size
                        target = computed + 1
                    targets[victim] = target
                    if computed > reached.get(victim, 0):
                        reached[victim] = computed
                    pool.lose(victim, computed, kept if caching else 0)
                    if victim == owner:
                        break
                else:
                    if need:
                        pool.take(need)
                    room -= new if owner == partial else 1
                    continue
                break
        members = decoding
        tokens = decoding
        reads = pairs = context + decoding
        if partial >= 0:
            new = min(partial_target - partial_at, budget - decoding)
            if new:
                old = reached.get(partial, 0)
                if partial_at < old:
                    recomputed += min(old, partial_at + new) - partial_at
                pairs += new * partial_at + new * (new + 1) // 2
                partial_at += new
                reads += partial_at
                tokens += new
                members += 1
                if partial_at == partial_target:
                    joined.append((partial, partial_at))
                if shared:
                    pool.keep(partial, partial_at)
                if partial_at == partial_target:
                    partial = NEVER
            room = budget - tokens

        # waiting requests
        waiting = len(front) + came - admitted_to
        if waiting and not fewer:
            while waiting and room > 0 and len(running) < seats:
                resumed = bool(front)
                if resumed:
                    head = front[0]
                    target = targets[head]
                else:
                    head = admitted_to
                    target = prompts[head]
                found = loose = 0
                if caching and (resumed or shared):
                    found, loose = pool.find(head, target)
                start = found * size
                new = target - start
                if new > room:
                    if not chunked:
                        break
                    new = room
                end = start + new
                held = -(-end // size)
                need = (-(-target // size) if whole else held) - found + loose
                if need + (watermark if running else 0) > pool.free:
                    break
                waiting -= 1
                running[head] = NEVER
                if resumed:
                    front.popleft()
                    if caching:
                        resumed_queries += target
                        resumed_hits += start
                    old = reached[head]
                    if start < old:
                        recomputed += min(old, end) - start
                else:
                    admitted_to += 1
                    scheduled[head] = begins
                    if caching:
                        queries += target
                        hits += start
                        if start:
                            cached_tokens[head] = start
                if found or shared:
                    pool.adopt(head, found)
                pool.free -= held - found
                pool.owed += held - found
                if shared:
                    pool.keep(head, end)
                room -= new
                tokens += new
                members += 1
                reads += end
                pairs += new * start + new * (new + 1) // 2
                if end == target:
                    joined.append((head, end))
                else:
                    partial, partial_at, partial_target = head, end, target

        # the step is scheduled
        now += clock_step(Batch(tokens, members, reads, pairs))
        scheduled_tokens += tokens
        if not tokens:
            empty_steps += 1
        finished_since = False
        used = total - pool.free
        if used > peak_used:
            peak_used = used
        if len(running) > peak_running:
            peak_running = len(running)
        if waiting > peak_waiting:
            peak_waiting = waiting
        if record:
            record(
                Step(
                    steps - 1, begins, len(running), waiting, tokens, members, used, fewer, decoding + len(joined), now
                )
            )
        ending: list[tuple[int, int]] = []
        context += decoding
        while ends and ends[0] >> SHIFT <= counter:
            top = heappop(ends)
            owner = top & LOW
            if running.get(owner) != counter or top >> SHIFT < counter:
                continue
            running[owner] = NEVER
            last = prompts[owner] + outputs[owner]
            decoding -= 1
            context -= last - 1
            phase = (counter + 2 - last) % size
            phases[phase] -= 1
            phases[phase + size] -= 1
            ending.append((owner, now))
        counter += 1
        for owner, computed in joined:
            if first_token[owner] < 0:
                first_token[owner] = now
            last = prompts[owner] + outputs[owner]
            if computed + 1 >= last:
                ending.append((owner, now))
                continue
            phase = counter - computed
            running[owner] = phase + last - 2
            heappush(ends, (phase + last - 2 << SHIFT) | owner)
            decoding += 1
            context += computed
            phase %= size
            phases[phase] += 1
            phases[phase + size] += 1

        # a step is done: this one, or the one before where steps are scheduled ahead
        seen = begins
        if ahead:
            working = bool(running) or waiting > 0
            if not in_flight and (tokens or working):
                in_flight = True
                leaving = ending
                continue
            leaving, ending = ending, leaving
        for owner, when in ending:
            finished[owner] = when
            finished_since = True
            if owner in running:
                del running[owner]
                pool.give_back(owner, prompts[owner] + outputs[owner] - 1, caching=caching)
            else:
                front.remove(owner)
                pool.disown(owner)
            targets.pop(owner, None)
            reached.pop(owner, None)

    result.steps, result.empty_steps = steps, empty_steps
    result.scheduled_tokens, result.recomputed_tokens = scheduled_tokens, recomputed
    result.prefix_queries, result.prefix_hits = queries, hits
    result.resumed_queries, result.resumed_hits = resumed_queries, resumed_hits
    result.peak_running, result.peak_waiting, result.peak_used_blocks = peak_running, peak_waiting, peak_used
    result.ends = now


def _lasting(phases: list[int], size: int, at: int, decoding: int, free: int, most: int) -> int:
    """Return for how many steps, `most` at most, the free blocks last."""
    rounds = min(free // decoding, most // size)
    steps, left = rounds * size, free - rounds * decoding
    while steps < most:
        left -= phases[at]
        if left < 0:
            break
        steps += 1
        at = at + 1 if at + 1 < size else 0
    return steps


def _expand(
    record: Callable[[Step], object],
    number: int,
    begins: int,
    clock: Clock,
    running: int,
    waiting: int,
    decoding: int,
    context: int,
    used: int,
    phases: list[int],
    at: int,
    size: int,
    steps: int,
    arrivals: array[int],
    came: int,
    seen: int,
) -> None:
    """Record the steps of a jump: one by one, or where `record` takes spans by rounds of at most a block.

    `seen` is until when the first one sees who has come, `NEVER` if until it begins. A span has the blocks and the
    queue of its last step, which is where both are largest.
    """
    first = came
    span = getattr(record, "span", None)
    if span is not None:
        for done in range(0, steps, size):
            count = min(size, steps - done)
            used += decoding if count == size else sum(phases[(at + done + i) % size] for i in range(count))
            ends = begins + clock.decodes(decoding, context + decoding, count)
            last = ends - clock.decodes(decoding, context + decoding * count, 1)
            if seen == NEVER:
                came = bisect_right(arrivals, last, came)
            else:
                before = ends - clock.decodes(decoding, context + decoding * (count - 1), 2) if count > 1 else seen
                came, seen = bisect_right(arrivals, before, came), last
            span(begins, ends, count, Stretch(running, waiting + came - first, used, 0), decoding)
            begins, context = ends, context + decoding * count
        return
    for i in range(steps):
        used += phases[(at + i) % size]
        came = bisect_right(arrivals, begins if seen == NEVER else seen, came)
        seen = seen if seen == NEVER else begins
        context += decoding
        ends = begins + clock.step(Batch(decoding, decoding, context, context))
        record(Step(number + i, begins, running, waiting + came - first, decoding, decoding, used, 0, decoding, ends))
        begins = ends
