"""What the launches leave out: models under another name, cards under another name, release dates, odd rows.

A model that has neither a config nor a row in the built-in catalogue takes its shape from a named relative of provably
the same shape; the reason stands beside it. Weights are compared only where the relative stores them the same way too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A model that stands in for another.

    Args:
        name: A folder of the configs, or a name of the built-in catalogue.
        reason: Why its shape is the same.
        same_weights: Whether it stores its weights the same way, so that they can be compared.
        quantization: A `quantization_config` to put in place of the relative's own; an empty one takes it away.
    """

    name: str
    reason: str
    same_weights: bool = False
    quantization: dict[str, Any] | None = None


_SAME_HEADS = "the same model in another quantization; layers and heads are the base model's"

_W8A8_CHANNEL = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True},
        }
    },
}
_FP8_CHANNEL = {
    "quant_method": "compressed-tensors",
    "format": "float-quantized",
    "ignore": ["lm_head"],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True},
        }
    },
}

RELATIVES: dict[str, Relative] = {
    "lukealonso/GLM-5.1-NVFP4-MTP": Relative(name="nvidia__GLM-5.1-NVFP4", reason=_SAME_HEADS),
    "moonshotai/Kimi-K2.6": Relative(
        name="kimi-k2.5", reason="an alias in the catalogue: one shape", same_weights=True
    ),
    "AEON Qwen3.6-35B-A3B": Relative(name="qwen3.6-35b-a3b", reason=_SAME_HEADS),
    "AEON gemma-4-26B-A4B": Relative(name="gemma-4-26b-a4b", reason=_SAME_HEADS),
    "Qwen/Qwen3.6-35B-A3B-FP8": Relative(name="qwen3.6-35b-a3b", reason=_SAME_HEADS),
    "Qwen/Qwen3.6-27B-FP8": Relative(name="qwen3.6-27b", reason=_SAME_HEADS),
    "vrfai/Qwen3.6-27B-FP8": Relative(name="qwen3.6-27b", reason=_SAME_HEADS),
    "Qwen3.6-27B AutoRound int4": Relative(name="qwen3.6-27b", reason=_SAME_HEADS),
    "qwen3.6-35b-a3b-nvfp4": Relative(name="nvidia__Qwen3.6-35B-A3B-NVFP4", reason="ModelOpt NVFP4 of the same model"),
    "neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8": Relative(
        name="llama-3.1-70b",
        reason="the base model; w8a8 is its maker's scheme of int8 by channel with lm_head left out",
        same_weights=True,
        quantization=_W8A8_CHANNEL,
    ),
    "meta-llama/Meta-Llama-3.1-405B-Instruct-FP8": Relative(name="meta-llama__Meta-Llama-3.1-405B", reason=_SAME_HEADS),
    "meta-llama/Llama-3.3-70B-Instruct": Relative(
        name="llama-3.3-70b",
        reason="the row says FP8: one byte a weight by channel, lm_head left out, as its public FP8 checkpoints",
        same_weights=True,
        quantization=_FP8_CHANNEL,
    ),
    "cyankiwi/gemma-4-31B-it-AWQ-4bit": Relative(name="gemma-4-31b", reason=_SAME_HEADS),
    "Qwen/Qwen3-Coder-480B-A35B-Instruct-FP8": Relative(
        name="Qwen__Qwen3-Coder-480B-A35B-Instruct",
        reason="the same model; FP8 in blocks of 128 as in Qwen's other FP8 checkpoints (Qwen3-235B-A22B-FP8)",
        same_weights=True,
        quantization={"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
    ),
    "deepseek-ai/DeepSeek-V4-Flash-0731": Relative(
        name="deepseek-ai__DeepSeek-V4-Flash", reason="a later checkpoint of it"
    ),
    "DeepSeek-V4-Flash DSpark": Relative(name="deepseek-ai__DeepSeek-V4-Flash", reason=_SAME_HEADS),
    "Qwen3-Next-80B-A3B w4a16": Relative(name="Qwen__Qwen3-Next-80B-A3B-Instruct", reason=_SAME_HEADS),
    "Qwen/Qwen2.5-Math-1.5B": Relative(
        name="Qwen__Qwen2.5-1.5B",
        reason="Qwen2.5-Math's report trains on Qwen2.5's shapes; only positions differ",
        same_weights=True,
    ),
    "canopylabs/orpheus-3b-0.1-ft": Relative(
        name="meta-llama__Llama-3.2-3B", reason="tuned from it with 28,672 more tokens; layers and heads stay"
    ),
    "Qwen/Qwen2.5-3B-Instruct bitsandbytes": Relative(name="Qwen__Qwen2.5-3B-Instruct", reason=_SAME_HEADS),
    "Qwen/Qwen3-30B-A3B-GPTQ-Int4": Relative(name="qwen3-30b-a3b", reason=_SAME_HEADS),
    "unsloth/QwQ-32B-unsloth-bnb-4bit": Relative(name="qwen2.5-32b", reason="QwQ-32B is Qwen2.5-32B trained further"),
    "Zamba2": Relative(name="Zyphra__Zamba2-2.7B", reason="the row's nine attention layers are those of Zamba2-2.7B"),
    "THUDM/chatglm2-6b-32k": Relative(
        name="THUDM__chatglm3-6b", reason="28 layers and 2 KV heads of 128, as its log says"
    ),
}
"""Hub id -> its relative."""

CARDS: dict[str, str] = {
    "RTX 3090": "rtx-3090-24gb",
    "RTX 3090 24G": "rtx-3090-24gb",
    "RTX 5090": "rtx-5090-32gb",
    "H100": "h100-sxm-80gb",
    "H100 80GB": "h100-sxm-80gb",
    "H20": "h20-96gb",
    "H20 95GiB": "h20-96gb",
    "A100 80GB": "a100-sxm-80gb",
    "NVIDIA L40": "l40-48gb",
    "RTX PRO 6000 Blackwell 96GB": "rtx-pro-6000-96gb",
    "NVIDIA GB10 (DGX Spark, unified memory)": "gb10-128gb",
    "NVIDIA GB10 (DGX Spark)": "gb10-128gb",
    "RTX 5080 + RTX 5070 Ti (16GB each)": "rtx-5070-ti-16gb",
    "80GB class GPU (H100)": "h100-sxm-80gb",
    "80GB class (79.22GiB)": "a100-sxm-80gb",
    "A100 80GB class (79.10GiB)": "a100-sxm-80gb",
    "24GB class (23.58GiB)": "rtx-3090-24gb",
    "12GB GPU": "rtx-3060-12gb",
}
"""The launches' words for a card -> its name here."""

RELEASES: tuple[tuple[str, str], ...] = (
    ("2025-03-18", "0.8.0"),
    ("2025-04-28", "0.8.5"),
    ("2025-05-28", "0.9.0"),
    ("2025-07-07", "0.9.2"),
    ("2025-07-24", "0.10.0"),
    ("2025-08-18", "0.10.1"),
    ("2025-09-13", "0.10.2"),
    ("2025-10-02", "0.11.0"),
    ("2025-11-20", "0.11.2"),
    ("2025-12-03", "0.12.0"),
    ("2025-12-19", "0.13.0"),
    ("2026-01-24", "0.14.1"),
    ("2026-02-04", "0.15.1"),
    ("2026-02-25", "0.16.0"),
    ("2026-03-11", "0.17.1"),
    ("2026-03-20", "0.18.0"),
    ("2026-04-03", "0.19.0"),
    ("2026-04-28", "0.20.0"),
    ("2026-05-10", "0.20.2"),
    ("2026-05-15", "0.21.0"),
    ("2026-06-05", "0.22.1"),
    ("2026-06-13", "0.23.0"),
    ("2026-06-30", "0.24.0"),
    ("2026-07-14", "0.25.1"),
    ("2026-07-25", "0.26.0"),
    ("2026-08-11", "0.27.1"),
    ("2026-08-26", "0.28.0"),
    ("2026-09-09", "0.29.0"),
    ("2026-09-22", "0.30.0"),
    ("2026-10-20", "0.31.0"),
)
"""Release day -> version: a row without a version is taken for the newest of its day. From the wheels' own dates."""


@dataclass(frozen=True, slots=True)
class Odd:
    """A row that is not held against the estimates, and why.

    Args:
        reason: What its notes say.
        quantities: What is set apart; all if empty.
    """

    reason: str
    quantities: frozenset[str] = field(default_factory=frozenset)


ODD: dict[str, Odd] = {
    "L038": Odd("notes: marked odd by its source"),
    "L039": Odd("notes: marked odd by its source"),
    "L040": Odd("notes: marked odd by its source"),
    "L069": Odd("before MLA support: K and V were kept for every head"),
    "L142": Odd("notes: the weights are twice the checkpoint's share of a rank, unexplained by its source"),
    "L148": Odd("notes: another process took memory first", frozenset({"available"})),
    "L177": Odd("the engine failed after this line, and its GPUs are not told"),
    "L008": Odd(
        "the pool is one rank's, the tokens are those of the rank with least", frozenset({"kv_bytes_per_token"})
    ),
    "L065": Odd(
        "notes: a development version of V0 that counted everything outside torch on the device, 1.79 GiB",
        frozenset({"available"}),
    ),
    "L129": Odd(
        "two different cards: the pool is the larger one's, the tokens are the smaller one's",
        frozenset({"kv_bytes_per_token", "tokens", "concurrency"}),
    ),
    "L090": Odd("notes: the model is a guess from the page; neither its format nor its flags are told"),
    "L091": Odd("notes: the model is a guess from the page; neither its format nor its flags are told"),
}
"""Row -> why it stands apart: what its notes call an engine bug or an inconsistency."""

TOTALS: dict[str, tuple[float, str]] = {
    "L057": (
        121.63,
        "GB10 shows 119.63 or 121.63 GiB by machine; weights and pool alone take more than 0.95 of the former",
    ),
    "L104": (139.8, "H20 comes with 96 and 141 GB; with L105 the pools differ by 6.99 GiB for 0.05 of utilization"),
    "L105": (139.8, "H20 comes with 96 and 141 GB; with L104 the pools differ by 6.99 GiB for 0.05 of utilization"),
}
"""Row -> the card's total in GiB that its own figures tell, and how."""

FLAGS: dict[str, tuple[dict[str, object], str]] = {
    "L079": ({"enable_prefix_caching": True}, "the launcher's other rows switch it on (L077)"),
}
"""Row -> flags that it does not show, and where they come from."""

MISSES: dict[tuple[str, str], str] = {
    ("L058", "weights"): "the quantization file at hand is cut short: it names no layers that stay in 16 bits",
    ("L058", "available"): "its weights, 8.7 GiB more than the quantization file at hand tells of",
    (
        "L057",
        "available",
    ): "unified memory: the parts add up to more than what was taken; free memory is the system's own",
    ("L094", "weights"): "vLLM 0.7 kept parts of the vision tower whole on every rank",
    ("L116", "weights"): "the config at hand says 32,768 positions; a RoPE table for 4 x 262,144 explains the gap",
    ("L117", "weights"): "the config at hand says 32,768 positions; a RoPE table for 4 x 262,144 explains the gap",
    ("L161", "weights"): "not explained: 54 MiB more than parameters and tables",
    (
        "L161",
        "available",
    ): "its activation, 0.74 GiB, is that of 128 requests; the flag is not told and 256 was assumed",
}
"""(row, quantity) -> why ours is not within the bounds; tokens and concurrency miss with the pool."""
