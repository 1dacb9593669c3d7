"""Queries of an engine's series: a meaning under every name that the engine's versions give it."""

from __future__ import annotations

import re

from kvbudget.check.metrics import names_of
from kvbudget.errors import InputError
from kvbudget.facts import metric_names as facts
from kvbudget.headers.source import shown

_MATCHER = r'[A-Za-z_][A-Za-z0-9_]*\s*(?:!?=\s*"[^"\\]*"|[=!]~\s*"[A-Za-z0-9_.:/|*+-]*")'
_SELECTOR = re.compile(rf"\s*{_MATCHER}\s*(?:,\s*{_MATCHER}\s*)*")

_LONGEST_SELECTOR = 1000


def checked_selector(text: str) -> str:
    """Return labels that all series must have, as they stand between PromQL's braces.

    Raises:
        InputError: They are none.
    """
    if not text.strip():
        return ""
    if (
        len(text) > _LONGEST_SELECTOR
        or not text.isprintable()
        or not _SELECTOR.fullmatch(text)
        or not all(map(_is_pattern, re.findall(r'~\s*"([^"]*)"', text)))
    ):
        raise InputError(f"--selector {shown(text)} is not understood; write for example 'namespace=\"prod\"'.")
    return text.strip()


def _is_pattern(text: str) -> bool:
    """Return whether a text of the few characters that a selector's patterns may have is an expression to Prometheus.

    Python takes a repetition of a repetition (`.*+`), which RE2 does not.
    """
    try:
        re.compile(text)
    except re.error:
        return False
    return not re.search(r"[*+]{2}", text)


def either(meaning: str, engine: str, selector: str = "", pattern: str = "{}", suffix: str = "") -> str:
    """Return a query for a meaning under any of its names, the newest first where an engine has both.

    Series without a model's name are a router's, which counts the same requests again. Ranks that work on the same
    requests count once.

    Args:
        meaning: One of `kvbudget.facts.metric_names`.
        engine: Whose.
        selector: Labels that the series must have.
        pattern: What is asked of each: ``rate({}[5m])``.
        suffix: Of each name: ``_bucket``.
    """
    labels = f'{facts.MODEL}!=""' + (f", {selector}" if selector else "")
    found = [pattern.replace("{}", f"{name}{suffix}{{{labels}}}") for name in names_of(meaning, engine)]
    query = found[0] if len(found) == 1 else f"({' or '.join(found)})"
    return f"max without ({', '.join(sorted(facts.RANKS))}) ({query})" if engine == "sglang" else query


def capacity(engine: str, selector: str = "") -> str:
    """Return a query for the caches' configurations, one series an engine."""
    return f"{names_of(facts.CONFIG, engine)[0]}{of_selected(engine, selector)}"


def of_selected(engine: str, selector: str) -> str:
    """Return what keeps the engines that a selector names, by another metric: the cache's has no `model_name`."""
    return f" and on (job, instance) {either(facts.RUNNING, engine, selector)}" if selector else ""
