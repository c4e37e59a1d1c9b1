"""`forewarn respond`: take what was noticed, decide, act, and look whether it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.learning.training_tables import learn_from_ledger
from forewarn.pipelines.incidents.ledger.action_ledger import RECENT
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.service_log import given_back, note_services
from forewarn.pipelines.incidents.loop.carrying_out import begin, follow, take_off_marks
from forewarn.pipelines.incidents.loop.closing import Closing
from forewarn.pipelines.incidents.loop.loop_alerts import CLOCK, MANY_OUT, MARKS, LoopAlerts
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.loop.scheduler_marks import marks_without_action
from forewarn.pipelines.incidents.loop.vitals import read_vitals
from forewarn.pipelines.incidents.schedulers.driver import Driver, DriverError, Fleet
from forewarn.pipelines.incidents.sources.gathering import EVENTS, Gathered, gather
from forewarn.pipelines.incidents.sources.proofs import read_proofs
from forewarn.pipelines.runtime.alerts import alert
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.progress import note
from forewarn.response.decision.brakes import SIGNS, Brake, brakes, dead_man
from forewarn.response.decision.by_hand import decide_by_hand
from forewarn.response.decision.decide import (
    action_of,
    decide,
    only_observe,
    rests_on_certain_damage,
    urgency,
)
from forewarn.response.decision.limits import Held, held_back, many_out
from forewarn.response.decision.situation import Situation, by_machine
from forewarn.response.follow_up.foreign_drain import foreign_drains
from forewarn.response.follow_up.reconcile import orphans, reconcile
from forewarn.response.follow_up.unknown_marks import unknown_marks_in_words
from forewarn.response.grouping.shared_incidents import shared_incidents
from forewarn.response.policy.policy import Policy
from forewarn.response.state.action import Action
from forewarn.response.state.clocks import ClockReadings
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine, ServiceState

__all__ = ["Decided", "Responder"]


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision of one call of the loop.

    Attributes
    ----------
    incident : Incident
        As it was when it was decided about.
    decision : Decision
    new : bool
        It, or its reason, is another one than before.
    """

    incident: Incident
    decision: Decision
    new: bool


