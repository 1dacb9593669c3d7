"""Traces: every format reads as its authors wrote it, and what is broken is named by file and line."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import re
import tarfile
import tracemalloc
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.errors import InputError
from kvbudget.workload import files, recorded
from kvbudget.workload.lengths import Histogram
from kvbudget.workload.recorded import Profile, Trace
from kvbudget.workload.records import estimated_tokens
from kvbudget.workload.request import Request, Segment
from kvbudget.workload.traces import FORMATS, read_trace

if TYPE_CHECKING:
    from collections.abc import Callable

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared")) / "data/traces"

AZURE_2023 = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55
"""
AZURE_2024 = """TIMESTAMP,ContextTokens,GeneratedTokens
2024-05-10 00:00:00.009930+00:00,2162,5
2024-05-10 00:00:01+00:00,2399,6
2024-05-10 02:00:01.5+02:00,76,15
"""
BURSTGPT = """Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,472,18,490,Conversation log
45,ChatGPT,1087,230,1317,Conversation log
118,GPT-4,417,0,417,API log
"""
BURSTGPT_3 = """Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
7.5,a1,2.5,GPT-4,10,20,30,Conversation log
"""
MOONCAKE = """{"timestamp": 0, "input_length": 1100, "output_length": 5, "hash_ids": [0, 1, 2]}
{"timestamp": 1500, "input_length": 1024, "output_length": 7, "hash_ids": [0, 1]}
"""
BAILIAN = """{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 40, "output_length": 13, \
"type": "text", "turn": 1, "hash_ids": [1089, 1090, 1091]}
"""
OURS = """[{"arrival": 2, "prompt": 30, "output": 4, "prefix_id": "b", "prefix_len": 50, "priority": 3},
 {"arrival": 0.5, "prompt": 97, "output": 118, "prefix_id": "a", "prefix_len": 16}]"""
LOG = """{"request_id": "bench-0", "input_toks": 2358, "output_toks": 531, "arrival_time": 1787267980.5, "queued_ts": 2}
{"request_id": "bench-1", "input_toks": 10, "output_toks": 1, "arrival_time": 1787267981.0, "queued_ts": 2.0}
"""
VLLM_BENCH = json.dumps(
    {
        "date": "20261129", "backend": "vllm", "num_prompts": 3, "request_rate": "inf", "completed": 2,
        "total_input_tokens": 30, "total_output_tokens": 7, "request_throughput": 1.5,
        "input_lens": [10, 20, 5], "output_lens": [3, 4, 0], "start_times": [100.5, 100.25, 101.0],
    }
)  # fmt: skip
AIPERF = "\n".join(
    json.dumps(
        {
            "metadata": {"session_num": n, "request_start_ns": start, "benchmark_phase": phase},
            "metrics": {"input_sequence_length": {"value": 100 + n, "unit": "tokens"},
                        "output_sequence_length": {"value": 10, "unit": "tokens"}},
            "error": error,
        }
    )
    for n, (start, phase, error) in enumerate(
        [(10**18, "warmup", None), (10**18 + 10**9, "profiling", None), (10**18 + 3 * 10**9, "profiling", {"x": 1}),
         (10**18 + 2 * 10**9, "profiling", None)]
    )
)  # fmt: skip
GUIDELLM = json.dumps(
    {
        "metadata": {"version": 2, "guidellm_version": "0.8.1"},
        "benchmarks": [
            {
                "requests": {
                    "successful": [{"request_start_time": 1000.5, "prompt_tokens": 64, "output_tokens": 16}],
                    "incomplete": [{"request_start_time": 1000.6, "prompt_tokens": 64, "output_tokens": None}],
                    "errored": [],
                }
            }
        ],
    }
)
SHAREGPT = json.dumps(
    [
        {"id": "a", "conversations": [{"from": "human", "value": "x" * 41}, {"from": "gpt", "value": "数据"}]},
        {"id": "b", "conversations": [{"from": "human", "value": "alone"}]},
        {"id": "c", "conversations": [{"from": "human", "tokens": 7}, {"from": "gpt", "num_tokens": 9}]},
    ]
)


def requests(*rows: tuple[float, int, int]) -> list[Request]:
    return [Request(*row) for row in rows]


