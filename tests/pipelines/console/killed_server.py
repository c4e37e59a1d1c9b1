"""A console whose server is killed between any two moments of an approval, and started again.

    python killed_server.py FOLDER STRIDE   # prints a line of JSON per crash

A moment is before or after a statement of the ledger, before a commit, or before or after the
first bytes of the answer.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import signal
import socket
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx
from sqlalchemy import Engine, event
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tests.pipelines.console.console_client import open_console
from tests.pipelines.incidents.api.api_client import bearer, make_api

from forewarn.pipelines.incidents.api.app import serve_api
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.serving.listener import Listener

MOMENTS = mmap.mmap(-1, 16)  # shared with the server: moments so far, and the one to be killed at
ACT = "approve"


def moment(*_: Any) -> None:
    """Count a moment, and be killed at the selected one."""
    passed = int.from_bytes(MOMENTS[:8], "little") + 1
    MOMENTS[:8] = passed.to_bytes(8, "little")
    if passed == int.from_bytes(MOMENTS[8:], "little"):
        os.kill(os.getpid(), signal.SIGKILL)


class Approvals:
    """Middleware that counts the moments of approvals only."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST" or not scope["path"].endswith(ACT):
            return await self.app(scope, receive, send)

        async def send_counted(message: Message) -> None:
            moment()
            await send(message)
            moment()

        names = ("before_cursor_execute", "after_cursor_execute", "begin", "commit")
        for name in names:
            event.listen(Engine, name, moment)
        await self.app(scope, receive, send_counted)
        for name in names:
            event.remove(Engine, name, moment)


def start(folder: Path) -> tuple[int, str]:
    """Start a server; return its process and its address."""
    listener = Listener("respond", "127.0.0.1", 0)
    bound = listener.bind()
    address = listener.address(bound)
    child = os.fork()
    if child == 0:
        _serve(folder, listener, bound)
    bound.close()
    return child, address


def _serve(folder: Path, listener: Listener, bound: socket.socket) -> None:
    try:
        console = open_console(folder)
        console.app.add_middleware(Approvals)
        serve_api(console.api.context, listener, bound, console.app)
    finally:
        os._exit(1)


def approve(address: str, number: int) -> None:
    """Approve in a browser; raise if the server does not answer."""
    with httpx.Client(base_url=address, trust_env=False) as browser:
        form = find_form(browser, number)
        assert form, "the page offers no approval"
        browser.post(f"/incident/{number}/{ACT}", data=form | {"why": "seen it"})


def find_form(browser: httpx.Client, number: int) -> dict[str, str]:
    """Sign in, and return the hidden fields of the approval; empty if the page offers none."""
    assert browser.post("/sign-in", data={"token": "admin-token"}).status_code == 303
    page = browser.get(f"/incident/{number}").text
    bodies = re.findall(
        rf'<form[^>]*action="/incident/{number}/{ACT}"[^>]*>(.*?)</form>', page, re.S
    )
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', "".join(bodies)))


def rows(folder: Path, number: int) -> list[int]:
    """Return how many approvals and how many notes on an approval the ledger has."""
    with Ledger.open(f"sqlite:///{folder}/ledger.db") as ledger:
        approvals = [c for c in ledger.incident_changes(number) if c.what.startswith("approv")]
        target = f"incident {number}"
        notes = [n for n in ledger.notes() if (n.act, n.target) == (ACT, target)]
    return [len(approvals), len(notes)]


def propose(folder: Path, machine: str) -> int:
    api = make_api(folder)
    with closing(api.context), closing(api.ledger):
        number = api.incident(machine)
        api.propose(number)
    return number


def crash(folder: Path, at: int) -> dict[str, Any]:
    """Kill the server at a moment of an approval, repeat it, and return what the ledger says.

    Moment 0 kills it after the approval.
    """
    number = propose(folder, f"node-{at}")
    MOMENTS[:8], MOMENTS[8:] = bytes(8), at.to_bytes(8, "little")
    server, address = start(folder)
    with suppress(httpx.TransportError):
        approve(address, number)
    passed = int.from_bytes(MOMENTS[:8], "little")
    kill(server, by_us=at == 0)
    after = rows(folder, number)
    MOMENTS[8:] = bytes(8)
    server, address = start(folder)
    with httpx.Client(base_url=address, trust_env=False) as browser:
        offered = bool(find_form(browser, number))
        repeated = browser.post(f"/v1/incidents/{number}/{ACT}", headers=bearer("admin"), json={})
    kill(server, by_us=True)
    return {
        "moments": passed,
        "after": after,
        "offered": offered,
        "changed": repeated.json()["changed"],
        "end": rows(folder, number),
    }


def kill(server: int, *, by_us: bool) -> None:
    """Wait for the end of a server, which has to be by SIGKILL."""
    if by_us:
        os.kill(server, signal.SIGKILL)
    _, status = os.waitpid(server, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def main() -> None:
    folder, stride = Path(sys.argv[1]), int(sys.argv[2])
    complete = crash(folder, 0)
    for at in range(complete["moments"], 0, -stride):
        sys.stdout.write(f"{json.dumps(crash(folder, at))}\n")


if __name__ == "__main__":
    main()
