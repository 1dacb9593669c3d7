"""Bad input gets one sentence and an exit code, never a traceback and never a plausible number."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbudget.cli import main
from kvbudget.errors import AccessError, CannotTell, InputError
from kvbudget.hub import MAX_CONFIG_BYTES, load_model
from kvbudget.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BAD, UNKNOWN, ACCESS = 2, 3, 4

LONGEST_MESSAGE = 500
MAX_PARAMETERS = 1 << 50
"""A hundred times the largest model there is."""

GPU = ("--gpu-memory", "80GiB")

Config = dict[str, Any]

# -- small models of our own, one a family

DENSE: Config = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
EXPERTS: Config = {
    **DENSE,
    "model_type": "qwen3_moe",
    "moe_intermediate_size": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
}
LATENT: Config = {
    **DENSE,
    "model_type": "deepseek_v3",
    "q_lora_rank": 96,
    "kv_lora_rank": 64,
    "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 16,
    "v_head_dim": 32,
    "moe_intermediate_size": 128,
    "n_routed_experts": 8,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 1,
}
WINDOW: Config = {
    **DENSE,
    "model_type": "gpt_oss",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
HYBRID: Config = {
    **DENSE,
    "model_type": "qwen3_next",
    "full_attention_interval": 4,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 8,
    "moe_intermediate_size": 128,
    "shared_expert_intermediate_size": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
}
NESTED: Config = {
    "model_type": "gemma3",
    "text_config": {**DENSE, "model_type": "gemma3_text", "sliding_window": 128},
    "vision_config": {
        "model_type": "siglip_vision_model",
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": 64,
        "patch_size": 16,
    },
    "torch_dtype": "bfloat16",
}
FAMILIES = {
    "dense": DENSE,
    "experts": EXPERTS,
    "latent": LATENT,
    "window": WINDOW,
    "hybrid": HYBRID,
    "nested": NESTED,
}

NOT_SIZES = {"model_type", "torch_dtype", "layer_types"}

MAY_BE_ZERO = {
    "decoder_sparse_step",  # no layer is sparse
    "first_k_dense_replace",
    "n_routed_experts",
    "n_shared_experts",
    "num_experts",
    "num_local_experts",
    "num_nextn_predict_layers",
    "qk_nope_head_dim",
    "shared_expert_intermediate_size",
    "sliding_window",  # no window
}
"""Keys whose zero says "none" in published configs."""

UNREAD_ZERO = {
    ("experts", "intermediate_size"),  # every layer has experts
    ("hybrid", "intermediate_size"),
    ("latent", "num_key_value_heads"),
    ("latent", "head_dim"),
    ("nested", "vision_config.num_attention_heads"),
}
"""(family, key) that the architecture has in its files and does not use; some publish 0 there."""

BROKEN_SIZES = (
    "-1",
    "-32",
    "0",
    "true",
    "false",
    "1.5",
    "1e9",
    "1000000000",
    "1" + "0" * 30,
    "1" + "0" * 400,
    "1e999",
    "NaN",
    "Infinity",
    "-Infinity",
    '"8"',
    '""',
    '"eight"',
    "{}",
    '[-1, "x"]',
)
"""Values, as JSON text, that no size can have."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the command line did."""

    code: int
    out: str
    err: str


def run(*arguments: str) -> Answer:
    """Call the command line in this process; any exception but a normal exit comes through."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as leaving:
            code = leaving.code
    assert isinstance(code, int)
    return Answer(code, out.getvalue(), err.getvalue())


def assert_refused(answer: Answer, *codes: int) -> None:
    """Check that the answer is one sentence on stderr, with the right exit code, and nothing on stdout."""
    assert answer.code in codes, answer
    assert answer.out == "", answer.out
    assert_sentence(answer.err)


def assert_sentence(text: str) -> None:
    """Check that a message is one line fit for a person."""
    lines = text.splitlines()
    if lines and lines[0].startswith("Usage:"):  # click's own form: how to call, then what is wrong
        lines = [line for line in lines if line.startswith("Error: ")]
    else:
        assert text.startswith("kvbudget: "), text[:200]
    assert len(lines) == 1, text
    assert len(lines[0]) <= LONGEST_MESSAGE, f"{len(lines[0])} characters"
    assert "Traceback" not in text


def written(folder: Path, text: str | bytes) -> str:
    """Write a config.json and return its path."""
    path = folder / "config.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def sizes(config: Config, prefix: str = "") -> Iterator[str]:
    """Yield the dotted paths of all sizes of a config."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from sizes(value, f"{prefix}{key}.")
        elif key not in NOT_SIZES:
            yield prefix + key


