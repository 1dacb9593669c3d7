"""Choices: the plan's against those of the server, and a deployment rebuilt from a server's own log."""

from __future__ import annotations

import json
import re
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.check.observation import Place, Said
from kvbudget.deployment import Deployment, flag
from kvbudget.engines import vllm
from kvbudget.errors import KvbudgetError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvbudget.check.metrics import Metrics
    from kvbudget.check.observation import Observation
    from kvbudget.check.plan import Plan

SETTINGS = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "enable_expert_parallel",
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "gpu_memory_utilization",
    "kv_cache_dtype",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "block_size",
    "enforce_eager",
    "enable_prefix_caching",
)
"""Choices that move the pool or what it serves, by their names in a budget's `settings`."""

ASKED = ("dtype", "quantization", "async_scheduling", "speculative_config", "enable_lora", "max_loras", "max_lora_rank")
"""Choices that move the terms and that a server's configuration tells in words of its own (`awq_marlin` for awq): what
was asked for is compared."""

ADDS_TERMS = ("quantization", "speculative_config", "enable_lora")
"""Those that are a difference too where the server alone has them."""

FIXES_POOL = ("num_gpu_blocks_override",)
"""Choices that nobody makes unless asked to: where the plan has none, the server's own is a difference."""

SAME_KV_TYPES = {"auto", "bfloat16", "float16", "half", "None"}
"""Types of the cache that are the model's own in print."""


class Difference(NamedTuple):
    """A choice that is not as planned.

    Attributes:
        name: The flag with underscores.
        plan: The plan's value.
        actual: The server's, None if the flag was not given there.
        missing: Whether the plan gave the flag and the server did not.
        place: Where the server says so.
    """

    name: str
    plan: Any
    actual: Any
    missing: bool
    place: str


def differences(plan: Plan, seen: Observation, metrics: Metrics | None) -> tuple[tuple[Difference, ...], int]:
    """Return the choices that differ, and how many are the same."""
    wanted = plan.budget["settings"]
    found: list[Difference] = []
    same = 0
    version = _version_difference(plan, seen)
    if version is not None:
        found.append(version)
    for name in SETTINGS:
        planned = wanted.get(name)
        said = _actual(name, seen, metrics)
        if said is None:
            missing = _missing(name, plan, seen)
            if missing is not None:
                found.append(missing)
            continue
        if _alike(name, planned, said.value):
            same += 1
        elif planned is not None or name in plan.choices or name in FIXES_POOL:
            given = name in seen.flags
            found.append(Difference(name, planned, said.value, name in plan.choices and not given, str(said.place)))
    for name in _asked_of(seen):
        different = _asked(name, plan, seen)
        if different is not None:
            found.append(different)
        elif name in plan.choices:
            same += 1
    return tuple(found), same


def _asked_of(seen: Observation) -> Iterator[str]:
    """Yield the choices that are compared by what was asked for, where the log has that."""
    if seen.engine != "vllm" or not seen.flags:
        return
    adapters = seen.flags.get("enable_lora")
    yield from (name for name in ASKED if "max_lora" not in name or (adapters is not None and adapters.value))


def _asked(name: str, plan: Plan, seen: Observation) -> Difference | None:
    """Return how what the server was asked for differs from what the plan asks for, None where it does not."""
    planned, said = plan.choices.get(name), seen.flags.get(name)
    if said is None or said.value in (None, "auto", {}):
        return _missing(name, plan, seen)
    if planned is None:
        adds = name in ADDS_TERMS and said.value and not plan.budget["settings"].get(name)
        return Difference(name, None, said.value, missing=False, place=str(said.place)) if adds else None
    alike = _same_draft if isinstance(planned, dict) and isinstance(said.value, dict) else partial(_alike, name)
    return (
        None
        if alike(planned, said.value)
        else Difference(name, planned, said.value, missing=False, place=str(said.place))
    )


def _same_draft(planned: Mapping[str, Any], actual: Mapping[str, Any]) -> bool:
    """Return whether two configurations draft alike, by what both say; a draft may have several names."""
    return all(
        planned[name] == actual[name]
        for name in ("method", "num_speculative_tokens")
        if name in planned.keys() & actual.keys()
    )


def _actual(name: str, seen: Observation, metrics: Metrics | None) -> Said | None:
    """Return what the server has for a choice, None if it does not say."""
    said = seen.flags.get(name) if name != "max_model_len" else None
    if said is None or said.value in (None, "auto", -1):
        said = seen.setting(name)
    if (said is None or said.value is None) and name == "max_model_len":
        figure = seen.largest("max_model_len")
        said = Said(int(figure.value), figure.place) if figure else None
    if (said is None or said.value is None) and name == "gpu_memory_utilization":
        figure = seen.largest(name)
        said = Said(figure.value, figure.place) if figure else None
    if (said is None or said.value is None) and metrics is not None:
        key = {"kv_cache_dtype": "cache_dtype"}.get(name, name)
        text = metrics.cache_config.get(key)
        if text not in (None, "None") and name not in (
            "max_num_seqs",
            "max_num_batched_tokens",
            "kv_cache_memory_bytes",
        ):
            said = Said(text, Place(metrics.source, 0))
    return None if said is None or said.value is None else said


def _missing(name: str, plan: Plan, seen: Observation) -> Difference | None:
    """Return a flag of the plan that the server's command line, which we have, does not hold."""
    if name not in plan.choices or not seen.flags or seen.engine != "vllm":
        return None
    place = next(iter(seen.flags.values())).place
    default = _default(name, plan, seen)
    if default is not None and _alike(name, plan.choices[name], default):
        return None
    return Difference(name, plan.choices[name], default, missing=True, place=str(place))


