"""Pasted launch commands: `kvbudget fit -- vllm serve org/name -tp 4 …`.

What the budget knows is read by the options of `kvbudget.cli.options` themselves, so there is one table of flags. The
rest is told apart: flags that do not touch GPU memory are passed over, flags that do and are not counted yet become
warnings of the budget, and all others are reported as not understood. Values are never repeated in a message: a command
may hold a key.
"""

from __future__ import annotations

import json
import re
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from kvbudget.cli.options import launch_parameters
from kvbudget.deployment import flag
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import launch_flags as facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

EXAMPLE = "write for example `-- vllm serve org/name -tp 4`"

OTHER_ENGINES = {
    "sglang.launch_server": "sglang",
    "sglang": "sglang",
    "trtllm-serve": "tensorrt-llm",
    "llama-server": "llama.cpp",
    "ollama": "ollama",
}
"""What starts another engine, and its name."""

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)
_IMAGE = re.compile(r"(?:[\w.:-]+/)*[\w.-]*vllm[\w.-]*(?::(?P<tag>[\w.-]+))?(?:@sha256:[0-9a-f]+)?")
_PINNED = re.compile(r"vllm(?:\[[\w,]*\])?(?:==|@)(?P<tag>[\w.]+)")
_VERSION = re.compile(r"v?(\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)(?:[-+].*)?")
_ENDS = {"|", "||", "&", "&&", ";", ">", ">>", "2>", "2>&1", "<"}
_MODULES = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server", "vllm.entrypoints.cli.main")
_CONTAINERS = {"docker", "podman", "nerdctl"}
MAX_VALUE = 1 << 16
"""Characters of a value that is read as JSON."""
_MODEL = ("--model", "--model-tag")
_OPTIMIZATION = re.compile(r"-O(?:[0-9=.].*)?")


class Launch(NamedTuple):
    """What a launch command says.

    Attributes:
        model: The model's id or path.
        options: Choices named like the fields of a `Deployment`, "gpu" and "gpu_memory" among them.
        notes: What was not understood, a sentence each, for stderr.
        warnings: What is understood but not counted yet, a sentence each, for the budget.
    """

    model: str
    options: dict[str, Any]
    notes: list[str]
    warnings: list[str]


def parse_launch(arguments: Sequence[str], reads: Sequence[click.Option] = ()) -> Launch:
    """Return what a launch command says.

    Args:
        arguments: The command, as words or as one quoted string; `VAR=value` and `docker run …` may stand in front.
        reads: Options of the engine that are read beside those of a deployment.

    Raises:
        InputError: It is no launch command of vLLM, or one of its values is not understood.
        CannotTell: It starts another engine.
    """
    words = _words(arguments)
    before, rest = _split(words)
    notes: list[str] = []
    uncounted: dict[str, list[str]] = {}
    options: dict[str, Any] = {}
    version = _version(before)
    if version is not None:
        options["engine_version"] = version
    _environment(before, options, notes, uncounted)
    rest, nested = _nested(list(_spelled(rest)))
    own = [*launch_parameters(), *reads]
    known, model = _sort(rest, own, notes, uncounted)
    options |= _read(known, own)
    for name, keys in nested.items():
        stated = options.get(name)
        options[name] = {**(_object(stated, name) if stated else {}), **keys}
    warnings = [f"{', '.join(flags)}: not counted yet ({what})." for what, flags in uncounted.items()]
    return Launch(model, options, notes, warnings)


def _words(arguments: Sequence[str]) -> list[str]:
    """Return the command's words; a single string is split as a shell would, up to a pipe or a redirection."""
    if len(arguments) != 1 or not any(char.isspace() for char in arguments[0]):
        return list(arguments)
    text = re.sub(r"\\\r?\n", " ", arguments[0])
    try:
        words = shlex.split(text, comments=True)
    except ValueError as error:
        raise InputError(f"The launch command is not complete ({error}); {EXAMPLE}.") from None
    end = next((i for i, word in enumerate(words) if word in _ENDS), len(words))
    return words[:end]


