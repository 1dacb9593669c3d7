"""Which type llama.cpp's `llama-quantize` gives each tensor of a file, and what it calls the tensors.

Source: llama.cpp 0c1e57098 (ggml 0.25.3), src/llama-quant.cpp: tensor_allows_quantization, tensor_get_category,
llama_tensor_get_type_impl, tensor_type_fallback; src/models/ for sizes; convert_hf_to_gguf.py and gguf-py for names.
Read 2026-11. The rules themselves are in `kvbudget.model.gguf_mix`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "F32": "f32",
        "F16": "f16",
        "BF16": "bf16",
        "Q4_0": "q4_0",
        "Q4_1": "q4_1",
        "Q5_0": "q5_0",
        "Q5_1": "q5_1",
        "Q8_0": "q8_0",
        "Q2_K_S": "q2_K",
        "Q2_K": "q2_K",
        "Q3_K_S": "q3_K",
        "Q3_K_M": "q3_K",
        "Q3_K_L": "q3_K",
        "Q4_K_S": "q4_K",
        "Q4_K_M": "q4_K",
        "Q5_K_S": "q5_K",
        "Q5_K_M": "q5_K",
        "Q6_K": "q6_K",
        "IQ1_S": "iq1_s",
        "IQ1_M": "iq1_m",
        "IQ2_XXS": "iq2_xxs",
        "IQ2_XS": "iq2_xs",
        "IQ2_S": "iq2_xs",
        "IQ2_M": "iq2_s",
        "IQ3_XXS": "iq3_xxs",
        "IQ3_XS": "iq3_s",
        "IQ3_S": "iq3_s",
        "IQ3_M": "iq3_s",
        "IQ4_NL": "iq4_nl",
        "IQ4_XS": "iq4_xs",
        "TQ1_0": "tq1_0",
        "TQ2_0": "tq2_0",
        "MXFP4_MOE": "mxfp4",
    }
)
"""File type -> the type of most of its tensors (llama_ftype_get_default_type)."""

FILE_TYPE_ALIASES: Mapping[str, str] = MappingProxyType(
    {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M", "FP16": "F16", "MXFP4": "MXFP4_MOE"}
)
"""Other spellings (tools/quantize/quantize.cpp, QUANT_OPTIONS)."""

NEEDS_IMATRIX = frozenset({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ3_XXS", "IQ3_XS", "Q2_K_S"})
"""File types that are refused without an importance matrix: those with tensors in IQ3_XXS or less, embeddings and head
apart, and one more (tensor_requires_imatrix)."""

FALLBACKS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(
            ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"),
            "iq4_nl",
        ),
        **dict.fromkeys(("q2_K", "q3_K", "tq1_0", "tq2_0"), "q4_0"),
        "q4_K": "q5_0",
        "q5_K": "q5_1",
        "q6_K": "q8_0",
    }
)
"""Type -> what stands in for it where a row does not fill its blocks; f16 where that does not fit either."""

TENSORS: Mapping[str, str] = MappingProxyType(
    {
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "self_attn.q_a_proj": "attn_q_a",
        "self_attn.q_b_proj": "attn_q_b",
        "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_b_proj": "attn_kv_b",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
        "experts.*.gate_proj": "ffn_gate_exps",
        "experts.*.up_proj": "ffn_up_exps",
        "experts.*.down_proj": "ffn_down_exps",
        "shared_expert.gate_proj": "ffn_gate_shexp",
        "shared_expert.up_proj": "ffn_up_shexp",
        "shared_expert.down_proj": "ffn_down_shexp",
        "shared_experts.gate_proj": "ffn_gate_shexp",
        "shared_experts.up_proj": "ffn_up_shexp",
        "shared_experts.down_proj": "ffn_down_shexp",
        "shared_mlp.gate_proj": "ffn_gate_shexp",
        "shared_mlp.up_proj": "ffn_up_shexp",
        "shared_mlp.down_proj": "ffn_down_shexp",
        "mamba.in_proj": "ssm_in",
        "mamba.x_proj": "ssm_x",
        "mamba.dt_proj": "ssm_dt",
        "mamba.out_proj": "ssm_out",
        "mixer.in_proj": "ssm_in",
        "mixer.x_proj": "ssm_x",
        "mixer.dt_proj": "ssm_dt",
        "mixer.out_proj": "ssm_out",
        "linear_attn.in_proj_qkvz": "attn_qkvz",
        "linear_attn.in_proj_ba": "ssm_ba",
        "linear_attn.in_proj_qkv": "attn_qkv",
        "linear_attn.in_proj_z": "attn_gate",
        "linear_attn.in_proj_b": "ssm_beta",
        "linear_attn.in_proj_a": "ssm_alpha",
        "linear_attn.out_proj": "ssm_out",
    }
)
"""The end of a matrix's path -> its name in GGUF files (gguf-py, tensor_mapping.py). `attn_kv_b` and `attn_qkvz` are
stored as two tensors each, see `kvbudget.model.gguf_mix`."""

ARCHITECTURES = frozenset(
    {
        "arcee",
        "baichuan",
        "bloom",
        "chatglm",
        "cohere",
        "cohere2",
        "deepseek_v2",
        "deepseek_v3",
        "ernie4_5",
        "ernie4_5_moe",
        "exaone4",
        "falcon",
        "falcon_h1",
        "gemma",
        "gemma2",
        "gemma3",
        "glm4",
        "gpt_neox",
        "gpt_oss",
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "hunyuan_v1_dense",
        "internlm2",
        "jamba",
        "kimi_k2",
        "llama",
        "llama4",
        "mamba",
        "minicpm",
        "minimax_m2",
        "ministral3",
        "mistral",
        "mistral3",
        "mixtral",
        "nemotron_h",
        "olmo",
        "olmo2",
        "olmo3",
        "olmoe",
        "phi3",
        "phimoe",
        "qwen",
        "qwen2",
        "qwen2_5_vl",
        "qwen2_moe",
        "qwen2_vl",
        "qwen3",
        "qwen3_moe",
        "qwen3_next",
        "qwen3_vl",
        "qwen3_vl_moe",
        "RefinedWeb",
        "seed_oss",
        "smollm3",
        "stablelm",
        "starcoder2",
    }
)
"""Model types, without the ``_text`` of a nested one, whose tensors carry the names above in GGUF files
(convert_hf_to_gguf.py); towers stand in a file of their
own (mmproj). Left out are those whose files number layers that predict several tokens with the others (GLM 4.5, Qwen
3.5): where a mix spends its bits depends on how many there are."""

JOINED_QKV = frozenset({"RefinedWeb", "bloom", "chatglm", "falcon", "gpt_neox", "phi3", "qwen"})
"""Model types whose files keep q, k and v as one tensor, as their checkpoints do."""

JOINED_GATE = frozenset({"chatglm", "glm4", "phi3"})
"""Model types whose files keep the gate in the up projection."""

FALCON = frozenset({"RefinedWeb", "falcon"})
"""The one architecture with rules of its own."""

SEVENTY_LAYERS = 80
SEVENTY = frozenset({"llama", "mistral", "olmo", "qwen2", "qwen2_vl", "qwen2_5_vl"})
"""Model types that are a 70B to llama.cpp with so many layers (src/models/, load_arch_hparams)."""

SEVENTY_GROUPED = frozenset({"llama", "mistral"})
"""Of these the ones that are a 65B where queries do not share KV heads."""

KV_HEADS_FOR_ALL = frozenset({"qwen3_next", "falcon_h1"})
"""Hybrids that write one number of KV heads for all layers; others write 0 for layers without attention, and rules
look at the first layer."""

MIXTRAL_EXPERTS = 8
"""Models with so many experts keep attention in more bits."""
