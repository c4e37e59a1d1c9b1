"""A small identity provider of OpenID Connect on loopback."""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import parse_qs, urlsplit

from authlib.oauth2.rfc7636 import create_s256_code_challenge
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "console", "s3cret"


@cache
def new_key(number: int) -> RSAKey:
    """Return a key; equal numbers give the same one, since making one takes a second."""
    del number
    return RSAKey.generate_key(2048, {"kid": "1"})


@dataclass
class IdentityProvider:
    """Issues a code for each authorization request, and one ID token for the code.

    `claims` are those of the person who signs in, `forged` replaces claims of the token. `info` is
    the answer of the userinfo endpoint; without it there is none.
    """

    issuer: str
    claims: dict[str, Any] = field(
        default_factory=lambda: {"email": "ann@example.com", "groups": ["oncall"]}
    )
    forged: dict[str, Any] = field(default_factory=dict)
    info: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: new_key(0))
    signing: RSAKey | None = None
    _requests: dict[str, dict[str, str]] = field(default_factory=dict)

    def consent(self, address: str) -> tuple[str, str]:
        """Return state and code, as the provider would add them to the redirect."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        code = secrets.token_urlsafe(16)
        self._requests[code] = query
        return query["state"], code

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.get("/.well-known/openid-configuration")
        async def configuration() -> dict[str, str]:
            paths = {"authorization": "authorize", "token": "token"}
            ends = {f"{name}_endpoint": f"{self.issuer}/{path}" for name, path in paths.items()}
            info = {"userinfo_endpoint": f"{self.issuer}/info"} if self.info else {}
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys", **ends, **info}

        @app.get("/info")
        async def info(request: Request) -> JSONResponse:
            is_known = request.headers["authorization"] == "Bearer access"
            return JSONResponse(self.info if is_known else {}, 200 if is_known else 401)

        @app.get("/keys")
        async def keys() -> dict[str, Any]:
            return {"keys": [self.key.as_dict(private=False)]}

        @app.post("/token")
        async def token(request: Request) -> JSONResponse:
            body = {k: v[0] for k, v in parse_qs((await request.body()).decode()).items()}
            asked = self._requests.pop(body["code"], None)
            basic = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
            is_client = request.headers["authorization"] == f"Basic {basic}"
            challenge = create_s256_code_challenge(body["code_verifier"])
            if asked is None or not is_client or asked["code_challenge"] != challenge:
                return JSONResponse({"error": "invalid_grant"}, 400)
            return JSONResponse({"id_token": self._token(asked["nonce"]), "access_token": "access"})

        return app

    def _token(self, nonce: str) -> str:
        now = int(time.time())
        claims: dict[str, Any] = {"iss": self.issuer, "aud": CLIENT, "sub": "1", "nonce": nonce}
        claims |= {"iat": now, "exp": now + 60, **self.claims, **self.forged}
        return jwt.encode({"alg": "RS256", "kid": "1"}, claims, self.signing or self.key)
