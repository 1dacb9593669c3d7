"""What the outside relies on: the public names, their signatures and the fields of the JSON answer."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kvbudget as kb
from kvbudget.cli import cli

UPDATE = "KVBUDGET_UPDATE_GOLDEN"
"""Set to write the samples anew; read the difference before it is committed."""

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}

OPTIONS = {
    "model",
    "gpu",
    "engine",
    "engine_version",
    "num_gpus",
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "enable_expert_parallel",
    "decode_context_parallel_size",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "kv_cache_memory_bytes",
    "block_size",
    "dtype",
    "quantization",
    "enforce_eager",
    "enable_prefix_caching",
    "async_scheduling",
    "disable_hybrid_kv_cache_manager",
}
"""The fields of a deployment that scripts may rely on, spelled as the engine's flags."""

LINES = ("weights", "activations", "cuda_graphs", "non_torch", "kv_cache", "outside_budget")

SCHEMA: dict[str, Any] = {
    "schema": int,
    "kvbudget": str,
    "verdict": str,
    "reason": str,
    "model": {"id": str, "source": str, "parameters": int, "layers": list},
    "engine": {"name": str, "version": str},
    "gpu": {"name": str, "memory_bytes": int, "count": int},
    "settings": {
        "tensor_parallel_size": int,
        "max_model_len": int,
        "max_num_seqs": int,
        "max_num_batched_tokens": int,
        "block_size": int,
    },
    "ranks": list,
    "kv": {
        "bytes_per_token": int,
        "fixed_bytes_per_request": int,
        "available_kv_cache_memory_bytes": int,
        "num_gpu_blocks": int,
        "block_size": int,
        "kv_cache_size_tokens": int,
        "max_concurrency": float,
        "needed_for_one_request_bytes": int,
    },
    "max_concurrent_requests": int,
    "max_model_len_that_fits": int,
    "warnings": list,
    "assumptions": list,
}

LINE: dict[str, Any] = {
    "name": str,
    "needs_bytes": int,
    "takes_bytes": int,
    "low_bytes": int,
    "high_bytes": int,
    "basis": str,
    "source": str,
}


@pytest.fixture(scope="module")
def answer() -> kb.Budget:
    """Return the budget of an 8B model on one 80 GB card."""
    model = kb.Model.from_config(LLAMA)
    return kb.budget(kb.Deployment(model=model, gpu="H100-SXM-80GB", engine_version="0.32", max_model_len=8192))


def assert_shape(value: dict[str, Any], shape: dict[str, Any], path: str = "") -> None:
    """Check that every field is there and has its type; more fields are welcome."""
    for key, kind in shape.items():
        assert key in value, f"{path}{key} is missing"
        if isinstance(kind, dict):
            assert_shape(value[key], kind, f"{path}{key}.")
        else:
            assert type(value[key]) is kind, f"{path}{key} is {type(value[key]).__name__}"


