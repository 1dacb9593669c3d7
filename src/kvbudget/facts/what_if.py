"""Quantizations of a checkpoint that is not quantized: what an engine makes while loading, and what tools usually make.

Two tables that never mix:

* `WHILE_LOADING`: what vLLM makes of plain weights on its own, by the name that ``--quantization`` takes. Exact: the
  bytes are those of the engine's arithmetic.
* `USUAL`: what a checkpoint weighs that a tool has made, by the method. A guess at somebody else's recipe, so each row
  has a tight and a loose variant of it beside the usual one.

llama.cpp's file types are in `kvbudget.facts.gguf_types`.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.facts.vllm import OLDEST, Version

if TYPE_CHECKING:
    from collections.abc import Mapping

STREAMED: Version = (0, 16, 0)
"""The first version whose weights for FP8 are never plain on the GPU all at once: layers are made on the meta device,
loaded and quantized one by one (vllm-project/vllm #31914; layers/quantization/fp8.py of the wheels 0.15.1 and 0.16)."""

WHOLE_AND_MORE: Version = (0, 13, 0)
"""From here until `STREAMED` the peak is higher than without any quantization: the quantized weights are made while
references to all unquantized ones are kept (vllm-project/vllm #29196, #32773)."""


class WhileLoading(NamedTuple):
    """What vLLM makes of unquantized weights while it loads them.

    Attributes:
        name: The value of `--quantization`.
        linear: How matrices of linear layers are stored, "" if they stay as they are; a key of
            `kvbudget.model.what_if.LAYOUTS`.
        experts: The same for routed experts.
        since: The first version that has the name.
        until: The first version without it, None if it is still there.
        source: Where it was read.
        streamed: The first version that never has all plain weights on the GPU at once.
    """

    name: str
    linear: str
    experts: str
    since: Version
    until: Version | None
    source: str
    streamed: Version = OLDEST


_ONLINE = "vLLM 0.19 to 0.32, config/quantization.py, layers/quantization/online/"
_SKIPS = "; the head, embeddings, norms and routers are no quantized linear layers"

WHILE_LOADING: Mapping[str, WhileLoading] = MappingProxyType(
    {
        row.name: row
        for row in (
            WhileLoading(
                "fp8",
                "fp8_tensor",
                "fp8_tensor",
                OLDEST,
                None,
                "vLLM 0.8.5 to 0.32, layers/quantization/fp8.py; 0.32 takes it for fp8_per_tensor" + _SKIPS,
                STREAMED,
            ),
            WhileLoading("fp8_per_tensor", "fp8_tensor", "fp8_tensor", (0, 20, 0), None, _ONLINE + "fp8.py"),
            WhileLoading("fp8_per_block", "fp8_block", "fp8_block", (0, 20, 0), None, _ONLINE + "fp8.py"),
            WhileLoading("fp8_per_channel", "fp8_channel", "fp8_channel", (0, 24, 0), None, _ONLINE + "fp8.py"),
            WhileLoading("mxfp8", "mxfp8", "mxfp8", (0, 19, 0), None, _ONLINE + "mxfp8.py"),
            WhileLoading("mxfp4", "mxfp4", "mxfp4", (0, 28, 0), None, _ONLINE + "mxfp4.py"),
            WhileLoading("int8_per_channel_weight_only", "", "int8", (0, 20, 0), None, _ONLINE + "int8.py"),
            WhileLoading("nvfp4_per_token", "", "nvfp4", (0, 26, 0), None, _ONLINE + "nvfp4.py"),
            WhileLoading(
                "experts_int8", "", "int8", OLDEST, None, "vLLM 0.8.5 to 0.32, layers/quantization/experts_int8.py"
            ),
            WhileLoading(
                "ptpc_fp8",
                "fp8_channel",
                "",
                OLDEST,
                (0, 19, 0),
                "vLLM 0.8.5, layers/quantization/ptpc_fp8.py (AMD's cards)",
                STREAMED,
            ),
            WhileLoading(
                "bitsandbytes",
                "nf4",
                "nf4",
                OLDEST,
                (0, 28, 0),
                "vLLM 0.8.5 to 0.27, model_loader/bitsandbytes_loader.py: NF4 in blocks of 64, float32 scales",
            ),
        )
    }
)
"""By name. `online` and `torchao` say nothing by themselves: a configuration of their own names the layers."""


ROUTERS_TOO = frozenset({"hunyuan_v1_moe", "k2_horizon", "lfm2_moe", "qwen3_moe", "qwen3_omni_moe", "qwen3_vl_moe"})
"""Model types, without the ``_text`` of a nested one, whose router is a linear layer like the others to vLLM, so that it
is quantized while loading (model_executor/models/, GateLinear with a quant_config, 0.32; Hunyuan runs through
transformers, all of whose linear layers are)."""

EVEN_TOWERS = 64
"""SigLIP's feed-forward layers are quantized only if both widths are multiples of it (models/siglip.py, 0.32)."""

KEPT_PLAIN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "falcon_mamba": ("state",),
        "gemma3n": ("vision", "audio"),
        "gemma4": ("vision", "audio"),
        "jamba": ("state",),
        "llama4": ("vision",),
        "mamba": ("state",),
    }
)
"""Model type, without the ``_text`` of a nested one -> groups that vLLM makes without a quantization: Mamba-1 mixers
(layers/mamba/mamba_mixer.py, 0.32), towers that are transformers' own (models/gemma4_mm.py, gemma3n_mm.py) or get no
quantization (mllama4.py)."""

