"""Defaults of nested vision and audio configs, by the model type of the nested config.

transformers writes a nested config without the values that equal its class's own, so an absent key means the row's
value. Source of every row unless it says otherwise: transformers 5.24, ``models/*/configuration_*.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLIP = {
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 12,
    "num_channels": 3,
    "image_size": 224,
    "patch_size": 32,
}
_SIGLIP = {**_CLIP, "patch_size": 16, "vision_use_head": True}
_IDEFICS = {**_CLIP, "hidden_size": 1152}
_QWEN2_VL = {
    "depth": 32,
    "embed_dim": 1280,
    "hidden_size": 3584,
    "mlp_ratio": 4,
    "in_channels": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
_QWEN2_5_VL = {
    "depth": 32,
    "hidden_size": 3584,
    "intermediate_size": 3420,
    "in_channels": 3,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 3584,
}
_QWEN3_5 = {
    "depth": 27,
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "in_channels": 3,
    "patch_size": 16,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 3584,
    "num_position_embeddings": 2304,
}
_QWEN3_VL = {**_QWEN3_5, "deepstack_visual_indexes": (8, 16, 24)}
_GLM4V = {
    "depth": 24,
    "hidden_size": 1536,
    "attention_bias": False,
    "in_channels": 3,
    "image_size": 336,
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
    "out_hidden_size": 4096,
    "intermediate_size": 13696,
}
_WHISPER_ENCODER = {
    "num_mel_bins": 128,
    "encoder_layers": 32,
    "encoder_ffn_dim": 5120,
    "d_model": 1280,
    "max_source_positions": 1500,
}

TOWER_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "clip_vision_model": _CLIP,
    "siglip_vision_model": _SIGLIP,
    "siglip2_vision_model": {**_SIGLIP, "num_patches": 256},
    "pixtral": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_channels": 3,
        "patch_size": 16,
    },
    "idefics2_vision": _CLIP,
    "idefics3_vision": _IDEFICS,
    "smolvlm_vision": _IDEFICS,
    "qwen2_vl_vision": _QWEN2_VL,
    "qwen2_5_vl_vision": _QWEN2_5_VL,
    "qwen2_5_omni_vision_encoder": _QWEN2_5_VL,
    "qwen3_vl_vision": _QWEN3_VL,
    "qwen3_omni_moe_vision_encoder": _QWEN3_VL,
    "qwen3_5_vision": _QWEN3_5,
    "glm4v_vision": _GLM4V,
    "ernie4_5_vl_moe_vision": {
        "depth": 32,
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_merge_size": 2,
    },
    "minimax_m3_vl_vision": {
        "hidden_size": 1280,
        "intermediate_size": 5120,
        "num_hidden_layers": 32,
        "num_channels": 3,
        "patch_size": 14,
        "temporal_patch_size": 2,
        "spatial_merge_size": 2,
    },
    "step3p7_vision": {
        "hidden_size": 1536,
        "num_hidden_layers": 47,
        "num_channels": 3,
        "image_size": 728,
        "patch_size": 14,
        "mlp_ratio": 8960 / 1536,
    },
    "llama4_vision_model": {
        "hidden_size": 768,
        "num_hidden_layers": 34,
        "num_channels": 3,
        "intermediate_size": 5632,
        "vision_output_dim": 7680,
        "image_size": 448,
        "patch_size": 14,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
    },
    "mllama_vision_model": {
        "hidden_size": 1280,
        "num_hidden_layers": 32,
        "num_global_layers": 8,
        "num_channels": 3,
        "intermediate_size": 5120,
        "vision_output_dim": 7680,
        "image_size": 448,
        "patch_size": 14,
        "max_num_tiles": 4,
        "supported_aspect_ratios": ((1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1)),
    },
    "internvl_vision": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "attention_bias": False,
        "use_qk_norm": False,
        "intermediate_size": 4096,
        "norm_type": "layer_norm",
        "image_size": (448, 448),
        "patch_size": (14, 14),
        "num_channels": 3,
        "use_mask_token": False,
        "use_absolute_position_embeddings": True,
        "use_mean_pooling": True,
    },
    "kimi_k25_vision": {
        "num_attention_heads": 16,
        "patch_size": 14,
        "pos_emb_height": 64,
        "pos_emb_width": 64,
        "num_hidden_layers": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "merge_kernel_size": (2, 2),
        "attn_bias": True,
        "linear_bias": True,
        "patch_embed_proj_bias": True,
        "norm_type": "layernorm",
        "mm_projector_type": "patchmerger",
    },
    # vLLM 0.32, transformers_utils/configs/kimi_k3.py
    "kimi_k3_vision": {
        "num_attention_heads": 12,
        "patch_size": 14,
        "pos_emb_height": 64,
        "pos_emb_width": 64,
        "num_hidden_layers": 27,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "qkv_hidden_size": 1536,
        "merge_kernel_size": (2, 2),
        "attn_bias": False,
        "linear_bias": False,
        "patch_embed_proj_bias": False,
        "norm_type": "rmsnorm",
        "mm_projector_type": "patchmergerv2",
    },
    # vLLM 0.32, transformers_utils/configs/moonvit.py
    "moonvit": {
        "num_attention_heads": 16,
        "patch_size": 14,
        "pos_emb_height": 64,
        "pos_emb_width": 64,
        "num_hidden_layers": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "merge_kernel_size": (2, 2),
        "attn_bias": True,
        "linear_bias": True,
        "patch_embed_proj_bias": True,
        "norm_type": "layernorm",
        "mm_projector_type": "patchmerger",
    },
    "gemma4_vision": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 16,
        "num_attention_heads": 12,
        "num_key_value_heads": 12,
        "head_dim": 64,
        "patch_size": 16,
        "position_embedding_size": 10240,
    },
    "gemma4_audio": {
        "hidden_size": 1024,
        "num_hidden_layers": 12,
        "num_attention_heads": 8,
        "subsampling_conv_channels": (128, 32),
        "conv_kernel_size": 5,
        "output_proj_dims": 1536,
        "use_clipped_linears": True,
    },
    "gemma3n_vision": {"architecture": "mobilenetv5_300m_enc", "hidden_size": 2048, "vocab_size": 128},
    "gemma3n_audio": {
        "vocab_size": 128,
        "input_feat_size": 128,
        "hidden_size": 1536,
        "conf_num_attention_heads": 8,
        "conf_num_hidden_layers": 12,
        "conf_conv_kernel_size": 5,
        "sscp_conv_channel_size": (128, 32),
        "sscp_conv_kernel_size": ((3, 3), (3, 3)),
        "sscp_conv_stride_size": ((2, 2), (2, 2)),
    },
    "qwen2_audio_encoder": _WHISPER_ENCODER,
    "voxtral_encoder": _WHISPER_ENCODER,
    "qwen2_5_omni_audio_encoder": {**_WHISPER_ENCODER, "output_dim": 3584},
    "qwen3_omni_moe_audio_encoder": {**_WHISPER_ENCODER, "output_dim": 3584, "downsample_hidden_size": 480},
    "whisper": {
        "num_mel_bins": 80,
        "encoder_layers": 4,
        "encoder_ffn_dim": 1536,
        "d_model": 384,
        "max_source_positions": 1500,
    },
    # vLLM 0.32, transformers_utils/configs/step3_vl.py
    "step3_vision_encoder": {
        "hidden_size": 1792,
        "intermediate_size": 3072,
        "output_hidden_size": 4096,
        "num_hidden_layers": 63,
        "num_channels": 3,
        "image_size": 728,
        "patch_size": 14,
    },
    # vLLM 0.32, transformers_utils/configs/dotsocr.py
    "dots_vit": {
        "embed_dim": 1536,
        "hidden_size": 1536,
        "intermediate_size": 4224,
        "num_hidden_layers": 42,
        "num_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "use_bias": False,
        "post_norm": True,
    },
    "aimv2": {
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 24,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 14,
        "qkv_bias": False,
        "mlp_bias": False,
    },
    # vLLM 0.10, models/qwen_vl.py: VisionTransformer; the positions are a constant of the class
    "qwen_visual": {"n_queries": 256, "positions": 256},
    # vLLM 0.32, models/phi3v.py: _init_img_processor
    "phi3_v_processor": {"layer_idx": -2},
    # vLLM 0.32, models/nano_nemotron_vl.py: get_vit_model_from_radio_config
    "radio": {"patch_size": 16, "video_temporal_patch_size": 1},
    # vLLM 0.32, transformers_utils/configs/radio.py
    "radio_args": {"cpe_max_size": 2048},
    # vLLM 0.32, transformers_utils/configs/ovis.py
    "visual_tokenizer": {"vocab_size": 16384, "hidden_stride": 1},
    # vLLM 0.32, transformers_utils/configs/deepseek_vl2.py
    "mlp_projector": {
        "projector_type": "downsample_mlp_gelu",
        "input_dim": 1152,
        "n_embed": 2048,
        "depth": 2,
        "mlp_ratio": 1,
        "downsample_ratio": 2,
    },
}

_LLAVA = {"vision_feature_layer": -2, "multimodal_projector_bias": True}
_MERGED_PIXTRAL = {"vision_feature_layer": -1, "multimodal_projector_bias": False, "spatial_merge_size": 2}

COMPOSITE_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    # llava/model/llava_arch.py of the authors' repository: `mm_projector_type` defaults to linear
    "llava": {**_LLAVA, "mm_vision_select_layer": -2, "mm_projector_type": "linear"},
    "llavanext": _LLAVA,
    "llavanextvideo": _LLAVA,
    "llavaonevision": {**_LLAVA, "vision_feature_layer": -1},
    "mistral3": _MERGED_PIXTRAL,
    "lightonocr": _MERGED_PIXTRAL,
    "paligemma": {"projection_dim": 2048},
    "ayavision": {"downsample_factor": 2},
    "cohere2vision": {"downsample_factor": 2, "alignment_intermediate_size": 36864},
    "idefics3": {"scale_factor": 2},
    "smolvlm": {"scale_factor": 2},
    "minimaxm3vl": {"projector_hidden_size": 6144},
    "minimaxm3sparse": {"projector_hidden_size": 6144},
    "internvl": {"downsample_ratio": 0.5},
    "fuyu": {"patch_size": 30, "num_channels": 3},
    "ernie45vlmoe": {"use_temporal_conv": True},
    "ernie45moevl": {"use_temporal_conv": True},
    # vLLM 0.32, transformers_utils/configs/step3_vl.py
    "step3vl": {"projector_bias": True},
    # vLLM 0.32, transformers_utils/configs/ultravox.py
    "ultravox": {"stack_factor": 8, "hidden_size": 4096, "projector_act": "swiglu"},
    # published configs state it; the last layer is what an absent value can mean
    "internvlchat": {"select_layer": -1},
}
"""Defaults of the outer config, by the family's name as `kvbudget.model.tower_readers` spells it."""

