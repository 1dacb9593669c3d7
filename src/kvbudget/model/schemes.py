"""How a quantized checkpoint stores its weights: schemes for one matrix, recipes for a model.

A `Recipe` says for one module how its `Weight` is stored; `kvbudget.model.quantization` reads it from a
config. The bytes are those of the checkpoint's tensors: packed values, scales, zero points, whatever else the
format keeps, and the bias.

**Which weights.** Only matrices of linear layers (`Weight.linear`), and the token embeddings in MLX files.
Routers, norms, convolutions, weights with a pinned type and `KEPT_MODULES` stay as they are, because vLLM
builds them without quantization whatever the config says. The output head is packed only where the method's
own rule packs it: MLX, ModelOpt and compressed-tensors unless listed, GPTQ and AWQ with ``lm_head: true``,
bitsandbytes with a skip list that omits it. GPTQ, AWQ and ModelOpt touch the language model alone, and a
section inside ``text_config`` does not reach the towers. How lists name modules is told in
`kvbudget.model.module_names`.

**Where vLLM 0.32 holds other bytes than the checkpoint.** It drops GPTQ's ``g_idx`` (0.1 %) and the all-zero
biases that AutoGPTQ wrote until 2023 (0.06 %; no config tells, so they are not counted here either). It turns
per-channel scales of bfloat16 into float32, joins the shapes and scales of experts' projections, upcasts the
indexer's FP8 ``wk`` to bfloat16 (DeepSeek V3.2, GLM-5), adds 8 bytes of KV scales a layer, and repacks after
loading. It reads MLX files as unquantized.

Sources: vLLM 0.32, model_executor/layers/quantization; compressed-tensors 0.17; transformers 5.24, quantizers
and integrations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd
from typing import TYPE_CHECKING, Literal, NamedTuple

from kvbudget.facts.formats import Format, dtype_bytes
from kvbudget.model.module_names import Module, Names
from kvbudget.model.shapes import Group

if TYPE_CHECKING:
    from kvbudget.model.shapes import Weight

FLOAT32_BYTES = 4

SMALLEST_REFINED = 32
"""Sides of blocks below which vLLM does not go when a shard cuts them."""

KEPT_MODULES = (
    ".indexer.weights_proj",  # deepseek_v2.py, models/deepseek_v4/attention.py: quant_config=None
    ".compressor.wkv",  # models/deepseek_v4/compressor.py: quant_config=None
    ".compressor.wgate",
    ".eh_proj",  # deepseek_mtp.py: a plain nn.Linear
)
"""Linear layers that stay in the checkpoint's type whatever the config says (vLLM 0.32)."""

BODY = frozenset(
    {Group.ATTENTION, Group.INDEXER, Group.MLP, Group.EXPERTS, Group.SHARED_EXPERTS, Group.STATE, Group.MTP}
)
"""The parts that every method quantizes unless told otherwise."""

TOWERS = frozenset({Group.VISION, Group.AUDIO})


class Part(NamedTuple):
    """One stored tensor of a packed matrix: what it holds and its bytes."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How one matrix of a linear layer is stored.

    Attributes:
        name: For people, e.g. ``INT4 in groups of 128``.
        values: How many values along the input features are packed together, and into how many bytes.
        rows: Output features that share a scale; 0 for all.
        columns: Input features that share a scale; 0 for all.
        scale_bytes: Bytes of one scale; None for the checkpoint's own type.
        zeros: Zero points: none, packed like the values, a byte each, or in the type of the scales.
        matrix_bytes: What is stored once a matrix: global scales, shapes, code tables.
        order_bytes: What is stored once an input feature (GPTQ's ``g_idx``).
        superblock: Scales that share a float32 scale of their own; 0 if scales are not quantized.
        flat: Blocks run over the whole matrix and not along each row (bitsandbytes).
        in_multiple: A matrix whose input features are no multiple of this stays unpacked.
        out_multiple: The same for output features.
        bias_bytes: Bytes of one value of the bias; None for the checkpoint's own type.
    """

    name: str
    values: Format
    rows: int = 1
    columns: int = 0
    scale_bytes: int | None = FLOAT32_BYTES
    zeros: Literal["none", "packed", "byte", "scale"] = "none"
    matrix_bytes: int = 0
    order_bytes: int = 0
    superblock: int = 0
    flat: bool = False
    in_multiple: int = 1
    out_multiple: int = 1
    bias_bytes: int | None = None

    def fits(self, out_features: int, in_features: int) -> bool:
        """Whether the format can pack a matrix of this shape."""
        return in_features % self.in_multiple == 0 and out_features % self.out_multiple == 0

    def of_shard(self, shard: Weight) -> Scheme:
        """Return how a rank's shard of an expert is stored: in smaller square blocks where it cuts one.

        vLLM divides the scales by the largest side that divides blocks and shard, if that is 32 or more
        (layers/fused_moe/oracle/fp8.py, refine_fp8_moe_block_shape, 0.32).
        """
        square = self.rows > 1 and self.columns > 1
        if not square or not (shard.out_features % self.rows or shard.in_features % self.columns):
            return self
        side = gcd(self.rows, self.columns, shard.out_features, shard.in_features)
        return self if side < SMALLEST_REFINED else replace(self, rows=side, columns=side)

    def parts(self, out_features: int, in_features: int, own_bytes: int) -> tuple[Part, ...]:
        """Return the stored tensors of one matrix (or of a tensor-parallel shard of it), without the bias.

        Args:
            out_features: Rows.
            in_features: Columns.
            own_bytes: Bytes of the checkpoint's own data type.
        """
        rows, columns = (1, out_features * in_features) if self.flat else (out_features, in_features)
        scale_bytes = own_bytes if self.scale_bytes is None else self.scale_bytes
        groups = _blocks(columns, self.columns)
        scales = _blocks(rows, self.rows) * groups
        packed = self.values
        if self.zeros == "packed":
            zeros = _blocks(rows, packed.block_elems) * packed.block_bytes * groups
        else:
            zeros = scales * {"none": 0, "byte": 1, "scale": scale_bytes}[self.zeros]
        found = (
            Part("values", rows * _blocks(columns, packed.block_elems) * packed.block_bytes),
            Part("scales", scales * scale_bytes),
            Part("zero points", zeros),
            Part("scales of scales", _blocks(scales, self.superblock) * FLOAT32_BYTES if self.superblock else 0),
            Part("order of groups", in_features * self.order_bytes),
            Part("once a matrix", self.matrix_bytes),
        )
        return tuple(part for part in found if part.bytes)


