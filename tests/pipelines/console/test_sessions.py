from __future__ import annotations

import pytest

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.pipelines.console.sessions import SESSION_LIFETIME, RateLimit, Sessions
from forewarn.pipelines.incidents.api.access_control import Role, TokenHolder
from forewarn.pipelines.serving.request_bodies import RefusedError

ANN = TokenHolder("ann", Role.ACT)
START = Nanoseconds(0)


def test_session_ends_after_its_lifetime() -> None:
    sessions = Sessions()
    name = sessions.start(ANN, START)
    assert sessions.find(name, Nanoseconds(SESSION_LIFETIME - 1)) is not None
    assert sessions.find(name, SESSION_LIFETIME) is None
    assert sessions.find(name, START) is None


def test_oldest_session_ends_beyond_a_thousand() -> None:
    sessions = Sessions()
    first = sessions.start(ANN, START)
    for _ in range(1000):
        last = sessions.start(ANN, START)
    assert sessions.find(first, START) is None
    assert sessions.find(last, START) is not None


def test_form_token_is_of_its_session_and_path() -> None:
    sessions = Sessions()
    one, other = (sessions.find(sessions.start(ANN, START), START) for _ in range(2))
    assert one is not None
    assert other is not None
    token = one.form_token("/incident/1/undo")
    for session, path in ((other, "/incident/1/undo"), (one, "/incident/2/undo")):
        with pytest.raises(RefusedError, match="not of your session"):
            session.use_form(token, path)
    one.use_form(token, "/incident/1/undo")
    with pytest.raises(RefusedError, match="sent before"):
        one.use_form(token, "/incident/1/undo")


@pytest.mark.parametrize("token", ["", ".", "a", "a.b", "ä.ö"])
def test_forged_form_token_is_refused(token: str) -> None:
    sessions = Sessions()
    session = sessions.find(sessions.start(ANN, START), START)
    assert session is not None
    with pytest.raises(RefusedError, match="not of your session"):
        session.use_form(token, "/")


def test_rate_limit_refills() -> None:
    limit = RateLimit(2, 1)
    for _ in range(2):
        limit.spend("a", START)
    with pytest.raises(RefusedError, match="too many"):
        limit.spend("a", START)
    limit.spend("b", START)
    limit.spend("a", Nanoseconds(MINUTE))
    with pytest.raises(RefusedError, match="too many"):
        limit.spend("a", Nanoseconds(MINUTE))