def changed(config: Config, path: str, value: object) -> Config:
    """Return a copy with another value under a dotted path."""
    result = copy.deepcopy(config)
    *parents, last = path.split(".")
    node = result
    for key in parents:
        node = node[key]
    node[last] = value
    return result


def without(config: Config, path: str) -> Config:
    """Return a copy without the key under a dotted path."""
    result = changed(config, path, None)
    *parents, last = path.split(".")
    node = result
    for key in parents:
        node = node[key]
    del node[last]
    return result


def assert_sound(plain: Config) -> None:
    """Check what must hold for every budget, whatever the config was."""
    assert plain["verdict"] in ("fits", "tight", "does_not_fit")
    assert 0 < plain["model"]["parameters"] <= MAX_PARAMETERS
    assert plain["model"]["active_parameters"] > 0
    assert all(count > 0 for count in plain["model"]["parameters_by_group"].values())
    for rank in plain["ranks"]:
        assert sum(line["takes_bytes"] for line in rank["lines"]) == plain["gpu"]["memory_bytes"]
        for line in rank["lines"]:
            assert all(line[key] >= 0 for key in line if key.endswith("_bytes")), line
            assert line["low_bytes"] <= line["needs_bytes"] <= line["high_bytes"], line
    assert all(value >= 0 for value in plain["kv"].values())
    assert plain["max_concurrent_requests"] >= 0
    assert plain["max_model_len_that_fits"] >= 0


def fit(config: Config, **choices: Any) -> Config:  # noqa: ANN401 - any option
    """Return the budget of a config as plain data."""
    from kvbudget import Deployment, budget  # noqa: PLC0415 - in the order a user would

    deployment = Deployment(model=Model.from_config(config), gpu="h100", **choices)
    return budget(deployment).to_dict()


# -- configs


@pytest.mark.parametrize("family", FAMILIES)
def test_the_families_themselves_are_sound(family: str) -> None:
    assert_sound(fit(FAMILIES[family], max_model_len=1024))


SIZES = [(family, path) for family, config in FAMILIES.items() for path in sizes(config)]


@pytest.mark.parametrize(("family", "path"), SIZES)
def test_a_broken_size_is_refused(family: str, path: str, tmp_path: Path) -> None:
    """No size may be negative, zero, a boolean, a fraction, text, an object, NaN, infinite or absurd."""
    key = path.rpartition(".")[2]
    for value in BROKEN_SIZES:
        if value == "0" and (key in MAY_BE_ZERO or (family, path) in UNREAD_ZERO):
            continue
        text = json.dumps(changed(FAMILIES[family], path, "@")).replace('"@"', value)
        answer = run("fit", written(tmp_path, text), *GPU, "--json")
        assert (value, answer.code) == (value, BAD), answer
        assert_refused(answer, BAD)


@pytest.mark.parametrize(("family", "path"), [pair for pair in SIZES if pair[0] != "nested"])
def test_a_missing_size_is_named_or_has_a_default(family: str, path: str, tmp_path: Path) -> None:
    """Without a size the answer is "cannot tell", naming the key, or follows a default that is printed."""
    answer = run("fit", written(tmp_path, json.dumps(without(FAMILIES[family], path))), *GPU)
    assert answer.code in (0, UNKNOWN), answer
    if answer.code == UNKNOWN:
        assert_refused(answer, UNKNOWN)
        assert path in answer.err or "layer_types" in answer.err  # which would say what an interval says


