"""The model: everything later steps need to know about it, read from a config."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.model.shapes import Group, Layer, Tower, Weight

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbudget.facts.vllm import Version
    from kvbudget.model.quantization import Recipe
    from kvbudget.model.schemes import Scheme
    from kvbudget.model.stored import Stored


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Model:
    """A language model as shapes.

    Args:
        name: What the user called it.
        source: Where the shapes were read.
        model_type: The language model's Hugging Face model type.
        architecture: The class that an engine would load, "" if the config does not say.
        layers: The decoder layers in order; equal layers are the same object.
        outside: Embeddings, final norm and output head of the language model.
        towers: Vision and audio encoders with their projectors, text encoders.
        mtp: Multi-token-prediction layers of the checkpoint, which engines load only when asked to.
        max_position_embeddings: The longest context the config allows, rope scaling included, or None.
        default_model_len: The length an engine serves when nobody says, if that is shorter (LongRoPE).
        dtype: The data type that the config names, or None.
        quantization: How the checkpoint is quantized, or None.
        stored: What the headers of the checkpoint's files say, or None where none was read.
        assumptions: (key, value) of every class default that stood in for a missing key.
        config: The parsed `config.json`.
        beside: The parsed files that were read with it, by the names of `from_config`.
    """

    name: str
    source: str
    model_type: str
    architecture: str
    layers: tuple[Layer, ...]
    outside: tuple[Weight, ...]
    towers: tuple[Tower, ...] = ()
    mtp: tuple[Layer, ...] = ()
    prefix: str = "model.layers"
    hidden_size: int
    vocab_size: int
    num_attention_heads: int
    max_position_embeddings: int | None
    default_model_len: int | None = None
    tied: bool
    num_experts: int = 0
    num_experts_per_tok: int = 0
    dtype: str | None = None
    quantization: Recipe | None = None
    stored: Stored | None = None
    assumptions: tuple[tuple[str, Any], ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    beside: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def from_config(
        config: Mapping[str, Any],
        *,
        name: str = "",
        source: str = "config.json",
        hf_quant_config: Mapping[str, Any] | None = None,
        quantize_config: Mapping[str, Any] | None = None,
    ) -> Model:
        """Return the model that a parsed `config.json` describes.

        Args:
            config: The parsed JSON object.
            name: What to call it; by default what the config calls itself.
            source: Where it came from, for messages and provenance.
            hf_quant_config: The parsed `hf_quant_config.json` beside it, if there is one.
            quantize_config: The parsed `quantize_config.json` beside it, if there is one.

        Raises:
            CannotTell: The architecture or a key is not known; the message names it.
            InputError: The config is broken or contradicts itself.
        """
        from kvbudget.model.reader import read_model  # noqa: PLC0415 - the reader imports this module's type

        return read_model(
            config, name=name, source=source, hf_quant_config=hf_quant_config, quantize_config=quantize_config
        )

    @staticmethod
    def from_pretrained(reference: str, *, revision: str | None = None) -> Model:
        """Return the model in a folder or a file, on the hub, or under a name of the built-in catalogue.

        Args:
            reference: ``./folder``, ``path/to/config.json``, ``file.gguf``, ``org/name``, ``org/name@revision`` or
                ``llama-3.1-8b``; see `kvbudget.hub.open_checkpoint`.
            revision: A branch, a tag or a commit of a hub id.

        Raises:
            AccessError: The hub cannot be reached, or does not have it or let us in.
            InputError: No such file, or a broken one.
            CannotTell: The architecture or a key is not known.
        """
        from kvbudget.hub import load_model  # noqa: PLC0415 - reading files is the hub's, one room to the right

        return load_model(reference, revision=revision)

    @staticmethod
    def from_gguf(path: str) -> Model:
        """Return the model in a GGUF file, of a split model the file of any part.

        Raises:
            AccessError: The file system does not let us in.
            InputError: No such file, or a broken one.
            CannotTell: The architecture or a key of its metadata is not known.
        """
        from kvbudget.hub import load_path  # noqa: PLC0415

        return load_path(Path(path), name=path)

    def with_quantization(self, name: str, version: Version | None = None) -> Model:
        """Return the same model as it would be if it were quantized; see `kvbudget.model.what_if`.

        Its recipe's `origin` says whether vLLM makes it while loading or whether it is a guess at a checkpoint.

        Args:
            name: ``fp8``, ``awq``, ``gptq``, ``int8``, ``nvfp4``, ``gguf:Q4_K_M`` and so on.
            version: vLLM's version; by default the newest that is known.

        Raises:
            InputError: No such quantization, or the checkpoint is quantized already.
            CannotTell: The quantization needs a configuration of its own.
        """
        return _quantized(self, name, version)

    def weights(self) -> Iterator[tuple[int | None, str, Weight]]:
        """Yield (layer number, module path, weight) of the base model: outside, layers, towers; not MTP.

        The layer number is None for what stands outside the decoder layers.
        """
        for weight in self.outside:
            yield None, weight.name, weight
        for i, layer in enumerate(self.layers):
            for weight in layer.weights:
                yield i, f"{self.prefix}.{i}.{weight.name}", weight
        for tower in self.towers:
            for weight in tower.weights:
                yield None, f"{tower.name}.{weight.name}", weight

    def scheme_for(self, path: str, weight: Weight) -> Scheme | None:
        """Return how a weight is stored by the config, None if as it is; headers that show it unpacked win."""
        held = self.stored.modules.get(path) if self.stored is not None else None
        if self.quantization is None or (held is not None and held.plain):
            return None
        return self.quantization.scheme_for(path, weight)

    def held_bytes(self, path: str, weight: Weight, own_bytes: int, *, shard: Weight | None = None) -> int:
        """Return the bytes that an engine holds of a weight: scales, zero points, bias and all.

        What the checkpoint stores unpacked takes the engine's own type; what it packs takes what its headers say, or
        where none was read what the config's recipe makes of the shape.

        Args:
            path: The module's full path (`weights`).
            weight: The whole weight.
            own_bytes: Bytes of the type that the engine serves in.
            shard: What one rank holds of it; its bytes are a share of the stored ones where headers and recipe differ.
        """
        scheme = self.scheme_for(path, weight)
        part = weight if shard is None else shard
        held = self.stored.modules.get(path) if self.stored is not None else None
        if scheme is None and (held is None or held.plain):
            return part.plain_bytes(own_bytes)
        from kvbudget.model.schemes import weight_bytes  # noqa: PLC0415 - plain models need none of it

        if held is None or held.share(weight.values) == weight_bytes(weight, own_bytes, scheme):
            return weight_bytes(part, own_bytes, self._of_rank(scheme, weight, part))
        return held.share(part.values)

    def _of_rank(self, scheme: Scheme | None, weight: Weight, part: Weight) -> Scheme | None:
        """Return how an engine holds a rank's part of a weight.

        It keeps no order of groups (GPTQ's ``g_idx``; vLLM 0.32, layers/quantization/gptq_marlin.py); blocks that are
        made while loading are the part's own.
        """
        recipe = self.quantization
        if scheme is None or recipe is None:
            return scheme
        if scheme.order_bytes:
            scheme = replace(scheme, order_bytes=0)
        whole = (part.out_features, part.in_features) == (weight.out_features, weight.in_features)
        if whole or recipe.origin == "loading" or weight.group is not Group.EXPERTS:
            return scheme
        return scheme.of_shard(part)

    @property
    def parameters(self) -> int:
        """Parameters of the base model: all experts, a tied head once, without MTP layers and buffers."""
        return (
            sum(weight.parameters for weight in self.outside)
            + sum(layer.parameters for layer in self.layers)
            + sum(tower.parameters for tower in self.towers)
        )

    @property
    def mtp_parameters(self) -> int:
        """Parameters of the multi-token-prediction layers."""
        return sum(layer.parameters for layer in self.mtp)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: of the routed experts only those it is sent to."""
        routed = self.parameters_by_group().get(Group.EXPERTS, 0)
        if not routed or not self.num_experts or not self.num_experts_per_tok:
            return self.parameters
        return self.parameters - routed + routed * self.num_experts_per_tok // self.num_experts

    def parameters_by_group(self) -> dict[Group, int]:
        """Return the parameters of each group that the model has, MTP apart."""
        totals: dict[Group, int] = {}
        for _, _, weight in self.weights():
            totals[weight.group] = totals.get(weight.group, 0) + weight.parameters
        if self.mtp:
            totals[Group.MTP] = self.mtp_parameters
        return {group: totals[group] for group in Group if totals.get(group)}


@lru_cache(maxsize=256)
def _quantized(model: Model, name: str, version: Version | None) -> Model:
    from kvbudget.facts.vllm import NEWEST  # noqa: PLC0415 - few models are asked about in another format
    from kvbudget.model.what_if import what_if  # noqa: PLC0415

    if model.quantization is not None and model.quantization.origin == "checkpoint":
        raise InputError(
            f"--quantization {name[:40]}: the checkpoint is quantized already ({model.quantization.method}); give the "
            "plain one."
        )
    return replace(model, quantization=what_if(model, name, version or NEWEST), stored=None)
