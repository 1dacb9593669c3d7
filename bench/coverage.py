"""How many real configs are read, and how many of them rightly.

    python bench/coverage.py ../shared/data/configs [--kind real|preset|derived|all] [--json] [--all]

The oracle is `params.tsv` beside the configs: parameter counts by transformers on the meta device, and cache shapes
read from its cache objects. A row counts as right if parameters are equal; if they are not, the oracle's own note
says whether its figure is the one to doubt. Refusals are listed with their reasons.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from kvbudget.errors import CannotTell, KvbudgetError
from kvbudget.hub import load_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ORACLE_IS_WRONG = ("text part only counted", "not comparable")
"""Notes of the oracle that say that its total is not the model's."""


@dataclass(frozen=True, slots=True)
class Row:
    """One config: what the oracle says, what the reader says, and what to make of it."""

    folder: str
    kind: str
    model_type: str
    verdict: str
    ours: int | None
    oracle: int | None
    note: str


def read(folder: Path, oracle: Mapping[str, str]) -> Row:
    """Return the row of one config folder."""
    kind, model_type = oracle["kind"], oracle["model_type"]
    expected = int(oracle["total_params"]) if oracle["total_params"] else None
    try:
        model = load_path(folder, name=folder.name)
    except CannotTell as error:
        return Row(folder.name, kind, model_type, "refused", None, expected, str(error))
    except KvbudgetError as error:
        return Row(folder.name, kind, model_type, "bad input", None, expected, str(error))
    ours = model.parameters
    if expected is None:
        return Row(folder.name, kind, model_type, "no oracle", ours, None, oracle["status"][:60])
    if ours == expected:
        return Row(folder.name, kind, model_type, "equal", ours, expected, "")
    published = oracle["published_params"]
    if published and ours == int(float(published)):
        return Row(folder.name, kind, model_type, "equal", ours, expected, "equals the published count")
    reason = oracle["diff_reason"]
    verdict = "explained" if reason.startswith(ORACLE_IS_WRONG) else "different"
    return Row(folder.name, kind, model_type, verdict, ours, expected, reason or "no note")


def rows(configs: Path, kinds: Iterable[str]) -> list[Row]:
    """Return a row for each config folder of the wanted kinds."""
    with (configs.parent / "params.tsv").open(encoding="utf-8") as file:
        table = {row["hub"].replace("/", "__", 1): row for row in csv.DictReader(file, delimiter="\t")}
    wanted = set(kinds)
    return [
        read(folder, table[folder.name])
        for folder in sorted(configs.iterdir())
        if folder.name in table and (table[folder.name]["kind"] in wanted or "all" in wanted)
    ]


def report(found: list[Row], *, every: bool) -> None:
    """Print the table: counts, then what is not equal, then refusals by reason."""
    counts = Counter(row.verdict for row in found)
    judged = counts["equal"] + counts["different"]
    print(f"{len(found)} configs: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    if judged:
        print(f"parameters equal: {counts['equal']} of {judged} comparable = {100 * counts['equal'] / judged:.1f} %")
    for row in found:
        if row.verdict in ("different", "explained", "bad input") or every:
            gap = f"{row.ours - row.oracle:+,}" if row.ours and row.oracle else ""
            print(f"  {row.verdict:10} {row.folder[:44]:44} {row.model_type:18} {gap:>18}  {row.note[:60]}")
    print("refused:")
    for row in found:
        if row.verdict == "refused":
            print(f"  {row.folder[:44]:44} {row.note}")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path)
    parser.add_argument("--kind", action="append", help="real, preset, derived, cached, quoted or all; default real")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--all", action="store_true", help="list equal rows too")
    arguments = parser.parse_args()
    found = rows(arguments.configs, arguments.kind or ["real"])
    if arguments.json:
        print(json.dumps([asdict(row) for row in found], indent=1))
    else:
        report(found, every=arguments.all)


if __name__ == "__main__":
    main()
