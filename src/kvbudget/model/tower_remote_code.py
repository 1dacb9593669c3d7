"""One reader a family of multimodal models that transformers has no class for; vLLM's own classes are the source.

See `kvbudget.model.tower_readers` for how readers work and what their sources and splits mean.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kvbudget.facts.tower_defaults import OVIS_INDICATORS, TOWER_DEFAULTS
from kvbudget.model.config import MAX_LAYERS, Config
from kvbudget.model.shapes import Group, Split, Tower
from kvbudget.model.tower_encoders import (
    aimv2,
    clip,
    clip_blocks,
    kimi_towers,
    merged_width,
    moonvit,
    sam,
    siglip,
    timm_vit,
    whisper_encoder,
)
from kvbudget.model.tower_parts import (
    SWIGLU,
    Parts,
    Reader,
    feature_layers,
    fixed_encoder,
    folded,
    grid_patches,
    layers_read,
    named_encoder,
    patch_pixels,
    refuse,
    same_width,
    stated_config,
    tower_config,
    vision_config,
)


def original_llava(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LLaVA in its authors' layout: a tower known by name, a projector `mlp2x_gelu` or `linear`."""
    v, parts, projector = (
        named_encoder(c, "mm_vision_tower", "clip_vision_model"),
        Parts(Group.VISION),
        Parts(Group.VISION),
    )
    features = feature_layers(c, "mm_vision_select_layer")
    width = clip(v, parts, layers_read(v.dim("num_hidden_layers"), features), post_norm=False)
    same_width(c, "mm_hidden_size", width)
    kind = c.text("mm_projector_type") or ""
    depth = re.fullmatch(r"mlp(\d)x_gelu", kind)
    if kind != "linear" and depth is None:
        refuse(c, "mm_projector_type")
    projector.linear("0" if depth else "weight", width, text_hidden)
    for i in range(1, int(depth[1]) if depth else 1):
        projector.linear(str(2 * i), text_hidden, text_hidden)
    return parts.towers("model.vision_tower.vision_tower.vision_model") + projector.towers("model.mm_projector")


def _step3_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Step3 (step3_vl.py)."""
    v, parts = vision_config(c, "step3_vision_encoder"), Parts(Group.VISION)
    width, out = v.dim("hidden_size"), v.dim("output_hidden_size")
    parts.vector("embeddings.class_embedding", width)
    parts.conv("embeddings.patch_embedding", width, v.count("num_channels"), patch_pixels(v))
    parts.table("embeddings.position_embedding", grid_patches(v) + 1, width)
    clip_blocks(parts.blocks("transformer.layers.*", v.dim("num_hidden_layers")), width, v.dim("intermediate_size"))
    projector = Parts(Group.VISION)
    projector.conv("vit_downsampler", out, width, 4)
    projector.conv("vit_downsampler2", out * 2, out, 9)
    projector.linear("vit_large_projector", out * 2, text_hidden, bias=c.flag("projector_bias"))
    return parts.towers("vision_model") + projector.towers("model")


def _internvl_chat(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """InternVL in its authors' layout (intern_vit.py, internvl.py)."""
    v = stated_config(c, "vision_config")
    width, layers = v.dim("hidden_size"), v.dim("num_hidden_layers")
    if v.text("model_type") not in {"intern_vit_6b", None}:
        refuse(c, "vision_config")
    if not v.has("qkv_bias"):
        refuse(v, "qkv_bias", "an InternViT that does not say whether its projections have a bias")
    parts = Parts(Group.VISION)
    parts.vector("embeddings.class_embedding", width)
    parts.conv("embeddings.patch_embedding", width, 3, patch_pixels(v))  # intern_vit.py ignores num_channels
    parts.table("embeddings.position_embedding", grid_patches(v) + 1, width)
    select = feature_layers(c, "select_layer")[0]
    blocks = parts.blocks("encoder.layers.*", layers, layers + select + 1 if select < 0 else select + 1)
    for scale in ("ls1", "ls2"):
        blocks.vector(scale, width)
    heads, bias = v.dim("num_attention_heads"), v.flag("qkv_bias")
    blocks.attention("attn.", width, ("qkv",), "proj", bias=bias, out_bias=True, heads=heads)
    if v.flag("qk_normalization"):
        blocks.norms(("attn.q_norm", "attn.k_norm"), width, bias=False)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"))
    blocks.norms(("norm1", "norm2"), width, bias=v.text("norm_type") != "rms_norm")
    projector = Parts(Group.VISION)
    shuffled = folded(c, width)
    projector.norm("0", shuffled)
    projector.mlp("", shuffled, text_hidden, ("1", "3"), out=text_hidden, parallel=False)
    return parts.towers("vision_model") + projector.towers("mlp1")


