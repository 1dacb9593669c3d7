"""Generated workloads: rates, lengths, shared beginnings, users; the same seed gives the same requests."""

from __future__ import annotations

import heapq
import json
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from math import exp, inf
from random import Random
from statistics import fmean, median, quantiles, stdev
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.errors import InputError
from kvbudget.workload.arrivals import arrivals
from kvbudget.workload.lengths import Bootstrap, Constant, Histogram, Independent, Lognormal, Pair, Uniform, Values
from kvbudget.workload.request import Request, Segment
from kvbudget.workload.spec import Workload, WorkloadSpec, parse_lengths, parse_prefix, parse_workload

if TYPE_CHECKING:
    from pathlib import Path

BASIC = WorkloadSpec(rate="10", requests="2000", prompt_tokens="100", output_tokens="10")


def rng(seed: int = 1) -> Random:
    return Random(seed)  # noqa: S311 - no secrets here


@pytest.mark.parametrize(("burstiness", "cv"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5), (inf, 0.0)])
def test_arrivals_have_their_rate_and_burstiness(burstiness: float, cv: float) -> None:
    times = list(islice(arrivals(20.0, burstiness, rng()), 20_000))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert min(gaps) >= 0
    assert fmean(gaps) == pytest.approx(1 / 20, rel=0.05)
    assert stdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.05, abs=1e-6)


def test_an_infinite_rate_sends_all_at_once() -> None:
    assert list(islice(arrivals(inf, 1.0, rng()), 5)) == [0.0] * 5


def test_lengths_have_the_distribution_they_name() -> None:
    assert {Constant(7).draw(rng()) for _ in range(3)} == {7}
    source = rng()
    uniform = [Uniform(3, 6).draw(source) for _ in range(4000)]
    assert sorted(set(uniform)) == [3, 4, 5, 6]
    assert fmean(uniform) == pytest.approx(4.5, abs=0.1)
    drawn = [Lognormal(1000, 4000).draw(source) for _ in range(20_000)]
    assert median(drawn) == pytest.approx(1000, rel=0.05)
    assert quantiles(drawn, n=20)[-1] == pytest.approx(4000, rel=0.08)
    assert max(Lognormal(1000, 4000, 1500).draw(source) for _ in range(1000)) == 1500
    assert {Lognormal(1, 1 << 30).draw(source) >= 1 for _ in range(1000)} == {True}
    counted = [Histogram.of([(10, 0), (20, 1), (40, 3)]).draw(source) for _ in range(8000)]
    assert (min(counted), max(counted)) == (11, 40)
    assert sum(length <= 20 for length in counted) / 8000 == pytest.approx(0.25, abs=0.03)
    twice = Histogram.of([(10, 1), (10, 1), (12, 2)])
    assert twice == Histogram((10, 12), (0.5, 1.0))
    assert Histogram.of([(10, 1)], 10).draw(source) == 10
    assert {Values.of([(5, 1), (9, 0), (7, 2)]).draw(source) for _ in range(200)} == {5, 7}
    pairs = Bootstrap([Pair(1, 2), Pair(3, 4)])
    assert {pairs.draw(source) for _ in range(100)} == {(1, 2), (3, 4)}
    assert Independent(Constant(1), Constant(2)).draw(source) == (1, 2)


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=8, unique_by=lambda row: row[0]
    ).filter(lambda rows: any(weight for _, weight in rows)),
    st.integers(0, 99),
)
@settings(max_examples=200)
def test_a_histogram_draws_only_what_its_buckets_hold(rows: list[tuple[int, int]], seed: int) -> None:
    rows.sort()
    below, held = 0, set()
    for edge, weight in rows:
        held |= set(range(below + 1, edge + 1)) if weight else set()
        below = edge
    histogram, source = Histogram.of(rows), rng(seed)
    assert {histogram.draw(source) for _ in range(50)} <= held


