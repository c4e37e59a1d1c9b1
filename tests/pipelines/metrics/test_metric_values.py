from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics import parser

from forewarn.pipelines.metrics.declarations import (
    FINDINGS,
    FLEET_GPUS,
    ISOLATIONS,
    LIST_TIME,
    SOURCES,
)
from forewarn.pipelines.metrics.job_textfile import job_values, write_job
from forewarn.pipelines.metrics.metric_values import Distribution, MetricValues

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def filled(source: str) -> MetricValues:
    """Return the values of a source with a sample of each series."""
    values = MetricValues(SOURCES[source])
    for metric in SOURCES[source]:
        sites = {name: known or ("a",) for name, known in metric.labels.items()}
        every = list(replace(metric, labels=sites).known_labels())
        if metric.kind == "histogram":
            counts = tuple(range(len(metric.bounds) + 1))
            some = Distribution(counts, 1.5)
            values.replace_distributions(metric, dict.fromkeys(every, some))
            continue
        for labels in every:
            values.set(metric, 1.5, *labels)
    return values


@pytest.mark.parametrize("source", SOURCES)
def test_promtool_accepts_every_metric(source: str, check_metrics: Callable[[str], None]) -> None:
    check_metrics(filled(source).text().decode())
    check_metrics(MetricValues(SOURCES[source]).text().decode())


@pytest.mark.parametrize("source", SOURCES)
def test_scraper_that_asks_gets_openmetrics(source: str) -> None:
    text, content_type = filled(source).negotiated(OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    parsed = parser.text_string_to_metric_families(text.decode())  # type: ignore[no-untyped-call]
    families = {family.name: family for family in parsed}
    assert set(families) == {metric.name for metric in SOURCES[source]}
    for metric in SOURCES[source]:
        family = families[metric.name]
        assert (family.type, family.unit) == (metric.kind, metric.unit)


def test_names_are_declared_once() -> None:
    declared = {metric for metrics in SOURCES.values() for metric in map(str, metrics)}
    names = {metric.name for metrics in SOURCES.values() for metric in metrics}
    assert len(declared) == len(names)
    assert all(name.startswith("forewarn_") for name in names)


def test_no_label_grows_with_fleet() -> None:
    labels = {name for metrics in SOURCES.values() for m in metrics for name in m.labels}
    assert not labels & {"machine", "gpu", "gpu_serial", "host", "serial", "user", "job_id"}


def test_counters_begin_at_zero() -> None:
    values = MetricValues(SOURCES["respond"])
    assert b'forewarn_respond_findings_total{known="no"} 0.0' in values.text()
    values.replace(FINDINGS, {("no",): 3})
    assert b'forewarn_respond_findings_total{known="yes"} 0.0' in values.text()


def test_wrong_labels_are_refused() -> None:
    values = MetricValues(SOURCES["respond"])
    with pytest.raises(ValueError, match="expected by, pool"):
        values.add(ISOLATIONS, 1, "forewarn")
    with pytest.raises(KeyError):
        values.set(LIST_TIME, 1)


def test_textfile_is_replaced_as_a_whole(tmp_path: Path) -> None:
    for gpus in (1, 2):
        values = job_values("score")
        values.set(FLEET_GPUS, gpus, "all")
        write_job(tmp_path, "score", values)
    (path,) = tmp_path.iterdir()
    assert path.name == "forewarn_score.prom"
    text = path.read_text()
    assert 'forewarn_fleet_gpus{state="all"} 2.0' in text
    assert 'forewarn_job_success_time_seconds{job="score"}' in text


def test_missing_folder_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_job(tmp_path / "none", "score", job_values("score"))
    assert "the metrics of `score` were not written: No such file" in capsys.readouterr().err
    write_job(None, "score", job_values("score"))
    assert list(tmp_path.iterdir()) == []
