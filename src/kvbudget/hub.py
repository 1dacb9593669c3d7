"""Where models come from: a folder, a `config.json`, or the built-in catalogue.

Files are read with suspicion: a bound on their size, no duplicate keys with different values, no depth that Python
cannot take. Infinity and NaN are let in, because published configs hold them in keys that nobody reads here; a size
that is one is refused where it is read. No code of a model repository is ever run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget.errors import AccessError, InputError
from kvbudget.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG = "config.json"
HF_QUANT_CONFIG = "hf_quant_config.json"
QUANTIZE_CONFIG = "quantize_config.json"

MAX_CONFIG_BYTES = 16 << 20
"""The largest published config.json files, with label maps, stay below one MiB."""

_SIZE = re.compile(r"[0-9]+(?:\.[0-9]+)?\s*[bBmMtT]")
_HUB_ID = re.compile(r"[\w.-]+/[\w.@-]+")


def load_model(reference: str) -> Model:
    """Return the model that `reference` names.

    Args:
        reference: A folder, a `config.json`, a short name of the built-in catalogue, or a hub id that it holds.

    Raises:
        AccessError: It is a hub id that is not in the catalogue.
        InputError: There is no such file, or it is broken.
        CannotTell: Its architecture is not known.
    """
    if not reference.strip():
        raise InputError(
            "The model's name is empty; give a folder with a config.json or a name from `kvbudget models`."
        )
    if _is_local(reference):
        return load_path(Path(reference), name=_shown(reference))
    from kvbudget.facts.catalogue import close_names, find_model  # noqa: PLC0415 - a folder does not need it

    row = find_model(reference)
    if row is not None:
        return Model.from_config(row.config, name=row.hub, source=f"built-in catalogue: {row.source}")
    if _SIZE.fullmatch(reference):
        raise InputError(
            f'"{reference}" is a size, not a model: the KV cache depends on layers and KV heads; give a folder with a '
            "config.json or a name from `kvbudget models`."
        )
    reference = _shown(reference)
    close = close_names(reference)
    hint = f" Close: {', '.join(close)}." if close else ""
    if _HUB_ID.fullmatch(reference):
        raise AccessError(
            f'No model "{reference}" in the built-in catalogue, and this version does not ask the hub.{hint} Give a '
            "folder with its config.json, starting the path with ./"
        )
    raise InputError(
        f'No model "{reference}" in the built-in catalogue, and no such file.{hint} See `kvbudget models`; for a '
        "folder, start the path with ./"
    )


def load_path(path: Path, *, name: str) -> Model:
    """Return the model in a folder or a `config.json`, with the quantization files beside it.

    Raises:
        AccessError: The file system does not let us in.
        InputError: There is no such file, or it is broken.
        CannotTell: The model's architecture is not known.
    """
    if path.suffix.lower() == ".gguf":
        raise InputError(
            f"{path.name} is a GGUF file, which this version does not read yet; give the original folder with its "
            "config.json."
        )
    try:
        config, others = _files(path.expanduser(), name)
    except PermissionError as error:
        raise AccessError(f"{name} cannot be read: {error.strerror}; give a folder that you may read.") from None
    except (OSError, RuntimeError) as error:  # a name too long, a ring of links, an unknown user
        raise InputError(f"{name} cannot be read: {getattr(error, 'strerror', None) or error}; give a path.") from None
    beside = {file.name: read_object(file) for file in others}
    return Model.from_config(
        read_object(config),
        name=name,
        source=str(config),
        hf_quant_config=beside.get(HF_QUANT_CONFIG),
        quantize_config=beside.get(QUANTIZE_CONFIG),
    )


def _is_local(reference: str) -> bool:
    """Return whether a reference is a path: it looks like one, or there is such a file."""
    if reference.startswith((".", "/", "~")) or reference.lower().endswith((".json", ".gguf")):
        return True
    try:
        return Path(reference).exists()
    except OSError as error:
        return isinstance(error, PermissionError)


def _shown(reference: str, limit: int = 200) -> str:
    """Return a name for a message: on one line, and not longer than `limit` characters."""
    reference = reference if reference.isprintable() else repr(reference)[1:-1]
    return reference if len(reference) <= limit else reference[: limit - 1] + "…"


def _files(path: Path, name: str) -> tuple[Path, tuple[Path, ...]]:
    """Return (the config, the quantization files beside it) of a folder or of the config itself."""
    if path.is_dir():
        folder, config = path, path / CONFIG
        if not config.exists():
            raise InputError(f"{name} has no config.json; give the folder of a model, or the file itself.")
    elif path.exists():
        folder, config = path.parent, path
    else:
        raise InputError(f"No such file or folder: {name}.")
    beside = (folder / HF_QUANT_CONFIG, folder / QUANTIZE_CONFIG)
    return config, tuple(file for file in beside if file.is_file())


def read_object(path: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file.

    Raises:
        AccessError: The file system does not let us read it.
        InputError: It is not a regular readable file, too large, or not one valid JSON object.
    """
    try:
        if not path.is_file():
            raise InputError(f"{path} is not a regular file; give a config.json.")
        with path.open("rb") as file:
            content = file.read(MAX_CONFIG_BYTES + 1)
        if len(content) > MAX_CONFIG_BYTES:
            raise InputError(
                f"{path} has more than {MAX_CONFIG_BYTES:,} bytes, more than any config.json; give the right file."
            )
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text, so it is not a config.json; give the right file.") from None
    except PermissionError as error:
        raise AccessError(f"{path} cannot be read: {error.strerror}; give a file that you may read.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from None
    return parse_object(text, str(path))


def parse_object(text: str, source: str) -> Mapping[str, Any]:
    """Return the JSON object in a text; `source` names it in messages."""
    if not text.strip():
        raise InputError(f"{source} is empty; give a complete config.json.")
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except _BrokenError as error:
        raise InputError(f"{source} {error}; check the file.") from None
    except json.JSONDecodeError as error:
        raise InputError(
            f"{source} is not valid JSON (line {error.lineno}: {error.msg}); is the file complete?"
        ) from None
    except (RecursionError, ValueError):  # nesting beyond Python's stack, integers beyond its limit of digits
        raise InputError(
            f"{source} nests too deeply or has a number too long to be a config; check the file."
        ) from None
    if not isinstance(value, dict):
        raise InputError(f"{source} must hold a JSON object, found {type(value).__name__}; give a config.json.")
    return value


class _BrokenError(ValueError):
    """What the JSON module takes without a word and a config must not have."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen and seen[key] != value:
                raise _BrokenError(f"gives {key[:40]!r} twice with different values")
            seen[key] = value
    return found
