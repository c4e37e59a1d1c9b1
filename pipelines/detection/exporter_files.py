"""Series in files of hosts, asked like a Prometheus server."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forewarn.features.detection.exporter_series import METRIC_SERIES
from forewarn.features.errors import InputError
from forewarn.features.telemetry.network.traffic_text import parse_series
from forewarn.features.time_units import SECOND
from forewarn.pipelines.ingest.host_file_ingest import read_host_texts
from forewarn.pipelines.runtime.progress import note

__all__ = ["ExporterFiles"]

_MATCHER = re.compile(r'(?P<label>\w+)(?P<way>=~|!~|!=|=)"(?P<text>(?:[^"\\]|\\.)*)"')
_MACHINE = "node"  # label that a folder or a file name fills


class ExporterFilesError(InputError):
    """A folder without samples."""


@dataclass(slots=True)
class ExporterFiles:
    """The samples of a folder, with the query of `PrometheusClient` that detection uses.

    Attributes
    ----------
    folder : Path
        Files of exporters, or outputs of tools, with the host as folder or in the name.
    """

    folder: Path
    _samples: dict[frozenset[tuple[str, str]], dict[float, float]] = field(init=False)

    def __post_init__(self) -> None:
        known = re.compile("|".join(f"(?:{s.names})" for m in METRIC_SERIES.values() for s in m))
        self._samples = defaultdict(dict)
        timeless = 0
        for host, file in read_host_texts(self.folder):
            of_file = {} if host is None else {_MACHINE: host}
            for labels, value, at in parse_series(file.text, file.name):
                if not known.fullmatch(labels["__name__"]):
                    continue
                time = at if at is not None else file.time and file.time / SECOND
                if time is None:
                    timeless += 1
                else:
                    self._samples[frozenset((of_file | dict(labels)).items())][time] = value
        if timeless:
            note(f"{self.folder}: {timeless} samples have no time, also not in the file name")
        if not self._samples:
            raise ExporterFilesError(
                f"{self.folder}: holds no series of a metric, expected text of node_exporter or "
                "dcgm-exporter, or outputs of sysfs or `ethtool -S`, with a time in the file name."
            )

    @property
    def url(self) -> str:
        """Return the folder, for messages."""
        return str(self.folder)

    @property
    def times(self) -> tuple[int, int]:
        """Return the times of the first and the last sample, nanoseconds since 1970 UTC."""
        times = [time for series in self._samples.values() for time in (min(series), max(series))]
        return round(min(times) * SECOND), round(max(times) * SECOND)

    def samples(self, selector: str, end: int, span: int) -> Any:
        """Return the samples in (end - span, end], as `PrometheusClient.samples`."""
        matchers = [(m["label"], m["way"], m["text"]) for m in _MATCHER.finditer(selector)]
        if not selector.startswith("{"):
            matchers.append(("__name__", "=", selector.partition("{")[0]))
        first, last = (end - span) / SECOND, end / SECOND
        result = []
        for key, series in self._samples.items():
            labels = dict(key)
            values = [[t, str(v)] for t, v in sorted(series.items()) if first < t <= last]
            if values and all(_matches(labels, *matcher) for matcher in matchers):
                result.append({"metric": labels, "values": values})
        return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def _matches(labels: Mapping[str, str], label: str, way: str, text: str) -> bool:
    value = labels.get(label, "")
    if "~" in way:
        is_equal = re.fullmatch(text.replace("\\\\", "\\"), value) is not None
    else:
        is_equal = value == text
    return is_equal != way.startswith("!")
