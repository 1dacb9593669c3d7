"""A grid of budgets as one page: a static file without scripts, other hosts or fonts, for light and dark.

Charts are inline SVG that stretches with the page; their labels are HTML, so that text keeps its size on a phone. A
letter at the end of each line ties it to the legend, so nothing hangs on a colour. Every text is escaped: the name of a
model is whatever its author wrote.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from math import log2
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget import __version__
from kvbudget.budgeting import CANNOT_TELL, DOES_NOT_FIT, FITS, TIGHT
from kvbudget.grid import REFUSED
from kvbudget.present.document import clean
from kvbudget.present.sheet import (
    WORDS,
    axis_name,
    axis_text,
    bears_on_kv,
    kv_gib,
    requests_text,
    rows_of,
    sheet_lead,
)
from kvbudget.units import GIB, KIB, MIB, gib

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kvbudget.grid import Cell, Figures, Sheet

MAX_LINES = 8
"""More lines in one chart cannot be told apart."""

MAX_PANELS = 4
MAX_BARS = 12
MAX_FIRST_BYTES = 12_000
"""What the first table may take of the page; the table of all figures has what is left. The CSV has all rows."""

MAX_PAGE_BYTES = 58_000
TABLE_HEAD_BYTES = 1_000
MAX_NAME = 200

MAX_TICKS = 7
MAX_NAMED = 3
"""Cards named in a sentence; the table has all."""

MAX_NOTES = 20

LABEL_HEIGHT, LABEL_WIDTH, LOWEST_LABEL = 7.0, 9.0, 97.0
"""Of the letters in a chart, in per cent of its height and width."""

Choices = tuple[tuple[str, Any], ...]


def sheet_page(sheet: Sheet) -> str:
    """Return the page of a grid: what fits, where the memory goes, two charts, the table behind them."""
    kind, name = "What fits" if sheet.with_gpu else "KV cache", sheet.base.model.name[:MAX_NAME]
    head = [
        f"<header><p class=kind>{kind}</p><h1>{esc(name)}</h1>",
        *(f"<p>{esc(line)}</p>" for line in sheet_lead(sheet)),
        "</header><main>",
        _requests_section(sheet) if sheet.with_gpu else _kv_section(sheet),
        _bars_section(sheet) if sheet.with_gpu else "",
        _charts_section(sheet),
    ]
    tail = [
        _notes_section(sheet),
        f"</main><footer><p>kvbudget {__version__}. GiB is 2<sup>30</sup> bytes; figures are for one GPU.</p></footer>",
    ]
    room = MAX_PAGE_BYTES - len(page(f"{kind}: {name}", "".join(head + tail)).encode())
    table = _table_section(sheet, room) if sheet.with_gpu else ""
    return page(f"{kind}: {name}", "".join([*head, table, *tail]))


def page(title: str, body: str) -> str:
    """Return a whole page; `body` is markup, `title` is text."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none';style-src 'unsafe-inline'\">"
        f"<title>{esc(title)}</title><style>{_CSS}</style></head><body>{body}</body></html>\n"
    )


_ESCAPES = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}


def esc(text: str) -> str:
    """Return text that is safe in markup and in quoted attributes."""
    return clean(text).translate(_ESCAPES)


# --- what is told apart -----------------------------------------------------------------------------------------------


def _length_axis(sheet: Sheet) -> str:
    return sheet.axes[-1][0]


def _varying(sheet: Sheet) -> tuple[str, ...]:
    return tuple(name for name, values in sheet.axes[:-1] if len(values) > 1)


def _combination(cell: Cell, sheet: Sheet) -> Choices:
    return tuple(choice for choice in cell.choices if choice[0] != _length_axis(sheet))


def _name(choices: Iterable[tuple[str, Any]], names: Iterable[str]) -> str:
    """Return a combination in words: the axes in `names`, a card by its name alone."""
    wanted = set(names)
    words = [
        axis_text(axis, value) if axis == "gpu" else f"{axis_name(axis)} {axis_text(axis, value)}"
        for axis, value in choices
        if axis in wanted
    ]
    return ", ".join(words)


def _by_combination(cells: Iterable[Cell], sheet: Sheet) -> list[tuple[Choices, list[Cell]]]:
    """Return the cells of each combination, in the order of the grid."""
    return [(key, list(group)) for key, group in groupby(cells, key=lambda cell: _combination(cell, sheet))]


# --- what fits --------------------------------------------------------------------------------------------------------


