"""Vision and audio towers: what a multimodal checkpoint holds besides its language model.

One reader a tower family. Sizes come from the config; a key that is absent has its class's default, a row in
`kvbudget.facts.tower_defaults`. Names follow the checkpoints, so that the exclusion lists of quantized ones match.
Splits are vLLM's (0.32, `mm_encoder_tp_mode` "weights", its default), read off its model classes on the meta device
at one and at four tensor-parallel ranks. Sources name files of transformers 5.24 (``models/``) and of vLLM 0.32
(``vllm/model_executor/models/`` unless a path is given).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.tower_defaults import (
    FIXED_ENCODERS,
    NAMED_ENCODERS,
    OPAQUE_ENCODERS,
    OWN_TOWERS,
    TOWER_DEFAULTS,
)
from kvbudget.model import build
from kvbudget.model.config import Config
from kvbudget.model.shapes import Group, Split, Tower, Weight

MARKS = ("vision", "visual", "audio", "speech", "sound", "image", "img", "siglip")
"""Words in the name of a top-level key that holds an object: it describes a tower."""

NAMES = (
    "mm_vision_tower",
    "vision_tower",
    "vision_encoder",
    "audio_tower",
    "audio_encoder",
    "speech_encoder",
)
"""Top-level keys that name a tower instead of describing it."""

SWIGLU = ("gate_proj", "up_proj", "down_proj")
QKV = ("q_proj", "k_proj", "v_proj")


def read_towers(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Return the vision and audio towers of a config with their projectors, nothing for a text-only model.

    A tower whose `loaded` is false stands for what the checkpoint has behind the feature layer: transformers builds
    it, vLLM leaves it out.

    Args:
        c: The whole config.
        text_hidden: The language model's width, which projectors lead to.

    Raises:
        CannotTell: There is a tower whose parts are not known; its key is the one that announces the tower.
        InputError: A value cannot be read.
    """
    described = any(c.has(key) for key in ("vision_config", "audio_config"))
    if not described and (c.text("model_type") or "").endswith("_text"):
        return ()
    reader = _reader(c)
    if reader is not None:
        return reader(c, text_hidden)
    for key, value in c.data.items():
        object_ = isinstance(value, Mapping) and value and any(mark in key for mark in MARKS)
        if object_ or (key in NAMES and isinstance(value, str) and value):
            _refuse(c, key)
    return ()


def _reader(c: Config) -> Callable[[Config, int], tuple[Tower, ...]] | None:
    """Return the reader of the class that `architectures` names, else of the model type, or None."""
    architectures = c.data.get("architectures")
    names = (
        [name for name in architectures if isinstance(name, str)] if isinstance(architectures, list) else []
    )
    names = [name.removesuffix("ForConditionalGeneration") for name in names]
    model_type = c.data.get("model_type")
    if isinstance(model_type, str):
        names.append(model_type)
    found = (_READERS.get(name.replace("_", "").lower()) for name in names)
    return next((reader for reader in found if reader is not None), None)


def _refuse(c: Config, key: str, seen: object = None) -> None:
    """Raise `CannotTell` for a tower that no reader knows."""
    if seen is None:
        value = c.data.get(key)
        seen = value.get("model_type") or value.get("model_name") if isinstance(value, Mapping) else value
    raise CannotTell(
        f"{c.name(key)} announces a tower of kind {seen!r}, whose weights this version of kvbudget does not know, "
        "so the total would be a guess; the language model alone is known: remove the key to count only that.",
        key=c.name(key),
    )


class _Parts:
    """Collects the weights of one tower, or of the equal blocks of one: all names get `prefix`, all counts `count`.

    Of the `count` copies the first `read` are those that vLLM loads.
    """

    __slots__ = ("count", "group", "loaded", "prefix", "read", "unloaded")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.prefix = ""
        self.count = self.read = 1
        self.loaded: list[Weight] = []
        self.unloaded: list[Weight] = []

    def blocks(self, prefix: str, count: int, read: int | None = None) -> _Parts:
        """Return a collector for `count` blocks of this tower."""
        parts = _Parts(self.group)
        parts.prefix, parts.count = f"{self.prefix}{prefix}.", count
        parts.read = count if read is None else min(read, count)
        parts.loaded, parts.unloaded = self.loaded, self.unloaded
        return parts

    def unread(self) -> _Parts:
        """Return a collector for parts of this tower that vLLM does not load."""
        parts = self.blocks("", self.count, read=0)
        parts.prefix = self.prefix
        return parts

    def add(self, weight: Weight) -> None:
        weight = replace(weight, name=f"{self.prefix}{weight.name}")
        if self.read:
            self.loaded.append(replace(weight, count=self.read))
        if self.count > self.read:
            self.unloaded.append(replace(weight, count=self.count - self.read))

    def linear(
        self, name: str, wide_in: int, wide_out: int, *, bias: bool = True, split: Split = Split.REPLICATED
    ) -> None:
        self.add(build.linear(name, self.group, wide_in, wide_out, bias=bias, split=split))

    def dense(self, name: str, wide_in: int, wide_out: int, *, clip: bool | None) -> None:
        """Add a layer without bias; wrapped in bounds for its input and output, four values, unless `clip` is None."""
        self.linear(name if clip is None else f"{name}.linear", wide_in, wide_out, bias=False)
        if clip:
            self.buffer(name, 4)

    def norm(self, name: str, width: int, *, bias: bool = True) -> None:
        """Add a LayerNorm, or an RMSNorm if it has no `bias`."""
        self.add(build.vector(name, width, group=self.group, bias=bias))

    def vector(self, name: str, size: int) -> None:
        self.add(build.vector(name, size, group=self.group))

    def buffer(self, name: str, size: int) -> None:
        """Add values that are stored but are not parameters."""
        self.add(build.vector(name, size, group=self.group, buffer=True))

    def table(self, name: str, rows: int, width: int) -> None:
        self.add(build.table(name, rows, width, group=self.group))

    def conv(self, name: str, out_channels: int, in_channels: int, kernel: int, *, bias: bool = True) -> None:
        self.add(build.convolution(name, self.group, out_channels, in_channels, kernel, bias=bias))

    def attention(
        self,
        at: str,
        width: int,
        names: Sequence[str] = QKV,
        out: str = "out_proj",
        *,
        bias: bool = True,
        key_bias: bool | None = None,
        out_bias: bool | None = None,
        inner: int | None = None,
        parallel: bool = True,
    ) -> None:
        """Add the projections of multi-head attention; `names` is the fused one or query, key and value."""
        inner = inner or width
        fused = 3 // len(names)
        for i, name in enumerate(names):
            has_bias = key_bias if i == 1 and key_bias is not None else bias
            self.linear(at + name, width, inner * fused, bias=has_bias, split=_column(parallel))
        self.linear(at + out, inner, width, bias=bias if out_bias is None else out_bias, split=_row(parallel))

    def mlp(
        self,
        at: str,
        width: int,
        inner: int,
        names: Sequence[str] = ("fc1", "fc2"),
        *,
        out: int | None = None,
        bias: bool = True,
        parallel: bool = True,
    ) -> None:
        """Add a feed-forward: all `names` but the last lead to `inner`, the last back to `width` or on to `out`."""
        for name in names[:-1]:
            self.linear(at + name, width, inner, bias=bias, split=_column(parallel))
        self.linear(at + names[-1], inner, out or width, bias=bias, split=_row(parallel))

    def norms(self, names: Sequence[str], width: int, *, bias: bool = True) -> None:
        for name in names:
            self.norm(name, width, bias=bias)

    def towers(self, name: str) -> tuple[Tower, ...]:
        """Return the tower, and what vLLM does not load of it if there is any."""
        loaded = Tower(name=name, group=self.group, weights=tuple(self.loaded))
        if not self.unloaded:
            return (loaded,)
        return loaded, Tower(name=name, group=self.group, weights=tuple(self.unloaded), loaded=False)


def _column(parallel: bool) -> Split:
    return Split.COLUMN if parallel else Split.REPLICATED


def _row(parallel: bool) -> Split:
    return Split.ROW if parallel else Split.REPLICATED


def _vision(c: Config, kind: str) -> Config:
    """Return `vision_config` with the defaults of `kind`, whatever model type it states itself."""
    return _nested(c, "vision_config", kind)


def _nested(c: Config, key: str, kind: str) -> Config:
    """Return the config of a tower; without one the class builds its own default, which is an assumption."""
    nested = c.sub(key, defaults=TOWER_DEFAULTS[kind])
    return _own_tower(c, key, kind) if nested is None else nested


