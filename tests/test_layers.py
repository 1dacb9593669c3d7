"""The one-way flow: a module imports only from its left, and only the edges read, write and print.

The order stands here once, as a table. A new module must be put into it, which is the moment to think where it belongs.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import kvbudget

ROOT = Path(kvbudget.__file__).parent
PACKAGE = "kvbudget"

ORDER: tuple[tuple[str, ...], ...] = (
    ("errors", "units", "basis"),
    ("facts.*",),
    ("textbook",),
    ("lab",),
    ("model.shapes",),
    ("model.build", "model.config", "model.module_names"),
    ("model.attention",),
    ("model.feed_forward",),
    ("model.mixers",),
    ("model.special",),
    ("model.tower_*",),
    ("model.towers",),
    ("model.encoder_decoder",),
    ("model.decoder",),
    ("model.legacy",),
    ("model.schemes", "model.stored"),
    ("model.quantization_methods",),
    ("model.quantization",),
    ("model.model",),
    ("model.gguf_mix",),
    ("model.what_if",),
    ("model.reader",),
    ("model.gguf_config",),
    ("model",),
    ("headers.*",),
    ("checkpoint",),
    ("placement", "parallel"),
    ("hub.*",),
    ("values",),
    ("speculation", "multimodal", "measured"),
    ("deployment",),
    ("engines.*",),
    ("budgeting",),
    ("suggestions", "grid", "explain.*", "calibration"),
    ("check.*",),
    ("workload", "workload.*"),
    ("simulation", "simulation.*"),
    ("emit.*",),
    ("present.*",),
    ("cli.*", "cli_*"),
    ("__main__",),
)
"""Left to right. A row is one place: its modules may import each other without a cycle. `x.*` is a package with all in
it, `x_*` every module whose name begins so."""

FACADE = "__init__"
"""The package itself: it names the public objects and imports each on first use, from anywhere."""

DOORS = {("model.model", "model.reader"), ("model.model", "model.what_if"), ("model.model", "hub")}
"""(module, module to its right): constructors of a type that import what builds it, inside the function."""

EDGES = ("cli", "cli_")
"""Where printing and click are at home."""

ON_DEMAND = {"simulation.dask_backend": {"asyncio", "joblib"}}
"""Modules that are made of an extra, which others import on use, and what they may load."""

FILES = {
    "headers": "reads",
    "hub": "reads and writes",
    "workload.files": "reads",
    "lab": "writes",
    "cli": "writes",
    "cli_": "writes",
    "check": "reads",
    "calibration": "reads and writes",
}
"""Where files are opened, and to what end."""

THIRD_PARTY = {"click"}
"""Installed packages that a module may import when it is imported itself, and only at the edges."""

SLOW = {
    "asyncio",
    "concurrent.futures",
    "ctypes",
    "email",
    "hashlib",
    "html",
    "http",
    "huggingface_hub",
    "importlib.metadata",
    "logging",
    "multiprocessing",
    "numpy",
    "random",
    "rich",
    "socket",
    "sqlite3",
    "ssl",
    "statistics",
    "tempfile",
    "tomllib",
    "typing_extensions",
    "unittest",
    "urllib.request",
    "xml",
}
"""What `fit` must not load: each costs a millisecond to a hundred."""

OPENERS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "fdopen"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One import of a module: what it names, on which line, and whether it runs when the module is imported."""

    target: str
    line: int
    at_import: bool


def matches(pattern: str, module: str) -> bool:
    """Return whether a row's entry stands for a module."""
    if pattern.endswith(".*"):
        return module == pattern[:-2] or module.startswith(pattern[:-1])
    if pattern.endswith("_*"):
        return module.startswith(pattern[:-1])
    return module == pattern


def place(module: str) -> int | None:
    """Return the row of a module, None if it has none; an entry that names it exactly wins over a package."""
    rows = [
        (pattern == module, row) for row, entry in enumerate(ORDER) for pattern in entry if matches(pattern, module)
    ]
    return max(rows)[1] if rows else None


def at_edge(module: str, edges: tuple[str, ...] | dict[str, str]) -> bool:
    """Return whether a module is one of `edges`, in the package of that name, or begins with `name_`."""
    return any(module == e or module.startswith((f"{e}.", e) if e.endswith("_") else f"{e}.") for e in edges)


@cache
def sources() -> dict[str, ast.Module]:
    """Return module name -> syntax tree, names relative to the package."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or FACADE
        found[name] = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return found


def is_type_checking(node: ast.If) -> bool:
    """Return whether an `if` holds imports for the type checker alone."""
    test = node.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports(tree: ast.Module) -> list[Import]:
    """Return all imports that can run, those in functions too; `__future__` and TYPE_CHECKING ones cannot."""
    found: list[Import] = []

    def visit(node: ast.AST, *, at_import: bool) -> None:
        if isinstance(node, ast.If) and is_type_checking(node):
            for other in node.orelse:
                visit(other, at_import=at_import)
            return
        if isinstance(node, ast.Import):
            found.extend(Import(target=n.name, line=node.lineno, at_import=at_import) for n in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            found.extend(
                Import(target=f"{node.module}.{n.name}", line=node.lineno, at_import=at_import) for n in node.names
            )
        inner = at_import and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for child in ast.iter_child_nodes(node):
            visit(child, at_import=inner)

    visit(tree, at_import=True)
    return found


def own(target: str) -> str | None:
    """Return the module of this package that an import names, None if it is another package's."""
    if target.split(".", maxsplit=1)[0] != PACKAGE:
        return None
    parts = target.split(".")[1:]
    while parts and ".".join(parts) not in sources():
        parts.pop()
    return ".".join(parts) or FACADE


