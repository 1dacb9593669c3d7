"""What a model that is not quantized would weigh if it were: by vLLM while loading, as a checkpoint, as a GGUF file.

Each answer is a `Recipe` whose `origin` says which of these it is. What the engine makes is its own arithmetic; what a
checkpoint would hold is the recipe that its tool usually writes, with variants that bound it.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import what_if as facts
from kvbudget.facts.formats import Format
from kvbudget.facts.gguf_types import FILE_TYPE_ALIASES, FILE_TYPES
from kvbudget.model.module_names import Names
from kvbudget.model.quantization import read_recipe
from kvbudget.model.quantization_methods import FP8_CHANNEL, FP8_TENSOR, MXFP4, MXFP8, NVFP4, fp8_blocks
from kvbudget.model.schemes import BODY, FLOAT32_BYTES, TOWERS, Recipe, Rule, Scheme
from kvbudget.model.shapes import Group

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbudget.facts.vllm import Version
    from kvbudget.model.model import Model

GGUF = "gguf:"
FLAG = "--quantization"

_LAYER_SOURCE = "vLLM 0.32, model_executor/layers/quantization/online/"
_INT8 = Format(name="int8", block_elems=1, block_bytes=1, source=_LAYER_SOURCE)
_NIBBLES = Format(name="4-bit", block_elems=2, block_bytes=1, source=_LAYER_SOURCE)

LAYOUTS: Mapping[str, Scheme] = MappingProxyType(
    {
        "fp8_tensor": replace(FP8_TENSOR, matrix_bytes=0),
        "fp8_block": fp8_blocks(128, 128),
        "fp8_channel": FP8_CHANNEL,
        "int8": Scheme(name="INT8 per channel", values=_INT8),
        "mxfp4": MXFP4,
        "mxfp8": MXFP8,
        "nvfp4": replace(NVFP4, matrix_bytes=FLOAT32_BYTES),
        "nf4": Scheme(name="NF4", values=_NIBBLES, columns=64, matrix_bytes=16 * FLOAT32_BYTES, flat=True),
    }
)
"""How vLLM stores what it quantizes while loading, by the keys of `kvbudget.facts.what_if.WHILE_LOADING`.

Scales are float32 but for MXFP4's and MXFP8's exponents and NVFP4's scales of blocks, a byte each."""

ONE_SCALE = frozenset({"fp8_tensor", "nvfp4"})
"""Layouts with a scale of the whole matrix, of which vLLM keeps one for the projections that it joins."""

JOINED = ("k_proj", "v_proj", "in_proj_z", "in_proj_a")
JOINED_TO: Mapping[str, str] = MappingProxyType({"up_proj": "gate_proj", "kv_a_proj_with_mqa": "q_a_proj"})
"""Projections that vLLM joins to the one before them; the latter where that one is there
(vllm/model_executor/models, packed_modules_mapping)."""

CROSS = Names(["encoder_attn.k_proj"], key=FLAG)
"""Of attention to an encoder vLLM joins keys and values alone."""

TOWERS_JOINED = Names([".k_proj", ".v_proj", ".up_proj"], key=FLAG, kind="substring")
TOWERS_EVEN = Names(["mlp.fc1", "mlp.fc2"], key=FLAG, kind="substring")
TOWERS_PLAIN = Names(["patch_merger.merging_layer"], key=FLAG, kind="substring")
"""Of a tower: what is joined to the projection before it, what is quantized only where its widths are even, and what is
a plain linear layer (models/siglip.py, mistral3.py)."""


def what_if(model: Model, name: str, version: Version) -> Recipe:
    """Return the recipe that `--quantization` would give a model whose checkpoint is not quantized.

    Args:
        model: The model; its own quantization is not looked at.
        name: ``fp8``, ``awq``, ``int8``, ``gguf:Q4_K_M``; in any case of letters.
        version: vLLM's, which decides what it quantizes by itself.

    Raises:
        InputError: No such quantization, or not in this version.
        CannotTell: It needs a configuration of its own, or the model's names in GGUF files are not known.
    """
    key = name.strip().lower()
    if key.startswith(GGUF):
        from kvbudget.model.gguf_mix import mix_recipe  # noqa: PLC0415 - a table of its own, seldom asked for

        return mix_recipe(model, name.strip()[len(GGUF) :])
    row = while_loading(key, version)
    if row is not None:
        made = _while_loading(row, _kept_plain(model), _joined(model))
        return made if _knows_towers(model) else _doubtful_towers(made)
    usual = facts.USUAL_ALIASES.get(key, key)
    if usual in facts.USUAL:
        ahead = tuple(f"{model.prefix}.{len(model.layers) + i}" for i in range(len(model.mtp)))
        return _usual(usual, ahead, mixture=bool(model.num_experts and _has_experts(model)))
    if key in facts.WHILE_LOADING:
        raise InputError(_not_in_this_version(facts.WHILE_LOADING[key], version))
    raise unknown(name)


