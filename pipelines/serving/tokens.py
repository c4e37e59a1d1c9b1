"""Tokens: the site each belongs to, and the hosts it may report for."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from forewarn.features.errors import InputError
from forewarn.features.hostlist import HostlistError, expand
from forewarn.features.telemetry.telemetry_rows import is_host_name

__all__ = [
    "TokenError",
    "TokenHolder",
    "Tokens",
    "find_holder",
    "parse_hosts",
    "parse_tokens",
    "token_digest",
    "token_entries",
]

_Holder = TypeVar("_Holder")


class TokenError(InputError):
    """The tokens cannot be used."""


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """The holder of a token.

    Attributes
    ----------
    site : str
    hosts : tuple of str
        Patterns such as `berlin-*`; a batch of another host is refused. `*` is every host.
    bound_to : frozenset of str or None
        The only hosts that have the token; None if any host of the site may have it.
    """

    site: str
    hosts: tuple[str, ...] = ("*",)
    bound_to: frozenset[str] | None = None

    @property
    def vouched(self) -> str:
        """Return how the token is bound: `host`, or `shared` by the hosts of a site."""
        return "shared" if self.bound_to is None else "host"

    def speaks_for(self, host: str | None) -> bool:
        """Tell whether the holder may report for a host; a row without a host needs `*`.

        Examples
        --------
        >>> berlin = TokenHolder("berlin", ("b-*",))
        >>> berlin.speaks_for("b-17"), berlin.speaks_for("p-1"), berlin.speaks_for(None)
        (True, False, False)
        """
        if self.bound_to is not None and host not in self.bound_to:
            return False
        if "*" in self.hosts:
            return True
        return host is not None and any(fnmatchcase(host, pattern) for pattern in self.hosts)


def token_entries(text: str) -> list[str]:
    """Split `NAME:HOSTLIST=TOKEN,...` into entries; host lists may contain commas.

    Examples
    --------
    >>> token_entries("a=T1, b:n-[1-2,4],login=T2")
    ['a=T1', 'b:n-[1-2,4],login=T2']
    """
    entries: list[str] = []
    pending = ""
    for part in filter(None, map(str.strip, text.split(","))):
        pending = f"{pending},{part}" if pending else part
        if "=" in part or ":" not in pending:
            entries.append(pending)
            pending = ""
    return [*entries, pending] if pending else entries


def parse_hosts(text: str, where: str) -> frozenset[str]:
    """Return the hosts of a host list.

    Raises
    ------
    TokenError
        If it is not a host list, or contains an invalid host name. The message begins with `where`
        and quotes nothing of the list, because a token may be there by mistake.
    """
    try:
        hosts = expand(text)
    except HostlistError:
        raise TokenError(
            f"{where}: invalid host list, expected one such as node-[01-16],login."
        ) from None
    for number, host in enumerate(hosts or [""], 1):
        if not is_host_name(host):
            raise TokenError(f"{where}: host {number} of its list is not a valid host name.")
    return frozenset(hosts)


def parse_tokens(text: str) -> dict[str, str]:
    """Return the site of each token, from `site-a=TOKEN,site-b:HOSTLIST=TOKEN`.

    HOSTLIST is a Slurm host list, `node-[01-16],login`; it stays part of the site's name.

    Raises
    ------
    TokenError
        If there is no token, or one lacks a site, is repeated, or cannot be sent in a header.

    Examples
    --------
    >>> parse_tokens("berlin=s3cret")
    {'s3cret': 'berlin'}
    """
    sites: dict[str, str] = {}
    for part in token_entries(text):
        site, _, token = (piece.strip() for piece in part.partition("="))
        if not site or not token or token in sites:
            raise TokenError(
                "FOREWARN_TOKENS: expected SITE=TOKEN or SITE:HOSTLIST=TOKEN,..., each token once."
            )
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise TokenError(
                "FOREWARN_TOKENS: a token contains a blank, a line break or a non-ASCII character, "
                "expected printable ASCII."
            )
        sites[token] = site
    if not sites:
        raise TokenError("FOREWARN_TOKENS is not set, expected SITE=TOKEN,...")
    return sites


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a collector, stored as digests only.

    Attributes
    ----------
    speakers : mapping of bytes to TokenHolder
        By the SHA-256 of the token.
    """

    speakers: Mapping[bytes, TokenHolder]

    @classmethod
    def from_config(cls, sites: Mapping[str, str], hosts: Mapping[str, tuple[str, ...]]) -> Tokens:
        """Combine tokens with the configured hosts of their sites.

        Parameters
        ----------
        sites : mapping of str to str
            Site of each token, with a host list after a colon if it is bound to hosts.
        hosts : mapping of str to tuple of str
            Host patterns of each site. A single site may omit them and report for all hosts.

        Raises
        ------
        TokenError
            If one of several sites has no hosts, or hosts are given for an unknown site.
        """
        speakers = {
            token: _make_holder(name, hosts, f"FOREWARN_TOKENS: entry {number}")
            for number, (token, name) in enumerate(sites.items(), 1)
        }
        names = sorted({speaker.site for speaker in speakers.values()})
        unknown = sorted(set(hosts) - set(names))
        if unknown:
            raise TokenError(
                f"`collector.hosts` names site {unknown[0]!r}, expected one of FOREWARN_TOKENS: "
                f"{', '.join(names)}."
            )
        shared = {speaker.site for speaker in speakers.values() if speaker.bound_to is None}
        without = sorted(shared - set(hosts))
        if without and len(shared) > 1:
            raise TokenError(
                f"`collector.hosts` has no hosts of site {without[0]!r}: with several sites, "
                f"expected patterns for each, such as hosts = {{{without[0]} = ["
                f'"{without[0]}-*"]}}.'
            )
        return cls({token_digest(token): speaker for token, speaker in speakers.items()})

    def speaker(self, token: str) -> TokenHolder | None:
        """Return the holder of a token; all are compared, in constant time."""
        return find_holder(self.speakers, token)


def _make_holder(name: str, hosts: Mapping[str, tuple[str, ...]], where: str) -> TokenHolder:
    """Return the holder for an entry `SITE` or `SITE:HOSTLIST`."""
    site, colon, bound_to = (piece.strip() for piece in name.partition(":"))
    named = parse_hosts(bound_to, where) if colon else None
    return TokenHolder(site, hosts.get(site, ("*",)), named)


def find_holder(holders: Mapping[bytes, _Holder], token: str) -> _Holder | None:
    """Return the holder of a token; all are compared, in constant time.

    Parameters
    ----------
    By the digest of the token.
        By the digest of the token.
    token : str
    """
    digest, holder = token_digest(token), None
    for other, its_holder in holders.items():
        if hmac.compare_digest(other, digest):
            holder = its_holder
    return holder


def token_digest(token: str) -> bytes:
    """Return the SHA-256 of a token, the only form in which it is stored."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
