"""Speculative decoding: drafts against vLLM's own classes and arithmetic, and what is said of the rest."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import kvbudget as kb
from kvbudget.cli import cli
from kvbudget.engines import vllm
from kvbudget.engines.vllm_cache import fitting_requests, kv_cache_size_tokens, num_gpu_blocks
from kvbudget.errors import CannotTell, InputError
from kvbudget.hub import load_model
from kvbudget.model.stored import Held, Stored
from kvbudget.speculation import SpeculativeConfig, parse

if TYPE_CHECKING:
    from pathlib import Path

GIB = 1 << 30
POOL = 100 * GIB
"""What every row's answer was given for."""

SCALES = 16
"""Bytes of the four float32 scales that vLLM's attention keeps in each layer, which no weight of ours stands for."""

EAGLE = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 1,
    "vocab_size": 128256,
    "max_position_embeddings": 2048,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
}
"""The shape of yuhuili/EAGLE-LLaMA3-Instruct-8B."""

EAGLE3 = EAGLE | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 32000}
"""The shape of yuhuili/EAGLE3-LLaMA3.1-Instruct-8B."""

HEADS = {"eagle": EAGLE, "eagle3": EAGLE3}

MTP = {"method": "mtp", "num_speculative_tokens": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What vLLM 0.32 answered on H100s for 100 GiB of cache on each GPU.

    Attributes:
        model: A name of the catalogue.
        speculative: `--speculative-config`; a head's config stands under "head".
        ranks: Tensor-parallel ranks.
        stages: Pipeline stages.
        blocks: num_gpu_blocks.
        tokens: "GPU KV cache size".
        groups: (layers, tokens of a block, bytes of a page, blocks of the longest request) of each group.
        draft: Bytes of the draft's parameters and buffers on one rank, RoPE tables included.
    """

    model: str
    speculative: dict[str, Any]
    ranks: int = 1
    stages: int = 1
    blocks: int
    tokens: int
    groups: list[tuple[int, int, int, int]] = field(default_factory=list)
    draft: int = 0


ROWS: tuple[Row, ...] = (
    Row(
        model="deepseek-v3",
        speculative=MTP,
        blocks=93_958,
        tokens=1_503_328,
        groups=[(62, 16, 18432, 10240)],
        draft=11_717_511_408,
    ),
    Row(
        model="deepseek-v3",
        speculative=MTP | {"num_speculative_tokens": 3},
        blocks=93_958,
        tokens=1_503_328,
        groups=[(62, 16, 18432, 10240)],
        draft=11_717_511_408,
    ),
    Row(
        model="qwen3-next-80b-a3b",
        speculative=MTP,
        blocks=7_413,
        tokens=3_957_787,
        groups=[(12, 544, 1114112, 3), (12, 544, 1114112, 3), (12, 544, 1114112, 3), (13, 544, 1114112, 482)],
        draft=3_300_942_864,
    ),
    Row(
        model="qwen3-next-80b-a3b",
        speculative=MTP | {"num_speculative_tokens": 2},
        blocks=7_201,
        tokens=3_924_530,
        groups=[(12, 560, 1146880, 4), (12, 560, 1146880, 4), (12, 560, 1146880, 4), (13, 560, 1146880, 469)],
        draft=3_300_942_864,
    ),
    Row(
        model="glm-4.5-air",
        speculative=MTP,
        blocks=34_859,
        tokens=557_744,
        groups=[(47, 16, 65536, 8192)],
        draft=4_751_168_016,
    ),
    Row(
        model="glm-5",
        speculative=MTP,
        blocks=16_539,
        tokens=1_058_496,
        groups=[(158, 64, 6491904, 3168)],
        draft=19_905_842_192,
    ),
    Row(
        model="qwen3.5-397b-a17b",
        speculative=MTP | {"num_speculative_tokens": 2},
        blocks=1_551,
        tokens=2_967_776,
        groups=[(15, 2112, 4325376, 4), (15, 2112, 4325376, 4), (15, 2112, 4325376, 4), (16, 2112, 4325376, 125)],
        draft=13_191_136_272,
    ),
    Row(
        model="mimo-7b",
        speculative=MTP,
        blocks=44_281,
        tokens=708_496,
        groups=[(37, 16, 65536, 2048)],
        draft=421_580_816,
    ),
    Row(
        model="llama-3.1-8b",
        speculative={"model": "llama-3.2-1b", "num_speculative_tokens": 4},
        blocks=40_960,
        tokens=655_360,
        groups=[(48, 16, 2621440, 8192)],
        draft=2_488_406_272,
    ),
    Row(
        model="llama-3.1-8b",
        speculative={"method": "eagle", "head": "eagle", "num_speculative_tokens": 3},
        blocks=49_648,
        tokens=794_368,
        groups=[(33, 16, 65536, 8192)],
        draft=536_879_120,
    ),
    Row(
        model="llama-3.1-8b",
        speculative={"method": "eagle3", "head": "eagle3", "num_speculative_tokens": 3},
        blocks=49_648,
        tokens=794_368,
        groups=[(33, 16, 65536, 8192)],
        draft=883_189_776,
    ),
    Row(
        model="llama-3.1-8b",
        speculative={"method": "ngram", "num_speculative_tokens": 4},
        blocks=51_200,
        tokens=819_200,
        groups=[(32, 16, 65536, 8192)],
    ),
    Row(
        model="deepseek-v3",
        speculative=MTP,
        ranks=8,
        blocks=93_958,
        tokens=1_503_328,
        groups=[(62, 16, 18432, 10240)],
        draft=1_661_047_984,
    ),
    Row(
        model="deepseek-v3",
        speculative=MTP | {"num_speculative_tokens": 3},
        ranks=8,
        blocks=93_958,
        tokens=1_503_328,
        groups=[(62, 16, 18432, 10240)],
        draft=1_661_047_984,
    ),
    Row(
        model="qwen3-next-80b-a3b",
        speculative=MTP,
        ranks=4,
        blocks=29_654,
        tokens=7_989_330,
        groups=[(12, 272, 278528, 3), (12, 272, 278528, 3), (12, 272, 278528, 3), (13, 272, 278528, 964)],
        draft=827_876_368,
    ),
    Row(
        model="qwen3-next-80b-a3b",
        speculative=MTP | {"num_speculative_tokens": 2},
        ranks=4,
        blocks=28_006,
        tokens=7_954_068,
        groups=[(12, 288, 294912, 4), (12, 288, 294912, 4), (12, 288, 294912, 4), (13, 288, 294912, 911)],
        draft=827_876_368,
    ),
    Row(
        model="glm-4.5-air",
        speculative=MTP,
        ranks=8,
        blocks=278_876,
        tokens=4_462_016,
        groups=[(47, 16, 8192, 8192)],
        draft=654_487_568,
    ),
    Row(
        model="glm-5",
        speculative=MTP,
        ranks=8,
        blocks=16_539,
        tokens=1_058_496,
        groups=[(158, 64, 6491904, 3168)],
        draft=2_667_777_040,
    ),
    Row(
        model="qwen3.5-397b-a17b",
        speculative=MTP | {"num_speculative_tokens": 2},
        ranks=8,
        blocks=12_412,
        tokens=6_392_399,
        groups=[(15, 528, 540672, 4), (15, 528, 540672, 4), (15, 528, 540672, 4), (16, 528, 540672, 497)],
        draft=1_655_751_696,
    ),
    Row(
        model="mimo-7b",
        speculative=MTP,
        ranks=8,
        blocks=354_248,
        tokens=5_667_968,
        groups=[(37, 16, 8192, 2048)],
        draft=111_453_712,
    ),
    Row(
        model="llama-3.1-8b",
        speculative={"model": "llama-3.2-1b", "num_speculative_tokens": 4},
        ranks=8,
        blocks=327_680,
        tokens=5_242_880,
        groups=[(48, 16, 327680, 8192)],
        draft=325_849_344,
    ),
    Row(
        model="llama-3.1-8b",
        speculative={"method": "eagle", "head": "eagle", "num_speculative_tokens": 3},
        ranks=8,
        blocks=397_187,
        tokens=6_354_992,
        groups=[(33, 16, 8192, 8192)],
        draft=155_197_456,
    ),
    Row(
        model="llama-3.1-8b",
        speculative={"method": "eagle3", "head": "eagle3", "num_speculative_tokens": 3},
        ranks=8,
        blocks=397_187,
        tokens=6_354_992,
        groups=[(33, 16, 8192, 8192)],
        draft=228_091_920,
    ),
    Row(
        model="glm-4.5-air",
        speculative=MTP,
        ranks=4,
        stages=2,
        blocks=273_066,
        tokens=4_369_056,
        groups=[(23, 16, 16384, 8192)],
        draft=1_550_106_128,
    ),
    Row(
        model="qwen3-next-80b-a3b",
        speculative=MTP,
        ranks=4,
        stages=2,
        blocks=55_072,
        tokens=14_837_404,
        groups=[(6, 272, 278528, 3), (6, 272, 278528, 3), (6, 272, 278528, 3), (6, 272, 278528, 964)],
        draft=983_458_832,
    ),
    Row(
        model="mistral-7b-v0.1",
        speculative={"method": "ngram", "num_speculative_tokens": 4},
        blocks=51_200,
        tokens=2_181_692,
        groups=[(32, 16, 65536, 769)],
    ),
    Row(
        model="qwen3-14b",
        speculative={"model": "qwen3-0.6b", "num_speculative_tokens": 4},
        ranks=2,
        blocks=48_188,
        tokens=771_008,
        groups=[(68, 16, 32768, 2560)],
        draft=596_115_904,
    ),
    Row(
        model="qwen3-next-80b-a3b",
        speculative={"method": "ngram", "num_speculative_tokens": 4},
        ranks=4,
        blocks=30_340,
        tokens=8_561_301,
        groups=[(12, 288, 294912, 6), (12, 288, 294912, 6), (12, 288, 294912, 6), (12, 288, 294912, 911)],
    ),
)


def deployment(row: Row, **choices: Any) -> kb.Deployment:  # noqa: ANN401 - any field
    """Return the deployment of a row."""
    return kb.Deployment(
        model=load_model(row.model),
        gpu="H100-SXM-80GB",
        tensor_parallel_size=row.ranks,
        pipeline_parallel_size=row.stages,
        speculative_config=spelled(row.speculative),
        **choices,
    )


def spelled(given: dict[str, Any]) -> Any:  # noqa: ANN401 - a mapping or the type itself
    """Return `--speculative-config`, with a head in place of its config."""
    if "head" not in given:
        return given
    rest = {key: value for key, value in given.items() if key != "head"}
    return SpeculativeConfig(model=kb.Model.from_config(HEADS[given["head"]], name=given["head"]), **rest)


def name_of(row: Row) -> str:
    """Return a row's name in reports."""
    what = row.speculative.get("method") or row.speculative["model"]
    return f"{row.model}-{what}-tp{row.ranks}-pp{row.stages}"


@pytest.mark.parametrize("row", ROWS, ids=name_of)
def test_blocks_are_those_of_the_engine(row: Row) -> None:
    s = vllm.settings(deployment(row))
    plan = vllm.cache_plan(load_model(row.model), s.cache)
    blocks = num_gpu_blocks(plan, POOL)
    assert (blocks, kv_cache_size_tokens(plan, blocks)) == (row.blocks, row.tokens)
    if row.stages == 1:
        found = [(g.layers, g.block_size, g.page_bytes, g.blocks_per_request) for g in plan.groups]
        assert sorted(found) == sorted(row.groups)


@pytest.mark.parametrize("row", [row for row in ROWS if row.draft], ids=name_of)
def test_weights_of_a_draft_are_those_of_the_engine(row: Row) -> None:
    b = kb.budget(deployment(row))
    (line,) = (line for line in b.ranks[-1].lines if line.name == "draft")
    layers = len(b.settings.draft.layers) if b.settings.draft else 0
    assert line.low_bytes == row.draft - SCALES * layers


def test_lines_still_add_up_to_the_card() -> None:
    for speculative in (MTP, {"method": "ngram", "num_speculative_tokens": 4}):
        b = kb.budget(
            kb.Deployment(
                model=load_model("glm-4.5-air"),
                gpu="H100-SXM-80GB",
                tensor_parallel_size=4,
                pipeline_parallel_size=2,
                speculative_config=speculative,
            )
        )
        for rank in b.ranks:
            assert sum(line.takes_bytes for line in rank.lines) == b.deployment.card.memory_bytes


def test_a_draft_stands_on_the_last_stage_alone() -> None:
    b = kb.budget(
        kb.Deployment(
            model=load_model("glm-4.5-air"),
            gpu="H200-SXM-141GB",
            tensor_parallel_size=2,
            pipeline_parallel_size=2,
            speculative_config=MTP,
        )
    )
    assert [any(line.name == "draft" for line in rank.lines) for rank in b.ranks] == [False, True]


@given(st.integers(1, 64))
def test_looking_up_takes_no_memory(tokens: int) -> None:
    model = load_model("llama-3.1-8b")
    plain, looked = (
        kb.budget(
            kb.Deployment(
                model=model, gpu="H100-SXM-80GB", max_model_len=8192, async_scheduling=False, speculative_config=config
            )
        )
        for config in (None, {"method": "ngram", "num_speculative_tokens": tokens})
    )
    assert not any(line.name == "draft" for line in looked.lines)
    assert (plain.kv.num_gpu_blocks, plain.kv.bytes_per_token) == (looked.kv.num_gpu_blocks, looked.kv.bytes_per_token)


def test_methods_that_need_the_last_step_are_not_scheduled_ahead() -> None:
    model = load_model("mistral-7b-v0.1")
    ngram = {"method": "ngram", "num_speculative_tokens": 4}
    d = kb.Deployment(model=model, gpu="H100-SXM-80GB", speculative_config=ngram)
    assert not vllm.settings(d).async_scheduling
    with pytest.raises(InputError, match="--async-scheduling"):
        vllm.settings(d.replaced(async_scheduling=True))
    assert vllm.settings(d.replaced(speculative_config=ngram | {"method": "ngram_gpu"})).async_scheduling


def test_a_request_holds_blocks_for_what_a_draft_writes_ahead() -> None:
    model = load_model("llama-3.1-8b")
    head = SpeculativeConfig(method="eagle3", num_speculative_tokens=8, model=kb.Model.from_config(EAGLE3, name="head"))
    d = kb.Deployment(model=model, gpu="H100-SXM-80GB", max_model_len=8192, speculative_config=head)
    plan = vllm.cache_plan(model, vllm.settings(d).cache)
    assert fitting_requests(plan, 1 + 10 * 5, 64) == 10  # four blocks of 16 tokens, and one for eight and eight more
    assert fitting_requests(plan, 1 + 512, 8192) == 1  # never more than the longest request


def test_a_head_whose_embedding_may_be_a_copy_is_an_interval() -> None:
    head = SpeculativeConfig(method="eagle", num_speculative_tokens=2, model=kb.Model.from_config(EAGLE, name="head"))
    b = kb.budget(kb.Deployment(model=load_model("llama-3.1-8b"), gpu="H100-SXM-80GB", speculative_config=head))
    (line,) = (line for line in b.lines if line.name == "draft")
    assert line.high_bytes - line.low_bytes == 2 * 128256 * 4096


def test_headers_tell_whether_a_head_has_an_embedding() -> None:
    head = kb.Model.from_config(EAGLE3, name="head")
    held = Held(nbytes=1, values=1, plain=True, dtype="F16")
    for paths, certain in ((("model.norm", "lm_head"), True), (("model.norm", "embed_tokens"), False)):
        stored = Stored(read="headers of 1 file", modules=dict.fromkeys(paths, held), bytes_by_group={})
        config = SpeculativeConfig(method="eagle3", num_speculative_tokens=3, model=replace(head, stored=stored))
        d = kb.Deployment(model=load_model("llama-3.1-8b"), gpu="H100-SXM-80GB", speculative_config=config)
        (line,) = (line for line in kb.budget(d).lines if line.name == "draft")
        assert (line.low_bytes == line.high_bytes) is certain


@pytest.mark.parametrize(
    ("given", "method"),
    [
        ({"method": "deepseek_mtp", "num_speculative_tokens": 1}, "mtp"),
        ({"method": "qwen3_next_mtp", "num-speculative-tokens": 1}, "mtp"),
        ({"method": "[ngram]", "num_speculative_tokens": 1}, "ngram"),
        ({"model": "ngram", "num_speculative_tokens": 1, "prompt_lookup_max": 4}, "ngram"),
        ({"method": "suffix"}, "suffix"),
        ({"model": "llama-3.2-1b", "num_speculative_tokens": 1}, "draft_model"),
        ({"model": "deepseek-v3", "num_speculative_tokens": 1}, "mtp"),
    ],
)
def test_methods_are_found_out_as_by_the_engine(given: dict[str, Any], method: str) -> None:
    assert parse(given).method == method
    assert parse(json.dumps(given)).method == method


@pytest.mark.parametrize("name", ["EAGLE-LLaMA3.1", "my-eagle3-head"])
def test_a_heads_name_says_its_method(name: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(EAGLE3), encoding="utf-8")
    found = parse({"model": str(folder), "num_speculative_tokens": 3})
    assert found.method == ("eagle" if name.startswith("EAGLE") else "eagle3")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "must be a JSON object"),
        ({}, "neither a method nor a model"),
        ({"method": 3}, "expected text"),
        ({"model": 3}, "expected a folder or a name"),
        ({"method": "foo", "num_speculative_tokens": 1}, "'foo' is not known"),
        ({"method": "ngram"}, "num_speculative_tokens is missing"),
        ({"method": "ngram", "num_speculative_tokens": 0}, "from 1 to"),
        ({"method": "ngram", "num_speculative_tokens": True}, "from 1 to"),
        ({"method": "ngram", "num_speculative_tokens": 10**5000}, "an integer of"),
        ({"method": "eagle", "num_speculative_tokens": 1}, "needs a model"),
        ({"method": "ngram", "num_speculative_tokens": 1, "tokens": 3}, "'tokens' is not known to vLLM"),
        ({"method": "ngram", "num_speculative_tokens": 1, "tensor_parallel_size": 1}, "draft_tensor_parallel_size"),
        ({"method": "mtp", "num_speculative_tokens": 1, "draft_sample_method": "best"}, "greedy or probabilistic"),
        ({"method": "mtp", "num_speculative_tokens": 1, "use_heterogeneous_vocab": 1}, "true or false"),
    ],
)
def test_bad_input_is_one_sentence(given: Any, says: str) -> None:  # noqa: ANN401 - what people write
    with pytest.raises(InputError, match=says):
        parse(given)