def while_loading(name: str, version: Version) -> facts.WhileLoading | None:
    """Return what this version of vLLM makes of plain weights by that name, None if it has no such name."""
    row = facts.WHILE_LOADING.get(name)
    return row if row is not None and row.since <= version and (row.until is None or version < row.until) else None


def can_imagine(name: str) -> bool:
    """Whether `what_if` knows the name in some version."""
    key = name.strip().lower()
    if key.startswith(GGUF):
        return key[len(GGUF) :].upper() in (*FILE_TYPES, *FILE_TYPE_ALIASES)
    return key in facts.WHILE_LOADING or facts.USUAL_ALIASES.get(key, key) in facts.USUAL


def unknown(name: str) -> InputError | CannotTell:
    """Return the refusal of a name that says nothing by itself, or that nothing is known by."""
    if name in ("online", "torchao"):
        return CannotTell(
            f"--quantization {name} takes the layers from a configuration of its own, which is not read here; "
            f"name what it makes, for example {'fp8_per_block' if name == 'online' else 'fp8_per_tensor'}.",
            key="quantization",
        )
    if name.lower().startswith(GGUF):
        return InputError(
            f"GGUF file type {name[len(GGUF) :][:40]!r} is not known; choose one of {', '.join(FILE_TYPES)}."
        )
    names = ", ".join(dict.fromkeys((*facts.USUAL, *facts.WHILE_LOADING, f"{GGUF}Q4_K_M")))
    return InputError(f"--quantization {name[:40]!r} is not known; choose one of {names}.")


def _not_in_this_version(row: facts.WhileLoading, version: Version) -> str:
    """Return the refusal of a name that another version has."""
    asked = ".".join(map(str, version))
    if row.until is not None and version >= row.until:
        return f"--quantization {row.name}: vLLM {asked} no longer has it; choose another, or an older version."
    since = ".".join(map(str, row.since[:2]))
    return f"--quantization {row.name}: vLLM has it since {since}, not in {asked}; choose another, or a newer version."


@lru_cache(maxsize=64)
def _while_loading(row: facts.WhileLoading, kept: frozenset[Group], joined: tuple[str, ...]) -> Recipe:
    """Return what the engine makes of plain weights (layers/quantization/online/base.py, 0.32).

    Linear layers of towers are among them; `kept` are the parts that the model's class makes without quantization.
    """
    linear, experts = LAYOUTS.get(row.linear), LAYOUTS.get(row.experts)
    names = Names(joined, key=FLAG)
    kinds = dict.fromkeys(scheme.name for scheme in (linear, experts) if scheme is not None)
    what = " and ".join(kinds) + ("" if linear else ", routed experts alone") + ("" if experts else ", linear layers")
    recipe = Recipe(
        method=row.name,
        describes=f"{what}, quantized by vLLM while loading",
        scheme=linear,
        groups=BODY | TOWERS | {Group.ROUTER} if linear else frozenset(),
        never=kept | {Group.EMBEDDINGS, Group.NORMS, Group.HEAD},
        rules=tuple(_loading_rules(row, linear, experts, names)),
        origin="loading",
        asked=row.name,
    )
    if row.linear != "nf4" or linear is None:
        return recipe
    twice = replace(linear, scale_bytes=1, superblock=256)  # as the oldest versions keep them
    rules = tuple(_loading_rules(row, twice, twice, names))
    other = replace(recipe, scheme=twice, rules=rules)
    return replace(recipe, variants=(other,), varies="scales that are quantized again, or not")


