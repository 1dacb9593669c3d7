"""`kvbudget simulate`: a deployment under a workload."""

from __future__ import annotations

import json
from contextlib import contextmanager
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kvbudget.budgeting import budget
from kvbudget.cli.asked import TakesLaunch, asked
from kvbudget.cli.fleet import asked_fleet, fleet_warnings
from kvbudget.cli.options import (
    NUMBER,
    build_deployment,
    choose_gpu,
    chosen_model,
    chosen_output,
    columns,
    deployment_options,
    encodable,
    model_options,
    output_options,
    write_page,
)
from kvbudget.cli.traffic import SCHEDULER, WORKLOAD, parameters, scheduled, taken, traffic_options
from kvbudget.errors import InputError
from kvbudget.facts.policies import POLICIES, VLLM
from kvbudget.simulation.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvbudget.budgeting import Budget
    from kvbudget.cli.fleet import AskedFleet
    from kvbudget.deployment import Deployment
    from kvbudget.simulation.answer import Answer, Begin
    from kvbudget.simulation.deployed import Timing
    from kvbudget.simulation.results import Step
    from kvbudget.simulation.settings import SchedulerSettings
    from kvbudget.simulation.simulate import Settings
    from kvbudget.workload.kept import Kept
    from kvbudget.workload.spec import Workload

PATIENCE = 5
"""Seconds of a simulation after which the reader is told how many more there are."""

SEARCHED = 30_000
"""Work (`work_of`) up to which searches are made without being asked; they take some twenty simulations."""


