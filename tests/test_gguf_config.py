"""From GGUF metadata to a config: the model has the layers of the original, and what is not known is named."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_files import Typed, written
from gguf_files import tensor as gguf_tensor
from kvbudget import CannotTell, InputError, Model
from kvbudget.facts.gguf import ARCHITECTURES
from kvbudget.headers.gguf import Skipped
from kvbudget.hub import load_model, load_path
from kvbudget.model.gguf_config import gguf_config
from kvbudget.model.shapes import Split

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def dense(layers: int, hidden: int, ffn: int, heads: int, kv_heads: int, length: int, **more: object) -> dict[str, Any]:
    """Return the keys of a dense model, underscores for dots and two of them for one."""
    keys = {
        "block_count": layers,
        "embedding_length": hidden,
        "feed_forward_length": ffn,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "context_length": length,
    }
    return keys | {key.replace("__", "."): value for key, value in more.items()}


def experts(count: int, used: int, width: int, **more: object) -> dict[str, Any]:
    return {"expert_count": count, "expert_used_count": used, "expert_feed_forward_length": width, **more}


def ssm(conv: int, inner: int, state: int, rank: int, groups: int | None = None) -> dict[str, Any]:
    found = {"ssm__conv_kernel": conv, "ssm__inner_size": inner, "ssm__state_size": state, "ssm__time_step_rank": rank}
    return found if groups is None else {**found, "ssm__group_count": groups}


HEAD_128 = {"attention__key_length": 128, "attention__value_length": 128}
HEAD_256 = {"attention__key_length": 256, "attention__value_length": 256}
LITE = {
    **experts(64, 6, 1408, expert_shared_count=2, leading_dense_block_count=1),
    "attention__kv_lora_rank": 512,
    "rope__dimension_count": 64,
}
GRANITE_KV = tuple(4 if i in (5, 15, 25, 35) else 0 for i in range(40))
LFM2_KV = tuple(8 if i in (2, 5, 8, 10, 12, 14) else 0 for i in range(16))

CONVERTED: tuple[tuple[str, str, int, dict[str, Any], tuple[str, ...]], ...] = (
    ("llama-3.1-8b", "llama", 128256, dense(32, 4096, 14336, 32, 8, 131072), ("output.weight", "rope_freqs.weight")),
    ("llama-3.2-1b", "llama", 128256, dense(16, 2048, 8192, 32, 8, 131072), ()),
    (
        "mixtral-8x7b",
        "llama",
        32000,
        dense(32, 4096, 14336, 32, 8, 32768, expert_count=8, expert_used_count=2),
        ("output.weight",),
    ),
    ("qwen2.5-7b", "qwen2", 152064, dense(28, 3584, 18944, 28, 4, 32768), ("output.weight", "blk.0.attn_q.bias")),
    ("qwen3-8b", "qwen3", 151936, dense(36, 4096, 12288, 32, 8, 40960, **HEAD_128), ("output.weight",)),
    (
        "qwen3-30b-a3b",
        "qwen3moe",
        151936,
        dense(48, 2048, 6144, 32, 4, 40960, **HEAD_128, **experts(128, 8, 768)),
        ("output.weight",),
    ),
    (
        "qwen3-next-80b-a3b",
        "qwen3next",
        151936,
        dense(
            48,
            2048,
            5120,
            16,
            2,
            262144,
            **HEAD_256,
            **experts(512, 10, 512, expert_shared_feed_forward_length=512),
            **ssm(4, 4096, 128, 32, 16),
            full_attention_interval=4,
        ),
        ("output.weight",),
    ),
    (
        "gemma-2-9b",
        "gemma2",
        256000,
        dense(42, 3584, 14336, 16, 8, 8192, **HEAD_256, attention__sliding_window=4096),
        (),
    ),
    (
        "gemma-3-12b",
        "gemma3",
        262144,
        dense(48, 3840, 15360, 16, 8, 131072, **HEAD_256, attention__sliding_window=1024),
        (),
    ),
    (
        "gpt-oss-20b",
        "gpt-oss",
        201088,
        dense(
            24,
            2880,
            2880,
            64,
            8,
            131072,
            **experts(32, 4, 2880),
            attention__key_length=64,
            attention__value_length=64,
            attention__sliding_window=128,
            rope__scaling__type="yarn",
            rope__scaling__factor=32.0,
            rope__scaling__original_context_length=4096,
        ),
        ("output.weight", "blk.0.attn_q.bias", "blk.0.attn_output.bias"),
    ),
    (
        "deepseek-v2-lite",
        "deepseek2",
        102400,
        dense(
            27,
            2048,
            10944,
            16,
            1,
            163840,
            **LITE,
            attention__key_length=576,
            attention__value_length=512,
            attention__key_length_mla=192,
            attention__value_length_mla=128,
        ),
        ("output.weight",),
    ),
    (
        "deepseek-v2-lite",
        "deepseek2",
        102400,
        dense(27, 2048, 10944, 16, 16, 163840, **LITE, attention__key_length=192, attention__value_length=128),
        ("output.weight",),
    ),
    (
        "granite-4.0-h-tiny",
        "granitehybrid",
        100352,
        {
            **dense(40, 1536, 512, 12, 0, 131072, **ssm(4, 3072, 128, 48, 1)),
            "attention.head_count_kv": GRANITE_KV,
            "expert_count": 64,
            "expert_used_count": 6,
            "expert_shared_feed_forward_length": 1024,
        },
        ("blk.0.ssm_norm.weight",),
    ),
    (
        "mamba-2.8b",
        "mamba",
        50280,
        dense(64, 2560, 0, 0, 0, 1 << 20, **ssm(4, 5120, 16, 160)),
        (),
    ),
    (
        "glm-4.5-air",
        "glm4moe",
        151552,
        dense(
            47,
            4096,
            10944,
            96,
            8,
            131072,
            **HEAD_128,
            **experts(128, 8, 1408, expert_shared_count=1, leading_dense_block_count=1),
            nextn_predict_layers=1,
        ),
        ("output.weight", "blk.0.attn_q.bias"),
    ),
)
"""(name in the catalogue, architecture, vocabulary, keys behind its name, tensors that decide): what llama.cpp's
converter writes for the published config, and for those that the project's data has run, what llama.cpp loaded."""


