"""The control share: alerts that are left alone, because a drained GPU cannot prove us wrong."""

from __future__ import annotations

import hashlib

__all__ = ["in_holdout"]

_HASH_RANGE = 2**64


def in_holdout(machine: str, incident: int, *, share: float, salt: str) -> bool:
    """Draw a lot that nobody can foresee without the salt, and that stays the same.

    Parameters
    ----------
    machine : str
    incident : int
        A later incident of the same machine draws anew.
    share : float
        Probability to be left alone, from 0 to 1.
    salt : str

    Examples
    --------
    >>> sum(is_control("node-1", incident, share=0.1, salt="s") for incident in range(1000))
    109
    """
    text = f"{salt}\0{machine}\0{incident}".encode("utf-8", "surrogatepass")
    lot = int.from_bytes(hashlib.sha256(text).digest()[:8], "big")
    return lot < share * _HASH_RANGE