_CLASSES = {FITS: "fits", TIGHT: "tight", DOES_NOT_FIT: "no", REFUSED: "off", CANNOT_TELL: "off"}


def _requests_section(sheet: Sheet) -> str:
    """Return the requests that fit at once, a row for each combination and a column for each context."""
    names = _varying(sheet) or ("gpu",)
    rows = []
    for choices, cells in _by_combination(sheet.cells, sheet):
        if all(cell.figures is None for cell in cells):
            continue  # its reason is among the notes
        one = [cell for cell in cells if cell.batch == sheet.batches[0]]
        rows.append(f"<tr>{_heads(choices, names)}{''.join(_requests_cell(cell) for cell in one)}</tr>")
    header = [*map(axis_name, names), *(axis_text(_length_axis(sheet), value) for value in sheet.axes[-1][1])]
    return (
        "<section><h2>Requests that hold their KV at once</h2>"
        "<p>By tokens of a request. The engine starts only if one request of its longest length fits.</p>"
        + _scroll_table("Requests at once by context", header, _limited(rows), len(names))
        + "<p class=key><span class=fits>fits</span> <span class=tight>tight: inside the error bar</span> "
        "<span class=no>no: not one fits</span></p></section>"
    )


def _heads(choices: Choices, names: Sequence[str]) -> str:
    """Return a combination as the heads of a row, one for each axis."""
    values = dict(choices)
    return "".join(f"<th scope=row>{esc(axis_text(name, values[name]))}</th>" for name in names)


def _requests_cell(cell: Cell) -> str:
    if cell.figures is None:
        return f"<td class=off>{'refused' if cell.verdict == REFUSED else 'cannot tell'}</td>"
    # The verdict of one request; a batch's own is in the table of all figures.
    count = requests_text(cell.figures)
    verdict = cell.verdict if cell.batch == 1 else DOES_NOT_FIT if count == "0" else FITS
    word = WORDS[verdict]
    return f"<td class={_CLASSES[verdict]}>{count}{f' <small>{word}</small>' if word else ''}</td>"


def _limited(rows: Sequence[str], room: int = MAX_FIRST_BYTES) -> str:
    """Return as many rows as there is room for, and a last one that says how many are left out."""
    kept: list[str] = []
    for i, row in enumerate(rows):
        room -= len(row.encode())
        if room < 0:
            kept.append(f"<tr><td colspan=99>{len(rows) - i:,} more rows: --csv has them all.</td></tr>")
            break
        kept.append(row)
    return "".join(kept)


def _scroll_table(label: str, header: Sequence[str], rows: str, names: int = 1) -> str:
    """Return a table that scrolls inside itself; its first `names` columns are words, the others figures."""
    heads = "".join(
        f"<th scope=col{' class=word' if i < names else ''}>{esc(name)}</th>" for i, name in enumerate(header)
    )
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="{esc(label)}"><table><thead><tr>{heads}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _kv_section(sheet: Sheet) -> str:
    """Return the KV of each batch, for a page without cards."""
    names = _varying(sheet)
    rows = []
    for choices, cells in _by_combination(sheet.cells, sheet):
        for _, group in groupby(cells, key=lambda cell: cell.choice(_length_axis(sheet))):
            row = list(group)
            context = f"<td>{esc(axis_text(_length_axis(sheet), row[0].choice(_length_axis(sheet))))}</td>"
            tds = "".join(
                f"<td>{kv_gib(cell.figures.kv_bytes)}</td>" if cell.figures else "<td class=off>refused</td>"
                for cell in row
            )
            rows.append(f"<tr>{_heads(choices, names)}{context}{tds}</tr>")
    header = [*map(axis_name, names), "context", *(f"batch {batch:,}" for batch in sheet.batches)]
    return (
        "<section><h2>KV cache in GiB</h2><p>By tokens of each request and requests at the same time.</p>"
        + _scroll_table("KV cache in GiB by context and batch", header, _limited(rows), len(names))
        + "</section>"
    )


# --- where the memory goes --------------------------------------------------------------------------------------------


_PARTS = {
    "weights": ("weights", "p1"),
    "draft": ("draft", "p7"),
    "lora": ("LoRA slots", "p8"),
    "activations": ("activations", "p2"),
    "cuda_graphs": ("CUDA graphs", "p3"),
    "non_torch": ("non-torch", "p4"),
    "kv_cache": ("KV pool", "p5"),
    "outside_budget": ("outside", "p6"),
}
"""Line of a budget -> its name and the class of its colour; others get the last colour."""


