"""Metrics of a service, and the answer to a scrape."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import Response

from forewarn.pipelines.metrics.metric import Metric
from forewarn.pipelines.metrics.metric_values import MetricValues

__all__ = ["ServiceMetrics", "metrics_response"]


class ServiceMetrics(MetricValues):
    """Metrics of one service.

    Parameters
    ----------
    metrics : sequence of Metric
    refused : Metric
        Counts refused requests by status.
    """

    def __init__(self, metrics: Sequence[Metric], refused: Metric) -> None:
        super().__init__(metrics)
        self._refused = refused

    def refuse(self, status: int) -> None:
        """Count a refused request."""
        self.add(self._refused, 1.0, str(status))


def metrics_response(values: MetricValues, accept: str) -> Response:
    """Return all metrics in the best format that a scraper accepts."""
    text, content_type = values.negotiated(accept)
    return Response(text, headers={"content-type": content_type})
