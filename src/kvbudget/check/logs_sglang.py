"""SGLang's lines; it prints GB and means GiB. Source: sglang 0.5.23, and public logs of older versions."""

from __future__ import annotations

from kvbudget.check.observation import CAPTURING, PROFILING, SERVING
from kvbudget.check.rows import COUNT, GIB_UNIT, Row, from_call

ENGINE = "sglang"

_GB = r"-?[0-9.]{1,18}"

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
    ),
    Row(
        "Load weight end",
        rf"Load weight end\..{{0,400}}?avail mem=(?P<free>{_GB}) GB(?:, mem usage=(?P<weights>{_GB}) GB)?",
        {"weights": ("weights", GIB_UNIT), "free": ("free_after_load", GIB_UNIT)},
        phase=PROFILING,
    ),
    Row(
        "KV Cache is allocated",
        rf"KV Cache is allocated\..{{0,400}}?#tokens: (?P<tokens>[0-9,]{{1,20}}), K size: (?P<k>{_GB}) GB, V size: (?P<v>{_GB}) GB",
        {"tokens": ("kv_cache_size_tokens", COUNT), "k": ("k_cache", GIB_UNIT), "v": ("v_cache", GIB_UNIT)},
        phase=CAPTURING,
    ),
    Row(
        "KV Cache is allocated",
        rf"KV Cache is allocated\..{{0,400}}?#tokens: (?P<tokens>[0-9,]{{1,20}}), KV size: (?P<kv>{_GB}) GB",
        {"tokens": ("kv_cache_size_tokens", COUNT), "kv": ("available_kv_cache_memory", GIB_UNIT)},
        phase=CAPTURING,
    ),
    Row(
        "Capture cuda graph end",
        rf"Capture cuda graph end\..{{0,400}}?mem usage=(?P<graphs>{_GB}) GB",
        {"graphs": ("cuda_graphs", GIB_UNIT)},
        phase=CAPTURING,
    ),
    Row(
        "max_total_num_tokens=",
        r"max_total_num_tokens=(?P<tokens>[0-9]{1,15})\b.{0,400}?context_len=(?P<length>[0-9]{1,15})",
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
        r"Decode batch[.,].{0,400}?#running-req: (?P<running>[0-9]{1,12}),.{0,400}?token usage: (?P<kv_share>[0-9.]{1,10})"
        r"(?:.{0,400}?gen throughput \(token/s\): (?P<generation>[0-9.]{1,18}))?(?:.{0,400}?#queue-req: (?P<waiting>[0-9]{1,12}))?",
        stats=True,
        phase=SERVING,
    ),
    Row(
        "#retracted_reqs: ",
        r"(?:KV cache pool is full|Decode out of memory happened).{0,400}?#retracted_reqs: (?P<preemptions>[0-9]{1,12})",
        preempts=True,
    ),
    Row(
        "increase --mem-fraction-static",
        r"Not enough memory\. Please try to increase --mem-fraction-static",
        refusal="no_cache_memory",
    ),
    Row(
        "mem_fraction_static=",
        r"(?P<settings>mem_fraction_static=[0-9.]{1,10})",
        settings=from_call,
    ),
)
