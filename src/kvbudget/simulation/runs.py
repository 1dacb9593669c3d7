"""The free blocks of a pool as runs of blocks, which is all that matters of blocks that no other request can find.

Free blocks that can be found stand in the order in which they were freed, the last block of a request first. Those
behind what a request shares with others can be found by the request itself alone, if it was preempted: a run of them is
a number, and what is evicted of it leaves a prefix. They are freed before the shared ones, so evicted before them: as
long as some are there, all that was shared is there too.

The queue of runs is plain lists of integers, so that `kvbudget.simulation.compiled` can compile what is done with it.
In the order of `Queue`:

* `marks` tells how many free blocks keep nothing, which run is in front, and which one `counts` begins with, runs being
  numbered as they came;
* `counts` and `owners` tell each run's blocks and who may look for them, the next to be given away in front;
* `place` tells each request's run, if it was preempted.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableSequence

    from kvbudget.simulation.prefixes import Shared

NOBODY = -1
"""The owner of blocks for which nobody will look."""
SHARED = -2
"""The owner of blocks for which anybody may look."""
BLANK, FRONT, FIRST = 0, 1, 2
"""What `marks` has at which place."""
TRIMMED = 1024
"""Runs that were given away are dropped from the lists when they are this many, and half of all."""

NOWHERE = -1
"""The run of a request of which none is kept."""

Edge = tuple[int, int]
"""A segment after a node of `kvbudget.simulation.prefixes`."""


Queue = tuple["MutableSequence[int]", list[int], list[int], "MutableSequence[int]"]
"""`marks`, `counts`, `owners` and `place`."""


def new_queue(marks: MutableSequence[int], place: MutableSequence[int]) -> Queue:
    """Return the queue of a pool in which nothing is kept."""
    return marks, [0 for _ in range(0)], [0 for _ in range(0)], place


def settle(queue: Queue, owed: int, shared: SharedRuns | None) -> None:
    """Take blocks that were given away out of the queue, those that keep nothing first."""
    marks, counts, owners, place = queue
    if owed <= marks[BLANK]:
        marks[BLANK] -= owed
        return
    owed -= marks[BLANK]
    marks[BLANK] = 0
    front, first = marks[FRONT], marks[FIRST]
    while owed:
        at = front - first
        owner = owners[at]
        if counts[at] > owed:
            counts[at] -= owed
            if shared is not None and owner == SHARED:
                shared.shorten(front, owed)
            break
        owed -= counts[at]
        if owner >= 0:
            place[owner] = NOWHERE
        if shared is not None and owner == SHARED:
            shared.evict(front)
        front += 1
    marks[FRONT] = front
    gone = front - first
    if gone >= TRIMMED and 2 * gone > len(counts):
        del counts[:gone]
        del owners[:gone]
        marks[FIRST] = front


def find(queue: Queue, owner: int, tokens: int, owed: int, shared: SharedRuns | None) -> tuple[int, int]:
    """Return how many blocks are found for a request of so many tokens, and how many of those are free.

    What was given away is settled before.
    """
    if owed:
        settle(queue, owed, shared)
    marks, counts, _, place = queue
    found = loose = counts[place[owner] - marks[FIRST]] if place[owner] != NOWHERE else 0
    if shared is not None:
        others, untaken = shared.find(owner, tokens)
        found += others
        loose += untaken
    return found, loose


def adopt(queue: Queue, owner: int) -> None:
    """Let a request take the blocks of its own that were just found for it."""
    marks, counts, owners, place = queue
    if place[owner] != NOWHERE:
        at = place[owner] - marks[FIRST]
        counts[at], owners[at] = 0, NOBODY
        place[owner] = NOWHERE


def disown(queue: Queue, owner: int, shared: SharedRuns | None) -> None:
    """Let nobody look for a request's own blocks any more."""
    marks, _, owners, place = queue
    if place[owner] != NOWHERE:
        owners[place[owner] - marks[FIRST]] = NOBODY
        place[owner] = NOWHERE
    if shared is not None:
        shared.forget(owner)


