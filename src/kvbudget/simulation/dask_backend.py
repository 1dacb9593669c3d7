"""Joblib's Dask backend, of which every chunk comes to an end: with its rows, or with an error.

Joblib's own (1.6.0) gathers results with Dask's `as_completed`, which loses a task whose result was on a worker that
died and that fails when it is run again; it waits for ever where no worker is left; and it does all work here while
there is one worker. This module needs ``kvbudget[cluster]``.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

from joblib._dask import DaskDistributedBackend

from kvbudget import __version__
from kvbudget.errors import AccessError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from distributed import Client

    Call = tuple[Callable[..., object], Sequence[Any], dict[str, Any]]
    Callback = Callable[[object], object]

LOOK_SECONDS = 1
"""How often a cluster is asked whether it has workers."""


class Backend(DaskDistributedBackend):  # type: ignore[misc] # of a package without types
    """What `joblib.Parallel` sends its calls to.

    Args:
        client: Of the cluster.
        patience: Seconds that the cluster may be without a worker before what it was asked ends with `TimeoutError`.
    """

    def __init__(self, client: Client, *, patience: float) -> None:
        super().__init__(client=client, wait_for_workers_timeout=patience)
        self._patience = patience
        self._unanswered: list[Callback] = []

    def start_call(self) -> None:
        """Begin to send."""
        super().start_call()
        self.client.loop.add_callback(self._watch)

    def effective_n_jobs(self, n_jobs: int) -> int:
        """Return how many calls may run at a time; one would be made here."""
        return max(2, int(super().effective_n_jobs(n_jobs)))

    def submit(self, func: Any, callback: Callback) -> None:  # noqa: ANN401 - joblib's batch of calls
        """Have calls made, and give the callback what they return, or the error."""
        self._unanswered.append(callback)

        async def run() -> None:
            try:
                outcome = await self.client.submit(call_all, __version__, func.items, pure=False)
            except Exception as error:  # noqa: BLE001 - whatever a worker or the cluster raises
                outcome = error
            self._answer(callback, outcome)

        self.client.loop.add_callback(run)

    def _answer(self, callback: Callback, outcome: object) -> None:
        if callback in self._unanswered:
            self._unanswered.remove(callback)
            callback(outcome)

    async def _watch(self) -> None:
        """Give up what was asked of a cluster that has had no workers for a while."""
        seen = monotonic()
        while self._continue:
            await asyncio.sleep(LOOK_SECONDS)
            if await self._has_workers():
                seen = monotonic()
            elif monotonic() - seen > self._patience:
                for callback in tuple(self._unanswered):
                    self._answer(callback, TimeoutError())

    async def _has_workers(self) -> bool:
        try:
            return bool(await asyncio.wait_for(self.client.scheduler.ncores(), self._patience))
        except (OSError, TimeoutError):
            return False


def call_all(version: str, calls: Iterable[Call]) -> list[object]:
    """Return what functions return; this is run on a worker.

    Raises:
        AccessError: The worker has another version of kvbudget, whose rows may differ.
    """
    if version != __version__:
        raise AccessError(f"A worker has kvbudget {__version__}, and here is {version}; install the same there.")
    return [function(*arguments, **options) for function, arguments, options in calls]
