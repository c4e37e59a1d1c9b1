"""Replay of a policy and its limits over the history of a fleet."""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import partial
from itertools import count
from typing import Any

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.decision.decide import decide, make_action, rests_on_certain_damage, urgency
from forewarn.response.decision.group_wait import group_wait_ends_at
from forewarn.response.decision.situation import Situation
from forewarn.response.decision.usable_findings import find_answering_action, usable_until
from forewarn.response.follow_up.outcome_assessment import assess_outcome, can_close
from forewarn.response.follow_up.release import release_due_at
from forewarn.response.grouping.shared_incidents import shared_incidents
from forewarn.response.policy.policy import Policy
from forewarn.response.replay.fleet_history import (
    FleetHistory,
    PastFailure,
    PastFinding,
    failure_ground_truth,
)
from forewarn.response.replay.replay_decision import ReplayAction, ReplayDecision
from forewarn.response.replay.replay_fleet import ReplayFleet
from forewarn.response.replay.replay_incidents import ReplayIncidents
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.pool import Pool
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import Step

__all__ = ["ReplayRules", "ReplayRun", "known_order", "replay"]


@dataclass(frozen=True, slots=True)
class ReplayRules:
    """Configuration of a replay.

    Attributes
    ----------
    policy : Policy
    pools : mapping of str to Pool
    out_for : int
        Nanoseconds that a machine is out of service if no repair is known.
    others_after : int
        Nanoseconds from a known failure to the external drain of its machine.
    settings : ResponseSettings
    """

    policy: Policy
    pools: Mapping[str, Pool]
    out_for: Nanoseconds = DAY
    others_after: Nanoseconds = HOUR
    settings: ResponseSettings = field(default_factory=ResponseSettings)


def replay(past: FleetHistory, rules: ReplayRules) -> list[ReplayDecision]:
    """Return the decisions in the order in which they would have been made.

    Each decision uses only what was known at its time. Decisions do not change the history: a
    drained machine fails as it did.
    """
    return ReplayRun(past, rules).decisions()


class _EventOrder(IntEnum):
    """Order of simultaneous events."""

    BACK = 0
    FINDING = 1
    FAILURE = 2
    LOOK = 3


