"""Non-numeric facts from the last record of each instance: categories, dates and slot."""

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
    """Facts of n instances, filled in slice by slice.

    Parameters
    ----------
    plan : FeaturePlan
    fleet : Fleet
    n : int

    Attributes
    ----------
    texts : dict of tuple of str
        Texts of each categorical column.
    codes : dict of ndarray of shape (n,), int32
        Number of each instance's text, -1 is null.
    days : dict of ndarray of shape (n,), float32
        Days from the end of each instance to the date in each column.
    slots : Slots or None
        None if the records do not contain slots.
    """

    def __init__(self, plan: FeaturePlan, fleet: Fleet, n: int) -> None:
        self._gpu_of_failure, self._with_slots = fleet.failures.gpu, bool(plan.history)
        self._n = n
        self.texts: dict[str, tuple[str, ...]] = {}
        self.codes = {name: np.empty(n, dtype=np.int32) for name in plan.kinds.categorical}
        self.days = {name: np.empty(n, dtype=np.float32) for name in plan.kinds.date}
        self.slots: Slots | None = None

    def read(self, part: FleetSlice, instances: Instances, rows: npt.NDArray[np.int64]) -> None:
        """Fill in the instances of one slice (`FleetChannelReader.prepare_slice`)."""
        records = part.timeline.records
        for name, codes in self.codes.items():
            self.texts[name] = records.texts[name].texts
            codes[rows] = records.codes(name, instances.row)
        for name, values in self.days.items():
            values[rows] = records.numbers(name, instances.row) - instances.end / DAY
        # Records without slots give missing values in the same columns, so a model can score both
        # kinds.
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
        """Return the most frequent texts of a column among all instances or among `rows`."""
        texts, codes = self.texts[name], self.codes[name]
        codes = codes if rows is None else codes[rows]
        counts = np.bincount(codes[codes >= 0], minlength=len(texts))
        most = np.argsort(-counts, kind="stable")[:_MAX_CATEGORIES]
        return tuple(texts[i] for i in most if counts[i])
