"""How near the budget comes to what vLLM printed at real starts.

    python bench/accuracy.py ../shared/data/launches.jsonl [--json] [--all] [--write docs/accuracy.md]

Each launch becomes a deployment with its flags, card, layout and version. Six quantities are compared: what the engine
printed against what the budget says.

- `kv_bytes_per_token`: the printed pool over the printed tokens; ours is the same pool over our tokens. Needs no card.
- `weights`: "Model loading took".
- `available`: "Available KV cache memory", from the card, the flags and every estimate.
- `tokens`, `concurrency`: "GPU KV cache size" and "Maximum concurrency", from our own pool.
- `refused`: for starts that the engine refused, the printed needed and available memory, and whether we refuse too.

A second table holds the estimates against starts whose parts were published one by one (`public_starts.py`).

A row that cannot be compared is counted under the reason. Rows without a version are taken for the newest release of
their day; rows without a utilization take the version's default and are listed apart, because nobody saw the flag.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parent))

from public_starts import STARTS, STUDY, Start
from relatives import CARDS, FLAGS, MISSES, ODD, RELATIVES, RELEASES, TOTALS

from kvbudget.basis import Basis
from kvbudget.budgeting import LOADED, budget
from kvbudget.deployment import Deployment
from kvbudget.engines import vllm, vllm_cache
from kvbudget.errors import CannotTell, KvbudgetError
from kvbudget.facts.gpus import Gpu, find_gpu
from kvbudget.facts.vllm import OLDEST
from kvbudget.hub import load_model, load_path, read_object
from kvbudget.model import Model
from kvbudget.model.shapes import RecurrentState
from kvbudget.parallel import stage_bounds
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Callable

TITLES = {
    "kv_bytes_per_token": "KV bytes per token",
    "weights": "weights, GiB",
    "available": "available KV, GiB",
    "tokens": "KV tokens",
    "concurrency": "max concurrency",
    "needed": "refused: needed, GiB",
    "refused_available": "refused: available, GiB",
}
PRINTED_GIB = 0.005
"""Half of the last digit of a printed GiB."""
EXACT_TOLERANCE = 0.001
SMALL_TENSORS_GIB = 2 / 1024
"""Scales and rounding of the allocator, which nobody counts."""
UNKNOWN_VERSION = "version unknown"
SHAPE_ONLY = "the checkpoint's quantization is not known, only its shape"
HOPPER = "9.0"
FIRST_STATE_CACHING = (0, 26)
"""From here on prefixes of recurrent states are cached unless asked otherwise."""
V0_AS = "0.10.0"

ANY_VERSION = "0.19.0"
"""A version whose tokens mean the same as any other's for a model with one kind of full attention."""
MARKERS = ("<!-- accuracy:begin -->", "<!-- accuracy:end -->")

OWN_DRAFT = re.compile(r"mtp\b(?:, (?:num_speculative_tokens=)?(\d+))?")
"""How launches say that the checkpoint's own layers draft, and how many tokens."""

