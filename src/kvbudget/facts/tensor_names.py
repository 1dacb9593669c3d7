"""How checkpoints name their tensors, beside the names that `kvbudget.model` uses.

Read from the files that transformers 5.24 and the makers' own code write (modeling_*.py of each family), from the
quantizers (AutoGPTQ, AutoAWQ, compressed-tensors 0.17, ModelOpt, bitsandbytes 0.49, MLX), and for GGUF from the
constants of llama.cpp's gguf-py. Read in November 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PARAMETERS = frozenset(
    {
        "weight",
        "bias",
        # GPTQ, AWQ, EETQ, HQQ
        "qweight",
        "qzeros",
        "scales",
        "g_idx",
        "perm",
        # FP8 and compressed-tensors
        "scale",
        "weight_scale",
        "weight_scale_inv",
        "weight_scale_2",
        "weight_packed",
        "weight_shape",
        "weight_zero_point",
        "weight_g_idx",
        "weight_global_scale",
        "input_scale",
        "input_zero_point",
        "input_global_scale",
        "output_scale",
        "activation_scale",
        "pre_quant_scale",
        # bitsandbytes
        "absmax",
        "quant_map",
        "nested_absmax",
        "nested_quant_map",
        "quant_state",
        "bitsandbytes__nf4",
        "bitsandbytes__fp4",
        "SCB",
        "weight_format",
        # MLX
        "biases",
    }
)
"""Last parts of a tensor's name that name a parameter of a module, and not the module."""

VALUES = frozenset({"", "weight", "bias"})
"""Those that hold a module's own values where it is not quantized."""

EXPERT_SUFFIXES = ("_blocks", "_scales", "_bias")
"""Ends of the names of joined experts' parameters, which have no module of their own (gpt-oss)."""

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
"""Types whose values an engine casts to its own when it loads them; safetensors' spelling."""

