"""What a person sees of `fit`: golden files, and the laws that hold for every budget.

`KVBUDGET_UPDATE_GOLDEN=1 pytest tests/test_present.py` rewrites the files; read the difference before keeping it.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from kvbudget.budgeting import DOES_NOT_FIT, FITS, TIGHT, Budget, budget
from kvbudget.cli import main
from kvbudget.deployment import Deployment
from kvbudget.errors import KvbudgetError
from kvbudget.hub import load_model
from kvbudget.present.markdown import budget_markdown
from kvbudget.present.report import VERDICTS, verdict_words
from kvbudget.present.table import HEADER, budget_csv
from kvbudget.present.text import NARROWEST, budget_text, plain

GOLDEN = Path(__file__).parent / "golden"
UPDATE = "KVBUDGET_UPDATE_GOLDEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A deployment whose report is kept."""

    name: str
    model: str
    gpu: str
    verdict: str
    choices: dict[str, Any] = field(default_factory=dict)


CASES = (
    Case(name="fits", model="llama-3.1-8b", gpu="h100", verdict=FITS, choices={"max_model_len": 8192}),
    Case(
        name="tight",
        model="llama-3.3-70b",
        gpu="h100",
        verdict=TIGHT,
        choices={"tensor_parallel_size": 2, "max_model_len": 16384},
    ),
    Case(name="does_not_fit", model="llama-3.1-8b", gpu="l4", verdict=DOES_NOT_FIT, choices={"max_model_len": 65536}),
    Case(
        name="weights_too_large",
        model="llama-3.3-70b",
        gpu="h100",
        verdict=DOES_NOT_FIT,
        choices={"max_model_len": 16384},
    ),
    Case(name="moe", model="qwen3-30b-a3b-fp8", gpu="l40s", verdict=FITS),
    Case(name="mla", model="deepseek-v3", gpu="h200", verdict=FITS, choices={"tensor_parallel_size": 8}),
    Case(name="windows", model="gpt-oss-20b", gpu="h100", verdict=FITS),
    Case(name="state", model="qwen3-next-80b-a3b", gpu="h100", verdict=FITS, choices={"tensor_parallel_size": 4}),
    Case(
        name="draft",
        model="glm-4.5-air",
        gpu="h200",
        verdict=FITS,
        choices={
            "tensor_parallel_size": 2,
            "pipeline_parallel_size": 2,
            "max_model_len": 32768,
            "max_num_seqs": 64,
            "speculative_config": {"method": "mtp", "num_speculative_tokens": 1},
            "enable_lora": True,
        },
    ),
    Case(
        name="stages",
        model="mixtral-8x7b",
        gpu="a100-80",
        verdict=FITS,
        choices={"pipeline_parallel_size": 3, "tensor_parallel_size": 2},
    ),
)


@cache
def budget_of(case_name: str) -> Budget:
    case = next(case for case in CASES if case.name == case_name)
    return budget(Deployment(model=load_model(case.model), gpu=case.gpu, **case.choices))


def compare(name: str, text: str) -> None:
    """Compare a report with the golden file, or rewrite the file when asked to."""
    path = GOLDEN / name
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_text(case: Case) -> None:
    b = budget_of(case.name)
    assert b.verdict == case.verdict
    compare(f"{case.name}.txt", budget_text(b))


@pytest.mark.parametrize("name", ["does_not_fit", "windows"])
def test_markdown(name: str) -> None:
    compare(f"{name}.md", budget_markdown(budget_of(name)))


@pytest.mark.parametrize("name", ["fits", "stages"])
def test_csv(name: str) -> None:
    compare(f"{name}.csv", budget_csv(budget_of(name)))


def test_no_golden_file_is_forgotten() -> None:
    kept = {f"{case.name}.txt" for case in CASES} | {"does_not_fit.md", "windows.md", "fits.csv", "stages.csv"}
    found = {path.name for path in GOLDEN.iterdir() if not path.name.startswith(("table_", "check_", "emit_"))}
    assert found == kept


# -- laws

MODELS = (
    "llama-3.1-8b",
    "llama-3.3-70b",
    "qwen3-0.6b",
    "qwen3-30b-a3b-fp8",
    "gpt-oss-20b",
    "gemma-3-27b",
    "deepseek-v3",
    "qwen3-next-80b-a3b",
    "jamba2-3b",
    "falcon-mamba-7b",
)
GPUS = ("t4", "l4", "a100-80", "h100", "b200", "gb10")


QUESTIONS = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "gpu": st.sampled_from(GPUS),
        "engine_version": st.sampled_from(["0.10.2", "0.18.1", "0.28", "0.32"]),
        "tensor_parallel_size": st.sampled_from([1, 2]),
        "pipeline_parallel_size": st.sampled_from([1, 1, 2]),
        "max_model_len": st.one_of(st.none(), st.integers(256, 1 << 17)),
        "gpu_memory_utilization": st.one_of(st.none(), st.sampled_from([0.5, 0.8, 0.95])),
        "enforce_eager": st.booleans(),
        "allow_long": st.just(True),
    }
)


def answer(question: dict[str, Any]) -> Budget:
    """Return the budget of a drawn question; what the engine refuses is no example."""
    try:
        return budget(Deployment(**{**question, "model": load_model(question["model"])}))
    except KvbudgetError:
        reject()


