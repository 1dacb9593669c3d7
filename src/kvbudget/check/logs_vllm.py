"""vLLM's lines, V0 and V1, 0.4 to 0.33.

Patterns that `kvbudget explain log` knows come from `kvbudget.facts.log_lines`; the rest stands here. Source: the
format strings of the released wheels 0.6.6 to 0.33.0, and public logs of older versions (vllm-project/vllm#10517).
"""

from __future__ import annotations

import re

from kvbudget.check.observation import CAPTURING, LOADING, PROFILING, SERVING
from kvbudget.check.rows import COUNT, FLAG, GIB_UNIT, SIZED, SMALLEST, Row, from_call, from_dict
from kvbudget.facts.log_lines import PATTERNS

ENGINE = "vllm"

_GIB = r"-?[0-9.]{1,18}"
_NUMBER = r"[0-9][0-9.]{0,17}"
_REQUESTS = r"[0-9]{1,12}"
_THROUGHPUT = (
    rf"Avg prompt throughput: (?P<prompt>{_NUMBER}) tokens/s, "
    rf"Avg generation throughput: (?P<generation>{_NUMBER}) tokens/s, "
)


def _gib(**groups: str) -> dict[str, tuple[str, str]]:
    return {group: (term, GIB_UNIT) for group, term in groups.items()}


