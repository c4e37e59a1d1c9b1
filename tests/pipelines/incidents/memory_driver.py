"""A scheduler in memory, behind the interface of the real ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import DriverError, DriverTimeoutError, Fleet
from forewarn.response.state.action import Action
from forewarn.response.state.machine import MARK_PREFIX, Machine, ServiceState
from forewarn.response.state.step import Step


@dataclass(slots=True)
class MemoryDriver:
    """Machines that do what they are told, now or later.

    Attributes
    ----------
    machines : dict of str to Machine
    now : int
    controller : str
    silent : bool
        The next change is done, and its answer lost.
    tells : bool
        It says what its own clock shows, which is `now`.
    told : list of str
        Every change that was asked for.
    """

    machines: dict[str, Machine]
    now: Nanoseconds
    controller: str = "first life"
    silent: bool = False
    tells: bool = True
    told: list[str] = field(default_factory=list)
    name: str = "memory"

    def read(self) -> Fleet:
        machines = tuple(self.machines.values())
        return Fleet(self.now, machines, self.controller, clock=self.now if self.tells else None)

    def apply(self, action: Action, *, why: str) -> None:
        self.told.append(f"{action.step} {action.machine}")
        machine = self.machines[action.machine]
        if machine.out and machine.action != action.id:
            raise DriverError(f"{machine.name} was taken out by somebody else")
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
        self.told.append(f"reserve {action.machine}")

    def evict(self, action: Action, jobs: tuple[str, ...]) -> None:
        self.told.append(f"evict {' '.join(jobs)}")
        self.end_jobs(action.machine)

    def undo(self, action: Action) -> None:
        self.told.append(f"undo {action.machine}")
        machine = self.machines[action.machine]
        if action.step is Step.AVOID:
            self.machines[machine.name] = replace(machine, avoided=False)
        elif machine.action == action.id:
            self.machines[machine.name] = replace(machine, state=ServiceState.IN_SERVICE, reason="")

    def notify(self, jobs: tuple[str, ...], message: str) -> None:
        assert message
        self.told.append(f"notify {' '.join(jobs)}")

    # --- what others do ---------------------------------------------------------------------------

    def end_jobs(self, name: str) -> None:
        machine = self.machines[name]
        drained = machine.state is ServiceState.DRAINING
        state = ServiceState.DRAINED if drained else machine.state
        self.machines[name] = replace(machine, jobs=(), state=state)

    def set(self, name: str, state: ServiceState, reason: str = "") -> None:
        self.machines[name] = replace(self.machines[name], state=state, reason=reason)
