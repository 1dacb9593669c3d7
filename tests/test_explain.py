"""Where a number comes from: what is taken apart adds up to what the budget says."""

from __future__ import annotations

import json
import os
from fractions import Fraction
from functools import cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget import explain
from kvbudget.budgeting import budget
from kvbudget.cli import main
from kvbudget.cli.options import deployment_parameters
from kvbudget.deployment import Deployment
from kvbudget.engines import vllm
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import vllm as facts
from kvbudget.facts.catalogue import MODELS
from kvbudget.facts.flags import FLAGS, RULES, find_flag
from kvbudget.facts.log_lines import LOG_LINES
from kvbudget.hub import load_model
from kvbudget.model import Model
from kvbudget.present.document import as_markdown, as_text
from kvbudget.present.explained import flag_document, kv_document, log_document, weights_document
from kvbudget.textbook import OVER
from kvbudget.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.budgeting import Kv

SHARED = Path(os.environ.get("KVBUDGET_SHARED") or Path(__file__).resolve().parents[2] / "shared")

CATALOGUE = tuple(row.name for row in MODELS)

model = cache(load_model)


def deployed(name: str, **choices: Any) -> Deployment:  # noqa: ANN401 - any choice
    """Return a deployment on the card that stands in for any."""
    return Deployment(model=model(name), gpu=explain.STAND_IN_GPU, **choices)


def product(factors: Iterable[explain.Factor]) -> Fraction:
    """Return the product that factors spell."""
    return prod((Fraction(1, f.value) if f.sign == OVER else Fraction(f.value) for f in factors), start=Fraction(1))


# --- the KV cache


def kv_of(d: Deployment) -> Kv | None:
    """Return the budget's KV cache, None if the engine does not take the layout."""
    try:
        return budget(d).kv
    except (InputError, CannotTell):
        return None


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("tp", [1, 4])
@pytest.mark.parametrize("kind", ["auto", "fp8"])
def test_factors_multiply_to_the_budget(name: str, tp: int, kind: str) -> None:
    """The factors of each kind multiply to its bytes, and the kinds that grow add up to the budget's slope."""
    d = deployed(name, tensor_parallel_size=tp, kv_cache_dtype=kind)
    kv = kv_of(d)
    if kv is None:
        with pytest.raises((InputError, CannotTell)):
            explain.explain_kv(d)
        return
    found = explain.explain_kv(d)
    for part in found.parts:
        assert product(part.factors) == part.bytes_per_token
        assert part.factors[0].sign == ""
    assert sum(part.bytes_per_token for part in found.parts if part.kept.grows) == kv.bytes_per_token
    held = sum(row.held_bytes + row.slope_bytes * (row.window or 0) for row in found.rows)
    assert held == kv.fixed_bytes_per_request


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["llama-3.1-8b", "gpt-oss-20b", "mistral-7b-v0.1", "deepseek-v3.2", "qwen3.5-27b"]),
    length=st.integers(1, 1_000_000),
)
def test_a_request_is_fixed_plus_slope(name: str, length: int) -> None:
    """A request beyond its windows keeps fixed + slope x n, rounded up to blocks; never less than a shorter one."""
    b = budget(deployed(name))
    rows = explain.kept(b.deployment.model, b.settings.cache)
    size = explain.request_bytes(rows, length)
    assert size >= explain.request_bytes(rows, max(1, length - 1))
    block = max(row.block_size for row in rows)
    longest = max((row.window or 0 for row in rows), default=0)
    exact = b.kv.fixed_bytes_per_request + b.kv.bytes_per_token * length
    if length >= longest:
        assert exact <= size <= exact + b.kv.bytes_per_token * (block - 1)
    else:
        assert size <= exact + b.kv.bytes_per_token * (block - 1)


