"""Checkpoints on the hub, with as few requests as they need.

One request names the commit, the files and what the hub counts itself; then the config and the headers are read at that
commit, all at once. What came of it is kept by commit, so the same question asks nothing again.

An index is read only where the names leave open what it says: where they are one complete numbered set, it can name no
others.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from kvbudget.checkpoint import GGUF, PYTORCH, SAFETENSORS, Checkpoint
from kvbudget.errors import AccessError, InputError
from kvbudget.headers.source import shown
from kvbudget.hub.cache import HeaderCache, Place, find_snapshot
from kvbudget.hub.files import CONFIG, HF_QUANT_CONFIG, MAX_CONFIG_BYTES, QUANTIZE_CONFIGS, object_in, read_object
from kvbudget.hub.listing import ADAPTER, Weights, choose_weights
from kvbudget.hub.local import adapter_error, headers_read, index_read, open_path
from kvbudget.hub.transport import Ahead, Hub, MissingError, RemoteFile, StreamedFile
from kvbudget.hub.workers import OutOfTimeError, in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kvbudget.headers.tensors import Tensor
    from kvbudget.hub.settings import Settings

DEFAULT_REVISION = "main"

PATIENCE_S = 10.0
"""Without a byte, after which a connection counts as dead, as for huggingface_hub (constants.py, 2.4)."""

ANSWER_S = 30.0
"""In which the hub must have described a repository; looking up its name is part of that."""

TOTAL_S = 120.0
"""Of all requests for one checkpoint; the 163 files of a 671B model take a few."""

REMEMBERED_S = 7 * 86400.0
"""How long a branch is taken for the commit that it was, before the hub is asked again."""

MAX_INFO_BYTES = 32 << 20
"""Of what the hub says of a repository; those with thousands of files take some 100 KiB."""

MAX_FILES = 2048
"""Weight files of a checkpoint; the largest known has 191."""

PLAIN_BYTES = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1}
"""Types whose values are parameters, so that the hub's counts say bytes; packed ones it counts as it likes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody wants of the hub.

    Args:
        repo: ``org/name``.
        revision: A branch, a tag, a commit, or None for the main branch.
        variant: The quantization of the GGUF file that is wanted, such as ``Q4_K_M``.
        headers: Whether headers are read; else the hub's own counts stand for them.
        refresh: Whether the hub is asked for the revision's commit whatever the caches hold.
        patience_s: Seconds without a byte after which a connection counts as dead.
        answer_s: Seconds in which the hub must have described the repository.
        total_s: Seconds for everything.
        progress: Called with (files that are done, files in all) while headers are read.
    """

    repo: str
    revision: str | None = None
    variant: str | None = None
    headers: bool = True
    refresh: bool = False
    patience_s: float = PATIENCE_S
    answer_s: float = ANSWER_S
    total_s: float = TOTAL_S
    progress: Callable[[int, int], None] = lambda _done, _all: None

    @property
    def name(self) -> str:
        """What messages call it."""
        return shown(self.repo)

    @property
    def branch(self) -> str:
        """The revision by name."""
        return self.revision or DEFAULT_REVISION

    @property
    def key(self) -> str:
        """What tells apart the entries of one commit in the cache."""
        return f"gguf:{self.variant.lower()}" if self.variant else "headers" if self.headers else "counts"


def open_repository(asked: Asked, settings: Settings) -> Checkpoint:
    """Return a checkpoint of the hub, from a cache if one holds it.

    Raises:
        AccessError: The hub cannot be reached, or does not let us in; it has no such repository or revision.
        InputError: The repository holds no model that can be read, or a broken one.
        CannotTell: A GGUF file has something that is not known.
    """
    cache, place = HeaderCache(settings.headers), Place(settings.endpoint, asked.repo)
    remembered = cache.commit(place, asked.branch)
    if not asked.refresh or settings.offline:
        snapshot = find_snapshot(settings.snapshots, asked.repo, asked.branch)
        if snapshot is not None and (found := _whole_snapshot(snapshot, asked)) is not None:
            return found
        if remembered and (remembered.age_s < REMEMBERED_S or settings.offline):
            entry = cache.load(place, remembered.commit, asked.key)
            if entry is not None:
                return _named(entry, asked, remembered.commit)
        if settings.offline:
            return _offline(snapshot, asked)
    try:
        return _Reading(asked, settings, cache, place).read()
    except AccessError as error:
        entry = cache.load(place, remembered.commit, asked.key) if remembered else None
        if entry is None or remembered is None:
            raise
        days = remembered.age_s / 86400
        note = f"{error} What was read {days:.0f} days ago stands in."
        return _named(entry._replace(notes=(*entry.notes, note)), asked, remembered.commit)


def _named(entry: Checkpoint, asked: Asked, commit: str) -> Checkpoint:
    return entry._replace(name=asked.repo, source=f"{asked.repo}@{commit[:12]}")


def _whole_snapshot(snapshot: Path, asked: Asked) -> Checkpoint | None:
    """Return the checkpoint in a folder of huggingface_hub's cache if all its weights are there."""
    try:
        found = open_path(snapshot, name=asked.name, variant=asked.variant)
    except (InputError, AccessError):
        return None  # half of it is there: the hub has the rest
    if found.tensors is None:
        return None
    return found._replace(name=asked.repo, read=f"{found.read} in the local hub cache", source=_at(snapshot, asked))


