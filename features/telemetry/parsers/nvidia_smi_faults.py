"""Faults that nvidia-smi tells in words, in lines of their own or in the place of values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread, parse_pci_address
from forewarn.features.telemetry.parsers.recovery_action import parse_recovery_action

__all__ = [
    "is_lost_line",
    "is_lost_row",
    "is_state",
    "lost_gpus",
    "measured_gpus",
    "no_gpu_message",
    "requested_recovery",
]

# It names a GPU that is gone in more than one way: the address with and without a point, and since
# about 2024 behind the number of the GPU.
_ADDRESS = re.compile(
    r"GPU *(?:\d{1,3}: *)?(?P<pci>[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2})(?:\.[0-7])?[:. ]",
    re.IGNORECASE,
)
_GONE = re.compile("is lost|fallen off", re.IGNORECASE)
# Of a healthy GPU an error is unknown, too, such as where a mode cannot be set.
_NO_HANDLE = re.compile(f"{_GONE.pattern}|Unknown Error|not found", re.IGNORECASE)
_MAX_LINE = 400  # characters
# What it says instead of a table, of no GPU in particular.
_NO_GPU = re.compile(
    r"^(?:Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found).*",
    re.IGNORECASE | re.MULTILINE,
)
_LOST_VALUE, _RESET_VALUE, _ERROR = "gpu is lost", "gpu requires reset", "unknown error"
# Of fewer fields an error says nothing of the GPU; without names only the fields themselves speak.
_MIN_ERRORS, _MIN_NAMELESS_ERRORS = 2, 3
_CONTRADICTION = "a GPU that some values call lost or unknown, and others do not: not taken as lost"


def lost_gpus(text: str, measured: Collection[str] = ()) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that lines call lost, whatever else they print.

    Parameters
    ----------
    text : str
    measured : collection of str
        Addresses of GPUs that the same text has measurements of: where such a measurement follows
        the line, the GPU is not lost.

    Examples
    --------
    >>> lost_gpus("Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error")
    ('0000:3b:00',)
    >>> lost_gpus("Unable to determine the device handle for GPU1: 0000:3B:00.0: Unknown Error")
    ('0000:3b:00',)
    """
    ends: dict[str, int] = {}
    end = 0
    for line in text.splitlines(keepends=True):
        end += len(line)
        if (pci := _lost_gpu(line)) is not None:
            ends[pci] = end
    if not ends or not measured:
        return tuple(ends)
    lower = text.lower()
    return tuple(pci for pci, end in ends.items() if pci not in measured or pci not in lower[end:])


def measured_gpus(readings: Iterable[GpuReading]) -> frozenset[str]:
    """Return the PCI addresses of the GPUs of which something other than zeros was measured."""
    return frozenset(r.pci for r in readings if r.pci and not r.lost and _is_measured(r.numbers))


def _is_measured(numbers: Mapping[str, float]) -> bool:
    return any(number for name, number in numbers.items() if name != "recovery_action")


def _lost_gpu(line: str) -> str | None:
    """Return the address of the GPU that a line calls lost.

    What the driver says (NVRM) is of the kernel log, which also tells when.
    """
    line = line[:_MAX_LINE]
    match = None if "NVRM:" in line else _ADDRESS.search(line)
    if match is None:
        return None
    for_handle = "device handle" in line[: match.start()].lower()
    words = _NO_HANDLE if for_handle else _GONE
    return parse_pci_address(match["pci"]) if words.search(line, match.end()) else None


def is_lost_line(line: str) -> bool:
    """Tell whether a line calls a GPU lost, or says that there is none."""
    return bool(_lost_gpu(line) or _NO_GPU.match(line))


def no_gpu_message(text: str) -> str:
    r"""Return what nvidia-smi says when it can read no GPU at all; empty if it says nothing alike.

    Examples
    --------
    >>> blindness("Failed to initialize NVML: Driver/library version mismatch\nversion: 550.1")
    'Failed to initialize NVML: Driver/library version mismatch'
    """
    match = _NO_GPU.search(text)
    return match[0].strip()[:200] if match else ""


def is_lost_row(
    values: Collection[str], names: Sequence[str], numbers: Mapping[str, float], unread: Unread
) -> bool:
    """Tell whether the values of one GPU say that it is lost.

    It is where one of them says so, and where the driver cannot even tell which GPU it is, but
    never where something was measured: a GPU that is gone measures nothing, or zeros.

    Parameters
    ----------
    values : collection of str
        All but its address, index and time.
    names : sequence of str
        Serial, UUID and product among them; empty where none of these was asked for.
    numbers : mapping of str to float
        What was measured.
    unread : Unread
        Counts a GPU of which the values do not agree.

    Examples
    --------
    >>> unread = Unread()
    >>> is_lost_row(["44", "[GPU is lost]"], [], {}, unread)
    True
    >>> is_lost_row(["44", "[GPU is lost]"], [], {"temperature_gpu": 44.0}, unread)
    False
    """
    words = [_plain(value) for value in values]
    says_lost = _LOST_VALUE in words
    named = [_plain(name) for name in names] or (words if len(words) > 1 else [])
    if not says_lost and not (named and all(word == _ERROR for word in named)):
        return False
    n_needed = _MIN_ERRORS if names else _MIN_NAMELESS_ERRORS
    if not _is_measured(numbers) and (says_lost or words.count(_ERROR) >= n_needed):
        return True
    unread.add(_CONTRADICTION, ", ".join(values))
    return False


def is_state(value: str) -> bool:
    """Tell whether a value is a state of the GPU, which is read as such, rather than a number."""
    return _plain(value) in (_LOST_VALUE, _RESET_VALUE)


def requested_recovery(
    values: Collection[str], action: str | None, reset: str | None
) -> str | None:
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
    recovery = parse_recovery_action(action or "")
    needs_reset = _RESET_VALUE in map(_plain, values) or (reset or "").lower() == "yes"
    return "reset" if needs_reset and recovery in (None, "none") else recovery


def _plain(value: str) -> str:
    return value.strip("[]. ").lower()
