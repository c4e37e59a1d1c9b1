"""Root cause of a crash: which rank failed on its own, and which ranks failed as a consequence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.crash.machine_symptoms import MachineSymptom, machine_candidates
from forewarn.models.diagnosis.crash.rank_exit import RankExit, Symptom
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    WEAK,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = ["find_root_cause"]

_TIME_UNCERTAINTY = 2 * SECOND  # times in error files are whole seconds
_SIGKILL_GRACE = 15 * SECOND  # a launcher waits 30 s between SIGTERM and SIGKILL
_SAME_ERROR_WINDOW = MINUTE
_MIN_RANKS_WITH_SAME_ERROR = 3
MaskFunction = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _RanksByRole:
    """Ranks by the kind of their decisive symptom."""

    roots: Mapping[int, Symptom]
    waited: Mapping[int, Symptom]
    silent: tuple[int, ...]


def find_root_cause(
    ends: Sequence[RankExit],
    *,
    machine_symptoms: Sequence[MachineSymptom] = (),
    masked: MaskFunction = str,
) -> JobFinding | None:
    """Return the rank that failed first, or None if there is no sign of a crash.

    A rank that ended on request (-15) is never the root cause. Neither is a rank that SIGKILL ended
    15 s or more after another rank failed, because launchers clean up that way. Ranks that waited
    for a peer or lost it are consequences. If all other ranks waited, the rank without an error is
    the root cause.

    Parameters
    ----------
    ends : sequence of RankExit
        All ranks of the job in its last attempt, on a common clock.
    machine_symptoms : sequence of MachineSymptom
        Symptoms of machines and GPUs from kernel logs and records.
    masked : callable
        Converts an error message to its template, so that messages can be compared.
    """
    if not any(end.symptoms or end.exit_code for end in ends):
        return None
    split = _split_by_role(ends)
    moment = _first_time(ends, split)
    hardware = machine_candidates(machine_symptoms, ends, moment)
    if _is_program_error(split, ends, masked) and not hardware:
        return _program_error(split)
    candidates = [*hardware, *_root_candidates(split, hardware, ends)]
    if not candidates:
        candidates = _silent_candidates(split, ends)
    leader = candidates[0] if candidates else None
    return JobFinding(
        "crash",
        _cause(leader, split),
        tuple(candidates),
        waiting=frozenset(split.waited) - {candidate.rank for candidate in candidates},
        evidence=tuple(_evidence(ends, split, machine_symptoms, moment)),
        after_hang=not (hardware or split.roots),
    )


def _split_by_role(ends: Sequence[RankExit]) -> _RanksByRole:
    roots: dict[int, Symptom] = {}
    waited: dict[int, Symptom] = {}
    silent: list[int] = []
    first = min((t for t in (_failed_at(end) for end in ends) if t is not None), default=None)
    for end in ends:
        symptom = end.decisive
        if symptom is None or _is_killed_by_launcher(end, symptom, first):
            silent.append(end.rank)
        else:
            (roots if symptom.role == "root" else waited)[end.rank] = symptom
    return _RanksByRole(roots, waited, tuple(silent))


def _failed_at(end: RankExit) -> int | None:
    symptom = end.decisive
    if symptom is None:
        return None if end.exit_code in (None, 0, -15) else end.exit_time
    return symptom.time


def _is_killed_by_launcher(end: RankExit, symptom: Symptom, first: int | None) -> bool:
    """Return whether a launcher killed a rank that ignored SIGTERM."""
    is_killed = symptom.source == "exits" and end.exit_code == -9
    return (
        is_killed
        and first is not None
        and symptom.time is not None
        and symptom.time - first >= _SIGKILL_GRACE
    )


def _first_time(ends: Sequence[RankExit], split: _RanksByRole) -> int | None:
    times = [symptom.time for symptom in (*split.roots.values(), *split.waited.values())]
    times += [end.exit_time for end in ends if end.exit_code]
    return min((time for time in times if time is not None), default=None)


def _is_program_error(split: _RanksByRole, ends: Sequence[RankExit], masked: MaskFunction) -> bool:
    """Return whether most ranks had the same program error within a minute."""
    symptoms = list(split.roots.values())
    alike = {masked(symptom.line) for symptom in symptoms}
    times = [symptom.time for symptom in symptoms if symptom.time is not None]
    return (
        len(symptoms) >= max(_MIN_RANKS_WITH_SAME_ERROR, (len(ends) + 1) // 2)
        and len(alike) == 1
        and all(symptom.scope in ("application", "platform", "storage") for symptom in symptoms)
        and (not times or max(times) - min(times) <= _SAME_ERROR_WINDOW)
    )


def _program_error(split: _RanksByRole) -> JobFinding:
    rank, symptom = next(iter(split.roots.items()))
    cause = f"{len(split.roots)} ranks had the same error: {symptom.line} ({symptom.says})"
    evidence = _symptom_evidence(rank, symptom)
    return JobFinding("crash", cause, evidence=(evidence,), is_program_error=True)


def _root_candidates(
    split: _RanksByRole, hardware: Sequence[CulpritCandidate], ends: Sequence[RankExit]
) -> list[CulpritCandidate]:
    """Return the ranks that failed on their own, in time order; a lead of 2 s is strong."""
    machines = {end.rank: end.machine for end in ends}
    explained = {candidate.rank for candidate in hardware} | {
        candidate.machine for candidate in hardware
    } - {None}
    roots = [
        (rank, symptom)
        for rank, symptom in split.roots.items()
        if rank not in explained and machines[rank] not in explained
    ]
    order = sorted(roots, key=lambda item: _sort_key(item[1]))
    candidates = []
    for number, (rank, symptom) in enumerate(order):
        weight = WEAK
        if number == 0 and not hardware:
            others = [other for _, other in order[1:]]
            weight = STRONG if _leads(symptom, others) else MODERATE
        elif number and not hardware and not _leads(order[0][1], [symptom]):
            weight = MODERATE
        candidates.append(
            CulpritCandidate(rank, f"{symptom.says}: {symptom.line}", weight, symptom.time)
        )
    return candidates


def _sort_key(symptom: Symptom) -> tuple[bool, int]:
    return symptom.time is None, symptom.time or 0


def _leads(symptom: Symptom, others: Sequence[Symptom]) -> bool:
    """Return whether a failure certainly came before the others."""
    if not others:
        return True
    return symptom.time is not None and all(
        other.time is not None and other.time - symptom.time > _TIME_UNCERTAINTY for other in others
    )


def _silent_candidates(split: _RanksByRole, ends: Sequence[RankExit]) -> list[CulpritCandidate]:
    """Return the ranks without an error that others waited for or lost as a peer."""
    if not split.waited or not split.silent:
        return []
    machines = {end.rank: end.machine for end in ends}
    others = len(split.waited)
    is_lost = all(end.exit_code is None for end in ends if end.rank in split.silent)
    if len(split.silent) == 1 and others > 1:
        why = f"{others} ranks timed out or lost a peer, and this rank logged no error"
        return [CulpritCandidate(split.silent[0], why, STRONG)]
    names = {machines[rank] for rank in split.silent}
    of_waiting = {machines[rank] for rank in split.waited}
    if is_lost and len(names) == 1 and None not in names and not names & of_waiting and others > 1:
        why = f"{others} ranks on other machines lost a peer, and no rank here logged an error"
        return [CulpritCandidate(None, why, STRONG, machine=names.pop())]
    if len(split.silent) > others:
        return []
    why = f"one of {len(split.silent)} ranks that logged no error while {others} ranks waited"
    return [CulpritCandidate(rank, why, WEAK) for rank in split.silent]


def _cause(leader: CulpritCandidate | None, split: _RanksByRole) -> str:
    if leader is None:
        if split.waited and not split.silent:
            return "all ranks waited for each other until the time-out, and none failed on its own"
        return "the job was ended, and no rank logged a reason"
    symptom = split.roots.get(leader.rank) if leader.rank is not None else None
    return (
        leader.why
        if symptom is None or symptom.next in leader.why
        else f"{leader.why}; {symptom.next}"
    )


def _evidence(
    ends: Sequence[RankExit],
    split: _RanksByRole,
    machine_symptoms: Sequence[MachineSymptom],
    moment: int | None,
) -> list[Evidence]:
    """Return the symptoms of each rank in time order, then those of machines."""
    symptoms = [*split.roots.items(), *split.waited.items()]
    ordered = sorted(symptoms, key=lambda item: _sort_key(item[1]))
    items = [_symptom_evidence(rank, symptom) for rank, symptom in ordered]
    codes = {end.rank: end.exit_code for end in ends}
    for rank in split.silent:
        code = codes[rank]
        ended = "exit code unknown" if code is None else f"exit code {code}"
        items.append(Evidence("exits", f"rank {rank} logged no error, {ended}", rank))
    hardware = [s for s in machine_symptoms if s.is_near(moment) and s.is_hardware]
    return items + [
        Evidence(
            s.symptom.source,
            f"{s.machine}: {s.symptom.says}: {s.symptom.line}",
            s.rank,
            s.symptom.time,
        )
        for s in hardware
    ]


def _symptom_evidence(rank: int, symptom: Symptom) -> Evidence:
    details = {
        "pattern": symptom.pattern,
        "role": symptom.role,
        "scope": symptom.scope,
        "level": symptom.level,
        "next": symptom.next,
        "line": symptom.line,
    }
    return Evidence(
        symptom.source, f"rank {rank}: {symptom.says}: {symptom.line}", rank, symptom.time, details
    )
