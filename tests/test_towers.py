"""Vision and audio towers: totals, splits over ranks, what is assumed and what is refused."""

from __future__ import annotations

import contextlib
import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvbudget.errors import CannotTell, InputError, KvbudgetError
from kvbudget.model.config import Config
from kvbudget.model.reader import text_part
from kvbudget.model.shapes import Group, Tower
from kvbudget.model.towers import read_towers
from kvbudget.parallel import rank_weight

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared"))

HF = "transformers 5.24, meta device"
VLLM = "vLLM 0.32, meta device"

CLIP_L_336 = {
    "model_type": "clip_vision_model",
    "hidden_size": 1024,
    "image_size": 336,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "patch_size": 14,
}
SO400M = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "image_size": 896,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "vision_use_head": False,
}
PIXTRAL = {"model_type": "pixtral", "image_size": 1540, "patch_size": 14}
QWEN3_8B = {"out_hidden_size": 4096, "model_type": "qwen3_vl"}
MOONVIT = {"vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_hidden_layers": 27}
INTERN_300M = {
    "model_type": "intern_vit_6b",
    "hidden_size": 1024,
    "image_size": 448,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "patch_size": 14,
    "qkv_bias": True,
    "norm_type": "layer_norm",
}
INTERN_6B = {
    "hidden_size": 3200,
    "image_size": 448,
    "intermediate_size": 12800,
    "num_attention_heads": 25,
    "num_hidden_layers": 45,
    "patch_size": 14,
    "qkv_bias": False,
    "qk_normalization": True,
    "norm_type": "rms_norm",
}
LLAVA_7B = {"model_type": "llava", "vision_config": CLIP_L_336}
GEMMA3_4B = {"model_type": "gemma3", "vision_config": SO400M}
QWEN2_5_VL_7B = {"model_type": "qwen2_5_vl", "vision_config": {"hidden_size": 1280, "out_hidden_size": 3584}}
QWEN3_OMNI = {
    "model_type": "qwen3_omni_moe",
    "thinker_config": {"vision_config": {"out_hidden_size": 2048}, "audio_config": {"output_dim": 2048}},
}
KIMI_K3 = {
    "vt_hidden_size": 1024,
    "vt_intermediate_size": 4096,
    "vt_num_attention_heads": 12,
    "vt_num_hidden_layers": 27,
    "qkv_hidden_size": 1536,
    "attn_bias": False,
    "linear_bias": False,
    "patch_embed_proj_bias": False,
    "norm_type": "rmsnorm",
    "mm_projector_type": "patchmergerv2",
}
OCR = {"model_type": "deepseek_vl_v2", "tile_tag": "2D"}
PHI3_V = {
    "model_type": "phi3_v",
    "embd_layer": {"use_hd_transform": True, "with_learnable_separator": True, "projection_cls": "mlp"},
    "img_processor": {"image_dim_out": 1024, "model_name": "openai/clip-vit-large-patch14-336"},
}
WHISPER_ENCODER = {"d_model": 1280, "encoder_layers": 32, "encoder_ffn_dim": 5120, "num_mel_bins": 128}

