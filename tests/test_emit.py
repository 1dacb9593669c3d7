"""Rules, dashboards and scaling from a plan: promtool takes the rules, and they fire on what was recorded.

`KVBUDGET_UPDATE_GOLDEN=1 pytest tests/test_emit.py` rewrites the files; read the difference before keeping it.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import subprocess
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvbudget.budgeting import budget
from kvbudget.check import Metrics, Plan, plan_from, plan_of, read_metrics
from kvbudget.check.promql import checked_selector
from kvbudget.cli import main
from kvbudget.deployment import Deployment
from kvbudget.emit import as_yaml, dashboard, limits_of, rules, scaled_object
from kvbudget.emit.keda import kubernetes_name
from kvbudget.emit.promql import range_pattern
from kvbudget.errors import CannotTell, InputError, KvbudgetError
from kvbudget.facts.metric_names import METRIC_NAMES
from kvbudget.hub import load_model

yaml: Any = import_module("yaml")  # its types are another package
HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
PROMTOOL = shutil.which("promtool")

asks_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool (Debian's package prometheus) is not here")

EXPECTED: dict[str, Any] = {
    "kv_used": {"p95": 0.61, "max": 0.7},
    "preemptions": 3,
    "simulated_s": 600.0,
    "waiting": {"max": 12},
}

HOSTILE = (
    '{{ printf "%s" $labels }}',
    "{",
    "}}{{",
    "{{{{",
    "'; DROP",
    '"\n- alert: x',
    "a: b # c",
    "\x00\x1b[31m\x85\u2028",
    "\ud800",
    "😀" * 300,
    "",
    "yes",
    "$labels ${datasource}",
    "\\",
    "%s %d `",
    "../" * 50,
    "a\u2028b\u3000\ufeff\U000e0001",
)


@cache
def small(**choices: Any) -> Plan:  # noqa: ANN401 - any choice
    """Return a plan whose cache is the recorded one: 129 blocks of 32 tokens."""
    cut = {"block_size": 32, "num_gpu_blocks_override": 129, "max_model_len": 1024, **choices}
    return plan_of(budget(Deployment(model=load_model("llama-3.1-8b"), gpu="h100", engine_version="0.32", **cut)))


def changed(base: Plan, part: str, **values: Any) -> Plan:  # noqa: ANN401 - any JSON
    return Plan(path="plan.json", document={**base.document, part: {**base.document[part], **values}})


def expecting(**expectation: Any) -> Plan:  # noqa: ANN401 - any JSON
    return changed(small(), "expectation", **expectation)


def alert(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(rule for rule in found["groups"][0]["rules"] if rule["alert"] == name)


def names(found: dict[str, Any]) -> list[str]:
    return [rule["alert"].removeprefix("Kvbudget") for rule in found["groups"][0]["rules"]]


# -- thresholds


def test_thresholds_without_an_expectation() -> None:
    found = rules(small())
    assert names(found) == ["CacheNearlyFull", "Preemptions", "QueueGrows", "CapacityChanged"]
    assert alert(found, "KvbudgetCacheNearlyFull")["expr"].endswith(" > 0.9")
    assert alert(found, "KvbudgetPreemptions")["expr"].endswith(" > 0")
    assert " > 5 and deriv(" in alert(found, "KvbudgetQueueGrows")["expr"]


def test_thresholds_of_an_expectation() -> None:
    found = rules(expecting(**EXPECTED))
    assert alert(found, "KvbudgetCacheNearlyFull")["expr"].endswith(" > 0.9")
    assert alert(found, "KvbudgetCacheAbovePlan")["expr"].endswith(" > 0.66")
    assert alert(found, "KvbudgetPreemptions")["expr"].endswith(" > 0.015")  # 3 in 600 s, and 0.01 of room
    assert " > 17 and deriv(" in alert(found, "KvbudgetQueueGrows")["expr"]


@pytest.mark.parametrize(
    ("p95", "full", "above"), [(0.2, 0.9, True), (0.849, 0.9, True), (0.85, 0.9, False), (0.91, 0.96, False),
                               (1.0, 0.98, False)]
)  # fmt: skip
def test_a_plan_that_expects_a_full_cache_moves_the_line(p95: float, full: float, above: bool) -> None:
    plan = expecting(kv_used={"p95": p95})
    assert limits_of(plan).kv_full == pytest.approx(full)
    assert ("CacheAbovePlan" in names(rules(plan))) is above


def test_every_name_of_every_version_is_asked() -> None:
    text = as_yaml(rules(small()))
    for row in METRIC_NAMES:
        if row.engine == "vllm" and row.meaning in ("kv_usage", "waiting", "preemptions", "cache_config"):
            assert all(name in text for name in row.names), row.meaning


@pytest.mark.parametrize(
    "nonsense", [float("nan"), float("inf"), -1, "x", None, True, [], {}, {"p95": "x"}, 10**400, {"p95": 10**400}]
)
def test_an_expectation_of_nonsense_counts_as_none(nonsense: object) -> None:
    plan = expecting(**dict.fromkeys(("kv_used", "preemptions", "preemptions_per_s", "simulated_s"), nonsense))
    assert rules(plan) == rules(expecting())


# -- the size of the cache, as a pattern


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.lists(st.integers(0, 10**12)))
def test_a_range_as_a_pattern(one: int, other: int, more: list[int]) -> None:
    low, high = sorted((one, other))
    pattern = re.compile(range_pattern(low, high))
    near = [end + step for end in (low, high) for step in (-11, -10, -1, 0, 1, 9, 10)]
    for number in [*near, *more, 10 ** len(str(low)), low * 10, high * 10, high // 10, (low + high) // 2]:
        if number >= 0:
            assert bool(pattern.fullmatch(str(number))) is (low <= number <= high), number
    assert len(pattern.pattern) < 600


@given(st.integers(0, 1200), st.integers(0, 1200))
@settings(max_examples=20)
def test_a_short_range_number_by_number(one: int, other: int) -> None:
    low, high = sorted((one, other))
    pattern = re.compile(range_pattern(low, high))
    assert [n for n in range(1400) if pattern.fullmatch(str(n))] == list(range(low, high + 1))


# -- foreign text


TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]))
KEYS = st.text("abno_yes :#-{1", max_size=5)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    )
)
def test_yaml_is_what_it_was(value: Any) -> None:  # noqa: ANN401 - plain data
    """Another reader, PyYAML, takes what is written for what it was."""
    assert yaml.safe_load(as_yaml(value)) == value


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_stay_text(name: str) -> None:
    plan = changed(small(), "model", name=name)
    found = rules(plan)
    assert yaml.safe_load(as_yaml(found)) == found
    json.loads(json.dumps(dashboard(plan)))
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", kubernetes_name(name))
    scaled = scaled_object(plan)
    assert yaml.safe_load(as_yaml(scaled)) == scaled
    for text in (as_yaml(found), as_yaml(scaled)):
        assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    "selector",
    [
        "x",
        "a=b",
        'a="b"}',
        'a="b"} or vector(1) #',
        'a="b',
        'a="\\""',
        'a="b" c="d"',
        'a="\n"',
        "a" * 2000,
        'a=~"*"',
        'a=~"b**"',
        'a=~"("',
        'a=~"x*+"',
        'a=~"x++"',
    ],
)
def test_what_is_no_selector(selector: str) -> None:
    with pytest.raises(InputError, match="--selector"):
        rules(small(), selector)


def test_a_selector_is_on_every_series() -> None:
    labels = checked_selector(' namespace="prod", job!~"x|y.+" ')
    text = (
        as_yaml(rules(small(), labels))
        + as_yaml(scaled_object(small(), labels))
        + json.dumps(dashboard(small(), labels))
    )
    watched = [name for name in re.findall(r"vllm:\w+", text) if name != "vllm:cache_config_info"]
    assert len(watched) == text.replace("\\", "").count('namespace="prod"')


# -- what is refused


def test_a_plan_that_does_not_fit() -> None:
    plan = plan_of(budget(Deployment(model=load_model("llama-3.1-8b"), gpu="l4", max_model_len=131072)))
    with pytest.raises(InputError, match="does not fit"):
        rules(plan)


@pytest.mark.parametrize(
    "bounds", [None, [], [1], [3, 2], [0, 0], [1.0, 2.0], [True, True], [-1, 5], [1, 10**40], "ab"]
)
def test_damaged_bounds(bounds: object) -> None:
    with pytest.raises(InputError, match=r"budget\.bounds\.num_gpu_blocks"):
        rules(changed(small(), "budget", bounds={"num_gpu_blocks": bounds}))


PLACES = [(part, key) for part in ("gpu", "deployment", "budget", "model") for key in small().document[part]]
NONSENSE: st.SearchStrategy[Any] = st.sampled_from(
    [None, -1, 0, "x", "{{", [], {}, 1e300, float("nan"), True, [[]], {"a": {}}, 10**400]
)


@given(st.sampled_from(PLACES), NONSENSE)
def test_a_damaged_plan_gives_rules_or_a_sentence(place: tuple[str, str], value: object) -> None:
    part, key = place
    try:
        plan = plan_from({**small().document, part: {**small().document[part], key: value}}, "plan.json")
        found = rules(plan)
        dashboard(plan)
        scaled_object(plan)
    except KvbudgetError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most are no error
    else:
        assert yaml.safe_load(as_yaml(found)) == found


def test_another_engine() -> None:
    with pytest.raises(CannotTell, match="only vLLM"):
        dashboard(changed(small(), "budget", engine={"name": "ollama", "version": "1"}))


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"server": "file:///x"}, "--prometheus"),
        ({"target": "A b"}, "--target"),
        *(({"max_replicas": number}, "--max-replicas") for number in (0, -1, 2.5, math.nan, math.inf, 1 << 31, True)),
    ],
)
def test_what_keda_would_refuse(other: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        scaled_object(small(), **other)


# -- promtool


def promtool(*arguments: str) -> str:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accepted(found: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rules.yaml")
        path.write_text(as_yaml(found), encoding="utf-8")
        assert f"{len(found['groups'][0]['rules'])} rules found" in promtool("check", "rules", str(path))


@asks_promtool
@pytest.mark.parametrize("name", HOSTILE)
def test_promtool_takes_hostile_names(name: str) -> None:
    accepted(rules(changed(small(), "model", name=name), 'namespace="prod"'))


@asks_promtool
@given(
    st.fixed_dictionaries({
        "name": st.text(max_size=60),
        "p95": st.none() | st.floats(0, 1),
        "preemptions": st.none() | st.floats(0, 1e9),
        "waiting": st.none() | st.integers(0, 10**6),
        "blocks": st.tuples(st.integers(0, 10**9), st.integers(1, 10**9)).map(sorted),
        "block_size": st.sampled_from([1, 16, 32, 272, 784, 1 << 20]),
    })
)  # fmt: skip
@settings(max_examples=12)
def test_promtool_takes_any_plan(figures: dict[str, Any]) -> None:
    kv = {**small().budget["kv"], "block_size": figures["block_size"]}
    plan = changed(small(), "budget", kv=kv, bounds={"num_gpu_blocks": figures["blocks"]})
    plan = changed(plan, "model", name=figures["name"])
    accepted(
        rules(
            changed(
                plan,
                "expectation",
                kv_used={"p95": figures["p95"]},
                preemptions_per_s=figures["preemptions"],
                waiting={"max": figures["waiting"]},
            )
        )
    )


@cache
def page(name: str) -> Metrics:
    return read_metrics((HERE / "logs" / f"vllm_0.32_metrics_{name}.txt").read_text(encoding="utf-8"))


def engine(
    usage: float, waiting: str, preempted: float, blocks: int = 129, size: int = 32, metric: str = "kv_cache_usage_perc"
) -> dict[str, str]:
    """Return series of an hour, a value every 15 s: ten minutes of nothing, then fifty as given."""
    labels = 'instance="a:8000", engine="0", model_name="m"'
    return {
        f"vllm:{metric}{{{labels}}}": f"0+0x39 {usage}+0x200",
        f"vllm:num_requests_waiting{{{labels}}}": f"0+0x39 {waiting}x200",
        f"vllm:num_preemptions_total{{{labels}}}": f"0+0x39 {preempted}+0x200",
        f'vllm:cache_config_info{{{labels}, num_gpu_blocks="{blocks}", block_size="{size}"}}': "1+0x239",
    }


def firing(
    found: dict[str, Any], series: dict[str, str], at: str, expected: set[str], folder: Path, engines: int = 1
) -> None:
    """Have promtool evaluate the rules on series, and hold what fires against what is expected."""
    (folder / "rules.yaml").write_text(as_yaml(found), encoding="utf-8")
    samples = [{"labels": f'{{alertname="Kvbudget{name}"}}', "value": engines} for name in sorted(expected)]
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": [
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": at,
                        "exp_samples": samples,
                    }
                ],
            }
        ],
    }
    (folder / "test.yaml").write_text(as_yaml(test), encoding="utf-8")
    promtool("test", "rules", str(folder / "test.yaml"))


@asks_promtool
def test_what_was_recorded_fires(tmp_path: Path) -> None:
    """48 requests at once on 129 blocks of 32 tokens: at the peak 94 % in use and 43 waiting; 135 preemptions."""
    peak, after = page("peak"), page("after")
    assert (peak.kv_usage_max, peak.waiting, after.preemptions) == (0.9375, 43, 135)
    held = engine(0.9375, "43+0", 135)
    firing(rules(small()), held, "9m", set(), tmp_path)
    firing(rules(small()), held, "13m", {"Preemptions"}, tmp_path)
    firing(rules(small()), held, "25m", {"CacheNearlyFull"}, tmp_path)  # the burst is over, the queue stands
    growing = engine(0.9375, "43+0.1", 135)
    firing(rules(small()), growing, "25m", {"CacheNearlyFull", "QueueGrows"}, tmp_path)


@asks_promtool
def test_a_planned_rate_of_preemptions_is_no_alarm(tmp_path: Path) -> None:
    held = engine(0.5, "0+0", 135)  # 0.45 a second over five minutes
    firing(rules(expecting(preemptions_per_s=0.4)), held, "13m", set(), tmp_path)
    firing(rules(expecting(preemptions_per_s=0.2)), held, "13m", {"Preemptions"}, tmp_path)


@asks_promtool
@pytest.mark.parametrize("metric", ["kv_cache_usage_perc", "gpu_cache_usage_perc"])
def test_calm_is_calm_under_both_names(metric: str, tmp_path: Path) -> None:
    plan = expecting(**EXPECTED)
    firing(rules(plan), engine(0.6, "3+0", 0, metric=metric), "50m", set(), tmp_path)
    firing(rules(plan), engine(0.7, "3+0", 0, metric=metric), "50m", {"CacheAbovePlan"}, tmp_path)
    firing(rules(plan), engine(0.95, "3+0", 0, metric=metric), "50m", {"CacheAbovePlan", "CacheNearlyFull"}, tmp_path)


@asks_promtool
def test_both_names_at_once_are_one_engine(tmp_path: Path) -> None:
    """Between 0.9.2 and 0.11 an engine has both."""
    series = engine(0.95, "0+0", 0) | engine(0.95, "0+0", 0, metric="gpu_cache_usage_perc")
    firing(rules(small()), series, "50m", {"CacheNearlyFull"}, tmp_path)


@asks_promtool
def test_a_router_counts_no_request_again(tmp_path: Path) -> None:
    """The router of vLLM's production stack has series of the engines' names, by `server` and without a model."""
    router = {
        'vllm:num_requests_waiting{instance="r:80", server="http://a:8000"}': "0+0x39 43+1x200",
        'vllm:num_requests_running{instance="r:80", server="http://a:8000"}': "5+0x239",
    }
    firing(rules(small()), engine(0.1, "2+0", 0) | router, "25m", set(), tmp_path)


@asks_promtool
@pytest.mark.parametrize(
    ("blocks", "size", "fires"),
    [(129, 32, False), (258, 16, False), (259, 16, False), (260, 16, True), (257, 16, True), (64, 64, False),
     (128, 32, True), (130, 32, True), (129, 16, True), (1290, 32, True)],
)  # fmt: skip
def test_another_capacity_is_told(blocks: int, size: int, fires: bool, tmp_path: Path) -> None:
    series = engine(0.1, "0+0", 0, blocks=blocks, size=size)
    firing(rules(small()), series, "20m", {"CapacityChanged"} if fires else set(), tmp_path)


@asks_promtool
@pytest.mark.parametrize(
    ("behind", "blocks", "fires"), [(2, 258, False), (1, 129, False), (2, 129, True), (1, 258, True), (2, 260, True)]
)
def test_the_blocks_of_data_parallel_engines_are_told_together(
    behind: int, blocks: int, fires: bool, tmp_path: Path
) -> None:
    """Of two engines behind one address vLLM tells the sum; each with its own address tells its own."""
    planned = changed(small(), "deployment", data_parallel_size=2)
    series = {
        f'vllm:cache_config_info{{job="v", instance="{i // behind}", engine="{i % behind}", num_gpu_blocks="{blocks}", '
        'block_size="32"}': "1+0x200"
        for i in range(2)
    }
    firing(rules(planned), series, "20m", {"CapacityChanged"} if fires else set(), tmp_path, engines=2)


@asks_promtool
def test_the_capacity_of_another_model_is_its_own(tmp_path: Path) -> None:
    """The cache's series has no name of a model; the engine is found by its address."""
    series: dict[str, str] = {}
    for model, blocks in (("x", 129), ("y", 500)):
        labels = f'job="vllm", instance="{model}:8000", engine="0"'
        series[f'vllm:num_requests_running{{{labels}, model_name="{model}"}}'] = "1+0x200"
        series[f'vllm:cache_config_info{{{labels}, num_gpu_blocks="{blocks}", block_size="32"}}'] = "1+0x200"
    firing(rules(small(), 'model_name="x"'), series, "20m", set(), tmp_path)
    firing(rules(small(), 'model_name="y"'), series, "20m", {"CapacityChanged"}, tmp_path)
    firing(rules(small(), 'model_name="z"'), series, "20m", set(), tmp_path)


