from __future__ import annotations

import io
import os
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.pipelines.agent.kernel_log_follower import FileFollower, KmsgFollower, open_follower

CUT_OFF = "the log was truncated after 8 bytes: the last lines may be lost"
NULS = "NUL bytes in the log: a power loss may have lost lines"
OVERLONG = "lines of more than 8192 bytes are skipped"
Follow = Callable[[Path, dict[str, Any]], FileFollower]


class CountedFile(io.FileIO):
    """A log that counts the bytes read from it."""

    taken = 0

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        self.taken += len(data)
        return data


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "kern.log"
    path.write_text("one\ntwo\n")
    return path


@pytest.fixture
def follow() -> Iterator[Follow]:
    """Return `follow(log, position)`: a follower that is closed after the test."""
    made: list[FileFollower] = []

    def make(log: Path, position: dict[str, Any]) -> FileFollower:
        made.append(FileFollower(log, position))
        return made[-1]

    yield make
    for follower in made:
        follower.close()


def read(follower: FileFollower) -> list[str]:
    return [line.text for line in follower.lines()]


def write(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_whole_lines_are_read_once(log: Path, follow: Follow) -> None:
    follower = follow(log, {})
    assert read(follower) == ["one", "two"]
    write(log, "thr")
    assert read(follower) == []
    write(log, "ee\nfour\n")
    assert read(follower) == ["three", "four"]


def test_restart_continues_at_position(log: Path, follow: Follow) -> None:
    first = follow(log, {})
    read(first)
    write(log, "three\n")
    second = follow(log, first.position())
    assert read(second) == ["three"]
    # Lines read after the last stored position are read again, with the same position.
    third = follow(log, first.position())
    assert [line.position for line in third.lines()] == [f"{third.inode}:8"]


def test_rotation_loses_no_line(log: Path, follow: Follow) -> None:
    follower = follow(log, {})
    read(follower)
    write(log, "three\n")
    log.rename(log.with_name("kern.log.1"))
    log.write_text("four\n")
    assert read(follower) == ["three", "four"]


def test_rotation_between_two_starts(log: Path, follow: Follow) -> None:
    first = follow(log, {})
    read(first)
    stood = first.position()
    write(log, "three\n")
    log.rename(log.with_name("kern.log.1"))
    log.write_text("four\n")
    assert read(follow(log, stood)) == ["three", "four"]


def test_rotated_away_log_is_gap(log: Path, follow: Follow) -> None:
    first = follow(log, {})
    read(first)
    stood = first.position()
    log.unlink()
    log.write_text("other line\n")  # the inode may be reused
    found = list(follow(log, stood).lines())
    assert [line.gap for line in found] == [True, False]
    assert found[1].text == "other line"


def test_truncated_log_restarts(log: Path, follow: Follow) -> None:
    follower = follow(log, {})
    read(follower)
    os.truncate(log, 0)
    write(log, "x\n")
    assert [(line.gap, line.text) for line in follower.lines()] == [(True, CUT_OFF), (False, "x")]
    assert read(follower) == []


def test_truncated_and_regrown_log_is_gap(log: Path, follow: Follow) -> None:
    """With copytruncate, lines between the last poll and the truncation are lost."""
    follower = follow(log, {})
    read(follower)
    write(log, "three\n")
    log.with_name("kern.log.1").write_text(log.read_text())
    os.truncate(log, 0)
    write(log, "four\nfive\nsix\n")
    assert log.stat().st_size > follower.offset
    assert read(follower) == [CUT_OFF, "four", "five", "six"]


def test_truncation_under_active_writer(log: Path, follow: Follow) -> None:
    follower = follow(log, {})
    read(follower)
    os.truncate(log, 0)
    with log.open("r+b") as file:
        file.seek(1 << 20)
        file.write(b"three\n")
    assert read(follower) == [CUT_OFF, NULS, "three"]


@pytest.mark.parametrize("size", [1, 1 << 10, 2 << 20])
def test_nul_bytes_hide_no_line(log: Path, follow: Follow, size: int) -> None:
    with log.open("ab") as file:
        file.write(b"half a li" + b"\0" * size + b"NVRM: Xid 79\nlast\n")
    follower = follow(log, {})
    assert read(follower) == ["one", "two", "half a li", NULS, "NVRM: Xid 79", "last"]
    assert follower.offset == log.stat().st_size


@pytest.mark.parametrize("size", [8193, 2 << 20])
def test_endless_line_is_skipped_with_gap(log: Path, follow: Follow, size: int) -> None:
    write(log, "x" * size + "\nNVRM: Xid 79\n")
    assert read(follow(log, {})) == ["one", "two", OVERLONG, "NVRM: Xid 79"]


def test_endless_line_is_skipped_across_polls(log: Path, follow: Follow) -> None:
    first = follow(log, {})
    write(log, "x" * 10_000)
    assert read(first) == ["one", "two", OVERLONG]
    second = follow(log, first.position())
    write(log, "x" * 100)
    assert read(second) == [OVERLONG]
    write(log, "xx\nthree\n")
    assert read(follow(log, second.position())) == [OVERLONG, "three"]


def test_memory_is_bounded_by_chunk(log: Path, follow: Follow) -> None:
    """36 MiB of Xids, read at once, exceeded the memory limit of the systemd unit."""
    with log.open("a") as file:
        for _ in range(8):
            file.write(f"{'NVRM: Xid (PCI:0000:3b:00): 79, text'.ljust(127)}\n" * 8192)
    follower = follow(log, {})
    tracemalloc.start()
    try:
        count = sum(1 for _ in follower.lines())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 2 + 8 * 8192
    assert peak < 3 << 20


@pytest.mark.parametrize("line", [b"NVRM: Xid 79\n", b"a\0", b"\0", b"x", b"\n"])
def test_reading_cost_is_linear(log: Path, follow: Follow, line: bytes) -> None:
    log.write_bytes(line * ((3 << 18) // len(line)))
    follower = follow(log, {})
    counted = CountedFile(log)
    follower.inode, follower._file = log.stat().st_ino, counted
    for _ in follower.lines():
        pass
    assert follower.offset == log.stat().st_size
    assert counted.taken < 1.1 * log.stat().st_size


def test_unrelated_files_are_ignored(log: Path, follow: Follow) -> None:
    first = follow(log, {})
    read(first)
    log.rename(log.with_name("kern.log.2"))
    log.with_name("kern.log.1").mkdir()
    os.mkfifo(log.with_name("kern.log.0"))
    write(log, "three\n")
    assert read(follow(log, first.position())) == ["three"]


def test_pipe_is_rejected_without_blocking(tmp_path: Path, follow: Follow) -> None:
    os.mkfifo(tmp_path / "kern.log")
    with pytest.raises(OSError, match="not a regular file"):
        read(follow(tmp_path / "kern.log", {}))


def test_missing_log_is_read_later(tmp_path: Path, follow: Follow) -> None:
    follower = follow(tmp_path / "kern.log", {})
    with pytest.raises(FileNotFoundError):
        list(follower.lines())
    (tmp_path / "kern.log").write_text("one\n")
    assert [line.text for line in follower.lines()] == ["one"]


@given(st.lists(st.sampled_from(["write", "part", "read", "restart", "rotate"]), max_size=25))
def test_every_line_once_under_any_rotation(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    log = tmp_path_factory.mktemp("log") / "kern.log"
    log.write_text("")
    follower, got, written, rotated = FileFollower(log, {}), list[str](), 0, 0
    for step in [*steps, "write", "read"]:
        if step == "write":
            write(log, f"line {written}\n")
            written += 1
        elif step == "part":
            write(log, "li")
            got += read(follower)
            write(log, f"ne {written}\n")
            written += 1
        elif step == "rotate":
            # A log daemon keeps a rotated file for one rotation only.
            got += read(follower)
            rotated += 1
            log.rename(log.with_name(f"kern.log.{rotated}"))
            log.write_text("")
        elif step == "restart":
            stood = follower.position()
            follower.close()
            follower = FileFollower(log, stood)
        else:
            got += read(follower)
    follower.close()
    assert got == [f"line {number}" for number in range(written)]


def test_kernel_records_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,7,100,-;one\n")
    found = []
    # A file replaces the device: it returns its one record, then nothing.
    position: dict[str, Any] = {}
    for boot in ("boot-1", "boot-1", "boot-2"):
        follower = KmsgFollower(path, boot, position)
        found.append([line.position for line in follower.lines()])
        position = follower.position()
        follower.close()
    # Numbers restart after a reboot.
    assert found == [["boot-1:7"], [], ["boot-2:7"]]
    assert position == {"boot": "boot-2", "sequence": 7}


def test_follower_type_by_path(tmp_path: Path) -> None:
    assert isinstance(open_follower(tmp_path / "kern.log", {}), FileFollower)
    assert isinstance(open_follower(Path("/dev/null"), {}), KmsgFollower)
