"""Every block of docs/by-hand.md runs, in order, and says what the page says."""

from __future__ import annotations

import doctest
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from kvbudget.cli_textbook import kv, lab

if TYPE_CHECKING:
    from collections.abc import Iterator

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "by-hand.md"
COMMANDS = click.Group("kvbudget", commands=[kv, lab])

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A code block: its language, its text, and the line of the page on which the text begins."""

    language: str
    text: str
    line: int


def blocks() -> Iterator[Block]:
    page = PAGE.read_text(encoding="utf-8")
    for match in _BLOCK.finditer(page):
        yield Block(language=match[1], text=match[2], line=page.count("\n", 0, match.start(2)) + 1)


def printed_by(command: str) -> str:
    """Return what a command of the page prints to stdout; `cat` shows a file that an earlier one wrote."""
    name, *args = shlex.split(command.replace("\\\n", " "))
    if name == "cat":
        return "".join(Path(file).read_text(encoding="utf-8") for file in args)
    assert name == "kvbudget", f"the page runs {name!r}, which this test does not know"
    result = CliRunner().invoke(COMMANDS, args, prog_name=name)
    assert result.exception is None, result.output
    return result.stdout


def check_console(block: Block) -> None:
    found = "".join(f"$ {command}\n{printed_by(command)}" for command, _ in _COMMAND.findall(block.text))
    assert found == block.text, f"{PAGE.name}:{block.line}"


def check_python(block: Block, names: dict[str, Any]) -> None:
    lines_above = "\n" * (block.line - 1)  # so that a failure points at the page
    exec(compile(lines_above + block.text, str(PAGE), "exec"), names)  # noqa: S102 - our own page


def check_pycon(block: Block, names: dict[str, Any]) -> None:
    test = doctest.DocTestParser().get_doctest(block.text, names, PAGE.name, str(PAGE), block.line - 1)
    assert test.examples, f"{PAGE.name}:{block.line} has no example"
    report: list[str] = []
    results = doctest.DocTestRunner(verbose=False).run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert results.failed == 0, "".join(report)


def test_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks, top to bottom, in one namespace and one empty folder."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "by_hand"}
    ran: list[str] = []
    for block in blocks():
        match block.language:
            case "console":
                check_console(block)
            case "python":
                check_python(block, names)
            case "pycon":
                check_pycon(block, names)
            case "text":
                continue
            case other:
                pytest.fail(f"{PAGE.name}:{block.line} is {other!r}, which this test does not run")
        ran.append(block.language)

    assert {"console", "python", "pycon"} <= set(ran)


def test_no_block_escapes() -> None:
    """Every fence of the page belongs to a block that was found."""
    fences = PAGE.read_text(encoding="utf-8").count("```")

    assert fences == 2 * len(list(blocks())) > 0


def test_pictures_exist() -> None:
    """Each picture is there and tells its content to those who cannot see it."""
    pictures = re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8"))

    assert pictures
    for alternative, path in pictures:
        svg = (DOCS / path).read_text(encoding="utf-8")
        assert len(alternative) > 20
        assert "<title" in svg
        assert "<desc" in svg
