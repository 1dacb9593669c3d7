"""What was measured here: kept, used, said, and never narrower than its own spread."""

# ruff: noqa: E501 - tables of strategies

from __future__ import annotations

import json
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.budgeting import budget
from kvbudget.calibration import MAX_KEYS, MAX_MEASURED, calibrated, calibration_path, learn
from kvbudget.cli import main
from kvbudget.deployment import Deployment
from kvbudget.errors import AccessError, InputError
from kvbudget.hub import load_model
from kvbudget.measured import Correction, key_of
from kvbudget.units import GIB
from vllm_lines import start_up

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "data" / "calibration.json"
    monkeypatch.setenv("KVBUDGET_CALIBRATION", str(path))
    return path


def deployment(**choices: Any) -> Deployment:  # noqa: ANN401 - any choice
    model = load_model(choices.pop("model", "llama-3.1-8b"))
    return Deployment(**{"model": model, "gpu": "h100", "engine_version": "0.28.0", "max_model_len": 8192, **choices})


def part(d: Deployment, name: str = "activations") -> tuple[int, int, int, str]:
    low, best, high, source = getattr(budget(d).ranks[0].fixed, name)
    return low, best, high, source


def test_nothing_is_known_at_first() -> None:
    assert calibrated(deployment()).measured == ()


def test_what_was_learned_is_used_and_said() -> None:
    d = deployment()
    low, best, high, _ = part(d)
    for i, ratio in enumerate((1.1, 1.2, 1.15)):
        learn(d, {"activations": ratio * best}, f"start {i}")
    now = calibrated(d)
    low_now, best_now, high_now, source = part(now)
    assert best_now == pytest.approx(1.15 * best, rel=1e-6)
    assert low_now - 1 <= 1.1 * best <= 1.2 * best <= high_now + 1
    assert high_now - low_now < high - low
    assert source.startswith("measured here, n = 3; ")
    assert any("measured here: activations (n = 3); --no-calibration" in line for line in budget(now).assumptions)
    before, after = budget(d).kv, budget(now).kv
    assert after.available_kv_cache_memory_bytes < before.available_kv_cache_memory_bytes


def test_the_same_start_counts_once() -> None:
    d = deployment()
    for _ in range(3):
        _, counts = learn(d, {"activations": GIB}, "06-10 12:00:01 m")
    assert counts == {"activations": 1}


@pytest.mark.parametrize(
    "other",
    [{"engine_version": "0.27"}, {"gpu": "h200"}, {"model": "qwen3-14b"}],
)
def test_it_holds_for_its_like_alone(other: dict[str, Any]) -> None:
    learn(deployment(), {"activations": GIB}, "a")
    assert calibrated(deployment(engine_version="0.28.3", max_num_seqs=64)).measured
    changed = deployment(**other)
    assert calibrated(changed).measured == ()
    carried = calibrated(deployment()).replaced(
        model=changed.model, gpu=changed.gpu, engine_version=changed.engine_version
    )
    assert part(carried) == part(changed)


def test_a_correction_is_no_choice() -> None:
    learn(deployment(), {"activations": GIB}, "a")
    assert "measured" not in calibrated(deployment()).choices()


def test_learning_from_a_corrected_budget_keeps_the_estimate() -> None:
    d = deployment()
    estimate = part(d)[1]
    learn(d, {"activations": 2 * estimate}, "a")
    path, _ = learn(calibrated(d), {"activations": 2 * estimate}, "b")
    rows = json.loads(path.read_text())["measured"][key_of(d)]["activations"]
    assert [row["estimated_bytes"] for row in rows] == [estimate, estimate]


@pytest.mark.parametrize("value", [-1.0, 1e15])
def test_what_cannot_be_is_not_learned(value: float) -> None:
    assert learn(deployment(), {"activations": value}, "a")[1] == {}
    assert not calibration_path().exists()


