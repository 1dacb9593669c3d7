"""`kvbudget fit`: the budget of one deployment."""

from __future__ import annotations

import json
from typing import Any

import click

from kvbudget.budget import DOES_NOT_FIT, budget, refusal_dict
from kvbudget.cli.options import build_deployment, deployment_options, output_options
from kvbudget.errors import CannotTell
from kvbudget.hub import load_model


@click.command()
@click.argument("model")
@deployment_options
@output_options
@click.pass_context
def fit(ctx: click.Context, model: str, as_json: bool, as_csv: bool, as_md: bool, **options: Any) -> None:  # noqa: ANN401
    """Say whether MODEL fits, and for how many requests at once.

    MODEL is a folder, a config.json or a short name of `kvbudget models`.
    """
    try:
        b = budget(build_deployment(load_model(model), options))
    except CannotTell as error:
        if as_json:
            click.echo(json.dumps(refusal_dict(model, error, options), indent=1))
            ctx.exit(error.exit_code)
        raise
    if as_json:
        click.echo(json.dumps(b.to_dict(), indent=1))
    elif as_csv:
        from kvbudget.present.table import budget_csv  # noqa: PLC0415

        click.echo(budget_csv(b), nl=False)
    elif as_md:
        from kvbudget.present.markdown import budget_markdown  # noqa: PLC0415

        click.echo(budget_markdown(b), nl=False)
    else:
        from kvbudget.present.text import budget_text  # noqa: PLC0415

        click.echo(budget_text(b), nl=False)
    ctx.exit(1 if b.verdict == DOES_NOT_FIT else 0)