def config_of(
    architecture: str, vocabulary: int, keys: Mapping[str, Any], tensors: tuple[str, ...] = (), **more: object
) -> dict[str, Any]:
    metadata = {f"{architecture}.{key}": value for key, value in keys.items()}
    shapes = dict.fromkeys(tensors, (1,)) | {"token_embd.weight": (vocabulary, keys["embedding_length"])}
    return gguf_config({"general.architecture": architecture, **metadata, **more}, shapes, "x.gguf")


@pytest.mark.parametrize("row", CONVERTED, ids=lambda row: f"{row[0]}-{len(row[3])}")
def test_the_layers_are_those_of_the_original(row: tuple[str, str, int, dict[str, Any], tuple[str, ...]]) -> None:
    name, architecture, vocabulary, keys, tensors = row
    found = Model.from_config(config_of(architecture, vocabulary, keys, tensors))
    original = load_model(name)
    assert found.layers == original.layers
    assert found.outside == tuple(
        replace(weight, out_features=vocabulary) if weight.split is Split.VOCAB else weight
        for weight in original.outside
    )  # llama.cpp leaves out the rows of an embedding that no token has (gemma-3)
    assert found.mtp == (original.mtp if "nextn_predict_layers" in keys else ())
    assert (found.tied, found.vocab_size) == (original.tied, vocabulary)


SMALL = dense(2, 64, 128, 4, 2, 4096)
PLAIN = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
ROUTED = {"num_experts_per_tok": 2}
OF_ROUTED = {"expert_count": 8, "expert_used_count": 2}
BIASED = ("blk.1.attn_q.bias", "blk.1.attn_output.bias", "blk.1.ffn_up.bias")


@pytest.mark.parametrize(
    ("architecture", "config", "keys", "tensors"),
    [
        ("granite", {"model_type": "granite"}, {}, ()),
        ("granite", {"model_type": "granite", "attention_bias": True, "mlp_bias": True}, {}, BIASED),
        ("granitemoe", {"model_type": "granitemoe", "num_local_experts": 8, **ROUTED}, OF_ROUTED, ()),
        ("ernie4_5", {"model_type": "ernie4_5", "use_bias": False}, {}, ()),
        ("ernie4_5", {"model_type": "ernie4_5", "use_bias": True}, {}, BIASED),
        (
            "seed_oss",
            {"model_type": "seed_oss", "attention_bias": True, "attention_out_bias": False, "mlp_bias": False},
            {},
            ("blk.0.attn_q.bias",),
        ),
        (
            "dots1",
            {
                "model_type": "dots1",
                "n_routed_experts": 8,
                "moe_intermediate_size": 32,
                "n_shared_experts": 2,
                "first_k_dense_replace": 1,
                "attention_bias": False,
                **ROUTED,
            },
            {
                "expert_feed_forward_length": 32,
                "expert_shared_count": 2,
                "leading_dense_block_count": 1,
                **OF_ROUTED,
            },
            (),
        ),
    ],
)
def test_architectures_without_a_model_in_the_catalogue(
    architecture: str, config: dict[str, Any], keys: dict[str, Any], tensors: tuple[str, ...]
) -> None:
    found = Model.from_config(config_of(architecture, 512, SMALL | keys, tensors))
    original = Model.from_config(PLAIN | config)
    assert found.layers == original.layers
    assert found.outside == original.outside


def test_short_convolutions_stand_where_there_are_no_kv_heads() -> None:
    keys = dense(16, 2048, 8192, 32, 0, 128000, shortconv__l_cache=3) | {"attention.head_count_kv": LFM2_KV}
    found = config_of("lfm2", 65536, keys)
    assert found["layer_types"] == ["full_attention" if count else "conv" for count in LFM2_KV]
    assert (found["num_key_value_heads"], found["conv_L_cache"]) == (8, 3)


