"""vLLM's flags that decide about memory: what each means, its default by version, what it does not cover.

Source: vLLM 0.32 (config/*.py, engine/arg_utils.py), and for the dates the wheels in `kvbudget.facts.vllm`; read 2026-11.
Defaults that the budget itself computes with come from that module, so that they stand once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvbudget.facts import adapters, multimodal, vllm, vllm_cache

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.facts.vllm import BatchDefault, Version

Defaults = tuple[tuple["Version", str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag.

    Attributes:
        name: The field's name; the flag is the same with dashes.
        unit: What its value is.
        meaning: What the engine does with it.
        defaults: (since version, value) as text, oldest first.
        not_covered: What people expect of it and it does not do.
        source: Where the rule stands.
        aliases: Other spellings.
    """

    name: str
    unit: str
    meaning: str
    defaults: Defaults
    not_covered: tuple[str, ...]
    source: str
    aliases: tuple[str, ...] = ()


_ALWAYS: Version = (0, 0, 0)
_SERVER = "server"


def _constant(text: str) -> Defaults:
    return ((_ALWAYS, text),)


def _switch(table: Sequence[tuple[Version, bool]]) -> Defaults:
    return tuple((since, "on" if value else "off") for since, value in table)


def _batch(table: Sequence[tuple[Version, tuple[BatchDefault, ...]]], *, tokens: bool) -> Defaults:
    """Write the defaults by card in one line each: the first row whose condition holds counts."""
    return tuple((since, "; ".join(_by_card(row, tokens=tokens) for row in rows)) for since, rows in table)


def _by_card(row: BatchDefault, *, tokens: bool) -> str:
    value = row.tokens[_SERVER] if tokens else row.seqs
    if not row.smallest_gib:
        return f"{value:,} on others"
    return f"{value:,} on cards of {row.smallest_gib} GiB and more{', not A100' if row.spares_a100 else ''}"


def _new_types() -> Defaults:
    """Write which KV cache types each version brought."""
    found: dict[Version, list[str]] = {}
    for name, since in vllm_cache.KV_SINCE.items():
        found.setdefault(since, []).append(name)
    return tuple((since, ", ".join(names)) for since, names in sorted(found.items()))


