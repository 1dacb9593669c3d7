"""`kvbudget fit`: the budget of one deployment."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import click

from kvbudget.budgeting import DOES_NOT_FIT, budget, refusal_dict
from kvbudget.cli.asked import TakesLaunch, asked
from kvbudget.cli.options import (
    build_deployment,
    chosen_model,
    chosen_output,
    columns,
    deployment_options,
    encodable,
    model_options,
    output_options,
    with_calibration,
    write_page,
)
from kvbudget.errors import CannotTell, InputError

if TYPE_CHECKING:
    from kvbudget.budgeting import Budget


@click.command(cls=TakesLaunch, options_metavar="[OPTIONS]")
@click.argument("model", required=False, metavar="[MODEL] [-- COMMAND...]")
@model_options
@deployment_options
@output_options
@click.option("--html", metavar="FILE", help="Write a page; - is standard output.")
@click.option("--save-plan", metavar="FILE", help="Write a plan for `check`; - is standard output.")
@click.option("--no-calibration", is_flag=True, help="Leave out what `check --learn` has measured here.")
@click.pass_context
def fit(
    ctx: click.Context,
    /,
    model: str | None,
    as_json: bool,
    as_csv: bool,
    as_md: bool,
    html: str | None,
    save_plan: str | None,
    no_calibration: bool,
    **options: Any,  # noqa: ANN401
) -> None:
    """Say whether MODEL fits, and for how many requests at once.

    MODEL is a hub id, a folder, a config.json, a .gguf file or a short name of `kvbudget models`.
    A launch command may stand after --; what stands before it wins.

    \b
    kvbudget fit llama-3.1-8b --gpu l4 --max-model-len 16K
    kvbudget fit --gpu h100 -- vllm serve org/name -tp 4
    """  # noqa: D301 - click reads the backspace character
    output = chosen_output({"json": as_json, "csv": as_csv, "md": as_md})
    writers = [name for name, target in (("--html -", html), ("--save-plan -", save_plan)) if target == "-"]
    writers += [f"--{output}"] if output else []
    if len(writers) > 1:
        raise InputError(f"{' and '.join(writers)} both write to standard output; give one of them or a file.")
    name = model or ""
    try:
        name, options = asked(ctx, model, options)
        d = build_deployment(chosen_model(name, options), options)
        b = budget(d if no_calibration else with_calibration(d))
    except CannotTell as error:
        if output == "json":
            click.echo(json.dumps(refusal_dict(name, error, options), indent=1))
            ctx.exit(error.exit_code)
        raise
    if save_plan is not None:
        _save_plan(b, save_plan)
    if html is not None:
        from kvbudget.present.budget_html import budget_page  # noqa: PLC0415 - only pages need it

        write_page(budget_page(b), html)
    if (html is None or output) and save_plan != "-":
        click.echo(_rendered(b, output), nl=False)
    ctx.exit(1 if b.verdict == DOES_NOT_FIT else 0)


def _save_plan(b: Budget, target: str) -> None:
    """Write the plan, and say so on stderr."""
    from kvbudget.check.plan import plan_dict  # noqa: PLC0415 - few budgets are kept

    write_page(json.dumps(plan_dict(b), indent=1) + "\n", target)


def _rendered(b: Budget, output: str) -> str:
    """Return the budget in the asked form; each form is imported when it is used."""
    if output == "json":
        return json.dumps(b.to_dict(), indent=1) + "\n"
    if output == "csv":
        from kvbudget.present.table import budget_csv  # noqa: PLC0415

        return encodable(budget_csv(b))
    if output == "md":
        from kvbudget.present.markdown import budget_markdown  # noqa: PLC0415

        return encodable(budget_markdown(b))
    from kvbudget.present.text import budget_text  # noqa: PLC0415

    text = budget_text(b, columns(), color=_colored())
    return encodable(text)


def _colored() -> bool:
    """Return whether colours are wanted: a terminal that knows them, and no NO_COLOR."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
