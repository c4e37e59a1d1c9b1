from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn
from tests.pipelines.console.console_client import Browser, Console
from tests.pipelines.console.identity_provider import (
    CLIENT,
    SECRET,
    IdentityProvider,
    new_key,
)

from forewarn.pipelines.console.openid import OpenIdProvider, OpenIdSettings
from forewarn.pipelines.incidents.api.access_control import Role
from forewarn.pipelines.runtime.clock import SystemClock

BACK = "/sign-in/openid/back"


@pytest.fixture
def provider(free_port: Callable[[], int], console: Console) -> Iterator[IdentityProvider]:
    port = free_port()
    identities = IdentityProvider(f"http://127.0.0.1:{port}")
    config = uvicorn.Config(identities.app(), port=port, log_config=None, ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    roles = {"oncall": Role.ACT, "guests": Role.SEE}
    settings = (identities.issuer, CLIENT, SECRET, f"http://console{BACK}", "email", "groups")
    console.site.openid = OpenIdProvider(OpenIdSettings(*settings, roles))
    console.site.clock = SystemClock()
    yield identities
    server.should_exit = True
    thread.join()


def sign_in(console: Console, provider: IdentityProvider, **changed: str) -> tuple[Browser, Any]:
    browser = console.browser()
    state, code = provider.consent(begin(browser))
    values = {"state": state, "code": code} | changed
    query = "&".join(f"{name}={value}" for name, value in values.items())
    return browser, browser.get(f"{BACK}?{query}", **{"Sec-Fetch-Site": "cross-site"})


def begin(browser: Browser) -> str:
    answer = browser.get("/sign-in/openid?to=/incidents")
    assert answer.status_code == 303
    return answer.headers["location"]


def test_person_signs_in_with_the_highest_role(
    console: Console, provider: IdentityProvider
) -> None:
    provider.claims["groups"] = ["guests", "oncall", "others"]
    browser, answer = sign_in(console, provider)
    assert '<meta http-equiv="refresh" content="0;url=/incidents">' in answer.text
    cookie = next(c for c in answer.headers.get_list("set-cookie") if "forewarn_session" in c)
    assert "SameSite=strict" in cookie
    assert "HttpOnly" in cookie
    assert "Signed in as ann@example.com. Role: act." in browser.get("/account").text
    assert "Sign in with your account" in console.browser().get("/sign-in").text


def test_code_works_once(console: Console, provider: IdentityProvider) -> None:
    browser = console.browser()
    state, code = provider.consent(begin(browser))
    assert browser.get(f"{BACK}?state={state}&code={code}").status_code == 200
    other = console.browser()
    assert other.get(f"{BACK}?state={state}&code={code}").status_code == 403


def test_sign_in_belongs_to_the_browser_that_began_it(
    console: Console, provider: IdentityProvider
) -> None:
    state, code = provider.consent(begin(console.browser()))
    victim = console.browser()
    begin(victim)
    assert victim.get(f"{BACK}?state={state}&code={code}").status_code == 403
    assert victim.get("/").status_code == 303


@pytest.mark.parametrize(
    "forged",
    [
        {"nonce": "other"},
        {"iss": "http://evil.example"},
        {"aud": "other"},
        {"exp": 1_000_000_000},
        {"email": "forewarn"},
        {"email": "a <b>"},
        {"email": None},
        {"groups": ["others"]},
        {"groups": {"oncall": 1}},
    ],
)
def test_unusable_tokens_start_no_session(
    console: Console, provider: IdentityProvider, forged: dict[str, Any]
) -> None:
    provider.forged = forged
    browser, answer = sign_in(console, provider)
    assert answer.status_code == 403
    assert browser.get("/").status_code == 303


def test_claims_that_the_token_lacks_come_from_the_provider(
    console: Console, provider: IdentityProvider
) -> None:
    provider.claims = {"email": "ann@example.com"}
    provider.info = {"sub": "1", "email": "eve@example.com", "groups": ["oncall"]}
    browser, answer = sign_in(console, provider)
    assert answer.status_code == 200
    assert "Signed in as ann@example.com. Role: act." in browser.get("/account").text


@pytest.mark.parametrize("info", [{"sub": "2", "groups": ["oncall"]}, {"groups": ["oncall"]}])
def test_claims_of_another_person_are_refused(
    console: Console, provider: IdentityProvider, info: dict[str, Any]
) -> None:
    provider.claims, provider.info = {"email": "ann@example.com"}, info
    browser, answer = sign_in(console, provider)
    assert answer.status_code == 403
    assert browser.get("/").status_code == 303


def test_token_of_another_key_is_refused(console: Console, provider: IdentityProvider) -> None:
    provider.signing = new_key(1)
    assert sign_in(console, provider)[1].status_code == 403


def test_wrong_state_and_refusal(console: Console, provider: IdentityProvider) -> None:
    assert sign_in(console, provider, state="x")[1].status_code == 403
    assert sign_in(console, provider, code="x")[1].status_code == 503
    assert sign_in(console, provider, error="access_denied")[1].status_code == 403


def test_provider_that_does_not_answer(console: Console) -> None:
    places = ("http://127.0.0.1:1", CLIENT, SECRET, "http://console")
    console.site.openid = OpenIdProvider(OpenIdSettings(*places, "email", "groups", {}))
    assert console.browser().get("/sign-in/openid").status_code == 503


def test_console_without_provider(console: Console) -> None:
    assert console.browser().get("/sign-in/openid").status_code == 404
    assert "your account" not in console.browser().get("/sign-in").text
