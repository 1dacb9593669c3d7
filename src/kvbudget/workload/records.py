"""Traces as JSON, an object a request: as lines, or as one list."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from kvbudget.headers.source import shown
from kvbudget.workload.files import HEAD, Bytes, Lines
from kvbudget.workload.recorded import Trace, request_of, seconds_of, tokens_of
from kvbudget.workload.request import Request, Segment
from kvbudget.workload.rows import JsonLines, JsonList, Rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def json_rows(name: str, content: Bytes) -> Rows:
    """Return the rows of JSON lines, or of one JSON list."""
    head = content.peek(HEAD).decode("utf-8-sig", "replace").lstrip()
    if head.startswith("[") and head[1:].lstrip()[:1] in ("", "[", "{", "]"):
        return JsonList(name, content)
    return JsonLines(Lines(name, content))


def objects(rows: Rows) -> Iterator[Mapping[str, Any]]:
    """Yield the rows, which must all be JSON objects."""
    for row in rows:
        if not isinstance(row, dict):
            raise rows.error(f"is {shown(repr(row), 40)}, not a JSON object")
        yield row


def prefix_requests(trace: Trace, name: str, content: Bytes) -> Iterator[Request]:
    """Rows of our own: {"arrival", "prompt", "output", "prefix_id"?, "prefix_len"?, "priority"?}, or a list."""
    rows = json_rows(name, content)
    prefixes: dict[object, int] = {}
    for row in rows:
        if isinstance(row, list) and len(row) == len(_PLAIN):
            item: Mapping[str, Any] = dict(zip(_PLAIN, row, strict=True))
        elif isinstance(row, dict):
            item = row
        else:
            raise rows.error(f"is {shown(repr(row), 40)}; write [arrival, prompt, output] or an object of these")
        prompt = tokens_of(rows, item.get("prompt"), "prompt tokens")
        output = tokens_of(rows, item.get("output"), "output tokens")
        arrival = seconds_of(rows, item.get("arrival"))
        segments = _prefix(rows, item, prompt, prefixes) if "prefix_len" in item else ()
        priority = item.get("priority", 0)
        if type(priority) is not int:
            raise rows.error(f"has the priority {shown(repr(priority), 40)}; write a whole number")
        if prompt and output:  # as request_of, written out for the million rows
            yield Request(arrival, prompt, output, segments, None, priority)
        else:
            trace.left_out += 1


def _prefix(rows: Rows, item: Mapping[str, Any], prompt: int, prefixes: dict[object, int]) -> tuple[Segment, ...]:
    """Return what a row's prompt begins with; its tokens may be more than the prompt has."""
    shared = min(tokens_of(rows, item["prefix_len"] or 0, "prefix_len"), prompt)
    key = item.get("prefix_id", 0)
    if not isinstance(key, (str, int, float, type(None))):
        raise rows.error(f"has the prefix_id {shown(repr(key), 40)}; write a number or a text")
    return (Segment(prefixes.setdefault(key, len(prefixes)), shared),) if shared else ()


_PLAIN = ("arrival", "prompt", "output")


def hash_requests(trace: Trace, name: str, content: Bytes) -> Iterator[Request]:
    """Rows with hash_ids: one id per block of the prompt, equal for equal beginnings; the last block may be partial."""
    unit, block = _HASHED[trace.format]
    rows = json_rows(name, content)
    for row in objects(rows):
        if row.get("timestamp") is None and row.get("delay") is not None:
            raise rows.error("has a delay and no timestamp", "such turns have no time of their own: use --turns")
        prompt = tokens_of(rows, row.get("input_length"), "input_length")
        output = tokens_of(rows, row.get("output_length"), "output_length")
        segments = _blocks(rows, row.get("hash_ids"), prompt, block)
        yield from request_of(trace, seconds_of(rows, row.get("timestamp"), unit), prompt, output, segments)


_HASHED = {"mooncake": (1000.0, 512), "bailian": (1.0, 16)}
"""Format -> (how many of its time units make a second, tokens of a block)."""