@pytest.mark.parametrize(
    ("name", "tp", "size"),
    [
        ("llama-3.1-8b", 1, 131_072),  # 2 x 32 x 8 x 128 x 2
        ("llama-3.3-70b", 2, 163_840),  # 2 x 80 x 8/2 x 128 x 2
        ("llama-3.1-70b", 16, 40_960),  # 8 KV heads over 16 ranks: one each, stored twice
        ("qwen3-30b-a3b", 1, 98_304),  # explicit head dim 128, hidden over heads is 64
        ("deepseek-v3", 8, 70_272),  # 61 x (512 + 64) x 2, whole on every rank
        ("deepseek-v3.2", 1, 78_324),  # and 61 x 132 for the indexer
        ("gpt-oss-20b", 1, 24_576),  # 12 of 24 layers
        ("mimo-v2-flash", 1, 23_040),  # 9 layers of 4 x (192 + 128) x 2
    ],
)
def test_known_figures(name: str, tp: int, size: int) -> None:
    """Figures worked out by hand from the published shapes."""
    found = explain.explain_kv(deployed(name, tensor_parallel_size=tp))
    assert sum(part.bytes_per_token for part in found.parts) == size


def slips(name: str, **choices: Any) -> dict[str, Fraction]:  # noqa: ANN401 - any choice
    """Return the common mistakes of a model."""
    return {slip.name: slip.factor for slip in explain.explain_kv(deployed(name, **choices)).slips}


def test_slips() -> None:
    """The usual mistakes are off by what they are off by."""
    assert slips("llama-2-7b", allow_long=True) == {}
    assert slips("llama-3.3-70b") == {"query heads": 8}
    assert slips("qwen3-30b-a3b") == {"query heads": 8, "hidden over heads": Fraction(1, 2)}
    assert slips("gpt-oss-20b", max_model_len=131072)["window ignored"] == Fraction(131072 * 2, 131072 + 128)
    assert slips("mistral-7b-v0.1", max_model_len=32768) == {"window ignored": 8, "query heads": 4}
    latent = slips("deepseek-v3", tensor_parallel_size=8)
    assert latent["MLA as MHA"] == Fraction(128 * (128 + 64 + 128), 576)
    assert latent["MLA divided by TP"] == Fraction(1, 8)
    assert slips("qwen3-235b-a22b", tensor_parallel_size=8)["replicated heads"] == Fraction(1, 2)
    assert slips("qwen3-8b-awq")["weight bits"] == Fraction(1, 4)
    assert slips("qwen3.5-27b")["all layers"] == 4


def test_times_in_words() -> None:
    """A factor above one is too much, below one too little, with about three figures."""
    assert explain.times(Fraction(8)) == "8× too much"
    assert explain.times(Fraction(1, 2)) == "2× too little"
    assert explain.times(Fraction(214, 100)) == "2.14× too much"
    assert explain.times(Fraction(40960, 576)) == "71.1× too much"


def test_the_divisor_and_the_heads_stand_apart() -> None:
    """Grouped heads name the number of KV heads and the divisor, as GQA-8 is said of both."""
    text = " ".join(as_text(kv_document(explain.explain_kv(deployed("llama-3.1-8b")))).split())
    assert "8 KV heads of 32 query heads: the divisor is 4" in text
    assert "GQA-8 is said of 8 KV heads and of 8 query heads that share one KV head" in text


CONFIG = """{
  "architectures": ["LlamaForCausalLM"],
  "model_type": "llama",
  "hidden_size": 4096,
  "num_hidden_layers": 32,
  "rope_scaling": {"num_hidden_layers": 7, "type": "llama3", "factor": 8.0},
  "num_attention_heads": 32,
  "layers": [{"num_key_value_heads": 3}],
  "num_key_value_heads": 8,
  "intermediate_size": 14336,
  "vocab_size": 128256,
  "max_position_embeddings": 131072,
  "torch_dtype": "bfloat16"
}
"""


