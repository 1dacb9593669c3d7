"""The table of accelerators: every row admits its source, every name finds one card, the rest is refused."""

from __future__ import annotations

import csv
import datetime as dt
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbudget.basis import Basis
from kvbudget.errors import InputError
from kvbudget.facts.gpus import GPUS, Gpu, find_gpu
from kvbudget.units import GIB, MIB

SHARED = Path(os.environ.get("KVBUDGET_SHARED", Path(__file__).parents[2] / "shared"))

NAMES = [(gpu, name) for gpu in GPUS for name in (gpu.name, *gpu.aliases)]

AMBIGUOUS = {
    "a100": {"A100-SXM-40GB", "A100-PCIE-40GB", "A100-SXM-80GB", "A100-PCIE-80GB"},
    "v100": {"V100-SXM-16GB", "V100-SXM-32GB", "V100-PCIE-32GB"},
    "gh200": {"GH200-96GB", "GH200-144GB"},
    "rtx 6000": {"RTX-6000-Ada-48GB", "RTX-PRO-6000-96GB"},
    "agx orin": {"Jetson-AGX-Orin-64GB", "Jetson-AGX-Orin-32GB"},
    "M4 Max": {"M4-Max-36GB", "M4-Max-48GB", "M4-Max-64GB", "M4-Max-128GB"},
    "mig-3g.40gb": {"A100-80GB-MIG-3g.40gb", "H100-80GB-MIG-3g.40gb"},
}


def test_a_row_has_a_basis_a_source_and_a_date() -> None:
    for gpu in GPUS:
        assert gpu.basis in {Basis.MEASURED, Basis.ASSUMED}, gpu.name
        assert len(gpu.source) > 20, gpu.name
        assert dt.date.fromisoformat(gpu.read_on) <= dt.datetime.now(dt.UTC).date(), gpu.name


def test_names_are_unique() -> None:
    assert len({gpu.name.casefold() for gpu in GPUS}) == len(GPUS) >= 60
    for gpu in GPUS:
        assert len(set(gpu.aliases)) == len(gpu.aliases), gpu.name


def test_sizes_and_speeds_are_plausible() -> None:
    for gpu in GPUS:
        check_plausible(gpu)


def check_plausible(gpu: Gpu) -> None:
    sold = int(gpu.marketing.removesuffix(" GB"))
    # Boards and slices are sold in rounded sizes; a unified memory is shared with the system.
    assert (0.6 if gpu.unified else 0.88) * sold * GIB <= gpu.memory_bytes <= 1.03 * sold * GIB
    if gpu.engine_total_bytes is not None:
        assert 0.97 * gpu.memory_bytes <= gpu.engine_total_bytes <= gpu.memory_bytes
    assert gpu.bandwidth_bytes_per_s is None or 10**11 < gpu.bandwidth_bytes_per_s < 2 * 10**13
    assert gpu.bf16_flops is None or 10**13 < gpu.bf16_flops < 10**16
    assert gpu.fp8_flops is None or (gpu.bf16_flops is not None and 1.9 < gpu.fp8_flops / gpu.bf16_flops < 2.1)
    assert gpu.interconnect_bytes_per_s is None or 10**10 <= gpu.interconnect_bytes_per_s <= 10**12


def test_every_name_finds_its_card_or_is_refused_with_it_among_the_choices() -> None:
    for gpu, name in NAMES:
        spoken = name.replace("*", "xlarge")
        same = [other for other, spelling in NAMES if spelling == name]
        if len(same) == 1:
            assert find_gpu(spoken) is gpu
        else:
            with pytest.raises(InputError, match=f"not one card.*{gpu.name.lower()}"):
                find_gpu(spoken)


def test_a_canonical_name_is_never_ambiguous() -> None:
    for gpu in GPUS:
        assert find_gpu(gpu.name) is gpu


@given(
    st.sampled_from(NAMES),
    st.lists(st.sampled_from([" ", "-", "_", "  "]), min_size=12, max_size=12),
    st.sampled_from(["upper", "lower", "title"]),
)
def test_case_and_separators_do_not_matter(named: tuple[Gpu, str], separators: list[str], case: str) -> None:
    _, name = named
    name = name.replace("*", "48xlarge")
    parts = name.replace("-", " ").replace("_", " ").split(" ")
    spelled = "".join(part + separator for part, separator in zip(parts, separators, strict=False)).rstrip(" -_")
    assert outcome(getattr(spelled, case)()) == outcome(name)


