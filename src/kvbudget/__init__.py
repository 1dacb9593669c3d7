"""kvbudget: what a language model's deployment will do with a GPU's memory, before the GPU is rented.

The public names are imported on first use, so that ``kvbudget.kv_bytes`` alone stays cheap:

>>> import kvbudget as kb
>>> kb.kv_bytes(layers=32, hidden=4096, seq=4096, batch=1, dtype_bytes=2)
2147483648
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.budgeting import Budget, Kv, Line, Rank, budget
    from kvbudget.deployment import Deployment
    from kvbudget.errors import AccessError, CannotTell, InputError, KvbudgetError
    from kvbudget.facts.gpus import Gpu, find_gpu
    from kvbudget.model import Model
    from kvbudget.textbook import kv_bytes

__version__ = "0.1.0"

_HOMES = {
    "AccessError": "errors",
    "Budget": "budgeting",
    "CannotTell": "errors",
    "Deployment": "deployment",
    "Gpu": "facts.gpus",
    "InputError": "errors",
    "Kv": "budgeting",
    "KvbudgetError": "errors",
    "Line": "budgeting",
    "Model": "model",
    "Rank": "budgeting",
    "budget": "budgeting",
    "find_gpu": "facts.gpus",
    "kv_bytes": "textbook",
}

__all__ = [
    "AccessError",
    "Budget",
    "CannotTell",
    "Deployment",
    "Gpu",
    "InputError",
    "Kv",
    "KvbudgetError",
    "Line",
    "Model",
    "Rank",
    "__version__",
    "budget",
    "find_gpu",
    "kv_bytes",
]


def __getattr__(name: str) -> object:
    """Import a public name from its module when it is first asked for."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kvbudget' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    value = getattr(import_module(f"kvbudget.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names."""
    return list(__all__)
