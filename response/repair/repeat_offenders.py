"""Repeat offenders: machines, slots and serials that fail again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.response.repair.repair_case import RepairCase, RepairStage

__all__ = ["OFFENCE_SPAN", "RepeatOffender", "offender_text", "repeat_offenders"]

OFFENCE_SPAN: Final = Nanoseconds(28 * DAY)
"""Span within which incidents count together."""

_MANY: Final = 3
_MANY_AFTER_RETURN: Final = 2


@dataclass(frozen=True, slots=True)
class RepeatOffender:
    """A machine, slot or serial that needs a board swap or a named approver to return.

    Attributes
    ----------
    kind : str
        `machine`, `slot` or `serial`.
    name : str
        A slot is `MACHINE slot SLOT`.
    cases : tuple of int
        Numbers of the cases that count.
    since : int
        Nanoseconds since 1970 UTC, when the last of them began.
    why : str
    """

    kind: str
    name: str
    cases: tuple[int, ...]
    since: Nanoseconds
    why: str


def repeat_offenders(cases: Iterable[RepairCase], now: Nanoseconds) -> list[RepeatOffender]:
    """Return the offenders: three independent incidents in 28 days, or two after a return.

    Incidents of one case are not independent. What happened before a part was swapped counts
    against the machine no more if the part was the cause, so a swap begins the count again for the
    machine and the slot; a serial carries its past along.

    Parameters
    ----------
    cases : iterable of RepairCase
    now : int
        Cases that began more than 28 days before do not count, and those that began later neither.
    """
    by_subject: dict[tuple[str, str], list[RepairCase]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.opened_at):
        if case.opened_at > now:
            continue
        by_subject["machine", case.machine].append(case)
        for slot in case.slots:
            by_subject["slot", f"{case.machine} slot {slot}"].append(case)
        for serial in case.gpu_serials:
            by_subject["serial", serial].append(case)
    offenders = [
        offender
        for (kind, name), rows in sorted(by_subject.items())
        if (offender := _offender(kind, name, rows, now)) is not None
    ]
    return sorted(offenders, key=lambda offender: (-offender.since, offender.kind, offender.name))


def _offender(
    kind: str, name: str, cases: Sequence[RepairCase], now: Nanoseconds
) -> RepeatOffender | None:
    swaps = [
        case.stages[RepairStage.SWAPPED]
        for case in cases
        if kind != "serial" and RepairStage.SWAPPED in case.stages
    ]
    since = max([now - OFFENCE_SPAN, *(at for at in swaps if at <= now)])
    recent = [case for case in cases if case.opened_at >= since]
    if len(recent) >= _MANY:
        counted, why = recent[-_MANY:], f"{len(recent)} independent incidents in 28 days"
    else:
        returns = [
            at
            for case in cases
            if (at := case.returned_at) is not None and now - OFFENCE_SPAN <= at <= now
        ]
        counted = [case for case in recent if returns and case.opened_at >= min(returns)]
        if len(counted) < _MANY_AFTER_RETURN:
            return None
        why = f"{len(counted)} independent incidents after a return"
    return RepeatOffender(
        kind, name, tuple(case.number for case in counted), counted[-1].opened_at, why
    )


def offender_text(machine: str, cases: Iterable[RepairCase], now: Nanoseconds) -> str | None:
    """Return why a machine may not return by itself; None if it may.

    Its own cases count, and those of its slots and serials. A board that was swapped is not in it
    any more.
    """
    own = [case for case in cases if case.machine == machine]
    is_swapped = bool(own) and RepairStage.SWAPPED in own[-1].stages
    serials = set() if is_swapped or not own else set(own[-1].gpu_serials)
    for offender in repeat_offenders(own, now):
        if offender.kind != "serial" or offender.name in serials:
            return f"{offender.kind} {offender.name}: {offender.why}"
    return None
