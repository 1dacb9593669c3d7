"""The cache of all groups of layers over one pool: what a request finds, takes and leaves.

Source: vLLM 0.32, v1/core/kv_cache_manager.py and kv_cache_coordinator.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvbudget.simulation.groups import NEVER, AlignedState, FullAttention, table_of
from kvbudget.simulation.pool import BlockPool

if TYPE_CHECKING:
    from kvbudget.simulation.groups import Hit
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


class Quiet(NamedTuple):
    """Up to where a request's next tokens change no table of blocks.

    Attributes:
        room: Tokens that have room.
        lets_go_at: Computed tokens from which on a block is given back.
        keeps_at: Tokens from which on another block can be found.
    """

    room: int
    lets_go_at: int
    keeps_at: int


class Cache:
    """The block tables of all groups."""

    __slots__ = (
        "_alike",
        "_caching",
        "_max_model_len",
        "_quiet",
        "_simple",
        "_states",
        "_watermark",
        "aligned",
        "nothing",
        "pool",
        "tables",
    )

    def __init__(self, settings: SchedulerSettings) -> None:
        groups = settings.cache_groups
        self.pool = BlockPool(settings.num_gpu_blocks, caching=settings.enable_prefix_caching)
        self.tables = tuple(table_of(number, group, settings, self.pool) for number, group in enumerate(groups))
        self.aligned = settings.scheduler_block_size
        self.nothing = Found(tuple([] for _ in groups))
        self._quiet: dict[int, Quiet] = {}
        self._states = [table for table in self.tables if isinstance(table, AlignedState)]
        self._caching = settings.enable_prefix_caching
        self._watermark = settings.watermark_blocks
        self._max_model_len = settings.max_model_len
        alike = {group: tuple(n for n, other in enumerate(groups) if other == group) for group in dict.fromkeys(groups)}
        self._alike = sorted(alike.values(), key=lambda numbers: type(self.tables[numbers[0]]) is not FullAttention)
        self._simple = len(alike) == 2 and type(self.tables[self._alike[0][0]]) is FullAttention  # noqa: PLR2004

    def find(self, request: Sequence) -> Found:
        """Return what is there of a request, its last token left to compute."""
        if not self._caching:
            return self.nothing
        most = request.tokens - 1
        if len(self._alike) == 1 and len(self.tables) == 1:
            hits, length = self.tables[0].find(request.keys, most, (0,))
            return Found((hits[0],), length) if length else self.nothing
        return self._find_common(request, most)

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
        if found is None and not whole and self._is_quiet(request, new):
            return True
        hits = self.nothing if found is None else found
        computed = min(request.computed + hits.tokens, self._max_model_len)
        room = self.pool.free - (self._watermark if watermark else 0)
        if whole and self._needs(request, min(request.tokens, self._max_model_len), hits, computed, True) > room:
            return False
        tokens = min(computed + new, self._max_model_len)
        for table in self.tables:
            table.let_go(request, max(0, computed - request.in_flight))
        room = self.pool.free - (self._watermark if watermark else 0)
        if self._needs(request, tokens, hits, computed, False) > room:
            return False
        if any(hits.blocks):
            for table, hit in zip(self.tables, hits.blocks, strict=True):
                table.adopt(request, hit, computed)
        for table in self.tables:
            table.grow(request, tokens)
        kept = min(computed + new, request.tokens)
        self.keep(request, kept)
        if all(table.rests(request) for table in self._states):
            self._quiet[request.index] = Quiet(
                min(len(table.tables[request.index]) * table.size for table in self.tables),
                min(table.lets_go_at(max(0, computed - request.in_flight)) for table in self.tables),
                (kept // self.aligned + 1) * self.aligned if self._caching else NEVER,
            )
        else:
            self._quiet.pop(request.index, None)
        return True

    def _is_quiet(self, request: Sequence, new: int) -> bool:
        """Return whether there is room for `new` more tokens and nothing else to do for them."""
        quiet = self._quiet.get(request.index)
        if quiet is None:
            return False
        computed = request.computed
        end = computed + new
        return (
            end <= quiet.room
            and computed - request.in_flight < quiet.lets_go_at
            and min(end, request.tokens) < quiet.keeps_at
        )

    def busy_at(self, request: Sequence) -> int:
        """Return how many computed tokens a request that decodes has when its next one first changes a table of blocks.

        Until then `allocate` and `keep` do nothing for it, whatever others do.
        """
        quiet = self._quiet.get(request.index)
        if quiet is None:
            return 0
        unknown = request.computed - request.tokens  # what is kept of it are known tokens
        return min(quiet.room, quiet.lets_go_at + request.in_flight, quiet.keeps_at + unknown)

    def _needs(self, request: Sequence, tokens: int, found: Found, computed: int, admission: bool) -> int:
        return sum(
            table.needs(request, tokens, hit, computed, admission=admission)
            for table, hit in zip(self.tables, found.blocks, strict=True)
        )

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
