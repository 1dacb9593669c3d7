"""How a number came to be known.

Every figure in a report carries one of these words, so a reader can tell arithmetic from a guess.
"""

from __future__ import annotations

from enum import Enum


class Basis(Enum):
    """The standing of a number, from the firmest to the softest; the value is the word that is printed.

    Attributes:
        EXACT: It follows from a config, a file header or the engine's own arithmetic.
        MEASURED: It was read off a real engine or driver; the source names the version and the hardware.
        ESTIMATED: It comes from a fitted rule and carries a low and a high end.
        ASSUMED: Nobody said; whoever shows it names the flag that changes it.
        GIVEN: The user typed it.
    """

    EXACT = "exact"
    MEASURED = "measured"
    ESTIMATED = "estimated"
    ASSUMED = "assumed"
    GIVEN = "given"
