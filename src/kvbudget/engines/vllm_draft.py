"""vLLM: what proposes tokens, as layers and weights beside the target's.

A draft is a model of its own: the checkpoint's own draft layers (MTP) and heads that read the target's hidden states
(EAGLE), which share its embedding and its head, or a small model. Its layers keep a cache in the target's groups, and
all of it stands on the last pipeline stage.

Source: vLLM 0.32, v1/worker/gpu/spec_decode/ (what is loaded and shared: eagle/utils.py, load_eagle_model), the classes
named in `kvbudget.facts.speculation`. Older versions are counted by the same rules.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.engines.vllm_overhead import rope_keys
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import speculation as facts
from kvbudget.model.config import MAX_DIM
from kvbudget.model.shapes import Attention, Group, Layer, Split, Weight

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.model import Model
    from kvbudget.speculation import SpeculativeConfig

FLAG = "--speculative-config"
LONGEST_NAME = 40


class Draft(NamedTuple):
    """What proposes tokens.

    Attributes:
        method: See `SpeculativeConfig`.
        tokens: Tokens that it proposes in a step.
        model: Its layers and what it loads for itself alone, as a model; None if it has no weights.
        first: The number of its first layer behind the target's, which names of modules count from.
        prefix: Module path of its layers.
        own: The head of an EAGLE-3 head if it may be the target's: counted, but left out at the low end.
        copy: The embedding that a head may bring along: loaded if it differs from the target's, which a config does
            not tell; counted at the high end.
        shares_rope: Its RoPE table is the target's.
        probabilistic: Its logits are kept to sample from.
    """

    method: str
    tokens: int
    model: Model | None = None
    first: int = 0
    prefix: str = ""
    own: Weight | None = None
    copy: Weight | None = None
    shares_rope: bool = False
    probabilistic: bool = False

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that keep a cache."""
        return self.model.layers if self.model else ()

    @property
    def lookahead(self) -> int:
        """Tokens beyond a request's own for which it holds blocks (config/vllm.py, num_lookahead_tokens)."""
        return self.tokens if self.model else 0

    @property
    def retained(self) -> int:
        """Tokens that windows keep longer: each draft layer of several reads one further (kv_cache_utils.py)."""
        several = self.method == facts.MTP and min(len(self.layers), self.tokens) > 1
        return self.tokens - 1 if several else 0

    @property
    def reads_target(self) -> bool:
        """Whether it reads the target's hidden states (config/speculative.py, use_eagle)."""
        return self.method in (facts.MTP, facts.EAGLE, facts.EAGLE3)

    @property
    def name(self) -> str:
        """What it is, in words."""
        if self.model is None:
            return self.method
        layers = f"{len(self.layers)} layer{'s' if len(self.layers) > 1 else ''}"
        name = self.model.name.rstrip("/").rpartition("/")[2][:LONGEST_NAME]
        return f"{self.method}, {layers}" + (f" of {name}" if self.method != facts.MTP else "")

    def placed(self) -> Iterator[tuple[str, Weight]]:
        """Yield (path, weight) of what it loads."""
        if self.model is None:
            return
        for weight in self.model.outside:
            yield weight.name, weight
        for i, layer in enumerate(self.model.layers):
            for weight in layer.weights:
                yield f"{self.prefix}.{self.first + i}.{weight.name}", weight


@lru_cache(maxsize=256)
def draft_of(target: Model, config: SpeculativeConfig, stages: int, max_model_len: int) -> Draft:
    """Return what proposes tokens.

    Args:
        target: The model that is served.
        config: What was asked.
        stages: Pipeline stages: with several the target's embedding is not at hand where the draft is.
        max_model_len: The longest request, which heads have positions for.

    Raises:
        InputError: vLLM refuses it: there are no draft layers, or the vocabulary differs.
        CannotTell: How vLLM builds this draft was not read.
    """
    if config.method in facts.WEIGHTLESS:
        return Draft(config.method, config.num_speculative_tokens or facts.TREE_DEPTH)
    if config.method == facts.MTP:
        draft = _own(target, config, stages)
    else:
        assert config.model is not None  # noqa: S101 - the config has checked it
        if config.method == facts.DRAFT_MODEL:
            draft = _model(target, config.model, config)
        else:
            draft = _head(target, config.model, config, stages, max_model_len)
    same = draft.model is not None and rope_keys(draft.model) <= rope_keys(target)
    return draft._replace(
        probabilistic=config.draft_sample_method == "probabilistic", shares_rope=draft.shares_rope or same
    )


