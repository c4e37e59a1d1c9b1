"""Kinds of evidence that a result rests on; results of different kinds are independent."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["EvidenceKind"]


class EvidenceKind(StrEnum):
    """What an observation or an analysis has read.

    `METRICS`: measurements of machines. `KERNEL_LOG`: the kernel's log, and states of processes.
    `DUMP`: flight recorder. `STACK`: stacks of processes. `EXIT_CODE`, `LOG`: ends and logs of
    processes. `LIST`: the at-risk list. `CHECK`: a test of hardware.
    """

    METRICS = "metrics"
    KERNEL_LOG = "kernel_log"
    DUMP = "dump"
    STACK = "stack"
    EXIT_CODE = "exit_code"
    LOG = "log"
    LIST = "list"
    CHECK = "check"