def test_factors_name_their_lines() -> None:
    """Each factor says the key it came from and the line of the file, not that of a key of the same name elsewhere."""
    loaded = Model.from_config(json.loads(CONFIG), name="x", source="config.json")
    d = Deployment(model=loaded, gpu=explain.STAND_IN_GPU)
    (part,) = explain.explain_kv(d, file=explain.ConfigFile(name="config.json", text=CONFIG)).parts
    where = {factor.key: factor.where for factor in part.factors if factor.where.startswith("config.json")}
    assert where == {
        "num_hidden_layers": "config.json:5",
        "num_key_value_heads": "config.json:9",
        "hidden_size": "config.json:4",
    }


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(value=st.dictionaries(st.text(min_size=1, max_size=6), JSON, max_size=5))
def test_key_lines(value: dict[str, Any]) -> None:
    """The line of a key is the line where it stands, however deep it is nested and whatever it is called."""
    text = json.dumps(value, indent=1)
    lines = text.split("\n")
    found = explain.key_lines(text)

    def visit(data: dict[str, Any], path: tuple[str, ...]) -> None:
        for key, inner in data.items():
            assert lines[found[(*path, key)] - 1].lstrip().startswith(json.dumps(key) + ":")
            if isinstance(inner, dict):
                visit(inner, (*path, key))

    visit(value, ())


# --- the weights


@pytest.mark.parametrize("name", CATALOGUE)
def test_weights_add_up(name: str) -> None:
    """Parameters are the model's, bytes the engine's; MTP layers stand apart."""
    d = deployed(name)
    found = explain.explain_weights(d)
    assert found.parameters == model(name).parameters
    assert found.bytes == vllm.weight_bytes(model(name), found.dtype, 1, None, False)
    assert sum(row.parameters for row in found.mtp) == model(name).mtp_parameters


def test_weights_of_a_rank() -> None:
    """On one of two ranks: half of what is split, all of what is not; parameters stay the model's."""
    whole, half = (explain.explain_weights(deployed("llama-3.1-8b", tensor_parallel_size=tp)) for tp in (1, 2))
    assert half.parameters == whole.parameters
    assert half.bytes == vllm.weight_bytes(model("llama-3.1-8b"), half.dtype, 2, None, False)
    assert whole.bytes / 2 < half.bytes < whole.bytes * 0.51


def test_formats_of_groups() -> None:
    """A quantized checkpoint says what is packed and what is not, and that the cache is another setting."""
    found = explain.explain_weights(deployed("qwen3-8b-awq"))
    packed = {row.group.value for row in found.rows if row.quantized}
    assert packed == {"attention", "mlp"}
    assert {row.format for row in found.rows if not row.quantized} == {"bfloat16"}
    notes = " ".join(found.notes)
    assert "Not quantized: embeddings, head, norms" in notes
    assert "memory hardly shrank" in notes
    assert "--kv-cache-dtype" in notes


def test_experts_total_and_active() -> None:
    """All experts are resident; what a token uses is another number."""
    found = explain.explain_weights(deployed("qwen3-30b-a3b"))
    experts = next(row for row in found.rows if row.group.value == "experts")
    assert experts.parameters == 48 * 128 * 3 * 2048 * 768
    assert "All 128 experts stay in memory; a token uses 8 of them" in " ".join(found.notes)
    assert "active for a token: 3,353,032,704" in as_text(weights_document(found))


# --- log lines


