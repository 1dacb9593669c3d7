"""`kvbudget check` on a real vLLM, end to end: a start that is refused, a quiet server, and a load that preempts.

    python bench/check_live.py --python VENV/bin/python --model TINY_FOLDER

The engine is vLLM's CPU build with a tiny model of random weights; it listens on the loopback interface alone, and
everything is bounded: the start, the load, and the time of it all. Exit 0 if all three answers are right.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent

START_S = 420
LOAD_S = 300
REQUESTS, PROMPT, OUTPUT = 32, 100, 400
BLOCKS, BLOCK, LENGTH = 65, 32, 1024
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--python", required=True, help="of an environment with vLLM's CPU build")
    parser.add_argument("--model", required=True, type=Path, help="a folder with a tiny config.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kvbudget-live-") as folder:
        return run(options.python, options.model.resolve(), Path(folder))


def run(python: str, model: Path, folder: Path) -> int:
    """Run the three scenes; return 0 if each was told right."""
    results = []
    log = folder / "refused.log"
    with server(python, model, log, LENGTH * 2, blocks=LENGTH // BLOCK + 1) as (_, process):
        process.wait(START_S)
    answer, code = check("--log", str(log))
    refused = [item for item in answer["findings"] if item["name"].startswith("refused:")]
    results.append(told("a start that is refused", code == 1 and bool(refused), refused[:1]))

    plan = folder / "plan.json"
    words = [str(model), "--gpu-memory", "16GiB", "--engine-version", "0.32", "--max-model-len", str(LENGTH)]
    words += ["--block-size", str(BLOCK), "--num-gpu-blocks-override", str(BLOCKS), "--max-num-seqs", "64"]
    words += ["--max-num-batched-tokens", "512", "--enforce-eager", "--gpu-memory-utilization", "0.9"]
    kvbudget("fit", *words, "--save-plan", str(plan))
    log = folder / "engine.log"
    with server(python, model, log, LENGTH) as (port, process):
        wait_until_up(port, process)
        metrics = f"http://127.0.0.1:{port}/metrics"
        answer, code = check(str(plan), "--log", str(log), "--metrics", metrics)
        quiet = [row for row in answer["rows"] if row["ok"] is False] + answer["findings"]
        results.append(told("a quiet server", code == 0, quiet))
        load(port, str(model))
        answer, code = check(str(plan), "--log", str(log), "--metrics", metrics)
        first = answer["findings"][:1]
        right = code == 1 and bool(first) and first[0]["name"] == "preemptions"
        results.append(told("a load that preempts", right, first))
        print(kvbudget("check", str(plan), "--log", str(log), "--metrics", metrics).stdout)
        print(kvbudget("check", str(plan), "--metrics", metrics, "--watch", "0.5", "--samples", "2").stdout[-400:])
    return 0 if all(results) else 1


def told(scene: str, right: bool, what: Any) -> bool:  # noqa: ANN401 - JSON
    print(f"{'ok  ' if right else 'MISS'}  {scene}: {json.dumps(what)[:600]}", flush=True)
    return right


def kvbudget(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line of this tree."""
    return subprocess.run(
        [sys.executable, "-m", "kvbudget", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def check(*arguments: str) -> tuple[dict[str, Any], int]:
    """Return the answer of `kvbudget check --json` and its exit code."""
    done = kvbudget("check", *arguments, "--json")
    if not done.stdout:
        raise SystemExit(f"kvbudget check: {done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found, done.returncode


class server:  # noqa: N801 - reads as a statement
    """A vLLM server on a free port of the loopback interface, its output in a file; ended with its children."""

    def __init__(self, python: str, model: Path, log: Path, length: int, blocks: int = BLOCKS) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        words = ["--host", "127.0.0.1", "--port", str(self.port), "--model", str(model), "--dtype", "bfloat16"]
        words += ["--load-format", "dummy", "--skip-tokenizer-init", "--enforce-eager", "--max-model-len", str(length)]
        words += ["--num-gpu-blocks-override", str(blocks), "--block-size", str(BLOCK), "--max-num-seqs", "64"]
        words += ["--max-num-batched-tokens", "512", "--gpu-memory-utilization", "0.9"]
        self.command = [python, "-m", "vllm.entrypoints.openai.api_server", *words]
        self.log = log

    def __enter__(self) -> tuple[int, subprocess.Popen[bytes]]:
        self.file = self.log.open("wb")
        self.process = subprocess.Popen(
            self.command,
            stdout=self.file,
            stderr=subprocess.STDOUT,
            env={**os.environ, **ENVIRONMENT, "VLLM_CACHE_ROOT": str(self.log.parent / "cache")},
            cwd=self.log.parent,
            start_new_session=True,
        )
        return self.port, self.process

    def __exit__(self, *_: object) -> None:
        for sign in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.process.pid, sign)
            except ProcessLookupError:
                break
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                continue
        self.file.close()


def wait_until_up(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until the server answers."""
    ends = time.monotonic() + START_S
    while time.monotonic() < ends and process.poll() is None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                return
        except (URLError, OSError):
            time.sleep(1)
    raise SystemExit(f"the server did not come up within {START_S} s (exit {process.poll()})")


def load(port: int, model: str) -> None:
    """Send all requests at once and wait for their answers."""

    def ask(number: int) -> None:
        chosen = random.Random(number)  # noqa: S311 - tokens of no meaning
        body = {
            "model": model,
            "prompt": [chosen.randrange(3, 1000) for _ in range(PROMPT)],
            "max_tokens": OUTPUT,
            "ignore_eos": True,
            "temperature": 0,
        }
        request = Request(
            f"http://127.0.0.1:{port}/v1/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urlopen(request, timeout=LOAD_S) as answer:  # noqa: S310
                answer.read()
        except OSError as error:
            print(f"request {number}: {error}", flush=True)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(REQUESTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LOAD_S)


if __name__ == "__main__":
    sys.exit(main())
