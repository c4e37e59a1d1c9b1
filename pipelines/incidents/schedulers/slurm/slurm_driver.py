"""Slurm driver: reads with `scontrol` and `squeue`, changes with `scontrol`."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import (
    DriverError,
    DriverTimeoutError,
    Fleet,
    JobExclusions,
    StepResult,
)
from forewarn.pipelines.incidents.schedulers.slurm.drain_reason import (
    checks_reason,
    drain_reason,
    sanitize,
)
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.incidents.schedulers.slurm.slurm_jobs import (
    SlurmJob,
    exclude_nodes,
    read_job,
)
from forewarn.pipelines.incidents.schedulers.slurm.slurm_nodes import (
    AVOID_WEIGHT,
    SlurmNode,
    parse_nodes,
)
from forewarn.pipelines.incidents.schedulers.slurm.slurm_output import (
    controller_start,
    controller_time,
    jobs_by_node,
    leaf_switches,
    maintenance_by_node,
    reconfigurations,
    reservation_name,
    restart_refusal,
)
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.response.state.action import Action
from forewarn.response.state.step import Step

__all__ = ["SlurmDriver"]

_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_JOB = re.compile(r"[0-9]{1,12}([_+][0-9]{1,12})?")
_USERS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,-]*")
# The job has ended or is pending: it is no longer on the machine.
_NOT_RUNNING = re.compile(r"invalid job id|pending|complet", re.IGNORECASE)
_NOT_NOTIFIABLE = re.compile(r"invalid job id|pending|complet|presently disabled", re.IGNORECASE)
_RUNNING = "running,completing,configuring,suspended,stopped,signaling,resizing,stage_out"


def _refuse_external(node: SlurmNode, reservation: str) -> None:
    """Raise if a node is drained externally.

    The reason of a node in service is ignored: Slurm 24.11 may keep it after a resume.
    """
    machine = node.machine(pools={}, reservation=reservation)
    if machine.action is not None or not (node.closed or reservation):
        return
    if machine.reason:
        raise DriverError(f"{node.name} is drained externally: {machine.reason}")
    raise DriverError(f"{node.name} is drained externally, without a reason")


@dataclass(frozen=True, slots=True)
class SlurmDriver:
    """Driver of a Slurm cluster.

    Attributes
    ----------
    pools : mapping of str to str
        Partition of each pool; a node in several belongs to the first.
    command : SlurmCommand
    check_users : str
        Users who may run checks in a reservation, separated by commas.
    clock : Clock
    """

    pools: Mapping[str, str] = field(default_factory=dict)
    command: SlurmCommand = field(default_factory=SlurmCommand)
    check_users: str = "root"
    clock: Clock = field(default_factory=SystemClock)
    name: str = "slurm"

    def read(self) -> Fleet:
        """Return all nodes with their jobs, and the start time of the controller.

        Raises
        ------
        DriverError
            If Slurm does not answer or its answer is unreadable.
        """
        at = Nanoseconds(self.clock.now())
        try:
            jobs = jobs_by_node(self._squeue())
            reasons = self._reservations()
            switches = leaf_switches(self._show("topology"))
            nodes = parse_nodes(self._show("node", "-o"))
            config = self._show("config")
            controller, clock = controller_start(config), controller_time(config)
            configured = f"{controller} {reconfigurations(self._diagnosis())}".rstrip()
        except ValueError as error:
            raise DriverError(f"Slurm's output is unreadable: {error}") from None
        machines = [
            node.machine(
                jobs.get(node.name, ()),
                pools=self.pools,
                switch=switches.get(node.name),
                reservation=reasons.get(node.name, ""),
            )
            for node in nodes
        ]
        return Fleet(at, tuple(machines), controller, configured, clock)

    def apply(self, action: Action, *, why: str) -> None:
        """Raise the weight of a node, or drain it; delete the reservation of `reserve`.

        Raises
        ------
        DriverTimeoutError
            If there was no answer: the change may have been made, or may be made later.
        DriverError
            If Slurm refused, or the node is drained externally.
        """
        node = self._node(action.machine)
        if node is None:
            raise DriverError(f"Slurm has no node {action.machine!r}")
        reservation = self._reservations().get(node.name, "")
        _refuse_external(node, reservation)
        if action.step is Step.AVOID:
            self._avoid(node)
            return
        if not (node.drained and node.action == action.id):
            self._update(node, "state=drain", f"reason={drain_reason(action, why)}")
        if reservation == checks_reason(action):
            self._delete_reservation(action)

    def _avoid(self, node: SlurmNode) -> None:
        if node.weight >= 2 * AVOID_WEIGHT:
            raise DriverError(
                f"{node.name} has weight {node.weight}, expected below {AVOID_WEIGHT}"
            )
        if not node.avoided:
            self._update(node, f"weight={node.weight + AVOID_WEIGHT}")

    def reserve(self, action: Action) -> None:
        """Reserve a node that this action has drained for checks, until `undo` or `apply`.

        The reservation has no end: if forewarn stops, no other job runs before the check.

        Raises
        ------
        DriverError
            As in `apply`, and if the node is not empty, or not drained by the action.
        """
        node = self._node(action.machine)
        if node is None:
            raise DriverError(f"Slurm has no node {action.machine!r}")
        drained = node.drained and node.action == action.id
        if not self._has_reservation(action):
            if not drained or self._jobs_on(node):
                raise DriverError(f"{node.name} is not drained by action {action.id}, or has jobs")
            self._create_reservation(action)
        if drained:
            self._update(node, "state=undrain")

    def carry_out(self, action: Action, step: Step) -> None:
        """Restart a node that this action has drained, in a reservation for its checks.

        The reservation comes first: after the restart Slurm removes the drain and its reason.

        Raises
        ------
        DriverError
            As in `reserve`, and if Slurm is not configured to restart nodes.
        """
        if step is not Step.RESTART:
            raise DriverError(f"Slurm cannot {step} a node, expected a command")
        refusal = restart_refusal(self._show("config"))
        if refusal:
            raise DriverError(refusal)
        node = self._node(action.machine)
        if node is None:
            raise DriverError(f"Slurm has no node {action.machine!r}")
        reserved = self._has_reservation(action)
        drained = node.drained and node.action == action.id
        if not (drained or reserved) or self._jobs_on(node):
            raise DriverError(f"{node.name} is not drained by action {action.id}, or has jobs")
        if not reserved:
            self._create_reservation(action)
        if not drained:
            self._drain_for_restart(node, action)
        self.command.change(
            *("scontrol", "reboot", "ASAP", "nextstate=RESUME"),
            *(f"reason={drain_reason(action, '')}", node.name),
        )

    def _drain_for_restart(self, node: SlurmNode, action: Action) -> None:
        """Drain a node that was checked before: its return then shows that it restarted."""
        try:
            self._update(node, "state=drain", f"reason={drain_reason(action, '')}")
        except DriverTimeoutError as error:
            raise DriverError(f"not restarted: {error}") from None

    def step_result(self, action: Action, step: Step, *, overdue: bool) -> StepResult | None:
        """Return success once a node has resumed in the reservation of its restart.

        Slurm cannot withdraw a restart.

        Raises
        ------
        DriverError
            If Slurm does not answer.
        """
        del step, overdue
        node = self._node(action.machine)
        if node is None or node.drained or node.down or not self._has_reservation(action):
            return None
        if any(flag.startswith(("REBOOT", "NOT_RESPONDING")) for flag in node.flags):
            return None
        return StepResult(succeeded=True, detail="it answers again")

    def evict(self, action: Action, jobs: tuple[str, ...]) -> None:
        """Requeue jobs of a node that this action has drained.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If the node is not drained by the action, or Slurm cannot requeue a job.
        """
        node = self._node(action.machine)
        if node is None or not node.drained or node.action != action.id:
            raise DriverError(f"{action.machine} is not drained by action {action.id}")
        on_node = self._jobs_on(node)
        refusals = [
            self._refusal(_NOT_RUNNING, "requeue", job)
            for job in jobs
            if _JOB.fullmatch(job) and job in on_node
        ]
        if any(refusals):
            raise DriverError("; ".join(filter(None, refusals)))

    def undo(self, action: Action) -> None:
        """Remove the mark of an action from a node: drain, reservation or weight.

        `undrain` leaves a node down that is down. A node that went down while it was drained would
        keep the drain reason, and therefore gets another one.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If Slurm refused.
        """
        node = self._node(action.machine)
        if node is not None and action.step is Step.AVOID:
            if node.avoided:
                self._update(node, f"weight={node.weight - AVOID_WEIGHT}")
            return
        if node is not None and node.action == action.id:
            if node.drained:
                self._update(node, "state=undrain")
            if node.down:
                self._update(node, "reason=was down when forewarn released it")
        if self._has_reservation(action):
            self._delete_reservation(action)

    def hold(self, machines: Collection[str]) -> None:
        """Do nothing: Slurm's power saving waits for jobs and drained nodes."""
        del machines

    def notify(self, jobs: tuple[str, ...], message: str) -> None:
        """Write a message to the output of jobs.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If Slurm refused for another reason than that a job cannot be notified.
        """
        text = sanitize(message)
        refusals = [
            self._refusal(_NOT_NOTIFIABLE, "notify", job, text)
            for job in jobs
            if _JOB.fullmatch(job)
        ]
        if any(refusals):
            raise DriverError("; ".join(filter(None, refusals)))

    def publish(self, notices: Mapping[str, str]) -> None:
        """Do nothing: Slurm has no place for a notice that a job can read."""

    def exclusions(self, job: str) -> JobExclusions | None:
        """Return the nodes that a job excludes, or None if it has ended.

        Raises
        ------
        DriverError
            If Slurm does not answer, or the job is an array of tasks.
        """
        known = self._job(job)
        return None if known is None else JobExclusions(known.pending, known.excluded, known.owner)

    def exclude(self, job: str, machine: str) -> None:
        """Add a node to those that a waiting job excludes.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If Slurm refused, or the job would then never fit.
        """
        known = self._job(job)
        if self._node(machine) is None:
            raise DriverError(f"Slurm has no node {machine!r}")
        if known is not None and machine not in known.excluded:
            exclude_nodes(self.command, known, known.excluded | {machine})

    def include(self, job: str, machine: str) -> None:
        """Remove a node from those that a waiting job excludes.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If Slurm refused.
        """
        known = self._job(job)
        if known is not None and machine in known.excluded:
            exclude_nodes(self.command, known, known.excluded - {machine})

    def _job(self, job: str) -> SlurmJob | None:
        if not _JOB.fullmatch(job):
            raise DriverError(f"{job[:100]!r} is not a valid job number")
        return read_job(self.command, job)

    def _refusal(self, harmless: re.Pattern[str], verb: str, job: str, *words: str) -> str:
        """Change a job; return the refusal of Slurm, or an empty string if it is harmless."""
        try:
            self.command.change("scontrol", verb, job, *words)
        except DriverTimeoutError:
            raise
        except DriverError as error:
            return "" if harmless.search(str(error)) else str(error)
        return ""

    # --- one node ---------------------------------------------------------------------------------

    def _node(self, name: str) -> SlurmNode | None:
        """Read one node before a change; return None if Slurm has no node of this exact name.

        Slurm also accepts lists, node sets and `ALL` as names; here a name denotes one node.
        """
        if not _MACHINE.fullmatch(name):
            raise DriverError(f"{name[:100]!r} is not a valid node name")
        try:
            nodes = parse_nodes(self._show("node", name, "-o"))
        except ValueError as error:
            raise DriverError(f"Slurm's output is unreadable: {error}") from None
        except DriverError as error:
            if "not found" in str(error):
                return None
            raise
        return nodes[0] if [node.name for node in nodes] == [name] else None

    def _jobs_on(self, node: SlurmNode) -> tuple[str, ...]:
        return tuple(jobs_by_node(self._squeue("-w", node.name)).get(node.name, ()))

    def _update(self, node: SlurmNode, *changes: str) -> None:
        self.command.change("scontrol", "update", f"nodename={node.name}", *changes)

    # --- reservations -----------------------------------------------------------------------------

    def _reservations(self) -> dict[str, str]:
        return maintenance_by_node(self._show("reservation", "-o"))

    def _has_reservation(self, action: Action) -> bool:
        return self._reservations().get(action.machine) == checks_reason(action)

    def _create_reservation(self, action: Action) -> None:
        if not _USERS.fullmatch(self.check_users):
            raise DriverError(
                f"`check_users` is {self.check_users!r}, expected user names separated by commas"
            )
        self.command.change(
            *("scontrol", "create", "reservation"),
            f"reservationname={reservation_name(action.id)}",
            *("starttime=now", "duration=UNLIMITED", "flags=maint,ignore_jobs"),
            *(f"nodes={action.machine}", f"users={self.check_users}"),
        )

    def _delete_reservation(self, action: Action) -> None:
        name = reservation_name(action.id)
        self.command.change("scontrol", "delete", f"reservationname={name}")

    # --- reading ----------------------------------------------------------------------------------

    def _show(self, what: str, *options: str) -> str:
        return self.command.ask("scontrol", "show", what, *options)

    def _diagnosis(self) -> str:
        """Return the statistics of the controller; empty if access is denied."""
        try:
            return self.command.ask("sdiag")
        except DriverTimeoutError:
            raise
        except DriverError:
            return ""

    def _squeue(self, *options: str) -> str:
        return self.command.ask(
            "squeue", "-h", "-a", *options, f"--states={_RUNNING}", "-o", "%i|%N"
        )
