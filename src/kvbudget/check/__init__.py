"""A running engine against its plan: logs and metrics in, what differs and what to turn out."""

from __future__ import annotations

from kvbudget.check.logs import Reader, read_log, read_logs
from kvbudget.check.metrics import Metrics, read_metrics
from kvbudget.check.observation import Observation
from kvbudget.check.plan import Plan, plan_dict, plan_from, plan_of, read_plan
from kvbudget.check.verdict import CANNOT_TELL, DRIFT, HEALTHY, Check, check

__all__ = [
    "CANNOT_TELL",
    "DRIFT",
    "HEALTHY",
    "Check",
    "Metrics",
    "Observation",
    "Plan",
    "Reader",
    "check",
    "plan_dict",
    "plan_from",
    "plan_of",
    "read_log",
    "read_logs",
    "read_metrics",
    "read_plan",
]
