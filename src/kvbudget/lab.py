"""The worked exercise: seven small files with a KV cache computed by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from kvbudget.errors import AccessError, InputError
from kvbudget.textbook import Card, kv_bytes, kv_table, room
from kvbudget.units import GIB

if TYPE_CHECKING:
    import os

# The model of the exercise: a 7B with as many KV heads as query heads, unless a file says otherwise.
_LAYERS: Final = 32
_HIDDEN: Final = 4096
_FP16: Final = 2
_INT8: Final = 1
_SHARED_BY: Final = 8
_SHORT, _MIDDLE, _LONG = 4096, 32768, 131072
_CARD: Final = Card(memory_bytes=80 * GIB, weights_bytes=14 * GIB, overhead_bytes=6 * GIB)

# Stands on its own, to be read and run without this package; a test holds it to `textbook.kv_bytes`.
_KV_PY: Final = '''\
"""The size of a KV cache, by hand."""


def kv_bytes(layers, hidden, seq, batch, dtype_bytes, kv_groups=1):
    """Return the bytes of a KV cache.

    layers       layers of the model
    hidden       hidden size: query heads x head dim
    seq          tokens in each request
    batch        requests
    dtype_bytes  bytes in one value: 2 for fp16, 1 for int8
    kv_groups    query heads that share one KV head: a divisor, not the number of KV heads
    """
    if min(layers, hidden, seq, batch, dtype_bytes, kv_groups) <= 0:
        raise ValueError("every figure must be positive")
    if hidden % kv_groups:
        raise ValueError(f"hidden {hidden} cannot be divided by kv_groups {kv_groups}")
    keys_and_values = 2
    return keys_and_values * layers * (hidden // kv_groups) * seq * batch * dtype_bytes
'''


def lab_files() -> dict[str, str]:
    """Return the text of each file of the exercise by its name, computed with `kvbudget.textbook`."""
    return {
        "kv.py": _KV_PY,
        "base.txt": _result(kv_bytes(_LAYERS, _HIDDEN, _SHORT, 1, _FP16)),
        "long.txt": _result(kv_bytes(_LAYERS, _HIDDEN, _LONG, 1, _FP16)),
        "gqa.txt": _result(kv_bytes(_LAYERS, _HIDDEN, _LONG, 1, _FP16, _SHARED_BY)),
        "int8.txt": _result(kv_bytes(_LAYERS, _HIDDEN, _LONG, 1, _INT8, _SHARED_BY)),
        "fit.txt": _fit(),
        "kv_table.csv": _table(),
    }


def write_lab(directory: str | os.PathLike[str], *, overwrite: bool = False) -> tuple[Path, ...]:
    """Write the files of the exercise into `directory`, made if missing, and return their paths.

    Nothing is written unless all can be. A file that already has its right content is left as it is; one with
    other content is somebody's work and stays unless `overwrite` is set; what is no regular file (a folder, a
    link, a pipe) is never replaced.

    Raises:
        InputError: `directory` is no folder, or a name in it is taken.
        AccessError: The folder or a file may not be read or written.
    """
    folder = Path(directory)
    files = {folder / name: text.encode() for name, text in lab_files().items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        missing = [path for path, content in files.items() if not _is_there(path, content, overwrite=overwrite)]
        for path in missing:
            path.write_bytes(files[path])
    except InputError:
        raise
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{str(folder)!r} is a file or lies below one; name a folder, new or existing.") from error
    except OSError as error:
        reason = error.strerror or "no reason given"
        raise AccessError(f"Writing to {str(folder)!r} failed ({reason}); name another folder.") from error
    except ValueError as error:
        raise InputError(f"{str(folder)!r} cannot be a folder's name ({error}); name another one.") from error
    return tuple(files)


def _is_there(path: Path, content: bytes, *, overwrite: bool) -> bool:
    """Return whether the file already has its content; refuse if the name is taken by something else."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise InputError(f"{str(path)!r} exists and is not a regular file; move it or name another folder.")
    if not path.exists():
        return False
    if path.read_bytes() == content:
        return True
    if not overwrite:
        raise InputError(f"{str(path)!r} exists with other content; name another folder, or --force to replace it.")
    return False


def _result(size: int) -> str:
    return f"bytes={size} gib={_gib(size)}\n"


def _fit() -> str:
    per_token = kv_bytes(_LAYERS, _HIDDEN, 1, 1, _FP16, _SHARED_BY)
    held = room(_CARD, bytes_per_token=per_token, context=_MIDDLE)
    parts = (
        f"gpu_gib={_CARD.memory_bytes // GIB}",
        f"weights_gib={_CARD.weights_bytes // GIB}",
        f"overhead_gib={_CARD.overhead_bytes // GIB}",
        f"kv_budget_gib={_CARD.kv_share_bytes // GIB}",
        f"per_req_gib={_gib(held.request_bytes)}",
        f"max_concurrent={held.requests}",
    )
    return " ".join(parts) + "\n"


def _table() -> str:
    cells = kv_table(_LAYERS, _HIDDEN, _FP16, contexts=(_SHORT, _MIDDLE, _LONG), batches=(1, 8))
    rows = (f"{cell.context},{cell.batch},{_gib(cell.kv_bytes)}" for cell in cells)
    return "\n".join(("context,batch,gib", *rows)) + "\n"


def _gib(size: int) -> str:
    """Return GiB with two decimals and no thousands separator, so that files stay machine-readable."""
    return f"{size / GIB:.2f}"