def _offline(snapshot: Path | None, asked: Asked) -> Checkpoint:
    if snapshot is None or not (snapshot / CONFIG).is_file() or asked.variant:
        raise AccessError(
            f"HF_HUB_OFFLINE is set and {asked.name} is not in the local hub cache; unset it, or give a folder with "
            "the model."
        )
    found = open_path(snapshot / CONFIG, name=asked.name)
    note = f"{asked.name}: the local hub cache holds its config and not its weights, so their headers are not known."
    return found._replace(name=asked.repo, source=_at(snapshot, asked), notes=(*found.notes, note))


def _at(snapshot: Path, asked: Asked) -> str:
    return f"{asked.repo}@{snapshot.name[:12]}"


class _Info(NamedTuple):
    """What the hub says of a repository."""

    commit: str
    files: tuple[str, ...]
    quantized: bool
    parameters: Mapping[str, int] | None


class _Reading:
    """One reading of a checkpoint from the hub."""

    def __init__(self, asked: Asked, settings: Settings, cache: HeaderCache, place: Place) -> None:
        self._asked, self._settings, self._cache, self._place = asked, settings, cache, place
        self._began = time.monotonic()
        self._parsing = threading.Lock()  # one at a time: it is no faster otherwise, and takes the memory of all
        self._hub: Hub

    def read(self) -> Checkpoint:
        """Return the checkpoint, and keep it."""
        asked = self._asked
        self._hub = Hub(self._settings, asked.repo, asked.patience_s)
        (info,) = self._all([self._info], within_s=min(asked.answer_s, asked.total_s))
        entry = self._cache.load(self._place, info.commit, asked.key)
        if entry is None:
            entry = self._checkpoint(info)
            self._cache.store(self._place, info.commit, asked.key, entry)
        self._cache.remember(self._place, asked.branch, info.commit)
        return _named(entry, asked, info.commit)

    def _all(
        self,
        jobs: Sequence[Callable[[], Any]],
        done: Callable[[int], None] = lambda _: None,
        within_s: float | None = None,
    ) -> Iterator[Any]:
        """Yield what the jobs return, all of them under way at once and none later than `within_s` allows."""
        within_s = self._asked.total_s if within_s is None else within_s
        try:
            yield from in_order(jobs, self._began + within_s, done)
        except OutOfTimeError:
            raise AccessError(
                f"{self._settings.host} did not send all of {self._asked.name} within {within_s:g} s; try again later, "
                "or give a folder with the model."
            ) from None

    def _info(self) -> _Info:
        asked, host = self._asked, self._settings.host
        url = f"{self._settings.endpoint}/api/models/{asked.repo}/revision/{quote(asked.branch, safe='')}"
        try:
            content = self._hub.get(url, asked.name, MAX_INFO_BYTES)
        except MissingError:
            raise AccessError(f"{host} has no model {asked.name}; check the spelling and HF_ENDPOINT.") from None
        try:
            info = json.loads(content)
            commit, listed = info["sha"], [entry["rfilename"] for entry in info["siblings"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            commit, listed = None, []
        if not isinstance(commit, str) or not commit.isalnum() or not all(isinstance(name, str) for name in listed):
            raise AccessError(
                f"{host} answered {'with a web page' if content[:1] == b'<' else 'something else'} where the hub "
                f"describes {asked.name}; check HF_ENDPOINT and the proxy."
            )
        config = info.get("config")
        quantized = isinstance(config, dict) and bool(config.get("quantization_config"))
        return _Info(commit, tuple(listed), quantized, _counts(info.get("safetensors")))

    def _checkpoint(self, info: _Info) -> Checkpoint:
        asked = self._asked
        if asked.variant is None and CONFIG not in info.files:
            self._refuse_without_config(info)
        weights = choose_weights(info.files, asked.name, asked.variant)
        self._check_number(weights.files)
        if weights.format == GGUF:
            return self._gguf(info, weights)
        small = [file for file in self._small_files(info) if file in info.files]
        read_headers = asked.headers and weights.format == SAFETENSORS
        index = weights.index_file if (read_headers and not weights.decided) or weights.format == PYTORCH else None
        jobs: list[Callable[[], Any]] = [partial(self._object, info.commit, file) for file in small]
        if index is not None:
            jobs.append(partial(self._index, info.commit, index))
        files = weights.files if read_headers and index is None else ()
        answers = self._with_headers(info.commit, files, jobs)
        objects = {file: next(answers) for file in small}
        base = Checkpoint(
            name=asked.name,
            source="",
            config=objects[CONFIG],
            hf_quant_config=objects.get(HF_QUANT_CONFIG),
            quantize_config=next((objects[file] for file in QUANTIZE_CONFIGS if file in objects), None),
            format=weights.format,
            parameters_by_dtype=info.parameters,
            notes=weights.notes,
        )
        if index is not None:
            found = next(answers)
            if weights.format == PYTORCH:
                read = "config.json and the index of PyTorch files"
                return base._replace(stored_bytes=found.total_size, read=read)
            self._check_number(found.files)
            files, answers = found.files, self._with_headers(info.commit, found.files, [])
            return base._replace(**headers_read(self._joined(files, answers, found), len(files)))
        if read_headers:
            return base._replace(**headers_read(self._joined(files, answers, None), len(files)))
        return _counted(base)

    def _check_number(self, files: Sequence[str]) -> None:
        if self._asked.headers and len(files) > MAX_FILES:
            raise InputError(
                f"{self._asked.name} has {len(files):,} weight files, whose headers take as many requests; "
                "--no-headers asks for the hub's own counts instead."
            )

    def _joined(self, files: Sequence[str], answers: Iterator[Any], index: Any) -> tuple[Tensor, ...]:  # noqa: ANN401
        from kvbudget.headers.safetensors import join_shards  # noqa: PLC0415 - GGUF and configs need none of it

        return join_shards(zip(files, answers, strict=True), self._asked.name, index)

    def _small_files(self, info: _Info) -> tuple[str, ...]:
        """Return the configs to read; those beside it only where the hub sees no quantization in the first."""
        return (CONFIG,) if info.quantized else (CONFIG, HF_QUANT_CONFIG, *QUANTIZE_CONFIGS)

    def _with_headers(self, commit: str, files: Sequence[str], jobs: Sequence[Callable[[], Any]]) -> Iterator[Any]:
        """Return what the jobs and then the headers of the files yield, all of them under way at once."""
        ahead = Ahead()
        headers = [partial(self._tensors, commit, file, ahead) for file in files]

        def done(count: int) -> None:
            if files:
                self._asked.progress(max(0, count - len(jobs)), len(files))

        return self._all([*jobs, *headers], done)

    def _tensors(self, commit: str, file: str, ahead: Ahead) -> tuple[Tensor, ...]:
        from kvbudget.headers.safetensors import fetch_header, read_safetensors  # noqa: PLC0415 - as above

        source = RemoteFile(self._hub, self._hub.file_url(commit, file), self._called(file), ahead)
        fetch_header(source)
        ahead.learn(source.reached)
        with self._parsing:
            return read_safetensors(source).tensors

    def _index(self, commit: str, file: str) -> Any:  # noqa: ANN401 - an Index
        from kvbudget.headers.safetensors import MAX_HEADER_BYTES, read_index  # noqa: PLC0415

        content = self._small(commit, file, MAX_HEADER_BYTES)
        return read_index(_InMemory(self._called(file), content))

    def _object(self, commit: str, file: str) -> Mapping[str, Any]:
        snapshot = find_snapshot(self._settings.snapshots, self._asked.repo, commit)
        if snapshot is not None and (snapshot / file).is_file():
            return read_object(snapshot / file)
        content = self._small(commit, file, MAX_CONFIG_BYTES)
        if content.lstrip()[:1] == b"<":
            raise AccessError(
                f"{self._settings.host} sent a web page in place of {self._called(file)}; check HF_ENDPOINT and the "
                "proxy."
            )
        return object_in(content, self._called(file))

    def _small(self, commit: str, file: str, most: int) -> bytes:
        try:
            return self._hub.get(self._hub.file_url(commit, file), self._called(file), most)
        except MissingError:
            raise AccessError(
                f"{self._settings.host} lists {self._called(file)} and does not have it; try again later."
            ) from None

    def _called(self, file: str) -> str:
        return f"{self._asked.name}/{shown(file)}"

    def _gguf(self, info: _Info, weights: Weights) -> Checkpoint:
        from kvbudget.headers.gguf import read_split  # noqa: PLC0415 - other formats need none of it
        from kvbudget.model.gguf_config import gguf_config  # noqa: PLC0415

        hub, commit = self._hub, info.commit
        sources = [StreamedFile(hub, hub.file_url(commit, file), self._called(file)) for file in weights.files]

        def read() -> Any:  # noqa: ANN401 - a GgufFile
            try:
                return read_split(sources)
            finally:
                for source in sources:
                    source.close()

        (file,) = self._all([read], lambda _: self._asked.progress(len(sources), len(sources)))
        return Checkpoint(
            name=self._asked.name,
            source="",
            config=gguf_config(file.metadata, {t.name: t.shape for t in file.tensors}, self._asked.name),
            format=GGUF,
            metadata=file.metadata,
            notes=weights.notes,
            **headers_read(file.tensors, len(sources)),
        )

    def _refuse_without_config(self, info: _Info) -> None:
        """Refuse a repository without a config, unless it holds GGUF files."""
        name = self._asked.name
        if any(file.lower().endswith(".gguf") for file in info.files):
            return
        if ADAPTER in info.files:
            (config,) = self._all([partial(self._object, info.commit, ADAPTER)])
            raise adapter_error(name, config)
        raise InputError(f"{name} has no config.json, so it is no model that can be read; give another repository.")


class _InMemory(NamedTuple):
    """A `Source` that was read whole."""

    name: str
    content: bytes

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length]


def _counts(section: object) -> Mapping[str, int] | None:
    """Return the parameters by type that the hub counts, None if it does not."""
    counts = section.get("parameters") if isinstance(section, dict) else None
    if not isinstance(counts, dict) or not all(type(count) is int and count >= 0 for count in counts.values()):
        return None
    return {shown(str(dtype)): count for dtype, count in counts.items()}


def _counted(base: Checkpoint) -> Checkpoint:
    """Return a checkpoint whose weights the hub has counted, if it has."""
    counts = base.parameters_by_dtype
    if not counts:
        return base._replace(read=index_read({}))
    plain = counts.keys() <= PLAIN_BYTES.keys()
    stored = sum(PLAIN_BYTES[dtype] * count for dtype, count in counts.items()) if plain else None
    return base._replace(stored_bytes=stored, read="config.json and the hub's counts by type")