READ: list[tuple[str, str, str, bool, list[Request], int]] = [
    ("azure-2023", AZURE_2023, "azure", True, requests((0, 374, 44), (4.314579, 396, 109), (4.541877, 879, 55)), 0),
    ("azure-2024", AZURE_2024, "azure", True, requests((0, 2162, 5), (0.99007, 2399, 6), (1.49007, 76, 15)), 0),
    ("burstgpt", BURSTGPT, "burstgpt", True, requests((0, 472, 18), (40, 1087, 230)), 1),
    ("burstgpt-3", BURSTGPT_3, "burstgpt", True, requests((0, 10, 20)), 0),
    ("etalon", "num_prefill_tokens,num_decode_tokens\n74,918\n", "csv", False, requests((0, 74, 918)), 0),
    ("csv", "\ufeffarrival_time,Output Tokens,prompt_tokens\r\n1.5,8,9\r\n", "csv", True, requests((1.5, 9, 8)), 0),
    (
        "mooncake", MOONCAKE, "mooncake", True,
        [Request(0, 1100, 5, (Segment(0, 512), Segment(1, 512), Segment(2, 76))),
         Request(1.5, 1024, 7, (Segment(0, 512), Segment(1, 512)))], 0,
    ),
    (
        "bailian", BAILIAN, "bailian", True,
        [Request(0, 40, 13, (Segment(1089, 16), Segment(1090, 16), Segment(1091, 8)))], 0,
    ),
    (
        "ours", OURS, "json", True,
        [Request(0.5, 97, 118, (Segment(1, 16),)), Request(2, 30, 4, (Segment(0, 30),), None, 3)], 0,
    ),
    ("ours-short", "[[0,100,4],\n [1,5,6]]", "json", True, requests((0, 100, 4), (1, 5, 6)), 0),
    ("ours-lines", '{"arrival": 1, "prompt": 2, "output": 3}', "json", True, requests((1, 2, 3)), 0),
    ("ours-empty", "[]", "json", True, [], 0),
    ("log", LOG, "llmservingsim", True, requests((0, 2358, 531), (0.5, 10, 1)), 0),
    ("vllm-bench", VLLM_BENCH, "vllm-bench", True, requests((0, 20, 4), (0.25, 10, 3)), 1),
    ("aiperf", AIPERF, "aiperf", True, requests((0, 101, 10), (1, 103, 10)), 2),
    ("guidellm", GUIDELLM, "guidellm", True, requests((0, 64, 16)), 0),
    ("sharegpt", SHAREGPT, "sharegpt", False, requests((0, 11, 2), (0, 7, 9)), 1),
]  # fmt: skip
"""(name, content, format, whether timed, requests, rows left out)."""


def write(folder: Path, content: str | bytes, name: str = "trace") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path, form: str | None = None) -> tuple[Trace, list[Request]]:
    trace = read_trace(path, form)
    assert isinstance(trace, Trace)
    return trace, list(trace.requests())


def near(expected: list[Request], got: list[Request]) -> None:
    assert [row._replace(arrival=0) for row in got] == [row._replace(arrival=0) for row in expected]
    assert [row.arrival for row in got] == pytest.approx([row.arrival for row in expected], abs=1e-9)


@pytest.mark.parametrize(
    ("content", "form", "timed", "rows", "left_out"), [row[1:] for row in READ], ids=[r[0] for r in READ]
)
def test_a_trace_reads_as_its_authors_wrote_it(
    tmp_path: Path, content: str, form: str, timed: bool, rows: list[Request], left_out: int
) -> None:
    trace, got = read(write(tmp_path, content))
    assert (trace.format, trace.timed, trace.left_out) == (form, timed, left_out)
    near(rows, got)
    assert got == list(trace.requests()), "reads the same again"
    assert trace.left_out == left_out
    if form != "azure":
        assert read(write(tmp_path, content), form)[1] == got


@pytest.mark.parametrize(
    "squeeze", [gzip.compress, lzma.compress, lambda data: gzip.compress(data) + gzip.compress(b"")]
)
@pytest.mark.parametrize(("content", "rows"), [(row[1], row[4]) for row in READ], ids=[row[0] for row in READ])
def test_a_packed_trace_reads_the_same(
    tmp_path: Path, content: str, rows: list[Request], squeeze: Callable[[bytes], bytes]
) -> None:
    near(rows, read(write(tmp_path, squeeze(content.encode()), "trace.packed"))[1])


