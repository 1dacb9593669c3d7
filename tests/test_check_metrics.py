"""What is read of metrics pages, and of a Prometheus server.

`logs/vllm_0.32_metrics_*` are pages of a real vLLM 0.32, cut to the names that matter: under load, and afterwards with
135 preemptions of 48 requests.
"""

# ruff: noqa: E501 - a printed line stays whole

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.check import read_metrics
from kvbudget.check.fetch import get
from kvbudget.check.metrics import Lengths, lengths_of
from kvbudget.check.prometheus import ask_prometheus, parse_range
from kvbudget.errors import AccessError, InputError, KvbudgetError
from kvbudget.facts.metric_names import METRIC_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LOGS = Path(__file__).parent / "logs"


def page(name: str) -> str:
    return (LOGS / f"vllm_0.32_metrics_{name}.txt").read_text(encoding="utf-8")


# -- a real server


def test_recorded_preemptions() -> None:
    m = read_metrics(page("after"), now=1795976155.61 + 100)
    assert (m.engine, m.models, m.engines) == ("vllm", ("/models/tiny",), 1)
    assert (m.preemptions, m.finished, m.prefix_hit_rate) == (135, 48, 0)
    assert m.seconds == pytest.approx(100)
    assert m.preemptions_per_s == pytest.approx(1.35)
    assert m.requests_per_s == pytest.approx(0.48)
    assert m.prompt is not None
    assert m.output is not None
    assert (m.prompt.requests, m.prompt.mean, m.output.mean) == (48, 100, 800)
    assert (m.config_number("num_gpu_blocks"), m.config_number("kv_cache_size_tokens")) == (129, 4128)


def test_recorded_under_load() -> None:
    m = read_metrics(page("peak"))
    assert (m.running, m.waiting, m.kv_usage, m.preemptions) == (5, 43, 0.9375, 0)
    assert (m.seconds, m.requests_per_s, m.preemptions_per_s) == (None, None, None)


def test_one_bucket_gives_its_mean() -> None:
    """All 48 prompts had 100 tokens; a point inside the bucket 50 to 100 would say 75."""
    m = read_metrics(page("after"))
    assert m.prompt is not None
    assert (m.prompt.quantile(0.5), m.prompt.bucket(0.5)) == (100, (50, 100))


# -- names by version


def test_old_and_new_names_are_not_added_up() -> None:
    text = 'vllm:kv_cache_usage_perc{model_name="m"} 0.5\nvllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
    assert read_metrics(text).kv_usage_max == 0.5
    assert read_metrics(text.splitlines()[1]).kv_usage_max == 0.5


def test_replicas_are_averaged_and_the_fullest_stands_out() -> None:
    text = "".join(
        f'vllm:kv_cache_usage_perc{{engine="{i}",model_name="m"}} {share}\nvllm:num_requests_running{{engine="{i}",model_name="m"}} {i}\n'
        f'vllm:num_preemptions_total{{engine="{i}",model_name="m"}} 10\n'
        for i, share in enumerate((0.2, 0.9))
    )
    m = read_metrics(text)
    assert (m.engines, m.kv_usage_max, m.running, m.preemptions) == (2, 0.9, 1, 20)
    assert m.kv_usage == pytest.approx(0.55)


@pytest.mark.parametrize(
    ("labels", "engines", "blocks"),
    [
        ('num_gpu_blocks="200"', 2, 100),
        ('num_gpu_blocks="200"', 1, 200),
        ('num_gpu_blocks="200",block_size="16",kv_cache_size_tokens="1600"', 2, 100),
        ('num_gpu_blocks="200",block_size="16",kv_cache_size_tokens="3200"', 2, 200),
        ('num_gpu_blocks="None"', 2, None),
    ],
)
def test_data_parallel_engines_tell_their_blocks_together(labels: str, engines: int, blocks: int | None) -> None:
    """From 0.9 on the label has the sum over all engines of an address; the size in tokens says where it has not."""
    text = "".join(
        f'vllm:num_requests_running{{engine="{i}",model_name="m"}} 1\nvllm:cache_config_info{{engine="{i}",{labels}}} 1\n'
        for i in range(engines)
    )
    assert read_metrics(text).config_number("num_gpu_blocks") == blocks


