from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.parsers.proc_files import HostReading, parse_proc


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_this_host() -> None:
    names = ("stat", "uptime", "loadavg", "meminfo")
    host, unread = parse_proc(**{name: Path("/proc", name).read_text() for name in names})
    assert not unread
    assert host.boot_time is not None
    assert host.uptime is not None
    assert host.load is not None
    assert 0 < host.memory["available"] <= host.memory["total"]


def test_unreadable_values_are_counted() -> None:
    host, unread = parse_proc(
        stat="btime now\n", uptime="nan inf\n", loadavg="", meminfo="MemTotal: 5 kB\n"
    )
    assert host == HostReading(memory={"total": 5_120})
    assert sum(unread.counts.values()) == 4


@given(st.text(max_size=40), st.integers(0, 30))
def test_no_text_raises_anything(text: str, cut: int) -> None:
    whole = "btime 1700000000\n 12.5 20.0\n 0.5 1.0 2.0 3/99 4321"
    mixed = whole[:cut] + text + whole[cut:]
    host, unread = parse_proc(stat=mixed, uptime=mixed, loadavg=mixed, meminfo=mixed)
    assert host.load is None
    assert unread
