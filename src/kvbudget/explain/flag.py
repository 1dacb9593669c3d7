"""What a flag of vLLM means; the rows stand in `kvbudget.facts.flags`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget import __version__
from kvbudget.budgeting import SCHEMA
from kvbudget.errors import InputError
from kvbudget.facts.flags import FLAGS, find_flag

if TYPE_CHECKING:
    from kvbudget.facts.flags import Flag


def explain_flag(name: str) -> Flag:
    """Return the row of a flag.

    Raises:
        InputError: It is not known; the message names close ones.
    """
    found = find_flag(name)
    if found is not None:
        return found
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    key = name.strip().lstrip("-").replace("-", "_").lower()[:64]
    close = get_close_matches(key, [flag.name for flag in FLAGS], n=3, cutoff=0.5)
    hint = f"Close: {', '.join(close)}." if close else f"Known: {', '.join(flag.name for flag in FLAGS)}."
    raise InputError(f"No flag {name[:40]!r} is explained here. {hint}")


def flag_dict(flag: Flag) -> dict[str, Any]:
    """Return a flag as plain data."""
    return {
        "schema": SCHEMA,
        "kvbudget": __version__,
        "explains": "flag",
        "name": flag.name,
        "unit": flag.unit,
        "meaning": flag.meaning,
        "defaults": [{"since": ".".join(map(str, since)), "value": value} for since, value in flag.defaults],
        "not_covered": list(flag.not_covered),
        "aliases": list(flag.aliases),
        "source": f"vLLM {flag.source}",
    }
