"""How a quantized checkpoint stores its weights: from the config's quantization section to bytes.

`read_recipe` turns the section into a `Recipe`; a recipe says for one module how its `Weight` is stored. The bytes are
those of the checkpoint's tensors: packed values, scales, zero points, whatever else the format keeps, and the bias.

**Which weights.** Only matrices of linear layers (`Weight.linear`), and the token embeddings in MLX files. Routers,
norms, convolutions and what `KEPT_MODULES` lists stay as they are, because vLLM builds them without quantization
whatever the config says. The output head is packed only if the method does so by its own rule (MLX, ModelOpt and
compressed-tensors unless listed, ``lm_head: true``). GPTQ, AWQ and ModelOpt touch the language model alone. A section
inside ``text_config`` does not reach the vision or audio tower.

**Whose name.** Lists name modules as the checkpoint does, and three spellings of one module are about:
``model.layers.0``, ``model.language_model.layers.0`` and ``language_model.model.layers.0``. vLLM maps them to its own;
here both sides drop the leading wrappers (`WRAPPERS`) and use one word for parts with several names (`ALIASES`). Then:

* a plain entry with a layer number names that place, one without a number names every module of that name, and both
  include what is below (``mlp.gate`` matches ``model.layers.3.mlp.gate`` but not ``mlp.gate_proj``);
* in compressed-tensors a plain entry names one module and nothing below; ``re:`` entries are matched from the start;
* an entry with ``*`` is a shell pattern over the whole path (ModelOpt);
* GPTQ's and AWQ's lists are substrings of the path;
* the experts of a layer share one scheme, so an entry for expert 0, for ``experts`` itself or for the fused
  projection speaks for all of them; ``qkv_proj`` speaks for q, k and v.

**Where vLLM 0.32 holds other bytes than the checkpoint**: it drops GPTQ's ``g_idx`` and the all-zero biases that
AutoGPTQ wrote until 2023 (which are not counted here either, 0.06 %), it turns per-channel scales of bfloat16 into
float32, joins scales of fused projections, upcasts the indexer's FP8 ``wk`` to bfloat16 (DeepSeek V3.2, GLM-5), adds
8 bytes of KV scales a layer, and repacks after loading.

Sources: vLLM 0.32, model_executor/layers/quantization; compressed-tensors 0.17; transformers 5.24, quantizers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.formats import Format, dtype_bytes
from kvbudget.model.config import Config
from kvbudget.model.shapes import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kvbudget.model.shapes import Weight

FLOAT32_BYTES = 4
MAX_GROUP = 1 << 20
"""No format shares a scale over more values; a larger group is a broken file."""

WRAPPERS = frozenset({"model", "language_model", "text_model", "backbone", "transformer", "llm", "thinker"})
"""Leading parts of a module path that name no part of the decoder."""

ALIASES = {
    "attn": "self_attn",
    "attention": "self_attn",
    "ffn": "mlp",
    "feed_forward": "mlp",
    "block_sparse_moe": "mlp",
    "w1": "gate_proj",
    "w3": "up_proj",
    "w2": "down_proj",
    "head": "lm_head",
}
"""Parts that checkpoints and transformers call differently (DeepSeek's own code, Llama 4, MiniMax, Mixtral)."""

FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
"""Projections that engines and some lists join (vllm/model_executor/models, packed_modules_mapping)."""

KEPT_MODULES = frozenset(
    {
        "indexer.weights_proj",  # deepseek_v2.py, models/deepseek_v4/attention.py: quant_config=None
        "eh_proj",  # deepseek_mtp.py: a plain nn.Linear
        "compressor.wkv",  # models/deepseek_v4/compressor.py: quant_config=None
        "compressor.wgate",
    }
)
"""Linear layers that stay in the checkpoint's type whatever the config says (vLLM 0.32)."""

_BODY = frozenset(
    {Group.ATTENTION, Group.INDEXER, Group.MLP, Group.EXPERTS, Group.SHARED_EXPERTS, Group.STATE, Group.MTP}
)
_TOWERS = frozenset({Group.VISION, Group.AUDIO})
_NOT_LINEAR = frozenset({Group.EMBEDDINGS, Group.NORMS})


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
        superblock: Scales that share a float32 scale of their own; 0 if they are not quantized.
        flat: Blocks run over the whole matrix and not along each row (bitsandbytes).
        in_multiple: A matrix whose input features are no multiple of this stays unpacked.
        out_multiple: The same for output features.
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

    def fits(self, out_features: int, in_features: int) -> bool:
        """Whether the format can pack a matrix of this shape."""
        return in_features % self.in_multiple == 0 and out_features % self.out_multiple == 0

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
        zeros = {
            "none": 0,
            "packed": _blocks(rows, packed.block_elems) * packed.block_bytes * groups,
            "byte": scales,
            "scale": scales * scale_bytes,
        }[self.zeros]
        found = (
            Part("values", rows * _blocks(columns, packed.block_elems) * packed.block_bytes),
            Part("scales", scales * scale_bytes),
            Part("zero points", zeros),
            Part(
                "scales of scales", _blocks(scales, self.superblock) * FLOAT32_BYTES if self.superblock else 0
            ),
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
    size = dtype_bytes(weight.dtype) if weight.dtype else own_bytes
    if scheme is None:
        return (weight.out_features * weight.in_features + weight.bias) * size * weight.count
    matrix = sum(part.bytes for part in scheme.parts(weight.out_features, weight.in_features, own_bytes))
    return (matrix + weight.bias * size) * weight.count


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
        method: The method, in vLLM's spelling (``mlx`` for MLX).
        describes: One line for people, e.g. ``FP8 in blocks of 128 x 128, float32 scales``.
        scheme: The scheme of the weights in `groups` that no rule speaks of.
        groups: The parts of the model that are quantized without being named.
        never: The parts that no rule can quantize.
        rules: Exceptions; the first that selects a weight decides.
        kv_cache_dtype: What ``--kv-cache-dtype auto`` means for this checkpoint, None if the config is silent.
        assumptions: What the config does not say and was taken to be usual.
    """

    method: str
    describes: str
    scheme: Scheme | None
    groups: frozenset[Group] = _BODY
    never: frozenset[Group] = _NOT_LINEAR | {Group.ROUTER}
    rules: tuple[Rule, ...] = ()
    kv_cache_dtype: str | None = None
    assumptions: tuple[str, ...] = ()

    def scheme_for(self, path: str, weight: Weight) -> Scheme | None:
        """Return how `weight` is stored, None if as it is.

        Args:
            path: The module's full path in the checkpoint, e.g. ``model.layers.0.self_attn.q_proj``; a ``*`` stands
                for the number of an expert.
            weight: The whole weight, not a shard of it.
        """
        group = weight.group
        if group in self.never or weight.dtype is not None:
            return None
        if not weight.linear and group is not Group.EMBEDDINGS:
            return None
        scheme = self._chosen(path, group)
        return scheme if scheme is not None and scheme.fits(weight.out_features, weight.in_features) else None

    def _chosen(self, path: str, group: Group) -> Scheme | None:
        module = _Module(path, text=group not in _TOWERS)
        if module.kept:
            return None
        for rule in self.rules:
            if rule.group is not None and rule.group is not group:
                continue
            if rule.names is None or rule.names.match(module) is not rule.others:
                return rule.scheme
        return self.scheme if group in self.groups else None

    def weight_bytes(self, path: str, weight: Weight, own_bytes: int) -> int:
        """Return the bytes of all copies of `weight` in the checkpoint: scales, zero points and bias included.

        Args:
            path: The module's full path, see `scheme_for`.
            weight: The whole weight.
            own_bytes: Bytes of the checkpoint's own data type, which what is not quantized stays in.
        """
        return weight_bytes(weight, own_bytes, self.scheme_for(path, weight))


# --- module names ---------------------------------------------------------------------------------------------------


def _canonical(name: str) -> list[str]:
    """Return the parts of a module path without its wrappers, each under one name."""
    parts = name.split(".")
    start = 0
    while start < len(parts) - 1 and parts[start] in WRAPPERS:
        start += 1
    return [ALIASES.get(part, part) for part in parts[start:]]


_TEXT_SPELLINGS = ("", "model.", "model.language_model.", "language_model.model.", "language_model.")
_TOWER_SPELLINGS = ("", "model.")


class _Module:
    """One module in the spellings that lists may use; what is costly is made when first asked for."""

    __slots__ = ("_spellings", "forms", "kept", "path", "text")

    def __init__(self, path: str, *, text: bool) -> None:
        parts = _canonical(path)
        self.path = path
        self.text = text
        self.kept = parts[-1] in KEPT_MODULES or ".".join(parts[-2:]) in KEPT_MODULES
        self.forms = [".".join(form) for form in _expert_forms(parts)]
        if parts[-1] in FUSED:
            self.forms.append(".".join([*parts[:-1], FUSED[parts[-1]]]))
        self._spellings: tuple[str, ...] | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every full path that the checkpoint or the engine may give the module, its own first."""
        if self._spellings is None:
            parts = self.path.split(".")
            start = 0
            while start < len(parts) - 1 and parts[start] in WRAPPERS:
                start += 1
            wrappers = (
                f"{'.'.join(parts[:start])}." if start else "",
                *(_TEXT_SPELLINGS if self.text else _TOWER_SPELLINGS),
            )
            tails = [".".join(form) for form in _expert_forms(parts[start:])]
            self._spellings = tuple(
                dict.fromkeys(f"{wrapper}{tail}" for wrapper in wrappers for tail in tails)
            )
        return self._spellings

    def contains(self, text: str) -> bool:
        """Whether the path contains `text`; the experts' projections count only if `text` speaks of experts.

        Otherwise ``gate`` would find every expert's ``gate_proj`` beside the router; vLLM 0.32 (auto_awq.py) asks for
        the module of all experts too.
        """
        names: Iterable[str] = self.spellings
        if "experts" not in text:
            names = (
                name[: name.index("experts") + len("experts")] if "experts" in name else name
                for name in names
            )
        return any(text in name for name in names)


def _expert_forms(parts: list[str]) -> list[list[str]]:
    """Return the path as it is, or for an expert's projection: expert 0's, the fused one, and the experts' module."""
    if "experts" not in parts:
        return [parts]
    end = parts.index("experts") + 1
    module, rest = parts[:end], parts[end:]
    if rest and (rest[0] == "*" or rest[0].isdigit()):
        rest = rest[1:]
    return [[*module, "0", *rest], [*module, *rest], module]


class Names:
    """A list of module names as quantization configs write them, prepared for many look-ups."""

    __slots__ = ("_anywhere", "_exact", "_globs", "_prefixes", "_regexes", "_substrings", "_whole")

    def __init__(
        self, entries: Iterable[str], *, key: str, kind: Literal["module", "whole", "substring"] = "module"
    ) -> None:
        """Prepare `entries`.

        Args:
            entries: Plain names, shell patterns and ``re:`` expressions.
            key: The config key they come from, for messages.
            kind: What a plain name covers: a module with all below, the module alone, or any path that contains it.
        """
        exact, anywhere, substrings, globs, regexes = set(), set(), [], [], []
        prefixes: dict[int, set[str]] = {}
        for entry in entries:
            if entry.startswith("re:"):
                regexes.append(entry.removeprefix("re:"))
                continue
            name = ".".join(_canonical(entry))
            if any(sign in entry for sign in "*?["):
                if name.endswith("*") and "." in name and not any(sign in name[:-1] for sign in "*?["):
                    prefixes.setdefault(len(name) - 1, set()).add(name[:-1])
                else:
                    globs.append(name)
            elif kind == "substring":
                substrings.append(entry)
            elif kind == "whole" or any(part.isdigit() for part in name.split(".")):
                exact.add(name)
            else:
                anywhere.add(name)
        self._whole = kind == "whole"
        self._exact = frozenset(exact)
        self._anywhere = frozenset(anywhere)
        self._substrings = tuple(substrings)
        self._prefixes = tuple(prefixes.items())
        self._globs = _any_of(_translated(globs), key)
        self._regexes = _any_of(regexes, key)

    def match(self, module: _Module) -> bool:
        """Whether the list names `module`."""
        if any(map(self._match_form, module.forms)) or any(
            pattern.match(module.path) for pattern in self._globs
        ):
            return True
        if self._regexes and any(
            pattern.match(name) for pattern in self._regexes for name in module.spellings
        ):
            return True
        return any(map(module.contains, self._substrings))

    def _match_form(self, form: str) -> bool:
        if form in self._exact or any(form[:length] in names for length, names in self._prefixes):
            return True
        if not self._whole and (self._exact or self._anywhere) and self._match_parts(form.split(".")):
            return True
        return any(pattern.match(form) for pattern in self._globs)

    def _match_parts(self, parts: list[str]) -> bool:
        """Whether the list names a module above, or one of its names wherever it stands."""
        length = len(parts)
        if any(".".join(parts[:end]) in self._exact for end in range(1, length)):
            return True
        return bool(self._anywhere) and any(
            ".".join(parts[start:end]) in self._anywhere
            for start in range(length)
            for end in range(start + 1, length + 1)
        )


def _translated(globs: list[str]) -> list[str]:
    if not globs:
        return []
    from fnmatch import translate  # noqa: PLC0415 - few lists hold such patterns

    return [translate(glob) for glob in globs]


def _any_of(expressions: list[str], key: str) -> tuple[re.Pattern[str], ...]:
    """Compile `expressions` into as few patterns as possible.

    Raises:
        InputError: One of them is no regular expression.
    """
    if not expressions:
        return ()
    try:
        return (re.compile("|".join(f"(?:{text})" for text in expressions)),)
    except re.error:
        pass  # a broken one, or flags and groups that do not survive being joined
    try:
        return tuple(map(re.compile, expressions))
    except re.error as error:
        raise InputError(
            f"{key} holds a pattern that is no regular expression ({error}); check the config."
        ) from None


# --- from the config ------------------------------------------------------------------------------------------------

SECTION_KEYS = ("quantization_config", "compression_config", "quantization")
"""Where configs keep the section: transformers, old compressed-tensors, MLX."""

NESTED_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
"""The sub-configs of multimodal models that may hold a section of their own."""

EXPERT_DTYPE_DEFAULTS = {"deepseek_v4": "fp4", "deepseek_v41": "fp4"}
"""What a missing `expert_dtype` means (vllm/models/deepseek_v4/quant_config.py, 0.32)."""


def read_recipe(
    config: Mapping[str, Any],
    hf_quant_config: Mapping[str, Any] | None = None,
    quantize_config: Mapping[str, Any] | None = None,
) -> Recipe | None:
    """Return how the checkpoint is quantized, None if it is not.

    Args:
        config: The parsed `config.json`. Its own section wins, then the one of its text config.
        hf_quant_config: The parsed `hf_quant_config.json` of ModelOpt 0.29 and before.
        quantize_config: The parsed `quantize_config.json` of AutoGPTQ (or `quant_config.json` of AutoAWQ).

    Raises:
        CannotTell: The method, or a variant of it, is not known; `key` names what says so.
        InputError: The section is broken or contradicts itself.
    """
    found = _section(config)
    if found is None and hf_quant_config is not None:
        found = _Section(Config(hf_quant_config, path="hf_quant_config."), config)
    if found is None and quantize_config is not None:
        method = quantize_config.get("quant_method") or ("awq" if "w_bit" in quantize_config else "gptq")
        section = {**quantize_config, "quant_method": method}
        found = _Section(Config(section, path="quantize_config."), config)
    if found is None:
        return None
    method = _method(found.config)
    reader = _READERS.get(method)
    if reader is None:
        key = found.config.name("quant_method")
        raise CannotTell(
            f"{key} {method[:40]!r} is not known to this version of kvbudget, so the size of the weights is unknown; "
            f"known are {', '.join(dict.fromkeys(_READERS))}.",
            key=key,
        )
    recipe = reader(found)
    if recipe is not None and found.nested:
        return replace(recipe, never=recipe.never | _TOWERS)
    return recipe


class _Section(NamedTuple):
    """A quantization section and the whole config around it."""

    config: Config
    model: Mapping[str, Any]
    nested: bool = False

    def outer(self, key: str) -> Any:  # noqa: ANN401 - JSON has no narrower type
        """Return the value of `key` in the model's config or its text config."""
        for part in (self.model, *(self.model.get(name) for name in NESTED_KEYS)):
            if isinstance(part, dict) and part.get(key) is not None:
                return part[key]
        return None


def _section(config: Mapping[str, Any]) -> _Section | None:
    top = Config(config)
    for key in SECTION_KEYS:
        section = top.sub(key)
        if section is not None:
            return _Section(section, config)
    for key in NESTED_KEYS:
        nested = top.sub(key)
        section = nested.sub(SECTION_KEYS[0]) if nested is not None else None
        if section is not None:
            return _Section(section, config, nested=True)
    return None


def _method(c: Config) -> str:
    """Return the method in lower case, from `quant_method` or from the keys that only one method writes."""
    named = c.text("quant_method")
    if named:
        return named.lower().replace("_", "-")
    inner = c.data.get("quantization")
    if c.has("quant_algo") or (isinstance(inner, dict) and "quant_algo" in inner):
        return "modelopt"
    if c.has("load_in_8bit", "load_in_4bit"):
        return "bitsandbytes"
    if c.has("config_groups"):
        return "compressed-tensors"
    if c.has("bits") and c.has("group_size"):
        return "mlx"
    raise CannotTell(
        f"{c.name('quant_method')} is missing, so the size of the weights is unknown; add it to the config.",
        key=c.name("quant_method"),
    )


def _strings(c: Config, *keys: str) -> list[str] | None:
    """Return a list of texts, flattened; None if none of `keys` is there."""
    for key in keys:
        value = c.data.get(key)
        if value is None:
            continue
        flat = (
            [text for item in value for text in (item if isinstance(item, list) else [item])]
            if isinstance(value, list)
            else None
        )
        if flat is None or not all(isinstance(item, str) for item in flat):
            raise InputError(f"{c.name(key)} must be a list of module names; check the config.")
        return flat
    return None


def _unknown(c: Config, key: str, value: object, known: str) -> CannotTell:
    return CannotTell(
        f"{c.name(key)} {str(value)[:40]!r} is not known to this version of kvbudget, so the size of the weights is "
        f"unknown; known are {known}.",
        key=c.name(key),
    )


def _group_size(c: Config, *, default: int | None = None) -> int:
    """Return the values that share a scale; 0 for a whole row (-1 in the config)."""
    value = c.raw("group_size", "q_group_size")
    if value is None and default is not None:
        return default
    if value == -1:
        return 0
    return c.count("group_size", "q_group_size", minimum=1, maximum=MAX_GROUP)


def _kept(
    c: Config, *keys: str, kind: Literal["module", "whole", "substring"] = "module"
) -> tuple[Rule, ...]:
    """Return the rule that keeps the modules of a list unquantized; none without a list."""
    entries = _strings(c, *keys)
    return (Rule(scheme=None, names=Names(entries, key=c.name(keys[0]), kind=kind)),) if entries else ()


def _per_group(columns: int) -> str:
    return f"in groups of {columns}" if columns else "with one group a row"


_SOURCE = "kvbudget.model.quantization"


def _packed(bits: int, *, word_bits: int = 32, across_words: bool = True) -> Format:
    """Return how integers of `bits` are packed into words of `word_bits`.

    Widths that do not divide a word run across its border (AutoGPTQ, MLX) or leave the rest of the word empty
    (compressed-tensors).
    """
    if word_bits % bits == 0 or not across_words:
        return Format(
            name=f"int{bits}", block_elems=word_bits // bits, block_bytes=word_bits // 8, source=_SOURCE
        )
    return Format(name=f"int{bits}", block_elems=word_bits, block_bytes=bits * word_bits // 8, source=_SOURCE)


_BYTE = Format(name="8-bit", block_elems=1, block_bytes=1, source=_SOURCE)
_NIBBLES = Format(name="4-bit", block_elems=2, block_bytes=1, source=_SOURCE)

MXFP4 = Scheme(name="MXFP4", values=_NIBBLES, columns=32, scale_bytes=1, in_multiple=32)
MXFP8 = Scheme(name="MXFP8", values=_BYTE, columns=32, scale_bytes=1, in_multiple=32)
NVFP4 = Scheme(
    name="NVFP4", values=_NIBBLES, columns=16, scale_bytes=1, matrix_bytes=2 * FLOAT32_BYTES, in_multiple=16
)
FP8_TENSOR = Scheme(name="FP8 per tensor", values=_BYTE, rows=0, matrix_bytes=FLOAT32_BYTES)
FP8_CHANNEL = Scheme(name="FP8 per channel", values=_BYTE)


def _fp8_blocks(rows: int, columns: int, *, scale_bytes: int = FLOAT32_BYTES) -> Scheme:
    scale = "float32" if scale_bytes == FLOAT32_BYTES else "8-bit"
    return Scheme(
        name=f"FP8 in blocks of {rows} x {columns}, {scale} scales",
        values=_BYTE,
        rows=rows,
        columns=columns,
        scale_bytes=scale_bytes,
    )


def _gptq_scheme(c: Config, bits: int, group: int, *, order: bool = True) -> Scheme:
    if bits not in (2, 3, 4, 8):
        raise _unknown(c, "bits", bits, "2, 3, 4 and 8")
    values = _packed(bits)
    return Scheme(
        name=f"INT{bits} {_per_group(group)}",
        values=values,
        columns=group,
        scale_bytes=2,
        zeros="packed",
        order_bytes=4 if order else 0,
        in_multiple=values.block_elems,
        out_multiple=values.block_elems,
    )


def _read_gptq(found: _Section) -> Recipe:
    """GPTQ of AutoGPTQ and GPTQModel: int32 words, float16 scales, zero points whether symmetric or not, g_idx.

    `dynamic` holds regular expressions, ``-:`` for modules to leave and ``+:`` (or nothing) for other settings.
    """
    c = found.config
    layout = c.text("checkpoint_format")
    if layout not in (None, "gptq", "gptq_v2"):
        raise _unknown(c, "checkpoint_format", layout, "gptq and gptq_v2")
    bits, group = c.count("bits", minimum=1, maximum=8), _group_size(c)
    scheme = _gptq_scheme(c, bits, group)
    dynamic = c.sub("dynamic")
    rules: list[Rule] = []
    listed = _strings(c, "modules_in_block_to_quantize")
    if listed:
        names = Names(listed, key=c.name("modules_in_block_to_quantize"), kind="substring")
        rules.append(Rule(scheme=None, names=names, others=True))
    for pattern in dynamic.data if dynamic is not None else ():
        expression = pattern.removeprefix("-:").removeprefix("+:")
        names = Names([f"re:{expression}"], key=c.name("dynamic"))
        if pattern.startswith("-:"):
            rules.append(Rule(scheme=None, names=names))
            continue
        changed = dynamic.sub(pattern)
        if changed is not None:
            own = _gptq_scheme(
                changed,
                changed.integer("bits", minimum=1, maximum=8) or bits,
                _group_size(changed, default=group),
            )
            rules.append(Rule(scheme=own, names=names))
    head = {Group.HEAD} if c.flag("lm_head") else set()
    return Recipe(
        method="gptq",
        describes=f"GPTQ {scheme.name}, float16 scales, zero points",
        scheme=scheme,
        groups=(_BODY - {Group.MTP}) | head,
        never=_NOT_LINEAR | _TOWERS | {Group.ROUTER},
        rules=tuple(rules),
    )


def _read_awq(found: _Section) -> Recipe:
    """AWQ of AutoAWQ: like GPTQ without g_idx."""
    c = found.config
    version = (c.text("version") or "gemm").lower()
    if version not in ("gemm", "gemv"):
        raise _unknown(c, "version", version, "gemm and gemv")
    bits = c.count("bits", "w_bit", minimum=1, maximum=8)
    group = _group_size(c)
    scheme = replace(_gptq_scheme(c, bits, group, order=False), in_multiple=group or 1)
    head = {Group.HEAD} if c.flag("lm_head") else set()
    return Recipe(
        method="awq",
        describes=f"AWQ {scheme.name}, float16 scales, zero points",
        scheme=scheme,
        groups=(_BODY - {Group.MTP}) | head,
        never=_NOT_LINEAR | _TOWERS | {Group.ROUTER},
        rules=_kept(c, "modules_to_not_convert", kind="substring"),
    )


def _read_fp8(found: _Section) -> Recipe:
    """FP8 as DeepSeek, Qwen, GLM, MiniMax store it: in blocks, or per tensor without `weight_block_size`.

    DeepSeek-V4 packs its experts apart (`expert_dtype`), or ModelOpt did (`moe_quant_algo`); its scales are then one
    byte. vLLM quantizes linear layers only, so the head stays.
    """
    c = found.config
    expert_dtype = found.outer("expert_dtype") or EXPERT_DTYPE_DEFAULTS.get(str(found.outer("model_type")))
    if expert_dtype not in (None, "fp4", "fp8"):
        raise _unknown(Config(found.model), "expert_dtype", expert_dtype, "fp4 and fp8")
    blocks = c.integers("weight_block_size", minimum=1, maximum=MAX_GROUP)
    if blocks is None:
        static = c.text("activation_scheme") == "static"
        scheme = FP8_TENSOR if static else replace(FP8_TENSOR, matrix_bytes=0)
    elif len(blocks) == 2:  # noqa: PLR2004 - rows and columns
        scheme = _fp8_blocks(blocks[0], blocks[1], scale_bytes=1 if expert_dtype == "fp4" else FLOAT32_BYTES)
    else:
        raise InputError(
            f"{c.name('weight_block_size')} must be two integers, found {len(blocks)}; check the config."
        )
    rules = _kept(c, "ignored_layers") or _kept(c, "modules_to_not_convert")
    describes = scheme.name
    if expert_dtype == "fp4" or c.text("store_dtype") == "mxfp4":
        experts, extra = _fp4_experts(c)
        rules += extra
        describes += f", experts in {experts.name}"
    return Recipe(
        method="fp8",
        describes=describes,
        scheme=scheme,
        never=_NOT_LINEAR | {Group.ROUTER, Group.HEAD},
        rules=rules,
    )


def _fp4_experts(c: Config) -> tuple[Scheme, tuple[Rule, ...]]:
    """Return the scheme of 4-bit experts and its rules: MXFP4, or NVFP4 but for what `ignore` lists."""
    algorithm = c.text("moe_quant_algo")
    native = Rule(scheme=MXFP4, group=Group.EXPERTS)
    if algorithm is None:
        return MXFP4, (native,)
    if algorithm.upper() != "NVFP4":
        raise _unknown(c, "moe_quant_algo", algorithm, "NVFP4")
    ignored = _strings(c, "ignore")
    left = (replace(native, names=Names(ignored, key=c.name("ignore"))),) if ignored else ()
    return NVFP4, (*left, Rule(scheme=NVFP4, group=Group.EXPERTS))


def _read_fbgemm_fp8(found: _Section) -> Recipe:
    """FP8 of FBGEMM: a float32 scale an output row."""
    return Recipe(
        method="fbgemm_fp8",
        describes=f"{FP8_CHANNEL.name}, float32 scales",
        scheme=FP8_CHANNEL,
        never=_NOT_LINEAR | {Group.ROUTER, Group.HEAD},
        rules=_kept(found.config, "modules_to_not_convert"),
    )


def _read_mxfp4(found: _Section) -> Recipe:
    """MXFP4 of gpt-oss: the experts alone (vLLM 0.32, mxfp4.py: linear layers are not implemented)."""
    return Recipe(
        method="mxfp4",
        describes="MXFP4 experts in groups of 32, 8-bit scales",
        scheme=MXFP4,
        groups=frozenset({Group.EXPERTS}),
        rules=_kept(found.config, "modules_to_not_convert"),
    )


def _read_mxfp8(found: _Section) -> Recipe:
    """MXFP8 as MiniMax stores it; the same layout as ModelOpt's."""
    return Recipe(
        method="mxfp8",
        describes="MXFP8 in groups of 32, 8-bit scales",
        scheme=MXFP8,
        groups=_BODY | {Group.HEAD},
        never=_NOT_LINEAR | _TOWERS | {Group.ROUTER},
        rules=_kept(found.config, "ignored_layers", "modules_to_not_convert"),
    )


def _read_bitsandbytes(found: _Section) -> Recipe | None:
    """LLM.int8 (a float32 scale an output row and a byte a matrix), or 4-bit blocks of 64 over the whole matrix.

    The JSON text that bitsandbytes stores beside each 4-bit matrix (some 100 bytes) is not counted; it is read by
    the host. An explicit skip list replaces the default, which is the head (transformers 5.24, quantizers/base.py).
    """
    c = found.config
    eight, four = c.flag("load_in_8bit", "_load_in_8bit"), c.flag("load_in_4bit", "_load_in_4bit")
    if eight and four:
        raise InputError(
            f"{c.name('load_in_8bit')} and load_in_4bit are both true; only one can be, check the config."
        )
    if not eight and not four:
        return None
    if eight:
        scheme = Scheme(name="LLM.int8", values=_BYTE, matrix_bytes=1)
        describes = "bitsandbytes LLM.int8, a float32 scale a row"
    else:
        kind = c.text("bnb_4bit_quant_type") or "fp4"
        if kind not in ("fp4", "nf4"):
            raise _unknown(c, "bnb_4bit_quant_type", kind, "fp4 and nf4")
        twice = c.flag("bnb_4bit_use_double_quant")
        scheme = Scheme(
            name=kind.upper(),
            values=_NIBBLES,
            columns=64,
            scale_bytes=1 if twice else FLOAT32_BYTES,
            superblock=256 if twice else 0,
            matrix_bytes=FLOAT32_BYTES * (16 + (256 if twice else 0)),  # the codes of values, and of scales
            flat=True,
        )
        describes = f"bitsandbytes {scheme.name} in blocks of 64{', double quantization' if twice else ''}"
    skipped = _kept(c, "llm_int8_skip_modules")
    default = c.data.get("llm_int8_skip_modules") is None
    return Recipe(
        method="bitsandbytes",
        describes=describes,
        scheme=scheme,
        groups=_BODY | _TOWERS | (set() if default else {Group.HEAD}),
        rules=skipped,
    )


# --- compressed-tensors ---------------------------------------------------------------------------------------------

_CT_FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mxfp8-quantized",
)


def _read_compressed_tensors(found: _Section) -> Recipe | None:
    """compressed-tensors: groups of targets, each with its own scheme, and a list of modules to leave.

    ``Linear`` targets every linear layer, also the experts; other targets are module names or ``re:`` expressions and
    are tried first (vllm/.../compressed_tensors/utils.py, find_matched_target).
    """
    c = found.config
    sparsity = c.sub("sparsity_config")
    if sparsity is not None and sparsity.text("format") not in (None, "dense"):
        raise _unknown(sparsity, "format", sparsity.text("format"), "dense")
    groups = c.sub("config_groups")
    rules = list(_kept(c, "ignore", kind="whole"))
    fallback: Scheme | None = None
    names: list[str] = []
    embeddings = False
    for key in groups.data if groups is not None else ():
        group = groups.sub(key)
        if group is None:
            continue
        targets = _strings(group, "targets") or []
        if all(target.endswith("Attention") for target in targets):
            continue  # scales of the KV cache
        scheme = _ct_scheme(c, group)
        names.append(scheme.name if scheme is not None else "unquantized")
        named = []
        for target in targets:
            if target == "Linear":
                fallback = scheme
            elif target == "Embedding":
                embeddings = True
                rules.append(Rule(scheme=scheme, group=Group.EMBEDDINGS))
            elif _is_class(target):
                raise _unknown(
                    group, "targets", target, "Linear, Embedding, module names and re: expressions"
                )
            else:
                named.append(target)
        if named:
            rules.append(Rule(scheme=scheme, names=Names(named, key=group.name("targets"), kind="whole")))
    if not names:
        return None
    return Recipe(
        method="compressed-tensors",
        describes=f"compressed-tensors {' and '.join(dict.fromkeys(names))}",
        scheme=fallback,
        groups=_BODY | _TOWERS | {Group.HEAD},
        never=frozenset({Group.NORMS, Group.ROUTER} | (set() if embeddings else {Group.EMBEDDINGS})),
        rules=tuple(rules),
        kv_cache_dtype="fp8" if c.has("kv_cache_scheme") else None,
    )


def _is_class(target: str) -> bool:
    """Whether a target without dots is a class name such as ``Qwen3MoeSparseMoeBlock`` and not a module's."""
    return not target.startswith("re:") and "." not in target and target[:1].isupper()


def _ct_scheme(c: Config, group: Config) -> Scheme | None:
    """Return the scheme of one group (compressed_tensors/quantization/quant_args.py and compressors/, 0.17)."""
    weights = group.sub("weights")
    if weights is None:
        return None
    layout = group.text("format") or c.text("format")
    if layout not in _CT_FORMATS:
        raise _unknown(c, "format", layout, ", ".join(_CT_FORMATS))
    bits = weights.integer("num_bits", minimum=1, maximum=8) or 8
    size = weights.data.get("group_size")
    columns = 0 if size in (None, -1) else weights.count("group_size", minimum=1, maximum=MAX_GROUP)
    strategy = weights.text("strategy") or ("group" if columns else "channel" if size == -1 else "tensor")
    activations = group.sub("input_activations")
    static = activations is not None and activations.data.get("dynamic") in (False, "local")
    scale = weights.text("scale_dtype")
    scale_bytes = dtype_bytes(scale) if scale else None
    kind = "FP" if weights.text("type") == "float" else "INT"
    if layout == "nvfp4-pack-quantized":
        scalars = FLOAT32_BYTES * (2 if activations is not None else 1)
        return replace(NVFP4, columns=columns or NVFP4.columns, matrix_bytes=scalars)
    if layout == "mxfp4-pack-quantized":
        return replace(MXFP4, columns=columns or MXFP4.columns)
    if layout == "mxfp8-quantized":
        return replace(MXFP8, columns=columns or MXFP8.columns)
    symmetric = weights.flag("symmetric", default=True)
    packed = layout == "pack-quantized"
    if not packed and bits != 8:  # noqa: PLR2004 - these layouts store whole bytes
        kind = f"{kind}{bits} in bytes"
    rows, span, where = _ct_blocks(weights, strategy, columns)
    return Scheme(
        name=f"{kind}{'' if 'bytes' in kind else bits} {where}",
        values=_packed(bits, across_words=False) if packed else _BYTE,
        rows=rows,
        columns=span,
        scale_bytes=scale_bytes,
        zeros="none" if symmetric else "packed" if packed else "byte",
        matrix_bytes=(16 if packed else 0) + (2 if static else 0),  # weight_shape (two int64); input_scale
        order_bytes=4 if weights.data.get("actorder") in ("group", "dynamic", True) else 0,
    )


def _ct_blocks(weights: Config, strategy: str, columns: int) -> tuple[int, int, str]:
    """Return (rows, columns) that share a scale and how to say so."""
    if strategy == "tensor":
        return 0, 0, "per tensor"
    if strategy in ("channel", "token"):
        return 1, 0, "per channel"
    if strategy in ("group", "tensor_group") and columns:
        return 1, columns, f"in groups of {columns}"
    if strategy == "block":
        text = weights.data.get("block_structure")
        sides = text.split("x") if isinstance(text, str) else text
        try:
            rows, span = (int(side) for side in sides)
        except (TypeError, ValueError):
            rows = span = 0
        if rows < 1 or span < 1:
            raise InputError(
                f"{weights.name('block_structure')} must be two sizes of a block; check the config."
            )
        return rows, span, f"in blocks of {rows} x {span}"
    raise _unknown(weights, "strategy", strategy, "tensor, channel, group, block")


# --- ModelOpt -------------------------------------------------------------------------------------------------------

_MODELOPT_SCHEMES = {
    "FP8": replace(FP8_TENSOR, name="FP8 per tensor"),
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    "FP8_PB_WO": _fp8_blocks(128, 128),
    "FP8_BLOCK_SCALES": _fp8_blocks(128, 128),
    "NVFP4": NVFP4,
    "W4A16_NVFP4": replace(NVFP4, name="NVFP4 (weights only)", matrix_bytes=FLOAT32_BYTES),
    "MXFP8": MXFP8,
}
"""By `quant_algo` (vLLM 0.32, modelopt.py, LINEAR_ALGOS and resolve)."""

_MODELOPT_KV = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}
_MIXED = "MIXED_PRECISION"


def _read_modelopt(found: _Section) -> Recipe:
    """ModelOpt: one algorithm for all but the excluded modules, or a map of modules to algorithms.

    The section is flat in `config.json` and nested under ``quantization`` in `hf_quant_config.json`. A file without
    any exclusion list is taken to exclude the head, as ModelOpt's own recipes do.
    """
    c = found.config.sub("quantization") or found.config
    algorithm = (c.text("quant_algo") or "").upper()
    kv = _modelopt_kv(c)
    if not algorithm:
        return Recipe(method="modelopt", describes="weights not quantized", scheme=None, kv_cache_dtype=kv)
    excluded = _kept(c, "exclude_modules", "ignore", "ignored_layers")
    if algorithm == _MIXED:
        rules, described = _modelopt_layers(c)
        return Recipe(
            method="modelopt",
            describes=f"ModelOpt {described}, by module",
            scheme=None,
            never=_NOT_LINEAR,
            rules=excluded + rules,
            kv_cache_dtype=kv,
        )
    scheme = _modelopt_scheme(c, algorithm, c)
    silent = not any(c.has(key) for key in ("exclude_modules", "ignore", "ignored_layers"))
    return Recipe(
        method="modelopt",
        describes=f"ModelOpt {scheme.name}",
        scheme=scheme,
        groups=_BODY if silent else _BODY | {Group.HEAD},
        never=_NOT_LINEAR | _TOWERS | {Group.ROUTER},
        rules=excluded,
        kv_cache_dtype=kv,
        assumptions=("the quantization config lists no excluded modules; the output head is taken to be one",)
        if silent
        else (),
    )


def _modelopt_scheme(c: Config, algorithm: str, settings: Config) -> Scheme:
    scheme = _MODELOPT_SCHEMES.get(algorithm)
    if scheme is None:
        raise _unknown(c, "quant_algo", algorithm, f"{', '.join(_MODELOPT_SCHEMES)} and {_MIXED}")
    if scheme.values is _NIBBLES and settings.has("group_size"):
        return replace(scheme, columns=settings.count("group_size", minimum=1, maximum=MAX_GROUP))
    return scheme


def _modelopt_layers(c: Config) -> tuple[tuple[Rule, ...], str]:
    """Return the rules of a `quantized_layers` map and the algorithms in it."""
    layers = c.sub("quantized_layers")
    if layers is None or not layers.data:
        raise CannotTell(
            f"{c.name('quantized_layers')} is missing, so which modules are quantized is unknown; "
            "give the complete quantization config.",
            key=c.name("quantized_layers"),
        )
    modules: dict[Scheme, list[str]] = {}
    for name in layers.data:
        entry = layers.sub(name)
        if entry is not None:
            algorithm = (entry.text("quant_algo") or "").upper()
            modules.setdefault(_modelopt_scheme(entry, algorithm, entry), []).append(name)
    rules = tuple(
        Rule(scheme=scheme, names=Names(names, key=c.name("quantized_layers")))
        for scheme, names in modules.items()
    )
    return rules, " and ".join(dict.fromkeys(scheme.name for scheme in modules))


def _modelopt_kv(c: Config) -> str | None:
    """Return the KV cache type that the section declares (vllm/utils/torch_utils.py, get_kv_cache_quant_algo_string)."""
    declared = c.raw("kv_cache_scheme", "kv_cache_quant_algo")
    if isinstance(declared, dict):
        kind = (declared.get("type"), declared.get("num_bits"))
        if kind == ("float", 8) and declared.get("dynamic") is False:
            return _MODELOPT_KV["FP8"]
        return _MODELOPT_KV["NVFP4"] if kind == ("float", 4) else None
    return _MODELOPT_KV.get(declared.upper()) if isinstance(declared, str) else None


# --- MLX ------------------------------------------------------------------------------------------------------------

_MLX_FLOATS = {"mxfp4": MXFP4, "mxfp8": MXFP8, "nvfp4": replace(NVFP4, matrix_bytes=0)}


def _read_mlx(found: _Section) -> Recipe:
    """MLX: embeddings and head are packed too; entries named like modules are settings of their own or false.

    A matrix whose rows are no multiple of the group stays as it is. Routers are packed only if the config names them
    (mlx_lm, models/*: their class decides).
    """
    c = found.config
    scheme = _mlx_scheme(c, None)
    own: dict[Scheme | None, list[str]] = {}
    for key, value in c.data.items():
        if "." not in key and key not in ("lm_head", "embed_tokens"):
            continue
        settings = c.sub(key) if isinstance(value, dict) else None
        if settings is not None:
            own.setdefault(_mlx_scheme(settings, c), []).append(key)
        elif value is False:
            own.setdefault(None, []).append(key)
    return Recipe(
        method="mlx",
        describes=f"MLX {scheme.name}, embeddings included",
        scheme=scheme,
        groups=_BODY | _TOWERS | {Group.HEAD, Group.EMBEDDINGS},
        never=frozenset({Group.NORMS}),
        rules=tuple(Rule(scheme=each, names=Names(names, key=c.name("*"))) for each, names in own.items()),
    )


def _mlx_scheme(c: Config, around: Config | None) -> Scheme:
    mode = c.text("mode") or (around.text("mode") if around is not None else None) or "affine"
    group = c.integer("group_size", minimum=1, maximum=MAX_GROUP)
    if mode in _MLX_FLOATS:
        plain = _MLX_FLOATS[mode]
        return replace(plain, columns=group or plain.columns, in_multiple=group or plain.columns)
    if mode != "affine":
        raise _unknown(c, "mode", mode, f"affine, {', '.join(_MLX_FLOATS)}")
    bits = c.count("bits", minimum=1, maximum=8)
    size = group or (around.count("group_size", minimum=1, maximum=MAX_GROUP) if around is not None else 0)
    size = size or c.count("group_size", minimum=1, maximum=MAX_GROUP)
    return Scheme(
        name=f"{bits}-bit in groups of {size}",
        values=_packed(bits),
        columns=size,
        scale_bytes=None,
        zeros="scale",
        in_multiple=size,
    )


_READERS: dict[str, Callable[[_Section], Recipe | None]] = {
    "gptq": _read_gptq,
    "gptq-marlin": _read_gptq,
    "auto-gptq": _read_gptq,
    "awq": _read_awq,
    "awq-marlin": _read_awq,
    "auto-awq": _read_awq,
    "fp8": _read_fp8,
    "deepseek-v4-fp8": _read_fp8,
    "fbgemm-fp8": _read_fbgemm_fp8,
    "compressed-tensors": _read_compressed_tensors,
    "modelopt": _read_modelopt,
    "modelopt-fp4": _read_modelopt,
    "modelopt-mixed": _read_modelopt,
    "modelopt-mxfp8": _read_modelopt,
    "mxfp4": _read_mxfp4,
    "gpt-oss-mxfp4": _read_mxfp4,
    "mxfp8": _read_mxfp8,
    "bitsandbytes": _read_bitsandbytes,
    "mlx": _read_mlx,
}
