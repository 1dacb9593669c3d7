"""The loop of `kvbudget.simulation.fast` as machine code, by numba: the same functions, compiled as they stand.

Some ten times as fast, bit for bit the same. What is compiled is kept in numba's cache, so that it is done once after
an installation. Requests that share prefixes go the plain way, as do those that come while the loop goes on.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import find_spec
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kvbudget.simulation import clock, fast, runs
from kvbudget.simulation.clock import LATEST, step_time
from kvbudget.simulation.results import TOTALS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvbudget.simulation.clock import Clock
    from kvbudget.simulation.results import Result, Step
    from kvbudget.simulation.settings import SchedulerSettings

PARTS = (
    clock.decodes_time, clock.step_time, clock.steps_until, clock.wake,
    runs.new_queue, runs.settle, runs.find, runs.adopt, runs.disown, runs.give_back,
    fast.those_left, fast.lasting, fast.loop,
)  # fmt: skip
"""What is compiled; a function stands behind those that it calls."""
LEAST_REQUESTS = 100_000
"""Requests from which on it is worth the second that loading numba and the compiled loop takes."""
LEAST_LOADED = 2_000
"""The same once they are loaded, for the tables of the clock."""
ROOM = 1 << 58
"""Picoseconds that no step and no jump may take, so that times stay below 2**63: three days."""


def is_worth(result: Result, settings: SchedulerSettings, times: Clock) -> bool:
    """Return whether a workload that shares nothing should go through `run`: numba is here and enough is to be done."""
    least = LEAST_LOADED if compiled.cache_info().currsize else LEAST_REQUESTS
    return len(result) >= least and is_here() and _in_range(result, settings, times)


def is_here() -> bool:
    """Return whether numba is installed (the extra ``kvbudget[fast]``)."""
    return "numba" in sys.modules or find_spec("numba") is not None


def _in_range(result: Result, settings: SchedulerSettings, times: Clock) -> bool:
    """Return whether all that is computed stays below 2**63."""
    tokens, held = settings.max_num_batched_tokens, settings.num_gpu_blocks * settings.block_size
    longest = step_time(times.pace, tokens, settings.max_num_seqs, held, held + tokens * settings.max_model_len)
    steps = max(result.output_tokens, default=0) + 1
    return longest * steps < ROOM and (sum(result.output_tokens) << len(result).bit_length()) < LATEST


@cache
def compiled() -> Any:  # noqa: ANN401 - numba has no types
    """Return the loop, compiled when it is first called."""
    from numba import njit  # noqa: PLC0415 - an extra, and slow to load

    known: dict[str, Any] = {}
    for part in PARTS:
        function = FunctionType(part.__code__, {**part.__globals__, **known}, part.__name__)
        function.__module__, function.__qualname__ = part.__module__, part.__qualname__
        known[part.__name__] = njit(cache=True, error_model="numpy")(function)
    return known[fast.loop.__name__]


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
    rows: Any = np.zeros((fast.LOGGED if rules.logging else 0, fast.ROW), np.int64)
    for _ in compiled()(rules, table, columns, memory, told, totals, rows, None):
        fast.write(record, rows[: told[fast.NOTED]].tolist())
    fast.write(record, rows[: told[fast.NOTED]].tolist())
    fast.take_totals(result, totals.tolist())
