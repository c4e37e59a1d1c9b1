"""`none` needs progress that was seen; otherwise the answer is `unknown`."""

from __future__ import annotations

import pytest

from forewarn.features.diagnosis.ranks import Rank, Ranks
from forewarn.features.time_units import MINUTE
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import WEAK, CulpritCandidate, JobFinding
from forewarn.models.diagnosis.verdict.probe import Probe
from forewarn.models.diagnosis.verdict.progress_seen import SeenParts, unknown_without_progress
from forewarn.models.diagnosis.verdict_fusion import fuse_findings

RANKS = Ranks({0: Rank(0), 1: Rank(1)})
AT = 30 * MINUTE
MOVING = Probe("collective", "active", None, "moves")
STALLED = Probe("log", "idle", AT - 11 * MINUTE, "no line for 11 minutes")
PAUSED = Probe("log", "idle", AT - 9 * MINUTE, "no line for 9 minutes")
WAITS = JobFinding("hang", "rank 1 is missing", (CulpritCandidate(1, "is missing", WEAK),))


def answer(
    probes: list[Probe],
    findings: list[JobFinding],
    *,
    is_progressing: bool = False,
    has_logs: bool = True,
    has_dumps: bool = False,
    is_dated: bool = True,
    error: str | None = None,
    known: Fault | None = None,
) -> tuple[str, str | None]:
    seen = SeenParts(is_progressing, error, has_logs, has_dumps, is_dated, known_error=known)
    verdict = fuse_findings(findings, probes, (), ranks=RANKS, at=AT)
    judged = unknown_without_progress(verdict, findings, seen, AT)
    return judged.kind, judged.cause


def test_logs_without_steps_leave_it_unknown() -> None:
    kind, cause = answer([], [])
    assert kind == "unknown"
    assert cause is not None
    assert "no line shows" in cause


def test_missing_logs_are_said() -> None:
    assert answer([], [], has_logs=False) == (
        "unknown",
        "there is no log of a rank that shows progress",
    )


@pytest.mark.parametrize(("probes", "is_progressing"), [([MOVING], False), ([], True)])
def test_seen_progress_is_none(probes: list[Probe], is_progressing: bool) -> None:
    assert answer(probes, [], is_progressing=is_progressing)[0] == "none"


@pytest.mark.parametrize(("idle", "kind"), [(STALLED, "unknown"), (PAUSED, "none")])
def test_long_stall_contradicts_progress(idle: Probe, kind: str) -> None:
    assert answer([MOVING, idle], [], is_progressing=True)[0] == kind


@pytest.mark.parametrize(("is_dated", "kind"), [(False, "unknown"), (True, "none")])
def test_waiting_ranks_of_undated_dumps(is_dated: bool, kind: str) -> None:
    found = answer([MOVING], [WAITS], is_progressing=True, has_dumps=True, is_dated=is_dated)
    assert found[0] == kind


def test_unknown_error_after_the_last_step_is_not_none() -> None:
    kind, cause = answer([MOVING], [], is_progressing=True, error="[E] watchdog got stuck")
    assert kind == "unknown"
    assert cause is not None
    assert cause.endswith(": [E] watchdog got stuck")


@pytest.mark.parametrize("is_progressing", [False, True])
def test_error_that_jobs_survive_is_told_where_no_progress_is_seen(is_progressing: bool) -> None:
    fault = Fault("platform", "check the firewall", "connection refused")
    kind, cause = answer([], [], is_progressing=is_progressing, known=fault)
    assert kind == ("none" if is_progressing else "unknown")
    assert is_progressing or (cause is not None and cause.endswith(": connection refused"))


def test_another_kind_stays_as_it_is() -> None:
    assert answer([], [JobFinding("crash", "an assert failed")]) == ("crash", "an assert failed")
