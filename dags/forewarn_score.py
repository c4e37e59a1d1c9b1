"""The daily at-risk list.

When days are complete, the champion makes the list of each day as of the midnight at its end. Days
come from asset events of `forewarn_ingest`. A repeated run gives the same list.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, Variable, dag, task

from forewarn.pipelines.dag_options import chosen_day, dag_options, date_param, fail_fast
from forewarn.pipelines.scheduled_tasks import score_missing

RECORDS, LISTS = Asset("forewarn_records"), Asset("forewarn_lists")
DAY = date_param(
    "Last day of records",
    "UTC date, such as 2025-03-01: the list is made as of the midnight at its end. "
    "Empty: the day before the run.",
)


@dag(
    # Without a time of day: the list is made as soon as a day is complete, usually at 00:05 UTC.
    schedule=[RECORDS],
    **dag_options(
        __doc__,
        failure="no list",
        params={"day": DAY},
        retry_delay=timedelta(seconds=30),
        pool="forewarn_tensorflow",
        execution_timeout=timedelta(minutes=30),
    ),
)
def forewarn_score() -> None:
    """Make the lists of the complete days."""

    @task(outlets=[LISTS])
    @fail_fast
    def score(
        *,
        params: Any = None,
        dag_run: Any = None,
        triggering_asset_events: Any = None,
        outlet_events: Any = None,
    ) -> str:
        events = [] if params["day"] else [e.extra for e in triggering_asset_events[RECORDS]]
        published = {day for extra in events for day in (*extra.get("before", ()), extra["day"])}
        start = dag_run.logical_date or dag_run.run_after
        days = sorted(published) or [chosen_day(params["day"], start, days_before=1)]
        outlet_events[LISTS].extra = {"day": days[-1]}
        return score_missing(Variable.get("forewarn_config"), days)

    score()


forewarn_score()
