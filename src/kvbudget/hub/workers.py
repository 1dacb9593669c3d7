"""Waiting for a network with a limit on the time of it all.

The timeouts of HTTP clients are those of one read: a host that sends a byte now and then, or a name server that never
answers, holds a caller for as long as it likes. So requests run in threads of their own, and the caller stops waiting.
"""

from __future__ import annotations

import queue
import threading
import time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

T = TypeVar("T")

WORKERS = 16
"""Requests at the same time; more bring the hub's rate limit near and gain little."""


class OutOfTimeError(Exception):
    """The limit has passed and not all was done."""


def in_order(jobs: Sequence[Callable[[], T]], deadline: float, done: Callable[[int], None]) -> Iterator[T]:
    """Yield what the jobs return, in their order, while they run in a few threads.

    The first failure of a job is raised and no further job begins; a job that hangs is left behind in its thread,
    which does not keep the process alive.

    Args:
        jobs: What to do.
        deadline: When to stop waiting, on `time.monotonic`.
        done: Called with the number of jobs that are done, each time that one is.

    Raises:
        OutOfTimeError: The deadline has passed.
    """
    answers: queue.SimpleQueue[tuple[int, T | None, BaseException | None]] = queue.SimpleQueue()
    waiting = iter(enumerate(jobs))
    lock, stop = threading.Lock(), threading.Event()

    def work() -> None:
        while not stop.is_set():
            with lock:
                number, job = next(waiting, (None, None))
            if number is None or job is None:
                return
            try:
                answers.put((number, job(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
                answers.put((number, None, error))
                return

    for _ in range(min(WORKERS, len(jobs))):
        threading.Thread(target=work, daemon=True).start()
    found: dict[int, T | None] = {}
    at = 0
    try:
        for count in range(1, len(jobs) + 1):
            try:
                number, value, error = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise OutOfTimeError from None
            if error is not None:
                raise error
            found[number] = value
            done(count)
            while at in found:
                yield found.pop(at)  # type: ignore[misc] # a value of None is one of T
                at += 1
    finally:
        stop.set()
