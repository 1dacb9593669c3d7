"""The worked exercise: its files to the byte, its function, and what is never overwritten."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from kvbudget import textbook
from kvbudget.cli_textbook import lab
from kvbudget.errors import AccessError, InputError
from kvbudget.lab import lab_files, write_lab

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

EXPECTED: Mapping[str, bytes] = {
    "base.txt": b"bytes=2147483648 gib=2.00\n",
    "long.txt": b"bytes=68719476736 gib=64.00\n",
    "gqa.txt": b"bytes=8589934592 gib=8.00\n",
    "int8.txt": b"bytes=4294967296 gib=4.00\n",
    "fit.txt": (b"gpu_gib=80 weights_gib=14 overhead_gib=6 kv_budget_gib=60 per_req_gib=2.00 max_concurrent=30\n"),
    "kv_table.csv": (
        b"context,batch,gib\n"
        b"4096,1,2.00\n"
        b"4096,8,16.00\n"
        b"32768,1,16.00\n"
        b"32768,8,128.00\n"
        b"131072,1,64.00\n"
        b"131072,8,512.00\n"
    ),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture(scope="module")
def exercise(tmp_path_factory: pytest.TempPathFactory) -> Any:  # noqa: ANN401 - a module made at run time
    """The exercise's kv.py, imported on its own."""
    folder = tmp_path_factory.mktemp("lab")
    write_lab(folder)
    spec = importlib.util.spec_from_file_location("exercise_kv", folder / "kv.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_files_to_the_byte(tmp_path: Path) -> None:
    """Seven files, each with just its content."""
    paths = write_lab(tmp_path / "new" / "folder")
    found = contents(tmp_path / "new" / "folder")

    assert [path.name for path in paths] == [
        "kv.py",
        "base.txt",
        "long.txt",
        "gqa.txt",
        "int8.txt",
        "fit.txt",
        "kv_table.csv",
    ]
    assert sorted(found) == sorted(["kv.py", *EXPECTED])
    assert {name: found[name] for name in EXPECTED} == EXPECTED


def test_twice_is_the_same(tmp_path: Path) -> None:
    """A second run changes nothing, not even the time of a file."""
    write_lab(tmp_path)
    before = contents(tmp_path)
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    write_lab(tmp_path)

    assert contents(tmp_path) == before
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == times


def test_kv_py_needs_nothing(tmp_path: Path) -> None:
    """It runs in an isolated interpreter that has no packages."""
    write_lab(tmp_path)
    code = "import kv; print(kv.kv_bytes(32, 4096, 131072, 1, 2, kv_groups=8))"
    done = subprocess.run(
        [sys.executable, "-S", "-B", "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "8589934592\n"


@given(
    st.integers(1, 200),
    st.integers(1, 1 << 12),
    st.integers(1, 64),
    st.integers(1, 1 << 21),
    st.integers(1, 1024),
    st.sampled_from([1, 2, 4]),
)
def test_kv_py_is_the_textbook(
    exercise: Any,  # noqa: ANN401
    layers: int,
    width: int,
    groups: int,
    seq: int,
    batch: int,
    size: int,
) -> None:
    """The function of the exercise and that of the package never differ."""
    args = (layers, width * groups, seq, batch, size, groups)

    assert exercise.kv_bytes(*args) == textbook.kv_bytes(*args)


@pytest.mark.parametrize(
    "args", [(32, 4096, 1, 1, 2, 3), (0, 4096, 1, 1, 2), (32, 4096, -1, 1, 2), (32, 4096, 1, 1, 2, 0)]
)
def test_kv_py_refuses_what_the_textbook_refuses(exercise: Any, args: tuple[int, ...]) -> None:  # noqa: ANN401
    with pytest.raises(ValueError, match=r"."):
        exercise.kv_bytes(*args)
    with pytest.raises(InputError):
        textbook.kv_bytes(*args)


def test_own_work_is_kept(tmp_path: Path) -> None:
    """A file with other content is not touched, and none of the others is written."""
    (tmp_path / "int8.txt").write_text("my answer\n")

    with pytest.raises(InputError, match=r"int8\.txt' exists with other content"):
        write_lab(tmp_path)

    assert contents(tmp_path) == {"int8.txt": b"my answer\n"}


def test_overwrite(tmp_path: Path) -> None:
    (tmp_path / "int8.txt").write_text("my answer\n")
    write_lab(tmp_path, overwrite=True)

    assert contents(tmp_path)["int8.txt"] == EXPECTED["int8.txt"]


def make_folder(path: Path) -> None:
    path.mkdir()


def make_link(path: Path) -> None:
    (path.parent / "elsewhere").write_text("precious\n")
    path.symlink_to("elsewhere")


def make_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes need a POSIX system")
@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("make", [make_folder, make_link, make_dangling_link, make_pipe])
def test_what_is_no_regular_file_stays(tmp_path: Path, make: Any, overwrite: bool) -> None:  # noqa: ANN401
    make(tmp_path / "gqa.txt")
    before = sorted(path.name for path in tmp_path.iterdir())

    with pytest.raises(InputError, match=r"gqa\.txt' exists and is not a regular file"):
        write_lab(tmp_path, overwrite=overwrite)

    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_path_that_is_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("precious\n")

    with pytest.raises(InputError, match="is a file or lies below one"):
        write_lab(tmp_path / name)

    assert (tmp_path / "file").read_text() == "precious\n"


def test_name_that_cannot_be() -> None:
    with pytest.raises(InputError, match="cannot be a folder's name"):
        write_lab("a\0b")


@pytest.mark.skipif(sys.platform == "win32", reason="the limit is that of POSIX file systems")
def test_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="name another folder"):
        write_lab(tmp_path / ("a" * 300))


def test_lab_files_are_computed_once_and_alike() -> None:
    """The texts are a function of nothing, with plain line ends."""
    assert lab_files() == lab_files()
    assert not any("\r" in text for text in lab_files().values())
    assert all(text.endswith("\n") for text in lab_files().values())


def test_command(tmp_path: Path) -> None:
    """The command writes the files and shows them, at 80 columns."""
    result = CliRunner().invoke(lab, [str(tmp_path / "lab")])

    assert (result.exit_code, result.exception) == (0, None)
    assert contents(tmp_path / "lab") == {name: text.encode() for name, text in lab_files().items()}
    assert "base.txt      bytes=2147483648 gib=2.00\n" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_command_refuses_and_is_forced(tmp_path: Path) -> None:
    (tmp_path / "kv.py").write_text("mine\n")

    assert isinstance(CliRunner().invoke(lab, [str(tmp_path)]).exception, InputError)
    assert CliRunner().invoke(lab, [str(tmp_path), "--force"]).exit_code == 0
    assert (tmp_path / "kv.py").read_text() == lab_files()["kv.py"]
