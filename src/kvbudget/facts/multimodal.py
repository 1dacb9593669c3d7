"""vLLM's limits on images, audio and video: which towers each class leaves out when nothing may reach them.

Source: vLLM 0.32, model_executor/models/ (`_mark_tower_model` and `_mark_composite_model` of each class, with the
modalities that keep a tower; supports_encoder_tp_data), config/multimodal.py, multimodal/encoder_budget.py; read 2026-11.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MODALITIES = ("image", "video", "audio", "vision_chunk")
"""Keys of `--limit-mm-per-prompt` that some class knows."""

OPTIONS = ("count", "width", "height", "num_frames", "length")
"""Keys of a modality's options (config/multimodal.py, ImageDummyOptions and its kin)."""

DEFAULT_LIMIT = 999
"""Items of each modality in a prompt where nobody says."""

TEXT_ONLY_ATTENTION = (0, 32, 0)
"""First version that was read in which a model whose modalities are all off attends as a text model does
(config/model.py, is_mm_prefix_lm)."""

_TOWERS: Sequence[tuple[tuple[str, ...], str]] = (
    (
        ("image video",),
        """
        BeeForConditionalGeneration ColQwen3 ColQwen3_5 Cosmos3EdgeForConditionalGeneration
        Cosmos3ForConditionalGeneration DiffusionGemmaForBlockDiffusion
        Ernie4_5_VLMoeForConditionalGeneration Exaone4_5_ForConditionalGeneration
        Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration Glm5NextForConditionalGeneration
        GlmOcrForConditionalGeneration H2OVLChatModel HCXVisionV2ForCausalLM
        InternS1ForConditionalGeneration InternS1ProForConditionalGeneration
        InternS2MobiusForConditionalGeneration InternS2PreviewForConditionalGeneration InternVLChatModel
        InternVLForConditionalGeneration JinaVLForRanking KeyeForConditionalGeneration
        KeyeVL1_5ForConditionalGeneration LlavaOnevision2ForConditionalGeneration
        LlavaOnevisionForConditionalGeneration MiniCPMV MiniMaxM3SparseForConditionalGeneration
        Molmo2ForConditionalGeneration MuseGlimmerForCausalLM MuseGlimmerForConditionalGeneration NVLM_D
        OpenPanguVLForConditionalGeneration OpsColQwen3Model Ovis2_5 Ovis2_6ForCausalLM
        Ovis2_6_MoeForCausalLM QianfanOCRForConditionalGeneration Qwen2VLForConditionalGeneration
        Qwen2_5_VLForConditionalGeneration Qwen3VLForConditionalGeneration
        Qwen3VLMoeForConditionalGeneration Qwen3VLNemotronEmbedModel Qwen3_5ForConditionalGeneration
        Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration RForConditionalGeneration
        """,
    ),
    (
        ("image",),
        """
        AriaForConditionalGeneration BagelForConditionalGeneration BailingMoeV3VLForConditionalGeneration
        Blip2ForConditionalGeneration CLIPModel Cohere2VisionForConditionalGeneration
        CohereCompassForConditionalGeneration ColPaliForRetrieval DeepseekOCR2ForCausalLM
        DeepseekOCRForCausalLM DeepseekV41ForCausalLM DeepseekV4ForConditionalGeneration
        DeepseekVLV2ForCausalLM DotsOCRForCausalLM GLM4VForCausalLM Gemma3ForConditionalGeneration
        Granite4VisionForConditionalGeneration HfMoondream Idefics3ForConditionalGeneration
        IsaacForConditionalGeneration KananaVForConditionalGeneration KimiK3ForConditionalGeneration
        KimiVLForConditionalGeneration Lfm2VlForConditionalGeneration LightOnOCRForConditionalGeneration
        Llama4ForConditionalGeneration LlamaNemotronVLForSequenceClassification LlamaNemotronVLModel
        Llama_Nemotron_Nano_VL LlavaForConditionalGeneration LlavaNextForConditionalGeneration
        MiniCPMV4_6ForConditionalGeneration MiniCPMV4_7ForConditionalGeneration
        Mistral3ForConditionalGeneration MolmoForCausalLM Moondream3ForCausalLM
        NemotronParseForConditionalGeneration OpenCUAForConditionalGeneration OpenVLAForActionPrediction
        Ovis PaddleOCRVLForConditionalGeneration PaliGemmaForConditionalGeneration Phi3VForCausalLM
        Phi4ForCausalLMV PixtralForConditionalGeneration SiglipModel SkyworkR1VChatModel
        SmolVLMForConditionalGeneration Step3VLForConditionalGeneration Step3p7ForConditionalGeneration
        StepVLForConditionalGeneration UnlimitedOCRForCausalLM
        """,
    ),
    (
        ("audio", "image video"),
        """
        ClefOmniForJointSchema EmbeddingGemma2Model Gemma4ForConditionalGeneration
        Gemma4UnifiedForConditionalGeneration MiMoV2OmniForCausalLM Phi4MMForCausalLM
        Qwen2_5OmniForConditionalGeneration Qwen2_5OmniModel Qwen3OmniMoeForConditionalGeneration
        """,
    ),
    (
        ("audio",),
        """
        AudioFlamingo3ForConditionalGeneration CohereAsrForConditionalGeneration
        FireRedASR2ForConditionalGeneration FunAudioChatForConditionalGeneration
        GlmAsrForConditionalGeneration GraniteSpeechForConditionalGeneration
        GraniteSpeechPlusForConditionalGeneration MiDashengLMModel MiniCPMO MoonshotKimiaForCausalLM
        MossAudioModel MossTranscribeDiarizeForConditionalGeneration Qwen2AudioForConditionalGeneration
        Qwen3ASRForConditionalGeneration Qwen3ASRForcedAlignerForTokenClassification
        Qwen3ASRRealtimeGeneration UltravoxModel VoxtralForConditionalGeneration VoxtralRealtimeGeneration
        WhisperForConditionalGeneration
        """,
    ),
    (
        ("audio image video",),
        """
        Dots3NoteForCausalLM NemotronH_Nano_Omni_Reasoning_V3 NemotronH_Nano_VL_V2
        NemotronH_Omni_Reasoning_V3 NemotronH_Super_Omni_Reasoning_V3
        """,
    ),
    (
        ("audio", "image"),
        """
        Gemma3nForConditionalGeneration
        """,
    ),
    (
        ("vision_chunk",),
        """
        KimiK25ForConditionalGeneration
        """,
    ),
    (
        ("video",),
        """
        LlavaNextVideoForConditionalGeneration
        """,
    ),
)

