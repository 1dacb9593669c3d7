"""Encoder-decoder models: published and reference totals, what their layers keep, what is refused."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.errors import CannotTell, InputError
from kvbudget.model.config import Config
from kvbudget.model.encoder_decoder import EncoderDecoder, mllama_encoder_tokens, read_encoder_decoder
from kvbudget.model.reader import text_part
from kvbudget.model.shapes import Attention, CrossAttention, Group, Weight
from kvbudget.parallel import rank_weight

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared"))

HF = "transformers 5.24, meta device"

T5_LARGE = {
    "model_type": "t5",
    "vocab_size": 32128,
    "d_model": 1024,
    "d_kv": 64,
    "d_ff": 4096,
    "num_layers": 24,
    "num_heads": 16,
    "n_positions": 512,
}
FLAN_T5_XXL = {
    **T5_LARGE,
    "d_model": 4096,
    "d_ff": 10240,
    "num_heads": 64,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}
MT5_SMALL = {
    "model_type": "mt5",
    "vocab_size": 250112,
    "d_model": 512,
    "d_kv": 64,
    "d_ff": 1024,
    "num_layers": 8,
    "num_heads": 6,
    "tie_word_embeddings": True,
}
BART_LARGE = {
    "model_type": "bart",
    "vocab_size": 50264,
    "d_model": 1024,
    "encoder_layers": 12,
    "decoder_layers": 12,
    "encoder_ffn_dim": 4096,
    "decoder_ffn_dim": 4096,
    "encoder_attention_heads": 16,
    "decoder_attention_heads": 16,
    "max_position_embeddings": 1024,
}
WHISPER_LARGE = {
    "model_type": "whisper",
    "vocab_size": 51866,
    "num_mel_bins": 128,
    "d_model": 1280,
    "encoder_layers": 32,
    "decoder_layers": 32,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
    "encoder_attention_heads": 20,
    "decoder_attention_heads": 20,
    "max_source_positions": 1500,
    "max_target_positions": 448,
}
MLLAMA_11B: dict[str, Any] = {
    "model_type": "mllama",
    "vision_config": {"image_size": 560, "patch_size": 14, "max_num_tiles": 4},
    "text_config": {
        "model_type": "mllama_text_model",
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
    },
}

TOTALS: dict[str, tuple[dict[str, Any], int, str]] = {
    "t5-large": (T5_LARGE, 737_668_096, HF),
    "flan-t5-xxl": (FLAN_T5_XXL, 11_135_332_352, "hub metadata: the head is a matrix of its own"),
    "flan-t5-xxl, tied": ({**FLAN_T5_XXL, "tie_word_embeddings": True}, 11_003_736_064, HF),
    "mt5-small, tied": (MT5_SMALL, 172_119_424, HF),
    "bart-large-cnn": (BART_LARGE, 406_290_432, HF),
    "mbart-large-50": ({**BART_LARGE, "model_type": "mbart", "vocab_size": 250054}, 610_879_488, HF),
    "pegasus-xsum": (
        {
            **BART_LARGE,
            "model_type": "pegasus",
            "vocab_size": 96103,
            "encoder_layers": 16,
            "decoder_layers": 16,
            "max_position_embeddings": 512,
        },
        569_748_480,
        HF,
    ),
    "nllb-200-distilled-600m": (
        {**BART_LARGE, "model_type": "m2m_100", "vocab_size": 256206},
        615_073_792,
        "hub metadata",
    ),
    "whisper-large-v3": (WHISPER_LARGE, 1_543_490_560, HF),
    "llama-3.2-11b-vision": (MLLAMA_11B, 10_670_220_835, HF + ", as published"),
}
"""Name -> (config, parameters, source)."""


def read(config: dict[str, Any]) -> EncoderDecoder:
    """Read a parsed config, a nested text config with its outer one."""
    top = Config(config)
    return read_encoder_decoder(text_part(top)[0] if "text_config" in config else top, top)


def weights_of(model: EncoderDecoder) -> list[Weight]:
    """Return all weights, one entry a layer."""
    weights = [weight for layer in model.layers for weight in layer.weights]
    weights += model.outside
    return weights + [weight for tower in model.towers for weight in tower.weights]


def total(config: dict[str, Any]) -> int:
    """Return all parameters."""
    return sum(weight.parameters for weight in weights_of(read(config)))


@pytest.mark.parametrize("name", TOTALS)
def test_parameters_equal_the_sourced_total(name: str) -> None:
    """Encoder, decoder, embeddings and head add up; a tied head counts once."""
    config, parameters, source = TOTALS[name]
    assert source
    assert total(config) == parameters


def test_a_decoder_layer_keeps_its_own_tokens_and_the_encoder_s() -> None:
    """Whisper: self-attention that grows, cross-attention over 1,500 encoder tokens, 64 KiB of both a token."""
    model = read(WHISPER_LARGE)
    assert len({id(layer) for layer in model.layers}) == 1
    own, cross = model.layers[0].caches
    assert own == Attention(num_attention_heads=20, num_key_value_heads=20, head_dim=64, v_head_dim=64)
    assert cross == CrossAttention(num_attention_heads=20, num_key_value_heads=20, head_dim=64, encoder_tokens=1500)
    assert (model.max_position_embeddings, model.encoder_tokens, model.vocab_size) == (448, 1500, 51866)


def test_an_audio_encoder_is_an_audio_tower_and_a_text_encoder_keeps_its_groups() -> None:
    """Quantization recipes act on groups, so an encoder's text layers are attention and MLP like the decoder's."""
    (audio,) = read(WHISPER_LARGE).towers
    assert {weight.group for weight in audio.weights} == {Group.AUDIO}
    (text,) = read(T5_LARGE).towers
    assert {weight.group for weight in text.weights} == {Group.ATTENTION, Group.MLP, Group.NORMS}


@pytest.mark.parametrize(("ranks", "values"), [(1, 1_543_613_440), (4, 442_086_400)])
def test_a_rank_holds_what_vllm_allocates(ranks: int, values: int) -> None:
    """As vLLM 0.32 on the meta device: the embedding whole, and zero biases for keys besides what is stored."""
    parts = [rank_weight(weight, ranks) for weight in weights_of(read(WHISPER_LARGE))]
    assert sum((part.out_features * part.in_features + part.bias) * part.count for part in parts) == values


def test_t5_has_position_biases_in_the_first_block_and_umt5_in_all() -> None:
    """The first decoder layer differs by a table of buckets and heads."""
    first, second, *_ = read(T5_LARGE).layers
    assert first.parameters - second.parameters == 32 * 16
    layers = read({**MT5_SMALL, "model_type": "umt5"}).layers
    assert len({layer.parameters for layer in layers}) == 1
    assert total({**MT5_SMALL, "model_type": "umt5"}) - total(MT5_SMALL) == 2 * 7 * 32 * 6


def test_t5_takes_its_training_length_where_none_is_stated() -> None:
    """T5 has no limit of its own, so 512 tokens are an assumption that is remembered."""
    config = Config({key: value for key, value in T5_LARGE.items() if key != "n_positions"})
    model = read_encoder_decoder(config)
    assert (model.encoder_tokens, model.max_position_embeddings) == (512, 512)
    assert ("n_positions", 512) in config.assumed


def test_mllama_attends_to_the_image_in_some_layers_and_to_the_text_in_the_others() -> None:
    """The image's K and V are in eight of forty layers: four tiles of 1,601 tokens; those layers keep no text."""
    model = read(MLLAMA_11B)
    kinds = [type(layer.caches[0]) for layer in model.layers]
    assert [i for i, kind in enumerate(kinds) if kind is CrossAttention] == [3, 8, 13, 18, 23, 28, 33, 38]
    assert all(len(layer.caches) == 1 for layer in model.layers)
    assert model.encoder_tokens == mllama_encoder_tokens(Config(MLLAMA_11B)) == 4 * 1601
    assert [tower.group for tower in model.towers] == [Group.VISION, Group.VISION]
    assert not model.tied


