"""The command line: parse, call the library, present. No formula lives here.

Each verb is a module that is imported when it is used, so that `fit` does not pay for the others.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module
from typing import Any

import click

from kvbudget import __version__
from kvbudget.errors import AccessError, KvbudgetError

VERBS = {
    "fit": ("kvbudget.cli.fit:fit", "The budget of one deployment: verdict, lines, concurrency."),
    "explain": ("kvbudget.cli.explain:explain", "Where a number comes from, factor by factor."),
    "simulate": ("kvbudget.cli.simulate:simulate", "A deployment under a workload: queue, KV use, preemptions."),
    "sweep": ("kvbudget.cli.sweep:sweep", "Many simulations: rates, settings, seeds; on all cores or a cluster."),
    "check": ("kvbudget.cli.check:check_verb", "A running engine, its log and metrics, against its plan."),
    "emit": ("kvbudget.cli.emit:emit", "Alerts, a dashboard and scaling from a plan."),
    "table": ("kvbudget.cli.table:table", "A grid of contexts, batches, KV types, layouts and GPUs."),
    "kv": ("kvbudget.cli_textbook:kv", "The textbook formula from bare numbers."),
    "lab": ("kvbudget.cli_textbook:lab", "Write the worked exercise into a folder."),
    "models": ("kvbudget.cli.facts:models", "The built-in catalogue, with sources."),
    "gpus": ("kvbudget.cli.facts:gpus", "The accelerators that are known, with sources."),
    "formats": ("kvbudget.cli.facts:formats", "Data types and quantization formats, with sources."),
    "engines": ("kvbudget.cli.facts:engines", "The engines that are known, with their versions' rules."),
}


class Verbs(click.Group):
    """A group that imports a verb's module when the verb is used; `--help` needs none of them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        """Return the verbs in the order of the table."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return a verb."""
        entry = VERBS.get(cmd_name)
        if entry is None:
            return None
        module, _, name = entry[0].partition(":")
        command: click.Command = getattr(import_module(module), name)
        return command

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run a verb; click would leave with 1 where the reader of a pipe has seen enough."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _write_no_more()
            ctx.exit(0)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of verbs from the table."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, entry[1]) for name, entry in VERBS.items()])


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kvbudget")
def cli() -> None:
    """What a language model's deployment will do with a GPU's memory, before the GPU is rented.

    Exit codes: 0 fits or as planned, 1 does not fit or drift, 2 bad input, 3 cannot tell, 4 network or access.
    """


def dashed(arguments: list[str]) -> list[str]:
    """Return the arguments with dashes for underscores in option names, as vLLM takes both; stops at `--`."""
    found: list[str] = []
    for i, argument in enumerate(arguments):
        if argument == "--":
            return found + arguments[i:]
        name, equals, value = argument.partition("=")
        found.append(name.replace("_", "-") + equals + value if argument.startswith("--") else argument)
    return found


def _write_no_more() -> None:
    """Let what is left in the buffer go nowhere, as nobody can take it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code.

    Errors go to stderr as one sentence; nothing but the result goes to stdout.
    """
    gc.set_threshold(100_000)  # a short process makes little garbage; looking for it costs a tenth of the time
    given = dashed(sys.argv[1:] if arguments is None else arguments)
    try:
        code: Any = cli.main(args=given, prog_name="kvbudget", standalone_mode=False)
        sys.stdout.flush()
    except KvbudgetError as error:
        click.echo(f"kvbudget: {error}", err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _write_no_more()
        sys.exit(0)
    except OSError as error:
        _write_no_more()
        click.echo(f"kvbudget: the result cannot be written: {error.strerror or error}.", err=True)
        sys.exit(AccessError.exit_code)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        where = f" (see {context.command_path} --help)" if (context := getattr(error, "ctx", None)) else ""
        click.echo(f"kvbudget: {error.format_message().rstrip('.')}{where}.", err=True)
        sys.exit(error.exit_code)
    sys.exit(code if isinstance(code, int) else 0)
