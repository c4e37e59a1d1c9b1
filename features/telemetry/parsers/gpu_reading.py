"""Readings: the values of one GPU at one moment, from any source."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ZEROS_PATTERN", "GpuReading", "Unread", "parse_gpu_name", "parse_pci_address"]

# A serial or UUID of zeros, which names nothing. Tests may use names such as `GPU-00`.
ZEROS_PATTERN = "0*|(?:GPU-|MIG-)?(?:0{8}[0-]*)?"

_PCI = re.compile(
    r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.(?P<function>[0-7]))?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One GPU as a source described it.

    Attributes
    ----------
    numbers : mapping of str to float
        Names and units of formats.md, section 1 (`temperature_gpu` in degrees Celsius,
        `memory_used` in MiB, ...). Unknown values are omitted.
    texts : mapping of str to str
        `gpu_type`, `driver_version`.
    serial, uuid : str or None
        As reported by the board. Consumer boards have no serial. Zeros, which some clouds report,
        count as missing, since all GPUs would share them (`ZEROS_PATTERN`).
    pci : str or None
        Address in the form of `parse_pci_address`.
    slot : int or None
        Index of the GPU on its host.
    time : int or None
        Nanoseconds since 1970 on the host's clock, if the source has a time.
    utc : bool
        The source says the zone of `time`, which is UTC.
    host : str or None
        If the source names it.
    lost : bool
        The driver reports the GPU as lost; only its address is known.
    action : str or None
        The recovery that the driver requests, one of EVENT_ACTIONS; None if not reported.
    names_only : bool
        The source does not measure; it says which GPU has an index or an address.
    """

    numbers: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    serial: str | None = None
    uuid: str | None = None
    pci: str | None = None
    slot: int | None = None
    time: int | None = None
    utc: bool = False
    host: str | None = None
    lost: bool = False
    action: str | None = None
    names_only: bool = False

    def __post_init__(self) -> None:
        for name in ("serial", "uuid"):
            text = getattr(self, name)
            if text is not None and re.fullmatch(ZEROS_PATTERN, text):
                object.__setattr__(self, name, None)

    @property
    def needs_recovery(self) -> bool:
        """Whether the driver requests a recovery."""
        return self.action not in (None, "none")


@dataclass(slots=True)
class Unread:
    """Counts of unreadable input by reason, each with its first example."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, why: str, text: str) -> None:
        """Count a line or value that was skipped."""
        self.counts[why] += 1
        self.examples.setdefault(why, text[:200])

    def join(self, other: Unread) -> None:
        """Add the counts of another object."""
        self.counts.update(other.counts)
        for why, example in other.examples.items():
            self.examples.setdefault(why, example)

    def __bool__(self) -> bool:
        return bool(self.counts)


def parse_gpu_name(text: str | None) -> str | None:
    """Return a serial or UUID; None for an error text that a driver prints instead.

    Examples
    --------
    >>> parse_gpu_name("1563221009876"), parse_gpu_name("[Unknown Error]")
    ('1563221009876', None)
    >>> parse_gpu_name("GPU is lost")
    """
    return text if text and not re.search(r"[\[\]\s]", text) else None


def parse_pci_address(text: str) -> str | None:
    """Normalise a PCI address, which each source writes differently; None if invalid.

    Examples
    --------
    >>> parse_pci_address("00000000:17:00.0"), parse_pci_address("PCI:0000:17:00")
    ('0000:17:00', '0000:17:00')
    >>> parse_pci_address("0000:3B:00")
    '0000:3b:00'
    """
    match = _PCI.search(text)
    if not match:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus']}:{match['device']}".lower()
