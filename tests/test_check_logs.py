"""What is read of engines' logs.

`logs/vllm_0.32_*` are lines of a real vLLM 0.32 (CPU build, a tiny model of random weights, 48 requests of 100 + 800
tokens on 129 blocks of 32), its paths made short. Other formats are rendered by `vllm_lines` or quoted from public
logs, which each row names.
"""

# ruff: noqa: E501, ISC004 - a printed line stays whole

from __future__ import annotations

import io
import json
import tracemalloc
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.check import read_log, read_logs
from kvbudget.check.lines import MAX_LINE, lines_of, stripped
from kvbudget.check.observation import CAPTURING, LOADING, PROFILING, SERVING, UNSEEN, Spread
from kvbudget.units import GIB, MIB
from vllm_lines import prefix, start_up

LOGS = Path(__file__).parent / "logs"


def recorded(name: str) -> list[str]:
    return (LOGS / name).read_text(encoding="utf-8").splitlines()


# -- a real server


def test_recorded_start_and_load() -> None:
    seen = read_log(recorded("vllm_0.32_preempting.log"), "engine.log")
    assert (seen.engine, seen.phase, seen.starts) == ("vllm", SERVING, 1)
    assert seen.version is not None
    assert seen.model is not None
    assert (seen.version.value, seen.model.value) == ("0.32.0", "/models/tiny")
    values = {name: figures[0].value for name, figures in seen.terms.items()}
    assert values == {
        "max_model_len": 1024,
        "available_kv_cache_memory": GIB,
        "total": pytest.approx(23.54 * GIB),
        "num_gpu_blocks": 129,
        "kv_cache_size_tokens": 4128,
        "max_concurrency": 4.03,
    }
    flags = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 512,
        "block_size": 32,
        "num_gpu_blocks_override": 129,
        "enable_prefix_caching": True,
        "dtype": "bfloat16",
    }
    assert {name: seen.flags[name].value for name in flags} == flags
    assert seen.resolved["device_config"].value == "cpu"


def test_recorded_statistics() -> None:
    load = read_log(recorded("vllm_0.32_preempting.log")).load
    assert (load.running.count, load.running.largest, load.waiting.largest) == (3, 12, 6)
    assert (load.kv_usage.largest, load.kv_usage.last) == (97.7, 0.0)
    assert load.generation_throughput.largest == 2509.6
    assert load.prefix_hit_rate == 0.0


def test_engines_that_print_one_line_together_are_told_as_one() -> None:
    """Running, waiting and tokens are of all, the cache's use is the mean (v1/metrics/loggers.py)."""
    line = (
        "4 Engines Aggregated: Avg prompt throughput: 100.0 tokens/s, Avg generation throughput: 50.0 tokens/s, "
        "Running: 22 reqs, Waiting: 2 reqs, GPU KV cache usage: 35.0%, Prefix cache hit rate: 10.0%"
    )
    load = read_log([line, "4 Engines Aggregated: Running: 8 reqs, Waiting: 0 reqs, GPU KV cache usage: 5.0%"]).load
    assert (load.running.largest, load.waiting.largest, load.kv_usage.largest) == (5.5, 0.5, 35.0)
    assert (load.prompt_throughput.largest, load.prefix_hit_rate) == (25, 10)


def test_v1_cannot_say_whether_it_preempted() -> None:
    assert read_log(recorded("vllm_0.32_preempting.log")).preemptions is None


def test_recorded_refusal() -> None:
    seen = read_log(recorded("vllm_0.32_refused.log"), "engine.log")
    (refusal,) = seen.refusals
    assert (refusal.name, refusal.times, refusal.phase) == ("cache_too_small", 2, CAPTURING)
    assert refusal.figures == {"length": 2048, "needed": 0.0, "available": 0.0, "fits": 1024}
    assert refusal.text.startswith("To serve at least one request with the model's max seq len (2048)")


def test_every_figure_names_its_line() -> None:
    lines = recorded("vllm_0.32_preempting.log")
    seen = read_log(lines, "engine.log")
    at = seen.terms["kv_cache_size_tokens"][0].place
    assert at.file == "engine.log"
    assert "KV cache size: 4,128 tokens" in lines[at.line - 1]
    assert at.process == "EngineCore"


# -- formats by version

FIGURES: dict[str, Any] = {
    "weights": 14.99,
    "activations": 1.89,
    "non_torch": 0.25,
    "graphs": 0.6,
    "available": 58.11,
    "tokens": 476_032,
    "concurrency": 58.11,
    "blocks": 29_752,
    "length": 8192,
    "total": 79.19,
    "free": 78.6,
    "fraction": 0.95,
}
ARGS = {"model": "org/name", "max_model_len": 8192, "gpu_memory_utilization": 0.95, "tensor_parallel_size": 1}

