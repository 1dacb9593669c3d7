"""The command that plans again with what was measured."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvbudget.check.metrics import Lengths, Metrics


def replan_command(source: str, metrics: Metrics | None) -> str:
    """Return the `kvbudget simulate` command with the measured lengths and rate, "" if they were not measured.

    Args:
        source: The plan's file or the model, as words of a command line.
        metrics: What was measured; medians are interpolated inside a histogram's buckets.
    """
    if metrics is None or metrics.prompt is None or metrics.output is None:
        return ""
    words = ["kvbudget simulate", source]
    if metrics.requests_per_s:
        words.append(f"--rate {metrics.requests_per_s:.3g}")
    words += [f"--prompt-tokens {_spelled(metrics.prompt)}", f"--output-tokens {_spelled(metrics.output)}"]
    return " ".join(words)


def _spelled(lengths: Lengths) -> str:
    """Return lengths as `simulate` takes them: lognormal with median and 95th percentile, or one length."""
    p50, p95 = (max(1, round(lengths.quantile(share))) for share in (0.5, 0.95))
    return f"lognormal:{p50}:{p95}" if p95 > p50 else f"{p50}"


def as_word(text: str) -> str:
    """Return a text as one word of a command line."""
    return shlex.quote(text)
