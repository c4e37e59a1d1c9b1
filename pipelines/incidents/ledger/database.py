"""The database below the ledger: its address, its connections, its transactions, its schema."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    create_engine,
    event,
    func,
    inspect,
    make_url,
    select,
)
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import ArgumentError, DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger import migrations
from forewarn.pipelines.incidents.ledger.quarantined_rows import QUARANTINE_OPTION, Quarantine
from forewarn.pipelines.incidents.ledger.sqlite_file import LedgerFile

__all__ = ["PASSWORD_VARIABLE", "LedgerDatabase", "LedgerError", "MissingLedgerError", "OpenMode"]

PASSWORD_VARIABLE = "FOREWARN_LEDGER_PASSWORD"
"""Variable of the environment with the password of the database."""

VERSION_TABLE = "ledger_version"
LOCK_TIMEOUT_SECONDS = 30
WRITER_LOCK_ID = 0x666F7265  # the lock of PostgreSQL that all writers of a ledger take


class LedgerError(InputError):
    """The ledger cannot be opened or reached; one line, without a password."""


class MissingLedgerError(LedgerError):
    """There is no ledger where one is expected."""


class OpenMode(StrEnum):
    """Which ledger is expected: one that is there, a new one, or either."""

    EXISTING = "existing"
    NEW = "new"
    EITHER = "either"


class LedgerDatabase:
    """A database with the tables of the ledger.

    Parameters
    ----------
    engine : Engine
        Of a database that is at the newest schema.
    """

    def __init__(self, engine: Engine) -> None:
        self.quarantine = Quarantine()
        self.file: LedgerFile | None = None
        self.engine = engine.execution_options(**{QUARANTINE_OPTION: self.quarantine})

    @classmethod
    def open(
        cls, url: str, environment: Mapping[str, str], opening: OpenMode = OpenMode.EITHER
    ) -> LedgerDatabase:
        """Connect, and bring the tables to the newest schema.

        Raises
        ------
        MissingLedgerError
            If one that is there was expected, and there is none; nothing is made.
        LedgerError
            If the address is wrong, the database is away, holds something else, was written by
            a newer forewarn, or holds a ledger where a new one was expected.
        """
        address = _address(url, environment)
        path = Path(str(address.database)) if address.get_backend_name() == "sqlite" else None
        if path is not None and opening is OpenMode.EXISTING and LedgerFile.is_empty(path):
            raise _missing(address)
        made = path is not None and LedgerFile.create(path)
        database = cls(_engine(address))
        try:
            database.migrate(opening)
            if path is not None:
                _enable_write_ahead_log(database.engine)
                database.file = LedgerFile.from_path(path)
        except BaseException:
            database.engine.dispose()
            if made and path is not None and LedgerFile.is_empty(path):
                path.unlink(missing_ok=True)
            raise
        return database

    def migrate(self, opening: OpenMode = OpenMode.EITHER) -> None:
        """Bring the tables to the newest schema, as a whole or not at all.

        Raises
        ------
        LedgerError
            If the database holds something else, or was written by a newer forewarn, or if it is
            not what was to be opened.
        """
        # SQLite makes a table anew to change it: the rows that refer to it must not mind.
        with self.writing(forewarn_migrates=True) as connection:
            _migrate(connection, opening)
        self.engine.dispose()  # its connections check no references

    def _check_file(self) -> None:
        """Refuse to go on in a file that was removed: nobody else would read what we write."""
        if self.file is None or self.file.is_same():
            return
        kind, what = (
            (LedgerError, "replaced")
            if self.file.path.exists()
            else (MissingLedgerError, "removed")
        )
        words = (
            f"was {what} while it was open, and nothing more is written; put the ledger back "
            "under this name and start again"
        )
        raise kind(f"{_name(self.engine.url)}: {words}")

    @property
    def address(self) -> str:
        """Address with which another process can open it; without a password."""
        return self.engine.url._replace(password=None).render_as_string()

    def clock(self) -> Nanoseconds | None:
        """Return the time of the database's server; None where it has no clock of its own."""
        if self.engine.dialect.name == "sqlite":
            return None
        epoch = func.extract("epoch", func.clock_timestamp())
        with self.reading() as connection:
            seconds = connection.execute(select(epoch)).scalar_one()
        return Nanoseconds(int(seconds * 1_000_000) * 1_000)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection that sees one moment of the ledger."""
        self._check_file()
        with _translated(self.engine.url), self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self, **options: bool) -> Iterator[Connection]:
        """Yield a connection that alone writes; all is committed at the end, or nothing.

        What it reads is the newest there is, and stays so until the end: no other writer is
        between. `options` are those of the connection.
        """
        self._check_file()
        with _translated(self.engine.url), self.engine.connect() as connection:
            connection.execution_options(forewarn_writes=True, **options)
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.execute(select(func.pg_advisory_xact_lock(WRITER_LOCK_ID)))
                yield connection


def _address(url: str, environment: Mapping[str, str]) -> URL:
    """Return the address with its password; no message repeats it, for it might hold one."""
    try:
        address = make_url(url)
    except ArgumentError:
        raise LedgerError(
            "[respond] ledger: is no address of a database, expected `sqlite:///PATH` or "
            "`postgresql://USER@HOST/NAME`"
        ) from None
    if address.password is not None or "password" in address.query:
        raise LedgerError(
            f"[respond] ledger: the address of {_name(address)} holds a password, expected it in "
            f"the environment as {PASSWORD_VARIABLE}"
        )
    match address.get_backend_name():
        case "sqlite" if address.database and address.database != ":memory:":
            return URL.create("sqlite", database=address.database)
        case "postgresql" if address.database:
            password = environment.get(PASSWORD_VARIABLE)
            return address.set(drivername="postgresql+psycopg", password=password)
    raise LedgerError(
        f"[respond] ledger: found {_name(address)}, expected `sqlite:///PATH` or "
        "`postgresql://USER@HOST/NAME`"
    )


def _name(address: URL) -> str:
    """Return how people know a database, without user and password."""
    if address.get_backend_name() == "sqlite":
        return f"`{address.database or 'a database in memory'}`"
    port = f":{address.port}" if address.port else ""
    return f"database `{address.database or ''}` on `{address.host or 'localhost'}{port}`"


def _engine(address: URL) -> Engine:
    if address.get_backend_name() == "postgresql":
        wait = f"-c lock_timeout={LOCK_TIMEOUT_SECONDS}s"
        return create_engine(
            address,
            pool_pre_ping=True,  # a server that was started anew is no error
            connect_args={"connect_timeout": 10, "options": wait, "application_name": "forewarn"},
        )
    engine = create_engine(address, connect_args={"timeout": LOCK_TIMEOUT_SECONDS})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    """Let us say where a transaction begins: sqlite3 would begin it only before the first write."""
    del record
    connection.isolation_level = None
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get("forewarn_migrates", False):
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
    writes = options.get("forewarn_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _enable_write_ahead_log(engine: Engine) -> None:
    """Switch to the write-ahead log; it can be done outside of a transaction only."""
    raw = engine.raw_connection()
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while not _switched_to_write_ahead_log(raw.cursor(), engine.url, deadline):
            # SQLite does not wait here for who has begun to write, whatever its time-out.
            time.sleep(0.02)
    finally:
        raw.close()


def _switched_to_write_ahead_log(cursor: DBAPICursor, address: URL, deadline: float) -> bool:
    """Return whether the log could be switched; false while others write, until the deadline."""
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY  # the rest says why
        if is_busy and time.monotonic() < deadline:
            return False
        raise LedgerError(f"the ledger, {_name(address)}: {error}") from error
    return True


@contextmanager
def _translated(address: URL) -> Iterator[None]:
    """Say in one line what a database complains about."""
    try:
        yield
    except IntegrityError as error:
        raise LedgerError(
            f"the ledger, {_name(address)}, knows no such incident or action: {error.orig}"
        ) from error
    except DBAPIError as error:
        lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        reason = lines[0].removesuffix(".")
        if reason == "file is not a database":
            reason = "is no ledger: it is not even a database, expected a new name or a ledger"
            raise LedgerError(f"{_name(address)} {reason}") from error
        raise LedgerError(f"the ledger, {_name(address)}: {reason}") from error
    except PoolTimeoutError as error:
        raise LedgerError(f"the ledger, {_name(address)}: no connection was free") from error


def _missing(address: URL) -> MissingLedgerError:
    return MissingLedgerError(
        f"{_name(address)}: there is no ledger, and an empty one knows no drain and no veto; "
        "restore it from a backup, or create an empty one with `forewarn respond --new-ledger`"
    )


def _migrate(connection: Connection, opening: OpenMode) -> None:
    """Bring the tables to the newest schema, within the transaction of the connection."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    scripts = _scripts()
    current = context.get_current_revision()
    name = _name(connection.engine.url)
    if current is None and (tables := inspect(connection).get_table_names()):
        raise LedgerError(
            f"{name} is no ledger: it holds {len(tables)} other tables, such as `{tables[0]}`, "
            "expected an empty database or a ledger"
        )
    if current is not None and current not in {step.revision for step in scripts.walk_revisions()}:
        raise LedgerError(
            f"{name} was written by a newer forewarn: its schema is `{current}`, this one knows "
            f"`{scripts.get_current_head()}` at most"
        )
    if current is None and opening is OpenMode.EXISTING:
        raise _missing(connection.engine.url)
    if current is not None and opening is OpenMode.NEW:
        raise LedgerError(f"{name} holds a ledger already, expected none to make a new one")
    steps = list(scripts.iterate_revisions("head", current or "base"))
    for step in reversed(steps):
        with Operations.context(context):
            step.module.upgrade()
        context.stamp(scripts, step.revision)


def _scripts() -> ScriptDirectory:
    folder = str(Path(str(migrations.__file__)).parent)
    return ScriptDirectory(folder, version_locations=[folder])
