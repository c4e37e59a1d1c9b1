"""Formats verdicts, detectors and fit reports as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from forewarn.evaluation.detection.fit_assessment import FitAssessment
from forewarn.features.duration import format_duration
from forewarn.features.errors import InputError
from forewarn.models.detection.detector_file import StoredDetector
from forewarn.pipelines.rendering.templates import plural

__all__ = [
    "OrderError",
    "fit_report_lines",
    "joint_text",
    "metric_lines",
    "reorder_metrics",
    "suppressed_text",
    "verdict_text",
]

_RULES = {
    "limit": "an offset that the limit of the metric hid before",
    "unchanged": "others of its group changed",
    "majority": "half of its group changed",
    "wait": "only waits longer",
    "victim": "waits for others",
    "few_tasks": "fitted to too few tasks",
}
_EXAMPLE_SIZES = (4, 100, 1500)


class OrderError(InputError):
    """An order that names a metric the detector does not have."""


def verdict_text(line: Mapping[str, Any]) -> str:
    """Return the verdict on a task in one line.

    Parameters
    ----------
    line : mapping
        In the format of `--json`.
    """
    if line["not_judged"] is not None:
        return f"{line['task']}: not judged: {line['not_judged']}"
    blind = f", no data: {', '.join(line['blind'])}" if line["blind"] else ""
    if line["too_small"]:
        blind += f", in groups too small to compare: {', '.join(line['too_small'])}"
    if line["observe_only"]:
        blind += "; observe only: this detector is not validated yet"
    dropped = suppressed_text(line)
    blind += f"; not named: {dropped}" if dropped else ""
    where = f"{line['task']} ({line['machines']} machines, {line['seconds']:.1f} s)"
    if line["event"]:
        together = ", ".join(line["event"]["machines"])
        return f"{where}: no faulty machine; {together} moved together, without a culprit{blind}"
    if line["machine"] is None:
        return f"{where}: no faulty machine{_jitter_text(line['jitters'])}{blind}"
    what = "has deviated since its first sample" if line["kind"] == "straggler" else "deviates"
    also = "".join(f", also {other['machine']}" for other in line["also"][:5])
    metric = f"several metrics together, {joint_text(line)}," if line["metrics"] else line["metric"]
    return (
        f"{where}: {line['machine']} {what} on {metric} since {line['since']} "
        f"({line['score']:.1f} times the threshold{_comparison_text(line['evidence'])})"
        f"{_xid_text(line['evidence'])}{also}{blind}"
    )


def joint_text(line: Mapping[str, Any]) -> str:
    """Return the metrics that contribute to a joint score, with their shares, as text."""
    return ", ".join(f"{part['metric']} {100 * part['share']:.0f} %" for part in line["metrics"])


def suppressed_text(line: Mapping[str, Any]) -> str:
    """Return the machines that deviated but are not named, by rule, as text."""
    rules: dict[str, str] = {}
    for each in line["suppressed"]:
        if each["machine"] != line["machine"] and rules.get(each["machine"]) != "victim":
            rules[each["machine"]] = each["rule"]
    texts = []
    for rule in dict.fromkeys(rules.values()):
        machines = [machine for machine, by in rules.items() if by == rule]
        more = f" and {len(machines) - 3} more" if len(machines) > 3 else ""
        texts.append(f"{', '.join(machines[:3])}{more} ({_RULES[rule]})")
    return ", ".join(texts)


def _jitter_text(jitters: Sequence[Mapping[str, Any]]) -> str:
    """Return the machines that deviated for a short time and recovered, as text."""
    sentences = [
        f"{jitter['machine']} deviated for {format_duration(jitter['seconds'])}"
        for jitter in jitters[:3]
    ]
    more = f" and {plural(len(jitters) - 3, 'other')}" if len(jitters) > 3 else ""
    return f" (recovered: {', '.join(sentences)}{more})" if sentences else ""


def _xid_text(evidence: Mapping[str, Any] | None) -> str:
    """Return the last Xid of the machine as text."""
    if not evidence or not evidence["xids"]:
        return ""
    last = evidence["xids"][0]
    return f", Xid {last['xid']} on {last['gpu_serial'] or 'a GPU'} at {last['time']}"


def _comparison_text(evidence: Mapping[str, Any] | None) -> str:
    """Return the values of the machine, now and before, and of its peers."""
    if evidence is None or evidence["now"] is None or evidence["others_now"] is None:
        return ""
    before = "" if evidence["before"] is None else f", {evidence['before']:.4g} before"
    unit = "" if evidence["unit"] is None else f" {evidence['unit']}"
    return f"; {evidence['now']:.4g}{unit}{before}, peers {evidence['others_now']:.4g}"


def metric_lines(stored: StoredDetector) -> list[dict[str, Any]]:
    """Return the metrics of a detector in order of priority, with limits and thresholds."""
    importance = stored.facts.importance
    lines = []
    for model in stored.detector.metrics:
        (limits,), threshold = model.limits, model.threshold
        scale = (", log" if limits.log else "") + (", counter" if limits.counter else "")
        lines.append(
            {
                "metric": model.name,
                "limits": f"{limits.low:g} to {limits.high:g}{scale}",
                "thresholds": []
                if threshold is None
                else [threshold.at(n) for n in _EXAMPLE_SIZES],
                "usual_deviation": model.healthy.deviation,
                "forgiven_offset": model.healthy.offset,
                "importance": importance.get(model.name),
            }
        )
    return lines


def reorder_metrics(stored: StoredDetector, first: Sequence[str]) -> StoredDetector:
    """Move some metrics to the front; the others keep their order.

    Raises
    ------
    OrderError
        If the detector does not have one of them.
    """
    detector = stored.detector
    names = [model.name for model in detector.metrics]
    unknown = [name for name in first if name not in names]
    if unknown:
        raise OrderError(f"--order: found {unknown[0]!r}, expected names of {', '.join(names)}.")
    order = [*dict.fromkeys(first), *(name for name in names if name not in first)]
    models = tuple(sorted(detector.metrics, key=lambda model: order.index(model.name)))
    facts = replace(stored.facts, ranked_by="hand")
    return replace(stored, detector=replace(detector, metrics=models), facts=facts)


def fit_report_lines(judgement: FitAssessment) -> list[str]:
    """Return the fit report of a detector, line by line."""
    judged = judgement.judged
    alarmed = "".join(f"; {a.task}: {a.machine} on {a.metric}" for a in judged.alarms)
    lines = [
        f"fitted to {judgement.tasks} tasks of {judgement.jobs} jobs, "
        f"{judgement.machines} machines in total",
        *(f"excluded as suspected faulty: {each.task}: {each.why}" for each in judgement.left_out),
        *(
            f"not usable: {name}: no machine of any task could be judged"
            for name in judgement.never_useful
        ),
        f"held-out jobs: {len(judged.alarms)} alarms in {judged.judged} tasks assumed healthy, "
        f"{judgement.expected_alarms:g} expected{alarmed}",
        f"no data or no peers: {100 * judged.blind:.1f} % of the machines",
        _supported_rate_text(judgement),
    ]
    if judgement.doubts:
        lines.append(f"observe only: {'; '.join(judgement.doubts)}")
    return lines


def _supported_rate_text(judgement: FitAssessment) -> str:
    """Return the false alarm rate that the data support, and what is extrapolated."""
    seen = "no task could be judged by a detector fitted without its job"
    if judgement.supported is not None:
        seen = (
            f"{len(judgement.judged.alarms)} alarms in {24 * judgement.judged.days:.3g} hours: "
            f"below {judgement.supported:.3g} per task and day (95 % confidence)"
        )
    return (
        f"false alarms: {seen}; a rate of {judgement.false_alarms:g} needs "
        f"{judgement.days_needed:.3g} healthy task-days; beyond the data the tail model decides"
    )
