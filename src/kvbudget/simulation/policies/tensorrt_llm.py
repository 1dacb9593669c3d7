"""TensorRT-LLM's two policies: room for all that a request may become, or as many as fit now and pauses later.

Read in the source of TensorRT-LLM of 2026 and not run against it: batch_manager/capacityScheduler.cpp (who has memory
for a step), _torch/pyexecutor/scheduler/scheduler.py (PyMicroBatchScheduler: who is part of it), batch_manager/
kvCacheManager.cpp (getRemainingBlocksToCompletion, getNeededBlocksOneStep, addSequence), llmRequest.h (pause).
Modelled: GUARANTEED_NO_EVICT, MAX_UTILIZATION, whole and chunked contexts (first come first served), reuse of whole
blocks with eviction of the least recently used, requests held back while an earlier one computes their beginning.
Not modelled: the overlapped executor (a request gives its blocks back a step later there), EQUAL_PROGRESS, the static
batch, reuse of parts of blocks, beams, drafts, adapters, windows, host memory, attention data parallelism. A workload
says how much a request generates and not what it asks for; where `max_tokens` is 0 it asks for just that, so that
GUARANTEED_NO_EVICT admits more than for requests that end early.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kvbudget.errors import InputError
from kvbudget.facts import policies as facts
from kvbudget.simulation.policies.steps import advance, check_counts
from kvbudget.simulation.pool import BLANK, Block, BlockPool
from kvbudget.simulation.scheduler import Scheduled

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kvbudget.facts.policies import Words
    from kvbudget.simulation.prefixes import Key
    from kvbudget.simulation.sequence import Sequence

CapacityPolicy = Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"]


class TensorRTLLMSettings(NamedTuple):
    """A scheduler's choices, spelled as the flags of trtllm-serve; the defaults are those of 2026.

    Attributes:
        num_blocks: Blocks of the pool.
        tokens_per_block: Tokens of a block.
        max_seq_len: Tokens of a request.
        max_batch_size: Requests that the engine works on at a time.
        max_num_tokens: Tokens of a step.
        capacity_scheduler_policy: Whether a request is admitted only if all that it may become fits.
        enable_chunked_prefill: Whether a prompt may take several steps; longer ones than a step are refused otherwise.
        enable_block_reuse: Whether blocks are kept for later requests after they are freed.
        max_tokens: Tokens that each request asks for at most; 0 for what it generates.
    """

    num_blocks: int
    tokens_per_block: int = facts.TOKENS_PER_BLOCK
    max_seq_len: int = 8192
    max_batch_size: int = facts.MAX_BATCH_SIZE
    max_num_tokens: int = facts.MAX_NUM_TOKENS
    capacity_scheduler_policy: CapacityPolicy = "GUARANTEED_NO_EVICT"
    enable_chunked_prefill: bool = False
    enable_block_reuse: bool = True
    max_tokens: int = 0

    @property
    def words(self) -> Words:
        """How the policy is spoken of."""
        return facts.NO_EVICT if self.capacity_scheduler_policy == "GUARANTEED_NO_EVICT" else facts.MAX_UTILIZATION

    @property
    def seats(self) -> int:
        """Requests that run at a time."""
        return self.max_batch_size

    @property
    def max_model_len(self) -> int:
        """Tokens of a request."""
        return self.max_seq_len

    @property
    def max_prompt_len(self) -> int:
        """Tokens of a prompt."""
        longest = self.max_seq_len - 1
        return longest if self.enable_chunked_prefill else min(longest, self.max_num_tokens)

    @property
    def usable_blocks(self) -> int:
        """Blocks of the pool."""
        return self.num_blocks

    @property
    def enable_prefix_caching(self) -> bool:
        """Whether blocks are kept."""
        return self.enable_block_reuse

    @property
    def batches_in_flight(self) -> int:
        """One, as with disable_overlap_scheduler."""
        return 1

    def with_seats(self, seats: int) -> TensorRTLLMSettings:
        """Return the same with another number of seats."""
        return self._replace(max_batch_size=seats)

    def to_dict(self) -> dict[str, Any]:
        """Return them as plain data."""
        return self._asdict()

    def check(self) -> None:
        """Refuse settings with which the engine would not start, or would never end.

        Raises:
            InputError: A number is out of its range, or the longest request does not fit in the pool or in a step.
        """
        check_counts(self, ("num_blocks", "tokens_per_block", "max_seq_len", "max_batch_size", "max_num_tokens"))
        if self.capacity_scheduler_policy not in ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION"):
            raise InputError(
                f"capacity_scheduler_policy is {self.capacity_scheduler_policy!r}; give GUARANTEED_NO_EVICT or "
                "MAX_UTILIZATION."
            )
        need = -(-self.max_seq_len // self.tokens_per_block)
        if need > self.num_blocks:
            raise InputError(
                f"One request of max_seq_len {self.max_seq_len} needs {need} blocks and the pool has "
                f"{self.num_blocks}; shorten max_seq_len or give more blocks."
            )
        if self.enable_chunked_prefill and self.max_num_tokens < self.tokens_per_block:
            raise InputError(
                f"max_num_tokens is {self.max_num_tokens}, less than tokens_per_block ({self.tokens_per_block}), which "
                "is the smallest part of a chunked prompt."
            )
        pauses = self.capacity_scheduler_policy == "MAX_UTILIZATION"
        if pauses and not self.enable_chunked_prefill and self.max_num_tokens < self.max_seq_len:
            raise InputError(
                f"max_num_tokens is {self.max_num_tokens}, less than max_seq_len ({self.max_seq_len}); a request that "
                "was paused computes all its tokens again, which must fit in one step without chunked prefill."
            )

    def scheduler(self) -> TensorRTLLMScheduler:
        """Return a scheduler that begins with nothing."""
        return TensorRTLLMScheduler(self)


class TensorRTLLMScheduler:
    """The scheduler's state between steps."""

    def __init__(self, settings: TensorRTLLMSettings) -> None:
        self.settings = settings
        self.pool = BlockPool(settings.num_blocks + 1)
        self._size = settings.tokens_per_block
        self._active: list[Sequence] = []
        self._queue: deque[Sequence] = deque()
        self._tables: dict[Sequence, list[Block]] = {}
        self._contexts: set[Sequence] = set()

    @property
    def running(self) -> Collection[Sequence]:
        """The requests that hold blocks."""
        return self._tables.keys()

    @property
    def waiting(self) -> range:
        """The requests that do not, active or not, as a count."""
        return range(len(self._active) + len(self._queue) - len(self._tables))

    @property
    def used_blocks(self) -> int:
        """Blocks that requests hold."""
        return self.pool.used

    @property
    def has_work(self) -> bool:
        """Whether somebody runs or waits."""
        return bool(self._active or self._queue)

    def add(self, request: Sequence) -> None:
        """Let a request wait."""
        self._queue.append(request)

    def schedule(self) -> Scheduled:
        """Return the next step."""
        while self._queue and len(self._active) < self.settings.max_batch_size:
            self._active.append(self._queue.popleft())
        if self.settings.capacity_scheduler_policy == "MAX_UTILIZATION":
            fitting, paused = self._max_utilization()
        else:
            fitting, paused = self._no_evict(), []
        for request in paused:
            self._free(request)
            request.computed = 0
            request.preemptions += 1
        tokens = self._micro_batch(fitting)
        self._contexts = {request for request in tokens if not self._generates(request)}
        admitted = []
        for request, new in tokens.items():
            if request not in self._tables:
                admitted.append((request, self._begin(request)))
            self._grow(request, request.computed + new)
        return Scheduled(tokens, advance(tokens), tuple(paused), tuple(admitted))

    # -- who has the memory for a step

    def _no_evict(self) -> list[Sequence]:
        """Take those who generate, then others in order as long as all that they may become fits as well."""
        available = self.pool.free
        fitting, pending = [], []
        for request in self._active:
            if self._generates(request):
                fitting.append(request)
                available -= self._to_completion(request)
            else:
                pending.append(request)
        contributed = self._contributed()
        for request in pending:
            if self._is_held_back(request, contributed):
                continue
            need = self._to_completion(request)
            if need > available:
                break
            fitting.append(request)
            available -= need
        return fitting

    def _max_utilization(self) -> tuple[list[Sequence], list[Sequence]]:
        """Take requests in order as long as their next step fits; where it does not, pause those that began last."""
        fitting: list[Sequence] = []
        paused: list[Sequence] = []
        free, taken = self.pool.free, 0
        gone: dict[Block, int] = {}
        contributed = self._contributed()
        at, end = 0, len(self._active)
        while at < end:
            request = self._active[at]
            if self._is_held_back(request, contributed):
                at += 1
                continue
            need = self._next_step(request, gone)
            if taken + need <= free:
                fitting.append(request)
                taken += need
                at += 1
                continue
            last = next((i for i in range(end - 1, at - 1, -1) if self._active[i] in self._tables), None)
            if last is None:
                break
            victim = self._active[last]
            for block in self._tables[victim]:
                if block is not BLANK:
                    gone[block] = gone.get(block, 0) + 1
                free += block is BLANK or gone[block] == block.holders
            paused.append(victim)
            end = last
        return fitting, paused

    def _generates(self, request: Sequence) -> bool:
        return request in self._tables and not request.prefilling

    def _asked(self, request: Sequence) -> int:
        """Return the tokens that a request may have at its end."""
        most = min(request.prompt_tokens + self.settings.max_tokens, self.settings.max_seq_len)
        return max(request.last_token, most)

    def _to_completion(self, request: Sequence) -> int:
        """Return the blocks that a request takes until its end, without those that it shares with others."""
        table = self._tables.get(request)
        return -(-self._asked(request) // self._size) - (self._shared(request, {}) if table is None else len(table))

    def _next_step(self, request: Sequence, gone: Mapping[Block, int]) -> int:
        """Return the blocks that a step takes: those of the whole prompt for its first part, none for the others."""
        if request not in self._tables:
            return -(-request.tokens // self._size) - self._shared(request, gone)
        if request.prefilling:
            return 0
        return -(-(request.computed + 1) // self._size) - len(self._tables[request])

    # -- prefixes

    def _found(self, request: Sequence) -> list[Block]:
        """Return the blocks that are there of what a request begins with; at least a token is computed."""
        if not self.settings.enable_block_reuse:
            return []
        blocks: list[Block] = []
        for end in range(self._size, request.tokens, self._size):
            block = self.pool.find(0, request.keys.of(end))
            if block is None:
                break
            blocks.append(block)
        return blocks

    def _shared(self, request: Sequence, gone: Mapping[Block, int]) -> int:
        """Return how many of those blocks others hold (reusableBlocksAllocated), without those who are paused."""
        return sum(block.holders > gone.get(block, 0) for block in self._found(request))

    def _first_new(self, request: Sequence) -> Key | None:
        """Return the first whole block of a prompt that is not there, None if all are."""
        for end in range(self._size, request.tokens + 1, self._size):
            key = request.keys.of(end)
            if self.pool.find(0, key) is None:
                return key
        return None

    def _contributed(self) -> set[Key]:
        """Return the blocks that prompts on their way will add first."""
        if not self.settings.enable_block_reuse:
            return set()
        begun = (request for request in self._tables if request.prefilling)
        return {key for request in begun if (key := self._first_new(request)) is not None}

    def _is_held_back(self, request: Sequence, contributed: set[Key]) -> bool:
        """Return whether a prompt waits for what an earlier one adds; note what it adds itself if not."""
        if request in self._tables or not self.settings.enable_block_reuse:
            return False
        key = self._first_new(request)
        if key is None:
            return False
        if key in contributed:
            return True
        contributed.add(key)
        return False

    # -- who is part of it

    def _micro_batch(self, fitting: list[Sequence]) -> dict[Sequence, int]:
        settings = self.settings
        tokens: dict[Sequence, int] = {}
        chunked: list[tuple[Sequence, int]] = []
        budget = settings.max_num_tokens
        for request in fitting:
            if len(tokens) + len(chunked) >= settings.max_batch_size:
                break
            if self._generates(request):
                new = 1
            else:
                new = request.tokens - (request.computed or len(self._found(request)) * self._size)
                if settings.enable_chunked_prefill:
                    chunked.append((request, new))
                    continue
            if new > budget:
                break
            tokens[request] = new
            budget -= new
        for request, left in chunked:
            new = left if left <= budget else budget // self._size * self._size
            if new:
                tokens[request] = new
                budget -= new
        return tokens

    # -- blocks

    def _begin(self, request: Sequence) -> int:
        """Hold the blocks of a whole prompt, and return how many of its tokens were found."""
        found = self._found(request)
        self.pool.hold(found)
        self._tables[request] = [*found]
        self._grow(request, request.tokens)
        request.computed = len(found) * self._size
        return request.computed

    def _grow(self, request: Sequence, tokens: int) -> None:
        table = self._tables[request]
        lacking = max(0, -(-tokens // self._size) - len(table))
        self.pool.take(lacking)
        table += [BLANK] * lacking

    def _keep(self, request: Sequence) -> None:
        """Let the whole blocks of what is computed be found, unless the same were already."""
        if not self.settings.enable_block_reuse:
            return
        table = self._tables[request]
        for number in range(request.computed // self._size):
            end = (number + 1) * self._size
            if table[number] is BLANK and self.pool.find(0, key := request.keys.of(end)) is None:
                table[number] = self.pool.keep(0, key, BLANK, end)

    def _free(self, request: Sequence) -> None:
        self._keep(request)
        self.pool.give_back(self._tables.pop(request)[::-1])

    def finish(self, step: Scheduled) -> list[Sequence]:
        """Take in the tokens of a step that is done, and return the requests that end with them."""
        ended = []
        for request in step.yields:
            request.tokens += 1
            if request.tokens >= request.last_token:
                self._free(request)
                ended.append(request)
            elif request in self._contexts:
                self._keep(request)
        if ended:
            over = set(ended)
            self._active = [request for request in self._active if request not in over]
        return ended
