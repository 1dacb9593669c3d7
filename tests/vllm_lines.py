"""vLLM's start-up lines as its versions print them, from figures: what the tests and the benchmark read back.

The formats are those of the released wheels; each version's row says when a line took its form.
"""

# ruff: noqa: E501 - a printed line stays whole

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    Version = tuple[int, int, int]

V1_SINCE = (0, 8, 0)


def prefix(version: Version, process: str = "EngineCore_DP0", file: str = "gpu_worker.py", line: int = 298) -> str:
    """Return what stands before the words of a line."""
    if version < V1_SINCE:
        return (
            f"INFO 06-10 12:00:01 {file}:{line}] " if version < (0, 7, 0) else f"INFO 06-10 12:00:01 [{file}:{line}] "
        )
    name = "EngineCore" if version >= (0, 16, 0) and process == "EngineCore_DP0" else process
    return f"({name} pid=77) INFO 06-10 12:00:01 [{file}:{line}] "


def two(value: float) -> str:
    """Return GiB as versions since 0.14.1 print them: two decimals without trailing zeros."""
    return str(round(value, 2))


def start_up(version: Version, f: Mapping[str, Any], args: Mapping[str, Any]) -> list[str]:
    """Return the lines of a start.

    Args:
        version: vLLM's.
        f: Figures that are known: weights, activations, non_torch, graphs, available, tokens, concurrency, length,
            blocks, total, fraction, needed, fits.
        args: What was typed.
    """
    text = ".".join(map(str, version))
    lines = [prefix(version, "APIServer") + f"vLLM API server version {text}"]
    if version >= (0, 10, 0):
        lines.append(prefix(version, "APIServer") + f"non-default args: {dict(args)!r}")
    else:
        lines.append(
            prefix(version, "APIServer") + f"args: Namespace({', '.join(f'{k}={v!r}' for k, v in args.items())})"
        )
    engine = "an LLM engine" if version < V1_SINCE else "a V1 LLM engine"
    lines.append(
        prefix(version)
        + f"Initializing {engine} (v{text}) with config: model={args['model']!r}, dtype=torch.bfloat16, max_seq_len={f['length']}, tensor_parallel_size={args.get('tensor_parallel_size', 1)}, kv_cache_dtype=auto, device_config=cuda"
    )
    if "weights" in f:
        lines.append(prefix(version) + _loading(version, f["weights"]))
    if version < V1_SINCE:
        lines += [prefix(version) + line for line in _v0_profile(version, f)]
        return lines
    if "available" in f:
        lines.append(
            prefix(version)
            + f"Available KV cache memory: {two(f['available']) if version >= (0, 14, 1) else format(f['available'], '.2f')} GiB"
        )
    if "needed" in f:
        lines.append(prefix(version).replace("INFO", "ERROR") + _refusal(version, f))
        return lines
    lines += [prefix(version) + line for line in _size(version, f)]
    if "graphs" in f:
        lines.append(prefix(version) + f"Graph capturing finished in 12 secs, took {f['graphs']:.2f} GiB")
    if "graphs" in f and version >= (0, 18, 1):
        lines.append(
            prefix(version)
            + f"CUDA graph pool memory: {two(f['graphs'])} GiB (actual), {two(f['graphs'])} GiB (estimated), difference: 0.0 GiB (0.0%)."
        )
    if "activations" in f and "total" in f and version >= (0, 10, 2):
        lines.append(prefix(version) + _usage(version, f))
    lines.append(prefix(version) + "init engine (profile, create kv cache, warmup model) took 20.10 seconds")
    return lines


def _loading(version: Version, gib: float) -> str:
    if version < V1_SINCE:
        return f"Loading model weights took {gib:.4f} GB"
    if version < (0, 11, 0):
        return f"Model loading took {gib:.4f} GiB and 3.141593 seconds"
    return f"Model loading took {two(gib) if version >= (0, 14, 1) else format(gib, '.4f')} GiB memory and 3.141593 seconds"


