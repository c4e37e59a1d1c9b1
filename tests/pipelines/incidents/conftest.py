"""Fixtures: an empty ledger in SQLite and in a private PostgreSQL server, and its entries."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pytest_postgresql import factories

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.finding import Finding, FindingKey, FindingKind, Severity
from forewarn.response.state.step import DrainMode, Step


@dataclass(frozen=True)
class Server:
    """Address of a PostgreSQL server with the attributes that pytest-postgresql reads."""

    port: int
    host: str = "127.0.0.1"
    user: str = "postgres"
    password: None = None
    options: str = ""
    maintenance_dbname: str = "postgres"
    template_dbname: None = None


@pytest.fixture(scope="session")
def postgresql_server(
    require_program: Callable[[str, str], Path], free_port: Callable[[], int]
) -> Iterator[Server]:
    """Start Debian's PostgreSQL on loopback, as another user than root."""
    require_program("pg_ctlcluster", "postgresql")
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[-2]))
    folder = Path(tempfile.mkdtemp(prefix="forewarn-pg-"))
    as_postgres = []
    if os.geteuid() == 0:
        os.chown(folder, pwd.getpwnam("postgres").pw_uid, -1)
        as_postgres = ["runuser", "-u", "postgres", "--"]

    def run(program: str, *arguments: str) -> None:
        command = [*as_postgres, str(programs / program), "-D", str(folder / "data"), *arguments]
        with (folder / "log").open("a") as log:
            subprocess.run(command, check=True, cwd=folder, stdout=log, stderr=log)

    server = Server(port=free_port())
    run("initdb", "--username=postgres", "--auth=trust", "--no-sync", "--encoding=UTF8")
    # Durability is not tested: skip fsync.
    options = f"-p {server.port} -k {folder} -c listen_addresses={server.host} -c fsync=off"
    run("pg_ctl", "-w", "-o", options, "-l", str(folder / "server.log"), "start")
    try:
        yield server
    finally:
        run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(folder)


postgresql_noproc = factories.postgresql_noproc(depends_on="postgresql_server")
postgresql = factories.postgresql("postgresql_noproc")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the address of an empty database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'ledger.db'}"
    info: Any = request.getfixturevalue("postgresql").info
    return f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with Ledger.open(url) as ledger:
        yield ledger


# --- entries --------------------------------------------------------------------------------------


def make_finding(key: str = "a", machine: str = "m1", at: int = 10, **fields: Any) -> Finding:
    values: dict[str, Any] = {
        "source": "records",
        "kind": FindingKind.XID,
        "cause": "xid 79",
        "valid_until": 1000,
        "severity": Severity.ERROR,
        "evidence": {"xid": 79},
    }
    return Finding(id=key, machine=machine, at=Nanoseconds(at), **(values | fields))


def make_decision(incident: int, at: int = 20, **fields: Any) -> Decision:
    values: dict[str, Any] = {
        "ruling": Ruling.PROPOSE,
        "step": Step.DRAIN,
        "mode": DrainMode.FINISH,
        "severity": Severity.ERROR,
        "reason": "xid 79: GPU has fallen off the bus",
        "until": None,
        "valid_until": 1000,
        "findings": (FindingKey("records", "m1", "a"),),
        "policy_version": "p1",
    }
    return Decision(incident=incident, at=Nanoseconds(at), **(values | fields))


def make_action(incident: int, machine: str = "m1", at: int = 30, **fields: Any) -> Action:
    values: dict[str, Any] = {
        "pool": "train",
        "rack": "r1",
        "job": "4711",
        "cause": "xid 79",
        "step": Step.DRAIN,
        "mode": DrainMode.FINISH,
        "valid_until": 1000,
        "changed_at": at,
        "jobs": 1,
    }
    return Action(id=0, incident=incident, machine=machine, at=Nanoseconds(at), **(values | fields))


@pytest.fixture(scope="session")
def finding() -> Callable[..., Finding]:
    return make_finding


@pytest.fixture(scope="session")
def decision() -> Callable[..., Decision]:
    return make_decision


@pytest.fixture(scope="session")
def action() -> Callable[..., Action]:
    return make_action
