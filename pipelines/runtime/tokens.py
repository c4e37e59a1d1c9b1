"""Tokens: which site each belongs to, and which hosts it may speak for."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypeVar

from forewarn.features.errors import InputError

__all__ = ["Speaker", "TokenError", "Tokens", "holder_of", "parse_tokens", "token_digest"]

_Holder = TypeVar("_Holder")


class TokenError(InputError):
    """Tokens that cannot be used."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """Who holds a token.

    Attributes
    ----------
    site : str
    hosts : tuple of str
        Patterns such as `berlin-*`; a batch of another host is refused. `*` is every host.
    """

    site: str
    hosts: tuple[str, ...] = ("*",)

    def speaks_for(self, host: str | None) -> bool:
        """Tell whether this one may say what a host saw; a row without a host is anybody's.

        Examples
        --------
        >>> berlin = Speaker("berlin", ("b-*",))
        >>> berlin.speaks_for("b-17"), berlin.speaks_for("p-1"), berlin.speaks_for(None)
        (True, False, False)
        """
        if "*" in self.hosts:
            return True
        return host is not None and any(fnmatchcase(host, pattern) for pattern in self.hosts)


def parse_tokens(text: str) -> dict[str, str]:
    """Return the site of each token, from `site-a=TOKEN,site-b=TOKEN`.

    Raises
    ------
    TokenError
        If there is none, one has no site, is there twice, or holds what no header can carry.

    Examples
    --------
    >>> parse_tokens("berlin=s3cret")
    {'s3cret': 'berlin'}
    """
    sites: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        site, _, token = (piece.strip() for piece in part.partition("="))
        if not site or not token or token in sites:
            raise TokenError("FOREWARN_TOKENS: expected SITE=TOKEN,..., each token once.")
        if not (token.isascii() and token.isprintable()) or " " in token:
            raise TokenError(
                "FOREWARN_TOKENS: a token holds a blank, a line break or no ASCII, expected "
                "letters, digits and signs."
            )
        sites[token] = site
    if not sites:
        raise TokenError("FOREWARN_TOKENS is not set, expected SITE=TOKEN,...")
    return sites


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens of a collector, of which only digests are kept.

    Attributes
    ----------
    speakers : mapping of bytes to Speaker
        By the SHA-256 of the token.
    """

    speakers: Mapping[bytes, Speaker]

    @classmethod
    def of(cls, sites: Mapping[str, str], hosts: Mapping[str, tuple[str, ...]]) -> Tokens:
        """Join tokens with what the configuration says of their sites.

        Parameters
        ----------
        sites : mapping of str to str
            Site of each token.
        hosts : mapping of str to tuple of str
            Patterns of the hosts of a site. One site alone may do without and speak for all.

        Raises
        ------
        TokenError
            If one of several sites has no hosts, or hosts are those of no site.
        """
        names = sorted(set(sites.values()))
        strange = sorted(set(hosts) - set(names))
        if strange:
            raise TokenError(
                f"`collector.hosts` names site {strange[0]!r}, expected one of FOREWARN_TOKENS: "
                f"{', '.join(names)}."
            )
        without = [name for name in names if name not in hosts]
        if without and len(names) > 1:
            raise TokenError(
                f"`collector.hosts` has no hosts of site {without[0]!r}: with several sites, "
                f"expected patterns for each, such as hosts = {{{without[0]} = ["
                f'"{without[0]}-*"]}}.'
            )
        return cls({token_digest(t): Speaker(s, hosts.get(s, ("*",))) for t, s in sites.items()})

    def speaker(self, token: str) -> Speaker | None:
        """Return whose token this is; every one is compared, at the same speed."""
        return holder_of(self.speakers, token)


def holder_of(holders: Mapping[bytes, _Holder], token: str) -> _Holder | None:
    """Return whose token this is; every one is compared, at the same speed.

    Parameters
    ----------
    holders : mapping of bytes to anything
        By the digest of the token.
    token : str
    """
    digest, holder = token_digest(token), None
    for other, its_holder in holders.items():
        if hmac.compare_digest(other, digest):
            holder = its_holder
    return holder


def token_digest(token: str) -> bytes:
    """Return the SHA-256 of a token, which is all that is kept of it."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()
