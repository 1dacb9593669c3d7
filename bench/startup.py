"""How long a cold `kvbudget fit` and 1,000 budgets in one process take, beside other planners from PyPI.

Two figures for each tool, on the same config, the same machine and in the same run:

- *cold*: CPU seconds (user + system) of one call of its command line in a fresh process, median of several. The calls
  are interleaved, so that a busy minute of the machine meets all tools alike.
- *1,000 budgets*: CPU seconds of 1,000 different context lengths in one process through its Python interface, imports
  and the reading of the model left out, the best of a few rounds, interleaved likewise.

Every tool gets a virtual environment of its own in a temporary folder, where pip compiles its bytecode; this project is
installed there from its source tree in the same way. Without `--peers` only this project is measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import venv
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parent.parent

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "hidden_act": "silu",
}
"""An 8B model with grouped-query attention, which every planner knows."""

PARAMETERS = 8_030_261_248
WEIGHT_BYTES = 2 * PARAMETERS
CONTEXT = 32768
SCENARIOS = 1000

TIMED = """
import json, sys, time
path, scenarios = sys.argv[1], int(sys.argv[2])
contexts = [1024 + 32 * i for i in range(scenarios)]
{setup}
one(1000)
started = time.process_time()
for context in contexts:
    one(context)
print(json.dumps(time.process_time() - started))
"""
"""The loop that times a tool's Python interface; `setup` defines `one(context)`, one budget. No context comes twice, so
that remembered answers help nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One planner.

    Args:
        name: Its name on PyPI.
        cold: Its command line, as arguments to its environment's Python: (config path, local hub's address) -> list.
        setup: Python that defines `one(context)` from the config at `path`, "" if it has no such interface.
        skip: Why it is not measured, "" if it is.
        note: What a reader must know to compare fairly.
    """

    name: str
    cold: Callable[[Path, str], list[str]] = lambda _path, _hub: []
    setup: str = ""
    skip: str = ""
    note: str = ""


def script(name: str, *arguments: str) -> list[str]:
    """Return a call of an installed console script, which is how people start it."""
    return [f"{{bin}}/{name}", *arguments]


OURS = Tool(
    name="kvbudget",
    cold=lambda path, _: script("kvbudget", "fit", str(path), "--gpu", "h100", "--max-model-len", "32K"),
    setup="""
from kvbudget import Deployment, budget, find_gpu
from kvbudget.hub import load_model
model, gpu = load_model(path), find_gpu("h100")
def one(context):
    return budget(Deployment(model=model, gpu=gpu, max_model_len=context)).kv.max_concurrency
""",
)

PEERS = (
    Tool(
        name="kvfit",
        cold=lambda _, hub: [
            "{bin}/python",
            "-c",
            f"import sys, kvfit.hf as h; h.HF_BASE = {hub!r}; from kvfit.cli import main; sys.exit(main())",
            *("bench/llama", "--hardware", "custom:79.19", "--gpus", "1", "--context", str(CONTEXT)),
        ],
        setup=f"""
from kvfit.architectures import estimate_cache
from kvfit.hardware import Hardware
from kvfit.planner import plan_topologies
config, gpu = json.load(open(path)), Hardware(id="h100", label="H100", memory_gib=79.19)
def one(context):
    cache = estimate_cache(config, context_tokens=context)
    return plan_topologies(cache, weight_bytes={WEIGHT_BYTES}, hardware=gpu, gpus=1, utilization=0.92)
""",
        note="reads hub ids only: served over HTTP from this process, and the two requests are part of its cold call",
    ),
    Tool(
        name="vramcalc",
        cold=lambda path, _: script("vramcalc", str(path), "--seq", str(CONTEXT), "--gpu", "79.19"),
        setup="""
from vramcalc import estimate
config = json.load(open(path))
def one(context):
    return estimate(config, seq_len=context).fits(79.19)
