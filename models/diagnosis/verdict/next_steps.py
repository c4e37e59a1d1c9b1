"""Next steps: what a person should do about a verdict on a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import CulpritCandidate, Diagnosis
from forewarn.models.diagnosis.verdict.restart_point import RestartPoint

__all__ = ["next_steps"]

_MAX_LINE_CHARS = 160
_DECISIVE_PARTS: Final = {"logs": "logs", "stacks": "stacks", "flight": "flight recorder dumps"}
_WAIT = "Do not cancel the job yet; diagnose it again once the time in the cause has passed."
_COLLECT = "`forewarn diagnose collect` saves them while a job runs"


def next_steps(verdict: Diagnosis) -> tuple[str, ...]:
    """Return what to do next, as sentences in order; empty if nothing is wrong.

    Machines are named only if they are culprits. A machine is to be replaced only if the job lost
    it or its fault needs a repair, never for an error of the program.

    Parameters
    ----------
    verdict : Diagnosis
    """
    if verdict.kind == "none":
        return () if verdict.since is None else (_WAIT,)
    if verdict.kind == "unknown":
        return tuple(_unknown_steps(verdict))
    if verdict.kind == "ended":
        return tuple(_ended_steps(verdict))
    if verdict.kind in ("slow", "jitter"):
        return tuple(_delay_steps(verdict))
    return tuple(_failure_steps(verdict))


def _unknown_steps(verdict: Diagnosis) -> Iterator[str]:
    if verdict.fault is not None:
        yield _sentence(verdict.fault.action)
        return
    missing = _missing_parts(verdict) or "a log that shows steps"
    yield f"Add {missing}, then diagnose the job again; {_COLLECT}."


def _ended_steps(verdict: Diagnosis) -> Iterator[str]:
    if verdict.fault is not None:
        yield _sentence(verdict.fault.action)
    yield f"Submit the job again {_continuation(verdict.restart)}."


def _delay_steps(verdict: Diagnosis) -> Iterator[str]:
    for culprit in verdict.culprits:
        fault = culprit.fault
        if fault is not None and not fault.needs_repair:
            yield _fault_step(culprit, fault)
            continue
        yield f"Drain {_machine(culprit)} at the next checkpoint: it delays the other ranks."
        yield _return_step(culprit)
    if not verdict.culprits:
        fault = _job_fault(verdict)
        yield _job_step(fault) if fault is not None else _undecided_step(verdict)


def _failure_steps(verdict: Diagnosis) -> Iterator[str]:
    """Yield the steps for a hang or a crash."""
    replaced = [culprit for culprit in verdict.culprits if _is_replaced(culprit, verdict)]
    others = [culprit for culprit in verdict.culprits if culprit not in replaced]
    for culprit in others:
        if culprit.fault is not None:
            yield _fault_step(culprit, culprit.fault)
    unexplained = [culprit for culprit in others if culprit.fault is None]
    if unexplained:
        yield from _search_steps(unexplained, verdict)
    if not verdict.culprits:
        fault = _job_fault(verdict)
        yield _job_step(fault) if fault is not None else _undecided_step(verdict)
    onwards = f"restart {_continuation(verdict.restart)}"
    if replaced:
        yield f"Replace {_machines(replaced)}, then {onwards}."
        yield from dict.fromkeys(_return_step(culprit) for culprit in replaced)
    else:
        yield f"{'Cancel the job, then' if verdict.kind == 'hang' else 'Then'} {onwards}."


def _is_replaced(culprit: CulpritCandidate, verdict: Diagnosis) -> bool:
    """Return whether the machine is at fault as far as the evidence says.

    A machine that a job lost is. Ranks that others wait for may do what the program says, even if
    all of them are on one machine.
    """
    if culprit.fault is None:
        return culprit.rank is None and verdict.kind == "crash"
    return culprit.fault.needs_repair


def _search_steps(culprits: Sequence[CulpritCandidate], verdict: Diagnosis) -> Iterator[str]:
    """Yield the steps for ranks that are culprits for an unknown reason."""
    who = _listing([_who(culprit) for culprit in culprits])
    frames = [f"{_who(c)} is in {f}" for c in culprits if (f := _innermost_frame(c, verdict))]
    if verdict.kind == "crash":
        yield f"Find out what {who} did last: read the logs, and the kernel logs of the machines."
    elif frames:
        yield f"Find out why {_listing(frames)} while the others wait."
    else:
        yield f"Take stacks of {who}, if the job still runs: they show what blocks."
    yield f"If the program does not explain it, replace {_machines(culprits)}."


def _fault_step(culprit: CulpritCandidate, fault: Fault) -> str:
    """Return the action for a fault that no repair of the machine ends."""
    if fault.scope != "application":
        where = f"on {culprit.machine}" if culprit.rank is None else _who(culprit)
        return f"{_capitalised(where)}: {fault.action}."
    if not fault.line:
        return _sentence(fault.action)
    subject = "the program" if culprit.rank is None else f"rank {culprit.rank}"
    return f"Fix the error of {subject}: {_shortened(fault.line)}; {fault.action}."


def _job_fault(verdict: Diagnosis) -> Fault | None:
    """Return the fault of a job without a culprit: its own, or the program's on all candidates."""
    faults = [candidate.fault for candidate in verdict.also]
    if verdict.fault is not None or not faults:
        return verdict.fault
    is_program = all(fault is not None and fault.scope == "application" for fault in faults)
    return faults[0] if is_program else None