def _bars_section(sheet: Sheet) -> str:
    """Return a bar of the GPU's memory for each combination that changes it."""
    names = _varying(sheet) or ("gpu",)
    bars: list[str] = []
    seen: set[Any] = set()
    left = 0
    for choices, cells in _by_combination(sheet.cells, sheet):
        figures = [cell.figures for cell in cells if cell.figures is not None]
        if not figures:
            continue
        f = figures[-1]
        shown = tuple(choice for choice in choices if choice[0] != "kv_cache_dtype")
        if (shown, f.parts) in seen:
            continue
        seen.add((shown, f.parts))
        if len(bars) == MAX_BARS:
            left += 1
            continue
        bars.append(_bar(_name(shown, names) or _name(choices, names), f))
    more = f"<p>{left:,} more are not drawn.</p>" if left else ""
    return (
        "<section><h2>Where the memory of a GPU goes</h2>"
        f"<p>What the engine will take; the KV pool is what is left, however little is needed.</p>{''.join(bars)}{more}"
        "</section>"
    )


def _bar(name: str, f: Figures) -> str:
    pool = f"KV pool {gib(f.available_low_bytes)}–{gib(f.available_high_bytes)}"
    if f.over_bytes:
        pool = f"over by {gib(f.over_bytes)}: the weights need {gib(f.weights_bytes)}"
    return memory_bar(name, f"{gib(f.memory_bytes)} GiB, {pool}", f.parts, f.memory_bytes)


def memory_bar(name: str, note: str, parts: Iterable[tuple[str, int]], total: int) -> str:
    """Return a GPU's memory as a bar to scale with its legend.

    Args:
        name: Which GPU.
        note: What stands beside the name.
        parts: (line of a budget, bytes that it takes).
        total: The GPU's bytes.
    """
    spans, items = [], []
    for part, size in parts:
        title, css = _PARTS.get(part, (part.replace("_", " "), "p6"))
        if size:
            spans.append(f'<span class={css} style="width:{size / total:.2%}"></span>')
            items.append(f"<li><i class={css}></i>{esc(title)} <b>{gib(size)}</b></li>")
    return (
        f"<div class=memory><h3>{esc(name)} <small>{esc(note)}</small></h3>"
        f"<div class=bar aria-hidden=true>{''.join(spans)}</div><ul class=legend>{''.join(items)}</ul></div>"
    )


