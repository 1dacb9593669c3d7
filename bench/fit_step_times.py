"""Fit the rates of `kvbudget.facts.step_times` to tables of measured operations.

    python bench/fit_step_times.py SYSTEMS [CARD ...]

SYSTEMS is the folder ``aiconfigurator_core/systems`` of an unpacked aiconfigurator-core wheel (Apache-2.0), whose
tables hold the latency of single operations on each card. Needs pyarrow. Prints one row a card: for
matrix products, attention and experts a constant a call and the rate of what is left, and for each number of ranks what
an all-reduce takes.

A constant is the median of the smallest calls. A rate is the median over calls that are bound by it: by memory with at
most 64 rows and more bytes than any cache holds, by arithmetic with 1,024 rows or more.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = dict[str, Any]
Point = tuple[float, float]
"""(work, seconds)."""

BEYOND_CACHE = 1.5 * 128 * 1024**2
"""Bytes; the largest cache among the cards has 128 MiB, and a step reads far more than fits into it."""

CARDS = {
    "a100_sxm": "A100-SXM-80GB",
    "l40s": "L40S-48GB",
    "h100_sxm": "H100-SXM-80GB",
    "h200_sxm": "H200-SXM-141GB",
    "b200_sxm": "B200-SXM-180GB",
    "b300_sxm": "B300-SXM-288GB",
    "gb200": "GB200-186GB",
    "gb300": "GB300-288GB",
    "rtx_pro_6000_server": "RTX-PRO-6000-96GB",
    "b60": "Arc-Pro-B60-24GB",
}


def newest(systems: Path, card: str, operation: str, name: str) -> tuple[str, list[Row]]:
    """Return the version of vLLM in the newest table and its rows, ("", []) if there is none."""
    import pyarrow.parquet as pq  # type: ignore[import-not-found,unused-ignore] # noqa: PLC0415 - only for this script

    tables = sorted((systems / "data" / card / operation / "vllm").glob(f"*/{name}.parquet"))
    if not tables:
        return "", []
    return tables[-1].parent.name, [row for row in pq.read_table(tables[-1]).to_pylist() if row["latency"] > 0]


def fitted(small: Iterable[Point], large: Iterable[Point]) -> tuple[float, float]:
    """Return (constant in µs, rate in 10^9 a second): medians of the small calls, and of the large ones without it."""
    constant = median(seconds for _, seconds in small)
    rates = [work / (seconds - constant) for work, seconds in large if seconds > constant]
    return round(constant * 1e6, 1), float(f"{median(rates) / 1e9:.3g}")


def products(rows: list[Row], dtype: str, size: int) -> tuple[float, float, float] | None:
    """Return constant, bytes and operations a second of matrix products."""
    chosen = [(row["m"], row["n"], row["k"], row["latency"] / 1e3) for row in rows if row["gemm_dtype"] == dtype]
    if not chosen:
        return None
    small = [(0.0, time) for m, n, k, time in chosen if m <= 16 and n * k <= 1 << 20]
    memory = [(size * (n * k + m * k) + 2.0 * m * n, time) for m, n, k, time in chosen if m <= 64]
    flops = [(2.0 * m * n * k, time) for m, n, k, time in chosen if 1024 <= m <= 8192 and min(n, k) >= 1024]
    constant, bandwidth = fitted(small, (point for point in memory if point[0] > BEYOND_CACHE))
    return constant, bandwidth, fitted(small, flops)[1] / 1e3


def attention(decode: list[Row], prefill: list[Row]) -> tuple[float, float, float]:
    """Return constant, bytes and operations a second of attention with grouped heads of 128."""
    ours = [
        [
            row
            for row in rows
            if row["kv_cache_dtype"] == "bfloat16" and not row.get("window_size") and row["head_dim"] == 128
            and row["num_key_value_heads"] < row["num_heads"]
        ]
        for rows in (decode, prefill)
    ]  # fmt: skip
    small = [(0.0, row["latency"] / 1e3) for row in ours[0] if row["batch_size"] <= 4 and row["step"] <= 1024]
    memory = [
        (512.0 * row["batch_size"] * (row["step"] + 1) * row["num_key_value_heads"], row["latency"] / 1e3)
        for row in ours[0]
        if row["step"] >= 200
    ]
    flops = [
        (256.0 * row["batch_size"] * row["num_heads"] * row["isl"] ** 2, row["latency"] / 1e3)
        for row in ours[1]
        if row["isl"] >= 1024 and row["num_heads"] >= 4
    ]
    constant, bandwidth = fitted(small, (point for point in memory if point[0] > BEYOND_CACHE))
    return constant, bandwidth, fitted(small, flops)[1] / 1e3


def experts(rows: list[Row]) -> tuple[float, float, float] | None:
    """Return constant, bytes and operations a second of a layer's routed experts, unquantized, on one card."""
    points = []
    for row in rows:
        if row["moe_dtype"] == "bfloat16" and row["moe_ep_size"] == 1:
            one = 3.0 * row["hidden_size"] * row["inter_size"] / row["moe_tp_size"]
            used = row["num_experts"] * (1 - (1 - row["topk"] / row["num_experts"]) ** row["num_tokens"])
            work = 2 * one * row["topk"] * row["num_tokens"]
            points.append((2 * one * used, work, row["num_tokens"], row["latency"] / 1e3))
    if not points:
        return None
    small = [(0.0, time) for held, _, tokens, time in points if tokens <= 2 and held <= 16e6]
    memory = [(held, time) for held, _, tokens, time in points if tokens <= 64 and held > BEYOND_CACHE]
    flops = [(work, time) for held, work, tokens, time in points if tokens >= 4096 and work / held > 1000]
    constant, bandwidth = fitted(small, memory)
    return constant, bandwidth, fitted(small, flops)[1] / 1e3


def all_reduce(rows: list[Row], ranks: int) -> tuple[float, float] | None:
    """Return constant and bytes a second of an all-reduce of 16-bit values, inside CUDA graphs where they are used."""
    chosen = [row for row in rows if row["num_gpus"] == ranks]
    graphs = [row for row in chosen if row["backend"] == "vllm_graph"] or chosen
    if not graphs:
        return None
    points = [(2.0 * row["message_size"], row["latency"] / 1e3) for row in graphs]
    return fitted(
        (point for point in points if point[0] <= 1 << 14),
        (point for point in points if 1 << 20 <= point[0] <= 1 << 26),
    )


def main() -> None:
    systems, *cards = sys.argv[1:]
    for card in cards or CARDS:
        version, rows = newest(Path(systems), card, "gemm", "gemm_perf")
        decode = newest(Path(systems), card, "attention", "generation_attention_perf")[1]
        prefill = newest(Path(systems), card, "attention", "context_attention_perf")[1]
        moe = newest(Path(systems), card, "moe", "moe_perf")[1]
        comm = newest(Path(systems), card, "comm", "custom_allreduce_perf")[1]
        print(f'    _row("{CARDS.get(card, card)}", "{version}",')
        print(f"         product={products(rows, 'bfloat16', 2)}, eight_bit={products(rows, 'fp8', 1)},")
        print(f"         attention={attention(decode, prefill)}, experts={experts(moe)},")
        links = {ranks: found for ranks in (2, 4, 8) if (found := all_reduce(comm, ranks))}
        print(f"         all_reduce={links}),")


if __name__ == "__main__":
    main()
