"""The options that several verbs share, and what they become: a `Deployment`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbudget.basis import Basis
from kvbudget.deployment import AUTO, Deployment
from kvbudget.errors import InputError
from kvbudget.facts.gpus import Gpu, find_gpu
from kvbudget.hub import model_of, open_checkpoint
from kvbudget.units import SMALLEST_CARD, parse_bytes, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.model import Model


WHAT_WIDTH = 50
"""Of a model's name in a line of progress."""

DECIMAL = ("k", "m", "g", "t")
"""Suffixes of token counts that mean a power of 1,000 to vLLM, and that people often mean otherwise."""


class Tokens(click.ParamType):  # type: ignore[type-arg] # generic in newer releases only
    """A token count as vLLM reads it: 32768, 32k = 32,000, 32K = 32,768."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401, ARG002
        """Return the count."""
        if isinstance(value, int):
            return value
        tokens = parse_tokens(value, what=_flag(param))
        if value.rstrip()[-1:] in DECIMAL:
            note = decimal_note(_flag(param), value.strip(), tokens)
            click.echo(f"kvbudget: note: {note}", err=True)
        return tokens


class Bytes(click.ParamType):  # type: ignore[type-arg] # generic in newer releases only
    """A size: 80GB, 79.19GiB, 81559MiB, 24g."""

    name = "bytes"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401, ARG002
        """Return the bytes."""
        if isinstance(value, int):
            return value
        return parse_bytes(value, what=_flag(param), least=self.least)


class Number(click.ParamType):  # type: ignore[type-arg] # generic in newer releases only
    """A whole number or a fraction that the library checks, so that its message names what is expected."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401, ARG002
        """Return an int or a float."""
        if not isinstance(value, str):
            return value
        for kind in (int, float) if value.isascii() else ():
            try:
                return kind(value)
            except ValueError:
                continue
        raise InputError(f"{_flag(param)} {value[:40]!r}: expected a number.")


def decimal_note(flag: str, text: str, tokens: int) -> str:
    """Return what a lower-case suffix means, and how to write what may have been meant."""
    suffix = text[-1]
    binary = text[:-1] + suffix.upper()
    return (
        f"{flag} {text} = {tokens:,} tokens (vLLM: {suffix} = powers of 1,000, {suffix.upper()} = powers of 1,024); "
        f"for {parse_tokens(binary):,} write {binary}."
    )


def _flag(param: click.Parameter | None) -> str:
    return max(param.opts, key=len) if param is not None and param.opts else "value"


class Length(Tokens):
    """A token count, or auto (also -1) for the longest that fits."""

    name = "tokens or auto"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401
        """Return the count, or `AUTO`."""
        return AUTO if value in ("auto", str(AUTO)) else super().convert(value, param, ctx)


TOKENS, BYTES, NUMBER = Tokens(), Bytes(), Number()

