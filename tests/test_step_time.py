"""Clocks: exact sums over steps, times near what was measured, fits that give back what they were made of."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget import Deployment, Model
from kvbudget.basis import Basis
from kvbudget.errors import CannotTell, InputError
from kvbudget.facts import step_times as facts
from kvbudget.facts.gpus import GPUS, find_gpu
from kvbudget.simulation.clock import Attended, Batch, StepCount, steps_until
from kvbudget.simulation.fitting import (
    FITTED,
    GUESSED,
    Line,
    Measured,
    bench_points,
    calibrate,
    fit_line,
    parse_points,
    parse_step_time,
    provenance,
)
from kvbudget.simulation.operations import ROUGH, card_rates, operations_of, roofline
from kvbudget.simulation.roofline import Roofline
from kvbudget.workload.spec import WorkloadSpec, parse_workload

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 10**12


@cache
def model(name: str) -> Model:
    return Model.from_pretrained(name)


@cache
def clock_of(name: str, gpu: str = "h100", tp: int = 1, kv: str = "auto") -> Roofline:
    return roofline(deployment(name, gpu, tp, kv))


def deployment(name: str, gpu: str = "h100", tp: int = 1, kv: str = "auto") -> Deployment:
    return Deployment(model=model(name), gpu=gpu, tensor_parallel_size=tp, max_model_len=8192, kv_cache_dtype=kv)


MODELS = ("llama-3.1-8b", "gemma-3-27b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-20b", "nemotron-h-8b")


def known() -> tuple[str, ...]:
    from kvbudget.facts.catalogue import MODELS as CATALOGUE  # noqa: PLC0415 - a large table

    return tuple(name for name in MODELS if any(row.name == name for row in CATALOGUE))


def decode(requests: int, context: int) -> Batch:
    return Batch(requests, requests, requests * context, requests * context)


def prefill(tokens: int) -> Batch:
    return Batch(tokens, 1, tokens, tokens * tokens // 2)


# --- laws --------------------------------------------------------------------------------------------------------


@given(
    name=st.sampled_from(known()), requests=st.integers(1, 300), context=st.integers(1, 6000), steps=st.integers(0, 60)
)
@settings(max_examples=150)
def test_decodes_are_the_sum_of_their_steps(name: str, requests: int, context: int, steps: int) -> None:
    clock = clock_of(name)
    held = requests * context
    each = [clock.step(decode(requests, context + number)) for number in range(steps)]
    assert clock.decodes(requests, held, steps) == sum(each)
    assert each == sorted(each), "steps grow longer with the context"


@given(
    windows=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(0, 9)), max_size=4),
    requests=st.integers(1, 9), held=st.integers(0, 500), steps=st.integers(0, 80),
)  # fmt: skip
@settings(max_examples=300)
def test_windows_fill_in_the_right_step(
    windows: list[tuple[int, int, int]], requests: int, held: int, steps: int
) -> None:
    clock = Roofline(Costed(tuple(Attended(*row) for row in windows)), source="", error=0)
    batches = [Batch(requests, requests, held + n * requests, held + n * requests) for n in range(steps)]
    assert clock.decodes(requests, held, steps) == sum(clock.step(batch) for batch in batches)


class Costed:
    """Costs of attention alone, and a picosecond."""

    def __init__(self, attended: tuple[Attended, ...]) -> None:
        self.attended = attended

    def seconds_of_tokens(self, tokens: int) -> float:
        return tokens / SECOND

    def seconds_of_requests(self, requests: int) -> float:
        return requests / SECOND


@given(
    name=st.sampled_from(known()), requests=st.integers(1, 64), context=st.integers(1, 6000),
    gap=st.integers(-5, 3 * SECOND),
)  # fmt: skip
@settings(max_examples=100)
def test_the_steps_that_fill_a_gap_are_the_fewest(name: str, requests: int, context: int, gap: int) -> None:
    clock = clock_of(name)
    steps = steps_until(clock.pace, requests, requests * context, gap, gap)
    assert clock.decodes(requests, requests * context, steps) >= gap
    assert steps == 0 or clock.decodes(requests, requests * context, steps - 1) < gap


@given(
    name=st.sampled_from(known()), tokens=st.integers(1, 9000), requests=st.integers(1, 500),
    context=st.integers(0, 10**6), pairs=st.integers(0, 10**8), which=st.integers(0, 3), more=st.integers(1, 5000),
)  # fmt: skip
@settings(max_examples=200)
def test_more_work_never_takes_less(
    name: str, tokens: int, requests: int, context: int, pairs: int, which: int, more: int
) -> None:
    batch = Batch(tokens, requests, context, pairs)
    larger = batch._replace(**{Batch._fields[which]: batch[which] + more})
    clock = clock_of(name)
    assert 0 < clock.step(batch) <= clock.step(larger)
    assert clock.step(Batch(0, 0, 0, 0)) == 0
    assert clock.wake(7) == 7


@pytest.mark.parametrize("name", known())
def test_more_cards_take_less(name: str) -> None:
    times = [clock_of(name, "h200", tp).step(decode(32, 2000)) for tp in (1, 2, 4, 8)]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.5 * times[-1]


# --- what was measured -------------------------------------------------------------------------------------------

OPERATIONS = [
    ("llama-3.1-8b", "h100", 1, (6.19, 8.46, 13.40)),
    ("llama-3.1-8b", "h200", 1, (4.87, 6.42, 10.36)),
    ("llama-3.1-70b", "h100", 4, (14.88, 17.05, 23.17)),
    ("llama-3.1-70b", "h200", 4, (12.28, 13.57, 18.43)),
    ("llama-3.1-70b", "h100", 8, (10.13, 11.06, 14.78)),
]
"""Milliseconds of all operations of a decoding step at 1,150 tokens of context and 1, 32 and 128 requests, summed from
the tables of aiconfigurator-core 0.12.0 for vLLM 0.24; without what the engine adds."""


@pytest.mark.parametrize(("name", "gpu", "tp", "measured"), OPERATIONS)
def test_operations_sum_to_what_was_measured(name: str, gpu: str, tp: int, measured: tuple[float, ...]) -> None:
    clock = clock_of(name, gpu, tp)
    for requests, milliseconds in zip((1, 32, 128), measured, strict=True):
        engine = facts.STEP_S + requests * facts.REQUEST_S
        ours = clock.step(decode(requests, 1150)) / SECOND - engine
        assert ours * 1000 == pytest.approx(milliseconds, rel=0.12), requests


@pytest.mark.parametrize(("tokens", "milliseconds"), [(1024, 22.1), (8192, 199.7)])
def test_a_prompt_takes_what_was_measured(tokens: int, milliseconds: float) -> None:
    """The same tables; a card that works for long is slower by `LASTING_SHARE`."""
    ours = clock_of("llama-3.1-8b").step(prefill(tokens)) / SECOND * 1000
    assert milliseconds < ours < 1.05 * milliseconds / facts.LASTING_SHARE


LOGGED = [
    ("llama-3.1-8b", 1, 128, 134096, 27.03),
    ("llama-3.1-8b", 1, 128, 137982, 26.32),
    ("llama-3.1-8b", 1, 128, 146908, 27.78),
    ("qwen3-32b", 2, 128, 122065, 58.82),
    ("qwen3-32b", 2, 128, 159335, 58.82),
    ("qwen3-32b", 2, 1, 1508, 25.00),
]
"""(model, ranks, requests, context, milliseconds) of seconds in which a real engine only decoded: vLLM 0.19 on RTX PRO
6000 (casys-kaist/LLMServingSim @5daddb21, requests by tokens a second)."""


@pytest.mark.parametrize(("name", "tp", "requests", "context", "milliseconds"), LOGGED)
def test_real_steps_lie_in_the_interval(name: str, tp: int, requests: int, context: int, milliseconds: float) -> None:
    clock = clock_of(name, "rtxpro6000", tp)
    ours = clock.step(Batch(requests, requests, context, context)) / SECOND * 1000
    assert ours == pytest.approx(milliseconds, rel=clock.error)
    assert clock.error == (facts.LOGGED if tp == 1 else ROUGH)


@pytest.mark.parametrize(("requests", "context", "milliseconds"), [(15, 23533, 20.00), (41, 43734, 26.94)])
def test_real_steps_of_a_card_that_was_not_measured_lie_in_the_wide_interval(
    requests: int, context: int, milliseconds: float
) -> None:
    """Llama-3.1-8B on an RTX 4090, from the same logs."""
    clock = clock_of("llama-3.1-8b", "rtx4090")
    assert "not measured" in clock.source
    assert clock.error == ROUGH
    ours = clock.step(Batch(requests, requests, context, context)) / SECOND * 1000
    assert ours == pytest.approx(milliseconds, rel=ROUGH)


def test_the_interval_says_what_is_known() -> None:
    assert clock_of("llama-3.1-8b", "rtxpro6000").error == 0.07
    assert clock_of("llama-3.1-8b", "h100").error == 0.15
    assert clock_of("llama-3.1-70b", "h100", 8).error == 0.15
    assert clock_of("llama-3.1-8b", "rtxpro6000", 2).error == 0.25, "the link is unknown"
    assert clock_of("qwen3-30b-a3b", "h100").error == 0.25, "experts are chosen as the text wants it"
    assert clock_of("llama-3.1-8b", "a10g").error == 0.25
    assert clock_of("llama-3.1-8b", "mi300x").error == 0.5, "no log of such a card"
    assert clock_of("deepseek-v3", "h200", 8).error == 0.5, "no log of such attention"


# --- shapes ------------------------------------------------------------------------------------------------------


def test_a_step_reads_the_weights_and_not_the_embeddings() -> None:
    d = deployment("llama-3.1-8b")
    operations = operations_of(d, card_rates(d.card, 1)[0])
    head = operations.head
    assert head is not None
    assert sum(product.parameters * count for product, count in operations.products) == 6_979_321_856
    assert head.parameters == 128_256 * 4096
    assert 2 * (6_979_321_856 + head.parameters) == (
        sum(product.read_bytes * count for product, count in operations.products) + head.read_bytes
    )
    assert sum(count for _, count in operations.products) == 4 * 32, "q, k and v are one call, gate and up too"
    assert [(window, read > 0) for window, read, _ in operations.attended] == [(0, True)]


def test_experts_are_read_as_tokens_reach_them() -> None:
    d = deployment("qwen3-30b-a3b")
    operations = operations_of(d, card_rates(d.card, 1)[0])
    ((experts, layers),) = operations.experts
    assert (experts.held, experts.total, experts.chosen, layers) == (128, 128, 8, 48)
    assert experts.parameters == 3 * 2048 * 768
    rate, one = operations.rates.experts, replace(operations, products=(), calls_s=0.0, token_bytes=0)
    few, many = (one.seconds_of_tokens(tokens) / layers - rate.call_s for tokens in (1, 200))
    assert few == pytest.approx(8 * experts.read_bytes / rate.bytes_per_s, rel=0.01)
    assert many == pytest.approx(128 * experts.read_bytes / rate.bytes_per_s, rel=0.02)


def test_smaller_caches_and_weights_take_less() -> None:
    wide, narrow = (clock_of("llama-3.1-8b", "h100", 1, kv) for kv in ("auto", "fp8"))
    assert narrow.costs.attended[0].read == pytest.approx(wide.costs.attended[0].read / 2, rel=0.001)
    packed = clock_of("qwen3-32b-fp8", "h100", 1).step(decode(1, 10))
    assert packed < 0.8 * clock_of("qwen3-32b", "h100", 1).step(decode(1, 10))


def test_windows_stop_growing() -> None:
    clock = clock_of("gemma-3-27b")
    windows = {window for window, _, _ in clock.costs.attended}
    assert windows == {0, 1024}
    near, far, farther = (clock.step(decode(64, context)) for context in (500, 3000, 5500))
    assert far - near > farther - far, "most layers have stopped"


# --- facts -------------------------------------------------------------------------------------------------------


def test_rates_are_below_the_peaks_of_their_card() -> None:
    names = {gpu.name for gpu in GPUS}
    assert len({row.card for row in facts.CARDS}) == len(facts.CARDS) >= 10
    for row in facts.CARDS:
        assert row.card in names
        assert len(row.source) > 20
        gpu = find_gpu(row.card)
        assert gpu.bandwidth_bytes_per_s
        assert gpu.bf16_flops
        for rate in (row.product, row.attention):
            assert 0.7 < rate.bytes_per_s / gpu.bandwidth_bytes_per_s < 1.01
            assert 1e-6 < rate.call_s < 1e-4
        assert 0.5 < row.product.flops / gpu.bf16_flops < 1
        assert 0.2 < row.attention.flops / gpu.bf16_flops < row.product.flops / gpu.bf16_flops
        assert row.eight_bit is None or 0.3 < row.eight_bit.flops / (gpu.fp8_flops or gpu.bf16_flops) < 1.01
        for _, link in row.all_reduce:
            assert link.bytes_per_s < (gpu.interconnect_bytes_per_s or 0)


def test_what_nobody_knows_is_refused() -> None:
    with pytest.raises(CannotTell, match=r"How fast a step is on RTX-3060-12GB is not known.*--step-time") as caught:
        roofline(deployment("llama-3.2-1b", "3060"))
    assert caught.value.key == "step_time"
    for layout in ({"pipeline_parallel_size": 2}, {"tensor_parallel_size": 16, "decode_context_parallel_size": 2}):
        (name,) = set(layout) - {"tensor_parallel_size"}
        with pytest.raises(CannotTell, match=f"--{name.replace('_', '-')} 2 is not known") as caught:
            roofline(deployment("llama-3.1-8b").replaced(**layout))
        assert caught.value.key == name
    with pytest.raises(CannotTell, match="link between two RTX-4090-24GB"):
        roofline(deployment("llama-3.1-8b", "rtx4090", 2))


# --- fits --------------------------------------------------------------------------------------------------------


@given(
    base=st.floats(1e-4, 0.1), per_token=st.floats(0, 1e-3), per_context=st.floats(0, 1e-6),
    points=st.lists(st.tuples(st.integers(1, 500), st.integers(0, 10**6)), min_size=4, max_size=12),
)  # fmt: skip
@settings(max_examples=150)
def test_a_line_gives_back_the_steps_it_was_made_of(
    base: float, per_token: float, per_context: float, points: list[tuple[int, int]]
) -> None:
    truth = Roofline(Line(base, per_token, per_context), source="", error=0)
    measured = [
        Measured(batch, truth.step(batch) / SECOND)
        for batch in (Batch(tokens, tokens, context, context) for tokens, context in points)
    ]
    fitted = fit_line(measured)
    for point in measured:
        assert fitted.step(point.batch) / SECOND == pytest.approx(point.seconds, rel=1e-3)
    assert fitted.error in (FITTED, GUESSED)


def test_a_fit_says_how_well_it_fits() -> None:
    assert fit_line(parse_points("1:8")).error == GUESSED
    assert fit_line(parse_points("1:8")).step(decode(5, 5)) == 8 * 10**9
    assert fit_line(parse_points("1:8,101:10")).error == GUESSED
    assert fit_line(parse_points("1:8,101:10")).step(decode(51, 5)) == pytest.approx(9 * 10**9)
    three = fit_line(parse_points("1:8,51:9,101:10"))
    assert three.error == FITTED
    assert three.source == "a line through 3 measured steps"
    assert fit_line(parse_points("1:8,51:12,101:10")).error > 0.1
    falling = fit_line(parse_points("1:10,51:9,101:8"))
    assert falling.step(decode(1, 1)) == falling.step(decode(500, 1)), "no cost is negative"
    with_context = fit_line(parse_points("1:1000:8,1:101000:9,51:1000:8.5,51:201000:10.5"))
    assert with_context.step(Batch(26, 26, 101000, 101000)) == pytest.approx(9.25 * 10**9, rel=1e-3)
    with pytest.raises(InputError, match="No measured steps"):
        fit_line(())


def test_steps_that_contradict_each_other_make_no_clock_of_negative_times() -> None:
    assert fit_line(parse_points("1:1,1:1.5")).error < 1
    with pytest.raises(InputError, match="contradict each other"):
        fit_line(parse_points("1:1," + ",".join(["1:5"] * 10)))
    clock = clock_of("llama-3.1-8b")
    once = clock.step(decode(1, 1000)) / SECOND
    with pytest.raises(InputError, match="contradict each other"):
        calibrate(clock, [Measured(decode(1, 1000), once), Measured(decode(1, 1000), 5 * once)])


def test_a_clock_is_held_to_measured_steps() -> None:
    clock = clock_of("llama-3.1-8b")
    batches = [decode(requests, 1000) for requests in (1, 16, 64)]
    slower = [Measured(batch, 1.2 * clock.step(batch) / SECOND) for batch in batches]
    held = calibrate(clock, slower, "bench.json")
    assert held.source == f"{clock.source}, times 1.2 as in bench.json"
    assert held.error == FITTED
    for batch in (*batches, prefill(3000)):
        assert held.step(batch) == pytest.approx(1.2 * clock.step(batch), rel=1e-4)
    uneven = calibrate(clock, [slower[0], slower[1]._replace(seconds=slower[1].seconds * 1.44)])
    assert uneven.error == pytest.approx(0.2, abs=1e-6)
    assert calibrate(clock, slower[:2]).error == clock.error, "two steps prove little"
    with pytest.raises(InputError, match="No measured steps to calibrate"):
        calibrate(clock, ())


BENCH = {
    "output_throughput": 2000.0, "total_input_tokens": 100_000, "total_output_tokens": 20_000, "completed": 100,
    "mean_tpot_ms": 16.0,
}  # fmt: skip


def test_a_benchmark_tells_its_mean_step(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(BENCH))
    (point,) = bench_points([path])
    assert point.seconds == 0.016
    assert point.batch == Batch(tokens=192, requests=32, context=35_200, pairs=115_200)


def test_a_file_may_hold_several_results(tmp_path: Path) -> None:
    path = tmp_path / "bench.jsonl"  # of --append-result
    path.write_text(json.dumps({**BENCH, "std_tpot_ms": float("nan")}) + "\n" + json.dumps(BENCH))
    points = bench_points([path])
    assert len(points) == 2
    assert points[0] == points[1]


@pytest.mark.parametrize("key", BENCH)
@pytest.mark.parametrize("value", [None, 0, "x", True, -1, 1e300])
def test_a_benchmark_without_times_is_refused(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**BENCH, key: value}))
    with pytest.raises(InputError, match=f"bench.json: has no {key} above zero"):
        bench_points([path])


def test_a_given_step_time_is_taken_as_it_is() -> None:
    clock = parse_step_time("8,20")
    assert clock.step(Batch(100, 5, 1, 1)) == 10 * 10**9
    for text in ("8", "8,x", "", "8,20,3", "nan,1", "-1,5", "0,0"):
        with pytest.raises(InputError):
            parse_step_time(text)


def test_every_clock_says_what_it_is_worth() -> None:
    assert provenance(parse_step_time("8,20")) == (Basis.GIVEN, "8 ms a step and 20 µs for each of its tokens", 0.0)
    assert provenance(StepCount()) == (Basis.ASSUMED, "time counted in steps", 0.0)
    estimated = provenance(clock_of("llama-3.1-8b"))
    assert (estimated.basis, estimated.error) == (Basis.ESTIMATED, 0.15)
    assert "vLLM 0.24.0" in estimated.source
    assert estimated.interval(2.0) == pytest.approx((1.7, 2.3))


@pytest.mark.parametrize("text", ["", "8", "x:8", "1:2:3:4", "1:0", "0:8", "1:-8", "1:nan", "1:inf", "1e99:8", "1:8,"])
def test_points_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"--step-points .* is not understood; write TOKENS:MS"):
        parse_points(text)


@given(st.text(alphabet="0123456789.:,e-", max_size=24))
def test_no_text_does_more_than_be_refused(text: str) -> None:
    try:
        points = parse_points(text)
    except InputError:
        return
    try:
        clock = fit_line(points)
    except InputError as error:
        assert "contradict each other" in str(error)  # noqa: PT017 - most texts do not
        return
    assert 0 < clock.error < 1
    assert clock.step(decode(1, 1)) >= 0


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-27b"])
def test_jumping_over_steps_takes_the_same_time(name: str) -> None:
    simulation = pytest.importorskip("kvbudget.simulation.simulate", reason="the scheduler is not here")
    scheduler = pytest.importorskip("kvbudget.simulation.settings").SchedulerSettings(num_gpu_blocks=1000)
    spec = WorkloadSpec(
        rate="20", requests="80", prompt_tokens="lognormal:400:2000:6000", output_tokens="uniform:1:300"
    )
    requests = list(parse_workload(spec).stream())
    jumped, plain = (
        simulation.simulate(requests, scheduler, clock_of(name), plainly=plainly) for plainly in (False, True)
    )
    assert list(jumped.finished) == list(plain.finished)
    assert list(jumped.first_token) == list(plain.first_token)
