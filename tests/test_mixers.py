"""Mixers with a recurrent state against vLLM 0.32's own shapes and transformers 5.24's own parameter counts."""

from __future__ import annotations

import gzip
import json
import os
import re
from ast import literal_eval
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.class_defaults import CLASS_DEFAULTS
from kvbudget.model.config import Config
from kvbudget.model.mixers import MIXERS, STATE_DTYPE_BYTES, Mixer, state_bytes
from kvbudget.model.shapes import RecurrentState, StateTensor
from kvbudget.parallel import rank_weight

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared"))
BFLOAT16 = 2

Shapes = tuple[tuple[int, ...], ...]

JAMBA = {"hidden_size": 4096, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2}
MAMBA = {"hidden_size": 2560, "conv_kernel": 4, "expand": 2, "state_size": 16, "time_step_rank": "auto"}
GRANITE = {
    "hidden_size": 4096,
    "mamba_d_conv": 4,
    "mamba_d_head": 64,
    "mamba_d_state": 128,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 128,
}
NEMOTRON = {
    "hidden_size": 2688,
    "conv_kernel": 4,
    "expand": 2,
    "head_dim": 128,
    "mamba_head_dim": 64,
    "mamba_num_heads": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
}
FALCON_H1 = {
    "hidden_size": 3072,
    "mamba_d_conv": 4,
    "mamba_d_head": "auto",
    "mamba_d_ssm": 3072,
    "mamba_d_state": 256,
    "mamba_expand": 2,
    "mamba_n_groups": 1,
    "mamba_n_heads": 24,
    "mamba_rms_norm": True,
}
ZAMBA2 = {
    "hidden_size": 2560,
    "mamba_d_conv": 4,
    "mamba_d_state": 64,
    "mamba_expand": 2,
    "mamba_ngroups": 1,
    "n_mamba_heads": 8,
}
QWEN3_NEXT = {
    "hidden_size": 2048,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_value_head_dim": 128,
}
QWEN3_5 = QWEN3_NEXT | {"hidden_size": 3072, "linear_num_value_heads": 64, "mamba_ssm_dtype": "float32"}
KIMI = {
    "hidden_size": 2304,
    "linear_attn_config": {"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4},
}
KIMI_K3 = {
    "hidden_size": 7168,
    "linear_attn_config": {
        "head_dim": 128,
        "num_heads": 96,
        "short_conv_kernel_size": 4,
        "use_full_rank_gate": True,
    },
}
LFM2 = {"hidden_size": 2048, "conv_L_cache": 3}


@dataclass(frozen=True, slots=True)
class Row:
    """Sizes of one published model.

    `parameters` of one mixer are transformers 5.24's (vLLM's for K3, which it alone has); `rank` is how many values
    vLLM 0.32 builds on one of 8 tensor-parallel ranks, `one` and `eight` its MambaSpec shapes with one and 8 ranks.
    All were read off the classes on the meta device.
    """

    name: str
    kind: str
    config: dict[str, Any]
    parameters: int
    rank: int
    one: Shapes
    eight: Shapes
    dtypes: tuple[str, ...] = ("bfloat16", "bfloat16")


ROWS = (
    Row("Jamba-v0.1", "mamba1", JAMBA, 105_308_448, 13_163_808, ((3, 8192), (8192, 16)), ((3, 1024), (1024, 16))),
    Row("mamba-2.8b", "mamba1", MAMBA, 41_241_600, 5_155_200, ((3, 5120), (5120, 16)), ((3, 640), (640, 16))),
    Row(
        "granite-4.0-h-small",
        "mamba2",
        GRANITE,
        102_286_976,
        13_704_496,
        ((3, 8448), (128, 64, 128)),
        ((3, 1280), (16, 64, 128)),
    ),
    Row(
        "Nemotron-3-Nano-30B",
        "mamba2",
        NEMOTRON,
        38_742_208,
        4_842_776,
        ((3, 6144), (64, 64, 128)),
        ((3, 768), (8, 64, 128)),
        ("bfloat16", "float32"),
    ),
    Row(
        "Falcon-H1-7B",
        "mamba2",
        FALCON_H1,
        29_979_208,
        5_125_897,
        ((3, 3584), (24, 128, 256)),
        ((3, 896), (3, 128, 256)),
    ),
    Row(
        "Zamba2-2.7B",
        "mamba2",
        ZAMBA2,
        39_701_144,
        5_249_923,
        ((3, 5248), (8, 640, 64)),
        ((3, 768), (1, 640, 64)),
    ),
    Row(
        "Qwen3-Next-80B",
        "gated_delta_net",
        QWEN3_NEXT,
        33_718_464,
        4_214_920,
        ((3, 8192), (32, 128, 128)),
        ((3, 1024), (4, 128, 128)),
    ),
    Row(
        "Qwen3.5-122B",
        "gated_delta_net_split",
        QWEN3_5,
        88_523_008,
        11_065_488,
        ((3, 12288), (64, 128, 128)),
        ((3, 1536), (8, 128, 128)),
        ("bfloat16", "float32"),
    ),
    Row(
        "Kimi-Linear-48B",
        "kda",
        KIMI,
        39_514_272,
        5_455_492,
        ((3, 12288), (32, 128, 128)),
        ((3, 1536), (4, 128, 128)),
        ("bfloat16", "float32"),
    ),
    Row(
        "Kimi-K3",
        "kda",
        KIMI_K3,
        443_740_384,
        56_299_148 - 4 * 7168,  # vLLM pads 4 rows, which are not counted
        ((3, 36864), (96, 128, 128)),
        ((3, 4608), (12, 128, 128)),
        ("bfloat16", "float32"),
    ),
    Row("LFM2-1.2B", "short_conv", LFM2, 16_783_360, 2_097_920, ((2, 2048),), ((2, 256),), ("bfloat16",)),
)


def mixer(kind: str, config: dict[str, Any], **more: Any) -> Mixer:  # noqa: ANN401 - JSON values
    return MIXERS[kind](Config(config | more))


def spec_bytes(shapes: Shapes, dtypes: tuple[str, ...]) -> int:
    return sum(prod(shape) * STATE_DTYPE_BYTES[dtype] for shape, dtype in zip(shapes, dtypes, strict=True))


def only_state(found: Mixer) -> RecurrentState:
    (cache,) = found.caches
    assert isinstance(cache, RecurrentState)
    return cache


by_name = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


@by_name
def test_a_mixer_has_the_parameters_of_its_class(row: Row) -> None:
    assert sum(weight.parameters for weight in mixer(row.kind, row.config).weights) == row.parameters


@by_name
def test_a_rank_holds_what_vllm_builds(row: Row) -> None:
    assert sum(rank_weight(weight, 8).values for weight in mixer(row.kind, row.config).weights) == row.rank


@by_name
def test_a_state_has_the_bytes_of_vllms_spec(row: Row) -> None:
    state = only_state(mixer(row.kind, row.config))
    assert state_bytes(state, BFLOAT16) == spec_bytes(row.one, row.dtypes)
    assert state_bytes(state, BFLOAT16, 8) == spec_bytes(row.eight, row.dtypes)


@by_name
@pytest.mark.parametrize("drafted", [1, 3])
def test_a_speculative_token_adds_a_column_to_a_convolution(row: Row, drafted: int) -> None:
    state = only_state(mixer(row.kind, row.config))
    columns = 0 if row.kind == "mamba1" else drafted
    added = columns * row.one[0][1] * STATE_DTYPE_BYTES[row.dtypes[0]]
    assert state_bytes(state, BFLOAT16, 1, drafted) == state_bytes(state, BFLOAT16) + added


@by_name
def test_only_decays_gates_of_kda_and_its_convolutions_are_pinned_to_float32(row: Row) -> None:
    # The oracle's param_bytes exceed 2 x param_count by two bytes for each value of A_log, and for these of KDA.
    pinned = {weight.name.rpartition(".")[2] for weight in mixer(row.kind, row.config).weights if weight.dtype}
    expected = {
        "mamba1": {"A_log"},
        "mamba2": {"A_log"},
        "gated_delta_net": {"A_log"},
        "gated_delta_net_split": {"A_log"},
        "kda": {"A_log", "dt_bias", "q_conv1d", "k_conv1d", "v_conv1d"},
        "short_conv": set(),
    }
    assert pinned == expected[row.kind]


def test_fused_and_separate_projections_are_the_same_net() -> None:
    """Qwen3.5 splits what Qwen3-Next joins."""
    fused, split = mixer("gated_delta_net", QWEN3_NEXT), mixer("gated_delta_net_split", QWEN3_NEXT)
    assert fused.caches == split.caches
    assert sum(w.parameters for w in fused.weights) == sum(w.parameters for w in split.weights)


def test_each_family_names_its_module_as_its_checkpoints_do() -> None:
    names = {
        row.name: {weight.name.partition(".")[0] for weight in mixer(row.kind, row.config).weights} for row in ROWS
    }
    assert names["Jamba-v0.1"] == names["granite-4.0-h-small"] == names["Zamba2-2.7B"] == {"mamba"}
    assert names["mamba-2.8b"] == names["Nemotron-3-Nano-30B"] == {"mixer"}
    assert names["Qwen3-Next-80B"] == {"linear_attn"}


# transformers 5.24: OlmoHybridGatedDeltaNet, MiniMaxLightningAttention, RecurrentGemmaRecurrentBlock with these sizes
SMALL = (
    (
        "gated_delta_net_olmo",
        {
            "hidden_size": 64,
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 8,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_value_head_dim": 16,
        },
        64 * (16 + 16 + 64 + 4 + 4 + 64) + 64 * 64 + 96 * 4 + 4 + 4 + 16,
        (3 * 96 + 4 * 16 * 8) * BFLOAT16,
    ),
    (
        "lightning",
        {"hidden_size": 96, "num_attention_heads": 4, "head_dim": 16},
        96 * 64 * 3 + 96 * 64 * 2 + 64,
        4 * 16 * 16 * BFLOAT16,
    ),
    (
        "rg_lru",
        {"hidden_size": 2560, "num_attention_heads": 10, "lru_width": 2560, "conv1d_width": 4},
        20_999_680,
        3 * 2560 * BFLOAT16 + 2560 * 4,
    ),
    (
        "bailing_linear",
        {"hidden_size": 96, "num_attention_heads": 4, "head_dim": 16, "use_qkv_bias": True, "use_qk_norm": True},
        96 * 64 * 3 + 3 * 64 + 96 * 64 * 2 + 64 + 2 * 16,
        4 * 16 * 16 * BFLOAT16,
    ),
)


@pytest.mark.parametrize(("kind", "config", "parameters", "state"), SMALL, ids=[row[0] for row in SMALL])
def test_small_mixers(kind: str, config: dict[str, Any], parameters: int, state: int) -> None:
    found = mixer(kind, config)
    assert sum(weight.parameters for weight in found.weights) == parameters
    assert state_bytes(only_state(found), BFLOAT16) == state


def test_biases_follow_their_keys() -> None:
    plain = sum(w.parameters for w in mixer("mamba2", GRANITE).weights)
    biased = sum(w.parameters for w in mixer("mamba2", GRANITE, mamba_proj_bias=True).weights)
    bare = sum(w.parameters for w in mixer("mamba2", GRANITE, mamba_conv_bias=False).weights)
    assert biased - plain == 2 * 8192 + 2 * 128 + 128 + 4096
    assert plain - bare == 8448
    assert sum(w.parameters for w in mixer("mamba2", FALCON_H1, mamba_rms_norm=False).weights) == 29_979_208 - 3072


def test_a_config_may_choose_the_type_of_the_state() -> None:
    # vllm/model_executor/models/config.py, 0.32: Nemotron-H reads mamba_ssm_cache_dtype (float32 if it is absent),
    # Qwen3.5 reads mamba_ssm_dtype; Kimi's delta attention is float32 whatever a config says.
    full = state_bytes(only_state(mixer("mamba2", NEMOTRON)), BFLOAT16)
    half = state_bytes(only_state(mixer("mamba2", NEMOTRON, mamba_ssm_cache_dtype="bfloat16")), BFLOAT16)
    assert full - half == 64 * 64 * 128 * 2
    assert mixer("mamba2", GRANITE, mamba_ssm_cache_dtype="float32").caches == mixer("mamba2", GRANITE).caches
    with pytest.raises(InputError, match="mamba_ssm_dtype"):
        mixer("gated_delta_net", QWEN3_NEXT, mamba_ssm_dtype="int3")


@pytest.mark.parametrize(
    ("kind", "config", "missing"),
    [
        ("mamba2", {"hidden_size": 64}, "mamba_num_heads"),
        ("mamba2", {key: NEMOTRON[key] for key in NEMOTRON if key != "mamba_head_dim"}, "mamba_head_dim"),
        ("mamba2", {key: GRANITE[key] for key in GRANITE if key != "mamba_d_state"}, "mamba_d_state"),
        ("gated_delta_net", {"hidden_size": 64}, "linear_num_key_heads"),
        ("kda", {"hidden_size": 64}, "linear_num_heads"),
        ("kda", {"hidden_size": 64, "linear_attn_config": {"num_heads": 4}}, "linear_attn_config.head_dim"),
        ("short_conv", {"hidden_size": 64}, "conv_L_cache"),
        ("lightning", {"hidden_size": 64}, "num_attention_heads"),
    ],
)
def test_a_missing_size_is_refused_by_name(kind: str, config: dict[str, Any], missing: str) -> None:
    with pytest.raises(CannotTell) as caught:
        mixer(kind, config)
    assert caught.value.key == missing


@pytest.mark.parametrize(
    ("kind", "config", "words"),
    [
        ("mamba2", GRANITE | {"mamba_d_head": 100}, "do not make a width"),
        ("mamba2", GRANITE | {"mamba_n_groups": 3}, "does not divide"),
        ("mamba2", GRANITE | {"mamba_n_heads": "many"}, "must be an integer"),
        ("mamba1", JAMBA | {"mamba_dt_rank": "some"}, "must be an integer"),
        ("gated_delta_net", QWEN3_NEXT | {"linear_num_key_heads": 7}, "does not divide"),
        ("kda", {"hidden_size": 64, "linear_attn_config": [1]}, "must be an object"),
        ("short_conv", LFM2 | {"conv_bias": "no"}, "must be true or false"),
        ("rg_lru", {"hidden_size": 10, "num_attention_heads": 3, "conv1d_width": 4}, "not a multiple"),
    ],
)
def test_a_broken_size_is_told(kind: str, config: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        mixer(kind, config)


@given(
    heads=st.integers(1, 64),
    head_dim=st.integers(1, 64),
    groups=st.sampled_from([1, 2, 4, 8]),
    state=st.integers(1, 64),
    kernel=st.integers(1, 8),
    ranks=st.sampled_from([1, 2, 4, 8]),
)
def test_ranks_share_a_state_and_copy_a_single_group(
    heads: int, head_dim: int, groups: int, state: int, kernel: int, ranks: int
) -> None:
    """Law: what the ranks hold together is the whole, and a copy of the one group's channels for each rank more."""
    config = {
        "hidden_size": 64,
        "mamba_num_heads": heads * 8,
        "mamba_head_dim": head_dim,
        "ssm_state_size": state,
        "n_groups": groups,
        "conv_kernel": kernel,
    }
    found = only_state(mixer("mamba2", config))
    if groups % ranks and groups > 1:
        with pytest.raises(InputError):
            state_bytes(found, BFLOAT16, ranks)
        return
    copies = (kernel - 1) * 2 * state * BFLOAT16 * (ranks - 1) if groups == 1 else 0
    assert ranks * state_bytes(found, BFLOAT16, ranks) == state_bytes(found, BFLOAT16) + copies


@given(channels=st.integers(1, 4096), ranks=st.integers(2, 64))
def test_a_state_that_does_not_divide_is_refused(channels: int, ranks: int) -> None:
    state = RecurrentState(kind="short_conv", tensors=(StateTensor(shape=(2, channels), split=1),))
    if channels % ranks:
        with pytest.raises(InputError, match="--tensor-parallel-size"):
            state_bytes(state, BFLOAT16, ranks)
    else:
        assert state_bytes(state, BFLOAT16, ranks) * ranks == 2 * channels * BFLOAT16


STATE_KINDS = {
    "jamba": "mamba1",
    "mamba": "mamba1",
    "falcon_mamba": "mamba1",
    "bamba": "mamba2",
    "granitemoehybrid": "mamba2",
    "nemotron_h": "mamba2",
    "falcon_h1": "mamba2",
    "zamba2": "mamba2",
    "qwen3_next": "gated_delta_net",
    "qwen3_5_text": "gated_delta_net_split",
    "qwen3_5_moe_text": "gated_delta_net_split",
    "kimi_linear": "kda",
    "lfm2": "short_conv",
    "lfm2_moe": "short_conv",
}


def test_every_state_of_the_oracle_is_reproduced() -> None:
    oracle, configs = SHARED / "data" / "vllm_oracle.jsonl.gz", SHARED / "data" / "configs"
    if not oracle.exists():
        pytest.skip("shared/data/vllm_oracle.jsonl.gz is not here")
    checked = 0
    with gzip.open(oracle, "rt") as lines:
        for line in lines:
            answer = json.loads(line)
            specs = [spec for spec in answer.get("layer_specs") or () if spec["type"] == "MambaSpec"]
            path = configs / answer["config"] / "config.json"
            if not specs or not path.exists():
                continue
            outer = json.loads(path.read_text())
            inner = outer.get("text_config") or outer
            kind = inner["model_type"]
            c = Config(inner, defaults=CLASS_DEFAULTS.get(kind, {}), nested=inner is not outer)
            state = only_state(MIXERS[STATE_KINDS[kind]](c))
            (spec,) = specs
            dtypes = tuple(re.findall(r"torch\.(\w+)", spec["dtype"]))
            assert state_bytes(state, BFLOAT16, answer["tp"]) == spec_bytes(literal_eval(spec["shapes"]), dtypes), (
                answer["config"],
                answer["tp"],
            )
            checked += 1
    assert checked > 20
