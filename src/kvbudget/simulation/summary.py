"""What a simulation says in numbers: how many run and wait, how full the cache is, how long answers take.

Every step counts as long as it lasts, an idle engine too. Decoding steps that were jumped over count together, at most
a block's worth of them, with the blocks and the queue of the last one, where both are largest. Curves keep the highest
value of each of a few hundred equal stretches of time.
"""

# ruff: noqa: SLF001, PLR1730 - a recorder adds up others of its kind; a comparison costs less than a call of max

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.simulation.clock import SECOND
from kvbudget.simulation.results import NEVER, Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping, MutableSequence, Sequence

    from kvbudget.simulation.results import Result, Row, Step

STRETCHES = 256
"""Stretches of a curve; between this many and twice as many are kept."""

MICROSECOND = SECOND // 10**6
"""What the times between tokens are told to."""

CHANCE = 2
"""How many times the root of their number may wait for chance alone where as many requests come as can be done: the
root is by how much the number of Poisson arrivals is off, and twice of it is exceeded in one of twenty cases."""

SHORTEST_STRETCH = SECOND // 1000
"""A millisecond, from which stretches are doubled as time goes on."""


class Spread(NamedTuple):
    """How a quantity is distributed: at least the given share of the time (or of the requests) is at or below each."""

    p50: float
    p95: float
    p99: float
    max: float
    mean: float


NOTHING = Spread(0, 0, 0, 0, 0)


def spread(weights: Mapping[int, int]) -> Spread:
    """Return the spread of values by their weights."""
    total = sum(weights.values())
    if not total:
        return NOTHING
    values = sorted(weights)
    marks = []
    passed, at = 0, -1
    for percent in (50, 95, 99):
        while passed * 100 < percent * total:
            at += 1
            passed += weights[values[at]]
        marks.append(values[max(at, 0)])
    p50, p95, p99 = marks
    return Spread(p50, p95, p99, values[-1], sum(value * weight for value, weight in weights.items()) / total)


