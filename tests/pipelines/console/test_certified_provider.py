"""Sign-in by oidc-provider, a certified implementation of OpenID Connect."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from tests.conftest import skip_or_fail
from tests.pipelines.console.console_client import Browser, Console

from forewarn.pipelines.console.openid import OpenIdProvider, OpenIdSettings
from forewarn.pipelines.incidents.api.access_control import Role
from forewarn.pipelines.runtime.clock import SystemClock

MODULE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
MODULE = MODULE / "forewarn" / "oidc-provider-9.13.3/node_modules/oidc-provider/lib/index.js"
SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
REDIRECT = "http://console/sign-in/openid/back"
SECRET = "s3cret of the console: 100%"  # encoded in the header of the token request


@contextmanager
def started(node: Path, groups: list[str], *, claims_in_token: bool) -> Iterator[str]:
    """Start the provider with one person, and yield its issuer."""
    claims = {"email": "ann@example.com", "groups": groups}
    settings = {"client": "console", "secret": SECRET, "redirect": REDIRECT, "claims": claims}
    text = json.dumps(settings | {"claims_in_token": claims_in_token})
    process = subprocess.Popen(
        [node, SCRIPT, MODULE, text], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        yield next(line.strip() for line in lines if line.startswith("http://127.0.0.1:"))
    finally:
        process.terminate()
        process.communicate()


def consent(address: str) -> str:
    """Sign in at the provider and consent, as its forms do; return where it sends the person."""
    with httpx.Client(trust_env=False, timeout=60) as person:
        answer = person.get(address)
        forms = [{"prompt": "login", "login": "ann", "password": "any"}, {"prompt": "consent"}]
        while True:
            while answer.is_redirect:
                target = str(answer.url.join(answer.headers["location"]))
                if target.startswith(REDIRECT):
                    return target
                answer = person.get(target)
            assert re.search(r'name="prompt"', answer.text), answer.text
            answer = person.post(answer.url, data=forms.pop(0))


def sign_in(console: Console, issuer: str, redirect: Callable[[str], str]) -> tuple[Browser, int]:
    settings = (issuer, "console", SECRET, REDIRECT, "email", "groups", {"oncall": Role.ACT})
    console.site.openid = OpenIdProvider(OpenIdSettings(*settings))
    console.site.clock = SystemClock()
    browser = console.browser()
    begun = browser.get("/sign-in/openid").headers["location"]
    back = urlsplit(redirect(begun))
    assert "code" in dict(parse_qsl(back.query))
    answer = browser.get(f"{back.path}?{back.query}", **{"Sec-Fetch-Site": "cross-site"})
    return browser, answer.status_code


@pytest.fixture
def node(require_program: Callable[[str, str], Path]) -> Path:
    if not MODULE.exists():
        skip_or_fail("oidc-provider is missing: .ci/setup_oidc_provider")
    return require_program("node", "nodejs")


@pytest.mark.parametrize("claims_in_token", [True, False])
def test_person_signs_in(console: Console, node: Path, claims_in_token: bool) -> None:
    with started(node, ["oncall"], claims_in_token=claims_in_token) as issuer:
        browser, status = sign_in(console, issuer, consent)
        assert status == 200
        assert "Signed in as ann@example.com. Role: act." in browser.get("/account").text


def test_person_without_a_group_is_refused(console: Console, node: Path) -> None:
    with started(node, ["others"], claims_in_token=True) as issuer:
        browser, status = sign_in(console, issuer, consent)
        assert status == 403
        assert browser.get("/").status_code == 303


def test_code_of_another_sign_in_is_refused(console: Console, node: Path) -> None:
    """The provider itself checks the code verifier."""

    def swapped(begun: str) -> str:
        stolen = dict(parse_qsl(urlsplit(consent(other)).query))["code"]
        return re.sub(r"code=[^&]+", f"code={stolen}", consent(begun))

    with started(node, ["oncall"], claims_in_token=True) as issuer:
        settings = (issuer, "console", SECRET, REDIRECT, "email", "groups", {"oncall": Role.ACT})
        console.site.openid = OpenIdProvider(OpenIdSettings(*settings))
        other = console.browser().get("/sign-in/openid").headers["location"]
        browser, status = sign_in(console, issuer, swapped)
        assert status == 503
        assert browser.get("/").status_code == 303
