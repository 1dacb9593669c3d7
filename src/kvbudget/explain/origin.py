"""Where a figure was read: the key of the config, and its line in the file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.facts.architectures import SAME_AS, TRAITS
from kvbudget.model.reader import TEXT_KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kvbudget.model import Model

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]')


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """Return the line of each key in a JSON text, by its path; keys inside lists are left out."""
    lines: dict[tuple[str, ...], int] = {}
    path: list[str | None] = []
    string = ""
    key: str | None = None
    line, seen = 1, 0
    for match in _MARK.finditer(text):
        mark = match.group()
        line += text.count("\n", seen, match.start())
        seen = match.start()
        if mark[0] == '"':
            string = mark
        elif mark == ":":
            key = str(json.loads(string))
            if None not in path:
                lines[(*(part for part in path if part), key)] = line
        elif mark in "{[":
            path.append("" if not path else key if mark == "{" else None)
            key = None
        elif mark in "}]" and path:
            path.pop()
    return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A config as text, for the line numbers of its keys."""

    name: str
    text: str


class Origin(NamedTuple):
    """Where a factor was read: the key's dotted path, and the file with its line or what stands for it."""

    key: str
    where: str


LAYER_KEYS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "num_decoder_layers")
HEAD_KEYS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads")
HIDDEN_KEYS = ("hidden_size", "n_embd", "d_model")
KV_KEYS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "multi_query_group_num",
    "kv_n_heads",
    "swa_num_key_value_heads",
    "num_global_key_value_heads",
)
ONE_KV_HEAD_KEYS = ("multi_query", "multi_query_attention")
DIM_KEYS = ("head_dim", "attention_head_dim", "kv_channels", "d_kv", "swa_head_dim", "global_head_dim")
PART_DIM_KEYS = ("qk_nope_head_dim", "qk_rope_head_dim")
VALUE_DIM_KEYS = ("v_head_dim", "swa_v_head_dim")
MAP_KEYS = (
    "layer_types",
    "layers_block_type",
    "hybrid_override_pattern",
    "hybrid_layer_pattern",
    "attn_type_list",
    "linear_attn_config",
    "full_attn_idxs",
    "attn_layer_indices",
    "attn_layer_period",
    "full_attention_interval",
    "sliding_window_pattern",
    "no_rope_layers",
    "no_rope_layer_interval",
    "max_window_layers",
    "block_configs",
    "compress_ratios",
    "indexer_types",
    "index_topk_pattern",
    "index_topk_freq",
    "cla_share_factor",
    "num_kv_shared_layers",
)
"""Keys that say which layers are of which kind."""


class Finder:
    """Finds the key that a figure was read from."""

    def __init__(self, model: Model, file: ConfigFile | None) -> None:
        self.model = model
        self.file = file
        self.lines = key_lines(file.text) if file else {}
        self.one_line = bool(file) and "\n" not in (file.text.strip() if file else "")
        self.sections = list(_sections(model.config))
        traits = TRAITS.get(SAME_AS.get(model.model_type, model.model_type))
        self.aliases: Mapping[str, str] = traits.aliases if traits else {}

    def find(self, keys: Sequence[str], value: object = None) -> Origin | None:
        """Return where one of `keys` holds `value` (or anything), the language model's own part first."""
        spellings = [*keys, *(self.aliases[key] for key in keys if key in self.aliases)]
        for path, section in self.sections:
            for key in spellings:
                found = section.get(key)
                if found is not None and (value is None or _equals(found, value)):
                    return Origin(".".join((*path, key)), self._where((*path, key)))
        for name, default in self.model.assumptions:
            if name.rpartition(".")[2] in spellings and (value is None or _equals(default, value)):
                return Origin(name, f"default of {self.model.model_type}")
        return None

    def any(self, keys: Sequence[str], value: object, otherwise: str) -> Origin:
        """Return where `value` was read, or else say what it was taken from."""
        return self.find(keys, value) or Origin(otherwise, self._where(()))

    def _where(self, path: tuple[str, ...]) -> str:
        if self.file is None:
            return "catalogue" if self.model.source.startswith("built-in") else "config"
        line = self.lines.get(path)
        return self.file.name if line is None or self.one_line else f"{self.file.name}:{line}"


def _sections(
    config: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterable[tuple[tuple[str, ...], Mapping[str, Any]]]:
    """Yield the parts of a config that describe the language model, the innermost first."""
    for key in (*TEXT_KEYS, "attn_config"):
        nested = config.get(key)
        if isinstance(nested, dict):
            yield from _sections(nested, (*path, key))
    yield path, config


def _equals(found: object, value: object) -> bool:
    if isinstance(found, (list, tuple)):
        return value in found
    return found == value and isinstance(found, bool) == isinstance(value, bool)
