"""Hold the SGLang policy against SGLang's own classes, decision by decision, on random traces.

Beside each decision of kvbudget's scheduler the engine's own code makes it from the same state: PrefillAdder with
PrefillBudget (which prompts, how much of each), ScheduleBatch._get_decode_retraction_order (who is retracted) and
NewTokenRatioTracker; the radix cache is held against RadixCache on random operations. The loop around them in SGLang's
scheduler.py is not run.

    pip download --no-deps sglang==0.5.23 && unzip sglang-*.whl -d FOLDER
    python bench/sglang_policy.py --source FOLDER     # with a python that has torch (a CPU build will do)

What SGLang imports and does not need here, kernels and models above all, is replaced by objects that do nothing.
"""

# ruff: noqa: ANN401, S311, SLF001 - it looks inside both schedulers, one of which has no types here

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import random
import sys
import types
from array import array
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

from kvbudget.simulation.clock import StepTime
from kvbudget.simulation.policies import sglang
from kvbudget.simulation.policies.radix import RadixCache
from kvbudget.simulation.prefixes import Keys, Prefixes
from kvbudget.simulation.simulate import simulate
from kvbudget.workload.request import Request, Segment

if TYPE_CHECKING:
    from collections.abc import Sequence as Seq

    from kvbudget.simulation.sequence import Sequence

NEEDLESS = (
    "transformers",
    "sglang.jit_kernel",
    *(
        f"sglang.srt.{name}"
        for name in (
            *("beam", "compilation", "configs", "constrained", "disaggregation", "distributed", "dllm", "entrypoints"),
            *("eplb", "function_call", "hardware_backend", "layers", "lora", "mem_cache.storage", "model_executor"),
            *("model_loader", "models", "multimodal", "observability", "parser", "session", "speculative", "tracing"),
            *("utils.hf_transformers", "utils.hf_transformers_patches", "utils.hf_transformers_utils"),
        )
    ),
)
"""Packages that the scheduler's decisions do not come from."""


class Anything(type):
    """A class whose attributes are there and do nothing."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return MagicMock(name=name)


class StandIn(types.ModuleType):
    """A module of which everything can be imported."""

    __path__ = ()  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made: Any = MagicMock(name=name)
        if name[0].isupper() and not name.isupper():
            members = {"__init__": lambda *_, **__: None, "__class_getitem__": classmethod(lambda cls, _: cls)}
            made = Anything(name, (), members)
        setattr(self, name, made)
        return made


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds a stand-in for what is needless, and behind the real finders for what SGLang imports and is not here."""

    def __init__(self, *, needless: bool) -> None:
        self.needless = needless

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if self.needless:
            wanted = any(name == known or name.startswith(f"{known}.") for known in NEEDLESS)
        else:
            top = name.split(".", maxsplit=1)[0]
            known = sys.modules.get(top)
            wanted = top != "sglang" and (isinstance(known, StandIn) or (known is None and asked_by_sglang()))
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if wanted else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        del module


def asked_by_sglang() -> bool:
    """Return whether an import stands in a file of SGLang."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame is not None and "/sglang/" in frame.f_code.co_filename


class Theirs:
    """SGLang's own code."""

    def __init__(self, source: str) -> None:
        sys.path.insert(0, source)
        sys.meta_path.insert(0, StandIns(needless=True))
        sys.meta_path.append(StandIns(needless=False))
        load: Any = importlib.import_module
        self.policy: Any = load("sglang.srt.managers.schedule_policy")
        self.batch: Any = load("sglang.srt.managers.schedule_batch")
        self.budget: Any = load("sglang.srt.mem_cache.prefill_budget")
        self.cache: Any = load("sglang.srt.mem_cache.radix_cache")
        self.params: Any = load("sglang.srt.mem_cache.base_prefix_cache")
        self.ratio: Any = load("sglang.srt.managers.scheduler_components.new_token_ratio_tracker")
        self.torch: Any = load("torch")
        schedule = types.SimpleNamespace(schedule_policy="fcfs", retraction_policy="length")
        features = types.SimpleNamespace(enable_encoder_swa_bounded_replay=False)
        self.policy.get_schedule = self.batch.get_schedule = lambda: schedule
        self.policy.get_exec = lambda: types.SimpleNamespace(features=features)
        self.policy.page_interleave_shard_size = lambda _: 1


