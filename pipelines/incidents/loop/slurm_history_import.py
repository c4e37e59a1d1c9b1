"""Import of Slurm's accounting (`forewarn respond --slurm-history`) for the first retraining."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.learning.gpu_locations import GpuLocations
from forewarn.pipelines.incidents.learning.label_tables import SLURM, add_labels
from forewarn.pipelines.incidents.learning.training_labels import (
    SerialResolver,
    TrainingLabels,
    labels_from_outages,
)
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.schedulers.slurm.slurm_history import (
    NodeOutage,
    parse_events,
    read_outages,
)
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import format_iso

__all__ = ["ImportedHistory", "import_history"]

_LOOKBACK: Final = 366 * DAY


@dataclass(frozen=True, slots=True)
class ImportedHistory:
    """Outages and training labels of an imported history.

    Attributes
    ----------
    outages : list of NodeOutage
    labels : TrainingLabels
    """

    outages: list[NodeOutage]
    labels: TrainingLabels

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield one object per failure; `gpu_serial` is null where the GPU is unknown."""
        for failure in self.labels.failures:
            yield {
                "machine": failure.machine,
                "gpu_serial": failure.gpu_serial,
                "failed_at": format_iso(failure.failed_at),
                "repaired_at": None
                if failure.repaired_at is None
                else format_iso(failure.repaired_at),
                "cause": failure.cause,
            }
        for drain in self.labels.without_gpu:
            yield {
                "machine": drain.machine,
                "gpu_serial": None,
                "failed_at": format_iso(drain.failed_at),
                "repaired_at": None if drain.repaired_at is None else format_iso(drain.repaired_at),
                "cause": drain.cause,
            }

    def text(self) -> str:
        """Summarize the import in one paragraph."""
        machines = len({outage.machine for outage in self.outages})
        labels = self.labels
        return (
            f"{len(self.outages)} outages of {machines} machines. Failures of a "
            f"known GPU: {len(labels.failures)}; of an unknown GPU: {len(labels.without_gpu)}. "
            "While a machine was out of service, its GPUs count as unlabelled, not as healthy."
        )


def import_history(site: ResponseSite, file: Path | None, *, now: Nanoseconds) -> ImportedHistory:
    """Import past outages, from a file or from Slurm's accounting, into the label tables.

    Raises
    ------
    JobError, RecordsError
        If there are no records, or the file cannot be read.
    DriverError
        If Slurm keeps no accounting, or does not answer.
    """
    if not site.records.is_dir():
        raise JobError(f"{site.records}: no such folder, expected a folder of records.")
    outages = _read(site, file, now)
    resolver = SerialResolver(GpuLocations(site.records, site.settings.records.names), now)
    labels = labels_from_outages(outages, site.table.foreign_failures, resolver)
    add_labels(site.records, SLURM, labels)
    return ImportedHistory(outages, labels)


def _read(site: ResponseSite, file: Path | None, now: Nanoseconds) -> list[NodeOutage]:
    if file is None:
        return read_outages(site.slurm(), since=Nanoseconds(now - _LOOKBACK))
    try:
        return parse_events(file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise JobError(f"{file}: not a Slurm history ({reason}).") from None
