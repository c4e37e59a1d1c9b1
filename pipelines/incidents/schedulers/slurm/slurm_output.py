"""Parsers of Slurm's output on jobs, switches, reservations and the controller."""

from __future__ import annotations

import re
from collections import defaultdict

from forewarn.features.hostlist import expand
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.response.state.machine import MARK_PREFIX

__all__ = [
    "controller_start",
    "controller_time",
    "jobs_by_node",
    "leaf_switches",
    "maintenance_by_node",
    "reconfigurations",
    "reservation_name",
    "restart_refusal",
]

_RESERVATION_PREFIX = "forewarn-"
_FIELD = re.compile(r"(\w+)=(\S*)")
_RECONFIGURED = re.compile(r"^\s*REQUEST_RECONFIGURE(?:_\w+)?\s.*?\bcount:(\d+)", re.MULTILINE)
_AS_OF = re.compile(r"^Configuration data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", re.MULTILINE)
_REBOOT_PROGRAM = re.compile(r"^RebootProgram\s*=\s*(\S+)", re.MULTILINE)
_RESUME_TIMEOUT = re.compile(r"^ResumeTimeout\s*=\s*(\d+)", re.MULTILINE)
_MIN_RESUME_SECONDS = 1200  # a node with 8 GPUs takes 10 to 15 minutes to start
_BOOT = re.compile(r"^BOOT_TIME\s*=\s*(\S+)", re.MULTILINE)


def controller_start(text: str) -> str:
    """Return the start time of the controller from `scontrol show config`.

    Raises
    ------
    ValueError
        If the output has none.
    """
    match = _BOOT.search(text)
    if match is None:
        raise ValueError("`scontrol show config` has no BOOT_TIME")
    return match[1]


def controller_time(text: str) -> Nanoseconds | None:
    r"""Return the controller's own time, from `scontrol show config`; None if it does not say.

    Examples
    --------
    >>> controller_time("Configuration data as of 1970-01-01T00:00:02\n")
    2000000000
    """
    match = _AS_OF.search(text)
    return None if match is None else Nanoseconds(parse_moment(match[1]))


def reconfigurations(text: str) -> str:
    """Return from `sdiag` how often the controller was asked to reread its configuration.

    Other counters are not used. Empty if the counter is missing.
    """
    match = _RECONFIGURED.search(text)
    return "" if match is None else match[1]


def jobs_by_node(text: str) -> dict[str, tuple[str, ...]]:
    """Return the jobs on each node from lines of `JOB|NODES`.

    Raises
    ------
    ValueError
        If a line or its host list is invalid.
    """
    jobs = defaultdict[str, list[str]](list)
    for line in text.splitlines():
        job, bar, nodes = line.strip().partition("|")
        if not bar:
            raise ValueError(f"squeue: got {line[:100]!r}, expected JOB|NODES")
        for node in expand(nodes):
            jobs[node].append(job)
    return {node: tuple(sorted(names)) for node, names in jobs.items()}


def leaf_switches(text: str) -> dict[str, str]:
    """Return the leaf switch of each node from `scontrol show topology`.

    Raises
    ------
    ValueError
        If a host list is invalid.
    """
    switches: dict[str, str] = {}
    for line in text.splitlines():
        fields: dict[str, str] = dict(_FIELD.findall(line))
        if fields.get("Level") == "0" and "SwitchName" in fields:
            nodes = expand(fields.get("Nodes", ""))
            switches |= dict.fromkeys(nodes, fields["SwitchName"])
    return switches


def restart_refusal(text: str) -> str:
    """Return why Slurm cannot restart nodes, from `scontrol show config`; empty if it can.

    Examples
    --------
    >>> restart_refusal("RebootProgram = (null)")
    'slurm.conf: `RebootProgram` is not set, expected a program that restarts a node'
    """
    program, timeout = _REBOOT_PROGRAM.search(text), _RESUME_TIMEOUT.search(text)
    if program is None or program[1] == "(null)":
        return "slurm.conf: `RebootProgram` is not set, expected a program that restarts a node"
    seconds = int(timeout[1]) if timeout else 0
    if seconds < _MIN_RESUME_SECONDS:
        return (
            f"slurm.conf: `ResumeTimeout` is {seconds} s, expected at least {_MIN_RESUME_SECONDS} s"
        )
    return ""


def reservation_name(action: int) -> str:
    """Return the name of the reservation for the checks of an action."""
    return f"{_RESERVATION_PREFIX}{action}"


def maintenance_by_node(text: str) -> dict[str, str]:
    """Return the reason of each reserved node from `scontrol show reservation -o`.

    Only active maintenance reservations exclude all other jobs. The reason of a reservation by
    forewarn starts like that of its drain.

    Raises
    ------
    ValueError
        If a host list is invalid.
    """
    reasons: dict[str, str] = {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if "MAINT" not in fields.get("Flags", "").split(",") or fields.get("State") != "ACTIVE":
            continue
        nodes, name = fields.get("Nodes", "(null)"), fields.get("ReservationName", "")
        number = (
            name.removeprefix(_RESERVATION_PREFIX) if name.startswith(_RESERVATION_PREFIX) else ""
        )
        reason = (
            f"{MARK_PREFIX}{number} checks"
            if number.isdigit()
            else f"maintenance reservation {name}"
        )
        reasons |= dict.fromkeys([] if nodes == "(null)" else expand(nodes), reason)
    return reasons