_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    (("--gpu",), {"help": "The card; see `kvbudget gpus`."}),
    (("--gpu-memory",), {"type": Bytes(SMALLEST_CARD), "help": 'Its memory instead: the "Total" from nvidia-smi.'}),
    (("--num-gpus",), {"type": NUMBER, "help": "How many there are."}),
    (("--engine",), {"default": "vllm", "help": "The serving engine (vllm)."}),
    (("--engine-version",), {"help": "Its version, such as 0.32."}),
    (("--tensor-parallel-size", "-tp", "--tp"), {"type": NUMBER, "help": "GPUs that split each layer."}),
    (("--pipeline-parallel-size", "-pp", "--pp"), {"type": NUMBER, "help": "Stages that split the layers."}),
    (("--data-parallel-size", "-dp", "--dp"), {"type": NUMBER, "help": "Replicas."}),
    (
        ("--decode-context-parallel-size", "-dcp"),
        {"type": NUMBER, "help": "Ranks that split each request's tokens."},
    ),
    (("--enable-expert-parallel",), {"is_flag": True, "help": "Divide experts whole instead of by width."}),
    (("--max-model-len",), {"type": Length(), "help": "Longest request: 32768, 32k = 32,000, 32K = 32,768, or auto."}),
    (("--max-num-seqs",), {"type": NUMBER, "help": "Requests that run at once."}),
    (("--max-num-batched-tokens",), {"type": TOKENS, "help": "Tokens of one step."}),
    (("--gpu-memory-utilization",), {"type": NUMBER, "help": "Fraction of the card's memory, 0–1."}),
    (("--kv-cache-dtype",), {"default": "auto", "help": "auto, fp8, …; see `kvbudget formats`."}),
    (("--kv-cache-memory-bytes",), {"type": BYTES, "help": "The KV pool itself, whatever the rest."}),
    (
        ("--num-gpu-blocks-override",),
        {"type": NUMBER, "help": "Blocks of the KV cache, whatever the memory."},
    ),
    (("--block-size",), {"type": NUMBER, "help": "Tokens of a KV block."}),
    (("--dtype",), {"default": "auto", "help": "auto, bfloat16, float16, float32."}),
    (
        ("--quantization", "-q"),
        {"help": "vLLM's flag; over a plain MODEL also: what if it were awq, gptq, int8, nvfp4, gguf:Q4_K_M, …"},
    ),
    (("--enforce-eager",), {"is_flag": True, "help": "No CUDA graphs."}),
    (
        ("--enable-prefix-caching/--no-enable-prefix-caching",),
        {"default": None, "help": "Keep finished blocks."},
    ),
    (("--async-scheduling/--no-async-scheduling",), {"default": None, "help": "Schedule one step ahead."}),
    (("--disable-hybrid-kv-cache-manager",), {"is_flag": True, "help": "Treat window layers as full ones."}),
    (
        ("--speculative-config", "-sc"),
        {"metavar": "JSON", "help": 'What drafts tokens: \'{"method": "mtp", "num_speculative_tokens": 1}\'.'},
    ),
    (
        ("--limit-mm-per-prompt",),
        {"metavar": "JSON", "help": 'Images, videos, audio a prompt may have: \'{"image": 2, "video": 0}\'.'},
    ),
    (("--language-model-only",), {"is_flag": True, "help": "Text alone: encoders are not loaded."}),
    (("--skip-mm-profiling",), {"is_flag": True, "help": "Keep nothing free for encoders at work."}),
    (("--mm-encoder-tp-mode",), {"help": "weights (encoders are split) or data (whole on each GPU)."}),
    (("--enable-lora",), {"is_flag": True, "help": "Take slots for LoRA adapters."}),
    (("--max-loras",), {"type": NUMBER, "help": "How many adapters a batch may use."}),
    (("--max-lora-rank",), {"type": NUMBER, "help": "The largest rank of an adapter."}),
    (("--lora-dtype",), {"help": "auto, bfloat16, float16."}),
    (("--fully-sharded-loras",), {"is_flag": True, "help": "Divide both matrices of an adapter."}),
    (("--context",), {"type": TOKENS, "help": "Count requests of this length instead."}),
    (("--allow-long",), {"is_flag": True, "help": "Allow more than the model's own length."}),
)


_REVISION: tuple[tuple[str, ...], dict[str, Any]] = (
    ("--revision",),
    {"help": "Branch, tag or commit of a hub id."},
)
_MODEL_OPTIONS: tuple[tuple[tuple[str, ...], dict[str, Any]], ...] = (
    _REVISION,
    (("--refresh",), {"is_flag": True, "help": "Ask the hub again for what is remembered."}),
    (
        ("--headers/--no-headers",),
        {"default": True, "help": "Read the weights' headers from the hub, or only its counts.", "show_default": False},
    ),
)


def model_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which model is meant; `chosen_model` takes them."""
    for names, settings in reversed(_MODEL_OPTIONS):
        function = click.option(*names, **settings)(function)
    return function


def model_parameters() -> list[click.Option]:
    """Return the same options as objects."""
    return [click.Option(list(names), **settings) for names, settings in _MODEL_OPTIONS]


def chosen_model(reference: str, options: dict[str, Any]) -> Model:
    """Return the model that is meant, and take its options out of `options`; what was odd is noted on stderr.

    Raises:
        AccessError: The hub or the file system does not let us in.
        InputError: There is no such model, or it is broken.
        CannotTell: Its architecture is not known.
    """
    revision, refresh, headers = (options.pop(name, None) for name in ("revision", "refresh", "headers"))
    progress = Progress(reference)
    try:
        checkpoint = open_checkpoint(
            reference, revision=revision, refresh=bool(refresh), headers=headers is not False, progress=progress
        )
    finally:
        progress.end()
    for note in checkpoint.notes:
        click.echo(f"kvbudget: note: {note}", err=True)
    return model_of(checkpoint)


class Progress:
    """Says on stderr how many headers are read: a line that changes on a terminal, one line elsewhere.

    Args:
        what: Of what they are.
    """

    def __init__(self, what: str) -> None:
        self._what = what[:WHAT_WIDTH]
        self._shown = False

    def __call__(self, done: int, files: int) -> None:
        """Show how far it is."""
        live = sys.stderr.isatty()
        if files < 2 or (self._shown and not live):  # noqa: PLR2004 - one file is one request
            return
        self._shown = True
        if live:
            click.echo(f"\rkvbudget: {self._what}: {done} of {files} headers", nl=False, err=True)
        else:
            click.echo(f"kvbudget: reading {files} headers of {self._what}", err=True)

    def end(self) -> None:
        """Clear the line."""
        if self._shown and sys.stderr.isatty():
            click.echo("\r\033[K", nl=False, err=True)


def deployment_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a deployment to a command; they arrive as keyword arguments named like its fields."""
    for names, settings in reversed(_OPTIONS):
        function = click.option(*names, **settings)(function)
    return function


