"""The loop of `kvbudget.simulation.fast` as machine code, by numba: the same functions, compiled as they stand.

Some ten times as fast, bit for bit the same. What is compiled is kept in numba's cache, so that it is done once after
an installation. Requests that share prefixes go the plain way, as do those that come while the loop goes on.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kvbudget.simulation import clock, fast, runs, summary
from kvbudget.simulation.clock import LATEST, step_time
from kvbudget.simulation.results import ROW, TOTALS
from kvbudget.simulation.summary import Recorder, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, MutableSequence, Sequence

    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.results import Result, Row, Step
    from kvbudget.simulation.settings import SchedulerSettings

PARTS = (
    clock.decodes_time, clock.step_time, clock.steps_until, clock.wake,
    runs.new_queue, runs.settle, runs.find, runs.adopt, runs.disown, runs.give_back,
    fast.those_left, fast.lasting, fast.loop, summary.halve, summary.add_rows,
)  # fmt: skip
"""What is compiled; a function stands behind those that it calls."""
LEAST_REQUESTS = 30_000
"""Requests from which on it is worth the second that loading numba and the compiled loop takes."""
LEAST_LOADED = 2_000
"""The same once they are loaded, for the tables of the clock."""
TABLED = 8
"""Lines of the clock's tables for each request up to which they are worth being made."""
ENDED = (True,)
"""What stands for the end of the loop, after which rows are left."""
ROOM = 1 << 58
"""Picoseconds that no step and no jump may take, so that times stay below 2**63: three days."""


def is_worth(result: Result, settings: SchedulerSettings, times: Clock) -> bool:
    """Return whether a workload that shares nothing should go through `run`: numba is here and enough is to be done."""
    least = LEAST_LOADED if compiled.cache_info().currsize else LEAST_REQUESTS
    lines = settings.max_num_batched_tokens + settings.max_num_seqs
    return least <= len(result) >= lines / TABLED and is_here() and _in_range(result, settings, times)


@cache
def is_here() -> bool:
    """Return whether numba is installed (the extra ``kvbudget[fast]``), can be loaded and keeps what it compiles."""
    try:
        from numba import njit  # noqa: PLC0415 - an extra, and slow to load

        njit(cache=True)(clock.wake)
    except Exception:  # noqa: BLE001 - whatever an installation that does not fit raises; plain Python needs none
        return False
    return True


def _in_range(result: Result, settings: SchedulerSettings, times: Clock) -> bool:
    """Return whether all that is computed stays below 2**63."""
    tokens, held = settings.max_num_batched_tokens, settings.num_gpu_blocks * settings.block_size
    longest = step_time(times.pace, tokens, settings.max_num_seqs, held, held + tokens * settings.max_model_len)
    steps = max(result.output_tokens, default=0) + 1
    return longest * steps < ROOM and (sum(result.output_tokens) << len(result).bit_length()) < LATEST


def row_at(rows: Any, at: int) -> Row:  # noqa: ANN401 - a table of numpy
    """Return a row of a table (`summary.row_at`)."""
    return (
        rows[at, 0], rows[at, 1], rows[at, 2], rows[at, 3], rows[at, 4], rows[at, 5],
        rows[at, 6], rows[at, 7], rows[at, 8], rows[at, 9], rows[at, 10],
    )  # fmt: skip


def filled(keys: Sequence[int], values: Sequence[int]) -> dict[int, int]:
    """Return a dict of numba."""
    held = {0: 0 for _ in range(0)}  # noqa: B035 - it is empty, but a compiler sees of what
    for i in range(len(keys)):
        held[keys[i]] = values[i]
    return held


def taken(held: dict[int, int], keys: MutableSequence[int], values: MutableSequence[int]) -> None:
    """Write what is in a dict of numba into tables; its own methods take seconds to load."""
    at = 0
    for key, value in held.items():
        keys[at], values[at] = key, value
        at += 1  # noqa: SIM113 - it is compiled


