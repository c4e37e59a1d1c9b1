"""Error counters of network ports in host files."""

from __future__ import annotations

import pytest

from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.time_units import MINUTE

FIRST = 1_740_787_200 * 10**9
HEAD = "# HELP go_gc_duration_seconds A summary.\n# TYPE go_gc_duration_seconds summary\n"


def exporter(downs: int, symbols: int, carrier: int = 3) -> str:
    return (
        HEAD
        + f'node_infiniband_link_downed_total{{device="mlx5_2",port="1"}} {downs}\n'
        + f'node_infiniband_symbol_error_total{{device="mlx5_2",port="1"}} {symbols}\n'
        + f'node_network_carrier_down_changes_total{{device="ens9"}} {carrier}\n'
        + f'node_network_carrier_down_changes_total{{device="veth12ab"}} {downs}\n'
        + 'node_infiniband_port_data_received_bytes_total{device="mlx5_2",port="1"} 1.8e+12\n'
    )


def sysfs(downs: int, symbols: int, _: int = 3) -> str:
    counters = "/sys/class/infiniband/mlx5_2/ports/1/counters"
    return (
        f"{counters}/link_downed:{downs}\n{counters}/symbol_error:{symbols}\n"
        f"{counters}/port_xmit_wait:4294967295\n{counters}/VL15_dropped:N/A (no PMA)\n"
    )


def read(*texts: str) -> HostFileRows:
    files = [
        HostFileText(f"ports-{number}", text, FIRST + number * MINUTE)
        for number, text in enumerate(texts)
    ]
    return read_host_files("gpu-7", files)


@pytest.mark.parametrize("form", [exporter, sysfs])
def test_increases_of_counters_are_events(form: type) -> None:
    rows = read(form(4, 10), form(4, 10), form(6, 35))
    assert [(e["check"], e["severity"], e["count"]) for e in rows.events] == [
        ("link_downed mlx5_2/1", "warning", 2),
        ("symbol_error mlx5_2/1", "notice", 25),
    ]
    assert {e["timestamp"] for e in rows.events} == {FIRST + 2 * MINUTE}
    assert {(e["kind"], e["machine_id"]) for e in rows.events} == {("nic_error", "gpu-7")}
    assert not rows.unread


def test_ethernet_ports_have_carrier_losses() -> None:
    (event,) = read(exporter(4, 10, 3), exporter(4, 10, 4)).events
    assert (event["check"], event["severity"]) == ("carrier_down_count ens9", "warning")


@pytest.mark.parametrize("form", [exporter, sysfs])
def test_reset_of_counters_is_no_event(form: type) -> None:
    assert not read(form(4, 10), form(0, 0)).events
    assert not read(form(4, 10)).events  # what it was before is unknown


def test_counters_without_time_are_reported() -> None:
    rows = read_host_files("gpu-7", [HostFileText("ports", exporter(1, 1), None)])
    assert rows.unread.counts == {"counters of ports without a time in the file name": 1}
