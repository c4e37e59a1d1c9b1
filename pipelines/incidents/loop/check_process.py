"""Site check in a separate process, which writes its result into the ledger.

The process outlives the one that started it, therefore `--once` does not wait for it.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger_entries import CHECK_FAILED, CHECK_PASSED
from forewarn.pipelines.incidents.loop.detached_process import (
    AwaitedCommand,
    record_awaited,
    run_detached,
    start_detached,
)
from forewarn.pipelines.incidents.loop.site_check import CheckResult, CheckState, SiteCheck

if TYPE_CHECKING:  # imported after the check has ended, to keep the waiting process small
    from forewarn.pipelines.incidents.ledger.ledger import Ledger
    from forewarn.response.state.action import Action
    from forewarn.response.state.finding import Finding

__all__ = ["record_result", "start_check"]

_UNKNOWN: Final = "check unknown"


def start_check(job: AwaitedCommand) -> None:
    """Start a check without waiting for it.

    Raises
    ------
    OSError
        If the process cannot be started.
    """
    start_detached(__name__, asdict(job), f"the check of {job.machine}")


def record_result(
    ledger: Ledger, job: AwaitedCommand, result: CheckResult, now: Nanoseconds
) -> None:
    """Record the result of a check, if the action still waits for it.

    A failed check is recorded as a finding as well. An unknown result proves nothing; the loop
    repeats the check.
    """
    if result.state is CheckState.UNKNOWN:
        verdict = _UNKNOWN
    else:
        verdict = CHECK_PASSED if result.passed else CHECK_FAILED

    def record(action: Action) -> Action | None:
        if verdict == CHECK_FAILED:  # first, because a recorded change is not repeated
            findings = ledger.new_findings([_finding(job, action, result, now)])
            ledger.record_findings(findings, now=now)
        detail = f"{verdict}: {result.detail}"
        return ledger.advance(action, action.state, now=now, detail=detail)

    record_awaited(lambda: _awaiting_action(ledger, job), record)


def _awaiting_action(ledger: Ledger, job: AwaitedCommand) -> Action | None:
    """Return the action if it still waits for this check."""
    from forewarn.response.state.action import ActionState

    action = ledger.action(job.action)
    changes = [c for c in ledger.action_states(job.action) if c.detail.startswith("check ")]
    if action is None or action.state is not ActionState.DRAINED:
        return None
    return action if changes and changes[-1].version == job.version else None


def _finding(job: AwaitedCommand, action: Action, result: CheckResult, now: Nanoseconds) -> Finding:
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


def _run(job: AwaitedCommand) -> None:
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
    run_detached(lambda job: _run(AwaitedCommand(**job)))