""",
        note="Llama-like models only; no engine, no concurrency",
    ),
    Tool(
        name="vramscout",
        cold=lambda path, _: script(
            "vramscout", str(path), "--engine", "vllm", "--vram-gib", "79.19", "--context", str(CONTEXT)
        ),
        setup="""
from vramscout import plan_modern
def one(context):
    return plan_modern(path, context=context, vram_gib=79.19, engine="vllm")
""",
        note="its Python interface reads the config for every budget",
    ),
    Tool(name="hf-mem", skip="asks the hub on every call; it has no local mode and its address cannot be changed"),
    Tool(name="llm-d-planner", skip="asks the hub on every call; it has no local mode"),
)


@dataclass(slots=True)
class Result:
    """What was measured of one tool."""

    tool: Tool
    version: str = ""
    skipped: str = ""
    calls: list[float] = field(default_factory=list)
    rounds: list[float] = field(default_factory=list)

    @property
    def cold(self) -> float | None:
        """The median of its cold calls, in CPU seconds."""
        return statistics.median(self.calls) if self.calls else None

    @property
    def budgets(self) -> float | None:
        """The best of its rounds of 1,000 budgets, in CPU seconds."""
        return min(self.rounds, default=None)


class Hub(BaseHTTPRequestHandler):
    """The least of a model hub that a planner asks for: one model's metadata and its config."""

    def do_GET(self) -> None:
        """Answer with the config or the metadata."""
        if self.path.startswith("/api/models/"):
            body: dict[str, Any] = {
                "id": "bench/llama",
                "sha": "0" * 40,
                "safetensors": {"parameters": {"BF16": PARAMETERS}, "total": PARAMETERS},
                "siblings": [
                    {"rfilename": "config.json", "size": 1000},
                    {"rfilename": "model.safetensors", "size": WEIGHT_BYTES},
                ],
            }
        elif self.path.split("?")[0].endswith("/config.json"):
            body = CONFIG
        else:
            self.send_error(404)
            return
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def local_hub() -> Iterator[str]:
    """Serve the model on the loopback interface; yield the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def install(what: str, folder: Path) -> Path:
    """Install a requirement into a new virtual environment; return the folder of its programs.

    Raises:
        subprocess.CalledProcessError: pip could not.
    """
    venv.create(folder, with_pip=True)
    binaries = folder / ("Scripts" if os.name == "nt" else "bin")
    pip = [str(binaries / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what]
    subprocess.run(pip, check=True, capture_output=True, text=True, timeout=600)
    return binaries


def installed_version(binaries: Path, name: str) -> str:
    """Return the version that an environment holds."""
    code = f"from importlib.metadata import version; print(version({name!r}))"
    done = subprocess.run([str(binaries / "python"), "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """Return an environment that does not reach into the tools' own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    return {**kept, "HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "COLUMNS": "80"}