_CLIP_LARGE_336 = {
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_hidden_layers": 24,
    "image_size": 336,
    "patch_size": 14,
}

OWN_TOWERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llava": ("clip_vision_model", _CLIP_LARGE_336),
    "llava_next": ("clip_vision_model", _CLIP_LARGE_336),
    "llava_next_video": ("clip_vision_model", _CLIP_LARGE_336),
    "llava_onevision": (
        "siglip_vision_model",
        {
            "hidden_size": 1152,
            "intermediate_size": 4304,
            "patch_size": 14,
            "image_size": 384,
            "num_hidden_layers": 26,
            "vision_use_head": False,
        },
    ),
    "mistral3": ("pixtral", {"patch_size": 14}),
    "lighton_ocr": ("pixtral", {"patch_size": 14}),
    "paligemma": (
        "siglip_vision_model",
        {
            "hidden_size": 1152,
            "intermediate_size": 4096,
            "patch_size": 14,
            "num_hidden_layers": 27,
            "vision_use_head": False,
        },
    ),
    "cohere2_vision": (
        "siglip_vision_model",
        {"hidden_size": 1152, "image_size": 512, "num_hidden_layers": 27},
    ),
}
"""The tower that a composite class builds when its config has no ``vision_config``: (model type, values).

transformers 5.24, ``sub_configs_defaults`` of the composite's config class.
"""

