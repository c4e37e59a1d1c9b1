"""Access control of the API: roles and the token digests that hold them."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from forewarn.pipelines.serving.tokens import (
    TokenError,
    find_holder,
    parse_hosts,
    token_digest,
    token_entries,
)
from forewarn.response.state.finding import Provenance

__all__ = [
    "TOKENS_VARIABLE",
    "AccessControl",
    "Role",
    "TokenHolder",
    "is_holder_name",
    "new_token",
    "parse_access",
]

TOKENS_VARIABLE: Final = "FOREWARN_RESPOND_TOKENS"
"""Environment variable with `NAME:ROLE[:HOSTLIST]=SHA256HEX,...`."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")
_RESERVED_NAME: Final = "forewarn"  # the ledger's name for forewarn itself


class Role(StrEnum):
    """Permission level of a token.

    `SEE`, `APPROVE`, `ACT` and `ADMIN` are ordered: each includes the ones before it. `REPORT` is
    for machines that send findings; it permits no reading. `ACT` and `ADMIN` include `REPORT`.
    """

    REPORT = "report"
    SEE = "see"
    APPROVE = "approve"
    ACT = "act"
    ADMIN = "admin"

    def includes(self, needed: Role) -> bool:
        """Tell whether this role permits what another role permits.

        Examples
        --------
        >>> Role.ACT.includes(Role.SEE), Role.REPORT.includes(Role.SEE)
        (True, False)
        >>> Role.SEE.includes(Role.REPORT), Role.ACT.includes(Role.REPORT)
        (False, True)
        """
        if Role.REPORT in (self, needed):
            return self is needed or self in (Role.ACT, Role.ADMIN)
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Name, role and hosts that belong to a token.

    Attributes
    ----------
    name : str
        Value of `who` in the ledger.
    role : Role
    hosts : frozenset of str or None
        Machines that the token may report findings of. None: any machine; such a token may be
        shared.
    """

    name: str
    role: Role
    hosts: frozenset[str] | None = None

    @property
    def provenance(self) -> Provenance:
        """Return the provenance of findings sent with this token."""
        return Provenance.SHARED if self.hosts is None else Provenance.HOST

    def may_report(self, machine: str) -> bool:
        """Tell whether the token may report findings of a machine."""
        return self.hosts is None or machine in self.hosts


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Token holders by token digest.

    Attributes
    ----------
    holders : mapping of bytes to TokenHolder
    """

    holders: Mapping[bytes, TokenHolder]

    def holder(self, token: str) -> TokenHolder | None:
        """Return the holder of a token; compare all digests in constant time."""
        return find_holder(self.holders, token)


def parse_access(text: str) -> AccessControl:
    """Parse `NAME:ROLE[:HOSTLIST]=SHA256HEX,...`.

    A name may have several tokens of one role, which allows tokens to be rotated. HOSTLIST is a
    Slurm host list such as `node-[01-16],login`.

    Raises
    ------
    TokenError
        If there is no entry or an entry is invalid. The message does not repeat a possible token.

    Examples
    --------
    >>> list(parse_access(f"ann:act={'0' * 64}").holders.values())
    [TokenHolder(name='ann', role=<Role.ACT: 'act'>, hosts=None)]
    """
    holders: dict[bytes, TokenHolder] = {}
    roles: dict[str, Role] = {}
    for number, entry in enumerate(token_entries(text), 1):
        digest, holder = _entry(entry, number)
        if digest in holders:
            raise TokenError(
                f"{TOKENS_VARIABLE}: entry {number} repeats the digest of another entry."
            )
        if roles.setdefault(holder.name, holder.role) is not holder.role:
            raise TokenError(
                f"{TOKENS_VARIABLE}: entry {number} gives {holder.name!r} a second role, "
                "expected one role per name."
            )
        holders[digest] = holder
    if not holders:
        raise TokenError(f"{TOKENS_VARIABLE} is not set, expected NAME:ROLE=SHA256HEX,...")
    return AccessControl(holders)


def is_holder_name(name: str) -> bool:
    """Tell whether a name may stand in the ledger as that of a person.

    Examples
    --------
    >>> is_holder_name("ann@example.com"), is_holder_name("forewarn"), is_holder_name("a b")
    (True, False, False)
    """
    return bool(_NAME.fullmatch(name)) and name.lower() != _RESERVED_NAME


def new_token() -> tuple[str, str]:
    """Return a random token and its digest in the form that `parse_access` expects."""
    token = secrets.token_urlsafe(32)
    return token, token_digest(token).hex()


def _entry(entry: str, number: int) -> tuple[bytes, TokenHolder]:
    head, _, digest = (piece.strip() for piece in entry.partition("="))
    name, role, *more = (*(piece.strip() for piece in head.split(":", 2)), "")[:3]
    hosts = more[0] if head.count(":") > 1 else None
    # Do not print the entry: its name or role may be a token put in the wrong place.
    if not is_holder_name(name):
        raise TokenError(
            f"{TOKENS_VARIABLE}: the name of entry {number} is invalid, expected at most 64 "
            f"letters, digits, `.`, `_`, `@` and `-`, and not {_RESERVED_NAME!r}."
        )
    if role not in list(Role):
        raise TokenError(
            f"{TOKENS_VARIABLE}: the role of entry {number} is unknown, expected one of "
            f"{', '.join(Role)}."
        )
    if not _DIGEST.fullmatch(digest):
        raise TokenError(
            f"{TOKENS_VARIABLE}: entry {number} has no SHA-256 digest, expected 64 hexadecimal "
            "digits (not the token itself)."
        )
    if hosts is not None and role != Role.REPORT:
        raise TokenError(
            f"{TOKENS_VARIABLE}: entry {number} has hosts, expected them with the role "
            f"`{Role.REPORT}` only."
        )
    host_names = None if hosts is None else parse_hosts(hosts, f"{TOKENS_VARIABLE}: entry {number}")
    return bytes.fromhex(digest), TokenHolder(name, Role(role), host_names)
