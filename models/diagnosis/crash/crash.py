"""The first cause of a crash: of all ranks, which one failed by itself, and which only followed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from forewarn.models.diagnosis.crash.crash_machines import MachineSign, machine_candidates
from forewarn.models.diagnosis.crash.rank_end import RankEnd, Sign
from forewarn.models.diagnosis.verdict.verdict import (
    CERTAIN,
    HALF,
    SIGN,
    Candidate,
    Evidence,
    Finding,
)

__all__ = ["first_cause"]

_SECOND = 10**9
_UNSURE = 2 * _SECOND  # error files hold whole seconds
_GRACE = 15 * _SECOND  # a launcher waits 30 s between SIGTERM and SIGKILL
_TOGETHER = 60 * _SECOND
_FEWEST = 3  # ranks with one and the same error make it one of the program
Masked = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class _Split:
    """The ranks by what they left behind."""

    roots: Mapping[int, Sign]
    waited: Mapping[int, Sign]
    silent: tuple[int, ...]


def first_cause(
    ends: Sequence[RankEnd],
    *,
    machine_signs: Sequence[MachineSign] = (),
    masked: Masked = str,
) -> Finding | None:
    """Say which rank failed first, None if nothing speaks of a crash.

    A rank that was asked to end (-15) is never first, nor one that SIGKILL reached 15 s or more
    after another rank had failed: that is how launchers clear up. Whoever waited for a peer, or
    lost it, is never the cause. Where all others waited, the rank that wrote no error is.

    Parameters
    ----------
    ends : sequence of RankEnd
        Of the last attempt, all ranks of the job, on one clock.
    machine_signs : sequence of MachineSign
        What kernel logs and records say of machines and GPUs.
    masked : callable
        Makes errors that differ in numbers only alike.
    """
    if not any(end.signs or end.exit_code for end in ends):
        return None
    split = _split(ends)
    moment = _first_time(ends, split)
    hardware = machine_candidates(machine_signs, ends, moment)
    if _is_of_program(split, ends, masked) and not hardware:
        return _of_program(split)
    candidates = [*hardware, *_root_candidates(split, hardware, ends)]
    if not candidates:
        candidates = _missing(split, ends)
    leader = candidates[0] if candidates else None
    return Finding(
        "crash",
        _cause(leader, split),
        tuple(candidates),
        waiting=frozenset(split.waited) - {candidate.rank for candidate in candidates},
        evidence=tuple(_evidence(ends, split, machine_signs, moment)),
        after_hang=not (hardware or split.roots),
    )


def _split(ends: Sequence[RankEnd]) -> _Split:
    roots: dict[int, Sign] = {}
    waited: dict[int, Sign] = {}
    silent: list[int] = []
    first = min((t for t in (_failed_at(end) for end in ends) if t is not None), default=None)
    for end in ends:
        sign = end.decisive
        if sign is None or _is_cleared_up(end, sign, first):
            silent.append(end.rank)
        else:
            (roots if sign.role == "root" else waited)[end.rank] = sign
    return _Split(roots, waited, tuple(silent))


def _failed_at(end: RankEnd) -> int | None:
    sign = end.decisive
    if sign is None:
        return None if end.exit_code in (None, 0, -15) else end.exit_time
    return sign.time


def _is_cleared_up(end: RankEnd, sign: Sign, first: int | None) -> bool:
    """Say whether a launcher killed a rank that did not heed its SIGTERM."""
    is_killed = sign.source == "exits" and end.exit_code == -9
    return is_killed and first is not None and sign.time is not None and sign.time - first >= _GRACE


def _first_time(ends: Sequence[RankEnd], split: _Split) -> int | None:
    times = [sign.time for sign in (*split.roots.values(), *split.waited.values())]
    times += [end.exit_time for end in ends if end.exit_code]
    return min((time for time in times if time is not None), default=None)


def _is_of_program(split: _Split, ends: Sequence[RankEnd], masked: Masked) -> bool:
    """Say whether most ranks met one and the same error of the program within a minute."""
    signs = list(split.roots.values())
    alike = {masked(sign.line) for sign in signs}
    times = [sign.time for sign in signs if sign.time is not None]
    return (
        len(signs) >= max(_FEWEST, (len(ends) + 1) // 2)
        and len(alike) == 1
        and all(sign.scope in ("application", "platform", "storage") for sign in signs)
        and (not times or max(times) - min(times) <= _TOGETHER)
    )


def _of_program(split: _Split) -> Finding:
    rank, sign = next(iter(split.roots.items()))
    cause = f"{len(split.roots)} ranks met the same error: {sign.line} ({sign.says})"
    evidence = _of_sign(rank, sign)
    return Finding("crash", cause, evidence=(evidence,), of_program=True)


def _root_candidates(
    split: _Split, hardware: Sequence[Candidate], ends: Sequence[RankEnd]
) -> list[Candidate]:
    """Return who failed by itself, the first one first; it is certain if it leads by 2 s."""
    machines = {end.rank: end.machine for end in ends}
    explained = {candidate.rank for candidate in hardware} | {
        candidate.machine for candidate in hardware
    } - {None}
    roots = [
        (rank, sign)
        for rank, sign in split.roots.items()
        if rank not in explained and machines[rank] not in explained
    ]
    order = sorted(roots, key=lambda item: _order(item[1]))
    candidates = []
    for number, (rank, sign) in enumerate(order):
        weight = SIGN
        if number == 0 and not hardware:
            others = [other for _, other in order[1:]]
            weight = CERTAIN if _leads(sign, others) else HALF
        elif number and not hardware and not _leads(order[0][1], [sign]):
            weight = HALF
        candidates.append(Candidate(rank, f"{sign.says}: {sign.line}", weight, sign.time))
    return candidates


def _order(sign: Sign) -> tuple[bool, int]:
    return sign.time is None, sign.time or 0


def _leads(sign: Sign, others: Sequence[Sign]) -> bool:
    """Say whether a failure was surely before others."""
    if not others:
        return True
    return sign.time is not None and all(
        other.time is not None and other.time - sign.time > _UNSURE for other in others
    )


def _missing(split: _Split, ends: Sequence[RankEnd]) -> list[Candidate]:
    """Return who was waited for: others ran into time-outs or lost a peer, and these did not."""
    if not split.waited or not split.silent:
        return []
    machines = {end.rank: end.machine for end in ends}
    others = len(split.waited)
    is_lost = all(end.exit_code is None for end in ends if end.rank in split.silent)
    if len(split.silent) == 1 and others > 1:
        why = f"{others} ranks waited until their time-out or lost a peer, and this one wrote none"
        return [Candidate(split.silent[0], why, CERTAIN)]
    names = {machines[rank] for rank in split.silent}
    of_waiting = {machines[rank] for rank in split.waited}
    if is_lost and len(names) == 1 and None not in names and not names & of_waiting and others > 1:
        why = (
            f"{others} ranks of other machines lost a peer, and no rank of this one wrote an error"
        )
        return [Candidate(None, why, CERTAIN, machine=names.pop())]
    if len(split.silent) > others:
        return []
    why = f"one of {len(split.silent)} ranks that wrote no error, while {others} waited"
    return [Candidate(rank, why, SIGN) for rank in split.silent]


def _cause(leader: Candidate | None, split: _Split) -> str:
    if leader is None:
        if split.waited and not split.silent:
            return "all ranks waited for each other until the time-out, none failed by itself"
        return "the job was ended, and no rank wrote why"
    sign = split.roots.get(leader.rank) if leader.rank is not None else None
    return leader.why if sign is None or sign.next in leader.why else f"{leader.why}; {sign.next}"


def _evidence(
    ends: Sequence[RankEnd],
    split: _Split,
    machine_signs: Sequence[MachineSign],
    moment: int | None,
) -> list[Evidence]:
    """Return what each rank left behind, the first first, and what machines said."""
    signs = [*split.roots.items(), *split.waited.items()]
    ordered = sorted(signs, key=lambda item: _order(item[1]))
    items = [_of_sign(rank, sign) for rank, sign in ordered]
    codes = {end.rank: end.exit_code for end in ends}
    for rank in split.silent:
        code = codes[rank]
        ended = "no exit code is known" if code is None else f"exit code {code}"
        items.append(Evidence("exits", f"rank {rank} wrote no error, {ended}", rank))
    hardware = [s for s in machine_signs if s.is_near(moment) and s.is_of_hardware]
    return items + [
        Evidence(s.sign.source, f"{s.machine}: {s.sign.says}: {s.sign.line}", s.rank, s.sign.time)
        for s in hardware
    ]


def _of_sign(rank: int, sign: Sign) -> Evidence:
    details = {
        "pattern": sign.pattern,
        "role": sign.role,
        "scope": sign.scope,
        "level": sign.level,
        "next": sign.next,
        "line": sign.line,
    }
    return Evidence(sign.source, f"rank {rank}: {sign.says}: {sign.line}", rank, sign.time, details)
