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

`loop` is written in what plain Python and numba have in common (whole numbers below 2**63, lists and heaps of them),
so that `kvbudget.simulation.compiled` runs the very same rules as machine code.
"""

# ruff: noqa: PLR1730 - a comparison in the loop costs less than a call of max

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.simulation.clock import LATEST, decodes_time, step_time, steps_until, too_late, wake
from kvbudget.simulation.results import COLUMNS, NEVER, TOTALS, Load, Result, Step
from kvbudget.simulation.runs import NOWHERE, SharedRuns, adopt, disown, find, give_back, new_queue

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Generator, Mapping, MutableSequence, Sequence

    from kvbudget.simulation.clock import Clock, Pace
    from kvbudget.simulation.prefixes import Shared
    from kvbudget.simulation.results import Row
    from kvbudget.simulation.settings import SchedulerSettings

FOREVER = (1 << 63) - 1
"""A time that does not come."""
SHIFT = 32
"""Bits of a request's number in the heap of ends, where it is not known how many come."""
LOGGED = 1024
"""Rows that the loop notes before it hands them over."""
HORIZON, RUNNING, WAITING, USED, NOTED = 0, 1, 2, 3, 4
"""What the loop is told and tells, by its place: until when to go on, how busy it is, how many rows it wrote."""
AWAY = -2
"""When a request that does not run ends, as `NEVER` is when one ends that does not decode."""
SLACK = 64
"""Ended requests that may stand among the running ones, next to as many as those."""


class Rules(NamedTuple):
    """What of the scheduler's settings the loop looks at."""

    size: int
    total: int
    seats: int
    budget: int
    watermark: int
    caching: bool
    ahead: bool
    whole: bool
    chunked: bool
    late: bool
    shift: int
    logging: bool
    finely: bool