@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("sglang:token_usage 0.4\nsglang:num_running_reqs 3\nsglang:max_total_num_tokens 4000\n", "sglang"),
        ("llamacpp:requests_processing 2\nllamacpp:requests_deferred 1\n", "llama.cpp"),
        ("trtllm_kv_cache_utilization 0.4\ntrtllm_num_requests_running 3\n", "tensorrt-llm"),
        ('lmdeploy:gpu_cache_usage_perc 0.4\nlmdeploy:num_requests_running{model_name="m"} 3\n', "lmdeploy"),
        ("tgi_batch_current_size 3\ntgi_queue_size 1\n", "tgi"),
    ],
)
def test_other_engines(text: str, engine: str) -> None:
    m = read_metrics(text)
    assert m.engine == engine
    assert m.running in (2, 3)


def test_names_are_rows_of_their_engine() -> None:
    starts = {"vllm": "vllm:", "sglang": "sglang:", "llama.cpp": "llamacpp:", "tensorrt-llm": "trtllm_"}
    starts |= {"lmdeploy": "lmdeploy:", "tgi": "tgi_"}
    assert all(name.startswith(starts[row.engine]) for row in METRIC_NAMES for name in row.names)
    assert len({(row.meaning, row.engine) for row in METRIC_NAMES}) == len(METRIC_NAMES)


# -- what is no engine's page


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("<!doctype html><html>", AccessError, "answered HTML"),
        ('{"detail":"Not Found"}', AccessError, "answered JSON"),
        ('vllm:current_qps{server="a"} 1\nvllm:num_requests_running{server="a"} 2\n', AccessError, "router"),
        ("sgl_router_requests_total 5\n", AccessError, "SGLang's router"),
        ("dynamo_frontend_requests_total 5\n", AccessError, "Dynamo"),
        ("python_info 1\n", InputError, "no metric of a known engine"),
        ("", InputError, "is empty"),
        ("[1]", AccessError, "JSON"),
    ],
)
def test_other_pages(text: str, error: type[KvbudgetError], words: str) -> None:
    with pytest.raises(error, match=words):
        read_metrics(text, "http://host/metrics")


@pytest.mark.parametrize("name", ["vllm:current_qps", "vllm_router_requests_total", "inference_extension_info"])
def test_a_router_without_traffic(name: str) -> None:
    """Its labels come with the first request; until then the page has nothing but what is declared."""
    with pytest.raises(AccessError, match=r"router|gateway"):
        read_metrics(f"# HELP {name} x\n# TYPE {name} gauge\n")


def test_models_are_not_mixed() -> None:
    text = "".join(f'vllm:num_requests_running{{model_name="{name}"}} 1\n' for name in "ab")
    with pytest.raises(InputError, match=r"several models \(a, b\)"):
        read_metrics(text)


def test_ranks_of_one_engine_count_once() -> None:
    """Each stage of a pipeline tells the same requests; `dp_rank` is another engine."""
    text = "".join(
        f'sglang:num_running_reqs{{dp_rank="{dp}",pp_rank="{pp}",tp_rank="{tp}"}} {5 + dp}\n'
        for dp in (0, 1)
        for pp in (0, 1)
        for tp in (0, 1)
    )
    m = read_metrics(text)
    assert (m.engines, m.running, m.running_max) == (2, 11, 6)


def test_v0_tells_its_hits_as_a_share() -> None:
    text = "vllm:num_requests_running 1\nvllm:gpu_prefix_cache_hit_rate "
    assert [read_metrics(text + value).prefix_hit_rate for value in ("0.25", "-1.0")] == [0.25, None]


