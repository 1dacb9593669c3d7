"""`kvbudget explain`: where a number comes from; its twin in Python is `kvbudget.explain`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbudget import __version__
from kvbudget.cli.options import BYTES, NUMBER, TOKENS, choose_gpu, chosen_model, model_options
from kvbudget.errors import InputError
from kvbudget.explain import (
    MAX_LOG_CHARACTERS,
    STAND_IN_GPU,
    ConfigFile,
    explain_flag,
    explain_kv,
    explain_log,
    explain_weights,
    flag_dict,
)
from kvbudget.present import explained
from kvbudget.present.document import as_markdown, as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.deployment import Deployment
    from kvbudget.model import Model
    from kvbudget.present.document import Document


@click.group()
def explain() -> None:
    """Say where a number comes from, factor by factor."""


def _outputs(function: Callable[..., Any]) -> Callable[..., Any]:
    for name, text in (("--md", "Markdown."), ("--json", "JSON, schema 1.")):
        function = click.option(name, f"as_{name[2:]}", is_flag=True, help=text)(function)
    return function


_LAYOUT: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--tensor-parallel-size", "-tp", "--tp"), {"type": NUMBER, "help": "GPUs that split each layer."}),
    (("--gpu",), {"help": f"The card, which may decide the block size. [default: {STAND_IN_GPU}]"}),
    (("--gpu-memory",), {"type": BYTES, "help": "Its memory instead."}),
    (("--engine-version",), {"help": "The engine's version, such as 0.32."}),
    (("--dtype",), {"help": "auto, bfloat16, float16, float32."}),
)
_CACHE: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--context",), {"type": TOKENS, "help": "Tokens of the request. [default: the model's longest]"}),
    (("--kv-cache-dtype",), {"help": "auto, fp8, …; see `kvbudget formats`."}),
    (("--block-size",), {"type": NUMBER, "help": "Tokens of a KV block."}),
)
_FORMAT: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--quantization", "-q"), {"help": "What if they were quantized: fp8, awq, gptq, int8, nvfp4, gguf:Q4_K_M, …"}),
)


def _options(*tables: tuple[tuple[tuple[str, ...], dict[str, Any]], ...]) -> Callable[..., Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for names, settings in reversed([row for table in tables for row in table]):
            function = click.option(*names, **settings)(function)
        return function

    return decorate


@explain.command("kv", short_help="The KV cache of one request: factors and slips.")
@click.argument("model")
@model_options
@_options(_CACHE, _LAYOUT)
@_outputs
def kv(*, model: str, context: int | None, as_md: bool, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Take the KV cache of one request of MODEL apart: each factor with the key that it came from."""
    loaded = chosen_model(model, options)
    d = _deployment(loaded, {**options, "max_model_len": context, "allow_long": True})
    _show(explain_kv(d, file=_config_file(loaded)), explained.kv_document, as_md=as_md, as_json=as_json)


@explain.command("weights", short_help="The weights: groups, bytes, formats.")
@click.argument("model")
@model_options
@_options(_LAYOUT, _FORMAT)
@_outputs
def weights(*, model: str, as_md: bool, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Take the weights of MODEL apart: groups, parameters, bytes, and how each group is stored.

    With --quantization they are those of the plain MODEL quantized so.
    """
    d = _deployment(chosen_model(model, options), options)
    _show(explain_weights(d), explained.weights_document, as_md=as_md, as_json=as_json)


@explain.command("log", short_help="A line of an engine's log.")
@click.argument("line")
@_outputs
def log(*, line: str, as_md: bool, as_json: bool) -> None:
    """Say what a LINE of vLLM's, SGLang's or llama.cpp's log means; - reads standard input."""
    if line == "-":
        line = sys.stdin.read(MAX_LOG_CHARACTERS + 1)
    readings = explain_log(line)
    if as_json:
        found = [reading.to_dict() for reading in readings]
        _echo({"schema": 1, "kvbudget": __version__, "explains": "log", "lines": found})
    else:
        _show(readings, explained.log_document, as_md=as_md)


@explain.command("flag", short_help="A flag of vLLM, with its defaults by version.")
@click.argument("name")
@_outputs
def flag(*, name: str, as_md: bool, as_json: bool) -> None:
    """Say what a flag means, its default by version, and what it does not cover."""
    found = explain_flag(name)
    if as_json:
        _echo(flag_dict(found))
    else:
        _show(found, explained.flag_document, as_md=as_md)


def _deployment(model: Model, options: dict[str, Any]) -> Deployment:
    from kvbudget.deployment import Deployment  # noqa: PLC0415 - `flag` and `log` do not need it

    given = {key: value for key, value in options.items() if value is not None}
    name, memory = given.pop("gpu", None), given.pop("gpu_memory", None)
    if name is None and memory is None:
        name = STAND_IN_GPU
    return Deployment(model=model, gpu=choose_gpu(name, memory), **given)


def _config_file(model: Model) -> ConfigFile | None:
    """Return the config's text if the model came from one, for the line numbers of its keys."""
    path = Path(model.source)
    if path.suffix.lower() == ".gguf":  # as large as the model, and no text
        return None
    try:
        return ConfigFile(name=path.name, text=path.read_text("utf-8-sig")) if path.is_file() else None
    except (OSError, UnicodeDecodeError):  # it was read a moment ago; without it the keys have no lines
        return None


def _show(found: Any, document: Callable[[Any], Document], *, as_md: bool, as_json: bool = False) -> None:  # noqa: ANN401
    if as_md and as_json:
        raise InputError("--json and --md exclude each other; give one of them.")
    if as_json:
        _echo(found.to_dict())
    else:
        click.echo((as_markdown if as_md else as_text)(document(found)), nl=False)


def _echo(data: dict[str, Any]) -> None:
    click.echo(json.dumps(data, indent=1, ensure_ascii=False))
