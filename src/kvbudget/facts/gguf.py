"""What GGUF files call the shapes of a model, a row an architecture.

Metadata says with llama.cpp's keys what a `config.json` says with Hugging Face's. Source of the keys: gguf 0.19.0 (the
Python package of llama.cpp), constants.py, `Keys`; of what a converter writes under them: llama.cpp 0c1e57098,
convert_hf_to_gguf.py; read 2026-11-29.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

KEYS = (
    ("embedding_length", "hidden_size"),
    ("block_count", "num_hidden_layers"),
    ("feed_forward_length", "intermediate_size"),
    ("attention.head_count", "num_attention_heads"),
    ("attention.head_count_kv", "num_key_value_heads"),
    ("attention.key_length", "head_dim"),
    ("context_length", "max_position_embeddings"),
    ("attention.sliding_window", "sliding_window"),
    ("expert_used_count", "num_experts_per_tok"),
    ("expert_feed_forward_length", "moe_intermediate_size"),
    ("expert_shared_count", "n_shared_experts"),
    ("leading_dense_block_count", "first_k_dense_replace"),
    ("nextn_predict_layers", "num_nextn_predict_layers"),
)
"""(key behind the architecture's name, Hugging Face's); where it is missing the class's default counts."""

NEEDED = ("embedding_length", "block_count", "context_length")
"""Keys that every model of text has."""


class Architecture(NamedTuple):
    """How the config of an architecture is written.

    Attributes:
        model_type: Hugging Face's model type.
        name: The class that an engine loads.
        experts: The config's key for the number of experts.
        shared_width: The config's key for the width of the shared expert, where metadata gives it.
        bias: The config's key for biases of queries, keys and values.
        moe: The row that counts instead if the file has experts.
        plan: How layers differ, "" if they do not: "mla", "delta" (gated delta net and attention in turns), "hybrid"
            (state layers have no KV heads), "parallel" (attention and state side by side), "conv", "state".
        more: What the config says besides.
    """

    model_type: str
    name: str
    experts: str = "num_experts"
    shared_width: str = ""
    bias: str = "attention_bias"
    moe: str = ""
    plan: str = ""
    more: Mapping[str, object] = MappingProxyType({})


_FLOAT_STATE: Mapping[str, object] = MappingProxyType({"mamba_ssm_dtype": "float32"})
"""As the published configs of Qwen3.5 and 3.6 say."""

ARCHITECTURES: Mapping[str, Architecture] = MappingProxyType(
    {
        "llama": Architecture("llama", "LlamaForCausalLM", moe="llama+experts"),
        "llama+experts": Architecture("mixtral", "MixtralForCausalLM", "num_local_experts"),
        "mistral3": Architecture("ministral3", "Ministral3ForCausalLM"),
        "qwen2": Architecture("qwen2", "Qwen2ForCausalLM"),
        "qwen2vl": Architecture("qwen2", "Qwen2ForCausalLM"),
        "qwen2moe": Architecture(
            "qwen2_moe", "Qwen2MoeForCausalLM", shared_width="shared_expert_intermediate_size", bias="qkv_bias"
        ),
        "qwen3": Architecture("qwen3", "Qwen3ForCausalLM"),
        "qwen3vl": Architecture("qwen3", "Qwen3ForCausalLM"),
        "qwen3moe": Architecture("qwen3_moe", "Qwen3MoeForCausalLM"),
        "qwen3vlmoe": Architecture("qwen3_moe", "Qwen3MoeForCausalLM"),
        "qwen3next": Architecture(
            "qwen3_next", "Qwen3NextForCausalLM", shared_width="shared_expert_intermediate_size", plan="delta"
        ),
        "qwen35": Architecture("qwen3_5_text", "Qwen3_5ForCausalLM", plan="delta", more=_FLOAT_STATE),
        "qwen35moe": Architecture(
            "qwen3_5_moe_text",
            "Qwen3_5MoeForCausalLM",
            shared_width="shared_expert_intermediate_size",
            plan="delta",
            more=_FLOAT_STATE,
        ),
        "gemma": Architecture("gemma", "GemmaForCausalLM"),
        "gemma2": Architecture("gemma2", "Gemma2ForCausalLM"),
        "gemma3": Architecture("gemma3_text", "Gemma3ForCausalLM"),
        "phi2": Architecture("phi", "PhiForCausalLM"),
        "phi3": Architecture("phi3", "Phi3ForCausalLM"),
        "phimoe": Architecture("phimoe", "PhimoeForCausalLM", "num_local_experts"),
        "deepseek": Architecture("deepseek", "DeepseekForCausalLM", "n_routed_experts"),
        "deepseek2": Architecture("deepseek_v3", "DeepseekV3ForCausalLM", "n_routed_experts", plan="mla"),
        "glm4": Architecture("glm4", "Glm4ForCausalLM"),
        "glm4moe": Architecture("glm4_moe", "Glm4MoeForCausalLM", "n_routed_experts"),
        "gpt-oss": Architecture("gpt_oss", "GptOssForCausalLM", "num_local_experts"),
        "granite": Architecture("granite", "GraniteForCausalLM"),
        "granitemoe": Architecture("granitemoe", "GraniteMoeForCausalLM", "num_local_experts"),
        "granitehybrid": Architecture(
            "granitemoehybrid",
            "GraniteMoeHybridForCausalLM",
            "num_local_experts",
            shared_width="shared_intermediate_size",
            plan="hybrid",
        ),
        "falcon-h1": Architecture("falcon_h1", "FalconH1ForCausalLM", plan="parallel"),
        "lfm2": Architecture("lfm2", "Lfm2ForCausalLM", plan="conv", more={"block_auto_adjust_ff_dim": False}),
        "mamba": Architecture("mamba", "MambaForCausalLM", plan="state"),
        "command-r": Architecture("cohere", "CohereForCausalLM"),
        "cohere2": Architecture("cohere2", "Cohere2ForCausalLM"),
        "olmo2": Architecture("olmo2", "Olmo2ForCausalLM"),
        "olmoe": Architecture("olmoe", "OlmoeForCausalLM"),
        "smollm3": Architecture("smollm3", "SmolLM3ForCausalLM"),
        "exaone4": Architecture("exaone4", "Exaone4ForCausalLM"),
        "seed_oss": Architecture("seed_oss", "SeedOssForCausalLM"),
        "starcoder2": Architecture("starcoder2", "Starcoder2ForCausalLM", bias="use_bias"),
        "internlm2": Architecture("internlm2", "InternLM2ForCausalLM", bias="bias"),
        "ernie4_5": Architecture("ernie4_5", "Ernie4_5ForCausalLM", bias="use_bias"),
        "hunyuan-dense": Architecture("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM"),
        "minimax-m2": Architecture("minimax_m2", "MiniMaxM2ForCausalLM", "num_local_experts"),
        "dots1": Architecture("dots1", "Dots1ForCausalLM", "n_routed_experts"),
    }
)
"""By `general.architecture`."""

WITHOUT_SIGMOID = Architecture("deepseek_v2", "DeepseekV2ForCausalLM", "n_routed_experts", plan="mla")
"""What a file with latent attention is whose router does not score with a sigmoid: one architecture name serves both
versions (llama.cpp, convert_hf_to_gguf.py)."""
