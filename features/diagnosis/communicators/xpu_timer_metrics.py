"""Metrics of DLRover's XPUTimer in Prometheus' text form: kernels that hang, and their speed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from forewarn.features.diagnosis.communicators.communicator_state import BrokenStatusError
from forewarn.features.diagnosis.ranks import MAX_RANKS

__all__ = ["RankKernels", "parse_xpu_timer"]

_SAMPLE = re.compile(
    r"(?m)^XPU_TIMER_(COMMON_HANG|COMMON_START_DUMP|COMMON_END_DUMP|MM_KERNEL_FLOPS)"
    r"\{([^}\n]*)\} ([-+.\w]+)\r?$"
)
_LABEL = re.compile(r'(\w+)="([^"\\]*)"')
_UNKNOWN = ("", "NOT_SET")


@dataclass(frozen=True, slots=True)
class RankKernels:
    """Kernels of one rank.

    Attributes
    ----------
    rank : int
    host : str or None
        Pod, or else address.
    hangs : bool or None
        A kernel has run for longer than XPUTimer's limit, 5 minutes by default; None if not stated.
    is_new : bool
        Its stacks are being saved, which starts when it is found to hang.
    flops : float or None
        Speed of the fastest kind of matrix product, in Tflop/s.
    """

    rank: int
    host: str | None = None
    hangs: bool | None = None
    is_new: bool = False
    flops: float | None = None


def parse_xpu_timer(text: str) -> list[RankKernels]:
    r"""Parse the metrics of the ranks of a pod; of several values the last counts.

    Raises
    ------
    BrokenStatusError
        If no rank is named.

    Examples
    --------
    >>> parse_xpu_timer('XPU_TIMER_COMMON_HANG{ip="10.0.0.1",pod_name="NOT_SET",rank="3"} 1\n')
    [RankKernels(rank=3, host='10.0.0.1', hangs=True, is_new=False, flops=None)]
    """
    ranks: dict[int, RankKernels] = {}
    for name, labels, number in _SAMPLE.findall(text):
        of_rank = dict(_LABEL.findall(labels))
        value, rank = _parse_number(number), _parse_rank(of_rank.get("rank", ""))
        if value is None or rank is None:
            continue
        known = ranks.get(rank, RankKernels(rank, _host(of_rank)))
        if name == "MM_KERNEL_FLOPS":
            ranks[rank] = replace(known, flops=max(value, known.flops or 0.0))
        elif name == "COMMON_HANG":
            ranks[rank] = replace(known, hangs=value > 0)
        else:  # the end of saving is its duration, 0 until then
            is_start = name == "COMMON_START_DUMP"
            ranks[rank] = replace(
                known, is_new=value > 0 if is_start else known.is_new and not value
            )
    if not ranks:
        raise BrokenStatusError("contains no metric of a rank, expected XPU_TIMER_COMMON_HANG")
    return list(ranks.values())


def _host(labels: dict[str, str]) -> str | None:
    names = (labels.get(key, "") for key in ("pod_name", "ip"))
    return next((name for name in names if name not in _UNKNOWN), None)


def _parse_rank(text: str) -> int | None:
    is_rank = text.isascii() and text.isdecimal() and len(text) < 8 and int(text) < MAX_RANKS
    return int(text) if is_rank else None


def _parse_number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
