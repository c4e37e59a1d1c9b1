"""Reader of dcgm-exporter metrics among the files of a host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from forewarn.features.telemetry.exporter_events import exporter_events
from forewarn.features.telemetry.gauge_events import Sample
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.parsers.exporter_text import StateSample, parse_metrics
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.features.telemetry.parsers.prometheus_answers import GpuLabels
from forewarn.features.telemetry.telemetry_rows import HostState, reading_row

__all__ = ["read_exporter_files"]


@dataclass(slots=True)
class _GpuStates:
    """The state samples of a GPU from all files, with its last file."""

    labels: GpuLabels
    host: str | None
    file: HostFileText
    samples: dict[str, list[Sample]] = field(default_factory=lambda: defaultdict(list))


def read_exporter_files(
    dropped: HostFileRows,
    host: str | None,
    files: Sequence[HostFileText],
    covered: Sequence[tuple[int, int]],
) -> None:
    """Add the readings of all files and the events that they show together.

    Parameters
    ----------
    dropped : HostFileRows
        Updated in place.
    host : str or None
        Name from the folder or the file; None if only the labels name a host. Labels that name
        several machines take precedence.
    files : sequence of HostFileText
    covered : sequence of (int, int)
        Spans covered by a kernel log; without an Xid in the log there was none.
    """
    gpus: dict[tuple[str | None, ...], _GpuStates] = {}
    for file in files:
        parsed = parse_metrics(file.text)
        dropped.unread.join(parsed.unread)
        # One exporter serves one machine; several machines mean federated metrics.
        federated = len({reading.host for reading in parsed.readings if reading.host}) > 1
        folder_host = None if federated else host
        for reading in parsed.readings:
            _add_reading(dropped, reading, folder_host or reading.host, file, covered)
        last = max((sample.scrape for sample in parsed.states), default=0)
        for sample in parsed.states:
            time = sample.time
            if time is None and file.time is not None:
                time = file.time - (last - sample.scrape)  # the order of scrapes as nanoseconds
            if time is not None:
                _collect(gpus, sample, time, folder_host, file)
    for gpu in gpus.values():
        counted = {
            int(state.removeprefix("xid ")): samples
            for state, samples in gpu.samples.items()
            if state.startswith("xid ")
        }
        for row in exporter_events(gpu.labels, gpu.host, gpu.samples, counted):
            dropped.add_event(row | {"known_at": row["timestamp"]}, gpu.file)


def _add_reading(
    dropped: HostFileRows,
    reading: GpuReading,
    machine: str | None,
    file: HostFileText,
    covered: Sequence[tuple[int, int]],
) -> None:
    time = file.time if reading.time is None else reading.time
    if time is None:
        why = "a reading without a time, in the content or the file name"
        dropped.unread.add(why, file.name)
        return
    logged = any(first <= time <= last for first, last in covered)
    dropped.add_reading(reading_row(reading, HostState(machine, time, log_read=logged)), file)


def _collect(
    gpus: dict[tuple[str | None, ...], _GpuStates],
    sample: StateSample,
    time: int,
    host: str | None,
    file: HostFileText,
) -> None:
    machine, labels = host or sample.host, sample.labels
    key = (machine, labels.gpu, None if labels.gpu else str(labels.slot))
    gpu = gpus.setdefault(key, _GpuStates(labels, machine, file))
    gpu.samples[sample.state].append((time, sample.exporter, sample.value))
