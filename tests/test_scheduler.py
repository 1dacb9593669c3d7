"""The simulated scheduler: against vLLM's own step by step, by its invariants, its fast way against its plain one."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.deployment import Deployment
from kvbudget.engines.vllm import settings as engine_settings
from kvbudget.engines.vllm_cache import CacheSettings, plan_cache
from kvbudget.errors import CannotTell, InputError
from kvbudget.hub import load_model
from kvbudget.simulation.clock import SECOND, Attended, Batch, Clock, StepCount, StepTime, steps_until
from kvbudget.simulation.fast import FOREVER
from kvbudget.simulation.groups import table_of
from kvbudget.simulation.pool import BLANK, GONE, OWN, BlockPool
from kvbudget.simulation.results import NEVER, Result, Step
from kvbudget.simulation.scheduler import Scheduled, Scheduler
from kvbudget.simulation.settings import Group, SchedulerSettings, check, longest_needs, resolved
from kvbudget.simulation.simulate import simulate
from kvbudget.workload.request import Request, Segment

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from kvbudget.simulation.pool import Block
    from kvbudget.simulation.sequence import Sequence

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("KVBUDGET_SHARED", ROOT.parent / "shared"))
VLLM_PYTHON = os.environ.get("KVBUDGET_VLLM_PYTHON")
ORACLE = SHARED / "data" / "vllm_oracle"
TRACES = SHARED / "data" / "traces"
TOOL = Path(os.environ.get("KVBUDGET_VLLM_TOOLS", SHARED / "tools" / "vllm_oracle")) / "oracle_sched.py"
LIVE_CASES = 50

needs_shared = pytest.mark.skipif(not ORACLE.exists(), reason="vLLM's recorded runs are not here (KVBUDGET_SHARED)")


Case = Any
"""A case of `bench/vllm_scheduler.py`."""


@cache
def bench() -> ModuleType:
    """Return the comparison that `bench/vllm_scheduler.py` makes."""
    spec = importlib.util.spec_from_file_location("vllm_scheduler", ROOT / "bench" / "vllm_scheduler.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def recorded() -> list[Case]:
    return [
        bench().from_json(case) for case in json.loads((ROOT / "tests" / "recorded" / "scheduler.json").read_text())
    ]


# -- against vLLM


@pytest.mark.parametrize("plainly", [True, False], ids=["plain", "fast"])
@pytest.mark.parametrize("case", recorded(), ids=lambda case: str(case.name))
def test_decides_as_vllm_did(case: Case, plainly: bool) -> None:
    """Every step of the recorded runs has the same requests, tokens, blocks and preemptions."""
    steps, totals = bench().simulated(case, plainly=plainly)
    assert steps == case.steps
    assert totals == case.totals


def test_the_recorded_runs_are_worth_their_place() -> None:
    """Between them they preempt, find prefixes, go by priority, and have each kind of cache."""
    cases = recorded()
    assert sum(case.totals["preemptions"] > 0 for case in cases) > 5
    assert sum(case.totals["prefix_hits"] > 0 for case in cases) > 5
    assert {case.settings.policy for case in cases} == {"fcfs", "priority"}
    assert {case.settings.async_scheduling for case in cases} == {True, False}
    kinds = {group.kind for case in cases for group in case.settings.cache_groups}
    assert kinds == {"full", "sliding", "chunked", "state"}


@needs_shared
@pytest.mark.parametrize(
    "name",
    [
        *("poisson_tight", "poisson_tight_nopc", "poisson_tight_sync", "poisson_tight_wm", "poisson_tight_noisl"),
        *("poisson_loose", "prefix", "prefix_nopc", "gptoss_hybrid", "qwen3next_hybrid"),
    ],
)
def test_a_long_run_has_vllms_totals(name: str) -> None:
    """Two thousand requests: the same number of steps, preemptions, tokens computed again and found."""
    told = json.loads((ORACLE / f"bench_{name}.json").read_text())
    rows = json.loads((TRACES / f"trace_{'prefix' if name.startswith('prefix') else 'poisson20'}.json").read_text())
    requests = [
        Request(
            row["arrival"],
            row["prompt"],
            row["output"],
            (Segment(row["prefix_id"] + 1, row["prefix_len"]),) if "prefix_len" in row else (),
        )
        for row in rows[: told["requests"]]
    ]
    result = simulate(requests, settings_told(told), StepTime(15, 20))
    assert result.steps == told["steps"]
    assert result.empty_steps == told["empty_steps"]
    assert sum(times > 0 for times in result.preemptions) == told["requests_preempted"]
    assert round(result.ends / SECOND, 4) == told["sim_time_s"]
    for theirs, ours in bench().TOTALS.items():
        assert getattr(result, ours) == told[theirs], theirs


def settings_told(told: dict[str, Any], max_model_len: int = 8192) -> SchedulerSettings:
    return SchedulerSettings(
        told["num_gpu_blocks"],
        told["block_size"],
        told["max_num_seqs"],
        told["max_num_batched_tokens"],
        max_model_len,
        enable_prefix_caching=told["prefix_caching"],
        async_scheduling=told["batches_in_flight"] == 2,
        scheduler_reserve_full_isl=told["reserve_full_isl"],
        watermark=told["watermark"],
        groups=groups_told(told),
    )


def groups_told(told: dict[str, Any]) -> tuple[Group, ...]:
    """Return the groups of a run; the only window in them is gpt-oss's."""
    specs = [(bench().KINDS[spec], size) for spec, size, _ in told.get("groups", ())]
    return tuple(Group(kind, size, 128 if kind == "sliding" else 0) for kind, size in specs)


