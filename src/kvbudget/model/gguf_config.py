"""From a GGUF file's metadata to the config that Hugging Face would write for the same model.

So there is one reader of shapes, whatever a model is stored as. What metadata leaves out the tensors tell: a file
without an output head has a tied one, a bias that is stored is used, and the embedding has as many rows as the
vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.gguf import ARCHITECTURES, KEYS, NEEDED, WITHOUT_SIGMOID, Architecture

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_LAYERS = 1 << 12
"""Of a list with a value for each layer that is written out here."""

SIGMOID_GATING = 2
"""`expert_gating_func` of routers that score with a sigmoid, as DeepSeek's do since V3 (llama.cpp, llama-hparams.h)."""

FULL_ATTENTION_INTERVAL = 4
"""Every so many layers one has attention, where `full_attention_interval` is missing (llama.cpp, qwen3next)."""


class _Metadata:
    """Checked access to the keys of one architecture."""

    def __init__(self, data: Mapping[str, Any], architecture: str, name: str) -> None:
        self._data, self.architecture, self.name = data, architecture, name

    def key(self, suffix: str) -> str:
        """Return the whole key."""
        return f"{self.architecture}.{suffix}"

    def get(self, suffix: str) -> int | None:
        """Return a whole number, None if the key is missing; a list with one value for all layers is that value.

        Raises:
            CannotTell: The layers differ.
            InputError: It is no whole number from 0.
        """
        value = self._data.get(self.key(suffix))
        if isinstance(value, tuple) and value and all(type(item) is int for item in value):
            if len(set(value)) > 1:
                raise self.unknown(suffix, "differs from layer to layer")
            value = value[0]
        if value is None:
            return None
        if type(value) is not int or value < 0:
            raise InputError(f"{self.name}: {self.key(suffix)} is no whole number; check the file.")
        return value

    def need(self, suffix: str) -> int:
        """Return a whole number.

        Raises:
            CannotTell: It is missing, or the layers differ.
            InputError: It is no whole number from 0.
        """
        value = self.get(suffix)
        if value is None:
            raise self.unknown(suffix, "is missing")
        return value

    def by_layer(self, suffix: str, layers: int) -> tuple[int, ...]:
        """Return the number of each layer; one number stands for all.

        Raises:
            CannotTell: It is missing.
            InputError: The list does not fit, or holds something else than whole numbers.
        """
        value = self._data.get(self.key(suffix))
        if not isinstance(value, tuple):
            return (self.need(suffix),) * layers
        if len(value) < layers or not all(type(item) is int for item in value):
            raise InputError(f"{self.name}: {self.key(suffix)} is no list of {layers} whole numbers; check the file.")
        return value[:layers]

    def raw(self, suffix: str) -> Any:  # noqa: ANN401 - metadata holds anything
        """Return what is there."""
        return self._data.get(self.key(suffix))

    def unknown(self, suffix: str, what: str) -> CannotTell:
        """Return the error for a key whose value this reader can do nothing with."""
        key = self.key(suffix)
        return CannotTell(
            f"{self.name}: {key} {what}, which this version does not read for {self.architecture}; give the original "
            "folder with its config.json.",
            key=key,
        )


