"""The recovery that the driver asks for of a GPU, in whatever words a tool prints it."""

from __future__ import annotations

__all__ = ["EVENT_ACTIONS", "recovery_action"]

# In the order of NVML's numbers, from 0.
EVENT_ACTIONS = ("none", "reset", "reboot", "drain", "drain_and_reset")

# `nvidia-smi`, then the Xid 154 of the kernel log.
_WORDS = {
    "none": "none",
    "reset": "reset",
    "gpu reset": "reset",
    "gpu reset required": "reset",
    "reboot": "reboot",
    "node reboot": "reboot",
    "node reboot required": "reboot",
    "drain p2p": "drain",
    "drain p2p required": "drain",
    "drain and reset": "drain_and_reset",
    "drain and reset required": "drain_and_reset",
}


def recovery_action(text: str) -> str | None:
    """Return the action that a word or a number of NVML means, None if it is none of them.

    Examples
    --------
    >>> recovery_action("Drain and Reset"), recovery_action("2"), recovery_action("[N/A]")
    ('drain_and_reset', 'reboot', None)
    """
    if text.isdecimal():
        number = int(text)
        return EVENT_ACTIONS[number] if number < len(EVENT_ACTIONS) else None
    return _WORDS.get(text.strip().lower())
