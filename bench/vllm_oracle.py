"""Compare `kvbudget.engines.vllm_cache` with what vLLM's own code answered, row by row.

    python bench/vllm_oracle.py ../shared/data [--json]

Reads `vllm_oracle.jsonl.gz` (the configs in `configs/`) and `vllm_oracle/*.json` (variants of the configs in
`../tools/vllm_oracle/configs`). Prints for each field how many rows are equal, different and refused, and each row that
is not equal with the reason; the exit code is 1 if a row differs. Rows without an answer of vLLM's code are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from kvbudget.engines import vllm_cache as cache_of
from kvbudget.engines.vllm_cache import CachePlan, CacheSettings
from kvbudget.errors import CannotTell, InputError
from kvbudget.model import Model

VERSION = (0, 32, 0)
_VERSION = ".".join(map(str, VERSION))

CAPABILITY = {
    "T4": (7, 5),
    "A100-40": (8, 0),
    "A100-80": (8, 0),
    "A10G": (8, 6),
    "L4": (8, 9),
    "L40S": (8, 9),
    "RTX4090": (8, 9),
    "H100-80": (9, 0),
    "H200": (9, 0),
    "B200": (10, 0),
}

FIELDS = (
    "num_gpu_blocks",
    "groups",
    "bytes_per_block",
    "gpu_kv_cache_size_tokens",
    "max_concurrency",
    "kv_cache_dtype",
    "max_model_len",
    "error",
)

CONCURRENCY_TOLERANCE = 1e-12
"""Floats of the same quotient; anything else is a different number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One answer of vLLM's code, and what it was asked."""

    name: str
    folder: Path
    settings: CacheSettings
    available: int
    answer: dict[str, Any]
    override: int | None = None
    auto_fit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A row's comparison: for each field (ours, theirs) where they differ, or why there is nothing to compare."""

    name: str
    refused: str = ""
    different: tuple[tuple[str, Any, Any], ...] = ()


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("data", type=Path, help="the folder with vllm_oracle.jsonl.gz, vllm_oracle/ and configs/")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    outcomes = [compare(row) for row in rows(options.data)]
    if options.json:
        json.dump(summary(outcomes), sys.stdout, indent=1)
        print()
    else:
        print(report(outcomes))
    return 1 if any(outcome.different for outcome in outcomes) else 0


def rows(data: Path) -> list[Row]:
    """Return all rows that vLLM's code answered."""
    found = [_sweep_row(answer, data / "configs") for answer in _sweep(data / "vllm_oracle.jsonl.gz")]
    configs = data.parent / "tools" / "vllm_oracle" / "configs"
    for path in sorted((data / "vllm_oracle").glob("*.json")):
        answer = json.loads(path.read_text())
        if isinstance(answer, dict) and "layer_specs" in answer:
            found.append(_variant_row(path.stem, answer, configs))
    return found


