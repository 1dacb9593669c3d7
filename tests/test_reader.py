"""Reading configs: published parameter counts, cache shapes, and what is refused."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import pytest

from kvbudget.errors import CannotTell, InputError
from kvbudget.hub import load_model, load_path
from kvbudget.model import Attention, Group, Indexer, LatentAttention, Model, RecurrentState

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared"))

PUBLISHED: tuple[tuple[str, int, str], ...] = (
    ("llama-3.1-8b", 8_030_261_248, "model.safetensors.index.json, total_size / 2"),
    ("llama-3.1-70b", 70_553_706_496, "hub metadata, safetensors parameters"),
    ("llama-3.1-405b", 405_853_388_800, "hub metadata"),
    ("qwen2.5-7b", 7_615_616_512, "hub metadata"),
    ("qwen3-32b", 32_762_123_264, "hub metadata"),
    ("qwen3-30b-a3b", 30_532_122_624, "hub metadata"),
    ("mixtral-8x7b", 46_702_792_704, "hub metadata"),
    ("deepseek-v3", 671_026_404_352, "transformers 5.24 on the meta device"),
    ("gpt-oss-20b", 20_914_757_184, "hub metadata"),
    ("gemma-3-27b", 27_432_406_640, "transformers 5.24 on the meta device, vision tower included"),
    ("qwen3-next-80b-a3b", 79_674_391_296, "vLLM 0.32, parameters of the loaded class"),
    ("jamba-v0.1", 51_570_323_328, "hub metadata"),
)
"""Catalogue name, parameters of the base model, where the figure was read."""


@pytest.mark.parametrize(("name", "parameters", "source"), PUBLISHED, ids=[row[0] for row in PUBLISHED])
def test_parameters_equal_the_published_count(name: str, parameters: int, source: str) -> None:
    """The shapes of a config add up to what the checkpoint holds."""
    assert source
    assert load_model(name).parameters == parameters


def test_groups_add_up_to_the_whole() -> None:
    """Every weight is in exactly one group."""
    for name, _, _ in PUBLISHED:
        model = load_model(name)
        groups = model.parameters_by_group()
        assert sum(count for group, count in groups.items() if group is not Group.MTP) == model.parameters


def test_experts_are_all_resident_and_the_active_count_stands_apart() -> None:
    """A mixture loads every expert; a token uses a few."""
    model = load_model("mixtral-8x7b")
    assert model.parameters == 46_702_792_704
    assert model.active_parameters == 12_879_925_248  # 2 of 8 experts, published as 12.9B


def test_equal_layers_are_one_object() -> None:
    """A deep model costs as much as its distinct layers."""
    assert len({id(layer) for layer in load_model("llama-3.1-405b").layers}) == 1


TEXT: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
}


def only_cache(model: Model, layer: int) -> Any:  # noqa: ANN401 - any kind of cache
    """Return the one cache of a layer."""
    (cache,) = model.layers[layer].caches
    return cache


def test_head_dim_is_explicit_or_derived() -> None:
    """The config's head_dim wins over hidden size / heads; null means derived."""
    assert only_cache(Model.from_config(TEXT), 0).head_dim == 8
    assert only_cache(Model.from_config({**TEXT, "head_dim": 32}), 0).head_dim == 32
    assert only_cache(Model.from_config({**TEXT, "head_dim": None}), 0).head_dim == 8


def test_kv_heads_default_to_query_heads() -> None:
    """Without KV heads it is multi-head attention."""
    config = {key: value for key, value in TEXT.items() if key != "num_key_value_heads"}
    assert only_cache(Model.from_config(config), 0).num_key_value_heads == 8


@pytest.mark.parametrize(
    ("extra", "kinds"),
    [
        ({"sliding_window": 16}, "ssss"),
        ({"sliding_window": None}, "ffff"),
        ({"sliding_window": 0}, "ffff"),
        ({"sliding_window": 16, "use_sliding_window": False}, "ffff"),
        ({"sliding_window": 16, "layer_types": ["sliding_attention", "full_attention"] * 2}, "sfsf"),
        ({"model_type": "gemma2", "sliding_window": 16}, "sfsf"),
        ({"model_type": "gemma3_text", "sliding_window": 16, "sliding_window_pattern": 3}, "ssfs"),
        ({"model_type": "exaone4", "sliding_window": 16, "sliding_window_pattern": "LLLG"}, "sssf"),
        (
            {"model_type": "qwen2", "sliding_window": 16, "use_sliding_window": True, "max_window_layers": 2},
            "ffss",
        ),
    ],
)
def test_which_layers_slide(extra: dict[str, Any], kinds: str) -> None:
    """A window alone does not say that all layers slide; the map, the pattern or the model type does."""
    model = Model.from_config({**TEXT, **extra})
    assert "".join(only_cache(model, i).kind[0] for i in range(4)) == kinds


