from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from forewarn.pipelines.cli.main import main

pytestmark = pytest.mark.long

CODE = "import sys; from forewarn.pipelines.cli.main import main; sys.exit(main())"


def test_services_start_and_stop_cleanly(tmp_path: Path, free_port: Callable[[], int]) -> None:
    ports = free_port(), free_port()
    command = [sys.executable, "-c", CODE, "up", "--folder", str(tmp_path), "--gpus", "16"]
    command += ["--airflow-port", str(ports[0]), "--mlflow-port", str(ports[1])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(5)]
        assert said[0].split() == ["Airflow", f"http://127.0.0.1:{ports[0]}"]
        assert said[1].split() == ["MLflow", f"http://127.0.0.1:{ports[1]}"]
        assert said[2].split()[:2] == ["login", "admin"]
        for port in ports:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=120) as answer:
                assert answer.status == 200
        group = children(process.pid)
        assert len(group) >= 4
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 0
    ends = time.monotonic() + 300
    while any(Path("/proc", str(pid)).exists() for pid in group):
        assert time.monotonic() < ends
        time.sleep(0.1)
    newest = max(tmp_path.glob("records/date=*/part-0.parquet"))
    times = pd.read_parquet(newest, columns=["timestamp"])["timestamp"]
    now = pd.Timestamp.now("UTC")
    assert now - pd.Timedelta(hours=1) < pd.to_datetime(times, utc=True).max() < now


def children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *children(int(entry.name))]
    return found


def test_used_port_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["up", "--folder", str(tmp_path / "up"), "--mlflow-port", port]) == 2
    assert f"port {port} of 127.0.0.1 cannot be used" in capsys.readouterr().err
    assert not (tmp_path / "up").exists()
    assert os.environ.get("AIRFLOW_HOME") is None
