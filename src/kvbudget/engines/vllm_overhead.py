"""What vLLM needs besides weights and cache, estimated from what its profile run allocates.

None of these can be known exactly without the GPU. Each function returns a low, a best and a high figure; the
coefficients are rows in `kvbudget.facts.vllm` with the launches they were held against.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.engines.estimate import Estimate
from kvbudget.facts.vllm import (
    CONTEXT_BYTES,
    GRAPH_BYTES,
    LOGIT_BYTES,
    NCCL_BYTES,
    NON_TORCH_BYTES,
    RESIDUAL_COPIES,
    WIDTH_SPREAD,
    Version,
    at,
)
from kvbudget.model.shapes import Group, Split

if TYPE_CHECKING:
    from kvbudget.model import Layer, Model

EXPERT_CHUNK_TOKENS = 32_768
"""Experts work through long batches in chunks of this many tokens (vllm/envs.py, VLLM_FUSED_MOE_CHUNK_SIZE)."""


def activations(
    model: Model,
    version: Version,
    *,
    batched_tokens: int,
    num_seqs: int,
    tensor_parallel_size: int,
    element_bytes: int,
) -> Estimate:
    """Return the peak of transient memory in the profile run of one rank.

    The profile run sends `batched_tokens` tokens through all layers without attention, then samples for
    min(`batched_tokens`, `num_seqs`) requests (vllm/v1/worker/gpu/model_runner.py, profile_run, 0.32). The peak is the
    larger of the two: the widest layer's live tensors over all tokens, or logits and sampling over the vocabulary.

    Known error: kernels' workspaces and fragmentation are not derived; the bounds are for them.
    """
    tokens = batched_tokens
    widest = max(
        (_live_values(layer, tensor_parallel_size, model.num_experts_per_tok) for layer in set(model.layers)),
        default=0,
    )
    hidden = RESIDUAL_COPIES * model.hidden_size
    layer_bytes = tokens * (hidden + widest) * element_bytes
    rows = min(tokens, num_seqs)
    logits = rows * model.vocab_size
    per_logit = at(LOGIT_BYTES, version)
    stay = tokens * model.hidden_size * element_bytes
    low, high = WIDTH_SPREAD
    return Estimate(
        low=int(max(layer_bytes * low, stay + logits * per_logit[0])),
        best=int(max(layer_bytes, stay + logits * per_logit[1])),
        high=int(max(layer_bytes * high, stay + logits * per_logit[2])),
        source=f"profile run of {tokens:,} tokens and {rows:,} requests (vLLM model_runner.profile_run)",
    )


def _live_values(layer: Layer, tensor_parallel_size: int, experts_per_token: int) -> int:
    """Return the values that one token keeps alive at the widest point of a layer on one rank."""
    mixer = mlp = routed = 0
    for weight in layer.weights:
        if not weight.linear:
            continue
        split = tensor_parallel_size if weight.split is not Split.REPLICATED else 1
        if weight.group is Group.EXPERTS:
            routed += _width(weight.out_features, weight.in_features, weight.name) // split
        elif weight.group in (Group.MLP, Group.SHARED_EXPERTS):
            mlp += _width(weight.out_features, weight.in_features, weight.name) // split
        elif weight.group in (Group.ATTENTION, Group.STATE):
            mixer += weight.out_features // split
    return max(mixer, mlp + routed * max(1, experts_per_token))


def _width(out_features: int, in_features: int, name: str) -> int:
    """The input of the last matrix of an MLP is one more live tensor; its output is in the residual."""
    return in_features if name.endswith(("down_proj", "w2", "fc2")) else out_features


def cuda_graphs(model: Model, version: Version, *, enforce_eager: bool) -> Estimate:
    """Return the memory of captured CUDA graphs on one rank; none with `--enforce-eager`."""
    if enforce_eager:
        return Estimate(0, 0, 0, "--enforce-eager")
    base, per_layer, low, high = at(GRAPH_BYTES, version)
    best = base + per_layer * len(model.layers)
    return Estimate(int(best * low), best, int(best * high), f"fitted: {len(model.layers)} layers captured")


def non_torch(*, tensor_parallel_size: int, world_size: int) -> Estimate:
    """Return what libraries allocate outside torch while the model loads and runs once."""
    low, best, high = NON_TORCH_BYTES
    if world_size > 1:
        low, best, high = (a + b for a, b in zip((low, best, high), NCCL_BYTES, strict=True))
    return Estimate(low, best, high, f"cuBLAS, kernels' workspaces{', NCCL' if tensor_parallel_size > 1 else ''}")


def context() -> Estimate:
    """Return the CUDA context, which lives outside the budget."""
    return Estimate(*CONTEXT_BYTES, "CUDA context and driver")
