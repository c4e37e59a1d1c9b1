"""First checks on a machine, given the reasons of its flagged GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Check", "first_checks"]


@dataclass(frozen=True, slots=True)
class Check:
    """A check for the person on call.

    Parameters
    ----------
    what : str
        What to check, and what the result means.
    command : str
        Command to run on the machine; empty if there is none. It never contains external text,
        because people paste it into a root shell.
    """

    what: str
    command: str = ""


_KERNEL = Check(
    "Kernel log: which Xids, on which GPU, how often. An Xid caused by an application is no fault.",
    "dmesg -T | grep -i xid",
)
_MEMORY = Check(
    "Memory: uncorrected errors and row remaps. A pending remap needs a GPU reset after draining; "
    "a failed remap needs a new GPU.",
    "nvidia-smi -q -d ECC,ROW_REMAPPER",
)
_COOLING = Check(
    "Cooling: fans, air flow, neighbouring GPUs, and whether heat throttles the clocks.",
    "nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
)
_BUS = Check(
    "PCIe link: if the width is below its maximum, reseat the card or its riser after draining.",
    "nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
)
_POWER = Check(
    "Power: draw against the limit, cables and power supply.", "nvidia-smi -q -d POWER,PERFORMANCE"
)
_CLOCKS = Check("Clocks: reasons for throttling.", "nvidia-smi -q -d CLOCK,PERFORMANCE")
_HISTORY = Check("Repair history of this serial and this slot: an earlier fault may have returned.")

_CHECK_BY_WORD: tuple[tuple[str, Check], ...] = (
    ("xid", _KERNEL),
    ("gpu error", _KERNEL),
    ("ecc", _MEMORY),
    ("remap", _MEMORY),
    ("memory error", _MEMORY),
    ("nvlink", _BUS),
    ("temperature", _COOLING),
    ("pcie", _BUS),
    ("link_width", _BUS),
    ("power", _POWER),
    ("clock", _CLOCKS),
    ("failures", _HISTORY),
    ("has failed", _HISTORY),
)


def first_checks(reasons: Iterable[str]) -> tuple[Check, ...]:
    """Return the checks that match the reasons, in the order of the reasons and without duplicates.

    A reason is matched by its first keyword: "temperature given power" is about temperature. A
    reason without a keyword gives no check.

    Parameters
    ----------
    reasons : iterable of str
        Reasons of one or several GPUs, strongest first.

    Examples
    --------
    >>> [check.command for check in first_checks(["ecc_corrected 41 per hour over 7d"])]
    ['nvidia-smi -q -d ECC,ROW_REMAPPER']
    """
    checks: dict[Check, None] = {}
    for reason in reasons:
        text = reason.lower()
        places = [(text.find(word), check) for word, check in _CHECK_BY_WORD if word in text]
        if places:
            checks[min(places, key=lambda start: start[0])[1]] = None
    return tuple(checks)
