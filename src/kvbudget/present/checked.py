"""What a person reads of a check, as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.check.verdict import BYTES, CANNOT_TELL, DRIFT, HEALTHY, SHARE, TIMES
from kvbudget.present.document import Block, Document, Table
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.check.observation import Observation
    from kvbudget.check.verdict import Check, Row

VERDICTS = {HEALTHY: "AS PLANNED", DRIFT: "DRIFT", CANNOT_TELL: "CANNOT TELL"}
ENGINES = {"vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "": "no engine"} | {
    "tensorrt-llm": "TensorRT-LLM",
    "lmdeploy": "LMDeploy",
    "tgi": "TGI",
}
MARKS = {True: "ok", False: "✗", None: ""}

MAX_NAMES = 4

LONGEST_VALUE = 24
"""Characters of a choice's value in a table of 80; the causes have it whole."""


def check_document(found: Check, command: str = "") -> Document:
    """Return the whole report.

    Args:
        found: The check.
        command: The command that plans again with what was measured, "" if nothing was.
    """
    blocks = [_figures(found), _settings(found), _findings(found), _again(command), _notes(found)]
    return Document(title=_title(found), lead=tuple(_lead(found)), blocks=tuple(block for block in blocks if block))


def _title(found: Check) -> str:
    healthy = "HEALTHY" if found.plan is None and found.verdict == HEALTHY else VERDICTS[found.verdict]
    version = f" {found.version}" if found.version else ""
    return f"{healthy}   {ENGINES.get(found.engine, found.engine)}{version}{_where(found)}"


def _where(found: Check) -> str:
    seen = found.observation
    if seen is not None and seen.model is not None:
        return f", {_short(str(seen.model.value))}"
    return (
        f", {', '.join(_short(name) for name in found.metrics.models[:MAX_NAMES])}"
        if found.metrics and found.metrics.models
        else ""
    )


def _short(name: str) -> str:
    return name if len(name) <= 50 else f"…{name[-49:]}"  # noqa: PLR2004 - a path's end tells


def _lead(found: Check) -> Iterator[str]:
    """Yield what was read, and the answer in a sentence."""
    wrong = sum(row.ok is False for row in found.rows) + sum(
        finding.drift for finding in found.findings if finding.name.startswith(("setting:", "version"))
    )
    judged = sum(row.ok is not None for row in found.rows) + len(found.settings) + found.same
    if found.plan is None and found.verdict != CANNOT_TELL:
        calm = "See the causes." if found.findings else "Nothing is alarming."
        yield calm if found.verdict == HEALTHY else "There is no plan to compare with; see the causes."
    elif found.verdict == CANNOT_TELL and found.engine not in ("", "vllm"):
        yield f"Plans are of vLLM: what {ENGINES.get(found.engine, found.engine)} tells is read, and not compared."
    elif found.verdict == CANNOT_TELL:
        yield "Nothing that was read can be compared; give MODEL or plan.json, a start-up log, or --metrics."
    elif wrong:
        yield f"{wrong} of {judged} figures and choices are not as planned."
    elif found.verdict == DRIFT:
        yield "See the causes."
    else:
        yield f"All {judged} figures and choices that could be compared are as planned."
    if found.observation is not None and found.observation.known:
        yield _log_words(found.observation)
    if found.metrics is not None:
        m = found.metrics
        span = f", {_duration(m.seconds)}" if m.seconds else ""
        done = f", {m.finished:,.0f} requests finished" if m.finished is not None else ""
        yield f"metrics: {m.source} ({m.engines} engine{'s' if m.engines > 1 else ''}{span}{done})"


def _log_words(seen: Observation) -> str:
    span = f", {seen.first_time} to {seen.last_time}" if seen.first_time else ""
    starts = f", the newest of {seen.starts} starts" if seen.starts > 1 else ""
    where = f" of {seen.instance}" if seen.instance else ""
    lines = f"{seen.lines:,} line{'s' if seen.lines != 1 else ''}"
    far = f"it came as far as {seen.phase}" if seen.phase else "its start is not in it"
    return f"log{where}: {lines}{span}{starts}; {far}"


