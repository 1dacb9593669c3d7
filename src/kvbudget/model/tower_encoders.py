"""Vision and audio encoders that several model families share.

Each takes the encoder's config and the collector its weights go to. Sources name files of transformers 5.24
(``models/``) and of vLLM 0.32 (``vllm/model_executor/models/``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.model.shapes import Group
from kvbudget.model.tower_parts import (
    QKV,
    SWIGLU,
    Parts,
    fixed_encoder,
    grid_patches,
    pair_of,
    patch_pixels,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.model.config import Config
    from kvbudget.model.shapes import Tower


def clip(v: Config, parts: Parts, read: int | None = None, *, post_norm: bool = True) -> int:
    """Add CLIP (clip/modeling_clip.py); returns its width."""
    width, layers = v.dim("hidden_size"), v.dim("num_hidden_layers")
    parts.vector("embeddings.class_embedding", width)
    parts.conv("embeddings.patch_embedding", width, v.count("num_channels"), patch_pixels(v), bias=False)
    parts.table("embeddings.position_embedding", grid_patches(v) + 1, width)
    parts.norm("pre_layrnorm", width)
    clip_blocks(parts.blocks("encoder.layers.*", layers, read), width, v.dim("intermediate_size"))
    (parts if post_norm else parts.unread()).norm("post_layernorm", width)
    return width


def clip_blocks(blocks: Parts, width: int, inner: int) -> None:
    """Add the blocks that CLIP, SigLIP and many others are made of."""
    blocks.attention("self_attn.", width)
    blocks.mlp("mlp.", width, inner)
    blocks.norms(("layer_norm1", "layer_norm2"), width)


def siglip(v: Config, parts: Parts, read: int | None = None, *, post_norm: bool = True) -> int:
    """Add SigLIP (siglip/modeling_siglip.py), whose pooling head vLLM leaves out; returns its width."""
    width, layers, inner = v.dim("hidden_size"), v.dim("num_hidden_layers"), v.dim("intermediate_size")
    parts.conv("embeddings.patch_embedding", width, v.count("num_channels"), patch_pixels(v))
    parts.table("embeddings.position_embedding", grid_patches(v), width)
    clip_blocks(parts.blocks("encoder.layers.*", layers, read), width, inner)
    (parts if post_norm else parts.unread()).norm("post_layernorm", width)
    if v.flag("vision_use_head"):
        head = parts.unread()
        head.vector("head.probe", width)
        head.attention("head.attention.", width, ("in_proj",))
        head.norm("head.layernorm", width)
        head.mlp("head.mlp.", width, inner)
    return width


def pixtral(v: Config, parts: Parts, read: int | None = None, *, post_norm: bool = True) -> int:
    """Add Pixtral (pixtral/modeling_pixtral.py), which has no norm at its end; returns its width."""
    del post_norm
    width, layers = v.dim("hidden_size"), v.dim("num_hidden_layers")
    parts.conv("patch_conv", width, v.count("num_channels"), patch_pixels(v), bias=False)
    parts.norm("ln_pre", width, bias=False)
    blocks = parts.blocks("transformer.layers.*", layers, read)
    blocks.attention("attention.", width, out="o_proj", bias=False)
    blocks.mlp("feed_forward.", width, v.dim("intermediate_size"), SWIGLU, bias=False)
    blocks.norms(("attention_norm", "ffn_norm"), width, bias=False)
    return width


def aimv2(v: Config, parts: Parts) -> int:
    """Add AIMv2 without the norm at its end (aimv2.py); returns its width."""
    width, bias = v.dim("hidden_size"), v.flag("mlp_bias")
    parts.table("preprocessor.pos_embed", grid_patches(v), width)
    parts.conv("preprocessor.patchifier.proj", width, v.count("num_channels"), patch_pixels(v))
    parts.norm("preprocessor.patchifier.norm", width, bias=False)
    blocks = parts.blocks("trunk.blocks.*", v.dim("num_hidden_layers"))
    blocks.attention("attn.", width, ("qkv",), "proj", bias=v.flag("qkv_bias"), out_bias=bias)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), ("fc1", "fc3", "fc2"), bias=bias)
    blocks.norms(("norm_1", "norm_2"), width, bias=False)
    parts.unread().norm("trunk.post_trunk_norm", width, bias=False)
    return width


def timm_vit(v: Config, parts: Parts, *, drop: int = 0, pooled: bool = True) -> int:
    """Add a ViT of timm's without a class token (timm 1.0, vision_transformer.py); returns its width."""
    width, inner = v.dim("width"), v.dim("mlp_dim")
    parts.table("pos_embed", grid_patches(v), width)
    parts.conv("patch_embed.proj", width, v.count("in_channels"), patch_pixels(v))
    blocks = parts.blocks("blocks.*", v.dim("layers") - drop)
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj", parallel=False)
    blocks.mlp("mlp.", width, inner, parallel=pooled)
    parts.norm("norm", width)
    if pooled:
        parts.vector("attn_pool.latent", width)
        parts.linear("attn_pool.q", width, width)
        parts.linear("attn_pool.kv", width, width * 2)
        parts.linear("attn_pool.proj", width, width)
        parts.norm("attn_pool.norm", width)
        parts.mlp("attn_pool.mlp.", width, inner)
    return width