@pytest.mark.parametrize(
    ("family", "path"),
    [
        *((family, key) for family in ("dense", "experts", "latent", "window", "hybrid") for key in ("hidden_size",)),
        ("dense", "num_hidden_layers"),
        ("dense", "num_attention_heads"),
        ("dense", "intermediate_size"),
        ("dense", "vocab_size"),
        ("experts", "moe_intermediate_size"),
        ("latent", "kv_lora_rank"),
        ("latent", "qk_rope_head_dim"),
        ("latent", "v_head_dim"),
    ],
)
@pytest.mark.parametrize("gone", [True, False])
def test_what_gives_a_model_its_size_must_be_there(family: str, path: str, gone: bool) -> None:
    """Absent or null, a size that nothing else implies is never guessed."""
    config = without(FAMILIES[family], path) if gone else changed(FAMILIES[family], path, None)
    with pytest.raises(CannotTell) as refusal:
        fit(config)
    assert refusal.value.key == path


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("dense", {"num_key_value_heads": 3}),
        ("dense", {"num_key_value_heads": 16}),
        ("dense", {"num_attention_heads": 7, "head_dim": None}),
        ("dense", {"layer_types": ["full_attention"] * 3}),
        ("dense", {"num_hidden_layers": 100_000}),
        ("window", {"layer_types": ["sliding_attention"]}),
        ("window", {"layer_types": "sliding_attention"}),
        ("window", {"layer_types": {"0": "full_attention"}}),
        ("window", {"num_key_value_heads": 5}),
        ("window", {"num_experts_per_tok": 9}),
        ("experts", {"num_experts_per_tok": 9}),
        ("experts", {"num_experts_per_tok": 0}),
        ("experts", {"num_experts": 1_000_000}),
        ("experts", {"mlp_only_layers": "0"}),
        ("experts", {"mlp_only_layers": [-1]}),
        ("latent", {"num_experts_per_tok": 9}),
        ("hybrid", {"num_key_value_heads": 3}),
        ("hybrid", {"layer_types": ["linear_attention"]}),
        ("hybrid", {"linear_num_value_heads": 7}),
        ("nested", {"text_config": "gemma"}),
        ("nested", {"vision_config": [1]}),
        ("dense", {"model_type": 7}),
        ("dense", {"hidden_size": 50_000_000, "intermediate_size": 50_000_000}),
    ],
)
def test_contradictions_are_refused(family: str, changes: Config) -> None:
    """Two keys that cannot both be right give no answer."""
    with pytest.raises((InputError, CannotTell)) as refusal:
        fit({**FAMILIES[family], **changes})
    assert_sentence(f"kvbudget: {refusal.value}")


@pytest.mark.parametrize(
    ("family", "changes", "key"),
    [
        ("window", {"layer_types": ["new_kind", "full_attention"] * 2}, "layer_types"),
        ("window", {"layer_types": [None, "full_attention"] * 2}, "layer_types"),
        ("window", {"layer_types": [["full_attention"], "full_attention"] * 2}, "layer_types"),
        ("dense", {"model_type": "foo_next"}, "model_type"),
        ("dense", {"model_type": ""}, "model_type"),
        ("dense", {"model_type": None}, "model_type"),
        ("dense", {"model_type": None, "architectures": ["FooForCausalLM"]}, "model_type"),
        ("dense", {"model_type": None, "architectures": "LlamaForCausalLM"}, "model_type"),
        ("dense", {"model_type": None, "architectures": [7]}, "model_type"),
    ],
)
def test_the_unknown_is_named(family: str, changes: Config, key: str) -> None:
    """What may be right but is not known gives "cannot tell" and names the key."""
    with pytest.raises(CannotTell) as refusal:
        fit({**FAMILIES[family], **changes})
    assert refusal.value.key.startswith(key)
    assert_sentence(f"kvbudget: {refusal.value}")


def test_cannot_tell_as_json(tmp_path: Path) -> None:
    """With --json a refusal for want of knowledge is an answer too, and exits 3."""
    answer = run("fit", written(tmp_path, json.dumps({**DENSE, "model_type": "foo_next"})), *GPU, "--json")
    plain = json.loads(answer.out)
    assert (answer.code, plain["verdict"], plain["key"]) == (UNKNOWN, "cannot_tell", "model_type")
    assert "foo_next" in plain["reason"]


