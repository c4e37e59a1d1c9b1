"""Retraining, every three days.

The lengths are trained as of the start of the last finished test window; the best one is refitted,
judged against the champion and registered in MLflow. If it is refused, the champion stays and the
run fails. A run handles its logical date, by hand `{"at": "2025-03-01"}`; a retry goes on.
"""

from datetime import timedelta
from typing import Any

from airflow.sdk import Variable, dag, task
from airflow.sdk.exceptions import AirflowFailException
from airflow.timetables.trigger import DeltaTriggerTimetable

from forewarn.pipelines.scheduled_tasks import (
    dag_options,
    retrain_site,
    train_length,
    training_lengths,
)


@dag(
    schedule=DeltaTriggerTimetable(timedelta(days=3)),
    **dag_options(
        __doc__,
        retries=3,
        retry_delay=timedelta(seconds=30),
        retry_exponential_backoff=True,
        pool="forewarn_tensorflow",
        execution_timeout=timedelta(hours=2),
    ),
)
def forewarn_retrain() -> None:
    """Train the lengths, then decide."""

    @task
    def moment(*, dag_run: Any = None) -> str:
        return str((dag_run.conf or {}).get("at") or dag_run.logical_date.isoformat())

    @task
    def lengths() -> list[int]:
        return training_lengths(Variable.get("forewarn_config"))

    @task
    def train(length: int, at: str) -> str:
        return train_length(Variable.get("forewarn_config"), at, length)

    @task
    def decide(at: str) -> dict[str, Any]:
        done = retrain_site(Variable.get("forewarn_config"), at)
        if done["promoted"]:
            return done
        raise AirflowFailException(f"refused: {'; '.join(done['reasons'])}")

    at: Any = moment()  # what a task returns stands for its value
    train.partial(at=at).expand(length=lengths()) >> decide(at)


forewarn_retrain()
