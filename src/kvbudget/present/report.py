"""What a person reads of a budget, as a document: the words and the tables, whatever face they get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.basis import Basis
from kvbudget.budgeting import DOES_NOT_FIT, FITS, LOADED, TIGHT
from kvbudget.facts.speculation import MTP
from kvbudget.present.document import Block, Document, Table
from kvbudget.units import KIB, gib, human_bytes, human_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.budgeting import Budget, Line, Rank
    from kvbudget.model import Model
    from kvbudget.suggestions import Change

VERDICTS = {FITS: "FITS", TIGHT: "FITS, TIGHT", DOES_NOT_FIT: "DOES NOT FIT"}
MAY_NOT_FIT = "TIGHT, MAY NOT FIT"
"""Inside the error bar, on the wrong side of the best estimate."""

ENGINES = {"vllm": "vLLM"}

NAMES = {
    "cuda_graphs": "CUDA graphs",
    "non_torch": "non-torch",
    "kv_cache": "KV cache",
    "outside_budget": "outside",
    "lora": "LoRA slots",
}
"""Lines whose name on screen is not their own."""

CARD_SOURCES = {
    Basis.MEASURED: "what the driver reports",
    Basis.ASSUMED: "the size on the box",
    Basis.GIVEN: "--gpu-memory",
}

FIXED = {"sliding": "windows", "chunked": "chunks", "state": "state", "cross": "encoder output"}
"""Kinds of layers that keep a fixed part of a long request, and the word for it."""

LONGEST_NAME = 60

TIMES = "×"


def budget_document(b: Budget, changes: Sequence[Change]) -> Document:
    """Return the whole report; `changes` are the smallest that make it fit."""
    return Document(
        title=title(b),
        lead=(f"{b.reason}.", f"{_name(b.deployment.model)}: {model_words(b.deployment.model, drafts=_drafts(b))}"),
        blocks=tuple(
            block
            for block in (
                _memory(b),
                _stages(b),
                _cache(b),
                _layer_kinds(b),
                Block(heading="Warnings", lines=b.warnings) if b.warnings else None,
                _changes(b, changes),
                _settings(b),
            )
            if block is not None
        ),
    )


def verdict_words(b: Budget) -> str:
    """Return the verdict as a reader takes it: inside the error bar, the best estimate decides on the word."""
    return MAY_NOT_FIT if b.verdict == TIGHT and _falls_short(b) else VERDICTS[b.verdict]


def _falls_short(b: Budget) -> bool:
    room = min(b.smallest.pool_bytes, b.smallest.pool_bytes + b.smallest.room_bytes[1])
    return room < b.kv.needed_for_one_request_bytes or b.smallest.budget_bytes > b.smallest.free_at_start[1]


def title(b: Budget) -> str:
    """Return the verdict with what it is about, in one line."""
    d = b.deployment
    engine = ENGINES.get(d.engine, d.engine)
    spare = f" of {d.num_gpus}" if d.num_gpus is not None and d.num_gpus > d.gpu_count else ""
    card = f"GPU of {gib(d.card.memory_bytes)} GiB" if d.card.name == "given" else d.card.name
    return f"{verdict_words(b)}   {d.gpu_count}{spare} {TIMES} {card}, {engine} {d.engine_version}"


def _name(model: Model) -> str:
    """Return a model's name; of a long path its end."""
    return model.name if len(model.name) <= LONGEST_NAME else f"…{model.name[1 - LONGEST_NAME :]}"


def _drafts(b: Budget) -> bool:
    """Whether the model's own MTP layers draft."""
    draft = b.settings.draft
    return draft is not None and draft.method == MTP


def model_words(model: Model, *, drafts: bool = False) -> str:
    """Return the size of a model; experts are all resident, whatever a token uses, and MTP layers stand apart."""
    words = f"{human_count(model.parameters)} parameters"
    active = model.active_parameters
    if active < model.parameters:
        words += (
            f", all resident; a token uses {human_count(active)} "
            f"({model.num_experts_per_tok} of {model.num_experts} experts)"
        )
    if model.mtp_parameters:
        loaded = "loaded as the draft" if drafts else "not loaded without --speculative-config"
        words += f"; {human_count(model.mtp_parameters)} of MTP layers apart, {loaded}"
    recipe = model.quantization
    if recipe is not None and recipe.origin != "checkpoint":
        words += f"; what if: {recipe.asked}" if recipe.origin == "imagined" else f"; loaded as {recipe.asked}"
    return words


