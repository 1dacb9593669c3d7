"""`--speculative-config`: what shall propose tokens, in vLLM's words.

Source: vLLM 0.32, config/speculative.py; which method a draft stands for is found out as the engine does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import speculation as facts
from kvbudget.values import json_object, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.model import Model

FLAG = "--speculative-config"
MAX_TOKENS = 1 << 12
"""Tokens that a step may propose; more is a typing error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """What proposes tokens.

    Args:
        method: "mtp" (draft layers of the checkpoint), "eagle", "eagle3", "draft_model", "ngram", "ngram_gpu" or
            "suffix"; older names of MTP and a method that follows from the model are resolved by `parse`.
        num_speculative_tokens: Tokens that it proposes in a step; None for as many as the checkpoint has draft layers.
        model: The head or the draft model; None where the checkpoint brings its own or none is needed.
        draft_sample_method: "greedy", or "probabilistic", which keeps the draft's logits.
        use_heterogeneous_vocab: The draft may have another vocabulary.
        disable_padded_drafter_batch: Drafts are not padded, so steps are not scheduled ahead.
    """

    method: str
    num_speculative_tokens: int | None = None
    model: Model | None = None
    draft_sample_method: str = "greedy"
    use_heterogeneous_vocab: bool = False
    disable_padded_drafter_batch: bool = False

    def __post_init__(self) -> None:
        """Check what does not depend on the target."""
        if self.method in facts.UNCOUNTED_METHODS:
            raise CannotTell(
                f"{FLAG}: how much memory method {self.method} takes is not known to this version of kvbudget; leave "
                "the flag out to see the rest.",
                key="speculative_config",
            )
        if self.method not in facts.METHODS:
            raise InputError(
                f"{FLAG}: method {shown(self.method)} is not known; choose one of {', '.join(sorted(facts.METHODS))}."
            )
        tokens = self.num_speculative_tokens
        if tokens is not None and not (type(tokens) is int and 1 <= tokens <= MAX_TOKENS):
            raise InputError(
                f"{FLAG}: num_speculative_tokens {shown(tokens)}: expected a whole number from 1 to {MAX_TOKENS:,}."
            )
        if tokens is None and self.method not in (facts.MTP, facts.SUFFIX):
            raise InputError(f"{FLAG}: num_speculative_tokens is missing; say how many tokens a step proposes.")
        if self.method in (facts.EAGLE, facts.EAGLE3, facts.DRAFT_MODEL) and self.model is None:
            raise InputError(f"{FLAG}: method {self.method} needs a model; give its folder or its name.")
        if self.draft_sample_method not in ("greedy", "probabilistic"):
            raise InputError(
                f"{FLAG}: draft_sample_method {shown(self.draft_sample_method)}: expected greedy or probabilistic."
            )

    @property
    def ahead(self) -> bool:
        """Whether steps are scheduled ahead with it."""
        return self.method not in facts.SYNCHRONOUS and not self.disable_padded_drafter_batch


def parse(value: object) -> SpeculativeConfig:
    """Return what a JSON text or a mapping in vLLM's spelling says; the draft's config is read.

    Raises:
        InputError: It is not understood, or vLLM refuses it.
        CannotTell: The method, or a choice that moves memory, is not counted; or the draft's architecture is not known.
        AccessError: The draft is not at hand.
    """
    if isinstance(value, SpeculativeConfig):
        return value
    given = _mapping(value)
    for key in facts.KEYS_THAT_MOVE_MEMORY:
        if given.get(key) not in (None, False, "auto"):
            raise CannotTell(
                f"{FLAG}: what {key} does to the draft's memory is not known to this version of kvbudget; leave it "
                "out.",
                key="speculative_config",
            )
    name = given.get("model")
    if name is not None and not isinstance(name, str):
        raise InputError(f"{FLAG}: model {shown(name)}: expected a folder or a name.")
    method = _stated_method(given.get("method"), name)
    model = None
    if name is not None and method not in facts.WEIGHTLESS | facts.UNCOUNTED_METHODS:
        from kvbudget.hub import load_model  # noqa: PLC0415 - few deployments have a draft

        model = load_model(name)
        method = _method_of(method, name, model)
    for switch in ("use_heterogeneous_vocab", "disable_padded_drafter_batch"):
        if not isinstance(given.get(switch, False), bool):
            raise InputError(f"{FLAG}: {switch} {shown(given[switch])}: expected true or false.")
    return SpeculativeConfig(
        method=method,
        num_speculative_tokens=_tokens(given, method),
        model=model,
        draft_sample_method=given.get("draft_sample_method", "greedy"),
        use_heterogeneous_vocab=given.get("use_heterogeneous_vocab", False),
        disable_padded_drafter_batch=given.get("disable_padded_drafter_batch", False),
    )


def _mapping(value: object) -> Mapping[str, Any]:
    """Return the object that a text holds, with underscores in its keys."""
    value = json_object(value, flag=FLAG, example='{"method": "mtp", "num_speculative_tokens": 1}')
    given = {str(key).replace("-", "_"): item for key, item in value.items()}
    if "tensor_parallel_size" in given:
        raise InputError(f"{FLAG}: vLLM has no tensor_parallel_size here; it is called draft_tensor_parallel_size.")
    unknown = next((key for key in given if key not in facts.KEYS | facts.OLD_KEYS), None)
    if unknown is not None:
        raise InputError(
            f"{FLAG}: {shown(unknown)} is not known to vLLM, which stops at it; see its config/speculative.py."
        )
    return given


def _stated_method(method: object, model: str | None) -> str:
    """Return the method that is said, or that stands behind the model's name alone."""
    if method is not None and not isinstance(method, str):
        raise InputError(f"{FLAG}: method {shown(method)}: expected text.")
    if method in (None, "[ngram]"):
        if method or model in ("ngram", "[ngram]"):
            return "ngram"
        if model is None:
            raise InputError(f"{FLAG} names neither a method nor a model; give one.")
        return facts.DRAFT_MODEL
    return facts.MTP if method in facts.OLD_MTP_METHODS else str(method)


def _method_of(method: str, name: str, model: Model) -> str:
    """Return the method that a draft's name and type lead to (config/speculative.py, __post_init__)."""
    lower = name.lower()
    if method in (facts.EAGLE, facts.EAGLE3):
        return method
    if "eagle-" in lower:
        return facts.EAGLE
    if "eagle3" in lower:
        return facts.EAGLE3
    found = next((kind for kind in ("dflash", "dspark") if kind in lower), None)
    if found is not None:
        return found
    return facts.MTP if model.model_type in facts.OWN_DRAFTS else method


def _tokens(given: Mapping[str, Any], method: str) -> int | None:
    """Return the tokens of a step; suffix decoding has a depth instead."""
    tokens: int | None = given.get("num_speculative_tokens")
    if tokens is None and method == facts.SUFFIX:
        tokens = given.get("suffix_decoding_max_tree_depth", facts.TREE_DEPTH)
    return tokens
