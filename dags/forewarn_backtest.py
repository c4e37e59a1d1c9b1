"""Backtest: every month, how good the lists would have been, all records up to yesterday.

It walks through time by the site's own strategy, on links to the records as they are now. A retry
goes on after the last retraining that was done. `[executor]` says where test windows are judged.
By hand `{"day": "2025-03-01"}`, the last day that is read. An airflow dag.
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
    """Walk through the past, and report."""

    @task
    def yesterday(*, dag_run: Any = None) -> str:
        before = datetime.now(UTC).date() - timedelta(days=1)
        return str((dag_run.conf or {}).get("day") or before.isoformat())

    @task
    def backtest(day: str) -> str:
        return backtest_site(Variable.get("forewarn_config"), day)

    day: Any = yesterday()  # what a task returns stands for its value
    backtest(day)


forewarn_backtest()
