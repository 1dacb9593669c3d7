"""What other engines schedule with where nobody says otherwise, and what their words for it are.

Read in the sources in November 2026, not run:
SGLang 0.5.23 (python/sglang/srt: environ.py, arg_groups/fields/schedule.py, arg_groups/memory_hook.py,
mem_cache/kv_cache_configurator.py);
TensorRT-LLM (tensorrt_llm/llmapi/llm_args.py; _torch/pyexecutor/scheduler/scheduler.py at 002f3cc3d055;
cpp/tensorrt_llm/batch_manager/capacityScheduler.cpp at 02a10fed0dbf, kvCacheManager.cpp);
llama.cpp (tools/server/server-context.cpp at 001d906a6d86, server-queue.cpp at 0b42458e1017, common/common.h).
"""

from __future__ import annotations

from typing import NamedTuple


class Words(NamedTuple):
    """How an engine's policy is spoken of.

    Attributes:
        policy: The name that `--policy` takes.
        engine: The engine and the version that was read.
        unit: What its pool is counted in.
        held: What a request loses that must wait again.
        limit: Its name for the most requests that run at a time.
        loss: Its word for a request that loses its memory and waits again, in the singular.
        verb: The same for a report's first line.
    """

    policy: str
    engine: str
    unit: str
    held: str
    limit: str
    loss: str
    verb: str


VLLM = Words("vllm", "vLLM", "blocks", "blocks", "max_num_seqs", "preemption", "PREEMPTS")
SGLANG = Words("sglang", "SGLang 0.5.23", "pages", "cache", "max_running_requests", "retraction", "RETRACTS")
NO_EVICT = Words(
    "tensorrt-llm-no-evict",
    "TensorRT-LLM (GUARANTEED_NO_EVICT)",
    "blocks",
    "blocks",
    "max_batch_size",
    "pause",
    "PAUSES",
)
MAX_UTILIZATION = NO_EVICT._replace(policy="tensorrt-llm-max-utilization", engine="TensorRT-LLM (MAX_UTILIZATION)")
LLAMA_CPP = Words("llama.cpp", "llama.cpp", "cells", "cache", "parallel", "preemption", "PREEMPTS")

POLICIES = (VLLM, SGLANG, NO_EVICT, MAX_UTILIZATION, LLAMA_CPP)

# -- SGLang

INIT_NEW_TOKEN_RATIO = 0.7
"""The share of the tokens that running requests may still generate for which admission keeps room
(SGLANG_INIT_NEW_TOKEN_RATIO), times --schedule-conservativeness."""
MIN_NEW_TOKEN_RATIO_FACTOR = 0.14
"""How far it falls (SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR)."""
NEW_TOKEN_RATIO_DECAY_STEPS = 600
"""Decoding steps in which it does (SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS)."""
RETRACT_DECODE_STEPS = 20
"""Decoding steps for which a retraction makes room (SGLANG_RETRACT_DECODE_STEPS)."""
CLIP_MAX_NEW_TOKENS = 4096
"""Tokens to generate beyond which no room is kept (SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION)."""
MAX_PREFILL_TOKENS = 16384
"""Prompt tokens of a batch (--max-prefill-tokens)."""
INPUT_RESERVE = 5
"""Tokens that the longest prompt stays below the longest request (tp_worker.py)."""
RUNNING_REQUESTS = (2048, 4096)
"""Least and most of --max-running-requests where nobody gives it (resolve_max_num_reqs)."""
RUNNING_PER_CONTEXT = 512
"""Between the two, requests for each context length that the pool holds."""

_MIB = 1024**2
CHUNKED_PREFILL_SIZES = (
    (20 * 1024 * _MIB, 2048),
    (60 * 1024 * _MIB, 4096),
    (160 * 1024 * _MIB, 8192),
)
"""(bytes of the card below which it holds, --chunked-prefill-size)."""
LARGEST_CHUNKED_PREFILL_SIZE = 16384
"""The same for larger cards."""


def chunked_prefill_size(memory_bytes: int) -> int:
    """Return SGLang's --chunked-prefill-size for a card with so much memory."""
    for below, size in CHUNKED_PREFILL_SIZES:
        if memory_bytes < below:
            return size
    return LARGEST_CHUNKED_PREFILL_SIZE


# -- TensorRT-LLM

MAX_BATCH_SIZE = 2048
"""Requests of a batch (--max_batch_size)."""
MAX_NUM_TOKENS = 8192
"""Tokens of a batch (--max_num_tokens)."""
TOKENS_PER_BLOCK = 32
"""Tokens of a block (KvCacheConfig)."""

# -- llama.cpp

PARALLEL = 4
"""Slots of a server that was not told how many (-np -1), which then share one cache (--kv-unified)."""
N_BATCH = 2048
"""Tokens that a round takes (-b)."""
N_UBATCH = 512
"""Tokens that the device computes at once (-ub)."""
SLOT_PROMPT_SIMILARITY = 0.1
"""The share of a prompt that must stand in a slot for the slot to be chosen for it (--slot-prompt-similarity)."""
CELL_PADDING = 256
"""Cells of which a context is a multiple (llama_context)."""
