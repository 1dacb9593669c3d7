"""A workload as options say it: a trace, or a rate and lengths; open, or users who wait for their answers.

```
--rate 10 --requests 10000 --prompt-tokens lognormal:1024:4096 --output-tokens 256
--rate 4 --burstiness 0.5 --prefix 0.8:4:2000 --trace lengths.csv
--users 64 --think-time 5 --turns 4
```
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from math import inf, isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.headers.source import shown
from kvbudget.units import parse_tokens
from kvbudget.workload.arrivals import NO_PREFIXES, ClosedLoop, Prefixes, ThinkTime, arrivals, open_requests
from kvbudget.workload.lengths import MAX_TOKENS, Bootstrap, Constant, Independent, Lengths, Lognormal, Pair, Uniform
from kvbudget.workload.recorded import Profile, Trace
from kvbudget.workload.traces import read_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random

    from kvbudget.workload.lengths import Pairs
    from kvbudget.workload.request import Request

DEFAULT_REQUESTS = 10_000
MAX_REQUESTS = 10**10
MAX_USERS = 1 << 24
MAX_TURNS = 1000
"""Turns of a conversation; each one's prompt names all before it."""
MAX_HELD = 1 << 24
"""Requests of a trace whose lengths are kept to draw from; more are cut off, and the workload says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """A workload as options say it; None and False stand for an option that was not given.

    Args:
        rate: Requests a second, with `turns` conversations that begin in a second; ``inf`` sends all at once.
        requests: How many requests there are.
        prompt_tokens: Lengths of prompts: ``1024``, ``uniform:16:4096``, ``lognormal:MEDIAN:P95[:MOST]``.
        output_tokens: The same for answers.
        burstiness: Shape of the distances between arrivals; 1 is Poisson, below 1 bursts, ``inf`` even.
        prefix: ``SHARE:COUNT:TOKENS``: the part of the requests with one of so many system prompts of that length.
        users: Users of a closed loop.
        think_time: Seconds between an answer and the user's next request: a mean, or ``constant:SECONDS``.
        turns: Turns of a conversation, a length as above.
        trace: A file whose requests are played, or with `rate` or `users` only their lengths.
        trace_format: What the file is, where its content does not tell.
        bootstrap: Draw lengths from the trace with replacement instead of in its order.
        time_scale: Play the trace's arrivals so many times as fast.
        seed: What chance begins with; the same seed gives the same requests.
    """

    rate: str | None = None
    requests: str | None = None
    prompt_tokens: str | None = None
    output_tokens: str | None = None
    burstiness: str | None = None
    prefix: str | None = None
    users: str | None = None
    think_time: str | None = None
    turns: str | None = None
    trace: str | None = None
    trace_format: str | None = None
    bootstrap: bool = False
    time_scale: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What arrives, described; each call of `stream` or `loop` begins anew with the same requests.

    Attributes:
        description: One line for a report.
        notes: What the reader must know of it, a sentence each.
        rate: Requests a second, None where arrivals come from a trace, depend on answers or are all at once.
        closed: Whether it is a closed loop (`loop`) and no stream.
        source: The trace, if there is one; it counts what it left out.
        asked: How many requests were asked for, where a trace may have fewer.
    """

    description: str
    notes: tuple[str, ...] = ()
    rate: float | None = None
    source: Trace | None = None
    asked: int | None = None
    _stream: Callable[[], Iterator[Request]] | None = None
    _loop: Callable[[], ClosedLoop] | None = None

    @property
    def closed(self) -> bool:
        """Whether arrivals depend on when requests finish."""
        return self._loop is not None

    def stream(self) -> Iterator[Request]:
        """Return the requests by rising arrival.

        Raises:
            InputError: It is a closed loop, or its trace is broken.
        """
        if self._stream is None:
            raise InputError("A closed loop has no stream of requests; use its loop.")
        return self._stream()

    def loop(self) -> ClosedLoop:
        """Return the users.

        Raises:
            InputError: It is no closed loop.
        """
        if self._loop is None:
            raise InputError("An open workload has no users; use its stream.")
        return self._loop()

    def remarks(self, requests: int) -> tuple[str, ...]:
        """Return what is to be said of its trace once it was read, and had so many requests."""
        if self.source is None:
            return ()
        name, left_out, found = self.source.name, self.source.left_out, []
        if self.asked is not None and requests < self.asked:
            found.append(f"Requests of {name}: {requests:,}, fewer than the {self.asked:,} of --requests.")
        if left_out and (self.asked is None or requests < self.asked):
            found.append(
                f"Rows of {name} that are left out (nothing asked or generated, failed, warming up): {left_out:,}."
            )
        return tuple(found)


