"""Reads the logs of engines, line by line and in bounded memory.

An engine's own lines stand in one module each (`logs_vllm`, `logs_sglang`, `logs_llamacpp`): a row is a literal that
cheaply tells whether a line may be meant, a pattern, and what its figures are. Here is what they share: prefixes are
taken off, engines and processes kept apart, and a start that comes after another takes its place.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.check import logs_llamacpp, logs_sglang, logs_vllm
from kvbudget.check.lines import Line, cut, plain, stripped
from kvbudget.check.observation import LOADING, PHASES, SERVING, UNSEEN, Figure, Load, Observation, Place, Refusal, Said
from kvbudget.check.rows import COUNT, GIB_UNITS, LARGEST, SAME_SETTING, SIZED, SMALLEST, SUM, Row
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ENGINES = (logs_vllm, logs_sglang, logs_llamacpp)

MAX_INSTANCES = 256
"""Containers that are kept apart in one log; the lines of further ones are counted and left out."""

MAX_PROCESSES = 4096
"""Processes of one engine that are kept apart."""

MAX_NOTES = 16

USERS_WORDS = (" HTTP/1.", "Received request ", "Generated response ", "Receive: obj=", "Finish: obj=")
"""Lines with what users asked and were answered, which may look like anything: access logs, vLLM's and SGLang's
request_logger.py."""

BATCH = 256
"""Lines that are asked together whether one of them may be known."""

_TEXT = 600
"""Characters of an error that are kept."""

_RANK = re.compile(r"DP_?(\d+)|^EngineCore_(\d+)$")


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


_OTHER_FILES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"# (?:HELP|TYPE) "), "it begins as a page of metrics, which --metrics takes"),
    (re.compile(r"<(?:!doctype|html|\?xml)", re.IGNORECASE), "it begins as a web page"),
    (re.compile(r"[{\[]"), "it begins as JSON (a plan is given before --log, without a flag)"),
)
"""How files begin that are no logs, and what to do with them."""


def _nothing_known(file: str, lines: int, begins: str) -> str:
    """Return that a file says nothing, what was seen, and what to do."""
    name = shown(file, _NAME)
    if not begins:
        return f"{name} is empty; give the engine's standard output and error."
    kind = next((words for pattern, words in _OTHER_FILES if pattern.match(begins.lstrip("\ufeff \t"))), "")
    kind = kind or "give the engine's standard output and error, from its start on"
    of = "its one line is not" if lines == 1 else f"none of its {lines:,} lines is"
    return f"{name}: {of} one that vLLM, SGLang or llama.cpp is known to write; {kind}."


_NAME = 80
"""Characters of a file's name in a sentence."""

_Key = tuple[str, str, str]
"""A term, and the process that printed it with its number."""


def _holds(marks: tuple[str, ...], text: str) -> bool:
    """Return whether one of the marks stands in a text; a generator for `any` would cost more than the search."""
    for mark in marks:  # noqa: SIM110
        if mark in text:
            return True
    return False


class _Compiled(NamedTuple):
    """A row's literal, the engine, the row, and its pattern."""

    needle: str
    engine: str
    row: Row
    pattern: re.Pattern[str]


