"""Residuals that a user has measured, kept in a small file of their own: readable, bounded, replaced in one move.

`KVBUDGET_CALIBRATION` names the file; by default it lies in the data folder of the XDG base directories.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget import __version__
from kvbudget.budgeting import budget
from kvbudget.errors import AccessError, InputError
from kvbudget.measured import PARTS, Correction, key_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from kvbudget.budgeting import Rank
    from kvbudget.deployment import Deployment

SCHEMA = 1

MAX_FILE = 1 << 20
MAX_KEYS = 500
"""Versions × cards × families that are remembered; the oldest are forgotten."""

MAX_MEASURED = 32
"""Measurements of one part that are kept, the newest."""

MAX_START = 100
"""Characters of what tells a start from others."""

ODD = 20.0
"""Measured over estimated from which a figure is taken for a mistake."""

PATIENCE_S = 10.0
"""How long to wait for another process that is writing."""

_PAUSE_S = 0.02


def calibration_path() -> Path:
    """Return where the file is, whether or not there is one."""
    given = os.environ.get("KVBUDGET_CALIBRATION")
    if given:
        return Path(given).expanduser()
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "kvbudget" / "calibration.json"


def calibrated(d: Deployment) -> Deployment:
    """Return the deployment with the corrections that hold for it; as it is where there are none.

    Raises:
        InputError: The file is damaged.
    """
    entries = _read(calibration_path()).get(key := key_of(d))
    if not entries:
        return d
    found = tuple(_correction(key, part, entries[part]) for part in PARTS if entries.get(part))
    return d.replaced(measured=found) if found else d


def learn(d: Deployment, terms: Mapping[str, float], start: str) -> tuple[Path, dict[str, int]]:
    """Keep how a deployment's estimates compared with what its engine printed.

    Args:
        d: The deployment as it ran.
        terms: Bytes of the parts that were printed, of the rank where each is largest.
        start: What tells this start from others, such as its time; what was learned from it before is replaced.

    Returns:
        The file, and how many measurements of each part it holds now.

    Raises:
        InputError: The file is damaged.
        AccessError: It cannot be written.
    """
    path, key = calibration_path(), key_of(d)
    ranks = budget(d.replaced(measured=())).ranks
    with _alone(path):
        return path, _learned(path, key, ranks, terms, start)


def _learned(path: Path, key: str, ranks: Sequence[Rank], terms: Mapping[str, float], start: str) -> dict[str, int]:
    kept = _read(path)
    entry = kept.pop(key, {})  # the newest key stands last
    counts = {}
    for part in PARTS:
        best = max(getattr(rank.fixed, part).best for rank in ranks)
        value = terms.get(part)
        if value is None or best <= 0 or not 0 <= value <= ODD * best:
            continue
        others = [row for row in entry.get(part, []) if row.get("start") != start[:MAX_START]]
        row = {"start": start[:MAX_START], "measured_bytes": round(value), "estimated_bytes": best}
        entry[part] = [*others, row][-MAX_MEASURED:]
        counts[part] = len(entry[part])
    if counts:
        kept[key] = entry
        _write(path, dict(list(kept.items())[-MAX_KEYS:]))
    return counts


def _correction(key: str, part: str, entries: list[dict[str, Any]]) -> Correction:
    ratios = [entry["measured_bytes"] / entry["estimated_bytes"] for entry in entries]
    return Correction(key, part, min(ratios), sum(ratios) / len(ratios), max(ratios), len(ratios))


def _read(path: Path) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return key -> part -> measurements; nothing where there is no file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise AccessError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        document = json.loads(content) if len(content) <= MAX_FILE else None
    except (ValueError, RecursionError):
        document = None
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(document, dict) or schema != SCHEMA or not isinstance(document.get("measured"), dict):
        raise InputError(
            f"{path} is no calibration of schema {SCHEMA}; remove it, or leave it out with --no-calibration."
        )
    return {str(key): _parts(entry) for key, entry in document["measured"].items()}


def _parts(entry: object) -> dict[str, list[dict[str, Any]]]:
    """Return what of an entry can be used; people may edit the file."""
    found: dict[str, list[dict[str, Any]]] = {}
    for part in PARTS:
        rows = entry.get(part) if isinstance(entry, dict) else None
        good = [row for row in rows if _is_good(row)] if isinstance(rows, list) else []
        if good:
            found[part] = good[-MAX_MEASURED:]
    return found


def _is_good(row: Any) -> bool:  # noqa: ANN401 - anything that JSON holds
    if not isinstance(row, dict):
        return False
    measured, estimated = row.get("measured_bytes"), row.get("estimated_bytes")
    if type(measured) is not int or type(estimated) is not int:  # a boolean is an int by inheritance
        return False
    return 0 < estimated < 1 << 50 and 0 <= measured <= ODD * estimated


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep others of this machine from reading, changing and writing the file at the same time; its folder is locked.

    The file itself is another one after each write.
    """
    try:
        import fcntl  # noqa: PLC0415 - not everywhere
    except ImportError:
        yield
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
    except OSError as error:
        raise AccessError(f"{path} cannot be written: {error.strerror or error}.") from None
    try:
        ends = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > ends:
                    raise AccessError(f"{path} is being written by another process; try again.") from None
                time.sleep(_PAUSE_S)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(folder)


def _write(path: Path, kept: Mapping[str, Any]) -> None:
    """Replace the file in one move; where it is a link, what that leads to."""
    path = path.resolve()
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    document = {"schema": SCHEMA, "kvbudget": __version__, "measured": kept}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):
            beside.unlink()
        raise AccessError(f"{path} cannot be written: {error.strerror or error}.") from None
