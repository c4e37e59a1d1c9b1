"""Invalid input ends with one line and the right exit code."""

from __future__ import annotations

import errno
import io
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from forewarn.models.prediction.predictor import Predictor
from forewarn.pipelines.cli import prediction
from forewarn.pipelines.cli.main import main

Capture = pytest.CaptureFixture[str]
FOREWARN = (sys.executable, "-c", "import sys; from forewarn.pipelines.cli.main import main; "
            "sys.exit(main())")  # fmt: skip


def answered(capsys: Capture, *arguments: object) -> str:
    """Run a command that must be refused; return its error line."""
    capsys.readouterr()
    try:
        code = main(list(map(str, arguments)))
    except SystemExit as end:
        code = int(end.code or 0)
    printed = capsys.readouterr()
    assert code == 2, printed
    (line,) = [line for line in printed.err.splitlines() if not line.startswith("note:")]
    assert len(line) < 700
    assert line.isprintable()
    return line


def bad_file(path: Path, kind: str) -> Path:
    """Create an unusable file, or none."""
    contents = {"empty": b"", "no text": b"\xff\xfe\x00\x80", "cut Parquet": b"PAR1\x15\x04"}
    if kind == "folder":
        path.mkdir()
    elif kind == "FIFO":
        os.mkfifo(path)
    elif kind in contents:
        path.write_bytes(contents[kind])
    return path


FILES = ("absent", "folder", "FIFO", "empty", "no text", "cut Parquet")
# Every option that takes a file, in a call without earlier errors.
OPTIONS: dict[str, tuple[str, ...]] = {
    "config": ("doctor", "records", "--config", "BAD"),
    "policy": ("agent", "--once", "--policy", "BAD"),
    "failures": ("review", "--at-risk", "lists", "--failures", "BAD"),
    "incidents": ("detect", "fit", "--metrics", "none", "--model", "none", "--incidents", "BAD"),
    "detector": ("detect", "metrics", "--model", "BAD"),
    "metrics": ("detect", "fit", "--metrics", "BAD", "--model", "none"),
    "predictor": ("score", "--records", "records", "--model", "BAD", "--at", "2025-01-03",
                  "--out", "none"),
    "records": ("doctor", "BAD"),
    "lists": ("review", "--at-risk", "BAD", "--failures", "failures.csv"),
}  # fmt: skip


@pytest.fixture(scope="module")
def site(fleet: pd.DataFrame, write: Callable[[pd.DataFrame, Path], Path], config: Path,
         tmp_path_factory: pytest.TempPathFactory) -> Path:  # fmt: skip
    """Return a folder with two days of records, a list and a table of failures."""
    folder = tmp_path_factory.mktemp("site")
    write(fleet[fleet["timestamp"] < "2025-01-03"], folder / "records")
    shutil.copy(config, folder / "small.toml")
    (folder / "failures.csv").write_text("gpu_serial,failed_at\nS001,2025-01-03T05:00:00Z\n")
    options = ["--records", str(folder / "records"), "--config", str(folder / "small.toml")]
    options += ["--at", "2025-01-03", "--out", str(folder / "lists")]
    assert main(["score", *options, "--model", "builtin:rules"]) == 0
    return folder


# An empty TOML file is valid.
USELESS = [
    (option, kind)
    for option in OPTIONS
    for kind in FILES
    if (option, kind) not in {("config", "empty"), ("policy", "empty")}
]


@pytest.mark.parametrize(("option", "kind"), USELESS)
def test_unusable_file_is_refused(
    option: str, kind: str, site: Path, tmp_path: Path, capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(site)
    bad = bad_file(tmp_path / "bad", kind)
    words = [str(bad) if word == "BAD" else word for word in OPTIONS[option]]
    line = answered(capsys, *words)
    assert str(bad) in line
    assert kind != "absent" or "not a complete Parquet file" not in line
    assert not (site / "none").exists()


TOML = {
    "deep": ("a = " + "[" * 5_000, "nested too deeply"),
    "deep tables": ("a = " + "{a=" * 5_000, "nested too deeply"),
    "5,000 digits": ("[training]\nseed = " + "9" * 5_000, "digits"),
    "4,000 digits": ("[detection]\nseed = " + "9" * 4_000, "detection.seed"),
    "large": ("# " + "x" * 70_000, "bytes"),
    "endless duration": (f'[records]\ninterval = "1{"0" * 400}d"', "records.interval"),
    "long windows": ("[windows]\nlength = 1000000000", "hundred years"),
    "longer windows": ("[windows]\nlength = 9223372036854775808", "windows.length"),
    "no table": ("records = 3", "records"),
    "a date": ("records = 2025-01-01", "records"),
    "names": ('["\\u001b[2J\\u202e"]\na = 1', "unknown key"),
}


@pytest.mark.parametrize("case", TOML)
@pytest.mark.parametrize("command", [("doctor", "records", "--config"), ("agent", "--policy")])
def test_unusual_configuration_file_is_refused(
    command: tuple[str, ...], case: str, tmp_path: Path, capsys: Capture
) -> None:
    text, said = TOML[case]
    path = tmp_path / "odd.toml"
    path.write_text(text)
    line = answered(capsys, *command, path)
    assert "odd.toml" in line
    assert command[0] == "agent" or said in line


@pytest.mark.parametrize("number", ["-1", "0", "1.5", "x", "", "9" * 5_000, "9" * 4_000, "1e9"])
@pytest.mark.parametrize(
    "words",
    [
        ("simulate", "fleet", "--out", "none", "--gpus"),
        ("simulate", "fleet", "--out", "none", "--days"),
        ("demo", "--out", "none", "--gpus"),
        ("up", "--folder", "none", "--mlflow-port"),
        ("study", "several", "--data", "none", "--model", "none", "--tasks"),
        ("study", "alarms", "--model", "none", "--days"),
    ],
)
def test_invalid_counts_are_refused(words: tuple[str, ...], number: str, capsys: Capture) -> None:
    assert "expected an integer of at least 1" in answered(capsys, *words[:-1], words[-1], number)


@pytest.mark.parametrize("seed", ["-1", "1.5", "9" * 5_000, "9" * 4_000])
def test_invalid_seeds_are_refused(seed: str, capsys: Capture) -> None:
    words = ("simulate", "fleet", "--out", "none", "--seed", seed)
    assert "expected an integer of at least 0" in answered(capsys, *words)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("backtest", "--records", "none", "--out", "none"), "2025-01-20T00:00:00Z"),
        (("compact", "--records", "none"), "2025-01-20"),
        (("ingest", "--prometheus", "http://127.0.0.1:1", "--out", "none"), "2025-01-20T00:00:00Z"),
    ],
)
def test_reversed_span_is_refused(words: tuple[str, ...], shown: str, capsys: Capture) -> None:
    span = ("--start", "2025-01-20", "--end", "2025-01-10")
    assert f"found `--start` {shown} after `--end` 2025-01-10" in answered(capsys, *words, *span)


