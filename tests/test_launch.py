"""Pasted launch commands: what is read, what is passed over, what is reported, and what is never repeated."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.cli import main
from kvbudget.cli.launch import parse_launch
from kvbudget.cli.options import deployment_parameters
from kvbudget.errors import CannotTell, InputError, KvbudgetError
from kvbudget.facts import launch_flags

MODEL = "org/name"

UNDERSTOOD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vllm serve org/name -tp 4", {"tensor_parallel_size": 4}),
    ("vllm serve org/name -tp=4 -pp 2", {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}),
    ("vllm serve --tensor-parallel-size 4 org/name", {"tensor_parallel_size": 4}),
    ("vllm serve --model org/name", {}),
    ("vllm serve --model=org/name --max_model_len=32K", {"max_model_len": 32768}),
    ("vllm serve org/name --max-model-len 32k", {"max_model_len": 32000}),
    ("vllm serve org/name --gpu_memory_utilization 0.95", {"gpu_memory_utilization": 0.95}),
    ("vllm serve org/name --device-memory-utilization 0.8", {"gpu_memory_utilization": 0.8}),
    ("vllm serve org/name --enforce-eager --kv-cache-dtype fp8", {"enforce_eager": True, "kv_cache_dtype": "fp8"}),
    ("vllm serve org/name --enforce-eager --no-enforce-eager", {}),
    ("vllm serve org/name --no-enable-prefix-caching", {"enable_prefix_caching": False}),
    ("vllm serve org/name --enable-chunked-prefill --no-enable-lora --kv-offloading-size 20", {}),
    ("vllm serve org/name -ep", {"enable_expert_parallel": True}),
    ("vllm serve org/name --kv-cache-memory=1073741824", {"kv_cache_memory_bytes": 1 << 30}),
    ("vllm serve org/name --trust-remote-code --port 8000 -dp 2", {"data_parallel_size": 2}),
    ("vllm serve org/name --served-model-name a b c -q awq", {"quantization": "awq"}),
    ("VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1 vllm serve org/name -tp 2", {"tensor_parallel_size": 2}),
    ("VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve org/name", {"allow_long": True}),
    ("python -m vllm.entrypoints.openai.api_server --model org/name -tp 2", {"tensor_parallel_size": 2}),
    ("/opt/bin/python3 -m vllm.entrypoints.cli.main serve org/name", {}),
    ("sudo nohup /usr/local/bin/vllm serve org/name", {}),
    ("uvx vllm==0.10.2 serve org/name", {"engine_version": "0.10.2"}),
    ("docker run --gpus all -p 8000:8000 vllm/vllm-openai:v0.11.0 --model org/name", {"engine_version": "0.11.0"}),
    ("docker run --rm vllm/vllm-openai:latest --model org/name", {}),
    ("podman run docker.io/vllm/vllm-openai:v0.9.2.post1 --model org/name", {"engine_version": "0.9.2.post1"}),
    (
        "docker run -v ~/c:/c -e VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm/vllm-openai:v0.18.1-cu129 -tp 2 --model org/name",
        {"engine_version": "0.18.1", "allow_long": True, "tensor_parallel_size": 2},
    ),
    ("vllm serve org/name \\\n  -tp 2 \\\r\n --block-size 32", {"tensor_parallel_size": 2, "block_size": 32}),
    ("vllm serve org/name -tp 2 2>&1 | tee engine.log", {"tensor_parallel_size": 2}),
    ("vllm serve org/name -tp 2 # two cards", {"tensor_parallel_size": 2}),
)


@pytest.mark.parametrize(("command", "options"), UNDERSTOOD)
def test_understood_as_one_string(command: str, options: dict[str, Any]) -> None:
    launch = parse_launch([command])
    assert launch.model == MODEL
    assert launch.options == options
    assert launch.notes == []
    assert launch.warnings == []


@pytest.mark.parametrize(
    ("command", "options"), [row for row in UNDERSTOOD if not set("\\|#") & set(row[0]) and "/.cache" not in row[0]]
)
def test_understood_as_words(command: str, options: dict[str, Any]) -> None:
    launch = parse_launch(command.split())
    assert (launch.model, launch.options) == (MODEL, options)


@pytest.mark.parametrize(
    ("flags", "name", "about"),
    [
        ("--enable-tower-connector-lora", "--enable-tower-connector-lora", "LoRA"),
        ("--lora-target-modules q_proj o_proj", "--lora-target-modules", "LoRA"),
        ("--mm-processor-kwargs '{\"max_pixels\": 4}'", "--mm-processor-kwargs", "images"),
        ("--mm-processor-kwargs.max_pixels 4", "--mm-processor-kwargs", "images"),
        ("--cpu-offload-gb 10", "--cpu-offload-gb", "offloading"),
        ("-O3", "--optimization-level", "CUDA graphs"),
        ("-O 2", "--optimization-level", "CUDA graphs"),
        ("-O=1", "--optimization-level", "CUDA graphs"),
        ("--cuda-graph-sizes 1 2 4", "--cuda-graph-sizes", "CUDA graphs"),
        ("--config server.yaml", "--config", "file"),
        ("--no-enable-chunked-prefill", "--no-enable-chunked-prefill", "chunked prefill"),
    ],
)
def test_not_counted_yet_is_a_warning_of_the_budget(flags: str, name: str, about: str) -> None:
    launch = parse_launch([f"vllm serve org/name {flags} -tp 2"])
    assert launch.model == MODEL
    assert launch.options == {"tensor_parallel_size": 2}
    assert launch.notes == []
    (warning,) = launch.warnings
    assert warning.startswith(f"{name}: not counted yet (")
    assert about in warning


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("vllm serve org/name --brand-new-flag 3 -tp 2", "--brand-new-flag"),
        ("vllm serve org/name --brand-new-flag=secret -tp 2", "--brand-new-flag"),
        ("vllm serve --brand-new-flag org/name -tp 2", "--brand-new-flag"),
        ("vllm serve --model org/name --brand-new-flag -tp 2", "--brand-new-flag"),
        ("VLLM_BRAND_NEW=secret vllm serve org/name -tp 2", "VLLM_BRAND_NEW"),
    ],
)
def test_not_understood_is_a_note(command: str, name: str) -> None:
    launch = parse_launch([command])
    assert launch.model == MODEL
    assert launch.options == {"tensor_parallel_size": 2}
    assert launch.notes == [f"{name} is not understood, so not counted."]


@pytest.mark.parametrize(
    ("command", "error", "says"),
    [
        ("ls -l", InputError, "'ls -l' is not a launch command of vLLM"),
        ("vllm serve", InputError, "names no model"),
        ("vllm bench latency", InputError, "not a launch command"),
        ("vllm serve 'org/name", InputError, "not complete"),
        ("vllm serve org/name -tp", InputError, "requires an argument"),
        ("vllm serve org/name -tp four", InputError, "'four'"),
        ("vllm serve org/name --max-model-len lots", InputError, "'lots'"),
        ("python -m sglang.launch_server --model-path org/name", CannotTell, "sglang"),
        ("llama-server -m x.gguf -c 8192", CannotTell, "llama.cpp"),
    ],
)
def test_refused(command: str, error: type[KvbudgetError], says: str) -> None:
    with pytest.raises(error, match=says):
        parse_launch([command])


@given(st.lists(st.text(max_size=12), max_size=8))
def test_no_command_breaks_it(words: list[str]) -> None:
    for arguments in (words, ["vllm", "serve", *words], [" ".join(words)]):
        try:
            parse_launch(arguments)
        except KvbudgetError as error:
            assert str(error)  # noqa: PT017 - any of ours will do


def test_secrets_are_not_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    secret = "sk-12345"  # noqa: S105 - the test is about it
    command = (
        f"HF_TOKEN={secret} VLLM_X={secret} vllm serve llama-3.1-8b --api-key {secret} --foo {secret} --bar={secret}"
    )
    with pytest.raises(SystemExit):
        main(["fit", "--gpu", "h100", "--", command])
    captured = capsys.readouterr()
    assert secret not in captured.out + captured.err


def test_each_flag_stands_in_one_table() -> None:
    own = {name for option in deployment_parameters() for name in (*option.opts, *option.secondary_opts)}
    words = [*launch_flags.HARMLESS_SWITCHES.split(), *launch_flags.HARMLESS_VALUES.split()]
    for _, switches, values in launch_flags.UNCOUNTED:
        words += switches.split() + values.split()
    flags = [word.rstrip("*") if word.startswith("-") else f"--{word.rstrip('*')}" for word in words]
    assert len(flags) == len(set(flags))
    assert own.isdisjoint(flags)
    assert own.isdisjoint(launch_flags.ALIASES)
    assert set(launch_flags.ALIASES.values()) <= own


# -- through the command line


def fit(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], str]:
    with pytest.raises(SystemExit):
        main(["fit", *arguments])
    captured = capsys.readouterr()
    return (json.loads(captured.out) if captured.out else {}), captured.err


def test_a_pasted_command_is_the_same_as_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["vllm", "serve", "llama-3.1-8b", "-tp", "2", "--max-model-len", "8K"]
    pasted, _ = fit(capsys, "--gpu", "h100", "--json", "--", *command)
    typed, _ = fit(capsys, "llama-3.1-8b", "--gpu", "h100", "--json", "-tp", "2", "--max-model-len", "8K")
    assert pasted == typed


def test_what_stands_before_wins(capsys: pytest.CaptureFixture[str]) -> None:
    command = "vllm serve org/name -tp 2 --max-model-len 8K"
    found, _ = fit(capsys, "llama-3.1-8b", "--gpu", "h100", "--json", "-tp", "1", "--", command)
    assert found["model"]["id"] == "meta-llama/Llama-3.1-8B-Instruct"
    assert found["settings"]["tensor_parallel_size"] == 1
    assert found["settings"]["max_model_len"] == 8192


def test_warnings_and_notes_reach_the_reader(capsys: pytest.CaptureFixture[str]) -> None:
    command = "vllm serve llama-3.1-8b --cpu-offload-gb 4 --new-flag"
    found, errors = fit(capsys, "--gpu", "h100", "--json", "--", command)
    assert any(warning.startswith("--cpu-offload-gb: not counted yet") for warning in found["warnings"])
    assert errors == "kvbudget: note: --new-flag is not understood, so not counted.\n"


def test_a_lone_word_after_the_dashes_is_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    found, _ = fit(capsys, "--gpu", "h100", "--json", "--", "llama-3.1-8b")
    assert found["model"]["id"] == "meta-llama/Llama-3.1-8B-Instruct"


@pytest.mark.parametrize("arguments", [["--gpu", "h100"], ["--gpu", "h100", "--"]])
def test_no_model_at_all(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    _, errors = fit(capsys, *arguments)
    assert errors.startswith("kvbudget: No model was named")
