"""The estimated parts: laws that they keep, starts that others measured, and the floors that the bench must meet."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.budgeting import Rank, budget
from kvbudget.deployment import Deployment
from kvbudget.engines import vllm, vllm_overhead
from kvbudget.engines.vllm_overhead import Share
from kvbudget.facts.formats import dtype_bytes
from kvbudget.facts.vllm import KNOWN
from kvbudget.hub import load_model, load_path
from kvbudget.model import Model
from kvbudget.units import GIB

if TYPE_CHECKING:
    from types import ModuleType

    from kvbudget.engines.estimate import Estimate

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("KVBUDGET_SHARED") or ROOT.parent / "shared")
LAUNCHES = SHARED / "data" / "launches.jsonl"
ORACLE = SHARED / "data" / "vllm_oracle.jsonl.gz"
STUDY = "https://github.com/llm-d-incubation/llm-d-planner/blob/main/accuracy/accuracy_report.md"

DENSE, EXPERTS, LATENT, IMAGES = "llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-3-4b"
MODELS = (DENSE, EXPERTS, LATENT, IMAGES, "gpt-oss-20b", "qwen2.5-vl-7b", "deepseek-v3.2", "jamba-large-1.5")
FIRST_RUNNER, SECOND_RUNNER = (0, 19, 0), (0, 32, 0)
ALONE = Share(1, 1, expert_parallel=False, stage=None)
PRINTED = 0.01 * GIB
"""Parts are printed with two digits, and a difference of two rounded figures may be one digit off."""


@cache
def model(name: str) -> Model:
    return load_model(name)


def shared_by(ranks: int) -> Share:
    return Share(ranks, ranks, expert_parallel=False, stage=None)


def activations(
    name: str,
    *,
    version: tuple[int, int, int] = SECOND_RUNNER,
    share: Share = ALONE,
    tokens: int = 8192,
    requests: int = 256,
    length: int = 8192,
) -> Estimate:
    return vllm_overhead.activations(
        model(name),
        version,
        share,
        batched_tokens=tokens,
        num_seqs=requests,
        max_model_len=length,
        element_bytes=2,
    )


def ordered(estimate: Estimate) -> bool:
    return 0 <= estimate.low <= estimate.best <= estimate.high


NAMES = st.sampled_from(MODELS)
VERSIONS = st.sampled_from(KNOWN)
TOKENS, REQUESTS = st.integers(256, 65_536), st.integers(1, 2048)


# -- laws


@given(NAMES, VERSIONS, TOKENS, REQUESTS, st.sampled_from([1, 2, 4]))
def test_low_is_below_best_is_below_high(
    name: str, version: tuple[int, int, int], tokens: int, requests: int, ranks: int
) -> None:
    estimate = activations(name, version=version, share=shared_by(ranks), tokens=tokens, requests=requests)
    assert ordered(estimate)
    assert estimate.low > 0


@given(NAMES, VERSIONS, TOKENS, REQUESTS, st.integers(1, 4096))
def test_more_tokens_or_requests_never_take_less(
    name: str, version: tuple[int, int, int], tokens: int, requests: int, more: int
) -> None:
    here = activations(name, version=version, tokens=tokens, requests=requests)
    for there in (
        activations(name, version=version, tokens=tokens + more, requests=requests),
        activations(name, version=version, tokens=tokens, requests=requests + more),
    ):
        assert here.low <= there.low
        assert here.best <= there.best
        assert here.high <= there.high


@given(NAMES, TOKENS, REQUESTS, st.sampled_from([2, 4, 8]))
def test_ranks_share_a_layers_tensors(name: str, tokens: int, requests: int, ranks: int) -> None:
    """The first runner's sampler is the same on every rank; the second gathers the vocabulary, so few requests here."""
    alone = activations(name, version=FIRST_RUNNER, tokens=tokens, requests=requests)
    assert (
        activations(name, version=FIRST_RUNNER, share=shared_by(ranks), tokens=tokens, requests=requests).best
        <= alone.best
    )
    few = activations(name, tokens=tokens, requests=1)
    assert activations(name, share=shared_by(ranks), tokens=tokens, requests=1).best <= few.best