def test_a_head_of_its_own_counts() -> None:
    """Untied, the head is a vocabulary more."""
    for config in (T5_LARGE, BART_LARGE, WHISPER_LARGE):
        untied = {**config, "tie_word_embeddings": False}
        assert total(untied) - total(config) == config["vocab_size"] * config["d_model"]  # type: ignore[operator]


@given(
    width=st.integers(1, 32),
    heads=st.sampled_from([1, 2, 4]),
    inner=st.integers(1, 300),
    encoders=st.integers(1, 6),
    decoders=st.integers(1, 6),
)
def test_a_decoder_layer_is_an_encoder_layer_with_one_more_attention(
    width: int, heads: int, inner: int, encoders: int, decoders: int
) -> None:
    """A law of the architecture: four projections with biases and a norm are what tells them apart."""
    d_model = width * heads
    model = read(
        {
            **BART_LARGE,
            "d_model": d_model,
            "encoder_layers": encoders,
            "decoder_layers": decoders,
            "encoder_ffn_dim": inner,
            "decoder_ffn_dim": inner,
            "encoder_attention_heads": heads,
            "decoder_attention_heads": heads,
        }
    )
    (tower,) = model.towers
    encoder = sum(weight.parameters for weight in tower.weights if weight.name.startswith("layers.")) // encoders
    assert model.layers[0].parameters - encoder == 4 * d_model * d_model + 6 * d_model
    assert len(model.layers) == decoders


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "seamless_m4t_v2"}, "model_type"),
        ({"model_type": "florence2"}, "model_type"),
        ({}, "model_type"),
        ({key: value for key, value in T5_LARGE.items() if key != "d_ff"}, "d_ff"),
        ({**MT5_SMALL, "tie_word_embeddings": None}, "tie_word_embeddings"),
        ({**BART_LARGE, "model_type": "marian", "decoder_vocab_size": 7}, "decoder_vocab_size"),
        (
            {**MLLAMA_11B, "text_config": {**MLLAMA_11B["text_config"], "cross_attention_layers": None}},
            "text_config.cross_attention_layers",
        ),
    ],
)
def test_what_cannot_be_proven_is_refused_by_its_key(config: dict[str, Any], key: str) -> None:
    """An unknown family, a missing size, a head of unknown make."""
    with pytest.raises(CannotTell) as refused:
        read(config)
    assert refused.value.key == key


def test_heads_must_divide_the_width() -> None:
    """A contradiction is named."""
    with pytest.raises(InputError, match="decoder_attention_heads"):
        read({**WHISPER_LARGE, "decoder_attention_heads": 7})


@pytest.mark.skipif(not (SHARED / "data" / "params.tsv").exists(), reason="needs the shared configs and their counts")
def test_every_shared_encoder_decoder_equals_the_reference() -> None:
    """The count is transformers' own, for all configs of a known family."""
    with (SHARED / "data" / "params.tsv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    compared = 0
    for row in rows:
        path = SHARED / "data" / "configs" / row["hub"].replace("/", "__", 1) / "config.json"
        known = row["model_type"] in {"t5", "bart", "whisper", "mllama"}
        if known and path.exists():
            assert total(json.loads(path.read_text(encoding="utf-8"))) == int(row["total_params"]), row["hub"]
            compared += 1
    assert compared
