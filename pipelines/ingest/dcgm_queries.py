"""PromQL queries for the metrics of dcgm-exporter.

A GPU has a new series whenever a label changes, for example the pod or job that uses it. Series are
therefore joined by the labels of the GPU and its machine before any aggregation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from forewarn.features.telemetry.parsers.dcgm_metrics import (
    BLANK_THRESHOLD,
    METRICS,
    XID_COUNT_METRIC,
    Metric,
)
from forewarn.features.telemetry.parsers.machine_label import MACHINE_LABELS
from forewarn.features.telemetry.parsers.prometheus_answers import (
    GPU_LABELS,
    GPU_PLACE_LABELS,
    MIG_INSTANCE_LABEL,
)

__all__ = [
    "label_observations_query",
    "metric_query",
    "minimum_query",
    "samples_query",
    "xid_count_query",
]

_GPU = ", ".join((*GPU_LABELS, *MACHINE_LABELS))
_WHOLE, _PARTS = f'{{{MIG_INSTANCE_LABEL}=""}}', f'{{{MIG_INSTANCE_LABEL}!=""}}'
# Means above this contain a blank value; no gauge is as large.
_MAX_MEAN = 2.0**30
# At least one of these exists where any metric exists.
_OBSERVED_COLUMNS = ("temperature_gpu", "xid", "power_draw")


def metric_query(metric: Metric, part: int, seconds: int) -> str:
    """Return the query for one interval of a metric, by the first of its names that exists.

    Intervals with a blank value are excluded, since their mean is meaningless. For a MIG GPU the
    series of the whole GPU are used, else those of its instances.
    """
    ways = {"mean": _mean, "last": _last}
    way = ways.get(metric.over, _largest)
    parts = _sum_of_parts if metric.sum_of_instances else way
    names = metric.names[part]
    return _first(
        [way(f"{name}{_WHOLE}", seconds) for name in names]
        + [parts(f"{name}{_PARTS}", seconds) for name in names]
    )


def minimum_query(metric: Metric, seconds: int) -> str:
    """Return the query for the minimum of an interval; with the maximum it shows a change."""
    names = metric.names[0]
    return _first(
        f"min by ({_GPU}) (min_over_time({name}{parts}[{_span(seconds)}]))"
        for parts in (_WHOLE, _PARTS)
        for name in names
    )


def xid_count_query(seconds: int) -> str:
    """Return the query for the Xids that an exporter counted within an interval.

    The count is a gauge over a moving window, so that its last value may miss an Xid.
    """
    return f"max by ({_GPU}, xid) (max_over_time({XID_COUNT_METRIC}[{_span(seconds)}])) > 0"


def label_observations_query(seconds: int) -> str:
    """Return the query for the number of samples of each GPU, by all descriptive labels."""
    labels = ", ".join((*GPU_LABELS, *GPU_PLACE_LABELS, MIG_INSTANCE_LABEL, *MACHINE_LABELS))
    return _first(
        f"sum by ({labels}) (count_over_time({name}[{_span(seconds)}]))"
        for metric in METRICS
        if metric.column in _OBSERVED_COLUMNS
        for name in metric.names[0]
    )


def samples_query(names: Sequence[str], label: str, gpus: Sequence[str]) -> str:
    """Return the selector of the samples of some GPUs, by the label that identifies them.

    Examples
    --------
    >>> samples_query(["A", "B"], "UUID", ["GPU-1", "GPU-2"])
    '{__name__=~"A|B", UUID=~"GPU-1|GPU-2"}'
    """
    quoted = "|".join(_quoted(gpu) for gpu in gpus)
    return f'{{__name__=~"{"|".join(names)}", {label}=~"{quoted}"}}'


def _quoted(text: str) -> str:
    """Quote a text as a regular expression in a string of the query."""
    return "".join(c if c.isalnum() or c in "-_" else f"\\x{{{ord(c):x}}}" for c in text).replace(
        "\\", "\\\\"
    )


def _span(seconds: int) -> str:
    """Return the range of an interval without its first moment, in milliseconds.

    Prometheus 2 counts a sample of that moment in both intervals, Prometheus 3 in the earlier one.
    """
    return f"{seconds * 1000 - 1}ms"


def _first(queries: Iterable[str]) -> str:
    """Return the query for the first of several queries that has a result."""
    return " or ".join(f"({query})" for query in queries)


def _mean(series: str, seconds: int, by: str = _GPU) -> str:
    """Weight series by their samples; a single series keeps its exact mean."""
    span = f"{series}[{_span(seconds)}]"
    count = f"count_over_time({span})"
    single = f"avg by ({by}) (avg_over_time({span})) and count by ({by}) ({count}) == 1"
    several = f"sum by ({by}) (sum_over_time({span})) / sum by ({by}) ({count})"
    return f"(({single}) or ({several})) < {_MAX_MEAN:.0f}"


def _sum_of_parts(series: str, seconds: int) -> str:
    return f"sum by ({_GPU}) ({_mean(series, seconds, f'{_GPU}, {MIG_INSTANCE_LABEL}')})"


def _last(series: str, seconds: int) -> str:
    """Select the value of the series that was scraped last, the largest of equal ones.

    If the last sample is older than the lookback of a query, the order of series is unknown.
    """
    span, time = f"{series}[{_span(seconds)}]", f"timestamp({series})"
    newest = f"{time} >= on ({_GPU}) group_left () max by ({_GPU}) ({time})"
    value = f"max by ({_GPU}) (last_over_time({span}) and {newest})"
    fallback = f"max by ({_GPU}) (last_over_time({span}))"
    return f"({value} or {fallback}) and {_largest(series, seconds)}"


def _largest(series: str, seconds: int) -> str:
    return f"max by ({_GPU}) (max_over_time({series}[{_span(seconds)}])) < {BLANK_THRESHOLD:.0f}"