def test_the_vocabulary_is_gathered_from_all_ranks() -> None:
    """With many requests and few tokens, a rank of the second runner holds more than one GPU alone would."""
    alone, two = (activations(DENSE, tokens=2048, requests=2048, share=shared_by(ranks)).best for ranks in (1, 2))
    logits = 2048 * model(DENSE).vocab_size
    assert two - alone == pytest.approx(3 * logits, rel=0.01)


@given(NAMES, st.integers(1, 4096), st.sampled_from([None, (8, 0), (9, 0), (10, 0)]))
def test_graphs_grow_with_layers_and_requests(name: str, requests: int, capability: tuple[int, int] | None) -> None:
    layers = len(model(name).layers)

    def graphs(layers: int, requests: int, *, eager: bool = False) -> Estimate:
        return vllm_overhead.cuda_graphs(layers, num_seqs=requests, capability=capability, enforce_eager=eager)

    here = graphs(layers, requests)
    assert ordered(here)
    assert here.best <= graphs(layers + 1, requests).best
    assert here.best <= graphs(layers, requests + 1).best
    assert graphs(layers, requests, eager=True)[:3] == (0, 0, 0)


def test_captured_sizes_are_the_engines() -> None:
    """1, 2, 4, each 8th below 256, each 16th up to the largest: 51 up to 512, 83 up to 1,024."""
    assert [vllm_overhead.captured_sizes(largest) for largest in (1, 2, 8, 128, 512, 1024)] == [1, 2, 4, 19, 51, 83]


@given(NAMES, VERSIONS, st.sampled_from(["h100", "gb10", "rtx-3090", "a100-80gb", "l4"]), st.sampled_from([1, 2]))
@settings(max_examples=60)
def test_every_line_of_a_budget_is_ordered(name: str, version: tuple[int, int, int], gpu: str, ranks: int) -> None:
    question = Deployment(
        model=model(name),
        gpu=gpu,
        engine_version=".".join(map(str, version)),
        tensor_parallel_size=ranks,
        max_model_len=2048,
    )
    resolved = vllm.settings(question)
    fixed = vllm.fixed(
        question.model,
        resolved.version,
        resolved.dtype,
        (ranks, ranks, False),
        None,
        vllm.batch_key(question.model, resolved),
        enforce_eager=False,
        card=question.card,
    )
    assert all(
        ordered(part) for part in (fixed.weights, fixed.activations, fixed.cuda_graphs, fixed.non_torch, fixed.context)
    )


