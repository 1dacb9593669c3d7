"""A checkpoint as it lies in its place: its config files, and what the headers of its weight files say."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.headers.tensors import Tensor

SAFETENSORS = "safetensors"
GGUF = "gguf"
PYTORCH = "pytorch"


class Checkpoint(NamedTuple):
    """What is known of a checkpoint before a single weight is read.

    Attributes:
        name: What the user called it.
        source: Where it was read: a path, or the hub id with its commit.
        config: The parsed `config.json`; of a GGUF file what its metadata says, under the same keys.
        hf_quant_config: The parsed `hf_quant_config.json` of ModelOpt, if there is one.
        quantize_config: The parsed `quantize_config.json` or `quant_config.json`, if there is one.
        format: `SAFETENSORS`, `GGUF`, `PYTORCH`, or None where only configs lie.
        tensors: Every stored tensor, None where no header was read.
        stored_bytes: Bytes of all tensors: their sum, or what an index or the hub says of them, or None.
        parameters_by_dtype: What the hub's metadata counts for each data type, in its spelling; None if not asked.
        metadata: A GGUF file's key-values.
        read: How the weights are known, a short phrase for the source column: ``headers of 15 files``.
        notes: What was odd and does not stop a budget, a sentence each.
    """

    name: str
    source: str
    config: Mapping[str, Any]
    hf_quant_config: Mapping[str, Any] | None = None
    quantize_config: Mapping[str, Any] | None = None
    format: str | None = None
    tensors: tuple[Tensor, ...] | None = None
    stored_bytes: int | None = None
    parameters_by_dtype: Mapping[str, int] | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    read: str = "config.json"
    notes: tuple[str, ...] = ()
