"""What the operator chooses, spelled as vLLM's flags are.

A `Deployment` holds choices and nothing derived; None means that the engine decides, and what it decides is a rule of
the engine (`kvbudget.engines`), which depends on its version and on the card.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from kvbudget.errors import InputError
from kvbudget.facts import adapters
from kvbudget.facts.gpus import Gpu, find_gpu
from kvbudget.multimodal import Limit, Limits, parse_limits
from kvbudget.speculation import SpeculativeConfig, parse
from kvbudget.units import MAX_BYTES
from kvbudget.values import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvbudget.measured import Correction
    from kvbudget.model import Model

MAX_RANKS = 1 << 16
MAX_TOKENS = 1 << 40

DEFAULT_ENGINE_VERSION = "0.32"

AUTO = -1
"""`--max-model-len auto`: the engine takes the longest that fits (since vLLM 0.14.1)."""
MAX_SEQS = 1 << 24

_BOUNDS: Mapping[str, tuple[int, int]] = {
    "num_gpus": (1, MAX_RANKS),
    "tensor_parallel_size": (1, MAX_RANKS),
    "pipeline_parallel_size": (1, MAX_RANKS),
    "data_parallel_size": (1, MAX_RANKS),
    "decode_context_parallel_size": (1, MAX_RANKS),
    "max_model_len": (1, MAX_TOKENS),
    "max_num_seqs": (1, MAX_SEQS),
    "max_num_batched_tokens": (1, MAX_TOKENS),
    "block_size": (1, 1 << 20),
    "context": (1, MAX_TOKENS),
    "num_gpu_blocks_override": (1, MAX_TOKENS),
    "kv_cache_memory_bytes": (1, MAX_BYTES),
    "max_loras": (1, 1 << 16),
    "max_lora_rank": (1, 512),
}
"""Field -> (smallest, largest) value that is not a typing error."""

_TEXTS = ("engine", "engine_version", "kv_cache_dtype", "dtype", "usage_context", "lora_dtype")

_texts, _bounded = attrgetter(*_TEXTS), attrgetter(*_BOUNDS)

CHOICES: Mapping[str, tuple[str | int, ...]] = {
    "dtype": ("auto", "bfloat16", "float16", "half", "float32", "float"),
    "lora_dtype": adapters.DTYPES,
    "max_lora_rank": adapters.RANKS,
    "mm_encoder_tp_mode": ("weights", "data"),
    "usage_context": ("server", "llm"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One model on one kind of GPU under one engine.

    Args:
        model: What is served.
        gpu: The card, or its name (`kvbudget.facts.gpus.find_gpu`).
        engine: "vllm".
        engine_version: Such as "0.32".
        num_gpus: GPUs there are; by default as many as the layout needs.
        context: The request length that `max_concurrent_requests` counts; by default `max_model_len`.
        usage_context: "server" (`vllm serve`) or "llm" (the `LLM` class); their defaults differ.
        max_model_len: The longest request; `AUTO` (-1) for the longest that fits.
        allow_long: Do not refuse a `max_model_len` above the model's own.
        quantization: vLLM's flag; over a checkpoint that is not quantized also the question what one in that format
            would weigh (``awq``, ``int8``, ``gguf:Q4_K_M``; see `kvbudget.model.what_if`).
        what_if: Answer that question where the engine would stop; False for a command that is to be launched as it is.
        limit_mm_per_prompt: Items of each modality in a prompt; vLLM's JSON text, a mapping of it or image=2 will do.
        speculative_config: What proposes tokens; vLLM's JSON text or a mapping of it will do.
        uncounted: What a launch command asks for and the budget does not count yet, a sentence each; they become
            warnings.
        measured: Corrections of estimates from measurements of one's own (`kvbudget.calibration`).

    All other fields are vLLM's flags with underscores; sizes in bytes and tokens.

    Raises:
        InputError: A value is out of range, or not of its type.
    """

    model: Model
    gpu: Gpu | str
    engine: str = "vllm"
    engine_version: str = DEFAULT_ENGINE_VERSION
    num_gpus: int | None = None
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str = "auto"
    kv_cache_memory_bytes: int | None = None
    num_gpu_blocks_override: int | None = None
    block_size: int | None = None
    dtype: str = "auto"
    quantization: str | None = None
    enforce_eager: bool = False
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    context: int | None = None
    usage_context: str = "server"
    allow_long: bool = False
    what_if: bool = True
    speculative_config: SpeculativeConfig | Mapping[str, Any] | str | None = None
    limit_mm_per_prompt: tuple[Limit, ...] | Mapping[str, Any] | str = ()
    language_model_only: bool = False
    skip_mm_profiling: bool = False
    mm_encoder_tp_mode: str = "weights"
    enable_lora: bool = False
    max_loras: int = 1
    max_lora_rank: int = 16
    lora_dtype: str = "auto"
    fully_sharded_loras: bool = False
    uncounted: tuple[str, ...] = ()
    measured: tuple[Correction, ...] = ()

    def __post_init__(self) -> None:
        """Check every choice, and look up a card that was given by name."""
        self._look_up()
        for name, value in zip(_TEXTS, _texts(self), strict=True):
            if not isinstance(value, str):
                raise InputError(f'{flag(name)} {shown(value)}: expected text, such as "0.32" or "auto".')
        for (name, (low, high)), value in zip(_BOUNDS.items(), _bounded(self), strict=True):
            if value is None or (type(value) is int and low <= value <= high):  # a boolean is an int by inheritance
                continue
            if name != "max_model_len" or value != AUTO:
                raise InputError(f"{flag(name)} {shown(value)}: expected a whole number from {low:,} to {high:,}.")
        for name, known in CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                raise InputError(
                    f"{flag(name)} {shown(value)} is not known; choose one of {', '.join(map(str, known))}."
                )
        _check_text("quantization", self.quantization, "fp8")
        _check_fraction(self.gpu_memory_utilization)
        ranks = self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size
        if self.num_gpus is not None and self.num_gpus < ranks:
            raise InputError(
                f"--num-gpus {self.num_gpus}: the layout tp {self.tensor_parallel_size} x pp "
                f"{self.pipeline_parallel_size} x dp {self.data_parallel_size} needs {ranks}; give that many or "
                "make the layout smaller."
            )

    def _look_up(self) -> None:
        """Replace what was given by name or as text."""
        if isinstance(self.gpu, str):
            object.__setattr__(self, "gpu", find_gpu(self.gpu))
        if self.speculative_config is not None:
            object.__setattr__(self, "speculative_config", parse(self.speculative_config))
        if self.limit_mm_per_prompt:
            object.__setattr__(self, "limit_mm_per_prompt", parse_limits(self.limit_mm_per_prompt))

    @property
    def card(self) -> Gpu:
        """The GPU, looked up."""
        if isinstance(self.gpu, str):  # pragma: no cover - __post_init__ has replaced it
            return find_gpu(self.gpu)
        return self.gpu

    @property
    def speculation(self) -> SpeculativeConfig | None:
        """What proposes tokens, read."""
        config = self.speculative_config
        assert config is None or isinstance(config, SpeculativeConfig)  # noqa: S101 - __post_init__ has read it
        return config

    @property
    def limits(self) -> Limits:
        """What the flags about images, audio and video say."""
        each = self.limit_mm_per_prompt
        assert isinstance(each, tuple)  # noqa: S101 - __post_init__ has read it
        return Limits(each, self.language_model_only, not self.skip_mm_profiling, self.mm_encoder_tp_mode)

    @property
    def gpu_count(self) -> int:
        """GPUs that the layout uses."""
        return self.tensor_parallel_size * self.pipeline_parallel_size * self.data_parallel_size

    def replaced(self, **changes: Any) -> Deployment:  # noqa: ANN401 - any field
        """Return the same deployment with other choices."""
        return replace(self, **changes)

    def choices(self) -> dict[str, Any]:
        """Return the choices that differ from what the engine would do by itself, by field name."""
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if item.name not in ("model", "gpu", "what_if", "uncounted", "measured")
            and getattr(self, item.name) != item.default
        }


def flag(name: str) -> str:
    """Return a field's name as a command-line flag."""
    return "--" + name.replace("_", "-")


def _check_text(name: str, value: object, example: str) -> None:
    """Refuse what is neither text nor left to the engine."""
    if not isinstance(value, str | None):
        raise InputError(f'{flag(name)} {shown(value)}: expected text, such as "{example}".')


def _check_fraction(value: float | None) -> None:
    """Refuse a fraction outside 0 to 1; a percentage is the usual slip."""
    if value is None:
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:  # which NaN is not either
        hint = f" Did you mean {value / 100:g}?" if number and 10 <= value <= 100 else ""  # noqa: PLR2004 - percent
        raise InputError(f"--gpu-memory-utilization {shown(value)}: expected 0–1.{hint}")
