"""Mixers that keep a recurrent state: Mamba, gated delta nets, linear attention, convolutions.

Weights are those of transformers 5.24 (models/*/modeling_*.py), named as checkpoints name them. States are
those that vLLM 0.32 keeps (vllm/model_executor/layers/mamba/mamba_utils.py, MambaStateShapeCalculator and
MambaStateDtypeCalculator): a convolution keeps one column less than its kernel.

Known difference: vLLM pads the fused input projection of a full-rank KDA to 16 rows a rank, at most 15 rows a
layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING

from kvbudget.errors import CannotTell, InputError
from kvbudget.model.build import convolution, linear, vector
from kvbudget.model.shapes import Group, RecurrentState, Split, StateTensor, Weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kvbudget.model.config import Config
    from kvbudget.model.shapes import Cache

STATE_DTYPE_BYTES: Mapping[str, int] = MappingProxyType({"float32": 4, "bfloat16": 2, "float16": 2})
"""Types a state may be kept in, with their bytes (vllm/config/cache.py, MambaDType, 0.32)."""

DT_RANK_DIVISOR = 16
"""Mamba's `dt_rank: auto` is the hidden size over this, rounded up (transformers 5.24,
configuration_mamba.py)."""

MAX_KERNEL = 1 << 10
MAX_HEADS = 1 << 20


@dataclass(frozen=True, slots=True)
class Mixer:
    """What one mixer keeps for a request and what it loads, named relative to its layer."""

    caches: tuple[Cache, ...]
    weights: tuple[Weight, ...]


def state_bytes(
    state: RecurrentState,
    model_dtype_bytes: int,
    tensor_parallel_size: int = 1,
    num_speculative_tokens: int = 0,
) -> int:
    """Return the bytes of one request's state in one layer on one GPU, padding to a page not included.

    The split axis of each tensor is divided by the ranks. The groups of Mamba-2 (`StateTensor.groups`) are divided if
    they divide; a single group is copied to every rank.

    Args:
        state: The state of one layer.
        model_dtype_bytes: Bytes a value of the type that the model runs in.
        tensor_parallel_size: Tensor-parallel ranks.
        num_speculative_tokens: Tokens that a draft proposes in a step; each adds a column to a convolution's state.

    Raises:
        InputError: The state does not divide over so many ranks, which vLLM refuses too.

    Source: vllm/model_executor/layers/mamba/mamba_utils.py, extra_groups_for_head_shards, and v1/kv_cache_interface.py,
    MambaSpec.state_content_size_bytes, 0.32.
    """
    columns = 0 if state.kind in FIXED_COLUMNS else num_speculative_tokens
    return sum(_tensor_bytes(tensor, model_dtype_bytes, tensor_parallel_size, columns) for tensor in state.tensors)


FIXED_COLUMNS = frozenset({"mamba1", "rg_lru"})
"""Mixers whose convolution keeps no column for a speculative token (MambaStateShapeCalculator.mamba1_state_shape)."""


def _tensor_bytes(tensor: StateTensor, model_dtype_bytes: int, ranks: int, more_columns: int) -> int:
    width = STATE_DTYPE_BYTES[tensor.dtype] if tensor.dtype else model_dtype_bytes
    values = prod(tensor.shape)
    if tensor.split == 1:  # a convolution's state: columns x channels
        values += more_columns * tensor.shape[1]
    if tensor.groups == 1:
        return values * width
    parts = tensor.groups or tensor.shape[tensor.split]
    if parts % ranks:
        raise InputError(
            f"--tensor-parallel-size {ranks}: a state of {parts} {'groups' if tensor.groups else 'heads or channels'} "
            f"cannot be split by {ranks}; choose a size that divides it, or split the layers with "
            "--pipeline-parallel-size."
        )
    return values // ranks * width


def _state_dtype(c: Config, key: str, default: str | None = None) -> str | None:
    """Return the type that the config pins the state to, None for the model's own."""
    value = c.text(key) or default
    if value in (None, "auto"):
        return None
    if value not in STATE_DTYPE_BYTES:
        raise InputError(
            f"{c.name(key)} must be auto or one of {', '.join(STATE_DTYPE_BYTES)}, found {value[:40]!r}; "
            "check the config."
        )
    return value


