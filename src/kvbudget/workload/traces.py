"""Traces of real requests, from the files that public data sets, benchmarks and engines leave behind.

A `Trace` yields requests as it reads them; a `Profile` has only distributions of lengths. Which format a file has is
told by its content. Rows that can be no request (nothing generated, failed, warming up) are left out and counted;
rows that are broken are refused by file and line.

Formats and where they come from:

* ``azure``: Azure/AzurePublicDataset, 2023 and 2024 (TIMESTAMP,ContextTokens,GeneratedTokens).
* ``burstgpt``: HPMLL/BurstGPT (Timestamp,Model,Request tokens,Response tokens,…), versions 1 to 3.
* ``csv``: any CSV with a column of prompt and one of output lengths, with or without times.
* ``mooncake``, ``bailian``: JSON lines with ``hash_ids`` of 512 and 16 tokens.
* ``json``: ``{"arrival", "prompt", "output"}`` or ``[arrival, prompt, output]``, as a list or as lines.
* ``vllm-bench``: ``vllm bench serve --save-result --save-detailed`` (vllm/benchmarks/serve.py, 0.32).
* ``aiperf``: ``profile_export.jsonl`` and ``profile_export_aiperf.json`` of aiperf 0.13.
* ``guidellm``: ``benchmarks.json`` of guidellm 0.8.
* ``sharegpt``: conversations as text.
* ``prometheus``: an engine's ``/metrics`` page.
* ``llmservingsim``: request logs of LLMServingSim's vLLM runs.
* ``servegen``: a folder or archive of alibaba/ServeGen clients (`kvbudget.workload.servegen`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvbudget.errors import InputError
from kvbudget.headers.source import shown
from kvbudget.workload.columns import CSV, columns_of, csv_requests, header_of
from kvbudget.workload.files import HEAD, Bytes, is_archive, open_trace
from kvbudget.workload.recorded import Profile, Trace, in_order
from kvbudget.workload.records import (
    CHARACTERS_PER_TOKEN,
    hash_requests,
    log_requests,
    prefix_requests,
    sharegpt_requests,
)
from kvbudget.workload.results import aiperf, guidellm, prometheus, vllm_bench

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kvbudget.workload.request import Request


def read_trace(path: Path, format_name: str | None = None) -> Trace | Profile:
    """Return what a workload file holds.

    Args:
        path: The file, plain, gzip, xz or bzip2; ``pack.tar.xz/folder/file`` names one in an archive.
        format_name: One of `FORMATS`; by default the content tells.

    Raises:
        InputError: The format is not known, or the file is not of it.
        AccessError: The file system does not let us read it.
    """
    if format_name is not None and format_name not in FORMATS:
        raise InputError(f"--trace-format {shown(repr(format_name))} is not known; choose one of {', '.join(FORMATS)}.")
    if format_name == "servegen" or (format_name is None and is_archive(path)):
        from kvbudget.workload.servegen import read_servegen  # noqa: PLC0415 - a format of its own

        return read_servegen(path)
    with open_trace(path) as (name, content):
        form = format_name or recognise(name, content)
        if form in _SUMMARIES:
            return _SUMMARIES[form](name, content, path)
        reader = _ROWS[form]
        timed = columns_of(name, content).time is not None if form in CSV else reader.timed

    def requests(trace: Trace, seed: int) -> Iterator[Request]:  # noqa: ARG001 - nothing is left to chance
        with open_trace(path) as opened:
            yield from in_order(reader.read(trace, *opened), name, from_first=reader.wall_clock)

    return Trace(name=name, format=form, timed=timed, notes=reader.notes, reading=requests)


_MARKS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("guidellm", ('"guidellm_version"',)),
    ("guidellm", ('"benchmarks"', '"metadata"')),
    ("aiperf", ('"request_start_ns"',)),
    ("aiperf", ('"input_sequence_length"',)),
    ("vllm-bench", ('"input_lens"',)),
    ("vllm-bench", ('"total_input_tokens"',)),
    ("bailian", ('"input_length"', '"chat_id"')),
    ("mooncake", ('"input_length"',)),
    ("llmservingsim", ('"input_toks"',)),
    ("sharegpt", ('"conversations"',)),
    ("sharegpt", ('"messages"',)),
    ("json", ('"arrival"', '"prompt"')),
    ("json", ('"prompt"', '"output"')),
)
"""Format -> keys that all stand in the first bytes of a JSON file; the first row that fits decides."""

_MARK_BYTES = 8192


def recognise(name: str, content: Bytes) -> str:
    """Return the format of a file by its first bytes.

    Raises:
        InputError: It is none of the known ones.
    """
    head = content.peek(HEAD)[:_MARK_BYTES].decode("utf-8-sig", "replace").lstrip()
    if head[:1] in ("[", "{"):
        for form, keys in _MARKS:
            if all(key in head for key in keys):
                return form
        if head.startswith("[") and head[1:].lstrip()[:1] in ("[", "]"):
            return "json"
    elif head.startswith(("# HELP ", "# TYPE ")) or "_bucket{" in head:
        return "prometheus"
    elif header_of(head.partition("\n")[0]):
        return columns_of(name, content).format
    seen = f"begins with {shown(repr(head[:40]))}" if head else "is empty"
    raise InputError(f"{name}: no known trace: it {seen}; --trace-format says what it is: {', '.join(FORMATS)}.")


class _Reader(NamedTuple):
    """How the rows of a format become requests.

    `wall_clock` says that its times are those of a recording of which the file may be a part, so that they count
    from the first one: an engine that waits for it would be in all shares of time.
    """

    read: Callable[[Trace, str, Bytes], Iterator[Request]]
    timed: bool = True
    wall_clock: bool = False
    notes: tuple[str, ...] = ()


_ROWS: dict[str, _Reader] = {
    "azure": _Reader(csv_requests, wall_clock=True),
    "burstgpt": _Reader(csv_requests, wall_clock=True),
    "csv": _Reader(csv_requests),
    "mooncake": _Reader(hash_requests, wall_clock=True),
    "bailian": _Reader(hash_requests, wall_clock=True),
    "json": _Reader(prefix_requests),
    "llmservingsim": _Reader(log_requests, wall_clock=True),
    "sharegpt": _Reader(
        sharegpt_requests,
        timed=False,
        notes=(
            f"Lengths without a token count are estimated: {CHARACTERS_PER_TOKEN} Latin characters a token, ±25 %.",
        ),
    ),
}

_SUMMARIES: dict[str, Callable[[str, Bytes, Path], Trace | Profile]] = {
    "vllm-bench": vllm_bench,
    "aiperf": aiperf,
    "guidellm": guidellm,
    "prometheus": prometheus,
}

FORMATS = (*_ROWS, *_SUMMARIES, "servegen")
"""What `--trace-format` takes."""