QUANTIZATIONS: tuple[object, ...] = (
    7,
    "fp8",
    [],
    {"quant_method": 7},
    {"quant_method": "new_method"},
    {"quant_method": "gptq", "bits": 0},
    {"quant_method": "gptq", "bits": -4, "group_size": 128},
    {"quant_method": "gptq", "bits": 4, "group_size": "128"},
    {"quant_method": "gptq", "bits": 4, "group_size": 0},
    {"quant_method": "awq", "bits": 1 << 40, "group_size": 128},
    {"quant_method": "fp8", "weight_block_size": [0, 0]},
    {"quant_method": "fp8", "weight_block_size": "128"},
    {"quant_method": "compressed-tensors", "config_groups": []},
    {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": -8}}}},
)


@pytest.mark.parametrize("section", QUANTIZATIONS)
def test_a_broken_quantization_is_refused(section: object) -> None:
    with pytest.raises((InputError, CannotTell)) as refusal:
        fit({**DENSE, "quantization_config": section})
    assert_sentence(f"kvbudget: {refusal.value}")


def test_a_duplicate_key_is_refused_where_it_matters(tmp_path: Path) -> None:
    """Two values for one key leave open which is right; the same value twice does not."""
    text = json.dumps(DENSE)
    assert_refused(run("fit", written(tmp_path, text.replace("{", '{"num_hidden_layers": 80, ', 1)), *GPU), BAD)
    twice = written(tmp_path, text.replace("{", '{"num_hidden_layers": 4, ', 1))
    assert run("fit", twice, *GPU, "--json").code == 0


def test_numbers_that_are_not_json_matter_only_where_they_are_read(tmp_path: Path) -> None:
    """Published configs hold Infinity in keys that have nothing to do with sizes."""
    assert run("fit", written(tmp_path, json.dumps({**DENSE, "some_limit": float("inf")})), *GPU, "--json").code == 0


# -- files

BROKEN_FILES = {
    "empty": b"",
    "blank": b" \n\t\n",
    "zeros": bytes(100),
    "not JSON": b"hidden_size: 4096\n",
    "HTML": b"<!DOCTYPE html><html><body>404</body></html>",
    "an LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n",
    "truncated": json.dumps(DENSE).encode()[:-20],
    "a list": b"[1, 2, 3]",
    "text": b'"llama"',
    "a number": b"42",
    "null": b"null",
    "an empty object": b"{}",
    "not UTF-8": json.dumps(DENSE).encode("utf-16"),
    "half a character": b'{"model_type": "\xff\xfe"}',
    "two objects": json.dumps(DENSE).encode() * 2,
    "a comment": b"{} // nothing",
    "100,000 brackets": b"[" * 100_000,
    "100,000 objects": b'{"a":' * 100_000,
    "nested in a key": json.dumps(DENSE).encode()[:-1] + b', "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "10,000 digits": json.dumps(DENSE).replace("4096", "9" * 10_000).encode(),
    "4,000 digits": json.dumps(DENSE).replace("4096", "9" * 4000).encode(),
    "a safetensors header": (8).to_bytes(8, "little") + b'{"a": 1}',
}


@pytest.mark.parametrize("name", BROKEN_FILES)
@pytest.mark.parametrize("verb", [("fit",), ("table",), ("explain", "kv")])
def test_broken_files(verb: tuple[str, ...], name: str, tmp_path: Path) -> None:
    """Whatever is in the file, every verb says what is wrong with it."""
    codes = (UNKNOWN,) if name == "an empty object" else (BAD,)
    gpu = () if verb[0] == "explain" else GPU
    assert_refused(run(*verb, written(tmp_path, BROKEN_FILES[name]), *gpu), *codes)


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    assert run("fit", written(tmp_path, b"\xef\xbb\xbf" + json.dumps(DENSE).encode()), *GPU, "--json").code == 0


def test_folders_without_a_config(tmp_path: Path) -> None:
    """A folder without config.json, one whose config.json is a folder, and a path that is not there."""
    assert_refused(run("fit", str(tmp_path), *GPU), BAD)
    (tmp_path / "config.json").mkdir()
    assert_refused(run("fit", str(tmp_path), *GPU), BAD)
    assert_refused(run("fit", str(tmp_path / "nowhere"), *GPU), BAD)
    assert_refused(run("fit", str(tmp_path / "config.json" / "deeper"), *GPU), BAD)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_devices_are_not_read(tmp_path: Path) -> None:
    """Reading a pipe could wait for ever, reading a device could never end."""
    os.mkfifo(tmp_path / "config.json")
    with deadline(10):
        assert_refused(run("fit", str(tmp_path), *GPU), BAD)
        assert_refused(run("fit", str(tmp_path / "config.json"), *GPU), BAD)
        for device in ("/dev/zero", "/dev/null", "/dev/tty", "/dev/stdin"):
            assert_refused(run("fit", device, *GPU), BAD, ACCESS)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    """A sparse gibibyte is refused at once, without its memory."""
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(1 << 30)
    started = time.process_time()
    assert_refused(run("fit", str(tmp_path), *GPU), BAD)
    assert time.process_time() - started < 5
    with (tmp_path / "config.json").open("wb") as file:
        file.write(b'"' + b"x" * MAX_CONFIG_BYTES + b'"')
    assert_refused(run("fit", str(tmp_path), *GPU), BAD)


def test_rings_of_links(tmp_path: Path) -> None:
    (tmp_path / "config.json").symlink_to(tmp_path / "other.json")
    (tmp_path / "other.json").symlink_to(tmp_path / "config.json")
    assert_refused(run("fit", str(tmp_path), *GPU), BAD)
    assert_refused(run("fit", str(tmp_path / "config.json"), *GPU), BAD)
    (tmp_path / "ring").symlink_to(tmp_path / "ring", target_is_directory=True)
    assert_refused(run("fit", str(tmp_path / "ring"), *GPU), BAD)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DENSE))
    path.chmod(0)
    assert_refused(run("fit", str(path), *GPU), ACCESS)
    tmp_path.chmod(0)
    try:
        assert_refused(run("fit", str(path), *GPU), ACCESS)
    finally:
        tmp_path.chmod(0o700)


