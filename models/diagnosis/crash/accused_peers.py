"""Ranks and machines that lines accuse: peers that were lost or are missing, and odd ones out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from forewarn.features.time_units import SECOND
from forewarn.models.diagnosis.crash.rank_exit import NamedPeer, RankExit, Symptom
from forewarn.models.diagnosis.verdict.fault import Fault
from forewarn.models.diagnosis.verdict.job_verdict import (
    MODERATE,
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)

__all__ = [
    "Accusation",
    "accused_peers",
    "missing_together",
    "odd_rank",
    "stated_accusations",
    "stated_stall",
]

_MIN_WITNESSES = 2
_TIME_UNCERTAINTY = 2 * SECOND  # launchers write whole seconds
_MIN_LEAD = 2  # times as many witnesses as for the next one


@dataclass(frozen=True, slots=True)
class Accusation:
    """Statement that a peer was lost, is missing, or has ended.

    Attributes
    ----------
    peer : NamedPeer
    witness : int or None
        Rank that wrote the line; None for a launcher or an unknown rank.
    line : str
    time : int or None
        Nanoseconds since 1970 UTC.
    by_observer : bool
        Whether the witness watches all ranks.
    machine : str or None
        Machine of the witness.
    is_exit : bool
        Whether the peer alone ended with an error, which may be that it lost another.
    is_missed : bool
        Whether the witness, a launcher, knows neither how the peer ended nor that it was first.
    pid : int or None
        Process that ended there, if the machine itself was not lost.
    """

    peer: NamedPeer
    witness: int | None
    line: str
    time: int | None
    by_observer: bool = False
    machine: str | None = None
    is_exit: bool = False
    is_missed: bool = False
    pid: int | None = None

    @property
    def is_own(self) -> bool:
        """Whether the witness names itself."""
        if self.witness is not None and self.peer.rank is not None:
            return self.peer.rank == self.witness
        return self.peer.rank is None and self.peer.machine == self.machine


def stated_accusations(ends: Sequence[RankExit], others: Sequence[Symptom]) -> list[Accusation]:
    """Return the accusations in the lines of all ranks and of unknown writers.

    Those of a witness count for nothing that states an error of its own about the machine, such as
    that its name cannot be resolved.
    """
    lines = [(end.rank, symptom) for end in ends for symptom in end.symptoms]
    machines = {end.rank: end.machine for end in ends}
    stated = [
        Accusation(
            *(peer, rank, symptom.line, symptom.time, symptom.by_observer),
            machine=symptom.writer if rank is None else machines[rank],
        )
        for rank, symptom in (*lines, *((None, symptom) for symptom in others))
        if not symptom.is_survived and (symptom.role != "root" or symptom.by_observer)
        for peer in symptom.peers
    ]
    own = {
        (symptom.writer, symptom.line)
        for _, symptom in (*lines, *((None, symptom) for symptom in others))
        if symptom.role == "root" and symptom.scope == "platform" and not symptom.is_stall
    }
    return [
        accusation
        for accusation in stated
        if (not accusation.is_own or (accusation.by_observer and accusation.witness is None))
        and not any(
            not accusation.by_observer
            and writer == accusation.machine
            and (accusation.peer.machine or "\n") in line
            for writer, line in own
        )
    ]


def accused_peers(
    accusations: Iterable[Accusation], others: Sequence[Symptom] = ()
) -> list[CulpritCandidate]:
    """Return the peers that most witnesses accuse, most likely first.

    A rank that accuses another was alive when the job failed, so that it is accused itself only if
    all peers are. Two witnesses that name no one else identify a peer, and so does one that watches
    all ranks; one other witness is a hint, unless the log of the peer says that it was ended. What
    a peer says about others counts for nothing against witnesses on two machines.

    Parameters
    ----------
    accusations : iterable of Accusation
    others : sequence of Symptom
        Symptoms of unknown ranks.
    """
    by_peer: dict[NamedPeer, list[Accusation]] = {}
    for accusation in accusations:
        by_peer.setdefault(accusation.peer, []).append(accusation)
    speakers = {a.witness for each in by_peer.values() for a in each} - {None}
    machines = {a.machine for each in by_peer.values() for a in each if not a.by_observer} - {None}
    absent = {
        peer: each
        for peer, each in by_peer.items()
        if any(a.by_observer for a in each)
        or (peer.rank not in speakers if peer.rank is not None else peer.machine not in machines)
    }
    suspects = absent or by_peer
    weights = {peer: _weight(each) for peer, each in suspects.items()}
    order = sorted(weights, key=lambda peer: -weights[peer])
    return [_candidate(peer, suspects, weights[peer], others) for peer in order]


def missing_together(accusations: Iterable[Accusation], ends: Sequence[RankExit]) -> frozenset[int]:
    """Return the ranks that observers name together; none if most are missing.

    Each line names all of them, or all of several observers name the same ones in several lines.

    Parameters
    ----------
    accusations : iterable of Accusation
    ends : sequence of RankExit
        All known ranks of the job.
    """
    lines: dict[str, set[int]] = {}
    witnesses: dict[int | None, set[int]] = {}
    for accusation in accusations:
        if accusation.by_observer and accusation.peer.rank is not None:
            lines.setdefault(accusation.line, set()).add(accusation.peer.rank)
            witnesses.setdefault(accusation.witness, set()).add(accusation.peer.rank)
    groups = {frozenset(numbers) for numbers in lines.values()}
    if len(witnesses) >= _MIN_WITNESSES:
        groups = {frozenset(numbers) for numbers in witnesses.values()}
    if len(groups) != 1:
        return frozenset()
    (group,) = groups
    world = 1 + max(group.union(end.rank for end in ends))
    return group if 1 < len(group) <= world // 2 else frozenset()


def _weight(accusations: Sequence[Accusation]) -> int:
    """Return the number of witnesses; an observer counts as enough of them."""
    known = {a.witness for a in accusations if a.witness is not None}
    of_known = {a.machine for a in accusations if a.witness is not None}
    unknown = {a.machine for a in accusations if a.witness is None} - (of_known - {None})
    observed = _MIN_WITNESSES if any(a.by_observer for a in accusations) else 0
    return len(known) + len(unknown) + observed


def _candidate(
    peer: NamedPeer,
    suspects: Mapping[NamedPeer, Sequence[Accusation]],
    own_weight: int,
    others: Sequence[Symptom],
) -> CulpritCandidate:
    accusations = suspects[peer]
    is_refuted = len({a.machine for a in accusations} - {None}) >= _MIN_WITNESSES
    rivals = [
        _weight([a for a in each if not (is_refuted and _is_by(a, peer))])
        for rival, each in suspects.items()
        if rival != peer and (peer.machine is None or rival.machine != peer.machine)
    ]
    is_clear = own_weight >= max(_MIN_WITNESSES, _MIN_LEAD * max(rivals, default=0))
    is_clear = is_clear or (not rivals and _was_ended(peer, accusations, others))
    first = min(accusations, key=lambda a: (a.time is None, a.time or 0))
    ranks = {a.witness for a in accusations if a.witness is not None}
    who = f"{len(ranks)} ranks name it" if len(ranks) > 1 else "it is named"
    weight = STRONG if is_clear else MODERATE
    why, fault = f"{who}: {first.line}", None
    if first.pid is not None and peer.rank is None:
        logs = "its log, and the kernel log for the OOM killer and Xids"
        fault = Fault("platform", f"check why process {first.pid} ended: {logs}")
    return CulpritCandidate(peer.rank, why, weight, first.time, peer.machine, fault)


def _is_by(accusation: Accusation, peer: NamedPeer) -> bool:
    """Return whether a peer is the witness."""
    if peer.rank is not None and accusation.witness is not None:
        return peer.rank == accusation.witness
    return peer.machine is not None and peer.machine == accusation.machine


def _was_ended(
    peer: NamedPeer, accusations: Sequence[Accusation], others: Sequence[Symptom]
) -> bool:
    """Return whether only the log of a peer says that it was ended, and not after the witnesses."""
    ends = [s for s in others if s.role == "cascade" and s.scope == "platform" and not s.peers]
    writers = {end.writer for end in ends} - {a.machine for a in accusations}
    times = [end.time for end in ends if end.writer == peer.machine]
    stated = [a.time for a in accusations]
    if peer.machine is None or writers != {peer.machine} or not times:
        return False
    return not any(
        late is not None and early is not None and late > early + _TIME_UNCERTAINTY
        for late in times[:1]
        for early in stated
    )


def stated_stall(ends: Sequence[RankExit], others: Sequence[Symptom]) -> JobFinding | None:
    """Return the ranks that a component of the job waits for, or None.

    Such a component warns again and again while the job is stalled, and the job does not end.
    """
    stated = [a for a in stated_accusations(ends, others) if a.by_observer]
    candidates = accused_peers(stated)
    if not candidates:
        return None
    evidence = tuple(
        Evidence("logs", candidate.why, candidate.rank, candidate.since) for candidate in candidates
    )
    return JobFinding(
        "hang",
        candidates[0].why,
        tuple(candidates),
        evidence=evidence,
        origins=missing_together(stated, ends),
        needs_no_duration=True,
    )


def odd_rank(ends: Sequence[RankExit], others: Sequence[Symptom]) -> CulpritCandidate | None:
    """Return the rank that disagrees with several others, or None.

    A line names two ranks that disagree. The odd one is in all lines.
    """
    symptoms = [*(symptom for end in ends for symptom in end.symptoms), *others]
    lines = [
        (frozenset(peer.rank for peer in symptom.peers if peer.rank is not None), symptom)
        for symptom in symptoms
        if symptom.role == "root" and not symptom.is_survived and len(symptom.peers) > 1
    ]
    pairs = {pair for pair, _ in lines if len(pair) > 1}
    common = frozenset.intersection(*pairs) if pairs else frozenset[int]()
    if len(pairs) < _MIN_WITNESSES or len(common) != 1:
        return None
    (rank,) = common
    symptom = next(symptom for _, symptom in lines)
    why = f"disagrees with {len(pairs)} other ranks, which agree with each other: {symptom.line}"
    times = [symptom.time for _, symptom in lines if symptom.time is not None]
    return CulpritCandidate(rank, why, STRONG, min(times, default=None), fault=symptom.fault)
