"""What a plain checkpoint would weigh if it were quantized: by vLLM, as a checkpoint, as a GGUF file."""

from __future__ import annotations

import gzip
import json
import os
import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.budgeting import budget
from kvbudget.cli import cli
from kvbudget.deployment import Deployment
from kvbudget.engines import vllm
from kvbudget.errors import CannotTell, InputError
from kvbudget.explain import explain_weights
from kvbudget.facts import gguf_types, what_if
from kvbudget.facts.vllm import NEWEST, OLDEST
from kvbudget.hub import load_model
from kvbudget.model import Model
from kvbudget.model.gguf_mix import Shape, Tensor, tensor_types
from kvbudget.model.stored import Stored

if TYPE_CHECKING:
    from kvbudget.model.quantization import Recipe

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared"))

LLAMA_8B = "llama-3.1-8b"
QWEN3_30B = "qwen3-30b-a3b"


def config(**changes: object) -> dict[str, Any]:
    """Return the config of a small dense model."""
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 4,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "vocab_size": 32000,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        **changes,
    }


@cache
def plain() -> Model:
    """Return a small model that is not quantized."""
    return Model.from_config(config(), name="plain")


@cache
def catalogued(name: str) -> Model:
    """Return a model of the built-in catalogue."""
    return load_model(name)


def recipe_of(model: Model) -> Recipe:
    """Return the recipe of a model that has one."""
    assert model.quantization is not None
    return model.quantization


def stored(model: Model, recipe: Recipe) -> int:
    """Return the bytes of the language model under a recipe, towers apart."""
    towers = ("vision", "audio")
    weights = [(path, weight) for _, path, weight in model.weights() if weight.group.value not in towers]
    return sum(recipe.weight_bytes(path, weight, 2) for path, weight in weights)


def bounds(model: Model, name: str) -> tuple[int, int, int]:
    """Return the least, the best guess and the most that a what-if says."""
    recipe = recipe_of(model.with_quantization(name))
    sizes = [stored(model, each) for each in (recipe, *recipe.variants)]
    return min(sizes), sizes[0], max(sizes)


# -- what vLLM makes while loading


@pytest.mark.parametrize(
    ("name", "quantization", "tp", "experts_whole", "held"),
    [
        (LLAMA_8B, "fp8", 1, False, 9_081_201_152),
        (LLAMA_8B, "fp8_per_tensor", 1, False, 9_081_201_152),
        (LLAMA_8B, "fp8_per_block", 1, False, 9_082_904_576),
        (LLAMA_8B, "fp8_per_channel", 1, False, 9_086_705_664),
        (LLAMA_8B, "mxfp8", 1, False, 9_299_304_448),
        (LLAMA_8B, "mxfp4", 1, False, 5_809_643_520),
        (QWEN3_30B, "fp8", 1, False, 31_154_713_152),
        (QWEN3_30B, "fp8_per_block", 1, False, 31_161_965_568),
        (QWEN3_30B, "fp8_per_channel", 1, False, 31_244_144_640),
        (QWEN3_30B, "mxfp8", 1, False, 32_089_337_856),
        (QWEN3_30B, "mxfp4", 1, False, 17_134_546_944),
        (QWEN3_30B, "experts_int8", 1, False, 32_161_296_384),
        (QWEN3_30B, "int8_per_channel_weight_only", 1, False, 32_161_296_384),
        (QWEN3_30B, "nvfp4_per_token", 1, False, 19_389_689_856),
        (QWEN3_30B, "fp8", 8, False, 3_918_344_768),
        (QWEN3_30B, "fp8", 2, True, 15_583_859_264),
        ("qwen3-next-80b-a3b", "fp8", 1, False, 80_348_742_288),
        ("falcon-7b", "fp8", 1, False, 7_217_490_176),
        ("jamba-v0.1", "fp8", 1, False, 55_064_487_840),
        ("gemma-2-9b", "fp8", 1, False, 10_159_816_352),
        ("llama-3.1-70b", "fp8_per_block", 8, False, 9_086_443_520),
        ("llama-3.2-1b", "fp8", 1, False, 1_498_550_528),
        ("phi-3-mini-4k", "fp8", 1, False, 4_018_280_960),
        ("mixtral-8x7b", "fp8", 1, False, 46_966_253_824),
        ("deepseek-v2-lite", "fp8", 1, False, 16_129_462_920),
        ("deepseek-v2", "fp8", 1, False, 236_839_163_040),
        ("lfm2-8b-a1b", "fp8", 1, False, 8_474_368_040),
        ("whisper-large-v3", "fp8", 1, False, 1_619_221_888),
        ("qwen2.5-vl-7b", "fp8", 1, False, 9_384_516_552),
        ("gemma-3-4b", "fp8", 1, False, 5_248_189_912),
        ("qwen3-vl-235b-a22b", "fp8", 1, False, 236_920_464_408),
        ("qwen3.5-122b-a10b", "fp8", 1, False, 124_133_410_088),
        ("llama-4-maverick", "fp8", 1, False, 403_707_427_584),
    ],
)
def test_loading_holds_what_the_engine_holds(
    name: str, quantization: str, tp: int, experts_whole: bool, held: int
) -> None:
    """As vLLM 0.32's own modules on the meta device, with each method's scales as its process_weights_after_loading."""
    model = catalogued(name).with_quantization(quantization)
    assert vllm.weight_bytes(model, "bfloat16", tp, None, experts_whole) == held


