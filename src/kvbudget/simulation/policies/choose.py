"""Another engine's policy on the pool of a budget: its own defaults where the deployment says nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.errors import CannotTell
from kvbudget.facts import policies as facts
from kvbudget.simulation.policies.llamacpp import LlamaCppSettings
from kvbudget.simulation.policies.sglang import SGLangSettings
from kvbudget.simulation.policies.tensorrt_llm import TensorRTLLMSettings

if TYPE_CHECKING:
    from kvbudget.budgeting import Budget
    from kvbudget.deployment import Deployment
    from kvbudget.simulation.policy import OtherSettings
    from kvbudget.simulation.settings import SchedulerSettings


def settings_of(policy: str, b: Budget, pool: SchedulerSettings, *, max_tokens: int = 0) -> OtherSettings:
    """Return what another engine would schedule with if it had vLLM's pool.

    Limits on requests and tokens of a step are those of the deployment where it gives any, else the engine's own; the
    longest request, the tokens of the pool and whether prefixes are kept are those of the budget.

    Args:
        policy: One of `kvbudget.facts.policies.POLICIES`, but not vLLM's.
        b: The budget.
        pool: What vLLM would schedule with.
        max_tokens: Tokens that each request asks for at most; 0 for what it generates.

    Raises:
        CannotTell: The model keeps more than the keys and values of all tokens.
    """
    if len(pool.cache_groups) > 1 or pool.cache_groups[0].kind != "full":
        raise CannotTell(
            "The policies of other engines are known for models whose layers all keep all tokens; simulate this one "
            "with vLLM's.",
            key="policy",
        )
    d = b.deployment
    tokens = pool.usable_blocks * pool.cache_groups[0].block_size
    seats, batched = d.max_num_seqs, d.max_num_batched_tokens
    if policy == facts.SGLANG.policy:
        least, most = facts.RUNNING_REQUESTS
        own = max(least, min(most, tokens * facts.RUNNING_PER_CONTEXT // pool.max_model_len))
        return SGLangSettings(
            max_total_num_tokens=tokens,
            context_length=pool.max_model_len,
            max_running_requests=max(1, min(seats or own, tokens // 2)),
            chunked_prefill_size=batched or facts.chunked_prefill_size(d.card.memory_bytes),
            disable_radix_cache=not pool.enable_prefix_caching,
            max_tokens=max_tokens,
        )
    if policy == facts.LLAMA_CPP.policy:
        split = 1 if seats is None else seats
        part = tokens // split // facts.CELL_PADDING * facts.CELL_PADDING
        return LlamaCppSettings(
            ctx_size=part * split,
            parallel=seats or facts.PARALLEL,
            kv_unified=seats is None,
            n_ctx_train=pool.max_model_len,
            batch_size=batched or facts.N_BATCH,
            ubatch_size=min(facts.N_UBATCH, batched or facts.N_BATCH),
            cache_prompt=pool.enable_prefix_caching,
        )
    return TensorRTLLMSettings(
        num_blocks=tokens // facts.TOKENS_PER_BLOCK,
        max_seq_len=pool.max_model_len,
        max_batch_size=seats or facts.MAX_BATCH_SIZE,
        max_num_tokens=batched or facts.MAX_NUM_TOKENS,
        capacity_scheduler_policy=("GUARANTEED_NO_EVICT" if policy == facts.NO_EVICT.policy else "MAX_UTILIZATION"),
        enable_chunked_prefill=True,
        enable_block_reuse=pool.enable_prefix_caching,
        max_tokens=max_tokens,
    )


def notes_of(chosen: OtherSettings, d: Deployment, *, max_tokens: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what makes the answer less certain, and what nobody said, a sentence each."""
    words = chosen.words
    warnings = (
        (
            f"The policy of {words.engine} was read in its source and not run; the memory is what vLLM would leave for "
            "the cache, until that engine's own is known."
        ),
    )
    assumed = [] if d.max_num_seqs else [f"{words.limit} {chosen.seats:,}, the engine's own (--max-num-seqs)"]
    if not isinstance(chosen, LlamaCppSettings) and not max_tokens:
        assumed.append("each request asks for as many tokens as it generates (--max-tokens)")
    if isinstance(chosen, TensorRTLLMSettings):
        assumed.append("enable_chunked_prefill is on, which trtllm-serve leaves off")
    if isinstance(chosen, LlamaCppSettings):
        assumed.append(
            "the slots share one context (--kv-unified)"
            if chosen.kv_unified
            else f"each slot has its own context of {chosen.n_ctx_seq:,} cells (-np, --max-num-seqs)"
        )
    return warnings, tuple(assumed)
