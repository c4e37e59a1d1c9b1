"""`forewarn ingest --prometheus`: DCGM metrics of a Prometheus server, chunk by chunk."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.features.telemetry.parsers.gpu_reading import Unread
from forewarn.features.telemetry.parsers.machine_label import (
    LabelObservation,
    MachineLabels,
    choose_labels,
)
from forewarn.features.telemetry.telemetry_tables import EVENTS, READINGS, TableError, build_table
from forewarn.features.time_units import DAY
from forewarn.pipelines.ingest.dcgm_chunk import DcgmChunk, observe_labels
from forewarn.pipelines.ingest.landing import Landing
from forewarn.pipelines.ingest.landing_counts import LandingCounts
from forewarn.pipelines.ingest.port_chunk import PortChunk
from forewarn.pipelines.ingest.prometheus_client import (
    PrometheusClient,
    PrometheusError,
    QueryTooLargeError,
    strip_credentials,
)
from forewarn.pipelines.runtime.progress import note, progress_bar
from forewarn.pipelines.storage.files.atomic_files import replacing

__all__ = ["PullResult", "pull"]

_DEFAULT_RETENTION = 15 * DAY
_LABEL_HISTORY = 7 * DAY  # past span over which the label of machines should be stable
_MAX_SAMPLED_INTERVALS = 12  # at which labels are read, of the past and of the requested span
_MAX_VALUES = 240_000  # per query: of 20,000 GPUs 12 intervals
_MIN_INTERVALS, _MAX_INTERVALS = 12, 144  # in a chunk


@dataclass(slots=True)
class PullResult:
    """The result of a pull.

    Attributes
    ----------
    start, end : int
        End of the first interval, and a time after the last one, nanoseconds since 1970 UTC.
    landed : LandingCounts
        Of all chunks.
    unread : Unread
    machines : MachineLabels
    intervals : int
        In a chunk.
    parts : set of (str, str)
        GPUs that have only series of MIG instances, which are joined.
    nameless : set of str
        GPUs without a label that names the machine.
    """

    start: int
    end: int
    landed: LandingCounts = field(default_factory=LandingCounts)
    unread: Unread = field(default_factory=Unread)
    machines: MachineLabels = field(default_factory=MachineLabels)
    intervals: int = _MIN_INTERVALS
    parts: set[tuple[str, str]] = field(default_factory=set)
    nameless: set[str] = field(default_factory=set)

    def add_chunk(self, chunk: DcgmChunk) -> None:
        """Add the result of a chunk."""
        self.unread.join(chunk.unread)
        self.parts |= chunk.parts
        self.nameless |= chunk.nameless


def pull(server: PrometheusClient, landing: Landing, *, start: int | None, end: int) -> PullResult:
    """Pull all intervals that end in [start, end] and land them chunk by chunk.

    The progress is stored after each chunk, so that the next call continues there.

    Parameters
    ----------
    server : PrometheusClient
    landing : Landing
    start : int or None
        Nanoseconds since 1970 UTC. None continues after the last pulled interval, limited to the
        default retention of Prometheus.
    end : int

    Raises
    ------
    PrometheusError
        If the server cannot be queried.
    """
    interval = landing.interval
    mark_file = landing.folder / "_state" / f"prometheus-{_short(server.url)}.json"
    _adopt_mark(mark_file, server.url)
    mark = _mark(mark_file)
    done = int(mark.get("done", 0)) if start is None else 0
    begin = end - _DEFAULT_RETENTION if start is None else start
    first = max(-(-begin // interval) * interval, done + interval if done else 0)
    last = end // interval * interval
    pulled = PullResult(first, last)
    if first <= last:
        seen = _observe_labels(server, first, last, interval)
        pulled.machines = _machines(server, landing, first, seen, mark.get("machine_labels"))
        pulled.intervals = _chunk_size(len(seen))
    chosen = pulled.machines.chosen
    mark = {"url": server.url} | ({"machine_labels": dict(chosen)} if chosen else {})
    with progress_bar(max(0, (last - first) // interval + 1), "prometheus", "interval") as bar:
        while first <= last:
            upto = _pull_chunk(server, landing, first, last, pulled)
            with replacing(mark_file) as path:
                path.write_text(json.dumps(mark | {"done": upto}), encoding="utf-8")
            bar.update((upto - first) // interval + 1)
            first = upto + interval
    return pulled


def _short(url: str) -> str:
    return hashlib.sha256(url.rstrip("/").encode()).hexdigest()[:12]


def _adopt_mark(mark_file: Path, url: str) -> None:
    """Rename the progress file of older releases, whose address had user and password."""
    for old in sorted(mark_file.parent.glob("prometheus-*.json")):
        try:
            mark = json.loads(old.read_text(encoding="utf-8"))
            bare = strip_credentials(mark["url"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if bare is not None and bare.rstrip("/") == url.rstrip("/"):
            if not mark_file.exists():
                with replacing(mark_file) as path:
                    path.write_text(json.dumps(mark | {"url": url}), encoding="utf-8")
            old.unlink()


def _mark(mark_file: Path) -> dict[str, Any]:
    """Return the stored progress; empty if it is missing or unreadable."""
    try:
        mark = json.loads(mark_file.read_text(encoding="utf-8"))
        return {"done": int(mark["done"]), "machine_labels": dict(mark.get("machine_labels", {}))}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        note(f"{mark_file}: holds no progress that can be read; starting again")
        return {}


def _machines(
    server: PrometheusClient,
    landing: Landing,
    first: int,
    seen: list[LabelObservation],
    before: dict[str, str] | None,
) -> MachineLabels:
    """Choose the labels that name machines, by past and requested intervals."""
    interval = landing.interval
    past = _observe_labels(server, first - _LABEL_HISTORY, first - interval, interval)
    machines = choose_labels([*past, *seen], landing.cmdb.machine_names, before)
    for reason in machines.reasons:
        note(f"{server.url}: {reason}")
    return machines


def _observe_labels(
    server: PrometheusClient, first: int, last: int, interval: int
) -> list[LabelObservation]:
    """Observe labels at some of the intervals, at fewer if the query is too large."""
    for n_points in (_MAX_SAMPLED_INTERVALS, _MAX_SAMPLED_INTERVALS // 4, 1):
        step = max(interval, (last - first) // n_points // interval * interval)
        try:
            return observe_labels(server, first, last, step, interval)
        except QueryTooLargeError:
            continue
    return []


def _pull_chunk(
    server: PrometheusClient, landing: Landing, first: int, last: int, pulled: PullResult
) -> int:
    """Land the next intervals, fewer if the query is too large; return the last one."""
    size = pulled.intervals
    while True:
        upto = min(last, first + (size - 1) * landing.interval)
        chunk = DcgmChunk(server, pulled.machines, first, upto, landing.interval)
        try:
            chunk.query()
            ports = PortChunk(server, pulled.machines, first, upto, landing.interval)
            rows = list(chunk.readings()), [*chunk.events(), *ports.events()]
            break
        except QueryTooLargeError:
            if size == 1:
                raise PrometheusError(
                    f"{server.url}: rejects a query of a single interval as too large, "
                    "expected a server with a larger --query.max-samples."
                ) from None
            size //= 2
    pulled.add_chunk(chunk)
    pulled.unread.join(ports.unread)
    try:
        tables = build_table(rows[0], READINGS), build_table(rows[1], EVENTS)
    except TableError as error:
        raise PrometheusError(f"{server.url}: {error}.") from None
    pulled.landed.join(landing.land(*tables))
    return upto


def _chunk_size(n_series: int) -> int:
    """Return the intervals of a chunk: a small fleet is read in fewer and longer queries.

    Examples
    --------
    >>> _chunk_size(96), _chunk_size(4000), _chunk_size(20_000), _chunk_size(0)
    (144, 60, 12, 12)
    """
    if not n_series:
        return _MIN_INTERVALS
    return max(_MIN_INTERVALS, min(_MAX_INTERVALS, _MAX_VALUES // n_series))