@needs_shared
@pytest.mark.parametrize("plainly", [True, False], ids=["plain", "fast"])
@pytest.mark.parametrize(("name", "prompt", "output"), [("sync", 64, 192), ("sync_pc", 100, 150)])
def test_decides_as_a_real_engine_did(name: str, prompt: int, output: int, plainly: bool) -> None:
    """The steps of vLLM's CPU engine with a tiny model, logged while it generated."""
    told = json.loads((ORACLE / f"sched_{name}.json").read_text())
    trace = json.loads((ORACLE / f"steps_real_{name}.json").read_text())["trace"]
    steps: list[Step] = []
    requests = [Request(0, prompt, output)] * told["requests"]
    simulate(requests, settings_told(told, 1024), StepCount(), steps.append, plainly=plainly)
    columns = ("running", "waiting", "tokens", "sched_reqs", "used_blocks", "preempted")
    assert [step[2:8] for step in steps if step.tokens] == [tuple(row[name] for name in columns) for row in trace]


@needs_shared
@pytest.mark.parametrize(("name", "prompt", "output"), [("async", 64, 192), ("async_pc", 100, 150)])
def test_has_the_totals_of_the_engine_that_schedules_ahead(name: str, prompt: int, output: int) -> None:
    told = json.loads((ORACLE / f"sched_{name}.json").read_text())
    requests = [Request(0, prompt, output)] * told["requests"]
    result = simulate(requests, settings_told(told, 1024), StepCount())
    assert (result.steps, result.empty_steps) == (told["steps"], told["empty_steps"])
    for theirs, ours in bench().TOTALS.items():
        assert getattr(result, ours) == told[theirs], theirs


@pytest.mark.skipif(not VLLM_PYTHON, reason="KVBUDGET_VLLM_PYTHON names no python that has vLLM")
@pytest.mark.skipif(not TOOL.exists(), reason="the oracle is not here (KVBUDGET_SHARED or KVBUDGET_VLLM_TOOLS)")
def test_decides_as_the_vllm_that_is_here(tmp_path: Path) -> None:
    """Fifty random workloads through the installed engine's own scheduler."""
    cases = bench().answered(VLLM_PYTHON, TOOL, range(LIVE_CASES), tmp_path)
    assert len(cases) == LIVE_CASES
    assert [case.name for case in cases if bench().simulated(case) != (case.steps, case.totals)] == []


# -- the fast way


