"""The free blocks of a pool as runs of blocks, which is all that matters of blocks that no other request can find.

Free blocks that can be found stand in the order in which they were freed, the last block of a request first. Those
behind what a request shares with others can be found by the request itself alone, if it was preempted: a run of them is
a number, and what is evicted of it leaves a prefix. They are freed before the shared ones, so evicted before them: as
long as some are there, all that was shared is there too.
"""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.simulation.prefixes import Shared

NOBODY = -1
"""The owner of blocks for which nobody will look."""
SHARED = -2
"""The owner of blocks for which anybody may look."""

Run = list[Any]
"""Blocks in a row, their owner, and the spans that they are where they are shared, the first to be given away first."""
Edge = tuple[int, int]
"""A segment after a node of `kvbudget.simulation.prefixes`."""


class Runs:
    """The free blocks: how many keep nothing, and the runs of those that do, the next to be given away in front.

    Attributes:
        free: Blocks that nobody holds.
        owed: Blocks that were given away, but are not taken out of the queue yet.
    """

    __slots__ = ("_blank", "_of", "_runs", "_size", "free", "owed")

    def __init__(self, blocks: int, size: int) -> None:
        self.free = self._blank = blocks
        self.owed = 0
        self._size = size
        self._runs: deque[Run] = deque()
        self._of: dict[int, Run] = {}

    def take(self, count: int) -> None:
        """Give away blocks, those that keep nothing first; which ones is settled when it begins to matter."""
        self.free -= count
        self.owed += count

    def _settle(self) -> None:
        count = self.owed
        self.owed = 0
        if count <= self._blank:
            self._blank -= count
            return
        count -= self._blank
        self._blank = 0
        runs = self._runs
        while count:
            run = runs[0]
            if run[0] > count:
                run[0] -= count
                if run[1] == SHARED:
                    self._shorten(run, count)
                return
            count -= run[0]
            runs.popleft()
            if run[1] != NOBODY:
                self._evict(run)

    def _evict(self, run: Run) -> None:
        """Let the blocks of a run that were given away be found no more."""
        del self._of[run[1]]

    def _shorten(self, run: Run, count: int) -> None:
        """Let the first blocks of a shared run be found no more."""

    def find(self, owner: int, tokens: int) -> tuple[int, int]:
        """Return how many blocks are found for a request that has `tokens` tokens, and how many of those are free."""
        del tokens
        if self.owed:
            self._settle()
        run = self._of.get(owner)
        return (run[0], run[0]) if run else (0, 0)

    def adopt(self, owner: int, found: int) -> None:
        """Let a request begin with the blocks that were just found for it."""
        del found
        run = self._of.pop(owner, None)
        if run:
            self.free -= run[0]
            run[0], run[1] = 0, NOBODY

    def keep(self, owner: int, tokens: int) -> None:
        """Let others find the blocks of a request's first `tokens` tokens."""

    def give_back(self, owner: int, computed: int, *, caching: bool) -> None:
        """Take back the blocks of a request that has ended."""
        del owner
        self._append(NOBODY, -(-computed // self._size), computed // self._size if caching else 0)

    def lose(self, owner: int, computed: int, kept: int) -> None:
        """Take back the blocks of a request that is preempted, of which the first `kept` can be found."""
        self._append(owner, -(-computed // self._size), kept)

    def _append(self, owner: int, held: int, kept: int) -> None:
        if self.owed:
            self._settle()
        self.free += held
        self._blank += held - kept
        if not kept:
            return
        runs = self._runs
        if owner != NOBODY:
            run: Run = [kept, owner]
            self._of[owner] = run
            runs.append(run)
        elif runs and runs[-1][1] == NOBODY:
            runs[-1][0] += kept
        else:
            runs.append([kept, NOBODY])

    def disown(self, owner: int) -> None:
        """Let nobody look for a request's blocks any more."""
        run = self._of.pop(owner, None)
        if run:
            run[1] = NOBODY


class Span:
    """Blocks in a row of one shared segment, which the same requests hold.

    Attributes:
        edge: The segment, after what it follows.
        first: Its first block, counted from the beginning of the prompt.
        end: The block behind its last one.
        holders: How many requests hold it.
        run: Where it stands among the free blocks, None while somebody holds it.
        parts: What it was cut into, when others came to hold a part of it; it is then only a name for them.
    """

    __slots__ = ("edge", "end", "first", "holders", "parts", "run")

    def __init__(self, edge: Edge, first: int, end: int, holders: int = 1, run: Run | None = None) -> None:
        self.edge = edge
        self.first = first
        self.end = end
        self.holders = holders
        self.run = run
        self.parts: list[Span] = []

    def whole(self) -> list[Span]:
        """Return it, or the parts that it was cut into, in order."""
        if not self.parts:
            return [self]
        found: list[Span] = []
        stack = [self]
        while stack:
            span = stack.pop()
            if span.parts:
                stack.extend(reversed(span.parts))
            else:
                found.append(span)
        return found


class SharedRuns(Runs):
    """The same for requests that share prefixes: what they share is held and found in spans.

    Args:
        blocks: Blocks of the pool.
        size: Tokens of a block.
        shared: What requests share with others.
    """

    __slots__ = ("_edges", "_found", "_held", "_kept", "_shared", "_spans")

    def __init__(self, blocks: int, size: int, shared: Mapping[int, Shared]) -> None:
        super().__init__(blocks, size)
        self._shared = shared
        self._spans: dict[Edge, list[Span]] = {}  # several of the same blocks are copies, the oldest in front
        self._edges: dict[int, list[tuple[Edge, int, int]]] = {}
        self._held: dict[int, list[Span]] = {}
        self._kept: dict[int, int] = {}  # blocks of what a request holds
        self._found: list[tuple[Span, int, int]] = []

    def _edges_of(self, owner: int) -> list[tuple[Edge, int, int]]:
        """Return the segments that a request shares, with the first block that ends in each and the one behind."""
        edges = self._edges.get(owner)
        if edges is None:
            edges = []
            shared = self._shared.get(owner)
            start = 0
            for node, segment, end in shared.path if shared else ():
                end = min(end, shared.tokens if shared else 0) // self._size  # noqa: PLW2901 - in blocks
                if start < end:
                    edges.append(((node, segment), start, end))
                    start = end
            self._edges[owner] = edges
        return edges

    def _forget(self, span: Span) -> None:
        spans = self._spans[span.edge]
        if len(spans) > 1:
            spans.remove(span)
        else:
            del self._spans[span.edge]

    def _evict(self, run: Run) -> None:
        if run[1] != SHARED:
            del self._of[run[1]]
            return
        for span in run[2]:
            self._forget(span)

    def _shorten(self, run: Run, count: int) -> None:
        spans = run[2]
        while count:
            span = spans[0]
            if span.end - span.first > count:
                span.end -= count
                return
            count -= span.end - span.first
            self._forget(spans.pop(0))

    def find(self, owner: int, tokens: int) -> tuple[int, int]:
        """Return how many blocks are found, the oldest of several copies, and how many of those are free."""
        own = super().find(owner, tokens)[0]
        most = (tokens - 1) // self._size
        found: list[tuple[Span, int, int]] = []
        at = loose = 0
        for edge, _, behind in self._edges_of(owner):
            end = min(behind, most)
            spans = self._spans.get(edge, ())
            while at < end:
                for oldest in spans:
                    if oldest.first <= at < oldest.end:
                        break
                else:
                    break
                upto = min(oldest.end, end)
                for older in spans:
                    if older is oldest:
                        break
                    if at < older.first < upto:
                        upto = older.first
                found.append((oldest, at, upto))
                if not oldest.holders:
                    loose += upto - at
                at = upto
            if at < behind:
                break
        self._found = found
        return at + own, loose + own

    def adopt(self, owner: int, found: int) -> None:
        """Let a request begin with the blocks that were just found for it."""
        held = []
        kept = 0
        for name, first, end in self._found if found else ():
            span = self._cut(name, first, end)
            run = span.run
            if run is not None:
                run[0] -= end - first
                run[2].remove(span)
                if not run[0]:
                    run[1] = NOBODY
                span.run = None
                self.free -= end - first
            span.holders += 1
            held.append(span)
            kept = end
        self._found = []
        self._held[owner] = held
        self._kept[owner] = kept
        super().adopt(owner, found)

    def _cut(self, span: Span, first: int, end: int) -> Span:
        """Return the part of a span from one block to before another, as a span of its own."""
        while span.parts:
            span = next(part for part in span.parts if part.first <= first < part.end)
        if span.first == first and span.end == end:
            return span
        places = [place for place in (span.first, first, end, span.end) if span.first <= place <= span.end]
        span.parts = [
            Span(span.edge, one, other, span.holders, span.run) for one, other in pairwise(places) if one < other
        ]
        spans = self._spans[span.edge]
        at = spans.index(span)
        spans[at : at + 1] = span.parts
        if span.run is not None:
            at = span.run[2].index(span)
            span.run[2][at : at + 1] = reversed(span.parts)
        return next(part for part in span.parts if part.first == first)

    def keep(self, owner: int, tokens: int) -> None:
        """Let others find the blocks of a request's first `tokens` tokens."""
        kept, most = self._kept[owner], tokens // self._size
        for edge, first, behind in self._edges_of(owner):
            end = min(behind, most)
            if end > kept:
                span = Span(edge, max(first, kept), end)
                self._held[owner].append(span)
                self._spans.setdefault(edge, []).append(span)
                kept = end
        self._kept[owner] = kept

    def give_back(self, owner: int, computed: int, *, caching: bool) -> None:
        """Take back the blocks of a request that has ended."""
        del caching
        kept = self._kept.pop(owner)
        self._edges.pop(owner, None)
        self._append(NOBODY, -(-computed // self._size) - kept, computed // self._size - kept)
        self._release(owner)

    def lose(self, owner: int, computed: int, kept: int) -> None:
        """Take back the blocks of a request that is preempted."""
        shared = self._kept.pop(owner)
        self._append(owner, -(-computed // self._size) - shared, kept - shared)
        self._release(owner)

    def _release(self, owner: int) -> None:
        for name in reversed(self._held.pop(owner)):
            for span in reversed(name.whole()):
                span.holders -= 1
                if not span.holders:
                    span.run = [span.end - span.first, SHARED, [span]]
                    self._runs.append(span.run)
                    self.free += span.end - span.first

    def disown(self, owner: int) -> None:
        """Let nobody look for a request's blocks any more."""
        super().disown(owner)
        self._edges.pop(owner, None)
