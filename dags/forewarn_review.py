"""Review: compare the lists of a week ago with the failures known by now, every day.

The review reports hits, misses, false alarms and lead times.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Variable, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from forewarn.pipelines.dag_options import chosen_day, dag_options, date_param, fail_fast, utc_cron
from forewarn.pipelines.scheduled_tasks import review_site

DAY = date_param(
    "Last day of known failures",
    "UTC date, such as 2025-03-01. Lists whose alerts had expired by the end of this day are "
    "reviewed. Empty: the day before the run.",
)


@dag(
    # At 06:00: tickets of yesterday are read, and the review is there when people start work.
    schedule=utc_cron("0 6 * * *"),
    **dag_options(
        __doc__,
        failure="no review",
        params={"day": DAY},
        execution_timeout=timedelta(minutes=30),
    ),
)
def forewarn_review() -> None:
    """Review the lists of a week ago."""

    @task
    @fail_fast
    def review(*, params: Any = None, dag_run: Any = None) -> dict[str, Any]:
        day = chosen_day(params["day"], dag_run.logical_date or dag_run.run_after, days_before=1)
        figures = review_site(Variable.get("forewarn_config"), day)
        if figures is None:
            raise AirflowSkipException("no list is a week old, or no failure is known")
        return figures

    review()


forewarn_review()
