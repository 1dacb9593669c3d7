"""SGLang's prefix cache: a tree of runs of pages, whose leaves nobody uses are given away first.

Source: SGLang 0.5.23, mem_cache/radix_cache.py, with eviction by least recent use.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from kvbudget.simulation.prefixes import Keys, Prefixes
from kvbudget.workload.request import Request

if TYPE_CHECKING:
    from kvbudget.simulation.prefixes import Key

NO_KEYS = Keys(Prefixes(), Request(0, 0, 0), 0)
"""The prefixes of nothing."""


class Node:
    """A run of pages that follow the run of the node above.

    Attributes:
        parent: The node above; the root is its own.
        keys: The prefixes of a request that goes through it.
        start: Tokens before the run.
        end: Tokens up to its end.
        children: The nodes below, by the prefix that ends with their first page.
        locks: Requests that use it or a node below.
        used: When it was last used; larger is later.
        offered: Whether it stands among the leaves that may be given away.
    """

    __slots__ = ("children", "end", "keys", "locks", "offered", "parent", "start", "used")

    def __init__(self, parent: Node | None, keys: Keys, start: int, end: int, used: int) -> None:
        self.parent = parent or self
        self.keys = keys
        self.start, self.end = start, end
        self.children: dict[Key, Node] = {}
        self.locks = 0
        self.used = used
        self.offered = False


class RadixCache:
    """The tree. Lengths are tokens, always whole pages.

    Attributes:
        evictable: Tokens of nodes that nobody uses.
        protected: Tokens of nodes that somebody uses.
    """

    __slots__ = ("_leaves", "_page", "_pushes", "_root", "_time", "evictable", "protected")

    def __init__(self, page_size: int) -> None:
        self._page = page_size
        self._root = Node(None, NO_KEYS, 0, 0, 0)
        self._root.locks = 1
        self._time = self._pushes = 0
        self._leaves: list[tuple[int, int, Node]] = []
        self.evictable = self.protected = 0

    def find(self, keys: Keys, tokens: int) -> Node:
        """Return the node with which the longest known prefix of at most `tokens` tokens ends; a run may be split."""
        return self._walk(keys, tokens - tokens % self._page)

    def insert(self, keys: Keys, tokens: int) -> tuple[int, Node]:
        """Let the first `tokens` tokens be found; return how many were known, and the node with which they end."""
        node = self._walk(keys, tokens)
        known = node.end
        if known < tokens:
            self._time += 1  # a new node is younger than what was used on the way to it
            below = Node(node, keys, known, tokens, self._time)
            node.children[keys.of(known + self._page)] = below
            self.evictable += tokens - known
            self._offer(below)
            node = below
        return known, node

    def _walk(self, keys: Keys, tokens: int) -> Node:
        self._time += 1
        node = self._root
        while node.end < tokens:
            child = node.children.get(keys.of(node.end + self._page))
            if child is None:
                break
            child.used = self._time
            agreed = self._agreed(child, keys, tokens)
            if agreed < child.end:
                node = self._split(child, agreed)
                break
            self._offer(child)
            node = child
        return node

    def _agreed(self, node: Node, keys: Keys, tokens: int) -> int:
        """Return up to where a request goes along a node, of which its first page is known to agree."""
        theirs = node.keys
        most = min(node.end, tokens)
        if theirs.of(most) == keys.of(most):
            return most
        page = self._page
        low, high = node.start // page + 1, most // page
        while high - low > 1:
            middle = (low + high) // 2
            if theirs.of(middle * page) == keys.of(middle * page):
                low = middle
            else:
                high = middle
        return low * page

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node's run in two and return the upper part."""
        parent, keys = node.parent, node.keys
        self._time += 1
        upper = Node(parent, keys, node.start, at, self._time)
        upper.locks = node.locks
        parent.children[keys.of(node.start + self._page)] = upper
        upper.children[keys.of(at + self._page)] = node
        node.parent, node.start = upper, at
        self._offer(node)
        return upper

    def lock(self, node: Node) -> None:
        """Let a request use a node and all above."""
        at = node
        while at is not self._root:
            if at.locks == 0:
                self.evictable -= at.end - at.start
                self.protected += at.end - at.start
            at.locks += 1
            at = at.parent

    def unlock(self, node: Node) -> None:
        """Let a request use them no longer."""
        at = node
        while at is not self._root:
            at.locks -= 1
            if at.locks == 0:
                self.evictable += at.end - at.start
                self.protected -= at.end - at.start
                self._offer(at)
            at = at.parent

    def _offer(self, node: Node) -> None:
        """Remember a leaf that nobody uses; what changes until it is needed is seen then."""
        if node.locks == 0 and not node.children and not node.offered:
            node.offered = True
            self._pushes += 1
            heappush(self._leaves, (node.used, self._pushes, node))

    def evict(self, tokens: int) -> int:
        """Give away whole leaves, the least recently used first, until `tokens` tokens are; return how many were."""
        freed = 0
        while freed < tokens and self._leaves:
            used, _, node = heappop(self._leaves)
            node.offered = False
            if node.locks or node.children or node.used != used:
                self._offer(node)  # it was used since then, and stands further behind
                continue
            parent = node.parent
            del parent.children[node.keys.of(node.start + self._page)]
            freed += node.end - node.start
            self._offer(parent)
        self.evictable -= freed
        return freed
