"""How near the what-ifs come: predicted from a plain config, published by those who really quantized.

    python bench/what_if.py FOLDER [--json]

FOLDER holds `sizes.tsv` (published sizes of checkpoints), `quants.tsv` (published bits of llama.cpp's file types) and
`configs/`. Every checkpoint that is quantized is predicted from its own config without the quantization section, that
is from the plain model of the same shape. Three tables: published sizes; what follows from a published quantization
config, without the layers that predict several tokens; and GGUF files. Rows that cannot be compared are counted with
the reason.
"""

from __future__ import annotations

import argparse
import csv
import json
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from kvbudget.errors import KvbudgetError
from kvbudget.facts.formats import dtype_bytes
from kvbudget.model import Model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvbudget.model.quantization import Recipe

SECTIONS = ("quantization_config", "compression_config", "quantization")
BEFORE_ONLINE = (0, 18, 0)
"""A version that makes neither MXFP4 nor MXFP8 by itself, so that both are answered as checkpoints."""

COPIES = {
    "openai/gpt-oss-20b": "counts copies of the weights in other folders",
    "openai/gpt-oss-120b": "counts copies of the weights in other folders",
}
"""Rows of `sizes.tsv` that hold more than one set of weights (NOTES.md)."""

MIX_FAMILY = "GGUF file mix (Llama-3.1-8B, whole file)"


class Row(NamedTuple):
    """One comparison, in bytes.

    Attributes:
        table: "sizes", "configs" or "gguf".
        name: The checkpoint.
        asked: The name that was asked for.
        published: What is published, or follows from the published config.
        low: The least that was predicted.
        best: What was predicted.
        high: The most.
    """

    table: str
    name: str
    asked: str
    published: int
    low: int
    best: int
    high: int

    @property
    def error(self) -> float:
        """The relative error of the best prediction."""
        return self.best / self.published - 1

    @property
    def inside(self) -> bool:
        """Whether the published size lies between low and high; a thousandth is left for headers and rounding."""
        return self.low * 0.999 <= self.published <= self.high * 1.001


def predicted(plain: Model, asked: str, *, ahead: bool = False) -> tuple[int, int, int]:
    """Return the bytes of all tensors at the low end, the best guess and at the high end; see `stored`."""
    recipe = plain.with_quantization(asked, BEFORE_ONLINE if asked in ("mxfp4", "mxfp8") else None).quantization
    if recipe is None:
        raise ValueError(asked)
    sizes = [stored(plain, each, ahead=ahead) for each in (recipe, *recipe.variants)]
    return min(sizes), sizes[0], max(sizes)


def stored(model: Model, recipe: Recipe | None, *, ahead: bool = False) -> int:
    """Return the bytes of all tensors under a recipe, with `ahead` those of the layers that predict several tokens."""
    own = dtype_bytes(model.dtype or "bfloat16")
    behind = [
        (f"{model.prefix}.{len(model.layers) + i}.{weight.name}", weight)
        for i, layer in enumerate(model.mtp if ahead else ())
        for weight in layer.weights
    ]
    total = 0
    for path, weight in [*((path, weight) for _, path, weight in model.weights()), *behind]:
        size = dtype_bytes(weight.dtype) if weight.dtype else own
        total += recipe.weight_bytes(path, weight, own) if recipe is not None else weight.values * size
    return total


def asked_for(section: dict[str, Any]) -> str:
    """Return the what-if that a quantization section answers, or "" with none of that kind."""
    method = str(section.get("quant_method", "")).lower()
    bits = section.get("bits", section.get("w_bit"))
    if method in ("gptq", "awq"):
        return method if bits == 4 else ""
    if method == "bitsandbytes":
        return "bitsandbytes:int8" if section.get("load_in_8bit") else "bitsandbytes"
    if method == "fp8":
        return "fp8_per_block" if section.get("weight_block_size") else "fp8"
    algorithm = str(section.get("quant_algo") or (section.get("quantization") or {}).get("quant_algo", ""))
    if algorithm:
        return {"NVFP4": "nvfp4", "FP8": "fp8"}.get(algorithm, "")
    if method == "compressed-tensors":
        return _compressed(section)
    if method == "mxfp4":
        return "mxfp4"
    return "mlx" if bits == 4 and not method else ""


def _compressed(section: dict[str, Any]) -> str:
    groups = list((section.get("config_groups") or {}).values())
    if len(groups) != 1:
        return ""
    weights = groups[0].get("weights") or {}
    kinds = {"int4": "awq", "int8": "int8", "float8": "fp8_per_channel", "float4": "mxfp4"}
    return kinds.get(f"{weights.get('type')}{weights.get('num_bits')}", "")


