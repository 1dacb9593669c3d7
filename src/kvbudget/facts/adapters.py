"""vLLM's slots for LoRA adapters: which ranks there are, and what models adapt beside their linear layers.

Source: vLLM 0.32, config/lora.py (MaxLoRARanks), lora/model_manager.py (_create_lora_modules) and lora/layers/;
`embedding_modules` and `is_3d_moe_weight` of the classes in model_executor/models/; read 2026-11.
"""

from __future__ import annotations

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""Values of `--max-lora-rank`."""

DTYPES = ("auto", "float16", "bfloat16")
"""Values of `--lora-dtype`."""

LARGEST_VOCABULARY = 258_048
"""Rows beyond which adapters of the output head are refused (lora/layers/logits_processor.py)."""

ADAPTS_VOCABULARY = frozenset(
    {
        "apertus",
        "ernie4_5",
        "exaone4",
        "exaone_moe",
        "falcon_h1",
        "granite",
        "granitemoe",
        "granitemoehybrid",
        "granitemoeshared",
        "hyperclovax",
        "internlm3",
        "jamba",
        "lfm2",
        "lfm2_moe",
        "llama",
        "llama4_text",
        "minicpm",
        "minicpm3",
        "ministral3",
        "mistral",
        "mixtral",
        "nemotron",
        "nemotron-nas",
        "nemotron_h",
        "phi3",
        "phimoe",
        "qwen3",
        "qwen3_5_moe_text",
        "qwen3_5_text",
        "qwen3_moe",
        "qwen3_vl_moe_text",
        "qwen3_vl_text",
        "solar",
        "telechat2",
    }
)
"""Model types whose embedding and output head take adapters too (`embedding_modules`)."""

ADAPTS_EMBEDDING = frozenset({"cohere", "cohere2"})
"""Model types whose embedding alone does."""

JOINED_EXPERTS = frozenset({"gpt_oss", "qwen3_5_moe_text", "qwen3_omni_moe_text", "qwen3_vl_moe_text"})
"""Model types whose experts' gate and up matrix share one adapter (`is_3d_moe_weight`)."""