def parse_workload(spec: WorkloadSpec, source: Trace | Profile | None = None) -> Workload:
    """Return the workload that options describe.

    Args:
        spec: The options.
        source: What its trace holds, where that was read before.

    Raises:
        InputError: An option is not understood, contradicts another or is missing; or the trace is broken.
        AccessError: The trace may not be read.
    """
    count = _count(spec.requests, "--requests", MAX_REQUESTS)
    if source is None and spec.trace is not None:
        source = read_trace(Path(spec.trace), spec.trace_format)
    _check(spec, source)
    if isinstance(source, Trace) and source.timed and spec.rate is None and spec.users is None:
        return _played(spec, source, count)
    if isinstance(source, Trace) and spec.users is None and not spec.bootstrap:
        return _timed_anew(spec, source, count)
    pairs, notes, what = _pairs(spec, source)
    if spec.users is not None or spec.turns is not None:
        return _closed(spec, source, count or DEFAULT_REQUESTS, pairs, notes, what)
    rate, burstiness = _rate(spec, source), _burstiness(spec)
    prefixes = parse_prefix(spec.prefix)

    def stream() -> Iterator[Request]:
        rng = _random(spec.seed)
        times = arrivals(rate, burstiness, _random(spec.seed + 1))
        return islice(open_requests(times, pairs, prefixes, rng), count or DEFAULT_REQUESTS)

    several = f"{count or DEFAULT_REQUESTS:,} requests"
    return Workload(
        description=f"{several}, {_arriving(rate, burstiness)}, {what}{_sharing(prefixes)}",
        notes=notes, rate=_finite(rate), source=source if isinstance(source, Trace) else None, _stream=stream,
    )  # fmt: skip


def _finite(rate: float) -> float | None:
    return rate if isfinite(rate) else None


def _random(seed: int) -> Random:
    from random import Random  # noqa: PLC0415 - slow to import

    return Random(seed)  # noqa: S311 - no secrets here


def _check(spec: WorkloadSpec, source: Trace | Profile | None) -> None:
    """Refuse options that contradict each other or do nothing."""
    timed = isinstance(source, Trace) and source.timed
    if type(spec.seed) is not int:  # which every other value would be taken for, but not the same one each time
        raise InputError(f"--seed is {spec.seed!r}; give a whole number.")
    if spec.users is not None and spec.rate is not None:
        raise InputError(
            "--users and --rate: users send when they have their answer, not at a rate; give one of the two."
        )
    if spec.think_time is not None and spec.users is None and spec.turns is None:
        raise InputError("--think-time is between a user's requests; give --users or --turns too.")
    if spec.burstiness is not None and spec.rate is None:
        raise InputError("--burstiness shapes arrivals at a rate; give --rate too.")
    if spec.time_scale is not None and (not timed or spec.rate is not None or spec.users is not None):
        raise InputError("--time-scale plays a trace's own arrivals faster or slower; give a --trace with times alone.")
    if source is None and spec.trace_format is not None:
        raise InputError("--trace-format says what --trace is; give --trace too.")
    if source is None and spec.bootstrap:
        raise InputError("--bootstrap draws from --trace; give --trace too.")
    if source is not None and (spec.prompt_tokens is not None or spec.output_tokens is not None):
        raise InputError("--prompt-tokens and --output-tokens: the lengths come from --trace; give one of the two.")


# --- workloads out of traces -------------------------------------------------------------------------------------


def _played(spec: WorkloadSpec, trace: Trace, count: int | None) -> Workload:
    if spec.prefix is not None or spec.turns is not None or spec.bootstrap:
        raise InputError(
            "--prefix, --turns and --bootstrap need arrivals of their own; give --rate or --users with them."
        )
    scale = _positive(spec.time_scale, "--time-scale", "2") if spec.time_scale is not None else 1.0

    def stream() -> Iterator[Request]:
        requests = _some(trace, spec.seed, count)
        if scale == 1:
            return requests
        return (request._replace(arrival=request.arrival / scale) for request in requests)

    speed = f", {scale:g} times as fast" if scale != 1 else ""
    some = f"the first {count:,} requests of " if count else ""
    return Workload(
        description=f"{some}{trace.name} ({trace.format}) as recorded{speed}",
        notes=trace.notes,
        source=trace,
        asked=count,
        _stream=stream,
    )


def _some(trace: Trace, seed: int, count: int | None) -> Iterator[Request]:
    """Yield the first requests of a trace, all for None.

    Raises:
        InputError: There is none.
    """
    requests = islice(trace.requests(seed), count)
    first = next(requests, None)
    if first is None:
        raise InputError(
            f"{trace.name}: has no request that generates something (rows left out: {trace.left_out:,}); give another "
            "trace."
        )
    yield first
    yield from requests


