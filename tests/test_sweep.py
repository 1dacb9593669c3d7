"""Sweeps: the same rows wherever points run, chunks that are worth their way, results that outlive a stop."""

from __future__ import annotations

import csv
import io
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.cli import cli
from kvbudget.cli.results_file import ResultsFile
from kvbudget.errors import AccessError, CannotTell, InputError
from kvbudget.simulation import fan_out
from kvbudget.simulation import sweep as module
from kvbudget.simulation.clock import StepTime
from kvbudget.simulation.settings import SchedulerSettings
from kvbudget.simulation.sweep import Figures, Point, Row, point_key, run_point, sweep
from kvbudget.workload.spec import WorkloadSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kvbudget.simulation.sweep import Chunk, Options, Work

SETTINGS = SchedulerSettings(num_gpu_blocks=201, max_num_seqs=64, max_num_batched_tokens=512, max_model_len=1024)


def spec(rate: str = "10", seed: int = 0) -> WorkloadSpec:
    return WorkloadSpec(rate=rate, requests="40", prompt_tokens="100", output_tokens="60", seed=seed)


def point(rate: int, key: str = "") -> Point:
    workload = spec(str(rate))
    return Point(
        key=key or point_key({}, SETTINGS, workload), options=(("rate", rate),), settings=SETTINGS,
        workload=workload, clock=StepTime(10, 20),
    )  # fmt: skip


def figures(number: float = 1) -> Figures:
    return Figures(*(number + i for i in range(len(Figures._fields))))  # type: ignore[arg-type] # any number will do


def fake(found: Point) -> Row:
    return Row(key=found.key, options=found.options, figures=figures(dict(found.options)["rate"] or 0))  # type: ignore[arg-type]


# -- the sweep


class Somewhere:
    """Runs chunks in any order, as a pool of workers would."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - no secrets here
        self.sizes: list[int] = []

    def __call__(self, work: Work, chunks: Iterable[Chunk]) -> Iterator[list[Row]]:
        found = [pickle.loads(pickle.dumps(chunk)) for chunk in chunks]  # noqa: S301 - our own
        self.sizes = [len(chunk) for chunk in found]
        self.random.shuffle(found)
        yield from map(pickle.loads(pickle.dumps(work)), found)  # noqa: S301


class Ticking:
    """A clock on the wall that shows another time at each look."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.now = seconds, 0.0

    def __call__(self) -> float:
        self.now += self.seconds
        return self.now


@given(st.lists(st.integers(1, 6), max_size=30), st.integers(0, 99), st.sampled_from([0.001, 0.02, 0.3]))
def test_rows_are_in_the_order_of_points_wherever_these_run(rates: list[int], seed: int, takes: float) -> None:
    points = [point(rate) for rate in rates]
    kept: list[Row] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "perf_counter", Ticking(takes))
        patch.setattr(module, "WORTH_SECONDS", 0)
        rows = sweep(points, fake, fan_out=Somewhere(seed), keep=kept.extend)
    assert rows == sweep(points, fake) == [fake(found) for found in points]
    assert sorted(row.key for row in kept) == sorted({found.key for found in points})


@pytest.mark.parametrize(("takes", "size"), [(0.001, 50), (0.0049, 11), (0.02, 3), (0.05, 1), (7.0, 1)])
def test_chunks_are_work_of_fifty_milliseconds(takes: float, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "perf_counter", Ticking(takes))
    somewhere = Somewhere(0)
    points = [point(1, key=str(number)) for number in range(4000)]
    assert len(sweep(points, fake, fan_out=somewhere)) == 4000
    assert set(somewhere.sizes[:-1]) == {size}
    assert size * takes >= 0.05 * 0.999
    assert sum(somewhere.sizes) >= 4000 - 51


def test_little_work_is_not_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "perf_counter", Ticking(0.06))
    somewhere = Somewhere(0)
    sweep([point(1, key=str(number)) for number in range(10)], fake, fan_out=somewhere)
    assert somewhere.sizes == []


