"""The lines that people paste: what engines print at start-up and under load, and what each one says.

A row is a pattern with named figures; its sentences are filled with them and with what `kvbudget.explain` derives from
them. Patterns are searched for inside a line, so a time stamp or a process name before it does no harm. Source: the
format strings of the released wheels of vLLM 0.6.6 to 0.33.0 and of SGLang 0.5.23, and llama.cpp of 2026-10; read
2026-11; the file is named in each row.
"""

from __future__ import annotations

from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class LogLine(NamedTuple):
    """One kind of line.

    Attributes:
        name: What `kvbudget.explain` calls it.
        title: What it is, for people.
        pattern: A regular expression; its named groups are the figures.
        versions: Where it is printed like this.
        source: The engine's file that prints it.
        sentences: What it says; one whose figures are not there is left out.
        engine: Whose line it is.
    """

    name: str
    title: str
    pattern: str
    versions: str
    source: str
    sentences: tuple[str, ...]
    engine: str = "vLLM"


_CACHE = "v1/core/kv_cache_utils.py"
_WORKER = "v1/worker/gpu_worker.py"
_GIB = r"-?[0-9]{1,15}(?:\.[0-9]{1,9})?"
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_COUNT = r"[0-9][0-9,]{0,19}"
_SIZED = rf"{_NUMBER} (?:[KMG]iB|bytes)"