def _timed_anew(spec: WorkloadSpec, trace: Trace, count: int | None) -> Workload:
    """A trace's requests in its order, with what they share, at arrivals of a rate."""
    if spec.turns is not None or spec.prefix is not None:
        raise InputError("--turns and --prefix with --trace need lengths drawn from it; add --bootstrap.")
    rate, burstiness = _rate(spec, trace), _burstiness(spec)

    def stream() -> Iterator[Request]:
        times = arrivals(rate, burstiness, _random(spec.seed + 1))
        requests = _some(trace, spec.seed, count)
        return (request._replace(arrival=now) for request, now in zip(requests, times, strict=False))

    some = f"the first {count:,} requests of " if count else ""
    return Workload(
        description=f"{some}{trace.name} ({trace.format}), {_arriving(rate, burstiness)}",
        notes=trace.notes, rate=_finite(rate), source=trace, asked=count, _stream=stream,
    )  # fmt: skip


def _pairs(spec: WorkloadSpec, source: Trace | Profile | None) -> tuple[Pairs, tuple[str, ...], str]:
    """Return lengths, notes, and words for both."""
    if source is None:
        if spec.prompt_tokens is None or spec.output_tokens is None:
            raise InputError("How long are the requests? Give --prompt-tokens and --output-tokens, or a --trace.")
        prompt = parse_lengths(spec.prompt_tokens, "--prompt-tokens")
        output = parse_lengths(spec.output_tokens, "--output-tokens")
        return Independent(prompt, output), (), f"{_words(prompt)} tokens in, {_words(output)} out"
    if isinstance(source, Profile):
        return Independent(source.prompt, source.output), source.notes, f"lengths as in {source.name} ({source.format})"
    held = [Pair(item.prompt_tokens, item.output_tokens) for item in islice(source.requests(spec.seed), MAX_HELD + 1)]
    if not held:
        raise InputError(f"{source.name}: has no requests to draw lengths from; give another trace.")
    notes = source.notes
    if len(held) > MAX_HELD:
        held.pop()
        notes += (f"Lengths are drawn from the first {MAX_HELD:,} requests of {source.name}.",)
    return Bootstrap(held), notes, f"lengths drawn from {source.name} ({source.format})"


def _closed(
    spec: WorkloadSpec,
    source: Trace | Profile | None,
    count: int,
    pairs: Pairs,
    notes: tuple[str, ...],
    what: str,
) -> Workload:
    """Users who come back, or with a rate conversations that begin at it."""
    prefixes = parse_prefix(spec.prefix)
    pause = _think_time(spec.think_time)
    turns = parse_lengths(spec.turns, "--turns", most=MAX_TURNS) if spec.turns is not None else Constant(1)
    talk = f" in conversations of {_words(turns)} turns" if spec.turns is not None else ""
    rate = burstiness = None
    if spec.users is None:
        rate, burstiness = _rate(spec, source), _burstiness(spec)
    users = _count(spec.users, "--users", MAX_USERS) or count

    def loop() -> ClosedLoop:
        chance = _random(spec.seed + 1)
        begin = arrivals(rate, burstiness, chance) if rate and burstiness else pause.starts(min(users, count), chance)
        return ClosedLoop(
            users=users, requests=count, pairs=pairs, think_time=pause, turns=turns, prefixes=prefixes,
            rng=_random(spec.seed), starts=begin, one_talk=rate is not None,
        )  # fmt: skip

    who = f"{users:,} users" if rate is None or burstiness is None else f"users {_arriving(rate, burstiness)}"
    thinking = f" who think {'' if pause.constant else 'on average '}{pause.mean:g} s" if pause.mean else ""
    return Workload(
        description=f"{count:,} requests{talk} of {who}{thinking}, {what}{_sharing(prefixes)}",
        notes=notes, source=source if isinstance(source, Trace) else None, _loop=loop,
    )  # fmt: skip


# --- options -----------------------------------------------------------------------------------------------------

_LENGTHS = "1024, uniform:16:4096 or lognormal:1024:4096 (median and 95th percentile)"


def parse_lengths(text: str, what: str, *, most: int | None = None) -> Lengths:
    """Return the distribution that `text` names: ``N``, ``uniform:LOW:HIGH`` or ``lognormal:MEDIAN:P95[:MOST]``.

    Raises:
        InputError: It is none of these, or a number in it is more than `most`.
    """
    kind, *parts = text.split(":") if ":" in text else ("constant", text)
    numbers = [_tokens(part, what) for part in parts]
    if most is not None and max(numbers, default=0) > most:
        raise InputError(f"{what} {shown(text, 60)} is more than {most:,}; give fewer.")
    match kind.strip().casefold(), numbers:
        case "constant", [tokens]:
            return Constant(tokens)
        case "uniform", [low, high] if low <= high:
            return Uniform(low, high)
        case "lognormal", [median, p95] if median <= p95:
            return Lognormal(median, p95)
        case "lognormal", [median, p95, longest] if median <= p95 and median <= longest:
            return Lognormal(median, p95, longest)
        case (("uniform" | "lognormal"), [first, second, *_]) if first > second:
            raise InputError(f"{what} {shown(text, 60)}: the second number is smaller than the first; swap them.")
    raise InputError(f"{what} {shown(repr(text), 60)} is not understood; write {_LENGTHS}.")


