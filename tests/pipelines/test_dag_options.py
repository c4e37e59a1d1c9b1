"""What an error in a task leads to, and the day that a run is for."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowFailException
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.errors import InputError
from forewarn.pipelines.dag_options import alert_on_failure, chosen_day, fail_fast
from forewarn.pipelines.runtime.job_error import JobError


def raise_error(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [InputError("line 3 is bad"), JobError("two failures")])
def test_invalid_input_is_not_retried(error: InputError) -> None:
    with pytest.raises(AirflowFailException, match=str(error)):
        fail_fast(raise_error)(error)


@pytest.mark.parametrize(
    "error", [JobError("no answer", is_transient=True), OSError(28, "disk full"), KeyError("gpu")]
)
def test_other_errors_are_retried(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        fail_fast(raise_error)(error)
    assert caught.value is error


def test_error_stays_transient_in_another_process() -> None:
    for is_transient in (True, False):
        error = pickle.loads(pickle.dumps(JobError("no answer", is_transient=is_transient)))
        assert (str(error), error.is_transient) == ("no answer", is_transient)


@given(st.datetimes(datetime(2020, 1, 2), datetime(2040, 1, 1)), st.integers(-14, 14))
def test_empty_day_is_utc_day(start: datetime, offset: int) -> None:
    zone = timezone(timedelta(hours=offset))
    local = start.replace(tzinfo=UTC).astimezone(zone)
    assert chosen_day(None, local, days_before=0) == start.date().isoformat()
    assert chosen_day("", local, days_before=1) == str(start.date() - timedelta(days=1))
    assert chosen_day("2025-03-01", local, days_before=1) == "2025-03-01"


def test_failure_alert_names_task_and_reason(capsys: pytest.CaptureFixture[str]) -> None:
    task = SimpleNamespace(dag_id="forewarn_score", task_id="score", run_id="manual__1")
    alert_on_failure("no list")({"ti": task, "exception": JobError("no records")})
    assert "alert (no list): forewarn_score.score failed: no records" in capsys.readouterr().err
