"""Events and rates of the counters of network ports, read from sysfs and their drivers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.features.telemetry.network.error_counters import (
    HARDWARE_COUNTERS,
    PORT_COUNTERS,
    PORT_STATE,
    counter_row,
    state_row,
)
from forewarn.features.telemetry.network.port_rates import (
    RATE_FILES,
    PortCounts,
    pause_counts,
    port_rates,
)
from forewarn.features.telemetry.telemetry_rows import HostState
from forewarn.features.time_units import SECOND
from forewarn.pipelines.agent.ethtool_statistics import ethtool_statistics

__all__ = ["PortCounterEvents"]

_MAX_DIGITS = 20  # of a 64-bit counter
_Key = tuple[str, str]


@dataclass(slots=True)
class PortCounterEvents:
    """Memory of the last value of each counter of the network ports of a host.

    Attributes
    ----------
    folder : Path
        `/sys/class`, with `infiniband` and `net`.
    statistics : callable
        Returns the statistics of an interface.
    """

    folder: Path = Path("/sys/class")
    statistics: Callable[[str], list[tuple[str, int]]] = ethtool_statistics
    _last: dict[_Key, int] = field(default_factory=dict)
    _counted: PortCounts = field(default_factory=dict)
    _counted_at: int = 0

    def rows(self, host: HostState) -> list[dict[str, Any]]:
        """Return a row of EVENTS for each counter that rose since the last call."""
        values = {key: value for key, path in self._files() if (value := _value(path)) is not None}
        rows = [
            self._row(host, key, self._last.get(key, value), value) for key, value in values.items()
        ]
        self._last = values
        return [row for row in rows if row]

    def _row(self, host: HostState, key: _Key, before: int, after: int) -> dict[str, Any] | None:
        port, name = key
        if name == PORT_STATE:
            return state_row(host.machine_id, port, host.time, before, after)
        return counter_row(host.machine_id, port, name, host.time, after - before)

    def rates(self, time: int) -> dict[str, float]:
        """Return the rates of the machine since the last call; empty at the first one.

        Parameters
        ----------
        time : int
            Nanoseconds since 1970 UTC.
        """
        before, lasted = self._counted, (time - self._counted_at) / SECOND
        self._counted, self._counted_at = self._counts(), time
        return port_rates(before, self._counted, lasted)

    def _counts(self) -> PortCounts:
        counts: dict[tuple[str, str], float] = {}
        for path in self._ports():
            for name, (metric, factor) in RATE_FILES.items():
                if (value := _value(path / name)) is not None:
                    counts[str(path), metric] = value * factor
        for path in sorted(self.folder.glob("net/*/device")):
            if not (path / "physfn").exists():
                with suppress(OSError):
                    frames = pause_counts(self.statistics(path.parent.name))
                    counts |= {(path.parent.name, name): value for name, value in frames.items()}
        return counts

    def _ports(self) -> list[Path]:
        """Return the folders of the ports of physical devices.

        A virtual function has the counters of its user, whose end is no error of the port.
        """
        return [
            path
            for path in sorted(self.folder.glob("infiniband/*/ports/*"))
            if not (path.parent.parent / "device" / "physfn").exists()
        ]

    def _files(self) -> list[tuple[_Key, Path]]:
        """Return port, counter and file of each error counter, of physical devices only."""
        files = []
        for path in self._ports():
            port = f"{path.parent.parent.name}/{path.name}"
            files.append(((port, PORT_STATE), path / "state"))
            for name in PORT_COUNTERS:
                group = "hw_counters" if name in HARDWARE_COUNTERS else "counters"
                files.append(((port, name), path / group / name))
        nets = sorted(self.folder.glob("net/*/device"))  # virtual devices have no `device`
        name = "carrier_down_count"
        return files + [((path.parent.name, name), path.parent / name) for path in nets]


def _value(path: Path) -> int | None:
    """Return a counter or a state's number; None where the port has none, as `N/A (no PMA)`."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii").partition(":")[0].strip()[:_MAX_DIGITS])
    return None
