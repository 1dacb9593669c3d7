"""SGLang's lines; it prints GB and means GiB. Source: sglang 0.5.23, and public logs of older versions."""

from __future__ import annotations

from kvbudget.check.observation import CAPTURING, LOADING, PROFILING, SERVING
from kvbudget.check.rows import COUNT, GIB_UNIT, LARGEST, SUM, Row, from_call

ENGINE = "sglang"

_GB = r"-?[0-9.]{1,18}"
_COUNT = r"[0-9,]{1,20}"

ROWS: tuple[Row, ...] = (
    Row(
        "server_args=ServerArgs(",
        r"server_args=ServerArgs\((?P<settings>.*)",
        settings=from_call,
        typed=True,
        starts="server",
    ),
    Row(
        "Load weight begin",
        rf"Load weight begin\. avail mem=(?P<free>{_GB}) GB",
        {"free": ("free_at_start", GIB_UNIT)},
        phase=LOADING,
        again=LARGEST,  # a draft is loaded when the target is there
    ),
    Row(
        "Load weight end",
        rf"Load weight end\..{{0,400}}?avail mem=(?P<free>{_GB}) GB(?:, mem usage=(?P<weights>{_GB}) GB)?",
        {"weights": ("weights", GIB_UNIT)},
        phase=PROFILING,
        again=SUM,
    ),
    Row(
        " is allocated. dtype: ",
        rf"KV Cache is allocated\..{{0,400}}?#tokens: (?P<tokens>{_COUNT}), K size: (?P<k>{_GB}) GB, V size: (?P<v>{_GB}) GB",
        {"tokens": ("kv_cache_size_tokens", COUNT), "k": ("k_cache", GIB_UNIT), "v": ("v_cache", GIB_UNIT)},
        phase=CAPTURING,
        again=SUM,
    ),
    Row(
        " is allocated. dtype: ",
        rf"KV Cache is allocated\..{{0,400}}?#tokens: (?P<tokens>{_COUNT}), KV size: (?P<kv>{_GB}) GB",
        {"tokens": ("kv_cache_size_tokens", COUNT), "kv": ("kv_cache", GIB_UNIT)},
        phase=CAPTURING,
        again=SUM,
    ),
    Row(
        "Post-capture KV sizing: ",
        rf"KV cache allocated\. dtype: \S{{1,60}}, #tokens: (?P<tokens>{_COUNT}), KV size: (?P<kv>{_GB}) GB",
        {"tokens": ("kv_cache_size_tokens", COUNT), "kv": ("kv_cache", GIB_UNIT)},
        phase=CAPTURING,
        again=SUM,
    ),
    Row(
        "Mamba Cache is allocated",
        rf"Mamba Cache is allocated\..{{0,200}}?conv_state size: (?P<conv>{_GB})GB, ssm_state size: (?P<ssm>{_GB})GB",
        {"conv": ("state", GIB_UNIT), "ssm": ("state", GIB_UNIT)},
        phase=CAPTURING,
        again=SUM,
    ),
    Row(
        "graph end.",
        rf"Capture .{{1,60}}graph end\..{{0,2000}}?mem usage=(?P<graphs>{_GB}) GB",
        {"graphs": ("cuda_graphs", GIB_UNIT)},
        phase=CAPTURING,
        again=SUM,
    ),
    Row(
        "max_total_num_tokens=",
        rf"max_total_num_tokens=(?P<tokens>{_COUNT})\b.{{0,400}}?context_len=(?P<length>{_COUNT})",
        {"tokens": ("kv_cache_size_tokens", COUNT), "length": ("max_model_len", COUNT)},
        phase=CAPTURING,
    ),
    Row(
        "max_running_requests=",
        r"\b(?P<settings>chunked_prefill_size=\S.{0,400}?max_running_requests=[0-9]{1,12}.*)",
        settings=from_call,
    ),
    Row("The server is fired up", r"The server is fired up and ready to roll", phase=SERVING),
    Row(
        "Decode batch",
        rf"Decode batch.{{1,40}}?#running-req: (?P<running>{_COUNT}),.{{0,400}}?token usage: (?P<kv_share>[0-9.]{{1,10}})"
        rf"(?:.{{0,400}}?gen throughput \(token/s\): (?P<generation>[0-9.]{{1,18}}))?"
        rf"(?:.{{0,400}}?#queue-req: (?P<waiting>{_COUNT}))?",
        stats=True,
        tells_preemptions=True,
        phase=SERVING,
    ),
    Row(
        "Prefill batch",
        rf"Prefill batch.{{1,400}}?token usage: (?P<kv_share>[0-9.]{{1,10}}),.{{0,400}}?#running-req: (?P<running>{_COUNT}), "
        rf"#queue-req: (?P<waiting>{_COUNT})",
        stats=True,
        tells_preemptions=True,
        phase=SERVING,
    ),
    Row(
        "#retracted_reqs: ",
        rf"(?:KV cache pool is full|Decode out of memory happened).{{0,400}}?#retracted_reqs: (?P<preemptions>{_COUNT})",
        preempts=True,
    ),
    Row(
        "increase --mem-fraction-static",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        refusal="no_cache_memory",
    ),
    Row(
        "Current value: mem_fraction_static=",
        r"(?P<settings>mem_fraction_static=[0-9.]{1,10})",
        settings=from_call,
    ),
)
