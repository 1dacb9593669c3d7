"""Names of modules, and the lists of them in quantization configs: which module does an entry speak of?

Lists name modules as the checkpoint does, and several spellings of one module are about: ``model.layers.0``,
``model.language_model.layers.0``, ``language_model.model.layers.0``, ``backbone.layers.0``. vLLM maps them to
its own; here both sides drop the leading wrappers (`WRAPPERS`) and use one word for parts with several names
(`ALIASES`). Then

* a plain entry with a layer number names that place, one without a number every module of that name, and both
  include what is below: ``mlp.gate`` matches ``model.layers.3.mlp.gate``, not ``mlp.gate_proj``;
* in compressed-tensors a plain entry names one module and nothing below;
* an entry that starts with ``re:`` is a regular expression, matched from the start of the path;
* an entry with ``*`` is a shell pattern over the whole path, or over that of a module above;
* GPTQ's and AWQ's lists hold substrings of the path;
* the experts of a layer share one scheme: an entry for one of them, for their fused projection or for
  ``experts`` itself speaks for all, and ``qkv_proj`` speaks for q, k and v;
* a list that names any part of a vision or audio tower speaks of the whole tower.

Sources: vLLM 0.32, model_executor/layers/quantization/utils/quant_utils.py (is_layer_skipped),
utils/config_utils.py, compressed_tensors/utils.py, modelopt.py (is_layer_excluded, _resolve_quant_algo);
transformers 5.24, quantizers/quantizers_utils.py (should_convert_module).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from kvbudget.errors import InputError
from kvbudget.model.shapes import Group

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_EXPRESSION = 2000
MAX_EXPRESSIONS = 20_000
"""Published lists have patterns of some hundred characters and some thousand entries."""

_NESTED_QUANTIFIER = re.compile(r"\([^()]*[+*][^()]*\)\s*[+*{]")
"""A repeated group that repeats inside, whose matching may take exponential time."""

WRAPPERS = frozenset({"model", "language_model", "text_model", "backbone", "transformer", "llm", "thinker"})
"""Leading parts of a path that name no part of the decoder."""

ALIASES = {
    "attn": "self_attn",
    "attention": "self_attn",
    "ffn": "mlp",
    "feed_forward": "mlp",
    "block_sparse_moe": "mlp",
    "w1": "gate_proj",
    "w3": "up_proj",
    "w2": "down_proj",
    "head": "lm_head",
}
"""Parts that checkpoints and transformers call differently (DeepSeek, Llama 4, MiniMax, Mixtral)."""

FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}
"""Projections that engines and some lists join (vllm/model_executor/models, packed_modules_mapping)."""

ANY_MIXER = ("mixer", "self_attn", "mlp")
"""Nemotron-H's checkpoints call the one part of each layer ``mixer``, whatever it is."""

TOWER_WORDS = {
    Group.VISION: ("visual", "vision", "vit", "image", "multi_modal", "mm_"),
    Group.AUDIO: ("audio", "speech", "sound"),
}
"""What the names of towers and their projectors have in common."""

_WILD = "*?["
_SPELLINGS = ("", "model.", "model.language_model.", "language_model.model.", "language_model.")


def unwrapped(path: str) -> list[str]:
    """Return the parts of a module path without its wrappers."""
    parts = path.split(".")
    start = 0
    while start < len(parts) - 1 and parts[start] in WRAPPERS:
        start += 1
    return parts[start:]


def _canonical(path: str) -> list[str]:
    return [ALIASES.get(part, part) for part in unwrapped(path)]


def _expert_forms(parts: list[str]) -> list[list[str]]:
    """Return a path as it is or, of experts, the path in expert 0, the fused one and that of their module."""
    parts = ["0" if part == "*" else part for part in parts]
    if "experts" not in parts:
        return [parts]
    end = parts.index("experts") + 1
    module, rest = parts[:end], parts[end:]
    rest = rest[1:] if rest and rest[0].isdigit() else rest
    return [[*module, "0", *rest], [*module, *rest], module]


def _first_expert(parts: list[str]) -> list[str]:
    """Return the path in expert 0 of a path in any of them."""
    end = parts.index("experts") + 1 if "experts" in parts else len(parts)
    return [*parts[:end], "0", *parts[end + 1 :]] if parts[end : end + 1] and parts[end].isdigit() else parts


