"""What watches a deployment, made from its plan: Prometheus rules, a Grafana dashboard, a KEDA object."""

from __future__ import annotations

from kvbudget.emit.grafana import dashboard
from kvbudget.emit.keda import scaled_object
from kvbudget.emit.limits import Limits, limits_of
from kvbudget.emit.rules import rules
from kvbudget.emit.yaml import as_yaml

__all__ = ["Limits", "as_yaml", "dashboard", "limits_of", "rules", "scaled_object"]