LINES = {
    "Maximum concurrency for 8,192 tokens per request: 4.61x": (
        "max_concurrency",
        "37,765 tokens of KV; 4.61 requests if each is 8,192 long; about 25 of 1,500.",
    ),
    "GPU KV cache size: 226,816 tokens": ("kv_cache_size", "226,816 tokens of KV"),
    "# cuda blocks: 1952, # CPU blocks: 2048": ("gpu_blocks", "that is 31,232 tokens"),
    "# GPU blocks: 1952, # CPU blocks: 2048": ("gpu_blocks", "that is 31,232 tokens"),
    "Available KV cache memory: 4.27 GiB": ("available_kv", "4.27 GiB for the KV cache on this GPU"),
    "Available KV cache memory: -1.5 GiB": ("available_kv", "exceed the budget by 1.5 GiB"),
    "Loading model weights took 14.9888 GB": ("model_loading", "14.9888 GiB of weights"),
    "Model loading took 14.99 GiB memory and 3.215212 seconds": ("model_loading", "14.99 GiB of weights"),
    "Graph capturing finished in 20 secs, took 0.55 GiB": ("graphs", "took 0.55 GiB"),
    "CUDA graph pool memory: 0.6 GiB (actual), 0.5 GiB (estimated), difference: 0.1 GiB (20%).": ("graph_pool", "+0.1"),
    (
        "Free memory on device (78.5/79.19 GiB) on startup. Desired GPU memory utilization is (0.92, 72.85 GiB). "
        "Actual usage is 33.84 GiB for weight, 2.1 GiB for peak activation, 0.65 GiB for non-torch memory, and 0.9 GiB "
        "for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1` (1 GiB) to fit into "
        "requested memory, or `--kv-cache-memory=2` (2 GiB) to fully utilize gpu memory. Current kv cache memory in "
        "use is 35.36 GiB."
    ): ("usage", "6.34 GiB stay outside"),
    (
        "ValueError: Free memory on device cuda:0 (60.1/79.19 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 72.85 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes."
    ): ("start_free", "lower --gpu-memory-utilization to 0.75 or less"),
    "ValueError: No available memory for the cache blocks. Try increasing": ("no_cache_memory", "not one block"),
    (
        "ValueError: To serve at least one request with the models's max seq len (131072), (16.0 GiB KV cache is "
        "needed, which is larger than the available KV cache memory (4.27 GiB). Based on the available memory, the "
        "estimated maximum model length is 34960. Try increasing `gpu_memory_utilization`"
    ): ("cache_too_small", "--max-model-len 34960 would start"),
    (
        "The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache "
        "(3664). Try increasing `gpu_memory_utilization` or decreasing `max_model_len`"
    ): ("cache_too_small_v0", "The cache holds 3,664 tokens"),
    "Auto-fit max_model_len: reduced from 8192 to 7344 to fit in available KV cache memory (0.9 GiB GPU)": (
        "auto_fit",
        "from 8,192 to 7,344",
    ),
    "Setting attention block size to 544 tokens to ensure that attention page size is >= mamba page size.": (
        "hybrid_block",
        "a block has 544 tokens",
    ),
    "Add 2 padding layers, may waste at most 3.23% KV cache memory": ("padding_layers", "at most 3.23 %"),
    (
        "Engine 000: Avg prompt throughput: 432.1 tokens/s, Avg generation throughput: 2509.6 tokens/s, Running: 12 "
        "reqs, Waiting: 6 reqs, GPU KV cache usage: 97.7%, Prefix cache hit rate: 0.0%"
    ): ("stats", "12 requests run and 6 wait; the running ones hold 97.7 % of the cache."),
    (
        "Sequence group 42 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. "
        "This can affect the end-to-end performance. total_num_cumulative_preemption=51"
    ): ("preempted_v0", "51 preemptions so far."),
    (
        "Sequence group 42 is preempted by PreemptionMode.SWAP mode because there is not enough KV cache space. "
        "total_num_cumulative_preemption=1"
    ): ("preempted_v0", "lost its part, which is copied to the host's memory and back later."),
    "Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 27630": (
        "all_blocks",
        "27,630 blocks of the cache; with --data-parallel-size those of all",
    ),
    "Overriding num_gpu_blocks=8191 with num_gpu_blocks_override=129": ("blocks_override", "The cache has 129 blocks"),
    "Chunked prefill is enabled with max_num_batched_tokens=8192.": ("batched_tokens", "at most 8,192 tokens"),
    "Padding mamba page size by 1.49% to ensure that mamba page size and attention page size are exactly equal.": (
        "mamba_padding",
        "1.49 % larger",
    ),
    (
        "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests. Please try "
        "lowering `max_num_seqs` or `gpu_memory_utilization` when initializing the engine."
    ): ("warm_up_out_of_memory", "no room for 1,024 requests at once"),
    (
        "Memory profiling results: total_gpu_memory=23.58GiB initial_memory_usage=15.34GiB peak_torch_memory=17.06GiB "
        "memory_usage_post_profile=15.35GiB non_torch_memory=0.35GiB kv_cache_size=3.81GiB gpu_memory_utilization=0.90"
    ): ("profile_v0", "3.81 GiB for the KV cache: 23.58 × 0.9, less 17.06"),
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has": ("out_of_memory", "2.00 GiB"),
    (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.19 "
        "GiB of which 99.12 MiB is free. Including non-PyTorch memory, this process has 19.00 GiB memory in use."
    ): ("out_of_memory", "Of 79.19 GiB this process holds 19.00 GiB and 99.12 MiB are free; the rest is other"),
    (
        "Free memory on device (78.5/79.19 GiB) on startup. Desired GPU memory utilization is (0.92, 72.85 GiB). "
        "Actual usage is 34.49 GiB for consumed memory (weights + non-torch), 2.7 GiB for peak activation, and "
        "0.61 GiB for CUDAGraph memory. Replace gpu_memory_utilization config with `--kv-cache-memory=1` to fit into "
        "requested memory. Current kv cache memory in use is 35.66 GiB."
    ): (
        "usage",
        "34.49 GiB for weights and memory outside torch, 2.7 for peak activations and the estimate of the CUDA",
    ),
    (
        "ValueError: Free memory on device cuda:0 (78.6/79.19 GiB) on startup is less than desired GPU memory "
        "utilization (0.995, 78.79 GiB)."
    ): ("start_free", "The 0.59 GiB that are taken are a CUDA context's"),
    "the current vLLM instance can use total_gpu_memory (79.19GiB) x gpu_memory_utilization (0.90) = 71.27GiB": (
        "budget_v0",
        "7.92 GiB stay outside",
    ),
    (
        "model weights take 14.99GiB; non_torch_memory takes 0.25GiB; PyTorch activation peak memory takes 1.89GiB; "
        "the rest of the memory reserved for KV Cache is 54.14GiB."
    ): ("parts_v0", "and the rest, 54.14, for the KV cache"),
    "Initial free memory 78.50 GiB, reserved 6.51GiB memory for KV Cache as specified by kv_cache_memory_bytes": (
        "fixed_pool",
        "The cache has 6.51 GiB because --kv-cache-memory-bytes says so",
    ),
    "Estimated CUDA graph memory: 0.70 GiB total": ("graphs_estimate", "about 0.7 GiB"),
    (
        "CUDA graph memory profiling is enabled (default since v0.21.0). The current --gpu-memory-utilization=0.9200 "
        "is equivalent to --gpu-memory-utilization=0.9123 without CUDA graph memory profiling."
    ): ("graphs_counted", "as large as 0.9123 made it"),
    "Load weight end. elapsed=9.31 s, type=LlamaForCausalLM, avail mem=63.10 GB, mem usage=15.40 GB.": (
        "sglang_weights",
        "15.4 GiB of weights on this GPU (SGLang prints GB and means GiB).",
    ),
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 400000, K size: 24.41 GB, V size: 24.41 GB": (
        "sglang_cache",
        "about 131,050 B",
    ),
    "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 400000, KV size: 24.41 GB": (
        "sglang_latent_cache",
        "400,000 tokens of KV in 24.41 GiB",
    ),
    "Capture target decode CUDA graph end. bs=[1, 2], elapsed=9.3 s, mem usage=1.20 GB, avail mem=9.00 GB.": (
        "sglang_graphs",
        "took 1.2 GiB",
    ),
    "max_total_num_tokens=400000, chunked_prefill_size=8192, max_running_requests=2048, context_len=8192": (
        "sglang_limits",
        "one of them may have 8,192: 48.83 of the longest",
    ),
    "Decode batch, #running-req: 12, #token: 90000, token usage: 0.23, cuda graph: True, #queue-req: 3": (
        "sglang_stats",
        "12 requests run; they hold 23 % of the cache. 3 wait in the queue.",
    ),
    "KV cache pool is full. Retract requests. #retracted_reqs: 5, #new_tokens_gained: 100": (
        "sglang_retracted",
        "5 running requests lost their part",
    ),
    "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.": (
        "sglang_no_cache_memory",
        "raise --mem-fraction-static",
    ),
    "load_tensors:        CUDA0 model buffer size =  4403.49 MiB": (
        "llamacpp_weights",
        "4,403.49 MiB of weights on CUDA0",
    ),
    "llama_kv_cache:      CUDA0 KV buffer size =  1024.00 MiB": ("llamacpp_cache", "1,024.00 MiB of KV on CUDA0"),
    "llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  4/ 4 seqs), K (f16):  512.00 MiB": (
        "llamacpp_cells",
        "for 8,192 tokens in 32 layers, 4 slots: 131,072 B a token",
    ),
    "llama_memory_recurrent:      CUDA0 RS buffer size =    62.00 MiB": ("llamacpp_state", "62.00 MiB on CUDA0"),
    "sched_reserve:      CUDA0 compute buffer size =   258.50 MiB": ("llamacpp_compute", "a smaller -ub"),
    "llama_context:        CPU  output buffer size =     0.50 MiB": ("llamacpp_output", "0.50 MiB on CPU for logits"),
    (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 826.00 MiB on device 0: cudaMalloc failed: out of "
        "memory"
    ): ("llamacpp_out_of_memory", "826.00 MiB has no place on device 0"),
    "llama_context: n_ctx_seq     = 4096": ("llamacpp_slot", "One request may have 4,096 tokens"),
    "[TensorRT-LLM][INFO] Allocate 64424509440 bytes for k/v cache.": ("trtllm_cache", "60.00 GiB of KV"),
    "[TensorRT-LLM][INFO] Using 491520 tokens in paged KV cache.": ("trtllm_tokens", "491,520 tokens of KV"),
    (
        'level=INFO source=memory.go:356 msg=offload library=cuda layers.requested=-1 memory.required.kv="1.0 GiB" '
        'memory.weights.total="4.3 GiB" memory.graph.full="560.0 MiB" memory.graph.partial="677.5 MiB"'
    ): ("ollama_offload", "1.0 GiB for the KV cache"),
}