SERVED_IN: Mapping[str, str] = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""What a checkpoint is served in whose config names no type: the first of these that it stores."""

LAYER_WORDS = frozenset({"layers", "h", "blk", "block", "blocks"})
"""What stands before the number of a layer."""

MTP_WORDS = ("mtp", "nextn", "eagle")
"""How the parts of a path begin that stands for multi-token prediction."""

NOT_LOADED = frozenset(
    {"inv_freq", "masked_bias", "position_ids", "rotary_emb", "rope_freqs", "num_batches_tracked", "causal_mask"}
)
"""Tables that some checkpoints hold and engines compute for themselves."""

KV_SCALES = frozenset({"k_scale", "v_scale", "q_scale", "prob_scale", "kv_scale"})
"""Single numbers that calibrate a quantized KV cache."""

JOINED: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("q_proj", "k_proj", "v_proj"),
    "qkv": ("q_proj", "k_proj", "v_proj"),
    "Wqkv": ("q_proj", "k_proj", "v_proj"),
    "wqkv": ("q_proj", "k_proj", "v_proj"),
    "W_pack": ("q_proj", "k_proj", "v_proj"),
    "c_attn": ("q_proj", "k_proj", "v_proj"),
    "query_key_value": ("q_proj", "k_proj", "v_proj"),
    "attn_qkv": ("q_proj", "k_proj", "v_proj"),
    "gate_up_proj": ("gate_proj", "up_proj"),
    "gate_and_up_proj": ("gate_proj", "up_proj"),
    "dense_h_to_4h": ("gate_proj", "up_proj"),
    "input_linear": ("gate_proj", "up_proj"),
    "w13": ("gate_proj", "up_proj"),
    "fused_qkv_a_proj": ("q_a_proj", "kv_a_proj_with_mqa"),
}
"""Matrices that some checkpoints join, by the last part of their names."""

RENAMED: Mapping[str, tuple[str, ...]] = {
    "wo": ("o_proj",),
    "dense": ("o_proj",),
    "out_proj": ("o_proj",),
    "c_proj": ("o_proj", "down_proj"),
    "wq": ("q_proj",),
    "wk": ("k_proj",),
    "wv": ("v_proj",),
    "q_lin": ("q_proj",),
    "w1": ("gate_proj",),
    "w2": ("down_proj", "up_proj"),
    "w3": ("up_proj",),
    "v1": ("up_proj",),
    "fc1": ("up_proj",),
    "c_fc": ("up_proj",),
    "fc_in": ("up_proj",),
    "dense_h_to_4h": ("up_proj",),
    "fc2": ("down_proj",),
    "fc_out": ("down_proj",),
    "dense_4h_to_h": ("down_proj",),
    "output_linear": ("down_proj",),
    "router": ("gate",),
    "gate": ("router",),
    "wte": ("embed_tokens",),
    "word_embeddings": ("embed_tokens",),
    "tok_embeddings": ("embed_tokens",),
    "embed_in": ("embed_tokens",),
    "embeddings": ("embed_tokens",),
    "embedding": ("embed_tokens",),
    "embed": ("embed_tokens",),
    "token_embd": ("embed_tokens",),
    "wpe": ("embed_positions",),
    "position_embd": ("embed_positions",),
    "output_layer": ("lm_head",),
    "embed_out": ("lm_head",),
    "output": ("lm_head",),
    "ln_f": ("norm",),
    "final_layernorm": ("norm",),
    "output_norm": ("norm", "norm_f", "final_layernorm"),
    # GGUF
    "attn_q": ("q_proj",),
    "attn_k": ("k_proj",),
    "attn_v": ("v_proj",),
    "attn_output": ("o_proj", "out_proj"),
    "attn_q_norm": ("q_norm",),
    "attn_k_norm": ("k_norm",),
    "attn_q_a": ("q_a_proj",),
    "attn_q_b": ("q_b_proj",),
    "attn_kv_a_mqa": ("kv_a_proj_with_mqa",),
    "attn_kv_b": ("kv_b_proj",),
    "attn_q_a_norm": ("q_a_layernorm",),
    "attn_kv_a_norm": ("kv_a_layernorm",),
    "attn_sinks": ("sinks",),
    "attn_norm": ("input_layernorm",),
    "ffn_norm": ("pre_feedforward_layernorm", "post_attention_layernorm"),
    "post_attention_norm": ("post_attention_layernorm",),
    "post_ffw_norm": ("post_feedforward_layernorm",),
    "ffn_gate": ("gate_proj",),
    "ffn_up": ("up_proj",),
    "ffn_down": ("down_proj",),
    "ffn_gate_inp": ("gate", "router", "router.layer"),
    "exp_probs_b": ("e_score_correction_bias",),
    "ffn_gate_exps": ("experts.gate_proj",),
    "ffn_up_exps": ("experts.up_proj",),
    "ffn_down_exps": ("experts.down_proj",),
    "ffn_gate_shexp": ("gate_proj",),
    "ffn_up_shexp": ("up_proj",),
    "ffn_down_shexp": ("down_proj",),
    "ffn_gate_inp_shexp": ("shared_expert_gate",),
    "ssm_a": ("A_log",),
    "ssm_d": ("D",),
    "ssm_dt": ("dt_bias", "dt_proj"),
    "ssm_conv1d": ("conv1d",),
    "ssm_in": ("in_proj",),
    "ssm_out": ("out_proj",),
    "ssm_x": ("x_proj",),
    "ssm_norm": ("norm",),
}
"""Other names of a module, by the last part: what `kvbudget.model` may call it."""

DIVIDED: Mapping[str, str] = {"attn_k_b": "attn_kv_b", "attn_v_b": "attn_kv_b"}
"""Parts of one matrix that some checkpoints store apart (llama.cpp's DeepSeek V2 and V3)."""

CONTAINERS = frozenset({"U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64", "BOOL"})
"""Types of safetensors in which packed values lie, whose shape does not tell how many."""

SHARED_EXPERTS = "_shexp"
"""End of the names of a shared expert's tensors in GGUF files."""
