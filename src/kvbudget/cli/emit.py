"""`kvbudget emit`: what watches a deployment, made from its plan; its twin in Python is `kvbudget.emit`."""

from __future__ import annotations

import json
from typing import Any

import click

from kvbudget.check import read_plan
from kvbudget.cli.options import NUMBER, write_page
from kvbudget.emit import as_yaml, dashboard, rules, scaled_object
from kvbudget.emit.keda import MAX_REPLICAS, SERVER
from kvbudget.errors import InputError

_OUT: dict[str, Any] = {"metavar": "[FILE|-]", "is_flag": False, "flag_value": "-"}
"""An option whose file may be left out; standard output is meant then."""


@click.command("emit", short_help="Alerts, a dashboard and scaling from a plan.")
@click.argument("plan", metavar="PLAN.json")
@click.option("--rules", "rules_at", **_OUT, help="Prometheus alerting rules (YAML).")
@click.option("--grafana", "grafana_at", **_OUT, help="A Grafana dashboard (JSON).")
@click.option("--keda", "keda_at", **_OUT, help="A KEDA ScaledObject (YAML).")
@click.option("--selector", default="", metavar="LABELS", help="Which series: 'namespace=\"prod\"'.")
@click.option("--prometheus", "server", metavar="URL", default=SERVER, show_default=True, help="For KEDA.")
@click.option(
    "--target", default="", metavar="NAME", help="The Deployment that KEDA scales.  [default: the model's name]"
)
@click.option("--max-replicas", type=NUMBER, default=MAX_REPLICAS, show_default=True, help="For KEDA.")
def emit(
    plan: str,
    rules_at: str | None,
    grafana_at: str | None,
    keda_at: str | None,
    selector: str,
    server: str,
    target: str,
    max_replicas: int,
) -> None:
    """Write what watches a deployment, with thresholds from its plan.

    The plan is a file of `fit --save-plan`. Without FILE it goes to standard output.

    \b
    kvbudget emit plan.json --rules rules.yaml --grafana dashboard.json
    kvbudget emit plan.json --keda - --target llama --max-replicas 8
    """  # noqa: D301 - click reads the backspace character
    targets = {"--rules": rules_at, "--grafana": grafana_at, "--keda": keda_at}
    _check_targets(targets)
    found = read_plan(plan)
    written: list[tuple[str, str]] = []  # all of it is made before any of it is written
    if rules_at is not None:
        written.append((as_yaml(rules(found, selector)), rules_at))
    if grafana_at is not None:
        written.append((json.dumps(dashboard(found, selector), indent=1) + "\n", grafana_at))
    if keda_at is not None:
        scaled = scaled_object(found, selector, server=server, target=target, max_replicas=max_replicas)
        written.append((as_yaml(scaled), keda_at))
    for text, target_file in written:
        write_page(text, target_file)


def _check_targets(targets: dict[str, str | None]) -> None:
    """Refuse to write nothing, and to write two things into one another."""
    if not any(targets.values()):
        raise InputError("Nothing to write; give --rules FILE, --grafana FILE or --keda FILE, - is standard output.")
    writers = [f"{name} -" for name, target in targets.items() if target == "-"]
    if len(writers) > 1:
        raise InputError(f"{' and '.join(writers)} both write to standard output; give one of them a file.")
