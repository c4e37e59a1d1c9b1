"""Response: process the findings after each list and every ten minutes.

Decisions follow the policy and its limits. Without `mode` in `[respond]` they are only observed.
Pause this DAG if `forewarn respond --watch` is running.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, Variable, dag, task
from airflow.timetables.assets import AssetOrTimeSchedule
from airflow.timetables.interval import CronDataIntervalTimetable

from forewarn.pipelines.scheduled_tasks import alert_on_failure, dag_options, respond_site

LISTS = Asset("forewarn_lists")


@dag(
    schedule=AssetOrTimeSchedule(
        timetable=CronDataIntervalTimetable("*/10 * * * *", timezone="UTC"),
        assets=[LISTS],  # type: ignore[list-item]  # typed as the scheduler stores it
    ),
    **dag_options(
        __doc__,
        retries=2,
        retry_delay=timedelta(seconds=30),
        execution_timeout=timedelta(minutes=20),
        on_failure_callback=alert_on_failure("no response"),
    ),
)
def forewarn_respond() -> None:
    """Decide on the open incidents."""

    @task
    def respond() -> list[dict[str, Any]]:
        return respond_site(Variable.get("forewarn_config"))

    respond()


forewarn_respond()