def test_no_permission_told_by_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same as seen by root, who is never refused: the system's answer becomes AccessError."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DENSE))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for method in ("open", "is_dir", "exists"):
        with monkeypatch.context() as patch:
            patch.setattr(f"pathlib.Path.{method}", refuse)
            with pytest.raises(AccessError, match="Permission denied"):
                load_model(str(path))


def test_broken_files_beside_the_config(tmp_path: Path) -> None:
    """The quantization files of a folder are read with the same suspicion."""
    written(tmp_path, json.dumps(DENSE))
    for name in ("hf_quant_config.json", "quantize_config.json"):
        for content in ("", "[]", '{"bits": '):
            (tmp_path / name).write_text(content)
            assert_refused(run("fit", str(tmp_path), *GPU), BAD)
        (tmp_path / name).unlink()


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("", BAD),
        (" ", BAD),
        ("70B", BAD),
        ("8b", BAD),
        ("no-such-model", BAD),
        ("./no/such/folder", BAD),
        ("~no-such-user/model", BAD),
        ("model.gguf", BAD),
        ("./model-00001-of-00009.gguf", BAD),
        ("x" * 300, BAD),
        ("x" * 10_000, BAD),
        ("./" + "x" * 10_000, BAD),
        ("a/" * 3000, BAD),
        ("new\nline", BAD),
        ("\x1b[31mred", BAD),
        ("no-such-org/no-such-model", ACCESS),
        ("https://example.org/config.json", BAD),
    ],
)
def test_model_names(reference: str, code: int) -> None:
    """What is not a model gets a sentence, however long or odd the name is."""
    with deadline(20):
        answer = run("fit", reference, *GPU)
    assert_refused(answer, code)
    assert "\x1b" not in answer.err


# -- options

ARABIC, FULL_WIDTH = "\u0663\u0662", "\uff13\uff12"
"""32 in digits that Python's int() takes and no engine does."""

