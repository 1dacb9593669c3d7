"""Where models come from: a folder, a `config.json`, a GGUF file, the hub, or the built-in catalogue.

No code of a model repository is ever run, and no weight is ever read.

A short name (``llama-3.1-8b``) is the catalogue's and asks nobody. A hub id (``org/name``) is the hub's: what was read
before is not asked for again, and an id that the catalogue holds too is answered from there when the hub cannot be
reached or does not let us in, with a note that says so.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from kvbudget.checkpoint import Checkpoint
from kvbudget.errors import AccessError, CannotTell, InputError
from kvbudget.hub.files import CONFIG, MAX_CONFIG_BYTES, parse_object, read_object
from kvbudget.hub.local import open_path
from kvbudget.model import Model
from kvbudget.units import gib

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.facts.catalogue import CatalogueRow

_SIZE = r"[0-9]+(?:\.[0-9]+)?\s*[bBmMtT]"
_ADDRESS = r"(?:https?://)?(?:huggingface\.co|hf\.co)/"
_HUB_ID = (
    r"(?P<repo>[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95})(?:@(?P<revision>[\w./+-]{1,200}))?"
    r"(?::(?P<variant>[\w.-]{1,64}))?"
)
"""Compiled when they are used, which a path never does."""

IMPATIENCE_S = 4.0
"""Seconds that the hub has to describe a model that the catalogue holds anyway."""


def open_checkpoint(
    reference: str,
    *,
    revision: str | None = None,
    headers: bool = True,
    refresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Checkpoint:
    """Return what is known of the checkpoint that `reference` names.

    Args:
        reference: A folder, a `config.json`, a `.gguf` file, a short name of the built-in catalogue, or a hub id:
            ``org/name``, ``org/name@revision``, and ``org/name:Q4_K_M`` where a repository holds several GGUF files.
        revision: A branch, a tag or a commit of a hub id.
        headers: Whether the headers of a hub id's weight files are read; else the hub's own counts stand for them.
        refresh: Whether the hub is asked for the commit of a branch even if that was done in the last days.
        progress: Called with (files done, files in all) while headers are read from the hub.

    Raises:
        AccessError: The hub cannot be reached, or does not have it or let us in; the file system does not.
        InputError: There is no such file, or it is broken, or it is not a model.
        CannotTell: A GGUF file has something that is not known.
    """
    if not reference.strip():
        raise InputError("The model's name is empty; give a hub id, a folder or a name from `kvbudget models`.")
    if _is_local(reference):
        if revision is not None:
            raise InputError(f"--revision is for hub ids, and {_shown(reference)} is on this machine; leave it out.")
        return open_path(Path(reference), name=_shown(reference))
    from kvbudget.facts.catalogue import find_model  # noqa: PLC0415 - a folder does not need it

    match = re.fullmatch(_HUB_ID, re.sub(_ADDRESS, "", reference, count=1).rstrip("/"), re.ASCII)
    row = find_model(match["repo"] if match else reference)
    if match is None:
        if row is None:
            raise _unknown(reference)
        if revision is not None:
            raise InputError(f"--revision is for hub ids; give {row.hub} in place of {_shown(reference)}.")
        return _from_catalogue(row)
    if revision is not None and match["revision"] not in (None, revision):
        raise InputError(f"{_shown(reference)} and --revision {_shown(revision)} name two revisions; give one.")
    from kvbudget.hub.remote import ANSWER_S, Asked, open_repository  # noqa: PLC0415 - only hub ids
    from kvbudget.hub.settings import read_settings  # noqa: PLC0415

    revision = revision or match["revision"]
    stands_in = row if revision is None and match["variant"] is None else None
    asked = Asked(
        repo=match["repo"],
        revision=revision,
        variant=match["variant"],
        headers=headers,
        refresh=refresh,
        answer_s=IMPATIENCE_S if stands_in else ANSWER_S,
        progress=progress or (lambda _done, _all: None),
    )
    try:
        return open_repository(asked, read_settings())
    except AccessError as error:
        if stands_in is None:
            raise AccessError(f"{error}{_close(match['repo'])}") from None
        return _from_catalogue(stands_in, note=f"{error} The built-in catalogue stands in.")


def load_model(
    reference: str,
    *,
    revision: str | None = None,
    headers: bool = True,
    refresh: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Model:
    """Return the model that `reference` names; see `open_checkpoint`.

    Raises:
        AccessError: The hub cannot be reached, or does not have it or let us in; the file system does not.
        InputError: There is no such file, or it is broken, or it is not a model.
        CannotTell: Its architecture is not known.
    """
    return model_of(open_checkpoint(reference, revision=revision, headers=headers, refresh=refresh, progress=progress))


def load_path(path: Path, *, name: str) -> Model:
    """Return the model in a folder, a `config.json` or a GGUF file; see `open_checkpoint`.

    Raises:
        AccessError: The file system does not let us in.
        InputError: There is no such file, or it is broken.
        CannotTell: The model's architecture is not known.
    """
    return model_of(open_path(path, name=name))


def model_of(checkpoint: Checkpoint) -> Model:
    """Return the model whose checkpoint that is, with what the headers of its files say.

    Raises:
        CannotTell: Its architecture is not known.
        InputError: Its config is broken or contradicts itself.
    """
    try:
        model = Model.from_config(
            checkpoint.config,
            name=checkpoint.name,
            source=checkpoint.source,
            hf_quant_config=checkpoint.hf_quant_config,
            quantize_config=checkpoint.quantize_config,
        )
    except CannotTell as error:
        raise _with_size(error, checkpoint) from None
    if checkpoint.stored_bytes is None:
        return model
    from kvbudget.placement import with_headers  # noqa: PLC0415 - configs alone need none of it

    return with_headers(model, checkpoint)


def _with_size(error: CannotTell, checkpoint: Checkpoint) -> CannotTell:
    """Return the refusal with what is known all the same: the size of the weights."""
    if not checkpoint.stored_bytes:
        return error
    size = gib(checkpoint.stored_bytes)
    return CannotTell(f"{error} Its weights take {size} GiB ({checkpoint.read}).", key=error.key)


def _is_local(reference: str) -> bool:
    """Return whether a reference is a path: it looks like one, or there is such a file."""
    if reference.startswith((".", "/", "~")) or reference.lower().endswith((".json", ".gguf")):
        return True
    try:
        return Path(reference).exists()
    except OSError as error:
        return isinstance(error, PermissionError)


def _from_catalogue(row: CatalogueRow, note: str = "") -> Checkpoint:
    return Checkpoint(
        name=row.hub,
        source=f"built-in catalogue: {row.source}",
        config=row.config,
        read="built-in catalogue",
        notes=(note,) if note else (),
    )


def _unknown(reference: str) -> InputError:
    """Return the error for a name that is neither a file, nor in the catalogue, nor a hub id."""
    shown = _shown(reference)
    if re.fullmatch(_SIZE, reference):
        return InputError(
            f'"{shown}" is a size, not a model: the KV cache depends on layers and KV heads; give a folder with a '
            "config.json or a name from `kvbudget models`."
        )
    return InputError(
        f'No model "{shown}" in the built-in catalogue, and no such file.{_close(shown)} See `kvbudget models`; for a '
        "folder, start the path with ./"
    )


def _close(name: str) -> str:
    from kvbudget.facts.catalogue import close_names  # noqa: PLC0415 - only errors need it

    close = close_names(name)
    return f" Close: {', '.join(close)}." if close else ""


def _shown(reference: str, limit: int = 200) -> str:
    """Return a name for a message: on one line, and not longer than `limit` characters."""
    reference = reference if reference.isprintable() else repr(reference)[1:-1]
    return reference if len(reference) <= limit else reference[: limit - 1] + "…"


__all__ = [
    "CONFIG",
    "MAX_CONFIG_BYTES",
    "load_model",
    "load_path",
    "model_of",
    "open_checkpoint",
    "parse_object",
    "read_object",
]
