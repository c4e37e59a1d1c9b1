"""A run of a job, from its start on the machines to its end, as accounting needs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from forewarn.features.time_units import Nanoseconds
from forewarn.response.recovery.job_crash import JobCrash
from forewarn.response.state.rung import Rung

__all__ = ["JobRun", "LoggedSave", "ReportedStep", "RunEnd"]


class RunEnd(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    STOPPED = "stopped"
    """By a person, a time limit or a more important job."""
    RUNNING = "running"


class ReportedStep(NamedTuple):
    """A line of progress.

    Attributes
    ----------
    time : int
    number : int
        Steps that the training has behind it.
    """

    time: int
    number: int


class LoggedSave(NamedTuple):
    """A checkpoint that was being saved, while no step was made.

    Attributes
    ----------
    begin, end : int
    """

    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """A run of a job.

    Attributes
    ----------
    begin, end : int
        While it held its machines. Of a run that goes on, `end` is now.
    gpus : int
    ended : RunEnd
    submitted : int or None
        When it was asked for: a requeue, a resubmission, or a restart by the job's launcher.
    rung : Rung
        How it began: `RESTART` by the launcher within the same allocation, `REQUEUE` by the
        scheduler, `RESUBMIT` by a person or another program.
    steps : tuple of ReportedStep
        In order of time; numbers that do not grow are left out.
    saves : tuple of LoggedSave
        In order, apart from each other.
    noticed : int or None
        When its trouble was first stated: a finding, or the launcher's word. None if nothing says.
    cause : str
        Of its end, empty if unknown.
    machines : tuple of str
        That caused its end, empty if unknown.
    crash : JobCrash or None
        What is known of the interruption that ended it, or that it is in.
    is_logged : bool
        Whether a log covers it, so that the absence of steps means that there were none.

    Raises
    ------
    ValueError
        If the span is empty, or it has no GPU.
    """

    begin: Nanoseconds
    end: Nanoseconds
    gpus: int
    ended: RunEnd
    submitted: Nanoseconds | None = None
    rung: Rung = Rung.RESUBMIT
    steps: tuple[ReportedStep, ...] = ()
    saves: tuple[LoggedSave, ...] = ()
    noticed: Nanoseconds | None = None
    cause: str = ""
    machines: tuple[str, ...] = ()
    crash: JobCrash | None = None
    is_logged: bool = True

    def __post_init__(self) -> None:
        """Refuse a run that cannot be accounted for."""
        if self.end <= self.begin:
            raise ValueError(f"`end` must be after `begin`, got {self.end} and {self.begin}.")
        if self.gpus < 1:
            raise ValueError(f"`gpus` must be at least 1, got {self.gpus}.")