@settings(max_examples=60, deadline=None)
@given(QUESTIONS, st.integers(NARROWEST, 120))
def test_laws_of_the_text(question: dict[str, Any], width: int) -> None:
    b = answer(question)
    text = budget_text(b, width)
    first, second = text.splitlines()[:2]
    assert first.startswith(f"{verdict_words(b)}   ")
    assert second.split()[0] in b.reason
    assert max(map(len, text.splitlines())) <= width
    assert plain(text).isascii()
    assert list(map(len, plain(text).splitlines())) == list(map(len, text.splitlines()))


@settings(max_examples=60, deadline=None)
@given(QUESTIONS)
def test_takes_add_up_to_the_memory(question: dict[str, Any]) -> None:
    b = answer(question)
    rows = list(csv.DictReader(io.StringIO(budget_csv(b))))
    assert tuple(rows[0]) == HEADER
    for rank in {row["rank"] for row in rows}:
        takes = [int(row["takes_bytes"]) for row in rows if row["rank"] == rank]
        assert min(takes) >= 0
        assert sum(takes) == b.deployment.card.memory_bytes


@settings(max_examples=60, deadline=None)
@given(QUESTIONS)
def test_never_fits_when_the_high_end_does_not(question: dict[str, Any]) -> None:
    """Add up the high ends by hand: no text says FITS without a doubt when they are above the budget."""
    b = answer(question)
    for rank in b.ranks:
        cache_at = [line.name for line in rank.lines].index("kv_cache")
        high = sum(line.high_bytes for line in rank.lines[: cache_at + 1])
        if high > rank.budget_bytes:
            assert b.verdict != FITS
            assert not budget_text(b).startswith("FITS  ")


def test_the_bar_is_true_to_scale() -> None:
    """Weights of a fifth of the card take a fifth of the bar, and the budget's end stands where it belongs."""
    b = budget_of("fits")
    bar = next(line for line in budget_text(b, 100).splitlines() if line.startswith("█"))
    total = b.deployment.card.memory_bytes
    assert len(bar) == 100
    assert abs(bar.count("█") - 99 * b.lines[0].needs_bytes / total) <= 1
    assert abs(bar.index("│") - 99 * b.ranks[0].budget_bytes / total) <= 1


def test_the_bar_runs_past_the_budget_when_it_does_not_fit() -> None:
    bar = next(line for line in budget_text(budget_of("does_not_fit")).splitlines() if line.startswith("█"))
    assert bar.index("│") < bar.rindex("▒")
    assert "over by" in budget_text(budget_of("does_not_fit"))


def test_colour_adds_nothing_but_colour() -> None:
    for case in CASES:
        b = budget_of(case.name)
        assert re.sub(r"\x1b\[[0-9;]*m", "", budget_text(b, color=True)) == budget_text(b)


# -- the command line


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kvbudget", "fit", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8", **environment},
    )


def test_exit_codes_and_streams() -> None:
    done = run("llama-3.1-8b", "--gpu", "h100", "--max-model-len", "8k")
    assert (done.returncode, done.stdout.split()[0]) == (0, "FITS")
    assert done.stderr == (
        "kvbudget: note: --max-model-len 8k = 8,000 tokens (vLLM: k = powers of 1,000, K = powers of 1,024); "
        "for 8,192 write 8K.\n"
    )
    done = run("llama-3.1-8b", "--gpu", "l4", "--max-model-len", "64K")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("DOES NOT FIT   1 × L4-24GB")
    assert "\x1b" not in done.stdout


def test_columns_are_honoured() -> None:
    done = run("llama-3.1-8b", "--gpu", "h100", COLUMNS="100")
    assert 80 < max(map(len, done.stdout.splitlines())) <= 100


def test_an_output_that_knows_only_ascii_gets_ascii() -> None:
    for output in ([], ["--md"]):
        done = run("llama-3.1-8b", "--gpu", "l4", *output, PYTHONIOENCODING="ascii")
        assert done.returncode in (0, 1)
        assert done.stdout.isascii()
        assert "DOES NOT FIT   1 x L4-24GB" in done.stdout


def test_json_is_pure(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["fit", "llama-3.1-8b", "--gpu", "h100", "--max-model-len", "8k", "--json"])
    captured = capsys.readouterr()
    assert json.loads(captured.out)["settings"]["max_model_len"] == 8000
    assert captured.err.startswith("kvbudget: note: ")


def test_one_output_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        main(["fit", "llama-3.1-8b", "--gpu", "h100", "--json", "--md"])
    assert leaving.value.code == 2
    assert "exclude each other" in capsys.readouterr().err


@pytest.mark.parametrize(("pool", "verdict"), [("30GiB", FITS), ("60GiB", TIGHT), ("200GiB", DOES_NOT_FIT)])
def test_a_pool_of_a_given_size_needs_its_place(pool: str, verdict: str) -> None:
    done = run("llama-3.1-8b", "--gpu", "h100", "--kv-cache-memory-bytes", pool)
    assert done.returncode == (verdict == DOES_NOT_FIT)
    assert done.stdout.startswith(f"{VERDICTS[verdict]}   ")
    assert f"{float(pool[:-3]):.2f} GiB" in " ".join(done.stdout.splitlines()[1:3])
