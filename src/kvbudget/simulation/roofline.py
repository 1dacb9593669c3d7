"""What a step takes by what it reads and computes, at rates that were measured on the card.

A step reads every weight of the rank once, the cache of every request once, and computes on every token. Its matrix
products take the time of their bytes or of their arithmetic, whichever is longer; attention takes both, one after the
other; on top come a constant for each kernel, one for each all-reduce, and what the engine spends on a step and on each
of its requests. Everything is turned into whole picoseconds once, so that sums over many steps are exact.

Known errors: experts are taken to be chosen evenly, the context of a window is clipped at the mean of the batch, and
data-parallel replicas that share experts are taken to have equal batches and never to wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from kvbudget.simulation.clock import SECOND

if TYPE_CHECKING:
    from kvbudget.simulation.clock import Batch


class Attended(NamedTuple):
    """Layers that attend to the same part of the context.

    Attributes:
        window: The last tokens they see, 0 for all.
        read: Picoseconds for each token of context that is read.
        pair: Picoseconds for each pair of a new token and one that it sees.
    """

    window: int
    read: int
    pair: int


class Costs(Protocol):
    """What the parts of a step take."""

    @property
    def attended(self) -> tuple[Attended, ...]:
        """Attention by window."""

    def seconds_of_tokens(self, tokens: int) -> float:
        """Return the seconds of what depends on the tokens of a step alone; they never fall with them."""

    def seconds_of_requests(self, requests: int) -> float:
        """Return the seconds of what depends on the requests of a step alone; they never fall with them."""


class Roofline:
    """A clock for one deployment.

    Args:
        costs: What the parts of a step take.
        source: Where its times come from, in words.
        error: The half-width of the interval that its times are in, as a share of them: 0.07 is ±7 %.
    """

    __slots__ = ("_by_requests", "_by_tokens", "attended", "costs", "error", "source")

    def __init__(self, costs: Costs, *, source: str, error: float) -> None:
        self.costs = costs
        self.attended = costs.attended
        self.source = source
        self.error = error
        self._by_tokens: dict[int, int] = {}
        self._by_requests: dict[int, int] = {}

    def by_tokens(self, tokens: int) -> int:
        """Return the picoseconds of what depends on the tokens of a step alone; it never falls with them."""
        known = self._by_tokens.get(tokens)
        if known is None:
            known = self._by_tokens[tokens] = round(self.costs.seconds_of_tokens(tokens) * SECOND)
        return known

    def by_requests(self, requests: int) -> int:
        """Return the picoseconds of what depends on the requests of a step alone; it never falls with them."""
        known = self._by_requests.get(requests)
        if known is None:
            known = self._by_requests[requests] = round(self.costs.seconds_of_requests(requests) * SECOND)
        return known

    def step(self, batch: Batch) -> int:
        """Return the picoseconds of one step; an empty one takes none."""
        tokens, requests, context, pairs = batch
        if not tokens:
            return 0
        time = self.by_tokens(tokens) + self.by_requests(requests)
        for window, read, pair in self.attended:
            if window:
                time += read * min(context, requests * window) + pair * min(pairs, tokens * window)
            else:
                time += read * context + pair * pairs
        return time

    def decodes(self, requests: int, context: int, steps: int) -> int:
        """Return the picoseconds of `steps` steps in each of which the same requests compute one token each.

        The context is `context` in the first and grows by `requests` with each, which is an arithmetic series up to the
        step in which it fills a window, and constant from there on.
        """
        time = steps * (self.by_tokens(requests) + self.by_requests(requests))
        for window, read, pair in self.attended:
            growing = steps
            if window:
                growing = min(steps, max(0, -(-(requests * window - context) // requests)))
                time += (read + pair) * (steps - growing) * requests * window
            time += (read + pair) * (growing * context + requests * (growing * (growing - 1) // 2))
        return time

    def steps_until(self, requests: int, context: int, gap: int) -> int:
        """Return the least number of such steps that take `gap` picoseconds or more."""
        if gap <= 0:
            return 0
        high = max(1, gap // max(1, self.decodes(requests, context, 1)) + 1)  # steps only grow longer
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            if self.decodes(requests, context, middle) >= gap:
                high = middle
            else:
                low = middle
        return high

    def wake(self, arrival: int) -> int:
        """Return when an idle engine begins: at once."""
        return arrival
