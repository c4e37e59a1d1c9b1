"""Inspections: judge the results of inspections, and plan which machines come next, every day.

Writes `judged.json` and `plan.json` into `inspections` of [site]. Without that key the run is
skipped. What runs the plan is the site's own scheduler: `forewarn inspect forms`.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Variable, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from forewarn.pipelines.dag_options import chosen_day, dag_options, date_param, fail_fast, utc_cron
from forewarn.pipelines.scheduled_tasks import inspect_site

DAY = date_param(
    "Plan as of",
    "UTC date, such as 2025-03-01. The newest at-risk list before it is used. Empty: the day of "
    "the run.",
)


@dag(
    # At 07:00, when the list of yesterday is made.
    schedule=utc_cron("0 7 * * *"),
    **dag_options(
        __doc__,
        failure="no inspection plan",
        params={"day": DAY},
        execution_timeout=timedelta(minutes=30),
    ),
)
def forewarn_inspect() -> None:
    """Judge inspections, and plan the next ones."""

    @task
    @fail_fast
    def inspect(*, params: Any = None, dag_run: Any = None) -> dict[str, Any]:
        day = chosen_day(params["day"], dag_run.logical_date or dag_run.run_after, days_before=0)
        counts = inspect_site(Variable.get("forewarn_config"), day)
        if counts is None:
            raise AirflowSkipException("[site] names no folder of inspections")
        return counts

    inspect()


forewarn_inspect()
