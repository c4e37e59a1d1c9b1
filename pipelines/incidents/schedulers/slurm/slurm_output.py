"""What Slurm prints of jobs, switches, reservations and its controller, read."""

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
]

_OURS = "forewarn-"
_FIELD = re.compile(r"(\w+)=(\S*)")
_RECONFIGURED = re.compile(r"^\s*REQUEST_RECONFIGURE(?:_\w+)?\s.*?\bcount:(\d+)", re.MULTILINE)
_AS_OF = re.compile(r"^Configuration data as of (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)", re.MULTILINE)
_BOOT = re.compile(r"^BOOT_TIME\s*=\s*(\S+)", re.MULTILINE)


def controller_start(text: str) -> str:
    """Return since when the controller runs, from `scontrol show config`.

    Raises
    ------
    ValueError
        If it does not say.
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
    """Return how often the controller was told to read its configuration anew, from `sdiag`.

    Of the rest of what it counts nothing is used. Empty if it counts none.
    """
    match = _RECONFIGURED.search(text)
    return "" if match is None else match[1]


def jobs_by_node(text: str) -> dict[str, tuple[str, ...]]:
    """Return the jobs on each node from lines of `JOB|NODES`.

    Raises
    ------
    ValueError
        If a line or its host list cannot be read.
    """
    jobs = defaultdict[str, list[str]](list)
    for line in text.splitlines():
        job, bar, nodes = line.strip().partition("|")
        if not bar:
            raise ValueError(f"squeue prints {line[:100]!r}, expected JOB|NODES")
        for node in expand(nodes):
            jobs[node].append(job)
    return {node: tuple(sorted(names)) for node, names in jobs.items()}


def leaf_switches(text: str) -> dict[str, str]:
    """Return the lowest switch of each node from `scontrol show topology`.

    Raises
    ------
    ValueError
        If a host list cannot be read.
    """
    switches: dict[str, str] = {}
    for line in text.splitlines():
        fields: dict[str, str] = dict(_FIELD.findall(line))
        if fields.get("Level") == "0" and "SwitchName" in fields:
            nodes = expand(fields.get("Nodes", ""))
            switches |= dict.fromkeys(nodes, fields["SwitchName"])
    return switches


def reservation_name(action: int) -> str:
    """Return the name of the reservation in which checks of an action run."""
    return f"{_OURS}{action}"


def maintenance_by_node(text: str) -> dict[str, str]:
    """Return why a node is reserved, from `scontrol show reservation -o`; in words of a reason.

    Only reservations for maintenance keep all others away, and only while they last. The reason
    of one of ours begins as the reason of its drain did.

    Raises
    ------
    ValueError
        If a host list cannot be read.
    """
    reasons: dict[str, str] = {}
    for line in text.splitlines():
        fields = dict(_FIELD.findall(line))
        if "MAINT" not in fields.get("Flags", "").split(",") or fields.get("State") != "ACTIVE":
            continue
        nodes, name = fields.get("Nodes", "(null)"), fields.get("ReservationName", "")
        number = name.removeprefix(_OURS) if name.startswith(_OURS) else ""
        reason = (
            f"{MARK_PREFIX}{number} checks"
            if number.isdigit()
            else f"maintenance reservation {name}"
        )
        reasons |= dict.fromkeys([] if nodes == "(null)" else expand(nodes), reason)
    return reasons