def gguf_config(metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], name: str) -> dict[str, Any]:
    """Return the config of the model in a GGUF file.

    Args:
        metadata: The file's key-values (`kvbudget.headers.gguf.GgufFile`).
        shapes: The shape of each tensor by its name, the outermost size first.
        name: What messages call the file.

    Raises:
        CannotTell: The architecture is not known, or a key is missing that sizes it.
        InputError: A key has a value that cannot be.
    """
    architecture = metadata.get("general.architecture")
    row = ARCHITECTURES.get(architecture) if isinstance(architecture, str) and "+" not in architecture else None
    if row is None or not isinstance(architecture, str):
        said = f"{architecture[:40]!r}" if isinstance(architecture, str) else "missing"
        raise CannotTell(
            f"{name}: general.architecture is {said}, and of GGUF architectures this version knows "
            f"{', '.join(sorted(known for known in ARCHITECTURES if '+' not in known))}; give the original folder with "
            "its config.json.",
            key="general.architecture",
        )
    m = _Metadata(metadata, architecture, name)
    experts = m.get("expert_count")
    if experts and row.moe:
        row = ARCHITECTURES[row.moe]
    for suffix in NEEDED:
        m.need(suffix)
    config: dict[str, Any] = {"architectures": [row.name], "model_type": row.model_type, **row.more}
    listed = {"attention.head_count_kv"} if row.plan in ("hybrid", "conv") else set()
    for suffix, key in KEYS:
        if suffix not in listed and (value := m.get(suffix)) is not None:
            config[key] = value
    if experts:
        config[row.experts] = experts
    if row.shared_width and (width := m.get("expert_shared_feed_forward_length")) is not None:
        config[row.shared_width] = width
    config["vocab_size"] = _vocabulary(m, metadata, shapes)
    config["tie_word_embeddings"] = "output.weight" not in shapes
    _heads(m, row, config)
    _switches(row, shapes, config)
    _rope(m, shapes, config)
    _windows(m, config)
    ahead = config.setdefault("num_nextn_predict_layers", 0)
    config["num_hidden_layers"] -= ahead
    if not 0 < config["num_hidden_layers"] <= MAX_LAYERS:
        raise InputError(f"{name}: {m.key('block_count')} leaves no possible number of layers; check the file.")
    if row.plan:
        _PLANS[row.plan](m, config)
    return config


