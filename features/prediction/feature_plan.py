"""The plan of a measurement: which columns, how long a window, which spans of the past."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import DAY, Nanoseconds, RecordCount

__all__ = ["FeaturePlan"]


@dataclass(frozen=True, slots=True)
class FeaturePlan:
    """The measurements that the configuration asks for.

    Attributes
    ----------
    kinds : FeatureKinds
    window_records : RecordCount
        Records in a window.
    interval : Nanoseconds
        Between two records.
    history : tuple of int
        Spans of the past beside the window, in window lengths.
    peers : tuple of str
        Text columns; a GPU is compared with the others of the same text.
    residuals : tuple of (str, str)
        Float columns: the first given the second.
    """

    kinds: FeatureKinds
    window_records: RecordCount
    interval: Nanoseconds
    history: tuple[int, ...] = ()
    peers: tuple[str, ...] = ()
    residuals: tuple[tuple[str, str], ...] = ()

    @property
    def window(self) -> Nanoseconds:
        """The time that a window lasts."""
        return Nanoseconds(self.window_records * self.interval)

    @property
    def reach(self) -> Nanoseconds:
        """The time before the end of an instance that must be read to measure it."""
        longest = max((1, *self.history)) * self.window
        return Nanoseconds(longest + self.window + DAY)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        kinds = {name: list(getattr(self.kinds, name)) for name in FeatureKinds.__slots__}
        saved: dict[str, Any] = {"kinds": kinds, "length": self.window_records}
        saved |= {"interval": self.interval}
        saved |= {"history": list(self.history), "peers": list(self.peers)}
        return saved | {"residuals": [list(pair) for pair in self.residuals]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read what `to_dict` gave."""
        return cls(
            kinds=FeatureKinds(
                **{name: tuple(columns) for name, columns in saved["kinds"].items()}
            ),
            window_records=RecordCount(saved["length"]),
            interval=Nanoseconds(saved["interval"]),
            history=tuple(saved["history"]),
            peers=tuple(saved["peers"]),
            residuals=tuple((y, x) for y, x in saved["residuals"]),
        )
