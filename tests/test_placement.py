"""Stored tensors and the weights they hold: whatever a checkpoint calls them, no byte is lost or counted twice."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvbudget as kb
from kvbudget.checkpoint import SAFETENSORS, Checkpoint
from kvbudget.facts.catalogue import MODELS
from kvbudget.headers.tensors import Tensor
from kvbudget.model.shapes import Group
from kvbudget.placement import place_tensors, with_headers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvbudget.facts.catalogue import CatalogueRow
    from kvbudget.model import Model
    from kvbudget.model.stored import Stored

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1280,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 1024,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
MOE = LLAMA | {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "head_dim": 64,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
TOTAL = 2 * (2 * 1024 * 512 + 512 + 2 * (2 * 512 * 512 + 2 * 128 * 512 + 3 * 1280 * 512 + 2 * 512))
"""Bytes of the small Llama in 16 bits, by hand: embeddings and head, the last norm, two layers."""


def model_of(config: dict[str, Any] = LLAMA, **changes: object) -> Model:
    return kb.Model.from_config({**config, **changes})


def half(name: str, *shape: int, dtype: str = "BF16") -> Tensor:
    return Tensor(name, dtype, shape, 2 * prod(shape))


def as_published(model: Model) -> Iterator[Tensor]:
    """Yield the tensors of an unquantized checkpoint, an expert at a time."""
    for _, path, weight in model.weights():
        for number in range(weight.count):
            name = path.replace("*", str(number)) if "*" in path else path if weight.count == 1 else f"{path}.{number}"
            yield half(f"{name}.weight", weight.out_features, weight.in_features)
            if weight.bias:
                yield half(f"{name}.bias", weight.bias)


def placed(model: Model, tensors: Sequence[Tensor]) -> Stored:
    """Place the tensors, and check that no byte is lost."""
    stored = place_tensors(model, tensors, read="headers")
    assert stored.nbytes + sum(t.nbytes for t in tensors if "inv_freq" in t.name) == sum(t.nbytes for t in tensors)
    return stored


LAYER_STYLES: dict[str, tuple[str, dict[str, tuple[int, ...]]]] = {
    "llama": (
        "model.layers.{}.",
        {
            "self_attn.q_proj.weight": (512, 512),
            "self_attn.k_proj.weight": (128, 512),
            "self_attn.v_proj.weight": (128, 512),
            "self_attn.o_proj.weight": (512, 512),
            "mlp.gate_proj.weight": (1280, 512),
            "mlp.up_proj.weight": (1280, 512),
            "mlp.down_proj.weight": (512, 1280),
            "input_layernorm.weight": (512,),
            "post_attention_layernorm.weight": (512,),
        },
    ),
    "phi3, joined": (
        "language_model.model.layers.{}.",
        {
            "self_attn.qkv_proj.weight": (768, 512),
            "self_attn.o_proj.weight": (512, 512),
            "mlp.gate_up_proj.weight": (2560, 512),
            "mlp.down_proj.weight": (512, 1280),
            "input_layernorm.weight": (512,),
            "post_attention_layernorm.weight": (512,),
        },
    ),
    "internlm2": (
        "model.layers.{}.",
        {
            "attention.wqkv.weight": (768, 512),
            "attention.wo.weight": (512, 512),
            "feed_forward.w1.weight": (1280, 512),
            "feed_forward.w3.weight": (1280, 512),
            "feed_forward.w2.weight": (512, 1280),
            "attention_norm.weight": (512,),
            "ffn_norm.weight": (512,),
        },
    ),
    "chatglm": (
        "transformer.encoder.layers.{}.",
        {
            "self_attention.query_key_value.weight": (768, 512),
            "self_attention.dense.weight": (512, 512),
            "mlp.dense_h_to_4h.weight": (2560, 512),
            "mlp.dense_4h_to_h.weight": (512, 1280),
            "input_layernorm.weight": (512,),
            "post_attention_layernorm.weight": (512,),
        },
    ),
    "GGUF": (
        "blk.{}.",
        {
            "attn_q.weight": (512, 512),
            "attn_k.weight": (128, 512),
            "attn_v.weight": (128, 512),
            "attn_output.weight": (512, 512),
            "ffn_gate.weight": (1280, 512),
            "ffn_up.weight": (1280, 512),
            "ffn_down.weight": (512, 1280),
            "attn_norm.weight": (512,),
            "ffn_norm.weight": (512,),
        },
    ),
    "names nobody knows": (
        "brain.h.{}.",
        {
            "look.abc.weight": (768, 512),
            "look.out.weight": (512, 512),
            "think.in.weight": (2560, 512),
            "think.out.weight": (512, 1280),
            "norm_1.weight": (512,),
            "norm_2.weight": (512,),
        },
    ),
}
OUTSIDE_STYLES = (
    ("model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"),
    ("transformer.wte.weight", "transformer.ln_f.weight", "lm_head.weight"),
    ("token_embd.weight", "output_norm.weight", "output.weight"),
    ("model.tok_embeddings.weight", "model.norm.weight", "output.weight"),
    ("transformer.embedding.word_embeddings.weight", "encoder.final_layernorm.weight", "output_layer.weight"),
    ("gpt_neox.embed_in.weight", "gpt_neox.final_layer_norm.weight", "embed_out.weight"),
)


@pytest.mark.parametrize("outside", OUTSIDE_STYLES, ids=lambda names: names[0])
@pytest.mark.parametrize("style", LAYER_STYLES)
def test_every_spelling_finds_the_same_weights(style: str, outside: tuple[str, str, str]) -> None:
    prefix, shapes = LAYER_STYLES[style]
    tensors = [half(prefix.format(i) + name, *shape) for i in range(2) for name, shape in shapes.items()]
    tensors += [half(outside[0], 1024, 512), half(outside[1], 512), half(outside[2], 1024, 512)]
    model = model_of()
    stored = placed(model, tensors)
    assert stored.notes == ()
    assert stored.nbytes == TOTAL
    assert {group: size // 2 for group, size in stored.bytes_by_group.items()} == model.parameters_by_group()
    assert all(held.plain for held in stored.modules.values())


UNQUANTIZED = [row for row in MODELS if not row.config.get("quantization_config")]


@pytest.mark.parametrize("row", UNQUANTIZED, ids=lambda row: row.name)
def test_what_the_config_describes_is_found_whole(row: CatalogueRow) -> None:
    model = kb.Model.from_config(row.config)
    stored = placed(model, list(as_published(model)))
    assert stored.notes == ()
    decoder = sum(size for group, size in stored.bytes_by_group.items() if group not in (Group.VISION, Group.AUDIO))
    towers = sum(weight.values for tower in model.towers for weight in tower.weights)
    assert decoder == 2 * (sum(weight.values for _, _, weight in model.weights()) - towers)


def quantized(path: str, out: int, inner: int, style: str) -> list[Tensor]:
    """Return the tensors of one matrix as the quantizers write them."""
    if style == "fp8":
        return [
            Tensor(f"{path}.weight", "F8_E4M3", (out, inner), out * inner),
            Tensor(f"{path}.weight_scale_inv", "F32", (out // 128, inner // 128), out * inner // 4096),
        ]
    if style == "gptq":
        return [
            Tensor(f"{path}.qweight", "I32", (inner // 8, out), out * inner // 2),
            Tensor(f"{path}.qzeros", "I32", (inner // 128, out // 8), out * inner // 256),
            Tensor(f"{path}.scales", "F16", (inner // 128, out), out * inner // 64),
            Tensor(f"{path}.g_idx", "I32", (inner,), 4 * inner),
        ]
    return [
        Tensor(f"{path}.weight_packed", "U8", (out, inner // 2), out * inner // 2),
        Tensor(f"{path}.weight_scale", "F8_E4M3", (out, inner // 16), out * inner // 16),
        Tensor(f"{path}.weight_global_scale", "F32", (1,), 4),
        Tensor(f"{path}.input_global_scale", "F32", (1,), 4),
    ]


QUANTIZED = {
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"},
    "gptq": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True},
    "nvfp4": {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"},
                "input_activations": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"},
            }
        },
    },
}


def packed_checkpoint(model: Model, style: str) -> list[Tensor]:
    found: list[Tensor] = []
    for _, path, weight in model.weights():
        if weight.linear and weight.group in (Group.ATTENTION, Group.MLP):
            found += quantized(path, weight.out_features, weight.in_features, style)
        else:
            found.append(half(f"{path}.weight", weight.out_features, weight.in_features))
    return found


@pytest.mark.parametrize("style", QUANTIZED)
def test_headers_and_recipe_agree_to_the_byte(style: str) -> None:
    model = model_of(quantization_config=QUANTIZED[style])
    tensors = packed_checkpoint(model, style)
    stored = placed(model, tensors)
    assert stored.notes == ()
    plain = {path: weight for _, path, weight in model.weights()}
    for path, held in stored.modules.items():
        recipe = model.quantization
        assert recipe is not None
        assert held.nbytes == recipe.weight_bytes(path, plain[path], 2), path
        order = 4 * plain[path].in_features if style == "gptq" and not held.plain else 0
        assert held.nbytes - order == model.held_bytes(path, plain[path], 2), path


@pytest.mark.parametrize("style", QUANTIZED)
def test_headers_win_over_a_config_that_does_not_say_so(style: str) -> None:
    """What is packed counts as packed though no recipe says how, and what is not as it is."""
    model = model_of()
    tensors = packed_checkpoint(model, style)
    silent = with_headers(model, checkpoint(tensors))
    assert sum(silent.held_bytes(path, weight, 2) for _, path, weight in silent.weights()) == sum(
        tensor.nbytes for tensor in tensors
    )
    claimed = model_of(quantization_config=QUANTIZED[style])
    plain = with_headers(claimed, checkpoint(list(as_published(claimed))))
    assert sum(plain.held_bytes(path, weight, 2) for _, path, weight in plain.weights()) == TOTAL


def checkpoint(tensors: Sequence[Tensor]) -> Checkpoint:
    return Checkpoint(
        name="x", source="x", config={}, format=SAFETENSORS, tensors=tuple(tensors), read="headers of 1 file"
    )


def test_joined_experts_and_their_parameters() -> None:
    """gpt-oss keeps all experts of a layer in one tensor for each parameter, without a module's name."""
    model = model_of(MOE)
    tensors = [tensor for tensor in as_published(model) if ".experts." not in tensor.name]
    for i in range(2):
        experts = f"model.layers.{i}.mlp.experts."
        tensors += [
            Tensor(f"{experts}gate_up_proj_blocks", "U8", (4, 512, 16, 16), 4 * 512 * 256),
            Tensor(f"{experts}gate_up_proj_scales", "U8", (4, 512, 16), 4 * 512 * 16),
            Tensor(f"{experts}down_proj_blocks", "U8", (4, 512, 8, 16), 4 * 512 * 128),
            Tensor(f"{experts}down_proj_scales", "U8", (4, 512, 8), 4 * 512 * 8),
            half(f"{experts}down_proj_bias", 4, 512),
        ]
    stored = placed(model, tensors)
    assert stored.notes == ()
    assert stored.bytes_by_group[Group.EXPERTS] == 2 * 4 * 512 * (256 + 16 + 128 + 8 + 2)


