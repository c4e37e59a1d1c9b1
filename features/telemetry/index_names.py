"""Names of GPUs that a tool identifies by address or index alone, from other files of the host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["GpuNames"]

_Name = tuple[str | None, str | None]  # serial, UUID
_DESCRIPTIONS = ("pci", "gpu_type", "driver_version")
_ALWAYS = 2**62  # age of a name without a time: any dated one is nearer


@dataclass(slots=True)
class GpuNames:
    """Serials and UUIDs by host and address, and by host and index, each with its time."""

    _seen: dict[tuple[Any, ...], list[tuple[int | None, _Name]]] = field(
        default_factory=lambda: defaultdict(list), repr=False
    )
    _descriptions: dict[_Name, dict[str, str]] = field(
        default_factory=lambda: defaultdict(dict), repr=False
    )

    def add(self, row: Mapping[str, Any]) -> None:
        """Remember the name of a row that has one; a row without a time counts for all times."""
        name = (row.get("gpu_serial"), row.get("gpu_uuid"))
        if any(name):
            known = {key: row[key] for key in _DESCRIPTIONS if row.get(key) is not None}
            self._descriptions[name].update(known)
            for key in _keys(row):
                self._seen[key].append((row.get("timestamp"), name))

    def name(self, row: Mapping[str, Any]) -> dict[str, str] | None:
        """Return `gpu_serial` and `gpu_uuid` of the GPU of a row, as seen nearest in time.

        Also its address, type and driver version where the row lacks them.

        None if the place is unknown, or two GPUs were seen there at the same time.
        """
        for key in _keys(row):
            if seen := self._seen.get(key):
                ages = [(_age(time, row["timestamp"]), name) for time, name in seen]
                nearest = min(age for age, _ in ages)
                names = {name for age, name in ages if age == nearest}
                uuids = {uuid for _, uuid in names} - {None} or {serial for serial, _ in names}
                if len(uuids) > 1:
                    return None
                name = max(names, key=lambda name: sum(map(bool, name)))
                more = self._descriptions[name].items()
                parts = {"gpu_serial": name[0], "gpu_uuid": name[1]}
                parts |= {key: text for key, text in more if row.get(key) is None}
                return {key: part for key, part in parts.items() if part is not None}
        return None


def _keys(row: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the places that a row names: an address counts before an index.

    `listed` stands for any GPU of a list of the host: a name if the list has one GPU only.
    """
    host = row.get("machine_id")
    places = [(kind, row.get(kind)) for kind in ("pci", "slot", "listed")]
    return [(host, kind, position) for kind, position in places if position is not None]


def _age(time: int | None, at: int) -> int:
    return _ALWAYS if time is None else abs(at - time)
