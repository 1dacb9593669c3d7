"""What a step takes by what it reads and computes, at rates that were measured on the card.

A step reads every weight of the rank once, the cache of every request once, and computes on every token. Its matrix
products take the time of their bytes or of their arithmetic, whichever is longer; attention takes both, one after the
other; on top come a constant for each kernel, one for each all-reduce, and what the engine spends on a step and on each
of its requests. Everything is turned into whole picoseconds once, so that sums over many steps are exact.

Known errors: experts are taken to be chosen evenly, the context of a window is clipped at the mean of the batch, and
data-parallel replicas that share experts are taken to have equal batches and never to wait for each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kvbudget.simulation.clock import SECOND, Clock

if TYPE_CHECKING:
    from kvbudget.simulation.clock import Attended


class Costs(Protocol):
    """What the parts of a step take."""

    @property
    def attended(self) -> tuple[Attended, ...]:
        """Attention by window."""

    def seconds_of_tokens(self, tokens: int) -> float:
        """Return the seconds of what depends on the tokens of a step alone; they never fall with them."""

    def seconds_of_requests(self, requests: int) -> float:
        """Return the seconds of what depends on the requests of a step alone; they never fall with them."""


class Roofline(Clock):
    """A clock for one deployment; an empty step takes no time.

    Args:
        costs: What the parts of a step take.
        source: Where its times come from, in words.
        error: The half-width of the interval that its times are in, as a share of them: 0.07 is ±7 %.
    """

    __slots__ = ("costs", "error", "source")

    def __init__(self, costs: Costs, *, source: str, error: float) -> None:
        self.costs = costs
        self.source = source
        self.error = error
        super().__init__(costs.attended)

    def by_tokens(self, tokens: int) -> int:
        """Return the picoseconds of what depends on the tokens of a step alone; it never falls with them."""
        return round(self.costs.seconds_of_tokens(tokens) * SECOND) if tokens else 0

    def by_requests(self, requests: int) -> int:
        """Return the picoseconds of what depends on the requests of a step alone; it never falls with them."""
        return round(self.costs.seconds_of_requests(requests) * SECOND) if requests else 0