def _own_tower(c: Config, key: str, kind: str, values: Mapping[str, Any] | None = None) -> Config:
    c.assumed.append((c.name(key), f"the class's own default, {kind}"))
    defaults = {**TOWER_DEFAULTS[kind], **(values or {})}
    return Config({}, path=f"{c.path}{key}.", defaults=defaults, nested=True, assumed=c.assumed)


def _described(c: Config, key: str) -> Config:
    """Return the config of a tower that no class has a default for."""
    nested = c.sub(key)
    if nested is None:
        raise CannotTell(
            f"{c.name(key)} is missing from the config of a model that has a tower, so its size is unknown; "
            "give the complete config.json.",
            key=c.name(key),
        )
    return nested


def _pair(c: Config, *keys: str) -> tuple[int, int]:
    """Return a size that may be written as one number for both sides."""
    value = c.raw(*keys)
    if isinstance(value, Sequence) and not isinstance(value, str):
        sides = c.integers(*keys, minimum=1) or ()
        if len(sides) != 2:  # noqa: PLR2004 - height and width
            raise InputError(
                f"{c.name(keys[0])} must be one number or two, found {len(sides)}; check the config."
            )
        return sides[0], sides[1]
    side = c.dim(*keys)
    return side, side


def _patch(c: Config) -> int:
    """Return the pixels of one patch."""
    height, width = _pair(c, "patch_size")
    return height * width


