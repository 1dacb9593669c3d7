"""From a config's quantization section, or the file beside it, to a `Recipe`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kvbudget.errors import CannotTell
from kvbudget.model.config import Config
from kvbudget.model.quantization_methods import NESTED_KEYS, Section, read_section
from kvbudget.model.schemes import TOWERS, Part, Recipe, Rule, Scheme, weight_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

SECTION_KEYS = ("quantization_config", "compression_config", "quantization")
"""Where configs keep the section: transformers, early compressed-tensors, MLX."""


def read_recipe(
    config: Mapping[str, Any],
    hf_quant_config: Mapping[str, Any] | None = None,
    quantize_config: Mapping[str, Any] | None = None,
) -> Recipe | None:
    """Return how the checkpoint is quantized, None if it is not.

    The config's own section wins, then that of its text config, then the files beside it. Unlike vLLM, which
    ignores them, a `hf_quant_config.json` without a producer and a lone `quantize_config.json` are believed.

    Args:
        config: The parsed `config.json`.
        hf_quant_config: The parsed `hf_quant_config.json` of ModelOpt.
        quantize_config: The parsed `quantize_config.json` of AutoGPTQ or `quant_config.json` of AutoAWQ.

    Raises:
        CannotTell: The method, or a variant of it, is not known; `key` names what says so.
        InputError: The section is broken or contradicts itself.
    """
    found = _section(config)
    if found is None and hf_quant_config:
        found = Section(Config(hf_quant_config, path="hf_quant_config."), config)
    if found is None and quantize_config:
        method = quantize_config.get("quant_method") or ("awq" if "w_bit" in quantize_config else "gptq")
        found = Section(Config({**quantize_config, "quant_method": method}, path="quantize_config."), config)
    if found is None:
        if config.get("quantization_bit"):
            raise CannotTell(
                "quantization_bit names a quantization that is made while loading, whose size is not known; "
                "remove it for the size of the checkpoint.",
                key="quantization_bit",
            )
        return None
    recipe = read_section(found)
    return replace(recipe, never=recipe.never | TOWERS) if recipe is not None and found.nested else recipe


def _section(config: Mapping[str, Any]) -> Section | None:
    top = Config(config)
    for key in SECTION_KEYS:
        if isinstance(config.get(key), dict) or key == SECTION_KEYS[0]:
            section = top.sub(key)
            if section is not None and section.data:
                return Section(section, config)
    for key in NESTED_KEYS:
        nested = top.sub(key) if isinstance(config.get(key), dict) else None
        section = nested.sub(SECTION_KEYS[0]) if nested is not None else None
        if section is not None and section.data:
            return Section(section, config, nested=True)
    return None


__all__ = ["Part", "Recipe", "Rule", "Scheme", "read_recipe", "weight_bytes"]
