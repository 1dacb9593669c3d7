"""Verbs that take a launch command: `kvbudget VERB [OPTIONS] [MODEL] -- vllm serve …`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

LAUNCH = "kvbudget.launch"
"""Where a context keeps the launch command that stands after `--`."""


class TakesLaunch(click.Command):
    """A verb that takes a launch command after `--`, whose flags are the engine's and not its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Set the launch command aside and parse the rest."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[LAUNCH] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def asked(
    ctx: click.Context, model: str | None, options: dict[str, Any], reads: Sequence[click.Option] = ()
) -> tuple[str, dict[str, Any]]:
    """Return the model and the options of a verb, those of a launch command included; what stands before `--` wins.

    What was not understood is noted on stderr.

    Args:
        ctx: Of the verb.
        model: What was named before `--`.
        options: What was said before it.
        reads: Options of the engine that the verb has beside those of a deployment.

    Raises:
        InputError: No model was named, or the launch command is not understood.
        CannotTell: The launch command starts another engine.
    """
    command = ctx.meta.get(LAUNCH)
    if command and model is None and len(command) == 1 and not any(char.isspace() for char in command[0]):
        model, command = command[0], None  # a lone word is the model, as everywhere after two dashes
    if not command:
        if not model:
            raise InputError(
                "No model was named; give a hub id, a folder, a config.json or a name from `kvbudget models`."
            )
        return model, options
    from kvbudget.cli.launch import parse_launch  # noqa: PLC0415 - few commands paste one

    launch = parse_launch(command, reads)
    for note in launch.notes:
        click.echo(f"kvbudget: note: {note}", err=True)
    typed = {
        name: value for name, value in options.items() if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    # A command is to be launched as it is; what is typed in front of it is a question.
    what_if = "quantization" in typed or "quantization" not in launch.options
    told = {"uncounted": tuple(launch.warnings), "what_if": what_if}
    return model or launch.model, {**options, **launch.options, **typed, **told}
