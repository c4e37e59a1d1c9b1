"""The console in Chromium: phone and desktop, light and dark, by keyboard, without scripts."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright
from tests.conftest import skip_or_fail
from tests.pipelines.console.console_client import Console, open_console
from tests.pipelines.incidents.api.api_client import NOW
from tests.pipelines.incidents.api.stored_list import write_list
from tests.pipelines.incidents.memory_driver import MemoryDriver

from forewarn.features.time_units import DAY, MINUTE, Nanoseconds
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.incident import Outcome
from forewarn.response.state.machine import Machine, ServiceState

AXE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
AXE = AXE / "forewarn" / "axe-core-4.14.0" / "axe.min.js"
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 800}
PAGES = (
    *("/", "/list/latest", "/gpu/S001", "/machine/node-1", "/job/4711", "/incident/1"),
    *("/out", "/incidents", "/fleet", "/score", "/models", "/account", "/drain?machine=node-1"),
)
CONFIG = """
[respond]
driver = "slurm"
first_day = "1min"
[respond.pools.gpu]
mode = "propose"
"""
PICTURES = os.environ.get("FOREWARN_PICTURES")  # folder for screenshots to look at


@pytest.fixture(scope="module")
def browser(require_program: Callable[[str, str], Path]) -> Iterator[Browser]:
    path = str(require_program("chromium", "chromium"))
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@contextmanager
def served(console: Console, port: int) -> Iterator[str]:
    config = uvicorn.Config(console.app, port=port, log_config=None, ws="none", lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def address(
    tmp_path_factory: pytest.TempPathFactory, free_port: Callable[[], int]
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("console")
    write_list(folder / "lists", "2026-02-28")
    write_list(folder / "lists", n=120)
    console = open_console(folder)
    api = console.api
    api.act(api.incident(job="4711", gpu_serial="S001"))
    api.propose(api.incident("node-2", evidence={"message": "x" * 300}))
    console.site.sign_ins._burst = 100.0
    with served(console, free_port()) as url:
        yield url


def sign_in(page: Page, address: str, role: str = "admin") -> None:
    page.goto(f"{address}/sign-in")
    page.get_by_label("Token").fill(f"{role}-token")
    page.get_by_role("button", name="Sign in").press("Enter")
    page.wait_for_url(f"{address}/")


def watch(page: Page, problems: list[str]) -> None:
    """Add what the browser complains about to a list."""
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "console",
        lambda message: (
            problems.append(message.text) if message.type in ("error", "warning") else None
        ),
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESKTOP], ids=["phone", "desktop"])
def test_pages_are_accessible_and_fit(
    browser: Browser, address: str, size: dict[str, int], scheme: str
) -> None:
    if not AXE.exists():
        skip_or_fail("axe-core is missing: .ci/setup_axe")
    context = browser.new_context(viewport=size, color_scheme=scheme, bypass_csp=True)  # type: ignore[arg-type]
    page = context.new_page()
    problems: list[str] = []
    watch(page, problems)
    sign_in(page, address)
    for path in PAGES:
        page.goto(address + path)
        if PICTURES:
            name = path.strip("/").replace("/", "-").split("?")[0] or "today"
            file = f"{PICTURES}/{name}-{size['width']}-{scheme}.png"
            page.screenshot(path=file, full_page=True)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= size["width"], path
        page.add_script_tag(path=AXE)
        result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        found = [(row["id"], row["nodes"][0]["html"][:200]) for row in result["violations"]]
        assert found == [], path
    assert problems == []
    context.close()


def test_policy_of_the_pages_is_kept(browser: Browser, address: str) -> None:
    page = browser.new_page()
    refused: list[str] = []
    watch(page, refused)
    sign_in(page, address)
    for path in PAGES:
        page.goto(address + path)
        page.wait_for_load_state("networkidle")
    assert refused == []
    page.goto(f"{address}/gpu/S001")
    page.locator(".uplot").first.wait_for()  # the script has replaced the drawn charts
    page.close()


def test_page_is_updated_without_reload(
    browser: Browser, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    console = open_console(tmp_path)
    with served(console, free_port()) as address:
        page = browser.new_page()
        sign_in(page, address)
        page.get_by_text("Nothing. A step is listed here").wait_for()
        page.evaluate("window.notReloaded = true")
        console.api.propose(console.api.incident())
        page.get_by_role("link", name="Incident 1: decide").wait_for()
        assert page.evaluate("window.notReloaded")
        page.close()


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
def test_from_alert_to_outcome_by_keyboard(
    browser: Browser, tmp_path: Path, free_port: Callable[[], int], scripts: bool
) -> None:
    """A proposal is approved, the loop drains the machine, and a person records the outcome."""
    console = open_console(tmp_path)
    (tmp_path / "my.toml").write_text(CONFIG)
    site, ledger = ResponseSite.from_config(tmp_path / "my.toml"), console.api.ledger
    machine = Machine("node-1", ServiceState.IN_SERVICE, gpus=8, pool="gpu", rack="r1")
    peers = [replace(machine, name=f"node-{number}") for number in range(2, 40)]
    driver = MemoryDriver({m.name: m for m in (machine, *peers)}, NOW)
    responder = Responder(site, ledger, site.policy(), driver, console.api.clock)

    def rounds(n: int) -> None:
        for _ in range(n):
            console.api.clock.moment = Nanoseconds(console.api.clock.moment + MINUTE)
            driver.now = console.api.clock.moment
            responder.once()

    rounds(3)
    xid = Finding(
        *("records", "xid 1", FindingKind.XID, "xid 79", "node-1"),
        *(console.api.clock.moment, Nanoseconds(console.api.clock.moment + DAY)),
        gpu_serial="S001",
    )
    ledger.record_findings([xid], now=console.api.clock.moment)
    rounds(20)
    with served(console, free_port()) as address:
        page = browser.new_context(viewport=PHONE, java_script_enabled=scripts).new_page()  # type: ignore[arg-type]
        sign_in(page, address, "act")
        press(page, "Incident 1: decide")
        press(page, "Approve")
        page.get_by_text("approved by").or_(page.get_by_text("act-ann").first).first.wait_for()
        rounds(3)
        assert driver.machines["node-1"].out
        page.goto(f"{address}/incident/1")
        page.get_by_text("drained: runs no job").first.wait_for()
        page.get_by_label("No, it worked under load").focus()
        page.keyboard.press("Space")
        press(page, "Record")
        page.get_by_text("no failure").first.wait_for()
        press(page, "Undo")
        page.get_by_text("overridden by a person").first.wait_for()
        rounds(3)
        assert not driver.machines["node-1"].out
        page.context.close()
    incident = ledger.incident(1)
    assert incident is not None
    assert incident.outcome is Outcome.NOT_CONFIRMED
    acts = [(note.act, note.who) for note in reversed(ledger.notes()) if note.who == "act-ann"]
    assert acts == [("approve", "act-ann"), ("outcome", "act-ann"), ("undo", "act-ann")]


def press(page: Page, name: str) -> None:
    """Go by the tabulator to a link or button of this name, and press Enter."""
    for _ in range(120):
        page.keyboard.press("Tab")
        focused = page.locator(":focus")
        if focused.count() and focused.inner_text().strip() == name:
            page.keyboard.press("Enter")
            page.wait_for_load_state()
            return
    raise AssertionError(f"{name!r} cannot be reached by keyboard")