def test_latent_attention_and_its_indexer() -> None:
    """MLA keeps a latent and a rope key; the indexer its own key on the layers that have one."""
    model = load_model("deepseek-v3.2")
    latent, indexer = model.layers[0].caches
    assert isinstance(latent, LatentAttention)
    assert (latent.kv_lora_rank, latent.qk_rope_head_dim) == (512, 64)
    assert isinstance(indexer, Indexer)
    assert indexer.index_head_dim == 128


def test_hybrids_keep_state_beside_attention() -> None:
    """Three of four layers of Qwen3-Next keep a state, every fourth a KV cache."""
    kinds = [type(only_cache(load_model("qwen3-next-80b-a3b"), i)) for i in range(48)]
    assert kinds == [RecurrentState, RecurrentState, RecurrentState, Attention] * 12


def test_mtp_layers_stand_apart() -> None:
    """GLM-4.5's next-token layer holds 5,539,976,512 values: 358,337,791,296 published less the base model."""
    model = load_model("glm-4.5")
    assert model.parameters == 352_797_814_784
    buffers = 160 * 90  # the correction biases of 90 layers are in the file and are not parameters
    assert model.mtp_parameters == 5_539_976_512 - buffers


def test_an_explicit_null_is_not_replaced_by_the_class_default() -> None:
    """Mistral's class has a window of 4,096; a config that says null has none."""
    config = {**TEXT, "model_type": "mistral"}
    assert only_cache(Model.from_config({**config, "sliding_window": None}), 0).sliding_window is None
    assert only_cache(Model.from_config(config), 0).sliding_window == 4096


def test_a_default_that_was_used_is_remembered() -> None:
    """The answer can say what nobody wrote down."""
    model = Model.from_config({**TEXT, "model_type": "mistral"})
    assert ("sliding_window", 4096) in model.assumptions


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_missing_size_is_refused_by_name(key: str) -> None:
    """A size is never taken from the class's default in a config of its own."""
    with pytest.raises(CannotTell, match=key) as caught:
        Model.from_config({name: value for name, value in TEXT.items() if name != key})
    assert caught.value.key == key


def test_unknown_model_types_are_refused_by_name() -> None:
    """Nothing is guessed about an architecture that nobody has read."""
    with pytest.raises(CannotTell, match="foo_next") as caught:
        Model.from_config({**TEXT, "model_type": "foo_next"})
    assert caught.value.key == "model_type"


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ({"num_key_value_heads": 3}, "does not divide"),
        ({"hidden_size": 65}, "not a multiple"),
        ({"layer_types": ["full_attention"]}, "1 entries for 4 layers"),
        ({"num_hidden_layers": True}, "found true"),
        ({"num_hidden_layers": -4}, "found -4"),
        ({"num_hidden_layers": 10**9}, "found 1000000000"),
        ({"vocab_size": 1.5}, "found 1.5"),
        ({"vocab_size": "100"}, "found '100'"),
        ({"vocab_size": float("nan")}, "found nan"),
    ],
)
def test_a_broken_value_is_named(extra: dict[str, Any], words: str) -> None:
    """What is wrong and what was seen stand in the message."""
    with pytest.raises(InputError, match=words):
        Model.from_config({**TEXT, **extra})


def oracle_rows() -> list[tuple[str, int]]:
    """Return (folder, parameters) of the real configs that the oracle counted."""
    table = SHARED / "data" / "params.tsv"
    if not table.is_file():
        return []
    with table.open(encoding="utf-8") as file:
        return [
            (row["hub"].replace("/", "__", 1), int(row["total_params"]))
            for row in csv.DictReader(file, delimiter="\t")
            if row["kind"] == "real" and row["total_params"]
        ]


@pytest.mark.skipif(not (SHARED / "data" / "params.tsv").is_file(), reason="the shared configs are not here")
def test_real_configs_equal_the_oracle() -> None:
    """At least 95 % of the real configs that are answered have the oracle's count; the rest is listed in the bench."""
    equal = answered = 0
    for folder, parameters in oracle_rows():
        path = SHARED / "data" / "configs" / folder
        if not path.is_dir():
            continue
        try:
            model = load_path(path, name=folder)
        except CannotTell:
            continue
        answered += 1
        equal += model.parameters == parameters
    assert answered > 100
    assert equal / answered >= 0.95