PROMETHEUS = """# HELP vllm:request_prompt_tokens Number of prefill tokens processed.
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{engine="0",le="1.0",model_name="m"} 0.0
vllm:request_prompt_tokens_bucket{engine="0",le="100.0",model_name="m"} 4.0
vllm:request_prompt_tokens_bucket{engine="0",le="200.0",model_name="m"} 10.0
vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="m"} 10.0
vllm:request_prompt_tokens_bucket{engine="1",le="200.0",model_name="m"} 10.0 # {trace_id="a}"} 7.0 1.0
vllm:request_prompt_tokens_bucket{engine="1",le="+Inf",model_name="m"} 10.0
vllm:request_generation_tokens_bucket{engine="0",le="10.0",model_name="m"} 10.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf",model_name="m"} 20.0
"""
AIPERF_SUMMARY = json.dumps(
    {
        "schema_version": "1.1",
        "request_throughput": {"unit": "requests/sec", "avg": 12.5},
        "input_sequence_length": {"unit": "tokens", "avg": 550, "min": 100, "p50": 500, "p99": 900, "max": 1000},
        "output_sequence_length": {"unit": "tokens", "avg": 10, "min": 10, "p50": 10, "max": 10},
    }
)
GUIDELLM_SUMMARY = json.dumps(
    {
        "metadata": {"guidellm_version": "0.8.1"},
        "benchmarks": [
            {
                "requests": {"successful": []},
                "metrics": {
                    "prompt_token_count": {"successful": {"min": 1, "max": 8, "percentiles": {"p50": 4}}},
                    "output_token_count": {"successful": {"min": 2, "max": 2, "percentiles": {"p50": 2}}},
                    "requests_per_second": {"successful": {"mean": 3.0}},
                },
            }
        ],
    }
)

PROFILES = [
    ("prometheus", PROMETHEUS, Histogram((100, 200), (0.2, 1.0), 2), Histogram((10, 11), (0.5, 1.0)), None),
    ("aiperf", AIPERF_SUMMARY, Histogram((500, 900, 1000), (0.5, 0.99, 1.0), 100), Histogram((10,), (1.0,), 10), 12.5),
    ("guidellm", GUIDELLM_SUMMARY, Histogram((4, 8), (0.5, 1.0)), Histogram((2,), (1.0,), 2), 3.0),
]


@pytest.mark.parametrize(("form", "content", "prompt", "output", "rate"), PROFILES, ids=[row[0] for row in PROFILES])
def test_a_summary_gives_distributions(
    tmp_path: Path, form: str, content: str, prompt: Histogram, output: Histogram, rate: float | None
) -> None:
    profile = read_trace(write(tmp_path, content))
    assert isinstance(profile, Profile)
    assert (profile.format, profile.rate) == (form, rate)
    assert profile.notes
    assert (profile.prompt, profile.output) == (prompt, output)


def test_lengths_beyond_the_last_bucket_are_no_shorter_than_it_and_are_told(tmp_path: Path) -> None:
    profile = read_trace(write(tmp_path, PROMETHEUS))
    assert isinstance(profile, Profile)
    (note,) = profile.notes[1:]
    assert note.startswith("50.0% of the requests lie beyond the last bucket of vllm:request_generation_tokens, 10 ")
    chance = Random(1)  # noqa: S311 - no secrets here
    drawn = [profile.output.draw(chance) for _ in range(1000)]
    assert 400 < drawn.count(11) < 600
    assert max(drawn) == 11


def test_a_result_without_details_gives_means(tmp_path: Path) -> None:
    document = json.loads(VLLM_BENCH)
    for key in ("input_lens", "output_lens", "start_times"):
        del document[key]
    profile = read_trace(write(tmp_path, json.dumps(document, indent=2)))
    assert isinstance(profile, Profile)
    assert repr((profile.prompt, profile.output, profile.rate)) == "(Constant(tokens=15), Constant(tokens=4), 1.5)"


