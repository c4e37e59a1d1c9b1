"""Settings of the response core: waiting times and thresholds of the safety interlocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND, Nanoseconds

__all__ = ["ResponseSettings"]

_GROUP_WAIT: Final = Nanoseconds(15 * MINUTE)
_QUIET: Final = Nanoseconds(2 * MINUTE)
_SKEW: Final = SECOND
_AHEAD: Final = Nanoseconds(5 * MINUTE)
_OVERRIDE_SPAN: Final = Nanoseconds(7 * DAY)
_LIST_EVERY: Final = Nanoseconds(26 * HOUR)
_DRIFT_EVERY: Final = Nanoseconds(7 * DAY)
_LOOP_EVERY: Final = Nanoseconds(15 * MINUTE)


@dataclass(frozen=True, slots=True)
class ResponseSettings:
    """Settings of a site in addition to pools and policy. All spans are nanoseconds.

    Attributes
    ----------
    group_wait : int
        Findings on many machines within it are one event. A machine under a job of several machines
        is drained only when its finding is this old, because related findings may follow.
    job_timeouts : mapping of str to int
        Collective time-out of a job, which replaces `group_wait`.
    quiet : int
        The wait for a machine without such a job.
    many : int
        Number of machines of one job, rack or switch that form one event.
    many_of_fleet : int
        The same for one cause on machines that share nothing known, such as after the end of a job.
    skew, skews : int and mapping of str to int
        Largest clock error, of any machine and of named machines.
    ahead : int
        A finding that lies further in the future is not acted on.
    max_age : int
        Older findings are not acted on, even if the policy allows it.
    override_span : int
        How long an overridden cause does not act on its machine.
    salt : str
        Salt of the holdout assignment. With a secret salt the assignment cannot be predicted.
    overrides_a_day : int
        This many overrides within a day trip an interlock.
    max_list_ratio : float
        Predictions of a list this many times as long as usual are only observed.
    first_day : int
        How long a new policy, and findings of a new model, are only observed.
    list_every, loop_every : int
        A list or a call of the loop that is later than this raises an alert.
    drift_every : int
        An older drift report blocks no predictions, and raises an alert.
    high_outage_share : float
        An alert is raised if a larger share of a pool's machines is out, for any reason.
    keep_drained : bool
        A machine that was drained for a prediction stays out after the horizon until a person
        returns it to service.
    known_late : int
        Longest delay until a failure becomes known.
    min_load : float
        Share of a horizon in which a machine must have run jobs to count as under load.
    max_unseen : int
        Longest gap between observations in which a machine still counts as in service.
    """

    group_wait: Nanoseconds = _GROUP_WAIT
    job_timeouts: Mapping[str, Nanoseconds] = field(default_factory=dict)
    quiet: Nanoseconds = _QUIET
    many: int = 3
    many_of_fleet: int = 10
    skew: Nanoseconds = _SKEW
    skews: Mapping[str, Nanoseconds] = field(default_factory=dict)
    ahead: Nanoseconds = _AHEAD
    max_age: Nanoseconds = DAY
    override_span: Nanoseconds = _OVERRIDE_SPAN
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
        """Return the group wait of a job: its collective time-out, or the default."""
        return self.group_wait if job is None else self.job_timeouts.get(job, self.group_wait)
