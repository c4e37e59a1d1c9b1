"""Response: process the findings after each list and every ten minutes.

Decisions follow the policy and its limits. Without `mode` in `[respond]` they are only observed.
Pause this DAG if `forewarn respond --watch` is running.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Asset, AssetOrTimeSchedule, Param, Variable, dag, task

from forewarn.pipelines.dag_options import dag_options, fail_fast, utc_cron
from forewarn.pipelines.scheduled_tasks import respond_site

LISTS = Asset("forewarn_lists")
NEW_LEDGER = Param(
    False,
    type="boolean",
    title="Create an empty ledger first",
    description="Needed once, where a pool permits actions and the ledger does not exist or was "
    "lost. Fails if there is a ledger.",
)


@dag(
    # At full ten minutes: the interval at which `forewarn respond --watch` repeats.
    schedule=AssetOrTimeSchedule(timetable=utc_cron("*/10 * * * *"), assets=[LISTS]),
    **dag_options(
        __doc__,
        failure="no response",
        params={"new_ledger": NEW_LEDGER},
        retries=2,
        retry_delay=timedelta(seconds=30),
        execution_timeout=timedelta(minutes=20),
    ),
)
def forewarn_respond() -> None:
    """Decide on the open incidents."""

    @task
    @fail_fast
    def respond(*, params: Any = None) -> list[dict[str, Any]]:
        config = Variable.get("forewarn_config")
        return respond_site(config, new_ledger=params["new_ledger"])

    respond()


forewarn_respond()
