"""Where a number comes from: the KV cache factor by factor, the weights group by group, a log line, a flag.

Nothing is computed here that the budget computes: the bytes come from the engine's own arithmetic, and an explanation
takes them apart.
"""

from kvbudget.explain.flag import explain_flag, flag_dict
from kvbudget.explain.kv import Factor, KvExplanation, Part, explain_kv
from kvbudget.explain.log import MAX_LOG_CHARACTERS, Reading, explain_log
from kvbudget.explain.origin import ConfigFile, key_lines
from kvbudget.explain.request import Kept, kept, request_bytes
from kvbudget.explain.slips import Slip, times
from kvbudget.explain.weights import WeightExplanation, WeightRow, explain_weights

STAND_IN_GPU = "H100-SXM-80GB"
"""The card whose block size and defaults hold where nobody named one; no figure of its memory is shown."""

__all__ = [
    "MAX_LOG_CHARACTERS",
    "STAND_IN_GPU",
    "ConfigFile",
    "Factor",
    "Kept",
    "KvExplanation",
    "Part",
    "Reading",
    "Slip",
    "WeightExplanation",
    "WeightRow",
    "explain_flag",
    "explain_kv",
    "explain_log",
    "explain_weights",
    "flag_dict",
    "kept",
    "key_lines",
    "request_bytes",
    "times",
]
