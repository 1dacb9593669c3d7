"""What every tower reader needs: a collector of weights, and checked access to the towers' configs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.tower_defaults import FIXED_ENCODERS, NAMED_ENCODERS, TOWER_DEFAULTS
from kvbudget.model import build
from kvbudget.model.config import Config
from kvbudget.model.shapes import Group, Split, Tower, Weight

SWIGLU = ("gate_proj", "up_proj", "down_proj")
QKV = ("q_proj", "k_proj", "v_proj")

Reader = Callable[[Config, int], tuple[Tower, ...]]
"""From a whole config and the language model's width to towers."""


class Parts:
    """Collects the weights of one tower, or of its equal blocks: names get `prefix`, counts are `count`.

    Of the `count` copies the first `read` are those that vLLM loads.
    """

    __slots__ = ("count", "group", "loaded", "prefix", "read", "unloaded")

    def __init__(self, group: Group) -> None:
        self.group = group
        self.prefix = ""
        self.count = self.read = 1
        self.loaded: list[Weight] = []
        self.unloaded: list[Weight] = []

    def within(self, prefix: str) -> Parts:
        """Return a collector for a part of this tower."""
        return self.blocks(prefix, self.count, self.read)

    def blocks(self, prefix: str, count: int, read: int | None = None) -> Parts:
        """Return a collector for `count` equal blocks of this tower, of which vLLM loads `read`, by default all."""
        parts = Parts(self.group)
        parts.prefix, parts.count = f"{self.prefix}{prefix}.", count
        parts.read = count if read is None else max(0, min(read, count))
        parts.loaded, parts.unloaded = self.loaded, self.unloaded
        return parts

    def unread(self) -> Parts:
        """Return a collector for parts of this tower that vLLM does not load."""
        parts = self.blocks("", self.count, 0)
        parts.prefix = self.prefix
        return parts

    def add(self, weight: Weight) -> None:
        """Add a weight as it is, but for its name and count."""
        weight = replace(weight, name=f"{self.prefix}{weight.name}")
        if self.read:
            self.loaded.append(replace(weight, count=self.read))
        if self.count > self.read:
            self.unloaded.append(replace(weight, count=self.count - self.read))

    def linear(
        self,
        name: str,
        wide_in: int,
        wide_out: int,
        *,
        bias: bool = True,
        split: Split = Split.REPLICATED,
        heads: int = 0,
    ) -> None:
        """Add a linear layer; vLLM splits it only if `heads` divide by the ranks."""
        self.add(build.linear(name, self.group, wide_in, wide_out, bias=bias, split=split, heads=heads))

    def dense(self, name: str, wide_in: int, wide_out: int, *, clip: bool | None) -> None:
        """Add a linear layer without bias, wrapped in a module that may clip its input and output.

        `clip` is None if there is no wrapper; a clipping one keeps four bounds.
        """
        self.linear(name if clip is None else f"{name}.linear", wide_in, wide_out, bias=False)
        if clip:
            self.buffer(name, 4)

    def norm(self, name: str, width: int, *, bias: bool = True) -> None:
        """Add a LayerNorm, or an RMSNorm if it has no `bias`."""
        self.add(build.vector(name, width, group=self.group, bias=bias))

    def norms(self, names: Sequence[str], width: int, *, bias: bool = True) -> None:
        """Add norms of equal width."""
        for name in names:
            self.norm(name, width, bias=bias)

    def vector(self, name: str, size: int) -> None:
        """Add a vector of parameters."""
        self.add(build.vector(name, size, group=self.group))

    def buffer(self, name: str, size: int) -> None:
        """Add values that are stored but are not parameters."""
        self.add(build.vector(name, size, group=self.group, buffer=True))

    def table(self, name: str, rows: int, width: int) -> None:
        """Add a lookup table that every rank holds whole."""
        self.add(build.table(name, rows, width, group=self.group))

    def conv(self, name: str, out_channels: int, in_channels: int, kernel: int, *, bias: bool = True) -> None:
        """Add a convolution; `kernel` is the product of its sides."""
        self.add(build.convolution(name, self.group, out_channels, in_channels, kernel, bias=bias))

    def attention(
        self,
        at: str,
        width: int,
        names: Sequence[str] = QKV,
        out: str = "out_proj",
        *,
        bias: bool = True,
        key_bias: bool | None = None,
        out_bias: bool | None = None,
        inner: int | None = None,
        parallel: bool = True,
        heads: int = 0,
    ) -> None:
        """Add the projections of multi-head attention; `names` is the fused one or query, key and value.

        `key_bias` and `out_bias` follow `bias` unless they are given, `inner` is `width`; see `linear` for `heads`.
        Where only the keys have no bias, vLLM's fused layer keeps one of zeros, which is no parameter.
        """
        inner = inner or width
        for i, name in enumerate(names):
            has_bias = key_bias if i == 1 and key_bias is not None else bias
            wide = inner * (3 // len(names))
            self.linear(at + name, width, wide, bias=has_bias, split=column(parallel), heads=heads)
        if parallel and bias and key_bias is False:
            zeros = build.vector(f"{at}{names[1]}.bias", inner, group=self.group, split=Split.COLUMN, buffer=True)
            self.add(zeros)
        has_bias = bias if out_bias is None else out_bias
        self.linear(at + out, inner, width, bias=has_bias, split=row(parallel), heads=heads)

    def mlp(
        self,
        at: str,
        width: int,
        inner: int,
        names: Sequence[str] = ("fc1", "fc2"),
        *,
        out: int | None = None,
        bias: bool = True,
        parallel: bool = True,
        heads: int = 0,
    ) -> None:
        """Add a feed-forward: all `names` but the last lead to `inner`, the last to `out`, by default `width`."""
        for name in names[:-1]:
            self.linear(at + name, width, inner, bias=bias, split=column(parallel), heads=heads)
        self.linear(at + names[-1], inner, out or width, bias=bias, split=row(parallel), heads=heads)

    def towers(self, name: str) -> tuple[Tower, ...]:
        """Return the tower, and what vLLM does not load of it if there is any."""
        loaded = Tower(name=name, group=self.group, weights=tuple(self.loaded))
        if not self.unloaded:
            return (loaded,)
        return loaded, loaded._replace(weights=tuple(self.unloaded), loaded=False)


def column(parallel: bool) -> Split:
    """Return the split of a layer whose outputs are divided, if anything is."""
    return Split.COLUMN if parallel else Split.REPLICATED


def row(parallel: bool) -> Split:
    """Return the split of a layer whose inputs are divided, if anything is."""
    return Split.ROW if parallel else Split.REPLICATED


def refuse(c: Config, key: str, seen: object = None) -> NoReturn:
    """Refuse a tower that no reader knows.

    Raises:
        CannotTell: Always; it names `key` and what was seen there.
    """
    if seen is None:
        value = c.data.get(key)
        seen = value.get("model_type") or value.get("model_name") if isinstance(value, Mapping) else value
    raise CannotTell(
        f"{c.name(key)} announces a tower of kind {str(seen)[:60]!r}, whose weights this version of kvbudget does "
        "not know, so the total would be a guess; the language model's part is known: give its config alone.",
        key=c.name(key),
    )


def vision_config(c: Config, kind: str) -> Config:
    """Return `vision_config` with the defaults of `kind`, whatever model type it states itself."""
    return tower_config(c, "vision_config", kind)


def tower_config(c: Config, key: str, kind: str) -> Config:
    """Return the config of a tower; without one the class builds its own default, which is an assumption."""
    nested = c.sub(key, defaults=TOWER_DEFAULTS[kind])
    return own_tower(c, key, kind) if nested is None else nested


def own_tower(c: Config, key: str, kind: str, values: Mapping[str, Any] | None = None) -> Config:
    """Return the tower that a class builds when its config has none, `values` before the defaults of `kind`."""
    c.assumed.append((c.name(key), f"the class's own default, {kind}"))
    defaults = {**TOWER_DEFAULTS[kind], **(values or {})}
    return Config({}, path=f"{c.path}{key}.", defaults=defaults, nested=True, assumed=c.assumed)


def stated_config(c: Config, key: str) -> Config:
    """Return the config of a tower that no class has a default for.

    Raises:
        CannotTell: There is none.
    """
    nested = c.sub(key)
    if nested is None:
        raise CannotTell(
            f"{c.name(key)} is missing from the config of a model that has a tower, so its size is unknown; "
            "give the complete config.json.",
            key=c.name(key),
        )
    return nested


def named_encoder(c: Config, key: str, kind: str) -> Config:
    """Return the sizes of an encoder that the config names under `key` instead of describing it.

    Raises:
        CannotTell: The name is not known as one of a `kind`.
    """
    name = c.text(key) or ""
    found, sizes = NAMED_ENCODERS.get(name, ("", {}))
    if found != kind:
        refuse(c, key)
    return Config(sizes, path=f"{c.path}{key}.", nested=True, assumed=c.assumed)


def fixed_encoder(c: Config, name: str) -> Config:
    """Return the sizes of an encoder that are constants of its class."""
    return Config(FIXED_ENCODERS[name], path=f"{c.path}{name}.", nested=True, assumed=c.assumed)


def same_width(c: Config, key: str, width: int) -> None:
    """Check the width that a config states for an encoder that it names.

    Raises:
        InputError: The two differ.
    """
    stated = c.dim(key)
    if stated != width:
        raise InputError(
            f"{c.name(key)} is {stated}, but the encoder that the config names is {width} wide; check the config."
        )


def pair_of(c: Config, key: str) -> tuple[int, int]:
    """Return a size that may be written as one number for both sides."""
    if isinstance(c.raw(key), (list, tuple)):
        return two_of(c, key)
    side = c.dim(key)
    return side, side


def two_of(c: Config, key: str) -> tuple[int, int]:
    """Return a list of two positive integers.

    Raises:
        InputError: It is not one.
    """
    values = c.integers(key, minimum=1) or ()
    if len(values) != 2:  # noqa: PLR2004 - it says two
        raise InputError(f"{c.name(key)} must hold two numbers, found {len(values)}; check the config.")
    return values[0], values[1]


def patch_pixels(c: Config) -> int:
    """Return the pixels of one patch."""
    height, width = pair_of(c, "patch_size")
    return height * width


def grid_patches(c: Config) -> int:
    """Return the patches of one image.

    Raises:
        InputError: A patch is larger than the image.
    """
    image, patch = pair_of(c, "image_size"), pair_of(c, "patch_size")
    patches = (image[0] // patch[0]) * (image[1] // patch[1])
    if not patches:
        raise InputError(
            f"{c.name('patch_size')} is larger than image_size ({max(patch)} > {min(image)}); check the config."
        )
    return patches


def feature_layers(c: Config, key: str) -> tuple[int, ...]:
    """Return the layers whose output the projector reads, one or several; negative ones count from the end.

    Raises:
        InputError: They are not integers.
    """
    value = c.raw(key)
    values = value if isinstance(value, list) and value else [value]
    for item in values:
        if not isinstance(item, int) or isinstance(item, bool):
            raise InputError(f"{c.name(key)} must hold layer numbers, found {str(item)[:40]!r}; check the config.")
    return tuple(values)


def layers_read(layers: int, features: Sequence[int]) -> int:
    """Return how many layers vLLM loads to reach the last feature layer (llava.py, _get_num_hidden_layers)."""
    return max(layers + feature + 1 if feature < 0 else feature for feature in features)


def folded(c: Config, width: int) -> int:
    """Return the width after the pixel shuffle, which folds a square of patches into one."""
    return width * int(1 / c.number("downsample_ratio", default=0.5)) ** 2