TOTALS: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "qwen2-vl-7b": ({"model_type": "qwen2_vl", "vision_config": {"in_chans": 3}}, 3584, 675_759_104, HF),
    "qwen2.5-vl-7b": (QWEN2_5_VL_7B, 3584, 676_550_144, HF),
    "qwen3-vl-8b": ({"model_type": "qwen3_vl", "vision_config": QWEN3_8B}, 4096, 576_388_336, HF),
    "qwen3.5-27b": ({"model_type": "qwen3_5", "vision_config": {"out_hidden_size": 5120}}, 5120, 460_730_096, HF),
    "qwen2.5-omni-7b": (
        {"model_type": "qwen2_5_omni", "thinker_config": {"vision_config": {"hidden_size": 1280}, "audio_config": {}}},
        3584,
        1_316_197_376,
        HF,
    ),
    "qwen3-omni-30b": (QWEN3_OMNI, 2048, 1_186_558_576, HF),
    "qwen2-audio-7b": ({"model_type": "qwen2_audio", "audio_config": {}}, 4096, 642_215_936, HF),
    "voxtral-mini": ({"model_type": "voxtral", "audio_config": {}}, 3072, 662_134_784, HF),
    "llava-1.5-7b": (LLAVA_7B, 4096, 324_487_168, HF),
    "pixtral-12b": (
        {"model_type": "llava", "vision_config": {**PIXTRAL, "patch_size": 16}, "vision_feature_layer": -1},
        5120,
        434_957_312,
        HF,
    ),
    "mistral-small-3.1": ({"model_type": "mistral3", "vision_config": PIXTRAL}, 5120, 438_958_080, HF),
    "gemma-3-4b": (GEMMA3_4B, 2560, 419_816_304, HF),
    "paligemma-3b": (
        {"model_type": "paligemma", "projection_dim": 2048, "vision_config": {**SO400M, "image_size": 224}},
        2048,
        414_803_696,
        HF,
    ),
    "aya-vision-8b": (
        {
            "model_type": "aya_vision",
            "alignment_intermediate_size": 28672,
            "vision_config": {**SO400M, "image_size": 364},
        },
        4096,
        603_809_008,
        HF,
    ),
    "smolvlm": (
        {"model_type": "smolvlm", "scale_factor": 3, "vision_config": {**SO400M, "image_size": 384}},
        2048,
        434_220_912,
        HF,
    ),
    "llama-3.2-11b-vision": ({"model_type": "mllama", "vision_config": {"image_size": 560}}, 4096, 895_028_755, HF),
    "llama-4-scout": (
        {
            "model_type": "llama4",
            "vision_config": {"hidden_size": 1408, "image_size": 336, "vision_output_dim": 4096},
        },
        5120,
        871_932_416,
        HF,
    ),
    "glm-4.1v-9b": ({"model_type": "glm4v", "vision_config": {}}, 4096, 892_498_432, HF),
    "glm-4.5v": ({"model_type": "glm4v_moe", "vision_config": {"intermediate_size": 10944}}, 4096, 858_681_856, HF),
    "ernie-4.5-vl-28b": ({"model_type": "ernie4_5_vl_moe", "vision_config": {}}, 2560, 774_658_560, HF),
    "ernie-4.5-vl-28b, its authors' layout": (
        {
            "model_type": "ernie4_5_moe_vl",
            "spatial_conv_size": 2,
            "temporal_conv_size": 2,
            "vision_config": {"embed_dim": 1280, "mlp_ratio": 4},
        },
        2560,
        774_658_560,
        VLLM,
    ),
    "minimax-m3": ({"model_type": "minimax_m3_vl", "vision_config": {}}, 6144, 865_567_232, HF),
    "step-3.7-flash": (
        {"model_type": "step3p7", "vision_config": {"width": 1536, "layers": 47, "heads": 16}},
        4096,
        1_981_014_784,
        HF,
    ),
    "fuyu-8b": ({"model_type": "fuyu", "image_size": 300, "patch_size": 30}, 4096, 11_063_296, HF),
    "internvl3-8b-hf": (
        {"model_type": "internvl", "vision_config": {"attention_bias": True}},
        3584,
        331_479_040 + 3 * 24 * 1024,  # the class's default has no biases, which the derived config keeps
        HF,
    ),
    "internvl2-2b": (
        {"model_type": "internvl_chat", "vision_config": INTERN_300M, "downsample_ratio": 0.5},
        2048,
        316_607_488,
        "published 2,205,754,368 parameters less the 1,889,146,880 of its language model",
    ),
    "gemma-4-31b": (
        {
            "model_type": "gemma4",
            "vision_config": {
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "num_hidden_layers": 27,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "head_dim": 72,
                "standardize": True,
            },
        },
        5376,
        575_741_232,
        HF,
    ),
    "gemma-4-e4b audio": ({"model_type": "gemma4", "audio_config": {}}, 2560, 308_756_768, HF),
    "gemma-3n-e4b": (
        {"model_type": "gemma3n", "vision_config": {}, "audio_config": {}},
        2048,
        983_281_504,
        "published 7,849,978,192 parameters less the language model's and the unused K and V of its shared layers",
    ),
    "kimi-k2.5": ({"model_type": "kimi_k25", "vision_config": MOONVIT}, 7168, 471_143_920, HF),
    "kimi-vl-a3b": ({"model_type": "kimi_vl", "vision_config": {}}, 1280, 444_006_128, VLLM),
    "kimi-k3": ({"model_type": "kimi_k3", "vision_config": KIMI_K3}, 7168, 447_358_976, VLLM),
    "qwen-vl": (
        {
            "model_type": "qwen",
            "visual": {
                "width": 1664,
                "layers": 48,
                "heads": 16,
                "mlp_ratio": 4.9231,
                "output_dim": 4096,
                "image_size": 448,
                "patch_size": 14,
            },
        },
        4096,
        1_935_610_624,
        "published 9,657,901,824 values of the Int4 checkpoint less its language model's, its zero biases included",
    ),
    "locateanything-3b": (
        {"model_type": "locateanything", "mlp_connector_layers": 2, "vision_config": {"model_type": "moonvit"}},
        2048,
        430_510_832,
        "published 3,830,665,968 parameters less the language model's, its stored head included",
    ),
    "phi-3.5-vision": (
        PHI3_V,
        3072,
        325_541_888,
        "published 4,146,621,440 parameters less the 3,821,079,552 of its language model",
    ),
    "deepseek-ocr-2": (
        {
            **OCR,
            "architectures": ["DeepseekOCR2ForCausalLM"],
            "projector_config": {"input_dim": 896, "n_embed": 1280, "projector_type": "linear"},
        },
        1280,
        454_385_280,
        "published 3,389,119,360 parameters less its language model's; " + VLLM,
    ),
    "deepseek-ocr": (
        {
            **OCR,
            "architectures": ["DeepseekOCRForCausalLM"],
            "projector_config": {"input_dim": 2048, "n_embed": 1280, "projector_type": "linear"},
        },
        1280,
        401_372_160,
        VLLM,
    ),
    "deepseek-vl2": (
        {
            **OCR,
            "projector_config": {"n_embed": 1280},
            "vision_config": {"model_name": "vit_so400m_patch14_siglip_384.webli"},
        },
        1280,
        435_767_360,
        VLLM,
    ),
    "minicpm-v-2": (
        {
            "model_type": "minicpmv",
            "query_num": 64,
            "drop_vision_last_layer": True,
            "vision_encoder": "vit_so400m_patch14_siglip_384.webli",
        },
        2304,
        397_747_744 + 29_514_240,
        "timm 1.0.31 without its last block and its pooling head; the resampler by " + VLLM,
    ),
    "minicpm-v-2.6": (
        {
            "model_type": "minicpmv",
            "query_num": 64,
            "vision_config": {**SO400M, "image_size": 980, "model_type": "siglip"},
        },
        3584,
        486_411_504,
        VLLM,
    ),
    "molmo-7b": ({"model_type": "molmo", "intermediate_size": 37888}, 3584, 404_950_016, VLLM),
    "dots-ocr": ({"model_type": "dots_ocr", "vision_config": {}}, 1536, 1_262_091_264, VLLM),
    "ultravox-v0.5": (
        {
            "model_type": "ultravox",
            "audio_config": {"model_type": "whisper", **WHISPER_ENCODER},
            "projector_ln_mid": True,
        },
        2048,
        683_118_592,
        VLLM + ", less the zero biases of its keys",
    ),
}
"""Name -> (config, the language model's width, parameters of all towers, source)."""


