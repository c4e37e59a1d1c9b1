"""A simulated cluster: actions on its machines change which jobs failures hit, not the failures."""

from __future__ import annotations

from dataclasses import dataclass, field

from forewarn.evaluation.simulation.operations.month_plan import MonthJob, MonthPlan
from forewarn.features.time_units import HOUR, Nanoseconds

__all__ = ["GPUS_PER_MACHINE", "Cluster", "MonthTotal", "StopCosts"]

GPUS_PER_MACHINE = 8
"""GPUs per machine."""


@dataclass(frozen=True, slots=True)
class StopCosts:
    """Hours that a stop costs, in addition to the work since the last checkpoint.

    Attributes
    ----------
    unplanned, planned : float
        Until the job runs again: detection, scheduling and start, or a planned restart.
    checkpoint : float
        Hours between two checkpoints.
    """

    unplanned: float = 0.5
    planned: float = 1 / 6
    checkpoint: float = 1.0


@dataclass(slots=True)
class _Job:
    plan: MonthJob
    left: float  # hours of work
    since: Nanoseconds
    machines: tuple[int, ...] = ()
    waits: float = 0.0  # hours before it works again


@dataclass(slots=True)
class MonthTotal:
    """Totals of a month, in GPU-hours.

    Attributes
    ----------
    done : float
        Useful work.
    lost : float
        Lost work, and waiting until a job runs again.
    isolated : float
        Idle time of healthy machines that were out of service.
    killed, stopped : int
        Jobs ended by a failure, and jobs requeued by an action.
    emptied : int
        Failures that hit no job, because the machine was already drained.
    """

    done: float = 0.0
    lost: float = 0.0
    isolated: float = 0.0
    killed: int = 0
    stopped: int = 0
    emptied: int = 0


@dataclass(slots=True)
class Cluster:
    """Machines, a job queue, and the current time.

    Attributes
    ----------
    plan : MonthPlan
    costs : StopCosts
    now : int
        Nanoseconds since 1970 UTC.
    drained, avoided : set of int
        Machines that get no job, and machines that get one last.
    total : MonthTotal
    """

    plan: MonthPlan
    costs: StopCosts = field(default_factory=StopCosts)
    now: Nanoseconds = field(init=False)
    drained: set[int] = field(default_factory=set)
    avoided: set[int] = field(default_factory=set)
    total: MonthTotal = field(default_factory=MonthTotal)
    _down: dict[int, Nanoseconds] = field(default_factory=dict)
    _queue: list[_Job] = field(default_factory=list)
    _running: dict[int, _Job] = field(default_factory=dict)
    _next_job: int = 0
    _next_breakdown: int = 0

    def __post_init__(self) -> None:
        self.now = self.plan.start

    # --- what a scheduler sees --------------------------------------------------------------------

    def down(self, machine: int) -> bool:
        """Tell whether a machine has failed and is not repaired yet."""
        return self._down.get(machine, self.now) > self.now

    def job_on(self, machine: int) -> int | None:
        """Return the number of the job on a machine; a machine has at most one."""
        running = self._running.get(machine)
        return None if running is None else running.plan.number

    def machines_with(self, machine: int) -> tuple[int, ...]:
        """Return the machines of the job on a machine; empty without a job."""
        running = self._running.get(machine)
        return () if running is None else running.machines

    def requeue(self, machine: int) -> None:
        """Stop the job of a machine at a checkpoint, to be started again elsewhere."""
        job = self._running.get(machine)
        if job is not None:
            self.total.stopped += 1
            self._stop(job, 0.0, self.costs.planned)

    # --- time -------------------------------------------------------------------------------------

    def advance(self, until: Nanoseconds) -> None:
        """Advance time; jobs end, start and arrive and machines fail in order of time."""
        self._start_jobs()  # a job may have been requeued, or a machine returned to service
        while (moment := self._next_moment(until)) < until:
            self._pass(moment)
            self._end_jobs()
            self._fail_machines()
            self._submit_jobs()
            self._start_jobs()
        self._pass(until)

    def _next_moment(self, until: Nanoseconds) -> Nanoseconds:
        ends = [self._end(job) for job in self._running.values()]
        repairs = [at for at in self._down.values() if at > self.now]
        plan = self.plan
        coming = [job.at for job in plan.jobs[self._next_job : self._next_job + 1]]
        broken = plan.breakdowns[self._next_breakdown : self._next_breakdown + 1]
        return min([until, *ends, *repairs, *coming, *(breakdown.at for breakdown in broken)])

    def _pass(self, moment: Nanoseconds) -> None:
        """Count the idle time until then."""
        hours = (moment - self.now) / HOUR
        idle = sum(
            machine not in self._running and not self.down(machine) for machine in self.drained
        )
        self.total.isolated += idle * hours * GPUS_PER_MACHINE
        self.now = max(self.now, moment)

    def _end(self, job: _Job) -> Nanoseconds:
        return Nanoseconds(job.since + round((job.waits + job.left) * HOUR))

    def _end_jobs(self) -> None:
        for job in {id(job): job for job in self._running.values()}.values():
            if self._end(job) <= self.now:
                gpus = len(job.machines) * GPUS_PER_MACHINE
                self.total.done += job.left * gpus
                self.total.lost += job.waits * gpus
                self._free(job)

    def _fail_machines(self) -> None:
        breakdowns = self.plan.breakdowns
        while (
            self._next_breakdown < len(breakdowns)
            and breakdowns[self._next_breakdown].at <= self.now
        ):
            breakdown = breakdowns[self._next_breakdown]
            self._next_breakdown += 1
            self._down[breakdown.machine] = breakdown.repaired
            job = self._running.get(breakdown.machine)
            if job is not None:
                self.total.killed += 1
                worked = max((self.now - job.since) / HOUR - job.waits, 0.0)
                self._stop(job, worked % self.costs.checkpoint, self.costs.unplanned)
            elif breakdown.machine in self.drained:
                self.total.emptied += 1

    def _stop(self, job: _Job, lost_hours: float, waits: float) -> None:
        """Remove a job from its machines and put it first in the queue; saved work counts."""
        gpus = len(job.machines) * GPUS_PER_MACHINE
        ran = (self.now - job.since) / HOUR
        saved = max(ran - job.waits - lost_hours, 0.0)
        self.total.done += saved * gpus
        self.total.lost += (ran - saved) * gpus
        self._free(job)
        job.left, job.waits = job.left - saved, waits
        self._queue.insert(0, job)

    def _free(self, job: _Job) -> None:
        for machine in job.machines:
            del self._running[machine]
        job.machines = ()

    def _submit_jobs(self) -> None:
        jobs = self.plan.jobs
        while self._next_job < len(jobs) and jobs[self._next_job].at <= self.now:
            plan = jobs[self._next_job]
            self._next_job += 1
            self._queue.append(_Job(plan, plan.hours, self.now))

    def _start_jobs(self) -> None:
        """Start jobs in the order of the queue; smaller jobs may pass one that does not fit."""
        free = [
            machine
            for machine in range(self.plan.machines)
            if machine not in self._running
            and machine not in self.drained
            and not self.down(machine)
        ]
        free.sort(key=lambda machine: machine in self.avoided)
        waiting = []
        for job in self._queue:
            if job.plan.machines > len(free):
                waiting.append(job)
                continue
            job.machines = tuple(free[: job.plan.machines])
            del free[: job.plan.machines]
            job.since = self.now
            self._running.update(dict.fromkeys(job.machines, job))
        self._queue = waiting
