"""State of a job's recovery, derived from what happened to it.

Nothing is stored but events: the same events in any order, also repeated, give the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from forewarn.features.time_units import Nanoseconds
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.recovery.job_crash import FaultOrigin, JobCrash, is_same_cause
from forewarn.response.state.rung import Rung

__all__ = [
    "CheckpointSaved",
    "RecoveryEvent",
    "RecoveryState",
    "RungBegun",
    "RungFailed",
    "StepMade",
    "recovery_state",
]


@dataclass(frozen=True, slots=True)
class CheckpointSaved:
    """A checkpoint that holds `step` steps; None: the job was asked to save, and did not."""

    at: Nanoseconds
    step: int | None


@dataclass(frozen=True, slots=True)
class StepMade:
    """Training has made a step."""

    at: Nanoseconds


@dataclass(frozen=True, slots=True)
class RungFailed:
    """The rung that was begun last is known to have failed."""

    at: Nanoseconds


@dataclass(frozen=True, slots=True)
class RungBegun:
    """A rung was begun, by forewarn or by another.

    Attributes
    ----------
    at : int
    rung : Rung
    is_observed : bool
        Seen in the life of the job, which may be the execution of a decision.
    """

    at: Nanoseconds
    rung: Rung
    is_observed: bool = False


RecoveryEvent: TypeAlias = CheckpointSaved | StepMade | JobCrash | RungFailed | RungBegun
_ORDER = (CheckpointSaved, StepMade, JobCrash, RungFailed, RungBegun)  # of events at one moment
_EVIDENCE = (FaultOrigin.NOT_ONE, FaultOrigin.IMPLICIT, FaultOrigin.EXPLICIT)  # weakest first


@dataclass(frozen=True, slots=True)
class RecoveryState:
    """What is known of a job's recovery.

    Attributes
    ----------
    retries_left : int
    crash : JobCrash or None
        The interruption that is not over: no step was made since.
    tried : tuple of RungBegun
        For this interruption, each harder than the one before unless another has begun it.
    is_failed : bool
        Whether the last rung is known to have failed.
    retries : tuple of int
        Times of restarts for unknown causes.
    furthest_saved : int
        Steps in the furthest checkpoint so far.
    suspected : tuple of JobCrash
        Earlier interruptions by a machine that was only suspected.
    damaged : frozenset of str
        Machines that were damaged during this interruption.
    """

    retries_left: int
    crash: JobCrash | None = None
    tried: tuple[RungBegun, ...] = ()
    is_failed: bool = False
    retries: tuple[Nanoseconds, ...] = ()
    furthest_saved: int = 0
    suspected: tuple[JobCrash, ...] = ()
    damaged: frozenset[str] = frozenset()

    @property
    def hardest(self) -> Rung | None:
        """The hardest rung that was tried for this interruption."""
        return max((begun.rung for begun in self.tried), key=lambda rung: rung.rank, default=None)

    def advance(self, event: RecoveryEvent, rules: LadderRules) -> RecoveryState:
        """Return the state after an event that is not earlier than those before it."""
        if isinstance(event, CheckpointSaved):
            return self._saved(event, rules)
        if isinstance(event, JobCrash):
            return self._crashed(event, rules)
        if self.crash is None:
            return self
        if isinstance(event, StepMade):
            return replace(self, crash=None, tried=(), is_failed=False, damaged=frozenset())
        if isinstance(event, RungFailed):
            return replace(self, is_failed=bool(self.tried))
        return self._begun(event, self.crash, rules)

    def _saved(self, saved: CheckpointSaved, rules: LadderRules) -> RecoveryState:
        """Return a retry for progress beyond the furthest checkpoint."""
        if saved.step is None or saved.step <= self.furthest_saved:
            return self
        left = min(rules.retries, self.retries_left + 1)
        return replace(self, furthest_saved=saved.step, retries_left=left)

    def _crashed(self, crash: JobCrash, rules: LadderRules) -> RecoveryState:
        crash, suspected = self._attributed(crash, rules)
        damaged = {crash.machine} if crash.origin is FaultOrigin.EXPLICIT and crash.machine else ()
        state = replace(self, suspected=suspected, damaged=self.damaged.union(damaged))
        if self.crash is None:
            return replace(state, crash=crash)
        if state.damaged > self.damaged:  # another machine: an interruption of its own
            return replace(state, crash=crash, tried=(), is_failed=False)
        ranks = [_EVIDENCE.index(each.origin) for each in (self.crash, crash)]
        stronger = crash if ranks[1] > ranks[0] else self.crash
        return replace(state, crash=stronger, is_failed=bool(self.tried))

    def _attributed(
        self, crash: JobCrash, rules: LadderRules
    ) -> tuple[JobCrash, tuple[JobCrash, ...]]:
        """Return the crash, without its machine if the same cause was seen on another machine."""
        recent = tuple(each for each in self.suspected if each.at > crash.at - rules.within)
        if crash.origin is not FaultOrigin.IMPLICIT:
            return crash, recent
        elsewhere = any(
            is_same_cause(each.cause, crash.cause) and each.machine != crash.machine
            for each in recent
        )
        if elsewhere:
            plain = replace(crash, origin=FaultOrigin.NOT_ONE, machine=None, hits_rank_zero=False)
            return plain, (*recent, crash)
        return crash, (*recent, crash)

    def _begun(self, begun: RungBegun, crash: JobCrash, rules: LadderRules) -> RecoveryState:
        """Count a restart for an unknown cause; who submits again gets all of them."""
        if begun.is_observed and self.tried and not self.is_failed:
            return replace(self, tried=(*self.tried[:-1], replace(self.tried[-1], at=begun.at)))
        state = replace(self, tried=(*self.tried, begun), is_failed=False)
        if begun.rung is Rung.RESUBMIT:
            return replace(state, retries_left=rules.retries)
        if crash.origin is FaultOrigin.EXPLICIT:
            return state
        recent = (at for at in self.retries if at > begun.at - rules.within)
        left = max(0, self.retries_left - 1)
        return replace(state, retries=(*recent, begun.at), retries_left=left)


def recovery_state(events: Iterable[RecoveryEvent], rules: LadderRules) -> RecoveryState:
    """Return the state after events in any order; an event that comes twice counts once."""
    state = RecoveryState(rules.retries)
    for event in sorted(set(events), key=_event_order):
        state = state.advance(event, rules)
    return state


def _event_order(event: RecoveryEvent) -> tuple[int, int, str]:
    return event.at, _ORDER.index(type(event)), repr(event)