def test_exemplars_and_time_stamps() -> None:
    """OpenMetrics puts an exemplar behind a bucket, a federating server a time behind a value."""
    name = "vllm:request_prompt_tokens"
    m = read_metrics(
        "vllm:num_requests_running 2 1795976155000\n"
        f'{name}_bucket{{le="100.0"}} 3 # {{trace_id="a"}} 67 1.5\n{name}_bucket{{le="+Inf"}} 3\n'
        f"{name}_sum 99\n{name}_count 3\n# EOF\n"
    )
    assert (m.running, m.notes) == (2, ())
    assert m.prompt is not None
    assert m.prompt.mean == 33


def test_a_page_that_was_cut_off_has_no_lengths_of_nothing() -> None:
    text = 'vllm:num_requests_running 1\nvllm:request_prompt_tokens_bucket{le="+Inf"} 3\n'
    assert read_metrics(text).prompt is None


def test_sums_beyond_all_numbers_are_none() -> None:
    text = "".join(f'vllm:num_preemptions_total{{engine="{i}"}} 1e308\n' for i in (0, 1))
    assert read_metrics(text).preemptions is None
    assert read_metrics("vllm:num_requests_running 1\nvllm:kv_cache_usage_perc 1e308\n").kv_usage_max is None
    assert read_metrics("vllm:num_requests_running 1\nprocess_start_time_seconds -Inf\n", now=1e9).seconds is None
    hits = "vllm:num_requests_running 1\nvllm:prefix_cache_queries_total 1e-308\nvllm:prefix_cache_hits_total 5\n"
    assert read_metrics(hits).prefix_hit_rate is None


def test_a_page_of_many_adapters_is_passed_over_quickly() -> None:
    text = "".join(f'vllm:lora_requests_info{{adapter="{i}"}} 1\n' for i in range(200_000))
    began = time.process_time()
    assert read_metrics(f"{text}vllm:num_requests_running 3\n").running == 3
    assert time.process_time() - began < 2


def test_bad_lines_are_counted() -> None:
    lines = ("running 1", 'running{a="} 1', "waiting NaN", "waiting zz")
    m = read_metrics("".join(f"vllm:num_requests_{line}\n" for line in lines))
    assert (m.running, m.waiting) == (1, None)
    assert m.notes == ("2 lines of metrics were not understood.",)


@given(st.text(max_size=300))
def test_any_text(text: str) -> None:
    try:
        read_metrics(text)
    except KvbudgetError:
        return


@given(st.text(max_size=60), st.text(max_size=30))
def test_any_line_of_an_engine(labels: str, value: str) -> None:
    text = f"vllm:num_requests_running 1\nvllm:kv_cache_usage_perc{{{labels}}} {value}\nvllm:request_prompt_tokens_bucket{{le={labels}}} {value}\n"
    try:
        json.dumps(read_metrics(text).to_dict(), allow_nan=False)
    except KvbudgetError:
        return


