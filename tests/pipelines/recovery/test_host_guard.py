"""The guard of a job's processes on a host."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from forewarn.pipelines.recovery import host_guard

# Starts a process in a session of its own that ignores TERM, as a hung rank may, and waits.
_COMMAND = """
import subprocess, sys, time
child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
process = subprocess.Popen([sys.executable, "-c", child], start_new_session=True)
open(sys.argv[1], "w").write(str(process.pid))
time.sleep(600)
"""


def _guard(folder: Path, attempt: int, *command: str) -> subprocess.Popen[bytes]:
    source = Path(host_guard.__file__).read_text()
    words = [sys.executable, "-c", source, str(folder), str(attempt), "0.2", "A=1", "--", *command]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _child(folder: Path) -> int:
    path = folder / "pid"
    for _ in range(600):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError("the command did not start")


def _runs(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_end_of_the_input_ends_all_processes(tmp_path: Path) -> None:
    guard = _guard(tmp_path, 1, sys.executable, "-c", _COMMAND, str(tmp_path / "pid"))
    child = _child(tmp_path)
    output, _ = guard.communicate(timeout=60)  # closes the input
    assert output.decode().splitlines() == [host_guard.BEGUN, f"{host_guard.ENDED} stopped"]
    assert not _runs(child)


def test_next_guard_ends_what_a_killed_guard_left(tmp_path: Path) -> None:
    guard = _guard(tmp_path, 1, sys.executable, "-c", _COMMAND, str(tmp_path / "pid"))
    child = _child(tmp_path)
    guard.send_signal(signal.SIGKILL)
    guard.wait()
    assert _runs(child)
    with _guard(tmp_path, 2, sys.executable, "-c", "import sys; sys.exit(3)") as following:
        assert following.wait(60) == 3
    assert not _runs(child)
    guard.communicate(timeout=60)


def test_exit_code_is_that_of_the_command(tmp_path: Path) -> None:
    guard = _guard(tmp_path, 1, sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert guard.wait(60) == 128 + 9
    output, _ = guard.communicate(timeout=60)
    assert output.decode().splitlines()[-1] == f"{host_guard.ENDED} -9"


def test_guard_of_an_earlier_attempt_leaves_a_later_one_alone(tmp_path: Path) -> None:
    guard = _guard(tmp_path, 2, sys.executable, "-c", _COMMAND, str(tmp_path / "pid"))
    child = _child(tmp_path)
    with _guard(tmp_path, 1, sys.executable, "-c", "pass") as late:
        assert late.wait(60) == 0
    assert _runs(child)
    guard.communicate(timeout=60)


def test_guard_whose_launcher_is_gone_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "begun"
    guard = _guard(tmp_path, 1, "touch", str(path))
    output, _ = guard.communicate(timeout=60)
    assert guard.returncode == 1
    assert not path.exists()
    assert output == b""
