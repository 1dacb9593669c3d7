"""The compiled loop decides as the plain one, bit for bit; and is left alone where it would not pay or not fit."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from kvbudget.errors import InputError
from kvbudget.simulation import compiled, fast
from kvbudget.simulation.clock import SECOND, Attended, Clock, StepCount, StepTime
from kvbudget.simulation.settings import SchedulerSettings
from kvbudget.simulation.simulate import result_of, simulate
from kvbudget.simulation.summary import Recorder
from kvbudget.workload.request import Request, Segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvbudget.simulation.results import Result, Step

pytest.importorskip("numba", reason="the extra kvbudget[fast] is not installed")

SMALL = SchedulerSettings(
    num_gpu_blocks=70, block_size=16, max_num_seqs=8, max_num_batched_tokens=64, max_model_len=512
)
WORKLOADS = 300


class ByContext(Clock):
    """A clock with two windows."""

    def __init__(self) -> None:
        super().__init__((Attended(0, 40_000, 7), Attended(64, 90_000, 3), Attended(200, 10_000, 1)))

    def by_tokens(self, tokens: int) -> int:
        return 5 * 10**9 + tokens * 30_000_000

    def by_requests(self, requests: int) -> int:
        return requests * 1_000_001


def drawn(seed: int) -> tuple[list[Request], SchedulerSettings, Clock, bool]:
    """Return a random workload, most of them under pressure."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    size = draw.choice((1, 4, 16, 48))
    longest = draw.choice((64, 200, 512))
    seats = draw.randint(1, 20)
    chosen = SchedulerSettings(
        num_gpu_blocks=-(-longest // size) + 2 + draw.choice((0, 3, 20, 400)),
        block_size=size,
        max_num_seqs=seats,
        max_num_batched_tokens=max(seats, draw.choice((8, 40, 300, 2048))),
        max_model_len=longest,
        enable_prefix_caching=draw.random() < 0.7,
        async_scheduling=draw.random() < 0.7,
        scheduler_reserve_full_isl=draw.random() < 0.7,
        watermark=draw.choice((0.0, 0.0, 0.02)),
    )
    if chosen.max_num_batched_tokens >= longest:
        chosen = chosen._replace(enable_chunked_prefill=draw.random() < 0.7)
    now, requests = 0.0, []
    for _ in range(draw.randint(0, 60)):
        now += draw.expovariate(draw.choice((1, 20, 500)))
        requests.append(Request(now, draw.randint(1, longest), draw.randint(1, longest // 2)))
    clock = draw.choice((StepTime(15, 20), StepTime(0, 3), StepCount(), ByContext()))
    return requests, chosen, clock, draw.random() < 0.3


def outcome(
    way: Callable[..., None], requests: list[Request], chosen: SchedulerSettings, clock: Clock, *, as_served: bool
) -> tuple[Result, list[Step], Result, object]:
    """Return the result with steps and with curves."""
    steps: list[Step] = []
    recorder = Recorder()
    finely, _ = result_of(requests, chosen)
    coarsely, _ = result_of(requests, chosen)
    for result, record in ((finely, steps.append), (coarsely, recorder)):
        in_order = result.chosen([index for index, tokens in enumerate(result.output_tokens) if tokens])
        way(in_order, chosen, clock, record, as_served=as_served)
        result.put([index for index, tokens in enumerate(result.output_tokens) if tokens], in_order)
    return finely, steps, coarsely, recorder.finish(coarsely.ends)


def test_decides_as_the_plain_loop() -> None:
    """Results, steps and curves of random workloads are the same, and some of them are under pressure."""
    preempted = 0
    for seed in range(WORKLOADS):
        requests, chosen, clock, as_served = drawn(seed)
        plain = outcome(fast.run, requests, chosen, clock, as_served=as_served)
        assert outcome(compiled.run, requests, chosen, clock, as_served=as_served) == plain, seed
        assert plain[0] == plain[2]
        preempted += plain[0].total_preemptions
    assert preempted > WORKLOADS


def test_is_chosen_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large workloads that share nothing are compiled, whatever their order; others are not, nor are large steps."""
    seen: list[int] = []

    def run(result: Result, *_: object, **__: object) -> None:
        seen.append(len(result))

    monkeypatch.setattr(compiled, "run", run)
    monkeypatch.setattr(compiled, "LEAST_REQUESTS", 30)
    monkeypatch.setattr(compiled, "LEAST_LOADED", 30)
    clock = StepTime(10, 0)
    many = [Request(1 - index / 40, 20, 5) for index in range(40)]
    simulate(many, SMALL, clock)
    simulate([*many, Request(0, 600, 5)], SMALL, clock)  # one is refused
    assert seen == [40, 40]
    simulate(many[:20], SMALL, clock)
    simulate(many, SMALL._replace(max_num_batched_tokens=1000), clock)  # whose table is more than they are
    simulate(many, SMALL, clock, plainly=True)
    simulate([request._replace(segments=(Segment(1, 16),)) for request in many], SMALL, clock)
    monkeypatch.setattr(compiled, "is_here", lambda: False)
    simulate(many, SMALL, clock)
    assert seen == [40, 40]


def test_is_not_here_where_nothing_can_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling anew in each process would take longer than it saves; a numba that does not load is none."""

    def njit(*_: object, **__: object) -> NoReturn:
        raise RuntimeError("cannot cache function: no locator available")

    assert compiled.is_here()
    monkeypatch.setattr("numba.njit", njit)
    assert not compiled.is_here.__wrapped__()
    monkeypatch.delattr("numba.njit")
    assert not compiled.is_here.__wrapped__()


def test_says_whether_it_had_to_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A function is compiled the first time, and found the second."""

    def again() -> bool:
        compiled.compiled.cache_clear()
        none: Any = 0  # the tables are not looked at
        compiled.compiled()["wake"](StepTime(1, 1).pace._replace(by_tokens=none, by_requests=none), 5)
        return compiled.was_compiled()

    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    compiled.compiled.cache_clear()
    assert not compiled.was_compiled()
    assert (again(), again()) == (True, False)
    monkeypatch.undo()
    compiled.compiled.cache_clear()


def test_times_that_might_not_fit_are_left_to_plain_python() -> None:
    result, _ = result_of([Request(0, 20, 400)] * 2_000, SMALL)
    assert not compiled._in_range(result, SMALL, StepTime(10**6, 0))
    assert compiled._in_range(result, SMALL, StepTime(10**5, 0))


@pytest.mark.parametrize("way", [fast.run, compiled.run])
def test_a_simulation_that_never_seems_to_end_is_refused(way: Callable[..., None]) -> None:
    result, _ = result_of([Request(99 * 86_400, 20, 400)] * 40, SMALL)
    with pytest.raises(InputError, match=r"more than 10\d days of its own time"):
        way(result, SMALL, StepTime(200_000, 0))


def test_the_plain_scheduler_refuses_it_too() -> None:
    with pytest.raises(InputError, match="days of its own time"):
        simulate([Request(0, 20, 400)] * 9, SMALL, StepTime(90_000_000, 0), plainly=True)
    assert SECOND * 86_400 < compiled.ROOM
