"""`forewarn respond --slurm-history`: what Slurm remembers, for the first retraining."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.learning.gpu_places import GpuPlaces
from forewarn.pipelines.incidents.learning.lessons import Lessons, Resolver, lessons_of_outages
from forewarn.pipelines.incidents.learning.training_tables import SLURM, add_lessons
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.schedulers.slurm.history import Outage, parse_events, read_outages
from forewarn.pipelines.runtime.job_error import JobError
from forewarn.pipelines.runtime.timestamps import iso

__all__ = ["Learned", "learn_history"]

_PAST: Final = 366 * DAY


@dataclass(frozen=True, slots=True)
class Learned:
    """What came of a history.

    Attributes
    ----------
    outages : list of Outage
    lessons : Lessons
    """

    outages: list[Outage]
    lessons: Lessons

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield an object for each failure; `gpu_serial` is null where nobody says which GPU."""
        for failure in self.lessons.failures:
            yield {
                "machine": failure.machine,
                "gpu_serial": failure.gpu_serial,
                "failed_at": iso(failure.failed_at),
                "repaired_at": None if failure.repaired_at is None else iso(failure.repaired_at),
                "cause": failure.cause,
            }
        for drain in self.lessons.without_gpu:
            yield {
                "machine": drain.machine,
                "gpu_serial": None,
                "failed_at": iso(drain.failed_at),
                "repaired_at": None if drain.repaired_at is None else iso(drain.repaired_at),
                "cause": drain.cause,
            }

    def text(self) -> str:
        """Return it in words."""
        machines = len({outage.machine for outage in self.outages})
        lessons = self.lessons
        return (
            f"{len(self.outages)} outages of {machines} machines. {len(lessons.failures)} tell of "
            f"the failure of a GPU; {len(lessons.without_gpu)} tell of a failure, and nobody knows "
            "of which GPU. While a machine was out, that its GPUs did not fail counts for nothing."
        )


def learn_history(site: ResponseSite, file: Path | None, *, now: Nanoseconds) -> Learned:
    """Take past outages, of a file or of Slurm's accounting, into the tables beside the records.

    Raises
    ------
    JobError, RecordsError
        If there are no records, or the file cannot be read.
    DriverError
        If Slurm keeps no accounting, or does not answer.
    """
    if not site.records.is_dir():
        raise JobError(f"{site.records}: no such folder, expected one of records.")
    outages = _read(site, file, now)
    resolver = Resolver(GpuPlaces(site.records), now)
    lessons = lessons_of_outages(outages, site.table.foreign_failures, resolver)
    add_lessons(site.records, SLURM, lessons)
    return Learned(outages, lessons)


def _read(site: ResponseSite, file: Path | None, now: Nanoseconds) -> list[Outage]:
    if file is None:
        return read_outages(site.slurm(), since=Nanoseconds(now - _PAST))
    try:
        return parse_events(file.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise JobError(f"{file}: is no history of Slurm ({reason}).") from None