@asks_promtool
def test_an_engine_that_has_not_sized_its_cache_is_left_alone(tmp_path: Path) -> None:
    series = {'vllm:cache_config_info{instance="a", num_gpu_blocks="None", block_size="16"}': "1+0x200"}
    firing(rules(small()), series, "20m", set(), tmp_path)


@asks_promtool
def test_a_foreign_name_is_printed_as_it_is(tmp_path: Path) -> None:
    found = rules(changed(small(), "model", name='{{ $value }} {{"x'))
    told = alert(found, "KvbudgetCapacityChanged")
    (tmp_path / "rules.yaml").write_text(as_yaml(found), encoding="utf-8")
    labels = {"instance": "a", "engine": "0", "num_gpu_blocks": "7", "block_size": "32"}
    pairs = ", ".join(f'{key}="{value}"' for key, value in labels.items())
    series = f"vllm:cache_config_info{{{pairs}}}"
    description = told["annotations"]["description"].replace("{{ $labels.num_gpu_blocks }}", "7")
    expected = {
        "exp_labels": {**labels, "severity": "warning"},
        "exp_annotations": {
            "summary": "The KV cache is not of the planned size on a",
            "description": description.replace("{{ $labels.block_size }}", "32"),
            "plan": '{{ $value }} {{"x on 1 × H100-SXM-80GB, vLLM 0.32',
        },
    }
    test = {
        "rule_files": ["rules.yaml"],
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": "1+0x60"}],
                "alert_rule_test": [
                    {"eval_time": "20m", "alertname": "KvbudgetCapacityChanged", "exp_alerts": [expected]}
                ],
            }
        ],
    }
    (tmp_path / "test.yaml").write_text(as_yaml(test), encoding="utf-8")
    promtool("test", "rules", str(tmp_path / "test.yaml"))


