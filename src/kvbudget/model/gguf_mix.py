"""The type of each tensor in a GGUF file of a given file type, as llama.cpp's `llama-quantize` chooses it.

A file type such as Q4_K_M is a mix: some tensors get more bits, by name, by layer, by the model's shape. The rules are
those of llama.cpp 0c1e57098 (src/llama-quant.cpp, llama_tensor_get_type_impl), told by category:

* only matrices are quantized; norms, routers, convolutions, biases and all vectors are float32;
* `output` (`token_embd` if the head is tied to it) gets 6 bits, 8 if a row does not fill the blocks;
* `attn_v` (also a joined `attn_qkv`) and `ffn_down` get more bits in some layers, `attn_output` in some types;
* a row that does not fill the blocks of 256 falls back to a type with blocks of 32, and then to f16.

An importance matrix changes a few choices. File types that cannot be made without one are told with it, all others
without; the other choice is a variant of the recipe.

Known error: multi-token-prediction layers, rope factors (some 256 bytes) and the header are not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import gguf_types as facts
from kvbudget.facts.formats import GGML_TYPES, Format
from kvbudget.model.config import Config
from kvbudget.model.schemes import FLOAT32_BYTES, TOWERS, Part, Recipe, Scheme
from kvbudget.model.shapes import Attention, Group, LatentAttention

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kvbudget.model.model import Model
    from kvbudget.model.shapes import Weight

OUTPUT, TOKEN_EMBD = "output", "token_embd"
V_LIKE = ("attn_v", "attn_qkv", "attn_kv_b")
"""What counts as a value projection."""

FEED_FORWARD = ("ffn_up", "ffn_gate", "ffn_down")

_F32, _F16 = GGML_TYPES["f32"], GGML_TYPES["f16"]


class Tensor(NamedTuple):
    """A matrix of the file.

    Attributes:
        name: Without its layer, e.g. ``attn_v`` or ``ffn_down_exps``.
        layer: The layer's number, None outside the layers.
        columns: Values of a row, which blocks run along.
        stacked: Whether it holds several matrices (experts, heads).
    """

    name: str
    layer: int | None
    columns: int
    stacked: bool = False

    @property
    def category(self) -> str:
        """The name that rules know it by, "" if none do (tensor_get_category)."""
        if self.name in (OUTPUT, TOKEN_EMBD, *V_LIKE, "attn_k", "attn_q", "attn_output"):
            return self.name
        return next((name for name in FEED_FORWARD if self.name.startswith(name)), "")


class Shape(NamedTuple):
    """What the rules look at beside the tensors.

    Attributes:
        layers: Decoder layers.
        experts: Routed experts of a layer, 0 if there are none.
        sharing: Query heads that share a KV head, 0 if the first layer has no attention.
        is_falcon: The architecture with rules of its own.
        is_70b: What llama.cpp calls a 70B.
        tied: The file has no `output`.
    """

    layers: int
    experts: int
    sharing: int
    is_falcon: bool
    is_70b: bool
    tied: bool


def file_type(name: str) -> str:
    """Return the file type called `name`, e.g. ``Q4_K_M``, in any case of letters.

    Raises:
        InputError: llama.cpp has none of that name.
    """
    key = name.strip().upper().replace("-", "_")
    key = facts.FILE_TYPE_ALIASES.get(key, key)
    if key not in facts.FILE_TYPES:
        raise InputError(f"GGUF file type {name[:40]!r} is not known; choose one of {', '.join(facts.FILE_TYPES)}.")
    return key


def tensor_types(tensors: Iterable[Tensor], kind: str, shape: Shape, *, imatrix: bool = False) -> dict[Tensor, str]:
    """Return the type of each matrix.

    Args:
        tensors: The matrices that may be quantized.
        kind: A file type, see `file_type`.
        shape: The model, as far as the rules ask.
        imatrix: Whether an importance matrix was given.
    """
    base = facts.FILE_TYPES[kind]
    ordered = sorted(tensors, key=lambda tensor: (-1 if tensor.layer is None else tensor.layer, tensor.name))
    if GGML_TYPES[base].block_elems == 1:
        return dict.fromkeys(ordered, base)
    chooser = _Mix(kind, base, shape, imatrix, sum(tensor.category in V_LIKE for tensor in ordered))
    seen: Counter[str] = Counter()
    types: dict[Tensor, str] = {}
    for tensor in ordered:
        category = tensor.category
        group = V_LIKE[0] if category in V_LIKE else category
        types[tensor] = _that_fits(chooser.choose(tensor, seen[group]), tensor.columns)
        seen[group] += 1
    return types


def _that_fits(chosen: str, columns: int) -> str:
    """Return the type, or what stands in for it where a row does not fill its blocks (tensor_type_fallback)."""
    if columns % GGML_TYPES[chosen].block_elems == 0:
        return chosen
    other = facts.FALLBACKS.get(chosen, chosen)
    return "f16" if columns % GGML_TYPES[other].block_elems else other


def more_bits(number: int, of: int) -> bool:
    """Whether the mixes spend more bits on one of `of` layers: the first and last eighth, and every third between."""
    return number < of // 8 or number >= 7 * of // 8 or (number - of // 8) % 3 == 2  # noqa: PLR2004 - the third


class _Mix(NamedTuple):
    """The rules of one file type for one model; `values` counts the value projections."""

    kind: str
    base: str
    shape: Shape
    imatrix: bool
    values: int

    def choose(self, tensor: Tensor, seen: int) -> str:
        """Return the type of a matrix before its row's length is looked at; `seen` counts those of its category."""
        category = tensor.category
        if category == OUTPUT or (self.shape.tied and category == TOKEN_EMBD):
            return self._output(tensor)
        if self.kind == "MXFP4_MOE":
            return "mxfp4" if tensor.stacked else "q8_0"
        if category == TOKEN_EMBD:
            return _EMBEDDINGS.get(self.kind, self.base)
        if category in V_LIKE:
            category = V_LIKE[0]
        if self.kind in _TINY:
            return self._tiny(category, seen)
        if category in FEED_FORWARD and self.shape.experts > 1 and tensor.layer is not None:
            seen = tensor.layer
        rule = _RULES.get(category)
        return rule(self, seen) if rule is not None else self.base

    def _output(self, tensor: Tensor) -> str:
        """The head, which everything depends on."""
        if self.kind == "MXFP4_MOE" or self.shape.is_falcon or tensor.columns % GGML_TYPES[self.base].block_elems:
            return "q8_0"
        if self.kind in _TINY or self.kind == "IQ3_XXS":
            return "q5_K"
        return "q8_0" if self.base == "q8_0" else "q6_K"

    def _tiny(self, category: str, seen: int) -> str:
        """Types of one and two bits, which have rules of their own."""
        shape, step = self.shape, "iq3_s" if self.kind in ("IQ2_S", "IQ2_M") else "q2_K"
        mixtral = shape.experts == facts.MIXTRAL_EXPERTS
        if category == "attn_v":
            return "q4_K" if shape.sharing >= 4 or shape.experts >= 4 else step  # noqa: PLR2004 - llama.cpp's four
        if category == "attn_k" and mixtral:
            return "q4_K"
        if category == "ffn_down" and seen < shape.layers // 8:
            return step
        if category == "attn_output":
            outputs = {"IQ1_S": "iq2_xxs", "IQ1_M": "iq2_xxs", "IQ2_S": "iq3_s", "IQ2_M": "iq3_s"}
            return "q5_K" if mixtral else outputs.get(self.kind, self.base)
        return self.base

    def value(self, seen: int) -> str:
        """`attn_v`: small where queries share it, so worth more bits."""
        chosen = self._value(seen)
        if self.shape.is_70b and chosen in ("q3_K", "q4_K"):
            chosen = "q5_K"
        return "q8_0" if self.shape.experts == facts.MIXTRAL_EXPERTS else chosen

    def _value(self, seen: int) -> str:
        shared = self.shape.sharing >= 4  # noqa: PLR2004 - llama.cpp's four
        kind = self.kind
        if kind == "Q3_K_M":
            return "q5_K" if seen < 2 else "q4_K"  # noqa: PLR2004 - the first two
        if kind in ("Q4_K_M", "Q5_K_M"):
            return "q6_K" if more_bits(seen, self.values) else self.base
        if kind == "Q4_K_S":
            return "q5_K" if seen < 4 else self.base  # noqa: PLR2004 - the first four
        if kind == "IQ3_XXS" and not shared:
            return "iq3_xxs" if self.imatrix else "iq3_s"
        if shared:
            return _SHARED_VALUES.get(kind, self.base)
        return _VALUES.get(kind, self.base)

    def query(self, seen: int) -> str:  # noqa: ARG002 - all rules are called alike
        """`attn_q`."""
        return {"IQ3_XS": "iq3_xxs", "IQ3_XXS": "iq2_s"}.get(self.kind, self.base)

    def key(self, seen: int) -> str:
        """`attn_k`."""
        return "q8_0" if self.shape.experts == facts.MIXTRAL_EXPERTS else self.query(seen)

    def widening(self, layer: int) -> str:
        """`ffn_gate` and `ffn_up`."""
        layers = self.shape.layers
        inner = layers // 8 <= layer < 7 * layers // 8
        return "iq3_xxs" if self.kind == "IQ3_XS" and inner else self.base

    def down(self, layer: int) -> str:
        """`ffn_down`, by the layer's number in mixtures and by the tensor's elsewhere."""
        kind, shape = self.kind, self.shape
        first = layer < shape.layers // 8
        more = more_bits(layer, shape.layers)
        if kind == "Q2_K":
            return "q3_K"
        if kind == "Q3_K_M":
            if layer < shape.layers // 16:
                return "q5_K"
            return "q4_K" if more or not shape.is_falcon else "q3_K"
        if kind == "Q3_K_L":
            return "q4_K" if shape.is_falcon else "q5_K"
        if kind == "Q4_K_M" and shape.is_falcon:
            return "q6_K" if layer < shape.layers // 16 else "q5_K" if more else "q4_K"
        if kind in ("Q4_K_M", "Q5_K_M"):
            return "q6_K" if more else self.base
        if kind == "IQ3_XXS" and not self.imatrix:
            return "q4_K" if first else "q3_K"
        if kind == "IQ3_M" and more and shape.experts == facts.MIXTRAL_EXPERTS:
            return "q4_K"
        return self._first_down() if first else self.base

    def _first_down(self) -> str:
        """`ffn_down` of the first eighth of the layers."""
        kind = self.kind
        if kind in ("IQ4_NL", "IQ4_XS"):
            return self.base if self.imatrix else "q5_K"
        if kind in ("Q4_0", "Q5_0"):
            return {"Q4_0": "q4_1", "Q5_0": "q5_1"}[kind] if self.imatrix else self.base
        if kind == "Q4_K_S":
            return self.base if self.shape.is_falcon else "q5_K"
        return {"Q2_K_S": "q4_K", "IQ3_M": "q4_K"}.get(kind, self.base)

    def projection(self, seen: int) -> str:  # noqa: ARG002 - all rules are called alike
        """`attn_output`."""
        if self.shape.is_falcon:
            return "q4_K" if self.kind == "Q3_K_L" else self.base
        if self.shape.experts == facts.MIXTRAL_EXPERTS:
            return "q5_K" if self.kind in _MIXTRAL_OUTPUTS else self.base
        return _OUTPUTS.get(self.kind, self.base)


