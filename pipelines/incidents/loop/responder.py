"""The response loop: gathers findings, decides, acts, and verifies its actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
from forewarn.pipelines.incidents.learning.label_tables import write_ledger_labels
from forewarn.pipelines.incidents.ledger.action_ledger import LIMIT_LOOKBACK
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.recovery_log import record_events
from forewarn.pipelines.incidents.ledger.service_log import (
    read_service,
    record_service,
    returned_to_service,
)
from forewarn.pipelines.incidents.ledger.step_changes import read_requests, request_text
from forewarn.pipelines.incidents.loop.action_executor import (
    apply_transitions,
    finish_marks,
    remove_stale_marks,
    start_action,
)
from forewarn.pipelines.incidents.loop.block_runner import BlockRunner, blocked_machines
from forewarn.pipelines.incidents.loop.incident_closer import IncidentCloser
from forewarn.pipelines.incidents.loop.loop_alerts import CLOCK, HIGH_OUTAGE, MARKS, LoopAlerts
from forewarn.pipelines.incidents.loop.notice_folder import (
    notice_text,
    record_answers,
    write_notices,
)
from forewarn.pipelines.incidents.loop.responder_health import read_responder_health
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.loop.round_metrics import (
    set_blockers,
    set_clocks,
    set_machines,
    set_waits,
)
from forewarn.pipelines.incidents.loop.scheduler_marks import read_unknown_marks
from forewarn.pipelines.incidents.loop.step_runner import StepRunner
from forewarn.pipelines.incidents.loop.verdict_diagnosis import diagnose_verdicts
from forewarn.pipelines.incidents.messages.site_messages import SiteMessages
from forewarn.pipelines.incidents.schedulers.driver import Driver, DriverError, Fleet
from forewarn.pipelines.incidents.sources.diagnosis_findings import diagnosis_ends
from forewarn.pipelines.incidents.sources.finding_sources import (
    EVENTS_CURSOR,
    GatheredFindings,
    gather_findings,
)
from forewarn.pipelines.incidents.sources.ground_truth import read_ground_truth
from forewarn.pipelines.metrics.declarations import LIMIT_USED, MARKS_WITHOUT_ACTION
from forewarn.pipelines.runtime.alerts import note_alert
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.progress import note
from forewarn.response.decision.decide import (
    decide,
    decide_observe_only,
    make_action,
    rests_on_certain_damage,
    urgency,
)
from forewarn.response.decision.interlocks import (
    HEARTBEATS,
    Interlock,
    active_interlocks,
    missing_heartbeats,
)
from forewarn.response.decision.limit_use import limit_use
from forewarn.response.decision.limits import find_blocker, high_outage_alert
from forewarn.response.decision.manual_drain import decide_manual_drain
from forewarn.response.decision.situation import Situation, group_by_machine
from forewarn.response.decision.verdict_blocks import verdict_blocks
from forewarn.response.follow_up.evidence_hold import machines_to_hold
from forewarn.response.follow_up.external_drain import (
    find_external_drains,
    find_reported_problems,
)
from forewarn.response.follow_up.job_notices import job_notices
from forewarn.response.follow_up.reconcile import reconcile, stale_marks
from forewarn.response.follow_up.shared_suspicion import suspected_by_several
from forewarn.response.follow_up.unknown_marks import unknown_marks_alert
from forewarn.response.grouping.shared_incidents import shared_incidents
from forewarn.response.policy.policy import Policy
from forewarn.response.recovery.recovery_state import CheckpointSaved
from forewarn.response.state.action import Action
from forewarn.response.state.blocker import Blocker, BlockerKind
from forewarn.response.state.clock_readings import ClockReadings
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine, ServiceState

__all__ = ["LoopDecision", "Responder"]


@dataclass(frozen=True, slots=True)
class LoopDecision:
    """A decision made in one round of the loop.

    Attributes
    ----------
    incident : Incident
        As it was when the decision was made.
    decision : Decision
    new : bool
        The decision or its reason differs from the previous one.
    """

    incident: Incident
    decision: Decision
    new: bool


@dataclass(slots=True)
class Responder:
    """The response loop; several responders may run at once without acting twice.

    Attributes
    ----------
    site : ResponseSite
    ledger : Ledger
    policy : Policy
    driver : Driver or None
        None: machines cannot be changed, and all decisions are only observed.
    clock : Clock
    warn : callable
        Takes the subject of an alert and its text, and must not wait.
    metrics : RespondMetrics
        Set in each round.
    messages : SiteMessages or None
        Told of each round.
    """

    site: ResponseSite
    ledger: Ledger
    policy: Policy
    driver: Driver | None
    clock: Clock = field(default_factory=SystemClock)
    warn: Callable[[str, str], None] = note_alert
    metrics: RespondMetrics = field(default_factory=RespondMetrics)
    messages: SiteMessages | None = None

    def once(self) -> list[LoopDecision]:
        """Run one round: record findings, follow up actions, decide, act, and verify.

        Raises
        ------
        LedgerError
            If the ledger does not answer.
        DriverError
            If the scheduler does not answer; the findings are recorded before it is raised.
        """
        now = Nanoseconds(self.clock.now())
        fleet, refusal = self._try_read(now)
        clocks = self._clocks(fleet, now)
        set_clocks(self.metrics, clocks)
        if clocks.disagreement():
            return self._observe_only(fleet, refusal, clocks)
        gathered = self._gather(now)
        fleet = self._read_or_refuse(fleet, refusal, now)
        external = [
            *find_external_drains(fleet.machines, now=now),
            *find_reported_problems(fleet.machines, now=now),
            *suspected_by_several(self.ledger.blocks(), now=now),
        ]
        self.ledger.record_findings(self.ledger.new_findings(external), now=now)
        self._follow(fleet, clocks)
        open_incidents = self._merge_shared(fleet, now)
        self._record_service(fleet, open_incidents, now)
        incidents = sorted(open_incidents, key=partial(urgency, policy=self.policy))
        situation = self._situation(fleet, incidents, gathered, clocks)
        self._hold_machines(incidents, situation)
        decided = self._decide(incidents, self._with_steps(situation))
        self._close(now)
        diagnose_verdicts(self.site, gathered.statements, now)
        if self.driver is not None and any(d.decision.ruling is Ruling.ACT for d in decided):
            fleet = self._read(now)
            self._follow(fleet, clocks)
        machines = {machine.name: machine for machine in fleet.machines}
        self._serve_jobs(decided, replace(situation, fleet=machines))
        patterns = self.site.table.foreign_failures
        names = self.site.settings.records.names
        write_ledger_labels(self.site.records, self.ledger, patterns, now=now, names=names)
        if gathered.last_list is not None:
            self.ledger.record_heartbeat("list", gathered.last_list)
        if self.messages is not None:
            self.messages.write([(item.incident, item.decision) for item in decided], now)
            self._raise(self.messages.stuck(now), now)
        self.ledger.record_heartbeat("loop", now)
        return decided

    def _raise(self, troubles: Mapping[str, str], now: Nanoseconds) -> None:
        """Raise an alert for each new problem; an empty text ends one."""
        LoopAlerts(self.ledger, self.warn, self.messages).raise_new(troubles, now)

    # --- reading ----------------------------------------------------------------------------------

    def _gather(self, now: Nanoseconds) -> GatheredFindings:
        """Read the sources and record their findings, and the ends of earlier ones."""
        gathered = gather_findings(
            self.policy,
            records=self.site.records,
            lists=self.site.lists,
            verdicts=self.site.verdicts,
            diagnoses=self.site.diagnoses,
            inspections=self.site.inspections,
            read=self.ledger.last_heartbeat(EVENTS_CURSOR),
            now=now,
        )
        self.ledger.record_findings(self.ledger.new_findings(gathered.statements), now=now)
        self.ledger.record_findings(gathered.events, now=now, read_up_to=gathered.read_up_to)
        if gathered.diagnoses:
            known = [f for incident in self.ledger.open_incidents() for f in incident.findings]
            self.ledger.record_findings(diagnosis_ends(known, gathered.diagnoses), now=now)
        return gathered

    def _try_read(self, now: Nanoseconds) -> tuple[Fleet | None, DriverError | None]:
        """Read the fleet, or return the error; findings are recorded before it is raised."""
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
            last_call=self.ledger.last_heartbeat("loop"),
        )

    def _observe_only(
        self, fleet: Fleet | None, refusal: DriverError | None, clocks: ClockReadings
    ) -> list[LoopDecision]:
        """Decide without acting: record no findings, change no marks, leave no heartbeat.

        With a wrong clock, findings would appear stale, incidents over and deadlines reached.
        """
        now, why = clocks.now, clocks.disagreement()
        self._raise({CLOCK: why}, now)
        note(f"this round only observes: {why} ({clocks})")
        fleet = self._read_or_refuse(fleet, refusal, now)
        incidents = sorted(self.ledger.open_incidents(), key=partial(urgency, policy=self.policy))
        situation = Situation(
            now,
            {machine.name: machine for machine in fleet.machines},
            self.site.pools,
            self.policy,
            open=group_by_machine(incidents),
            settings=self.site.core,
        )
        decisions = [
            (incident, decide_observe_only(incident, situation, why)) for incident in incidents
        ]
        return [
            LoopDecision(i, decision, self.ledger.decide(decision)) for i, decision in decisions
        ]

    def _read(self, now: Nanoseconds) -> Fleet:
        """Read all machines; without a scheduler, those with open incidents."""
        if self.driver is None:
            names = sorted(group_by_machine(self.ledger.open_incidents()))
            machines = [Machine(name, ServiceState.IN_SERVICE) for name in names]
            return Fleet(now, tuple(machines), "")
        fleet = self.driver.read()
        blocked = blocked_machines(self.ledger)
        marked = (replace(m, blocked=m.name in blocked) for m in fleet.machines)
        return replace(fleet, machines=tuple(map(self._with_pool, marked)))

    def _with_pool(self, machine: Machine) -> Machine:
        """Assign a machine to the first pool whose selector matches its labels."""
        if machine.pool is not None:
            return machine
        for name, table in self.site.table.pools.items():
            if table.selects(machine.labels):
                return replace(machine, pool=name)
        return machine

    def _situation(
        self,
        fleet: Fleet,
        incidents: Sequence[Incident],
        gathered: GatheredFindings,
        clocks: ClockReadings,
    ) -> Situation:
        settings, now = self.site.core, clocks.now
        overrides = self.ledger.overrides(Nanoseconds(now - settings.override_span))
        health = read_responder_health(
            self.site, self.ledger, self.policy, incidents, gathered, overrides=overrides, now=now
        )
        out = high_outage_alert(fleet.machines, self.site.pools, share=settings.high_outage_share)
        paused = "" if self.driver is None else clocks.interruption()
        alerts = dict.fromkeys(HEARTBEATS, "") | missing_heartbeats(
            health, settings=settings, now=now
        )
        marks = read_unknown_marks(self.ledger, fleet.machines, now=now)
        self.metrics.set(MARKS_WITHOUT_ACTION, len(marks))
        alerts |= {HIGH_OUTAGE: out, CLOCK: paused, MARKS: unknown_marks_alert(marks)}
        self._raise(alerts, now)
        return Situation(
            now=now,
            fleet={machine.name: machine for machine in fleet.machines},
            pools=self.site.pools,
            policy=self.policy,
            open=group_by_machine(incidents),
            recent=self._recent(now),
            overrides=overrides,
            approvals=self.ledger.approvals([incident.id for incident in incidents]),
            interlocks=(
                *active_interlocks(health, settings=settings, now=now),
                *([Interlock(paused, None)] if paused else []),
            ),
            settings=settings,
            returned_at=returned_to_service(self.ledger, incidents, now=now),
            clock_alone=self.driver is not None and clocks.is_alone,
        )

    def _recent(self, now: Nanoseconds) -> list[Action]:
        """Return open actions, and those changed within the time that limits consider."""
        return self.ledger.recent_actions(Nanoseconds(now - LIMIT_LOOKBACK), with_open=True)

    # --- following up actions ---------------------------------------------------------------------

    def _follow(self, fleet: Fleet, clocks: ClockReadings) -> None:
        """Advance each open action by the state of its machine in the scheduler."""
        if self.driver is None:
            return
        stopped = self.site.switch(self.ledger).off() is not None
        tracked, now = self.ledger.tracked_actions(), clocks.now
        transitions = reconcile(
            tracked,
            {machine.name: machine for machine in fleet.machines},
            controller=fleet.controller,
            configured=fleet.configured,
            pools=self.site.pools,
            recent=self._recent(now),
            stopped=stopped,
            now=now,
            clock_alone=clocks.is_alone,
            lasting=fleet.lasting,
        )
        refusals = apply_transitions(self.ledger, self.driver, transitions, tracked, fleet, now=now)
        self._raise(refusals, now)
        open_actions = [action.id for action in self.ledger.open_actions()]
        remove_stale_marks(self.ledger, self.driver, stale_marks(fleet.machines, open_actions))
        finish_marks(self.ledger, self.driver, fleet.machines)

    def _hold_machines(self, incidents: Sequence[Incident], situation: Situation) -> None:
        """Ask others not to remove machines while the evidence about them is collected."""
        if self.driver is None:
            return
        try:
            self.driver.hold(machines_to_hold(incidents, situation))
        except DriverError as error:
            note(f"machines may be removed while evidence is collected ({error})")

    def _with_steps(self, situation: Situation) -> Situation:
        """Carry out steps on drained machines, and alert people that are asked to."""
        if self.driver is None:
            return situation
        StepRunner(self.ledger, situation, self.driver).advance()
        requests = read_requests(self.ledger, self.ledger.open_actions())
        alerts = {f"action {number}": request.detail for number, request in requests.items()}
        self._raise(alerts, situation.now)
        texts = {number: request_text(request) for number, request in requests.items()}
        return replace(situation, requests=texts)

    def _serve_jobs(self, decided: Sequence[LoopDecision], situation: Situation) -> None:
        """Carry out blocks, and tell running jobs what is known of their machines."""
        if self.driver is None:
            return
        pairs = [(item.incident, item.decision) for item in decided]
        situation = replace(situation, recent=self._recent(situation.now))
        for block in verdict_blocks(pairs, situation.fleet):
            self.ledger.add_block(block, repeat=False)
        blocks = BlockRunner(self.ledger, self.driver, situation).advance()
        open_actions = [action for action in situation.recent if action.open]
        notices = job_notices(pairs, open_actions, blocks, situation)
        if self.site.notices is not None:
            write_notices(self.site.notices, notices)
            jobs = {job for machine in situation.fleet.values() for job in machine.jobs}
            record_answers(self.site.notices, sorted(jobs), partial(self._record_answer, situation))
        try:
            self.driver.publish({notice.job: notice_text(notice) for notice in notices})
        except DriverError as error:
            note(f"notices to jobs were not published, will retry ({error})")

    def _record_answer(self, situation: Situation, job: str, step: int | None) -> None:
        """Record that a job saved a checkpoint when it was asked to, or did not."""
        saved = CheckpointSaved(situation.now, step)
        record_events(self.ledger, job, [saved], who=job)

    def _merge_shared(self, fleet: Fleet, now: Nanoseconds) -> list[Incident]:
        """Merge incidents of one event on many machines; return the open ones after that."""
        machines = {machine.name: machine for machine in fleet.machines}
        incidents = self.ledger.open_incidents()
        events = shared_incidents(incidents, machines, settings=self.site.core, now=now)
        for event in events:
            self.ledger.share(
                [*([event.into] if event.into else []), *event.incidents],
                shared=event.shared,
                machine=event.machine,
                now=now,
                why=event.why,
            )
        return self.ledger.open_incidents() if events else incidents

    def _record_service(
        self, fleet: Fleet, incidents: Sequence[Incident], now: Nanoseconds
    ) -> None:
        """Record which machines with open incidents are in service."""
        if self.driver is None:
            return
        before, names = self.ledger.last_heartbeat("loop"), group_by_machine(incidents)
        seen = [machine for machine in fleet.machines if machine.name in names]
        longest = self.site.core.max_unseen
        record_service(self.ledger, seen, before=before, longest=longest, now=now)

    def _close(self, now: Nanoseconds) -> None:
        """Release actions that are over, and record outcomes of incidents."""
        incidents = self.ledger.open_incidents()
        settings = self.site.core
        closer = IncidentCloser(self.ledger, self.driver, self.site.check(), settings)
        actions = self.ledger.open_actions()
        acted = {incident.id: incident for incident in incidents}
        acted |= self.ledger.incidents_of([a for a in actions if a.incident not in acted])
        for action in actions:
            if action.incident in acted:
                closer.release(action, acted[action.incident], now)
        ground_truth = read_ground_truth(self.site.failures, incidents)
        machines = {incident.machine for incident in incidents}
        service = read_service(self.ledger, machines, until=now)
        for incident in incidents:
            closer.close(incident, ground_truth, service[incident.machine], now=now)

    # --- deciding ---------------------------------------------------------------------------------

    def _decide(self, incidents: Sequence[Incident], situation: Situation) -> list[LoopDecision]:
        """Decide on each open incident, the most urgent first, and start actions."""
        decided = []
        for incident in incidents:
            decision = decide_manual_drain(incident, situation) or decide(incident, situation)
            if decision.ruling is Ruling.ACT and self._has_ended(incident):
                continue
            # Most decisions repeat the last one: those need no writing transaction.
            last = incident.decision
            new = not (last and decision.repeats(last)) and self.ledger.decide(decision)
            if decision.ruling is Ruling.ACT and self.driver is not None:
                blocked = self._act(incident, decision, situation)
                if blocked is not None:
                    decision, new = blocked, self.ledger.decide(blocked)
                situation = replace(situation, recent=self._recent(situation.now))
            decided.append(LoopDecision(incident, decision, new))
        if self.driver is not None:
            self._measure(situation, decided)
        return decided

    def _measure(self, situation: Situation, decided: Sequence[LoopDecision]) -> None:
        """Set the metrics of the machines, which only the scheduler knows."""
        recent, now = self._recent(situation.now), situation.now
        open_actions = [action for action in recent if action.open]
        machines = list(situation.fleet.values())
        set_machines(self.metrics, machines, self.site.pools, open_actions=open_actions, now=now)
        used = limit_use(self.site.pools, machines, recent, now)
        self.metrics.replace(LIMIT_USED, used)
        pairs = [(item.incident, item.decision) for item in decided]
        new = [pair for pair, item in zip(pairs, decided, strict=True) if item.new]
        set_blockers(self.metrics, pairs, new)
        set_waits(
            *(self.metrics, pairs, self.ledger, situation.fleet), open_actions=open_actions, now=now
        )

    def _has_ended(self, incident: Incident) -> bool:
        """Tell whether the incident has ended since this round began: a driver may take minutes."""
        current = self.ledger.incident(incident.id)
        return current is None or current.state is not IncidentState.OPEN

    def _act(self, incident: Incident, decision: Decision, situation: Situation) -> Decision | None:
        """Record and start an action; return the decision with its blocker if there is one."""
        machine = situation.fleet[incident.machine]
        action = make_action(
            decision, incident, machine, situation.now, fleet=situation.fleet.values()
        )

        def check(recent: Sequence[Action]) -> Blocker | None:
            if self.site.switch(None).off() is not None:  # switched on since this round began
                return Blocker("the kill switch is on", None, BlockerKind.INTERLOCK)
            if self.ledger.quarantined_rows(
                "actions", "action_states"
            ):  # the limits cannot count unreadable actions
                return Blocker("an action in the ledger is unreadable, see `incidents`", None)
            return find_blocker(
                action,
                pools=situation.pools,
                fleet=list(situation.fleet.values()),
                recent=recent,
                now=situation.now,
                certain=rests_on_certain_damage(decision, incident),
            )

        recorded = self.ledger.act(action, check, who=decision.who, machine=machine)
        if isinstance(recorded, Blocker):
            reason = f"{decision.reason}; blocked by: {recorded.reason}"
            held = replace(decision, ruling=Ruling.HOLD, reason=reason, until=recorded.until)
            return replace(held, blocked_by=recorded.kind)
        if recorded is not None:  # otherwise another responder was first
            why, now = decision.reason, situation.now
            start_action(self.ledger, self._driver(), recorded, why=why, now=now)
        return None

    def _driver(self) -> Driver:
        if self.driver is None:
            raise DriverError("no scheduler is configured")
        return self.driver
