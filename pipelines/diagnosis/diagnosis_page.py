"""HTML page of a verdict on a job: culprit, wait-for graph, outlier stacks and timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from forewarn.pipelines.diagnosis.diagnosis_text import describe_culprit
from forewarn.pipelines.rendering.templates import render_page
from forewarn.pipelines.storage.files.atomic_files import replacing

if TYPE_CHECKING:
    from forewarn.pipelines.diagnosis.wait_graph_drawing import WaitGraphDrawing

__all__ = ["render_diagnosis_page", "write_diagnosis_page"]

_HEADLINES = {
    "hang": "This job hangs",
    "slow": "This job is slowed down",
    "jitter": "This job has jitter",
    "crash": "This job has crashed",
    "ended": "This job was ended",
    "unknown": "This job cannot be judged",
    "none": "No problem found",
}
_STALLED_HEADLINE = "This job is stalled but not classified as a hang"
_MAX_EVENTS, _MAX_EVIDENCE, _MAX_FILES = 24, 60, 2_000


def write_diagnosis_page(line: Mapping[str, Any], path: Path) -> None:
    """Write the page of a verdict atomically."""
    text = render_diagnosis_page(line)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def render_diagnosis_page(line: Mapping[str, Any]) -> str:
    """Render a verdict as a self-contained page.

    Parameters
    ----------
    line : mapping
        Verdict as printed with `--json` (docs/formats.md, section 10). The wait-for graph is drawn
        from the evidence details of part `flight`, stacks from those of part `stacks` (`frames`,
        with `usual_frames` of `usual_rank` for comparison).
    """
    stalls = [
        evidence["details"]
        for evidence in line["evidence"]
        if evidence["part"] == "flight" and "waiting" in evidence.get("details", {})
    ]
    is_stalled = line["kind"] == "none" and line["since"] is not None
    context = {
        "verdict": line,
        "headline": _STALLED_HEADLINE if is_stalled else _HEADLINES[line["kind"]],
        "is_stalled": is_stalled,
        "culprits": [describe_culprit(culprit) for culprit in line["culprits"]],
        "picture": _draw_wait_graph(stalls, {culprit["rank"] for culprit in line["culprits"]}),
        "stacks": [
            evidence
            for evidence in line["evidence"]
            if evidence["part"] == "stacks" and "frames" in evidence.get("details", {})
        ][:3],
        "timeline": _timeline(line),
        "candidates": [
            dict(other) | {"named": describe_culprit(other)} for other in line["also"][:20]
        ],
        "evidence": line["evidence"][:_MAX_EVIDENCE],
        "hidden": max(len(line["evidence"]) - _MAX_EVIDENCE, 0),
        "files": sorted(line["files"], key=lambda file: file["read_as"] is not None)[:_MAX_FILES],
        "n_unread": sum(file["read_as"] is None for file in line["files"]),
    }
    return render_page("diagnosis/diagnosis_page.html", context)


def _draw_wait_graph(
    stalls: Sequence[Mapping[str, Any]], culprits: set[int]
) -> WaitGraphDrawing | None:
    if not stalls:
        return None
    from forewarn.pipelines.diagnosis.wait_graph_drawing import draw_wait_graph

    return draw_wait_graph(stalls, culprits)


def _timeline(line: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the events in time order, each with its share of the whole span."""
    events = [(evidence["time"], evidence["says"]) for evidence in line["evidence"]]
    events += [
        (probe["since"], f"last activity seen by the {name} probe")
        for name, probe in line["probes"].items()
    ]
    events += [(line["detected_at"], "problem confirmed"), (line["at"], "time of this verdict")]
    timed = sorted((pd.Timestamp(time), text) for time, text in events if time)
    timed = timed[:_MAX_EVENTS] + timed[_MAX_EVENTS:][-2:]
    if not timed:  # logs without times
        return []
    first, last = timed[0][0], timed[-1][0]
    span = max((last - first).total_seconds(), 1e-9)
    return [
        {
            "clock": f"{time:%H:%M:%S}",
            "after": f"+{(time - first).total_seconds():,.1f} s",
            "share": (time - first).total_seconds() / span,
            "text": text,
        }
        for time, text in timed
    ]
