"""Ranks that others wait for: lost ones, and those that have not come to a collective."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from forewarn.features.diagnosis.communicators.communicator_state import (
    CommunicatorState,
    StatusSnapshot,
)
from forewarn.features.diagnosis.communicators.job_rank_numbers import JobRankNumbers
from forewarn.features.diagnosis.ranks import Ranks, format_ranks
from forewarn.models.diagnosis.verdict.job_verdict import (
    STRONG,
    CulpritCandidate,
    Evidence,
    JobFinding,
)
from forewarn.models.diagnosis.verdict.rank_absence import may_be_expected

__all__ = ["Lag", "are_stuck", "find_lags", "lag_finding"]

_Kind = Literal["dead", "unresponsive", "behind", "idle"]

_MAX_BEHIND_SHARE = 0.25  # of a communicator; more ranks have a common cause
_MIN_STUCK_TIME = dt.timedelta(minutes=5)  # of two equal snapshots; a checkpoint is shorter
_ORDER: tuple[_Kind, ...] = ("dead", "unresponsive", "behind", "idle")
_SAYS = {
    "dead": "has not answered NCCL for a minute",
    "unresponsive": "does not answer NCCL",
    "behind": "has not launched it",
    "idle": "is in none",
}


@dataclass(frozen=True, slots=True)
class Lag:
    """Ranks that the others of a communicator wait for.

    Attributes
    ----------
    where : str
        What the others wait in.
    ranks : tuple of int
        Ranks of the job.
    waiting : frozenset of int
        Ranks of the job that wait for them, as far as known.
    kind : str
        `dead`, `unresponsive`, `behind`, or `idle`: in no kernel.
    details : mapping
        Further values for programs.
    """

    where: str
    ranks: tuple[int, ...]
    waiting: frozenset[int]
    kind: _Kind
    details: Mapping[str, object] = field(default_factory=dict)


def find_lags(
    snapshot: StatusSnapshot, ranks: Ranks, addresses: Mapping[str, str] | None = None
) -> list[Lag]:
    """Return who waits for whom; ranks of a communicator become ranks of the job.

    Parameters
    ----------
    snapshot : StatusSnapshot
    ranks : Ranks
        All ranks of the job.
    addresses : mapping of str to str, optional
        Machines by address.
    """
    numbers = JobRankNumbers(snapshot, ranks, addresses or {})
    return [lag for state in snapshot.communicators for lag in _lags(state, numbers)]


def _lags(state: CommunicatorState, numbers: JobRankNumbers) -> Iterator[Lag]:
    """Yield the lag of a communicator; none if a rank in question is not known in the job."""
    if not state.is_running:
        return
    operation, seq, behind = _behind(state)
    groups: dict[_Kind, frozenset[int]] = {
        "dead": state.dead,
        "unresponsive": state.unresponsive,
        "behind": behind,
    }
    kind = next((name for name, lagging in groups.items() if lagging), None)
    if kind is None or len(groups[kind]) > max(1, _MAX_BEHIND_SHARE * state.size):
        return
    lagging = [numbers.number(state, rank) for rank in sorted(groups[kind])]
    known = tuple(number for number in lagging if number is not None)
    if len(known) < len(lagging):
        return
    others = set(range(state.size)).difference(*groups.values())
    waiting = {numbers.number(state, rank) for rank in others} - {None}
    yield Lag(
        f"communicator {state.name}" + (f", {operation} {seq}" if seq is not None else ""),
        known,
        frozenset(number for number in waiting if number is not None),
        kind,
        {} if seq is None else {"operation": operation, "seq": seq},
    )


def _behind(state: CommunicatorState) -> tuple[str, int | None, frozenset[int]]:
    """Return the collective that some ranks have not launched, its number, and those ranks.

    All ranks of a communicator call its collectives in the same order, so that the ranks behind
    have the fewest operations of every kind that differs. Otherwise the orders differ.
    """
    differing = {name: c for name, c in state.counts.items() if len(set(c.values())) > 1}
    n_lost = len(state.unresponsive) + len(state.dead)
    is_whole = all(len(counts) + n_lost == state.size for counts in differing.values())
    if not differing or not is_whole:
        return "", None, frozenset()
    last = [
        {rank for rank, count in counts.items() if count == min(counts.values())}
        for counts in differing.values()
    ]
    name = min(differing)
    return name, min(differing[name].values()) + 1, frozenset(set[int].intersection(*last))


def are_stuck(before: StatusSnapshot, after: StatusSnapshot) -> bool | None:
    """Return whether a job stood still between two snapshots; None if that is not known."""
    counts = {state.name: state.counts for state in before.communicators}
    pairs = [(counts[s.name], s.counts) for s in after.communicators if s.name in counts]
    if any(_most(old) != _most(new) for old, new in pairs):
        return False
    if not pairs or before.time is None or after.time is None:
        return None
    return True if after.time - before.time >= _MIN_STUCK_TIME else None


def _most(counts: Mapping[str, Mapping[int, int]]) -> dict[str, int]:
    return {name: max(by_rank.values()) for name, by_rank in counts.items() if by_rank}


def lag_finding(
    part: str,
    lags: Sequence[Lag],
    ranks: Ranks,
    *,
    is_certain: bool = False,
    is_alone: bool = False,
    weight: float = STRONG,
    observed_at: int | None = None,
) -> JobFinding | None:
    """Return the ranks that others wait for and that wait for no rank, or None.

    A single snapshot of a job that moves shows ranks behind as well, so that the finding counts
    only in a hang that other parts show. Where there are none, what is certain shows a hang: a
    process that is gone, or a wait of minutes for a rank that programs do not send elsewhere.

    Parameters
    ----------
    part : str
    lags : sequence of Lag
    ranks : Ranks
    is_certain : bool
        The ranks have waited for minutes.
    is_alone : bool
        No other part can tell whether the job moves.
    weight : float
        Of all candidates together.
    observed_at : int or None
        Time of the snapshot, in nanoseconds since 1970 UTC; None if unknown.
    """
    kind = next((name for name in _ORDER if any(lag.kind == name for lag in lags)), None)
    relevant = [lag for lag in lags if lag.kind == kind]
    waiting = {rank for lag in relevant for rank in lag.waiting}
    sources = {rank: lag for lag in relevant for rank in lag.ranks if rank not in waiting}
    if not sources:
        return None
    candidates = _candidates(sources, ranks, weight)
    is_proven = kind == "dead" or (is_certain and not may_be_expected(sources, ranks))
    return JobFinding(
        "hang",
        candidates[0].why if len(candidates) == 1 else "",
        candidates,
        evidence=tuple(_evidence(part, lag) for lag in relevant),
        # Several others may be behind for one reason, such as sends, which have no counts.
        origins=frozenset(sources) if kind == "dead" and weight >= STRONG else frozenset(),
        needs_no_duration=is_alone and is_proven,
        observed_at=observed_at,
    )


def _candidates(
    sources: Mapping[int, Lag], ranks: Ranks, weight: float
) -> tuple[CulpritCandidate, ...]:
    """Return the ranks, which share the weight, or the machine that all of them are on."""
    machines = {ranks.machine(rank) for rank in sources}
    (machine, *others) = machines
    if len(sources) > 1 and machine is not None and not others:
        why = f"all ranks that others wait for are on it: {format_ranks(sorted(sources))}"
        return (CulpritCandidate(None, why, weight, machine=machine),)
    return tuple(
        CulpritCandidate(
            rank,
            f"{len(lag.waiting)} ranks wait for it, and it {_SAYS[lag.kind]}",
            weight / len(sources),
        )
        for rank, lag in sorted(sources.items())
    )


def _evidence(part: str, lag: Lag) -> Evidence:
    says = _SAYS[lag.kind]
    if len(lag.ranks) > 1:
        says = says.replace("has", "have", 1).replace("does", "do", 1).replace("is", "are", 1)
    return Evidence(
        part,
        f"{lag.where}: {format_ranks(lag.ranks)} {says}",
        lag.ranks[0] if len(lag.ranks) == 1 else None,
        details={"absent": list(lag.ranks), **lag.details},
    )
