"""What ended an attempt of a launched job, as the diagnosis of its logs and its processes tell."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.models.diagnosis.verdict.job_verdict import Diagnosis
from forewarn.pipelines.diagnosis.diagnose_job import DiagnosedJob, diagnose
from forewarn.pipelines.recovery.crash_evidence import crash_by_verdict
from forewarn.pipelines.recovery.launched_attempt import HostEnd
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.policy.policy import Policy
from forewarn.response.recovery.job_crash import FaultOrigin

__all__ = ["AttemptVerdict", "append_diagnosis", "crash_verdict", "diagnosed", "named_machine"]


@dataclass(frozen=True, slots=True)
class AttemptVerdict:
    """Cause of the end of an attempt.

    Attributes
    ----------
    origin : FaultOrigin
    cause : str
    machine : str
        Empty if no single machine is the cause.
    """

    origin: FaultOrigin
    cause: str
    machine: str = ""


def diagnosed(folder: Path, at: int) -> DiagnosedJob | None:
    """Return the diagnosis of an attempt; None, with a note, if its folder cannot be read."""
    try:
        return diagnose(folder, at=at)
    except (InputError, OSError) as error:
        note(f"{folder.name}: {error}")
        return None


def append_diagnosis(path: Path, job: str, diagnosis: DiagnosedJob, at: int) -> None:
    """Append a diagnosis, made at a time, to a file that `[respond] diagnoses` reads."""
    moment = format_iso(at)
    line: dict[str, Any] = diagnosis.line() | {"job": job, "at": moment, "detected_at": moment}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def named_machine(verdict: Diagnosis, machines: Sequence[str]) -> str:
    """Return the machine of all culprits of a verdict; empty unless it is one of the job's."""
    named = {culprit.machine for culprit in verdict.culprits}
    return named.pop() or "" if len(named) == 1 and named <= {*machines} else ""


def crash_verdict(
    verdict: Diagnosis | None,
    ends: Sequence[HostEnd],
    machines: Sequence[str],
    silence: str,
    policy: Policy | None = None,
) -> AttemptVerdict:
    """Return what ended an attempt.

    Parameters
    ----------
    verdict : Diagnosis or None
    ends : sequence of HostEnd
        Hosts whose processes ended by themselves, in order of time.
    machines : sequence of str
        Of the attempt.
    silence : str
        Cause if nothing else is known, of an attempt that was stopped for it; else empty.
    policy : Policy, optional
        Levels of Xids.
    """
    lost = [end.host for end in ends if end.code is None]
    if len(lost) == 1:
        cause = "it does not answer, or its processes were ended from outside"
        return AttemptVerdict(FaultOrigin.EXPLICIT, cause, lost[0])
    killed = [end for end in ends if end.code is not None and end.code < 0]
    if len(killed) == 1:
        cause = f"torchrun was ended by signal {-(killed[0].code or 0)}"
        return AttemptVerdict(FaultOrigin.IMPLICIT, cause, killed[0].host)
    crash = None if verdict is None else crash_by_verdict(verdict, Nanoseconds(0), policy=policy)
    if verdict is None or crash is None:
        failed = [f"exit code {end.code} on {end.host}" for end in ends if end.code]
        return AttemptVerdict(FaultOrigin.NOT_ONE, silence or ", ".join(failed[:1]))
    cause = crash.cause or silence or verdict.kind
    if crash.machine is None or crash.machine not in machines:
        return AttemptVerdict(FaultOrigin.NOT_ONE, cause)
    return AttemptVerdict(crash.origin, cause, crash.machine)
