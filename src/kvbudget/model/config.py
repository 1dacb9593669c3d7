"""A `config.json` read with suspicion: every value is checked, every default that was used is remembered.

Three rules decide what a missing key means:

1. Keys that give a model its size (`Config.dim`) must be there. Only a nested config may leave them out, because
   transformers writes nested configs without the values that equal the class's own.
2. Other keys fall back to the class's default, a row in `kvbudget.facts.architectures`, and the fallback is recorded.
3. A key with neither value nor default is refused with `CannotTell`, which names it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kvbudget.errors import CannotTell, InputError

MAX_DIM = 1 << 27
"""No width, vocabulary or position count of a model comes near; a larger figure is a broken file."""

MAX_LAYERS = 4096
"""The deepest published models have a few hundred layers."""

SIZE_KEYS = frozenset(
    {
        "first_k_dense_replace",
        "head_dim",
        "hidden_size",
        "intermediate_size",
        "kv_lora_rank",
        "max_position_embeddings",
        "moe_intermediate_size",
        "n_embd",
        "n_head",
        "n_layer",
        "n_positions",
        "n_routed_experts",
        "n_shared_experts",
        "num_attention_heads",
        "num_experts",
        "num_experts_per_tok",
        "num_hidden_layers",
        "num_key_value_heads",
        "num_layers",
        "num_local_experts",
        "num_nextn_predict_layers",
        "original_max_position_embeddings",
        "q_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "shared_expert_intermediate_size",
        "v_head_dim",
        "vocab_size",
    }
)
"""Keys that are a size, or a list of sizes, wherever they stand. They are checked even where nothing reads them: a file
with -1 heads is broken, whoever would ignore it."""

RATIO_LIMITS: Mapping[str, int] = {"factor": MAX_DIM, "partial_rotary_factor": 1, "rotary_pct": 1}
"""Keys that hold a positive number, and the largest it can be; checked like `SIZE_KEYS`."""

ROPE_KEYS = frozenset({"rope_scaling", "rope_parameters", "full_attention", "sliding_attention"})
"""Where rope settings stand, one inside the other; they are checked with the config that holds them."""


class Config:
    """Checked access to one (sub-)config.

    Args:
        data: The parsed JSON object.
        path: Where it stands in the file, for messages (``text_config.``).
        defaults: The class's own defaults for keys that may be absent.
        nested: Whether size-giving keys may come from `defaults` too (rule 1).
        assumed: A list shared by a whole file that collects (key, value) of every default used.

    Raises:
        InputError: One of `SIZE_KEYS` is not a size.
    """

    __slots__ = ("assumed", "data", "defaults", "nested", "path")

    def __init__(
        self,
        data: Mapping[str, Any],
        *,
        path: str = "",
        defaults: Mapping[str, Any] | None = None,
        nested: bool = False,
        assumed: list[tuple[str, Any]] | None = None,
    ) -> None:
        self.data = data
        self.path = path
        self.defaults = defaults or {}
        self.nested = nested
        self.assumed = [] if assumed is None else assumed
        for key in SIZE_KEYS & data.keys():
            value = data[key]
            for item in value if isinstance(value, (list, tuple)) else (value,):
                if item is not None:
                    self.checked(item, key)
        for key in RATIO_LIMITS.keys() & data.keys():
            if data[key] is not None:
                self._ratio(data[key], key, RATIO_LIMITS[key])
        for key in ROPE_KEYS & data.keys():
            if isinstance(data[key], Mapping):
                Config(data[key], path=f"{path}{key}.")

    def extended(self, added: Mapping[str, Any], defaults: Mapping[str, Any]) -> Config:
        """Return the same config with more keys and other class defaults."""
        return Config(
            {**self.data, **added}, path=self.path, defaults=defaults, nested=self.nested, assumed=self.assumed
        )

    def sub(self, key: str, *, defaults: Mapping[str, Any] | None = None) -> Config | None:
        """Return the nested config under `key`, or None if there is none."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise InputError(f"{self.name(key)} must be an object, found {_shown(value)}; check the config.")
        return Config(value, path=f"{self.path}{key}.", defaults=defaults, nested=True, assumed=self.assumed)

    def name(self, key: str) -> str:
        """Return the dotted path of `key` in the file."""
        return f"{self.path}{key}"

    def has(self, *keys: str) -> bool:
        """Whether any of `keys` has a value that is not null in the file itself."""
        return any(self.data.get(key) is not None for key in keys)

    def raw(self, *keys: str) -> Any:  # noqa: ANN401 - JSON has no narrower type
        """Return the first value of `keys` that is not null, from the file or else the class's defaults, or None.

        A key that is written as null says "none", which the class's default does not replace.
        """
        data = self.data
        written = False
        for key in keys:
            if key in data:
                value = data[key]
                if value is not None:
                    return value
                written = True
        if written:
            return None
        for key in keys:
            value = self.defaults.get(key)
            if value is not None:
                self.assumed.append((self.name(key), value))
                return value
        return None

    def _found(self, keys: tuple[str, ...]) -> str:
        for key in keys:
            if self.data.get(key) is not None:
                return key
        return keys[0]

    def dim(self, *keys: str, minimum: int = 1, maximum: int = MAX_DIM) -> int:
        """Return a size-giving integer (rule 1); `keys` are spellings of the same thing.

        Raises:
            CannotTell: It is absent.
            InputError: It is not an integer in range.
        """
        if not self.nested and not self.has(*keys):
            raise CannotTell(
                f"{self.name(keys[0])} is missing from the config, so the model's size is unknown; "
                "give the complete config.json.",
                key=self.name(keys[0]),
            )
        value = self.integer(*keys, minimum=minimum, maximum=maximum)
        if value is None:
            raise CannotTell(
                f"{self.name(keys[0])} is missing and the model type has no default for it; add it to the config.",
                key=self.name(keys[0]),
            )
        return value

    def integer(self, *keys: str, minimum: int = 0, maximum: int = MAX_DIM) -> int | None:
        """Return an optional integer, or None if it is neither in the file nor among the defaults.

        Raises:
            InputError: It is a boolean, a fraction, text, or out of range.
        """
        value = self.raw(*keys)
        return None if value is None else self.checked(value, self._found(keys), minimum=minimum, maximum=maximum)

    def count(self, *keys: str, minimum: int = 0, maximum: int = MAX_DIM) -> int:
        """Return an integer that must be known from the file or the defaults (rules 2 and 3)."""
        value = self.integer(*keys, minimum=minimum, maximum=maximum)
        if value is None:
            raise CannotTell(
                f"{self.name(keys[0])} is missing and the model type has no default for it; add it to the config.",
                key=self.name(keys[0]),
            )
        return value

    def checked(self, value: Any, key: str, *, minimum: int = 0, maximum: int = MAX_DIM) -> int:  # noqa: ANN401
        """Return `value` if it is an integer in range (a float such as 4.0 counts as one)."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            raise InputError(
                f"{self.name(key)} must be an integer from {minimum:,} to {maximum:,}, found {_shown(value)}; "
                "check the config."
            )
        return value

    def number(self, *keys: str, default: float) -> float:
        """Return a finite positive number."""
        value = self.raw(*keys)
        return default if value is None else self._ratio(value, self._found(keys), MAX_DIM)

    def _ratio(self, value: object, key: str, largest: int) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= largest:
            raise InputError(
                f"{self.name(key)} must be a positive number up to {largest:,}, found {_shown(value)}; "
                "check the config."
            )
        return float(value)

    def flag(self, *keys: str, default: bool = False) -> bool:
        """Return a boolean."""
        value = self.raw(*keys)
        if value is None:
            return default
        if value not in (True, False):
            raise InputError(
                f"{self.name(self._found(keys))} must be true or false, found {_shown(value)}; check the config."
            )
        return bool(value)

    def text(self, *keys: str) -> str | None:
        """Return a string, or None."""
        value = self.raw(*keys)
        if value is None:
            return None
        if not isinstance(value, str):
            raise InputError(f"{self.name(self._found(keys))} must be text, found {_shown(value)}; check the config.")
        return value

    def integers(self, *keys: str, minimum: int = 0, maximum: int = MAX_DIM) -> tuple[int, ...] | None:
        """Return a list of integers, or None."""
        value = self.raw(*keys)
        if value is None:
            return None
        key = self._found(keys)
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise InputError(f"{self.name(key)} must be a list of integers, found {_shown(value)}; check the config.")
        return tuple(self.checked(item, key, minimum=minimum, maximum=maximum) for item in value)

    def text_like(self, key: str) -> bool:
        """Whether `key` holds text in the file."""
        return isinstance(self.data.get(key), str)

    def per_layer(self, *keys: str, layers: int) -> tuple[Any, ...] | None:
        """Return a list with one entry a layer, or None.

        Entries beyond the last layer belong to multi-token-prediction layers and are dropped.

        Raises:
            InputError: It is not a list or it is shorter than the model.
        """
        value = self.raw(*keys)
        if value is None:
            return None
        key = self._found(keys)
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise InputError(f"{self.name(key)} must be a list, found {_shown(value)}; check the config.")
        if len(value) < layers:
            raise InputError(
                f"{self.name(key)} has {len(value)} entries for {layers} layers, so one of the two is wrong; "
                "check the config."
            )
        return tuple(value[:layers])


def _shown(value: object, limit: int = 40) -> str:
    """Show a JSON value in a message, cut to `limit` characters, never expanding a huge one."""
    if isinstance(value, (Mapping, list, tuple)):
        return f"{'an object' if isinstance(value, Mapping) else 'a list'} of {len(value)} entries"
    if isinstance(value, bool) or value is None:
        return str(value).lower().replace("none", "null")
    if isinstance(value, int) and value.bit_length() > 128:  # noqa: PLR2004 - printing it would take long
        return f"an integer of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
