"""Root cause of a crash: which rank failed on its own, and which ranks failed as a consequence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from forewarn.features.diagnosis.log_lines.python_exceptions import is_exception, names_others
from forewarn.features.diagnosis.log_lines.stated_timeout import stated_timeout
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.crash.accused_peers import (
    Accusation,
    accused_peers,
    missing_together,
    odd_rank,
    stated_accusations,
)
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
_MAX_OTHERS = 3
_HEAD_CHARS = 100  # that tell lines apart
_MIN_WAITING = 2  # ranks that make a rank that stood still the one they waited for
MaskFunction = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _RanksByRole:
    """Ranks by the kind of their decisive symptom, and the longest time-out that they state."""

    roots: Mapping[int, Symptom]
    waited: Mapping[int, Symptom]
    silent: tuple[int, ...]

    @property
    def timeout(self) -> int:
        """Longest time-out that a waiting rank states, in nanoseconds."""
        spans = (stated_timeout(symptom.line) for symptom in self.waited.values())
        return max((span for span in spans if span is not None), default=0)


def find_root_cause(
    ends: Sequence[RankExit],
    *,
    machine_symptoms: Sequence[MachineSymptom] = (),
    others: Sequence[Symptom] = (),
    accusations: Sequence[Accusation] = (),
    writers: Collection[str] = (),
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
    others : sequence of Symptom
        Symptoms of unknown ranks, which say why the job ended but not where.
    accusations : sequence of Accusation
        What launchers say about ranks and machines.
    writers : collection of str
        Machines that wrote any log.
    masked : callable
        Converts an error message to its template, so that messages can be compared.
    """
    ends = _without_shared_lines(ends, masked)
    signs = any(end.symptoms or end.exit_code for end in ends)
    if not signs and not machine_symptoms and not others and not accusations:
        return None
    odd = odd_rank(ends, others)
    split = _with_stated_error(_split_by_role(ends), others)
    moment = _first_time(ends, split)
    hardware = machine_candidates(machine_symptoms, ends, moment, split.timeout)
    if _is_program_error(split, ends, masked) and not hardware and odd is None:
        return _program_error(split)
    counted = [symptom for symptom in others if symptom.is_counted]
    decisive_others = [symptom for symptom in counted if symptom.is_strong] or counted
    candidates = [*hardware, *_root_candidates(split, hardware, ends)]
    stated = stated_accusations(ends, others)
    accused = accused_peers([*_believed(accusations, split, counted), *stated], others)
    if odd is not None:
        candidates = [odd]
    elif not candidates and (alone := _failed_machine(split, ends, decisive_others, writers)):
        candidates = [alone]
    elif not candidates:
        has_cause = any(symptom.role == "root" for symptom in decisive_others)
        candidates = accused or _silent_candidates(split, ends, has_cause=has_cause)
    elif len(candidates) > 1:
        candidates += _confirmed(accused, candidates, ends)
    leader = candidates[0] if candidates else None
    root = _first_root(split, decisive_others)
    return JobFinding(
        "crash",
        _cause(leader, split, decisive_others),
        tuple(candidates),
        waiting=frozenset(split.waited) - {candidate.rank for candidate in candidates},
        evidence=(
            *_evidence(ends, split, machine_symptoms, moment),
            *(_other_evidence(symptom) for symptom in decisive_others[:_MAX_OTHERS]),
        ),
        origins=missing_together(stated, ends) if candidates == accused else frozenset(),
        after_hang=not (hardware or split.roots),
        is_hearsay=not (hardware or accusations or _has_failed_rank(ends)),
        fault=root.fault if leader is None and root is not None else None,
    )


def _has_failed_rank(ends: Sequence[RankExit]) -> bool:
    return any(end.decisive or end.exit_code for end in ends)


def _failed_machine(
    split: _RanksByRole,
    ends: Sequence[RankExit],
    others: Sequence[Symptom],
    writers: Collection[str],
) -> CulpritCandidate | None:
    """Return the only machine of several that logged an error of its own, or None.

    One that lost a peer is a witness. An error of the fabric has two ends.
    """
    roots = [symptom for symptom in others if symptom.role == "root" and symptom.source == "logs"]
    machines = {symptom.writer for symptom in roots}
    if len(machines) != 1 or None in machines or not set(writers) - machines:
        return None
    waited = {end.machine for end in ends if end.rank in split.waited}
    waited |= {symptom.writer for symptom in others if symptom.peers}
    is_error = all(is_exception(root.line) and root.scope != "fabric" for root in roots)
    if split.roots or waited & machines or not is_error:
        return None
    first = min(roots, key=_sort_key)
    why = f"no other machine logged an error of its own: {first.line}"
    return CulpritCandidate(None, why, STRONG, first.time, machines.pop(), first.fault)


