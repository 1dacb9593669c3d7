"""The policies of other engines: their invariants after every step, small cases worked by hand from their sources."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.cli import cli
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import policies as facts
from kvbudget.simulation.clock import SECOND, StepCount, StepTime
from kvbudget.simulation.policies.llamacpp import LlamaCppScheduler, LlamaCppSettings
from kvbudget.simulation.policies.radix import RadixCache
from kvbudget.simulation.policies.sglang import NewTokenRatio, SGLangScheduler, SGLangSettings
from kvbudget.simulation.policies.tensorrt_llm import TensorRTLLMScheduler, TensorRTLLMSettings
from kvbudget.simulation.pool import BLANK
from kvbudget.simulation.prefixes import Keys, Prefixes
from kvbudget.simulation.results import NEVER, Result, Step
from kvbudget.simulation.simulate import simulate, simulate_users
from kvbudget.workload.request import Request, Segment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.simulation.policy import OtherSettings, Policy
    from kvbudget.simulation.scheduler import Scheduled
    from kvbudget.simulation.sequence import Sequence

CLOCK = StepTime(10, 20)
LONGEST = 96

Scheduler = SGLangScheduler | TensorRTLLMScheduler | LlamaCppScheduler


def no_evict(blocks: int = 12, **choices: object) -> TensorRTLLMSettings:
    given = {"tokens_per_block": 8, "max_seq_len": LONGEST, "max_batch_size": 8, "max_num_tokens": 128, **choices}
    return TensorRTLLMSettings(blocks, **given)  # type: ignore[arg-type]


def max_utilization(blocks: int = 12, **choices: object) -> TensorRTLLMSettings:
    return no_evict(blocks, capacity_scheduler_policy="MAX_UTILIZATION", **choices)


MACHINES: dict[str, OtherSettings] = {
    "sglang": SGLangSettings(
        110, LONGEST, max_running_requests=8, chunked_prefill_size=64, schedule_conservativeness=0.1
    ),
    "sglang, pages": SGLangSettings(160, LONGEST, page_size=16, max_running_requests=8, chunked_prefill_size=32),
    "sglang, whole prompts": SGLangSettings(110, LONGEST, chunked_prefill_size=-1, max_prefill_tokens=100),
    "sglang, no cache": SGLangSettings(120, LONGEST, chunked_prefill_size=16, disable_radix_cache=True),
    "sglang, asks for more": SGLangSettings(300, LONGEST, max_tokens=64, schedule_conservativeness=0.2),
    "no evict": no_evict(),
    "no evict, chunked": no_evict(20, enable_chunked_prefill=True, max_num_tokens=20),
    "no evict, no reuse": no_evict(enable_block_reuse=False, max_tokens=50),
    "max utilization": max_utilization(),
    "max utilization, chunked": max_utilization(14, enable_chunked_prefill=True, max_num_tokens=24),
    "max utilization, no reuse": max_utilization(13, enable_block_reuse=False, max_batch_size=4),
    "llama.cpp": LlamaCppSettings(256, 4, n_ctx_train=LONGEST, batch_size=32, ubatch_size=16),
    "llama.cpp, split": LlamaCppSettings(1024, 3, kv_unified=False, n_ctx_train=LONGEST, batch_size=48, ubatch_size=16),
    "llama.cpp, no cache": LlamaCppSettings(512, 4, n_ctx_train=LONGEST, cache_prompt=False),
}


@st.composite
def workloads(draw: st.DrawFn) -> list[Request]:
    """Return requests that come in bursts, some of which begin alike, some too long."""
    requests = []
    now = 0.0
    for _ in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0, 0, 0.005, 0.05, 0.7]))
        segments = tuple(
            Segment(draw(st.integers(1, 2)), draw(st.sampled_from([5, 16, 33]))) for _ in range(draw(st.integers(0, 2)))
        )
        prompt = draw(st.integers(0, LONGEST + 2))
        requests.append(Request(now, prompt, draw(st.integers(1, LONGEST)), segments))
    return requests


class Checked:
    """A scheduler that is looked at after every step."""

    def __init__(self, inner: Policy, chosen: OtherSettings) -> None:
        self.inner, self.chosen = inner, chosen
        self.added = self.ended = self.steps = 0

    @property
    def running(self) -> list[object]:
        return list(self.inner.running)  # type: ignore[call-overload, no-any-return]

    @property
    def waiting(self) -> list[object]:
        return list(self.inner.waiting)  # type: ignore[call-overload, no-any-return]

    @property
    def used_blocks(self) -> int:
        return self.inner.used_blocks

    @property
    def has_work(self) -> bool:
        return self.inner.has_work

    def add(self, request: Sequence) -> None:
        self.added += 1
        self.inner.add(request)

    def schedule(self) -> Scheduled:
        step = self.inner.schedule()
        self.steps += 1
        assert step.tokens or getattr(self.inner, "_failed", None), "a step that does nothing for anybody"
        assert all(new > 0 for new in step.tokens.values())
        assert not set(step.preempted) & set(step.tokens)
        assert len(self.running) <= self.chosen.seats
        words = self.chosen.words
        if words.policy in ("tensorrt-llm-no-evict", "llama.cpp"):
            assert step.preempted == ()
        if step.passes:
            assert sum(each.tokens for each in step.passes) == sum(step.tokens.values())
        self.look()
        return step

    def finish(self, step: Scheduled) -> list[Sequence]:
        ended = list(self.inner.finish(step))
        assert len(set(ended)) == len(ended)
        self.ended += len(ended)
        self.look()
        return ended

    def look(self) -> None:
        """Check what must hold at any time: requests and memory are conserved."""
        failing = len(getattr(self.inner, "_failed", ()))
        assert self.added == len(self.running) + len(self.waiting) + self.ended + failing
        assert 0 <= self.used_blocks <= self.chosen.usable_blocks
        inner = self.inner
        if isinstance(inner, SGLangScheduler):
            look_at_sglang(inner)
        elif isinstance(inner, TensorRTLLMScheduler):
            assert inner.pool.free + inner.pool.used == inner.settings.num_blocks
            blocks = [block for table in inner._tables.values() for block in table]
            holders = Counter(block for block in blocks if block is not BLANK)
            assert all(block.holders >= count for block, count in holders.items())
            assert inner.pool.used == len(holders) + blocks.count(BLANK)
        elif isinstance(inner, LlamaCppScheduler):
            most = inner.settings.usable_blocks if inner.settings.kv_unified else inner.settings.n_ctx_seq
            assert max(slot.cells for slot in inner._slots) <= most
            if inner.settings.kv_unified:
                assert sum(slot.cells for slot in inner._slots) <= inner.settings.usable_blocks


def look_at_sglang(inner: SGLangScheduler) -> None:
    """Free, kept and held tokens are all there are, and the tree's counts are those of its nodes."""
    tree, page = inner._tree, inner._page
    own = sum(-(-held.end // page) * page - held.protected for held in inner._held.values())
    assert inner._free + tree.evictable + tree.protected + own == inner.settings.usable_blocks * page
    locked = free = 0
    nodes = [tree._root]
    while nodes:
        node = nodes.pop()
        for child in node.children.values():
            assert child.parent is node
            assert child.start == node.end < child.end
            assert child.locks <= node.locks or node is tree._root
            locked += (child.end - child.start) * (child.locks > 0)
            free += (child.end - child.start) * (child.locks == 0)
            nodes.append(child)
    assert (locked, free) == (tree.protected, tree.evictable)


def run_checked(chosen: OtherSettings, requests: list[Request]) -> tuple[Result, Checked, list[Step]]:
    steps: list[Step] = []
    checked = Checked(chosen.scheduler(), chosen)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kvbudget.simulation.simulate.scheduler_of", lambda _: checked)
        result = simulate(requests, chosen, CLOCK, steps.append)
    return result, checked, steps


@pytest.mark.parametrize("name", MACHINES)
@settings(deadline=None, max_examples=25)
@given(requests=workloads())
def test_nothing_is_lost_and_nothing_stands_still(name: str, requests: list[Request]) -> None:
    """Requests and memory are conserved, the clock never falls, causes come first, everybody is answered or told."""
    chosen = MACHINES[name]
    result, checked, steps = run_checked(chosen, requests)
    assert checked.ended == checked.added == len(requests) - result.refused
    assert checked.used_blocks == 0
    assert [step.begins for step in steps] == sorted(step.begins for step in steps)
    assert sum(step.tokens for step in steps) == result.scheduled_tokens
    assert sum(step.preempted for step in steps) == result.total_preemptions
    failed = 0
    for i, request in enumerate(requests):
        if not result.output_tokens[i]:
            assert not 0 < request.prompt_tokens <= chosen.max_prompt_len or (
                request.prompt_tokens >= chosen.max_model_len
            )
            continue
        if result.finished[i] == NEVER:
            failed += 1
            continue
        assert result.arrival[i] <= result.scheduled[i] < result.first_token[i] <= result.finished[i] <= result.ends
        assert 0 <= result.cached_tokens[i] < result.prompt_tokens[i]
    assert not failed or chosen.words.policy == "llama.cpp"
    if not failed:
        needed = sum(
            prompt + output - 1
            for prompt, output in zip(result.prompt_tokens, result.output_tokens, strict=True)
            if output
        )
        assert result.scheduled_tokens + result.prefix_hits == needed + result.recomputed_tokens


@pytest.mark.parametrize("name", MACHINES)
def test_the_same_requests_lead_to_the_same_result(name: str) -> None:
    requests = [Request(i * 0.01, 10 + i % 40, 5 + i * 7 % 40, (Segment(1 + i % 2, 9),)) for i in range(40)]
    there, again = (run_checked(MACHINES[name], requests) for _ in range(2))
    assert there[0] == again[0]
    assert there[2] == again[2]


def test_the_workloads_are_worth_their_place() -> None:
    """The machines above are small enough that what is special of each happens."""
    requests = [Request(i * 0.01, 10 + i % 40, 5 + i * 7 % 40, (Segment(1 + i % 2, 17),)) for i in range(60)]
    found = {name: run_checked(chosen, requests)[0] for name, chosen in MACHINES.items()}
    for name in ("sglang", "sglang, no cache", "max utilization", "max utilization, chunked"):
        assert found[name].total_preemptions > 0, name
    for name in ("sglang", "sglang, pages", "no evict", "max utilization", "llama.cpp"):
        assert found[name].prefix_hits > 0, name
    crowded = LlamaCppSettings(256, 6, n_ctx_train=LONGEST, batch_size=32, ubatch_size=32)
    assert NEVER in run_checked(crowded, requests)[0].finished


# -- SGLang, by hand


def sglang(tokens: int, **choices: object) -> SGLangSettings:
    return SGLangSettings(tokens, 1000, **{"disable_radix_cache": True, **choices})  # type: ignore[arg-type]


def steps_of(chosen: OtherSettings, requests: list[Request]) -> list[tuple[int, int, int, int]]:
    """Return running, waiting, tokens and pauses of each step."""
    steps: list[Step] = []
    simulate(requests, chosen, StepCount(), steps.append)
    return [(step.running, step.waiting, step.tokens, step.preempted) for step in steps]


def test_prompts_go_before_answers() -> None:
    """get_next_batch_to_run: a step of prompts where one can be taken, else a token of each running request."""
    requests = [Request(0, 10, 3), Request(1, 20, 2)]
    assert steps_of(sglang(500), requests) == [(1, 0, 10, 0), (2, 0, 20, 0), (2, 0, 2, 0), (1, 0, 1, 0)]


def test_a_long_prompt_takes_steps_of_the_chunk_and_nobody_decodes_meanwhile() -> None:
    """add_chunked_req: 20 tokens in chunks of 8; the rest of the last chunk is for the next prompt, also in part."""
    requests = [Request(0, 20, 2), Request(0, 6, 1)]
    found = steps_of(sglang(500, chunked_prefill_size=8), requests)
    # 8, 8, then the last 4 with 4 of the next one's 6, then its last 2, then a token of the first
    assert [step[2] for step in found] == [8, 8, 8, 2, 1]


def test_room_is_kept_for_a_share_of_what_will_be_generated() -> None:
    """PrefillAdder: a request needs prompt + output + page below what is free less 0.7 times what runners may still do.

    100 tokens, a prompt of 20 that asks for 40: after its prompt 80 are free, 39 to come, for which 27.3 are kept; a
    request of 20 + 31 + 1 = 52 is below the 52.7 that are left, one of 20 + 32 + 1 = 53 is not.
    """
    first = Request(0, 20, 40)
    assert steps_of(sglang(100), [first, Request(1, 20, 31)])[1] == (2, 0, 20, 0)
    assert steps_of(sglang(100), [first, Request(1, 20, 32)])[1] == (1, 1, 1, 0)


def test_retraction_takes_the_least_generated_and_puts_it_at_the_end_of_the_queue() -> None:
    """retract_decode: of two requests with as much generated the one with the longer prompt; one is always kept."""
    scheduler = SGLangScheduler(sglang(62, schedule_conservativeness=0.01))
    short, long = sequence(0, 10, 30), sequence(1, 20, 30)
    steps: list[Scheduled] = []
    for _ in range(20):
        if len(steps) < 2:
            scheduler.add((short, long)[len(steps)])
        steps.append(scheduler.schedule())
        scheduler.finish(steps[-1])
        if steps[-1].preempted:
            break
    assert steps[-1].preempted == (long,)
    assert list(scheduler.waiting) == [long]
    assert len(steps) == 2 + 16 + 1  # two prompts leave 32 of 62 tokens, which two requests fill in 16 steps
    assert short.tokens - short.prompt_tokens == 18  # and it goes on alone


def test_the_ratio_falls_with_each_step_and_learns_from_a_retraction() -> None:
    """NewTokenRatioTracker: from 0.7 to 0.098 in 600 steps; then (generated + 20 a request) / (asked + 1)."""
    ratio = NewTokenRatio(1.0)
    assert ratio.current == 0.7
    for _ in range(300):
        ratio.decay()
    assert ratio.current == pytest.approx((0.7 + 0.098) / 2)
    for _ in range(400):
        ratio.decay()
    assert ratio.current == pytest.approx(0.098)
    ratio.after_retraction(generated=100, asked=999, requests=5)
    assert ratio.current == 0.2
    ratio.after_retraction(generated=900, asked=899, requests=5)
    assert ratio.current == 1.0


@pytest.mark.parametrize(("gib", "tokens"), [(16, 2048), (24, 4096), (48, 4096), (80, 8192), (141, 8192), (192, 16384)])
def test_the_chunk_goes_by_the_card(gib: int, tokens: int) -> None:
    """memory_hook.py: T4, A10, L40, H100, H200, B200."""
    assert facts.chunked_prefill_size(gib << 30) == tokens


def keys(*segments: tuple[int, int], prefixes: Prefixes | None = None, index: int = 0) -> Keys:
    tokens = sum(count for _, count in segments)
    request = Request(0, tokens, 1, tuple(Segment(*segment) for segment in segments))
    return Keys(prefixes or Prefixes(), request, index)


def test_the_tree_is_cut_where_requests_part_and_gives_away_its_oldest_leaves() -> None:
    """RadixCache: a match inside a run splits it; whole leaves go, least recently used first, then their parents."""
    prefixes = Prefixes()
    one = keys((1, 10), (2, 10), prefixes=prefixes)
    two = keys((1, 10), (3, 5), prefixes=prefixes, index=1)
    tree = RadixCache(1)
    assert tree.insert(one, 20)[0] == 0
    assert tree.find(two, 15).end == 10
    assert tree.insert(two, 15)[0] == 10
    assert tree.evictable == 25
    assert tree.find(one, 20).end == 20  # used after the other one
    assert tree.evict(1) == 5
    assert tree.find(two, 15).end == 10
    node = tree.find(one, 20)
    tree.lock(node)
    assert (tree.evictable, tree.protected) == (0, 20)
    assert tree.evict(100) == 0
    tree.unlock(node)
    assert tree.evict(11) == 20  # the leaf's 10 are not enough


def test_what_parts_from_a_run_is_younger_than_the_rest_of_the_run() -> None:
    """RadixCache: a node's time is that of its making, later than that of the nodes on the way to it."""
    prefixes = Prefixes()
    tree = RadixCache(1)
    tree.insert(keys((1, 10), (2, 10), prefixes=prefixes), 20)
    tree.insert(keys((1, 10), (3, 5), prefixes=prefixes, index=1), 15)
    assert tree.evict(1) == 10
    assert tree.evict(1) == 5


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40), st.booleans()), max_size=40), st.sampled_from([1, 4]))
def test_the_tree_finds_what_was_put_in_until_it_is_given_away(actions: list[tuple[int, int, bool]], page: int) -> None:
    prefixes = Prefixes()
    kinds = [keys((1, 9), (1 + i // 2, 12), (i, 30), prefixes=prefixes, index=i) for i in range(4)]
    tree = RadixCache(page)
    known: set[object] = set()
    for kind, tokens, gives in actions:
        if gives:
            before = tree.evictable
            freed = tree.evict(tokens)
            assert freed >= min(tokens, before)
            assert tree.evictable == before - freed
            known = {key for key in known if isinstance(key, tuple)}
            continue
        whole = tokens // page * page
        tree.insert(kinds[kind], whole)
        assert tree.find(kinds[kind], tokens).end == whole
        assert tree.protected == 0
    assert tree.evict(10**6) == tree.evictable + 0 or tree.evictable == 0
    assert all(tree.find(each, 50).end == 0 for each in kinds)


# -- TensorRT-LLM, by hand


def sequence(index: int, prompt: int, output: int) -> Sequence:
    from kvbudget.simulation.sequence import Sequence  # noqa: PLC0415 - the name is a type above

    request = Request(0, prompt, output)
    return Sequence(index, 0, prompt, output, 0, Keys(Prefixes(), request, index))


def test_no_evict_admits_only_what_can_end() -> None:
    """GuaranteedNoEvictScheduler: two of 5 blocks have 10 of 12; a third waits, and so do smaller ones behind it.

    20 + 20 tokens are 5 blocks of 8, of which a prompt takes 3.
    """
    requests = [Request(0, 20, 20)] * 3 + [Request(0, 4, 4)]
    found = steps_of(no_evict(enable_block_reuse=False), requests)
    assert found[0] == (2, 2, 40, 0)
    assert {step[3] for step in found} == {0}
    assert found[20][:2] == (2, 0)  # when the first two have ended
    asks = steps_of(no_evict(enable_block_reuse=False, max_tokens=60), requests)
    assert asks[0] == (1, 3, 20, 0)  # 20 + 60 tokens are 10 blocks


def test_max_utilization_admits_what_fits_and_pauses_who_came_last() -> None:
    """MaxUtilizationScheduler: 4 requests of 3 blocks fill 12; at 24 tokens each needs another, and the last is paused.

    Three hold 9 and take 3; when those are full, after 8 more tokens, the third is paused too, and the fourth waits
    behind it: requests after a paused one are not looked at.
    """
    found = steps_of(max_utilization(enable_block_reuse=False), [Request(0, 20, 30)] * 4)
    assert found[0] == (4, 0, 80, 0)
    assert found[4] == (4, 0, 4, 0)
    assert found[5] == (3, 1, 3, 1)
    assert found[13][:2] == (2, 2)
    assert found[13][3] == 1


def test_a_paused_request_computes_its_answer_again_as_a_prompt() -> None:
    """LlmRequest::pause: what was generated joins the prompt, and the request keeps its place."""
    result = simulate([Request(0, 20, 30)] * 4, max_utilization(enable_block_reuse=False), StepCount())
    assert result.preemptions[0] == 0
    assert result.recomputed_tokens > 0
    assert list(result.finished) == sorted(result.finished)


def test_a_prompt_waits_for_blocks_that_another_one_computes() -> None:
    """beneficialToSkip: the second request begins a step later and finds the first one's two blocks."""
    same = Request(0, 20, 3, (Segment(1, 20),))
    result = simulate([same, same], no_evict(), StepCount())
    assert list(result.scheduled) == [0, SECOND]
    assert list(result.cached_tokens) == [0, 16]


def test_contexts_come_whole_or_in_blocks() -> None:
    """PyMicroBatchScheduler: whole prompts while they fit in a step; chunks are whole blocks but for the last."""
    requests = [Request(0, 30, 2), Request(0, 30, 2)]
    whole = steps_of(no_evict(max_num_tokens=50, enable_block_reuse=False), requests)
    assert [step[2] for step in whole] == [30, 31, 1]
    chunked = steps_of(no_evict(max_num_tokens=50, enable_block_reuse=False, enable_chunked_prefill=True), requests)
    assert [step[2] for step in chunked] == [30 + 16, 1 + 14, 1]


def test_a_prompt_longer_than_a_step_is_refused_unless_it_may_be_cut() -> None:
    assert simulate([Request(0, 60, 2)], no_evict(max_num_tokens=50), StepCount()).refused == 1
    assert simulate([Request(0, 60, 2)], no_evict(max_num_tokens=50, enable_chunked_prefill=True), CLOCK).refused == 0


# -- llama.cpp, by hand


def test_slots_are_all_there_is() -> None:
    """Two slots, three requests: the third begins when a slot is released, prompts share a round with answers."""
    requests = [Request(0, 10, 2), Request(0, 10, 4), Request(0, 10, 2)]
    found = steps_of(LlamaCppSettings(1024, 2), requests)
    assert found == [(2, 1, 20, 0), (2, 1, 2, 0), (2, 0, 11, 0), (2, 0, 2, 0)]


def test_a_slot_keeps_what_the_next_request_begins_with() -> None:
    """get_available_slot: the longest common prefix above a tenth of the prompt, else the least recently used.

    At least one token is computed.
    """
    talk = Request(0, 30, 5, (Segment(1, 30),), output_segment=2)
    other = Request(0, 30, 5, (Segment(9, 30),))
    turn = Request(50, 45, 5, (Segment(1, 30), Segment(2, 5), Segment(3, 10)))
    again = Request(100, 30, 5, (Segment(9, 30),))
    result = simulate([talk, other, turn, again], LlamaCppSettings(1024, 2), StepCount())
    assert list(result.cached_tokens) == [0, 0, 34, 29]  # the last token of an answer is never computed
    without = simulate([talk, other, turn, again], LlamaCppSettings(1024, 2, cache_prompt=False), StepCount())
    assert list(without.cached_tokens) == [0, 0, 0, 0]


def test_an_answer_ends_with_its_slot() -> None:
    """process_token: without context shift generation stops at the slot's context, padded to 256 cells."""
    split = LlamaCppSettings(1000, 2, kv_unified=False, n_ctx_train=10**6)
    assert (split.n_ctx_seq, split.usable_blocks) == (512, 1024)
    result = simulate([Request(0, 500, 100), Request(0, 512, 1)], split, StepCount())
    assert list(result.output_tokens) == [12, 0]


def test_a_full_context_clears_idle_slots_first_and_then_ends_all() -> None:
    """decode(): idle slots are purged one by one, the batch is halved, then every request gets an error."""
    shared = LlamaCppSettings(256, 3, n_ctx_train=200)
    calm = [Request(0, 100, 2), Request(10, 100, 2), Request(20, 100, 2)]
    assert NEVER not in simulate(calm, shared, StepCount()).finished
    crowded = [Request(0, 100, 90), Request(0, 100, 90), Request(200, 100, 2)]
    result = simulate(crowded, shared, StepCount())
    assert [time == NEVER for time in result.finished] == [True, True, False]
    assert result.first_token[0] == SECOND
    assert result.peak_used_blocks <= 256


def test_a_round_is_computed_in_parts_of_ubatch() -> None:
    """A prompt of 1,000 tokens is two parts of 512 and 488, each of which takes a step's constant time."""
    result = simulate([Request(0, 1000, 1)], LlamaCppSettings(2048, 1), StepTime(10, 0))
    assert result.steps == 1
    assert result.ends == 20 * 10**9


def test_users_who_get_an_error_go_on() -> None:
    class Two:
        """Two users who send three requests each."""

        def __init__(self) -> None:
            self.left = [2, 2]

        def first(self) -> Iterator[Request]:
            yield Request(0, 100, 90)
            yield Request(0, 100, 90)

        def next(self, user: int, finished_at: float) -> Request | None:
            self.left[user] -= 1
            return Request(finished_at, 20, 5) if self.left[user] >= 0 else None

    result = simulate_users(Two(), LlamaCppSettings(256, 3, n_ctx_train=200), StepCount())
    assert len(result) == 6
    assert sum(time == NEVER for time in result.finished) == 2


# -- what is refused


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        (SGLangSettings(0), "max_total_num_tokens is 0"),
        (SGLangSettings(100, page_size=16, chunked_prefill_size=24), "a multiple of page_size"),
        (SGLangSettings(100, schedule_conservativeness=0), "schedule_conservativeness"),
        (SGLangSettings(5), "no room for a request"),
        (TensorRTLLMSettings(10, max_seq_len=1000), "needs 32 blocks and the pool has 10"),
        (TensorRTLLMSettings(300, capacity_scheduler_policy="STATIC"), "GUARANTEED_NO_EVICT or"),  # type: ignore[arg-type]
        (TensorRTLLMSettings(300, enable_chunked_prefill=True, max_num_tokens=16), "tokens_per_block"),
        (max_utilization(max_num_tokens=64), "must fit in one step"),
        (LlamaCppSettings(100, 0), "parallel is 0"),
        (LlamaCppSettings(100, ubatch_size=4096), "of which it is a part"),
        (LlamaCppSettings(100, slot_prompt_similarity=2), "slot_prompt_similarity"),
    ],
)
def test_says_why_it_refuses(chosen: OtherSettings, words: str) -> None:
    with pytest.raises(InputError, match=words):
        simulate([Request(0, 1, 1)], chosen, StepCount())


# -- the command line

BASE = ["simulate", "llama-3.1-8b", "--gpu", "h100", "--step-time", "10,20", "--max-model-len", "2048"]
RATE = ["--rate", "20", "--requests", "60", "--prompt-tokens", "300", "--output-tokens", "100"]


def run(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, [*BASE, *RATE, *arguments], standalone_mode=False)
    if code:
        assert result.exception is not None
        return str(result.exception)
    assert result.exception is None, result.exception
    return result.stdout


@pytest.mark.parametrize("words", facts.POLICIES, ids=lambda words: str(words.policy))
def test_json_names_the_policy_and_its_word(words: facts.Words) -> None:
    found = json.loads(run("--policy", words.policy, "--num-gpu-blocks", "600", "--no-knee", "--json"))
    assert found["policy"] == words.policy
    assert found["preemption_is_called"] == words.loss
    assert words.limit in found["settings"] or words.policy == "vllm"
    assert found["completed"] == 60
    warned = [text for text in found["warnings"] if "was read in its source and not run" in text]
    assert len(warned) == (words.policy != "vllm")
    assert found == json.loads(run("--policy", words.policy, "--num-gpu-blocks", "600", "--no-knee", "--json"))


@pytest.mark.parametrize(
    ("policy", "first", "later"),
    [
        ("tensorrt-llm-max-utilization", "PAUSES", ("pauses (", "Pauses start at about", "Try --max-batch-size")),
        ("tensorrt-llm-no-evict", "QUEUES", ("no pauses.", "of max_batch_size")),
        ("llama.cpp", "QUEUES", ("no preemptions.", "of parallel 4", "the slots share one context")),
    ],
)
def test_text_speaks_as_the_engine_does(policy: str, first: str, later: tuple[str, ...]) -> None:
    text = run("--policy", policy, "--num-gpu-blocks", "200")
    assert text.startswith(first)
    flat = " ".join(text.split())
    for words in later:
        assert words in flat
    assert all(len(line) <= 80 for line in text.splitlines())


def test_sglang_retracts_where_requests_end_earlier_than_it_hopes() -> None:
    text = run("--policy", "sglang", "--num-gpu-blocks", "200", "--output-tokens", "800", "--no-knee")
    assert text.startswith("RETRACTS")
    assert "retractions (" in " ".join(text.split())


def test_slots_that_share_too_little_fail() -> None:
    """130 blocks are 2,048 cells after rounding; four slots of 1,100 tokens do not fit, three neither."""
    text = run("--policy", "llama.cpp", "--num-gpu-blocks", "130", "--output-tokens", "800")
    assert text.startswith("FAILS")
    flat = " ".join(text.split())
    assert "ended with an error when the cache was full" in flat
    assert "Try --parallel 1: no errors" in flat


def test_what_requests_ask_for_is_what_no_evict_keeps_room_for() -> None:
    asked = [
        json.loads(run("--policy", "tensorrt-llm-no-evict", "--num-gpu-blocks", "600", "--no-knee", "--json", *more))
        for more in ((), ("--max-tokens", "1500"))
    ]
    assert asked[1]["running"]["max"] < asked[0]["running"]["max"]
    assert any("--max-tokens" in text for text in asked[0]["assumptions"])
    assert not any("--max-tokens" in text for text in asked[1]["assumptions"])


def test_limits_of_the_deployment_are_the_policys() -> None:
    """Slots that are counted get a context each, as with -np."""
    found = json.loads(run("--policy", "llama.cpp", "--max-num-seqs", "3", "--no-knee", "--json"))
    assert found["settings"]["parallel"] == 3
    assert not found["settings"]["kv_unified"]
    sglang = json.loads(run("--policy", "sglang", "--max-num-batched-tokens", "2048", "--no-knee", "--json"))
    assert sglang["settings"]["chunked_prefill_size"] == 2048


def test_a_model_with_windows_is_not_covered() -> None:
    arguments = ["simulate", "gemma-3-27b", "--gpu", "h100", "--step-time", "10,20", "--max-model-len", "2048", *RATE]
    result = CliRunner().invoke(cli, [*arguments, "--policy", "sglang"], standalone_mode=False)
    assert isinstance(result.exception, CannotTell)
    assert "layers all keep all tokens" in str(result.exception)
