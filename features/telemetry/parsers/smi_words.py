"""Faults that nvidia-smi tells in words, in lines of their own or in the place of values."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from forewarn.features.telemetry.parsers.reading import pci_address
from forewarn.features.telemetry.parsers.recovery_action import recovery_action

__all__ = ["asked_recovery", "blindness", "is_lost_line", "is_lost_row", "is_state", "lost_gpus"]

# It says that a GPU is gone in more than one way: the address with and without a point, and since
# about 2024 behind the number of the GPU. What the driver says (NVRM) is of the kernel log, which
# also tells when.
_LOST = re.compile(
    r"^(?!.*NVRM:).*?GPU *(?:\d{1,3}: *)?(?P<pci>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2})"
    r"(?:\.[0-7])?[:. ].*?(?:Unknown Error|is lost|not found|fallen off)",
    re.IGNORECASE | re.MULTILINE,
)
# What it says instead of a table, of no GPU in particular.
_BLIND = re.compile(
    r"^(?:Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found).*",
    re.IGNORECASE | re.MULTILINE,
)
_LOST_VALUE, _RESET_VALUE, _ERROR = "gpu is lost", "gpu requires reset", "unknown error"
_MIN_ERRORS = 2  # of one field an error says nothing of the GPU


def lost_gpus(text: str) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that lines call lost, whatever else they print.

    Examples
    --------
    >>> lost_gpus("Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error")
    ('0000:3b:00',)
    >>> lost_gpus("Unable to determine the device handle for GPU1: 0000:3B:00.0: Unknown Error")
    ('0000:3b:00',)
    """
    addresses = (pci_address(match["pci"]) for match in _LOST.finditer(text))
    return tuple(dict.fromkeys(pci for pci in addresses if pci is not None))


def is_lost_line(line: str) -> bool:
    """Tell whether a line calls a GPU lost, or says that there is none."""
    return bool(_LOST.match(line) or _BLIND.match(line))


def blindness(text: str) -> str:
    r"""Return what nvidia-smi says when it can read no GPU at all; empty if it says nothing alike.

    Examples
    --------
    >>> blindness("Failed to initialize NVML: Driver/library version mismatch\nversion: 550.1")
    'Failed to initialize NVML: Driver/library version mismatch'
    """
    match = _BLIND.search(text)
    return match[0].strip()[:200] if match else ""


def is_lost_row(values: Collection[str], names: Sequence[str]) -> bool:
    """Tell whether the values of one GPU say that it is lost.

    It is where one of them says so, and where the driver cannot even tell which GPU it is.

    Parameters
    ----------
    values : collection of str
        All but its address, index and time.
    names : sequence of str
        Serial, UUID and product among them; empty where none of these was asked for.

    Examples
    --------
    >>> is_lost_row(["44", "[GPU is lost]"], []), is_lost_row(["S1", "[Unknown Error]"], ["S1"])
    (True, False)
    """
    words = [_plain(value) for value in values]
    if _LOST_VALUE in words:
        return True
    named = [_plain(name) for name in names] or (words if len(words) >= _MIN_ERRORS else [])
    return bool(named) and all(word == _ERROR for word in named)


def is_state(value: str) -> bool:
    """Tell whether a value is a state of the GPU, which is read as such, rather than a number."""
    return _plain(value) in (_LOST_VALUE, _RESET_VALUE)


def asked_recovery(values: Collection[str], action: str | None, reset: str | None) -> str | None:
    """Return the recovery that the values of one GPU ask for, one of EVENT_ACTIONS.

    Parameters
    ----------
    values : collection of str
        All values.
    action, reset : str or None
        What stands for the recovery action, and for `reset_required`, where it was asked for.

    Returns
    -------
    str or None
        None where nothing is said.

    Examples
    --------
    >>> asked_recovery(["40"], "None", None), asked_recovery(["[GPU requires reset]"], None, None)
    ('none', 'reset')
    """
    recovery = recovery_action(action or "")
    needs_reset = _RESET_VALUE in map(_plain, values) or (reset or "").lower() == "yes"
    return "reset" if needs_reset and recovery in (None, "none") else recovery


def _plain(value: str) -> str:
    return value.strip("[]. ").lower()