class Module:
    """One module in the spellings that lists may use.

    Args:
        path: Its full path in the checkpoint, e.g. ``model.layers.0.self_attn.q_proj``; a ``*`` stands for
            the number of an expert or of a block.
        group: The part of the model it belongs to.
    """

    __slots__ = ("_spellings", "forms", "group", "path")

    def __init__(self, path: str, group: Group) -> None:
        parts = _canonical(path)
        self.path = path
        self.group = group
        self.forms = [".".join(form) for form in _expert_forms(parts)]
        if parts[-1] in FUSED:
            self.forms.append(".".join([*parts[:-1], FUSED[parts[-1]]]))
        self._spellings: tuple[str, ...] | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every full path that the checkpoint or the engine may give it; made when first asked for."""
        if self._spellings is None:
            tails = [".".join(form) for form in _expert_forms(unwrapped(self.path))]
            paths = (f"{wrapper}{tail}" for wrapper in _SPELLINGS for tail in tails)
            self._spellings = tuple(dict.fromkeys((self.path, *paths)))
        return self._spellings

    def contains(self, text: str) -> bool:
        """Whether the path contains `text`; an expert's projection counts only if `text` speaks of experts.

        Otherwise ``gate`` would find every expert's ``gate_proj`` beside the router; vLLM (auto_awq.py, 0.32)
        asks for the module of all experts too.
        """
        names: Iterable[str] = self.spellings
        if "experts" not in text:
            names = (head + sign for head, sign, _ in (name.partition("experts") for name in names))
        return any(text in name for name in names)


class Names:
    """A list of module names as quantization configs write them, prepared for many look-ups.

    Args:
        entries: Plain names, shell patterns and ``re:`` expressions.
        key: The config key they come from, for messages.
        kind: What a plain name covers: a module with all below, the module alone, any path that contains it.
    """

    __slots__ = (
        "_anywhere",
        "_exact",
        "_globs",
        "_longest",
        "_prefixes",
        "_regexes",
        "_substrings",
        "_towers",
        "_whole",
    )

    def __init__(
        self, entries: Iterable[str], *, key: str, kind: Literal["module", "whole", "substring"] = "module"
    ) -> None:
        exact: set[str] = set()
        anywhere: set[str] = set()
        prefixes: dict[int, set[str]] = {}
        globs: list[str] = []
        regexes: list[str] = []
        substrings: list[str] = []
        towers: set[Group] = set()
        for entry in entries:
            towers.update(group for group, words in TOWER_WORDS.items() if any(word in entry for word in words))
            if entry.startswith("re:"):
                regexes.append(entry.removeprefix("re:"))
                continue
            for name in _variants(".".join(_first_expert(_canonical(entry)))):
                if any(sign in name for sign in _WILD):
                    # Most patterns are a path and a star; a set of starts is faster than an expression.
                    if name.endswith("*") and "." in name and not any(sign in name[:-1] for sign in _WILD):
                        prefixes.setdefault(len(name) - 1, set()).add(name[:-1])
                    else:
                        globs += (name,) if name.endswith("*") else (name, f"{name}.*")
                elif kind == "substring":
                    substrings.append(entry)
                elif kind == "whole" or any(part.isdigit() for part in name.split(".")):
                    exact.add(name)
                else:
                    anywhere.add(name)
        self._whole = kind == "whole"
        self._exact = frozenset(exact)
        self._anywhere = frozenset(anywhere)
        self._longest = max((name.count(".") + 1 for name in anywhere), default=0)
        self._substrings = tuple(substrings)
        self._prefixes = tuple(prefixes.items())
        self._globs = _compiled(_translated(globs), key)
        self._regexes = _compiled(regexes, key)
        self._towers = frozenset(towers)

    def match(self, module: Module) -> bool:
        """Whether the list names `module`."""
        if module.group in TOWER_WORDS:
            return module.group in self._towers or any(map(module.contains, self._substrings))
        if any(map(self._match_form, module.forms)) or any(glob.match(module.path) for glob in self._globs):
            return True
        if self._regexes and any(regex.match(name) for regex in self._regexes for name in module.spellings):
            return True
        return any(map(module.contains, self._substrings))

    def _match_form(self, form: str) -> bool:
        if form in self._exact or any(form[:length] in names for length, names in self._prefixes):
            return True
        if not self._whole and (self._exact or self._anywhere) and self._match_parts(form.split(".")):
            return True
        return any(glob.match(form) for glob in self._globs)

    def _match_parts(self, parts: list[str]) -> bool:
        """Whether the list names a module above, or a run of the path's parts wherever it stands."""
        length = len(parts)
        if self._exact and any(".".join(parts[:end]) in self._exact for end in range(1, length)):
            return True
        return any(
            ".".join(parts[start : start + run]) in self._anywhere
            for run in range(1, self._longest + 1)
            for start in range(length + 1 - run)
        )


def _variants(name: str) -> tuple[str, ...]:
    if f".{ANY_MIXER[0]}." not in f".{name}.":
        return (name,)
    return tuple(name.replace(ANY_MIXER[0], part, 1) for part in ANY_MIXER)


def _translated(globs: list[str]) -> list[str]:
    if not globs:
        return []
    from fnmatch import translate  # noqa: PLC0415 - few lists hold such patterns

    return [translate(glob) for glob in globs]


def _compiled(expressions: list[str], key: str) -> tuple[re.Pattern[str], ...]:
    """Compile `expressions` into as few patterns as possible.

    Raises:
        InputError: One of them is no regular expression.
    """
    if not expressions:
        return ()
    if len(expressions) > MAX_EXPRESSIONS or any(
        len(text) > MAX_EXPRESSION or _NESTED_QUANTIFIER.search(text) for text in expressions
    ):
        raise InputError(f"{key} holds patterns that could take forever to match; list the modules by name instead.")
    try:
        return (re.compile("|".join(f"(?:{text})" for text in expressions)),)
    except (re.error, OverflowError, RecursionError):
        pass  # a broken one, or flags and groups that do not survive being joined
    try:
        return tuple(map(re.compile, expressions))
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(f"{key} holds a pattern that is no regular expression ({error}); check the config.") from None