@cache
def compiled() -> dict[str, Any]:
    """Return the functions by their names, each of which is compiled when it is first called."""
    from numba import njit  # noqa: PLC0415 - an extra, and slow to load

    known: dict[str, Any] = {}
    for part in (row_at, filled, taken, *PARTS):
        function = FunctionType(part.__code__, {**part.__globals__, **known}, part.__name__)
        function.__module__, function.__qualname__ = part.__module__, part.__qualname__
        known[part.__name__] = njit(cache=True, error_model="numpy")(function)
    return known


def was_compiled() -> bool:
    """Return whether this process had to compile, as nothing was kept from before."""
    return compiled.cache_info().currsize > 0 and any(part.stats.cache_misses for part in compiled().values())


def run(
    result: Result,
    settings: SchedulerSettings,
    times: Clock,
    record: Callable[[Step], object] | None = None,
    *,
    as_served: bool = False,
) -> None:
    """Do what `kvbudget.simulation.fast.run` does where nothing is shared.

    Raises:
        InputError: As there.
    """
    import numpy as np  # noqa: PLC0415 - an extra, and slow to load

    rules = fast.rules_of(settings, len(result).bit_length(), record, as_served=as_served)
    pace = times.pace
    table = pace._replace(
        by_tokens=np.array([pace.by_tokens[count] for count in range(rules.budget + 1)], np.int64),
        by_requests=np.array([pace.by_requests[count] for count in range(rules.seats + 1)], np.int64),
        windows=np.array(pace.windows, np.int64),
        window_reads=np.array(pace.window_reads, np.int64),
        window_pairs=np.array(pace.window_pairs, np.int64),
    )
    columns = tuple(np.frombuffer(column, np.int64) for column in fast.columns_of(result))
    memory = tuple(np.array(numbers, np.int64) for numbers in fast.memory_of(rules, len(result)))
    told: Any = np.array([fast.FOREVER, 0, 0, 0, 0])
    totals: Any = np.zeros(len(TOTALS), np.int64)
    rows: Any = np.zeros((fast.LOGGED if rules.logging else 0, ROW), np.int64)
    adding = _Adding(record.tally) if isinstance(record, Recorder) else None
    for _ in chain(compiled()["loop"](rules, table, columns, memory, told, totals, rows, None), ENDED):
        if adding is not None:
            adding.add(rows, told[fast.NOTED])
        else:
            fast.write(record, rows[: told[fast.NOTED]].tolist(), told[fast.NOTED])
    if adding is not None:
        adding.finish()
    fast.take_totals(result, totals.tolist())


class _Adding:
    """A recorder's sums as tables of numpy and numba while they are added up.

    Args:
        tally: Where they are taken from, and put in the end.
    """

    def __init__(self, tally: Tally) -> None:
        import numpy as np  # noqa: PLC0415 - an extra, and slow to load

        self._tally = tally
        pairs = [np.array([*weights.items()], np.int64).reshape(-1, 2).T.copy() for weights in tally[:4]]
        self._weights = [compiled()["filled"](keys, values) for keys, values in pairs]
        self._numbers = [np.array(numbers, np.int64) for numbers in tally[4:]]
        self._table = Tally(*self._weights, *self._numbers)

    def add(self, rows: Any, count: int) -> None:  # noqa: ANN401 - a table of numpy
        """Add up rows."""
        compiled()["add_rows"](rows, count, self._table)

    def finish(self) -> None:
        """Put the sums back."""
        import numpy as np  # noqa: PLC0415 - an extra, and slow to load

        for held, weights in zip(self._weights, self._tally[:4], strict=True):
            pairs: Any = np.zeros((2, len(held)), np.int64)
            compiled()["taken"](held, *pairs)
            weights.update(zip(*pairs.tolist(), strict=True))
        for held, numbers in zip(self._numbers, self._tally[4:], strict=True):
            numbers[:] = held.tolist()
