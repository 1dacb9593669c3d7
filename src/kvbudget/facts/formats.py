"""Storage formats: how many bytes a value takes, in weights and in the KV cache.

Four tables, each row with its source:

* `DTYPES`: plain data types, spelled as torch and as safetensors spell them.
* `GGML_TYPES`: the tensor types of GGUF files; the file's type numbers are in `GGML_TYPE_IDS`.
* `KV_FORMATS`: what vLLM's ``--kv-cache-dtype`` accepts.
* `WEIGHT_FORMATS`: quantized checkpoints, for people; `kvbudget.model.quantization` computes them.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from kvbudget.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

_TORCH = "torch 2.13, torch.dtype; safetensors 0.8, Dtype"
_GGML = "pypi gguf 0.19.0, GGML_QUANT_SIZES; llama.cpp ggml-common.h"
_VLLM = "vLLM 0.32"


class Format(NamedTuple):
    """A storage layout: `block_elems` values take `block_bytes` bytes, the scales of the block included.

    Attributes:
        name: Its name, e.g. ``bfloat16`` or ``q4_K``.
        block_elems: Values that are stored together.
        block_bytes: What they take.
        source: Where the figures were read.
    """

    name: str
    block_elems: int
    block_bytes: int
    source: str

    @property
    def bits(self) -> float:
        """Bits a value takes, scales included."""
        return 8 * self.block_bytes / self.block_elems

    def bytes_for(self, elems: int) -> int:
        """Return the bytes that `elems` values take.

        Raises:
            ValueError: They do not fill whole blocks.
        """
        blocks, rest = divmod(elems, self.block_elems)
        if rest:
            raise ValueError(f"{elems} values do not fill {self.name} blocks of {self.block_elems}")
        return blocks * self.block_bytes


def _plain(size: int, *names: str, elems: int = 1) -> dict[str, Format]:
    return {name: Format(name=name, block_elems=elems, block_bytes=size, source=_TORCH) for name in names}


DTYPES: Mapping[str, Format] = MappingProxyType(
    {
        **_plain(8, "float64", "int64", "uint64"),
        **_plain(4, "float32", "int32", "uint32"),
        **_plain(2, "float16", "bfloat16", "int16", "uint16"),
        **_plain(1, "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8", "uint8", "bool"),
        **_plain(1, "int4", "uint4", "float4_e2m1fn", elems=2),
    }
)
"""Plain data types; 4-bit ones are packed two a byte."""

DTYPE_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "double": "float64",
        "fp64": "float64",
        "f64": "float64",
        "float": "float32",
        "fp32": "float32",
        "f32": "float32",
        "half": "float16",
        "fp16": "float16",
        "f16": "float16",
        "bf16": "bfloat16",
        "fp8": "float8_e4m3fn",
        "fp8_e4m3": "float8_e4m3fn",
        "f8_e4m3": "float8_e4m3fn",
        "float8_e4m3": "float8_e4m3fn",
        "float8_e4m3fnuz": "float8_e4m3fn",
        "fp8_e5m2": "float8_e5m2",
        "f8_e5m2": "float8_e5m2",
        "float8_e5m2fnuz": "float8_e5m2",
        "f8_e8m0": "float8_e8m0fnu",
        "e8m0": "float8_e8m0fnu",
        "fp4": "float4_e2m1fn",
        "f4": "float4_e2m1fn",
        "i64": "int64",
        "i32": "int32",
        "i16": "int16",
        "i8": "int8",
        "i4": "int4",
        "u64": "uint64",
        "u32": "uint32",
        "u16": "uint16",
        "u8": "uint8",
        "byte": "uint8",
    }
)
"""Other spellings, in lower case: shorthand, vLLM's ``--dtype`` and the headers of safetensors files."""


