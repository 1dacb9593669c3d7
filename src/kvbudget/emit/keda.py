"""A KEDA object that adds engines before a plan's lines are reached."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kvbudget.check.promql import checked_selector, either
from kvbudget.emit.limits import limits_of
from kvbudget.errors import InputError
from kvbudget.facts import metric_names as facts
from kvbudget.headers.source import shown

if TYPE_CHECKING:
    from kvbudget.check.plan import Plan

SERVER = "http://prometheus-operated.monitoring.svc:9090"
"""Where the Prometheus operator's manifests put its server; an assumption, like any address."""

MAX_REPLICAS = 4

MOST_REPLICAS = (1 << 31) - 1
"""An int32, as the ScaledObject's schema has it (keda.sh_scaledobjects.yaml)."""

AHEAD = 0.1
"""The share of the cache below the line at which engines are added: one takes minutes to start."""

POLLING_S, COOLDOWN_S = 15, 360
"""How often to look, and how long to wait before an engine is taken away; vLLM's production stack has the same."""

_NAME_LENGTH = 50
"""A Kubernetes name has 63 characters at most, and KEDA puts its own before it."""


def scaled_object(
    plan: Plan, selector: str = "", *, server: str = SERVER, target: str = "", max_replicas: int = MAX_REPLICAS
) -> dict[str, Any]:
    """Return a KEDA ScaledObject as plain data, for `as_yaml`.

    A trigger's threshold is for one replica: KEDA divides the sum by it. The engines of one pod are one replica, by
    their mean.

    Args:
        plan: The plan.
        selector: Labels that the series must have; else every vLLM that is scraped counts.
        server: The address of Prometheus, as KEDA reaches it.
        target: The Kubernetes Deployment to scale; "" takes the model's name.
        max_replicas: The most that may run.

    Raises:
        InputError: The plan does not fit or lacks a figure, or another argument is not what it should be.
        CannotTell: It is of an engine that has no such metrics.
    """
    limits = limits_of(plan)
    labels = checked_selector(selector)
    name = target or kubernetes_name(limits.model)
    _check(server, name, max_replicas)
    asked = (
        (facts.WAITING, str(limits.waiting_line)),
        (facts.KV_USAGE, f"{limits.kv_full - AHEAD:.4g}"),
    )
    return {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"name": name},
            "minReplicaCount": 1,
            "maxReplicaCount": max_replicas,
            "pollingInterval": POLLING_S,
            "cooldownPeriod": COOLDOWN_S,
            "triggers": [
                {
                    "type": "prometheus",
                    "metadata": {
                        "serverAddress": server,
                        "query": f"sum(avg by (instance) ({either(meaning, limits.engine, labels)}))",
                        "threshold": threshold,
                    },
                }
                for meaning, threshold in asked
            ],
        },
    }


def _check(server: str, name: str, max_replicas: int) -> None:
    """Refuse what KEDA or Kubernetes would refuse later."""
    if not re.fullmatch(r"https?://[!-~]+", server):
        raise InputError(f"--prometheus {shown(server)} is no address; write for example {SERVER}.")
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise InputError(f"--target {shown(name)} is no name that Kubernetes takes; use a-z, 0-9 and -.")
    if type(max_replicas) is not int or not 1 <= max_replicas <= MOST_REPLICAS:
        raise InputError(f"--max-replicas {shown(str(max_replicas), 40)}: expected a whole number from 1 on.")


def kubernetes_name(text: str) -> str:
    """Return the last part of a model's name as a name that Kubernetes takes."""
    last = text.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9]+", "-", last)[:_NAME_LENGTH].strip("-") or "vllm"
