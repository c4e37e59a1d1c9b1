"""A console over a ledger and a list in files, called in the same process."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from tests.pipelines.incidents.api.api_client import Api, SetClock, make_api

from forewarn.pipelines.console.console_app import make_console
from forewarn.pipelines.console.console_site import ConsoleSite
from forewarn.pipelines.storage.evidence.daily_lists import DailyLists


@dataclass
class Browser:
    """A browser without scripts."""

    app: Any
    cookies: dict[str, str] = field(default_factory=dict)

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        async def respond() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(
                transport=transport, base_url="http://console", cookies=self.cookies
            ) as client:
                response = await client.request(method, path, **options)
                self.cookies = dict(client.cookies)
                return response

        return asyncio.run(respond())

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, values: dict[str, str], **headers: str) -> httpx.Response:
        return self.send("POST", path, data=values, headers=headers)

    def sign_in(self, role: str) -> Browser:
        assert self.post("/sign-in", {"token": f"{role}-token"}).status_code == 303
        return self

    def form(self, page: str, action: str) -> dict[str, str]:
        """Return the hidden fields of the form of a page that posts to an address."""
        text = self.get(page).text
        (body,) = re.findall(
            rf'<form[^>]*action="{re.escape(action)}"[^>]*>(.*?)</form>', text, re.S
        )
        return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', body))


@dataclass
class Console:
    api: Api
    site: ConsoleSite
    app: Any
    clock: SetClock

    def browser(self, role: str = "") -> Browser:
        browser = Browser(self.app)
        return browser.sign_in(role) if role else browser


def open_console(folder: Path) -> Console:
    api = make_api(folder)
    api.context.lists = DailyLists(folder / "lists")
    api.context.diagnoses = (folder / "diagnoses",)
    clock = SetClock()
    site = ConsoleSite(api.context, clock=clock)
    return Console(api, site, make_console(site), clock)