# --- charts -----------------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """A line of a chart: its name, its points (x, y), and the class of its colour and dashes."""

    name: str
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with two logarithmic axes: x in tokens, y in `unit`; `limits` are horizontal lines."""

    title: str
    sentence: str
    unit: str
    lines: tuple[Line, ...]
    limits: tuple[tuple[str, float], ...] = ()
    left_out: int = 0


def _charts_section(sheet: Sheet) -> str:
    charts = [*_kv_charts(sheet), *([_requests_chart(sheet)] if sheet.with_gpu else [])]
    drawn = [
        _chart(chart, number) for number, chart in enumerate(charts, 1) if any(line.points for line in chart.lines)
    ]
    return f"<section class=charts>{''.join(drawn)}</section>" if drawn else ""


def _kv_charts(sheet: Sheet) -> list[Chart]:
    """Return KV over context, a chart for each layout: lines by KV type and batch, limits by card."""
    names = _varying(sheet)
    cells = [cell for cell in sheet.curve if cell.figures is not None]
    layouts: dict[Choices, list[Cell]] = {}
    for cell in cells:
        key = tuple(c for c in _combination(cell, sheet) if c[0] not in ("gpu", "kv_cache_dtype"))
        layouts.setdefault(key, []).append(cell)
    charts = []
    for layout, group in list(layouts.items())[:MAX_PANELS]:
        types: dict[Any, dict[int, int]] = {}
        pools: dict[str, Figures] = {}
        for cell in group:
            f = cell.figures
            assert f is not None  # noqa: S101 - filtered above
            types.setdefault(cell.choice("kv_cache_dtype"), {})[f.context] = f.kv_bytes
            if sheet.with_gpu and cell.choice("kv_cache_dtype") == next(iter(types)):
                pools[axis_text("gpu", cell.choice("gpu"))] = f
        lines = [
            Line(
                ", ".join(filter(None, [_requests_words(batch), f"KV type {kind}" if len(types) > 1 else ""])),
                tuple((context, size * batch / GIB) for context, size in sorted(sizes.items())),
            )
            for kind, sizes in types.items()
            for batch in sheet.batches
        ]
        where = _name(layout, names)
        charts.append(
            Chart(
                title=f"KV used by context{f', {where}' if where else ''}",
                sentence=_pool_sentence(pools, next(iter(types)) if len(types) > 1 else None),
                unit="GiB",
                lines=tuple(lines[:MAX_LINES]),
                limits=tuple(
                    (f"{name} {gib(f.available_kv_cache_memory_bytes)}", f.available_kv_cache_memory_bytes / GIB)
                    for name, f in list(pools.items())[:MAX_LINES]
                ),
                left_out=max(0, len(lines) - MAX_LINES),
            )
        )
    return charts


def _requests_words(batch: int) -> str:
    return "1 request" if batch == 1 else f"{batch:,} requests"


def _pool_sentence(pools: Mapping[str, Figures], kind: str | None) -> str:
    """Say how long one request may be on each card, the first few."""
    if not pools:
        return "What the requests hold on one GPU."
    lengths = {name: f.max_model_len_that_fits for name, f in list(pools.items())[:MAX_NAMED]}
    found = [f"up to {length:,} tokens on {name}" for name, length in lengths.items() if length]
    none = [name for name, length in lengths.items() if not length]
    by = f" ({kind})" if kind else ""
    fits = f" One request{by} fits {', '.join(found)}." if found else ""
    missing = f" None fits on {', '.join(none)}." if none else ""
    return f"Dashed: the cards' KV pools.{fits}{missing}"


def _requests_chart(sheet: Sheet) -> Chart:
    """Return requests that fit over context, a line for each combination."""
    names = _varying(sheet) or ("gpu",)
    lines = []
    for choices, cells in _by_combination(sheet.curve, sheet):
        points = tuple(
            (cell.figures.context, cell.figures.max_concurrent_requests)
            for cell in cells
            if cell.figures is not None and cell.figures.max_concurrent_requests
        )
        if points:
            lines.append(Line(_name(choices, names), points))
    return Chart(
        title="Requests at once by context",
        sentence="Twice the context is half the requests where every layer keeps every token.",
        unit="requests",
        lines=tuple(lines[:MAX_LINES]),
        left_out=max(0, len(lines) - MAX_LINES),
    )


class Scale(NamedTuple):
    """A logarithmic scale in powers of two, from `low` to `high`."""

    low: float
    high: float

    def at(self, value: float) -> float:
        """Return where a value stands, in per cent."""
        return 100 * (log2(value) - self.low) / (self.high - self.low)

    def ticks(self) -> tuple[float, ...]:
        """Return at most `MAX_TICKS` powers of two, evenly spaced."""
        first, last = -int(-self.low // 1), int(self.high // 1)
        step = -(-(last - first + 1) // MAX_TICKS)
        return tuple(2.0**power for power in range(first, last + 1, max(1, step)))


def _scale(values: Iterable[float], *, whole: bool) -> Scale:
    """Return a scale over the values; `whole` ends it at powers of two."""
    logs = [log2(value) for value in values if value > 0] or [0.0]
    low, high = min(logs), max(logs)
    if whole:
        low, high = float(low // 1), float(-(-high // 1))
    return Scale(low, high if high > low else low + 1)


def _chart(chart: Chart, number: int) -> str:
    points = [point for line in chart.lines for point in line.points]
    x = _scale((point[0] for point in points), whole=False)
    y = _scale([*(point[1] for point in points), *(limit for _, limit in chart.limits)], whole=True)
    svg, marks = [], []
    for tick in y.ticks():
        svg.append(f'<path class="g" d="M0 {_n(100 - y.at(tick))}H100"/>')
        marks.append(f'<span class=y style="bottom:{_n(y.at(tick))}%">{esc(_tick(tick))}</span>')
    for tick in x.ticks():
        svg.append(f'<path class="g" d="M{_n(x.at(tick))} 0V100"/>')
        marks.append(f'<span class=x style="left:{_n(x.at(tick))}%">{esc(_tokens(tick))}</span>')
    visible = [(name, limit) for name, limit in chart.limits if limit > 0]
    for (name, limit), top in zip(visible, _apart([(0, 100 - y.at(limit)) for _, limit in visible]), strict=True):
        svg.append(f'<path class="m" d="M0 {_n(100 - y.at(limit))}H100"/>')
        marks.append(f'<span class=limit style="top:{_n(top)}%">{esc(name)}</span>')
    ends = [(x.at(line.points[-1][0]), 100 - y.at(line.points[-1][1])) for line in chart.lines]
    legend = []
    for i, (line, end) in enumerate(zip(chart.lines, _apart(ends), strict=True), 1):
        path = "L".join(f"{_n(x.at(tokens))} {_n(100 - y.at(value))}" for tokens, value in line.points)
        dot = path if len(line.points) == 1 else ""
        svg.append(f'<path class="l l{i}" d="M{path}{"h0" if dot else ""}"/>')
        letter = chr(ord("A") + i - 1)
        left = x.at(line.points[-1][0])
        marks.append(f'<span class="end k{i}" style="top:{_n(end)}%;left:{_n(left)}%">{letter}</span>')
        sample = f'<svg class="s" viewBox="0 0 30 8" aria-hidden="true"><path class="l l{i}" d="M0 4H30"/></svg>'
        legend.append(f"<li><b class=k{i}>{letter}</b>{sample}{esc(line.name)}</li>")
    out = f"<p>{chart.left_out:,} more lines are not drawn.</p>" if chart.left_out else ""
    return (
        (
            f"<figure><figcaption><h2>{esc(chart.title)}</h2><p>{esc(chart.sentence)}</p></figcaption>"
            f"<p class=unit>{esc(chart.unit)}</p><div class=plot>"
            f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-labelledby="t{number} d{number}">'
            f'<title id="t{number}">{esc(chart.title)}</title><desc id="d{number}">{esc(_description(chart))}</desc>'
            f"{''.join(svg)}</svg>{''.join(marks)}</div><p class=axis>tokens of a request</p>"
            f"<ul class=legend>{''.join(legend)}</ul>{out}</figure>"
        )
        .replace("<path class=g ", '<path class="g" ')
        .replace("<path class=m ", '<path class="m" ')
    )


def _description(chart: Chart) -> str:
    """Return in words what the chart shows: where each line begins and ends."""
    parts = [
        f"{line.name}: {_figure(line.points[0][1])} {chart.unit} at {line.points[0][0]:,.0f} tokens, "
        f"{_figure(line.points[-1][1])} at {line.points[-1][0]:,.0f}"
        for line in chart.lines
    ]
    limits = [f"limit {name} GiB" for name, _ in chart.limits]
    return f"Both axes are logarithmic. {'; '.join([*parts, *limits])}."


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def _apart(labels: Sequence[tuple[float, float]]) -> list[float]:
    """Return where labels stand so that none covers another: (left, top) in per cent -> top in per cent."""
    placed: list[float] = [0.0] * len(labels)
    done: list[int] = []
    for i in sorted(range(len(labels)), key=lambda i: labels[i][1]):
        left, top = labels[i]
        near = [placed[j] for j in done if abs(labels[j][0] - left) < LABEL_WIDTH]
        placed[i] = max([top, *(above + LABEL_HEIGHT for above in near)])
        done.append(i)
    limit: dict[int, float] = {}
    for i in reversed(done):  # what was pushed out at the bottom is pushed up again
        below = [limit[j] for j in limit if abs(labels[j][0] - labels[i][0]) < LABEL_WIDTH]
        placed[i] = min([placed[i], LOWEST_LABEL, *(one - LABEL_HEIGHT for one in below)])
        limit[i] = placed[i]
    return placed


def _n(value: float) -> str:
    """Return a coordinate with two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"1/{1 / value:,.0f}"


