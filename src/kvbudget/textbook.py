"""The memory budget by hand: the textbook formula and the walks built on it.

Everything here is arithmetic on bare numbers, for plain attention: each layer keeps the keys and the values
of each token. Real models bend the rule (latent attention, windows, recurrent state) and are read elsewhere.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import TYPE_CHECKING

from kvbudget.errors import InputError
from kvbudget.units import MAX_BYTES, MAX_COUNT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Exact = int | float | Fraction
"""A number that may be a fraction, such as 0.5 bytes for 4 bits; a float counts as the decimal it prints."""

TIMES, OVER = "\N{MULTIPLICATION SIGN}", "\N{DIVISION SIGN}"

KEYS_AND_VALUES = 2

_FP16_BYTES = Fraction(2)

TABLE_CONTEXTS = (4096, 32768, 131072)
TABLE_BATCHES = (1, 8)

BLOCK_SIZE = 16
"""Tokens in one block of a paged cache: what vLLM 0.32 takes for plain attention on A100, H100 and B200."""

SLACK_PERCENT = (5, 10)
"""What activations and fragmentation take of a card, by rule of thumb; an engine's own figures are better."""

DTYPE_BITS: Mapping[str, int] = MappingProxyType(
    {
        "fp32": 32,
        "float32": 32,
        "fp16": 16,
        "float16": 16,
        "half": 16,
        "bf16": 16,
        "bfloat16": 16,
        "fp8": 8,
        "fp8_e4m3": 8,
        "fp8_e5m2": 8,
        "int8": 8,
        "int4": 4,
    }
)
"""Bits of one stored value, scales not counted (see `scaled_dtype_bytes`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """A figure that is commonly quoted in two ways, and what holds."""

    key: str
    said: str
    holds: str


CONTRADICTIONS: Mapping[str, Contradiction] = MappingProxyType(
    {
        note.key: note
        for note in (
            Contradiction(
                key="heads",
                said="GQA-8 divides the cache by 8, and GQA-8 takes 512 KiB to 128 KiB.",
                holds="GQA-8 is said of 8 KV heads and of 8 query heads that share one KV head;"
                " with 32 query heads the first divides by 4, the second by 8.",
            ),
            Contradiction(
                key="units",
                said="6 GB at 128 KiB a token is 49,000 tokens.",
                holds="GB is 10^9 bytes, GiB is 2^30, 7 % more: at 128 KiB a token 6 GiB holds 49,152 tokens,"
                " 6 GB holds 45,776.",
            ),
            Contradiction(
                key="factors",
                said="1,280 GB becomes 320, 160, 128 and at last 80.",
                holds="Paging is no factor of a cache's size; nor is it in the 80 of the often quoted"
                " 1,280, 320, 160, 128, 80 GB, which is half of 160: times 0.8 it would be 64.",
            ),
            Contradiction(
                key="exceptions",
                said="PagedAttention eliminates fragmentation, and INT8 is half of FP16.",
                holds="Paging still leaves the last block of each request partly empty,"
                " and a quantized cache that keeps scales is larger than its bits say.",
            ),
        )
    }
)
"""The four places where by-hand figures do not agree, by key."""


def kv_bytes(layers: int, hidden: int, seq: int, batch: int, dtype_bytes: Exact, kv_groups: int = 1) -> int:
    """Return the bytes of a KV cache: 2 x layers x hidden / kv_groups x seq x batch x dtype_bytes.

    The 2 stands for keys and values. The formula holds for multi-head and grouped-query attention whose query
    heads together are as wide as the model; there it is exact, scales of a quantized cache not counted.

    Args:
        layers: Layers that keep a cache.
        hidden: Width of all query heads together (query heads x head dim), before it is divided.
        seq: Tokens in each request.
        batch: Requests.
        dtype_bytes: Bytes of one stored value: 2 for fp16, 1 for fp8, 0.5 for 4 bits.
        kv_groups: Query heads that share one KV head. It is the divisor, not the number of KV heads.

    Raises:
        InputError: A figure is not a positive whole number (`dtype_bytes`: not positive), kv_groups does not
            divide hidden, or the product is not a whole number of bytes or above 2^60.
    """
    divisor = _count("kv_groups", kv_groups)
    width = _quotient("hidden", _count("hidden", hidden), divisor)
    values = KEYS_AND_VALUES * _count("layers", layers) * width * _count("seq", seq) * _count("batch", batch)
    return _bytes("the KV cache", values * _exact("dtype_bytes", dtype_bytes))


def dtype_bytes(name: str) -> Fraction:
    """Return the bytes of one value of the dtype `name`, scales not counted; int4 is 1/2.

    Raises:
        InputError: The name is not in `DTYPE_BITS`.
    """
    bits = DTYPE_BITS.get(name.lower())
    if bits is None:
        known = ", ".join(DTYPE_BITS)
        raise InputError(
            f"dtype {_shown(name)} has no fixed width here; use one of {known}, or give the bytes of a value."
        )
    return Fraction(bits, 8)


def scaled_dtype_bytes(bits: Exact, values_per_scale: int, scale_bytes: Exact) -> Fraction:
    """Return the bytes that one value takes when `values_per_scale` of them share a scale.

    vLLM 0.32's ``int8_per_token_head`` keeps 4 bytes for each head; at 128 values a value takes 33/32 bytes.

    Raises:
        InputError: A figure is not a positive number.
    """
    scale = _exact("scale_bytes", scale_bytes) / _count("values_per_scale", values_per_scale)
    return _exact("bits", bits) / 8 + scale


def weight_bytes(parameters: int, bits: Exact) -> int:
    """Return the bytes of `parameters` weights at `bits` each, rounded up to a whole byte.

    Scales, zero points and layers left unquantized come on top; a real checkpoint's headers know them.

    Raises:
        InputError: A figure is not positive, or the product is above 2^60 bytes.
    """
    return _bytes("weights", Fraction(math.ceil(_count("parameters", parameters) * _exact("bits", bits) / 8)))


def slack_bytes(memory_bytes: int, percent: int = SLACK_PERCENT[1]) -> int:
    """Return the share of a card to leave for activations and fragmentation; a rule of thumb, 5 to 10 %."""
    return memory_bytes * percent // 100


@dataclass(frozen=True, slots=True, kw_only=True)
class KvShape:
    """How wide the keys of one token are in one layer, and what is known of the heads behind it.

    Attributes:
        width: Values of one key vector in one layer: KV heads x head dim = hidden_size / kv_groups.
        hidden_size: Width of all query heads together, if said.
        kv_groups: The divisor, query heads per KV head, if it can be known.
        num_key_value_heads: KV heads, if they can be known.
        head_dim: Values in one head, if said.
    """

    width: int
    hidden_size: int | None
    kv_groups: int | None
    num_key_value_heads: int | None
    head_dim: int | None

    @property
    def num_attention_heads(self) -> int | None:
        """Query heads, if both the KV heads and the divisor are known."""
        if self.num_key_value_heads is None or self.kv_groups is None:
            return None
        return self.num_key_value_heads * self.kv_groups


def kv_shape(
    *,
    hidden_size: int | None = None,
    kv_groups: int | None = None,
    num_key_value_heads: int | None = None,
    head_dim: int | None = None,
) -> KvShape:
    """Return the shape from either spelling: a hidden size and a divisor, or KV heads and a head dim.

    | said | width | divisor | KV heads |
    | --- | --- | --- | --- |
    | hidden_size | hidden_size / kv_groups (1 if not said) | kv_groups | width / head_dim, if said |
    | num_key_value_heads, head_dim | their product | kv_groups, if said | as said |
    | all | as above | hidden_size / width | as said |

    Raises:
        InputError: Too little is said, or what is said does not agree.
    """
    hidden = None if hidden_size is None else _count("hidden_size", hidden_size)
    groups = None if kv_groups is None else _count("kv_groups", kv_groups)
    heads = None if num_key_value_heads is None else _count("num_key_value_heads", num_key_value_heads)
    head_dim = None if head_dim is None else _count("head_dim", head_dim)
    if heads is not None and head_dim is None:
        raise InputError(f"num_key_value_heads {heads} alone says no width; give head_dim too, often 64 or 128.")
    if heads is not None and head_dim is not None:
        width = heads * head_dim
        if hidden is not None:
            groups = _agreed_groups(hidden, width, groups)
    elif hidden is not None:
        groups = groups or 1
        width = _quotient("hidden_size", hidden, groups)
        if head_dim is not None and width % head_dim:
            raise InputError(
                f"hidden_size {hidden} / kv_groups {groups} = {width} is no multiple of head_dim {head_dim};"
                " correct one of the three."
            )
        heads = None if head_dim is None else width // head_dim
    else:
        raise InputError("No width was given; give hidden_size, or num_key_value_heads and head_dim.")
    return KvShape(width=width, hidden_size=hidden, kv_groups=groups, num_key_value_heads=heads, head_dim=head_dim)


def _agreed_groups(hidden: int, width: int, groups: int | None) -> int:
    """Return the divisor that takes `hidden` to `width`; refuse if there is none or another one was said."""
    if hidden % width:
        raise InputError(
            f"hidden_size {hidden} is not a multiple of KV heads x head dim = {width};"
            " leave hidden_size out, the KV heads alone decide."
        )
    if groups is not None and groups != hidden // width:
        raise InputError(
            f"hidden_size {hidden} over KV heads x head dim = {width} is a divisor of {hidden // width},"
            f" but kv_groups says {groups}; leave one of them out."
        )
    return hidden // width


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One factor of the formula, as it is written by hand."""

    sign: str
    value: int | Fraction
    meaning: str


