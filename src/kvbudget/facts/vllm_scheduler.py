"""Rules of vLLM's scheduler that changed from version to version.

Read in the sources of each release (v1/core/sched/scheduler.py, config/scheduler.py), November 2026.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.facts.vllm import Version

RESERVES_WHOLE_PROMPT: Version = (0, 19, 0)
"""Since then a request is admitted only if its whole prompt fits (``scheduler_reserve_full_isl``)."""
