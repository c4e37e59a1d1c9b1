"""A bad task, list or state is reported with its reason and does not stop the others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.evaluation.simulation.tasks.task_simulator import SimulatedTask
from forewarn.models.detection.detector_file import load_detector
from forewarn.models.detection.machine_baseline import MachineBaseline
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.config.settings import WatchTable
from forewarn.pipelines.detection.baseline_store import load_baselines, save_baselines
from forewarn.pipelines.detection.detection_watch import DetectionWatch

Put = Callable[[SimulatedTask, Path, str], Path]
Fault = Callable[..., SimulatedTask]
Capture = pytest.CaptureFixture[str]


def part(metrics: Path, task: str) -> Path:
    return metrics / f"task={task}" / "part-0.parquet"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:2000])


def cut_inside(path: Path) -> None:
    """Damage the pages but keep the footer: the file opens but cannot be read."""
    content = bytearray(path.read_bytes())
    content[100:-8000] = bytes(len(content) - 8100)
    path.write_bytes(content)


def double_a_column(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.append_column("cpu_usage", table["cpu_usage"]), path)


def double_the_time(path: Path) -> None:
    table = pq.read_table(path)
    pq.write_table(table.append_column("timestamp", table["timestamp"]), path)


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (cut, "cannot be read as Parquet"),
    "spoiled": (cut_inside, "cannot be read"),
    "no file": (Path.unlink, "holds no file"),
    "no Parquet": (lambda path: path.write_text("no parquet"), "cannot be read as"),
    "no samples": (
        lambda path: pq.write_table(pq.read_table(path)[:0], path),
        "contains no samples",
    ),
    "doubled": (double_a_column, "column `cpu_usage` occurs twice"),
    "doubled time": (double_the_time, "column `timestamp` occurs twice"),
    "fifo": (make_fifo, "is not a regular file"),
    "folder": (make_folder, "is not a regular file"),
}


@pytest.fixture(scope="module")
def spoiled(put: Put, fault: Fault, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one task of every invalid kind, and two valid tasks, first and last by name."""
    metrics = tmp_path_factory.mktemp("spoiled")
    for name in ("a-good", *BAD, "z-good"):
        put(fault(6, 2), metrics, name)
    for name, (spoil, _) in BAD.items():
        spoil(part(metrics, name))
    return metrics


def printed(capsys: Capture, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["detect", *arguments, "--json"]) == code
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("command", [("run",), ("watch", "--once")])
def test_bad_tasks_do_not_stop_others(
    command: tuple[str, ...], spoiled: Path, model: Path, capsys: Capture
) -> None:
    options = [*command, "--metrics", str(spoiled), "--model", str(model)]
    found = {line["task"]: line for line in printed(capsys, *options)}
    assert set(found) == {"a-good", *BAD, "z-good"}
    for name in ("a-good", "z-good"):
        assert found[name]["machine"] == "node-0002"
        assert found[name]["not_judged"] is None
    for name, (_, said) in BAD.items():
        assert found[name].keys() == found["a-good"].keys()
        assert found[name]["machine"] is None
        assert said in found[name]["not_judged"]
        assert f"task={name}" in found[name]["not_judged"]


