"""Recorded starts turned into logs in the formats of their versions, and read back by `kvbudget check`'s reader.

    python bench/check_logs.py LAUNCHES.jsonl [--all]

Each row's figures become the lines that its version prints (every version in turn where none is told), with colours and
container prefixes in turn. A figure counts as read if it comes back within the rounding of its format.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parent))

from relatives import RELEASES

from kvbudget.check import Observation, read_log
from kvbudget.facts.vllm import parse_version
from kvbudget.units import GIB
from vllm_lines import start_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    Version = tuple[int, int, int]

VERSIONS: tuple[Version, ...] = (
    (0, 4, 3),
    (0, 6, 6),
    (0, 7, 3),
    *(parse_version(text) for _, text in RELEASES),
    (0, 33, 0),
)

TERMS = {
    "model_weights_gib": ("weights", "weights", GIB),
    "available_kv_gib": ("available", "available_kv_cache_memory", GIB),
    "kv_tokens": ("tokens", "kv_cache_size_tokens", 1),
    "max_concurrency": ("concurrency", "max_concurrency", 1),
    "cuda_graph_gib": ("graphs", "cuda_graphs", GIB),
    "gpu_blocks": ("blocks", "num_gpu_blocks", 1),
}
"""Column -> (figure of the renderer, term of the reader, unit)."""


def wrapped(lines: list[str], number: int) -> list[str]:
    """Return lines as a container's log has them, another way for each number."""
    how = number % 5
    if how == 1:
        return [f"2026-06-10T12:00:01.123456789Z stderr F {line}" for line in lines]
    if how == 2:
        return [f"vllm-1  | \x1b[0;36m{line}\x1b[0;0m" for line in lines]
    if how == 3:
        return [f"[pod/vllm-0/server] {line}" for line in lines]
    if how == 4:
        return [json.dumps({"log": f"{line}\n", "stream": "stderr"}) for line in lines]
    return lines


def versions_of(row: dict[str, Any]) -> tuple[Version, ...]:
    """Return the version of a row, or all where it is not told."""
    parts = str(row["engine_version"] or "").split(".")
    if len(parts) >= 2 and all(part.isdecimal() for part in parts[:2]):
        patch = parts[2] if len(parts) > 2 and parts[2].isdecimal() else "0"
        return ((int(parts[0]), int(parts[1]), int(patch)),)
    return VERSIONS


def figures_of(row: dict[str, Any]) -> dict[str, Any]:
    """Return what the row has for the renderer."""
    seen = row["observed"]
    found = {name: seen[column] for column, (name, _, _) in TERMS.items() if seen[column] is not None}
    found["length"] = seen["max_concurrency_at_len"] or row["flags"]["max_model_len"] or 4096
    if row["fit"] is False and seen["err_needed_kv_gib"]:
        found |= {"needed": seen["err_needed_kv_gib"], "available": seen["err_available_kv_gib"] or 0.01}
        found |= {"fits": seen["err_estimated_max_len"], "length": seen["err_max_seq_len"] or found["length"]}
    return found


def compared(f: dict[str, Any], version: Version, seen: Observation) -> Iterator[tuple[str, bool]]:
    """Yield (term, whether it was read) for each figure that the version prints."""
    printed = {"weights"}
    if version < (0, 8, 0):
        printed |= {"blocks"} | ({"concurrency"} if version >= (0, 6, 4) else set())
    elif "needed" in f:
        printed |= {"available"}
    else:
        printed |= {"available", "tokens", "graphs"} | ({"concurrency"} if "tokens" in f else set())
    for name, term, unit in TERMS.values():
        if name in f and name in printed:
            figure = seen.smallest(term)
            wanted = f[name] * unit
            yield name, figure is not None and abs(figure.value - wanted) <= 1.01 * (figure.slack or 0.0051 * unit)
    if "needed" in f and version >= (0, 8, 0):
        yield "refusal", bool(seen.refusals) and seen.refusals[-1].name in ("cache_too_small", "no_cache_memory")
    yield "version", seen.version is not None and seen.version.value == ".".join(map(str, version))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("launches", type=Path)
    parser.add_argument("--all", action="store_true", help="list every figure that was not read")
    options = parser.parse_args()
    read: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    logs = rows = 0
    for number, line in enumerate(options.launches.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        if row["engine"] != "vllm":
            continue
        rows += 1
        f = figures_of(row)
        for version in versions_of(row):
            logs += 1
            args = {"model": row["model"], "max_model_len": f["length"]}
            seen = read_log(wrapped(start_up(version, f, args), number), row["id"])
            for name, ok in compared(f, version, seen):
                (read if ok else missed)[name] += 1
                if not ok and options.all:
                    print(f"{row['id']} {version} {name}: {f.get(name)} {seen.terms.keys()}")
    print(f"{rows} starts as {logs} logs of {len(VERSIONS)} versions")
    for name in sorted(read | missed):
        print(f"  {name:12} {read[name]:5} read, {missed[name]} missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