def _own(target: Model, config: SpeculativeConfig, stages: int) -> Draft:
    """Return the draft layers that a checkpoint brings along."""
    source = config.model or target
    rule = facts.OWN_DRAFTS.get(source.model_type)
    if rule is None:
        if source.mtp or source.model_type in facts.UNREAD_OWN_DRAFTS:
            raise CannotTell(
                f"{FLAG}: how vLLM builds the draft layers of model type {source.model_type!r} is not known to this "
                "version of kvbudget; leave the flag out to see the rest.",
                key="speculative_config",
            )
        raise InputError(
            f"{FLAG}: method mtp, but a checkpoint of model type {source.model_type!r} has no draft layers, so vLLM "
            "stops; choose another method."
        )
    layers = source.mtp
    if not layers:
        raise InputError(
            f"{FLAG}: method mtp, but the config of {source.name} names no draft layers (num_nextn_predict_layers or "
            "mtp_num_hidden_layers); choose another method or the original checkpoint."
        )
    tokens = config.num_speculative_tokens or len(layers)
    if tokens > len(layers) and tokens % len(layers):
        raise InputError(
            f"{FLAG}: num_speculative_tokens {tokens} is no multiple of the {len(layers)} draft layers, which vLLM "
            "refuses; choose one."
        )
    embedding = (_embedding(source),) if stages > 1 else ()
    model = replace(
        source,
        layers=tuple(_without_copies(layer, split=rule.split_projection) for layer in layers),
        outside=embedding,
        towers=(),
        mtp=(),
    )
    prefix = rule.prefix or source.prefix
    return Draft(facts.MTP, tokens, model, 0 if rule.prefix else len(source.layers), prefix, shares_rope=True)


@lru_cache(maxsize=64)
def _without_copies(layer: Layer, *, split: bool) -> Layer:
    """Return a draft layer without its copies of embedding and head, for which it uses the target's."""
    return layer._replace(
        weights=tuple(
            replace(weight, split=Split.COLUMN) if split and weight.name.endswith("eh_proj") else weight
            for weight in layer.weights
            if weight.split is not Split.VOCAB
        ),
    )


def _embedding(model: Model) -> Weight:
    return next(weight for weight in model.outside if weight.split is Split.VOCAB)


def _model(target: Model, draft: Model, config: SpeculativeConfig) -> Draft:
    """Return a small model that drafts by itself: all of it is loaded, nothing is shared."""
    if target.vocab_size != draft.vocab_size and not config.use_heterogeneous_vocab:
        raise InputError(
            f"{FLAG}: {draft.name} has a vocabulary of {draft.vocab_size:,} and the target one of "
            f"{target.vocab_size:,}, which vLLM refuses; choose a draft of the same family."
        )
    _check_caches(draft)
    return Draft(
        facts.DRAFT_MODEL, config.num_speculative_tokens or 1, replace(draft, towers=(), mtp=()), prefix=draft.prefix
    )


def _check_caches(draft: Model) -> None:
    other = next((cache for layer in draft.layers for cache in layer.caches if not isinstance(cache, Attention)), None)
    if other is not None:
        raise CannotTell(
            f"{FLAG}: how vLLM caches {other.kind} of a draft beside the target is not known to this version of "
            "kvbudget; choose a draft with plain attention.",
            key="speculative_config",
        )


