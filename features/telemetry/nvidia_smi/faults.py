"""Faults that nvidia-smi reports as text, in separate lines or in place of values."""

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

# nvidia-smi names a lost GPU in several ways: the address with and without a function, and since
# about 2024 after the number of the GPU.
_ADDRESS = re.compile(
    r"GPU *(?:\d{1,3}: *)?(?P<pci>[0-9A-F]{4,8}:[0-9A-F]{2}:[0-9A-F]{2})(?:\.[0-7])?[:. ]",
    re.IGNORECASE,
)
_GONE = re.compile("is lost|fallen off", re.IGNORECASE)
# "Unknown Error" also occurs for a healthy GPU, for example if a mode cannot be set.
_NO_HANDLE = re.compile(f"{_GONE.pattern}|Unknown Error|not found", re.IGNORECASE)
_MAX_LINE = 400  # characters
# Messages in place of a table, about no particular GPU.
_NO_GPU = re.compile(
    r"^(?:Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found).*",
    re.IGNORECASE | re.MULTILINE,
)
_LOST_VALUE, _RESET_VALUE, _ERROR = "gpu is lost", "gpu requires reset", "unknown error"
# Minimum number of erroneous fields that indicates a lost GPU, with and without identity fields.
_MIN_ERRORS, _MIN_NAMELESS_ERRORS = 2, 3
_CONTRADICTION = (
    "a GPU with contradictory values (lost or unknown, and measured); not counted as lost"
)


def lost_gpus(text: str, measured: Collection[str] = ()) -> tuple[str, ...]:
    """Return the PCI addresses of the GPUs that lines report as lost.

    Parameters
    ----------
    text : str
    measured : collection of str
        Addresses of GPUs with measurements in the same text. If a measurement follows the line, the
        GPU is not lost.

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
    """Return the PCI addresses of the GPUs with a nonzero measurement."""
    return frozenset(r.pci for r in readings if r.pci and not r.lost and _is_measured(r.numbers))


def _is_measured(numbers: Mapping[str, float]) -> bool:
    return any(number for name, number in numbers.items() if name != "recovery_action")


def _lost_gpu(line: str) -> str | None:
    """Return the address of the GPU that a line reports as lost.

    Lines of the driver (NVRM) are ignored; the kernel log has them with their time.
    """
    line = line[:_MAX_LINE]
    match = None if "NVRM:" in line else _ADDRESS.search(line)
    if match is None:
        return None
    for_handle = "device handle" in line[: match.start()].lower()
    words = _NO_HANDLE if for_handle else _GONE
    return parse_pci_address(match["pci"]) if words.search(line, match.end()) else None


def is_lost_line(line: str) -> bool:
    """Tell whether a line reports a lost GPU, or that there is no GPU."""
    return bool(_lost_gpu(line) or _NO_GPU.match(line))


def no_gpu_message(text: str) -> str:
    r"""Return the message of nvidia-smi if it can read no GPU at all, else an empty text.

    Examples
    --------
    >>> no_gpu_message("Failed to initialize NVML: Driver/library version mismatch\nversion: 550.1")
    'Failed to initialize NVML: Driver/library version mismatch'
    """
    match = _NO_GPU.search(text)
    return match[0].strip()[:200] if match else ""


def is_lost_row(
    values: Collection[str], names: Sequence[str], numbers: Mapping[str, float], unread: Unread
) -> bool:
    """Tell whether the values of one GPU show that it is lost.

    A value that reports the loss suffices, as do errors in place of the identity. A GPU with any
    nonzero measurement is never lost: a lost GPU reports nothing or zeros.

    Parameters
    ----------
    values : collection of str
        All except its address, index and time.
    names : sequence of str
        Serial, UUID and product among them; empty if none of these was queried.
    numbers : mapping of str to float
        The measurements.
    unread : Unread
        Counts a GPU with contradictory values.

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
    """Tell whether a value is a state of the GPU and not a number."""
    return _plain(value) in (_LOST_VALUE, _RESET_VALUE)


def requested_recovery(
    values: Collection[str], action: str | None, reset: str | None
) -> str | None:
    """Return the recovery that the values of one GPU request, one of EVENT_ACTIONS.

    Parameters
    ----------
    values : collection of str
        All values.
    action, reset : str or None
        The values of the recovery action and of `reset_required`, if queried.

    Returns
    -------
    str or None
        None if no value reports it.

    Examples
    --------
    >>> requested_recovery(["40"], "None", None)
    'none'
    >>> requested_recovery(["[GPU requires reset]"], None, None)
    'reset'
    """
    recovery = parse_recovery_action(action or "")
    needs_reset = _RESET_VALUE in map(_plain, values) or (reset or "").lower() == "yes"
    return "reset" if needs_reset and recovery in (None, "none") else recovery


def _plain(value: str) -> str:
    return value.strip("[]. ").lower()