def gpu_words(b: Budget, rank: Rank) -> str:
    """Return which GPU a rank is."""
    d = b.deployment
    alike = d.gpu_count // len(b.ranks)
    if len(b.ranks) == 1:
        return f"Each of the {alike} GPUs" if alike > 1 else f"GPU {rank.rank}"
    return (
        f"{f'Each of the {alike} GPUs' if alike > 1 else 'The GPU'} of stage {rank.rank}, the fullest of {len(b.ranks)}"
    )


def budget_words(b: Budget, rank: Rank) -> str:
    """Return the memory of a GPU and what of it the engine may use."""
    d = b.deployment
    total = f"{gib(d.card.memory_bytes)} GiB"
    if rank.given_pool:
        return f"{total}, KV cache given"
    return f"{total}, budget {gib(rank.budget_bytes)}"


def _share_words(b: Budget) -> str:
    """Return the fraction and of what: CUDA shows an engine a little less than the driver has."""
    card, fraction = b.deployment.card, f"{b.settings.gpu_memory_utilization:g}"
    seen = card.engine_total_bytes
    return f"{fraction} of it" if seen is None else f"{fraction} of the {gib(seen)} that CUDA shows"


# -- the memory of one GPU


def _memory(b: Budget) -> Block:
    rank = b.smallest
    inside, outside = split_lines(rank)
    rows = [_line_row(line) for line in inside]
    if rank.given_pool is None:
        rows.append(_sum_row("= budget", inside, _share_words(b)))
    rows += [_line_row(line) for line in outside]
    card = b.deployment.card
    rows.append(
        ("= GPU", gib(_needs([*inside, *outside])), gib(card.memory_bytes), card.basis.value, CARD_SOURCES[card.basis])
    )
    header = ("GiB", "needs", "will take", "basis", "source")
    return Block(table=Table(header=header, rows=tuple(rows), right=frozenset({1, 2}), total=True))


def split_lines(rank: Rank) -> tuple[list[Line], list[Line]]:
    """Return the lines inside the budget and those outside; the KV cache is the last that the engine takes inside."""
    end = next(i for i, line in enumerate(rank.lines) if line.name == "kv_cache") + 1
    return list(rank.lines[:end]), list(rank.lines[end:])


def _line_row(line: Line) -> tuple[str, ...]:
    source = _short_source(line.source)
    if line.low_bytes < line.high_bytes:
        source = f"{gib(line.low_bytes)}–{gib(line.high_bytes)}; {source}"
    name = NAMES.get(line.name, line.name.replace("_", " "))
    return name, gib(line.needs_bytes), gib(line.takes_bytes), line.basis.value, source


def _sum_row(name: str, lines: Sequence[Line], source: str) -> tuple[str, ...]:
    return name, gib(_needs(lines)), gib(sum(line.takes_bytes for line in lines)), "", source


def _needs(lines: Sequence[Line]) -> int:
    return sum(line.needs_bytes for line in lines)


def _short_source(source: str) -> str:
    """Return a source without what stands in brackets; JSON and CSV have all of it."""
    return source.partition(" (")[0]


def _stages(b: Budget) -> Block | None:
    """Return what differs between pipeline stages."""
    if len(b.ranks) == 1:
        return None
    rows = []
    for rank in b.ranks:
        needs = {line.name: line.needs_bytes for line in rank.lines}
        left = gib(max(0, rank.available_bytes))
        rows.append((str(rank.rank), gib(sum(needs.get(name, 0) for name in LOADED)), gib(needs["activations"]), left))
    loaded = "weights" if b.ranks[-1].fixed.draft is None and b.settings.slots is None else "loaded"
    header = ("stage", loaded, "activations", "left for KV, GiB")
    return Block(table=Table(header=header, rows=tuple(rows), right=frozenset(range(4))))


# -- the KV cache


