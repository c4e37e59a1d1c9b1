"""Presence of GPUs on the PCI bus, read from sysfs without a program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["PciBus"]


@dataclass(slots=True)
class PciBus:
    """Memory of the GPUs that were on the PCI bus at the last look.

    Attributes
    ----------
    folder : Path
        `/sys/bus/pci/devices`; a container may lack it.
    """

    folder: Path = Path("/sys/bus/pci/devices")
    _present: set[str] = field(default_factory=set)

    def gone(self, addresses: Iterable[str | None]) -> list[str]:
        """Return a text for each GPU that has left the bus since the last look.

        Parameters
        ----------
        addresses : iterable of str or None
            PCI addresses of the GPUs, without the function.
        """
        before = self._present
        devices = {path.name.partition(".")[0] for path in self.folder.glob("*")}
        self._present = {pci for pci in addresses if pci in devices and pci is not None}
        return [f"{pci}: not on the PCI bus" for pci in sorted(before - devices)]
