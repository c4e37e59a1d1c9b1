"""Several series of one machine are merged: labels of pods and GPUs do not identify it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.detection.sampling import Sampling
from forewarn.features.time_units import SECOND
from forewarn.pipelines.config.settings import WatchTable
from forewarn.pipelines.detection.live_metrics import LiveMetrics
from forewarn.pipelines.ingest.prometheus_client import (
    PrometheusClient,
    PrometheusError,
    QueryTooLargeError,
)

Samples = list[tuple[int, float]]


class Recorded(PrometheusClient):
    """A server with configurable answers."""

    answers: list[Any] = []  # noqa: RUF012

    def samples(self, *_: Any, **__: Any) -> Any:
        if not self.answers:
            raise QueryTooLargeError
        return self.answers.pop(0)


def answer(*series: tuple[dict[str, str], Samples]) -> dict[str, Any]:
    result = [
        {"metric": {"task": "job", "machine": "m1"} | labels, "values": [[t, str(v)] for t, v in s]}
        for labels, s in series
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def fetched(*answers: dict[str, Any]) -> tuple[list[int], list[float]]:
    settings = WatchTable.model_validate({"task_label": "task", "machine_label": "machine"})
    with closing(Recorded("http://127.0.0.1:9")) as server:
        Recorded.answers = list(answers)
        live = LiveMetrics(server, settings, SECOND, sampling=Sampling())
        for i in range(len(answers)):
            buffer = live.fetch("power", (100 * (i + 1)) * SECOND, 1000 * SECOND)
    key = ("job", "m1")
    return (buffer.times[key] // SECOND).tolist(), buffer.values[key].tolist()


def test_series_continues_in_another_pod() -> None:
    first: Samples = [(1, 80.0), (2, 80.0)]
    second: Samples = [(3, 30.0), (4, 30.0)]
    expected = ([1, 2, 3, 4], [80.0, 80.0, 30.0, 30.0])
    a, b = ({"pod": "train-a"}, first), ({"pod": "train-b"}, second)
    assert fetched(answer(a, b)) == fetched(answer(b, a)) == expected


def test_gpus_of_machine_are_averaged() -> None:
    gpus = [({"gpu": str(i)}, [(1, 10.0 * i), (2, 0.0)]) for i in range(4)]
    assert fetched(answer(*gpus)) == ([1, 2], [15.0, 0.0])


@given(st.lists(st.tuples(st.integers(1, 99), st.sampled_from("abc")), max_size=20))
def test_split_into_series_does_not_matter(parts: list[tuple[int, str]]) -> None:
    times = sorted({time for time, _ in parts})
    if not times:
        return
    labels = dict(parts)
    series = [
        ({"pod": pod}, [(time, time / 2) for time in times if labels[time] == pod])
        for pod in sorted(set(labels.values()))
    ]
    got_times, values = fetched(answer(*series))
    assert got_times == times
    assert np.allclose(values, np.array(times) / 2)


def test_too_large_answer_is_one_line() -> None:
    settings = WatchTable.model_validate({})
    with closing(Recorded("http://127.0.0.1:9")) as server:
        Recorded.answers = []
        live = LiveMetrics(server, settings, SECOND)
        with pytest.raises(PrometheusError, match="is too large"):
            live.fetch("power", 100 * SECOND, SECOND)