FLAGS: tuple[Flag, ...] = (
    Flag(
        name="gpu_memory_utilization",
        unit="fraction of the memory that the driver reports, 0 to 1",
        meaning="The budget of this engine on each GPU: weights, peak activations, CUDA graphs (since 0.20) and the KV cache. "
        "The cache takes all that the rest leaves, however few requests come.",
        defaults=tuple((since, f"{value:g}") for since, value in vllm.UTILIZATION),
        not_covered=(
            "The CUDA context, NCCL's buffers and other processes lie outside: they must fit in what is left over.",
            "It is a fraction of the total, not of what is free; start-up fails if less than that is free.",
            "Before 0.20 the CUDA graphs came out of the rest, not out of the budget.",
            "If the start-up fails for want of cache, raise it; if the engine runs out of memory while serving, lower it.",
        ),
        source="config/cache.py, v1/worker/utils.py request_memory",
    ),
    Flag(
        name="kv_cache_memory_bytes",
        unit="bytes on each GPU",
        meaning="The KV cache itself; gpu_memory_utilization is then ignored.",
        defaults=_constant("not set: what gpu_memory_utilization leaves"),
        not_covered=(
            "Nothing is subtracted for weights or activations, so a figure too large fails while serving, not at start-up.",
            "It exists since 0.10.2; the log of a start proposes values for it.",
        ),
        source="config/cache.py, v1/worker/gpu_worker.py determine_available_memory",
        aliases=("kv_cache_memory",),
    ),
    Flag(
        name="max_model_len",
        unit="tokens of prompt and output together; 32k is 32,000, 32K is 32,768, auto since 0.14.1",
        meaning="The longest request. The engine refuses to start if one request of this length does not fit in the cache.",
        defaults=_constant("the model's own limit; the original length for LongRoPE; 2,048 if the config names none"),
        not_covered=(
            "A smaller value does not make the cache smaller: the pool always fills the budget.",
            "It reserves nothing: a request takes blocks as it grows.",
            "It does not change the activations of V1, which follow max_num_batched_tokens.",
        ),
        source="config/model.py _get_and_verify_max_len, v1/core/kv_cache_utils.py",
    ),
    Flag(
        name="max_num_seqs",
        unit="requests",
        meaning="How many requests may run in one step. The rest wait, even if there is room in the cache.",
        defaults=_batch(vllm.BATCH_DEFAULTS, tokens=False),
        not_covered=(
            "It does not change the size of the cache; it does change the sampler's peak and the CUDA graphs.",
            "It promises no memory: with a full cache requests are preempted below this number.",
            "It is counted for each data-parallel rank.",
        ),
        source="engine/arg_utils.py get_batch_defaults, config/scheduler.py",
    ),
    Flag(
        name="max_num_batched_tokens",
        unit="tokens of one step",
        meaning="How many tokens one step may compute; longer prompts are cut into chunks of it. The peak of the activations "
        "grows with it, and so does what window layers hold while a prompt is read.",
        defaults=_batch(vllm.BATCH_DEFAULTS, tokens=True),
        not_covered=(
            "It is not a limit on the length of a request.",
            "It is capped at max_num_seqs x max_model_len when it is not given.",
        ),
        source="engine/arg_utils.py get_batch_defaults, v1/worker/gpu/model_runner.py profile_run",
    ),
    Flag(
        name="kv_cache_dtype",
        unit="auto, bfloat16, float16, fp8, fp8_e4m3, fp8_e5m2, int8_per_token_head, nvfp4, …; see `kvbudget formats`",
        meaning="How keys and values are stored. auto is the model's own type, or FP8 where the checkpoint brings scales for it.",
        defaults=_constant("auto"),
        not_covered=(
            "It has nothing to do with the weights: a 4-bit checkpoint keeps a 16-bit cache until this is set.",
            "fp8 halves attention's cache exactly; recurrent state and the indexer's keys stay as they are.",
            "The *_per_token_head types add 4 bytes for K and 4 for V to each head and token.",
            "It can change the attention backend, and with it the block size.",
        ),
        source="config/cache.py CacheDType, v1/kv_cache_interface.py",
    ),
    Flag(
        name="block_size",
        unit="tokens",
        meaning="How many tokens a block of the cache holds; a request's last block is partly empty.",
        defaults=_constant(
            "16 where the attention backend takes it, else its smallest (MLA 16 to 64; hybrids hundreds)"
        ),
        not_covered=(
            "It changes the waste of a request (half a block on average), not the bytes of a token.",
            "Hybrids with state layers raise it until attention's page is as large as the state's.",
        ),
        source="platforms/interface.py update_block_size_for_backend",
    ),
    Flag(
        name="num_gpu_blocks_override",
        unit="blocks",
        meaning="The number of cache blocks, whatever the memory; meant for tests of preemption.",
        defaults=_constant("not set"),
        not_covered=("It does not check that the memory is there.",),
        source="config/cache.py, v1/core/kv_cache_utils.py",
    ),
    Flag(
        name="tensor_parallel_size",
        unit="GPUs",
        meaning="Each layer is split over so many GPUs: weights by rows and columns, the cache by KV heads.",
        defaults=_constant("1"),
        not_covered=(
            "It must divide the attention heads.",
            "Above the number of KV heads each head is stored several times: the cache of a GPU shrinks no more.",
            "MLA's latent and the indexer's keys are whole on every GPU (see decode_context_parallel_size).",
        ),
        source="config/model.py get_num_kv_heads, verify_with_parallel_config",
        aliases=("tp",),
    ),
    Flag(
        name="pipeline_parallel_size",
        unit="stages",
        meaning="The layers are split into stages; each GPU holds the weights and the cache of its own.",
        defaults=_constant("1"),
        not_covered=("Stages are not equal: the one with the most layers decides how many blocks all have.",),
        source="distributed/utils.py get_pp_indices",
        aliases=("pp",),
    ),
    Flag(
        name="data_parallel_size",
        unit="replicas",
        meaning="So many engines with their own cache; a request lives in one of them.",
        defaults=_constant("1"),
        not_covered=("The cache of one request is never divided by it.",),
        source="config/parallel.py",
        aliases=("dp",),
    ),
    Flag(
        name="decode_context_parallel_size",
        unit="ranks out of the tensor-parallel ones",
        meaning="The tokens of each request are divided over so many ranks: the way to divide MLA's cache.",
        defaults=_constant("1"),
        not_covered=("It adds no GPUs: it must divide tensor_parallel_size.",),
        source="config/parallel.py",
        aliases=("dcp",),
    ),
    Flag(
        name="enable_expert_parallel",
        unit="switch",
        meaning="Experts are divided whole over the GPUs instead of each by its width.",
        defaults=_constant("off"),
        not_covered=("All experts stay resident: the active ones are what a token uses, not what is loaded.",),
        source="config/parallel.py",
        aliases=("ep",),
    ),
    Flag(
        name="dtype",
        unit="auto, bfloat16, float16, float32",
        meaning="The type of what is not quantized, of the activations, and of the cache under kv_cache_dtype auto.",
        defaults=_constant("auto: the checkpoint's, float32 becomes a 16-bit type"),
        not_covered=("It does not quantize: for that see quantization.",),
        source="config/model.py _resolve_auto_dtype",
    ),
    Flag(
        name="quantization",
        unit="a method: fp8, awq, gptq, bitsandbytes, …",
        meaning="How the weights are stored. It is read from the checkpoint; fp8 and a few others can be done while loading.",
        defaults=_constant("what the checkpoint's config says"),
        not_covered=(
            "GPTQ, AWQ and the like quantize weights alone; the cache has its own flag, kv_cache_dtype.",
            "The memory that smaller weights free goes to the cache, so the GPU looks as full as before.",
            "Embeddings, norms and often the head stay in 16 bits.",
        ),
        source="config/model.py, model_executor/layers/quantization",
    ),
    Flag(
        name="enforce_eager",
        unit="switch",
        meaning="No CUDA graphs and no torch.compile: their memory goes to the cache, and decoding becomes slower.",
        defaults=_constant("off"),
        not_covered=("It changes neither weights nor the cache's bytes a token.",),
        source="config/model.py",
    ),
    Flag(
        name="enable_prefix_caching",
        unit="switch",
        meaning="Finished blocks stay until they are needed, so that the same beginning is not computed again.",
        defaults=tuple(
            (since, f"on; {'on' if value else 'off'} for hybrids with state layers")
            for since, value in vllm_cache.STATE_CACHING_DEFAULT
        ),
        not_covered=(
            "It takes no memory of its own: kept blocks count as free, and kv_cache_usage does not show them.",
            "Hybrids keep two or three state blocks a request instead of one.",
        ),
        source="config/cache.py, v1/core/block_pool.py",
    ),
    Flag(
        name="async_scheduling",
        unit="switch",
        meaning="The next step is scheduled before the last one is done: two batches are in flight.",
        defaults=_switch(vllm.ASYNC_SCHEDULING),
        not_covered=("Window layers hold the tokens in flight too, so it raises what the start-up check asks for.",),
        source="config/vllm.py",
    ),
    Flag(
        name="disable_hybrid_kv_cache_manager",
        unit="switch",
        meaning="Window layers keep all tokens, as if they were full ones, if the model has full ones too.",
        defaults=_constant("off"),
        not_covered=("A model of window layers alone keeps its windows.",),
        source="v1/core/kv_cache_utils.py unify_hybrid_kv_cache_specs",
    ),
    Flag(
        name="scheduler_reserve_full_isl",
        unit="switch",
        meaning="A request is admitted only if its whole prompt fits in free blocks, not its first chunk alone.",
        defaults=((_ALWAYS, "not there: the first chunk decides"), ((0, 19, 0), "on")),
        not_covered=("The output is never reserved: running requests can still be preempted.",),
        source="config/scheduler.py",
    ),
    Flag(
        name="watermark",
        unit="fraction of the blocks, 0 to 1",
        meaning="Blocks that admission leaves free while something runs, against repeated preemption.",
        defaults=((_ALWAYS, "0.01 in V0, not there in V1"), ((0, 24, 0), "0")),
        not_covered=("It does not make the cache larger; it trades waiting for fewer preemptions.",),
        source="config/scheduler.py",
    ),
    Flag(
        name="swap_space",
        unit="GiB of host memory on each GPU",
        meaning="V0 moved the cache of preempted requests to the host. V1 recomputes them and has no swap.",
        defaults=_constant("4 in V0; V1 takes no notice of it, and 0.32 has no such flag"),
        not_covered=("It never added room for running requests.",),
        source="config/cache.py",
    ),
    Flag(
        name="cpu_offload_gb",
        unit="GiB on each GPU",
        meaning="So much of the weights stays in host memory and is read over the bus in every step.",
        defaults=_constant("0"),
        not_covered=("It moves weights, not the cache.", "It costs speed on each token."),
        source="config/offload.py UVAOffloadConfig",
    ),
    Flag(
        name="kv_offloading_size",
        unit="GiB of host memory, all tensor-parallel ranks together",
        meaning="Finished blocks are copied to the host, from where a later request with the same beginning can load them.",
        defaults=_constant("not set; exists since 0.11.2"),
        not_covered=(
            "It does not change the number of GPU blocks: one request of max_model_len must still fit on the GPU.",
        ),
        source="config/cache.py, config/vllm.py",
    ),
    Flag(
        name="speculative_config",
        unit="JSON: method, model, num_speculative_tokens and more",
        meaning="Something proposes tokens that the model then checks: draft layers of the checkpoint (mtp), a head (eagle, eagle3), "
        "a small model (draft_model), or what was said before (ngram, suffix). Its weights and its layers' cache come out "
        "of the same budget.",
        defaults=_constant("not set"),
        not_covered=(
            "A draft's layers keep every token, so each token of a request takes more.",
            "States keep one block more for each proposed token, and windows with several draft layers are longer.",
            "The profile run samples once for each request, not once for each proposed token: leave room on a full card.",
            "ngram and suffix take no memory; with them steps are not scheduled ahead.",
        ),
        source="config/speculative.py, config/vllm.py, v1/worker/gpu/spec_decode/",
        aliases=("sc", "num_speculative_tokens"),
    ),
    Flag(
        name="enable_lora",
        unit="switch",
        meaning="Slots for adapters are taken at start-up: a pair of matrices beside each linear layer of the language model, and "
        "beside the embedding and the head of some classes.",
        defaults=_constant("off"),
        not_covered=(
            "The slots are there whether adapters come or not.",
            "Encoders take no adapters unless enable_tower_connector_lora says so.",
            "CUDA graphs are captured twice, with adapters and without.",
        ),
        source="config/lora.py, lora/model_manager.py",
    ),
    Flag(
        name="max_loras",
        unit="adapters in one batch",
        meaning="So many slots are taken, each as large as max_lora_rank allows.",
        defaults=_constant("1"),
        not_covered=("Adapters beyond it wait in host memory (max_cpu_loras).",),
        source="config/lora.py",
    ),
    Flag(
        name="max_lora_rank",
        unit="rank: " + ", ".join(map(str, adapters.RANKS)),
        meaning="The largest rank that an adapter may have; every slot has room for it.",
        defaults=_constant("16"),
        not_covered=("A smaller adapter leaves the rest of its slot empty.",),
        source="config/lora.py",
    ),
    Flag(
        name="lora_dtype",
        unit="data type: auto, float16, bfloat16",
        meaning="The type of the slots.",
        defaults=_constant("auto: the model's type"),
        not_covered=("Quantized weights do not make the slots smaller.",),
        source="config/lora.py",
    ),
    Flag(
        name="fully_sharded_loras",
        unit="switch",
        meaning="Tensor parallelism divides both matrices of an adapter, not one of them.",
        defaults=_constant("off"),
        not_covered=(
            "The rank must be a multiple of the tensor-parallel size.",
            "Experts cannot have it together with enable_expert_parallel.",
        ),
        source="config/lora.py, lora/layers/",
    ),
    Flag(
        name="limit_mm_per_prompt",
        unit="items of each modality in one prompt, or JSON with count, width, height and more",
        meaning="How many images, videos or audio clips a prompt may have. The profile run fills the encoder's budget of "
        "max_num_batched_tokens with items of the largest size, at most as many as all requests may have.",
        defaults=_constant(f"{multimodal.DEFAULT_LIMIT} for each modality"),
        not_covered=(
            "0 for all modalities of a tower leaves it out of the memory; an image tower that takes videos needs 0 for both.",
            "A small limit rarely makes the profile smaller: many requests with one image each fill the budget too.",
        ),
        source="config/multimodal.py, multimodal/encoder_budget.py, model_executor/models/interfaces.py",
    ),
    Flag(
        name="language_model_only",
        unit="switch",
        meaning="All limits are 0: towers are not loaded and the model runs as a text model.",
        defaults=_constant("off"),
        not_covered=("A few classes load their towers nevertheless.",),
        source="config/multimodal.py",
    ),
    Flag(
        name="skip_mm_profiling",
        unit="switch",
        meaning="The encoder is left out of the profile run, so the cache takes the memory that it would need.",
        defaults=_constant("off"),
        not_covered=("The encoder still needs it: leave room by hand.",),
        source="config/multimodal.py",
    ),
    Flag(
        name="mm_encoder_tp_mode",
        unit="weights or data",
        meaning="weights divides the vision tower over the ranks, data holds it whole on each and divides the images.",
        defaults=_constant("weights"),
        not_covered=("Classes that cannot do it keep dividing the weights.",),
        source="config/multimodal.py",
    ),
)
"""The flags in the order of a launch: memory, lengths, layout, types, scheduling, host memory."""