def test_known_rows_are_not_computed_again() -> None:
    points = [point(rate) for rate in (1, 2, 3)]
    known = {points[1].key: fake(points[1]), "of another sweep": fake(points[1])}
    asked: list[Options] = []

    def run(found: Point) -> Row:
        asked.append(found.options)
        return fake(found)

    assert sweep(points, run, known=known) == [fake(found) for found in points]
    assert asked == [points[0].options, points[2].options]


def test_what_was_done_before_an_error_is_kept() -> None:
    def run(found: Point) -> Row:
        if found.options == (("rate", 3),):
            raise InputError("broken")
        return fake(found)

    kept: list[Row] = []
    with pytest.raises(InputError, match="broken"):
        sweep([point(rate) for rate in (1, 2, 3, 4)], run, keep=kept.extend)
    assert [row.options for row in kept] == [(("rate", 1),), (("rate", 2),)]


def test_a_point_is_simulated() -> None:
    found = run_point(point(10)).figures
    assert found is not None
    assert (found.requests, found.completed) == (40, 40)
    assert 0 < found.ttft_p95_s < found.e2e_p95_s <= found.simulated_s
    assert found.output_tokens_per_s == pytest.approx(40 * 60 / found.simulated_s)
    assert found.requests_per_s == pytest.approx(40 / found.simulated_s)
    assert run_point(point(10)) == run_point(point(10))


def test_a_key_tells_points_apart() -> None:
    keys = [
        point_key({}, SETTINGS, spec()),
        point_key({}, SETTINGS, spec(seed=1)),
        point_key({}, SETTINGS, spec(rate="11")),
        point_key({}, SETTINGS._replace(max_num_seqs=65), spec()),
        point_key({"step_time": "10,21"}, SETTINGS, spec()),
        point_key({}, SETTINGS, spec(), "digest"),
        point_key({}, SETTINGS, spec(), clock=StepTime(10, 20)),
        point_key({}, SETTINGS, spec(), clock=StepTime(10, 21)),
    ]
    assert len(set(keys)) == len(keys)
    assert keys[0] == point_key({}, SETTINGS, spec())


def test_errors_come_back_from_other_processes() -> None:
    error = pickle.loads(pickle.dumps(CannotTell("Nothing is known.", key="groups")))  # noqa: S301 - our own
    assert (str(error), error.key, type(error)) == ("Nothing is known.", "groups", CannotTell)


# -- results on disk


@given(
    numbers=st.lists(
        st.one_of(st.integers(-(10**15), 10**15), st.floats(allow_nan=False, allow_infinity=False)),
        min_size=len(Figures._fields),
        max_size=len(Figures._fields),
    )
)
def test_a_row_is_the_same_after_it_was_written(numbers: list[float], tmp_path_factory: pytest.TempPathFactory) -> None:
    file = ResultsFile(str(tmp_path_factory.mktemp("results") / "rows.jsonl"))
    row = Row(key="a", options=(("gpu", "h100"), ("rate", "2"), ("seed", 1)), figures=Figures(*numbers))  # type: ignore[arg-type]
    file.add([row])
    assert repr(file.rows({"a"})) == repr({"a": row})


def test_a_line_that_was_cut_off_is_forgotten_wherever_it_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    file = ResultsFile(str(path))
    first, second = (Row(key=key, options=(), figures=figures()) for key in "ab")
    file.add([first])
    whole = path.read_bytes()
    file.add([second])
    both = path.read_bytes()
    for end in range(len(whole), len(both)):
        path.write_bytes(both[:end])
        assert file.rows({"a", "b"}) == {"a": first}
        assert path.read_bytes() == whole
        file.add([second])
        assert path.read_bytes() == both


@pytest.mark.parametrize(
    "content",
    [
        b"a letter without a last line",
        b"not JSON\n",
        b"{}\n",
        b"[1]\n",
        b'{"key": "a", "options": {}}\n',
        b'{"key": "' + b"x" * (1 << 17),
        json.dumps({"key": "a", "options": [], **figures()._asdict()}).encode() + b"\n",
        json.dumps({"key": "a", "options": {}, **figures()._asdict(), "requests": "1"}).encode() + b"\n",
        b"[" * 60_000 + b"\n",
    ],
)
def test_another_file_is_refused_and_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"mine\.txt, line 1: is no row of a sweep"):
        ResultsFile(str(path)).rows({"a"})
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        ResultsFile(str(tmp_path)).rows(set())
    with pytest.raises(InputError, match="cannot be written"):
        ResultsFile(str(tmp_path / "no" / "folder")).add([fake(point(1))])


