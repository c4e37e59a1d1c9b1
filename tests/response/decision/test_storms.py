"""Storms: under random events no limit is exceeded, and no action is repeated.

A fleet in memory carries out actions, loses them, or applies them late. Meanwhile findings arrive,
some of them stale, people drain and undo, the scheduler and the loop are killed, and clocks jump.
The invariants are stated a second time here, as simply as possible.

`FOREWARN_STORMS=1000` runs a thousand storms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from forewarn.features.time_units import DAY, HOUR, MINUTE, Nanoseconds
from forewarn.response.decision.decide import decide, make_action, rests_on_certain_damage
from forewarn.response.decision.interlocks import (
    KillSwitchActivation,
    ResponderHealth,
    active_interlocks,
)
from forewarn.response.decision.limits import Blocker, find_blocker
from forewarn.response.decision.manual_override import Override
from forewarn.response.decision.situation import Approval, Situation, group_by_machine
from forewarn.response.follow_up.action_transition import DriverCall, TrackedAction
from forewarn.response.follow_up.reconcile import reconcile, stale_marks
from forewarn.response.follow_up.release import CheckVerdict, ReleaseMethod, decide_release
from forewarn.response.grouping.shared_incidents import shared_incidents
from forewarn.response.policy.policy import Policy
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.pool import Limits, Pool, PoolMode
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import DrainMode, Step

START = Nanoseconds(20_000 * DAY)
NO_SKEW = Nanoseconds(0)
LIMITS = Limits(share=0.2, machines=3, rack=1, job=2, cause=2, fleet_rate=4, killed_jobs=1)
POOLS = {
    "act": Pool("act", PoolMode.ACT, control=0.2, limits=LIMITS),
    "ask": Pool("ask", PoolMode.PROPOSE, limits=replace(LIMITS, machines=1)),
    "see": Pool("see", PoolMode.OBSERVE, limits=LIMITS),
}
SETTINGS = ResponseSettings(salt="storm", overrides_a_day=6)


# --- a policy -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StormRule:
    severity: Severity
    step: Step
    mode: DrainMode | None = None
    at_most: Step = Step.REPLACE
    max_age: Nanoseconds = DAY


RULES = {
    "xid 79": StormRule(Severity.CRITICAL, Step.REPLACE, DrainMode.DEADLINE),
    "xid 95": StormRule(Severity.ERROR, Step.DRAIN, DrainMode.NOW),
    "xid 45": StormRule(Severity.ERROR, Step.DRAIN, DrainMode.FINISH),
    "xid 63": StormRule(Severity.WARNING, Step.AVOID),
    "xid 13": StormRule(Severity.CRITICAL, Step.REPLACE, DrainMode.NOW, Step.AVOID),
    "check": StormRule(Severity.ERROR, Step.CHECK, DrainMode.DEADLINE),
    "blind": StormRule(Severity.CRITICAL, Step.REPLACE, DrainMode.NOW, Step.AVOID),
    "verdict": StormRule(Severity.CRITICAL, Step.REPLACE, DrainMode.NOW),
    "at_risk": StormRule(Severity.CRITICAL, Step.REPLACE, DrainMode.NOW),
}
KINDS = {
    "check": FindingKind.CHECK,
    "blind": FindingKind.BLIND,
    "verdict": FindingKind.VERDICT,
    "at_risk": FindingKind.AT_RISK,
}
CAUSES = tuple(RULES)
NEVER_DRAIN = {"xid 13", "blind", "verdict"}
CERTAIN = {"xid 79", "xid 95"}


@dataclass(frozen=True)
class StormChoice:
    severity: Severity
    step: Step
    mode: DrainMode | None
    reason: str
    findings: tuple[Finding, ...]
    needs_person: bool = False


class StormPolicy:
    """The most aggressive policy that a site could write, so that only the core limits it."""

    version = "p1"

    def rule(self, finding: Finding) -> StormRule:
        return RULES[finding.cause]

    def step_for(
        self,
        incident: Incident,
        other_incidents: Sequence[Incident],  # noqa: ARG002
        earlier: Sequence[Action],  # noqa: ARG002
        now: Nanoseconds,  # noqa: ARG002
    ) -> StormChoice:
        hardest = max(incident.findings, key=lambda f: (self.rule(f).step.rank, f.at, f.id))
        rule = self.rule(hardest)
        asking = tuple(f for f in incident.findings if self.rule(f).step is rule.step)
        return StormChoice(rule.severity, rule.step, rule.mode, hardest.cause, asking)


# --- the world ------------------------------------------------------------------------------------


class RefusedError(Exception):
    pass


class NoAnswerError(Exception):
    pass


class KilledError(Exception):
    """The loop was killed between two steps."""


@dataclass
class World:
    """Fleet with its scheduler, changed by people, faults and forewarn."""

    machines: dict[str, Machine]
    time: Nanoseconds = START
    controller: int = 1
    answers: list[str] = field(default_factory=list)
    late: list[Action] = field(default_factory=list)
    fresh: set[str] = field(default_factory=set)

    def read(self) -> dict[str, Machine]:
        return dict(self.machines)

    def apply(self, action: Action) -> None:
        answer = self.answers.pop() if self.answers else "done"
        if answer == "lost before":
            raise NoAnswerError
        if answer == "late":
            self.late.append(action)
            raise NoAnswerError
        self.do(action)
        if answer == "lost after":
            raise NoAnswerError

    def do(self, action: Action) -> None:
        machine = self.machines[action.machine]
        if action.step is Step.AVOID:
            self.machines[action.machine] = replace(machine, avoided=True)
        elif machine.out and machine.action != action.id:
            raise RefusedError
        elif not machine.out:
            state = ServiceState.DRAINING if machine.jobs else ServiceState.DRAINED
            reason = f"forewarn:{action.id} {action.cause}"
            self.machines[action.machine] = replace(machine, state=state, reason=reason)
            self.fresh.add(action.machine)

    def undo(self, action: Action) -> None:
        machine = self.machines[action.machine]
        if action.step is Step.AVOID:
            self.machines[action.machine] = replace(machine, avoided=False)
        elif machine.action == action.id:
            self.serve(action.machine)

    def serve(self, name: str) -> None:
        machine = self.machines[name]
        self.machines[name] = replace(machine, state=ServiceState.IN_SERVICE, reason="")

    def evict(self, name: str) -> None:
        machine = self.machines[name]
        state = ServiceState.DRAINED if machine.state is ServiceState.DRAINING else machine.state
        self.machines[name] = replace(machine, jobs=(), state=state)


def make_world() -> World:
    """Return 24 machines in six racks: 15 in mode act, 5 in mode propose, the others excluded."""
    pools = ["act"] * 15 + ["ask"] * 5 + ["see"] * 2 + [None] + ["act"]
    machines = {}
    for number, pool in enumerate(pools):
        job = "wide" if number < 10 else f"single-{number}" if number % 2 else None
        machines[f"n{number}"] = Machine(
            f"n{number}",
            ServiceState.IN_SERVICE,
            jobs=(job,) if job else (),
            gpus=0 if number == 23 else 8,
            pool=pool,
            rack=f"r{number // 4}",
            switch=f"s{number // 8}",
            boot="b1",
        )
    return World(machines)


# --- a ledger and a loop --------------------------------------------------------------------------


@dataclass
class Book:
    """Ledger in memory that checks the invariants at each write."""

    findings: dict[str, Finding] = field(default_factory=dict)
    incidents: dict[int, Incident] = field(default_factory=dict)
    actions: dict[int, Action] = field(default_factory=dict)
    remembered: dict[int, tuple[str, str, bool]] = field(default_factory=dict)
    rests_on: dict[int, tuple[Finding, ...]] = field(default_factory=dict)
    overrides: list[Override] = field(default_factory=list)
    approvals: dict[int, Approval] = field(default_factory=dict)
    proposals: dict[int, Decision] = field(default_factory=dict)
    checks: dict[str, CheckVerdict] = field(default_factory=dict)
    stopped: bool = False
    kills: list[tuple[Nanoseconds, str, int]] = field(default_factory=list)
    steps_left: int | None = None

    def step(self) -> None:
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.steps_left = None
                raise KilledError

    def record_findings(self, finding: Finding, now: Nanoseconds) -> None:
        known = self.findings.get(finding.id)
        if known is not None:
            last = Nanoseconds(max(known.last or known.at, finding.at))
            self.findings[finding.id] = replace(known, last=last, count=known.count + 1)
            for incident in list(self.incidents.values()):
                renewed = tuple(self.findings.get(f.id, f) for f in incident.findings)
                self.incidents[incident.id] = replace(incident, findings=renewed)
            return
        self.findings[finding.id] = finding
        for incident in self.open():
            if incident.machine == finding.machine and not incident.shared:
                findings = (*incident.findings, finding)
                self.incidents[incident.id] = replace(incident, findings=findings)
                return
        number = len(self.incidents) + 1
        self.incidents[number] = Incident(
            number, finding.machine, None, now, machines=(finding.machine,), findings=(finding,)
        )

    def open(self) -> list[Incident]:
        by_incident: dict[int, list[Action]] = {}
        for action in self.actions.values():
            by_incident.setdefault(action.incident, []).append(action)
        return [
            replace(incident, actions=tuple(by_incident.get(incident.id, ())))
            for incident in self.incidents.values()
            if incident.state is IncidentState.OPEN
        ]

    def share(self, now: Nanoseconds, fleet: dict[str, Machine]) -> None:
        for event in shared_incidents(self.open(), fleet, settings=SETTINGS, now=now):
            numbers = [*event.incidents, *([event.into] if event.into else [])]
            parts = [self.incidents[number] for number in numbers]
            for part in parts:
                self.incidents[part.id] = replace(part, state=IncidentState.CLOSED)
            number = len(self.incidents) + 1
            findings = {f.key: f for part in parts for f in part.findings}
            self.incidents[number] = Incident(
                number,
                event.machine,
                None,
                now,
                shared=event.shared,
                machines=event.machines,
                findings=tuple(findings.values()),  # each once, as in the ledger
            )

    def act(
        self,
        action: Action,
        incident: Incident,
        decision: Decision,
        check: Callable[[Sequence[Action]], Blocker | None],
        rules: Callable[[Action, tuple[Finding, ...]], None],
    ) -> Action | Blocker:
        held = check(list(self.actions.values()))
        if held is not None:
            return held
        keys = set(decision.findings)
        findings = tuple(f for f in incident.findings if f.key in keys)
        rules(action, findings)
        action = replace(action, id=len(self.actions) + 1)
        self.actions[action.id] = action
        self.rests_on[action.id] = findings
        return action

    def advance(self, action: Action, state: ActionState, now: Nanoseconds) -> Action:
        current = self.actions[action.id]
        assert current.version == action.version
        if state is current.state:
            return current
        changed = replace(current, state=state, changed_at=now, version=current.version + 1)
        self.actions[action.id] = changed
        if state is ActionState.OVERRIDDEN:
            severity = max(
                (RULES[f.cause].severity for f in self.rests_on[action.id]), key=lambda s: s.rank
            )
            self.overrides.append(Override(action.machine, action.cause, now, "", severity))
            incident = self.incidents[action.incident]
            if incident.state is IncidentState.OPEN:
                overridden = replace(incident, state=IncidentState.OVERRIDDEN)
                self.incidents[action.incident] = overridden
        return changed


@dataclass
class Loop:
    """Repeated calls of `respond --once`."""

    world: World
    ledger: Book
    skew: Nanoseconds = NO_SKEW
    jumps: list[Nanoseconds] = field(default_factory=list)

    @property
    def now(self) -> Nanoseconds:
        return Nanoseconds(self.world.time + self.skew)

    def once(self) -> None:
        try:
            self._reconcile()
            self.ledger.share(self.now, self.world.read())
            self._decide()
            self._release()
        except KilledError:
            pass

    def _reconcile(self) -> None:
        world, ledger, fleet = self.world, self.ledger, self.world.read()
        for machine in stale_marks(
            fleet.values(), [a.id for a in ledger.actions.values() if a.open]
        ):
            world.undo(ledger.actions[machine.action or 0])
        watched = [
            TrackedAction(action, *ledger.remembered.get(action.id, ("", "", False)))
            for action in ledger.actions.values()
            if action.open
        ]
        transitions = reconcile(
            watched,
            fleet,
            controller=str(world.controller),
            pools=POOLS,
            recent=list(ledger.actions.values()),
            stopped=ledger.stopped,
            now=self.now,
        )
        for transition in transitions:
            action = ledger.advance(transition.action, transition.state, self.now)
            if transition.confirmed or transition.reapplied:
                again = transition.reapplied or ledger.remembered.get(action.id, ("", "", False))[2]
                life = (str(world.controller), fleet[action.machine].boot)
                ledger.remembered[action.id] = (*life, again)
            ledger.step()
            if transition.call is DriverCall.APPLY:
                self._send(action)
            elif transition.call is DriverCall.UNDO:
                world.undo(action)
            elif transition.call is DriverCall.EVICT:
                self._evict(action, transition.jobs)
            ledger.step()

    def _send(self, action: Action) -> None:
        if action.step.isolates:
            assert not self.ledger.stopped
            assert self.now < action.valid_until
            assert not _foreign(self.world.machines[action.machine], action)
        try:
            self.world.apply(action)
        except NoAnswerError:
            pass
        except RefusedError:
            self.ledger.advance(self.ledger.actions[action.id], ActionState.FAILED, self.now)

    def _evict(self, action: Action, jobs: tuple[str, ...]) -> None:
        assert action.mode is not DrainMode.FINISH
        assert not self.ledger.stopped
        pool = action.pool
        self.ledger.kills.append((self.now, pool, len(jobs)))
        within = [n for at, p, n in self.ledger.kills if p == pool and at > self.now - DAY]
        assert sum(within) <= POOLS[pool].limits.killed_jobs
        self.world.evict(action.machine)

    def _situation(self, fleet: dict[str, Machine]) -> Situation:
        stop = KillSwitchActivation("somebody") if self.ledger.stopped else None
        health = ResponderHealth(kill_switch=stop, overrides=self.ledger.overrides)
        return Situation(
            now=self.now,
            fleet=fleet,
            pools=POOLS,
            policy=cast(Policy, StormPolicy()),
            open=group_by_machine(self.ledger.open()),
            recent=list(self.ledger.actions.values()),
            overrides=self.ledger.overrides,
            approvals=self.ledger.approvals,
            interlocks=active_interlocks(health, settings=SETTINGS, now=self.now),
            settings=SETTINGS,
        )

    def _decide(self) -> None:
        fleet = self.world.read()
        situation = self._situation(fleet)
        for incident in self.ledger.open():
            decision = decide(incident, situation)
            self.ledger.step()
            if decision.ruling is Ruling.PROPOSE:
                self.ledger.proposals[incident.id] = decision
            if decision.ruling is not Ruling.ACT:
                continue
            action = make_action(decision, incident, fleet[incident.machine], self.now)
            self._act(action, incident, decision, fleet)
            situation = replace(situation, recent=list(self.ledger.actions.values()))

    def _act(
        self, action: Action, incident: Incident, decision: Decision, fleet: dict[str, Machine]
    ) -> None:
        def check(recent: Sequence[Action]) -> Blocker | None:
            machines = list(fleet.values())
            certain = rests_on_certain_damage(decision, incident)
            return find_blocker(
                action,
                pools=POOLS,
                fleet=machines,
                recent=recent,
                now=self.now,
                certain=certain,
            )

        def rules(new: Action, findings: tuple[Finding, ...]) -> None:
            must_hold(new, findings, self.ledger, fleet, self.now)

        written = self.ledger.act(action, incident, decision, check, rules)
        self.ledger.step()
        if isinstance(written, Action):
            self._send(written)
            self.ledger.step()
            current = self.ledger.actions[written.id]
            if current.open:
                self.ledger.advance(current, ActionState.SENT, self.now)

    def _release(self) -> None:
        for action in list(self.ledger.actions.values()):
            if not action.open:
                continue
            incident = self.ledger.incidents[action.incident]
            check = self.ledger.checks.get(action.machine)
            got = decide_release(action, incident, check=check, settings=SETTINGS, now=self.now)
            if got is not None and got.way is ReleaseMethod.UNDO:
                releasing = self.ledger.advance(action, ActionState.RELEASING, self.now)
                self.ledger.step()
                self.world.undo(releasing)
            elif got is not None and got.way is ReleaseMethod.CHECK:
                passed = int(action.machine[1:]) % 3 > 0
                self.ledger.checks[action.machine] = CheckVerdict(passed, self.now)


def _foreign(machine: Machine, action: Action) -> bool:
    return machine.out and machine.action != action.id


# --- invariants -----------------------------------------------------------------------------------


def must_hold(
    action: Action,
    findings: tuple[Finding, ...],
    ledger: Book,
    fleet: dict[str, Machine],
    now: Nanoseconds,
) -> None:
    """State the conditions of a new action again, without the code of the core."""
    machine = fleet[action.machine]
    pool = POOLS[machine.pool or ""]
    earlier = list(ledger.actions.values())
    assert not ledger.stopped
    assert pool.mode is not PoolMode.OBSERVE
    assert machine.labels.get("forewarn") != "off"
    assert pool.mode is not PoolMode.PROPOSE or action.incident in ledger.approvals
    assert any(now < f.valid_until and now < (f.last or f.at) + DAY for f in findings)
    assert now < action.valid_until
    for f in findings:
        for override in ledger.overrides:
            graver = RULES[f.cause].severity.rank > (override.severity or Severity.CRITICAL).rank
            same = (override.machine, override.cause) == (f.machine, f.cause)
            assert not same or graver or now >= override.at + 7 * DAY
    if action.step is Step.AVOID:
        open_ = {a.machine for a in earlier if a.open and a.step is Step.AVOID}
        in_pool = [name for name in open_ if fleet[name].pool == pool.name]
        assert len(in_pool) < 0.25 * sum(m.pool == pool.name and m.gpus > 0 for m in fleet.values())
        return
    _isolation_must_hold(action, findings, earlier, fleet, now)


def _isolation_must_hold(
    action: Action,
    findings: tuple[Finding, ...],
    earlier: list[Action],
    fleet: dict[str, Machine],
    now: Nanoseconds,
) -> None:
    machine, limits = fleet[action.machine], POOLS[action.pool].limits
    causes = {f.cause for f in findings}
    assert not machine.out
    assert causes - NEVER_DRAIN
    assert causes != {"at_risk"} or (action.step, action.mode) == (Step.DRAIN, DrainMode.FINISH)
    begun = [
        a
        for a in earlier
        if a.step.isolates and a.state not in (ActionState.FAILED, ActionState.EXPIRED)
    ]
    assert not any(a.machine == action.machine and a.open for a in begun)
    for a in begun:  # never again for what was known at the end of the first one
        newest = max(f.last or f.at for f in findings)
        assert a.machine != action.machine or newest > a.changed_at
    out = {name for name, m in fleet.items() if m.out and m.gpus > 0}
    out |= {a.machine for a in begun if a.open}
    size = sum(m.pool == action.pool and m.gpus > 0 for m in fleet.values())
    assert sum(fleet[name].pool == action.pool for name in out) < (limits.machines or size)
    lately = [a for a in begun if a.at > now - DAY]
    assert sum(a.cause == action.cause for a in lately) < limits.cause
    assert len(lately) < (limits.fleet_rate or 2)
    if causes & CERTAIN:
        return
    if action.cause == "at_risk":
        assert sum(a.cause == "at_risk" for a in lately) < (limits.fleet_rate or 2) // 2
    ours = {a.machine for a in begun if a.open and a.cause not in CERTAIN}
    bound = max(1, int(limits.share * size))
    assert sum(fleet[name].pool == action.pool for name in ours) < bound
    ours |= {a.machine for a in lately if a.cause not in CERTAIN} - {action.machine}
    assert sum(fleet[name].rack == machine.rack for name in ours) < limits.rack


# --- storms ---------------------------------------------------------------------------------------

ANSWERS = ("done", "lost before", "lost after", "late")
JUMPS = (-3 * HOUR, -20 * MINUTE, -2 * MINUTE, 2 * MINUTE, 20 * MINUTE, 3 * HOUR)


@dataclass
class Storm:
    """Plays a list of events against a fleet."""

    loop: Loop
    crashes: list[tuple[set[str], Nanoseconds]] = field(default_factory=list)
    number: int = 0

    def finding(self, machine: str, cause: str, *, age: int = 0, valid: int = DAY) -> Finding:
        self.number += 1
        at = Nanoseconds(self.loop.world.time - age)
        return Finding(
            source="test",
            id=f"{self.number}",
            kind=KINDS.get(cause, FindingKind.XID),
            cause=cause,
            machine=machine,
            at=at,
            valid_until=Nanoseconds(at + valid),
            job="wide" if cause == "verdict" else None,
        )

    def play(self, event: str, who: int, how: int) -> None:
        name = f"n{who % 24}"
        getattr(self, event.replace(" ", "_"))(name, how)
        self.loop.once()

    def wait(self, name: str, how: int) -> None:
        del name
        world = self.loop.world
        world.time = Nanoseconds(world.time + (1, 1, 3, 10, 30, 240, 1500)[how % 7] * MINUTE)
        world.fresh.clear()
        late, world.late = world.late, []
        for action in late:
            try:
                world.do(action)
            except RefusedError:
                continue

    def find(self, name: str, how: int) -> None:
        self.loop.ledger.record_findings(
            self.finding(name, CAUSES[how % len(CAUSES)]), self.loop.now
        )

    def repeat(self, name: str, how: int) -> None:
        findings = [f for f in self.loop.ledger.findings.values() if f.machine == name]
        for known in findings[how % 3 : how % 3 + 1]:
            again = replace(known, at=self.loop.world.time, last=None, count=1)
            self.loop.ledger.record_findings(again, self.loop.now)

    def stale(self, name: str, how: int) -> None:
        age, valid = ((2 * DAY, 9 * DAY), (3 * HOUR, 2 * HOUR), (DAY, 2 * DAY))[how % 3]
        stale = self.finding(name, CAUSES[how % len(CAUSES)], age=age, valid=valid)
        self.loop.ledger.record_findings(stale, self.loop.now)

    def crash(self, name: str, how: int) -> None:
        """Report a fault on all machines of one rack, switch or job within a minute."""
        world, attribute = self.loop.world, ("rack", "switch", "jobs")[how % 3]
        shared = getattr(world.machines[name], attribute)
        hit = [m.name for m in world.machines.values() if getattr(m, attribute) == shared]
        findings = [self.finding(n, ("xid 45", "xid 79")[how % 2]) for n in hit if shared]
        self.crashes.append(({f.id for f in findings}, world.time))
        for number, finding in enumerate(findings):
            self.loop.ledger.record_findings(finding, self.loop.now)
            if number == len(findings) // 2:
                self.loop.once()
                world.time = Nanoseconds(world.time + MINUTE // 2)

    def external_drain(self, name: str, how: int) -> None:
        del how
        machine = self.loop.world.machines[name]
        state = ServiceState.DRAINING if machine.jobs else ServiceState.DRAINED
        self.loop.world.machines[name] = replace(machine, state=state, reason="cable")

    def undo(self, name: str, how: int) -> None:
        del how
        self.loop.world.serve(name)

    def undo_ours(self, name: str, how: int) -> None:
        del name
        ours = sorted(n for n, m in self.loop.world.machines.items() if m.action is not None)
        if ours:
            self.loop.world.serve(ours[how % len(ours)])

    def restart(self, name: str, how: int) -> None:
        """Restart the scheduler; it forgets the last change."""
        del name
        world = self.loop.world
        world.controller += 1
        for fresh in sorted(world.fresh) if how % 2 else ():
            if world.machines[fresh].action is not None:
                world.serve(fresh)

    def renew(self, name: str, how: int) -> None:
        machine = replace(self.loop.world.machines[name], boot=f"b{how}", avoided=False)
        self.loop.world.machines[name] = machine
        self.loop.world.serve(name)

    def jump(self, name: str, how: int) -> None:
        del name
        self.loop.skew = Nanoseconds(self.loop.skew + JUMPS[how % len(JUMPS)])
        self.loop.jumps.append(self.loop.world.time)

    def opt_out(self, name: str, how: int) -> None:
        labels = {"forewarn": "off"} if how % 3 else {}
        machine = self.loop.world.machines[name]
        self.loop.world.machines[name] = replace(machine, labels=labels)

    def switch(self, name: str, how: int) -> None:
        del name
        self.loop.ledger.stopped = how % 3 == 0

    def answer(self, name: str, how: int) -> None:
        del name
        self.loop.world.answers.append(ANSWERS[how % len(ANSWERS)])

    def kill(self, name: str, how: int) -> None:
        del name
        self.loop.ledger.steps_left = how + 1

    def approve(self, name: str, how: int) -> None:
        del name, how
        for number, decision in self.loop.ledger.proposals.items():
            self.loop.ledger.approvals[number] = Approval(decision, self.loop.now, "alice")

    def end_jobs(self, name: str, how: int) -> None:
        del how
        self.loop.world.evict(name)


EVENTS = (
    *(
        "wait",
        "wait",
        "wait",
        "wait",
        "wait",
        "find",
        "find",
        "find",
        "repeat",
        "stale",
        "crash",
        "external_drain",
        "undo",
    ),
    *("undo ours", "restart", "renew", "jump", "opt out", "switch", "answer", "kill", "approve"),
    "end jobs",
)
storms = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.integers(0, 23), st.integers(0, 20)),
    min_size=40,
    max_size=120,
)
COUNTS = {"storms": 0, "events": 0, "drains": 0, "avoided": 0, "overridden": 0, "shared": 0}


def play(events: list[tuple[str, int, int]]) -> Storm:
    storm = Storm(Loop(make_world(), Book()))
    for event in events:
        storm.play(*event)
    ledger = storm.loop.ledger
    COUNTS["storms"] += 1
    COUNTS["events"] += len(events)
    COUNTS["drains"] += sum(a.step.isolates for a in ledger.actions.values())
    COUNTS["avoided"] += sum(a.step is Step.AVOID for a in ledger.actions.values())
    COUNTS["overridden"] += sum(a.state is ActionState.OVERRIDDEN for a in ledger.actions.values())
    COUNTS["shared"] += sum(bool(i.shared) for i in ledger.incidents.values())
    return storm


@settings(
    max_examples=int(os.environ.get("FOREWARN_STORMS", "20")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(storms)
def test_storms_exceed_no_limit(
    events: list[tuple[str, int, int]],
) -> None:
    storm = play(events)
    ledger, loop = storm.loop.ledger, storm.loop
    for crash, at in storm.crashes:
        steady = not any(at - HOUR <= jump <= at + HOUR for jump in loop.jumps)
        if len(crash) >= SETTINGS.many and steady:
            drained = [a for a in ledger.actions.values() if a.step.isolates]
            assert not any({f.id for f in ledger.rests_on[a.id]} <= crash for a in drained)
    # Without further events, no mark of an ended action remains.
    loop.world.answers, ledger.steps_left = [], None
    for _ in range(3):
        storm.play("wait", 0, 3)
    ended = {a.id for a in ledger.actions.values() if not a.open}
    assert not any(m.action in ended for m in loop.world.machines.values())
    assert not any(
        a.state is ActionState.INTENDED for a in ledger.actions.values() if not ledger.stopped
    )