def test_loading_is_exact_and_a_guess_is_not() -> None:
    """The basis of the weights tells arithmetic from a guess."""
    made = budget(Deployment(model=catalogued(LLAMA_8B), gpu="h100", quantization="fp8")).lines[0]
    guess = budget(Deployment(model=catalogued(LLAMA_8B), gpu="h100", quantization="awq")).lines[0]
    assert (made.basis.value, made.low_bytes) == ("exact", made.high_bytes)
    assert guess.basis.value == "estimated"
    assert guess.low_bytes < guess.needs_bytes < guess.high_bytes
    assert "while loading" in made.source
    assert guess.source.startswith("what if: ")


@pytest.mark.parametrize(
    ("version", "says"),
    [
        ("0.12", r"holds all plain weights.* peaks at 14\.9\d GiB"),
        ("0.14.1", r"holds all plain weights.* peaks at more than 14\.9\d GiB"),
        ("0.32", r"layer by layer; loading peaks at most one plain layer \(0\.41 GiB\)"),
    ],
)
def test_the_peak_while_loading_is_told(version: str, says: str) -> None:
    """Until 0.16 the plain weights are on the GPU first."""
    d = Deployment(model=catalogued(LLAMA_8B), gpu="h100", quantization="fp8", engine_version=version)
    assert any(re.search(says, warning) for warning in budget(d).warnings)


@pytest.mark.parametrize(
    ("name", "version", "says"),
    [
        ("fp8_per_block", "0.19", "since 0.20, not in"),
        ("nvfp4_per_token", "0.25.1", "since 0.26, not in"),
        ("ptpc_fp8", "0.32", "no longer has it"),
        ("online", "0.32", "configuration of its own"),
        ("torchao", "0.32", "configuration of its own"),
        ("no-such-method", "0.32", "is not known; choose one of"),
        ("gguf:Q4_K_XL", "0.32", "GGUF file type 'Q4_K_XL' is not known"),
        ("gguf:", "0.32", "GGUF file type '' is not known"),
        ("quark", "0.32", "has no quantization_config, so vLLM would stop"),
    ],
)
def test_what_cannot_be_answered_is_refused(name: str, version: str, says: str) -> None:
    """Names that a version does not have, or that say nothing by themselves."""
    d = Deployment(model=plain(), gpu="h100", quantization=name, engine_version=version)
    with pytest.raises((InputError, CannotTell), match=says):
        budget(d)


@pytest.mark.parametrize("value", [4, b"awq", ["awq"]])
def test_a_name_is_text(value: object) -> None:
    """Anything else is one sentence and no traceback."""
    with pytest.raises(InputError, match="expected text"):
        Deployment(model=plain(), gpu="h100", quantization=value)  # type: ignore[arg-type]


def test_experts_that_are_not_there_are_told() -> None:
    """A method for routed experts leaves a dense model as it is."""
    b = budget(Deployment(model=plain(), gpu="h100", quantization="experts_int8"))
    assert any("this model has none: nothing changes" in warning for warning in b.warnings)
    assert b.lines[0].needs_bytes == budget(Deployment(model=plain(), gpu="h100")).lines[0].needs_bytes


