"""The blocks of the cache: who holds them, which may be given away first, and what they still keep.

Source: vLLM 0.32, v1/core/block_pool.py.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvbudget.simulation.prefixes import Key

GroupKey = tuple[int, "Key"]
"""A prefix in the cache of one group of layers."""


class Block:
    """A block of the pool.

    Attributes:
        id: Its number; 0 is the null block, which stands for tokens that a request no longer needs.
        holders: How many requests hold it.
        key: The prefix that it completes, None if it cannot be found.
        key_tokens: How many tokens that prefix has.
    """

    __slots__ = ("holders", "id", "key", "key_tokens")

    def __init__(self, number: int) -> None:
        self.id = number
        self.holders = 0
        self.key: GroupKey | None = None
        self.key_tokens = 0


class BlockPool:
    """All blocks, the free ones in the order in which they are given away."""

    __slots__ = ("_caching", "_found", "_free", "null", "total")

    def __init__(self, num_gpu_blocks: int, *, caching: bool) -> None:
        self.null = Block(0)
        self.total = num_gpu_blocks - 1
        self._caching = caching
        blocks = [Block(number) for number in range(1, num_gpu_blocks)]
        self._free: OrderedDict[int, Block] = OrderedDict((block.id, block) for block in blocks)
        self._found: dict[GroupKey, dict[int, Block]] = {}

    @property
    def free(self) -> int:
        """Blocks that nobody holds; what they keep may still be found."""
        return len(self._free)

    @property
    def used(self) -> int:
        """Blocks that somebody holds."""
        return self.total - len(self._free)

    def take(self, count: int) -> list[Block]:
        """Give away the first `count` free blocks; what they kept is lost."""
        taken = []
        for _ in range(count):
            block = self._free.popitem(last=False)[1]
            self.forget(block)
            block.holders = 1
            taken.append(block)
        return taken

    def give_back(self, blocks: Iterable[Block]) -> None:
        """Let go of blocks, the one to give away first in front.

        Blocks that can be found go to the end of the queue, others to its front.
        """
        first: list[Block] = []
        for block in blocks:
            if block is self.null:
                continue
            block.holders -= 1
            if block.holders:
                continue
            if block.key is None or not self._caching:
                first.append(block)
            else:
                self._free[block.id] = block
        for block in reversed(first):
            self._free[block.id] = block
            self._free.move_to_end(block.id, last=False)

    def hold(self, blocks: Sequence[Block]) -> None:
        """Hold blocks that were found, taking those that are free out of the queue."""
        for block in blocks:
            if block is self.null:
                continue
            if block.holders == 0:
                del self._free[block.id]
            block.holders += 1

    def find(self, group: int, key: Key) -> Block | None:
        """Return the block that completes a prefix, the oldest of several, None if there is none."""
        found = self._found.get((group, key))
        return next(iter(found.values())) if found else None

    def keep(self, group: int, key: Key, block: Block, tokens: int) -> None:
        """Let a block be found as the one that completes a prefix of `tokens` tokens."""
        name = (group, key)
        if block.key == name:
            return
        self.forget(block)
        block.key, block.key_tokens = name, tokens
        self._found.setdefault(name, {})[block.id] = block

    def forget(self, block: Block) -> None:
        """Let a block be found no more."""
        if block.key is None:
            return
        found = self._found[block.key]
        del found[block.id]
        if not found:
            del self._found[block.key]
        block.key, block.key_tokens = None, 0
