"""Plan files: what is written is what is read, without a network; what is no plan is refused by name."""

from __future__ import annotations

import json
from math import inf, nan
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.budgeting import budget
from kvbudget.check import Plan, check, plan_dict, plan_from, plan_of, read_log, read_metrics, read_plan
from kvbudget.check.plan import is_plan
from kvbudget.checkpoint import Checkpoint
from kvbudget.cli import main
from kvbudget.deployment import Deployment
from kvbudget.errors import AccessError, InputError, KvbudgetError
from kvbudget.headers.tensors import Tensor
from kvbudget.hub import load_model
from kvbudget.model import Model
from kvbudget.placement import with_headers
from kvbudget.present.checked import check_document
from kvbudget.present.document import as_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("llama-3.1-8b", {"gpu": "h100", "max_model_len": 8192}),
    ("llama-3.1-8b", {"gpu": "l4", "quantization": "fp8", "max_model_len": 4096}),
    ("gpt-oss-20b", {"gpu": "h100", "tensor_parallel_size": 2, "max_num_seqs": 64}),
    ("qwen3-next-80b-a3b", {"gpu": "h100", "tensor_parallel_size": 4}),
    ("mixtral-8x7b", {"gpu": "a100-80", "pipeline_parallel_size": 2, "kv_cache_dtype": "fp8"}),
    ("deepseek-v3", {"gpu": "h200", "tensor_parallel_size": 8, "enforce_eager": True}),
    ("glm-4.5-air", {"gpu": "h200", "tensor_parallel_size": 2, "speculative_config": {"method": "mtp"}}),
    ("gemma-3-12b", {"gpu": "h100", "limit_mm_per_prompt": {"image": 2}, "max_model_len": 8192}),
    ("llama-3.1-8b", {"gpu": "l4", "max_model_len": 131072}),
)  # fmt: skip


def written(document: dict[str, Any], tmp_path: Path) -> Plan:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return read_plan(path)


@pytest.mark.parametrize(("model", "choices"), CASES, ids=range(len(CASES)))
def test_a_plan_is_read_as_it_was_written(model: str, choices: dict[str, Any], tmp_path: Path) -> None:
    b = budget(Deployment(model=load_model(model), engine_version="0.28.0", **choices))
    found = written(plan_dict(b, {"rate_per_s": 2}), tmp_path)
    assert found.expectation == {"rate_per_s": 2}
    assert found.engine_version == "0.28.0"
    again = budget(found.deployment)
    assert again.to_dict() == b.to_dict()
    assert plan_dict(again, {"rate_per_s": 2}) == plan_dict(b, {"rate_per_s": 2})


def test_files_beside_the_config_are_kept(tmp_path: Path) -> None:
    """ModelOpt says how a checkpoint is quantized in a file of its own."""
    config = dict(load_model("llama-3.1-8b").config)
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}}
    model = Model.from_config(config, name="m", hf_quant_config=beside)
    assert model.quantization is not None
    b = budget(Deployment(model=model, gpu="h100", max_model_len=4096))
    assert budget(written(plan_dict(b), tmp_path).deployment).to_dict() == b.to_dict()


def test_bounds_hold_the_best_figure() -> None:
    for model, choices in CASES:
        document = plan_dict(budget(Deployment(model=load_model(model), **choices)))
        for name, (low, high) in document["budget"]["bounds"].items():
            assert low <= document["budget"]["kv"][name] <= high, (model, name)


def test_save_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    with pytest.raises(SystemExit) as leaving:
        main(["fit", "llama-3.1-8b", "--gpu", "h100", "--max-model-len", "8192", "--save-plan", str(path), "--json"])
    assert leaving.value.code == 0
    shown = json.loads(capsys.readouterr().out)
    found = read_plan(path)
    assert {key: value for key, value in found.budget.items() if key != "bounds"} == shown
    assert check(found, read_log([])).verdict == "cannot_tell"


def test_a_plan_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["fit", "llama-3.1-8b", "--gpu", "h100", "--save-plan", "-"]
    with pytest.raises(SystemExit) as leaving:
        main(command)
    assert leaving.value.code == 0
    assert plan_from(json.loads(capsys.readouterr().out), "plan.json").engine_version == "0.32"
    with pytest.raises(SystemExit) as leaving:
        main([*command, "--json"])
    assert leaving.value.code == 2
    assert "--save-plan - and --json both write" in capsys.readouterr().err


