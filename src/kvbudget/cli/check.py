"""`kvbudget check`: a running engine against its plan; its twin in Python is `kvbudget.check`."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import time
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from kvbudget import __version__
from kvbudget.budgeting import budget
from kvbudget.check import CANNOT_TELL, DRIFT, HEALTHY, Reader, check, plan_of, read_metrics, read_plan
from kvbudget.check.fetch import MAX_ANSWER, get, public, text_of
from kvbudget.check.lines import lines_of
from kvbudget.check.live import ALARMING, grown, live_verdict
from kvbudget.check.plan import is_plan
from kvbudget.check.replan import replan_command
from kvbudget.check.settings import options_of
from kvbudget.check.verdict import SAME_WHERE_PLANNED
from kvbudget.cli.asked import LAUNCH, TakesLaunch, asked
from kvbudget.cli.options import (
    NUMBER,
    build_deployment,
    choose_gpu,
    chosen_model,
    chosen_output,
    deployment_options,
    model_options,
)
from kvbudget.deployment import flag
from kvbudget.errors import AccessError, CannotTell, InputError, KvbudgetError
from kvbudget.facts.vllm import parse_version
from kvbudget.headers.source import shown
from kvbudget.measured import PARTS
from kvbudget.present.checked import check_document
from kvbudget.present.document import as_markdown, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from kvbudget.check import Check, Metrics, Observation, Plan
    from kvbudget.facts.gpus import Gpu

EXIT_CODES = {HEALTHY: 0, DRIFT: 1, CANNOT_TELL: CannotTell.exit_code}

_GRAVITY = (CANNOT_TELL, HEALTHY, DRIFT)

SHORTEST_WATCH_S, LONGEST_WATCH_S = 0.2, 86400


@click.command("check", cls=TakesLaunch, options_metavar="[OPTIONS]", short_help="A running engine against its plan.")
@click.argument("model", required=False, metavar="[MODEL|PLAN.json] [-- COMMAND...]")
@click.option("--log", "logs", metavar="FILE", multiple=True, help="The engine's log, gzip too; - is standard input.")
@click.option(
    "--metrics", "metrics_at", metavar="URL|FILE", help="The engine's /metrics, or a page of it that was saved."
)
@click.option("--prometheus", metavar="URL", help="A Prometheus server that scrapes the engines.")
@click.option("--range", "span", default="24h", show_default=True, help="How far back to ask Prometheus: 30m, 24h, 7d.")
@click.option("--selector", default="", metavar="LABELS", help="Which series: 'namespace=\"prod\"'.")
@click.option("--watch", type=float, metavar="SECONDS", help="Read the metrics again and again.")
@click.option("--samples", type=NUMBER, help="How often, with --watch.  [default: until it is stopped]")
@click.option("--learn", is_flag=True, help="Keep what was seen, for later budgets of its like.")
@model_options
@deployment_options
@click.option("--md", "as_md", is_flag=True, help="Markdown.")
@click.option("--json", "as_json", is_flag=True, help="JSON, schema 1.")
@click.pass_context
def check_verb(
    ctx: click.Context,
    /,
    model: str | None,
    logs: tuple[str, ...],
    metrics_at: str | None,
    prometheus: str | None,
    span: str,
    selector: str,
    watch: float | None,
    samples: int | None,
    learn: bool,
    as_md: bool,
    as_json: bool,
    **options: Any,  # noqa: ANN401
) -> None:
    """Say whether a running engine is what was planned, which term differs, and what to turn.

    The plan is a file of `fit --save-plan`, or what MODEL with its flags or a launch command after -- comes to.
    With a log alone it is rebuilt from the log's own arguments.

    Exit codes: 0 as planned, 1 drift, 2 bad input, 3 cannot tell, 4 network or access.

    \b
    kvbudget check plan.json --log engine.log --metrics http://127.0.0.1:8000/metrics
    kvbudget check --log engine.log
    kvbudget check plan.json --prometheus http://127.0.0.1:9090 --range 24h
    """  # noqa: D301 - click reads the backspace character
    output = chosen_output({"json": as_json, "md": as_md})
    if not logs and not metrics_at and not prometheus:
        raise InputError("Nothing to check; give --log FILE, --metrics URL or --prometheus URL.")
    if metrics_at and prometheus:
        raise InputError("--metrics and --prometheus exclude each other; give one engine's page or the server of all.")
    if selector and not prometheus:
        raise InputError("--selector says which series of --prometheus; give that too, or one engine's page alone.")
    _check_watch(watch, samples, metrics_at, output)
    observations = _read_logs(logs) if logs else (None,)
    metrics = _read_prometheus(prometheus, span, selector) if prometheus else _read_metrics(metrics_at)
    results = [_check_one(ctx, model, dict(options), seen, metrics) for seen in observations]
    found = max(results, key=_gravity)
    if learn:
        _learn(results)
    command = replan_command(found.plan, metrics) if found.verdict == DRIFT else ""
    engines = [(one.observation.instance, one.verdict) for one in results if one.observation is not None]
    _show(found, command, output, engines)
    code = EXIT_CODES[found.verdict]
    if watch is not None and metrics_at is not None and metrics is not None:
        code = max(code, _watch(metrics_at, watch, samples, found.plan, metrics))
    ctx.exit(code)


def _gravity(found: Check) -> tuple[int, int, int]:
    """Return what the worst of several engines is chosen by."""
    wrong = sum(row.ok is False for row in found.rows) + sum(finding.drift for finding in found.findings)
    return _GRAVITY.index(found.verdict), wrong, len(found.rows)


def _check_one(
    ctx: click.Context, model: str | None, options: dict[str, Any], seen: Observation | None, metrics: Metrics | None
) -> Check:
    """Return the check of one engine."""
    plan, notes = _planned(ctx, model, options, seen)
    return check(plan, seen, metrics, (*notes, *_of_another_name(plan, seen, metrics)))


# -- the plan


def _planned(
    ctx: click.Context, model: str | None, options: dict[str, Any], seen: Observation | None
) -> tuple[Plan | None, tuple[str, ...]]:
    """Return the plan and notes; None where nothing tells what was planned."""
    typed = {
        name: value for name, value in options.items() if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if model is not None and is_plan(model):
        if typed:
            raise InputError(
                f"{flag(next(iter(typed)))}: {shown(model)} holds its own choices; leave it out, or plan again: "
                "kvbudget fit … --save-plan FILE."
            )
        return read_plan(model), ()
    own = options_of(seen) if seen is not None and seen.engine == "vllm" else {}
    old = _too_old(own)
    if old and ParameterSource.COMMANDLINE is not ctx.get_parameter_source("engine_version"):
        return None, (old,)
    if ctx.meta.get(LAUNCH):
        name, given = asked(ctx, model, options)
        if "engine_version" in own and given.get("engine_version") is None:
            given["engine_version"] = own["engine_version"]
        return _from_options(name, given, seen), ()
    if model is not None:
        return _from_options(model, {**own, **typed}, seen), ()
    if seen is None or seen.engine != "vllm" or seen.model is None:
        return None, ()
    said = str(seen.model.value)
    name = _at_hand(said)
    try:
        found = _from_options(name, {**own, **typed}, seen)
    except KvbudgetError as error:
        return None, (f"There is no plan to compare with: {error}",)
    taken = "" if name == said else f" (taken for it: {shown(said, 80)})"
    note = f"The plan is what kvbudget says of {shown(name, 80)}{taken} with the arguments in the log."
    if found.document["gpu"]["name"] == "given" and "gpu_memory" not in typed:
        note += " The card is known by its memory alone; --gpu NAME says more."
    return found, (note,)


def _of_another_name(plan: Plan | None, seen: Observation | None, metrics: Metrics | None) -> tuple[str, ...]:
    """Return a note where the server calls its model otherwise than the plan does: nothing else tells them apart."""
    names = metrics.models if metrics is not None else ()
    named = seen.model.value if seen is not None and seen.model is not None else next(iter(names), None)
    if plan is None or named is None:
        return ()
    said, planned = str(named), str(plan.budget["model"]["id"])
    last, own = (name.rstrip("/").rpartition("/")[2].casefold() for name in (said, planned))
    if last == own or own in said.casefold().replace("--", "/"):
        return ()
    words = f"The server has {shown(said, 80)}, and the plan is of {shown(planned, 80)}"
    return (f"{words}: they are taken to be the same model.",)


def _too_old(own: dict[str, Any]) -> str:
    """Return why nothing was planned for the version in the log, "" if its rules are known."""
    try:
        parse_version(own.get("engine_version", "0.32"))
    except InputError:
        return f"The rules of vLLM {shown(own['engine_version'], 20)} are not known, so that nothing is compared."
    return ""


_SNAPSHOT = re.compile(r".*models--(?P<org>[\w.-]+?)--(?P<name>[\w.-]+)/snapshots/.*")


def _at_hand(model: str) -> str:
    """Return under which name a server's model may be known here: a path of its own is no path of ours."""
    if not model.startswith(("/", ".", "~")) or Path(model).expanduser().exists():
        return model
    from kvbudget.facts.catalogue import find_model  # noqa: PLC0415 - few logs name a path

    match = _SNAPSHOT.fullmatch(model)
    if match:
        return f"{match['org']}/{match['name']}"
    row = find_model(model.rstrip("/").rpartition("/")[2])
    return row.hub if row else model


