"""The tasks of the scheduled DAGs, one function each.

A task takes the path of a configuration and plain values, and returns plain values, so that nothing
else passes through the scheduler. Each function imports what it needs, because the scheduler
imports this module whenever it parses the DAG files.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forewarn.features.errors import InputError
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.runtime.allocator_tuning import tune_process_memory
from forewarn.pipelines.runtime.timestamps import format_iso, parse_moment

if TYPE_CHECKING:
    import pyarrow as pa

    from forewarn.pipelines.at_risk.at_risk_list import AtRiskList
    from forewarn.pipelines.config.settings import Settings
    from forewarn.pipelines.ingest.landing_counts import LandingCounts
    from forewarn.pipelines.storage.registry.model_registry import Registry

__all__ = [
    "Site",
    "backtest_site",
    "compact_site",
    "ingest_site",
    "inspect_site",
    "missing_days",
    "respond_site",
    "retrain_site",
    "review_site",
    "score_missing",
    "score_site",
    "train_length",
    "training_lengths",
]

_REVIEW_DELAY_DAYS = 7  # days after which every alert of a list has expired


@dataclass(frozen=True, slots=True)
class Site:
    """A configuration with absolute paths.

    Attributes
    ----------
    settings : Settings
    folder : Path
        Folder of the configuration file.
    """

    settings: Settings
    folder: Path

    @classmethod
    def from_config(cls, config: str) -> Site:
        """Read a configuration.

        Raises
        ------
        SettingsError
            If it cannot be used.
        """
        from forewarn.pipelines.config.settings import load_settings

        tune_process_memory()  # a task is a process of its own
        path = Path(config).resolve()
        settings = load_settings(path)
        store = settings.registry.store
        if "://" not in store:
            table = settings.registry.model_copy(update={"store": str(path.parent / store)})
            settings = settings.model_copy(update={"registry": table})
        return cls(settings, path.parent)

    @property
    def records(self) -> Path:
        """Folder of records."""
        return self.folder / self.settings.site.records

    @property
    def lists(self) -> Path:
        """Folder of daily lists."""
        return self.folder / self.settings.site.lists

    def file(self, name: str) -> Path | None:
        """Return an optional path of the site."""
        text: str = getattr(self.settings.site, name)
        return self.folder / text if text else None


def ingest_site(config: str, now: str) -> list[str]:
    """Ingest new data; return the complete days of records, the oldest first.

    Parameters
    ----------
    config : str
    now : str
        End of the Prometheus queries; earlier days are over.
    """
    from forewarn.pipelines.ingest.complete_days import complete_days

    site, end = Site.from_config(config), parse_moment(now)
    table = site.settings.site
    if table.raw or table.prometheus or table.repairs:
        _ingest(site, end)
    settings = site.settings.records
    return complete_days(site.records, settings.interval, end, settings.names)


def missing_days(days: Sequence[str], published: str | None, today: str) -> list[str]:
    """Return which complete days are to be published, the oldest first.

    Parameters
    ----------
    days : sequence of str
        Oldest first.
    published : str or None
        Last published day. Without it only the newest day is published: a model would have
        seen the data of all earlier days.
    today : str
        Publication for a day that has not ended does not count.
    """
    if published is None or published >= today:
        return list(days[-1:])
    return [day for day in days if day > published]


def _ingest(site: Site, end: int) -> None:
    from forewarn.pipelines.ingest.host_file_ingest import ingest_host_files, open_landing
    from forewarn.pipelines.ingest.prometheus_client import PrometheusClient
    from forewarn.pipelines.ingest.prometheus_ingest import pull
    from forewarn.pipelines.metrics.job_textfile import write_job
    from forewarn.pipelines.metrics.job_values import ingest_metrics

    landing = open_landing(site.settings, site.records, site.file("cmdb"))
    results: list[LandingCounts] = []
    raw, repairs = site.file("raw"), site.file("repairs")
    tickets = None if repairs is None else _tickets(repairs, site.settings)
    if raw is not None:
        fields = site.settings.site.query_gpu
        results.append(ingest_host_files(raw, landing, tickets, csv_fields=fields).landed)
    elif tickets is not None:
        results.append(landing.land_tickets(tickets))
    address = site.settings.site.prometheus
    if address:
        with closing(PrometheusClient.from_environment(address)) as server:
            results.append(pull(server, landing, start=None, end=end).landed)
    readings, events = (sum(getattr(r, name) for r in results) for name in ("readings", "events"))
    failures = max((result.failures for result in results), default=0)
    write_job(site.file("metrics"), "ingest", ingest_metrics(readings, events, failures))


def _tickets(repairs: Path, settings: Settings) -> pa.Table | None:
    """Return the repair tickets; an unusable file raises an alert and does not stop ingestion."""
    from forewarn.pipelines.ingest.repair_tickets import read_tickets
    from forewarn.pipelines.runtime.alerts import alert
    from forewarn.pipelines.runtime.progress import note

    try:
        tickets = read_tickets(repairs, settings.tickets.reader)
    except InputError as error:
        alert("no tickets", str(error))
        return None
    for line in tickets.notes():
        note(line)
    return tickets.table


def train_length(config: str, at: str, length: int) -> str:
    """Train one length as of the start of the last finished window, for use by `retrain_site`.

    Parameters
    ----------
    config, at : str
    length : int
        Nanoseconds.
    """
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.storage.registry.model_registry import Registry
    from forewarn.pipelines.training.training_cache import train_recipe

    site = Site.from_config(config)
    job = open_job(site.records, site.settings)
    registry = Registry.from_settings(site.settings, create=True)
    return train_recipe(
        job.store, job.walk_settings, parse_moment(at), Nanoseconds(length), registry
    )


def retrain_site(config: str, at: str) -> dict[str, Any]:
    """Retrain like `forewarn retrain` and return the result."""
    from forewarn.pipelines.metrics.job_textfile import write_job
    from forewarn.pipelines.metrics.job_values import retrain_metrics
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.storage.registry.model_registry import Registry
    from forewarn.pipelines.training.retrain import retrain

    site = Site.from_config(config)
    job = open_job(site.records, site.settings)
    registry = Registry.from_settings(site.settings, create=True)
    outcome = retrain(job, parse_moment(at), registry)
    values = retrain_metrics(parse_moment(at), promoted=outcome.promoted)
    write_job(site.file("metrics"), "retrain", values)
    return outcome.as_dict()


def score_missing(config: str, days: Sequence[str]) -> str:
    """Write the lists of complete days, the oldest first, and return the folder of the newest.

    A failure for an earlier day raises an alert and does not delay the newest list.

    Parameters
    ----------
    config : str
    days : sequence of str
        At least one.
    """
    from forewarn.pipelines.runtime.alerts import alert

    for day in days[:-1]:
        try:
            score_site(config, day)
        except InputError as error:
            alert("no list", f"{day}: {error}")
    return score_site(config, days[-1])


def score_site(config: str, day: str) -> str:
    """Write the list of a complete day, and return its folder.

    The champion makes the list. For a day before the champion was trained, the newest model of
    that time makes it, because a later model has seen the outcome. Without any model the built-in
    rules make it, and an alert is sent.

    Parameters
    ----------
    config : str
    day : str
        The list is made as of the midnight that ends this day.
    """
    from forewarn.pipelines.at_risk.list_metrics import write_list_metrics

    site = Site.from_config(config)
    made = _score_list(site, parse_moment(day) + DAY)
    folder = made.write(site.lists)
    write_list_metrics(site.file("metrics"), made, site.lists)
    return str(folder)


def _score_list(site: Site, at: int) -> AtRiskList:
    from forewarn.pipelines.at_risk.fleet_scoring import score_with, score_with_rules
    from forewarn.pipelines.runtime.alerts import alert
    from forewarn.pipelines.storage.registry.model_registry import Registry

    registry = Registry.from_settings(site.settings, create=True)
    with registry.in_one_line():
        version = registry.champion_for(at)
    if version is None:
        made = score_with_rules(site.settings, site.records, at)
        why = f"no champion was trained by {format_iso(at)}{_last_refusal(registry, at)}"
        text = f"{why}: the list is made by rules, without probabilities"
        alert("built-in rules", text)
        return replace(made, sentences=(f"{text[0].upper()}{text[1:]}.", *made.sentences))
    predictor = registry.load_version(version)
    return score_with(
        predictor,
        registry.uri_of(version),
        site.records,
        at,
        costs=site.settings.list.costs,
        lists=site.lists,
        names=site.settings.records.names,
    )


def _last_refusal(registry: Registry, at: int) -> str:
    """Return why the newest model of that time did not become the champion; "" without one."""
    past = [version for version in registry.versions() if (version.trained_at or at) < at]
    newest = max(past, key=lambda version: int(version.number), default=None)
    gate = "" if newest is None else newest.gate
    return f" (version {newest.number} {gate})" if newest and gate else ""


def review_site(config: str, day: str) -> dict[str, Any] | None:
    """Evaluate the lists up to a week before a day; None if none is that old."""
    from forewarn.evaluation.prediction.metrics.list_review import review_metrics
    from forewarn.pipelines.at_risk.list_metrics import recent_review_metrics
    from forewarn.pipelines.at_risk.review_report import review_lists
    from forewarn.pipelines.metrics.job_textfile import write_job

    site = Site.from_config(config)
    failures = site.records / "failures.parquet"
    until = parse_moment(day) - (_REVIEW_DELAY_DAYS - 1) * DAY
    old = [p for p in site.lists.glob("date=*") if parse_moment(p.name[5:]) <= until]
    if not old or not failures.exists():
        return None
    reviewed = review_lists(site.lists, failures, until, site.settings.records.names)
    write_job(site.file("metrics"), "review", recent_review_metrics(reviewed))
    figures = review_metrics(reviewed)
    _log_review(site, day, figures)
    return figures


def _log_review(site: Site, day: str, figures: dict[str, Any]) -> None:
    """Log the evaluation of the lists to MLflow, now that their labels are known."""
    from forewarn.pipelines.storage.registry.model_registry import Registry

    registry = Registry.from_settings(site.settings, create=True)
    tags = {"forewarn.kind": "review", "forewarn.day": day}
    if registry.find(tags):
        return
    with registry.run(f"review {day}", tags) as run:
        names = ("precision", "random_precision", "recall", "flagged", "hits", "failures")
        registry.log(run, metrics={f"lists/{name}": figures[name] for name in names})


def inspect_site(config: str, day: str) -> dict[str, Any] | None:
    """Judge inspections and plan the next ones; None if the site has no folder of results.

    Writes `judged.json`, `plan.json`, `plan.html` and `plans/DAY.json` into the folder.
    """
    from forewarn.pipelines.inspection.check_files import load_checks
    from forewarn.pipelines.inspection.judge_report import judge_files
    from forewarn.pipelines.inspection.plan_page import write_plan_page
    from forewarn.pipelines.inspection.planned_inspections import (
        PlanRequest,
        events_from_ledger,
        plan_from_files,
    )
    from forewarn.pipelines.storage.files.atomic_files import write_atomic

    site = Site.from_config(config)
    results, at = site.file("inspections"), Nanoseconds(parse_moment(day))
    if results is None:
        return None
    checks = load_checks()
    judged = judge_files(results, checks, site.file("accepted"))
    events, failures = events_from_ledger(Path(config), at)
    plans = results / "plans"
    request = PlanRequest(
        site.lists, results, plans, None, None, (), tuple(events), tuple(failures), at
    )
    plan = plan_from_files(request, checks)
    write_plan_page(plan, results / "plan.html")
    for name, content in (("judged", judged), (f"plans/{day}", plan), ("plan", plan)):
        write_atomic(results / f"{name}.json", (json.dumps(content) + "\n").encode())
    return {"bad_machines": len(judged["bad_machines"]), "planned": len(plan["lines"])}


def compact_site(config: str, day: str) -> list[str]:
    """Compact the dates before a day like `forewarn compact`; return those newly compacted."""
    from forewarn.pipelines.metrics.job_textfile import write_job
    from forewarn.pipelines.metrics.job_values import compact_metrics
    from forewarn.pipelines.storage.records.compaction_run import DateSpan, compact_records

    site, today = Site.from_config(config), dt.date.fromisoformat(day)
    executor, names = site.settings.executor.executor, site.settings.records.names
    outcomes = compact_records(site.records, DateSpan(), today, executor, names)
    dates = [outcome.date.isoformat() for outcome in outcomes if outcome.state == "compacted"]
    write_job(site.file("metrics"), "compact", compact_metrics(len(dates)))
    return dates


def backtest_site(config: str, day: str) -> str:
    """Backtest the site's own strategy on the records up to a day, and return the folder.

    A backtest that was killed is resumed with the records it started with, even if more have
    arrived.
    """
    from forewarn.pipelines.backtest.backtest_run import run_backtest
    from forewarn.pipelines.prediction_job import open_job
    from forewarn.pipelines.storage.records.records_snapshot import keep_snapshot

    site = Site.from_config(config)
    out = site.folder / site.settings.site.backtests / f"date={day}"
    snapshot = out / ".records"
    keep_snapshot(site.records, snapshot, dt.date.fromisoformat(day))
    job = open_job(snapshot, site.settings)
    try:
        run_backtest(job, out, strategies=())
    except InputError:  # nothing to resume
        shutil.rmtree(snapshot)
        raise
    shutil.rmtree(snapshot)
    return str(out)


def training_lengths(config: str) -> list[int]:
    """Return the lengths to train, in nanoseconds; a single one if none are compared."""
    training = Site.from_config(config).settings.training
    lengths = sorted(training.lengths)
    return lengths if training.strategy == "variable" else lengths[-1:]


def respond_site(config: str, *, new_ledger: bool = False) -> list[dict[str, Any]]:
    """Process the open incidents once; return the new decisions.

    Parameters
    ----------
    config : str
    new_ledger : bool
        Create an empty ledger first, like `forewarn respond --new-ledger`.

    Raises
    ------
    LedgerError, DriverError
        If the ledger or the scheduler does not respond.
    """
    from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
    from forewarn.pipelines.incidents.loop.decision_output import decision_line
    from forewarn.pipelines.incidents.loop.responder import Responder
    from forewarn.pipelines.incidents.loop.response_site import ResponseSite
    from forewarn.pipelines.incidents.loop.round_metrics import write_round

    site = ResponseSite.from_config(Path(config))
    with site.new_ledger() if new_ledger else site.ledger() as ledger:
        metrics, messages = RespondMetrics(site.pools), site.messages(ledger, os.environ)
        parts = (site, ledger, site.policy(), site.driver())
        with closing(messages):
            decided = Responder(*parts, metrics=metrics, messages=messages).once()
            messages.send_once()
        write_round(site, ledger, metrics)
    return [decision_line(item.incident, item.decision) for item in decided if item.new]
