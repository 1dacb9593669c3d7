"""Limits on images, audio and video: what is loaded, what the profile run encodes, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner

import kvbudget as kb
from kvbudget.cli import cli
from kvbudget.engines.vllm_overhead import Share
from kvbudget.errors import InputError
from kvbudget.explain.weights import NOT_LOADED, explain_weights
from kvbudget.hub import load_model
from kvbudget.model.shapes import Group
from kvbudget.multimodal import Limit, Limits, parse_limits

GPU = "H100-SXM-80GB"


def weights(model: str, **choices: Any) -> int:  # noqa: ANN401 - any field
    """Return the bytes of the weights on the first rank."""
    b = kb.budget(kb.Deployment(model=load_model(model), gpu=GPU, max_model_len=8192, **choices))
    return b.ranks[0].fixed.weights.best


def tower_bytes(model: str) -> int:
    """Return the bytes of a model's loaded towers in 16 bits."""
    return sum(2 * w.values for tower in load_model(model).towers if tower.loaded for w in tower.weights)


@pytest.mark.parametrize(
    ("model", "limits"),
    [
        ("gemma-3-4b", {"image": 0}),
        ("gemma-3-4b", "image=0"),
        ("qwen2.5-vl-7b", {"image": 0, "video": 0}),
        ("qwen2.5-vl-7b", '{"image": {"count": 0}, "video": 0}'),
        ("llama-4-scout", {"image": 0}),
    ],
)
def test_a_tower_that_nothing_reaches_is_not_loaded(model: str, limits: Any) -> None:  # noqa: ANN401 - many spellings
    choices: dict[str, Any] = {"tensor_parallel_size": 8} if model == "llama-4-scout" else {}
    whole = weights(model, **choices)
    left = weights(model, limit_mm_per_prompt=limits, **choices)
    assert left == weights(model, language_model_only=True, **choices)
    if not choices:
        assert whole - left == tower_bytes(model)
    else:
        assert left < whole


@pytest.mark.parametrize(
    ("model", "ranks", "choices", "less"),
    [
        ("gemma-3-4b", 1, {"limit_mm_per_prompt": {"image": 0}}, 9_354_839_298 - 8_515_173_922),
        ("qwen2.5-vl-7b", 2, {"limit_mm_per_prompt": {"image": 0}}, 0),
        ("qwen2.5-vl-7b", 2, {"language_model_only": True}, 8_425_772_736 - 7_746_893_248),
        ("qwen2.5-vl-7b", 2, {"mm_encoder_tp_mode": "data"}, 8_425_772_736 - 9_100_648_896),
    ],
)
def test_the_engines_class_holds_so_much_less(model: str, ranks: int, choices: dict[str, Any], less: int) -> None:
    """Parameters and buffers of vLLM 0.32's class on the meta device; 0.1 % are an encoder's own small buffers."""
    whole = weights(model, tensor_parallel_size=ranks)
    assert whole - weights(model, tensor_parallel_size=ranks, **choices) == pytest.approx(less, rel=1e-3)


def test_the_explanation_leaves_the_same_tower_out() -> None:
    d = kb.Deployment(model=load_model("gemma-3-4b"), gpu=GPU)
    whole, left = explain_weights(d), explain_weights(d.replaced(language_model_only=True))
    assert whole.bytes - left.bytes == tower_bytes("gemma-3-4b") == whole.loaded.best - left.loaded.best
    assert any(row.format == NOT_LOADED for row in left.rows)


def test_encoders_that_are_loaded_name_the_flag_that_drops_them() -> None:
    def said(model: str, **choices: Any) -> bool:  # noqa: ANN401 - any choice
        d = kb.Deployment(model=load_model(model), gpu="h200", max_model_len=4096, **choices)
        told = [each for each in kb.budget(d).assumptions if "vision encoders are loaded" in each]
        return any("--language-model-only" in each for each in told)

    assert said("gemma-3-4b")
    assert not said("gemma-3-4b", language_model_only=True)
    assert not said("gemma-3-4b", limit_mm_per_prompt={"image": 1})
    assert not said("llama-3.1-8b")


def test_an_image_tower_that_takes_videos_stays_for_them() -> None:
    assert weights("qwen2.5-vl-7b", limit_mm_per_prompt={"image": 0}) == weights("qwen2.5-vl-7b")


def test_a_text_model_does_not_care() -> None:
    d = kb.Deployment(model=load_model("llama-3.1-8b"), gpu=GPU)
    limited = d.replaced(limit_mm_per_prompt={"image": 0}, skip_mm_profiling=True)
    assert kb.budget(d).to_dict() == kb.budget(limited).to_dict()


def activations(**choices: Any) -> kb.Line:  # noqa: ANN401 - any field
    """Return the line of the profile run of a model with images of any size."""
    d = kb.Deployment(model=load_model("qwen2.5-vl-7b"), gpu=GPU, max_model_len=8192, **choices)
    (line,) = (line for line in kb.budget(d).lines if line.name == "activations")
    return line


