"""Acceptance: whether a machine may work, from the judged results of its required checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forewarn.features.inspection.check_table import CheckCategory, CheckTable
from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.response.inspection.inspection_plan import NEIGHBOURS

__all__ = [
    "BURN_IN",
    "Acceptance",
    "AcceptanceState",
    "JudgedCheck",
    "Occasion",
    "decide_acceptance",
    "required_checks",
]


class AcceptanceState(StrEnum):
    """Result of an acceptance; what did not run is never passed."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"


class Occasion(StrEnum):
    """Why a machine is accepted, which decides for how long it is tested under load."""

    NEW = "new"
    BOARD_SWAP = "board-swap"
    RESET = "reset"
    REPAIR = "repair"


BURN_IN: Final[Mapping[Occasion, Nanoseconds]] = {
    Occasion.NEW: Nanoseconds(48 * HOUR),
    Occasion.BOARD_SWAP: Nanoseconds(4 * HOUR),
    Occasion.RESET: Nanoseconds(1 * HOUR),
}
"""Required time under load; 48 h after every repair would cost half of a fleet's budget."""

_BAD_STATES: Final = frozenset({"failed", "defective"})
_UNDECIDED: Final = frozenset({"suspect"})
_ABSENT: Final = frozenset({"not_run", "blind"})


@dataclass(frozen=True, slots=True)
class JudgedCheck:
    """A check on the machine or one of its parts, and how it was judged."""

    check: str
    slot: str
    state: str


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The decision, and each reason why it is not `passed`."""

    state: AcceptanceState
    reasons: tuple[str, ...]


def required_checks(
    checks: Mapping[str, CheckTable], category: CheckCategory | None
) -> dict[str, CheckTable]:
    """Return the checks without which the acceptance is incomplete.

    Parameters
    ----------
    checks : mapping of str to CheckTable
    category : str or None
        Repaired category: its checks and those of its neighbours. None: all.
    """
    near = () if category is None else (category, *NEIGHBOURS[category])
    return {
        name: check
        for name, check in checks.items()
        if check.required
        and {"accept", "quick"} & set(check.when)
        and (not near or check.category in near)
    }


def decide_acceptance(
    judged: Sequence[JudgedCheck],
    required: Mapping[str, CheckTable],
    *,
    burn_in: Nanoseconds,
    needed: Nanoseconds,
) -> Acceptance:
    """Decide from all judged checks of a machine.

    Any bad check fails it, required or not, unless its level is only a note. A check that is beyond
    a learned criterion for the first time needs a second run, and one that did not run has to.

    Parameters
    ----------
    judged : sequence of JudgedCheck
    required : mapping of str to CheckTable
        Of `required_checks`.
    burn_in, needed : int
        Nanoseconds under load, and those required.
    """
    failures = [row for row in judged if row.state in _BAD_STATES]
    if failures:
        return Acceptance(AcceptanceState.FAILED, tuple(map(_text, failures)))
    reasons = [f"{_text(row)}: a second run decides" for row in judged if row.state in _UNDECIDED]
    seen = {row.check for row in judged}
    reasons += [
        f"{_text(row)}: did not run, and is required"
        for row in judged
        if row.state in _ABSENT and row.check in required
    ]
    reasons += [f"{name}: no result, and is required" for name in required if name not in seen]
    if burn_in < needed:
        reasons.append(
            f"burn-in: {burn_in / HOUR:.1f} h without a failure, required {needed / HOUR:.0f} h"
        )
    state = AcceptanceState.INCOMPLETE if reasons else AcceptanceState.PASSED
    return Acceptance(state, tuple(reasons))


def _text(row: JudgedCheck) -> str:
    return f"{row.check}{f' {row.slot}' if row.slot else ''} {row.state}"
