"""Replay: what a policy and its limits would have decided, walking through the past."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import count

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.decision.decide import action_of, decide
from forewarn.response.decision.evidence import answer
from forewarn.response.decision.situation import Situation
from forewarn.response.grouping.shared_incidents import over_at
from forewarn.response.policy.policy import Policy
from forewarn.response.replay.past import Past, PastFailure, PastFinding
from forewarn.response.replay.past_fleet import PastFleet
from forewarn.response.replay.past_incidents import PastIncidents
from forewarn.response.replay.replayed import Replayed, Taken
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Incident
from forewarn.response.state.pool import Pool
from forewarn.response.state.settings import ResponseSettings
from forewarn.response.state.step import Step

__all__ = ["Rules", "replay"]


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides in a replay.

    Attributes
    ----------
    policy : Policy
    pools : mapping of str to Pool
    out_for : int
        Nanoseconds that a machine is out of service where no repair is known.
    others_after : int
        Nanoseconds after which others would have taken out a machine of which they know that a
        GPU has failed.
    settings : ResponseSettings
    """

    policy: Policy
    pools: Mapping[str, Pool]
    out_for: Nanoseconds = DAY
    others_after: Nanoseconds = HOUR
    settings: ResponseSettings = field(default_factory=ResponseSettings)


def replay(past: Past, rules: Rules) -> list[Replayed]:
    """Return the decisions in the order in which they would have been made.

    At each moment only what was known by then counts. Nothing that is decided changes what
    happens: a machine that is drained fails as it did.
    """
    return _Walk(past, rules).decisions()


class _Order(IntEnum):
    """What comes first of one moment."""

    BACK = 0
    FINDING = 1
    FAILURE = 2
    WAKE = 3


@dataclass(frozen=True, slots=True)
class _Repaired:
    machine: str


@dataclass(frozen=True, slots=True)
class _Over:
    """A shared incident may be over."""

    incident: int


