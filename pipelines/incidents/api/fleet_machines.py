"""Answers about the machines of the fleet."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from forewarn.pipelines.incidents.api.listed_gpus import as_number, as_text
from forewarn.pipelines.incidents.ledger.incident_summaries import IncidentHead
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.storage.evidence.daily_lists import DailyList, DailyLists
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Ruling

__all__ = ["FleetAnswer", "MachineAnswer"]

_EXPECTED_REASONS: Final = ("failed", "too new")  # reasons other than missing data
_NO_GPUS: Final[dict[str, Any]] = {
    **dict.fromkeys(("gpus", "flagged", "failed", "without_data"), 0),
    "probability": None,
}


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
        machines = _machines(daily, ledger.open_heads(), ledger.open_actions())
        rest = [machine for machine in machines if _fleet_key(machine) > after]
        unscored = daily.unscored if daily else ()
        return cls(
            date=daily.date if daily else None,
            at=as_text(daily.summary.get("at")) if daily else None,
            scored=daily.table.num_rows if daily else 0,
            unscored=dict(Counter(row.get("reason") or "" for row in unscored)),
            unended=sum(bool(row.get("failed_since")) for row in unscored),
            machines=tuple(rest[:limit]),
            next=_fleet_key(rest[limit - 1]) if len(rest) > limit else None,
        )


def _fleet_key(machine: MachineAnswer) -> str:
    return f"{machine.rack}/{machine.machine}"


def _machines(
    daily: DailyList | None, heads: Iterable[IncidentHead], actions: Iterable[Action]
) -> list[MachineAnswer]:
    """Return all machines of a list and of the ledger's open rows, by rack and name."""
    incidents: dict[str, list[IncidentHead]] = defaultdict(list)
    for head in heads:
        incidents[head.machine].append(head)
    acting = {action.machine: action for action in actions}
    racks = dict(daily.racks) if daily else {}
    racks |= {name: a.rack for name, a in acting.items() if a.rack and not racks.get(name)}
    gpus = _gpus_by_machine(daily)
    names = {*gpus, *incidents, *acting}
    machines = []
    for name in names:
        action = acting.get(name)
        own = incidents.get(name, ())
        machines.append(
            MachineAnswer(
                machine=name,
                rack=racks.get(name) or "",
                **(gpus.get(name) or _NO_GPUS),
                action="" if action is None else action.state.value,
                step="" if action is None else action.step.value,
                incidents=tuple(head.id for head in own),
                waits=any(head.ruling is Ruling.PROPOSE and not head.approved for head in own),
            )
        )
    return sorted(machines, key=_fleet_key)


def _gpus_by_machine(daily: DailyList | None) -> dict[str, dict[str, Any]]:
    """Count the GPUs of each machine by what the list says of them."""
    machines: dict[str, dict[str, Any]] = defaultdict(lambda: dict(_NO_GPUS))
    if daily is None or "machine_id" not in daily.table.column_names:
        return {}
    names = [
        name
        for name in ("machine_id", "flagged", "probability")
        if name in daily.table.column_names
    ]
    for row in daily.table.select(names).to_pylist():
        counts = machines[str(row["machine_id"] or "")]
        counts["gpus"] += 1
        counts["flagged"] += bool(row["flagged"])
        chance = as_number(row.get("probability"))
        if chance is not None:
            counts["probability"] = max(chance, counts["probability"] or 0.0)
    for row in daily.unscored:
        counts = machines[row.get("machine_id") or ""]
        reason = row.get("reason")
        counts["gpus"] += 1
        counts["failed"] += reason == "failed"
        counts["without_data"] += reason not in _EXPECTED_REASONS
    machines.pop("", None)
    return machines