def _tokens(value: float) -> str:
    for unit, name in ((MIB, "M"), (KIB, "K")):
        if value >= unit:
            return f"{value / unit:,.0f}{name}"
    return f"{value:,.0f}"


# --- the table behind it ----------------------------------------------------------------------------------------------


def _table_section(sheet: Sheet, room: int) -> str:
    """Return every figure that the charts are drawn from."""
    names = _varying(sheet)
    header = [
        *(axis_name(name) for name in names),
        "context",
        "weights",
        "KV pool",
        *(f"batch {batch:,}" for batch in sheet.batches),
        "requests",
    ]
    rows = []
    for cells in rows_of(sheet.cells, _length_axis(sheet)):
        first, f = cells[0], cells[0].figures
        whole = f is None and len(cells) > len(sheet.batches)
        axis = _length_axis(sheet)
        context = "all" if whole else axis_text(axis, f.context if f else first.choice(axis))
        card = (gib(f.weights_bytes), gib(f.available_kv_cache_memory_bytes)) if f else ("-", "-")
        requests = requests_text(f)
        tds = "".join(map(_figure_cell, cells[: len(sheet.batches)]))
        rows.append(
            f"<tr>{_heads(first.choices, names)}<td>{esc(context)}</td><td>{card[0]}</td><td>{card[1]}</td>{tds}"
            f"<td>{requests}</td></tr>"
        )
    return (
        "<section><h2>All figures</h2><p>GiB on each GPU; a batch column is the KV of so many requests.</p>"
        + _scroll_table("All figures", header, _limited(rows, room - TABLE_HEAD_BYTES), len(names))
        + "</section>"
    )


