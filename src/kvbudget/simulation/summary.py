"""What a simulation says in numbers: how many run and wait, how full the cache is, how long answers take.

Every step counts as long as it lasts, an idle engine too. Decoding steps that were jumped over count together, at most
a block's worth of them, with the blocks and the queue of the last one, where both are largest. Curves keep the highest
value of each of a few hundred equal stretches of time.
"""

# ruff: noqa: SLF001 - a recorder adds up others of its kind

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.simulation.clock import SECOND
from kvbudget.simulation.results import NEVER, Stretch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvbudget.simulation.results import Result, Step

STRETCHES = 256
"""Stretches of a curve; between this many and twice as many are kept."""

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


def spread(weights: Mapping[int, int], unit: float = 1) -> Spread:
    """Return the spread of values by their weights, each value divided by `unit`."""
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
    mean = sum(value * weight for value, weight in weights.items()) / total
    p50, p95, p99, most = (mark / unit if unit != 1 else mark for mark in (*marks, values[-1]))
    return Spread(p50, p95, p99, most, mean / unit)


EMPTY = Stretch(0, 0, 0, 0)


class Curves(NamedTuple):
    """Curves over time: stretches of `seconds` each, from the beginning."""

    seconds: float
    stretches: tuple[Stretch, ...]


class Recorder:
    """Adds up steps as they come; give it to the simulation as `record`."""

    def __init__(self) -> None:
        self._running: dict[int, int] = {}
        self._waiting: dict[int, int] = {}
        self._used: dict[int, int] = {}
        self._gaps: dict[int, int] = {}
        self._stretch = SHORTEST_STRETCH
        self._curve: list[Stretch] = []
        self._ends = 0

    def __call__(self, step: Step) -> None:
        """Count a step."""
        now = Stretch(step.running, step.waiting, step.used_blocks, step.preempted)
        self.span(step.begins, step.ends, 1, now, step.outputs)

    def span(self, begins: int, ends: int, steps: int, now: Stretch, outputs: int) -> None:
        """Count steps that follow each other and differ in nothing, each of which brings `outputs` tokens."""
        self._idle(begins)
        lasted = ends - begins
        for counts, value in (
            (self._running, now.running),
            (self._waiting, now.waiting),
            (self._used, now.used_blocks),
        ):
            counts[value] = counts.get(value, 0) + lasted
        gap = lasted // steps
        self._gaps[gap] = self._gaps.get(gap, 0) + outputs * steps
        self._ends = ends
        self._draw(begins, ends, now)

    def _idle(self, until: int) -> None:
        idle = until - self._ends
        for counts in (self._running, self._waiting, self._used):
            counts[0] = counts.get(0, 0) + idle

    def _draw(self, begins: int, ends: int, now: Stretch) -> None:
        while begins >= 2 * STRETCHES * self._stretch or ends > 2 * STRETCHES * self._stretch:
            self._halve()
        first, last = begins // self._stretch, max(begins, ends - 1) // self._stretch
        self._curve += [EMPTY] * (last + 1 - len(self._curve))
        self._curve[first] = _joined(self._curve[first], now)
        for at in range(first + 1, last + 1):
            self._curve[at] = _joined(self._curve[at], now._replace(preempted=0))

    def _halve(self) -> None:
        pairs = zip(self._curve[::2], [*self._curve[1::2], EMPTY], strict=False)
        self._curve = [_joined(first, second) for first, second in pairs]
        self._stretch *= 2

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
            for mine, counts in (
                (self._running, other._running),
                (self._waiting, other._waiting),
                (self._used, other._used),
                (self._gaps, other._gaps),
            ):
                for value, weight in counts.items():
                    mine[value] = mine.get(value, 0) + weight
            self._overlay(other)
        curves = Curves(self._stretch / SECOND, tuple(self._curve))
        return Occupancy(
            spread(self._running), spread(self._waiting), spread(self._used), spread(self._gaps, SECOND), curves
        )

    def _overlay(self, other: Recorder) -> None:
        while self._stretch != other._stretch:
            (self if self._stretch < other._stretch else other)._halve()
        longest = max(len(self._curve), len(other._curve))
        for recorder in (self, other):
            recorder._curve += [EMPTY] * (longest - len(recorder._curve))
        self._curve = list(map(_joined, self._curve, other._curve))


class Occupancy(NamedTuple):
    """Who ran and waited and how many blocks were held, over time; how long steps took, over tokens."""

    running: Spread
    waiting: Spread
    used_blocks: Spread
    steps_s: Spread
    curves: Curves


def _joined(first: Stretch, second: Stretch) -> Stretch:
    return Stretch(
        max(first.running, second.running),
        max(first.waiting, second.waiting),
        max(first.used_blocks, second.used_blocks),
        first.preempted + second.preempted,
    )


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


def summarize(result: Result, occupancy: Occupancy, usable_blocks: int) -> Summary:
    """Return the summary of a simulation."""
    done = [i for i, finished in enumerate(result.finished) if finished != NEVER]
    arrival, first, finished, outputs = result.arrival, result.first_token, result.finished, result.output_tokens
    used = occupancy.used_blocks
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
        prompt_tokens=spread(_counted(result.prompt_tokens)),
        output_tokens=spread(_counted(tokens for tokens in outputs if tokens)),
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
        curves=occupancy.curves,
    )


def _seconds(times: Iterable[int]) -> Spread:
    return spread(_counted(times), SECOND)


def _counted(values: Iterable[int]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts
