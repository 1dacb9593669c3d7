"""One reader a family of multimodal models: its encoders and the projectors to the language model.

A reader takes the whole config and the language model's width. Sizes come from the config; an absent key has its
class's default, a row in `kvbudget.facts.tower_defaults`. Names follow the checkpoints, so that the exclusion lists
of quantized ones match. Splits are vLLM's (0.32, its default `mm_encoder_tp_mode` "weights"), read off its classes
on the meta device at one and at four tensor-parallel ranks. Sources name files of transformers 5.24 (``models/``) and
of vLLM 0.32 (``vllm/model_executor/models/`` unless a path is given).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.facts.tower_defaults import OPAQUE_ENCODERS, OWN_TOWERS, TOWER_DEFAULTS
from kvbudget.model import build
from kvbudget.model.config import Config
from kvbudget.model.shapes import Group, Split, Tower
from kvbudget.model.tower_encoders import (
    clip,
    clip_blocks,
    conformer,
    depth_of,
    gemma_attention,
    kimi_towers,
    merged_width,
    patch_3d,
    pixtral,
    qwen2_5_visual,
    qwen3_visual,
    siglip,
    whisper_blocks,
    whisper_encoder,
)
from kvbudget.model.tower_parts import (
    SWIGLU,
    Parts,
    Reader,
    feature_layers,
    folded,
    grid_patches,
    layers_read,
    own_tower,
    pair_of,
    patch_pixels,
    refuse,
    tower_config,
    two_of,
    vision_config,
)
from kvbudget.model.tower_remote_code import original_llava

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_ENCODERS: Mapping[str, tuple[Callable[..., int], str]] = {
    "clip_vision_model": (clip, "vision_tower.vision_model"),
    "siglip_vision_model": (siglip, "vision_tower.vision_model"),
    "pixtral": (pixtral, "vision_tower"),
}
"""Model type of a nested config -> (reader, its place in the checkpoint)."""


def _encoder(
    c: Config, kind: str, features: Sequence[int] | None = None, *, post_norm: bool = True
) -> tuple[tuple[Tower, ...], int]:
    """Read an encoder whose kind the nested config states itself; returns the towers and the width.

    Args:
        c: The whole config.
        kind: The kind if the nested config does not state one.
        features: The layers that the projector reads; behind the last of them vLLM loads nothing.
        post_norm: Whether vLLM loads the final norm.
    """
    stated = c.sub("vision_config")
    if stated is None:
        kind, values = OWN_TOWERS.get(c.text("model_type") or "", (kind, {}))
        v = own_tower(c, "vision_config", kind, values)
    else:
        kind = stated.text("model_type") or kind
        if kind not in _ENCODERS:
            refuse(stated, "model_type")
        v = stated.extended({}, TOWER_DEFAULTS[kind])
    read_encoder, place = _ENCODERS[kind]
    parts = Parts(Group.VISION)
    read = None if features is None else layers_read(v.dim("num_hidden_layers"), features)
    width = read_encoder(v, parts, read, post_norm=post_norm)
    return parts.towers(place), width


def _text_only(c: Config) -> bool:
    """Whether the config is that of the family's language model alone: no tower, and a class that has none."""
    architectures = c.data.get("architectures")
    named = isinstance(architectures, list) and bool(architectures)
    return (
        not c.has("vision_config")
        and named
        and not any(str(name).endswith("ForConditionalGeneration") for name in architectures or ())
    )


def _projector(
    c: Config, width: int, text_hidden: int, *, parallel: bool = True, newline: bool = False
) -> tuple[Tower, ...]:
    """Return two linear layers, and the embedding of a new line if the family has one."""
    parts, bias = Parts(Group.VISION), c.flag("multimodal_projector_bias")
    parts.mlp("", width, text_hidden, ("linear_1", "linear_2"), out=text_hidden, bias=bias, parallel=parallel)
    towers = parts.towers("multi_modal_projector")
    if newline:
        line = Parts(Group.VISION)
        line.vector("image_newline", text_hidden)
        towers += line.towers("model")
    return towers


