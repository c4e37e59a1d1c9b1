"""Sign-in by OpenID Connect: authorization code with PKCE, and an ID token that is verified."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final
from urllib.parse import quote_plus

import httpx
from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from forewarn.features.time_units import MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.access_control import Role, TokenHolder, is_holder_name
from forewarn.pipelines.serving.request_bodies import RefusedError

__all__ = ["OpenIdProvider", "OpenIdSettings"]

_ALGORITHMS: Final = ["RS256", "PS256", "ES256", "EdDSA"]  # never `none`, and no shared secret
_LIFETIME: Final = Nanoseconds(10 * MINUTE)  # of a sign-in, until the person comes back
_LEEWAY: Final = 60  # seconds between the clocks
_MAX_PENDING: Final = 1_000
_TIMEOUT: Final = 10.0  # seconds
_NO_ANSWER: Final = "the identity provider does not answer as expected"


@dataclass(frozen=True, slots=True)
class OpenIdSettings:
    """The provider, and what its claims mean here.

    Attributes
    ----------
    issuer, client_id, secret : str
    redirect : str
        Address to which the provider sends people back.
    name_claim, role_claim : str
    roles : mapping of str to Role
        Role by a value of `role_claim`.
    """

    issuer: str
    client_id: str
    secret: str
    redirect: str
    name_claim: str
    role_claim: str
    roles: Mapping[str, Role]


@dataclass(frozen=True, slots=True)
class _SignIn:
    """A sign-in that has begun."""

    state: str
    nonce: str
    verifier: str
    target: str
    ends_at: Nanoseconds


@dataclass(slots=True)
class OpenIdProvider:
    """Sign-ins by one provider.

    Attributes
    ----------
    settings : OpenIdSettings
    """

    settings: OpenIdSettings
    _pending: OrderedDict[str, _SignIn] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    async def begin(self, target: str, now: Nanoseconds) -> tuple[str, str]:
        """Return the name of a sign-in for a cookie, and the address of the provider.

        Raises
        ------
        RefusedError
            503 if the provider does not answer.
        """
        endpoint = _address(await self._configuration(), "authorization_endpoint")
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        sign_in = _SignIn(state, nonce, verifier, target, Nanoseconds(now + _LIFETIME))
        name = secrets.token_urlsafe(32)
        with self._lock:
            self._pending[name] = sign_in
            while len(self._pending) > _MAX_PENDING:
                self._pending.popitem(last=False)
        parameters = {
            "response_type": "code",
            "client_id": self.settings.client_id,
            "redirect_uri": self.settings.redirect,
            "scope": "openid email profile",
            "state": sign_in.state,
            "nonce": sign_in.nonce,
            "code_challenge": create_s256_code_challenge(sign_in.verifier),
            "code_challenge_method": "S256",
        }
        return name, str(add_params_to_uri(endpoint, list(parameters.items())))

    async def finish(
        self, name: str, state: str, code: str, now: Nanoseconds
    ) -> tuple[TokenHolder, str]:
        """Return who has signed in, and the page that they wanted.

        Raises
        ------
        RefusedError
            403 if this browser did not begin it, or the person has no role; 503 if the provider
            does not answer.
        """
        with self._lock:
            sign_in = self._pending.pop(name, None)
        if sign_in is None or now >= sign_in.ends_at:
            raise RefusedError(403, "this sign-in has expired, begin again")
        if not secrets.compare_digest(sign_in.state.encode(), state.encode(errors="replace")):
            raise RefusedError(403, "this sign-in was not begun by this browser")
        claims = await self._claims(sign_in, code, now)
        return self._holder(claims), sign_in.target

    def _holder(self, claims: Mapping[str, Any]) -> TokenHolder:
        settings, values = self.settings, claims.get(self.settings.role_claim)
        named = [values] if isinstance(values, str) else values if isinstance(values, list) else []
        roles = [settings.roles[value] for value in named if value in settings.roles]
        if not roles:
            raise RefusedError(403, "your account has no role here; ask for a group of the console")
        name = claims.get(settings.name_claim)
        if not isinstance(name, str) or not is_holder_name(name):
            raise RefusedError(403, f"your account has no usable `{settings.name_claim}`")
        return TokenHolder(name, max(roles, key=list(Role).index))

    async def _claims(self, sign_in: _SignIn, code: str, now: Nanoseconds) -> Mapping[str, Any]:
        """Exchange a code for an ID token and verify it; add the claims that it lacks."""
        settings, provider = self.settings, await self._configuration()
        answer = await self._fetch(
            "POST",
            _address(provider, "token_endpoint"),
            data={
                "grant_type": "authorization_code",
                "code": code,
                "redirect_uri": settings.redirect,
                "code_verifier": sign_in.verifier,
            },
            # RFC 6749, section 2.3.1: both are encoded before they are joined.
            auth=(quote_plus(settings.client_id), quote_plus(settings.secret)),
        )
        keys = await self._fetch("GET", _address(provider, "jwks_uri"))
        options = {
            "iss": {"essential": True, "value": settings.issuer},
            "aud": {"essential": True, "value": settings.client_id},
        }
        params = {"nonce": sign_in.nonce, "client_id": settings.client_id}
        try:
            known = KeySet.import_key_set(keys)  # type: ignore[arg-type]  # it checks the form
            token = jwt.decode(str(answer["id_token"]), known, algorithms=_ALGORITHMS)
            claims = CodeIDToken(token.claims, token.header, options, params)
            claims.validate(now=now // SECOND, leeway=_LEEWAY)
        except (KeyError, ValueError, TypeError, JoseError) as error:
            raise RefusedError(403, f"the ID token is not valid ({type(error).__name__})") from None
        absent = {settings.name_claim, settings.role_claim} - claims.keys()
        if not absent or "userinfo_endpoint" not in provider:
            return dict(claims)
        info = await self._user_info(provider, str(answer.get("access_token")), claims["sub"])
        return dict(claims) | {name: info[name] for name in absent & info.keys()}

    async def _user_info(
        self, provider: Mapping[str, Any], token: str, subject: str
    ) -> Mapping[str, Any]:
        """Return the claims that the provider gives for an access token (OpenID Connect 5.3)."""
        headers = {"Authorization": f"Bearer {token}"}
        info = await self._fetch("GET", _address(provider, "userinfo_endpoint"), headers=headers)
        if info.get("sub") != subject:
            raise RefusedError(403, "the provider names another person than the ID token")
        return info

    async def _configuration(self) -> dict[str, Any]:
        address = f"{self.settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        provider = await self._fetch("GET", address)
        if provider.get("issuer") != self.settings.issuer:
            raise RefusedError(503, _NO_ANSWER)
        return provider

    async def _fetch(self, method: str, address: str, **options: Any) -> dict[str, Any]:
        try:
            async with httpx.AsyncClient(timeout=_TIMEOUT) as client:
                response = await client.request(method, address, **options)
            response.raise_for_status()
            answer = response.json()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError):
            raise RefusedError(503, _NO_ANSWER) from None
        if not isinstance(answer, dict):
            raise RefusedError(503, _NO_ANSWER)
        return answer


def _address(provider: Mapping[str, Any], name: str) -> str:
    """Return an address from the configuration of a provider."""
    if not isinstance(provider.get(name), str):
        raise RefusedError(503, _NO_ANSWER)
    return str(provider[name])
