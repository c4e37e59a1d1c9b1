"""Review: compare the lists of a week ago with the failures known by now, every day.

The review reports hits, misses, false alarms and lead times.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Variable, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from forewarn.pipelines.scheduled_tasks import dag_options, review_site


@dag(
    schedule=timedelta(days=1),
    **dag_options(
        __doc__,
        retries=2,
        retry_delay=timedelta(minutes=1),
        retry_exponential_backoff=True,
        execution_timeout=timedelta(minutes=30),
    ),
)
def forewarn_review() -> None:
    """Review the lists of a week ago."""

    @task
    def review(*, dag_run: Any = None) -> dict[str, Any]:
        day = (dag_run.conf or {}).get("day") or dag_run.logical_date.date().isoformat()
        figures = review_site(Variable.get("forewarn_config"), day)
        if figures is None:
            raise AirflowSkipException("no list is a week old, or no failure is known")
        return figures

    review()


forewarn_review()