def give_back(queue: Queue, owner: int, held: int, kept: int, owed: int, shared: SharedRuns | None, ended: bool) -> int:
    """Take back the blocks of a request and return how many are free again; what was given away is settled before.

    Args:
        queue: The queue.
        owner: The request.
        held: Its blocks.
        kept: How many of those can be found.
        owed: Blocks to settle.
        shared: What others hold and find too.
        ended: Whether the request does not come again, so that nobody looks for what it does not share.
    """
    if owed:
        settle(queue, owed, shared)
    if shared is not None:
        held -= shared.kept(owner)
        kept -= shared.kept(owner)
    marks, counts, owners, place = queue
    marks[BLANK] += held - kept
    if kept:
        if ended and len(counts) > marks[FRONT] - marks[FIRST] and owners[-1] == NOBODY:
            counts[-1] += kept
        else:
            if not ended:
                place[owner] = marks[FIRST] + len(counts)
            counts.append(kept)
            owners.append(NOBODY if ended else owner)
    if shared is not None:
        if ended:
            shared.forget(owner)
        held += shared.release(owner)
    return held


class Span:
    """Blocks in a row of one shared segment, which the same requests hold.

    Attributes:
        edge: The segment, after what it follows.
        first: Its first block, counted from the beginning of the prompt.
        end: The block behind its last one.
        holders: How many requests hold it.
        run: The number of the run that it is a part of where it is free, `NOBODY` while somebody holds it.
        parts: What it was cut into, when others came to hold a part of it; it is then only a name for them.
    """

    __slots__ = ("edge", "end", "first", "holders", "parts", "run")

    def __init__(self, edge: Edge, first: int, end: int, holders: int = 1, run: int = NOBODY) -> None:
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


class SharedRuns:
    """What requests share with others is held and found in spans, each of which is a run when nobody holds it.

    Args:
        size: Tokens of a block.
        shared: What requests share with others.
    """

    __slots__ = (
        "_counts", "_edges", "_found", "_free", "_held", "_kept", "_marks", "_owners", "_shared", "_size", "_spans"
    )  # fmt: skip

    def __init__(self, size: int, shared: Mapping[int, Shared]) -> None:
        self._size = size
        self._shared = shared
        self.join(new_queue([], []))
        self._free: dict[int, list[Span]] = {}  # the spans of each run, the first to be given away first
        self._spans: dict[Edge, list[Span]] = {}  # several of the same blocks are copies, the oldest in front
        self._edges: dict[int, list[tuple[Edge, int, int]]] = {}
        self._held: dict[int, list[Span]] = {}
        self._kept: dict[int, int] = {}  # blocks of what a request holds
        self._found: list[tuple[Span, int, int]] = []

    def join(self, queue: Queue) -> None:
        """Take the queue that the spans are in when they are free."""
        self._marks, self._counts, self._owners, _ = queue

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

    def evict(self, run: int) -> None:
        """Let the blocks of a run that were given away be found no more."""
        for span in self._free.pop(run):
            self._forget(span)

    def shorten(self, run: int, count: int) -> None:
        """Let the first blocks of a run be found no more."""
        spans = self._free[run]
        while count:
            span = spans[0]
            if span.end - span.first > count:
                span.end -= count
                return
            count -= span.end - span.first
            self._forget(spans.pop(0))

    def find(self, owner: int, tokens: int) -> tuple[int, int]:
        """Return how many shared blocks a request finds, the oldest of several copies, and how many of those are free.

        What was given away is settled; `tokens` are the request's.
        """
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
        return at, loose

    def adopt(self, owner: int, *, found: bool) -> None:
        """Let a request begin, with the shared blocks that were just found for it if there were some."""
        held = []
        kept = 0
        for name, first, end in self._found if found else ():
            span = self._cut(name, first, end)
            run = span.run
            if run != NOBODY:
                at = run - self._marks[FIRST]
                self._counts[at] -= end - first
                self._free[run].remove(span)
                if not self._counts[at]:
                    self._owners[at] = NOBODY
                    del self._free[run]
                span.run = NOBODY
            span.holders += 1
            held.append(span)
            kept = end
        self._found = []
        self._held[owner] = held
        self._kept[owner] = kept

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
        if span.run != NOBODY:
            free = self._free[span.run]
            at = free.index(span)
            free[at : at + 1] = reversed(span.parts)
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

    def kept(self, owner: int) -> int:
        """Return how many blocks a request holds that others can find."""
        return self._kept[owner]

    def release(self, owner: int) -> int:
        """Put the shared blocks of a request that nobody else holds at the end of the queue; return how many."""
        del self._kept[owner]
        freed = 0
        for name in reversed(self._held.pop(owner)):
            for span in reversed(name.whole()):
                span.holders -= 1
                if not span.holders:
                    span.run = self._marks[FIRST] + len(self._counts)
                    self._free[span.run] = [span]
                    self._counts.append(span.end - span.first)
                    self._owners.append(SHARED)
                    freed += span.end - span.first
        return freed

    def forget(self, owner: int) -> None:
        """Drop what is known of a request that has ended."""
        self._edges.pop(owner, None)