@pytest.mark.parametrize(
    "rows",
    [
        "timestamp,prompt,output\n2024-05-12T00:00:01Z,10,5\n2024-05-12T00:00:00Z,20,6\n",
        "timestamp,prompt,output\n2024-05-12T00:00:00Z,20,6\n2024-05-12T02:00:01+02:00,10,5\n",
        "timestamp,prompt,output\n1715472000,20,6\n1715472001,10,5\n",
        "timestamp_ms,prompt,output\n0,20,6\n1000,10,5\n",
        "Arrival Time (us),prompt,output\n1715472000000000,20,6\n1715472001000000,10,5\n",
        "timestamp;prompt;output\n0;20;6\n1;10;5\n",
        "timestamp\tprompt\toutput\r\n 0\t20\t6\r\n 1\t10\t5\r\n",
        '[{"arrival": 1715472000, "prompt": 20, "output": 6}, {"arrival": 1715472001, "prompt": 10, "output": 5}]',
    ],
)
def test_times_of_a_clock_count_from_the_first_in_any_unit_and_order(tmp_path: Path, rows: str) -> None:
    assert [request[:3] for request in read(write(tmp_path, rows))[1]] == [(0.0, 20, 6), (1.0, 10, 5)]


def test_bzip2_is_unpacked(tmp_path: Path) -> None:
    assert read(write(tmp_path, bz2.compress(AZURE_2023.encode())))[1] == read(write(tmp_path, AZURE_2023))[1]


def test_a_pipe_is_refused_because_a_trace_is_read_more_than_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="pipe: is no file that can be read several times; save it to one"):
        read(tmp_path / "pipe")


def test_numbers_that_json_has_not_are_passed_over_where_nobody_reads_them(tmp_path: Path) -> None:
    document = VLLM_BENCH.rstrip()[:-1] + ', "std_tpot_ms": NaN, "peak": Infinity}'
    assert read(write(tmp_path, document))[1] == read(write(tmp_path, VLLM_BENCH))[1]


def test_a_system_turn_belongs_to_the_prompt(tmp_path: Path) -> None:
    asked = {"role": "user", "content": [{"type": "text", "text": "abcd"}, {"type": "image_url", "image_url": "x"}]}
    answered = {"role": "assistant", "content": "efghijkl"}
    system = {"role": "system", "content": "s" * 40}
    talks = [{"messages": [system, asked, answered]}, {"messages": [asked, answered]}, {"messages": [system, asked]}]
    assert [request[1:3] for request in read(write(tmp_path, json.dumps(talks)))[1]] == [(11, 2), (1, 2)]


