"""From a parsed `config.json` to a `Model`: find the language model's part, choose its reader, add what stands around.

Which part is which is decided by keys and by the tables in `kvbudget.facts`; no model is known by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.architectures import ARCHITECTURE_TYPES, SAME_AS, STATED_LENGTH, TEXT_TYPES, TRAITS, Traits
from kvbudget.facts.class_defaults import CLASS_DEFAULTS
from kvbudget.model.attention import ATTENTION_KEYS
from kvbudget.model.config import MAX_DIM, Config
from kvbudget.model.decoder import Decoder, outside, read_decoder
from kvbudget.model.feed_forward import ACTIVE_KEYS, active_experts, expert_count
from kvbudget.model.legacy import modernise
from kvbudget.model.model import Model
from kvbudget.units import MAX_COUNT

if TYPE_CHECKING:
    from kvbudget.model.quantization import Recipe
    from kvbudget.model.shapes import Tower

TEXT_KEYS = ("text_config", "llm_config", "language_config", "thinker_config")
"""Where multimodal configs keep the language model's part."""

TOWER_KEYS = (
    "vision_config",
    "audio_config",
    "vision_tower",
    "mm_vision_tower",
    "img_processor",
    "vit_config",
    "visual",
    "vision_encoder",
    "embd_layer",
)
"""Keys that say that there is a tower besides the language model."""

UNKNOWN_PARTS = ("latent_attention_config",)
"""Keys of parts that add weights nobody here has counted."""

QUANTIZATION_KEYS = ("quantization_config", "quantization", "compression_config", "quantization_bit")

POSITION_KEYS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "max_target_positions",
    "max_sequence_length",
    "max_seq_length",
    "seq_len",
)
"""Spellings of the longest context (vllm/transformers_utils/model_arch_config_convertor.py, 0.32)."""

MAX_NESTING = 4

ENCODER_DECODERS = frozenset(
    {"t5", "mt5", "umt5", "bart", "mbart", "whisper", "m2m_100", "pegasus", "mllama_text_model"}
)
"""Model types whose decoder attends to an encoder."""

DEFAULT_LABELS = 2
"""Classes of a classifier whose config does not name them (transformers 5.24, configuration_utils.py)."""


def read_model(
    config: Mapping[str, Any],
    *,
    name: str,
    source: str,
    hf_quant_config: Mapping[str, Any] | None = None,
    quantize_config: Mapping[str, Any] | None = None,
) -> Model:
    """Return the model that a config describes; see `Model.from_config`."""
    if not isinstance(config, Mapping):
        raise InputError(f"{source} must hold a JSON object, found {type(config).__name__}; give a config.json.")
    top = Config(config)
    c, model_type, top_type = text_part(top)
    architecture = _architecture(top)
    if model_type in ENCODER_DECODERS:
        parts = _encoder_decoder(c, top)
    else:
        parts = _decoder(c, top, model_type, top_type, architecture)
    model = Model(
        name=name or _own_name(config),
        source=source,
        model_type=model_type,
        architecture=architecture,
        dtype=_dtype(c, top),
        quantization=_recipe(config, hf_quant_config, quantize_config),
        assumptions=tuple(dict.fromkeys((key, value) for key, value in top.assumed)),
        config=config,
        beside={
            key: content
            for key, content in (("hf_quant_config", hf_quant_config), ("quantize_config", quantize_config))
            if content
        },
        **parts,
    )
    _check_sanity(model, c)
    return model


def _check_sanity(model: Model, c: Config) -> None:
    """Refuse what no single key gives away: more experts a token than there are, more parameters than can be."""
    experts, active = model.num_experts, active_experts(c) if c.has(*ACTIVE_KEYS) else None
    if experts > 1 and active is not None and not 1 <= active <= experts:
        raise InputError(
            f"{c.name('num_experts_per_tok')} {active} is not from 1 to the {experts} experts there are; "
            "check the config."
        )
    if model.parameters > MAX_COUNT:
        raise InputError(
            f"The sizes in the config multiply to {model.parameters:.1e} parameters, more than any model has; "
            "check hidden_size, intermediate_size and the number of layers and experts."
        )