def dtype(name: str) -> Format:
    """Return the data type called `name`: ``torch.bfloat16``, ``bf16``, ``half``, ``F8_E4M3``, ``int4``.

    Raises:
        InputError: Nothing is known by that name.
    """
    key = name.strip().lower().removeprefix("torch.")
    found = DTYPES.get(DTYPE_ALIASES.get(key, key))
    if found is None:
        shown = name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"
        raise InputError(f"Data type {shown!r} is not known; use one of {', '.join(DTYPES)}.")
    return found


_SHOWN = 40


def dtype_bytes(name: str) -> int:
    """Return the bytes of one value of the data type called `name`.

    Raises:
        InputError: Nothing is known by that name, or a value takes less than a byte.
    """
    found = dtype(name)
    if found.block_elems != 1:
        raise InputError(
            f"Data type {found.name} packs {found.block_elems} values a byte; use one that takes whole bytes."
        )
    return found.block_bytes


_GGML_ROWS = (
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (9, "q8_1", 32, 36),
    (10, "q2_K", 256, 84),
    (11, "q3_K", 256, 110),
    (12, "q4_K", 256, 144),
    (13, "q5_K", 256, 176),
    (14, "q6_K", 256, 210),
    (15, "q8_K", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 64, 36),
    (41, "q1_0", 128, 18),
    (42, "q2_0", 64, 18),
)
"""The type's number in the file, its name in llama.cpp, values a block, bytes a block."""

GGML_TYPES: Mapping[str, Format] = MappingProxyType(
    {name: Format(name=name, block_elems=elems, block_bytes=size, source=_GGML) for _, name, elems, size in _GGML_ROWS}
)
"""Tensor types of GGUF files by llama.cpp's name; numbers 4, 5, 31-33 and 36-38 were withdrawn."""

GGML_TYPE_IDS: Mapping[int, str] = MappingProxyType({number: name for number, name, _, _ in _GGML_ROWS})
"""The name of the tensor type that a GGUF file writes as a number."""