def towers_of(config: dict[str, Any], text_hidden: int = 64) -> tuple[Tower, ...]:
    """Read the towers of a parsed config."""
    return read_towers(Config(config), text_hidden)


def total(config: dict[str, Any], text_hidden: int = 64) -> int:
    """Return the parameters of all towers."""
    return sum(tower.parameters for tower in towers_of(config, text_hidden))


@pytest.mark.parametrize("name", TOTALS)
def test_towers_add_up_to_the_sourced_total(name: str) -> None:
    """Every family's rules give what its class holds."""
    config, text_hidden, parameters, source = TOTALS[name]
    assert source
    assert total(config, text_hidden) == parameters


def test_groups_of_a_tower_are_its_modality() -> None:
    """All weights of a tower, its norms and tables too, carry its group; an omni model has both kinds."""
    towers = towers_of(QWEN3_OMNI, 2048)
    assert [tower.group for tower in towers] == [Group.AUDIO, Group.VISION]
    for tower in towers:
        assert {weight.group for weight in tower.weights} == {tower.group}


RANKS: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "clip up to the feature layer": (LLAVA_7B, 4096, 311_888_896, 78_978_304),
    "siglip": (GEMMA3_4B, 2560, 419_816_304, 111_356_316),
    "qwen2.5-vl": (QWEN2_5_VL_7B, 3584, 676_550_144, 170_393_024),
    "pixtral": ({"model_type": "mistral3", "vision_config": PIXTRAL}, 5120, 438_958_080, 113_375_232),
    "kimi-k2.5": ({"model_type": "kimi_k25", "vision_config": MOONVIT}, 7168, 471_143_920, 162_683_932),
    "glm-4.1v": ({"model_type": "glm4v", "vision_config": {}}, 4096, 892_498_432, 244_085_248),
    "ernie-4.5-vl": ({"model_type": "ernie4_5_vl_moe", "vision_config": {}}, 2560, 774_658_560, 194_432_640),
    "minimax-m3": ({"model_type": "minimax_m3_vl", "vision_config": {}}, 6144, 865_567_232, 217_716_224),
    "qwen2-audio, whole on every rank": (
        {"model_type": "qwen2_audio", "audio_config": {}},
        4096,
        642_215_936,
        642_215_936,
    ),
    "llama4, the class's default": ({"model_type": "llama4", "vision_config": {}}, 5120, 455_178_240, 114_505_344),
    "dots.ocr": ({"model_type": "dots_ocr", "vision_config": {}}, 1536, 1_262_091_264, 316_303_872),
}
"""Name -> (config, the language model's width, values on one GPU, values on one of four); vLLM 0.32, meta device."""


