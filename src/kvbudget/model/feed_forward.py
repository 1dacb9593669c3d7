"""Feed-forward parts: the dense MLP and the mixture of experts with its router and shared experts.

All experts are resident; how many a token uses matters for speed alone.
Sources: transformers 5.24 models/*/modeling_*.py and configuration_*.py (which layers hold experts).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget.errors import CannotTell, InputError
from kvbudget.model.attention import switched
from kvbudget.model.build import linear, vector
from kvbudget.model.shapes import Group, Split, Weight

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.facts.architectures import Experts, Traits
    from kvbudget.model.config import Config

MAX_EXPERTS = 1 << 16

ACTIVE_KEYS = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "experts_per_token",
    "moe_topk",
    "moe_k",
    "top_k_experts",
)


def gated_mlp(
    name: str,
    group: Group,
    hidden: int,
    width: int,
    *,
    gated: bool = True,
    bias: bool = False,
    count: int = 1,
    split_in: Split = Split.COLUMN,
    split_out: Split = Split.ROW,
) -> tuple[Weight, ...]:
    """Return up, (gate) and down of an MLP of `width`, `count` times over."""
    parts = ("gate_proj", "up_proj") if gated else ("up_proj",)
    return (
        *(linear(f"{name}.{part}", group, hidden, width, bias=bias, split=split_in, count=count) for part in parts),
        linear(f"{name}.down_proj", group, width, hidden, bias=bias, split=split_out, count=count),
    )


def dense_width(c: Config, traits: Traits) -> int:
    """Return the width of the dense MLP from the config's key, or the architecture's multiple of the hidden size."""
    if traits.mlp_multiple:
        width = c.integer(*traits.mlp_width, minimum=1) if traits.mlp_width else None
        return width or round(c.dim("hidden_size") * c.number("expansion_ratio", default=traits.mlp_multiple))
    return c.dim(*traits.mlp_width)


def dense_mlp(c: Config, traits: Traits, *, name: str = "mlp", width: int | None = None) -> tuple[Weight, ...]:
    """Return the weights of one dense MLP."""
    weights = gated_mlp(
        name,
        Group.MLP,
        c.dim("hidden_size"),
        width or dense_width(c, traits),
        gated=traits.gated,
        bias=switched(c, traits.mlp_bias),
    )
    if traits.activation_parameters:
        weights += (vector(f"{name}.act_fn", traits.activation_parameters, group=Group.MLP),)
    return weights


def expert_count(c: Config, experts: Experts) -> int:
    """Return the number of routed experts, 0 if the config has none."""
    return c.integer(*experts.number, maximum=MAX_EXPERTS) or 0


def active_experts(c: Config) -> int | None:
    """Return how many routed experts a token uses, None if the config does not say."""
    value = c.raw(*ACTIVE_KEYS)
    if isinstance(value, (list, tuple)) and value:
        value = max(value, key=lambda item: item if isinstance(item, int) else 0)
    return None if value is None else c.checked(value, ACTIVE_KEYS[0], maximum=MAX_EXPERTS)


def mixture(c: Config, traits: Traits) -> tuple[Weight, ...]:
    """Return the weights of one mixture of experts: router, experts, shared experts."""
    experts = traits.experts
    assert experts is not None  # noqa: S101 - the caller asks only where the architecture has experts
    hidden, number = c.dim("hidden_size"), expert_count(c, experts)
    width = _scalar(c, experts.width)
    weights = [
        linear(
            f"{experts.name}.{experts.router}",
            Group.ROUTER,
            hidden,
            number,
            bias=switched(c, experts.router_bias),
            dtype=experts.router_dtype,
        )
    ]
    if experts.correction and _correction_on(c, experts):
        weights.append(
            vector(
                f"{experts.name}.{experts.router}.e_score_correction_bias",
                number,
                group=Group.ROUTER,
                dtype="float32",
                buffer=experts.correction == "buffer",
            )
        )
    latent = c.integer(experts.latent, minimum=1) if experts.latent else None
    if latent is not None:
        bias = switched(c, traits.mlp_bias)
        weights.append(linear(f"{experts.name}.fc1_latent_proj", Group.MLP, hidden, latent, bias=bias))
        weights.append(linear(f"{experts.name}.fc2_latent_proj", Group.MLP, latent, hidden, bias=bias))
    weights += gated_mlp(
        f"{experts.name}.experts.*",
        Group.EXPERTS,
        latent or hidden,
        width,
        gated=experts.gated,
        bias=experts.bias,
        count=number,
        split_in=Split.EXPERT,
        split_out=Split.EXPERT,
    )
    if experts.norm:
        weights.append(vector(f"{experts.name}.{experts.norm}", hidden))
    shared = shared_width(c, experts, width)
    if shared:
        weights += gated_mlp(
            experts.shared_name,
            Group.SHARED_EXPERTS,
            hidden,
            shared,
            gated=experts.gated,
            bias=switched(c, traits.mlp_bias) and not experts.bias,
        )
        if experts.shared_gate:
            weights.append(linear(f"{experts.shared_name}_gate", Group.ROUTER, hidden, 1))
    return tuple(weights)


def shared_width(c: Config, experts: Experts, width: int) -> int:
    """Return the width of the shared expert, 0 if there is none."""
    if experts.shared_width:
        return c.integer(experts.shared_width) or 0
    if not experts.shared_count:
        return 0
    if experts.shared_each:
        width = c.integer(experts.shared_each, minimum=1) or width
    value = c.raw(*experts.shared_count)
    if isinstance(value, (list, tuple)) and value:
        value = value[0]
    return width * c.checked(value, experts.shared_count[0], maximum=MAX_EXPERTS) if value is not None else 0


def _scalar(c: Config, keys: tuple[str, ...]) -> int:
    """Return a width that some configs give once and some as a list of equal entries."""
    value = c.raw(*keys)
    if isinstance(value, (list, tuple)):
        if not value or any(item != value[0] for item in value):
            raise CannotTell(
                f"{c.name(keys[0])} differs from layer to layer, which is not known for this architecture; "
                "give the checkpoint's headers.",
                key=c.name(keys[0]),
            )
        return c.checked(value[0], keys[0], minimum=1)
    return c.dim(*keys)


def _correction_on(c: Config, experts: Experts) -> bool:
    key, _, wanted = experts.correction_if.partition("=")
    if not key:
        return True
    return c.text(key) == wanted if wanted else c.flag(key)


def expert_layers(c: Config, traits: Traits, layers: int) -> tuple[bool, ...]:
    """Return for each layer whether its feed-forward part is a mixture of experts.

    The keys are those of the architectures' configs; each was read in transformers 5.24 or vLLM 0.32:
    `mlp_layer_types`; `moe_layers`, `moe_layers_enum`, `interleave_moe_layer_step` (Llama 4, Step 3);
    `moe_layer_freq` as a list (MiMo) or with `first_k_dense_replace` (DeepSeek, GLM); `num_dense_layers` (AFMoE,
    LFM2); `mlp_only_layers` with `decoder_sparse_step` (Qwen); `moe_layer_start_index`, `_end_index`, `_interval`
    (ERNIE); `expert_layer_period`, `_offset` (Jamba); `is_moe_layer` (EXAONE).
    """
    if traits.experts is None or expert_count(c, traits.experts) <= 1:  # one expert is a dense MLP without a router
        return (False,) * layers
    types = c.per_layer("mlp_layer_types", layers=layers)
    if types is not None:
        return tuple(kind in ("sparse", "moe") for kind in types)
    flags = c.per_layer("is_moe_layer", layers=layers)
    if flags is not None:
        return tuple(bool(flag) for flag in flags)
    listed = _listed(c, "moe_layers", "moe_layers_enum")
    if listed is not None:
        return tuple(i in listed for i in range(layers))
    if c.raw("interleave_moe_layer_step") is not None:
        step = c.count("interleave_moe_layer_step", minimum=0)
        return tuple(step > 0 and (i + 1) % step == 0 for i in range(layers))
    frequency = c.raw("moe_layer_freq")
    if isinstance(frequency, (list, tuple)):
        return tuple(bool(flag) for flag in c.per_layer("moe_layer_freq", layers=layers) or ())
    if c.raw("moe_layer_start_index", "moe_layer_interval") is not None:
        return _ernie_layers(c, layers)
    if c.raw("expert_layer_period") is not None:
        period, offset = c.count("expert_layer_period", minimum=1), c.count("expert_layer_offset")
        return tuple(i % period == offset for i in range(layers))
    first = c.integer("first_k_dense_replace", "num_dense_layers", "moe_first_k_dense") or 0
    interval = c.integer("moe_layer_freq", "decoder_sparse_step", minimum=0)
    dense = set(c.integers("mlp_only_layers") or ())
    # DeepSeek counts the step from layer 0, Qwen from layer 1; both are 1 in every published config but a few.
    shift = 0 if frequency is not None else 1
    if interval == 0:
        return (False,) * layers
    return tuple(i >= first and i not in dense and (i + shift) % (interval or 1) == 0 for i in range(layers))


def _listed(c: Config, *keys: str) -> set[int] | None:
    value = c.raw(*keys)
    if value is None:
        return None
    items: Iterable[object] = value.split(",") if isinstance(value, str) else value
    try:
        return {int(str(item)) for item in items}
    except (TypeError, ValueError):
        raise InputError(f"{c.name(keys[0])} must list layer numbers; check the config.") from None


def _ernie_layers(c: Config, layers: int) -> tuple[bool, ...]:
    def first(key: str, default: int) -> int:
        value = c.raw(key)
        if isinstance(value, (list, tuple)):
            value = min(value) if key.endswith("start_index") else max(value)
        return default if value is None else c.checked(value, key, minimum=-1)

    start, end = first("moe_layer_start_index", 0), first("moe_layer_end_index", layers - 1)
    step = c.integer("moe_layer_interval", minimum=1) or 1
    end = layers - 1 if end == -1 else end
    return tuple((i + 1) % step == 0 and start <= i <= end for i in range(layers))
