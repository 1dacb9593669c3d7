"""Configs from before the common key names: each function turns one family's spelling into the common one.

A function returns the keys to add, computed from the family's own; nothing else about the config changes. Sources:
the remote-code configuration files that these checkpoints carry, as transformers 5.24 and vLLM 0.32
(transformers_utils/configs/) read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvbudget.facts.architectures import Traits
    from kvbudget.model.config import Config

Legacy = tuple[dict[str, Any], "Traits"]


def _qwen(c: Config, traits: Traits) -> Legacy:
    """Qwen 1 gives twice the width of its gated MLP."""
    return {"intermediate_size": c.dim("intermediate_size", minimum=2) // 2}, traits


def _chatglm(c: Config, traits: Traits) -> Legacy:
    """ChatGLM 2, 3 and GLM-4-9B share KV heads when `multi_query_attention` says so."""
    grouped = c.flag("multi_query_attention")
    heads = c.dim("num_attention_heads")
    if not c.flag("rmsnorm", default=True):
        traits = traits._replace(norm="layer")
    return {"num_key_value_heads": c.count("multi_query_group_num", minimum=1) if grouped else heads}, traits


def _falcon(c: Config, traits: Traits) -> Legacy:
    """Falcon: grouped heads and two norms in the new architecture, one KV head and one norm in the old."""
    heads = c.dim("num_attention_heads")
    new = c.flag("new_decoder_architecture", default=c.has("n_head_kv"))
    if new:
        single = c.integer("num_ln_in_parallel_attn") == 1
        names: tuple[str, ...] = ("input_layernorm",) if single else ("ln_attn", "ln_mlp")
        kv_heads = c.integer("num_kv_heads", "n_head_kv", minimum=1) or heads
    else:
        names = ("input_layernorm",) if c.flag("parallel_attn", default=True) else traits.layer_norms
        kv_heads = 1 if c.flag("multi_query", default=True) else heads
    return {"num_key_value_heads": kv_heads}, traits._replace(layer_norms=names)


def _gpt_bigcode(c: Config, traits: Traits) -> Legacy:
    """GPT-BigCode has one KV head when `multi_query` says so."""
    heads = c.dim("num_attention_heads")
    return {"num_key_value_heads": 1 if c.flag("multi_query", default=True) else heads}, traits


def _mpt(c: Config, traits: Traits) -> Legacy:
    """MPT keeps its KV heads inside `attn_config` and has no biases unless `no_bias` is false."""
    attention = c.sub("attn_config")
    added: dict[str, Any] = {}
    if attention is not None:
        kv_heads = attention.integer("kv_n_heads", minimum=1)
        if kv_heads is None and attention.text("attn_type") == "multiquery_attention":
            kv_heads = 1
        added["num_key_value_heads"] = kv_heads
    if not c.flag("no_bias", default=True):
        traits = traits._replace(norm="layer", qkv_bias=True, out_bias=True, mlp_bias=True)
    return added, traits


def _opt(c: Config, traits: Traits) -> Legacy:
    """OPT-350m has no norm after the last layer."""
    if not c.flag("do_layer_norm_before", default=True):
        traits = traits._replace(final_norm="")
    return {}, traits


def _lfm2(c: Config, traits: Traits) -> Legacy:
    """LFM2 rounds two thirds of its block width up to a multiple (transformers 5.24, lfm2)."""
    width = c.dim("intermediate_size", "block_ff_dim")
    if c.flag("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3)
        width = int(c.number("block_ffn_dim_multiplier", default=1.0) * width)
        multiple = c.integer("block_multiple_of", minimum=1) or 1
        width = -(-width // multiple) * multiple
    return {"intermediate_size": width}, traits


def _nemotron_h(c: Config, traits: Traits) -> Legacy:
    """Nemotron-H 3 names its layer map `layers_block_type` or `hybrid_override_pattern`; shared experts are counted."""
    if not c.has("moe_shared_expert_intermediate_size"):
        return {}, traits
    count = c.integer("n_shared_experts")
    shared = c.count("moe_shared_expert_intermediate_size")
    return {"moe_shared_expert_intermediate_size": shared * (1 if count is None else count)}, traits


def _mimo_v2(c: Config, traits: Traits) -> Legacy:
    """MiMo-V2's window layers have twice the KV heads where the config does not say (transformers 5.24)."""
    if c.has("swa_num_key_value_heads"):
        return {}, traits
    return {
        "swa_num_attention_heads": c.dim("num_attention_heads"),
        "swa_num_key_value_heads": 2 * c.count("num_key_value_heads", minimum=1),
        "swa_head_dim": c.integer("head_dim"),
        "swa_v_head_dim": c.integer("v_head_dim"),
    }, traits


LEGACY: Mapping[str, Callable[[Config, Traits], Legacy]] = {
    "qwen": _qwen,
    "chatglm": _chatglm,
    "falcon": _falcon,
    "RefinedWeb": _falcon,
    "RefinedWebModel": _falcon,
    "gpt_bigcode": _gpt_bigcode,
    "mpt": _mpt,
    "opt": _opt,
    "lfm2": _lfm2,
    "nemotron_h": _nemotron_h,
    "mimo_v2_flash": _mimo_v2,
}


def modernise(model_type: str, c: Config, traits: Traits) -> tuple[Config, Traits]:
    """Return the config with common key names, and the traits that its switches change."""
    added: dict[str, Any] = {
        common: c.data[own] for common, own in traits.aliases.items() if own in c.data and common not in c.data
    }
    defaults = {common: c.defaults[own] for common, own in traits.aliases.items() if own in c.defaults}
    if added or defaults:
        c = c.extended(added, {**c.defaults, **defaults})
    convert = LEGACY.get(model_type)
    if convert is None:
        return c, traits
    more, traits = convert(c, traits)
    return (c.extended(more, c.defaults) if more else c), traits
