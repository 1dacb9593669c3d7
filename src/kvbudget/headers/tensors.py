"""One tensor as a header describes it, and the checks that both formats share."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.headers.source import broken, shown
from kvbudget.units import MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvbudget.headers.source import Source

MAX_TENSORS = 1 << 20
"""Of a checkpoint. The largest with a tensor for each expert and each scale have some 200,000."""


class Tensor(NamedTuple):
    """A stored tensor.

    Attributes:
        name: As the file spells it; printable.
        dtype: The format's own spelling: ``BF16`` in safetensors (`safetensors.DTYPE_BITS`), ``q4_K`` in GGUF
            (`kvbudget.facts.formats.GGML_TYPES`).
        shape: Sizes, the outermost first as torch has them; GGUF files write them the other way round.
        nbytes: Bytes in the file, without padding.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int

    @property
    def values(self) -> int:
        """Values it holds; packed formats put several parameters into one."""
        return prod(self.shape)


def checked_name(name: str, source: Source) -> str:
    """Return a tensor's name.

    Raises:
        InputError: It has control characters, which would reach a terminal, or others that cannot be printed.
    """
    if not name.isprintable():
        raise broken(source, f'the name "{shown(name)}" holds control characters', "check where the file comes from")
    return name


def checked_values(shape: Iterable[int], name: str, source: Source) -> int:
    """Return the product of non-negative sizes.

    Raises:
        InputError: It is beyond 2^50 at some point, which no file can hold, even if a size of zero follows.
    """
    values, most = 1, 1
    for size in shape:
        values *= size
        most *= max(size, 1)
        if most > MAX_COUNT:
            raise broken(source, f'tensor "{shown(name)}" claims more than 2^50 values')
    return values
