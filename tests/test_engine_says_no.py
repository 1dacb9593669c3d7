"""What vLLM refuses before it serves, and pools of a size that was given: the budget says it first."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from kvbudget import cli
from kvbudget.budgeting import budget
from kvbudget.deployment import Deployment
from kvbudget.engines import vllm
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.gpus import find_gpu
from kvbudget.facts.vllm import parse_version
from kvbudget.hub import load_model
from kvbudget.model import Model
from kvbudget.suggestions import smallest_changes
from kvbudget.units import GIB

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 32_000,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
FP8_BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}


def made(**changes: Any) -> Model:  # noqa: ANN401 - any config value
    """Return a small model."""
    return Model.from_config({**LLAMA, **changes})


def asked(model: Model | None = None, gpu: str = "l4", **choices: Any) -> Deployment:  # noqa: ANN401 - any choice
    """Return a deployment of it."""
    return Deployment(model=model or made(), gpu=gpu, **choices)


# -- a pool of a given size


def test_blocks_that_are_given_are_the_pool() -> None:
    b = budget(asked(num_gpu_blocks_override=1000))
    line = next(line for line in b.lines if line.name == "kv_cache")
    assert line.takes_bytes == 1000 * b.kv.bytes_per_block
    assert line.source == "--num-gpu-blocks-override"
    assert b.verdict == "fits"
    assert "--num-gpu-blocks-override gives" in b.reason


@pytest.mark.parametrize(("blocks", "says"), [(10, "gives 0.00 GiB"), (10_000_000, "vLLM sees 22.03")])
def test_too_few_blocks_and_too_many_do_not_fit(blocks: int, says: str) -> None:
    b = budget(asked(num_gpu_blocks_override=blocks))
    assert b.verdict == "does_not_fit"
    assert says in b.reason
    assert "-0" not in b.reason


@pytest.mark.parametrize("choice", [{"kv_cache_memory_bytes": 100 * GIB}, {"num_gpu_blocks_override": 10_000_000}])
def test_a_length_that_fits_the_pool_does_not_make_room_for_it(choice: dict[str, Any]) -> None:
    b = budget(asked(max_model_len=-1, **choice))
    assert b.verdict == "does_not_fit"
    assert "vLLM sees 22.03" in b.reason


def test_a_pool_must_fit_into_what_the_engine_sees() -> None:
    """An L4 has 22.49 GiB for its driver and 22.03 for CUDA; a pool in between is out of memory."""
    d = asked(kv_cache_memory_bytes=GIB, enforce_eager=True)
    rank = budget(d).smallest
    size = GIB + rank.room_bytes[1]
    assert budget(d.replaced(kv_cache_memory_bytes=size)).verdict == "tight"
    assert budget(d.replaced(kv_cache_memory_bytes=size + 1)).verdict == "does_not_fit"


def test_fewer_blocks_are_proposed_and_fit() -> None:
    d = asked(num_gpu_blocks_override=1_000_000)
    change = smallest_changes(d, budget(d))[0]
    assert "--num-gpu-blocks-override" in change.flags
    assert budget(change.deployment).verdict == "fits"


@pytest.mark.parametrize("choice", [{"num_gpu_blocks_override": 100}, {"kv_cache_memory_bytes": GIB // 64}])
def test_a_larger_pool_is_proposed_where_there_is_room(choice: dict[str, Any]) -> None:
    d = asked(**choice)
    change = smallest_changes(d, budget(d))[0]
    assert next(iter(choice)).replace("_", "-") in change.flags
    assert budget(change.deployment).verdict == "fits"


@pytest.mark.parametrize("version", ["0.11", "0.19", "0.20.2", "0.32"])
def test_blocks_that_hold_no_request_do_not_fit_though_the_engine_starts(version: str) -> None:
    """Until 0.20.2 the engine's check looked at the memory, not at the override."""
    b = budget(asked(num_gpu_blocks_override=100, max_model_len=2048, engine_version=version))
    assert b.verdict == "does_not_fit"
    assert "--num-gpu-blocks-override gives" in b.reason
    assert 1500 <= b.max_model_len_that_fits <= 1600


