"""Which part of a model a stored tensor belongs to.

Checkpoints name and join their tensors in many ways, so a tensor finds its weight

1. by its name, wrappers, numbers of experts and the parameter's own name taken off (`kvbudget.facts.tensor_names`);
2. by another known name of its last part, or as a known joined matrix (``qkv_proj`` of q, k and v);
3. by its size: an unquantized tensor of a layer that is as large as one weight, or as several in a row, that nothing
   else has claimed.

What finds none is counted in the part that its name speaks of, and said in a note: no byte is lost.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.checkpoint import SAFETENSORS
from kvbudget.facts import tensor_names as names
from kvbudget.facts.formats import dtype_bytes
from kvbudget.headers.source import shown
from kvbudget.model.module_names import ALIASES, TOWER_WORDS, unwrapped
from kvbudget.model.shapes import Group
from kvbudget.model.stored import Held, Stored

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence

    from kvbudget.checkpoint import Checkpoint
    from kvbudget.headers.tensors import Tensor
    from kvbudget.model import Model, Weight

_NUMBER = re.compile(r"(?<![^.])([0-9]+)(?![^.])")
"""A part of a path that is a number."""

MARK = "\0"
"""Stands for a number in a name that is taken apart; no tensor's name has it, because it cannot be printed."""

LONGEST_RUN = 4
"""Weights that one tensor may join: q, k, v and a gate."""

HALF_BYTES = 2
"""Of a value where the config names no type that a checkpoint is served in."""

AGREED = 100
"""Sums that differ by less than this part of the checkpoint agree: tables, biases and tied heads are told apart only by
names."""

MOST_LEFT = 16
"""Modules of a layer without a place among which halves of a weight are looked for."""

UNSAID = 10_000
"""Tensors without a place that are a smaller part than this of the checkpoint are not worth a note."""

