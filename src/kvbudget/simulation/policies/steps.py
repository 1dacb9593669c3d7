"""What the policies do alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvbudget.simulation.sequence import Sequence


def advance(tokens: Mapping[Sequence, int]) -> list[Sequence]:
    """Count the tokens of a step as computed, and return the requests that get a token from it."""
    yields = []
    for request, new in tokens.items():
        request.computed += new
        request.prefilling = request.computed < request.tokens
        if not request.prefilling:
            yields.append(request)
    return yields


def check_counts(settings: object, names: Iterable[str], least: int = 1) -> None:
    """Refuse settings whose counts are no whole numbers of `least` or more.

    Raises:
        InputError: One is not.
    """
    for name in names:
        value = getattr(settings, name)
        if not isinstance(value, int) or value < least:
            raise InputError(f"{name} is {value!r}; give a whole number of {least} or more.")