BROKEN = [
    ("nothing", "", None, "no known trace: it is empty"),
    ("words", "hello there", None, "no known trace: it begins with 'hello there'"),
    ("no lengths", "a,b\n1,2\n", "csv", "has no column prompt_tokens and no column output_tokens"),
    ("short row", AZURE_2023 + "2023-11-16 18:15:52,91\n", None, "trace: line 5 has 2 columns instead of 3"),
    ("no date", AZURE_2023 + "2023-13-16 18:15:52,91,1\n", None, "line 5 has the time .*no date"),
    ("no number", BURSTGPT + "119,GPT-4,many,1,2,x\n", None, "line 5 has 'many' prompt tokens"),
    ("negative", "prompt,output\n1,-1\n", None, "line 2 has '-1' output tokens"),
    ("huge", "prompt,output\n1,99999999999\n", None, "line 2 has '99999999999' output tokens"),
    ("quote", 'prompt,output\n1,"2\n', None, "line 2 is not CSV"),
    ("bytes", b"prompt,output\n1,\xff\n", None, "line 2 is not UTF-8"),
    ("cut line", MOONCAKE + '{"timestamp": 3, "input_le', None, "line 3 is not JSON"),
    ("no object", MOONCAKE + "17", None, "line 3 is 17, not a JSON object"),
    ("two values", MOONCAKE + '{"a": 1} {"b": 2}', None, "line 3 has something behind its JSON value"),
    ("no length", MOONCAKE + '{"timestamp": 3, "output_length": 1}', None, "line 3 has no input_length"),
    ("true", '[{"arrival": 0, "prompt": true, "output": 1}]', None, r"entry 1 \(line 1\) has True prompt tokens"),
    ("not finite", '[{"arrival": 1e999, "prompt": 1, "output": 1}]', None, r"entry 1 \(line 1\) has the time inf"),
    ("not a number", '[{"arrival": NaN, "prompt": 1, "output": 1}]', None, "entry 1 .*has the time nan"),
    ("no length that is one", '[{"arrival": 0, "prompt": NaN, "output": 1}]', None, "entry 1 .*has nan prompt tokens"),
    ("one length", "timestamp,prompt_tokens\n1,2\n", None, "'timestamp,prompt_tokens' has no column output_tokens"),
    ("milliseconds", "timestamp,prompt,output\n1715472000000,2,3\n", None, "end the column's name in _ms, _us or _ns"),
    ("another date", "timestamp,prompt,output\n12/31/2024 10:00,2,3\n", None, "or dates such as 2024-05-12 18:15:46"),
    ("parquet", b"PAR1" + b"\x01" * 50, None, "is Parquet, which is not read; give the file as text"),
    ("zip", b"PK\x03\x04" + b"\x01" * 50, None, "is a zip archive, which is not read"),
    ("bad bzip2", b"BZh91AY&SY" + b"\0" * 50, None, "compressed data is damaged"),
    ("control characters", b"\x01\x02", None, r"it begins with '\\x01\\x02';"),
    ("half a token", "[[0, 1.5, 2]]", None, "has 1.5 prompt tokens"),
    ("too many ids", MOONCAKE.replace("[0, 1]", "[0, 1, 2]"), None, "line 2 has 3 hash_ids, more than its 1,024"),
    ("odd ids", MOONCAKE.replace("[0, 1]", '["0", 1]'), None, "line 2 has hash_ids that are no list of whole numbers"),
    ("delay", MOONCAKE + '{"delay": 3, "input_length": 1, "output_length": 1}', None, "line 3 has a delay"),
    ("no end", "[[0,1,2],\n[3,4,5]", None, r"entry 2 \(line 2\) is the last: the list has no end"),
    ("cut list", "[[0,1,2],\n[3,4,", None, r"entry 2 \(line 2\) is cut off or not JSON"),
    ("no comma", "[[0,1,2]\n[3,4,5]]", None, r"entry 1 \(line 2\) is not followed by a comma"),
    ("more", "[[0,1,2]] x", None, "entry 1 .*something follows the list"),
    ("deep", "[[0,1,2]," + "[" * 100_000, None, "entry 2 .*nested too deeply"),
    ("deep line", MOONCAKE + '{"a":' * 100_000, None, "line 3 is nested too deeply"),
    ("digits", "[[0,1,2],[" + "9" * 5000 + ",1,1]]", None, "entry 2 .*is not JSON"),
    ("prefix", '[{"arrival": 0, "prompt": 1, "output": 1, "prefix_len": 1, "prefix_id": []}]', None, "the prefix_id"),
    ("priority", '[{"arrival": 0, "prompt": 1, "output": 1, "priority": 0.5}]', None, "has the priority 0.5"),
    ("lengths differ", VLLM_BENCH.replace("[10, 20, 5]", "[10]"), None, "lens and start_times differ"),
    ("several", VLLM_BENCH.strip() + "\n" + VLLM_BENCH, None, "holds 2 results, one behind the other; give"),
    ("no benchmarks", '{"benchmarks": [], "metadata": {}}', None, "has no list of benchmarks"),
    ("no text", '[{"conversations": [{"from": "human"}, {"from": "gpt"}]}]', None, "has a turn without a text"),
    ("no buckets", "# HELP x y\n", None, "has no histogram of prompt and answer lengths"),
    ("falling", PROMETHEUS.replace('"200.0",model_name="m"} 10', '"200.0",model_name="m"} 1'), None, "fewer requests"),
    ("odd bucket", PROMETHEUS.replace("} 4.0", "} four"), None, "line 4 is no bucket of a histogram"),
    ("none served", re.sub(r"} [0-9.]+", "} 0", PROMETHEUS), None, "counts no request; take the page of an engine"),
    ("cut gzip", gzip.compress(AZURE_2023.encode())[:-20], None, "ends within its compressed data"),
    ("bad gzip", b"\x1f\x8b\x08" + b"\0" * 50, None, "compressed data is damaged"),
    ("unknown format", AZURE_2023, "excel", "--trace-format 'excel' is not known; choose one of azure, burstgpt"),
    ("no clients", AZURE_2023, "servegen", "the archive is damaged"),
]  # fmt: skip
"""(name, content, --trace-format, what the message says)."""