def test_sigmoid_gating_is_the_third_deepseek() -> None:
    keys = dense(27, 2048, 10944, 16, 16, 163840, **LITE, attention__key_length=192, attention__value_length=128)
    assert config_of("deepseek2", 9, keys)["model_type"] == "deepseek_v2"
    assert config_of("deepseek2", 9, keys | {"expert_gating_func": 2})["model_type"] == "deepseek_v3"


def test_the_vocabulary_is_that_of_the_embedding_or_of_the_tokens() -> None:
    keys = {f"llama.{key}": value for key, value in dense(2, 64, 128, 4, 4, 4096).items()}
    metadata = {"general.architecture": "llama", **keys, "tokenizer.ggml.tokens": Skipped("str", 77)}
    assert gguf_config(metadata, {"token_embd.weight": (80, 64)}, "x")["vocab_size"] == 80
    assert gguf_config(metadata, {}, "x")["vocab_size"] == 77
    assert gguf_config(metadata | {"llama.vocab_size": 79}, {}, "x")["vocab_size"] == 79


def test_longrope_and_windows_by_layer() -> None:
    keys = dense(4, 64, 128, 4, 4, 131072, rope__scaling__original_context_length=4096)
    found = config_of("phi3", 9, keys, ("rope_factors_long.weight",))
    assert found["rope_scaling"] == {"rope_type": "longrope", "original_max_position_embeddings": 4096}
    assert Model.from_config(found).default_model_len == 4096
    pattern = (True, False, True, False)
    found = config_of("exaone4", 9, keys | {"attention.sliding_window_pattern": pattern})
    assert found["layer_types"] == ["sliding_attention", "full_attention"] * 2


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"general.architecture": "clip"}, "general.architecture"),
        ({"general.architecture": "llama+experts"}, "general.architecture"),
        ({"general.architecture": None}, "general.architecture"),
        ({"llama.block_count": None}, "llama.block_count"),
        ({"llama.context_length": None}, "llama.context_length"),
        ({"llama.attention.head_count_kv": (1, 2)}, "llama.attention.head_count_kv"),
        ({"llama.attention.value_length": 8}, "llama.attention.value_length"),
    ],
)
def test_what_is_not_known_is_named(change: dict[str, Any], key: str) -> None:
    metadata = {"general.architecture": "llama", **{f"llama.{name}": value for name, value in SMALL.items()}}
    metadata = {name: value for name, value in (metadata | change).items() if value is not None}
    with pytest.raises(CannotTell, match=r"^x\.gguf: .*\.$") as caught:
        gguf_config(metadata, {"token_embd.weight": (8, 64)}, "x.gguf")
    assert caught.value.key == key


@pytest.mark.parametrize(
    "change",
    [
        {"block_count": -1},
        {"block_count": 0},
        {"block_count": 1 << 40},
        {"block_count": "two"},
        {"nextn_predict_layers": 3},
        {"embedding_length": True},
        {"attention.head_count": 1.5},
    ],
)
def test_values_that_cannot_be(change: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^x\.gguf: .*\.$"):
        config_of("llama", 8, SMALL | change)


numbers = st.integers(0, 2**64 - 1) | st.integers(0, 64)
values = numbers | st.floats() | st.text(max_size=5) | st.lists(numbers, max_size=5).map(tuple) | st.booleans()
suffixes = st.sampled_from(sorted({key for row in CONVERTED for key in row[3]}))


@given(st.sampled_from(CONVERTED), st.dictionaries(suffixes, values, max_size=3))
def test_any_metadata_is_read_or_refused(
    row: tuple[str, str, int, dict[str, Any], tuple[str, ...]], change: dict[str, Any]
) -> None:
    """A file that lies about its sizes is a refusal, whatever they are."""
    _, architecture, vocabulary, keys, tensors = row
    try:
        Model.from_config(config_of(architecture, vocabulary, keys | change, tensors))
    except (CannotTell, InputError) as error:
        message = str(error)
    else:
        return
    assert message.isprintable()


@pytest.mark.parametrize("architecture", [name for name in sorted(ARCHITECTURES) if "+" not in name])
def test_every_row_names_a_model_type_that_is_read(architecture: str) -> None:
    """A row without a reader would be a promise that nobody keeps."""
    from kvbudget.facts.architectures import SAME_AS, TRAITS  # noqa: PLC0415

    row = ARCHITECTURES[architecture]
    assert SAME_AS.get(row.model_type, row.model_type) in TRAITS
    assert not row.moe or row.moe in ARCHITECTURES


def test_a_file_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "small.gguf"
    keys = {f"llama.{key}": Typed("u32", value) for key, value in SMALL.items()}
    content = written(
        {"general.architecture": Typed("str", "llama"), **keys}, [gguf_tensor("token_embd.weight", "f16", (512, 64))]
    )
    path.write_bytes(content)
    found = Model.from_gguf(str(path))
    assert found.layers == load_path(path, name="small").layers
    assert (len(found.layers), found.vocab_size, found.tied) == (2, 512, True)
    assert found.source == str(path)