class Pool:
    """What PrefillAdder asks of an allocator and a tree, answered by kvbudget's scheduler."""

    disable = False
    buffer_pipeline = None

    def __init__(self, mine: sglang.SGLangScheduler, theirs: Theirs) -> None:
        self.mine, self.theirs, self.page_size = mine, theirs, mine._page

    def available_size(self) -> int:
        return self.mine._free

    def evictable_size(self) -> int:
        return self.mine._tree.evictable

    def create_prefill_budget(self, tree: object, num_mixed_decode_tokens: int = 0) -> Any:
        return self.theirs.budget.PrefillBudget(self, tree, num_mixed_decode_tokens=num_mixed_decode_tokens)

    def lock(self, node: Any) -> Any:
        self.mine._tree.lock(node)
        return node

    def unlock(self, node: Any) -> None:
        self.mine._tree.unlock(node)

    def request_slot_reserve(self, **_: object) -> int:
        return 0

    def supports_mamba(self) -> bool:
        return False

    def supports_prefix_sharing(self) -> bool:
        return True

    def finish_storage_prefetch_admission(self, *_: object, **__: object) -> None:
        pass


class TheirRequest:
    """A request as SGLang's code reads it."""

    retracted_stain = host_hit_is_storage = False
    host_hit_length = swa_host_hit_length = auxiliary_swa_host_hit_length = 0
    storage_hit_length = storage_hit_start = host_loaded_length = 0
    kv = types.SimpleNamespace(req_pool_idx=None, holds_mamba=False, holds_kv=False)
    cache_request_handle = lock = last_node = None

    def __init__(self, mine: sglang.SGLangScheduler, request: Sequence, node: Any = None) -> None:
        self.mine = request
        self.output_ids = range(sglang.generated(request))
        self.origin_input_ids = range(request.prompt_tokens)
        self.full_untruncated_fill_ids = range(request.tokens)
        self.sampling_params = types.SimpleNamespace(max_new_tokens=mine._asked(request), ignore_eos=False)
        self.prefix_len = self.extend_end = request.computed
        if node is not None:
            self.last_node, self.prefix_len = node, node.end

    @property
    def extend_len(self) -> int:
        return self.extend_end - self.prefix_len

    @property
    def extend_input_len(self) -> int:
        return self.extend_len

    def needs_host_load_back(self) -> bool:
        return False

    def materialized_host_hit_len(self) -> int:
        return 0

    def fulfilled_storage_hit_len(self, _: int) -> int:
        return 0


class Both(sglang.SGLangScheduler):
    """kvbudget's scheduler, which asks SGLang's code before it decides."""

    theirs: Theirs
    admitted = chunks = retracted = 0

    def _schedule_prompts(self) -> tuple[dict[Sequence, int], list[tuple[Sequence, int]]]:
        expected = self._their_prompts()
        got = super()._schedule_prompts()
        mine = [(request.index, self._held[request].end - new, new) for request, new in got[0].items()]
        decided = (mine, self._chunked.index if self._chunked else None, self._full)
        if decided != expected:
            raise ValueError(f"prompts: {decided}, SGLang: {expected}")
        Both.admitted += len(got[1])
        Both.chunks += len(got[0]) - len(got[1])
        return got

    def _their_prompts(self) -> tuple[list[tuple[int, int, int]], int | None, bool]:
        chosen, chunked = self.settings, self._chunked
        full = self._full and bool(self._batch)
        seats = chosen.max_running_requests - len(self._batch)
        number = chunked.index if chunked else None
        if (full or not self.waiting) and chunked is None:
            return [], number, full
        if seats <= 0 and chunked is None:
            return [], number, True
        pool = Pool(self, self.theirs)
        running = types.SimpleNamespace(reqs=[TheirRequest(self, request) for request in self._batch])
        chunk_size = None if chosen.chunked_prefill_size == -1 else chosen.chunked_prefill_size
        adder = self.theirs.policy.PrefillAdder(
            self._page, pool, pool, running, self._ratio.current, chosen.max_prefill_tokens, chunk_size
        )
        verdicts = self.theirs.policy.AddReqResult
        left = adder.add_chunked_req(TheirRequest(self, chunked)) if chunked else None
        for request in self.waiting:
            if adder.budget_state() == verdicts.OTHER:
                break
            full = full or len(adder.can_run_list) >= seats
            if full:
                break
            candidate = TheirRequest(self, request, self._find(request))
            verdict = adder.add_one_req(candidate, has_chunked_req=left is not None, truncation_align_size=None)
            if verdict == verdicts.NO_TOKEN:
                full = bool(adder.can_run_list or self._batch)
            if verdict != verdicts.CONTINUE:
                break
        for each in adder.can_run_list:
            if each.lock is not None:
                self._tree.unlock(each.lock)
        left = adder.new_chunked_req or left
        taken = [(each.mine.index, each.prefix_len, each.extend_len) for each in adder.can_run_list]
        return taken, left.mine.index if left else None, full

    def _make_room(self) -> list[Sequence]:
        before = list(self._batch)
        requests = [TheirRequest(self, request) for request in before]
        order = [before[i] for i in self.theirs.batch.ScheduleBatch._get_decode_retraction_order(requests)]
        got = super()._make_room()
        if got:
            kept = [TheirRequest(self, request) for request in self._batch]
            ratio = self.theirs.ratio.NewTokenRatioTracker.estimate_new_token_ratio_after_retract(kept)
            if got != order[::-1][: len(got)] or ratio != self._ratio.current:
                raise ValueError(f"retracted {got} of {order}, ratio {self._ratio.current}, SGLang: {ratio}")
            Both.retracted += len(got)
        return got