SPECS = [
    (BASIC, "2,000 requests, 10 a second (Poisson), 100 tokens in, 10 out"),
    (replace(BASIC, rate="inf"), "2,000 requests, all at once, 100 tokens in, 10 out"),
    (replace(BASIC, burstiness="inf"), "2,000 requests, 10 a second (evenly), 100 tokens in, 10 out"),
    (
        replace(
            BASIC, requests=None, burstiness="0.5", prompt_tokens="lognormal:1024:4096", output_tokens="uniform:1:9"
        ),
        "10,000 requests, 10 a second (burstiness 0.5), 1,024 (p95 4,096) tokens in, 1 to 9 out",
    ),
    (
        replace(BASIC, prefix="0.8:4:2k"),
        "2,000 requests, 10 a second (Poisson), 100 tokens in, 10 out, 80% with one of 4 prefixes of 2,000 tokens",
    ),
    (
        replace(BASIC, rate=None, users="64", think_time="5"),
        "2,000 requests of 64 users who think on average 5 s, 100 tokens in, 10 out",
    ),
    (
        replace(BASIC, rate=None, users="64", think_time="constant:0.5", turns="uniform:1:5"),
        "2,000 requests in conversations of 1 to 5 turns of 64 users who think 0.5 s, 100 tokens in, 10 out",
    ),
    (
        replace(BASIC, turns="3"),
        "2,000 requests in conversations of 3 turns of users 10 a second (Poisson), 100 tokens in, 10 out",
    ),
]


def play(workload: Workload, service: float = 1.0) -> list[Request]:
    """Return the requests of a workload, served `service` seconds after each arrived."""
    if not workload.closed:
        return list(workload.stream())
    loop = workload.loop()
    queue = [(request.arrival, user, request) for user, request in enumerate(loop.first())]
    heapq.heapify(queue)
    served = []
    while queue:
        now, user, request = heapq.heappop(queue)
        served.append(request)
        if following := loop.next(user, now + service):
            assert following.arrival >= now + service
            heapq.heappush(queue, (following.arrival, user, following))
    return served


@pytest.mark.parametrize(("spec", "description"), SPECS, ids=[str(number) for number in range(len(SPECS))])
def test_a_workload_says_what_it_is_and_repeats_itself(spec: WorkloadSpec, description: str) -> None:
    workload = parse_workload(spec)
    assert workload.description == description
    got = play(workload)
    assert len(got) == int(spec.requests or 10_000)
    assert [request.arrival for request in got] == sorted(request.arrival for request in got)
    assert play(workload) == got == play(parse_workload(spec))
    if spec.rate != "inf" and spec.burstiness != "inf" and spec.think_time != "constant:0.5":
        assert play(parse_workload(replace(spec, seed=1))) != got
    if workload.rate and workload.rate < inf:
        assert len(got) / got[-1].arrival == pytest.approx(workload.rate, rel=0.1)


def test_prefixes_are_shared_by_their_part() -> None:
    got = play(parse_workload(replace(BASIC, prefix="0.75:4:2000")))
    shared = [request for request in got if request.segments]
    assert len(shared) / len(got) == pytest.approx(0.75, abs=0.05)
    assert {request.segments for request in shared} == {(Segment(number, 2000),) for number in range(4)}
    assert {request.prompt_tokens for request in shared} == {2100}
    assert {request.prompt_tokens for request in got if not request.segments} == {100}


def test_users_wait_for_their_answers() -> None:
    workload = parse_workload(replace(BASIC, rate=None, requests="30", users="4", think_time="constant:2"))
    loop = workload.loop()
    assert [request.arrival for request in loop.first()] == [0.5, 1.0, 1.5, 2.0]
    following = loop.next(2, 7.5)
    assert following is not None
    assert following.arrival == 9.5
    got = play(workload, service=3.0)
    assert [request.arrival for request in got[::4]] == [0.5 + 5 * turn for turn in range(8)]