@dataclass(slots=True)
class Responder:
    """The loop that acts; several may run beside each other and act once.

    Attributes
    ----------
    site : ResponseSite
    ledger : Ledger
    policy : Policy
    driver : Driver or None
        None: nothing can be done to a machine, and all is only observed.
    clock : Clock
    warn : callable
        Takes what an alert is about, and its words.
    """

    site: ResponseSite
    ledger: Ledger
    policy: Policy
    driver: Driver | None
    clock: Clock = field(default_factory=SystemClock)
    warn: Callable[[str, str], None] = alert

    def once(self) -> list[Decided]:
        """Take findings, look after what was begun, decide, act, and look again.

        Raises
        ------
        LedgerError
            If the ledger does not answer.
        DriverError
            If the scheduler does not answer. What was noticed is in the ledger then.
        """
        now = Nanoseconds(self.clock.now())
        fleet, refusal = self._try_to_read(now)
        clocks = self._clocks(fleet, now)
        if clocks.disagreement():
            return self._only_observe(fleet, refusal, clocks)
        gathered = gather(
            self.policy,
            records=self.site.records,
            lists=self.site.lists,
            verdicts=self.site.verdicts,
            read=self.ledger.last_beat(EVENTS),
            now=now,
        )
        self.ledger.take(self.ledger.unknown(gathered.statements), now=now)
        self.ledger.take(gathered.events, now=now, read_up_to=gathered.read_up_to)
        fleet = self._read_or_refuse(fleet, refusal, now)
        self.ledger.take(self.ledger.unknown(foreign_drains(fleet.machines, now=now)), now=now)
        self._follow(fleet, clocks)
        self._share(fleet, now)
        self._note_services(fleet, now)
        decided = self._decide(fleet, gathered, clocks)
        self._close(now)
        if self.driver is not None and any(d.decision.ruling is Ruling.ACT for d in decided):
            self._follow(self._read(now), clocks)
        patterns = self.site.table.foreign_failures
        learn_from_ledger(self.site.records, self.ledger, patterns, now=now)
        if gathered.last_list is not None:
            self.ledger.beat("list", gathered.last_list)
        self.ledger.beat("loop", now)
        return decided

    # --- reading ----------------------------------------------------------------------------------

    def _try_to_read(self, now: Nanoseconds) -> tuple[Fleet | None, DriverError | None]:
        """Read all machines and the scheduler's clock; what was noticed is taken all the same."""
        if self.driver is None:
            return None, None
        try:
            return self._read(now), None
        except DriverError as error:
            return None, error

    def _read_or_refuse(
        self, fleet: Fleet | None, refusal: DriverError | None, now: Nanoseconds
    ) -> Fleet:
        if refusal is not None:
            raise refusal
        return self._read(now) if fleet is None else fleet

    def _clocks(self, fleet: Fleet | None, now: Nanoseconds) -> ClockReadings:
        return ClockReadings(
            now,
            every=Nanoseconds(self.site.table.every),
            scheduler=None if fleet is None else fleet.clock,
            database=self.ledger.database.clock(),
            last_call=self.ledger.last_beat("loop"),
        )

    def _only_observe(
        self, fleet: Fleet | None, refusal: DriverError | None, clocks: ClockReadings
    ) -> list[Decided]:
        """Decide without doing anything: no finding is taken, no mark changed, no call noted.

        By a clock that is wrong findings would be stale, incidents over and deadlines reached.
        """
        now, why = clocks.now, clocks.disagreement()
        LoopAlerts(self.ledger, self.warn).raise_new({CLOCK: why}, now)
        note(f"this call only observes: {why} ({clocks})")
        fleet = self._read_or_refuse(fleet, refusal, now)
        incidents = sorted(self.ledger.open_incidents(), key=partial(urgency, policy=self.policy))
        situation = Situation(
            now,
            {machine.name: machine for machine in fleet.machines},
            self.site.pools,
            self.policy,
            open=by_machine(incidents),
            settings=self.site.core,
        )
        decisions = [(incident, only_observe(incident, situation, why)) for incident in incidents]
        return [Decided(i, decision, self.ledger.decide(decision)) for i, decision in decisions]

    def _read(self, now: Nanoseconds) -> Fleet:
        """Read all machines; without a scheduler, those that anything was noticed about."""
        if self.driver is None:
            names = sorted(by_machine(self.ledger.open_incidents()))
            machines = [Machine(name, ServiceState.IN_SERVICE) for name in names]
            return Fleet(now, tuple(machines), "")
        fleet = self.driver.read()
        return replace(fleet, machines=tuple(map(self._with_pool, fleet.machines)))

    def _with_pool(self, machine: Machine) -> Machine:
        """Put a machine into the first pool whose selector its labels match."""
        if machine.pool is not None:
            return machine
        for name, table in self.site.table.pools.items():
            label, _, value = table.selector.partition("=")
            if table.selector and machine.labels.get(label) == value:
                return replace(machine, pool=name)
        return machine

    def _situation(
        self,
        fleet: Fleet,
        incidents: Sequence[Incident],
        gathered: Gathered,
        clocks: ClockReadings,
    ) -> Situation:
        settings, now = self.site.core, clocks.now
        overrides = self.ledger.overrides(Nanoseconds(now - settings.override_rest))
        vitals = read_vitals(
            self.site, self.ledger, self.policy, incidents, gathered, overrides=overrides, now=now
        )
        out = many_out(fleet.machines, self.site.pools, share=settings.many_out)
        paused = "" if self.driver is None else clocks.interruption()
        troubles = dict.fromkeys(SIGNS, "") | dead_man(vitals, settings=settings, now=now)
        marks = marks_without_action(self.ledger, fleet.machines, now=now)
        troubles |= {MANY_OUT: out, CLOCK: paused, MARKS: unknown_marks_in_words(marks)}
        LoopAlerts(self.ledger, self.warn).raise_new(troubles, now)
        return Situation(
            now=now,
            fleet={machine.name: machine for machine in fleet.machines},
            pools=self.site.pools,
            policy=self.policy,
            open=by_machine(incidents),
            recent=self._recent(now),
            overrides=overrides,
            approvals=self.ledger.approvals([incident.id for incident in incidents]),
            brakes=(
                *brakes(vitals, settings=settings, now=now),
                *([Brake(paused, None)] if paused else []),
            ),
            settings=settings,
            given_back=given_back(self.ledger, incidents, now=now),
            clock_alone=self.driver is not None and clocks.is_alone,
        )

    def _recent(self, now: Nanoseconds) -> list[Action]:
        """Return all open actions, and all that changed within the days that limits look at."""
        recent = self.ledger.recent_actions(Nanoseconds(now - RECENT))
        actions = {action.id: action for action in (*recent, *self.ledger.open_actions())}
        return [actions[number] for number in sorted(actions)]

    # --- looking after what was begun -------------------------------------------------------------

    def _follow(self, fleet: Fleet, clocks: ClockReadings) -> None:
        """Bring each open action on by what the scheduler says of its machine."""
        if self.driver is None:
            return
        stopped = self.site.switch(self.ledger).off() is not None
        watched, now = self.ledger.watched(), clocks.now
        courses = reconcile(
            watched,
            {machine.name: machine for machine in fleet.machines},
            controller=fleet.controller,
            configured=fleet.configured,
            pools=self.site.pools,
            recent=self._recent(now),
            stopped=stopped,
            now=now,
            clock_alone=clocks.is_alone,
        )
        follow(self.ledger, self.driver, courses, watched, fleet, now=now)
        open_actions = [action.id for action in self.ledger.open_actions()]
        take_off_marks(self.ledger, self.driver, orphans(fleet.machines, open_actions))

    def _share(self, fleet: Fleet, now: Nanoseconds) -> None:
        """Make one incident of what is one event on many machines."""
        machines = {machine.name: machine for machine in fleet.machines}
        incidents = self.ledger.open_incidents()
        for event in shared_incidents(incidents, machines, settings=self.site.core, now=now):
            self.ledger.share(
                [*([event.into] if event.into else []), *event.incidents],
                shared=event.shared,
                machine=event.machine,
                now=now,
                why=event.why,
            )

    def _note_services(self, fleet: Fleet, now: Nanoseconds) -> None:
        """Write down which machines with open incidents are in service."""
        if self.driver is None:
            return
        before, names = self.ledger.last_beat("loop"), by_machine(self.ledger.open_incidents())
        seen = [machine for machine in fleet.machines if machine.name in names]
        longest = self.site.core.unseen
        note_services(self.ledger, seen, before=before, longest=longest, now=now)

    def _close(self, now: Nanoseconds) -> None:
        """Give back what is over, and say what came of incidents."""
        incidents = self.ledger.open_incidents()
        settings = self.site.core
        closing = Closing(self.ledger, self.driver, self.site.check(), settings)
        for action in self.ledger.open_actions():
            incident = self.ledger.incident(action.incident)
            if incident is not None:
                closing.release(action, incident, now)
        proofs = read_proofs(self.site.failures, incidents)
        for incident in incidents:
            closing.settle(incident, proofs, seen_until=now, now=now)

    # --- deciding ---------------------------------------------------------------------------------

    def _decide(self, fleet: Fleet, gathered: Gathered, clocks: ClockReadings) -> list[Decided]:
        """Decide about each open incident, the gravest first, and begin what is to be done."""
        incidents = sorted(self.ledger.open_incidents(), key=partial(urgency, policy=self.policy))
        situation = self._situation(fleet, incidents, gathered, clocks)
        decided = []
        for incident in incidents:
            decision = decide_by_hand(incident, situation) or decide(incident, situation)
            if decision.ruling is Ruling.ACT and self._ended_meanwhile(incident):
                continue
            new = self.ledger.decide(decision)
            if decision.ruling is Ruling.ACT and self.driver is not None:
                held = self._act(incident, decision, situation)
                if held is not None:
                    decision, new = held, self.ledger.decide(held)
                situation = replace(situation, recent=self._recent(clocks.now))
            decided.append(Decided(incident, decision, new))
        return decided

    def _ended_meanwhile(self, incident: Incident) -> bool:
        """Tell whether a person has ended it since this call began: a driver may take minutes."""
        current = self.ledger.incident(incident.id)
        return current is None or current.state is not IncidentState.OPEN

    def _act(self, incident: Incident, decision: Decision, situation: Situation) -> Decision | None:
        """Write an action and begin it; return the decision that holds it back, if any does."""
        machine = situation.fleet[incident.machine]
        action = action_of(
            decision, incident, machine, situation.now, fleet=situation.fleet.values()
        )

        def check(recent: Sequence[Action]) -> Held | None:
            if self.site.switch(None).off() is not None:  # since this call began
                return Held("the kill switch is on", None)
            if self.ledger.set_aside("actions", "action_states"):  # the limits cannot count them
                return Held("an action in the ledger cannot be read, see `incidents`", None)
            return held_back(
                action,
                pools=situation.pools,
                fleet=list(situation.fleet.values()),
                recent=recent,
                now=situation.now,
                certain=rests_on_certain_damage(decision, incident),
            )

        written = self.ledger.act(action, check, who=decision.who)
        if isinstance(written, Held):
            reason = f"{decision.reason}; held back: {written.reason}"
            return replace(decision, ruling=Ruling.HOLD, reason=reason, until=written.until)
        if written is not None:  # else another responder was first
            why, now = decision.reason, situation.now
            begin(self.ledger, self._driver(), written, why=why, now=now)
        return None

    def _driver(self) -> Driver:
        if self.driver is None:
            raise DriverError("there is no scheduler")
        return self.driver
