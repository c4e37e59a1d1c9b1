"""Output of nccl-tests, as text or as JSON (`-J`): machines and average bandwidth of each run."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

import msgspec

__all__ = ["NcclRun", "find_nccl_runs", "is_nccl_output"]

# Launchers put a label before a line, and some consoles lose the `#`.
_NCCL_SIZES: Final = re.compile(r"\bnThread\b.*\bminBytes\s+(\d+)\s+maxBytes\s+(\d+)")
_NCCL_NAME: Final = re.compile(r"Collective test starting:\s*(\w+)")
_NCCL_DEVICE: Final = re.compile(
    r"\bRank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+)\s+device\b"
)
_NCCL_AVERAGE: Final = re.compile(r"Avg bus bandwidth\s*:\s*([0-9.eE+-]+)")
_NCCL_REPORT: Final = re.compile(r'(?m)^\{(?:[ \t]*\r?\n[ \t]*)?"version":\s*\d+,')
_REPORT_HOST: Final = re.compile(r'"hostname":\s*"([^"\s]{1,255})"')
_REPORT_NAME: Final = re.compile(r'"args":\s*\["(?:[^"]*/)?([^"/]+)"')
_REPORT_SIZES: Final = re.compile(r'"minimum_bytes":\s*(\d+),\s*"maximum_bytes":\s*(\d+)')
_NCCL_WRONG: Final = re.compile(r"Out of bounds values\s*:\s*(\d+)")


@dataclass(slots=True)
class NcclRun:
    """A run of nccl-tests.

    Attributes
    ----------
    kind : str
        Collective and sizes, as far as the output tells.
    hosts : dict of str to None
        Machines in the order of their ranks.
    average : float
        Average bus bandwidth in GB/s; 0 if the run did not end.
    wrong : int
        Values out of bounds.
    """

    kind: str
    hosts: dict[str, None]
    average: float = 0.0
    wrong: int = 0

    @property
    def bandwidth(self) -> float | None:
        """Average in GB/s; None if the run failed: without an average, or with wrong values."""
        return self.average if 0.0 < self.average < math.inf and not self.wrong else None


class _Device(msgspec.Struct):
    hostname: str


class _Config(msgspec.Struct):
    devices: list[_Device]
    minimum_bytes: int = 0
    maximum_bytes: int = 0


class _Average(msgspec.Struct):
    bandwidth: float | str = 0.0


class _Wrong(msgspec.Struct):
    count: int = 0


class _Report(msgspec.Struct):
    config: _Config
    args: list[str] = []
    average_bus_bandwidth: _Average = msgspec.field(default_factory=_Average)
    out_of_bounds: _Wrong = msgspec.field(default_factory=_Wrong)


def is_nccl_output(text: str) -> bool:
    """Return whether the text lists devices as nccl-tests does."""
    return bool(_NCCL_DEVICE.search(text)) or bool(
        _NCCL_REPORT.search(text) and _REPORT_HOST.search(text)
    )


def find_nccl_runs(text: str) -> Iterator[NcclRun]:
    """Yield the runs of a text with logs, reports in JSON, or both."""
    starts = [match.start() for match in _NCCL_REPORT.finditer(text)]
    bounds = [*starts, len(text)]
    yield from _logged_runs(text[: bounds[0]])
    for start, end in itertools.pairwise(bounds):
        run, length = _reported_run(text[start:end])
        if run.hosts:
            yield run
        yield from _logged_runs(text[start + length : end])


def _reported_run(text: str) -> tuple[NcclRun, int]:
    """Return the run of a report and its length; one that was cut off tells that the run failed."""
    try:
        value, length = json.JSONDecoder().raw_decode(text)
        report = msgspec.convert(value, _Report, strict=False)
    except (ValueError, RecursionError):
        line, _, _ = text.partition("\n")
        return _cut_run(line), len(line)
    config = report.config
    name = PurePosixPath(report.args[0]).name if report.args else ""
    run = NcclRun(
        f"{name} {config.minimum_bytes}-{config.maximum_bytes}".strip(),
        dict.fromkeys(device.hostname for device in config.devices),
        _average(str(report.average_bus_bandwidth.bandwidth)),
        report.out_of_bounds.count,
    )
    return run, length


def _cut_run(line: str) -> NcclRun:
    name, sizes = _REPORT_NAME.search(line), _REPORT_SIZES.search(line)
    kind = [match.expand(form) for match, form in ((name, r"\1"), (sizes, r"\1-\2")) if match]
    return NcclRun(" ".join(kind), dict.fromkeys(_REPORT_HOST.findall(line)))


def _logged_runs(text: str) -> Iterator[NcclRun]:
    """Yield runs; each starts with the line of its rank 0, after name and sizes of the test."""
    run: NcclRun | None = None
    name = sizes = ""
    for line in text.splitlines():
        if match := _NCCL_NAME.search(line):
            name, sizes = match[1], ""
        elif match := _NCCL_SIZES.search(line):
            sizes = f"{match[1]}-{match[2]}"
        elif match := _NCCL_DEVICE.search(line):
            if run is None or int(match[1]) == 0:
                if run is not None:
                    yield run
                run = NcclRun(f"{name} {sizes}".strip(), {})
            run.hosts[match[2]] = None
        elif run is not None and (match := _NCCL_WRONG.search(line)):
            run.wrong = int(match[1])
        elif run is not None and (match := _NCCL_AVERAGE.search(line)):
            run.average = _average(match[1])
    if run is not None:
        yield run


def _average(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0
