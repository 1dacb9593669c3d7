"""A grid of budgets as text, Markdown, CSV and JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from kvbudget import __version__
from kvbudget.budgeting import CANNOT_TELL, DOES_NOT_FIT, FITS, SCHEMA, TIGHT
from kvbudget.facts.gpus import Gpu
from kvbudget.grid import REFUSED
from kvbudget.present.document import WIDTH, Block, Document, Table, as_csv, as_markdown, as_text, table_lines
from kvbudget.units import GIB, gib, human_bytes, human_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.grid import Cell, Figures, Sheet

WORDS = {FITS: "", TIGHT: "tight", DOES_NOT_FIT: "no"}
"""What stands beside a figure; one that fits stands alone."""

SHORT_NAMES = {
    "gpu": "GPU",
    "engine_version": "vLLM",
    "tensor_parallel_size": "TP",
    "pipeline_parallel_size": "PP",
    "data_parallel_size": "DP",
    "decode_context_parallel_size": "DCP",
    "kv_cache_dtype": "KV type",
    "gpu_memory_utilization": "utilization",
    "max_model_len": "max_model_len",
    "context": "context",
}
"""Axes whose heading is not their own name."""

GPU_FIGURES = (
    "memory_bytes",
    "weights_bytes",
    "available_kv_cache_memory_bytes",
    "available_low_bytes",
    "available_high_bytes",
    "needed_for_one_request_bytes",
    "kv_cache_size_tokens",
    "max_concurrency",
    "max_concurrent_requests",
    "max_num_seqs",
    "max_model_len_that_fits",
)
"""Figures that mean something only where a card is named."""

KV_FIGURES = ("bytes_per_token", "fixed_bytes_per_request", "block_size")


def sheet_text(sheet: Sheet, width: int = WIDTH) -> str:
    """Return the table as text; where it is wider than `width` it is cut into several."""
    return as_text(sheet_document(sheet, width), width)


def sheet_markdown(sheet: Sheet) -> str:
    """Return the table as Markdown."""
    return as_markdown(sheet_document(sheet, None))


def sheet_csv(sheet: Sheet) -> str:
    """Return a row for each cell, named as in the JSON."""
    rows = [cell_dict(cell, sheet) for cell in sheet.cells]
    header = list(dict.fromkeys(key for row in rows for key in row))
    return as_csv(header, ([row.get(key) for key in header] for row in rows))


def sheet_json(sheet: Sheet) -> str:
    """Return the table as JSON, schema 1."""
    d = sheet.base
    data = {
        "schema": SCHEMA,
        "kvbudget": __version__,
        "model": {"id": d.model.name, "source": d.model.source, "parameters": d.model.parameters},
        "engine": {"name": d.engine, "version": d.engine_version},
        "axes": {
            **{name: [axis_value(value) for value in values] for name, values in sheet.axes},
            "batch": list(sheet.batches),
        },
        "cells": [cell_dict(cell, sheet) for cell in sheet.cells],
        "warnings": list(sheet.warnings),
        "assumptions": list(sheet.assumptions),
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def cell_dict(cell: Cell, sheet: Sheet) -> dict[str, Any]:
    """Return a cell as plain data; what needs a card is left out where none was named."""
    data: dict[str, Any] = {name: axis_value(value) for name, value in cell.choices}
    f = cell.figures
    data |= {"context": f.context if f else _asked_context(cell), "batch": cell.batch}
    data["kv_bytes"] = f.kv_bytes if f else None
    data["kv_gib"] = round(f.kv_bytes / GIB, 4) if f else None
    names = (*KV_FIGURES, *GPU_FIGURES) if sheet.with_gpu else KV_FIGURES
    data |= {name: getattr(f, name) if f else None for name in names}
    if sheet.with_gpu or f is None:
        data |= {"verdict": cell.verdict, "reason": cell.reason}
    return data


def _asked_context(cell: Cell) -> int | None:
    context = cell.choice("context") or cell.choice("max_model_len")
    return context if isinstance(context, int) else None


def axis_value(value: Any) -> Any:  # noqa: ANN401 - any choice
    """Return a choice as plain data: a card by its name."""
    if isinstance(value, Gpu):
        return f"{gib(value.memory_bytes)} GiB" if value.name == "given" else value.name
    return value


# --- the document ---------------------------------------------------------------------------------------------------


def sheet_document(sheet: Sheet, width: int | None) -> Document:
    """Return the table as a document; `width` None is for a medium that has no edge."""
    refusals = {reason: i + 1 for i, reason in enumerate(sheet.refusals)}
    varying = tuple(name for name, values in sheet.axes[:-1] if len(values) > 1)
    blocks = _blocks(sheet, sheet.cells, varying, refusals, width)
    notes = []
    if sheet.with_gpu:
        marks = {cell.verdict for cell in sheet.cells}
        notes += [text for verdict, text in _LEGEND.items() if verdict in marks]
        notes += _waiting(sheet)
    notes += [f"[{number}] {reason}" for reason, number in refusals.items()]
    notes += [f"warning: {warning}" for warning in sheet.warnings if sheet.with_gpu]
    notes += [f"assumed: {line}" for line in sheet.assumptions if sheet.with_gpu or bears_on_kv(line)]
    return Document(title=sheet_title(sheet), lead=sheet_lead(sheet), blocks=(*blocks, Block(lines=tuple(notes))))


def _waiting(sheet: Sheet) -> list[str]:
    """Say where more requests fit than the engine runs."""
    limits = {
        cell.figures.max_num_seqs
        for cell in sheet.cells
        if cell.figures is not None and cell.figures.max_concurrent_requests > cell.figures.max_num_seqs
    }
    if not limits:
        return []
    limit = " or ".join(f"{one:,}" for one in sorted(limits))
    return [f"requests above max_num_seqs ({limit}) wait all the same; raise --max-num-seqs to run them."]


_LEGEND = {
    FITS: "A figure alone: the batch fits.",
    TIGHT: "tight: it fits by the best estimate, inside the error bar.",
    DOES_NOT_FIT: "no: so many requests do not hold their KV at once; at 0 requests the engine does not start.",
}


def bears_on_kv(assumption: str) -> bool:
    """Whether an assumption changes the KV cache of a request."""
    return not assumption.startswith(("max_num", "gpu_memory_utilization", "max_model_len"))


def sheet_title(sheet: Sheet) -> str:
    """Return what the table shows."""
    what = "What fits, KV cache" if sheet.with_gpu else "KV cache"
    return f"{what} in GiB on each GPU: {sheet.base.model.name}"


def sheet_lead(sheet: Sheet) -> tuple[str, ...]:
    """Return what all cells share: the model's size, the engine, the bytes of a token, axes with one value."""
    model = sheet.base.model
    active = model.active_parameters
    size = f"{human_count(model.parameters)} parameters"
    if active != model.parameters:
        size += f" ({human_count(active)} active, all resident)"
    parts = [size]
    if "engine_version" not in dict(sheet.axes):
        parts.append(f"vLLM {sheet.base.engine_version}")
    parts += [
        f"{axis_name(name)} {axis_text(name, value)}"
        for name, values in sheet.axes[:-1]
        for value in values
        if len(values) == 1
    ]
    figures = [cell.figures for cell in sheet.cells if cell.figures is not None]
    shapes = {(f.bytes_per_token, f.fixed_bytes_per_request) for f in figures}
    if len(shapes) == 1:
        ((slope, fixed),) = shapes
        parts.append(f"a request of n tokens: {growth_words(slope, fixed)}")
    return ("; ".join(parts),)