class Reader:
    """Reads one or several files into the observations of the engines in them."""

    def __init__(self) -> None:
        rows = [
            _Compiled(row.needle, module.ENGINE, row, re.compile(row.pattern))
            for module in ENGINES
            for row in module.ROWS
        ]
        self._rows = [item for item in rows if not item.row.stats]
        self._needles = tuple({item.needle for item in self._rows})
        self._load_rows = [item for item in rows if item.row.stats or item.row.preempts]
        self._load_needles = tuple({item.needle for item in rows if item.row.stats})
        self._seen: dict[str, _Engine] = {}
        self._left_out = 0
        self._lines = 0
        self._notes: list[str] = []

    def read(self, lines: Iterable[str], file: str) -> None:
        """Read the lines of one file.

        Most lines of a server that serves are statistics, access logs, or say nothing of memory: the first are told by
        few literals, the second are left out, and a whole batch of the others is asked for each literal first.
        """
        source = cut(lines)
        number = 0
        known = False
        begins = ""
        while batch := tuple(islice(source, BATCH)):
            spoken = [
                (at, raw, _holds(self._load_needles, raw))
                for at, raw in enumerate(batch, number + 1)
                if not _holds(USERS_WORDS, raw)
            ]
            number += len(batch)
            begins = begins or next((raw for raw in batch if raw.strip()), "")
            block = plain("\n".join([raw for _, raw, load in spoken if not load]))
            there = {needle for needle in self._needles if needle in block} if block else ()
            wanted = [item for item in self._rows if item.needle in there] if there else ()
            for at, raw, load in spoken:
                if load and self._take(self._load_rows, raw, file, at):
                    known = True
                elif load or wanted:
                    known = self._take(self._rows if load else wanted, raw, file, at) or known
        self._lines += number
        if not known:
            self._notes.append(_nothing_known(file, number, begins))

    def _take(self, wanted: Iterable[_Compiled], raw: str, file: str, at: int) -> bool:
        """Take in a line if one of the wanted rows means it; return whether one does."""
        line = None
        known = False
        words = plain(raw)
        for needle, name, row, pattern in wanted:
            if needle not in words:
                continue
            line = line or stripped(words)
            match = pattern.search(line.text) or pattern.search(words)  # what was taken off may have been the words
            if match is None:
                continue
            known = True
            engine = self._engine(line.instance)
            if engine is not None:
                engine.take(name, row, match, line, Place(file, at, line.process))
        return known

    def observations(self) -> tuple[Observation, ...]:
        """Return what was seen of each engine, in the order in which they appeared."""
        notes = [*self._notes]
        if self._left_out:
            notes.append(
                f"{self._left_out:,} known lines of containers beyond the first {MAX_INSTANCES} were left out."
            )
        engines = [engine for engine in self._seen.values() if any(engine.votes.values())]
        found = [engine.observation(self._lines, notes) for engine in engines or self._seen.values()]
        return tuple(found) or (Observation(engine="", lines=self._lines, notes=tuple(notes[:MAX_NOTES])),)

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
        self.terms: dict[_Key, Figure] = {}
        self.refusals: dict[tuple[str, str], Refusal] = {}
        self.load = Load()
        self.samples: list[Mapping[str, str]] = []
        self.preemptions: dict[str, int] = {}
        self.preempted: Place | None = None
        self.served_before = False
        self.phase = UNSEEN
        self.begun: dict[tuple[str, str], str] = {}
        self.over: set[tuple[str, str]] = set()
        self.mixed = False
        self.starts = 1
        self.first_time = self.last_time = ""

    def take(self, engine: str, row: Row, match: re.Match[str], line: Line, place: Place) -> None:
        """Take in what a line says."""
        self.votes[engine] = self.votes.get(engine, 0) + (0 if row.anyones else 1)
        if line.time:
            self.first_time = self.first_time or line.time
            self.last_time = line.time
        if row.starts:
            self._start(row.starts, line)
        elif (line.process, line.pid) in self.over:
            self.mixed = True
        if row.phase != self.phase and PHASES.index(row.phase) > PHASES.index(self.phase):
            self.phase = row.phase
        groups = match.groupdict("")
        if row.stats:
            self._count(row, groups, line.process)
        if row.refusal:
            self._refuse(row, groups, match, line, place)
        if row.preempts:
            self._preempt(row, groups, place)
        if row.settings:
            self._set(row, row.settings(groups["settings"]), place)
        if not row.stats:
            self._name_and_figures(row, groups, place, line.pid)

    def _name_and_figures(self, row: Row, groups: Mapping[str, str], place: Place, pid: str) -> None:
        """Take in what a line's groups say by themselves."""
        if groups.get("version"):
            self.version = Said(groups["version"], place)
        if groups.get("model"):
            self.model = Said(groups["model"].strip("'\""), place)
        for group, (term, unit) in row.figures.items():
            if groups[group]:
                printer = place._replace(process=groups["device"]) if row.per_device else place
                self._figure(row, term, unit, groups[group], printer, pid)

    def _set(self, row: Row, settings: Mapping[str, object], place: Place) -> None:
        """Take in settings under the names that they have here."""
        said = {SAME_SETTING.get(name, name): Said(value, place) for name, value in settings.items()}
        (self.flags if row.typed else self.resolved).update(said)
        named = said.get("model")
        if named is not None and named.value and (self.model is None or row.typed):
            self.model = Said(str(named.value), place)

    def _start(self, what: str, line: Line) -> None:
        """Begin anew if the same process has begun before: what came earlier is history.

        A server's start is that of all its processes; an engine's is that of its own data-parallel replica. Where the
        log's beginning was cut off, a server that had come further than loading has begun before, too.
        """
        key = (what, line.process)
        rank = _rank(line.process)
        all_of_it = what == "server"
        further = self.phase == SERVING or (self.phase not in (UNSEEN, LOADING) and (all_of_it or not rank))
        if key in self.begun or (further and (all_of_it or not self.begun)):
            if line.pid != self.begun.get(key, line.pid) and len(self.over) < MAX_PROCESSES:
                self.over.add((line.process, self.begun[key]))
            self.terms = {
                term: seen for term, seen in self.terms.items() if not all_of_it and _rank(seen.place.process) != rank
            }
            self.begun = {begun: pid for begun, pid in self.begun.items() if not all_of_it and _rank(begun[1]) != rank}
            self.phase = LOADING
            self.starts += 1
            if all_of_it:
                self.flags, self.resolved = {}, {}
                self.served_before = True
        if self.phase == UNSEEN:
            self.phase = LOADING
        if len(self.begun) < MAX_PROCESSES:
            self.begun[key] = line.pid

    def _figure(self, row: Row, term: str, unit: str, text: str, place: Place, pid: str) -> None:
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
        if before is not None:
            if (row.again == SMALLEST and before.value < number) or (row.again == LARGEST and before.value > number):
                return
            if row.again == SUM and unit in GIB_UNITS:
                number, slack = number + before.value, slack + before.slack
        if before is not None or len(self.terms) < MAX_PROCESSES:
            self.terms[key] = Figure(number, slack, place)

    def _refuse(self, row: Row, groups: Mapping[str, str], match: re.Match[str], line: Line, place: Place) -> None:
        """Take in an error; one that comes again, as in a loop of crashes, is counted, and its newest figures stand."""
        key = (row.refusal, self.phase)
        before = self.refusals.pop(key, None)
        text = shown(line.text[max(0, line.text.find(match[0])) :] or match[0], _TEXT)
        figures = {}
        for name, found in groups.items():
            size = _size(found, row.errors[name]) if name in row.errors else None
            if size is not None:
                figures[name] = size
        times = before.times + 1 if before is not None else 1
        figures = figures or (dict(before.figures) if before is not None else {})
        self.refusals[key] = Refusal(row.refusal, text, figures, self.phase, place, times)

    def _count(self, row: Row, groups: Mapping[str, str], process: str) -> None:
        """Take in a line of statistics; several are counted together, which is much faster than one by one."""
        self._forget_load()
        self.samples.append(_of_each(groups) if groups.get("engines") else groups)
        if len(self.samples) >= BATCH:
            self._count_samples()
        if row.tells_preemptions and not self.preemptions:
            self.preemptions[process] = 0

    def _count_samples(self) -> None:
        """Count the lines of statistics that wait."""
        load = self.load
        for name, spread in (
            ("running", load.running),
            ("waiting", load.waiting),
            ("kv_usage", load.kv_usage),
            ("prompt", load.prompt_throughput),
            ("generation", load.generation_throughput),
        ):
            spread.extend(_numbers([groups.get(name, "") for groups in self.samples]))
        shares = _numbers([groups.get("kv_share", "") for groups in self.samples])
        load.kv_usage.extend([round(100 * share, 1) for share in shares])
        rates = _numbers([groups.get("hits", "") for groups in self.samples])
        load.prefix_hit_rate = rates[-1] if rates else load.prefix_hit_rate
        self.samples.clear()

    def _preempt(self, row: Row, groups: Mapping[str, str], place: Place) -> None:
        number, _ = _number(groups.get("preemptions", ""))
        number = 1 if number is None else number  # at least one, where the line does not count them or is cut
        self._forget_load()
        before = self.preemptions.get(place.process, 0)
        if place.process in self.preemptions or len(self.preemptions) < MAX_PROCESSES:
            self.preemptions[place.process] = max(before, int(number)) if row.cumulative else before + int(number)
        self.preempted = place

    def _forget_load(self) -> None:
        """Leave the load of an earlier start behind as soon as a newer one serves."""
        if self.served_before:
            self.load, self.preemptions, self.preempted = Load(), {}, None
            self.samples.clear()
            self.served_before = False

    def _preempted(self) -> int | None:
        """Return how many requests were preempted, None where nothing tells.

        All tensor-parallel ranks of a replica may print the same event, so that the rank with most of them counts.
        """
        most: dict[str, int] = {}
        for process, count in self.preemptions.items():
            most[_rank(process)] = max(most.get(_rank(process), 0), count)
        return sum(most.values()) if most else None

    def _odd(self) -> Iterator[str]:
        """Yield what a reader of the figures should know, a sentence each."""
        if self.mixed:
            yield _MIXED
        if self.served_before and self.load.running.count:
            yield _EARLIER_LOAD

    def observation(self, lines: int, notes: list[str]) -> Observation:
        """Return what was seen."""
        self._count_samples()
        terms: dict[str, list[Figure]] = {}
        for (term, _, _), figure in _apart(self.terms).items():
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
            preemptions=self._preempted(),
            preempted=self.preempted,
            phase=self.phase,
            starts=self.starts,
            first_time=self.first_time,
            last_time=self.last_time,
            lines=lines,
            notes=tuple([*self._odd(), *notes][:MAX_NOTES]),
        )


