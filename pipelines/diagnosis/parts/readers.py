"""Which part is read by which function: a reader gets the folder and the ranks of `ranks.csv`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from forewarn.features.diagnosis.ranks import Ranks
from forewarn.pipelines.diagnosis.parts.exits import read_exits
from forewarn.pipelines.diagnosis.parts.flight import read_flight
from forewarn.pipelines.diagnosis.parts.job_folder import JobFolder
from forewarn.pipelines.diagnosis.parts.kernel import read_kernel
from forewarn.pipelines.diagnosis.parts.logs import read_logs
from forewarn.pipelines.diagnosis.parts.metrics import read_metrics
from forewarn.pipelines.diagnosis.parts.part import Part
from forewarn.pipelines.diagnosis.parts.profiles import read_profiles
from forewarn.pipelines.diagnosis.parts.stacks import read_stacks

__all__ = ["READERS"]

Reader = Callable[[JobFolder, Ranks], Part | None]  # None: the part is absent, or holds nothing

READERS: Mapping[str, Reader] = {
    "exits": read_exits,
    "logs": read_logs,
    "flight": read_flight,
    "stacks": read_stacks,
    "metrics": read_metrics,
    "kernel": read_kernel,
    "profiles": read_profiles,
}
