"""Checkpoints on this machine: which files of a folder count, and what is known when some are missing."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gguf_files import Typed
from gguf_files import tensor as gguf_tensor
from gguf_files import written as gguf
from kvbudget.checkpoint import GGUF, PYTORCH, SAFETENSORS
from kvbudget.errors import AccessError, CannotTell, InputError
from kvbudget.hub import load_model, open_checkpoint
from kvbudget.hub.listing import choose_weights, variant_of
from safetensors_files import tensor, written

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
}
ONE, TWO, BOTH = [tensor("a")], [tensor("b", "F32")], [tensor("a"), tensor("b", "F32")]
SHARDS = {"model-00001-of-00002.safetensors": written(ONE), "model-00002-of-00002.safetensors": written(TWO)}
INDEX = {
    "metadata": {"total_size": 1234},
    "weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"},
}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"


def folder(path: Path, **files: object) -> str:
    """Write a folder with a config and these files, underscores doubled for dots."""
    return laid(path, {"config.json": CONFIG, **files})


def laid(path: Path, files: dict[str, Any]) -> str:
    for name, content in files.items():
        (path / name).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return str(path)


def test_a_lone_config_opens_nothing_else(tmp_path: Path) -> None:
    found = open_checkpoint(folder(tmp_path))
    assert (found.config, found.format, found.tensors, found.read) == (CONFIG, None, None, "config.json")
    assert found.source == str(tmp_path / "config.json")


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({"model.safetensors": written(BOTH)}, "ab"),
        ({"model.safetensors.index.json": INDEX, **SHARDS}, "ab"),
        (SHARDS, "ab"),
        ({name.replace("model", "other"): content for name, content in SHARDS.items()}, "ab"),
        ({"model-00000-of-00001.safetensors": written(ONE), "model-00001-of-00001.safetensors": written(TWO)}, "ab"),
        ({"model-00000-of-00002.safetensors": written(ONE), "model-00001-of-00002.safetensors": written(TWO)}, "ab"),
        ({"x.safetensors": written(ONE), "y.safetensors": written(TWO)}, "ab"),
        ({"model.safetensors": written(ONE), "consolidated.safetensors": written(BOTH)}, "a"),
        ({"consolidated.safetensors": written(BOTH)}, "ab"),
        ({"model.safetensors": written(ONE), "model.fp16.safetensors": written(ONE)}, "a"),
        ({"model.safetensors": written(ONE), "adapter_model.safetensors": written(BOTH)}, "a"),
        ({"model.safetensors": written(ONE), "pytorch_model.bin": b"", "pytorch_model.bin.index.json": {}}, "a"),
        ({"model.safetensors": written(ONE), "model-Q8_0.gguf": b""}, "a"),
        ({"model.safetensors.index.json": INDEX, **SHARDS, "extra.safetensors": b"not looked at"}, "ab"),
        ({"model.safetensors.index.json": INDEX, **SHARDS, "consolidated.safetensors": b"not looked at"}, "ab"),
    ],
)
def test_which_safetensors_files_count(tmp_path: Path, files: dict[str, Any], names: str) -> None:
    found = open_checkpoint(folder(tmp_path, **files))
    assert found.format == SAFETENSORS
    assert "".join(sorted(each.name for each in found.tensors or ())) == names
    assert found.stored_bytes == sum(each.nbytes for each in found.tensors or ())
    assert found.read.startswith("header")


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"model.safetensors": written(ONE), "consolidated.safetensors": written(BOTH)}, "consolidated"),
        ({"model.safetensors": written(ONE), "model.fp16.safetensors": written(ONE)}, "model.fp16.safetensors"),
        ({"model.safetensors.index.json": INDEX}, "2 weight files are not"),
        ({"model.safetensors": POINTER}, "git lfs pull"),
        ({"model.safetensors.index.json": INDEX, **dict.fromkeys(SHARDS, POINTER)}, "git lfs pull"),
    ],
)
def test_what_was_odd_is_noted(tmp_path: Path, files: dict[str, Any], says: str) -> None:
    (note,) = open_checkpoint(folder(tmp_path, **files)).notes
    assert says in note
    assert note.endswith(".")


@pytest.mark.parametrize("files", [{}, dict.fromkeys(SHARDS, POINTER)])
def test_an_index_without_files_gives_the_bytes(tmp_path: Path, files: dict[str, bytes]) -> None:
    found = open_checkpoint(folder(tmp_path, **{"model.safetensors.index.json": INDEX}, **files))
    assert (found.tensors, found.stored_bytes, found.read) == (None, 1234, "config.json and the index's total")


def test_an_index_of_pytorch_files(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 99}, "weight_map": {"a": "pytorch_model-00001-of-00001.bin"}}
    found = open_checkpoint(folder(tmp_path, **{"pytorch_model.bin.index.json": index}))
    assert (found.format, found.tensors, found.stored_bytes) == (PYTORCH, None, 99)


def test_pytorch_files_are_never_opened(tmp_path: Path) -> None:
    found = open_checkpoint(folder(tmp_path, **{"pytorch_model.bin": b"\x80\x02cos\nsystem\n."}))
    assert (found.format, found.tensors, found.stored_bytes) == (PYTORCH, None, None)


def test_a_config_that_is_named_stands_for_itself(tmp_path: Path) -> None:
    laid(tmp_path, {"config.json": CONFIG, "model.safetensors": b"broken"})
    assert open_checkpoint(str(tmp_path / "config.json")).tensors is None
    with pytest.raises(InputError, match=r"model\.safetensors"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({name: SHARDS[name] for name in list(SHARDS)[:1]}, "1 of the 2 files are there"),
        ({"model.safetensors.index.json": INDEX, **dict(list(SHARDS.items())[:1])}, "1 are missing"),
        ({"x.safetensors": written(ONE), "y.safetensors": written(ONE)}, 'holds tensor "a"'),
        ({"model.safetensors": written(ONE)[:-1]}, "holds 63 of the 64 bytes"),
        ({"model.safetensors": b"\xff" * 8}, "claims a header"),
        ({"model.safetensors.index.json": {}}, "no weight_map"),
    ],
)
def test_broken_weights_are_refused(tmp_path: Path, files: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        open_checkpoint(folder(tmp_path, **files))
    assert str(caught.value).endswith(".")


def test_weights_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        open_checkpoint(laid(tmp_path, {"model.safetensors": written(ONE)}))


def test_an_adapter_names_its_model(tmp_path: Path) -> None:
    adapter = {"base_model_name_or_path": "org/ba\x1bse", "r": 16}
    with pytest.raises(InputError, match=r"is an adapter .* give the model below it, org/ba") as caught:
        open_checkpoint(laid(tmp_path, {"adapter_config.json": adapter, "adapter_model.safetensors": b""}))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["quantize_config.json", "quant_config.json"])
def test_quantization_files_beside_the_config(tmp_path: Path, name: str) -> None:
    modelopt = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8"}}
    gptq = {"bits": 4, "group_size": 128, "quant_method": "gptq"}
    found = open_checkpoint(folder(tmp_path, **{name: gptq, "hf_quant_config.json": modelopt}))
    assert (found.quantize_config, found.hf_quant_config) == (gptq, modelopt)


@pytest.mark.parametrize(
    ("section", "method"),
    [
        ({"quantization": {"group_size": 64, "bits": 4}}, "mlx"),
        (
            {
                "quantization_config": {
                    "quant_method": "compressed-tensors",
                    "format": "pack-quantized",
                    "config_groups": {
                        "group_0": {
                            "targets": ["Linear"],
                            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
                        }
                    },
                    "ignore": ["lm_head"],
                }
            },
            "compressed-tensors",
        ),
    ],
)
def test_quantization_in_the_config(tmp_path: Path, section: dict[str, Any], method: str) -> None:
    model = load_model(laid(tmp_path, {"config.json": CONFIG | section, "model.safetensors": written(ONE)}))
    assert model.quantization is not None
    assert model.quantization.method == method


# -- GGUF

KEYS = {
    "general.architecture": Typed("str", "llama"),
    **{
        f"llama.{key}": Typed("u32", value)
        for key, value in {
            "block_count": 2,
            "embedding_length": 64,
            "feed_forward_length": 128,
            "attention.head_count": 4,
            "context_length": 4096,
        }.items()
    },
}
EMBEDDING = gguf_tensor("token_embd.weight", "q8_0", (512, 64))
OUTPUT = gguf_tensor("output.weight", "f16", (512, 64))


@pytest.mark.parametrize("version", [2, 3])
def test_a_gguf_alone_and_in_a_folder(tmp_path: Path, version: int) -> None:
    content = gguf(KEYS, [EMBEDDING, OUTPUT], version=version)
    place = laid(tmp_path, {"m-Q8_0.gguf": content, "mmproj-m.gguf": b"another model's part", "config.json": CONFIG})
    alone, within = open_checkpoint(f"{place}/m-Q8_0.gguf"), open_checkpoint(place)
    assert (alone.format, alone.tensors) == (GGUF, (EMBEDDING, OUTPUT))
    assert (within.tensors, within.config) == (alone.tensors, alone.config)
    assert alone.metadata["llama.block_count"] == 2
    model = load_model(f"{place}/m-Q8_0.gguf")
    assert model.num_attention_heads == 4
    assert model.stored is not None


def test_a_split_gguf_by_any_part(tmp_path: Path) -> None:
    for number, each in enumerate((EMBEDDING, OUTPUT)):
        place = {"split.no": Typed("u16", number), "split.count": Typed("u16", 2)}
        (tmp_path / f"m-0000{number + 1}-of-00002.gguf").write_bytes(gguf((KEYS if not number else {}) | place, [each]))
    for reference in (tmp_path, *sorted(tmp_path.iterdir())):
        assert open_checkpoint(str(reference)).tensors == (EMBEDDING, OUTPUT)
    (tmp_path / "m-00001-of-00002.gguf").unlink()
    with pytest.raises(InputError, match="missing"):
        open_checkpoint(str(tmp_path))


def test_a_big_endian_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF\x00\x00\x00\x03" + bytes(64))
    with pytest.raises(InputError, match="big-endian"):
        open_checkpoint(str(path))


def test_several_ggufs_are_told_apart(tmp_path: Path) -> None:
    files = dict.fromkeys(("m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf"), gguf(KEYS, [EMBEDDING]))
    with pytest.raises(InputError, match=r"several GGUF files \(Q4_K_M, Q8_0\); name one"):
        open_checkpoint(laid(tmp_path, files))


def test_a_folder_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: object) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", denied)
    with pytest.raises(AccessError, match="cannot be read"):
        open_checkpoint(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "variant"),
    [
        ("Qwen3-8B-Q4_K_M.gguf", "Q4_K_M"),
        ("llama.Q8_0.gguf", "Q8_0"),
        ("UD-Q2_K_XL/m-UD-Q2_K_XL-00001-of-00003.gguf", "Q2_K_XL"),
        ("model.gguf", "model"),
    ],
)
def test_what_tells_a_gguf_from_its_neighbours(name: str, variant: str) -> None:
    assert variant_of(name) == variant


def test_a_variant_is_a_whole_word() -> None:
    names = ["a-Q4_K.gguf", "a-Q4_K_M.gguf", "Q8_0/a-00001-of-00002.gguf", "Q8_0/a-00002-of-00002.gguf"]
    assert choose_weights(names, "here", "q4_k").files == ("a-Q4_K.gguf",)
    assert choose_weights(names, "here", "Q8_0").files == tuple(names[2:])
    with pytest.raises(InputError, match=r"no GGUF file of Q4; there are"):
        choose_weights(names, "here", "Q4")


NAMES = st.lists(
    st.from_regex(r"(model|x|consolidated|mmproj)(-[0-9]{1,5}-of-[0-9]{1,5})?\.(safetensors|gguf)", fullmatch=True)
    | st.sampled_from(["model.safetensors.index.json", "pytorch_model.bin.index.json", "pytorch_model.bin", "a/b.gguf"])
    | st.text(max_size=20),
    unique=True,
)


@given(NAMES, st.none() | st.text(max_size=8))
def test_any_names_are_a_choice_or_a_refusal(names: list[str], variant: str | None) -> None:
    try:
        found = choose_weights(names, "here", variant)
    except InputError as error:
        message = str(error)
    else:
        assert set(found.files) <= set(names)
        return
    assert message.endswith(".")
    assert message.isprintable()


def test_parts_are_spelled_out_for_the_chosen_model_alone() -> None:
    """Each of these names claims 99,999 parts."""
    names = [f"m{i}-00001-of-99999.gguf" for i in range(20_000)]
    with pytest.raises(InputError, match=r"several GGUF files .*more"):
        choose_weights(names, "here")


def test_an_unknown_architecture_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf({"general.architecture": Typed("str", "clip")}, [EMBEDDING]))
    with pytest.raises(CannotTell, match="'clip'"):
        open_checkpoint(str(path))


def test_a_config_beside_an_unknown_gguf_counts(tmp_path: Path) -> None:
    content = gguf({"general.architecture": Typed("str", "new")}, [EMBEDDING])
    found = open_checkpoint(laid(tmp_path, {"m.gguf": content, "config.json": CONFIG}))
    assert (found.config, found.tensors) == (CONFIG, (EMBEDDING,))
    assert "general.architecture" in found.notes[0]
