"""Requests that decode are counted: the same result and the same steps as when each is visited in each step."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.errors import InputError
from kvbudget.simulation.clock import StepCount, StepTime
from kvbudget.simulation.counting import CountingScheduler
from kvbudget.simulation.settings import Group, SchedulerSettings, longest_needs
from kvbudget.simulation.simulate import simulate, simulate_users
from kvbudget.simulation.summary import Recorder
from kvbudget.workload.request import Request, Segment
from kvbudget.workload.spec import WorkloadSpec, parse_workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.results import Result, Step
    from kvbudget.simulation.scheduler import Scheduled

FULL = Group("full", 16)
CACHES: tuple[tuple[Group, ...], ...] = (
    (FULL,),
    (Group("sliding", 16, 40), FULL),
    (Group("sliding", 16, 100), Group("sliding", 16, 100), Group("sliding", 16, 100), FULL),
    (Group("sliding", 8, 20), FULL),
    (Group("chunked", 16, 64), FULL),
    (Group("sliding", 4, 9),),
    (Group("state", 16), FULL),
    (Group("state", 16, checkpoint_blocks=1), FULL),
    (Group("state", 48), Group("state", 48), Group("state", 48), Group("full", 48)),
    (Group("state", 32, checkpoint_blocks=1), Group("sliding", 32, 70), Group("full", 32)),
    (Group("state", 16),),
    (Group("chunked", 16, 64),),
)
LONGEST = 300
FEW = 10


def workload(draw: random.Random, *, by_priority: bool) -> list[Request]:
    """Return conversations and single requests: prompts that begin alike, end alike, or name earlier answers."""
    requests = []
    now = 0.0
    gap = draw.choice([0.0, 0.003, 0.02, 0.2])
    most_prompt, most_output = draw.choice([20, 90, 200]), draw.choice([3, 40, 100])
    sharing = draw.choice([0.0, 0.0, 0.5, 1.0])
    told: list[list[Segment]] = [[] for _ in range(draw.choice([1, 2, 5]))]
    for number in range(draw.choice([3, 8, 20, 40])):
        now += draw.expovariate(1) * gap
        prompt, output = draw.randint(1, most_prompt), draw.randint(1, most_output)
        priority = draw.randrange(3) if by_priority else 0
        if draw.random() >= sharing:
            requests.append(Request(now, prompt, output, (), None, priority))
            continue
        before = draw.choice(told)
        asked = Segment(draw.choice([number, draw.randrange(3)]), draw.choice([1, 5, 16, 32, 48]))
        if sum(segment.tokens for segment in before) + asked.tokens + output >= LONGEST:
            before.clear()
        before.append(asked)
        spoken = sum(segment.tokens for segment in before)
        answer = 1000 + draw.choice([number, draw.randrange(3)]) if draw.random() < 0.7 else None
        rest = 0 if answer is not None else draw.choice([0, 3, 20])
        requests.append(Request(now, min(spoken + rest, LONGEST - 1), output, tuple(before), answer, priority))
        if answer is not None:
            before.append(Segment(answer, output))
    return requests


def settings_for(draw: random.Random, groups: tuple[Group, ...], *, by_priority: bool) -> SchedulerSettings:
    """Return settings whose pool is too small more often than not."""
    caching = draw.random() < 0.7
    uneven = len({group.block_size for group in groups}) > 1
    if caching and uneven and any(group.kind in ("state", "chunked") for group in groups):
        caching = False
    states = sum(group.kind == "state" for group in groups)
    if not caching:  # then the engine keeps one state of a request
        groups = tuple(group._replace(block_size=LONGEST) if group.kind == "state" else group for group in groups)
    chosen = SchedulerSettings(
        num_gpu_blocks=2,
        max_num_seqs=draw.choice([2, 8, 32]),
        max_num_batched_tokens=draw.choice([32, 64, 300, 1000]),
        max_model_len=LONGEST,
        enable_prefix_caching=caching,
        async_scheduling=draw.random() < 0.6,
        policy="priority" if by_priority else "fcfs",
        scheduler_reserve_full_isl=draw.random() < 0.7,
        watermark=draw.choice([0, 0, 0, 0.05, 0.2]),
        long_prefill_token_threshold=draw.choice([0, 0, 20, 1]),
        groups=groups,
    )
    if chosen.max_num_batched_tokens >= LONGEST and draw.random() < 0.3:
        chosen = chosen._replace(enable_chunked_prefill=False)
    need = longest_needs(chosen)
    return chosen._replace(num_gpu_blocks=need + 1 + 2 * states + draw.choice([0, 1, 3, need // 2, need, 20 * need]))


Told = tuple[str, list["Step"], "Result | None"]
"""Why a simulation was refused if it was, its steps, and its result."""


def told(way: Callable[[Callable[[Step], object]], Result]) -> Told:
    """Return what a way of simulating tells; where states or priorities meet no room, an engine may come to no end."""
    steps: list[Step] = []
    try:
        return "", steps, way(steps.append)
    except InputError as error:
        return str(error), steps, None


@settings(deadline=None, max_examples=300)
@given(
    seed=st.integers(0, 10**9),
    groups=st.sampled_from(CACHES),
    by_priority=st.booleans(),
    timed=st.booleans(),
    as_served=st.booleans(),
)
def test_counting_changes_nothing(
    seed: int, groups: tuple[Group, ...], by_priority: bool, timed: bool, as_served: bool
) -> None:
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    requests = workload(draw, by_priority=by_priority)
    chosen = settings_for(draw, groups, by_priority=by_priority)
    clock: Clock = StepTime(draw.choice([1, 15]), 20) if timed else StepCount()
    plain = told(lambda record: simulate(requests, chosen, clock, record, as_served=as_served, plainly=True))
    assert told(lambda record: simulate(requests, chosen, clock, record, as_served=as_served)) == plain
    assert told(lambda _: simulate(requests, chosen, clock, as_served=as_served))[2] == plain[2]


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**9), groups=st.sampled_from(CACHES))
def test_users_who_wait_get_the_same_answers(seed: int, groups: tuple[Group, ...]) -> None:
    """Answers bring requests while others decode."""
    draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
    chosen = settings_for(draw, groups, by_priority=False)
    spec = WorkloadSpec(
        users=str(draw.choice([1, 3, 12])),
        think_time=str(draw.choice([0, 0.1])),
        turns=str(draw.choice([1, 4])),
        requests="25",
        prompt_tokens="uniform:1:60",
        output_tokens="uniform:1:40",
        seed=seed,
    )
    loop, clock = parse_workload(spec).loop, StepTime(15, 20)
    plain = told(lambda record: simulate_users(loop(), chosen, clock, record, plainly=True))
    assert told(lambda record: simulate_users(loop(), chosen, clock, record)) == plain


@pytest.mark.parametrize("plainly", [False, True])
def test_an_engine_that_comes_to_no_end_is_refused(plainly: bool) -> None:
    """Prompts that are computed token by token take each other's states for ever."""
    draw = random.Random(2219)  # noqa: S311 - a workload, not a secret
    groups = draw.choice(CACHES)
    assert draw.random() < 0.4
    chosen = settings_for(draw, groups, by_priority=True)
    requests = workload(draw, by_priority=True)
    with pytest.raises(InputError, match=r"comes to no end: from 174\.4 s on, 5 running and 14 waiting requests"):
        simulate(requests, chosen, StepTime(15, 20), plainly=plainly)


@pytest.mark.parametrize("groups", [CACHES[1], CACHES[7]], ids=["sliding", "state"])
def test_few_steps_are_gone_through(groups: tuple[Group, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Long answers, of which the plain scheduler sees the beginning and the end alone; the recorder sees all."""
    gone_through: list[Scheduled] = []
    schedule = CountingScheduler.schedule

    def seen(scheduler: CountingScheduler) -> Scheduled:
        gone_through.append(schedule(scheduler))
        return gone_through[-1]

    monkeypatch.setattr(CountingScheduler, "schedule", seen)
    requests = [Request(0, 20, 250)] * 4
    chosen = SchedulerSettings(num_gpu_blocks=500, max_model_len=LONGEST, groups=groups)
    recorder = Recorder()
    result = simulate(requests, chosen, StepTime(15, 20), recorder)
    assert len(gone_through) <= FEW < result.steps // 20
    plain = Recorder()
    assert simulate(requests, chosen, StepTime(15, 20), plain, plainly=True) == result
    assert recorder.finish(result.ends) == plain.finish(result.ends)
