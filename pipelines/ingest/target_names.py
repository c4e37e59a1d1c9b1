"""Names of machines whose exporters are scraped by address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.telemetry.parsers.machine_label import MachineLabels
from forewarn.features.telemetry.parsers.prometheus_answers import parse_matrix
from forewarn.features.time_units import HOUR

__all__ = ["TargetNames"]

_HOST_NAMES = "node_uname_info"  # of node_exporter


@dataclass(slots=True)
class TargetNames:
    """Names the machine of a series; an address becomes the name that the host has itself.

    Attributes
    ----------
    query : callable
        Returns the samples of a selector in a span before a time (nanoseconds).
    labels : MachineLabels
    matchers : str
        Label matchers of the site.
    """

    query: Callable[[str, int, int], Any]
    labels: MachineLabels = field(default_factory=MachineLabels)
    matchers: str = ""
    _names: dict[str, str] | None = None

    def machine(self, labels: Mapping[str, str], end: int) -> str | None:
        """Return the machine of a series; None if no label names one.

        Raises
        ------
        PrometheusError
            If the server cannot be queried.
        """
        machine = self.labels.machine(labels)
        if machine is None or not machine.replace(".", "").isdigit():
            return machine
        if self._names is None:
            self._names = self._read_names(end)
        return self._names.get(machine, machine)

    def _read_names(self, end: int) -> dict[str, str]:
        matrix, _ = parse_matrix(self.query(f"{_HOST_NAMES}{{{self.matchers}}}", end, HOUR))
        names = {}
        for series in matrix:
            address = self.labels.machine({"instance": series.labels.get("instance", "")})
            if address and series.labels.get("nodename"):
                names[address] = series.labels["nodename"]
        return names
