"""Step from which a job can restart, as its logs show checkpoints and steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from forewarn.features.diagnosis.log_lines.checkpoint_step import checkpoint_step
from forewarn.models.diagnosis.verdict.restart_point import (
    CheckpointLine,
    RestartPoint,
    last_saved_step,
)
from forewarn.pipelines.diagnosis.parts.log_attempt import JobAttempt
from forewarn.pipelines.diagnosis.parts.log_reader import ScannedLog

__all__ = ["restart_point"]


def restart_point(logs: Sequence[ScannedLog], attempt: JobAttempt) -> RestartPoint | None:
    """Return the step of the last checkpoint, else the last step seen, else None.

    A checkpoint is complete if all ranks that report theirs have saved it, in any attempt.

    Parameters
    ----------
    logs : sequence of ScannedLog
        Of all attempts.
    attempt : JobAttempt
        The attempt that was running at the time of the verdict.
    """
    saved: dict[int | None, int] = {}
    for log in logs:
        step = last_saved_step(_checkpoint_lines(log, attempt.at), _last_step(log, attempt))
        if step is not None:
            saved[log.rank] = max(step, saved.get(log.rank, step))
    if saved:
        return RestartPoint(min(saved.values()), is_saved=True)
    steps = (_last_step(log, attempt) for log in attempt.logs)
    last = max((step for step in steps if step is not None), default=None)
    return None if last is None else RestartPoint(last, is_saved=False)


def _checkpoint_lines(log: ScannedLog, at: int) -> Iterator[CheckpointLine]:
    for hit in log.scan.phases if log.scan is not None else ():
        phase = hit.pattern.phase or ""
        if phase.startswith("checkpoint") and (hit.time is None or hit.time <= at):
            yield CheckpointLine(phase.endswith("ends"), checkpoint_step(hit.line))


def _last_step(log: ScannedLog, attempt: JobAttempt) -> int | None:
    """Return the last step of a log, if its progress lines count steps."""
    if log.scan is None or not log.scan.progress.counts_steps:
        return None
    steps = list(attempt.steps(log))
    return steps[-1].number if steps else None
