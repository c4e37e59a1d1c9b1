"""Days that the DAGs publish: each complete day without a list, once."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

DAGS = Path(__file__).parents[2] / "dags"


def task_of(dag: str, task: str) -> tuple[Any, Callable[..., Any]]:
    """Return the module of a DAG and the function of one of its tasks."""
    spec = importlib.util.spec_from_file_location(dag, DAGS / f"{dag}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    built = getattr(module, dag)()
    return module, built.get_task(task).python_callable


class Outlets(dict[Any, SimpleNamespace]):
    def __missing__(self, key: Any) -> SimpleNamespace:
        return self.setdefault(key, SimpleNamespace(extra={}))


def test_event_contains_all_days_of_outage() -> None:
    module, publish = task_of("forewarn_ingest", "publish")
    days, published = ["2025-03-01", "2025-03-02", "2025-03-03"], "2025-03-01"
    ti = SimpleNamespace(xcom_pull=lambda **_: published)
    outlets = Outlets()
    assert publish(days, outlet_events=outlets, ti=ti) == "2025-03-03"
    assert outlets[module.RECORDS].extra == {"day": "2025-03-03", "before": ["2025-03-02"]}
    published = "2025-03-02"
    publish(days, outlet_events=outlets, ti=ti)
    assert outlets[module.RECORDS].extra == {"day": "2025-03-03"}
    published = "2025-03-03"
    with pytest.raises(module.AirflowSkipException):
        publish(days, outlet_events=outlets, ti=ti)


def test_every_published_day_gets_list(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[str]] = []
    module, score = task_of("forewarn_score", "score")
    monkeypatch.setattr(module.Variable, "get", lambda _: "site.toml")
    monkeypatch.setattr(module, "score_missing", lambda _, days: made.append(list(days)))
    extras: list[dict[str, Any]] = [
        {"day": "2025-03-04"},
        {"day": "2025-03-03", "before": ["2025-03-01", "2025-03-02"]},
    ]
    events = {module.RECORDS: [SimpleNamespace(extra=extra) for extra in extras]}
    run = SimpleNamespace(logical_date=None, run_after=datetime(2025, 2, 11, 23, tzinfo=UTC))
    empty: dict[str, Any] = {module.RECORDS: []}
    for day, found in ((None, events), ("2025-02-01", empty), (None, empty)):
        outlets = Outlets()
        score(
            params={"day": day},
            dag_run=run,
            triggering_asset_events=found,
            outlet_events=outlets,
        )
        assert outlets[module.LISTS].extra == {"day": made[-1][-1]}
    all_days = ["2025-03-01", "2025-03-02", "2025-03-03", "2025-03-04"]
    assert made == [all_days, ["2025-02-01"], ["2025-02-10"]]


def test_failed_older_list_does_not_block_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from forewarn.pipelines import scheduled_tasks as site
    from forewarn.pipelines.runtime.job_error import JobError

    def score(_: str, day: str) -> str:
        if day == "2025-03-02":
            raise JobError("the model is younger")
        return f"list of {day}"

    monkeypatch.setattr(site, "score_site", score)
    days = ["2025-03-01", "2025-03-02", "2025-03-03"]
    assert site.score_missing(str(tmp_path), days) == "list of 2025-03-03"
    assert "2025-03-02: the model is younger" in capsys.readouterr().err
    with pytest.raises(JobError):
        site.score_missing(str(tmp_path), days[:2])
