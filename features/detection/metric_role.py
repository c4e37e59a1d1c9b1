"""What a machine metric says of a machine: its own work, its waiting, its traffic, its heat."""

from __future__ import annotations

import re
from typing import Literal

__all__ = ["Role", "guess_role"]

Role = Literal["work", "wait", "traffic", "temperature", "other"]

# Words of a name, in order: `collective_wait_bytes` is a wait, `comm_bandwidth` is traffic.
_WORDS: tuple[tuple[Role, str], ...] = (
    ("temperature", r"temp|temperature|celsius|thermal"),
    ("wait", r"wait|waiting|waits|idle|stall|stalled|blocked|barrier|bubble|iowait"),
    ("traffic", r"bandwidth|throughput|bytes|packet|packets|rx|tx|pfc|nvlink|rdma|net|network"),
    ("wait", r"collective|collectives|comm|communication|sync|allreduce|nccl"),
    ("work", r"compute|computing|forward|backward|optimizer|kernel|kernels|work"),
)


def guess_role(name: str) -> Role:
    """Return the role that the name of a metric suggests.

    Examples
    --------
    >>> [guess_role(name) for name in ("compute", "wait_time", "nvlink_bandwidth", "cpu_usage")]
    ['work', 'wait', 'traffic', 'other']
    """
    words = re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()
    for role, pattern in _WORDS:
        if re.search(rf"(?<![a-z])({pattern})(?![a-z])", words):
            return role
    return "other"
