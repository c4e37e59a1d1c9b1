"""What Prometheus says: the text of an exporter, and answers of its HTTP API."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from prometheus_client.parser import text_fd_to_metric_families

from forewarn.features.telemetry.parsers.dcgm import BLANK, metric_of
from forewarn.features.telemetry.parsers.reading import GpuReading, Unread, pci_address

__all__ = [
    "GpuLabels",
    "Series",
    "gpu_labels",
    "parse_matrix",
    "parse_metrics",
    "why_not_whole",
]

_HOST = ("Hostname", "hostname", "instance_hostname", "node")
_SERIAL = ("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BOARD_SERIAL", "serial")
_UUID = ("UUID", "uuid", "gpu_uuid")
_TYPE = ("modelName", "model_name")
_DRIVER = ("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION", "driver_version")


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """Which GPU a series is about, whatever the exporter calls it."""

    serial: str | None = None
    uuid: str | None = None
    host: str | None = None
    slot: int | None = None
    pci: str | None = None
    gpu_type: str | None = None
    driver_version: str | None = None
    instance: bool = False


def gpu_labels(labels: Mapping[str, str]) -> GpuLabels:
    """Read the labels of dcgm-exporter; `instance` marks a series of a part of a MIG GPU.

    Examples
    --------
    >>> gpu_labels({"gpu": "3", "UUID": "GPU-1", "hostname": "n1"}).slot
    3
    """

    def first(names: tuple[str, ...]) -> str | None:
        return next((labels[name] for name in names if labels.get(name)), None)

    slot = labels.get("gpu", "")
    return GpuLabels(
        serial=first(_SERIAL),
        uuid=first(_UUID),
        host=first(_HOST),
        slot=int(slot) if re.fullmatch("[0-9]{1,4}", slot) else None,
        pci=pci_address(labels.get("pci_bus_id", "")),
        gpu_type=first(_TYPE),
        driver_version=first(_DRIVER),
        instance=bool(labels.get("GPU_I_ID")),
    )


@dataclass(slots=True)
class _Gpu:
    labels: GpuLabels
    parts: dict[str, dict[int, float]] = field(default_factory=dict)

    def reading(self) -> GpuReading:
        numbers = {
            column: math.fsum(parts.values())
            for column, parts in self.parts.items()
            if column != "rows_remapped" or len(parts) == 2
        }
        texts = {
            "gpu_type": self.labels.gpu_type,
            "driver_version": self.labels.driver_version,
        }
        return GpuReading(
            numbers=numbers,
            texts={name: text for name, text in texts.items() if text},
            serial=self.labels.serial,
            uuid=self.labels.uuid,
            pci=self.labels.pci,
            slot=self.labels.slot,
            host=self.labels.host,
        )


def parse_metrics(text: str) -> tuple[list[GpuReading], Unread]:
    r"""Read every GPU of what dcgm-exporter answers.

    The Xid of the gauge is not read: it shows the last one ever, and says nothing of when.

    Examples
    --------
    >>> readings, unread = parse_metrics('DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-1"} 41\n')
    >>> readings[0].numbers, bool(unread)
    ({'temperature_gpu': 41.0}, False)
    """
    gpus: dict[tuple[str | None, ...], _Gpu] = {}
    unread = Unread()
    for name, labels, value in _samples(text, unread):
        known = metric_of(name)
        if known is None or known[0] == "xid":
            continue
        gpu = gpu_labels(labels)
        if gpu.instance:
            continue
        if gpu.uuid is None and gpu.serial is None and gpu.slot is None:
            unread.add("a metric that names no GPU", name)
        elif math.isfinite(value) and abs(value) < BLANK:
            collected = gpus.setdefault((gpu.host, gpu.uuid, gpu.serial, str(gpu.slot)), _Gpu(gpu))
            collected.parts.setdefault(known[0], {})[known[1]] = value
    return [gpu.reading() for gpu in gpus.values()], unread


def _samples(text: str, unread: Unread) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """Yield the samples, line by line, so that a broken one costs no other."""
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            families = list(text_fd_to_metric_families(StringIO(line + "\n")))
        except (ValueError, IndexError, KeyError):
            unread.add("a line that is no sample", line)
            continue
        for family in families:
            for sample in family.samples:
                yield sample.name, sample.labels, float(sample.value)


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: whose it is, and its times (s since 1970) and values."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


def why_not_whole(answer: Any) -> str | None:
    """Return what a query got instead of a whole matrix, None if it got one.

    Whoever takes a part for the whole never asks for the rest.

    Examples
    --------
    >>> print(why_not_whole({"status": "error", "error": "query timed out"}))
    status 'error' (query timed out)
    """
    if not isinstance(answer, dict):
        return "no object"
    if answer.get("status") != "success":
        reason = str(answer.get("error", "without a reason"))
        return f"status {str(answer.get('status'))[:40]!r} ({' '.join(reason.split())[:200]})"
    data = answer.get("data")
    if not isinstance(data, dict) or not isinstance(data.get("result"), list):
        return "no data"
    if data.get("resultType") != "matrix":
        return f"a result of type {str(data.get('resultType'))[:40]!r}"
    if warnings := answer.get("warnings"):
        return f"a part, with warnings ({' '.join(str(warnings).split())[:200]})"
    partial = answer.get("isPartial") or data.get("isPartial")
    return "a part (`isPartial`)" if partial else None


def parse_matrix(answer: Any, blank: float = BLANK) -> tuple[list[Series], Unread]:
    """Read the answer to a range query, as JSON was decoded.

    Blank and infinite values are left out. What is no such answer is unread.

    Parameters
    ----------
    answer : Any
    blank : float
        From it on a value says that there is none. Counters of bytes reach what blank gauges show
        within an hour.

    Examples
    --------
    >>> data = {"resultType": "matrix", "result": [{"metric": {}, "values": [[60, "1.5"]]}]}
    >>> parse_matrix({"status": "success", "data": data})[0][0].values
    (1.5,)
    """
    unread = Unread()
    data = answer.get("data") if isinstance(answer, dict) else None
    result = data.get("result") if isinstance(data, dict) else None
    if data is None or not isinstance(result, list) or data.get("resultType") != "matrix":
        unread.add("an answer that is no matrix", str(answer))
        return [], unread
    return [
        series
        for answer_series in result
        if (series := _series(answer_series, unread, blank)) is not None
    ], unread


def _series(entry: Any, unread: Unread, blank: float) -> Series | None:
    try:
        labels = {str(name): str(text) for name, text in entry["metric"].items()}
        pairs = [(float(time), float(value)) for time, value in entry["values"]]
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        unread.add("a series that cannot be read", str(entry))
        return None
    samples = [(t, v) for t, v in pairs if math.isfinite(t) and math.isfinite(v) and abs(v) < blank]
    return Series(labels, tuple(t for t, _ in samples), tuple(v for _, v in samples))
