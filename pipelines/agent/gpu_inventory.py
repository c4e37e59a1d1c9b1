"""The roll of a host's GPUs: which are here, which are lost, and of which nothing is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.pipelines.agent.gpu_source import GpuPoll

__all__ = ["GpuInventory", "InventoryChange", "gpu_key"]


@dataclass(frozen=True, slots=True)
class InventoryChange:
    """What an answer changed.

    Attributes
    ----------
    lost : list of (GpuReading, int)
        GPUs that are gone, and since when: of two answers that agree, the time of the first one.
    back : list of GpuReading
        Lost ones that are here again.
    blind : str
        Why nothing can be said of GPUs that the answer lacks; empty if it says enough.
    """

    lost: list[tuple[GpuReading, int]]
    back: list[GpuReading]
    blind: str


@dataclass(slots=True)
class GpuInventory:
    """Calls the roll with each answer of a source.

    A GPU is lost when the driver says so, or when two answers in a row lack it while the others
    answer. Everything else that can hide a GPU, such as a driver that is being replaced, says
    nothing of it.

    Attributes
    ----------
    known, missing : dict of str to GpuReading
        GPUs of the host, the lost ones among them, by `gpu_key`; without their numbers.
    """

    known: dict[str, GpuReading] = field(default_factory=dict)
    missing: dict[str, GpuReading] = field(default_factory=dict)
    _absent: dict[str, int] = field(default_factory=dict)

    def call(self, answer: GpuPoll, time: int) -> InventoryChange:
        """Take in the answer of a moment; a GPU whose place another one took was replaced."""
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

    def unanswered(self) -> None:
        """Take in that nothing answered: what was absent before it has to be seen anew."""
        self._absent = {}

    def at(self, pci: str | None) -> GpuReading | None:
        """Return the GPU at an address."""
        return next((gpu for gpu in self.known.values() if pci and gpu.pci == pci), None)

    def _called_lost(
        self, addresses: tuple[str, ...], present_names: set[str]
    ) -> dict[str, GpuReading]:
        gpus = [self.at(pci) or GpuReading(pci=pci) for pci in addresses]
        return {gpu_key(gpu): gpu for gpu in gpus if not present_names & _identifiers(gpu)}


def _reason_unknown(answer: GpuPoll) -> str:
    """Say why a GPU that an answer lacks may be there all the same; empty if it is gone."""
    if answer.trouble:
        return answer.trouble
    if not answer.readings:
        return "no GPU answers"
    if not all(map(_identifiers, answer.readings)):
        return "a GPU answers and does not say which one it is"
    return ""


def _identifiers(gpu: GpuReading) -> set[str]:
    return {name for name in (gpu.serial, gpu.uuid, gpu.pci) if name}


def _shared_serials(gpus: Iterable[GpuReading]) -> set[str]:
    """Return the serials that several GPUs have: those of a board report the same."""
    serials = Counter(gpu.serial for gpu in gpus if gpu.serial)
    return {serial for serial, n_gpus in serials.items() if n_gpus > 1}


def gpu_key(gpu: GpuReading) -> str:
    """Return what tells a GPU of a host from the others: first its UUID, boards share serials.

    Examples
    --------
    >>> gpu_key(GpuReading(serial="S1", slot=0)), gpu_key(GpuReading(slot=0))
    ('S1', 'slot 0')
    """
    return gpu.uuid or gpu.serial or gpu.pci or f"slot {gpu.slot}"


def _identity(gpu: GpuReading) -> GpuReading:
    return GpuReading(serial=gpu.serial, uuid=gpu.uuid, pci=gpu.pci, slot=gpu.slot)
