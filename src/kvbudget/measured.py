"""What was measured on a machine of one's own, as a correction of an estimate.

A correction holds for one engine version, card and family of models; a deployment that is changed into another one is
not corrected any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvbudget.facts.vllm import parse_version
from kvbudget.units import GIB

if TYPE_CHECKING:
    from kvbudget.deployment import Deployment

PARTS = ("activations", "non_torch", "cuda_graphs")
"""Parts of a rank that are estimated and that an engine prints."""


class Correction(NamedTuple):
    """How one estimated part compared with what was measured.

    Attributes:
        key: Where it holds (`key_of`).
        part: One of `PARTS`.
        low: The smallest measured over estimated.
        best: The mean of them.
        high: The largest.
        n: How many there are.
    """

    key: str
    part: str
    low: float
    best: float
    high: float
    n: int

    def bounds(self, low: int, best: int, high: int) -> tuple[int, int, int]:
        """Return an estimate's corrected (low, best, high).

        Each side narrows with the number of measurements and never below what they spread over. Measurements outside
        the estimate's bounds show that it knows less than it thought, so their distance counts as width too, until
        others confirm them.
        """
        middle = self.best * best
        surprise = max(0, low - middle, middle - high)
        below = max(middle - self.low * best, (best - low + surprise) / (self.n + 1))
        above = max(self.high * best - middle, (high - best + surprise) / (self.n + 1))
        return max(0, int(middle - below)), round(middle), -int(-(middle + above) // 1)


def key_of(d: Deployment) -> str:
    """Return what a measurement holds for: engine and minor version, card, family of models."""
    version = ".".join(map(str, parse_version(d.engine_version)[:2]))
    card = d.card.name if d.card.name != "given" else f"{d.card.visible_bytes / GIB:.1f} GiB"
    return f"{d.engine} {version} / {card} / {d.model.model_type}"
