"""Encoder-decoder models: a decoder whose layers also attend to an encoder's output.

Sources are transformers 5.24's classes (``models/t5``, ``bart``, ``mbart``, ``pegasus``, ``m2m_100``, ``whisper``,
``mllama``) and, for Whisper's splits, vLLM 0.32's ``whisper.py``; that vLLM serves none of the others, and their
splits are those that its linear layers would have. A tied embedding is counted once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kvbudget.errors import CannotTell, InputError
from kvbudget.facts.tower_defaults import TOWER_DEFAULTS
from kvbudget.model import build
from kvbudget.model.config import MAX_LAYERS, Config
from kvbudget.model.shapes import Attention, CrossAttention, Group, Layer, Split, Tower, Weight

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderDecoder:
    """An encoder-decoder model as shapes.

    Args:
        layers: The decoder's layers; equal ones are the same object.
        outside: The decoder's embeddings, its final norm, and the output head unless it is tied.
        towers: The encoder. That of an audio model is a tower of the group AUDIO; a text encoder's weights keep
            groups of their own under a tower of the group ATTENTION; mllama has its vision towers.
        prefix: Where the layers stand in the checkpoint.
        max_position_embeddings: The decoder's longest sequence.
        encoder_tokens: What the cross-attention of one request keeps; see `read_encoder_decoder`.
    """

    layers: tuple[Layer, ...]
    outside: tuple[Weight, ...]
    towers: tuple[Tower, ...]
    prefix: str
    hidden_size: int
    num_attention_heads: int
    vocab_size: int
    max_position_embeddings: int
    encoder_tokens: int
    tied: bool


def read_encoder_decoder(c: Config, top: Config | None = None) -> EncoderDecoder:
    """Return the shapes of an encoder-decoder model.

    The cross-attention keeps K and V of the whole encoder output, whose length is a property of the input. It is
    taken at its largest: Whisper's `max_source_positions` (1,500 for 30 s), the positions of a text encoder
    (`max_position_embeddings`; T5 has relative positions and no limit of its own, so its published training length
    `n_positions`, 512, stands in and is remembered as an assumption), one image with all its tiles for mllama.
    A shorter prompt keeps proportionally less in transformers; vLLM reserves the largest for Whisper.

    Args:
        c: The config of the language part: the whole config, or the nested text config of mllama.
        top: The whole config, if `c` is a nested one.

    Raises:
        CannotTell: The model type is none of those above, or a size is missing.
        InputError: A value cannot be read.
    """
    top = top or c
    model_type = c.text("model_type") or top.text("model_type") or ""
    reader = _READERS.get(model_type)
    if reader is None:
        raise CannotTell(
            f"{c.name('model_type')} {model_type!r} is an encoder-decoder model whose weights this version of kvbudget "
            f"does not know; known are {', '.join(sorted(_READERS))}.",
            key=c.name("model_type"),
        )
    return reader(c, top)


def read_mllama_text(c_text: Config, encoder_tokens: int) -> EncoderDecoder:
    """Return the language part of Llama 3.2 Vision: some of its layers attend to the image and to nothing else.

    Args:
        c_text: The nested text config.
        encoder_tokens: What the vision tower gives for one image; see `mllama_encoder_tokens`.
    """
    c = c_text
    width, heads, count = (
        c.dim("hidden_size"),
        c.dim("num_attention_heads"),
        c.dim("num_hidden_layers", maximum=MAX_LAYERS),
    )
    if width % heads:
        raise InputError(
            f"{c.name('num_attention_heads')} is {heads}, which does not divide hidden_size {width}; check the config."
        )
    keys, head = c.dim("num_key_value_heads"), width // heads
    crossed = c.integers("cross_attention_layers")
    if crossed is None:
        raise CannotTell(
            f"{c.name('cross_attention_layers')} is missing, so which layers keep the image's K and V is unknown; "
            "add it to the config.",
            key=c.name("cross_attention_layers"),
        )
    norms = [build.vector(f"{name}_layernorm", width) for name in ("input", "post_attention")]
    mlp = _swiglu("mlp", width, c.dim("intermediate_size"))
    plain = Layer(
        caches=(Attention(num_attention_heads=heads, num_key_value_heads=keys, head_dim=head, v_head_dim=head),),
        weights=(*_grouped("self_attn", width, heads, keys, head), *mlp, *norms),
    )
    cross = Layer(
        caches=(
            CrossAttention(
                num_attention_heads=heads, num_key_value_heads=keys, head_dim=head, encoder_tokens=encoder_tokens
            ),
        ),
        weights=(
            *_grouped("cross_attn", width, heads, keys, head),
            *(build.vector(f"cross_attn.{name}_norm", head) for name in "qk"),
            *mlp,
            *norms,
            *(build.vector(f"cross_attn_{name}_gate", 1) for name in ("attn", "mlp")),
        ),
    )
    vocab = c.dim("vocab_size")
    return EncoderDecoder(
        layers=tuple(cross if i in crossed else plain for i in range(count)),
        outside=(
            # Eight rows more than the head has (mllama/modeling_mllama.py): the image token is among them.
            build.vocabulary("language_model.model.embed_tokens", Group.EMBEDDINGS, vocab + 8, width),
            build.vector("language_model.model.norm", width),
            build.vocabulary("language_model.lm_head", Group.HEAD, vocab, width, linear=True),
        ),
        towers=(),
        prefix="language_model.model.layers",
        hidden_size=width,
        num_attention_heads=heads,
        vocab_size=vocab,
        max_position_embeddings=c.dim("max_position_embeddings"),
        encoder_tokens=encoder_tokens,
        tied=False,
    )


def mllama_encoder_tokens(top: Config) -> int:
    """Return the tokens that mllama's vision tower gives for one image: all tiles, each with a class token."""
    defaults = TOWER_DEFAULTS["mllama_vision_model"]
    v = top.sub("vision_config", defaults=defaults)
    if v is None:
        v = Config({}, path=f"{top.path}vision_config.", defaults=defaults, nested=True, assumed=top.assumed)
    return v.dim("max_num_tiles") * ((v.dim("image_size") // v.dim("patch_size")) ** 2 + 1)


def _mllama(c: Config, top: Config) -> EncoderDecoder:
    """Llama 3.2 Vision with its vision tower."""
    from kvbudget.model.towers import read_towers  # noqa: PLC0415 - text models do not pay for it

    text = read_mllama_text(c, mllama_encoder_tokens(top))
    fields = {name: getattr(text, name) for name in EncoderDecoder.__slots__}
    return EncoderDecoder(**{**fields, "towers": read_towers(top, text.hidden_size)})


def _swiglu(at: str, width: int, inner: int) -> tuple[Weight, ...]:
    return (
        *(build.linear(f"{at}.{name}_proj", Group.MLP, width, inner, split=Split.COLUMN) for name in ("gate", "up")),
        build.linear(f"{at}.down_proj", Group.MLP, inner, width, split=Split.ROW),
    )


def _grouped(at: str, width: int, heads: int, keys: int, head: int) -> tuple[Weight, ...]:
    return (
        build.linear(f"{at}.q_proj", Group.ATTENTION, width, heads * head, split=Split.COLUMN),
        build.linear(f"{at}.k_proj", Group.ATTENTION, width, keys * head, split=Split.KV, heads=keys),
        build.linear(f"{at}.v_proj", Group.ATTENTION, width, keys * head, split=Split.KV, heads=keys),
        build.linear(f"{at}.o_proj", Group.ATTENTION, heads * head, width, split=Split.ROW),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """Lists the weights of one post-norm or pre-norm block in Bart's naming; `group` overrides all groups."""

    width: int
    group: Group | None = None
    key_bias: bool = True

    def of(self, group: Group) -> Group:
        return self.group or group

    def norm(self, name: str) -> Weight:
        return build.vector(name, self.width, group=self.of(Group.NORMS), bias=True)

    def attention(self, at: str) -> tuple[Weight, ...]:
        """Query, key, value and output with biases; where keys have none, vLLM keeps one of zeros."""
        group = self.of(Group.ATTENTION)
        weights = [
            build.linear(
                f"{at}.{name}_proj",
                group,
                self.width,
                self.width,
                bias=self.key_bias or name != "k",
                split=Split.COLUMN,
            )
            for name in "qkv"
        ]
        weights.append(build.linear(f"{at}.out_proj", group, self.width, self.width, bias=True, split=Split.ROW))
        if not self.key_bias:
            zeros = build.vector(f"{at}.k_proj.bias", self.width, group=group, split=Split.COLUMN, buffer=True)
            weights.append(zeros)
        return tuple(weights)

    def mlp(self, inner: int) -> tuple[Weight, ...]:
        group = self.of(Group.MLP)
        return (
            build.linear("fc1", group, self.width, inner, bias=True, split=Split.COLUMN),
            build.linear("fc2", group, inner, self.width, bias=True, split=Split.ROW),
        )

    def encoder(self, inner: int) -> tuple[Weight, ...]:
        return (
            *self.attention("self_attn"),
            self.norm("self_attn_layer_norm"),
            *self.mlp(inner),
            self.norm("final_layer_norm"),
        )

    def decoder(self, inner: int) -> tuple[Weight, ...]:
        return (
            *self.attention("self_attn"),
            self.norm("self_attn_layer_norm"),
            *self.attention("encoder_attn"),
            self.norm("encoder_attn_layer_norm"),
            *self.mlp(inner),
            self.norm("final_layer_norm"),
        )


def _caches(heads: int, head: int, encoder_tokens: int) -> tuple[Attention, CrossAttention]:
    return (
        Attention(num_attention_heads=heads, num_key_value_heads=heads, head_dim=head, v_head_dim=head),
        CrossAttention(
            num_attention_heads=heads, num_key_value_heads=heads, head_dim=head, encoder_tokens=encoder_tokens
        ),
    )


def _head_dim(c: Config, key: str, width: int) -> tuple[int, int]:
    """Return (heads, their width).

    Raises:
        InputError: The heads do not divide the width.
    """
    heads = c.dim(key)
    if width % heads:
        raise InputError(f"{c.name(key)} is {heads}, which does not divide d_model {width}; check the config.")
    return heads, width // heads


def _repeated(weights: Sequence[Weight], at: str, count: int) -> tuple[Weight, ...]:
    """Return the weights of `count` equal blocks of a tower."""
    return tuple(replace(weight, name=f"{at}.*.{weight.name}", count=weight.count * count) for weight in weights)


def _whisper(c: Config, top: Config) -> EncoderDecoder:
    """Whisper: an encoder over mel bins, all of it of the group AUDIO."""
    del top
    width, vocab = c.dim("d_model"), c.dim("vocab_size")
    heads, head = _head_dim(c, "decoder_attention_heads", width)
    source, target = c.dim("max_source_positions"), c.dim("max_target_positions")
    audio, block = _Block(width=width, group=Group.AUDIO, key_bias=False), _Block(width=width, key_bias=False)
    blocks = audio.encoder(c.dim("encoder_ffn_dim"))
    encoder = (
        build.convolution("conv1", Group.AUDIO, width, c.dim("num_mel_bins"), 3, bias=True),
        build.convolution("conv2", Group.AUDIO, width, width, 3, bias=True),
        build.table("embed_positions", source, width, group=Group.AUDIO),
        *_repeated(blocks, "layers", c.dim("encoder_layers", maximum=MAX_LAYERS)),
        audio.norm("layer_norm"),
    )
    layer = Layer(caches=_caches(heads, head, source), weights=block.decoder(c.dim("decoder_ffn_dim")))
    tied = c.flag("tie_word_embeddings", default=True)
    # vLLM holds Whisper's embedding whole on every rank (whisper.py, WhisperDecoder).
    outside = [
        build.table("model.decoder.embed_tokens", vocab, width),
        build.table("model.decoder.embed_positions", target, width),
        block.norm("model.decoder.layer_norm"),
    ]
    if not tied:
        outside.append(build.vocabulary("proj_out", Group.HEAD, vocab, width, linear=True))
    return EncoderDecoder(
        layers=(layer,) * c.dim("decoder_layers", maximum=MAX_LAYERS),
        outside=tuple(outside),
        towers=(Tower(name="model.encoder", group=Group.AUDIO, weights=encoder),),
        prefix="model.decoder.layers",
        hidden_size=width,
        num_attention_heads=heads,
        vocab_size=vocab,
        max_position_embeddings=target,
        encoder_tokens=source,
        tied=tied,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BartTraits:
    """What tells Bart's relatives apart.

    Args:
        offset: Rows of the position table beyond the positions, None if positions are computed.
        embedding_norm: A norm behind the embeddings.
        final_norm: A norm behind the last layer.
        logits_bias: A buffer of zeros that the class with an output head adds to the logits.
    """

    offset: int | None
    embedding_norm: bool
    final_norm: bool
    logits_bias: bool = True

    def around(self, block: _Block, positions: int, at: str = "") -> tuple[Weight, ...]:
        """Return the weights around the layers of either stack."""
        weights = []
        if self.offset is not None:
            weights.append(build.table(f"{at}embed_positions", positions + self.offset, block.width))
        if self.embedding_norm:
            weights.append(block.norm(f"{at}layernorm_embedding"))
        if self.final_norm:
            weights.append(block.norm(f"{at}layer_norm"))
        return tuple(weights)


_BART_TRAITS: Mapping[str, _BartTraits] = {
    "bart": _BartTraits(offset=2, embedding_norm=True, final_norm=False),
    "mbart": _BartTraits(offset=2, embedding_norm=True, final_norm=True),
    "pegasus": _BartTraits(offset=0, embedding_norm=False, final_norm=True),
    "marian": _BartTraits(offset=0, embedding_norm=False, final_norm=False),
    "m2m_100": _BartTraits(offset=None, embedding_norm=False, final_norm=True, logits_bias=False),
}
"""transformers 5.24, models/*/modeling_*.py."""


def _bart(c: Config, top: Config) -> EncoderDecoder:
    """Bart and its relatives; NLLB is an M2M-100."""
    del top
    model_type = c.text("model_type") or ""
    traits, width, vocab = _BART_TRAITS[model_type], c.dim("d_model"), c.dim("vocab_size")
    if c.integer("decoder_vocab_size") not in {None, vocab} or not c.flag(
        "share_encoder_decoder_embeddings", default=True
    ):
        raise CannotTell(
            f"{c.name('decoder_vocab_size')} announces separate vocabularies, which are not known; "
            "only models that share one embedding are.",
            key=c.name("decoder_vocab_size"),
        )
    heads, head = _head_dim(c, "decoder_attention_heads", width)
    positions, block = c.dim("max_position_embeddings"), _Block(width=width)
    layer = Layer(caches=_caches(heads, head, positions), weights=block.decoder(c.dim("decoder_ffn_dim")))
    blocks = block.encoder(c.dim("encoder_ffn_dim"))
    encoder = (
        *traits.around(block, positions),
        *_repeated(blocks, "layers", c.dim("encoder_layers", maximum=MAX_LAYERS)),
    )
    tied = c.flag("tie_word_embeddings", default=True)
    outside = [
        build.vocabulary("model.shared", Group.EMBEDDINGS, vocab, width),
        *traits.around(block, positions, "model.decoder."),
    ]
    if not tied:
        outside.append(build.vocabulary("lm_head", Group.HEAD, vocab, width, linear=True))
    architectures = c.data.get("architectures")
    with_head = isinstance(architectures, list) and any(
        str(name).endswith(("ForConditionalGeneration", "MTModel")) for name in architectures
    )
    if traits.logits_bias and with_head:
        outside.append(build.vector("final_logits_bias", vocab, group=Group.HEAD, buffer=True))
    return EncoderDecoder(
        layers=(layer,) * c.dim("decoder_layers", maximum=MAX_LAYERS),
        outside=tuple(outside),
        towers=(Tower(name="model.encoder", group=Group.ATTENTION, weights=encoder),),
        prefix="model.decoder.layers",
        hidden_size=width,
        num_attention_heads=heads,
        vocab_size=vocab,
        max_position_embeddings=positions,
        encoder_tokens=positions,
        tied=tied,
    )


T5_DEFAULTS: Mapping[str, Any] = {
    "relative_attention_num_buckets": 32,
    "feed_forward_proj": "relu",
    "n_positions": 512,
}
"""transformers 5.24, models/t5/configuration_t5.py; `n_positions` as the published T5 configs state it."""


def _t5(c: Config, top: Config) -> EncoderDecoder:
    """T5 and its relatives: relative positions, in the first block only or (UMT5) in all."""
    del top
    model_type = c.text("model_type") or ""
    gated = "gated-gelu" if model_type != "t5" else "relu"
    c = c.extended({}, {**T5_DEFAULTS, "feed_forward_proj": gated, **c.defaults})
    width, vocab, heads, head = c.dim("d_model"), c.dim("vocab_size"), c.dim("num_heads"), c.dim("d_kv")
    inner, is_gated = c.dim("d_ff"), (c.text("feed_forward_proj") or "").startswith("gated-")
    buckets, length = c.count("relative_attention_num_buckets", minimum=1), c.count("n_positions", minimum=1)
    bias = build.table("layer.0.SelfAttention.relative_attention_bias", buckets, heads, group=Group.ATTENTION)
    everywhere = model_type == "umt5"
    caches = _caches(heads, head, length)

    def block(number: int, *, decoder: bool) -> tuple[Weight, ...]:
        weights = [
            *_t5_attention("layer.0.SelfAttention", width, heads * head),
            build.vector("layer.0.layer_norm", width),
        ]
        if everywhere or number == 0:
            weights.append(bias)
        if decoder:
            weights += _t5_attention("layer.1.EncDecAttention", width, heads * head)
            weights.append(build.vector("layer.1.layer_norm", width))
        at = f"layer.{2 if decoder else 1}"
        ups = ("wi_0", "wi_1") if is_gated else ("wi",)
        for name in ups:
            weights.append(build.linear(f"{at}.DenseReluDense.{name}", Group.MLP, width, inner, split=Split.COLUMN))
        weights.append(build.linear(f"{at}.DenseReluDense.wo", Group.MLP, inner, width, split=Split.ROW))
        weights.append(build.vector(f"{at}.layer_norm", width))
        return tuple(weights)

    depth = c.dim("num_layers", maximum=MAX_LAYERS)
    decoders = c.integer("num_decoder_layers", minimum=1, maximum=MAX_LAYERS) or depth
    first, later = (Layer(caches=caches, weights=block(i, decoder=True)) for i in range(2))
    encoder = [*_repeated(block(0, decoder=False), "block", 1)]
    if depth > 1:
        encoder += _repeated(block(1, decoder=False), "block", depth - 1)
    encoder.append(build.vector("final_layer_norm", width))
    tied = _t5_tied(c, model_type)
    outside = [
        build.vocabulary("shared", Group.EMBEDDINGS, vocab, width),
        build.vector("decoder.final_layer_norm", width),
    ]
    if not tied:
        outside.append(build.vocabulary("lm_head", Group.HEAD, vocab, width, linear=True))
    return EncoderDecoder(
        layers=(first, *(later,) * (decoders - 1)),
        outside=tuple(outside),
        towers=(Tower(name="encoder", group=Group.ATTENTION, weights=tuple(encoder)),),
        prefix="decoder.block",
        hidden_size=width,
        num_attention_heads=heads,
        vocab_size=vocab,
        max_position_embeddings=length,
        encoder_tokens=length,
        tied=tied,
    )


def _t5_attention(at: str, width: int, inner: int) -> tuple[Weight, ...]:
    return (
        *(build.linear(f"{at}.{name}", Group.ATTENTION, width, inner, split=Split.COLUMN) for name in "qkv"),
        build.linear(f"{at}.o", Group.ATTENTION, inner, width, split=Split.ROW),
    )


def _t5_tied(c: Config, model_type: str) -> bool:
    """Whether the head is the embedding, as the config says.

    transformers 5.24 sets the flag to true when it reads a T5 config, yet loads a head of its own where the
    checkpoint has one; the flag in the published config tells the two kinds of checkpoints apart. T5's default is
    tied; MT5 and UMT5, whose published heads are untied, must say it.

    Raises:
        CannotTell: An MT5 or UMT5 config does not say it.
    """
    if model_type != "t5" and not c.has("tie_word_embeddings"):
        raise CannotTell(
            f"{c.name('tie_word_embeddings')} is missing, so whether the output head is a matrix of its own is "
            "unknown; add it to the config.",
            key=c.name("tie_word_embeddings"),
        )
    return c.flag("tie_word_embeddings", default=True)


_READERS: Mapping[str, Callable[[Config, Config], EncoderDecoder]] = {
    "bart": _bart,
    "m2m_100": _bart,
    "marian": _bart,
    "mbart": _bart,
    "mllama": _mllama,
    "mllama_text_model": _mllama,
    "mt5": _t5,
    "pegasus": _bart,
    "t5": _t5,
    "umt5": _t5,
    "whisper": _whisper,
}
"""Model type -> reader."""