def _grid(c: Config) -> int:
    """Return the patches of one image."""
    image, patch = _pair(c, "image_size"), _pair(c, "patch_size")
    return (image[0] // patch[0]) * (image[1] // patch[1])


def _feature_layers(c: Config, *, key: str = "vision_feature_layer", default: int) -> tuple[int, ...]:
    """Return the layers whose output the projector reads, which may be a list."""
    value = c.data.get(key)
    values = value if isinstance(value, list) else [default if value is None else value]
    for item in values:
        if not isinstance(item, int) or isinstance(item, bool):
            raise InputError(f"{c.name(key)} must hold layer numbers, found {item!r}; check the config.")
    return tuple(values)


def _read_layers(layers: int, features: Sequence[int]) -> int:
    """Return how many layers vLLM loads (llava.py, _get_num_hidden_layers)."""
    return max(layers + feature + 1 if feature < 0 else feature for feature in features)


# --- encoders that several models share -------------------------------------------------------------------------


def _clip(v: Config, parts: _Parts, read: int | None = None, *, post_norm: bool = True) -> int:
    """CLIP (clip/modeling_clip.py); returns its width."""
    width, layers = v.dim("hidden_size"), v.dim("num_hidden_layers")
    parts.vector("embeddings.class_embedding", width)
    parts.conv("embeddings.patch_embedding", width, v.count("num_channels"), _patch(v), bias=False)
    parts.table("embeddings.position_embedding", _grid(v) + 1, width)
    parts.norm("pre_layrnorm", width)
    _clip_blocks(parts.blocks("encoder.layers.*", layers, read), width, v.dim("intermediate_size"))
    (parts if post_norm else parts.unread()).norm("post_layernorm", width)
    return width


def _clip_blocks(blocks: _Parts, width: int, inner: int) -> None:
    blocks.attention("self_attn.", width)
    blocks.mlp("mlp.", width, inner)
    blocks.norms(("layer_norm1", "layer_norm2"), width)


def _siglip(v: Config, parts: _Parts, read: int | None = None, *, post_norm: bool = True) -> int:
    """SigLIP (siglip/modeling_siglip.py), whose pooling head vLLM leaves out; returns its width."""
    width, layers, inner = v.dim("hidden_size"), v.dim("num_hidden_layers"), v.dim("intermediate_size")
    parts.conv("embeddings.patch_embedding", width, v.count("num_channels"), _patch(v))
    parts.table("embeddings.position_embedding", _grid(v), width)
    _clip_blocks(parts.blocks("encoder.layers.*", layers, read), width, inner)
    (parts if post_norm else parts.unread()).norm("post_layernorm", width)
    if v.flag("vision_use_head"):
        head = parts.unread()
        head.vector("head.probe", width)
        head.attention("head.attention.", width, ("in_proj",))
        head.norm("head.layernorm", width)
        head.mlp("head.mlp.", width, inner)
    return width


def _pixtral(v: Config, parts: _Parts, read: int | None = None, *, post_norm: bool = True) -> int:
    """Pixtral (pixtral/modeling_pixtral.py), which has no norm at its end; returns its width."""
    del post_norm
    width, layers = v.dim("hidden_size"), v.dim("num_hidden_layers")
    parts.conv("patch_conv", width, v.count("num_channels"), _patch(v), bias=False)
    parts.norm("ln_pre", width, bias=False)
    blocks = parts.blocks("transformer.layers.*", layers, read)
    blocks.attention("attention.", width, out="o_proj", bias=False)
    blocks.mlp("feed_forward.", width, v.dim("intermediate_size"), SWIGLU, bias=False)
    blocks.norms(("attention_norm", "ffn_norm"), width, bias=False)
    return width


_ENCODERS: Mapping[str, tuple[Callable[..., int], str]] = {
    "clip_vision_model": (_clip, "vision_tower.vision_model"),
    "siglip_vision_model": (_siglip, "vision_tower.vision_model"),
    "pixtral": (_pixtral, "vision_tower"),
}
"""Model type of a nested config -> (reader, its place in the checkpoint)."""


def _encoder(
    c: Config, kind: str, features: Sequence[int] | None = None, *, post_norm: bool = True
) -> tuple[tuple[Tower, ...], int, Config]:
    """Read an encoder whose kind the nested config states itself; returns the towers, the width and the config.

    Args:
        c: The whole config.
        kind: The kind if the nested config does not state one.
        features: The layers that the projector reads; behind the last of them vLLM loads nothing.
        post_norm: Whether vLLM loads the final norm.
    """
    stated = c.sub("vision_config")
    if stated is None:
        kind, values = OWN_TOWERS.get(c.text("model_type") or "", (kind, {}))
        v = _own_tower(c, "vision_config", kind, values)
    else:
        kind = stated.text("model_type") or kind
        if kind not in _ENCODERS:
            _refuse(stated, "model_type")
        v = stated.extended({}, TOWER_DEFAULTS[kind])
    read_encoder, place = _ENCODERS[kind]
    parts = _Parts(Group.VISION)
    read = None if features is None else _read_layers(v.dim("num_hidden_layers"), features)
    width = read_encoder(v, parts, read, post_norm=post_norm)
    return parts.towers(place), width, v


def _text_only(c: Config) -> bool:
    """Whether the config is that of the family's language model alone: no tower, and a class that has none."""
    architectures = c.data.get("architectures")
    named = isinstance(architectures, list) and bool(architectures)
    return (
        not c.has("vision_config")
        and named
        and not any(str(name).endswith("ForConditionalGeneration") for name in architectures or ())
    )


# --- an encoder and a projector --------------------------------------------------------------------------------


def _projector(
    c: Config, width: int, text_hidden: int, *, bias: bool, parallel: bool = True, newline: bool = False
) -> tuple[Tower, ...]:
    parts = _Parts(Group.VISION)
    bias = c.flag("multimodal_projector_bias", default=bias)
    parts.mlp("", width, text_hidden, ("linear_1", "linear_2"), out=text_hidden, bias=bias, parallel=parallel)
    towers = parts.towers("multi_modal_projector")
    if newline:
        extra = _Parts(Group.VISION)
        extra.vector("image_newline", text_hidden)
        towers += (replace(towers[0], name="model", weights=tuple(extra.loaded)),)
    return towers


def _llava(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LLaVA (llava/modeling_llava.py; llava.py), in transformers' layout or in its authors'."""
    if c.has("mm_vision_tower") and not c.has("vision_config"):
        return _original_llava(c, text_hidden)
    features = _feature_layers(c, default=-2)
    towers, width, _ = _encoder(c, "clip_vision_model", features, post_norm=False)
    return towers + _projector(c, width * len(features), text_hidden, bias=True)


def _llava_next(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LLaVA-NeXT and its video form (llava_next/modeling_llava_next.py; llava_next.py)."""
    if (c.text("spatial_pool_mode") or "average") not in {"average", "max"}:
        _refuse(c, "spatial_pool_mode")
    features = _feature_layers(c, default=-2)
    towers, width, _ = _encoder(c, "clip_vision_model", features, post_norm=False)
    return towers + _projector(c, width * len(features), text_hidden, bias=True, newline=True)


def _llava_onevision(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LLaVA-OneVision (llava_onevision/modeling_llava_onevision.py; llava_onevision.py)."""
    features = _feature_layers(c, default=-1)
    towers, width, _ = _encoder(c, "siglip_vision_model", features, post_norm=False)
    return towers + _projector(c, width * len(features), text_hidden, bias=True, parallel=False, newline=True)


def _original_llava(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """LLaVA in its authors' layout: a tower known by name, a projector `mlp2x_gelu` or `linear`."""
    v = _named_encoder(c, "mm_vision_tower", c.text("mm_vision_tower") or "", "clip_vision_model")
    parts = _Parts(Group.VISION)
    features = _feature_layers(c, key="mm_vision_select_layer", default=-2)
    width = _clip(v, parts, _read_layers(v.dim("num_hidden_layers"), features), post_norm=False)
    kind = c.text("mm_projector_type") or "linear"
    depth = re.fullmatch(r"mlp(\d)x_gelu", kind)
    if kind != "linear" and depth is None:
        _refuse(c, "mm_projector_type")
    if c.count("mm_hidden_size", minimum=1) != width:
        raise InputError(
            f"{c.name('mm_hidden_size')} is {c.count('mm_hidden_size')}, but the tower that mm_vision_tower names is "
            f"{width} wide; one of the two is wrong, check the config."
        )
    projector = _Parts(Group.VISION)
    projector.linear("0" if depth else "weight", width, text_hidden)
    for i in range(1, int(depth[1]) if depth else 1):
        projector.linear(str(2 * i), text_hidden, text_hidden)
    return parts.towers("model.vision_tower.vision_tower.vision_model") + projector.towers(
        "model.mm_projector"
    )


def _named_encoder(c: Config, key: str, name: str, kind: str) -> Config:
    """Return the sizes of an encoder that the config names under `key`."""
    found = NAMED_ENCODERS.get(name)
    if found is None or found[0] != kind:
        _refuse(c, key, name)
    sizes = found[1] if found else {}
    return Config(sizes, path=f"{c.path}{key}.", nested=True, assumed=c.assumed)


def _mistral3(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Pixtral with a patch merger (mistral3/modeling_mistral3.py; mistral3.py, lightonocr.py)."""
    features = _feature_layers(c, default=-1)
    towers, width, _ = _encoder(c, "pixtral", features)
    parts = _Parts(Group.VISION)
    merged = width * (c.integer("spatial_merge_size", minimum=1) or 2) ** 2
    parts.norm("norm", width, bias=False)
    parts.linear("patch_merger.merging_layer", merged, width, bias=False)
    projector = _projector(c, width * len(features), text_hidden, bias=False)
    return towers + parts.towers("multi_modal_projector") + projector


def _gemma3(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """SigLIP with an averaging projector (gemma3/modeling_gemma3.py; gemma3_mm.py)."""
    if _text_only(c):
        return ()
    towers, width, _ = _encoder(c, "siglip_vision_model")
    parts = _Parts(Group.VISION)
    parts.table("mm_input_projection_weight", width, text_hidden)
    parts.norm("mm_soft_emb_norm", width, bias=False)
    return towers + parts.towers("multi_modal_projector")


def _paligemma(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """SigLIP and one linear layer (paligemma/modeling_paligemma.py; paligemma.py)."""
    towers, width, _ = _encoder(c, "siglip_vision_model")
    parts = _Parts(Group.VISION)
    parts.linear("linear", width, c.integer("projection_dim", minimum=1) or text_hidden)
    return towers + parts.towers("multi_modal_projector")


def _aya_vision(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """SigLIP and a gated projector (aya_vision/modeling_aya_vision.py)."""
    towers, width, _ = _encoder(c, "siglip_vision_model")
    parts = _Parts(Group.VISION)
    folded = width * (c.integer("downsample_factor", minimum=1) or 2) ** 2
    inner = c.integer("alignment_intermediate_size", minimum=1) or text_hidden
    parts.norm("layernorm", folded)
    parts.linear("linear_1", folded, inner)
    parts.linear("linear_2", inner // 2, text_hidden)
    return towers + parts.towers("multi_modal_projector")


def _cohere2_vision(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """SigLIP and a gated projector (cohere2_vision/modeling_cohere2_vision.py; cohere2_vision.py)."""
    towers, width, _ = _encoder(c, "siglip_vision_model")
    parts = _Parts(Group.VISION)
    folded = width * (c.integer("downsample_factor", minimum=1) or 2) ** 2
    inner = c.integer("alignment_intermediate_size", minimum=1) or 36864
    parts.linear("linear_1", folded, inner, split=Split.COLUMN)
    parts.linear("linear_2", inner // 2, text_hidden, split=Split.ROW)
    return towers + parts.towers("multi_modal_projector")


def _idefics3(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Idefics3 and SmolVLM (idefics3/modeling_idefics3.py; idefics3.py)."""
    parts = _Parts(Group.VISION)
    width = _siglip(_vision(c, "idefics3_vision"), parts)
    connector = _Parts(Group.VISION)
    folded = width * (c.integer("scale_factor", minimum=1) or 2) ** 2
    connector.linear("modality_projection.proj", folded, text_hidden, bias=False)
    return parts.towers("model.vision_model") + connector.towers("model.connector")


# --- Qwen ------------------------------------------------------------------------------------------------------


def _patch_3d(v: Config, parts: _Parts, width: int, *, name: str = "patch_embed.proj", bias: bool) -> None:
    frames, _ = _pair(v, "temporal_patch_size")
    parts.conv(name, width, v.count("in_channels", "num_channels"), frames * _patch(v), bias=bias)


def _merged(v: Config, width: int) -> int:
    return width * v.count("spatial_merge_size", minimum=1) ** 2


def _depth(v: Config) -> int:
    return v.dim("depth", "num_hidden_layers")


def _qwen2_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen2-VL (qwen2_vl/modeling_qwen2_vl.py; qwen2_vl.py)."""
    v = _flat_or_nested(c, "qwen2_vl_vision", {"hidden_size": text_hidden})
    width, parts = v.dim("embed_dim"), _Parts(Group.VISION)
    _patch_3d(v, parts, width, bias=False)
    blocks = parts.blocks("blocks.*", _depth(v))
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj")
    blocks.mlp("mlp.", width, int(width * v.number("mlp_ratio", default=4)))
    parts.norm("merger.ln_q", width)
    merged = _merged(v, width)
    parts.mlp("merger.mlp.", merged, merged, ("0", "2"), out=v.dim("hidden_size"))
    return parts.towers("visual")


def _qwen2_5_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen2.5-VL (qwen2_5_vl/modeling_qwen2_5_vl.py; qwen2_5_vl.py)."""
    v = _flat_or_nested(c, "qwen2_5_vl_vision", {"out_hidden_size": text_hidden})
    return _qwen2_5_visual(v).towers("visual")


def _qwen2_5_visual(v: Config) -> _Parts:
    width, parts = v.dim("hidden_size"), _Parts(Group.VISION)
    _patch_3d(v, parts, width, bias=False)
    blocks = parts.blocks("blocks.*", _depth(v))
    blocks.norms(("norm1", "norm2"), width, bias=False)
    blocks.attention("attn.", width, ("qkv",), "proj")
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), SWIGLU)
    parts.norm("merger.ln_q", width, bias=False)
    merged = _merged(v, width)
    parts.mlp("merger.mlp.", merged, merged, ("0", "2"), out=v.dim("out_hidden_size"))
    return parts


def _flat_or_nested(c: Config, kind: str, out: Mapping[str, int]) -> Config:
    """Return `vision_config`, or the same keys spelled flat as ``visual_depth`` (converters write them so).

    `out` is the width that the merger leads to, which flat configs leave to the language model.
    """
    prefix = "visual_"
    flat = {key.removeprefix(prefix): value for key, value in c.data.items() if key.startswith(prefix)}
    if c.has("vision_config") or "depth" not in flat:
        return _vision(c, kind)
    return Config(
        {**out, **flat},
        path=f"{c.path}{prefix}",
        defaults=TOWER_DEFAULTS[kind],
        nested=True,
        assumed=c.assumed,
    )


def _qwen3_visual(
    v: Config, merger_norm: str = "norm", merger: Sequence[str] = ("linear_fc1", "linear_fc2"), deep: str = ""
) -> _Parts:
    """Qwen3-VL's ViT (qwen3_vl/modeling_qwen3_vl.py; qwen3_vl.py); `deep` names its deepstack mergers."""
    width, parts = v.dim("hidden_size"), _Parts(Group.VISION)
    _patch_3d(v, parts, width, bias=True)
    parts.table("pos_embed", v.dim("num_position_embeddings"), width)
    blocks = parts.blocks("blocks.*", _depth(v))
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj")
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), ("linear_fc1", "linear_fc2"))
    merged, out = _merged(v, width), v.dim("out_hidden_size")
    parts.norm(f"merger.{merger_norm}", width)
    parts.mlp("merger.", merged, merged, merger, out=out)
    taps = len(v.integers("deepstack_visual_indexes") or ())
    if deep and taps:
        mergers = parts.blocks(f"{deep}.*", taps)
        mergers.norm(merger_norm, merged)
        mergers.mlp("", merged, merged, merger, out=out)
    return parts


