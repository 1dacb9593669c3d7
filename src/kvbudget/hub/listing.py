"""Which files of a folder or a repository are the weights, from their names alone.

The choice is the engines': safetensors before PyTorch's files, an index before what lies around, and Mistral's
``consolidated`` files only where there are no others, because they hold the same weights again
(vllm/model_executor/model_loader/default_loader.py and weight_utils.py, 0.32).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.checkpoint import GGUF, PYTORCH, SAFETENSORS
from kvbudget.errors import InputError
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SAFETENSORS_INDEX = "model.safetensors.index.json"
PYTORCH_INDEX = "pytorch_model.bin.index.json"
SINGLE = "model.safetensors"
ADAPTER = "adapter_config.json"

_CONSOLIDATED = "consolidated"
_NO_MODEL = ("adapter_", "optimizer", "training_args", "scheduler", "mmproj")
"""How files begin that hold weights or state, but not the model's."""

_NUMBERED = re.compile(r"(.*?)-?([0-9]{1,6})-of-([0-9]{1,6})(\.safetensors)")
_NUMBER = re.compile(r"-[0-9]{5}-of-(?=[0-9]{5}\.gguf$)", re.IGNORECASE)
_MOST_SHOWN = 12


class Weights(NamedTuple):
    """The weight files.

    Attributes:
        format: As in `kvbudget.checkpoint.Checkpoint`.
        files: Their names in order; of safetensors with an index what lies there, of which the index may want less.
        index_file: The name of the index, or None.
        decided: Whether the names alone say that an index can name just these files.
        notes: What was left out, a sentence each.
    """

    format: str | None
    files: tuple[str, ...]
    index_file: str | None = None
    decided: bool = True
    notes: tuple[str, ...] = ()


def choose_weights(names: Iterable[str], place: str, variant: str | None = None) -> Weights:
    """Return which of the files in a folder are the weights.

    Args:
        names: All files, relative to the folder, with slashes.
        place: What messages call the folder.
        variant: The quantization of the GGUF file that is wanted, such as ``Q4_K_M``.

    Raises:
        InputError: No GGUF file is of that variant, several GGUF files are there and none was named, or a file of a
            numbered set is missing.
    """
    names = sorted(names)
    if variant is not None:
        return _gguf(names, place, variant)
    top = [name for name in names if "/" not in name and not name.startswith(_NO_MODEL)]
    found = _safetensors(top, place)
    if found is not None:
        return found
    if PYTORCH_INDEX in top:
        return Weights(PYTORCH, (), PYTORCH_INDEX)
    if any(name.endswith(".gguf") for name in names):
        return _gguf(names, place, None)
    binaries = tuple(name for name in top if name.endswith(".bin") and name.startswith("pytorch_model"))
    return Weights(PYTORCH if binaries else None, binaries)


def _safetensors(top: Sequence[str], place: str) -> Weights | None:
    files = [name for name in top if name.endswith(".safetensors")]
    own = [name for name in files if not name.startswith(_CONSOLIDATED)]
    doubled = len(files) - len(own)
    notes = (f"{place}: consolidated*.safetensors hold the same weights again and do not count.",)
    if not own:
        own, doubled = files, 0
    index = next((name for name in top if name == SAFETENSORS_INDEX), None) or next(
        (name for name in top if name.endswith(".safetensors.index.json")), None
    )
    if index is None and not own:
        return None
    if index is None and SINGLE in own and len(own) > 1:
        others = [name for name in own if name != SINGLE]
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        note = f"{place}: {SINGLE} counts, {shown(others[0])}{more} beside it does not."
        return Weights(SAFETENSORS, (SINGLE,), notes=(note,))
    complete = _is_complete(own, place, strict=index is None)
    return Weights(SAFETENSORS, tuple(own), index, decided=complete, notes=notes if doubled else ())


def _is_complete(files: Sequence[str], place: str, *, strict: bool) -> bool:
    """Return whether files are one numbered set with all its parts; some makers count from zero."""
    matches = [_NUMBERED.fullmatch(name) for name in files]
    sets = {(match[1], match[3]) if match else None for match in matches}
    if len(sets) != 1 or None in sets:
        return len(files) == 1
    numbers = {int(match[2]) for match in matches if match}
    count = max(int(match[3]) for match in matches if match)
    first = 0 if 0 in numbers else 1
    last = count - 1 if first == 0 and count not in numbers else count
    if len(numbers) == last - first + 1 and max(numbers) <= last:
        return True
    if strict:
        raise InputError(
            f"{place}: {len(files)} of the {count} files are there, such as {shown(files[0])}; download the rest."
        )
    return False


def _gguf(names: Sequence[str], place: str, variant: str | None) -> Weights:
    """Return the parts of the one GGUF model that is meant."""
    from kvbudget.headers.gguf import split_names  # noqa: PLC0415 - folders of safetensors need none of it

    models = {
        _NUMBER.sub("-00001-of-", name): name
        for name in names
        if name.lower().endswith(".gguf") and not name.rpartition("/")[2].lower().startswith(_NO_MODEL)
    }
    wanted = [first for first in models if variant is None or _is_variant(first, variant)]
    if len(wanted) != 1:
        raise InputError(_choices(list(models), wanted, place, variant))
    folder, slash, file = models[wanted[0]].rpartition("/")
    parts = tuple(folder + slash + part for part in split_names(file))
    missing = sorted(set(parts) - set(names))
    if missing:
        raise InputError(f"{place}: {shown(missing[0])} is missing; download all {len(parts)} parts.")
    return Weights(GGUF, parts)


def _is_variant(name: str, variant: str) -> bool:
    """Return whether a file's name, or its folder's, has the variant as a word of its own: Q4_K is not Q4_K_M."""
    return re.search(rf"(?<![A-Za-z0-9_]){re.escape(variant)}(?![A-Za-z0-9_])", name, re.IGNORECASE) is not None


def variant_of(name: str) -> str:
    """Return what tells a GGUF file from its neighbours: ``Q4_K_M`` of ``model-Q4_K_M-00001-of-00002.gguf``."""
    stem = re.sub(r"(-[0-9]{5}-of-[0-9]{5})?\.gguf$", "", name.rpartition("/")[2], flags=re.IGNORECASE)
    return re.split(r"[-.](?=[A-Za-z0-9_]+$)", stem)[-1]


def _choices(models: Sequence[str], wanted: Sequence[str], place: str, variant: str | None) -> str:
    if not models:
        return f"{place} has no GGUF file of a model; leave out the :{shown(variant or '')}."
    listed = sorted({variant_of(first) for first in wanted or models})
    more = f" and {len(listed) - _MOST_SHOWN} more" if len(listed) > _MOST_SHOWN else ""
    choices = ", ".join(shown(name, 40) for name in listed[:_MOST_SHOWN]) + more
    if variant is None:
        return (
            f"{place} has several GGUF files ({choices}); name one: its path, or on the hub "
            f"{place}:{shown(listed[0], 40)}."
        )
    if wanted:
        return f"{place} has several GGUF files of {shown(variant, 40)}; give one as a file: {choices}."
    return f"{place} has no GGUF file of {shown(variant, 40)}; there are {choices}."
