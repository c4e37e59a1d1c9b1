"""Ingestion: add new records every hour.

Sources are files from hosts, Prometheus and repair tickets, joined with the CMDB. Ingesting the
same data twice has no effect. When a day of records is complete, its asset is updated with that
day, which triggers the daily list. After an outage, the update contains every day since the last
one.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset, Variable, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from forewarn.pipelines.dag_options import dag_options, date_param, fail_fast, utc_cron
from forewarn.pipelines.scheduled_tasks import ingest_site, missing_days

RECORDS = Asset("forewarn_records")
UNTIL = date_param(
    "Read Prometheus until",
    "Such as 2025-03-01T06:00:00Z. Days that end later count as incomplete. Empty: now.",
    form="date-time",
)


@dag(
    # Five minutes past each hour, when hosts have sent the files of that hour.
    schedule=utc_cron("5 * * * *"),
    **dag_options(
        __doc__,
        failure="no records",
        params={"until": UNTIL},
        execution_timeout=timedelta(minutes=50),
    ),
)
def forewarn_ingest() -> None:
    """Ingest records and publish the days that became complete."""

    @task
    @fail_fast
    def ingest(*, params: Any = None) -> list[str]:
        until = params["until"] or datetime.now(UTC).isoformat()
        return ingest_site(Variable.get("forewarn_config"), until)

    @task(outlets=[RECORDS])
    def publish(days: list[str], *, outlet_events: Any = None, ti: Any = None) -> str:
        published = ti.xcom_pull(task_ids="publish", include_prior_dates=True)
        missing = missing_days(days, published, datetime.now(UTC).date().isoformat())
        if not missing:
            raise AirflowSkipException("no other day is complete")
        *before, day = missing
        # A run creates a single event, so it contains all days of an outage.
        outlet_events[RECORDS].extra = {"day": day, "before": before} if before else {"day": day}
        return day

    days: Any = ingest()  # a task's return value stands for its result
    publish(days)


forewarn_ingest()