VERSIONS = (
    (0, 4, 3), (0, 6, 6), (0, 7, 3), (0, 8, 5), (0, 9, 2), (0, 10, 2), (0, 11, 2), (0, 13, 0), (0, 14, 1), (0, 15, 1),
    (0, 16, 0), (0, 18, 1), (0, 20, 0), (0, 22, 1), (0, 24, 0), (0, 26, 0), (0, 27, 1), (0, 28, 0), (0, 30, 0), (0, 32, 0),
    (0, 33, 0),
)  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS, ids=lambda version: ".".join(map(str, version)))
def test_versions(version: tuple[int, int, int]) -> None:
    seen = read_log(start_up(version, FIGURES, ARGS))
    assert seen.version is not None
    assert seen.version.value == ".".join(map(str, version))
    assert seen.flags["max_model_len"].value == 8192

    def near(name: str, gib: float) -> bool:
        return any(abs(figure.value - gib * GIB) <= 0.0051 * GIB for figure in seen.terms.get(name, ()))

    assert near("weights", 14.99)
    if (0, 6, 4) <= version < (0, 8, 0) or version >= (0, 10, 2):
        assert near("activations", 1.89)
        assert near("total", 79.19)
        assert near("non_torch", 0.25) or near("consumed", 15.24)
    if version >= (0, 6, 4):
        assert near("available_kv_cache_memory", 58.11)
        assert [figure.value for figure in seen.terms["max_concurrency"]] == [58.11]
    if version >= (0, 8, 0):
        assert [figure.value for figure in seen.terms["kv_cache_size_tokens"]] == [476_032]
        assert near("cuda_graphs", 0.6)
    else:
        assert [figure.value for figure in seen.terms["num_gpu_blocks"]] == [29_752]


LINES: tuple[tuple[str, str, float], ...] = (
    # vllm-project/vllm#10517, a public log of V0 in late 2024
    (
        "Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB peak_torch_memory=17.06GiB "
        "memory_usage_post_profile=15.35GiB non_torch_memory=0.35GiB kv_cache_size=3.81GiB gpu_memory_utilization=0.90",
        "available_kv_cache_memory",
        3.81 * GIB,
    ),
    ("Loading model weights took 14.9888 GB", "weights", 14.9888 * GIB),
    ("# GPU blocks: 1478, # CPU blocks: 2048", "num_gpu_blocks", 1478),
    ("# cuda blocks: 1478, # CPU blocks: 2048", "num_gpu_blocks", 1478),
    ("GPU KV cache size: 2,042,016 tokens", "kv_cache_size_tokens", 2_042_016),
    ("GPU + host KV cache size: 9,000 tokens, Maximum concurrency for 100 tokens per request: 90.00x", "max_concurrency", 90.0),
    ("Available KV cache memory: 6.51 GiB", "available_kv_cache_memory", 6.51 * GIB),
    ("CUDA graph pool memory: 0.61 GiB (actual), 0.7 GiB (estimated), difference: 0.09 GiB (14.8%).", "cuda_graphs", 0.61 * GIB),
    ("total_gpu_memory \t79.22GiB", "total", 79.22 * GIB),  # vllm-project/vllm#10511
    ("model weights take \t14.96GiB", "weights", 14.96 * GIB),
    ("non_torch_memory \t1.79GiB", "non_torch", 1.79 * GIB),
    ("PyTorch activation peak memory \t1.26GiB", "activations", 1.26 * GIB),
    ("available_kv_cache_memory \t53.29GiB", "available_kv_cache_memory", 53.29 * GIB),
    ("Model loading took 0.4678 GB and 114.953146 seconds", "weights", 0.4678 * GIB),  # SystemPanic/vllm-windows#6
    ("Estimated CUDA graph memory: 0.7 GiB total", "cuda_graphs_estimated", 0.7 * GIB),
    ("Auto-fit max_model_len: reduced from 131072 to 7344 to fit in available KV cache memory (0.9 GiB GPU)", "max_model_len", 7344),
    # worker/worker.py and v1/worker/gpu_worker.py of 0.10.2, v1/worker/gpu_worker.py of 0.33: with and without a space
    ("Initial free memory 78.5 GiB, reserved 6.51GiB memory for KV Cache as specified by kv_cache_memory_bytes config", "available_kv_cache_memory", 6.51 * GIB),
    ("Initial free memory 78.5 GiB, reserved 6.51 GiB memory for KV Cache as specified by kv_cache_memory_bytes config", "available_kv_cache_memory", 6.51 * GIB),
    ("# TPU blocks: 1478, # CPU blocks: 2048", "num_gpu_blocks", 1478),  # executor/tpu_executor.py, 0.6.6
    (
        "Memory profiling takes 3.10 seconds. Total non KV cache memory: 17.13GiB; torch peak memory increase: 1.89GiB; "
        "non-torch forward increase memory: 0.25GiB; weights memory: 14.99GiB.",
        "activations",
        1.89 * GIB,
    ),
)  # fmt: skip


@pytest.mark.parametrize(("line", "term", "value"), LINES, ids=[line[:30] for line, _, _ in LINES])
def test_single_lines(line: str, term: str, value: float) -> None:
    (figure,) = read_log([f"INFO 12-02 10:00:00 worker.py:1] {line}"]).terms[term]
    assert figure.value == pytest.approx(value)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        (
            "Sequence group 7 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. "
            "This can affect the end-to-end performance. total_num_cumulative_preemption=51",
            51,
        ),
        ("Engine 000: Running: 3 reqs, Waiting: 9 reqs, Preemptions: 4, GPU KV cache usage: 99.1%", 4),
    ],
)
def test_preemption_lines(line: str, count: int) -> None:
    assert read_log([prefix((0, 6, 6)) + line]).preemptions == count


