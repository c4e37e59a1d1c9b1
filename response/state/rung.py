"""Rungs: ways to go on after a job was interrupted, from a step retry to a new submission."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Rung"]


class Rung(StrEnum):
    """Way to go on after an interruption, the mildest first.

    `STEP_RETRY`: the framework repeats the step in its processes. `PROCESS`: the processes that
    failed start again on the same machines. `REPLACE`: a pod or machine is replaced. `RESTART`: all
    processes start again on the same machines. `REQUEUE`: the scheduler starts the job again.
    `RESUBMIT`: a person or another program submits it again.
    """

    STEP_RETRY = "step_retry"
    PROCESS = "process"
    REPLACE = "replace"
    RESTART = "restart"
    REQUEUE = "requeue"
    RESUBMIT = "resubmit"

    @property
    def rank(self) -> int:
        """Position in the order, 0 for the mildest."""
        return _RANKS[self]


_RANKS = {rung: number for number, rung in enumerate(Rung)}