def test_the_file_is_bounded() -> None:
    d = deployment()
    for i in range(MAX_MEASURED + 5):
        path, counts = learn(d, {"activations": GIB}, str(i))
    assert counts == {"activations": MAX_MEASURED}
    document = json.loads(path.read_text())
    document["measured"] = {f"old {i}": document["measured"][key_of(d)] for i in range(MAX_KEYS + 20)}
    path.write_text(
        json.dumps(
            {
                **document,
                "measured": {
                    key: {"activations": value["activations"][:1]} for key, value in document["measured"].items()
                },
            }
        )
    )
    learn(d, {"activations": GIB}, "new")
    kept = json.loads(path.read_text())["measured"]
    assert (len(kept), list(kept)[-1]) == (MAX_KEYS, key_of(d))
    assert [item.name for item in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"schema": 2, "measured": {}}', '{"schema": 1}', '{"schema": 1, "measured": 3}', "x" * (2 << 20)],
)
def test_a_damaged_file_is_refused(content: str, own_file: Path) -> None:
    own_file.parent.mkdir()
    own_file.write_text(content)
    with pytest.raises(InputError, match=r"calibration\.json is no calibration"):
        calibrated(deployment())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["activations", "measured_bytes", "estimated_bytes"]), inner, max_size=3)
        ),
        max_leaves=12,
    )
)
def test_any_entry_is_passed_over_or_used(entry: object) -> None:
    path = calibration_path()
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"schema": 1, "measured": {key_of(deployment()): entry}}))
    budget(calibrated(deployment()))


def test_a_file_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVBUDGET_CALIBRATION", str(tmp_path / "file" / "calibration.json"))
    with pytest.raises(AccessError, match="cannot be"):
        learn(deployment(), {"activations": GIB}, "a")


def test_where_the_file_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KVBUDGET_CALIBRATION")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert calibration_path() == tmp_path / "kvbudget" / "calibration.json"