def test_blocks_made_while_loading_need_no_whole_blocks() -> None:
    """A shard of 704 features is no multiple of 128: a checkpoint in blocks is refused, loading is not."""
    made = Model.from_config(config(quantization_config={"quant_method": "fp8", "weight_block_size": [128, 128]}))
    with pytest.raises(InputError, match="in whole blocks of 128"):
        budget(Deployment(model=made, gpu="h100", tensor_parallel_size=4))
    budget(Deployment(model=plain(), gpu="h100", tensor_parallel_size=4, quantization="fp8_per_block"))


def test_mxfp4_is_the_engines_own_since_0_28_and_a_guess_before() -> None:
    """The same name answers another question by version."""
    assert recipe_of(plain().with_quantization("mxfp4", (0, 28, 0))).origin == "loading"
    assert recipe_of(plain().with_quantization("mxfp4", (0, 27, 1))).origin == "imagined"


# -- checkpoints that others made


@pytest.mark.parametrize(
    ("name", "asked", "published", "error"),
    [
        # Index totals and LFS sizes on the hub, read 2026-11.
        ("qwen3-8b", "awq", 6_098_853_560, 0.001),  # Qwen/Qwen3-8B-AWQ
        ("llama-2-13b", "gptq", 7_259_435_192, 0.001),  # TheBloke/MythoMax-L2-13B-GPTQ
        (LLAMA_8B, "bitsandbytes:int8", 9_086_705_888, 0.0),  # meta-llama/Llama-3.1-8B-Instruct in LLM.int8
        ("qwen3-14b", "mlx", 8_307_783_680, 0.0),  # mlx-community/Qwen3-14B-4bit
    ],
)
def test_the_usual_recipe_meets_published_sizes(name: str, asked: str, published: int, error: float) -> None:
    """Checkpoints that were made with the usual recipe."""
    low, best, high = bounds(catalogued(name), asked)
    assert abs(best / published - 1) <= error
    assert low <= published * 1.001
    assert high >= published * 0.999


@pytest.mark.parametrize(
    ("section", "asked"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, "gptq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "gptq"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 64, "lm_head": True}, "gptq"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head", "*self_attn*"]}, "nvfp4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "bitsandbytes"),
        ({"bits": 4, "group_size": 32}, "mlx"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
    ],
)
def test_recipes_in_use_lie_inside_the_interval(section: dict[str, Any], asked: str) -> None:
    """Other recipes of the same method than the usual one, for a mixture."""
    model = catalogued(QWEN3_30B)
    made = Model.from_config({**model.config, "quantization_config": section})
    recipe = recipe_of(model.with_quantization(asked, (0, 18, 0) if asked == "mxfp4" else None))
    sizes = [stored(model, each) for each in (recipe, *recipe.variants)]
    assert min(sizes) <= stored(made, recipe_of(made)) <= max(sizes)


def test_what_stays_unquantized_is_told_by_group() -> None:
    """Embeddings, head, norms and routers stay as they are, in a guess and while loading."""
    for name in ("awq", "gptq", "int8", "nvfp4", "bitsandbytes", "experts_int8"):
        e = explain_weights(Deployment(model=catalogued(QWEN3_30B), gpu="b200", quantization=name))
        left = {row.group.value for row in e.rows if not row.quantized}
        assert {"embeddings", "head", "norms", "router"} <= left
        assert "experts" not in left
        assert any(note.startswith("Not quantized: ") for note in e.notes)


def test_towers_and_layers_ahead_stay_as_they_are_in_a_guess() -> None:
    """Vision towers and multi-token-prediction layers are not what usual recipes touch."""
    model = catalogued("qwen3.5-27b")
    e = explain_weights(Deployment(model=model, gpu="b200", quantization="nvfp4"))
    assert all(not row.quantized for row in (*e.rows, *e.mtp) if row.group.value == "vision" or row in e.mtp)
    assert e.mtp


def test_towers_that_were_not_seen_are_told_with_an_interval() -> None:
    """Whether a class hands its quantization on to its towers is known for some classes alone."""
    seen = catalogued("qwen2.5-vl-7b")
    assert recipe_of(seen.with_quantization("fp8")).variants == ()
    other = replace(seen, architecture="SomeOtherClass")
    lines = budget(Deployment(model=other, gpu="h100", quantization="fp8", max_model_len=8192)).lines
    assert lines[0].low_bytes == lines[0].needs_bytes < lines[0].high_bytes
    assert recipe_of(other.with_quantization("experts_int8")).variants == ()


