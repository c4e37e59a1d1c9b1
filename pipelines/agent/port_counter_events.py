"""Events of the error counters of network ports, read from sysfs."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.features.telemetry.port_counters import PORT_COUNTERS, counter_row
from forewarn.features.telemetry.telemetry_rows import HostState

__all__ = ["PortCounterEvents"]

_MAX_DIGITS = 20  # of a 64-bit counter


@dataclass(slots=True)
class PortCounterEvents:
    """Memory of the last value of each error counter of a host.

    Attributes
    ----------
    folder : Path
        `/sys/class`, with `infiniband` and `net`.
    """

    folder: Path = Path("/sys/class")
    _last: dict[tuple[str, str], int] = field(default_factory=dict)

    def rows(self, host: HostState) -> list[dict[str, Any]]:
        """Return a row of EVENTS for each counter that rose since the last call."""
        values = {key: value for key, path in self._files() if (value := _value(path)) is not None}
        rows = [
            counter_row(host.machine_id, *key, host.time, (self._last.get(key, value), value))
            for key, value in values.items()
        ]
        self._last = values
        return [row for row in rows if row is not None]

    def _files(self) -> list[tuple[tuple[str, str], Path]]:
        """Return port, counter and file of each error counter, of physical devices only."""
        ports = sorted(self.folder.glob("infiniband/*/ports/*/counters"))
        files = [
            ((f"{path.parents[2].name}/{path.parent.name}", name), path / name)
            for path in ports
            for name in PORT_COUNTERS
        ]
        nets = sorted(self.folder.glob("net/*/device"))  # virtual devices have no `device`
        name = "carrier_down_count"
        return files + [((path.parent.name, name), path.parent / name) for path in nets]


def _value(path: Path) -> int | None:
    """Return the value of a counter; None where the port has none, such as `N/A (no PMA)`."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii").strip()[:_MAX_DIGITS])
    return None
