"""`kvbudget table`: what a person sees in 80 columns, and what a script reads.

`KVBUDGET_UPDATE_GOLDEN=1 pytest tests/test_table_cli.py` rewrites the golden files; read the difference before keeping
it. Their pools are given (`--kv-cache-memory-bytes`) where a card is named, so that no estimate is in them.
"""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest

from kvbudget.cli import main
from kvbudget.grid import REFUSED

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "KVBUDGET_UPDATE_GOLDEN"

CASES = {
    "table_kv.txt": ("llama-2-7b", "--contexts", "4K,32K,128K", "--allow-long"),
    "table_kv.md": ("llama-2-7b", "--contexts", "4K,32K,128K", "--allow-long", "--md"),
    "table_kv.csv": ("llama-2-7b", "--contexts", "4K,32K,128K", "--allow-long", "--csv"),
    "table_layouts.txt": ("llama-3.1-8b", "-tp", "1,2,3", "--kv-cache-dtype", "auto,fp8"),
    "table_windows.txt": ("gpt-oss-20b",),
    "table_gpus.txt": (
        "llama-3.1-8b",
        *("--gpu", "h100,h200", "--kv-cache-memory-bytes", "4GiB,40GiB", "--contexts", "4K,32K,1M"),
    ),
    "table_wide.txt": ("qwen3-30b-a3b", "--batches", "1,8,64,512,4096,32768", "--contexts", "4K,32K"),
}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line and return its exit code and both streams."""
    with pytest.raises(SystemExit) as left:
        main(["table", *arguments])
    out, err = capsys.readouterr()
    code = left.value.code
    return (code if isinstance(code, int) else 0), out, err


@pytest.mark.parametrize("name", CASES)
def test_golden(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The output is what it was; nothing else goes to standard output, and nothing to the other stream."""
    code, out, err = run(capsys, *CASES[name])
    assert (code, err) == (0, "")
    path = GOLDEN / name
    if os.environ.get(UPDATE):
        path.write_text(out, encoding="utf-8")
    assert out == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith(".txt")])
def test_eighty_columns(name: str) -> None:
    """No line of a text table is wider than a terminal."""
    assert [line for line in (GOLDEN / name).read_text(encoding="utf-8").splitlines() if len(line) > 80] == []


def test_what_does_not_fit_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    """A batch that is too large has a word beside its figure, and a refused combination its reason below."""
    _, out, _ = run(
        capsys, "llama-3.1-8b", "--gpu", "h100", "--kv-cache-memory-bytes", "8GiB", "--contexts", "4K,32K,1M"
    )
    assert "32.00 no" in out
    assert "refused [1]" in out
    assert "[1] --max-model-len 1048576 exceeds the model's 131,072" in " ".join(out.split())
    assert "\x1b" not in out


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Each cell names its choices, its bytes and its verdict."""
    code, out, _ = run(
        capsys, "llama-3.1-8b", "--gpu", "h100,l4", "-tp", "1,3", "--contexts", "4K", "--batches", "1,8", "--json"
    )
    assert code == 0
    data = json.loads(out)
    assert data["schema"] == 1
    assert data["axes"] == {
        "gpu": ["H100-SXM-80GB", "L4-24GB"],
        "tensor_parallel_size": [1, 3],
        "max_model_len": [4096],
        "batch": [1, 8],
    }
    assert len(data["cells"]) == 8
    first, second = data["cells"][:2]
    assert (first["gpu"], first["context"], first["batch"], first["kv_bytes"]) == ("H100-SXM-80GB", 4096, 1, 512 << 20)
    assert second["kv_bytes"] == 8 * first["kv_bytes"]
    assert first["verdict"] == "fits"
    refused = [cell for cell in data["cells"] if cell["tensor_parallel_size"] == 3]
    assert {cell["verdict"] for cell in refused} == {REFUSED}
    assert {cell["kv_bytes"] for cell in refused} == {None}


def test_without_a_card_nothing_is_said_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    """The KV table alone has no pool, no requests and no verdict."""
    _, out, _ = run(capsys, "llama-3.1-8b", "--json")
    cell = json.loads(out)["cells"][0]
    assert "verdict" not in cell
    assert "available_kv_cache_memory_bytes" not in cell
    assert cell["kv_bytes"] == 4096 * 131072


def test_csv_has_the_cells_of_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Both list the same figures in the same order."""
    arguments = ("qwen3-8b", "--gpu", "l40s", "--kv-cache-dtype", "auto,fp8", "--contexts", "2K,8K")
    _, as_csv, _ = run(capsys, *arguments, "--csv")
    _, as_json, _ = run(capsys, *arguments, "--json")
    rows = list(csv.DictReader(io.StringIO(as_csv)))
    cells = json.loads(as_json)["cells"]
    assert [{key: str(value) for key, value in cell.items()} for cell in cells] == rows


def test_contexts_under_a_given_length(capsys: pytest.CaptureFixture[str]) -> None:
    """With --max-model-len the contexts are those of the requests, and the engine keeps its length."""
    _, out, _ = run(capsys, "llama-3.1-8b", "--gpu", "h100", "--max-model-len", "32K", "--contexts", "1K,4K", "--json")
    data = json.loads(out)
    assert data["axes"]["context"] == [1024, 4096]
    needed = {cell["needed_for_one_request_bytes"] for cell in data["cells"]}
    assert needed == {32768 * 131072}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("llama-3.1-8b", "--contexts", "32,768"), 2, "may be one number or several; write 32768"),
        (("llama-3.1-8b", "--contexts", "abc"), 2, "--contexts 'abc' is not understood"),
        (("llama-3.1-8b", "--batches", "0"), 2, "A batch is 0"),
        (("llama-3.1-8b", "--batches", "1,"), 2, "--batches '1,' has an empty value"),
        (("llama-3.1-8b", "--gpu", "h1000"), 2, 'Unknown GPU "h1000"'),
        (("llama-3.1-8b", "-tp", "3"), 2, "32 attention heads cannot be split by 3"),
        (("llama-3.1-8b", "--json", "--csv"), 2, "exclude each other"),
        (("llama-3.1-8b", "--gpu-memory-utilization", "92"), 2, "Did you mean 0.92?"),
        (("llama-3.1-8b", "--contexts", ",".join(map(str, range(1, 60001)))), 2, "120,000 cells, more than 100,000"),
        (("llama-3.1-8b", "--html", "/nonexistent/dir/x.html"), 2, "cannot be written"),
        (("no-such-model",), 2, "No model"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence on the other stream, nothing on standard output."""
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert "Traceback" not in err


def test_html_goes_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page is written, its name is noted, standard output stays empty."""
    target = tmp_path / "page.html"
    code, out, err = run(capsys, "llama-3.1-8b", "--gpu", "h100", "--html", str(target))
    assert (code, out) == (0, "")
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "page.html" in err