def test_a_quantized_checkpoint_is_no_what_if() -> None:
    """There is nothing to quantize; the message names what it is."""
    made = Model.from_config(config(quantization_config={"quant_method": "awq", "bits": 4, "group_size": 128}))
    with pytest.raises(InputError, match="quantized already"):
        made.with_quantization("gguf:Q4_K_M")
    with pytest.raises(InputError, match="the checkpoint's quantization is awq, so give the plain"):
        budget(Deployment(model=made, gpu="h100", quantization="gguf:Q4_K_M"))


def test_headers_of_the_plain_checkpoint_say_nothing_about_another() -> None:
    """What a plain checkpoint stores is not what a quantized one would."""
    read = replace(plain(), stored=Stored(read="headers of 1 file", modules={}, bytes_by_group={}))
    assert read.with_quantization("awq").stored is None


def test_another_name_replaces_the_first() -> None:
    """An imagined model is asked again: nothing is quantized twice."""
    once = plain().with_quantization("awq")
    assert stored(once, recipe_of(once.with_quantization("int8"))) == bounds(plain(), "int8")[1]


# -- a command that is to be launched


def run(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of a command, errors included."""
    result = CliRunner().invoke(cli, arguments)
    error = "" if result.exception is None or isinstance(result.exception, SystemExit) else str(result.exception)
    return result.exit_code, result.output + error


def test_a_flag_is_a_question_and_a_launch_command_is_not() -> None:
    """The engine stops on such a command, so it is refused; the flag in front of it asks what if."""
    code, text = run("fit", LLAMA_8B, "--gpu", "h100", "--quantization", "awq")
    assert code == 0
    assert "What if: the weights are a guess at another checkpoint" in " ".join(text.split())
    code, text = run("fit", "--gpu", "h100", "--", "vllm", "serve", LLAMA_8B, "-q", "awq")
    assert "so vLLM would stop" in text
    assert code != 0
    assert run("fit", "--gpu", "h100", "--", "vllm", "serve", LLAMA_8B, "-q", "fp8")[0] == 0
    assert run("fit", "--gpu", "h100", "-q", "awq", "--", "vllm", "serve", LLAMA_8B)[0] == 0


def test_json_names_the_quantization_and_whose_it_is() -> None:
    """Scripts tell a guess from what the engine makes."""
    seen = {}
    for name in ("awq", "fp8", "gguf:q4_k_m"):
        _, text = run("fit", LLAMA_8B, "--gpu", "h100", "-q", name, "--json")
        told = json.loads(text)
        seen[told["settings"]["quantization"]] = told["settings"]["quantization_origin"]
        assert sum(told["model"]["parameters_by_group"].values()) == told["model"]["parameters"]
    assert seen == {"awq": "imagined", "fp8": "loading", "gguf:Q4_K_M": "imagined"}


def test_a_table_has_quantizations_as_an_axis() -> None:
    """One row each, smaller weights with fewer bits."""
    code, text = run(
        "table", LLAMA_8B, "--gpu", "l4", "--quantizations", "fp8,awq,gguf:Q4_K_M", "--contexts", "8K", "--csv"
    )
    assert code == 0
    assert [name for name in ("fp8", "awq", "gguf:Q4_K_M") if f",{name}," in text] == ["fp8", "awq", "gguf:Q4_K_M"]


def test_a_table_has_the_plain_checkpoint_beside_them() -> None:
    """None is the checkpoint as it is."""
    code, text = run("table", LLAMA_8B, "--gpu", "l4", "--quantizations", "none,fp8", "--contexts", "8K", "--json")
    told = json.loads(text)
    assert code == 0
    sizes = {cell["quantization"]: cell["weights_bytes"] for cell in told["cells"]}
    assert sizes[None] > 1.7 * sizes["fp8"]
    _, text = run("table", LLAMA_8B, "--gpu", "l4", "--quantizations", "none,fp8", "--contexts", "8K")
    assert "\nnone " in text


def test_explain_weights_takes_the_flag() -> None:
    """The groups with the types of their tensors."""
    code, text = run("explain", "weights", LLAMA_8B, "-q", "gguf:Q4_K_M")
    assert code == 0
    assert "what if it were stored as GGUF Q4_K_M" in text
    assert "q6_K" in text


# -- llama.cpp's mixes


@pytest.mark.parametrize(
    ("kind", "bits"),
    [
        # Bits a weight of Llama 3.1 8B by file type (llama.cpp 311c2c9f, tools/quantize/README.md).
        ("IQ1_S", 2.0042),
        ("IQ1_M", 2.146),
        ("IQ2_XXS", 2.3824),
        ("IQ2_XS", 2.5882),
        ("IQ2_S", 2.7403),
        ("IQ2_M", 2.9294),
        ("IQ3_XXS", 3.2548),
        ("IQ3_XS", 3.4977),
        ("IQ3_S", 3.6606),
        ("IQ3_M", 3.7628),
        ("IQ4_XS", 4.4597),
        ("IQ4_NL", 4.6818),
        ("Q2_K_S", 2.9697),
        ("Q2_K", 3.1593),
        ("Q3_K_S", 3.6429),
        ("Q3_K_L", 4.2979),
        ("Q4_K_S", 4.6672),
        ("Q4_K_M", 4.8944),
        ("Q5_K_S", 5.5704),
        ("Q5_K_M", 5.7036),
        ("Q6_K", 6.5633),
        ("Q8_0", 8.5008),
    ],
)
def test_file_types_have_their_published_bits(kind: str, bits: float) -> None:
    """To the four decimals that are published."""
    model = catalogued(LLAMA_8B)
    assert bounds(model, f"gguf:{kind}")[1] * 8 / model.parameters == pytest.approx(bits, abs=0.0002)


@pytest.mark.parametrize(
    ("name", "kind", "size", "beside"),
    [
        # llama_model_size of files with these mixes (llama.cpp 0c1e57098); `beside` is rope_freqs.
        (LLAMA_8B, "Q4_K_M", 4_912_898_304, 256),
        ("llama-3.2-1b", "Q4_K_M", 799_862_912, 128),
        ("llama-3.1-70b", "Q4_K_M", 42_512_531_712, 256),
        ("llama-2-7b", "Q4_K_M", 4_080_263_168, 0),
        ("gemma-2-9b", "Q4_K_M", 5_755_000_832, 0),
        ("qwen2.5-7b", "Q4_K_M", 4_677_120_000, 0),
        ("qwen3-8b", "Q4_K_M", 5_021_827_072, 0),
        (QWEN3_30B, "Q4_K_M", 18_550_716_416, 0),
        ("qwen3-next-80b-a3b", "Q4_K_M", 48_483_058_688, 0),
        ("deepseek-v2-lite", "Q4_K_M", 10_363_959_296, 0),
    ],
)
def test_files_have_the_bytes_that_llama_cpp_counts(name: str, kind: str, size: int, beside: int) -> None:
    """Equal to the byte: dense, tied, grouped, latent attention, mixtures, hybrids."""
    assert bounds(catalogued(name), f"gguf:{kind}")[1] + beside == size


def layers_of(name: str, count: int, columns: int = 4096) -> list[Tensor]:
    """Return a tensor of each layer."""
    return [Tensor(name, layer, columns) for layer in range(count)]


GROUPED = Shape(layers=32, experts=0, sharing=4, is_falcon=False, is_70b=False, tied=False)


MORE_OF_32 = "66664464464464464464464464466666"
"""Which of 32 layers get six bits in the medium mixes of four: an eighth at each end, and every third between."""


@pytest.mark.parametrize(
    ("kind", "name", "shape", "bits"),
    [
        ("Q4_K_M", "attn_v", {}, MORE_OF_32),
        ("Q4_K_M", "ffn_down", {}, MORE_OF_32),
        ("Q4_K_M", "ffn_down_exps", {"experts": 128}, MORE_OF_32),
        ("Q4_K_M", "attn_output", {}, "4" * 32),
        ("Q4_K_M", "ffn_down", {"is_falcon": True}, "66554454454454454454454454455555"),
        ("Q4_K_S", "attn_v", {}, "5555" + "4" * 28),
        ("Q4_K_S", "ffn_down", {}, "5555" + "4" * 28),
        ("Q3_K_M", "attn_v", {}, "55" + "4" * 30),
        ("Q3_K_M", "attn_v", {"is_70b": True}, "5" * 32),
        ("Q3_K_M", "ffn_down", {}, "55" + "4" * 30),
        ("Q2_K", "attn_v", {}, "4" * 32),
        ("Q2_K", "attn_v", {"sharing": 2}, "3" * 32),
        ("Q2_K", "ffn_down", {}, "3" * 32),
        ("Q4_K_M", "attn_k", {"experts": 8}, "8" * 32),
        ("Q4_K_M", "attn_output", {"experts": 8}, "5" * 32),
    ],
)
def test_mixes_by_layer(kind: str, name: str, shape: dict[str, Any], bits: str) -> None:
    """The layers that get more bits: the digit of each layer's type."""
    found = tensor_types(layers_of(name, 32), kind, GROUPED._replace(**shape)).values()
    assert "".join(chosen[1] for chosen in found) == bits


@pytest.mark.parametrize(
    ("kind", "columns", "expected"),
    [
        ("Q4_K_M", 160, "q5_0"),
        ("Q5_K_M", 160, "q5_1"),
        ("Q6_K", 160, "q8_0"),
        ("Q2_K", 160, "q4_0"),
        ("Q4_K_M", 100, "f16"),
    ],
)
def test_rows_that_do_not_fill_blocks_fall_back(kind: str, columns: int, expected: str) -> None:
    """To blocks of 32, and to f16 where these do not fit either."""
    assert tensor_types([Tensor("ssm_dt", 3, columns)], kind, GROUPED) == {Tensor("ssm_dt", 3, columns): expected}


@pytest.mark.parametrize(
    ("kind", "tied", "columns", "falcon", "expected"),
    [
        ("Q4_K_M", True, 4096, False, "q6_K"),
        ("Q4_K_M", False, 4096, False, "q4_K"),
        ("Q8_0", True, 4096, False, "q8_0"),
        ("IQ2_XXS", True, 4096, False, "q5_K"),
        ("IQ2_XXS", False, 4096, False, "q2_K"),
        ("Q4_K_M", True, 2880, False, "q8_0"),
        ("Q4_K_M", True, 4096, True, "q8_0"),
        ("MXFP4_MOE", True, 4096, False, "q8_0"),
    ],
)
def test_the_embeddings_type(kind: str, tied: bool, columns: int, falcon: bool, expected: str) -> None:
    """A head that is tied to the embeddings gives them its own type."""
    tensor = Tensor("token_embd", None, columns)
    assert tensor_types([tensor], kind, GROUPED._replace(tied=tied, is_falcon=falcon))[tensor] == expected


def test_an_importance_matrix_is_a_variant_where_it_matters() -> None:
    """Files that need one are told with it, the others without."""
    assert "with an importance" in recipe_of(plain().with_quantization("gguf:IQ2_XS")).describes
    four = recipe_of(catalogued(LLAMA_8B).with_quantization("gguf:IQ4_XS"))
    assert "without an importance" in four.describes
    assert [each.describes.rpartition(", ")[2] for each in four.variants] == ["with an importance matrix"]
    assert recipe_of(catalogued(LLAMA_8B).with_quantization("gguf:Q4_K_M")).variants == ()


def test_a_model_whose_names_are_not_known_is_refused() -> None:
    """GGUF names are a table, and no guess."""
    with pytest.raises(CannotTell, match="the model type 'opt' is not known"):
        Model.from_config(OPT).with_quantization("gguf:Q4_K_M")


OPT = {
    "model_type": "opt",
    "architectures": ["OPTForCausalLM"],
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 2,
    "num_attention_heads": 12,
    "vocab_size": 50272,
    "max_position_embeddings": 2048,
    "word_embed_proj_dim": 768,
    "do_layer_norm_before": True,
}


# -- laws

shapes = st.fixed_dictionaries(
    {
        "hidden_size": st.sampled_from([256, 512, 1024, 1536]),
        "intermediate_size": st.sampled_from([256, 768, 2816]),
        "num_hidden_layers": st.integers(1, 24),
        "num_attention_heads": st.sampled_from([4, 8]),
        "num_key_value_heads": st.sampled_from([1, 2, 4]),
        "head_dim": st.sampled_from([64, 128]),
        "vocab_size": st.sampled_from([256, 1000, 32000]),
        "tie_word_embeddings": st.booleans(),
    }
)
FEWER_BITS = ("Q2_K", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "BF16")
NAMES = st.sampled_from(
    sorted({*what_if.USUAL, "fp8", "fp8_per_block", "mxfp8", "mxfp4", "gguf:Q4_K_M", "gguf:IQ3_XXS"})
)


@given(shapes)
@settings(max_examples=30, deadline=None)
def test_more_bits_are_more_bytes(shape: dict[str, Any]) -> None:
    """In the order of llama.cpp's file types, and none below the bits of its smallest tensors."""
    model = Model.from_config(config(**shape))
    sizes = [bounds(model, f"gguf:{kind}")[1] for kind in FEWER_BITS]
    assert sizes == sorted(sizes)
    assert model.parameters * 21 // 64 <= sizes[0]  # 2.625 bits


@given(shapes, NAMES)
@settings(max_examples=60, deadline=None)
def test_groups_add_up_and_low_is_below_high(shape: dict[str, Any], name: str) -> None:
    """The rows of `explain weights` are the weights, and the interval holds the guess."""
    model = Model.from_config(config(**shape))
    e = explain_weights(Deployment(model=model, gpu="b200", quantization=name))
    quantized = model.with_quantization(name)
    assert e.bytes == vllm.weight_bytes(quantized, e.dtype, 1, None, expert_parallel=False)
    assert e.parameters == model.parameters
    assert e.loaded.low <= e.loaded.best <= e.loaded.high
    assert e.loaded.best < 2.2 * model.parameters + 2**20 * shape["num_hidden_layers"] + 2**26


@given(shapes, NAMES, st.sampled_from([2, 4]))
@settings(max_examples=60, deadline=None)
def test_shards_add_up(shape: dict[str, Any], name: str, tp: int) -> None:
    """All ranks together hold the weights, and what is replicated or padded once more for each."""
    model = Model.from_config(config(**shape))
    quantized = model.with_quantization(name)
    whole = vllm.weight_bytes(quantized, "bfloat16", 1, None, expert_parallel=False)
    shard = vllm.weight_bytes(quantized, "bfloat16", tp, None, expert_parallel=False)
    assert shard < whole
    assert shard * tp >= whole


@pytest.mark.parametrize("kind", gguf_types.FILE_TYPES)
def test_every_file_type_is_answered(kind: str) -> None:
    """By its name in any case, for a dense model and a mixture."""
    for model in (plain(), catalogued(QWEN3_30B)):
        low, best, high = bounds(model, f"gguf:{kind.lower()}")
        assert 0 < low <= best <= high <= 4.01 * model.parameters


def test_names_and_versions_are_consistent() -> None:
    """Every name has layouts that are known, and versions in order."""
    for row in what_if.WHILE_LOADING.values():
        assert OLDEST <= row.since <= NEWEST
        assert row.until is None or row.since < row.until
        assert recipe_of(plain().with_quantization(row.name, row.since)).origin == "loading"
    for name in (*what_if.USUAL, *what_if.USUAL_ALIASES):
        assert recipe_of(plain().with_quantization(name, OLDEST)).origin in ("imagined", "loading")


def test_every_row_of_llama_cpps_own_count() -> None:
    """The models of the shared table whose configs are there too."""
    table = SHARED / "data" / "llamacpp_oracle.jsonl.gz"
    if not table.is_file():
        pytest.skip("the shared data is not there")
    where = {
        "deepseek-v2-lite": "data/configs/deepseek-ai__DeepSeek-V2-Lite",
        "gemma2-9b": "tools/vllm_oracle/configs/gemma-2-9b",
        "gpt-oss-20b": "tools/vllm_oracle/configs/gpt-oss-20b",
        "granite-4.0-h-tiny": "data/configs/ibm-granite__granite-4.0-h-tiny",
        "llama2-7b": "tools/vllm_oracle/configs/llama-2-7b",
        "llama3-8b": "tools/vllm_oracle/configs/llama-3-8b",
        "mamba-2.8b": "data/configs/state-spaces__mamba-2.8b-hf",
        "qwen25-7b": "tools/vllm_oracle/configs/qwen2.5-7b",
        "qwen3-30b-a3b": "tools/vllm_oracle/configs/qwen3-30b-a3b",
        "qwen3-next-80b-a3b": "tools/vllm_oracle/configs/qwen3-next-80b-a3b",
    }
    with gzip.open(table, "rt", encoding="utf-8") as lines:
        counted = {row["model"]: row["model_bytes"] for row in map(json.loads, lines)}
    checked = 0
    for name, size in counted.items():
        model_name, _, kind = name.rpartition("-")
        if model_name not in where:
            continue
        read = json.loads((SHARED / where[model_name] / "config.json").read_text(encoding="utf-8"))
        read.pop("quantization_config", None)
        model = Model.from_config(read)
        assert bounds(model, f"gguf:{kind}")[1] == size, name
        checked += 1
    assert checked == len(where) + 2  # Llama 3 has three file types