def test_stages_before_the_last_do_not_sample() -> None:
    layers = len(model(DENSE).layers)
    first, last = (
        activations(DENSE, version=FIRST_RUNNER, share=Share(1, 1, expert_parallel=False, stage=stage), requests=1024)
        for stage in ((0, layers // 2), (layers // 2, layers))
    )
    assert first.best < last.best


def test_sparse_attention_keeps_a_workspace_for_the_longest_request() -> None:
    short, long = (activations("deepseek-v3.2", length=length).best for length in (10_000, 110_000))
    assert long - short == 100_000 * 5 * 1152
    assert activations(DENSE, length=10_000) == activations(DENSE, length=110_000)


def test_experts_that_serve_several_replicas_work_on_all_their_tokens() -> None:
    one, eight = (Share(1, ranks, expert_parallel=True, stage=None) for ranks in (1, 8))
    assert activations(EXPERTS, share=one).best < activations(EXPERTS, share=eight).best
    assert vllm_overhead.experts_workspace(model(EXPERTS), one, 1) == 8 * (2048 + 2048)


# -- which runner, and what the sampler holds


@pytest.mark.parametrize(
    ("name", "version", "second"),
    [
        (DENSE, (0, 21, 0), False),
        (DENSE, (0, 23, 0), True),
        ("qwen3-8b", (0, 22, 1), True),
        (DENSE, (0, 22, 1), False),
        (EXPERTS, (0, 28, 0), False),
        ("qwen3-next-80b-a3b", (0, 28, 0), False),
        (EXPERTS, (0, 29, 0), True),
        ("qwen3-next-80b-a3b", (0, 32, 0), True),
        ("gemma-2-9b", (0, 24, 0), False),
        ("gemma-2-9b", (0, 25, 1), True),
    ],
)
def test_the_default_runner_by_version(name: str, version: tuple[int, int, int], second: bool) -> None:
    """config/vllm.py, use_v2_model_runner and its tables, of the wheels named in `facts.vllm`."""
    assert vllm_overhead.second_runner(model(name), version) is second


@pytest.mark.parametrize(("version", "per_logit"), [((0, 16, 0), 38), ((0, 17, 1), 14)])
def test_bytes_a_logit_takes_while_sampling(version: tuple[int, int, int], per_logit: int) -> None:
    """Where the sampler decides, 100 more requests take that much for each logit, and a little for their rows."""
    few, many = (activations(DENSE, version=version, tokens=4096, requests=requests).best for requests in (1000, 1100))
    vocab, hidden = model(DENSE).vocab_size, model(DENSE).hidden_size
    assert many - few == 100 * (vocab * per_logit + 4 * hidden)


def test_the_second_runner_keeps_counts_for_every_request() -> None:
    few, many = (activations(DENSE, tokens=8192, requests=requests).best for requests in (100, 200))
    assert many - few == 100 * model(DENSE).vocab_size * 4.125


# -- beside the checkpoint


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (DENSE, 131_072 * 128 * 2),
        ("llama-4-scout", 10_485_760 * 128 * 2),
        ("deepseek-v3", 163_840 * 64 * 2),
        ("jamba-large-1.5", 0),
    ],
)
def test_rope_tables(name: str, size: int) -> None:
    """Rows x rotated values x the model's type, as vLLM 0.32's own modules hold them."""
    assert vllm_overhead.rope_bytes(model(name), SECOND_RUNNER, 2) == size


