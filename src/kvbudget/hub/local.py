"""Checkpoints on this machine: a folder, a `config.json` alone, a GGUF file. Headers are read, weights never."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kvbudget.checkpoint import GGUF, PYTORCH, Checkpoint
from kvbudget.errors import AccessError, CannotTell, InputError
from kvbudget.hub.files import CONFIG, HF_QUANT_CONFIG, QUANTIZE_CONFIGS, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kvbudget.headers.tensors import Tensor
    from kvbudget.hub.listing import Weights

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".gguf", ".index.json")
"""A folder without such a file holds configs only, and nothing else needs to be looked at."""

_POINTER_BYTES = 1024
"""A Git LFS pointer is shorter (git-lfs, docs/spec.md)."""


def open_path(path: Path, *, name: str, variant: str | None = None) -> Checkpoint:
    """Return the checkpoint in a folder, a `config.json` or a GGUF file.

    A `config.json` that is named itself stands for itself: the weights beside it are not looked at.

    Args:
        path: Where it lies.
        name: What messages call it.
        variant: The quantization of the GGUF file that is wanted, where a folder has several.

    Raises:
        AccessError: The file system does not let us in.
        InputError: There is no such file, or it is broken.
        CannotTell: A GGUF file has something that is not known.
    """
    try:
        path = path.expanduser()
        if path.is_dir():
            return _open_folder(path, name, variant)
        if path.suffix.lower() == ".gguf" and path.exists():
            return _open_gguf(path, name)
        if path.exists():
            return _configs(path, name)
    except (AccessError, InputError):
        raise
    except PermissionError as error:
        raise AccessError(f"{name} cannot be read: {error.strerror}; give a folder that you may read.") from None
    except (OSError, RuntimeError) as error:  # a name too long, a ring of links, an unknown user
        raise InputError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}; give a path.") from None
    raise InputError(f"No such file or folder: {name}.")


def _open_folder(path: Path, name: str, variant: str | None) -> Checkpoint:
    names = os.listdir(path)  # noqa: PTH208 - the names are all that is wanted
    if variant is None and CONFIG in names and not any(file.endswith(WEIGHT_SUFFIXES) for file in names):
        return _configs(path / CONFIG, name)
    from kvbudget.hub.listing import ADAPTER, choose_weights  # noqa: PLC0415 - folders of configs alone need no names

    weights = choose_weights(names, name, variant)
    if weights.format == GGUF:
        return _open_gguf(path / weights.files[0], name, beside=path / CONFIG if CONFIG in names else None)
    if CONFIG not in names:
        if ADAPTER in names:
            raise adapter_error(name, read_object(path / ADAPTER))
        raise InputError(f"{name} has no config.json; give the folder of a model, or the file itself.")
    found = _configs(path / CONFIG, name)
    if weights.format is None:
        return found
    return found._replace(**_weights(path, name, weights))


def adapter_error(name: str, config: Mapping[str, Any]) -> InputError:
    """Return the error for an adapter that is given in place of a model, with the model that it names."""
    from kvbudget.headers.source import shown  # noqa: PLC0415 - only errors need it

    base = config.get("base_model_name_or_path")
    which = f", {shown(base)}" if isinstance(base, str) and base else ""
    return InputError(f"{name} is an adapter (adapter_config.json) and not a model; give the model below it{which}.")


def _configs(config: Path, name: str) -> Checkpoint:
    """Return a `config.json` with the quantization files beside it."""
    folder = config.parent
    beside = [folder / file for file in (HF_QUANT_CONFIG, *QUANTIZE_CONFIGS) if (folder / file).is_file()]
    others = {file.name: read_object(file) for file in beside}
    return Checkpoint(
        name=name,
        source=str(config),
        config=read_object(config),
        hf_quant_config=others.get(HF_QUANT_CONFIG),
        quantize_config=next((others[file] for file in QUANTIZE_CONFIGS if file in others), None),
    )


def _weights(folder: Path, name: str, weights: Weights) -> dict[str, Any]:
    """Return what is known of the weights in a folder, as fields of a `Checkpoint`."""
    from kvbudget.headers.safetensors import local_shards, read_index, read_shards  # noqa: PLC0415 - lone configs
    from kvbudget.headers.source import LocalFile  # noqa: PLC0415

    files: Sequence[str] = weights.files
    known: dict[str, Any] = {"format": weights.format, "notes": weights.notes}
    index = None
    if weights.index_file is not None:
        index = read_index(LocalFile.at(folder / weights.index_file))
        files = index.files
        known["stored_bytes"] = index.total_size
    if weights.format == PYTORCH:
        return known | {"read": "config.json and the index of PyTorch files" if index else "config.json"}
    if any(_is_pointer(folder / file) for file in files):
        note = f"{name}: the weight files are Git LFS pointers, so their headers are not known; run `git lfs pull`."
        return known | {"read": index_read(known), "notes": (*weights.notes, note)}
    if index is None:
        return known | headers_read(_tensors(folder, name, files), len(files))
    shards = local_shards(index, folder, name)
    if not shards:
        note = f"{name}: the index is there and its {len(files)} weight files are not, so their headers are not known."
        return known | {"read": index_read(known), "notes": (*weights.notes, note)}
    return known | headers_read(read_shards(index, shards, name), len(shards))


def _tensors(folder: Path, name: str, files: Sequence[str]) -> tuple[Tensor, ...]:
    from kvbudget.headers.safetensors import join_shards, read_safetensors  # noqa: PLC0415 - lone configs
    from kvbudget.headers.source import LocalFile  # noqa: PLC0415

    return join_shards(((file, read_safetensors(LocalFile.at(folder / file)).tensors) for file in files), name)


def headers_read(tensors: tuple[Tensor, ...], files: int) -> dict[str, Any]:
    """Return the fields of a `Checkpoint` whose headers were read."""
    read = f"headers of {files} files" if files > 1 else "header of 1 file"
    return {"tensors": tensors, "stored_bytes": sum(tensor.nbytes for tensor in tensors), "read": read}


def index_read(known: Mapping[str, Any]) -> str:
    """Return how weights are known whose headers are not."""
    return "config.json" if known.get("stored_bytes") is None else "config.json and the index's total"


def _is_pointer(path: Path) -> bool:
    """Return whether a file is what Git LFS leaves in place of one that was not fetched."""
    from kvbudget.headers.source import LFS_POINTER  # noqa: PLC0415 - lone configs

    if not path.is_file() or path.stat().st_size > _POINTER_BYTES:
        return False
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def _open_gguf(path: Path, name: str, beside: Path | None = None) -> Checkpoint:
    """Return the checkpoint in a GGUF file; a config `beside` it says what its metadata does not."""
    from kvbudget.headers.gguf import local_parts, read_split  # noqa: PLC0415 - other formats need none of it
    from kvbudget.model.gguf_config import gguf_config  # noqa: PLC0415

    parts = local_parts(path)
    file = read_split(parts)
    notes: tuple[str, ...] = ()
    try:
        config: Mapping[str, Any] = gguf_config(file.metadata, {t.name: t.shape for t in file.tensors}, name)
    except CannotTell as error:
        if beside is None:
            raise
        config = read_object(beside)
        notes = (f"{name}: the config.json beside the GGUF file counts, because {error.key} is not understood.",)
    return Checkpoint(
        name=name,
        source=str(path),
        config=config,
        format=GGUF,
        metadata=file.metadata,
        notes=notes,
        **headers_read(file.tensors, len(parts)),
    )
