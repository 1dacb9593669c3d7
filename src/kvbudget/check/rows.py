"""What a known line of an engine's log is: a row of `logs_vllm` and its kin, and readers of settings in a line."""

from __future__ import annotations

import ast
import re
import warnings
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.units import GIB, KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

GIB_UNIT, MIB_UNIT, COUNT, FLAG, SIZED = "GiB", "MiB", "count", "flag", "sized"

GIB_UNITS: Mapping[str, int] = {GIB_UNIT: GIB, MIB_UNIT: MIB, "KiB": KIB, "bytes": 1}
"""Units of memory, in bytes; what is `SIZED` has one of them printed behind its number."""

SMALLEST, LARGEST, SUM = "smallest", "largest", "sum"
"""The smallest of what some versions print for each rank in one process (v1/core/kv_cache_utils.py, 0.8), the largest
free memory (a draft is loaded when its target is there), the sum over models and pools."""

_NONE: Mapping[str, Any] = MappingProxyType({})


class Row(NamedTuple):
    """One kind of line.

    Attributes:
        needle: A literal without which the pattern cannot match; it is looked for first, which is cheap.
        pattern: A regular expression; searched for inside the line.
        figures: Group of the pattern -> (term of the observation, unit).
        phase: How far the engine has come when it prints this.
        refusal: The name of the error, if it is one.
        errors: Group -> unit of an error's figures.
        again: Which figure counts where a process prints one more than once: the newest, or one of the words above.
        starts: What begins with this line: "server" or "engine".
        stats: A line of statistics: groups running, waiting, kv_usage (percent) or kv_share, prompt, generation, hits;
            engines, where they are those of several together.
        settings: Reads the group "settings" into names and values.
        tells_preemptions: The engine that prints these statistics logs its preemptions too: no line means none.
        typed: Those settings are what the operator typed.
        preempts: The line says that requests lost their cache; the group "preemptions" counts them, else it is one.
        cumulative: The count is that of all so far.
        per_device: The group "device" says whose figures they are.
        anyones: Other programs print this too, so that it does not make their container an engine.
    """

    needle: str
    pattern: str
    figures: Mapping[str, tuple[str, str]] = _NONE
    phase: str = ""
    refusal: str = ""
    errors: Mapping[str, str] = _NONE
    again: str = ""
    starts: str = ""
    stats: bool = False
    tells_preemptions: bool = False
    settings: Callable[[str], dict[str, Any]] | None = None
    typed: bool = False
    preempts: bool = False
    cumulative: bool = False
    per_device: bool = False
    anyones: bool = False


SAME_SETTING: Mapping[str, str] = MappingProxyType(
    {
        "max_seq_len": "max_model_len",
        "model_path": "model",
        "model_tag": "model",
        "tp_size": "tensor_parallel_size",
        "pp_size": "pipeline_parallel_size",
        "dp_size": "data_parallel_size",
        "context_length": "max_model_len",
        "context_len": "max_model_len",
        "max_running_requests": "max_num_seqs",
        "chunked_prefill_size": "max_num_batched_tokens",
    }
)
"""What other lines and engines call a setting, and its name here."""

MAX_SETTINGS = 400
"""Settings that are taken from one line; vLLM's longest has some 250."""

_MAX_LITERAL = 1 << 14
_MAX_VALUE = 2000

_DICT_ITEM = re.compile(
    r"'(\w{1,80})': ('(?:[^'\\]|\\.){0,2000}'|\"(?:[^\"\\]|\\.){0,2000}\"|[\w.+-]{1,100}|\[[^\[\]]{0,500}\])"
)
_CALL_ITEM = re.compile(
    r"(\w{1,80})=('(?:[^'\\]|\\.){0,2000}'|\"(?:[^\"\\]|\\.){0,2000}\"|[\w.+-]{1,100}|\[[^\[\]]{0,500}\])"
)


def from_dict(text: str) -> dict[str, Any]:
    """Return the settings in a printed dictionary: ``{'model': 'org/name', 'port': 8000}``."""
    found = _literal(text[: text.rfind("}") + 1])
    if isinstance(found, dict):
        return {str(name): value for name, value in list(found.items())[:MAX_SETTINGS]}
    return _items(_DICT_ITEM, text)


def from_call(text: str) -> dict[str, Any]:
    """Return the settings in a printed object: ``Namespace(model='org/name', port=8000)``, or its inside."""
    return _items(_CALL_ITEM, text)


def _items(pattern: re.Pattern[str], text: str) -> dict[str, Any]:
    """Return name -> value, the first of each name: nested objects come after the flags that they belong to."""
    found: dict[str, Any] = {}
    for match in pattern.finditer(text):
        if match[1] not in found:
            if len(found) >= MAX_SETTINGS:
                break
            value = _literal(match[2])
            found[match[1]] = match[2][:_MAX_VALUE] if value is None and match[2] != "None" else value
    return found


def _literal(text: str) -> Any:  # noqa: ANN401 - any literal
    """Return a literal of Python, None if it is none."""
    if not text or len(text) > _MAX_LITERAL:
        return None
    try:
        with warnings.catch_warnings():  # of what Python thinks of the text
            warnings.simplefilter("ignore")
            value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        return None
    return _usual(value)


_LARGEST = 1 << 62
_DEEPEST = 8


def _usual(value: Any, depth: int = 0) -> Any:  # noqa: ANN401 - any literal
    """Return a value as JSON may hold it; what no flag has becomes text."""
    if isinstance(value, dict) and depth < _DEEPEST:
        return {str(key): _usual(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple) and depth < _DEEPEST:
        return [_usual(item, depth + 1) for item in value]
    if isinstance(value, float) and isfinite(value):
        return value
    if value is None or isinstance(value, str) or (isinstance(value, int) and abs(value) <= _LARGEST):
        return value
    return f"({type(value).__name__})"
