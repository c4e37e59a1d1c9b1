"""Signs of damage that a GPU shows between two readings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.pipelines.agent.gpu_inventory import gpu_key

__all__ = ["RISING_DAMAGE", "DamageWatch"]

RISING_DAMAGE = ("ecc_uncorrected", "rows_remapped", "row_remap_failure")
"""Values of a reading whose rise is damage."""
_WIDTH = "pcie_link_width"  # lanes; fewer than before are damage


@dataclass(slots=True)
class DamageWatch:
    """Memory of the last values that show damage.

    A value that is not known, or seen for the first time, shows none. A counter that falls was
    reset; lanes count as lost once, also if their number changes often.
    """

    _last: dict[str, dict[str, float]] = field(default_factory=dict)

    def update(self, readings: Sequence[GpuReading]) -> list[str]:
        """Return what has become worse since the last call, one text per GPU and value."""
        worse = []
        for reading in readings:
            last = self._last.setdefault(gpu_key(reading), {})
            worse += [
                f"{gpu_key(reading)}: {name} {last[name]:g} to {value:g}"
                for name, value in _watched(reading.numbers).items()
                if name in last and _is_worse(name, last[name], value)
            ]
            last.update(_watched(reading.numbers) | _least_width(last, reading.numbers))
        return worse


def _watched(numbers: Mapping[str, float]) -> dict[str, float]:
    return {name: numbers[name] for name in (*RISING_DAMAGE, _WIDTH) if name in numbers}


def _is_worse(name: str, before: float, now: float) -> bool:
    return now < before if name == _WIDTH else now > before


def _least_width(last: Mapping[str, float], numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the least number of lanes so far."""
    if _WIDTH not in numbers:
        return {}
    return {_WIDTH: min(numbers[_WIDTH], last.get(_WIDTH, numbers[_WIDTH]))}