CONTEXTS = re.compile(r"(?:decode_context_parallel_size|DCP)=(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One printed figure beside ours.

    Args:
        row: The launch.
        quantity: What was printed.
        observed: The printed figure.
        low: Our lower bound.
        best: Our figure.
        high: Our upper bound.
        slack: What rounding in print, and nothing else, may add on each side.
        known: Whether the card, the utilization and the version were seen, not assumed.
        note: What was assumed, or why it misses.
    """

    row: str
    quantity: str
    observed: float
    low: float
    best: float
    high: float
    slack: float
    known: bool
    note: str

    @property
    def error(self) -> float:
        """The relative error of our figure."""
        return (self.best - self.observed) / abs(self.observed) if self.observed else float(self.best != 0)

    @property
    def inside(self) -> bool:
        """Whether the printed figure, as far as it was printed, lies within our bounds."""
        return self.low - self.slack <= self.observed <= self.high + self.slack


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """A row or a quantity of it that is not compared."""

    row: str
    quantity: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A start that the engine refused, and what we say."""

    row: str
    verdict: str
    known: bool


Outcome = Point | Skip | Refusal


class _SkippedError(Exception):
    """Why a row, or a quantity, is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A launch as a deployment, with what had to be assumed."""

    row: dict[str, Any]
    deployment: Deployment
    version_note: str
    card_known: bool
    utilization_known: bool
    same_weights: bool
    graphs_off: bool

    @property
    def known(self) -> bool:
        """Whether what the available memory follows from was seen."""
        return self.card_known and self.utilization_known


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What we say about a launch: its ranks, and its cache or why it cannot be told."""

    launch: Launch
    requested: int
    graphs_inside: bool
    ranks: tuple[vllm.Fixed, ...]
    plan: vllm_cache.CachePlan | None
    plan_note: str


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("launches", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--all", action="store_true", help="list every point, not only the misses")
    parser.add_argument("--write", type=Path, help="put the table between the markers of this page")
    options = parser.parse_args(arguments)
    outcomes = compare_all(options.launches)
    starts = compare_starts(options.launches.parent / "configs")
    if options.json:
        print(json.dumps(summary(outcomes) | {"published_parts": starts_summary(starts)}, indent=1))
    else:
        print(report(outcomes, every=options.all), starts_report(starts, every=options.all), sep="\n\n")
    if options.write:
        write(options.write, f"{report(outcomes, every=False)}\n\n{starts_report(starts, every=True)}")
    return 0


def compare_all(launches: Path) -> list[Outcome]:
    """Return every comparison and every reason not to compare, in the order of the launches."""
    found: list[Outcome] = []
    with launches.open(encoding="utf-8") as lines:
        for line in lines:
            found += compare(json.loads(line), launches.parent / "configs")
    return found


def compare(row: dict[str, Any], configs: Path) -> list[Outcome]:
    """Return the comparisons of one launch."""
    name = row["id"]
    try:
        _check_row(row)
        answer = answer_of(launch_of(row, configs))
    except _SkippedError as why:
        return [Skip(row=name, quantity="all", reason=str(why))]
    except KvbudgetError as why:
        return [Skip(row=name, quantity="all", reason=_refused(why))]
    found = [item for quantity in _POINTS if (item := _compared(answer, quantity)) is not None]
    if not any(isinstance(item, Point) for item in found):
        found = [Skip(row=name, quantity="all", reason=_all_reasons(found))]
    return found + refusals(answer)


def _check_row(row: dict[str, Any]) -> None:
    """Refuse rows of other engines, and those that stand apart."""
    if row["engine"] != "vllm":
        raise _SkippedError(f"another engine: {row['engine']}")
    odd = ODD.get(row["id"])
    if odd and not odd.quantities:
        raise _SkippedError(f"set apart: {odd.reason}")


def _compared(answer: Answer, quantity: str) -> Outcome | None:
    """Return one quantity's comparison, why there is none, or None if the engine did not print it."""
    row = answer.launch.row
    odd = ODD.get(row["id"])
    if odd and quantity in odd.quantities and _wanted(row, quantity):
        return Skip(row=row["id"], quantity=quantity, reason=f"set apart: {odd.reason}")
    try:
        point = _POINTS[quantity](answer)
    except _SkippedError as why:
        return Skip(row=row["id"], quantity=quantity, reason=str(why)) if _wanted(row, quantity) else None
    return None if point is None else replace(point, row=row["id"], quantity=quantity)


def _wanted(row: dict[str, Any], quantity: str) -> bool:
    """Whether the engine printed the quantity at all."""
    return all(row["observed"][key] is not None for key in _PRINTED[quantity])


def _all_reasons(found: list[Outcome]) -> str:
    reasons = dict.fromkeys(item.reason for item in found if isinstance(item, Skip))
    return "; ".join(reasons) or "nothing printed that can be compared"


def _refused(why: KvbudgetError) -> str:
    return f"{'cannot tell' if isinstance(why, CannotTell) else 'not accepted'}: {why}"


def refusals(answer: Answer) -> list[Outcome]:
    """Return what we say about a start that the engine refused, if what it follows from is known."""
    launch = answer.launch
    if launch.row["fit"] is not False:
        return []
    try:
        _check_pool(launch)
        _check_weights(launch)
        verdict = budget(launch.deployment).verdict
    except (_SkippedError, KvbudgetError) as why:
        return [Skip(row=launch.row["id"], quantity="refusal", reason=str(why))]
    return [Refusal(row=launch.row["id"], verdict=verdict, known=launch.known)]


# --- a launch as a deployment ------------------------------------------------------------------------------------


def launch_of(row: dict[str, Any], configs: Path) -> Launch:
    """Return the deployment that a launch describes."""
    shown, how = FLAGS.get(row["id"], ({}, ""))
    flags = row["flags"] | shown
    other = flags["other"] or ""
    if re.search(r"\bAMD\b|\bMI\d", row["gpu"]["name"] or ""):
        raise _SkippedError("ROCm: only CUDA builds are modelled")
    if flags["cpu_offload_gb"]:
        raise _SkippedError("weights offloaded to the host")
    if "cache-dtype float16" in other:
        raise _SkippedError("flags that are not counted: another type of state cache")
    version, note, oldest = version_of(row)
    notes = [note, how, TOTALS.get(row["id"], (0, ""))[1]]
    model, same_weights = model_of(row["model"], configs)
    if "language_model_only" in other:
        model = replace(model, towers=())
    card, card_known = card_of(row)
    contexts = CONTEXTS.search(other)
    stateful = _stateful(model)
    caching = flags["enable_prefix_caching"]
    if caching is None and stateful and tuple(map(int, (version or ANY_VERSION).split("."))) < FIRST_STATE_CACHING:
        caching = False
    deployment = Deployment(
        model=model,
        gpu=card,
        speculative_config=_speculation(flags["speculative"]),
        engine_version=version or ANY_VERSION,
        tensor_parallel_size=row["tp"] or 1,
        pipeline_parallel_size=row["pp"] or 1,
        data_parallel_size=row["dp"] or 1,
        enable_expert_parallel=bool(row["ep"]),
        decode_context_parallel_size=int(contexts[1]) if contexts else 1,
        max_model_len=flags["max_model_len"] or row["observed"]["max_concurrency_at_len"],
        max_num_seqs=flags["max_num_seqs"] or (256 if oldest else None),
        max_num_batched_tokens=flags["max_num_batched_tokens"] or (_old_tokens(model, flags) if oldest else None),
        gpu_memory_utilization=flags["gpu_memory_utilization"],
        kv_cache_dtype=_cache_type(flags["kv_cache_dtype"]),
        block_size=None if stateful else flags["block_size"],
        dtype=flags["dtype"] or "auto",
        enforce_eager=bool(flags["enforce_eager"]),
        enable_prefix_caching=caching,
        allow_long=True,
    )
    return Launch(
        row=row,
        deployment=deployment,
        version_note="; ".join(filter(None, notes)),
        card_known=card_known,
        utilization_known=flags["gpu_memory_utilization"] is not None,
        same_weights=same_weights,
        graphs_off="ESTIMATE_CUDAGRAPHS=0" in other,
    )


def _speculation(told: str | None) -> dict[str, Any] | None:
    """Return `--speculative-config` where a launch drafts with the checkpoint's own layers.

    Raises:
        _SkippedError: It drafts with something whose shape is not told.
    """
    if not told:
        return None
    own = OWN_DRAFT.match(told)
    if own is None:
        raise _SkippedError("speculative decoding: the draft's shape is not told")
    return {"method": "mtp", "num_speculative_tokens": int(own[1] or 1)}


def answer_of(launch: Launch) -> Answer:
    """Return our answer; a cache that cannot be planned leaves weights and memory comparable."""
    d = launch.deployment
    settings = vllm.settings(d)
    stages: tuple[tuple[int, int] | None, ...] = (None,)
    if d.pipeline_parallel_size > 1:
        stages = stage_bounds(len(d.model.layers), d.pipeline_parallel_size)
    tp = d.tensor_parallel_size
    ranks = tuple(
        vllm.fixed(
            d.model,
            settings.version,
            settings.dtype,
            (tp, tp * d.data_parallel_size, d.enable_expert_parallel),
            stage,
            vllm.batch_key(d.model, settings),
            settings.enforce_eager,
            d.card,
            settings.draft,
            settings.slots,
            settings.limits,
        )
        for stage in stages
    )
    plan, note = _plan(launch, settings)
    return Answer(
        launch=launch,
        requested=vllm.requested_bytes(d.card, settings),
        graphs_inside=settings.rules.graphs_in_budget and not launch.graphs_off,
        ranks=ranks,
        plan=plan,
        plan_note=note,
    )


def _plan(launch: Launch, settings: vllm.Settings) -> tuple[vllm_cache.CachePlan | None, str]:
    """Return (the cache, a note), or (None, why there is none).

    A fork's own backend reads the cache as Hopper's does.
    """
    model = launch.deployment.model
    try:
        return vllm.cache_plan(model, settings.cache), ""
    except KvbudgetError as error:
        why = _refused(error)
    if "fork" not in (launch.row["engine_version"] or ""):
        return None, why
    hopper = vllm.settings(launch.deployment.replaced(gpu=launch.deployment.card._replace(compute_capability=HOPPER)))
    try:
        return vllm.cache_plan(model, hopper.cache), "a fork: cache as on Hopper"
    except KvbudgetError as error:
        return None, _refused(error)


def _stateful(model: Model) -> bool:
    return any(isinstance(part, RecurrentState) for layer in set(model.layers) for part in layer.caches)


def _old_tokens(model: Model, flags: dict[str, Any]) -> int | None:
    """V0 profiled as many tokens as a request may have, unless chunked prefill was on, as it was above 32,768."""
    length = flags["max_model_len"] or model.max_position_embeddings
    if length is None or flags["enable_chunked_prefill"] or length > 32_768:
        return 2048
    return max(2048, length)


def _cache_type(text: str | None) -> str:
    """Return a `--kv-cache-dtype` as the engine spells it."""
    first = (text or "auto").split()[0].rstrip(",")
    return {"bf16": "bfloat16", "fp16": "float16"}.get(first, first)


def version_of(row: dict[str, Any]) -> tuple[str, str, bool]:
    """Return (a version, how it is known, whether the row is of the V0 engine)."""
    stated, inferred = row["engine_version"] or "", row["engine_version_inferred"] or ""
    old = "V0" in f"{stated} {inferred}"
    for text, note in ((stated, ""), (inferred, "version inferred")):
        found = re.search(r"(?<![\d.])0\.(?:[2-9]|\d\d)(?:\.\d+)?(?![\dx])", text)
        if found:
            return _supported(found[0] + (".0" if ".x" in text else ""), note, old=old)
    if row["date"]:
        known = [version for since, version in RELEASES if since <= f"{row['date']}-28"[:10]]
        return _supported(known[-1] if known else "0.0", "version by date", old=old)
    return "", UNKNOWN_VERSION, old


def _supported(text: str, note: str, *, old: bool) -> tuple[str, str, bool]:
    """Return (the version whose rules stand in, how it is known, whether it is V0).

    The V0 engine, and versions older than those whose rules are known, account as 0.10 does: what was loaded, the
    growth outside torch, and the peak of the profile run.
    """
    numbers = tuple(map(int, text.split(".")))
    if (*numbers, 0, 0)[:3] < OLDEST:
        return V0_AS, "; ".join(filter(None, (note, "older than 0.8"))), True
    return (V0_AS, "; ".join(filter(None, (note, "V0"))), True) if old else (text, note, False)


@cache
def model_of(name: str, configs: Path) -> tuple[Model, bool]:
    """Return (the model, whether its weights are stored as the launch's were)."""
    folder = configs / name.replace("/", "__", 1)
    try:
        if folder.is_dir():
            return load_path(folder, name=name), True
        relative = RELATIVES.get(name)
        if relative is None:
            return load_model(name), True
        if relative.quantization is None:
            known = configs / relative.name
            model = load_path(known, name=name) if known.is_dir() else load_model(relative.name)
        else:
            model = _requantized(relative.name, relative.quantization, configs, name)
    except CannotTell:
        raise
    except KvbudgetError as error:
        raise _SkippedError("shape unknown: no config, no catalogue row, no relative") from error
    return model, relative.same_weights


def _requantized(relative: str, quantization: dict[str, Any], configs: Path, name: str) -> Model:
    folder = configs / relative
    config = dict(read_object(folder / "config.json") if folder.is_dir() else load_model(relative).config)
    return Model.from_config({**config, "quantization_config": quantization}, name=name)


def card_of(row: dict[str, Any]) -> tuple[Gpu, bool]:
    """Return (the card, whether it was seen). The row's own total replaces the table's."""
    gpu = row["gpu"]
    words = (gpu["name"], gpu["inferred"])
    known = next((CARDS[word] for word in words if word in CARDS), None)
    total = row["observed"]["total_gpu_memory_gib"] or TOTALS.get(row["id"], (None, ""))[0]
    if known is not None:
        card = find_gpu(known)
        if total:
            card = card._replace(
                engine_total_bytes=int(total * GIB), memory_bytes=max(card.memory_bytes, int(total * GIB))
            )
        return card, bool(gpu["name"]) or bool(total)
    if total:
        return _given(total), True
    return _given(80.0), False


def _given(gib: float) -> Gpu:
    size = int(gib * GIB)
    return find_gpu("a100-sxm-80gb")._replace(
        name="given", memory_bytes=size, engine_total_bytes=size, basis=Basis.GIVEN
    )


# --- quantities --------------------------------------------------------------------------------------------------


def _note(answer: Answer, *more: str) -> str:
    return "; ".join(part for part in (answer.launch.version_note, *more) if part)


def _point(
    observed: float, bounds: tuple[float, float, float], *, slack: float = 0.0, known: bool = True, note: str = ""
) -> Point:
    low, best, high = bounds
    return Point(
        row="", quantity="", observed=observed, low=low, best=best, high=high, slack=slack, known=known, note=note
    )


def _tokens_of(answer: Answer, pool: float) -> tuple[int, float]:
    """Return (tokens, concurrency) that the engine prints for a pool of so many bytes."""
    plan = _planned(answer)
    blocks = vllm_cache.num_gpu_blocks(plan, (max(0, int(pool)),) * len(answer.ranks))
    return vllm_cache.kv_cache_size_tokens(plan, blocks), vllm_cache.max_concurrency(plan, blocks)


def _planned(answer: Answer) -> vllm_cache.CachePlan:
    """Return the cache where tokens can be compared.

    Raises:
        _SkippedError: Something that they follow from is not known.
    """
    row = answer.launch.row
    if answer.plan is None:
        raise _SkippedError(answer.plan_note)
    kinds = {part for layer in set(answer.launch.deployment.model.layers) for part in layer.caches}
    if answer.launch.version_note.startswith(UNKNOWN_VERSION) and len(kinds) > 1:
        raise _SkippedError("version unknown, and tokens of several kinds of layers are counted by version")
    if "rounded" in str(row["units"]):
        raise _SkippedError("the source rounded its figures")
    return answer.plan


def _kv_bytes_per_token(answer: Answer) -> Point | None:
    observed = answer.launch.row["observed"]
    pool, tokens = observed["available_kv_gib"], observed["kv_tokens"]
    if not pool or not tokens or pool < 0:
        return None
    ends = [_tokens_of(answer, (pool + end) * GIB)[0] for end in (PRINTED_GIB, 0, -PRINTED_GIB)]
    low, best, high = (pool * GIB / count if count else float("inf") for count in ends)
    theirs = pool * GIB / tokens
    return _point(theirs, (low, best, high), slack=theirs * EXACT_TOLERANCE, note=_note(answer, answer.plan_note))


def _weights(answer: Answer) -> Point | None:
    row = answer.launch.row
    observed = row["observed"]["model_weights_gib"]
    if not observed:
        return None
    _check_layout(row)
    _check_slots(row)
    _check_weights(answer.launch)
    loaded = [tuple(map(sum, zip(*_loaded(rank), strict=True))) for rank in answer.ranks]
    low, best, high = max(loaded, key=lambda part: part[1])
    bounds = low / GIB, best / GIB, high / GIB
    return _point(
        observed, bounds, slack=PRINTED_GIB + max(SMALL_TENSORS_GIB, observed * EXACT_TOLERANCE), note=_note(answer)
    )


def _loaded(rank: vllm.Fixed) -> list[tuple[int, int, int]]:
    """Return the bounds of all that is loaded: the engine prints weights, draft and slots in one figure."""
    return [(part.low, part.best, part.high) for name, part, _ in rank.inside if name in LOADED]


def _check_weights(launch: Launch) -> None:
    if not launch.same_weights:
        raise _SkippedError(SHAPE_ONLY)


def _check_layout(row: dict[str, Any]) -> None:
    if row["tp"] is None and row["n_gpus"] not in (1, None):
        raise _SkippedError("the layout is not told")
    if row["tp"] is None and row["n_gpus"] is None:
        raise _SkippedError("neither cards nor layout are told")


def _check_pool(launch: Launch) -> None:
    """Refuse to compare the pool where something that it follows from is not known."""
    row = launch.row
    if not launch.card_known:
        raise _SkippedError("the card is not told")
    if launch.version_note.startswith(UNKNOWN_VERSION):
        raise _SkippedError("neither version nor day are told")
    if "fork" in (row["engine_version"] or ""):
        raise _SkippedError("a fork: the workspaces of its own kernels are not known")
    if "older than 0.8" in launch.version_note and row["tp"] not in (None, 1):
        raise _SkippedError("V0 on several cards: it counted NCCL's own buffers")
    _check_layout(row)
    _check_slots(row)


def _check_slots(row: dict[str, Any]) -> None:
    if row["flags"]["lora"]:
        raise _SkippedError("LoRA: neither the rank nor the number of slots is told")


def _pools(answer: Answer) -> tuple[float, float, float, str]:
    """Return (low, best, high of the pool of the rank that has least, a note).

    Where only the model's shape is known, the row's own weights take the place of ours.
    """
    launch = answer.launch
    _check_pool(launch)
    seen = launch.row["observed"]["model_weights_gib"]
    if not seen:
        _check_weights(launch)
    pools = []
    for rank in answer.ranks:
        parts = [rank.activations, rank.non_torch] + ([rank.cuda_graphs] if answer.graphs_inside else [])
        if launch.same_weights:
            parts += [part for name, part, _ in rank.inside if name in LOADED]
        spent = 0 if launch.same_weights else int(seen * GIB)
        ends = zip(*((part.high, part.best, part.low) for part in parts), strict=True)
        pools.append([answer.requested - spent - sum(end) for end in ends])
    low, best, high = (min(column) for column in zip(*pools, strict=True))
    notes = ("" if launch.same_weights else "with the row's own weights", _assumed(launch))
    return low, best, high, "; ".join(filter(None, notes))


def _assumed(launch: Launch) -> str:
    return "" if launch.utilization_known else "utilization not told, the default assumed"


def _available(answer: Answer) -> Point | None:
    observed = answer.launch.row["observed"]["available_kv_gib"]
    if observed is None:
        return None
    low, best, high, note = _pools(answer)
    bounds = low / GIB, best / GIB, high / GIB
    return _point(observed, bounds, slack=PRINTED_GIB, known=answer.launch.known, note=_note(answer, note))


def _refused_available(answer: Answer) -> Point | None:
    row = answer.launch.row
    if row["fit"] is not False or row["observed"]["err_available_kv_gib"] is None:
        return None
    return _available(answer)


def _counted(answer: Answer, index: int, observed: float | None, rounding: float) -> Point | None:
    if not observed:
        return None
    _planned(answer)
    low, best, high, note = _pools(answer)
    bounds = tuple(float(_tokens_of(answer, pool)[index]) for pool in (low, best, high))
    return _point(
        observed, (bounds[0], bounds[1], bounds[2]), slack=rounding, known=answer.launch.known, note=_note(answer, note)
    )


def _tokens(answer: Answer) -> Point | None:
    return _counted(answer, 0, answer.launch.row["observed"]["kv_tokens"], 0)


def _concurrency(answer: Answer) -> Point | None:
    return _counted(answer, 1, answer.launch.row["observed"]["max_concurrency"], PRINTED_GIB)


def _needed(answer: Answer) -> Point | None:
    row = answer.launch.row
    observed = row["observed"]["err_needed_kv_gib"]
    if not observed:
        return None
    length = row["observed"]["err_max_seq_len"] or answer.launch.deployment.max_model_len
    needed = budget(answer.launch.deployment.replaced(max_model_len=length)).kv.needed_for_one_request_bytes / GIB
    slack = max(PRINTED_GIB, observed * EXACT_TOLERANCE)
    return _point(observed, (needed, needed, needed), slack=slack, note=_note(answer))


_POINTS: dict[str, Callable[[Answer], Point | None]] = {
    "kv_bytes_per_token": _kv_bytes_per_token,
    "weights": _weights,
    "available": _available,
    "tokens": _tokens,
    "concurrency": _concurrency,
    "needed": _needed,
    "refused_available": _refused_available,
}

_PRINTED: dict[str, tuple[str, ...]] = {
    "kv_bytes_per_token": ("available_kv_gib", "kv_tokens"),
    "weights": ("model_weights_gib",),
    "available": ("available_kv_gib",),
    "tokens": ("kv_tokens",),
    "concurrency": ("max_concurrency",),
    "needed": ("err_needed_kv_gib",),
    "refused_available": ("err_available_kv_gib",),
}


# --- published parts ---------------------------------------------------------------------------------------------

STUDY_CARD, STUDY_UTILIZATION, STUDY_LENGTH = "h100-sxm-80gb", 0.95, 8192


def compare_starts(configs: Path) -> list[Point]:
    """Return each published part beside ours."""
    return [point for start in STARTS for point in compare_start(start, configs)]


def compare_start(start: Start, configs: Path) -> list[Point]:
    """Return the parts of one published start; none if its model is not at hand."""
    try:
        model, _ = model_of(start.model.replace("__", "/", 1), configs)
    except _SkippedError:
        return []
    deployment = Deployment(
        model=model,
        gpu=STUDY_CARD,
        engine_version=start.version,
        tensor_parallel_size=start.tp,
        pipeline_parallel_size=start.pp,
        max_model_len=STUDY_LENGTH,
        gpu_memory_utilization=STUDY_UTILIZATION,
        enable_prefix_caching=False,
    )
    rank = budget(deployment).ranks[0]
    fixed = {"weights": rank.fixed.weights, "activation": rank.fixed.activations, "non_torch": rank.fixed.non_torch}
    parts = {name: (part.low, part.best, part.high) for name, part in fixed.items()}
    parts["available"] = (rank.available_low_bytes, rank.available_bytes, rank.available_high_bytes)
    name = f"{model.name} {start.version} tp{start.tp} pp{start.pp}"
    return [
        replace(
            _point(observed, (part[0] / GIB, part[1] / GIB, part[2] / GIB), slack=2 * PRINTED_GIB),
            row=name,
            quantity=key,
        )
        for key, part in parts.items()
        if (observed := getattr(start, key)) is not None
    ]


def starts_summary(points: list[Point]) -> dict[str, Any]:
    """Return the statistics of the published parts."""
    kinds = dict.fromkeys(point.quantity for point in points)
    return {kind: statistics([point for point in points if point.quantity == kind]) for kind in kinds}


def starts_report(points: list[Point], *, every: bool) -> str:
    """Return the published parts as text."""
    lines = ["published part by part, H100 80GB, 0.95 of the card, GiB", f"  {STUDY}", ""]
    lines.append(f"{'part':40}{'n':>4}{'median':>9}{'95 %':>9}{'inside low-high':>18}")
    lines += [_statistics_line(kind, s) for kind, s in starts_summary(points).items()]
    lines.append("")
    lines += [_point_line(f"{point.quantity:10}", point) for point in points if every or not point.inside]
    return "\n".join(lines).rstrip()


# --- tables ------------------------------------------------------------------------------------------------------


def percentile(values: list[float], share: float) -> float:
    """Return the smallest value that at least `share` of them do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -(-int(len(ordered) * share * 1000) // 1000) - 1))]


def groups(outcomes: list[Outcome]) -> list[tuple[str, str, list[Point]]]:
    """Return (quantity, title, points): what was seen in full first, then what needed an assumption."""
    found = []
    for known in (True, False):
        for quantity, title in TITLES.items():
            points = [
                item
                for item in outcomes
                if isinstance(item, Point) and item.quantity == quantity and item.known is known
            ]
            if points:
                found.append((quantity, title + ("" if known else ", default assumed"), points))
    return found


def statistics(points: list[Point]) -> dict[str, Any]:
    """Return n, the median and 95th percentile of the relative error, and how many lie inside the bounds."""
    errors = [abs(point.error) for point in points]
    return {
        "n": len(points),
        "median_error": median(errors),
        "p95_error": percentile(errors, 0.95),
        "inside": sum(point.inside for point in points),
    }


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return everything as plain data."""
    skips = [item for item in outcomes if isinstance(item, Skip)]
    return {
        "quantities": {title: statistics(points) for _, title, points in groups(outcomes)},
        "refused": [asdict(item) for item in outcomes if isinstance(item, Refusal)],
        "points": [
            asdict(item) | {"error": item.error, "inside": item.inside} for item in outcomes if isinstance(item, Point)
        ],
        "skipped": [asdict(item) for item in skips],
        "skipped_by_reason": dict(Counter(_short(item.reason) for item in skips).most_common()),
    }


def _short(reason: str) -> str:
    return reason if len(reason) <= 110 else reason[:109] + "…"


def report(outcomes: list[Outcome], *, every: bool) -> str:
    """Return the tables as text."""
    rows = {item.row for item in outcomes}
    whole = [item for item in outcomes if isinstance(item, Skip) and item.quantity == "all"]
    lines = [
        f"{len(rows)} launches, {len(rows) - len(whole)} compared, {len(whole)} left out.",
        "",
        f"{'quantity':40}{'n':>4}{'median':>9}{'95 %':>9}{'inside low-high':>18}",
    ]
    for _, title, points in groups(outcomes):
        lines.append(_statistics_line(title, statistics(points)))
    refusals = [item for item in outcomes if isinstance(item, Refusal)]
    agreed = [item for item in refusals if item.verdict in ("does_not_fit", "tight")]
    lines += [
        "",
        f"starts that the engine refused, on a known card: {len(refusals)}; refused or tight here: {len(agreed)}",
    ]
    lines += [f"  {item.row}  {item.verdict}{'' if item.known else '  (default utilization)'}" for item in refusals]
    missed = "every comparison" if every else "outside low-high"
    lines += ["", f"{missed}:"]
    for _, title, points in groups(outcomes):
        for point in points:
            if every or not point.inside:
                lines.append(_point_line(title, point))
    lines += ["", "left out:"]
    reasons: dict[str, list[str]] = {}
    for item in outcomes:
        if isinstance(item, Skip):
            what = item.row if item.quantity == "all" else f"{item.row} {item.quantity}"
            reasons.setdefault(_short(item.reason), []).append(what)
    for reason, who in sorted(reasons.items(), key=lambda pair: -len(pair[1])):
        lines.append(f"  {len(who):>3}  {reason}")
        lines.append(f"       {', '.join(who)}")
    return "\n".join(lines)


def _statistics_line(title: str, s: dict[str, Any]) -> str:
    inside = f"{s['inside']} of {s['n']} ({s['inside'] / s['n']:.0%})"
    return f"{title:40}{s['n']:>4}{s['median_error']:>9.2%}{s['p95_error']:>9.2%}{inside:>18}"


def _point_line(title: str, point: Point) -> str:
    figures = f"printed {point.observed:,.2f}, ours {point.best:,.2f} ({point.low:,.2f} to {point.high:,.2f})"
    if point.inside:
        return f"  {point.row}  {title}: {figures}, {point.error:+.1%}  {point.note}".rstrip()
    same = "available" if point.quantity in ("tokens", "concurrency", "refused_available") else point.quantity
    why = MISSES.get((point.row, same), "not explained")
    return f"  {point.row}  {title}: {figures}, {point.error:+.1%}  MISS: {why}"


def write(page: Path, table: str) -> None:
    """Put the table between the markers of a page."""
    text = page.read_text(encoding="utf-8")
    begin, end = (text.index(marker) for marker in MARKERS)
    page.write_text(
        text[: begin + len(MARKERS[0])] + "\n\n```text\n" + table + "\n```\n\n" + text[end:], encoding="utf-8"
    )


if __name__ == "__main__":
    sys.exit(main())
