"""Reasons that forewarn writes to Slurm nodes."""

from __future__ import annotations

import re

from forewarn.response.state.action import Action
from forewarn.response.state.machine import MARK_PREFIX

__all__ = ["checks_reason", "drain_reason", "sanitize"]

_MAX_TEXT_LENGTH = 160  # characters of a reason or message
_UNSAFE = re.compile(r"""[^ -~]|["'`$\\=]""")


def drain_reason(action: Action, why: str) -> str:
    """Return the reason of a node that an action drains: mark, action number and cause.

    The text of `why` is reduced to printable ASCII without `=` and quotes: the sudo rules rely on
    it.
    """
    return f"{MARK_PREFIX}{action.id} {sanitize(why)}".rstrip()


def checks_reason(action: Action) -> str:
    """Return the reason of a node that is reserved for the checks of an action."""
    return f"{MARK_PREFIX}{action.id} checks"


def sanitize(text: str) -> str:
    """Return the part of a text that Slurm and the sudo rules accept."""
    cleaned = " ".join(_UNSAFE.sub(" ", text).split())
    return cleaned.lstrip("- ")[
        :_MAX_TEXT_LENGTH
    ].rstrip()  # no leading dash: a message is an argument
