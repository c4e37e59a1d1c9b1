"""Configuration table of the console: sign-in by OpenID Connect."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from forewarn.pipelines.config.toml_tables import StrictTable

__all__ = ["ConsoleTable"]

Claim = Annotated[str, Field(min_length=1)]
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class ConsoleTable(StrictTable):
    """How people sign in to the console in addition to tokens."""

    issuer: str = ""
    client_id: str = ""
    address: str = ""
    name_claim: Claim = "email"
    role_claim: Claim = "groups"
    roles: dict[str, Literal["see", "approve", "act", "admin"]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if not self.issuer:
            return self
        for name in ("client_id", "address", "roles"):
            if not getattr(self, name):
                raise ValueError(f"`console.issuer` is set and `console.{name}` is empty")
        for name in ("issuer", "address"):
            url = urlsplit(getattr(self, name))
            is_local = url.scheme == "http" and url.hostname in _LOOPBACK
            if not is_local and (url.scheme != "https" or not url.hostname):
                raise ValueError(
                    f"`console.{name}` is {getattr(self, name)!r}, expected https://HOST, or "
                    "http:// on this machine"
                )
        return self