@given(
    turns=st.integers(1, 6), users=st.integers(1, 5), requests=st.integers(1, 60), seed=st.integers(0, 9),
    prefix=st.sampled_from([None, "0.5:2:100"]), rate=st.sampled_from([None, "5"]),
)  # fmt: skip
@settings(max_examples=100)
def test_a_conversation_holds_all_that_was_said(
    turns: int, users: int, requests: int, seed: int, prefix: str | None, rate: str | None
) -> None:
    spec = WorkloadSpec(
        rate=rate, users=None if rate else str(users), requests=str(requests), turns=str(turns), seed=seed,
        prefix=prefix, prompt_tokens="uniform:1:50", output_tokens="uniform:1:50", think_time="1",
    )  # fmt: skip
    got = play(parse_workload(spec))
    assert len(got) == requests
    answers: dict[int, tuple[Request, int]] = {}
    for request in got:
        assert sum(segment.tokens for segment in request.segments) <= request.prompt_tokens
        asked = [segment for segment in request.segments if segment.id in answers]
        turn = len(asked) + 1
        assert turn <= turns
        if asked:
            last, last_turn = answers[asked[-1].id]
            assert last_turn == turn - 1
            assert request.segments[: len(last.segments)] == last.segments
            assert request.segments[len(last.segments)] == Segment(last.output_segment or 0, last.output_tokens)
            assert request.prompt_tokens > last.prompt_tokens + last.output_tokens
        assert (request.output_segment is None) == (turn == turns)
        if request.output_segment is not None:
            assert request.output_segment not in answers
            answers[request.output_segment] = (request, turn)


