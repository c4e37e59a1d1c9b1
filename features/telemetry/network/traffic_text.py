"""Series in texts of exporters, sysfs, `ethtool -S` and `perfquery`, named as exporters do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from forewarn.features.telemetry.network.counter_text import counter_sections

__all__ = ["parse_series"]

_SAMPLE = re.compile(
    r"^[ \t]*(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})? +(?P<value>[-+.\deE]+)"
    r"(?: +(?P<time>\d{9,16}(?:\.\d+)?))?[ \t\r]*$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_SYSFS = re.compile(
    r"^(?:==> )?\S*/infiniband/(?P<device>[\w.-]+)/ports/(?P<port>\d+)/(?:hw_)?counters/"
    r"(?P<name>\w+)(?: <==\n|:[ \t]*)(?P<value>\d+)[ \t\r]*$",
    re.MULTILINE,
)
_TRANSMITTED = "node_infiniband_port_data_transmitted_bytes_total"
_WORD_BYTES = 4  # a port counts words
_MILLISECONDS = 10**11  # larger times are milliseconds


def parse_series(
    text: str, file_name: str = ""
) -> Iterator[tuple[Mapping[str, str], float, float | None]]:
    """Yield labels with `__name__`, value, and the time (s) if the text has one.

    Examples
    --------
    >>> text = "/sys/class/infiniband/mlx5_0/ports/1/counters/port_xmit_data:5"
    >>> [(labels["device"], value) for labels, value, _ in parse_series(text)]
    [('mlx5_0', 20.0)]
    """
    for match in _SAMPLE.finditer(text):
        labels = {"__name__": match["name"], **dict(_LABEL.findall(match["labels"] or ""))}
        time = float(match["time"]) if match["time"] else None
        if time is not None and time > _MILLISECONDS:
            time /= 1000.0
        try:
            yield labels, float(match["value"]), time
        except ValueError:
            continue
    for match in _SYSFS.finditer(text):
        labels = {"device": match["device"], "port": match["port"]}
        yield _series(match["name"], labels, int(match["value"]))
    for port, name, value in counter_sections(text, file_name):
        if port is not None:
            yield _series(name, {"device": port}, value)


def _series(
    name: str, labels: Mapping[str, str], value: int
) -> tuple[Mapping[str, str], float, None]:
    """Return a counter of the kernel or of perfquery as node_exporter calls it."""
    if name in ("port_xmit_data", "PortXmitData"):
        return {"__name__": _TRANSMITTED, **labels}, float(value * _WORD_BYTES), None
    return {"__name__": name, **labels}, float(value), None
