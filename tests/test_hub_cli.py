"""Hub ids on the command line: what goes to stdout and to stderr, and with which exit code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from fake_hub import COMMIT
from gguf_files import written as gguf
from kvbudget.cli import main
from test_hub import LLAMA, QUANTIZED, REPO, SHARDS, _hub, sharded, single  # noqa: F401 - a fixture is found by its name

if TYPE_CHECKING:
    from pathlib import Path

    from fake_hub import FakeHub

GPU = ("--gpu", "l4")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as leaving:
        main(list(arguments))
    out, err = capsys.readouterr()
    return int(leaving.value.code or 0), out, err


def test_fit_reads_from_the_hub(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.repositories[REPO] = sharded(SHARDS)
    code, out, err = run(capsys, "fit", REPO, *GPU, "--json")
    assert code == 0
    assert json.loads(out)["model"]["source"] == f"{REPO}@{COMMIT[:12]}"
    assert err == f"kvbudget: reading 3 headers of {REPO}\n"
    hub.requests.clear()
    assert run(capsys, "fit", REPO, *GPU, "--json") == (0, out, "")
    assert hub.requests == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("fit", f"{REPO}@{COMMIT}", *GPU),
        ("fit", REPO, *GPU, "--revision", COMMIT, "--refresh"),
        ("fit", *GPU, "--", "vllm", "serve", REPO, "--revision", COMMIT),
        ("fit", REPO, *GPU, "--no-headers"),
        ("table", REPO, *GPU, "--revision", COMMIT),
        ("explain", "kv", REPO, "--revision", COMMIT),
        ("explain", "weights", REPO, "--no-headers"),
    ],
    ids=" ".join,
)
def test_each_verb_takes_a_hub_id(hub: FakeHub, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]) -> None:
    hub.repositories[REPO] = single()
    code, out, err = run(capsys, *arguments)
    assert (code, err) == (0, "")
    assert out
    assert hub.requests


def test_the_network_is_exit_code_four(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "fit", "org/other", *GPU)
    assert (code, out) == (4, "")
    assert err.startswith("kvbudget: 127.0.0.1:")
    assert err.count("\n") == 1
    assert hub.requests


def test_what_stands_in_is_said(hub: FakeHub, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "fit", "meta-llama/Llama-3.1-8B-Instruct", "--gpu", "h100", "--json")
    assert code == 0
    assert json.loads(out)["model"]["source"].startswith("built-in catalogue")
    assert err.startswith("kvbudget: note: ")
    assert "The built-in catalogue stands in." in err
    assert len(hub.requests) == 1


@pytest.mark.parametrize("verb", [("explain", "kv"), ("explain", "weights"), ("fit", *GPU), ("table",)], ids=" ".join)
def test_each_verb_takes_a_gguf(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    """The file is never read as text: it may be as large as the disk."""
    path = tmp_path / "small.gguf"
    path.write_bytes(gguf(LLAMA, QUANTIZED))

    def whole(_: Path, *__: object) -> str:
        raise AssertionError(path)

    monkeypatch.setattr(type(path), "read_text", whole)
    monkeypatch.setattr(type(path), "read_bytes", whole)
    code, out, _ = run(capsys, *verb, str(path))
    assert code == 0
    assert out