def _decoder(c: Config, top: Config, model_type: str, top_type: str, architecture: str) -> dict[str, Any]:
    """Return the parts of a decoder-only model, with its towers if it has any."""
    canonical = SAME_AS.get(model_type, model_type)
    traits = _traits(c, canonical)
    c, traits = modernise(canonical, c, traits)
    tied = _tied(c, top, canonical, traits)
    labels = _labels(top, architecture, canonical)
    if traits.special:
        from kvbudget.model.special import SPECIAL  # noqa: PLC0415 - few models need it

        layers, more = SPECIAL[canonical](c)
        decoder = Decoder(layers=layers, outside=(*outside(c, traits, tied=tied, labels=labels), *more))
    else:
        decoder = read_decoder(c, traits, tied=tied, labels=labels)
    return {
        "layers": decoder.layers,
        "outside": decoder.outside,
        "towers": _towers(top, c, top_type, architecture),
        "mtp": decoder.mtp,
        "prefix": f"{traits.prefix}.{traits.block}",
        "hidden_size": c.dim("hidden_size"),
        "vocab_size": c.dim("vocab_size"),
        "num_attention_heads": c.integer(*ATTENTION_KEYS) or 0,
        "max_position_embeddings": longest_context(c),
        "default_model_len": _default_length(c),
        "tied": tied,
        "num_experts": expert_count(c, traits.experts) if traits.experts else 0,
        "num_experts_per_tok": (active_experts(c) or 0) if traits.experts else 0,
    }


def _encoder_decoder(c: Config, top: Config) -> dict[str, Any]:
    """Return the parts of a model with a decoder that attends to an encoder."""
    from kvbudget.model.encoder_decoder import read_encoder_decoder  # noqa: PLC0415 - few models need it

    read = read_encoder_decoder(c, top)
    return {
        "layers": read.layers,
        "outside": read.outside,
        "towers": read.towers,
        "prefix": read.prefix,
        "hidden_size": read.hidden_size,
        "vocab_size": read.vocab_size,
        "num_attention_heads": read.num_attention_heads,
        "max_position_embeddings": read.max_position_embeddings,
        "tied": read.tied,
    }


def text_part(top: Config) -> tuple[Config, str, str]:
    """Return (the language model's config, its model type, the file's own model type).

    Raises:
        CannotTell: Neither a model type nor an architecture says what the model is.
    """
    top_type = _model_type(top)
    c = top
    for _ in range(MAX_NESTING):
        nested = next((key for key in TEXT_KEYS if isinstance(c.data.get(key), Mapping)), None)
        if nested is None:
            break
        c = c.sub(nested) or c
    own = top_type if c is top else _model_type(c)
    model_type = TEXT_TYPES.get(own or top_type, own or top_type)
    if not model_type:
        raise CannotTell(
            f"{top.name('model_type')} is missing and architectures does not name a known class, "
            "so the kind of model is unknown; add model_type to the config.",
            key="model_type",
        )
    canonical = SAME_AS.get(model_type, model_type)
    return c.extended({}, CLASS_DEFAULTS.get(canonical, {})), model_type, top_type


def _model_type(c: Config) -> str:
    return c.text("model_type") or _from_architectures(c) or ""


def _from_architectures(c: Config) -> str | None:
    return ARCHITECTURE_TYPES.get(_architecture(c))


def _architecture(c: Config) -> str:
    value = c.data.get("architectures")
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], str):
        return value[0]
    return ""


def _traits(c: Config, model_type: str) -> Traits:
    traits = TRAITS.get(model_type)
    if traits is None:
        raise CannotTell(
            f"Model type {model_type!r} is not known to this version of kvbudget, so which layers keep a KV cache "
            "is unknown; update kvbudget or ask for it to be added.",
            key=c.name("model_type"),
        )
    return traits


def _tied(c: Config, top: Config, model_type: str, traits: Traits) -> bool:
    """Return whether the output head is the input embedding.

    The outer config decides over the nested one, as in transformers, where the outer class ties; then the class's
    own default.
    """
    for config in (top, c):
        if config.has("tie_word_embeddings"):
            return config.flag("tie_word_embeddings")
    if model_type in CLASS_DEFAULTS:
        return bool(CLASS_DEFAULTS[model_type].get("tie_word_embeddings", False))
    return traits.tied


UNSCALED_ROPE = frozenset(
    {
        "default",
        "su",
        "longrope",
        "llama3",
        "yarn",
        "deepseek_yarn",
        "deepseek_llama_scaling",
        "mrope",
        "proportional",
    }
)
"""Rope types whose `max_position_embeddings` is already the scaled length."""


