"""How a layout divides a model: weights over tensor-parallel ranks, layers over pipeline stages.

Source: vLLM 0.32, model_executor/layers/linear.py (column and row), vocab_parallel_embedding.py (the vocabulary is
padded to 64 rows and then to the ranks), layers/fused_moe/ (experts), distributed/utils.py (get_pp_indices).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.model.shapes import Split

if TYPE_CHECKING:
    from kvbudget.model.shapes import Weight

VOCAB_PADDING = 64


def local_heads(heads: int, tensor_parallel_size: int) -> int:
    """Return the KV heads that one rank holds: an equal share, or one copy when there are more ranks than heads."""
    return max(1, heads // tensor_parallel_size)


def padded_vocab(rows: int, tensor_parallel_size: int) -> int:
    """Return the vocabulary rows of one rank, padding included."""
    padded = -(-rows // VOCAB_PADDING) * VOCAB_PADDING
    return -(-padded // tensor_parallel_size)


def rank_weight(
    weight: Weight, tensor_parallel_size: int, *, expert_parallel: bool = False, expert_ranks: int = 0
) -> Weight:
    """Return the part of `weight` that one tensor-parallel rank holds.

    With expert parallelism `expert_ranks` GPUs share the experts, those of all data-parallel replicas; by default the
    tensor-parallel ones (config/parallel.py, ep_size = tp x dp).

    The vocabulary is padded on a single GPU too. A dimension that does not divide is rounded up, as the largest rank
    holds it; layouts that an engine refuses are refused before.
    """
    tp = tensor_parallel_size
    out, inner, bias = weight.out_features, weight.in_features, weight.bias
    if weight.split is Split.VOCAB:
        return replace(weight, out_features=padded_vocab(out, tp), bias=padded_vocab(bias, tp) if bias else 0)
    if weight.split is Split.EXPERT and expert_parallel:
        return replace(weight, count=-(-weight.count // max(expert_ranks, tp)))
    if tp == 1 or weight.split is Split.REPLICATED:
        return weight
    if weight.heads % tp and weight.split in (Split.COLUMN, Split.ROW):
        return weight  # a tower whose heads do not divide is loaded whole on every rank
    if weight.split is Split.COLUMN:
        return replace(weight, out_features=-(-out // tp), bias=-(-bias // tp))
    if weight.split is Split.ROW:
        return replace(weight, in_features=-(-inner // tp))
    if weight.split is Split.KV:
        share = local_heads(weight.heads, tp)
        return replace(weight, out_features=out // weight.heads * share, bias=bias // weight.heads * share)
    return _rank_expert(weight, tp)


def _rank_expert(weight: Weight, tp: int) -> Weight:
    """Each expert's width is divided, which is the input of its down matrix."""
    if weight.name.endswith("down_proj"):
        return replace(weight, in_features=-(-weight.in_features // tp))
    return replace(weight, out_features=-(-weight.out_features // tp), bias=-(-weight.bias // tp))


def stage_bounds(layers: int, pipeline_parallel_size: int) -> tuple[tuple[int, int], ...]:
    """Return (first, end) layer of each pipeline stage; a remainder goes to the stages before the last, backwards.

    Source: vllm/distributed/utils.py get_pp_indices, 0.32: 80 layers over 3 stages are 27, 27, 26.
    """
    if pipeline_parallel_size > layers:
        raise InputError(
            f"--pipeline-parallel-size {pipeline_parallel_size}: the model has {layers} layers, fewer than the stages; "
            f"choose at most {layers}."
        )
    sizes = [layers // pipeline_parallel_size] * pipeline_parallel_size
    for i in range(2, 2 + layers % pipeline_parallel_size):
        sizes[-i] += 1
    bounds, start = [], 0
    for size in sizes:
        bounds.append((start, start + size))
        start += size
    return tuple(bounds)


def divisors(number: int, limit: int = 64) -> tuple[int, ...]:
    """Return the divisors of `number` up to `limit`, for messages that name legal layouts."""
    return tuple(i for i in range(1, min(number, limit) + 1) if number % i == 0)