NAMED_ENCODERS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    # vLLM 0.32, models/phi3v.py: CLIP_VIT_LARGE_PATCH14_336_CONFIG
    "openai/clip-vit-large-patch14-336": ("clip_vision_model", {**_CLIP, **_CLIP_LARGE_336}),
    # timm 1.0, vit_so400m_patch14_siglip_384, as vLLM 0.32 builds it (models/deepseek_vl2.py, models/minicpmv.py)
    "vit_so400m_patch14_siglip_384.webli": (
        "timm_vit",
        {"width": 1152, "layers": 27, "mlp_dim": 4304, "image_size": 384, "patch_size": 14, "in_channels": 3},
    ),
    # vLLM 0.32, transformers_utils/configs/radio.py: VIT_TIMM_DIM_BY_NAME
    "vit_small_patch16_224": ("radio", {"width": 384, "layers": 12, "heads": 6, "mlp_dim": 1536}),
    "vit_base_patch16_224": ("radio", {"width": 768, "layers": 12, "heads": 12, "mlp_dim": 3072}),
    "vit_large_patch16_224": ("radio", {"width": 1024, "layers": 24, "heads": 16, "mlp_dim": 4096}),
    "vit_huge_patch16_224": ("radio", {"width": 1280, "layers": 32, "heads": 16, "mlp_dim": 5120}),
}
"""Encoders that a config names instead of describing: (kind, sizes)."""

