"""vLLM's flags that a pasted launch command may hold beside those that the budget knows.

Two tables: flags that move GPU memory and are not counted yet, by what they are about, and flags that do not touch it.
What stands in neither is reported as not understood.

Source: the parser of `vllm serve`, vLLM 0.32 (entrypoints/launchers/cli_args.py, engine/arg_utils.py), and flags that
older versions had (0.8.5 on); read 2026-11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALIASES: Mapping[str, str] = {
    "-ep": "--enable-expert-parallel",
    "--device-memory-utilization": "--gpu-memory-utilization",
    "--kv-cache-memory": "--kv-cache-memory-bytes",  # so the engine's own log abbreviates it
}
"""Other spellings of flags that the budget knows."""

SPECULATION: Mapping[str, str] = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
    "--speculative-model": "model",  # until 0.8
    "--num-speculative-tokens": "num_speculative_tokens",
}
"""Flags that stand for one key of `--speculative-config` (engine/arg_utils.py, create_speculative_config)."""

NESTED = {"--speculative-config": "speculative_config", "-sc": "speculative_config"} | {
    "--limit-mm-per-prompt": "limit_mm_per_prompt"
}
"""Flags whose keys may stand behind a dot (`--limit-mm-per-prompt.image 2`), and the fields they fill."""

UNCOUNTED: Sequence[tuple[str, str, str]] = (
    (
        "LoRA: slots of other layers than all linear ones",
        "enable-tower-connector-lora enable-mixed-moe-lora-format enable-moe-shared-loras",
        "lora-target-modules* lora-extra-vocab-size max-lora-cls-labels",
    ),
    (
        "images, audio and video: other sizes and another place of the encoder's work",
        "mm-encoder-only enable-mm-embeds disable-chunked-mm-input",
        """mm-processor-kwargs mm-ipc-gpu-memory-gb mm-tensor-ipc mm-processor-device mm-encoder-attn-backend
        media-io-kwargs""",
    ),
    (
        "offloading: all weights count as on the GPU",
        "",
        """cpu-offload-gb cpu-offload-params* offload-backend offload-group-size offload-num-in-group
        offload-prefetch-step offload-params*""",
    ),
    (
        "another set of CUDA graphs than the engine's own",
        "",
        """compilation-config -cc optimization-level cudagraph-capture-sizes* max-cudagraph-capture-size
        cuda-graph-sizes* max-seq-len-to-capture performance-mode""",
    ),
    ("a file with more flags", "", "config"),
    (
        "changes to the model's config",
        "",
        "hf-overrides hf-config-path rope-scaling rope-theta model-class-overrides config-format",
    ),
    ("another attention backend and the blocks that it needs", "", "attention-backend attention-config -ac"),
    (
        "another cache of state layers",
        "enable-mamba-shared-prefix-checkpoint use-replayssm",
        "mamba-cache-dtype mamba-ssm-cache-dtype mamba-block-size mamba-cache-mode replayssm-buffer-len",
    ),
    ("KV types by layer", "", "kv-cache-dtype-skip-layers*"),
    ("windows switched off", "disable-sliding-window", ""),
    ("chunked prefill switched off", "no-enable-chunked-prefill", ""),
    ("the KV connector's buffers", "", "kv-transfer-config ec-transfer-config"),
    ("redundant experts", "enable-eplb enable-elastic-ep", "eplb-config num-redundant-experts"),
    ("two batches at once", "enable-dbo", "ubatch-size"),
    ("context parallelism while reading prompts", "", "prefill-context-parallel-size -pcp"),
    ("another kernel for experts and the layout it needs", "", "moe-backend linear-backend all2all-backend"),
    ("other sizes of steps", "", "max-num-scheduled-tokens max-num-active-seqs num-scheduler-steps"),
    ("quantization while loading", "", "quantization-config"),
    ("pooling instead of generating", "", "runner convert task pooler-config"),
)
"""(what is not counted, switches, flags with a value); a star marks flags with several values. A switch that is turned
off (`--no-…`) is harmless unless it stands here so."""

HARMLESS_SWITCHES = """
    aggregate-engine-logging allow-credentials allow-deprecated-quantization cohere-is-reasoning-model cudagraph-metrics
    data-parallel-external-lb data-parallel-hybrid-lb data-parallel-multi-port-external-lb disable-cascade-attn
    disable-fastapi-docs disable-frontend-multiprocessing disable-log-requests disable-log-stats
    disable-nccl-for-dp-synchronization disable-uvicorn-access-log enable-auto-tool-choice enable-chunked-prefill
    enable-fault-tolerance enable-flash-late-interaction enable-flashinfer-autotune enable-force-include-usage enable-layerwise-nvtx-tracing
    enable-log-deltas enable-log-outputs enable-log-requests enable-logging-iteration-details enable-mfu-metrics
    enable-offline-docs enable-per-request-metrics enable-prompt-tokens-details enable-reasoning
    enable-request-id-headers enable-scale-out enable-server-load-tracking enable-sleep-mode enable-ssl-refresh
    enable-tokenizer-info-endpoint exclude-tools-when-tool-choice-none fail-on-environ-validation grpc headless
    interleave-mm-strings jit-monitor-verbose kv-cache-metrics log-error-stack long-prefill-token-threshold-adaptive
    numa-bind ray-workers-use-nsight return-tokens-as-token-ids scheduler-reserve-full-isl skip-tokenizer-init
    specialize-active-lora tokens-only trust-remote-code trust-request-chat-template trust-request-mm-kwargs use-tqdm-on-load -dpe -dph -dpm