@asks_promtool
def test_queries_outside_the_rules_are_promql() -> None:
    """Dashboards and triggers ask queries that promtool takes as the expressions of rules."""
    board, scaled = dashboard(expecting(**EXPECTED), 'job="x"'), scaled_object(small())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    asked += [trigger["metadata"]["query"] for trigger in scaled["spec"]["triggers"]]
    assert len(asked) == 14
    accepted({"groups": [{"name": "x", "rules": [{"record": f"x{i}", "expr": expr} for i, expr in enumerate(asked)]}]})


@asks_promtool
def test_a_pod_of_several_engines_is_one_replica(tmp_path: Path) -> None:
    """Eight engines of a pod with six waiting each are at the line of one; a second pod, and a router, add nothing."""
    series = (
        {f'vllm:num_requests_waiting{{instance="a", engine="{i}", model_name="m"}}': "6+0x9" for i in range(8)}
        | {f'vllm:kv_cache_usage_perc{{instance="a", engine="{i}", model_name="m"}}': f"{i / 8}+0x9" for i in range(8)}
        | {
            'vllm:num_requests_waiting{instance="b", engine="0", model_name="m"}': "0+0x9",
            'vllm:kv_cache_usage_perc{instance="b", engine="0", model_name="m"}': "0+0x9",
            'vllm:num_requests_waiting{instance="r", server="http://a"}': "48+0x9",
        }
    )
    queries = [trigger["metadata"]["query"] for trigger in scaled_object(small())["spec"]["triggers"]]
    told = [
        {"expr": f"round({query}, 0.0625)", "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": value}]}
        for query, value in zip(queries, (6, 0.4375), strict=True)
    ]
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test = {"rule_files": [], "tests": [{"interval": "15s", "input_series": inputs, "promql_expr_test": told}]}
    (tmp_path / "test.yaml").write_text(as_yaml(test), encoding="utf-8")
    promtool("test", "rules", str(tmp_path / "test.yaml"))