@pytest.mark.parametrize("line", LINES)
def test_log_lines(line: str) -> None:
    """Each line is recognised behind its prefix, and what it says is said."""
    name, words = LINES[line]
    prefix = "(EngineCore pid=123) INFO 11-29 18:16:21 [kv_cache_utils.py:2327] "
    (reading,) = explain.explain_log(prefix + line)
    assert reading.line.name == name
    assert words in " ".join(reading.sentences)
    assert not any("{" in sentence for sentence in reading.sentences)


@pytest.mark.parametrize(
    "line",
    [
        "Available KV cache memory: .... GiB",
        "Available KV cache memory: 1.2.3 GiB",
        "GPU KV cache size: ,,, tokens",
        "Maximum concurrency for ,,, tokens per request: ..x",
        "Model loading took . GiB",
    ],
)
def test_figures_that_are_none(line: str) -> None:
    """A line that only looks like a known one is not known."""
    with pytest.raises(InputError, match="No known line"):
        explain.explain_log(line)


def test_every_known_line_is_tested() -> None:
    """The table has no row without an example."""
    assert {line.name for line in LOG_LINES} == {name for name, _ in LINES.values()}


def test_several_lines_at_once() -> None:
    """The one line of 0.28 and later says two things, in the order in which they stand."""
    text = "GPU KV cache size: 226,816 tokens, Maximum concurrency for 16,384 tokens per request: 13.84x"
    assert [reading.line.name for reading in explain.explain_log(text)] == ["kv_cache_size", "max_concurrency"]


