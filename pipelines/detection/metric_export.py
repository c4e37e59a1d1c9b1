"""`forewarn detect pull`: writes the metrics of tasks on a Prometheus server to files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from forewarn.features.array_types import Float64Array
from forewarn.features.detection.exporter_series import METRIC_SERIES
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.pipelines.detection.live_metrics import LiveMetrics, LivePull
from forewarn.pipelines.detection.sample_files import GROUP, MACHINE, TIME
from forewarn.pipelines.ingest.prometheus_client import PrometheusError
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.storage.files.atomic_files import replacing
from forewarn.pipelines.storage.files.file_names import arrow_path, safe_file_name

__all__ = ["export_metrics", "exported_text"]

_CHUNK = 15 * MINUTE


def export_metrics(
    live: LiveMetrics, configured: Sequence[str], out: Path, start: int, end: int
) -> Iterator[dict[str, Any]]:
    """Write each task's samples in (start, end]; yield a line per file.

    Parameters
    ----------
    live : LiveMetrics
    configured : sequence of str
        Metrics of the configuration; those that exporters are known to have are added.
    out : Path
        `task=NAME/TIME.parquet` is written here, one file for each 15 minutes.
    start, end : int
        Nanoseconds since 1970 UTC.

    Raises
    ------
    PrometheusError
        If the server does not answer, or has no metric of a task.
    """
    names = list(dict.fromkeys([*configured, *METRIC_SERIES]))
    written = set[str]()
    machines = 0
    while start < end:
        upto = min(end, start + _CHUNK)
        live.read_tasks(upto)
        counts = {name: len(live.fetch(name, upto, upto - start).times) for name in names}
        first = max(names, key=lambda name: counts[name])
        for pull in live.pulls(first, upto, upto - start):
            columns = {n: c for n in names if (c := pull.as_sent(n)) is not None}
            machines += len(pull.grid.machines)
            written |= columns.keys()
            yield _write(pull, columns, out, upto)
        start = upto
    if not machines:
        raise PrometheusError(
            f"{live.server.url}: has no metric of a task, expected series of node_exporter or "
            "dcgm-exporter and a label or a table (`[watch] tasks`) that names the task."
        )
    if absent := [name for name in configured if name not in written]:
        note(f"no series, so `detect fit` will not use them: {', '.join(absent)}")


def _write(pull: LivePull, columns: dict[str, Float64Array], out: Path, end: int) -> dict[str, Any]:
    grid = pull.grid
    sent = np.isfinite(np.stack(list(columns.values()))).any(axis=0)
    machine, tick = np.nonzero(sent)
    table = {
        TIME: pa.array((grid.first_tick + tick) * grid.interval, pa.timestamp("ns", tz="UTC")),
        MACHINE: pa.array(np.array(grid.machines, dtype=object)[machine], pa.string()),
        **{name: pa.array(values[sent], from_pandas=True) for name, values in columns.items()},
    }
    if any(pull.group_names):
        table[GROUP] = pa.array(np.array(pull.group_names, dtype=object)[machine], pa.string())
    moment = datetime.fromtimestamp(end // SECOND, tz=UTC)
    path = out / f"task={safe_file_name(pull.name)}" / f"{moment:%Y%m%dT%H%M%SZ}.parquet"
    with replacing(path) as temporary:
        pq.write_table(pa.table(table), arrow_path(temporary), compression="zstd")
    return {
        "task": pull.name,
        "machines": len(grid.machines),
        "samples": len(machine),
        "metrics": list(columns),
        "file": str(path),
    }


def exported_text(line: dict[str, Any]) -> str:
    """Return a line of `export_metrics` as text."""
    return (
        f"{line['task']}: {line['samples']} samples of {line['machines']} machines, "
        f"{', '.join(line['metrics'])}; wrote {line['file']}"
    )