# -- the command line

BASE = ["sweep", "llama-3.1-8b", "--gpu", "l4", "--step-time", "10,20", "--max-model-len", "4096"]
LOAD = ["--requests", "60", "--prompt-tokens", "1200", "--output-tokens", "200"]
GRID = [*BASE, *LOAD, "--rate", "2,8", "--max-num-seqs", "16,64", "--seed", "0,1"]


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, list(arguments), standalone_mode=False)
    if code:
        error = result.exception
        assert isinstance(error, (InputError, CannotTell, AccessError)), error
        assert error.exit_code == code
        return str(error)
    assert result.exception is None, result.exception
    return result.stdout


def test_a_row_for_each_combination_with_settings_outside_and_seeds_inside() -> None:
    rows = json.loads(run(*GRID, "--json", "--jobs", "1"))["rows"]
    assert [tuple(row["options"].values()) for row in rows] == [
        (seqs, rate, seed) for seqs in (16, 64) for rate in ("2", "8") for seed in (0, 1)
    ]
    assert rows[0]["options"].keys() == {"max_num_seqs", "rate", "seed"}
    assert all(row["completed"] == 60 for row in rows)


def test_a_row_says_what_simulate_says() -> None:
    row = json.loads(run(*BASE, *LOAD, "--rate", "2,8", "--seed", "1", "--json", "--jobs", "1"))["rows"][1]
    one = json.loads(run("simulate", *BASE[1:], *LOAD, "--rate", "8", "--seed", "1", "--json", "--no-knee"))
    assert row["options"] == {"rate": "8"}
    for name in ("running", "waiting", "kv_used"):
        assert row[f"{name}_p95"] == one[name]["p95"]
    for name in ("ttft", "itl", "e2e"):
        assert row[f"{name}_p95_s"] == one[f"{name}_s"]["p95"]
    assert row["preempted_share"] == one["preempted_requests"] / one["requests"]
    assert row["output_tokens_per_s"] == one["generated_tokens"] / one["simulated_s"]


def test_text_csv_and_markdown_have_the_rows_of_the_json() -> None:
    rows = json.loads(run(*GRID, "--json", "--jobs", "1"))["rows"]
    found = list(csv.DictReader(io.StringIO(run(*GRID, "--csv", "--jobs", "1"))))
    for row, line in zip(rows, found, strict=True):
        given = {**row.pop("options"), **row}
        assert line == {name: "" if value is None else str(value) for name, value in given.items()}
    text = run(*GRID, "--jobs", "1")
    assert "of 8 points without preemptions" in text.splitlines()[0]
    assert sum(line.split()[:1] in (["16"], ["64"]) for line in text.splitlines()) == 8
    assert run(*GRID, "--md", "--jobs", "1").count("\n| 16 |") == 4


def test_a_setting_that_is_refused_has_its_row_and_its_reason() -> None:
    arguments = [*BASE, *LOAD, "--rate", "2,8", "--max-num-seqs", "64,4096", "--jobs", "1"]
    rows = json.loads(run(*arguments, "--json"))["rows"]
    assert [row["refusal"] is None for row in rows] == [True, True, False, False]
    assert "is less than --max-num-seqs 4096" in rows[2]["refusal"]
    assert rows[2]["ttft_p95_s"] is None
    assert "refused" in run(*arguments)


def test_replicas_are_an_axis() -> None:
    arguments = [*BASE, *LOAD, "--rate", "20", "--replicas", "1,2", "--routing", "round-robin,least-loaded"]
    rows = json.loads(run(*arguments, "--jobs", "1", "--json"))["rows"]
    assert [tuple(row["options"].values()) for row in rows] == [
        (1, "round-robin"), (1, "least-loaded"), (2, "round-robin"), (2, "least-loaded"),
    ]  # fmt: skip
    assert rows[0]["ttft_p95_s"] == rows[1]["ttft_p95_s"] > rows[2]["ttft_p95_s"] >= rows[3]["ttft_p95_s"]


