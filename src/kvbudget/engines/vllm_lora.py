"""vLLM: the slots for LoRA adapters, which are taken when the model is loaded, whatever adapters come.

Each slot holds a pair of matrices for each linear layer of the language model: A of rank x inputs, B of outputs x rank,
with as many of them as the rank of tensor parallelism holds.

Source: vLLM 0.32, lora/model_manager.py (_create_lora_modules: which layers) and lora/layers/ (create_lora_weights of
each: what they allocate). Older versions are counted by the same rules.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.engines.estimate import Estimate
from kvbudget.errors import InputError
from kvbudget.facts import adapters as facts
from kvbudget.facts.formats import dtype_bytes
from kvbudget.facts.vllm import PACKED_EXPERTS
from kvbudget.model.shapes import Group, Split

if TYPE_CHECKING:
    from kvbudget.engines.vllm_overhead import Share
    from kvbudget.model import Layer, Model, Weight

CONVOLUTION = "conv1d"
"""A state's convolution, which the engine builds as a linear layer (layers/mamba/), so that it takes adapters too."""

FLAG_BYTES = 4
"""An int32 for each slot and one more says which adapters touch the experts (lora/layers/fused_moe.py)."""


class Slots(NamedTuple):
    """The slots that were asked for.

    Attributes:
        max_loras: Adapters that a batch may use.
        max_lora_rank: The rank that each slot has room for.
        lora_dtype: Their data type; "auto" is the model's.
        fully_sharded_loras: Both matrices are divided over the ranks.
    """

    max_loras: int
    max_lora_rank: int
    lora_dtype: str
    fully_sharded_loras: bool


@lru_cache(maxsize=256)
def lora_bytes(model: Model, slots: Slots, dtype: str, share: Share, *, rounded: bool = False) -> int:
    """Return the bytes of the slots on one rank.

    Args:
        model: The model.
        slots: What was asked.
        dtype: The model's data type.
        share: The rank's part of the model.
        rounded: Kernels of packed weights round the experts' widths up (`kvbudget.facts.vllm.PACKED_EXPERTS`).

    Raises:
        InputError: The class takes no adapters, the rank does not divide over the GPUs, or the vocabulary is too large.
    """
    tp = share.tensor_parallel_size
    if model.architecture in facts.WITHOUT:
        raise InputError(f"--enable-lora: vLLM takes no adapters for {model.architecture}; leave it out.")
    if slots.fully_sharded_loras and slots.max_lora_rank % tp:
        raise InputError(
            f"--fully-sharded-loras: --max-lora-rank {slots.max_lora_rank} cannot be split by "
            f"--tensor-parallel-size {tp}; choose a rank that it divides."
        )
    if slots.fully_sharded_loras and share.expert_parallel and model.num_experts:
        raise InputError(
            "--fully-sharded-loras: vLLM has none for experts with --enable-expert-parallel; leave it out."
        )
    layers: dict[int, int] = {}
    values = flags = 0
    for layer in share.layers(model):
        if id(layer) not in layers:
            layers[id(layer)] = _layer_values(model, layer, slots, share, _steps(model) if rounded else (1, 1))
        values += layers[id(layer)]
        flags += any(weight.group is Group.EXPERTS for weight in layer.weights)
    values += _vocabulary_values(model, slots, share)
    size = dtype_bytes(dtype if slots.lora_dtype == "auto" else slots.lora_dtype)
    return slots.max_loras * values * size + flags * (slots.max_loras + 1) * FLAG_BYTES


def _steps(model: Model) -> tuple[int, int]:
    """Return what the experts' hidden and inner width are rounded up to."""
    method = model.quantization.method if model.quantization else ""
    return PACKED_EXPERTS.get(method, (1, 1))[:2]


