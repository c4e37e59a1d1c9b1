"""Rates of a machine from the counters of its network ports."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["PORT_RATES", "RATE_FILES", "PortCounts", "pause_counts", "port_rates"]

# By port and metric: the counter in the unit of the metric.
PortCounts = Mapping[tuple[str, str], float]

PORT_RATES = (
    *("rdma_throughput", "pfc_tx_packet_rate", "pfc_rx_packet_rate"),
    *("cnp_sent_rate", "cnp_handled_rate", "ecn_marked_rate"),
)
# Files below `ports/N` of sysfs, and the factor to Gbit or packets: a port counts 4-byte words.
RATE_FILES = {
    "counters/port_xmit_data": ("rdma_throughput", 32e-9),
    "hw_counters/np_cnp_sent": ("cnp_sent_rate", 1.0),
    "hw_counters/rp_cnp_handled": ("cnp_handled_rate", 1.0),
    "hw_counters/np_ecn_marked_roce_packets": ("ecn_marked_rate", 1.0),
}
# Of mlx5, bnxt_en, hns3 and ice, one counter per priority; then the pause frames of a whole link.
_PER_PRIORITY = re.compile(
    r"(?P<way>[tr]x)_(?:prio[0-7]_pause|pfc_ena_frames_pri[0-7]|pfc_pri[0-7]_pkt"
    r"|priority_[0-7]_xoff(?:\.nic)?)"
)
_OF_LINK = re.compile(r"(?P<way>[tr]x)_(?:pause_ctrl_phy|pfc_frames)")


def pause_counts(statistics: Iterable[tuple[str, int]]) -> dict[str, float]:
    """Return the pause frames of an interface, by metric, summed over priorities.

    Examples
    --------
    >>> pause_counts([("tx_prio3_pause", 5), ("tx_prio4_pause", 2), ("tx_pause_ctrl_phy", 7)])
    {'pfc_tx_packet_rate': 7.0}
    """
    pairs = list(statistics)
    for pattern in (_PER_PRIORITY, _OF_LINK):
        counts: dict[str, float] = {}
        for name, value in pairs:
            if match := pattern.fullmatch(name):
                metric = f"pfc_{match['way']}_packet_rate"
                counts[metric] = counts.get(metric, 0.0) + value
        if counts:
            return counts
    return {}


def port_rates(before: PortCounts, after: PortCounts, seconds: float) -> dict[str, float]:
    """Return the increase of each metric per second, summed over the ports.

    A metric is unknown, and left out, if one of its counters fell or is new: it was reset, or
    started again at 32 bit.

    Examples
    --------
    >>> port_rates({("p1", "cnp_sent_rate"): 5.0}, {("p1", "cnp_sent_rate"): 25.0}, 10.0)
    {'cnp_sent_rate': 2.0}
    >>> port_rates({("p1", "cnp_sent_rate"): 5.0}, {("p1", "cnp_sent_rate"): 4.0}, 10.0)
    {}
    """
    unknown = {key[1] for key, value in after.items() if value < before.get(key, value + 1.0)}
    rates: dict[str, float] = {}
    for key, value in after.items():
        if key[1] not in unknown and seconds > 0:
            rates[key[1]] = rates.get(key[1], 0.0) + (value - before[key]) / seconds
    return rates