def _from_options(model: str, options: dict[str, Any], seen: Observation | None) -> Plan:
    card = _card(options, seen)
    loaded = chosen_model(model, options)
    deployment = build_deployment(loaded, {**options, "gpu": None, "gpu_memory": 1 << 30}).replaced(gpu=card)
    return plan_of(budget(deployment))


def _card(options: dict[str, Any], seen: Observation | None) -> Gpu:
    """Return the card that was named, or the one that the log shows."""
    name, memory = options.get("gpu"), options.get("gpu_memory")
    if name is not None or memory is not None or seen is None:
        return choose_gpu(name, memory)
    from kvbudget.facts.gpus import find_gpu  # noqa: PLC0415 - few logs name their card

    said, total = seen.setting("device_name"), seen.smallest("total")
    if said is not None:
        try:
            return find_gpu(str(said.value).replace("_", " "))
        except InputError:
            pass
    if total is not None and total.value >= 1 << 20:
        return choose_gpu(None, int(total.value))
    raise InputError("The log does not tell the card; give --gpu NAME or --gpu-memory 79.19GiB.")


# -- what is read


def _read_logs(paths: tuple[str, ...]) -> tuple[Observation, ...]:
    reader = Reader()
    for path in paths:
        with _opened(path) as stream:
            reader.read(_lines(stream, path), path)
    return reader.observations()


