"""`forewarn detect` end to end, on tasks with two metrics."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from forewarn.evaluation.simulation.tasks.task_simulator import SimulatedTask, healthy_task
from forewarn.features.telemetry.telemetry_tables import EVENTS, build_table
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.detection.verdict_plot import plot_title

Put = Callable[[SimulatedTask, Path, str], Path]
Fault = Callable[..., SimulatedTask]
Capture = pytest.CaptureFixture[str]
KEYS = (
    *("task", "machine", "metric", "score", "since", "detected_at", "also", "blind", "machines"),
    "seconds",
)


def lines(capsys: Capture, *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["detect", "run", *arguments, "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def refused(capsys: Capture, *arguments: str) -> str:
    capsys.readouterr()
    try:
        code = main(list(arguments))
    except SystemExit as end:
        code = int(end.code or 0)
    printed = capsys.readouterr()
    assert code == 2, printed
    assert printed.out == ""
    said = printed.err.strip().splitlines()
    assert len(said) == 1, said
    return said[0]


def test_faulty_machine_is_identified(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(12, 5), tmp_path, "faulty")
    put(healthy_task(np.random.default_rng(77), 12, 900), tmp_path, "healthy")
    faulty, healthy = lines(capsys, "--metrics", str(tmp_path), "--model", str(model))
    assert all(key in faulty for key in KEYS)
    assert (faulty["task"], faulty["machine"]) == ("faulty", "node-0005")
    assert faulty["metric"] == "power_draw"
    since = pd.Timestamp(faulty["since"])
    begun = pd.Timestamp("2025-03-01T00:06:40Z")
    assert abs((since - begun).total_seconds()) < 30
    after = (pd.Timestamp(faulty["detected_at"]) - begun).total_seconds()
    assert 200 < after < 400
    assert faulty["score"] >= 1
    evidence = faulty["evidence"]
    assert evidence["now"] == pytest.approx(0.35 * evidence["before"], rel=0.3)
    assert evidence["others_now"] == pytest.approx(evidence["others_before"], rel=0.3)
    assert len(evidence["peers"]) == 3
    assert "node-0005" not in evidence["peers"]
    assert (healthy["machine"], healthy["metric"], healthy["since"]) == (None, None, None)
    assert healthy["also"] == []
    assert healthy["machines"] == 12


def test_verdict_includes_xids(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(12, 5), tmp_path / "m", "job")
    event = {"kind": "xid", "gpu_serial": "S7", "raw": "NVRM: Xid (PCI:0000:10:00): 79"}
    at = pd.Timestamp("2025-03-01T00:05:10Z").value
    rows = [
        event | {"timestamp": at, "machine_id": "node-0005", "code": 79, "id": "1"},
        event | {"timestamp": at, "machine_id": "node-0004", "code": 48, "id": "2"},
    ]
    path = tmp_path / "records" / "_events" / "date=2025-03-01" / "00.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(build_table(rows, EVENTS), path)
    given = ["--metrics", str(tmp_path / "m"), "--model", str(model)]
    (without,) = lines(capsys, *given)
    assert without["evidence"]["xids"] is None
    (line,) = lines(capsys, *given, "--events", str(tmp_path / "records"))
    (xid,) = line["evidence"]["xids"]
    assert (xid["xid"], xid["gpu_serial"], xid["time"]) == (79, "S7", "2025-03-01T00:05:10Z")
    assert main(["detect", "run", *given, "--events", str(tmp_path / "records")]) == 0
    assert ", Xid 79 on S7 at 2025-03-01T00:05:10Z" in capsys.readouterr().out
    said = refused(capsys, "detect", "run", *given, "--events", str(tmp_path))
    assert "holds no `_events`" in said


def test_jitter_is_reported_separately(
    put: Put, jitter: SimulatedTask, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(jitter, tmp_path, "job")
    given = ["--metrics", str(tmp_path), "--model", str(model)]
    (line,) = lines(capsys, *given)
    assert line["machine"] is None
    told = next(one for one in line["jitters"] if one["machine"] == "node-0006")
    assert told["metric"] == "power_draw"
    assert 20 <= told["seconds"] <= 110
    assert main(["detect", "run", *given]) == 0
    assert "node-0006 deviated for" in capsys.readouterr().out


def test_detection_needs_no_tensorflow(put: Put, fault: Fault, model: Path, tmp_path: Path) -> None:
    put(fault(8, 2), tmp_path, "job")
    code = (
        "import sys\nfrom forewarn.pipelines.cli.main import main\n"
        f"files = ['--metrics', {str(tmp_path)!r}, '--model', {str(model)!r}]\n"
        "code = main(['detect', 'run', *files])\n"
        "loaded = {'tensorflow', 'keras', 'sklearn', 'mlflow'} & set(sys.modules)\n"
        "sys.exit(code or bool(loaded))"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True)
    assert done.returncode == 0, done.stderr
    assert b"node-0002 deviates on power_draw" in done.stdout


IN_A_NEW_PROCESS = """
import sys
from pathlib import Path
from numba.core.event import RecordingListener, install_listener
from forewarn.models.detection.detector_file import load_detector
from forewarn.pipelines.detection.detection_run import detect, open_for_detector, warm_up