# -- histograms


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=80), st.sampled_from([0.1, 0.5, 0.95]))
def test_quantiles_lie_in_their_bucket(values: list[int], share: float) -> None:
    edges = (1, 10, 100, 1000, 10_000)
    buckets = [(float(edge), float(sum(value <= edge for value in values))) for edge in edges]
    lengths = lengths_of(buckets, len(values), sum(values))
    assert lengths is not None
    low, high = lengths.bucket(share)
    exact = sorted(values)[max(0, -(-int(share * len(values) * 1000) // 1000) - 1)]
    assert low <= exact <= high
    assert low <= lengths.quantile(share) <= high


def test_an_empty_histogram_is_none() -> None:
    assert lengths_of([(1.0, 0.0), (float("inf"), 0.0)], 0, 0) is None


def test_above_the_last_bound() -> None:
    assert Lengths(10, 1000, (1.0, 10.0), (0.0, 2.0)).quantile(0.9) == 10


# -- addresses


class Double(ThreadingHTTPServer):
    """A server on the loopback interface that answers as told; a redirection with its text as the address."""

    daemon_threads = True

    def __init__(self, answer: Callable[[str, dict[str, str]], tuple[int, str | bytes]]) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.authorized: list[str | None] = []
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        fields = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert isinstance(self.server, Double)
        self.server.asked.append((parts.path, fields))
        self.server.authorized.append(self.headers.get("Authorization"))
        code, text = self.server.answer(parts.path, fields)
        body = text.encode() if isinstance(text, str) else text
        self.send_response(code)
        if 300 <= code < 400:
            self.send_header("Location", body.decode())
        self.send_header("Content-Length", str(len(body) + 9 * (parts.path == "/short")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def serve(answer: Callable[[str, dict[str, str]], tuple[int, str | bytes]]) -> Iterator[Double]:
    server = Double(answer)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def missing() -> Iterator[Double]:
    yield from serve(lambda path, _: (401, "no") if path == "/locked" else (404, "not found"))


def test_not_found_says_which_flag(missing: Double) -> None:
    with pytest.raises(AccessError, match="answered 404: SGLang needs --enable-metrics"):
        get(f"{missing.url}/metrics")


def test_a_locked_page(missing: Double) -> None:
    with pytest.raises(AccessError, match=r"needs a token or a password \(401\): set KVBUDGET_METRICS_TOKEN, or"):
        get(f"{missing.url}/locked")


def test_credentials_go_with_the_question_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVBUDGET_METRICS_TOKEN", "t0ken")
    for server in serve(lambda path, _: (302, "/metrics") if path == "/old" else (200, "ok")):
        get(f"{server.url.replace('://', '://me:p%40ss@')}/metrics")
        get(f"{server.url}/old")
        assert server.authorized == ["Basic bWU6cEBzcw==", "Bearer t0ken", None]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (gzip.compress(b"vllm:x 1"), "vllm:x 1"),
        (b"\xef\xbb\xbfvllm:x 1", "vllm:x 1"),
        ("vllm:x 1".encode("utf-16"), "vllm:x 1"),
    ],
)
def test_how_a_page_may_be_packed(content: bytes, text: str) -> None:
    for server in serve(lambda *_: (200, content)):
        assert get(server.url) == text


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("/short", b"vllm:x 1", "broke off 9 bytes before the end of its answer; try again"),
        ("/", b"\x1f\x8bnothing", "is packed and damaged"),
        ("/", gzip.compress(bytes((16 << 20) + 1)), "more than 16 MiB"),
        ("/", bytes((16 << 20) + 1), "answered more than 16 MiB; give one engine's address"),
    ],
)
def test_answers_that_are_no_page(path: str, content: bytes, words: str) -> None:
    for server in serve(lambda *_: (200, content)):
        with pytest.raises(AccessError, match=words) as caught:
            get(server.url + path)
    assert "cannot be reached" not in str(caught.value)


@pytest.mark.parametrize("beginning", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n"])
def test_an_answer_that_drips(beginning: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is no silence, neither in the headers nor after them."""
    monkeypatch.setattr("kvbudget.check.fetch.DEADLINE_S", 0.4)
    stop = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(beginning)
            while not stop.wait(0.05):
                connection.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=drip, args=(listener,), daemon=True).start()
        with pytest.raises(AccessError, match=r"did not finish its answer within 0\.4 s"):
            get(f"http://127.0.0.1:{listener.getsockname()[1]}/metrics")
        stop.set()


def test_an_engine_without_tls(missing: Double) -> None:
    with pytest.raises(AccessError, match="is it http:// and not https://"):
        get(missing.url.replace("http", "https"))


def test_nobody_answers() -> None:
    with pytest.raises(AccessError, match="cannot be reached"):
        get("http://127.0.0.1:9/metrics")


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://host/x", "host:8000", "http://[::1/", "http:///m", "http://h:a/"]
)
def test_other_schemes(url: str) -> None:
    with pytest.raises(InputError, match="no http address"):
        get(url)


def test_secrets_stay_out_of_messages() -> None:
    with pytest.raises(AccessError) as caught:
        get("http://user:hunter2@127.0.0.1:9/metrics?token=hunter3")
    assert "hunter" not in str(caught.value)


# -- Prometheus

VALUES: dict[str, list[float]] = {
    "count(vllm:num_requests_running": [4] * 480,
    "avg(vllm:kv_cache_usage_perc": [0.4, 0.6],
    "max(max_over_time(vllm:kv_cache_usage_perc": [0.5, 0.99],
    "avg(vllm:num_requests_running": [10, 20],
    "max(max_over_time(vllm:num_requests_running": [12, 22],
    "avg(vllm:num_requests_waiting": [0, 2],
    "max(max_over_time(vllm:num_requests_waiting": [0, 7],
    "max(rate(vllm:num_preemptions_total": [0, 0.5],
}
SCALARS = {
    "avg(quantile_over_time(0.95, vllm:kv_cache_usage_perc": 0.7,
    "sum(increase(vllm:num_preemptions_total": 36,
    "sum(increase(vllm:request_success_total": 7200,
    "sum(increase(vllm:request_prompt_tokens_sum": 360_000,
    "sum(increase(vllm:request_generation_tokens_sum": 72_000,
}


def prometheus(
    models: tuple[str, ...] = ("m",), since: float = 0.0
) -> Callable[[str, dict[str, str]], tuple[int, str]]:
    """Return a double of the server's API for one fleet."""

    def answer(path: str, fields: dict[str, str]) -> tuple[int, str]:
        query = fields["query"].replace("((", "(").replace(", (", ", ")
        result: list[dict[str, Any]]
        if path.endswith("query_range"):
            found = next((values for start, values in VALUES.items() if query.startswith(start)), [])
            start, step = (float(fields[name]) for name in ("start", "step"))
            points = [[start + i * step, str(value)] for i, value in enumerate(found)]
            if since:
                times = (start + i * step for i in range(501))
                points = [[at, "4"] for at in times if since <= at <= float(fields["end"])]
            result = [{"metric": {}, "values": points}] if points else []
        elif query.startswith("count by (model_name) (vllm"):
            result = [{"metric": {"model_name": name}, "value": [0, "4"]} for name in models]
        elif query.startswith("sum by (le) (increase(vllm:"):
            result = [
                {"metric": {"le": le}, "value": [0, value]}
                for le, value in (("20", "0"), ("100", "7200"), ("+Inf", "7200"))
            ]
        elif query.startswith("vllm:cache_config_info"):
            result = [
                {"metric": {"num_gpu_blocks": str(blocks), "block_size": "16"}, "value": [0, "1"]}
                for blocks in (200, 100)
            ]
        else:
            number = next((value for start, value in SCALARS.items() if query.startswith(start)), None)
            result = [] if number is None else [{"metric": {}, "value": [0, str(number)]}]
        return 200, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}})

    return answer