@pytest.mark.parametrize("name", RANKS)
@pytest.mark.parametrize("ranks", [1, 4])
def test_what_a_rank_loads_is_what_vllm_allocates(name: str, ranks: int) -> None:
    """Splits and skipped layers are vLLM's."""
    config, text_hidden, alone, shared = RANKS[name]
    loaded = [weight for tower in towers_of(config, text_hidden) if tower.loaded for weight in tower.weights]
    values = sum(rank_weight(weight, ranks).parameters for weight in loaded)
    assert values == {1: alone, 4: shared}[ranks]


def test_layers_behind_the_feature_layer_stand_apart() -> None:
    """LLaVA reads the layer before the last: the checkpoint has one more, and a norm, that vLLM leaves out."""
    (unloaded,) = [tower for tower in towers_of(LLAVA_7B, 4096) if not tower.loaded]
    assert unloaded.parameters == 12_598_272
    assert {weight.name.split(".")[0] for weight in unloaded.weights} == {"encoder", "post_layernorm"}
    last = {**LLAVA_7B, "vision_feature_layer": -1}
    assert sum(tower.parameters for tower in towers_of(last, 4096) if not tower.loaded) == 2_048  # the norm


def test_several_feature_layers_widen_the_projector() -> None:
    """The projector reads the feature layers side by side."""
    one, two = (total({**LLAVA_7B, "vision_feature_layer": layers}, 4096) for layers in ([-2], [-2, -1]))
    assert two - one == 1024 * 4096


def test_heads_that_do_not_divide_keep_the_attention_whole() -> None:
    """InternViT-6B has 25 heads, so vLLM splits its attention over no even number of ranks."""
    config = {"model_type": "internvl_chat", "vision_config": INTERN_6B, "downsample_ratio": 0.5}
    tower, projector = towers_of(config, 8192)
    assert tower.parameters == 5_536_496_000  # vLLM 0.32, meta device
    assert {weight.heads for weight in tower.weights if ".attn." in weight.name and weight.linear} == {25}
    assert projector.name == "mlp1"


