"""What all DAG files share: schedule, parameters, and the outcome of a task that fails.

Invalid input fails a task at once; every other error is retried, later each time. A task that has
failed sends an alert.
"""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from forewarn.features.errors import InputError

if TYPE_CHECKING:
    from airflow.sdk import CronTriggerTimetable, Param

__all__ = [
    "alert_on_failure",
    "chosen_day",
    "dag_options",
    "date_param",
    "fail_fast",
    "refuse_unknown_fields",
    "utc_cron",
]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_RETRIES = {
    "retries": 3,
    "retry_delay": dt.timedelta(minutes=1),
    "retry_exponential_backoff": True,
    "max_retry_delay": dt.timedelta(minutes=10),
}


def dag_options(
    doc: str | None, *, failure: str, params: Mapping[str, Param], **each_task: object
) -> dict[str, Any]:
    """Return the options of `@dag` that all DAGs share: one run at a time, no catch-up.

    Parameters
    ----------
    doc : str or None
        Docstring of the DAG file.
    failure : str
        Kind of the alert about a failed task, such as "no list".
    params : mapping of str to Param
        Fields of the trigger dialog.
    **each_task
        Options of every task, such as time limit and pool.
    """
    return {
        "start_date": dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
        "catchup": False,
        "max_active_runs": 1,
        "doc_md": doc,
        "tags": ["forewarn"],
        "params": dict(params),
        "default_args": {
            **_RETRIES,
            "on_failure_callback": alert_on_failure(failure),
            "pre_execute": refuse_unknown_fields,
            **each_task,
        },
    }


def utc_cron(expression: str) -> CronTriggerTimetable:
    """Return a schedule at fixed times; the logical date of a run is the time it starts at.

    A plain string would follow Airflow's option `create_cron_data_intervals`, and an interval such
    as `timedelta(days=1)` starts at the time of day at which a person unpauses the DAG.
    """
    from airflow.sdk import CronTriggerTimetable

    return CronTriggerTimetable(expression, timezone="UTC")


def date_param(title: str, description: str, *, form: str = "date") -> Param:
    """Return an optional date, or a time with `date-time`, of the trigger dialog."""
    from airflow.sdk import Param

    kinds = ["null", "string"]
    return Param(None, type=kinds, format=form, title=title, description=description)


def chosen_day(chosen: str | None, start: dt.datetime, *, days_before: int) -> str:
    """Return the day that a person chose, or the UTC day some days before the start of a run."""
    if chosen:
        return chosen
    day = start.astimezone(dt.UTC).date() - dt.timedelta(days=days_before)
    return day.isoformat()


def fail_fast(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Return a task's function whose invalid input fails the task without another try.

    Raises
    ------
    AirflowFailException
        In place of an `InputError`, unless the same call may succeed later.
    """

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            if error.is_transient:
                raise
            from airflow.sdk.exceptions import AirflowFailException

            raise AirflowFailException(str(error)) from None

    return run


def refuse_unknown_fields(context: Any) -> None:
    """Fail a task at once if its run was triggered with a field that the DAG does not have.

    Airflow checks the values of known fields only: with a misspelt one the run would go on with the
    default.

    Raises
    ------
    AirflowFailException
        If there is an unknown field.
    """
    from airflow.sdk.exceptions import AirflowFailException

    known = sorted(context["dag"].params)
    unknown = sorted(set(context["dag_run"].conf or ()) - set(known))
    if unknown:
        raise AirflowFailException(
            f"unknown field {', '.join(f'`{name}`' for name in unknown)} of the run, "
            f"expected {', '.join(f'`{name}`' for name in known)}."
        )


def alert_on_failure(what: str) -> Callable[[Any], None]:
    """Return a failure callback that sends an alert to FOREWARN_ALERT_URL.

    Parameters
    ----------
    what : str
        Kind of the alert.
    """

    def send(context: Any) -> None:
        from forewarn.pipelines.runtime.alerts import alert

        task = context["ti"]
        facts = {"dag": task.dag_id, "task": task.task_id, "run": task.run_id}
        text = f"{task.dag_id}.{task.task_id} failed: {context.get('exception')}"
        alert(what, text, facts)

    return send
