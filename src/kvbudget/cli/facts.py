"""`kvbudget models`, `gpus`, `formats`, `engines`: what is known, with sources.

Each verb lists the rows of a table in `kvbudget.facts`, or those in which a word occurs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kvbudget import __version__
from kvbudget.errors import InputError
from kvbudget.present.document import Block, Document, Table, as_csv, as_markdown, as_text
from kvbudget.units import KIB, MIB, gib, human_count

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from kvbudget.facts.catalogue import CatalogueRow
    from kvbudget.facts.gpus import Gpu

SCHEMA = 1
_GB = 10**9
_TERA = 10**12


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One fact: how it reads, all that is known about it, and where it comes from.

    Args:
        section: The table it stands in.
        cells: Its row on screen.
        data: All of it as plain data.
        source: Where it was read.
        words: Other names under which it is found.
    """

    section: str
    cells: tuple[str, ...]
    data: dict[str, Any]
    source: str
    words: tuple[str, ...] = ()

    def matches(self, word: str) -> bool:
        """Whether `word` occurs in a name or on the row; case and separators do not matter."""
        wanted = _plain(word)
        return any(wanted in _plain(text) for text in (*self.cells, *self.words))


def _plain(text: str) -> str:
    return "".join(char for char in text.casefold() if char not in " -_/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A table of entries.

    Args:
        name: What `Entry.section` calls it.
        heading: For people.
        header: The columns.
        right: Those aligned to the right.
        note: A sentence under the table.
    """

    name: str
    heading: str
    header: tuple[str, ...]
    right: frozenset[int] = frozenset()
    note: str = ""


def _verb(name: str, sections: Sequence[Section], entries: Callable[[], Iterable[Entry]], text: str) -> click.Command:
    """Return the verb that lists a table."""

    @click.command(name, help=text)
    @click.argument("word", required=False, default="")
    @click.option("--sources", is_flag=True, help="Say below each row where it was read.")
    @click.option("--json", "as_json", is_flag=True, help="JSON, all that is known.")
    @click.option("--csv", "as_csv_", is_flag=True, help="CSV, all that is known.")
    @click.option("--md", "as_md", is_flag=True, help="Markdown, with sources.")
    def verb(*, word: str, sources: bool, as_json: bool, as_csv_: bool, as_md: bool) -> None:
        if sum((as_json, as_csv_, as_md)) > 1:
            raise InputError("--json, --csv and --md exclude each other; give one of them.")
        found = [entry for entry in entries() if not word or entry.matches(word)]
        if not found:
            raise InputError(f"Nothing in `kvbudget {name}` matches {word[:40]!r}; leave the word out to see all.")
        if as_json:
            rows = [{"table": entry.section, **entry.data, "source": entry.source} for entry in found]
            click.echo(
                json.dumps({"schema": SCHEMA, "kvbudget": __version__, name: rows}, indent=1, ensure_ascii=False)
            )
        elif as_csv_:
            click.echo(_csv(found), nl=False)
        else:
            document = _document(name, sections, found, sources=sources or as_md, markdown=as_md)
            click.echo((as_markdown if as_md else as_text)(document), nl=False)

    return verb


def _csv(found: Sequence[Entry]) -> str:
    rows = [{"table": entry.section, **entry.data, "source": entry.source} for entry in found]
    header = list(dict.fromkeys(key for row in rows for key in row))
    return as_csv(header, ([_flat(row.get(key)) for key in header] for row in rows))


def _flat(value: Any) -> object:  # noqa: ANN401 - JSON has no narrower type
    if isinstance(value, (list, tuple)):
        return "; ".join(map(str, value))
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else value


def _document(
    name: str, sections: Sequence[Section], found: Sequence[Entry], *, sources: bool, markdown: bool
) -> Document:
    """Return the tables; sources are a last column in Markdown and a line below each row in text."""
    blocks = []
    for section in sections:
        rows = [entry for entry in found if entry.section == section.name]
        if not rows:
            continue
        heading = section.heading if len(sections) > 1 else ""
        notes = (section.note,) if section.note else ()
        if markdown:
            cells = tuple((*entry.cells, entry.source) for entry in rows)
            table = Table(header=(*section.header, "source"), rows=cells, right=section.right)
            blocks.append(Block(heading=heading, table=table, lines=notes))
            continue
        table = Table(header=section.header, rows=tuple(entry.cells for entry in rows), right=section.right)
        blocks.append(Block(heading=heading, table=table, lines=notes))
        if sources:
            lines = tuple(f"  {entry.data['name']}: {entry.source}" for entry in rows)
            blocks.append(Block(heading="Sources", lines=lines))
    count = f"{len(found):,} row{'s' * (len(found) > 1)}"
    hint = "" if sources else " (--sources says where each was read)"
    return Document(title=f"{name}: {count}{hint}", blocks=tuple(blocks))


# --- models -----------------------------------------------------------------------------------------------------------


def _models() -> Iterable[Entry]:
    from kvbudget.facts.catalogue import MODELS  # noqa: PLC0415 - only this verb needs it

    return map(_model, MODELS)


def _model(row: CatalogueRow) -> Entry:
    """Return a row of the catalogue with the figures that follow from its config, KV of the whole model included."""
    from kvbudget.budgeting import budget  # noqa: PLC0415 - only this verb computes
    from kvbudget.deployment import Deployment  # noqa: PLC0415
    from kvbudget.errors import KvbudgetError  # noqa: PLC0415
    from kvbudget.explain import STAND_IN_GPU  # noqa: PLC0415
    from kvbudget.hub import load_model  # noqa: PLC0415

    data: dict[str, Any] = {"name": row.name, "hub": row.hub, "aliases": list(row.aliases), "read_on": row.read_on}
    words = (row.hub, *row.aliases)
    try:
        model = load_model(row.name)
        kv = budget(Deployment(model=model, gpu=STAND_IN_GPU)).kv
    except KvbudgetError as error:
        data |= {"reason": str(error)}
        cells = (row.name, "-", "-", "-", "-", "cannot tell")
        return Entry(section="models", cells=cells, data=data, source=row.source, words=words)
    active = model.active_parameters
    longest = model.max_position_embeddings
    data |= {
        "parameters": model.parameters,
        "active_parameters": active,
        "layers": len(model.layers),
        "bytes_per_token": kv.bytes_per_token,
        "fixed_bytes_per_request": kv.fixed_bytes_per_request,
        "max_position_embeddings": longest,
        "quantization": model.quantization.describes if model.quantization else None,
    }
    cells = (
        row.name,
        human_count(model.parameters),
        human_count(active) if active != model.parameters else "",
        _size(kv.bytes_per_token) if kv.bytes_per_token else "-",
        _size(kv.fixed_bytes_per_request) if kv.fixed_bytes_per_request else "",
        _length(longest) if longest else "-",
    )
    return Entry(section="models", cells=cells, data=data, source=row.source, words=words)


def _size(size: int) -> str:
    """Return bytes with three figures, which is what a column has room for; JSON has them all."""
    amount, unit = (size / MIB, "MiB") if size >= MIB else (size / KIB, "KiB")
    digits = 0 if amount >= 100 or amount == int(amount) else 1 if amount >= 10 else 2  # noqa: PLR2004 - three figures
    return f"{amount:,.{digits}f} {unit}"


def _length(tokens: int) -> str:
    """Return a length as vLLM reads it: 131,072 is 128K."""
    for size, unit in ((MIB, "M"), (KIB, "K")):
        if tokens % size == 0:
            return f"{tokens // size:,}{unit}"
    return f"{tokens:,}"


models = _verb(
    "models",
    (
        Section(
            name="models",
            heading="Models",
            header=("name", "params", "active", "KV/token", "+ fixed", "context"),
            right=frozenset({1, 2, 3, 4, 5}),
            note="KV of the whole model as vLLM keeps it by default: bytes of a token, and what a long request holds "
            "on top (windows, state). 128K is 131,072 tokens.",
        ),
    ),
    _models,
    "List the built-in catalogue: models that work offline by their short name.",
)


# --- GPUs -------------------------------------------------------------------------------------------------------------


def _gpus() -> Iterable[Entry]:
    from kvbudget.facts.gpus import GPUS  # noqa: PLC0415 - only this verb needs it

    return map(_gpu, GPUS)


def _gpu(gpu: Gpu) -> Entry:
    data = {
        "name": gpu.name,
        "aliases": list(gpu.aliases),
        "marketing": gpu.marketing,
        "memory_bytes": gpu.memory_bytes,
        "basis": gpu.basis.value,
        "engine_total_bytes": gpu.engine_total_bytes,
        "bandwidth_bytes_per_s": gpu.bandwidth_bytes_per_s,
        "bf16_flops": gpu.bf16_flops,
        "fp8_flops": gpu.fp8_flops,
        "compute_capability": gpu.compute_capability,
        "interconnect_bytes_per_s": gpu.interconnect_bytes_per_s,
        "unified": gpu.unified,
        "read_on": gpu.read_on,
    }
    cells = (
        gpu.name,
        gib(gpu.memory_bytes),
        gib(gpu.engine_total_bytes) if gpu.engine_total_bytes else "",
        gpu.basis.value,
        f"{gpu.bandwidth_bytes_per_s / _GB:,.0f}" if gpu.bandwidth_bytes_per_s else "",
        f"{gpu.bf16_flops / _TERA:,.0f}" if gpu.bf16_flops else "",
        gpu.compute_capability or "",
    )
    return Entry(section="gpus", cells=cells, data=data, source=gpu.source, words=gpu.aliases)


gpus = _verb(
    "gpus",
    (
        Section(
            name="gpus",
            heading="GPUs",
            header=("name", "GiB", "CUDA GiB", "basis", "GB/s", "TFLOP/s", "cc"),
            right=frozenset({1, 2, 4, 5, 6}),
            note="GiB: the total that the driver prints (assumed: the size on the box). CUDA GiB: the total that an "
            "engine is given. TFLOP/s: dense bf16. Other cards: --gpu-memory 93.1GiB.",
        ),
    ),
    _gpus,
    "List the accelerators that are known; a bare --gpu NAME takes any of their names.",
)


# --- formats ----------------------------------------------------------------------------------------------------------

_HEAD, _LATENT = 128, (512, 64)
"""The head and the latent that the tables show as examples."""


def _formats() -> Iterable[Entry]:
    from kvbudget.facts import formats as facts  # noqa: PLC0415 - only this verb needs it

    for kv in facts.KV_FORMATS.values():
        head = kv.head_bytes(_HEAD, _HEAD) if kv.per_head else None
        latent = kv.latent_row_bytes(*_LATENT) if kv.per_latent else None
        bits = 8 * head / (2 * _HEAD) if head else 8 * latent / sum(_LATENT) if latent else 0.0
        data = {"name": kv.name, "bits": bits, "head_bytes": head, "latent_bytes": latent}
        cells = (kv.name, f"{bits:.4g}", f"{head:,}" if head else "-", f"{latent:,}" if latent else "-")
        yield Entry(section="kv_cache_dtype", cells=cells, data=data, source=kv.source)
    for weight in facts.WEIGHT_FORMATS:
        data = {**weight._asdict(), "name": f"{weight.family} {weight.name}"}
        source = f"{weight.formula}. Stays as it is: {weight.keeps}. {weight.source}"
        yield Entry(section="weights", cells=(weight.family, weight.name, weight.bits), data=data, source=source)
    for section, rows in (("dtype", facts.DTYPES), ("gguf", facts.GGML_TYPES)):
        for row in rows.values():
            data = {"name": row.name, "bits": row.bits, "values": row.block_elems, "block_bytes": row.block_bytes}
            cells = (row.name, f"{row.bits:.6g}", f"{row.block_elems:,}", f"{row.block_bytes:,}")
            yield Entry(section=section, cells=cells, data=data, source=row.source)


formats = _verb(
    "formats",
    (
        Section(
            name="kv_cache_dtype",
            heading="KV cache, --kv-cache-dtype",
            header=("name", "bits a value", "B of K+V, head of 128", "B of a latent 512+64"),
            right=frozenset({1, 2, 3}),
            note="Scales included. auto is the model's own type, or what the checkpoint asks for.",
        ),
        Section(
            name="weights",
            heading="Quantized weights",
            header=("family", "variant", "bits a value"),
            note="in, out: features of the matrix. --sources says what the bits are made of and what stays as it is.",
        ),
        Section(
            name="dtype",
            heading="Data types",
            header=("name", "bits", "values", "bytes"),
            right=frozenset({1, 2, 3}),
        ),
        Section(
            name="gguf",
            heading="GGUF tensor types",
            header=("name", "bits", "values a block", "bytes a block"),
            right=frozenset({1, 2, 3}),
        ),
    ),
    _formats,
    "List data types and quantization formats: what a value takes, scales included.",
)


# --- engines ----------------------------------------------------------------------------------------------------------


def _engines() -> Iterable[Entry]:
    from kvbudget.facts import flags, vllm  # noqa: PLC0415 - only this verb needs them

    known = [_dotted(version) for version in vllm.KNOWN]
    cells = ("vllm", f"{known[0]} to {known[-1]}", f"{', '.join(known)}; others follow the nearest earlier one")
    data: dict[str, Any] = {"name": "vllm", "versions": known}
    yield Entry(section="engines", cells=cells, data=data, source="the Python of the released wheels")
    for rule in flags.RULES:
        for since, value in rule.rows:
            text = _dotted(since) if any(since) else "always"
            data = {"name": rule.name, "since": text, "value": value}
            yield Entry(section="rules", cells=(text, rule.name, value), data=data, source=rule.source, words=("vllm",))


def _dotted(version: Sequence[int]) -> str:
    return ".".join(map(str, version))


engines = _verb(
    "engines",
    (
        Section(name="engines", heading="Engines", header=("name", "versions", "read")),
        Section(
            name="rules",
            heading="Rules and defaults of vLLM that changed, by version",
            header=("since", "rule", "value"),
            note="A flag by flag account: `kvbudget explain flag NAME`.",
        ),
    ),
    _engines,
    "List the engines that are known, with the versions whose rules were read and what changed.",
)