_VLLM = (
    LogLine(
        "kv_cache_size",
        "KV cache size",
        rf"(?P<device>[A-Z]{{3}}(?: \+ host)?) KV cache size: (?P<tokens>{_COUNT}) tokens",
        "0.8 on; one line with the concurrency since 0.28",
        _CACHE,
        (
            "{tokens:,} tokens of KV: the requests that run share them; prompt and output count alike.",
            "Since 0.20.2 it is derived: maximum concurrency × max_model_len. Where layers differ (windows, state) it is no number of slots, and the pool divided by it is not the bytes of a token.",
        ),
    ),
    LogLine(
        "max_concurrency",
        "Maximum concurrency",
        rf"Maximum concurrency for (?P<length>{_COUNT}) tokens per request: (?P<concurrency>{_NUMBER})x",
        "0.6.6 on",
        _CACHE,
        (
            "{tokens:,} tokens of KV; {concurrency:g} requests if each is {length:,} long; about {short_requests:,} of {short:,}.",
            "Not a limit on users; the engine also stops at max_num_seqs.",
            "The figure is derived: tokens = concurrency × max_model_len, and the line has two decimals.",
            "At {part:g} one request of the longest length does not fit; current versions refuse to start.",
        ),
    ),
    LogLine(
        "gpu_blocks",
        "GPU blocks",
        rf"# [A-Za-z]{{3,8}} blocks: (?P<blocks>{_COUNT})(?:, # CPU blocks: (?P<cpu_blocks>{_COUNT}))?",
        "V0, and V1 up to 0.7.3",
        "engine/llm_engine.py",
        (
            "{blocks:,} blocks of the cache on each GPU; with blocks of {block_size} tokens that is {tokens:,} tokens.",
            "V1 keeps one block of them empty.",
        ),
    ),
    LogLine(
        "all_blocks",
        "Blocks of the cache",
        rf"vllm cache_config_info with initialization after num_gpu_blocks is: (?P<all_blocks>{_COUNT})",
        "0.9 to 0.11; later with VLLM_LOGGING_LEVEL=DEBUG",
        "v1/metrics/loggers.py",
        ("{all_blocks:,} blocks of the cache; with --data-parallel-size those of all its engines together.",),
    ),
    LogLine(
        "blocks_override",
        "Blocks that were chosen",
        rf"Overriding num_gpu_blocks=(?P<had>{_COUNT}) with num_gpu_blocks_override=(?P<made>{_COUNT})",
        "all",
        _CACHE,
        (
            "The cache has {made:,} blocks because --num-gpu-blocks-override says so; the memory has room for {had:,}, and --gpu-memory-utilization does not change it.",
        ),
    ),
    LogLine(
        "batched_tokens",
        "Tokens of a step",
        rf"Chunked prefill is enabled with max_num_batched_tokens=(?P<batched>{_COUNT})",
        "all of V1, and V0 with chunked prefill",
        "config/scheduler.py",
        (
            "A step computes at most {batched:,} tokens of all requests together: longer prompts take several steps.",
            "Peak activations grow with it; a lower --max-num-batched-tokens leaves more for the cache.",
        ),
    ),
    LogLine(
        "available_kv",
        "Available KV cache memory",
        rf"Available KV cache memory: (?P<pool>{_GIB}) GiB",
        "0.9.2 on",
        _WORKER,
        (
            "{left:g} GiB for the KV cache on this GPU: the budget (total × gpu_memory_utilization) less weights, peak activations and, since 0.20, CUDA graphs.",
            "It is what is left ({left:g} GiB), not what is needed: few requests do not make it smaller.",
            "Nothing is left for the KV cache: weights, activations and graphs exceed the budget by {over:g} GiB, and the engine stops.",
            "Bytes of a token: `kvbudget explain kv MODEL`.",
        ),
    ),
    LogLine(
        "model_loading",
        "Model loading",
        rf"(?:Model loading took|Loading model weights took) (?P<gib>{_GIB}) G(?:iB|B)"
        rf"(?: memory)?(?: and (?P<seconds>{_NUMBER}) seconds)?",
        "all; `Loading model weights took … GB` up to 0.7.3, which are GiB too",
        "v1/worker/gpu_model_runner.py",
        (
            "{gib:g} GiB of weights on this GPU, with buffers such as rope tables (older versions print GB and mean GiB).",
            "On several GPUs each prints its own share. By parts: `kvbudget explain weights MODEL`.",
        ),
    ),
    LogLine(
        "graphs",
        "Graph capturing",
        rf"Graph capturing finished in (?P<seconds>{_NUMBER}) secs?, took (?P<gib>{_GIB}) GiB",
        "all of V1",
        "v1/worker/gpu_model_runner.py",
        (
            "The captured CUDA graphs took {gib:g} GiB; they are captured after the cache is made.",
            "Since 0.20 an estimate of them is taken from the cache; before, they came out of what gpu_memory_utilization leaves. --enforce-eager saves them and slows decoding.",
        ),
    ),
    LogLine(
        "graph_pool",
        "CUDA graph pool",
        rf"CUDA graph pool memory: (?P<actual>{_GIB}) GiB \(actual\), (?P<estimated>{_GIB}) GiB \(estimated\)",
        "0.18.1 on",
        _WORKER,
        ("CUDA graphs took {actual:g} GiB, {more:+g} to the {estimated:g} GiB that were set aside.",),
    ),
    LogLine(
        "usage",
        "Where the memory went",
        rf"Free memory on device \((?P<free>{_GIB})/(?P<total>{_GIB}) GiB\) on startup\. Desired GPU memory utilization "
        rf"is \((?P<fraction>{_NUMBER}), (?P<budget>{_GIB}) GiB\)\. Actual usage is "
        rf"(?:(?P<weights>{_GIB}) GiB for weight, (?P<activations>{_GIB}) GiB for peak activation, "
        rf"(?P<non_torch>{_GIB}) GiB for non-torch memory, "
        rf"|(?P<consumed>{_GIB}) GiB for consumed memory \(weights \+ non-torch\), "
        rf"(?P<working>{_GIB}) GiB for peak activation, )"
        rf"and (?P<graphs>{_GIB}) GiB for CUDAGraph memory\."
        rf"(?:.{{0,400}}?Current kv cache memory in use is (?P<kv>{_GIB}) GiB)?",
        "0.10.2 on; since 0.27 in two figures, the second with the estimate of the graphs",
        _WORKER,
        (
            "Budget {budget:g} GiB = {total:g} × {fraction:g}; {outside:g} GiB stay outside for the CUDA context, NCCL and other processes.",
            "Of the budget {weights:g} GiB for weights, {activations:g} for peak activations, {non_torch:g} outside torch, {kv:g} for the KV cache.",
            "Of the budget {consumed:g} GiB for weights and memory outside torch, {working:g} for peak activations and the estimate of the CUDA graphs, {kv:g} for the KV cache.",
            "The captured CUDA graphs took {graphs:g} GiB.",
        ),
    ),
    LogLine(
        "start_free",
        "Error: too little free memory at start-up",
        rf"Free memory on device.{{0,80}}?\((?P<free>{_GIB})/(?P<total>{_GIB}) GiB\) on startup is less than .{{0,120}}?"
        rf"\((?P<fraction>{_NUMBER}), (?P<budget>{_GIB}) GiB\)",
        "all of V1",
        "v1/worker/utils.py",
        (
            "{free:g} of {total:g} GiB are free and {budget:g} are asked for ({fraction:g} of the total).",
            "Something else holds memory on this GPU: {others:g} GiB are taken. End it, or lower --gpu-memory-utilization to {fraction_that_starts:g} or less.",
            "The {context:g} GiB that are taken are a CUDA context's: lower --gpu-memory-utilization to {fraction_that_starts:g} or less.",
        ),
    ),
    LogLine(
        "no_cache_memory",
        "Error: no memory for the cache blocks",
        r"No available memory for the cache blocks",
        "all",
        _CACHE,
        (
            "Weights, activations and graphs alone exceed the budget: not one block of the cache fits.",
            "This is a start-up failure: raise --gpu-memory-utilization, lower --max-num-batched-tokens, use more GPUs or smaller weights. `kvbudget fit` says which is enough.",
        ),
    ),
    LogLine(
        "cache_too_small",
        "Error: one request of the longest length does not fit",
        rf"To serve at least one request with the models?'s max seq len \((?P<length>{_COUNT})\), "
        rf"\(?(?P<needed>{_GIB}) GiB KV cache is needed, which is larger than the available KV cache memory "
        rf"\((?P<available>{_GIB}) GiB\)(?:.*?estimated maximum model length is (?P<fits>{_COUNT}))?",
        "0.8 on; without an estimate where nothing fits",
        _CACHE,
        (
            "One request of {length:,} tokens needs {needed:g} GiB of cache and {available:g} are there: short by {short_by:g}.",
            "--max-model-len {fits} would start, for one such request at a time.",
            "This is a start-up failure: raise --gpu-memory-utilization (running out of memory while serving asks for the opposite), use --kv-cache-dtype fp8, or more GPUs.",
        ),
    ),
    LogLine(
        "cache_too_small_v0",
        "Error: the longest length does not fit",
        rf"max seq len \((?P<length>{_COUNT})\) is larger than the maximum number of tokens that can be stored in KV cache "
        rf"\((?P<fits>{_COUNT})\)",
        "V0",
        "worker/worker.py",
        (
            "The cache holds {fits:,} tokens, and one request may have {length:,}.",
            "Lower --max-model-len to {fits}, raise --gpu-memory-utilization, use --kv-cache-dtype fp8, or more GPUs.",
        ),
    ),
    LogLine(
        "auto_fit",
        "Longest length chosen to fit",
        rf"Auto-fit max_model_len: reduced from (?P<length>{_COUNT}) to (?P<fits>{_COUNT})",
        "0.14.1 on, with --max-model-len auto",
        _CACHE,
        ("The longest request was cut from {length:,} to {fits:,} tokens, so that one fits in the cache.",),
    ),
    LogLine(
        "hybrid_block",
        "Attention block of a hybrid model",
        rf"Setting attention block size to (?P<tokens>{_COUNT}) tokens to ensure that attention page size",
        "V1",
        "platforms/interface.py",
        (
            "The model mixes attention with state layers: a block has {tokens:,} tokens, as many as make attention's page as large as a state.",
            "Prefix caching matches whole blocks, so beginnings shorter than {tokens:,} tokens never hit.",
        ),
    ),
    LogLine(
        "mamba_padding",
        "Padding of a state",
        rf"Padding mamba page size by (?P<percent>{_NUMBER})%",
        "V1",
        "platforms/interface.py",
        (
            "A state is stored as if it were {percent:g} % larger, so that its page is as large as attention's: so much of the states' part of the cache is empty.",
        ),
    ),
    LogLine(
        "padding_layers",
        "Padding layers",
        r"Add (?P<layers>[0-9]+) padding layers, may waste at most (?P<percent>[0-9]+(?:\.[0-9]+)?)% KV cache memory",
        "V1",
        _CACHE,
        (
            "The kinds of layers do not divide evenly into groups: {layers} empty layers are added, at most {percent:g} % of the cache.",
        ),
    ),
    LogLine(
        "stats",
        "Statistics under load",
        r"Running: (?P<running>[0-9]+) reqs, (?:Swapped: [0-9]+ reqs, )?(?:Waiting|Pending): (?P<waiting>[0-9]+) reqs,.*?"
        rf"[A-Z]{{3}} KV cache usage: (?P<usage>{_NUMBER})%(?:, Prefix cache hit rate: (?P<hits>{_NUMBER})%)?",
        "all",
        "v1/metrics/loggers.py",
        (
            "{running} requests run and {waiting} wait; the running ones hold {usage:g} % of the cache.",
            "Blocks that only the prefix cache keeps do not count, so a low figure is no sign of waste.",
            "The {queue} wait for blocks or for max_num_seqs; preemptions are in the metrics, not in this line.",
        ),
    ),
    LogLine(
        "preempted_v0",
        "Preemption",
        r"Sequence group \S+ is preempted by (?:PreemptionMode\.)?(?:(?P<swap>SWAP)|(?P<recompute>RECOMPUTE)|\S+) mode because "
        r"there is not enough KV cache space(?:.*?total_num_cumulative_preemption=(?P<preemptions>[0-9]+))?",
        "V0 alone; V1 logs no line for a preemption",
        "core/scheduler.py",
        (
            "The cache was full, and a running request lost its part, which {later}.",
            "{preemptions:,} preemptions so far.",
            "Many of them mean overload: fewer requests at once (--max-num-seqs) or more cache.",
        ),
    ),
    LogLine(
        "out_of_memory",
        "Error: out of memory",
        rf"(?:CUDA|HIP|XPU) out of memory\. Tried to allocate (?P<asked>{_SIZED})"
        rf"(?:.{{0,200}}?total capaci?ty of (?P<capacity>{_SIZED}) of which (?P<unused>{_SIZED}) is free)?"
        rf"(?:.{{0,600}}?this process has (?P<own>{_SIZED}) memory in use)?",
        "all; torch's own message",
        "torch",
        (
            "An allocation of {asked} failed.",
            "Of {capacity} this process holds {own} and {unused} are free; the rest is other processes'.",
            "While loading, the weights do not fit: more GPUs or smaller weights.",
            "While serving, the cache took what the activations need: lower --gpu-memory-utilization or --max-num-batched-tokens (a failing start-up check asks for the opposite).",
        ),
    ),
    LogLine(
        "warm_up_out_of_memory",
        "Error: out of memory",
        rf"out of memory occurred when warming up (?P<what>sampler|pooler)(?: \([^)]{{0,80}}\))? with (?P<requests>{_COUNT}) dummy requests",
        "0.8 on",
        "v1/worker/gpu_model_runner.py",
        (
            "The {what} had no room for {requests:,} requests at once, as many as --max-num-seqs allows: a start-up failure.",
            "Lower --max-num-seqs; where the cache was made already, a lower --gpu-memory-utilization leaves room too.",
        ),
    ),
    LogLine(
        "profile_v0",
        "Where the memory went in V0",
        rf"Memory profiling results: total_gpu_memory=(?P<total>{_GIB})\s?GiB initial_memory_usage=(?P<initial>{_GIB})\s?GiB "
        rf"peak_torch_memory=(?P<peak>{_GIB})\s?GiB.{{0,400}}?non_torch_memory=(?P<non_torch>{_GIB})\s?GiB "
        rf"kv_cache_size=(?P<kv>{_GIB})\s?GiB gpu_memory_utilization=(?P<fraction>{_NUMBER})",
        "V0, late 2024",
        "worker/worker.py",
        (
            "{kv:g} GiB for the KV cache: {total:g} × {fraction:g}, less {peak:g} that weights and activations took at their peak and {non_torch:g} outside torch.",
            "{initial:g} GiB were in use before the profile run: the weights, and what else is on the card.",
        ),
    ),
    LogLine(
        "budget_v0",
        "The budget of V0",
        rf"total_gpu_memory \((?P<total>{_GIB})\s?GiB\) x gpu_memory_utilization \((?P<fraction>{_NUMBER})\) = "
        rf"(?P<budget>{_GIB})\s?GiB",
        "V0",
        "worker/worker.py",
        ("Budget {budget:g} GiB = {total:g} × {fraction:g}; {outside:g} GiB stay outside.",),
    ),
    LogLine(
        "parts_v0",
        "Where the memory went in V0",
        rf"model weights take (?P<weights>{_GIB})\s?GiB; non_torch_memory takes (?P<non_torch>{_GIB})\s?GiB; PyTorch "
        rf"activation peak memory takes (?P<activations>{_GIB})\s?GiB; the rest of the memory reserved for KV Cache is "
        rf"(?P<kv>{_GIB})\s?GiB",
        "V0",
        "worker/worker.py",
        (
            "Of the budget {weights:g} GiB for weights, {activations:g} for peak activations, {non_torch:g} outside torch, and the rest, {kv:g}, for the KV cache.",
            "Activations are those of --max-num-batched-tokens, which without chunked prefill is max_model_len: a shorter one leaves more for the cache.",
        ),
    ),
    LogLine(
        "fixed_pool",
        "A pool of a given size",
        rf"Initial free memory (?P<free>{_GIB}) GiB, reserved (?P<kv>{_GIB})\s?GiB memory for KV Cache as specified",
        "0.10.2 on, with --kv-cache-memory-bytes",
        _WORKER,
        (
            "The cache has {kv:g} GiB because --kv-cache-memory-bytes says so; --gpu-memory-utilization is not heeded, and nothing checks that the rest fits.",
            "{free:g} GiB of the card were free when the engine began.",
        ),
    ),
    LogLine(
        "graphs_estimate",
        "What is set aside for CUDA graphs",
        rf"Estimated CUDA graph memory: (?P<estimated_graphs>{_GIB}) GiB",
        "0.18.1 on",
        "v1/worker/gpu_model_runner.py",
        (
            "CUDA graphs will take about {estimated_graphs:g} GiB; since 0.20 that is taken from the cache before it is made.",
        ),
    ),
    LogLine(
        "graphs_counted",
        "CUDA graphs in the budget",
        rf"The current --gpu-memory-utilization=(?P<now>{_NUMBER}) is equivalent to --gpu-memory-utilization=(?P<like>{_NUMBER})",
        "0.18.1 on; by default since 0.20",
        _WORKER,
        (
            "The budget of {now:g} pays for the CUDA graphs too: the cache is as large as {like:g} made it before. It is no error.",
        ),
    ),
)

