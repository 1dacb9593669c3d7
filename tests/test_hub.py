"""Checkpoints from the hub: how many requests they take, what is kept, and what each failure says."""

from __future__ import annotations

import gzip
import json
import os
import re
import socket
import threading
import time
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fake_hub import COMMIT, OTHER_COMMIT, FakeHub, Handler, Repository, running
from gguf_files import Typed
from gguf_files import tensor as gguf_tensor
from gguf_files import written as gguf
from kvbudget.checkpoint import GGUF, PYTORCH, SAFETENSORS
from kvbudget.errors import AccessError, InputError, KvbudgetError
from kvbudget.hub import cache as cache_module
from kvbudget.hub import load_model, open_checkpoint
from kvbudget.hub.cache import HeaderCache, Place
from kvbudget.hub.remote import Asked, open_repository
from kvbudget.hub.settings import read_settings
from kvbudget.hub.transport import FIRST_BYTES
from safetensors_files import framed, tensor, written

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kvbudget.checkpoint import Checkpoint

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
}
REPO = "org/name"
CATALOGUED = "meta-llama/Llama-3.1-8B-Instruct"
SINGLE = [tensor("model.embed_tokens.weight"), tensor("lm_head.weight", "F32", (2, 3))]
SHARDS = {f"model-{i:05d}-of-00003.safetensors": written([tensor(f"model.layers.{i}.weight")]) for i in (1, 2, 3)}


@pytest.fixture(name="hub")
def _hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    """Run a hub and point the environment at it, with caches of its own."""
    from huggingface_hub import constants  # noqa: PLC0415 - it reads the environment when it is imported

    with running() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        hub.repositories[REPO] = single()
        yield hub


def packed(document: object) -> bytes:
    return json.dumps(document).encode()


def single(**more: bytes) -> Repository:
    return Repository({"config.json": packed(CONFIG), "model.safetensors": written(SINGLE), **more})


def sharded(files: dict[str, bytes], index: dict[str, str] | None = None) -> Repository:
    repository = Repository({"config.json": packed(CONFIG), **files})
    if index is not None:
        repository.files["model.safetensors.index.json"] = packed({"weight_map": index})
    return repository


def index_of(files: dict[str, bytes]) -> dict[str, str]:
    return {f"model.layers.{i}.weight": name for i, name in enumerate(files, 1)}


def ask(**more: Any) -> Checkpoint:  # noqa: ANN401 - fields of what is asked
    return open_repository(replace(Asked(repo=REPO), **more), read_settings())


def refused(call: Callable[[], object], kind: type[KvbudgetError] = AccessError) -> str:
    """Return the sentence of the error that a call ends in."""
    with pytest.raises(KvbudgetError) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind, message
    assert message.endswith(".")
    assert message.isprintable()
    return message


# -- requests


def test_one_file_takes_three_requests_and_then_none(hub: FakeHub) -> None:
    found = open_checkpoint(REPO)
    assert hub.paths[0] == "info"
    assert sorted(hub.paths) == ["config.json", "info", "model.safetensors"]
    assert found.tensors == tuple(SINGLE)
    assert (found.format, found.source, found.config) == (SAFETENSORS, f"{REPO}@{COMMIT[:12]}", CONFIG)
    assert found.stored_bytes == sum(each.nbytes for each in SINGLE)
    hub.requests.clear()
    assert open_checkpoint(REPO) == found
    assert hub.paths == []


@pytest.mark.parametrize("index", [None, index_of(SHARDS)])
def test_shards_take_one_request_each(hub: FakeHub, index: dict[str, str] | None) -> None:
    hub.repositories[REPO] = sharded(SHARDS, index)
    steps: list[tuple[int, int]] = []
    found = open_checkpoint(REPO, progress=lambda done, files: steps.append((done, files)))
    assert sorted(hub.paths) == sorted(["info", "config.json", *SHARDS])
    assert [each.name for each in found.tensors or ()] == [f"model.layers.{i}.weight" for i in (1, 2, 3)]
    assert found.read == "headers of 3 files"
    assert steps[-1] == (3, 3)


