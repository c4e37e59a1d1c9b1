"""Tests with damaged cells in the ledger: readers and the loop go on."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Boolean, Column, Float, Integer, Table, select, text
from sqlalchemy.exc import IntegrityError
from tests.pipelines.incidents.api.api_client import ACCESS, Api, SetClock, finding
from tests.pipelines.incidents.api.conftest import new_database
from tests.pipelines.incidents.memory_driver import MemoryDriver
from tests.pipelines.incidents.messages.conftest import MemoryReceiver, table

from forewarn.features.time_units import DAY, HOUR, MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.incidents.api.app import make_app
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import metadata
from forewarn.pipelines.incidents.ledger.recovery_log import read_events, record_events
from forewarn.pipelines.incidents.loop.decision_output import incident_line, incident_text
from forewarn.pipelines.incidents.loop.ledger_score import score_ledger
from forewarn.pipelines.incidents.loop.responder import Responder
from forewarn.pipelines.incidents.loop.response_site import ResponseSite
from forewarn.pipelines.incidents.messages.receiver import SendError
from forewarn.pipelines.incidents.messages.site_messages import SiteMessages
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.recovery.recovery_state import RungBegun
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.incident import Outcome
from forewarn.response.state.job_block import JobBlock
from forewarn.response.state.machine import Machine, ServiceState
from forewarn.response.state.rung import Rung
from forewarn.response.state.step import DrainMode

pytestmark = pytest.mark.long

START = Nanoseconds(1_772_366_400 * SECOND)  # 2026-03-01T12:00:00Z
CONFIG = """
[respond]
ledger = "{url}"
driver = "slurm"
first_day = "1min"
[respond.pools.train]
mode = "act"
share = 0.5
rack = 4
[respond.pools.ask]
mode = "propose"
share = 0.5
"""
LARGE = 2**63 - 1
WORDS = ["", "open", "act", "drain", "critical", "{}", "[]", "null", '[["a"]]', '{"mode":[1]}']
WORDS += ['{"a":"\\ud800"}', '{"probability":1e999}', "[" * 5000, '{"xid":' + "9" * 4400 + "}"]
WORDS += ['[["a","b","c","host"]]', '[["a","b",{},"host"]]', '{"state":[]}', "forewarn", "records"]
NUMBERS = [0, 1, -1, 7, LARGE, -LARGE - 1, 2**62, START, START + DAY, 10**18]
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
TEXT = st.one_of(st.sampled_from(WORDS), ANY_TEXT)
NUMBER = st.one_of(st.sampled_from(NUMBERS), st.integers(-LARGE - 1, LARGE))
ANY = st.one_of(TEXT, NUMBER, st.binary(max_size=8), st.floats(allow_nan=False), st.none())


@dataclass
class Rig:
    """A ledger with the loop and the API, and a scheduler in memory."""

    site: ResponseSite
    ledger: Ledger
    driver: MemoryDriver
    clock: SetClock

    def responder(self) -> Responder:
        site, policy = self.site, self.site.policy()
        parts = (site, self.ledger, policy, self.driver, self.clock, lambda *_: None)
        return Responder(*parts, messages=self.messages())

    def messages(self) -> SiteMessages:
        """Return messages to a receiver that accepts nothing."""
        refusing = MemoryReceiver(error=SendError("HTTP 500"))
        tables = {"ops": table(min_severity="notice")}
        parts = (self.ledger, tables, {"ops": refusing}, Nanoseconds(MINUTE), self.clock)
        return SiteMessages(*parts)

    def once(self, after: int = MINUTE) -> None:
        self.clock.moment = Nanoseconds(self.clock.moment + after)
        self.driver.now = self.clock.moment
        self.responder().once()
        self.messages().deliver("ops")


def machines() -> dict[str, Machine]:
    names = {f"m{number}": "train" if number < 6 else "ask" for number in range(12)}
    return {
        name: Machine(name, ServiceState.IN_SERVICE, gpus=8, pool=pool, rack="r1", boot="1")
        for name, pool in names.items()
    }


def make_rig(folder: Path, url: str) -> Rig:
    config = folder / "my.toml"
    config.write_text(CONFIG.format(url=url))
    site = ResponseSite.from_config(config)
    rig = Rig(site, Ledger.open(url), MemoryDriver(machines(), START), SetClock(START))
    if url.startswith("postgresql"):  # its own clock shows the real time
        rig.ledger.database.clock = lambda: rig.clock.moment  # type: ignore[method-assign]
    return rig


def report(rig: Rig, machine: str, cause: str, **more: Any) -> None:
    now = rig.clock.moment
    kind = FindingKind.XID if cause.startswith("xid") else FindingKind.AT_RISK
    name = f"{cause} {machine}"
    values: dict[str, Any] = {"severity": Severity.ERROR, "gpu_serial": f"GPU-{machine}"}
    values |= {"evidence": {"probability": 0.9}, "model_version": "v1"} | more
    until = Nanoseconds(now + DAY)
    finding = Finding("test", name, kind, cause, machine, now, until, **values)
    rig.ledger.record_findings([finding], now=now)


def fill(rig: Rig) -> None:
    """Create at least one row in every table."""
    rig.once()
    rig.once(5 * MINUTE)
    for machine, cause in (("m0", "xid 79"), ("m1", "xid 79"), ("m6", "xid 79"), ("m2", "at_risk")):
        report(rig, machine, cause)
        rig.once(HOUR)
    drained = replace(rig.driver.machines["m3"], state=ServiceState.DRAINED, reason="gpu bad")
    rig.driver.machines["m3"] = drained
    rig.once()
    ann = Operator(rig.ledger, "ann", rig.clock.moment, "seen it")
    for number in (1, 2, 3):
        ann.acknowledge(number)
    with contextlib.suppress(Exception):
        ann.approve(3)
    ann.drain("m4", DrainMode.NOW)
    rig.once()
    ann.undo(1)
    ann.record_outcome(2, Outcome.CONFIRMED, Nanoseconds(START + HOUR))
    end = Nanoseconds(rig.clock.moment + 7 * DAY)
    rig.ledger.add_block(JobBlock(0, "j1", "m5", "wrong losses", "ann", rig.clock.moment, end))
    record_events(rig.ledger, "j1", [RungBegun(rig.clock.moment, Rung.REQUEUE)], who="ann")
    rig.ledger.switch(True, now=rig.clock.moment, who="ann", why="")
    rig.once()
    rig.once(2 * HOUR)


def read_everything(rig: Rig) -> None:
    """Call all readers: command line, score, API and metrics."""
    for incident in rig.ledger.incidents():
        assert incident_line(incident)["id"] == incident.id
        assert incident_text(incident)
    rig.ledger.notes()
    read_events(rig.ledger, ["j1"])
    score_ledger(rig.site, rig.ledger, now=rig.clock.moment)
    context = ApiContext(rig.ledger, ACCESS, rig.site.switch(rig.ledger), dict, rig.clock)
    api = Api(context, make_app(context), rig.clock)
    paths = ["incidents", "incidents?state=open", "incidents?machine=m1", "actions", "switch"]
    paths += [f"incidents/{number}" for number in range(1, 6)]
    for path in paths:
        assert api.get(f"/v1/{path}").status_code in (200, 404), path
    assert api.request("GET", "/metrics").status_code == 200
    assert api.request("GET", "/health").status_code == 200
    now = rig.clock.moment
    posted = finding(
        machine="m5", at=format_iso(now), valid_until=format_iso(now + HOUR), id=f"{now}"
    )
    assert api.report(posted).status_code == 200
    context.close()


def recorded_findings(rig: Rig) -> list[Finding]:
    """Return all recorded findings, as their sources would report them again."""
    return [f for incident in rig.ledger.incidents() for f in incident.findings]


def work(rig: Rig, findings: list[Finding]) -> None:
    rig.ledger.record_findings(rig.ledger.new_findings(findings), now=rig.clock.moment)
    rig.ledger.record_findings(findings, now=rig.clock.moment)
    read_everything(rig)
    rig.once()
    rig.once(HOUR)
    read_everything(rig)


def cells() -> list[tuple[Table, Column[Any]]]:
    return [(table, column) for table in metadata.sorted_tables for column in table.columns]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    rig = make_rig(folder, f"sqlite:///{folder / 'ledger.db'}")
    with rig.ledger:
        fill(rig)
        with rig.ledger.database.reading() as connection:
            empty = [
                t.name for t in metadata.sorted_tables if not connection.execute(select(t)).all()
            ]
        assert empty == []  # each table has a row to damage
    return folder


@contextlib.contextmanager
def damaged(folder: Path, template: Path) -> Iterator[Rig]:
    shutil.copy(template / "ledger.db", folder / "ledger.db")
    rig = make_rig(folder, f"sqlite:///{folder / 'ledger.db'}")
    rig.clock.moment = Nanoseconds(START + 12 * HOUR)
    with rig.ledger:
        yield rig


def damage(rig: Rig, table: Table, column: Column[Any], row: int, value: object) -> bool:
    """Write a value into a cell; return False if the database refuses it."""
    quote = '"{}"'.format
    keys = [key.name for key in table.primary_key]
    with rig.ledger.database.engine.connect() as connection:
        if connection.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        rows = connection.execute(select(*table.primary_key)).all()
        assert rows, f"no row of {table.name} can be damaged"
        chosen = dict(zip(keys, rows[row % len(rows)], strict=True))
        where = " AND ".join(f"{quote(key)} = :key_{key}" for key in keys)
        statement = f"UPDATE {table.name} SET {quote(column.name)} = :value WHERE {where}"
        parameters = {f"key_{key}": chosen[key] for key in keys} | {"value": value}
        try:
            connection.execute(text(statement), parameters)
            connection.commit()
        except IntegrityError:
            return False
    rig.ledger.database.engine.dispose()
    return True


def storable_values(column: Column[Any]) -> st.SearchStrategy[object]:
    """Return the values that a typed database can hold in a column."""
    if isinstance(column.type, Boolean):
        return st.booleans()
    if isinstance(column.type, BigInteger):
        return NUMBER
    if isinstance(column.type, Integer):
        return st.integers(-(2**31), 2**31 - 1)
    return st.floats() if isinstance(column.type, Float) else TEXT


@pytest.fixture(scope="module")
def server_rig(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rig]:
    """Return a rig with a ledger in PostgreSQL; damage accumulates in it."""
    rig = make_rig(tmp_path_factory.mktemp("server"), new_database(request))
    with rig.ledger:
        fill(rig)
        yield rig


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate],
)
@given(data=st.data(), cell=st.sampled_from(cells()), row=st.integers(0, 30))
def test_loop_survives_accumulating_damage_in_postgresql(
    data: st.DataObject, cell: tuple[Table, Column[Any]], row: int, server_rig: Rig
) -> None:
    findings = recorded_findings(server_rig)
    if damage(server_rig, *cell, row, data.draw(storable_values(cell[1]))):
        work(server_rig, findings)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(cell=st.sampled_from(cells()), row=st.integers(0, 30), value=ANY)
def test_loop_survives_any_damaged_cell(
    cell: tuple[Table, Column[Any]],
    row: int,
    value: object,
    template: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with damaged(tmp_path_factory.mktemp("damaged"), template) as rig:
        findings = recorded_findings(rig)
        if damage(rig, *cell, row, value):
            work(rig, findings)


@pytest.mark.parametrize(
    "statement", ["UPDATE action_states SET state = 'x'", "DELETE FROM action_states"]
)
def test_unreadable_open_action_stays_in_quarantine(
    template: Path, tmp_path: Path, statement: str
) -> None:
    with damaged(tmp_path, template) as rig:
        for row in range(2_000):
            rig.ledger.database.quarantine.add("findings", f"{row}", "damaged")
        with rig.ledger.database.engine.begin() as connection:
            connection.execute(text(statement))
        rig.ledger.open_actions()
        assert rig.ledger.quarantined_rows("actions")