def test_a_pool_of_the_null_block_alone_serves_nothing() -> None:
    b = budget(asked(num_gpu_blocks_override=1, max_model_len=16))
    assert b.verdict == "does_not_fit"
    assert "short by" not in b.reason


# -- a budget that is not free when the engine starts


@pytest.mark.parametrize(
    ("fraction", "verdict"),
    [(1.0, "does_not_fit"), (0.99, "does_not_fit"), (0.97, "tight"), (0.95, "fits"), (0.92, "fits")],
)
def test_the_budget_must_be_free_at_start(fraction: float, verdict: str) -> None:
    # An L4 shows 22.03 GiB to CUDA; the context takes 0.29 to 0.98 of them.
    b = budget(asked(gpu_memory_utilization=fraction))
    assert b.verdict == verdict
    assert ("are free when vLLM starts" in b.reason) is (verdict != "fits")


def test_a_given_pool_does_not_lift_the_check_at_start() -> None:
    b = budget(asked(gpu_memory_utilization=1.0, kv_cache_memory_bytes=2 * GIB))
    assert b.verdict == "does_not_fit"


def test_a_smaller_fraction_is_proposed() -> None:
    d = asked(gpu_memory_utilization=1.0)
    change = smallest_changes(d, budget(d))[0]
    assert "--gpu-memory-utilization 0.9" in change.flags
    assert budget(change.deployment).verdict == "fits"


# -- cards


@pytest.mark.parametrize("gpu", ["m4-max-128", "tpu-v6e", "trainium2", "gaudi3"])
def test_cards_that_only_a_plugin_serves(gpu: str) -> None:
    with pytest.raises(CannotTell, match="plugin"):
        budget(asked(gpu=gpu))


@pytest.mark.parametrize(("gpu", "says"), [("mi300x", "AMD"), ("gb10", "shares its memory")])
def test_cards_that_need_a_word(gpu: str, says: str) -> None:
    assert any(says in warning for warning in budget(asked(gpu=gpu)).warnings)


