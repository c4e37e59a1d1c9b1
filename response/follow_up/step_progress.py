"""Progress of a step that is carried out on a drained machine, and what happens next."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.response.follow_up.release import CheckVerdict
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.site_step import DEFAULT_TIMEOUTS, REMEDIES, SiteStep
from forewarn.response.state.step import Step

__all__ = [
    "StepChange",
    "StepEvent",
    "StepProgress",
    "next_change",
    "parse_change",
    "succeeded_at",
]

_REPORT_SPAN: Final = Nanoseconds(5 * MINUTE)
"""How long after its time-out a command may still report its result."""

_DETAIL: Final = re.compile(
    r"(reset|restart|replace) (begun|succeeded|failed|unknown|handed over): (.*)"
)


class StepEvent(StrEnum):
    """What happened to a step.

    `BEGUN` is written before its command starts, therefore no command runs twice. `UNKNOWN`: no
    result was recorded. `HANDED_OVER`: a person was asked to continue.
    """

    BEGUN = "begun"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    HANDED_OVER = "handed over"


@dataclass(frozen=True, slots=True)
class StepChange:
    """One event of a step; `at` is in nanoseconds since 1970 UTC.

    `version` is that of the action when it was written; -1 before.
    """

    step: Step
    event: StepEvent
    detail: str
    at: Nanoseconds
    version: int = -1

    @property
    def text(self) -> str:
        """Return it as the ledger stores it."""
        return f"{self.step} {self.event}: {self.detail}"


@dataclass(frozen=True, slots=True)
class StepProgress:
    """An action, and what is known of the step for which it drained a machine.

    Attributes
    ----------
    action : Action
    changes : sequence of StepChange
        Oldest first.
    check : CheckVerdict or None
        Last check of the machine.
    commands : mapping of Step to SiteStep
        Of the pool.
    may_replace : bool
        Whether the pool or a person permits `replace`.
    """

    action: Action
    changes: Sequence[StepChange]
    check: CheckVerdict | None
    commands: Mapping[Step, SiteStep]
    may_replace: bool

    @property
    def last(self) -> StepChange | None:
        """Return the last event other than that a person was asked."""
        events = [change for change in self.changes if change.event is not StepEvent.HANDED_OVER]
        return events[-1] if events else None

    @property
    def check_failed(self) -> bool:
        """Tell whether the machine failed its check after a step that succeeded."""
        since = succeeded_at(self.changes)
        check = self.check
        return since is not None and check is not None and check.at >= since and not check.passed


def parse_change(detail: str, at: Nanoseconds, version: int) -> StepChange | None:
    """Return the event that a row of the ledger records; None if it is about something else."""
    match = _DETAIL.fullmatch(detail.partition("\n")[0])
    if match is None:
        return None
    return StepChange(Step(match[1]), StepEvent(match[2]), match[3], at, version)


def succeeded_at(changes: Sequence[StepChange]) -> Nanoseconds | None:
    """Return when the last step succeeded; None if the last one has not."""
    results = [change for change in changes if change.event is not StepEvent.HANDED_OVER]
    return results[-1].at if results and results[-1].event is StepEvent.SUCCEEDED else None


def next_change(
    progress: StepProgress, harder: Callable[[Step], Step | None], *, now: Nanoseconds
) -> StepChange | None:
    """Return what happens next to a step: its command begins, is lost, or a person is asked.

    Parameters
    ----------
    progress : StepProgress
    harder : callable
        The escalation of the policy: the next step after one that failed; None: a person decides.
    now : int
        Nanoseconds since 1970 UTC.

    Returns
    -------
    StepChange or None
        None while something else is awaited: jobs, a result, a check, or the person.
    """
    action, last = progress.action, progress.last
    is_drained = action.state in (ActionState.HOLDING, ActionState.DRAINED)
    if action.step not in REMEDIES or not is_drained:
        return None
    if last is None:
        return _begin(progress, action.step, now)
    match last.event:
        case StepEvent.BEGUN:
            return _lost(progress, last, now)
        case StepEvent.UNKNOWN:
            words = f"a person must find out whether the {last.step} of {action.machine} was done"
            return _ask(progress, last.step, words, now)
        case StepEvent.SUCCEEDED if not progress.check_failed:
            return None
        case _:
            return _escalate(progress, last, harder(last.step), now)


def _escalate(
    progress: StepProgress, failed: StepChange, step: Step | None, now: Nanoseconds
) -> StepChange | None:
    """Begin the next harder step, or ask a person if there is none."""
    if step is not None:
        return _begin(progress, step, now)
    why = "the check failed after it" if progress.check_failed else failed.detail
    machine = progress.action.machine
    words = f"a person must look at {machine}: {failed.step} had no effect ({why})"
    return _ask(progress, failed.step, words, now)


def _begin(progress: StepProgress, step: Step, now: Nanoseconds) -> StepChange | None:
    """Begin a step for the first time; without command or permission a person is asked."""
    action, command = progress.action, progress.commands.get(step)
    is_waiting = action.state is not ActionState.DRAINED
    gpu = f"GPU {action.gpu_serial} of " if action.gpu_serial and step is not Step.RESTART else ""
    if command is None:
        words = f"a person must {step} {gpu}{action.machine}"
        return None if is_waiting else _ask(progress, step, words, now)
    if command.needs_idle and is_waiting:
        return None
    if step is Step.REPLACE and not progress.may_replace:
        words = f"a person must approve to {step} {gpu}{action.machine}"
        return _ask(progress, step, words, now)
    if any(c.step is step and c.event is StepEvent.BEGUN for c in progress.changes):
        words = f"a person must look at {action.machine}: {step} was carried out before"
        return _ask(progress, step, words, now)
    by = next(iter(command.command), "by the scheduler")
    return StepChange(step, StepEvent.BEGUN, by, now)


def _lost(progress: StepProgress, begun: StepChange, now: Nanoseconds) -> StepChange | None:
    """Return that the result of a command is lost, once it is overdue."""
    command = progress.commands.get(begun.step)
    timeout = command.timeout if command else DEFAULT_TIMEOUTS[begun.step]
    if now < begun.at + timeout + _REPORT_SPAN:
        return None
    return StepChange(begun.step, StepEvent.UNKNOWN, "no result was recorded", now)


def _ask(progress: StepProgress, step: Step, words: str, now: Nanoseconds) -> StepChange | None:
    """Ask a person, unless that was asked already."""
    if progress.changes and progress.changes[-1].detail == words:
        return None
    return StepChange(step, StepEvent.HANDED_OVER, words, now)