def test_buffers_are_stored_but_not_counted() -> None:
    """Gemma 4's published count has 2 x 1,152 values more, which standardize its features."""
    config, text_hidden, parameters, _ = TOTALS["gemma-4-31b"]
    buffers = [weight for tower in towers_of(config, text_hidden) for weight in tower.weights if weight.buffer]
    assert sum(weight.out_features * weight.count for weight in buffers) == 2 * 1152
    assert total(config, text_hidden) == parameters


def test_blocks_repeat_under_one_name() -> None:
    """A block's weight stands once, with the number of blocks as its count and a star for its number."""
    (tower,) = towers_of({"model_type": "qwen3_vl", "vision_config": QWEN3_8B}, 4096)
    weight = next(weight for weight in tower.weights if weight.name.endswith("attn.qkv"))
    assert (tower.name, weight.name, weight.count) == ("model.visual", "blocks.*.attn.qkv", 27)
    assert (weight.out_features, weight.in_features, weight.bias) == (3456, 1152, 3456)


def test_text_only_models_have_no_towers() -> None:
    """Nothing announces a tower, or the config is that of a language model taken out of a multimodal one."""
    assert towers_of({"model_type": "llama", "image_token_id": 5}) == ()
    assert towers_of({"model_type": "gemma3", "architectures": ["Gemma3ForCausalLM"]}) == ()
    assert towers_of({"model_type": "gemma3_text"}) == ()
    assert towers_of({"model_type": "gemma4", "vision_config": None, "audio_config": None}) == ()
    text = {"model_type": "qwen3_5_moe_text", "architectures": ["Qwen3_5MoeForConditionalGeneration"]}
    assert towers_of(text) == ()


def test_the_class_decides_where_the_model_type_is_another_s() -> None:
    """Converters rename the model type; `architectures` still names the class."""
    config = {
        "model_type": "ministral3",
        "architectures": ["Mistral3ForConditionalGeneration"],
        "vision_config": PIXTRAL,
    }
    assert total(config, 5120) == 438_958_080


def test_flat_visual_keys_are_the_vision_config() -> None:
    """A converter spells the vision config flat; the total is that of the published 2B model."""
    config = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "visual_depth": 32,
        "visual_embed_dim": 1280,
        "visual_mlp_ratio": 4,
        "visual_patch_size": 14,
    }
    assert total(config, 1536) == 665_271_296


def test_class_defaults_are_remembered() -> None:
    """What the config leaves out comes from the class and is listed; a whole tower too."""
    config = Config({"model_type": "mistral3", "spatial_merge_size": 2})
    assert sum(tower.parameters for tower in read_towers(config, 4096)) == 428_472_320  # transformers 5.24
    assert ("vision_config", "the class's own default, pixtral") in config.assumed
    assert ("vision_config.patch_size", 14) in config.assumed


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"model_type": "novel_vl", "vision_config": {"model_type": "novel_vit"}}, "vision_config"),
        ({"model_type": "novel_audio", "audio_config": {"d_model": 8}}, "audio_config"),
        ({"model_type": "logics", "mm_vision_tower": "convnext-1024,siglip2-384"}, "mm_vision_tower"),
        ({"model_type": "llava", "vision_config": {"model_type": "dinov2"}}, "vision_config.model_type"),
        ({"model_type": "llava", "mm_vision_tower": "somewhere/else"}, "mm_vision_tower"),
        ({**PHI3_V, "img_processor": {"model_name": "somewhere/else"}}, "img_processor.model_name"),
        ({"model_type": "internvl_chat"}, "vision_config"),
        (
            {"model_type": "internvl_chat", "vision_config": {k: v for k, v in INTERN_300M.items() if k != "qkv_bias"}},
            "vision_config.qkv_bias",
        ),
        ({"model_type": "gemma3n", "vision_config": {"architecture": "novel_net"}}, "vision_config.architecture"),
        ({"model_type": "kimi_vl", "vision_config": {"mm_projector_type": "novel"}}, "vision_config.mm_projector_type"),
        ({"model_type": "ultravox", "audio_model_id": "somewhere/else"}, "audio_model_id"),
        ({"model_type": "minicpmv", "audio_config": {"d_model": 8}}, "audio_config"),
    ],
)
def test_an_unknown_tower_is_refused_by_its_key(config: dict[str, Any], key: str) -> None:
    """What cannot be proven is refused, and the message names what announces it."""
    with pytest.raises(CannotTell, match="tower") as refused:
        towers_of(config)
    assert refused.value.key == key
    assert key in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"hidden_size": -1}, "vision_config.hidden_size"),
        ({"num_hidden_layers": 2.5}, "vision_config.num_hidden_layers"),
        ({"patch_size": [14]}, "vision_config.patch_size"),
        ({"patch_size": 400}, "vision_config.patch_size"),
        ({"image_size": "336"}, "vision_config.image_size"),
    ],
)
def test_a_broken_value_is_named(changed: dict[str, Any], named: str) -> None:
    """The message says which value is wrong."""
    with pytest.raises(InputError, match=named):
        towers_of({**LLAVA_7B, "vision_config": {**CLIP_L_336, **changed}})