_SGLANG_RUNNER = "srt/model_executor/model_runner.py"

_SGLANG = (
    LogLine(
        "sglang_weights",
        "Model loading",
        rf"Load weight end\..{{0,400}}?avail mem=(?P<free>{_GIB}) GB(?:, mem usage=(?P<weights>{_GIB}) GB)?",
        "all; the last figure since 0.4",
        _SGLANG_RUNNER,
        (
            "{weights:g} GiB of weights on this GPU (SGLang prints GB and means GiB).",
            "{free:g} GiB are free after it; the pool takes what --mem-fraction-static leaves of them.",
        ),
        "SGLang",
    ),
    LogLine(
        "sglang_cache",
        "KV cache",
        rf"KV Cache is allocated\..{{0,400}}?#tokens: (?P<tokens>{_COUNT}), K size: (?P<k>{_GIB}) GB, V size: (?P<v>{_GIB}) GB",
        "all, where keys and values are kept apart",
        "srt/mem_cache/memory_pool.py",
        (
            "{tokens:,} tokens of KV in {k:g} GiB of keys and {v:g} of values on this GPU (SGLang prints GB and means GiB).",
            "A token takes about {bytes_per_token:,} B of it.",
        ),
        "SGLang",
    ),
    LogLine(
        "sglang_latent_cache",
        "KV cache",
        rf"KV Cache is allocated\..{{0,400}}?#tokens: (?P<tokens>{_COUNT}), KV size: (?P<k>{_GIB}) GB",
        "all, where one vector is kept (MLA)",
        "srt/mem_cache/memory_pool.py",
        (
            "{tokens:,} tokens of KV in {k:g} GiB on this GPU (SGLang prints GB and means GiB).",
            "A token takes about {bytes_per_token:,} B of it.",
        ),
        "SGLang",
    ),
    LogLine(
        "sglang_graphs",
        "Graph capturing",
        rf"Capture .{{1,60}}graph end\..{{0,2000}}?mem usage=(?P<graphs>{_GIB}) GB",
        "all",
        "srt/model_executor/model_runner_components/cuda_graph_setup.py",
        ("The captured graphs took {graphs:g} GiB; --mem-fraction-static does not count them.",),
        "SGLang",
    ),
    LogLine(
        "sglang_limits",
        "What it can serve",
        rf"max_total_num_tokens=(?P<tokens>{_COUNT})\b.{{0,400}}?context_len=(?P<length>{_COUNT})",
        "all",
        "srt/managers/scheduler.py",
        (
            "{tokens:,} tokens of KV, which the requests that run share; one of them may have {length:,}: {times:.2f} of the longest.",
            "Not a limit on users; the engine also stops at max_running_requests.",
        ),
        "SGLang",
    ),
    LogLine(
        "sglang_stats",
        "Statistics under load",
        rf"Decode batch.{{1,40}}?#running-req: (?P<running>{_COUNT}),.{{0,400}}?token usage: (?P<kv_share>{_NUMBER})"
        rf"(?:.{{0,400}}?gen throughput \(token/s\): (?P<generation>{_NUMBER}))?"
        rf"(?:.{{0,400}}?#queue-req: (?P<waiting>{_COUNT}))?",
        "all",
        "srt/managers/scheduler_components/metrics_reporter.py",
        (
            "{running} requests run; they hold {usage:g} % of the cache.",
            "{waiting} wait in the queue.",
        ),
        "SGLang",
    ),
    LogLine(
        "sglang_retracted",
        "Retraction",
        rf"(?:KV cache pool is full|Decode out of memory happened).{{0,400}}?#retracted_reqs: (?P<preemptions>{_COUNT})",
        "all",
        "srt/managers/scheduler.py",
        (
            "The cache was full: {preemptions} running requests lost their part, which is computed again later.",
            "Often means overload: a lower --max-running-requests, a higher --schedule-conservativeness, or more cache (--mem-fraction-static).",
        ),
        "SGLang",
    ),
    LogLine(
        "sglang_no_cache_memory",
        "Error: no memory for the cache",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        "all",
        "srt/model_executor/pool_configurator.py",
        (
            "Nothing is left for the cache. This is a start-up failure: raise --mem-fraction-static, use more GPUs or smaller weights.",
        ),
        "SGLang",
    ),
)

