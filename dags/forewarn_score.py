"""The daily at-risk list.

Follows the asset of the records: when a day is complete, the champion makes the list as of the
midnight that ends it, after an outage one for each day. A run that an asset triggers has no logical
date, so the days come with the asset's events; triggered by hand, with `{"day": "2025-03-01"}`.
Making a list again gives the same.

An airflow dag.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset, Variable, dag, task

RECORDS, LISTS = Asset("forewarn_records"), Asset("forewarn_lists")


def alert_failed(context: Any) -> None:
    """Tell somebody that there is no list today."""
    from forewarn.pipelines.alerts import alert

    alert("no list", f"{context['ti'].task_id} failed: {context.get('exception')}")


@dag(
    schedule=[RECORDS],
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["forewarn"],
    default_args={
        "retries": 3,
        "retry_delay": timedelta(seconds=30),
        "retry_exponential_backoff": True,
        "execution_timeout": timedelta(minutes=30),
        "on_failure_callback": alert_failed,
        "pool": "forewarn_tensorflow",
    },
)
def forewarn_score() -> None:
    """Make the lists of the complete days."""

    @task(outlets=[LISTS])
    def score(
        *, dag_run: Any = None, triggering_asset_events: Any = None, outlet_events: Any = None
    ) -> str:
        from forewarn.pipelines.site import score_missing

        asked = (dag_run.conf or {}).get("day")
        told = [] if asked else [event.extra for event in triggering_asset_events[RECORDS]]
        complete = {day for extra in told for day in (*extra.get("before", ()), extra["day"])}
        days = [asked] if asked else sorted(complete)
        outlet_events[LISTS].extra = {"day": days[-1]}
        return score_missing(Variable.get("forewarn_config"), days)

    score()


forewarn_score()