def test_a_plan_is_of_one_simulation(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    run("simulate", *BASE[1:], *LOAD, "--rate", "2", "--no-knee", "--save-plan", str(plan))
    assert "is a plan, which `kvbudget simulate` plays" in run("sweep", str(plan), *LOAD, "--rate", "2,4", code=2)


def test_the_scheduler_has_axes_too() -> None:
    arguments = [*BASE, *LOAD, "--rate", "20", "--watermark", "0,0.5", "--scheduling-policy", "fcfs,priority"]
    rows = json.loads(run(*arguments, "--no-scheduler-reserve-full-isl", "--jobs", "1", "--json"))["rows"]
    assert [tuple(row["options"].values()) for row in rows] == [
        (0, "fcfs"), (0, "priority"), (0.5, "fcfs"), (0.5, "priority"),
    ]  # fmt: skip
    assert rows[2]["kv_used_p95"] < rows[0]["kv_used_p95"]


def test_a_launch_command_is_swept() -> None:
    arguments = ["--rate", "2,8", *BASE[2:6], *LOAD, "--jobs", "1", "--json", "--"]
    launched = ["vllm", "serve", "llama-3.1-8b", "--max-model-len", "4096", "--enable-lora", "--max-num-seqs", "16"]
    rows = json.loads(run("sweep", *arguments, *launched))["rows"]
    assert [row["options"] for row in rows] == [{"rate": "2"}, {"rate": "8"}]
    assert max(row["running_p95"] for row in rows) <= 16


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((*BASE, *LOAD, "--rate", "2,x"), 2, "--rate 'x' is no number"),
        ((*BASE, *LOAD, "--rate", "2,,8"), 2, "empty value"),
        ((*BASE, *LOAD), 2, "How often do requests come?"),
        ((*BASE, *LOAD, "--users", "4,8"), 2, "give --rate"),
        ((*BASE, *LOAD, "--rate", "2", "--replicas", "auto"), 2, "which `kvbudget simulate` does; give numbers"),
        ((*BASE, *LOAD, "--rate", "2", "--replicas", "two"), 2, "--replicas 'two': expected a number"),
        ((*BASE, *LOAD, "--rate", "2", "--routing", "least-loaded"), 2, "give --replicas too"),
        ((*BASE, *LOAD, "--rate", "2", "--jobs", "2", "--scheduler", "127.0.0.1:1"), 2, "give one of the two"),
        ((*BASE, *LOAD, "--rate", "2", "--seed", ",".join(map(str, range(100_001)))), 2, "more than 100,000"),
        ((*BASE, "--rate", "2", "--trace", "nothing.csv"), 2, "nothing.csv"),
        (("sweep", "llama-3.1-70b", *BASE[2:], *LOAD, "--rate", "2,8"), 3, "Nothing is left for a KV cache"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], code: int, words: str) -> None:
    assert words in run(*arguments, code=code)


def test_a_second_run_computes_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.jsonl"
    whole = run(*GRID, "--json", "--jobs", "1", "--results", str(path))
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    path.write_bytes(b"".join(lines[:5]) + lines[5][:40])
    asked: list[Options] = []

    def counted(found: Point) -> Row:
        asked.append(found.options)
        return run_point(found)

    monkeypatch.setattr(sweep, "__defaults__", (counted,))
    assert run(*GRID, "--json", "--jobs", "1", "--results", str(path)) == whole
    assert len(asked) == 3
    assert path.read_bytes().splitlines(keepends=True) == lines
    assert run(*GRID, "--json", "--jobs", "1", "--results", str(path), "--seed", "0") != whole
    assert len(asked) == 3


def test_an_option_with_commas_of_its_own_has_one_value() -> None:
    arguments = [*BASE, *LOAD, "--rate", "2,8", "--limit-mm-per-prompt", '{"image": 0, "video": 0}', "--jobs", "1"]
    rows = json.loads(run(*arguments, "--json"))["rows"]
    assert [row["options"] for row in rows] == [{"rate": "2"}, {"rate": "8"}]


