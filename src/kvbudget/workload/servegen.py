"""ServeGen's clients: how often each comes and how long its requests are, by the hour; requests are drawn from that.

A client is two files (alibaba/ServeGen): ``chunk-N-trace.csv`` with a row of start second, rate, coefficient of
variation, pattern and its two parameters for every ten minutes, and ``chunk-N-dataset.json`` with histograms of lengths
for every six hours. A window of rate r and length T gets r x T requests, rounded up or down by chance, whose distances
have the row's pattern and shape and are scaled to fill the window; prompt and answer are drawn each by itself, as the
histograms do not tell which belong together.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from heapq import merge
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.errors import InputError
from kvbudget.headers.source import shown
from kvbudget.workload.files import Lines, members
from kvbudget.workload.lengths import MAX_TOKENS, Independent, Values
from kvbudget.workload.recorded import Trace
from kvbudget.workload.request import Request
from kvbudget.workload.rows import CsvRows, json_document

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from random import Random

    from kvbudget.workload.files import Bytes

_FILE = re.compile(r"(?:.*/)?(chunk-\d{1,9})-(trace\.csv|dataset\.json)")
_ENTRY = re.compile(r"\s*([0-9.]+)\s*:\s*([0-9.eE+-]+)\s*[,}]")

_MAX_FILES = 1 << 14
_MAX_HELD = 256 << 20
"""Characters of histograms; the largest published set has 13 million."""

_MAX_RATE = 1e6
_MAX_START = 1e9
_MAX_WINDOWS = 1 << 16
_MAX_IN_WINDOW = 10**7
_SHAPES = (0.001, 1e6)


class Window(NamedTuple):
    """A stretch of time in which a client's habits do not change."""

    start: float
    rate: float
    pattern: str
    shape: float


class Client(NamedTuple):
    """One source of requests.

    Attributes:
        windows: By rising start.
        starts: The seconds from which each pair of histograms holds, rising.
        histograms: (prompt, answer) as the file writes them.
    """

    windows: tuple[Window, ...]
    starts: tuple[float, ...]
    histograms: tuple[tuple[str, str], ...]


def read_servegen(path: Path) -> Trace:
    """Return the requests of a folder or archive of ServeGen clients.

    Raises:
        InputError: There are no clients, or a file of one is broken.
        AccessError: The file system does not let us read it.
    """
    name = shown(path.name)
    clients = read_clients(path)
    if not clients:
        raise InputError(
            f"{name}: has no chunk-N-trace.csv with chunk-N-dataset.json, as a set of ServeGen clients does; to read "
            f"one file of an archive write {name}/FILE."
        )

    def requests(trace: Trace, seed: int) -> Iterator[Request]:  # noqa: ARG001 - nothing is left out
        return generate(clients, seed)

    return Trace(
        name=name,
        format="servegen",
        timed=True,
        drawn=True,
        notes=(f"Drawn from {len(clients)} clients.",),
        reading=requests,
    )


def read_clients(path: Path) -> tuple[Client, ...]:
    """Return all clients, by their number.

    Raises:
        InputError: A file of one is broken or missing.
    """
    windows: dict[str, tuple[Window, ...]] = {}
    histograms: dict[str, tuple[tuple[float, str, str], ...]] = {}
    held = 0
    for at, (name, content) in enumerate(members(path)):
        match = _FILE.fullmatch(name)
        if at > _MAX_FILES or held > _MAX_HELD:
            raise InputError(f"{shown(path.name)}: has too many or too large files for ServeGen clients.")
        if match is None:
            continue
        label = shown(name)
        if match[2] == "trace.csv":
            windows[match[1]] = tuple(_windows(label, content))
        else:
            histograms[match[1]] = tuple(_histograms(label, json_document(label, content)))
            held += sum(len(prompt) + len(output) for _, prompt, output in histograms[match[1]])
    clients = []
    for name in sorted(windows, key=lambda item: int(item.partition("-")[2])):
        if not any(window.rate for window in windows[name]):
            continue
        if not histograms.get(name):
            raise InputError(f"{shown(path.name)}: {name}-trace.csv has no lengths; add {name}-dataset.json.")
        starts, prompts, outputs = zip(*histograms[name], strict=True)
        clients.append(Client(windows[name], starts, tuple(zip(prompts, outputs, strict=True))))
    return tuple(clients)


