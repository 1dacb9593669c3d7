"""Clocks from what was measured: a given cost, a line through measured steps, a roofline scaled to benchmarks."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from math import exp, fsum, inf, isfinite, log
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.basis import Basis
from kvbudget.errors import InputError
from kvbudget.headers.source import shown
from kvbudget.simulation.clock import SECOND, Attended, Batch, StepTime
from kvbudget.simulation.roofline import Costs, Roofline
from kvbudget.workload.files import open_trace
from kvbudget.workload.rows import json_documents

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from kvbudget.simulation.clock import Clock

_MOST = 1e9
"""No step has more tokens, or takes more milliseconds."""

FITTED = 0.07
"""Half-width of the interval of a step that was fitted to more measurements than it has unknowns, as a share of it."""

GUESSED = 0.25
"""The same where nothing is left to check the fit with."""


_ENOUGH = 3
"""Measured steps that one factor can be checked with."""


class Measured(NamedTuple):
    """A measured step: what it computed and how many seconds it took."""

    batch: Batch
    seconds: float


# --- given -------------------------------------------------------------------------------------------------------


def parse_step_time(text: str) -> StepTime:
    """Return the clock that ``BASE_MS,PER_TOKEN_US`` names.

    Raises:
        InputError: It is not two numbers.
    """
    parts = text.split(",")
    try:
        base, per_token = (float(part) for part in parts)
    except ValueError:
        raise InputError(
            f"--step-time {shown(text, 60)!r} is not understood; write BASE_MS,PER_TOKEN_US, such as 8,20 for 8 ms a "
            "step and 20 µs for each of its tokens."
        ) from None
    return StepTime(base, per_token)


def parse_points(text: str) -> tuple[Measured, ...]:
    """Return the measured steps that ``TOKENS:MS`` or ``TOKENS:CONTEXT:MS``, separated by commas, name.

    TOKENS are the requests of a decoding step, CONTEXT the tokens that they hold together.

    Raises:
        InputError: It is not of this form.
    """
    points = []
    for part in text.split(","):
        try:
            numbers = [float(number) for number in part.split(":")]
        except ValueError:
            numbers = []
        counts, last = numbers[:-1], numbers[-1:]
        good = len(counts) in (1, 2) and all(0 <= count <= _MOST for count in counts) and 0 < last[0] < _MOST
        if not good or counts[0] < 1:
            raise InputError(
                f"--step-points {shown(part, 60)!r} is not understood; write TOKENS:MS or TOKENS:CONTEXT:MS for each "
                "step, such as 1:6.2,32:36800:8.5."
            )
        tokens, context = int(counts[0]), int(counts[1]) if len(counts) > 1 else 0
        points.append(Measured(Batch(tokens, tokens, context, context), last[0] / 1000))
    return tuple(points)


# --- a line ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Line:
    """A cost for a step, for each token and for each token of context."""

    base_s: float
    per_token_s: float
    per_context_s: float

    @property
    def attended(self) -> tuple[Attended, ...]:
        """The context, as attention to all of it."""
        return (Attended(0, round(self.per_context_s * SECOND), 0),)

    def seconds_of_tokens(self, tokens: int) -> float:
        """Return base and tokens."""
        return self.base_s + self.per_token_s * tokens

    def seconds_of_requests(self, requests: int) -> float:  # noqa: ARG002 - the same signature for all costs
        """Return nothing: a decoding request is one token."""
        return 0.0


def fit_line(points: Sequence[Measured]) -> Roofline:
    """Return the clock that fits measured steps best: base, per token and per token of context, none below zero.

    Least squares on relative errors. Of the three costs those are left out that would come out negative or that the
    points cannot tell apart; the interval is ±7 %, or the largest error of the fit where that is more, or ±25 % where
    there are no more points than costs.

    Raises:
        InputError: There is no point, or one takes twice what the best fit says or more.
    """
    if not points:
        raise InputError("No measured steps; give --step-points such as 1:6.2,32:8.5.")
    rows = [(1.0, float(point.batch.tokens), float(point.batch.context)) for point in points]
    best: tuple[float, int, list[float]] | None = None
    for size in (1, 2, 3):
        for columns in combinations(range(3), size):
            costs = _least_squares(rows, [point.seconds for point in points], columns)
            if costs is None or min(costs) < 0:
                continue
            error = fsum((_dot(row, costs) / point.seconds - 1) ** 2 for row, point in zip(rows, points, strict=True))
            if best is None or error < best[0] * (1 - 1e-9) - 1e-15:  # the fewest costs
                best = (error, size, costs)
    if best is None:  # pragma: no cover - a mean always fits
        raise InputError("The measured steps fit no clock; check their numbers.")
    _, size, costs = best
    fitted = [_dot(row, costs) for row in rows]
    worst = max(abs(point.seconds / said - 1) if said else inf for said, point in zip(fitted, points, strict=True))
    _check_fit(worst)
    error = max(FITTED, worst) if len(points) > size else GUESSED
    source = f"a line through {len(points)} measured step{'s' if len(points) > 1 else ''}"
    return Roofline(Line(*costs), source=source, error=error)


def _check_fit(worst: float) -> None:
    """Refuse a clock whose interval, its largest error either way, would reach down to steps of no time."""
    if worst >= 1:
        raise InputError(
            "The measured steps contradict each other: one takes twice what the best fit to all says, or more; give "
            "steps of one deployment."
        )


def _dot(row: Sequence[float], costs: Sequence[float]) -> float:
    return fsum(x * cost for x, cost in zip(row, costs, strict=True))


def _least_squares(
    rows: Sequence[Sequence[float]], seconds: Sequence[float], columns: Sequence[int]
) -> list[float] | None:
    """Return the costs of `columns` that leave the least relative error, 0 for the others; None if none stand out."""
    scaled = [[row[column] / time for column in columns] for row, time in zip(rows, seconds, strict=True)]
    size = len(columns)
    scale = [max(abs(row[i]) for row in scaled) for i in range(size)]
    if min(scale) == 0:
        return None
    scaled = [[value / unit for value, unit in zip(row, scale, strict=True)] for row in scaled]
    matrix = [[fsum(row[i] * row[j] for row in scaled) for j in range(size)] for i in range(size)]
    right = [fsum(row[i] for row in scaled) for i in range(size)]
    for i in range(size):  # elimination with the largest pivot
        pivot = max(range(i, size), key=lambda at: abs(matrix[at][i]))
        if abs(matrix[pivot][i]) < 1e-9:  # noqa: PLR2004 - columns are scaled to 1
            return None
        matrix[i], matrix[pivot], right[i], right[pivot] = matrix[pivot], matrix[i], right[pivot], right[i]
        for below in range(i + 1, size):
            share = matrix[below][i] / matrix[i][i]
            right[below] -= share * right[i]
            for j in range(i, size):
                matrix[below][j] -= share * matrix[i][j]
    found = [0.0] * size
    for i in reversed(range(size)):
        found[i] = (right[i] - fsum(matrix[i][j] * found[j] for j in range(i + 1, size))) / matrix[i][i]
    costs = [0.0, 0.0, 0.0]
    for column, value, unit in zip(columns, found, scale, strict=True):
        costs[column] = value / unit
    return costs


# --- a roofline held to benchmarks ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scaled:
    """Costs times a factor."""

    costs: Costs
    factor: float

    @property
    def attended(self) -> tuple[Attended, ...]:
        """Attention, scaled."""
        factor = self.factor
        return tuple(
            Attended(window, round(read * factor), round(pair * factor)) for window, read, pair in self.costs.attended
        )

    def seconds_of_tokens(self, tokens: int) -> float:
        """Return the scaled seconds of the tokens."""
        return self.factor * self.costs.seconds_of_tokens(tokens)

    def seconds_of_requests(self, requests: int) -> float:
        """Return the scaled seconds of the requests."""
        return self.factor * self.costs.seconds_of_requests(requests)


def calibrate(clock: Roofline, points: Sequence[Measured], what: str = "measured steps") -> Roofline:
    """Return a clock scaled so that it is right for measured steps in the geometric mean.

    Its interval is ±7 %, or the largest error that is left where that is more; with less than three steps, which leave
    little to check with, not below what it was.

    Raises:
        InputError: There is no point, or one takes twice what the scaled clock says or more.
    """
    if not points:
        raise InputError("No measured steps to calibrate the clock with; give one.")
    ratios = [log(point.seconds * SECOND / clock.step(point.batch)) for point in points]
    mean = fsum(ratios) / len(ratios)
    worst = max(exp(abs(ratio - mean)) - 1 for ratio in ratios)
    _check_fit(worst)
    factor = exp(mean)
    error = max(FITTED, worst, clock.error if len(points) < _ENOUGH else 0.0)
    source = f"{clock.source}, times {factor:.3g} as in {what}"
    return Roofline(Scaled(clock.costs, factor), source=source, error=error)


def bench_points(paths: Iterable[Path]) -> tuple[Measured, ...]:
    """Return the mean step of each result of ``vllm bench serve``, of which a file may hold several (--append-result).

    By Little's law as many requests decode as tokens come out a second times the time between two of them; while one of
    them generates its answer, a prompt of mean length is computed for each.

    Raises:
        InputError: A file is no such result, or has no times.
        AccessError: A file may not be read.
    """
    points = []
    for path in paths:
        with open_trace(path) as (name, content):
            points += [_mean_step(name, document) for document in json_documents(name, content)]
    return tuple(points)


_TIMES = ("output_throughput", "total_input_tokens", "total_output_tokens", "completed", "mean_tpot_ms")


def _mean_step(name: str, document: Mapping[str, Any]) -> Measured:
    values = [document.get(key) for key in _TIMES]
    for key, value in zip(_TIMES, values, strict=True):
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not isfinite(value) or not 0 < value < 1e15:  # type: ignore[arg-type,operator]  # noqa: PLR2004
            raise InputError(f"{name}: has no {key} above zero; give a result of `vllm bench serve --save-result`.")
    throughput, total_in, total_out, completed, tpot_ms = (float(value) for value in values if value is not None)
    prompt, output = total_in / completed, total_out / completed
    seconds = tpot_ms / 1000
    running = max(1.0, throughput * seconds)
    context = running * (prompt + output / 2)
    prefilling = running / output
    batch = Batch(
        tokens=max(1, round(running + prefilling * prompt)),
        requests=max(1, round(running)),
        context=round(context),
        pairs=round(context + prefilling * prompt**2 / 2),
    )
    return Measured(batch, seconds)


# --- what a clock is worth -----------------------------------------------------------------------------------------


class Provenance(NamedTuple):
    """What stands beside every time that a clock gave.

    Attributes:
        basis: How the clock is known.
        source: Where it comes from, in words.
        error: The half-width of the interval of a step, and so of any sum of steps, as a share of it. How long a
            request waits in a queue that never empties is less sure, as errors add up there.
    """

    basis: Basis
    source: str
    error: float

    def interval(self, value: float) -> tuple[float, float]:
        """Return the low and the high end of a time."""
        return value * (1 - self.error), value * (1 + self.error)


def provenance(clock: Clock) -> Provenance:
    """Return what a clock is worth."""
    match clock:
        case Roofline(source=source, error=error):
            return Provenance(Basis.ESTIMATED, source, error)
        case StepTime(base=base, per_token=per_token):
            given = f"{base / 10**9:g} ms a step and {per_token / 10**6:g} µs for each of its tokens"
            return Provenance(Basis.GIVEN, given, 0.0)
    return Provenance(Basis.ASSUMED, "time counted in steps", 0.0)