def test_below_one() -> None:
    """A concurrency below one means that the longest request does not fit."""
    (reading,) = explain.explain_log("Maximum concurrency for 131,072 tokens per request: 0.27x")
    assert "At 0.27 one request of the longest length does not fit" in " ".join(reading.sentences)


@settings(max_examples=100, deadline=None)
@given(length=st.integers(1, 10**7), hundredths=st.integers(0, 10**7))
def test_any_concurrency(length: int, hundredths: int) -> None:
    """Tokens are concurrency x length, whatever the figures."""
    text = f"Maximum concurrency for {length:,} tokens per request: {hundredths / 100:.2f}x"
    (reading,) = explain.explain_log(text)
    assert reading.figures["tokens"] == hundredths * length // 100


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=300))
def test_any_text(text: str) -> None:
    """Whatever is pasted is explained or refused in a sentence."""
    try:
        explain.explain_log(text)
    except InputError as error:
        assert "known" in str(error)  # noqa: PT017 - either outcome is right


def test_a_whole_log_is_refused() -> None:
    """A text of many megabytes is not searched."""
    with pytest.raises(InputError, match="paste the lines in question"):
        explain.explain_log("x" * ((1 << 20) + 1))


@pytest.mark.skipif(not (SHARED / "data" / "recorded").is_dir(), reason="needs the recorded logs of ../shared")
def test_recorded_logs() -> None:
    """Logs of a real engine are read: one that started, one that refused to."""
    started = (SHARED / "data" / "recorded" / "start2.log").read_text(encoding="utf-8")
    names = [reading.line.name for reading in explain.explain_log(started)]
    assert names == ["batched_tokens", "blocks_override", "kv_cache_size", "max_concurrency", "stats"]
    refused = (SHARED / "data" / "recorded" / "start_nofit.log").read_text(encoding="utf-8")
    assert [reading.line.name for reading in explain.explain_log(refused)] == ["blocks_override", "cache_too_small"]


