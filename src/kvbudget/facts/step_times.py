"""How fast cards really work: what single operations of a step take, measured, and what an engine adds.

A rate is what a large operation reaches, not a maker's peak; a constant is what the smallest one takes. The figures were
fitted by bench/fit_step_times.py to the operation tables of aiconfigurator-core 0.12.0 (Apache-2.0), which were measured
on each card with vLLM's own kernels; 16-bit values unless the field says otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

_AIC = "aiconfigurator-core 0.12.0, operations measured with vLLM {version}"
_READ_ON = "2026-11-29"

_MICRO, _GIGA, _TERA = 1e-6, 1e9, 1e12


class Rate(NamedTuple):
    """What one kind of operation takes.

    Attributes:
        call_s: Seconds of the smallest call.
        bytes_per_s: Memory that a large one reads in a second.
        flops: Arithmetic operations that a large one does in a second.
    """

    call_s: float
    bytes_per_s: float
    flops: float


class Link(NamedTuple):
    """What an all-reduce takes among some ranks: a constant, and the bytes of the result by a rate."""

    call_s: float
    bytes_per_s: float


class CardRates(NamedTuple):
    """What the operations of one card take.

    Attributes:
        card: `Gpu.name`.
        product: Matrix products with 16-bit weights.
        eight_bit: The same with 8-bit weights and values; None where it was not measured.
        attention: Attention with grouped heads: reading the cache, and the arithmetic of prompts.
        experts: The routed experts of a layer, all their products in one call.
        all_reduce: Ranks -> an all-reduce of theirs.
        source: Where the figures come from.
        read_on: The date they were read (ISO).
    """

    card: str
    product: Rate
    eight_bit: Rate | None
    attention: Rate
    experts: Rate
    all_reduce: tuple[tuple[int, Link], ...]
    source: str
    read_on: str = _READ_ON


_Three = tuple[float, float, float]


def _rate(row: _Three) -> Rate:
    """Read µs, GB/s and TFLOP/s, as the tables are fitted."""
    return Rate(row[0] * _MICRO, row[1] * _GIGA, row[2] * _TERA)


def _row(
    card: str,
    version: str,
    *,
    product: _Three,
    eight_bit: _Three | None,
    attention: _Three,
    experts: _Three,
    all_reduce: dict[int, tuple[float, float]],
    source: str = "",
) -> CardRates:
    return CardRates(
        card=card,
        product=_rate(product),
        eight_bit=_rate(eight_bit) if eight_bit else None,
        attention=_rate(attention),
        experts=_rate(experts),
        all_reduce=tuple((ranks, Link(us * _MICRO, gbps * _GIGA)) for ranks, (us, gbps) in all_reduce.items()),
        source=_AIC.format(version=version) + source,
    )


CARDS: tuple[CardRates, ...] = (
    _row("A100-SXM-80GB", "0.14.0", product=(4.6, 1540, 256), eight_bit=None, attention=(18.4, 1560, 160),
         experts=(27.9, 1710, 90.7), all_reduce={2: (4.9, 175), 4: (5.2, 101), 8: (5.8, 93.6)}),
    _row("L40S-48GB", "0.24.0", product=(3.2, 695, 225), eight_bit=(5.2, 621, 313), attention=(12.3, 705, 169),
         experts=(30.4, 742, 186), all_reduce={2: (5.4, 18.9), 4: (13.7, 2.54), 8: (26.1, 1.06)}),
    _row("H100-SXM-80GB", "0.24.0", product=(3.1, 2980, 795), eight_bit=(5.4, 2680, 847), attention=(11.8, 3010, 519),
         experts=(32.3, 3020, 454), all_reduce={2: (4.3, 222), 4: (4.6, 171), 8: (4.7, 182)}),
    _row("H200-SXM-141GB", "0.24.0", product=(3.1, 4050, 793), eight_bit=(5.4, 3770, 912), attention=(11.6, 4120, 519),
         experts=(32.0, 4290, 524), all_reduce={2: (4.5, 243), 4: (4.6, 178), 8: (4.8, 192)}),
    _row("B200-SXM-180GB", "0.24.0", product=(2.5, 6330, 1570), eight_bit=(5.9, 5700, 1690), attention=(9.1, 6930, 929),
         experts=(20.3, 7310, 818), all_reduce={2: (7.0, 192), 4: (7.1, 232), 8: (7.8, 267)}),
    _row("B300-SXM-288GB", "0.24.0", product=(2.2, 6320, 1730), eight_bit=(5.6, 6030, 1780), attention=(9.0, 6890, 1150),
         experts=(18.8, 7240, 852), all_reduce={2: (6.9, 217), 4: (7.0, 240), 8: (7.2, 269)}),
    _row("GB200-186GB", "0.24.0", product=(2.5, 6570, 1720), eight_bit=(6.0, 6280, 1830), attention=(10.8, 7290, 938),
         experts=(19.4, 7520, 863), all_reduce={2: (5.2, 175), 4: (5.3, 208)}),
    _row("GB300-288GB", "0.24.0", product=(2.5, 6400, 1900), eight_bit=(6.0, 6210, 1930), attention=(9.4, 6960, 1240),
         experts=(19.3, 7390, 905), all_reduce={2: (7.4, 233), 4: (7.9, 249), 8: (13.6, 321)}),
    _row("RTX-PRO-6000-96GB", "0.24.0", product=(3.2, 1490, 382), eight_bit=(5.2, 1460, 646), attention=(12.9, 1480, 261),
         experts=(45.9, 1560, 170), all_reduce={2: (4.3, 36.5), 4: (12.8, 18.7), 8: (25.5, 13.0)}),
    _row("Arc-Pro-B60-24GB", "0.26.0", product=(34.4, 458, 94), eight_bit=(21.9, 429, 94.3), attention=(68.2, 450, 61.9),
         experts=(195.3, 512, 54.8), all_reduce={2: (71.2, 27.4), 4: (78.9, 17.4), 8: (80.1, 13.3)}),
)  # fmt: skip
"""Every card whose operations were measured."""


class UsualShares(NamedTuple):
    """What operations of an unmeasured card are taken to reach of its maker's peaks."""

    memory: float
    flops: float
    attention_flops: float
    experts_flops: float
    link: float


