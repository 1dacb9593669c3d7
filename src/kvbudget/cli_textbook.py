"""The commands `kv` and `lab`: the textbook formula and its worked exercise.

Each has its twin in Python: `kvbudget.textbook` and `kvbudget.lab`. Errors are raised as `KvbudgetError`; the
main group turns them into messages and exit codes.
"""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import click

from kvbudget import textbook
from kvbudget.errors import InputError
from kvbudget.units import GIB, SMALLEST_CARD, gib, human_bytes, parse_bytes, parse_count, parse_tokens

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_WIDTH = 80
_DEFAULT_DTYPE = "fp16"
_DEFAULT_WEIGHT_BITS = "16"
_WIDEST_VALUE = 4  # bytes; nothing wider is stored in a KV cache
_SCALED_HEAD_DIM, _SCALE_BYTES = 128, 4  # the example of a scale: vLLM 0.32's *_per_token_head formats
_EXACT = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?|\.[0-9]{1,9}|[0-9]{1,6}/[1-9][0-9]{0,5}")
_THOUSANDS = re.compile(r"\s*[0-9]{1,3}(,[0-9]{3})+\s*")
_GB = re.compile(r".*[kmgt]b\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What was asked, parsed."""

    layers: int
    shape: textbook.KvShape
    dtype: str | None
    dtype_bytes: Fraction
    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    card: textbook.Card | None
    as_table: bool
    remarks: tuple[str, ...]
    assumptions: tuple[str, ...]

    @property
    def cells(self) -> tuple[textbook.Cell, ...]:
        return textbook.kv_table(
            self.layers, self.shape.width, self.dtype_bytes, contexts=self.contexts, batches=self.batches
        )

    @property
    def factors(self) -> tuple[textbook.Factor, ...]:
        """The formula for the first context and batch."""
        return textbook.kv_factors(
            self.shape,
            layers=self.layers,
            seq=self.contexts[0],
            batch=self.batches[0],
            dtype_bytes=self.dtype_bytes,
        )

    @property
    def savings(self) -> tuple[textbook.Saving, ...]:
        """What sharing and a small dtype save, for the first context and batch."""
        return textbook.kv_savings(
            self.shape,
            layers=self.layers,
            seq=self.contexts[0],
            batch=self.batches[0],
            dtype_bytes=self.dtype_bytes,
        )

    @property
    def bytes_per_token(self) -> int:
        return textbook.kv_bytes(self.layers, self.shape.width, 1, 1, self.dtype_bytes)

    def room(self, context: int, block_size: int = 1) -> textbook.Room | None:
        """Return how many requests of `context` tokens fit, None when no card was given."""
        if self.card is None:
            return None
        return textbook.room(self.card, bytes_per_token=self.bytes_per_token, context=context, block_size=block_size)

    @property
    def fits(self) -> bool:
        """Whether the batch fits; a table asks about no batch in particular."""
        room = None if self.as_table else self.room(self.contexts[0])
        return room is None or room.requests >= self.batches[0]


@click.command("kv")
@click.option("--layers", type=int, required=True, metavar="N", help="Layers of the model.")
@click.option("--hidden-size", type=int, metavar="N", help="Hidden size: query heads x head dim.")
@click.option(
    "--kv-groups",
    type=int,
    metavar="N",
    help="Query heads that share one KV head: the divisor, not the number of KV heads.  [default: 1]",
)
@click.option("--num-key-value-heads", type=int, metavar="N", help="KV heads; needs --head-dim.")
@click.option("--head-dim", type=int, metavar="N", help="Values in one head.")
@click.option("--seq-len", metavar="TOKENS[,...]", help="Tokens in a request: 32768, 32k (= 32,000) or 32K (= 32,768).")
@click.option("--batch", metavar="N[,...]", help="Requests at the same time.  [default: 1]")
@click.option(
    "--dtype",
    metavar="NAME",
    help="Type of a stored value: fp16, bf16, fp8, int8, int4, fp32.  [default: fp16]",
)
@click.option("--dtype-bytes", metavar="N", help="The same in bytes: 2, 1, 0.5; with scales a fraction more.")
@click.option("--table", "as_table", is_flag=True, help="A table: 4K, 32K, 128K by batch 1, 8, where not given.")
@click.option("--gpu-memory", metavar="BYTES", help="How many requests fit a card of 80GB, 79.19GiB, 24g.")
@click.option("--weights", metavar="BYTES", help="With --gpu-memory: what the weights take.")
@click.option("--parameters", metavar="N", help="The same from a parameter count: 7B, 350M.")
@click.option("--weight-bits", metavar="N", help="With --parameters: bits of one weight.  [default: 16]")
@click.option(
    "--overhead",
    metavar="BYTES",
    help="With --gpu-memory: activations and slack.  [default: 10 % of the card]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--md", "as_md", is_flag=True, help="Print Markdown.")
@click.pass_context
def kv(
    ctx: click.Context,
    *,
    layers: int,
    hidden_size: int | None,
    kv_groups: int | None,
    num_key_value_heads: int | None,
    head_dim: int | None,
    seq_len: str | None,
    batch: str | None,
    dtype: str | None,
    dtype_bytes: str | None,
    as_table: bool,
    gpu_memory: str | None,
    weights: str | None,
    parameters: str | None,
    weight_bits: str | None,
    overhead: str | None,
    as_json: bool,
    as_csv: bool,
    as_md: bool,
) -> None:
    """Size a KV cache by hand: the textbook formula, from bare numbers.

    \b
    bytes = 2 x layers x hidden / KV groups x tokens x batch x bytes per value

    Say the width as --hidden-size and --kv-groups, or as --num-key-value-heads
    and --head-dim; both give the same number. Several values separated by commas
    in --seq-len or --batch give a table. With --gpu-memory it also says how many
    requests fit, and exits with 1 when the batch does not.

    \b
    kvbudget kv --layers 32 --hidden-size 4096 --seq-len 4K
    kvbudget kv --layers 32 --num-key-value-heads 8 --head-dim 128 --seq-len 8K \\
        --gpu-memory 24GiB --weights 16GiB --overhead 2GiB
    kvbudget kv --layers 32 --hidden-size 4096 --table
    """  # noqa: D301 - click reads the backspace characters
    write = _writer(as_json=as_json, as_csv=as_csv, as_md=as_md)
    remarks: list[str] = []
    assumptions: list[str] = []
    shape = textbook.kv_shape(
        hidden_size=hidden_size,
        kv_groups=kv_groups,
        num_key_value_heads=num_key_value_heads,
        head_dim=head_dim,
    )
    if kv_groups is None and num_key_value_heads is None:
        assumptions.append("each query head has its own KV head (--kv-groups)")
    name, value_bytes = _dtype(dtype, dtype_bytes, remarks, assumptions)
    contexts = _tokens(seq_len, remarks) if seq_len else textbook.TABLE_CONTEXTS if as_table else ()
    if not contexts:
        raise InputError("--seq-len is missing; give the tokens of one request, or --table for the usual ones.")
    default_batches = textbook.TABLE_BATCHES if as_table else (1,)
    batches = _numbers(batch, "--batch") if batch else default_batches
    question = _Question(
        layers=layers,
        shape=shape,
        dtype=name,
        dtype_bytes=value_bytes,
        contexts=contexts,
        batches=batches,
        card=_card(
            gpu_memory=gpu_memory,
            weights=weights,
            parameters=parameters,
            weight_bits=weight_bits,
            overhead=overhead,
            remarks=remarks,
            assumptions=assumptions,
        ),
        as_table=as_table or len(contexts) * len(batches) > 1,
        remarks=tuple(remarks),
        assumptions=tuple(assumptions),
    )
    click.echo(write(question), nl=False)
    ctx.exit(0 if question.fits else 1)


@click.command("lab")
@click.argument("directory", metavar="DIR", type=click.Path())
@click.option("--force", is_flag=True, help="Replace files that have other content.")
def lab(*, directory: str, force: bool) -> None:
    """Write the worked exercise into the folder DIR, made if missing.

    \b
    kv.py         the formula as a function, importable on its own
    base.txt      7B, 4,096 tokens, fp16
    long.txt      the same at 131,072 tokens
    gqa.txt       and eight query heads to one KV head
    int8.txt      and one byte in a value
    fit.txt       how many requests of 32,768 tokens an 80 GiB card holds
    kv_table.csv  4K, 32K, 128K by batch 1 and 8
    """  # noqa: D301 - click reads the backspace characters
    from kvbudget.lab import write_lab  # noqa: PLC0415 - `kv` does not need it

    for path in write_lab(directory, overwrite=force):
        text = path.read_text(encoding="utf-8")
        shown = text.rstrip("\n") if text.count("\n") == 1 else f"({text.count(chr(10))} lines)"
        click.echo(textwrap.fill(f"{path.name:<13} {shown}", _WIDTH, subsequent_indent=" " * 14))


def _writer(*, as_json: bool, as_csv: bool, as_md: bool) -> Callable[[_Question], str]:
    chosen = [write for asked, write in ((as_json, _json), (as_csv, _csv), (as_md, _markdown)) if asked]
    if len(chosen) > 1:
        raise InputError("--json, --csv and --md exclude each other; give one of them.")
    return chosen[0] if chosen else _text


def _dtype(
    name: str | None, size: str | None, remarks: list[str], assumptions: list[str]
) -> tuple[str | None, Fraction]:
    """Return the dtype's name, None if only its size was given, and the bytes of one value."""
    if name is None and size is not None:
        value_bytes = _exact(size, "--dtype-bytes")
        if value_bytes > _WIDEST_VALUE:
            remarks.append(f"{size} bytes is wide for a value; {size} bits are {_number(value_bytes / 8)}.")
        return None, value_bytes
    if name is None:
        assumptions.append(f"values are {_DEFAULT_DTYPE} (--dtype)")
    named = textbook.dtype_bytes(name or _DEFAULT_DTYPE)
    if size is not None and _exact(size, "--dtype-bytes") != named:
        raise InputError(f"--dtype {name} is {_number(named)} bytes, --dtype-bytes says {size}; give one of them.")
    return name or _DEFAULT_DTYPE, named


def _card(
    *,
    gpu_memory: str | None,
    weights: str | None,
    parameters: str | None,
    weight_bits: str | None,
    overhead: str | None,
    remarks: list[str],
    assumptions: list[str],
) -> textbook.Card | None:
    if gpu_memory is None:
        for flag, value in (
            ("--weights", weights),
            ("--parameters", parameters),
            ("--weight-bits", weight_bits),
            ("--overhead", overhead),
        ):
            if value is not None:
                raise InputError(f"{flag} {value} has no card to go into; give --gpu-memory too.")
        return None
    if (weights is None) == (parameters is None):
        raise InputError("--gpu-memory needs the weights, said once; give --weights, or --parameters.")
    if weights is not None and weight_bits is not None:
        raise InputError(f"--weight-bits {weight_bits} has nothing to count; give --parameters for --weights.")
    memory_bytes = _bytes(gpu_memory, "--gpu-memory", remarks, SMALLEST_CARD)
    if parameters is None:
        weights_bytes = _bytes(weights or "", "--weights", remarks)
    else:
        if weight_bits is None:
            assumptions.append(f"a weight has {_DEFAULT_WEIGHT_BITS} bits (--weight-bits)")
        bits = _exact(weight_bits or _DEFAULT_WEIGHT_BITS, "--weight-bits")
        weights_bytes = textbook.weight_bytes(parse_count(parameters, what="--parameters"), bits)
    if overhead is None:
        overhead_bytes = textbook.slack_bytes(memory_bytes)
        percent = textbook.SLACK_PERCENT[-1]
        assumptions.append(f"{percent} % of the card goes to activations and fragmentation (--overhead)")
    else:
        overhead_bytes = _bytes(overhead, "--overhead", remarks)
    return textbook.Card(memory_bytes=memory_bytes, weights_bytes=weights_bytes, overhead_bytes=overhead_bytes)


def _bytes(text: str, flag: str, remarks: list[str], least: int = 0) -> int:
    """Return the bytes of an option; remark on a decimal unit, which is often meant to be a binary one."""
    size = parse_bytes(text, what=flag, least=least)
    if _GB.fullmatch(text) and size >= GIB // 2:
        binary = text.strip()[:-1] + "iB"
        remarks.append(f"{flag} {text.strip()} is {gib(size)} GiB; write {binary} if GiB is meant.")
    return size


def _tokens(text: str, remarks: list[str]) -> tuple[int, ...]:
    for part in text.split(","):
        if part.strip().endswith("k"):
            tokens, binary = parse_tokens(part, what="--seq-len"), part.strip()[:-1] + "K"
            meant = parse_tokens(binary, what="--seq-len")
            remarks.append(f"{part.strip()} is {tokens:,} tokens; write {binary} if {meant:,} is meant.")
    return _numbers(text, "--seq-len")


def _numbers(text: str, flag: str) -> tuple[int, ...]:
    """Return the numbers of a comma-separated list; refuse what may be one number with separators."""
    if _THOUSANDS.fullmatch(text):
        one = text.replace(",", "").strip()
        raise InputError(f"{flag} {text!r} may be one number or several; write {one}, or a space after each comma.")
    return tuple(parse_tokens(part, what=flag) for part in text.split(","))


def _exact(text: str, flag: str) -> Fraction:
    """Return a positive decimal such as 0.5, or a fraction such as 25/24, as it is written."""
    if not _EXACT.fullmatch(text.strip()) or not Fraction(text.strip()):
        raise InputError(f"{flag} {text!r} is not a positive number; write for example 2, 1 or 0.5.")
    return Fraction(text.strip())


# -- what is said beside the number


def _notes(question: _Question) -> list[str]:
    """Return the remarks on this input and those contradictions of by-hand figures that it meets."""
    shape, notes = question.shape, list(question.remarks)
    says = {key: note.holds for key, note in textbook.CONTRADICTIONS.items()}
    if shape.kv_groups != 1:
        notes.append(says["heads"])
    if any("GiB is meant" in remark for remark in question.remarks):
        notes.append(says["units"])
    if len(question.savings) > 2:  # noqa: PLR2004 - a start and more than one saving
        notes.append(says["factors"])
    exceptions = [*_scale_note(question), *_block_note(question)]
    if exceptions:
        notes.extend((says["exceptions"], *exceptions))
    return notes


def _scale_note(question: _Question) -> Iterable[str]:
    bits = question.dtype_bytes * 8
    if bits <= 8 and question.dtype is not None:  # noqa: PLR2004 - the widest quantized value
        head_dim = question.shape.head_dim or _SCALED_HEAD_DIM
        scaled = textbook.scaled_dtype_bytes(bits, head_dim, _SCALE_BYTES)
        yield (
            f"Write --dtype-bytes {_number(scaled)} if a scale of {_SCALE_BYTES} bytes is kept"
            f" for each head of {head_dim} values."
        )


def _block_note(question: _Question) -> Iterable[str]:
    block = textbook.BLOCK_SIZE
    for context in question.contexts:
        by_hand, paged = question.room(context), question.room(context, block)
        if by_hand and paged and by_hand.requests and paged.request_tokens != context:
            yield (
                f"In blocks of {block} tokens a request of {context:,} holds {paged.request_tokens:,}:"
                f" {_requests(paged.requests)} at once rather than {by_hand.requests:,}."
            )


# -- text and Markdown, from the same sections


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """Rows of equal length with a header, which Markdown needs and text may leave out."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: Sequence[int] = ()
    with_header: bool = False


def _text(question: _Question) -> str:
    lines = _title(question)
    for section in _sections(question):
        rows = [section.header, *section.rows] if section.with_header else section.rows
        lines += ["", *_columns(rows, section.right)]
    tail = _tail(question)
    lines += [""] if tail else []
    for line in tail:
        lines += textwrap.wrap(line, _WIDTH, subsequent_indent="  ")
    return "\n".join(lines) + "\n"


def _markdown(question: _Question) -> str:
    first, *others = _title(question)
    parts = ["  \n".join([f"**{first}**", *others])]
    parts += [_md_table(section.header, *section.rows) for section in _sections(question)]
    tail = _tail(question)
    parts += ["\n".join(f"- {line}" for line in tail)] if tail else []
    return "\n\n".join(parts) + "\n"


def _title(question: _Question) -> list[str]:
    """Return the answer in a line, and below it whether the batch fits."""
    if question.as_table:
        return [f"KV cache in GiB (bytes = {_formula(question)})"]
    (cell,) = question.cells
    title = [f"KV cache: {_size(cell.kv_bytes)} ({cell.kv_bytes:,} bytes)"]
    room = question.room(cell.context)
    if question.card and question.card.short_bytes:
        title.append(f"DOES NOT FIT: weights and overhead exceed the card by {_size(question.card.short_bytes)}")
    elif room is not None:
        word = "FITS" if question.fits else "DOES NOT FIT"
        asked = f"{cell.batch:,} asked"
        title.append(f"{word}: {_requests(room.requests)} of {cell.context:,} tokens at once, {asked}")
    return title


def _tail(question: _Question) -> list[str]:
    notes = [f"note: {note}" for note in _notes(question)]
    return [*notes, *(f"assumed: {assumption}" for assumption in question.assumptions)]


def _sections(question: _Question) -> list[_Section]:
    sections = [_grid(question) if question.as_table else _factors(question), _heads(question)]
    if len(question.savings) > 1 and not question.as_table:
        sections.append(_saved(question.savings))
    if question.card is not None:
        sections.append(_left_for_kv(question, question.card))
    return sections


def _factors(question: _Question) -> _Section:
    rows = [(f"{factor.sign or ' '} {_number(factor.value)}", factor.meaning) for factor in question.factors]
    if question.dtype is not None:
        value, meaning = rows[-1]
        rows[-1] = (value, f"{meaning} ({question.dtype})")
    return _Section(header=("factor", "meaning"), rows=rows)


def _formula(question: _Question) -> str:
    """Return the formula in one line, context and batch left open."""
    *fixed, _context, _batch, value_bytes = (value.strip() for value, _ in _factors(question).rows)
    times = textbook.TIMES
    return " ".join([*fixed, f"{times} context {times} batch", value_bytes])


def _heads(question: _Question) -> _Section:
    """Return what is known of the heads: the number of KV heads and the divisor always apart."""
    shape = question.shape
    heads, groups, of = shape.num_key_value_heads, shape.kv_groups, shape.num_attention_heads
    sharing = "1, no sharing" if groups == 1 else f"{groups}, the query heads that share one KV head"
    rows = [
        ("per token", human_bytes(question.bytes_per_token)),
        (
            "KV heads",
            "not said (--head-dim tells)"
            if heads is None
            else f"{heads:,}" + (f", of {of:,} query heads" if of else ""),
        ),
        ("divisor", "not said (--hidden-size tells)" if groups is None else sharing),
    ]
    return _Section(header=("figure", "value"), rows=rows)


def _saved(savings: Sequence[textbook.Saving]) -> _Section:
    """Return what each factor saves, from 16 bits without sharing on."""
    start, *steps = savings
    rows = [("saved from", _size(start.size_bytes), f"{start.name}, {start.reason}")]
    rows += [(f"{textbook.OVER} {_number(1 / step.factor)}", _size(step.size_bytes), step.reason) for step in steps]
    return _Section(header=("saved", "size", "because"), rows=rows, right=(1,))


def _left_for_kv(question: _Question, card: textbook.Card) -> _Section:
    """Return the subtraction that leaves the share for KV, and the division by one request."""
    room = textbook.room(card, bytes_per_token=question.bytes_per_token, context=question.contexts[0])
    rows = [
        ("GPU memory", _size(card.memory_bytes), ""),
        ("- weights", _size(card.weights_bytes), ""),
        ("- overhead", _size(card.overhead_bytes), ""),
    ]
    if card.short_bytes:
        rows.append(("= short by", _size(card.short_bytes), "nothing is left for KV"))
    else:
        rows.append(("= left for KV", _size(card.kv_share_bytes), f"{room.tokens:,} tokens"))
    if not question.as_table:
        one = (f"{textbook.OVER} a request", _size(room.request_bytes), f"{room.request_tokens:,} tokens")
        rows += [one, ("= at once", f"{room.requests:,}", "requests, the ceiling of max_num_seqs")]
    return _Section(header=("card", "size", ""), rows=rows, right=(1,))


def _grid(question: _Question) -> _Section:
    """Return the table of contexts by batches."""
    sizes = {(cell.context, cell.batch): gib(cell.kv_bytes) for cell in question.cells}
    header = ["context", *(f"batch {batch:,}" for batch in question.batches)]
    if question.card is not None:
        header.append("requests that fit")
    rows = []
    for context in question.contexts:
        room = question.room(context)
        fitting = [f"{room.requests:,}"] if room else []
        rows.append((f"{context:,}", *(sizes[context, batch] for batch in question.batches), *fitting))
    return _Section(header=tuple(header), rows=rows, right=range(len(header)), with_header=True)


def _columns(rows: Sequence[Sequence[str]], right: Sequence[int]) -> list[str]:
    """Return rows as lines with aligned columns; those in `right` are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in right else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _md_table(header: Sequence[str], *rows: Sequence[str]) -> str:
    rule = ["---"] * len(header)
    return "\n".join("| " + " | ".join(cell.strip() for cell in row) + " |" for row in (header, rule, *rows))


def _size(size: int) -> str:
    """Return GiB, or a smaller unit where two decimals of GiB would hide the figure."""
    return f"{gib(size)} GiB" if size >= GIB // 100 else human_bytes(size)


def _requests(count: int) -> str:
    return f"{count:,} request" if count == 1 else f"{count:,} requests"


def _number(value: int | Fraction) -> str:
    """Return a whole number with separators, else a short decimal if it is exact, else a fraction."""
    if value == int(value):
        return f"{int(value):,}"
    decimal = f"{float(value):.9g}"
    return decimal if Fraction(decimal) == value else str(value)


# -- JSON and CSV


def _json(question: _Question) -> str:
    shape = question.shape
    cells = [_json_cell(question, cell) for cell in question.cells]
    answer: dict[str, Any] = {
        "schema": 1,
        **({"table": cells} if question.as_table else cells[0]),
        "layers": question.layers,
        "hidden_size": shape.hidden_size,
        "kv_groups": shape.kv_groups,
        "num_key_value_heads": shape.num_key_value_heads,
        "head_dim": shape.head_dim,
        "dtype": question.dtype,
        "dtype_bytes": _plain(question.dtype_bytes),
        "bytes_per_token": question.bytes_per_token,
    }
    if not question.as_table:
        answer["factors"] = [
            {"sign": factor.sign, "value": _plain(factor.value), "meaning": factor.meaning}
            for factor in question.factors
        ]
        answer["savings"] = [
            {"name": step.name, "divisor": _plain(1 / step.factor), "bytes": step.size_bytes}
            for step in question.savings
        ]
    card = question.card
    if card is not None:
        answer["gpu"] = {
            "memory_bytes": card.memory_bytes,
            "weights_bytes": card.weights_bytes,
            "overhead_bytes": card.overhead_bytes,
            "kv_share_bytes": card.kv_share_bytes,
            "short_bytes": card.short_bytes,
        }
    answer["notes"] = _notes(question)
    answer["assumptions"] = list(question.assumptions)
    return json.dumps(answer, indent=2, ensure_ascii=False) + "\n"


def _json_cell(question: _Question, cell: textbook.Cell) -> dict[str, Any]:
    room = question.room(cell.context)
    answer: dict[str, Any] = {
        "context": cell.context,
        "batch": cell.batch,
        "bytes": cell.kv_bytes,
        "gib": cell.kv_bytes / GIB,
    }
    if room is not None:
        answer["max_concurrent_requests"] = room.requests
        answer["verdict"] = "fits" if room.requests >= cell.batch else "does_not_fit"
    return answer


def _plain(value: int | Fraction) -> int | float:
    return int(value) if value == int(value) else float(value)


def _csv(question: _Question) -> str:
    """Return a row for each context and batch; the bytes too where there is but one."""
    header = ["context", "batch", *([] if question.as_table else ["bytes"]), "gib"]
    if question.card is not None:
        header.append("max_concurrent_requests")
    lines = [",".join(header)]
    for cell in question.cells:
        answer = _json_cell(question, cell) | {"gib": f"{cell.kv_bytes / GIB:.2f}"}
        lines.append(",".join(str(answer[name]) for name in header))
    return "\n".join(lines) + "\n"
