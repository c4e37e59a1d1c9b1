from __future__ import annotations

import re
from pathlib import Path

import pytest

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import DriverError
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.incidents.schedulers.slurm.slurm_history import (
    NodeOutage,
    find_failures,
    parse_events,
    read_outages,
)
from forewarn.pipelines.runtime.timestamps import parse_moment

# Output of sacctmgr 22.05 with slurmdbd and MariaDB; the last three lines are added.
EVENTS = """\
|2026-11-22T03:33:08|Unknown|||Cluster Registered TRES
node-00001|2026-11-22T03:33:12|2026-11-22T03:33:14|DRAIN|root(0)|Xid 79 | GPU 3, fell off
node-00001|2026-11-22T03:33:14|2026-11-22T03:33:16|DRAIN|root(0)|still
node-00002|2026-11-22T03:33:16|Unknown|DRAIN|root(0)|forewarn:17 x
node-00001|2026-11-22T09:00:00|2026-11-22T10:00:00|DOWN|slurm(64030)|Not responding
node-00003|2026-11-22T04:00:00|2026-11-22T05:00:00|DRAIN|slurm(64030)|forewarn:18 hot
node-00003|2026-11-22T05:00:00|2026-11-23T05:00:00|DRAIN|tom(1001)|RMA gpu 0000:3B:00.0
"""


def at(text: str) -> Nanoseconds:
    return Nanoseconds(parse_moment(text))


def cause_of(reason: str) -> str | None:
    return "drain" if re.search("gpu|xid", reason, re.IGNORECASE) else None


def test_consecutive_events_are_one_outage() -> None:
    first, second, third, fourth = parse_events(EVENTS)
    assert first == NodeOutage(
        "node-00001",
        at("2026-11-22T03:33:12"),
        at("2026-11-22T03:33:16"),
        ("Xid 79 | GPU 3, fell off", "still"),
        "root",
    )
    assert (second.begin, second.by) == (at("2026-11-22T09:00:00"), "slurm")
    assert (third.end, len(fourth.reasons)) == (None, 2)
    assert parse_events("") == []


def test_failures_are_found_in_reasons() -> None:
    first, second = find_failures(parse_events(EVENTS), cause_of)
    assert (first.machine, first.gpu, first.cause) == ("node-00001", 3, "drain")
    assert (first.failed_at, first.repaired_at) == (
        at("2026-11-22T03:33:12"),
        at("2026-11-22T03:33:16"),
    )
    # forewarn's own reason is ignored; the external reason RMA counts.
    assert (second.machine, second.gpu, second.pci) == ("node-00003", None, "0000:3b:00.0")
    assert second.reason == "RMA gpu 0000:3B:00.0"
    assert find_failures(parse_events(EVENTS), lambda _: None) == []


def test_only_first_line_of_reason_is_read() -> None:
    more = "lines | of | GPU | 1 | and | more\n\nn2|2026-11-22T04:00:00|Unknown|DOWN|root(0)|x\n"
    first, second = parse_events(f"n1|2026-11-22T03:33:12|Unknown|DRAIN|root(0)|two\n{more}")
    assert (first.machine, first.reasons, second.machine) == ("n1", ("two",), "n2")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node-00001|2026-11-22T03:33:12", "expected NodeName"),
        ("n|yesterday|Unknown|DRAIN|root(0)|x", "not an ISO 8601 date or time"),
    ],
)
def test_invalid_line_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_events(text)


def test_sacctmgr_is_called_with_start_time(tmp_path: Path) -> None:
    program = tmp_path / "sacctmgr"
    program.write_text('#!/bin/sh\nprintf "n|2026-11-22T03:33:12|Unknown|x|u|$*"\n')
    program.chmod(0o755)
    command = SlurmCommand(path=f"{tmp_path}:/usr/bin:/bin")
    (outage,) = read_outages(command, since=at("2026-11-01T06:00:00"))
    assert outage.reasons == (
        "-n -P show event event=node start=2026-11-01T06:00:00 "
        "format=NodeName,Start,End,State,User,Reason",
    )
    program.write_text("#!/bin/sh\necho nonsense\n")
    with pytest.raises(DriverError, match="sacctmgr's output is unreadable"):
        read_outages(command, since=at("2026-11-01"))
