"""Queries in the language of Prometheus for the metrics of dcgm-exporter."""

from __future__ import annotations

from forewarn.features.telemetry.parsers.dcgm import BLANK, Metric

__all__ = ["changes_of", "query_of"]


def query_of(metric: Metric, part: int, seconds: int) -> str:
    """Return the query for one interval of a metric, under any of its names.

    An interval with a blank value in it is left out: its mean would be one of nothing real.

    Examples
    --------
    >>> from forewarn.features.telemetry.parsers.dcgm import METRICS
    >>> query_of(METRICS[4], 0, 600)  # doctest: +ELLIPSIS
    '(avg_over_time(DCGM_FI_DEV_FB_USED[600s]) and max_over_time(DCGM_FI_DEV_FB_USED[600s]) < ...)'
    """
    over = "avg_over_time" if metric.over == "mean" else "last_over_time"
    return " or ".join(
        f"({over}({name}[{seconds}s]) and max_over_time({name}[{seconds}s]) < {BLANK:.0f})"
        for name in metric.names[part]
    )


def changes_of(metric: Metric, seconds: int) -> str:
    """Return the query for how often a gauge that shows the last event changed in an interval.

    `changes` does not see what changed between the last sample before an interval and the first
    one in it: there the last values of both intervals are compared, where there are both.
    """
    return " or ".join(_changed(f"{name}[{seconds}s]", seconds) for name in metric.names[0])


def _changed(span: str, seconds: int) -> str:
    border = f"last_over_time({span}) != bool last_over_time({span} offset {seconds}s)"
    return f"(changes({span}) > 0 or ({border}) or changes({span}))"
