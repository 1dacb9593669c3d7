"""vLLM: which towers of a multimodal model are loaded, and how, under limits on images, audio and video.

Source: vLLM 0.32, model_executor/models/interfaces.py (_mark_tower_model: a tower none of whose modalities is allowed
is not built), config/model.py (a model whose modalities are all off runs as a text model), and the classes in
`kvbudget.facts.multimodal`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

from kvbudget.facts import multimodal as facts
from kvbudget.model.shapes import Group, Split

if TYPE_CHECKING:
    from kvbudget.model import Model
    from kvbudget.model.shapes import Tower
    from kvbudget.multimodal import Limits


@lru_cache(maxsize=256)
def served_model(model: Model, limits: Limits) -> Model:
    """Return the model as it is loaded under limits: towers that nothing reaches are left out.

    With `--mm-encoder-tp-mode data` the vision tower stands whole on every rank, if the class knows how.
    """
    kept = tuple(tower for tower in model.towers if _is_built(model, tower, limits))
    whole = limits.encoder_tp_mode == "data" and model.architecture in facts.DATA_PARALLEL
    if whole:
        kept = tuple(_whole(tower) if tower.group is Group.VISION else tower for tower in kept)
    return model if kept == model.towers else replace(model, towers=kept)


def optional_towers(model: Model, limits: Limits) -> tuple[Tower, ...]:
    """Return the towers that are loaded under limits and would not be with `--language-model-only`."""
    needed = {tower.name for tower in served_model(model, limits._replace(nothing=True)).towers}
    return tuple(tower for tower in served_model(model, limits).towers if tower.loaded and tower.name not in needed)


def text_only(model: Model, limits: Limits) -> bool:
    """Return whether nothing but text can reach a multimodal model."""
    known = facts.TOWERS.get(model.architecture)
    return limits.nothing or (known is not None and not any(limits.allows(each) for each in known))


def _is_built(model: Model, tower: Tower, limits: Limits) -> bool:
    """Return whether a tower is built; one that is not known to depend on limits is."""
    for modalities in facts.TOWERS.get(model.architecture, ()):
        hears = "audio" in modalities
        sees = bool(modalities - {"audio"})
        if (tower.group is Group.AUDIO and hears) or (tower.group is Group.VISION and sees):
            return limits.allows(modalities)
    return True


def _whole(tower: Tower) -> Tower:
    return tower._replace(
        weights=tuple(
            weight if weight.split is Split.REPLICATED else replace(weight, split=Split.REPLICATED)
            for weight in tower.weights
        )
    )
