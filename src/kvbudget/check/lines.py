"""Lines as they come out of a container: what stands in front of an engine's own words, and who said them.

Collectors put time stamps, pod names and stream names before a line, terminals put colours into it, and vLLM names the
process. None of it is needed to find a line, so it is taken off only where something known was found.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

MAX_LINE = 1 << 15
"""Characters of a line that are read; engines' longest known line, the configuration, has some 8,000."""

_CHUNK = 1 << 16

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])")

_FRONTS = (
    re.compile(r"\[(?P<instance>pod/[^\]\s]{1,300})\]\s?"),  # kubectl logs --prefix
    re.compile(r"(?P<instance>[A-Za-z0-9][\w.-]{0,100})\s{1,40}\|\s"),  # docker compose logs
    re.compile(  # containerd's files, kubectl logs --timestamps
        r"(?P<time>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)\s"
        r"(?:std(?:out|err)\s[FP]\s)?"
    ),
    re.compile(r"[A-Z][a-z]{2}\s{1,2}\d{1,2} \d\d:\d\d:\d\d \S{1,100} (?P<instance>[\w.@-]{1,100})(?:\[\d+\])?: "),
    re.compile(r"\((?P<process>[\w.:-]{1,80}(?: rank=\d{1,6})?) pid=(?P<pid>\d{1,10})(?:, ip=[\d.]{7,15})?\)\s?"),
    re.compile(  # vLLM's formatter, old and new
        r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s(?P<time>(?:\d{4}-)?\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)\s"
        r"(?:\[[\w./ -]{1,120}:\d+\]|[\w./-]{1,120}:\d+\])\s?"
    ),
    re.compile(  # SGLang's
        r"\[(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:[.,]\d{1,6})?)(?P<process>(?: [A-Z]{2}\d{1,5}){0,4})\]\s?"
    ),
    re.compile(r"(?P<time>\d{1,4}\.\d\d\.\d{3}\.\d{3}) [A-Z] "),  # llama.cpp's
)

MAX_FRONTS = 8
"""Prefixes that are taken off one line."""


class Line(NamedTuple):
    """A line without what stands in front of the engine's words.

    Attributes:
        text: The words.
        instance: The container or pod, "" where it is not said.
        process: The engine's process: ``EngineCore_DP0``, ``Worker_TP1``.
        pid: Its number, as printed.
        time: The innermost time stamp, as printed.
    """

    text: str
    instance: str
    process: str
    pid: str
    time: str


def stripped(line: str) -> Line:
    """Return a line without colours and prefixes."""
    instance = process = pid = time = ""
    text = unwrapped(line)
    for _ in range(MAX_FRONTS):
        text = text.lstrip()
        match = next((found for front in _FRONTS if (found := front.match(text))), None)
        if match is None:
            break
        parts = match.groupdict()
        instance = instance or parts.get("instance") or ""
        process = (parts.get("process") or process).strip()
        pid = parts.get("pid") or pid
        time = parts.get("time") or time
        text = text[match.end() :]
    return Line(text.rstrip(), instance, process, pid, time)


def unwrapped(line: str) -> str:
    """Return a line without colours, and out of the JSON that docker's files keep it in."""
    text = line[:MAX_LINE]
    if text.startswith('{"'):
        try:
            entry = json.loads(text)
        except (ValueError, RecursionError):
            entry = None
        words = (entry.get("log") or entry.get("message") or entry.get("msg")) if isinstance(entry, dict) else None
        text = words if isinstance(words, str) else text
    text = text.rstrip().rpartition("\r")[2]  # what a progress bar has left standing
    return _ANSI.sub("", text) if "\x1b" in text else text


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a stream; what is longer than `MAX_LINE` bytes is cut, and no more than that is ever held."""
    kept = b""
    while chunk := stream.read(_CHUNK):
        first, *rest = chunk.split(b"\n")
        kept += first[: MAX_LINE - len(kept)]
        if rest:
            yield kept.decode("utf-8", "replace")
            *whole, last = rest
            yield from (line[:MAX_LINE].decode("utf-8", "replace") for line in whole)
            kept = last[:MAX_LINE]
    if kept:
        yield kept.decode("utf-8", "replace")


def cut(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of any source, none longer than `MAX_LINE`."""
    for line in lines:
        yield line if len(line) <= MAX_LINE else line[:MAX_LINE]