def test_bad_task_has_text_line(spoiled: Path, model: Path, capsys: Capture) -> None:
    assert main(["detect", "run", "--metrics", str(spoiled), "--model", str(model)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert len(told) == len(BAD) + 2
    (line,) = [line for line in told if line.startswith("cut:")]
    assert line.startswith("cut: not judged: ")
    assert "cannot be read as Parquet" in line


@pytest.mark.parametrize("command", [("run",), ("watch", "--once")])
def test_call_without_valid_task_is_refused(
    command: tuple[str, ...], put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    for name in ("one", "two"):
        cut(part(put(fault(6, 2), tmp_path, name), name))
    options = [*command, "--metrics", str(tmp_path), "--model", str(model)]
    assert [line["machine"] for line in printed(capsys, *options, code=2)] == [None, None]
    assert main(["detect", *options]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    assert "none of 2 tasks can be judged" in line
    assert "task=one" in line


def test_fit_ignores_bad_tasks(
    healthy_metrics: Path, put: Put, fault: Fault, tmp_path: Path, capsys: Capture,
    detection_config: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from forewarn.models.detection.fitting import denoiser_training as lstm_vae_training

    monkeypatch.setattr(lstm_vae_training, "_EPOCHS", 1)
    metrics = tmp_path / "train"
    metrics.mkdir()
    for folder in sorted(healthy_metrics.iterdir())[:3]:
        (metrics / folder.name).symlink_to(folder)
    for name in ("cut", "spoiled", "doubled", "fifo"):
        BAD[name][0](part(put(fault(6, 2), metrics, name), name))
    options = ["--metrics", str(metrics), "--config", str(detection_config)]
    # Three tasks are too few to validate a detector: an alarm among them means exit code 1.
    assert main(["detect", "fit", *options, "--model", str(tmp_path / "model")]) in (0, 1)
    notes = [line for line in capsys.readouterr().err.splitlines() if "is ignored" in line]
    assert len(notes) == 4
    for name in ("cut", "spoiled", "doubled", "fifo"):
        (note,) = [line for line in notes if f"task={name}/" in line]
        assert BAD[name][1] in note
    assert load_detector(tmp_path / "model").facts.tasks == 3


def test_fit_without_valid_task_is_refused(
    put: Put, fault: Fault, detection_config: Path, tmp_path: Path, capsys: Capture
) -> None:
    cut(part(put(fault(6, 2), tmp_path / "m", "one"), "one"))
    options = ["--metrics", str(tmp_path / "m"), "--config", str(detection_config)]
    assert main(["detect", "fit", *options, "--model", str(tmp_path / "model")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot be read as Parquet" in line
    assert not (tmp_path / "model").exists()


def past(machines: int = 6, blocks: int = 4) -> MachineBaseline:
    values = np.zeros((machines, blocks), dtype=np.float32)
    names = tuple(f"node-{i:04d}" for i in range(machines))
    numbers = np.arange(blocks, dtype=np.int64)
    return MachineBaseline(names, numbers, values, values, values, values)


def short_state(path: Path) -> None:
    """Write a state whose arrays have inconsistent shapes."""
    odd = past()
    odd.offset.resize((6, 4))
    save_baselines(
        path.parent, "job", {"cpu_usage": MachineBaseline(odd.machines[:3], *_parts(odd))}
    )


def _parts(one: MachineBaseline) -> tuple[Any, ...]:
    return one.blocks, one.offset, one.spread, one.level, one.measured


def cut_state(path: Path) -> None:
    save_baselines(path.parent, "job", {"cpu_usage": past()})
    cut_half(path)


def names_of_another_kind(path: Path) -> None:
    names: dict[str, Any] = {"0/names": np.frombuffer(b"[1]", dtype=np.uint8)}
    np.savez(path, **names)


BAD_STATES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no archive": lambda path: path.write_text("state"),
    "cut": cut_state,
    "other shapes": short_state,
    "other names": names_of_another_kind,
    "folder": Path.mkdir,
    "fifo": lambda path: os.mkfifo(path),
}


def cut_half(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


@pytest.mark.parametrize("spoil", BAD_STATES.values(), ids=list(BAD_STATES))
def test_bad_state_is_renamed(
    spoil: Callable[[Path], None], put: Put, fault: Fault, model: Path, tmp_path: Path,
    capsys: Capture,
) -> None:  # fmt: skip
    state = tmp_path / "state"
    state.mkdir()
    put(fault(6, 2), tmp_path / "m", "job")
    spoil(state / "job.npz")
    options = ["--metrics", str(tmp_path / "m"), "--model", str(model), "--state", str(state)]
    assert main(["detect", "run", *options, "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["machine"] == "node-0002"
    (note,) = output.err.splitlines()
    assert "job.npz" in note
    assert "starting from scratch" in note
    assert sorted(path.name for path in state.iterdir()) == ["job.npz", "job.npz.unusable"]
    assert set(load_baselines(state, "job")) == {"cpu_usage", "power_draw"}


@pytest.mark.parametrize(
    "text", ["", '{"[\\"job\\"', "[1, 2]", '{"a": "b"}', '{"a": null}', "\xff"]
)
def test_truncated_verdicts_are_renamed(
    text: str, put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "verdicts.json").write_text(text, encoding="latin-1")
    put(fault(6, 2), tmp_path / "m", "job")
    options = ["watch", "--once", "--metrics", str(tmp_path / "m"), "--model", str(model)]
    (line,) = printed(capsys, *options, "--state", str(state))
    assert line["machine"] == "node-0002"
    assert (state / "verdicts.json.unusable").exists()
    assert json.loads((state / "verdicts.json").read_text())


def test_bad_list_does_not_stop_others(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(6, 2), tmp_path / "m", "job")
    lists = tmp_path / "lists"
    for day in ("2025-02-27", "2025-02-28", "2025-03-01"):
        (lists / f"date={day}").mkdir(parents=True)
        table = pd.DataFrame({"machine_id": ["node-0002"], "flagged": [True]})
        for name, time in (("window_end", "2025-02-28"), ("valid_until", "2025-03-02")):
            table[name] = pd.to_datetime([time], utc=True)
        table.to_parquet(lists / f"date={day}" / "at_risk.parquet")
    cut_half(lists / "date=2025-02-27" / "at_risk.parquet")
    other = lists / "date=2025-02-28" / "at_risk.parquet"
    pd.read_parquet(other).assign(window_end="soon").to_parquet(other)
    options = ["--metrics", str(tmp_path / "m"), "--model", str(model), "--at-risk", str(lists)]
    assert main(["detect", "run", *options, "--json"]) == 0
    output = capsys.readouterr()
    assert json.loads(output.out)["machine"] == "node-0002"
    assert [day in output.err for day in ("02-27", "02-28", "03-01")] == [True, True, False]
    assert len(output.err.splitlines()) == 2


def test_watch_continues_without_lists(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(6, 2), tmp_path / "m", "job")
    watch = DetectionWatch(
        load_detector(model), WatchTable(), tmp_path / "m", at_risk=tmp_path / "lists"
    )
    assert [line["machine"] for line in watch.call()] == ["node-0002"]
    assert "holds no list" in capsys.readouterr().err


def test_watch_reports_unjudged_task_once(
    put: Put, fault: Fault, model: Path, tmp_path: Path
) -> None:
    path = part(put(fault(6, 2), tmp_path, "job"), "job")
    put(fault(6, 3), tmp_path, "other")
    content = path.read_bytes()
    watch = DetectionWatch(load_detector(model), WatchTable(), tmp_path)
    cut(path)
    assert [line["not_judged"] is None for line in watch.call()] == [False, True]
    assert list(watch.call()) == []
    path.write_bytes(content)
    assert [line["machine"] for line in watch.call()] == ["node-0002"]
    cut(path)
    assert [line["not_judged"] is None for line in watch.call()] == [False]


def test_watch_reports_old_verdict_once(
    put: Put, fault: Fault, model: Path, tmp_path: Path
) -> None:
    """Keep the folder of last week's job next to one of today."""
    for name, days in (("old", 0), ("new", 7)):
        path = part(put(fault(6, 2), tmp_path, name), name)
        frame = pd.read_parquet(path)
        frame["timestamp"] += pd.Timedelta(days=days)
        frame.to_parquet(path)
    watch = DetectionWatch(load_detector(model), WatchTable(), tmp_path, tmp_path / "state")
    calls = [[line["task"] for line in watch.call()] for _ in range(3)]
    assert calls == [["new", "old"], [], []]
    again = DetectionWatch(load_detector(model), WatchTable(), tmp_path, tmp_path / "state")
    assert list(again.call()) == []


def test_watch_continues_with_unwritable_state(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(6, 2), tmp_path / "m", "job")
    (tmp_path / "state").write_text("in the way")
    watch = DetectionWatch(load_detector(model), WatchTable(), tmp_path / "m", tmp_path / "state")
    assert [line["machine"] for line in watch.call()] == ["node-0002"]
    assert list(watch.call()) == []
    assert str(tmp_path / "state") in capsys.readouterr().err


def test_plots_have_distinct_file_names(
    put: Put, fault: Fault, model: Path, tmp_path: Path
) -> None:
    names = ["..", "é", "a job", "a_job", "A" * 80, "A" * 81, "$x^{"]
    for name in names:
        put(fault(4, 2), tmp_path / "m", name)
    folders = [tmp_path / "png", tmp_path / "state"]
    options = ["--metrics", str(tmp_path / "m"), "--model", str(model)]
    assert (
        main(["detect", "run", *options, "--plot", str(folders[0]), "--state", str(folders[1])])
        == 0
    )
    for folder in folders:
        written = [path.stem for path in folder.iterdir()]
        assert len(written) == len(names)
        assert "a_job" in written
        assert all(name.isascii() and name[0].isalnum() and len(name) < 100 for name in written)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "png", "state"]
