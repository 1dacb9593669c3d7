"""SGLang's scheduler: prompts first, room kept for a share of what will be generated, retraction where that was wrong.

Read in the source of SGLang 0.5.23: managers/scheduler.py (get_next_batch_to_run, update_running_batch), managers/
schedule_policy.py (PrefillAdder), managers/schedule_batch.py (retract_decode), mem_cache/prefill_budget.py,
scheduler_components/new_token_ratio_tracker.py. Which prompts are taken and how much of each, the order of retraction,
the ratio and the radix cache are those of the engine's own classes (bench/sglang_policy.py); the loop around them and
a whole server were not run.
Modelled: first come first served, one chunked prompt at a time, no mixed batches, the radix cache with eviction of
the least recently used leaves, retraction by length, retracted requests at the end of the queue.
Not modelled: the overlapped loop (a request gives its memory back a step later there), other orders of the queue,
priorities, drafts, sliding windows and states, tiers of cache in host memory, data parallel attention, the refreshing
of prefixes that wait. A workload says how much a request generates and not what it asks for; where `max_tokens` is 0 it
asks for just that, so that room is kept for less than where requests end early.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.errors import InputError
from kvbudget.facts import policies as facts
from kvbudget.simulation.policies.radix import Node, RadixCache
from kvbudget.simulation.policies.steps import advance, check_counts
from kvbudget.simulation.scheduler import Scheduled

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from kvbudget.facts.policies import Words
    from kvbudget.simulation.sequence import Sequence


class SGLangSettings(NamedTuple):
    """A scheduler's choices, spelled as SGLang's flags; the defaults are those of 0.5.23.

    Attributes:
        max_total_num_tokens: Tokens of the pool.
        context_length: Tokens of a request.
        page_size: Tokens of a page.
        max_running_requests: Requests that run at a time.
        chunked_prefill_size: Prompt tokens of a step, -1 for whole prompts.
        max_prefill_tokens: Prompt tokens of a step beyond which no further prompt is taken.
        schedule_conservativeness: Scales the room that admission keeps.
        disable_radix_cache: Forget prefixes.
        max_tokens: Tokens that each request asks for at most; 0 for what it generates.
    """

    max_total_num_tokens: int
    context_length: int = 8192
    page_size: int = 1
    max_running_requests: int = facts.RUNNING_REQUESTS[0]
    chunked_prefill_size: int = 8192
    max_prefill_tokens: int = facts.MAX_PREFILL_TOKENS
    schedule_conservativeness: float = 1.0
    disable_radix_cache: bool = False
    max_tokens: int = 0

    @property
    def words(self) -> Words:
        """How the policy is spoken of."""
        return facts.SGLANG if self.page_size > 1 else facts.SGLANG._replace(unit="tokens")

    @property
    def seats(self) -> int:
        """Requests that run at a time."""
        return self.max_running_requests

    @property
    def max_req_len(self) -> int:
        """The engine's longest request (tp_worker.py)."""
        return min(self.context_length, self.max_total_num_tokens) - 1

    @property
    def max_model_len(self) -> int:
        """Tokens of a request; with pages of several tokens a full pool's request would wait forever, so it is cut."""
        return min(self.max_req_len - 1, self.usable_blocks * self.page_size - self.page_size - 1)

    @property
    def max_prompt_len(self) -> int:
        """Tokens of a prompt."""
        return self.max_req_len - facts.INPUT_RESERVE - 1

    @property
    def usable_blocks(self) -> int:
        """Pages of the pool."""
        return self.max_total_num_tokens // self.page_size

    @property
    def enable_prefix_caching(self) -> bool:
        """Whether prefixes are kept."""
        return not self.disable_radix_cache

    @property
    def batches_in_flight(self) -> int:
        """One, as with --disable-overlap-schedule."""
        return 1

    def with_seats(self, seats: int) -> SGLangSettings:
        """Return the same with another number of seats."""
        return self._replace(max_running_requests=seats)

    def to_dict(self) -> dict[str, Any]:
        """Return them as plain data."""
        return self._asdict()

    def check(self) -> None:
        """Refuse what the engine refuses.

        Raises:
            InputError: A number is out of its range.
        """
        names = ("max_total_num_tokens", "context_length", "page_size", "max_running_requests", "max_prefill_tokens")
        check_counts(self, names)
        if self.chunked_prefill_size != -1 and (
            self.chunked_prefill_size < 1 or self.chunked_prefill_size % self.page_size
        ):
            raise InputError(
                f"chunked_prefill_size is {self.chunked_prefill_size!r}; give a multiple of page_size "
                f"({self.page_size}), or -1 for whole prompts."
            )
        if not 0 < self.schedule_conservativeness < float("inf"):
            raise InputError(f"schedule_conservativeness is {self.schedule_conservativeness!r}; give a number above 0.")
        if self.max_prompt_len < 1 or self.max_model_len < 2:  # noqa: PLR2004 - a prompt and an answer
            raise InputError(
                f"A pool of {self.max_total_num_tokens} tokens and a context of {self.context_length} leave no room "
                "for a request; give more of both."
            )

    def scheduler(self) -> SGLangScheduler:
        """Return a scheduler that begins with nothing."""
        return SGLangScheduler(self)


