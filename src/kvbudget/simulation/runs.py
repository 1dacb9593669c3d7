"""The free blocks of a pool as runs of blocks, which is all that matters of blocks that no other request can find.

Free blocks that can be found stand in the order in which they were freed, the last block of a request first. Those
behind what a request shares with others can be found by the request itself alone, if it was preempted: a run of them is
a number, and what is evicted of it leaves a prefix. They are freed before the shared ones, so evicted before them: as
long as some are there, all that was shared is there too.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.simulation.prefixes import Key, Shared

NOBODY = -1
"""The owner of blocks for which nobody will look."""
SHARED = -2
"""The owner of a block for which anybody may look."""

Run = list[Any]
"""Blocks in a row, their owner, and the shared block where it is one."""


class Runs:
    """The free blocks: how many keep nothing, and the runs of those that do, the next to be given away in front.

    Attributes:
        free: Blocks that nobody holds.
    """

    __slots__ = ("_blank", "_of", "_runs", "_size", "free")

    def __init__(self, blocks: int, size: int) -> None:
        self.free = self._blank = blocks
        self._size = size
        self._runs: deque[Run] = deque()
        self._of: dict[int, Run] = {}

    def take(self, count: int) -> None:
        """Give away blocks, those that keep nothing first."""
        self.free -= count
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
                return
            count -= run[0]
            runs.popleft()
            if run[1] != NOBODY:
                self._evict(run)

    def _evict(self, run: Run) -> None:
        del self._of[run[1]]

    def find(self, owner: int, tokens: int) -> tuple[int, int]:
        """Return how many blocks are found for a request that has `tokens` tokens, and how many of those are free."""
        del tokens
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


class SharedBlock:
    """A block that several requests can find.

    Attributes:
        key: The prefix that it completes.
        holders: How many requests hold it.
        run: Where it stands among the free ones, None while somebody holds it.
    """

    __slots__ = ("holders", "key", "run")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.holders = 1
        self.run: Run | None = None


class SharedRuns(Runs):
    """The same for requests that share prefixes: shared blocks are held and found one by one.

    Args:
        blocks: Blocks of the pool.
        size: Tokens of a block.
        shared: What requests share with others.
    """

    __slots__ = ("_copies", "_found", "_held", "_keys", "_shared")

    def __init__(self, blocks: int, size: int, shared: Mapping[int, Shared]) -> None:
        super().__init__(blocks, size)
        self._shared = shared
        self._copies: dict[Key, list[SharedBlock]] = {}
        self._keys: dict[int, list[Key]] = {}
        self._held: dict[int, list[SharedBlock]] = {}
        self._found: list[SharedBlock] = []

    def _keys_of(self, owner: int) -> list[Key]:
        keys = self._keys.get(owner)
        if keys is None:
            shared = self._shared.get(owner)
            size = self._size
            keys = [shared.keys.of(end) for end in range(size, shared.tokens + 1, size)] if shared else []
            self._keys[owner] = keys
        return keys

    def _evict(self, run: Run) -> None:
        if run[1] != SHARED:
            del self._of[run[1]]
            return
        block = run[2]
        copies = self._copies[block.key]
        if len(copies) > 1:
            copies.remove(block)
        else:
            del self._copies[block.key]

    def find(self, owner: int, tokens: int) -> tuple[int, int]:
        """Return how many blocks are found, the oldest of several copies, and how many of those are free."""
        keys, most = self._keys_of(owner), (tokens - 1) // self._size
        found: list[SharedBlock] = []
        loose = 0
        for key in keys if len(keys) <= most else keys[:most]:
            copies = self._copies.get(key)
            if copies is None:
                break
            found.append(copies[0])
            loose += copies[0].holders == 0
        self._found = found
        own = super().find(owner, tokens)[0]
        return len(found) + own, loose + own

    def adopt(self, owner: int, found: int) -> None:
        """Let a request begin with the blocks that were just found for it."""
        held = self._found if found else []
        self._found = []
        for block in held:
            if block.run is not None:
                block.run[0], block.run[1] = 0, NOBODY
                block.run = None
                self.free -= 1
            block.holders += 1
        self._held[owner] = held
        super().adopt(owner, found)

    def keep(self, owner: int, tokens: int) -> None:
        """Let others find the blocks of a request's first `tokens` tokens."""
        keys, held = self._keys_of(owner), self._held[owner]
        for key in keys[len(held) : tokens // self._size]:
            block = SharedBlock(key)
            held.append(block)
            copies = self._copies.get(key)
            if copies is None:
                self._copies[key] = [block]
            else:
                copies.append(block)

    def give_back(self, owner: int, computed: int, *, caching: bool) -> None:
        """Take back the blocks of a request that has ended."""
        del caching
        held = self._held.pop(owner)
        self._keys.pop(owner, None)
        self._append(NOBODY, -(-computed // self._size) - len(held), computed // self._size - len(held))
        self._release(held)

    def lose(self, owner: int, computed: int, kept: int) -> None:
        """Take back the blocks of a request that is preempted."""
        held = self._held.pop(owner)
        self._append(owner, -(-computed // self._size) - len(held), kept - len(held))
        self._release(held)

    def _release(self, held: list[SharedBlock]) -> None:
        for block in reversed(held):
            block.holders -= 1
            if not block.holders:
                block.run = [1, SHARED, block]
                self._runs.append(block.run)
                self.free += 1

    def disown(self, owner: int) -> None:
        """Let nobody look for a request's blocks any more."""
        super().disown(owner)
        self._keys.pop(owner, None)