SIZES = st.integers(min_value=1, max_value=512)


@given(width=SIZES, inner=SIZES, out=SIZES, depth=st.integers(1, 40), merge=st.integers(1, 4))
def test_parameters_grow_by_equal_steps_with_depth(width: int, inner: int, out: int, depth: int, merge: int) -> None:
    """Blocks are equal, so each adds the same: two norms, four square matrices and two others, with biases."""

    def at(layers: int) -> int:
        vision = {
            "hidden_size": width,
            "intermediate_size": inner,
            "out_hidden_size": out,
            "depth": layers,
            "spatial_merge_size": merge,
        }
        return total({"model_type": "qwen3_5", "vision_config": vision})

    assert at(depth + 1) - at(depth) == 4 * width * width + 9 * width + 2 * width * inner + inner


JUNK = st.sampled_from(
    [None, True, -1, 0, 1, 2.5, float("nan"), 10**40, "", "x", [], [1], [None], [[1]], [1, 2], {}, {"model_type": 3}]
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(name=st.sampled_from(sorted(TOTALS)), data=st.data())
def test_mangled_configs_never_crash(name: str, data: st.DataObject) -> None:
    """Whatever a value is, the answer is a tower or an error that says so."""
    config = json.loads(json.dumps(TOTALS[name][0]))
    nested = [config, *(value for value in config.values() if isinstance(value, dict))]
    target = data.draw(st.sampled_from([section for section in nested if section]))
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JUNK)
    with contextlib.suppress(KvbudgetError):
        assert total(config, 64) >= 0


def shared_rows() -> list[dict[str, str]]:
    """Return the reference counts of the shared configs."""
    with (SHARED / "data" / "params.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


@pytest.mark.skipif(not (SHARED / "data" / "params.tsv").exists(), reason="needs the shared configs and their counts")
def test_every_shared_config_that_is_answered_equals_the_reference() -> None:
    """The count is transformers' own of vision and audio parameters, for all configs whose class it has whole."""
    compared = 0
    for row in shared_rows():
        path = SHARED / "data" / "configs" / row["hub"].replace("/", "__", 1) / "config.json"
        partly = any(part in row["note"] for part in ("part only", "moved to text_config", "translated"))
        if row["status"] != "ok" or partly or not path.exists():
            continue
        config = json.loads(path.read_text(encoding="utf-8"))
        expected = int(row["vision_audio"] or 0)
        if "model_type missing" in row["note"]:
            # The reference built the class's default tower; the published total tells the true one.
            expected += int(row["published_params"]) - int(row["total_params"])
        try:
            text_hidden = text_part(Config(config))[0].dim("hidden_size")
            answered = total(config, text_hidden)
        except CannotTell:
            continue
        assert answered == expected, row["hub"]
        compared += bool(expected)
    assert compared >= 40
