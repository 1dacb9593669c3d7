"""SGLang's lines; it prints GB and means GiB. Source: sglang 0.5.23, and public logs of older versions."""

from __future__ import annotations

from kvbudget.check.observation import CAPTURING, LOADING, PROFILING, SERVING
from kvbudget.check.rows import COUNT, GIB_UNIT, LARGEST, SUM, Row, from_call
from kvbudget.facts.log_lines import PATTERNS

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
        PATTERNS["sglang_weights"],
        {"weights": ("weights", GIB_UNIT)},
        phase=PROFILING,
        again=SUM,
    ),
    Row(
        " is allocated. dtype: ",
        PATTERNS["sglang_cache"],
        {"tokens": ("kv_cache_size_tokens", COUNT), "k": ("k_cache", GIB_UNIT), "v": ("v_cache", GIB_UNIT)},
        phase=CAPTURING,
        again=SUM,
    ),
    Row(
        " is allocated. dtype: ",
        PATTERNS["sglang_latent_cache"],
        {"tokens": ("kv_cache_size_tokens", COUNT), "k": ("kv_cache", GIB_UNIT)},
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
        PATTERNS["sglang_graphs"],
        {"graphs": ("cuda_graphs", GIB_UNIT)},
        phase=CAPTURING,
        again=SUM,
    ),
    Row(
        "max_total_num_tokens=",
        PATTERNS["sglang_limits"],
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
        PATTERNS["sglang_stats"],
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
        PATTERNS["sglang_retracted"],
        preempts=True,
    ),
    Row(
        "increase --mem-fraction-static",
        PATTERNS["sglang_no_cache_memory"],
        refusal="no_cache_memory",
    ),
    Row(
        "Current value: mem_fraction_static=",
        r"(?P<settings>mem_fraction_static=[0-9.]{1,10})",
        settings=from_call,
    ),
)