BAD_OPTIONS: tuple[tuple[str, ...], ...] = (
    *(
        (option, value)
        for option in (
            "--num-gpus",
            "-tp",
            "--tensor-parallel-size",
            "-pp",
            "-dp",
            "--decode-context-parallel-size",
            "--max-model-len",
            "--max-num-seqs",
            "--max-num-batched-tokens",
            "--block-size",
            "--kv-cache-memory-bytes",
            "--context",
        )
        for value in (
            "0",
            "-1",
            "-5K",
            "nan",
            "inf",
            "1e400",
            "9" * 5000,
            "",
            " ",
            "abc",
            "1.5",
            ARABIC,
            FULL_WIDTH,
            "0x10",
        )
        if (option, value) != ("--max-model-len", "-1")  # the engine's word for "as long as fits"
    ),
    *(
        ("--gpu-memory-utilization", value)
        for value in ("nan", "0", "-0.5", "1.7", "92", "inf", "-inf", "1e400", "", "abc", "0,9", ARABIC, "9" * 400)
    ),
    *(
        ("--gpu-memory", value)
        for value in (
            "-5GB",
            "0",
            "0GB",
            "nan",
            "inf",
            "GB",
            "",
            "80XB",
            "80 GB GB",
            "1e3GB",
            "9" * 50,
            FULL_WIDTH + "GB",
        )
    ),
    *(("--gpu", value) for value in ("", "h100 nvl2", "a100", "x" * 5000, "H100\nH200", "80")),
    *(("--engine-version", value) for value in ("", "x", "-1", "0", "0.0", "99.x", "1" * 5000, "0." + ARABIC)),
    *(("--dtype", value) for value in ("", "int3", "fp5", "x" * 5000)),
    *(("--kv-cache-dtype", value) for value in ("", "fp5", "x" * 5000)),
    ("--quantization", "no-such-method"),
    ("--quantization", ""),
    ("-tp", "3"),
    ("-tp", "16"),
    ("-pp", "5"),
    ("-tp", "2", "--num-gpus", "1"),
    ("-dcp", "3"),
    ("--max-model-len", "8192"),
    ("--no-such-option",),
    ("--max-model-len",),
)


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the path of a valid config."""
    return written(tmp_path_factory.mktemp("dense"), json.dumps(DENSE))


@pytest.mark.parametrize("options", BAD_OPTIONS, ids=lambda options: " ".join(options)[:60])
def test_bad_options(options: tuple[str, ...], dense: str) -> None:
    """A choice that cannot be is refused, not clamped, and no other figure is printed."""
    gpu = () if options[0] in ("--gpu", "--gpu-memory") else GPU
    assert_refused(run("fit", dense, *gpu, *options, "--json"), BAD)


@pytest.mark.parametrize("verb", [("table",), ("explain", "kv")])
@pytest.mark.parametrize("options", [("-tp", "0"), ("--max-model-len", "0"), ("--kv-cache-dtype", "fp5"), ("-tp", "3")])
def test_bad_options_of_other_verbs(verb: tuple[str, ...], options: tuple[str, ...], dense: str) -> None:
    gpu = () if verb[0] == "explain" else GPU
    assert_refused(run(*verb, dense, *gpu, *options), BAD)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--layers", "32"),
        ("--layers", "0", "--hidden-size", "4096", "--seq-len", "4K", "--kv-groups", "1"),
        ("--layers", "-1", "--hidden-size", "4096", "--seq-len", "4K", "--kv-groups", "1"),
        ("--layers", "32", "--hidden-size", "4096", "--seq-len", "4K", "--kv-groups", "0"),
        ("--layers", "32", "--hidden-size", "4096", "--seq-len", "4K", "--kv-groups", "3"),
        ("--layers", "32", "--hidden-size", "4096", "--seq-len", "nan", "--kv-groups", "1"),
        ("--layers", "32", "--hidden-size", "4096", "--seq-len", "9" * 5000, "--kv-groups", "1"),
        ("--layers", "32", "--hidden-size", "4096", "--seq-len", "4K", "--kv-groups", "1", "--dtype", "fp5"),
        ("--layers", "32", "--hidden-size", "4096", "--seq-len", "4K", "--kv-groups", "1", "--dtype-bytes", "inf"),
        ("--layers", "32", "--hidden-size", "4096", "--seq-len", "4K", "--kv-groups", "1", "--batch", "0"),
    ],
)
def test_bad_figures_of_the_textbook(arguments: tuple[str, ...]) -> None:
    assert_refused(run("kv", *arguments), BAD)


def test_the_library_refuses_the_same() -> None:
    """Choices that only Python can spell are refused with the same errors."""
    for choice in (
        {"gpu_memory_utilization": 10**400},
        {"gpu_memory_utilization": True},
        {"gpu_memory_utilization": "0.9"},
        {"max_num_seqs": 10**5000},
        {"max_num_seqs": True},
        {"max_num_seqs": 1.0},
        {"tensor_parallel_size": "2"},
        {"max_model_len": float("nan")},
        {"kv_cache_memory_bytes": -1},
        {"dtype": 7},
        {"dtype": None},
        {"kv_cache_dtype": 7},
        {"engine_version": 0.32},
        {"engine": "vlm"},
        {"engine": 7},
    ):
        with pytest.raises((InputError, CannotTell)) as refusal:
            fit(DENSE, **choice)
        assert_sentence(f"kvbudget: {refusal.value}")
    configs: tuple[Any, ...] = (None, [], "llama", 7, {})
    for config in configs:
        with pytest.raises((InputError, CannotTell)):
            Model.from_config(config)


# -- the messages of the commonest slips


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("meta-llama/Llama-3.3-70B-Instuct", *GPU), ACCESS, r"Close: .*Llama-3\.3-70B-Instruct"),
        (("llama-3.1-8b", "--gpu", "H100 NVL2"), BAD, r"H100 NVL2.*h100.*--gpu-memory"),
        (("llama-3.1-8b",), BAD, r"--gpu"),
        (("llama-3.1-8b", *GPU, "-tp", "3"), BAD, r"32 attention heads.* 3\b.*1, 2, 4, 8"),
        (("llama-3.1-8b", *GPU, "--gpu-memory-utilization", "92"), BAD, r"expected 0–1\. Did you mean 0\.92\?"),
        (("llama-3.1-8b", *GPU, "--max-model-len", "262144"), BAD, r"262,?144.*131,?072.*max_position_embeddings"),
        (("70B", *GPU), BAD, r'"70B" is a size, not a model'),
        ((*GPU, "--", "vllm", "serve", "llama-3.1-8b", "-q", "awq"), BAD, r"awq.*quantization_config"),
        (("./model.gguf", *GPU), BAD, r"No such file.*model\.gguf"),
    ],
)
def test_messages(arguments: tuple[str, ...], code: int, says: str) -> None:
    """The commonest slips are answered with what to do."""
    answer = run("fit", *arguments)
    assert_refused(answer, code)
    assert re.search(says, answer.err), answer.err


def test_more_ranks_than_kv_heads_is_a_warning() -> None:
    answer = run("fit", "llama-3.1-8b", *GPU, "-tp", "16", "--json")
    assert answer.code == 0
    assert any("8 KV heads" in warning and "stored" in warning for warning in json.loads(answer.out)["warnings"])


def test_a_decimal_k_is_said() -> None:
    """32k is 32,000 tokens, which is rarely what was meant."""
    small = run("fit", "llama-3.1-8b", *GPU, "--max-model-len", "32k")
    assert small.code == 0
    assert "32,000" in small.out + small.err
    assert "32K" in small.out + small.err


# -- from outside


def outside(*arguments: str | bytes, **environment: str) -> subprocess.CompletedProcess[str]:
    """Call the command line in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "kvbudget", *arguments],
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=60,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("fit", "no-such-model", *GPU), BAD),
        (("fit", "no/such", *GPU), ACCESS),
        (("fit", b"\xff\xfe", *GPU), BAD),
        (("fit", "llama-3.1-8b", "--gpu", b"\xff"), BAD),
        (("no-such-verb",), BAD),
        (("fit",), BAD),
    ],
)
def test_from_outside(arguments: tuple[str | bytes, ...], code: int) -> None:
    done = outside(*arguments)
    assert_refused(Answer(done.returncode, done.stdout, done.stderr), code)