def test_a_model_in_a_folder_is_known_by_what_it_takes(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4,
        "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 1000,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
    }  # fmt: skip
    results = tmp_path / "rows.jsonl"
    arguments = ["sweep", str(tmp_path), "--gpu", "h100", *LOAD, "--rate", "8", "--num-gpu-blocks", "1000"]
    for layers, rows in ((4, 1), (4, 1), (8, 2)):
        (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": layers}))
        run(*arguments, "--jobs", "1", "--results", str(results))
        assert lines_of(results) == rows


def test_a_trace_is_known_by_its_content(tmp_path: Path) -> None:
    rows = [{"arrival": i / 4, "prompt": 200, "output": 50} for i in range(20)]
    trace, results = tmp_path / "trace.json", tmp_path / "rows.jsonl"
    arguments = [*BASE, "--trace", str(trace), "--time-scale", "1,4", "--jobs", "1", "--results", str(results)]
    trace.write_text(json.dumps(rows))
    run(*arguments)
    renamed = trace.rename(tmp_path / "same.json")
    run(*[str(renamed) if word == str(trace) else word for word in arguments])
    assert len(results.read_text().splitlines()) == 2
    trace.write_text(json.dumps(rows[:-1]))
    run(*arguments)
    assert len(results.read_text().splitlines()) == 4


def test_without_joblib_it_runs_here_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "joblib", None)
    result = CliRunner().invoke(cli, [*GRID, "--json", "--jobs", "2"], standalone_mode=False)
    assert result.exception is None
    assert result.stdout == run(*GRID, "--json", "--jobs", "1")
    assert result.stderr.count("joblib is not installed") == 1


def test_a_cluster_without_its_packages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert "kvbudget[cluster]" in run(*GRID, "--scheduler", "127.0.0.1:1", code=2)


# -- other processes

needs_joblib = pytest.mark.skipif(find_spec("joblib") is None, reason="joblib is not installed (kvbudget[sweep])")
needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed (kvbudget[cluster])")

LONG = [*BASE, "--requests", "150", *LOAD[2:], "--rate", "2,4,8", "--max-num-seqs", "16,64", "--seed", "0,1,2"]


@needs_joblib
def test_rows_from_other_cores_are_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORTH_SECONDS", 0)
    monkeypatch.setattr(module, "CHUNK_SECONDS", 1e-6)
    sent: list[int] = []
    on_cores = fan_out.on_cores

    def watched(jobs: int) -> Any:  # noqa: ANN401
        inner = on_cores(jobs)
        assert inner is not None

        def spread(work: Work, chunks: Sequence[Chunk]) -> Iterator[list[Row]]:
            for rows in inner(work, chunks):
                sent.append(len(rows))
                yield rows

        return spread

    monkeypatch.setattr(fan_out, "on_cores", watched)
    assert run(*GRID, "--json", "--jobs", "2") == run(*GRID, "--json", "--jobs", "1")
    assert sum(sent) > 0


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:  # noqa: ANN401
    return subprocess.Popen([sys.executable, "-m", "kvbudget", *arguments], text=True, **options)


def wait_until(holds: Any, seconds: float = 60) -> None:  # noqa: ANN401
    ends = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < ends, "it takes too long"
        time.sleep(0.02)


def lines_of(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0


def test_an_interrupted_sweep_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    running = started(*LONG, "--json", "--jobs", "1", "--results", str(path), stdout=subprocess.PIPE)
    wait_until(lambda: lines_of(path) >= 2)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    done = lines_of(path)
    assert 2 <= done < 18
    resumed = run(*LONG, "--json", "--jobs", "1", "--results", str(path))
    assert lines_of(path) == 18
    assert resumed == run(*LONG, "--json", "--jobs", "1")


class Cluster:
    """A Dask scheduler on loopback and worker processes that nobody starts again."""

    def __init__(self, folder: Path, workers: int = 2, **settings: str) -> None:
        told = folder / "scheduler.json"
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]), **settings}
        local: Any = {
            "stdout": subprocess.DEVNULL,
            "stderr": subprocess.DEVNULL,
            "cwd": folder,
            "env": self.environment,
        }
        dask = [sys.executable, "-m"]
        options = ["--host", "127.0.0.1", "--no-dashboard"]
        scheduler = [*dask, "distributed.cli.dask_scheduler", *options, "--port", "0", "--scheduler-file", str(told)]
        self.processes = [subprocess.Popen(scheduler, **local)]
        wait_until(lambda: told.exists() and told.read_text().endswith("}"))
        self.address = json.loads(told.read_text())["address"]
        worker = [*dask, "distributed.cli.dask_worker", self.address, *options, "--nthreads", "1", "--no-nanny"]
        worker += ["--local-directory", str(folder)]
        self.processes += [subprocess.Popen([*worker, "--name", str(number)], **local) for number in range(workers)]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@needs_joblib
