"""Coverage-guided fuzzing of the header readers, for as long as one likes.

    pip install atheris
    python bench/fuzz_headers.py [--seconds 600] [--corpus FOLDER]

The first byte of an input chooses the reader: a safetensors file, a safetensors header with its right length, an
index, or a GGUF file. A reader may return, or end in the two errors that it promises, with one printable sentence;
anything else, ten seconds or two GiB is a find, which is printed with the input that led to it. With a corpus folder
the next run goes on where this one ended. A find becomes a case in `tests/test_safetensors.py` or
`tests/test_gguf.py`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import struct
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

LONGEST_INPUT = 4096
LONGEST_MESSAGE = 400
SLOW_SECONDS = 10
MEMORY_MIB = 2048

NAME = "fuzz"
FILE, HEADER, INDEX, GGUF = range(4)


class Memory(NamedTuple):
    """A source in memory."""

    content: bytes
    name: str = NAME

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self, offset: int, length: int) -> bytes:
        return self.content[offset : offset + length]


def framed(header: bytes) -> bytes:
    """Return a safetensors file with that header and no data."""
    return len(header).to_bytes(8, "little") + header


def seeds() -> list[bytes]:
    """Return one valid input for each reader, and one with much of what its format has."""
    tensors = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F4", "shape": [0, 4], "data_offsets": [0, 0]},
        "b": {"dtype": "BF16", "shape": [], "data_offsets": [0, 2]},
    }
    header = json.dumps(tensors, separators=(",", ":")).encode()
    index = json.dumps({"metadata": {"total_size": 8}, "weight_map": {"w": "a.safetensors"}}).encode()

    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    keys = [
        text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama"),
        text(b"general.alignment") + struct.pack("<II", 4, 32),
        text(b"tokens") + struct.pack("<IIQ", 9, 8, 2) + text(b"a") + text(b""),
        text(b"layers") + struct.pack("<IIQ3i", 9, 5, 3, 1, 2, 3),
        text(b"split.count") + struct.pack("<IH", 2, 1),
    ]
    infos = [
        text(b"a") + struct.pack("<IQQIQ", 2, 32, 2, 8, 0),
        text(b"b") + struct.pack("<IQIQ", 1, 3, 0, 96),
    ]
    gguf = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(keys)) + b"".join(keys) + b"".join(infos)
    gguf += bytes(-len(gguf) % 32 + 128)
    return [
        bytes([FILE]) + framed(header) + bytes(2),
        bytes([FILE]) + framed(b"{}"),
        bytes([HEADER]) + header,
        bytes([INDEX]) + index,
        bytes([GGUF]) + gguf,
        bytes([GGUF]) + b"GGUF" + struct.pack("<IQQ", 2, 0, 0) + bytes(8),
    ]


def main() -> None:
    """Fuzz until the time is over or something is found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: 60; 0 is until stopped)")
    parser.add_argument("--corpus", type=Path, help="a folder that keeps the inputs for the next run")
    arguments = parser.parse_args()
    try:
        atheris = importlib.import_module("atheris")
    except ImportError:
        print("atheris is not installed, so nothing was fuzzed; `pip install atheris` brings it.")
        return

    with atheris.instrument_imports(include=["kvbudget"]):
        errors = importlib.import_module("kvbudget.errors")
        safetensors = importlib.import_module("kvbudget.headers.safetensors")
        gguf = importlib.import_module("kvbudget.headers.gguf")

    def one(data: bytes) -> None:
        kind, content = (data[0] % 4 if data else FILE), data[1:]
        source = Memory(framed(content) if kind == HEADER else content)
        try:
            if kind == INDEX:
                safetensors.read_index(source)
                return
            found = gguf.read_gguf(source) if kind == GGUF else safetensors.read_safetensors(source)
        except (errors.InputError, errors.CannotTell) as error:
            message = str(error)
            if not (message.isprintable() and message.startswith(f"{NAME}: ") and len(message) <= LONGEST_MESSAGE):
                raise AssertionError(message) from error
        else:
            if sum(tensor.nbytes for tensor in found.tensors) > len(source.content):
                raise AssertionError(found)

    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.corpus or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds()):
            (folder / f"seed-{number}").write_bytes(seed)
        limits = {
            "max_total_time": arguments.seconds,
            "max_len": LONGEST_INPUT,
            "timeout": SLOW_SECONDS,
            "rss_limit_mb": MEMORY_MIB,
        }
        atheris.Setup([sys.argv[0], *(f"-{key}={value}" for key, value in limits.items()), str(folder)], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
