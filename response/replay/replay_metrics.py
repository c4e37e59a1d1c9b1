"""Metrics of a replay: drains, their outcomes, and simple baselines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from forewarn.features.time_units import HOUR, Nanoseconds
from forewarn.response.replay.fleet_history import FleetHistory, PastFailure
from forewarn.response.replay.replay_decision import ReplayAction, ReplayDecision
from forewarn.response.replay.replay_fleet import ReplayFleet
from forewarn.response.replay.replay_outcome import OutcomeJudge, ReplayOutcome
from forewarn.response.state.action import Action
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Outcome
from forewarn.response.state.step import DrainMode, Step

__all__ = [
    "BlockedDrain",
    "DrainMetrics",
    "every_xid_baseline",
    "find_blocked_drains",
    "isolating_actions",
    "measure_drains",
    "random_baseline",
]


@dataclass(frozen=True, slots=True)
class DrainMetrics:
    """Outcomes of drains.

    Attributes
    ----------
    drains, machines : float
        Number of drains, and of different machines.
    rightly, wrongly, unknown : float
        The GPU failed within the horizon or had failed before; it did not; unknown. Expected
        numbers for random drains.
    ahead : float or None
        Drains of `rightly` that came before the failure.
    at_once : int or None
        Largest number at one time.
    machine_hours : float
        Hours out of service.
    caught : float or None
        Failures of machines that were drained before.
    """

    drains: float
    machines: float | None
    rightly: float
    wrongly: float
    unknown: float
    ahead: float | None
    at_once: int | None
    machine_hours: float
    caught: float | None


@dataclass(frozen=True, slots=True)
class BlockedDrain:
    """Incident whose drain was blocked until the end.

    Attributes
    ----------
    row : ReplayDecision
        The last blocked decision.
    judged : ReplayOutcome
    """

    row: ReplayDecision
    judged: ReplayOutcome


def isolating_actions(rows: Iterable[ReplayDecision]) -> list[ReplayAction]:
    """Return the actions that would have drained a machine."""
    return [row.taken for row in rows if row.taken and row.taken.action.step.isolates]


def find_blocked_drains(
    rows: Iterable[ReplayDecision], judge: OutcomeJudge, past: FleetHistory
) -> list[BlockedDrain]:
    """Return the drains that were blocked until the end."""
    stated = sorted((known.finding for known in past.findings), key=lambda f: f.count > 0)
    findings = {f.key: f for f in stated}  # the end of a finding, of count 0, replaces none
    last: dict[int, ReplayDecision] = {}
    done: set[int] = set()
    for row in rows:
        if row.decision.step.isolates:
            number = row.decision.incident
            if row.done or row.taken:
                done.add(number)
            elif row.blocked_by is not None:
                last[number] = row
    return [
        BlockedDrain(row, judge.outcome([findings[key] for key in row.decision.findings]))
        for number, row in last.items()
        if number not in done
    ]


def measure_drains(
    taken: Sequence[ReplayAction], judge: OutcomeJudge, past: FleetHistory
) -> DrainMetrics:
    """Return the metrics of some drains."""
    judged = [(action, judge.outcome(action.findings)) for action in taken]
    counts = {outcome: sum(j.outcome is outcome for _, j in judged) for outcome in Outcome}
    return DrainMetrics(
        drains=len(taken),
        machines=len({t.action.machine for t in taken}),
        rightly=counts[Outcome.CONFIRMED],
        wrongly=counts[Outcome.NOT_CONFIRMED],
        unknown=counts[Outcome.UNKNOWN],
        ahead=sum(j.failed_at is not None and t.action.at < j.failed_at for t, j in judged),
        at_once=_most_at_once(taken),
        machine_hours=sum(_hours(t, past) for t in taken),
        caught=sum(_caught(failure, taken) for failure in past.failures),
    )


def _hours(taken: ReplayAction, past: FleetHistory) -> float:
    return max(0, min(taken.until, past.end) - taken.action.at) / HOUR


def _most_at_once(taken: Sequence[ReplayAction]) -> int:
    changes = [(t.action.at, 1) for t in taken] + [(t.until, -1) for t in taken]
    out = most = 0
    for _, change in sorted(changes):
        out += change
        most = max(most, out)
    return most


def _caught(failure: PastFailure, taken: Iterable[ReplayAction]) -> bool:
    return any(
        t.action.machine == failure.machine and t.action.at < failure.failed_at <= t.until
        for t in taken
    )


# --- baselines ------------------------------------------------------------------------------------


def every_xid_baseline(past: FleetHistory, out_for: Nanoseconds) -> list[ReplayAction]:
    """Return the drains of a policy that drains at each Xid, without limits."""
    fleet = ReplayFleet(past, out_for)
    until: dict[str, int] = {}
    taken: list[ReplayAction] = []
    xids = [known for known in past.findings if known.finding.kind is FindingKind.XID]
    for known in sorted(xids, key=lambda k: (k.known_at, k.finding.id)):
        machine = known.finding.machine
        if known.known_at >= until.get(machine, 0):
            action = _drain(known.finding, known.known_at, len(taken) + 1)
            end = fleet.ends_at(action, None)
            until[machine] = end
            taken.append(ReplayAction(action, known.finding.gpu_serial, (known.finding,), end))
    return taken


def _drain(finding: Finding, at: Nanoseconds, number: int) -> Action:
    return Action(
        id=number,
        incident=number,
        machine=finding.machine,
        pool="",
        rack=None,
        job=None,
        cause=finding.cause,
        step=Step.DRAIN,
        mode=DrainMode.FINISH,
        at=at,
        valid_until=finding.valid_until,
        changed_at=at,
    )


def random_baseline(
    number: int, past: FleetHistory, horizon: Nanoseconds, out_for: Nanoseconds
) -> DrainMetrics | None:
    """Return the expected metrics of as many drains of random GPUs at random times.

    Returns
    -------
    DrainMetrics or None
        None if no GPU is known, or the history is shorter than the horizon.
    """
    last = past.end - horizon
    room = len(past.gpus) * (last - past.start)
    if room <= 0 or not past.failures_known:
        return None
    hits = sum(
        max(0, min(f.failed_at, last) - max(f.failed_at - horizon, past.start))
        for f in past.failures
        if f.gpu_serial in past.gpus
    )
    rightly = number * min(1.0, hits / room)
    return DrainMetrics(
        drains=number,
        machines=None,
        rightly=rightly,
        wrongly=number - rightly,
        unknown=0.0,
        ahead=rightly,
        at_once=None,
        machine_hours=number * out_for / HOUR,
        caught=rightly,
    )
