"""The reference of the metrics, from their declarations."""

from __future__ import annotations

from docs.generate.markdown import escaped, table

from forewarn.pipelines.metrics.declarations import SOURCES
from forewarn.pipelines.metrics.metric import Metric

__all__ = ["metrics_page"]

HEAD = """# Metrics

What forewarn exposes to Prometheus, for people who write queries and alert rules. No label holds a
serial or a machine, so the number of series does not grow with the fleet. The alert rules are in
`deploy/prometheus/`; what to do about each is in [Answer an alert](../how-to/answer_an_alert.md).
[The dashboards](../how-to/watch_forewarn.md) are in `deploy/grafana/`.

"""
SERVERS = {
    "respond": "`GET /metrics` of `forewarn respond --serve`, without a token. With `--watch` in "
    "the same process it has all of them; an API alone has only those of the ledger. A loop "
    "without an API writes `forewarn_respond.prom` into the folder `[site] metrics`.",
    "collect": "`GET /metrics` of `forewarn collect`, without a token.",
}


def metrics_page() -> str:
    """Return the page of all metrics as Markdown."""
    parts = [HEAD]
    for source, metrics in SOURCES.items():
        parts.append(f"## forewarn {source}\n\n{SERVERS.get(source) or _textfile(source)}\n")
        head = ("metric", "type", "unit", "labels", "meaning")
        parts.append(table(head, map(_row, metrics)))
    return "\n".join(parts)


def _textfile(job: str) -> str:
    return (
        f"`forewarn_{job}.prom` in the folder `[site] metrics`, replaced when the command or its "
        "task of a DAG has ended without an error. Point node_exporter's "
        "`--collector.textfile.directory` at the folder."
    )


def _row(metric: Metric) -> tuple[str, ...]:
    labels = "; ".join(f"`{name}`: {_values(known)}" for name, known in metric.labels.items())
    return f"`{metric.sample}`", metric.kind, metric.unit, labels, escaped(metric.help)


def _values(known: tuple[str, ...]) -> str:
    return ", ".join(f"`{value}`" for value in known) or "those of the configuration"