def find_flag(name: str) -> Flag | None:
    """Return the flag of that name; dashes, underscores and leading dashes do not matter."""
    key = name.strip().lstrip("-").replace("-", "_").lower()
    return next((flag for flag in FLAGS if key == flag.name or key in flag.aliases), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatedRule:
    """One rule of an engine that changed: (since version, what holds) as text, oldest first."""

    name: str
    rows: Defaults
    source: str


RULES: tuple[DatedRule, ...] = (
    DatedRule(
        name="gpu_memory_utilization",
        rows=tuple((since, f"{value:g}") for since, value in vllm.UTILIZATION),
        source="config/cache.py",
    ),
    DatedRule(
        name="the budget is rounded",
        rows=tuple(
            (since, "up to whole bytes" if value else "down to whole bytes") for since, value in vllm.BUDGET_CEIL
        ),
        source="v1/worker/utils.py request_memory",
    ),
    DatedRule(
        name="CUDA graphs",
        rows=tuple(
            (since, "inside the budget" if value else "outside the budget") for since, value in vllm.GRAPHS_IN_BUDGET
        ),
        source="envs.py VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS",
    ),
    DatedRule(
        name="the start-up check",
        rows=tuple(
            (since, "leaves one block out" if value else "takes every block") for since, value in vllm.RESERVE_BLOCK
        ),
        source="v1/core/kv_cache_utils.py",
    ),
    DatedRule(name="async scheduling", rows=_switch(vllm.ASYNC_SCHEDULING), source="config/vllm.py"),
    DatedRule(
        name="max_num_batched_tokens",
        rows=_batch(vllm.BATCH_DEFAULTS, tokens=True),
        source="engine/arg_utils.py get_batch_defaults, vllm serve",
    ),
    DatedRule(
        name="max_num_seqs",
        rows=_batch(vllm.BATCH_DEFAULTS, tokens=False),
        source="engine/arg_utils.py get_batch_defaults",
    ),
    DatedRule(
        name="kv_cache_dtype auto",
        rows=tuple(
            (since, "what the checkpoint declares, else the model's type" if value else "the model's type")
            for since, value in vllm_cache.KV_BY_CHECKPOINT
        ),
        source="utils/torch_utils.py resolve_kv_cache_dtype_string",
    ),
    DatedRule(name="new KV cache types", rows=_new_types(), source="config/cache.py CacheDType"),
    DatedRule(
        name="prefix caching of hybrids",
        rows=_switch(vllm_cache.STATE_CACHING_DEFAULT),
        source="config/model.py is_prefix_caching_supported",
    ),
    DatedRule(
        name="windows beside full attention",
        rows=tuple(
            (since, "kept as windows" if rule.hybrid else "cached in full") for since, rule in vllm_cache.GROUPING[:2]
        ),
        source="v1/core/kv_cache_utils.py",
    ),
)
"""What changed between versions, for `kvbudget engines`."""