def test_two_writers_lose_nothing(own_file: Path) -> None:
    """Each reads, adds its own and writes; nobody's is overwritten by who read before."""
    d = deployment()
    threads = [threading.Thread(target=learn, args=(d, {"activations": GIB}, f"start {i}")) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calibrated(d).measured[0].n == 12
    assert [path.name for path in own_file.parent.iterdir()] == ["calibration.json"]


def test_a_file_that_someone_holds(own_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr("kvbudget.calibration.PATIENCE_S", 0.05)
    own_file.parent.mkdir()
    held = os.open(own_file.parent, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(AccessError, match=r"calibration\.json is being written by another process; try again"):
        learn(deployment(), {"activations": GIB}, "a")
    os.close(held)
    assert learn(deployment(), {"activations": GIB}, "a")[1] == {"activations": 1}


def test_a_link_stays_a_link(own_file: Path, tmp_path: Path) -> None:
    """People keep such files in a folder of their own, and link to it."""
    own_file.parent.mkdir()
    own_file.symlink_to(tmp_path / "mine.json")
    learn(deployment(), {"activations": GIB}, "a")
    assert own_file.is_symlink()
    assert calibrated(deployment()).measured[0].n == 1


SIZES = st.integers(1, 1 << 40)


@given(st.tuples(SIZES, SIZES, SIZES).map(sorted), st.lists(st.floats(0, 10), min_size=1, max_size=20))
def test_the_interval_narrows_and_holds_what_was_seen(bounds: list[int], ratios: list[float]) -> None:
    low, best, high = bounds
    c = Correction("k", "activations", min(ratios), sum(ratios) / len(ratios), max(ratios), len(ratios))
    new_low, new_best, new_high = c.bounds(low, best, high)
    assert 0 <= new_low <= new_best <= new_high
    slack = 2 + 1e-6 * new_high
    assert new_low - slack <= min(ratios) * best <= max(ratios) * best <= new_high + slack
    spread = (max(ratios) - min(ratios)) * best
    surprise = max(0, low - c.best * best, c.best * best - high)
    assert new_high - new_low <= (high - low + 2 * surprise) / (len(ratios) + 1) + 2 * spread + slack


@pytest.mark.parametrize(("n", "interval"), [(1, (20, 40)), (3, (25, 35)), (24, (29, 31))])
def test_one_measurement_far_outside_is_not_taken_for_certain(n: int, interval: tuple[int, int]) -> None:
    """30 where 8 to 12 was estimated: half of 2 + 18 more or less, which further ones make smaller."""
    low, best, high = Correction("k", "activations", 3.0, 3.0, 3.0, n).bounds(8, 10, 12)
    assert (best, (low, high)) == (30, interval)


# -- the command line


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(list(arguments))
    code = leaving.value.code
    return code if isinstance(code, int) else 0


FIGURES: dict[str, Any] = {"weights": 14.99, "activations": 1.2, "non_torch": 0.25, "graphs": 0.6, "available": 58.3, "length": 8192, "total": 79.19, "free": 78.6, "fraction": 0.95}  # fmt: skip
ARGS = {"model": "llama-3.1-8b", "max_model_len": 8192, "gpu_memory_utilization": 0.95}


def test_learn_and_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str], own_file: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("\n".join(start_up((0, 28, 0), FIGURES, ARGS)))
    run("check", "llama-3.1-8b", "--gpu", "h100", "--log", str(log), "--learn")
    assert f"learned activations (n = 1), non_torch (n = 1), cuda_graphs (n = 1); {own_file}" in capsys.readouterr().err
    (kept,) = json.loads(own_file.read_text(encoding="utf-8"))["measured"].values()
    assert kept["non_torch"][0]["measured_bytes"] == pytest.approx(0.25 * GIB)  # of 0.27's sum with the weights
    command = ("fit", "llama-3.1-8b", "--gpu", "h100", "--engine-version", "0.28", "--max-model-len", "8192")
    assert run(*command) == 0
    assert "measured here, n = 1" in capsys.readouterr().out
    assert run(*command, "--no-calibration") == 0
    assert "measured here" not in capsys.readouterr().out


def test_a_home_in_the_file_s_name_is_meant_by_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KVBUDGET_CALIBRATION", "~/mine.json")
    learn(deployment(), {"activations": GIB}, "a")
    assert (tmp_path / "mine.json").exists()
    assert run("fit", "llama-3.1-8b", "--gpu", "h100", "--engine-version", "0.28", "--max-model-len", "8192") == 0
    assert "measured here, n = 1" in capsys.readouterr().out


def test_learning_needs_a_plan_with_the_same_choices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "engine.log"
    log.write_text("\n".join(start_up((0, 28, 0), FIGURES, ARGS)))
    assert run("check", "llama-3.1-8b", "--gpu", "h100", "--log", str(log), "--max-num-seqs", "64", "--learn") == 2
    assert "other choices than the plan" in capsys.readouterr().err
    assert run("check", "qwen3-14b", "--gpu", "h100", "--log", str(log), "--learn") == 2
    assert "the weights on the server is not that of the plan" in capsys.readouterr().err
    assert run("check", "llama-3.1-8b", "--gpu", "h200", "--log", str(log), "--learn") == 2
    assert "the GPU memory on the server is not that of the plan" in capsys.readouterr().err
    assert run("check", "--metrics", str(log), "--learn") == 2


def test_every_engine_and_every_start_is_a_lesson(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pods that start in the same second are several, and so are starts in one log; a log without times counts once."""
    lines = start_up((0, 28, 0), FIGURES, ARGS)
    command = ("check", "llama-3.1-8b", "--gpu", "h100", "--learn", "--log")
    pods = tmp_path / "pods.log"
    pods.write_text("\n".join(f"[pod/a-{i}/vllm] {line}" for i in (0, 1, 2) for line in lines))
    run(*command, str(pods))
    assert "activations (n = 3)" in capsys.readouterr().err
    assert calibrated(deployment(gpu_memory_utilization=0.95)).measured[0].n == 3
    again = tmp_path / "again.log"
    again.write_text("\n".join(lines))
    run(*command, str(again))
    again.write_text("\n".join(lines + lines))
    run(*command, str(again))
    run(*command, str(again))
    assert calibrated(deployment(gpu_memory_utilization=0.95)).measured[0].n == 5
