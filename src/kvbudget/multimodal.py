"""`--limit-mm-per-prompt` and its kin: how much of a prompt may be images, audio and video, in vLLM's words.

Source: vLLM 0.32, config/multimodal.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.errors import InputError
from kvbudget.facts import multimodal as facts
from kvbudget.values import MAX_TEXT, json_object, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FLAG = "--limit-mm-per-prompt"
MAX_COUNT = 1 << 20


class Limit(NamedTuple):
    """What a prompt may have of one modality.

    Attributes:
        modality: "image", "video", "audio" or "vision_chunk".
        items: How many.
        width: The widest that the profile run tries, None for the largest that the processor takes.
        height: The same for the height.
    """

    modality: str
    items: int
    width: int | None = None
    height: int | None = None


class Limits(NamedTuple):
    """What the flags about images, audio and video say, together.

    Attributes:
        each: The limits that were given, by modality in order.
        nothing: `--language-model-only`.
        profiled: The encoder is part of the profile run (not `--skip-mm-profiling`).
        encoder_tp_mode: `--mm-encoder-tp-mode`: "weights" or "data".
    """

    each: tuple[Limit, ...] = ()
    nothing: bool = False
    profiled: bool = True
    encoder_tp_mode: str = "weights"

    def allowed(self, modality: str) -> int:
        """Return how many items of a modality a prompt may have."""
        if self.nothing:
            return 0
        return next((limit.items for limit in self.each if limit.modality == modality), facts.DEFAULT_LIMIT)

    def allows(self, modalities: Iterable[str]) -> bool:
        """Return whether one of the modalities may occur."""
        return any(self.allowed(modality) for modality in modalities)

    def image(self) -> Limit | None:
        """Return the limit on images, if one was given."""
        return next((limit for limit in self.each if limit.modality == "image"), None)


def parse_limits(value: object) -> tuple[Limit, ...]:
    """Return what a mapping, a JSON text or the older `image=2,video=0` says, by modality in order.

    Raises:
        InputError: It is not understood, or vLLM refuses it.
    """
    if isinstance(value, tuple) and all(isinstance(item, Limit) for item in value):
        return value
    given = _pairs(value) if isinstance(value, str) and not value.lstrip().startswith("{") else _object(value)
    return tuple(sorted(_limit(str(name), item) for name, item in given.items()))


def _object(value: object) -> Mapping[str, Any]:
    return json_object(value, flag=FLAG, example='{"image": 2, "video": 0}')


def _pairs(text: str) -> Mapping[str, Any]:
    """Return the pairs of the older spelling."""
    found: dict[str, Any] = {}
    for pair in text[:MAX_TEXT].split(","):
        name, equals, count = (part.strip() for part in pair.partition("="))
        if not equals or not (count.isascii() and count.isdigit()) or len(count) > len(str(MAX_COUNT)):
            raise InputError(f"""{FLAG} {shown(text)}: expected JSON such as '{{"image": 2}}', or image=2,video=0.""")
        found[name] = int(count)
    return found


def _limit(name: str, item: object) -> Limit:
    """Return the limit of one modality, a count or options with one.

    Raises:
        InputError: It is neither.
    """
    if name not in facts.MODALITIES:
        raise InputError(f"{FLAG}: {shown(name)} is no modality; choose among {', '.join(facts.MODALITIES)}.")
    options: dict[str, Any] = item if isinstance(item, dict) else {"count": item}
    for key, value in options.items():
        if key not in facts.OPTIONS:
            raise InputError(f"{FLAG}: {shown(key)} of {name} is not known; choose among {', '.join(facts.OPTIONS)}.")
        if value is None and key != "count":
            continue
        if type(value) is not int or not int(key != "count") <= value <= MAX_COUNT:
            raise InputError(f"{FLAG}: {key} {shown(value)} of {name}: expected a whole number up to {MAX_COUNT:,}.")
    return Limit(name, options.get("count", facts.DEFAULT_LIMIT), options.get("width"), options.get("height"))
