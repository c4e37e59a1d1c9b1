"""Parser of answers of the Prometheus HTTP API, and the GPU that a series describes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forewarn.features.telemetry.ascend.npu_table import npu_type
from forewarn.features.telemetry.parsers.dcgm_metrics import BLANK_THRESHOLD
from forewarn.features.telemetry.parsers.gpu_reading import (
    ZEROS_PATTERN,
    GpuReading,
    Unread,
    parse_pci_address,
)

__all__ = [
    "GPU_LABELS",
    "GPU_PLACE_LABELS",
    "MIG_INSTANCE_LABEL",
    "GpuLabels",
    "Series",
    "exporter_name",
    "incomplete_reason",
    "parse_gpu_labels",
    "parse_matrix",
]

MIG_INSTANCE_LABEL = "GPU_I_ID"  # of a MIG instance
_SERIAL = ("DCGM_FI_DEV_SERIAL", "DCGM_FI_DEV_BOARD_SERIAL", "serial")
_UUID = ("UUID", "uuid", "gpu_uuid", "vdie_id")  # the last one of npu-exporter
_SLOT = ("gpu", "id")
_PCI = ("pci_bus_id", "pcie_bus_info")
_TYPE = ("modelName", "model_name")
_NPU_TYPE = re.compile(r"(?P<name>\w[\w -]*)-Ascend-V\d+")
_DRIVER = ("DCGM_FI_DRIVER_VERSION", "DCGM_FI_SYSTEM_DRIVER_VERSION", "driver_version")
GPU_LABELS = (*_UUID, *_SERIAL)
GPU_PLACE_LABELS = (*_SLOT, *_PCI, *_TYPE, *_DRIVER)


@dataclass(frozen=True, slots=True)
class GpuLabels:
    """The GPU that a series describes, independent of the exporter's label names.

    `part` is the MIG instance of a split GPU.
    """

    serial: str | None = None
    uuid: str | None = None
    slot: int | None = None
    pci: str | None = None
    gpu_type: str | None = None
    driver_version: str | None = None
    part: str | None = None

    @property
    def gpu(self) -> str | None:
        """Return the identity of the GPU; several GPUs of a board share one serial."""
        return self.uuid or self.serial

    @property
    def texts(self) -> dict[str, str]:
        """Return type and driver version, if the series names them."""
        texts = {"gpu_type": self.gpu_type, "driver_version": self.driver_version}
        return {name: text for name, text in texts.items() if text}

    def reading(
        self, numbers: Mapping[str, float], time: int | None = None, host: str | None = None
    ) -> GpuReading:
        """Return a reading of this GPU."""
        return GpuReading(
            numbers=numbers,
            texts=self.texts,
            serial=self.serial,
            uuid=self.uuid,
            pci=self.pci,
            slot=self.slot,
            time=time,
            host=host,
        )


def parse_gpu_labels(labels: Mapping[str, str]) -> GpuLabels:
    """Read the labels of dcgm-exporter or npu-exporter.

    Examples
    --------
    >>> parse_gpu_labels({"gpu": "3", "UUID": "GPU-1", "hostname": "n1"}).slot
    3
    """

    def first(names: tuple[str, ...]) -> str | None:
        return next((labels[name] for name in names if labels.get(name)), None)

    slot, gpu_type = first(_SLOT) or "", first(_TYPE)
    if npu := _NPU_TYPE.fullmatch(gpu_type or ""):
        gpu_type = npu_type(npu["name"])
    return GpuLabels(
        serial=_named(first(_SERIAL)),
        uuid=_named(first(_UUID)),
        slot=int(slot) if re.fullmatch("[0-9]{1,4}", slot) else None,
        pci=parse_pci_address(first(_PCI) or ""),
        gpu_type=gpu_type,
        driver_version=first(_DRIVER),
        part=labels.get(MIG_INSTANCE_LABEL) or None,
    )


def _named(text: str | None) -> str | None:
    return None if text is None or re.fullmatch(ZEROS_PATTERN, text) else text


def exporter_name(labels: Mapping[str, str]) -> str:
    """Return the exporter that a series was scraped from."""
    return f"{labels.get('job', '')} {labels.get('instance', '')}"


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels, times (s since 1970) and values."""

    labels: Mapping[str, str]
    times: tuple[float, ...]
    values: tuple[float, ...]


def incomplete_reason(answer: Any) -> str | None:
    """Return why an answer is not a complete matrix; None if it is one.

    An incomplete answer must not be used, because the rest would never be requested.

    Examples
    --------
    >>> print(incomplete_reason({"status": "error", "error": "query timed out"}))
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


def parse_matrix(answer: Any, blank: float = BLANK_THRESHOLD) -> tuple[list[Series], Unread]:
    """Read the decoded JSON answer to a range query.

    Blank and infinite values are skipped. Other answers are counted as unread.

    Parameters
    ----------
    answer : Any
    blank : float
        Values from here on are blank. Counters of bytes reach the blank value of gauges within an
        hour.

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
        unread.add("an answer that is not a matrix", str(answer))
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