def _qwen3_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen3-VL, dense and sparse."""
    del text_hidden  # the vision config names the width that its merger leads to
    return _qwen3_visual(_vision(c, "qwen3_vl_vision"), deep="deepstack_merger_list").towers("model.visual")


def _qwen3_5(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen3.5, dense and sparse: Qwen3-VL's ViT without deepstack (qwen3_5/modeling_qwen3_5.py; qwen3_5.py)."""
    del text_hidden
    if _text_only(c):
        return ()
    return _qwen3_visual(_vision(c, "qwen3_5_vision")).towers("model.visual")


def _whisper_encoder(a: Config, *, positions: bool, key_bias: bool, parallel: bool, end: str) -> _Parts:
    """Whisper's encoder (whisper/modeling_whisper.py) and those derived from it."""
    width, parts = a.dim("d_model", "hidden_size"), _Parts(Group.AUDIO)
    parts.conv("conv1", width, a.dim("num_mel_bins"), 3)
    parts.conv("conv2", width, width, 3)
    if positions:
        parts.table("embed_positions", a.dim("max_source_positions"), width)
    _whisper_blocks(parts, a, width, key_bias=key_bias, parallel=parallel)
    parts.norm(end, width)
    return parts


def _whisper_blocks(parts: _Parts, a: Config, width: int, *, key_bias: bool, parallel: bool) -> None:
    blocks = parts.blocks("layers.*", a.dim("encoder_layers", "num_hidden_layers"))
    blocks.attention("self_attn.", width, key_bias=key_bias, parallel=parallel)
    blocks.mlp("", width, a.dim("encoder_ffn_dim", "intermediate_size"), parallel=parallel)
    blocks.norms(("self_attn_layer_norm", "final_layer_norm"), width)


def _thinker(c: Config) -> tuple[Config, str]:
    """Return the config of an omni model's thinker, the part that engines serve, and its place in the checkpoint."""
    thinker = c.sub("thinker_config")
    return (c, "") if thinker is None else (thinker, "thinker.")