def test_a_terminal_that_knows_no_unicode(dense: str) -> None:
    """An encoding without the bar's characters gives a poorer picture, not a traceback."""
    for output in ((), ("--md",), ("--json",)):
        done = outside("fit", dense, *GPU, *output, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert (done.returncode, done.stderr) == (0, "")
    refused = outside("fit", dense, *GPU, "--gpu-memory-utilization", "92", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert_refused(Answer(refused.returncode, refused.stdout, refused.stderr), BAD)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk(dense: str) -> None:
    """An answer that cannot be written is said to be so."""
    command = [sys.executable, "-m", "kvbudget", "fit", dense, *GPU, "--json"]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert done.returncode not in (0, 1)
    assert_sentence(done.stderr)


def test_a_reader_that_leaves_early(dense: str) -> None:
    command = [sys.executable, "-m", "kvbudget", "fit", dense, *GPU, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) in (0, 1)


# -- random damage


@contextlib.contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Fail what runs longer, where the system can interrupt it."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: object) -> None:
        pytest.fail(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-10, 300)
    | st.integers()
    | st.sampled_from([10**9, 10**30, 2**31, 4096, 65_536])
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["full_attention", "sliding_attention", "linear_attention", "mamba", "llama", "bfloat16"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)

OTHER_KEYS = (
    "attention_bias",
    "attn_layer_period",
    "architectures",
    "first_k_dense_replace",
    "full_attention_interval",
    "hybrid_override_pattern",
    "index_topk",
    "interleave_moe_layer_step",
    "layers_block_type",
    "max_window_layers",
    "mlp_layer_types",
    "mlp_only_layers",
    "moe_layer_freq",
    "num_nextn_predict_layers",
    "quantization_config",
    "rope_parameters",
    "rope_scaling",
    "sliding_window",
    "sliding_window_pattern",
    "text_config",
    "tie_word_embeddings",
    "use_sliding_window",
    "v_head_dim",
    "vision_config",
)
"""Keys that some family reads and these configs do not have."""


CHOICES: tuple[Config, ...] = (
    {},
    {"max_model_len": 1},
    {"max_model_len": 1024},
    {"tensor_parallel_size": 2},
    {"pipeline_parallel_size": 2},
    {"pipeline_parallel_size": 4},
    {"kv_cache_dtype": "fp8"},
    {"enforce_eager": True, "enable_prefix_caching": False, "block_size": 32},
)
"""Ways to run a model that take other paths through the arithmetic."""


@st.composite
def damaged(draw: st.DrawFn) -> Config:
    """A valid config with one to three keys dropped, replaced or added."""
    whole = FAMILIES[draw(st.sampled_from(sorted(FAMILIES)))]
    paths = [*sizes(whole), "model_type", "torch_dtype", *OTHER_KEYS]
    config = whole
    for path in draw(st.lists(st.sampled_from(paths), min_size=1, max_size=3, unique=True)):
        if not isinstance(config.get(path.split(".")[0], {}), dict) and "." in path:
            continue  # its parent has been replaced
        if path in OTHER_KEYS or draw(st.booleans()):
            config = changed(config, path, draw(JSON_VALUES))
        elif "." in path or path in config:
            config = without(config, path)
    return config


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=damaged(), choices=st.sampled_from(CHOICES))
def test_damaged_configs_are_sound_or_refused(config: Config, choices: Config) -> None:
    """Random damage gives a sound budget or a refusal in one sentence, in bounded time, and nothing else."""
    assert_sound_or_refused(config, choices)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("choices", CHOICES)
def test_layouts_are_sound_or_refused(family: str, choices: Config) -> None:
    """The families are sound under other choices too, such as a pipeline stage without any KV cache."""
    assert_sound_or_refused(FAMILIES[family], choices)


@pytest.mark.parametrize(
    "path",
    [
        "partial_rotary_factor",
        "original_max_position_embeddings",
        "rope_scaling",
        "rope_scaling.factor",
        "rope_scaling.partial_rotary_factor",
        "rope_scaling.original_max_position_embeddings",
        "rope_scaling.rope_type",
        "rope_scaling.mrope_section",
    ],
)
def test_broken_rope_settings_are_sound_or_refused(path: str) -> None:
    """Positions decide little memory, and yet a broken setting must not stop the program."""
    for kind in ("linear", "dynamic", "longrope", "yarn", "llama3"):
        rope = {"rope_type": kind, "factor": 2.0, "original_max_position_embeddings": 2048}
        for value in BROKEN_SIZES:
            config = changed({**DENSE, "rope_scaling": rope}, path, json.loads(value))
            assert_sound_or_refused(config, {})


def assert_sound_or_refused(config: Config, choices: Config) -> None:
    """Check that a config gives a sound budget or a refusal in one sentence, in bounded time."""
    with deadline(10):
        try:
            plain = fit(config, **choices)
        except (InputError, CannotTell) as refusal:
            assert_sentence(f"kvbudget: {refusal}")
            return
    assert_sound(plain)
    json.dumps(plain, allow_nan=False)


@settings(max_examples=100, deadline=None)
@given(text=st.text() | st.binary().map(lambda raw: raw.decode("latin-1")) | JSON_VALUES.map(json.dumps))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    """The parser of configs takes any text: an object, or one sentence."""
    from kvbudget.hub import parse_object  # noqa: PLC0415

    with deadline(10):
        try:
            assert isinstance(parse_object(text, "config.json"), dict)
        except InputError as refusal:
            assert_sentence(f"kvbudget: {refusal}")