@pytest.mark.parametrize(
    ("gpu", "section", "fits"),
    [
        ("v100-32gb", FP8_BLOCKS, False),
        ("t4", FP8_BLOCKS, True),
        ("v100-32gb", {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, False),
        ("t4", {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}, True),
        ("v100-32gb", {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, True),
        ("v100-32gb", {"quant_method": "bitsandbytes", "load_in_4bit": True}, True),
    ],
)
def test_a_format_has_a_least_capability(gpu: str, section: dict[str, Any], fits: bool) -> None:
    d = asked(made(quantization_config=section), gpu=gpu)
    if fits:
        budget(d)
    else:
        with pytest.raises(InputError, match="compute capability"):
            budget(d)


@pytest.mark.parametrize(
    ("model_type", "gpu", "dtype", "resolved"),
    [
        ("llama", "t4", "auto", "float16"),
        ("gemma2", "t4", "auto", "float32"),
        ("gemma2", "l4", "auto", "bfloat16"),
        ("llama", "l4", "half", "float16"),
        ("gemma2", "l4", "float16", None),
        ("llama", "t4", "bfloat16", None),
    ],
)
def test_types(model_type: str, gpu: str, dtype: str, resolved: str | None) -> None:
    model = replace(made(), model_type=model_type)
    d = asked(model, gpu=gpu, dtype=dtype)
    if resolved is None:
        with pytest.raises(InputError, match="--dtype"):
            budget(d)
    else:
        assert budget(d).settings.dtype == resolved


NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}


def test_nvfp4_has_a_least_capability_of_its_own() -> None:
    """ModelOptNvFp4Config asks for 7.5, the other classes of ModelOpt for 8.0 (vLLM 0.32, modelopt.py)."""
    budget(asked(made(quantization_config=NVFP4), gpu="t4"))


@pytest.mark.parametrize(
    ("section", "name", "fits"),
    [
        (AWQ, "awq_marlin", True),
        (AWQ, "auto_awq", True),
        (AWQ, "bitsandbytes", False),
        (AWQ, "fp8", False),
        (NVFP4, "modelopt", True),
        (FP8_BLOCKS, "fp8", True),
        (FP8_BLOCKS, "compressed-tensors", False),
    ],
)
def test_the_flag_must_name_the_checkpoints_method(section: dict[str, Any], name: str, fits: bool) -> None:
    d = asked(made(quantization_config=section), quantization=name)
    if fits:
        budget(d)
    else:
        with pytest.raises(InputError, match="so vLLM would stop"):
            budget(d)


def test_a_method_that_the_version_no_longer_has_is_told() -> None:
    model = made(quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert any("no quantization method bitsandbytes" in warning for warning in budget(asked(model)).warnings)


# -- layouts and limits


@pytest.mark.parametrize(
    ("changes", "tp", "valid"),
    [
        ({}, 8, None),
        ({"intermediate_size": 2820}, 8, "1, 2, 4"),
        ({"quantization_config": FP8_BLOCKS}, 2, None),  # 2,816 are 22 blocks
        ({"quantization_config": FP8_BLOCKS}, 4, "1, 2"),
        ({"num_attention_heads": 15, "hidden_size": 960, "num_key_value_heads": 3, "intermediate_size": 2880}, 5, "1"),
    ],
)
def test_widths_divide_into_whole_units(changes: dict[str, Any], tp: int, valid: str | None) -> None:
    d = asked(made(**changes), tensor_parallel_size=tp)
    if valid is None:
        budget(d)
    else:
        with pytest.raises(InputError, match=rf"valid here: {valid}\."):
            budget(d)


def test_a_step_must_hold_a_token_of_every_request() -> None:
    with pytest.raises(InputError, match="less than --max-num-seqs 600"):
        budget(asked(max_num_seqs=600, max_num_batched_tokens=512))


@pytest.mark.parametrize(
    ("architecture", "more"),
    [("LlamaForCausalLM", (0, 0, 0)), ("MixtralForCausalLM", (1, 2, 1)), ("Qwen3_5ForCausalLM", (0, 1, 1))],
)
def test_stages_hold_what_their_class_builds_everywhere(architecture: str, more: tuple[int, int, int]) -> None:
    """Held against vLLM 0.32's own loads on two stages: 54 classes equal (docs/accuracy.md)."""
    vocabulary = 32_000 * 1024 * 2
    model, plain = made(architectures=[architecture]), made()
    for stage, matrices in zip(((0, 3), (3, 6), (6, 8)), more, strict=True):
        held, least = (vllm.weight_bytes(each, "bfloat16", 1, stage, False) for each in (model, plain))
        assert held - least == matrices * vocabulary


def test_a_class_that_is_no_longer_served_is_told() -> None:
    model = made(architectures=["InternLMForCausalLM"])
    assert any("served until 0.23" in warning for warning in budget(asked(model)).warnings)
    assert not any("served until" in warning for warning in budget(asked(model, engine_version="0.23")).warnings)


# -- reading


@pytest.mark.parametrize(
    ("changes", "longest"),
    [
        ({"max_position_embeddings": 8192, "seq_length": 4096}, 4096),
        ({"max_position_embeddings": 8192, "max_sequence_length": 2048}, 2048),
        ({"max_position_embeddings": 8192, "model_max_length": 131_072}, 131_072),
        ({"max_position_embeddings": 8192, "max_length": 20}, 8192),
    ],
)
def test_of_several_lengths_the_smallest_counts(changes: dict[str, Any], longest: int) -> None:
    assert made(**changes).max_position_embeddings == longest


def test_a_narrow_embedding_has_its_projections() -> None:
    """OPT-350m has 331,196,416 parameters (transformers 5.24 on the meta device)."""
    model = Model.from_config(
        {
            "model_type": "opt",
            "hidden_size": 1024,
            "word_embed_proj_dim": 512,
            "num_hidden_layers": 24,
            "ffn_dim": 4096,
            "num_attention_heads": 16,
            "vocab_size": 50_272,
            "max_position_embeddings": 2048,
            "do_layer_norm_before": False,
        }
    )
    assert model.parameters == 331_196_416


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("0.32.0rc1", (0, 32, 0)),
        ("v0.11.2.post1", (0, 11, 2)),
        ("0.31.0.dev5+g0123abc", (0, 31, 0)),
    ],
)
def test_versions_as_packages_write_them(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


# -- the command line


def run(*arguments: str) -> int:
    """Return the exit code of a command."""
    with pytest.raises(SystemExit) as stop:
        cli.main(list(arguments))
    return int(stop.value.code or 0)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("fit", "llama-3.1-8b", "--gpu-memory", "24"), "write a unit, such as 24GiB."),
        (("fit", "llama-3.1-8b", "--no-such-flag"), "see kvbudget fit --help"),
        (("fti",), "No such command 'fti'"),
    ],
)
def test_errors_are_one_sentence(arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("kvbudget: ")
    assert err.count("\n") == 1
    assert says in err


def test_json_has_no_infinity(capsys: pytest.CaptureFixture[str]) -> None:
    """A model without KV cache serves any number of requests; JSON has no word for that."""
    run("fit", "falcon-mamba-7b", "--gpu", "h100", "--json")
    out = capsys.readouterr().out

    def refuse(name: str) -> None:
        raise AssertionError(name)

    json.loads(out, parse_constant=refuse)


def test_a_page_of_a_budget(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: ANN401
    target = tmp_path / "page.html"
    assert run("fit", "llama-3.1-8b", "--gpu", "l4", "--max-model-len", "4K", "--html", str(target)) == 0
    assert capsys.readouterr().out == ""
    page = target.read_text(encoding="utf-8")
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert "<h1>FITS" in page
    share = sum(float(part.split("%")[0]) for part in page.split('style="width:')[1:])
    assert share == pytest.approx(100, abs=0.1)


def test_a_hostile_name_stays_text(capsys: pytest.CaptureFixture[str]) -> None:
    from kvbudget.present.budget_html import budget_page  # noqa: PLC0415

    model = replace(load_model("llama-3.1-8b"), name="<script>alert(1)</script>")
    assert "<script" not in budget_page(budget(Deployment(model=model, gpu=find_gpu("l4"))))
    assert capsys.readouterr().out == ""


# -- blocks of experts' scales that tensor parallelism cuts


FP8_EXPERTS: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    "vocab_size": 151_936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "max_position_embeddings": 40_960,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
}


@pytest.mark.parametrize(
    ("version", "tp", "parallel", "legal"),
    [
        ("0.28", 4, False, "1, 2"),  # 768 / 4 = 192; vllm-project/vllm#48173
        ("0.28", 4, True, None),
        ("0.29", 4, False, None),
        ("0.32", 8, False, None),
        ("0.32", 16, False, "1, 2, 4, 8"),  # 48: no side of 32 or more divides it
        ("0.32", 16, True, None),
    ],
)
def test_experts_whose_blocks_are_cut(version: str, tp: int, parallel: bool, legal: str | None) -> None:
    d = asked(
        Model.from_config(FP8_EXPERTS),
        "h100",
        engine_version=version,
        tensor_parallel_size=tp,
        enable_expert_parallel=parallel,
    )
    if legal is None:
        budget(d)
        return
    with pytest.raises(InputError, match=f"in whole blocks of 128; valid here: {legal}\\."):
        budget(d)


def test_cut_blocks_have_smaller_ones_with_more_scales() -> None:
    """Qwen3-30B-A3B-FP8 on eight ranks of vLLM 0.32: a rank's 96 of 768 columns are three blocks of 32."""
    d = asked(Model.from_config(FP8_EXPERTS), "h100", tensor_parallel_size=8)
    kv_scales = 48 * 2 * 4
    assert vllm.weight_bytes(d.model, "bfloat16", 8, None, False) + kv_scales == 3_945_064_832
