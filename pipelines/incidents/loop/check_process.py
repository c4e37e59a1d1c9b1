"""Site check in a separate process, which writes its result into the ledger.

The process outlives the one that started it, therefore `--once` does not wait for it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.loop.detached_process import run_detached, start_detached
from forewarn.pipelines.incidents.loop.site_check import CheckResult, CheckState, SiteCheck

if TYPE_CHECKING:  # imported after the check has ended, to keep the waiting process small
    from forewarn.pipelines.incidents.ledger.ledger import Ledger
    from forewarn.response.state.action import Action
    from forewarn.response.state.finding import Finding

__all__ = ["BEGUN", "FAILED", "PASSED", "CheckJob", "record_result", "start_check"]

BEGUN: Final = "check begun"
PASSED: Final = "check passed"
FAILED: Final = "check failed"
_UNKNOWN: Final = "check unknown"
_MAX_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class CheckJob:
    """A check that the ledger records as started.

    Attributes
    ----------
    ledger : str
        Address of the ledger, without a password.
    command : tuple of str
    timeout : float
        Seconds.
    machine : str
    action, version : int
        The action, and its version that records the start; a later start replaces this one.
    begun_at : int
        Nanoseconds since 1970 UTC, by the clock of the loop.
    """

    ledger: str
    command: tuple[str, ...]
    timeout: float
    machine: str
    action: int
    version: int
    begun_at: Nanoseconds


def start_check(job: CheckJob) -> None:
    """Start a check without waiting for it.

    Raises
    ------
    OSError
        If the process cannot be started.
    """
    start_detached(__name__, asdict(job), f"the check of {job.machine}")


def record_result(ledger: Ledger, job: CheckJob, result: CheckResult, now: Nanoseconds) -> None:
    """Record the result of a check, if the action still waits for it.

    A failed check is recorded as a finding as well. An unknown result proves nothing; the loop
    repeats the check.
    """
    for _ in range(_MAX_ATTEMPTS):  # the loop may change the action at the same time
        action = _awaiting_action(ledger, job)
        if action is None:
            return
        if result.state is CheckState.UNKNOWN:
            verdict = _UNKNOWN
        else:
            verdict = PASSED if result.passed else FAILED
        if verdict == FAILED:  # first, because a recorded change is not repeated
            ledger.record_findings(
                ledger.new_findings([_finding(job, action, result, now)]), now=now
            )
        detail = f"{verdict}: {result.detail}"
        if ledger.advance(action, action.state, now=now, detail=detail) is not None:
            return


def _awaiting_action(ledger: Ledger, job: CheckJob) -> Action | None:
    """Return the action if it still waits for this check."""
    from forewarn.response.state.action import ActionState

    action = ledger.action(job.action)
    changes = [c for c in ledger.action_states(job.action) if c.detail.startswith("check ")]
    if action is None or action.state is not ActionState.DRAINED:
        return None
    return action if changes and changes[-1].version == job.version else None


def _finding(job: CheckJob, action: Action, result: CheckResult, now: Nanoseconds) -> Finding:
    from forewarn.response.state.finding import Finding, FindingKind, Severity

    return Finding(
        source="check",
        id=f"{job.machine} action {job.action} version {job.version}",
        kind=FindingKind.CHECK,
        cause="failed check",
        machine=job.machine,
        gpu_serial=action.gpu_serial,
        at=now,
        valid_until=Nanoseconds(now + 7 * DAY),
        severity=Severity.ERROR,
        evidence={"state": result.state.name.lower(), "detail": result.detail},
    )


def _run(job: CheckJob) -> None:
    """Run the check and record its result; without a ledger, the loop checks again later."""
    started = time.monotonic_ns()
    check = SiteCheck(tuple(job.command), job.timeout)
    reservation = f"forewarn-{job.action}"
    result = check.run(job.machine, action=job.action, reservation=reservation)
    from forewarn.pipelines.incidents.ledger.database import OpenMode
    from forewarn.pipelines.incidents.ledger.ledger import Ledger

    now = Nanoseconds(job.begun_at + time.monotonic_ns() - started)
    with suppress(InputError), Ledger.open(job.ledger, opening=OpenMode.EXISTING) as ledger:
        record_result(ledger, job, result, now)


if __name__ == "__main__":
    run_detached(lambda job: _run(CheckJob(**job)))