def test_a_preemption_whose_line_is_cut_is_one() -> None:
    line = "WARNING 06-10 12:00:01 scheduler.py:1057] Sequence group 7 is preempted by PreemptionMode.SWAP mode because there is not enough KV cache space. This can"
    assert read_log([line, line]).preemptions == 1  # the same one, for all that is known


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: CUDA error: out of memory",
        "RuntimeError: CUDA driver error: out of memory",
        "RuntimeError: HIP error: out of memory",
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. (out of memory)",
        "failed to allocate: CUDA_ERROR_OUT_OF_MEMORY",
        "torch.distributed.DistBackendError: NCCL error: Last error: Cuda failure 2 'out of memory'",
        # torch up to 2.1 spelled it so
        "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 112.00 MiB. GPU 0 has a total capacty of 23.65 GiB of which 39.06 MiB is free.",
    ],
)
def test_other_words_for_out_of_memory(line: str) -> None:
    (refusal,) = read_log([line]).refusals
    assert refusal.name == "out_of_memory"
    assert ("capacity" in refusal.figures) == ("capacty" in line)


def test_cumulative_counts_are_not_added_up() -> None:
    line = "Sequence group {0} is preempted by X mode because there is not enough KV cache space. total_num_cumulative_preemption={0}"
    assert read_log([line.format(count) for count in (1, 51, 101)]).preemptions == 101


V0_STATS = "INFO 06-10 12:00:01 metrics.py:349] Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.0 tokens/s, Running: 2 reqs, Swapped: 0 reqs, Pending: 4 reqs, GPU KV cache usage: 9.9%, CPU KV cache usage: 0.0%."


def test_v0_says_when_it_preempts_so_that_silence_is_none() -> None:
    seen = read_log([V0_STATS, "INFO 06-10 12:00:01 metrics.py:365] Prefix cache hit rate: GPU: 12.50%, CPU: 0.00%"])
    assert (seen.preemptions, seen.load.waiting.last, seen.load.prefix_hit_rate) == (0, 4, 12.5)


def test_the_memory_that_0_27_prints_in_one_figure() -> None:
    """v1/worker/gpu_worker.py since 0.27.1: its peak activation holds the estimate of the graphs."""
    used = "Free memory on device (78.6/79.19 GiB) on startup. Desired GPU memory utilization is (0.95, 75.23 GiB). Actual usage is 15.24 GiB for consumed memory (weights + non-torch), 2.49 GiB for peak activation, and 0.61 GiB for CUDAGraph memory."
    pool = "CUDA graph pool memory: 0.61 GiB (actual), 0.6 GiB (estimated), difference: 0.01 GiB (1.6%)."
    assert "activations" not in read_log([used]).terms
    assert read_log([used]).terms["activations_and_graphs"][0].value == pytest.approx(2.49 * GIB)
    terms = read_log([pool, used]).terms
    assert terms["activations"][0].value == pytest.approx(1.89 * GIB)
    assert "activations_and_graphs" not in terms


# -- other engines; the lines are those of conventions and of public logs


def test_sglang() -> None:
    seen = read_log(
        [
            "[2025-09-01 10:00:00] server_args=ServerArgs(model_path='org/name', tp_size=2, mem_fraction_static=0.87, port=30000)",
            "[2025-09-01 10:00:09 TP0] Load weight begin. avail mem=78.50 GB",
            "[2025-09-01 10:00:20 TP0] Load weight end. type=LlamaForCausalLM, dtype=torch.bfloat16, avail mem=63.10 GB, mem usage=15.40 GB.",
            "[2025-09-01 10:00:21 TP0] KV Cache is allocated. dtype: torch.bfloat16, #tokens: 400000, K size: 24.41 GB, V size: 24.41 GB",
            "[2025-09-01 10:00:40 TP0] Capture cuda graph end. Time elapsed: 9.31 s. mem usage=1.20 GB. avail mem=9.00 GB.",
            "[2025-09-01 10:00:41 TP0] max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=8192, available_gpu_mem=9.00 GB",
            "[2025-09-01 10:01:00 TP0] Decode batch. #running-req: 12, #token: 90000, token usage: 0.23, cuda graph: True, gen throughput (token/s): 512.10, #queue-req: 3, ",
            "[2025-09-01 10:02:00 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 5, #new_tokens_gained: 100, #new_token_ratio: 0.5 -> 0.7",
        ]
    )
    assert seen.engine == "sglang"
    assert seen.terms["weights"][0].value == pytest.approx(15.40 * GIB)
    assert seen.terms["cuda_graphs"][0].value == pytest.approx(1.20 * GIB)
    assert seen.terms["kv_cache_size_tokens"][0].value == 400_000
    assert seen.terms["kv_cache_size_tokens"][0].place.process == "TP0"
    assert (seen.load.running.last, seen.load.waiting.last, seen.load.kv_usage.last) == (12, 3, 23.0)
    assert seen.preemptions == 5
    assert seen.flags["tensor_parallel_size"].value == 2


