"""Backtest: evaluate every month how good past lists would have been.

The backtest uses all records up to yesterday and the site's strategy, on links to record files. A
retry resumes after the last finished retraining. `[executor]` selects where test windows are
evaluated.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Variable, dag, task

from forewarn.pipelines.dag_options import chosen_day, dag_options, date_param, fail_fast, utc_cron
from forewarn.pipelines.scheduled_tasks import backtest_site

DAY = date_param(
    "Last day of records",
    "UTC date, such as 2025-03-01. Later records are not read. Empty: the day before the start.",
)


@dag(
    # On the first of a month at 05:00: hours long, so after that night's retraining.
    schedule=utc_cron("0 5 1 * *"),
    **dag_options(
        __doc__,
        failure="no backtest",
        params={"day": DAY},
        pool="forewarn_tensorflow",
        execution_timeout=timedelta(hours=12),
    ),
)
def forewarn_backtest() -> None:
    """Run a walk-forward backtest and write its report."""

    @task
    @fail_fast
    def backtest(*, params: Any = None, dag_run: Any = None) -> str:
        day = chosen_day(params["day"], dag_run.start_date, days_before=1)
        return backtest_site(Variable.get("forewarn_config"), day)

    backtest()


forewarn_backtest()
