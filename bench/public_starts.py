"""Starts of vLLM that others measured and published part by part: what the estimates are held against first.

A capacity study of 2026-04 started some 30 models on an H100 80GB (79.19 GiB) with default limits: 8,192 tokens and
1,024 requests a step, 0.95 of the card, and printed each part that vLLM's own profiler reports.
Figures are its own, in GiB; where its table gives a percentage of an estimate instead, the figure follows from both.
"""

from __future__ import annotations

from dataclasses import dataclass

STUDY = "https://github.com/llm-d-incubation/llm-d-planner/blob/main/accuracy/accuracy_report.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start; None where the source does not print a part.

    Args:
        model: A name of the built-in catalogue, or a folder of the shared configs.
        version: vLLM's.
        tp: Tensor-parallel ranks.
        pp: Pipeline stages; the figures are those of the first.
        activation: "torch peak memory increase".
        weights: "Model loading took".
        non_torch: "non-torch forward increase memory".
        available: "Available KV cache memory", or the budget less the three parts, which is how 0.19 computes it.
    """

    model: str
    version: str = "0.19.0"
    tp: int = 1
    pp: int = 1
    activation: float
    weights: float | None = None
    non_torch: float | None = None
    available: float | None = None


STARTS: tuple[Start, ...] = (
    Start(model="llama-3.1-8b", activation=1.89, weights=14.99, non_torch=0.25, available=58.11),
    Start(model="llama-3.1-8b", tp=2, activation=1.89, weights=7.51, non_torch=2.07, available=63.76),
    Start(model="llama-3.1-8b", tp=4, activation=1.89, weights=3.77, non_torch=2.13, available=67.44),
    Start(model="llama-3.1-8b", pp=2, activation=1.10, weights=7.51, non_torch=0.07, available=66.55),
    Start(model="llama-3.1-8b", pp=4, activation=1.05, weights=4.26, non_torch=0.07, available=69.85),
    Start(model="qwen2.5-7b", activation=2.21, weights=14.25, non_torch=0.24, available=58.53),
    Start(model="qwen2.5-7b", tp=2, activation=2.21, weights=7.12, non_torch=2.06, available=63.84),
    Start(model="qwen2.5-7b", tp=4, activation=2.21, weights=3.55, non_torch=2.13, available=67.34),
    Start(model="qwen3-14b", version="0.15.0", activation=5.64, weights=27.52, non_torch=0.13, available=41.94),
    Start(model="qwen3-14b", version="0.16.0", activation=5.64, weights=27.52, non_torch=0.13, available=41.94),
    Start(model="qwen3-14b", version="0.17.0", activation=2.23, weights=27.52, non_torch=0.13, available=45.34),
    Start(model="qwen3-14b", version="0.18.0", activation=2.23, weights=27.52, non_torch=0.25, available=45.23),
    Start(model="qwen3-8b", activation=2.21),
    Start(model="codellama__CodeLlama-7b-hf", activation=0.77),
    Start(model="deepseek-ai__DeepSeek-V2-Lite", activation=1.93),
    Start(model="google__gemma-2-27b-it", activation=3.66),
    Start(model="google__gemma-2-9b-it", activation=3.65),
    Start(model="google__gemma-2-2b-it", activation=3.62),
    Start(model="gemma-3-4b", activation=3.89),
    Start(model="gemma-3-12b", activation=3.94),
    Start(model="gemma-3-27b", activation=3.99),
    Start(model="gpt-oss-20b", tp=2, activation=2.87),
    Start(model="meta-llama__Llama-4-Scout-17B-16E-Instruct", tp=4, activation=3.19),
    Start(model="mistralai__Mistral-Small-3.1-24B-Instruct-2503", activation=2.03),
    Start(model="mixtral-8x7b", tp=2, activation=1.21),
    Start(model="microsoft__phi-4", activation=1.52),
    Start(model="Qwen__Qwen1.5-MoE-A2.7B", activation=2.47),
    Start(model="qwen3-30b-a3b", activation=2.68),
    Start(model="qwen2.5-72b", tp=2, activation=2.29),
    Start(model="qwen2.5-72b", tp=4, activation=2.29),
    Start(model="llama-3.3-70b", tp=2, activation=1.96),
)