def test_an_index_is_read_where_the_names_leave_it_open(hub: FakeHub) -> None:
    """A file that the index does not name is not read."""
    hub.repositories[REPO] = sharded({**SHARDS, "extra.safetensors": written([tensor("x")])}, index_of(SHARDS))
    found = open_checkpoint(REPO)
    assert sorted(hub.paths) == sorted(["info", "config.json", "model.safetensors.index.json", *SHARDS])
    assert len(found.tensors or ()) == 3


def test_consolidated_files_are_not_counted_twice(hub: FakeHub) -> None:
    hub.repositories[REPO] = single(**{"consolidated.safetensors": written(SINGLE)})
    found = open_checkpoint(REPO)
    assert found.tensors == tuple(SINGLE)
    assert "consolidated" in found.notes[0]
    assert len(hub.requests) == 3


@pytest.mark.parametrize(("seen", "requests"), [({}, 5), ({"config": {"quantization_config": {"x": 1}}}, 3)])
def test_files_of_quantization_are_read_if_the_hub_sees_none(hub: FakeHub, seen: dict[str, Any], requests: int) -> None:
    quant, modelopt = {"bits": 4, "group_size": 128}, {"producer": {"name": "modelopt"}}
    repository = single(**{"quantize_config.json": packed(quant), "hf_quant_config.json": packed(modelopt)})
    repository.info = seen
    hub.repositories[REPO] = repository
    found = open_checkpoint(REPO)
    assert len(hub.requests) == requests
    expected = (quant, modelopt) if requests == 5 else (None, None)
    assert (found.quantize_config, found.hf_quant_config) == expected


def test_a_long_header_takes_a_second_request_for_the_rest(hub: FakeHub) -> None:
    many = [tensor(f"model.layers.{i}.{'x' * 100}.weight") for i in range(2000)]
    hub.repositories[REPO].files["model.safetensors"] = written(many)
    assert open_checkpoint(REPO).tensors == tuple(many)
    ranges = [request.headers["range"] for request in hub.requests if "range" in request.headers]
    assert ranges[0] == f"bytes=0-{FIRST_BYTES - 1}"
    assert ranges[1].startswith(f"bytes={FIRST_BYTES}-")
    assert len(ranges) == 2


def test_files_read_later_ask_for_what_the_first_ones_needed(hub: FakeHub) -> None:
    files = {f"model-{i:05d}-of-00064.safetensors": framed(b"{}" + b" " * 998) for i in range(1, 65)}
    hub.repositories[REPO] = sharded(files)
    open_checkpoint(REPO)
    asked = sorted({int(r.headers["range"].partition("-")[2]) + 1 for r in hub.requests if "range" in r.headers})
    assert asked == [1260, FIRST_BYTES]


def test_counts_of_the_hub_stand_for_headers(hub: FakeHub) -> None:
    hub.repositories[REPO] = sharded(SHARDS)
    hub.repositories[REPO].info = {"safetensors": {"parameters": {"BF16": 90, "F32": 6}, "total": 96}}
    found = open_checkpoint(REPO, headers=False)
    assert sorted(hub.paths) == ["config.json", "info"]
    assert (found.tensors, found.stored_bytes, found.parameters_by_dtype) == (None, 204, {"BF16": 90, "F32": 6})
    assert "counts" in found.read


def test_packed_types_have_no_bytes_by_count(hub: FakeHub) -> None:
    hub.repositories[REPO].info = {"safetensors": {"parameters": {"I32": 90}, "total": 90}}
    found = open_checkpoint(REPO, headers=False)
    assert (found.stored_bytes, found.parameters_by_dtype) == (None, {"I32": 90})


def test_an_index_of_pytorch_files_gives_the_bytes(hub: FakeHub) -> None:
    index = {"metadata": {"total_size": 1234}, "weight_map": {"a": "pytorch_model-00001-of-00002.bin"}}
    hub.repositories[REPO] = Repository({"config.json": packed(CONFIG), "pytorch_model.bin.index.json": packed(index)})
    found = open_checkpoint(REPO)
    assert (found.format, found.tensors, found.stored_bytes) == (PYTORCH, None, 1234)
    assert len(hub.requests) == 3