def test_sglang_with_a_draft() -> None:
    """The formats of 0.5.23; a draft is loaded, given a cache and captured after its target, by the same process."""
    front = "[2026-09-01 10:00:00 TP0] "
    seen = read_log(
        front + line
        for line in (
            "Load weight begin. avail mem=78.50 GB",
            "Load weight end. elapsed=9.31 s, type=LlamaForCausalLM, avail mem=63.10 GB, mem usage=15.40 GB.",
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 400000, K size: 24.41 GB, V size: 24.41 GB",
            "Load weight begin. avail mem=12.00 GB",
            "Load weight end. elapsed=1.31 s, type=LlamaForCausalLMEagle3, avail mem=11.10 GB, mem usage=0.90 GB.",
            "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 400000, K size: 0.76 GB, V size: 0.76 GB",
            "Mamba Cache is allocated. max_mamba_cache_size: 48, conv_state size: 0.25GB, ssm_state size: 0.50GB ",
            "Capture target verify CUDA graph end. bs=[1, 2, 4], elapsed=9.31 s, mem usage=1.20 GB, avail mem=9.00 GB.",
            "Capture target prefill CUDA graph end. elapsed=9.31 s, mem usage=0.30 GB, avail mem=9.00 GB.",
            "max_total_num_tokens=400000, chunked_prefill_size=8192, max_prefill_tokens=16384, max_running_requests=2048, context_len=8192, available_gpu_mem=9.00 GB",
            "Prefill batch, #new-seq: 1, #new-token: 9, #cached-token: 0, token usage: 0.99, #running-req: 12, #queue-req: 30, #pending-token: 9, cuda graph: False, input throughput (token/s): 512.10",
            "Decode batch, #running-req: 13, #full token: 9, full token usage: 0.93, mamba num: 9, mamba usage: 0.05, cuda graph: True, gen throughput (token/s): 5.10, #queue-req: 3",
        )
    )
    gib = {
        "free_at_start": 78.5,
        "weights": 16.3,
        "k_cache": 25.17,
        "v_cache": 25.17,
        "state": 0.75,
        "cuda_graphs": 1.5,
    }
    assert {name: seen.terms[name][0].value / GIB for name in gib} == pytest.approx(gib)
    assert (seen.load.running.largest, seen.load.waiting.largest, seen.load.kv_usage.largest) == (13, 30, 99.0)
    assert (seen.preemptions, seen.resolved["max_model_len"].value) == (0, 8192)


def test_an_event_that_all_ranks_print_is_one() -> None:
    line = (
        "[2026-09-01 10:00:00 {}] KV cache pool is full. Retract requests. #retracted_reqs: 5, #new_tokens_gained: 100"
    )
    seen = read_log(line.format(rank) for rank in ("DP0 TP0", "DP0 TP1", "DP1 TP2", "DP1 TP3") * 2)
    assert seen.preemptions == 2 * 10


def test_llamacpp() -> None:
    seen = read_log(
        [
            "0.00.129.110 I build: 6500 (abcdef) with gcc",
            "0.00.229.110 I load_tensors:        CUDA0 model buffer size =  4403.49 MiB",
            "0.00.229.111 I load_tensors:   CPU_Mapped model buffer size =   281.81 MiB",
            "0.00.329.110 I llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB",
            "0.00.329.110 I llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  4/ 4 seqs), K (f16):  512.00 MiB, V (f16):  512.00 MiB",
            "0.00.429.110 I sched_reserve:      CUDA0 compute buffer size =   258.50 MiB",
            "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
        ]
    )
    assert (seen.engine, seen.phase) == ("llama.cpp", SERVING)
    assert seen.version is not None
    assert seen.version.value == "6500"
    assert {figure.place.process: figure.value for figure in seen.terms["weights"]} == {
        "CUDA0": pytest.approx(4403.49 * MIB),
        "CPU_Mapped": pytest.approx(281.81 * MIB),
    }
    assert seen.terms["kv_cache"][0].value == 1024 * MIB
    assert seen.terms["compute_buffer"][0].value == pytest.approx(258.5 * MIB)


def test_llamacpp_with_windows_and_split_files() -> None:
    """A cache for each kind of layers, and a buffer for each file, on one device: they add up (ggml-org/llama.cpp#14043)."""
    seen = read_log(
        [
            "load_tensors:   CPU_Mapped model buffer size =   281.81 MiB",
            "load_tensors:   CPU_Mapped model buffer size =   100.00 MiB",
            "llama_kv_cache_unified_iswa: creating non-SWA KV cache, size = 8192 cells",
            "llama_kv_cache_unified:      CUDA0 KV buffer size =   512.00 MiB",
            "llama_kv_cache_unified_iswa: creating     SWA KV cache, size = 1536 cells",
            "llama_kv_cache_unified:      CUDA0 KV buffer size =    96.00 MiB",
        ]
    )
    assert [figure.value / MIB for figure in seen.terms["kv_cache"]] == [608]
    assert [figure.value / MIB for figure in seen.terms["weights"]] == [pytest.approx(381.81)]


@pytest.mark.parametrize(
    "line",
    [
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 826.00 MiB on device 0: cudaMalloc failed: out of memory",
        "ggml_gallocr_reserve_n: failed to allocate CUDA0 buffer of size 866123776",
        "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers",
        "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
    ],
)
def test_llamacpp_refuses(line: str) -> None:
    assert [refusal.name for refusal in read_log(["build: 6500 (abc)", line]).refusals] == ["out_of_memory"]


# -- what stands in front of a line

WORDS = "Available KV cache memory: 6.51 GiB"

