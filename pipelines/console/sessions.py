"""Sessions of signed-in people, their form tokens, and rate limits; all in memory."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from forewarn.features.time_units import HOUR, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.access_control import TokenHolder
from forewarn.pipelines.serving.request_bodies import RefusedError

__all__ = ["SESSION_LIFETIME", "RateLimit", "Session", "Sessions"]

SESSION_LIFETIME: Final = Nanoseconds(12 * HOUR)
"""From sign-in, however much the session is used: a shift."""

_MAX_SESSIONS: Final = 1_000
_MAX_USED_FORMS: Final = 1_000
_MAX_KEYS: Final = 10_000


@dataclass(slots=True)
class Session:
    """A signed-in person.

    Attributes
    ----------
    holder : TokenHolder
        Name and role.
    ends_at : int
        Nanoseconds since 1970 UTC.
    """

    holder: TokenHolder
    ends_at: Nanoseconds
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _used: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def form_token(self, path: str) -> str:
        """Return a token for one submission of the form that posts to a path."""
        nonce = secrets.token_urlsafe(16)
        return f"{nonce}.{self._signature(nonce, path)}"

    def use_form(self, token: str, path: str) -> None:
        """Accept the token of a form once.

        Raises
        ------
        RefusedError
            403 if it is not of this session and path, 409 if it was used before.
        """
        nonce, _, signature = token.partition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(nonce, path).encode()):
            raise RefusedError(403, "this form is not of your session; open the page again")
        with self._lock:
            if nonce in self._used:
                raise RefusedError(409, "this form was sent before; open the page again")
            self._used[nonce] = None
            while len(self._used) > _MAX_USED_FORMS:
                self._used.popitem(last=False)

    def _signature(self, nonce: str, path: str) -> str:
        return hmac.new(self._secret, f"{nonce}\n{path}".encode(), "sha256").hexdigest()


class Sessions:
    """Sessions by the random name in their cookie. They end when the process ends."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, Session] = OrderedDict()
        self._lock = Lock()

    def start(self, holder: TokenHolder, now: Nanoseconds) -> str:
        """Start a session and return its name; beyond a thousand the oldest one ends."""
        name = secrets.token_urlsafe(32)
        with self._lock:
            self._sessions[name] = Session(holder, Nanoseconds(now + SESSION_LIFETIME))
            while len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return name

    def find(self, name: str, now: Nanoseconds) -> Session | None:
        """Return a session that has not ended; None otherwise."""
        with self._lock:
            session = self._sessions.get(name)
            if session is not None and now >= session.ends_at:
                del self._sessions[name]
                return None
        return session

    def end(self, name: str) -> None:
        """End a session."""
        with self._lock:
            self._sessions.pop(name, None)


class RateLimit:
    """Token bucket for each key.

    Parameters
    ----------
    burst : int
        Requests at once.
    per_minute : float
        Requests that are allowed again in a minute.
    """

    def __init__(self, burst: int, per_minute: float) -> None:
        self._burst, self._per_ns = float(burst), per_minute / (60 * SECOND)
        self._levels: OrderedDict[Hashable, tuple[float, Nanoseconds]] = OrderedDict()
        self._lock = Lock()

    def spend(self, key: Hashable, now: Nanoseconds) -> None:
        """Count a request.

        Raises
        ------
        RefusedError
            429 if the bucket of this key is empty.
        """
        with self._lock:
            level, at = self._levels.pop(key, (self._burst, now))
            level = min(self._burst, level + max(now - at, 0) * self._per_ns)
            self._levels[key] = max(level - 1.0, 0.0), now
            while len(self._levels) > _MAX_KEYS:
                self._levels.popitem(last=False)
        if level < 1.0:
            raise RefusedError(429, "too many requests, try again in a minute")