ROWS: tuple[Row, ...] = (
    # -- who it is and what it was asked
    Row(
        "server version",
        r"vLLM (?:API )?server version (?P<version>[\w.+-]{1,40})(?:, serving model (?P<model>\S{1,500}))?",
        starts="server",
    ),
    Row("█", r"█\s+version (?P<version>[\w.+-]{1,40})", starts="server"),
    Row("█", r"█\s+model\s+(?P<model>\S{1,500})"),
    Row("non-default args: ", r"non-default args: (?P<settings>\{.*)", settings=from_dict, typed=True, phase=LOADING),
    Row("args: Namespace(", r"\bargs: Namespace\((?P<settings>.*)", settings=from_call, typed=True, phase=LOADING),
    Row(
        "LLM engine (v",
        r"Initializing an? (?:V[01] )?LLM engine \(v(?P<version>[\w.+-]{1,40})\) with config: (?P<settings>.*)",
        settings=from_call,
        starts="engine",
    ),
    Row(
        "max_num_batched_tokens=",
        r"Chunked prefill is enabled with (?P<settings>max_num_batched_tokens=[0-9]{1,12})",
        settings=from_call,
    ),
    Row("Using max model len ", r"Using max model len (?P<length>[0-9]{1,15})", {"length": ("max_model_len", COUNT)}),
    Row("device_name=", r"(?P<settings>device_name=[\w-]{1,80})", settings=from_call),
    # -- weights
    Row("Starting to load model", r"Starting to load model", phase=LOADING),
    Row("weights took", PATTERNS["model_loading"], _gib(gib="weights"), phase=PROFILING),
    Row("Model loading took", PATTERNS["model_loading"], _gib(gib="weights"), phase=PROFILING),
    # -- the profile run of V0
    Row(
        "total_gpu_memory (",
        PATTERNS["budget_v0"],
        _gib(total="total", budget="budget") | {"fraction": ("gpu_memory_utilization", FLAG)},
        phase=PROFILING,
    ),
    Row(
        "model weights take",
        PATTERNS["parts_v0"],
        _gib(weights="weights", non_torch="non_torch", activations="activations", kv="available_kv_cache_memory"),
        phase=CAPTURING,
    ),
    Row(
        "Memory profiling results: ",
        PATTERNS["profile_v0"],
        _gib(total="total", peak="torch_peak", non_torch="non_torch", kv="available_kv_cache_memory")
        | {"fraction": ("gpu_memory_utilization", FLAG)},
        phase=CAPTURING,
    ),
    # -- the same in a table, vllm-project/vllm#10511
    Row(
        "total_gpu_memory", rf"total_gpu_memory\s{{1,20}}(?P<total>{_GIB})\s?GiB", _gib(total="total"), phase=PROFILING
    ),
    Row("model weights take", rf"model weights take\s{{1,20}}(?P<weights>{_GIB})\s?GiB\s*$", _gib(weights="weights")),
    Row("non_torch_memory", rf"non_torch_memory\s{{1,20}}(?P<non_torch>{_GIB})\s?GiB", _gib(non_torch="non_torch")),
    Row(
        "PyTorch activation peak",
        rf"PyTorch activation peak memory\s{{1,20}}(?P<activations>{_GIB})\s?GiB",
        _gib(activations="activations"),
    ),
    Row(
        "available_kv_cache_memory",
        rf"available_kv_cache_memory\s{{1,20}}(?P<kv>{_GIB})\s?GiB",
        _gib(kv="available_kv_cache_memory"),
        phase=CAPTURING,
    ),
    # -- the profile run of V1; the first two at VLLM_LOGGING_LEVEL=DEBUG
    Row(
        "Initial free memory",
        rf"Initial free memory: (?P<free>{_GIB}) GiB[;,] [Rr]equested memory: (?P<fraction>{_NUMBER}) \(util\), "
        rf"(?P<budget>{_GIB}) GiB",
        _gib(free="free_at_start", budget="budget") | {"fraction": ("gpu_memory_utilization", FLAG)},
    ),
    Row(
        "torch peak memory increase",
        rf"torch peak memory increase: (?P<activations>{_GIB})\s?GiB; "
        rf"(?:non-torch forward increase memory: (?P<non_torch>{_GIB})\s?GiB; )?"
        rf"(?:total consumed \(from mem_get_info\): (?P<consumed>{_GIB})\s?GiB; )?weights memory: (?P<weights>{_GIB})\s?GiB",
        _gib(activations="activations", non_torch="non_torch", consumed="consumed", weights="weights"),
    ),
    Row(
        "Available KV cache memory",
        PATTERNS["available_kv"],
        _gib(pool="available_kv_cache_memory"),
        phase=CAPTURING,
        again=SMALLEST,
    ),
    Row(
        "Free memory on device",
        PATTERNS["usage"],
        _gib(
            free="free_at_start",
            total="total",
            budget="budget",
            weights="weights",
            consumed="consumed",
            activations="activations",
            working="activations_and_graphs",
            non_torch="non_torch",
            graphs="cuda_graphs",
            kv="available_kv_cache_memory",
        )
        | {"fraction": ("gpu_memory_utilization", FLAG)},
        phase=CAPTURING,
    ),
    Row(
        "for KV cache on node",
        rf"\((?P<kv>{_GIB})/(?P<total>{_GIB})\) GiB for KV cache on node",
        _gib(kv="available_kv_cache_memory", total="total"),
        phase=CAPTURING,
    ),
    Row(
        "memory for KV Cache as specified",
        PATTERNS["fixed_pool"],
        _gib(free="free_at_start", kv="available_kv_cache_memory"),
        phase=CAPTURING,
    ),
    # -- the cache
    Row(
        "KV cache size: ",
        PATTERNS["kv_cache_size"],
        {"tokens": ("kv_cache_size_tokens", COUNT)},
        phase=CAPTURING,
        again=SMALLEST,
    ),
    Row(
        "Maximum concurrency for",
        PATTERNS["max_concurrency"],
        {"length": ("max_model_len", COUNT), "concurrency": ("max_concurrency", FLAG)},
        phase=CAPTURING,
        again=SMALLEST,
    ),
    Row(" blocks: ", PATTERNS["gpu_blocks"], {"blocks": ("num_gpu_blocks", COUNT)}, phase=CAPTURING),
    Row(
        "after num_gpu_blocks is",
        rf"(?:(?P<device>Engine \d{{1,5}}): )?(?<! Engines: ){PATTERNS['all_blocks']}",
        {"all_blocks": ("all_blocks", COUNT)},
        phase=CAPTURING,
        per_device=True,
    ),
    Row(
        "num_gpu_blocks_override=",
        r"Overriding num_gpu_blocks=[0-9]{1,15} with num_gpu_blocks_override=(?P<blocks>[0-9]{1,15})",
        {"blocks": ("num_gpu_blocks", COUNT)},
        phase=CAPTURING,
    ),
    Row(
        "Auto-fit max_model_len",
        r"Auto-fit max_model_len: reduced from [0-9,]+ to (?P<fits>[0-9,]{1,20})",
        {"fits": ("max_model_len", COUNT)},
        phase=CAPTURING,
    ),
    Row("Setting attention block size to", PATTERNS["hybrid_block"], {"tokens": ("block_size", COUNT)}),
    # -- CUDA graphs
    Row("Graph capturing finished", PATTERNS["graphs"], _gib(gib="cuda_graphs"), phase=CAPTURING),
    Row(
        "CUDA graph pool memory",
        PATTERNS["graph_pool"],
        _gib(actual="cuda_graphs", estimated="cuda_graphs_estimated"),
        phase=CAPTURING,
    ),
    Row(
        "Estimated CUDA graph memory",
        PATTERNS["graphs_estimate"],
        _gib(estimated_graphs="cuda_graphs_estimated"),
        phase=CAPTURING,
    ),
    # -- it serves
    Row("init engine (profile", r"init engine \(profile, create kv cache", phase=SERVING),
    Row("Application startup complete", r"Application startup complete", phase=SERVING, anyones=True),
    Row("Starting vLLM ", r"Starting vLLM (?:API )?server", phase=SERVING),
    Row(
        "Swapped: ",
        rf"(?:{_THROUGHPUT})?Running: (?P<running>{_REQUESTS}) reqs, Swapped: {_REQUESTS} reqs, "
        rf"Pending: (?P<waiting>{_REQUESTS}) reqs, [A-Z]{{3}} KV cache usage: (?P<kv_usage>{_NUMBER})%",
        stats=True,
        tells_preemptions=True,
        phase=SERVING,
    ),
    Row("Prefix cache hit rate: GPU", rf"Prefix cache hit rate: GPU: (?P<hits>{_NUMBER})%", stats=True, phase=SERVING),
    Row(
        "Waiting: ",
        rf"(?:(?P<engines>[0-9]{{1,5}}) Engines Aggregated: )?(?:{_THROUGHPUT})?Running: (?P<running>{_REQUESTS}) reqs, Waiting: (?P<waiting>{_REQUESTS}) reqs,"
        rf".{{0,400}}?[A-Z]{{3}} KV cache usage: (?P<kv_usage>{_NUMBER})%(?:, Prefix cache hit rate: (?P<hits>{_NUMBER})%)?",
        stats=True,
        phase=SERVING,
    ),
    Row("Preemptions: ", r"Preemptions: (?P<preemptions>[0-9]{1,12})", preempts=True),
    Row(
        "is preempted by",
        r"Sequence group \S{1,200} is preempted by \S{1,80} mode because there is not enough KV cache space"
        r"(?:.{0,400}?total_num_cumulative_preemption=(?P<preemptions>[0-9]{1,12}))?",
        preempts=True,
        cumulative=True,
    ),
    # -- it refuses
    Row(
        "on startup is less than",
        PATTERNS["start_free"],
        _gib(free="free_at_start", total="total", budget="budget") | {"fraction": ("gpu_memory_utilization", FLAG)},
        refusal="start_free",
        errors={"free": GIB_UNIT, "total": GIB_UNIT, "budget": GIB_UNIT, "fraction": FLAG},
    ),
    Row(
        "Externally held weights",
        rf"Externally held weights on device.{{0,80}}?\((?P<held>{_GIB})/(?P<total>{_GIB}) GiB\) exceed .{{0,120}}?"
        rf"\((?P<fraction>{_NUMBER}), (?P<budget>{_GIB}) GiB\)",
        _gib(total="total", budget="budget") | {"fraction": ("gpu_memory_utilization", FLAG)},
        refusal="no_cache_memory",
        errors={"held": GIB_UNIT, "total": GIB_UNIT, "budget": GIB_UNIT},
    ),
    Row(
        "for the KV cache. On the CPU backend",
        rf"The worker already uses (?P<used>{_GIB}) GiB .{{0,80}}?more than the (?P<budget>{_GIB}) GiB of CPU memory",
        refusal="no_cache_memory",
        errors={"used": GIB_UNIT, "budget": GIB_UNIT},
    ),
    Row(
        "is less than requested memory for kv",
        rf"Available memory on node \d{{1,4}} \((?P<free>{_GIB})/(?P<total>{_GIB}) GiB\) on kv cache allocation is less "
        rf"than requested memory for kv \((?P<needed>{_GIB})",
        refusal="host_memory",
        errors={"free": GIB_UNIT, "total": GIB_UNIT, "needed": GIB_UNIT},
    ),
    Row("No available memory for the cache", PATTERNS["no_cache_memory"], refusal="no_cache_memory"),
    Row(
        "To serve at least one request",
        PATTERNS["cache_too_small"],
        refusal="cache_too_small",
        errors={"length": COUNT, "needed": GIB_UNIT, "available": GIB_UNIT, "fits": COUNT},
    ),
    Row(
        "is larger than the maximum number of tokens",
        PATTERNS["cache_too_small_v0"],
        refusal="cache_too_small_v0",
        errors={"length": COUNT, "fits": COUNT},
    ),
    Row("Cannot auto-fit max_model_len", r"Cannot auto-fit max_model_len: not enough", refusal="no_cache_memory"),
    Row(
        "out of memory",
        PATTERNS["out_of_memory"],
        refusal="out_of_memory",
        errors={"asked": SIZED, "capacity": SIZED, "unused": SIZED, "own": SIZED},
        anyones=True,
    ),
    Row(
        "out of memory occurred",
        PATTERNS["warm_up_out_of_memory"],
        refusal="out_of_memory",
        errors={"requests": COUNT},
    ),
    Row(
        "out of memory",
        r"(?:CUDA|HIP)(?: driver)? error: out of memory|Cuda failure (?:\d+ )?'out of memory'",
        refusal="out_of_memory",
        anyones=True,
    ),
    *(
        Row(words, re.escape(words), refusal="out_of_memory", anyones=True)
        for words in (
            "CUDA_ERROR_OUT_OF_MEMORY",
            "cudaErrorMemoryAllocation",
            "hipErrorOutOfMemory",
            "CUBLAS_STATUS_ALLOC_FAILED",
            "would exceed allowed memory",  # a card of which torch may have a part
        )
    ),
    Row("Error in memory profiling", r"Error in memory profiling", refusal="memory_changed"),
)
