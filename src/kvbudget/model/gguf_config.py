"""From a GGUF file's metadata to the config that Hugging Face would write for the same model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.errors import CannotTell

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def gguf_config(metadata: Mapping[str, Any], tensors: Iterable[Any], name: str) -> dict[str, Any]:
    raise CannotTell(f"{name}: GGUF metadata is not read yet.", key="general.architecture")
