"""Retraining, every three days.

All lengths are trained as of the start of the last finished test window. The best one is refitted,
compared with the champion and registered. If it is refused, `promote` is skipped, the champion
stays in use, and an alert says why. A retry resumes.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Variable, dag, task
from airflow.sdk.exceptions import AirflowSkipException

from forewarn.pipelines.dag_options import chosen_day, dag_options, date_param, fail_fast, utc_cron
from forewarn.pipelines.scheduled_tasks import retrain_site, train_length, training_lengths

AT = date_param(
    "Train as of",
    "UTC date, such as 2025-03-01. Data from this day on is not read. Empty: the day of the run.",
)


@dag(
    # At 03:00, so that the night's list need not wait. Days 1, 4, ... 31 are at most three apart.
    schedule=utc_cron("0 3 */3 * *"),
    **dag_options(
        __doc__,
        failure="no retraining",
        params={"at": AT},
        pool="forewarn_tensorflow",
        execution_timeout=timedelta(hours=2),
    ),
)
def forewarn_retrain() -> None:
    """Train all lengths, then decide on a promotion."""

    @task
    @fail_fast
    def lengths() -> list[int]:
        return training_lengths(Variable.get("forewarn_config"))

    @task
    @fail_fast
    def train(length: int, *, params: Any = None, dag_run: Any = None) -> str:
        at = chosen_day(params["at"], dag_run.logical_date or dag_run.run_after, days_before=0)
        return train_length(Variable.get("forewarn_config"), at, length)

    @task
    @fail_fast
    def promote(*, params: Any = None, dag_run: Any = None) -> dict[str, Any]:
        at = chosen_day(params["at"], dag_run.logical_date or dag_run.run_after, days_before=0)
        done = retrain_site(Variable.get("forewarn_config"), at)
        if done["promoted"]:
            return done
        raise AirflowSkipException(f"refused: {'; '.join(done['reasons'])}")

    train.expand(length=lengths()) >> promote()


forewarn_retrain()
