"""Process groups of a flight recorder dump: their members, and the rank's progress in each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

__all__ = ["group_members", "last_enqueued"]


def group_members(config: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of the described groups; `ranks` is a string that contains a JSON list.

    Parameters
    ----------
    config : mapping
        `pg_config` of the dump.

    Examples
    --------
    >>> group_members({"3": {"name": "3", "desc": "tp", "ranks": "[4, 5]"}})
    {'3': (4, 5)}
    """
    members = {}
    for name, values in config.items():
        ranks = values.get("ranks")
        try:
            numbers = msgspec.convert(
                json.loads(ranks) if isinstance(ranks, str) else ranks, list[int]
            )
        except (ValueError, RecursionError):  # members: ranks with an entry
            continue
        if numbers:
            members[str(values.get("name") or name)] = tuple(dict.fromkeys(numbers))
    return members


def last_enqueued(
    status: Mapping[str, Mapping[str, int | None]],
    config: Mapping[str, Mapping[str, Any]],
    names: Mapping[int, str],
) -> dict[str, int]:
    """Return the last sequence number that the rank has entered, by group.

    `pg_status` knows groups by the rank's own number. Numbers and names are both given in the order
    in which groups are created, so that groups without an entry are known as well.

    Parameters
    ----------
    status, config : mapping
        `pg_status` and `pg_config` of the dump.
    names : mapping of int to str
        Names by number, from the entries.

    Examples
    --------
    >>> status = {"0": {"last_enqueued_collective": 7}, "4": {"last_enqueued_collective": 9}}
    >>> last_enqueued(status, {"0": {}, "33": {}}, {0: "0"})
    {'0': 7, '33': 9}
    """
    last = {
        int(number): values.get("last_enqueued_collective")
        for number, values in status.items()
        if number.isascii() and number.isdecimal()
    }
    known = _names_in_order(sorted(last), config, names) or names
    return {known[n]: seq for n, seq in last.items() if n in known and seq is not None}


def _names_in_order(
    numbers: list[int], config: Mapping[str, object], names: Mapping[int, str]
) -> dict[int, str]:
    """Match numbers with names; empty if the entries contradict."""
    texts = [name for name in config if name.isascii() and name.isdecimal()]
    if len(texts) != len(numbers):
        return {}
    guess = dict(zip(numbers, sorted(texts, key=int), strict=True))
    return guess if all(guess.get(number) == name for number, name in names.items()) else {}