def _decay(name: str, size: int, columns: int = 1) -> Weight:
    """Return A_log, which vLLM keeps in float32 whatever the checkpoint says."""
    return Weight(name, Group.STATE, size, columns, split=Split.COLUMN, dtype="float32")


# -- Mamba


def mamba1(c: Config) -> Mixer:
    """Return a Mamba mixer: states (kernel - 1, width) and (width, state size), width = expand x hidden size.

    Jamba spells its keys with ``mamba_``, calls the module ``mamba`` and has norms over dt, B and C; Mamba
    and FalconMamba (whose norms have no weights) call it ``mixer``. Source: transformers 5.24, models/jamba,
    models/mamba, models/falcon_mamba; vllm/model_executor/layers/mamba/mamba_mixer.py, 0.32 (A in float32).

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    jamba = _spelled(c, "mamba_d_state")
    name = "mamba" if jamba else "mixer"
    hidden = c.dim("hidden_size", "d_model")
    width = c.count("mamba_expand" if jamba else "expand", minimum=1) * hidden
    state = c.count("mamba_d_state" if jamba else "state_size", minimum=1)
    kernel = c.count("mamba_d_conv" if jamba else "conv_kernel", minimum=1, maximum=MAX_KERNEL)
    rank = _dt_rank(c, "mamba_dt_rank" if jamba else "time_step_rank", hidden)
    bias = c.flag("mamba_proj_bias" if jamba else "use_bias")
    conv_bias = c.flag("mamba_conv_bias" if jamba else "use_conv_bias", default=True)
    group = Group.STATE
    weights = [
        linear(f"{name}.in_proj", group, hidden, 2 * width, bias=bias, split=Split.COLUMN),
        convolution(f"{name}.conv1d", group, width, 1, kernel, bias=conv_bias, split=Split.COLUMN),
        linear(f"{name}.x_proj", group, width, rank + 2 * state, split=Split.ROW),
        linear(f"{name}.dt_proj", group, rank, width, bias=True, split=Split.COLUMN),
        _decay(f"{name}.A_log", width, state),
        vector(f"{name}.D", width, group=group, split=Split.COLUMN),
        linear(f"{name}.out_proj", group, width, hidden, bias=bias, split=Split.ROW),
    ]
    if jamba:
        weights += [
            vector(f"{name}.dt_layernorm", rank),
            vector(f"{name}.b_layernorm", state),
            vector(f"{name}.c_layernorm", state),
        ]
    tensors = (
        StateTensor(shape=(kernel - 1, width), split=1),
        StateTensor(shape=(width, state), split=0),
    )
    return Mixer((RecurrentState(kind="mamba1", tensors=tensors),), tuple(weights))


def _spelled(c: Config, key: str) -> bool:
    """Whether the config or its class knows `key`, which tells families with the same mixer apart."""
    return key in c.data or key in c.defaults


def _dt_rank(c: Config, key: str, hidden: int) -> int:
    value = c.raw(key)
    if value == "auto":
        return -(-hidden // DT_RANK_DIVISOR)
    return c.count(key, minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mamba2Keys:
    """How one family spells the sizes of its Mamba-2 mixer; earlier spellings win over later ones.

    Args:
        family: The key that only this family's configs have.
        name: Name of the module.
        heads, head_dim, state, groups, kernel: Keys of the sizes; no `head_dim` means width / heads.
        width: Key of the width, which may be null; then, or without one, it is expand x hidden size.
        expand: Key of the expansion.
        conv_bias: Key that switches the convolution's bias, "" if it always has one.
        bias: Key of the biases of both projections.
        out_bias: Key of the output projection's bias where it is another one.
        norm: Key that switches the gated norm, "" if it is always there.
        dtype: Key of the type of the state and its default; "" if the engine does not read one.
    """

    family: str
    name: str
    heads: str
    head_dim: str = ""
    state: tuple[str, ...]
    groups: tuple[str, ...]
    kernel: tuple[str, ...]
    width: str = ""
    expand: str = ""
    conv_bias: tuple[str, ...] = ()
    bias: str
    out_bias: str = ""
    norm: str = ""
    dtype: tuple[str, str | None] = ("", None)


_BAMBA_KEYS = {
    "name": "mamba",
    "heads": "mamba_n_heads",
    "head_dim": "mamba_d_head",
    "state": ("mamba_d_state",),
    "groups": ("mamba_n_groups",),
    "kernel": ("mamba_d_conv",),
    "expand": "mamba_expand",
    "conv_bias": ("mamba_conv_bias",),
    "bias": "mamba_proj_bias",
}

MAMBA2_KEYS: tuple[Mamba2Keys, ...] = (
    # transformers 5.24, models/falcon_h1: a width of its own, an optional norm
    Mamba2Keys(
        family="mamba_d_ssm",
        width="mamba_d_ssm",
        out_bias="projectors_bias",
        norm="mamba_rms_norm",
        **_BAMBA_KEYS,  # type: ignore[arg-type]
    ),
    # models/bamba, models/granitemoehybrid
    Mamba2Keys(family="mamba_n_heads", **_BAMBA_KEYS),  # type: ignore[arg-type]
    # models/nemotron_h; the type of its state: vllm/model_executor/models/config.py,
    # NemotronHForCausalLMConfig
    Mamba2Keys(
        family="mamba_num_heads",
        name="mixer",
        heads="mamba_num_heads",
        head_dim="mamba_head_dim",
        state=("ssm_state_size",),
        groups=("mamba_n_groups", "n_groups"),
        kernel=("mamba_d_conv", "conv_kernel"),
        conv_bias=("mamba_conv_bias", "use_conv_bias"),
        bias="use_bias",
        dtype=("mamba_ssm_cache_dtype", "float32"),
    ),
    # models/zamba2
    Mamba2Keys(
        family="n_mamba_heads",
        name="mamba",
        heads="n_mamba_heads",
        state=("mamba_d_state",),
        groups=("mamba_ngroups",),
        kernel=("mamba_d_conv",),
        expand="mamba_expand",
        bias="add_bias_linear",
    ),
    # models/mamba2
    Mamba2Keys(
        family="num_heads",
        name="mixer",
        heads="num_heads",
        head_dim="head_dim",
        state=("state_size",),
        groups=("n_groups",),
        kernel=("conv_kernel",),
        expand="expand",
        conv_bias=("use_conv_bias",),
        bias="use_bias",
    ),
)
"""Spellings of the Mamba-2 families; the first whose own key is known to the config or its class is used."""


def mamba2(c: Config, *, name: str = "") -> Mixer:
    """Return a Mamba-2 mixer.

    States: (kernel - 1, width + 2 x groups x state size) and (heads, head dim, state size).

    The convolution's state and the projections that feed it come in two parts, one divided by heads and one
    by groups, because tensor parallelism copies a single group to every rank. Source: transformers 5.24, the
    models that `MAMBA2_KEYS` names; vllm/model_executor/layers/mamba/mamba_mixer2.py, 0.32 (A in float32).

    Args:
        c: The text config.
        name: Name of the module, by default the family's.

    Raises:
        CannotTell: A key is missing, or no family spells its keys like this config.
        InputError: A key is broken or two contradict each other.
    """
    keys = next((row for row in MAMBA2_KEYS if _spelled(c, row.family)), None)
    if keys is None:
        raise CannotTell(
            f"{c.name('mamba_num_heads')} is missing, so the state of the Mamba-2 layers is unknown; "
            "add it to the config.",
            key=c.name("mamba_num_heads"),
        )
    name = name or keys.name
    hidden = c.dim("hidden_size")
    heads = c.dim(keys.heads, maximum=MAX_HEADS)
    head_dim = _mamba2_head_dim(c, keys, heads, hidden)
    width = heads * head_dim
    state = c.dim(*keys.state) if not keys.expand else c.count(*keys.state, minimum=1)
    groups = c.count(*keys.groups, minimum=1, maximum=MAX_HEADS)
    if heads % groups:
        raise InputError(f"{c.name(keys.groups[-1])} {groups} does not divide {keys.heads} {heads}; check the config.")
    kernel = c.count(*keys.kernel, minimum=1, maximum=MAX_KERNEL)
    conv_bias = c.flag(*keys.conv_bias, default=True) if keys.conv_bias else True
    bias = c.flag(keys.bias)
    out_bias = c.flag(keys.out_bias) if keys.out_bias else bias
    shared = 2 * groups * state
    group = Group.STATE
    weights = [
        linear(f"{name}.in_proj", group, hidden, 2 * width + heads, bias=bias, split=Split.COLUMN),
        linear(f"{name}.in_proj", group, hidden, shared, bias=bias, split=Split.KV, heads=groups),
        convolution(f"{name}.conv1d", group, width, 1, kernel, bias=conv_bias, split=Split.COLUMN),
        Weight(
            f"{name}.conv1d",
            group,
            shared,
            kernel,
            bias=shared if conv_bias else 0,
            split=Split.KV,
            heads=groups,
        ),
        vector(f"{name}.dt_bias", heads, group=group, split=Split.COLUMN),
        _decay(f"{name}.A_log", heads),
        vector(f"{name}.D", heads, group=group, split=Split.COLUMN),
        linear(f"{name}.out_proj", group, width, hidden, bias=out_bias, split=Split.ROW),
    ]
    if not keys.norm or c.flag(keys.norm):
        weights.append(vector(f"{name}.norm", width, split=Split.COLUMN))
    key, default = keys.dtype
    tensors = (
        StateTensor(shape=(kernel - 1, width), split=1),
        StateTensor(shape=(kernel - 1, shared), split=1, groups=groups),
        StateTensor(shape=(heads, head_dim, state), split=0, dtype=_state_dtype(c, key, default) if key else None),
    )
    return Mixer((RecurrentState(kind="mamba2", tensors=tensors),), tuple(weights))


def _mamba2_head_dim(c: Config, keys: Mamba2Keys, heads: int, hidden: int) -> int:
    """Return the width of a head: what the config says, or the mixer's width over its heads.

    Raises:
        InputError: The two contradict each other, which the classes refuse as well (validate_architecture).
    """
    explicit = c.raw(keys.head_dim) if keys.head_dim else None
    if not keys.expand:
        return c.dim(keys.head_dim)
    width = c.integer(keys.width, minimum=1) if keys.width else None
    if width is None:
        width = c.count(keys.expand, minimum=1) * hidden
    head_dim = width // heads if explicit in (None, "auto") else c.checked(explicit, keys.head_dim, minimum=1)
    if head_dim * heads != width:
        raise InputError(
            f"{c.name(keys.heads)} {heads} heads of {head_dim} do not make a width of {width}; check the config."
        )
    return head_dim


# -- gated delta nets


def gated_delta_net(c: Config) -> Mixer:
    """Return Qwen3-Next's gated delta net, whose input projections are fused.

    States: (kernel - 1, 2 x key width + value width) and (value heads, value head dim, key head dim). Source:
    transformers 5.24, models/qwen3_next; vllm/model_executor/layers/mamba/gdn/qwen_gdn_linear_attn.py, 0.32
    (A_log in float32). The type of the state is `mamba_ssm_dtype` if the config has it (models/config.py,
    Qwen3_5ForConditionalGenerationConfig), else the model's own.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    key_heads, key_dim, value_heads, value_dim = _delta_sizes(c)
    keys, values = key_heads * key_dim, value_heads * value_dim
    return _delta_net(
        c,
        (("in_proj_qkvz", 2 * keys + 2 * values), ("in_proj_ba", 2 * value_heads)),
        name="linear_attn",
        out="out_proj",
        norm="norm",
    )