def _figure_cell(cell: Cell) -> str:
    if cell.figures is None:
        return f"<td class=off>{'refused' if cell.verdict == REFUSED else 'cannot tell'}</td>"
    word = WORDS[cell.verdict]
    return (
        f"<td class={_CLASSES[cell.verdict]}>{kv_gib(cell.figures.kv_bytes)}"
        f"{f' <small>{word}</small>' if word else ''}</td>"
    )


def _notes_section(sheet: Sheet) -> str:
    """Return the refusals with their reasons, the warnings and the assumptions."""
    groups = (
        ("Refused", sheet.refusals),
        ("Warnings", sheet.warnings if sheet.with_gpu else ()),
        ("Assumed", tuple(line for line in sheet.assumptions if sheet.with_gpu or bears_on_kv(line))),
    )
    parts = []
    for title, lines in groups:
        if lines:
            items = "".join(f"<li>{esc(line)}</li>" for line in lines[:MAX_NOTES])
            more = f"<li>and {len(lines) - MAX_NOTES:,} more</li>" if len(lines) > MAX_NOTES else ""
            parts.append(f"<h2>{title}</h2><ul>{items}{more}</ul>")
    return f"<section class=notes>{''.join(parts)}</section>" if parts else ""


_LIGHT = ("#1b5fa8", "#a34a06", "#0b7350", "#7a3fb0", "#b3246b", "#0f6f7a", "#5c6168", "#6b6400")
_DARK = ("#7db7f5", "#f2a65a", "#5fd0a4", "#c9a4f2", "#f591bd", "#6ccdd7", "#b8bec6", "#d2ca5c")
"""Colours of lines and parts, each with a contrast of 4.5 and more to its page."""

_DASHES = ("none", "9 4", "2 4", "12 3 2 3", "6 3", "1 3", "14 5", "3 3 9 3")


def _rules() -> str:
    """Return the colours and dashes of the lines."""
    return "".join(
        f".l{i}{{stroke:var(--c{i});stroke-dasharray:{dash}}}.k{i}{{background:var(--c{i})}}"
        for i, dash in enumerate(_DASHES, 1)
    )


def _variables(colours: Sequence[str]) -> str:
    return "".join(f"--c{i}:{colour};" for i, colour in enumerate(colours, 1))


