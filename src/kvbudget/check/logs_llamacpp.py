"""llama.cpp's lines; llama-server prints them with `-lv 4` alone.

Source: llama.cpp of 2026-10, and public logs back to 2024 (`llm_load_tensors`, `llama_new_context_with_model`).
"""

from __future__ import annotations

from kvbudget.check.observation import CAPTURING, PROFILING, SERVING
from kvbudget.check.rows import COUNT, MIB_UNIT, SUM, Row, from_call
from kvbudget.facts.log_lines import PATTERNS

ENGINE = "llama.cpp"

_MIB = r"[0-9.]{1,18}"


def _mib(term: str) -> dict[str, tuple[str, str]]:
    return {"size": (term, MIB_UNIT)}


ROWS: tuple[Row, ...] = (
    Row("build: ", r"\bbuild: (?P<version>[0-9]{1,7}) \(", starts="server"),
    Row(
        "buffer size =",
        PATTERNS["llamacpp_weights"],
        _mib("weights"),
        phase=PROFILING,
        per_device=True,
        again=SUM,
    ),
    Row(
        "KV buffer size =",
        PATTERNS["llamacpp_cache"],
        _mib("kv_cache"),
        phase=CAPTURING,
        per_device=True,
        again=SUM,
    ),
    Row(
        "RS buffer size =",
        PATTERNS["llamacpp_state"],
        _mib("state"),
        phase=CAPTURING,
        per_device=True,
        again=SUM,
    ),
    Row(
        "compute buffer size =",
        PATTERNS["llamacpp_compute"],
        _mib("compute_buffer"),
        phase=CAPTURING,
        per_device=True,
    ),
    Row(
        "output buffer size =",
        PATTERNS["llamacpp_output"],
        _mib("output_buffer"),
        per_device=True,
    ),
    Row(
        "using device ",
        rf"using device (?P<device>\S{{1,60}})\s+\(.*\)\s+-\s+(?P<size>{_MIB}) MiB free",
        _mib("free_at_start"),
        per_device=True,
    ),
    Row(
        "n_ctx ",
        r"(?:llama_context|llama_init_from_model|llama_new_context_with_model): n_ctx\s+= (?P<tokens>[0-9]{1,12})",
        {"tokens": ("kv_cache_size_tokens", COUNT)},
    ),
    Row(
        "n_ctx_per_seq",
        r"n_ctx_per_seq\s+= (?P<length>[0-9]{1,12})",
        {"length": ("max_model_len", COUNT)},
    ),
    Row(
        "n_ctx_seq",
        r"n_ctx_seq\s+= (?P<length>[0-9]{1,12})",
        {"length": ("max_model_len", COUNT)},
    ),
    Row(
        "n_ctx_slot = ",
        r"n_ctx_slot = (?P<length>[0-9]{1,12})",
        {"length": ("max_model_len", COUNT)},
    ),
    Row(
        " cells,",
        PATTERNS["llamacpp_cells"],
        {"cells": ("cells", COUNT), "slots": ("slots", COUNT)},
        phase=CAPTURING,
    ),
    Row("general.name", r"general\.name\s+(?:str\s+)?= (?P<model>[^\r\n]{1,200})"),
    Row("server is listening", r"server is listening on", phase=SERVING),
    Row(
        "n_parallel",
        r"(?P<settings>n_parallel = [0-9]{1,6})",
        settings=lambda text: from_call(text.replace(" = ", "=")),
    ),
    Row(
        "failed to find free space in the KV cache",
        r"failed to find free space in the KV cache",
        preempts=True,  # the batch is split and tried again; where that does not help, a request ends
    ),
    Row("out of memory", r"ggml\w*: .{0,200}out of memory|cudaMalloc failed: out of memory", refusal="out_of_memory"),
    Row("OutOfDeviceMemory", r"ErrorOutOfDeviceMemory", refusal="out_of_memory"),
    Row("unable to allocate", r"unable to allocate \S{1,60} buffer", refusal="out_of_memory"),
    Row(
        "failed to allocate",
        r"failed to allocate (?:\S{1,40} ){0,2}buffers?\b",
        refusal="out_of_memory",
    ),
)