def gated_delta_net_split(c: Config) -> Mixer:
    """Return Qwen3.5's gated delta net: the same as `gated_delta_net` with separate projections."""
    key_heads, key_dim, value_heads, value_dim = _delta_sizes(c)
    keys, values = key_heads * key_dim, value_heads * value_dim
    return _delta_net(
        c,
        (
            ("in_proj_qkv", 2 * keys + values),
            ("in_proj_z", values),
            ("in_proj_b", value_heads),
            ("in_proj_a", value_heads),
        ),
        name="linear_attn",
        out="out_proj",
        norm="norm",
    )


def gated_delta_net_olmo(c: Config) -> Mixer:
    """Return OLMo Hybrid's gated delta net: one projection each for q, k, v, a, b and the gate.

    Source: transformers 5.24, models/olmo_hybrid;
    vllm/model_executor/layers/mamba/gdn/olmo_gdn_linear_attn.py, 0.32.
    """
    key_heads, key_dim, value_heads, value_dim = _delta_sizes(c)
    keys, values = key_heads * key_dim, value_heads * value_dim
    return _delta_net(
        c,
        (
            ("q_proj", keys),
            ("k_proj", keys),
            ("v_proj", values),
            ("a_proj", value_heads),
            ("b_proj", value_heads),
            ("g_proj", values),
        ),
        name="linear_attn",
        out="o_proj",
        norm="o_norm",
    )


