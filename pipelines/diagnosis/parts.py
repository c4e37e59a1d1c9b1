"""Which part is read by which function: a reader gets the folder and the ranks of `ranks.csv`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.pipelines.diagnosis.exits import read_exits
from forewarn.pipelines.diagnosis.flight import read_flight
from forewarn.pipelines.diagnosis.job_folder import JobFolder
from forewarn.pipelines.diagnosis.logs import read_logs
from forewarn.pipelines.diagnosis.part import Part

__all__ = ["READERS"]

Reader = Callable[[JobFolder, Ranks], Part | None]  # None: the part is absent, or holds nothing

READERS: Mapping[str, Reader] = {
    "exits": read_exits,
    "logs": read_logs,
    "flight": read_flight,
}
