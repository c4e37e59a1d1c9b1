"""What to do about the findings there are: once after each list, and every ten minutes.

It decides by the policy, within the limits, and only observes unless `[respond]` lets it act. Where
`forewarn respond --watch` runs anyway, leave this one paused. An airflow dag.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Asset, Variable, dag, task
from airflow.timetables.assets import AssetOrTimeSchedule
from airflow.timetables.interval import CronDataIntervalTimetable

LISTS = Asset("forewarn_lists")


def alert_failed(context: Any) -> None:
    """Tell somebody that nobody decides about findings."""
    from forewarn.pipelines.runtime.alerts import alert

    alert("no response", f"{context['ti'].task_id} failed: {context.get('exception')}")


@dag(
    schedule=AssetOrTimeSchedule(
        timetable=CronDataIntervalTimetable("*/10 * * * *", timezone="UTC"),
        assets=[LISTS],  # type: ignore[list-item]  # typed as the scheduler stores it
    ),
    start_date=datetime(2025, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["forewarn"],
    default_args={
        "retries": 2,
        "retry_delay": timedelta(seconds=30),
        "execution_timeout": timedelta(minutes=20),
        "on_failure_callback": alert_failed,
    },
)
def forewarn_respond() -> None:
    """Decide about the open incidents."""

    @task
    def respond() -> list[dict[str, Any]]:
        from forewarn.pipelines.scheduled_tasks import respond_site

        return respond_site(Variable.get("forewarn_config"))

    respond()


forewarn_respond()