@pytest.mark.parametrize(
    ("model", "given", "says"),
    [
        ("llama-3.1-8b", MTP, "has no draft layers, so vLLM stops"),
        ("glm-4.5-air", MTP | {"num_speculative_tokens": 0}, "from 1 to"),
        ("llama-3.1-8b", {"model": "qwen3-0.6b", "num_speculative_tokens": 1}, "which vLLM refuses"),
    ],
)
def test_what_the_engine_refuses_is_refused(model: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        kb.budget(kb.Deployment(model=load_model(model), gpu="H100-SXM-80GB", speculative_config=given))


@pytest.mark.parametrize(
    ("model", "given"),
    [
        ("llama-3.1-8b", {"method": "medusa", "num_speculative_tokens": 1, "model": "llama-3.2-1b"}),
        ("llama-3.1-8b", {"method": "ngram", "num_speculative_tokens": 1, "kv_cache_dtype": "fp8"}),
        ("mimo-v2-flash", MTP),
        ("qwen3-8b", {"model": "qwen3-8b", "method": "eagle3", "num_speculative_tokens": 1}),
    ],
)
def test_what_was_not_read_is_not_told(model: str, given: dict[str, Any]) -> None:
    with pytest.raises(CannotTell):
        kb.budget(kb.Deployment(model=load_model(model), gpu="H100-SXM-80GB", speculative_config=given))


@pytest.mark.parametrize(
    "flags",
    [
        ["--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}'],
        ["-sc", '{"method": "ngram", "num_speculative_tokens": 3}'],
        ["--speculative-config.method", "ngram", "--speculative-config.num_speculative_tokens=3"],
        ["--spec-method", "ngram", "--spec-tokens", "3"],
        ["--speculative-config", '{"method": "ngram"}', "--num-speculative-tokens=3"],
    ],
)
def test_launch_commands_say_it_in_many_ways(flags: list[str]) -> None:
    words = ["fit", "--gpu", "h100", "--json", "--", "vllm", "serve", "llama-3.1-8b", *flags]
    result = CliRunner().invoke(cli, words, catch_exceptions=False)
    answer = json.loads(result.stdout)
    assert answer["settings"]["speculative_config"] == {
        "method": "ngram",
        "num_speculative_tokens": 3,
        "model": None,
        "layers": 0,
    }
    assert not any("not counted" in warning for warning in answer["warnings"])


def test_rows_that_the_profile_run_does_not_sample_are_a_warning() -> None:
    d = kb.Deployment(model=load_model("glm-4.5-air"), gpu="H200-SXM-141GB", tensor_parallel_size=4, max_num_seqs=64)
    (warning,) = kb.budget(d.replaced(speculative_config=MTP | {"num_speculative_tokens": 3})).warnings
    assert "sample 256 rows" in warning
    assert "profile run 64" in warning
    assert kb.budget(d).warnings == ()


def test_adapters_need_room_for_all_proposed_tokens() -> None:
    d = kb.Deployment(
        model=load_model("llama-3.1-8b"),
        gpu="H100-SXM-80GB",
        enable_lora=True,
        max_num_seqs=1024,
        max_num_batched_tokens=2048,
        speculative_config={"method": "ngram", "num_speculative_tokens": 4},
    )
    with pytest.raises(InputError, match="no room for 4 proposed tokens"):
        kb.budget(d)
    assert kb.budget(d.replaced(max_num_seqs=256)).verdict


def test_a_draft_that_does_not_divide_is_refused() -> None:
    d = kb.Deployment(
        model=load_model("llama-3.1-70b"),
        gpu="H100-SXM-80GB",
        tensor_parallel_size=64,
        speculative_config={"model": "llama-3.2-1b", "num_speculative_tokens": 4},
    )
    with pytest.raises(InputError, match="cannot be split by 64"):
        kb.budget(d)


def test_an_older_version_may_differ() -> None:
    d = kb.Deployment(
        model=load_model("llama-3.1-8b"),
        gpu="H100-SXM-80GB",
        engine_version="0.20",
        enable_lora=True,
        speculative_config={"method": "ngram", "num_speculative_tokens": 1},
    )
    warnings = kb.budget(d).warnings
    assert any(line.startswith("speculative decoding, LoRA: counted as vLLM 0.32 does it") for line in warnings)