def _llava(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LLaVA (llava/modeling_llava.py; llava.py), in transformers' layout or in its authors'."""
    if c.has("mm_vision_tower") and not c.has("vision_config"):
        return original_llava(c, text_hidden)
    features = feature_layers(c, "vision_feature_layer")
    towers, width = _encoder(c, "clip_vision_model", features, post_norm=False)
    return towers + _projector(c, width * len(features), text_hidden)


def _llava_next(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LLaVA-NeXT and its video form (llava_next/modeling_llava_next.py; llava_next.py)."""
    if c.text("spatial_pool_mode") not in {"average", "max", None}:
        refuse(c, "spatial_pool_mode")
    features = feature_layers(c, "vision_feature_layer")
    towers, width = _encoder(c, "clip_vision_model", features, post_norm=False)
    return towers + _projector(c, width * len(features), text_hidden, newline=True)


def _llava_onevision(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LLaVA-OneVision (llava_onevision/modeling_llava_onevision.py; llava_onevision.py)."""
    features = feature_layers(c, "vision_feature_layer")
    towers, width = _encoder(c, "siglip_vision_model", features, post_norm=False)
    return towers + _projector(c, width * len(features), text_hidden, parallel=False, newline=True)


def _mistral3(
    c: Config, text_hidden: int, places: tuple[str, str] = ("vision_tower", "multi_modal_projector")
) -> tuple[Tower, ...]:
    """Pixtral with a patch merger (mistral3/modeling_mistral3.py; mistral3.py)."""
    features = feature_layers(c, "vision_feature_layer")
    encoder, width = _encoder(c, "pixtral", features)
    parts = Parts(Group.VISION)
    parts.norm("norm", width, bias=False)
    parts.linear("patch_merger.merging_layer", merged_width(c, width), width, bias=False)
    towers = parts.towers(places[1]) + _projector(c, width * len(features), text_hidden)
    return tuple(tower._replace(name=places[0]) for tower in encoder) + tuple(
        tower._replace(name=places[1]) for tower in towers
    )


def _lighton_ocr(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LightOnOCR (lighton_ocr/modeling_lighton_ocr.py; lightonocr.py)."""
    return _mistral3(c, text_hidden, ("model.vision_encoder", "model.vision_projection"))


def _gemma3(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """SigLIP with an averaging projector (gemma3/modeling_gemma3.py; gemma3_mm.py)."""
    if _text_only(c):
        return ()
    towers, width = _encoder(c, "siglip_vision_model")
    parts = Parts(Group.VISION)
    parts.table("mm_input_projection_weight", width, text_hidden)
    parts.norm("mm_soft_emb_norm", width, bias=False)
    return towers + parts.towers("multi_modal_projector")


def _paligemma(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """SigLIP and one linear layer (paligemma/modeling_paligemma.py; paligemma.py)."""
    del text_hidden  # projection_dim says it
    towers, width = _encoder(c, "siglip_vision_model")
    parts = Parts(Group.VISION)
    parts.linear("linear", width, c.count("projection_dim", minimum=1))
    return towers + parts.towers("multi_modal_projector")


def _aya_vision(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """SigLIP and a gated projector (aya_vision/modeling_aya_vision.py)."""
    towers, width = _encoder(c, "siglip_vision_model")
    parts = Parts(Group.VISION)
    square = width * c.count("downsample_factor", minimum=1) ** 2
    inner = c.integer("alignment_intermediate_size", minimum=1) or text_hidden
    parts.norm("layernorm", square)
    parts.linear("linear_1", square, inner)
    parts.linear("linear_2", inner // 2, text_hidden)
    return towers + parts.towers("multi_modal_projector")


def _cohere2_vision(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """SigLIP and a gated projector (cohere2_vision/modeling_cohere2_vision.py; cohere2_vision.py)."""
    towers, width = _encoder(c, "siglip_vision_model")
    parts = Parts(Group.VISION)
    square = width * c.count("downsample_factor", minimum=1) ** 2
    inner = c.count("alignment_intermediate_size", minimum=1)
    parts.linear("linear_1", square, inner, split=Split.COLUMN)
    parts.linear("linear_2", inner // 2, text_hidden, split=Split.ROW)
    return towers + parts.towers("multi_modal_projector")


def _idefics3(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Idefics3 and SmolVLM (idefics3/modeling_idefics3.py; idefics3.py)."""
    parts = Parts(Group.VISION)
    width = siglip(vision_config(c, "idefics3_vision"), parts)
    connector = Parts(Group.VISION)
    square = width * c.count("scale_factor", minimum=1) ** 2
    connector.linear("modality_projection.proj", square, text_hidden, bias=False)
    return parts.towers("model.vision_model") + connector.towers("model.connector")


def _qwen2_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen2-VL (qwen2_vl/modeling_qwen2_vl.py; qwen2_vl.py)."""
    v = _flat_or_nested(c, "qwen2_vl_vision", {"hidden_size": text_hidden})
    width, parts = v.dim("embed_dim"), Parts(Group.VISION)
    patch_3d(v, parts, width, bias=False)
    blocks = parts.blocks("blocks.*", depth_of(v))
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj")
    blocks.mlp("mlp.", width, int(width * v.number("mlp_ratio", default=4)))
    parts.norm("merger.ln_q", width)
    merged = merged_width(v, width)
    parts.mlp("merger.mlp.", merged, merged, ("0", "2"), out=v.dim("hidden_size"))
    return parts.towers("visual")


def _qwen2_5_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen2.5-VL (qwen2_5_vl/modeling_qwen2_5_vl.py; qwen2_5_vl.py)."""
    v = _flat_or_nested(c, "qwen2_5_vl_vision", {"out_hidden_size": text_hidden})
    return qwen2_5_visual(v).towers("visual")


def _flat_or_nested(c: Config, kind: str, out: Mapping[str, int]) -> Config:
    """Return `vision_config`, or the same keys spelled flat as ``visual_depth`` (converters write them so).

    `out` is the width that the merger leads to, which flat configs leave to the language model.
    """
    prefix = "visual_"
    flat = {key.removeprefix(prefix): value for key, value in c.data.items() if key.startswith(prefix)}
    if c.has("vision_config") or "depth" not in flat:
        return vision_config(c, kind)
    return Config(
        {**out, **flat},
        path=f"{c.path}{prefix}",
        defaults=TOWER_DEFAULTS[kind],
        nested=True,
        assumed=c.assumed,
    )


def _qwen3_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen3-VL, dense and sparse."""
    del text_hidden  # the vision config names the width that its merger leads to
    return qwen3_visual(vision_config(c, "qwen3_vl_vision"), deep="deepstack_merger_list").towers("model.visual")


def _qwen3_5(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen3.5, dense and sparse: Qwen3-VL's ViT without deepstack (qwen3_5/modeling_qwen3_5.py; qwen3_5.py)."""
    del text_hidden
    if _text_only(c):
        return ()
    return qwen3_visual(vision_config(c, "qwen3_5_vision")).towers("model.visual")


def _thinker(c: Config) -> tuple[Config, str]:
    """Return the config of an omni model's thinker, the part that engines serve, and its place in the checkpoint."""
    thinker = c.sub("thinker_config")
    return (c, "") if thinker is None else (thinker, "thinker.")


def _qwen2_5_omni(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen2.5-Omni's thinker (qwen2_5_omni/modeling_qwen2_5_omni.py; qwen2_5_omni_thinker.py)."""
    del text_hidden
    thinker, place = _thinker(c)
    a = tower_config(thinker, "audio_config", "qwen2_5_omni_audio_encoder")
    audio = whisper_encoder(a, positions=False, key_bias=False, parallel=False, end="ln_post")
    width, out = a.dim("d_model", "hidden_size"), a.dim("output_dim")
    audio.table("audio_bos_eos_token", 2, out)
    audio.linear("proj", width, out)
    visual = qwen2_5_visual(vision_config(thinker, "qwen2_5_omni_vision_encoder"), ("q", "k", "v"))
    return audio.towers(f"{place}audio_tower") + visual.towers(f"{place}visual")


def _qwen3_omni(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen3-Omni's thinker (qwen3_omni_moe/modeling_qwen3_omni_moe.py; qwen3_omni_moe_thinker.py)."""
    del text_hidden
    thinker, place = _thinker(c)
    a = tower_config(thinker, "audio_config", "qwen3_omni_moe_audio_encoder")
    audio, width = Parts(Group.AUDIO), a.dim("d_model", "hidden_size")
    channels, bins = a.dim("downsample_hidden_size"), a.dim("num_mel_bins")
    for i in range(3):
        audio.conv(f"conv2d{i + 1}", channels, channels if i else 1, 9)
        bins = (bins + 1) // 2
    audio.linear("conv_out", channels * bins, width, bias=False)
    whisper_blocks(audio, a, width, key_bias=True, parallel=True)
    audio.norm("ln_post", width)
    audio.linear("proj1", width, width)
    audio.linear("proj2", width, a.dim("output_dim"))
    v = vision_config(thinker, "qwen3_omni_moe_vision_encoder")
    visual = qwen3_visual(v, "ln_q", ("mlp.0", "mlp.2"), "merger_list")
    return audio.towers(f"{place}audio_tower") + visual.towers(f"{place}visual")


def _glm4v(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """GLM-4.1V, GLM-4.5V, GLM-4.6V (glm4v/modeling_glm4v.py; glm4_1v.py)."""
    del text_hidden
    v, parts = vision_config(c, "glm4v_vision"), Parts(Group.VISION)
    width, out = v.dim("hidden_size"), v.dim("out_hidden_size")
    parts.table("embeddings.position_embedding", grid_patches(v), width)
    patch_3d(v, parts, width, bias=True)
    parts.norms(("post_conv_layernorm", "post_layernorm"), width, bias=False)
    blocks = parts.blocks("blocks.*", depth_of(v))
    blocks.norms(("norm1", "norm2"), width, bias=False)
    blocks.attention("attn.", width, ("qkv",), "proj", bias=v.flag("attention_bias"), out_bias=False)
    blocks.mlp("mlp.", width, out, SWIGLU, bias=False)
    parts.conv("downsample", out, width, v.count("spatial_merge_size", minimum=1) ** 2)
    parts.linear("merger.proj", out, out, bias=False, split=Split.COLUMN)
    parts.norm("merger.post_projection_norm", out)
    parts.mlp("merger.", out, v.dim("intermediate_size"), SWIGLU, bias=False)
    return parts.towers("model.visual")


def _ernie4_5_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """ERNIE-4.5-VL (ernie4_5_vl_moe/modeling_ernie4_5_vl_moe.py; ernie45_vl.py), in either layout of its config."""
    v, parts = vision_config(c, "ernie4_5_vl_moe_vision"), Parts(Group.VISION)
    width = v.dim("embed_dim", "hidden_size")
    ratio = None if v.has("intermediate_size") or not v.has("mlp_ratio") else v.number("mlp_ratio", default=4)
    inner = v.dim("intermediate_size") if ratio is None else int(width * ratio)
    parts.linear("patch_embed.proj", v.count("in_channels") * patch_pixels(v), width, bias=False)
    blocks = parts.blocks("blocks.*", depth_of(v))
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj")
    blocks.mlp("mlp.", width, inner)
    parts.norm("ln", width)
    side = c.integer("spatial_conv_size", minimum=1) or v.count("spatial_merge_size", minimum=1)
    frames = c.integer("temporal_conv_size", minimum=1) or v.count("temporal_merge_size", minimum=1)
    spatial = width * side**2
    sampler = Parts(Group.VISION)
    stages = [("spatial_linear", spatial)]
    if c.flag("use_temporal_conv"):
        stages.append(("temporal_linear", spatial * frames))
    for name, wide in stages:
        sampler.linear(f"{name}.0", wide, spatial, split=Split.COLUMN)
        sampler.linear(f"{name}.2", spatial, spatial, split=Split.COLUMN)
        sampler.norm(f"{name}.3", spatial)
    sampler.linear("mlp", spatial, text_hidden, split=Split.COLUMN)
    sampler.norm("after_norm", text_hidden, bias=False)
    return parts.towers("vision_model") + sampler.towers("model.resampler_model")


def _minimax_m3_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """MiniMax-M3 (minimax_m3_vl/modeling_minimax_m3_vl.py; vllm/models/minimax_m3/common/vision_tower.py)."""
    if _text_only(c):
        return ()
    v, parts = vision_config(c, "minimax_m3_vl_vision"), Parts(Group.VISION)
    # vLLM reads the sizes of the patch merge from here, transformers from the vision config itself.
    compression = v.sub("img_token_compression_config", defaults=v.defaults) or v
    width = v.dim("hidden_size")
    frames, _ = pair_of(compression, "temporal_patch_size")
    parts.conv("embeddings.proj", width, v.count("num_channels"), frames * patch_pixels(v), bias=False)
    parts.norm("pre_layrnorm", width)
    clip_blocks(parts.blocks("layers.*", v.dim("num_hidden_layers")), width, v.dim("intermediate_size"))
    projector = Parts(Group.VISION)
    inner = c.count("projector_hidden_size", minimum=1)
    projector.mlp("", width, inner, ("linear_1", "linear_2"), out=text_hidden)
    merged = merged_width(compression, text_hidden)
    projector.mlp("", merged, inner, ("merge_linear_1", "merge_linear_2"), out=text_hidden)
    return parts.towers("vision_tower") + projector.towers("multi_modal_projector")


def _step3p7(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Step-3.7's perception encoder (step3p7/modeling_step3p7.py; step_vl.py, step3p7.py)."""
    v, parts = vision_config(c, "step3p7_vision"), Parts(Group.VISION)
    if v.flag("use_cls_token") or v.flag("use_ln_post"):
        refuse(c, "vision_config", "a perception encoder with a class token or a final norm")
    width = v.dim("width", "hidden_size")
    parts.conv("conv1", width, v.count("num_channels"), patch_pixels(v), bias=False)
    parts.table("positional_embedding", grid_patches(v), width)
    parts.norm("ln_pre", width)
    blocks = parts.blocks("transformer.resblocks.*", v.dim("layers", "num_hidden_layers"))
    blocks.attention("attn.", width, ("in_proj",))
    blocks.mlp("mlp.", width, int(width * v.number("mlp_ratio", default=4)), ("c_fc", "c_proj"))
    blocks.norms(("ln_1", "ln_2"), width)
    for scale in ("ls_1.gamma", "ls_2.gamma"):
        blocks.vector(scale, width)
    parts.conv("vit_downsampler1", width * 2, width, 9)
    parts.conv("vit_downsampler2", width * 4, width * 2, 9)
    projector = Parts(Group.VISION)
    projector.linear("vit_large_projector", width * 4, text_hidden, bias=c.flag("projector_bias"), split=Split.COLUMN)
    return parts.towers("vision_model") + projector.towers("model")


def _llama4(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Llama 4 (llama4/modeling_llama4.py; mllama4.py)."""
    if _text_only(c):
        return ()
    v, parts = vision_config(c, "llama4_vision_model"), Parts(Group.VISION)
    width, inner = v.dim("hidden_size"), v.dim("intermediate_size")
    parts.vector("class_embedding", width)
    parts.table("positional_embedding_vlm", grid_patches(v) + 1, width)
    parts.linear(
        "patch_embedding.linear", v.count("num_channels") * patch_pixels(v), width, bias=False, split=Split.COLUMN
    )
    parts.norms(("layernorm_pre", "layernorm_post"), width)
    blocks = parts.blocks("model.layers.*", v.dim("num_hidden_layers"))
    blocks.attention("self_attn.", width, out="o_proj")
    blocks.mlp("mlp.", width, inner)
    blocks.norms(("input_layernorm", "post_attention_layernorm"), width)
    parts.linear("vision_adapter.mlp.fc1", inner, v.dim("projector_input_dim"), bias=False, split=Split.COLUMN)
    out = v.dim("projector_output_dim")
    parts.linear("vision_adapter.mlp.fc2", out, out, bias=False, split=Split.ROW)
    projector = Parts(Group.VISION)
    projector.linear("linear_1", v.dim("vision_output_dim"), text_hidden, bias=False, split=Split.COLUMN)
    return parts.towers("vision_model") + projector.towers("multi_modal_projector")


def _length(c: Config, key: str) -> int:
    """Return the length of a list.

    Raises:
        InputError: It is not a list.
    """
    value = c.raw(key)
    if not isinstance(value, (list, tuple)):
        raise InputError(f"{c.name(key)} must be a list, found {str(value)[:40]!r}; check the config.")
    return len(value)


def _mllama(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Llama 3.2 Vision (mllama/modeling_mllama.py; this vLLM does not serve it)."""
    v, parts = vision_config(c, "mllama_vision_model"), Parts(Group.VISION)
    width, inner, tiles = v.dim("hidden_size"), v.dim("intermediate_size"), v.dim("max_num_tiles")
    ratios, patches = _length(v, "supported_aspect_ratios") + 1, grid_patches(v) + 1
    parts.vector("class_embedding", width)
    parts.conv("patch_embedding", width, v.count("num_channels"), patch_pixels(v), bias=False)
    parts.vector("gated_positional_embedding.gate", 1)
    parts.table("gated_positional_embedding.embedding", patches, width)
    parts.table("gated_positional_embedding.tile_embedding", ratios, tiles * patches * width)
    for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        parts.vector(f"{name}.gate", 1)
        parts.table(f"{name}.embedding", ratios, tiles * width)
    parts.norms(("layernorm_pre", "layernorm_post"), width)
    for name, layers in (
        ("transformer", v.dim("num_hidden_layers")),
        ("global_transformer", v.dim("num_global_layers")),
    ):
        blocks = parts.blocks(f"{name}.layers.*", layers)
        blocks.attention("self_attn.", width, out="o_proj", bias=False)
        blocks.mlp("mlp.", width, inner)
        blocks.norms(("input_layernorm", "post_attention_layernorm"), width)
        if name == "global_transformer":
            blocks.vector("gate_attn", 1)
            blocks.vector("gate_ffn", 1)
    projector = Parts(Group.VISION)
    projector.linear("multi_modal_projector", v.dim("vision_output_dim"), text_hidden)
    return parts.towers("vision_model") + projector.towers("model")


def _internvl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """InternVL in transformers' layout (internvl/modeling_internvl.py; interns1.py)."""
    v, parts = vision_config(c, "internvl_vision"), Parts(Group.VISION)
    width, rms = v.dim("hidden_size"), v.text("norm_type") == "rms_norm"
    parts.vector("embeddings.cls_token", width)
    if v.flag("use_mask_token"):
        parts.vector("embeddings.mask_token", width)
    if v.flag("use_absolute_position_embeddings", default=True):
        parts.table("embeddings.position_embeddings", grid_patches(v) + 1, width)
    parts.conv("embeddings.patch_embeddings.projection", width, v.count("num_channels"), patch_pixels(v))
    blocks = parts.blocks("encoder.layer.*", v.dim("num_hidden_layers"))
    for scale in ("lambda_1", "lambda_2"):
        blocks.vector(scale, width)
    blocks.attention(
        "attention.",
        width,
        out="projection_layer",
        bias=v.flag("attention_bias"),
        out_bias=True,
        parallel=False,
    )
    if v.flag("use_qk_norm"):
        blocks.norms(("attention.q_norm", "attention.k_norm"), width, bias=False)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"))
    blocks.norms(("layernorm_before", "layernorm_after"), width, bias=not rms)
    if not v.flag("use_mean_pooling", default=True):
        parts.norm("layernorm", width)
    projector = Parts(Group.VISION)
    shuffled = folded(c, width)
    projector.norm("layer_norm", shuffled)
    projector.mlp("", shuffled, text_hidden, ("linear_1", "linear_2"), out=text_hidden, parallel=False)
    return parts.towers("vision_tower") + projector.towers("multi_modal_projector")


def _kimi_k25(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Kimi-K2.5 (kimi_k25/modeling_kimi_k25.py; kimi_k25.py)."""
    return kimi_towers(vision_config(c, "kimi_k25_vision"), text_hidden, "mm_projector", ("proj.0", "proj.2"))


def _gemma4(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Gemma 4's optional towers (gemma4/modeling_gemma4.py; gemma4_mm.py runs them whole on every rank)."""
    towers: tuple[Tower, ...] = ()
    v = c.sub("vision_config", defaults=TOWER_DEFAULTS["gemma4_vision"])
    if v is not None:
        width = v.dim("hidden_size")
        towers += _gemma4_vision(v, width).towers("vision_tower")
        towers += _gemma_embedder("embed_vision", Group.VISION, width, text_hidden)
    a = c.sub("audio_config", defaults=TOWER_DEFAULTS["gemma4_audio"])
    if a is not None:
        out = a.dim("output_proj_dims")
        towers += _gemma4_audio(a, out).towers("audio_tower")
        towers += _gemma_embedder("embed_audio", Group.AUDIO, out, text_hidden)
    return towers


def _gemma4_vision(v: Config, width: int) -> Parts:
    """Return Gemma 4's ViT."""
    parts, head, clips = Parts(Group.VISION), v.dim("head_dim"), v.flag("use_clipped_linears")
    queries, keys = v.dim("num_attention_heads") * head, v.dim("num_key_value_heads") * head
    inner = v.dim("intermediate_size")
    parts.linear("patch_embedder.input_proj", 3 * patch_pixels(v), width, bias=False)
    parts.table("patch_embedder.position_embedding_table", 2 * v.dim("position_embedding_size"), width)
    blocks = parts.blocks("encoder.layers.*", v.dim("num_hidden_layers"))
    for name, wide_in, wide_out in (
        ("self_attn.q_proj", width, queries),
        ("self_attn.k_proj", width, keys),
        ("self_attn.v_proj", width, keys),
        ("self_attn.o_proj", queries, width),
        ("mlp.gate_proj", width, inner),
        ("mlp.up_proj", width, inner),
        ("mlp.down_proj", inner, width),
    ):
        blocks.dense(name, wide_in, wide_out, clip=clips)
    blocks.norms(("self_attn.q_norm", "self_attn.k_norm"), head, bias=False)
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        blocks.norm(f"{name}_layernorm", width, bias=False)
    if v.flag("standardize"):
        parts.buffer("std_bias", width)
        parts.buffer("std_scale", width)
    return parts


def _gemma4_audio(a: Config, out: int) -> Parts:
    """Return Gemma 4's conformer over mel bins."""
    parts, width = Parts(Group.AUDIO), a.dim("hidden_size")
    clips = a.flag("use_clipped_linears")
    first, second = two_of(a, "subsampling_conv_channels")
    at = "subsample_conv_projection"
    for i, (wide_out, wide_in) in enumerate(((first, 1), (second, first))):
        parts.conv(f"{at}.layer{i}.conv", wide_out, wide_in, 9, bias=False)
        parts.norm(f"{at}.layer{i}.norm", wide_out, bias=False)
    parts.linear(f"{at}.input_proj_linear", first // 4 * second, width, bias=False)
    blocks = parts.blocks("layers.*", a.dim("num_hidden_layers"))
    kernel, heads = a.dim("conv_kernel_size"), a.dim("num_attention_heads")
    conformer(blocks, width, ("feed_forward1", "feed_forward2"), kernel, clip=clips)
    gemma_attention(blocks, "self_attn.", width, heads, "relative_k_proj", clip=clips)
    blocks.dense("self_attn.post", width, width, clip=clips)
    blocks.norms(("norm_pre_attn", "norm_post_attn", "norm_out"), width, bias=False)
    parts.linear("output_proj", width, out)
    return parts


def _gemma_embedder(name: str, group: Group, width: int, text_hidden: int) -> tuple[Tower, ...]:
    """Return the projection of one kind of soft token."""
    parts = Parts(group)
    parts.linear("embedding_projection", width, text_hidden, bias=False)
    return parts.towers(name)


def _side_pair(c: Config, key: str, index: int) -> tuple[int, int]:
    """Return one entry of a list of pairs.

    Raises:
        InputError: It is not one.
    """
    value = c.raw(key)
    entry = value[index] if isinstance(value, (list, tuple)) and len(value) > index else None
    if not isinstance(entry, (list, tuple)) or len(entry) != 2:  # noqa: PLR2004 - height and width
        raise InputError(f"{c.name(key)} must list pairs of numbers, found {str(value)[:40]!r}; check the config.")
    return c.checked(entry[0], key, minimum=1), c.checked(entry[1], key, minimum=1)


def _gemma3n(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Gemma 3n: an encoder of timm's, counted as a whole, and a conformer (gemma3n/modeling_gemma3n.py)."""
    v = vision_config(c, "gemma3n_vision")
    architecture = v.text("architecture") or ""
    if architecture not in OPAQUE_ENCODERS:
        refuse(v, "architecture")
    vision = Parts(Group.VISION)
    vision.vector("timm_model", OPAQUE_ENCODERS[architecture])
    a, audio = tower_config(c, "audio_config", "gemma3n_audio"), Parts(Group.AUDIO)
    width = a.dim("hidden_size")
    at = "subsample_conv_projection"
    channels, bins = (1, *two_of(a, "sscp_conv_channel_size")), a.dim("input_feat_size")
    for i in range(2):
        high, wide = _side_pair(a, "sscp_conv_kernel_size", i)
        _, stride = _side_pair(a, "sscp_conv_stride_size", i)
        audio.conv(f"{at}.conv_{i}.conv", channels[i + 1], channels[i], high * wide, bias=False)
        audio.norm(f"{at}.conv_{i}.norm", channels[i + 1], bias=False)
        bins = (bins + 2 - wide) // stride + 1  # one bin of padding on either side
    audio.linear(f"{at}.input_proj_linear", channels[2] * bins, width, bias=False)
    blocks = audio.blocks("conformer.*", a.dim("conf_num_hidden_layers"))
    kernel, heads = a.dim("conf_conv_kernel_size"), a.dim("conf_num_attention_heads")
    conformer(blocks, width, ("ffw_layer_start", "ffw_layer_end"), kernel, clip=None)
    gemma_attention(blocks, "attention.attn.", width, heads, "relative_position_embedding.pos_proj", clip=None)
    blocks.linear("attention.post", width, width, bias=False)
    blocks.norms(("attention.pre_attn_norm", "attention.post_norm", "norm"), width, bias=False)
    towers = vision.towers("vision_tower") + audio.towers("audio_tower")
    for name, part, group in (("embed_vision", v, Group.VISION), ("embed_audio", a, Group.AUDIO)):
        embed, inner = Parts(group), part.dim("hidden_size")
        embed.add(build.vocabulary("embedding", group, part.dim("vocab_size"), inner))
        embed.norms(("hard_embedding_norm", "soft_embedding_norm"), inner, bias=False)
        embed.linear("embedding_projection", inner, text_hidden, bias=False, split=Split.ROW)
        towers += embed.towers(name)
    return towers


def _fuyu(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Fuyu projects patches straight into the language model (fuyu/modeling_fuyu.py)."""
    parts = Parts(Group.VISION)
    pixels = c.count("num_channels", minimum=1) * c.count("patch_size", minimum=1) ** 2
    parts.linear("vision_embed_tokens", pixels, text_hidden)
    return parts.towers("model")


def _qwen2_audio(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen2-Audio (qwen2_audio/modeling_qwen2_audio.py; qwen2_audio.py)."""
    a = tower_config(c, "audio_config", "qwen2_audio_encoder")
    parts = whisper_encoder(a, positions=True, key_bias=False, parallel=False, end="layer_norm")
    projector = Parts(Group.AUDIO)
    projector.linear("linear", a.dim("d_model", "hidden_size"), text_hidden)
    return parts.towers("audio_tower") + projector.towers("multi_modal_projector")


def _voxtral(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Voxtral (voxtral/modeling_voxtral.py; voxtral.py)."""
    a = tower_config(c, "audio_config", "voxtral_encoder")
    parts = whisper_encoder(a, positions=True, key_bias=False, parallel=True, end="layer_norm")
    projector = Parts(Group.AUDIO)
    stacked = a.dim("encoder_ffn_dim", "intermediate_size")
    names = ("linear_1", "linear_2")
    projector.mlp("", stacked, text_hidden, names, out=text_hidden, bias=False, parallel=False)
    return parts.towers("audio_tower") + projector.towers("multi_modal_projector")


READERS: Mapping[str, Reader] = {
    "ayavision": _aya_vision,
    "cohere2vision": _cohere2_vision,
    "ernie45moevl": _ernie4_5_vl,
    "ernie45vlmoe": _ernie4_5_vl,
    "fuyu": _fuyu,
    "gemma3": _gemma3,
    "gemma3n": _gemma3n,
    "gemma4": _gemma4,
    "glm46v": _glm4v,
    "glm4v": _glm4v,
    "glm4vmoe": _glm4v,
    "idefics3": _idefics3,
    "internvl": _internvl,
    "kimik25": _kimi_k25,
    "lightonocr": _lighton_ocr,
    "llama4": _llama4,
    "llava": _llava,
    "llavanext": _llava_next,
    "llavanextvideo": _llava_next,
    "llavaonevision": _llava_onevision,
    "minimaxm3sparse": _minimax_m3_vl,
    "minimaxm3vl": _minimax_m3_vl,
    "mistral3": _mistral3,
    "mllama": _mllama,
    "paligemma": _paligemma,
    "qwen25omni": _qwen2_5_omni,
    "qwen25omnithinker": _qwen2_5_omni,
    "qwen25vl": _qwen2_5_vl,
    "qwen2audio": _qwen2_audio,
    "qwen2vl": _qwen2_vl,
    "qwen35": _qwen3_5,
    "qwen35moe": _qwen3_5,
    "qwen3omnimoe": _qwen3_omni,
    "qwen3omnimoethinker": _qwen3_omni,
    "qwen3vl": _qwen3_vl,
    "qwen3vlmoe": _qwen3_vl,
    "smolvlm": _idefics3,
    "step3p7": _step3p7,
    "voxtral": _voxtral,
}
"""Class or model type, lower-cased and without underscores -> its reader."""
