"""A workload that is played several times: read once, kept in columns."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from kvbudget.workload.request import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Kept:
    """Requests in their order, 24 bytes each where they share nothing and are as urgent as others.

    Args:
        requests: The workload, by rising arrival, which is read to its end.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._arrivals, self._prompts, self._outputs = array("d"), array("q"), array("q")
        self._special: dict[int, Request] = {}
        for request in requests:
            if request != Request(*request[:3]):
                self._special[len(self)] = request
            self._arrivals.append(request.arrival)
            self._prompts.append(request.prompt_tokens)
            self._outputs.append(request.output_tokens)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._arrivals)

    def __iter__(self) -> Iterator[Request]:
        """Yield them, from the first one each time."""
        plain = map(Request, self._arrivals, self._prompts, self._outputs)
        if not self._special:
            return plain
        return (self._special.get(index, request) for index, request in enumerate(plain))

    @property
    def seconds(self) -> float:
        """From the first arrival to the last one."""
        return self._arrivals[-1] - self._arrivals[0] if self._arrivals else 0.0

    def cut_at(self, max_model_len: int) -> int:
        """Return how many answers such a limit cuts: of prompts that leave room for some of it."""
        lengths = zip(self._prompts, self._outputs, strict=True)
        return sum(prompt < max_model_len < prompt + output for prompt, output in lengths)
