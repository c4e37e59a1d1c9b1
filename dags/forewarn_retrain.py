"""Retraining, every three days, as of the logical date or `{"at": "2025-03-01"}`.

All lengths are trained as of the start of the last finished test window. The best one is refitted,
compared with the champion and registered; the run fails if it is refused. A retry resumes.
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
    """Train all lengths, then decide on a promotion."""

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

    at: Any = moment()  # a task's return value stands for its result
    train.partial(at=at).expand(length=lengths()) >> decide(at)


forewarn_retrain()