def test_all_names_resolve() -> None:
    """Every public name exists, is listed by dir(), and nothing else pretends to."""
    for name in kb.__all__:
        assert getattr(kb, name) is not None
    assert dir(kb) == sorted(kb.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = kb.no_such_name


def test_public_objects_have_docstrings() -> None:
    """Each public class and function says what it is."""
    for name in kb.__all__:
        thing = getattr(kb, name)
        if inspect.isclass(thing) or inspect.isfunction(thing):
            assert inspect.getdoc(thing), name


def test_textbook_function() -> None:
    """The textbook formula takes its six arguments by place or by name."""
    assert list(inspect.signature(kb.kv_bytes).parameters) == [
        "layers",
        "hidden",
        "seq",
        "batch",
        "dtype_bytes",
        "kv_groups",
    ]
    assert inspect.signature(kb.kv_bytes).parameters["kv_groups"].default == 1
    assert kb.kv_bytes(32, 4096, 131072, 1, 2, 8) == 8 << 30


def test_model_constructors() -> None:
    """A model comes from a dict, a name or a folder, or a GGUF file; each takes it as the first argument."""
    for name in ("from_config", "from_pretrained", "from_gguf"):
        first = next(iter(inspect.signature(getattr(kb.Model, name)).parameters.values()))
        assert first.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        assert first.default is inspect.Parameter.empty


def test_from_pretrained_reads_folders_and_catalogue_names(tmp_path: Any) -> None:  # noqa: ANN401
    """The same call serves a folder and a hub id that the catalogue holds."""
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    folder = kb.Model.from_pretrained(str(tmp_path))
    known = kb.Model.from_pretrained("meta-llama/Llama-3.1-8B-Instruct")
    assert folder.parameters == known.parameters == kb.Model.from_config(LLAMA).parameters == 8_030_261_248


def test_from_gguf_says_what_it_cannot(tmp_path: Any) -> None:  # noqa: ANN401
    """A file that is no GGUF, and one that does not say what it holds, is refused in one sentence."""
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGML\x03\x00\x00\x00" + bytes(16))
    with pytest.raises(kb.InputError, match="GGUF"):
        kb.Model.from_gguf(str(path))
    path.write_bytes(b"GGUF\x03\x00\x00\x00" + bytes(16))
    with pytest.raises(kb.CannotTell, match=r"general\.architecture"):
        kb.Model.from_gguf(str(path))


def test_deployment_takes_the_options() -> None:
    """Every documented option is a keyword of Deployment, and nothing is positional."""
    parameters = inspect.signature(kb.Deployment).parameters
    assert set(parameters) >= OPTIONS
    assert {p.kind for p in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}


def test_budget(answer: kb.Budget) -> None:
    """The answer has its verdict, its lines and its KV figures, and cannot be changed."""
    assert answer.verdict == "fits"
    assert [line.name for line in answer.lines] == list(LINES)
    assert answer.kv.bytes_per_token == 131_072
    assert answer.kv.fixed_bytes_per_request == 0
    assert sum(line.takes_bytes for line in answer.lines) == answer.to_dict()["gpu"]["memory_bytes"]
    with pytest.raises(FrozenInstanceError):
        answer.verdict = "tight"  # type: ignore[misc]


def test_json_schema_1(answer: kb.Budget) -> None:
    """`to_dict` gives plain data with the documented fields and types."""
    plain = answer.to_dict()
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["schema"] == 1
    assert plain["kvbudget"] == kb.__version__
    assert_shape(plain, SCHEMA)
    for rank in plain["ranks"]:
        assert_shape(rank, {"rank": int, "budget_bytes": int, "lines": list})
        for line in rank["lines"]:
            assert_shape(line, LINE)
    for layer in plain["model"]["layers"]:
        assert_shape(layer, {"kind": str, "count": int})


def test_command_prints_what_the_library_says(answer: kb.Budget, tmp_path: Any) -> None:  # noqa: ANN401
    """`python -m kvbudget fit … --json` is `to_dict` of the same deployment, alone on stdout."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    options = ("--gpu", "H100-SXM-80GB", "--engine-version", "0.32", "--max-model-len", "8192", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "kvbudget", "fit", str(path), *options],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    said, expected = json.loads(done.stdout), answer.to_dict()
    assert {**said, "model": None} == {**expected, "model": None}
    named = {"id", "source"}
    assert {k: v for k, v in said["model"].items() if k not in named} == {
        k: v for k, v in expected["model"].items() if k not in named
    }
    assert done.stderr == ""


@pytest.mark.parametrize("first", ["kvbudget.budgeting", "kvbudget.cli.fit", "kvbudget.grid"])
def test_the_function_and_its_module_do_not_meet(first: str) -> None:
    """`kvbudget.budget` is the function, whatever was imported before."""
    code = f"import {first}, kvbudget as kb; from kvbudget import Budget, budget; assert callable(kb.budget) and budget"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("name", "code"), [("InputError", 2), ("CannotTell", 3), ("AccessError", 4)])
def test_errors_are_a_tree(name: str, code: int) -> None:
    """Every error on purpose is a KvbudgetError and carries its exit code."""
    error = getattr(kb, name)
    assert issubclass(error, kb.KvbudgetError)
    assert error.exit_code == code


def readme_blocks() -> list[tuple[str, str]]:
    """Return (language, text) of the README's code blocks."""
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def test_the_readme_begins_with_two_commands() -> None:
    """A newcomer pastes one line to see an answer and one to run the tests."""
    (first, answer), (second, tests), *_ = readme_blocks()
    assert (first, second) == ("sh", "sh")
    for command in (answer, tests):
        assert command.count("\n") == 1
        assert command.startswith("python3 -m venv ")
    assert "kvbudget fit " in answer
    assert "pytest" in tests


def test_the_readme_shows_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample is the output of its command, 80 columns wide; the sample is rewritten when asked to."""
    monkeypatch.setenv("COLUMNS", "80")
    samples = [text for language, text in readme_blocks() if language == "console"]
    assert samples
    for sample in samples:
        command, _, expected = sample.partition("\n")
        name, *arguments = shlex.split(command.removeprefix("$ "))
        printed = CliRunner().invoke(cli, arguments, prog_name=name).stdout
        if os.environ.get(UPDATE):
            text = README.read_text(encoding="utf-8").replace(sample, f"{command}\n{printed}")
            README.write_text(text, encoding="utf-8", newline="\n")
            expected = printed
        assert printed == expected
        assert max(map(len, sample.splitlines())) <= 80


def test_the_readme_program_runs() -> None:
    """The Python example is true."""
    for language, text in readme_blocks():
        if language == "python":
            exec(compile(text, str(README), "exec"), {})  # noqa: S102 - our own text
