"""Who may do what over the API: roles, and the digests of tokens that have them."""

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

__all__ = ["TOKENS_VARIABLE", "AccessControl", "Role", "TokenHolder", "new_token", "parse_access"]

TOKENS_VARIABLE: Final = "FOREWARN_RESPOND_TOKENS"
"""Variable of the environment with `NAME:ROLE[:HOSTLIST]=SHA256HEX,...`."""

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")
_RESERVED_NAME: Final = "forewarn"  # in the ledger it is us, and no person


class Role(StrEnum):
    """What a token is for.

    Of `SEE`, `APPROVE`, `ACT` and `ADMIN` each may do what those before it may. `REPORT` is for
    machines that send findings: it sends them, and reads nothing. Who may act may report, too.
    """

    REPORT = "report"
    SEE = "see"
    APPROVE = "approve"
    ACT = "act"
    ADMIN = "admin"

    def includes(self, needed: Role) -> bool:
        """Tell whether whoever has this role may do what another is for.

        Examples
        --------
        >>> Role.ACT.includes(Role.SEE), Role.REPORT.includes(Role.SEE)
        (True, False)
        >>> Role.SEE.includes(Role.REPORT), Role.ACT.includes(Role.REPORT)
        (False, True)
        """
        if Role.REPORT in (self, needed):
            return self is needed or self in (Role.ACT, Role.ADMIN)
        ladder = list(Role)
        return ladder.index(self) >= ladder.index(needed)


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Who has a token.

    Attributes
    ----------
    name : str
        The `who` of the ledger.
    role : Role
    hosts : frozenset of str or None
        Machines that it may report findings of; None: any, and others may have the same token.
    """

    name: str
    role: Role
    hosts: frozenset[str] | None = None

    @property
    def provenance(self) -> Provenance:
        """Return who answers for what comes with the token."""
        return Provenance.SHARED if self.hosts is None else Provenance.HOST

    def may_report(self, machine: str) -> bool:
        """Tell whether it may report findings of a machine."""
        return self.hosts is None or machine in self.hosts


@dataclass(frozen=True, slots=True)
class AccessControl:
    """Digests of tokens, and who has them.

    Attributes
    ----------
    holders : mapping of bytes to Holder
    """

    holders: Mapping[bytes, TokenHolder]

    def holder(self, token: str) -> TokenHolder | None:
        """Return whose token this is; every one is compared, at the same speed."""
        return find_holder(self.holders, token)


def parse_access(text: str) -> AccessControl:
    """Return who may do what, from `NAME:ROLE[:HOSTLIST]=SHA256HEX,...`.

    A name may have several tokens of one role, so that they can be changed one after the other.
    HOSTLIST is a host list as Slurm writes it, `node-[01-16],login`.

    Raises
    ------
    TokenError
        If there is none, or an entry is wrong; it does not repeat what might be a token.

    Examples
    --------
    >>> list(parse_access(f"ann:act={'0' * 64}").holders.values())
    [Holder(name='ann', role=<Role.ACT: 'act'>, hosts=None)]
    """
    holders: dict[bytes, TokenHolder] = {}
    roles: dict[str, Role] = {}
    for number, entry in enumerate(token_entries(text), 1):
        digest, holder = _entry(entry, number)
        if digest in holders:
            raise TokenError(f"{TOKENS_VARIABLE}: entry {number} has the digest of another one.")
        if roles.setdefault(holder.name, holder.role) is not holder.role:
            raise TokenError(
                f"{TOKENS_VARIABLE}: entry {number} gives {holder.name!r} a second role, expected one."
            )
        holders[digest] = holder
    if not holders:
        raise TokenError(f"{TOKENS_VARIABLE} is not set, expected NAME:ROLE=SHA256HEX,...")
    return AccessControl(holders)


def new_token() -> tuple[str, str]:
    """Return a token that nobody can guess, and its digest as `parse_access` takes it."""
    token = secrets.token_urlsafe(32)
    return token, token_digest(token).hex()


def _entry(entry: str, number: int) -> tuple[bytes, TokenHolder]:
    head, _, digest = (piece.strip() for piece in entry.partition("="))
    name, role, *more = (*(piece.strip() for piece in head.split(":", 2)), "")[:3]
    hosts = more[0] if head.count(":") > 1 else None
    # Whoever puts a token in the place of a name or a role must not read it in a log.
    if not _NAME.fullmatch(name) or name.lower() == _RESERVED_NAME:
        raise TokenError(
            f"{TOKENS_VARIABLE}: the name of entry {number} cannot be used, expected letters, digits, `.`, "
            f"`_`, `@` and `-`, at most 64, and not {_RESERVED_NAME!r}."
        )
    if role not in list(Role):
        raise TokenError(
            f"{TOKENS_VARIABLE}: the role of entry {number} is none, expected one of {', '.join(Role)}."
        )
    if not _DIGEST.fullmatch(digest):
        raise TokenError(
            f"{TOKENS_VARIABLE}: entry {number} has no SHA-256, expected 64 hexadecimal digits and not the "
            "token itself."
        )
    if hosts is not None and role != Role.REPORT:
        raise TokenError(
            f"{TOKENS_VARIABLE}: entry {number} has hosts, expected them of the role `{Role.REPORT}` only."
        )
    named = None if hosts is None else parse_hosts(hosts, f"{TOKENS_VARIABLE}: entry {number}")
    return bytes.fromhex(digest), TokenHolder(name, Role(role), named)
