"""Where recovery of a job begins, and which rung follows one that failed.

The first rung follows Baidu Baige, section 5.1: damage of one machine replaces it and blocks it for
the cluster, a suspicion against one machine replaces it and blocks it for this job, anything else
restarts the job in place.
"""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.response.policy.fault_level import BlockScope
from forewarn.response.recovery.job_crash import FaultOrigin, JobAbilities, JobCrash, NoSpare
from forewarn.response.state.rung import Rung

__all__ = ["NoSpareCosts", "RungChoice", "choose_rung", "no_spare_losses"]

_SCOPES = {
    FaultOrigin.EXPLICIT: BlockScope.CLUSTER,
    FaultOrigin.IMPLICIT: BlockScope.JOB,
    FaultOrigin.NOT_ONE: BlockScope.NONE,
}
_REASONS = {
    FaultOrigin.EXPLICIT: "{} is damaged",
    FaultOrigin.IMPLICIT: "{} is suspected",
    FaultOrigin.NOT_ONE: "no single machine is the cause",
}


@dataclass(frozen=True, slots=True)
class NoSpareCosts:
    """What decides between shrinking and waiting.

    Attributes
    ----------
    wait_seconds : float
        Expected until a spare is there.
    restart_seconds : float
        Of a restart of the job.
    gpus : int
        Of the whole job.
    gpus_left_out : int
        That do not train while it is smaller: its size is a multiple of its unit.
    """

    wait_seconds: float
    restart_seconds: float
    gpus: int
    gpus_left_out: int


def no_spare_losses(costs: NoSpareCosts) -> dict[NoSpare, float]:
    """Return the expected loss of shrinking and of waiting, in seconds times GPUs.

    A job that shrinks restarts twice: now, and when the spare is there.

    Examples
    --------
    Eight GPUs wait an hour, or four of them go on.

    >>> losses = no_spare_losses(NoSpareCosts(3600, 300, gpus=8, gpus_left_out=4))
    >>> {choice.value: loss for choice, loss in losses.items()}
    {'shrink': 19200.0, 'wait': 31200.0}
    """
    restart = costs.gpus * costs.restart_seconds
    return {
        NoSpare.SHRINK: costs.gpus_left_out * costs.wait_seconds + 2.0 * restart,
        NoSpare.WAIT: costs.gpus * costs.wait_seconds + float(restart),
    }


@dataclass(frozen=True, slots=True)
class RungChoice:
    """Rung to begin.

    Attributes
    ----------
    rung : Rung
    reason : str
    scope : BlockScope
        For which jobs the machine of the crash is blocked.
    skipped : tuple of Rung
        Milder rungs that would have come first, and that the job cannot do.
    without_spare : NoSpare or None
        What the job does because no spare is there; None if it needs none.
    """

    rung: Rung
    reason: str
    scope: BlockScope = BlockScope.NONE
    skipped: tuple[Rung, ...] = ()
    without_spare: NoSpare | None = None


def choose_rung(
    crash: JobCrash,
    abilities: JobAbilities,
    *,
    above: Rung | None = None,
    spares: int | None = None,
    costs: NoSpareCosts | None = None,
) -> RungChoice | None:
    """Return the rung to begin; None if the ladder ends.

    Parameters
    ----------
    crash : JobCrash
    abilities : JobAbilities
    above : Rung, optional
        The hardest rung that failed.
    spares : int, optional
        Machines that could replace one; None: unknown, and taken for enough.
    costs : NoSpareCosts, optional
        Decide between several wishes without a spare; without them, the first wish counts.

    Examples
    --------
    >>> crash = JobCrash(0, FaultOrigin.EXPLICIT, "xid 79", "node-1")
    >>> able = JobAbilities(rungs=frozenset({Rung.REPLACE, Rung.REQUEUE}))
    >>> choice = choose_rung(crash, able)
    >>> choice.rung.value, choice.scope.value
    ('replace', 'cluster')
    >>> choose_rung(crash, able, above=Rung.REPLACE).rung.value
    'requeue'
    """
    if above is Rung.RESUBMIT:
        return None
    first = _first_rung(crash, abilities)
    least = first.rank if above is None else max(first.rank, above.rank + 1)
    needs_job = crash.hits_rank_zero and abilities.rank_zero_needs_job
    skipped = []
    without_spare = None
    for rung in list(Rung)[least:]:
        if rung is Rung.REPLACE and (needs_job or crash.machine is None):
            continue
        if rung is Rung.RESTART and needs_job and first is Rung.REPLACE:
            continue
        if not abilities.can(rung):
            skipped.append(rung)
            continue
        if rung is Rung.REPLACE and spares == 0:
            without_spare = _without_spare(abilities, costs)
            if without_spare is NoSpare.STAY:
                continue
        return _choice(crash, rung, tuple(skipped), without_spare, above)
    raise AssertionError("a person can always submit a job again")


def _first_rung(crash: JobCrash, abilities: JobAbilities) -> Rung:
    """Return where recovery begins, whether or not the job can do it.

    To restart in place on the machine that has the fault, the framework has to wait for its reset.
    """
    if crash.machine is None:
        return crash.rung or Rung.RESTART
    if crash.rung is None or (crash.rung is Rung.RESTART and not abilities.graceful):
        return Rung.REPLACE
    return crash.rung


def _without_spare(abilities: JobAbilities, costs: NoSpareCosts | None) -> NoSpare:
    wishes = abilities.without_spare or (NoSpare.WAIT,)
    losses = {} if costs is None else no_spare_losses(costs)
    if all(wish in losses for wish in wishes):
        return min(wishes, key=lambda wish: losses[wish])
    return wishes[0]


def _choice(
    crash: JobCrash,
    rung: Rung,
    skipped: tuple[Rung, ...],
    without_spare: NoSpare | None,
    above: Rung | None,
) -> RungChoice:
    stays = without_spare is NoSpare.STAY or (above is None and crash.rung is rung)
    scope = BlockScope.NONE if stays or rung.rank < Rung.REPLACE.rank else _SCOPES[crash.origin]
    reason = _REASONS[crash.origin].format(crash.machine)
    if above is not None:
        reason += f", and the rung {above} failed"
    if crash.hits_rank_zero and rung.rank >= Rung.REQUEUE.rank:
        reason += ", and rank 0 ran there"
    if without_spare is not None:
        reason += f", and no spare is there: {without_spare}"
    return RungChoice(rung, reason, scope, skipped, without_spare)