def both(
    requests: list[Request], chosen: SchedulerSettings, clock: Clock, *, as_served: bool
) -> tuple[tuple[Result, list[Step]], tuple[Result, list[Step]], Result]:
    """Return the plain result and steps, the fast ones, and the fast result without steps."""
    plain: list[Step] = []
    fast: list[Step] = []
    return (
        (simulate(requests, chosen, clock, plain.append, as_served=as_served, plainly=True), plain),
        (simulate(requests, chosen, clock, fast.append, as_served=as_served), fast),
        simulate(requests, chosen, clock, as_served=as_served),
    )


class ByContext(Clock):
    """A clock that looks at the context, as a real one does: layers that see all of it, and others with windows."""

    def __init__(self) -> None:
        super().__init__((Attended(0, 40_000, 7), Attended(64, 90_000, 3), Attended(200, 10_000, 1)))

    def by_tokens(self, tokens: int) -> int:
        """Return a constant, and the longer of reading and computing."""
        return 5 * 10**9 + max(10**8, tokens * 30_000_000)

    def by_requests(self, requests: int) -> int:
        """Return a cost for each."""
        return requests * 1_000_001


def without_fallback(case: Case) -> SchedulerSettings:
    """Return a case's settings with what the fast way does not do left out."""
    chosen: SchedulerSettings = case.settings._replace(policy="fcfs", long_prefill_token_threshold=0)
    return chosen


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 10**9), context=st.booleans(), as_served=st.booleans())
def test_jumps_change_nothing(seed: int, context: bool, as_served: bool) -> None:
    """The fast way gives the same result and the same steps, on random workloads under pressure."""
    case = bench().random_case(seed)
    clock: Clock = ByContext() if context else StepTime(15, 20) if case.clocked else StepCount()
    plain, fast, unrecorded = both(bench().requests_of(case), without_fallback(case), clock, as_served=as_served)
    assert fast == plain
    assert unrecorded == plain[0]


PIECES = st.tuples(st.integers(1, 9), st.sampled_from([1, 4, 5, 8, 13, 16]))
DOCUMENTS = st.lists(st.lists(PIECES, min_size=1, max_size=4), min_size=1, max_size=4)
TURNS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 4), st.integers(0, 40), st.integers(1, 40), st.integers(0, 60)),
    min_size=1,
    max_size=30,
)


