"""Values that people hand over as text or as JSON: read with suspicion, and shown in messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_TEXT = 1 << 16
"""Characters of a flag's value that are read."""


def shown(value: object, limit: int = 40) -> str:
    """Show a choice in a message, cut to `limit` characters; Python would not print an integer of 5,000 digits."""
    if isinstance(value, int) and value.bit_length() > 4 * limit:
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def json_object(value: object, *, flag: str, example: str) -> Mapping[str, Any]:
    """Return a mapping, or the JSON object that a text holds.

    Args:
        value: What was given.
        flag: The flag, for messages.
        example: JSON that would do.

    Raises:
        InputError: It is neither.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value[: MAX_TEXT + 1])
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "nested too deeply")
            raise InputError(f"{flag} is not JSON ({reason}); write for example '{example}'.") from None
    if not isinstance(value, dict):
        raise InputError(f"{flag} must be a JSON object, found {type(value).__name__}; write for example '{example}'.")
    return value
