"""`forewarn study` and `forewarn simulate incidents`, end to end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.evaluation.simulation.tasks.task_simulator import (
    SimulatedTask,
    healthy_task,
    long_task,
)
from forewarn.features.detection.metric_limits import MetricLimits
from forewarn.features.time_units import SECOND
from forewarn.models.detection.detection_rules import DetectionRules
from forewarn.models.detection.detection_verdict import MachineFinding, Verdict
from forewarn.models.detection.detector import Detector
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.models.detection.monitored_task import Task
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.sandbox import simulate_tasks
from forewarn.pipelines.storage.evidence.at_risk_prior import list_weights
from forewarn.pipelines.studies import detector_variants
from forewarn.pipelines.studies import multiple_faults as study_several
from forewarn.pipelines.studies.pull_means import PullMeans

pytestmark = pytest.mark.long

Put = Callable[[SimulatedTask, Path, str], Path]
Fault = Callable[..., SimulatedTask]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def data(
    healthy_metrics: Path, put: Put, fault: Fault, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("study")
    shutil.copytree(healthy_metrics, folder / "train")
    rows: list[tuple[str, str, str, int | None, int]] = []
    for number in range(4):
        put(fault(8 + number, 2, seed=60 + number), folder / "pulls", f"bad-{number}")
        rows.append((f"bad-{number}", "node-0002", "ecc error", 400, 8 + number))
        put(
            healthy_task(np.random.default_rng(70 + number), 9, 900),
            folder / "pulls",
            f"ok-{number}",
        )
        rows.append((f"ok-{number}", "", "", None, 9))
    columns = ["task", "machine", "fault", "start_s", "machines"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "truth.csv", index=False)
    return folder


def test_methods_are_compared_on_same_pulls(
    data: Path, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(
        detector_variants, "_N_TRAINING_WINDOWS", 6_000
    )  # other tests cover the quality of denoisers
    names = (
        "forewarn; forewarn, denoised; peers; minder; minder, CON; Mahalanobis; means; pull means"
    )
    given = ["--data", str(data), "--model", str(model), "--out", str(tmp_path)]
    assert main(["study", "detection", *given, "--methods", names]) == 0
    printed = capsys.readouterr().out
    study = json.loads((tmp_path / "study.json").read_text())
    assert list(study["methods"]) == names.split("; ")
    ours = study["methods"]["forewarn"]
    assert (ours["pulls"], ours["faulty"]) == (8, 4)
    assert ours["recall"] >= 0.75
    assert ours["false_alarms"] == 0
    assert ours["f1"] > study["random"]["f1"]
    assert 150 < ours["delay_seconds"]["p50"] < 400
    assert ours["by_fault"] == {"ecc error": {"recall": ours["recall"], "pulls": 4}}
    table = pd.read_csv(tmp_path / "study.csv", keep_default_na=False)
    right = (table["named by forewarn"] == table["truth"]) & (table["truth"] != "")
    assert right.sum() / 4 == ours["recall"]  # the metrics can be recomputed
    assert (tmp_path / "study.png").read_bytes().startswith(b"\x89PNG")
    assert ours["in_hindsight"]["f1"] > 0.8
    assert "forewarn, denoised" in printed
    assert f"recall of forewarn by machines: 4 to 15 {ours['recall']:.2f} of 4" in printed


def test_pull_means_name_largest_difference_within_group() -> None:
    def judge(levels: list[float]) -> list[int]:
        values = np.repeat(np.array(levels, dtype=np.float32)[:, None], 50, axis=1)
        groups = np.array([0, 0, 0, 1, 1, 1])
        machines = tuple(f"m{i}" for i in range(6))
        task = Task(machines, 0, 50, {"load": values}.get, groups, np.ones(6))
        return [finding.machine for finding in scorer.find(task)[0].findings]

    limits, train = (MetricLimits("load", 0.0, 100.0),), np.full((6, 50), 10.0, dtype=np.float32)
    train[1] = 15.0
    machines = tuple(f"m{i}" for i in range(6))
    task = Task(machines, 0, 50, {"load": train}.get, np.array([0, 0, 0, 1, 1, 1]), np.ones(6))
    scorer = PullMeans.fit(DetectionRules(), limits, [task])
    assert judge([10.0, 10.0, 10.0, 60.0, 60.0, 60.0]) == []
    assert judge([10.0, 10.0, 10.0, 60.0, 69.0, 60.0]) == []
    assert judge([10.0, 22.0, 10.0, 60.0, 60.0, 80.0]) == [5]


def test_unknown_method_is_refused(data: Path, model: Path, capsys: Capture) -> None:
    given = ["--data", str(data), "--model", str(model), "--out", "x", "--methods", "magic"]
    with pytest.raises(SystemExit) as end:
        main(["study", "detection", *given])
    assert end.value.code == 2
    assert "found 'magic', expected names of forewarn" in capsys.readouterr().err


def test_healthy_days_and_list_effect(data: Path, model: Path, capsys: Capture) -> None:
    assert main(["study", "alarms", "--model", str(model), "--days", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["alarms"]) == ["none", "random", "adversarial", "hindsight"]
    assert found["alarms"]["none"]["interval"][1] >= 3.0
    assert main(["study", "prior", "--data", str(data), "--model", str(model), "--json"]) == 0
    prior = json.loads(capsys.readouterr().out)
    assert prior["recall"]["with"] >= prior["recall"]["without"] > 0.5


def test_simultaneous_and_successive_faults(
    data: Path, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr("forewarn.pipelines.studies.multiple_faults._SIMULTANEOUS_CASES", ((6, 2),))
    monkeypatch.setattr("forewarn.pipelines.studies.multiple_faults._FAULTS_PER_LIFE", (1, 2))
    monkeypatch.setattr("forewarn.pipelines.studies.multiple_faults._LIFE_SECONDS", 2 * 2700)
    given = ["--data", str(data), "--model", str(model), "--tasks", "3", "--seed", "4"]
    assert main(["study", "several", *given, "--methods", "forewarn; means"]) == 0
    assert "2 of 6" in capsys.readouterr().out
    assert main(["study", "several", *given, "--methods", "forewarn", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["methods"]["forewarn"]
    together, life = found["at_once"]["2 of 6"], found["in_a_life"]
    assert list(life) == ["1", "2"]
    assert 0.0 < together["recall"] <= 1.0
    assert life["2"]["wrong_per_task"] < 1.0


@dataclass
class NamesOne:
    """Detector that reports the same machine in every call."""

    machine: int

    def find(
        self, task: Task, *_: object, **__: object
    ) -> tuple[Verdict, dict[str, MachineBaseline]]:
        one = MachineFinding(
            self.machine, "cpu_usage", 2.0, since=task.n_ticks - 300, at=task.n_ticks - 1
        )
        return Verdict((one,), (), (), ()), {}


def test_culprit_is_right_only_during_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("forewarn.pipelines.studies.multiple_faults._LIFE_SECONDS", 7200)
    task = long_task(np.random.default_rng(1), 12, 7200, 2)
    first, second = task.faults
    assert first.end < second.start
    healthy = next(i for i in range(12) if i not in (first.machine, second.machine))
    named, other = cast(Detector, NamesOne(first.machine)), cast(Detector, NamesOne(healthy))
    assert study_several._detect_in_life(named, task) == (1, 1, 2)  # and a false alarm later
    assert study_several._detect_simultaneous(named, task) == (1, 0, 2)
    assert study_several._detect_in_life(other, task) == (0, 1, 2)


@pytest.mark.parametrize("listed", [[0], [0, 1, 2], [], [0, 1, 2, 3, 4, 5]])
def test_list_weights_have_unit_mean(listed: list[int]) -> None:
    flags = np.isin(np.arange(6), listed)
    weights = list_weights(flags)
    assert weights.mean() == pytest.approx(1.0)
    assert weights.min() >= 0.4
    if 0 < len(listed) < 6:
        assert weights[flags].min() > 1.0 > weights[~flags].max()


def test_simulated_incidents_match_contract(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert simulate_tasks._N_TRAINING_TASKS == 60
    monkeypatch.setattr(simulate_tasks, "_N_TRAINING_TASKS", 6)
    for name in "ab":
        given = ["--out", str(tmp_path / name), "--faulty", "2", "--healthy", "1", "--seed", "5"]
        assert main(["simulate", "incidents", *given]) == 0
        # The second run tests the pulls, which do not depend on the training tasks.
        monkeypatch.setattr(simulate_tasks, "_N_TRAINING_TASKS", 1)
    truth = pd.read_csv(tmp_path / "a" / "truth.csv", keep_default_na=False)
    assert list(truth.columns) == ["task", "machine", "fault", "start_s", "machines"]
    assert (truth["machine"] != "").sum() == 2
    assert len(list((tmp_path / "a" / "train").glob("task=*"))) == 6
    for _, row in truth.iterrows():
        path = tmp_path / "a" / "pulls" / f"task={row['task']}" / "part-0.parquet"
        table = pq.read_table(path)
        assert {"timestamp", "machine", "group", "cpu_usage"} <= set(table.column_names)
        machines = set(table["machine"].to_pylist())
        assert len(machines) == row["machines"]
        assert row["machine"] in machines | {""}
        assert path.read_bytes() == Path(str(path).replace("/a/", "/b/")).read_bytes()


def test_simulated_site_includes_configuration(tmp_path: Path) -> None:
    given = ["--out", str(tmp_path), "--faulty", "1", "--healthy", "1", "--seed", "5", "--vary"]
    assert main(["simulate", "incidents", *given]) == 0
    settings = load_settings(tmp_path / "detect.toml").detection
    (folder, *_) = sorted((tmp_path / "pulls").iterdir())
    times = pd.read_parquet(folder, columns=["timestamp", "machine"])
    seconds = times.groupby("machine")["timestamp"].diff().dt.total_seconds()
    assert seconds.median() == settings.interval / SECOND


def test_absent_metrics_are_skipped(
    data: Path, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    """The four metrics that `more metrics` adds are absent."""
    given = ["--data", str(data), "--model", str(model), "--out", str(tmp_path)]
    assert main(["study", "detection", *given, "--methods", "forewarn, more metrics"]) == 0
    assert "forewarn, more metrics" in capsys.readouterr().out


def test_threshold_plot_is_written(
    healthy_metrics: Path, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    picture = tmp_path / "thresholds.png"
    given = ["--metrics", str(healthy_metrics), "--model", str(model), "--out", str(picture)]
    capsys.readouterr()
    assert main(["study", "thresholds", *given, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["cpu_usage", "power_draw"]
    for one in found.values():
        assert one["pulls"][-1] == 14
        for threshold, reached in zip(one["threshold"], one["reached"], strict=True):
            assert threshold > reached
    assert picture.read_bytes().startswith(b"\x89PNG")
