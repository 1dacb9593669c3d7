"""The cache of all groups of layers over one pool: what a request finds, takes and leaves.

Source: vLLM 0.32, v1/core/kv_cache_manager.py and kv_cache_coordinator.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvbudget.simulation.groups import NEVER, AlignedState, FullAttention, table_of
from kvbudget.simulation.pool import BLANK, BlockPool

if TYPE_CHECKING:
    from kvbudget.simulation.groups import Hit
    from kvbudget.simulation.pool import Block
    from kvbudget.simulation.sequence import Sequence
    from kvbudget.simulation.settings import SchedulerSettings


class Found(NamedTuple):
    """What the cache has of a request's beginning.

    Attributes:
        blocks: For each group of layers.
        tokens: How many tokens they hold.
        boundary: Where one group has more than another, so that the others should keep what they compute there; or 0.
    """

    blocks: tuple[Hit, ...]
    tokens: int = 0
    boundary: int = 0


class Quiet:
    """Up to where a request's next tokens change no table of blocks.

    Attributes:
        tables: The request's blocks of each group.
        sizes: How many tokens such a block has.
        even: The one size, where all have as many blocks, which then are taken together; or 0.
        room: Tokens that have room.
        lets_go_at: Computed tokens from which on a block is given back.
        keeps_at: Tokens from which on another block can be found.
    """

    __slots__ = ("even", "keeps_at", "lets_go_at", "room", "sizes", "tables")

    def __init__(self, tables: list[list[Block]], sizes: tuple[int, ...]) -> None:
        self.tables = tables
        self.sizes = sizes
        self.even = sizes[0] if len(set(sizes)) == len(set(map(len, tables))) == 1 else 0
        self.lets_go_at = self.keeps_at = NEVER
        self.measure()

    def measure(self) -> None:
        """Look how much room there is."""
        self.room = min(size * len(table) for size, table in zip(self.sizes, self.tables, strict=True))


class Cache:
    """The block tables of all groups."""

    __slots__ = (
        "_alike",
        "_caching",
        "_chunked",
        "_forgetful",
        "_leaving",
        "_max_model_len",
        "_quiet",
        "_simple",
        "_sizes",
        "_states",
        "_watermark",
        "aligned",
        "nothing",
        "pool",
        "tables",
    )

    def __init__(self, settings: SchedulerSettings) -> None:
        groups = settings.cache_groups
        self.pool = BlockPool(settings.num_gpu_blocks)
        self.tables = tuple(table_of(number, group, settings, self.pool) for number, group in enumerate(groups))
        self.aligned = settings.scheduler_block_size
        self.nothing = Found(tuple([] for _ in groups))
        self._quiet: dict[int, Quiet] = {}
        self._sizes = tuple(group.block_size for group in groups)
        self._states = [table for table in self.tables if isinstance(table, AlignedState)]
        self._forgetful = [table for table in self.tables if type(table) is not FullAttention]
        self._leaving = list({groups[table.number]: table for table in self._forgetful}.values())
        self._chunked = all(group.kind == "chunked" for group in groups)  # chunks that are over need not be found
        self._caching = settings.enable_prefix_caching
        self._watermark = settings.watermark_blocks
        self._max_model_len = settings.max_model_len
        alike = {group: tuple(n for n, other in enumerate(groups) if other == group) for group in dict.fromkeys(groups)}
        self._alike = sorted(alike.values(), key=lambda numbers: type(self.tables[numbers[0]]) is not FullAttention)
        self._simple = len(alike) == 2 and type(self.tables[self._alike[0][0]]) is FullAttention  # noqa: PLR2004

    def find(self, request: Sequence) -> Found:
        """Return what is there of a request, its last token left to compute."""
        if self.finds_nothing(request):
            return self.nothing
        most = request.tokens - 1
        if len(self._alike) == 1 and len(self.tables) == 1:
            hits, length = self.tables[0].find(request.keys, most, (0,))
            return Found((hits[0],), length) if length else self.nothing
        return self._find_common(request, most)

    def finds_nothing(self, request: Sequence) -> bool:
        """Return whether a request finds nothing at any time before it is preempted."""
        return not self._caching or not (request.keys.shared or request.preemptions or self._chunked)

    def _find_common(self, request: Sequence, most: int) -> Found:
        """Return the longest prefix that all groups have: each shortens it until none does."""
        hits: list[Hit] = [[] for _ in self.tables]
        length, longest = most, 0
        full: dict[int, int] = {}
        while True:
            now = length
            for numbers in self._alike:
                table = self.tables[numbers[0]]
                if numbers[0] in full:
                    now = min(now, full[numbers[0]])
                    continue
                found, now = table.find(request.keys, now, numbers)
                for number, hit in zip(numbers, found, strict=True):
                    hits[number] = hit
                if type(table) is FullAttention:
                    full[numbers[0]] = now
                longest = max(longest, now)
            if now >= length:
                break
            length = now
            if self._simple:
                break
        for number, table in enumerate(self.tables):
            if type(table) is FullAttention:
                del hits[number][-(-length // table.size) :]
        boundary = longest if longest > length else 0
        return Found(tuple(hits), length, boundary) if any(hits) else self.nothing._replace(boundary=boundary)

    def allocate(
        self, request: Sequence, new: int, found: Found | None = None, *, whole: bool = False, watermark: bool = False
    ) -> bool:
        """Give a request the blocks for `new` more tokens, and return whether there were enough.

        Args:
            request: The request.
            new: Tokens to compute.
            found: What was found of its beginning, if it is admitted in this step.
            whole: Whether all that is known of it must fit, not the new tokens alone.
            watermark: Whether the watermark must be left.
        """
        quiet = self._quiet.get(request.index)
        if quiet is not None and found is None and not whole:
            return self._go_on(request, new, quiet)
        hits = self.nothing if found is None else found
        computed = min(request.computed + hits.tokens, self._max_model_len)
        if whole and self._lacks(request, min(request.tokens, self._max_model_len), hits, computed, True, watermark):
            return False
        tokens = min(computed + new, self._max_model_len)
        done = max(computed - request.in_flight, 0)
        for table in self._forgetful:
            table.let_go(request, done)
        if self._lacks(request, tokens, hits, computed, False, watermark):
            return False
        if any(hits.blocks):
            for table, hit in zip(self.tables, hits.blocks, strict=True):
                table.adopt(request, hit, computed)
        for table in self.tables:
            table.grow(request, tokens)
        kept = min(computed + new, request.tokens)
        self.keep(request, kept)
        if self._rests(request):
            blocks = [table.tables[request.index] for table in self.tables]
            self._quiet[request.index] = quiet = Quiet(blocks, self._sizes)
            quiet.lets_go_at = self._lets_go_at(done)
            quiet.keeps_at = self._keeps_at(kept)
        return True

    def _go_on(self, request: Sequence, new: int, quiet: Quiet) -> bool:
        """Do what `allocate` has to do, and no more, for a running request of which it is known what that is."""
        tokens = request.computed + new
        done = request.computed - request.in_flight
        leaves = done >= quiet.lets_go_at
        if leaves:
            for table in self._forgetful:
                table.let_go(request, done)
        if tokens > quiet.room and not self._grow(request, new, quiet):
            return False
        kept = min(request.tokens, tokens)
        if kept >= quiet.keeps_at:
            self.keep(request, kept)
            quiet.keeps_at = self._keeps_at(kept)
        if leaves:
            quiet.lets_go_at = self._lets_go_at(done)
        if self._states and not self._rests(request):
            del self._quiet[request.index]
        return True

    def _grow(self, request: Sequence, new: int, quiet: Quiet) -> bool:
        if quiet.even and new == 1 and not self._states:
            if len(quiet.tables) > self.pool.free:
                return False
            self.pool.take(len(quiet.tables))
            for blocks in quiet.tables:
                blocks.append(BLANK)
            quiet.room += quiet.even
            return True
        tokens = request.computed + new
        if self._lacks(request, tokens, self.nothing, request.computed, False, False):
            return False
        for table in self.tables:
            table.grow(request, tokens)
        quiet.measure()
        return True

    def _rests(self, request: Sequence) -> bool:
        return all(table.rests(request) for table in self._states)

    def _lets_go_at(self, done: int) -> int:
        return min([group.lets_go_at(done) for group in self._leaving]) if self._leaving else NEVER

    def _keeps_at(self, kept: int) -> int:
        return (kept // self.aligned + 1) * self.aligned if self._caching else NEVER

    def busy_at(self, request: Sequence) -> int:
        """Return how many computed tokens a request that decodes has when its next one first changes a table of blocks.

        Until then `allocate` and `keep` do nothing for it, whatever others do.
        """
        quiet = self._quiet.get(request.index)
        if quiet is None:
            return 0
        at, leaves = quiet.room, quiet.lets_go_at + request.in_flight
        keeps = quiet.keeps_at + request.computed - request.tokens  # what is kept of it are known tokens
        at = min(at, leaves)
        return min(keeps, at)

    def _lacks(
        self, request: Sequence, tokens: int, found: Found, computed: int, admission: bool, watermark: bool
    ) -> bool:
        """Return whether there are fewer free blocks than a request needs for `tokens` tokens."""
        blocks = self._watermark if watermark else 0
        for table, hit in zip(self.tables, found.blocks, strict=True):
            blocks += table.needs(request, tokens, hit, computed, admission=admission)
        return blocks > self.pool.free

    def keep(self, request: Sequence, tokens: int) -> None:
        """Let the full blocks of a request's first `tokens` tokens be found by others, and by itself later."""
        if not self._caching:
            return
        quiet = self._quiet.get(request.index)
        if quiet is not None and tokens < quiet.keeps_at:
            return
        if len(self.tables) > 1:
            tokens = tokens // self.aligned * self.aligned
        for table in self.tables:
            table.keep(request, tokens)

    def free(self, request: Sequence) -> None:
        """Give back all blocks of a request."""
        self._quiet.pop(request.index, None)
        for table in self.tables:
            table.free(request)

    def begin_step(self) -> None:
        """Begin a step."""
        for table in self.tables:
            table.begin_step()
