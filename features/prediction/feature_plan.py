"""Feature plan: columns, window length, history spans, peers and residuals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from forewarn.features.records.record_table import FeatureKinds
from forewarn.features.time_units import DAY, Nanoseconds, RecordCount

__all__ = ["FeaturePlan"]


@dataclass(frozen=True, slots=True)
class FeaturePlan:
    """The features that the configuration asks for.

    Attributes
    ----------
    kinds : FeatureKinds
    window_records : RecordCount
        Records in a window.
    interval : Nanoseconds
        Time between two records.
    history : tuple of int
        History spans in addition to the window, in window lengths.
    peers : tuple of str
        Text columns; GPUs with the same text are peers.
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
        """Duration of a window."""
        return Nanoseconds(self.window_records * self.interval)

    @property
    def reach(self) -> Nanoseconds:
        """Time before the end of an instance that is needed to compute its features."""
        longest = max((1, *self.history)) * self.window
        return Nanoseconds(longest + self.window + DAY)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dict."""
        kinds = {name: list(getattr(self.kinds, name)) for name in FeatureKinds.__slots__}
        saved: dict[str, Any] = {"kinds": kinds, "length": self.window_records}
        saved |= {"interval": self.interval}
        saved |= {"history": list(self.history), "peers": list(self.peers)}
        return saved | {"residuals": [list(pair) for pair in self.residuals]}

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> Self:
        """Read a dict from `to_dict`."""
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