@click.command(cls=TakesLaunch, options_metavar="[OPTIONS]")
@click.argument("model", required=False, metavar="[MODEL] [-- COMMAND...]")
@traffic_options
@click.option("--step-points", metavar="TOKENS[:CONTEXT]:MS,…", help="Steps that you measured; a line is fitted.")
@click.option("--bench-result", metavar="FILE", multiple=True, help="Of `vllm bench serve`, to hold the clock to.")
@click.option(
    "--policy",
    type=click.Choice([words.policy for words in POLICIES]),
    default=VLLM.policy,
    help="Schedule as this engine would, on vLLM's pool.",
)
@click.option("--max-tokens", type=NUMBER, help="Tokens that requests ask for; other engines keep room for them.")
@click.option("--target-ttft", type=NUMBER, help="Seconds to the first token (p95) that --replicas auto counts for.")
@click.option("--steps", metavar="FILE.jsonl", help="Write an object for each step; - is standard output.")
@click.option("--html", metavar="FILE", help="Write a page with the curves; - is standard output.")
@click.option(
    "--save-plan", metavar="FILE", help="Write a plan with what is expected, for `check`; - is standard output."
)
@click.option("--knee/--no-knee", default=None, help="Look for the load at which pressure begins.")
@model_options
@deployment_options
@output_options
@click.pass_context
def simulate(
    ctx: click.Context,
    /,
    model: str | None,
    as_json: bool,
    as_csv: bool,
    as_md: bool,
    step_time: str | None,
    step_points: str | None,
    bench_result: tuple[str, ...],
    num_gpu_blocks: int | None,
    policy: str,
    max_tokens: int | None,
    replicas: Any,  # noqa: ANN401 - a number, or auto
    routing: str | None,
    target_ttft: float | None,
    steps: str | None,
    html: str | None,
    save_plan: str | None,
    knee: bool | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Run a workload through MODEL's deployment: who runs, who waits, who is preempted.

    The scheduler is vLLM's, step for step; --policy has those of other engines, as read in their sources.
    `kvbudget sweep` takes several values of an option.
    MODEL may be a plan that --save-plan of this verb or of `fit` wrote.
    A launch command may stand after --; what stands before it wins.

    \b
    kvbudget simulate llama-3.1-8b --gpu l4 --rate 4 --requests 2000 --prompt-tokens 1200 --output-tokens 300
    kvbudget simulate llama-3.1-8b --gpu h100 --trace azure.csv --step-time 10,20
    """  # noqa: D301 - click reads the backspace character
    from kvbudget.simulation.deployed import scheduler_settings, timing_of  # noqa: PLC0415 - after the options are read
    from kvbudget.workload.spec import WorkloadSpec, parse_workload  # noqa: PLC0415

    output = chosen_output({"json": as_json, "csv": as_csv, "md": as_md})
    targets = (("steps", steps), ("html", html), ("save-plan", save_plan))
    writers = [f"--{name} -" for name, target in targets if target == "-"]
    writers += [f"--{output}"] if output else []
    if len(writers) > 1:
        raise InputError(f"{' and '.join(writers)} both write to standard output; give one of them or a file.")
    if save_plan is not None:
        _check_plan(policy, num_gpu_blocks)
    name, options = asked(ctx, model, options, parameters(SCHEDULER))
    chosen = taken(options, SCHEDULER)
    workload = parse_workload(WorkloadSpec(**taken(options, WORKLOAD)))
    d = _deployment(ctx, name, options)
    b = budget(d)
    pool = scheduled(scheduler_settings(b, num_gpu_blocks=num_gpu_blocks), chosen, b.settings.version)
    timing = timing_of(d, step_time=step_time, points=step_points, benches=bench_result)
    fleet = asked_fleet(d, replicas, routing, target_ttft)
    if fleet.several and (workload.closed or policy != VLLM.policy or steps is not None):
        raise InputError(
            "--steps, --users, --turns and --policy are of one engine; leave them out, or --replicas and "
            "--data-parallel-size."
        )
    answer = _answer(b, workload, timing, pool, fleet, steps, knee, policy=policy, max_tokens=max_tokens or 0)
    if save_plan is not None:
        _save_plan(b, answer, save_plan)
    if html is not None:
        from kvbudget.present.simulated_html import simulated_page  # noqa: PLC0415 - only pages need it

        write_page(simulated_page(answer), html)
    if "-" not in (steps, html, save_plan) and (html is None or output):
        click.echo(_rendered(answer, output), nl=False)
    if not answer.summary.completed:
        ctx.exit(1)


def _deployment(ctx: click.Context, name: str, options: dict[str, Any]) -> Deployment:
    """Return the deployment that options describe, or that of a plan file, with what was typed in place of its own."""
    from kvbudget.check.plan import is_plan, read_plan  # noqa: PLC0415 - after the options are read

    if not is_plan(name):
        return build_deployment(chosen_model(name, options), options)
    typed = {
        key: value for key, value in options.items() if ctx.get_parameter_source(key) is ParameterSource.COMMANDLINE
    }
    for field in ("revision", "refresh", "headers"):
        if typed.pop(field, None) is not None:
            raise InputError(f"--{field} chooses a model, and {name} is a plan that holds its own; leave it out.")
    if typed.keys() & {"gpu", "gpu_memory"}:
        typed["gpu"] = choose_gpu(typed.get("gpu"), typed.pop("gpu_memory", None))
    return read_plan(name).deployment.replaced(**typed)


def _check_plan(policy: str, num_gpu_blocks: int | None) -> None:
    """Refuse a plan that expects what its own engine and cache would not do."""
    if policy != VLLM.policy:
        raise InputError(
            f"--save-plan keeps what vLLM is expected to do, and --policy {policy} is not it; leave one out."
        )
    if num_gpu_blocks is not None:
        raise InputError(
            "--save-plan keeps the plan's own cache, and --num-gpu-blocks another; say --num-gpu-blocks-override where "
            "the engine is to have it."
        )


def _save_plan(b: Budget, answer: Answer, target: str) -> None:
    """Write the plan with what is expected under this load, and say so on stderr."""
    from kvbudget.check.plan import plan_dict  # noqa: PLC0415 - few simulations are kept

    summary = answer.summary
    seconds = summary.simulated_s or 1.0
    expected = {
        **summary.to_dict(),
        "workload": answer.workload,
        "engines": answer.fleet.engines,
        "rate_per_s": answer.rate or summary.requests / seconds,
        "preemptions_per_s": summary.preemptions / seconds,
        "knee": answer.to_dict()["knee"],
    }
    write_page(json.dumps(plan_dict(b, expected), indent=1) + "\n", target)


def _answer(
    b: Budget,
    workload: Workload,
    timing: Timing,
    pool: SchedulerSettings,
    engines: AskedFleet,
    steps: str | None,
    knee: bool | None,
    *,
    policy: str,
    max_tokens: int,
) -> Answer:
    """Return the answer; the questions that take many simulations are left out where they would take long."""
    from kvbudget.simulation.answer import (  # noqa: PLC0415
        Answer,
        bounds_of,
        calm_limit,
        knee_of,
        play,
        replicas_for,
        simulated,
        work_of,
    )
    from kvbudget.simulation.compiled import was_compiled  # noqa: PLC0415
    from kvbudget.simulation.deployed import pool_assumptions, timing_warnings  # noqa: PLC0415
    from kvbudget.simulation.replicas import simulated_fleet  # noqa: PLC0415
    from kvbudget.workload.kept import Kept  # noqa: PLC0415

    d, clock, fleet = b.deployment, timing.clock, engines.fleet
    settings, warnings, assumptions = _chosen(policy, b, pool, max_tokens)
    kept = Kept(() if workload.closed else workload.stream())
    begin: Begin = workload.loop if workload.closed else lambda: kept
    started = perf_counter()
    if engines.counted:
        fleet, summary = replicas_for(kept, pool, clock, fleet, engines.target_ttft_s)
    elif engines.several:
        summary = simulated_fleet(kept, pool, clock, fleet)
    else:
        summary = simulated(begin(), settings, clock)
    run: Any = partial(simulated_fleet, fleet=fleet) if fleet.engines > 1 else simulated
    took = perf_counter() - started
    if was_compiled():
        click.echo("kvbudget: note: numba compiled the loop, which it does once after an installation.", err=True)
    elif took > PATIENCE and timing.error is not None and not engines.counted:
        note = f"this took {took:.0f} s; as long again for each end of the clock's interval (--step-time has none)"
        click.echo(f"kvbudget: note: {note}.", err=True)
    with _written(steps) as record:
        if record is not None:  # the same run again: the first one counts equal steps together
            play(begin(), settings, clock, record)
    quick = work_of(summary, settings, closed=workload.closed) <= SEARCHED
    search = summary.refused < summary.requests and (quick if knee is None else knee)
    pressed = search and (summary.preemptions or summary.unfinished)
    units = f"{settings.usable_blocks:,} {settings.words.unit}"
    return Answer(
        place=f"{_cards(d)}, {_engine(d, settings)}, {units}",
        workload=workload.description,
        timing=timing.source,
        timing_error=timing.error,
        bounds=bounds_of(begin, settings, timing, run),
        rate=workload.rate,
        settings=settings,
        summary=summary,
        fleet=fleet,
        counted=engines.counted,
        target_ttft_s=engines.target_ttft_s,
        knee=knee_of(kept, settings, clock, summary, run) if search and kept.seconds else None,
        calm=calm_limit(begin, settings, clock, int(summary.running.max), run) if pressed else None,
        left_out=knee is None and not quick and (summary.preemptions > 0 or not workload.closed),
        warnings=(
            *warnings,
            *b.warnings,
            *fleet_warnings(d),
            *workload.notes,
            *workload.remarks(summary.requests),
            *_cut(kept, settings.max_model_len),
            *timing_warnings(timing, pool),
        ),
        assumptions=(
            *(b.assumptions if settings is pool else _of_the_memory(b)),
            *assumptions,
            *pool_assumptions(b, pool.num_gpu_blocks),
        ),
    )


def _cut(kept: Kept, limit: int) -> tuple[str, ...]:
    """Return that answers are shorter than the workload has them, nothing where none is."""
    count = kept.cut_at(limit)
    return (f"Answers that max_model_len {limit:,} cuts short: {count:,}.",) if count else ()


def _chosen(
    policy: str, b: Budget, pool: SchedulerSettings, max_tokens: int
) -> tuple[Settings, tuple[str, ...], tuple[str, ...]]:
    """Return what is scheduled with, what makes that less certain, and what nobody said."""
    if policy == VLLM.policy:
        return pool, (), ()
    from kvbudget.simulation.policies.choose import notes_of, settings_of  # noqa: PLC0415 - few ask for them

    settings = settings_of(policy, b, pool, max_tokens=max_tokens)
    return settings, *notes_of(settings, b.deployment, max_tokens=max_tokens)


def _of_the_memory(b: Budget) -> tuple[str, ...]:
    """Return what nobody said of the engine whose memory is taken, where another one's policy runs."""
    return tuple(f"for the memory, {text}" for text in b.assumptions)


def _cards(d: Deployment) -> str:
    """Return what one engine runs on."""
    count = d.gpu_count // d.data_parallel_size
    return d.card.name if count == 1 else f"{count} × {d.card.name}"


def _engine(d: Deployment, settings: Settings) -> str:
    return f"vLLM {d.engine_version}" if settings.words is VLLM else f"the policy of {settings.words.engine}"


@contextmanager
def _written(target: str | None) -> Iterator[Callable[[Step], object] | None]:
    """Give what writes each step as a line of JSON, None where nobody asked for it."""
    if target is None:
        yield None
        return
    try:
        file = click.open_file(target, "w", encoding="utf-8")
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror or error}.") from None
    with file:
        yield lambda step: file.write(json.dumps(step_dict(step)) + "\n")


def step_dict(step: Step) -> dict[str, float]:
    """Return a step as plain data, its times in seconds."""
    fields = step._asdict()
    begins, ends = fields.pop("begins") / SECOND, fields.pop("ends") / SECOND
    return {"step": fields.pop("number"), "t": begins, "ends": ends, **fields}


def _rendered(answer: Answer, output: str) -> str:
    if output == "json":
        return json.dumps(answer.to_dict(), indent=1) + "\n"
    from kvbudget.present.simulated import simulated_csv, simulated_document, simulated_text  # noqa: PLC0415

    if output == "csv":
        return simulated_csv(answer)
    if output == "md":
        from kvbudget.present.document import as_markdown  # noqa: PLC0415

        return encodable(as_markdown(simulated_document(answer, curves=False)))
    return encodable(simulated_text(answer, columns()))
