"""The interface of schedulers: what is read of machines, and what can be changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.action import Action
from forewarn.response.state.machine import Machine

__all__ = ["Driver", "DriverError", "DriverTimeoutError", "Fleet"]


class DriverError(Exception):
    """The scheduler refused, in words of one line."""


class DriverTimeoutError(DriverError):
    """No answer in time: whether it was done is unknown until it is read."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """All machines at one moment.

    Attributes
    ----------
    at : int
        When it was read, nanoseconds since 1970 UTC.
    machines : tuple of Machine
    controller : str
        Changes when the controller was started anew; what it was told just before may be lost.
    configured : str
        Changes when the controller read its configuration anew, which takes back what stands there,
        such as weights.
    clock : int or None
        The scheduler's own time when it was read; None if it does not tell.
    """

    at: Nanoseconds
    machines: tuple[Machine, ...]
    controller: str
    configured: str = ""
    clock: Nanoseconds | None = None


class Driver(Protocol):
    """A scheduler; Slurm, Kubernetes and whatever a site has look the same from here.

    Every call may be made again: what holds already is left as it is. None of them waits until
    a change holds; `read` tells.
    """

    @property
    def name(self) -> str:
        """Return what the scheduler is called."""
        ...

    def read(self) -> Fleet:
        """Return all machines.

        Raises
        ------
        DriverError
            If the scheduler does not answer or its answer cannot be read.
        """
        ...

    def apply(self, action: Action, *, why: str) -> None:
        """Ask for what an action wants: new jobs go elsewhere, or none comes at all.

        A machine that somebody else has taken out of service is left alone.

        Raises
        ------
        DriverTimeoutError
            If no answer came: it may have been done, or be done later.
        DriverError
            If the scheduler refused, or somebody else has taken the machine out of service.
        """
        ...

    def reserve(self, action: Action) -> None:
        """Let nothing but checks run on an empty machine that this action has taken out.

        `undo` gives it back after that, `apply` takes it out again.

        Raises
        ------
        DriverError
            As of `apply`, or if the machine has jobs or is no longer held by the action.
        """
        ...

    def evict(self, action: Action, jobs: tuple[str, ...]) -> None:
        """Requeue these jobs of a machine that is drained with a deadline, or now.

        Raises
        ------
        DriverError
            As of `apply`.
        """
        ...

    def undo(self, action: Action) -> None:
        """Take back what an action did, and nothing that somebody else did.

        Raises
        ------
        DriverError
            As of `apply`.
        """
        ...

    def notify(self, jobs: tuple[str, ...], message: str) -> None:
        """Tell the owners of jobs; a job that has ended is nothing to complain about.

        Raises
        ------
        DriverError
            As of `apply`.
        """
        ...
