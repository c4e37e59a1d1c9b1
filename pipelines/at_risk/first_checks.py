"""What to look at first on a machine, given the reasons why one of its GPUs is on the list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Check", "first_checks"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing to look at.

    Parameters
    ----------
    what : str
        What to look at, and what it would mean.
    command : str
        Command to type on the machine; empty where there is none. It never holds text from
        outside: a serial in a line that people copy into a root shell would be an open door.
    """

    what: str
    command: str = ""


_KERNEL = Check(
    "Kernel log: which Xid, on which GPU, how often. One that names the application is no fault.",
    "dmesg -T | grep -i xid",
)
_MEMORY = Check(
    "Memory: uncorrected errors and row remaps. A pending remap needs a reset of the GPU, once "
    "drained; a failed one needs a new GPU.",
    "nvidia-smi -q -d ECC,ROW_REMAPPER",
)
_COOLING = Check(
    "Cooling: fans, air flow, the neighbours, and whether the clocks are held down by heat.",
    "nvidia-smi -q -d TEMPERATURE,PERFORMANCE",
)
_BUS = Check(
    "PCIe link: a width below its maximum means reseat the card or its riser, once drained.",
    "nvidia-smi --query-gpu=index,pcie.link.width.current,pcie.link.width.max --format=csv",
)
_POWER = Check(
    "Power: draw against the limit, cables and supply.", "nvidia-smi -q -d POWER,PERFORMANCE"
)
_CLOCKS = Check("Clocks: what holds them down.", "nvidia-smi -q -d CLOCK,PERFORMANCE")
_HISTORY = Check("Repair history of this serial and of this slot: the same fault may be back.")

_CHECK_BY_WORD: tuple[tuple[str, Check], ...] = (
    ("xid", _KERNEL),
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
    """Choose the checks that fit the reasons, in the order of the reasons and each one once.

    A reason is matched by the first telling word in it, so that "temperature given power" is
    about temperature. One that holds no such word, as on another kind of telemetry, gives none.

    Parameters
    ----------
    reasons : iterable of str
        Reasons of one or of several GPUs, most telling first.

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