def _cache(b: Budget) -> Block:
    d, s, kv = b.deployment, b.settings, b.kv
    stages = ", on the stage where it is most" if len(b.ranks) > 1 else ""
    rows = [
        ("a token", _token_words(kv.bytes_per_token) + stages),
        ("a request of n", _growth_words(b) + stages),
        (
            f"one of {s.max_model_len:,}",
            f"{gib(kv.needed_for_one_request_bytes)} GiB in {b.plan.blocks_per_request:,} blocks",
        ),
        ("the pool", f"{kv.num_gpu_blocks:,} blocks of {_block_words(b)}, {human_bytes(kv.bytes_per_block)} each"),
        *_log_rows(b),
        ("at once", _at_once(b)),
        ("longest that fits", _longest(b)),
    ]
    heading = "KV cache on each GPU" if d.gpu_count > 1 else "KV cache"
    return Block(heading=heading, table=Table(header=("KV cache", ""), rows=tuple(rows), bare=True))


def _token_words(size: int) -> str:
    if not size:
        return "0 B: no layer grows with the request"
    return f"{size:,} B ({human_bytes(size)})" if size >= KIB else f"{size} B"


def _block_words(b: Budget) -> str:
    sizes = sorted({group.block_size for group in b.plan.groups if group.kind != "state"}) or [b.kv.block_size]
    return f"{sizes[0]:,} tokens" if len(sizes) == 1 else f"{sizes[0]:,} to {sizes[-1]:,} tokens"


def _growth_words(b: Budget) -> str:
    """Return what a request of n tokens holds: a fixed part and a slope."""
    fixed, slope = b.kv.fixed_bytes_per_request, b.kv.bytes_per_token
    if not slope:
        return f"{human_bytes(fixed)}{_fixed_words(b)}, however long"
    grows = f"{human_bytes(slope)} {TIMES} n"
    return f"{human_bytes(fixed)}{_fixed_words(b)} + {grows}" if fixed else grows


def _fixed_words(b: Budget) -> str:
    """Return what the fixed part is."""
    kinds = {group.kind for group in b.plan.groups}
    parts = [words for kind, words in FIXED.items() if kind in kinds]
    return f" of {' and '.join(dict.fromkeys(parts))}" if parts else ""


def _log_rows(b: Budget) -> list[tuple[str, str]]:
    """Return what the engine will print at start-up, with what it means."""
    kv, length = b.kv, f"{b.settings.max_model_len:,}"
    if b.verdict == DOES_NOT_FIT or _falls_short(b):
        stops = "stops" if b.verdict == DOES_NOT_FIT else "may stop"
        return [("in the log", f"the engine {stops} at start-up: {_failure(b)}")]
    return [
        ("in the log", f'"GPU KV cache size: {kv.kv_cache_size_tokens:,} tokens"'),
        ("", f"tokens of all requests together if each has {length}"),
        ("in the log", f'"Maximum concurrency for {length} tokens per request: {kv.max_concurrency:.2f}x"'),
        ("", "so many requests of that length at once; of shorter ones more"),
    ]


def _failure(b: Budget) -> str:
    rank, total = b.smallest, b.deployment.card.memory_bytes
    before_cache = _needs([line for line in rank.lines if line.name in (*LOADED, "outside_budget")])
    if b.smallest.budget_bytes > b.smallest.free_at_start[1]:
        return '"Free memory on device … is less than desired GPU memory utilization"'
    overfull = b.smallest.given_pool is not None and b.smallest.room_bytes[1] < 0
    if before_cache > total or overfull:
        return '"CUDA out of memory"'
    if rank.given_pool is None and rank.available_bytes <= 0:
        return '"No available memory for the cache blocks"'
    return f'"To serve at least one request with the model\'s max seq len ({b.settings.max_model_len})"'


def _at_once(b: Budget) -> str:
    """Return how many requests hold their KV at once."""
    d, count = b.deployment, b.max_concurrent_requests
    length = f"{d.context or b.settings.max_model_len:,} tokens"
    where = f" in each of {d.data_parallel_size} replicas" if d.data_parallel_size > 1 else ""
    if not count:
        return f"no request of {length} can hold its KV"
    words = f"{requests(count)} of {length} {'holds its' if count == 1 else 'hold their'} KV{where}"
    if count > b.settings.max_num_seqs:
        words += f"; max_num_seqs lets {b.settings.max_num_seqs:,} run"
    return words


