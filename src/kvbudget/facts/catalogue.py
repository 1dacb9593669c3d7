"""Well-known models as minimal configs: the keys of a `config.json` that give a model its shape, and no others.

A row is read like any `config.json`, so a short name works without a network. The figures are the makers' own; each row
says where they were read, and where a published parameter count confirms them. Layer lists are written as arithmetic.
Keys that size nothing (token ids, dropout, activation names, rope bases) are left out; a rope factor stays, because it
extends the context.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

Config = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueRow:
    """One model.

    Attributes:
        name: The short name, e.g. ``llama-3.1-8b``.
        hub: The id on the hub that it stands for.
        aliases: Other names and hub ids with exactly this shape.
        source: Where the figures were read.
        read_on: The date they were read (ISO).
        config: The config, with Hugging Face's keys.
    """

    name: str
    hub: str
    aliases: tuple[str, ...]
    source: str
    read_on: str
    config: Config


def find_model(name: str) -> CatalogueRow | None:
    """Return the row that `name` means, or None.

    A short name, a hub id, or a hub id without its owner; case does not matter, and ``_`` and spaces count as ``-``.
    """
    return _index().get(_key(name))


def close_names(name: str) -> tuple[str, ...]:
    """Return up to three known names near a misspelt one, the nearest first: hub ids for a hub id, else short names."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    key = _key(name)[:_LONGEST]
    known = {_key(other): other for row in MODELS for other in ((row.hub,) if "/" in key else (row.name,))}
    return tuple(known[match] for match in get_close_matches(key, known, n=3, cutoff=0.6))


_LONGEST = 96
"""The longest hub id allowed is of this order; comparing more is waste."""


def _key(name: str) -> str:
    return name.strip().casefold().replace("_", "-").replace(" ", "-")


@cache
def _index() -> dict[str, CatalogueRow]:
    found: dict[str, CatalogueRow] = {}
    for row in MODELS:
        for name in (row.name, row.hub, *row.aliases):
            for spelling in (name, name.rpartition("/")[2]):
                found.setdefault(_key(spelling), row)
    return found


_READ_ON = "2026-11-29"


def _row(name: str, hub: str, *aliases: str, source: str, config: Config) -> CatalogueRow:
    return CatalogueRow(name=name, hub=hub, aliases=aliases, source=source, read_on=_READ_ON, config=config)


_FP8_MISTRAL: Config = {
    "activation_scheme": "static",
    "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector", "lm_head"],
    "quant_method": "fp8",
}
_FP8_BLOCKS: Config = {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}


def _unquantized(layers: int) -> list[str]:
    """List the modules that Qwen3's FP8 checkpoints leave in 16 bits."""
    parts = ("input_layernorm", "mlp.gate", "post_attention_layernorm")
    return ["lm_head", *(f"model.layers.{layer}.{part}" for layer in range(layers) for part in parts)]


def _blocks(pattern: str) -> list[str]:
    """Spell out a hybrid's layers from the letters that its makers use elsewhere (``hybrid_override_pattern``)."""
    words = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
    return [words[letter] for letter in pattern]


def _nas(ffn_mult: float, heads_in_group: int | None = None) -> Config:
    """Write one block of a pruned Nemotron: without `heads_in_group` it has no attention."""
    return {
        "attention": {
            "n_heads_in_group": heads_in_group,
            "no_op": heads_in_group is None,
            "replace_with_linear": False,
        },
        "ffn": {"ffn_mult": ffn_mult, "no_op": False, "replace_with_linear": False},
    }


# fmt: off
_LLAMA_3_1_70B: Config = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 128256,
    "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "attention_bias": False, "mlp_bias": False,
    "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
}

_QWEN2_0_5B: Config = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 151936,
    "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2,
    "max_position_embeddings": 32768, "sliding_window": 32768, "use_sliding_window": False,
}

_QWEN3_8B: Config = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 151936,
    "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 40960, "sliding_window": None, "attention_bias": False, "use_sliding_window": False,
}

_QWEN3_32B: Config = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 151936,
    "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
    "max_position_embeddings": 40960, "sliding_window": None, "attention_bias": False, "use_sliding_window": False,
}

_QWEN3_30B_A3B: Config = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
    "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 40960, "sliding_window": None, "attention_bias": False,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
    "use_sliding_window": False,
}

_QWEN3_235B_A22B: Config = {
    "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 94, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 40960, "sliding_window": None, "attention_bias": False,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 1536, "num_experts": 128, "num_experts_per_tok": 8,
    "use_sliding_window": False,
}

_QWEN3_5_27B: Config = {
    "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "dtype": "bfloat16", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text", "dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 248320, "hidden_size": 5120,
        "intermediate_size": 17408, "num_hidden_layers": 64, "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 262144, "attention_bias": False, "attn_output_gate": True, "full_attention_interval": 4,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 16, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "mtp_num_hidden_layers": 1,
    },
    "vision_config": {
        "model_type": "qwen3_5_vision", "dtype": "bfloat16", "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [],
        "depth": 27, "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 5120, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
}

_QWEN3_5_35B_A3B: Config = {
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "dtype": "bfloat16", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 248320, "hidden_size": 2048,
        "num_hidden_layers": 40, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 262144,
        "attention_bias": False, "attn_output_gate": True, "full_attention_interval": 4,
        "layer_types": [*["linear_attention"] * 3, "full_attention"] * 10, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "moe_intermediate_size": 512, "mtp_num_hidden_layers": 1, "num_experts": 256, "num_experts_per_tok": 8,
        "shared_expert_intermediate_size": 512,
    },
    "vision_config": {
        "model_type": "qwen3_5_moe_vision", "dtype": "bfloat16", "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [],
        "depth": 27, "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2048, "patch_size": 16,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    },
}

_PHI_3_MINI_128K: Config = {
    "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 32064,
    "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
    "max_position_embeddings": 131072, "sliding_window": 262144, "rope_scaling": {"type": "longrope"}, "attention_bias": False,
}

_DEEPSEEK_V3: Config = {
    "architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
    "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "max_position_embeddings": 163840, "attention_bias": False, "first_k_dense_replace": 3, "kv_lora_rank": 512,
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "rope_scaling": {"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"}, "topk_method": "noaux_tc", "v_head_dim": 128,
}

_GLM_5: Config = {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 154880,
    "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 64,
    "max_position_embeddings": 202752, "attention_bias": False, "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32,
    "index_topk": 2048, "kv_lora_rank": 512, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 2048, "qk_head_dim": 256, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
    "topk_method": "noaux_tc", "v_head_dim": 256,
}

_GLM_5_2: Config = {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 154880,
    "hidden_size": 6144, "intermediate_size": 12288, "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 192,
    "max_position_embeddings": 1048576, "attention_bias": False, "first_k_dense_replace": 3, "index_head_dim": 128, "index_n_heads": 32,
    "index_share_for_mtp_iteration": True, "index_skip_topk_offset": 3, "index_topk": 2048, "index_topk_freq": 4,
    "indexer_types": ["full", "full", *["full", *["shared"] * 3] * 19], "kv_lora_rank": 512, "mlp_layer_types": [*["dense"] * 3, *["sparse"] * 75],
    "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "num_nextn_predict_layers": 1, "q_lora_rank": 2048, "qk_head_dim": 256, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
    "topk_method": "noaux_tc", "v_head_dim": 256,
}


