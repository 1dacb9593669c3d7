"""A workload that is played several times: read once, kept in columns."""

from __future__ import annotations

from array import array
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.workload.recorded import Profile, Trace
from kvbudget.workload.request import Request
from kvbudget.workload.spec import parse_workload
from kvbudget.workload.traces import read_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvbudget.workload.spec import Workload, WorkloadSpec

MOST_SHARED = 1 << 20
"""Requests of a trace that are kept for all workloads of a process: 25 MB where they share nothing."""


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


def shared_workload(spec: WorkloadSpec) -> Workload:
    """Return the workload that options describe, as `parse_workload`, its trace read once while others use it too."""
    return parse_workload(spec, None if spec.trace is None else shared_trace(spec.trace, spec.trace_format))


def shared_trace(path: str, format_name: str | None = None) -> Trace | Profile:
    """Return what a workload file holds, read once for all workloads of this process that ask for it in a row.

    Raises:
        InputError: The format is not known, or the file is not of it.
        AccessError: The file system does not let us read it.
    """
    try:
        status = Path(path).stat()
    except (OSError, ValueError):  # a file in an archive, or one that reading will refuse
        return read_trace(Path(path), format_name)
    return _shared(path, format_name, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _shared(path: str, format_name: str | None, changed: int, size: int) -> Trace | Profile:
    del changed, size  # by which another content of the file is known
    source = read_trace(Path(path), format_name)
    if isinstance(source, Profile) or source.drawn:
        return source
    try:
        kept = Kept(islice(source.requests(), MOST_SHARED + 1))
    except InputError:  # which may stand behind all that is wanted
        return source
    if len(kept) > MOST_SHARED:
        return source
    left_out = source.left_out

    def reading(trace: Trace, seed: int) -> Iterator[Request]:  # noqa: ARG001 - nothing is left to chance
        trace.left_out = left_out
        return iter(kept)

    return replace(source, reading=reading)
