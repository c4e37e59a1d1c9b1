"""API over a ledger in a file, called in the same process."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI

from forewarn.features.time_units import DAY, HOUR, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.access_control import AccessControl, Role, TokenHolder
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.api.app import make_app
from forewarn.pipelines.incidents.ledger.kill_switch import KillSwitch
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.clock import SystemClock
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.serving.tokens import token_digest
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Severity
from forewarn.response.state.step import DrainMode, Step

NOW = Nanoseconds(1_772_366_400 * SECOND)  # 2026-03-01T12:00:00Z
LATER = Nanoseconds(NOW + 6 * HOUR)
ACCESS = AccessControl(
    {token_digest(f"{role}-token"): TokenHolder(f"{role}-ann", role) for role in Role}
)


@dataclass
class SetClock(SystemClock):
    """Clock that a test sets."""

    moment: Nanoseconds = NOW

    def now(self) -> int:
        return self.moment


@dataclass
class Api:
    context: ApiContext
    app: FastAPI
    clock: SetClock

    @property
    def ledger(self) -> Ledger:
        return self.context.ledger

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request and return the response, even if the application raises."""

        async def respond() -> httpx.Response:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
                return await client.request(method, path, **options)

        with ThreadPoolExecutor(1) as pool:  # the thread of a browser test has a loop already
            return pool.submit(asyncio.run, respond()).result()

    def get(self, path: str, role: str = "see", **query: Any) -> httpx.Response:
        return self.request("GET", path, params=query or None, headers=bearer(role))

    def post(
        self, path: str, body: object = None, role: str = "admin", **headers: str
    ) -> httpx.Response:
        content = b"" if body is None else json.dumps(body).encode()
        return self.send(path, content, role, **headers)

    def send(self, path: str, content: Any, role: str = "admin", **headers: str) -> httpx.Response:
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        kind = {"Content-Type": "application/json"}
        return self.request("POST", path, content=content, headers=bearer(role) | kind | extra)

    def report(self, *findings: dict[str, Any]) -> httpx.Response:
        return self.post("/v1/findings", list(findings), role="report")

    def incident(self, machine: str = "node-1", **changes: Any) -> int:
        """Report a finding about a machine and return the number of its incident."""
        assert self.report(finding(machine=machine, id=f"f-{machine}", **changes)).is_success
        return self.ledger.incidents(machine=machine)[0].id

    def break_ledger(self) -> None:
        """Replace the database with a file that is not one."""
        self.ledger.close()
        path = self.context.switch.file.with_name("ledger.db")
        for file in path.parent.glob("ledger.db*"):
            file.unlink()
        path.write_bytes(b"no database" * 100)

    def propose(self, number: int, *, ruling: Ruling = Ruling.PROPOSE) -> Decision:
        incident = self.ledger.incident(number)
        assert incident is not None
        (first, *_) = incident.findings
        decision = Decision(
            incident=number,
            at=self.clock.moment,
            ruling=ruling,
            step=Step.DRAIN,
            mode=DrainMode.FINISH,
            severity=Severity.ERROR,
            reason="check by nhc: drain",
            until=None,
            valid_until=LATER,
            findings=(first.key,),
            policy_version="abc",
        )
        assert self.ledger.decide(decision)
        return decision

    def act(
        self, number: int, state: ActionState = ActionState.HOLDING, step: Step = Step.DRAIN
    ) -> Action:
        action = Action(
            id=0,
            incident=number,
            machine="node-1",
            pool="gpu",
            rack="r1",
            job=None,
            cause="check by nhc",
            step=step,
            mode=DrainMode.FINISH,
            at=self.clock.moment,
            valid_until=LATER,
            changed_at=self.clock.moment,
        )
        intended = self.ledger.act(action, lambda _: None)
        assert isinstance(intended, Action)
        advanced = self.ledger.advance(intended, state, now=self.clock.moment)
        assert advanced is not None
        return advanced


def make_api(folder: Path, url: str = "") -> Api:
    clock = SetClock()
    ledger = Ledger.open(url or f"sqlite:///{folder}/ledger.db")
    switch = KillSwitch(folder / "stop", ledger)
    context = ApiContext(ledger, ACCESS, switch, lambda: {"precision": None}, clock)
    return Api(context, make_app(context), clock)


def bearer(role: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {role}-token"} if role else {}


def finding(**changes: Any) -> dict[str, Any]:
    """Return a finding in the form that is posted."""
    return {
        "id": "f1",
        "source": "nhc",
        "kind": "check",
        "machine": "node-1",
        "at": format_iso(NOW - HOUR),
        "valid_until": format_iso(NOW + DAY),
        "severity": "error",
        "evidence": {"message": "GPU 3 < 8"},
    } | changes