# -- what is no plan


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"schema": 2, "kvbudget": "9.1"},
            r"is schema 2, written by kvbudget 9\.1; .* reads schema 1; update kvbudget, or make",
        ),
        ({"schema": 0}, "is schema 0.*; make the plan again"),
        ({"schema": True}, "is schema True"),
        ({"schema": "x" * 100}, "is schema x"),
        ({"kind": "other"}, "is no plan"),
        ({"budget": {}}, "budget.settings is missing"),
        ({"budget": 3}, "budget is missing"),
        ({"model": None}, "model is missing"),
    ],
)
def test_other_documents(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    document = plan_of(budget(Deployment(model=load_model("llama-3.1-8b"), gpu="h100"))).document
    with pytest.raises(InputError, match=words):
        written({**document, **change}, tmp_path)


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'"x"'])
def test_other_files(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"plan\.json"):
        read_plan(path)


@pytest.mark.parametrize(("name", "sort"), [("plan.json", True), ("my.plan", False), ("plan", True)])
def test_a_plan_is_known_by_what_it_holds(name: str, sort: bool, tmp_path: Path) -> None:
    """Whatever it is called, and in whatever order a tool has put its keys."""
    (tmp_path / name).write_text("\n" + json.dumps(SMALL, sort_keys=sort))
    assert is_plan(str(tmp_path / name))


@pytest.mark.parametrize("content", [b'{"model_type": "llama"}', b"GGUF kvbudget plan", b""])
def test_what_is_no_plan_is_a_model(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(content)
    assert not is_plan(str(tmp_path / "file.json"))
    assert not is_plan(str(tmp_path))
    assert not is_plan("org/na\0me")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot be read"):
        read_plan(tmp_path / "none.json")


SMALL = plan_of(budget(Deployment(model=load_model("llama-3.1-8b"), gpu="h100"))).document
PLACES = [(part, key) for part in ("gpu", "deployment", "budget", "model") for key in SMALL[part]]


@given(st.sampled_from(PLACES), st.sampled_from([None, -1, "x", [], {}, 1e300, True, [[]], {"a": {}}]))
def test_a_damaged_plan_is_refused_in_a_sentence(place: tuple[str, str], value: object) -> None:
    part, key = place
    seen = read_log(["Available KV cache memory: 6.51 GiB", "vLLM API server version 0.28.0"])
    try:
        plan = plan_from({**SMALL, part: {**SMALL[part], key: value}}, "plan.json")
        check(plan, seen)
        budget(plan.deployment)
    except KvbudgetError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most are no error


def _inside(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - JSON
    """Yield the place of everything in a document, however deep."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield (*place, key)
        yield from _inside(inner, (*place, key))


@given(st.data(), st.sampled_from([None, -1, 0, "x", "9" * 5000, [], {}, [[]], True, 2.5, 1e300, nan, inf, 10**400]))
def test_a_figure_that_is_none_is_refused_in_a_sentence(data: st.DataObject, value: object) -> None:
    """Whatever stands in whatever place of the budget, a report comes of it or a sentence."""
    document = json.loads(json.dumps(SMALL))
    *path, last = data.draw(st.sampled_from(list(_inside(document["budget"]))))
    inner = document["budget"]
    for key in path:
        inner = inner[key]
    inner[last] = value
    metrics = read_metrics('vllm:cache_config_info{num_gpu_blocks="28000",kv_cache_size_tokens="5000"} 1\n')
    log = read_log(["Available KV cache memory: 6.51 GiB", "Maximum concurrency for 8,192 tokens per request: 4.61x"])
    try:
        as_text(check_document(check(plan_from(document, "plan.json"), log, metrics)))
    except KvbudgetError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most are no error


def test_stored_weights_are_kept(tmp_path: Path) -> None:
    """Headers that disagree with the config decide on the weights, in the plan as well."""
    plain = load_model("llama-3.1-8b")
    tensors = tuple(
        Tensor(f"{path}.weight", "F8_E4M3", (weight.out_features, weight.in_features), weight.values)
        for _, path, weight in plain.weights()
    )
    size = sum(tensor.nbytes for tensor in tensors)
    model = with_headers(
        plain, Checkpoint(name="m", source="m", config=plain.config, tensors=tensors, stored_bytes=size)
    )
    assert model.stored is not None
    b = budget(Deployment(model=model, gpu="h100", max_model_len=1024))
    found = written(plan_dict(b), tmp_path).deployment
    assert found.model.stored is not None
    assert found.model.stored.modules == model.stored.modules
    assert budget(found).to_dict() == b.to_dict()