TOWERS: Mapping[str, tuple[frozenset[str], ...]] = MappingProxyType(
    {name: tuple(frozenset(part.split()) for part in parts) for parts, names in _TOWERS for name in names.split()}
)
"""Class -> the modalities of each of its towers; a tower is loaded if one of its own is allowed. A class that is not here
loads its towers whatever the limits are."""

_DATA_PARALLEL = """
    CohereCompassForConditionalGeneration ColQwen3 ColQwen3_5 Cosmos3EdgeForConditionalGeneration
    Cosmos3ForConditionalGeneration DeepseekV41ForCausalLM Dots3NoteForCausalLM DotsOCRForCausalLM
    Exaone4_5_ForConditionalGeneration Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration
    Glm5NextForConditionalGeneration GlmOcrForConditionalGeneration H2OVLChatModel
    InternS1ProForConditionalGeneration InternS2MobiusForConditionalGeneration
    InternS2PreviewForConditionalGeneration InternVLChatModel IsaacForConditionalGeneration JinaVLForRanking
    KimiK25ForConditionalGeneration KimiK3ForConditionalGeneration KimiVLForConditionalGeneration
    Llama4ForConditionalGeneration MiniCPMO MiniCPMV MiniCPMV4_6ForConditionalGeneration
    MiniCPMV4_7ForConditionalGeneration MiniMaxM3SparseForConditionalGeneration NVLM_D
    OpenCUAForConditionalGeneration OpsColQwen3Model QianfanOCRForConditionalGeneration
    Qwen2VLForConditionalGeneration Qwen2_5_VLForConditionalGeneration Qwen3VLForConditionalGeneration
    Qwen3VLMoeForConditionalGeneration Qwen3VLNemotronEmbedModel Qwen3_5ForConditionalGeneration
    Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration Step3VLForConditionalGeneration
    Step3p7ForConditionalGeneration StepVLForConditionalGeneration
"""

DATA_PARALLEL = frozenset(_DATA_PARALLEL.split())
"""Classes whose vision tower stands whole on every rank with `--mm-encoder-tp-mode data`."""