# -- revisions


def test_a_revision_in_either_way(hub: FakeHub) -> None:
    hub.repositories[REPO].branches = ("main", "v1.0", "refs/pr/3")
    for reference, revision in (
        (f"{REPO}@v1.0", None),
        (REPO, "v1.0"),
        (f"{REPO}@refs/pr/3", None),
        (f"https://huggingface.co/{REPO}@v1.0", None),
    ):
        hub.requests.clear()
        assert open_checkpoint(reference, revision=revision, refresh=True).source == f"{REPO}@{COMMIT[:12]}"
        name = revision or reference.partition("@")[2]
        assert hub.requests[0].path.endswith(f"/revision/{name.replace('/', '%2F')}")


def test_two_revisions_contradict() -> None:
    assert "two revisions" in refused(lambda: open_checkpoint(f"{REPO}@a", revision="b"), InputError)
    assert "hub ids" in refused(lambda: open_checkpoint("llama-3.1-8b", revision="b"), InputError)
    assert "on this machine" in refused(lambda: open_checkpoint("./x", revision="b"), InputError)


def test_a_full_commit_that_is_kept_asks_nothing(hub: FakeHub) -> None:
    open_checkpoint(REPO)
    hub.requests.clear()
    assert open_checkpoint(REPO, revision=COMMIT).tensors == tuple(SINGLE)
    assert hub.requests == []


def test_refresh_asks_for_the_commit_and_reads_what_is_new(hub: FakeHub) -> None:
    open_checkpoint(REPO)
    hub.requests.clear()
    open_checkpoint(REPO, refresh=True)
    assert hub.paths == ["info"]
    hub.repositories[REPO].commit = OTHER_COMMIT
    assert open_checkpoint(REPO).source == f"{REPO}@{COMMIT[:12]}"
    assert open_checkpoint(REPO, refresh=True).source == f"{REPO}@{OTHER_COMMIT[:12]}"
    assert len(hub.requests) == 4


def test_a_branch_is_asked_for_again_after_a_week(hub: FakeHub, tmp_path: Path) -> None:
    open_checkpoint(REPO)
    (ref,) = (tmp_path / "home/kvbudget").glob("*/main.ref")
    old = time.time() - 8 * 86400
    os.utime(ref, (old, old))
    hub.requests.clear()
    open_checkpoint(REPO)
    assert hub.paths == ["info"]
    os.utime(ref, (old, old))
    hub.fault = lambda handler, _: handler.error(503)
    found = open_checkpoint(REPO)
    assert found.tensors == tuple(SINGLE)
    assert "8 days ago" in found.notes[0]


# -- what goes wrong


def test_a_repository_that_is_not_there(hub: FakeHub) -> None:
    assert "no model org/other" in refused(lambda: open_checkpoint("org/other"))
    assert len(hub.requests) == 1


def test_a_revision_that_is_not_there(hub: FakeHub) -> None:
    assert "no such revision" in refused(lambda: open_checkpoint(f"{REPO}@v9"))
    assert len(hub.requests) == 1


@pytest.mark.parametrize(
    ("status", "code", "says"),
    [
        (401, "GatedRepo", "gated .* no token is given; ask for access"),
        (403, "GatedRepo", "gated .* ask for access"),
        (401, "RepoNotFound", "no org/name, or it is private"),
        (401, "", "HF_TOKEN"),
        (429, "", "slow down"),
        (418, "", "status 418"),
    ],
)
def test_doors_that_stay_shut(hub: FakeHub, status: int, code: str, says: str) -> None:
    """The hub describes a gated repository and does not hand out its files."""
    hub.fault = lambda handler, path: "/resolve/" in path and handler.error(status, code)
    message = refused(lambda: open_checkpoint(REPO))
    assert re.search(says, message), message