def compare_decisions(seed: int) -> None:
    """Run a random trace through both."""
    rng = random.Random(seed)
    chosen = sglang.SGLangSettings(
        rng.choice([600, 1500, 4000]),
        512,
        rng.choice([1, 1, 1, 16]),
        rng.choice([4, 16, 64]),
        rng.choice([-1, 64, 128, 512]),
        rng.choice([16384, 300]),
        rng.choice([0.1, 1.0, 1.3]),
        disable_radix_cache=rng.random() < 0.2,
        max_tokens=rng.choice([0, 0, 200]),
    )
    every, shared = rng.choice([0, 0.02]), rng.choice([40, 90])
    requests = [
        Request(i * every, rng.randint(1, 480), rng.randint(1, 200), (Segment(1 + i % 3, shared),)) for i in range(60)
    ]
    simulate(requests, chosen, StepTime(10, 20))


def compare_trees(theirs: Theirs, seed: int) -> int:
    """Do the same to both trees at random; return how many operations were compared."""
    rng = random.Random(seed)
    page = rng.choice([1, 1, 4])
    tree = theirs.cache.RadixCache.create_simulated(page_size=page, mock_allocator=MagicMock())
    mine = RadixCache(page)
    prefixes, ids, locked = Prefixes(), {}, []  # type: ignore[var-annotated]
    strings: list[tuple[Keys, array[int]]] = []
    for index in range(8):
        segments = tuple(Segment(rng.randint(1, 2), rng.choice([3, 8, 15])) for _ in range(rng.randint(0, 3)))
        total = sum(segment.tokens for segment in segments) + rng.randint(1, 20)
        keys = Keys(prefixes, Request(0, total, 1, segments), index)
        strings.append((keys, array("q", [ids.setdefault(keys.of(end), len(ids)) for end in range(1, total + 1)])))
    for number in range(60):
        keys, tokens = rng.choice(strings)
        count = rng.randint(1, len(tokens))
        named = theirs.cache.RadixKey(tokens[:count], None)
        action = rng.choice(["insert", "insert", "find", "lock", "unlock", "evict"])
        pair = (0, 0)
        if action == "insert" and (whole := count // page * page):
            named, values = theirs.cache.RadixKey(tokens[:whole], None), theirs.torch.arange(whole)
            found = tree.insert(theirs.params.InsertParams(key=named, value=values))
            pair = (found.prefix_len, mine.insert(keys, whole)[0])
        elif action == "find":
            found = tree.match_prefix(theirs.params.MatchPrefixParams(key=named))
            pair = (found.device_prefix_len, mine.find(keys, count).end)
        elif action == "lock":
            node = tree.match_prefix(theirs.params.MatchPrefixParams(key=named)).last_device_node
            locked.append((node, mine.find(keys, count)))
            tree.inc_lock_ref(node)
            mine.lock(locked[-1][1])
        elif action == "unlock" and locked:
            node, own = locked.pop(rng.randrange(len(locked)))
            tree.dec_lock_ref(node)
            mine.unlock(own)
        elif action == "evict":
            found = tree.evict(theirs.params.EvictParams(num_tokens=count))
            pair = (found.num_tokens_evicted, mine.evict(count))
        if pair[0] != pair[1] or (tree.evictable_size(), tree.protected_size()) != (mine.evictable, mine.protected):
            raise ValueError(f"seed {seed}, operation {number} ({action} {count}): {pair}")
    return 60


def main(arguments: Seq[str] | None = None) -> None:
    """Compare, and print how much was compared; the first difference is an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True, help="a folder with SGLang's package")
    parser.add_argument("--cases", type=int, default=100)
    options = parser.parse_args(arguments)
    theirs = Theirs(options.source)
    operations = sum(compare_trees(theirs, seed) for seed in range(3 * options.cases))
    print(f"radix cache: {operations:,} operations equal")
    Both.theirs = theirs
    sglang.SGLangScheduler = Both  # type: ignore[misc]
    for seed in range(options.cases):
        compare_decisions(seed)
    print(
        f"{options.cases} traces: {Both.admitted:,} prompts admitted, {Both.chunks:,} chunks continued and "
        f"{Both.retracted:,} requests retracted as SGLang's own code does"
    )


if __name__ == "__main__":
    main()
