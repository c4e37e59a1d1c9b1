"""Records: every hour, what is new.

Files that hosts dropped, what Prometheus scraped and repair tickets, joined with the CMDB. Bringing
in the same thing twice changes nothing. When a day of records is complete, its asset is updated
with that day, and the daily list follows; after an outage with every day since the last one.

Paths come from the file that the Variable `forewarn_config` names. An airflow dag.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset, Variable, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from forewarn.pipelines.scheduled_tasks import dag_options, ingest_site, missing_days

RECORDS = Asset("forewarn_records")


@dag(
    schedule=timedelta(hours=1),
    **dag_options(
        __doc__,
        retries=3,
        retry_delay=timedelta(minutes=1),
        retry_exponential_backoff=True,
        execution_timeout=timedelta(minutes=50),
    ),
)
def forewarn_ingest() -> None:
    """Bring in records and publish the days that became complete."""

    @task
    def ingest() -> list[str]:
        return ingest_site(Variable.get("forewarn_config"), datetime.now(UTC).isoformat())

    @task(outlets=[RECORDS])
    def publish(days: list[str], *, outlet_events: Any = None, ti: Any = None) -> str:
        published = ti.xcom_pull(task_ids="publish", include_prior_dates=True)
        missing = missing_days(days, published, datetime.now(UTC).date().isoformat())
        if not missing:
            raise AirflowSkipException("no other day is complete")
        *before, day = missing
        # A run makes one event, so the days of an outage come with the newest one.
        outlet_events[RECORDS].extra = {"day": day, "before": before} if before else {"day": day}
        return day

    days: Any = ingest()  # what a task returns stands for its value
    publish(days)


forewarn_ingest()