_FIELDS = 6


def _windows(name: str, content: Bytes) -> Iterator[Window]:
    rows = CsvRows(Lines(name, content))
    last, busy = -1.0, 0.0
    for number, row in enumerate(rows):
        if len(row) != _FIELDS or number > _MAX_WINDOWS:
            raise rows.error(f"is not start, rate, cv, pattern and two parameters but {shown(repr(','.join(row)), 40)}")
        try:
            start, rate, shape = float(row[0]), float(row[1]), float(row[4])
        except ValueError:
            raise rows.error(f"has no numbers in {shown(repr(','.join(row)), 40)}") from None
        if not (last < start <= _MAX_START and 0 <= rate <= _MAX_RATE and isfinite(shape)):
            raise rows.error(f"has times that fall or a rate outside 0 to {_MAX_RATE:,.0f} a second")
        if rate and not (row[3] in ("Gamma", "Weibull") and _SHAPES[0] <= shape <= _SHAPES[1]):
            raise rows.error(
                f"has the pattern {shown(repr(row[3]), 40)} of shape {shape:g}; Gamma and Weibull are known"
            )
        if busy * (start - last) > _MAX_IN_WINDOW:
            raise rows.error(f"ends a window of more than {_MAX_IN_WINDOW:,} requests of one client")
        last, busy = start, rate
        yield Window(start, rate, row[3], shape)


def _histograms(name: str, document: Mapping[str, object]) -> Iterator[tuple[float, str, str]]:
    """Yield start, prompt and answer histogram of each stretch that has both."""
    for start in sorted(document, key=lambda key: int(key) if key.isdecimal() else -1):
        both = document[start]
        if not start.isdecimal() or not isinstance(both, dict):
            raise InputError(f"{name}: {shown(repr(start), 40)} is no second with histograms; the file is damaged.")
        prompt, output = both.get("input_tokens"), both.get("output_tokens")
        if not isinstance(prompt, str) or not isinstance(output, str):
            raise InputError(f"{name}: second {start} has no input_tokens and output_tokens; the file is damaged.")
        if _ENTRY.search(prompt) and _ENTRY.search(output):
            yield float(start), prompt, output


def generate(clients: tuple[Client, ...], seed: int) -> Iterator[Request]:
    """Yield the requests of all clients by rising arrival; the same seed gives the same ones."""
    from random import Random  # noqa: PLC0415

    streams = [_client(client, Random(seed * 1_000_003 + number)) for number, client in enumerate(clients)]  # noqa: S311
    return merge(*streams, key=attrgetter("arrival"))


def _client(client: Client, rng: Random) -> Iterator[Request]:
    drawn_from, lengths = -1, None
    ends = [window.start for window in client.windows[1:]]
    last = client.windows[-1].start - (client.windows[-2].start if len(client.windows) > 1 else 0.0)
    ends.append(client.windows[-1].start + last)
    for window, end in zip(client.windows, ends, strict=True):
        if not window.rate:
            continue
        stretch = max(0, bisect_right(client.starts, window.start) - 1)
        if stretch != drawn_from or lengths is None:
            lengths = Independent(*(_values(text) for text in client.histograms[stretch]))
            drawn_from = stretch
        for arrival in _arrivals(window, end, rng):
            yield Request(arrival, *lengths.draw(rng))


def _arrivals(window: Window, end: float, rng: Random) -> Iterator[float]:
    """Yield the arrivals of one window: as many as its rate says, at distances of its pattern."""
    length = end - window.start
    count = int(window.rate * length + rng.random())
    gamma = window.pattern == "Gamma"
    gaps = [
        rng.gammavariate(window.shape, 1.0) if gamma else rng.weibullvariate(1.0, window.shape)
        for _ in range(count + 1)
    ]
    total = sum(gaps)
    passed = 0.0
    for gap in gaps[:count]:
        passed += gap
        yield window.start + (length * passed / total if total else 0.0)


def _values(text: str) -> Values:
    found = ((float(value), float(weight)) for value, weight in _ENTRY.findall(text))
    return Values.of((value, weight) for value, weight in found if 0 <= value <= MAX_TOKENS and isfinite(weight))
