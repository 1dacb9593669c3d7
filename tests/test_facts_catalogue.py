"""The catalogue: every row admits its source, every name finds one row, the figures are the makers'."""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.facts.catalogue import MODELS, CatalogueRow, close_names, find_model
from kvbudget.hub import load_model

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared"))
MANIFEST = SHARED / "data/MANIFEST.tsv"

LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "decoder_layers", "layers_block_type")
WIDTHS = ("hidden_size", "d_model", "n_embed")


def objects(value: Any) -> Iterator[Mapping[str, Any]]:  # noqa: ANN401 - JSON
    """Yield every object in a config, the outermost first."""
    if isinstance(value, Mapping):
        yield value
        for item in value.values():
            yield from objects(item)
    elif isinstance(value, list):
        for item in value:
            yield from objects(item)


def text(row: CatalogueRow) -> Mapping[str, Any]:
    """Return the part of the config that describes the language model."""
    inner = row.config.get("text_config")
    return inner if isinstance(inner, Mapping) else row.config


def first(config: Mapping[str, Any], keys: tuple[str, ...]) -> Any:  # noqa: ANN401 - JSON
    return next(config[key] for key in keys if key in config)


def test_there_are_many_and_each_has_a_source() -> None:
    assert len(MODELS) >= 70
    for row in MODELS:
        assert len(row.source) > 15, row.name
        assert dt.date.fromisoformat(row.read_on) <= dt.datetime.now(dt.UTC).date(), row.name


def test_names_and_ids_are_unique() -> None:
    claimed: dict[str, str] = {}
    for row in MODELS:
        assert row.name == row.name.lower(), row.name
        assert row.hub.count("/") == 1, row.name
        for name in (row.name, row.hub, *row.aliases):
            for spelling in {name.lower(), name.lower().rpartition("/")[2]}:
                assert claimed.setdefault(spelling, row.name) == row.name, spelling


@pytest.mark.parametrize("row", MODELS, ids=lambda row: row.name)
def test_figures_are_plausible(row: CatalogueRow) -> None:
    assert isinstance(row.config.get("architectures", ["-"]), list)
    assert row.config["model_type"]
    config = text(row)
    layers = first(config, LAYERS)
    layers = layers if isinstance(layers, int) else len(layers)
    assert 2 <= layers <= 200
    assert 256 <= first(config, WIDTHS) <= 32_768
    assert 10_000 <= config.get("vocab_size", row.config.get("vocab_size", 0)) <= 300_000
    assert 512 <= config.get("max_position_embeddings", 2048) <= 20_000_000
    for part in objects(row.config):
        for key, value in part.items():
            assert not isinstance(value, int) or key == "vision_feature_layer" or 0 <= value <= 20_000_000, key
            if key in {
                "layer_types",
                "mlp_layer_types",
                "attn_type_list",
                "block_configs",
                "hybrid_layer_pattern",
            }:
                assert isinstance(value, list)
                assert len(value) >= part.get("num_hidden_layers", layers), key
    heads, groups = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if heads and groups:
        assert heads % groups == 0
    if heads and "head_dim" not in config and "kv_lora_rank" not in config:
        assert config.get("hidden_size", heads) % heads == 0


def test_a_config_is_plain_json() -> None:
    for row in MODELS:
        assert json.loads(json.dumps(row.config)) == row.config


@pytest.mark.parametrize(
    ("name", "hub"),
    [
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ("meta-llama/Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"),
        ("META-LLAMA/META-LLAMA-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama 3.3 70b", "meta-llama/Llama-3.3-70B-Instruct"),
        ("qwen2_5-7b", None),
        ("qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct"),
        ("gpt-oss-20b", "openai/gpt-oss-20b"),
        ("deepseek-r1", "deepseek-ai/DeepSeek-R1"),
        ("gemma-3-27b", "google/gemma-3-27b-it"),
        ("mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1"),
        ("70B", None),
        ("", None),
        ("llama", None),
        ("someone/llama-3.1-8b", None),
    ],
)
def test_find_model(name: str, hub: str | None) -> None:
    row = find_model(name)
    assert (row.hub if row else None) == hub


@given(st.sampled_from([(row, name) for row in MODELS for name in (row.name, row.hub, *row.aliases)]))
def test_every_name_finds_its_row_in_any_case(named: tuple[CatalogueRow, str]) -> None:
    row, name = named
    for spelling in (name, name.upper(), name.lower(), name.replace("-", "_"), f" {name} "):
        assert find_model(spelling) is row


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("meta-llama/Llama-3.3-70B-Instuct", "meta-llama/Llama-3.3-70B-Instruct"),
        ("lama-3.1-8b", "llama-3.1-8b"),
        ("qwen2.5-7", "qwen2.5-7b"),
        ("gptoss-120b", "gpt-oss-120b"),
    ],
)
def test_a_misspelt_name_is_recognised(typed: str, meant: str) -> None:
    assert find_model(typed) is None
    assert meant in close_names(typed)