_WORDS: tuple[tuple[Group, tuple[str, ...]], ...] = (
    (Group.NORMS, ("norm", "ln_", "layernorm")),
    (Group.SHARED_EXPERTS, ("shared_expert", "share_expert", "shared_mlp", "_shexp")),
    (Group.EXPERTS, ("experts", "_exps")),
    (Group.INDEXER, ("indexer",)),
    (Group.HEAD, ("lm_head", "output_layer", "embed_out")),
    (Group.EMBEDDINGS, ("embed", "wte", "wpe", "token_embd")),
    (Group.ROUTER, ("router", "mlp.gate.", "ffn_gate_inp", "exp_probs")),
    (Group.STATE, ("mamba", "ssm", "conv1d", "linear_attn", "a_log", "dt_bias", "rg_lru")),
    (Group.ATTENTION, ("attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "wkv")),
    (Group.MLP, ("mlp", "ffn", "feed_forward", "gate_proj", "up_proj", "down_proj", "fc")),
)
"""What names that are not known speak of; the first that is found decides."""


class Module(NamedTuple):
    """Where a module stands.

    Attributes:
        tower: Its group if the name speaks of an encoder for images or sound.
        mtp: Whether the name speaks of multi-token prediction.
        prefix: What stands before the layers, "" for wrappers alone.
        layer: The layer's number, None outside the layers.
        name: Its path inside the layer (or from the start), in the words of `kvbudget.model`, no expert's number.
    """

    tower: Group | None
    mtp: bool
    prefix: str
    layer: int | None
    name: str


class _Form(NamedTuple):
    """A name with its numbers taken out, which most tensors of a checkpoint share with others.

    `counted` are the places of the numbers that matter: the layer's first if `in_layer`, then those that stay in the
    module's name. The others are experts'.
    """

    module: Module
    in_layer: bool
    counted: tuple[int, ...]
    parameter: str

    def module_at(self, numbers: Sequence[str]) -> Module:
        """Return the module with its counted numbers filled in."""
        module, kept = self.module, iter(numbers)
        if self.in_layer:
            module = module._replace(layer=int(next(kept)[:9]))
        if MARK in module.name:
            module = module._replace(name=_filled(module.name, kept))
        return module


class _Content:
    """The tensors of one module, added up."""

    __slots__ = ("count", "dtype", "first", "largest", "nbytes", "packed", "plain", "values")

    def __init__(self, first: str) -> None:
        self.first, self.dtype = first, ""
        self.count = self.nbytes = self.values = self.largest = 0
        self.plain, self.packed = True, False

    @property
    def counted(self) -> bool:
        """Whether the shapes tell how many values it has."""
        return self.values > 0 and not self.packed

    def add(self, tensor: Tensor, parameter: str) -> None:
        """Count a tensor."""
        self.count += 1
        self.nbytes += tensor.nbytes
        if tensor.nbytes > self.largest:
            self.largest, self.dtype = tensor.nbytes, tensor.dtype
        if parameter in names.VALUES:
            self.values += tensor.values
            self.plain = self.plain and tensor.dtype in names.FLOATS
        elif parameter not in names.KV_SCALES:
            self.plain = False
        self.packed = self.packed or tensor.dtype in names.CONTAINERS

    def join(self, other: _Content) -> None:
        """Count the tensors of another parameter of the same module."""
        self.count += other.count
        self.nbytes += other.nbytes
        self.values += other.values
        self.plain = self.plain and other.plain
        self.packed = self.packed or other.packed
        if other.largest > self.largest:
            self.largest, self.dtype = other.largest, other.dtype


_Paths = dict[str, "tuple[Weight, ...]"]
"""Path of a weight -> the weights that have it and that nothing holds yet."""


class _Match(NamedTuple):
    """Which weights each module of a layer holds, which of them hold only a part, and which modules hold none."""

    weights: Mapping[str, tuple[Weight, ...]]
    parts: frozenset[str]
    left: tuple[str, ...]


def _filled(name: str, numbers: Iterator[str]) -> str:
    first, *others = name.split(MARK)
    return first + "".join(f"{next(numbers)}{other}" for other in others)


@lru_cache(maxsize=4096)
def _form(template: str) -> _Form:
    """Take a name apart whose numbers are `MARK`."""
    parts = template.split(".")
    parameter: list[str] = []
    while len(parts) > 1 and (parts[-1] in names.PARAMETERS or parts[-1] in names.KV_SCALES):
        parameter.insert(0, parts.pop())
    last = parts[-1]
    if "experts" in parts and last.endswith(names.EXPERT_SUFFIXES):
        stem, _, suffix = last.rpartition("_")
        parts[-1], parameter = stem, [suffix]
    at = next((i for i in range(1, len(parts)) if parts[i] == MARK and parts[i - 1] in names.LAYER_WORDS), None)
    head, tail = ([], parts) if at is None else (parts[: at - 1], parts[at + 1 :])
    before = sum(part == MARK for part in head)
    words = ".".join(head or tail)
    inside, kept = _inside(unwrapped(".".join(tail)) if at is None else tail, before + (at is not None))
    module = Module(
        tower=next((group for group, marks in TOWER_WORDS.items() if any(mark in words for mark in marks)), None),
        mtp=any(part.startswith(names.MTP_WORDS) for part in (head or tail)),
        prefix=".".join(_without_wrappers(head)),
        layer=None,
        name=inside,
    )
    in_layer = at is not None
    return _Form(module, in_layer, (before, *kept) if in_layer else kept, ".".join(parameter))


def _without_wrappers(parts: list[str]) -> list[str]:
    return unwrapped(".".join([*parts, "layers"]))[:-1]


def _inside(parts: list[str], numbers: int) -> tuple[str, tuple[int, ...]]:
    """Return a module's path in our words, and the places of the numbers that it keeps; an expert's is dropped."""
    found: list[str] = []
    kept: list[int] = []
    for part in parts:
        if part == MARK:
            if not found or found[-1] != "experts":
                found.append(MARK)
                kept.append(numbers)
            numbers += 1
        elif part != "*":
            found.append(names.DIVIDED.get(part) or ALIASES.get(part, part))
    return ".".join(found), tuple(kept)


def with_headers(model: Model, checkpoint: Checkpoint) -> Model:
    """Return `model` with what its checkpoint stores; the same where nothing is known of that.

    A config that names no type is served in the widest one that is stored, as vLLM does
    (transformers_utils/model_arch_config_convertor.py get_torch_dtype, 0.32).
    """
    if checkpoint.tensors is None:
        return model if checkpoint.stored_bytes is None else replace(model, stored=_in_all(model, checkpoint))
    dtype = model.dtype
    if dtype is None and checkpoint.format == SAFETENSORS:
        stored = {tensor.dtype for tensor in checkpoint.tensors}
        dtype = next((ours for theirs, ours in names.SERVED_IN.items() if theirs in stored), None)
    return replace(model, dtype=dtype, stored=place_tensors(model, checkpoint.tensors, read=checkpoint.read))


def _in_all(model: Model, checkpoint: Checkpoint) -> Stored:
    """Return what an index or the hub's counts say: the sum alone, held against the config."""
    stored = checkpoint.stored_bytes or 0
    stated = (model.dtype or "").removeprefix("torch.")
    size = dtype_bytes(stated) if stated in names.SERVED_IN.values() else HALF_BYTES
    behind = [weight for layer in model.mtp for weight in layer.weights]
    described = sum(model.held_bytes(path, weight, size) for _, path, weight in model.weights())
    described_with = described + sum(weight.values for weight in behind) * size
    note = (
        f"The checkpoint holds {stored:,} bytes ({checkpoint.read}) where config.json describes {described:,}; the "
        "figures follow the config."
    )
    differs = min(abs(stored - described), abs(stored - described_with)) * AGREED > stored
    return Stored(
        read=checkpoint.read, modules={}, bytes_by_group={}, total_bytes=stored, notes=(note,) if differs else ()
    )


def place_tensors(model: Model, tensors: Iterable[Tensor], *, read: str) -> Stored:
    """Return what a checkpoint stores of each weight of `model`.

    Args:
        model: What the config describes.
        tensors: Everything that the headers list.
        read: Where they were read, in words.
    """
    modules, skipped = _modules(tensors, _paths(model))
    placing = _Placing(model, _main_prefix(model, modules))
    layers: dict[int | None, dict[str, _Content]] = {}
    for module, content in modules.items():
        if not placing.apart(module, content):
            layers.setdefault(module.layer, {})[module.name] = content
    for number, contents in layers.items():
        placing.place(number, contents)
    return placing.stored(read, skipped)


def _paths(model: Model) -> frozenset[str]:
    """Return the paths of all weights inside their layers, and of those outside, in our words."""
    layers = {id(layer): layer for layer in model.layers}.values()
    weights = [*model.outside, *(weight for layer in layers for weight in layer.weights)]
    return frozenset(_path(weight) for weight in weights)


def _path(weight: Weight) -> str:
    return _inside(unwrapped(weight.name), 0)[0]


def _modules(tensors: Iterable[Tensor], known: Container[str]) -> tuple[dict[Module, _Content], int]:
    """Return the tensors by module, and the bytes of those that no engine loads.

    `known` are the paths of the model's weights, some of which look like a parameter or like one of a list.
    """
    contents: dict[tuple[str, tuple[str, ...]], _Content] = {}
    for tensor in tensors:
        pieces = _NUMBER.split(tensor.name)
        template, numbers = MARK.join(pieces[::2]), pieces[1::2]
        form = _form(template)
        key = template, tuple([numbers[i] for i in form.counted])
        content = contents.get(key)
        if content is None:
            content = contents[key] = _Content(tensor.name)
        content.add(tensor, form.parameter)
    modules: dict[Module, _Content] = {}
    skipped = 0
    for (template, counted), content in contents.items():
        form = _form(template)
        module = _known(form.module_at(counted), form.parameter, known)
        if not names.NOT_LOADED.isdisjoint(module.name.split(".")):
            skipped += content.nbytes
        elif module in modules:
            modules[module].join(content)
        else:
            modules[module] = content
    return modules, skipped


def _known(module: Module, parameter: str, known: Container[str]) -> Module:
    """Return the module that the model knows: with the parameter's name, or as a list of equal ones."""
    name = module.name
    for part in parameter.split("."):
        name = f"{name}.{part}"
        if name in known:
            return module._replace(name=name)
    if module.name in known:
        return module
    stem, _, last = module.name.rpartition(".")
    if last.isdigit() and stem in known:
        return module._replace(name=stem)
    joined = module.name.removesuffix("_weight").removesuffix("_bias")
    return module._replace(name=joined) if joined in known else module


def _main_prefix(model: Model, modules: Iterable[Module]) -> str:
    """Return what stands before the layers of the language model: as in the model, else what most layers have."""
    expected = ".".join(_without_wrappers(model.prefix.split(".")[:-1]))
    counts: dict[str, int] = {}
    for module in modules:
        if module.layer is not None and module.tower is None and not module.mtp:
            counts[module.prefix] = counts.get(module.prefix, 0) + 1
    return expected if expected in counts or not counts else max(counts, key=lambda prefix: counts[prefix])


class _Placing:
    """Collects what is stored, layer by layer."""

    def __init__(self, model: Model, prefix: str) -> None:
        self.model, self.prefix = model, prefix
        self.towers = {".".join(unwrapped(tower.name)): tower.group for tower in model.towers}
        self.groups: dict[Group, int] = {}
        self.held: dict[str, Held] = {}
        self.unknown: list[_Content] = []
        self.other_sizes: list[tuple[str, int, int]] = []
        self.unloaded = 0
        self.matches: dict[tuple[int, tuple[tuple[str, int, bool], ...]], _Match] = {}

    def apart(self, module: Module, content: _Content) -> bool:
        """Count what is no part of the decoder, and return whether it was that."""
        tower = module.tower or self._encoder(module)
        inside = module.layer is None or module.prefix == self.prefix
        if tower is not None:
            if tower not in self.towers.values():
                self.unknown.append(content)
            self._add(tower if tower in TOWER_WORDS else _spoken(content.first), content.nbytes)
        elif module.mtp or (inside and (module.layer or 0) >= len(self.model.layers)):
            self._add(Group.MTP, content.nbytes)
        elif not inside:
            self.unknown.append(content)
            self._add(_spoken(content.first), content.nbytes)
        else:
            return False
        return True

    def _encoder(self, module: Module) -> Group | None:
        """Return the group of the tower whose path a module's begins with."""
        path = f"{module.prefix or module.name}."
        return next((group for name, group in self.towers.items() if path.startswith(f"{name}.")), None)

    def place(self, number: int | None, contents: Mapping[str, _Content]) -> None:
        """Give the modules of one layer, or of what stands outside the layers, to their weights."""
        model = self.model
        weights = model.outside if number is None else model.layers[number].weights
        key = (
            id(weights),
            tuple((name, content.values, content.plain) for name, content in contents.items()),
        )
        match = self.matches.get(key)
        if match is None:
            match = self.matches[key] = _match(weights, contents)
        start = "" if number is None else f"{model.prefix}.{number}."
        for name, held in match.weights.items():
            self._hold(start, contents[name], held, part=name in match.parts)
        for name in match.left:
            content = contents[name]
            group = _spoken(content.first)
            self._add(group, content.nbytes)
            if number is None and group is Group.HEAD and model.tied:
                self.unloaded += content.nbytes
            else:
                self.unknown.append(content)

    def _hold(self, start: str, content: _Content, weights: Sequence[Weight], *, part: bool) -> None:
        """Divide what a module stores among its weights, by their values; `part` if others hold the rest of them."""
        total = sum(weight.values for weight in weights) or 1
        if content.counted and content.values != total and not part:
            self.other_sizes.append((content.first, content.values, total))
        given = 0
        shares: dict[str, tuple[int, int]] = {}
        for weight in weights:
            share = content.nbytes - given if weight is weights[-1] else content.nbytes * weight.values // total
            given += share
            nbytes, values = shares.get(weight.name, (0, 0))
            shares[weight.name] = nbytes + share, values + weight.values
            self._add(weight.group, share)
        for name, (nbytes, values) in shares.items():
            held = Held(nbytes, values, content.plain, content.dtype)
            before = self.held.get(start + name)
            self.held[start + name] = held if before is None else before.with_more(held)

    def _add(self, group: Group, nbytes: int) -> None:
        self.groups[group] = self.groups.get(group, 0) + nbytes

    def stored(self, read: str, skipped: int) -> Stored:
        """Return everything, with a note on what does not agree."""
        return Stored(
            read=read,
            modules=self.held,
            bytes_by_group={group: self.groups[group] for group in Group if self.groups.get(group)},
            not_loaded_bytes=skipped + self.unloaded,
            notes=tuple(self._notes()),
        )

    def _notes(self) -> Iterator[str]:
        size = sum(content.nbytes for content in self.unknown)
        if size * UNSAID > sum(self.groups.values()):
            count = sum(content.count for content in self.unknown)
            yield (
                f"{count:,} of the stored tensors ({size:,} bytes) belong to nothing in config.json, such as "
                f'"{shown(self.unknown[0].first)}"; they are not counted as loaded.'
            )
        missing = [name for name, weight in self._weights() if name not in self.held and not weight.buffer]
        if missing:
            yield (
                f"The headers hold no tensor for {len(missing):,} weights that config.json describes, such as "
                f'"{missing[0]}"; they are counted as the config has them.'
            )
        if self.other_sizes:
            name, stored, described = self.other_sizes[0]
            more = f", and {len(self.other_sizes) - 1:,} more like it" if len(self.other_sizes) > 1 else ""
            yield (
                f'"{shown(name)}" holds {stored:,} values where config.json describes {described:,}{more}; the '
                "figures follow the config, as engines do."
            )

    def _weights(self) -> Iterator[tuple[str, Weight]]:
        for weight in self.model.outside:
            yield weight.name, weight
        for number, layer in enumerate(self.model.layers):
            for weight in layer.weights:
                yield f"{self.model.prefix}.{number}.{weight.name}", weight


def _spoken(name: str) -> Group:
    """Return the part of a model that an unknown name speaks of."""
    name = name.lower()
    return next((group for group, words in _WORDS if any(word in name for word in words)), Group.MLP)


def _match(weights: Sequence[Weight], contents: Mapping[str, _Content]) -> _Match:
    """Give each module the weights that it holds: by its name, by other names, by its size."""
    own: _Paths = {}
    for weight in weights:
        path = _path(weight)
        own[path] = (*own.get(path, ()), weight)
    found = {name: own.pop(name) for name in contents if name in own}
    ways = (partial(_renamed, exact=True), _sized, partial(_renamed, exact=False))
    for way in ways:
        for name, content in contents.items():
            if name not in found:
                paths = way(name, content, own)
                if paths:
                    found[name] = tuple(weight for path in paths for weight in own.pop(path))
    parts = _halves({name: content for name, content in contents.items() if name not in found}, own)
    found.update(parts)
    return _Match(found, frozenset(parts), tuple(name for name in contents if name not in found))


def _halves(left: Mapping[str, _Content], own: _Paths) -> dict[str, tuple[Weight, ...]]:
    """Return the modules that have as many values as a weight two by two, with that weight."""
    found: dict[str, tuple[Weight, ...]] = {}
    counted = [name for name, content in left.items() if content.counted][:MOST_LEFT]
    for first, second in combinations(counted, 2):
        if first in found or second in found:
            continue
        values = left[first].values + left[second].values
        path = next((path for path, held in own.items() if sum(weight.values for weight in held) == values), None)
        if path is not None:
            found[first] = found[second] = own.pop(path)
    return found


def _renamed(name: str, content: _Content, own: _Paths, *, exact: bool) -> tuple[str, ...]:
    """Return the paths of what a module holds under another known name, of joined matrices in their order.

    With `exact` a module whose values are counted must have as many.
    """
    head, _, last = name.rpartition(".")
    joined = tuple(path for path in (_nearest(head, part, own) for part in names.JOINED.get(last, ())) if path)
    head = f"{head}.shared" if last.endswith(names.SHARED_EXPERTS) else head
    other = [(path,) for part in names.RENAMED.get(last, ()) if (path := _nearest(head, part, own))]
    ways = [joined, *other] if len(joined) == len(names.JOINED.get(last, ())) else other
    for paths in ways:
        values = sum(weight.values for path in paths for weight in own[path])
        if paths and not (exact and content.counted and values != content.values):
            return paths
    return ()


def _nearest(head: str, part: str, own: Collection[str]) -> str | None:
    """Return the path whose last parts are `part`, of several the one that shares a word with `head`."""
    paths = [path for path in own if path == part or path.endswith("." + part)]
    if "expert" not in head and "shared" not in head:
        paths = [path for path in paths if "expert" not in path or "expert" in part] or paths
    word = head.rpartition(".")[2]
    near = [path for path in paths if word and word in path]
    if near:
        return near[0]
    return paths[0] if len(paths) == 1 else None


def _sized(name: str, content: _Content, own: _Paths) -> tuple[str, ...]:
    """Return the first run of paths that nothing holds yet and that has as many values as a module."""
    if not content.counted:
        return ()
    sizes = [(path, sum(weight.values for weight in held), held[0].group) for path, held in own.items()]
    norm = _spoken(name) is Group.NORMS
    for length in range(1, LONGEST_RUN + 1):
        for start in range(len(sizes) - length + 1):
            run = sizes[start : start + length]
            if sum(values for _, values, _ in run) == content.values and (run[0][2] is Group.NORMS) is norm:
                return tuple(path for path, _, _ in run)
    alike = [path for path, values, _ in sizes if values == content.values]
    return tuple(alike) if len(alike) == 1 else ()
