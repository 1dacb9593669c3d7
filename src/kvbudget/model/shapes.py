"""What a model is made of: layers, what each layer keeps per token or per request, and its weights.

The layer is the unit, because hybrids mix kinds and some models change head sizes from layer to layer.
A layer holds *caches* (what a request leaves on the GPU) and *weights* (what is loaded once). Both are shapes:
bytes follow only when a data type, a quantization and a parallel layout are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kvbudget.facts.formats import dtype_bytes


class Group(Enum):
    """The part of a model a weight belongs to; quantization recipes and parallel layouts act on groups."""

    EMBEDDINGS = "embeddings"
    HEAD = "head"
    ATTENTION = "attention"
    INDEXER = "indexer"
    MLP = "mlp"
    EXPERTS = "experts"
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    NORMS = "norms"
    STATE = "state"
    VISION = "vision"
    AUDIO = "audio"
    MTP = "mtp"


class Split(Enum):
    """How tensor parallelism divides a weight over its ranks (vllm/model_executor/layers/linear.py, 0.32)."""

    REPLICATED = "replicated"
    COLUMN = "column"  # output features; the bias with them
    ROW = "row"  # input features; the bias stays whole
    KV = "kv"  # output features by KV heads; replicated when there are more ranks than heads
    VOCAB = "vocab"  # rows of the vocabulary, padded to 64 a rank
    EXPERT = "expert"  # the expert's width by TP, or whole experts by EP


@dataclass(frozen=True, slots=True)
class Weight:
    """One named module with `out_features` x `in_features` values and `bias` more, `count` times over.

    Args:
        name: Module path inside its layer, in Hugging Face's spelling (``self_attn.q_proj``), so that the
            exclusion lists of quantized checkpoints match it.
        group: The part of the model.
        out_features: Rows; the length for a vector.
        in_features: Columns; 1 for a vector.
        bias: Values of the bias (or of a norm's shift), 0 if there is none.
        count: How many equal copies stand side by side (experts, the blocks of a vision tower).
        linear: A matrix of a linear layer, which quantization formats may pack.
        split: What tensor parallelism does to it.
        heads: The number of heads that a KV split divides; of a tower's layer, those that must divide by the ranks
            for a split to happen at all; 0 elsewhere.
        dtype: A data type that the implementation pins whatever the checkpoint says (``float32``), or None.
        buffer: Stored and loaded like a weight, but not a parameter as people count them (a router's correction bias).
    """

    name: str
    group: Group
    out_features: int
    in_features: int = 1
    bias: int = 0
    count: int = 1
    linear: bool = False
    split: Split = Split.REPLICATED
    heads: int = 0
    dtype: str | None = None
    buffer: bool = False

    @property
    def values(self) -> int:
        """Values in all copies, bias included."""
        return (self.out_features * self.in_features + self.bias) * self.count

    @property
    def parameters(self) -> int:
        """The same as people count parameters: 0 for a buffer."""
        return 0 if self.buffer else self.values

    def plain_bytes(self, own_bytes: int) -> int:
        """Return the bytes of all values if none is packed; a pinned type wins over `own_bytes` a value."""
        return self.values * (dtype_bytes(self.dtype) if self.dtype else own_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Softmax attention that keeps K and V per token: MHA, GQA or MQA.

    `sliding_window` keeps the last so many tokens, `attention_chunk_size` the tokens of the current chunk;
    both None means that the cache grows with the request.
    """

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    sliding_window: int | None = None
    attention_chunk_size: int | None = None

    @property
    def kind(self) -> str:
        """How long it keeps a token: "full", "sliding" or "chunked"."""
        if self.attention_chunk_size is not None:
            return "chunked"
        return "full" if self.sliding_window is None else "sliding"

    @property
    def window(self) -> int | None:
        """Tokens kept by a long request, None if all are."""
        return self.sliding_window if self.attention_chunk_size is None else self.attention_chunk_size


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (MLA): one latent and one rope key per token, on every tensor-parallel rank."""

    num_attention_heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int

    @property
    def kind(self) -> str:
        """The word for it in reports."""
        return "mla"


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexer:
    """The key cache of sparse attention's indexer: one FP8 key of `index_head_dim` and its scales per token.

    Whatever the KV cache type, and on every tensor-parallel rank
    (vllm/models/deepseek_v2.py, DeepseekV32IndexerCache, 0.32: 128 bytes + one float32 scale per 128 values).
    """

    index_head_dim: int

    @property
    def kind(self) -> str:
        """The word for it in reports."""
        return "indexer"


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossAttention:
    """Attention of a decoder to an encoder's output: K and V per encoder token, written once per request."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    encoder_tokens: int

    @property
    def kind(self) -> str:
        """The word for it in reports."""
        return "cross"


class StateTensor(NamedTuple):
    """One tensor of a recurrent state: `shape` values per request.

    Attributes:
        shape: The tensor of one request on one GPU that holds all heads.
        split: The axis that tensor parallelism divides.
        dtype: The type it is kept in, or None for the model's own.
        groups: The n_groups that this axis is made of besides its heads, which are replicated if they do not divide.
    """

    shape: tuple[int, ...]
    split: int = 0
    dtype: str | None = None
    groups: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrentState:
    """Mamba, gated delta net, linear attention, short convolution: constant bytes per request, none per token."""

    kind: str
    tensors: tuple[StateTensor, ...]


Cache = Attention | LatentAttention | Indexer | CrossAttention | RecurrentState


class Layer(NamedTuple):
    """One decoder layer: what it keeps for a request and what it loads.

    `shares_kv` says that it attends to the cache of an earlier layer instead of keeping its own.
    """

    caches: tuple[Cache, ...]
    weights: tuple[Weight, ...]
    shares_kv: bool = False

    @property
    def parameters(self) -> int:
        """Values of all its weights."""
        return sum(weight.parameters for weight in self.weights)


class Tower(NamedTuple):
    """A part outside the decoder stack: a vision or audio encoder with its projector, or a text encoder.

    `loaded` is False for what the checkpoint has behind the feature layer of an encoder and vLLM leaves out.
    """

    name: str
    group: Group
    weights: tuple[Weight, ...]
    loaded: bool = True

    @property
    def parameters(self) -> int:
        """Values of all its weights."""
        return sum(weight.parameters for weight in self.weights)
