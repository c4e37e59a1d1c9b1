"""Parser of `/proc`: boot time, load and memory of a host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.time_units import SECOND

__all__ = ["HostReading", "boot_times", "parse_proc"]

_NUMBER = r"[0-9]{1,12}(?:\.[0-9]{1,9})?"
_UPTIME = re.compile(rf"({_NUMBER}) {_NUMBER}\s*")
_LOAD = re.compile(rf"({_NUMBER}) ({_NUMBER}) ({_NUMBER}) [0-9]+/[0-9]+ [0-9]+\s*")
_BOOT = re.compile(r"^btime ([0-9]{1,10})$", re.MULTILINE)
_MEMORY = re.compile(r"^(?P<name>MemTotal|MemAvailable): +(?P<kib>[0-9]{1,15}) kB$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class HostReading:
    """A host at one moment; values that the kernel did not report are None or omitted.

    Attributes
    ----------
    boot_time : int or None
        Nanoseconds since 1970 UTC, in whole seconds; times of a kernel log count from it.
    uptime : float or None
        Seconds.
    load : tuple of float or None
        Load average over 1, 5 and 15 minutes.
    memory : dict of str to int
        `total` and `available`, in bytes.
    ports : dict of str to float
        Rates of the network ports, summed.
    """

    boot_time: int | None = None
    uptime: float | None = None
    load: tuple[float, float, float] | None = None
    memory: dict[str, int] = field(default_factory=dict)
    ports: dict[str, float] = field(default_factory=dict)


def boot_times(stat: str) -> list[int]:
    r"""Return the boot times in texts of `/proc/stat`, in nanoseconds.

    Examples
    --------
    >>> boot_times("cpu 1 2\nbtime 1700000000\n")
    [1700000000000000000]
    """
    return [int(seconds) * SECOND for seconds in _BOOT.findall(stat)]


def parse_proc(*, stat: str, uptime: str, loadavg: str, meminfo: str) -> tuple[HostReading, Unread]:
    r"""Read the texts of four files of `/proc`.

    Examples
    --------
    >>> host, unread = parse_proc(
    ...     stat="cpu 1 2\nbtime 1700000000\n",
    ...     uptime="12.5 20.0\n",
    ...     loadavg="0.5 1.0 2.0 3/99 4321\n",
    ...     meminfo="MemTotal:       1024 kB\nMemAvailable:    512 kB\n",
    ... )
    >>> host.boot_time, host.uptime, host.load, host.memory["available"], bool(unread)
    (1700000000000000000, 12.5, (0.5, 1.0, 2.0), 524288, False)
    """
    unread = Unread()
    boots, up, load = boot_times(stat), _UPTIME.fullmatch(uptime), _LOAD.fullmatch(loadavg)
    memory = {
        match["name"].removeprefix("Mem").lower(): int(match["kib"]) * 1024
        for match in _MEMORY.finditer(meminfo)
    }
    for name, text, is_read in (
        ("stat", stat, boots),
        ("uptime", uptime, up),
        ("loadavg", loadavg, load),
        ("meminfo", meminfo, len(memory) == 2),
    ):
        if not is_read:
            unread.add(f"/proc/{name} has unexpected content", text)
    host = HostReading(
        boot_time=boots[0] if boots else None,
        uptime=float(up[1]) if up else None,
        load=(float(load[1]), float(load[2]), float(load[3])) if load else None,
        memory=memory,
    )
    return host, unread