def _sweep(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


def settings_of(answer: dict[str, Any]) -> CacheSettings:
    """Return the settings that an answer names."""
    return CacheSettings(
        version=VERSION,
        tensor_parallel_size=answer["tp"],
        pipeline_parallel_size=answer["pp"],
        dtype=answer["dtype"].removeprefix("torch."),
        kv_cache_dtype=answer["kv_cache_dtype"],
        compute_capability=CAPABILITY[answer["gpu"]],
        max_model_len=answer["max_model_len"],
        max_num_batched_tokens=answer["max_num_batched_tokens"],
        max_num_seqs=answer["max_num_seqs"],
        async_scheduling=answer["async_scheduling"],
    )


def _sweep_row(answer: dict[str, Any], configs: Path) -> Row:
    """The sweep asked for the config's own cache type on one GPU, and for FP8 on eight unless the answer says auto."""
    asked = "auto" if answer["tp"] == 1 or answer["kv_cache_dtype"] == "auto" else "fp8"
    return Row(
        name=f"{answer['config']} tp{answer['tp']}",
        folder=configs / answer["config"],
        settings=settings_of(answer)._replace(kv_cache_dtype=asked),
        available=answer["available_kv_bytes"],
        answer=answer,
    )


def _variant_row(name: str, answer: dict[str, Any], configs: Path) -> Row:
    settings = settings_of(answer)._replace(enable_prefix_caching=answer["enable_prefix_caching"])
    block = re.search(r"\.bs(\d+)", name)  # the file name tells flags that the answer does not
    if block:
        settings = settings._replace(block_size=int(block[1]))
    contexts = re.search(r"dcp(\d+)", name)
    if contexts:
        settings = settings._replace(decode_context_parallel_size=int(contexts[1]))
    if "nohybrid" in name:
        settings = settings._replace(disable_hybrid_kv_cache_manager=True)
    folder = configs / answer["config"]
    auto_fit = name.endswith(".auto")
    if auto_fit:
        length = model_in(folder).max_position_embeddings
        settings = settings._replace(max_model_len=length or settings.max_model_len)
    return Row(
        name=name,
        folder=folder,
        settings=settings,
        available=answer["available_kv_bytes"],
        answer=answer,
        override=_override(answer),
        auto_fit=auto_fit,
    )


def _override(answer: dict[str, Any]) -> int | None:
    """Return the override that the engine's log tells of."""
    found = re.search(r"num_gpu_blocks_override=(\d+)", "\n".join(answer.get("log", ())))
    return int(found[1]) if found else None


@cache
def model_in(folder: Path) -> Model:
    """Return the model that a folder's config describes."""

    def read(name: str) -> Any:  # noqa: ANN401 - JSON
        path = folder / name
        return json.loads(path.read_text()) if path.exists() else None

    config = read("config.json")
    if config is None:
        raise CannotTell(f"{folder.name} has no config.json.", key="config.json")
    return Model.from_config(
        config,
        name=folder.name,
        hf_quant_config=read("hf_quant_config.json"),
        quantize_config=read("quantize_config.json"),
    )


def compare(row: Row) -> Outcome:
    """Return how the project's answer differs from vLLM's."""
    try:
        ours = answer_of(row)
    except (CannotTell, InputError) as error:
        return Outcome(name=row.name, refused=f"{type(error).__name__}: {error}")
    theirs = row.answer
    different = []
    for field in FIELDS:
        mine, vllms = ours.get(field), _theirs(theirs, field)
        if vllms is None and field != "error":
            continue
        if isinstance(mine, float) and isinstance(vllms, float):
            equal = abs(mine - vllms) <= CONCURRENCY_TOLERANCE * abs(vllms)
        else:
            equal = mine == vllms
        if not equal:
            different.append((field, mine, vllms))
    return Outcome(name=row.name, different=tuple(different))


def _theirs(answer: dict[str, Any], field: str) -> Any:  # noqa: ANN401 - JSON
    value = answer.get(field)
    if field == "groups" and value is not None:
        return sorted(
            [group["block_size"], group["layers"], group["page_size_bytes"], group["blocks_per_max_len_request"]]
            for group in value
        )
    if field == "error" and value is not None:
        return value.removeprefix("ValueError: ")
    return value


def answer_of(row: Row) -> dict[str, Any]:
    """Return the project's answer to a row, under vLLM's names."""
    model = model_in(row.folder)
    plan = cache_of.plan_cache(model, row.settings)
    if row.auto_fit:
        fitted = cache_of.largest_model_len(plan, row.available)
        plan = cache_of.plan_cache(model, row.settings._replace(max_model_len=fitted))
    refusal = cache_of.refusal(plan, row.available, override=row.override)
    answer: dict[str, Any] = {
        "kv_cache_dtype": plan.kv_cache_dtype,
        "max_model_len": plan.settings.max_model_len,
        "error": refusal,
    }
    if refusal is None:
        blocks = cache_of.num_gpu_blocks(plan, row.available, override=row.override)
        answer |= {
            "num_gpu_blocks": blocks,
            "groups": sorted(_first_rank(plan)),
            "bytes_per_block": plan.bytes_per_block_by_rank[0],
            "gpu_kv_cache_size_tokens": cache_of.kv_cache_size_tokens(plan, blocks),
            "max_concurrency": cache_of.max_concurrency(plan, blocks),
        }
    return answer


def _first_rank(plan: CachePlan) -> list[list[int]]:
    """Return block size, layers, page and blocks of a request of each group on the first pipeline stage."""
    unequal = any(group.page_bytes * group.layers != sum(group.bytes_by_rank) for group in plan.groups)
    return [
        [
            group.block_size,
            group.layers_by_rank[0],
            group.bytes_by_rank[0] if unequal else group.page_bytes,
            group.blocks_per_request,
        ]
        for group in plan.groups
    ]


def summary(outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the counts and the rows that are not equal."""
    compared = [outcome for outcome in outcomes if not outcome.refused]
    return {
        "rows": len(outcomes),
        "equal": sum(not outcome.different for outcome in compared),
        "different": sum(bool(outcome.different) for outcome in compared),
        "refused": len(outcomes) - len(compared),
        "fields": {
            field: sum(field in {name for name, _, _ in outcome.different} for outcome in compared) for field in FIELDS
        },
        "different_rows": [
            {"name": outcome.name, "fields": [list(item) for item in outcome.different]}
            for outcome in compared
            if outcome.different
        ],
        "refused_rows": [{"name": outcome.name, "reason": outcome.refused} for outcome in outcomes if outcome.refused],
    }


def report(outcomes: list[Outcome]) -> str:
    """Return the same as text."""
    counts = summary(outcomes)
    compared = counts["rows"] - counts["refused"]
    refused = f"{counts['refused']} refused ({counts['refused'] / counts['rows']:.1%})"
    answers = f"{counts['equal']} equal, {counts['different']} different, {refused}"
    lines = [f"{counts['rows']} rows of vLLM {_VERSION}: {answers}.", "", f"{'field':28}{'equal':>8}{'different':>12}"]
    lines += [f"{field:28}{compared - wrong:>8}{wrong:>12}" for field, wrong in counts["fields"].items()]
    for row in counts["different_rows"]:
        lines.append(f"\ndifferent  {row['name']}")
        lines += [f"  {field}: {ours}, vLLM {theirs}" for field, ours, theirs in row["fields"]]
    reasons = Counter(row["reason"] for row in counts["refused_rows"])
    for reason, count in reasons.most_common():
        names = [row["name"] for row in counts["refused_rows"] if row["reason"] == reason]
        lines.append(f"\nrefused {count}: {reason}\n  {', '.join(names)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
