"""Answers about the machines of the fleet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field

from forewarn.pipelines.incidents.api.listed_gpus import as_text
from forewarn.pipelines.incidents.ledger.incident_summaries import IncidentHead
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.storage.evidence.daily_lists import DailyList, DailyLists, GpuCounts
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Ruling

__all__ = ["FleetAnswer", "MachineAnswer"]

_NO_GPUS: Final = GpuCounts()


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class MachineAnswer(_Answer):
    """A machine of the newest list."""

    machine: str
    rack: str
    gpus: int
    flagged: int
    failed: int
    without_data: int
    probability: float | None = Field(description="Highest of its GPUs.")
    action: str = Field(description="State of its open action; empty without one.")
    step: str = Field(description="Step of its open action; empty without one.")
    incidents: tuple[int, ...] = Field(description="Open ones.")
    waits: bool = Field(description="A step waits for approval.")


class FleetAnswer(_Answer):
    """A page of the fleet: machines by rack, and the quality of their data."""

    date: str | None = Field(description="Of the newest list; null if there is none.")
    at: str | None
    scored: int
    unscored: dict[str, int] = Field(description="GPUs that are not scored, by reason.")
    unended: int = Field(description="Failures without an end.")
    machines: tuple[MachineAnswer, ...]
    next: str | None = Field(description="`after` of the next page; null on the last one.")

    @classmethod
    def read(cls, lists: DailyLists, ledger: Ledger, *, after: str, limit: int) -> Self:
        """Return at most `limit` machines after the rack and machine `after`."""
        daily = lists.newest()
        pages = _FleetPages(daily, ledger.open_heads(), ledger.open_actions())
        rest = [pair for pair in pages.in_order if pair[0] > after]
        unscored = daily.unscored if daily else ()
        return cls(
            date=daily.date if daily else None,
            at=as_text(daily.summary.get("at")) if daily else None,
            scored=daily.table.num_rows if daily else 0,
            unscored=dict(Counter(row.get("reason") or "" for row in unscored)),
            unended=sum(bool(row.get("failed_since")) for row in unscored),
            machines=tuple(pages.machine(name) for _, name in rest[:limit]),
            next=rest[limit - 1][0] if len(rest) > limit else None,
        )


class _FleetPages:
    """All machines of a list and of the ledger's open rows; `in_order` by rack and name."""

    def __init__(
        self, daily: DailyList | None, heads: Iterable[IncidentHead], actions: Iterable[Action]
    ) -> None:
        self._incidents: dict[str, list[IncidentHead]] = defaultdict(list)
        for head in heads:
            self._incidents[head.machine].append(head)
        self._acting = {action.machine: action for action in actions}
        self._gpus = daily.gpus_by_machine if daily else {}
        racks = daily.racks if daily else {}
        names = {*self._gpus, *self._incidents, *self._acting}
        acting = {name: action.rack or "" for name, action in self._acting.items()}
        self._racks = {name: racks.get(name) or acting.get(name) or "" for name in names}
        self.in_order = sorted((f"{rack}/{name}", name) for name, rack in self._racks.items())

    def machine(self, name: str) -> MachineAnswer:
        """Return what is known of a machine."""
        action = self._acting.get(name)
        own = self._incidents.get(name, ())
        return MachineAnswer(
            machine=name,
            rack=self._racks[name],
            **asdict(self._gpus.get(name, _NO_GPUS)),
            action="" if action is None else action.state.value,
            step="" if action is None else action.step.value,
            incidents=tuple(head.id for head in own),
            waits=any(head.ruling is Ruling.PROPOSE and not head.approved for head in own),
        )