def _head(target: Model, head: Model, config: SpeculativeConfig, stages: int, max_model_len: int) -> Draft:
    """Return a head that reads the target's hidden states.

    EAGLE's joins the embedding and the hidden state before its first layer and has no norm; EAGLE-3's joins hidden
    states of several of the target's layers, its first layer reads the embedding beside them, and it has a head over a
    vocabulary of its own.
    """
    third = config.method == facts.EAGLE3
    if head.architecture not in facts.EAGLE_CLASSES[config.method] or head.model_type not in facts.EAGLE_LAYERS:
        raise CannotTell(
            f"{FLAG}: how vLLM builds a head of class {head.architecture or head.model_type!r} is not known to this "
            "version of kvbudget; it knows those made of Llama's layers.",
            key="speculative_config",
        )
    _check_caches(head)
    hidden = head.hidden_size
    read = _config_value(head, "target_hidden_size", hidden) * _states(head) if third else 2 * hidden
    outside = [Weight("fc", Group.MTP, hidden, read, linear=True)]
    maybe = None
    if third:
        vocab = _config_value(head, "draft_vocab_size", head.vocab_size)
        outside.append(Weight("norm", Group.NORMS, hidden))
        outside.append(Weight("lm_head", Group.HEAD, vocab, hidden, linear=True, split=Split.VOCAB))
        if (vocab, hidden) == (target.vocab_size, target.hidden_size):
            maybe = outside[-1]
        if vocab != target.vocab_size:
            outside.append(Weight("draft_id_to_target_id", Group.MTP, vocab, dtype="int64", buffer=True))
    layers = tuple(_head_layer(layer, hidden, first=i == 0, third=third) for i, layer in enumerate(head.layers))
    embedding = _embedding(head)
    needs_own = stages > 1 or hidden != target.hidden_size
    if needs_own:
        outside.append(embedding)
    model = replace(
        head,
        layers=layers,
        outside=tuple(outside),
        towers=(),
        mtp=(),
        max_position_embeddings=max(head.max_position_embeddings or 0, max_model_len),
    )
    return Draft(
        config.method,
        config.num_speculative_tokens or 1,
        model,
        len(target.layers),
        "model.layers",
        own=maybe,
        copy=None if needs_own or not _may_hold(head, embedding) else embedding,
    )


def _may_hold(head: Model, weight: Weight) -> bool:
    """Return whether a head's checkpoint may have a weight; its headers tell, where they were read."""
    modules = head.stored.modules if head.stored is not None else {}
    return not modules or any(path.endswith(weight.name.rpartition(".")[2]) for path in modules)


def _states(head: Model) -> int:
    """Return how many hidden states of the target an EAGLE-3 head reads."""
    inner = head.config.get("eagle_config")
    named = inner.get("eagle_aux_hidden_state_layer_ids") if isinstance(inner, dict) else None
    default = len(named) if isinstance(named, list) and named else facts.EAGLE3_STATES
    return _config_value(head, "num_aux_hidden_states", default)


def _config_value(model: Model, key: str, default: int) -> int:
    """Return a whole number of a config, the default where it has none.

    Raises:
        InputError: It is something else.
    """
    value = model.config.get(key)
    if value is None:
        return default
    if type(value) is not int or not 0 < value <= MAX_DIM:
        raise InputError(f"{FLAG}: {key} of {model.name} is no sensible whole number; check its config.json.")
    return value


def _head_layer(layer: Layer, hidden: int, *, first: bool, third: bool) -> Layer:
    """Return a layer of a head: EAGLE's first has no norm before attention, EAGLE-3's first reads twice the width."""
    weights = []
    for weight in layer.weights:
        if first and not third and weight.name.startswith("input_layernorm"):
            continue
        wide = first and third and weight.name.endswith(("q_proj", "k_proj", "v_proj"))
        weights.append(replace(weight, in_features=2 * hidden) if wide else weight)
    if third:
        weights.append(Weight("hidden_norm", Group.NORMS, hidden))
    return layer._replace(weights=tuple(weights))
