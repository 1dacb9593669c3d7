"""vLLM's speculative decoding: its methods, and what it makes of a checkpoint's own draft layers and of draft heads.

Source: vLLM 0.32, config/speculative.py (methods, __post_init__ and hf_config_override), config/vllm.py
(num_lookahead_tokens, async scheduling, the runner), model_executor/models/*_mtp.py, llama_eagle.py and
llama_eagle3.py; read 2026-11. What stands here was held against the classes themselves, built on the meta device.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

MTP = "mtp"
EAGLE = "eagle"
EAGLE3 = "eagle3"
DRAFT_MODEL = "draft_model"
SUFFIX = "suffix"

WEIGHTLESS = frozenset({"ngram", "ngram_gpu", SUFFIX})
"""Methods that look the next tokens up in what was said before: no weights, no cache."""

METHODS = frozenset({MTP, EAGLE, EAGLE3, DRAFT_MODEL}) | WEIGHTLESS
"""Methods that are counted."""

UNCOUNTED_METHODS = frozenset({"custom_class", "dflash", "dspark", "extract_hidden_states", "medusa", "mlp_speculator"})
"""Methods that vLLM has besides."""

OLD_MTP_METHODS = frozenset(
    {
        "bailing_hybrid_mtp",
        "bailing_hybrid_v3_mtp",
        "deepseek_mtp",
        "dots3_note_mtp",
        "ernie_mtp",
        "exaone4_5_mtp",
        "exaone_moe_mtp",
        "gemma4_mtp",
        "glm4_moe_lite_mtp",
        "glm4_moe_mtp",
        "glm5_next_mtp",
        "glm_ocr_mtp",
        "hy_v3_mtp",
        "hy_v4_mtp",
        "inkling_mtp",
        "kimi_k3_mtp",
        "longcat_flash_mtp",
        "mimo_mtp",
        "mimo_v2_mtp",
        "minimax_m3_mtp",
        "nemotron_h_mtp",
        "pangu_ultra_moe_mtp",
        "qwen3_5_mtp",
        "qwen3_next_mtp",
        "qwen4_exp_mtp",
        "step3p5_mtp",
    }
)
"""Other names of `mtp`, still taken (config/speculative.py, MTPModelTypes)."""

SYNCHRONOUS = frozenset({"ngram", SUFFIX})
"""Methods with which steps are not scheduled ahead (config/vllm.py, __post_init__)."""

FIRST_RUNNER = frozenset({SUFFIX})
"""Methods that the second model runner does not know (config/vllm.py, _get_v2_model_runner_unsupported_features)."""

KEYS = frozenset(
    {
        "attention_backend",
        "code_revision",
        "disable_eagle_block_drop",
        "disable_padded_drafter_batch",
        "draft_load_config",
        "draft_sample_method",
        "draft_tensor_parallel_size",
        "dspark_draft_topk",
        "enable_adaptive_verification",
        "enforce_eager",
        "index_share_for_mtp_iteration",
        "kv_cache_dtype",
        "max_model_len",
        "method",
        "model",
        "moe_backend",
        "num_speculative_tokens",
        "num_speculative_tokens_per_batch_size",
        "parallel_drafting",
        "prompt_lookup_max",
        "prompt_lookup_min",
        "quantization",
        "rejection_sample_method",
        "revision",
        "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor",
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_min_token_prob",
        "synthetic_acceptance_length",
        "synthetic_acceptance_rates",
        "use_heterogeneous_vocab",
        "use_local_argmax_reduction",
    }
)
"""Keys of `--speculative-config` (config/speculative.py, SpeculativeConfig)."""

OLD_KEYS = frozenset(
    {
        "acceptance_method",
        "disable_by_batch_size",
        "disable_log_stats",
        "disable_logprobs",
        "disable_mqa_scorer",
        "posterior_alpha",
        "posterior_threshold",
        "speculative_token_tree",
        "typical_acceptance_sampler_posterior_alpha",
        "typical_acceptance_sampler_posterior_threshold",
    }
)
"""Keys that older versions had; none of them moves memory."""

KEYS_THAT_MOVE_MEMORY = ("kv_cache_dtype", "attention_backend", "parallel_drafting")
"""Keys whose effect is not counted: another type or layout of the draft's cache, other shapes of a head."""


class OwnDraft(NamedTuple):
    """How vLLM builds the draft layers that a checkpoint brings along.

    Attributes:
        split_projection: Tensor parallelism divides the projection of the embedding beside the hidden state.
        prefix: Module path of the layers, for exclusion lists of quantized checkpoints; "" behind the model's own.
    """

    split_projection: bool = False
    prefix: str = ""


OWN_DRAFTS: Mapping[str, OwnDraft] = MappingProxyType(
    {
        "deepseek_v3": OwnDraft(),
        "deepseek_v32": OwnDraft(),
        "glm_moe_dsa": OwnDraft(),
        "nemotron_h": OwnDraft(prefix="mtp.layers"),
        "qwen3_5_text": OwnDraft(split_projection=True, prefix="mtp.layers"),
        "qwen3_5_moe_text": OwnDraft(split_projection=True, prefix="mtp.layers"),
        "glm4_moe": OwnDraft(),
        "mimo": OwnDraft(),
        "qwen3_next": OwnDraft(split_projection=True, prefix="mtp.layers"),
    }
)
"""Model type -> how its draft layers are built (model_executor/models/deepseek_mtp.py and others of that name)."""

UNREAD_OWN_DRAFTS = frozenset(
    {
        "bailing_hybrid",
        "deepseek_v4",
        "ernie4_5_moe",
        "exaone4_5",
        "exaone_moe",
        "gemma4_text",
        "glm4_moe_lite",
        "glm_ocr_text",
        "hunyuan_v1_moe",
        "hy_v3",
        "kimi_k3",
        "kimi_linear",
        "longcat_flash",
        "mimo_v2_flash",
        "minimax_m3",
        "minimax_m3_vl_text",
        "pangu_ultra_moe",
        "step3p5",
    }
)
"""Model types with draft layers that were not held against vLLM's classes."""

EAGLE_LAYERS = frozenset({"llama"})
"""Model types whose layers a head of these classes is made of."""

EAGLE_CLASSES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        EAGLE: frozenset({"EagleLlamaForCausalLM", "LlamaForCausalLM"}),
        EAGLE3: frozenset(
            {
                "Eagle3LlamaForCausalLM",
                "Eagle3Qwen2_5vlForCausalLM",
                "Eagle3Qwen3vlForCausalLM",
                "LlamaForCausalLM",
                "LlamaForCausalLMEagle3",
                "MiniMaxM2ForCausalLM",
                "Eagle3MiniMaxM2ForCausalLM",
            }
        ),
    }
)
"""Method -> architectures of heads that vLLM builds from Llama's layers (model_executor/models/registry.py)."""

EAGLE3_STATES = 3
"""Hidden states of the target that an EAGLE-3 head reads where its config does not say (llama_eagle3.py)."""

TREE_DEPTH = 24
"""`num_speculative_tokens` of suffix decoding where nobody says (suffix_decoding_max_tree_depth)."""