def growth_words(slope: int, fixed: int) -> str:
    """Return fixed + slope in words."""
    if not slope:
        return f"at most {human_bytes(fixed)}"
    return f"{human_bytes(fixed)} + {human_bytes(slope)} × n" if fixed else f"{human_bytes(slope)} × n"


def axis_name(name: str) -> str:
    """Return an axis's heading."""
    return SHORT_NAMES.get(name, name)


def axis_text(name: str, value: Any) -> str:  # noqa: ANN401 - any choice
    """Return a choice as text: bytes in GiB, counts with separators, none where nothing was chosen."""
    if value is None:
        return "none"
    plain = axis_value(value)
    if name.endswith("_bytes") and isinstance(plain, int):
        return human_bytes(plain)
    return f"{plain:,}" if isinstance(plain, int) and not isinstance(plain, bool) else str(plain)


def _blocks(
    sheet: Sheet, cells: Sequence[Cell], varying: tuple[str, ...], refusals: dict[str, int], width: int | None
) -> list[Block]:
    """Return the cells as one table, or where it is too wide as several: by the outermost axis, at last by batches."""
    whole = _table(sheet, cells, varying, sheet.batches, refusals, full=True)
    if width is None or _width(whole) <= width:
        return [Block(table=whole)]
    if not varying:
        return _chunks(sheet, cells, refusals, width)
    outer, *inner = varying
    found = []
    for value, group in groupby(cells, key=lambda cell: cell.choice(outer)):
        first, *rest = _blocks(sheet, list(group), tuple(inner), refusals, width)
        heading = f"{axis_name(outer)} {axis_text(outer, value)}"
        found.append(replace(first, heading=f"{heading}, {first.heading}" if first.heading else heading))
        found += [replace(block, heading=f"{heading}, {block.heading}") if block.heading else block for block in rest]
    return found


