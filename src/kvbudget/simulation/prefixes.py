"""Which prefixes of requests are the same tokens: the block hashes of the engine, without tokens."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.workload.request import Request, Segment

Key = tuple[int, ...]
"""What a prefix of a request is; equal keys mean equal tokens."""


class Prefixes:
    """The shared beginnings of a workload; a path of segments that two requests have in common is one node."""

    __slots__ = ("_nodes",)

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int, int], int] = {}

    def path(self, request: Request) -> tuple[tuple[int, int, int], ...]:
        """Return what a request may share, in order: (node before, segment, tokens up to its end).

        What it generates is part of it where later prompts name it and all of its prompt has a name.
        """
        node = end = 0
        path: list[tuple[int, int, int]] = []
        for segment in shared_segments(request):
            end += segment.tokens
            path.append((node, segment.id, end))
            node = self._nodes.setdefault((node, segment.id, segment.tokens), len(self._nodes) + 1)
        return tuple(path)


def shared_segments(request: Request) -> tuple[Segment, ...]:
    """Return what a request may share with others: what its prompt begins with, and its output where that is named."""
    held: list[Segment] = []
    room = request.prompt_tokens
    for segment in request.segments:
        if segment.tokens < 1:
            continue
        if segment.tokens >= room:
            held.append(segment._replace(tokens=room))
            room = 0
            break
        held.append(segment)
        room -= segment.tokens
    if room == 0 and held and request.output_segment is not None:
        held.append(held[0]._replace(id=request.output_segment, tokens=request.output_tokens))
    return tuple(held)


class Keys:
    """The keys of one request's prefixes.

    Attributes:
        shared: How many of its first tokens others may have too.
    """

    __slots__ = ("_ends", "_own", "_path", "shared")

    def __init__(self, prefixes: Prefixes, request: Request, index: int) -> None:
        self._path = prefixes.path(request)
        self._ends = [end for _, _, end in self._path]
        self._own = ~index
        self.shared = self._ends[-1] if self._ends else 0

    def of(self, tokens: int) -> Key:
        """Return the key of its first `tokens` tokens."""
        at = bisect_left(self._ends, tokens)
        if at == len(self._ends):
            return (self._own, tokens)
        node, segment, _ = self._path[at]
        return (node, segment, tokens - (self._ends[at - 1] if at else 0))


class Shared(NamedTuple):
    """What a request shares with others.

    Attributes:
        path: Its segments as `Prefixes.path` gives them.
        tokens: How many tokens it begins with that others begin with too.
    """

    path: tuple[tuple[int, int, int], ...]
    tokens: int


def shared_by(requests: Sequence[Request]) -> dict[int, Shared] | None:
    """Return what requests of a workload share with others, by their place; None if an answer is shared.

    A request that begins like no other is left out.
    """
    if not any(request.segments for request in requests):
        return {}
    answers = Counter(request.output_segment for request in requests if request.output_segment is not None)
    if answers and (
        max(answers.values()) > 1 or any(segment.id in answers for request in requests for segment in request.segments)
    ):
        return None
    prefixes = Prefixes()
    paths = [prefixes.path(request._replace(output_segment=None)) if request.segments else () for request in requests]
    visits = Counter((node, segment) for path in paths for node, segment, _ in path)
    shared = {}
    for index, path in enumerate(paths):
        tokens = max((end for node, segment, end in path if visits[node, segment] > 1), default=0)
        if tokens:
            shared[index] = Shared(path, tokens)
    return shared
