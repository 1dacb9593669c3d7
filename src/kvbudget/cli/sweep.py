"""`kvbudget sweep`: many simulations at once; its twin in Python is `kvbudget.simulation.sweep`."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from itertools import product
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvbudget.budgeting import budget
from kvbudget.cli.asked import TakesLaunch, asked
from kvbudget.cli.fleet import fleet_of, fleet_warnings
from kvbudget.cli.options import (
    build_deployment,
    chosen_model,
    chosen_output,
    columns,
    deployment_parameters,
    encodable,
)
from kvbudget.cli.table import Several
from kvbudget.cli.traffic import SCHEDULER, TRAFFIC, WORKLOAD, parameters, scheduled, taken
from kvbudget.errors import CannotTell, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kvbudget.model import Model
    from kvbudget.present.swept import Swept
    from kvbudget.simulation.sweep import FanOut, Options, Point, Row

MOST_POINTS = 100_000
"""Points of one sweep; more are a typing error, or several sweeps into one file of results."""

ONE = ("trace", "trace_format", "step_time")
"""Options that take one value: a file and how it is read, and one that has commas of its own."""


def _parameters() -> list[click.Parameter]:
    """Return the options of a workload and of a deployment, most of which take several values here."""
    found: list[click.Parameter] = []
    for option in parameters(TRAFFIC):
        if option.name not in ONE and not option.is_flag:
            option.type = Several(option.type)
        found.append(option)
    found += [
        click.Option(["--results"], metavar="FILE.jsonl", help="Keep finished points here, and compute only others."),
        click.Option(["--jobs"], type=click.IntRange(1), help="Processes.  [default: one on each core]"),
        click.Option(["--scheduler"], metavar="ADDRESS", help="Run on the Dask cluster of this scheduler."),
    ]
    for option in deployment_parameters():
        if option.name in ("context", "num_gpus"):
            continue
        if not option.is_flag and option.metavar != "JSON":  # which has commas of its own
            option.type = Several(option.type)
        found.append(option)
    for name, text in (("--json", "JSON, schema 1."), ("--csv", "CSV."), ("--md", "Markdown.")):
        found.append(click.Option([name, f"as_{name[2:]}"], is_flag=True, help=text))
    return found


@click.command(cls=TakesLaunch, params=_parameters(), options_metavar="[OPTIONS]")
@click.argument("model", required=False, metavar="[MODEL] [-- COMMAND...]")
@click.pass_context
def sweep(
    ctx: click.Context,
    /,
    model: str | None,
    as_json: bool,
    as_csv: bool,
    as_md: bool,
    step_time: str | None,
    results: str | None,
    jobs: int | None,
    scheduler: str | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Simulate MODEL's deployment at every combination of rates, settings and seeds: a row each.

    Options take several values, separated by commas; what they mean is said by `kvbudget simulate --help`.
    The work is spread over all cores (with joblib: kvbudget[sweep]) or a Dask cluster (kvbudget[cluster]).
    A sweep that is stopped goes on where it was if it is given the same --results again.

    \b
    kvbudget sweep llama-3.1-8b --gpu l4 --step-time 10,20 --rate 2,4,8 --max-num-seqs 64,128,256 --seed 0,1,2 \\
      --requests 2000 --prompt-tokens 1200 --output-tokens 300
    """  # noqa: D301 - click reads the backspace character
    from kvbudget.check.plan import is_plan  # noqa: PLC0415 - after the options are read

    output = chosen_output({"json": as_json, "csv": as_csv, "md": as_md})
    if scheduler is not None and jobs is not None:
        raise InputError("--jobs are processes of this host and --scheduler is a cluster; give one of the two.")
    name, options = asked(ctx, model, options, parameters(SCHEDULER))
    if is_plan(name):
        raise InputError(f"{name} is a plan, which `kvbudget simulate` plays; name the model, or paste its command.")
    found = _swept(chosen_model(name, options), name, options, step_time, results, _fan_out(jobs, scheduler))
    click.echo(_rendered(found, output), nl=False)


def _fan_out(jobs: int | None, scheduler: str | None) -> FanOut | None:
    from kvbudget.simulation import fan_out  # noqa: PLC0415 - only this verb needs it

    if scheduler is not None:
        return fan_out.on_cluster(scheduler)
    if (jobs or os.cpu_count() or 1) == 1:
        return None
    spread = fan_out.on_cores(jobs or -1)
    if spread is None:
        click.echo(
            "kvbudget: note: joblib is not installed, so points are simulated one after the other; "
            "pip install 'kvbudget[sweep]' uses all cores.",
            err=True,
        )
    return spread


def _swept(
    model: Model, name: str, options: dict[str, Any], step_time: str | None, results: str | None, fan_out: FanOut | None
) -> Swept:
    from kvbudget.cli.results_file import ResultsFile  # noqa: PLC0415 - after the options are read
    from kvbudget.present.swept import Swept  # noqa: PLC0415
    from kvbudget.simulation.sweep import sweep as run_all  # noqa: PLC0415

    plan = _Plan(model, name, options, step_time)
    points = plan.points
    file = ResultsFile(results) if results is not None else None
    known = file.rows({point.key for point in points}) if file else {}
    with _progress(len({point.key for point in points}), len(known)) as advance:

        def keep(rows: Sequence[Row]) -> None:
            if file:
                file.add(rows)
            advance(len(rows))

        rows = run_all(points, fan_out=fan_out, known=known, keep=keep)
    by_options = {row.options: row for row in [*rows, *plan.refused]}
    return Swept(
        place=" | ".join(plan.places),
        workload=plan.workload,
        clock=" | ".join(plan.timings),
        rows=[by_options[key] for key in plan.order],
        warnings=tuple(plan.warnings),
        assumptions=tuple(plan.assumptions),
    )