USUAL = UsualShares(memory=0.84, flops=0.80, attention_flops=0.53, experts_flops=0.45, link=0.45)
"""The middle of the measured NVIDIA cards: memory 0.80 to 0.89, products 0.62 to 0.82, attention of prompts 0.41 to 0.56,
experts 0.29 to 0.53; an all-reduce by the card's link 0.27 to 0.58 (rows above, peaks in facts/gpus.py)."""

USUAL_CALLS_S = Rate(3.1e-6, 0.0, 0.0), Rate(12e-6, 0.0, 0.0), Rate(32e-6, 0.0, 0.0)
"""Constants of a product, an attention and a layer's experts on such a card: those of the H100."""

KNEE = 4
"""Between the two bounds a product takes (memory^4 + arithmetic^4)^(1/4): a little more than either, as measured."""

UNLINKED_SHARE = 0.5
"""Of an all-reduce's measured rate where no NVLink joins the cards: between 1 (cards that reach each other over PCIe, as
measured) and 0.24 (through the host: vLLM 0.19 on two RTX PRO 6000, LLMServingSim's log of Qwen3-32B)."""

LINK_CALL_S = 5e-6
"""The constant of an all-reduce on a card without a row: that of the H100."""

LASTING_SHARE = 0.88
"""Of the arithmetic rates, what lasts: a serving card runs warmer and slower than one that measures an operation for a
moment. 0.88 on an RTX PRO 6000 (the log below); fits to vLLM on H100 reach 0.70 of the peak where products reach 0.80."""

STEP_S = 0.5e-3
"""What an engine that schedules ahead adds to a step."""

HIDDEN_PASSES = 8
"""How often the kernels between the products of a layer read or write its hidden state: two norms with their residual,
each reads two and writes two."""

LAYER_S = 10e-6
"""Norms, rotation and activation of a layer: about five small kernels of 2 µs."""

REQUEST_S = 15e-6
"""What the engine and the sampler spend on each request of a step. These four were chosen once for
the log of Llama-3.1-8B under vLLM 0.19 on an RTX PRO 6000 (casys-kaist/LLMServingSim @5daddb21, MIT)."""

LOGGED_CARDS = frozenset({"RTX-PRO-6000-96GB"})
LOGGED, MEASURED = 0.07, 0.15
"""Half-widths of the interval of a dense model's step: on a card whose engine log the constants were chosen for, and on
one of which only the operations were measured. bench/step_time.py prints how the logs lie in them."""
