"""Settings of the core: how long it waits, and when it no longer trusts itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND, Nanoseconds

__all__ = ["ResponseSettings"]

_SETTLE: Final = Nanoseconds(15 * MINUTE)
_QUIET: Final = Nanoseconds(2 * MINUTE)
_SKEW: Final = SECOND
_AHEAD: Final = Nanoseconds(5 * MINUTE)
_REST: Final = Nanoseconds(7 * DAY)
_LIST_EVERY: Final = Nanoseconds(26 * HOUR)
_DRIFT_EVERY: Final = Nanoseconds(7 * DAY)
_LOOP_EVERY: Final = Nanoseconds(15 * MINUTE)


@dataclass(frozen=True, slots=True)
class ResponseSettings:
    """What a site may set, beside pools and policy. All spans are nanoseconds.

    Attributes
    ----------
    settle : int
        Findings on many machines within it are one event. A machine under a job of several
        machines is not taken out before its finding is so old: the others may still come.
    job_timeouts : mapping of str to int
        Collective time-out of a job, in the place of `settle`.
    quiet : int
        The same for a machine without such a job.
    many : int
        Machines of one job, rack or switch from which on they are one event.
    many_of_fleet : int
        The same for one cause on machines that share nothing that is known, as after a job has
        ended.
    skew, skews : int and mapping of str to int
        By how much a clock may be wrong, of any machine and of some.
    ahead : int
        A finding that lies further in the future is not acted on.
    max_age : int
        Nothing older is acted on, also where a policy would let it.
    override_rest : int
        How long an overridden cause does not act on its machine.
    salt : str
        Of the lots of the control share. A site's own, so that nobody can foresee a lot.
    overrides_a_day : int
        So many within a day: only observe.
    longest_list : float
        A list so many times as long as usual: its predictions are only observed.
    first_day : int
        How long a new policy, and what a new model says, is only observed.
    list_every, loop_every : int
        A list or a loop later than this raises an alert.
    drift_every : int
        A report of drift that is older brakes no longer, and raises an alert.
    many_out : float
        Share of the machines of a pool; if more are out, whoever took them out, an alert is raised.
    keep : bool
        A machine that was taken out for a prediction that did not come true stays out, and a
        person gives it back.
    known_late : int
        A failure may become known so long after it.
    least_load : float
        Share of a horizon in which a machine ran jobs, to have been under load.
    unseen : int
        Nobody need have seen a machine for so long to say that it was in service.
    """

    group_wait: Nanoseconds = _SETTLE
    job_timeouts: Mapping[str, Nanoseconds] = field(default_factory=dict)
    quiet: Nanoseconds = _QUIET
    many: int = 3
    many_of_fleet: int = 10
    skew: Nanoseconds = _SKEW
    skews: Mapping[str, Nanoseconds] = field(default_factory=dict)
    ahead: Nanoseconds = _AHEAD
    max_age: Nanoseconds = DAY
    override_span: Nanoseconds = _REST
    salt: str = ""
    overrides_a_day: int = 3
    max_list_ratio: float = 2.0
    first_day: Nanoseconds = DAY
    list_every: Nanoseconds = _LIST_EVERY
    loop_every: Nanoseconds = _LOOP_EVERY
    drift_every: Nanoseconds = _DRIFT_EVERY
    high_outage_share: float = 0.08
    keep_drained: bool = False
    known_late: Nanoseconds = DAY
    min_load: float = 0.8
    max_unseen: Nanoseconds = HOUR

    def group_wait_for(self, job: str | None) -> Nanoseconds:
        """Return how long the findings of one event of a job may lie apart."""
        return self.group_wait if job is None else self.job_timeouts.get(job, self.group_wait)
