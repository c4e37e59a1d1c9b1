"""Compaction: store each date of records as one file every night, sorted by GPU and time.

The newest date and dates with a single file are skipped. A retry resumes: the file of a date is
replaced atomically. `[executor]` selects where dates are compacted.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Variable, dag, task

from forewarn.pipelines.scheduled_tasks import compact_site, dag_options


@dag(
    schedule=timedelta(days=1),
    **dag_options(
        __doc__,
        start_hour=1,
        retries=3,
        retry_delay=timedelta(minutes=1),
        retry_exponential_backoff=True,
        execution_timeout=timedelta(hours=4),
    ),
)
def forewarn_compact() -> None:
    """Compact all dates before the newest one."""

    @task
    def compact(*, dag_run: Any = None) -> list[str]:
        day = (dag_run.conf or {}).get("day") or datetime.now(UTC).date().isoformat()
        return compact_site(Variable.get("forewarn_config"), day)

    compact()


forewarn_compact()