class NewTokenRatio:
    """The share of what running requests may still generate for which admission keeps room."""

    __slots__ = ("_decay", "_init", "_least", "current")

    def __init__(self, conservativeness: float) -> None:
        self._init = min(facts.INIT_NEW_TOKEN_RATIO * conservativeness, 1.0)
        self._least = min(self._init * facts.MIN_NEW_TOKEN_RATIO_FACTOR, 1.0)
        self._decay = (self._init - self._least) / facts.NEW_TOKEN_RATIO_DECAY_STEPS
        self.current = self._init

    def decay(self) -> None:
        """Trust a little more that requests end early."""
        self.current = max(self.current - self._decay, self._least)

    def reset(self) -> None:
        """Begin anew, as an idle engine does."""
        self.current = self._init

    def after_retraction(self, generated: int, asked: int, requests: int) -> None:
        """Learn from those that go on how much is generated of what is asked."""
        self.current = min(1.0, (generated + facts.RETRACT_DECODE_STEPS * requests) / (asked + 1))


class _Held:
    """What a request holds: `end` tokens, the first `protected` of them in the tree under `node`."""

    __slots__ = ("end", "node", "protected")

    def __init__(self, node: Node) -> None:
        self.node = node
        self.end = self.protected = node.end


class _Prefill:
    """What a step of prompts may still take (PrefillAdder and PrefillBudget)."""

    __slots__ = ("chunk", "current_offset", "input", "page", "total_offset")

    def __init__(self, settings: SGLangSettings, reserved: float) -> None:
        self.page = settings.page_size
        self.input = settings.max_prefill_tokens
        self.chunk = None if settings.chunked_prefill_size == -1 else settings.chunked_prefill_size
        self.total_offset = reserved
        self.current_offset = 0

    def reserve(self, new: int, to_come: int) -> None:
        whole = _up(new, self.page)
        self.total_offset += whole + self.page + to_come
        self.current_offset += whole + self.page
        self.input -= whole
        if self.chunk is not None:
            self.chunk -= whole

    @property
    def spent(self) -> bool:
        return self.input <= 0 or (self.chunk is not None and self.chunk <= 0)


