"""The fit report of `forewarn detect fit`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forewarn.evaluation.simulation.tasks.task_simulator import SimulatedTask, healthy_task
from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.long

Put = Callable[[SimulatedTask, Path, str], Path]
Fault = Callable[..., SimulatedTask]
Capture = pytest.CaptureFixture[str]
"""Real metrics; tests that need them are skipped if they are missing."""


def fitted(
    capsys: Capture, metrics: Path, config: Path, model: Path, *more: str
) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    options = ["--metrics", str(metrics), "--config", str(config), "--model", str(model)]
    code = main(["detect", "fit", *options, *more, "--json"])
    (line,) = capsys.readouterr().out.splitlines()
    return code, json.loads(line)


@pytest.fixture
def few(put: Put, tmp_path: Path) -> Path:
    for number in range(8):
        task = healthy_task(np.random.default_rng([14, number]), 6 + number, 900)
        put(task, tmp_path / "few", f"train-{number}")
    return tmp_path / "few"


def test_too_little_data_is_observe_only(
    few: Path, detection_config: Path, tmp_path: Path, capsys: Capture
) -> None:
    code, said = fitted(capsys, few, detection_config, tmp_path / "model")
    assert code == 0
    assert said["observe_only"]
    assert (said["tasks"], said["machines"], said["alarms"]) == (8, sum(range(6, 14)), 0)
    assert (said["left_out"], said["blind"]) == ([], 0.0)
    assert said["false_alarms_wanted"] == 0.02
    assert said["alarms_expected"] == pytest.approx(0.02 * 8 * 900 / 86400, rel=0.01)
    assert said["false_alarms_supported"] == pytest.approx(3.0 / (8 * 900 / 86400), rel=0.01)
    assert main(["detect", "run", "--metrics", str(few), "--model", str(tmp_path / "model")]) == 0
    assert "observe only" in capsys.readouterr().out


def test_single_job_cannot_be_cross_validated(
    few: Path, detection_config: Path, tmp_path: Path, capsys: Capture
) -> None:
    for number, folder in enumerate(sorted(few.iterdir())):
        folder.rename(few / f"task=sort-{900 * number:05d}")
    code, said = fitted(capsys, few, detection_config, tmp_path / "model")
    assert code == 0
    assert (said["jobs"], said["judged"], said["false_alarms_supported"]) == (1, 0, None)
    assert said["observe_only"]


def test_detector_without_judged_task_fails(
    put: Put, detection_config: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Pulls of a minute are shorter than a continuity of four minutes."""
    for number in range(3):
        task = healthy_task(np.random.default_rng(number), 6, 60)
        put(task, tmp_path / "short", f"train-{number}")
    code, said = fitted(capsys, tmp_path / "short", detection_config, tmp_path / "model")
    assert code == 1
    assert said["never_useful"] == ["cpu_usage", "power_draw"]
    assert (tmp_path / "model" / "detector.json").exists()


def test_suspected_task_is_excluded_until_labelled(
    put: Put,
    fault: Fault,
    healthy_metrics: Path,
    detection_config: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    folder = tmp_path / "train"
    shutil.copytree(healthy_metrics, folder)
    put(fault(12, 4, seed=77), folder, "spoiled")
    _, said = fitted(capsys, folder, detection_config, tmp_path / "model")
    (one,) = said["left_out"]
    assert (one["task"], one["machine"], one["metric"]) == ("spoiled", "node-0004", "power_draw")
    assert any("--incidents" in why for why in said["doubts"])
    labels = tmp_path / "labels.csv"
    labels.write_text("task,machine,start,end\nspoiled,node-0004,2025-03-01,2025-03-02\n")
    _, said = fitted(
        capsys, folder, detection_config, tmp_path / "labelled", "--incidents", str(labels)
    )
    assert said["left_out"] == []
    assert not any("--incidents" in why for why in said["doubts"])


def test_labelled_healthy_task_is_kept(
    put: Put,
    fault: Fault,
    healthy_metrics: Path,
    detection_config: Path,
    tmp_path: Path,
    capsys: Capture,
) -> None:
    folder = tmp_path / "train"
    shutil.copytree(healthy_metrics, folder)
    put(fault(12, 4, seed=77), folder, "spoiled")
    labels = tmp_path / "labels.csv"
    labels.write_text("task,machine,start,end\nspoiled,,,\n")
    options = ("--incidents", str(labels))
    _, said = fitted(capsys, folder, detection_config, tmp_path / "model", *options)
    assert said["left_out"] == []
    model = str(tmp_path / "model")
    assert main(["detect", "run", "--metrics", str(folder), "--model", model, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["machine"] for line in lines] == [None] * 15


@pytest.mark.parametrize("held_out", ["5_0_100000_37", "5_0_50000_39", "7_0_50000_58"])
def test_held_out_real_job_raises_no_alarm(
    held_out: str, shared_data: Path, tmp_path: Path, capsys: Capture
) -> None:
    real = shared_data / "machine_metrics" / "exathlon"
    for folder in sorted(real.glob("task=*")):
        part = "pulls" if held_out in folder.name else "train"
        shutil.copytree(folder, tmp_path / part / folder.name)
    model = str(tmp_path / "model")
    fitted(capsys, tmp_path / "train", real / "detect.toml", tmp_path / "model")
    for part in ("pulls", "train"):
        given = ["--metrics", str(tmp_path / part), "--model", model]
        assert main(["detect", "run", *given, "--json"]) == 0
        for line in capsys.readouterr().out.splitlines():
            assert json.loads(line)["machine"] is None