def _split(words: list[str]) -> tuple[list[str], list[str]]:
    """Return what stands before the engine and its arguments.

    Raises:
        InputError: There is no engine.
        CannotTell: It is another engine.
    """
    for i, word in enumerate(words):
        name = word.rpartition("/")[2]
        if name in OTHER_ENGINES:
            raise CannotTell(
                f"The command starts {OTHER_ENGINES[name]}, which this version does not count yet; describe the "
                "deployment in vLLM's words instead.",
                key="engine",
            )
        if word == "serve" and i and _is_vllm(words[i - 1]):
            return words[:i], words[i + 1 :]
        if word in _MODULES or (_is_image(word) and any(other in _CONTAINERS for other in words[:i])):
            return words[: i + 1], _without_serve(words[i + 1 :])
    seen = " ".join([word for word in words if "=" not in word][:2])[:40]
    raise InputError(f"{seen!r} is not a launch command of vLLM; {EXAMPLE}.")


def _without_serve(rest: list[str]) -> list[str]:
    """Drop what stands before the arguments where the program is said once more."""
    for head in (["vllm", "serve"], ["serve"]):
        if rest[: len(head)] == head:
            return rest[len(head) :]
    return rest


def _is_vllm(word: str) -> bool:
    return word.rpartition("/")[2] == "vllm" or _PINNED.fullmatch(word) is not None


def _is_image(word: str) -> bool:
    return "/" in word and not word.startswith(("-", "/", ".", "~")) and _IMAGE.fullmatch(word) is not None


def _version(before: list[str]) -> str | None:
    """Return the version that an image's tag or a pinned package names."""
    for word in before:
        match = (_IMAGE.fullmatch(word) if _is_image(word) else None) or _PINNED.fullmatch(word)
        version = _VERSION.fullmatch(match["tag"] or "") if match else None
        if version:
            return version[1]
    return None


def _environment(before: list[str], options: dict[str, Any], notes: list[str], uncounted: dict[str, list[str]]) -> None:
    """Read the variables of vLLM that are set in front of the command or handed to a container."""
    for word in before:
        assignment = word.removeprefix("--env=")
        if not _ASSIGNMENT.fullmatch(assignment) or not assignment.startswith("VLLM_"):
            continue
        name, _, value = assignment.partition("=")
        on = value.strip().lower() in ("1", "true")
        if name == "VLLM_ALLOW_LONG_MAX_MODEL_LEN":
            options["allow_long"] = on
        elif name == "VLLM_USE_V1" and not on:
            uncounted.setdefault("the old engine V0", []).append(name)
        elif name in facts.UNCOUNTED_ENVIRONMENT:
            uncounted.setdefault(facts.UNCOUNTED_ENVIRONMENT[name], []).append(name)
        elif name != "VLLM_USE_V1" and name not in facts.HARMLESS_ENVIRONMENT.split():
            notes.append(f"{name} is not understood, so not counted.")


class _Kind(NamedTuple):
    """What a flag is: how many values follow ("", "1", "*"), and what is not counted, "" if it is harmless."""

    values: str
    uncounted: str


@cache
def _kinds() -> dict[str, _Kind]:
    """Return the flags beside the budget's own."""
    found: dict[str, _Kind] = {}

    def add(words: list[str], values: str, what: str) -> None:
        for word in words:
            name = word.rstrip("*")
            flag = name if name.startswith("-") else f"--{name}"
            found[flag] = _Kind("*" if word.endswith("*") else values, what)

    add(facts.HARMLESS_SWITCHES.split(), "", "")
    add(facts.HARMLESS_VALUES.split(), "1", "")
    for what, switches, values in facts.UNCOUNTED:
        add(switches.split(), "", what)
        add(values.split(), "1", what)
    return found


def _kind(name: str) -> _Kind | None:
    """Return what a flag is, None if it is not known; a switch that is turned off is harmless unless listed so."""
    kind = _kinds().get(name)
    if kind is None and name.startswith("--no-") and f"--{name[5:]}" in _kinds():
        return _Kind("", "")
    return kind