def test_every_module_has_a_place() -> None:
    """A new module is put into the table."""
    homeless = [name for name in sources() if name != FACADE and place(name) is None]
    assert homeless == []


@pytest.mark.parametrize("module", [name for name in sources() if name != FACADE])
def test_imports_come_from_the_left(module: str) -> None:
    """No module imports from its right, not even inside a function."""
    here = place(module)
    assert here is not None
    wrong = []
    for item in imports(sources()[module]):
        target = own(item.target)
        if target is None or target == module:
            continue
        if target == FACADE:  # its version and nothing else
            if item.target != f"{PACKAGE}.__version__":
                wrong.append(f"line {item.line}: {item.target} through the package's front door")
            continue
        there = place(target)
        if (module, target) in DOORS and not item.at_import:
            continue
        if there is None or there > here:
            wrong.append(f"line {item.line}: {target}")
    assert wrong == []


def test_no_cycles() -> None:
    """Modules of one place do not import each other in a ring."""
    graph = {
        module: {
            target
            for item in imports(tree)
            if (target := own(item.target)) not in (None, FACADE, module) and (module, target) not in DOORS
        }
        for module, tree in sources().items()
        if module != FACADE
    }
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"a ring of imports: {' -> '.join(map(str, error.args[1]))}")
    assert set(graph) <= set(order)


@pytest.mark.parametrize("module", sources())
def test_nothing_prints_but_the_edges(module: str) -> None:
    """`print`, `sys.stdout` and click belong to the command line."""
    if at_edge(module, EDGES):
        return
    tree = sources()[module]
    calls = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "input")
    ]
    streams = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("stdout", "stderr", "stdin", "exit")
        and isinstance(node.value, ast.Name)
        and node.value.id == "sys"
    ]
    clicks = [item.line for item in imports(tree) if item.target.split(".")[0] == "click"]
    assert (calls, streams, clicks) == ([], [], [])


@pytest.mark.parametrize("module", sources())
def test_files_are_opened_at_the_edges(module: str) -> None:
    """Reading and writing files belongs to the hub, the exercise and the command line."""
    if at_edge(module, FILES):
        return
    found = [
        (node.lineno, name)
        for node in ast.walk(sources()[module])
        if isinstance(node, ast.Call)
        and (name := getattr(node.func, "id", None) or getattr(node.func, "attr", None)) in OPENERS
    ]
    assert found == []


@pytest.mark.parametrize("module", sources())
def test_light_at_import(module: str) -> None:
    """Importing a module loads no other package but click, at the edges, and nothing slow of Python's own."""
    allowed = set(sys.stdlib_module_names) | {PACKAGE} | (THIRD_PARTY if at_edge(module, EDGES) else set())
    on_demand = ON_DEMAND.get(module, set())
    wrong = [
        f"line {item.line}: {item.target}"
        for item in imports(sources()[module])
        if item.at_import
        and item.target.split(".")[0] not in on_demand
        and (
            item.target.split(".")[0] not in allowed
            or any(item.target == slow or item.target.startswith(f"{slow}.") for slow in SLOW)
        )
    ]
    assert wrong == []


@pytest.mark.parametrize("module", ON_DEMAND)
def test_what_is_made_of_an_extra_is_imported_on_use(module: str) -> None:
    eager = [
        name
        for name, tree in sources().items()
        if any(item.at_import and f"{item.target}.".startswith(f"{PACKAGE}.{module}.") for item in imports(tree))
    ]
    assert eager == []


LOADED = """
import json, sys
from kvbudget.cli import main
try:
    main({arguments!r})
except SystemExit as leaving:
    code = leaving.code
print(json.dumps({{"code": code, "modules": sorted(sys.modules)}}), file=sys.stderr)
"""


def loaded_by(*arguments: str) -> set[str]:
    """Return the modules that a fresh process has loaded after one call of the command line."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(arguments=list(arguments))],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answer = json.loads(done.stderr.splitlines()[-1])
    assert answer["code"] in (0, None), done.stderr
    return set(answer["modules"])


@pytest.fixture(scope="module")
def small_config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a small dense model's config."""
    path = tmp_path_factory.mktemp("model") / "config.json"
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    path.write_text(json.dumps({"model_type": "llama", "vocab_size": 512, **sizes, "max_position_embeddings": 4096}))
    return path


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_fit_loads_nothing_slow(small_config: Path, output: tuple[str, ...]) -> None:
    """The main job on a local file starts without the slow modules, and without what only other paths need."""
    others = ("facts.catalogue", "textbook", "lab", "cli_textbook", "grid", "explain", "model.mixers", "model.towers")
    needless = SLOW | {"decimal", "fractions"} | {f"{PACKAGE}.{name}" for name in others}
    before = loaded_by("--version")  # what click itself loads in this environment is not this package's doing
    loaded = loaded_by("fit", str(small_config), "--gpu-memory", "80GiB", *output)
    assert f"{PACKAGE}.budgeting" in loaded
    assert sorted((loaded - before) & needless) == []


def test_the_library_never_loads_the_command_line() -> None:
    """All public names come without the command line and without click."""
    code = "import sys, kvbudget as kb; [getattr(kb, name) for name in kb.__all__]; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = done.stdout.split()
    assert f"{PACKAGE}.budgeting" in loaded
    assert [name for name in loaded if name.split(".")[0] == "click" or name.startswith(f"{PACKAGE}.cli")] == []
