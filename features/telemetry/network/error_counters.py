"""Error counters of network ports: names, severities, and the events of their increases.

Names and meaning: the kernel's `/sys/class/infiniband/*/ports/*/{counters,hw_counters}`, the
statistics of `ethtool -S` (mlx5), `perfquery`, and what node_exporter makes of them.
"""

from __future__ import annotations

import re
from typing import Any

from forewarn.features.telemetry.checks.check_result import CheckSeverity
from forewarn.features.telemetry.parsers.kernel_event import MAX_COUNT
from forewarn.features.telemetry.telemetry_rows import event_id

__all__ = [
    "ACTIVE",
    "HARDWARE_COUNTERS",
    "PORT_COUNTERS",
    "PORT_METRICS",
    "PORT_STATE",
    "STATE_METRIC",
    "counter_name",
    "counter_row",
    "is_physical",
    "port_name",
    "saturated_at",
    "state_row",
]

PORT_STATE, ACTIVE = "port_state", 4  # the states of a port: 1 down, 2 init, 3 armed, 4 active
STATE_METRIC = "node_infiniband_state_id"
# By the name that sysfs or ethtool has.
PORT_COUNTERS: dict[str, CheckSeverity] = {
    "link_downed": "warning",
    "carrier_down_count": "warning",
    "link_down_events_phy": "warning",
    "link_error_recovery": "warning",
    "req_transport_retries_exceeded": "warning",
    "tx_pause_storm_error_events": "warning",
    "local_link_integrity_errors": "notice",
    "excessive_buffer_overrun_errors": "notice",
    "symbol_error": "notice",
    "port_rcv_errors": "notice",
    "port_rcv_remote_physical_errors": "notice",
    "port_xmit_discards": "notice",
    "local_ack_timeout_err": "notice",
    "packet_seq_err": "notice",
    "rx_crc_errors": "notice",
    "rx_crc_errors_phy": "notice",
    "rx_symbol_err_phy": "notice",
}
# Those below `hw_counters`, where an agent reads only files that have a meaning here.
HARDWARE_COUNTERS = ("req_transport_retries_exceeded", "local_ack_timeout_err", "packet_seq_err")
# Names of node_exporter that differ from those of sysfs, without `node_` and `_total`.
_EXPORTER_NAMES = {
    "network_carrier_down_changes": "carrier_down_count",
    "infiniband_port_errors_received": "port_rcv_errors",
    "infiniband_port_receive_remote_physical_errors": "port_rcv_remote_physical_errors",
    "infiniband_port_discards_transmitted": "port_xmit_discards",
}
_PERFQUERY_NAMES = {
    "SymbolErrorCounter": "symbol_error",
    "LinkErrorRecoveryCounter": "link_error_recovery",
    "LinkDownedCounter": "link_downed",
    "PortRcvErrors": "port_rcv_errors",
    "PortRcvRemotePhysicalErrors": "port_rcv_remote_physical_errors",
    "PortXmitDiscards": "port_xmit_discards",
    "LocalLinkIntegrityErrors": "local_link_integrity_errors",
    "ExcessiveBufferOverrunErrors": "excessive_buffer_overrun_errors",
}
# For PromQL; an exporter of ethtool calls `rx_` and `tx_` received and transmitted.
PORT_METRICS = (
    "node_(infiniband|ethtool|net_ethtool|network)_?"
    "(link_downed|carrier_down_changes|.*link_down_events_phy|link_error_recovery|"
    "(.*_)?req_transport_retries_exceeded|.*pause_storm_error_events|local_link_integrity_errors|"
    "excessive_buffer_overrun_errors|symbol_error|port_errors_received|"
    "port_receive_remote_physical_errors|port_discards_transmitted|(.*_)?local_ack_timeout_err|"
    "(.*_)?packet_seq_err|.*crc_errors(_phy)?|.*symbol_err_phy)?(_total)?"
)
# Counters of the port's management agent stop at their largest value (InfiniBand, 16.1.3.5).
_NARROW = {"link_downed": 255, "link_error_recovery": 255}
_NIBBLES = ("local_link_integrity_errors", "excessive_buffer_overrun_errors")
# Devices of containers and of the host alone, which come and go.
_VIRTUAL = re.compile(r"lo|(?:veth|docker|br-|virbr|cali|cni|flannel|tunl|lxc|tap|dummy).*")
# A bond and a VLAN have no cable of their own.
_STACKED = re.compile(r"(?:bond|team|vlan)\w*|.+\.\d+")


def counter_name(text: str) -> str | None:
    """Return our name of a counter of sysfs, ethtool, perfquery or node_exporter.

    Examples
    --------
    >>> counter_name("node_infiniband_port_errors_received_total"), counter_name("rx_bytes")
    ('port_rcv_errors', None)
    >>> counter_name("node_ethtool_received_crc_errors_phy")
    'rx_crc_errors_phy'
    """
    name = text.removesuffix("_total").removeprefix("node_")
    name = _EXPORTER_NAMES.get(name) or _PERFQUERY_NAMES.get(name) or name
    name = name.removeprefix("infiniband_").removeprefix("ethtool_")
    name = re.sub(r"^received_", "rx_", re.sub(r"^transmitted_", "tx_", name))
    return name if name in PORT_COUNTERS else None


def is_physical(device: str) -> bool:
    """Tell whether a network device has a port of its own."""
    return bool(device) and not (_VIRTUAL.fullmatch(device) or _STACKED.fullmatch(device))


def port_name(labels: dict[str, str]) -> str:
    """Return the port that labels of node_exporter name, such as `mlx5_0/1`."""
    device, port = labels.get("device", ""), labels.get("port")
    return f"{device}/{port}" if port else device


def saturated_at(name: str, value: int) -> bool:
    """Tell whether a counter stands at its largest value, so that it cannot rise.

    Examples
    --------
    >>> saturated_at("link_downed", 255), saturated_at("symbol_error", 255)
    (True, False)
    """
    if name in _NIBBLES:
        return value == 15
    return value in (_NARROW.get(name, 65_535), 2**32 - 1)


def counter_row(
    host: str | None, port: str, name: str, time: int, count: int
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
    count : int
        The increase; below 0 after a reset.

    Examples
    --------
    >>> counter_row("node-1", "mlx5_0/1", "link_downed", 5, 1)["severity"]
    'warning'
    """
    if count <= 0:
        return None
    raw = f"{name} of port {port} rose by {count}"
    return _row(host, port, name, time, PORT_COUNTERS[name], raw) | {"count": min(count, MAX_COUNT)}


def state_row(host: str | None, port: str, time: int, before: int, after: int) -> dict[str, Any]:
    """Return the row of EVENTS of a port that was active and no longer is; empty otherwise."""
    if before != ACTIVE or after == ACTIVE:
        return {}
    raw = f"port {port} was active and is in state {after}"
    return _row(host, port, PORT_STATE, time, "warning", raw) | {"count": 1}


def _row(
    host: str | None, port: str, name: str, time: int, severity: CheckSeverity, raw: str
) -> dict[str, Any]:
    row = {
        "timestamp": time,
        "machine_id": host,
        "id": event_id(host, "port counter", port, name, time),
        "kind": "nic_error",
        "check": f"{name} {port}",
        "severity": severity,
        "raw": raw,
    }
    return {key: value for key, value in row.items() if value is not None}
