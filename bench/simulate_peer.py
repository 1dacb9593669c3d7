"""Other simulators of the same workload, for `simulate.py --peer-python`; runs in a Python that has them installed.

    PYTHON bench/simulate_peer.py NAME < CASE.json

CASE has `requests` (arrival in seconds, prompt and output tokens), `blocks`, `block_size`, `seqs`, `tokens`, and
`step_ms`, what every step takes. Prints the processor seconds of the simulation alone, and the mean time to a whole
answer.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HASHED = 512
"""Tokens of a block of a Mooncake trace; each of ours is another one, so that nothing is shared."""


def dynamo(case: dict[str, Any]) -> dict[str, float]:
    """Replay through ai-dynamo-runtime's offline simulator."""
    from dynamo._core import run_mocker_trace_replay  # type: ignore[import-not-found]  # noqa: PLC0415

    # It adds the two times where a step has prompts and decodes, so the one for prompts is left out.
    engine = {
        "num_gpu_blocks": case["blocks"],
        "block_size": case["block_size"],
        "max_num_seqs": case["seqs"],
        "max_num_batched_tokens": case["tokens"],
        "timing_model": {"type": "fixed", "prefill_ms": 0.0, "decode_ms": case["step_ms"]},
    }
    named = 0
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "trace.jsonl")
        with trace.open("w", encoding="utf-8") as file:
            for arrival, prompt, output in case["requests"]:
                ids = list(range(named, named - -prompt // HASHED + 1))
                named += len(ids)
                row = {"timestamp": arrival * 1000, "input_length": prompt, "output_length": output, "hash_ids": ids}
                file.write(json.dumps(row) + "\n")
        began = time.process_time()
        told = run_mocker_trace_replay([str(trace)], {"engine": engine}, trace_block_size=HASHED).summary
        took = time.process_time() - began
    if told["completed_requests"] != len(case["requests"]):
        raise RuntimeError(f"{told['completed_requests']} of {len(case['requests'])} requests were answered")
    return {"cpu_s": took, "mean_e2e_ms": told["mean_e2e_latency_ms"]}


def sr_sim(case: dict[str, Any]) -> dict[str, float]:
    """Run through vllm-sr-sim's fleet of one engine, which knows requests and no steps."""
    from fleet_sim import Fleet, FleetConfig, PoolConfig, Request  # type: ignore[import-not-found]  # noqa: PLC0415
    from fleet_sim.gpu_profiles import ManualProfile  # type: ignore[import-not-found]  # noqa: PLC0415

    longest = max(prompt + output for _, prompt, output in case["requests"])
    gpu = ManualProfile(
        name="one",
        W=case["step_ms"] / 1000,
        H=0.0,
        chunk=case["tokens"],
        blk_size=case["block_size"],
        total_kv_blks=case["blocks"],
        max_slots=case["seqs"],
        cost_per_hr=1.0,
        calibration_ctx=longest,
    )
    fleet = Fleet(FleetConfig(pools=[PoolConfig("one", gpu, 1, longest)], router_type="RandomRouter"))
    arrivals = [
        (arrival, Request(number, arrival, prompt, output))
        for number, (arrival, prompt, output) in enumerate(case["requests"])
    ]
    began = time.process_time()
    told = fleet.run(arrivals)
    took = time.process_time() - began
    times = [request.e2e_latency for request in told.completed]
    return {"cpu_s": took, "mean_e2e_ms": 1000 * sum(times) / len(times)}


PEERS = {"dynamo": dynamo, "sr-sim": sr_sim}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(PEERS[sys.argv[1]](json.load(sys.stdin))) + "\n")
