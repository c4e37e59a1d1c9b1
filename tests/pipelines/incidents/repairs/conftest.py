"""Fixtures: a site with a ledger, and machines in repair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import IncidentState
from forewarn.response.state.step import Step

START = 1_740_000_000 * 10**9


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "metrics").mkdir()
    file = tmp_path / "forewarn.toml"
    file.write_text('[site]\nmetrics = "metrics"\n[respond]\nledger = "sqlite:///ledger.db"\n')
    return file


@pytest.fixture
def site_ledger(site: Path) -> Iterator[Ledger]:
    with Ledger.open(f"sqlite:///{site.parent / 'ledger.db'}") as ledger:
        yield ledger


@pytest.fixture
def repair(
    site_ledger: Ledger, finding: Callable[..., Finding], action: Callable[..., Action]
) -> Callable[..., int]:
    """Return a function that drains a machine, and returns it if told when."""

    def make(day: int, *changes: tuple[ActionState, str], machine: str = "m1") -> int:
        at = START + day * DAY
        fields = {"gpu_serial": "s1", "evidence": {"slot": 3}, "valid_until": at + DAY}
        ledger = site_ledger
        ledger.record_findings([finding(f"x{day}", machine, at, **fields)], now=Nanoseconds(at))
        (incident,) = ledger.incidents(machine=machine, limit=1)
        made = ledger.act(
            action(incident.id, machine, at + HOUR, gpu_serial="s1", step=Step.REPLACE),
            lambda _: None,
        )
        states = [(s, "") for s in (ActionState.SENT, ActionState.HOLDING, ActionState.DRAINED)]
        for number, (state, detail) in enumerate([*states, *changes]):
            now = Nanoseconds(at + (2 + number) * HOUR)
            assert isinstance(made, Action)
            made = ledger.advance(made, state, now=now, detail=detail)
        if changes and changes[-1][0] is ActionState.RELEASED:
            ledger.end_incident(incident.id, IncidentState.CLOSED, now=now, who="f", why="")
        return incident.id

    return make
