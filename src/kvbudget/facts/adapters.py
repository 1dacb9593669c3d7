"""vLLM's slots for LoRA adapters: which ranks there are, and what models adapt beside their linear layers.

Source: vLLM 0.32, config/lora.py (MaxLoRARanks), lora/model_manager.py (_create_lora_modules) and lora/layers/;
`embedding_modules` and `is_3d_moe_weight` of the classes in model_executor/models/; read 2026-11.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

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

_BOTH = ("k_proj", "v_proj", "gate_proj")
_SHARED = ("shared_mlp.gate_proj",)

JOINED_LINEARS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "granitemoehybrid": _SHARED,
        "granitemoeshared": _SHARED,
        "molmo": _BOTH,
        "molmo2_text": _BOTH,
        "phi3": _BOTH,
        "phi4_multimodal": _BOTH,
        "phi4mm": _BOTH,
        "plamo3": _BOTH,
    }
)
"""Model type -> the linear layers that its checkpoints hold in one matrix with another (query, key and value; gate and
up), so that one adapter serves both (`packed_modules_mapping` with a single name, or none)."""

WITHOUT_ROUTER = frozenset({"nemotron_h"})
"""Model types whose router takes no adapters (lora/model_manager.py: is_non_gated_moe)."""

STATE_SLICES: Mapping[str, int] = MappingProxyType({"in_proj": 5, "conv1d": 3})
"""Slices of Mamba-2's projections: gate, input, B, C and step; input, B and C (layers/mamba/mamba_mixer2.py)."""

_WITHOUT = """
    AriaForConditionalGeneration BailingMoeV2_5ForCausalLM BailingMoeV3ForCausalLM
    BailingMoeV3VLForConditionalGeneration BeeForConditionalGeneration BloomForCausalLM Cohere2MoeForCausalLM
    Cohere2VisionForConditionalGeneration CohereAsrForConditionalGeneration Cosmos3EdgeForConditionalGeneration
    DbrxForCausalLM DeepseekV41ForCausalLM DeepseekVLV2ForCausalLM DiffusionGemmaForBlockDiffusion
    Dots3NoteForCausalLM FalconForCausalLM FalconMambaForCausalLM FireRedASR2ForConditionalGeneration
    FunASRForConditionalGeneration FunAudioChatForConditionalGeneration GPT2LMHeadModel GPTJForCausalLM
    Gemma3nForCausalLM Gemma3nForConditionalGeneration Glm5NextForCausalLM HCXVisionV2ForCausalLM HfMoondream
    HrmTextForCausalLM IQuestLoopCoderForCausalLM KananaVForConditionalGeneration
    KimiK25ForConditionalGeneration KimiK3ForConditionalGeneration KimiLinearForCausalLM
    KimiVLForConditionalGeneration LlavaOnevision2ForConditionalGeneration
    LlavaOnevisionForConditionalGeneration Mamba2ForCausalLM MambaForCausalLM MiDashengLMModel
    MiMoV2FlashForCausalLM MiMoV2ForCausalLM MiMoV2OmniForCausalLM MiniMaxM3SparseForCausalLM
    MiniMaxM3SparseForConditionalGeneration Moondream3ForCausalLM MoonshotKimiaForCausalLM
    MossTranscribeDiarizeForConditionalGeneration NemotronParseForConditionalGeneration
    OpenVLAForActionPrediction OrionForCausalLM Ovis Ovis2_5 Ovis2_6ForCausalLM Ovis2_6_MoeForCausalLM
    PaddleOCRVLForConditionalGeneration Phi3VForCausalLM Phi4ForCausalLMV Qwen2AudioForConditionalGeneration
    RForConditionalGeneration SkyworkR1VChatModel StableLmForCausalLM Step1ForCausalLM Step3TextForCausalLM
    Step3VLForConditionalGeneration Step3p5ForCausalLM Step3p7ForConditionalGeneration
    StepVLForConditionalGeneration Zamba2ForCausalLM
"""

WITHOUT = frozenset(_WITHOUT.split())
"""Classes that take no adapters, so that the engine does not start with them (model_executor/models/: without
SupportsLoRA)."""