def _nested(words: list[str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return the words without the flags that stand for one key of an object, and those objects by field.

    `--speculative-config.method ngram` and `--spec-method ngram` are the same.
    """
    rest: list[str] = []
    found: dict[str, dict[str, Any]] = {}
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, value = word.partition("=")
        head, dot, tail = name.partition(".")
        field, key = "speculative_config", facts.SPECULATION.get(name)
        if dot and head in facts.NESTED:
            field, key = facts.NESTED[head], tail.replace("-", "_")
        if key is None:
            rest.append(word)
            continue
        if not equals:
            value = words[at] if at < len(words) else ""
            at += 1
        _put(found.setdefault(field, {}), key.split("."), _json(value))
    return rest, found


def _put(keys: dict[str, Any], path: list[str], value: object) -> None:
    """Put a value where a dotted key says: `image.count 2`."""
    for part in path[:-1]:
        inner = keys.setdefault(part, {})
        if not isinstance(inner, dict):
            inner = keys[part] = {}
        keys = inner
    keys[path[-1]] = value


def _json(text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return what a dotted flag's value says: JSON, or the text itself."""
    try:
        return json.loads(text[:MAX_VALUE])
    except (ValueError, RecursionError):
        return text


def _object(text: object, name: str) -> dict[str, Any]:
    found = _json(str(text))
    if not isinstance(found, dict):
        raise InputError(f"In the launch command: {flag(name)} is not a JSON object; give it as the engine takes it.")
    return found


def _sort(
    rest: list[str], options: list[click.Option], notes: list[str], uncounted: dict[str, list[str]]
) -> tuple[list[str], str]:
    """Return the arguments that our own options read, and the model; all others are noted or passed over."""
    own = {name: not option.is_flag for option in options for name in (*option.opts, *option.secondary_opts)}
    known: list[str] = []
    models: list[str] = []
    doubtful: list[str] = []
    words = rest
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        name, equals, value = word.partition("=")
        name = facts.ALIASES.get(name, name)
        if not word.startswith("-"):
            models.append(word)
        elif name in _MODEL:
            models[:0] = [value] if equals else words[at : at + 1]
            at += not equals
        elif name in own:
            known.append(name + equals + value)
            if own[name] and not equals:
                known += words[at : at + 1]
                at += 1
        elif name.startswith("--no-") and f"--{name[5:]}" in own:
            known = [other for other in known if other != f"--{name[5:]}"]
        else:
            name, dot, _ = name.partition(".")  # --compilation-config.level 3
            kind = _kind(name)
            taken = 0 if equals else _values(words[at:], "1" if dot or kind is None else kind.values)
            if kind is None:
                notes.append(f"{name} is not understood, so not counted.")
                doubtful += words[at : at + taken]
            elif kind.uncounted and name not in uncounted.setdefault(kind.uncounted, []):
                uncounted[kind.uncounted].append(name)
            at += taken
    if not models and not doubtful:
        raise InputError(f"The launch command names no model; {EXAMPLE}.")
    return known, (models or doubtful[-1:])[0]


def _spelled(words: list[str]) -> Iterator[str]:
    """Yield the words with dashes in flags' names, and `-O3` as the flag that it is short for."""
    for word in words:
        if _OPTIMIZATION.fullmatch(word):
            yield "--optimization-level" if word == "-O" else f"--optimization-level={word[2:].lstrip('=')}"
        elif word.startswith("--"):
            name, equals, value = word.partition("=")
            head, dot, tail = name.partition(".")
            yield head.replace("_", "-") + dot + tail + equals + value
        else:
            yield word


def _values(words: list[str], kind: str) -> int:
    """Return how many of the words are the values of a flag that takes none (""), one ("1") or many ("*")."""
    if not kind:
        return 0
    count = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    return count if kind == "*" else min(count, 1)


def _read(known: list[str], options: list[click.Option]) -> dict[str, Any]:
    """Return the fields that our own options make of the arguments.

    Raises:
        InputError: A value is not understood, or one is missing.
    """
    command = click.Command("vllm serve", params=list(options), add_help_option=False)
    try:
        context = command.make_context("vllm serve", known)
    except click.ClickException as error:
        raise InputError(f"In the launch command: {error.format_message()} Give it as the engine takes it.") from None
    return {
        name: value
        for name, value in context.params.items()
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