def _believed(
    accusations: Sequence[Accusation], split: _RanksByRole, others: Sequence[Symptom]
) -> list[Accusation]:
    """Return what launchers say, unless a process states a cause or waited for another."""
    is_wait = bool(split.waited) or any(_is_wait(symptom) for symptom in others)
    strong = [symptom for symptom in others if symptom.is_strong] or others
    stated = [a for a in accusations if not _has_cause(a, strong)]
    return [a for a in stated if not (a.is_exit and is_wait)]


def _is_wait(symptom: Symptom) -> bool:
    """Return whether a process waited or lost a peer, not whether a launcher ended it."""
    is_words = symptom.scope == "platform" and not names_others(symptom.line)
    return symptom.role == "cascade" and not is_words


def _has_cause(accusation: Accusation, others: Sequence[Symptom]) -> bool:
    """Return whether a process states a cause, where a launcher names another's machine only.

    A launcher names the process that it missed first. Its own line may be the cause, too. What a
    machine lacks, such as a GPU, all of its processes lack.
    """
    roots = [s for s in others if s.role == "root" and s.source == "logs" and s.writer is None]
    causes = {root.line[:_HEAD_CHARS] for root in roots}
    is_vague = accusation.is_missed and accusation.peer.rank is None
    if accusation.is_exit:
        is_vague |= any(root.scope == "node" and root.level == "error" for root in roots)
    return is_vague and bool(causes) and accusation.line[:_HEAD_CHARS] not in causes


def _without_shared_lines(ends: Sequence[RankExit], masked: MaskFunction) -> list[RankExit]:
    """Return the ranks without lines that most of them wrote, if one has an error of its own.

    A library that is missing everywhere did no harm where only one rank failed.
    """
    templates = {
        end.rank: {symptom: masked(symptom.line) for symptom in end.symptoms if _is_own(symptom)}
        for end in ends
    }
    counts = Counter(line for lines in templates.values() for line in set(lines.values()))
    shared = {line for line, number in counts.items() if _are_most(number, ends)}
    has_own = any(
        symptom.is_strong and line not in shared
        for lines in templates.values()
        for symptom, line in lines.items()
    )
    if not has_own or not shared:
        return list(ends)
    return [
        replace(
            end,
            symptoms=tuple(
                symptom
                for symptom in end.symptoms
                if templates[end.rank].get(symptom) not in shared
            ),
        )
        for end in ends
    ]


def _are_most(ranks: int, ends: Sequence[RankExit]) -> bool:
    return ranks >= max(_MIN_RANKS_WITH_SAME_ERROR, (len(ends) + 1) // 2)


def _is_own(symptom: Symptom) -> bool:
    return symptom.role == "root" and symptom.is_counted and not symptom.is_report


def _confirmed(
    accused: Sequence[CulpritCandidate],
    candidates: Sequence[CulpritCandidate],
    ends: Sequence[RankExit],
) -> list[CulpritCandidate]:
    """Return the accused peers that are among the candidates, which others then confirm."""
    machines = {end.rank: end.machine for end in ends}
    ranks = {candidate.rank for candidate in candidates} - {None}
    hosts = {c.machine or machines.get(c.rank or -1) for c in candidates} - {None}
    return [c for c in accused if c.rank in ranks or (c.rank is None and c.machine in hosts)]


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
    if not _is_only_stall(roots, waited):
        waited |= {rank: symptom for rank, symptom in roots.items() if symptom.is_stall}
        roots = {rank: symptom for rank, symptom in roots.items() if not symptom.is_stall}
    return _RanksByRole(roots, waited, tuple(silent))


def _with_stated_error(split: _RanksByRole, others: Sequence[Symptom]) -> _RanksByRole:
    """Give the only rank that failed, by its exit code, the error that a line of no rank states."""
    stated = [s for s in others if s.role == "root" and s.is_counted and s.is_strong]
    stated = [s for s in stated if s.source == "logs" and s.writer is None]
    is_known = any(root.source != "exits" for root in split.roots.values())
    if len(split.roots) != 1 or split.waited or is_known or not stated:
        return split
    return replace(split, roots=dict.fromkeys(split.roots, min(stated, key=_sort_key)))


def _is_only_stall(roots: Mapping[int, Symptom], waited: Mapping[int, Symptom]) -> bool:
    """Return whether one rank stood still and several others say that they waited."""
    return len(roots) == 1 and len(waited) >= _MIN_WAITING


def _failed_at(end: RankExit) -> int | None:
    symptom = end.decisive
    if symptom is not None and symptom.time is not None:
        return symptom.time
    return None if end.exit_code in (None, 0, -15) else end.exit_time


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
        _are_most(len(symptoms), ends)
        and len(alike) == 1
        and not _is_of_one_machine(split, ends)
        and all(symptom.scope in ("application", "platform", "storage") for symptom in symptoms)
        and (not times or max(times) - min(times) <= _SAME_ERROR_WINDOW)
    )


