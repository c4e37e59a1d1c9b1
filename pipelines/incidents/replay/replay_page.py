"""The page of a replay, for a site's owner before anybody may act."""

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
    """Write the page as a whole or not at all."""
    text = render_replay(report)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_replay(report: ReplayReport) -> str:
    """Return a page that stands alone; the same replay gives the same bytes."""
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
        "held": [_held(waiting) for waiting in report.waiting[:_MAX_LISTED_DRAINS]],
        "n_held": len(report.waiting),
        "assumptions": _assumptions(report),
        "policy_version": report.rules.policy.version,
    }
    return render_page("incidents/replay/replay_page.html", context)


def _tiles(report: ReplayReport) -> list[tuple[str, str]]:
    figures, past = report.figures, report.past
    caught = f"{figures.caught:g} of {len(past.failures)}" if past.failures_known else "—"
    return [
        (count(figures.machines), "machines would have been drained"),
        (count(figures.rightly), "drains rightly"),
        (count(figures.wrongly), "drains wrongly"),
        (count(figures.unknown), "drains of which nobody can say"),
        (count(figures.at_once), "machines at once at most"),
        (count(figures.machine_hours), "machine hours out of service"),
        (caught, "failures before which the machine was out"),
        (count(len(report.waiting)), "drains held back to the end"),
        (count(report.avoided), "machines avoided by new jobs for a while"),
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
    named = [
        ("this policy, within its limits", report.figures),
        ("drain at every Xid, no limits", report.xids),
        ("at random, as often (expected)", report.random),
        ("drain nothing", nothing),
    ]
    return [{"name": name, "cells": _cells(figures)} for name, figures in named if figures]


def _cells(figures: DrainMetrics) -> list[str]:
    numbers = (figures.drains, figures.rightly, figures.wrongly, figures.unknown)
    cells = [_number(value) for value in numbers]
    caught = "—" if figures.caught is None else _number(figures.caught)
    return [*cells, count(figures.at_once), count(figures.machine_hours), caught]


def _number(value: float) -> str:
    return count(value) if value == int(value) else amount(value, 2)


def _drain(drain: ReplayDrain) -> dict[str, str]:
    action = drain.taken.action
    return {
        "at": moment(format_iso(action.at), year=False),
        "machine": action.machine,
        "gpu": drain.taken.gpu_serial or "not known",
        "why": action.cause,
        "what": _what(action.step) + (f", mode {action.mode}" if action.mode else ""),
        "then": _then(drain.judged, action.at),
        "look": {Outcome.CONFIRMED: "right", Outcome.NOT_CONFIRMED: "wrong"}.get(
            drain.judged.outcome, ""
        ),
    }


def _held(waiting: BlockedDrain) -> dict[str, str]:
    row = waiting.row
    return {
        "at": moment(format_iso(row.decision.at), year=False),
        "machine": row.machine,
        "gpu": row.gpu_serial or "not known",
        "why": row.cause,
        "held": row.blocked_by or "",
        "then": _then(waiting.judged, row.decision.at),
    }


def _what(step: Step) -> str:
    return "drain" if step is Step.DRAIN else f"drain, then {step}"


def _then(judged: ReplayOutcome, at: int) -> str:
    """Say what happened after a decision."""
    if judged.outcome is Outcome.UNKNOWN:
        return f"nobody can say: {judged.why}"
    if judged.failed_at is None:
        return "did not fail"
    span = _rounded(abs(judged.failed_at - at) / MINUTE)
    return f"failed {span} later" if judged.failed_at > at else f"had failed {span} before"


def _rounded(minutes: float) -> str:
    """Write a span as a person would: to the minute, the hour or the day."""
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
        "Each decision saw only what was known at that moment, and was made at once. Nothing that "
        "was decided changed what happened.",
        f"Rightly: the GPU failed within {horizon} of the finding (of a prediction: within its "
        "own horizon), or was failed already. Where only the same Xid says that it failed, or "
        "records end earlier, nobody can say.",
        "Wrongly means no more than that the GPU did not fail. An Xid for which NVIDIA asks for a "
        "reset may well have been worth a reset.",
        "A machine of a prediction was back when its horizon was over, any other one after "
        f"{out_for}, and one that failed when it was repaired. How long jobs take to run out is "
        "not known from the past: a drained machine counts as out at once.",
        f"Others took a machine out {others} after a failure became known, if it was still in "
        "service then.",
        f"Limits, all machines as one pool: {limits.share:.1%} of "
        f"{plural(len(report.past.machines), 'machine')} out at once by drains without certain "
        f"damage (at least one), {limits.rack} of a rack, {limits.cause} a cause and "
        f"{limits.max_rate(len(report.past.machines))} in all within "
        f"{format_duration(limits.refill / SECOND)}.",
        "Jobs, checks, opt-outs, people's vetoes and the control share are not known from the "
        "past and played no part.",
    ]