class _Walk:
    """Decisions while time goes on."""

    def __init__(self, past: Past, rules: Rules) -> None:
        self._past, self._rules = past, rules
        self._fleet = PastFleet(past, rules.out_for)
        self._incidents = PastIncidents(rules.policy, rules.settings)
        self._numbers = count()
        self._events: list[tuple[int, _Order, int, object]] = []
        for known in sorted(past.findings, key=_heard_at):  # not by who was heard first
            self._push(known.known_at, _Order.FINDING, known)
        for failure in sorted(past.failures, key=_failed):
            self._push(failure.known_at + rules.others_after, _Order.FAILURE, failure)
        self._waiting: dict[int, tuple[str, Step]] = {}
        self._rows: list[Replayed] = []

    def _push(self, at: int, order: _Order, what: object) -> None:
        heapq.heappush(self._events, (at, order, next(self._numbers), what))

    def decisions(self) -> list[Replayed]:
        """Walk to the end of the past."""
        day = 0
        while self._events and self._events[0][0] <= self._past.end:
            now = Nanoseconds(self._events[0][0])
            if now // DAY > day:
                day = now // DAY
                self._incidents.close_stale(now)
            self._step(now)
        return self._rows

    def _step(self, now: Nanoseconds) -> None:
        """Let happen what happens at one moment, and decide."""
        touched: set[int] = set()
        failures: list[PastFailure] = []
        woken: set[int] = set()
        ended: list[Action | _Repaired] = []
        while self._events and self._events[0][0] == now:
            what = heapq.heappop(self._events)[3]
            if isinstance(what, PastFinding):
                touched.add(self._incidents.take(what.finding, now))
            elif isinstance(what, PastFailure):
                failures.append(what)
            elif isinstance(what, int):
                woken.add(what)
            else:
                ended += self._end(what, now)
        if touched:
            touched |= self._share(now)
        self._decide(touched, now)
        for failure in failures:
            back = self._fleet.take_out(failure, now)
            self._push(back, _Order.BACK, _Repaired(failure.machine))
        self._decide((woken | self._freed(ended)) - touched, now)

    def _share(self, now: Nanoseconds) -> set[int]:
        """Make one incident of each event on many machines; return their numbers."""
        shared = self._incidents.share(self._fleet.machines, now)
        for number, over in shared:
            self._push(max(over, now), _Order.WAKE, _Over(number))
        return {number for number, _ in shared}

    def _end(self, what: object, now: Nanoseconds) -> list[Action | _Repaired]:
        """Let an action, a failure or a shared incident end; return what frees a machine."""
        if isinstance(what, _Repaired):
            self._repair(what.machine)
            return [what]
        if isinstance(what, Taken):
            released = self._fleet.release(what.action.id, now)
            self._incidents.act(released)
            if released.step.isolates:
                self._incidents.close(released.incident)
            return [released]
        if isinstance(what, _Over):
            shared = self._incidents.get(what.incident)
            if shared is not None and over_at(shared, self._rules.settings, now) <= now:
                self._incidents.close(shared.id)
        return []

    def _freed(self, ended: list[Action | _Repaired]) -> set[int]:
        """Return the waiting incidents for which something may have changed.

        While as many machines are out as may be, one that is back helps nobody else.
        """
        names = {what.machine for what in ended}
        avoided = any(isinstance(what, Action) and not what.step.isolates for what in ended)
        back = any(isinstance(what, _Repaired) or what.step.isolates for what in ended)
        every = back and not all(self._fleet.full(pool) for pool in self._rules.pools.values())
        return {
            number
            for number, (machine, step) in self._waiting.items()
            if every or machine in names or (avoided and step is Step.AVOID)
        }

    def _repair(self, name: str) -> None:
        """Let others give a machine back: what was known by then is answered."""
        self._fleet.repair(name)
        machine = self._fleet.machines.get(name)
        if machine is not None and not machine.out:
            for incident in list(self._incidents.open.get(name, ())):
                if not incident.shared:
                    self._incidents.close(incident.id)

    def _decide(self, numbers: Iterable[int], now: Nanoseconds) -> None:
        """Decide on incidents, the gravest first: it takes the last machine that may go."""
        incidents = [self._incidents.get(number) for number in numbers]
        for incident in sorted(filter(None, incidents), key=self._urgency):
            self._waiting.pop(incident.id, None)
            isolated = any(a.open and a.step.isolates for a in incident.actions)
            if isolated or not self._incidents.live(incident, now):
                continue
            decision = decide(incident, self._situation(now))
            before = incident.decision
            if before is None or _content(decision) != _content(before):
                self._note(incident, decision)
            if decision.ruling is Ruling.HOLD or decision.until is not None:
                self._wait(incident, decision)

    def _urgency(self, incident: Incident) -> tuple[int, float, str, str, int]:
        rules = [self._rules.policy.rule(finding) for finding in incident.findings]
        likely = [finding.evidence.get("probability") or 0.0 for finding in incident.findings]
        subject = (incident.machine, incident.gpu_serial or "", incident.id)
        return (-max(rule.severity.rank for rule in rules), -max(likely), *subject)

    def _situation(self, now: Nanoseconds) -> Situation:
        return Situation(
            now=now,
            fleet=self._fleet.machines,
            pools=self._rules.pools,
            policy=self._rules.policy,
            open=self._incidents.open,
            recent=self._fleet.recent(now),
            settings=self._rules.settings,
        )

    def _wait(self, incident: Incident, decision: Decision) -> None:
        """Decide again when the reason may be over, or when a machine comes back."""
        if decision.until is None:
            self._waiting[incident.id] = (incident.machine, decision.step)
        elif decision.until > decision.at:
            self._push(decision.until, _Order.WAKE, incident.id)

    def _note(self, incident: Incident, decision: Decision) -> None:
        """Write a decision, and take its action."""
        by_key = {f.key: f for f in incident.findings}
        bearing = tuple(by_key[key] for key in decision.findings if key in by_key)
        done = self._done(incident, decision, bearing)
        self._incidents.put(replace(incident, decision=decision))
        taken = self._act(incident, decision, bearing) if decision.ruling is Ruling.ACT else None
        cause = (bearing or incident.findings)[0].cause
        row = Replayed(decision, incident.machine, incident.gpu_serial, cause, done, taken)
        self._rows.append(row)

    def _done(self, incident: Incident, decision: Decision, bearing: tuple[Finding, ...]) -> bool:
        """Tell whether a step is held back because of what was done already, by whomever."""
        if decision.ruling is not Ruling.HOLD:
            return False
        machine = self._fleet.machines.get(incident.machine)
        if machine is not None and machine.out:
            return True
        on_it = self._fleet.open_actions(incident.machine)
        if any(action.step is decision.step for action in on_it):
            return True
        recent = self._fleet.recent(decision.at)
        ended = answer(incident.machine, bearing, recent, isolates=decision.step.isolates)
        return ended is not None

    def _act(self, incident: Incident, decision: Decision, bearing: tuple[Finding, ...]) -> Taken:
        machine = self._fleet.machines[incident.machine]
        action = self._fleet.take(action_of(decision, incident, machine, decision.at))
        self._incidents.act(action)
        predicted = all(finding.predicts for finding in bearing)
        until = self._fleet.ends_at(action, predicted=predicted)
        taken = Taken(action, incident.gpu_serial, bearing, until)
        self._push(until, _Order.BACK, taken)
        return taken


def _content(decision: Decision) -> tuple[object, ...]:
    """Return what makes a decision another one."""
    return (decision.ruling, decision.step, decision.mode, decision.severity, decision.reason)


def _heard_at(known: PastFinding) -> tuple[int, str, str, str, str, str]:
    finding = known.finding
    gpu = finding.gpu_serial or ""
    names = (finding.machine, gpu, finding.source, finding.id)
    return (known.known_at, *names, repr(finding))  # repeats of one moment may differ


def _failed(failure: PastFailure) -> tuple[int, str]:
    return (failure.known_at, repr(failure))
