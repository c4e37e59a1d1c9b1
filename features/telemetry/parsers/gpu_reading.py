"""What one GPU said at one moment, whatever it was said in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ZEROS_PATTERN", "GpuReading", "Unread", "parse_gpu_name", "parse_pci_address"]

# A serial or UUID that names nothing; `GPU-00` may be the name of a GPU where a test invents it.
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
        By the names and in the units of formats.md, section 1 (`temperature_gpu` in degrees
        Celsius, `memory_used` in MiB, ...). What the source does not know is not in it.
    texts : mapping of str to str
        `gpu_type`, `driver_version`.
    serial, uuid : str or None
        As the board has them; consumer boards have no serial, and what a cloud hides is zeros,
        which is none either: all its GPUs would be one (`ZEROS_PATTERN`).
    pci : str or None
        Address in the form of `parse_pci_address`.
    slot : int or None
        Index of the GPU on its host.
    time : int or None
        Nanoseconds since 1970 on the clock of the host, where the source says when it was.
    host : str or None
        Where the source names it.
    lost : bool
        The driver calls it lost: then nothing but its place is known.
    action : str or None
        The recovery that the driver asks for, one of EVENT_ACTIONS; None where it says nothing.
    """

    numbers: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    serial: str | None = None
    uuid: str | None = None
    pci: str | None = None
    slot: int | None = None
    time: int | None = None
    host: str | None = None
    lost: bool = False
    action: str | None = None

    def __post_init__(self) -> None:
        for name in ("serial", "uuid"):
            text = getattr(self, name)
            if text is not None and re.fullmatch(ZEROS_PATTERN, text):
                object.__setattr__(self, name, None)

    @property
    def needs_recovery(self) -> bool:
        """Whether the driver asks for a recovery."""
        return self.action not in (None, "none")


@dataclass(slots=True)
class Unread:
    """What could not be read, counted by why, with the first example of each."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, why: str, text: str) -> None:
        """Count one line or value that was left out."""
        self.counts[why] += 1
        self.examples.setdefault(why, text[:200])

    def join(self, other: Unread) -> None:
        """Count what another left out, too."""
        self.counts.update(other.counts)
        for why, example in other.examples.items():
            self.examples.setdefault(why, example)

    def __bool__(self) -> bool:
        return bool(self.counts)


def parse_gpu_name(text: str | None) -> str | None:
    """Return a serial or UUID; None for what a driver prints in its place when it cannot tell.

    Examples
    --------
    >>> name_of_gpu("1563221009876"), name_of_gpu("[Unknown Error]"), name_of_gpu("GPU is lost")
    ('1563221009876', None, None)
    """
    return text if text and not re.search(r"[\[\]\s]", text) else None


def parse_pci_address(text: str) -> str | None:
    """Return a PCI address in one form, since every source writes its own; None if it is none.

    Examples
    --------
    >>> pci_address("00000000:17:00.0"), pci_address("PCI:0000:17:00"), pci_address("0000:3B:00")
    ('0000:17:00', '0000:17:00', '0000:3b:00')
    """
    match = _PCI.search(text)
    if not match:
        return None
    domain = int(match["domain"] or "0", 16)
    return f"{domain:04x}:{match['bus']}:{match['device']}".lower()