class KvFormat(NamedTuple):
    """How vLLM stores the K and the V of one KV head for one token.

    Attributes:
        name: The value of ``--kv-cache-dtype``.
        source: Where the rule was read.
        key_bits: Bits of one value of K.
        value_bits: Bits of one value of V.
        group: Values that share a one-byte scale of their own, 0 if none do.
        key_extra: Bytes a K row carries besides (scale, norm).
        value_extra: Bytes a V row carries besides (scale, zero point).
        even: Whether K and V together are padded to an even number of bytes.
        latent_bytes: Bytes a token's latent row takes in layouts made for one latent shape only, else None.
        per_head: Whether it stores K and V heads; the others hold latent rows only.
        per_latent: Whether it stores latent rows (MLA).
    """

    name: str
    source: str
    key_bits: int
    value_bits: int
    group: int = 0
    key_extra: int = 0
    value_extra: int = 0
    even: bool = False
    latent_bytes: int | None = None
    per_head: bool = True
    per_latent: bool = False

    def head_bytes(self, head_dim: int, v_head_dim: int) -> int:
        """Return the bytes of K and V of one KV head for one token.

        Raises:
            InputError: The format holds no heads, or a head does not fill its groups.
        """
        if not self.per_head:
            raise InputError(f"--kv-cache-dtype {self.name} holds latent rows only; choose another for this model.")
        size = self._row(head_dim, self.key_bits) + self.key_extra
        size += self._row(v_head_dim, self.value_bits) + self.value_extra
        return size + size % 2 if self.even else size

    def latent_row_bytes(self, kv_lora_rank: int, qk_rope_head_dim: int) -> int:
        """Return the bytes of one token's latent and rope key (MLA), which every tensor-parallel rank holds.

        Raises:
            InputError: The format holds no latent rows, or not of this shape.
        """
        if not self.per_latent:
            raise InputError(f"--kv-cache-dtype {self.name} holds no latent rows; choose another for this model.")
        if self.latent_bytes is None:
            return self._row(kv_lora_rank + qk_rope_head_dim, self.key_bits) + self.key_extra
        if (kv_lora_rank, qk_rope_head_dim) != DS_MLA_SHAPE:
            raise InputError(
                f"--kv-cache-dtype {self.name} is laid out for a latent of {DS_MLA_SHAPE[0]} and a rope key of "
                f"{DS_MLA_SHAPE[1]}, found {kv_lora_rank} and {qk_rope_head_dim}; choose another."
            )
        return self.latent_bytes

    def _row(self, dim: int, bits: int) -> int:
        if self.group and dim % self.group:
            raise InputError(
                f"--kv-cache-dtype {self.name} needs heads of a multiple of {self.group} values, found {dim}; "
                "choose another."
            )
        return -(-dim * bits // 8) + (dim // self.group if self.group else 0)


DS_MLA_SHAPE = (512, 64)
"""kv_lora_rank and qk_rope_head_dim that the packed latent layouts are made for (flashmla_sparse.py, vLLM 0.32)."""

_PER_HEAD = f"{_VLLM}, v1/attention/backends/triton_attn.py, customize_spec: one float32 scale a row"
_TURBO = f"{_VLLM}, model_executor/layers/quantization/turboquant/config.py, slot_size_aligned"
_SPEC = f"{_VLLM}, v1/kv_cache_interface.py, AttentionSpec.state_content_size_bytes"
_MLA = f"{_VLLM}, model_executor/layers/attention/mla_attention.py, get_kv_cache_spec"
_DS_FP8 = f"{_MLA}: 512 e4m3 values, 4 float32 scales, 64 bfloat16 rope values"
_DS_NVFP4 = f"{_MLA}: 512 packed 4-bit values, 32 e4m3 scales, 64 e4m3 rope values"
_NVFP4 = f"{_VLLM}, utils/torch_utils.py, nvfp4_kv_cache_full_dim: an e4m3 scale each 16 values"
_ULTRA = f"{_VLLM}, v1/attention/ops/ultraquant/format.py, slot_size: an e8m0 scale each 32 values"


KV_FORMATS: Mapping[str, KvFormat] = MappingProxyType(
    {
        row.name: row
        for row in (
            KvFormat("float32", _SPEC, 32, 32, per_latent=True),
            KvFormat("float16", _SPEC, 16, 16, per_latent=True),
            KvFormat("bfloat16", _SPEC, 16, 16, per_latent=True),
            KvFormat("fp8", _SPEC, 8, 8, per_latent=True),
            KvFormat("fp8_e4m3", _SPEC, 8, 8, per_latent=True),
            KvFormat("fp8_e5m2", _SPEC, 8, 8, per_latent=True),
            KvFormat("fp8_inc", _SPEC, 8, 8, per_latent=True),
            KvFormat("fp8_per_token_head", _PER_HEAD, 8, 8, key_extra=4, value_extra=4),
            KvFormat("int8_per_token_head", _PER_HEAD, 8, 8, key_extra=4, value_extra=4),
            KvFormat("int4_per_token_head", _PER_HEAD, 4, 4, key_extra=4, value_extra=4),
            KvFormat("nvfp4", _NVFP4, 4, 4, group=16),
            KvFormat("nvfp4_4over6", _NVFP4, 4, 4, group=16),
            KvFormat("turboquant_k8v4", _TURBO, 8, 4, value_extra=4, even=True),
            KvFormat("turboquant_4bit_nc", _TURBO, 4, 4, key_extra=2, value_extra=4, even=True),
            KvFormat("turboquant_k3v4_nc", _TURBO, 3, 4, key_extra=2, value_extra=4, even=True),
            KvFormat("turboquant_3bit_nc", _TURBO, 3, 3, key_extra=2, value_extra=4, even=True),
            KvFormat("ultraquant_4bit", _ULTRA, 4, 4, group=32),
            KvFormat("fp8_ds_mla", _DS_FP8, 8, 8, latent_bytes=656, per_head=False, per_latent=True),
            KvFormat("nvfp4_ds_mla", _DS_NVFP4, 4, 4, latent_bytes=352, per_head=False, per_latent=True),
        )
    }
)
"""vLLM's KV cache types but ``auto``; per-tensor fp8 has a few scales a layer and none per token.

TurboQuant leaves the first and the last two layers of dense models unquantized (turboquant/config.py,
get_boundary_skip_layers), which is the engine's business and not the row's.
"""


def kv_format(name: str) -> KvFormat:
    """Return the KV cache type called `name`, e.g. ``fp8`` or ``int8_per_token_head``.

    Raises:
        InputError: Nothing is known by that name.
    """
    key = name.strip().lower()
    found = KV_FORMATS.get(key) or KV_FORMATS.get(DTYPE_ALIASES.get(key.removeprefix("torch."), ""))
    if found is None:
        shown = name if len(name) <= _SHOWN else name[: _SHOWN - 1] + "…"
        raise InputError(f"KV cache type {shown!r} is not known; use one of auto, {', '.join(KV_FORMATS)}.")
    return found


class WeightFormat(NamedTuple):
    """One quantized weight format, as `kvbudget formats` shows it.

    Attributes:
        family: The tool or the layout, e.g. ``GPTQ``.
        name: The variant, e.g. ``4-bit, groups of 128``.
        bits: Bits a value as text; `in` stands for the input features of the matrix.
        formula: What the bits are made of.
        keeps: What stays in the checkpoint's own type unless the config says otherwise.
        checked: A published file that the formula was held against, "" if none.
        source: Where the layout was read.
    """

    family: str
    name: str
    bits: str
    formula: str
    keeps: str
    checked: str
    source: str


_LLM_BLOCKS = "embeddings, lm_head, norms, routers, vision and audio towers"
_LISTED = "embeddings, norms, routers; lm_head, vision and the rest by the config's list"

WEIGHT_FORMATS: tuple[WeightFormat, ...] = (
    WeightFormat(
        "GPTQ",
        "4-bit, groups of 128",
        "4.15625",
        "4 + 16/128 scale (fp16) + 4/128 packed zero point; besides 4 bytes g_idx an input row",
        _LLM_BLOCKS,
        "MythoMax-L2-13B -0.06 % (its AutoGPTQ wrote all-zero biases)",
        "vLLM 0.32 auto_gptq.py; AutoGPTQ QuantLinear",
    ),
    WeightFormat(
        "GPTQ",
        "4-bit, one group",
        "4 + 20/in",
        "one scale and zero point an output row; besides g_idx",
        _LLM_BLOCKS,
        "Wizard-Vicuna-30B -0.07 %",
        "vLLM 0.32 auto_gptq.py; AutoGPTQ QuantLinear",
    ),
    WeightFormat(
        "GPTQ",
        "3-bit, one group",
        "3 + 19/in",
        "one scale and zero point an output row; besides g_idx",
        _LLM_BLOCKS,
        "Genz-70B -0.05 %",
        "AutoGPTQ QuantLinear; vLLM 0.32 refuses it",
    ),
    WeightFormat(
        "AWQ",
        "4-bit, groups of 128",
        "4.15625",
        "4 + 16/128 scale (fp16) + 4/128 packed zero point, no g_idx",
        _LLM_BLOCKS,
        "Qwen3-8B-AWQ -0.006 %",
        "vLLM 0.32 auto_awq.py",
    ),
    WeightFormat(
        "bitsandbytes",
        "LLM.int8",
        "8 + 32/in",
        "int8 + float32 scale an output row + 1 byte a matrix",
        "embeddings, lm_head, norms",
        "Llama-3.1-8B exact",
        "transformers 5.24 quantizer_bnb_8bit.py",
    ),
    WeightFormat(
        "bitsandbytes",
        "nf4 / fp4, blocks of 64",
        "4.5",
        "4 + 32/64 float32 absmax",
        "embeddings, lm_head, norms",
        "",
        "bitsandbytes 0.50.2 functional.py",
    ),
    WeightFormat(
        "bitsandbytes",
        "nf4 / fp4, double quantization",
        "4.127",
        "4 + 8/64 uint8 absmax + 32/(64 x 256)",
        "embeddings, lm_head, norms",
        "",
        "bitsandbytes 0.50.2 functional.py",
    ),
    WeightFormat(
        "FP8",
        "per tensor",
        "8",
        "a float32 scale a matrix, and one for its input if static",
        _LISTED,
        "",
        "vLLM 0.32 fp8.py, modelopt.py KFp8StaticTensor",
    ),
    WeightFormat(
        "FP8",
        "per channel",
        "8 + 16/in",
        "a scale an output row, in the checkpoint's own type (float32 in FBGEMM and ModelOpt)",
        _LISTED,
        "Llama-4-Scout FP8: number of scales exact",
        "compressed-tensors 0.17 naive_quantized",
    ),
    WeightFormat(
        "FP8",
        "blocks of 128 x 128",
        "8.00195",
        "8 + 32/16384 float32 scale; 1-byte scales in DeepSeek-V4",
        "embeddings, lm_head, norms, routers; the rest by the config's list",
        "DeepSeek-R1 with MTP -0.002 %",
        "vLLM 0.32 fp8.py",
    ),
    WeightFormat(
        "MXFP8",
        "groups of 32",
        "8.25",
        "8 + 8/32 e8m0 scale",
        _LISTED,
        "",
        "vLLM 0.32 modelopt.py KMxfp8Static",
    ),
    WeightFormat(
        "INT8",
        "W8A8, per channel",
        "8 + 16/in",
        "a scale an output row, in the checkpoint's own type",
        _LISTED,
        "",
        "compressed-tensors 0.17 naive_quantized",
    ),
    WeightFormat(
        "INT4",
        "compressed-tensors, groups of 32",
        "4.5",
        "4 + 16/32 scale; besides 16 bytes of shape a matrix",
        _LISTED,
        "Kimi-K2.5 within 0.01 %",
        "compressed-tensors 0.17 pack_quantized",
    ),
    WeightFormat(
        "INT4",
        "compressed-tensors, groups of 128",
        "4.125",
        "4 + 16/128 scale (4.15625 with zero points)",
        _LISTED,
        "",
        "compressed-tensors 0.17 pack_quantized",
    ),
    WeightFormat(
        "MXFP4",
        "groups of 32",
        "4.25",
        "4 + 8/32 e8m0 scale",
        "everything but the experts",
        "gpt-oss-20b exact",
        "vLLM 0.32 mxfp4.py",
    ),
    WeightFormat(
        "NVFP4",
        "groups of 16",
        "4.5",
        "4 + 8/16 e4m3 scale; besides 2 float32 a matrix",
        _LISTED,
        "Qwen3-235B: number of stored values exact",
        "vLLM 0.32 modelopt.py KNvfp4Static",
    ),
    WeightFormat(
        "MLX",
        "affine 4-bit, groups of 64",
        "4.5",
        "4 + 16/64 scale + 16/64 bias",
        "norms; embeddings and lm_head are packed too",
        "Qwen3-14B and the text part of Mistral-Small-4-119B exact",
        "mlx nn.quantize; transformers 5.24 metal_quantization.py",
    ),
    WeightFormat(
        "HQQ",
        "4-bit, groups of 64",
        "4.5",
        "4 + 16/64 scale + 16/64 zero point (measured)",
        "embeddings, lm_head, norms",
        "",
        "hqq 0.2.8",
    ),
    WeightFormat(
        "EXL3",
        "K bits",
        "K + 16/in + 16/out",
        "trellis and two sign vectors; the head has its own bits",
        "embeddings, norms",
        "",
        "exllamav3",
    ),
    WeightFormat(
        "EXL2",
        "target average",
        "by name",
        "2 to 8 bits mixed; the file's name states the average",
        "embeddings",
        "",
        "exllamav2",
    ),
)
"""Formats of quantized checkpoints. HQQ, EXL2 and EXL3 are listed for people; `kvbudget.model.quantization` refuses
them."""