@pytest.mark.parametrize(("content", "form", "message"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_what_is_broken_is_named(tmp_path: Path, content: str | bytes, form: str | None, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read(path, form)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_trace(tmp_path / "absent.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_trace(tmp_path / ("x" * 5000))
    with pytest.raises(InputError, match="has no file b"):
        read_trace(write(tmp_path, pack({"a": b""})) / "b")


def test_rows_may_come_late_but_not_too_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "REORDERED", 4)
    rows = [[time, 1, 1] for time in (3, 1, 2, 0, 7, 4, 6, 5, 8)]
    got = read(write(tmp_path, json.dumps(rows)))[1]
    assert [request.arrival for request in got] == list(range(9))
    late = write(tmp_path, json.dumps([[time, 1, 1] for time in range(1, 40)] + [[0, 1, 1]]))
    with pytest.raises(InputError, match="more than 4 rows behind"):
        read(late)


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 10**6)), max_size=50))
@settings(max_examples=50)
def test_lists_lines_and_csv_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("same")
    expected = sorted(requests(*rows), key=lambda request: request.arrival)
    texts = [
        json.dumps(rows),
        json.dumps([dict(zip(("arrival", "prompt", "output"), row, strict=True)) for row in rows], indent=1),
        "\n".join(json.dumps(row) for row in rows),
        "arrival,prompt,output\n" + "\n".join(",".join(map(str, row)) for row in rows),
    ]
    for text, form in zip(texts, ("json", "json", "json", "csv"), strict=True):
        assert read(write(folder, text), form)[1] == expected


@given(st.binary(max_size=300) | st.text(alphabet='[]{}",:0123456789.e-\n abc_', max_size=300).map(str.encode))
@settings(max_examples=300)
def test_no_bytes_do_more_than_be_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = write(tmp_path_factory.mktemp("any"), content)
    for form in (None, *FORMATS):
        try:
            found = read_trace(path, form)
            rows = list(found.requests()) if isinstance(found, Trace) else []
        except InputError:
            continue
        assert all(row.arrival <= later.arrival for row, later in pairwise(rows))
        assert all(row.prompt_tokens >= 1 and row.output_tokens >= 1 for row in rows)


def test_a_list_is_read_without_being_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "REORDERED", 1 << 10)
    path = write(tmp_path, "[" + ",".join(f"[{n},100,100]" for n in range(30_000)) + "]")
    trace = read_trace(path)
    assert isinstance(trace, Trace)
    tracemalloc.start()
    try:
        count = sum(1 for _ in trace.requests())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 30_000
    assert peak < 2 << 20, "two windows of 1,024 requests and a piece of the file, not 30,000 requests"


@pytest.mark.parametrize("content", [b"\n", b" ", b"0"], ids=["lines", "blanks", "one line"])
@pytest.mark.parametrize("squeeze", [gzip.compress, lzma.compress, bz2.compress])
def test_a_bomb_is_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, squeeze: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(files, "FREE_GROWTH", 1 << 16)
    monkeypatch.setattr(files, "MAX_GROWTH", 50)
    monkeypatch.setattr(files, "MAX_LINE", 1 << 17)
    path = write(tmp_path, squeeze(content * (20 << 20)))
    for form in ("json", "mooncake", "csv", "vllm-bench"):
        tracemalloc.start()
        try:
            with pytest.raises(InputError, match=r"as no trace does|longer than|has no column"):
                read(path, form)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 12 << 20, "most of it xz's dictionary"


def test_characters_become_tokens_by_script() -> None:
    assert [estimated_tokens(text) for text in ("", "abcd", "abcde", "数据", "ab数据")] == [0, 1, 2, 2, 3]


# --- archives and ServeGen ---------------------------------------------------------------------------------------


