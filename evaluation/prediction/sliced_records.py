"""What a retraining reads where the records are too many to be in memory at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from forewarn.features.prediction.instances import Instances
from forewarn.features.records.timeline import Fleet
from forewarn.features.time_units import Nanoseconds
from forewarn.models.prediction.candidates import Candidates

__all__ = ["SlicedRecords"]


class SlicedRecords(Protocol):
    """Records that are read slice by slice of GPUs, as they stood at one moment or another."""

    def past(
        self, moment: int, reach: Nanoseconds, spans: Sequence[Nanoseconds]
    ) -> tuple[Fleet, Candidates]:
        """Return the fleet as it stood at `moment`, `reach` back, and what can train on spans."""
        ...

    def future(
        self, moment: int, instances: Instances
    ) -> tuple[Fleet, Instances, npt.NDArray[np.int64] | None]:
        """Return a fleet that the instances of a test window can be measured in.

        Returns
        -------
        Fleet
        Instances
            The same, numbered as that fleet numbers GPUs and rows.
        ndarray of shape (n,), int64, or None
            The number of the machine that each was in, -1 unknown; None if no record names one.
        """
        ...