@settings(deadline=None, max_examples=150)
@given(
    documents=DOCUMENTS,
    turns=TURNS,
    size=st.sampled_from([1, 4, 16]),
    spare=st.integers(0, 80),
    batch=st.sampled_from([16, 40, 200]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_jumps_change_nothing_where_prefixes_are_shared(
    documents: list[list[tuple[int, int]]],
    turns: list[tuple[int, int, int, int, int]],
    size: int,
    spare: int,
    batch: int,
    flags: tuple[bool, bool, bool],
) -> None:
    """Prompts that begin with parts of a few documents, to their ends or beyond, in pools that are too small."""
    requests = []
    now = 0.0
    for document, parts, rest, output, gap in turns:
        now += gap / 1000
        segments = tuple(Segment(*piece) for piece in documents[document % len(documents)][:parts])
        prompt = min(sum(segment.tokens for segment in segments) + rest, 99)
        requests.append(Request(now, max(prompt, 1), output, segments))
    chosen = SchedulerSettings(
        num_gpu_blocks=100 // size + 2 + spare,
        block_size=size,
        max_num_seqs=8,
        max_num_batched_tokens=batch,
        max_model_len=100,
        async_scheduling=flags[0],
        scheduler_reserve_full_isl=flags[1],
    )
    plain, fast, unrecorded = both(requests, chosen, StepTime(15, 20), as_served=flags[2])
    assert fast == plain
    assert unrecorded == plain[0]


def test_the_defaults_go_the_fast_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither steps scheduled ahead, nor cached or shared prefixes, nor preemption need the plain scheduler."""
    monkeypatch.delattr("kvbudget.simulation.simulate.Engine.run")
    requests = [Request(0, 60, 60, (Segment(1, 40),))] * 8
    result = simulate(requests, SMALL._replace(num_gpu_blocks=20), StepCount())
    assert result.total_preemptions > 0
    assert result.prefix_hits > 0


# -- invariants


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**9), groups=st.sampled_from(["full", "sliding", "chunked", "state"]))
def test_nothing_is_lost_in_any_step(seed: int, groups: str) -> None:
    """After every step: each request is in one place, each block has as many holders as tables name it."""
    cache_groups = {
        "full": (),
        "sliding": (Group("sliding", 16, 40), Group("full", 16)),
        "chunked": (Group("chunked", 16, 64), Group("full", 16)),
        "state": (Group("state", 48, checkpoint_blocks=seed % 2), Group("full", 48)),
    }[groups]
    case = bench().random_case(seed)
    chosen = case.settings._replace(groups=cache_groups)
    if groups == "state" and not chosen.enable_prefix_caching:
        chosen = chosen._replace(groups=(Group("state", chosen.max_model_len), Group("full", 16)))
    chosen = chosen._replace(num_gpu_blocks=longest_needs(chosen) + 2 + seed % 9)
    checked = Checked(chosen)
    scheduler_of: Callable[[SchedulerSettings], Scheduler] = lambda _: checked  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvbudget.simulation.simulate.Scheduler", scheduler_of)
        result = simulate(bench().requests_of(case), chosen, StepTime(15, 20), plainly=True)
    assert checked.ended == len(result)
    assert checked.cache.pool.used == 0
    assert_causal(result)


class Checked(Scheduler):
    """A scheduler that is looked at after every step."""

    def __init__(self, chosen: SchedulerSettings) -> None:
        super().__init__(chosen)
        self.added = self.ended = 0

    def add(self, request: Sequence) -> None:
        self.added += 1
        super().add(request)

    def schedule(self) -> Scheduled:
        step = super().schedule()
        assert sum(step.tokens.values()) <= self.settings.max_num_batched_tokens
        assert len(self.running) <= self.settings.max_num_seqs
        assert not step.admitted or not step.preempted
        self.look()
        return step

    def finish(self, step: Scheduled) -> list[Sequence]:
        ended = super().finish(step)
        self.ended += len(ended)
        self.look()
        return ended

    def look(self) -> None:
        """Check what must hold at any time."""
        pool = self.cache.pool
        assert self.added == len(self.running) + len(self.waiting) + self.ended
        holders: dict[Block, int] = {}
        alone = 0
        for table in self.cache.tables:
            assert set(table.tables) <= {request.index for request in self.running}
            for blocks in table.tables.values():
                for block in blocks:
                    if block is BLANK or block is OWN:
                        alone += 1
                    elif block is not GONE:
                        holders[block] = holders.get(block, 0) + 1
                        assert block.holders >= holders[block]
        assert pool.used == len(holders) + alone
        assert pool.free + pool.used == self.settings.usable_blocks


def assert_causal(result: Result) -> None:
    """Nothing happens before its cause, and every request that was served ends."""
    for i in range(len(result)):
        assert result.arrival[i] <= result.scheduled[i] < result.first_token[i] <= result.finished[i] <= result.ends
        assert 0 <= result.cached_tokens[i] < result.prompt_tokens[i]


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10**9))
def test_steps_follow_each_other(seed: int) -> None:
    """The clock never falls, no step has more blocks than the pool, and each token is computed in a step."""
    case = bench().random_case(seed)
    steps: list[Step] = []
    result = simulate(bench().requests_of(case), case.settings, StepTime(15, 20), steps.append)
    assert [step.number for step in steps] == sorted({step.number for step in steps})
    assert [step.begins for step in steps] == sorted(step.begins for step in steps)
    assert all(0 <= step.used_blocks <= case.settings.usable_blocks for step in steps)
    assert sum(step.tokens for step in steps) == result.scheduled_tokens
    assert sum(step.preempted for step in steps) == result.total_preemptions
    assert sum(step.outputs for step in steps) == sum(result.output_tokens)
    assert all(step.begins <= step.ends for step in steps)
    needed = sum(result.prompt_tokens) + sum(result.output_tokens) - len(result)
    spared = needed + result.recomputed_tokens - result.scheduled_tokens - result.prefix_hits
    assert 0 <= spared <= result.resumed_hits  # one that comes back may find what others computed meanwhile
    assert_causal(result)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**9))
def test_the_order_in_which_requests_are_given_does_not_matter(seed: int) -> None:
    case = bench().random_case(seed)
    requests = [request._replace(arrival=i * 0.01) for i, request in enumerate(bench().requests_of(case))]
    there = simulate(requests, case.settings, StepTime(15, 20))
    back = simulate(requests[::-1], case.settings, StepTime(15, 20))
    for name in ("scheduled", "first_token", "finished", "preemptions"):
        assert getattr(there, name) == getattr(back, name)[::-1]


# -- edges

SMALL = SchedulerSettings(num_gpu_blocks=9, max_num_seqs=4, max_num_batched_tokens=64, max_model_len=128)


@pytest.mark.parametrize("plainly", [True, False])
def test_requests_are_cut_and_refused_as_the_engine_does(plainly: bool) -> None:
    requests = [Request(0, 100, 100), Request(0, 128, 1), Request(0, 0, 5), Request(0, 127, 9), Request(3, 5, 0)]
    result = simulate(requests, SMALL, StepTime(10, 0), plainly=plainly)
    assert list(result.output_tokens) == [28, 0, 0, 1, 1]
    assert result.refused == 2
    assert [time == NEVER for time in result.finished] == [False, True, True, False, False]
    assert result.finished[4] == 3 * SECOND + 10**10


@pytest.mark.parametrize("plainly", [True, False])
def test_no_requests_take_no_time(plainly: bool) -> None:
    assert simulate([], SMALL, StepCount(), plainly=plainly) == Result()


@pytest.mark.parametrize("plainly", [True, False])
@pytest.mark.parametrize(("ahead", "steps_later"), [(True, 1), (False, 0)])
def test_a_server_sees_who_comes_when_it_schedules(ahead: bool, steps_later: int, plainly: bool) -> None:
    """While a step runs, the next one is scheduled already where that is done ahead."""
    requests = [Request(0, 10, 50), Request(0.075, 10, 1)]
    chosen = SMALL._replace(async_scheduling=ahead)
    there, then = (
        simulate(requests, chosen, StepTime(10, 0), as_served=as_served, plainly=plainly).first_token[1]
        for as_served in (False, True)
    )
    assert there == 90 * SECOND // 1000
    assert then - there == steps_later * 10 * SECOND // 1000


def test_a_conversation_finds_its_own_answers() -> None:
    """The second turn begins with the first one's prompt and with what it generated."""
    first = Request(0, 32, 40, (Segment(1, 32),), output_segment=2)
    second = Request(9, 32 + 40 + 8, 4, (Segment(1, 32), Segment(2, 40), Segment(3, 8)))
    result = simulate([first, second], SMALL, StepTime(10, 0))
    assert list(result.cached_tokens) == [0, 64]  # the block of its last token was not complete


def test_two_prompts_share_as_far_as_their_segments_agree() -> None:
    requests = [
        Request(0, 100, 2, (Segment(1, 50), Segment(2, 30))),
        Request(1, 100, 2, (Segment(1, 50), Segment(3, 30))),
        Request(2, 100, 2, (Segment(1, 50), Segment(2, 30))),
    ]
    result = simulate(requests, SMALL._replace(num_gpu_blocks=40), StepTime(10, 0))
    assert list(result.cached_tokens) == [0, 48, 80]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"num_gpu_blocks": 8}, InputError, "needs 8 blocks and the pool has 7"),
        ({"max_num_seqs": 65}, InputError, "less than max_num_seqs"),
        ({"max_num_seqs": 0}, InputError, "max_num_seqs is 0"),
        ({"watermark": 1.0}, InputError, "watermark"),
        ({"policy": "lifo"}, InputError, "policy"),
        ({"long_prefill_token_threshold": 129}, InputError, "more than max_model_len"),
        ({"enable_chunked_prefill": False}, InputError, "without chunked prefill"),
        ({"groups": (Group("sliding", 16),)}, InputError, "no group"),
        ({"groups": (Group("cross", 16),)}, CannotTell, "cross"),  # type: ignore[arg-type]
        ({"groups": (Group("state", 32), Group("full", 16))}, CannotTell, "prefix caching off"),
    ],
)
def test_says_why_it_refuses(changes: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        check(SMALL._replace(**changes))


STATE, FULL = Group("state", 544), Group("full", 544)


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("llama-3-8b", ()),
        ("deepseek-v3", ()),
        ("mistral-7b-v0.1", (Group("sliding", 16, 4096),)),
        ("gpt-oss-20b", (Group("sliding", 16, 128), Group("full", 16))),
        ("llama-4-scout", (*[Group("chunked", 16, 8192)] * 3, Group("full", 16))),
        ("qwen3-next-80b-a3b", (STATE, STATE, STATE, FULL)),
    ],
)
def test_a_deployment_says_what_its_scheduler_may_do(name: str, groups: tuple[Group, ...]) -> None:
    """The groups are those that vLLM's own scheduler was recorded with."""
    chosen = of_deployment(model=load_model(name))
    assert chosen.groups == groups
    assert (chosen.num_gpu_blocks, chosen.max_num_seqs, chosen.max_num_batched_tokens) == (5000, 1024, 8192)
    assert (chosen.async_scheduling, chosen.enable_prefix_caching, chosen.scheduler_reserve_full_isl) == (True,) * 3