MODELS: tuple[CatalogueRow, ...] = (
    _row(
        "llama-2-7b", "meta-llama/Llama-2-7b-hf", "meta-llama/Llama-2-7b-chat-hf", "meta-llama/Llama-2-7b", "llama-2-7b-chat",
        source="config.json of meta-llama/Llama-2-7b-hf",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "tie_word_embeddings": False, "vocab_size": 32000,
            "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "max_position_embeddings": 4096,
        },
    ),
    _row(
        "llama-2-13b", "meta-llama/Llama-2-13b-chat-hf", "meta-llama/Llama-2-13b-hf", "llama-2-13b-chat",
        source="config.json of meta-llama/Llama-2-13b-chat-hf",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "tie_word_embeddings": False, "vocab_size": 32000,
            "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 40,
            "max_position_embeddings": 4096,
        },
    ),
    _row(
        "llama-2-70b", "meta-llama/Llama-2-70b-hf", "meta-llama/Llama-2-70b-chat-hf", "llama-2-70b-chat",
        source="config.json of lizpreciatior/lzlv_70b_fp16_hf, a fine-tune of it",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "tie_word_embeddings": False, "vocab_size": 32000,
            "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
            "max_position_embeddings": 4096,
        },
    ),
    _row(
        "llama-3-8b", "meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b-instruct",
        source="config.json of meta-llama/Meta-Llama-3-8B",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 8192, "model_size": 8, "attention_bias": False,
        },
    ),
    _row(
        "llama-3-70b", "meta-llama/Meta-Llama-3-70B-Instruct", "meta-llama/Meta-Llama-3-70B", "llama-3-70b-instruct",
        source="config.json of meta-llama/Meta-Llama-3-70B-Instruct",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 128256, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "max_position_embeddings": 8192, "model_size": 70, "attention_bias": False,
        },
    ),
    _row(
        "llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-8B-Instruct", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
        source="config.json of meta-llama/Llama-3.1-8B-Instruct",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 131072, "attention_bias": False, "mlp_bias": False,
        },
    ),
    _row(
        "llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-70B-Instruct",
        source="config.json of meta-llama/Llama-3.1-70B-Instruct",
        config=_LLAMA_3_1_70B,
    ),
    _row(
        "llama-3.1-405b", "meta-llama/Meta-Llama-3.1-405B", "meta-llama/Llama-3.1-405B", "meta-llama/Llama-3.1-405B-Instruct", "meta-llama/Meta-Llama-3.1-405B-Instruct",
        source="config.json of meta-llama/Meta-Llama-3.1-405B",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 128256, "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128,
            "num_key_value_heads": 8, "max_position_embeddings": 131072, "attention_bias": False, "mlp_bias": False,
            "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        },
    ),
    _row(
        "llama-3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", "meta-llama/Llama-3.2-1B",
        source="config.json of meta-llama/Llama-3.2-1B-Instruct",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072,
        },
    ),
    _row(
        "llama-3.2-3b", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.2-3B-Instruct",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 3,212,749,824 parameters",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 128256, "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 24,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "attention_bias": False, "mlp_bias": False,
            "rope_scaling": {"factor": 32.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        },
    ),
    _row(
        "llama-3.2-11b-vision", "meta-llama/Llama-3.2-11B-Vision-Instruct",
        source="published dimensions; they count to the published 10,670,220,835 parameters",
        config={
            "architectures": ["MllamaForConditionalGeneration"], "model_type": "mllama", "torch_dtype": "bfloat16",
            "text_config": {
                "torch_dtype": "bfloat16", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 40,
                "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072,
                "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38], "vision_num_cross_attention_layers": 8,
            },
            "vision_config": {
                "torch_dtype": "bfloat16", "hidden_size": 1280, "num_hidden_layers": 32, "attention_heads": 16, "image_size": 560,
                "intermediate_layers_indices": [3, 7, 15, 23, 30], "max_num_tiles": 4, "num_channels": 3, "num_global_layers": 8, "patch_size": 14,
            },
        },
    ),
    _row(
        "llama-3.3-70b", "meta-llama/Llama-3.3-70B-Instruct",
        source="config.json of meta-llama/Llama-3.1-70B-Instruct, weight files of 131.42 GiB match",
        config=_LLAMA_3_1_70B,
    ),
    _row(
        "llama-4-scout", "meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama-4-scout-17b-16e",
        source="config.json of meta-llama/Llama-4-Scout-17B-16E-Instruct",
        config={
            "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "bfloat16",
            "text_config": {
                "model_type": "llama4_text", "torch_dtype": "bfloat16", "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192,
                "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 10485760,
                "attention_bias": False, "attention_chunk_size": 8192, "interleave_moe_layer_step": 1, "intermediate_size_mlp": 16384,
                "num_experts_per_tok": 1, "num_local_experts": 16,
                "rope_scaling": {"factor": 16.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "use_qk_norm": True,
            },
        },
    ),
    _row(
        "llama-4-maverick", "meta-llama/Llama-4-Maverick-17B-128E-Instruct", "llama-4-maverick-17b-128e",
        source="config.json of meta-llama/Llama-4-Maverick-17B-128E-Instruct",
        config={
            "architectures": ["Llama4ForConditionalGeneration"], "model_type": "llama4", "torch_dtype": "bfloat16",
            "text_config": {
                "model_type": "llama4_text", "torch_dtype": "bfloat16", "vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192,
                "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 1048576,
                "attention_bias": False, "attention_chunk_size": 8192, "interleave_moe_layer_step": 2, "intermediate_size_mlp": 16384,
                "num_experts_per_tok": 1, "num_local_experts": 128, "use_qk_norm": False,
            },
        },
    ),
    _row(
        "tinyllama-1.1b", "TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 1,100,048,384 parameters",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32000, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22, "num_attention_heads": 32,
            "num_key_value_heads": 4, "max_position_embeddings": 2048, "attention_bias": False,
        },
    ),
    _row(
        "codellama-7b", "codellama/CodeLlama-7b-hf", "codellama/CodeLlama-7b-Instruct-hf",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 6,738,546,688 parameters",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32016, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 32, "max_position_embeddings": 16384,
        },
    ),
    _row(
        "codellama-34b", "codellama/CodeLlama-34b-Instruct-hf", "codellama/CodeLlama-34b-hf",
        source="config.json of codellama/CodeLlama-34b-Instruct-hf",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32000, "hidden_size": 8192, "intermediate_size": 22016, "num_hidden_layers": 48, "num_attention_heads": 64,
            "num_key_value_heads": 8, "max_position_embeddings": 16384,
        },
    ),
    _row(
        "smollm2-360m", "HuggingFaceTB/SmolLM2-360M", "HuggingFaceTB/SmolLM2-360M-Instruct",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 361,821,120 parameters",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 49152,
            "hidden_size": 960, "intermediate_size": 2560, "num_hidden_layers": 32, "num_attention_heads": 15, "num_key_value_heads": 5,
            "max_position_embeddings": 8192, "attention_bias": False, "is_llama_config": True, "mlp_bias": False,
        },
    ),
    _row(
        "smollm-135m", "HuggingFaceTB/SmolLM-135M",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 134,515,008 parameters",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 49152,
            "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3,
            "max_position_embeddings": 2048, "attention_bias": False, "mlp_bias": False,
        },
    ),
    _row(
        "smollm3-3b", "HuggingFaceTB/SmolLM3-3B",
        source="config.json of HuggingFaceTB/SmolLM3-3B",
        config={
            "architectures": ["SmolLM3ForCausalLM"], "model_type": "smollm3", "torch_dtype": "bfloat16", "vocab_size": 128256, "hidden_size": 2048,
            "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
            "max_position_embeddings": 65536, "sliding_window": None, "attention_bias": False, "layer_types": ["full_attention"] * 36,
            "mlp_bias": False, "use_sliding_window": False,
        },
    ),
    _row(
        "yi-34b", "01-ai/Yi-34B",
        source="published dimensions; they count to the published 34,388,917,248 parameters",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 64000, "hidden_size": 7168, "intermediate_size": 20480, "num_hidden_layers": 60, "num_attention_heads": 56,
            "num_key_value_heads": 8, "max_position_embeddings": 4096,
        },
    ),
    _row(
        "yi-1.5-6b", "01-ai/Yi-1.5-6B-Chat",
        source="config.json of 01-ai/Yi-1.5-6B-Chat",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 64000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 4, "max_position_embeddings": 4096, "attention_bias": False, "mlp_bias": False,
        },
    ),
    _row(
        "mistral-7b", "mistralai/Mistral-7B-v0.3", "mistralai/Mistral-7B-Instruct-v0.3",
        source="dimensions kept by github.com/mlc-ai/mlc-llm",
        config={
            "architectures": ["MistralForCausalLM"], "model_type": "mistral", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32768, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": None,
        },
    ),
    _row(
        "mistral-7b-v0.1", "mistralai/Mistral-7B-Instruct-v0.1", "mistralai/Mistral-7B-v0.1",
        source="config.json of mistralai/Mistral-7B-Instruct-v0.1",
        config={
            "architectures": ["MistralForCausalLM"], "model_type": "mistral", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": 4096,
        },
    ),
    _row(
        "mistral-7b-v0.2", "mistralai/Mistral-7B-Instruct-v0.2",
        source="config.json of mistralai/Mistral-7B-Instruct-v0.2",
        config={
            "architectures": ["MistralForCausalLM"], "model_type": "mistral", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": None,
        },
    ),
    _row(
        "mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1", "mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b-instruct",
        source="config.json of mistralai/Mixtral-8x7B-Instruct-v0.1",
        config={
            "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": None, "num_experts_per_tok": 2, "num_local_experts": 8,
        },
    ),
    _row(
        "mixtral-8x22b", "mistralai/Mixtral-8x22B-v0.1", "mistralai/Mixtral-8x22B-Instruct-v0.1",
        source="config.json of alpindale/WizardLM-2-8x22B, parameters agree",
        config={
            "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32000, "hidden_size": 6144, "intermediate_size": 16384, "num_hidden_layers": 56, "num_attention_heads": 48,
            "num_key_value_heads": 8, "max_position_embeddings": 65536, "sliding_window": None, "num_experts_per_tok": 2, "num_local_experts": 8,
        },
    ),
    _row(
        "mistral-nemo-12b", "mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo",
        source="published dimensions; they count to the published 12,247,782,400 parameters",
        config={
            "architectures": ["MistralForCausalLM"], "model_type": "mistral", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 14336, "num_hidden_layers": 40, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "sliding_window": None,
        },
    ),
    _row(
        "mistral-small-24b", "mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b-2501",
        source="published dimensions; they count to the published 23,572,403,200 parameters; positions as published",
        config={
            "architectures": ["MistralForCausalLM"], "model_type": "mistral", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 32768, "sliding_window": None,
        },
    ),
    _row(
        "mistral-small-3.1-24b", "mistralai/Mistral-Small-3.1-24B-Instruct-2503", "mistral-small-3.1",
        source="published dimensions; they count to the published 24,011,361,280 parameters",
        config={
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "multimodal_projector_bias": False, "spatial_merge_size": 2, "vision_feature_layer": -1,
            "text_config": {
                "model_type": "mistral", "tie_word_embeddings": False, "vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768,
                "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072,
                "sliding_window": None,
            },
            "vision_config": {
                "model_type": "pixtral", "vocab_size": 32000, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
                "num_attention_heads": 16, "head_dim": 64, "image_size": 1540, "num_channels": 3, "patch_size": 14,
            },
        },
    ),
    _row(
        "mistral-large-123b", "mistralai/Mistral-Large-Instruct-2407", "mistral-large-2407",
        source="published dimensions; they count to the published 122,610,069,504 parameters",
        config={
            "architectures": ["MistralForCausalLM"], "model_type": "mistral", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32768, "hidden_size": 12288, "intermediate_size": 28672, "num_hidden_layers": 88, "num_attention_heads": 96,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "sliding_window": None,
        },
    ),
    _row(
        "mistral-small-4-119b", "mistralai/Mistral-Small-4-119B-2603", "mistral-small-4",
        source="config.json of cyankiwi/Mistral-Small-4-119B-2603-AWQ-4bit, a quantized copy; in FP8 as the published 112.63 GiB are",
        config={
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "mistral3", "dtype": "bfloat16", "tie_word_embeddings": False,
            "quantization_config": _FP8_MISTRAL,
            "multimodal_projector_bias": False, "spatial_merge_size": 2, "vision_feature_layer": -1,
            "text_config": {
                "model_type": "mistral4", "tie_word_embeddings": False, "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 12288,
                "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "max_position_embeddings": 1048576,
                "sliding_window": None, "attention_bias": False, "first_k_dense_replace": 0, "kv_lora_rank": 256, "mlp_bias": False,
                "moe_intermediate_size": 2048, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 4, "q_lora_rank": 1024,
                "qk_head_dim": 128, "qk_nope_head_dim": 64, "qk_rope_head_dim": 64,
                "rope_parameters": {"factor": 128.0, "original_max_position_embeddings": 8192, "rope_type": "yarn", "type": "yarn"},
                "v_head_dim": 128,
            },
            "vision_config": {
                "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
                "head_dim": 64, "image_size": 1540, "num_channels": 3, "patch_size": 14,
            },
        },
    ),
    _row(
        "ministral-3-3b", "mistralai/Ministral-3-3B-Instruct-2512",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; in FP8 as the published 4.35 GiB are",
        config={
            "architectures": ["Mistral3ForConditionalGeneration"], "model_type": "ministral3", "dtype": "bfloat16",
            "quantization_config": _FP8_MISTRAL,
            "multimodal_projector_bias": False, "spatial_merge_size": 2, "vision_feature_layer": -1,
            "text_config": {
                "model_type": "ministral3", "tie_word_embeddings": True, "vocab_size": 131072, "hidden_size": 3072, "intermediate_size": 9216,
                "num_hidden_layers": 26, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
                "sliding_window": None,
                "rope_parameters": {"factor": 16.0, "original_max_position_embeddings": 16384, "rope_type": "yarn", "type": "yarn"},
            },
            "vision_config": {
                "model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
                "head_dim": 64, "image_size": 1540, "num_channels": 3, "patch_size": 14,
            },
        },
    ),
    _row(
        "qwen1.5-moe-a2.7b", "Qwen/Qwen1.5-MoE-A2.7B-Chat",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 14,315,784,192 parameters",
        config={
            "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24, "num_attention_heads": 16,
            "num_key_value_heads": 16, "max_position_embeddings": 32768, "sliding_window": 32768, "use_sliding_window": False,
            "decoder_sparse_step": 1, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4,
            "num_experts": 60,
        },
    ),
    _row(
        "qwen2-0.5b", "Qwen/Qwen2-0.5B-Instruct",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 494,032,768 parameters",
        config=_QWEN2_0_5B,
    ),
    _row(
        "qwen2-72b", "Qwen/Qwen2-72B-Instruct",
        source="config.json of Qwen/Qwen2-72B-Instruct",
        config={
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": 131072, "model_size": 72, "use_sliding_window": False,
        },
    ),
    _row(
        "qwen2-57b-a14b", "Qwen/Qwen2-57B-A14B-Instruct",
        source="published dimensions; they count to the published 57,408,658,944 parameters",
        config={
            "architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 151936, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
            "num_key_value_heads": 4, "max_position_embeddings": 32768, "sliding_window": 0, "decoder_sparse_step": 1,
            "layer_types": ["full_attention"] * 28, "mlp_only_layers": [], "moe_intermediate_size": 2560, "num_experts": 64, "num_experts_per_tok": 8,
            "qkv_bias": True, "shared_expert_intermediate_size": 20480, "use_sliding_window": False,
        },
    ),
    _row(
        "qwen2.5-0.5b", "Qwen/Qwen2.5-0.5B-Instruct",
        source="config.json of Qwen/Qwen2.5-0.5B-Instruct",
        config=_QWEN2_0_5B,
    ),
    _row(
        "qwen2.5-1.5b", "Qwen/Qwen2.5-1.5B-Instruct",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; they count to the published 1,543,714,304 parameters",
        config={
            "model_type": "qwen2", "dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 151936, "hidden_size": 1536,
            "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 32768,
            "sliding_window": None, "use_sliding_window": False, "layer_types": ["full_attention"] * 28, "attention_bias": True,
        },
    ),
    _row(
        "qwen2.5-3b", "Qwen/Qwen2.5-3B-Instruct",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 3,085,938,688 parameters",
        config={
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
            "num_key_value_heads": 2, "max_position_embeddings": 32768, "sliding_window": 32768, "use_sliding_window": False,
        },
    ),
    _row(
        "qwen2.5-7b", "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-Coder-7B-Instruct", "qwen2.5-coder-7b",
        source="config.json of Qwen/Qwen2.5-7B-Instruct",
        config={
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
            "num_key_value_heads": 4, "max_position_embeddings": 32768, "sliding_window": 131072, "use_sliding_window": False,
        },
    ),
    _row(
        "qwen2.5-14b", "Qwen/Qwen2.5-14B-Instruct",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; they count to the published 14,770,033,664 parameters",
        config={
            "model_type": "qwen2", "dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 152064, "hidden_size": 5120,
            "intermediate_size": 13824, "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8,
            "max_position_embeddings": 32768, "sliding_window": None, "use_sliding_window": False, "layer_types": ["full_attention"] * 48,
            "attention_bias": True,
        },
    ),
    _row(
        "qwen2.5-32b", "Qwen/Qwen2.5-32B-Instruct", "Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-coder-32b",
        source="published dimensions; they count to the 32,763,876,352 parameters of QwQ-32B and to the 61.03 GiB of Qwen2.5-Coder-32B",
        config={
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
            "num_key_value_heads": 8, "max_position_embeddings": 32768, "use_sliding_window": False,
        },
    ),
    _row(
        "qwen2.5-72b", "Qwen/Qwen2.5-72B-Instruct",
        source="config.json of Qwen/Qwen2.5-Math-72B-Instruct, the general model reads 32,768 positions instead of 4,096",
        config={
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
            "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": 131072, "use_sliding_window": False,
        },
    ),
    _row(
        "qwq-32b", "Qwen/QwQ-32B",
        source="published dimensions; they count to the published 32,763,876,352 parameters",
        config={
            "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 152064, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
            "num_key_value_heads": 8, "max_position_embeddings": 40960, "use_sliding_window": False,
        },
    ),
    _row(
        "qwen2-vl-7b", "Qwen/Qwen2-VL-7B-Instruct",
        source="published dimensions; they count to the published 8,291,375,616 parameters",
        config={
            "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen2_vl_text", "tie_word_embeddings": False, "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
                "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 32768,
                "sliding_window": None, "layer_types": ["full_attention"] * 28, "use_sliding_window": False,
            },
            "vision_config": {
                "model_type": "qwen2_vl_vision", "hidden_size": 3584, "depth": 32, "embed_dim": 1280, "in_channels": 3, "mlp_ratio": 4,
                "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen2-vl-72b", "Qwen/Qwen2-VL-72B-Instruct",
        source="published dimensions; they count to the published 73,405,560,320 parameters",
        config={
            "architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen2_vl_text", "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
                "num_attention_heads": 64, "num_key_value_heads": 8, "max_position_embeddings": 32768, "sliding_window": None,
                "layer_types": ["full_attention"] * 80, "use_sliding_window": False,
            },
            "vision_config": {
                "model_type": "qwen2_vl_vision", "hidden_size": 8192, "depth": 32, "embed_dim": 1280, "in_channels": 3, "mlp_ratio": 4,
                "num_heads": 16, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen2.5-vl-7b", "Qwen/Qwen2.5-VL-7B-Instruct",
        source="config.json of Qwen/Qwen2.5-VL-7B-Instruct",
        config={
            "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl", "torch_dtype": "bfloat16",
            "tie_word_embeddings": False, "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28,
            "num_attention_heads": 28, "num_key_value_heads": 4, "max_position_embeddings": 128000, "sliding_window": 32768,
            "use_sliding_window": False, "rope_scaling": {"type": "mrope"},
            "vision_config": {
                "hidden_size": 1280, "intermediate_size": 3420, "depth": 32, "num_heads": 16, "in_chans": 3, "out_hidden_size": 3584,
                "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
                "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen3-0.6b", "Qwen/Qwen3-0.6B",
        source="config.json of Qwen/Qwen3-0.6B",
        config={
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "sliding_window": None, "attention_bias": False,
            "use_sliding_window": False,
        },
    ),
    _row(
        "qwen3-1.7b", "Qwen/Qwen3-1.7B",
        source="config.json of Qwen/Qwen3-1.7B",
        config={
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28, "num_attention_heads": 16,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "sliding_window": None, "attention_bias": False,
            "use_sliding_window": False,
        },
    ),
    _row(
        "qwen3-4b", "Qwen/Qwen3-4B",
        source="config.json of Qwen/Qwen3-4B",
        config={
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 151936, "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "sliding_window": None, "attention_bias": False,
            "use_sliding_window": False,
        },
    ),
    _row(
        "qwen3-8b", "Qwen/Qwen3-8B",
        source="published dimensions; they count to the published 8,190,735,360 parameters",
        config=_QWEN3_8B,
    ),
    _row(
        "qwen3-8b-awq", "Qwen/Qwen3-8B-AWQ",
        source="published dimensions; they count to the published 8,190,735,360 parameters",
        config={**_QWEN3_8B, "quantization_config": {"bits": 4, "group_size": 128, "quant_method": "awq", "version": "gemm", "zero_point": True}},
    ),
    _row(
        "qwen3-14b", "Qwen/Qwen3-14B",
        source="config.json of mlx-community/Qwen3-14B-4bit, read without its quantization; it counts to the published 14,768,307,200 parameters",
        config={
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 151936, "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 40, "num_attention_heads": 40,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 40960, "sliding_window": None, "attention_bias": False,
            "use_sliding_window": False,
        },
    ),
    _row(
        "qwen3-32b", "Qwen/Qwen3-32B",
        source="config.json of Qwen/Qwen3-32B",
        config=_QWEN3_32B,
    ),
    _row(
        "qwen3-32b-fp8", "Qwen/Qwen3-32B-FP8",
        source="config.json of Qwen/Qwen3-32B-FP8",
        config={**_QWEN3_32B, "quantization_config": _FP8_BLOCKS},
    ),
    _row(
        "qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B",
        source="config.json of Qwen/Qwen3-30B-A3B-FP8, read without its quantization",
        config=_QWEN3_30B_A3B,
    ),
    _row(
        "qwen3-30b-a3b-fp8", "Qwen/Qwen3-30B-A3B-FP8",
        source="config.json of Qwen/Qwen3-30B-A3B-FP8",
        config={**_QWEN3_30B_A3B, "quantization_config": {"activation_scheme": "dynamic", "modules_to_not_convert": _unquantized(48), "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}},
    ),
    _row(
        "qwen3-30b-a3b-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507",
        source="config.json of Qwen/Qwen3-30B-A3B-Instruct-2507",
        config={
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 48, "num_attention_heads": 32,
            "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 262144, "sliding_window": None, "attention_bias": False,
            "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768, "num_experts": 128, "num_experts_per_tok": 8,
            "use_sliding_window": False,
        },
    ),
    _row(
        "qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B",
        source="config.json of Qwen/Qwen3-235B-A22B-FP8, read without its quantization",
        config=_QWEN3_235B_A22B,
    ),
    _row(
        "qwen3-235b-a22b-fp8", "Qwen/Qwen3-235B-A22B-FP8",
        source="config.json of Qwen/Qwen3-235B-A22B-FP8",
        config={**_QWEN3_235B_A22B, "quantization_config": {"activation_scheme": "dynamic", "modules_to_not_convert": _unquantized(94), "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}},
    ),
    _row(
        "qwen3-coder-480b-a35b", "Qwen/Qwen3-Coder-480B-A35B-Instruct", "qwen3-coder-480b",
        source="config.json of Qwen/Qwen3-Coder-480B-A35B-Instruct",
        config={
            "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 151936, "hidden_size": 6144, "intermediate_size": 8192, "num_hidden_layers": 62, "num_attention_heads": 96,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144, "sliding_window": None, "decoder_sparse_step": 1,
            "mlp_only_layers": [], "moe_intermediate_size": 2560, "num_experts": 160, "num_experts_per_tok": 8, "qkv_bias": False,
            "shared_expert_intermediate_size": 0, "use_qk_norm": True, "use_sliding_window": False,
        },
    ),
    _row(
        "qwen3-next-80b-a3b", "Qwen/Qwen3-Next-80B-A3B-Instruct", "Qwen/Qwen3-Next-80B-A3B-Thinking", "qwen3-next-80b",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; without the next-token layers that the checkpoint adds, 79,674,391,296 parameters",
        config={
            "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16,
            "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 262144, "decoder_sparse_step": 1, "full_attention_interval": 4,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 32,
            "linear_value_head_dim": 128, "mlp_only_layers": [], "moe_intermediate_size": 512, "num_experts": 512, "num_experts_per_tok": 10,
            "shared_expert_intermediate_size": 512,
        },
    ),
    _row(
        "qwen3-vl-4b", "Qwen/Qwen3-VL-4B-Instruct",
        source="config.json of Qwen/Qwen3-VL-4B-Instruct",
        config={
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": True,
            "text_config": {
                "model_type": "qwen3_vl_text", "dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 151936, "hidden_size": 2560,
                "intermediate_size": 9728, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                "max_position_embeddings": 262144, "attention_bias": False,
            },
            "vision_config": {
                "model_type": "qwen3_vl", "hidden_size": 1024, "intermediate_size": 4096, "deepstack_visual_indexes": [5, 11, 17], "depth": 24,
                "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2560, "patch_size": 16,
                "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen3-vl-8b", "Qwen/Qwen3-VL-8B-Instruct", "nvidia/Cosmos-Reason2-8B",
        source="config.json of nvidia/Cosmos-Reason2-8B, it counts to the published 8,767,123,696 parameters",
        config={
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen3_vl_text", "dtype": "bfloat16", "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288,
                "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
                "attention_bias": False,
            },
            "vision_config": {
                "model_type": "qwen3_vl", "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [8, 16, 24], "depth": 27,
                "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 4096, "patch_size": 16,
                "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen3-vl-32b", "Qwen/Qwen3-VL-32B-Thinking", "Qwen/Qwen3-VL-32B-Instruct",
        source="config.json of Qwen/Qwen3-VL-32B-Thinking",
        config={
            "architectures": ["Qwen3VLForConditionalGeneration"], "model_type": "qwen3_vl", "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen3_vl_text", "dtype": "bfloat16", "vocab_size": 151936, "hidden_size": 5120, "intermediate_size": 25600,
                "num_hidden_layers": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 262144,
                "attention_bias": False,
            },
            "vision_config": {
                "model_type": "qwen3_vl", "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [8, 16, 24], "depth": 27,
                "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 5120, "patch_size": 16,
                "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen3-vl-30b-a3b", "Qwen/Qwen3-VL-30B-A3B-Instruct", "Qwen/Qwen3-VL-30B-A3B",
        source="config.json of Qwen/Qwen3-VL-30B-A3B-Instruct",
        config={
            "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen3_vl_moe_text", "dtype": "bfloat16", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
                "num_hidden_layers": 48, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 262144,
                "attention_bias": False, "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768, "num_experts": 128,
                "num_experts_per_tok": 8,
            },
            "vision_config": {
                "model_type": "qwen3_vl_moe", "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [8, 16, 24], "depth": 27,
                "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 2048, "patch_size": 16,
                "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen3-vl-235b-a22b", "Qwen/Qwen3-VL-235B-A22B-Instruct",
        source="config.json of Qwen/Qwen3-VL-235B-A22B-Instruct",
        config={
            "architectures": ["Qwen3VLMoeForConditionalGeneration"], "model_type": "qwen3_vl_moe", "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen3_vl_moe_text", "dtype": "bfloat16", "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 12288,
                "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 262144,
                "attention_bias": False, "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 1536, "num_experts": 128,
                "num_experts_per_tok": 8,
            },
            "vision_config": {
                "model_type": "qwen3_vl_moe", "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [8, 16, 24], "depth": 27,
                "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 4096, "patch_size": 16,
                "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen3.5-27b", "Qwen/Qwen3.5-27B",
        source="config.json of nvidia/Qwen3.6-27B-NVFP4, the next release quantized, read without its quantization; parameters agree",
        config=_QWEN3_5_27B,
    ),
    _row(
        "qwen3.6-27b", "Qwen/Qwen3.6-27B",
        source="config.json of nvidia/Qwen3.6-27B-NVFP4, a quantized copy, read without its quantization",
        config=_QWEN3_5_27B,
    ),
    _row(
        "qwen3.5-35b-a3b", "Qwen/Qwen3.5-35B-A3B",
        source="config.json of nvidia/Qwen3.6-35B-A3B-NVFP4, the next release quantized, read without its quantization; parameters agree",
        config=_QWEN3_5_35B_A3B,
    ),
    _row(
        "qwen3.6-35b-a3b", "Qwen/Qwen3.6-35B-A3B",
        source="config.json of nvidia/Qwen3.6-35B-A3B-NVFP4, a quantized copy, read without its quantization",
        config=_QWEN3_5_35B_A3B,
    ),
    _row(
        "qwen3.5-122b-a10b", "Qwen/Qwen3.5-122B-A10B",
        source="config.json of Qwen/Qwen3.5-122B-A10B",
        config={
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "vocab_size": 248320, "hidden_size": 3072, "num_hidden_layers": 48,
                "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 262144, "attention_bias": False,
                "attn_output_gate": True, "full_attention_interval": 4, "layer_types": [*["linear_attention"] * 3, "full_attention"] * 12,
                "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 64,
                "linear_value_head_dim": 128, "mlp_only_layers": [], "moe_intermediate_size": 1024, "mtp_num_hidden_layers": 1, "num_experts": 256,
                "num_experts_per_tok": 8, "shared_expert_intermediate_size": 1024, "mamba_ssm_dtype": "float32",
            },
            "vision_config": {
                "model_type": "qwen3_5_moe", "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [], "depth": 27,
                "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 3072, "patch_size": 16,
                "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "qwen3.5-397b-a17b", "Qwen/Qwen3.5-397B-A17B",
        source="config.json of Qwen/Qwen3.5-397B-A17B",
        config={
            "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe", "tie_word_embeddings": False,
            "text_config": {
                "model_type": "qwen3_5_moe_text", "dtype": "bfloat16", "vocab_size": 248320, "hidden_size": 4096, "num_hidden_layers": 60,
                "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 256, "max_position_embeddings": 262144, "attention_bias": False,
                "attn_output_gate": True, "full_attention_interval": 4, "layer_types": [*["linear_attention"] * 3, "full_attention"] * 15,
                "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_num_value_heads": 64,
                "linear_value_head_dim": 128, "mlp_only_layers": [], "moe_intermediate_size": 1024, "mtp_num_hidden_layers": 1, "num_experts": 512,
                "num_experts_per_tok": 10, "shared_expert_intermediate_size": 1024, "mamba_ssm_dtype": "float32",
            },
            "vision_config": {
                "model_type": "qwen3_5_moe", "hidden_size": 1152, "intermediate_size": 4304, "deepstack_visual_indexes": [], "depth": 27,
                "in_channels": 3, "num_heads": 16, "num_position_embeddings": 2304, "out_hidden_size": 4096, "patch_size": 16,
                "spatial_merge_size": 2, "temporal_patch_size": 2,
            },
        },
    ),
    _row(
        "gemma-2b", "google/gemma-2b-it", "google/gemma-2b",
        source="config.json of google/gemma-2b-it",
        config={
            "architectures": ["GemmaForCausalLM"], "model_type": "gemma", "torch_dtype": "bfloat16", "vocab_size": 256000, "hidden_size": 2048,
            "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
            "max_position_embeddings": 8192, "attention_bias": False,
        },
    ),
    _row(
        "gemma-2-2b", "google/gemma-2-2b-it", "google/gemma-2-2b",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 2,614,341,888 parameters",
        config={
            "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "torch_dtype": "bfloat16", "vocab_size": 256000, "hidden_size": 2304,
            "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 8192, "sliding_window": 4096, "attention_bias": False,
        },
    ),
    _row(
        "gemma-2-9b", "google/gemma-2-9b-it", "google/gemma-2-9b",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 9,241,705,984 parameters",
        config={
            "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "torch_dtype": "bfloat16", "vocab_size": 256000, "hidden_size": 3584,
            "intermediate_size": 14336, "num_hidden_layers": 42, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
            "max_position_embeddings": 8192, "sliding_window": 4096, "attention_bias": False, "sliding_window_size": 4096,
        },
    ),
    _row(
        "gemma-2-27b", "google/gemma-2-27b-it", "google/gemma-2-27b",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 27,227,128,320 parameters",
        config={
            "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "torch_dtype": "bfloat16", "vocab_size": 256000, "hidden_size": 4608,
            "intermediate_size": 36864, "num_hidden_layers": 46, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
            "max_position_embeddings": 8192, "sliding_window": 4096, "attention_bias": False, "sliding_window_size": 4096,
        },
    ),
    _row(
        "gemma-3-1b", "google/gemma-3-1b-it", "google/gemma-3-1b-pt",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 999,885,952 parameters",
        config={
            "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "torch_dtype": "bfloat16", "vocab_size": 262144, "hidden_size": 1152,
            "intermediate_size": 6912, "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
            "max_position_embeddings": 32768, "sliding_window": 512, "attention_bias": False, "sliding_window_pattern": 6,
        },
    ),
    _row(
        "gemma-3-4b", "google/gemma-3-4b-it", "google/gemma-3-4b-pt",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; its vocabulary of 262,144 has 64 rows more in the checkpoint, as in the 27B model, which makes the published 4,300,079,472 parameters; positions as published",
        config={
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "dtype": "bfloat16", "tie_word_embeddings": True,
            "mm_tokens_per_image": 256,
            "text_config": {
                "model_type": "gemma3_text", "tie_word_embeddings": True, "vocab_size": 262208, "hidden_size": 2560, "intermediate_size": 10240,
                "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
                "rope_local_base_freq": 10000.0, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024, "attention_bias": False,
                "layer_types": [*[*["sliding_attention"] * 5, "full_attention"] * 5, *["sliding_attention"] * 4], "_sliding_window_pattern": 6,
                "sliding_window_pattern": 6,
            },
            "vision_config": {
                "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
                "num_attention_heads": 16, "num_channels": 3, "image_size": 896, "patch_size": 14, "vision_use_head": False,
            },
        },
    ),
    _row(
        "gemma-3-12b", "google/gemma-3-12b-it", "google/gemma-3-12b-pt",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; its vocabulary of 262,144 has 64 rows more in the checkpoint, as in the 27B model, which makes the published 12,187,325,040 parameters; positions as published",
        config={
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "dtype": "bfloat16", "tie_word_embeddings": True,
            "mm_tokens_per_image": 256,
            "text_config": {
                "model_type": "gemma3_text", "tie_word_embeddings": True, "vocab_size": 262208, "hidden_size": 3840, "intermediate_size": 15360,
                "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256, "max_position_embeddings": 131072,
                "rope_local_base_freq": 10000.0, "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024, "attention_bias": False, "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 8,
                "_sliding_window_pattern": 6, "sliding_window_pattern": 6,
            },
            "vision_config": {
                "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
                "num_attention_heads": 16, "num_channels": 3, "image_size": 896, "patch_size": 14, "vision_use_head": False,
            },
        },
    ),
    _row(
        "gemma-3-27b", "google/gemma-3-27b-it", "google/gemma-3-27b-pt",
        source="config.json of google/gemma-3-27b-it",
        config={
            "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "dtype": "bfloat16", "mm_tokens_per_image": 256,
            "text_config": {
                "model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 62,
                "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128, "max_position_embeddings": 131072, "sliding_window": 1024,
                "_sliding_window_pattern": 6, "attention_bias": False,
                "layer_types": [*[*["sliding_attention"] * 5, "full_attention"] * 10, "sliding_attention", "sliding_attention"],
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            },
            "vision_config": {
                "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
                "num_attention_heads": 16, "image_size": 896, "num_channels": 3, "patch_size": 14, "vision_use_head": False,
            },
        },
    ),
    _row(
        "gemma-4-e2b", "google/gemma-4-E2B-it", "google/gemma-4-E2B",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; audio tower as in the config.json of google/gemma-4-E4B",
        config={
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "dtype": "bfloat16", "tie_word_embeddings": True,
            "vision_soft_tokens_per_image": 280,
            "text_config": {
                "model_type": "gemma4_text", "dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 262144, "hidden_size": 1536,
                "intermediate_size": 6144, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
                "max_position_embeddings": 131072, "sliding_window": 512, "attention_bias": False, "attention_k_eq_v": False,
                "enable_moe_block": False, "global_head_dim": 512, "hidden_size_per_layer_input": 256,
                "layer_types": [*["sliding_attention"] * 4, "full_attention"] * 7, "num_kv_shared_layers": 20, "use_double_wide_mlp": True,
                "vocab_size_per_layer_input": 262144,
            },
            "vision_config": {
                "model_type": "gemma4_vision", "dtype": "bfloat16", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
                "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64, "max_position_embeddings": 131072, "attention_bias": False,
                "global_head_dim": 64, "patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10240, "standardize": False,
                "use_clipped_linears": True,
            },
            "audio_config": {
                "model_type": "gemma4_audio", "dtype": "bfloat16", "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8,
                "attention_chunk_size": 12, "attention_context_left": 13, "attention_context_right": 0, "conv_kernel_size": 5,
                "output_proj_dims": 1536, "residual_weight": 0.5, "subsampling_conv_channels": [128, 32], "use_clipped_linears": True,
            },
        },
    ),
    _row(
        "gemma-4-e4b", "google/gemma-4-E4B-it", "google/gemma-4-E4B",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; audio tower: config.json of google/gemma-4-E4B",
        config={
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "dtype": "bfloat16", "tie_word_embeddings": True,
            "vision_soft_tokens_per_image": 280,
            "text_config": {
                "model_type": "gemma4_text", "dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 262144, "hidden_size": 2560,
                "intermediate_size": 10240, "num_hidden_layers": 42, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
                "max_position_embeddings": 131072, "sliding_window": 512, "attention_bias": False, "attention_k_eq_v": False,
                "enable_moe_block": False, "global_head_dim": 512, "hidden_size_per_layer_input": 256,
                "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 7, "num_kv_shared_layers": 18, "use_double_wide_mlp": False,
                "vocab_size_per_layer_input": 262144,
            },
            "vision_config": {
                "model_type": "gemma4_vision", "dtype": "bfloat16", "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16,
                "num_attention_heads": 12, "num_key_value_heads": 12, "head_dim": 64, "max_position_embeddings": 131072, "attention_bias": False,
                "global_head_dim": 64, "patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10240, "standardize": False,
                "use_clipped_linears": True,
            },
            "audio_config": {
                "model_type": "gemma4_audio", "dtype": "bfloat16", "hidden_size": 1024, "num_hidden_layers": 12, "num_attention_heads": 8,
                "attention_chunk_size": 12, "attention_context_left": 13, "attention_context_right": 0, "conv_kernel_size": 5,
                "output_proj_dims": 1536, "residual_weight": 0.5, "subsampling_conv_channels": [128, 32], "use_clipped_linears": True,
            },
        },
    ),
    _row(
        "gemma-4-26b-a4b", "google/gemma-4-26B-A4B", "google/gemma-4-26B-A4B-it",
        source="config.json of google/gemma-4-26B-A4B",
        config={
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "dtype": "bfloat16", "tie_word_embeddings": True,
            "vision_soft_tokens_per_image": 280,
            "text_config": {
                "model_type": "gemma4_text", "dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 262144, "hidden_size": 2816,
                "intermediate_size": 2112, "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
                "max_position_embeddings": 262144, "sliding_window": 1024, "attention_bias": False, "attention_k_eq_v": True,
                "enable_moe_block": True, "global_head_dim": 512, "hidden_size_per_layer_input": 0,
                "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 5, "moe_intermediate_size": 704, "num_experts": 128,
                "num_global_key_value_heads": 2, "num_kv_shared_layers": 0, "top_k_experts": 8, "use_double_wide_mlp": False,
                "vocab_size_per_layer_input": 262144,
            },
            "vision_config": {
                "model_type": "gemma4_vision", "dtype": "bfloat16", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
                "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72, "max_position_embeddings": 131072, "attention_bias": False,
                "global_head_dim": 72, "patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10240, "standardize": True,
                "use_clipped_linears": False,
            },
            "audio_config": None,
        },
    ),
    _row(
        "gemma-4-31b", "google/gemma-4-31B-it", "google/gemma-4-31B",
        source="config.json of google/gemma-4-31B-it",
        config={
            "architectures": ["Gemma4ForConditionalGeneration"], "model_type": "gemma4", "dtype": "bfloat16", "tie_word_embeddings": True,
            "vision_soft_tokens_per_image": 280,
            "text_config": {
                "model_type": "gemma4_text", "dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 262144, "hidden_size": 5376,
                "intermediate_size": 21504, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256,
                "max_position_embeddings": 262144, "sliding_window": 1024, "attention_bias": False, "attention_k_eq_v": True,
                "enable_moe_block": False, "global_head_dim": 512, "hidden_size_per_layer_input": 0,
                "layer_types": [*["sliding_attention"] * 5, "full_attention"] * 10, "num_global_key_value_heads": 4, "num_kv_shared_layers": 0,
                "use_double_wide_mlp": False, "vocab_size_per_layer_input": 262144,
            },
            "vision_config": {
                "model_type": "gemma4_vision", "dtype": "bfloat16", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
                "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72, "max_position_embeddings": 131072, "attention_bias": False,
                "global_head_dim": 72, "patch_size": 16, "pooling_kernel_size": 3, "position_embedding_size": 10240, "standardize": True,
                "use_clipped_linears": False,
            },
            "audio_config": None,
        },
    ),
    _row(
        "phi-2", "microsoft/phi-2",
        source="config.json of KeshavArvindh/phi-2-GPTQ, read without its quantization; it counts to the published 2,779,683,840 parameters",
        config={
            "architectures": ["PhiForCausalLM"], "model_type": "phi", "torch_dtype": "float16", "tie_word_embeddings": False, "vocab_size": 51200,
            "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "max_position_embeddings": 2048, "qk_layernorm": False,
        },
    ),
    _row(
        "phi-3-mini-4k", "microsoft/Phi-3-mini-4k-instruct",
        source="config.json of microsoft/Phi-3-mini-4k-instruct",
        config={
            "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 32064,
            "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "max_position_embeddings": 4096, "sliding_window": 2047, "model_size": 3.8, "attention_bias": False,
        },
    ),
    _row(
        "phi-3-mini-128k", "microsoft/Phi-3-mini-128k-instruct",
        source="config.json of microsoft/Phi-3-mini-128k-instruct",
        config=_PHI_3_MINI_128K,
    ),
    _row(
        "phi-3.5-mini", "microsoft/Phi-3.5-mini-instruct",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 3,821,079,552 parameters",
        config=_PHI_3_MINI_128K,
    ),
    _row(
        "phi-3.5-moe", "microsoft/Phi-3.5-MoE-instruct",
        source="published dimensions; they count to the published 41,873,153,344 parameters",
        config={
            "architectures": ["PhimoeForCausalLM"], "model_type": "phimoe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 32064, "hidden_size": 4096, "intermediate_size": 6400, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 131072, "sliding_window": None, "attention_bias": True, "lm_head_bias": True,
            "num_experts_per_tok": 2, "num_local_experts": 16,
        },
    ),
    _row(
        "phi-4", "microsoft/phi-4", "phi-4-14b",
        source="config.json of microsoft/phi-4",
        config={
            "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 100352,
            "hidden_size": 5120, "intermediate_size": 17920, "num_hidden_layers": 40, "num_attention_heads": 40, "num_key_value_heads": 10,
            "max_position_embeddings": 16384, "sliding_window": None, "attention_bias": False,
        },
    ),
    _row(
        "phi-4-mini", "microsoft/Phi-4-mini-reasoning", "microsoft/Phi-4-mini-instruct",
        source="config.json of microsoft/Phi-4-mini-reasoning",
        config={
            "architectures": ["Phi3ForCausalLM"], "model_type": "phi4", "torch_dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 200064,
            "hidden_size": 3072, "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 24, "num_key_value_heads": 8,
            "max_position_embeddings": 131072, "sliding_window": 262144, "attention_bias": False, "full_attn_mod": 1, "interpolate_factor": 1,
            "lm_head_bias": False, "mlp_bias": False, "rope_scaling": {"type": "longrope"},
        },
    ),
    _row(
        "deepseek-v2-lite", "deepseek-ai/DeepSeek-V2-Lite", "deepseek-ai/DeepSeek-V2-Lite-Chat",
        source="config.json of deepseek-ai/DeepSeek-V2-Lite",
        config={
            "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 102400, "hidden_size": 2048, "intermediate_size": 10944, "num_hidden_layers": 27, "num_attention_heads": 16,
            "num_key_value_heads": 16, "max_position_embeddings": 163840, "attention_bias": False, "first_k_dense_replace": 1, "kv_lora_rank": 512,
            "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_routed_experts": 64, "n_shared_experts": 2, "num_experts_per_tok": 6,
            "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "rope_scaling": {"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"}, "topk_method": "greedy", "v_head_dim": 128,
        },
    ),
    _row(
        "deepseek-v2", "deepseek-ai/DeepSeek-V2", "deepseek-ai/DeepSeek-V2-Chat",
        source="published dimensions; they count to the published 235,741,434,880 parameters; positions as published",
        config={
            "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 102400, "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 60, "num_attention_heads": 128,
            "num_key_value_heads": 128, "head_dim": 64, "max_position_embeddings": 163840, "attention_bias": False, "first_k_dense_replace": 1,
            "kv_lora_rank": 512, "mlp_bias": False, "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 2,
            "num_experts_per_tok": 6, "q_lora_rank": 1536, "qk_head_dim": 192, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "topk_method": "greedy", "v_head_dim": 128,
        },
    ),
    _row(
        "deepseek-v3", "deepseek-ai/DeepSeek-V3", "deepseek-ai/DeepSeek-V3-0324",
        source="config.json of deepseek-ai/DeepSeek-V3",
        config={**_DEEPSEEK_V3, "quantization_config": _FP8_BLOCKS},
    ),
    _row(
        "deepseek-r1", "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-R1-0528",
        source="config.json of deepseek-ai/DeepSeek-R1",
        config={**_DEEPSEEK_V3, "quantization_config": _FP8_BLOCKS},
    ),
    _row(
        "deepseek-v3.2", "deepseek-ai/DeepSeek-V3.2", "deepseek-ai/DeepSeek-V3.2-Exp",
        source="config.json of deepseek-ai/DeepSeek-V3.2",
        config={
            "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 128,
            "num_key_value_heads": 128, "max_position_embeddings": 163840, "attention_bias": False, "first_k_dense_replace": 3, "index_head_dim": 128,
            "index_n_heads": 64, "index_topk": 2048, "kv_lora_rank": 512, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256,
            "n_shared_experts": 1, "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64, "rope_scaling": {"factor": 40, "original_max_position_embeddings": 4096, "type": "yarn"},
            "topk_method": "noaux_tc", "v_head_dim": 128,
            "quantization_config": {
                "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128],
            },
        },
    ),
    _row(
        "deepseek-v4-flash", "deepseek-ai/DeepSeek-V4-Flash",
        source="config.json of deepseek-ai/DeepSeek-V4-Flash",
        config={
            "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 129280, "hidden_size": 4096, "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512,
            "max_position_embeddings": 1048576, "sliding_window": 128, "attention_bias": False, "expert_dtype": "fp4", "hc_mult": 4,
            "index_head_dim": 128, "index_n_heads": 64, "index_topk": 512, "moe_intermediate_size": 2048, "n_routed_experts": 256,
            "n_shared_experts": 1, "num_experts_per_tok": 6, "num_hash_layers": 3, "num_nextn_predict_layers": 1, "o_groups": 8, "o_lora_rank": 1024,
            "q_lora_rank": 1024, "qk_rope_head_dim": 64, "rope_scaling": {"factor": 16, "original_max_position_embeddings": 65536, "type": "yarn"},
            "topk_method": "noaux_tc", "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
            "quantization_config": {
                "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128],
            },
        },
    ),
    _row(
        "deepseek-v4-pro", "deepseek-ai/DeepSeek-V4-Pro",
        source="config.json of deepseek-ai/DeepSeek-V4-Pro",
        config={
            "architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 129280, "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 1, "head_dim": 512,
            "max_position_embeddings": 1048576, "sliding_window": 128, "attention_bias": False, "expert_dtype": "fp4", "hc_mult": 4,
            "index_head_dim": 128, "index_n_heads": 64, "index_topk": 1024, "moe_intermediate_size": 3072, "n_routed_experts": 384,
            "n_shared_experts": 1, "num_experts_per_tok": 6, "num_hash_layers": 3, "num_nextn_predict_layers": 1, "o_groups": 16, "o_lora_rank": 1024,
            "q_lora_rank": 1536, "qk_rope_head_dim": 64, "rope_scaling": {"factor": 16, "original_max_position_embeddings": 65536, "type": "yarn"},
            "topk_method": "noaux_tc", "compress_ratios": [128, *[128, 4] * 30, 0],
            "quantization_config": {
                "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "scale_fmt": "ue8m0", "weight_block_size": [128, 128],
            },
        },
    ),
    _row(
        "deepseek-coder-6.7b", "deepseek-ai/deepseek-coder-6.7b-base", "deepseek-ai/deepseek-coder-6.7b-instruct",
        source="config.json of deepseek-ai/deepseek-coder-6.7b-base",
        config={
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "float16", "tie_word_embeddings": False, "vocab_size": 32256,
            "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
            "max_position_embeddings": 16384, "attention_bias": False, "rope_scaling": {"factor": 4.0, "type": "linear"},
        },
    ),
    _row(
        "gpt-oss-20b", "openai/gpt-oss-20b",
        source="published dimensions; vLLM 0.32's own class counts them to the published 20,914,757,184 parameters",
        config={
            "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
            "num_key_value_heads": 8, "head_dim": 64, "max_position_embeddings": 131072, "sliding_window": 128, "num_experts_per_tok": 4,
            "experts_per_token": 4, "attention_bias": True, "initial_context_length": 4096,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096}, "num_local_experts": 32,
            "layer_types": ["sliding_attention", "full_attention"] * 12,
            "quantization_config": {
                "quant_method": "mxfp4",
                "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
            },
        },
    ),
    _row(
        "gpt-oss-120b", "openai/gpt-oss-120b",
        source="config.json of openai/gpt-oss-120b",
        config={
            "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "tie_word_embeddings": False, "vocab_size": 201088, "hidden_size": 2880,
            "intermediate_size": 2880, "num_hidden_layers": 36, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
            "max_position_embeddings": 131072, "sliding_window": 128, "attention_bias": True, "experts_per_token": 4, "initial_context_length": 4096,
            "layer_types": ["sliding_attention", "full_attention"] * 18, "num_experts_per_tok": 4, "num_local_experts": 128,
            "rope_scaling": {"factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn"},
            "quantization_config": {
                "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"],
                "quant_method": "mxfp4",
            },
        },
    ),
    _row(
        "glm-4-32b", "zai-org/GLM-4-32B-0414",
        source="published dimensions; they count to the published 32,566,081,536 parameters; positions as published",
        config={
            "architectures": ["Glm4ForCausalLM"], "model_type": "glm4", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 151552,
            "hidden_size": 6144, "intermediate_size": 23040, "num_hidden_layers": 61, "num_attention_heads": 48, "num_key_value_heads": 2,
            "head_dim": 128, "max_position_embeddings": 32768, "attention_bias": False,
        },
    ),
    _row(
        "glm-4.5", "zai-org/GLM-4.5",
        source="config.json of zai-org/GLM-4.5",
        config={
            "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 151552, "hidden_size": 5120, "intermediate_size": 12288, "num_hidden_layers": 92, "num_attention_heads": 96,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "attention_bias": True, "moe_intermediate_size": 1536,
            "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1,
            "use_qk_norm": True,
        },
    ),
    _row(
        "glm-4.5-air", "zai-org/GLM-4.5-Air",
        source="published dimensions; without the next-token layers that the checkpoint adds, 106,852,245,504 parameters",
        config={
            "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 10944, "num_hidden_layers": 46, "num_attention_heads": 96,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "attention_bias": True, "first_k_dense_replace": 1,
            "moe_intermediate_size": 1408, "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "num_nextn_predict_layers": 1,
            "use_qk_norm": False,
        },
    ),
    _row(
        "glm-5", "zai-org/GLM-5",
        source="config.json of zai-org/GLM-5",
        config=_GLM_5,
    ),
    _row(
        "glm-5.1", "zai-org/GLM-5.1",
        source="config.json of zai-org/GLM-5.1",
        config=_GLM_5,
    ),
    _row(
        "glm-5.2", "zai-org/GLM-5.2",
        source="config.json of zai-org/GLM-5.2",
        config=_GLM_5_2,
    ),
    _row(
        "glm-5.3", "zai-org/GLM-5.3",
        source="config.json of zai-org/GLM-5.3-FP8, read without its quantization; parameters agree",
        config=_GLM_5_2,
    ),
    _row(
        "kimi-k2", "moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2", "moonshotai/Kimi-K2-Base",
        source="config.json of moonshotai/Kimi-K2.5, its text part, with the 131,072 positions and FP8 blocks that Kimi K2 was published with; parameters agree",
        config={
            "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 64,
            "num_key_value_heads": 64, "max_position_embeddings": 131072, "attention_bias": False, "first_k_dense_replace": 1, "kv_lora_rank": 512,
            "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8,
            "num_nextn_predict_layers": 0, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "rope_scaling": {"factor": 32.0, "original_max_position_embeddings": 4096, "type": "yarn"}, "topk_method": "noaux_tc", "v_head_dim": 128,
            "quantization_config": _FP8_BLOCKS,
        },
    ),
    _row(
        "kimi-k2.5", "moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.6",
        source="config.json of moonshotai/Kimi-K2.5",
        config={
            "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "dtype": "bfloat16", "tie_word_embeddings": False,
            "text_config": {
                "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "dtype": "bfloat16", "tie_word_embeddings": False,
                "vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 18432, "num_hidden_layers": 61, "num_attention_heads": 64,
                "num_key_value_heads": 64, "max_position_embeddings": 262144, "attention_bias": False, "first_k_dense_replace": 1,
                "kv_lora_rank": 512, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 384, "n_shared_experts": 1,
                "num_experts_per_tok": 8, "num_nextn_predict_layers": 0, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "rope_scaling": {"factor": 64.0, "original_max_position_embeddings": 4096, "type": "yarn"}, "topk_method": "noaux_tc",
                "v_head_dim": 128,
                "quantization_config": {
                    "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "int"}}},
                    "format": "pack-quantized",
                    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
                    "quant_method": "compressed-tensors",
                },
            },
            "vision_config": {
                "init_pos_emb_height": 64, "init_pos_emb_time": 4, "init_pos_emb_width": 64, "merge_kernel_size": [2, 2], "mm_hidden_size": 1152,
                "mm_projector_type": "patchmerger", "patch_size": 14, "pos_emb_type": "divided_fixed", "text_hidden_size": 7168,
                "vt_hidden_size": 1152, "vt_intermediate_size": 4304, "vt_num_attention_heads": 16, "vt_num_hidden_layers": 27,
            },
        },
    ),
    _row(
        "kimi-k3", "moonshotai/Kimi-K3",
        source="config.json of moonshotai/Kimi-K3",
        config={
            "architectures": ["KimiK3ForConditionalGeneration"], "model_type": "kimi_k3", "dtype": "bfloat16", "tie_word_embeddings": False,
            "text_config": {
                "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "dtype": "bfloat16", "tie_word_embeddings": False,
                "vocab_size": 163840, "hidden_size": 7168, "intermediate_size": 33792, "num_hidden_layers": 93, "num_attention_heads": 96,
                "num_key_value_heads": 96, "max_position_embeddings": 1048576, "attn_res_block_size": 12, "first_k_dense_replace": 1,
                "kv_lora_rank": 512, "latent_moe_use_norm": True,
                "linear_attn_config": {
                    "head_dim": 128, "full_attn_layers": [*range(4, 93, 4), 93], "gate_lower_bound": -5.0,
                    "kda_layers": [n for n in range(1, 93) if n % 4], "num_heads": 96, "short_conv_kernel_size": 4, "use_full_rank_gate": True,
                },
                "mla_use_nope": True, "mla_use_output_gate": True, "moe_intermediate_size": 3072, "moe_layer_freq": 1, "num_experts": 896,
                "num_experts_per_token": 16, "num_nextn_predict_layers": 0, "num_shared_experts": 2, "q_lora_rank": 1536, "qk_nope_head_dim": 128,
                "qk_rope_head_dim": 64, "routed_expert_hidden_size": 3584, "topk_method": "noaux_tc", "v_head_dim": 128,
                "quantization_config": {
                    "config_groups": {"group_0": {"format": "mxfp4-pack-quantized", "targets": ["Linear"], "weights": {"group_size": 32, "num_bits": 4, "strategy": "group", "symmetric": True, "type": "float"}}},
                    "format": "mxfp4-pack-quantized",
                    "ignore": ["re:.*self_attn.*", "re:.*shared_experts.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*", "re:.*lm_head.*", "re:.*vision_tower.*", "re:.*mm_projector.*"],
                    "quant_method": "compressed-tensors",
                },
            },
            "vision_config": {
                "attn_bias": False, "init_pos_emb_height": 64, "init_pos_emb_time": 4, "init_pos_emb_width": 64, "linear_bias": False,
                "merge_kernel_size": [2, 2], "mlp_type": "mlp2", "mm_hidden_size": 1024, "mm_projector_type": "patchmergerv2", "norm_type": "rmsnorm",
                "patch_embed_proj_bias": False, "patch_size": 14, "pos_emb_type": "divided_fixed", "qkv_hidden_size": 1536, "text_hidden_size": 7168,
                "vt_hidden_size": 1024, "vt_intermediate_size": 4096, "vt_num_attention_heads": 12, "vt_num_hidden_layers": 27,
            },
        },
    ),
    _row(
        "kimi-linear-48b-a3b", "moonshotai/Kimi-Linear-48B-A3B-Instruct",
        source="published dimensions; they count to 49,122,675,072 parameters, 6,656 off the published count (buffers); positions as published",
        config={
            "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 163840, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 27, "num_attention_heads": 32,
            "num_key_value_heads": 32, "head_dim": 64, "max_position_embeddings": 1048576, "attention_bias": False, "first_k_dense_replace": 1,
            "kv_lora_rank": 512,
            "layer_types": [*[*["linear_attention"] * 3, "full_attention"] * 6, "linear_attention", "linear_attention", "full_attention"],
            "linear_attn_config": {
                "head_dim": 128, "full_attn_layers": [*range(4, 28, 4), 27], "kda_layers": [n for n in range(1, 27) if n % 4], "num_heads": 32,
                "short_conv_kernel_size": 4,
            },
            "linear_conv_kernel_dim": 4, "linear_head_dim": 128, "linear_num_heads": 32, "mlp_layer_types": ["dense", *["sparse"] * 26],
            "model_max_length": 1048576, "moe_intermediate_size": 1024, "moe_layer_freq": 1, "num_experts": 256, "num_experts_per_token": 8,
            "num_shared_experts": 1, "q_lora_rank": None, "qk_head_dim": 192, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        },
    ),
    _row(
        "minimax-m2.7", "MiniMaxAI/MiniMax-M2.7",
        source="config.json of MiniMaxAI/MiniMax-M2.7",
        config={
            "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 204800, "attn_type_list": [1] * 62, "mtp_transformer_layers": 1,
            "num_experts_per_tok": 8, "num_local_experts": 256, "num_mtp_modules": 3, "qk_norm_type": "per_layer", "shared_intermediate_size": 0,
            "use_mtp": True, "use_qk_norm": True, "use_routing_bias": True,
            "quantization_config": {
                "activation_scheme": "dynamic", "fmt": "float8_e4m3fn", "quant_method": "fp8", "weight_block_size": [128, 128],
                "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
            },
        },
    ),
    _row(
        "minimax-m2.5", "MiniMaxAI/MiniMax-M2.5", "MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.1",
        source="config.json of MiniMaxAI/MiniMax-M2.7, the later release, with the 196,608 positions of nvidia/MiniMax-M2.5-NVFP4; parameters agree",
        config={
            "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62, "num_attention_heads": 48,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 196608, "attn_type_list": [1] * 62, "mtp_transformer_layers": 1,
            "num_experts_per_tok": 8, "num_local_experts": 256, "num_mtp_modules": 3, "qk_norm_type": "per_layer", "shared_intermediate_size": 0,
            "use_mtp": True, "use_qk_norm": True, "use_routing_bias": True,
            "quantization_config": {
                "activation_scheme": "dynamic", "fmt": "float8_e4m3fn", "quant_method": "fp8", "weight_block_size": [128, 128],
                "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
            },
        },
    ),
    _row(
        "minimax-m3", "MiniMaxAI/MiniMax-M3",
        source="config.json of MiniMaxAI/MiniMax-M3",
        config={
            "architectures": ["MiniMaxM3ForCausalLM"], "model_type": "minimax_m3", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 200064, "hidden_size": 6144, "intermediate_size": 3072, "num_hidden_layers": 60, "num_attention_heads": 64,
            "num_key_value_heads": 4, "head_dim": 128, "max_position_embeddings": 1048576, "attention_output_gate": False,
            "dense_intermediate_size": 12288, "first_k_dense_replace": 3, "moe_intermediate_size": 3072, "moe_layer_freq": [*[0] * 3, *[1] * 57],
            "n_shared_experts": 1, "num_experts_per_tok": 4, "num_local_experts": 128, "num_mtp_modules": 7, "num_nextn_predict_layers": 1,
            "qk_norm_type": "per_head", "shared_intermediate_size": 3072,
            "sparse_attention_config": {
                "sparse_attention_freq": [*[0] * 3, *[1] * 57], "sparse_block_size": 128, "sparse_disable_index_value": [*[0] * 3, *[1] * 57],
                "sparse_index_dim": 128, "sparse_init_block": 0, "sparse_local_block": 1, "sparse_num_index_heads": 4, "sparse_score_type": "max",
                "sparse_topk_blocks": 16, "use_sparse_attention": True,
            },
            "use_gemma_norm": True, "use_qk_norm": True, "use_routing_bias": True,
        },
    ),
    _row(
        "nemotron-super-49b", "nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        source="config.json of nvidia/Llama-3_3-Nemotron-Super-49B-v1",
        config={
            "architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 128256, "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": None,
            "max_position_embeddings": 131072, "attention_bias": False, "mlp_bias": False,
            "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
            "block_configs": [_nas(2.625, 8), *[_nas(5.25, 8)] * 5, _nas(2.625), _nas(2.625), *[_nas(5.25, 8)] * 3, _nas(3.28125), *[_nas(5.25, 8)] * 30, _nas(1.3125), _nas(2.625), _nas(2.625), _nas(1.3125), _nas(5.25), _nas(1.3125), _nas(2.625), *[_nas(1.3125)] * 3, _nas(5.25, 8), _nas(1.3125), _nas(1.0), _nas(1.0), _nas(1.3125), *[_nas(1.0)] * 3, _nas(1.3125), _nas(1.3125), _nas(0.5), _nas(0.5), _nas(1.0), _nas(1.0), _nas(0.5), _nas(0.5), _nas(1.0), _nas(0.5), _nas(0.5), *[_nas(5.25, 8)] * 9],
        },
    ),
    _row(
        "nemotron-nano-9b-v2", "nvidia/NVIDIA-Nemotron-Nano-9B-v2",
        source="published dimensions; they count to the published 8,888,227,328 parameters; positions as published",
        config={
            "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 131072, "hidden_size": 4480, "intermediate_size": 15680, "num_hidden_layers": 56, "num_attention_heads": 40,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "sliding_window": None, "attention_bias": False,
            "chunk_size": 128, "conv_kernel": 4, "expand": 2, "mamba_head_dim": 80, "mamba_num_heads": 128, "mamba_proj_bias": False,
            "mamba_ssm_cache_dtype": "float32", "mlp_bias": False, "n_groups": 8, "ssm_state_size": 128, "use_bias": False, "use_conv_bias": True,
            "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        },
    ),
    _row(
        "nemotron-3-nano-30b-a3b", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        source="config.json of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
        config={
            "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 131072, "hidden_size": 2688, "intermediate_size": 1856, "num_hidden_layers": 52, "num_attention_heads": 32,
            "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 262144, "sliding_window": None, "attention_bias": False,
            "chunk_size": 128, "conv_kernel": 4, "expand": 2, "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_head_dim": 64, "mamba_num_heads": 64, "mamba_proj_bias": False, "mamba_ssm_cache_dtype": "float32", "mlp_bias": False,
            "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712, "n_groups": 8, "n_routed_experts": 128, "n_shared_experts": 1,
            "num_experts_per_tok": 6, "ssm_state_size": 128, "use_bias": False, "use_conv_bias": True,
        },
    ),
    _row(
        "nemotron-3-super-120b-a12b-fp8", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
        source="config.json of nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8",
        config={
            "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 131072, "hidden_size": 4096, "intermediate_size": 2688, "num_hidden_layers": 88, "num_attention_heads": 32,
            "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 262144, "sliding_window": None, "attention_bias": False,
            "chunk_size": 128, "conv_kernel": 4, "expand": 2,
            "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME",
            "mamba_head_dim": 64, "mamba_num_heads": 128, "mamba_proj_bias": False, "mamba_ssm_cache_dtype": "float32", "mlp_bias": False,
            "moe_intermediate_size": 2688, "moe_latent_size": 1024, "moe_shared_expert_intermediate_size": 5376, "moe_shared_expert_overlap": False,
            "mtp_hybrid_override_pattern": "*E", "n_groups": 8, "n_routed_experts": 512, "n_shared_experts": 1, "num_experts_per_tok": 22,
            "num_nextn_predict_layers": 1, "ssm_state_size": 128, "use_bias": False, "use_conv_bias": True,
        },
    ),
    _row(
        "nemotron-3-ultra-550b-a55b", "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
        source="config.json of nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16",
        config={
            "architectures": ["NemotronHForCausalLM"], "model_type": "nemotron_h", "dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 131072, "hidden_size": 8192, "intermediate_size": 5120, "num_attention_heads": 64, "num_key_value_heads": 2,
            "head_dim": 128, "max_position_embeddings": 262144, "sliding_window": None, "attention_bias": False, "chunk_size": 128, "conv_kernel": 4,
            "expand": 2,
            "layers_block_type": _blocks("MEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"),
            "mamba_head_dim": 64, "mamba_num_heads": 256, "mamba_proj_bias": False, "mamba_ssm_cache_dtype": "float32", "mlp_bias": False,
            "moe_intermediate_size": 5120, "moe_latent_size": 2048, "moe_shared_expert_intermediate_size": 10240, "moe_shared_expert_overlap": False,
            "mtp_layers_block_type": ["attention", "moe"], "n_groups": 8, "n_routed_experts": 512, "n_shared_experts": 1, "num_experts_per_tok": 22,
            "num_nextn_predict_layers": 1, "ssm_state_size": 128, "use_bias": False, "use_conv_bias": True,
        },
    ),
    _row(
        "granite-4.0-h-small", "ibm-granite/granite-4.0-h-small",
        source="published dimensions; they count to the published 32,207,337,984 parameters; positions as published",
        config={
            "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "torch_dtype": "bfloat16",
            "tie_word_embeddings": True, "vocab_size": 100352, "hidden_size": 4096, "intermediate_size": 768, "num_hidden_layers": 40,
            "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 131072, "attention_bias": False,
            "layer_types": [*["linear_attention"] * 5, "full_attention", *["linear_attention"] * 4] * 4, "mamba_chunk_size": 256,
            "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1,
            "mamba_n_heads": 128, "mamba_proj_bias": False, "num_experts_per_tok": 10, "num_local_experts": 72, "shared_intermediate_size": 1536,
        },
    ),
    _row(
        "granite-4.0-h-tiny", "ibm-granite/granite-4.0-h-tiny",
        source="published dimensions; they count to the published 6,939,037,248 parameters; positions as published",
        config={
            "architectures": ["GraniteMoeHybridForCausalLM"], "model_type": "granitemoehybrid", "torch_dtype": "bfloat16",
            "tie_word_embeddings": True, "vocab_size": 100352, "hidden_size": 1536, "intermediate_size": 512, "num_hidden_layers": 40,
            "num_attention_heads": 12, "num_key_value_heads": 4, "max_position_embeddings": 131072, "attention_bias": False,
            "layer_types": [*["linear_attention"] * 5, "full_attention", *["linear_attention"] * 4] * 4, "mamba_chunk_size": 256,
            "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_expand": 2, "mamba_n_groups": 1,
            "mamba_n_heads": 48, "mamba_proj_bias": False, "num_experts_per_tok": 6, "num_local_experts": 64, "shared_intermediate_size": 1024,
        },
    ),
    _row(
        "command-r", "CohereForAI/c4ai-command-r-v01", "CohereLabs/c4ai-command-r-v01",
        source="published dimensions; they count to the published 34,980,831,232 parameters",
        config={
            "architectures": ["CohereForCausalLM"], "model_type": "cohere", "torch_dtype": "float16", "tie_word_embeddings": True,
            "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528, "num_hidden_layers": 40, "num_attention_heads": 64,
            "num_key_value_heads": 64, "max_position_embeddings": 8192, "attention_bias": False, "use_qk_norm": False, "model_max_length": 131072,
        },
    ),
    _row(
        "command-r-plus", "CohereForAI/c4ai-command-r-plus-08-2024", "CohereLabs/c4ai-command-r-plus-08-2024",
        source="published dimensions; they count to the published 103,810,674,688 parameters; positions: config.json by way of github.com/kvcache-ai/kvcache-blog",
        config={
            "architectures": ["CohereForCausalLM"], "model_type": "cohere", "torch_dtype": "float16", "tie_word_embeddings": True,
            "vocab_size": 256000, "hidden_size": 12288, "intermediate_size": 33792, "num_hidden_layers": 64, "num_attention_heads": 96,
            "num_key_value_heads": 8, "max_position_embeddings": 131072, "attention_bias": False, "use_qk_norm": True,
        },
    ),
    _row(
        "command-a", "CohereForAI/c4ai-command-a-03-2025", "CohereLabs/c4ai-command-a-03-2025",
        source="published dimensions; they count to the published 111,057,580,032 parameters; positions: config.json by way of github.com/kvcache-ai/kvcache-blog",
        config={
            "architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 256000, "hidden_size": 12288, "intermediate_size": 36864, "num_hidden_layers": 64, "num_attention_heads": 96,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "sliding_window": 4096, "attention_bias": False,
            "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 16,
        },
    ),
    _row(
        "command-r7b", "CohereLabs/c4ai-command-r7b-12-2024",
        source="published dimensions; they count to the published 8,028,033,024 parameters; positions: config.json by way of github.com/kvcache-ai/kvcache-blog",
        config={
            "architectures": ["Cohere2ForCausalLM"], "model_type": "cohere2", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 256000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 132096, "sliding_window": 4096, "attention_bias": False,
            "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 8,
        },
    ),
    _row(
        "falcon-7b", "tiiuae/falcon-7b", "tiiuae/falcon-7b-instruct",
        source="published dimensions; counted by vLLM 0.32's own class",
        config={
            "architectures": ["FalconForCausalLM"], "model_type": "falcon", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "max_position_embeddings": 2048,
            "multi_query": True, "new_decoder_architecture": False, "parallel_attn": True, "alibi": False, "bias": False, "num_kv_heads": 71,
        },
    ),
    _row(
        "falcon-40b", "tiiuae/falcon-40b", "tiiuae/falcon-40b-instruct",
        source="config.json of tiiuae/falcon-40b",
        config={
            "architectures": ["RWForCausalLM"], "model_type": "RefinedWeb", "torch_dtype": "bfloat16", "vocab_size": 65024, "hidden_size": 8192,
            "alibi": False, "bias": False, "n_head": 128, "n_head_kv": 8, "n_layer": 60, "parallel_attn": True,
        },
    ),
    _row(
        "falcon-180b", "tiiuae/falcon-180B-chat", "tiiuae/falcon-180B",
        source="config.json of tiiuae/falcon-180B-chat",
        config={
            "architectures": ["FalconForCausalLM"], "model_type": "falcon", "torch_dtype": "bfloat16", "vocab_size": 65024, "hidden_size": 14848,
            "num_hidden_layers": 80, "num_attention_heads": 232, "alibi": False, "bias": False, "multi_query": True, "new_decoder_architecture": True,
            "num_kv_heads": 8, "parallel_attn": True,
        },
    ),
    _row(
        "falcon-h1-7b", "tiiuae/Falcon-H1-7B-Instruct",
        source="published dimensions; they count to the published 7,585,654,880 parameters; positions as published",
        config={
            "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 130049, "hidden_size": 3072, "intermediate_size": 12288, "num_hidden_layers": 44, "num_attention_heads": 12,
            "num_key_value_heads": 2, "head_dim": 128, "max_position_embeddings": 262144, "attention_bias": False, "mamba_chunk_size": 256,
            "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 128, "mamba_d_ssm": 3072, "mamba_d_state": 256, "mamba_expand": 2,
            "mamba_n_groups": 1, "mamba_n_heads": 24, "mamba_norm_before_gate": True, "mamba_proj_bias": False, "mamba_rms_norm": True,
            "mlp_bias": False, "projectors_bias": False,
        },
    ),
    _row(
        "falcon-mamba-7b", "tiiuae/falcon-mamba-7b",
        source="published dimensions; they count to the published 7,272,665,088 parameters",
        config={
            "architectures": ["FalconMambaForCausalLM"], "model_type": "falcon_mamba", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 65024, "hidden_size": 4096, "intermediate_size": 8192, "num_hidden_layers": 64, "conv_kernel": 4, "expand": 2,
            "state_size": 16, "time_step_rank": 256, "use_bias": False, "use_conv_bias": True,
        },
    ),
    _row(
        "olmo-2-7b", "allenai/OLMo-2-1124-7B", "allenai/OLMo-2-1124-7B-Instruct",
        source="dimensions kept by github.com/mlc-ai/mlc-llm",
        config={
            "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "torch_dtype": "float32", "tie_word_embeddings": False,
            "vocab_size": 100352, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 32, "max_position_embeddings": 4096,
        },
    ),
    _row(
        "olmo-2-13b", "allenai/OLMo-2-1124-13B", "allenai/OLMo-2-1124-13B-Instruct",
        source="dimensions kept by github.com/mlc-ai/mlc-llm",
        config={
            "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "torch_dtype": "float32", "tie_word_embeddings": False,
            "vocab_size": 100352, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40,
            "num_key_value_heads": 40, "max_position_embeddings": 4096,
        },
    ),
    _row(
        "olmo-2-32b", "allenai/OLMo-2-0325-32B", "allenai/OLMo-2-0325-32B-Instruct",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 32,234,279,936 parameters",
        config={
            "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "torch_dtype": "float32", "tie_word_embeddings": False,
            "vocab_size": 100352, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
            "num_key_value_heads": 8, "max_position_embeddings": 4096,
        },
    ),
    _row(
        "olmo-3-7b", "allenai/Olmo-3-7B-Instruct",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; they count to the published 7,298,011,136 parameters; positions as published",
        config={
            "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 100278, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 32, "max_position_embeddings": 65536, "sliding_window": 4096, "attention_bias": False,
        },
    ),
    _row(
        "olmo-3-32b", "allenai/Olmo-3-32B-Think",
        source="dimensions kept by github.com/AI-Hypercomputer/maxtext; they count to the published 32,233,522,176 parameters; positions as published",
        config={
            "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 100278, "hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
            "num_key_value_heads": 8, "max_position_embeddings": 65536, "sliding_window": 4096, "attention_bias": False,
        },
    ),
    _row(
        "olmoe-1b-7b", "allenai/OLMoE-1B-7B-0924",
        source="published dimensions; they count to the published 6,919,161,856 parameters",
        config={
            "architectures": ["OlmoeForCausalLM"], "model_type": "olmoe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 50304, "hidden_size": 2048, "intermediate_size": 1024, "num_hidden_layers": 16, "num_attention_heads": 16,
            "num_key_value_heads": 16, "max_position_embeddings": 4096, "attention_bias": False, "num_experts": 64, "num_experts_per_tok": 8,
        },
    ),
    _row(
        "jamba-v0.1", "ai21labs/Jamba-v0.1",
        source="published dimensions; they count to the published 51,570,323,328 parameters",
        config={
            "architectures": ["JambaForCausalLM"], "model_type": "jamba", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 262144, "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1,
            "expert_layer_period": 2, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 256, "mamba_expand": 2,
            "mamba_proj_bias": False, "num_experts": 16, "num_experts_per_tok": 2,
        },
    ),
    _row(
        "jamba-large-1.5", "ai21labs/AI21-Jamba-Large-1.5",
        source="published dimensions; they count to the published 398,555,145,696 parameters",
        config={
            "architectures": ["JambaForCausalLM"], "model_type": "jamba", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 65536, "hidden_size": 8192, "intermediate_size": 24576, "num_hidden_layers": 72, "num_attention_heads": 64,
            "num_key_value_heads": 8, "max_position_embeddings": 262144, "attn_layer_offset": 4, "attn_layer_period": 8, "expert_layer_offset": 1,
            "expert_layer_period": 2, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 512, "mamba_expand": 2,
            "mamba_proj_bias": False, "num_experts": 16, "num_experts_per_tok": 2,
        },
    ),
    _row(
        "jamba2-3b", "ai21labs/AI21-Jamba2-3B",
        source="published dimensions; they count to the published 3,029,337,472 parameters",
        config={
            "architectures": ["JambaForCausalLM"], "model_type": "jamba", "torch_dtype": "bfloat16", "tie_word_embeddings": True, "vocab_size": 65536,
            "hidden_size": 2560, "intermediate_size": 8192, "num_hidden_layers": 28, "num_attention_heads": 20, "num_key_value_heads": 1,
            "max_position_embeddings": 262144, "attn_layer_offset": 7, "attn_layer_period": 14, "expert_layer_offset": 1, "expert_layer_period": 2,
            "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_state": 16, "mamba_dt_rank": 160, "mamba_expand": 2, "mamba_proj_bias": False,
            "num_experts": 1, "num_experts_per_tok": 1,
        },
    ),
    _row(
        "exaone-4.0-32b", "LGAI-EXAONE/EXAONE-4.0-32B",
        source="published dimensions; they count to the published 32,003,216,384 parameters; positions as published",
        config={
            "architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 102400, "hidden_size": 5120, "intermediate_size": 27392, "num_hidden_layers": 64, "num_attention_heads": 40,
            "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 131072, "sliding_window": 4096,
            "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 16, "sliding_window_pattern": 4,
        },
    ),
    _row(
        "ernie-4.5-21b-a3b", "baidu/ERNIE-4.5-21B-A3B-Thinking",
        source="published dimensions; they count to the published 21,825,437,888 parameters",
        config={
            "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 103424, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28, "num_attention_heads": 20,
            "num_key_value_heads": 4, "max_position_embeddings": 131072, "moe_intermediate_size": 1536, "moe_k": 6, "moe_layer_end_index": 27,
            "moe_layer_interval": 1, "moe_layer_start_index": 1, "moe_norm_min": 1e-12, "moe_num_experts": 64, "moe_num_shared_experts": 2,
            "use_bias": False,
        },
    ),
    _row(
        "ernie-4.5-300b-a47b", "baidu/ERNIE-4.5-300B-A47B-Base-PT",
        source="published dimensions; they count to the published 299,484,163,264 parameters",
        config={
            "architectures": ["Ernie4_5_MoeForCausalLM"], "model_type": "ernie4_5_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 103424, "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 54, "num_attention_heads": 64,
            "num_key_value_heads": 8, "max_position_embeddings": 131072, "moe_intermediate_size": 3584, "moe_k": 8, "moe_layer_end_index": 53,
            "moe_layer_interval": 1, "moe_layer_start_index": 3, "moe_norm_min": 1e-12, "moe_num_experts": 64, "moe_num_shared_experts": 0,
            "use_bias": False,
        },
    ),
    _row(
        "lfm2-1.2b", "LiquidAI/LFM2-1.2B",
        source="config.json of LiquidAI/LFM2-1.2B",
        config={
            "architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "torch_dtype": "bfloat16", "vocab_size": 65536, "hidden_size": 2048,
            "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 128000,
            "block_auto_adjust_ff_dim": True, "block_dim": 2048, "block_ff_dim": 12288, "block_ffn_dim_multiplier": 1.0, "block_multiple_of": 256,
            "block_use_swiglu": True, "conv_L_cache": 3, "conv_bias": False, "conv_dim": 2048, "conv_dim_out": 2048,
            "full_attn_idxs": [2, 5, 8, 10, 12, 14], "num_heads": 32,
        },
    ),
    _row(
        "lfm2-8b-a1b", "LiquidAI/LFM2-8B-A1B",
        source="published dimensions; they count to the published 8,339,929,856 parameters",
        config={
            "architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 7168, "num_hidden_layers": 24, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 128000, "conv_L_cache": 3, "conv_bias": False,
            "layer_types": [*["conv", "conv", "full_attention", "conv"] * 5, "conv", "full_attention", "conv", "conv"], "moe_intermediate_size": 1792,
            "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "use_expert_bias": True,
        },
    ),
    _row(
        "mimo-7b", "XiaomiMiMo/MiMo-7B-RL", "XiaomiMiMo/MiMo-7B-Base",
        source="config.json of XiaomiMiMo/MiMo-7B-RL",
        config={
            "architectures": ["MiMoForCausalLM"], "model_type": "mimo", "torch_dtype": "bfloat16", "tie_word_embeddings": False, "vocab_size": 151680,
            "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8,
            "head_dim": 128, "max_position_embeddings": 32768, "sliding_window": 32768, "use_mrope": False, "use_sliding_window": False,
            "attention_bias": True, "num_nextn_predict_layers": 1,
        },
    ),
    _row(
        "mimo-v2-flash", "XiaomiMiMo/MiMo-V2-Flash",
        source="config.json of XiaomiMiMo/MiMo-V2-Flash",
        config={
            "architectures": ["MiMoV2FlashForCausalLM"], "model_type": "mimo_v2_flash", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 152576, "hidden_size": 4096, "intermediate_size": 16384, "num_hidden_layers": 48, "num_attention_heads": 64,
            "num_key_value_heads": 4, "head_dim": 192, "max_position_embeddings": 262144, "sliding_window": 128, "v_head_dim": 128,
            "sliding_window_size": 128, "attention_chunk_size": 128, "swa_num_attention_heads": 64, "swa_num_key_value_heads": 8, "swa_head_dim": 192,
            "swa_v_head_dim": 128, "hybrid_layer_pattern": [0, *[1] * 4, *[0, *[1] * 5] * 7, 0], "moe_layer_freq": [0, *[1] * 47],
            "moe_intermediate_size": 2048, "n_routed_experts": 256, "num_experts_per_tok": 8, "topk_method": "noaux_tc", "attention_bias": False,
            "add_swa_attention_sink_bias": True, "add_full_attention_sink_bias": False, "quantization_config": _FP8_BLOCKS,
        },
    ),
    _row(
        "step-3.7-flash", "stepfun-ai/Step-3.7-Flash",
        source="config.json of stepfun-ai/Step-3.7-Flash",
        config={
            "architectures": ["Step3p7FlashForCausalLM"], "model_type": "step3p7", "torch_dtype": "bfloat16", "vocab_size": 128896,
            "hidden_size": 4096, "intermediate_size": 11264, "num_hidden_layers": 45, "num_attention_heads": 64, "num_key_value_heads": 8,
            "head_dim": 128, "max_position_embeddings": 65536, "sliding_window": 512,
            "layer_types": [*["full_attention", *["sliding_attention"] * 3] * 11, "full_attention"], "first_k_dense_replace": 3, "num_experts": 288,
            "num_experts_per_tok": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280, "n_shared_experts": 1, "num_nextn_predict_layers": 3,
            "use_moe_router_bias": True,
        },
    ),
    _row(
        "solar-open-100b", "upstage/Solar-Open-100B",
        source="published dimensions; they count to the published 102,651,793,408 parameters",
        config={
            "architectures": ["SolarOpenForCausalLM"], "model_type": "solar_open", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 196608, "hidden_size": 4096, "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128,
            "max_position_embeddings": 131072, "attention_bias": False, "moe_intermediate_size": 1280, "n_routed_experts": 128, "n_shared_experts": 1,
            "num_experts_per_tok": 8,
        },
    ),
    _row(
        "internlm2.5-7b", "internlm/internlm2_5-7b", "internlm/internlm2_5-7b-chat",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 7,737,708,544 parameters",
        config={
            "architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "torch_dtype": "bfloat16", "tie_word_embeddings": False,
            "vocab_size": 92544, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
            "num_key_value_heads": 8, "max_position_embeddings": 32768, "bias": False, "rope_scaling": {"type": "dynamic", "factor": 2.0},
        },
    ),
    _row(
        "starcoder2-7b", "bigcode/starcoder2-7b",
        source="dimensions kept by github.com/mlc-ai/mlc-llm; they count to the published 7,173,923,840 parameters",
        config={
            "architectures": ["Starcoder2ForCausalLM"], "model_type": "starcoder2", "torch_dtype": "bfloat16", "vocab_size": 49152,
            "hidden_size": 4608, "intermediate_size": 18432, "num_hidden_layers": 32, "num_attention_heads": 36, "num_key_value_heads": 4,
            "max_position_embeddings": 16384, "sliding_window": 4096, "mlp_type": "default", "norm_type": "layer_norm", "use_bias": True,
        },
    ),
    _row(
        "whisper-large-v3", "openai/whisper-large-v3",
        source="published dimensions; counted by vLLM 0.32's own class",
        config={
            "architectures": ["WhisperForConditionalGeneration"], "model_type": "whisper", "torch_dtype": "float16", "vocab_size": 51866,
            "num_hidden_layers": 32, "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32, "encoder_attention_heads": 20,
            "decoder_attention_heads": 20, "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_mel_bins": 128, "max_source_positions": 1500,
            "max_target_positions": 448, "is_encoder_decoder": True,
        },
    ),
    _row(
        "bloom-176b", "bigscience/bloom",
        source="published dimensions; they count to the published 176,247,271,424 parameters",
        config={
            "architectures": ["BloomForCausalLM"], "model_type": "bloom", "torch_dtype": "bfloat16", "tie_word_embeddings": True,
            "vocab_size": 250880, "hidden_size": 14336, "n_head": 112, "n_layer": 70, "slow_but_exact": False,
        },
    ),
    _row(
        "mamba-2.8b", "state-spaces/mamba-2.8b-hf",
        source="published dimensions; they count to the published 2,768,345,600 parameters",
        config={
            "architectures": ["MambaForCausalLM"], "model_type": "mamba", "torch_dtype": "float32", "tie_word_embeddings": True, "vocab_size": 50280,
            "hidden_size": 2560, "intermediate_size": 5120, "num_hidden_layers": 64, "conv_kernel": 4, "expand": 2, "state_size": 16,
            "time_step_rank": 160, "use_bias": False, "use_conv_bias": True,
        },
    ),
)
"""Every model of the catalogue, families together."""
# fmt: on