_PLAIN_DEFAULTS: Mapping[str, Any] = {
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "decode_context_parallel_size": 1,
    "enable_expert_parallel": False,
    "enforce_eager": False,
    "kv_cache_dtype": "auto",
    "enable_lora": False,
    "max_loras": 1,
    "max_lora_rank": 16,
}

_RULED_DEFAULTS = ("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "async_scheduling")


def _default(name: str, plan: Plan, seen: Observation) -> Any:  # noqa: ANN401 - any choice
    """Return what the server's version takes where nobody says, None where that is not known."""
    if name == "dtype":  # the model's own, which the server tells
        said = seen.resolved.get(name)
        return str(said.value).removeprefix("torch.") if said is not None else None
    if name not in _RULED_DEFAULTS:
        return _PLAIN_DEFAULTS.get(name)
    version = str(seen.version.value) if seen.version is not None else plan.engine_version
    try:
        resolved = vllm.settings(plan.deployment.replaced(**{name: None}, engine_version=version))
    except KvbudgetError:
        return None
    return getattr(resolved, name)


def _version_difference(plan: Plan, seen: Observation) -> Difference | None:
    if seen.version is None or seen.engine != "vllm":
        return None
    runs, made_for = (_minor(text) for text in (seen.version.value, plan.engine_version))
    if runs is None or made_for is None or runs == made_for:
        return None
    return Difference(
        "engine_version", plan.engine_version, str(seen.version.value), missing=False, place=str(seen.version.place)
    )


def _minor(version: object) -> tuple[int, int] | None:
    """Return major and minor of any version, those whose rules are not known included; None where it is none."""
    found = re.match(r"v?(\d{1,4})\.(\d{1,4})(?!\d)", str(version))
    return None if found is None else (int(found[1]), int(found[2]))


def _alike(name: str, planned: object, actual: object) -> bool:
    """Return whether two values of a choice mean the same."""
    if name == "kv_cache_dtype":
        texts = {_type(planned), _type(actual)}
        return len(texts) == 1 or texts <= SAME_KV_TYPES
    if name in ("dtype", "quantization"):
        return _type(planned) == _type(actual)
    if isinstance(actual, str):
        actual = {"True": True, "False": False, "None": None}.get(actual, actual)
    try:
        return float(planned) == float(actual)  # type: ignore[arg-type] # text is caught below
    except (TypeError, ValueError, OverflowError):  # an integer of hundreds of digits
        return planned == actual


def _type(value: object) -> str:
    name = str(value).removeprefix("torch.").removesuffix("_marlin").replace("fp8_e4m3", "fp8")
    return {"half": "float16", "float": "float32"}.get(name, name)


# -- a deployment from a server's own words

TAKEN = (
    *SETTINGS,
    *ASKED,
    "disable_hybrid_kv_cache_manager",
    "limit_mm_per_prompt",
    "language_model_only",
    "skip_mm_profiling",
)
"""Flags of a server that become fields of a `Deployment`."""

_FROM_RESOLVED = (
    "tensor_parallel_size",
    "pipeline_parallel_size",
    "data_parallel_size",
    "decode_context_parallel_size",
    "max_model_len",
    "max_num_batched_tokens",
    "kv_cache_dtype",
    "enforce_eager",
    "dtype",
)
"""What is taken from the resolved configuration where no flag was typed."""


def options_of(seen: Observation) -> dict[str, Any]:
    """Return the fields of a `Deployment` that a server's log tells, without model and card."""
    found: dict[str, Any] = {}
    for name in TAKEN:
        said = seen.flags.get(name)
        if (said is None or said.value is None) and name in _FROM_RESOLVED:
            said = seen.resolved.get(name)
        value = said.value if said is not None else None
        if value is None or value in ("None", {}, ""):
            continue
        if name == "dtype":
            value = str(value).removeprefix("torch.")
        if name == "max_model_len" and value in ("auto", -1, "-1"):
            continue
        if _plain(name, value):
            found[name] = value
    if seen.version is not None:
        found["engine_version"] = str(seen.version.value)
    fraction = seen.largest("gpu_memory_utilization")
    if fraction is not None:
        found.setdefault("gpu_memory_utilization", fraction.value)
    length = seen.largest("max_model_len")
    if length is not None:
        found.setdefault("max_model_len", int(length.value))
    return found


_OBJECTS = ("speculative_config", "limit_mm_per_prompt")
_FIELDS: Mapping[str, str] = {name: str(item.type) for name, item in Deployment.__dataclass_fields__.items()}


def _plain(name: str, value: object) -> bool:
    """Return whether a value is of the kind that the field takes; what was printed oddly is left out."""
    if name in _OBJECTS:
        return isinstance(value, dict)
    kind = _FIELDS[name]
    if kind.startswith("bool"):
        return isinstance(value, bool)
    if kind.startswith("int"):
        return isinstance(value, int) and not isinstance(value, bool)
    if kind.startswith("float"):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, str)


def typed(name: str, value: Any) -> str:  # noqa: ANN401 - any choice
    """Return a choice as it is typed."""
    if isinstance(value, bool):
        return flag(name) if value else f"--no-{flag(name)[2:]}"
    return f"{flag(name)} {shlex.quote(json.dumps(value) if isinstance(value, dict) else str(value))}"
