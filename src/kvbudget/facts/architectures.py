"""How decoder architectures differ, a row a model type.

A row says which of the common building blocks an architecture uses; every size comes from the config. Where a config
key switches a block on, the row names the key instead of a value. Source of each row, unless it says otherwise:
transformers 5.24, models/<model_type>/modeling_<model_type>.py, read 2026-11-29, and vLLM 0.32,
model_executor/models, for what is loaded but is not a parameter there.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

Switch = bool | str
"""A block is always there, never there, or there if this config key (or the first given of `a|b`) is true."""


class Experts(NamedTuple):
    """How an architecture's mixture of experts is built.

    Attributes:
        number: Spellings of the key with the number of routed experts.
        width: Spellings of the key with an expert's intermediate width.
        shared_width: Key with the width of the one shared expert, if the architecture sizes it so.
        shared_count: Spellings of the key with the number of shared experts, each `width` wide.
        shared_each: Key with the width of each of `shared_count`, if it may differ from `width`.
        shared_gate: A gate vector in front of the shared expert.
        gated: Experts have a gate matrix beside up and down.
        bias: Experts have biases.
        router: Name of the router's module.
        router_bias: The router has a bias.
        router_dtype: A type that vLLM loads the router in whatever the checkpoint says.
        correction: A per-expert correction bias: "" none, "buffer" or "parameter" as transformers counts it.
        correction_if: The config key that switches it on, "" for always.
        latent: Config key of a latent width that the experts work in, behind projections down and up.
        norm: Name of a norm of the mixture's output, "" for none.
        name: Name of the feed-forward module that holds them.
        shared_name: Name of the shared expert's module, relative to the layer.
    """

    number: tuple[str, ...] = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
    width: tuple[str, ...] = ("moe_intermediate_size",)
    shared_width: str = ""
    shared_count: tuple[str, ...] = ()
    shared_each: str = ""
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    router: str = "gate"
    router_bias: Switch = False
    router_dtype: str | None = None
    correction: str = ""
    correction_if: str = ""
    latent: str = ""
    norm: str = ""
    name: str = "mlp"
    shared_name: str = "mlp.shared_experts"


class Traits(NamedTuple):
    """Which blocks a decoder architecture uses.

    Attributes:
        attention: "softmax", "mla", or "none" for a model that has state layers only.
        norm: "rms" (a scale), "layer" (scale and shift), "scale" (layer norm without shift), "none" (no parameters).
        layer_norms: Names of the norms of one layer, each over the hidden size.
        parallel_norm_key: Config key that, when true, drops all but the first layer norm.
        final_norm: Name of the norm after the last layer, "" for none.
        qk_norm: "head" (one scale over a head), "full" (over all heads' width), "per_head" (a scale for each head).
        qk_norm_if: Config key that switches `qk_norm` on.
        qk_norm_shift: The norm of queries and keys has a shift.
        qkv_bias, out_bias, mlp_bias: Biases of the projections.
        gated: The MLP has a gate matrix beside up and down.
        mlp_width: Spellings of the key with the MLP's width.
        mlp_multiple: The width as a multiple of the hidden size when no key gives it, 0 to refuse.
        tied: The output head is the input embedding unless the config says otherwise; for architectures without a row
            in `class_defaults`, whose row decides.
        head_bias: The output head has a bias.
        activation_parameters: Learned values of the activation function in each MLP.
        embedding_norm: Name of a norm after the embedding, "" for none.
        positions: Key of the number of learned positions, "" for none, and how many rows are added.
        narrow_embedding: The embedding may be narrower than the layers (`word_embed_proj_dim`), with a projection each way.
        shares_kv_if: Config key that lets every `cla_share_factor` layers share one cache, "" for never.
        output_gate: "" none, "query" (the query projection is twice as wide), "full" (a projection to all heads'
            width), "heads" (a projection to one value a head).
        output_gate_if: Config key that switches the gate on, "" for always.
        sinks: A learned sink value a head: "" never, "all" layers, "window" layers only, or the config key of each.
        window_period: Every so many layers one is global, the rest have the window; 0 for all with the window.
        global_first: The first layer of each period is the global one, not the last.
        window_period_key: Spellings of the key with that period.
        chunk_key: Config key of the tokens of a local chunk; layers without rotary positions see all tokens.
        state: The mixer of layers that keep a recurrent state ("mamba2", "gated_delta_net", …).
        parallel_state: Every layer has attention and a state side by side.
        mtp_layers: How many multi-token-prediction layers a checkpoint has where its config does not say.
        mtp_copies: Multi-token-prediction layers are stored with copies of the embedding and the output head, which
            engines share with the base model.
        experts: The mixture of experts, or None for an architecture without.
        special: Its layers follow no common plan: `kvbudget.model.special` builds them.
        prefix: Module path of the decoder, for exclusion lists of quantized checkpoints.
        block: Name of the layer list under `prefix`.
    """

    attention: str = "softmax"
    norm: str = "rms"
    layer_norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm")
    parallel_norm_key: str = ""
    final_norm: str = "norm"
    qk_norm: str = ""
    qk_norm_if: str = ""
    qk_norm_shift: bool = False
    qkv_bias: Switch = False
    out_bias: Switch = False
    mlp_bias: Switch = False
    gated: bool = True
    mlp_width: tuple[str, ...] = ("intermediate_size",)
    mlp_multiple: int = 0
    tied: bool = False
    head_bias: Switch = False
    activation_parameters: int = 0
    embedding_norm: str = ""
    positions: str = ""
    position_offset: int = 0
    narrow_embedding: bool = False
    shares_kv_if: str = ""
    output_gate: str = ""
    sinks: str = ""
    output_gate_if: str = ""
    window_period: int = 0
    global_first: bool = False
    window_period_key: tuple[str, ...] = ()
    chunk_key: str = ""
    state: str = ""
    parallel_state: bool = False
    mtp_layers: int = 0
    mtp_copies: bool = False
    experts: Experts | None = None
    aliases: Mapping[str, str] = MappingProxyType({})
    special: bool = False
    prefix: str = "model"
    block: str = "layers"


SANDWICH = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
POST_ONLY = ("post_attention_layernorm", "post_feedforward_layernorm")
ONE = ("input_layernorm",)

_DEEPSEEK = Experts(shared_count=("n_shared_experts",), correction="buffer", correction_if="topk_method=noaux_tc")

_SIGMOID = Experts(shared_count=("n_shared_experts", "num_shared_experts"), correction="buffer")

_SIGMOID_FLOAT = Experts(
    shared_count=("n_shared_experts", "num_shared_experts"), correction="buffer", router_dtype="float32"
)

_QWEN = Experts(shared_width="shared_expert_intermediate_size", shared_gate=True, shared_name="mlp.shared_expert")

_GPT2_KEYS = MappingProxyType(
    {
        "hidden_size": "n_embd",
        "num_hidden_layers": "n_layer",
        "num_attention_heads": "n_head",
        "max_position_embeddings": "n_positions",
        "intermediate_size": "n_inner",
    }
)

_FALCON = Traits(
    norm="layer",
    final_norm="ln_f",
    qkv_bias="bias",
    out_bias="bias",
    mlp_bias="bias",
    gated=False,
    mlp_width=("ffn_hidden_size", "intermediate_size"),
    mlp_multiple=4,
    aliases=MappingProxyType({"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"}),
    prefix="transformer",
    block="h",
)

TRAITS: Mapping[str, Traits] = MappingProxyType(
    {
        # -- pre-norm, RMS, gated MLP: the Llama shape and its variants
        "llama": Traits(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
        "mistral": Traits(),
        "ministral": Traits(),
        "ministral3": Traits(),
        "mixtral": Traits(
            experts=Experts(number=("num_local_experts",), width=("intermediate_size",), name="block_sparse_moe")
        ),
        "qwen2": Traits(qkv_bias=True),
        "qwen2_moe": Traits(qkv_bias="qkv_bias", experts=_QWEN),
        "qwen3": Traits(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head"),
        "qwen3_moe": Traits(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", experts=Experts()),
        "qwen3_next": Traits(
            mtp_layers=1,
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            output_gate="query",
            state="gated_delta_net",
            experts=_QWEN,
        ),
        "qwen3_5_text": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            output_gate="query",
            state="gated_delta_net_split",
        ),
        "qwen3_5_moe_text": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            output_gate="query",
            state="gated_delta_net_split",
            experts=_QWEN,
        ),
        "gemma": Traits(qkv_bias="attention_bias", out_bias="attention_bias"),
        "gemma2": Traits(
            layer_norms=SANDWICH,
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            window_period=2,
        ),
        "gemma3_text": Traits(
            layer_norms=SANDWICH,
            qk_norm="head",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            window_period=6,
            window_period_key=("sliding_window_pattern", "_sliding_window_pattern"),
        ),
        "vaultgemma": Traits(
            layer_norms=("input_layernorm", "pre_feedforward_layernorm"),
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            window_period=2,
        ),
        "phi3": Traits(),
        "phi": Traits(
            norm="layer",
            layer_norms=ONE,
            final_norm="final_layernorm",
            qk_norm="head",
            qk_norm_if="qk_layernorm",
            qk_norm_shift=True,
            qkv_bias=True,
            out_bias=True,
            mlp_bias=True,
            gated=False,
            head_bias=True,
        ),
        "phimoe": Traits(
            norm="layer",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            head_bias="lm_head_bias",
            experts=Experts(number=("num_local_experts",), width=("intermediate_size",), name="block_sparse_moe"),
        ),
        "cohere": Traits(
            norm="scale",
            layer_norms=ONE,
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="per_head",
            qk_norm_if="use_qk_norm",
        ),
        "cohere2": Traits(
            norm="scale",
            layer_norms=ONE,
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            window_period=4,
            window_period_key=("sliding_window_pattern", "_sliding_window_pattern"),
        ),
        "olmo": Traits(norm="none", qkv_bias="attention_bias", out_bias="attention_bias"),
        "olmo2": Traits(layer_norms=POST_ONLY, qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="full"),
        "olmo3": Traits(
            layer_norms=POST_ONLY,
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="full",
            window_period=4,
        ),
        "olmoe": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="full",
            experts=Experts(number=("num_experts",), width=("intermediate_size",)),
        ),
        "flex_olmo": Traits(
            layer_norms=POST_ONLY,
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="full",
            experts=Experts(number=("num_experts",), width=("intermediate_size",)),
        ),
        "granite": Traits(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
        "granitemoe": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            experts=Experts(
                number=("num_local_experts",),
                width=("intermediate_size",),
                router="router.layer",
                name="block_sparse_moe",
            ),
        ),
        "granitemoeshared": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            experts=Experts(
                number=("num_local_experts",),
                width=("intermediate_size",),
                shared_width="shared_intermediate_size",
                router="router.layer",
                name="block_sparse_moe",
                shared_name="shared_mlp",
            ),
        ),
        "granitemoehybrid": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            state="mamba2",
            experts=Experts(
                number=("num_local_experts",),
                width=("intermediate_size",),
                shared_width="shared_intermediate_size",
                router="router.layer",
                name="block_sparse_moe",
                shared_name="shared_mlp",
            ),
        ),
        "stablelm": Traits(
            norm="layer",
            qkv_bias="use_qkv_bias",
            qk_norm="per_head",
            qk_norm_if="qk_layernorm",
            parallel_norm_key="use_parallel_residual",
        ),
        "starcoder2": Traits(
            norm="layer",
            qkv_bias="use_bias",
            out_bias="use_bias",
            mlp_bias="use_bias",
            gated=False,
        ),
        "arcee": Traits(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias", gated=False),
        "nemotron": Traits(
            norm="layer",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
            gated=False,
        ),
        "exaone4": Traits(
            layer_norms=POST_ONLY,
            qk_norm="head",
            window_period=4,
            window_period_key=("sliding_window_pattern",),
        ),
        "seed_oss": Traits(qkv_bias="attention_bias", out_bias="attention_out_bias", mlp_bias="mlp_bias"),
        "smollm3": Traits(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
        "helium": Traits(qkv_bias="attention_bias", mlp_bias="mlp_bias"),
        "glm": Traits(qkv_bias="attention_bias"),
        "glm4": Traits(
            qkv_bias="attention_bias",
            layer_norms=(
                "input_layernorm",
                "post_self_attn_layernorm",
                "post_attention_layernorm",
                "post_mlp_layernorm",
            ),
        ),
        "ernie4_5": Traits(qkv_bias="use_bias", out_bias="use_bias", mlp_bias="use_bias"),
        "hunyuan_v1_dense": Traits(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head"),
        "apertus": Traits(
            layer_norms=("attention_layernorm", "feedforward_layernorm"),
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
            gated=False,
            activation_parameters=2,
            qk_norm="head",
        ),
        "cwm": Traits(mlp_bias="mlp_bias", window_period=4, global_first=True),
        "exaone": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
            aliases=MappingProxyType({"num_hidden_layers": "num_layers"}),
            prefix="transformer",
            block="h",
        ),
        "hyperclovax": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
            layer_norms=("input_layernorm", "post_attention_layernorm", "post_norm1", "post_norm2"),
        ),
        "iquestcoder": Traits(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias"),
        "granite_swa": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
            sinks="all",
            window_period=4,
            global_first=True,
        ),
        "jais2": Traits(
            norm="layer",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
            gated=False,
        ),
        # -- mixtures of experts on that shape
        "gpt_oss": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            sinks="all",
            window_period=2,
            experts=Experts(
                number=("num_local_experts",),
                width=("intermediate_size",),
                bias=True,
                router="router",
                router_bias=True,
            ),
        ),
        "minimax_m2": Traits(
            qk_norm="full",
            experts=Experts(
                number=("num_local_experts",),
                width=("intermediate_size",),
                router_dtype="float32",
                correction="buffer",
                name="block_sparse_moe",
            ),
        ),
        "ernie4_5_moe": Traits(
            qkv_bias="use_bias",
            out_bias="use_bias",
            mlp_bias="use_bias",
            experts=Experts(
                number=("moe_num_experts",),
                shared_count=("moe_num_shared_experts",),
                router_dtype="float32",
                correction="parameter",
            ),
        ),
        "hunyuan_v1_moe": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            experts=Experts(
                number=("num_experts",),
                width=("moe_intermediate_size", "intermediate_size"),
                shared_width="intermediate_size",
                router="gate.wg",
                shared_name="mlp.shared_mlp",
            ),
        ),
        "hunyuan": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            qk_norm_if="use_qk_norm",
            tied=True,
            shares_kv_if="use_cla",
            experts=Experts(
                number=("num_experts",),
                width=("moe_intermediate_size", "intermediate_size"),
                shared_count=("num_shared_expert",),
                router="gate.wg",
                shared_name="mlp.shared_mlp",
            ),
        ),
        "afmoe": Traits(
            qk_norm="head",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            output_gate="full",
            layer_norms=(
                "input_layernorm",
                "post_attention_layernorm",
                "pre_mlp_layernorm",
                "post_mlp_layernorm",
            ),
            window_period=4,
            window_period_key=("global_attn_every_n_layers",),
            experts=Experts(
                number=("num_experts",),
                shared_count=("num_shared_experts",),
                router="router.gate",
                correction="parameter",
            ),
        ),
        "dots1": Traits(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", experts=_SIGMOID),
        "glm4_moe": Traits(
            mtp_copies=True,
            qkv_bias="attention_bias",
            qk_norm="head",
            qk_norm_if="use_qk_norm",
            experts=_SIGMOID_FLOAT,
        ),
        "solar_open": Traits(qkv_bias="attention_bias", experts=_SIGMOID),
        "deepseek": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            experts=Experts(number=("n_routed_experts",), shared_count=("n_shared_experts",)),
        ),
        "exaone_moe": Traits(
            qk_norm="head",
            window_period=4,
            window_period_key=("sliding_window_pattern",),
            experts=Experts(number=("num_experts",), shared_count=("num_shared_experts",), correction="buffer"),
        ),
        "mimo": Traits(qkv_bias=True),
        "mimo_v2_flash": Traits(
            qkv_bias="attention_bias",
            sinks="window",
            experts=Experts(
                number=("n_routed_experts",),
                shared_count=("n_shared_experts",),
                router_dtype="float32",
                correction="buffer",
            ),
        ),
        "minicpm": Traits(tied=True, experts=Experts(number=("num_experts",), width=("intermediate_size",))),
        "llama4_text": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            chunk_key="attention_chunk_size",
            window_period=4,
            mlp_width=("intermediate_size_mlp", "intermediate_size"),
            experts=Experts(
                number=("num_local_experts",),
                width=("intermediate_size",),
                shared_width="intermediate_size",
                router="router",
                name="feed_forward",
                shared_name="feed_forward.shared_expert",
            ),
        ),
        "cohere2_moe": Traits(
            norm="scale",
            layer_norms=ONE,
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            window_period=4,
            window_period_key=("sliding_window_pattern", "_sliding_window_pattern"),
            experts=Experts(
                number=("num_experts",), width=("intermediate_size",), shared_count=("num_shared_experts",)
            ),
        ),
        "granitemoe_swa": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            sinks="all",
            window_period=4,
            global_first=True,
            experts=Experts(
                number=("num_local_experts",),
                width=("intermediate_size",),
                shared_width="shared_intermediate_size",
                router="router.layer",
                name="block_sparse_moe",
                shared_name="shared_mlp",
            ),
        ),
        "hy_v3": Traits(qkv_bias="attention_bias", out_bias="attention_bias", qk_norm="head", experts=_SIGMOID),
        "laguna": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            output_gate="heads",
            output_gate_if="gating",
            window_period=1,
            experts=Experts(
                number=("num_experts",),
                shared_width="shared_expert_intermediate_size",
                correction="parameter",
            ),
        ),
        "mellum": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            window_period=1,
            experts=Experts(number=("num_local_experts", "num_experts")),
        ),
        "sarvam_moe": Traits(
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            qk_norm="head",
            qk_norm_if="use_qk_norm",
            experts=_SIGMOID,
        ),
        "bailing_moe": Traits(
            qkv_bias="use_qkv_bias",
            out_bias="use_bias",
            mlp_bias="use_bias",
            qk_norm="head",
            qk_norm_if="use_qk_norm",
            experts=Experts(
                number=("num_experts",),
                shared_count=("num_shared_experts",),
                shared_each="moe_shared_expert_intermediate_size",
                correction="buffer",
                correction_if="moe_router_enable_expert_bias",
            ),
        ),
        # -- multi-head latent attention
        "deepseek_v2": Traits(
            mlp_bias="mlp_bias",
            attention="mla",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            experts=_DEEPSEEK,
        ),
        "deepseek_v3": Traits(
            mtp_copies=True,
            attention="mla",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            experts=_SIGMOID,
        ),
        "deepseek_v32": Traits(
            mtp_copies=True,
            attention="mla",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            experts=_SIGMOID,
        ),
        "glm_moe_dsa": Traits(attention="mla", qkv_bias="attention_bias", out_bias="attention_bias", experts=_SIGMOID),
        "glm4_moe_lite": Traits(
            attention="mla", qkv_bias="attention_bias", out_bias="attention_bias", experts=_SIGMOID
        ),
        "minicpm3": Traits(qkv_bias="attention_bias", out_bias="attention_bias", mlp_bias="mlp_bias", attention="mla"),
        "sarvam_mla": Traits(attention="mla", qkv_bias="attention_bias", out_bias="attention_bias", experts=_SIGMOID),
        "axk1": Traits(
            attention="mla",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            experts=Experts(shared_count=("n_shared_experts",), correction="buffer", norm="post_mlp_layernorm"),
        ),
        "mistral4": Traits(
            attention="mla",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            experts=Experts(number=("n_routed_experts", "num_experts"), shared_count=("n_shared_experts",)),
        ),
        "youtu": Traits(attention="mla", qkv_bias="attention_bias", out_bias="attention_bias"),
        # -- hybrids with recurrent state (mixers in kvbudget.model.mixers)
        "jamba": Traits(
            state="mamba1",
            layer_norms=("input_layernorm", "pre_ff_layernorm"),
            final_norm="final_layernorm",
            experts=Experts(number=("num_experts",), width=("intermediate_size",), router="router"),
        ),
        "bamba": Traits(
            state="mamba2",
            layer_norms=("input_layernorm", "pre_ff_layernorm"),
            final_norm="final_layernorm",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
        ),
        "falcon_h1": Traits(
            state="mamba2",
            parallel_state=True,
            layer_norms=("input_layernorm", "pre_ff_layernorm"),
            final_norm="final_layernorm",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
        ),
        "lfm2": Traits(
            state="short_conv",
            layer_norms=("operator_norm", "ffn_norm"),
            final_norm="embedding_norm",
            qk_norm="head",
            mlp_width=("intermediate_size", "block_ff_dim"),
        ),
        "lfm2_moe": Traits(
            state="short_conv",
            layer_norms=("operator_norm", "ffn_norm"),
            final_norm="embedding_norm",
            qk_norm="head",
            experts=Experts(
                number=("num_experts",),
                correction="buffer",
                correction_if="use_expert_bias",
                name="feed_forward",
            ),
        ),
        "minimax": Traits(
            state="lightning",
            experts=Experts(number=("num_local_experts",), width=("intermediate_size",), name="block_sparse_moe"),
        ),
        "kimi_linear": Traits(
            special=True,
            attention="mla",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            state="kda",
            experts=Experts(
                number=("num_experts",),
                shared_count=("num_shared_experts",),
                correction="buffer",
                name="block_sparse_moe",
                shared_name="block_sparse_moe.shared_experts",
            ),
        ),
        "nemotron_h": Traits(
            state="mamba2",
            norm="rms",
            layer_norms=("norm",),
            final_norm="norm_f",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias="mlp_bias",
            gated=False,
            experts=Experts(
                number=("n_routed_experts",),
                shared_width="moe_shared_expert_intermediate_size",
                gated=False,
                latent="moe_latent_size",
                correction="buffer",
                name="mixer",
                shared_name="mixer.shared_experts",
            ),
            prefix="backbone",
        ),
        "mamba": Traits(
            attention="none",
            state="mamba1",
            layer_norms=("norm",),
            final_norm="norm_f",
            prefix="backbone",
        ),
        "falcon_mamba": Traits(
            attention="none",
            state="mamba1",
            layer_norms=("norm",),
            final_norm="norm_f",
            prefix="backbone",
        ),
        "mamba2": Traits(
            attention="none",
            state="mamba2",
            layer_norms=("norm",),
            final_norm="norm_f",
            prefix="backbone",
        ),
        # -- layer norm, plain MLP: the GPT shape and its variants
        "gpt2": Traits(
            norm="layer",
            layer_norms=("ln_1", "ln_2"),
            final_norm="ln_f",
            qkv_bias=True,
            out_bias=True,
            mlp_bias=True,
            gated=False,
            mlp_width=("n_inner", "intermediate_size"),
            mlp_multiple=4,
            positions="max_position_embeddings",
            aliases=_GPT2_KEYS,
            prefix="transformer",
            block="h",
        ),
        "gpt_bigcode": Traits(
            norm="layer",
            layer_norms=("ln_1", "ln_2"),
            final_norm="ln_f",
            qkv_bias=True,
            out_bias=True,
            mlp_bias=True,
            gated=False,
            mlp_width=("n_inner", "intermediate_size"),
            mlp_multiple=4,
            positions="max_position_embeddings",
            aliases=_GPT2_KEYS,
            prefix="transformer",
            block="h",
        ),
        "gptj": Traits(
            norm="layer",
            layer_norms=("ln_1",),
            final_norm="ln_f",
            mlp_bias=True,
            gated=False,
            mlp_width=("n_inner", "intermediate_size"),
            mlp_multiple=4,
            head_bias=True,
            aliases=_GPT2_KEYS,
            prefix="transformer",
            block="h",
        ),
        "gpt_neox": Traits(
            norm="layer",
            final_norm="final_layer_norm",
            qkv_bias="attention_bias",
            out_bias="attention_bias",
            mlp_bias=True,
            gated=False,
            prefix="gpt_neox",
        ),
        "opt": Traits(
            norm="layer",
            layer_norms=("self_attn_layer_norm", "final_layer_norm"),
            final_norm="final_layer_norm",
            qkv_bias="enable_bias",
            out_bias="enable_bias",
            mlp_bias="enable_bias",
            gated=False,
            mlp_width=("ffn_dim",),
            positions="max_position_embeddings",
            position_offset=2,
            narrow_embedding=True,
            prefix="model.decoder",
        ),
        "bloom": Traits(
            norm="layer",
            final_norm="ln_f",
            embedding_norm="word_embeddings_layernorm",
            qkv_bias=True,
            out_bias=True,
            mlp_bias=True,
            gated=False,
            mlp_multiple=4,
            aliases=MappingProxyType(
                {
                    "hidden_size": "n_embed",
                    "num_hidden_layers": "n_layer",
                    "num_attention_heads": "n_head",
                    "max_position_embeddings": "seq_length",
                }
            ),
            prefix="transformer",
            block="h",
        ),
        "mpt": Traits(
            norm="scale",
            layer_norms=("norm_1", "norm_2"),
            final_norm="norm_f",
            gated=False,
            mlp_multiple=4,
            mlp_width=(),
            aliases=MappingProxyType(
                {
                    "hidden_size": "d_model",
                    "num_hidden_layers": "n_layers",
                    "num_attention_heads": "n_heads",
                    "max_position_embeddings": "max_seq_len",
                }
            ),
            prefix="transformer",
            block="blocks",
        ),
        "persimmon": Traits(
            norm="layer",
            final_norm="final_layernorm",
            qkv_bias=True,
            out_bias=True,
            mlp_bias=True,
            gated=False,
            qk_norm="head",
            qk_norm_if="qk_layernorm",
            qk_norm_shift=True,
        ),
        "falcon": _FALCON,
        "RefinedWeb": _FALCON,
        "RefinedWebModel": _FALCON,
        # -- layers that follow no common plan (kvbudget.model.special): what stands around them
        "gemma3n_text": Traits(special=True),
        "gemma4_text": Traits(special=True, experts=Experts(number=("num_experts",))),
        "deepseek_v4": Traits(special=True, experts=_SIGMOID),
        "deepseek_ref": Traits(special=True, experts=_SIGMOID),
        "minimax_m3": Traits(special=True, experts=_SIGMOID),
        "minimax_m3_vl_text": Traits(special=True, experts=_SIGMOID),
        "step3p5": Traits(special=True, experts=Experts(number=("moe_num_experts", "num_experts", "n_routed_experts"))),
        "nemotron-nas": Traits(special=True),
        "openelm": Traits(
            special=True,
            aliases=MappingProxyType(
                {
                    "hidden_size": "model_dim",
                    "num_hidden_layers": "num_transformer_layers",
                    "max_position_embeddings": "max_context_length",
                    "tie_word_embeddings": "share_input_output_layers",
                }
            ),
            prefix="transformer",
        ),
        "longcat_flash": Traits(special=True, experts=Experts(number=("n_routed_experts",))),
        "zamba2": Traits(special=True, final_norm="final_layernorm"),
        "recurrent_gemma": Traits(special=True, final_norm="final_norm"),
        # -- remote-code architectures that are served under their own names
        "baichuan": Traits(),
        "orion": Traits(norm="layer"),
        "internlm": Traits(qkv_bias="bias", out_bias="bias"),
        "internlm2": Traits(qkv_bias="bias", out_bias="bias"),
        "internlm3": Traits(
            qkv_bias="qkv_bias|attention_bias", out_bias="bias|attention_bias", mlp_bias="bias|mlp_bias"
        ),
        "PanguEmbedded": Traits(qkv_bias="bias", out_bias="bias"),
        "qwen": Traits(
            qkv_bias=True,
            layer_norms=("ln_1", "ln_2"),
            final_norm="ln_f",
            prefix="transformer",
            block="h",
        ),
        "chatglm": Traits(
            qkv_bias="add_qkv_bias",
            out_bias="add_bias_linear",
            mlp_bias="add_bias_linear",
            final_norm="encoder.final_layernorm",
            mlp_width=("ffn_hidden_size",),
            aliases=MappingProxyType(
                {
                    "num_hidden_layers": "num_layers",
                    "vocab_size": "padded_vocab_size",
                    "head_dim": "kv_channels",
                    "max_position_embeddings": "seq_length",
                    "intermediate_size": "ffn_hidden_size",
                }
            ),
            prefix="transformer",
        ),
        "phi-msft": Traits(
            norm="layer",
            layer_norms=ONE,
            final_norm="final_layernorm",
            qkv_bias=True,
            out_bias=True,
            mlp_bias=True,
            gated=False,
            mlp_width=("n_inner", "intermediate_size"),
            mlp_multiple=4,
            head_bias=True,
            aliases=_GPT2_KEYS,
        ),
    }
)
"""Model type -> traits. `model_type` is the key of Hugging Face configs; nested text configs have their own."""


STATED_LENGTH = frozenset({"gemma3", "gemma3_text", "gemma3n", "gemma3n_text"})
"""Model types whose `max_position_embeddings` is the scaled length, whatever their rope settings say (vllm/config/model.py,
_get_and_verify_max_len, 0.32)."""

SAME_AS: Mapping[str, str] = MappingProxyType(
    {
        "step3p7_text": "step3p5",
        "mixformer-sequential": "phi-msft",
        "Yi": "llama",
        "stablelm_epoch": "stablelm",
        "kimi_k2": "deepseek_v3",
        "bailing_moe_v2": "bailing_moe",
        "bidir_mistral": "mistral",
        "xverse": "llama",
        "aquila": "llama",
        "phi4": "phi3",
        "gpt_neox_reward_model": "gpt_neox",
        "qwen2_vl_text": "qwen2",
        "qwen2_5_vl_text": "qwen2",
        "qwen3_vl_text": "qwen3",
        "qwen3_vl_moe_text": "qwen3_moe",
        "glm4v_text": "glm4",
        "glm4v_moe_text": "glm4_moe",
    }
)
"""Model types that are another one under a different name, of provably the same shape."""


TEXT_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "gemma3": "gemma3_text",
        "gemma3n": "gemma3n_text",
        "gemma4": "gemma4_text",
        "gemma4_unified": "gemma4_text",
        "qwen2_vl": "qwen2",
        "qwen2_5_vl": "qwen2",
        "qwen3_vl": "qwen3",
        "qwen3_vl_moe": "qwen3_moe",
        "qwen3_5": "qwen3_5_text",
        "qwen3_5_moe": "qwen3_5_moe_text",
        "llama4": "llama4_text",
        "llava": "llama",
        "mistral3": "mistral",
        "minimax_m3_vl": "minimax_m3_vl_text",
        "mllama": "mllama_text_model",
        "fuyu": "persimmon",
        "glm4v": "glm4",
        "glm4v_moe": "glm4_moe",
        "kimi_k25": "deepseek_v3",
        "kimi_vl": "deepseek_v3",
        "logics": "qwen3",
        "minicpmv": "minicpm",
        "step3p7": "step3p5",
        "paligemma": "gemma",
        "internvl": "qwen2",
        "nvembed": "mistral",
        "phi3_v": "phi3",
        "phi4mm": "phi3",
        "smolvlm": "llama",
        "idefics3": "llama",
        "aya_vision": "cohere2",
        "cohere2_vision": "cohere2",
    }
)
"""Multimodal model type -> the type of its language model when the nested config does not name one."""


ARCHITECTURE_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "Qwen2VLForConditionalGeneration": "qwen2_vl",
        "Qwen2_5VLForConditionalGeneration": "qwen2_5_vl",
        "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl",
        "Qwen3VLForConditionalGeneration": "qwen3_vl",
        "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe",
        "Gemma3ForConditionalGeneration": "gemma3",
        "LlavaForConditionalGeneration": "llava",
        "Qwen2ForCausalLM": "qwen2",
        "Qwen3ForCausalLM": "qwen3",
        "LlamaForCausalLM": "llama",
        "LLaMAForCausalLM": "llama",
        "MistralForCausalLM": "mistral",
        "MixtralForCausalLM": "mixtral",
        "InternLM2ForCausalLM": "internlm2",
        "MiniCPM4ForCausalLM": "minicpm",
        "MiniCPMForCausalLM": "minicpm",
        "GemmaForCausalLM": "gemma",
        "Gemma2ForCausalLM": "gemma2",
        "Gemma3ForCausalLM": "gemma3_text",
        "Gemma3nForCausalLM": "gemma3n_text",
        "Gemma4ForCausalLM": "gemma4_text",
        "Llama4ForCausalLM": "llama4_text",
        "Qwen3MoeForCausalLM": "qwen3_moe",
        "Qwen3_5ForCausalLM": "qwen3_5_text",
        "Qwen3_5MoeForCausalLM": "qwen3_5_moe_text",
        "Phi3ForCausalLM": "phi3",
        "DeepseekV3ForCausalLM": "deepseek_v3",
        "DeepseekV2ForCausalLM": "deepseek_v2",
        "GPT2LMHeadModel": "gpt2",
        "GPTNeoXForCausalLM": "gpt_neox",
        "OPTForCausalLM": "opt",
    }
)
"""Class name -> model type, for configs that leave `model_type` out."""
