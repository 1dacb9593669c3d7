"""Short constructors for the weights that every reader lists."""

from __future__ import annotations

from kvbudget.model.shapes import Group, Split, Weight


def linear(
    name: str,
    group: Group,
    in_features: int,
    out_features: int,
    *,
    bias: bool = False,
    split: Split = Split.REPLICATED,
    heads: int = 0,
    count: int = 1,
    dtype: str | None = None,
) -> Weight:
    """Return the weight of a linear layer, ``nn.Linear(in_features, out_features, bias)``."""
    return Weight(
        name,
        group,
        out_features,
        in_features,
        bias=out_features if bias else 0,
        count=count,
        linear=True,
        split=split,
        heads=heads,
        dtype=dtype,
    )


def vector(
    name: str,
    size: int,
    *,
    group: Group = Group.NORMS,
    bias: bool = False,
    split: Split = Split.REPLICATED,
    count: int = 1,
    dtype: str | None = None,
    buffer: bool = False,
) -> Weight:
    """Return a vector of `size` values: the scale of a norm (with its shift if `bias`), a gate, a decay."""
    return Weight(name, group, size, bias=size if bias else 0, count=count, split=split, dtype=dtype, buffer=buffer)


def table(name: str, rows: int, width: int, *, group: Group = Group.EMBEDDINGS, count: int = 1) -> Weight:
    """Return a position table or another lookup of `rows` x `width` values that every rank holds whole."""
    return Weight(name, group, rows, width, count=count)


def vocabulary(name: str, group: Group, rows: int, width: int, *, bias: bool = False, linear: bool = False) -> Weight:
    """Return an embedding or an output head over the vocabulary; a head is `linear`, so a format may pack it."""
    return Weight(name, group, rows, width, bias=rows if bias else 0, linear=linear, split=Split.VOCAB)


def convolution(
    name: str,
    group: Group,
    out_channels: int,
    in_channels: int,
    kernel: int,
    *,
    bias: bool = False,
    split: Split = Split.REPLICATED,
    count: int = 1,
) -> Weight:
    """Return a convolution's weight; `kernel` is the product of its sides, `in_channels` those of one group."""
    return Weight(
        name,
        group,
        out_channels,
        in_channels * kernel,
        bias=out_channels if bias else 0,
        count=count,
        split=split,
    )