"""
"""Switches about the server, the logs, the tokenizer and the order of work."""

HARMLESS_VALUES = """
    allowed-headers allowed-local-media-path allowed-media-domains* allowed-methods allowed-origins
    anthropic-disabled-thinking-effort api-key* api-server-count -asc chat-template chat-template-content-format
    code-revision cohere-format collect-detailed-traces* cpu-distributed-timeout-seconds custom-histogram-buckets
    data-parallel-address -dpa data-parallel-backend -dpb data-parallel-rank -dpn data-parallel-rpc-port -dpp
    data-parallel-size-local -dpl data-parallel-start-rank -dpr data-parallel-supervisor-port
    default-chat-template-kwargs device device-ids disable-access-log-for-endpoints distributed-executor-backend
    distributed-timeout-seconds download-dir dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
    dp-supervisor-probe-timeout-s dp-sync-interval expert-placement-strategy fault-tolerance-config fingerprint-mode
    fingerprint-value generation-config grpc-port guided-decoding-backend h11-max-header-count
    h11-max-incomplete-event-size hf-token host ignore-patterns* io-processor-plugin jit-monitor-mode
    kv-cache-metrics-sample kv-events-config kv-offloading-backend kv-offloading-size load-format log-config-file
    log-level logging-config lora-modules* max-cpu-loras default-mm-loras logits-processors* long-prefill-token-threshold master-addr master-port max-log-len
    max-logprobs max-num-queued-reqs max-num-queued-tokens max-parallel-loading-workers middleware
    mm-hasher-algorithm mm-processor-cache-gb mm-processor-cache-type mm-shm-cache-max-object-size-mb model-impl
    model-loader-extra-config nnodes -n node-rank -r numa-bind-cpus* numa-bind-nodes* otlp-traces-endpoint
    override-generation-config per-request-spec-decode-metrics port prefill-schedule-interval
    prefix-caching-hash-algo preemption-mode profiler-config pt-load-map-location reasoning-config reasoning-parser
    reasoning-parser-plugin renderer-num-workers response-role root-path safetensors-load-strategy
    safetensors-prefetch-block-size safetensors-prefetch-num-threads scheduler-cls scheduling-policy seed
    served-model-name* show-hidden-metrics-for-version shutdown-timeout sse-keep-alive-interval ssl-ca-certs
    ssl-certfile ssl-cert-reqs ssl-ciphers ssl-keyfile stream-interval structured-outputs-config swap-space tokenizer
    tokenizer-mode tokenizer-revision tool-call-parser tool-parser-plugin tool-server tool-strict-level uds
    uvicorn-log-level watermark worker-cls worker-extension-cls
"""
"""Flags with a value about the same; KV that is offloaded lives in host memory, so its size is no matter here."""

UNCOUNTED_ENVIRONMENT: Mapping[str, str] = {
    "VLLM_ATTENTION_BACKEND": "another attention backend and the blocks that it needs",
    "VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS": "another place for CUDA graphs",
    "VLLM_PP_LAYER_PARTITION": "another division of the layers",
    "VLLM_FUSED_MOE_CHUNK_SIZE": "other chunks of the experts' work",
}
"""Environment variables that move GPU memory and are not counted yet (vllm/envs.py)."""

HARMLESS_ENVIRONMENT = """
    VLLM_API_KEY VLLM_CACHE_ROOT VLLM_CONFIGURE_LOGGING VLLM_DEBUG_LOG_API_SERVER_RESPONSE VLLM_DO_NOT_TRACK
    VLLM_ENGINE_READY_TIMEOUT_S VLLM_HOST_IP VLLM_LOG_STATS_INTERVAL VLLM_LOGGING_CONFIG_PATH VLLM_LOGGING_LEVEL
    VLLM_NO_USAGE_STATS VLLM_PORT VLLM_RPC_TIMEOUT VLLM_SERVER_DEV_MODE VLLM_USE_MODELSCOPE
    VLLM_WORKER_MULTIPROC_METHOD VLLM_ALLOW_RUNTIME_LORA_UPDATING VLLM_HTTP_TIMEOUT_KEEP_ALIVE VLLM_NCCL_SO_PATH
"""
"""Environment variables that do not."""
