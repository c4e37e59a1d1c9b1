"""The dashboards of Grafana: generated, importable, and about declared metrics only."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from forewarn.pipelines.metrics.declarations import SOURCES

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "deploy" / "grafana"
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}
NAMES = sorted(path.stem for path in FOLDER.glob("*.json"))
boards = pytest.mark.parametrize("board", NAMES)


@pytest.fixture
def definitions(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return `deploy/grafana/dashboards.py`, which is no part of the package."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("deploy.grafana.dashboards")


def imported(board: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / f"{board}.json").read_text())
    return loaded


def queries() -> Iterator[str]:
    for board in NAMES:
        for panel in imported(board)["panels"]:
            yield from (target["expr"] for target in panel["targets"])


def test_committed_files_equal_definitions(definitions: ModuleType) -> None:
    made = {board.name: definitions.dashboard_json(board) for board in definitions.DASHBOARDS}
    committed = {name: (FOLDER / f"{name}.json").read_text() for name in NAMES}
    assert committed == made, "run `python -m deploy.grafana.dashboards`"


@boards
def test_file_has_the_form_of_grafana(board: str) -> None:
    """Grafana's own types read and write it without a loss."""
    register_default_plugins()
    read = Dashboard.from_json(imported(board))
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == imported(board)


@boards
def test_data_source_is_chosen_at_import(board: str) -> None:
    dashboard = imported(board)
    (variable,) = dashboard["templating"]["list"]
    assert (variable["name"], variable["type"]) == ("datasource", "datasource")
    panels = dashboard["panels"]
    sources = [part["datasource"] for panel in panels for part in (panel, *panel["targets"])]
    assert all(source["uid"] == "${datasource}" for source in sources)


@boards
def test_panels_do_not_overlap(board: str) -> None:
    cells = [
        (x, y)
        for position in (panel["gridPos"] for panel in imported(board)["panels"])
        for x in range(position["x"], position["x"] + position["w"])
        for y in range(position["y"], position["y"] + position["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


def test_prometheus_parses_each_query(
    require_program: Callable[[str, str], Path], tmp_path: Path
) -> None:
    rules = [{"record": f"query:{n}", "expr": query} for n, query in enumerate(queries())]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
    program = str(require_program("promtool", "prometheus"))
    checked = subprocess.run(
        [program, "check", "rules", str(path)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.parametrize("query", tuple(queries()))
def test_query_uses_declared_metrics_and_labels(query: str) -> None:
    declared = {
        metric.sample + suffix: metric
        for metrics in SOURCES.values()
        for metric in metrics
        for suffix in SUFFIXES.get(metric.kind, ("",))
    }
    selectors = re.findall(r"(forewarn_\w+)(?:\{(.*?)\})?", query)
    assert selectors
    known = {"le", *(label for name, _ in selectors for label in declared[name].labels)}
    for labels in re.findall(r"by \((.*?)\)", query):
        assert set(labels.split(", ")) <= known
    for name, selector in selectors:
        for label, chosen in re.findall(r'(\w+)(?:!|=)[=~]?"(.*?)"', selector):
            assert set(chosen.split("|")) <= set(declared[name].labels[label])
