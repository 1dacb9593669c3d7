"""Where simulations are run: on the cores of this host, or on a Dask cluster, both through joblib.

Each function returns what `kvbudget.simulation.sweep.sweep` takes as `fan_out`. The packages are extras: joblib is
``kvbudget[sweep]``, and ``kvbudget[cluster]`` adds Dask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.errors import AccessError, InputError
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from kvbudget.simulation.sweep import Chunk, FanOut, Row, Work

CONNECT_SECONDS = 10
"""How long a cluster may take to answer, and as long again to have a worker."""


def on_cores(jobs: int = -1) -> FanOut | None:
    """Return what runs chunks in processes of this host, None where joblib is not installed.

    Args:
        jobs: How many processes; -1 for one on each core.
    """
    try:
        from joblib import Parallel, delayed  # noqa: PLC0415 - an extra, and slow to import
    except ImportError:
        return None

    def fan_out(work: Work, chunks: Iterable[Chunk]) -> Iterator[list[Row]]:
        from joblib.externals.loky.process_executor import TerminatedWorkerError  # noqa: PLC0415

        parallel = Parallel(n_jobs=jobs, backend="loky", return_as="generator_unordered", batch_size=1)
        try:
            yield from parallel(delayed(work)(chunk) for chunk in chunks)
        except TerminatedWorkerError:
            raise AccessError(
                "A process that ran simulations was killed, perhaps for memory; give fewer --jobs. With --results, "
                "what was done is kept."
            ) from None

    return fan_out


def on_cluster(address: str) -> FanOut:
    """Return what runs chunks on a Dask cluster; a worker that is lost loses nothing, another one takes its chunks.

    Args:
        address: Where the scheduler listens: ``tcp://10.0.0.1:8786`` or ``10.0.0.1:8786``.

    Raises:
        InputError: Dask or joblib is not installed.
    """
    try:
        from distributed import Client, KilledWorker  # noqa: PLC0415 - an extra, and slow to import
        from joblib import Parallel, delayed  # noqa: PLC0415
        from joblib._dask import DaskDistributedBackend  # noqa: PLC0415
    except ImportError as error:
        raise InputError(
            f"--scheduler needs {error.name}, which is not installed; pip install 'kvbudget[cluster]'."
        ) from None

    class Backend(DaskDistributedBackend):  # type: ignore[misc] # of a package without types
        """Joblib's backend, in two points another (joblib 1.6.0).

        It waits for ever for a task that the scheduler gives up, and it does all work here while there is one worker.
        """

        def effective_n_jobs(self, n_jobs: int) -> int:
            return max(2, int(super().effective_n_jobs(n_jobs)))

        def submit(self, func: Any, callback: Callable[[Any], object]) -> Any:  # noqa: ANN401 - joblib's types
            future = super().submit(func, callback)

            def failed(done: Any) -> None:  # noqa: ANN401
                if (error := done.exception()) is not None:
                    callback(error)

            future.add_done_callback(failed)
            return future

    def fan_out(work: Work, chunks: Iterable[Chunk]) -> Iterator[list[Row]]:
        try:
            client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TimeoutError) as error:
            raise AccessError(
                f"--scheduler {shown(address, 80)}: no Dask scheduler answers there ({shown(str(error), 120)})."
            ) from None
        with client:
            backend = Backend(client=client, wait_for_workers_timeout=CONNECT_SECONDS)
            parallel = Parallel(n_jobs=-1, backend=backend, return_as="generator_unordered", batch_size=1)
            try:
                yield from parallel(delayed(work)(chunk) for chunk in chunks)
            except TimeoutError:
                raise AccessError(
                    f"--scheduler {shown(address, 80)}: the scheduler has no workers; start some with `dask worker`."
                ) from None
            except KilledWorker:
                raise AccessError(
                    "A chunk was given up after several workers died with it, perhaps for memory; give workers more "
                    "of it, or fewer requests. With --results, what was done is kept."
                ) from None

    return fan_out