FRONTS = (
    ("", "", ""),
    ("INFO 06-10 12:00:01 worker.py:12] ", "", ""),
    ("(EngineCore_DP0 pid=7) INFO 06-10 12:00:01 [gpu_worker.py:298] ", "", "EngineCore_DP0"),
    ("\x1b[1;36m(Worker_TP1 pid=9)\x1b[0;0m INFO 06-10 12:00:01 [gpu_worker.py:298] ", "", "Worker_TP1"),
    ("(RayWorkerWrapper pid=1234, ip=10.0.0.2) INFO 06-10 12:00:01 worker.py:12] ", "", "RayWorkerWrapper"),
    ("2026-06-10T12:00:01.123456789Z ", "", ""),
    ("2026-06-10T12:00:01.123456789Z stderr F (Worker_TP1 pid=9) INFO 06-10 12:00:01 [a.py:1] ", "", "Worker_TP1"),
    ("[pod/vllm-0/server] 2026-06-10T12:00:01+02:00 INFO 06-10 12:00:01 [a.py:1] ", "pod/vllm-0/server", ""),
    ("vllm-1  | INFO 06-10 12:00:01 [a.py:1] ", "vllm-1", ""),
    ("vllm-7d9f-abc vllm INFO 06-10 12:00:01 [a.py:1] ", "vllm-7d9f-abc", ""),
    ("vllm-7d9f-abc vllm (Worker_TP1 pid=9) INFO 06-10 12:00:01 [a.py:1] ", "vllm-7d9f-abc", "Worker_TP1"),
    ("[vllm-7d9f-abc] (EngineCore pid=7) ", "vllm-7d9f-abc", "EngineCore"),
    ("Nov 29 18:16:05 host vllm[123]: INFO 06-10 12:00:01 [a.py:1] ", "vllm", ""),
    ("Nov 29 18:16:05.123456 host vllm[123]: INFO 06-10 12:00:01 [a.py:1] ", "vllm", ""),
    ("2026-11-29T18:16:05+0000 host vllm[123]: (Worker_TP1 pid=9) INFO 06-10 12:00:01 [a.py:1] ", "vllm", "Worker_TP1"),
    ("2026-11-29T18:16:05.123456+00:00 host vllm.service[123]: ", "vllm.service", ""),
    ("vllm-1  | 2026-06-10T12:00:01.123456789Z INFO 06-10 12:00:01 [a.py:1] ", "vllm-1", ""),
    (
        "(EngineCore_0 pid=7) (RayWorkerWrapper pid=8, ip=10.0.0.2) INFO 06-10 12:00:01 [a.py:1] ",
        "",
        "RayWorkerWrapper",
    ),
    ("[2026-06-10 12:00:01 DP1 TP0] ", "", "DP1 TP0"),
    ("0.00.129.110 I ", "", ""),
    ("Loading:  50%|###\rLoading: 100%|######\r(EngineCore pid=7) INFO 06-10 12:00:01 [a.py:1] ", "", "EngineCore"),
)


@pytest.mark.parametrize(("front", "instance", "process"), FRONTS, ids=range(len(FRONTS)))
def test_fronts(front: str, instance: str, process: str) -> None:
    line = stripped(front + WORDS)
    assert (line.text, line.instance, line.process) == (WORDS, instance, process)
    (seen,) = read_logs([front + WORDS])
    assert (seen.instance, seen.terms["available_kv_cache_memory"][0].place.process) == (instance, process)


OWN = f"(Worker_TP1 pid=9) INFO 06-10 12:00:01 [a.py:1] {WORDS}"


@pytest.mark.parametrize(
    ("front", "entry", "instance"),
    [
        ("", {"log": f"{OWN}\n", "stream": "stderr", "time": "2026"}, ""),  # docker's files
        ("", {"log": OWN, "kubernetes": {"pod_name": "vllm-0"}}, "vllm-0"),  # Fluent Bit
        ("", {"MESSAGE": OWN, "_SYSTEMD_UNIT": "vllm.service"}, "vllm.service"),  # journalctl -o json
        ("", {"labels": {}, "line": OWN, "timestamp": "2026"}, ""),  # logcli -o jsonl
        ("", {"log": f"\x1b[0;36m{OWN}\x1b[0;0m"}, ""),
        (  # vLLM's own, logging_utils/formatter.py since 0.3x, behind kubectl's prefix
            "[pod/vllm-0/server] ",
            {"asctime": "06-10 12:00:01", "processName": "Worker_TP1", "process": 9, "message": WORDS},
            "pod/vllm-0/server",
        ),
    ],
)
def test_lines_in_json(front: str, entry: dict[str, Any], instance: str) -> None:
    line = stripped(front + json.dumps(entry))
    assert line == (WORDS, instance, "Worker_TP1", "9", "06-10 12:00:01")


@pytest.mark.parametrize(
    "entry", ["{}", "[1]", '{"log": 3}', '{"log": "', '{"kubernetes": {"pod_name": 3}, "log": "x"}']
)
def test_other_json_is_left_as_it_is(entry: str) -> None:
    assert not read_log([entry]).known


def test_files_of_powershell() -> None:
    """PowerShell 5 writes UTF-16 where output is redirected into a file."""
    text = "\r\n".join(start_up((0, 32, 0), FIGURES, ARGS))
    for content in (text.encode("utf-16"), b"\xfe\xff" + text.encode("utf-16-be"), b"\xef\xbb\xbf" + text.encode()):
        seen = read_log(lines_of(io.BytesIO(content)))
        assert (seen.phase, seen.terms["kv_cache_size_tokens"][0].value) == (SERVING, 476_032)