def rope_types(c: Config) -> dict[str, float]:
    """Return rope type -> factor of the config's rope settings, which may differ by layer type."""
    found: dict[str, float] = {}
    settings = c.data.get("rope_scaling") or c.data.get("rope_parameters")
    if not isinstance(settings, Mapping):
        return found
    nested = [value for value in settings.values() if isinstance(value, Mapping)]
    for entry in nested or [settings]:
        kind, factor = entry.get("rope_type", entry.get("type")), entry.get("factor")
        number = isinstance(factor, (int, float)) and not isinstance(factor, bool) and 0 < factor < MAX_DIM
        if isinstance(kind, str):
            found[kind] = float(factor) if number and factor is not None else 1.0
    return found


def longest_context(c: Config) -> int | None:
    """Return the longest context that the config allows, None if it names none.

    Of several keys the smallest counts, and `model_max_length` over all. Linear and dynamic rope scaling multiply the
    positions; the other kinds state the scaled length already (vllm/config/model.py, _get_and_verify_max_len, 0.32).
    """
    if c.has("model_max_length"):
        return c.integer("model_max_length", minimum=1, maximum=1 << 62)
    written = [c.integer(key, minimum=1) for key in POSITION_KEYS if c.has(key)]
    length = min((each for each in written if each), default=None) or c.integer(POSITION_KEYS[0], minimum=1)
    if length is None or c.text("model_type") in STATED_LENGTH:
        return length
    factors = [factor for kind, factor in rope_types(c).items() if kind not in UNSCALED_ROPE]
    return int(length * factors[-1]) if factors else length


def _default_length(c: Config) -> int | None:
    """LongRoPE models are served at their original length unless asked otherwise, as longer ones lose quality."""
    if "longrope" in rope_types(c):
        return c.integer("original_max_position_embeddings", minimum=1)
    return None


def _labels(top: Config, architecture: str, model_type: str) -> int | None:
    """Return the classes of a classifier head, 0 for a bare encoder class, None for a language model.

    Remote-code classes name themselves as they like, so only classes of transformers are read by their suffix.
    """
    if model_type not in CLASS_DEFAULTS:
        return None
    if architecture.endswith("ForSequenceClassification"):
        names = top.data.get("id2label")
        listed = len(names) if isinstance(names, Mapping) else DEFAULT_LABELS
        return top.integer("num_labels", minimum=1, maximum=1 << 24) or listed
    return 0 if architecture.endswith("Model") and not architecture.endswith("HeadModel") else None


def _dtype(c: Config, top: Config) -> str | None:
    for config in (c, top):
        for key in ("dtype", "torch_dtype"):
            value = config.data.get(key)
            if isinstance(value, str):
                return value
    return None


def _recipe(config: Mapping[str, Any], *beside: Mapping[str, Any] | None) -> Recipe | None:
    """Return how the checkpoint is quantized; the import is for quantized ones alone."""
    nested = [config.get(key) for key in TEXT_KEYS]
    sections = [part for part in (config, *nested) if isinstance(part, Mapping)]
    named = any(part.get(key) is not None for part in sections for key in QUANTIZATION_KEYS)
    if not named and not any(beside):
        return None
    from kvbudget.model.quantization import read_recipe  # noqa: PLC0415

    return read_recipe(config, *beside)


def _own_name(config: Mapping[str, Any]) -> str:
    value = config.get("_name_or_path")
    return value if isinstance(value, str) and value else "config.json"


def _towers(top: Config, text: Config, top_type: str, architecture: str) -> tuple[Tower, ...]:
    """Return the towers that the config has or, by its type, must have."""
    unknown = next((key for key in UNKNOWN_PARTS if top.has(key)), None)
    if unknown is not None:
        raise CannotTell(
            f"{unknown} announces a part whose weights this version of kvbudget does not know, so the total would be a "
            "guess; give the checkpoint's headers or update kvbudget.",
            key=unknown,
        )
    announced = top_type in TEXT_TYPES and ARCHITECTURE_TYPES.get(architecture, top_type) in TEXT_TYPES
    if not text.path and not announced and not any(top.data.get(key) is not None for key in TOWER_KEYS):
        return ()
    from kvbudget.model.towers import read_towers  # noqa: PLC0415 - only multimodal models pay for it

    return read_towers(top, text.dim("hidden_size"))
