"""Compaction: store each date of records as one file every night, sorted by GPU and time.

The newest date and dates with a single file are skipped. A retry resumes: the file of a date is
replaced atomically. `[executor]` selects where dates are compacted.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Variable, dag, task

from forewarn.pipelines.dag_options import chosen_day, dag_options, date_param, fail_fast, utc_cron
from forewarn.pipelines.scheduled_tasks import compact_site

DAY = date_param(
    "Compact the dates before",
    "UTC date, such as 2025-03-01; records of this date and later ones stay as they are. "
    "Empty: the day of the run.",
)


@dag(
    # At 01:30, when yesterday is complete and its list is made.
    schedule=utc_cron("30 1 * * *"),
    **dag_options(
        __doc__,
        failure="no compaction",
        params={"day": DAY},
        execution_timeout=timedelta(hours=4),
    ),
)
def forewarn_compact() -> None:
    """Compact all dates before the newest one."""

    @task
    @fail_fast
    def compact(*, params: Any = None, dag_run: Any = None) -> list[str]:
        day = chosen_day(params["day"], dag_run.logical_date or dag_run.run_after, days_before=0)
        return compact_site(Variable.get("forewarn_config"), day)

    compact()


forewarn_compact()
