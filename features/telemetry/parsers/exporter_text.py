"""Parser of text of dcgm-exporter or npu-exporter: one scrape, several, or federated metrics."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from statistics import fmean

from prometheus_client.parser import text_fd_to_metric_families

from forewarn.features.telemetry.parsers.dcgm_metrics import (
    BLANK_THRESHOLD,
    FAULT_CODE,
    METRICS,
    NPU_HEALTH_METRIC,
    XID_COUNT_METRIC,
    Metric,
    metric_of,
    throttled_by_hardware,
)
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread
from forewarn.features.telemetry.parsers.machine_label import (
    LabelObservation,
    choose_labels,
)
from forewarn.features.telemetry.parsers.prometheus_answers import (
    GpuLabels,
    exporter_name,
    parse_gpu_labels,
)

__all__ = ["PARTS_JOINED", "ExporterText", "StateSample", "parse_metrics"]

# A note in `Unread`; no value is dropped.
PARTS_JOINED = "no series of the whole GPU (MIG); its instances were joined"
_STATE_COLUMNS = ("xid", "recovery_action", "row_remap_failure", FAULT_CODE)
_MAX_SECONDS = 10**11  # larger times are milliseconds, smaller ones (OpenMetrics) seconds


@dataclass(frozen=True, slots=True)
class StateSample:
    """An event or state of a GPU in one scrape.

    Attributes
    ----------
    labels : GpuLabels
    host : str or None
        The machine that the labels name.
    state : str
        `xid`, `recovery_action`, `row_remap_failure` or `fault_code`; `xid CODE` for the count of
        an Xid. A healthy NPU has the fault code 0.
    exporter : str
    value : float
    time : int or None
        Nanoseconds since 1970 if the text has a time.
    scrape : int
        Number of the scrape in the text.
    """

    labels: GpuLabels
    host: str | None
    state: str
    exporter: str
    value: float
    time: int | None
    scrape: int


@dataclass(slots=True)
class ExporterText:
    """The content of exporter text.

    Attributes
    ----------
    readings : list of GpuReading
        Without a time if the text has none; they are then of the last scrape.
    states : list of StateSample
    unread : Unread
    """

    readings: list[GpuReading] = field(default_factory=list)
    states: list[StateSample] = field(default_factory=list)
    unread: Unread = field(default_factory=Unread)


@dataclass(frozen=True, slots=True)
class _Sample:
    name: str
    labels: Mapping[str, str]
    value: float
    time: int | None
    scrape: int


def parse_metrics(text: str) -> ExporterText:
    r"""Read every GPU in the text of an exporter.

    Examples
    --------
    >>> parsed = parse_metrics('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 41\n')
    >>> parsed.readings[0].numbers, bool(parsed.unread)
    ({'temperature_gpu': 41.0}, False)
    """
    parsed = ExporterText()
    samples = list(_samples(text, parsed.unread))
    machines = choose_labels(_label_observations(samples))
    gpus: dict[tuple[str | None, ...], _Gpu] = {}
    for sample in samples:
        labels = parse_gpu_labels(sample.labels)
        if labels.gpu is None and labels.slot is None:
            parsed.unread.add("a metric that names no GPU", sample.name)
        elif math.isfinite(sample.value) and abs(sample.value) < BLANK_THRESHOLD:
            host = machines.machine(sample.labels, labels.gpu)
            parsed.states += _states(sample, labels, host)
            key = (host, labels.gpu, None if labels.gpu else str(labels.slot))
            gpus.setdefault(key, _Gpu(labels, host)).add(sample, labels)
    for gpu in gpus.values():
        parsed.readings += gpu.readings(parsed.unread)
    return parsed


def _label_observations(samples: Sequence[_Sample]) -> Iterator[LabelObservation]:
    for sample in samples:
        labels = parse_gpu_labels(sample.labels)
        if labels.gpu is not None:
            times = (float(sample.time or sample.scrape),)
            yield LabelObservation(labels.gpu, labels.slot, sample.labels, times)


def _states(sample: _Sample, labels: GpuLabels, host: str | None) -> Iterator[StateSample]:
    """Yield the event or state of a sample."""
    known, value = metric_of(sample.name), sample.value
    code = sample.labels.get("xid", "")
    if known is not None and known[0].column in _STATE_COLUMNS:
        state = known[0].column
    elif sample.name == XID_COUNT_METRIC and code.isascii() and code.isdigit() and len(code) < 6:
        state = f"xid {int(code)}"
    elif sample.name == NPU_HEALTH_METRIC and value == 1:
        state, value = FAULT_CODE, 0.0
    else:
        return
    exporter = exporter_name(sample.labels)
    yield StateSample(labels, host, state, exporter, value, sample.time, sample.scrape)


_Moment = tuple[int | None, int]  # a time, or the number of a scrape without a time


@dataclass(slots=True)
class _Gpu:
    """The values of a GPU, by moment, column and part, then by instance and name."""

    labels: GpuLabels
    host: str | None
    values: dict[_Moment, dict[tuple[str, int], dict[tuple[str, int], list[float]]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )

    def add(self, sample: _Sample, labels: GpuLabels) -> None:
        known = metric_of(sample.name)
        if known is not None and known[0].over != "change":
            metric, part, rank = known
            moment = (sample.time, 0 if sample.time is not None else sample.scrape)
            of_column = self.values[moment][metric.column, part]
            of_column[labels.part or "", rank].append(sample.value)

    def readings(self, unread: Unread) -> Iterator[GpuReading]:
        untimed = [scrape for time, scrape in self.values if time is None]
        for (time, scrape), columns in self.values.items():
            if time is None and scrape < max(untimed):
                unread.add("a scrape without a time, followed by another one", str(self.labels.gpu))
                continue
            if columns and all(part for values in columns.values() for part, _ in values):
                unread.add(PARTS_JOINED, str(self.labels.gpu))
            yield self.labels.reading(dict(_numbers(columns)), time, self.host)


def _numbers(
    columns: Mapping[tuple[str, int], Mapping[tuple[str, int], list[float]]],
) -> Iterator[tuple[str, float]]:
    for metric in METRICS:
        parts = [columns.get((metric.column, i)) for i in range(len(metric.names))]
        known = [_joined(metric, part) for part in parts if part]
        if known and (len(known) == len(parts) or not metric.needs_all):
            yield metric.column, math.fsum(known) * metric.scale


def _joined(metric: Metric, values: Mapping[tuple[str, int], list[float]]) -> float:
    """Join values of one metric of a GPU: copies with other labels, two names, MIG instances."""
    instances = {part for part, _ in values}
    chosen = {""} if "" in instances else instances
    rank = min(rank for part, rank in values if part in chosen)
    of_part = [some for (part, at), some in values.items() if part in chosen and at == rank]
    everything = [value for some in of_part for value in some]
    if metric.over == "share":
        return fmean(map(throttled_by_hardware, everything))
    if metric.over != "mean":
        return max(everything)
    means = [fmean(some) for some in of_part]
    return math.fsum(means) if metric.sum_of_instances else fmean(means)


def _samples(text: str, unread: Unread) -> Iterator[_Sample]:
    """Yield the samples of known metrics line by line, so that only invalid lines are lost.

    A repeated series or header starts another scrape.
    """
    seen, scrape = set[object](), 0
    for line in text.splitlines():
        head = tuple(line.split(maxsplit=3)[:3]) if line.lstrip().startswith("#") else None
        samples = list(_samples_of_line(line, scrape, unread)) if head is None else []
        keys = [head] if head else [(s.name, s.time, *sorted(s.labels.items())) for s in samples]
        if seen.intersection(keys):
            seen.clear()
            scrape += 1
        seen.update(keys)
        for name, labels, value, time in ((s.name, s.labels, s.value, s.time) for s in samples):
            if metric_of(name) is not None or name in (XID_COUNT_METRIC, NPU_HEALTH_METRIC):
                yield _Sample(name, labels, value, time, scrape)


def _samples_of_line(line: str, scrape: int, unread: Unread) -> Iterator[_Sample]:
    if not line.strip():
        return
    try:
        families = list(text_fd_to_metric_families(StringIO(line + "\n")))
    except (ValueError, IndexError, KeyError):
        unread.add("a line that is not a sample", line)
        return
    for family in families:
        for sample in family.samples:
            time = _nanoseconds(sample.timestamp)
            yield _Sample(sample.name, sample.labels, float(sample.value), time, scrape)


def _nanoseconds(timestamp: object) -> int | None:
    """Convert a time of the parser, which reads every number as milliseconds."""
    if not isinstance(timestamp, int | float) or not math.isfinite(timestamp) or timestamp <= 0:
        return None
    number = timestamp * 1000
    milliseconds = number if number >= _MAX_SECONDS else number * 1000
    return round(milliseconds) * 1_000_000