def _longest(b: Budget) -> str:
    longest, own = b.max_model_len_that_fits, b.deployment.model.max_position_embeddings
    if not longest:
        return "none"
    return f"{longest:,} tokens, {'the limit of the model' if longest == own else 'by the best estimate'}"


def requests(count: int) -> str:
    """Return a number of requests in words."""
    return f"{count:,} request{'' if count == 1 else 's'}"


def _layer_kinds(b: Budget) -> Block | None:
    """Return the cache by kinds of layer, for a model that has more than one."""
    kinds: dict[tuple[str, int, int], tuple[int, int]] = {}
    for group in b.plan.groups:
        kind = f"{group.kind} {group.limit:,}" if group.limit else group.kind
        key = kind, group.block_size, group.page_bytes
        layers, blocks = kinds.get(key, (0, 0))
        kinds[key] = layers + group.layers, blocks + group.blocks_per_request
    if len(kinds) < 2:  # noqa: PLR2004 - one kind needs no table
        return None
    size = b.plan.bytes_per_block
    rows = [
        (kind, f"{layers:,}", f"{block:,}", human_bytes(page), f"{blocks:,}", gib(blocks * size))
        for (kind, block, page), (layers, blocks) in kinds.items()
    ]
    layers, blocks = (sum(column) for column in zip(*kinds.values(), strict=True))
    rows.append(("all", f"{layers:,}", "", "", f"{blocks:,}", gib(blocks * size)))
    header = ("layers", "count", "tokens a block", "page", "blocks a request", "GiB")
    return Block(table=Table(header=header, rows=tuple(rows), right=frozenset(range(1, 6)), total=True))


# -- what to do, and what was taken for granted


def _changes(b: Budget, changes: Sequence[Change]) -> Block | None:
    if b.verdict == FITS:
        return None
    if not changes:
        return Block(
            heading="Smallest changes that fit",
            lines=("None of those tried is enough: flags, a shorter context, other weights, more GPUs.",),
        )
    rows = []
    for change in changes:
        first, *rest = change.steps
        rows.append((first.flags, _then(change), first.gives_up))
        rows += [(f"  with {step.flags}", "", step.gives_up) for step in rest]
    length = b.deployment.context or b.settings.max_model_len
    header = ("change", "at once", "you give up")
    heading = "Smallest changes that fit" if b.verdict == DOES_NOT_FIT else "Smallest changes that fit with room"
    if not any(change.enough for change in changes):
        heading = "None of the changes tried is enough; the nearest"
    return Block(
        heading=f"{heading} (at once: requests of {length:,} tokens)", table=Table(header=header, rows=tuple(rows))
    )


def _then(change: Change) -> str:
    if not change.enough:
        return f"still {gib(change.short_bytes)} short"
    of = f" of {change.length:,}" if change.shorter else ""
    if change.verdict == TIGHT:
        return f"{change.requests:,}{of}, tight" if change.requests else f"tight, maybe 1{of}"
    return f"{change.requests:,}{of}"


def _settings(b: Budget) -> Block:
    """Return every choice, resolved, and under it what nobody chose."""
    d, s = b.deployment, b.settings
    layout = [("tensor_parallel_size", d.tensor_parallel_size)]
    layout += [
        (name, getattr(d, name))
        for name in ("pipeline_parallel_size", "data_parallel_size", "decode_context_parallel_size")
        if getattr(d, name) > 1
    ]
    chosen = [
        *layout,
        ("max_model_len", s.max_model_len),
        ("max_num_seqs", s.max_num_seqs),
        ("max_num_batched_tokens", s.max_num_batched_tokens),
        ("dtype", s.dtype),
        ("kv_cache_dtype", s.cache.kv_cache_dtype),
    ]
    if s.draft is not None:
        chosen.append(("speculative_config", f"{s.draft.method} of {s.draft.tokens}"))
    words = ", ".join(f"{name}={value:,}" if isinstance(value, int) else f"{name}={value}" for name, value in chosen)
    return Block(heading="Settings", lines=(words, *(f"assumed: {line}" for line in b.assumptions)))
