"""Readers of quantization sections, one a method; `kvbudget.model.schemes` says what a recipe is.

Each reader names the tool that writes the section and where its layout was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.formats import Format, dtype_bytes
from kvbudget.model.config import Config
from kvbudget.model.module_names import Names
from kvbudget.model.schemes import BODY, FLOAT32_BYTES, TOWERS, Recipe, Rule, Scheme
from kvbudget.model.shapes import Group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAX_GROUP = 1 << 20
"""No format shares a scale over more values; a larger group is a broken file."""

FIXED = frozenset({Group.EMBEDDINGS, Group.NORMS, Group.ROUTER})
"""Parts that most methods never touch."""

EXPERT_DTYPE_DEFAULTS = {"deepseek_v4": "fp4", "deepseek_v41": "fp4"}
"""What a missing `expert_dtype` means, by model type (vllm/models/deepseek_v4/quant_config.py, 0.32)."""


NESTED_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
"""The sub-configs of multimodal models that may hold a section of their own."""


class Section(NamedTuple):
    """A quantization section and the whole config around it; `nested` if it stands in a sub-config."""

    config: Config
    model: Mapping[str, Any]
    nested: bool = False

    def outer(self, key: str) -> Any:  # noqa: ANN401 - JSON has no narrower type
        """Return the value of `key` in the model's config or a sub-config, None if there is none."""
        for part in (self.model, *(self.model.get(name) for name in NESTED_KEYS)):
            if isinstance(part, Mapping) and part.get(key) is not None:
                return part[key]
        return None


def read_section(found: Section) -> Recipe | None:
    """Return the recipe that a quantization section describes, None if it quantizes nothing.

    Raises:
        CannotTell: The method, or a variant of it, is not known; `key` names what says so.
        InputError: The section is broken or contradicts itself.
    """
    method = _method(found.config)
    reader = _READERS.get(method)
    if reader is None:
        raise _unknown(found.config, "quant_method", method, ", ".join(METHODS))
    return reader(found)


def _method(c: Config) -> str:
    """Return the method in lower case, from `quant_method` or from the keys that only one method writes."""
    named = c.text("quant_method")
    if named:
        return named.lower().replace("_", "-")
    if c.has("quant_algo") or isinstance(c.data.get("quantization"), Mapping):
        return "modelopt"
    for key, method in (("load_in_8bit", "bitsandbytes"), ("config_groups", "compressed-tensors")):
        if c.has(key):
            return method
    if c.has("bits") and c.has("group_size"):
        return "mlx"
    raise CannotTell(
        f"{c.name('quant_method')} is missing, so the size of the weights is unknown; add it to the config.",
        key=c.name("quant_method"),
    )


def _strings(c: Config, *keys: str) -> list[str] | None:
    """Return a list of names, one level of nesting flattened; None if none of `keys` is there."""
    for key in keys:
        value = c.data.get(key)
        if value is None:
            continue
        items = value if isinstance(value, list) else [None]
        flat = [name for item in items for name in (item if isinstance(item, list) else [item])]
        names = [name for name in flat if isinstance(name, str)]
        if len(names) < len(flat):
            raise InputError(f"{c.name(key)} must be a list of module names; check the config.")
        return names
    return None