def spread_of(values: Iterable[int], unit: float = 1) -> Spread:
    """Return the spread of values that weigh the same, each divided by `unit`."""
    held = sorted(values)
    if not held:
        return NOTHING
    count = len(held)
    p50, p95, p99 = (held[-(-percent * count // 100) - 1] / unit for percent in (50, 95, 99))
    return Spread(p50, p95, p99, held[-1] / unit, sum(held) / count / unit)


class Curves(NamedTuple):
    """Curves over time: stretches of `seconds` each, from the beginning."""

    seconds: float
    stretches: tuple[Stretch, ...]


# -- what a recorder adds up; whole numbers, loops and tables alone, so that it can be compiled (`compiled`)


class Tally(NamedTuple):
    """What was added up so far.

    Attributes:
        running: Picoseconds by how many requests ran.
        waiting: The same by how many waited.
        used: The same by how many blocks were held.
        gaps: Tokens by the microseconds of the step that brought them.
        most_running: The most that ran in each stretch of the curves.
        most_waiting: The same of those that waited.
        most_used: The same of blocks.
        preempted: The preemptions in each stretch.
        marks: The picoseconds of a stretch, how many were drawn on, and when the last step ended.
    """

    running: MutableMapping[int, int]
    waiting: MutableMapping[int, int]
    used: MutableMapping[int, int]
    gaps: MutableMapping[int, int]
    most_running: MutableSequence[int]
    most_waiting: MutableSequence[int]
    most_used: MutableSequence[int]
    preempted: MutableSequence[int]
    marks: MutableSequence[int]


LENGTH, DRAWN, ENDED = 0, 1, 2
"""What the marks of a `Tally` are, by their place."""


def new_tally() -> Tally:
    """Return one that is empty."""
    running, waiting, used, preempted = ([0] * (2 * STRETCHES) for _ in range(4))
    return Tally({}, {}, {}, {}, running, waiting, used, preempted, [SHORTEST_STRETCH, 0, 0])


def row_at(rows: Sequence[Row], at: int) -> Row:
    """Return one of the rows; where they are a table of numbers, it is taken apart (`compiled`)."""
    return rows[at]


def add_rows(rows: Sequence[Row], count: int, tally: Tally) -> None:
    """Add up the first `count` of the rows of `kvbudget.simulation.fast`, which follow each other in time."""
    running_for, waiting_for, used_for, gaps, most_running, most_waiting, most_used, losses, marks = tally
    length, drawn, ended = marks[LENGTH], marks[DRAWN], marks[ENDED]
    for i in range(count):
        _, steps, begins, running, waiting, _, _, used, preempted, outputs, ends = row_at(rows, i)
        if begins > ended:  # idle
            running_for[0] = running_for.get(0, 0) + begins - ended
            waiting_for[0] = waiting_for.get(0, 0) + begins - ended
            used_for[0] = used_for.get(0, 0) + begins - ended
        lasted = ends - begins
        running_for[running] = running_for.get(running, 0) + lasted
        waiting_for[waiting] = waiting_for.get(waiting, 0) + lasted
        used_for[used] = used_for.get(used, 0) + lasted
        gap = (lasted // steps + MICROSECOND // 2) // MICROSECOND
        gaps[gap] = gaps.get(gap, 0) + outputs * steps
        ended = ends
        while begins >= 2 * STRETCHES * length or ends > 2 * STRETCHES * length:
            halve(tally, drawn)
            length, drawn = 2 * length, -(-drawn // 2)
        first = begins // length
        last = first if ends <= (first + 1) * length else (ends - 1) // length
        losses[first] += preempted
        for at in range(first, last + 1):
            if running > most_running[at]:
                most_running[at] = running
            if waiting > most_waiting[at]:
                most_waiting[at] = waiting
            if used > most_used[at]:
                most_used[at] = used
        if last >= drawn:
            drawn = last + 1
    marks[LENGTH], marks[DRAWN], marks[ENDED] = length, drawn, ended


def halve(tally: Tally, drawn: int) -> None:
    """Let each stretch of the curves stand for two; `drawn` of them were drawn on."""
    _, _, _, _, most_running, most_waiting, most_used, preempted, _ = tally
    for at in range(-(-drawn // 2)):
        one, other = 2 * at, min(2 * at + 1, 2 * STRETCHES - 1)
        most_running[at] = max(most_running[one], most_running[other])
        most_waiting[at] = max(most_waiting[one], most_waiting[other])
        most_used[at] = max(most_used[one], most_used[other])
        preempted[at] = preempted[one] + preempted[other]
    for at in range(-(-drawn // 2), drawn):
        most_running[at] = most_waiting[at] = most_used[at] = preempted[at] = 0


class Recorder:
    """Adds up steps as they come; give it to the simulation as `record`.

    Attributes:
        tally: What was added up.
    """

    def __init__(self) -> None:
        self.tally = new_tally()

    def __call__(self, step: Step) -> None:
        """Count a step."""
        number, begins, running, waiting, tokens, requests, used, preempted, outputs, ends = step
        row = (number, 1, begins, running, waiting, tokens, requests, used, preempted, outputs, ends)
        add_rows((row,), 1, self.tally)

    def rows(self, rows: Sequence[Row], count: int) -> None:
        """Count steps, some of which stand for several that differ in nothing."""
        add_rows(rows, count, self.tally)

    def _idle(self, until: int) -> None:
        tally = self.tally
        idle = until - tally.marks[ENDED]
        for counts in (tally.running, tally.waiting, tally.used):
            counts[0] = counts.get(0, 0) + idle

    def _halve(self) -> None:
        marks = self.tally.marks
        halve(self.tally, marks[DRAWN])
        marks[LENGTH], marks[DRAWN] = 2 * marks[LENGTH], -(-marks[DRAWN] // 2)

    def finish(self, ends: int) -> Occupancy:
        """Return what was added up, when the last step ended."""
        return self.finish_with((), ends)

    def finish_with(self, others: Iterable[Recorder], ends: int) -> Occupancy:
        """Return what was added up here and by the recorders of other engines, when the last step of any ended.

        Values are those of one engine, each engine's time counting as much; curves have the most of any engine.
        """
        self._idle(ends)
        for other in others:
            other._idle(ends)
            for mine, counts in zip(self.tally[:4], other.tally[:4], strict=True):
                for value, weight in counts.items():
                    mine[value] = mine.get(value, 0) + weight
            self._overlay(other)
        tally = self.tally
        drawn = tally.marks[DRAWN]
        stretches = zip(tally.most_running, tally.most_waiting, tally.most_used, tally.preempted, strict=True)
        curves = Curves(tally.marks[LENGTH] / SECOND, tuple(Stretch(*row) for row in islice(stretches, drawn)))
        running, waiting, used, gaps = map(spread, tally[:4])
        return Occupancy(running, waiting, used, Spread(*(gap * MICROSECOND / SECOND for gap in gaps)), curves)

    def _overlay(self, other: Recorder) -> None:
        mine, theirs = self.tally, other.tally
        while mine.marks[LENGTH] != theirs.marks[LENGTH]:
            (self if mine.marks[LENGTH] < theirs.marks[LENGTH] else other)._halve()
        drawn = mine.marks[DRAWN] = max(mine.marks[DRAWN], theirs.marks[DRAWN])
        for at in range(drawn):
            mine.most_running[at] = max(mine.most_running[at], theirs.most_running[at])
            mine.most_waiting[at] = max(mine.most_waiting[at], theirs.most_waiting[at])
            mine.most_used[at] = max(mine.most_used[at], theirs.most_used[at])
            mine.preempted[at] += theirs.preempted[at]


class Occupancy(NamedTuple):
    """Who ran and waited and how many blocks were held, over time; how long steps took, over tokens."""

    running: Spread
    waiting: Spread
    used_blocks: Spread
    steps_s: Spread
    curves: Curves


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A simulation in numbers.

    Args:
        requests: Requests of the workload.
        completed: Those that got their whole answer.
        refused: Those that the engine refuses: without a prompt, or with one that leaves no room for an answer.
        preemptions: How often a request lost its blocks.
        preempted_requests: How many requests did.
        worst_preemptions: How often the unluckiest one did.
        recomputed_tokens: Tokens that were computed a second time.
        scheduled_tokens: Tokens that were computed in all.
        generated_tokens: Tokens of the answers.
        prompt_tokens: Lengths of prompts, over requests.
        output_tokens: Lengths of answers, over requests that are not refused.
        prefix_hit_rate: The share of the prompts' tokens that was found in the cache.
        steps: Steps of the engine.
        simulated_s: Seconds until the last answer.
        running: Requests that run, over time.
        waiting: Requests that wait, over time.
        kv_used: The share of the blocks that requests hold, over time.
        ttft_s: Seconds to the first token, over requests.
        itl_s: Seconds of the step that brings a token, over tokens: the time since the one before, but for first tokens
            and those after a preemption.
        tpot_s: Seconds between a request's tokens on average, over requests with two tokens or more.
        e2e_s: Seconds to the last token, over requests.
        queue_s: Seconds until a request is first scheduled, over requests.
        backlog: Requests that had not begun when the last one came; 0 where all came at once.
        falls_behind: Whether those are more than ever ran at once and more than chance brings: then more came in than
            could be done.
        curves: Running, waiting, blocks and preemptions over time.
    """

    requests: int
    completed: int
    refused: int
    preemptions: int
    preempted_requests: int
    worst_preemptions: int
    recomputed_tokens: int
    scheduled_tokens: int
    generated_tokens: int
    prompt_tokens: Spread
    output_tokens: Spread
    prefix_hit_rate: float
    steps: int
    simulated_s: float
    running: Spread
    waiting: Spread
    kv_used: Spread
    ttft_s: Spread
    itl_s: Spread
    tpot_s: Spread
    e2e_s: Spread
    queue_s: Spread
    backlog: int
    falls_behind: bool
    curves: Curves

    @property
    def unfinished(self) -> int:
        """Requests that the engine ended with an error before they had their answer."""
        return self.requests - self.completed - self.refused

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain data, without the curves."""
        names = [name for name in self.__dataclass_fields__ if name != "curves"]
        values = {name: getattr(self, name) for name in names}
        return {name: value._asdict() if isinstance(value, Spread) else value for name, value in values.items()}


def summarize(
    result: Result, occupancy: Occupancy, usable_blocks: int, engines: int = 1, *, closed: bool = False
) -> Summary:
    """Return the summary of a simulation.

    Args:
        result: What became of the requests.
        occupancy: Who ran and waited.
        usable_blocks: Blocks of one engine.
        engines: How many shared the requests.
        closed: Whether a request came when another was answered, so that no more came than could be done.
    """
    done = [i for i, finished in enumerate(result.finished) if finished != NEVER]
    arrival, first, finished, outputs = result.arrival, result.first_token, result.finished, result.output_tokens
    used, backlog = occupancy.used_blocks, _backlog(result)
    return Summary(
        requests=len(result),
        completed=len(done),
        refused=result.refused,
        preemptions=result.total_preemptions,
        preempted_requests=sum(count > 0 for count in result.preemptions),
        worst_preemptions=max(result.preemptions, default=0),
        recomputed_tokens=result.recomputed_tokens,
        scheduled_tokens=result.scheduled_tokens,
        generated_tokens=sum(outputs[i] for i in done),
        prompt_tokens=spread_of(result.prompt_tokens),
        output_tokens=spread_of(tokens for tokens in outputs if tokens),
        prefix_hit_rate=result.prefix_hits / result.prefix_queries if result.prefix_queries else 0.0,
        steps=result.steps,
        simulated_s=result.ends / SECOND,
        running=occupancy.running,
        waiting=occupancy.waiting,
        kv_used=Spread(*(value / usable_blocks for value in used)),
        ttft_s=_seconds(first[i] - arrival[i] for i in done),
        itl_s=occupancy.steps_s,
        tpot_s=_seconds((finished[i] - first[i]) // (outputs[i] - 1) for i in done if outputs[i] > 1),
        e2e_s=_seconds(finished[i] - arrival[i] for i in done),
        queue_s=_seconds(result.scheduled[i] - arrival[i] for i in done),
        backlog=backlog,
        falls_behind=not closed and backlog > max(engines * occupancy.running.max, CHANCE * sqrt(len(result))),
        curves=occupancy.curves,
    )


def _backlog(result: Result) -> int:
    last = max(result.arrival, default=0)
    if last == min(result.arrival, default=0):
        return 0
    return sum(
        1 for begins, tokens in zip(result.scheduled, result.output_tokens, strict=True) if tokens and begins > last
    )


def _seconds(times: Iterable[int]) -> Spread:
    return spread_of(times, SECOND)
