"""Vision and audio towers: what a multimodal checkpoint holds besides its language model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvbudget.facts.tower_defaults import COMPOSITE_DEFAULTS
from kvbudget.model.tower_parts import refuse
from kvbudget.model.tower_readers import READERS
from kvbudget.model.tower_remote_code import REMOTE_READERS

if TYPE_CHECKING:
    from kvbudget.model.config import Config
    from kvbudget.model.shapes import Tower

MARKS = ("vision", "visual", "audio", "speech", "sound", "image", "img", "siglip")
"""Words in the name of a top-level key that holds an object: it describes a tower."""

NAMES = (
    "mm_vision_tower",
    "vision_tower",
    "vision_encoder",
    "audio_tower",
    "audio_encoder",
    "speech_encoder",
)
"""Top-level keys that name a tower instead of describing it."""


def read_towers(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Return the vision and audio towers of a config with their projectors, nothing for a text-only model.

    A tower whose `loaded` is false stands for what the checkpoint has behind the feature layer: transformers
    builds it, vLLM leaves it out. Where a config has no section for a tower that its class always builds, the
    class's own default is read and remembered among the assumptions, as transformers and vLLM do.

    Args:
        c: The whole config.
        text_hidden: The language model's width, which projectors lead to.

    Raises:
        CannotTell: There is a tower whose parts are not known; `key` is the one that announces it.
        InputError: A value cannot be read.
    """
    family = _family(c)
    if family is not None:
        reader = READERS.get(family) or REMOTE_READERS[family]
        return reader(c.extended({}, COMPOSITE_DEFAULTS.get(family, {})), text_hidden)
    for key, value in c.data.items():
        described = isinstance(value, Mapping) and value and any(mark in key for mark in MARKS)
        if described or (key in NAMES and isinstance(value, str) and value):
            refuse(c, key)
    return ()


def _family(c: Config) -> str | None:
    """Return the reader's name: that of the class in `architectures`, else that of the model type, or None."""
    model_type = c.text("model_type") or ""
    if model_type.endswith("_text") and not c.has("vision_config", "audio_config"):
        return None
    architectures = c.data.get("architectures")
    classes = [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    names = [*(name.removesuffix("ForConditionalGeneration") for name in classes), model_type]
    return next((name for name in map(_plain, names) if name in READERS or name in REMOTE_READERS), None)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()