def _is_of_one_machine(split: _RanksByRole, ends: Sequence[RankExit]) -> bool:
    """Return whether an error of storage or platform is one of all ranks of one machine only.

    An error of the program may be that of a pipeline stage, which runs on one machine.
    """
    machines = {end.machine for end in ends if end.rank in split.roots}
    of_machine = {end.rank for end in ends if end.machine in machines}
    elsewhere = any(end.has_log and end.rank not in of_machine for end in ends)
    is_environment = all(root.scope in ("platform", "storage") for root in split.roots.values())
    is_whole = len(machines) == 1 and None not in machines and of_machine == split.roots.keys()
    return is_environment and is_whole and elsewhere


def _program_error(split: _RanksByRole) -> JobFinding:
    rank, symptom = next(iter(split.roots.items()))
    cause = f"{len(split.roots)} ranks had the same error: {symptom.line} ({symptom.says})"
    evidence = _symptom_evidence(rank, symptom)
    return JobFinding(
        "crash", cause, evidence=(evidence,), is_program_error=True, fault=symptom.fault
    )


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
            CulpritCandidate(
                rank,
                f"{symptom.says}: {symptom.line}",
                weight,
                symptom.time,
                fault=symptom.fault,
            )
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


def _silent_candidates(
    split: _RanksByRole, ends: Sequence[RankExit], *, has_cause: bool
) -> list[CulpritCandidate]:
    """Return the ranks without an error that others waited for or lost as a peer.

    A rank whose log is missing is a hint, unless an error of an unknown rank has to be its own. So
    is a rank whose output was not collected. Ranks that made their last planned step have ended:
    others lose them at the regular end of a job too.
    """
    done = {end.rank for end in ends if end.is_done}
    if not split.waited or not split.silent or done.issuperset(split.silent):
        return []
    machines = {end.rank: end.machine for end in ends}
    others = len(split.waited)
    unseen = {end.rank for end in ends if end.is_unseen}.intersection(split.silent)
    is_lost = all(end.exit_code is None for end in ends if end.rank in split.silent)
    if len(split.silent) == 1 and others > 1:
        silence = "the output of this rank was not seen" if unseen else "this rank logged no error"
        why = f"{others} ranks timed out or lost a peer, and {silence}"
        is_seen = has_cause or any(e.rank == split.silent[0] and e.has_log for e in ends)
        weight = STRONG if is_seen and not unseen else MODERATE
        return [CulpritCandidate(split.silent[0], why, weight)]
    names = {machines[rank] for rank in split.silent}
    of_waiting = {machines[rank] for rank in split.waited}
    if is_lost and len(names) == 1 and None not in names and not names & of_waiting and others > 1:
        why = f"{others} ranks on other machines lost a peer, and no rank here logged an error"
        weight = MODERATE if unseen else STRONG
        return [CulpritCandidate(None, why, weight, machine=names.pop())]
    if len(split.silent) > others:
        return []
    if len(split.silent) == 1:
        why = "another rank waited, and this rank logged no error"
    else:
        why = f"one of {len(split.silent)} ranks that logged no error while {others} ranks waited"
    return [CulpritCandidate(rank, why, WEAK) for rank in split.silent]


def _other_evidence(symptom: Symptom) -> Evidence:
    return Evidence("logs", f"{symptom.says}: {symptom.line}", None, symptom.time)


def _first_root(split: _RanksByRole, others: Sequence[Symptom]) -> Symptom | None:
    roots = [*split.roots.values(), *(symptom for symptom in others if symptom.role == "root")]
    return min(roots, key=_sort_key, default=None)


def _cause(leader: CulpritCandidate | None, split: _RanksByRole, others: Sequence[Symptom]) -> str:
    if leader is None:
        first = _first_root(split, others)
        if first is None and len(split.waited) < _MIN_WAITING:
            first = next(iter([*split.waited.values(), *others]), None)
        if first is not None:
            return f"{first.says}: {first.line}; {first.next}"
        if split.waited and not split.silent:
            return "all ranks waited for each other until the time-out, and none failed on its own"
        return "the job was ended, and no rank logged a reason"
    root = split.roots.get(leader.rank) if leader.rank is not None else None
    return leader.why if root is None or root.next in leader.why else f"{leader.why}; {root.next}"


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
    for end in (end for end in ends if end.rank in split.silent):
        silence = ": its output was not seen" if end.is_unseen else " logged no error"
        ended = "exit code unknown" if end.exit_code is None else f"exit code {end.exit_code}"
        items.append(Evidence("exits", f"rank {end.rank}{silence}, {ended}", end.rank))
    hardware = [s for s in machine_symptoms if s.is_near(moment, split.timeout) and s.is_hardware]
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
