"""Peers that a log line names: the ranks and machines that it accuses, not the one that speaks."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import re2

from forewarn.features.diagnosis.log_lines.log_pattern import LogPattern, compile_pattern
from forewarn.features.diagnosis.ranks import MAX_RANKS
from forewarn.features.hostlist import HostlistError, expand

__all__ = ["Peer", "named_peers", "present_ranks"]

_GROUP = re.compile(r"(?:peer_(rank|task|host|address)|(present)_rank)(?:_\d)?")
_NUMBER = re.compile(r"(?<!\d)\d{1,9}(?!\d)")
_MAX_LISTED_HOSTS = 64  # a longer list does not tell machines apart
_OWN_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost")


@dataclass(frozen=True, slots=True)
class Peer:
    """Rank or machine that a line names; exactly one field is set.

    Attributes
    ----------
    rank, task : int or None
        Rank, or number of a task of the coordination service of JAX.
    host, address : str or None
        Host name, or IP address without port, zone and IPv4 prefix.
    """

    rank: int | None = None
    task: int | None = None
    host: str | None = None
    address: str | None = None


def named_peers(pattern: LogPattern, line: str) -> tuple[Peer, ...]:
    r"""Return the peers that a line names, in order; empty if it names none, or only itself.

    The named groups `peer_rank`, `peer_task`, `peer_host` and `peer_address` of the expression hold
    them; numbers and hosts may be lists. An own address, such as `localhost`, is not a peer.

    Examples
    --------
    >>> pattern = LogPattern(
    ...     "a", r"lost (?P<peer_address>\S+)", "cascade", "fabric", "notice", "lost", "check"
    ... )
    >>> named_peers(pattern, "lost ::ffff:10.0.0.4")
    (Peer(rank=None, task=None, host=None, address='10.0.0.4'),)
    """
    regular, groups = _compiled(pattern.expression)
    match = regular.search(line.encode()) if groups else None
    if match is None:
        return ()
    texts = [(kind, match.group(number)) for number, kind in groups if kind != "present"]
    peers = [peer for kind, text in texts if text for peer in _peers(kind, text.decode("latin-1"))]
    return tuple(dict.fromkeys(peers))


def present_ranks(pattern: LogPattern, line: str) -> frozenset[int]:
    r"""Return the ranks that a line says have come, so that it waits for the others.

    The named group `present_rank` of the expression holds their numbers.

    Examples
    --------
    >>> pattern = LogPattern(
    ...     "a", r"came: (?P<present_rank>[\d, ]+)", "cascade", "fabric", "notice", "lost", "check"
    ... )
    >>> sorted(present_ranks(pattern, "came: 0, 3"))
    [0, 3]
    """
    regular, groups = _compiled(pattern.expression)
    numbers = [number for number, kind in groups if kind == "present"]
    match = regular.search(line.encode()) if numbers else None
    texts = [match.group(number) for number in numbers] if match is not None else []
    listed = (
        number for text in texts if text for number in _NUMBER.findall(text.decode("latin-1"))
    )
    return frozenset(rank for rank in map(int, listed) if rank < MAX_RANKS)


@lru_cache(maxsize=1024)
def _compiled(expression: str) -> tuple[re2._Regexp, tuple[tuple[int, str], ...]]:
    """Return an expression and the numbers and kinds of its groups for peers."""
    regular = compile_pattern(expression)
    groups = []
    for name, number in regular.groupindex.items():
        text = name.decode() if isinstance(name, bytes) else name
        if match := _GROUP.fullmatch(text):
            groups.append((number, match[1] or match[2]))
    return regular, tuple(sorted(groups))


def _peers(kind: str, text: str) -> Iterator[Peer]:
    if kind in ("rank", "task"):
        for number in map(int, _NUMBER.findall(text)):
            if number < MAX_RANKS:
                yield Peer(rank=number) if kind == "rank" else Peer(task=number)
        return
    if kind == "host" and "[" in text:
        yield from _listed_hosts(text)
        return
    name = text.partition("%")[0]
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        host = name.rstrip(".:")
        if host and host.lower() not in _OWN_NAMES:
            yield Peer(host=host)
        return
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if not (address.is_loopback or address.is_unspecified):
        yield Peer(address=str(address))


def _listed_hosts(text: str) -> Iterator[Peer]:
    try:
        names = expand(text)
    except HostlistError:
        return
    if len(names) <= _MAX_LISTED_HOSTS:
        yield from (Peer(host=name) for name in names)
