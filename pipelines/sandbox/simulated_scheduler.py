"""Scheduler driver for a simulated cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from forewarn.evaluation.simulation.operations.simulated_cluster import GPUS_PER_MACHINE, Cluster
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import DriverError, Fleet, JobExclusions
from forewarn.response.state.action import Action
from forewarn.response.state.machine import MARK_PREFIX, Machine, ServiceState
from forewarn.response.state.step import Step

__all__ = ["SimulatedScheduler", "machine_name"]

_MACHINES_PER_RACK = 8  # machines


def machine_name(number: int) -> str:
    """Return the name of a machine of a simulated cluster, as in a simulated fleet."""
    return f"node-{number:05d}"


@dataclass(slots=True)
class SimulatedScheduler:
    """Driver that applies actions to a simulated cluster immediately.

    Attributes
    ----------
    cluster : Cluster
    pool : str
        Pool of the machines, unless `pools` says otherwise.
    pools, racks : mapping of str to str
        By machine.
    """

    cluster: Cluster
    pool: str
    name: str = "simulation"
    pools: Mapping[str, str] = field(default_factory=dict)
    racks: Mapping[str, str] = field(default_factory=dict)
    _actions: dict[int, int] = field(default_factory=dict)

    def now(self) -> int:
        """Return the time of the cluster, which is also the clock of the loop."""
        return self.cluster.now

    def read(self) -> Fleet:
        """Return all machines."""
        machines = tuple(self._machine(number) for number in range(self.cluster.plan.machines))
        now = Nanoseconds(self.cluster.now)
        return Fleet(now, machines, "simulation", clock=now)

    def _machine(self, number: int) -> Machine:
        job, drained = self.cluster.job_on(number), number in self.cluster.drained
        state, reason = ServiceState.IN_SERVICE, ""
        if drained:
            state = ServiceState.DRAINED if job is None else ServiceState.DRAINING
            reason = f"{MARK_PREFIX}{self._actions[number]}"
        elif self.cluster.down(number):
            state, reason = ServiceState.DOWN, "node failure"
        name = machine_name(number)
        return Machine(
            name,
            state,
            reason=reason,
            jobs=() if job is None else (str(job),),
            gpus=GPUS_PER_MACHINE,
            avoided=number in self.cluster.avoided,
            pool=self.pools.get(name, self.pool),
            rack=self.racks.get(name, f"rack-{number // _MACHINES_PER_RACK:02d}"),
        )

    def apply(self, action: Action, *, why: str) -> None:
        """Drain a machine, or mark it to be avoided."""
        number = self._number(action)
        if action.step is Step.AVOID:
            self.cluster.avoided.add(number)
            return
        if self.cluster.down(number) and number not in self.cluster.drained:
            raise DriverError(f"{action.machine} is down ({why})")
        self._actions[number] = action.id
        self.cluster.drained.add(number)

    def reserve(self, action: Action) -> None:
        """Do nothing: checks are not simulated."""

    def carry_out(self, action: Action, step: Step) -> None:
        """Do nothing: steps are not simulated."""

    def step_result(self, action: Action, step: Step, *, overdue: bool) -> None:
        """Return None: no step has ended."""

    def evict(self, action: Action, jobs: tuple[str, ...]) -> None:
        """Requeue the job of a machine."""
        if jobs:
            self.cluster.requeue(self._number(action))

    def undo(self, action: Action) -> None:
        """Return a machine to service."""
        number = self._number(action)
        if action.step is Step.AVOID:
            self.cluster.avoided.discard(number)
        elif self._actions.get(number) == action.id:
            self.cluster.drained.discard(number)

    def hold(self, machines: Collection[str]) -> None:
        """Do nothing: no machine is removed."""

    def notify(self, jobs: tuple[str, ...], message: str) -> None:
        """Do nothing: there are no users."""

    def publish(self, notices: Mapping[str, str]) -> None:
        """Do nothing: simulated jobs read nothing."""

    def exclusions(self, job: str) -> JobExclusions | None:
        """Return None: no block is asked for."""

    def exclude(self, job: str, machine: str) -> None:
        """Do nothing."""

    def include(self, job: str, machine: str) -> None:
        """Do nothing."""

    @staticmethod
    def _number(action: Action) -> int:
        return int(action.machine.removeprefix("node-"))