class _Plan:
    """The points of a sweep, and what there is to say of all of them.

    Raises:
        InputError: There are too many, or a value is refused.
        CannotTell: No deployment of the sweep can be simulated.
    """

    def __init__(self, model: Model, name: str, options: dict[str, Any], step_time: str | None) -> None:
        self.points: list[Point] = []
        self.refused: list[Row] = []
        self.order: list[Options] = []
        self.warnings: dict[str, None] = {}
        self.assumptions: dict[str, None] = {}
        self.places: dict[str, None] = {}
        self.timings: dict[str, None] = {}
        self.workload = ""
        self._step_time = step_time
        self._told = {"model": name, "step_time": step_time}
        offered = taken(options, WORKLOAD)
        self._trace = _digest(offered["trace"])
        deployments, loads = _combinations(options), _combinations(offered)
        if len(deployments) * len(loads) > MOST_POINTS:
            raise InputError(
                f"The sweep has {len(deployments) * len(loads):,} points, more than {MOST_POINTS:,}; give fewer values."
            )
        self._specs = [(own, self._spec(spec)) for own, spec in loads]
        first: InputError | CannotTell | None = None
        for own, chosen in deployments:
            try:
                self._add(model, own, chosen)
            except (InputError, CannotTell) as error:
                first = first or error
                self._refuse(own, str(error))
        if first is not None and not self.points:
            raise first

    def _spec(self, chosen: dict[str, Any]) -> Any:  # noqa: ANN401 - its type is imported here
        from kvbudget.workload.kept import shared_workload  # noqa: PLC0415 - after the options are read
        from kvbudget.workload.spec import WorkloadSpec  # noqa: PLC0415

        spec = WorkloadSpec(**chosen)
        workload = shared_workload(spec)
        if workload.closed:
            raise InputError("A sweep takes workloads that arrive by themselves; give --rate or a --trace with times.")
        self.workload = self.workload or workload.description
        self.warnings.update(dict.fromkeys(workload.notes))
        return spec

    def _add(self, model: Model, own: Options, chosen: dict[str, Any]) -> None:
        from kvbudget.simulation.deployed import scheduler_settings, timing_of  # noqa: PLC0415
        from kvbudget.simulation.settings import check  # noqa: PLC0415
        from kvbudget.simulation.sweep import Point, point_key  # noqa: PLC0415

        blocks = chosen.pop("num_gpu_blocks", None)
        replicas, routing = chosen.pop("replicas", None), chosen.pop("routing", None)
        flags = taken(chosen, SCHEDULER)
        d = build_deployment(model, chosen)
        fleet = fleet_of(d, replicas, routing)
        b = budget(d)
        settings = scheduled(scheduler_settings(b, num_gpu_blocks=blocks), flags, b.settings.version)
        check(settings)
        timing = timing_of(d, step_time=self._step_time)
        self.timings[timing.source + (f"; each step ±{timing.error:.0%}" if timing.error else "")] = None
        self.places[f"{d.card.name}, vLLM {d.engine_version}"] = None
        self.warnings.update(dict.fromkeys((*b.warnings, *fleet_warnings(d))))
        self.assumptions.update(dict.fromkeys(b.assumptions))
        told = {**self._told, **{key: str(value) for key, value in chosen.items() if value is not None}}
        for varied, spec in self._specs:
            key = point_key(told, settings, spec, self._trace, fleet, timing.clock)
            self.order.append(own + varied)
            self.points.append(
                Point(key=key, options=own + varied, settings=settings, workload=spec, clock=timing.clock, fleet=fleet)
            )

    def _refuse(self, own: Options, reason: str) -> None:
        from kvbudget.simulation.sweep import Row  # noqa: PLC0415

        for varied, _ in self._specs:
            self.order.append(own + varied)
            self.refused.append(Row(key="", options=own + varied, figures=None, refusal=reason))


def _combinations(options: dict[str, Any]) -> list[tuple[Options, dict[str, Any]]]:
    """Return every choice of one value for each option, with those that vary in front; the last varies fastest."""
    swept = {option.name for option in _parameters() if isinstance(option.type, Several)}
    several = {
        name: value for name, value in options.items() if name in swept and isinstance(value, tuple) and len(value) > 1
    }
    fixed = {
        name: value[0] if name in swept and isinstance(value, tuple) else value
        for name, value in options.items()
        if name not in several
    }
    if prod(map(len, several.values())) > MOST_POINTS:
        raise InputError(f"The sweep has more than {MOST_POINTS:,} points; give fewer values.")
    return [
        (tuple(zip(several, values, strict=True)), {**fixed, **dict(zip(several, values, strict=True))})
        for values in product(*(dict.fromkeys(values) for values in several.values()))
    ]


def _digest(trace: str | None) -> str:
    """Return a digest of a trace's content, "" without one."""
    if trace is None:
        return ""
    from hashlib import file_digest  # noqa: PLC0415 - slow to import

    try:
        with Path(trace).open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{trace} cannot be read: {error.strerror or error}.") from None


@contextmanager
def _progress(points: int, done: int) -> Iterator[Callable[[int], object]]:
    """Give what advances a progress bar, which is there on a terminal alone."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with click.progressbar(length=points, label="points", file=sys.stderr) as bar:
        bar.update(done)
        yield bar.update


def _rendered(found: Swept, output: str) -> str:
    from kvbudget.present import swept as present  # noqa: PLC0415

    if output == "json":
        return present.swept_json(found)
    if output == "csv":
        return present.swept_csv(found)
    return encodable(present.swept_markdown(found) if output == "md" else present.swept_text(found, columns()))