@pytest.mark.parametrize("rate", ["-1", "0", "nan", "inf", "x"])
def test_invalid_rates_are_refused(rate: str, capsys: Capture) -> None:
    words = ("study", "detection", "--data", "none", "--model", "none", "--out", "none")
    assert "expected a number above 0" in answered(capsys, *words, "--false-alarms", rate)


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_invalid_ports_are_refused(port: str, capsys: Capture) -> None:
    assert "--port: found" in answered(capsys, "collect", "--out", "none", "--port", port)


CHANGES: dict[str, dict[str, Any]] = {
    "text for a time": {"window_end": "soon"},
    "a number for a time": {"valid_until": 5},
    "text for a flag": {"flagged": "yes"},
    "no flag": {"flagged": None},
}


@pytest.mark.parametrize("change", [*CHANGES, "a doubled column"])
def test_malformed_lists_are_refused(
    change: str, site: Path, tmp_path: Path, capsys: Capture
) -> None:
    lists = tmp_path / "lists"
    shutil.copytree(site / "lists", lists)
    path = lists / "date=2025-01-03" / "at_risk.parquet"
    if change in CHANGES:
        pd.read_parquet(path).assign(**CHANGES[change]).to_parquet(path)
    else:
        table = pq.read_table(path)
        pq.write_table(table.append_column("flagged", table["flagged"]), path)
    options = ("--at-risk", lists, "--failures", site / "failures.csv")
    assert "at_risk.parquet: column `" in answered(capsys, "review", *options)


@pytest.mark.parametrize("time", ["9999-01-01", "0001-01-01", "9" * 5_000])
def test_impossible_incident_times_are_refused(time: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "incidents.csv"
    path.write_text(f"task,machine,start,end\na,b,{time},2025-03-01\n")
    options = ("--metrics", "none", "--model", "none", "--incidents", path)
    assert "column `start` of row 2" in answered(capsys, "detect", "fit", *options)


def test_output_folder_that_is_a_file(site: Path, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "out").write_text("in the way")
    options = ("--gpus", 2, "--days", 1, "--out", tmp_path / "out")
    assert str(tmp_path / "out") in answered(capsys, "simulate", "fleet", *options)
    config = ("--config", site / "small.toml", "--out", tmp_path / "out")
    assert str(tmp_path / "out") in answered(capsys, "doctor", site / "records", *config)
    assert (tmp_path / "out").read_text() == "in the way"


def _no_room() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3_000, 3_000))


def test_unreadable_predictor_is_refused(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    def refused(folder: Path, _: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder / "predictor.json"))

    monkeypatch.setattr(Predictor, "load", refused)
    options = ("--records", site / "records", "--model", "closed", "--at", "2025-01-03")
    line = answered(capsys, "score", *options, "--out", "none")
    assert line.endswith("--model closed/predictor.json: cannot be read (Permission denied).")


def test_full_disk_leaves_no_output(tmp_path: Path) -> None:
    options = ["simulate", "fleet", "--gpus", "8", "--days", "1", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        [*FOREWARN, *options], check=False, capture_output=True, text=True, preexec_fn=_no_room
    )
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert "part-0.parquet" in line
    assert os.strerror(errno.EFBIG) in line
    assert list(tmp_path.iterdir()) == []


def test_closed_pipe_gives_no_traceback(site: Path) -> None:
    review = ("doctor", str(site / "records"), "--config", str(site / "small.toml"))
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [*FOREWARN, *review], check=False, stdout=closed, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (141, "")


def test_unwritable_output_is_reported(site: Path) -> None:
    review = ("doctor", str(site / "records"), "--config", str(site / "small.toml"))
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*FOREWARN, *review], check=False, stdout=full, stderr=subprocess.PIPE, text=True
        )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line) == (2, "forewarn: error: the output: No space left on device.")


def test_unprintable_name_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["doctor", "né"]) == 2
    sys.stderr.flush()
    assert written.getvalue().startswith(b"forewarn: error: n\\xe9: no such folder")


def test_interruption_is_one_line(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(prediction, "_doctor", interrupted)
    assert main(["doctor", "records"]) == 130
    assert capsys.readouterr().err == "forewarn: interrupted\n"