_TINY = frozenset({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"})
_EMBEDDINGS = {
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"), "q2_K"),
    **dict.fromkeys(("IQ2_S", "IQ2_M", "IQ3_XXS"), "iq3_s"),
    **dict.fromkeys(("TQ1_0", "TQ2_0"), "q4_K"),
}
_VALUES = {"Q2_K": "q3_K", "IQ3_M": "q4_K", "Q3_K_L": "q5_K"}
_SHARED_VALUES = {
    **dict.fromkeys(("Q2_K", "Q2_K_S", "IQ3_XXS", "IQ3_XS", "IQ3_S", "IQ3_M"), "q4_K"),
    **dict.fromkeys(("Q3_K_L", "IQ4_NL", "IQ4_XS"), "q5_K"),
}
_OUTPUTS = {"Q2_K": "q3_K", "IQ3_XXS": "iq3_s", "Q3_K_M": "q4_K", "Q3_K_L": "q5_K", "IQ3_M": "q4_K"}
_MIXTRAL_OUTPUTS = frozenset(
    ("Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL", "Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS")
)
_RULES = {
    "attn_v": _Mix.value,
    "attn_k": _Mix.key,
    "attn_q": _Mix.query,
    "attn_output": _Mix.projection,
    "ffn_down": _Mix.down,
    "ffn_gate": _Mix.widening,
    "ffn_up": _Mix.widening,
}


# --- from a model to tensors ---------------------------------------------------------------------------------------


class Piece(NamedTuple):
    """A tensor of the file that holds some rows of a matrix of the checkpoint.

    Attributes:
        rows: Its share of the rows, as parts of the sum of all pieces.
        tensor: The tensor.
        turned: Its rows run along another axis than the checkpoint's, and are `tensor.columns` long.
    """

    rows: int
    tensor: Tensor
    turned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesScheme(Scheme):
    """A matrix whose rows are stored in blocks of ggml types, of one or several of them.

    Attributes:
        pieces: (share of the rows, type, length of a row or 0 for the matrix's own).
    """

    pieces: tuple[tuple[int, Format, int], ...]

    def parts(self, out_features: int, in_features: int, own_bytes: int) -> tuple[Part, ...]:  # noqa: ARG002 - as Scheme
        """Return the tensors that a matrix, or a shard of it, is stored in."""
        total = sum(share for share, _, _ in self.pieces)
        found = []
        for share, packed, length in self.pieces:
            values = out_features * share // total * in_features
            columns = length or in_features
            found.append(Part(packed.name, values // columns * -(-columns // packed.block_elems) * packed.block_bytes))
        return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MixRecipe(Recipe):
    """The recipe of a GGUF file: a scheme by the path of each matrix, float32 for all else but towers."""

    chosen: Mapping[str, Scheme] = field(default_factory=dict, repr=False)

    def scheme_for(self, path: str, weight: Weight) -> Scheme | None:
        """Return how `weight` is stored in the file, None if it is in another file."""
        if weight.group in self.never:
            return None
        return self.chosen.get(path, _VECTOR)


_VECTOR = Scheme(name="f32", values=_F32, scale_bytes=0, bias_bytes=FLOAT32_BYTES)


def mix_recipe(model: Model, name: str) -> Recipe:
    """Return the recipe of a GGUF file of the file type called `name`; the other choice of an importance matrix varies.

    Raises:
        InputError: No such file type.
        CannotTell: The model's tensors have names in GGUF files that are not known here.
    """
    kind = file_type(name)
    pieces = dict(_pieces(model))
    needs = kind in facts.NEEDS_IMATRIX
    recipe = _recipe(model, kind, pieces, imatrix=needs)
    if needs:
        return recipe
    other = _recipe(model, kind, pieces, imatrix=True)
    if dict(other.chosen) == dict(recipe.chosen):
        return recipe
    return replace(recipe, variants=(other,), varies="what an importance matrix changes")


def _recipe(model: Model, kind: str, pieces: Mapping[str, tuple[Piece, ...]], *, imatrix: bool) -> MixRecipe:
    tensors = {piece.tensor for found in pieces.values() for piece in found}
    types = tensor_types(tensors, kind, shape_of(model, tensors), imatrix=imatrix)
    schemes: dict[tuple[tuple[int, str, int], ...], Scheme] = {}
    chosen: dict[str, Scheme] = {}
    for path, found in pieces.items():
        key = tuple((p.rows, types[p.tensor], p.tensor.columns if p.turned else 0) for p in found)
        if key not in schemes:
            schemes[key] = _scheme(key)
        chosen[path] = schemes[key]
    counts = Counter(types.values())
    mix = ", ".join(name for name, _ in counts.most_common())
    return MixRecipe(
        method=f"gguf:{kind}",
        describes=f"GGUF {kind} ({mix}), {'with' if imatrix else 'without'} an importance matrix",
        scheme=None,
        never=TOWERS,
        origin="imagined",
        asked=f"gguf:{kind}",
        chosen=MappingProxyType(chosen),
    )


def _scheme(key: tuple[tuple[int, str, int], ...]) -> Scheme:
    pieces = tuple((share, GGML_TYPES[name], length) for share, name, length in key)
    names = " and ".join(dict.fromkeys(packed.name for _, packed, _ in pieces))
    return PiecesScheme(name=names, values=pieces[0][1], scale_bytes=0, bias_bytes=FLOAT32_BYTES, pieces=pieces)


def shape_of(model: Model, tensors: Iterable[Tensor]) -> Shape:
    """Return what the rules of the mixes look at."""
    names = {tensor.name for tensor in tensors}
    kind, layers = _kind(model), len(model.layers)
    looked_at = model.layers if kind in facts.KV_HEADS_FOR_ALL else model.layers[:1]
    caches = [cache for layer in looked_at for cache in layer.caches]
    sharing = next((_sharing(cache) for cache in caches if isinstance(cache, (Attention, LatentAttention))), 0)
    grouped = sharing > 1 or kind not in facts.SEVENTY_GROUPED
    return Shape(
        layers=layers,
        experts=model.num_experts if any(name.endswith("_exps") for name in names) else 0,
        sharing=sharing,
        is_falcon=kind in facts.FALCON,
        is_70b=kind in facts.SEVENTY and layers == facts.SEVENTY_LAYERS and grouped,
        tied=OUTPUT not in names,
    )


def _kind(model: Model) -> str:
    """Return the model type, of a nested language model that of the whole."""
    return model.model_type.removesuffix("_text")


def _sharing(cache: Attention | LatentAttention) -> int:
    """Query heads a KV head; a latent is one KV head to llama.cpp."""
    kv_heads = cache.num_key_value_heads if isinstance(cache, Attention) else 1
    return cache.num_attention_heads // kv_heads


def _pieces(model: Model) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    """Yield (path, tensors that hold it) of each matrix that may be quantized.

    Raises:
        CannotTell: A name is not known.
    """
    if _kind(model) not in facts.ARCHITECTURES:
        raise _unknown(model, "the model type", model.model_type)
    for layer, path, weight in model.weights():
        if weight.group in TOWERS or weight.group is Group.ROUTER:
            continue
        if layer is None:
            if weight.group is Group.HEAD and weight.linear:
                yield path, (Piece(1, Tensor(OUTPUT, None, weight.in_features)),)
            elif weight.group is Group.EMBEDDINGS and path.endswith("embed_tokens"):
                yield path, (Piece(1, Tensor(TOKEN_EMBD, None, weight.in_features)),)
        elif weight.linear:
            yield path, tuple(_layer_pieces(model, layer, weight))


def _layer_pieces(model: Model, layer: int, weight: Weight) -> Iterator[Piece]:
    """Yield the tensors that hold a matrix of a layer."""
    name = _tensor_name(model, weight.name)
    if name == "attn_kv_b":  # stored by head, keys with their axes swapped (DeepseekV2Model.modify_tensors)
        c = Config(_text(model))
        keys, values = c.count("qk_nope_head_dim", minimum=1), c.count("v_head_dim", minimum=1)
        yield Piece(keys, Tensor("attn_k_b", layer, keys, stacked=True), turned=True)
        yield Piece(values, Tensor("attn_v_b", layer, weight.in_features, stacked=True))
    elif name == "attn_qkvz":  # the gate z is a tensor of its own (Qwen3NextModel.modify_tensors)
        c = Config(_text(model))
        key = c.count("linear_key_head_dim", minimum=1) * c.count("linear_num_key_heads", minimum=1)
        value = c.count("linear_value_head_dim", minimum=1) * c.count("linear_num_value_heads", minimum=1)
        yield Piece(2 * key + value, Tensor("attn_qkv", layer, weight.in_features))
        yield Piece(value, Tensor("attn_gate", layer, weight.in_features))
    else:
        yield Piece(1, Tensor(name, layer, weight.in_features, stacked=name.endswith("_exps")))


def _tensor_name(model: Model, name: str) -> str:
    """Return the name of a matrix in GGUF files, joined projections under the name of the whole."""
    parts = name.split(".")
    found = next((facts.TENSORS[end] for n in (3, 2) if (end := ".".join(parts[-n:])) in facts.TENSORS), None)
    if found is None:
        raise _unknown(model, "the tensor", name)
    if _kind(model) in facts.JOINED_QKV and found in ("attn_q", "attn_k", "attn_v"):
        return "attn_qkv"
    return "ffn_up" if _kind(model) in facts.JOINED_GATE and found == "ffn_gate" else found


def _text(model: Model) -> Mapping[str, object]:
    """Return the part of the config that is about the language model."""
    nested = model.config.get("text_config")
    return nested if isinstance(nested, dict) else model.config


def _unknown(model: Model, what: str, name: str) -> CannotTell:
    return CannotTell(
        f"How GGUF files name {what} {name[:60]!r} is not known to this version of kvbudget, so the types of the "
        f"tensors are unknown; give a GGUF file of {model.name or 'the model'} itself.",
        key="quantization",
    )