def _lines(stream: BinaryIO, path: str) -> Iterator[str]:
    """Yield the lines of a log; of one that breaks off, as a compressed one that is being written, those before."""
    number = 0
    try:
        for number, line in enumerate(lines_of(stream), 1):  # noqa: B007 - it is told in the note
            yield line
    except (OSError, EOFError, zlib.error) as error:
        if not number:
            raise AccessError(f"{shown(path, 200)} cannot be read: {error}; give --log FILE.") from None
        note = f"{shown(path, 200)} breaks off after {number:,} lines ({error}); what stands before was read"
        click.echo(f"kvbudget: note: {note}.", err=True)


_GZIP = b"\x1f\x8b"
"""How a gzip file begins, whatever its name."""


@contextmanager
def _opened(path: str, advice: str = "give --log FILE") -> Iterator[BinaryIO]:
    """Yield a file's bytes, unpacked if they are compressed; it is opened once, as a pipe gives its bytes once."""
    if path == "-":
        stream: Any = sys.stdin.buffer
        with _unpacked(stream if hasattr(stream, "peek") else io.BufferedReader(stream)) as file:
            yield file
        return
    try:
        opened = Path(path).open("rb")  # noqa: SIM115 - closed below
        opened.peek(1)  # of a folder, there is nothing to read
    except OSError as error:
        to_do = f"; {advice}" if isinstance(error, FileNotFoundError) else ""
        raise AccessError(f"{path[:200]} cannot be read: {error.strerror or error}{to_do}.") from None
    with opened, _unpacked(opened) as file:
        yield file