def deployment_parameters() -> list[click.Option]:
    """Return the same options as objects, for a parser that is not a verb's."""
    return [click.Option(list(names), **settings) for names, settings in _OPTIONS]


def launch_parameters() -> list[click.Option]:
    """Return the options of a deployment and of its model that an engine has too."""
    return [*deployment_parameters(), click.Option(list(_REVISION[0]), **_REVISION[1])]


def build_deployment(model: Model, options: dict[str, Any]) -> Deployment:
    """Return the deployment that the options describe; what was not given is left to the engine.

    Raises:
        InputError: No card was named, or a value is refused.
    """
    given = {key: value for key, value in options.items() if value is not None and key not in ("gpu", "gpu_memory")}
    return Deployment(model=model, gpu=choose_gpu(options.get("gpu"), options.get("gpu_memory")), **given)


def with_calibration(d: Deployment) -> Deployment:
    """Return the deployment with what was measured here for its like, if anything was.

    Raises:
        InputError: The file of measurements is damaged.
    """
    given = os.environ.get("KVBUDGET_CALIBRATION")
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    path = given or os.path.join(home, "kvbudget", "calibration.json")  # noqa: PTH118 - before calibration is imported
    if not os.path.exists(os.path.expanduser(path)):  # noqa: PTH110, PTH111
        return d
    from kvbudget.calibration import calibrated  # noqa: PLC0415 - few users have measured

    return calibrated(d)


def choose_gpu(name: str | None, memory: int | None) -> Gpu:
    """Return the card by name, by its memory, or a named card with another memory size."""
    if name is None and memory is None:
        raise InputError("No card was named; give --gpu NAME (see `kvbudget gpus`) or --gpu-memory 79.19GiB.")
    if memory is None:
        return find_gpu(str(name))
    known = find_gpu(name) if name is not None else None
    return Gpu(
        name=known.name if known else "given",
        aliases=(),
        marketing="",
        memory_bytes=memory,
        basis=Basis.GIVEN,
        engine_total_bytes=None,
        bandwidth_bytes_per_s=known.bandwidth_bytes_per_s if known else None,
        bf16_flops=known.bf16_flops if known else None,
        fp8_flops=known.fp8_flops if known else None,
        compute_capability=known.compute_capability if known else None,
        interconnect_bytes_per_s=known.interconnect_bytes_per_s if known else None,
        unified=known.unified if known else False,
        source="--gpu-memory",
        read_on="",
    )


def chosen_output(outputs: dict[str, bool]) -> str:
    """Return the one output that was asked for, "" for text.

    Raises:
        InputError: Several were.
    """
    chosen = [name for name, asked_for in outputs.items() if asked_for]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(f'--{name}' for name in chosen)} exclude each other; give one of them.")
    return chosen[0] if chosen else ""


def write_page(page: str, target: str) -> None:
    """Write a page to a file, and say so on stderr; - is standard output.

    Raises:
        InputError: The file cannot be written.
    """
    if target == "-":
        click.echo(page, nl=False)
        return
    try:
        Path(target).expanduser().write_text(page, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}.") from None
    click.echo(f"kvbudget: wrote {target} ({len(page.encode()):,} bytes)", err=True)


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --json, --csv and --md."""
    for name, text in (("--md", "Markdown."), ("--csv", "CSV."), ("--json", "JSON, schema 1.")):
        function = click.option(name, f"as_{name[2:]}", is_flag=True, help=text)(function)
    return function


WIDTH = 80
"""Columns where nobody says, and on anything that is not a terminal."""

WIDEST = 100
"""Columns beyond which a sentence is hard to read."""


def columns() -> int:
    """Return the width of the terminal, which COLUMNS overrides."""
    return min(shutil.get_terminal_size((WIDTH, 24)).columns, WIDEST)


def encodable(text: str) -> str:
    """Return the text, in ASCII if the output cannot hold its characters."""
    from kvbudget.present.text import plain  # noqa: PLC0415

    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return plain(text)
    return text
