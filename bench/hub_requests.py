"""How many requests a checkpoint on the hub takes, redirects counted, and how many the second time.

It asks the hub that HF_ENDPOINT names, with a cache of its own that is removed afterwards:

    HF_ENDPOINT=http://127.0.0.1:8899 python bench/hub_requests.py meta-llama/Llama-3.1-8B-Instruct …
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from typing import Any


def measure(reference: str, requests: list[str]) -> tuple[str, int, float]:
    """Return (what was read or refused, requests, seconds) of one call."""
    from kvbudget.errors import KvbudgetError  # noqa: PLC0415 - the environment is set first
    from kvbudget.hub import open_checkpoint  # noqa: PLC0415

    requests.clear()
    started = time.perf_counter()
    try:
        found = open_checkpoint(reference)
        said = f"{found.read}; {len(found.tensors or ()):,} tensors, {found.stored_bytes or 0:,} B"
    except KvbudgetError as error:
        said = str(error)
    return said, len(requests), time.perf_counter() - started


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("models", nargs="+", help="hub ids")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["HF_HOME"] = home
        from huggingface_hub import get_session  # noqa: PLC0415 - it reads the environment when it is imported

        requests: list[str] = []
        client: Any = get_session()
        client.event_hooks = {"request": [lambda request: requests.append(str(request.url))]}
        for reference in options.models:
            said, first, seconds = measure(reference, requests)
            _, second, again = measure(reference, requests)
            print(f"{reference}: {first} requests in {seconds:.2f} s, then {second} in {again:.2f} s; {said}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
