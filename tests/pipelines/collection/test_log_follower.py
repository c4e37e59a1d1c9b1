from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.pipelines.log_follower import FileFollower, KmsgFollower, follower_of

Follow = Callable[[Path, dict[str, Any]], FileFollower]


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


def test_lines_come_once_and_only_when_whole(log: Path, follow: Follow) -> None:
    follower = follow(log, {})
    assert read(follower) == ["one", "two"]
    write(log, "thr")
    assert read(follower) == []
    write(log, "ee\nfour\n")
    assert read(follower) == ["three", "four"]


def test_a_restart_goes_on_where_it_stood(log: Path, follow: Follow) -> None:
    first = follow(log, {})
    read(first)
    write(log, "three\n")
    second = follow(log, first.position())
    assert read(second) == ["three"]
    # What was read but not written down is read again, with the same place.
    third = follow(log, first.position())
    assert [line.place for line in third.lines()] == [f"{third.inode}:8"]


def test_a_log_that_is_rotated_loses_no_line(log: Path, follow: Follow) -> None:
    follower = follow(log, {})
    read(follower)
    write(log, "three\n")
    log.rename(log.with_name("kern.log.1"))
    log.write_text("four\n")
    assert read(follower) == ["three", "four"]


def test_a_log_that_is_rotated_between_two_starts(log: Path, follow: Follow) -> None:
    first = follow(log, {})
    read(first)
    stood = first.position()
    write(log, "three\n")
    log.rename(log.with_name("kern.log.1"))
    log.write_text("four\n")
    assert read(follow(log, stood)) == ["three", "four"]


def test_a_log_that_was_rotated_away_is_a_gap(log: Path, follow: Follow) -> None:
    first = follow(log, {})
    read(first)
    stood = first.position()
    log.unlink()
    log.write_text("other line\n")  # it may well get the same number again
    found = list(follow(log, stood).lines())
    assert [line.gap for line in found] == [True, False]
    assert found[1].text == "other line"


def test_a_log_that_is_cut_off_begins_anew(log: Path, follow: Follow) -> None:
    follower = follow(log, {})
    read(follower)
    os.truncate(log, 0)
    write(log, "x\n")
    assert read(follower) == ["x"]


def test_a_log_that_is_not_there_yet(tmp_path: Path, follow: Follow) -> None:
    follower = follow(tmp_path / "kern.log", {})
    with pytest.raises(FileNotFoundError):
        list(follower.lines())
    (tmp_path / "kern.log").write_text("one\n")
    assert [line.text for line in follower.lines()] == ["one"]


@given(st.lists(st.sampled_from(["write", "part", "read", "restart", "rotate"]), max_size=25))
def test_whatever_happens_every_line_comes_once(
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
            # A log daemon waits for its readers no longer than one rotation.
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


def test_records_of_the_kernel_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("6,7,100,-;one\n")
    found = []
    # A file stands for the device: it gives its one record, and nothing then.
    position: dict[str, Any] = {}
    for boot in ("boot-1", "boot-1", "boot-2"):
        follower = KmsgFollower(path, boot, position)
        found.append([line.place for line in follower.lines()])
        position = follower.position()
        follower.close()
    # After a restart of the host numbers begin anew.
    assert found == [["boot-1:7"], [], ["boot-2:7"]]
    assert position == {"boot": "boot-2", "sequence": 7}


def test_the_right_follower_is_taken(tmp_path: Path) -> None:
    assert isinstance(follower_of(tmp_path / "kern.log", {}), FileFollower)
    assert isinstance(follower_of(Path("/dev/null"), {}), KmsgFollower)
