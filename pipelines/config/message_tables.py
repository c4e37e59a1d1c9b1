"""Configuration tables for messages: the receivers that forewarn tells about incidents."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import AfterValidator, Field, model_validator

from forewarn.pipelines.config.toml_tables import StrictTable

__all__ = ["ALERT_URL_RECEIVER", "MessagesTable", "ReceiverName", "check_address", "is_loopback"]

ALERT_URL_RECEIVER: Final = "alert_url"
"""Name of the receiver whose address is in FOREWARN_ALERT_URL."""

VariableName = Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,127})?$")]
Address = Annotated[str, Field(pattern=r"^[!-~]{1,254}$")]
_PAGERDUTY: Final = "https://events.pagerduty.com/v2/enqueue"
_ENCRYPTED: Final = {"https", "smtps", "smtp"}  # `smtp` requires STARTTLS


def _receiver_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) or name == ALERT_URL_RECEIVER:
        raise ValueError(
            f"expected a receiver name of letters, digits, `_` and `-`, not {ALERT_URL_RECEIVER!r}"
        )
    return name


ReceiverName = Annotated[str, AfterValidator(_receiver_name)]


class MessagesTable(StrictTable):
    """A receiver of messages. Secrets are in environment variables that the table names."""

    kind: Literal["webhook", "slack", "email", "pagerduty", "alertmanager"]
    url: str = ""
    url_variable: VariableName = ""
    secret_variable: VariableName = ""
    ca: str = ""
    min_severity: Literal["notice", "warning", "error", "critical"] = "warning"
    page_severity: Literal["warning", "error", "critical"] = "critical"
    sender: Address | Literal[""] = ""
    recipients: tuple[Address, ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.kind == "slack" and self.url:
            raise ValueError("`url` of a Slack webhook is a secret, expected `url_variable`")
        if bool(self.url) == bool(self.url_variable) and self.kind != "pagerduty":
            raise ValueError(f"a receiver of kind {self.kind!r} needs `url` or `url_variable`")
        if self.kind in ("webhook", "pagerduty") and not self.secret_variable:
            raise ValueError(f"a receiver of kind {self.kind!r} needs `secret_variable`")
        if (self.kind == "email") != bool(self.sender and self.recipients):
            raise ValueError("expected `sender` and `recipients` with the kind 'email', only there")
        if self.url:
            address = check_address(self.url, email=self.kind == "email")
            if address.password is not None or (address.username and self.kind != "email"):
                raise ValueError("`url` contains a user or password, expected `url_variable`")
            if self.kind == "email" and bool(address.username) != bool(self.secret_variable):
                raise ValueError("a user in `url` and `secret_variable` belong together")
        return self

    @property
    def default_url(self) -> str:
        """Address if none is in the environment."""
        return self.url or (_PAGERDUTY if self.kind == "pagerduty" else "")


def is_loopback(host: str) -> bool:
    """Tell whether a host is this machine.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("127.example.com")
    (True, False)
    """
    return host in ("localhost", "::1") or bool(re.fullmatch(r"127(\.\d{1,3}){3}", host))


def check_address(text: str, *, email: bool) -> SplitResult:
    """Return the parts of an address that is encrypted or on this machine.

    Raises
    ------
    ValueError
        If it is anything else. The message does not repeat it: an address may be a secret.
    """
    schemes = ("smtps", "smtp") if email else ("https", "http")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise ValueError("the address of a receiver is not a URL") from None
    if parts.scheme not in schemes or not host or not text.isascii() or not text.isprintable():
        raise ValueError(f"the address of a receiver is not one of {schemes[0]}://HOST[:PORT]")
    if parts.scheme not in _ENCRYPTED and not is_loopback(host):
        raise ValueError("the address of a receiver uses http://, which is for this machine only")
    return parts
