"""Config files, read with suspicion.

A bound on their size, no duplicate keys with different values, no depth that Python cannot take. Infinity and NaN are
let in, because published configs hold them in keys that nobody reads here; a size that is one is refused where it is
read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kvbudget.errors import AccessError, InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG = "config.json"
HF_QUANT_CONFIG = "hf_quant_config.json"
QUANTIZE_CONFIGS = ("quantize_config.json", "quant_config.json")
"""Of AutoGPTQ and of AutoAWQ; the first that is there counts."""

MAX_CONFIG_BYTES = 16 << 20
"""The largest published config.json files, with label maps, stay below one MiB."""


def read_object(path: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file.

    Raises:
        AccessError: The file system does not let us read it.
        InputError: It is not a regular readable file, too large, or not one valid JSON object.
    """
    try:
        if not path.is_file():
            raise InputError(f"{path} is not a regular file; give a config.json.")
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
    except PermissionError as error:
        raise AccessError(f"{path} cannot be read: {error.strerror}; give a file that you may read.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    return object_in(content, str(path))


def object_in(content: bytes, source: str) -> Mapping[str, Any]:
    """Return the JSON object that a config's bytes hold; `source` names it in messages.

    Raises:
        InputError: It is too large, no UTF-8 text, or not one valid JSON object.
    """
    if len(content) > MAX_CONFIG_BYTES:
        raise InputError(
            f"{source} has more than {MAX_CONFIG_BYTES:,} bytes, more than any config.json; give the right file."
        )
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{source} is not UTF-8 text, so it is not a config.json; give the right file.") from None
    return parse_object(text, source)


def parse_object(text: str, source: str) -> Mapping[str, Any]:
    """Return the JSON object in a text; `source` names it in messages."""
    if not text.strip():
        raise InputError(f"{source} is empty; give a complete config.json.")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except _BrokenError as error:
        raise InputError(f"{source} {error}; check the file.") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source} is not valid JSON (line {error.lineno}: {error.msg}); is the file complete?"
        ) from None
    except (RecursionError, ValueError):  # nesting beyond Python's stack, integers beyond its limit of digits
        raise InputError(
            f"{source} nests too deeply or has a number too long to be a config; check the file."
        ) from None
    if not isinstance(value, dict):
        raise InputError(f"{source} must hold a JSON object, found {type(value).__name__}; give a config.json.")
    return value


class _BrokenError(ValueError):
    """What the JSON module takes without a word and a config must not have."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen and seen[key] != value:
                raise _BrokenError(f"gives {key[:40]!r} twice with different values")
            seen[key] = value
    return found