@needs_dask
def test_a_cluster_that_loses_a_worker_loses_no_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    cluster = Cluster(tmp_path)
    try:
        running = started(*LONG, "--json", "--scheduler", cluster.address, "--results", str(path),
                          env=cluster.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
        wait_until(lambda: lines_of(path) >= 4)
        assert lines_of(path) < 18
        cluster.processes[1].kill()
        rows, errors = running.communicate(timeout=120)
        assert running.returncode == 0, errors
    finally:
        cluster.stop()
    assert rows == run(*LONG, "--json", "--jobs", "1")
    assert lines_of(path) == 18


HARMFUL = """
import os
from kvbudget.errors import InputError
from kvbudget.simulation.sweep import run_point

class Fatal:
    def __reduce__(self):
        os._exit(1)

def kills(point):
    os._exit(1)

def kills_once_done_and_then_again(point):
    if os.path.exists("done"):
        os._exit(1)
    open("done", "w").close()
    return Fatal()

def fails(point):
    raise RuntimeError("no luck")

def refuses(point):
    raise InputError("The trace is not here.")
"""


@needs_joblib
@needs_dask
@pytest.mark.parametrize(
    ("point_run", "given_up_after", "words"),
    [
        ("kills", "3", "has no workers, or lost them all"),
        ("kills_once_done_and_then_again", "0", "given up after several workers died"),
        ("fails", "0", "a worker failed (RuntimeError: no luck)"),
        ("refuses", "0", "The trace is not here."),
    ],
)
def test_a_point_that_does_harm_ends_the_sweep_with_an_error(
    point_run: str, given_up_after: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that dies with a finished result is asked for it again: that too must end."""
    (tmp_path / "harmful_points.py").write_text(HARMFUL)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(fan_out, "CONNECT_SECONDS", 5)
    monkeypatch.delitem(sys.modules, "harmful_points", raising=False)
    harmful = getattr(__import__("harmful_points"), point_run)
    cluster = Cluster(tmp_path, DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=given_up_after)
    chunks = [(point(1, key=str(number)),) for number in range(1 if "once" in point_run else 4)]
    ended: list[BaseException] = []

    def ask() -> None:
        try:
            list(fan_out.on_cluster(cluster.address)(partial(module.run_chunk, harmful), chunks))
        except BaseException as error:  # noqa: BLE001 - looked at below
            ended.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    try:
        asking.start()
        asking.join(60)
    finally:
        cluster.stop()
    assert ended, "it hangs"
    assert isinstance(ended[0], (AccessError, InputError))
    assert words in str(ended[0])


@needs_joblib
@needs_dask
def test_a_worker_of_another_version_is_refused() -> None:
    from kvbudget.simulation.dask_backend import call_all  # noqa: PLC0415 - it needs Dask

    with pytest.raises(AccessError, match="A worker has kvbudget"):
        call_all("0.0.0", [])


@needs_joblib
@needs_dask
def test_no_scheduler_there() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DASK_DISTRIBUTED__COMM__RETRY__COUNT": "0"}
    code = "from kvbudget.simulation import fan_out, sweep; fan_out.CONNECT_SECONDS = 0.2; sweep.WORTH_SECONDS = 0\n"
    code += f"from kvbudget.cli import main; main({[*LONG, '--scheduler', '127.0.0.1:9']!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 4, done.stderr
    assert "no Dask scheduler answers there" in done.stderr