def test_the_encoder_is_in_the_profile_run_unless_told_otherwise() -> None:
    profiled, skipped, text = (
        activations(),
        activations(skip_mm_profiling=True),
        activations(language_model_only=True),
    )
    assert profiled.needs_bytes > skipped.needs_bytes == text.needs_bytes
    assert "an encoder's 16,384" in profiled.source
    assert "encoder" not in skipped.source


def test_an_images_size_bounds_what_is_profiled() -> None:
    small = {"image": {"count": 1, "width": 448, "height": 448}, "video": 0}
    assert "an encoder's 8,192" in activations(limit_mm_per_prompt=small).source  # 32 images of 256 tokens
    alone = activations(limit_mm_per_prompt=small, max_num_seqs=2)
    assert "an encoder's 512" in alone.source
    assert alone.needs_bytes < activations(max_num_seqs=2).needs_bytes


def test_videos_may_be_longer_than_an_image_of_a_given_size() -> None:
    small = {"image": {"count": 1, "width": 448, "height": 448}}
    assert "an encoder's 16,384" in activations(limit_mm_per_prompt=small).source


def test_a_skipped_profile_is_a_warning() -> None:
    d = kb.Deployment(model=load_model("qwen2.5-vl-7b"), gpu=GPU, skip_mm_profiling=True)
    assert any(warning.startswith("--skip-mm-profiling") for warning in kb.budget(d).warnings)
    assert not any("skip" in warning for warning in kb.budget(d.replaced(language_model_only=True)).warnings)


def test_data_mode_holds_the_vision_tower_whole() -> None:
    model = load_model("qwen2.5-vl-7b")
    split, whole = (weights("qwen2.5-vl-7b", tensor_parallel_size=4, mm_encoder_tp_mode=m) for m in ("weights", "data"))
    divided = sum(
        2 * (w.values - Share(4, 4, expert_parallel=False, stage=None).of(w).values)
        for tower in model.towers
        if tower.group is Group.VISION
        for w in tower.weights
    )
    assert whole - split == divided > 0


def test_data_mode_of_a_class_without_it_is_a_warning() -> None:
    d = kb.Deployment(model=load_model("gemma-3-4b"), gpu=GPU, tensor_parallel_size=4, mm_encoder_tp_mode="data")
    assert any(warning.startswith("--mm-encoder-tp-mode data") for warning in kb.budget(d).warnings)


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ("image=2,video=0", (Limit("image", 2), Limit("video", 0))),
        (" image = 2 ", (Limit("image", 2),)),
        ('{"video": 0, "image": 2}', (Limit("image", 2), Limit("video", 0))),
        ({"image": {"count": 5, "width": 512, "height": 256}}, (Limit("image", 5, 512, 256),)),
        ({"video": {"num_frames": 32}}, (Limit("video", 999),)),
        ((Limit("image", 2),), (Limit("image", 2),)),
    ],
)
def test_limits_are_read_in_all_spellings(given: Any, limits: tuple[Limit, ...]) -> None:  # noqa: ANN401 - many spellings
    assert parse_limits(given) == limits


def test_what_is_not_limited_has_the_default() -> None:
    limits = Limits((Limit("image", 2),))
    assert (limits.allowed("image"), limits.allowed("video")) == (2, 999)
    assert Limits(nothing=True).allowed("image") == 0


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("image", "expected JSON"),
        ("image=many", "expected JSON"),
        ("image=" + "9" * 5000, "expected JSON"),
        ("{", "is not JSON"),
        ("{" * 100_000, "is not JSON"),
        (3, "must be a JSON object"),
        ({"picture": 1}, "'picture' is no modality"),
        ({"image": -1}, "count -1 of image"),
        ({"image": True}, "count True of image"),
        ({"image": "2"}, "count '2' of image"),
        ({"image": 10**5000}, "an integer of"),
        ({"image": {"depth": 1}}, "'depth' of image is not known"),
        ({"image": {"width": 0}}, "width 0 of image"),
    ],
)
def test_bad_input_is_one_sentence(given: Any, says: str) -> None:  # noqa: ANN401 - what people write
    with pytest.raises(InputError, match=says):
        parse_limits(given)


@pytest.mark.parametrize(
    "flags",
    [
        ["--limit-mm-per-prompt", '{"image": 0, "video": 0}'],
        ["--limit-mm-per-prompt", "image=0,video=0"],
        ["--limit-mm-per-prompt.image", "0", "--limit-mm-per-prompt.video=0"],
        ["--limit-mm-per-prompt.image.count", "0", "--limit-mm-per-prompt.video.count", "0"],
        ["--limit_mm_per_prompt.image", "0", "--limit-mm-per-prompt", '{"video": 0}'],
        ["--language-model-only"],
    ],
)
def test_launch_commands_say_it_in_many_ways(flags: list[str]) -> None:
    words = ["fit", "--gpu", "h100", "--json", "--", "vllm", "serve", "qwen2.5-vl-7b", *flags]
    answer = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).stdout)
    (loaded,) = (line for line in answer["ranks"][0]["lines"] if line["name"] == "weights")
    assert loaded["needs_bytes"] == weights("qwen2.5-vl-7b", language_model_only=True)
    assert answer["warnings"] == []