def sam(c: Config, out: int) -> tuple[Tower, ...]:
    """Return SAM's ViT with two convolutions behind its neck (deepencoder.py, ImageEncoderViT)."""
    v, parts = fixed_encoder(c, "sam_vit_b"), Parts(Group.VISION)
    width, grid = v.dim("width"), v.dim("image_size") // v.dim("patch_size")
    head, layers, whole = width // v.dim("heads"), v.dim("layers"), v.dim("global_layers")
    parts.table("pos_embed", grid * grid, width)
    parts.conv("patch_embed.proj", width, v.count("num_channels"), patch_pixels(v))
    blocks = parts.blocks("blocks.*", layers)
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj", parallel=False)
    blocks.mlp("mlp.", width, v.dim("mlp_dim"), ("lin1", "lin2"), parallel=False)
    for count, span in ((whole, grid), (layers - whole, v.dim("window_size"))):
        positions = parts.blocks("blocks.*", count)
        for name in ("rel_pos_h", "rel_pos_w"):
            positions.table(f"attn.{name}", 2 * span - 1, head)
    neck, middle = v.dim("out_chans"), v.dim("downsample_chans")
    parts.conv("neck.0", neck, width, 1, bias=False)
    parts.norm("neck.1", neck)
    parts.conv("neck.2", neck, neck, 9, bias=False)
    parts.norm("neck.3", neck)
    parts.conv("net_2", middle, neck, 9, bias=False)
    parts.conv("net_3", out, middle, 9, bias=False)
    return parts.towers("model.sam_model")


def patch_3d(v: Config, parts: Parts, width: int, *, bias: bool) -> None:
    """Add the convolution over a few frames and a patch that the Qwen-VL line starts with."""
    frames, _ = pair_of(v, "temporal_patch_size")
    parts.conv("patch_embed.proj", width, v.count("in_channels"), frames * patch_pixels(v), bias=bias)


def merged_width(v: Config, width: int) -> int:
    """Return the width after a patch merger has put a square of patches side by side."""
    return width * v.count("spatial_merge_size", minimum=1) ** 2


def depth_of(v: Config) -> int:
    """Return the number of blocks."""
    return v.dim("depth", "num_hidden_layers")


def qwen2_5_visual(v: Config, qkv: Sequence[str] = ("qkv",)) -> Parts:
    """Return Qwen2.5-VL's ViT (qwen2_5_vl/modeling_qwen2_5_vl.py; qwen2_5_vl.py); `qkv` is fused or three layers."""
    width, parts = v.dim("hidden_size"), Parts(Group.VISION)
    patch_3d(v, parts, width, bias=False)
    blocks = parts.blocks("blocks.*", depth_of(v))
    blocks.norms(("norm1", "norm2"), width, bias=False)
    blocks.attention("attn.", width, qkv, "proj")
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), SWIGLU)
    parts.norm("merger.ln_q", width, bias=False)
    merged = merged_width(v, width)
    parts.mlp("merger.mlp.", merged, merged, ("0", "2"), out=v.dim("out_hidden_size"))
    return parts


def qwen3_visual(
    v: Config, merger_norm: str = "norm", merger: Sequence[str] = ("linear_fc1", "linear_fc2"), deep: str = ""
) -> Parts:
    """Return Qwen3-VL's ViT (qwen3_vl/modeling_qwen3_vl.py; qwen3_vl.py); `deep` names its deepstack mergers."""
    width, parts = v.dim("hidden_size"), Parts(Group.VISION)
    patch_3d(v, parts, width, bias=True)
    parts.table("pos_embed", v.dim("num_position_embeddings"), width)
    blocks = parts.blocks("blocks.*", depth_of(v))
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj")
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), ("linear_fc1", "linear_fc2"))
    merged, out = merged_width(v, width), v.dim("out_hidden_size")
    parts.norm(f"merger.{merger_norm}", width)
    parts.mlp("merger.", merged, merged, merger, out=out)
    taps = len(v.integers("deepstack_visual_indexes") or ())
    if deep and taps:
        mergers = parts.blocks(f"{deep}.*", taps)
        mergers.norm(merger_norm, merged)
        mergers.mlp("", merged, merged, merger, out=out)
    return parts