def outcome(name: str) -> object:
    try:
        return find_gpu(name).name
    except InputError as refused:
        return str(refused).partition("say which")[2]


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("h100", "H100-SXM-80GB"),
        ("h100-80", "H100-SXM-80GB"),
        ("h100-sxm-80gb", "H100-SXM-80GB"),
        ("H100 80GB HBM3", "H100-SXM-80GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIE-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("A100 80G", "A100-SXM-80GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIE-80GB"),
        ("A10G", "A10G-24GB"),
        ("Tesla T4", "T4-16GB"),
        ("NVIDIA L40S", "L40S-48GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090-24GB"),
        ("4090", "RTX-4090-24GB"),
        ("H20", "H20-96GB"),
        ("h200", "H200-SXM-141GB"),
        ("b200", "B200-SXM-180GB"),
        ("mi300x", "MI300X-192GB"),
        ("dgx-spark", "GB10-128GB"),
        ("p5.48xlarge", "H100-SXM-80GB"),
        ("p4d.24xlarge", "A100-SXM-40GB"),
        ("g5.12xlarge", "A10G-24GB"),
        ("g6.xlarge", "L4-24GB"),
        ("g6e.48xlarge", "L40S-48GB"),
        ("a3-highgpu-8g", "H100-SXM-80GB"),
        ("a2-highgpu-1g", "A100-SXM-40GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-3g.40gb", "A100-80GB-MIG-3g.40gb"),
        ("M2-Ultra-192GB", "M2-Ultra-192GB"),
    ],
)
def test_names_people_use(name: str, canonical: str) -> None:
    assert find_gpu(name).name == canonical


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_a_name_that_leaves_the_card_open_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(InputError, match="not one card") as refused:
        find_gpu(name)
    listed = str(refused.value).rpartition(": ")[2].rstrip(".").split(", ")
    assert set(listed) == {choice.lower() for choice in AMBIGUOUS[name]}


def test_an_unknown_card_is_answered_with_its_family() -> None:
    with pytest.raises(InputError) as refused:
        find_gpu("H100 NVL2")
    assert str(refused.value) == (
        'Unknown GPU "H100 NVL2". Known H100: h100-sxm-80gb, h100-pcie-80gb, h100-nvl-94gb. '
        'Other card: --gpu-memory 93.1GiB (the "Total" from nvidia-smi).'
    )


@pytest.mark.parametrize("name", ["", "-", "zzz", "80GB", "H20080", "g5g.xlarge", "h100\x1b[31m", "x" * 10_000])
def test_nonsense_is_refused_in_one_short_line(name: str) -> None:
    with pytest.raises(InputError, match=r"^Unknown GPU") as refused:
        find_gpu(name)
    message = str(refused.value)
    assert message.isprintable()
    assert len(message) < 400
    assert "--gpu-memory" in message


def test_the_contract_example() -> None:
    gpu = find_gpu("H100-SXM-80GB")
    assert gpu.memory_bytes == 85_520_809_984 == 81559 * MIB
    assert gpu.basis is Basis.MEASURED
    assert gpu.engine_total_bytes is not None
    assert round(gpu.engine_total_bytes / GIB, 2) == 79.19


def test_an_assumed_size_is_the_smaller_reading() -> None:
    for gpu in GPUS:
        if gpu.basis is Basis.ASSUMED:
            sold = int(gpu.marketing.removesuffix(" GB"))
            assert gpu.memory_bytes in {sold * 10**9, sold * GIB * 65 // 100}, gpu.name


@pytest.mark.skipif(not (SHARED / "data/gpus.tsv").exists(), reason="needs the collected table of accelerators")
def test_memory_agrees_with_the_collected_table() -> None:
    with (SHARED / "data/gpus.tsv").open(encoding="utf-8") as lines:
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["reported_total_MiB"]]
    assert len(rows) > 30
    for row in rows:
        gpu = find_gpu(row["name"].partition(" (")[0] if "one" in row["name"] else row["name"])
        assert gpu.memory_bytes == int(row["reported_total_MiB"]) * MIB, row["name"]
        assert gpu.basis is Basis.MEASURED, row["name"]