QUANTIZED_TOWERS = frozenset(
    {
        "Gemma3ForConditionalGeneration",
        "LightOnOCRForConditionalGeneration",
        "LlavaForConditionalGeneration",
        "Qwen2VLForConditionalGeneration",
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen3VLForConditionalGeneration",
        "Qwen3VLMoeForConditionalGeneration",
        "Qwen3_5ForConditionalGeneration",
        "Qwen3_5MoeForConditionalGeneration",
        "WhisperForConditionalGeneration",
    }
)
"""Classes whose towers were seen to be quantized with the rest (0.32, on the meta device); of others it is not known."""


class Usual(NamedTuple):
    """What a checkpoint of a method usually holds, as the `quantization_config` that its tool writes.

    Attributes:
        name: What `--quantization` takes here.
        tool: Who usually makes such checkpoints.
        section: The usual recipe.
        tight: A recipe with fewer bytes that is in use, e.g. with the head quantized too; None if there is none.
        loose: One with more bytes, e.g. smaller groups; None if there is none.
        mixtures_keep: Groups that the usual recipe leaves as they are in models with routed experts.
        varies: What the variants differ in, in words.
        source: Where the recipes were read.
    """

    name: str
    tool: str
    section: Mapping[str, Any]
    tight: Mapping[str, Any] | None
    loose: Mapping[str, Any] | None
    mixtures_keep: frozenset[str]
    varies: str
    source: str


def _compressed(layout: str, weights: Mapping[str, Any], *, head: bool = False, active: bool = True) -> dict[str, Any]:
    """Return a section of compressed-tensors with one group for all linear layers."""
    group = {"targets": ["Linear"], "weights": {"symmetric": True, **weights}}
    inputs = {"input_activations": {"num_bits": 8, "dynamic": True}} if active else {}
    ignored = [] if head else ["lm_head"]
    section = {"quant_method": "compressed-tensors", "format": layout, "ignore": ignored}
    return {**section, "config_groups": {"group_0": {**group, **inputs}}}


_AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
_GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}
_INT8 = {"num_bits": 8, "type": "int", "strategy": "channel"}
_W4A16 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
_NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
_MIXER = frozenset({"attention", "indexer", "state"})
_NOTHING: frozenset[str] = frozenset()
_WIDTHS = "groups of 32 to 128, a quantized head, and in mixtures what beside the experts is quantized"