def kv_factors(shape: KvShape, *, layers: int, seq: int, batch: int, dtype_bytes: Exact) -> tuple[Factor, ...]:
    """Return the formula factor by factor, in the spelling that was used; their product is `kv_bytes`."""
    if shape.num_key_value_heads is not None and shape.head_dim is not None:
        width = [
            Factor(sign=TIMES, value=shape.num_key_value_heads, meaning="KV heads"),
            Factor(sign=TIMES, value=shape.head_dim, meaning="values in a head (head dim)"),
        ]
    elif shape.kv_groups == 1:
        width = [Factor(sign=TIMES, value=shape.width, meaning="hidden size")]
    else:
        divisor = shape.kv_groups or 1
        width = [
            Factor(sign=TIMES, value=shape.width * divisor, meaning="hidden size"),
            Factor(sign=OVER, value=divisor, meaning="query heads that share one KV head"),
        ]
    return (
        Factor(sign="", value=KEYS_AND_VALUES, meaning="keys and values"),
        Factor(sign=TIMES, value=layers, meaning="layers"),
        *width,
        Factor(sign=TIMES, value=seq, meaning="tokens in a request"),
        Factor(sign=TIMES, value=batch, meaning="requests (batch)"),
        Factor(sign=TIMES, value=_exact("dtype_bytes", dtype_bytes), meaning="bytes in a value"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell of the context x batch table."""

    context: int
    batch: int
    kv_bytes: int


def kv_table(
    layers: int,
    hidden: int,
    dtype_bytes: Exact,
    kv_groups: int = 1,
    *,
    contexts: Iterable[int] = TABLE_CONTEXTS,
    batches: Iterable[int] = TABLE_BATCHES,
) -> tuple[Cell, ...]:
    """Return `kv_bytes` for each context and batch, row by row: contexts outside, batches inside.

    Raises:
        InputError: As `kv_bytes`.
    """
    columns = tuple(batches)
    return tuple(
        Cell(
            context=context,
            batch=batch,
            kv_bytes=kv_bytes(layers, hidden, context, batch, dtype_bytes, kv_groups),
        )
        for context in contexts
        for batch in columns
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU's memory and what is taken before the first request; all in bytes."""

    memory_bytes: int
    weights_bytes: int
    overhead_bytes: int

    def __post_init__(self) -> None:
        """Refuse what cannot be a number of bytes.

        Raises:
            InputError: A figure is not a whole number, is negative, above 2^60, or the memory is 0.
        """
        _count("memory_bytes", self.memory_bytes, most=MAX_BYTES)
        _count("weights_bytes", self.weights_bytes, least=0, most=MAX_BYTES)
        _count("overhead_bytes", self.overhead_bytes, least=0, most=MAX_BYTES)

    @property
    def kv_share_bytes(self) -> int:
        """What is left for KV, never below zero."""
        return max(0, self.memory_bytes - self.weights_bytes - self.overhead_bytes)

    @property
    def short_bytes(self) -> int:
        """By how much weights and overhead alone exceed the card; 0 when they fit."""
        return max(0, self.weights_bytes + self.overhead_bytes - self.memory_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How many requests of one length a card holds at once.

    Attributes:
        tokens: Tokens of KV that the share holds.
        request_tokens: Tokens that one request holds, whole blocks if there are blocks.
        request_bytes: The same in bytes.
        requests: Requests whose KV fits at once: the ceiling of ``max_num_seqs``.
    """

    tokens: int
    request_tokens: int
    request_bytes: int
    requests: int


def room(card: Card, *, bytes_per_token: int, context: int, block_size: int = 1) -> Room:
    """Return how many requests of `context` tokens fit in what the card has left for KV.

    By hand a request holds just its tokens (`block_size` 1); a paged cache keeps whole blocks.

    Raises:
        InputError: A figure is not a positive whole number.
    """
    per_token = _count("bytes_per_token", bytes_per_token)
    block = _count("block_size", block_size)
    blocks = -(-_count("context", context) // block)
    fitting = card.kv_share_bytes // (block * per_token)
    return Room(
        tokens=fitting * block,
        request_tokens=blocks * block,
        request_bytes=blocks * block * per_token,
        requests=fitting // blocks,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One step of a stack of savings: `size_bytes` is the step it was applied to, times `factor`."""

    name: str
    applied_to: str
    factor: Fraction
    size_bytes: int
    reason: str


def kv_savings(shape: KvShape, *, layers: int, seq: int, batch: int, dtype_bytes: Exact) -> tuple[Saving, ...]:
    """Return the way to this cache from one at 16 bits or more without sharing: the start, each saving.

    A divisor that is not known counts as 1. Paging is no step: it changes what is wasted, not the cache.

    Raises:
        InputError: As `kv_bytes`.
    """
    value = _exact("dtype_bytes", dtype_bytes)
    wide = max(value, _FP16_BYTES)
    groups = shape.kv_groups or 1
    start = Saving(
        name=f"{float(wide * 8):g} bits",
        applied_to="",
        factor=Fraction(1),
        size_bytes=kv_bytes(layers, shape.width * groups, seq, batch, wide),
        reason="no sharing",
    )
    steps = [start]
    for name, factor, reason in (
        ("sharing", Fraction(1, groups), f"{groups} query heads share one KV head"),
        ("dtype", value / wide, f"{float(value * 8):g} bits in place of {float(wide * 8):g}"),
    ):
        if factor < 1:
            base = steps[-1]
            size = _bytes(name, base.size_bytes * factor)
            steps.append(Saving(name=name, applied_to=base.name, factor=factor, size_bytes=size, reason=reason))
    return tuple(steps)


def savings_stack(start_bytes: int = 1280 * 10**9, gqa_divisor: int = 4) -> tuple[Saving, ...]:
    """Return the often quoted stack of savings on a KV cache, each step with its factor and its base.

    The steps are not one chain: paging and INT4 both start from INT8. The last step is what the INT4 figure
    would be had the paging factor been applied to it.

    Args:
        start_bytes: The cache at 16 bits with a KV head for each query head; 1,280 GB in the figures quoted.
        gqa_divisor: Query heads per KV head; 4 in the figures quoted (8 KV heads of 32).

    Raises:
        InputError: A figure is not a positive whole number, or a step does not come to whole bytes.
    """
    half, paging = Fraction(1, 2), Fraction(4, 5)
    rows = (
        ("GQA", "FP16", Fraction(1, _count("gqa_divisor", gqa_divisor)), "fewer KV heads"),
        ("INT8", "GQA", half, "8 bits in place of 16, scales not counted"),
        ("paging", "INT8", paging, "no fragmentation: less is wasted, the cache itself is as large"),
        ("INT4", "INT8", half, "4 bits in place of 8; the paging factor is not applied"),
        ("INT4, paging", "INT4", paging, "what INT4 would be with the paging factor applied"),
    )
    first = Saving(
        name="FP16",
        applied_to="",
        factor=Fraction(1),
        size_bytes=_count("start_bytes", start_bytes, most=MAX_BYTES),
        reason="one KV head for each query head",
    )
    steps = {first.name: first}
    for name, base, factor, reason in rows:
        size = _bytes(name, steps[base].size_bytes * factor)
        steps[name] = Saving(name=name, applied_to=base, factor=factor, size_bytes=size, reason=reason)
    return tuple(steps.values())


def _count(name: str, value: int, *, least: int = 1, most: int = MAX_COUNT) -> int:
    """Return `value` as a plain int if it is a whole number from `least` to `most`."""
    try:
        whole = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        whole = None
    if whole is None or whole < least:
        raise InputError(f"{name} is {_shown(value)}; give a {'positive ' if least else ''}whole number.")
    if whole > most:
        raise InputError(f"{name} is more than 2^{most.bit_length() - 1}; check the number.")
    return whole


def _exact(name: str, value: Exact) -> Fraction:
    """Return `value` as the fraction it prints as, if it is positive, finite and not absurd."""
    number = isinstance(value, (int, float, Fraction)) and not isinstance(value, bool)
    finite = number and not (isinstance(value, float) and not math.isfinite(value))
    if not finite or value <= 0:
        raise InputError(f"{name} is {_shown(value)}; give a positive number such as 2, 1 or 0.5.")
    if value > MAX_COUNT:
        raise InputError(f"{name} is more than 2^{MAX_COUNT.bit_length() - 1}; check the number.")
    return Fraction(str(float(value))) if isinstance(value, float) else Fraction(value)


def _quotient(name: str, value: int, divisor: int) -> int:
    if value % divisor:
        raise InputError(
            f"{name} {value} cannot be divided by kv_groups {divisor};"
            " give the query heads that share one KV head (32 heads over 8 KV heads: 4)."
        )
    return value // divisor


def _bytes(what: str, value: int | Fraction) -> int:
    size = Fraction(value)
    if size.denominator != 1:
        raise InputError(f"{what} does not come to a whole number of bytes; check the bytes per value.")
    if size > MAX_BYTES:
        raise InputError(f"{what} comes to more than 2^{MAX_BYTES.bit_length() - 1} bytes; check the numbers.")
    return size.numerator


def _shown(value: object, limit: int = 40) -> str:
    """Quote a value for a message, cut to `limit` characters."""
    try:
        text = repr(value)
    except ValueError:  # an integer of thousands of digits
        return "a number too long to print"
    return text if len(text) <= limit else text[: limit - 1] + "…"
