"""What was read before: the files that `huggingface_hub` keeps, and a small cache of headers beside them.

An entry of ours is what one commit of a repository says of a checkpoint: its configs, and its tensors without their
data. It is found by address, repository, commit and variant, so it never grows old; which commit a branch stood for is
remembered apart, with the time. Entries are written whole under another name and then moved, so two processes may write
at once; one that cannot be read is as good as none; the oldest go when there are too many.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from kvbudget.checkpoint import Checkpoint
from kvbudget.headers.gguf import Skipped
from kvbudget.headers.tensors import Tensor

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SCHEMA = 1
"""Of an entry; another one is not read."""

MAX_ENTRY_BYTES = 32 << 20
"""Of an entry in its file. The largest model known, with 91,991 tensors, takes less than one MiB."""

MAX_TEXT_BYTES = 256 << 20
"""Of an entry's text; more is an attack on the memory."""

MAX_CACHE_BYTES = 64 << 20
"""Of all entries together."""

COMMIT = re.compile(r"[0-9a-f]{40}")
"""How the hub writes a commit in full; it needs no look-up."""

_LONGEST_NAME = 200
"""Of a file, with room for a suffix in the 255 bytes that file systems allow."""

_SUFFIX = ".z"
_FIELDS = ("hf_quant_config", "quantize_config", "format", "stored_bytes", "parameters_by_dtype", "read")


class Place(NamedTuple):
    """A repository at an address."""

    endpoint: str
    repo: str


class Remembered(NamedTuple):
    """Which commit a branch stood for, and how many seconds ago that was so."""

    commit: str
    age_s: float


class HeaderCache:
    """The cache of headers in a folder, which need not exist; what cannot be read or written is passed over.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def commit(self, place: Place, revision: str) -> Remembered | None:
        """Return the commit that a revision was the last time that the hub was asked."""
        if COMMIT.fullmatch(revision):
            return Remembered(revision, 0.0)
        path = self._ref(place, revision)
        try:
            commit = path.read_text("ascii")
            age_s = time.time() - path.stat().st_mtime
        except (OSError, ValueError):
            return None
        return Remembered(commit, age_s) if COMMIT.fullmatch(commit) else None

    def remember(self, place: Place, revision: str, commit: str) -> None:
        """Note which commit a revision is."""
        if not COMMIT.fullmatch(revision):
            _write(self._ref(place, revision), commit.encode())

    def load(self, place: Place, commit: str, variant: str) -> Checkpoint | None:
        """Return an entry, None if there is no sound one; its name and source are empty."""
        try:
            with self._entry(place, commit, variant).open("rb") as file:
                content = file.read(MAX_ENTRY_BYTES + 1)
            if len(content) > MAX_ENTRY_BYTES:
                return None
            unpacking = zlib.decompressobj()
            text = unpacking.decompress(content, MAX_TEXT_BYTES)
            if not unpacking.eof:
                return None
            return _checkpoint(json.loads(text))
        except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError, zlib.error):
            return None

    def store(self, place: Place, commit: str, variant: str, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint, and drop the oldest entries if there are too many."""
        text = json.dumps(_document(checkpoint), separators=(",", ":"))
        content = zlib.compress(text.encode(), 6)
        if len(content) <= MAX_ENTRY_BYTES and _write(self._entry(place, commit, variant), content):
            _prune(self._root)

    def _folder(self, place: Place) -> Path:
        return self._root / quote(f"{place.endpoint}/{place.repo}", safe="")[:_LONGEST_NAME]

    def _ref(self, place: Place, revision: str) -> Path:
        return self._folder(place) / f"{quote(revision, safe='')[:_LONGEST_NAME]}.ref"

    def _entry(self, place: Place, commit: str, variant: str) -> Path:
        return self._folder(place) / f"{commit}.{quote(variant, safe='')[:_LONGEST_NAME]}{_SUFFIX}"


def _write(path: Path, content: bytes) -> bool:
    """Write a file in one move; return whether that worked."""
    beside = path.with_name(f"{path.name[:_LONGEST_NAME]}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        beside.replace(path)
    except (OSError, ValueError):
        with suppress(OSError):
            beside.unlink()
        return False
    return True


def _prune(root: Path) -> None:
    """Remove the oldest entries until the rest stays within `MAX_CACHE_BYTES`."""
    try:
        found = [(stat.st_mtime, stat.st_size, path) for path in root.glob(f"*/*{_SUFFIX}") for stat in (path.stat(),)]
        room = MAX_CACHE_BYTES
        for _, size, path in sorted(found, reverse=True):
            room -= size
            if room < 0:
                path.unlink(missing_ok=True)
    except OSError:  # another process was faster, or the folder may not be changed
        return


def _document(checkpoint: Checkpoint) -> dict[str, Any]:
    """Return a checkpoint as plain data; tensors of one type and shape share a line."""
    document: dict[str, Any] = {"schema": SCHEMA, "config": checkpoint.config, "notes": checkpoint.notes}
    document |= {field: getattr(checkpoint, field) for field in _FIELDS}
    document["metadata"] = {
        key: {"skipped": value} if isinstance(value, Skipped) else value for key, value in checkpoint.metadata.items()
    }
    if checkpoint.tensors is not None:
        kinds: dict[tuple[Any, ...], int] = {}
        document["kind"] = [kinds.setdefault(tensor[1:], len(kinds)) for tensor in checkpoint.tensors]
        document["kinds"] = list(kinds)
        document["names"] = "\n".join(tensor.name for tensor in checkpoint.tensors)
    return document


def _checkpoint(document: Mapping[str, Any]) -> Checkpoint:
    """Return the checkpoint of an entry; a broken one raises whatever breaks."""
    if document["schema"] != SCHEMA:
        raise ValueError(document["schema"])
    tensors = None
    if "names" in document:
        kinds = [(str(dtype), tuple(map(int, shape)), int(nbytes)) for dtype, shape, nbytes in document["kinds"]]
        names, numbers = document["names"].split("\n") if document["kind"] else [], document["kind"]
        if min(numbers, default=0) < 0:
            raise ValueError(numbers)
        tensors = tuple(Tensor(name, *kinds[number]) for name, number in zip(names, numbers, strict=True))
    return Checkpoint(
        name="",
        source="",
        config=dict(document["config"]),
        tensors=tensors,
        metadata={key: _value(value) for key, value in document["metadata"].items()},
        notes=tuple(map(str, document["notes"])),
        **{field: document[field] for field in _FIELDS},
    )


def _value(value: Any) -> Any:  # noqa: ANN401 - metadata holds anything
    if isinstance(value, dict):
        return Skipped(*value["skipped"])
    return tuple(value) if isinstance(value, list) else value


def find_snapshot(snapshots: Path, repo: str, revision: str) -> Path | None:
    """Return the folder in which `huggingface_hub` keeps a revision of a repository, None if there is none.

    Args:
        snapshots: The cache's folder.
        repo: ``org/name``.
        revision: A branch, a tag or a commit in full.
    """
    if {"", ".", ".."} & set(revision.split("/")):
        return None
    folder = snapshots / f"models--{repo.replace('/', '--')}"
    try:
        commit = revision
        if not COMMIT.fullmatch(revision):
            commit = (folder / "refs" / revision).read_text("ascii").strip()
        if not COMMIT.fullmatch(commit):
            return None
        path = folder / "snapshots" / commit
        return path if path.is_dir() else None
    except (OSError, ValueError):
        return None