_CSS = (
    ":root{color-scheme:light dark;--fg:#15191e;--mut:#555c66;--bg:#fff;--line:#d5d9de;--soft:#f4f6f8;"
    "--fits:#e3f3ec;--tight:#fdf0d5;--no:#fbe4e2;--on:#fff;"
    + _variables(_LIGHT)
    + "}@media(prefers-color-scheme:dark){:root{--fg:#e8ebef;--mut:#a9b1bb;--bg:#14181d;--line:#353c45;--soft:#1d232a;"
    "--fits:#143d2e;--tight:#453613;--no:#4c2220;--on:#101418;" + _variables(_DARK) + "}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;max-width:80rem;padding:0 clamp(.9rem,3vw,2rem) 2rem;background:var(--bg);color:var(--fg);"
    "font:1rem/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}"
    "header{padding:1.6rem 0 .4rem}header p{margin:.2rem 0;color:var(--mut)}"
    "h1{font-size:clamp(1.3rem,4vw,1.9rem);line-height:1.2;margin:0;overflow-wrap:anywhere}"
    "h2{font-size:1.12rem;margin:0 0 .2rem}h3{font-size:1rem;margin:0 0 .3rem}small{font-weight:400;color:var(--mut)}"
    ".kind{text-transform:uppercase;letter-spacing:.08em;font-size:.8rem}"
    "section{margin:1.6rem 0}section>p,figcaption p{margin:.1rem 0 .6rem;color:var(--mut)}"
    ".scroll{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem}"
    "table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}"
    "th,td{padding:.4rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}"
    "tbody tr:last-child>*{border-bottom:0}thead th{background:var(--soft);font-weight:600}"
    "th[scope=row],.word{text-align:left}td.word{white-space:normal;min-width:12rem}th[scope=row]{font-weight:500}th[scope=row]:first-child{font-weight:600}"
    "td small{color:inherit}.fits{background:var(--fits)}.tight{background:var(--tight)}.no{background:var(--no)}"
    ".off{color:var(--mut);font-style:italic}"
    "section>.key{display:flex;flex-wrap:wrap;gap:.4rem;margin-top:.5rem;font-size:.85rem}"
    ".key span{padding:.1rem .5rem;border-radius:.3rem;color:var(--fg)}"
    ".memory{margin:.9rem 0}.memory small{margin-left:.4rem}"
    ".bar{display:flex;height:1.9rem;border-radius:.35rem;overflow:hidden;background:var(--soft)}"
    ".bar span{min-width:1px;border-right:1px solid var(--bg)}"
    ".legend{display:flex;flex-wrap:wrap;gap:.15rem 1.1rem;list-style:none;margin:.35rem 0 0;padding:0}"
    ".legend{font-size:.88rem}"
    ".legend i{display:inline-block;width:.8em;height:.8em;border-radius:.15em;margin-right:.35em}"
    ".p1{background:var(--c1)}.p2{background:var(--c2)}.p3{background:var(--c4)}.p4{background:var(--c6)}"
    ".p5{background:var(--c3)}.p7{background:var(--c5)}.p8{background:var(--c8)}"
    ".p6{background:repeating-linear-gradient(45deg,var(--line) 0 4px,transparent 4px 8px)}"
    ".charts{display:grid;gap:0 2rem;grid-template-columns:minmax(0,1fr)}"
    "@media(min-width:56rem){.charts{grid-template-columns:repeat(2,minmax(0,1fr))}.charts>:last-child:nth-child(odd){grid-column:1/-1}}"
    "@media(max-width:40rem){th,td{padding:.4rem .5rem}th[scope=row]:first-child{white-space:normal;min-width:7rem}}"
    "figure{margin:0 0 1.6rem;min-width:0;display:grid;grid-template:subgrid/minmax(0,1fr);grid-row:span 6;row-gap:0}"
    ".unit,.axis{margin:0;font-size:.8rem;color:var(--mut)}.unit{margin-left:.2rem}.axis{text-align:right}"
    ".plot{position:relative;height:clamp(15rem,40vw,20rem);margin:.35rem 1.7rem 1.6rem 3rem}"
    ".plot>svg{position:absolute;inset:0;width:100%;height:100%;overflow:visible}"
    "path{fill:none;vector-effect:non-scaling-stroke}.g{stroke:var(--line)}"
    ".m{stroke:var(--fg);stroke-width:1.5;stroke-dasharray:5 4}"
    ".l{stroke-width:2.5;stroke-linecap:round;stroke-linejoin:round}"
    ".plot span{position:absolute;font-size:.78rem;line-height:1;white-space:nowrap}"
    ".plot .y{right:100%;margin-right:.4rem;transform:translateY(50%);color:var(--mut)}"
    ".plot .x{top:100%;margin-top:.4rem;transform:translateX(-50%);color:var(--mut)}"
    ".plot .limit{left:.4rem;transform:translateY(calc(-100% - 3px));padding:.1rem .25rem}"
    ".plot .limit{background:var(--bg);font-weight:600}"
    ".plot .end,.legend b[class]{width:1.25rem;height:1.25rem;border-radius:50%;color:var(--on);font-weight:700;"
    "font-size:.72rem;line-height:1.25rem;text-align:center}"
    ".plot .end{transform:translateY(-50%);margin-left:.35rem}"
    ".legend b[class]{display:inline-block;margin-right:.35rem}"
    ".s{width:1.9rem;height:.5rem;margin-right:.4rem;vertical-align:middle}"
    ".notes ul{margin:.2rem 0 1rem;padding-left:1.2rem;color:var(--mut);overflow-wrap:anywhere}"
    "footer{border-top:1px solid var(--line);color:var(--mut);font-size:.85rem}" + _rules()
)
