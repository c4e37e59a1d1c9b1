"""Backtest: evaluate every month how good past lists would have been.

The backtest uses all records up to yesterday and the site's strategy, on links to record files. A
retry resumes after the last finished retraining. `[executor]` selects where test windows are
evaluated. To start a run manually, pass `{"day": "2025-03-01"}`, the last day to read.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Variable, dag, task

from forewarn.pipelines.scheduled_tasks import backtest_site, dag_options


@dag(
    schedule=timedelta(days=30),
    **dag_options(
        __doc__,
        retries=3,
        retry_delay=timedelta(minutes=1),
        pool="forewarn_tensorflow",
        execution_timeout=timedelta(hours=12),
    ),
)
def forewarn_backtest() -> None:
    """Run a walk-forward backtest and write its report."""

    @task
    def yesterday(*, dag_run: Any = None) -> str:
        before = datetime.now(UTC).date() - timedelta(days=1)
        return str((dag_run.conf or {}).get("day") or before.isoformat())

    @task
    def backtest(day: str) -> str:
        return backtest_site(Variable.get("forewarn_config"), day)

    day: Any = yesterday()  # a task's return value stands for its result
    backtest(day)


forewarn_backtest()