_MIB = r"[0-9]{1,12}\.[0-9]{1,4}"
_DEVICE = r"\S{1,60}"


def _buffer(name: str, title: str, pattern: str, *sentences: str) -> LogLine:
    """Return a buffer of llama.cpp's."""
    return LogLine(
        name, title, pattern, "all; llama-server with -lv 4 alone", "src/llama-*.cpp", sentences, "llama.cpp"
    )


_LLAMACPP = (
    _buffer(
        "llamacpp_weights",
        "Model loading",
        rf"load_tensors:\s+(?P<device>{_DEVICE}) (?:model )?buffer size =\s+(?P<size>{_MIB}) MiB",
        "{size:,.2f} MiB of weights on {device}; a name with CPU or Mapped is the host's memory.",
    ),
    _buffer(
        "llamacpp_cache",
        "KV cache",
        rf"llama_kv_cache\w*:\s+(?P<device>{_DEVICE}) KV buffer size =\s+(?P<size>{_MIB}) MiB",
        "{size:,.2f} MiB of KV on {device}: the layers that are there, all slots together.",
    ),
    _buffer(
        "llamacpp_cells",
        "KV cache",
        rf"llama_kv_cache\w*: size =\s+(?P<size>{_MIB}) MiB \(\s*(?P<cells>[0-9]{{1,12}}) cells,\s+(?P<layers>[0-9]{{1,6}}) layers,"
        r"\s+(?P<slots>[0-9]{1,6})",
        "{size:,.2f} MiB for {cells:,} tokens in {layers} layers, {slots} slots: {cell_bytes:,} B a token.",
        "The cells are those of -c; slots share them (--kv-unified) or have each their part.",
    ),
    _buffer(
        "llamacpp_slot",
        "Context of a slot",
        rf"\bn_ctx_(?:per_seq|seq|slot)\s{{0,20}}= (?P<slot>{_COUNT})",
        "One request may have {slot:,} tokens: -c divided by -np, or all of it with --kv-unified.",
    ),
    _buffer(
        "llamacpp_state",
        "State",
        rf"llama_memory_recurrent:\s+(?P<device>{_DEVICE}) RS buffer size =\s+(?P<size>{_MIB}) MiB",
        "{size:,.2f} MiB on {device} for the state of recurrent layers: the same for a request of any length.",
    ),
    _buffer(
        "llamacpp_compute",
        "Compute buffer",
        rf"(?:sched_reserve|llama_context|llama_new_context_with_model):\s+(?P<device>{_DEVICE}) compute buffer size =\s+"
        rf"(?P<size>{_MIB}) MiB",
        "{size:,.2f} MiB on {device} for a step's intermediate values; a smaller -ub makes it smaller.",
    ),
    _buffer(
        "llamacpp_output",
        "Output buffer",
        rf"(?:llama_context|llama_new_context_with_model):\s+(?P<device>{_DEVICE})\s+output buffer size =\s+(?P<size>{_MIB}) MiB",
        "{size:,.2f} MiB on {device} for logits.",
    ),
    _buffer(
        "llamacpp_out_of_memory",
        "Error: out of memory",
        r"allocating (?P<size>[0-9]{1,12}\.[0-9]{1,4}) MiB on device (?P<device>[0-9]{1,3}): cudaMalloc failed: out of memory",
        "A buffer of {size:,.2f} MiB has no place on device {device}: lower -ngl, -c, -np or -ub, or let --fit choose them.",
    ),
)