def test_traces_are_played_rescaled_and_drawn_from(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    rows = [(2 * n, 10 + n, 1 + n) for n in range(5)]
    path.write_text(json.dumps(rows))
    base = WorkloadSpec(trace=str(path))
    assert play(parse_workload(base)) == [Request(*row) for row in rows]
    assert [r.arrival for r in play(parse_workload(replace(base, time_scale="2")))] == [0, 1, 2, 3, 4]
    assert len(play(parse_workload(replace(base, requests="3")))) == 3
    anew = parse_workload(replace(base, rate="100"))
    assert [r.prompt_tokens for r in play(anew)] == [10, 11, 12, 13, 14]
    assert play(anew)[-1].arrival < 2
    drawn = play(parse_workload(replace(base, rate="100", bootstrap=True, requests="500", prefix="1:1:5")))
    assert {(r.prompt_tokens - 5, r.output_tokens) for r in drawn} == {(10 + n, 1 + n) for n in range(5)}
    users = play(parse_workload(replace(base, users="2", requests="50")))
    assert {r.prompt_tokens - r.output_tokens for r in users} == {9}


WRONG = [
    (WorkloadSpec(), "Give --prompt-tokens and --output-tokens, or a --trace"),
    (WorkloadSpec(prompt_tokens="1", output_tokens="1"), "Give --rate, --users, or a --trace with times"),
    (replace(BASIC, rate="0"), "--rate '0' is no number above 0"),
    (replace(BASIC, rate="fast"), "--rate 'fast' is no number"),
    (replace(BASIC, rate="nan"), "--rate 'nan' is no number"),
    (replace(BASIC, rate="1e-300"), "--rate '1e-300' is no number"),
    (replace(BASIC, burstiness="-1"), "--burstiness '-1' is no number above 0"),
    (replace(BASIC, burstiness="1e-6"), "--burstiness 1e-06 is below 0.001"),
    (replace(BASIC, requests="many"), "--requests 'many' is not understood"),
    (replace(BASIC, requests="0"), "--requests '0' must be a positive whole number"),
    (replace(BASIC, requests="11g"), "--requests 11g is more than 10,000,000,000"),
    (replace(BASIC, prompt_tokens="lognormal:5"), "--prompt-tokens 'lognormal:5' is not understood"),
    (replace(BASIC, prompt_tokens="lognormal:500:100"), "the second number is smaller than the first"),
    (replace(BASIC, prompt_tokens="normal:5:6"), "write 1024, uniform:16:4096 or lognormal:1024:4096"),
    (replace(BASIC, output_tokens="2g"), "--output-tokens 2g is more than 1,073,741,824 tokens"),
    (replace(BASIC, output_tokens=""), "--output-tokens '' is not understood"),
    (replace(BASIC, prefix="80:4:2000"), "the share 80 is not between 0 and 1; write 0.8 for 80 %"),
    (replace(BASIC, prefix="0.8:4"), "--prefix '0.8:4' is not understood; write SHARE:COUNT:TOKENS"),
    (replace(BASIC, prefix="0.8:x:1"), "--prefix '0.8:x:1' is not understood"),
    (replace(BASIC, users="3"), "--users and --rate"),
    (replace(BASIC, rate=None, users="3", think_time="soon:1"), "--think-time 'soon:1' is not understood"),
    (replace(BASIC, rate=None, users="3", think_time="-1"), "--think-time '-1' is no number from 0 on"),
    (replace(BASIC, rate=None, users="20m"), "--users 20m is more than 16,777,216"),
    (replace(BASIC, turns="uniform:1:1001"), "--turns uniform:1:1001 is more than 1,000"),
    (replace(BASIC, think_time="1"), "--think-time is between a user's requests"),
    (replace(BASIC, rate=None, burstiness="2"), "--burstiness shapes arrivals at a rate"),
    (replace(BASIC, time_scale="2"), "--time-scale plays a trace's own arrivals"),
    (replace(BASIC, trace_format="csv"), "--trace-format says what --trace is"),
    (replace(BASIC, bootstrap=True), "--bootstrap draws from --trace"),
]


@pytest.mark.parametrize(("spec", "message"), WRONG, ids=[message[:30] for _, message in WRONG])
def test_what_contradicts_itself_is_refused(spec: WorkloadSpec, message: str) -> None:
    with pytest.raises(InputError) as caught:
        play(parse_workload(spec))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_does_not_go_with_a_trace_is_refused(tmp_path: Path) -> None:
    timed, lengths, nothing = (tmp_path / name for name in ("timed", "lengths", "nothing"))
    timed.write_text("[[0, 1, 1]]")
    lengths.write_text("prompt,output\n1,1\n")
    nothing.write_text("[]")
    wrong = [
        (WorkloadSpec(trace=str(timed), prompt_tokens="1"), "the lengths come from --trace"),
        (WorkloadSpec(trace=str(timed), prefix="1:1:1"), "need arrivals of their own"),
        (WorkloadSpec(trace=str(timed), rate="1", prefix="1:1:1"), "add --bootstrap"),
        (WorkloadSpec(trace=str(timed), rate="1", time_scale="2"), "--time-scale plays"),
        (WorkloadSpec(trace=str(lengths)), "Give --rate, --users, or a --trace with times"),
        (WorkloadSpec(trace=str(lengths), time_scale="2"), "--time-scale plays"),
        (WorkloadSpec(trace=str(nothing), users="1"), "has no requests to draw lengths from"),
        (WorkloadSpec(trace=str(tmp_path / "absent"), rate="1"), "no such file"),
    ]
    for spec, message in wrong:
        with pytest.raises(InputError) as caught:
            play(parse_workload(spec))
        assert message in str(caught.value)


def test_a_closed_loop_and_a_stream_are_not_mixed_up() -> None:
    with pytest.raises(InputError, match="use its loop"):
        parse_workload(replace(BASIC, rate=None, users="1")).stream()
    with pytest.raises(InputError, match="use its stream"):
        parse_workload(BASIC).loop()


@given(st.text(alphabet="0123456789.:kKe-x ", max_size=20))
@settings(max_examples=300)
def test_no_text_does_more_than_be_refused(text: str) -> None:
    for parse in (lambda: parse_lengths(text, "--turns"), lambda: parse_prefix(text)):
        with suppress(InputError):
            parse()
    with suppress(InputError):
        assert len(list(parse_workload(replace(BASIC, rate=text, burstiness=text, requests="5")).stream())) == 5


@pytest.mark.parametrize("seed", [1.0, float("nan"), "1", True])
def test_a_seed_is_a_whole_number(seed: object) -> None:
    spec = WorkloadSpec(rate="1", prompt_tokens="9", output_tokens="9", seed=seed)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"--seed is .*; give a whole number"):
        parse_workload(spec)


def test_users_begin_by_thinking_so_that_they_do_not_come_in_a_herd() -> None:
    spec = replace(BASIC, rate=None, requests="5000", users="2000", think_time="10")
    came = [request.arrival for request in parse_workload(spec).loop().first()]
    assert came == sorted(came) == [request.arrival for request in parse_workload(spec).loop().first()]
    assert len(came) == 2000
    assert sum(came) / 2000 == pytest.approx(10, rel=0.1)
    assert sum(at < 10 for at in came) / 2000 == pytest.approx(1 - exp(-1), abs=0.05)
    at_once = parse_workload(replace(spec, think_time=None)).loop().first()
    assert {request.arrival for request in at_once} == {0.0}