def test_a_coloured_banner() -> None:
    """entrypoints/serve/utils/api_utils.py of vLLM 0.32, on a terminal."""
    front = "\x1b[0;36m(APIServer pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m11-29 18:02:21\x1b[0m \x1b[90m[api_utils.py:347]\x1b[0m"
    seen = read_log(
        [
            f"{front}  \x1b[93m▄▄\x1b[0m \x1b[94m▄█\x1b[0m \x1b[1m█     █     █ ▀▄▀ █\x1b[0m  version \x1b[1m0.32.0\x1b[0m",
            f"{front}   \x1b[93m█\x1b[0m\x1b[94m▄█▀\x1b[0m \x1b[1m█     █     █     █\x1b[0m  model   \x1b[1morg/name\x1b[0m",
        ]
    )
    assert seen.version is not None
    assert seen.model is not None
    assert (seen.version.value, seen.model.value, seen.phase) == ("0.32.0", "org/name", LOADING)
    assert seen.version.place.process == "APIServer"


def test_engines_are_kept_apart() -> None:
    both = [f"[pod/{name}/server] Available KV cache memory: {size} GiB" for name, size in (("a", 6.5), ("b", 3.25))]
    assert [(seen.instance, seen.terms["available_kv_cache_memory"][0].value / GIB) for seen in read_logs(both)] == [
        ("pod/a/server", 6.5),
        ("pod/b/server", 3.25),
    ]


def test_another_service_beside_the_engine_is_no_engine() -> None:
    """Torch and uvicorn are not vLLM's alone; where nothing else is known of the only one, its error counts."""
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    others = [f"speech-1  | {error}", "ui-1  | INFO:     Application startup complete."]
    (seen,) = read_logs([f"vllm-1  | {WORDS}", *others])
    assert (seen.instance, seen.refusals) == ("vllm-1", ())
    (alone,) = read_logs(others[:1])
    assert [refusal.name for refusal in alone.refusals] == ["out_of_memory"]


@pytest.mark.parametrize("mixed", [True, False])
def test_servers_in_one_terminal_are_said_to_be_mixed(mixed: bool) -> None:
    """One that is started after another has ended, as in a loop of crashes, is not mixed with it."""
    lines = start_up((0, 32, 0), FIGURES, ARGS)
    both = [[line.replace("pid=77", f"pid={pid}") for line in lines] for pid in (100, 200)]
    seen = read_log(chain.from_iterable(zip(*both, strict=True)) if mixed else chain(*both))
    assert any("side by side are mixed" in note for note in seen.notes) == mixed


def test_ranks_are_kept_apart() -> None:
    lines = [f"(Worker_TP{rank} pid={rank}) Available KV cache memory: {60 - rank}.0 GiB" for rank in range(4)]
    seen = read_log(lines)
    smallest, largest = seen.smallest("available_kv_cache_memory"), seen.largest("available_kv_cache_memory")
    assert smallest is not None
    assert largest is not None
    assert (smallest.value / GIB, smallest.place.process) == (57, "Worker_TP3")
    assert (largest.value / GIB, largest.place.process) == (60, "Worker_TP0")


def test_workers_of_one_name_are_kept_apart() -> None:
    """V0 numbers its workers by process alone; the first versions of V1 by rank (gpustack/gpustack#1897)."""
    lines = [
        "INFO 02-02 18:01:24 model_runner.py:1116] Loading model weights took 30.7098 GB",
        "(VllmWorkerProcess pid=1) INFO 02-02 18:01:24 model_runner.py:1116] Loading model weights took 30.5 GB",
        "(VllmWorkerProcess pid=2) INFO 02-02 18:01:24 model_runner.py:1116] Loading model weights took 30.25 GB",
        "(VllmWorker rank=4 pid=3) INFO 02-02 18:01:24 model_runner.py:1116] Loading model weights took 30.0 GB",
    ]
    figures = read_log(lines).terms["weights"]
    assert [round(figure.value / GIB, 4) for figure in figures] == [30.7098, 30.5, 30.25, 30.0]
    assert figures[3].place.process == "VllmWorker rank=4"


def test_of_the_ranks_in_one_process_the_smallest_counts() -> None:
    lines = [
        f"INFO 04-25 10:23:33 [kv_cache_utils.py:634] GPU KV cache size: {size} tokens"
        for size in ("106,640", "98,000", "106,640")
    ]
    assert [figure.value for figure in read_log(lines).terms["kv_cache_size_tokens"]] == [98_000]


@pytest.mark.parametrize("engine", ["an LLM engine", "a V0 LLM engine", "a V1 LLM engine"])
def test_names_of_the_engine(engine: str) -> None:
    line = f"INFO 03-31 01:47:44 llm_engine.py:234] Initializing {engine} (v0.7.2) with config: model='org/name', max_seq_len=9216, kv_cache_dtype=auto,  device_config=cuda:7"
    seen = read_log([line])
    assert seen.version is not None
    assert (seen.version.value, seen.resolved["max_model_len"].value) == ("0.7.2", 9216)


def test_a_new_start_takes_the_place_of_the_old_one() -> None:
    first = start_up((0, 28, 0), FIGURES, ARGS)
    second = start_up((0, 28, 0), {**FIGURES, "available": 50.0, "tokens": 400_000}, {"model": "org/other"})
    seen = read_log([*first, *second[:3]])
    assert (seen.starts, seen.phase) == (2, LOADING)
    assert "available_kv_cache_memory" not in seen.terms
    assert seen.model is not None
    assert seen.model.value == "org/other"
    whole = read_log([*first, *second])
    assert whole.terms["kv_cache_size_tokens"][0].value == 400_000


def test_lines_are_read_in_their_order() -> None:
    """Statistics are found before other lines of a batch, and must not be taken in before them."""
    lines = start_up((0, 32, 0), FIGURES, ARGS)
    seen = read_log([*lines, STATS, *lines[:2]])
    assert (seen.starts, seen.phase) == (2, LOADING)
    assert read_log([*lines, STATS]).phase == SERVING


