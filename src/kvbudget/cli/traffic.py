"""The options that `simulate` and `sweep` share: what arrives, how it is scheduled, on which engines, at what pace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kvbudget.cli.fleet import REPLICAS
from kvbudget.cli.options import NUMBER, TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.facts.vllm import Version
    from kvbudget.simulation.settings import SchedulerSettings

    Declared = tuple[tuple[tuple[str, ...], dict[str, Any]], ...]
    """Names of options, and what click is told of them."""

WORKLOAD: Declared = (
    (("--trace",), {"metavar": "FILE", "help": "Requests to play: CSV, JSON, JSONL, gzip of each; see the docs."}),
    (("--trace-format",), {"help": "What the trace is, where its content does not tell."}),
    (("--rate",), {"help": "Requests a second; inf for all at once."}),
    (("--requests",), {"help": "How many requests."}),
    (("--prompt-tokens",), {"help": "1024, uniform:16:4096, lognormal:1024:4096 (median, p95)."}),
    (("--output-tokens",), {"help": "The same for answers."}),
    (("--burstiness",), {"help": "1 is Poisson, less comes in bursts, inf evenly."}),
    (("--prefix",), {"metavar": "SHARE:COUNT:TOKENS", "help": "Shared system prompts: 0.8:4:2000."}),
    (("--users",), {"help": "Users who wait for their answer before they ask again."}),
    (("--think-time",), {"help": "Seconds until they do."}),
    (("--turns",), {"help": "Turns of a conversation."}),
    (("--bootstrap",), {"is_flag": True, "help": "Draw lengths from the trace at random."}),
    (("--time-scale",), {"help": "Play the trace so many times as fast."}),
    (("--seed",), {"type": NUMBER, "default": 0, "help": "What chance begins with."}),
)
"""The fields of `kvbudget.workload.spec.WorkloadSpec`."""

SCHEDULER: Declared = (
    (("--scheduling-policy",), {"type": click.Choice(("fcfs", "priority")), "help": "Who is served first."}),
    (("--watermark",), {"type": NUMBER, "help": "Share of the blocks that admission leaves free."}),
    (("--long-prefill-token-threshold",), {"type": TOKENS, "help": "Tokens that one prompt may take of a step."}),
    (
        ("--scheduler-reserve-full-isl/--no-scheduler-reserve-full-isl",),
        {"default": None, "help": "Admit only whole prompts."},
    ),
)
"""vLLM's flags that decide nothing about memory."""

ENGINES: Declared = (
    (("--num-gpu-blocks",), {"type": NUMBER, "help": "Blocks of the pool, whatever the budget says."}),
    (("--step-time",), {"metavar": "BASE_MS,PER_TOKEN_US", "help": "What a step takes, measured by you."}),
    (
        ("--replicas",),
        {"type": REPLICAS, "metavar": "N|auto", "help": "Engines like this that share the workload; auto counts them."},
    ),
    (("--routing",), {"help": "Who gets a request: round-robin, least-loaded, prefix-aware."}),
)

TRAFFIC: Declared = (*WORKLOAD, *SCHEDULER, *ENGINES)


def traffic_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; they arrive as keyword arguments."""
    for names, settings in reversed(TRAFFIC):
        function = click.option(*names, **settings)(function)
    return function


def parameters(declared: Declared) -> list[click.Option]:
    """Return options as objects."""
    return [click.Option(list(names), **settings) for names, settings in declared]


def taken(options: dict[str, Any], declared: Declared) -> dict[str, Any]:
    """Return the values of some options, and take these out of all."""
    return {str(option.name): options.pop(str(option.name)) for option in parameters(declared)}


def scheduled(pool: SchedulerSettings, chosen: dict[str, Any], version: Version) -> SchedulerSettings:
    """Return the scheduler of an engine's version with the flags that were given in place of its own."""
    from kvbudget.simulation.settings import with_flags  # noqa: PLC0415 - after the options are read

    return with_flags(pool, {name: value for name, value in chosen.items() if value is not None}, version)
