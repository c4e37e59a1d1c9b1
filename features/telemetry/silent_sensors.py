"""Detection of silent sensors: absent after having reported, or frozen while the GPU changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["SilentSensorMonitor"]

# Both change with the load on every card; clocks and memory can be constant for days.
_MOVING_SENSORS = ("temperature_gpu", "power_draw")
_MIN_FROZEN_READINGS = 12  # two hours at ten minutes


@dataclass(slots=True)
class _Gpu:
    last: deque[Mapping[str, float]] = field(
        default_factory=lambda: deque(maxlen=_MIN_FROZEN_READINGS)
    )
    blind: set[str] = field(default_factory=set)
    spoke: set[str] = field(default_factory=set)


@dataclass(slots=True)
class SilentSensorMonitor:
    """A monitor of the last readings of each GPU; a silent sensor is a finding."""

    gpus: dict[str, _Gpu] = field(default_factory=dict)

    def update(self, gpu: str, numbers: Mapping[str, float]) -> list[str]:
        """Add a reading and describe sensors that became silent, each once until it reports again.

        Parameters
        ----------
        gpu : str
        numbers : mapping
            As in `GpuReading`.

        Examples
        --------
        >>> monitor = SilentSensorMonitor()
        >>> monitor.update("GPU-1", {"power_draw": 100.0}), monitor.update("GPU-1", {})
        ([], ['power_draw is absent'])
        """
        state = self.gpus.setdefault(gpu, _Gpu())
        state.last.append(dict(numbers))
        absent = {f"{name} is absent" for name in state.spoke - set(numbers)}
        findings = absent | {
            f"{name} is frozen" for name in _MOVING_SENSORS if _frozen(name, state.last)
        }
        new = sorted(findings - state.blind)
        state.blind, state.spoke = findings, state.spoke | set(numbers)
        return new


def _frozen(name: str, last: deque[Mapping[str, float]]) -> bool:
    """Tell whether a sensor was constant over many readings while the other one changed."""
    values = {numbers.get(name) for numbers in last}
    others = [
        {numbers.get(other) for numbers in last} for other in _MOVING_SENSORS if other != name
    ]
    whole = len(last) == _MIN_FROZEN_READINGS and None not in values
    return whole and len(values) == 1 and any(len(other - {None}) > 2 for other in others)