_EARLIER_LOAD = "The newest start has not served yet: the load is that of the one before."

_MIXED = (
    "The lines of servers that run side by side are mixed, and nothing in front of them tells whose they are; give "
    "each its own log, or one with the names of the containers (docker compose logs, kubectl logs --prefix)."
)


def _apart(terms: Mapping[_Key, Figure]) -> dict[_Key, Figure]:
    """Return terms with what is printed as a sum apart.

    Activations and the graphs' estimate, where a process prints their sum and the latter; the blocks of data-parallel
    engines, each of which prints those of all.
    """
    found = {key: figure for key, figure in terms.items() if key[0] != "all_blocks"}
    together = [(key, figure) for key, figure in terms.items() if key[0] == "all_blocks"]
    if not any(term == "num_gpu_blocks" for term, _, _ in found):
        for (_, process, pid), figure in together:
            found["num_gpu_blocks", process, pid] = figure._replace(value=figure.value // len(together))
    for (term, process, pid), whole in terms.items():
        part = terms.get(("cuda_graphs_estimated", process, pid)) if term == "activations_and_graphs" else None
        if part is not None and part.value <= whole.value:
            del found[term, process, pid]
            left = Figure(whole.value - part.value, whole.slack + part.slack, whole.place)
            found["activations", process, pid] = left
    return found


def _rank(process: str) -> str:
    """Return which data-parallel replica a process belongs to, "" where there is but one."""
    match = _RANK.search(process)
    return next(filter(None, match.groups()), "") if match else ""


_DIGITS = 18
"""Digits of a figure that is meant; the rest is an accident of the line."""

_DECIMALS = 2
"""Engines drop trailing zeros, so that two decimals are the least that were printed."""


def _number(text: str) -> tuple[float | None, float]:
    """Return (a figure, half of its last decimal)."""
    if len(text) > _DIGITS:
        return None, 0.0
    digits = text.replace(",", "").rstrip(".")
    decimals = digits.partition(".")[2]
    try:
        number = float(digits) if decimals else int(digits)
    except ValueError:
        return None, 0.0
    return number, 0.5 * 10.0 ** -max(_DECIMALS, len(decimals))


def _numbers(texts: list[str]) -> list[float]:
    """Return the figures among texts; what a group of digits matched is one, but for accidents of the line."""
    try:
        return [float(text) for text in texts if text]
    except ValueError:
        return [number for text in texts if (number := _number(text)[0]) is not None]


def _of_each(groups: Mapping[str, str]) -> Mapping[str, str]:
    """Return statistics of several engines together as those of one of them, in the mean."""
    engines = max(1, int(groups["engines"]))
    counts = {name: _number(groups[name])[0] for name in ("running", "waiting", "prompt", "generation")}
    return {**groups, **{name: f"{count / engines:g}" for name, count in counts.items() if count is not None}}


def _size(text: str, unit: str) -> float | None:
    """Return a figure in bytes where it is memory; of `SIZED` ones the unit is printed behind the number."""
    if unit == SIZED:
        text, _, unit = text.partition(" ")
    number, _ = _number(text)
    return None if number is None else number * GIB_UNITS.get(unit, 1)
