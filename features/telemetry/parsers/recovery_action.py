"""The recovery that the driver asks for of a GPU, in whatever words a tool prints it."""

from __future__ import annotations

__all__ = ["EVENT_ACTIONS", "action_number", "parse_recovery_action"]

EVENT_ACTIONS = ("none", "reset", "reboot", "drain", "drain_and_reset")
# By NVML's numbers. The fifth is a recovery of an IMEX domain, which is no matter of this machine.
_BY_NUMBER = (*EVENT_ACTIONS, None, "reset", "reboot")

# `nvidia-smi`, then the Xid 154 of the kernel log.
_WORDS = {
    "none": "none",
    "reset": "reset",
    "gpu reset": "reset",
    "reboot": "reboot",
    "bus reset": "reset",
    "node reboot": "reboot",
    "system reboot": "reboot",
    "drain p2p": "drain",
    "drain and reset": "drain_and_reset",
}


def parse_recovery_action(text: str) -> str | None:
    """Return the action that a word or a number of NVML means, None if it is none of them.

    Examples
    --------
    >>> recovery_action("Drain and Reset"), recovery_action("2"), recovery_action("[N/A]")
    ('drain_and_reset', 'reboot', None)
    """
    if text.isdecimal():
        number = int(text)
        return _BY_NUMBER[number] if number < len(_BY_NUMBER) else None
    return _WORDS.get(text.strip().lower().removesuffix(" required"))


def action_number(action: str | None) -> dict[str, float]:
    """Return an action as the number of a reading; nothing where nothing is said."""
    return {} if action is None else {"recovery_action": float(EVENT_ACTIONS.index(action))}