def test_a_fleet_over_a_range() -> None:
    for server in serve(prometheus()):
        m = ask_prometheus(server.url, 7200, 'namespace="prod"', now=10_000.0)
        assert (m.engines, m.models, m.seconds) == (4, ("m",), 7200)
        assert (m.kv_usage, m.kv_usage_p95, m.kv_usage_max) == (0.5, 0.7, 0.99)
        assert (m.running, m.running_max, m.waiting, m.waiting_max) == (15, 22, 1, 7)
        assert (m.preemptions, m.preemptions_per_s, m.preemptions_per_s_max) == (36, 0.005, 0.5)
        assert m.requests_per_s == 1
        assert m.prompt is not None
        assert (m.prompt.requests, m.prompt.mean) == (7200, 50)
        assert m.config_number("num_gpu_blocks") == 100
        queries = [fields["query"] for _, fields in server.asked]
        assert all('{model_name!="", namespace="prod"}' in query for query in queries)
        assert any(
            "(vllm:kv_cache_usage_perc" in query and " or vllm:gpu_cache_usage_perc" in query for query in queries
        )
        ranges = [fields for path, fields in server.asked if path.endswith("query_range")]
        assert {(fields["start"], fields["end"], fields["step"]) for fields in ranges} == {
            ("2800.000", "10000.000", "15")
        }