def whisper_encoder(a: Config, *, positions: bool, key_bias: bool, parallel: bool, end: str) -> Parts:
    """Return Whisper's encoder (whisper/modeling_whisper.py) and those derived from it."""
    width, parts = a.dim("d_model", "hidden_size"), Parts(Group.AUDIO)
    parts.conv("conv1", width, a.dim("num_mel_bins"), 3)
    parts.conv("conv2", width, width, 3)
    if positions:
        parts.table("embed_positions", a.dim("max_source_positions"), width)
    whisper_blocks(parts, a, width, key_bias=key_bias, parallel=parallel)
    parts.norm(end, width)
    return parts


def whisper_blocks(parts: Parts, a: Config, width: int, *, key_bias: bool, parallel: bool) -> None:
    """Add the blocks of Whisper's encoder."""
    blocks = parts.blocks("layers.*", a.dim("encoder_layers", "num_hidden_layers"))
    blocks.attention("self_attn.", width, key_bias=key_bias, parallel=parallel)
    blocks.mlp("", width, a.dim("encoder_ffn_dim", "intermediate_size"), parallel=parallel)
    blocks.norms(("self_attn_layer_norm", "final_layer_norm"), width)


def conformer(blocks: Parts, width: int, forward: Sequence[str], kernel: int, *, clip: bool | None) -> None:
    """Add two feed-forwards and a light convolution of a conformer block, as gemma3n and gemma4 have them."""
    for name in forward:
        blocks.dense(f"{name}.ffw_layer_1", width, width * 4, clip=clip)
        blocks.dense(f"{name}.ffw_layer_2", width * 4, width, clip=clip)
        blocks.norms((f"{name}.pre_layer_norm", f"{name}.post_layer_norm"), width, bias=False)
    blocks.dense("lconv1d.linear_start", width, width * 2, clip=clip)
    blocks.dense("lconv1d.linear_end", width, width, clip=clip)
    blocks.conv("lconv1d.depthwise_conv1d", width, 1, kernel, bias=False)
    blocks.norms(("lconv1d.pre_layer_norm", "lconv1d.conv_norm"), width, bias=False)


def gemma_attention(blocks: Parts, at: str, width: int, heads: int, relative: str, *, clip: bool | None) -> None:
    """Add attention with relative positions, as gemma3n's and gemma4's conformers have it, up to its output layer."""
    inner = width // heads * heads
    for name in QKV:
        blocks.dense(at + name, width, inner, clip=clip)
    blocks.linear(at + relative, width, inner, bias=False)
    blocks.vector(f"{at}per_dim_scale", width // heads)


def moonvit(v: Config, parts: Parts) -> tuple[int, int]:
    """Add MoonViT (kimi_vl.py, kimi_k25_vit.py); returns its width, and that of a square of merged patches."""
    width, inner = v.dim("vt_hidden_size", "hidden_size"), v.dim("vt_intermediate_size", "intermediate_size")
    heads, inside = v.dim("vt_num_attention_heads", "num_attention_heads"), v.integer("qkv_hidden_size", minimum=1)
    rms = v.text("norm_type") == "rmsnorm"
    height, side = (v.dim(f"init_pos_emb_{key}", f"pos_emb_{key}") for key in ("height", "width"))
    parts.conv("patch_embed.proj", width, 3, patch_pixels(v), bias=v.flag("patch_embed_proj_bias"))
    parts.table("patch_embed.pos_emb", height * side, width)
    blocks = parts.blocks("encoder.blocks.*", v.dim("vt_num_hidden_layers", "num_hidden_layers"))
    blocks.norms(("norm0", "norm1"), width, bias=not rms)
    blocks.attention("", width, ("wqkv",), "wo", bias=v.flag("attn_bias"), inner=inside, heads=heads)
    blocks.mlp("mlp.", width, inner, ("fc0", "fc1"), bias=v.flag("linear_bias"), heads=heads)
    parts.norm("encoder.final_layernorm", width, bias=not rms)
    merge = pair_of(v, "merge_kernel_size")
    return width, width * merge[0] * merge[1]


def kimi_towers(v: Config, text_hidden: int, place: str, names: Sequence[str]) -> tuple[Tower, ...]:
    """Return MoonViT with the projector of the Kimi line at `place` (kimi_k25_vit.py, KimiK25MultiModalProjector)."""
    parts, projector = Parts(Group.VISION), Parts(Group.VISION)
    width, merged = moonvit(v, parts)
    form = v.text("mm_projector_type")
    if form == "patchmergerv2":
        projector.norm("post_norm", text_hidden, bias=False)
    elif form == "patchmerger":
        projector.norm("pre_norm", width)
    else:
        refuse(v, "mm_projector_type")
    bias = form == "patchmerger"
    projector.mlp("", merged, merged, names, out=text_hidden, bias=bias, parallel=False)
    return parts.towers("vision_tower") + projector.towers(place)