def _tokens(text: str, what: str) -> int:
    tokens = parse_tokens(text, what=what)
    if tokens > MAX_TOKENS:
        raise InputError(f"{what} {shown(text, 40)} is more than {MAX_TOKENS:,} tokens; check the suffix.")
    return tokens


def parse_prefix(text: str | None) -> Prefixes:
    """Return the shared prefixes that ``SHARE:COUNT:TOKENS`` names; None are none.

    Raises:
        InputError: It is not of this form.
    """
    if text is None:
        return NO_PREFIXES
    parts = text.split(":")
    try:
        share = float(parts[0])
        count, tokens = (_tokens(part, "--prefix") for part in parts[1:])
    except ValueError as error:  # which InputError is too
        raise _no_prefix(text) from error
    if not 0 <= share <= 1:
        raise InputError(f"--prefix {shown(text, 60)}: the share {share:g} is not between 0 and 1; write 0.8 for 80 %.")
    return Prefixes(share, count, tokens)


def _no_prefix(text: str) -> InputError:
    return InputError(
        f"--prefix {shown(repr(text), 60)} is not understood; write SHARE:COUNT:TOKENS, such as 0.8:4:2000 for 80 % of "
        "the requests with one of 4 system prompts of 2,000 tokens."
    )


def _positive(text: str, what: str, example: str, *, infinite: bool = False, zero: bool = False) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    good = (value > 0 or (zero and value == 0)) and (isfinite(value) or (infinite and value == inf))
    if not good or (isfinite(value) and value > 1e12) or 0 < value < 1e-12:  # noqa: PLR2004 - typing errors
        least = "from 0 on" if zero else "above 0"
        raise InputError(f"{what} {shown(repr(text), 40)} is no number {least}; write for example {example}.")
    return value


def _count(text: str | None, what: str, most: int) -> int | None:
    if text is None:
        return None
    value = parse_tokens(text, what=what)
    if value > most:
        raise InputError(f"{what} {shown(text, 40)} is more than {most:,}; give fewer.")
    return value


def _rate(spec: WorkloadSpec, source: Trace | Profile | None) -> float:
    if spec.rate is not None:
        return _positive(spec.rate, "--rate", "10, or inf for all at once", infinite=True)
    if isinstance(source, Profile) and source.rate is not None:
        return source.rate
    raise InputError("How often do requests come? Give --rate, --users, or a --trace with times.")


def _burstiness(spec: WorkloadSpec) -> float:
    if spec.burstiness is None:
        return 1.0
    value = _positive(spec.burstiness, "--burstiness", "0.5 for bursts, 1 for Poisson, inf for even", infinite=True)
    if value < 1e-3:  # noqa: PLR2004 - a gamma distribution of this shape is zeros and one huge pause
        raise InputError(f"--burstiness {value:g} is below 0.001, where all requests come in one burst; give more.")
    return value


def _think_time(text: str | None) -> ThinkTime:
    if text is None:
        return ThinkTime(0.0)
    kind, colon, seconds = text.rpartition(":")
    if colon and kind != "constant":
        raise InputError(f"--think-time {shown(repr(text), 40)} is not understood; write seconds, or constant:SECONDS.")
    return ThinkTime(_positive(seconds, "--think-time", "5, or constant:5", zero=True), constant=bool(colon))


# --- words -------------------------------------------------------------------------------------------------------


def _words(lengths: Lengths) -> str:
    match lengths:
        case Constant(tokens):
            return f"{tokens:,}"
        case Uniform(low, high):
            return f"{low:,} to {high:,}"
        case Lognormal(median, p95):
            return f"{median:,g} (p95 {p95:,g})"
    return type(lengths).__name__.lower()  # pragma: no cover - options make no others


def _arriving(rate: float, burstiness: float) -> str:
    if rate == inf:
        return "all at once"
    how = {1.0: "Poisson", inf: "evenly"}.get(burstiness, f"burstiness {burstiness:g}")
    return f"{rate:g} a second ({how})"


def _sharing(prefixes: Prefixes) -> str:
    if not prefixes.different:
        return ""
    return f", {prefixes.share:.0%} with one of {prefixes.different:,} prefixes of {prefixes.tokens:,} tokens"
