"""The operations of a step on one rank: what a deployment reads and computes, and what each takes on its card."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.deployment import flag
from kvbudget.engines import vllm
from kvbudget.engines.vllm_overhead import FAST_LINK_BYTES_PER_S, Share
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import step_times as facts
from kvbudget.facts.formats import dtype_bytes
from kvbudget.facts.step_times import CARDS, KNEE, USUAL, USUAL_CALLS_S, CardRates, Link, Rate
from kvbudget.model.shapes import Attention, CrossAttention, Group, Indexer, LatentAttention, RecurrentState, Split
from kvbudget.parallel import local_heads
from kvbudget.simulation.clock import SECOND, Attended
from kvbudget.simulation.roofline import Roofline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.deployment import Deployment
    from kvbudget.facts.gpus import Gpu
    from kvbudget.model import Model
    from kvbudget.model.shapes import Cache, Layer


_ASIDE = frozenset({Group.EMBEDDINGS, Group.VISION, Group.AUDIO, Group.MTP})
"""Weights that a step of text does not read as a whole: a lookup reads a few rows."""


class Product(NamedTuple):
    """A matrix product of a step: one call, whatever it packs together.

    Attributes:
        read_bytes: Bytes of its weights on this rank.
        parameters: Values of its weights; each token takes twice as many operations.
        outputs: Values that it gives for a token.
        eight_bit: Whether it computes with 8-bit values.
    """

    read_bytes: int
    parameters: int
    outputs: int
    eight_bit: bool


class Experts(NamedTuple):
    """The routed experts of a layer.

    Attributes:
        read_bytes: Bytes of one expert on this rank.
        parameters: Values of one.
        held: Experts on this rank.
        total: Experts of the layer.
        chosen: Experts that a token is sent to.
        replicas: Data-parallel replicas whose tokens meet here.
    """

    read_bytes: int
    parameters: int
    held: int
    total: int
    chosen: int
    replicas: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """What a step does on one rank, and what the parts take.

    Attributes:
        rates: What the card's operations take.
        products: Product -> how many a step has.
        experts: Layer of experts -> how many a step has.
        token_bytes: Bytes that the small kernels between the products read and write for a token.
        head: The output head, which computes on one token of each request; None if this is not the last stage.
        attended: The layers' attention, in picoseconds.
        request_bytes: Bytes that each request reads and writes whatever its length: states, an encoder's output.
        calls_s: Seconds of what has a constant: attention, all-reduces, the engine.
        link: What an all-reduce takes, None on one rank.
        reduced_bytes: Bytes that a token adds to all all-reduces of a step. Where data-parallel replicas share experts,
            gathering all tokens before and scattering them after is one of these a layer.
    """

    rates: CardRates
    products: tuple[tuple[Product, int], ...]
    experts: tuple[tuple[Experts, int], ...]
    token_bytes: int
    head: Product | None
    attended: tuple[Attended, ...]
    request_bytes: int
    calls_s: float
    link: Link | None
    reduced_bytes: int

    def seconds_of_tokens(self, tokens: int) -> float:
        """Return the seconds of what depends on the tokens of a step alone."""
        seconds = self.calls_s
        for product, count in self.products:
            rate = self._rate(product)
            seconds += count * (rate.call_s + _bound(product.read_bytes, 2 * product.parameters * tokens, rate))
        for experts, count in self.experts:
            seconds += count * self._experts_seconds(experts, tokens)
        seconds += tokens * self.token_bytes / self.rates.product.bytes_per_s
        if self.link is not None:
            seconds += tokens * self.reduced_bytes / self.link.bytes_per_s
        return seconds

    def seconds_of_requests(self, requests: int) -> float:
        """Return the seconds of what depends on the requests of a step alone."""
        seconds = requests * (facts.REQUEST_S + self.request_bytes / self.rates.attention.bytes_per_s)
        if self.head is not None:
            rate = self._rate(self.head)
            seconds += rate.call_s + _bound(self.head.read_bytes, 2 * self.head.parameters * requests, rate)
        return seconds

    def _rate(self, product: Product) -> Rate:
        return self.rates.eight_bit if product.eight_bit and self.rates.eight_bit else self.rates.product

    def _experts_seconds(self, experts: Experts, tokens: int) -> float:
        """Experts that got a token are read; which ones do is taken to be chance."""
        rate, met = self.rates.experts, tokens * experts.replicas
        used = experts.held * (1 - (1 - experts.chosen / experts.total) ** met)
        work = 2 * experts.parameters * experts.chosen * met * experts.held / experts.total
        return rate.call_s + _bound(experts.read_bytes * used, work, rate)


def _bound(read_bytes: float, work: float, rate: Rate) -> float:
    """Return the seconds of an operation that is bound by memory or by arithmetic, a little more between the two."""
    memory, arithmetic = read_bytes / rate.bytes_per_s, work / (rate.flops * facts.LASTING_SHARE)
    longer = max(memory, arithmetic)
    return longer * (1 + (min(memory, arithmetic) / longer) ** KNEE) ** (1 / KNEE) if longer else 0.0


ROUGH, UNCHECKED = 0.25, 0.5
"""Half-widths of the interval of a step whose parts were not all measured, as shares of it: where logs of such steps
were held against it (bench/step_time.py), and where none was."""


def roofline(d: Deployment) -> Roofline:
    """Return the clock of a deployment, from the shapes of its model and what was measured on its card.

    Raises:
        CannotTell: Nobody's figure for the card's bandwidth or arithmetic is known, or the layout's steps overlap.
        InputError: The engine refuses the deployment.
    """
    for name in ("pipeline_parallel_size", "decode_context_parallel_size"):
        if getattr(d, name) > 1:
            raise CannotTell(
                f"How long a step takes with {flag(name)} {getattr(d, name)} is not known; give --step-time.", key=name
            )
    rates, measured = card_rates(d.card, _ranks(d))
    operations = operations_of(d, rates)
    how = rates.source if measured else f"{d.card.name} was not measured: usual shares of its peaks"
    return Roofline(operations, source=f"roofline ({how})", error=_error(d, measured=measured))


def _ranks(d: Deployment) -> int:
    """Return how many cards a layer is divided over."""
    return d.tensor_parallel_size * (d.data_parallel_size if d.enable_expert_parallel else 1)


def _error(d: Deployment, *, measured: bool) -> float:
    """Return how wide the interval is; dense 16-bit layers of grouped attention without a slow link are known best."""
    if not measured and d.card.maker != "NVIDIA":
        return UNCHECKED
    if not all(isinstance(cache, Attention) for layer in d.model.layers for cache in layer.caches):
        return UNCHECKED
    linked = _ranks(d) == 1 or (d.card.interconnect_bytes_per_s or 0) > FAST_LINK_BYTES_PER_S
    if measured and linked and not d.model.num_experts and d.model.quantization is None:
        return facts.LOGGED if d.card.name in facts.LOGGED_CARDS else facts.MEASURED
    return ROUGH


def card_rates(card: Gpu, ranks: int) -> tuple[CardRates, bool]:
    """Return what a card's operations take, and whether they were measured.

    Raises:
        CannotTell: Its peaks are not known either.
    """
    for row in CARDS:
        if row.card == card.name:
            if ranks == 1 or ranks in dict(row.all_reduce):
                return row, True
            return row._replace(all_reduce=((ranks, _link(card)),)), False
    if card.bandwidth_bytes_per_s is None or card.bf16_flops is None:
        raise CannotTell(
            f"How fast a step is on {card.name} is not known, as its bandwidth or arithmetic is not; give --step-time.",
            key="step_time",
        )
    memory = card.bandwidth_bytes_per_s * USUAL.memory
    product, attention, experts = (
        call._replace(bytes_per_s=memory, flops=card.bf16_flops * share)
        for call, share in zip(USUAL_CALLS_S, (USUAL.flops, USUAL.attention_flops, USUAL.experts_flops), strict=True)
    )
    eight_bit = product._replace(flops=card.fp8_flops * USUAL.flops) if card.fp8_flops else None
    links = ((ranks, _link(card)),) if ranks > 1 else ()
    return CardRates(card.name, product, eight_bit, attention, experts, links, card.source, card.read_on), False


def _shared_link(card: Gpu, rates: CardRates, ranks: int) -> Link:
    """Return what an all-reduce takes; without NVLink the cards may have to go through the host."""
    link = dict(rates.all_reduce)[ranks]
    if (card.interconnect_bytes_per_s or 0) > FAST_LINK_BYTES_PER_S:
        return link
    return link._replace(bytes_per_s=link.bytes_per_s * facts.UNLINKED_SHARE)


def _link(card: Gpu) -> Link:
    if card.interconnect_bytes_per_s is None:
        raise CannotTell(
            f"How fast the link between two {card.name} is, is not known; give --step-time.", key="step_time"
        )
    return Link(facts.LINK_CALL_S, card.interconnect_bytes_per_s * USUAL.link)


def operations_of(d: Deployment, rates: CardRates) -> Operations:
    """Return what a step of a deployment does on one rank."""
    s = vllm.settings(d)
    tp, model = d.tensor_parallel_size, d.model
    expert_ranks = tp * d.data_parallel_size if d.enable_expert_parallel else tp
    share = Share(tp, expert_ranks, d.enable_expert_parallel, None)
    products, experts, head = _weights(model, s.dtype, share)
    layers, value = len(model.layers), dtype_bytes(s.dtype)
    attended, request_bytes = _attention(model, tp, _kv_bytes(model, s), value, rates.attention)
    outputs = sum(product.outputs * count for product, count in products.items())
    attending = sum(1 for layer in model.layers if layer.caches or layer.shares_kv)
    ranks = max(tp, expert_ranks)
    link = _shared_link(d.card, rates, ranks) if ranks > 1 else None
    reduces = 2 * layers + 1 if tp > 1 else 0
    exchanges = sum(experts.values()) * share.replicas if share.replicas > 1 else 0
    return Operations(
        rates=rates,
        products=tuple(products.items()),
        experts=tuple(experts.items()),
        token_bytes=value * (2 * outputs + facts.HIDDEN_PASSES * model.hidden_size * layers),
        head=head,
        attended=attended,
        request_bytes=request_bytes,
        calls_s=facts.STEP_S
        + layers * facts.LAYER_S
        + attending * rates.attention.call_s
        + ((reduces + exchanges) * link.call_s if link is not None else 0.0),
        link=link,
        reduced_bytes=(reduces + exchanges) * model.hidden_size * value,
    )


def _weights(model: Model, dtype: str, share: Share) -> tuple[Counter[Product], Counter[Experts], Product | None]:
    """Return the matrix products of a step; matrices with the same input are one call, as engines pack them."""
    calls: dict[tuple[object, ...], list[int]] = {}
    tied, head = model.tied, [0, 0, 0]
    experts: dict[str, list[int]] = {}
    for path, weight, part, size in vllm.rank_weights(model, dtype, share):
        layer = path.removesuffix(weight.name)
        if weight.group is Group.HEAD or (tied and weight.split is Split.VOCAB and weight.group is Group.EMBEDDINGS):
            _add(head, size, part.values, part.out_features)
        elif weight.group is Group.EXPERTS:
            _add(experts.setdefault(layer, [0, 0, 0]), size, part.values, 0)
            experts[layer][2] = part.count
        elif weight.group not in _ASIDE and weight.linear:
            packed = weight.in_features if weight.split in (Split.COLUMN, Split.KV) else weight.name
            _add(calls.setdefault((layer, weight.group, packed), [0, 0, 0]), size, part.values, part.out_features)
    products = Counter(_product(*call) for call in calls.values())
    routed = Counter(
        Experts(size // held, values // held, held, model.num_experts, model.num_experts_per_tok, share.replicas)
        for size, values, held in experts.values()
        if held
    )
    return products, routed, _product(*head) if head[1] else None


def _add(total: list[int], size: int, values: int, outputs: int) -> None:
    for at, more in enumerate((size, values, outputs)):
        total[at] += more


def _product(size: int, values: int, outputs: int) -> Product:
    """Weights of about a byte a value are taken to be computed with in 8 bits; smaller ones are unpacked to 16."""
    return Product(size, values, outputs, eight_bit=0.9 * values < size < 1.5 * values)


def _kv_bytes(model: Model, s: vllm.Settings) -> int:
    """Return the bytes of one value in the cache."""
    kept = s.cache.kv_cache_dtype
    if kept == "auto":
        kept = (model.quantization and model.quantization.kv_cache_dtype) or s.dtype
    try:
        return dtype_bytes(kept)
    except InputError:  # fp8_e4m3 and what else packs a value into a byte
        return 1


def _attention(model: Model, tp: int, kv_bytes: int, state_bytes: int, rate: Rate) -> tuple[tuple[Attended, ...], int]:
    """Return what attending takes by window, and the bytes that every request reads whatever its length."""
    read: Counter[int] = Counter()
    work: Counter[int] = Counter()
    request_bytes = 0
    for cache in _attending(model.layers):
        match cache:
            case Attention():
                kv, heads = local_heads(cache.num_key_value_heads, tp), -(-cache.num_attention_heads // tp)
                widths = cache.head_dim + cache.v_head_dim
                read[cache.window or 0] += kv * widths * kv_bytes
                work[cache.window or 0] += 2 * heads * widths
            case LatentAttention():
                width = cache.kv_lora_rank + cache.qk_rope_head_dim
                read[0] += width * kv_bytes
                work[0] += 2 * -(-cache.num_attention_heads // tp) * (width + cache.kv_lora_rank)
            case Indexer():
                read[0] += cache.index_head_dim
            case CrossAttention():
                kv = local_heads(cache.num_key_value_heads, tp)
                request_bytes += cache.encoder_tokens * kv * 2 * cache.head_dim * kv_bytes
            case RecurrentState():
                request_bytes += 2 * sum(_state_bytes(tensor.shape, tp) for tensor in cache.tensors) * state_bytes
    attended = tuple(
        Attended(window, round(read[window] / rate.bytes_per_s * SECOND), round(work[window] / rate.flops * SECOND))
        for window in sorted(read)
    )
    return attended, request_bytes


def _state_bytes(shape: tuple[int, ...], tp: int) -> int:
    values = 1
    for size in shape:
        values *= size
    return -(-values // tp)


def _attending(layers: tuple[Layer, ...]) -> Iterator[Cache]:
    """Yield every cache that a layer attends to; one that shares it reads that of the last layer with its own."""
    last: tuple[Cache, ...] = ()
    for layer in layers:
        last = layer.caches or (last if layer.shares_kv else ())
        yield from last
