"""Scheduler in memory with the interface of a driver."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import (
    DriverError,
    DriverTimeoutError,
    Fleet,
    JobExclusions,
    StepResult,
)
from forewarn.response.state.action import Action
from forewarn.response.state.machine import MARK_PREFIX, Machine, ServiceState
from forewarn.response.state.step import Step


@dataclass(slots=True)
class MemoryDriver:
    """Simulated scheduler whose machines change as requested.

    Attributes
    ----------
    machines : dict of str to Machine
    now : int
    controller : str
    silent : bool
        The next change is made, but its answer is lost.
    reports_clock : bool
        Its clock, which shows `now`, is part of a reading.
    calls : list of str
        Every requested change.
    restart_refusal : str
        Why it restarts no machine; empty if it does.
    restarted_machines : set of str
    """

    machines: dict[str, Machine]
    now: Nanoseconds
    controller: str = "first controller"
    silent: bool = False
    reports_clock: bool = True
    calls: list[str] = field(default_factory=list)
    restart_refusal: str = ""
    restarted_machines: set[str] = field(default_factory=set)
    notices: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, JobExclusions] = field(default_factory=dict)
    exclusion_refusal: str = ""
    held: set[str] = field(default_factory=set)
    name: str = "memory"

    def read(self) -> Fleet:
        machines = tuple(self.machines.values())
        return Fleet(
            self.now, machines, self.controller, clock=self.now if self.reports_clock else None
        )

    def apply(self, action: Action, *, why: str) -> None:
        self.calls.append(f"{action.step} {action.machine}")
        machine = self.machines[action.machine]
        if machine.out and machine.action != action.id:
            raise DriverError(f"{machine.name} is drained by someone else")
        if action.step is Step.AVOID:
            self.machines[machine.name] = replace(machine, avoided=True)
        else:
            state = ServiceState.DRAINING if machine.jobs else ServiceState.DRAINED
            self.machines[machine.name] = replace(
                machine, state=state, reason=f"{MARK_PREFIX}{action.id} {why}"
            )
        if self.silent:
            self.silent = False
            raise DriverTimeoutError("no answer in 10 s")

    def reserve(self, action: Action) -> None:
        self.calls.append(f"reserve {action.machine}")

    def carry_out(self, action: Action, step: Step) -> None:
        self.calls.append(f"{step} by scheduler {action.machine}")
        if self.restart_refusal:
            raise DriverError(self.restart_refusal)

    def step_result(self, action: Action, step: Step, *, overdue: bool) -> StepResult | None:
        del step, overdue
        restarted = action.machine in self.restarted_machines
        return StepResult(True, "it answers again") if restarted else None

    def evict(self, action: Action, jobs: tuple[str, ...]) -> None:
        self.calls.append(f"evict {' '.join(jobs)}")
        self.end_jobs(action.machine)

    def undo(self, action: Action) -> None:
        self.calls.append(f"undo {action.machine}")
        machine = self.machines[action.machine]
        if action.step is Step.AVOID:
            self.machines[machine.name] = replace(machine, avoided=False)
        elif machine.action == action.id:
            self.machines[machine.name] = replace(machine, state=ServiceState.IN_SERVICE, reason="")

    def hold(self, machines: Collection[str]) -> None:
        self.held = set(machines)

    def notify(self, jobs: tuple[str, ...], message: str) -> None:
        assert message
        self.calls.append(f"notify {' '.join(jobs)}")

    def publish(self, notices: Mapping[str, str]) -> None:
        self.notices = dict(notices)

    def exclusions(self, job: str) -> JobExclusions | None:
        return self.waiting.get(job)

    def exclude(self, job: str, machine: str) -> None:
        self.calls.append(f"exclude {machine} from {job}")
        self._change_exclusions(job, self.waiting[job].machines | {machine})

    def include(self, job: str, machine: str) -> None:
        self.calls.append(f"include {machine} in {job}")
        self._change_exclusions(job, self.waiting[job].machines - {machine})

    def _change_exclusions(self, job: str, machines: frozenset[str]) -> None:
        assert self.waiting[job].waits
        if self.exclusion_refusal:
            raise DriverError(self.exclusion_refusal)
        self.waiting[job] = JobExclusions(True, machines)
        if self.silent:
            self.silent = False
            raise DriverTimeoutError("no answer in 10 s")

    # --- external changes -------------------------------------------------------------------------

    def end_jobs(self, name: str) -> None:
        machine = self.machines[name]
        drained = machine.state is ServiceState.DRAINING
        state = ServiceState.DRAINED if drained else machine.state
        self.machines[name] = replace(machine, jobs=(), state=state)

    def set(self, name: str, state: ServiceState, reason: str = "") -> None:
        self.machines[name] = replace(self.machines[name], state=state, reason=reason)
