"""The weights, taken apart by group and by how they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget import __version__
from kvbudget.budgeting import SCHEMA
from kvbudget.engines import vllm
from kvbudget.engines.vllm_classes import built_model
from kvbudget.engines.vllm_towers import served_model
from kvbudget.facts.formats import dtype_bytes
from kvbudget.model.shapes import Group
from kvbudget.parallel import rank_weight

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kvbudget.deployment import Deployment
    from kvbudget.engines.estimate import Estimate
    from kvbudget.model import Model
    from kvbudget.model.shapes import Weight


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRow:
    """The weights of one group that are stored alike.

    Args:
        group: The part of the model.
        format: How they are stored, in words.
        quantized: Whether that is another type than the model's own.
        parameters: As people count them, in the whole model.
        bytes: On one rank, scales and buffers included.
        whole_bytes: The same in the whole model.
    """

    group: Group
    format: str
    quantized: bool
    parameters: int
    bytes: int
    whole_bytes: int

    @property
    def bits(self) -> float | None:
        """Bits of one parameter, scales included; None for buffers, which are no parameters, and what is not loaded."""
        return 8 * self.whole_bytes / self.parameters if self.parameters and self.whole_bytes else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightExplanation:
    """The weights, group by group.

    Args:
        deployment: What it explains.
        dtype: The type of what is not quantized.
        rows: Groups and formats in the order of `Group`, MTP apart.
        mtp: The multi-token-prediction layers, which are loaded only for speculative decoding.
        loaded: What the engine holds after loading on one rank: these tensors, RoPE tables, what it makes of them.
        notes: Sentences.
    """

    deployment: Deployment
    dtype: str
    rows: tuple[WeightRow, ...]
    mtp: tuple[WeightRow, ...]
    loaded: Estimate
    notes: tuple[str, ...]

    @property
    def parameters(self) -> int:
        """Parameters of all rows without MTP: the model's."""
        return sum(row.parameters for row in self.rows)

    @property
    def bytes(self) -> int:
        """Bytes of all rows without MTP on one rank."""
        return sum(row.bytes for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as plain data."""
        d, model = self.deployment, self.deployment.model
        return {
            "schema": SCHEMA,
            "kvbudget": __version__,
            "explains": "weights",
            "model": {"id": model.name, "source": model.source},
            "dtype": self.dtype,
            "quantization": model.quantization.describes if model.quantization else None,
            "tensor_parallel_size": d.tensor_parallel_size,
            "parameters": self.parameters,
            "active_parameters": model.active_parameters,
            "bytes": self.bytes,
            "loaded_bytes": {"low": self.loaded.low, "best": self.loaded.best, "high": self.loaded.high},
            "groups": [_weight_dict(row) for row in self.rows],
            "mtp": [_weight_dict(row) for row in self.mtp],
            "notes": list(self.notes),
        }


def _weight_dict(row: WeightRow) -> dict[str, Any]:
    return {
        "group": row.group.value,
        "format": row.format,
        "quantized": row.quantized,
        "parameters": row.parameters,
        "bytes": row.bytes,
    }


def explain_weights(d: Deployment) -> WeightExplanation:
    """Return the weights of one rank by group and format; parameters are those of the whole model.

    Raises:
        InputError, CannotTell: As `kvbudget.budget`.
    """
    d = vllm.served(d)
    model, s = d.model, vllm.settings(d)
    dtype, tp = s.dtype, d.tensor_parallel_size
    fixed = vllm.fixed(
        model,
        s.version,
        dtype,
        (tp, tp * d.data_parallel_size, d.enable_expert_parallel),
        None,
        (s.max_num_batched_tokens, s.max_num_seqs),
        s.enforce_eager,
        d.card,
        limits=s.limits,
    )
    model = built_model(model, s.version)
    built = {tower.name for tower in served_model(model, s.limits).towers if tower.loaded}
    unloaded = {id(weight) for tower in model.towers if tower.name not in built for weight in tower.weights}
    rows = _weight_rows(((path, weight) for _, path, weight in model.weights()), d, dtype, unloaded)
    last = len(model.layers)
    behind = (
        (f"{model.prefix}.{last + i}.{weight.name}", weight)
        for i, layer in enumerate(model.mtp)
        for weight in layer.weights
    )
    mtp = _weight_rows(behind, d, dtype)
    notes = (*vllm.quantization_cautions(d, s.version), *_weight_notes(model, dtype, rows))
    return WeightExplanation(deployment=d, dtype=dtype, rows=rows, mtp=mtp, loaded=fixed.weights, notes=notes)


NOT_LOADED = "not loaded by vLLM"


def _weight_rows(
    weights: Iterable[tuple[str, Weight]], d: Deployment, dtype: str, unloaded: Collection[int] = ()
) -> tuple[WeightRow, ...]:
    """Return the rows of some weights; `unloaded` holds the identities of those that the engine leaves out."""
    own, model = dtype_bytes(dtype), d.model
    totals: dict[tuple[Group, str, bool], list[int]] = {}
    for path, weight in weights:
        part = rank_weight(
            weight,
            d.tensor_parallel_size,
            expert_parallel=d.enable_expert_parallel,
            expert_ranks=d.tensor_parallel_size * d.data_parallel_size,
        )
        left_out = id(weight) in unloaded
        name, quantized = (NOT_LOADED, False) if left_out else _format(model, path, weight, dtype)
        total = totals.setdefault((weight.group, name, quantized), [0, 0, 0])
        total[0] += weight.parameters
        for i, stored in ((1, part), (2, weight)):
            total[i] += 0 if left_out else model.held_bytes(path, weight, own, shard=stored)
    order = list(Group)
    return tuple(
        WeightRow(group=group, format=name, quantized=quantized, parameters=parameters, bytes=size, whole_bytes=whole)
        for (group, name, quantized), (parameters, size, whole) in sorted(
            totals.items(), key=lambda item: (order.index(item[0][0]), -item[1][1])
        )
    )


def _format(model: Model, path: str, weight: Weight, dtype: str) -> tuple[str, bool]:
    """Return (how a weight is stored, in words; whether that is another type than the model's own)."""
    scheme = model.scheme_for(path, weight)
    if scheme is not None:
        return scheme.name, True
    held = model.stored.modules.get(path) if model.stored is not None else None
    if held is not None and not held.plain:
        return f"{held.dtype} as stored", True
    return f"{weight.dtype or dtype}{', buffers' if weight.buffer else ''}", False


def _weight_notes(model: Model, dtype: str, rows: tuple[WeightRow, ...]) -> tuple[str, ...]:
    notes = []
    if model.quantization is not None:
        plain = [row for row in rows if not row.quantized and row.bytes]
        share = sum(row.bytes for row in plain) / max(1, sum(row.bytes for row in rows))
        groups = ", ".join(dict.fromkeys(row.group.value for row in plain if row.parameters))
        if groups:
            notes.append(f"Not quantized: {groups}; {share:.0%} of the bytes.")
        notes.append(
            "Smaller weights, and memory hardly shrank? The KV cache takes what the weights leave, so the GPU looks as "
            "full as before; what grew is the number of requests (the kv_cache line of `kvbudget fit`)."
        )
        asked = model.quantization.kv_cache_dtype
        said = (
            f"the checkpoint asks for {asked}"
            if asked
            else f"it stays in {dtype} until --kv-cache-dtype says otherwise"
        )
        notes.append(f"The KV cache is another setting: {said}.")
    if model.active_parameters != model.parameters:
        notes.append(
            f"All {model.num_experts} experts stay in memory; a token uses {model.num_experts_per_tok} of them, which "
            "saves arithmetic and no bytes."
        )
    if model.tied:
        notes.append("The head is the embedding and is counted once.")
    return tuple(notes)