def _layer_values(model: Model, layer: Layer, slots: Slots, share: Share, steps: tuple[int, int]) -> int:
    """Return the values of one slot in one layer; `steps` round the experts' hidden and inner width up.

    A weight that stands in parts, because its parts are divided differently, has one A, or one for each slice.
    """
    values = 0
    seen: set[str] = set()
    for weight in layer.weights:
        if not _adapts(model, weight):
            continue
        part = share.of(weight)
        expert = weight.group is Group.EXPERTS
        if expert:
            hidden, inner = steps
            if weight.name.endswith("down_proj"):
                hidden, inner = inner, hidden
            part = replace(part, in_features=_up(part.in_features, hidden), out_features=_up(part.out_features, inner))
        values += _values(weight, part, slots, share, shares_a=weight.name in seen or _shares(model, weight))
        if weight.name in seen:
            inner = slots.max_lora_rank // (share.tensor_parallel_size if slots.fully_sharded_loras else 1)
            values += (_slices(weight, share) - 1) * inner * part.in_features
        seen.add(weight.name)
    return values


def _adapts(model: Model, weight: Weight) -> bool:
    """Return whether a weight takes adapters: linear layers and convolutions, but for routers of ungated experts."""
    if weight.group is Group.ROUTER and model.model_type in facts.WITHOUT_ROUTER:
        return False
    return weight.linear or weight.name.endswith(CONVOLUTION)


def _slices(weight: Weight, share: Share) -> int:
    """Return the slices of Mamba-2's input projection or convolution, of which each has an A.

    They are one if the groups cannot be divided over the ranks (layers/mamba/mamba_mixer2.py).
    """
    divides = weight.heads and weight.heads % share.tensor_parallel_size == 0
    return facts.STATE_SLICES.get(weight.name.rpartition(".")[2], 1) if divides else 1


def _shares(model: Model, weight: Weight) -> bool:
    """Return whether a weight is stored in one matrix with another, whose A stands for both."""
    if weight.group is Group.EXPERTS:
        return model.model_type in facts.JOINED_EXPERTS and "gate" in weight.name
    return weight.name.endswith(facts.JOINED_LINEARS.get(model.model_type, ()))


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _values(weight: Weight, part: Weight, slots: Slots, share: Share, *, shares_a: bool) -> int:
    """Return the values of A and B for a rank's part of a weight; one whose A is another's has its B alone."""
    tp = share.tensor_parallel_size
    rank, out = slots.max_lora_rank, part.out_features
    by_row = weight.split is Split.ROW or (weight.split is Split.EXPERT and weight.name.endswith("down_proj"))
    inner = rank
    if slots.fully_sharded_loras and weight.split is not Split.REPLICATED:
        if by_row:
            out = -(-out // tp)
        else:
            inner = rank // tp
    a = 0 if shares_a else inner * part.in_features
    return part.count * (a + out * rank)


def _vocabulary_values(model: Model, slots: Slots, share: Share) -> int:
    """Return the values of one slot for the embedding and the head, whole on every rank."""
    both = model.model_type in facts.ADAPTS_VOCABULARY
    each = (model.vocab_size + model.hidden_size) * slots.max_lora_rank
    values = 0
    if both or model.model_type in facts.ADAPTS_EMBEDDING:
        values += each if share.is_first() else 0
    if both and share.is_last(model):
        if model.vocab_size > facts.LARGEST_VOCABULARY:
            raise InputError(
                f"--enable-lora: vLLM refuses vocabularies of more than {facts.LARGEST_VOCABULARY:,} rows, and this "
                f"one has {model.vocab_size:,}."
            )
        values += each
    return values


def lora(model: Model, slots: Slots, dtype: str, share: Share) -> Estimate:
    """Return the memory of the slots on one rank, an interval where kernels may round the experts' widths up."""
    plain, rounded = (lora_bytes(model, slots, dtype, share, rounded=each) for each in (False, True))
    method = model.quantization.method if model.quantization else ""
    usual = PACKED_EXPERTS.get(method, (1, 1, False))[2]
    words = f"{slots.max_loras} slot{'s' if slots.max_loras > 1 else ''} of rank {slots.max_lora_rank}"
    return Estimate(plain, rounded if usual else plain, rounded, words)