class SGLangScheduler:
    """The scheduler's state between steps."""

    def __init__(self, settings: SGLangSettings) -> None:
        self.settings = settings
        self.waiting: deque[Sequence] = deque()
        self._batch: list[Sequence] = []
        self._prefilled: list[Sequence] = []
        self._chunked: Sequence | None = None
        self._full = False
        self._ratio = NewTokenRatio(settings.schedule_conservativeness)
        self._page = settings.page_size
        self._free = settings.usable_blocks * self._page
        self._tree = RadixCache(self._page)
        self._held: dict[Sequence, _Held] = {}
        self._failed: list[Sequence] = []

    @property
    def running(self) -> Collection[Sequence]:
        """The requests that hold memory."""
        return self._held.keys()

    @property
    def used_blocks(self) -> int:
        """Pages that requests hold; those of the tree that nobody uses count as free."""
        return self.settings.usable_blocks - (self._free + self._tree.evictable) // self._page

    @property
    def has_work(self) -> bool:
        """Whether somebody runs or waits."""
        return bool(self._held or self.waiting)

    def add(self, request: Sequence) -> None:
        """Let a request wait."""
        if not self.has_work:
            self._ratio.reset()
        self.waiting.append(request)

    def schedule(self) -> Scheduled:
        """Return the next step: prompts where some can be taken, else a token of each running request."""
        if self._chunked is not None:
            self._keep(self._chunked)
            self._full = False  # the batch of the last step is smaller without it
        self._batch += self._prefilled
        self._prefilled = []
        tokens, admitted = self._schedule_prompts()
        retracted: list[Sequence] = []
        if not tokens:
            retracted = self._make_room()
            for request in self._batch:
                self._extend(request, 1)
                tokens[request] = 1
        return Scheduled(tokens, advance(tokens), tuple(retracted), tuple(admitted))

    # -- prompts

    def _schedule_prompts(self) -> tuple[dict[Sequence, int], list[tuple[Sequence, int]]]:
        tokens: dict[Sequence, int] = {}
        admitted: list[tuple[Sequence, int]] = []
        if not self._batch:
            self._full = False
        if (self._full or not self.waiting) and self._chunked is None:
            return tokens, admitted
        seats = self.settings.max_running_requests - len(self._batch)
        if seats <= 0 and self._chunked is None:
            self._full = True
            return tokens, admitted
        adder = _Prefill(self.settings, sum(map(self._to_come, self._batch)) * self._ratio.current)
        if self._chunked is not None:
            self._continue(self._chunked, adder, tokens)
        admitted += self._take_waiting(adder, tokens, seats)
        for request, new in tokens.items():
            self._extend(request, new)
        self._prefilled = [request for request in tokens if request is not self._chunked]
        return tokens, admitted

    def _take_waiting(self, adder: _Prefill, tokens: dict[Sequence, int], seats: int) -> Iterator[tuple[Sequence, int]]:
        """Yield the prompts that are taken in order, and how many tokens of each were found."""
        while self.waiting and not self._is_spent(adder):
            if len(tokens) >= seats:
                self._full = True
            if self._full:
                return
            request = self.waiting[0]
            found = self._admit(request, adder, tokens)
            if found is None:
                return
            yield self.waiting.popleft(), found
            if not self._has_capacity(adder):
                self._full = True

    def _to_come(self, request: Sequence) -> int:
        """Return the tokens that a running request may still generate, as far as they are counted."""
        return min(self._asked(request) - generated(request), facts.CLIP_MAX_NEW_TOKENS)

    def _asked(self, request: Sequence) -> int:
        asked = request.last_token - request.prompt_tokens
        if self.settings.max_tokens:
            asked = max(asked, min(self.settings.max_tokens, self.settings.max_model_len - request.prompt_tokens))
        return asked

    def _remaining(self, offset: float) -> float:
        return self._free + self._tree.evictable - offset

    def _has_capacity(self, adder: _Prefill) -> bool:
        return self._remaining(adder.total_offset) > 0 and self._remaining(adder.current_offset) > 0

    def _is_spent(self, adder: _Prefill) -> bool:
        return self._has_capacity(adder) and adder.spent

    def _continue(self, request: Sequence, adder: _Prefill, tokens: dict[Sequence, int]) -> None:
        """Take the next part of the prompt that was begun."""
        chunk = self.settings.chunked_prefill_size
        left = request.tokens - request.computed
        most = min(chunk, int(self._remaining(adder.total_offset)))
        new = min(left, most if most > 0 else chunk)
        to_come = 0 if new < left else min(self._asked(request), facts.CLIP_MAX_NEW_TOKENS)
        adder.reserve(new, to_come)
        tokens[request] = new
        if new == left:
            self._chunked = None

    def _admit(self, request: Sequence, adder: _Prefill, tokens: dict[Sequence, int]) -> int | None:
        """Take a prompt that waited; return how many of its tokens were found, None if it must wait."""
        node = self._find(request)
        left = request.tokens - node.end
        asked = self._asked(request)
        to_come = min(max(asked - generated(request), 0), facts.CLIP_MAX_NEW_TOKENS)
        self._tree.lock(node)
        if left + to_come + self._page >= self._remaining(adder.total_offset):
            self._tree.unlock(node)
            self._full = bool(tokens or self._batch)
            return None
        new, to_come = left, min(asked, facts.CLIP_MAX_NEW_TOKENS)
        if adder.chunk is None:
            if tokens and _up(left, self._page) >= adder.input:
                new = 0
        elif _up(left, self._page) > adder.chunk:
            new, to_come = (node.end + adder.chunk) // self._page * self._page - node.end, 0
        if new <= 0:
            self._tree.unlock(node)
            return None
        if new < left:
            self._chunked = request
        adder.reserve(new, to_come)
        tokens[request] = new
        request.computed = node.end
        self._held[request] = _Held(node)
        return node.end

    def _find(self, request: Sequence) -> Node:
        most = 0 if self.settings.disable_radix_cache else request.tokens - 1
        return self._tree.find(request.keys, most)

    # -- memory

    def _extend(self, request: Sequence, new: int) -> None:
        """Take the pages for new tokens of a request; there is room for them."""
        held = self._held[request]
        more = _up(held.end + new, self._page) - _up(held.end, self._page)
        held.end += new
        self._evict_to(more)
        self._free -= more

    def _evict_to(self, tokens: int) -> None:
        """Give away what nobody uses until so many tokens are free, or nothing is left."""
        if tokens > self._free:
            self._free += self._tree.evict(tokens - self._free)

    def _keep(self, request: Sequence) -> None:
        """Let what a request has computed be found; what others had put there before is used instead of its own."""
        if self.settings.disable_radix_cache:
            return
        held = self._held[request]
        end = request.computed // self._page * self._page
        known, node = self._tree.insert(request.keys, end)
        boundary = request.prompt_tokens // self._page * self._page
        if 0 < boundary < end:
            self._tree.insert(request.keys, boundary)  # a node ends where the prompt does
        self._free += max(known - held.protected, 0)
        held.protected = end
        self._tree.lock(node)
        self._tree.unlock(held.node)
        held.node = node

    def _release(self, request: Sequence) -> None:
        """Take back all that a request holds."""
        held = self._held.pop(request)
        self._free += _up(held.end, self._page) - held.protected
        self._tree.unlock(held.node)

    # -- retraction

    def _fits(self, requests: list[Sequence]) -> bool:
        need = self._page * sum(self._held[request].end % self._page == 0 for request in requests)
        self._evict_to(need)
        return self._free >= need

    def _make_room(self) -> list[Sequence]:
        """Retract requests until all others can go on by a token, and return them.

        Those that have generated least go first, of those the longest prompts, of those the last ones.
        """
        if not self._batch:
            return []
        if self._fits(self._batch):
            self._ratio.decay()
            return []
        kept = sorted(self._batch, key=lambda request: (generated(request), -request.prompt_tokens), reverse=True)
        retracted: list[Sequence] = []
        while len(kept) > 1 and (not retracted or not self._fits(kept)):
            request = kept.pop()
            self._release(request)
            self._evict_to(len(kept) * facts.RETRACT_DECODE_STEPS)
            request.computed = 0
            request.preemptions += 1
            retracted.append(request)
        if not self._fits(kept):
            self._fail(kept.pop())
        self._batch = kept
        self._ratio.after_retraction(sum(map(generated, kept)), sum(map(self._asked, kept)), len(kept))
        self.waiting += retracted
        self._full = False
        return retracted

    def _fail(self, request: Sequence) -> None:
        """Give up a request for which the whole pool is too small; admission does not let it come to that."""
        self._release(request)
        request.failed = True
        self._failed.append(request)

    def finish(self, step: Scheduled) -> list[Sequence]:
        """Take in the tokens of a step that is done, and return the requests that end with them."""
        ended, self._failed = self._failed, []
        for request in step.yields:
            request.tokens += 1
            over = request.tokens >= request.last_token
            if over or self._prefilled:  # a step of prompts has no other requests
                self._keep(request)
            if over:
                self._release(request)
                ended.append(request)
        if ended:
            self._batch = [request for request in self._batch if request in self._held]
            self._prefilled = [request for request in self._prefilled if request in self._held]
            self._full = False
        return ended


def generated(request: Sequence) -> int:
    """Return how many tokens a request has generated."""
    return request.tokens - request.prompt_tokens


def _up(tokens: int, page: int) -> int:
    return -(-tokens // page) * page