# -- files


def compare(name: str, text: str) -> None:
    path = GOLDEN / name
    if os.environ.get("KVBUDGET_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8", newline="\n")
    assert text == path.read_text(encoding="utf-8")


def test_golden() -> None:
    plan = expecting(**EXPECTED)
    compare("emit_rules.yaml", as_yaml(rules(plan)))
    compare("emit_grafana.json", json.dumps(dashboard(plan), indent=1) + "\n")
    compare("emit_keda.yaml", as_yaml(scaled_object(plan)))


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as leaving:
        main(["emit", *arguments])
    return int(leaving.value.code or 0)


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(small().document), encoding="utf-8")
    kept = tmp_path / "rules.yaml"
    assert run(str(path), "--rules", str(kept), "--keda", "--max-replicas", "0") == 2
    assert not kept.exists()  # all of it, or nothing
    assert capsys.readouterr().out == ""
    assert run(str(path), "--rules") == 0
    assert capsys.readouterr().out == as_yaml(rules(small()))
    files = {name: tmp_path / f"{name}.out" for name in ("rules", "grafana", "keda")}
    assert run(str(path), *(word for name, file in files.items() for word in (f"--{name}", str(file)))) == 0
    assert capsys.readouterr().out == ""
    assert json.loads(files["grafana"].read_text(encoding="utf-8")) == dashboard(small())
    assert yaml.safe_load(files["keda"].read_text(encoding="utf-8")) == scaled_object(small())
    assert run(str(path)) == 2
    assert "Nothing to write" in capsys.readouterr().err
    assert run(str(path), "--rules", "-", "--keda") == 2
    assert "--rules - and --keda - both write" in capsys.readouterr().err
    assert run(str(tmp_path / "none.json"), "--rules") == 4