# --- flags


def test_every_option_is_explained() -> None:
    """What `fit` takes from the engine's command line, `explain flag` explains."""
    ours = {"gpu", "gpu_memory", "num_gpus", "engine", "engine_version", "context", "allow_long"}
    missing = [
        option.name
        for option in deployment_parameters()
        if option.name not in ours and find_flag(option.name or "") is None
    ]
    assert missing == []


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_flags(flag: Any) -> None:  # noqa: ANN401 - a row of the table
    """Each row has a meaning, a default, what it does not cover and a source; versions ascend; names are found."""
    assert flag.meaning.endswith(".")
    assert flag.not_covered
    assert all(text.endswith(".") for text in flag.not_covered)
    assert ".py" in flag.source
    since = [version for version, _ in flag.defaults]
    assert since == sorted(set(since))
    for spelling in (flag.name, f"--{flag.name.replace('_', '-')}", *flag.aliases):
        assert explain.explain_flag(spelling) is flag


def test_defaults_are_those_of_the_budget() -> None:
    """The default that is explained is the one that is computed with."""
    for since, text in explain.explain_flag("gpu_memory_utilization").defaults:
        assert float(text) == facts.at(facts.UTILIZATION, since)
    assert [len(rule.rows) for rule in RULES if not rule.rows] == []


def test_unknown_flag() -> None:
    """A misspelt flag names close ones."""
    with pytest.raises(InputError, match="Close: max_num_seqs"):
        explain.explain_flag("--max-num-seq")


# --- what is seen


def documents() -> dict[str, Any]:
    """Return one document of each kind, and those of models with much to say."""
    found: dict[str, Any] = {
        f"kv {name}": kv_document(explain.explain_kv(deployed(name, tensor_parallel_size=2)))
        for name in ("llama-3.1-8b", "gpt-oss-20b", "deepseek-v3.2", "qwen3.5-27b", "llama-4-scout", "mimo-v2-flash")
    }
    found |= {
        f"weights {name}": weights_document(explain.explain_weights(deployed(name)))
        for name in ("qwen3-8b-awq", "deepseek-v3", "qwen3-vl-8b", "glm-4.5")
    }
    found["log"] = log_document(explain.explain_log("\n".join(LINES)))
    found |= {f"flag {flag.name}": flag_document(flag) for flag in FLAGS}
    return found