def quantized(folder: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]]:
    """Yield (folder, plain config, its quantization section, the files beside it) of each quantized checkpoint."""
    for path in sorted(folder.glob("*/config.json")):
        config = json.loads(path.read_text(encoding="utf-8"))
        files = {}
        for name, key in (("hf_quant_config", "hf_quant_config"), ("quantize_config", "quantize_config")):
            beside = path.parent / f"{name}.json"
            if beside.is_file():
                files[key] = json.loads(beside.read_text(encoding="utf-8"))
        section = next((config[key] for key in SECTIONS if isinstance(config.get(key), dict)), None)
        nested = config.get("text_config")
        if section is None and isinstance(nested, dict):
            section = nested.get(SECTIONS[0])
        section = section or next(iter(files.values()), None)
        if section is None:
            continue
        if "quantize_config" in files and "quant_method" not in section:
            section = {**section, "quant_method": "gptq"}
        plain = {key: value for key, value in config.items() if key not in SECTIONS}
        if isinstance(nested, dict):
            plain["text_config"] = {key: value for key, value in nested.items() if key != SECTIONS[0]}
        yield path.parent.name, plain, section, {"config": config, **files}


def compare(folder: Path) -> tuple[list[Row], dict[str, list[str]]]:
    """Return the comparisons, and what was left out by reason."""
    rows: list[Row] = []
    skipped: dict[str, list[str]] = {}
    published = list(_sizes(folder / "sizes.tsv"))
    for name, plain_config, section, files in quantized(folder / "configs"):
        asked = asked_for(section)
        if not asked:
            skipped.setdefault("no what-if of that kind", []).append(name)
            continue
        try:
            own = Model.from_config(files.pop("config"), name=name, **files)
            plain = Model.from_config(plain_config, name=name)
            guess = predicted(plain, asked)
            truth = stored(own, own.quantization)
            if own.quantization is not None and ", experts in" in own.quantization.describes:
                skipped.setdefault("experts in another format than the rest", []).append(name)
                continue
        except KvbudgetError as error:
            skipped.setdefault(str(error)[:90], []).append(name)
            continue
        rows.append(Row("configs", name, asked, truth, *guess))
        for hub, size in published:
            if hub.replace("/", "__") != name:
                continue
            if hub in COPIES:
                skipped.setdefault(COPIES[hub], []).append(hub)
            else:
                rows.append(Row("sizes", hub, asked, size, *predicted(plain, asked, ahead=True)))
    rows += _gguf(folder, skipped)
    return rows, skipped


def _sizes(path: Path) -> Iterator[tuple[str, int]]:
    """Yield (hub id, bytes) of the published checkpoints that are quantized, each size once."""
    seen = set()
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            key = (row["hub"], round(int(row["bytes"]), -6))
            if row["quant"] and "metal" not in row["what"] and key not in seen:
                seen.add(key)
                yield row["hub"], int(row["bytes"])


def _gguf(folder: Path, skipped: dict[str, list[str]]) -> Iterator[Row]:
    """Yield the file types whose bits are published for Llama 3.1 8B."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    plain = Model.from_config(config, name="Llama-3.1-8B")
    with (folder / "quants.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if row["family"] != MIX_FAMILY:
                continue
            size = round(float(row["bits_per_element"]) * plain.parameters / 8)
            try:
                yield Row(
                    "gguf",
                    f"Llama-3.1-8B {row['format']}",
                    row["format"],
                    size,
                    *predicted(plain, f"gguf:{row['format']}"),
                )
            except KvbudgetError as error:
                skipped.setdefault(str(error)[:90], []).append(row["format"])


def shown(rows: list[Row], skipped: dict[str, list[str]]) -> str:
    """Return the tables as text."""
    lines = []
    for table, title in (("sizes", "published sizes"), ("configs", "published recipes"), ("gguf", "GGUF file types")):
        found = [row for row in rows if row.table == table]
        lines += [
            f"{title}",
            f"{'checkpoint':52} {'asked':18} {'published':>10} {'low':>9} {'best':>9} {'high':>9}  error",
        ]
        for row in sorted(found, key=lambda row: abs(row.error)):
            sizes = " ".join(f"{size / 2**30:9.2f}" for size in (row.low, row.best, row.high))
            mark = "" if row.inside else "  outside"
            lines.append(f"{row.name:52} {row.asked:18} {row.published / 2**30:10.2f} {sizes} {row.error:+7.2%}{mark}")
        if found:
            errors = [abs(row.error) for row in found]
            inside = sum(row.inside for row in found)
            worst = f"median {median(errors):.2%}, worst {max(errors):.2%}"
            lines.append(f"n {len(found)}, {worst}, inside low-high {inside} of {len(found)}")
        lines.append("")
    lines += [f"left out, {reason}: {', '.join(names)}" for reason, names in skipped.items()]
    return "\n".join(lines)


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    rows, skipped = compare(chosen.folder)
    if chosen.json:
        found = [{**row._asdict(), "error": row.error, "inside": row.inside} for row in rows]
        print(json.dumps({"rows": found, "skipped": skipped}, indent=1))
    else:
        print(shown(rows, skipped))


if __name__ == "__main__":
    main()