_OTHERS = (
    LogLine(
        "trtllm_cache",
        "KV cache",
        rf"Allocated? (?P<bytes>{_COUNT}) bytes for k/v cache",
        "all",
        "batch_manager/kvCacheManager.cpp",
        ("{bytes_gib:,.2f} GiB of KV on this GPU: --free_gpu_memory_fraction of what was free after loading.",),
        "TensorRT-LLM",
    ),
    LogLine(
        "trtllm_tokens",
        "KV cache",
        rf"Using (?P<tokens>{_COUNT}) tokens in paged KV cache",
        "all",
        "batch_manager/kvCacheManager.cpp",
        ("{tokens:,} tokens of KV, which the requests that run share; prompt and output count alike.",),
        "TensorRT-LLM",
    ),
    LogLine(
        "ollama_offload",
        "Memory that a model needs",
        rf'msg=offload .{{0,1000}}?memory\.required\.kv="(?P<kv_text>{_SIZED.replace("bytes", "B")})"'
        rf'(?:.{{0,400}}?memory\.graph\.full="(?P<graph_text>{_SIZED.replace("bytes", "B")})")?',
        "up to 0.12; the new engine prints parts of their own",
        "llm/memory.go",
        (
            "{kv_text} for the KV cache of num_ctx × OLLAMA_NUM_PARALLEL tokens: an estimate from before the model is loaded.",
            "{graph_text} for a step's intermediate values where all layers are on the GPU.",
        ),
        "Ollama",
    ),
)

LOG_LINES: tuple[LogLine, ...] = tuple(chain(_VLLM, _SGLANG, _LLAMACPP, _OTHERS))
"""The commonest lines, in the order in which they are looked for."""

PATTERNS: Mapping[str, str] = MappingProxyType({line.name: line.pattern for line in LOG_LINES})
"""Name -> pattern, for readers of whole logs."""