def _delta_sizes(c: Config) -> tuple[int, int, int, int]:
    """Return (key heads, key head dim, value heads, value head dim)."""
    key_heads = c.dim("linear_num_key_heads", maximum=MAX_HEADS)
    value_heads = c.dim("linear_num_value_heads", maximum=MAX_HEADS)
    if value_heads % key_heads:
        raise InputError(
            f"{c.name('linear_num_key_heads')} {key_heads} does not divide linear_num_value_heads "
            f"{value_heads}; check the config."
        )
    return key_heads, c.dim("linear_key_head_dim"), value_heads, c.dim("linear_value_head_dim")


def _delta_net(c: Config, projections: tuple[tuple[str, int], ...], *, name: str, out: str, norm: str) -> Mixer:
    key_heads, key_dim, value_heads, value_dim = _delta_sizes(c)
    hidden, values = c.dim("hidden_size"), value_heads * value_dim
    channels = 2 * key_heads * key_dim + values
    kernel = c.count("linear_conv_kernel_dim", minimum=1, maximum=MAX_KERNEL)
    group = Group.STATE
    weights = (
        *(linear(f"{name}.{part}", group, hidden, width, split=Split.COLUMN) for part, width in projections),
        convolution(f"{name}.conv1d", group, channels, 1, kernel, split=Split.COLUMN),
        vector(f"{name}.dt_bias", value_heads, group=group, split=Split.COLUMN),
        _decay(f"{name}.A_log", value_heads),
        vector(f"{name}.{norm}", value_dim),
        linear(f"{name}.{out}", group, values, hidden, split=Split.ROW),
    )
    tensors = (
        StateTensor(shape=(kernel - 1, channels), split=1),
        StateTensor(shape=(value_heads, value_dim, key_dim), split=0, dtype=_state_dtype(c, "mamba_ssm_dtype")),
    )
    return Mixer((RecurrentState(kind="gated_delta_net", tensors=tensors),), weights)


