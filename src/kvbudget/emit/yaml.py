"""YAML that any reader takes the same way: blocks for structure, JSON's double quotes for every string."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_PLAIN_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]+")

_NO_KEYS = frozenset({"yes", "no", "on", "off", "true", "false", "null"})
"""What YAML 1.1 takes for something other than text."""


def as_yaml(value: Any) -> str:  # noqa: ANN401 - plain data of any shape
    """Return plain data (mappings, lists, text, numbers, booleans, None) as YAML.

    A string stands in double quotes, where JSON's escapes mean to YAML what they mean to JSON, so that no text can be
    taken for anything else. Printable characters beyond ASCII stand as they are: YAML knows no pairs of surrogates.
    """
    return "\n".join(_lines(value, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _entry(f"{indent}{_key(key)}:", inner, indent + "  ")
    elif isinstance(value, list) and value:
        for inner in value:
            first, *rest = _lines(inner, indent + "  ")
            yield f"{indent}- {first.lstrip(' ')}"
            yield from rest
    else:
        yield indent + _scalar(value)


def _entry(head: str, value: Any, indent: str) -> Iterator[str]:  # noqa: ANN401
    if isinstance(value, (dict, list)) and value:
        yield head
        yield from _lines(value, indent)
    else:
        yield f"{head} {_scalar(value)}"


def _key(key: str) -> str:
    plain = _PLAIN_KEY.fullmatch(key) and key.lower() not in _NO_KEYS
    return key if plain else _scalar(key)


def _scalar(value: Any) -> str:  # noqa: ANN401
    return "".join(map(_escaped, json.dumps(value, ensure_ascii=False, allow_nan=False)))


def _escaped(character: str) -> str:
    """Return a character of a scalar; what is not printable, such as other kinds of line ends, is written as a code."""
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"