def test_a_bias_beside_packed_values_does_not_tell_their_number() -> None:
    """AutoGPTQ keeps `qweight`, whose shape says nothing of the values, and a bias in 16 bits."""
    model = model_of(attention_bias=True)
    path = "model.layers.0.self_attn.q_proj"
    tensors = [tensor for tensor in as_published(model) if not tensor.name.startswith(path)]
    packed = Tensor(f"{path}.qweight", "I32", (64, 512), 4 * 64 * 512)
    assert placed(model, [*tensors, packed, half(f"{path}.bias", 512)]).notes == ()


def test_tables_that_engines_compute_are_not_loaded() -> None:
    model = model_of()
    tables = [Tensor(f"model.layers.{i}.self_attn.rotary_emb.inv_freq", "F32", (32,), 128) for i in range(2)]
    stored = placed(model, [*as_published(model), *tables])
    assert stored.not_loaded_bytes == 256
    assert stored.nbytes == TOTAL
    assert stored.notes == ()


def test_a_tied_head_that_is_stored_is_not_loaded() -> None:
    model = model_of(tie_word_embeddings=True)
    head = half("lm_head.weight", 1024, 512)
    stored = placed(model, [*as_published(model), head])
    assert stored.not_loaded_bytes == head.nbytes
    assert stored.bytes_by_group[Group.HEAD] == head.nbytes
    assert stored.notes == ()


