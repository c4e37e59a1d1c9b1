"""HTML page of a replay, for the decision whether a policy may act."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from forewarn.features.duration import format_duration
from forewarn.features.time_units import MINUTE, SECOND, SECONDS_PER_MINUTE
from forewarn.pipelines.incidents.replay.replay_report import (
    ReplayDrain,
    ReplayReport,
    replay_sentences,
)
from forewarn.pipelines.rendering.svg_figures import inline_svg
from forewarn.pipelines.rendering.templates import amount, count, moment, plural, render_page
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.response.replay.replay_metrics import BlockedDrain, DrainMetrics
from forewarn.response.replay.replay_outcome import ReplayOutcome
from forewarn.response.state.incident import Outcome
from forewarn.response.state.step import Step

__all__ = ["render_replay", "write_replay_page"]

_MAX_LISTED_DRAINS = 200
_MAX_DRAWN_MACHINES = 40


def write_replay_page(report: ReplayReport, path: Path) -> None:
    """Write the page atomically."""
    text = render_replay(report)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_replay(report: ReplayReport) -> str:
    """Return a self-contained page; the same replay gives the same bytes."""
    machines = {drain.taken.action.machine for drain in report.drains}
    context = {
        "start": format_iso(report.past.start),
        "end": format_iso(report.past.end),
        "headline": f"This policy {report.drained}.",
        "sentences": replay_sentences(report),
        "tiles": _tiles(report),
        "picture": _picture(report),
        "machines_left": max(0, len(machines) - _MAX_DRAWN_MACHINES),
        "rules": _rules(report),
        "drains": [_drain(drain) for drain in report.drains[:_MAX_LISTED_DRAINS]],
        "n_drains": len(report.drains),
        "reasons": report.reasons,
        "blocked": [_blocked(row) for row in report.blocked[:_MAX_LISTED_DRAINS]],
        "n_blocked": len(report.blocked),
        "assumptions": _assumptions(report),
        "policy_version": report.rules.policy.version,
    }
    return render_page("incidents/replay/replay_page.html", context)


def _tiles(report: ReplayReport) -> list[tuple[str, str]]:
    metrics, past = report.metrics, report.past
    caught = f"{metrics.caught:g} of {len(past.failures)}" if past.failures_known else "—"
    return [
        (count(metrics.machines), "machines drained"),
        (count(metrics.rightly), "right drains"),
        (count(metrics.wrongly), "wrong drains"),
        (count(metrics.unknown), "drains of unknown outcome"),
        (count(metrics.at_once), "machines out at once, maximum"),
        (count(metrics.machine_hours), "machine-hours out of service"),
        (caught, "failures with the machine already out"),
        (count(len(report.blocked)), "drains blocked to the end"),
        (count(report.avoided), "machines avoided by new jobs for a time"),
    ]


def _picture(report: ReplayReport) -> Markup:
    from forewarn.pipelines.incidents.replay.replay_chart import draw_outages

    if not report.drains:
        return Markup()
    return inline_svg(
        draw_outages(report),
        title="Machines out of service",
        description=f"This policy {report.drained}. The table below has each of them.",
    )


def _rules(report: ReplayReport) -> list[dict[str, Any]]:
    nothing = DrainMetrics(0, 0, 0, 0, 0, 0, 0, 0.0, 0)
    rules = [
        ("this policy, within its limits", report.metrics),
        ("drain at every Xid, no limits", report.xids),
        ("as many random drains (expected)", report.random),
        ("drain nothing", nothing),
    ]
    return [{"name": name, "cells": _cells(metrics)} for name, metrics in rules if metrics]


def _cells(metrics: DrainMetrics) -> list[str]:
    numbers = (metrics.drains, metrics.rightly, metrics.wrongly, metrics.unknown)
    cells = [_number(value) for value in numbers]
    caught = "—" if metrics.caught is None else _number(metrics.caught)
    return [*cells, count(metrics.at_once), count(metrics.machine_hours), caught]


def _number(value: float) -> str:
    return count(value) if value == int(value) else amount(value, 2)


def _drain(drain: ReplayDrain) -> dict[str, str]:
    action = drain.taken.action
    return {
        "at": moment(format_iso(action.at), year=False),
        "machine": action.machine,
        "gpu": drain.taken.gpu_serial or "unknown",
        "why": action.cause,
        "step": _step_text(action.step) + (f", mode {action.mode}" if action.mode else ""),
        "outcome": _outcome_text(drain.judged, action.at),
        "style": {Outcome.CONFIRMED: "right", Outcome.NOT_CONFIRMED: "wrong"}.get(
            drain.judged.outcome, ""
        ),
    }


def _blocked(blocked: BlockedDrain) -> dict[str, str]:
    row = blocked.row
    return {
        "at": moment(format_iso(row.decision.at), year=False),
        "machine": row.machine,
        "gpu": row.gpu_serial or "unknown",
        "why": row.cause,
        "blocked_by": row.blocked_by or "",
        "outcome": _outcome_text(blocked.judged, row.decision.at),
    }


def _step_text(step: Step) -> str:
    return "drain" if step is Step.DRAIN else f"drain, then {step}"


def _outcome_text(judged: ReplayOutcome, at: int) -> str:
    """Describe what happened after a decision."""
    if judged.outcome is Outcome.UNKNOWN:
        return f"unknown: {judged.why}"
    if judged.failed_at is None:
        return "did not fail"
    span = _rounded(abs(judged.failed_at - at) / MINUTE)
    return f"failed {span} later" if judged.failed_at > at else f"had failed {span} earlier"


def _rounded(minutes: float) -> str:
    """Format a span, rounded to the minute, hour or day."""
    for unit in (1440, 60):
        if minutes >= 2 * unit:
            return format_duration(round(minutes / unit) * unit * SECONDS_PER_MINUTE)
    return format_duration(round(minutes) * SECONDS_PER_MINUTE)


def _assumptions(report: ReplayReport) -> list[str]:
    rules = report.rules
    limits = next(iter(rules.pools.values())).limits
    out_for, others = (
        format_duration(span / SECOND) for span in (rules.out_for, rules.others_after)
    )
    horizon = format_duration(report.horizon / SECOND)
    return [
        "Each decision used only what was known at its time, and was made at once. Decisions did "
        "not change what happened later.",
        f"Right: the GPU failed within {horizon} of the finding (for a prediction: within its own "
        "horizon), or had already failed. The outcome is unknown if the same Xid is the only "
        "evidence of the failure, or if the records end earlier.",
        "Wrong means only that the GPU did not fail. A reset that NVIDIA recommends for an Xid may "
        "still have been justified.",
        "A machine drained for a prediction returned at the end of its horizon, any other after "
        f"{out_for}, and a failed one after its repair. The time that jobs take to finish is "
        "unknown: a drained machine counts as out at once.",
        f"A failed machine that was still in service was drained externally {others} after the "
        "failure became known.",
        f"Limits, all machines as one pool: {limits.share:.1%} of "
        f"{plural(len(report.past.machines), 'machine')} out at once by drains without certain "
        f"damage (at least one), {limits.rack} per rack, {limits.cause} per cause and "
        f"{limits.max_rate(len(report.past.machines))} in total within "
        f"{format_duration(limits.refill / SECOND)}.",
        "Jobs, checks, opt-outs, manual vetoes and the holdout are not in the records and were "
        "ignored.",
    ]