def kda(c: Config) -> Mixer:
    """Return Kimi's delta attention (KDA).

    States: (kernel - 1, 3 x heads x head dim) and (heads, head dim, head dim). The sizes stand in
    ``linear_attn_config``, or under transformers' flat names. The output gate is a pair of low-rank
    projections, or one matrix with `use_full_rank_gate`. vLLM keeps the recurrent state, the convolutions,
    A_log and dt_bias in float32. Source: transformers 5.24, models/kimi_linear;
    vllm/model_executor/layers/mamba/gdn/kimi_gdn_linear_attn.py and vllm/models/kimi_k3/nvidia/kda.py, 0.32.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    sizes = c.sub("linear_attn_config")
    if sizes is None:
        heads, head_dim = c.dim("linear_num_heads", maximum=MAX_HEADS), c.dim("linear_head_dim")
        kernel = c.count("linear_conv_kernel_dim", minimum=1, maximum=MAX_KERNEL)
        full_rank = False
    else:
        heads, head_dim = sizes.dim("num_heads", maximum=MAX_HEADS), sizes.dim("head_dim")
        kernel = sizes.dim("short_conv_kernel_size", maximum=MAX_KERNEL)
        full_rank = sizes.flag("use_full_rank_gate")
    name, group, hidden, width = "self_attn", Group.STATE, c.dim("hidden_size"), heads * head_dim
    column = Split.COLUMN
    weights = [linear(f"{name}.{part}_proj", group, hidden, width, split=column) for part in "qkv"]
    weights += [Weight(f"{name}.{part}_conv1d", group, width, kernel, split=column, dtype="float32") for part in "qkv"]
    weights += [
        linear(f"{name}.f_a_proj", group, hidden, head_dim),
        linear(f"{name}.f_b_proj", group, head_dim, width, split=column),
        linear(f"{name}.b_proj", group, hidden, heads, split=column),
        vector(f"{name}.dt_bias", width, group=group, split=column, dtype="float32"),
        _decay(f"{name}.A_log", heads),
    ]
    if full_rank:
        weights.append(linear(f"{name}.g_proj", group, hidden, width, split=column))
    else:
        weights += [
            linear(f"{name}.g_a_proj", group, hidden, head_dim),
            linear(f"{name}.g_b_proj", group, head_dim, width, split=column),
        ]
    weights += [
        vector(f"{name}.o_norm", head_dim),
        linear(f"{name}.o_proj", group, width, hidden, split=Split.ROW),
    ]
    tensors = (
        StateTensor(shape=(kernel - 1, 3 * width), split=1),
        StateTensor(shape=(heads, head_dim, head_dim), split=0, dtype="float32"),
    )
    return Mixer((RecurrentState(kind="kda", tensors=tensors),), tuple(weights))


# -- linear attention, convolutions, linear recurrences


def lightning(c: Config) -> Mixer:
    """Return MiniMax's lightning attention: a state of (heads, head dim, head dim) in the model's own type.

    Source: transformers 5.24, models/minimax, MiniMaxLightningAttention;
    vllm/model_executor/layers/mamba/linear/minimax_linear_attn.py, 0.32.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    name, group = "self_attn", Group.STATE
    hidden, width = c.dim("hidden_size"), _linear_attention_width(c)
    weights = (
        linear(f"{name}.qkv_proj", group, hidden, 3 * width, split=Split.COLUMN),
        linear(f"{name}.output_gate", group, hidden, width, split=Split.COLUMN),
        linear(f"{name}.out_proj", group, width, hidden, split=Split.ROW),
        vector(f"{name}.norm", width, split=Split.COLUMN),
    )
    return Mixer((_linear_attention_state(c, "lightning"),), weights)


