"""Every text form of port counters gives the same ports, names and values."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.telemetry.host_files.file_rows import HostFileRows, HostFileText
from forewarn.features.telemetry.host_files.host_files import read_host_files
from forewarn.features.telemetry.network.counter_text import is_counter_text, parse_counters
from forewarn.features.time_units import MINUTE

FIRST = 1_740_787_200 * 10**9
SYSFS = "/sys/devices/pci0000:17/0000:17:01.0/infiniband/mlx5_4/ports/1"
STATISTICS = "NIC statistics:\n     rx_packets: 91\n     link_down_events_phy: {downs}\n"
FORMS = {
    "ethtool after its command": "$ sudo ethtool -S ens9np0\n" + STATISTICS,
    "ethtool after a printed name": "== ens9np0 ==\n" + STATISTICS,
    "grep": SYSFS + "/counters/link_downed:{downs}\n" + SYSFS + "/counters/VL15:N/A (no PMA)\n",
    "tail": f"==> {SYSFS}/counters/link_downed <==\n{{downs}}\n\n",
    "hardware counters": SYSFS + "/hw_counters/packet_seq_err:{downs}\n",
    "interface": "/sys/class/net/ens9np0/carrier_down_count:{downs}\n",
    "perfquery": "# Port extended counters: Lid 90 port 1 (CapMask: 0x5300)\n"
    "PortSelect:......................1\nLinkDownedCounter:...............{downs}\n",
    "perfquery without its first line": "PortSelect:......................2\n"
    "LinkDownedCounter:...............{downs}\n",
    "ethtool of node_exporter": "# TYPE node_ethtool_link_down_events_phy untyped\n"
    'node_ethtool_link_down_events_phy{{device="ens9np0"}} {downs}\n',
    "ethtool exporter": "# HELP node_net_ethtool Ethtool data\n"
    'node_net_ethtool{{device="ens9np0",type="link_down_events_phy"}} {downs}.0\n'
    'node_net_ethtool{{device="ens9np0",type="rx_bytes"}} 8.5e+012\n',
}


def read(*texts: str, names: str = "ports-{}") -> HostFileRows:
    files = [
        HostFileText(names.format(n), text, FIRST + n * MINUTE) for n, text in enumerate(texts)
    ]
    return read_host_files("gpu-7", files)


@pytest.mark.parametrize("form", FORMS)
def test_forms_show_increases(form: str) -> None:
    rows = read(*(FORMS[form].format(downs=downs) for downs in (4, 4, 6)))
    ((check, count),) = [(event["check"], event["count"]) for event in rows.events]
    assert check.split()[1] in {"ens9np0", "mlx5_4/1", "lid", "port"}
    assert count == 2
    assert not rows.unread


@given(st.lists(st.integers(0, 2**33), min_size=1, max_size=12), st.sampled_from(sorted(FORMS)))
def test_no_event_without_increase(values: list[int], form: str) -> None:
    rows = read(*(FORMS[form].format(downs=value) for value in values))
    rises = [b - a for a, b in pairwise(values) if b > a]
    assert len(rows.events) == len(rises)
    assert all(event["count"] > 0 for event in rows.events)


def test_interfaces_of_one_file_stay_apart() -> None:
    text = "ens1\n" + STATISTICS.format(downs=1) + "bond0\n" + STATISTICS.format(downs=5)
    text += "ens2:\n" + STATISTICS.format(downs=7)
    assert list(parse_counters(text)) == [
        ("ens1", "link_down_events_phy", 1),
        ("ens2", "link_down_events_phy", 7),
    ]


def test_file_name_names_the_interface() -> None:
    texts = [STATISTICS.format(downs=downs) for downs in (1, 2)]
    (event,) = read(*texts, names="ethtool_-S_ens3-{}.txt").events
    assert event["check"] == "link_down_events_phy ens3"
    rows = read(*texts)
    assert not rows.events
    (why,) = rows.unread.counts
    assert "without its interface" in why


def test_port_that_goes_down_is_an_event() -> None:
    states = ("4: ACTIVE", "1: DOWN", "1: DOWN", "4: ACTIVE")
    rows = read(*(f"{SYSFS}/state:{state}\n" for state in states))
    (event,) = rows.events
    assert (event["check"], event["severity"]) == ("port_state mlx5_4/1", "warning")
    assert event["timestamp"] == FIRST + MINUTE


def test_silence_of_port_is_reported() -> None:
    down = f"{SYSFS}/state:1: DOWN\n{SYSFS}/counters/link_downed:255\n"
    rows = read(down, down)
    assert not rows.events
    assert sorted(why.split(",")[0] for why in rows.unread.counts) == [
        "a counter at its largest value",
        "a port that was never active",
    ]


@given(st.text(alphabet='NIC statistics:\n /infiniband0ports=><.{}"', max_size=200))
def test_any_text_is_read_without_error(text: str) -> None:
    is_counter_text(text)
    list(parse_counters(text))
