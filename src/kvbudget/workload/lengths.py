"""How many tokens a prompt and an answer have: distributions that are drawn from, one request at a time.

Every draw is a whole number of at least one token. The same generator in the same state gives the same lengths.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from random import Random

MAX_TOKENS = 1 << 30
"""No request is so long."""

_P95 = 1.6448536269514722
"""The 95th percentile of a normal distribution with deviation 1."""


class Lengths(Protocol):
    """Lengths of prompts, or of answers."""

    def draw(self, rng: Random) -> int:
        """Return the next length in tokens, at least 1."""


class Pair(NamedTuple):
    """The lengths of one request."""

    prompt: int
    output: int


class Pairs(Protocol):
    """Lengths of whole requests, where prompt and answer may belong together."""

    def draw(self, rng: Random) -> Pair:
        """Return the lengths of the next request."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Always the same."""

    tokens: int

    def draw(self, rng: Random) -> int:  # noqa: ARG002 - the same signature for all
        """Return the length."""
        return self.tokens


@dataclass(frozen=True, slots=True)
class Uniform:
    """Every length from `low` to `high`, both included, equally likely."""

    low: int
    high: int

    def draw(self, rng: Random) -> int:
        """Return the next length."""
        return self.low + int(rng.random() * (self.high - self.low + 1))


@dataclass(frozen=True, slots=True)
class Lognormal:
    """A lognormal distribution by its median and 95th percentile, rounded to whole tokens and cut at `most`."""

    median: float
    p95: float
    most: int = MAX_TOKENS

    def draw(self, rng: Random) -> int:
        """Return the next length."""
        deviation = log(self.p95 / self.median) / _P95
        drawn = log(self.median) + deviation * rng.gauss(0.0, 1.0)
        return max(1, min(self.most, round(exp(min(drawn, log(MAX_TOKENS))))))


@dataclass(frozen=True, slots=True)
class Histogram:
    """Lengths counted in buckets; inside a bucket every length is taken as equally likely.

    Attributes:
        edges: The upper edge of each bucket, included in it, rising.
        shares: The part of all requests up to each edge, rising to 1.
        low: The smallest length of the first bucket.
    """

    edges: tuple[int, ...]
    shares: tuple[float, ...]
    low: int = 1

    @classmethod
    def of(cls, counts: Iterable[tuple[int, float]], low: int = 1) -> Histogram:
        """Return the distribution of (upper edge, weight) buckets in rising order; weights need not sum to 1.

        Raises:
            InputError: There is nothing in the buckets.
        """
        edges: list[int] = []
        sums: list[float] = []
        total = 0.0
        for edge, weight in counts:
            total += weight
            if not total:
                low = edge + 1  # an empty bucket at the front
            elif edges and edges[-1] == edge:
                sums[-1] = total
            else:
                low = low if edges else min(low, edge)
                edges.append(edge)
                sums.append(total)
        if not total:
            raise InputError("The histogram of lengths is empty; take it from an engine that has served requests.")
        return cls(edges=tuple(edges), shares=tuple(part / total for part in sums), low=low)

    def draw(self, rng: Random) -> int:
        """Return the next length."""
        at = rng.random()
        bucket = min(bisect_left(self.shares, at), len(self.edges) - 1)
        below = self.edges[bucket - 1] + 1 if bucket else self.low
        start = self.shares[bucket - 1] if bucket else 0.0
        part = (at - start) / (self.shares[bucket] - start) if self.shares[bucket] > start else 0.0
        return max(1, below + int(min(part, 1 - 1e-12) * (self.edges[bucket] - below + 1)))


@dataclass(frozen=True, slots=True)
class Values:
    """Lengths with their weights, as a trace's generator publishes them (value -> share)."""

    values: tuple[int, ...]
    sums: tuple[float, ...]

    @classmethod
    def of(cls, weights: Iterable[tuple[float, float]]) -> Values:
        """Return the distribution of (value, weight).

        Raises:
            InputError: No weight is above zero.
        """
        values, sums, total = [], [], 0.0
        for value, weight in weights:
            if weight > 0:
                total += weight
                values.append(max(1, round(value)))
                sums.append(total)
        if not values:
            raise InputError("A histogram of lengths is empty; give one with a weight above zero.")
        return cls(values=tuple(values), sums=tuple(sums))

    def draw(self, rng: Random) -> int:
        """Return the next length."""
        return self.values[min(bisect_left(self.sums, rng.random() * self.sums[-1]), len(self.values) - 1)]


@dataclass(frozen=True, slots=True)
class Independent:
    """Prompt and answer drawn each by itself."""

    prompt: Lengths
    output: Lengths

    def draw(self, rng: Random) -> Pair:
        """Return the lengths of the next request."""
        return Pair(self.prompt.draw(rng), self.output.draw(rng))


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Requests of a trace drawn with replacement, prompt and answer together."""

    pairs: Sequence[Pair]

    def draw(self, rng: Random) -> Pair:
        """Return the lengths of the next request."""
        return self.pairs[int(rng.random() * len(self.pairs))]
