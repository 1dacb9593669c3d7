"""The block tables of one group of layers, by what the layers keep of a request.

Source: vLLM 0.32, v1/core/single_type_kv_cache_manager.py. Not covered: drafts (EAGLE, MTP), context parallel ranks,
hits inside a block, connectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.simulation.pool import BLANK, GONE, OWN
from kvbudget.simulation.settings import admission_cap

if TYPE_CHECKING:
    from kvbudget.simulation.pool import Block, BlockPool, GroupKey
    from kvbudget.simulation.prefixes import Keys
    from kvbudget.simulation.sequence import Sequence
    from kvbudget.simulation.settings import Group, SchedulerSettings

Hit = list["Block"]
"""Blocks found for the beginning of a request, the null block where none is needed."""

NEVER = 1 << 62
"""More tokens than any request has."""


def cdiv(tokens: int, size: int) -> int:
    """Return how many blocks of `size` tokens hold `tokens`."""
    return -(-tokens // size)


class FullAttention:
    """Layers that keep everything; the rules that the other kinds change."""

    anonymous = True
    """Whether blocks that nobody else looks for need no names while a request holds them."""

    def __init__(self, number: int, group: Group, settings: SchedulerSettings, pool: BlockPool) -> None:
        self.number = number
        self.size = group.block_size
        self.limit = group.limit
        self.pool = pool
        self.caching = settings.enable_prefix_caching
        self.aligned = settings.scheduler_block_size
        self.cap = admission_cap(group, settings)
        self.tables: dict[int, list[Block]] = {}
        self.kept: dict[int, int] = {}

    def skipped(self, computed: int) -> int:
        """Return how many of a request's first `computed` tokens the next one does not see."""
        del computed
        return 0

    def lets_go_at(self, computed: int) -> int:
        """Return how many tokens must be computed, more than `computed`, before `let_go` gives back another block."""
        del computed
        return NEVER

    def find(self, keys: Keys, most: int, numbers: tuple[int, ...]) -> tuple[list[Hit], int]:
        """Return what is found of a request's first `most` tokens in each of `numbers`' tables, and how many tokens."""
        hits: list[Hit] = [[] for _ in numbers]
        for end in range(self.size, most + 1, self.size):
            blocks = self._all(keys, end, numbers)
            if blocks is None:
                break
            for hit, block in zip(hits, blocks, strict=True):
                hit.append(block)
        length = len(hits[0]) * self.size // self.aligned * self.aligned
        for hit in hits:
            del hit[length // self.size :]
        return hits, length

    def _all(self, keys: Keys, end: int, numbers: tuple[int, ...]) -> list[Block] | None:
        blocks = []
        key = keys.of(end)
        for number in numbers:
            block = self.pool.find(number, key)
            if block is None:
                return None
            blocks.append(block)
        return blocks

    def needs(self, request: Sequence, tokens: int, hit: Hit, computed: int, *, admission: bool) -> int:
        """Return the blocks that a request lacks to have room for `tokens` tokens.

        Args:
            request: The request.
            tokens: Tokens that need room, those that have it already included.
            hit: What was found of its beginning.
            computed: Tokens whose keys and values exist, the hit included.
            admission: Whether this asks for all of the request before its first step.
        """
        required = -(-tokens // self.size)
        if admission and self.cap is not None:
            required = min(required, self.cap)
        held = len(self.tables.get(request.index, ()))
        if request.index in self.kept:
            return max(required - held, 0)
        skipped = self.skipped(computed) // self.size
        new = max(required - max(skipped, len(hit) + held), 0)
        return new + (free_ones(hit[max(0, skipped - held) :]) if hit else 0)

    def adopt(self, request: Sequence, hit: Hit, computed: int) -> None:
        """Let a request begin with what was found, but for what its next token does not see."""
        skipped = max(self.skipped(computed) // self.size, 0)
        rest = hit[skipped:] if skipped else hit
        self.pool.hold(rest)
        self.tables[request.index] = [GONE] * skipped + rest
        self.kept[request.index] = skipped + len(rest)

    def grow(self, request: Sequence, tokens: int) -> None:
        """Give a request room for `tokens` tokens."""
        table = self.tables.get(request.index)
        if table is None:
            table = self.tables[request.index] = []
        lacking = -(-tokens // self.size) - len(table)
        if lacking == 1:
            self.pool.take(1)
            table.append(BLANK)
        elif lacking > 0:
            self.pool.take(lacking)
            table.extend([BLANK] * lacking)

    def keep(self, request: Sequence, tokens: int) -> None:
        """Let the full blocks of a request's first `tokens` tokens be found."""
        first, last = self.kept.get(request.index, 0), tokens // self.size
        if first >= last:
            return
        self.kept[request.index] = last
        self._keep_blocks(request, first, last)

    def _keep_blocks(self, request: Sequence, first: int, last: int) -> None:
        """Let those of a request's blocks from `first` to before `last` be found that can serve a hit."""
        table = self.tables[request.index]
        named = min(last, request.keys.shared // self.size) if self.anonymous else last
        for i in range(first, named):
            if table[i] is not GONE:
                end = (i + 1) * self.size
                table[i] = self.pool.keep(self.number, request.keys.of(end), table[i], end)
        for i in range(max(first, named), last):
            if table[i] is BLANK:
                table[i] = OWN

    def let_go(self, request: Sequence, computed: int) -> None:
        """Give back the blocks that a request does not need after `computed` tokens."""
        skipped = self.skipped(computed)
        if skipped > 0:
            table = self.tables.get(request.index, [])
            self._empty(request, table, min(skipped // self.size, len(table)))

    def _empty(self, request: Sequence, table: list[Block], end: int) -> None:
        first = end
        if first and table[first - 1] is BLANK and (first == 1 or table[first - 2] is GONE):  # as with every answer
            table[first - 1] = GONE
            self.pool.give_back_blank()
            return
        while first and table[first - 1] is not GONE:
            first -= 1
        if first < end:
            self._give_back(request, table, first, end)

    def _give_back(self, request: Sequence, table: list[Block], first: int, end: int) -> None:
        blocks = table[first:end]
        if OWN in blocks:
            self._name_own(request, table, first, end)
            blocks = table[first:end]
        blocks.reverse()
        table[first:end] = [GONE] * (end - first)
        self.pool.give_back(blocks)

    def _name_own(self, request: Sequence, table: list[Block], first: int, end: int) -> None:
        """Let blocks that nobody else looks for be found when the request is preempted and looks for them."""
        for i in range(first, end):
            if table[i] is OWN:
                tokens = (i + 1) * self.size
                table[i] = self.pool.keep(self.number, request.keys.of(tokens), OWN, tokens)

    def free(self, request: Sequence) -> None:
        """Give back all blocks of a request, its last one first."""
        self.kept.pop(request.index, None)
        table = self.tables.pop(request.index, [])
        if request.tokens < request.last_token:
            self._name_own(request, table, 0, len(table))
        table.reverse()
        self.pool.give_back(table)

    def begin_step(self) -> None:
        """Forget what holds for one step only."""


def free_ones(blocks: Hit) -> int:
    """Return how many blocks nobody holds."""
    return sum(block.holders == 0 for block in blocks)


class SlidingWindow(FullAttention):
    """Layers whose tokens see the last `limit` tokens, themselves included."""

    def skipped(self, computed: int) -> int:
        """Return the tokens that have left the window."""
        return max(0, computed - self.limit + 1)

    def lets_go_at(self, computed: int) -> int:
        """Return where the window leaves another block."""
        return (self.skipped(computed) // self.size + 1) * self.size + self.limit - 1

    def find(self, keys: Keys, most: int, numbers: tuple[int, ...]) -> tuple[list[Hit], int]:
        """Return the longest prefix whose window is there, searched from its end."""
        run, needed = 0, cdiv(self.limit - 1, self.size)
        count = most // self.size
        hits: list[Hit] = [[GONE] * count for _ in numbers]
        for i in range(count - 1, -1, -1):
            blocks = self._all(keys, (i + 1) * self.size, numbers)
            if blocks is None:
                run = 0
                continue
            if run == 0 and (i + 1) * self.size % self.aligned:
                continue
            for hit, block in zip(hits, blocks, strict=True):
                hit[i] = block
            run += 1
            if run >= needed:
                return [hit[: i + run] for hit in hits], (i + run) * self.size
        length = run * self.size // self.aligned * self.aligned  # less than a window, from the beginning
        return [hit[: length // self.size] for hit in hits], length

    def _keep_blocks(self, request: Sequence, first: int, last: int) -> None:
        """Keep the windows before the places where a later request can go on.

        Source: vLLM 0.32 (prefix_cache_retention_interval, 0 by default): the end of the prompt but for its last token,
        and where others were seen to part.
        """
        if first * self.size >= request.prompt_tokens and first * self.size >= request.shared_boundary:
            return
        needed = cdiv(self.limit - 1, self.size)
        for place in request.resumable_at:
            end = place // self.aligned * self.aligned // self.size
            super()._keep_blocks(request, max(first, end - needed), min(last, end))


class ChunkedLocal(FullAttention):
    """Layers whose tokens see their own chunk of `limit` tokens alone."""

    def skipped(self, computed: int) -> int:
        """Return the tokens of the chunks that are over."""
        return computed // self.limit * self.limit

    def lets_go_at(self, computed: int) -> int:
        """Return where the next chunk begins."""
        return self.skipped(computed) + self.limit

    def find(self, keys: Keys, most: int, numbers: tuple[int, ...]) -> tuple[list[Hit], int]:
        """Return the chunks that are over, whether found or not, and what is found of the last one."""
        first = most // self.limit * self.limit // self.size
        hits: list[Hit] = [[GONE] * first for _ in numbers]
        for i in range(first, most // self.size):
            blocks = self._all(keys, (i + 1) * self.size, numbers)
            if blocks is None:
                break
            for hit, block in zip(hits, blocks, strict=True):
                hit.append(block)
        return hits, len(hits[0]) * self.size


class State(FullAttention):
    """Layers that keep a state, one block for each of the last two, where no prefixes are cached: one for all."""

    def skipped(self, computed: int) -> int:
        """Return the tokens that are in the state already."""
        return computed - 1

    def lets_go_at(self, computed: int) -> int:
        """Return where the state is in another block."""
        return (max(0, self.skipped(computed)) // self.size + 1) * self.size + 1


class AlignedState(State):
    """Layers that keep a state, and copies of it at the ends of blocks, so that later requests can go on from there.

    Source: vLLM 0.32, MambaManager with ``mamba_cache_mode`` "align", the default where prefixes are cached.
    """

    anonymous = False  # which of them were kept in the step matters

    def __init__(self, number: int, group: Group, settings: SchedulerSettings, pool: BlockPool) -> None:
        super().__init__(number, group, settings, pool)
        self._checkpoints = group.checkpoint_blocks
        self._kept_now: set[GroupKey] = set()
        self._last_state: dict[int, int] = {}
        self._retired: dict[int, int] = {}
        self._saving: dict[int, tuple[int, int]] = {}

    def find(self, keys: Keys, most: int, numbers: tuple[int, ...]) -> tuple[list[Hit], int]:
        """Return the last state that is there."""
        for i in range(most // self.size - 1, -1, -1):
            blocks = self._all(keys, (i + 1) * self.size, numbers)
            if blocks is not None and (i + 1) * self.size % self.aligned == 0:
                return [[GONE] * i + [block] for block in blocks], (i + 1) * self.size
        return [[] for _ in numbers], 0

    def _keep_blocks(self, request: Sequence, first: int, last: int) -> None:
        """Keep the states from which a later request can go on."""
        for place in request.resumable_at:
            end = place // self.aligned * self.aligned // self.size
            if first < end <= last:
                super()._keep_blocks(request, end - 1, end)

    def needs(self, request: Sequence, tokens: int, hit: Hit, computed: int, *, admission: bool) -> int:
        """Return the blocks that the next state takes, more than there are if the hit is not computed yet."""
        if hit and hit[-1].key in self._kept_now:
            return self.pool.total + 2
        new = cdiv(tokens, self.size) - len(hit) - len(self.tables.get(request.index, ()))
        saved_at = checkpoint(tokens, self.aligned)
        saves = self._saves(request, computed, tokens, saved_at)
        if not admission:
            if saves:
                self._saving[request.index] = (saved_at, cdiv(tokens, self.size) - 2)
            else:
                self._saving.pop(request.index, None)
        return (min(new, 1 + saves) if new > 0 else new) + free_ones(hit)

    def _saves(self, request: Sequence, start: int, end: int, saved_at: int) -> bool:
        at = cdiv(end, self.size) - 2
        table = self.tables.get(request.index, ())
        return (
            self._checkpoints > 0
            and end >= request.prefill_end
            and can_checkpoint(start, end, saved_at, self.size)
            and at >= 0
            and (at >= len(table) or table[at] is GONE)
        )

    def grow(self, request: Sequence, tokens: int) -> None:
        """Give the next state a block, and its checkpoint one."""
        index = request.index
        table = self.tables.setdefault(index, [])
        required = cdiv(tokens, self.size)
        saves = index in self._saving
        held = len(table)
        if required <= held and not saves:
            return
        if held:  # of a request that has begun, or the state that was found
            self._last_state[index] = held - 1
        skipped = required - 1
        if held < skipped:
            table.extend([GONE] * (skipped - saves - held))
        lacking = max(required - len(table), 0)
        self.pool.take(lacking)
        table.extend([BLANK] * lacking)

    def let_go(self, request: Sequence, computed: int) -> None:
        """Give back the states that have been copied on."""
        super().let_go(request, computed)
        at = self._last_state.get(request.index)
        if at is not None and at < cdiv(computed, self.size) - 1:
            table = self.tables[request.index]
            if table[at] is not GONE:
                self._give_back(request, table, at, at + 1)

    def _empty(self, request: Sequence, table: list[Block], end: int) -> None:
        first = self._retired.get(request.index, 0)
        if first >= end:
            return
        self._give_back(request, table, first, end)
        self._retired[request.index] = end

    def keep(self, request: Sequence, tokens: int) -> None:
        """Let states be found, from the next step on, and the checkpoint of the prompt's end."""
        before = self.kept.get(request.index, 0)
        super().keep(request, tokens)
        after = self.kept.get(request.index, 0)
        self._keep_end(request, tokens)
        if after > before:
            for block in self.tables[request.index][before:after]:
                if block is not GONE and block.key is not None:
                    self._kept_now.add(block.key)

    def _keep_end(self, request: Sequence, tokens: int) -> None:
        table = self.tables.get(request.index, [])
        end_of_prompt = checkpoint(request.prompt_tokens, self.aligned)
        saving = self._saving.get(request.index)
        if saving is not None:
            saved_at, at = saving
            if saved_at not in (end_of_prompt, request.shared_boundary):
                self.pool.forget(table[at])
            elif table[at].key_tokens != saved_at:
                self._keep_as(request, table, at, saved_at)
        elif tokens > 0 and tokens == end_of_prompt:
            at = cdiv(tokens, self.size) - 1
            if at < len(table):
                self._keep_as(request, table, at, tokens)

    def _keep_as(self, request: Sequence, table: list[Block], at: int, tokens: int) -> None:
        if table[at] is not GONE:
            block = table[at] = self.pool.keep(self.number, request.keys.of(tokens), table[at], tokens)
            if block.key is not None:
                self._kept_now.add(block.key)

    def rests(self, request: Sequence) -> bool:
        """Return whether nothing is left to keep of its prompt's end, so that its steps are alike within a block."""
        table = self.tables[request.index]
        at = checkpoint(request.prompt_tokens, self.aligned) // self.size - 1
        return request.index not in self._saving and not (0 <= at < len(table) and table[at] is not GONE)

    def free(self, request: Sequence) -> None:
        """Give back all blocks of a request."""
        for held in (self._last_state, self._retired, self._saving):
            held.pop(request.index, None)
        super().free(request)

    def begin_step(self) -> None:
        """Let the states that the last step computed be found."""
        self._kept_now.clear()


def checkpoint(tokens: int, size: int) -> int:
    """Return the last end of a block from which a request of `tokens` tokens can go on, its last token computed anew.

    Source: vLLM 0.32, get_mamba_prefill_checkpoint_position.
    """
    return max((tokens - 1) // size * size, 0)


def can_checkpoint(start: int, end: int, at: int, size: int) -> bool:
    """Return whether a backend can save the state at `at` in a step that computes the tokens from `start` to `end`.

    Source: vLLM 0.32, is_mamba_prefill_checkpoint_valid, with the alignment of 1 that its backends have.
    """
    return start % size == 0 and cdiv(end, size) - 2 > (start - 1) // size and start + size <= at and start < at < end


def table_of(number: int, group: Group, settings: SchedulerSettings, pool: BlockPool) -> FullAttention:
    """Return the block tables of a group of layers."""
    kinds = {"full": FullAttention, "sliding": SlidingWindow, "chunked": ChunkedLocal, "state": State}
    kind = kinds[group.kind]
    if kind is State and settings.enable_prefix_caching:
        kind = AlignedState
    return kind(number, group, settings, pool)