def _unknown(c: Config, key: str, value: object, known: str) -> CannotTell:
    return CannotTell(
        f"{c.name(key)} {str(value)[:40]!r} is not known to this version of kvbudget, "
        f"so the size of the weights is unknown; known are {known}.",
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


def _kept(c: Config, *keys: str, kind: Literal["module", "whole", "substring"] = "module") -> tuple[Rule, ...]:
    """Return the rule that keeps the modules of a list unquantized; none without a list."""
    entries = _strings(c, *keys)
    return (Rule(scheme=None, names=Names(entries, key=c.name(keys[0]), kind=kind)),) if entries else ()


def _per_group(columns: int) -> str:
    return f"in groups of {columns}" if columns else "with one group a row"


_SOURCE = "the method that packs it"


def _packed(bits: int, *, word_bits: int = 32, across_words: bool = True) -> Format:
    """Return how integers of `bits` are packed into words of `word_bits`.

    Widths that do not divide a word run across its border (AutoGPTQ, MLX) or leave the rest of the word empty
    (compressed-tensors).
    """
    if word_bits % bits == 0 or not across_words:
        return Format(name=f"int{bits}", block_elems=word_bits // bits, block_bytes=word_bits // 8, source=_SOURCE)
    return Format(name=f"int{bits}", block_elems=word_bits, block_bytes=bits * word_bits // 8, source=_SOURCE)


_BYTE = Format(name="8-bit", block_elems=1, block_bytes=1, source=_SOURCE)
_NIBBLES = Format(name="4-bit", block_elems=2, block_bytes=1, source=_SOURCE)

MXFP4 = Scheme(name="MXFP4", values=_NIBBLES, columns=32, scale_bytes=1, in_multiple=32)
MXFP8 = Scheme(name="MXFP8", values=_BYTE, columns=32, scale_bytes=1, in_multiple=32)
NVFP4 = Scheme(name="NVFP4", values=_NIBBLES, columns=16, scale_bytes=1, matrix_bytes=2 * FLOAT32_BYTES, in_multiple=16)
FP8_TENSOR = Scheme(name="FP8 per tensor", values=_BYTE, rows=0, matrix_bytes=FLOAT32_BYTES)
FP8_CHANNEL = Scheme(name="FP8 per channel", values=_BYTE)


def fp8_blocks(rows: int, columns: int, *, scale_bytes: int = FLOAT32_BYTES) -> Scheme:
    """Return FP8 with a scale for each block of `rows` x `columns`."""
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


def _read_gptq(found: Section) -> Recipe:
    """GPTQ of AutoGPTQ and GPTQModel: int32 words, float16 scales, g_idx, zero points even if symmetric.

    `dynamic` holds regular expressions: ``-:`` for modules to leave, ``+:`` or nothing for other settings
    (vLLM 0.32, auto_gptq.py and utils/gptq_utils.py).
    """
    c = found.config
    layout = c.text("checkpoint_format")
    if layout not in (None, "gptq", "gptq_v2"):
        raise _unknown(c, "checkpoint_format", layout, "gptq and gptq_v2")
    bits, group = c.count("bits", minimum=1, maximum=8), _group_size(c)
    scheme = _gptq_scheme(c, bits, group)
    rules: tuple[Rule, ...] = ()
    listed = _strings(c, "modules_in_block_to_quantize")
    if listed:
        names = Names(listed, key=c.name("modules_in_block_to_quantize"), kind="substring")
        rules = (Rule(scheme=None, names=names, others=True),)
    dynamic = c.sub("dynamic")
    if dynamic is not None:
        rules += tuple(_gptq_rules(dynamic, bits, group))
    head = {Group.HEAD} if c.flag("lm_head") else set()
    return Recipe(
        method="gptq",
        describes=f"GPTQ {scheme.name}, float16 scales, zero points",
        scheme=scheme,
        groups=(BODY - {Group.MTP}) | head,
        never=FIXED | TOWERS,
        rules=rules,
    )


def _gptq_rules(dynamic: Config, bits: int, group: int) -> Iterator[Rule]:
    """Yield the rules of `dynamic`; those without a setting of their own keep that of the file."""
    for pattern, settings in dynamic.data.items():
        names = Names([f"re:{pattern.removeprefix('-:').removeprefix('+:')}"], key=dynamic.path.rstrip("."))
        if pattern.startswith("-:"):
            yield Rule(scheme=None, names=names)
        elif settings:
            c = dynamic.sub(pattern) or dynamic
            own_bits = c.integer("bits", minimum=1, maximum=8) or bits
            yield Rule(scheme=_gptq_scheme(c, own_bits, _group_size(c, default=group)), names=names)


def _read_awq(found: Section) -> Recipe:
    """AWQ of AutoAWQ: like GPTQ without g_idx (vLLM 0.32, auto_awq.py)."""
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
        groups=(BODY - {Group.MTP}) | head,
        never=FIXED | TOWERS,
        rules=_kept(c, "modules_to_not_convert", kind="substring"),
    )


def _read_fp8(found: Section) -> Recipe:
    """FP8 as DeepSeek, Qwen, GLM, MiniMax store it: in blocks, or per tensor without `weight_block_size`.

    DeepSeek-V4 packs its experts in 4 bits (`expert_dtype`), as ModelOpt does again (`moe_quant_algo`); the
    scales of its blocks are then one byte. The head stays, because vLLM quantizes linear layers only (vLLM
    0.32, fp8.py, models/deepseek_v4/quant_config.py).
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
        scheme = fp8_blocks(blocks[0], blocks[1], scale_bytes=1 if expert_dtype == "fp4" else FLOAT32_BYTES)
    else:
        raise InputError(f"{c.name('weight_block_size')} must be two integers, found {len(blocks)}; check the config.")
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
        groups=BODY | TOWERS,
        never=FIXED | {Group.HEAD},
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


def _read_fbgemm_fp8(found: Section) -> Recipe:
    """FP8 of FBGEMM: a float32 scale an output row."""
    return Recipe(
        method="fbgemm_fp8",
        describes=f"{FP8_CHANNEL.name}, float32 scales",
        scheme=FP8_CHANNEL,
        groups=BODY | TOWERS,
        never=FIXED | {Group.HEAD},
        rules=_kept(found.config, "modules_to_not_convert"),
    )


def _read_mxfp4(found: Section) -> Recipe:
    """MXFP4 of gpt-oss: the experts alone (vLLM 0.32, mxfp4.py: linear layers are not implemented)."""
    return Recipe(
        method="mxfp4",
        describes="MXFP4 experts in groups of 32, 8-bit scales",
        scheme=MXFP4,
        groups=frozenset({Group.EXPERTS}),
        rules=_kept(found.config, "modules_to_not_convert"),
    )


def _read_mxfp8(found: Section) -> Recipe:
    """MXFP8 as MiniMax stores it; the same layout as ModelOpt's."""
    return Recipe(
        method="mxfp8",
        describes="MXFP8 in groups of 32, 8-bit scales",
        scheme=MXFP8,
        groups=BODY | {Group.HEAD},
        never=FIXED | TOWERS,
        rules=_kept(found.config, "ignored_layers", "modules_to_not_convert"),
    )


def _read_bitsandbytes(found: Section) -> Recipe | None:
    """LLM.int8 (a float32 scale a row and a byte a matrix), or 4-bit blocks of 64 over the whole matrix.

    The JSON text that stands beside each 4-bit matrix (some 100 bytes) is not counted; the host reads it. A
    skip list replaces the default, which is the head (transformers 5.24, quantizers/base.py; bitsandbytes
    0.50.2).
    """
    c = found.config
    eight, four = c.flag("load_in_8bit", "_load_in_8bit"), c.flag("load_in_4bit", "_load_in_4bit")
    if eight and four:
        raise InputError(f"{c.name('load_in_8bit')} and load_in_4bit are both true; only one can be, check the config.")
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
        groups=BODY | TOWERS | (set() if default else {Group.HEAD}),
        rules=skipped,
    )


_CT_PLAIN = ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized")
_CT_FLOATS = {"nvfp4-pack-quantized": NVFP4, "mxfp4-pack-quantized": MXFP4, "mxfp8-quantized": MXFP8}

WEIGHT_SHAPE_BYTES = 16
"""compressed-tensors keeps the shape of a packed matrix beside it, two int64."""


def _read_compressed_tensors(found: Section) -> Recipe | None:
    """compressed-tensors: groups of targets, each with its own scheme, and a list of modules to leave.

    ``Linear`` targets every linear layer, experts too; other targets are module names or ``re:`` expressions
    and are tried first (vLLM 0.32, compressed_tensors/utils.py, find_matched_target).
    """
    c = found.config
    sparsity = c.sub("sparsity_config")
    if sparsity is not None and sparsity.text("format") not in (None, "dense"):
        raise _unknown(sparsity, "format", sparsity.text("format"), "dense")
    groups = c.sub("config_groups")
    rules = _kept(c, "ignore", kind="whole")
    schemes: dict[str, Scheme | None] = {}
    described: list[str] = []
    for group in _ct_groups(groups) if groups is not None else ():
        scheme = _ct_scheme(c, group)
        described.append(scheme.name if scheme is not None else "unquantized")
        named = []
        for target in _strings(group, "targets") or ():
            if _is_class(target):
                schemes[target] = scheme
            else:
                named.append(target)
        if named:
            names = Names(named, key=group.name("targets"), kind="whole")
            rules += (Rule(scheme=scheme, names=names),)
    if not described:
        return None
    if not schemes.keys() <= {"Linear", "Embedding"}:
        known = "Linear, Embedding, module names and re: expressions"
        raise _unknown(c, "config_groups", min(schemes.keys() - {"Linear", "Embedding"}), known)
    if "Embedding" in schemes:
        rules += (Rule(scheme=schemes["Embedding"], group=Group.EMBEDDINGS),)
    return Recipe(
        method="compressed-tensors",
        describes=f"compressed-tensors {' and '.join(dict.fromkeys(described))}",
        scheme=schemes.get("Linear"),
        groups=BODY | TOWERS | {Group.HEAD},
        never=FIXED - {Group.EMBEDDINGS} if "Embedding" in schemes else FIXED,
        rules=rules,
        kv_cache_dtype="fp8" if c.has("kv_cache_scheme") else None,
    )


def _ct_groups(groups: Config) -> Iterator[Config]:
    """Yield the groups about weights; those that target attention modules are about the KV cache."""
    for key in groups.data:
        group = groups.sub(key)
        if group is None:
            continue
        targets = _strings(group, "targets")
        if not targets:
            raise InputError(f"{group.name('targets')} must list what the scheme is for; check the config.")
        if not all(name.endswith("Attention") for name in targets):
            yield group


def _is_class(target: str) -> bool:
    """Whether a target without dots is a class name such as ``Qwen3MoeSparseMoeBlock`` and not a module's."""
    return not target.startswith("re:") and "." not in target and target[:1].isupper()


def _ct_scheme(c: Config, group: Config) -> Scheme | None:
    """Return the scheme of one group (compressed-tensors 0.17, quant_args.py and compressors)."""
    weights = group.sub("weights")
    if weights is None:
        return None
    layout = group.text("format") or c.text("format")
    columns = _group_size(weights, default=0)
    if layout in _CT_FLOATS:
        plain = _CT_FLOATS[layout]
        columns = columns or plain.columns
        scalars = plain.matrix_bytes if group.has("input_activations") else plain.matrix_bytes // 2
        return replace(plain, columns=columns, in_multiple=columns, matrix_bytes=scalars)
    if layout not in _CT_PLAIN:
        raise _unknown(c, "format", layout, ", ".join((*_CT_PLAIN, *_CT_FLOATS)))
    bits = weights.integer("num_bits", minimum=1, maximum=8) or 8
    packed = layout == _CT_PLAIN[0]
    rows, span, where = _ct_blocks(weights, columns)
    scale = weights.text("scale_dtype")
    kind = "FP" if weights.text("type") == "float" else "INT"
    return Scheme(
        name=f"{kind}{bits} {where}" if packed or bits == _BYTE.bits else f"{kind}{bits} in whole bytes {where}",
        values=_packed(bits, across_words=False) if packed else _BYTE,
        rows=rows,
        columns=span,
        scale_bytes=dtype_bytes(scale) if scale else None,
        zeros="none" if weights.flag("symmetric", default=True) else "packed" if packed else "byte",
        matrix_bytes=WEIGHT_SHAPE_BYTES if packed else 0,
        order_bytes=4 if weights.data.get("actorder") in ("group", "dynamic", True) else 0,
    )


def _ct_blocks(weights: Config, columns: int) -> tuple[int, int, str]:
    """Return (rows, columns) that share a scale and its name; the group size stands in for a strategy."""
    strategy = weights.text("strategy")
    if strategy is None:
        strategy = "group" if columns else "channel" if weights.has("group_size") else "tensor"
    if strategy == "tensor":
        return 0, 0, "per tensor"
    if strategy == "channel":
        return 1, 0, "per channel"
    if strategy == "group":
        size = columns or weights.count("group_size", minimum=1, maximum=MAX_GROUP)
        return 1, size, f"in groups of {size}"
    if strategy == "block":
        sides = weights.data.get("block_structure")
        sides = sides.split("x") if isinstance(sides, str) else sides
        if not isinstance(sides, list) or [str(side).isdecimal() for side in sides] != [True, True]:
            raise InputError(f"{weights.name('block_structure')} must be two sizes; check the config.")
        rows, span = (weights.checked(int(side), "block_structure", minimum=1) for side in sides)
        return rows, span, f"in blocks of {rows} x {span}"
    raise _unknown(weights, "strategy", strategy, "tensor, channel, group and block")


_MODELOPT_SCHEMES = {
    "FP8": FP8_TENSOR,
    "FP8_PER_CHANNEL_PER_TOKEN": FP8_CHANNEL,
    "FP8_PB_WO": fp8_blocks(128, 128),
    "FP8_BLOCK_SCALES": fp8_blocks(128, 128),
    "NVFP4": NVFP4,
    "W4A16_NVFP4": replace(NVFP4, name="NVFP4 (weights only)", matrix_bytes=FLOAT32_BYTES),
    "MXFP8": MXFP8,
}
"""By `quant_algo` (vLLM 0.32, modelopt.py, LINEAR_ALGOS and resolve)."""

_MODELOPT_KV = {"FP8": "fp8_e4m3", "NVFP4": "nvfp4"}
_MIXED = "MIXED_PRECISION"


def _read_modelopt(found: Section) -> Recipe:
    """ModelOpt: one algorithm for all but the excluded modules, or a map of modules to algorithms.

    The section is flat in `config.json` and nested under ``quantization`` in `hf_quant_config.json`. A file
    without any exclusion list is taken to exclude the head, as ModelOpt's own recipes do (vLLM 0.32,
    modelopt.py).
    """
    c = found.config.sub("quantization") or found.config
    algorithm = (c.text("quant_algo") or "").upper()
    kv = _modelopt_kv(c) if _seen_by_vllm(found.config) else None
    if not algorithm:
        return Recipe(method="modelopt", describes="weights not quantized", scheme=None, kv_cache_dtype=kv)
    excluded = _kept(c, "exclude_modules", "ignore", "ignored_layers")
    if algorithm == _MIXED:
        rules, described = _modelopt_layers(c)
        return Recipe(
            method="modelopt_mixed",
            describes=f"ModelOpt {described}, by module",
            scheme=None,
            never=FIXED - {Group.ROUTER},
            rules=excluded + rules,
            kv_cache_dtype=kv,
        )
    scheme = _modelopt_scheme(c, algorithm)
    silent = not any(c.has(key) for key in ("exclude_modules", "ignore", "ignored_layers"))
    return Recipe(
        method="modelopt" + ("_fp4" if "FP4" in algorithm else "_mxfp8" if "MXFP8" in algorithm else ""),
        describes=f"ModelOpt {scheme.name}",
        scheme=scheme,
        groups=BODY if silent else BODY | {Group.HEAD},
        never=FIXED | TOWERS,
        rules=excluded,
        kv_cache_dtype=kv,
        assumptions=("the quantization config lists no excluded modules; the output head is taken to be one",)
        if silent
        else (),
    )


def _modelopt_scheme(c: Config, algorithm: str) -> Scheme:
    scheme = _MODELOPT_SCHEMES.get(algorithm)
    if scheme is None:
        raise _unknown(c, "quant_algo", algorithm, f"{', '.join(_MODELOPT_SCHEMES)} and {_MIXED}")
    if scheme.values is _NIBBLES and c.has("group_size"):
        columns = c.count("group_size", minimum=1, maximum=MAX_GROUP)
        return replace(scheme, columns=columns, in_multiple=columns)
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
            modules.setdefault(_modelopt_scheme(entry, algorithm), []).append(name)
    rules = tuple(
        Rule(scheme=scheme, names=Names(names, key=c.name("quantized_layers"))) for scheme, names in modules.items()
    )
    return rules, " and ".join(dict.fromkeys(scheme.name for scheme in modules))


def _seen_by_vllm(c: Config) -> bool:
    """Whether vLLM takes the section for ModelOpt's (model_arch_config_convertor.py, 0.32)."""
    producer = c.sub("producer")
    by_modelopt = producer is not None and producer.text("name") == "modelopt"
    return c.has("quant_method") or (by_modelopt and c.has("quantization"))


def _modelopt_kv(c: Config) -> str | None:
    """Return the KV cache type that the section declares (vLLM 0.32, get_kv_cache_quant_algo_string)."""
    declared = c.raw("kv_cache_scheme", "kv_cache_quant_algo")
    if isinstance(declared, Mapping):
        kind = (declared.get("type"), declared.get("num_bits"))
        if kind == ("float", 8) and declared.get("dynamic") is False:
            return _MODELOPT_KV["FP8"]
        return _MODELOPT_KV["NVFP4"] if kind == ("float", 4) else None
    return _MODELOPT_KV.get(declared.upper()) if isinstance(declared, str) else None


_MLX_FLOATS = {"mxfp4": MXFP4, "mxfp8": MXFP8, "nvfp4": replace(NVFP4, matrix_bytes=0)}


def _read_mlx(found: Section) -> Recipe:
    """MLX: embeddings and head are packed too; keys that are module paths hold other settings, or false.

    A matrix whose input features are no multiple of the group stays as it is. Routers are packed only if a
    key names them: in mlx_lm their class decides, which the config does not tell.
    """
    c = found.config
    scheme = _mlx_scheme(c, None)
    own: dict[Scheme | None, list[str]] = {}
    for key, value in c.data.items():
        if "." not in key and key not in ("lm_head", "embed_tokens"):
            continue
        settings = c.sub(key) if isinstance(value, Mapping) else None
        if settings is not None:
            own.setdefault(_mlx_scheme(settings, c), []).append(key)
        elif value is False:
            own.setdefault(None, []).append(key)
    return Recipe(
        method="mlx",
        describes=f"MLX {scheme.name}, embeddings included",
        scheme=scheme,
        groups=BODY | TOWERS | {Group.HEAD, Group.EMBEDDINGS},
        never=frozenset({Group.NORMS}),
        rules=tuple(Rule(scheme=each, names=Names(names, key=c.path.rstrip("."))) for each, names in own.items()),
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


_READERS: dict[str, Callable[[Section], Recipe | None]] = {
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
"""By `quant_method` with hyphens for underscores; vLLM's kernel names mean the same checkpoints."""

METHODS = (
    "gptq",
    "awq",
    "fp8",
    "fbgemm_fp8",
    "compressed-tensors",
    "modelopt",
    "mxfp4",
    "mxfp8",
    "bitsandbytes",
    "mlx",
)
"""What a refusal names."""
