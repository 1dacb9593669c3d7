"""Explanations as documents: what `kvbudget explain` shows as text and as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.present.document import Block, Document, Table
from kvbudget.units import GIB, KIB, gib, human_bytes, human_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvbudget.explain import Factor, KvExplanation, Part, Reading, WeightExplanation, WeightRow
    from kvbudget.facts.flags import Flag
    from kvbudget.model import Model


def kv_document(e: KvExplanation) -> Document:
    """Return the KV cache of a request: the figure, its factors, the kinds of layers, the common slips."""
    b, d = e.budget, e.budget.deployment
    blocks = [Block(heading=_part_heading(part, e.parts), table=_factor_table(part.factors)) for part in e.parts]
    blocks.append(Block(lines=(_growth(e),)))
    blocks.append(Block(table=_kinds_table(e), lines=_all_full(e)))
    if e.slips:
        slips = tuple(f"  {slip.sentence}." for slip in e.slips)
        blocks.append(Block(heading="Common slips for this model", lines=slips))
    notes = [f"note: {note}" for note in e.notes]
    notes += [f"assumed: {text}" for text in b.assumptions if _bears_on_kv(text)]
    blocks.append(Block(lines=tuple(notes)))
    return Document(title=_kv_title(e), lead=(_model_line(d.model),), blocks=tuple(blocks))


def _kv_title(e: KvExplanation) -> str:
    kv, tp = e.budget.kv, e.budget.deployment.tensor_parallel_size
    if not kv.bytes_per_token:
        return f"KV per request per GPU = at most {human_bytes(kv.fixed_bytes_per_request)}, whatever its length"
    title = f"KV per token per GPU = {_both(kv.bytes_per_token)}"
    return title if tp == 1 else f"{title}, all {tp} GPUs {_both(kv.bytes_per_token * tp)}"


def _both(size: int) -> str:
    return f"{size:,} B ({human_bytes(size)})" if size >= KIB else f"{size:,} B"


def _model_line(model: Model) -> str:
    return model.source if model.name in model.source else f"{model.name} ({model.source})"


def _bears_on_kv(assumption: str) -> bool:
    return not assumption.startswith(("max_num", "gpu_memory_utilization", "max_model_len"))


def _part_heading(part: Part, parts: Sequence[Part]) -> str:
    if len(parts) == 1 and part.kept.window is None:
        return ""
    return f"{part.kept.label}: {_both(part.bytes_per_token)} a token{'' if part.kept.window is None else ' it keeps'}"


def _factor_table(factors: Iterable[Factor]) -> Table:
    rows = tuple(
        (f"{f.sign or ' '} {f.value:,}", f.key.rpartition(".")[2] or "-", f.where or "-", f.meaning) for f in factors
    )
    return Table(header=("factor", "key", "where", "what it is"), rows=rows)


def _growth(e: KvExplanation) -> str:
    kv = e.budget.kv
    fixed = human_bytes(kv.fixed_bytes_per_request) if kv.fixed_bytes_per_request else "0"
    windows = any(row.window is not None for row in e.rows)
    held = f"{fixed} fixed{' (once its windows are full)' if windows else ''}"
    slope = f" + {human_bytes(kv.bytes_per_token)} × n" if kv.bytes_per_token else ""
    return f"request of n tokens: {held}{slope}, rounded up to blocks of {kv.block_size}"


def _kinds_table(e: KvExplanation) -> Table:
    rows = [
        (
            row.label,
            f"{row.layers:,}",
            f"{row.slope_bytes / row.layers:,.0f}" if row.slope_bytes else "-",
            f"{row.tokens(e.context):,}" if row.slope_bytes else "-",
            _gib(row.bytes_at(e.context)),
        )
        for row in e.rows
    ]
    if len(rows) > 1:
        total = sum(row.bytes_at(e.context) for row in e.rows)
        rows.append(("total", f"{len(e.budget.deployment.model.layers):,}", "", "", _gib(total)))
    header = ("layer kind", "layers", "B/token each", "kept tokens", f"GiB at {e.context:,}")
    return Table(header=header, rows=tuple(rows), right=frozenset({1, 2, 3, 4}))


def _all_full(e: KvExplanation) -> tuple[str, ...]:
    if all(row.window is None for row in e.rows):
        return ()
    return (f"(all layers full: {_gib(e.all_full_bytes)})",)


def _gib(size: int) -> str:
    """Return GiB with two decimals, more where they would hide the figure."""
    return gib(size) if size >= GIB // 100 or not size else gib(size, 4)


def weights_document(e: WeightExplanation) -> Document:
    """Return the weights: the sum, the groups with their format, MTP apart, what stays unquantized."""
    model, tp = e.deployment.model, e.deployment.tensor_parallel_size
    rank = "" if tp == 1 else f" on each of {tp} GPUs"
    title = f"Weights = {gib(e.bytes)} GiB{rank}, {e.parameters:,} parameters ({human_count(e.parameters)})"
    recipe = model.quantization
    stored = f"stored as {recipe.describes if recipe else e.dtype}"
    if recipe is not None and recipe.origin == "imagined":
        stored = f"what if it were {stored}"
    blocks = [Block(table=_weight_table(e.rows, e))]
    if model.active_parameters != model.parameters:
        share = f"{model.active_parameters / model.parameters:.1%}"
        line = f"active for a token: {model.active_parameters:,} ({human_count(model.active_parameters)}, {share})"
        blocks.append(Block(lines=(line,)))
    if e.loaded.best != e.bytes:
        bounds = "" if e.loaded.low == e.loaded.high else f" ({_gib(e.loaded.low)}–{_gib(e.loaded.high)})"
        line = (
            f"after loading: {_gib(e.loaded.best)} GiB{bounds} with RoPE tables and what vLLM makes of the tensors; "
            'its log says "Model loading took"'
        )
        blocks.append(Block(lines=(line,)))
    if e.mtp:
        blocks.append(
            Block(
                heading="Multi-token prediction, apart: loaded only for speculative decoding",
                table=_weight_table(e.mtp, None),
            )
        )
    blocks.append(Block(lines=tuple(f"note: {note}" for note in e.notes)))
    lead = [_model_line(model), stored]
    if model.stored is not None:
        lead.append(f"in the files: {gib(model.stored.nbytes)} GiB ({model.stored.read})")
    return Document(title=title, lead=tuple(lead), blocks=tuple(blocks))


def _weight_table(rows: Iterable[WeightRow], total: WeightExplanation | None) -> Table:
    cells = [
        (row.group.value.replace("_", " "), f"{row.parameters:,}", _gib(row.bytes), _bits(row), row.format)
        for row in rows
    ]
    if total is not None:
        cells.append(("total", f"{total.parameters:,}", _gib(total.bytes), "", ""))
    header = ("group", "parameters", "GiB", "bits each", "stored as")
    return Table(header=header, rows=tuple(cells), right=frozenset({1, 2, 3}))


def _bits(row: WeightRow) -> str:
    return f"{row.bits:.4g}" if row.bits is not None else "-"


def log_document(readings: Sequence[Reading]) -> Document:
    """Return what the lines say, one block a line."""
    first, *rest = readings
    return Document(
        title=_line_title(first),
        lead=first.sentences,
        blocks=tuple(Block(heading=_line_title(reading), lines=reading.sentences) for reading in rest),
    )


def _line_title(reading: Reading) -> str:
    line = reading.line
    return line.title if line.engine == "vLLM" else f"{line.engine}: {line.title}"


def flag_document(flag: Flag) -> Document:
    """Return a flag: its meaning, its default by version, what it does not cover."""
    defaults = tuple(
        ("always" if not any(since) else f"since {'.'.join(map(str, since))}", value) for since, value in flag.defaults
    )
    table = Table(header=("default", ""), rows=defaults, bare=True)
    lines = tuple(f"- {text}" for text in flag.not_covered)
    also = (f"also: {', '.join(flag.aliases)}",) if flag.aliases else ()
    return Document(
        title=f"--{flag.name.replace('_', '-')}: {flag.unit}",
        lead=(flag.meaning,),
        blocks=(
            Block(heading="Default", table=table),
            Block(heading="What it does not cover", lines=lines),
            Block(lines=(*also, f"source: vLLM {flag.source}")),
        ),
    )
