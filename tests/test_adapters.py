"""Slots for LoRA adapters: against what vLLM's own layers allocate, and the laws of their size."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

import kvbudget as kb
from kvbudget.engines.vllm_lora import Slots, lora_bytes
from kvbudget.engines.vllm_overhead import Share
from kvbudget.errors import InputError
from kvbudget.facts.adapters import RANKS
from kvbudget.hub import load_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the layers of vLLM 0.32 allocated for adapters on the meta device, on one rank.

    Attributes:
        model: A name of the catalogue.
        loras: `--max-loras`.
        rank: `--max-lora-rank`.
        tp: Tensor-parallel ranks.
        sharded: `--fully-sharded-loras`.
        experts: `--enable-expert-parallel`.
        size: Bytes.
    """

    model: str
    loras: int
    rank: int
    tp: int = 1
    sharded: bool = False
    experts: bool = False
    size: int


ROWS = (
    Row(model="llama-3.1-8b", loras=2, rank=32, tp=2, size=260_374_528),
    Row(model="llama-3.1-8b", loras=2, rank=64, tp=8, sharded=True, size=151_650_304),
    Row(model="gemma-2-9b", loras=2, rank=16, tp=2, size=141_754_368),
    Row(model="phi-3-mini-4k", loras=2, rank=16, tp=2, size=67_411_968),
    Row(model="qwen3-30b-a3b", loras=2, rank=16, tp=4, sharded=True, size=870_236_736),
    Row(model="qwen3-30b-a3b", loras=2, rank=16, tp=4, experts=True, size=889_111_104),
    Row(model="qwen3-next-80b-a3b", loras=1, rank=16, tp=2, size=5_480_491_392),
    Row(model="mixtral-8x7b", loras=2, rank=16, tp=2, size=610_713_984),
    Row(model="granite-4.0-h-small", loras=1, rank=16, tp=2, size=1_295_817_536),
    Row(model="glm-4.5-air", loras=1, rank=16, tp=2, size=2_725_657_960),
    Row(model="gemma-3-4b", loras=2, rank=16, size=119_209_984),
    Row(model="deepseek-v3", loras=1, rank=16, tp=2, size=11_863_108_048),
    Row(model="jamba-v0.1", loras=1, rank=16, tp=2, size=333_291_136),
    Row(model="qwen2.5-7b", loras=4, rank=16, size=322_961_408),
    Row(model="qwen3-30b-a3b", loras=1, rank=16, size=1_700_880_768),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.model}-tp{row.tp}-rank{row.rank}")
def test_slots_are_those_of_the_engine(row: Row) -> None:
    share = Share(row.tp, row.tp, row.experts, None)
    slots = Slots(row.loras, row.rank, "auto", row.sharded)
    assert lora_bytes(load_model(row.model), slots, "bfloat16", share) == row.size


@given(st.integers(1, 64), st.sampled_from(RANKS), st.sampled_from((1, 2, 4, 8)))
def test_slots_are_alike_and_as_large_as_their_rank(loras: int, rank: int, tp: int) -> None:
    model = load_model("llama-3.1-8b")
    one = lora_bytes(model, Slots(1, 1, "auto", fully_sharded_loras=False), "bfloat16", Share(tp, tp, False, None))
    many = Slots(loras, rank, "auto", fully_sharded_loras=False)
    assert lora_bytes(model, many, "bfloat16", Share(tp, tp, False, None)) == one * loras * rank


def test_the_line_stands_beside_the_weights_and_the_card_adds_up() -> None:
    d = kb.Deployment(model=load_model("llama-3.1-8b"), gpu="H100-SXM-80GB", enable_lora=True, max_loras=8)
    b = kb.budget(d)
    names = [line.name for line in b.lines]
    assert names[:2] == ["weights", "lora"]
    assert sum(line.takes_bytes for line in b.lines) == d.card.memory_bytes
    plain = kb.budget(d.replaced(enable_lora=False))
    (slots,) = (line.needs_bytes for line in b.lines if line.name == "lora")
    taken = plain.kv.available_kv_cache_memory_high_bytes - b.kv.available_kv_cache_memory_high_bytes
    assert taken == slots  # at the low end of everything else


def test_all_stages_together_hold_what_one_gpu_would() -> None:
    model = load_model("llama-3.1-8b")
    slots = Slots(4, 16, "auto", fully_sharded_loras=False)
    stages = [lora_bytes(model, slots, "bfloat16", Share(1, 1, False, stage)) for stage in ((0, 16), (16, 32))]
    assert sum(stages) == lora_bytes(model, slots, "bfloat16", Share(1, 1, False, None))


@pytest.mark.parametrize(
    ("choices", "says"),
    [
        ({"max_loras": 0}, "--max-loras 0"),
        ({"max_lora_rank": 17}, "--max-lora-rank 17 is not known"),
        ({"lora_dtype": "float32"}, "--lora-dtype"),
        ({"max_lora_rank": 1, "tensor_parallel_size": 2, "fully_sharded_loras": True}, "cannot be split by"),
    ],
)
def test_what_the_engine_refuses_is_refused(choices: dict[str, object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        kb.budget(
            kb.Deployment(
                model=load_model("llama-3.1-8b"),
                gpu="H100-SXM-80GB",
                enable_lora=True,
                **choices,  # type: ignore[arg-type]
            )
        )


def test_sharded_experts_are_refused_with_expert_parallelism() -> None:
    d = kb.Deployment(
        model=load_model("qwen3-30b-a3b"),
        gpu="H100-SXM-80GB",
        tensor_parallel_size=4,
        enable_expert_parallel=True,
        enable_lora=True,
        fully_sharded_loras=True,
    )
    with pytest.raises(InputError, match="leave it out"):
        kb.budget(d)


def test_a_class_without_adapters_is_refused() -> None:
    d = kb.Deployment(model=load_model("falcon-7b"), gpu="H100-SXM-80GB", enable_lora=True)
    with pytest.raises(InputError, match="takes no adapters for FalconForCausalLM"):
        kb.budget(d)


def test_kernels_that_round_experts_up_make_slots_larger() -> None:
    b = kb.budget(kb.Deployment(model=load_model("gpt-oss-20b"), gpu="H100-SXM-80GB", enable_lora=True, max_loras=2))
    (line,) = (line for line in b.lines if line.name == "lora")
    assert (line.needs_bytes, line.high_bytes) == (772_423_968, 772_423_968)  # what vLLM's layers allocate on Hopper
    assert line.low_bytes < line.needs_bytes


def test_a_vocabulary_that_no_adapter_takes_is_refused() -> None:
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": 260_000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    d = kb.Deployment(model=kb.Model.from_config(config), gpu="H100-SXM-80GB", enable_lora=True)
    with pytest.raises(InputError, match="260,000"):
        kb.budget(d)
