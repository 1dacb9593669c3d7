"""What `simulate` answers: spreads, the knee, the limit without preemptions, and the command line."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import kvbudget as kb
from kvbudget.cli import cli
from kvbudget.errors import CannotTell, InputError
from kvbudget.present.simulated import simulated_text
from kvbudget.simulation.answer import Answer, calm_limit, knee_of, simulated, work_of
from kvbudget.simulation.clock import SECOND, Batch, StepTime
from kvbudget.simulation.deployed import scheduler_settings
from kvbudget.simulation.replicas import Fleet, simulated_fleet
from kvbudget.simulation.results import Step
from kvbudget.simulation.search import find_knee, largest_without
from kvbudget.simulation.settings import Group, SchedulerSettings, longest_needs, with_flags
from kvbudget.simulation.simulate import simulate
from kvbudget.simulation.summary import STRETCHES, Recorder, spread
from kvbudget.workload import files, traces
from kvbudget.workload.request import Request
from kvbudget.workload.spec import WorkloadSpec, parse_workload

if TYPE_CHECKING:
    from pathlib import Path

    from kvbudget.simulation.summary import Summary

CLOCK = StepTime(10, 20)
SMALL = SchedulerSettings(num_gpu_blocks=201, max_num_seqs=64, max_num_batched_tokens=512, max_model_len=1024)


def load(count: int = 200, every: float = 0.05) -> list[Request]:
    """Return requests at equal distances whose answers outgrow the pool when they come too fast."""
    return [Request(i * every, 100, 200) for i in range(count)]


# -- spreads


@given(st.dictionaries(st.integers(0, 100), st.integers(0, 50), min_size=1))
def test_a_spread_is_that_of_the_values_written_out(weights: dict[int, int]) -> None:
    values = sorted(value for value, weight in weights.items() for _ in range(weight))
    if not values:
        assert spread(weights) == (0, 0, 0, 0, 0)
        return
    found = spread(weights)
    for percent, mark in ((50, found.p50), (95, found.p95), (99, found.p99)):
        below = sum(value <= mark for value in values)
        assert below * 100 >= percent * len(values)
        assert sum(value < mark for value in values) * 100 < percent * len(values)
    assert found.mean == pytest.approx(sum(values) / len(values))


def step(number: int, begins: float, ends: float, running: int = 1, waiting: int = 0, preempted: int = 0) -> Step:
    return Step(number, int(begins * SECOND), running, waiting, 1, 1, 3, preempted, running, int(ends * SECOND))


def test_every_step_counts_as_long_as_it_lasts() -> None:
    """Three seconds of nothing, one with 5, two with 2, four of nothing."""
    recorder = Recorder()
    recorder(step(0, 3, 4, running=5))
    recorder(step(1, 4, 6, running=2, waiting=7))
    found = recorder.finish(10 * SECOND)
    assert (found.running.p50, found.running.max) == (0, 5)
    assert found.running.mean == pytest.approx((5 + 4) / 10)
    assert found.waiting.mean == pytest.approx(14 / 10)
    assert found.steps_s.mean == pytest.approx((5 * 1 + 2 * 2) / 7)


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=60))
def test_curves_keep_every_peak_and_preemption(rows: list[tuple[int, int, int]]) -> None:
    recorder = Recorder()
    rows = sorted({row[0]: row for row in rows}.values())
    for number, (milliseconds, running, preempted) in enumerate(rows):
        begins = milliseconds / 1000
        recorder(step(number, begins, begins + 0.0005, running=running, preempted=preempted))
    curves = recorder.finish(2 * 10**4 * SECOND).curves
    assert len(curves.stretches) <= 2 * STRETCHES
    assert max(stretch.running for stretch in curves.stretches) == max(row[1] for row in rows)
    assert sum(stretch.preempted for stretch in curves.stretches) == sum(row[2] for row in rows)


@pytest.mark.parametrize("every", [0.05, 0.3])
def test_spans_say_what_their_steps_say(every: float) -> None:
    """Peaks are the same; of what lasts, blocks may be counted up to one round of a block too early."""
    requests = load(120, every)
    spans, steps = Recorder(), Recorder()
    result = simulate(requests, SMALL, CLOCK, spans)
    assert simulate(requests, SMALL, CLOCK, steps.__call__) == result
    by_span, by_step = spans.finish(result.ends), steps.finish(result.ends)
    assert by_span.running == by_step.running
    assert by_span.steps_s == by_step.steps_s
    assert by_span.used_blocks.max == by_step.used_blocks.max == result.peak_used_blocks
    assert by_span.waiting.max == by_step.waiting.max == result.peak_waiting
    assert by_step.used_blocks.mean <= by_span.used_blocks.mean <= by_step.used_blocks.mean + SMALL.max_num_seqs
    assert [each.preempted for each in by_span.curves.stretches] == [
        each.preempted for each in by_step.curves.stretches
    ]


def test_a_summary_of_two_requests_by_hand() -> None:
    """One step computes both prompts, three more a token each; an empty one lets the engine forget them."""
    found = simulated([Request(0, 16, 4), Request(0, 16, 4)], SMALL._replace(async_scheduling=False), CLOCK)
    first, later = 10e-3 + 32 * 20e-6, 10e-3 + 2 * 20e-6
    assert (found.requests, found.completed, found.preemptions, found.steps) == (2, 2, 0, 5)
    assert found.ttft_s.max == pytest.approx(first)
    assert found.itl_s.p50 == found.tpot_s.p50 == pytest.approx(later)
    assert found.simulated_s == pytest.approx(first + 3 * later)
    assert found.generated_tokens == 8
    assert found.kv_used.max == pytest.approx(4 / 200)


@pytest.mark.parametrize(
    ("flags", "version", "since"),
    [({"watermark": 0.1}, (0, 23, 1), "0.24.0"), ({"scheduler_reserve_full_isl": True}, (0, 18, 0), "0.19.0")],
)
def test_a_flag_that_a_version_does_not_have_is_refused(
    flags: dict[str, Any], version: tuple[int, int, int], since: str
) -> None:
    with pytest.raises(InputError, match=f"no flag of vLLM .*: it exists since {since}"):
        with_flags(SMALL, flags, version)
    assert with_flags(SMALL, flags, (0, 32, 0)) == SMALL._replace(**flags)
    assert with_flags(SMALL, {"scheduling_policy": "priority"}, version).policy == "priority"


@pytest.mark.parametrize(("every", "behind"), [(0.001, True), (0.5, False), (0, False)])
def test_a_load_that_is_too_much_is_told_by_who_still_waits_in_the_end(every: float, behind: bool) -> None:
    """Half of 300 requests that come within 0.3 s have not begun by then; those that come at once are a batch."""
    found = simulated([Request(every * i, 100, 20) for i in range(300)], SMALL, CLOCK)
    assert found.falls_behind == behind
    assert (found.backlog > 0) == behind
    assert (found.waiting.max > 0) == (every < 0.5)


@pytest.mark.parametrize(("share", "behind"), [(0.9, False), (1.2, True)])
def test_a_queue_that_chance_brings_is_not_called_too_much(share: float, behind: bool) -> None:
    """One prompt a step, at nine tenths of what can be done: only a few run at a time, and more than those wait."""
    draw = random.Random(0)  # noqa: S311 - a workload, not a secret
    seconds = CLOCK.step(Batch(512, 1, 512, 0)) / SECOND
    backlogs = []
    for _ in range(10):
        arrivals = accumulate(draw.expovariate(share / seconds) for _ in range(1000))
        found = simulated([Request(arrival, 512, 1) for arrival in arrivals], SMALL, CLOCK)
        assert found.falls_behind == behind
        backlogs.append(found.backlog)
    assert max(backlogs) > found.running.max


@pytest.mark.parametrize(("rate", "behind"), [(None, False), ("inf", False), ("1000", True)])
def test_users_who_wait_are_never_too_much(rate: str | None, behind: bool) -> None:
    """However many wait in the end, none comes before another is answered, unless new ones come at a rate."""
    spec = WorkloadSpec(
        rate=rate,
        users=None if rate else "300",
        turns="2" if rate else None,
        think_time="0",
        requests="600",
        prompt_tokens="40",
        output_tokens="9",
    )
    found = simulated(parse_workload(spec).loop(), SMALL, CLOCK)
    assert found.falls_behind == behind
    assert found.waiting.max > 150 > 2 * found.running.max


def test_engines_that_share_a_load_are_not_behind_because_they_are_many() -> None:
    """Each of fifty has a request that came during its last step."""
    requests = [Request(i * 0.0001, 16, 4) for i in range(10_000)]
    found = simulated_fleet(requests, SMALL, CLOCK, Fleet(50))
    assert found.waiting.max == 0
    assert found.backlog > found.running.max
    assert not found.falls_behind


def test_refused_requests_are_neither_answered_nor_lost() -> None:
    found = simulated([Request(0, 2000, 4), Request(0, 16, 4)], SMALL, CLOCK)
    assert (found.requests, found.completed, found.refused) == (2, 1, 1)


# -- searches


@pytest.mark.parametrize("at", [1 / 64, 0.1, 0.9, 1.0, 1.1, 3.0, 60.0])
def test_the_knee_is_found_where_it_is(at: float) -> None:
    class Fake:
        requests = 1000

        def __init__(self, pressed: bool) -> None:
            self.preempted_requests = 500 if pressed else 0
            self.waiting = spread({1 if pressed else 0: 1})
            self.kv_used = spread({0: 1})

    asked: list[float] = []

    def run(load: float) -> Summary:
        asked.append(load)
        return Fake(load >= at)  # type: ignore[return-value]

    knee = find_knee(run)
    assert knee.full is None
    assert knee.preemptions is not None
    assert at <= knee.preemptions < at * 2 ** (1 / 8) * 1.0001
    assert knee.waiting == knee.preemptions
    assert len(asked) == len(set(asked)) <= 24


@given(st.integers(1, 2000), st.integers(0, 2000))
def test_the_largest_limit_is_calm_and_near_the_first_that_is_not(most: int, first: int) -> None:
    found = largest_without(lambda limit: limit > first, most)
    if found is not None:
        assert found <= first or found == most
        assert first >= most or first - found <= max(1, first // 16)
    else:
        assert first == 0 or most == 1


def test_more_load_and_fewer_seats() -> None:
    requests = load()
    summary = simulated(requests, SMALL, CLOCK)
    assert summary.preemptions > 0
    knee = knee_of(requests, SMALL, CLOCK)
    assert knee.preemptions is not None
    assert knee.preemptions < 1
    calm = calm_limit(lambda: requests, SMALL, CLOCK, int(summary.running.max))
    assert calm is not None
    limit, under = calm
    assert under.preemptions == 0
    assert under.running.max <= limit < summary.running.max


# -- from a budget


def deployment(model: str = "llama-3.1-8b", **choices: object) -> kb.Deployment:
    given = {"max_model_len": 8192, **choices}
    return kb.Deployment(model=kb.Model.from_pretrained(model), gpu="H100-SXM-80GB", **given)  # type: ignore[arg-type]


def test_the_scheduler_has_the_pool_and_limits_of_the_budget() -> None:
    b = kb.budget(deployment())
    found = scheduler_settings(b)
    assert found.num_gpu_blocks == b.kv.num_gpu_blocks
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.max_model_len) == (1024, 8192, 8192)
    assert [(group.kind, group.block_size) for group in found.cache_groups] == [("full", 16)]
    assert scheduler_settings(b, num_gpu_blocks=777).num_gpu_blocks == 777


def test_rules_of_versions_reach_the_scheduler() -> None:
    assert scheduler_settings(kb.budget(deployment(engine_version="0.32"))).scheduler_reserve_full_isl
    assert not scheduler_settings(kb.budget(deployment(engine_version="0.18"))).scheduler_reserve_full_isl


def test_an_encoder_is_refused_and_so_is_an_empty_pool() -> None:
    with pytest.raises(CannotTell, match="cross"):
        scheduler_settings(kb.budget(deployment("whisper-large-v3", max_model_len=448)))
    with pytest.raises(CannotTell, match="num-gpu-blocks"):
        scheduler_settings(kb.budget(deployment("llama-3.1-70b")))


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt-oss-20b", "gemma-3-12b", "qwen3-next-80b-a3b"])
@pytest.mark.parametrize("longest", [3000, 40_000])
def test_the_least_pool_is_that_with_which_the_engine_starts(model: str, longest: int) -> None:
    """`fit` counts the same, to the block."""
    large = {"max_model_len": longest, "tensor_parallel_size": 4}
    least = longest_needs(scheduler_settings(kb.budget(deployment(model, **large)))) + 1  # the null block
    for blocks, starts in ((least - 1, False), (least, True)):
        b = kb.budget(deployment(model, num_gpu_blocks_override=blocks, **large))
        assert (b.verdict != "does_not_fit") is starts


# -- the command line

BASE = ["simulate", "llama-3.1-8b", "--gpu", "h100", "--step-time", "10,20", "--max-model-len", "4096"]
RATE = ["--rate", "20", "--requests", "60", "--prompt-tokens", "300", "--output-tokens", "100"]


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, [*BASE, *arguments], standalone_mode=False)
    if code:
        assert isinstance(result.exception, InputError)
        return str(result.exception)
    assert result.exception is None, result.exception
    return result.stdout


def test_json_has_the_fields_that_scripts_rely_on() -> None:
    found = json.loads(run(*RATE, "--json"))
    assert found["schema"] == 1
    assert found["requests"] == found["completed"] == 60
    for name in ("running", "waiting", "kv_used", "ttft_s", "itl_s"):
        assert {"p50", "p95", "max"} <= found[name].keys()
    for name in ("preemptions", "preempted_requests", "recomputed_tokens", "steps", "simulated_s", "knee"):
        assert name in found
    assert found["settings"]["num_gpu_blocks"] > 1000


def test_a_small_pool_preempts_and_says_what_to_do() -> None:
    text = run(*RATE, "--num-gpu-blocks", "300")
    assert text.startswith("PREEMPTS")
    assert "Try --max-num-seqs" in text
    assert "Preemptions start at about" in text
    assert all(len(line) <= 80 for line in text.splitlines())


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert run(*RATE, "--seed", "3", "--json") == run(*RATE, "--seed", "3", "--json")
    assert run(*RATE, "--seed", "3", "--json") != run(*RATE, "--seed", "4", "--json")


@pytest.mark.parametrize(
    ("flags", "field", "value"),
    [
        (("--watermark", "0.05"), "watermark", 0.05),
        (("--scheduling-policy", "priority"), "policy", "priority"),
        (("--long-prefill-token-threshold", "256"), "long_prefill_token_threshold", 256),
        (("--no-scheduler-reserve-full-isl",), "scheduler_reserve_full_isl", False),
        (("--block-size", "32", "--num-gpu-blocks", "400"), "block_size", 32),
    ],
)
def test_flags_reach_the_scheduler(flags: tuple[str, ...], field: str, value: object) -> None:
    assert json.loads(run(*RATE, *flags, "--no-knee", "--json"))["settings"][field] == value


def test_steps_are_written_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    found = json.loads(run(*RATE, "--json", "--no-knee", "--steps", str(path)))
    steps = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(steps) <= found["steps"]
    assert {"running", "waiting", "tokens", "used_blocks", "preempted"} <= steps[0].keys()
    assert max(step["running"] for step in steps) == found["running"]["max"]
    assert steps[0]["t"] < steps[0]["ends"] <= steps[-1]["ends"] <= found["simulated_s"]


def test_steps_far_from_those_measured_are_called_a_guess() -> None:
    begin = ("--rate", "20", "--requests", "9", "--prompt-tokens", "300", "--output-tokens", "9", "--no-knee")
    base = [argument for argument in BASE if argument not in ("--step-time", "10,20")]
    for points, guessed in (("1:6.2,32:8.5,64:11", True), ("1:6.2,64:8.5,8192:200", False)):
        result = CliRunner().invoke(cli, [*base, *begin, "--step-points", points], standalone_mode=False)
        assert result.exception is None, result.exception
        assert ("has 64 tokens" in result.stdout) is guessed


def test_a_page_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert run(*RATE, "--no-knee", "--html", str(path)) == ""
    page = path.read_text()
    assert page.count("<svg") == 4
    assert "http" not in page.replace("http-equiv", "")
    assert "<script" not in page


@pytest.mark.parametrize(
    ("option", "words"),
    [
        (("--policy", "sglang"), "--policy sglang is not it; leave one out"),
        (("--num-gpu-blocks", "9000"), "say --num-gpu-blocks-override"),
    ],
)
def test_a_plan_expects_what_its_own_engine_does(option: tuple[str, str], words: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    result = CliRunner().invoke(cli, [*BASE, *RATE, *option, "--save-plan", str(path)], standalone_mode=False)
    assert words in str(result.exception)
    assert not path.exists()


def test_a_plan_holds_what_is_expected_and_is_simulated_again(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    first = json.loads(run(*RATE, "--no-knee", "--json", "--save-plan", str(path)))
    expected = json.loads(path.read_text())["expectation"]
    assert (expected["preemptions_per_s"], expected["rate_per_s"], expected["engines"]) == (0, 20, 1)
    assert (expected["prompt_tokens"]["p50"], expected["output_tokens"]["p95"]) == (300, 100)
    again = ["simulate", str(path), "--step-time", "10,20", *RATE, "--no-knee", "--json"]
    result = CliRunner().invoke(cli, again, standalone_mode=False)
    assert result.exception is None, result.exception
    assert json.loads(result.stdout)["ttft_s"] == first["ttft_s"]
    result = CliRunner().invoke(cli, [*again, "--max-num-seqs", "3"], standalone_mode=False)
    assert json.loads(result.stdout)["running"]["max"] == 3
    result = CliRunner().invoke(cli, [*again, "--revision", "main"], standalone_mode=False)
    assert "is a plan that holds its own" in str(result.exception)


def test_searches_that_would_take_long_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "was not searched" not in run(*RATE)
    monkeypatch.setattr(sys.modules["kvbudget.cli.simulate"], "SEARCHED", 50)
    text = run(*RATE)
    assert "was not searched" in text
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "Preemptions start" not in text
    assert "was not searched" not in run(*RATE, "--no-knee")
    assert "was not searched" not in run(*RATE, "--knee")


def test_work_counts_what_a_simulation_takes_its_time_for() -> None:
    """Where requests are counted, their beginnings and ends take time, and each block that their answers fill."""
    full, sliding, state = Group("full", 16, 0), Group("sliding", 16, 64), Group("state", 600, 0)
    summary = simulated([Request(0, 100, 200)] * 3, SMALL, CLOCK)
    assert work_of(summary, SMALL) == 3
    assert work_of(summary, SMALL, closed=True) == 3 * 10 + 600 // 16 // 2
    assert work_of(summary, SMALL._replace(groups=(full, sliding))) == 3 * 10 + 2 * (600 // 16) // 2
    assert work_of(summary, SMALL._replace(groups=(state, state))) == 3 * 10 + 2 // 2


def test_an_interval_rises_and_holds_its_figure() -> None:
    """Shorter steps can make a percentile larger: fewer requests share a step."""
    fast, own, slow = (
        simulated([Request(0, 100, 20)] * count, SMALL, StepTime(base, 0)) for count, base in ((3, 9), (3, 12), (3, 8))
    )
    a = Answer(place="", workload="", timing="", rate=None, settings=SMALL, summary=own, bounds=(fast, slow))
    low, high = (f"{each.e2e_s.p95:.2f}" for each in (slow, own))
    assert f"p95 {low}–{high}" in simulated_text(a, 100)


def test_a_workload_that_is_refused_is_not_kept_up_with() -> None:
    text = run("--rate", "5", "--requests", "20", "--prompt-tokens", "40000", "--output-tokens", "9")
    assert text.startswith("REFUSES")
    assert "pressure" not in text


def test_csv_and_markdown() -> None:
    rows = run(*RATE, "--no-knee", "--csv").splitlines()
    assert rows[0] == "from_s,running,waiting,used_blocks,preemptions"
    assert len(rows) > 2
    assert "| running |" in run(*RATE, "--no-knee", "--md")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--rate", "2"), "How long are the requests?"),
        ((*RATE, "--step-time", "fast"), "write BASE_MS,PER_TOKEN_US"),
        ((*RATE, "--step-time", "0,0"), "of which one is a picosecond or more"),
        ((*RATE, "--trace", "nothing.json"), "nothing.json"),
        ((*RATE, "--num-gpu-blocks", "-3"), "--num-gpu-blocks is -3; give 2 or more"),
        ((*RATE, "--json", "--steps", "-"), "both write to standard output"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], words: str) -> None:
    assert words in run(*arguments, code=2)


def test_a_layout_that_is_not_simulated_is_refused_at_once() -> None:
    """Not first for the lack of a clock, and again when one is given."""
    arguments = ["simulate", "llama-3.1-8b", "--gpu", "h100", *RATE, "-pp", "2"]
    for clock in ([], ["--step-time", "10,20"]):
        result = CliRunner().invoke(cli, [*arguments, *clock], standalone_mode=False)
        assert isinstance(result.exception, CannotTell)
        assert "--pipeline-parallel-size 2 is not simulated" in str(result.exception)


LOAD = ["--requests", "60", "--prompt-tokens", "300", "--output-tokens", "100", "--num-gpu-blocks", "300"]


def test_all_at_once_has_no_load_and_valid_json() -> None:
    found = json.loads(run(*LOAD, "--rate", "inf", "--json"), parse_constant=pytest.fail)
    assert (found["rate"], found["knee"]) == (None, None)
    text = run(*LOAD, "--rate", "inf")
    assert "all at once" in text
    assert "Somebody waits" not in text


def test_the_least_load_that_is_tried_is_said_to_be_it() -> None:
    assert "requests a second (0.016 times this load) or less." in " ".join(run(*LOAD, "--rate", "1e9").split())


def test_a_trace_is_read_once_however_many_simulations_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    opened = files.open_trace

    def open_trace(path: Path) -> Any:  # noqa: ANN401
        read.append(path)
        return opened(path)

    monkeypatch.setattr(traces, "open_trace", open_trace)
    rows = [{"arrival": i / 9, "prompt": 800, "output": 300 * (i % 5)} for i in range(300)]
    (tmp_path / "trace.json").write_text(json.dumps(rows))
    text = run("--trace", str(tmp_path / "trace.json"), "--knee", "--requests", "1000")
    assert read == [tmp_path / "trace.json"] * 2  # to tell what it is, and to play it
    said = " ".join(text.split())
    assert "Requests of trace.json: 240, fewer than the 1,000 of --requests." in said
    assert "Rows of trace.json that are left out (nothing asked or generated, failed, warming up): 60." in said
    assert "requests answered" in said


def test_a_trace_without_a_request_is_refused(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("timestamp,prompt,output\n0,5,0\n")
    said = run("--trace", str(tmp_path / "trace.csv"), code=2)
    assert "trace.csv: has no request that generates something (rows left out: 1)" in said


def test_answers_that_the_longest_length_cuts_are_counted() -> None:
    said = " ".join(run(*RATE, "--output-tokens", "4000").split())
    assert "Answers that max_model_len 4,096 cuts short: 60." in said


def test_where_nothing_is_answered_no_times_are_shown_and_the_exit_code_is_1() -> None:
    result = CliRunner().invoke(cli, [*BASE, *RATE, "--prompt-tokens", "200000"])
    assert result.exit_code == 1
    assert result.stdout.startswith("REFUSES")
    assert "time to first token" not in result.stdout
    assert "refused (no prompt, or one of more than 4,095 tokens)" in " ".join(result.stdout.split())


def test_a_length_that_fits_is_named() -> None:
    said = run(*RATE, "--num-gpu-blocks", "100", code=2)
    assert "needs 256 blocks and the pool has 99 to use; give --max-model-len 1584 or less, or more blocks." in said
    assert run(*RATE, "--num-gpu-blocks", "100", "--max-model-len", "1584")


def test_a_launch_command_says_how_to_schedule() -> None:
    launched = "vllm serve llama-3.1-8b --max-model-len 4096 --scheduling-policy priority --watermark 0.1 "
    launched += "--long-prefill-token-threshold 100 --no-scheduler-reserve-full-isl"
    options = [
        "--gpu",
        "l4",
        "--rate",
        "2",
        "--requests",
        "5",
        "--prompt-tokens",
        "9",
        "--output-tokens",
        "9",
        "--json",
    ]
    found = json.loads(
        CliRunner().invoke(cli, ["simulate", *options, "--watermark", "0.2", "--", *launched.split()]).stdout
    )["settings"]
    names = ("policy", "watermark", "long_prefill_token_threshold", "scheduler_reserve_full_isl")
    assert [found[name] for name in names] == ["priority", 0.2, 100, False]


def test_a_reader_of_steps_may_stop_after_the_first() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    many = [*BASE, *RATE, "--requests", "3000", "--no-knee", "--steps", "-"]
    with subprocess.Popen(
        [sys.executable, "-m", "kvbudget", *many], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert json.loads(running.stdout.readline())["step"] == 0
        running.stdout.close()
        assert running.stderr.read() == b""
    assert running.returncode == 0
