"""Interface of scheduler drivers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action
from forewarn.response.state.machine import Machine
from forewarn.response.state.step import Step

__all__ = ["Driver", "DriverError", "DriverTimeoutError", "Fleet", "JobExclusions", "StepResult"]


class DriverError(Exception):
    """The scheduler refused a request; one line."""


class DriverTimeoutError(DriverError):
    """The scheduler did not answer in time: the result is unknown until it is read back."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """State of all machines at one time.

    Attributes
    ----------
    at : int
        Time of the reading, nanoseconds since 1970 UTC.
    machines : tuple of Machine
    controller : str
        Changes when the controller restarts; requests made just before may be lost.
    configured : str
        Changes when the controller rereads its configuration, which resets configured values such
        as weights.
    clock : int or None
        The scheduler's own time of the reading; None if it does not report one.
    lasting : bool
        The scheduler keeps every mark and lists every machine: what is gone was removed by others.
    """

    at: Nanoseconds
    machines: tuple[Machine, ...]
    controller: str
    configured: str = ""
    clock: Nanoseconds | None = None
    lasting: bool = False


@dataclass(frozen=True, slots=True)
class StepResult:
    """How a step that the scheduler carried out has ended."""

    succeeded: bool
    detail: str


@dataclass(frozen=True, slots=True)
class JobExclusions:
    """Machines that a running or waiting job excludes.

    Attributes
    ----------
    waits : bool
        Whether it can be changed: it has not started, or waits to start again.
    machines : frozenset of str
    owner : str
        User or namespace; empty if unknown.
    """

    waits: bool
    machines: frozenset[str]
    owner: str = ""


class Driver(Protocol):
    """Interface to a scheduler such as Slurm or Kubernetes.

    All calls are idempotent. None waits until a change takes effect; `read` shows that.
    """

    @property
    def name(self) -> str:
        """Return the name of the scheduler."""
        ...

    def read(self) -> Fleet:
        """Return all machines.

        Raises
        ------
        DriverError
            If the scheduler does not answer or its answer is unreadable.
        """
        ...

    def apply(self, action: Action, *, why: str) -> None:
        """Request the change of an action: new jobs avoid the machine, or cannot use it.

        A machine that is drained externally is not changed.

        Raises
        ------
        DriverTimeoutError
            If there was no answer: the change may have been made, or may be made later.
        DriverError
            If the scheduler refused, or the machine is drained externally.
        """
        ...

    def reserve(self, action: Action) -> None:
        """Allow only checks on an empty machine that this action has drained.

        Afterwards `undo` returns it to service, and `apply` drains it again.

        Raises
        ------
        DriverError
            As in `apply`, or if the machine has jobs or is not drained by the action.
        """
        ...

    def carry_out(self, action: Action, step: Step) -> None:
        """Reset or restart an empty machine that this action has drained.

        Its mark stays until `undo`: meanwhile only checks can run on it.

        Raises
        ------
        DriverError
            As in `reserve`, or if the scheduler cannot carry out the step.
        """
        ...

    def step_result(self, action: Action, step: Step, *, overdue: bool) -> StepResult | None:
        """Return how the step of `carry_out` has ended; None if that is not known yet.

        A scheduler that can withdraw an overdue step does so, and the step has failed.

        Raises
        ------
        DriverError
            As in `read`.
        """
        ...

    def evict(self, action: Action, jobs: tuple[str, ...]) -> None:
        """Requeue jobs of a machine that is drained with a deadline, or immediately.

        Raises
        ------
        DriverError
            As in `apply`.
        """
        ...

    def undo(self, action: Action) -> None:
        """Undo the change of an action; changes by others are kept.

        Raises
        ------
        DriverError
            As in `apply`.
        """
        ...

    def hold(self, machines: Collection[str]) -> None:
        """Ask whatever removes machines of itself to keep these for now, and no others.

        Raises
        ------
        DriverError
            As in `apply`.
        """
        ...

    def notify(self, jobs: tuple[str, ...], message: str) -> None:
        """Notify the owners of jobs; jobs that have ended are ignored.

        Raises
        ------
        DriverError
            As in `apply`.
        """
        ...

    def publish(self, notices: Mapping[str, str]) -> None:
        """Show each job its notice, and remove the notices of other jobs.

        Parameters
        ----------
        notices : mapping of str to str
            JSON by job.

        Raises
        ------
        DriverError
            As in `apply`.
        """
        ...

    def exclusions(self, job: str) -> JobExclusions | None:
        """Return the machines that a job excludes, or None if it has ended.

        Raises
        ------
        DriverError
            As in `read`.
        """
        ...

    def exclude(self, job: str, machine: str) -> None:
        """Keep a machine out of a waiting job; machines that it excludes already stay so.

        Raises
        ------
        DriverError
            As in `apply`, and if the job would then never fit.
        """
        ...

    def include(self, job: str, machine: str) -> None:
        """Undo `exclude` of a waiting job.

        Raises
        ------
        DriverError
            As in `apply`.
        """
        ...