@given(st.text(max_size=300))
def test_any_text_gets_at_most_three_known_names(typed: str) -> None:
    close = close_names(typed)
    assert len(close) <= 3
    assert all(find_model(name) for name in close)


def test_hand_counted_shapes() -> None:
    """The figures that only a parameter count proves: dense decoders counted here by hand."""
    counted = {
        "yi-34b": 34_388_917_248,
        "mistral-nemo-12b": 12_247_782_400,
        "qwen2.5-32b": 32_763_876_352,
        "qwq-32b": 32_763_876_352,
        "qwen2.5-7b": 7_615_616_512,
        "llama-3.1-8b": 8_030_261_248,
        "llama-3.3-70b": 70_553_706_496,
    }
    for name, published in counted.items():
        row = find_model(name)
        assert row is not None
        assert dense_parameters(row.config) == published, name


def dense_parameters(c: Mapping[str, Any]) -> int:
    """Count a decoder with gated feed-forward, two norms a layer and untied embeddings."""
    width, heads, groups = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"]
    head = c.get("head_dim", width // heads)
    attention = 2 * width * heads * head + 2 * width * groups * head
    if c["model_type"] == "qwen2":
        attention += (heads + 2 * groups) * head
    layer = attention + 3 * width * c["intermediate_size"] + 2 * width
    return int(2 * c["vocab_size"] * width + c["num_hidden_layers"] * layer + width)


def test_known_cache_sizes() -> None:
    """Bytes a token at 16 bits, as worked out elsewhere for these models."""
    expected = {
        "llama-3.1-8b": 131_072,
        "llama-3.1-70b": 327_680,
        "qwen2.5-7b": 57_344,
        "mistral-7b": 131_072,
    }
    for name, size in expected.items():
        row = find_model(name)
        assert row is not None
        c: Mapping[str, Any] = row.config
        head = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
        assert 2 * 2 * c["num_hidden_layers"] * c["num_key_value_heads"] * head == size, name


@pytest.mark.parametrize(
    ("name", "published"),
    [("mistral-small-4-119b", 112.63), ("ministral-3-3b", 4.35), ("gpt-oss-20b", 12.82), ("llama-3.1-8b", 14.96)],
)
def test_a_row_weighs_what_its_repository_holds(name: str, published: float) -> None:
    """Sizes of the hub's weight files in GiB, to two decimals; their headers are up to 0.02 % of them."""
    model = load_model(name)
    held = sum(model.held_bytes(path, weight, 2) for _, path, weight in model.weights()) / 2**30
    assert held == pytest.approx(published, abs=0.006, rel=2e-4)


def test_importing_the_package_does_not_load_the_catalogue() -> None:
    code = "import sys, kvbudget, kvbudget.facts.gpus; print('kvbudget.facts.catalogue' in sys.modules)"
    path = os.pathsep.join(sys.path)
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert shown.stdout.strip() == "False"


def real_configs() -> list[tuple[CatalogueRow, Path]]:
    if not MANIFEST.exists():
        return []
    with MANIFEST.open(encoding="utf-8") as lines:
        real = {row["hub"]: row["dir"] for row in csv.DictReader(lines, delimiter="\t") if row["kind"] == "real"}
    paths = [(row, SHARED / "data/configs" / real[row.hub] / "config.json") for row in MODELS if row.hub in real]
    return [(row, path) for row, path in paths if path.exists()]


@pytest.mark.skipif(not MANIFEST.exists(), reason="needs the collected configs")
def test_figures_are_those_of_the_makers_files() -> None:
    compared = real_configs()
    assert len(compared) >= 50
    for row, path in compared:
        differences = list(differing(row.config, json.loads(path.read_text(encoding="utf-8")), row.name))
        assert not differences


def differing(ours: Any, theirs: Any, path: str) -> Iterator[str]:  # noqa: ANN401 - JSON
    """Yield the paths of our values that the file has too, and otherwise."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        for key in ours.keys() & theirs.keys():
            yield from differing(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for at, pair in enumerate(zip(ours, theirs, strict=True)):
            yield from differing(*pair, f"{path}[{at}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} here, {theirs!r} in the file"
