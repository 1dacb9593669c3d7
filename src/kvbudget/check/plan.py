"""Plan files: what was decided before the GPU was rented, whole enough that no network is needed to read it again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvbudget import __version__
from kvbudget.basis import Basis
from kvbudget.budgeting import as_dict
from kvbudget.deployment import Deployment
from kvbudget.engines import vllm_cache as cache
from kvbudget.errors import AccessError, InputError
from kvbudget.facts.gpus import Gpu
from kvbudget.headers.source import shown
from kvbudget.model import Model
from kvbudget.model.shapes import Group
from kvbudget.model.stored import Held, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbudget.budgeting import Budget
    from kvbudget.model.model import Model as ModelType

SCHEMA = 1
KIND = "kvbudget plan"

MAX_BYTES = 64 << 20
"""A plan of a model with 100,000 modules has some 10 MB."""

_SIDE_FILES = ("hf_quant_config", "quantize_config")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan as its file holds it.

    Args:
        path: Where it was read, "" if it was just made.
        document: All of it.
    """

    path: str
    document: Mapping[str, Any]

    @property
    def budget(self) -> Mapping[str, Any]:
        """The budget as `Budget.to_dict` gave it, with bounds."""
        found: Mapping[str, Any] = self.document["budget"]
        return found

    @property
    def expectation(self) -> Mapping[str, Any]:
        """What was expected under load; empty until `kvbudget simulate` has filled it."""
        return self.document.get("expectation") or {}

    @property
    def choices(self) -> Mapping[str, Any]:
        """What the operator chose, by field of `Deployment`."""
        found: Mapping[str, Any] = self.document["deployment"]
        return found

    @property
    def engine_version(self) -> str:
        """The engine's version that the plan was made for."""
        return str(self.budget["engine"]["version"])

    @cached_property
    def deployment(self) -> Deployment:
        """The deployment, built again from what the file holds.

        Raises:
            InputError: A value in it is refused.
            CannotTell: The model's architecture is not known to this version.
        """
        try:
            model = _model(self.document["model"])
            card = dict(self.document["gpu"])
            card["aliases"] = tuple(map(str, card["aliases"]))
            gpu = Gpu(**{**card, "basis": Basis(card["basis"])})
            return Deployment(model=model, gpu=gpu, **self.choices)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{shown(self.path)} is damaged ({type(error).__name__}); make the plan again.") from None


def plan_of(b: Budget, expectation: Mapping[str, Any] | None = None) -> Plan:
    """Return the plan that a budget is."""
    return Plan(path="", document=plan_dict(b, expectation))


