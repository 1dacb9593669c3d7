"""What the headers of a checkpoint say about a model's weights, module by module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.model.shapes import Group


class Held(NamedTuple):
    """What a checkpoint stores of the weights with one path: one, or those that a class divides differently.

    Attributes:
        nbytes: Bytes of all copies, scales and bias included.
        values: Values of the weights, as the config has them.
        plain: Its values are stored one by one in a floating type, which an engine casts to its own.
        dtype: The type of its largest tensor, in the spelling of the file.
    """

    nbytes: int
    values: int
    plain: bool
    dtype: str

    def share(self, values: int) -> int:
        """Return the bytes of so many of the values, rounded up."""
        return -(-self.nbytes * values // max(1, self.values))

    def with_more(self, other: Held) -> Held:
        """Return this with the bytes of another part of the same weights."""
        return self._replace(nbytes=self.nbytes + other.nbytes, plain=self.plain and other.plain)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stored:
    """A checkpoint's tensors, given to the parts of the model that they belong to.

    Args:
        read: Where they were read, for the source of a figure: ``headers of 15 files``.
        modules: What is stored of a weight, by its full path (`Model.weights`).
        bytes_by_group: What the model's parts take in the files; MTP layers and towers apart.
        not_loaded_bytes: What engines do not load of the files: tables that they compute, a tied head's copy.
        total_bytes: Bytes of all tensors where an index or the hub tells them without their names.
        notes: Where headers and config disagree, a sentence each.
    """

    read: str
    modules: Mapping[str, Held]
    bytes_by_group: Mapping[Group, int]
    not_loaded_bytes: int = 0
    total_bytes: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(self.bytes_by_group.values()) if self.total_bytes is None else self.total_bytes