@contextmanager
def _unpacked(stream: io.BufferedReader) -> Iterator[BinaryIO]:
    """Yield a stream's bytes, unpacked if they begin as gzip does."""
    if stream.peek(len(_GZIP))[: len(_GZIP)] == _GZIP:
        with gzip.open(stream, "rb") as unpacked:
            yield unpacked  # type: ignore[misc] # a binary reader
    else:
        yield stream


def _read_metrics(where: str | None) -> Metrics | None:
    if where is None:
        return None
    if _is_address(where):
        return read_metrics(get(where), public(where), now=time.time())
    with _opened(where, "give a saved page, or an address with its http://") as file:
        try:
            content = file.read(MAX_ANSWER + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise AccessError(f"{shown(where)} cannot be read: {error}.") from None
    return read_metrics(text_of(content, shown(where)), where)


def _is_address(where: str) -> bool:
    return where.lower().startswith(("http://", "https://"))


def _read_prometheus(url: str, span: str, selector: str) -> Metrics:
    from kvbudget.check.prometheus import ask_prometheus, parse_range  # noqa: PLC0415 - few checks are of a fleet

    return ask_prometheus(url, parse_range(span), selector)


# -- what is said


def _show(found: Check, command: str, output: str, engines: list[tuple[str, str]]) -> None:
    if output == "json":
        every = [{"instance": instance or None, "verdict": verdict} for instance, verdict in engines]
        data = {"kvbudget": __version__, **found.to_dict(), "replan": command or None, "engines": every}
        click.echo(json.dumps(data, indent=1, default=str))
        return
    if len(engines) > 1:
        click.echo(f"kvbudget: note: the log has {len(engines)} engines; this is the worst.", err=True)
    document = check_document(found, command)
    click.echo((as_markdown if output == "md" else as_text)(document), nl=False)


def _learn(results: Sequence[Check]) -> None:
    """Keep what was seen of every engine, and say on stderr what that was."""
    from kvbudget.calibration import learn  # noqa: PLC0415 - few checks learn

    learned = [(*_lesson(found), found) for found in results]
    for terms, start, found in learned:
        assert found.plan is not None  # noqa: S101 - else there was no lesson
        path, kept = learn(found.plan.deployment, terms, start)
        words = (
            ", ".join(f"{name} (n = {count})" for name, count in kept.items()) or "nothing: the log has no such term"
        )
        click.echo(f"kvbudget: learned {words}; {path}", err=True)


def _lesson(found: Check) -> tuple[dict[str, float], str]:
    """Return the terms to learn from one engine, and what tells its start from others.

    Raises:
        InputError: The plan is not of what runs, so that a difference is not the estimate's.
    """
    seen = found.observation
    if found.plan is None or seen is None:
        raise InputError("--learn needs a log and what was planned; give --log FILE, and MODEL or plan.json.")
    if found.settings:
        raise InputError(
            "--learn: the server runs with other choices than the plan, so that the difference is not the estimate's; "
            "give MODEL, so that the log's own are taken."
        )
    if seen.on_cpu:
        raise InputError(
            "--learn: the engine runs on a CPU, whose memory is not the planned card's; learn on the card."
        )
    other = next((row.name for row in found.rows if row.ok is False and row.name in SAME_WHERE_PLANNED), None)
    if other is not None:
        raise InputError(
            f"--learn: the {other} on the server is not that of the plan, so that it is not the same model or card; "
            "give those of the server."
        )
    figures = {name: seen.largest(name) for name in PARTS}
    terms = {name: figure.value for name, figure in figures.items() if figure is not None}
    both, weights = seen.largest("consumed"), seen.largest("weights")
    if both is not None and weights is not None and both.value >= weights.value:  # since 0.27 one figure for two parts
        terms.setdefault("non_torch", both.value - weights.value)
    when = f"{seen.first_time} (start {seen.starts})" if seen.starts > 1 else seen.first_time
    said = (when or str(sorted(terms.items())), seen.model.value if seen.model else "", seen.instance)
    return terms, " ".join(map(str, filter(None, said)))


# -- the live view


def _check_watch(seconds: float | None, samples: int | None, metrics_at: str | None, output: str) -> None:
    if seconds is None:
        if samples is not None:
            raise InputError("--samples says how often --watch reads; give --watch SECONDS too.")
        return
    if metrics_at is None or not _is_address(metrics_at):
        raise InputError("--watch needs an address to read again; give --metrics http://….")
    if output:
        raise InputError(f"--watch and --{output} exclude each other; leave one out.")
    if not SHORTEST_WATCH_S <= seconds <= LONGEST_WATCH_S:
        raise InputError(f"--watch {seconds:g}: expected {SHORTEST_WATCH_S:g} to {LONGEST_WATCH_S:,} seconds.")
    if samples is not None and (type(samples) is not int or samples < 1):
        raise InputError(f"--samples {samples}: expected 1 or more, a whole number.")


class _Reading(NamedTuple):
    """What was read at which moment of a clock that only goes forward."""

    at: float
    metrics: Metrics


def _watch(where: str, seconds: float, samples: int | None, plan: Plan | None, first: Metrics) -> int:
    """Show a line for each reading until it is stopped; return 1 if the engine left its plan meanwhile.

    What an engine that starts again cannot answer is a line too.
    """
    columns = f"{'time':8}  {'running':>7}  {'waiting':>7}  {'KV':>5}  {'preempted':>9}  {'tokens/s':>8}"
    click.echo(f"\n{columns}  verdict")
    before = _Reading(time.monotonic(), first)
    worst, count = 0, 0
    try:
        while samples is None or count < samples:
            time.sleep(seconds)
            count += 1
            clock = time.strftime("%H:%M:%S")
            try:
                found = _read_metrics(where)
            except KvbudgetError as error:
                click.echo(f"{clock}  {error}")
                worst = max(worst, error.exit_code if count == samples else 0)
                continue
            assert found is not None  # noqa: S101 - there is an address
            now = _Reading(time.monotonic(), found)
            lost = grown(before.metrics.preemptions, found.preemptions)
            verdict = live_verdict(plan, found, lost, now.at - before.at)
            worst = max(worst, int(verdict in ALARMING))
            click.echo(
                f"{clock}  {_cell(found.running):>7}  {_cell(found.waiting):>7}  "
                f"{_cell(found.kv_usage_max, percent=True):>5}  {lost:>9,.0f}  {_token_rate(before, now):>8}  {verdict}"
            )
            sys.stdout.flush()
            before = now
    except KeyboardInterrupt:
        pass
    return worst


def _cell(figure: float | None, *, percent: bool = False) -> str:
    if figure is None:
        return "–"
    return f"{100 * figure:.0f}%" if percent else f"{figure:,.0f}"


def _token_rate(before: _Reading, now: _Reading) -> str:
    """Return the tokens of answers that were generated a second."""
    if now.metrics.generated_tokens is None:
        return "–"
    tokens = grown(before.metrics.generated_tokens, now.metrics.generated_tokens)
    return f"{tokens / max(1e-9, now.at - before.at):,.0f}"
