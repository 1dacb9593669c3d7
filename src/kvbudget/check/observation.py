"""What a running engine says of itself: the types that every reader of logs and metrics fills."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

UNSEEN, LOADING, PROFILING, CAPTURING, SERVING = "", "loading", "profiling", "capturing", "serving"
"""How far an engine had come: its start is not in the log, weights, profile run, CUDA graphs, requests."""

PHASES = (UNSEEN, LOADING, PROFILING, CAPTURING, SERVING)


class Place(NamedTuple):
    """Where something was read.

    Attributes:
        file: The file or address.
        line: Its line, counted from 1; 0 where there are none.
        process: Which process of the engine wrote it, "" where it does not say.
    """

    file: str
    line: int
    process: str = ""

    def __str__(self) -> str:
        """Return it as editors and compilers write it."""
        return f"{self.file}:{self.line}" if self.line else self.file


class Figure(NamedTuple):
    """One figure that the engine printed.

    Attributes:
        value: Bytes where it is memory, else what its name says.
        slack: What rounding in print may hide on either side, in the same unit.
        place: Where it stands.
    """

    value: float
    slack: float
    place: Place


class Said(NamedTuple):
    """A word or a value that the engine printed, and where."""

    value: Any
    place: Place


class Refusal(NamedTuple):
    """An error about memory.

    Attributes:
        name: The kind, as `kvbudget.facts.log_lines` calls it.
        text: The engine's own words, cut.
        figures: The figures in it: "needed" and "available" in bytes, "fits" in tokens, and so on.
        phase: How far the engine had come.
        place: Where it stands.
        times: How often it was printed.
    """

    name: str
    text: str
    figures: Mapping[str, float]
    phase: str
    place: Place
    times: int = 1


SIGNIFICANT = 1000
"""Values are kept to three digits, so that a spread of any length takes little memory."""


def _three_digits(value: float) -> float:
    return value if value < SIGNIFICANT else float(f"{value:.3g}")


class Spread:
    """Values seen over time in bounded memory: how many, their mean, their largest, any quantile to three digits."""

    __slots__ = ("_bins", "_total", "count", "largest", "last")

    def __init__(self, values: Sequence[float] = ()) -> None:
        self._bins: Counter[float] = Counter()
        self._total = 0.0
        self.count = 0
        self.largest = 0.0
        self.last = 0.0
        self.extend(values)

    def extend(self, values: Sequence[float]) -> None:
        """Add values, none of them negative, in the order in which they were seen."""
        if not values:
            return
        largest = max(values)
        self._bins.update(values if largest < SIGNIFICANT else map(_three_digits, values))
        self._total += sum(values)
        self.count += len(values)
        self.largest = max(self.largest, largest)
        self.last = values[-1]

    @property
    def mean(self) -> float:
        """The mean, 0 if there is nothing."""
        return self._total / self.count if self.count else 0.0

    def quantile(self, share: float) -> float:
        """Return the smallest value that at least `share` of them do not exceed, 0 if there is nothing."""
        left = share * self.count
        for value in sorted(self._bins):
            left -= self._bins[value]
            if left <= 0:
                return value
        return 0.0


@dataclass(slots=True)
class Load:
    """What the engine's statistics say, over all of their lines or samples.

    Args:
        running: Requests that run.
        waiting: Requests that wait.
        kv_usage: The share of the KV cache in use, in percent; blocks that only the prefix cache keeps do not count.
        prompt_throughput: Tokens a second.
        generation_throughput: Tokens a second.
        prefix_hit_rate: In percent, as last printed; None where it never was.
    """

    running: Spread = field(default_factory=Spread)
    waiting: Spread = field(default_factory=Spread)
    kv_usage: Spread = field(default_factory=Spread)
    prompt_throughput: Spread = field(default_factory=Spread)
    generation_throughput: Spread = field(default_factory=Spread)
    prefix_hit_rate: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        found: dict[str, Any] = {}
        for name in ("running", "waiting", "kv_usage", "prompt_throughput", "generation_throughput"):
            spread: Spread = getattr(self, name)
            if spread.count:
                figures = {"last": spread.last, "p50": spread.quantile(0.5), "p95": spread.quantile(0.95)}
                found[name] = {"samples": spread.count, **figures, "max": spread.largest}
        if self.prefix_hit_rate is not None:
            found["prefix_hit_rate"] = self.prefix_hit_rate
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One engine as its log shows it.

    Args:
        engine: "vllm", "sglang", "llama.cpp", or "" where nothing known was found.
        instance: The container or pod that the lines came from, "" where they have no such prefix.
        version: The engine's version, None where it does not say.
        model: What it serves.
        flags: What the operator typed, by the engine's name with underscores.
        resolved: What the engine made of it, by the same names.
        terms: Figures by name, one for each process that printed it, the newest start alone.
        refusals: Errors about memory, oldest first.
        load: What its statistics say, of the newest start that served.
        preemptions: How many requests of that start lost their cache, None where the log cannot say.
        preempted: Where it says so.
        phase: How far the newest start came, "" where the log does not have it.
        starts: How often it was started.
        first_time: The first time stamp, as printed, "" where there is none.
        last_time: The last one.
        lines: Lines read.
        notes: What was odd, a sentence each.
    """

    engine: str
    instance: str = ""
    version: Said | None = None
    model: Said | None = None
    flags: Mapping[str, Said] = field(default_factory=dict)
    resolved: Mapping[str, Said] = field(default_factory=dict)
    terms: Mapping[str, tuple[Figure, ...]] = field(default_factory=dict)
    refusals: tuple[Refusal, ...] = ()
    load: Load = field(default_factory=Load)
    preemptions: int | None = None
    preempted: Place | None = None
    phase: str = UNSEEN
    starts: int = 0
    first_time: str = ""
    last_time: str = ""
    lines: int = 0
    notes: tuple[str, ...] = ()

    def largest(self, name: str) -> Figure | None:
        """Return the figure of the process where it is largest, None if none printed it."""
        return max(self.terms.get(name, ()), key=lambda figure: figure.value, default=None)

    def smallest(self, name: str) -> Figure | None:
        """Return the figure of the process where it is smallest, None if none printed it."""
        return min(self.terms.get(name, ()), key=lambda figure: figure.value, default=None)

    def setting(self, name: str) -> Said | None:
        """Return what a flag is on the server: as the engine resolved it, else as it was typed."""
        return self.resolved.get(name) or self.flags.get(name)

    @property
    def on_cpu(self) -> bool:
        """Whether it runs on a processor, whose memory is the host's and not a card's."""
        device = self.setting("device_config")
        return device is not None and str(device.value) == "cpu"

    @property
    def known(self) -> bool:
        """Whether anything was found."""
        return bool(self.engine)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data; memory in bytes."""
        return {
            "engine": self.engine or None,
            "instance": self.instance or None,
            "version": self.version.value if self.version else None,
            "model": self.model.value if self.model else None,
            "flags": {name: said.value for name, said in self.flags.items()},
            "resolved": {name: said.value for name, said in self.resolved.items()},
            "terms": {
                name: [
                    {"value": figure.value, "process": figure.place.process, "at": str(figure.place)}
                    for figure in figures
                ]
                for name, figures in self.terms.items()
            },
            "refusals": [
                {
                    "name": refusal.name,
                    "text": refusal.text,
                    "figures": dict(refusal.figures),
                    "phase": refusal.phase or None,
                    "times": refusal.times,
                    "at": str(refusal.place),
                }
                for refusal in self.refusals
            ],
            "load": self.load.to_dict(),
            "preemptions": self.preemptions,
            "phase": self.phase or None,
            "starts": self.starts,
            "first_time": self.first_time or None,
            "last_time": self.last_time or None,
            "lines": self.lines,
            "notes": list(self.notes),
        }