def test_a_fleet_that_is_younger_than_the_range() -> None:
    """Rates are those of the time that it was there, which is looked at as closely as if it had been asked for."""
    for server in serve(prometheus(since=99_000)):
        m = ask_prometheus(server.url, 90 * 86400, now=100_000.0)
        assert m.seconds == pytest.approx(1000, abs=30)
        assert m.seconds is not None
        assert m.requests_per_s == pytest.approx(7200 / m.seconds)
        assert any(":15s]" in fields["query"] for _, fields in server.asked)


def test_a_fleet_that_is_gone_at_night() -> None:
    """The range is the whole of it, and the rates are those of the day."""
    for server in serve(prometheus()):
        m = ask_prometheus(server.url, 2 * 7200, now=20_000.0)
        assert (m.seconds, m.over_time) == (480 * 29, True)


def test_what_the_server_says_of_its_answers_is_handed_on() -> None:
    """A server of servers answers without those that are down, and warns."""

    def answer(path: str, fields: dict[str, str]) -> tuple[int, str]:
        code, text = prometheus()(path, fields)
        return code, json.dumps({**json.loads(text), "warnings": ["store b: unavailable"]})

    for server in serve(answer):
        assert ask_prometheus(server.url, 3600).notes == (f"{server.url} warns: store b: unavailable",)


def test_secrets_stay_out_of_the_source() -> None:
    for server in serve(prometheus()):
        assert ask_prometheus(server.url.replace("://", "://me:hunter2@"), 3600).source == server.url


def test_several_models_are_not_mixed() -> None:
    for server in serve(prometheus(("a", "b"))):
        with pytest.raises(InputError, match="several models"):
            ask_prometheus(server.url, 3600)


@pytest.mark.parametrize(
    ("code", "text", "words"),
    [
        (200, "<html>", "did not answer as Prometheus"),
        (200, '{"status":"error","error":"bad query"}', "bad query"),
        (200, '{"status":"success","data":{"result":[]}}', "no metrics of vLLM or SGLang"),
        (200, '{"status":"success","data":[]}', "no list of series"),
        (400, '{"status":"error","errorType":"bad_data","error":"parse error"}', "answered 400: parse error"),
        (422, '{"status":"error","error":"query processing would load too many samples"}', "422: query processing"),
        (503, "<html>busy", "answered 503; see that server's own log"),
        (302, "", "answered 302, and leads to no page"),
        (404, "", "answered 404: give the server's root"),
    ],
)
def test_what_prometheus_may_answer(code: int, text: str, words: str) -> None:
    for server in serve(lambda *_: (code, text)):
        with pytest.raises(AccessError, match=words):
            ask_prometheus(server.url, 3600)


@pytest.mark.parametrize(("text", "seconds"), [("30m", 1800), ("24h", 86400), ("7d", 604800), ("90s", 90)])
def test_ranges(text: str, seconds: int) -> None:
    assert parse_range(text) == seconds


@pytest.mark.parametrize("text", ["", "24", "h", "-1h", "1y", "100d", "99999999h", "1h30m"])
def test_bad_ranges(text: str) -> None:
    with pytest.raises(InputError, match="--range"):
        parse_range(text)


@pytest.mark.parametrize("selector", ["}", "a=b", 'a="b"} or vector(1', 'a="\\""', "a"])
def test_bad_selectors(selector: str) -> None:
    with pytest.raises(InputError, match="--selector"):
        ask_prometheus("http://127.0.0.1:9", 3600, selector)
