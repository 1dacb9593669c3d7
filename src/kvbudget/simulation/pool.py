"""The blocks of the cache: who holds them, which may be given away first, and what they still keep.

Blocks are alike but for what can be found in them, so only those have names. The free ones stand in a queue as the
engine's do: first those that keep nothing, whose order does not matter, then the others as they were freed. What a
request keeps and no other will look for is named when it is preempted; when it ends, such blocks are a number in the
queue.
Source: vLLM 0.32, v1/core/block_pool.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.simulation.prefixes import Key

GroupKey = tuple[int, "Key"]
"""A prefix in the cache of one group of layers."""


class Block:
    """A block that can be found.

    Attributes:
        holders: How many requests hold it.
        key: The prefix that it completes, None if it cannot be found any more.
        key_tokens: How many tokens that prefix has.
    """

    __slots__ = ("holders", "key", "key_tokens")

    def __init__(self) -> None:
        self.holders = 1
        self.key: GroupKey | None = None
        self.key_tokens = 0


GONE = Block()
"""The engine's null block, which stands for tokens that a request no longer needs."""
BLANK = Block()
"""A block that one request holds and that cannot be found."""
OWN = Block()
"""A block that one request holds and that it alone will look for."""


class _Ended:
    """Blocks in a row of the queue for which nobody will look."""

    __slots__ = ("count",)

    def __init__(self, count: int) -> None:
        self.count = count


class BlockPool:
    """All blocks, the free ones in the order in which they are given away.

    Attributes:
        total: Blocks that requests can hold.
        free: Blocks that nobody holds; what they keep may still be found.
    """

    __slots__ = ("_blank", "_found", "_last", "_queue", "free", "total")

    def __init__(self, num_gpu_blocks: int) -> None:
        self.total = self.free = self._blank = num_gpu_blocks - 1
        self._queue: OrderedDict[Block | _Ended, None] = OrderedDict()
        self._last: _Ended | None = None  # if it is the last one of the queue
        self._found: dict[GroupKey, dict[Block, None]] = {}

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self.total - self.free

    def take(self, count: int) -> None:
        """Give away the first `count` free blocks; what they kept is lost."""
        self.free -= count
        if count <= self._blank:
            self._blank -= count
            return
        count -= self._blank
        self._blank = 0
        while count:
            first = next(iter(self._queue))
            if isinstance(first, _Ended):
                if first.count > count:
                    first.count -= count
                    return
                count -= first.count
                if first is self._last:
                    self._last = None
            else:
                count -= 1
                self.forget(first)
            del self._queue[first]

    def give_back(self, blocks: list[Block]) -> None:
        """Let go of blocks, the one to give away first in front.

        Blocks that can be found go to the end of the queue, others to its front.
        """
        blank, own, gone = blocks.count(BLANK), blocks.count(OWN), blocks.count(GONE)
        self._blank += blank
        self.free += blank
        if own and blank + own + gone == len(blocks):
            self._end(own)
            return
        if blank + gone == len(blocks):
            return
        for block in blocks:
            if block is BLANK or block is GONE:
                continue
            if block is OWN:
                self._end(1)
                continue
            block.holders -= 1
            if block.holders:
                continue
            self.free += 1
            if block.key is None:
                self._blank += 1
            else:
                self._queue[block] = None
                self._last = None

    def give_back_blank(self) -> None:
        """Let go of one block that cannot be found."""
        self._blank += 1
        self.free += 1

    def _end(self, count: int) -> None:
        self.free += count
        if self._last is None:
            self._last = _Ended(0)
            self._queue[self._last] = None
        self._last.count += count

    def hold(self, blocks: list[Block]) -> None:
        """Hold blocks that were found, taking those that are free out of the queue."""
        for block in blocks:
            if block is GONE:
                continue
            if block.holders == 0:
                del self._queue[block]
                self.free -= 1
            block.holders += 1

    def find(self, group: int, key: Key) -> Block | None:
        """Return the block that completes a prefix, the oldest of several, None if there is none."""
        found = self._found.get((group, key))
        return next(iter(found)) if found else None

    def keep(self, group: int, key: Key, block: Block, tokens: int) -> Block:
        """Let a block that is held be found as the one that completes a prefix of `tokens` tokens, and return it."""
        name = (group, key)
        if block.key == name:
            return block
        if block is BLANK or block is OWN:
            block = Block()
        else:
            self.forget(block)
        block.key, block.key_tokens = name, tokens
        self._found.setdefault(name, {})[block] = None
        return block

    def forget(self, block: Block) -> None:
        """Let a block be found no more."""
        if block.key is None:
            return
        found = self._found[block.key]
        del found[block]
        if not found:
            del self._found[block.key]
        block.key, block.key_tokens = None, 0