class ReplayRun:
    """Event-driven replay of the loop; moments that cannot change a decision are skipped."""

    def __init__(self, past: FleetHistory, rules: ReplayRules) -> None:
        self._past, self._rules = past, rules
        self._fleet = ReplayFleet(past, rules.out_for)
        self.incidents = ReplayIncidents(self._fleet.machines)
        self._numbers = count()
        self._events: list[tuple[int, _EventOrder, int, object]] = []
        self._scheduled: set[tuple[int, str]] = set()
        for known in sorted(past.findings, key=known_order):  # independent of the input order
            self._push(known.known_at, _EventOrder.FINDING, known.finding)
        for failure in sorted(past.failures, key=_failed):
            self._push(failure.known_at + rules.others_after, _EventOrder.FAILURE, failure)
            self._schedule(failure.known_at, failure.machine)
        self._ground_truth = failure_ground_truth(past.failures)
        self._blocked: dict[int, Decision] = {}
        self.rows: list[ReplayDecision] = []
        self._ends: dict[int, Nanoseconds] = {}

    def _push(self, at: int, order: _EventOrder, what: object) -> None:
        heapq.heappush(self._events, (at, order, next(self._numbers), what))

    def _schedule(self, at: int, machine: str) -> None:
        """Schedule a look at the incidents of a machine."""
        if (at, machine) not in self._scheduled:
            self._scheduled.add((at, machine))
            self._push(at, _EventOrder.LOOK, machine)

    def decisions(self) -> list[ReplayDecision]:
        """Replay to the end of the history."""
        while self._events and self._events[0][0] <= self._past.end:
            self._step(Nanoseconds(self._events[0][0]))
        return [self._as_it_ended(row) for row in self.rows]

    def _as_it_ended(self, row: ReplayDecision) -> ReplayDecision:
        if row.taken is None:
            return row
        return replace(row, taken=replace(row.taken, until=self._ends[row.taken.action.id]))

    def _step(self, now: Nanoseconds) -> None:
        """Apply the events of one moment, decide, and close finished incidents."""
        moment = defaultdict[_EventOrder, list[Any]](list)
        while self._events and self._events[0][0] == now:
            _, order, _, what = heapq.heappop(self._events)
            moment[order].append(what)
        machines = set[str](moment[_EventOrder.LOOK])
        self._scheduled -= {(now, machine) for machine in machines}
        ended = [action for what in moment[_EventOrder.BACK] for action in self._end(what, now)]
        findings = self.incidents.record_findings(moment[_EventOrder.FINDING], now)
        for failure in moment[_EventOrder.FAILURE]:
            self._push(self._fleet.take_out(failure, now), _EventOrder.BACK, failure)
        machines |= {finding.machine for finding in findings} | {what.machine for what in ended}
        machines |= self._share(findings, ended, now)
        incidents = self.incidents.of_machines(machines)
        incidents += [i for i in self._unblocked(ended) if i.machine not in machines]
        self._decide(incidents, now)
        for incident in incidents:
            self._close(incident.id, now)

    def _end(
        self, what: ReplayAction | PastFailure, now: Nanoseconds
    ) -> list[Action | PastFailure]:
        """End an action or a failure, and return it; an action may be extended instead."""
        if isinstance(what, PastFailure):
            self._fleet.repair(what.machine, now)
            return [what]
        end = self._ends_at(what.action)
        if end > now:
            self._push(end, _EventOrder.BACK, what)
            return []
        released = self._fleet.release(what.action.id, now)
        self.incidents.act(released)
        return [released]

    def _ends_at(self, action: Action) -> Nanoseconds:
        over = release_due_at(action, self.incidents[action.incident])
        self._ends[action.id] = self._fleet.ends_at(action, over)
        return self._ends[action.id]

    def _share(
        self,
        findings: Iterable[Finding],
        ended: Iterable[Action | PastFailure],
        now: Nanoseconds,
    ) -> set[str]:
        """Merge the incidents of each shared event; return the machines concerned."""
        settings = self._rules.settings
        is_back = any(isinstance(what, Action) and what.step.isolates for what in ended)
        if not is_back and not self.incidents.may_be_event(findings, settings):
            return set()
        incidents = self.incidents.all_open()
        events = shared_incidents(incidents, self._fleet.machines, settings=settings, now=now)
        joining = {self.incidents[part].machine for event in events for part in event.incidents}
        return joining | {self.incidents.share(event, now).machine for event in events}

    def _unblocked(self, ended: Sequence[Action | PastFailure]) -> list[Incident]:
        """Return the blocked incidents that a returned machine may unblock.

        While the limits are reached even without it, its return unblocks nothing.
        """
        isolating = [what for what in ended if isinstance(what, PastFailure) or what.step.isolates]
        pools = self._rules.pools.values()
        unblocked = {
            certain
            for certain in (True, False)
            if isolating and not all(self._fleet.full(pool, certain=certain) for pool in pools)
        }
        blocked = [(self.incidents[number], d) for number, d in self._blocked.items()]
        return [
            incident
            for incident, decision in blocked
            if incident.state is IncidentState.OPEN
            if (decision.step is Step.AVOID and len(isolating) < len(ended))
            or rests_on_certain_damage(decision, incident) in unblocked
        ]

    def _decide(self, incidents: Iterable[Incident], now: Nanoseconds) -> None:
        """Decide about incidents, the most severe first."""
        situation = self._situation(now)
        for incident in sorted(incidents, key=partial(urgency, policy=self._rules.policy)):
            self._blocked.pop(incident.id, None)
            ends = [usable_until(finding, situation) for finding in incident.findings]
            later = [end for end in ends if end > now]
            done = {action.step for action in incident.actions if action.open}
            if any(step.isolates for step in done) or not (later or incident.shared):
                continue
            decision = decide(incident, situation)
            before = incident.decision
            answered = decision.ruling is Ruling.HOLD and decision.step in done
            if not answered and (before is None or _content(decision) != _content(before)):
                self._note(incident, decision, situation)
                if decision.ruling is Ruling.ACT:
                    situation = replace(situation, recent=self._fleet.recent(now))
            if decision.step.isolates:  # its drain mode may change then
                waits = [
                    group_wait_ends_at(f, incident, situation, full=True) for f in incident.findings
                ]
                later += [wait for wait in waits if wait > now]
            if decision.until is not None and decision.until > now:
                later.append(decision.until)
            elif decision.ruling is Ruling.HOLD:
                self._blocked[incident.id] = decision
            if later:
                self._schedule(min(later), incident.machine)

    def _situation(self, now: Nanoseconds) -> Situation:
        return Situation(
            now=now,
            fleet=self._fleet.machines,
            pools=self._rules.pools,
            policy=self._rules.policy,
            open=self.incidents.open,
            recent=self._fleet.recent(now),
            settings=self._rules.settings,
            returned_at=self._fleet.returned_at,
            observation_index=self.incidents.observations,
        )

    def _close(self, number: int, now: Nanoseconds) -> None:
        """Close an incident with a known outcome and no open action."""
        incident, settings = self.incidents[number], self._rules.settings
        assessment = assess_outcome(
            incident,
            ground_truth=self._ground_truth[incident.machine],
            service=(),
            settings=settings,
            now=now,
        )
        if assessment is not None and can_close(incident, now):
            self.incidents.close(number, now)
            self._blocked.pop(number, None)
            return
        horizon = max(finding.valid_until for finding in incident.findings)
        for end in (horizon, horizon + settings.known_late):
            if end > now:
                self._schedule(end, incident.machine)

    def _note(self, incident: Incident, decision: Decision, situation: Situation) -> None:
        """Record a decision, and take its action."""
        by_key = {f.key: f for f in incident.findings}
        supporting = tuple(by_key[key] for key in decision.findings if key in by_key)
        done = decision.ruling is Ruling.HOLD and self._done(
            decision, incident, supporting, situation
        )
        self.incidents.put(replace(incident, decision=decision))
        taken = self._act(incident, decision, supporting) if decision.ruling is Ruling.ACT else None
        cause = (supporting or incident.findings)[0].cause
        row = ReplayDecision(decision, incident.machine, incident.gpu_serial, cause, done, taken)
        self.rows.append(row)

    def _done(
        self,
        decision: Decision,
        incident: Incident,
        supporting: Sequence[Finding],
        situation: Situation,
    ) -> bool:
        """Tell whether a step is blocked because it was done already, or drained externally."""
        name, isolates = incident.machine, decision.step.isolates
        machine = situation.fleet.get(name)
        active = [action for action in situation.recent if action.machine == name and action.open]
        return (
            (machine is not None and machine.out)
            or any(action.step is decision.step for action in active)
            or find_answering_action(name, supporting, situation.recent, isolates=isolates)
            is not None
            or all(f.last_reported < situation.returned_at.get(name, 0) for f in supporting)
        )

    def _act(
        self, incident: Incident, decision: Decision, supporting: tuple[Finding, ...]
    ) -> ReplayAction:
        machine = self._fleet.machines[incident.machine]
        action = self._fleet.apply(make_action(decision, incident, machine, decision.at))
        self.incidents.act(action)
        taken = ReplayAction(action, incident.gpu_serial, supporting, self._ends_at(action))
        self._push(taken.until, _EventOrder.BACK, taken)
        return taken


def _content(decision: Decision) -> tuple[object, ...]:
    """Return the part of a decision that a replay reports."""
    return (decision.ruling, decision.step, decision.mode, decision.severity, decision.reason)


def known_order(known: PastFinding) -> tuple[int, str, str, str, str, str]:
    """Return the sort key of findings: the time they became known, then their identity."""
    finding = known.finding
    gpu = finding.gpu_serial or ""
    names = (finding.machine, gpu, finding.source, finding.id)
    return (known.known_at, *names, repr(finding))  # repeats at one moment may differ


def _failed(failure: PastFailure) -> tuple[int, str]:
    return (failure.known_at, repr(failure))
