"""Peers that the lines of other ranks name as lost or missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forewarn.models.diagnosis.crash.rank_exit import NamedPeer, RankExit, Symptom
from forewarn.models.diagnosis.verdict.job_verdict import MODERATE, STRONG, CulpritCandidate

__all__ = ["accused_peers"]

_MIN_WITNESSES = 2
_MIN_LEAD = 2  # times as many witnesses as for the next one


def accused_peers(ends: Sequence[RankExit]) -> list[CulpritCandidate]:
    """Return the peers that most ranks name, most likely first.

    The rank that writes such a line is a witness. A peer that is a witness itself was alive when
    the job failed, so that it is accused only if all peers are. Two witnesses that name no one
    else identify a peer; one witness is a hint.

    Parameters
    ----------
    ends : sequence of RankExit
        All ranks of the job.
    """
    witnesses: dict[NamedPeer, dict[int, Symptom]] = {}
    for end, symptom in _statements(ends):
        for peer in symptom.peers:
            if not _is_own(peer, end):
                witnesses.setdefault(peer, {}).setdefault(end.rank, symptom)
    speakers = {rank for ranks in witnesses.values() for rank in ranks}
    machines = {end.machine for end in ends if end.rank in speakers}
    absent = {
        peer: ranks for peer, ranks in witnesses.items() if not _speaks(peer, speakers, machines)
    }
    counted = absent or witnesses
    order = sorted(counted, key=lambda peer: -len(counted[peer]))
    return [_candidate(peer, counted, order) for peer in order]


def _statements(ends: Sequence[RankExit]) -> Iterator[tuple[RankExit, Symptom]]:
    for end in ends:
        for symptom in end.symptoms:
            if symptom.peers and not symptom.is_survived:
                yield end, symptom


def _is_own(peer: NamedPeer, end: RankExit) -> bool:
    if peer.rank is not None:
        return peer.rank == end.rank
    return peer.machine == end.machine


def _speaks(peer: NamedPeer, speakers: set[int], machines: set[str | None]) -> bool:
    return peer.rank in speakers if peer.rank is not None else peer.machine in machines


def _candidate(
    peer: NamedPeer,
    witnesses: dict[NamedPeer, dict[int, Symptom]],
    order: Sequence[NamedPeer],
) -> CulpritCandidate:
    ranks = witnesses[peer]
    others = [
        len(witnesses[other])
        for other in order
        if other != peer and (peer.machine is None or other.machine != peer.machine)
    ]
    is_clear = len(ranks) >= max(_MIN_WITNESSES, _MIN_LEAD * max(others, default=0))
    first = min(ranks.values(), key=lambda symptom: (symptom.time is None, symptom.time or 0))
    who = "1 rank names" if len(ranks) == 1 else f"{len(ranks)} ranks name"
    return CulpritCandidate(
        peer.rank,
        f"{who} it: {first.line}",
        STRONG if is_clear else MODERATE,
        first.time,
        peer.machine,
    )