def of_deployment(**fields: Any) -> SchedulerSettings:  # noqa: ANN401 - any field
    chosen = engine_settings(Deployment(gpu="h100", **fields))
    return resolved(chosen, plan_cache(fields["model"], chosen.cache), 5000)


def test_old_versions_admit_by_the_first_chunk() -> None:
    chosen = of_deployment(model=load_model("llama-3-8b"), engine_version="0.18.1")
    assert not chosen.scheduler_reserve_full_isl


@pytest.mark.parametrize("layout", [{"pipeline_parallel_size": 2}, {"num_speculative_tokens": 2}])
def test_says_whose_scheduler_it_cannot_simulate(layout: dict[str, Any]) -> None:
    model = load_model("llama-3-8b")
    settings_ = CacheSettings(version=(0, 32, 0), max_model_len=8192, max_num_batched_tokens=8192, **layout)
    chosen = engine_settings(Deployment(model=model, gpu="h100"))
    with pytest.raises(CannotTell, match="not simulated"):
        resolved(chosen, plan_cache(model, settings_), 5000)


@pytest.mark.parametrize("arrival", [-1, float("nan"), float("inf"), 10**9])
def test_a_request_must_arrive_at_a_time(arrival: float) -> None:
    with pytest.raises(InputError, match="arrives at"):
        simulate([Request(arrival, 1, 1)], SMALL, StepCount())