def _blocks(rows: Rows, ids: object, prompt: int, block: int) -> tuple[Segment, ...]:
    if ids is None:
        return ()
    if not isinstance(ids, list) or not set(map(type, ids)) <= {int}:
        raise rows.error("has hash_ids that are no list of whole numbers")
    if len(ids) > -(-prompt // block):
        raise rows.error(f"has {len(ids)} hash_ids, more than its {prompt:,} tokens have blocks of {block}")
    full, rest = divmod(prompt, block)
    segments = list(map(Segment, ids[:full], repeat(block)))
    if rest and len(ids) > full:
        segments.append(Segment(ids[full], rest))
    return tuple(segments)


def log_requests(trace: Trace, name: str, content: Bytes) -> Iterator[Request]:
    """Rows of LLMServingSim's logs, whose times are a clock's."""
    rows = json_rows(name, content)
    for row in objects(rows):
        yield from request_of(
            trace,
            seconds_of(rows, row.get("arrival_time")),
            tokens_of(rows, row.get("input_toks"), "input_toks"),
            tokens_of(rows, row.get("output_toks"), "output_toks"),
        )


def aiperf_requests(trace: Trace, name: str, content: Bytes) -> Iterator[Request]:
    """Records of aiperf, warm-up and failures left out."""
    rows = json_rows(name, content)
    for row in objects(rows):
        about, metrics = row.get("metadata"), row.get("metrics")
        if not isinstance(about, dict) or not isinstance(metrics, dict):
            raise rows.error("has no metadata and metrics")
        if row.get("error") or about.get("benchmark_phase") == "warmup":
            trace.left_out += 1
            continue
        prompt, output = (
            tokens_of(rows, _metric(metrics.get(key)), key)
            for key in ("input_sequence_length", "output_sequence_length")
        )
        yield from request_of(trace, seconds_of(rows, about.get("request_start_ns"), 1e9), prompt, output)


def _metric(value: object) -> object:
    return value.get("value") if isinstance(value, dict) else value


CHARACTERS_PER_TOKEN = 4
"""Of Latin script, in the tokenizers of today's models; other scripts are counted as a token a character."""


def estimated_tokens(text: str) -> int:
    """Return about how many tokens a text has; within a quarter for English, worse for code and other scripts."""
    latin = len(text.encode("ascii", "ignore"))
    return -(-latin // CHARACTERS_PER_TOKEN) + len(text) - latin


def sharegpt_requests(trace: Trace, name: str, content: Bytes) -> Iterator[Request]:
    """The first two turns of each conversation, as vLLM's ShareGPTDataset takes them (benchmarks/datasets, 0.32).

    What stands before the question as a system's turn belongs to the prompt.
    """
    rows = json_rows(name, content)
    for row in objects(rows):
        turns = row.get("conversations", row.get("messages"))
        if not isinstance(turns, list):
            raise rows.error("has no list of conversations")
        system = next((at for at, turn in enumerate(turns) if not _is_system(turn)), len(turns))
        if len(turns) < system + 2:  # a question and an answer
            trace.left_out += 1
            continue
        *asked, output = (_turn_tokens(rows, turn) for turn in turns[: system + 2])
        yield from request_of(trace, 0.0, sum(asked), output)


def _is_system(turn: object) -> bool:
    return isinstance(turn, dict) and turn.get("role", turn.get("from")) in ("system", "developer")


def _turn_tokens(rows: Rows, turn: object) -> int:
    if isinstance(turn, dict):
        for key in ("tokens", "num_tokens"):
            if key in turn:
                return tokens_of(rows, turn[key], key)
        text = turn.get("value", turn.get("content"))
        if isinstance(text, list):  # OpenAI's parts, of which images have no text
            text = "".join(str(part.get("text") or "") for part in text if isinstance(part, dict))
        if isinstance(text, str):
            return estimated_tokens(text)
    raise rows.error("has a turn without a text")