OPAQUE_ENCODERS: Mapping[str, int] = {"mobilenetv5_300m_enc": 294_126_912}
"""Parameters of encoders whose layers are not listed here. timm 1.0.31, on the meta device."""

OVIS_INDICATORS = 5
"""Tokens of Ovis' visual vocabulary that mark an image and have no logits. vLLM 0.32, models/ovis.py."""

FIXED_ENCODERS: Mapping[str, Mapping[str, Any]] = {
    # vLLM 0.32, models/molmo.py: VisionBackboneConfig, VIT_LAYERS (two feature layers)
    "molmo": {
        "width": 1024,
        "layers": 23,
        "mlp_dim": 4096,
        "positions": 577,
        "patch_size": 14,
        "num_channels": 3,
        "feature_layers": 2,
    },
    # vLLM 0.32, models/deepencoder.py: build_sam_vit_b
    "sam_vit_b": {
        "width": 768,
        "layers": 12,
        "heads": 12,
        "mlp_dim": 3072,
        "image_size": 1024,
        "patch_size": 16,
        "num_channels": 3,
        "window_size": 14,
        "global_layers": 4,
        "out_chans": 256,
        "downsample_chans": 512,
    },
    # vLLM 0.32, models/deepseek_ocr.py
    "deepencoder_clip": {
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 24,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 14,
    },
    # vLLM 0.32, models/deepencoder2.py: build_qwen2_decoder_as_encoder
    "deepencoder_qwen2": {
        "hidden_size": 896,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "intermediate_size": 4864,
        "query_768": 144,
        "query_1024": 256,
    },
}
"""Encoders whose sizes are constants of the class that builds them, whatever the config says."""
