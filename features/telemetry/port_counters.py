"""Error counters of network ports, from text of node_exporter or listings of sysfs, as events.

Names and meaning: node_exporter's collectors `infiniband` and `netclass`, and the kernel's
`/sys/class/infiniband/*/ports/*/counters`. A counter in one file says nothing; its increase from
one file to the next is an event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from forewarn.features.telemetry.checks.check_result import CheckSeverity
from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.parsers.kernel_event import MAX_COUNT
from forewarn.features.telemetry.telemetry_rows import event_id

__all__ = ["PORT_COUNTERS", "counter_row", "read_port_counters"]

# By the name that sysfs has: severity, and the name that node_exporter has without `node_`.
PORT_COUNTERS: dict[str, tuple[CheckSeverity, str]] = {
    "link_downed": ("warning", "infiniband_link_downed_total"),
    "carrier_down_count": ("warning", "network_carrier_down_changes_total"),
    "link_error_recovery": ("warning", "infiniband_link_error_recovery_total"),
    "local_link_integrity_errors": ("notice", "infiniband_local_link_integrity_errors_total"),
    "excessive_buffer_overrun_errors": (
        "notice",
        "infiniband_excessive_buffer_overrun_errors_total",
    ),
    "symbol_error": ("notice", "infiniband_symbol_error_total"),
    "port_rcv_errors": ("notice", "infiniband_port_errors_received_total"),
    "port_xmit_discards": ("notice", "infiniband_port_discards_transmitted_total"),
}
_BY_METRIC = {metric: name for name, (_, metric) in PORT_COUNTERS.items()}
_METRIC = re.compile(
    r"^node_(?P<metric>(?:infiniband|network)_\w+)\{(?P<labels>[^}\n]*)\} (?P<value>[\d.eE+]+)"
    r"(?: \d+)?$",
    re.MULTILINE,
)
_SYSFS = re.compile(
    r"^\S*/infiniband/(?P<device>[\w.-]+)/ports/(?P<port>\d+)/counters/(?P<name>\w+):(?P<value>\d+)$",
    re.MULTILINE,
)
_LABEL = re.compile(r'(\w+)="([^"]*)"')
# Devices of containers and of the host alone, which come and go.
_VIRTUAL = re.compile(r"lo|(?:veth|docker|br-|virbr|cali|cni|flannel|tunl|lxc|tap|dummy).*")


@dataclass(frozen=True, slots=True)
class _Sample:
    time: int
    value: int
    file: HostFileText


def read_port_counters(
    dropped: HostFileRows, host: str | None, files: Sequence[HostFileText]
) -> None:
    """Add an event for each increase of an error counter from one file of a host to the next.

    Parameters
    ----------
    dropped : HostFileRows
        Updated in place.
    host : str or None
    files : sequence of HostFileText
        Files without a time in their name are counted as unread.
    """
    samples: dict[tuple[str, str], list[_Sample]] = {}
    for file in files:
        if file.time is None:
            dropped.unread.add("counters of ports without a time in the file name", file.name)
            continue
        for port, name, value in _counters(file.text):
            samples.setdefault((port, name), []).append(_Sample(file.time, value, file))
    for (port, name), series in samples.items():
        series.sort(key=lambda sample: sample.time)
        for before, after in pairwise(series):
            values = (before.value, after.value)
            if row := counter_row(host, port, name, after.time, values):
                dropped.add_event(row | {"known_at": after.time}, after.file)


def _counters(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield port, counter and value."""
    for match in _SYSFS.finditer(text):
        if match["name"] in PORT_COUNTERS:
            yield f"{match['device']}/{match['port']}", match["name"], int(match["value"])
    for match in _METRIC.finditer(text):
        labels = dict(_LABEL.findall(match["labels"]))
        device, name = labels.get("device", ""), _BY_METRIC.get(match["metric"])
        if name is not None and device and not _VIRTUAL.fullmatch(device):
            port = f"{device}/{labels['port']}" if "port" in labels else device
            yield port, name, int(float(match["value"]))


def counter_row(
    host: str | None, port: str, name: str, time: int, values: tuple[int, int]
) -> dict[str, Any] | None:
    """Return the row of EVENTS of a counter that rose; None if it did not.

    Parameters
    ----------
    host : str or None
    port : str
        Device and number, such as `mlx5_0/1`.
    name : str
        One of PORT_COUNTERS.
    time : int
        Nanoseconds since 1970 UTC, of the later value.
    values : tuple of int
        The earlier and the later value; a fall is a reset.

    Examples
    --------
    >>> counter_row("node-1", "mlx5_0/1", "link_downed", 5, (2, 3))["severity"]
    'warning'
    """
    count = values[1] - values[0]
    if count <= 0:
        return None
    row = {
        "timestamp": time,
        "machine_id": host,
        "id": event_id(host, "port counter", port, name, time),
        "kind": "nic_error",
        "check": f"{name} {port}",
        "severity": PORT_COUNTERS[name][0],
        "count": min(count, MAX_COUNT),
        "raw": f"{name} of port {port} rose by {count} to {values[1]}",
    }
    return {key: value for key, value in row.items() if value is not None}