def test_a_token_is_sent_to_the_hub_and_nowhere_else(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files lie elsewhere: the redirect is followed without the token."""
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    with running() as store:
        store.repositories[REPO] = hub.repositories[REPO]

        def elsewhere(handler: Handler, path: str) -> bool:
            if "/resolve/" not in path:
                return False
            handler.send_response(302)
            handler.send_header("Location", f"{store.endpoint.replace('127.0.0.1', 'localhost')}{path}")
            handler.send_header("Content-Length", "0")
            handler.end_headers()
            return True

        hub.fault = elsewhere
        assert open_checkpoint(REPO).tensors == tuple(SINGLE)
        assert {request.headers.get("authorization") for request in hub.requests} == {"Bearer hf_secret"}
        assert {request.headers.get("authorization") for request in store.requests} == {None}
        assert any("range" in request.headers for request in store.requests)


def test_a_ring_of_redirects(hub: FakeHub) -> None:
    def ring(handler: Handler, path: str) -> bool:
        handler.send_response(302)
        handler.send_header("Location", path)
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return True

    hub.fault = ring
    assert "in a ring" in refused(lambda: open_checkpoint(REPO))


def cut(handler: Handler, path: str) -> bool:
    """Promise a file and hang up in the middle."""
    content = handler.server.repositories[REPO].files[path.rpartition("/")[2]]
    handler.begin(206, len(content), f"bytes 0-{len(content) - 1}/{len(content)}")
    handler.write(content[: len(content) // 2])
    handler.close_connection = True
    return True


def test_a_transfer_that_breaks_off_is_tried_once_more(hub: FakeHub) -> None:
    def first(handler: Handler, path: str) -> bool:
        again = sum("/model.safetensors" in request.path for request in hub.requests) > 1
        return path.endswith("model.safetensors") and not again and cut(handler, path)

    hub.fault = first
    assert open_checkpoint(REPO).tensors == tuple(SINGLE)
    assert len(hub.requests) == 4


def test_a_transfer_that_breaks_off_again_is_given_up(hub: FakeHub) -> None:
    hub.fault = lambda handler, path: path.endswith("model.safetensors") and cut(handler, path)
    assert "2 times" in refused(lambda: open_checkpoint(REPO))
    assert hub.paths.count("model.safetensors") == 2


def test_a_server_that_fails_once(hub: FakeHub) -> None:
    hub.fault = lambda handler, _: len(hub.requests) == 1 and handler.error(502)
    assert open_checkpoint(REPO).tensors == tuple(SINGLE)


def test_silence_ends_after_the_patience(hub: FakeHub) -> None:
    def silence(_handler: Handler, _path: str) -> bool:
        time.sleep(20)
        return True

    hub.fault = silence
    started = time.monotonic()
    assert "sent nothing for 0.1 s" in refused(lambda: ask(patience_s=0.1))
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("where", ["info", "body"])
def test_drops_end_after_the_time_for_all(hub: FakeHub, where: str) -> None:
    """A byte now and then keeps any read alive, so the whole has a limit."""
    hub.fault = lambda handler, path: (
        (where == "info" or "/resolve/" in path) and (handler.drip(b" " * 1000, 0.05) or True)
    )
    started = time.monotonic()
    assert "within 0.4 s" in refused(lambda: ask(total_s=0.4))
    assert time.monotonic() - started < 10


def test_headers_of_an_answer_that_drip(hub: FakeHub) -> None:
    def drip(handler: Handler, _: str) -> bool:
        for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 1000:
            handler.wfile.write(bytes([byte]))
            handler.wfile.flush()
            time.sleep(0.05)
        return True

    hub.fault = drip
    assert "within 0.4 s" in refused(lambda: ask(total_s=0.4))


def test_a_server_that_ignores_ranges_is_cut_off(hub: FakeHub) -> None:
    content = hub.repositories[REPO].files["model.safetensors"]
    total = 1 << 40

    def whole(handler: Handler, path: str) -> bool:
        if not path.endswith("model.safetensors"):
            return False
        handler.begin(200, total)
        handler.write(content)
        while True:  # until the other side hangs up
            handler.write(bytes(1 << 20))

    hub.fault = whole
    message = refused(lambda: open_checkpoint(REPO), InputError)
    assert "behind the last tensor" in message  # the file is longer than its header says
    assert hub.sent < 64 << 20


@pytest.mark.parametrize(
    ("content_range", "says"),
    [("bytes 8-15/999", "where 0-"), ("bytes 0-99999999/999999999", "were asked for"), ("rubbish", "status 206")],
)
def test_another_range_than_was_asked_for(hub: FakeHub, content_range: str, says: str) -> None:
    def other(handler: Handler, path: str) -> bool:
        if not path.endswith("model.safetensors"):
            return False
        handler.begin(206, 8, content_range)
        handler.write(bytes(8))
        return True

    hub.fault = other
    assert says in refused(lambda: open_checkpoint(REPO))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "ends within its first field"),
        (written(SINGLE)[:-4], "of the 88 bytes"),
        ((1 << 63).to_bytes(8, "little"), "claims a header"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
    ],
)
def test_files_that_are_broken_themselves(hub: FakeHub, content: bytes, says: str) -> None:
    hub.repositories[REPO].files["model.safetensors"] = content
    message = refused(lambda: open_checkpoint(REPO), InputError)
    assert message.startswith("org/name/model.safetensors: ")
    assert says in message


def test_an_answer_that_is_packed_though_nobody_asked(hub: FakeHub) -> None:
    def zipped(handler: Handler, path: str) -> bool:
        if "/api/" not in path:
            return False
        content = gzip.compress(packed({"sha": COMMIT, "siblings": [{"rfilename": n} for n in single().files]}))
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.write(content)
        return True

    hub.fault = zipped
    assert open_checkpoint(REPO).tensors == tuple(SINGLE)


def test_headers_that_take_too_much_together(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbudget.hub.transport.MAX_HEADERS_BYTES", FIRST_BYTES)
    hub.repositories[REPO] = sharded(SHARDS)
    assert "headers of this model take more" in refused(lambda: open_checkpoint(REPO), InputError)


def test_too_many_files_for_as_many_requests(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbudget.hub.remote.MAX_FILES", 2)
    hub.repositories[REPO] = sharded(SHARDS)
    assert "--no-headers" in refused(lambda: open_checkpoint(REPO), InputError)
    assert open_checkpoint(REPO, headers=False).tensors is None


@pytest.mark.parametrize("end", ["/revision/main", "config.json"])
def test_a_web_page_in_place_of_json(hub: FakeHub, end: str) -> None:
    def page(handler: Handler, path: str) -> bool:
        if not path.endswith(end):
            return False
        handler.send(b"<!doctype html><title>Sign in to the Wi-Fi</title>")
        return True

    hub.fault = page
    message = refused(lambda: open_checkpoint(REPO))
    assert "web page" in message
    assert "HF_ENDPOINT" in message


@pytest.mark.parametrize(
    "info", [b"[]", b"{}", b"{", b'{"sha": 7, "siblings": []}', b'{"sha": "../x", "siblings": []}']
)
def test_an_answer_that_describes_nothing(hub: FakeHub, info: bytes) -> None:
    def other(handler: Handler, path: str) -> bool:
        if "/api/" not in path:
            return False
        handler.send(info)
        return True

    hub.fault = other
    assert "something else" in refused(lambda: open_checkpoint(REPO))


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.usefixtures("hub")
def test_a_host_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    assert "cannot be reached" in refused(lambda: open_checkpoint(REPO))
    monkeypatch.setenv("HF_ENDPOINT", "http://kvbudget.invalid")
    assert "cannot be reached" in refused(lambda: open_checkpoint(REPO))


@pytest.mark.parametrize("address", ["huggingface.co", "ftp://x", "http://", "http://x:y", "http://x:99999999"])
def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    assert "HF_ENDPOINT" in refused(lambda: open_checkpoint(REPO), InputError)


def test_a_misspelt_id_is_told_what_is_close(hub: FakeHub) -> None:
    assert "Close: meta-llama/Llama-3.1-8B" in refused(lambda: open_checkpoint("meta-llama/Llama-3.1-8B-Instuct"))
    assert len(hub.requests) == 1


def test_a_token_that_cannot_be_one(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_sécret")
    message = refused(lambda: open_checkpoint(REPO), InputError)
    assert "HF_TOKEN" in message
    assert "cret" not in message
    assert hub.requests == []


@pytest.mark.parametrize(("file", "kind"), [(None, AccessError), (b"\xff\xfe\x00", InputError)])
def test_a_token_file_that_is_none(
    hub: FakeHub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, file: bytes | None, kind: type[KvbudgetError]
) -> None:
    from huggingface_hub import constants  # noqa: PLC0415 - slow to import

    place = tmp_path / "token"
    if file is None:
        place.mkdir()  # a folder cannot be read, whoever runs this
    else:
        place.write_bytes(file)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(place))
    assert "token" in refused(lambda: open_checkpoint(REPO), kind)
    assert hub.requests == []


# -- the catalogue


def test_an_id_of_the_catalogue_is_the_hubs_if_it_answers(hub: FakeHub) -> None:
    hub.repositories[CATALOGUED] = single()
    assert open_checkpoint(CATALOGUED).tensors == tuple(SINGLE)


@pytest.mark.parametrize("status", [401, 403, 404, 500])
def test_the_catalogue_stands_in(hub: FakeHub, status: int) -> None:
    hub.fault = lambda handler, _: handler.error(status, "GatedRepo" if status < 404 else "")
    found = open_checkpoint(CATALOGUED)
    assert found.source.startswith("built-in catalogue")
    assert found.notes[0].endswith("The built-in catalogue stands in.")
    refused(lambda: open_checkpoint(CATALOGUED, revision="main"))


def test_the_catalogue_stands_in_for_a_hub_that_is_slow(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kvbudget.hub.IMPATIENCE_S", 0.2)

    def silence(_handler: Handler, _path: str) -> bool:
        time.sleep(20)
        return True

    hub.fault = silence
    started = time.monotonic()
    assert "within 0.2 s" in open_checkpoint(CATALOGUED).notes[0]
    assert time.monotonic() - started < 10


def test_a_short_name_asks_nobody(hub: FakeHub) -> None:
    assert load_model("llama-3.1-8b").source.startswith("built-in catalogue")
    assert hub.requests == []


def test_offline_asks_nobody(hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert open_checkpoint(CATALOGUED).source.startswith("built-in catalogue")
    assert "HF_HUB_OFFLINE" in refused(lambda: open_checkpoint(REPO))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    found = open_checkpoint(REPO)
    hub.requests.clear()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert open_checkpoint(REPO) == found
    assert open_checkpoint(REPO, refresh=True) == found
    assert hub.requests == []


# -- caches


def snapshot(home: Path, files: dict[str, bytes], commit: str = COMMIT) -> None:
    """Lay files where huggingface_hub keeps them."""
    folder = home / "hub/models--org--name"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text(commit)
    (folder / "snapshots" / commit).mkdir(parents=True)
    for name, content in files.items():
        (folder / "snapshots" / commit / name).write_bytes(content)


def test_a_whole_model_in_the_hubs_own_cache_asks_nothing(hub: FakeHub, tmp_path: Path) -> None:
    snapshot(tmp_path / "home", single().files)
    found = open_checkpoint(REPO)
    assert (found.tensors, found.source) == (tuple(SINGLE), f"{REPO}@{COMMIT[:12]}")
    assert "local hub cache" in found.read
    assert hub.requests == []


def test_a_config_in_the_hubs_own_cache_is_not_asked_for(hub: FakeHub, tmp_path: Path) -> None:
    snapshot(tmp_path / "home", {"config.json": packed(CONFIG)})
    assert open_checkpoint(REPO).tensors == tuple(SINGLE)
    assert hub.paths == ["info", "model.safetensors"]


def test_half_a_model_in_the_hubs_own_cache_is_read_from_the_hub(hub: FakeHub, tmp_path: Path) -> None:
    hub.repositories[REPO] = sharded(SHARDS, index_of(SHARDS))
    files = dict(hub.repositories[REPO].files)
    del files["model-00002-of-00003.safetensors"]
    snapshot(tmp_path / "home", files)
    assert len(open_checkpoint(REPO).tensors or ()) == 3


def test_a_config_alone_answers_offline(hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot(tmp_path / "home", {"config.json": packed(CONFIG)})
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = open_checkpoint(REPO)
    assert (found.config, found.tensors) == (CONFIG, None)
    assert "not its weights" in found.notes[0]
    assert hub.requests == []


@pytest.mark.parametrize("content", [b"", b"rubbish", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_a_corrupt_entry_is_as_good_as_none(hub: FakeHub, tmp_path: Path, content: bytes) -> None:
    open_checkpoint(REPO)
    (entry,) = (tmp_path / "home/kvbudget").glob("*/*.z")
    entry.write_bytes(content)
    hub.requests.clear()
    assert open_checkpoint(REPO).tensors == tuple(SINGLE)
    assert len(hub.requests) == 3


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 99},
        {"kind": [0]},
        {"kind": [0, 7]},
        {"kind": [0, -1]},
        {"kinds": "x"},
        {"names": 7},
        {"config": 7},
        {"metadata": []},
        {"notes": None},
    ],
)
def test_an_entry_of_another_make_is_as_good_as_none(tmp_path: Path, change: dict[str, Any], hub: FakeHub) -> None:
    found = open_checkpoint(REPO)
    assert hub.requests
    (entry,) = (tmp_path / "home/kvbudget").glob("*/*.z")
    document = json.loads(zlib.decompress(entry.read_bytes()))
    entry.write_bytes(zlib.compress(packed(document | change)))
    cache, place = HeaderCache(tmp_path / "home/kvbudget"), Place(hub.endpoint, REPO)
    assert cache.load(place, COMMIT, "headers") is None
    entry.write_bytes(zlib.compress(packed(document)))
    assert cache.load(place, COMMIT, "headers") == found._replace(name="", source="")


def test_an_entry_that_unpacks_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> None:
    open_checkpoint(REPO)
    monkeypatch.setattr(cache_module, "MAX_TEXT_BYTES", 16)
    cache = HeaderCache(tmp_path / "home/kvbudget")
    assert cache.load(Place(hub.endpoint, REPO), COMMIT, "headers") is None


def test_many_write_at_once(tmp_path: Path, hub: FakeHub) -> None:
    found = open_checkpoint(REPO)
    cache, place = HeaderCache(tmp_path / "own"), Place(hub.endpoint, REPO)
    threads = [threading.Thread(target=cache.store, args=(place, COMMIT, "headers", found)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.load(place, COMMIT, "headers") == found._replace(name="", source="")
    assert len([*(tmp_path / "own").glob("*/*")]) == 1


def test_the_oldest_entries_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: FakeHub) -> None:
    found = open_checkpoint(REPO)
    cache, place = HeaderCache(tmp_path / "own"), Place(hub.endpoint, REPO)
    for i in range(4):
        cache.store(place, str(i) * 40, "headers", found)
        for path in (tmp_path / "own").glob(f"*/{str(i) * 40}.*"):
            os.utime(path, (i, i))
    size = next((tmp_path / "own").glob("*/*.z")).stat().st_size
    monkeypatch.setattr(cache_module, "MAX_CACHE_BYTES", 2 * size)
    cache.store(place, "9" * 40, "headers", found)
    kept = [i for i in (*range(4), 9) if cache.load(place, str(i) * 40, "headers")]
    assert kept == [3, 9]


def test_a_cache_that_cannot_be_written(hub: FakeHub, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file where the folder would be")
    assert open_checkpoint(REPO).tensors == tuple(SINGLE)
    assert len(hub.requests) == 3


# -- what is no model, GGUF


def test_an_adapter_is_refused_with_its_model(hub: FakeHub) -> None:
    hub.repositories[REPO] = Repository(
        {"adapter_config.json": packed({"base_model_name_or_path": "org/base"}), "adapter_model.safetensors": b""}
    )
    message = refused(lambda: open_checkpoint(REPO), InputError)
    assert "adapter" in message
    assert "org/base" in message


def test_a_repository_without_a_config(hub: FakeHub) -> None:
    hub.repositories[REPO] = Repository({"model_index.json": b"{}"})
    assert "no config.json" in refused(lambda: open_checkpoint(REPO), InputError)


LLAMA = {
    "general.architecture": Typed("str", "llama"),
    "llama.block_count": Typed("u32", 2),
    "llama.embedding_length": Typed("u32", 64),
    "llama.feed_forward_length": Typed("u32", 128),
    "llama.attention.head_count": Typed("u32", 4),
    "llama.context_length": Typed("u32", 4096),
    "tokenizer.ggml.tokens": Typed("str", ["token"] * 60_000),
}
QUANTIZED = [gguf_tensor("blk.0.attn_q.weight", "q4_K", (64, 256)), gguf_tensor("output.weight", "q6_K", (64, 256))]


def test_a_gguf_takes_two_requests_however_long_its_vocabulary(hub: FakeHub) -> None:
    content = gguf(LLAMA, QUANTIZED)
    hub.repositories[REPO] = Repository({"name-Q4_K_M.gguf": content})
    found = open_checkpoint(REPO)
    assert hub.paths == ["info", "name-Q4_K_M.gguf"]
    assert (found.format, found.tensors) == (GGUF, tuple(QUANTIZED))
    assert found.config["vocab_size"] == 60_000
    hub.requests.clear()
    again = open_checkpoint(REPO)
    assert (again.metadata, again.tensors, hub.paths) == (dict(found.metadata), found.tensors, [])


def test_a_gguf_is_cut_off_behind_its_header(hub: FakeHub) -> None:
    big = [gguf_tensor("token_embd.weight", "q4_K", (1 << 16, 4096))]
    content = gguf(LLAMA, big)
    hub.repositories[REPO] = Repository({"name.gguf": content})
    assert open_checkpoint(REPO).tensors == tuple(big)
    assert hub.sent < 16 << 20 < len(content)


@pytest.mark.parametrize("variant", ["Q4_K_M", "q8_0"])
def test_a_gguf_is_chosen_by_its_quantization(hub: FakeHub, variant: str) -> None:
    files = ("a-Q4_K.gguf", "a-Q4_K_M.gguf", "a-Q4_K_S.gguf", "a-Q8_0.gguf", "mmproj-a-Q8_0.gguf")
    hub.repositories[REPO] = Repository({name: gguf(LLAMA, QUANTIZED) for name in files})
    open_checkpoint(f"{REPO}:{variant}")
    assert hub.paths[1:] == [f"a-{variant.upper()}.gguf"]
    message = refused(lambda: open_checkpoint(REPO), InputError)
    assert "Q4_K, Q4_K_M, Q4_K_S, Q8_0" in message
    assert "Q4_K_S" in refused(lambda: open_checkpoint(f"{REPO}:Q2_K"), InputError)


def test_a_gguf_that_breaks_off_goes_on_where_it_was(hub: FakeHub) -> None:
    content = gguf(LLAMA, QUANTIZED)

    def first(handler: Handler, path: str) -> bool:
        if not path.endswith(".gguf") or len(hub.requests) > 2:
            return False
        handler.begin(206, len(content), f"bytes 0-{len(content) - 1}/{len(content)}")
        handler.write(content[: len(content) // 2])
        handler.close_connection = True
        return True

    hub.repositories[REPO] = Repository({"name.gguf": content})
    hub.fault = first
    assert open_checkpoint(REPO).tensors == tuple(QUANTIZED)
    assert len(hub.requests) == 3
    assert hub.requests[2].headers["range"] != "bytes=0-33554431"


def test_a_split_gguf_on_the_hub(hub: FakeHub) -> None:
    parts = {}
    for number, each in enumerate(QUANTIZED):
        place = {"split.no": Typed("u16", number), "split.count": Typed("u16", 2)}
        parts[f"Q4_K_M/a-Q4_K_M-0000{number + 1}-of-00002.gguf"] = gguf((LLAMA if not number else {}) | place, [each])
    hub.repositories[REPO] = Repository(parts)
    assert open_checkpoint(f"{REPO}:Q4_K_M").tensors == tuple(QUANTIZED)
    assert len(hub.requests) == 3
