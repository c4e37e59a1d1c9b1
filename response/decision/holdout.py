"""Holdout: predictions without an action, because a drained GPU cannot refute a prediction."""

from __future__ import annotations

import hashlib

__all__ = ["in_holdout"]

_HASH_RANGE = 2**64


def in_holdout(machine: str, incident: int, *, share: float, salt: str) -> bool:
    """Return whether an incident is in the holdout; random without the salt, and repeatable.

    Parameters
    ----------
    machine : str
    incident : int
        Each incident of a machine is assigned independently.
    share : float
        Probability of the holdout, from 0 to 1.
    salt : str

    Examples
    --------
    >>> sum(in_holdout("node-1", incident, share=0.1, salt="s") for incident in range(1000))
    109
    """
    text = f"{salt}\0{machine}\0{incident}".encode("utf-8", "surrogatepass")
    lot = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return lot < share * _HASH_RANGE
