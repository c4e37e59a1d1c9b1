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
FILES = sorted(DAGS.glob("forewarn_*.py"))
LOOK = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
heavy = sorted({"tensorflow", "keras", "mlflow", "pandas"} & set(sys.modules))
dags = {
    d.dag_id: {
        "tasks": sorted(d.task_ids), "active": d.max_active_runs, "catchup": d.catchup,
        "doc": d.doc_md,
        "cron": getattr(getattr(d.timetable, "timetable", d.timetable), "expression", None),
        "zone": str(getattr(getattr(d.timetable, "timetable", d.timetable), "timezone", None)),
        "kind": type(getattr(d.timetable, "timetable", d.timetable)).__name__,
        "params": {name: d.params.get_param(name).serialize() for name in d.params},
        "retries": min(t.retries for t in d.tasks),
        "limits": all(t.execution_timeout for t in d.tasks),
        "backoff": all(t.retry_exponential_backoff and t.max_retry_delay for t in d.tasks),
        "callbacks": all(t.on_failure_callback for t in d.tasks),
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
        assert one["limits"], name
        assert len(one["doc"]) > 100, name


def test_failed_tasks_retry_later_and_alert(found: dict[str, Any]) -> None:
    for name, one in found["dags"].items():
        assert one["retries"] >= 2, name
        assert one["backoff"], name
        assert one["callbacks"], name


def test_dags_start_at_fixed_utc_times(found: dict[str, Any]) -> None:
    assert {name: one["cron"] for name, one in found["dags"].items()} == {
        "forewarn_backtest": "0 5 1 * *",
        "forewarn_compact": "30 1 * * *",
        "forewarn_ingest": "5 * * * *",
        "forewarn_inspect": "0 7 * * *",
        "forewarn_respond": "*/10 * * * *",
        "forewarn_retrain": "0 3 */3 * *",
        "forewarn_review": "0 6 * * *",
        "forewarn_score": None,  # when the records of a day are complete
    }
    timed = [one for one in found["dags"].values() if one["cron"]]
    assert {(one["kind"], one["zone"]) for one in timed} == {("CronTriggerTimetable", "UTC")}


def test_trigger_dialog_explains_each_field(found: dict[str, Any]) -> None:
    for name, one in found["dags"].items():
        assert one["params"], name
        for param in one["params"].values():
            assert param["schema"]["title"], name
            assert len(param["description"]) > 40, name
            if "null" in param["schema"]["type"]:
                assert param["value"] is None, name
                assert "Empty: " in param["description"], name
                assert param["schema"]["format"] in ("date", "date-time"), name


def test_retraining_ends_with_promotion(found: dict[str, Any]) -> None:
    assert found["dags"]["forewarn_retrain"]["tasks"] == ["lengths", "promote", "train"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_dag_files_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 60
    # Airflow skips files that contain neither of these words.
    assert "airflow" in text
    assert "dag" in text
