"""`kvbudget models`, `gpus`, `formats`, `engines`: every row is shown, with its source where it is asked for."""

from __future__ import annotations

import csv
import io
import json

import pytest

from kvbudget.cli import main
from kvbudget.facts.catalogue import MODELS
from kvbudget.facts.formats import DTYPES, GGML_TYPES, KV_FORMATS, WEIGHT_FORMATS
from kvbudget.facts.gpus import GPUS
from kvbudget.facts.vllm import KNOWN

ROWS = {
    "models": len(MODELS),
    "gpus": len(GPUS),
    "formats": len(KV_FORMATS) + len(WEIGHT_FORMATS) + len(DTYPES) + len(GGML_TYPES),
}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line and return its exit code and both streams."""
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    out, err = capsys.readouterr()
    code = left.value.code
    return (code if isinstance(code, int) else 0), out, err


@pytest.mark.parametrize("verb", ["models", "gpus", "formats", "engines"])
def test_text(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table fits 80 columns; with --sources each row says where it was read."""
    code, out, err = run(capsys, verb)
    assert (code, err) == (0, "")
    assert [line for line in out.splitlines() if len(line) > 80] == []
    _, sourced, _ = run(capsys, verb, "--sources")
    assert sourced.count("\n") > out.count("\n")
    assert "Sources" in sourced


@pytest.mark.parametrize("verb", ["models", "gpus", "formats", "engines"])
def test_json_and_csv(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both have every row with its source."""
    _, out, _ = run(capsys, verb, "--json")
    data = json.loads(out)
    assert data["schema"] == 1
    rows = data[verb]
    assert len(rows) == ROWS.get(verb, len(rows))
    assert all(row["source"] and row["name"] for row in rows)
    _, out, _ = run(capsys, verb, "--csv")
    parsed = list(csv.DictReader(io.StringIO(out)))
    assert [row["name"] for row in parsed] == [row["name"] for row in rows]
    assert all(row["source"] for row in parsed)


@pytest.mark.parametrize("verb", ["models", "gpus", "formats", "engines"])
def test_markdown(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The source is the last column."""
    _, out, _ = run(capsys, verb, "--md")
    assert "| source |" in out


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("gpus", "h100-sxm"), ["H100-SXM-80GB"]),
        (("gpus", "p4de"), ["A100-SXM-80GB"]),
        (("models", "meta-llama/Llama-3.1-8B-Instruct"), ["llama-3.1-8b"]),
        (("formats", "q4_K"), ["q4_K"]),
        (("formats", "fp8_ds_mla"), ["fp8_ds_mla"]),
    ],
)
def test_a_word(arguments: tuple[str, ...], wanted: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A word finds rows by name, alias, hub id or cloud instance."""
    _, out, _ = run(capsys, *arguments, "--json")
    names = [row["name"] for row in json.loads(out)[arguments[0]]]
    assert names == wanted


def test_no_match(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing found is said in one sentence."""
    code, out, err = run(capsys, "gpus", "abacus")
    assert (code, out) == (2, "")
    assert "Nothing in `kvbudget gpus` matches 'abacus'" in err


def test_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """The table shows what the catalogue's configs come to, and what vLLM's versions changed."""
    _, out, _ = run(capsys, "models", "llama-3.1-8b")
    assert "8.03B" in out
    assert "128 KiB" in out
    _, out, _ = run(capsys, "gpus", "H100-SXM-80GB")
    assert "79.65" in out
    assert "79.19" in out
    _, out, _ = run(capsys, "engines")
    assert ".".join(map(str, KNOWN[-1])) in out
    assert "inside the budget" in out
