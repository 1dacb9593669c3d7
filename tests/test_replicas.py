"""Several engines behind one router: the same requests, the same engines, whichever way they are simulated."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.cli import cli
from kvbudget.errors import InputError
from kvbudget.simulation.answer import replicas_for, simulated
from kvbudget.simulation.clock import SECOND, StepCount, StepTime
from kvbudget.simulation.replicas import (
    MOST_ENGINES,
    ROUTINGS,
    Fleet,
    _Balancer,
    fewest_replicas,
    simulate_fleet,
    simulated_fleet,
)
from kvbudget.simulation.results import NEVER, Load, Step
from kvbudget.simulation.settings import Group, SchedulerSettings
from kvbudget.simulation.simulate import simulate
from kvbudget.simulation.summary import Recorder
from kvbudget.workload.request import Request, Segment

CLOCK = StepTime(10, 20)
SMALL = SchedulerSettings(num_gpu_blocks=101, max_num_seqs=8, max_num_batched_tokens=256, max_model_len=1024)

fleets = st.builds(Fleet, st.integers(1, 4), st.sampled_from(ROUTINGS), st.integers(1, 3))


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    """Return requests that come in bursts, some with beginnings that others have too, some refused."""
    now, found = 0.0, []
    for _ in range(draw(st.integers(1, 40))):
        now += draw(st.sampled_from([0, 0, 0.01, 0.05, 0.3, 3]))
        begins = draw(st.sampled_from([(), ((1, 64),), ((1, 64), (2, 40)), ((3, 100),)]))
        prompt = draw(st.sampled_from([1, 40, 110, 300, 1100]))
        segments = tuple(Segment(*segment) for segment in begins)
        found.append(Request(now, prompt, draw(st.integers(0, 90)), segments))
    return found


@given(workloads(), fleets, st.booleans(), st.booleans(), st.sampled_from([66, 101]), st.booleans())
@settings(max_examples=60, deadline=None)
def test_jumping_engines_decide_as_plain_ones_do(
    requests: list[Request], fleet: Fleet, ahead: bool, caching: bool, blocks: int, steps: bool
) -> None:
    """What becomes of each request is the same to the picosecond, and so is what each engine did."""
    scheduler = SMALL._replace(async_scheduling=ahead, enable_prefix_caching=caching, num_gpu_blocks=blocks)
    clock = StepCount() if steps else CLOCK
    fast, fast_recorders = simulate_fleet(requests, scheduler, clock, fleet)
    plain, plain_recorders = simulate_fleet(requests, scheduler, clock, fleet, plainly=True)
    assert fast == plain
    ends = fast.ends
    for mine, theirs in zip(fast_recorders, plain_recorders, strict=True):
        by_span, by_step = mine.finish(ends), theirs.finish(ends)
        assert (by_span.running, by_span.used_blocks.max) == (by_step.running, by_step.used_blocks.max)
        assert by_span.waiting.max == by_step.waiting.max


@given(workloads(), fleets)
@settings(max_examples=40, deadline=None)
def test_no_request_is_lost_or_done_twice(requests: list[Request], fleet: Fleet) -> None:
    result, _ = simulate_fleet(requests, SMALL, CLOCK, fleet)
    served = [0 < request.prompt_tokens < SMALL.max_model_len for request in requests]
    assert [time != NEVER for time in result.finished] == served
    assert list(result.arrival) == [round(request.arrival * SECOND) for request in requests]
    computed = sum(
        prompt + output - 1 - cached
        for prompt, output, cached in zip(result.prompt_tokens, result.output_tokens, result.cached_tokens, strict=True)
        if output
    )
    if not result.total_preemptions:
        assert result.scheduled_tokens == computed


@pytest.mark.parametrize("routing", ROUTINGS)
def test_one_replica_is_the_engine_itself(routing: str) -> None:
    requests = [Request(i * 0.05, 100, 200) for i in range(100)]
    fleet = Fleet(1, routing)  # type: ignore[arg-type]
    assert simulated_fleet(requests, SMALL, CLOCK, fleet) == simulated(requests, SMALL, CLOCK)
    assert simulate_fleet(requests, SMALL, CLOCK, fleet)[0] == simulate(requests, SMALL, CLOCK)


def test_models_with_windows_are_routed_too() -> None:
    windows = SMALL._replace(num_gpu_blocks=301, groups=(Group("full", 16), Group("sliding", 16, 64)))
    requests = [Request(i * 0.05, 100, 50) for i in range(30)]
    found = simulated_fleet(requests, windows, CLOCK, Fleet(2, "least-loaded"))
    assert found.completed == 30


# -- routers

LONG, SHORT = 900, 5


def placed(requests: list[Request], fleet: Fleet) -> list[float]:
    """Return how long each request took, in steps of a second; alone it takes as many as its answer has tokens."""
    roomy = SMALL._replace(num_gpu_blocks=1001, max_num_seqs=1, async_scheduling=False)
    result, _ = simulate_fleet(requests, roomy, StepCount(), fleet)
    return [(end - begin) / SECOND for begin, end in zip(result.arrival, result.finished, strict=True)]


def test_the_least_loaded_gets_the_next_one() -> None:
    """With one seat an engine, a request behind a long one waits for it; only round-robin puts one there."""
    requests = [Request(0, 10, LONG), Request(1, 10, SHORT), Request(20, 10, SHORT), Request(40, 10, SHORT)]
    assert placed(requests, Fleet(2, "least-loaded")) == [LONG, SHORT, SHORT, SHORT]
    assert placed(requests, Fleet(2, "round-robin"))[2] > LONG - 20


def test_of_equally_loaded_ones_the_first_gets_it() -> None:
    requests = [Request(0, 10, SHORT), Request(100, 10, LONG), Request(101, 10, SHORT), Request(200, 10, SHORT)]
    assert placed(requests, Fleet(3, "least-loaded")) == [SHORT, LONG, SHORT, SHORT]


def test_requests_of_one_moment_are_spread() -> None:
    assert placed([Request(0, 10, LONG)] * 4, Fleet(4, "least-loaded")) == [LONG] * 4
    assert placed([Request(0, 10, LONG)] * 4, Fleet(1, "round-robin", 4)) == [LONG] * 4


def test_a_beginning_goes_where_it_was_seen_last() -> None:
    """Two system prompts on two replicas: each is computed once, though it is on the busier one."""
    a, b = (Segment(1, 320),), (Segment(2, 320),)
    requests = [Request(i, 330, 5, (a, b)[i % 3 == 0]) for i in range(30)]
    hits = {routing: simulated_fleet(requests, SMALL, CLOCK, Fleet(2, routing)).prefix_hit_rate for routing in ROUTINGS}
    assert hits["prefix-aware"] == pytest.approx(28 * 320 / (30 * 330))
    assert hits["round-robin"] == pytest.approx(26 * 320 / (30 * 330))


def test_the_longest_beginning_decides() -> None:
    """A conversation stays where it is, though its system prompt was seen elsewhere since."""
    system, one, two = Segment(1, 160), Segment(2, 160), Segment(3, 160)
    requests = [
        Request(0, 330, 300, (system, one)),
        Request(0.1, 330, 2, (Segment(9, 160), two)),
        Request(8, 330, 2, (system, one)),
    ]
    result, _ = simulate_fleet(requests, SMALL, CLOCK, Fleet(2, "prefix-aware"))
    assert list(result.cached_tokens) == [0, 0, 320]


@pytest.mark.parametrize(
    ("loads", "chosen"),
    [
        ([(0, 0, 0), (0, 0, 0), (0, 0, 0)], [0, 1, 2, 0]),
        ([(5, 0, 0), (4, 0, 0), (4, 0, 0)], [1, 1, 2, 1]),
        ([(4, 2, 50), (7, 0, 100), (8, 0, 0)], [0, 0, 0]),
        ([(4, 2, 80), (7, 0, 100), (8, 0, 0)], [1, 1, 1]),
    ],
    ids=["in turn", "the least", "waiting below half of the cache", "waiting at a full one: 6 + 2 * 6 * 0.3"],
)
def test_the_balancer_scores_as_vllm_does(loads: list[tuple[int, int, int]], chosen: list[int]) -> None:
    balancer = _Balancer()
    assert [balancer.choose([Load(*load) for load in loads], 100) for _ in chosen] == chosen


# -- how many


@given(st.integers(1, 300), st.integers(1, 300))
def test_the_fewest_replicas_are_found(enough: int, most: int) -> None:
    asked: list[int] = []

    def holds(replicas: int) -> bool:
        asked.append(replicas)
        return replicas >= enough

    assert fewest_replicas(holds, most) == (enough if enough <= most else None)
    assert len(asked) == len(set(asked)) <= 20
    assert max(asked) <= most


def test_replicas_for_a_target_are_the_fewest() -> None:
    requests = [Request(i * 0.02, 100, 200) for i in range(200)]
    for target in (None, 0.2):
        fleet, found = replicas_for(requests, SMALL, CLOCK, Fleet(routing="least-loaded"), target)
        fewer = simulated_fleet(requests, SMALL, CLOCK, fleet._replace(replicas=fleet.replicas - 1))
        assert found == simulated_fleet(requests, SMALL, CLOCK, fleet)
        if target is None:
            assert found.preemptions == 0 < fewer.preemptions
        else:
            assert found.ttft_s.p95 <= target < fewer.ttft_s.p95


def test_a_target_that_no_number_reaches_is_refused() -> None:
    requests = [Request(i * 0.02, 100, 20) for i in range(20)]
    with pytest.raises(InputError, match=r"Even with 20 replicas the first token takes 0\.012 s"):
        replicas_for(requests, SMALL, CLOCK, Fleet(), 0.001)


# -- recorders of several engines


def test_shares_of_time_are_over_all_engines() -> None:
    """One engine runs 4 requests for ten seconds, another none for five and 2 for five."""
    first, second = Recorder(), Recorder()
    first(Step(0, 0, 4, 1, 1, 1, 9, 0, 1, 10 * SECOND))
    second(Step(0, 5 * SECOND, 2, 0, 1, 1, 3, 1, 1, 10 * SECOND))
    found = first.finish_with([second, Recorder()], 10 * SECOND)
    assert found.running.mean == pytest.approx((4 * 10 + 2 * 5) / 30)
    assert found.used_blocks.max == 9
    assert sum(stretch.preempted for stretch in found.curves.stretches) == 1
    assert max(stretch.running for stretch in found.curves.stretches) == 4


# -- the command line

BASE = ["simulate", "llama-3.1-8b", "--gpu", "l4", "--step-time", "10,20", "--max-model-len", "4096"]
LOAD = ["--rate", "20", "--requests", "150", "--prompt-tokens", "1200", "--output-tokens", "200"]


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, [*BASE, *LOAD, *arguments], standalone_mode=False)
    if code:
        assert isinstance(result.exception, InputError), result.exception
        return str(result.exception)
    assert result.exception is None, result.exception
    return result.stdout


def test_json_says_how_many_and_how() -> None:
    one = json.loads(run("--json", "--no-knee"))
    assert (one["replicas"], one["routing"], one["data_parallel_size"]) == (1, "round-robin", 1)
    found = json.loads(run("--json", "--no-knee", "--replicas", "2", "--routing", "least-loaded"))
    assert (found["replicas"], found["routing"], found["requests"]) == (2, "least-loaded", 150)
    assert found["ttft_s"]["p95"] < one["ttft_s"]["p95"]
    counted = json.loads(run("--json", "--no-knee", "--replicas", "auto", "--target-ttft", "0.5"))
    assert counted["replicas"] > 1
    assert counted["ttft_s"]["p95"] <= counted["target_ttft_s"] == 0.5


def test_text_says_whose_numbers_they_are() -> None:
    text = run("--replicas", "2", "--data-parallel-size", "2", "--routing", "prefix-aware")
    assert "2 replicas of 2 engines each (prefix-aware) of L4" in text
    assert "are those of one engine" in text
    assert "2 data parallel engines of L4" in run("--data-parallel-size", "2", "--no-knee")


def test_engines_that_wait_for_each_other_are_not_simulated_and_that_is_said() -> None:
    arguments = ["simulate", "gpt-oss-20b", "--gpu", "h100", *BASE[4:], *LOAD, "-dp", "2", "--no-knee"]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    assert "wait for each other" in " ".join(result.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--replicas", "0"), "give a whole number of 1 or more, or auto"),
        (("--replicas", "1.5"), "give a whole number of 1 or more, or auto"),
        (("--replicas", "many"), "expected a number"),
        (("--replicas", str(MOST_ENGINES + 1)), "are more than 4,096"),
        (("--replicas", "2", "--routing", "random"), "give one of round-robin, least-loaded, prefix-aware"),
        (("--routing", "least-loaded"), "give --replicas too"),
        (("--target-ttft", "0.5"), "--replicas auto"),
        (("--replicas", "auto", "--target-ttft", "0"), "give seconds"),
        (("--replicas", "2", "--steps", "-"), "are of one engine"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], words: str) -> None:
    assert words in run(*arguments, "--no-knee", code=2)
