"""Recovery actions that the driver requests for a GPU, from the texts of several tools."""

from __future__ import annotations

__all__ = ["EVENT_ACTIONS", "action_number", "parse_recovery_action"]

EVENT_ACTIONS = ("none", "reset", "reboot", "drain", "drain_and_reset")
# By NVML's numbers. The fifth recovers an IMEX domain and does not concern this machine.
_BY_NUMBER = (*EVENT_ACTIONS, None, "reset", "reboot")

# Texts of `nvidia-smi`, then of Xid 154 in the kernel log.
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
    """Return the action of a text or an NVML number; None if it is neither.

    Examples
    --------
    >>> parse_recovery_action("Drain and Reset"), parse_recovery_action("2")
    ('drain_and_reset', 'reboot')
    >>> parse_recovery_action("[N/A]")
    """
    if text.isdecimal():
        number = int(text)
        return _BY_NUMBER[number] if number < len(_BY_NUMBER) else None
    return _WORDS.get(text.strip().lower().removesuffix(" required"))


def action_number(action: str | None) -> dict[str, float]:
    """Return an action as a number of a reading; empty if there is none."""
    return {} if action is None else {"recovery_action": float(EVENT_ACTIONS.index(action))}