USUAL: Mapping[str, Usual] = MappingProxyType(
    {
        row.name: row
        for row in (
            Usual(
                "awq",
                "AutoAWQ or llm-compressor",
                _AWQ,
                _compressed("pack-quantized", _W4A16, head=True, active=False),
                {**_AWQ, "group_size": 32},
                _NOTHING,
                _WIDTHS,
                "Qwen/Qwen3-8B-AWQ; AutoAWQ's and llm-compressor's examples, read 2026-11",
            ),
            Usual(
                "gptq",
                "GPTQModel or llm-compressor",
                _GPTQ,
                {**_GPTQ, "group_size": -1, "lm_head": True},
                {**_GPTQ, "group_size": 32},
                _NOTHING,
                "one group a row to groups of 32, a quantized head, and in mixtures what beside the experts is quantized",
                "TheBloke's GPTQ files (128 and one group a row); GPTQModel's examples, read 2026-11",
            ),
            Usual(
                "int8",
                "llm-compressor (W8A8)",
                _compressed("int-quantized", _INT8),
                _compressed("int-quantized", _INT8, head=True),
                _compressed("int-quantized", {**_INT8, "strategy": "group", "group_size": 128}),
                _NOTHING,
                "a quantized head, scales by channel or group, and in mixtures what beside the experts is quantized",
                "llm-compressor's examples of W8A8 INT8, read 2026-11",
            ),
            Usual(
                "nvfp4",
                "ModelOpt or llm-compressor",
                {**_NVFP4, "exclude_modules": ["lm_head"]},
                {**_NVFP4, "exclude_modules": []},
                None,
                _MIXER,
                "a quantized head, and in mixtures what beside the experts is quantized",
                "19 NVFP4 checkpoints of nvidia/*: of 18 mixtures 12 leave attention as it is, 3 a part of it, read 2026-11",
            ),
            Usual(
                "mxfp4",
                "gpt-oss' recipe, or llm-compressor",
                _compressed("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "group_size": 32}),
                None,
                None,
                frozenset({"attention", "indexer", "state", "mlp", "shared_experts"}),
                "in mixtures what beside the experts is quantized",
                "openai/gpt-oss-120b: the experts alone, read 2026-11",
            ),
            Usual(
                "mxfp8",
                "ModelOpt",
                {"quant_method": "modelopt", "quant_algo": "MXFP8", "exclude_modules": ["lm_head"]},
                {"quant_method": "modelopt", "quant_algo": "MXFP8", "exclude_modules": []},
                None,
                _NOTHING,
                "a quantized head, and in mixtures what beside the experts is quantized",
                "ModelOpt's recipes, read 2026-11",
            ),
            Usual(
                "bitsandbytes",
                "transformers with bitsandbytes",
                {**_NF4, "bnb_4bit_use_double_quant": True},
                None,
                _NF4,
                _NOTHING,
                "double quantization or none",
                "transformers 5.24, quantizers/quantizer_bnb_4bit.py",
            ),
            Usual(
                "bitsandbytes:int8",
                "transformers with bitsandbytes",
                {"quant_method": "bitsandbytes", "load_in_8bit": True},
                None,
                None,
                _NOTHING,
                "",
                "transformers 5.24, quantizers/quantizer_bnb_8bit.py",
            ),
            Usual(
                "mlx",
                "mlx_lm",
                {"bits": 4, "group_size": 64},
                {"bits": 4, "group_size": 128},
                {"bits": 4, "group_size": 32},
                _NOTHING,
                "groups of 32 to 128",
                "mlx-community/Qwen3-14B-4bit; mlx_lm's default of 4 bits in groups of 64, read 2026-11",
            ),
        )
    }
)
"""By the name that `--quantization` takes here; some of them are no names of vLLM's."""

USUAL_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "auto_awq": "awq",
        "awq_marlin": "awq",
        "auto_gptq": "gptq",
        "gptq_marlin": "gptq",
        "gpt_oss_mxfp4": "mxfp4",
        "int4": "awq",
        "modelopt_fp4": "nvfp4",
        "modelopt_mxfp8": "mxfp8",
        "w8a8": "int8",
    }
)
"""Other names of the same checkpoints: vLLM's kernels, and what people say."""