STATS = (
    "(APIServer pid=1) INFO 06-10 12:09:00 [loggers.py:335] Engine 000: Avg prompt throughput: 1.0 tokens/s, Avg generation "
    "throughput: 2.0 tokens/s, Running: 7 reqs, Waiting: 3 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: 1.0%"
)


def test_the_load_is_that_of_the_newest_start_that_served() -> None:
    lines = start_up((0, 32, 0), FIGURES, ARGS)
    calm = STATS.replace("7 reqs", "1 reqs").replace("99.0%", "5.0%")
    earlier = read_log([*lines, STATS, *lines])
    assert earlier.load.running.largest == 7  # nothing newer is known
    assert earlier.notes == ("The newest start has not served yet: the load is that of the one before.",)
    load = read_log([*lines, STATS, *lines, calm]).load
    assert (load.running.count, load.running.largest, load.kv_usage.largest) == (1, 1, 5.0)
    assert read_log([*lines, STATS, *lines, calm]).notes == ()


@pytest.mark.parametrize("lost", [0, 1, 5, 8])
def test_a_start_after_one_whose_beginning_was_cut_off(lost: int) -> None:
    """What is rotated away takes the first start line with it; the next is another start all the same."""
    lines = start_up((0, 32, 0), FIGURES, ARGS)
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
    seen = read_log([*lines[lost:], STATS, *lines[:3], error])
    (refusal,) = seen.refusals
    assert (seen.starts, seen.phase, refusal.phase, seen.terms) == (2, LOADING, LOADING, {})


def test_replicas_that_start_one_after_another_are_one_start() -> None:
    """One may be further than another when the latter begins."""
    front = "(EngineCore_DP{0} pid={0}) INFO 06-10 12:00:01 [a.py:1] "
    start = "Initializing a V1 LLM engine (v0.32.0) with config: model='m'"
    seen = read_log([f"{front.format(rank)}{line}" for rank in range(3) for line in (start, WORDS)])
    assert (seen.starts, len(seen.terms["available_kv_cache_memory"])) == (1, 3)


def test_a_loop_of_crashes_is_one_failure() -> None:
    lines = [start_up((0, 32, 0), {**FIGURES, "available": 0.5 + n / 100, "needed": 1.0}, ARGS) for n in range(20)]
    seen = read_log(chain.from_iterable(lines))
    (refusal,) = seen.refusals
    assert (seen.starts, refusal.times) == (20, 20)
    assert refusal.figures["available"] == pytest.approx(0.69 * GIB)  # the newest


def test_data_parallel_engines_are_one_start() -> None:
    lines = [line for rank in range(2) for line in (
        f"(EngineCore_DP{rank} pid={rank}) Initializing a V1 LLM engine (v0.28.0) with config: model='m'",
        f"(EngineCore_DP{rank} pid={rank}) Available KV cache memory: {5 + rank}.0 GiB",
    )]  # fmt: skip
    seen = read_log(lines)
    assert (seen.starts, len(seen.terms["available_kv_cache_memory"])) == (1, 2)


def test_a_replica_that_starts_when_another_serves_is_no_other_start() -> None:
    version = (0, 28, 0)
    lines = start_up(version, FIGURES, ARGS)
    second = [line.replace("EngineCore ", "EngineCore_DP1 ") for line in lines[2:]]
    assert read_log([*(line.replace("EngineCore ", "EngineCore_DP0 ") for line in lines), *second]).starts == 1


@pytest.mark.parametrize(
    ("lines", "blocks"),
    [
        (["vllm cache_config_info with initialization after num_gpu_blocks is: 27630"], [27630]),
        (["Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 27630"], [27630]),
        (
            [
                f"Engine 00{i}: vllm cache_config_info with initialization after num_gpu_blocks is: 27630"
                for i in (0, 1)
            ],
            [13815, 13815],
        ),
        (["2 Engines: vllm cache_config_info with initialization after num_gpu_blocks is: 27630"], []),
        (
            [
                "Overriding num_gpu_blocks=9000 with num_gpu_blocks_override=129",
                "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 129",
            ],
            [129],
        ),
    ],
)
def test_blocks_that_the_server_tells(lines: list[str], blocks: list[int]) -> None:
    """From 0.9 to 0.11 vLLM prints them, every data-parallel engine those of all together."""
    seen = read_log([prefix((0, 10, 2), "APIServer") + line for line in lines])
    assert [figure.value for figure in seen.terms.get("num_gpu_blocks", ())] == blocks


@pytest.mark.parametrize(
    ("before", "phase"),
    [
        ([], UNSEEN),
        (["Engine 000: Running: 3 reqs, Waiting: 9 reqs, GPU KV cache usage: 99.1%"], SERVING),
        (["vLLM API server version 0.28.0"], LOADING),
        (["Model loading took 14.99 GiB memory and 3.1 seconds"], PROFILING),
        (["Available KV cache memory: 6.51 GiB"], CAPTURING),
        (["init engine (profile, create kv cache, warmup model) took 20.10 seconds"], SERVING),
    ],
)
def test_out_of_memory_knows_when(before: list[str], phase: str) -> None:
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 GiB"
    (refusal,) = read_log([*before, error]).refusals
    assert (refusal.name, refusal.phase) == ("out_of_memory", phase)


