"""Lines as they come out of a container: what stands in front of an engine's own words, and who said them.

Collectors put time stamps, pod names and stream names before a line or put it into JSON, terminals put colours into
it, and vLLM names the process. None of it is needed to find a line, so it is taken off only where something known was
found.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import BinaryIO

MAX_LINE = 1 << 15
"""Characters of a line that are read; engines' longest known line, the configuration, has some 8,000."""

_CHUNK = 1 << 16

_ANSI = re.compile(r"\x1b(?:\[[0-9;:?]{0,40}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[@-Z\\^_])")

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_UNIT = r"[\w.@-]{1,100}"

_PROCESS = r"\((?P<process>[\w.:-]{1,80}(?: rank=\d{1,6})?) pid=(?P<pid>\d{1,10})(?:, ip=[\d.]{7,15})?\)\s?"

_OWN = re.compile(
    # vLLM's, old and new: (EngineCore_DP0 pid=77) INFO 06-10 12:00:01 [file.py:12]
    rf"\s*(?:(?:{_PROCESS})?"
    rf"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s(?P<vllm>(?:\d{{4}}-)?\d\d-\d\d {_CLOCK})\s"
    r"(?:\[[\w./ -]{1,120}:\d+\]|[\w./-]{1,120}:\d+\])\s?"
    # SGLang's: [2025-09-01 10:00:00 DP1 TP0]
    rf"|\[(?P<sglang>\d{{4}}-\d\d-\d\d {_CLOCK})(?P<ranks>(?: [A-Z]{{2}}\d{{1,5}}){{0,4}})\]\s?"
    # llama.cpp's: 0.00.129.110 I
    r"|(?P<llamacpp>\d{1,4}\.\d\d\.\d{3}\.\d{3}) [A-Z] "
    r")"
)
"""What an engine puts before its words; nothing stands between the two."""

_FRONT = re.compile(
    # a process before another one, or before words without a formatter: (RayWorkerWrapper pid=7, ip=10.0.0.2)
    rf"\s*(?:{_PROCESS}"
    # kubectl logs --prefix
    r"|\[(?P<pod>pod/[^\]\s]{1,300})\]\s?"
    # containerd's files and kubectl logs --timestamps; with host and unit journalctl -o short-iso and rsyslog
    rf"|(?P<time>\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?)\s"
    rf"(?:std(?:out|err)\s[FP]\s|\S{{1,100}} (?P<unit>{_UNIT})\[\d{{1,10}}\]: )?"
    # journalctl
    rf"|[A-Z][a-z]{{2}}\s{{1,2}}\d{{1,2}} {_CLOCK} \S{{1,100}} (?P<syslog_unit>{_UNIT})(?:\[\d{{1,10}}\])?: "
    # stern and kubetail, where an engine's own prefix follows
    r"|\[?(?P<stern>[a-z0-9][a-z0-9.-]{1,200})(?:\]| [a-z0-9][a-z0-9-]{0,62}) "
    r"(?=\([\w.:-]{1,80} pid=\d|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) (?:\d{4}-)?\d\d-\d\d )"
    # docker compose logs
    r"|(?P<service>[A-Za-z0-9][\w.-]{0,100})\s{1,40}\|\s"
    r")"
)
"""One thing that collectors put before a line."""

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
    text = _standing(line[:MAX_LINE])
    at = 0
    for _ in range(MAX_FRONTS):
        own = _OWN.match(text, at)
        if own is not None:
            process, pid = own["process"] or (own["ranks"] or "").strip() or process, own["pid"] or pid
            time = own["vllm"] or own["sglang"] or own["llamacpp"]
            at = own.end()
            break
        match = _FRONT.match(text, at)
        if match is None:
            entry = _entry(text[at:])
            if entry is None:
                break
            text, at = _standing(entry.text), 0
            instance, process = instance or entry.instance, entry.process or process
            pid, time = entry.pid or pid, entry.time or time
            continue
        at = match.end()
        front = match.lastgroup or ""
        if front == "pid":
            process, pid = match["process"], match["pid"]
        elif front in ("time", "unit"):
            instance, time = instance or match["unit"] or "", match["time"]
        else:  # the pod, the unit or the service
            instance = instance or match[front]
    return Line(text[at:].strip(), instance, process, pid, time)


def _standing(text: str) -> str:
    """Return a line without colours, and of what a progress bar wrote over itself what is left standing."""
    text = text.rstrip()
    if "\r" in text:
        text = text.rpartition("\r")[2]
    return plain(text)


def plain(text: str) -> str:
    """Return text without a terminal's colours."""
    return _ANSI.sub("", text) if "\x1b" in text else text


_WORDS = ("log", "message", "msg", "MESSAGE", "line", "textPayload")
"""Where docker, vLLM's own JSON, Fluent Bit, journalctl, Loki and Google's collector keep a line's words."""


def _entry(text: str) -> Line | None:
    """Return the line inside of JSON, None if there is none."""
    text = text.lstrip()
    if not text.startswith("{"):
        return None
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    words = next((entry[name] for name in _WORDS if isinstance(entry.get(name), str)), None)
    if words is None:
        return None
    pod = entry.get("kubernetes")
    instance = pod.get("pod_name") if isinstance(pod, dict) else entry.get("_SYSTEMD_UNIT")
    process = _text(entry.get("processName"))
    pid = _text(entry.get("process")) if process else ""
    return Line(words, _text(instance), process, pid, _text(entry.get("asctime")))


_MAX_NAME = 100


def _text(value: Any) -> str:  # noqa: ANN401 - any value of JSON
    return str(value)[:_MAX_NAME] if isinstance(value, (str, int)) else ""


def lines_of(stream: BinaryIO) -> Iterator[str]:
    """Yield the lines of a stream; what is longer than `MAX_LINE` bytes is cut, and no more than that is ever held."""
    kept = b""
    for chunk in _chunks(stream):
        first, *rest = chunk.split(b"\n")
        kept += first[: MAX_LINE - len(kept)]
        if rest:
            yield kept.decode("utf-8", "replace")
            *whole, last = rest
            yield from (line[:MAX_LINE].decode("utf-8", "replace") for line in whole)
            kept = last[:MAX_LINE]
    if kept:
        yield kept.decode("utf-8", "replace")


def _chunks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield a stream in UTF-8: what PowerShell has redirected into a file is UTF-16, and says so at its beginning."""
    chunk = stream.read(_CHUNK)
    if chunk.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        decoder = codecs.getincrementaldecoder("utf-16")("replace")
        while chunk:
            yield decoder.decode(chunk).encode("utf-8", "replace")
            chunk = stream.read(_CHUNK)
        return
    yield chunk.removeprefix(codecs.BOM_UTF8)
    while chunk := stream.read(_CHUNK):
        yield chunk


def cut(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines of any source, none longer than `MAX_LINE`."""
    for line in lines:
        yield line if len(line) <= MAX_LINE else line[:MAX_LINE]
