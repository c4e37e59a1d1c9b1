"""The daily at-risk list.

When days are complete, the champion makes the list of each day as of the midnight at its end. Days
come from asset events, or from `{"day": "2025-03-01"}` in a manual run. A repeated run gives the
same list.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, Variable, dag, task

from forewarn.pipelines.scheduled_tasks import alert_on_failure, dag_options, score_missing

RECORDS, LISTS = Asset("forewarn_records"), Asset("forewarn_lists")


@dag(
    schedule=[RECORDS],
    **dag_options(
        __doc__,
        retries=3,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=True,
        pool="forewarn_tensorflow",
        execution_timeout=timedelta(minutes=30),
        on_failure_callback=alert_on_failure("no list"),
    ),
)
def forewarn_score() -> None:
    """Make the lists of the complete days."""

    @task(outlets=[LISTS])
    def score(
        *, dag_run: Any = None, triggering_asset_events: Any = None, outlet_events: Any = None
    ) -> str:
        day = (dag_run.conf or {}).get("day")
        events = [] if day else [event.extra for event in triggering_asset_events[RECORDS]]
        published = {name for extra in events for name in (*extra.get("before", ()), extra["day"])}
        days = [day] if day else sorted(published)
        outlet_events[LISTS].extra = {"day": days[-1]}
        return score_missing(Variable.get("forewarn_config"), days)

    score()


forewarn_score()