def test_flags_of_an_old_server() -> None:
    line = (
        "INFO 06-10 12:00:00 api_server.py:178] args: Namespace(host=None, port=8000, model='org/name', max_model_len=4096, "
        "gpu_memory_utilization=0.8, enforce_eager=True, quantization=None, served_model_name=['a', 'b'], dispatch_function=<function serve at 0x7f>)"
    )
    flags = {name: said.value for name, said in read_log([line]).flags.items()}
    assert flags["model"] == "org/name"
    assert (flags["max_model_len"], flags["gpu_memory_utilization"], flags["enforce_eager"]) == (4096, 0.8, True)
    assert (flags["quantization"], flags["served_model_name"]) == (None, ["a", "b"])


# -- bad input


def test_what_users_write_is_not_read() -> None:
    for front in ("Received request cmpl-1: prompt: ", "Generated response cmpl-1: output: ", "Receive: obj=G(text="):
        assert not read_log([f"INFO 06-10 12:00:01 [logger.py:1] {front}'{WORDS}', params: x"]).known
        assert not read_log([f"INFO 06-10 12:00:01 [logger.py:1] {front}'{STATS}', params: x"]).known


@pytest.mark.parametrize(
    "line",
    [
        "Available KV cache memory: 1.2.3 GiB",
        "Available KV cache memory: .... GiB",
        "GPU KV cache size: ,,, tokens",
        "Running: 99999999999999999999 reqs, Waiting: 1 reqs, GPU KV cache usage: 1%",
        "non-default args: {'model': 'x'",
        "non-default args: " + "{" * 5000,
        "non-default args: {'a': 1e999, 'b': " + "9" * 3000 + "}",
        "args: Namespace(" + "a=(" * 1000,
        "vLLM API server version ",
        "vLLM API server version 0.\r1",
        "non-default args: {'a': 8J, 'b': {1, 2}, 'c': b'x', 'd': ..., 'e': [[[[[[[[[[1]]]]]]]]]]}",
        "args: Namespace(a=8J, tensor_parallel_size=2J)",
        '{"log": ' + "[" * 10000,
        "\x1b[" + "9" * 10000,
    ],
)
def test_malformed_lines(line: str) -> None:
    seen = read_log([line])
    json.dumps(seen.to_dict(), allow_nan=False)
    assert all(abs(figure.value) < 1e30 for figures in seen.terms.values() for figure in figures)


@given(st.lists(st.text(max_size=200), max_size=20))
def test_any_text_is_read(lines: list[str]) -> None:
    json.dumps(read_log(lines).to_dict(), allow_nan=False)


KNOWN = st.sampled_from([line for version in VERSIONS for line in start_up(version, FIGURES, ARGS)])


@given(st.lists(KNOWN, min_size=1, max_size=12), st.data())
def test_damaged_lines_are_read(lines: list[str], data: st.DataObject) -> None:
    broken = []
    for line in lines:
        at = data.draw(st.integers(0, len(line)))
        broken.append(line[:at] + data.draw(st.text(max_size=8)) + line[data.draw(st.integers(at, len(line))) :])
    json.dumps(read_log(broken).to_dict(), allow_nan=False)


@given(st.binary(max_size=3000))
def test_any_bytes_are_lines(content: bytes) -> None:
    lines = list(lines_of(io.BytesIO(content)))
    assert all(len(line) <= MAX_LINE for line in lines)
    assert len(lines) == len(content.removesuffix(b"\n").split(b"\n")) if content else lines == []


def test_a_line_without_end_is_cut() -> None:
    content = b"x" * (5 * MAX_LINE) + b"\nAvailable KV cache memory: 6.51 GiB\n"
    assert [len(line) for line in lines_of(io.BytesIO(content))] == [MAX_LINE, 35]


def test_a_long_log_takes_little_memory() -> None:
    line = "(APIServer pid=1) INFO 11-29 18:16:{0:02} [l.py:1] Engine 000: Running: {0} reqs, Waiting: {0} reqs, GPU KV cache usage: {0}.1%"
    access = 'INFO:     127.0.0.1:36460 - "POST /v1/completions HTTP/1.1" 200 OK'
    odd = (f"(Worker_{i} pid={i}) Available KV cache memory: 1.0 GiB" for i in range(6_000))
    lines = chain((line.format(i % 100) for i in range(5_000)), repeat(access, 15_000), odd)
    tracemalloc.start()
    seen = read_log(lines)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen.lines == 26_000
    assert seen.load.running.count == 5_000
    assert len(seen.terms["available_kv_cache_memory"]) <= 4096
    assert peak < 12 * MIB


def test_many_containers_are_bounded() -> None:
    found = read_logs(f"[pod/p{i}/c] {WORDS}" for i in range(1000))
    assert len(found) == 256
    assert "744 known lines" in found[0].notes[0]


def test_nothing_known() -> None:
    seen = read_log(["hello", ""])
    assert (seen.known, seen.lines, seen.terms, seen.refusals) == (False, 2, {}, ())


# -- spreads


@given(st.lists(st.integers(0, 999), min_size=1, max_size=60), st.floats(0, 1))
def test_spread_is_exact_below_a_thousand(values: list[int], share: float) -> None:
    spread = Spread(values)
    assert spread.largest == max(values)
    assert spread.mean == pytest.approx(sum(values) / len(values))
    assert spread.quantile(share) in values
    assert sum(value <= spread.quantile(share) for value in values) >= share * len(values) - 1e-9
