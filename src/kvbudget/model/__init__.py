"""From a config to a model: readers, one a family, and the shapes they return."""

from kvbudget.model.model import Model
from kvbudget.model.shapes import (
    Attention,
    CrossAttention,
    Group,
    Indexer,
    LatentAttention,
    Layer,
    RecurrentState,
    Tower,
    Weight,
)

__all__ = [
    "Attention",
    "CrossAttention",
    "Group",
    "Indexer",
    "LatentAttention",
    "Layer",
    "Model",
    "RecurrentState",
    "Tower",
    "Weight",
]
