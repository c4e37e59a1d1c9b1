"""What is known beside a job's folder: events of its hosts, and the at-risk list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from forewarn.models.diagnosis.verdict.hardware import HostEvent, hardware_finding, list_finding
from forewarn.pipelines.diagnosis.parts.part import Case, Judged
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.at_risk_prior import Prior
from forewarn.pipelines.storage.host_events import HostEvents

__all__ = ["AtRiskPart", "EventsPart"]

_EARLIER = 60 * 60 * 1_000_000_000  # before the verdict: it covers a time-out of 30 minutes


def _machines(case: Case) -> Sequence[str]:
    return sorted({row.machine for row in case.ranks.table.values() if row.machine})


@dataclass(frozen=True, slots=True)
class EventsPart:
    """Xids and lost GPUs of the job's machines, up to an hour before the verdict."""

    events: HostEvents
    ranks: frozenset[int] = frozenset()
    last: int | None = None

    def rows(self, case: Case) -> list[dict[str, Any]]:
        """Return what was said in the hour up to a case's moment."""
        return self.events.grave_events(_machines(case), case.at - _EARLIER, case.at)

    def judge(self, case: Case) -> Judged:
        """Say which ranks run on a GPU that broke."""
        events = [
            HostEvent(row["machine_id"], row["gpu_serial"], row["xid"], parse_moment(row["time"]))
            for row in self.rows(case)
        ]
        finding = hardware_finding(events, case.ranks)
        return Judged(findings=() if finding is None else (finding,))


@dataclass(frozen=True, slots=True)
class AtRiskPart:
    """Machines with a GPU on a list that was valid at the verdict."""

    lists: Prior
    ranks: frozenset[int] = frozenset()
    last: int | None = None

    def judge(self, case: Case) -> Judged:
        """Say which machines were listed."""
        machines = _machines(case)
        listed = self.lists.listed(machines, case.at)
        names = [machine for machine, is_listed in zip(machines, listed, strict=True) if is_listed]
        finding = list_finding(names)
        return Judged(findings=() if finding is None else (finding,))