def _job_step(fault: Fault) -> str:
    if not fault.line:
        return _sentence(fault.action)
    verb = "Fix the error of the program" if fault.scope == "application" else "Solve this error"
    return f"{verb}: {_shortened(fault.line)}; {fault.action}."


def _undecided_step(verdict: Diagnosis) -> str:
    missing = _missing_parts(verdict)
    if not missing:
        return "Compare the candidates, and test their machines with `forewarn diagnose nodes`."
    when = "before you cancel the job" if verdict.kind == "hang" else "the next time"
    return f"Add {missing} {when}: they may decide; {_COLLECT}."


def _return_step(culprit: CulpritCandidate) -> str:
    action = "test it with `forewarn diagnose nodes`"
    if culprit.fault is not None:
        action = culprit.fault.action
    return f"Before {_machine(culprit)} runs jobs again: {action}."


def _continuation(restart: RestartPoint | None) -> str:
    if restart is None:
        return "from the last checkpoint"
    if restart.is_saved:
        return f"from step {restart.step:,}, the last checkpoint"
    return f"from the last checkpoint (the last step seen is {restart.step:,})"


def _missing_parts(verdict: Diagnosis) -> str:
    return _listing([text for name, text in _DECISIVE_PARTS.items() if name in verdict.blind])


def _listing(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def _innermost_frame(culprit: CulpritCandidate, verdict: Diagnosis) -> str | None:
    for item in verdict.evidence:
        frames = item.details.get("frames")
        if item.part == "stacks" and item.rank == culprit.rank and isinstance(frames, list):
            return str(frames[0])
    return None


def _who(culprit: CulpritCandidate) -> str:
    if culprit.rank is None:
        return f"the ranks on {culprit.machine}"
    return f"rank {culprit.rank}" + (f" on {culprit.machine}" if culprit.machine else "")


def _machines(culprits: Sequence[CulpritCandidate]) -> str:
    return _listing(list(dict.fromkeys(_machine(culprit) for culprit in culprits)))


def _machine(culprit: CulpritCandidate) -> str:
    return culprit.machine or f"the machine of rank {culprit.rank}"


def _shortened(line: str) -> str:
    text = line.rstrip(" .;:")
    return text if len(text) <= _MAX_LINE_CHARS else text[: _MAX_LINE_CHARS - 3].rstrip() + "..."


def _sentence(action: str) -> str:
    return f"{_capitalised(action)}."


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]