@pytest.mark.parametrize(
    ("name", "section", "keys", "size"),
    [
        (
            "gemma-3-4b",
            "text_config",
            {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_local_base_freq": 10_000},
            (8 * 131_072 + 131_072) * 256 * 2,
        ),
        (
            "phi-3-mini-128k",
            None,
            {"rope_scaling": {"type": "longrope"}, "original_max_position_embeddings": 4096},
            (131_072 + 4096) * 96 * 2,
        ),
        (
            "qwen2.5-vl-7b",
            None,
            {"rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}},
            4 * 128_000 * 128 * 2,
        ),
        ("llama-3.1-8b", None, {"partial_rotary_factor": 0.5}, 131_072 * 64 * 2),
    ],
)
def test_rope_tables_of_other_kinds(name: str, section: str | None, keys: dict[str, Any], size: int) -> None:
    """One table a kind of layer; linear factors, LongRoPE's second table, multimodal positions, a rotated part."""
    config = dict(model(name).config)
    config |= {section: {**config[section], **keys}} if section else keys
    assert vllm_overhead.rope_bytes(Model.from_config(config), SECOND_RUNNER, 2) == size


def test_padded_experts_are_an_interval() -> None:
    """gpt-oss-120b: 60.77 GiB in the file; with Marlin on an H100 the log says 65.97 (vllm-project/vllm#23278)."""
    answer = budget(Deployment(model=model("gpt-oss-120b"), gpu="h100", engine_version="0.10.1"))
    weights = answer.ranks[0].fixed.weights
    assert weights.low / GIB == pytest.approx(60.77, abs=0.05)
    assert weights.best / GIB == pytest.approx(65.97, abs=0.1)


def test_some_classes_build_a_head_though_it_is_tied() -> None:
    """JambaForCausalLM does not look at the key: vLLM 0.32 loads 6,398,479,104 bytes of the tied AI21-Jamba2-3B."""
    assert model("jamba2-3b").tied
    answer = budget(Deployment(model=model("jamba2-3b"), gpu="h100", engine_version="0.32"))
    assert answer.ranks[0].fixed.weights.best == 6_398_479_104


def test_a_tied_head_of_its_own_stands_on_the_last_stage() -> None:
    """As one that is not tied: Jamba's class builds both matrices on every stage."""
    loads = [
        [rank.fixed.weights.best for rank in budget(Deployment(model=read, gpu="h200", pipeline_parallel_size=2)).ranks]
        for tied in (True, False)
        for read in [Model.from_config({**model("jamba2-3b").config, "tie_word_embeddings": tied})]
    ]
    assert loads[0] == loads[1]


def test_classes_that_run_through_transformers() -> None:
    """No RoPE table, and santacoder's MLP whole on each of eight ranks: 1,720,745,984 bytes in vLLM 0.32."""
    config = {
        "architectures": ["GPTBigCodeForCausalLM"],
        "model_type": "gpt_bigcode",
        "n_embd": 2048,
        "n_head": 16,
        "n_inner": 8192,
        "n_layer": 24,
        "n_positions": 2048,
        "vocab_size": 49280,
        "multi_query": True,
        "torch_dtype": "bfloat16",
    }
    d = Deployment(model=Model.from_config(config), gpu="h100", tensor_parallel_size=8)
    assert budget(d).ranks[0].fixed.weights.best == 1_720_745_984
    dense = Model.from_config({**model(DENSE).config, "architectures": ["SmolLM3ForCausalLM"]})
    assert vllm_overhead.rope_bytes(dense, (0, 32, 0), 2) == 0
    assert vllm_overhead.rope_bytes(dense, (0, 31, 0), 2) == 131_072 * 128 * 2


# -- starts that others measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Parts that a public study read off vLLM's own profiler, in GiB: an H100 80GB, 0.95 of it, default limits."""

    name: str
    version: str = "0.19.0"
    ranks: int = 1
    activation: float
    available: float | None = None


STARTS = (
    Start(name=DENSE, activation=1.89, available=58.11),
    Start(name=DENSE, ranks=2, activation=1.89, available=63.76),
    Start(name="qwen2.5-7b", activation=2.21, available=58.53),
    Start(name="qwen2.5-7b", ranks=4, activation=2.21, available=67.34),
    Start(name="qwen3-14b", version="0.16.0", activation=5.64, available=41.94),
    Start(name="qwen3-14b", version="0.17.0", activation=2.23, available=45.34),
    Start(name="qwen3-14b", version="0.18.0", activation=2.23, available=45.23),
    Start(name=EXPERTS, activation=2.68),
    Start(name="mixtral-8x7b", ranks=2, activation=1.21),
    Start(name="gpt-oss-20b", ranks=2, activation=2.87),
    Start(name="gemma-3-4b", activation=3.89),
    Start(name="gemma-3-27b", activation=3.99),
    Start(name="qwen2.5-72b", ranks=4, activation=2.29),
)
"""Source: `STUDY`, its tables of 2026-04."""


@pytest.mark.parametrize("start", STARTS, ids=lambda start: f"{start.name}-{start.version}-tp{start.ranks}")
def test_measured_parts_lie_inside(start: Start) -> None:
    rank = study(start)
    part = rank.fixed.activations
    assert part.low <= start.activation * GIB + PRINTED
    assert start.activation * GIB - PRINTED <= part.high
    assert part.best / GIB == pytest.approx(start.activation, rel=0.03)
    if start.available is not None:
        assert rank.available_low_bytes <= start.available * GIB <= rank.available_high_bytes
        assert rank.available_bytes / GIB == pytest.approx(start.available, rel=0.01)


def study(start: Start) -> Rank:
    question = Deployment(
        model=model(start.name),
        gpu="h100-sxm-80gb",
        engine_version=start.version,
        tensor_parallel_size=start.ranks,
        max_model_len=8192,
        gpu_memory_utilization=0.95,
    )
    return budget(question).ranks[0]


@pytest.mark.parametrize(("tokens", "peak"), [(20_000, 2.07), (29_000, 2.99)])
def test_a_layers_peak_by_tokens(tokens: int, peak: float) -> None:
    """Two starts of one model that differ in tokens alone (vllm-project/vllm#10517)."""
    estimate = activations(DENSE, version=(0, 10, 0), tokens=tokens, requests=256)
    assert estimate.low <= peak * GIB <= estimate.high
    assert estimate.best / GIB == pytest.approx(peak, rel=0.03)


# -- the bench's floors


@cache
def bench() -> ModuleType:
    """Return `bench/accuracy.py` as a module."""
    folder = ROOT / "bench"
    sys.path.insert(0, str(folder))
    try:
        spec = importlib.util.spec_from_file_location("accuracy", folder / "accuracy.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(folder))
    return module


needs_launches = pytest.mark.skipif(not LAUNCHES.exists(), reason="the launches are not here (KVBUDGET_SHARED)")


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    module = bench()
    found: dict[str, Any] = module.summary(module.compare_all(LAUNCHES))
    found["starts"] = module.starts_summary(module.compare_starts(LAUNCHES.parent / "configs"))
    return found


@needs_launches
def test_bytes_per_token_are_exact(found: dict[str, Any]) -> None:
    """Every row that is not set apart: within 0.1 % or the rounding of the printed pool."""
    figures = found["quantities"]["KV bytes per token"]
    assert figures["n"] >= 15
    assert figures["inside"] == figures["n"]
    assert figures["median_error"] <= 0.001


@needs_launches
def test_weights_and_pools_keep_their_floor(found: dict[str, Any]) -> None:
    weights = found["quantities"]["weights, GiB"]
    assert weights["median_error"] <= 0.01
    assert weights["inside"] >= 0.75 * weights["n"]
    assert found["quantities"]["available KV, GiB"]["median_error"] <= 0.06
    starts = found["starts"]
    assert starts["available"]["inside"] == starts["available"]["n"] >= 12
    assert starts["available"]["median_error"] <= 0.01
    assert starts["activation"]["inside"] >= 0.95 * starts["activation"]["n"]


@needs_launches
def test_what_the_engine_refused_is_refused(found: dict[str, Any]) -> None:
    assert {item["verdict"] for item in found["refused"]} == {"does_not_fit"}
    needed = found["quantities"]["refused: needed, GiB"]
    assert needed["inside"] == needed["n"]


@needs_launches
def test_no_row_is_lost(found: dict[str, Any]) -> None:
    """Each launch is compared or left out under a reason."""
    rows = {json.loads(line)["id"] for line in LAUNCHES.read_text(encoding="utf-8").splitlines()}
    assert {item["row"] for item in found["points"] + found["skipped"]} == rows
    assert all(item["reason"] for item in found["skipped"])


@needs_launches
def test_every_miss_has_its_reason(found: dict[str, Any]) -> None:
    reasons = bench().MISSES
    for point in found["points"]:
        if not point["inside"] and point["quantity"] in ("weights", "available"):
            assert (point["row"], point["quantity"]) in reasons, point


@pytest.mark.skipif(not ORACLE.exists(), reason="vLLM's answers are not here (KVBUDGET_SHARED)")
def test_parameters_and_buffers_of_loaded_classes() -> None:
    """What vLLM's own classes hold on one GPU: parameters, and buffers that are mostly RoPE tables."""
    errors = []
    with gzip.open(ORACLE, "rt") as lines:
        for line in lines:
            answer = json.loads(line)
            if answer["tp"] != 1 or not answer.get("weights"):
                continue
            held, buffers = (answer["weights"][0][key] for key in ("param_bytes", "param_plus_buffer_bytes"))
            folder = SHARED / "data" / "configs" / answer["config"]
            if not folder.exists():  # asked for a variant that is not kept
                continue
            read = load_path(folder, name=answer["config"])
            size = dtype_bytes(answer["dtype"].removeprefix("torch."))
            errors.append(abs(held + vllm_overhead.rope_bytes(read, SECOND_RUNNER, size) - buffers) / buffers)
    assert len(errors) > 150
    assert sum(error <= 0.001 for error in errors) >= 0.97 * len(errors)
    assert sum(error <= 0.01 for error in errors) >= 0.99 * len(errors)