FRESH = (AWAY, 0, 0, NOWHERE)
"""What the first four of a `Memory` are of a new request."""
Memory = tuple["MutableSequence[int]", ...]
"""What the loop remembers, in its order.

Of each request: the counter when it ends if it runs, `NEVER` if it does not decode; its tokens when it is admitted
again if it was preempted, and those that were computed before it was; its run of `kvbudget.simulation.runs`.
Of all: decoding requests by offset, twice over so that sums need not wrap around; `marks` of the queue of the free
blocks; whose prompt ends in a step, whose last token is on its way, and whose it will be after this step.
"""
Columns = tuple["array[int]", ...]
"""Of a `Result`: arrivals, prompts, outputs, scheduled, first token, finished, preemptions, cached tokens."""


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

    Raises:
        InputError: It goes on for too long.
    """
    deque(stepping(result, settings, clock, record, shared, as_served=as_served), 0)


def rules_of(settings: SchedulerSettings, shift: int, record: object, *, as_served: bool) -> Rules:
    """Return what the loop looks at."""
    return Rules(
        size=settings.cache_groups[0].block_size,
        total=settings.usable_blocks,
        seats=settings.max_num_seqs,
        budget=settings.max_num_batched_tokens,
        watermark=settings.watermark_blocks,
        caching=settings.enable_prefix_caching,
        ahead=settings.async_scheduling,
        whole=settings.scheduler_reserve_full_isl,
        chunked=settings.enable_chunked_prefill,
        late=settings.async_scheduling and as_served,
        shift=shift,
        logging=record is not None,
        finely=not hasattr(record, "rows"),
    )


def stepping(
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
    rules = rules_of(settings, SHIFT, record, as_served=as_served)
    told = [horizon, 0, 0, 0, 0]
    totals = [0] * len(TOTALS)
    rows: list[Any] = [()] * (LOGGED if rules.logging else 0)
    memory = memory_of(rules, len(result))
    held = SharedRuns(rules.size, shared) if shared else None
    for stopped in loop(rules, clock.pace, columns_of(result), memory, told, totals, rows, held):
        write(record, rows, told[NOTED])
        if stopped:
            told[HORIZON] = yield Load(told[RUNNING], told[WAITING], told[USED])
            for numbers, value in zip(memory, FRESH, strict=False):
                numbers.extend([value] * (len(result) - len(numbers)))
    write(record, rows, told[NOTED])
    take_totals(result, totals)


def memory_of(rules: Rules, requests: int) -> tuple[list[int], ...]:
    """Return what the loop remembers before it has begun."""
    return (
        *([value] * requests for value in FRESH),
        [0] * (2 * rules.size),
        [rules.total, 0, 0],
        *([0] * rules.seats for _ in range(3)),
    )


def columns_of(result: Result) -> Columns:
    """Return what the loop reads and fills in of each request."""
    return tuple(getattr(result, name) for name in COLUMNS)


def take_totals(result: Result, totals: Sequence[int]) -> None:
    """Fill in what all requests did together.

    Raises:
        InputError: They went on for too long.
    """
    if totals[-1] > LATEST:
        raise too_late()
    for name, total in zip(TOTALS, totals, strict=True):
        setattr(result, name, total)


def write(record: Callable[[Step], object] | None, rows: Sequence[Row], count: int) -> None:
    """Hand over the first `count` rows: a step a call, or together where `record` takes them so (`finely`)."""
    together = getattr(record, "rows", None)
    if together is not None:
        together(rows, count)
    elif record is not None:
        for at in range(count):
            number, _, *rest = rows[at]
            record(Step(number, *rest))


def loop(  # noqa: C901, PLR0912, PLR0915 - one loop, whose speed is that its state is in local variables
    rules: Rules,
    pace: Pace,
    columns: Columns,
    memory: Memory,
    told: MutableSequence[int],
    totals: MutableSequence[int],
    rows: MutableSequence[Row],
    shared: SharedRuns | None,
) -> Generator[bool, None, None]:
    """Simulate until nothing is left, filling in `columns` and `totals`.

    Yields:
        True at the horizon, False where `rows` are full; what is told then is in `told`, at the end too.
    """
    size, total, seats, budget, watermark, caching, ahead, whole, chunked, late, shift, logging, finely = rules
    arrivals, prompts, outputs, scheduled, first_token, finished, preemptions, cached_tokens = columns
    leaves, targets, reached, place, phases, marks, joined, leaving, ending = memory
    low = (1 << shift) - 1
    horizon = told[HORIZON]

    count = len(arrivals)
    order, running = [0 for _ in range(0)], 0  # who runs, in the order of admission, among some who have ended
    front = [0 for _ in range(0)]  # preempted requests, who wait before all that come; the first is at the end
    ends = [0 for _ in range(0)]  # when decoding requests end, by the counter
    free, owed = total, 0  # blocks that nobody holds; those given away that are not taken out of the queue yet
    queue = new_queue(marks, place)
    if shared is not None:
        shared.join(queue)
    joiners = leavers = enders = 0  # how many `joined`, `leaving` and `ending` are
    left_at = ended_at = 0  # when the step ends that brings the last token of those, and of these

    now = counter = came = admitted_to = 0  # requests before `came` have arrived, those before `admitted_to` run or ran
    seen = 0  # requests that have come until then are in the next step
    next_arrival = arrivals[0] if count else FOREVER
    decoding = context = 0  # requests, and the tokens that they have computed
    partial, partial_at, partial_target = NEVER, 0, 0  # the request whose prompt goes on
    in_flight = finished_since = False
    steps = empty_steps = scheduled_tokens = recomputed = noted = 0
    peak_running = peak_waiting = peak_used = 0
    queries = hits = resumed_queries = resumed_hits = 0

    while now <= LATEST:
        # -- who has come
        working = running > 0 or bool(front) or came > admitted_to or finished_since
        if now >= horizon or (came == count and not working and not in_flight):
            if horizon == FOREVER:
                break
            told[RUNNING], told[WAITING], told[USED] = running, len(front) + count - admitted_to, total - free
            told[NOTED] = noted
            yield True
            noted = 0
            horizon = told[HORIZON]
            count = len(arrivals)
            if came < count:
                next_arrival = arrivals[came]
            continue
        if not working and not in_flight:
            now = max(now, wake(pace, next_arrival))
            seen = now
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
            while leaves[ends[0] & low] != ends[0] >> shift:
                heappop(ends)  # it was preempted
            most = (ends[0] >> shift) + 1 - counter
            jump = most
            full = running >= seats or decoding >= budget
            if waiting and not full:
                head = front[-1] if front else admitted_to
                target = targets[head] or prompts[head]
                found = loose = 0
                if caching:
                    found, loose = find(queue, head, target, owed, shared)
                    owed = 0
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
            if leavers and (waiting or full or logging) and jump:
                jump = 1  # who leaves makes room
            if decoding * (jump // size + 1) > free:
                jump = lasting(phases, size, counter % size, decoding, free, jump)
            took = decodes_time(pace, decoding, context + decoding, jump) if jump else 0
            if horizon < FOREVER and took > horizon - now:
                jump = steps_until(pace, decoding, context + decoding, horizon - now, jump)
                took = decodes_time(pace, decoding, context + decoding, jump)
            if jump and took > next_arrival - now and not waiting and not full:
                jump = min(jump, steps_until(pace, decoding, context + decoding, next_arrival - now, jump) + late)
                took = decodes_time(pace, decoding, context + decoding, jump)
            if jump:
                at = counter % size
                if logging:
                    held, mark, known, until, used = context, now, came, seen, total - free
                    done = 0
                    while done < jump:
                        part = 1 if finely else min(size, jump - done)
                        if part == size:
                            used += decoding
                        else:
                            for i in range(part):
                                used += phases[(at + done + i) % size]
                        stop = mark + decodes_time(pace, decoding, held + decoding, part)
                        last = stop - decodes_time(pace, decoding, held + decoding * part, 1)
                        if not late:
                            until = last
                        elif part > 1:
                            until = stop - decodes_time(pace, decoding, held + decoding * (part - 1), 2)
                        while known < count and arrivals[known] <= until:
                            known += 1
                        until = last
                        behind = waiting + known - came
                        rows[noted] = (
                            steps + done, part, mark, running, behind, decoding, decoding, used, 0, decoding, stop
                        )  # fmt: skip
                        noted += 1
                        if noted == LOGGED:
                            told[NOTED] = noted
                            yield False
                            noted = 0
                        mark = stop
                        held += decoding * part
                        done += part
                if waiting or full:
                    if next_arrival <= now + took:
                        in_last = now + decodes_time(pace, decoding, context + decoding, max(jump - 1 - late, 0))
                        if late and jump == 1:
                            in_last = seen
                        at_end = came
                        while at_end < count and arrivals[at_end] <= in_last:
                            at_end += 1
                        waiting += at_end - came
                    if waiting > peak_waiting:
                        peak_waiting = waiting
                if running > peak_running:
                    peak_running = running
                if late:
                    seen = now + decodes_time(pace, decoding, context + decoding, jump - 1)
                now += took
                steps += jump
                scheduled_tokens += decoding * jump
                finished_since = False
                rounds, rest = divmod(jump, size)
                blocks = rounds * decoding + sum(phases[at : at + rest])
                if leavers:
                    free -= phases[at]
                    owed += phases[at]
                    blocks -= phases[at]
                    if total - free > peak_used:
                        peak_used = total - free
                    for i in range(leavers):
                        owner = leaving[i]
                        finished[owner] = left_at
                        leaves[owner] = AWAY
                        running -= 1
                        last = prompts[owner] + outputs[owner]
                        held, kept = -(-(last - 1) // size), (last - 1) // size if caching else 0
                        free += give_back(queue, owner, held, kept, owed, shared, True)
                        owed = 0
                    finished_since = jump == 1
                    leavers = 0
                free -= blocks
                owed += blocks
                if total - free > peak_used:
                    peak_used = total - free
                context += decoding * jump
                counter += jump
                if jump == most:
                    while ends and ends[0] >> shift < counter:
                        top = heappop(ends)
                        owner, end = top & low, top >> shift
                        if leaves[owner] != end:
                            continue
                        last = prompts[owner] + outputs[owner]
                        decoding -= 1
                        context -= last - 1
                        phase = (end + 2 - last) % size
                        phases[phase] -= 1
                        phases[phase + size] -= 1
                        if ahead:
                            leaves[owner] = NEVER
                            leaving[leavers] = owner
                            leavers += 1
                            left_at = now
                            continue
                        finished[owner] = now
                        finished_since = True
                        leaves[owner] = AWAY
                        running -= 1
                        held, kept = -(-(last - 1) // size), (last - 1) // size if caching else 0
                        free += give_back(queue, owner, held, kept, owed, shared, True)
                        owed = 0
                continue

        # -- one step
        steps += 1
        if not working:
            now += step_time(pace, 0, 0, 0, 0)
            in_flight = False  # the last, empty step is done
            continue
        begins = now
        room = budget
        fewer = 0  # preempted

        # running requests
        demand = phases[counter % size]
        more = 0
        if partial >= 0:
            new = min(partial_target - partial_at, room - decoding)
            more = -(-(partial_at + new) // size) - -(-partial_at // size)
        if demand + more <= free:
            free -= demand + more
            owed += demand + more
        else:
            # in order, each takes its block or the last one loses its own
            for owner in list(order):
                end = leaves[owner]
                if end == AWAY:
                    continue
                new = 1
                if owner == partial:
                    new = min(partial_target - partial_at, room)
                    need = -(-(partial_at + new) // size) - -(-partial_at // size)
                elif end == NEVER:
                    new = need = 0  # its last token is on its way
                else:
                    need = 0 if (counter - end - 2 + prompts[owner] + outputs[owner]) % size else 1
                while need > free:
                    victim = order.pop()
                    while leaves[victim] == AWAY:
                        victim = order.pop()
                    end, leaves[victim] = leaves[victim], AWAY
                    running -= 1
                    fewer += 1
                    preemptions[victim] += 1
                    front.append(victim)
                    last = prompts[victim] + outputs[victim]
                    if victim == partial:
                        computed, kept, target = partial_at, partial_at // size, partial_target
                        partial = NEVER
                    else:
                        target = targets[victim] or prompts[victim]
                        if end == NEVER:
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
                    if computed > reached[victim]:
                        reached[victim] = computed
                    held, kept = -(-computed // size), kept if caching else 0
                    free += give_back(queue, victim, held, kept, owed, shared, False)
                    owed = 0
                    if victim == owner:
                        need = new = 0
                free -= need
                owed += need
                room -= new
        members = decoding
        tokens = decoding
        reads = context + decoding
        pairs = reads
        if partial >= 0:
            new = min(partial_target - partial_at, budget - decoding)
            if new:
                old = reached[partial]
                if partial_at < old:
                    recomputed += min(old, partial_at + new) - partial_at
                pairs += new * partial_at + new * (new + 1) // 2
                partial_at += new
                reads += partial_at
                tokens += new
                members += 1
                if shared is not None:
                    shared.keep(partial, partial_at)
                if partial_at == partial_target:
                    joined[joiners] = partial
                    joiners += 1
                    partial = NEVER
        room = budget - tokens

        # waiting requests
        waiting = len(front) + came - admitted_to
        if waiting and not fewer:
            while waiting and room > 0 and running < seats:
                resumed = len(front) > 0
                head = front[-1] if resumed else admitted_to
                target = targets[head] if resumed else prompts[head]
                found = loose = 0
                if caching and (resumed or shared is not None):
                    found, loose = find(queue, head, target, owed, shared)
                    owed = 0
                start = found * size
                new = target - start
                if new > room:
                    if not chunked:
                        break
                    new = room
                end = start + new
                held = -(-end // size)
                need = (-(-target // size) if whole else held) - found + loose
                if need + (watermark if running else 0) > free:
                    break
                waiting -= 1
                running += 1
                leaves[head] = NEVER
                if len(order) > 2 * running + SLACK:
                    order = those_left(order, leaves)
                order.append(head)
                if resumed:
                    front.pop()
                    if caching:
                        resumed_queries += target
                        resumed_hits += start
                    old = reached[head]
                    if start < old:
                        recomputed += min(old, end) - start
                    adopt(queue, head)
                else:
                    admitted_to += 1
                    scheduled[head] = begins
                    if caching:
                        queries += target
                        hits += start
                        if start:
                            cached_tokens[head] = start
                free -= held - found + loose
                owed += held - found
                if shared is not None:
                    shared.adopt(head, found=found > 0)
                    shared.keep(head, end)
                room -= new
                tokens += new
                members += 1
                reads += end
                pairs += new * start + new * (new + 1) // 2
                if end == target:
                    joined[joiners] = head
                    joiners += 1
                else:
                    partial, partial_at, partial_target = head, end, target

        # the step is scheduled
        now += step_time(pace, tokens, members, reads, pairs)
        scheduled_tokens += tokens
        if not tokens:
            empty_steps += 1
        finished_since = False
        used = total - free
        if used > peak_used:
            peak_used = used
        if running > peak_running:
            peak_running = running
        if waiting > peak_waiting:
            peak_waiting = waiting
        if logging:
            given = decoding + joiners
            rows[noted] = (steps - 1, 1, begins, running, waiting, tokens, members, used, fewer, given, now)
            noted += 1
            if noted == LOGGED:
                told[NOTED] = noted
                yield False
                noted = 0
        context += decoding
        while ends and ends[0] >> shift <= counter:
            top = heappop(ends)
            owner = top & low
            if leaves[owner] != counter or top >> shift < counter:
                continue
            leaves[owner] = NEVER
            last = prompts[owner] + outputs[owner]
            decoding -= 1
            context -= last - 1
            phase = (counter + 2 - last) % size
            phases[phase] -= 1
            phases[phase + size] -= 1
            ending[enders] = owner
            enders += 1
        counter += 1
        for i in range(joiners):
            owner = joined[i]
            computed = targets[owner] or prompts[owner]
            if first_token[owner] < 0:
                first_token[owner] = now
            last = prompts[owner] + outputs[owner]
            if computed + 1 >= last:
                ending[enders] = owner
                enders += 1
                continue
            phase = counter - computed
            leaves[owner] = phase + last - 2
            heappush(ends, (phase + last - 2 << shift) | owner)
            decoding += 1
            context += computed
            phase %= size
            phases[phase] += 1
            phases[phase + size] += 1
        joiners = 0
        ended_at = now

        # a step is done: this one, or the one before where steps are scheduled ahead
        seen = begins
        if ahead:
            leaving, ending = ending, leaving
            leavers, enders = enders, leavers
            left_at, ended_at = ended_at, left_at
            if not in_flight and (tokens or running > 0 or waiting > 0):
                in_flight = True
                continue
        for i in range(enders):
            owner = ending[i]
            finished[owner] = ended_at
            finished_since = True
            if leaves[owner] != AWAY:
                leaves[owner] = AWAY
                running -= 1
                last = prompts[owner] + outputs[owner]
                held, kept = -(-(last - 1) // size), (last - 1) // size if caching else 0
                free += give_back(queue, owner, held, kept, owed, shared, True)
                owed = 0
            else:
                front.remove(owner)
                disown(queue, owner, shared)
        enders = 0

    told[NOTED] = noted
    for i, value in enumerate((
        steps, empty_steps, scheduled_tokens, recomputed, queries, hits, resumed_queries, resumed_hits,
        peak_running, peak_waiting, peak_used, now,
    )):  # fmt: skip
        totals[i] = value


def those_left(order: list[int], leaves: Sequence[int]) -> list[int]:
    """Return who of `order` still runs."""
    return [owner for owner in order if leaves[owner] != AWAY]


def lasting(phases: Sequence[int], size: int, at: int, decoding: int, free: int, most: int) -> int:
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
