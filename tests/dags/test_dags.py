"""The DAG files as Airflow parses them, without running them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DAGS = Path(__file__).parents[2] / "dags"
FILES = sorted(DAGS.glob("*.py"))
LOOK = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
heavy = sorted({"tensorflow", "keras", "mlflow", "pandas"} & set(sys.modules))
dags = {
    d.dag_id: {
        "tasks": sorted(d.task_ids), "active": d.max_active_runs, "catchup": d.catchup,
        "doc": d.doc_md, "every": str(vars(d.timetable).get("_delta")),
        "retries": min(t.retries for t in d.tasks),
        "limits": all(t.execution_timeout for t in d.tasks),
    }
    for d in bag.dags.values()
}
print(json.dumps({"errors": list(bag.import_errors.values()), "heavy": heavy, "dags": dags}))
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Let Airflow parse the folder in a separate process."""
    home = {"AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow"))}
    home["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
    home["AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT"] = "600"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LOOK, str(DAGS)],
        env=os.environ | home,
        capture_output=True,
        text=True,
        check=True,
    )
    read: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return read


def test_dags_parse_without_heavy_imports(found: dict[str, Any]) -> None:
    assert found["errors"] == []
    assert set(found["dags"]) == {path.stem for path in FILES}
    assert "tensorflow" not in found["heavy"]
    assert "mlflow" not in found["heavy"]


def test_dags_have_schedules_and_timeouts(found: dict[str, Any]) -> None:
    for name, one in found["dags"].items():
        assert one["active"] == 1, name
        assert not one["catchup"], name
        assert one["retries"] >= 2, name
        assert one["limits"], name
        assert len(one["doc"]) > 100, name


def test_retraining_runs_every_three_days(found: dict[str, Any]) -> None:
    assert found["dags"]["forewarn_retrain"]["every"] == "3 days, 0:00:00"
    assert found["dags"]["forewarn_retrain"]["tasks"] == ["decide", "lengths", "moment", "train"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_dag_files_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 60
    # Airflow skips files that contain neither of these words.
    assert "airflow" in text
    assert "dag" in text
