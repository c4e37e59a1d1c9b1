from __future__ import annotations

import subprocess
import sys
import time

import numpy as np
import pytest

from forewarn.pipelines.runtime.progress import Stages, TimeRemaining, note, progress_bar

MIB = 2**20


class Watch:
    """A manually advanced clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()
    monkeypatch.setattr(time, "perf_counter", watch)
    return watch


def test_repeated_stage_adds_up(watch: Watch) -> None:
    stages = Stages(started=watch.now)
    for name, seconds in (("read", 2.0), ("fit", 5.0), ("read", 1.5)):
        with stages(name):
            watch.now += seconds
    watch.now += 0.25
    figures = stages.figures()
    assert [(cost.name, cost.seconds) for cost in figures.stages] == [("read", 3.5), ("fit", 5.0)]
    assert figures.seconds == 8.75


def test_failed_stage_is_counted(watch: Watch) -> None:
    stages = Stages(started=watch.now)

    def fail() -> None:
        with stages("fit"):
            watch.now += 3.0
            raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        fail()
    assert stages.seconds == {"fit": 3.0}


def test_peaks_are_bytes_and_never_fall() -> None:
    stages = Stages()
    for name in ("first", "second"):
        with stages(name):
            pass
    figures = stages.figures()
    assert all(cost.cpu_seconds >= 0 for cost in figures.stages)
    peaks = [cost.peak_rss_bytes for cost in figures.stages] + [figures.peak_rss_bytes]
    assert peaks == sorted(peaks)
    assert 20 * MIB < peaks[0] < 2**20 * MIB


PEAK = """
from forewarn.pipelines.runtime.progress import Stages

print(Stages().figures().peak_rss_bytes)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not tell it")
def test_peak_excludes_parent_process() -> None:
    own = np.ones(64 * MIB)  # 512 MiB
    done = subprocess.run([sys.executable, "-c", PEAK], check=True, capture_output=True, text=True)
    assert 5 * MIB < int(done.stdout) < own.nbytes // 2


def test_note_goes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    note("3 rows left out")
    captured = capsys.readouterr()
    assert captured.err == "note: 3 rows left out\n"
    assert captured.out == ""


def test_bar_shows_on_terminal_only(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar(2, "train", "training") as bar:
        bar.update()
        bar.set_postfix_str("2025-01-19")
        bar.update()
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_long_job_logs_remaining_minutes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    left = TimeRemaining(10, "retrainings", lambda: now[0])
    for seconds, worked in ((1, False), (1, False), (50, True), (70, True), (5, True)):
        now[0] += seconds
        left.step(worked=worked)
    # Two steps of a minute on average, without those done before; six are left.
    assert capsys.readouterr().err == "note: 4 of 10 retrainings done, 6 minutes left\n"


@pytest.mark.parametrize(("total", "words"), [(1, "less than a minute"), (2, "1 minute")])
def test_few_minutes_are_words(total: int, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    left = TimeRemaining(total, "retrainings", lambda: now[0])
    now[0] = 61.0
    left.step()
    assert capsys.readouterr().err == f"note: 1 of {total} retrainings done, {words} left\n"


def test_short_job_logs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    left = TimeRemaining(3, "retrainings", lambda: 0.0)
    for _ in range(3):
        left.step()
    assert capsys.readouterr().err == ""
