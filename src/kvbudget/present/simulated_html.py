"""A simulation as one page: the report's words and tables, with the curves of the cache, the queue and preemptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvbudget import __version__
from kvbudget.present.budget_html import section
from kvbudget.present.html import MAX_NAME, esc, page
from kvbudget.present.simulated import simulated_document

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvbudget.simulation.answer import Answer

DRAWN = 256
"""Points of a curve; more are finer than a screen."""


def simulated_page(a: Answer) -> str:
    """Return the page of a simulation; it says the same as the text."""
    document = simulated_document(a, curves=False)
    stretches, usable = a.summary.curves.stretches, a.settings.usable_blocks
    ends = a.summary.simulated_s
    charts = [
        _chart(
            1,
            "KV used",
            f"% of the {a.settings.words.unit}",
            [100 * s.used_blocks / usable for s in stretches],
            100,
            ends,
        ),
        _chart(2, "Running", "requests", [s.running for s in stretches], a.settings.seats, ends),
        _chart(3, "Waiting", "requests", [s.waiting for s in stretches], 0, ends),
        _chart(
            4,
            f"{a.settings.words.loss.capitalize()}s",
            "in each stretch of time",
            [s.preempted for s in stretches],
            0,
            ends,
        ),
    ]
    body = [
        f"<header><p class=kind>{esc(a.place[:MAX_NAME])}</p><h1>{esc(document.title)}</h1>",
        *(f"<p>{esc(line)}</p>" for line in document.lead),
        f"</header><main><section class=charts>{''.join(charts)}</section>",
        *map(section, document.blocks),
        f"</main><footer><p>kvbudget {__version__}.</p></footer>",
    ]
    return page(document.title, "".join(body))


def _chart(number: int, title: str, unit: str, values: Sequence[float], limit: float, ends: float) -> str:
    """Return a curve over time, from zero to the limit or the highest value."""
    points = _thinned(values)
    most = max([limit, *points]) or 1
    top = max(points, default=0)
    steps = "".join(f"L{i} {100 - 100 * value / most:.1f}H{i + 1}" for i, value in enumerate(points))
    words = f"{title}: at most {top:,.0f} {unit}, over {ends:,.0f} seconds"
    return (
        f"<figure><figcaption><h2>{esc(title)}</h2><p>{esc(words)}.</p></figcaption>"
        f"<p class=unit>{esc(unit)}</p><div class=plot>"
        f'<svg viewBox="0 0 {max(1, len(points))} 100" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="t{number} d{number}"><title id="t{number}">{esc(title)}</title>'
        f'<desc id="d{number}">{esc(words)}</desc><path class="l l1" d="M0 100{steps}V100"/></svg>'
        f'<span class=y style="bottom:100%">{most:,.0f}</span><span class=y style="bottom:0%">0</span>'
        f'<span class=x style="left:0%">0</span><span class=x style="left:100%">{ends:,.0f}</span></div>'
        "<p class=axis>seconds</p></figure>"
    )


def _thinned(values: Sequence[float]) -> list[float]:
    """Return at most `DRAWN` values, each the highest of those it stands for."""
    count = min(DRAWN, len(values))
    return [max(values[i * len(values) // count : (i + 1) * len(values) // count]) for i in range(count)]
