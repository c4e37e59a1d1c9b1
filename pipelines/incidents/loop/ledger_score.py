"""The score of acting, from the ledger."""

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
    """Return the costs of stops as the core takes them."""
    values = {name: Nanoseconds(value) for name, value in table.model_dump().items()}
    return JobStopCosts(**values)


def score_ledger(
    site: ResponseSite, ledger: Ledger, *, now: Nanoseconds, cache: AlertCache | None = None
) -> dict[str, Any]:
    """Return what acting came to in the last year, as JSON can hold it.

    Parameters
    ----------
    site : ResponseSite
    ledger : Ledger
    now : int
        Nanoseconds since 1970 UTC.
    book : AlertBook, optional
        Of this ledger, by whoever asks again and again.
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
        **_line(result),
    }


def _failures(
    site: ResponseSite,
    ledger: Ledger,
    alerts: Sequence[ScoredAlert],
    since: Nanoseconds,
    now: Nanoseconds,
) -> list[KnownFailure]:
    """Return the failures of the table, and those that only the ledger knows."""
    machine_of = {a.gpu_serial: a.machine for a in alerts if a.gpu_serial is not None}
    rows = read_failures(site.failures, machine_of) if site.failures.exists() else []
    failures = {
        (f.machine, f.failed_at): KnownFailure(f.machine, f.failed_at, f.gpu_serial) for f in rows
    }
    for known in ledger.confirmed_failures():
        failures.setdefault(
            (known.machine, known.failed_at),
            KnownFailure(known.machine, known.failed_at, known.gpu_serial),
        )
    return [failure for failure in failures.values() if since <= failure.at <= now]


def _line(result: ResponseScore) -> dict[str, Any]:
    names = (
        *("precision", "apparent_precision", "missed_share", "minutes_to_isolation"),
        *("gpu_hours_saved", "gpu_hours_isolated", "gpu_hours_net"),
    )
    return {
        **{name: _figure(getattr(result, name)) for name in names},
        "left_alone": result.left_alone,
        "judged": result.judged,
        "days_to_answer": result.days_to_answer,
        "failures": result.failures,
        "missed": result.missed,
    }


def _figure(value: Estimate) -> dict[str, Any]:
    bounds = None if value.interval is None else list(value.interval)
    return {"value": value.value, "interval": bounds, "why": value.why or None}


def score_text(line: Mapping[str, Any]) -> str:
    """Return the score in sentences, a figure that nobody can know with the reason."""
    if not line["incidents"]:
        return "No incident so far, so there is nothing to score."
    days = line["days_to_answer"]
    if days is None:
        wait = "At a control share of 0 no time will tell."
    elif days:
        wait = f"Enough to tell 20 % from 10 % in about {days:.0f} days."
    else:
        wait = "Enough to tell 20 % from 10 %."
    rows = [
        f"From {line['since'][:19]}Z to {line['until'][:19]}Z: incidents {line['incidents']}.",
        f"Precision of predictions: {_words(line['precision'], share=True)} "
        f"({line['judged']} of {line['left_alone']} that were left alone are judged). {wait}",
        f"What acting makes believe: {_words(line['apparent_precision'], share=True)}.",
        f"Failures: {line['failures']}, of which nothing announced {line['missed']}.",
        f"Minutes from the first finding to isolation, median: "
        f"{_words(line['minutes_to_isolation'])}.",
        f"GPU-hours: saved {_words(line['gpu_hours_saved'])}, isolated "
        f"{_words(line['gpu_hours_isolated'])}, net {_words(line['gpu_hours_net'])}.",
    ]
    return "\n".join(rows)


def _words(value: Mapping[str, Any], *, share: bool = False) -> str:
    if value["value"] is None:
        return f"not known ({value['why']})"
    form = "{:.0%}" if share else "{:.1f}"
    text = form.format(value["value"])
    if value["interval"] is None:
        return text
    low, high = (form.format(bound) for bound in value["interval"])
    return f"{text} [{low} to {high}]"