def call(arguments: list[str]) -> float:
    """Return the CPU seconds that one call costs, its children's included.

    Raises:
        RuntimeError: It did not give an answer.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment(), timeout=120)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0 or not done.stdout:
        raise RuntimeError((done.stderr or done.stdout).strip()[-300:] or f"exit code {done.returncode}, no output")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def time_budgets(binaries: Path, tool: Tool, path: Path) -> float:
    """Return the CPU seconds of 1,000 budgets in one process."""
    code = TIMED.format(setup=tool.setup)
    arguments = [str(binaries / "python"), "-c", code, str(path), str(SCENARIOS)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=environment(), timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip()[-300:])
    return float(json.loads(done.stdout.splitlines()[-1]))


def measure(tools: tuple[Tool, ...], runs: int, rounds: int, say: Callable[[str], None]) -> list[Result]:
    """Install all tools, then measure them in turn."""
    results = [Result(tool, skipped=tool.skip) for tool in tools]
    with tempfile.TemporaryDirectory() as scratch, local_hub() as hub:
        config = Path(scratch) / "model" / "config.json"
        config.parent.mkdir()
        config.write_text(json.dumps(CONFIG, indent=2))
        ready: list[tuple[Result, Path, list[str]]] = []
        for result in results:
            if result.skipped:
                continue
            tool = result.tool
            say(f"installing {tool.name}")
            try:
                binaries = install(str(ROOT) if tool is OURS else tool.name, Path(scratch) / tool.name)
                result.version = installed_version(binaries, tool.name)
                arguments = [part.replace("{bin}", str(binaries)) for part in tool.cold(config, hub)]
                call(arguments)  # the first call fills the file cache
            except (subprocess.SubprocessError, RuntimeError) as error:
                detail = getattr(error, "stderr", None) or str(error)
                result.skipped = f"does not run here: {' '.join(detail.split())[-200:]}"
                continue
            ready.append((result, binaries, arguments))
        for number in range(runs):
            say(f"cold calls, round {number + 1} of {runs}")
            for result, _, arguments in ready:
                result.calls.append(call(arguments))
        for number in range(rounds):
            say(f"1,000 budgets, round {number + 1} of {rounds}")
            for result, binaries, _ in ready:
                result.rounds.append(time_budgets(binaries, result.tool, config))
    return results


def as_dict(results: list[Result]) -> dict[str, Any]:
    """Return the results as plain data, with each peer's figure over ours."""
    ours = results[0]

    def ratio(value: float | None, base: float | None) -> float | None:
        return round(value / base, 3) if value is not None and base else None

    return {
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "scenarios": SCENARIOS,
        "tools": [
            {
                "name": r.tool.name,
                "version": r.version,
                "cold_cpu_s": r.cold,
                "cold_cpu_s_min": min(r.calls, default=None),
                "cold_cpu_s_max": max(r.calls, default=None),
                "cold_over_ours": ratio(r.cold, ours.cold),
                "budgets_cpu_s": r.budgets,
                "budgets_over_ours": ratio(r.budgets, ours.budgets),
                "note": r.tool.note,
                "skipped": r.skipped,
            }
            for r in results
        ],
    }


def as_text(plain: dict[str, Any]) -> str:
    """Return the results as a table."""

    def figure(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    lines = [
        f"Python {plain['python']}, {plain['machine']}; CPU seconds, ratios are each tool over kvbudget",
        "",
        f"{'tool':<22}{'cold':>8}{'(min-max)':>16}{'ratio':>8}{'1,000 budgets':>16}{'ratio':>8}",
    ]
    measured = [tool for tool in plain["tools"] if not tool["skipped"]]
    for tool in measured:
        spread = f"{tool['cold_cpu_s_min']:.3f}-{tool['cold_cpu_s_max']:.3f}"
        lines.append(
            f"{tool['name'] + ' ' + tool['version']:<22}{figure(tool['cold_cpu_s'], '.3f'):>8}{spread:>16}"
            f"{figure(tool['cold_over_ours'], '.2f'):>8}{figure(tool['budgets_cpu_s'], '.4f'):>16}"
            f"{figure(tool['budgets_over_ours'], '.2f'):>8}"
        )
    notes = [f"{tool['name']}: {tool['note']}" for tool in measured if tool["note"]]
    skipped = [f"{tool['name']}: not measured, {tool['skipped']}" for tool in plain["tools"] if tool["skipped"]]
    return "\n".join([*lines, "", *notes, *skipped]).rstrip()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--peers", action="store_true", help="install and measure other planners too")
    parser.add_argument("--runs", type=int, default=11, help="cold calls of each tool (default 11)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of 1,000 budgets (default 5)")
    parser.add_argument("--json", action="store_true", help="plain data instead of a table")
    options = parser.parse_args()
    tools = (OURS, *PEERS) if options.peers else (OURS,)
    results = measure(tools, options.runs, options.rounds, lambda text: print(text, file=sys.stderr))
    plain = as_dict(results)
    print(json.dumps(plain, indent=1) if options.json else as_text(plain))
    if results[0].skipped:
        sys.exit(f"kvbudget: {results[0].skipped}")


if __name__ == "__main__":
    main()
