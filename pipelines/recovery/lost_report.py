"""Report of lost time as one JSON object, and as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from forewarn.features.duration import format_duration
from forewarn.pipelines.rendering.templates import plural
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.recovery.interruption_losses import (
    RESTART_USES,
    InterruptionLoss,
    LossGroup,
    group_losses,
    interruption_losses,
    saved_by_rung,
)
from forewarn.response.recovery.lost_time import LostTime, TimeUse

__all__ = ["fleet_report", "job_report", "report_lines"]

_MAX_MACHINES = 10
_UNKNOWN_CAUSE: Final = "unknown"
_NO_RESTART: Final = "none"


def job_report(job: str, lost: LostTime) -> dict[str, Any]:
    """Return the account of one job (docs/reference/formats.md, section 11)."""
    losses = interruption_losses(job, lost)
    return {
        "job": job,
        "begin": format_iso(lost.runs[0].begin),
        "end": format_iso(lost.runs[-1].end),
        "runs": len(lost.runs),
        "gpus": lost.runs[-1].gpus,
        **_shares([lost]),
        **_groups(losses),
        "spans": [
            {
                "begin": format_iso(span.begin),
                "end": format_iso(span.end),
                "use": span.use.value,
                "gpus": span.gpus,
                "interruption": span.interruption,
            }
            for span in lost.spans
        ],
    }


def fleet_report(jobs: Mapping[str, LostTime], unread: Mapping[str, str]) -> dict[str, Any]:
    """Return the account of all jobs of a fleet.

    Parameters
    ----------
    jobs : mapping of str to LostTime
    unread : mapping of str to str
        Jobs that could not be accounted for, with the reasons.
    """
    losses = [loss for job, lost in jobs.items() for loss in interruption_losses(job, lost)]
    begins = [lost.runs[0].begin for lost in jobs.values()]
    ends = [lost.runs[-1].end for lost in jobs.values()]
    return {
        "jobs": [
            {"job": job, **_shares([lost]), "interruptions": len(lost.interruptions)}
            for job, lost in sorted(jobs.items(), key=lambda item: -_lost_gpu_time(item[1]))
        ],
        "begin": format_iso(min(begins)) if begins else None,
        "end": format_iso(max(ends)) if ends else None,
        **_shares(list(jobs.values())),
        **_groups(losses),
        "unread": dict(unread),
    }


def _lost_gpu_time(lost: LostTime) -> int:
    return lost.elapsed - lost.totals()[TimeUse.USEFUL]


def _shares(accounts: Sequence[LostTime]) -> dict[str, Any]:
    """Return GPU time by use; the uses add up to what elapsed, to the nanosecond."""
    totals = dict.fromkeys(TimeUse, 0)
    for lost in accounts:
        for use, gpu_time in lost.totals().items():
            totals[use] += gpu_time
    elapsed = sum(totals.values())
    return {
        "elapsed_gpu_ns": elapsed,
        "gpu_ns": {use.value: gpu_time for use, gpu_time in totals.items()},
        "effective_share": totals[TimeUse.USEFUL] / elapsed if elapsed else None,
    }


def _groups(losses: Sequence[InterruptionLoss]) -> dict[str, Any]:
    by_rung = group_losses(losses, lambda loss: [loss.rung or _NO_RESTART])
    by_machine = group_losses(losses, lambda loss: loss.machines)
    return {
        "interruptions": [_loss_row(loss) for loss in losses],
        "by_cause": [
            _group_row(group)
            for group in group_losses(losses, lambda loss: [loss.cause or _UNKNOWN_CAUSE])
        ],
        "by_rung": [_group_row(group) for group in by_rung],
        "saved_seconds_by_rung": saved_by_rung(by_rung),
        "by_machine": [_group_row(group) for group in by_machine[:_MAX_MACHINES]],
    }


def _loss_row(loss: InterruptionLoss) -> dict[str, Any]:
    return {
        "job": loss.job,
        "at": format_iso(loss.at),
        "cause": loss.cause or _UNKNOWN_CAUSE,
        "machines": list(loss.machines),
        "rung": loss.rung or _NO_RESTART,
        "seconds": {use.value: seconds for use, seconds in loss.seconds.items()},
        "gpu_ns": loss.gpu_time,
    }


def _group_row(group: LossGroup) -> dict[str, Any]:
    means = group.mean_seconds
    return {
        "key": group.key,
        "interruptions": group.count,
        "gpu_ns": group.gpu_time,
        "mean_seconds": {use.value: means[use] for use in RESTART_USES},
    }


def report_lines(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield a report as text."""
    share = report["effective_share"]
    if share is None:
        yield "No GPU time is known."
        return
    name = report["job"] if "job" in report else plural(len(report["jobs"]), "job")
    elapsed = report["elapsed_gpu_ns"]
    yield (
        f"{name}: {share:.1%} of {_gpu_hours(elapsed)} was useful, "
        f"{report['begin']} to {report['end']}."
    )
    for use, gpu_time in report["gpu_ns"].items():
        if gpu_time:
            yield f"  {use:<11}{gpu_time / elapsed:>7.1%}  {_gpu_hours(gpu_time)}"
    yield from _group_lines("Interruptions by cause", report["by_cause"])
    yield from _group_lines("By how the job went on", report["by_rung"])
    for rung, seconds in report["saved_seconds_by_rung"].items():
        words = "less" if seconds >= 0 else "more"
        yield f"  {rung} cost {_duration(abs(seconds))} {words} than the next harder way"
    yield from _group_lines("Machines that cost most", report["by_machine"])
    for job, reason in report.get("unread", {}).items():
        yield f"not accounted for: {job}: {reason}"


def _group_lines(title: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    yield f"{title}:"
    for row in rows:
        means = ", ".join(
            f"{use} {_duration(seconds)}" for use, seconds in row["mean_seconds"].items() if seconds
        )
        hours = _gpu_hours(row["gpu_ns"])
        yield f"  {row['interruptions']:>3}  {hours:>14}  {row['key']}; on average {means or '0s'}"


def _gpu_hours(gpu_time: int) -> str:
    return f"{gpu_time / 3.6e12:,.2f} GPU-hours"


def _duration(seconds: float) -> str:
    return format_duration(round(seconds))
