"""Response score computed from the ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.config.respond_tables import CostsTable
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.alert_cache import AlertCache
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.sources.past_failures import read_failures
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.score.resampling import Estimate
from forewarn.response.score.response_score import (
    JobStopCosts,
    KnownFailure,
    ResponseScore,
    score_response,
)
from forewarn.response.score.scored_alert import ScoredAlert

__all__ = ["costs_from_table", "score_ledger", "score_text"]

_SCORED_SPAN: Final = 365 * DAY


def costs_from_table(table: CostsTable) -> JobStopCosts:
    """Convert the configured costs of job stops."""
    values = {name: Nanoseconds(value) for name, value in table.model_dump().items()}
    return JobStopCosts(**values)


def score_ledger(
    site: ResponseSite, ledger: Ledger, *, now: Nanoseconds, cache: AlertCache | None = None
) -> dict[str, Any]:
    """Return the response score of the last year as a JSON-serializable mapping.

    Parameters
    ----------
    site : ResponseSite
    ledger : Ledger
    now : int
        Nanoseconds since 1970 UTC.
    cache : AlertCache, optional
        Cache of this ledger, for callers that score repeatedly.
    """
    entries = (cache or AlertCache(ledger)).alerts_since(Nanoseconds(now - _SCORED_SPAN))
    since = min((entry.opened_at for entry in entries), default=now)
    alerts = [entry.alert for entry in entries]
    failures = _failures(site, ledger, alerts, since, now)
    costs = costs_from_table(site.table.costs)
    result = score_response(alerts, failures, costs=costs, since=since, now=now)
    return {
        "since": format_iso(since),
        "until": format_iso(now),
        "incidents": len(alerts),
        **_to_json(result),
    }


def _failures(
    site: ResponseSite,
    ledger: Ledger,
    alerts: Sequence[ScoredAlert],
    since: Nanoseconds,
    now: Nanoseconds,
) -> list[KnownFailure]:
    """Return the failures of the table and those that only the ledger records."""
    machines_by_serial = {a.gpu_serial: a.machine for a in alerts if a.gpu_serial is not None}
    rows = read_failures(site.failures, machines_by_serial) if site.failures.exists() else []
    failures = {
        (f.machine, f.failed_at): KnownFailure(f.machine, f.failed_at, f.gpu_serial) for f in rows
    }
    for known in ledger.confirmed_failures():
        failures.setdefault(
            (known.machine, known.failed_at),
            KnownFailure(known.machine, known.failed_at, known.gpu_serial),
        )
    return [failure for failure in failures.values() if since <= failure.at <= now]


def _to_json(result: ResponseScore) -> dict[str, Any]:
    names = (
        *("precision", "apparent_precision", "missed_share", "minutes_to_isolation"),
        *("gpu_hours_saved", "gpu_hours_isolated", "gpu_hours_net"),
    )
    return {
        **{name: _estimate_json(getattr(result, name)) for name in names},
        "left_alone": result.left_alone,
        "judged": result.judged,
        "days_to_answer": result.days_to_answer,
        "failures": result.failures,
        "missed": result.missed,
    }


def _estimate_json(value: Estimate) -> dict[str, Any]:
    bounds = None if value.interval is None else list(value.interval)
    return {"value": value.value, "interval": bounds, "why": value.why or None}


def score_text(line: Mapping[str, Any]) -> str:
    """Format the score as text; an unknown figure is shown with its reason."""
    if not line["incidents"]:
        return "No incident yet, nothing to score."
    days = line["days_to_answer"]
    if days is None:
        power = "Without a holdout, precision cannot be measured."
    elif days:
        power = f"Enough data to tell 20 % from 10 % in about {days:.0f} days."
    else:
        power = "Enough data to tell 20 % from 10 %."
    rows = [
        f"From {line['since'][:19]}Z to {line['until'][:19]}Z: incidents {line['incidents']}.",
        f"Precision of predictions: {_estimate_text(line['precision'], share=True)} "
        f"({line['judged']} of {line['left_alone']} without an action have an outcome). {power}",
        "Apparent precision, biased by actions: "
        f"{_estimate_text(line['apparent_precision'], share=True)}.",
        f"Failures: {line['failures']}, {line['missed']} without any alert.",
        f"Minutes from the first finding to isolation, median: "
        f"{_estimate_text(line['minutes_to_isolation'])}.",
        f"GPU-hours: saved {_estimate_text(line['gpu_hours_saved'])}, isolated "
        f"{_estimate_text(line['gpu_hours_isolated'])}, "
        f"net {_estimate_text(line['gpu_hours_net'])}.",
    ]
    return "\n".join(rows)


def _estimate_text(value: Mapping[str, Any], *, share: bool = False) -> str:
    if value["value"] is None:
        return f"unknown ({value['why']})"
    form = "{:.0%}" if share else "{:.1f}"
    text = form.format(value["value"])
    if value["interval"] is None:
        return text
    low, high = (form.format(bound) for bound in value["interval"])
    return f"{text} [{low} to {high}]"