def _v0_profile(version: Version, f: Mapping[str, Any]) -> list[str]:
    lines = []
    if {"weights", "activations", "non_torch", "available", "total", "fraction"} <= set(f) and version >= (0, 6, 4):
        lines += [
            "Memory profiling takes 1.50 seconds",
            (
                f"the current vLLM instance can use total_gpu_memory ({f['total']:.2f}GiB) x gpu_memory_utilization "
                f"({f['fraction']:.2f}) = {f['total'] * f['fraction']:.2f}GiB"
            ),
            (
                f"model weights take {f['weights']:.2f}GiB; non_torch_memory takes {f['non_torch']:.2f}GiB; PyTorch activation "
                f"peak memory takes {f['activations']:.2f}GiB; the rest of the memory reserved for KV Cache is "
                f"{f['available']:.2f}GiB."
            ),
        ]
    device = "cuda" if version >= (0, 7, 3) else "GPU"
    if "blocks" in f:
        lines.append(f"# {device} blocks: {f['blocks']}, # CPU blocks: 2048")
    if "concurrency" in f and version >= (0, 6, 4):
        lines.append(f"Maximum concurrency for {f['length']} tokens per request: {f['concurrency']:.2f}x")
    if "fits" in f:
        lines.append(
            f"ValueError: The model's max seq len ({f['length']}) is larger than the maximum number of tokens that can be "
            f"stored in KV cache ({f['fits']}). Try increasing `gpu_memory_utilization`."
        )
    return lines


def _size(version: Version, f: Mapping[str, Any]) -> list[str]:
    if "tokens" not in f:
        return []
    device = "GPU"
    size = f"{device} KV cache size: {f['tokens']:,} tokens"
    if "concurrency" not in f:
        return [size]
    most = f"Maximum concurrency for {f['length']:,} tokens per request: {f['concurrency']:.2f}x"
    return [f"{size}, {most}"] if version >= (0, 28, 0) else [size, most]


def _usage(version: Version, f: Mapping[str, Any]) -> str:
    gib = two if version >= (0, 14, 1) else (lambda value: format(value, ".2f"))
    if version >= (0, 27, 0):
        used = f"{gib(f['weights'] + f['non_torch'])} GiB for consumed memory (weights + non-torch), {gib(f['activations'] + f['graphs'])} GiB for peak activation, and {gib(f['graphs'])} GiB for CUDAGraph memory."
    else:
        used = f"{gib(f['weights'])} GiB for weight, {gib(f['activations'])} GiB for peak activation, {gib(f['non_torch'])} GiB for non-torch memory, and {gib(f['graphs'])} GiB for CUDAGraph memory."
    return (
        f"Free memory on device ({gib(f['free'])}/{gib(f['total'])} GiB) on startup. Desired GPU memory utilization is "
        f"({f['fraction']}, {gib(f['total'] * f['fraction'])} GiB). Actual usage is {used} Replace gpu_memory_utilization "
        f"config with `--kv-cache-memory=1` (1.0 GiB) to fit into requested memory, or `--kv-cache-memory=2` (2.0 GiB) to "
        f"fully utilize gpu memory. Current kv cache memory in use is {gib(f['available'])} GiB."
    )


def _refusal(version: Version, f: Mapping[str, Any]) -> str:
    if f.get("available", 1) <= 0:
        return "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."
    own = "model's" if version >= (0, 22, 1) else "models's"
    estimate = (
        f" Based on the available memory, the estimated maximum model length is {f['fits']}." if f.get("fits") else ""
    )
    return (
        f"ValueError: To serve at least one request with the {own} max seq len ({f['length']}), ({two(f['needed'])} GiB KV "
        f"cache is needed, which is larger than the available KV cache memory ({two(f['available'])} GiB).{estimate} Try "
        "increasing `gpu_memory_utilization` or decreasing `max_model_len` when initializing the engine."
    )
