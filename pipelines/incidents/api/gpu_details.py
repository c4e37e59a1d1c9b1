"""Answers about one GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from forewarn.features.time_units import SECOND
from forewarn.pipelines.incidents.api.api_models import IncidentAnswer
from forewarn.pipelines.incidents.api.listed_gpus import ListedGpu, as_number, as_text
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.evidence.daily_lists import DailyList, DailyLists
from forewarn.response.state.incident import Incident

__all__ = ["Channel", "CodeEvent", "GpuAnswer"]

_HISTORY_LISTS: Final = 14  # lists in the history of a GPU
_MAX_INCIDENTS: Final = 50


class _Answer(BaseModel):
    model_config = ConfigDict(frozen=True)


class Channel(_Answer):
    """A channel of telemetry."""

    name: str
    title: str
    unit: str
    counted: bool = Field(description="A counter, added up from the first point.")
    levels: tuple[float | None, ...]


class Telemetry(_Answer):
    """Telemetry before a prediction, at equal steps."""

    start: int = Field(description="Of the first point, seconds since 1970 UTC.")
    step: int = Field(description="Seconds.")
    channels: tuple[Channel, ...]


class CodeEvent(_Answer):
    """An event of a code column, such as an Xid."""

    at: str
    name: str
    code: int


class ListedDay(_Answer):
    """A GPU on the list of a day."""

    date: str
    rank: int
    probability: float | None
    flagged: bool
    machine: str | None
    slot: str | None


class SlotUse(_Answer):
    """A GPU that was listed in a slot, from the first to the last of the lists that were read."""

    gpu_serial: str
    first: str
    last: str


class Sibling(_Answer):
    """Another GPU of the machine."""

    gpu_serial: str
    slot: str | None
    probability: float | None
    flagged: bool
    unscored: str = Field(description="Why it is not scored; empty if it is.")


class GpuAnswer(_Answer):
    """What is known of a GPU from the newest list, earlier lists and the ledger."""

    gpu_serial: str
    machine: str | None
    slot: str | None
    rack: str | None
    date: str | None = Field(description="Of the newest list; null if there is none.")
    listed: ListedGpu | None
    unscored: dict[str, str] | None = Field(description="Why it is not scored; null if it is.")
    telemetry: Telemetry | None = Field(description="Only of the GPUs with the highest risk.")
    events: tuple[CodeEvent, ...] = Field(description="Oldest first.")
    history: tuple[ListedDay, ...] = Field(description="Newest list first.")
    slot_history: tuple[SlotUse, ...] = Field(description="Other GPUs in this slot, newest first.")
    siblings: tuple[Sibling, ...]
    incidents: tuple[IncidentAnswer, ...] = Field(description="Of its machine, newest first.")

    @classmethod
    def read(cls, serial: str, lists: DailyLists, ledger: Ledger | None) -> Self | None:
        """Return what is known of a GPU; None if no list names it.

        Without a ledger there are no incidents.
        """
        days = list(lists.latest(_HISTORY_LISTS))
        rows = [(daily, row) for daily in days if (row := daily.row(serial)) is not None]
        newest = days[0] if days else None
        unscored = newest.unscored_row(serial) if newest else None
        if not rows and unscored is None:
            return None
        current = rows[0][1] if rows else {}
        listed = ListedGpu.from_row(current) if rows and rows[0][0] is newest else None
        machine = as_text(current.get("machine_id")) or (unscored or {}).get("machine_id") or None
        slot = as_text(current.get("slot"))
        extract = newest.extract(serial) if newest else {}
        return cls(
            gpu_serial=serial,
            machine=machine,
            slot=slot,
            rack=extract.get("rack") or (newest.racks.get(machine or "") if newest else None),
            date=newest.date if newest else None,
            listed=listed,
            unscored=None if unscored is None else _texts(unscored),
            telemetry=extract.get("telemetry"),
            events=_events(extract.get("events", ())),
            history=tuple(_listed_day(daily, row) for daily, row in rows),
            slot_history=_slot_uses(days, serial, machine, slot),
            siblings=_siblings(newest, machine, serial) if newest and machine else (),
            incidents=_incidents_of(ledger, machine, serial) if machine and ledger else (),
        )


def _texts(row: Mapping[str, object]) -> dict[str, str]:
    return {str(name): str(value) for name, value in row.items() if name and value}


def _events(rows: Iterable[Sequence[Any]]) -> tuple[CodeEvent, ...]:
    return tuple(
        CodeEvent(at=format_iso(int(at) * SECOND), name=str(name), code=int(code))
        for at, name, code in rows
    )


def _listed_day(daily: DailyList, row: Mapping[str, Any]) -> ListedDay:
    return ListedDay(
        date=daily.date,
        rank=row["rank"],
        probability=as_number(row.get("probability")),
        flagged=bool(row["flagged"]),
        machine=as_text(row.get("machine_id")),
        slot=as_text(row.get("slot")),
    )


def _slot_uses(
    days: Sequence[DailyList], serial: str, machine: str | None, slot: str | None
) -> tuple[SlotUse, ...]:
    """Return the other GPUs that were listed in a slot, newest first."""
    seen: dict[str, list[str]] = defaultdict(list)
    for daily in days if machine and slot else ():
        for row in daily.on_machine(machine or ""):
            if as_text(row.get("slot")) == slot and row["gpu_serial"] != serial:
                seen[str(row["gpu_serial"])].append(daily.date)
    uses = [SlotUse(gpu_serial=gpu, first=min(at), last=max(at)) for gpu, at in seen.items()]
    return tuple(sorted(uses, key=lambda use: use.last, reverse=True))


def _siblings(daily: DailyList, machine: str, serial: str) -> tuple[Sibling, ...]:
    scored = [
        Sibling(
            gpu_serial=str(row["gpu_serial"]),
            slot=as_text(row.get("slot")),
            probability=as_number(row.get("probability")),
            flagged=bool(row["flagged"]),
            unscored="",
        )
        for row in daily.on_machine(machine)
    ]
    others = [
        Sibling(
            gpu_serial=row["gpu_serial"],
            slot=None,
            probability=None,
            flagged=False,
            unscored=row.get("reason") or "unknown",
        )
        for row in daily.unscored
        if row.get("machine_id") == machine and row.get("gpu_serial")
    ]
    kin = [sibling for sibling in (*scored, *others) if sibling.gpu_serial != serial]
    return tuple(sorted(kin, key=lambda gpu: (gpu.slot is None, gpu.slot or "", gpu.gpu_serial)))


def _incidents_of(ledger: Ledger, machine: str, serial: str) -> tuple[IncidentAnswer, ...]:
    """Return the incidents of a machine that concern this GPU or the whole machine."""

    def concerns(incident: Incident) -> bool:
        return incident.gpu_serial in (None, serial)

    incidents = filter(concerns, ledger.incidents(machine=machine, limit=_MAX_INCIDENTS))
    return tuple(map(IncidentAnswer.from_incident, incidents))