@pytest.mark.parametrize("name", ["model.layers.2.eh_proj.weight", "mtp.layers.0.fc.weight", "model.mtp.0.x.weight"])
def test_layers_behind_the_last_are_multi_token_prediction(name: str) -> None:
    model = model_of()
    stored = placed(model, [*as_published(model), half(name, 512, 1024)])
    assert stored.bytes_by_group[Group.MTP] == 2 * 512 * 1024
    assert stored.notes == ()


def test_what_has_no_place_is_said() -> None:
    model = model_of()
    tensors = [tensor for tensor in as_published(model) if "layers.1.mlp.up_proj" not in tensor.name]
    tensors += [half("vision_tower.layers.0.fc.weight", 512, 512), half("lm_head.weight", 1, 512)]
    notes = " ".join(placed(model, tensors).notes)
    assert '1 of the stored tensors (524,288 bytes) belong to nothing in config.json, such as "vision_tower' in notes
    assert 'no tensor for 1 weights that config.json describes, such as "model.layers.1.mlp.up_proj"' in notes
    assert '"lm_head.weight" holds 524,800 values where config.json describes 524,288' in notes


@pytest.mark.parametrize(
    ("stated", "stored", "served"),
    [(None, "F16", "float16"), (None, "BF16", "bfloat16"), (None, "F32", "float32"), ("float16", "BF16", "float16")],
)
def test_a_config_without_a_type_is_served_as_stored(stated: str | None, stored: str, served: str) -> None:
    model = model_of(torch_dtype=stated)
    tensors = [tensor._replace(dtype=stored) for tensor in as_published(model)]
    assert with_headers(model, checkpoint(tensors)).dtype == served


