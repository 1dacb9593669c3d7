"""Where simulations are run: on the cores of this host, or on a Dask cluster, both through joblib.

Each function returns what `kvbudget.simulation.sweep.sweep` takes as `fan_out`. The packages are extras: joblib is
``kvbudget[sweep]``, and ``kvbudget[cluster]`` adds Dask.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvbudget import __version__
from kvbudget.errors import AccessError, InputError, KvbudgetError
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvbudget.simulation.sweep import Chunk, FanOut, Row, Work

CONNECT_SECONDS = 10
"""How long a cluster may take to answer, as long again to have a worker, and how long it may be without one later."""


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
                f"A process that ran simulations was killed, perhaps for memory; give fewer --jobs. {_KEPT}"
            ) from None

    return fan_out


def on_cluster(address: str) -> FanOut:
    """Return what runs chunks on a Dask cluster; a worker that is lost loses nothing, another one takes its chunks.

    A chunk with which several workers died is given up (Dask's ``allowed-failures``), and so is a cluster that has had
    no worker for `CONNECT_SECONDS`.

    Args:
        address: Where the scheduler listens: ``tcp://10.0.0.1:8786`` or ``10.0.0.1:8786``.

    Raises:
        InputError: Dask or joblib is not installed.
    """
    try:
        from distributed import Client  # noqa: PLC0415 - an extra, and slow to import
        from joblib import Parallel, delayed  # noqa: PLC0415

        from kvbudget.simulation.dask_backend import Backend  # noqa: PLC0415
    except ImportError as error:
        raise InputError(
            f"--scheduler needs {error.name}, which is not installed; pip install 'kvbudget[cluster]'."
        ) from None
    place = f"--scheduler {shown(address, 80)}"

    def fan_out(work: Work, chunks: Iterable[Chunk]) -> Iterator[list[Row]]:
        with _silent("distributed"):
            try:
                client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
            except (OSError, ValueError, TimeoutError) as error:
                raise AccessError(f"{place}: no Dask scheduler answers there ({shown(str(error), 120)}).") from None
            with client:
                backend = Backend(client, patience=CONNECT_SECONDS)
                parallel = Parallel(n_jobs=-1, backend=backend, return_as="generator_unordered", batch_size=1)
                try:
                    yield from parallel(delayed(work)(chunk) for chunk in chunks)
                except KvbudgetError:
                    raise
                except Exception as error:
                    raise _failure(place, error) from error

    return fan_out


def _failure(place: str, error: Exception) -> AccessError:
    """Return what became of a cluster, or of a worker on it."""
    from distributed import CancelledError, KilledWorker  # noqa: PLC0415 - it is there where this is called

    if isinstance(error, TimeoutError):
        what = f"{place}: the scheduler has no workers, or lost them all, perhaps for memory; start some: `dask worker`"
    elif isinstance(error, KilledWorker):
        what = (
            "A chunk was given up after several workers died with it, perhaps for memory; give workers more of it, or "
            "fewer requests"
        )
    elif isinstance(error, (CancelledError, OSError)):
        what = f"{place}: the scheduler was lost; start it and its workers again"
    else:
        what = (
            f"{place}: a worker failed ({shown(f'{type(error).__name__}: {error}', 120)}); install kvbudget "
            f"{__version__} there as here"
        )
    return AccessError(f"{what}. {_KEPT}")


@contextmanager
def _silent(logger: str) -> Iterator[None]:
    """Keep a package from logging what an error says anyway."""
    from logging import CRITICAL, getLogger  # noqa: PLC0415 - few ask for it

    log = getLogger(logger)
    before = log.level
    log.setLevel(CRITICAL + 1)
    try:
        yield
    finally:
        log.setLevel(before)


_KEPT = "With --results, what was done is kept."