stored = load_detector(Path(sys.argv[1]))
warm_up(stored)
with install_listener("numba:compile", RecordingListener()) as heard:
    pull = open_for_detector(Path(sys.argv[2]), stored)
    judged, _ = detect(pull, stored.detector, None, {})
print([str(event.data) for _, event in heard.buffer])
sys.exit(bool(heard.buffer) or not judged.verdict.findings)
"""


def test_pull_compiles_nothing(put: Put, fault: Fault, model: Path, tmp_path: Path) -> None:
    """In a new process without cached compiled code, as in a read-only container."""
    put(fault(8, 2), tmp_path / "m", "job")
    command = [sys.executable, "-W", "ignore", "-c", IN_A_NEW_PROCESS, str(model)]
    done = subprocess.run(
        [*command, str(tmp_path / "m" / "task=job")],
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_detector_is_read_only_without_pickle(
    model: Path, put: Put, fault: Fault, tmp_path: Path, capsys: Capture
) -> None:
    names = sorted(path.name for path in model.iterdir())
    assert names == ["denoisers.npz", "detector.json"]
    with np.load(model / "denoisers.npz", allow_pickle=False) as arrays:
        assert all(arrays[name].dtype == np.float32 for name in arrays.files)
    copy = tmp_path / "read-only"
    shutil.copytree(model, copy)
    for path in (*copy.iterdir(), copy):
        path.chmod(0o555 if path.is_dir() else 0o444)
    put(fault(8, 2), tmp_path / "m", "job")
    (found,) = lines(capsys, "--metrics", str(tmp_path / "m"), "--model", str(copy))
    assert found["machine"] == "node-0002"


def test_row_order_and_duplicates_do_not_matter(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(8, 3), tmp_path / "a", "job")
    table = pq.read_table(tmp_path / "a" / "task=job" / "part-0.parquet")
    mixed = table.take(np.random.default_rng(0).permutation(len(table)))
    mixed = mixed.set_column(1, "machine", mixed["machine"].cast(pa.string()))
    folder = tmp_path / "b" / "task=job"
    folder.mkdir(parents=True)
    half = len(mixed) // 2
    pq.write_table(mixed.slice(0, half + 50), folder / "one.parquet")
    pq.write_table(mixed.slice(half), folder / "two.parquet")
    pq.write_table(mixed.slice(0, 0), folder / "three.parquet")
    (folder / "_metadata").write_text("no data")
    (one,), (two,) = (
        lines(capsys, "--metrics", str(tmp_path / name), "--model", str(model)) for name in "ab"
    )
    one.pop("seconds"), two.pop("seconds")
    assert one == two
    assert one["machine"] == "node-0003"


def test_state_provides_baselines(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    state, known = tmp_path / "state", ["--state", str(tmp_path / "state"), "--model", str(model)]
    begin = fault(8, 3, start=900, seed=4)
    put(begin, tmp_path / "a", "job")
    assert lines(capsys, "--metrics", str(tmp_path / "a"), *known)[0]["machine"] is None
    assert [path.name for path in state.iterdir()] == ["job.npz"]
    later = pq.read_table(tmp_path / "a" / "task=job" / "part-0.parquet").to_pandas()
    later["timestamp"] += pd.Timedelta(seconds=900)
    power = later["power_draw"]
    later["power_draw"] = power.where(later["machine"] != "node-0003", 0.35 * power)
    (tmp_path / "b" / "task=job").mkdir(parents=True)
    later.to_parquet(tmp_path / "b" / "task=job" / "part-0.parquet")
    (unknown,) = lines(capsys, "--metrics", str(tmp_path / "b"), "--model", str(model))
    (found,) = lines(capsys, "--metrics", str(tmp_path / "b"), *known)
    assert unknown["machine"] is None or unknown["kind"] == "straggler"
    assert (found["machine"], found["kind"]) == ("node-0003", "fault")


def test_task_name_stays_in_state_folder(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(8, 3), tmp_path / "m", "..%2F..%2Fetc")
    state = tmp_path / "deep" / "state"
    lines(capsys, "--metrics", str(tmp_path / "m"), "--model", str(model), "--state", str(state))
    (written,) = state.iterdir()
    assert written.name.startswith("2F..")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "m"]


@pytest.mark.parametrize(("interval", "continuity"), [("1ms", "240ms"), ("1min", "240min")])
def test_other_cadences(
    put: Put,
    fault: Fault,
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
    interval: str,
    continuity: str,
) -> None:
    from forewarn.models.detection.fitting import denoiser_training as lstm_vae_training

    monkeypatch.setattr(lstm_vae_training, "_EPOCHS", 3)
    config = tmp_path / "config.toml"
    config.write_text(
        f'[detection]\ninterval = "{interval}"\ncontinuity = "{continuity}"\n'
        'metrics = [{ name = "power_draw", high = 1000.0 }]\n'
    )
    for number in range(8):
        put(healthy_task(np.random.default_rng([3, number]), 12, 900), tmp_path / "t", f"t{number}")
    put(fault(12, 5), tmp_path / "m", "job")
    step = pd.Timedelta(interval)
    for path in tmp_path.glob("*/task=*/part-0.parquet"):
        frame = pd.read_parquet(path)
        begin = frame["timestamp"].min()
        frame["timestamp"] = begin + (frame["timestamp"] - begin) // pd.Timedelta("1s") * step
        frame.to_parquet(path)
    options = ["--metrics", str(tmp_path / "t"), "--config", str(config)]
    assert main(["detect", "fit", *options, "--model", str(tmp_path / "model")]) == 0
    (found,) = lines(capsys, "--metrics", str(tmp_path / "m"), "--model", str(tmp_path / "model"))
    assert found["machine"] == "node-0005"
    since = (pd.Timestamp(found["since"]) - pd.Timestamp("2025-03-01T00:00:00Z")) / step
    assert 350 <= since <= 420


def at_risk(folder: Path, machine: str, end: str, until: str, *, flagged: bool = True) -> Path:
    place = folder / "date=2025-03-01"
    place.mkdir(parents=True)
    table = pd.DataFrame(
        {
            "rank": [1],
            "gpu_serial": ["g1"],
            "machine_id": [machine],
            "flagged": [flagged],
            "window_end": pd.to_datetime([end], utc=True),
            "valid_until": pd.to_datetime([until], utc=True),
        }
    )
    table.to_parquet(place / "at_risk.parquet")
    return folder


def weak(fault: Fault, share: float) -> SimulatedTask:
    task = fault(8, 3, start=900, seed=4)
    task.samples["power_draw"][3, 400:] *= share
    return task


def test_valid_list_acts_as_prior(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    """Find a fault that is just too weak without the list; the list must decide."""
    lists = {
        "valid": at_risk(tmp_path / "v", "node-0003", "2025-02-28", "2025-03-02"),
        "other": at_risk(tmp_path / "o", "node-0005", "2025-02-28", "2025-03-02"),
        "past": at_risk(tmp_path / "p", "node-0003", "2025-02-26", "2025-02-28"),
        "unflagged": at_risk(
            tmp_path / "u", "node-0003", "2025-02-28", "2025-03-02", flagged=False
        ),
    }
    for step in range(40):
        metrics = put(weak(fault, 1.0 - 0.2 * 0.99**step), tmp_path / f"m{step}", "job")
        common = ["--metrics", str(metrics), "--model", str(model)]
        if lines(capsys, *common)[0]["machine"] is None:
            break
    named = {
        name: lines(capsys, *common, "--at-risk", str(folder))[0] for name, folder in lists.items()
    }
    assert named["valid"]["machine"] == "node-0003"
    assert named["valid"]["helped_by_list"]
    assert all(named[name]["machine"] is None for name in ("other", "past", "unflagged"))


def test_metric_order_is_shown_and_set(model: Path, tmp_path: Path, capsys: Capture) -> None:
    mine = tmp_path / "model"
    shutil.copytree(model, mine)
    assert main(["detect", "metrics", "--model", str(mine)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in shown[1:]] == ["cpu_usage", "power_draw"]
    assert main(["detect", "metrics", "--model", str(mine), "--order", "power_draw"]) == 0
    capsys.readouterr()
    assert main(["detect", "metrics", "--model", str(mine), "--json"]) == 0
    printed = [json.loads(line)["metric"] for line in capsys.readouterr().out.splitlines()]
    assert printed == ["power_draw", "cpu_usage"]
    said = refused(capsys, "detect", "metrics", "--model", str(mine), "--order", "disk")
    assert "found 'disk', expected names of power_draw, cpu_usage" in said


def test_verdict_is_plotted(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(8, 2), tmp_path / "m", "a job")
    lines(
        capsys,
        *("--metrics", str(tmp_path / "m"), "--model", str(model)),
        *("--plot", str(tmp_path / "png")),
    )
    (picture,) = (tmp_path / "png").iterdir()
    assert picture.name.startswith("a_job~")
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_plot_title_describes_finding(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    put(fault(8, 2), tmp_path, "job")
    (line,) = lines(capsys, "--metrics", str(tmp_path), "--model", str(model))
    shown = line["evidence"]
    who, what, when, trust = plot_title(line, 8).splitlines()
    assert who == "job: node-0002 deviates on power_draw"
    assert what == (
        f"machine: {shown['now']:.4g} (before {shown['before']:.4g}); peers: "
        f"{shown['others_now']:.4g} (before {shown['others_before']:.4g})"
    )
    assert when.startswith("since 2025-03-01 00:06:")
    assert when.endswith(f" UTC; {line['score']:.1f} times the threshold; 8 machines")
    assert trust.startswith("OBSERVE ONLY")
    line |= {"kind": "straggler", "blind": ["a", "b", "c", "d"], "observe_only": False}
    line["evidence"] |= {"before": None, "unit": "per 1 s"}
    who, what, small, _, blind = plot_title(line, 2).splitlines()
    assert who == "job: node-0002 has deviated since its first sample on power_draw"
    assert what.startswith(f"machine: {shown['now']:.4g} per 1 s; peers: ")
    assert small == "its group has 2 machines: compared with other small groups"
    assert blind == "no data for a, b, c and 1 more"
    healthy = line | {"machine": None, "blind": []}
    assert plot_title(healthy, 8) == "job: no faulty machine among 8 machines"
    dropped = {"machine": "a", "metric": "wait", "score": 2.0, "rule": "victim"}
    event = healthy | {"event": {"machines": ["a", "b"]}, "suppressed": [dropped]}
    assert plot_title(event, 8).splitlines()[1:] == [
        "moved together, without a culprit: a, b",
        "not named: a (waits for others)",
    ]


def test_victims_and_culprit_are_told_apart(tmp_path: Path, capsys: Capture) -> None:
    """A slow worker of one stage makes its partners in three other stages wait."""
    for number in range(21):
        write_stages(tmp_path / "train", f"job-{number}", seed=number)
    write_stages(tmp_path / "pulls", "slow", seed=99, slow=6)
    write_stages(tmp_path / "pulls", "waits", seed=98, slow=6, more_work=0.0)
    config = tmp_path / "c.toml"
    config.write_text('[detection]\nmetrics = [{name = "compute"}, {name = "waiting"}]\n')
    options = ["--config", str(config), "--model", str(tmp_path / "model")]
    main(["detect", "fit", "--metrics", str(tmp_path / "train"), *options])
    capsys.readouterr()
    pictures = ["--plot", str(tmp_path / "png")]
    line, waits = lines(capsys, "--metrics", str(tmp_path / "pulls"), *options, *pictures)
    assert line["machine"] == "node-06"
    victims = {each["machine"] for each in line["suppressed"] if each["rule"] == "victim"}
    assert victims == {"node-02", "node-10", "node-14"}
    assert (tmp_path / "png" / "slow.png").read_bytes().startswith(b"\x89PNG")
    title = plot_title(line, 4)
    assert title.startswith("slow: node-06 deviates on compute")
    assert "(waits for others)" in title
    assert (waits["machine"], set(waits["event"]["machines"])) == (None, victims)
    assert (tmp_path / "png" / "waits.png").read_bytes().startswith(b"\x89PNG")


def write_stages(
    folder: Path, name: str, *, seed: int, slow: int | None = None, more_work: float = 12.0
) -> None:
    """Write shares of time of 16 machines in four stages; partners of the slow one wait."""
    generator = np.random.default_rng(seed)
    compute = generator.normal(50.0, 1.5, (16, 600))
    for machine in range(16):
        if slow is not None and machine % 4 == slow % 4:
            compute[machine, 250:] += more_work if machine == slow else -22.0
    times = pd.Timestamp("2026-11-01") + pd.to_timedelta(np.arange(600), "s")
    parts = [
        pd.DataFrame(
            {
                "timestamp": times,
                "machine": f"node-{machine:02d}",
                "group": f"stage-{machine // 4}",
                "compute": compute[machine],
                "waiting": 90.0 - compute[machine] + generator.normal(0.0, 0.5, 600),
            }
        )
        for machine in range(16)
    ]
    (folder / f"task={name}").mkdir(parents=True)
    pd.concat(parts).to_parquet(folder / f"task={name}" / "part-0.parquet")


def spoiled(put: Put, fault: Fault, folder: Path, change: Callable[[pd.DataFrame], Any]) -> Path:
    put(fault(6, 2), folder, "job")
    path = folder / "task=job" / "part-0.parquet"
    frame = pd.read_parquet(path)
    frame["machine"] = frame["machine"].astype(str)
    change(frame).to_parquet(path)
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.drop(columns="timestamp"), "column `timestamp` is missing"),
        (lambda f: f.drop(columns="machine"), "column `machine` is missing"),
        (lambda f: f.assign(timestamp=1.5), "column `timestamp` is double, expected a timestamp"),
        (lambda f: f.assign(machine=7), "column `machine` is int64, expected a string"),
        (lambda f: f.assign(cpu_usage="high"), "column `cpu_usage` is"),
        (lambda f: f.drop(columns=["cpu_usage", "power_draw"]), "has none of the metrics of this"),
        (lambda f: f.head(0), "contains no samples"),
    ],
)
def test_invalid_input_is_refused_in_one_line(
    put: Put,
    fault: Fault,
    model: Path,
    tmp_path: Path,
    capsys: Capture,
    change: Callable[[pd.DataFrame], pd.DataFrame],
    said: str,
) -> None:
    metrics = spoiled(put, fault, tmp_path, change)
    line = refused(capsys, "detect", "run", "--metrics", str(metrics), "--model", str(model))
    assert said in line
    assert "task=job" in line


def test_invalid_files_are_refused(model: Path, tmp_path: Path, capsys: Capture) -> None:
    run = ["detect", "run", "--model", str(model), "--metrics"]
    assert "no such folder" in refused(capsys, *run, str(tmp_path / "none"))
    assert "holds no task" in refused(capsys, *run, str(tmp_path))
    (tmp_path / "task=job").mkdir()
    assert "holds no file" in refused(capsys, *run, str(tmp_path))
    (tmp_path / "task=job" / "x.parquet").write_text("no parquet")
    assert "cannot be read as Parquet" in refused(capsys, *run, str(tmp_path))


def test_invalid_model_is_refused(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    metrics = put(fault(6, 2), tmp_path / "m", "job")
    run = ["detect", "run", "--metrics", str(metrics), "--model"]
    assert "detector.json is missing" in refused(capsys, *run, str(tmp_path / "none"))
    broken = tmp_path / "broken"
    shutil.copytree(model, broken)
    (broken / "detector.json").write_text("{}")
    assert "cannot be used" in refused(capsys, *run, str(broken))
    shutil.copy(model / "detector.json", broken)
    (broken / "denoisers.npz").write_bytes(b"PK\x03\x04 cut")
    assert "cannot be used" in refused(capsys, *run, str(broken))


@pytest.mark.parametrize(
    "change",
    [
        lambda f: f[f["machine"] == "node-0000"],
        lambda f: f[f["machine"].isin(["node-0000", "node-0002"])],
        lambda f: f.assign(cpu_usage=np.nan, power_draw=np.nan),
        lambda f: f.assign(cpu_usage=50.0, power_draw=400.0),
        lambda f: f.assign(cpu_usage=np.inf, power_draw=-np.inf),
    ],
    ids=["one machine", "two machines", "all missing", "all constant", "infinite"],
)
def test_uninformative_metrics_have_no_finding(
    put: Put,
    fault: Fault,
    model: Path,
    tmp_path: Path,
    capsys: Capture,
    change: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    metrics = spoiled(put, fault, tmp_path, change)
    (found,) = lines(capsys, "--metrics", str(metrics), "--model", str(model))
    assert found["machine"] is None


def test_wrong_clock_or_constant_series_has_no_data(
    put: Put, fault: Fault, model: Path, tmp_path: Path, capsys: Capture
) -> None:
    def change(frame: pd.DataFrame) -> pd.DataFrame:
        late = frame["machine"] == "node-0001"
        frame.loc[late, "timestamp"] += pd.Timedelta(minutes=30)
        stuck = frame["machine"] == "node-0004"
        frame.loc[stuck, ["cpu_usage", "power_draw"]] = [10.0, 100.0]
        return frame

    metrics = spoiled(put, fault, tmp_path, change)
    (found,) = lines(capsys, "--metrics", str(metrics), "--model", str(model))
    assert found["blind"] == ["node-0001", "node-0004"]
    assert found["machine"] in (None, "node-0002")


def test_incidents_rank_metrics(
    put: Put, fault: Fault, healthy_metrics: Path, detection_config: Path, tmp_path: Path
) -> None:
    from forewarn.pipelines.config.settings import load_settings
    from forewarn.pipelines.detection.detector_fit import LabelledIncident, _ranks, _Tasks
    from forewarn.pipelines.detection.task_metrics import find_pulls

    folder = tmp_path / "m"
    shutil.copytree(healthy_metrics, folder)
    incidents = []
    for number in range(5):
        put(fault(10, 4, start=200, seed=30 + number), folder, f"bad-{number}")
        incidents.append(LabelledIncident(f"bad-{number}", "node-0004", 0, 1))
    settings = load_settings(detection_config).detection
    faulty = frozenset(one.task for one in incidents)
    tasks = _Tasks(find_pulls(folder), settings, faulty)
    ranks = _ranks(tasks, [one.limits for one in settings.metrics], faulty, settings)
    assert [name for name, _ in ranks] == ["power_draw", "cpu_usage"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("task,machine\n", "column `start` is missing"),
        ("task,machine,start,end\na,b,soon,2025-03-01\n", "column `start` of row 2 is 'soon'"),
    ],
)
def test_unreadable_incidents_are_refused(
    healthy_metrics: Path, tmp_path: Path, capsys: Capture, text: str, said: str
) -> None:
    path = tmp_path / "incidents.csv"
    path.write_text(text)
    options = ["--metrics", str(healthy_metrics), "--model", str(tmp_path / "new")]
    line = refused(capsys, "detect", "fit", *options, "--incidents", str(path))
    assert said in line
    assert not (tmp_path / "new").exists()


def test_fit_refuses_metrics_of_other_site(
    healthy_metrics: Path, tmp_path: Path, capsys: Capture
) -> None:
    config = tmp_path / "other.toml"
    config.write_text('[detection]\nmetrics = [{name = "sm_clock"}]\n')
    options = ["--metrics", str(healthy_metrics), "--model", str(tmp_path / "new")]
    main_line = refused(capsys, "detect", "fit", *options, "--config", str(config))
    assert "expected those of `detection.metrics`" in main_line