def test_headers_reach_the_budget() -> None:
    """The same bytes as from the config, by rank, with the source that says where they were read."""
    model = model_of()
    read = with_headers(model, checkpoint(list(as_published(model))))
    for tp in (1, 2):
        by_config, by_header = (
            kb.budget(kb.Deployment(model=each, gpu="H100-SXM-80GB", tensor_parallel_size=tp)) for each in (model, read)
        )
        (config, *_), (header, *_) = by_config.ranks[0].lines, by_header.ranks[0].lines
        assert header.needs_bytes == config.needs_bytes
        assert header.source == "headers of 1 file, bfloat16"
        assert by_header.to_dict()["model"]["stored_bytes"] == TOTAL


WORDS = """
model layers 0 1 7 999999999999 mlp experts self_attn q_proj qkv_proj weight bias visual mtp blk lm_head norm scales
wo é ٣ * # embed_tokens down_proj_blocks
"""
part = st.sampled_from(WORDS.split())
names = st.lists(part, min_size=1, max_size=8).map(".".join)


@given(st.lists(st.tuples(names, st.integers(1, 1 << 20), st.sampled_from(["BF16", "U8", "F32"])), max_size=30))
@settings(deadline=None)
def test_no_name_breaks_it_and_no_byte_is_lost(rows: list[tuple[str, int, str]]) -> None:
    tensors = [Tensor(name, dtype, (size,), size * 2) for name, size, dtype in rows]
    stored = place_tensors(model_of(), tensors, read="headers")
    assert stored.nbytes == sum(tensor.nbytes for tensor in tensors)
    assert sum(held.nbytes for held in stored.modules.values()) <= stored.nbytes


@given(names)
@settings(deadline=None)
def test_a_name_is_read_the_same_twice(name: str) -> None:
    first, second = (place_tensors(model_of(), [half(name, 4, 8)], read="headers") for _ in range(2))
    assert (first.modules, first.bytes_by_group) == (second.modules, second.bytes_by_group)
    assert first.nbytes == 64


@pytest.mark.parametrize("stated", [None, "bfloat16", "torch.float16", "weird", "int4"])
def test_a_sum_of_bytes_refuses_no_type(stated: str | None) -> None:
    """An index tells a sum alone, which is held against the config; the type is checked where it is served."""
    model = model_of(torch_dtype=stated)
    summed = Checkpoint(name="x", source="x", config={}, stored_bytes=TOTAL, read="index")
    stored = with_headers(model, summed).stored
    assert stored is not None
    assert (stored.nbytes, stored.notes) == (TOTAL, ())