def _kimi_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Kimi-VL (kimi_vl.py)."""
    names = ("linear_1", "linear_2")
    return kimi_towers(vision_config(c, "moonvit"), text_hidden, "multi_modal_projector", names)


def _kimi_k3(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Kimi-K3 (vllm/models/kimi_k3/nvidia/model.py)."""
    return kimi_towers(vision_config(c, "kimi_k3_vision"), text_hidden, "mm_projector", ("proj.0", "proj.2"))


def _locate_anything(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """MoonViT and the two-layer projector of the Eagle line (kimi_vl.py, eagle2_5_vl.py).

    No engine here has the class; the published checkpoint's names and its 3,830,665,968 values prove the parts.
    """
    if c.integer("mlp_connector_layers") not in {2, None}:
        refuse(c, "mlp_connector_layers")
    parts, projector = Parts(Group.VISION), Parts(Group.VISION)
    _, merged = moonvit(vision_config(c, "moonvit"), parts)
    projector.norm("0", merged)
    projector.mlp("", merged, text_hidden, ("1", "3"), out=text_hidden, parallel=False)
    return parts.towers("vision_model") + projector.towers("mlp1")


def _phi3_v(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Phi-3-vision: CLIP known by name, learned separators and a two-layer projector (phi3v.py)."""
    processor, layer = stated_config(c, "img_processor"), stated_config(c, "embd_layer")
    processor = processor.extended({}, TOWER_DEFAULTS["phi3_v_processor"])
    v, parts = named_encoder(processor, "model_name", "clip_vision_model"), Parts(Group.VISION)
    read = layers_read(v.dim("num_hidden_layers"), feature_layers(processor, "layer_idx"))
    width = clip(v, parts.within("img_processor.vision_model"), read, post_norm=False)
    same_width(processor, "image_dim_out", width)
    if not (layer.flag("use_hd_transform") and layer.flag("with_learnable_separator")):
        refuse(layer, "use_hd_transform", "an image embedding without learned separators")
    if layer.text("projection_cls") not in {"mlp", None}:
        refuse(layer, "projection_cls")
    square = width * 4
    for name in ("glb_GN", "sub_GN"):
        parts.vector(name, square)
    parts.mlp("img_projection.", square, text_hidden, ("0", "2"), out=text_hidden, parallel=False)
    return parts.towers("model.vision_embed_tokens")


def _minicpmv(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """MiniCPM-V: a SigLIP and a resampler (minicpmv.py, vllm/model_executor/layers/resampler.py)."""
    if c.has("audio_config"):
        refuse(c, "audio_config")
    parts, sampler = Parts(Group.VISION), Parts(Group.VISION)
    drop, queries = int(c.flag("drop_vision_last_layer")), c.dim("query_num")
    if c.has("vision_config"):
        v = vision_config(c, "idefics2_vision")
        width = siglip(v.extended({"num_hidden_layers": v.dim("num_hidden_layers") - drop}, v.defaults), parts)
    else:
        v = named_encoder(c, "vision_encoder", "timm_vit")
        width = timm_vit(v, parts, drop=drop, pooled=False)
        sampler.table("pos_embed", queries, text_hidden)
    sampler.table("query", queries, text_hidden)
    if width != text_hidden:
        sampler.linear("kv_proj", width, text_hidden, bias=False)
    sampler.attention("attn.", text_hidden, ("in_proj",), parallel=False)
    sampler.norms(("ln_q", "ln_kv", "ln_post"), text_hidden)
    sampler.table("proj", text_hidden, text_hidden)
    return parts.towers("vpm") + sampler.towers("resampler")


def _qwen_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen-VL: a ViT and a resampler (vLLM 0.10, qwen_vl.py); a plain Qwen has no `visual`."""
    del text_hidden  # output_dim says it
    v = c.sub("visual", defaults=TOWER_DEFAULTS["qwen_visual"])
    if v is None:
        return ()
    parts, width, out, queries = Parts(Group.VISION), v.dim("width"), v.dim("output_dim"), v.dim("n_queries")
    parts.conv("conv1", width, 3, patch_pixels(v), bias=False)
    parts.table("positional_embedding", v.dim("positions"), width)
    parts.norm("ln_pre", width)
    blocks = parts.blocks("transformer.resblocks.*", v.dim("layers"))
    blocks.norms(("ln_1", "ln_2"), width)
    blocks.attention("attn.", width, ("in_proj",), parallel=False)
    blocks.mlp("mlp.", width, int(width * v.number("mlp_ratio", default=4)), ("c_fc", "c_proj"))
    pool = parts.within("attn_pool")
    pool.table("query", queries, out)
    pool.table("pos_embed", queries, out)
    if width != out:
        pool.linear("kv_proj", width, out, bias=False)
    pool.attention("attn.", out, ("in_proj",), parallel=False)
    pool.norms(("ln_q", "ln_kv"), out)
    parts.norm("ln_post", out)
    parts.table("proj", out, out)
    return parts.towers("transformer.visual")


def _molmo(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Molmo, whose encoder is fixed in its class (molmo.py)."""
    v, parts = fixed_encoder(c, "molmo"), Parts(Group.VISION)
    width, features = v.dim("width"), v.dim("feature_layers")
    vit = parts.within("image_vit")
    vit.vector("class_embedding", width)
    vit.table("positional_embedding", v.dim("positions"), width)
    vit.linear("patch_embedding", v.count("num_channels") * patch_pixels(v), width, bias=False)
    vit.norm("pre_ln", width)
    blocks = vit.blocks("transformer.resblocks.*", v.dim("layers"))
    blocks.attention("attention.", width, ("wq", "wk", "wv"), "wo")
    blocks.mlp("feed_forward.", width, v.dim("mlp_dim"), ("w1", "w2"))
    blocks.norms(("attention_norm", "ffn_norm"), width)
    for name in ("wq", "wk", "wv"):
        parts.linear(f"image_pooling_2d.{name}", width * features, width, split=Split.COLUMN)
    parts.linear("image_pooling_2d.wo", width, width, split=Split.ROW)
    inner = c.dim("intermediate_size") // 2
    parts.mlp("image_projector.", width, inner, ("w1", "w3", "w2"), out=text_hidden, bias=False)
    parts.table("pad_embed", 2, width * features)
    return parts.towers("model.vision_backbone")


def _deepseek_projector(c: Config, *, newline: bool) -> tuple[Tower, ...]:
    """The projector and learned separators of DeepSeek-VL2 and its OCR models (deepseek_vl2.py, MlpProjector)."""
    p, parts = tower_config(c, "projector_config", "mlp_projector"), Parts(Group.VISION)
    kind, out, wide = p.text("projector_type"), p.dim("n_embed"), p.dim("input_dim")
    if c.text("tile_tag") not in {"2D", None}:
        refuse(c, "tile_tag")
    if kind == "linear":
        parts.linear("projector.layers", wide, out)
    elif kind == "downsample_mlp_gelu":
        inner, depth = out * p.dim("mlp_ratio"), p.dim("depth", minimum=2, maximum=MAX_LAYERS)
        parts.linear("projector.layers.0", wide * p.dim("downsample_ratio") ** 2, inner)
        for i in range(1, depth - 1):
            parts.linear(f"projector.layers.{2 * i}", inner, inner)
        parts.linear(f"projector.layers.{2 * depth - 2}", inner, out)
    else:
        refuse(p, "projector_type")
    parts.vector("view_seperator", out)
    if newline:
        parts.vector("image_newline", out)
    return parts.towers("model")


def _deepseek_vl2(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """DeepSeek-VL2 (deepseek_vl2.py)."""
    del text_hidden
    parts = Parts(Group.VISION)
    timm_vit(named_encoder(stated_config(c, "vision_config"), "model_name", "timm_vit"), parts)
    return parts.towers("vision") + _deepseek_projector(c, newline=True)


def _deepseek_ocr(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """DeepSeek-OCR: SAM, then CLIP (deepseek_ocr.py, deepencoder.py)."""
    del text_hidden
    v, parts = fixed_encoder(c, "deepencoder_clip"), Parts(Group.VISION)
    width, inner = v.dim("hidden_size"), v.dim("intermediate_size")
    parts.vector("embeddings.class_embedding", width)
    parts.conv("embeddings.patch_embedding", width, v.count("num_channels"), patch_pixels(v), bias=False)
    parts.table("embeddings.position_embedding", grid_patches(v) + 1, width)
    parts.norm("pre_layrnorm", width)
    clip_blocks(parts.blocks("transformer.layers.*", v.dim("num_hidden_layers")), width, inner)
    return sam(c, width) + parts.towers("model.vision_model") + _deepseek_projector(c, newline=True)


def _deepseek_ocr2(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """DeepSeek-OCR-2: SAM, then a small Qwen2 read as an encoder (deepseek_ocr2.py, deepencoder2.py)."""
    del text_hidden
    v, parts = fixed_encoder(c, "deepencoder_qwen2"), Parts(Group.VISION)
    width = v.dim("hidden_size")
    keys = width // v.dim("num_attention_heads") * v.dim("num_key_value_heads")
    blocks = parts.blocks("model.model.layers.*", v.dim("num_hidden_layers"))
    for name, wide in (("q_proj", width), ("k_proj", keys), ("v_proj", keys)):
        blocks.linear(f"self_attn.{name}", width, wide)
    blocks.linear("self_attn.o_proj", width, width, bias=False)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), SWIGLU, bias=False, parallel=False)
    blocks.norms(("input_layernorm", "post_attention_layernorm"), width, bias=False)
    parts.norm("model.model.norm", width, bias=False)
    for name in ("query_768", "query_1024"):
        parts.table(name, v.dim(name), width)
    return sam(c, width) + parts.towers("model.qwen2_model") + _deepseek_projector(c, newline=False)


def _dots_ocr(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """dots.ocr (dots_ocr.py)."""
    del text_hidden
    v, parts = vision_config(c, "dots_vit"), Parts(Group.VISION)
    width, bias = v.dim("embed_dim"), v.flag("use_bias")
    parts.conv("patch_embed.patchifier.proj", width, v.count("num_channels"), patch_pixels(v))
    parts.norm("patch_embed.patchifier.norm", width, bias=False)
    blocks = parts.blocks("blocks.*", v.dim("num_hidden_layers"))
    blocks.attention("attn.", width, ("qkv",), "proj", bias=bias)
    blocks.norms(("norm1", "norm2"), width, bias=False)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), ("fc1", "fc3", "fc2"), bias=bias)
    if v.flag("post_norm"):
        parts.norm("post_trunk_norm", width, bias=False)
    merged = merged_width(v, width)
    parts.norm("merger.ln_q", width)
    parts.mlp("merger.mlp.", merged, merged, ("0", "2"), out=v.dim("hidden_size"))
    return parts.towers("vision_tower")


def _radio(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Nemotron Nano VL: C-RADIO and a projector (nano_nemotron_vl.py, radio.py).

    vLLM also keeps two scales of ones a layer, which the checkpoint does not hold and which are counted.
    """
    if c.has("sound_config"):
        refuse(c, "sound_config")
    v = stated_config(c, "vision_config").extended({}, TOWER_DEFAULTS["radio"])
    args = stated_config(v, "args").extended({}, TOWER_DEFAULTS["radio_args"])
    sizes, parts = named_encoder(args, "model", "radio"), Parts(Group.VISION)
    width, patch, frames = sizes.dim("width"), v.dim("patch_size"), v.dim("video_temporal_patch_size")
    parts.table("patch_generator.pos_embed", round(args.dim("cpe_max_size") / patch) ** 2, width)
    parts.linear("patch_generator.embedder", 3 * patch**2, width, bias=False)
    if frames > 1:
        parts.linear("patch_generator.video_embedder", 3 * frames * patch**2, width, bias=False)
    parts.table("patch_generator.cls_token.token", _radio_tokens(args), width)
    blocks = parts.blocks("blocks.*", sizes.dim("layers"))
    for scale in ("ls1", "ls2"):
        blocks.vector(scale, width)
    blocks.attention("attn.", width, ("qkv",), "proj", heads=sizes.dim("heads"))
    blocks.mlp("mlp.", width, sizes.dim("mlp_dim"))
    blocks.norms(("norm1", "norm2"), width)
    same_width(c, "vit_hidden_size", width)
    square = width * round(1 / c.number("downsample_ratio", default=0.5)) ** 2
    projector, inner = Parts(Group.VISION), c.dim("projector_hidden_size")
    projector.norm("0", square, bias=False)
    projector.mlp("", square, inner, ("1", "3"), out=text_hidden, bias=False, parallel=False)
    return parts.towers("vision_model.radio_model.model") + projector.towers("mlp1")


def _radio_tokens(args: Config) -> int:
    """Return the class tokens, one or one a teacher, and the registers that fill them up to a multiple."""
    teachers = args.raw("teachers")
    named = {str(teacher.get("name")) for teacher in teachers or () if isinstance(teacher, Mapping)}
    tokens = len(named) if args.flag("cls_token_per_teacher") else 1
    multiple = args.integer("register_multiple", minimum=1)
    return tokens + (multiple - tokens % multiple if multiple else 0)


def _ovis(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Ovis: a visual vocabulary over AIMv2 or SigLIP (ovis.py, aimv2.py)."""
    tokenizer = stated_config(c, "visual_tokenizer_config").extended({}, TOWER_DEFAULTS["visual_tokenizer"])
    backbone = stated_config(tokenizer, "backbone_config")
    kind, parts, tail = backbone.text("model_type") or "", Parts(Group.VISION), Parts(Group.VISION)
    backbone = backbone.extended({}, TOWER_DEFAULTS.get(kind, {}))
    place = "visual_tokenizer.backbone"
    if kind == "siglip_vision_model":
        width = siglip(backbone, parts.within("vision_model"))
    elif kind == "aimv2":
        width = aimv2(backbone, parts)
    else:
        refuse(backbone, "model_type")
    vocabulary = tokenizer.dim("vocab_size", minimum=OVIS_INDICATORS + 1)
    seen = vocabulary - OVIS_INDICATORS
    tail.linear("visual_tokenizer.head.0", width * tokenizer.dim("hidden_stride") ** 2, seen, bias=False)
    tail.norm("visual_tokenizer.head.1", seen)
    tail.table("vte", vocabulary, c.integer("hidden_size", minimum=1) or text_hidden)
    return parts.towers(place) + tail.towers("model")


def _ultravox(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Ultravox: a Whisper encoder and a projector over stacked frames (ultravox.py)."""
    if c.has("audio_model_id") and not c.has("audio_config"):
        refuse(c, "audio_model_id")
    if c.integer("num_projector_layers"):
        refuse(c, "num_projector_layers")
    a = tower_config(c, "audio_config", "whisper")
    parts = whisper_encoder(a, positions=True, key_bias=False, parallel=True, end="layer_norm")
    stacked = a.dim("d_model", "hidden_size") * c.count("stack_factor", minimum=1)
    inner = c.count("hidden_size", minimum=1)
    middle = inner // 2 if c.text("projector_act") == "swiglu" else inner
    projector = Parts(Group.AUDIO)
    projector.norm("ln_pre", stacked, bias=False)
    projector.linear("linear_1", stacked, inner, bias=False)
    projector.linear("linear_2", middle, text_hidden, bias=False)
    before = c.flag("projector_ln_mid")
    projector.norm("ln_mid" if before else "ln_post", middle if before else text_hidden, bias=False)
    return parts.towers("audio_tower") + projector.towers("multi_modal_projector")


REMOTE_READERS: Mapping[str, Reader] = {
    "deepseekocr2forcausallm": _deepseek_ocr2,
    "deepseekocrforcausallm": _deepseek_ocr,
    "deepseekvlv2": _deepseek_vl2,
    "dotsocr": _dots_ocr,
    "internvlchat": _internvl_chat,
    "kimik3": _kimi_k3,
    "kimivl": _kimi_vl,
    "locateanything": _locate_anything,
    "minicpmv": _minicpmv,
    "molmo": _molmo,
    "nemotronhnanovlv2": _radio,
    "ovis": _ovis,
    "phi3v": _phi3_v,
    "qwen": _qwen_vl,
    "step3vl": _step3_vl,
    "ultravox": _ultravox,
}
"""Class or model type, lower-cased and without underscores -> its reader."""
