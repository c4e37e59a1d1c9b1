"""Parts of `nvidia-bug-report.log`: output of nvidia-smi, kernel messages, GPUs of /proc."""

from __future__ import annotations

import re
from dataclasses import dataclass

from forewarn.features.telemetry.nvidia_smi.faults import is_lost_line
from forewarn.features.telemetry.parsers.gpu_reading import (
    GpuReading,
    Unread,
    parse_gpu_name,
    parse_pci_address,
)
from forewarn.features.telemetry.parsers.script_time import split_time
from forewarn.features.time_units import MINUTE

__all__ = [
    "BugReport",
    "is_bug_report",
    "is_gpu_information",
    "parse_gpu_information",
    "read_bug_report",
]

_TITLE = "Start of NVIDIA bug report log file"
_TITLE_CHARS = 200  # in which a section names its command
_RULE = re.compile(r"^_{20,}\s*$", re.MULTILINE)
_DATE = re.compile(r"^Date: (?P<date>.+)$", re.MULTILINE)
_HOST = re.compile(r"^uname: \w+ (?P<host>\S+) ", re.MULTILINE)
# `ls --full-time`, which the script calls of each file: its zone is that of the host.
_ZONE = re.compile(
    r"^\*\*\* ls: .* \d\d:\d\d:\d\d\.\d+ (?P<sign>[+-])(?P<hours>\d\d)(?P<minutes>\d\d) ",
    re.MULTILINE,
)
_QUERY = re.compile(r"=+ ?NVSMI LOG ?=+")
_MESSAGES = re.compile(r"\s*(?:dmesg\b.*:|Scanning kernel log files)")
# A log of the host from which the script took the lines of the driver.
_LOG = re.compile(r"^\s+(?:/\S+|journalctl -b \S+):\s*$", re.MULTILINE)
_INFORMATION = re.compile(r"^GPU UUID:\s*(?P<uuid>GPU-\S+)", re.MULTILINE)
_ADDRESS = re.compile(r"^Bus Location:\s*(?P<pci>\S+)", re.MULTILINE)
_MODEL = re.compile(r"^Model:\s*(?P<model>\S.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class BugReport:
    """A report.

    Attributes
    ----------
    parts : list of str
        Each the output of one tool, or lines of one log.
    host : str or None
    time : int or None
        When it was made, nanoseconds since 1970; UTC where `offset` is known.
    offset : int or None
        Nanoseconds by which the clock of the host is ahead of UTC.
    """

    parts: list[str]
    host: str | None
    time: int | None
    offset: int | None


def is_bug_report(text: str) -> bool:
    """Tell whether a text begins as a report of `nvidia-bug-report.sh`."""
    return _TITLE in text[:2000]


def read_bug_report(text: str) -> BugReport:
    """Divide a report into its parts; what forewarn does not read is left out."""
    parts: list[str] = []
    for section in _RULE.split(text):
        if query := _QUERY.search(section):
            parts.append(section[query.start() :])
        elif _MESSAGES.match(section):
            parts += _LOG.split(section.split(":", 1)[-1])  # after the title of the section
        elif is_gpu_information(section):
            parts.append(section)
        elif "nvidia-smi" in section[:_TITLE_CHARS]:  # a fault in place of its output
            parts.append("\n".join(filter(is_lost_line, section.splitlines())))
    host, date, zone = (form.search(text) for form in (_HOST, _DATE, _ZONE))
    offset = None if zone is None else _nanoseconds(zone)
    made = split_time(date["date"])[0] if date else None
    time = None if made is None else made.moment
    if made is not None and time is not None and not made.utc and offset is not None:
        time -= offset
    return BugReport([p for p in parts if p.strip()], host["host"] if host else None, time, offset)


def _nanoseconds(zone: re.Match[str]) -> int:
    span = (int(zone["hours"]) * 60 + int(zone["minutes"])) * MINUTE
    return -span if zone["sign"] == "-" else span


def is_gpu_information(text: str) -> bool:
    """Tell whether a text is `/proc/driver/nvidia/gpus/ADDRESS/information`."""
    return bool(_INFORMATION.search(text) and _ADDRESS.search(text))


def parse_gpu_information(text: str) -> tuple[list[GpuReading], Unread]:
    """Return the UUID of the GPU at an address."""
    uuid, address, model = (form.search(text) for form in (_INFORMATION, _ADDRESS, _MODEL))
    if uuid is None or address is None:
        return [], Unread()
    texts = {"gpu_type": model["model"]} if model else {}
    pci, name = parse_pci_address(address["pci"]), parse_gpu_name(uuid["uuid"])
    return [GpuReading(texts=texts, uuid=name, pci=pci)], Unread()
