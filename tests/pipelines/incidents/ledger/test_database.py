"""Tests of opening a ledger: address, schema, locks and permissions."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, create_engine, inspect, text

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.pipelines.incidents.ledger import database as ledger_database
from forewarn.pipelines.incidents.ledger.database import (
    PASSWORD_VARIABLE,
    VERSION_TABLE,
    LedgerError,
)
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_tables import metadata
from forewarn.pipelines.incidents.ledger.transfer import copy_ledger
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import IncidentState

NOW = Nanoseconds(100)


def open_error(url: str, environment: dict[str, str] | None = None) -> str:
    """Return the error of opening a ledger, which is one line."""
    with pytest.raises(LedgerError) as caught:
        Ledger.open(url, environment or {})
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- schema ---------------------------------------------------------------------------------------


def test_migrations_create_the_expected_tables(ledger: Ledger) -> None:
    with ledger.database.engine.connect() as connection:
        options = {"version_table": VERSION_TABLE}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []
        names = set(inspect(connection).get_table_names())
    assert names == {VERSION_TABLE, *metadata.tables}


def test_current_ledger_is_not_changed(url: str, finding: Callable[..., Finding]) -> None:
    with Ledger.open(url) as ledger:
        ledger.record_findings([finding()], now=NOW)
        before = ledger.open_incidents()
    with Ledger.open(url) as again:
        assert again.open_incidents() == before


def test_empty_file_becomes_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.touch()
    with Ledger.open(f"sqlite:///{path}") as ledger:
        assert ledger.open_incidents() == []


def test_concurrent_openers_create_ledger_once(url: str) -> None:
    all_ready = threading.Barrier(3)

    def open_it(_: int) -> int:
        all_ready.wait()
        with Ledger.open(url) as ledger:
            return len(ledger.open_incidents())

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(open_it, range(3))) == [0, 0, 0]


@pytest.fixture
def writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sqlite3.Connection]:
    """Return a connection that starts to write just before the ledger switches to the log."""
    path = tmp_path / "ledger.db"
    Ledger.open(f"sqlite:///{path}").close()
    connection = sqlite3.connect(path, isolation_level=None)
    assert connection.execute("PRAGMA journal_mode = DELETE").fetchone() == ("delete",)
    switch = ledger_database._enable_write_ahead_log

    def write_and_switch(engine: Engine) -> None:
        connection.execute("BEGIN IMMEDIATE")
        switch(engine)

    monkeypatch.setattr(ledger_database, "_enable_write_ahead_log", write_and_switch)
    yield connection
    connection.close()


def test_opening_waits_for_a_writer(
    writer: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(monotonic=lambda: 0.0, sleep=lambda _: writer.execute("COMMIT"))
    monkeypatch.setattr(ledger_database, "time", clock)
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    with Ledger.open(url) as ledger, ledger.database.reading() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"


def test_permanently_locked_ledger_is_reported(
    writer: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_database, "LOCK_TIMEOUT_SECONDS", 0)
    path = tmp_path / "ledger.db"
    assert open_error(f"sqlite:///{path}") == f"the ledger, `{path}`: database is locked"
    assert writer.in_transaction


def test_newer_schema_is_refused(url: str) -> None:
    with Ledger.open(url) as ledger, ledger.database.writing() as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = 'ledger_9999'"))
    message = open_error(url)
    assert "was written by a newer forewarn: its schema is `ledger_9999`" in message
    newest = ledger_database._scripts().get_current_head()
    assert f"this version supports up to `{newest}`" in message


def test_foreign_database_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as shop:
        shop.execute("CREATE TABLE orders (id INTEGER)")
    shop.close()
    before = path.read_bytes()
    assert f"`{path}` is not a ledger: it has 1 other tables, such as `orders`" in open_error(
        f"sqlite:///{path}"
    )
    assert path.read_bytes() == before


def test_non_database_file_is_refused_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("rack r7 is loud\n" * 100)
    assert f"`{path}` is not a database" in open_error(f"sqlite:///{path}")
    assert path.read_text() == "rack r7 is loud\n" * 100


def test_missing_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "ledger.db"
    assert f"`{path}`: unable to open database file" in open_error(f"sqlite:///{path}")
    assert not path.parent.exists()


# --- address and password -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["", "ledger.db", "sqlite://", "sqlite:///:memory:", "mysql://h/db", "postgresql://h"]
)
def test_unsupported_addresses_are_refused(url: str) -> None:
    assert "expected `sqlite:///PATH` or `postgresql://USER@HOST/NAME`" in open_error(url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:s3cret@db.site/ledger",
        "postgresql+psycopg://ann@db.site/ledger?password=s3cret",
        "postgresql:/ann:s3cret@db.site:x/ledger",
    ],
)
def test_password_in_address_is_not_repeated(url: str) -> None:
    message = open_error(url)
    assert "s3cret" not in message
    assert PASSWORD_VARIABLE in message or "not a database address" in message


def test_unreachable_database_is_named_without_password(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    message = open_error("postgresql://ann@127.0.0.1:1/ledger", {PASSWORD_VARIABLE: "s3cret"})
    assert "database `ledger` on `127.0.0.1:1`" in message
    assert "s3cret" not in message + caplog.text


def test_password_is_read_from_environment(
    request: pytest.FixtureRequest,
) -> None:
    info = request.getfixturevalue("postgresql").info
    server = f"{info.host}:{info.port}/{info.dbname}"
    admin = create_engine(f"postgresql+psycopg://{info.user}@{server}")
    with admin.begin() as connection:
        connection.execute(text("CREATE ROLE ann LOGIN PASSWORD 's3cret'"))
        connection.execute(text(f'GRANT ALL ON DATABASE "{info.dbname}" TO ann'))
        connection.execute(text("GRANT ALL ON SCHEMA public TO ann"))
    admin.dispose()
    with Ledger.open(f"postgresql://ann@{server}", {PASSWORD_VARIABLE: "s3cret"}) as ledger:
        assert ledger.database.engine.url.password == "s3cret"
        assert "s3cret" not in repr(ledger.database.engine)


# --- concurrency ----------------------------------------------------------------------------------


def test_readers_see_committed_state_during_write(
    ledger: Ledger, finding: Callable[..., Finding]
) -> None:
    ledger.record_findings([finding()], now=NOW)
    with ledger.database.writing() as connection:
        connection.execute(text("UPDATE findings SET count = 7"))
        assert ledger.open_incidents()[0].findings[0].count == 1
    assert ledger.open_incidents()[0].findings[0].count == 7


def write_half(ledger: Ledger) -> None:
    with ledger.database.writing() as connection:
        connection.execute(text("INSERT INTO versions VALUES ('policy', 'p1', 1)"))
        raise RuntimeError


def test_failed_transaction_is_rolled_back(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError):
        write_half(ledger)
    assert ledger.first_seen("policy", "p1", NOW) == NOW


def test_missing_incident_is_reported(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="has no such incident or action"):
        ledger.end_incident(7, IncidentState.CLOSED, now=NOW, who="ann", why="")


def lose_the_connection(ledger: Ledger) -> None:
    with ledger.database.reading() as connection:
        connection.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))


def test_lost_server_is_reported_and_reused(
    request: pytest.FixtureRequest,
) -> None:
    connection = request.getfixturevalue("postgresql")
    info = connection.info
    with Ledger.open(f"postgresql://{info.user}@{info.host}:{info.port}/{info.dbname}") as ledger:
        ledger.record_heartbeat("loop", NOW)
        with pytest.raises(LedgerError) as lost:
            lose_the_connection(ledger)
        assert "\n" not in str(lost.value)
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert ledger.last_heartbeat("loop") == NOW


def test_only_postgresql_has_a_clock(url: str) -> None:
    with Ledger.open(url) as ledger:
        at = ledger.database.clock()
    assert (at is None) == url.startswith("sqlite")
    assert at is None or abs(at - time.time_ns()) < 5 * MINUTE


# --- permissions ----------------------------------------------------------------------------------


def test_sqlite_ledger_is_private_to_user(tmp_path: Path, finding: Callable[..., Finding]) -> None:
    before = os.umask(0)
    try:
        with (
            Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger,
            Ledger.open(f"sqlite:///{tmp_path / 'copy.db'}") as copy,
        ):
            ledger.record_findings([finding()], now=NOW)
            copy_ledger(ledger, copy)
            modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"ledger.db", "ledger.db-wal", "ledger.db-shm", "copy.db", "copy.db-wal"} <= set(modes)
    assert set(modes.values()) == {0o600}