def _chunks(sheet: Sheet, cells: Sequence[Cell], refusals: dict[str, int], width: int) -> list[Block]:
    """Return the cells as tables of some batches each, as many as fit into the width."""
    size = len(sheet.batches)
    while True:
        tables = [
            _table(sheet, cells, (), sheet.batches[start : start + size], refusals, full=not start)
            for start in range(0, len(sheet.batches), size)
        ]
        if size == 1 or all(_width(table) <= width for table in tables):
            return [Block(table=table) for table in tables]
        size -= 1


def _width(table: Table) -> int:
    return max(map(len, table_lines(table, 1 << 20)))


def _table(
    sheet: Sheet,
    cells: Sequence[Cell],
    varying: tuple[str, ...],
    batches: Sequence[int],
    refusals: dict[str, int],
    *,
    full: bool,
) -> Table:
    """Return one table: a row for each combination, a column for each batch; `full` adds what a card decides."""
    length_axis = sheet.axes[-1][0]
    header = [axis_name(name) for name in varying]
    left = len(header)
    header.append("context")
    extra = full and sheet.with_gpu
    header += ["weights", "KV pool"] if extra else []
    pads = [_pad(sheet, cells, batch) for batch in batches]
    header += [f"batch {batch:,}{' ' * pad}" for batch, pad in zip(batches, pads, strict=True)]
    header += ["requests"] if extra else []
    rows = []
    for alike in rows_of(cells, length_axis):
        first = alike[0]
        texts = [axis_text(name, first.choice(name)) for name in varying]
        if first.figures is not None:
            texts.append(f"{first.figures.context:,}")
        else:
            texts.append(
                axis_text(length_axis, first.choice(length_axis)) if len(alike) == len(sheet.batches) else "all"
            )
        texts += _card_texts(first.figures) if extra else []
        row = {cell.batch: cell for cell in alike}
        texts += [_cell_text(row[batch], refusals, pad) for batch, pad in zip(batches, pads, strict=True)]
        texts += [requests_text(first.figures)] if extra else []
        rows.append(tuple(texts))
    right = frozenset(
        i
        for i in range(len(header))
        if i >= left or all(isinstance(value, (int, float)) for value in dict(sheet.axes)[varying[i]])
    )
    return Table(header=tuple(header), rows=tuple(rows), right=right)


def requests_text(f: Figures | None) -> str:
    """Return how many requests hold their KV at once; none where the engine does not start."""
    if f is None:
        return "-"
    return f"{f.max_concurrent_requests:,}" if f.starts else "0"


def _pad(sheet: Sheet, cells: Sequence[Cell], batch: int) -> int:
    """Return the room for the words of a column, so that its figures stand under each other."""
    words = (WORDS[cell.verdict] for cell in cells if cell.batch == batch and cell.figures is not None)
    return max((len(word) + 1 for word in words if word), default=0) if sheet.with_gpu else 0


def rows_of(cells: Sequence[Cell], length_axis: str) -> list[list[Cell]]:
    """Return the cells of each row; a combination that is refused whatever the context is one row."""
    found = []
    for _, group in groupby(cells, key=lambda cell: [one for one in cell.choices if one[0] != length_axis]):
        combination = list(group)
        if len({cell.reason for cell in combination}) == 1 and combination[0].figures is None:
            found.append(combination)
            continue
        found += [list(row) for _, row in groupby(combination, key=lambda cell: cell.choice(length_axis))]
    return found


def _card_texts(f: Figures | None) -> list[str]:
    return [gib(f.weights_bytes), gib(f.available_kv_cache_memory_bytes)] if f else ["-", "-"]


def _cell_text(cell: Cell, refusals: dict[str, int], pad: int) -> str:
    """Return a figure with its word, or the number of the reason for which there is none."""
    if cell.figures is None:
        word = "cannot tell" if cell.verdict == CANNOT_TELL else REFUSED
        return f"{word} [{refusals[cell.reason]}]"
    word = f" {WORDS[cell.verdict]}" if pad else ""
    return kv_gib(cell.figures.kv_bytes) + word.ljust(pad)


def kv_gib(size: int) -> str:
    """Return GiB with two decimals, four where two would hide the figure."""
    return gib(size) if size >= GIB // 100 or not size else gib(size, 4)