def _duration(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.3g} s"


def _place(text: str) -> str:
    """Return where something was read, short: of a path its end, of an address its host."""
    if "://" in text:
        return text.partition("://")[2].partition("/")[0][-40:]
    return text.rpartition("/")[2][-40:]


def _figures(found: Check) -> Block | None:
    if not found.rows:
        return None
    where, places = _places(found)
    cells: list[tuple[str, ...]]
    if found.plan is None:
        header: tuple[str, ...] = ("", "actual", "")
        right = frozenset({1})
        cells = [(_named(row), _figure(row.actual, row.unit), MARKS[row.ok]) for row in found.rows]
    else:
        header = ("", "plan", "actual", "diff", "within")
        right = frozenset({1, 2, 3})
        cells = [
            (_named(row), _planned(row), _figure(row.actual, row.unit), _difference(row), _mark(row))
            for row in found.rows
        ]
    if len(set(places)) > 1:  # else the lead has said it
        header = (*header, where)
        cells = [(*row, place) for row, place in zip(cells, places, strict=True)]
    return Block(table=Table(header=header, rows=tuple(cells), right=right))


def _named(row: Row) -> str:
    return f"{row.name}, {row.unit}" if row.unit and row.unit != TIMES and row.unit not in row.name else row.name


def _places(found: Check) -> tuple[str, list[str]]:
    """Return the heading and the texts of where each row was read; of one log its lines are enough."""
    files = {row.place.rpartition(":")[0] for row in found.rows if _has_line(row.place)}
    if len(files) != 1:
        return "read in", [_place(row.place) for row in found.rows]
    lines = [row.place.rpartition(":")[2] if _has_line(row.place) else "" for row in found.rows]
    return "line", lines


def _has_line(place: str) -> bool:
    return "://" not in place and place.rpartition(":")[2].isdecimal()


def _planned(row: Row) -> str:
    if row.plan is None:
        return "–"
    return _figure(row.plan, row.unit)


def _mark(row: Row) -> str:
    """Return whether a row is well, with the interval that it was held against."""
    if row.ok is None:
        return ""
    mark = MARKS[row.ok]
    if row.low is None or row.high is None or row.low == row.high:
        return mark
    return f"{mark} {_figure(row.low, row.unit)}–{_figure(row.high, row.unit)}"


def _difference(row: Row) -> str:
    if row.difference is None:
        return ""
    if abs(row.difference) >= 2:  # noqa: PLR2004 - beyond it a factor reads better
        return f"×{row.difference + 1:.1f}"
    words = f"{row.difference:+.1%}".replace("-", "−")
    return "0.0%" if words in ("+0.0%", "−0.0%") else words


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "–"
    if unit == BYTES:
        return f"{value / GIB:,.2f}"
    if unit == TIMES:
        return f"{value:,.2f}"
    if unit == SHARE:
        return f"{value:,.0f}" if value >= 1 or not value else f"{value:.1f}"
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"  # noqa: PLR2004 - three digits


def _settings(found: Check) -> Block | None:
    if not found.settings:
        return None
    rows = [
        (item.name, _value(item.plan), "not given" if item.actual is None else _value(item.actual), _place(item.place))
        for item in found.settings
    ]
    heading = f"Choices that differ ({found.same} are as planned)"
    return Block(heading=heading, table=Table(header=("choice", "plan", "server", "read in"), rows=tuple(rows)))


def _value(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 1]}…"


def _findings(found: Check) -> Block | None:
    lines = []
    for finding in found.findings:
        at = f" [{_place(finding.place)}]" if finding.place else ""
        lines.append(f"{'✗' if finding.drift else '·'} {finding.cause}{at}")
        if finding.change:
            lines.append(f"  → {finding.change}")
    return Block(heading="Causes, and what to turn", lines=tuple(lines)) if lines else None


def _again(command: str) -> Block | None:
    return Block(heading="Plan again with what was measured", command=command) if command else None


def _notes(found: Check) -> Block | None:
    return Block(heading="Notes", lines=found.notes) if found.notes else None
