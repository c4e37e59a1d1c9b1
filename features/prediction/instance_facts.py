"""What the last record of each instance says beside numbers: texts, dates, the slot it sat in."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.earlier_failures import Slots, failure_slots, row_slots
from forewarn.features.prediction.feature_plan import FeaturePlan
from forewarn.features.prediction.instances import Instances
from forewarn.features.records.fleet_timeline import Fleet, FleetSlice
from forewarn.features.records.record_table import MACHINE, SLOT
from forewarn.features.time_units import DAY

__all__ = ["InstanceFacts"]

_MAX_CATEGORIES = 32


class InstanceFacts:
    """The facts of n instances, filled in slice by slice of the fleet.

    Parameters
    ----------
    plan : Plan
    fleet : Fleet
    n : int

    Attributes
    ----------
    texts : dict of tuple of str
        Of each categorical column.
    codes : dict of ndarray of shape (n,), int32
        The number of the text of each instance, -1 is null.
    days : dict of ndarray of shape (n,), float32
        From the end of each instance to the date of each column.
    slots : Slots or None
        None where the records do not say.
    """

    def __init__(self, plan: FeaturePlan, fleet: Fleet, n: int) -> None:
        self._gpu_of_failure, self._with_slots = fleet.failures.gpu, bool(plan.history)
        self._n = n
        self.texts: dict[str, tuple[str, ...]] = {}
        self.codes = {name: np.empty(n, dtype=np.int32) for name in plan.kinds.categorical}
        self.days = {name: np.empty(n, dtype=np.float32) for name in plan.kinds.date}
        self.slots: Slots | None = None

    def read(self, part: FleetSlice, instances: Instances, rows: npt.NDArray[np.int64]) -> None:
        """Fill in the instances of one slice (`ReadingsOfFleet.begun`)."""
        records = part.timeline.records
        for name, codes in self.codes.items():
            self.texts[name] = records.texts[name].texts
            codes[rows] = records.codes(name, instances.row)
        for name, values in self.days.items():
            values[rows] = records.numbers(name, instances.row) - instances.end / DAY
        # Records without slots are missing something, but measured alike: a model may meet both.
        if self._with_slots and {MACHINE, SLOT} <= set(records.texts):
            self._read_slots(part, instances, rows)

    def _read_slots(
        self, part: FleetSlice, instances: Instances, rows: npt.NDArray[np.int64]
    ) -> None:
        if self.slots is None:
            self.slots = Slots.unknown(self._n, len(self._gpu_of_failure))
        self.slots.of_instances[rows] = row_slots(part.timeline, instances.row)
        failed = np.flatnonzero(np.isin(self._gpu_of_failure, part.gpu))
        slots, seen = failure_slots(part.timeline)
        self.slots.of_failures[failed], self.slots.seen[failed] = slots, seen

    def frequent_texts(
        self, name: str, rows: npt.NDArray[np.int64] | None = None
    ) -> tuple[str, ...]:
        """Return the texts of a column that most instances have, or most of some `rows`."""
        texts, codes = self.texts[name], self.codes[name]
        codes = codes if rows is None else codes[rows]
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        most = np.argsort(-counts, kind="stable")[:_MAX_CATEGORIES]
        return tuple(texts[i] for i in most if counts[i])
