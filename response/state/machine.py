"""Machines as the scheduler reports them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds

__all__ = ["MARK_PREFIX", "Machine", "ServiceState"]

MARK_PREFIX = "forewarn:"
"""Prefix of reasons that forewarn sets in the scheduler; the action's number follows."""


class ServiceState(StrEnum):
    """Whether a machine takes jobs.

    `DRAINING` takes no new jobs and still runs some; `DRAINED` runs none; `DOWN` does not answer,
    or was set down; `UNKNOWN` is the state after a restart of the controller, or until a machine
    that returned to service has answered.
    """

    IN_SERVICE = "in_service"
    DRAINING = "draining"
    DRAINED = "drained"
    DOWN = "down"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Machine:
    """One machine, as a driver has read it.

    Attributes
    ----------
    name : str
    state : ServiceState
    reason : str
        Why it is out of service, verbatim; empty if it is in service.
    jobs : tuple of str
        Running jobs.
    gpus : int
        0: it has no GPUs and counts against no limit.
    avoided : bool
        Whether forewarn has told the scheduler to prefer other machines.
    pool, rack, switch : str or None
    labels : mapping of str to str
        Labels of the scheduler; `forewarn=off` opts the machine out.
    boot : str
        Changes when the machine is a new one to the controller.
    reason_by : str
        Who set the reason, or in service who last changed a mark, if the scheduler reports it.
    reason_at : int or None
        When it was set, nanoseconds since 1970 UTC, if the scheduler reports it.
    moves_jobs : bool
        Whether the scheduler ends jobs, and moves them, as soon as the machine is closed.
    problems : mapping of str to str
        Problems that others report about its hardware, with their text, by name.
    blocked : bool
        Whether forewarn blocks it for some job, which counts as `avoided` for the limits.
    device_actions : mapping of int to tuple of str
        Jobs on the GPU, by number of the action that has taken one GPU out of service, and not the
        machine.
    unfinished : int or None
        Number of the action whose mark is incomplete or only partly removed: `apply` or `undo` is
        called again.
    """

    name: str
    state: ServiceState
    reason: str = ""
    jobs: tuple[str, ...] = ()
    gpus: int = 0
    avoided: bool = False
    pool: str | None = None
    rack: str | None = None
    switch: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    boot: str = ""
    reason_by: str = ""
    reason_at: Nanoseconds | None = None
    moves_jobs: bool = False
    problems: Mapping[str, str] = field(default_factory=dict)
    unfinished: int | None = None
    blocked: bool = False
    device_actions: Mapping[int, tuple[str, ...]] = field(default_factory=dict)

    @property
    def out(self) -> bool:
        """Tell whether the machine is out of service, for any reason."""
        return self.state is not ServiceState.IN_SERVICE

    @property
    def impaired(self) -> bool:
        """Tell whether the machine or one of its GPUs is out of service; limits count machines."""
        return self.out or bool(self.device_actions)

    @property
    def actions(self) -> frozenset[int]:
        """Numbers of all actions whose marks the machine or one of its GPUs carries."""
        own = () if self.action is None else (self.action,)
        return frozenset((*self.device_actions, *own))

    def jobs_under(self, action: int) -> tuple[str, ...]:
        """Return the jobs that an action affects: those on its GPU, or all of the machine."""
        return self.device_actions.get(action, self.jobs)

    @property
    def action(self) -> int | None:
        """Number of the action that the reason names; None if the reason is not a mark of forewarn.

        Examples
        --------
        >>> Machine("a", ServiceState.DRAINED, reason="forewarn:17 xid 79").action
        17
        """
        if not self.reason.startswith(MARK_PREFIX):
            return None
        number = self.reason.removeprefix(MARK_PREFIX).split(" ", 1)[0]
        return int(number) if number.isascii() and number.isdigit() else None

    @property
    def opted_out(self) -> bool:
        """Tell whether the owner has excluded the machine from all actions."""
        return self.labels.get("forewarn") == "off"
