"""Runs of an experiment: names, lengths and numbers of values that MLflow accepts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_param_name

from forewarn.pipelines.config.site_tables import RegistryTable
from forewarn.pipelines.storage.registry.mlflow_experiment import Experiment, _valid_name

pytestmark = pytest.mark.filterwarnings("ignore::Warning:mlflow", "ignore::Warning:alembic")


@given(st.text(min_size=1, max_size=400) | st.text(alphabet="./_a °%", min_size=1))
def test_any_column_gives_a_valid_name(column: str) -> None:
    name = _valid_name(f"drift/{column}")
    _validate_metric_name(name)  # type: ignore[no-untyped-call]
    _validate_param_name(name)  # type: ignore[no-untyped-call]


def test_usual_names_are_unchanged() -> None:
    for name in ("average_precision", "seconds/read records", "models.gbdt.num_leaves"):
        assert _valid_name(name) == name


@pytest.fixture
def experiment(empty_store: bytes, tmp_path: Path) -> Experiment:
    (tmp_path / "mlflow.db").write_bytes(empty_store)
    return Experiment(RegistryTable(store=str(tmp_path)))


def test_many_and_long_values_are_logged(experiment: Experiment) -> None:
    params: dict[str, object] = {f"table.key{n}": n for n in range(250)}
    params["features.float"] = "x" * 9000
    metrics = {f"metric{n}": float(n) for n in range(1100)}
    with experiment.run("many", {"forewarn.kind": "test"}) as run:
        experiment.log(run, params=params, metrics=metrics)
        experiment.tag(run, {"forewarn.long": "y" * 9000})
    (logged,) = experiment.find({"forewarn.kind": "test"})
    assert len(logged.data.params) == 251
    assert len(logged.data.metrics) == 1100
    assert logged.data.params["features.float"][-2:] == "x…"
    assert logged.data.tags["forewarn.long"][-2:] == "y…"


def test_unknown_metrics_are_left_out(experiment: Experiment) -> None:
    with experiment.run("few", {"forewarn.kind": "test"}) as run:
        experiment.log(run, metrics={"a": None, "b": float("nan"), "c": float("inf"), "d": 1.0})
    (logged,) = experiment.find({"forewarn.kind": "test"})
    assert logged.data.metrics == {"d": 1.0}
