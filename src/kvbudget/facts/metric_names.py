"""What engines call their metrics, by version.

A row is a meaning, an engine, and the names under which it was and is scraped, the newest first. The meanings follow
the inference gateway's protocol (running, waiting, KV use, block size, blocks). Source: vLLM 0.8.5 to 0.32
(v1/metrics/loggers.py, engine/metrics.py), SGLang 0.5.23 (observability), llama.cpp's server of 2026-10, the documentation of trtllm-serve, LMDeploy and TGI; read
2026-11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class Names(NamedTuple):
    """Under which names a meaning is scraped.

    Attributes:
        meaning: What `kvbudget.check` calls it.
        engine: Whose metric it is.
        names: Newest first; the first that is there counts, they are never added up.
        versions: Which versions have which.
    """

    meaning: str
    engine: str
    names: tuple[str, ...]
    versions: str


KV_USAGE, RUNNING, WAITING, PREEMPTIONS = "kv_usage", "running", "waiting", "preemptions"
PROMPT_LENGTHS, OUTPUT_LENGTHS, FINISHED = "prompt_lengths", "output_lengths", "finished"
PREFIX_QUERIES, PREFIX_HITS, CONFIG, KV_TOKENS = "prefix_queries", "prefix_hits", "cache_config", "kv_cache_size_tokens"
PROMPT_TOKENS, OUTPUT_TOKENS, PREFIX_RATE = "prompt_tokens", "output_tokens", "prefix_hit_rate"

METRIC_NAMES: tuple[Names, ...] = (
    Names(
        KV_USAGE,
        "vllm",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "the first since 0.9.2; the second until 0.11, both between",
    ),
    Names(RUNNING, "vllm", ("vllm:num_requests_running",), "all"),
    Names(WAITING, "vllm", ("vllm:num_requests_waiting",), "all"),
    Names(PREEMPTIONS, "vllm", ("vllm:num_preemptions_total",), "all; the per-request histogram since 0.30"),
    Names(PROMPT_LENGTHS, "vllm", ("vllm:request_prompt_tokens",), "all"),
    Names(OUTPUT_LENGTHS, "vllm", ("vllm:request_generation_tokens",), "all"),
    Names(FINISHED, "vllm", ("vllm:request_success_total",), "all"),
    Names(PROMPT_TOKENS, "vllm", ("vllm:prompt_tokens_total",), "all"),
    Names(OUTPUT_TOKENS, "vllm", ("vllm:generation_tokens_total",), "all"),
    Names(
        PREFIX_QUERIES,
        "vllm",
        ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        "the first since 0.9.2; the second until 0.11",
    ),
    Names(
        PREFIX_HITS,
        "vllm",
        ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        "the first since 0.9.2; the second until 0.11",
    ),
    Names(PREFIX_RATE, "vllm", ("vllm:gpu_prefix_cache_hit_rate",), "V0 alone, which has no counters; -1 is none"),
    Names(CONFIG, "vllm", ("vllm:cache_config_info",), "all; the size in tokens and the concurrency since 0.24"),
    Names(KV_USAGE, "sglang", ("sglang:token_usage",), "0.5"),
    Names(RUNNING, "sglang", ("sglang:num_running_reqs",), "0.5"),
    Names(WAITING, "sglang", ("sglang:num_queue_reqs",), "0.5"),
    Names(PREEMPTIONS, "sglang", ("sglang:num_retracted_requests_total",), "0.5"),
    Names(PROMPT_LENGTHS, "sglang", ("sglang:prompt_tokens_histogram",), "0.5"),
    Names(OUTPUT_LENGTHS, "sglang", ("sglang:generation_tokens_histogram",), "0.5"),
    Names(FINISHED, "sglang", ("sglang:num_requests_total",), "0.5"),
    Names(PREFIX_RATE, "sglang", ("sglang:cache_hit_rate",), "0.5"),
    Names(PROMPT_TOKENS, "sglang", ("sglang:prompt_tokens_total",), "0.5"),
    Names(OUTPUT_TOKENS, "sglang", ("sglang:generation_tokens_total",), "0.5"),
    Names(KV_TOKENS, "sglang", ("sglang:max_total_num_tokens",), "0.5"),
    Names(RUNNING, "llama.cpp", ("llamacpp:requests_processing",), "2024 on, with --metrics"),
    Names(WAITING, "llama.cpp", ("llamacpp:requests_deferred",), "2024 on, with --metrics"),
    Names(KV_USAGE, "llama.cpp", ("llamacpp:kv_cache_usage_ratio",), "until 2025; nothing takes its place"),
    Names(PROMPT_TOKENS, "llama.cpp", ("llamacpp:prompt_tokens_total",), "2024 on"),
    Names(OUTPUT_TOKENS, "llama.cpp", ("llamacpp:tokens_predicted_total",), "2024 on"),
    Names(KV_USAGE, "tensorrt-llm", ("trtllm_kv_cache_utilization",), "trtllm-serve"),
    Names(RUNNING, "tensorrt-llm", ("trtllm_num_requests_running",), "trtllm-serve"),
    Names(WAITING, "tensorrt-llm", ("trtllm_num_requests_waiting",), "trtllm-serve"),
    Names(PREFIX_RATE, "tensorrt-llm", ("trtllm_kv_cache_hit_rate",), "trtllm-serve"),
    Names(KV_USAGE, "lmdeploy", ("lmdeploy:gpu_cache_usage_perc",), "2026-08"),
    Names(RUNNING, "lmdeploy", ("lmdeploy:num_requests_running",), "2026-08"),
    Names(WAITING, "lmdeploy", ("lmdeploy:num_requests_waiting",), "2026-08"),
    Names(PREFIX_RATE, "lmdeploy", ("lmdeploy:prefix_cache_hit_rate",), "2026-08"),
    Names(PROMPT_LENGTHS, "lmdeploy", ("lmdeploy:request_prompt_tokens",), "2026-08"),
    Names(OUTPUT_LENGTHS, "lmdeploy", ("lmdeploy:request_generation_tokens",), "2026-08"),
    Names(RUNNING, "tgi", ("tgi_batch_current_size",), "all"),
    Names(WAITING, "tgi", ("tgi_queue_size",), "all"),
    Names(PROMPT_LENGTHS, "tgi", ("tgi_request_input_length",), "all"),
    Names(OUTPUT_LENGTHS, "tgi", ("tgi_request_generated_tokens",), "all"),
)

RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
"""Labels of SGLang's ranks that work on the same requests, each of which may report them (every stage of a pipeline
does, and with `--enable-metrics-for-all-schedulers` every rank); `dp_rank` is another engine."""

MODEL = "model_name"
"""The label that every engine's series has, but for the cache's configuration; routers' series of the same names lack
it (vLLM's production stack: ``vllm:num_requests_running{server="…"}``)."""

ROUTERS: Mapping[str, str] = {
    "vllm:current_qps": "the router of vLLM's production stack",
    "vllm:healthy_pods_total": "the router of vLLM's production stack",
    "sgl_router_": "SGLang's router",
    "smg_": "SGLang's model gateway",
    "dynamo_frontend_": "Dynamo's frontend",
    "inference_objective_": "the inference gateway",
    "inference_pool_": "the inference gateway",
    "inference_extension_": "the inference gateway",
    "vllm_router_": "vLLM's router",
    "litellm_": "LiteLLM",
}
"""Beginnings of names by which a router is told from an engine; what it averages is not one engine's cache."""

STARTED = "process_start_time_seconds"
"""When the process of a metrics page began (prometheus_client's own)."""
