"""Steps on drained machines: begins commands of the site, and asks a person for the others."""

from __future__ import annotations

from dataclasses import dataclass

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.step_changes import read_changes, record_change
from forewarn.pipelines.incidents.loop.incident_closer import last_check
from forewarn.pipelines.incidents.loop.step_process import StepJob, start_step
from forewarn.pipelines.incidents.schedulers.driver import (
    Driver,
    DriverError,
    DriverTimeoutError,
)
from forewarn.pipelines.runtime.progress import note
from forewarn.response.decision.situation import Situation
from forewarn.response.follow_up.step_progress import (
    StepChange,
    StepEvent,
    StepProgress,
    next_change,
)
from forewarn.response.policy.escalation import MachineHistory
from forewarn.response.state.action import Action
from forewarn.response.state.clock_readings import NO_SECOND_CLOCK
from forewarn.response.state.incident import Incident
from forewarn.response.state.pool import Pool, PoolMode
from forewarn.response.state.site_step import REMEDIES, SiteStep
from forewarn.response.state.step import Step

__all__ = ["StepRunner"]


@dataclass(frozen=True, slots=True)
class StepRunner:
    """Carries out steps.

    Attributes
    ----------
    ledger : Ledger
    situation : Situation
        Its interlocks include the kill switch.
    driver : Driver
        Carries out the steps without a command.
    """

    ledger: Ledger
    situation: Situation
    driver: Driver

    def advance(self) -> None:
        """Begin the next step of each open action, or ask a person for it.

        The beginning is in the ledger before the command starts, and no later round starts it
        again: at most once, whatever happens in between.
        """
        remedies = [action for action in self.ledger.open_actions() if action.step in REMEDIES]
        incidents = self.ledger.incidents_of(remedies)
        for action in remedies:
            incident = incidents.get(action.incident)
            pool = self.situation.pools.get(action.pool)
            if incident is not None and pool is not None:
                self._advance(action, incident, pool)

    def _advance(self, action: Action, incident: Incident, pool: Pool) -> None:
        progress = StepProgress(
            action,
            read_changes(self.ledger, action.id),
            last_check(self.ledger, action.id),
            pool.steps,
            pool.replaces or self.situation.replacement_approved(action),
        )

        def harder(failed: Step) -> Step | None:
            history = self._history(action)
            return self.situation.policy.step_after_failure(failed, incident, history)

        change = self._scheduler_result(progress) or next_change(
            progress, harder, now=self.situation.now
        )
        if change is None:
            return
        if change.event is not StepEvent.BEGUN:
            record_change(self.ledger, action, change)
        elif not self._blocked(action, incident, pool.steps[change.step]):
            recorded = record_change(self.ledger, action, change)
            if recorded is not None:  # otherwise another responder was first
                self._start(recorded, change, pool.steps[change.step])

    def _blocked(self, action: Action, incident: Incident, command: SiteStep) -> str:
        """Return why no step begins on this machine now; empty if nothing prevents it."""
        situation = self.situation
        machine, pool = situation.fleet.get(action.machine), situation.pools[action.pool]
        if situation.clock_alone:
            return NO_SECOND_CLOCK
        if pool.mode is PoolMode.OBSERVE:
            return f"pool {pool.name} is in mode observe"
        if machine is None or machine.action != action.id or machine.opted_out:
            return f"{action.machine} is not drained by action {action.id}"
        if command.needs_idle and machine.jobs:
            return f"{action.machine} still has jobs"
        blocking = [lock for lock in situation.interlocks if lock.blocks(incident.findings)]
        return blocking[0].reason if blocking else ""

    def _history(self, action: Action) -> MachineHistory:
        """Return the steps that were carried out on the machine, escalated ones included."""
        earlier = [a for a in self.situation.recent if a.machine == action.machine]
        begun = [
            (change.step, change.at)
            for other in earlier
            for change in read_changes(self.ledger, other.id)
            if change.event is StepEvent.BEGUN and change.step is not other.step
        ]
        return MachineHistory((), earlier, self.situation.now, begun)

    def _scheduler_result(self, progress: StepProgress) -> StepChange | None:
        """Return the result of a step by the scheduler, once it shows."""
        last = progress.last
        command = progress.commands.get(last.step) if last else None
        if last is None or last.event is not StepEvent.BEGUN or command is None or command.command:
            return None
        action, now = progress.action, self.situation.now
        overdue = now >= last.at + command.timeout
        try:
            result = self.driver.step_result(action, last.step, overdue=overdue)
        except DriverError as error:
            note(f"{action.machine}: not known how its {last.step} ended ({error})")
            return None
        if result is None:
            return None
        event = StepEvent.SUCCEEDED if result.succeeded else StepEvent.FAILED
        return StepChange(last.step, event, result.detail, now)

    def _start(self, action: Action, change: StepChange, command: SiteStep) -> None:
        """Start a step that is recorded as begun."""
        if command.command:
            self._run_command(action, change, command)
            return
        try:
            self.driver.carry_out(action, change.step)
        except DriverTimeoutError as error:
            note(
                f"{action.machine}: no answer about its {change.step}, will be read back ({error})"
            )
        except DriverError as error:
            refused = StepChange(change.step, StepEvent.FAILED, str(error), change.at)
            record_change(self.ledger, action, refused)

    def _run_command(self, action: Action, change: StepChange, command: SiteStep) -> None:
        try:
            start_step(
                StepJob(
                    ledger=self.ledger.database.address,
                    command=command.command,
                    timeout=command.timeout / SECOND,
                    step=change.step.value,
                    machine=action.machine,
                    gpu_serial=action.gpu_serial or "",
                    action=action.id,
                    version=action.version,
                    begun_at=Nanoseconds(change.at),
                )
            )
        except OSError as error:
            note(f"{action.machine}: {change.step} could not be started ({error})")
            lost = StepChange(change.step, StepEvent.UNKNOWN, str(error), change.at)
            record_change(self.ledger, action, lost)