def _qwen2_5_omni(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen2.5-Omni's thinker (qwen2_5_omni/modeling_qwen2_5_omni.py; qwen2_5_omni_thinker.py)."""
    del text_hidden
    thinker, place = _thinker(c)
    a = _nested(thinker, "audio_config", "qwen2_5_omni_audio_encoder")
    audio = _whisper_encoder(a, positions=False, key_bias=False, parallel=False, end="ln_post")
    width, out = a.dim("d_model", "hidden_size"), a.dim("output_dim")
    audio.table("audio_bos_eos_token", 2, out)
    audio.linear("proj", width, out)
    visual = _qwen2_5_visual(_vision(thinker, "qwen2_5_omni_vision_encoder"))
    return audio.towers(f"{place}audio_tower") + visual.towers(f"{place}visual")


def _qwen3_omni(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen3-Omni's thinker (qwen3_omni_moe/modeling_qwen3_omni_moe.py; qwen3_omni_moe_thinker.py)."""
    del text_hidden
    thinker, place = _thinker(c)
    a = _nested(thinker, "audio_config", "qwen3_omni_moe_audio_encoder")
    width, channels, audio = (
        a.dim("d_model", "hidden_size"),
        a.dim("downsample_hidden_size"),
        _Parts(Group.AUDIO),
    )
    bins = a.dim("num_mel_bins")
    for i in range(3):
        audio.conv(f"conv2d{i + 1}", channels, channels if i else 1, 9)
        bins = (bins + 1) // 2
    audio.linear("conv_out", channels * bins, width, bias=False)
    _whisper_blocks(audio, a, width, key_bias=True, parallel=True)
    audio.norm("ln_post", width)
    audio.linear("proj1", width, width)
    audio.linear("proj2", width, a.dim("output_dim"))
    v = _vision(thinker, "qwen3_omni_moe_vision_encoder")
    visual = _qwen3_visual(v, "ln_q", ("mlp.0", "mlp.2"), "merger_list")
    return audio.towers(f"{place}audio_tower") + visual.towers(f"{place}visual")


# --- models with an encoder of their own -----------------------------------------------------------------------


def _glm4v(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """GLM-4.1V, GLM-4.5V, GLM-4.6V (glm4v/modeling_glm4v.py; glm4_1v.py)."""
    del text_hidden
    v, parts = _vision(c, "glm4v_vision"), _Parts(Group.VISION)
    width, out = v.dim("hidden_size"), v.dim("out_hidden_size")
    parts.table("embeddings.position_embedding", _grid(v), width)
    _patch_3d(v, parts, width, bias=True)
    parts.norms(("post_conv_layernorm", "post_layernorm"), width, bias=False)
    blocks = parts.blocks("blocks.*", _depth(v))
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
    v, parts = _vision(c, "ernie4_5_vl_moe_vision"), _Parts(Group.VISION)
    width = v.dim("embed_dim", "hidden_size")
    ratio = None if v.has("intermediate_size") or not v.has("mlp_ratio") else v.number("mlp_ratio", default=4)
    inner = v.dim("intermediate_size") if ratio is None else int(width * ratio)
    parts.linear("patch_embed.proj", v.count("in_channels") * _patch(v), width, bias=False)
    blocks = parts.blocks("blocks.*", _depth(v))
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj")
    blocks.mlp("mlp.", width, inner)
    parts.norm("ln", width)
    spatial = (
        width * (c.integer("spatial_conv_size", minimum=1) or v.count("spatial_merge_size", minimum=1)) ** 2
    )
    frames = c.integer("temporal_conv_size", minimum=1) or v.count("temporal_merge_size", minimum=1)
    sampler = _Parts(Group.VISION)
    stages = [("spatial_linear", spatial)]
    if c.flag("use_temporal_conv", default=True):
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
    v, parts = _vision(c, "minimax_m3_vl_vision"), _Parts(Group.VISION)
    # vLLM reads the sizes of the patch merge from here, transformers from the vision config itself.
    compression = v.sub("img_token_compression_config", defaults=v.defaults) or v
    width = v.dim("hidden_size")
    frames, _ = _pair(compression, "temporal_patch_size")
    parts.conv("embeddings.proj", width, v.count("num_channels"), frames * _patch(v), bias=False)
    parts.norm("pre_layrnorm", width)
    _clip_blocks(parts.blocks("layers.*", v.dim("num_hidden_layers")), width, v.dim("intermediate_size"))
    projector = _Parts(Group.VISION)
    inner = c.integer("projector_hidden_size", minimum=1) or 6144
    projector.mlp("", width, inner, ("linear_1", "linear_2"), out=text_hidden)
    merged = _merged(compression, text_hidden)
    projector.mlp("", merged, inner, ("merge_linear_1", "merge_linear_2"), out=text_hidden)
    return parts.towers("vision_tower") + projector.towers("multi_modal_projector")


def _step3p7(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Step-3.7's perception encoder (step3p7/modeling_step3p7.py; step_vl.py, step3p7.py)."""
    v, parts = _vision(c, "step3p7_vision"), _Parts(Group.VISION)
    if v.flag("use_cls_token") or v.flag("use_ln_post"):
        _refuse(c, "vision_config", "a perception encoder with a class token or a final norm")
    width = v.dim("width", "hidden_size")
    parts.conv("conv1", width, v.count("num_channels"), _patch(v), bias=False)
    parts.table("positional_embedding", _grid(v), width)
    parts.norm("ln_pre", width)
    blocks = parts.blocks("transformer.resblocks.*", v.dim("layers", "num_hidden_layers"))
    blocks.attention("attn.", width, ("in_proj",))
    blocks.mlp("mlp.", width, int(width * v.number("mlp_ratio", default=4)), ("c_fc", "c_proj"))
    blocks.norms(("ln_1", "ln_2"), width)
    for scale in ("ls_1.gamma", "ls_2.gamma"):
        blocks.vector(scale, width)
    parts.conv("vit_downsampler1", width * 2, width, 9)
    parts.conv("vit_downsampler2", width * 4, width * 2, 9)
    projector = _Parts(Group.VISION)
    projector.linear(
        "vit_large_projector", width * 4, text_hidden, bias=c.flag("projector_bias"), split=Split.COLUMN
    )
    return parts.towers("vision_model") + projector.towers("model")


def _step3_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Step3 (step3_vl.py)."""
    v, parts = _vision(c, "step3_vision_encoder"), _Parts(Group.VISION)
    width, out = v.dim("hidden_size"), v.dim("output_hidden_size")
    parts.vector("embeddings.class_embedding", width)
    parts.conv("embeddings.patch_embedding", width, v.count("num_channels"), _patch(v))
    parts.table("embeddings.position_embedding", _grid(v) + 1, width)
    _clip_blocks(
        parts.blocks("transformer.layers.*", v.dim("num_hidden_layers")), width, v.dim("intermediate_size")
    )
    projector = _Parts(Group.VISION)
    projector.conv("vit_downsampler", out, width, 4)
    projector.conv("vit_downsampler2", out * 2, out, 9)
    projector.linear("vit_large_projector", out * 2, text_hidden, bias=c.flag("projector_bias", default=True))
    return parts.towers("vision_model") + projector.towers("model")


def _llama4(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Llama 4 (llama4/modeling_llama4.py; mllama4.py)."""
    if _text_only(c):
        return ()
    v, parts = _vision(c, "llama4_vision_model"), _Parts(Group.VISION)
    width, inner = v.dim("hidden_size"), v.dim("intermediate_size")
    parts.vector("class_embedding", width)
    parts.table("positional_embedding_vlm", _grid(v) + 1, width)
    parts.linear(
        "patch_embedding.linear", v.count("num_channels") * _patch(v), width, bias=False, split=Split.COLUMN
    )
    parts.norms(("layernorm_pre", "layernorm_post"), width)
    blocks = parts.blocks("model.layers.*", v.dim("num_hidden_layers"))
    blocks.attention("self_attn.", width, out="o_proj")
    blocks.mlp("mlp.", width, inner)
    blocks.norms(("input_layernorm", "post_attention_layernorm"), width)
    parts.linear(
        "vision_adapter.mlp.fc1", inner, v.dim("projector_input_dim"), bias=False, split=Split.COLUMN
    )
    out = v.dim("projector_output_dim")
    parts.linear("vision_adapter.mlp.fc2", out, out, bias=False, split=Split.ROW)
    projector = _Parts(Group.VISION)
    projector.linear("linear_1", v.dim("vision_output_dim"), text_hidden, bias=False, split=Split.COLUMN)
    return parts.towers("vision_model") + projector.towers("multi_modal_projector")


def _mllama(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Llama 3.2 Vision (mllama/modeling_mllama.py; this vLLM does not serve it)."""
    v, parts = _vision(c, "mllama_vision_model"), _Parts(Group.VISION)
    width, inner, tiles = v.dim("hidden_size"), v.dim("intermediate_size"), v.dim("max_num_tiles")
    ratios, patches = len(v.raw("supported_aspect_ratios")) + 1, _grid(v) + 1
    parts.vector("class_embedding", width)
    parts.conv("patch_embedding", width, v.count("num_channels"), _patch(v), bias=False)
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
    projector = _Parts(Group.VISION)
    projector.linear("multi_modal_projector", v.dim("vision_output_dim"), text_hidden)
    return parts.towers("vision_model") + projector.towers("model")


def _internvl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """InternVL in transformers' layout (internvl/modeling_internvl.py; interns1.py)."""
    v, parts = _vision(c, "internvl_vision"), _Parts(Group.VISION)
    width, rms = v.dim("hidden_size"), v.text("norm_type") == "rms_norm"
    parts.vector("embeddings.cls_token", width)
    if v.flag("use_mask_token"):
        parts.vector("embeddings.mask_token", width)
    if v.flag("use_absolute_position_embeddings", default=True):
        parts.table("embeddings.position_embeddings", _grid(v) + 1, width)
    parts.conv("embeddings.patch_embeddings.projection", width, v.count("num_channels"), _patch(v))
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
    projector = _Parts(Group.VISION)
    folded = _shuffled(c, width)
    projector.norm("layer_norm", folded)
    projector.mlp("", folded, text_hidden, ("linear_1", "linear_2"), out=text_hidden, parallel=False)
    return parts.towers("vision_tower") + projector.towers("multi_modal_projector")


def _shuffled(c: Config, width: int) -> int:
    """Return the width after the pixel shuffle, which folds a square of patches into one."""
    return width * int(1 / c.number("downsample_ratio", default=0.5)) ** 2


def _internvl_chat(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """InternVL in its authors' layout (intern_vit.py, internvl.py)."""
    v = _described(c, "vision_config")
    width, layers = v.dim("hidden_size"), v.dim("num_hidden_layers")
    kind = v.text("model_type")
    if kind not in {"intern_vit_6b", None}:
        _refuse(c, "vision_config", kind)
    parts = _Parts(Group.VISION)
    parts.vector("embeddings.class_embedding", width)
    parts.conv("embeddings.patch_embedding", width, v.integer("num_channels") or 3, _patch(v))
    parts.table("embeddings.position_embedding", _grid(v) + 1, width)
    select = _feature_layers(c, key="select_layer", default=-1)[0]
    blocks = parts.blocks("encoder.layers.*", layers, layers + select + 1 if select < 0 else select + 1)
    for scale in ("ls1", "ls2"):
        blocks.vector(scale, width)
    if not v.has("qkv_bias"):
        _refuse(v, "qkv_bias", "an InternViT that does not say whether its projections have a bias")
    blocks.attention("attn.", width, ("qkv",), "proj", bias=v.flag("qkv_bias"), out_bias=True)
    if v.flag("qk_normalization"):
        blocks.norms(("attn.q_norm", "attn.k_norm"), width, bias=False)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"))
    blocks.norms(("norm1", "norm2"), width, bias=v.text("norm_type") != "rms_norm")
    projector = _Parts(Group.VISION)
    folded = _shuffled(c, width)
    projector.norm("0", folded)
    projector.mlp("", folded, text_hidden, ("1", "3"), out=text_hidden, parallel=False)
    return parts.towers("vision_model") + projector.towers("mlp1")


def _moonvit(c: Config, text_hidden: int, kind: str, projector_name: str) -> tuple[Tower, ...]:
    """MoonViT with its patch merger (kimi_vl.py, kimi_k25_vit.py; kimi_k25/modeling_kimi_k25.py)."""
    v, parts = _vision(c, kind), _Parts(Group.VISION)
    width, inner = v.dim("vt_hidden_size", "hidden_size"), v.dim("vt_intermediate_size", "intermediate_size")
    layers = v.dim("vt_num_hidden_layers", "num_hidden_layers")
    rms = v.text("norm_type") == "rmsnorm"
    height, side = (v.dim(f"init_pos_emb_{key}", f"pos_emb_{key}") for key in ("height", "width"))
    parts.conv("patch_embed.proj", width, 3, _patch(v), bias=v.flag("patch_embed_proj_bias"))
    parts.table("patch_embed.pos_emb", height * side, width)
    blocks = parts.blocks("encoder.blocks.*", layers)
    blocks.norms(("norm0", "norm1"), width, bias=not rms)
    inside = v.integer("qkv_hidden_size", minimum=1)
    blocks.attention("", width, ("wqkv",), "wo", bias=v.flag("attn_bias"), inner=inside)
    blocks.mlp("mlp.", width, inner, ("fc0", "fc1"), bias=v.flag("linear_bias"))
    parts.norm("encoder.final_layernorm", width, bias=not rms)
    merge = _pair(v, "merge_kernel_size")
    merged, projector = width * merge[0] * merge[1], _Parts(Group.VISION)
    form = v.text("mm_projector_type")
    if form not in {"patchmerger", "patchmergerv2"}:
        _refuse(v, "mm_projector_type", form)
    after = form == "patchmergerv2"
    if after:
        projector.norm("post_norm", text_hidden, bias=False)
    else:
        projector.norm("pre_norm", width)
    names = ("linear_1", "linear_2") if kind == "moonvit" else ("proj.0", "proj.2")
    projector.mlp("", merged, merged, names, out=text_hidden, bias=not after, parallel=False)
    return parts.towers("vision_tower") + projector.towers(projector_name)


def _kimi_vl(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Kimi-VL."""
    return _moonvit(c, text_hidden, "moonvit", "multi_modal_projector")


def _kimi_k25(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Kimi-K2.5."""
    return _moonvit(c, text_hidden, "kimi_k25_vision", "mm_projector")


def _kimi_k3(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Kimi-K3 (vllm/models/kimi_k3/nvidia/model.py)."""
    return _moonvit(c, text_hidden, "kimi_k3_vision", "mm_projector")


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


def _gemma4_vision(v: Config, width: int) -> _Parts:
    parts, head, clip = _Parts(Group.VISION), v.dim("head_dim"), v.flag("use_clipped_linears")
    queries, keys = v.dim("num_attention_heads") * head, v.dim("num_key_value_heads") * head
    inner = v.dim("intermediate_size")
    parts.linear("patch_embedder.input_proj", 3 * _patch(v), width, bias=False)
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
        blocks.dense(name, wide_in, wide_out, clip=clip)
    blocks.norms(("self_attn.q_norm", "self_attn.k_norm"), head, bias=False)
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        blocks.norm(f"{name}_layernorm", width, bias=False)
    if v.flag("standardize"):
        parts.buffer("std_bias", width)
        parts.buffer("std_scale", width)
    return parts


def _gemma4_audio(a: Config, out: int) -> _Parts:
    parts, width, clip = (
        _Parts(Group.AUDIO),
        a.dim("hidden_size"),
        a.flag("use_clipped_linears", default=True),
    )
    first, second = _two(a, "subsampling_conv_channels")
    at = "subsample_conv_projection"
    for i, (wide_out, wide_in) in enumerate(((first, 1), (second, first))):
        parts.conv(f"{at}.layer{i}.conv", wide_out, wide_in, 9, bias=False)
        parts.norm(f"{at}.layer{i}.norm", wide_out, bias=False)
    parts.linear(f"{at}.input_proj_linear", first // 4 * second, width, bias=False)
    blocks = parts.blocks("layers.*", a.dim("num_hidden_layers"))
    kernel, heads = a.dim("conv_kernel_size"), a.dim("num_attention_heads")
    _conformer(blocks, width, ("feed_forward1", "feed_forward2"), kernel, clip=clip)
    _gemma_attention(blocks, "self_attn.", width, heads, "relative_k_proj", clip=clip)
    blocks.dense("self_attn.post", width, width, clip=clip)
    blocks.norms(("norm_pre_attn", "norm_post_attn", "norm_out"), width, bias=False)
    parts.linear("output_proj", width, out)
    return parts


def _two(c: Config, key: str) -> tuple[int, int]:
    values = c.integers(key, minimum=1) or ()
    if len(values) != 2:  # noqa: PLR2004 - two convolutions
        raise InputError(
            f"{c.name(key)} must list two channel counts, found {len(values)}; check the config."
        )
    return values[0], values[1]


def _conformer(blocks: _Parts, width: int, forward: Sequence[str], kernel: int, *, clip: bool | None) -> None:
    """Two feed-forwards and a light convolution of a conformer block, as gemma3n and gemma4 have them."""
    for name in forward:
        blocks.dense(f"{name}.ffw_layer_1", width, width * 4, clip=clip)
        blocks.dense(f"{name}.ffw_layer_2", width * 4, width, clip=clip)
        blocks.norms((f"{name}.pre_layer_norm", f"{name}.post_layer_norm"), width, bias=False)
    blocks.dense("lconv1d.linear_start", width, width * 2, clip=clip)
    blocks.dense("lconv1d.linear_end", width, width, clip=clip)
    blocks.conv("lconv1d.depthwise_conv1d", width, 1, kernel, bias=False)
    blocks.norms(("lconv1d.pre_layer_norm", "lconv1d.conv_norm"), width, bias=False)


def _gemma_attention(
    blocks: _Parts, at: str, width: int, heads: int, relative: str, *, clip: bool | None
) -> None:
    inner = width // heads * heads
    for name in QKV:
        blocks.dense(at + name, width, inner, clip=clip)
    blocks.linear(at + relative, width, inner, bias=False)
    blocks.vector(f"{at}per_dim_scale", width // heads)


def _gemma_embedder(name: str, group: Group, width: int, text_hidden: int) -> tuple[Tower, ...]:
    parts = _Parts(group)
    parts.linear("embedding_projection", width, text_hidden, bias=False)
    return parts.towers(name)


def _gemma3n(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Gemma 3n: an encoder of timm's, counted as a whole, and a conformer (gemma3n/modeling_gemma3n.py)."""
    v = _vision(c, "gemma3n_vision")
    architecture = v.text("architecture") or ""
    if architecture not in OPAQUE_ENCODERS:
        _refuse(v, "architecture")
    vision = _Parts(Group.VISION)
    vision.vector("timm_model", OPAQUE_ENCODERS[architecture])
    a, audio = _nested(c, "audio_config", "gemma3n_audio"), _Parts(Group.AUDIO)
    width = a.dim("hidden_size")
    at = "subsample_conv_projection"
    channels, bins = (1, *_two(a, "sscp_conv_channel_size")), a.dim("input_feat_size")
    kernels, strides = a.raw("sscp_conv_kernel_size"), a.raw("sscp_conv_stride_size")
    for i in range(2):
        high, wide = (a.checked(side, "sscp_conv_kernel_size", minimum=1) for side in kernels[i])
        stride = a.checked(strides[i][1], "sscp_conv_stride_size", minimum=1)
        audio.conv(f"{at}.conv_{i}.conv", channels[i + 1], channels[i], high * wide, bias=False)
        audio.norm(f"{at}.conv_{i}.norm", channels[i + 1], bias=False)
        bins = (bins + 2 - wide) // stride + 1  # one bin of padding on either side
    audio.linear(f"{at}.input_proj_linear", channels[2] * bins, width, bias=False)
    blocks = audio.blocks("conformer.*", a.dim("conf_num_hidden_layers"))
    kernel, heads = a.dim("conf_conv_kernel_size"), a.dim("conf_num_attention_heads")
    _conformer(blocks, width, ("ffw_layer_start", "ffw_layer_end"), kernel, clip=None)
    _gemma_attention(
        blocks, "attention.attn.", width, heads, "relative_position_embedding.pos_proj", clip=None
    )
    blocks.linear("attention.post", width, width, bias=False)
    blocks.norms(("attention.pre_attn_norm", "attention.post_norm", "norm"), width, bias=False)
    towers = vision.towers("vision_tower") + audio.towers("audio_tower")
    for name, part, group in (("embed_vision", v, Group.VISION), ("embed_audio", a, Group.AUDIO)):
        embed, inner = _Parts(group), part.dim("hidden_size")
        embed.add(build.vocabulary("embedding", group, part.dim("vocab_size"), inner))
        embed.norms(("hard_embedding_norm", "soft_embedding_norm"), inner, bias=False)
        embed.linear("embedding_projection", inner, text_hidden, bias=False, split=Split.ROW)
        towers += embed.towers(name)
    return towers


def _fuyu(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Fuyu projects patches straight into the language model (fuyu/modeling_fuyu.py)."""
    v, parts = c.extended({}, {"patch_size": 30, "num_channels": 3}), _Parts(Group.VISION)
    pixels = v.count("num_channels", minimum=1) * v.count("patch_size", minimum=1) ** 2
    parts.linear("vision_embed_tokens", pixels, text_hidden)
    return parts.towers("model")


def _phi3_v(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Phi-3-vision: CLIP known by name, learned separators and a two-layer projector (phi3v.py)."""
    processor = _described(c, "img_processor")
    layer = _described(c, "embd_layer")
    v = _named_encoder(processor, "model_name", processor.text("model_name") or "", "clip_vision_model")
    parts = _Parts(Group.VISION)
    features = _feature_layers(processor, key="layer_idx", default=-2)
    clip = parts.blocks("img_processor.vision_model", 1)
    width = _clip(v, clip, _read_layers(v.dim("num_hidden_layers"), features), post_norm=False)
    if not (layer.flag("use_hd_transform") and layer.flag("with_learnable_separator")):
        _refuse(layer, "use_hd_transform", "an image embedding without learned separators")
    if layer.text("projection_cls") not in {"mlp", None}:
        _refuse(layer, "projection_cls")
    folded = processor.dim("image_dim_out", minimum=1) * 4
    if folded != width * 4:
        raise InputError(
            f"{processor.name('image_dim_out')} is {folded // 4}, but the encoder is {width} wide; check the config."
        )
    for name in ("glb_GN", "sub_GN"):
        parts.vector(name, folded)
    parts.mlp("img_projection.", folded, text_hidden, ("0", "2"), out=text_hidden, parallel=False)
    return parts.towers("model.vision_embed_tokens")


def _timm_vit(v: Config, parts: _Parts, *, drop: int = 0, pooled: bool = True) -> int:
    """A ViT of timm's without a class token (timm 1.0, vision_transformer.py); returns its width."""
    width, inner = v.dim("width"), v.dim("mlp_dim")
    parts.table("pos_embed", _grid(v), width)
    parts.conv("patch_embed.proj", width, v.count("in_channels"), _patch(v))
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


def _minicpmv(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """MiniCPM-V: a SigLIP and a resampler (minicpmv.py, vllm/model_executor/layers/resampler.py)."""
    if c.has("audio_config") and c.flag("init_audio", default=True):
        _refuse(c, "audio_config")
    parts, drop = _Parts(Group.VISION), int(c.flag("drop_vision_last_layer"))
    queries = c.dim("query_num")
    sampler = _Parts(Group.VISION)
    if c.has("vision_config"):
        v = _vision(c, "idefics2_vision")
        v = v.extended({"num_hidden_layers": v.dim("num_hidden_layers") - drop}, v.defaults)
        width = _siglip(v, parts)
    else:
        v = _named_encoder(c, "vision_encoder", c.text("vision_encoder") or "", "timm_vit")
        width = _timm_vit(v, parts, drop=drop, pooled=False)
        sampler.table("pos_embed", queries, text_hidden)
    sampler.table("query", queries, text_hidden)
    if width != text_hidden:
        sampler.linear("kv_proj", width, text_hidden, bias=False)
    sampler.attention("attn.", text_hidden, ("in_proj",), parallel=False)
    sampler.norms(("ln_q", "ln_kv", "ln_post"), text_hidden)
    sampler.table("proj", text_hidden, text_hidden)
    return parts.towers("vpm") + sampler.towers("resampler")


def _fixed(c: Config, name: str) -> Config:
    """Return the sizes of an encoder that are constants of its class."""
    return Config(FIXED_ENCODERS[name], path=f"{c.path}{name}.", nested=True, assumed=c.assumed)


def _molmo(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Molmo, whose encoder is fixed in its class (molmo.py)."""
    v, parts = _fixed(c, "molmo"), _Parts(Group.VISION)
    width, features = v.dim("width"), v.dim("feature_layers")
    vit = parts.blocks("image_vit", 1)
    vit.vector("class_embedding", width)
    vit.table("positional_embedding", v.dim("positions"), width)
    vit.linear("patch_embedding", v.count("num_channels") * _patch(v), width, bias=False)
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


def _deepseek_projector(c: Config, parts: _Parts) -> tuple[Tower, ...]:
    """The projector and learned separators of DeepSeek-VL2 and its OCR models (deepseek_vl2.py, MlpProjector)."""
    p = _nested(c, "projector_config", "mlp_projector")
    kind, out, wide = p.text("projector_type"), p.dim("n_embed"), p.dim("input_dim")
    if (c.text("tile_tag") or "2D") != "2D":
        _refuse(c, "tile_tag")
    if kind == "linear":
        parts.linear("projector.layers", wide, out)
    elif kind == "downsample_mlp_gelu":
        inner, depth = out * p.dim("mlp_ratio"), p.dim("depth", minimum=2)
        parts.linear("projector.layers.0", wide * p.dim("downsample_ratio") ** 2, inner)
        for i in range(1, depth - 1):
            parts.linear(f"projector.layers.{2 * i}", inner, inner)
        parts.linear(f"projector.layers.{2 * depth - 2}", inner, out)
    else:
        _refuse(p, "projector_type")
    parts.vector("view_seperator", out)
    return ()


def _deepseek_vl2(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """DeepSeek-VL2 (deepseek_vl2.py)."""
    del text_hidden
    stated = _described(c, "vision_config")
    v = _named_encoder(stated, "model_name", stated.text("model_name") or "", "timm_vit")
    parts, projector = _Parts(Group.VISION), _Parts(Group.VISION)
    _timm_vit(v, parts)
    _deepseek_projector(c, projector)
    projector.vector("image_newline", _nested(c, "projector_config", "mlp_projector").dim("n_embed"))
    return parts.towers("vision") + projector.towers("model")


def _sam(c: Config, out: int) -> tuple[Tower, ...]:
    """SAM's ViT with two convolutions behind its neck (deepencoder.py, ImageEncoderViT)."""
    v, parts = _fixed(c, "sam_vit_b"), _Parts(Group.VISION)
    width, grid, window = (
        v.dim("width"),
        _pair(v, "image_size")[0] // _pair(v, "patch_size")[0],
        v.dim("window_size"),
    )
    head, layers, whole = width // v.dim("heads"), v.dim("layers"), v.dim("global_layers")
    parts.table("pos_embed", grid * grid, width)
    parts.conv("patch_embed.proj", width, v.count("num_channels"), _patch(v))
    blocks = parts.blocks("blocks.*", layers)
    blocks.norms(("norm1", "norm2"), width)
    blocks.attention("attn.", width, ("qkv",), "proj", parallel=False)
    blocks.mlp("mlp.", width, v.dim("mlp_dim"), ("lin1", "lin2"), parallel=False)
    for count, span in ((whole, grid), (layers - whole, window)):
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


def _deepseek_ocr(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """DeepSeek-OCR: SAM, then CLIP (deepseek_ocr.py, deepencoder.py)."""
    del text_hidden
    v, parts, projector = _fixed(c, "deepencoder_clip"), _Parts(Group.VISION), _Parts(Group.VISION)
    width = v.dim("hidden_size")
    parts.vector("embeddings.class_embedding", width)
    parts.conv("embeddings.patch_embedding", width, v.count("num_channels"), _patch(v), bias=False)
    parts.table("embeddings.position_embedding", _grid(v) + 1, width)
    parts.norm("pre_layrnorm", width)
    _clip_blocks(
        parts.blocks("transformer.layers.*", v.dim("num_hidden_layers")), width, v.dim("intermediate_size")
    )
    _deepseek_projector(c, projector)
    projector.vector("image_newline", _nested(c, "projector_config", "mlp_projector").dim("n_embed"))
    return _sam(c, width) + parts.towers("model.vision_model") + projector.towers("model")


def _deepseek_ocr2(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """DeepSeek-OCR-2: SAM, then a small Qwen2 read as an encoder (deepseek_ocr2.py, deepencoder2.py)."""
    del text_hidden
    v, parts, projector = _fixed(c, "deepencoder_qwen2"), _Parts(Group.VISION), _Parts(Group.VISION)
    width, heads = v.dim("hidden_size"), v.dim("num_attention_heads")
    keys = width // heads * v.dim("num_key_value_heads")
    blocks = parts.blocks("model.model.layers.*", v.dim("num_hidden_layers"))
    for name, wide in (("q_proj", width), ("k_proj", keys), ("v_proj", keys)):
        blocks.linear(f"self_attn.{name}", width, wide)
    blocks.linear("self_attn.o_proj", width, width, bias=False)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), SWIGLU, bias=False, parallel=False)
    blocks.norms(("input_layernorm", "post_attention_layernorm"), width, bias=False)
    parts.norm("model.model.norm", width, bias=False)
    for rows, name in zip(v.integers("queries") or (), ("query_768", "query_1024"), strict=True):
        parts.table(name, rows, width)
    _deepseek_projector(c, projector)
    return _sam(c, width) + parts.towers("model.qwen2_model") + projector.towers("model")


def _dots_ocr(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """dots.ocr (dots_ocr.py)."""
    del text_hidden
    v, parts = _vision(c, "dots_vit"), _Parts(Group.VISION)
    width, bias = v.dim("embed_dim"), v.flag("use_bias")
    parts.conv("patch_embed.patchifier.proj", width, v.count("num_channels"), _patch(v))
    parts.norm("patch_embed.patchifier.norm", width, bias=False)
    blocks = parts.blocks("blocks.*", v.dim("num_hidden_layers"))
    blocks.attention("attn.", width, ("qkv",), "proj", bias=bias)
    blocks.norms(("norm1", "norm2"), width, bias=False)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), ("fc1", "fc3", "fc2"), bias=bias)
    if v.flag("post_norm"):
        parts.norm("post_trunk_norm", width, bias=False)
    merged = _merged(v, width)
    parts.norm("merger.ln_q", width)
    parts.mlp("merger.mlp.", merged, merged, ("0", "2"), out=v.dim("hidden_size"))
    return parts.towers("vision_tower")


def _radio(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Nemotron Nano VL: C-RADIO and a projector (nano_nemotron_vl.py, radio.py).

    vLLM also keeps two scales of ones a layer, which the checkpoint does not hold and which are counted.
    """
    if c.has("sound_config"):
        _refuse(c, "sound_config")
    v = _described(c, "vision_config")
    args = _described(v, "args")
    sizes = _named_encoder(args, "model", args.text("model") or "", "radio")
    parts, width = _Parts(Group.VISION), sizes.dim("width")
    patch = v.integer("patch_size", minimum=1) or 16
    side = round((args.integer("cpe_max_size", minimum=1) or 2048) / patch)
    teachers = args.raw("teachers") or ()
    names = {str(teacher.get("name")) for teacher in teachers if isinstance(teacher, Mapping)}
    tokens = len(names) if args.flag("cls_token_per_teacher") else 1
    multiple = args.integer("register_multiple", minimum=1)
    registers = multiple - tokens % multiple if multiple else 0
    parts.table("patch_generator.pos_embed", side * side, width)
    parts.linear("patch_generator.embedder", 3 * patch * patch, width, bias=False)
    frames = v.integer("video_temporal_patch_size", minimum=1) or 1
    if frames > 1:
        parts.linear("patch_generator.video_embedder", 3 * frames * patch * patch, width, bias=False)
    parts.table("patch_generator.cls_token.token", tokens + registers, width)
    blocks = parts.blocks("blocks.*", sizes.dim("layers"))
    for scale in ("ls1", "ls2"):
        blocks.vector(scale, width)
    blocks.attention("attn.", width, ("qkv",), "proj")
    blocks.mlp("mlp.", width, sizes.dim("mlp_dim"))
    blocks.norms(("norm1", "norm2"), width)
    projector, hidden = _Parts(Group.VISION), c.dim("vit_hidden_size")
    if hidden != width:
        raise InputError(
            f"{c.name('vit_hidden_size')} is {hidden}, but the encoder is {width} wide; check the config."
        )
    folded = hidden * round(1 / c.number("downsample_ratio", default=0.5)) ** 2
    inner = c.dim("projector_hidden_size")
    projector.norm("0", folded, bias=False)
    projector.mlp("", folded, inner, ("1", "3"), out=text_hidden, bias=False, parallel=False)
    return parts.towers("vision_model.radio_model.model") + projector.towers("mlp1")


def _ovis(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Ovis: a visual vocabulary over AIMv2 or SigLIP (ovis.py, aimv2.py)."""
    tokenizer = _described(c, "visual_tokenizer_config")
    stated = _described(tokenizer, "backbone_config")
    kind, parts = stated.text("model_type"), _Parts(Group.VISION)
    place = "visual_tokenizer.backbone"
    if kind == "siglip_vision_model":
        width = _siglip(stated.extended({}, TOWER_DEFAULTS[kind]), parts)
        place += ".vision_model"
    elif kind == "aimv2":
        width = _aimv2(stated.extended({}, TOWER_DEFAULTS[kind]), parts)
    else:
        _refuse(stated, "model_type")
    vocabulary = tokenizer.integer("vocab_size", minimum=1) or 16384
    head = vocabulary - 5  # the indicator tokens of an image have no logits (ovis.py, IMAGE_INDICATOR_IDS)
    folded = width * (tokenizer.integer("hidden_stride", minimum=1) or 1) ** 2
    tail = _Parts(Group.VISION)
    tail.linear("visual_tokenizer.head.0", folded, head, bias=False)
    tail.norm("visual_tokenizer.head.1", head)
    tail.table("vte", vocabulary, c.integer("hidden_size", minimum=1) or text_hidden)
    return parts.towers(place) + tail.towers("model")


def _aimv2(v: Config, parts: _Parts) -> int:
    """AIMv2 without the norm at its end (aimv2.py); returns its width."""
    width, bias = v.dim("hidden_size"), v.flag("mlp_bias")
    parts.table("preprocessor.pos_embed", _grid(v), width)
    parts.conv("preprocessor.patchifier.proj", width, v.count("num_channels"), _patch(v))
    parts.norm("preprocessor.patchifier.norm", width, bias=False)
    blocks = parts.blocks("trunk.blocks.*", v.dim("num_hidden_layers"))
    blocks.attention("attn.", width, ("qkv",), "proj", bias=v.flag("qkv_bias"), out_bias=bias)
    blocks.mlp("mlp.", width, v.dim("intermediate_size"), ("fc1", "fc3", "fc2"), bias=bias)
    blocks.norms(("norm_1", "norm_2"), width, bias=False)
    parts.unread().norm("trunk.post_trunk_norm", width, bias=False)
    return width


# --- audio alone -----------------------------------------------------------------------------------------------


def _qwen2_audio(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Qwen2-Audio (qwen2_audio/modeling_qwen2_audio.py; qwen2_audio.py)."""
    a = _nested(c, "audio_config", "qwen2_audio_encoder")
    parts = _whisper_encoder(a, positions=True, key_bias=False, parallel=False, end="layer_norm")
    projector = _Parts(Group.AUDIO)
    projector.linear("linear", a.dim("d_model", "hidden_size"), text_hidden)
    return parts.towers("audio_tower") + projector.towers("multi_modal_projector")


def _voxtral(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Voxtral (voxtral/modeling_voxtral.py; voxtral.py)."""
    a = _nested(c, "audio_config", "voxtral_encoder")
    parts = _whisper_encoder(a, positions=True, key_bias=False, parallel=True, end="layer_norm")
    projector = _Parts(Group.AUDIO)
    stacked = a.dim("encoder_ffn_dim", "intermediate_size")
    projector.mlp(
        "", stacked, text_hidden, ("linear_1", "linear_2"), out=text_hidden, bias=False, parallel=False
    )
    return parts.towers("audio_tower") + projector.towers("multi_modal_projector")


def _ultravox(c: Config, text_hidden: int) -> tuple[Tower, ...]:
    """Ultravox: a Whisper encoder and a projector over stacked frames (ultravox.py)."""
    if c.has("audio_model_id") and not c.has("audio_config"):
        _refuse(c, "audio_model_id")
    if c.integer("num_projector_layers"):
        _refuse(c, "num_projector_layers")
    a = _nested(c, "audio_config", "whisper")
    parts = _whisper_encoder(a, positions=True, key_bias=False, parallel=True, end="layer_norm")
    stacked = a.dim("d_model", "hidden_size") * (c.integer("stack_factor", minimum=1) or 8)
    inner = c.integer("hidden_size", minimum=1) or 4096
    middle = inner // 2 if (c.text("projector_act") or "swiglu") == "swiglu" else inner
    projector = _Parts(Group.AUDIO)
    projector.norm("ln_pre", stacked, bias=False)
    projector.linear("linear_1", stacked, inner, bias=False)
    projector.linear("linear_2", middle, text_hidden, bias=False)
    before = c.flag("projector_ln_mid")
    projector.norm("ln_mid" if before else "ln_post", middle if before else text_hidden, bias=False)
    return parts.towers("audio_tower") + projector.towers("multi_modal_projector")


_READERS: Mapping[str, Callable[[Config, int], tuple[Tower, ...]]] = {
    "ayavision": _aya_vision,
    "cohere2vision": _cohere2_vision,
    "deepseekocr2forcausallm": _deepseek_ocr2,
    "deepseekocrforcausallm": _deepseek_ocr,
    "deepseekvlv2": _deepseek_vl2,
    "dotsocr": _dots_ocr,
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
    "internvlchat": _internvl_chat,
    "kimik25": _kimi_k25,
    "kimik3": _kimi_k3,
    "kimivl": _kimi_vl,
    "lightonocr": _mistral3,
    "llama4": _llama4,
    "llava": _llava,
    "llavanext": _llava_next,
    "llavanextvideo": _llava_next,
    "llavaonevision": _llava_onevision,
    "minicpmv": _minicpmv,
    "minimaxm3sparse": _minimax_m3_vl,
    "minimaxm3vl": _minimax_m3_vl,
    "mistral3": _mistral3,
    "mllama": _mllama,
    "molmo": _molmo,
    "nemotronhnanovlv2": _radio,
    "ovis": _ovis,
    "paligemma": _paligemma,
    "phi3v": _phi3_v,
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
    "step3vl": _step3_vl,
    "ultravox": _ultravox,
    "voxtral": _voxtral,
}
"""Class or model type, lower-cased and without underscores -> its reader."""