@pytest.mark.parametrize("costs", [(0, 0), (1e-12, 0), (-1, 5), (float("nan"), 1), (1, float("inf"))])
def test_a_step_must_take_time(costs: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="A step takes"):
        StepTime(*costs)


@given(
    base=st.floats(0.001, 1000),
    per_token=st.floats(0, 1000),
    requests=st.integers(1, 4096),
    steps=st.integers(1, 300),
    gap=st.integers(1, 10**14),
)
def test_many_steps_take_what_each_takes(base: float, per_token: float, requests: int, steps: int, gap: int) -> None:
    clock = StepTime(base, per_token)
    assert clock.decodes(requests, 0, steps) == sum(clock.step(Batch(requests, requests, 0, 0)) for _ in range(steps))
    enough = steps_until(clock.pace, requests, 0, gap, FOREVER)
    assert clock.decodes(requests, 0, enough) >= gap > clock.decodes(requests, 0, enough - 1)


@given(
    kind=st.sampled_from(("full", "sliding", "chunked", "state")),
    size=st.integers(1, 32),
    limit=st.integers(1, 200),
    computed=st.integers(0, 500),
)
def test_blocks_are_given_back_where_it_is_said_and_not_before(kind: str, size: int, limit: int, computed: int) -> None:
    """What lies between may be left out, which is what makes steps of hybrid models cheap."""
    chosen = SchedulerSettings(num_gpu_blocks=9, enable_prefix_caching=False)
    table = table_of(0, Group(kind, size, limit), chosen, BlockPool(9))  # type: ignore[arg-type]

    def gone(tokens: int) -> int:
        return max(0, table.skipped(tokens)) // size

    until = table.lets_go_at(computed)
    assert until > computed
    assert gone(min(until, 10_000) - 1) == gone(computed)