def pack(contents: dict[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:xz") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return whole.getvalue()


SERVEGEN = {
    "data/chunk-0-trace.csv": b"0,2.5,1.0,Gamma,1.0,0.4\n600,0,0,,0,0\n1200,1.5,2.0,Weibull,0.5,0.3\n",
    "data/chunk-0-dataset.json": json.dumps(
        {
            "0": {"input_tokens": "{10: 0.5, 20: 0.5}", "output_tokens": "{7: 1.0}", "reason_ratio": "{0.0: 1.0}"},
            "1200": {"input_tokens": "{99: 1.0}", "output_tokens": "{3: 2, 4: 0}"},
        }
    ).encode(),
    "data/chunk-1-trace.csv": b"0,0,0,,0,0\n",
    "data/README": b"not one of them",
}


def test_servegen_draws_its_rates_and_lengths(tmp_path: Path) -> None:
    trace, got = read(write(tmp_path, pack(SERVEGEN)))
    assert (trace.format, trace.timed) == ("servegen", True)
    first = [request for request in got if request.arrival < 600]
    last = [request for request in got if request.arrival >= 1200]
    assert (len(first), len(last)) == (1500, 900)
    assert len(got) == 2400
    assert got[-1].arrival <= 1800
    assert {request.prompt_tokens for request in first} == {10, 20}
    assert {(request.prompt_tokens, request.output_tokens) for request in last} == {(99, 3)}
    assert [request.arrival for request in got] == sorted(request.arrival for request in got)
    assert list(trace.requests(0)) == got
    assert list(trace.requests(1)) != got


def test_servegen_reads_a_folder_too(tmp_path: Path) -> None:
    folder = tmp_path / "clients"
    folder.mkdir()
    for name, content in SERVEGEN.items():
        write(folder, content, name.partition("/")[2])
    assert read(folder)[1] == read(write(tmp_path, pack(SERVEGEN)))[1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data/chunk-0-trace.csv", b"0,x,0,,0,0\n", r"chunk-0-trace.csv: line 1 has no numbers"),
        ("data/chunk-0-trace.csv", b"0,1,0\n", r"line 1 is not start, rate"),
        ("data/chunk-0-trace.csv", b"0,1,1,Pareto,1,1\n", r"line 1 has the pattern 'Pareto'"),
        ("data/chunk-0-trace.csv", b"0,1,1,Weibull,1e-300,1\n", r"line 1 has the pattern 'Weibull'"),
        ("data/chunk-0-trace.csv", b"5,0,1,,1,1\n0,0,0,,0,0\n", r"line 2 has times that fall"),
        ("data/chunk-0-trace.csv", b"0,1e6,1,Gamma,1,1\n600,0,0,,0,0\n", r"line 2 ends a window of more than 10"),
        ("data/chunk-0-dataset.json", b"{}", "chunk-0-trace.csv has no lengths"),
        ("data/chunk-0-dataset.json", b'{"0": 1}', "no second with histograms"),
        ("data/chunk-0-dataset.json", b'{"0": {"input_tokens": 1}}', "has no input_tokens and output_tokens"),
    ],
)  # fmt: skip
def test_broken_clients_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, pack({**SERVEGEN, name: content})))


def test_a_file_of_an_archive_has_a_path(tmp_path: Path) -> None:
    path = write(tmp_path, pack({"a/one.csv": AZURE_2023.encode(), "two.jsonl": MOONCAKE.encode()}), "pack.tar.xz")
    assert len(read(path / "a" / "one.csv")[1]) == 3
    assert len(read(path / "two.jsonl")[1]) == 2
    with pytest.raises(InputError, match=r"of an archive write pack\.tar\.xz/FILE"):
        read(path)
    with pytest.raises(InputError, match=r"say which as pack\.tar\.xz/FILE: a/one\.csv, two\.jsonl"):
        read(path, "csv")


ALL = [
    ("azure2023_conv.csv.gz", "azure", 19366),
    ("etalon_arxiv_lengths.csv.gz", "csv", 28257),
    ("etalon_sharegpt8k_lengths.csv.gz", "csv", 30731),
    ("mooncake_conversation.jsonl.gz", "mooncake", 12031),
    ("trace_poisson20.json", "json", 2000),
    ("trace_prefix.json", "json", 1000),
    ("trace_short.json", "json", 10),
    ("llmservingsim_vllm_ground_truth.tar.xz/ground_truth/RTX4090_Llama-3.1-8B.requests.jsonl", "llmservingsim", 300),
]


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not here")
@pytest.mark.parametrize(("name", "form", "rows"), ALL, ids=[row[0] for row in ALL])
def test_the_published_traces_read(name: str, form: str, rows: int) -> None:
    trace, got = read(SHARED / name)
    assert (trace.format, len(got), trace.left_out) == (form, rows, 0)


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared traces are not here")
def test_the_published_clients_read() -> None:
    trace = read_trace(SHARED / "servegen_deepseek-r1.tar.xz")
    assert isinstance(trace, Trace)
    assert trace.notes == ("Drawn from 73 clients.",)
    assert sum(1 for _ in islice(trace.requests(), 5000)) == 5000
