"""The score of acting, from the ledger."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.config.respond_tables import CostsTable
from forewarn.pipelines.incidents.ledger import Ledger
from forewarn.pipelines.incidents.past_failures import read_failures
from forewarn.pipelines.incidents.response_site import ResponseSite
from forewarn.pipelines.runtime.timestamps import iso
from forewarn.response.action import ActionState
from forewarn.response.alert import Alert, alert_of
from forewarn.response.incident import Incident
from forewarn.response.resampling import Figure
from forewarn.response.score import Costs, Failure, Score, score

__all__ = ["costs_of", "score_of", "score_text"]

_PAGE: Final = 1000


def costs_of(table: CostsTable) -> Costs:
    """Return the costs of stops as the core takes them."""
    values = {name: Nanoseconds(value) for name, value in table.model_dump().items()}
    return Costs(**values)


def score_of(site: ResponseSite, ledger: Ledger, *, now: Nanoseconds) -> dict[str, Any]:
    """Return what acting came to since the first incident, as JSON can hold it."""
    incidents = [incident for incident in _incidents(ledger) if incident.findings]
    since = min((incident.opened_at for incident in incidents), default=now)
    confirmed = {f.incident: f.failed_at for f in ledger.confirmed_failures()}
    alerts = [_alert(ledger, incident, confirmed) for incident in incidents]
    result = score(
        alerts,
        _failures(site, ledger, incidents, since, now),
        costs=costs_of(site.table.costs),
        since=since,
        now=now,
    )
    return {"since": iso(since), "until": iso(now), "incidents": len(incidents), **_line(result)}


def _incidents(ledger: Ledger) -> Iterator[Incident]:
    """Yield all incidents, newest first."""
    before = None
    while page := ledger.incidents(before=before, limit=_PAGE):
        yield from page
        before = page[-1].id


def _alert(ledger: Ledger, incident: Incident, confirmed: Mapping[int, Nanoseconds]) -> Alert:
    moments: dict[int, dict[ActionState, Nanoseconds]] = defaultdict(dict)
    for action in incident.actions:
        for change in ledger.action_states(action.id):
            moments[action.id].setdefault(change.state, change.at)
    return alert_of(
        incident,
        ledger.decisions(incident.id),
        moments,
        failed_at=confirmed.get(incident.id),
        gpus=max((action.gpus for action in incident.actions), default=0),
        job_gpus=max((action.job_gpus for action in incident.actions), default=0),
    )


def _failures(
    site: ResponseSite,
    ledger: Ledger,
    incidents: list[Incident],
    since: Nanoseconds,
    now: Nanoseconds,
) -> list[Failure]:
    """Return the failures of the table, and those that only the ledger knows."""
    machine_of = {i.gpu_serial: i.machine for i in incidents if i.gpu_serial is not None}
    rows = read_failures(site.failures, machine_of) if site.failures.exists() else []
    failures = {
        (f.machine, f.failed_at): Failure(f.machine, f.failed_at, f.gpu_serial) for f in rows
    }
    for known in ledger.confirmed_failures():
        failures.setdefault(
            (known.machine, known.failed_at),
            Failure(known.machine, known.failed_at, known.gpu_serial),
        )
    return [failure for failure in failures.values() if since <= failure.at <= now]


def _line(result: Score) -> dict[str, Any]:
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


def _figure(value: Figure) -> dict[str, Any]:
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
