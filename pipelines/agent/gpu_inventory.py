"""Inventory of a host's GPUs: present, lost, or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll

__all__ = ["GpuInventory", "InventoryChange", "gpu_key"]


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """Changes of the inventory after a poll.

    Attributes
    ----------
    lost : list of (GpuReading, int)
        Newly lost GPUs and the time of the first poll without them.
    back : list of GpuReading
        Lost GPUs that are present again.
    blind : str
        Reason why nothing is known about GPUs missing in the poll; empty if the poll is complete.
    """

    lost: list[tuple[GpuReading, int]]
    back: list[GpuReading]
    blind: str


@dataclass(slots=True)
class GpuInventory:
    """Inventory that each poll of a source updates.

    A GPU is lost if the driver says so, or if two consecutive complete polls lack it. Other reasons
    for a missing GPU, such as a driver upgrade in progress, say nothing about it.

    Attributes
    ----------
    known, missing : dict of str to GpuReading
        GPUs of the host including lost ones, and the lost ones, by `gpu_key` and without metrics.
    """

    known: dict[str, GpuReading] = field(default_factory=dict)
    missing: dict[str, GpuReading] = field(default_factory=dict)
    _absent: dict[str, int] = field(default_factory=dict)

    def update(self, answer: GpuPoll, time: int) -> InventoryChange:
        """Update the inventory; a GPU whose slot another GPU occupies was replaced, not lost."""
        named = [reading for reading in answer.readings if _identifiers(reading)]
        present = {gpu_key(reading): _identity(reading) for reading in named}
        of_boards = _shared_serials(present.values()) | _shared_serials(self.known.values())
        names = {name for reading in named for name in _identifiers(reading)} - of_boards
        called = self._called_lost(answer.lost, names)
        absent = {
            key: gpu
            for key, gpu in self.known.items()
            if key not in called and not names & _identifiers(gpu)
        }
        blind = _reason_unknown(answer)
        since = {} if blind else self._absent
        agreed = self.missing.keys() | since.keys()
        gone = called | {key: gpu for key, gpu in absent.items() if key in agreed}
        new = gone.keys() - self.missing.keys()
        lost = [(gpu, since.get(key, time)) for key, gpu in gone.items() if key in new]
        back = [gpu for key, gpu in self.missing.items() if key in names]
        unsaid = absent.keys() - gone.keys()
        self._absent = {} if blind else dict.fromkeys(unsaid, time)
        self.known, self.missing = present | absent | gone, gone
        return InventoryChange(lost, back, blind if unsaid or not answer.readings else "")

    def record_no_response(self) -> None:
        """Record a poll without an answer: a GPU must then be missing in two further polls."""
        self._absent = {}

    def at(self, pci: str | None) -> GpuReading | None:
        """Return the GPU at a PCI address, or None."""
        return next((gpu for gpu in self.known.values() if pci and gpu.pci == pci), None)

    def _called_lost(
        self, addresses: tuple[str, ...], present_names: set[str]
    ) -> dict[str, GpuReading]:
        gpus = [self.at(pci) or GpuReading(pci=pci) for pci in addresses]
        return {gpu_key(gpu): gpu for gpu in gpus if not present_names & _identifiers(gpu)}


def _reason_unknown(answer: GpuPoll) -> str:
    """Return why a GPU may exist although a poll lacks it; empty if it is gone."""
    if answer.trouble:
        return answer.trouble
    if not answer.readings:
        return "no GPU responds"
    if not all(map(_identifiers, answer.readings)):
        return "a GPU responds without an identifier"
    return ""


def _identifiers(gpu: GpuReading) -> set[str]:
    return {name for name in (gpu.serial, gpu.uuid, gpu.pci) if name}


def _shared_serials(gpus: Iterable[GpuReading]) -> set[str]:
    """Return the serials of several GPUs: GPUs of one board report the board's serial."""
    serials = Counter(gpu.serial for gpu in gpus if gpu.serial)
    return {serial for serial, n_gpus in serials.items() if n_gpus > 1}


def gpu_key(gpu: GpuReading) -> str:
    """Return the unique key of a GPU on its host: the UUID first, because boards share serials.

    Examples
    --------
    >>> gpu_key(GpuReading(serial="S1", slot=0)), gpu_key(GpuReading(slot=0))
    ('S1', 'slot 0')
    """
    return gpu.uuid or gpu.serial or gpu.pci or f"slot {gpu.slot}"


def _identity(gpu: GpuReading) -> GpuReading:
    return GpuReading(serial=gpu.serial, uuid=gpu.uuid, pci=gpu.pci, slot=gpu.slot)
