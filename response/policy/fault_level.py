"""Levels of faults: what each asks of the machine, and what of the job on it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forewarn.response.state.finding import Severity
from forewarn.response.state.rung import Rung
from forewarn.response.state.step import DrainMode, Step

__all__ = ["MINDCLUSTER_NAMES", "UNKNOWN_LEVEL", "BlockScope", "FaultLevel", "LevelRule"]


class FaultLevel(StrEnum):
    """Level of a fault, the mildest first."""

    IGNORE = "ignore"
    DEGRADED = "degraded"
    STEP_RETRY = "step_retry"
    PROCESS_RESTART = "process_restart"
    GPU_RESET_IDLE = "gpu_reset_idle"
    GPU_RESET = "gpu_reset"
    NO_NEW_JOBS = "no_new_jobs"
    ISOLATE = "isolate"
    ISOLATE_MANUAL = "isolate_manual"

    @property
    def rank(self) -> int:
        """Position in the order, 0 for the mildest."""
        return _RANKS[self]


_RANKS = {level: number for number, level in enumerate(FaultLevel)}

MINDCLUSTER_NAMES: Final = {
    "NotHandleFault": FaultLevel.IGNORE,
    "SubHealthFault": FaultLevel.DEGRADED,
    "RestartRequest": FaultLevel.STEP_RETRY,
    "RestartBusiness": FaultLevel.PROCESS_RESTART,
    "FreeRestartNPU": FaultLevel.GPU_RESET_IDLE,
    "RestartNPU": FaultLevel.GPU_RESET,
    "PreSeparateNPU": FaultLevel.NO_NEW_JOBS,
    "SeparateNPU": FaultLevel.ISOLATE,
    "ManuallySeparateNPU": FaultLevel.ISOLATE_MANUAL,
}
"""Levels by the names that MindCluster gives them."""

UNKNOWN_LEVEL: Final = "unknown level"
"""Name of the level of a code that MindCluster does not list."""


class BlockScope(StrEnum):
    """For which jobs a machine is blocked."""

    NONE = "none"
    JOB = "job"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class LevelRule:
    """What a level asks for.

    Attributes
    ----------
    severity : Severity
    step : Step
        For the machine.
    mode : DrainMode or None
        None where the step does not isolate.
    scope : BlockScope
        Of the block of the machine.
    rung : Rung or None
        Where a job that the fault has interrupted begins; None: the evidence decides.
    """

    severity: Severity
    step: Step
    mode: DrainMode | None = None
    scope: BlockScope = BlockScope.NONE
    rung: Rung | None = None