def test_documents_are_readable() -> None:
    """In text no line is wider than 80 columns, and nothing is left of a placeholder; Markdown has the same words."""
    for name, document in documents().items():
        text = as_text(document)
        assert [line for line in text.splitlines() if len(line) > 80] == [], name
        assert "None" not in text, name
        assert as_markdown(document).startswith("**"), name


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run the command line and return its exit code and both streams."""
    with pytest.raises(SystemExit) as left:
        main(["explain", *arguments])
    out, err = capsys.readouterr()
    code = left.value.code
    return (code if isinstance(code, int) else 0), out, err


def test_kv_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file's lines are named in text, in Markdown and in JSON, where the factors multiply to the bytes."""
    path = tmp_path / "config.json"
    path.write_text(CONFIG, encoding="utf-8")
    code, out, err = run(capsys, "kv", str(path), "--tp", "2", "--context", "32K")
    assert (code, err) == (0, "")
    assert "KV per token per GPU = 65,536 B (64 KiB), all 2 GPUs 131,072 B (128 KiB)" in out
    assert "config.json:9" in out
    assert "GiB at 32,768" in out
    assert "32 query heads instead of 8 KV heads would give 4× too much." in out
    _, out, _ = run(capsys, "kv", str(path), "--tp", "2", "--json")
    data = json.loads(out)
    assert (data["bytes_per_token"], data["total_bytes_per_token"]) == (65536, 131072)
    (part,) = data["parts"]
    value = prod(Fraction(1, f["value"]) if f["sign"] == OVER else Fraction(f["value"]) for f in part["factors"])
    assert value == part["bytes_per_token"] == 65536
    assert data["layers"][0]["bytes"] == 65536 * 131072
    _, out, _ = run(capsys, "kv", str(path), "--md")
    assert "| × 8 | num\\_key\\_value\\_heads | config.json:9 | KV heads |" in out


def test_weights_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The groups add up in JSON as on screen."""
    code, out, err = run(capsys, "weights", "llama-3.1-8b", "--json")
    assert (code, err) == (0, "")
    data = json.loads(out)
    assert data["parameters"] == 8030261248 == sum(group["parameters"] for group in data["groups"])
    assert data["bytes"] == sum(group["bytes"] for group in data["groups"]) == 2 * 8030261248
    _, out, _ = run(capsys, "weights", "llama-3.1-8b")
    # vLLM's log of this model says 14.9888 (github.com/vllm-project/vllm/issues/10517)
    assert data["loaded_bytes"]["best"] / GIB == pytest.approx(14.9888, abs=1e-4)
    assert f"Weights = {2 * 8030261248 / GIB:.2f} GiB, 8,030,261,248 parameters (8.03B)" in out


def test_log_and_flag_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Both have JSON and Markdown."""
    line = "Maximum concurrency for 8,192 tokens per request: 4.61x"
    _, out, _ = run(capsys, "log", line, "--json")
    assert json.loads(out)["lines"][0]["figures"]["tokens"] == 37765
    _, out, _ = run(capsys, "log", line, "--md")
    assert out.startswith("**Maximum concurrency**")
    _, out, _ = run(capsys, "flag", "gpu-memory-utilization", "--json")
    assert json.loads(out)["defaults"][-1] == {"since": "0.20.0", "value": "0.92"}
    _, out, _ = run(capsys, "flag", "--", "--gpu-memory-utilization")
    assert "since 0.20.0  0.92" in out


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("log", "hello"), 2, "No known line"),
        (("flag", "colour"), 2, "No flag 'colour'"),
        (("kv", "no-such-model"), 2, "No model"),
        (("kv", "llama-3.1-8b", "--tp", "3"), 2, "cannot be split by 3"),
        (("kv", "llama-3.1-8b", "--kv-cache-dtype", "fp7"), 2, "fp7"),
        (("weights", "llama-3.1-8b", "--json", "--md"), 2, "exclude each other"),
    ],
)
def test_bad_input(arguments: tuple[str, ...], code: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence on the other stream."""
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert words in err
    assert "Traceback" not in err