def _blocks(length: int, size: int) -> int:
    """Return how many blocks of `size` cover `length`; one if `size` is 0."""
    return -(-length // size) if size else 1


def weight_bytes(weight: Weight, own_bytes: int, scheme: Scheme | None = None) -> int:
    """Return the bytes of all copies of `weight`, bias included.

    Give a shard's shape with the scheme of the whole weight to get what one tensor-parallel rank stores.

    Args:
        weight: The weight or a shard of it; a pinned `Weight.dtype` wins over `own_bytes`.
        own_bytes: Bytes of the checkpoint's own data type.
        scheme: How its matrix is stored, None if it is not quantized.
    """
    if scheme is None:
        return weight.plain_bytes(own_bytes)
    size = dtype_bytes(weight.dtype) if weight.dtype else own_bytes
    matrix = sum(part.bytes for part in scheme.parts(weight.out_features, weight.in_features, own_bytes))
    return (matrix + weight.bias * (scheme.bias_bytes or size)) * weight.count


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """The scheme of the weights that `names` and `group` select; None keeps them unquantized.

    With `others` the rule is for the modules that `names` does not match.
    """

    scheme: Scheme | None
    names: Names | None = None
    group: Group | None = None
    others: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Which weights of a checkpoint are quantized and how.

    Attributes:
        method: The method, in the spelling of `quant_method` (``mlx`` for MLX).
        describes: One line for people, e.g. ``FP8 in blocks of 128 x 128, float32 scales``.
        scheme: The scheme of the weights in `groups` that no rule speaks of.
        groups: The parts of the model that are quantized without being named.
        never: The parts that no rule can quantize.
        rules: Exceptions; the first that selects a weight decides.
        kv_cache_dtype: What vLLM makes of ``--kv-cache-dtype auto`` here, None for the model's own type.
        assumptions: What the config does not say and was taken to be usual.
        origin: Who quantizes: the checkpoint's maker, the engine while it loads, or nobody yet, because the recipe is a
            guess at a checkpoint that was not given.
        asked: The name by which a recipe that is not the checkpoint's own was asked for.
        variants: Other recipes of the same method that are in use; with the recipe itself they bound the bytes.
        varies: What the variants differ in, in words.
    """

    method: str
    describes: str
    scheme: Scheme | None
    groups: frozenset[Group] = BODY
    never: frozenset[Group] = frozenset({Group.EMBEDDINGS, Group.NORMS, Group.ROUTER})
    rules: tuple[Rule, ...] = ()
    kv_cache_dtype: str | None = None
    assumptions: tuple[str, ...] = ()
    origin: Literal["checkpoint", "loading", "imagined"] = "checkpoint"
    asked: str = ""
    variants: tuple[Recipe, ...] = ()
    varies: str = ""

    def scheme_for(self, path: str, weight: Weight) -> Scheme | None:
        """Return how `weight` is stored, None if as it is.

        Args:
            path: The module's full path in the checkpoint, e.g. ``model.layers.0.self_attn.q_proj``; a ``*``
                stands for the number of an expert.
            weight: The whole weight, not a shard of it.
        """
        group = weight.group
        if group in self.never or weight.dtype is not None or path.endswith(KEPT_MODULES):
            return None
        if not weight.linear and group is not Group.EMBEDDINGS:
            return None
        scheme = self._chosen(path, group)
        if scheme is None or not scheme.fits(weight.out_features, weight.in_features):
            return None
        return scheme

    def _chosen(self, path: str, group: Group) -> Scheme | None:
        module = Module(path, group) if self.rules else None
        for rule in self.rules:
            if rule.group is not None and rule.group is not group:
                continue
            if rule.names is None or module is None or rule.names.match(module) is not rule.others:
                return rule.scheme
        return self.scheme if group in self.groups else None

    def weight_bytes(self, path: str, weight: Weight, own_bytes: int, *, shard: Weight | None = None) -> int:
        """Return the bytes of all copies of `weight` in the checkpoint: scales, zero points, bias and all.

        Args:
            path: The module's full path, see `scheme_for`.
            weight: The whole weight, whose shape decides whether it can be packed.
            own_bytes: Bytes of the checkpoint's own data type, which what is not quantized stays in.
            shard: What one tensor-parallel rank holds of it, to get that rank's bytes.
        """
        return weight_bytes(shard or weight, own_bytes, self.scheme_for(path, weight))