def _loading_rules(
    row: facts.WhileLoading, linear: Scheme | None, experts: Scheme | None, joined: Names
) -> Iterator[Rule]:
    """Yield the rules for towers, experts, and projections that share the scale of the one they are joined to."""
    if linear is not None:
        even = replace(linear, in_multiple=facts.EVEN_TOWERS, out_multiple=facts.EVEN_TOWERS)
        yield Rule(scheme=even, names=TOWERS_EVEN, group=Group.VISION)
        yield Rule(scheme=None, names=TOWERS_PLAIN, group=Group.VISION)
    if linear is not None and row.linear in ONE_SCALE:
        for tower in (Group.VISION, Group.AUDIO):
            yield Rule(scheme=_without_scale(linear), names=TOWERS_JOINED, group=tower)
        yield Rule(scheme=linear, names=CROSS)
    for group, key, scheme in ((Group.EXPERTS, row.experts, experts), (None, row.linear, linear)):
        if scheme is not None and key in ONE_SCALE:
            yield Rule(scheme=_without_scale(scheme), names=joined, group=group)
        if group is not None:
            yield Rule(scheme=scheme, group=group)


def _without_scale(scheme: Scheme) -> Scheme:
    """Return the layout without its scale of the whole matrix."""
    return replace(scheme, matrix_bytes=0) if scheme.matrix_bytes else replace(scheme, scale_bytes=0)


@lru_cache(maxsize=64)
def _usual(name: str, ahead: tuple[str, ...], *, mixture: bool) -> Recipe:
    """Return the recipe of a checkpoint as its tool usually makes it, with variants that bound it.

    Layers that predict several tokens, whose paths are `ahead`, stay as they are.
    """
    row = facts.USUAL[name]
    kept = frozenset(Group(name) for name in row.mixtures_keep) if mixture else frozenset()
    best = _from_section(row, row.section, ahead)
    variants = [_from_section(row, section, ahead) for section in (row.tight, row.loose) if section is not None]
    if kept:
        variants.append(best)
    if mixture:
        widest = variants[-1] if row.loose is not None else best
        variants.append(_without(widest, widest.groups - {Group.EXPERTS}))
    best = _without(best, kept)
    describes = f"{best.describes}, as {row.tool} usually makes it"
    return replace(best, describes=describes, variants=tuple(variants), varies=row.varies if variants else "")


def _from_section(row: facts.Usual, section: Mapping[str, object], ahead: tuple[str, ...]) -> Recipe:
    recipe = read_recipe({"quantization_config": dict(section)})
    if recipe is None:  # pragma: no cover - the rows of the table quantize
        raise CannotTell(f"The recipe of {row.name} quantizes nothing.", key="quantization")
    kept = (Rule(scheme=None, names=Names(ahead, key=FLAG)),) if ahead else ()
    return replace(
        recipe,
        method=row.name,
        never=recipe.never | TOWERS | {Group.MTP},
        rules=kept + recipe.rules,
        origin="imagined",
        asked=row.name,
    )


def _without(recipe: Recipe, groups: frozenset[Group]) -> Recipe:
    return replace(recipe, never=recipe.never | groups)


def _kept_plain(model: Model) -> frozenset[Group]:
    """Return the parts of a model that its class makes without quantization."""
    kind = model.model_type.removesuffix("_text")
    routers = frozenset() if kind in facts.ROUTERS_TOO else frozenset({Group.ROUTER})
    return routers | frozenset(Group(name) for name in facts.KEPT_PLAIN.get(kind, ()))


def _knows_towers(model: Model) -> bool:
    """Whether it is known what vLLM quantizes of a model's towers."""
    kept = _kept_plain(model)
    return model.architecture in facts.QUANTIZED_TOWERS or all(tower.group in kept for tower in model.towers)


def _doubtful_towers(recipe: Recipe) -> Recipe:
    """Return the recipe with a variant that leaves towers as they are."""
    if recipe.scheme is None:
        return recipe
    other = replace(recipe, never=recipe.never | TOWERS, variants=())
    varies = "; ".join(part for part in (recipe.varies, "whether the towers are quantized too") if part)
    return replace(recipe, variants=(*recipe.variants, other), varies=varies)


def _joined(model: Model) -> tuple[str, ...]:
    """Return the projections of a model that vLLM joins to others."""
    there = {weight.name.rpartition(".")[2] for layer in model.layers for weight in layer.weights}
    return JOINED + tuple(name for name, to in JOINED_TO.items() if to in there)


def _has_experts(model: Model) -> bool:
    return any(weight.group is Group.EXPERTS for layer in model.layers for weight in layer.weights)
