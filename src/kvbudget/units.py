"""Bytes, tokens and counts, from text and to text.

Memory is an integer number of bytes everywhere inside; GiB (2^30) appears on screen only, and GB (10^9)
only where a user typed it. Token counts follow vLLM: ``32k`` is 32,000 and ``32K`` is 32,768
(vllm/utils/argparse_utils.py, human_readable_int, 0.32).
"""

from __future__ import annotations

import re

from kvbudget.errors import InputError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

MAX_BYTES = 1 << 60
"""No machine holds an exbibyte; a larger figure is a typing error, not a size."""

SMALLEST_CARD = 64 * MIB
"""A card with less memory is a figure without its unit."""

MAX_COUNT = 1 << 50
"""The same for tokens, layers, heads and the like."""

_NUMBER = re.compile(r"\s*([0-9][0-9_,]*(?:\.[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*")

_BYTE_UNITS = {
    "": 1,
    "b": 1,
    "k": KIB,
    "kib": KIB,
    "kb": 10**3,
    "m": MIB,
    "mib": MIB,
    "mb": 10**6,
    "g": GIB,
    "gib": GIB,
    "gb": 10**9,
    "t": TIB,
    "tib": TIB,
    "tb": 10**12,
}

_TOKEN_UNITS = {
    "": 1,
    "k": 10**3,
    "K": KIB,
    "m": 10**6,
    "M": MIB,
    "g": 10**9,
    "G": GIB,
    "t": 10**12,
    "T": TIB,
}

_COUNT_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}


def parse_bytes(text: str, *, what: str = "size", least: int = 0) -> int:
    """Return the bytes that `text` names: ``80GB``, ``79.19GiB``, ``81559MiB``, ``24g`` (= GiB) or a bare number.

    Args:
        text: A number with an optional unit. KB, MB, GB, TB are powers of 1,000; KiB to TiB and k, m, g, t are
            powers of 1,024.
        what: The name of the quantity for the error message, e.g. ``--gpu-memory``.
        least: Less is a unit that was left out.

    Raises:
        InputError: Not a number, not a known unit, not positive, or above 2^60.
    """
    value = _scaled(text, {**_BYTE_UNITS}, what, "80GB, 79.19GiB, 81559MiB or 24g", fold_case=True)
    if value > MAX_BYTES:
        raise InputError(f"{what} {text!r} is more than 2^60 bytes; check the unit (GB, GiB, MiB).")
    if value < least:
        raise InputError(f"{what} {text!r} is {value:,} bytes, too few to be meant; write a unit, such as 24GiB.")
    return value


def parse_tokens(text: str, *, what: str = "token count") -> int:
    """Return the tokens that `text` names, as vLLM reads them: ``32768``, ``32k`` = 32,000, ``32K`` = 32,768.

    Raises:
        InputError: Not a whole positive number of tokens, or above 2^50.
    """
    value = _scaled(text, _TOKEN_UNITS, what, "32768, 32k (= 32,000) or 32K (= 32,768)", fold_case=False)
    if value > MAX_COUNT:
        raise InputError(f"{what} {text!r} is more than 2^50 tokens; check the suffix.")
    return value


def parse_count(text: str, *, what: str = "count") -> int:
    """Return a count such as parameters: ``7B`` = 7 x 10^9, ``350M``, ``8030261248``.

    Raises:
        InputError: Not a whole positive number, or above 2^50.
    """
    value = _scaled(text, _COUNT_UNITS, what, "7B, 350M or 8030261248", fold_case=True)
    if value > MAX_COUNT:
        raise InputError(f"{what} {text!r} is more than 2^50; check the suffix.")
    return value


def _scaled(text: str, units: dict[str, int], what: str, examples: str, *, fold_case: bool) -> int:
    match = _NUMBER.fullmatch(text) if len(text) <= 64 else None  # noqa: PLR2004 - no honest number is longer
    unit = (match[2].lower() if fold_case else match[2]) if match else None
    if match is None or unit not in units:
        raise InputError(f"{what} {_shown(text)} is not understood; write for example {examples}.")
    digits, _, decimals = match[1].replace("_", "").replace(",", "").partition(".")
    scale: int = 10 ** len(decimals)
    whole, rest = divmod(int(digits + decimals) * units[unit], scale)
    if whole < 1 or (rest and units[unit] == 1):
        raise InputError(f"{what} {_shown(text)} must be a positive whole number; write for example {examples}.")
    return whole


def _shown(text: str, limit: int = 40) -> str:
    """Quote user text for a message, cut to `limit` characters."""
    return repr(text if len(text) <= limit else text[: limit - 1] + "…")


def gib(value: int, digits: int = 2) -> str:
    """Return `value` bytes as a GiB figure without the unit, e.g. ``79.19``."""
    return f"{value / GIB:,.{digits}f}"


def human_bytes(value: int) -> str:
    """Return bytes with the largest binary unit that keeps at least one whole, e.g. ``128 KiB``."""
    for unit, name in ((TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(value) >= unit:
            amount = value / unit
            return f"{amount:,.0f} {name}" if value % unit == 0 else f"{amount:,.2f} {name}"
    return f"{value} B"


def human_count(value: int) -> str:
    """Return a parameter count as people write it, e.g. ``8.03B``."""
    for unit, name in ((10**12, "T"), (10**9, "B"), (10**6, "M"), (10**3, "k")):
        if value >= unit:
            return f"{value / unit:.2f}{name}"
    return str(value)