def _vocabulary(m: _Metadata, metadata: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> int:
    embedding = shapes.get("token_embd.weight", ())
    if len(embedding) == 2:  # noqa: PLR2004 - a matrix
        return embedding[0]
    tokens = metadata.get("tokenizer.ggml.tokens")
    return m.get("vocab_size") or getattr(tokens, "length", 0) or m.need("vocab_size")


def _heads(m: _Metadata, row: Architecture, config: dict[str, Any]) -> None:
    """Say what llama.cpp derives: as many KV heads as heads, and heads that divide the hidden size."""
    heads = config.get("num_attention_heads")
    if row.plan in ("mla", "state") or not heads:
        return
    if row.plan not in ("hybrid", "conv"):
        config.setdefault("num_key_value_heads", heads)
    width = config.setdefault("head_dim", config["hidden_size"] // heads)
    if m.get("attention.value_length") not in (None, width):
        raise m.unknown("attention.value_length", "is not attention.key_length")


def _switches(row: Architecture, shapes: Mapping[str, tuple[int, ...]], config: dict[str, Any]) -> None:
    """Say which optional tensors a layer has; of layers that differ, any."""
    suffixes = {name.split(".", 2)[2] for name in shapes if name.startswith("blk.") and name.count(".") > 1}
    config[row.bias] = not suffixes.isdisjoint({"attn_q.bias", "attn_qkv.bias"})
    config["attention_out_bias"] = "attn_output.bias" in suffixes
    config["lm_head_bias"] = "output.bias" in shapes
    config["mlp_bias"] = not suffixes.isdisjoint({"ffn_up.bias", "ffn_down.bias"})
    config["mamba_rms_norm"] = "ssm_norm.weight" in suffixes
    config["use_qk_norm"] = "attn_q_norm.weight" in suffixes


def _rope(m: _Metadata, shapes: Mapping[str, tuple[int, ...]], config: dict[str, Any]) -> None:
    kind, factor = m.raw("rope.scaling.type"), m.raw("rope.scaling.factor")
    original = m.get("rope.scaling.original_context_length")
    if any(name.endswith("rope_factors_long.weight") for name in shapes):
        kind = "longrope"
    if original:
        config["original_max_position_embeddings"] = original
    if not isinstance(kind, str) or kind == "none":
        return
    config["rope_scaling"] = {"rope_type": kind}
    if type(factor) in (int, float):
        config["rope_scaling"]["factor"] = factor
    if original:
        config["rope_scaling"]["original_max_position_embeddings"] = original


def _windows(m: _Metadata, config: dict[str, Any]) -> None:
    """Say which layers have the window, where metadata does and not only the architecture."""
    pattern = m.raw("attention.sliding_window_pattern")
    if isinstance(pattern, tuple):
        config["layer_types"] = ["sliding_attention" if windowed else "full_attention" for windowed in pattern]
        config["layer_types"] = config["layer_types"][: config["num_hidden_layers"]]
    elif type(pattern) is int and pattern > 0:
        config["sliding_window_pattern"] = pattern


def _mla(m: _Metadata, config: dict[str, Any]) -> None:
    """Attention with a latent: whole heads have their widths under keys of their own, since the cache holds none."""
    rope = m.need("rope.dimension_count")
    width = m.get("attention.key_length_mla")
    config["qk_rope_head_dim"] = rope
    config["qk_nope_head_dim"] = (width if width is not None else m.need("attention.key_length")) - rope
    value = m.get("attention.value_length_mla")
    config["v_head_dim"] = value if value is not None else m.need("attention.value_length")
    config["kv_lora_rank"] = m.need("attention.kv_lora_rank")
    config["q_lora_rank"] = m.get("attention.q_lora_rank")
    config["num_key_value_heads"] = config["num_attention_heads"]
    config.pop("head_dim", None)
    if m.get("expert_gating_func") != SIGMOID_GATING:
        config |= {"model_type": WITHOUT_SIGMOID.model_type, "architectures": [WITHOUT_SIGMOID.name]}


def _delta(m: _Metadata, config: dict[str, Any]) -> None:
    layers, every = config["num_hidden_layers"], m.get("full_attention_interval") or FULL_ATTENTION_INTERVAL
    values = m.need("ssm.time_step_rank")
    config["linear_conv_kernel_dim"] = m.need("ssm.conv_kernel")
    config["linear_key_head_dim"] = m.need("ssm.state_size")
    config["linear_num_key_heads"] = m.need("ssm.group_count")
    config["linear_num_value_heads"] = values
    config["linear_value_head_dim"] = _divided(m, "ssm.inner_size", values)
    config["layer_types"] = ["linear_attention" if (i + 1) % every else "full_attention" for i in range(layers)]


def _divided(m: _Metadata, suffix: str, parts: int) -> int:
    whole = m.need(suffix)
    if parts < 1 or whole % parts:
        raise InputError(f"{m.name}: {m.key(suffix)} {whole:,} does not divide into {parts:,}; check the file.")
    return whole // parts


def _hybrid(m: _Metadata, config: dict[str, Any]) -> None:
    _mamba2(m, config)
    heads = m.by_layer("attention.head_count_kv", config["num_hidden_layers"])
    config["layer_types"] = ["attention" if count else "mamba" for count in heads]
    config["num_key_value_heads"] = max(heads)
    config["mamba_expand"] = m.need("ssm.inner_size") / config["hidden_size"]


def _parallel(m: _Metadata, config: dict[str, Any]) -> None:
    _mamba2(m, config)
    config["mamba_d_ssm"] = m.need("ssm.inner_size")


def _mamba2(m: _Metadata, config: dict[str, Any]) -> None:
    heads = m.need("ssm.time_step_rank")
    config["mamba_d_conv"] = m.need("ssm.conv_kernel")
    config["mamba_d_state"] = m.need("ssm.state_size")
    config["mamba_n_heads"] = heads
    config["mamba_n_groups"] = m.need("ssm.group_count")
    config["mamba_d_head"] = _divided(m, "ssm.inner_size", heads)


def _conv(m: _Metadata, config: dict[str, Any]) -> None:
    heads = m.by_layer("attention.head_count_kv", config["num_hidden_layers"])
    config["layer_types"] = ["full_attention" if count else "conv" for count in heads]
    config["num_key_value_heads"] = max(heads)
    config["conv_L_cache"] = m.need("shortconv.l_cache")


def _state(m: _Metadata, config: dict[str, Any]) -> None:
    config["conv_kernel"] = m.need("ssm.conv_kernel")
    config["intermediate_size"] = m.need("ssm.inner_size")
    config["state_size"] = m.need("ssm.state_size")
    config["time_step_rank"] = m.need("ssm.time_step_rank")
    config["expand"] = config["intermediate_size"] / config["hidden_size"]
    for key in ("num_attention_heads", "num_key_value_heads", "head_dim"):
        config.pop(key, None)


_PLANS = {
    "mla": _mla,
    "delta": _delta,
    "hybrid": _hybrid,
    "parallel": _parallel,
    "conv": _conv,
    "state": _state,
}
