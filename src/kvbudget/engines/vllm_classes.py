"""vLLM: what its classes build otherwise than the model's config says.

Source: vLLM 0.32, model_executor/models/; the classes are in `kvbudget.facts.vllm`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kvbudget.facts import vllm as facts
from kvbudget.model.shapes import Group, Split

if TYPE_CHECKING:
    from kvbudget.facts.vllm import Version
    from kvbudget.model import Layer, Model


@lru_cache(maxsize=256)
def built_model(model: Model, version: Version) -> Model:
    """Return the model as its class builds it.

    Some classes give the output head memory of its own though the config ties it to the embedding; the copy is no
    parameter as people count them. One that runs through transformers without a plan for tensor parallelism has its MLP
    whole on every rank.
    """
    if model.tied and model.architecture in facts.OWN_HEAD:
        heads = tuple(
            replace(weight, name="lm_head", group=Group.HEAD, buffer=True)
            for weight in model.outside
            if weight.group is Group.EMBEDDINGS and weight.split is Split.VOCAB
        )
        model = replace(model, outside=model.outside + heads, tied=False)
    if model.architecture in facts.WHOLE_MLP and through_transformers(model, version):
        whole = {id(layer): _whole_mlp(layer) for layer in model.layers}
        model = replace(model, layers=tuple(whole[id(layer)] for layer in model.layers))
    return model


def through_transformers(model: Model, version: Version) -> bool:
    """Return whether the class is transformers' own, in which vLLM replaces layers."""
    return model.architecture in facts.THROUGH_TRANSFORMERS and version >= facts.THROUGH_TRANSFORMERS_SINCE


def _whole_mlp(layer: Layer) -> Layer:
    weights = (
        replace(weight, split=Split.REPLICATED) if weight.group is Group.MLP else weight for weight in layer.weights
    )
    return layer._replace(weights=tuple(weights))
