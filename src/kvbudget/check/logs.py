"""Reads the logs of engines, line by line and in bounded memory.

An engine's own lines stand in one module each (`logs_vllm`, `logs_sglang`, `logs_llamacpp`): a row is a literal that
cheaply tells whether a line may be meant, a pattern, and what its figures are. Here is what they share: prefixes are
taken off, engines and processes kept apart, and a start that comes after another takes its place.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from kvbudget.check import logs_llamacpp, logs_sglang, logs_vllm
from kvbudget.check.lines import Line, cut, stripped
from kvbudget.check.observation import LOADING, PHASES, SERVING, Figure, Load, Observation, Place, Refusal, Said
from kvbudget.check.rows import COUNT, GIB_UNITS, SAME_SETTING, Row
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ENGINES = (logs_vllm, logs_sglang, logs_llamacpp)

MAX_INSTANCES = 256
"""Containers that are kept apart in one log; the lines of further ones are counted and left out."""

MAX_PROCESSES = 4096
"""Processes of one engine that are kept apart."""

MAX_REFUSALS = 16
MAX_NOTES = 16

USERS_WORDS = (" HTTP/1.", "Received request ")
"""Lines with what users have asked, which may look like anything: access logs, and vllm/entrypoints/logger.py."""

BATCH = 256
"""Lines that are asked together whether one of them may be known."""

_TEXT = 600
"""Characters of an error that are kept."""

_OF_EACH_RANK = ("available_kv_cache_memory", "kv_cache_size_tokens", "max_concurrency")
"""What some versions print for each rank in one process: the smallest counts (v1/core/kv_cache_utils.py, 0.8)."""

_RANK = re.compile(r"DP_?(\d+)|^EngineCore_(\d+)$")


_Compiled = tuple[str, Row, re.Pattern[str]]
"""The engine, a row of it, and its pattern."""


def read_log(lines: Iterable[str], file: str = "log") -> Observation:
    """Return what a log says about its engine, of several engines the one with most to say.

    Raises nothing: a log in which nothing is known gives an observation without an engine.
    """
    return max(read_logs(lines, file), key=lambda seen: (len(seen.terms), seen.load.running.count, seen.lines))


def read_logs(lines: Iterable[str], file: str = "log") -> tuple[Observation, ...]:
    """Return what a log says about each engine in it; there is always one, with `engine` empty if nothing was known.

    Args:
        lines: The lines, in their order; they are read once, and only a bounded extract is kept.
        file: What to call their source.
    """
    reader = Reader()
    reader.read(lines, file)
    return reader.observations()


class Reader:
    """Reads one or several files into the observations of the engines in them."""

    def __init__(self) -> None:
        self._rows: list[_Compiled] = [
            (module.ENGINE, row, re.compile(row.pattern)) for module in ENGINES for row in module.ROWS
        ]
        self._needles = tuple({row.needle for _, row, _ in self._rows})
        self._seen: dict[str, _Engine] = {}
        self._left_out = 0
        self._lines = 0

    def read(self, lines: Iterable[str], file: str) -> None:
        """Read the lines of one file.

        Most lines of a server that serves say nothing of memory, so that a whole batch is asked for each literal first.
        """
        source = enumerate(cut(lines), 1)
        number = 0
        while batch := tuple(islice(source, BATCH)):
            number = batch[-1][0]
            spoken = [(at, raw) for at, raw in batch if not any(mark in raw for mark in USERS_WORDS)]
            block = "\n".join([raw for _, raw in spoken])
            there = {needle for needle in self._needles if needle in block} if block else ()
            wanted = [item for item in self._rows if item[1].needle in there] if there else ()
            for at, raw in spoken if wanted else ():
                for item in wanted:
                    if item[1].needle in raw:
                        self._take(item, raw, Place(file, at))
        self._lines += number

    def _take(self, item: _Compiled, raw: str, place: Place) -> None:
        """Take in a line that may be meant by a row."""
        name, row, pattern = item
        as_it_is = pattern.search(raw)
        if as_it_is is None:
            return
        line = stripped(raw)
        match = pattern.search(line.text) or as_it_is  # what was taken off for a prefix may have been the words
        engine = self._engine(line.instance)
        if engine is not None:
            engine.take(name, row, match, line, place._replace(process=line.process))

    def observations(self) -> tuple[Observation, ...]:
        """Return what was seen of each engine, in the order in which they appeared."""
        notes = []
        if self._left_out:
            notes.append(
                f"{self._left_out:,} known lines of containers beyond the first {MAX_INSTANCES} were left out."
            )
        found = [engine.observation(self._lines, notes) for engine in self._seen.values()]
        return tuple(found) or (Observation(engine="", lines=self._lines),)

    def _engine(self, instance: str) -> _Engine | None:
        engine = self._seen.get(instance)
        if engine is None:
            if len(self._seen) >= MAX_INSTANCES:
                self._left_out += 1
                return None
            engine = self._seen[instance] = _Engine(instance)
        return engine


class _Engine:
    """What is known so far of one engine."""

    def __init__(self, instance: str) -> None:
        self.instance = instance
        self.votes: dict[str, int] = {}
        self.version: Said | None = None
        self.model: Said | None = None
        self.flags: dict[str, Said] = {}
        self.resolved: dict[str, Said] = {}
        self.terms: dict[tuple[str, str, str], Figure] = {}
        self.refusals: dict[tuple[str, str], Refusal] = {}
        self.load = Load()
        self.preemptions: int | None = None
        self.preempted: Place | None = None
        self.phase = LOADING
        self.begun: set[tuple[str, str]] = set()
        self.starts = 1
        self.times = ["", ""]

    def take(self, engine: str, row: Row, match: re.Match[str], line: Line, place: Place) -> None:
        """Take in what a line says."""
        self.votes[engine] = self.votes.get(engine, 0) + 1
        if line.time:
            self.times = [self.times[0] or line.time, line.time]
        if row.starts:
            self._start(row.starts, line.process)
        if row.phase and PHASES.index(row.phase) > PHASES.index(self.phase):
            self.phase = row.phase
        groups = {name: text for name, text in match.groupdict().items() if text is not None}
        if row.refusal:
            self._refuse(row, groups, match, line, place)
        if row.stats:
            self._count(groups)
        if row.preempts:
            self._preempt(row, groups, place)
        if row.settings:
            self._set(row, row.settings(groups["settings"]), place)
        self._figures(row, groups, place, line.pid)

    def _figures(self, row: Row, groups: Mapping[str, str], place: Place, pid: str) -> None:
        """Take in what a line's groups say by themselves."""
        if "version" in groups:
            self.version = Said(groups["version"], place)
        if "model" in groups:
            self.model = Said(groups["model"].strip("'\""), place)
        printer = place._replace(process=groups["device"]) if row.per_device else place
        for group, (term, unit) in row.figures.items():
            if group in groups:
                self._figure(term, unit, groups[group], printer, pid)

    def _set(self, row: Row, settings: Mapping[str, object], place: Place) -> None:
        """Take in settings under the names that they have here."""
        said = {SAME_SETTING.get(name, name): Said(value, place) for name, value in settings.items()}
        (self.flags if row.typed else self.resolved).update(said)
        named = said.get("model")
        if named is not None and named.value and (self.model is None or row.typed):
            self.model = Said(str(named.value), place)

    def _start(self, what: str, process: str) -> None:
        """Begin anew if the same process has begun before: what came earlier is history.

        A server's start is that of all its processes; an engine's is that of its own data-parallel replica.
        """
        if (what, process) in self.begun:
            rank = _rank(process)
            all_of_it = what == "server"
            self.terms = {
                key: seen for key, seen in self.terms.items() if not all_of_it and _rank(seen.place.process) != rank
            }
            self.begun = {key for key in self.begun if not all_of_it and _rank(key[1]) != rank}
            self.phase = LOADING
            self.starts += 1
            if all_of_it:
                self.flags, self.resolved = {}, {}
        if len(self.begun) < MAX_PROCESSES:
            self.begun.add((what, process))

    def _figure(self, term: str, unit: str, text: str, place: Place, pid: str) -> None:
        number, slack = _number(text)
        if number is None:
            return
        if unit in GIB_UNITS:
            size = GIB_UNITS[unit]
            number, slack = number * size, slack * size
        elif unit == COUNT:
            slack = 0.0
        key = (term, place.process, pid)
        before = self.terms.get(key)
        if before is not None and term in _OF_EACH_RANK and before.value < number:
            return
        if before is not None or len(self.terms) < MAX_PROCESSES:
            self.terms[key] = Figure(number, slack, place)

    def _refuse(self, row: Row, groups: Mapping[str, str], match: re.Match[str], line: Line, place: Place) -> None:
        text = shown(line.text[max(0, line.text.find(match[0])) :] or match[0], _TEXT)
        key = (row.refusal, text)
        known = self.refusals.get(key)
        if known is not None:
            self.refusals[key] = known._replace(times=known.times + 1)
            return
        if len(self.refusals) >= MAX_REFUSALS:
            self.refusals.pop(next(iter(self.refusals)))
        figures = {}
        for name, found in groups.items():
            number, _ = _number(found)
            unit = row.errors.get(name)
            if unit and number is not None:
                figures[name] = number * GIB_UNITS.get(unit, 1)
        self.refusals[key] = Refusal(row.refusal, text, figures, self.phase, place)

    def _count(self, groups: Mapping[str, str]) -> None:
        """Add one line of statistics."""
        load = self.load
        for name, spread in (
            ("running", load.running),
            ("waiting", load.waiting),
            ("kv_usage", load.kv_usage),
            ("prompt", load.prompt_throughput),
            ("generation", load.generation_throughput),
        ):
            number, _ = _number(groups.get(name, ""))
            if number is not None and number >= 0:
                spread.add(number)
        share, _ = _number(groups.get("kv_share", ""))
        if share is not None and share >= 0:
            load.kv_usage.add(round(100 * share, 1))
        hits, _ = _number(groups.get("hits", ""))
        if hits is not None:
            load.prefix_hit_rate = hits
        self.phase = SERVING

    def _preempt(self, row: Row, groups: Mapping[str, str], place: Place) -> None:
        number, _ = _number(groups.get("preemptions", ""))
        if number is None:
            if row.cumulative:  # the line counts them only now and then
                return
            number = 1
        before = self.preemptions or 0
        self.preemptions = max(before, int(number)) if row.cumulative else before + int(number)
        self.preempted = place

    def observation(self, lines: int, notes: list[str]) -> Observation:
        """Return what was seen."""
        terms: dict[str, list[Figure]] = {}
        for (term, _, _), figure in self.terms.items():
            terms.setdefault(term, []).append(figure)
        return Observation(
            engine=max(self.votes, key=lambda name: self.votes[name]),
            instance=self.instance,
            version=self.version or self.resolved.get("version"),
            model=self.model,
            flags=self.flags,
            resolved=self.resolved,
            terms={name: tuple(figures) for name, figures in terms.items()},
            refusals=tuple(self.refusals.values()),
            load=self.load,
            preemptions=self.preemptions,
            preempted=self.preempted,
            phase=self.phase,
            starts=self.starts,
            first_time=self.times[0],
            last_time=self.times[1],
            lines=lines,
            notes=tuple(notes[:MAX_NOTES]),
        )


def _rank(process: str) -> str:
    """Return which data-parallel replica a process belongs to, "" where there is but one."""
    match = _RANK.search(process)
    return next(filter(None, match.groups()), "") if match else ""


_DIGITS = 18
"""Digits of a figure that is meant; the rest is an accident of the line."""


def _number(text: str) -> tuple[float | None, float]:
    """Return (a figure, half of its last decimal); engines drop trailing zeros, so two decimals are the least."""
    plain = text.replace(",", "").rstrip(".")
    if not plain or len(plain) > _DIGITS:
        return None, 0.0
    try:
        number = float(plain) if "." in plain else int(plain)
    except ValueError:
        return None, 0.0
    decimals = len(plain.partition(".")[2])
    return number, 0.5 * 10.0 ** -max(2, decimals)