def plan_dict(b: Budget, expectation: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a budget as the JSON object of a plan file, schema 1.

    Args:
        b: The budget.
        expectation: What is expected under load, as `kvbudget simulate --json` says it, with `prompt_tokens` and
            `output_tokens` (p50, p95), `rate_per_s`, and the `engines` that shared the load; empty where nobody has
            simulated it.
    """
    d = b.deployment
    choices = d.choices()
    choices.setdefault("engine_version", d.engine_version)
    if d.speculation is not None:
        choices["speculative_config"] = _speculation(b)
    if d.limit_mm_per_prompt:
        choices["limit_mm_per_prompt"] = {
            limit.modality: {
                name: value
                for name, value in (("count", limit.items), ("width", limit.width), ("height", limit.height))
                if value is not None
            }
            for limit in d.limits.each
        }
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "kvbudget": __version__,
        "model": _model_document(d.model),
        "gpu": {**d.card._asdict(), "basis": d.card.basis.value},
        "deployment": choices,
        "budget": {**as_dict(b), "bounds": _bounds(b)},
        "expectation": dict(expectation or {}),
    }


def _speculation(b: Budget) -> dict[str, Any]:
    config = b.deployment.speculation
    assert config is not None  # noqa: S101 - the caller has looked
    found: dict[str, Any] = {"method": config.method}
    if config.num_speculative_tokens is not None:
        found["num_speculative_tokens"] = config.num_speculative_tokens
    if config.model is not None:
        found["model"] = config.model.source if Path(config.model.source).exists() else config.model.name
    for name in ("draft_sample_method", "use_heterogeneous_vocab", "disable_padded_drafter_batch"):
        found[name] = getattr(config, name)
    return found


def _bounds(b: Budget) -> dict[str, list[float | None]]:
    """Return [low, high] of what follows from the pool, with every estimate at its high end and at its low end."""
    found: dict[str, list[float | None]] = {"num_gpu_blocks": [], "kv_cache_size_tokens": [], "max_concurrency": []}
    for end in ("available_low_bytes", "available_high_bytes"):
        available = tuple(max(0, getattr(rank, end)) for rank in b.ranks)
        blocks = cache.num_gpu_blocks(b.plan, available, override=b.deployment.num_gpu_blocks_override)
        concurrency = cache.max_concurrency(b.plan, blocks)
        found["num_gpu_blocks"].append(blocks)
        found["kv_cache_size_tokens"].append(cache.kv_cache_size_tokens(b.plan, blocks))
        found["max_concurrency"].append(concurrency if isfinite(concurrency) else None)
    return found


def _model_document(model: ModelType) -> dict[str, Any]:
    """Return a model's config, the files beside it, and what its headers say."""
    stored = model.stored
    return {
        "name": model.name,
        "source": model.source,
        "config": model.config,
        **{name: model.beside[name] for name in _SIDE_FILES if model.beside.get(name)},
        "stored": None
        if stored is None
        else {
            "read": stored.read,
            "modules": {path: list(held) for path, held in stored.modules.items()},
            "bytes_by_group": {group.value: size for group, size in stored.bytes_by_group.items()},
            "not_loaded_bytes": stored.not_loaded_bytes,
            "total_bytes": stored.total_bytes,
            "notes": list(stored.notes),
        },
    }


def _model(document: Mapping[str, Any]) -> ModelType:
    """Return the model of a plan file."""
    sides = {name: document.get(name) for name in _SIDE_FILES}
    model = Model.from_config(document["config"], name=document["name"], source=document["source"], **sides)
    stored = document.get("stored")
    if stored is None:
        return model
    return replace(
        model,
        stored=Stored(
            read=str(stored["read"]),
            modules={path: Held(int(n), int(v), bool(p), str(t)) for path, (n, v, p, t) in stored["modules"].items()},
            bytes_by_group={Group(name): int(size) for name, size in stored["bytes_by_group"].items()},
            not_loaded_bytes=int(stored["not_loaded_bytes"]),
            total_bytes=stored["total_bytes"],
            notes=tuple(map(str, stored["notes"])),
        ),
    )


def is_plan(path: str) -> bool:
    """Return whether a file holds a plan, of whatever schema."""
    try:
        found = Path(path)
        if not found.is_file() or found.stat().st_size > MAX_BYTES:
            return False
        with found.open("rb") as file:  # its kind may stand anywhere: other tools sort the keys
            return file.read(1 << 8).lstrip().startswith(b"{") and KIND.encode() in found.read_bytes()
    except (OSError, ValueError):
        return False


def read_plan(path: str | Path) -> Plan:
    """Return the plan in a file.

    Raises:
        AccessError: The file cannot be read.
        InputError: It is no plan, or of a schema that this version does not read; the message names it.
    """
    name = shown(str(path))
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise AccessError(f"{name} cannot be read: {error.strerror or error}.") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{name} is larger than {MAX_BYTES >> 20} MiB; it is no plan.")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(f"{name} is not JSON; give a file that `kvbudget fit --save-plan` wrote.") from None
    return plan_from(document, name)


def plan_from(document: object, name: str) -> Plan:
    """Return the plan that a parsed file is, if it has what a plan of this schema has.

    Raises:
        InputError: It is no plan, of another schema, or damaged.
    """
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise InputError(f"{name} is no plan; give a file that `kvbudget fit --save-plan` wrote.")
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        maker = shown(str(document.get("kvbudget")), 20)
        newer = type(schema) is int and schema > SCHEMA
        raise InputError(
            f"{name} is schema {shown(str(schema), 20)}, written by kvbudget {maker}; this version, {__version__}, "
            f"reads schema {SCHEMA}; {'update kvbudget, or make' if newer else 'make'} the plan again: kvbudget fit … "
            "--save-plan FILE."
        )
    wrong = next(_wrong(document), None)
    if wrong is not None:
        raise InputError(f"{name} is damaged: {wrong} is missing or not what it should be; make the plan again.")
    return Plan(path=name, document=document)


def _wrong(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of what is not as it was written, the outer parts first."""
    for part in ("model", "gpu", "deployment", "budget", "expectation"):
        if not isinstance(document.get(part), dict):
            yield part
            return
    model, gpu, b = document["model"], document["gpu"], document["budget"]
    yield from (f"model.{key}" for key in ("name", "source") if not isinstance(model.get(key), str))
    yield from (f"model.{key}" for key in ("config",) if not isinstance(model.get(key), dict))
    yield from (f"gpu.{key}" for key, kind in _CARD.items() if not isinstance(gpu.get(key), kind))
    yield from (f"deployment.{key}" for key in _NO_CHOICES if key in document["deployment"])
    yield from (f"gpu.{key}" for key in ("memory_bytes", "engine_total_bytes") if (gpu.get(key) or 1) <= 0)
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?", gpu.get("compute_capability") or "9.0"):
        yield "gpu.compute_capability"
    yield from (f"budget.{key}" for key in ("settings", "engine", "kv", "bounds") if not isinstance(b.get(key), dict))
    if isinstance(b.get("engine"), dict) and not isinstance(b["engine"].get("version"), str):
        yield "budget.engine.version"
    if isinstance(b.get("kv"), dict):
        yield from (f"budget.kv.{key}" for key in _POOL if not _is_figure(b["kv"].get(key)))
        yield from (
            f"budget.kv.{key}" for key in _BOUNDED if not (b["kv"].get(key) is None or _is_figure(b["kv"][key]))
        )
    if isinstance(b.get("bounds"), dict):
        yield from (f"budget.bounds.{key}" for key in _BOUNDED if not _is_interval(b["bounds"].get(key)))
    ranks = b.get("ranks")
    if not (isinstance(ranks, list) and ranks and all(map(_is_rank, ranks))):
        yield "budget.ranks"


_CARD: Mapping[str, Any] = {
    "name": str,
    "aliases": list | tuple,
    "marketing": str,
    "memory_bytes": int,
    "basis": str,
    "engine_total_bytes": int | None,
    "bandwidth_bytes_per_s": int | None,
    "bf16_flops": int | None,
    "fp8_flops": int | None,
    "compute_capability": str | None,
    "interconnect_bytes_per_s": int | None,
    "unified": bool,
    "source": str,
    "read_on": str,
}
"""What the fields of a card are."""

_NO_CHOICES = ("model", "gpu", "what_if", "uncounted", "measured")
"""Fields of a deployment that a plan does not hold among the choices."""

_LINE = ("needs_bytes", "takes_bytes", "low_bytes", "high_bytes")

_POOL = tuple(f"available_kv_cache_memory_{end}" for end in ("low_bytes", "bytes", "high_bytes"))
_BOUNDED = ("num_gpu_blocks", "kv_cache_size_tokens", "max_concurrency")

_LARGEST = 1e18
"""No figure of a plan lies above it, memory in bytes included."""


def _is_figure(value: object) -> bool:
    """Return whether a value is a number that a plan can hold."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _is_end(value: object) -> bool:
    return value is None or _is_figure(value)


def _is_interval(value: object) -> bool:
    """Return whether a value is two ends, either of which may not be known."""
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004 - low and high
        return False
    return all(map(_is_end, value))


def _is_rank(rank: object) -> bool:
    """Return whether a rank has lines with figures."""
    if not isinstance(rank, dict) or not _is_figure(rank.get("budget_bytes")):
        return False
    lines = rank.get("lines")
    return isinstance(lines, list) and all(
        isinstance(line, dict) and isinstance(line.get("name"), str) and all(_is_figure(line.get(key)) for key in _LINE)
        for line in lines
    )
