"""Output of nccl-tests: the machines and the average bandwidth of each run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["NcclRun", "find_nccl_runs", "is_nccl_output"]

# Launchers put a label before a line, and some consoles lose the `#`.
_NCCL_SIZES: Final = re.compile(r"\bnThread\b.*\bminBytes\s+(\d+)\s+maxBytes\s+(\d+)")
_NCCL_NAME: Final = re.compile(r"Collective test starting:\s*(\w+)")
_NCCL_DEVICE: Final = re.compile(
    r"\bRank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+)\s+device\b"
)
_NCCL_AVERAGE: Final = re.compile(r"Avg bus bandwidth\s*:\s*([0-9.eE+-]+)")
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
        return self.average if self.average > 0.0 and not self.wrong else None


def is_nccl_output(text: str) -> bool:
    """Return whether the text lists devices as nccl-tests does."""
    return bool(_NCCL_DEVICE.search(text))


def find_nccl_runs(text: str) -> Iterator[NcclRun]:
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
