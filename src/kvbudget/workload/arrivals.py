"""When requests come: Poisson, in bursts, evenly, or when a user has read the last answer.

Arrivals are seconds since the workload began, rising. The closed loop needs to be told when a request finished, because
only then does its user think of the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.workload.request import Request, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from kvbudget.workload.lengths import Lengths, Pairs


def arrivals(rate: float, burstiness: float, rng: Random) -> Iterator[float]:
    """Yield arrival times without end.

    The distances are gamma distributed with shape `burstiness` and mean 1 / `rate`, as `vllm bench serve` draws them
    (vllm/benchmarks/serve.py, 0.32): 1 is a Poisson process, below 1 comes in bursts, infinity is even. Their
    coefficient of variation is 1 / sqrt(burstiness). An infinite rate sends everything at once.

    Args:
        rate: Requests a second, above 0.
        burstiness: Shape of the distances, above 0.
        rng: Where chance comes from.
    """
    now = 0.0
    if rate == inf:
        while True:
            yield now
    if burstiness == inf:
        number = 0
        while True:
            yield number / rate
            number += 1
    scale = 1.0 / (rate * burstiness)
    while True:
        now += rng.expovariate(rate) if burstiness == 1 else rng.gammavariate(burstiness, scale)
        yield now


class Prefixes(NamedTuple):
    """Shared system prompts: a part of the requests begins with one of a few fixed texts.

    Attributes:
        share: The part of the requests that begins with one, 0 to 1.
        different: How many different ones there are, each as likely as the other.
        tokens: The tokens of each, which come before the prompt's own.
    """

    share: float
    different: int
    tokens: int

    def draw(self, rng: Random) -> tuple[Segment, ...]:
        """Return the beginning of the next request, empty if it shares none; its ids are below `different`."""
        if rng.random() >= self.share:
            return ()
        return (Segment(int(rng.random() * self.different), self.tokens),)


NO_PREFIXES = Prefixes(0.0, 0, 0)


def open_requests(times: Iterator[float], pairs: Pairs, prefixes: Prefixes, rng: Random) -> Iterator[Request]:
    """Yield one request for each arrival; a shared prefix comes on top of the prompt's drawn length."""
    for now in times:
        prompt, output = pairs.draw(rng)
        segments = prefixes.draw(rng) if prefixes.different else ()
        yield Request(now, prompt + (segments[0].tokens if segments else 0), output, segments)


class ThinkTime(NamedTuple):
    """How long a user reads before asking again: exponential with this mean in seconds, or always the same."""

    mean: float
    constant: bool = False

    def draw(self, rng: Random) -> float:
        """Return the next pause in seconds."""
        return self.mean if self.constant or not self.mean else rng.expovariate(1.0 / self.mean)

    def starts(self, users: int, rng: Random) -> Iterator[float]:
        """Yield when users come who are thinking at 0, rising: no herd that would be in all figures of a short run.

        What is left of an exponential pause is distributed like one; constant ones are taken to be in even disorder.
        """
        if self.constant:
            return (self.mean * (number + 1) / users for number in range(users))
        return iter(sorted(self.draw(rng) for _ in range(users)))


@dataclass(slots=True)
class _Talk:
    """What a user's conversation holds so far."""

    segments: tuple[Segment, ...]
    tokens: int
    left: int


class ClosedLoop:
    """Users who wait for their answer, think, and ask again.

    With `turns` above 1 a user's next prompt is all of the conversation so far, the answers included, and new text;
    after the last turn the user begins another conversation. The pieces of a conversation are segments, so that prefix
    caching finds them.

    Args:
        users: How many users there are; each has at most one request in the engine.
        requests: How many requests they send altogether.
        pairs: Lengths of what each turn adds: new text and answer.
        think_time: The pause between an answer and the next turn.
        turns: Turns of a conversation.
        prefixes: Shared beginnings of conversations.
        rng: Where chance comes from. It is asked in the order in which requests are sent, so that a run of the same
            schedule gets the same ones.
        starts: When each user comes; by default all at once at 0.
        one_talk: A user who came by `starts` leaves after one conversation.

    Attributes:
        one_talk: The same; then users come whatever happens, and otherwise never more than can be answered.
    """

    def __init__(
        self,
        *,
        users: int,
        requests: int,
        pairs: Pairs,
        think_time: ThinkTime,
        turns: Lengths,
        prefixes: Prefixes,
        rng: Random,
        starts: Iterator[float] | None = None,
        one_talk: bool = False,
    ) -> None:
        self._users, self._left, self._pairs = users, requests, pairs
        self._think_time, self._turns, self._prefixes, self._rng = think_time, turns, prefixes, rng
        self._starts, self.one_talk = starts, one_talk
        self._talks: dict[int, _Talk] = {}
        self._ids = prefixes.different

    def first(self) -> Iterator[Request]:
        """Yield each user's first request by rising arrival: the n-th one is user n's, counted from 0.

        It may be read bit by bit, as the simulated time passes. It ends where all users have come or all requests are
        sent.
        """
        for user in range(self._users):
            if not self._left:
                return
            yield self._send(user, next(self._starts) if self._starts is not None else 0.0)

    def next(self, user: int, finished_at: float) -> Request | None:
        """Return the request that a user sends next, whose last one finished at `finished_at` seconds.

        Returns:
            The request, its arrival not before `finished_at`; None if this user sends no more.
        """
        talk = self._talks[user]
        if not talk.left and self.one_talk:
            del self._talks[user]
            return None
        if not self._left:
            return None
        return self._send(user, finished_at + self._think_time.draw(self._rng))

    def _send(self, user: int, arrival: float) -> Request:
        self._left -= 1
        talk = self._talks.get(user)
        if talk is None or not talk.left:
            beginning = self._prefixes.draw(self._rng) if self._prefixes.different else ()
            talk = _Talk(beginning, sum(item.tokens for item in beginning), self._turns.draw(self._rng))
            self._talks[user] = talk
        talk.left -= 1
        added, output = self._pairs.draw(self._rng)
        prompt = talk.tokens + added
        if not talk.left:  # nothing follows that could share the new text or the answer
            return Request(arrival, prompt, output, talk.segments)
        asked, answered = self._ids, self._ids + 1
        self._ids += 2
        segments = (*talk.segments, Segment(asked, added))
        talk.segments, talk.tokens = (*segments, Segment(answered, output)), prompt + output
        return Request(arrival, prompt, output, segments, answered)
