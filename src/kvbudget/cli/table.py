"""`kvbudget table`: many budgets at once; its twin in Python is `kvbudget.grid`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from kvbudget.cli.options import (
    NUMBER,
    TOKENS,
    choose_gpu,
    chosen_model,
    deployment_parameters,
    model_parameters,
    write_page,
)
from kvbudget.deployment import Deployment
from kvbudget.errors import InputError
from kvbudget.explain import STAND_IN_GPU
from kvbudget.grid import sheet, steps_between, usual_contexts
from kvbudget.textbook import TABLE_BATCHES

if TYPE_CHECKING:
    from kvbudget.facts.gpus import Gpu
    from kvbudget.grid import Sheet
    from kvbudget.model import Model

SHORTEST_DRAWN = 1024
"""Tokens at the left end of the charts, unless a shorter context is asked for."""

_THOUSANDS = re.compile(r"\s*[0-9]{1,3}(,[0-9]{3})+\s*")


class Several(click.ParamType):  # type: ignore[type-arg] # generic in newer releases only
    """Values of another type, separated by commas."""

    def __init__(self, one: click.ParamType) -> None:  # type: ignore[type-arg]
        self.one = one
        self.name = f"{one.name}[,…]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Any, ...]:  # noqa: ANN401
        """Return the values; refuse what may be one number with separators."""
        if not isinstance(value, str):
            return value if isinstance(value, tuple) else (value,)
        name = max(param.opts, key=len) if param else "value"
        if _THOUSANDS.fullmatch(value):
            one = value.replace(",", "").strip()
            raise InputError(
                f"{name} {value!r} may be one number or several; write {one}, or a space after each comma."
            )
        parts = [part.strip() for part in value.split(",")]
        if not all(parts):
            raise InputError(f"{name} {value[:40]!r} has an empty value; give one, or several separated by commas.")
        return tuple(self.one.convert(part, param, ctx) for part in parts)


class Quantization(click.ParamType):  # type: ignore[type-arg] # generic in newer releases only
    """The name of a quantization; none is the checkpoint as it is."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str | None:  # noqa: ANN401, ARG002
        """Return the name."""
        return None if value.lower() == "none" else str(value)


def _parameters() -> list[click.Parameter]:
    """Return the options of a deployment, each of which takes several values here, and those of the table."""
    found: list[click.Parameter] = [*model_parameters()]
    for option in deployment_parameters():
        if option.name in ("context", "num_gpus"):
            continue
        if option.name == "quantization":
            option.type = Quantization()
            option.opts.append("--quantizations")
        if not option.is_flag:
            option.type = Several(option.type)
        found.append(option)
    tokens = Several(TOKENS)
    contexts = ["--contexts", "--context"]
    found[5:5] = [
        click.Option(contexts, type=tokens, help="Tokens of a request.  [default: 4K,32K,128K and the model's own]"),
        click.Option(["--batches", "--batch"], type=Several(NUMBER), help="Requests at the same time.  [default: 1,8]"),
    ]
    for name, text in (("--json", "JSON, schema 1."), ("--csv", "CSV."), ("--md", "Markdown.")):
        found.append(click.Option([name, f"as_{name[2:]}"], is_flag=True, help=text))
    found.append(click.Option(["--html"], metavar="FILE", help="Write a page with charts; - is standard output."))
    return found


@click.command(params=_parameters())
@click.argument("model")
def table(
    *,
    model: str,
    contexts: tuple[int, ...] | None,
    batches: tuple[int, ...] | None,
    as_json: bool,
    as_csv: bool,
    as_md: bool,
    html: str | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Show MODEL over contexts, batches, KV types, layouts and GPUs: KV alone, or what fits where a card is named.

    Options take several values, separated by commas.

    \b
    kvbudget table llama-3.1-8b
    kvbudget table llama-3.1-8b --gpu l4,h100 --contexts 4K,32K --batches 1,8
    kvbudget table qwen3-235b-a22b-fp8 --gpu h200 -tp 4,8 --kv-cache-dtype auto,fp8
    kvbudget table llama-3.1-8b --gpu l4 --quantizations none,fp8,awq,gguf:Q4_K_M
    """  # noqa: D301 - click reads the backspace character
    if sum((as_json, as_csv, as_md)) > 1:
        raise InputError("--json, --csv and --md exclude each other; give one of them.")
    found = _sheet(chosen_model(model, options), contexts, batches, options, drawn=html is not None)
    if html is not None:
        from kvbudget.present.html import sheet_page  # noqa: PLC0415 - only pages need it

        write_page(sheet_page(found), html)
        if html == "-" or not (as_json or as_csv or as_md):
            return
    click.echo(_shown(found, as_json=as_json, as_csv=as_csv, as_md=as_md), nl=False)


def _sheet(
    model: Model,
    contexts: tuple[int, ...] | None,
    batches: tuple[int, ...] | None,
    options: dict[str, Any],
    *,
    drawn: bool,
) -> Sheet:
    cards = _cards(options.pop("gpu"), options.pop("gpu_memory"))
    given: dict[str, tuple[Any, ...]] = {}
    single: dict[str, Any] = {}
    order = [str(option.name) for option in deployment_parameters()]
    for name, value in sorted(options.items(), key=lambda item: order.index(item[0])):
        if isinstance(value, tuple) and len(value) > 1:
            given[name] = value
        elif value is not None:
            single[name] = value[0] if isinstance(value, tuple) else value
    fixed = "max_model_len" in given or "max_model_len" in single
    axes: dict[str, tuple[Any, ...]] = {"gpu": cards} if cards else {}
    axes |= {name: values for name, values in given.items() if name != "max_model_len"}
    if "max_model_len" in given:
        axes["max_model_len"] = given["max_model_len"]
    elif fixed and not contexts:
        axes["max_model_len"] = (single.pop("max_model_len"),)
    if contexts or not fixed:
        axes["context" if fixed else "max_model_len"] = contexts or usual_contexts(model)
    curve: tuple[int, ...] = ()
    if drawn:
        shown = axes[list(axes)[-1]]
        curve = steps_between(min(SHORTEST_DRAWN, *shown), max(*shown, model.max_position_embeddings or 0))
    first = cards[0] if cards else choose_gpu(STAND_IN_GPU, None)
    return sheet(
        Deployment(model=model, gpu=first, **single),
        batches=batches or TABLE_BATCHES,
        with_gpu=bool(cards),
        curve_contexts=curve,
        **axes,
    )


def _cards(names: tuple[str, ...] | None, memories: tuple[int, ...] | None) -> tuple[Gpu, ...]:
    """Return the cards: each name with each memory, where memories are given."""
    if not names and not memories:
        return ()
    return tuple(choose_gpu(name, memory) for name in names or (None,) for memory in memories or (None,))


def _shown(found: Sheet, *, as_json: bool, as_csv: bool, as_md: bool) -> str:
    from kvbudget.present import sheet as present  # noqa: PLC0415 - a page needs none of it

    if as_json:
        return present.sheet_json(found)
    if as_csv:
        return present.sheet_csv(found)
    return present.sheet_markdown(found) if as_md else present.sheet_text(found)
