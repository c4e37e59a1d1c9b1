"""The repair case: a machine from its drain to its return, with the age of each stage."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds

__all__ = ["RepairCase", "RepairEvent", "RepairStage", "repair_cases"]


class RepairStage(StrEnum):
    """Stage that a case has reached, in the usual order.

    `DETECTED`: the first finding. `DRAINED`: no job is left. `EVIDENCE`: logs and diagnostics were
    saved. `TICKET`: the repair was ordered. `VENDOR`: the vendor has it. `SWAPPED`: a part was
    replaced. `ACCEPTED`: checks under load passed. `RETURNED`: in service again, which ends it.
    """

    DETECTED = "detected"
    DRAINED = "drained"
    EVIDENCE = "evidence"
    TICKET = "ticket"
    VENDOR = "vendor"
    SWAPPED = "swapped"
    ACCEPTED = "accepted"
    RETURNED = "returned"

    @property
    def rank(self) -> int:
        """Position in the usual order."""
        return _RANKS[self]


_RANKS = {stage: number for number, stage in enumerate(RepairStage)}
_NEEDED = (RepairStage.DRAINED, RepairStage.EVIDENCE, RepairStage.TICKET, RepairStage.ACCEPTED)


@dataclass(frozen=True, slots=True)
class RepairEvent:
    """One stage that a machine reached.

    Attributes
    ----------
    at : int
        Nanoseconds since 1970 UTC.
    machine : str
    stage : RepairStage
    incident : int
    gpu_serial, slot : str or None
        The GPU concerned, if known.
    who, detail : str
        Who recorded it, and a text such as the number of a ticket.
    """

    at: Nanoseconds
    machine: str
    stage: RepairStage
    incident: int
    gpu_serial: str | None = None
    slot: str | None = None
    who: str = "forewarn"
    detail: str = ""


@dataclass(frozen=True, slots=True)
class RepairCase:
    """A machine out of service, from the first event until its return.

    Attributes
    ----------
    machine : str
    events : tuple of RepairEvent
        Oldest first.
    """

    machine: str
    events: tuple[RepairEvent, ...]

    @property
    def number(self) -> int:
        """Number of the first incident, by which the case is named."""
        return self.events[0].incident

    @property
    def opened_at(self) -> Nanoseconds:
        """Time of the first event."""
        return self.events[0].at

    @property
    def incidents(self) -> tuple[int, ...]:
        """Incidents of the case, each once."""
        return tuple(dict.fromkeys(event.incident for event in self.events))

    @property
    def gpu_serials(self) -> tuple[str, ...]:
        """Serials that its events name."""
        return tuple(dict.fromkeys(e.gpu_serial for e in self.events if e.gpu_serial))

    @property
    def slots(self) -> tuple[str, ...]:
        """Slots that its events name."""
        return tuple(dict.fromkeys(e.slot for e in self.events if e.slot))

    @property
    def stages(self) -> Mapping[RepairStage, Nanoseconds]:
        """Time at which each stage was reached; the last time for what a failed check repeats."""
        first: dict[RepairStage, Nanoseconds] = {}
        for event in self.events:
            if event.stage.rank >= RepairStage.SWAPPED.rank:
                first[event.stage] = event.at
            else:
                first.setdefault(event.stage, event.at)
        return dict(sorted(first.items(), key=lambda item: item[0].rank))

    @property
    def returned_at(self) -> Nanoseconds | None:
        """When the machine was in service again; None while the case is open."""
        return self.stages.get(RepairStage.RETURNED)

    @property
    def stage(self) -> RepairStage:
        """The furthest stage that was reached."""
        return max(self.stages, key=lambda stage: stage.rank)

    def ages(self, now: Nanoseconds) -> dict[RepairStage, int]:
        """Return how long each reached stage lasted, in nanoseconds; the last one until `now`.

        A stage lasts until the next one in time. The return itself has no length.
        """
        times = sorted(self.stages.items(), key=lambda item: (item[1], item[0].rank))
        ends = [at for _, at in times[1:]] + [now]
        return {
            stage: max(0, end - at)
            for (stage, at), end in zip(times, ends, strict=True)
            if stage is not RepairStage.RETURNED
        }

    @property
    def missing(self) -> tuple[RepairStage, ...]:
        """Stages that a case should have reached by now, and that nothing records."""
        reached = self.stages
        return tuple(s for s in _NEEDED if s not in reached and s.rank < self.stage.rank)


def repair_cases(events: Iterable[RepairEvent]) -> list[RepairCase]:
    """Return the cases, oldest first.

    A case begins with the first event of a machine that has none open, and ends with its return.
    Incidents of a machine that is out of service belong to the case: they are one outage.
    """
    by_machine: dict[str, list[RepairEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda event: (event.at, event.stage.rank, event.incident)):
        by_machine[event.machine].append(event)
    cases = [case for name, rows in by_machine.items() for case in _cases(name, rows)]
    return sorted(cases, key=lambda case: (case.opened_at, case.machine))


def _cases(machine: str, events: Sequence[RepairEvent]) -> list[RepairCase]:
    cases: list[list[RepairEvent]] = []
    is_open = False
    for event in events:
        ends = event.stage is RepairStage.RETURNED
        if is_open:
            cases[-1].append(event)
        elif not ends:
            cases.append([event])
        is_open = (is_open or not ends) and not ends
    return [RepairCase(machine, tuple(rows)) for rows in cases]
