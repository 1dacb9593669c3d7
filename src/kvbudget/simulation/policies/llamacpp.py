"""llama.cpp's server: slots, first come first served, prompts and answers in one batch, no preemption.

Read in the source of llama.cpp of autumn 2026 (tools/server/server-context.cpp, server-queue.cpp) and not run against.
Modelled: slots with a context each or one that they share, the choice of a slot by the longest common prefix and else
the least recently used one, what a slot keeps of its last request, batches of -b tokens computed in parts of -ub, idle
slots that are cleared when a shared cache is full, and the error that all requests get when that is not enough.
Not modelled: prompts kept in host memory (as with --cache-ram 0), context shift (off by default; an answer ends with
its slot), sliding windows and states with their checkpoints, drafts, several answers to a prompt. Parts of a batch are
cut in the order of the slots also where each has a context of its own, of which the engine takes equal parts together.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.errors import InputError
from kvbudget.facts import policies as facts
from kvbudget.simulation.clock import Batch
from kvbudget.simulation.policies.steps import check_counts
from kvbudget.simulation.scheduler import Scheduled

if TYPE_CHECKING:
    from kvbudget.facts.policies import Words
    from kvbudget.simulation.prefixes import Keys
    from kvbudget.simulation.sequence import Sequence


class LlamaCppSettings(NamedTuple):
    """A server's choices, spelled as its flags without dashes; the defaults are its own.

    Attributes:
        ctx_size: Cells of the cache (-c), rounded up to 256 for each context.
        parallel: Slots (-np).
        kv_unified: Whether the slots share one context; else each has its part of it.
        n_ctx_train: Tokens of a request that the model was trained for.
        batch_size: Tokens of a round (-b).
        ubatch_size: Tokens that the device computes at once (-ub).
        cache_prompt: Whether a slot keeps what it computed for the next request.
        slot_prompt_similarity: The share of a prompt that a slot must have to be chosen for it; 0 never chooses so.
    """

    ctx_size: int
    parallel: int = facts.PARALLEL
    kv_unified: bool = True
    n_ctx_train: int = 8192
    batch_size: int = facts.N_BATCH
    ubatch_size: int = facts.N_UBATCH
    cache_prompt: bool = True
    slot_prompt_similarity: float = facts.SLOT_PROMPT_SIMILARITY

    @property
    def words(self) -> Words:
        """How the policy is spoken of."""
        return facts.LLAMA_CPP

    @property
    def seats(self) -> int:
        """Slots."""
        return self.parallel

    @property
    def n_ctx_seq(self) -> int:
        """Cells of a context (llama_context)."""
        return _padded(self.ctx_size if self.kv_unified else self.ctx_size // self.parallel)

    @property
    def max_model_len(self) -> int:
        """Tokens of a request; an answer ends where its slot does."""
        return min(self.n_ctx_seq, self.n_ctx_train)

    @property
    def max_prompt_len(self) -> int:
        """Tokens of a prompt."""
        return self.max_model_len - 1

    @property
    def usable_blocks(self) -> int:
        """Cells of all contexts."""
        return self.n_ctx_seq if self.kv_unified else self.n_ctx_seq * self.parallel

    @property
    def enable_prefix_caching(self) -> bool:
        """Whether slots keep what they computed."""
        return self.cache_prompt

    @property
    def batches_in_flight(self) -> int:
        """One."""
        return 1

    def with_seats(self, seats: int) -> LlamaCppSettings:
        """Return the same with another number of slots."""
        return self._replace(parallel=seats)

    def to_dict(self) -> dict[str, Any]:
        """Return them as plain data."""
        return self._asdict()

    def check(self) -> None:
        """Refuse what the server refuses.

        Raises:
            InputError: A number is out of its range.
        """
        check_counts(self, ("ctx_size", "parallel", "n_ctx_train", "batch_size", "ubatch_size"))
        if self.ubatch_size > self.batch_size:
            raise InputError(
                f"ubatch_size is {self.ubatch_size}, more than batch_size ({self.batch_size}), of which it is a part."
            )
        if not 0 <= self.slot_prompt_similarity <= 1:
            raise InputError(f"slot_prompt_similarity is {self.slot_prompt_similarity!r}; give a share from 0 to 1.")

    def scheduler(self) -> LlamaCppScheduler:
        """Return a server that begins with nothing."""
        return LlamaCppScheduler(self)


def _padded(cells: int) -> int:
    return -(-max(cells, 1) // facts.CELL_PADDING) * facts.CELL_PADDING


class _Slot:
    """A slot.

    Attributes:
        number: Its id.
        request: Whose it is, None while it is idle.
        begun: Whether the request's prompt has been looked at.
        over: Whether its answer is complete with the round in progress.
        cells: Tokens in the cache, of its request or left behind by the last one.
        keys: The prefixes of those tokens.
        used: When it was last released; larger is later.
    """

    __slots__ = ("begun", "cells", "keys", "number", "over", "request", "used")

    def __init__(self, number: int) -> None:
        self.number = number
        self.request: Sequence | None = None
        self.begun = self.over = False
        self.cells = 0
        self.keys: Keys | None = None
        self.used = -1

    def common(self, request: Sequence) -> int:
        """Return how many tokens of a prompt stand in the slot."""
        keys = self.keys
        if keys is None:
            return 0
        low, high = 0, min(self.cells, request.prompt_tokens)
        while low < high:
            middle = (low + high + 1) // 2
            if keys.of(middle) == request.keys.of(middle):
                low = middle
            else:
                high = middle - 1
        return low


class _Entry(NamedTuple):
    """Tokens of one slot in a batch: `start` computed before, `new` more."""

    slot: _Slot
    request: Sequence
    start: int
    new: int


class LlamaCppScheduler:
    """The server's state between rounds."""

    def __init__(self, settings: LlamaCppSettings) -> None:
        self.settings = settings
        self.waiting: deque[Sequence] = deque()
        self._slots = [_Slot(number) for number in range(settings.parallel)]
        self._failed: list[Sequence] = []
        self._releases = 0

    @property
    def running(self) -> list[_Slot]:
        """The slots that have a request."""
        return [slot for slot in self._slots if slot.request is not None]

    @property
    def used_blocks(self) -> int:
        """Cells of slots that have a request; what idle ones keep counts as free."""
        return sum(slot.cells for slot in self._slots if slot.request is not None)

    @property
    def has_work(self) -> bool:
        """Whether a slot is busy or somebody waits."""
        return bool(self.waiting) or any(slot.request is not None for slot in self._slots)

    def add(self, request: Sequence) -> None:
        """Let a request wait."""
        self.waiting.append(request)

    def schedule(self) -> Scheduled:
        """Return the next round (update_slots): a token of each answer, then prompts in the order of the slots."""
        while self.waiting and (slot := self._slot_for(self.waiting[0])) is not None:
            slot.request = self.waiting.popleft()
            slot.begun = False
        entries, admitted = self._batch()
        done, passes = self._decode(entries)
        yields = [request for _, request, start, new in done if start + new == request.tokens and not request.failed]
        tokens: dict[Sequence, int] = {}
        for entry in done:
            tokens[entry.request] = tokens.get(entry.request, 0) + entry.new
        return Scheduled(tokens, yields, (), tuple(pair for pair in admitted if pair[0] in tokens), tuple(passes))

    # -- slots

    def _slot_for(self, request: Sequence) -> _Slot | None:
        """Return the slot for a request (get_available_slot), None if all are busy."""
        idle = [slot for slot in self._slots if slot.request is None]
        if not idle:
            return None
        threshold = self.settings.slot_prompt_similarity
        chosen, best = None, 0.0
        for slot in idle if threshold else ():
            similarity = slot.common(request) / request.prompt_tokens
            if similarity > best and similarity > threshold:
                chosen, best = slot, similarity
        if chosen is None:
            chosen = min(idle, key=lambda slot: (slot.used, -slot.number))  # of several equal ones the last
        return chosen

    def _release(self, slot: _Slot) -> None:
        self._releases += 1
        slot.request, slot.over, slot.used = None, False, self._releases

    def _clear(self, slot: _Slot) -> None:
        slot.cells, slot.keys = 0, None

    # -- a round

    def _batch(self) -> tuple[list[_Entry], list[tuple[Sequence, int]]]:
        entries: list[_Entry] = []
        admitted: list[tuple[Sequence, int]] = []
        room = self.settings.batch_size
        busy = [(slot, slot.request) for slot in self._slots if slot.request is not None]
        for slot, request in busy:
            if slot.begun and not request.prefilling:
                entries.append(_Entry(slot, request, request.computed, 1))
                room -= 1
        for slot, request in busy:
            if room <= 0:
                break
            if slot.begun and not request.prefilling:
                continue
            if not slot.begun:
                admitted.append((request, self._begin(slot, request)))
            new = min(request.prompt_tokens - request.computed, room)
            entries.append(_Entry(slot, request, request.computed, new))
            room -= new
        return entries, admitted

    def _begin(self, slot: _Slot, request: Sequence) -> int:
        """Keep what a slot has of a prompt, all but its last token, and return how much that is."""
        found = min(slot.common(request), request.prompt_tokens - 1) if self.settings.cache_prompt else 0
        slot.begun = request.prefilling = True
        slot.cells, slot.keys = found, request.keys
        request.computed = found
        return found

    def _decode(self, entries: list[_Entry]) -> tuple[list[_Entry], list[Batch]]:
        """Compute a batch in views, smaller ones where cells run out; return what was computed, in which passes."""
        total = sum(entry.new for entry in entries)
        if total <= self.settings.ubatch_size and total <= self._free():
            self._computed(entries)
            return entries, []
        done: list[_Entry] = []
        passes: list[Batch] = []
        most = self.settings.batch_size
        rest = deque(entries)
        while rest:
            view = _first(rest, most)
            count = sum(entry.new for entry in view)
            if self._free() >= count:
                _drop(rest, count)
                passes += _passes(view, self.settings.ubatch_size)
                self._computed(view)
                done += view
                most = self.settings.batch_size
            elif not self._clear_idle():
                if most == 1:
                    self._fail_all()
                    break
                most //= 2
        return done, passes if len(passes) > 1 else []

    def _computed(self, view: list[_Entry]) -> None:
        """Count a view as computed; a slot whose answer is complete with it can be cleared from now on."""
        for slot, request, _, new in view:
            request.computed += new
            slot.cells = request.computed
            request.prefilling = request.computed < request.prompt_tokens
            slot.over = request.computed + 1 >= request.last_token

    def _free(self) -> int:
        """Return the cells that a view can take; a context of one slot is never too small for its request."""
        if not self.settings.kv_unified:
            return self.settings.usable_blocks
        return self.settings.usable_blocks - sum(slot.cells for slot in self._slots)

    def _clear_idle(self) -> bool:
        """Clear the first idle slot that keeps something (try_clear_idle_slots)."""
        for slot in self._slots:
            if (slot.request is None or slot.over) and slot.cells:
                self._clear(slot)
                return True
        return False

    def _fail_all(self) -> None:
        """End all requests with an error and forget what was computed: the shared context is exceeded."""
        for slot in self._slots:
            if slot.request is not None and not slot.over:
                slot.request.failed = True
                self._failed.append(slot.request)
                self._release(slot)
                self._clear(slot)

    def finish(self, step: Scheduled) -> list[Sequence]:
        """Take in the tokens of a round that is done, and return the requests that end with them."""
        ended, self._failed = self._failed, []
        for request in step.yields:
            request.tokens += 1
        for slot in self._slots:
            if slot.request is not None and slot.over:
                ended.append(slot.request)
                self._release(slot)
        return ended


def _first(entries: deque[_Entry], most: int) -> list[_Entry]:
    """Return the first `most` tokens of a batch."""
    view = []
    for entry in entries:
        if most <= 0:
            break
        view.append(entry._replace(new=min(entry.new, most)))
        most -= entry.new
    return view


def _drop(entries: deque[_Entry], count: int) -> None:
    """Take the first `count` tokens out of a batch."""
    while count:
        entry = entries.popleft()
        if entry.new > count:
            entries.appendleft(entry._replace(start=entry.start + count, new=entry.new - count))
            return
        count -= entry.new


def _passes(view: list[_Entry], ubatch_size: int) -> list[Batch]:
    """Return what the device computes one after the other."""
    rest = deque(view)
    passes = []
    while rest:
        part = _first(rest, ubatch_size)
        tokens = sum(entry.new for entry in part)
        _drop(rest, tokens)
        context = sum(entry.start + entry.new for entry in part)
        pairs = sum(entry.new * entry.start + entry.new * (entry.new + 1) // 2 for entry in part)
        passes.append(Batch(tokens, len(part), context, pairs))
    return passes