def bailing_linear(c: Config) -> Mixer:
    """Return Ling's linear attention: the state of `lightning`, fused q, k and v, a grouped norm.

    Source: vllm/model_executor/layers/mamba/linear/bailing_linear_attn.py, BailingMoELinearAttention, 0.32.
    """
    name, group = "attention", Group.STATE
    hidden, width = c.dim("hidden_size"), _linear_attention_width(c)
    heads = c.dim("num_attention_heads", maximum=MAX_HEADS)
    bias = c.flag("use_bias")
    weights = [
        linear(
            f"{name}.query_key_value",
            group,
            hidden,
            3 * width,
            bias=bias or c.flag("use_qkv_bias"),
            split=Split.COLUMN,
        ),
        linear(f"{name}.g_proj", group, hidden, width, split=Split.COLUMN),
        linear(f"{name}.dense", group, width, hidden, bias=bias, split=Split.ROW),
        vector(f"{name}.g_norm", width, split=Split.COLUMN),
    ]
    if c.flag("use_qk_norm"):
        weights += [vector(f"{name}.{part}_layernorm", width // heads) for part in ("query", "key")]
    return Mixer((_linear_attention_state(c, "linear_attention"),), tuple(weights))


def _linear_attention_width(c: Config) -> int:
    heads = c.dim("num_attention_heads", maximum=MAX_HEADS)
    head_dim = c.integer("head_dim", minimum=1)
    return heads * head_dim if head_dim else c.dim("hidden_size") // heads * heads


def _linear_attention_state(c: Config, kind: str) -> RecurrentState:
    heads = c.dim("num_attention_heads", maximum=MAX_HEADS)
    head_dim = _linear_attention_width(c) // heads
    return RecurrentState(kind=kind, tensors=(StateTensor(shape=(heads, head_dim, head_dim), split=0),))


def short_conv(c: Config) -> Mixer:
    """Return LFM2's gated short convolution: a state of (kernel - 1, hidden size).

    Source: transformers 5.24, models/lfm2, Lfm2ShortConv; vllm/model_executor/layers/mamba/short_conv.py,
    0.32.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    name, group, hidden = "conv", Group.STATE, c.dim("hidden_size")
    kernel = c.count("conv_L_cache", minimum=1, maximum=MAX_KERNEL)
    bias = c.flag("conv_bias")
    weights = (
        linear(f"{name}.in_proj", group, hidden, 3 * hidden, bias=bias, split=Split.COLUMN),
        convolution(f"{name}.conv", group, hidden, 1, kernel, bias=bias, split=Split.COLUMN),
        linear(f"{name}.out_proj", group, hidden, hidden, bias=bias, split=Split.ROW),
    )
    state = RecurrentState(kind="short_conv", tensors=(StateTensor(shape=(kernel - 1, hidden), split=1),))
    return Mixer((state,), weights)


def rg_lru(c: Config) -> Mixer:
    """Return RecurrentGemma's recurrent block: states (width) in float32 and (kernel - 1, width).

    vLLM 0.32 does not serve it; weights and states are those of transformers 5.24, models/recurrent_gemma.

    Raises:
        CannotTell: A key is missing.
        InputError: A key is broken.
    """
    name, group, hidden = "temporal_block", Group.STATE, c.dim("hidden_size")
    heads = c.dim("num_attention_heads", maximum=MAX_HEADS)
    width = c.integer("lru_width", minimum=1) or hidden
    if width % heads:
        raise InputError(
            f"{c.name('lru_width')} {width} is not a multiple of num_attention_heads {heads}; check the config."
        )
    block = width // heads
    kernel = c.count("conv1d_width", minimum=1, maximum=MAX_KERNEL)
    gates = ("input_gate", "recurrent_gate")
    weights = (
        linear(f"{name}.linear_y", group, hidden, width, bias=True, split=Split.COLUMN),
        linear(f"{name}.linear_x", group, hidden, width, bias=True, split=Split.COLUMN),
        linear(f"{name}.linear_out", group, width, hidden, bias=True, split=Split.ROW),
        convolution(f"{name}.conv_1d", group, width, 1, kernel, bias=True, split=Split.COLUMN),
        vector(f"{name}.rg_lru.recurrent_param", width, group=group, split=Split.COLUMN),
        *(
            Weight(f"{name}.rg_lru.{gate}", group, heads * block, block, bias=heads * block, split=Split.COLUMN)
            for gate in gates
        ),
    )
    tensors = (
        StateTensor(shape=(kernel - 1, width), split=1),
        StateTensor(shape=(width,), split=0, dtype="float32"),
    )
    return Mixer((RecurrentState(kind="rg_lru", tensors=tensors),), weights)


MIXERS: Mapping[str, Callable[[Config], Mixer]] = MappingProxyType(
    {
        "mamba1": mamba1,
        "mamba2": mamba2,
        "gated_delta_net": gated_delta_net,
        "gated_delta_net_split": gated_delta_net_split,
        "gated_delta_net_olmo": gated_delta_net_olmo,
        "kda": kda,
        "lightning": lightning,
        "bailing_linear": bailing_linear,
        "short_conv": short_conv,
        "rg_lru": rg_lru,
    }
)
"""Mixers by the name that `Traits.state` uses."""
