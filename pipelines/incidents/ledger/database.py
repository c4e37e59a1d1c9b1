"""Database of the ledger: address, connections, transactions and schema."""

from __future__ import annotations

import sqlite3
import threading
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
from forewarn.pipelines.incidents.ledger import lease_terms, migrations
from forewarn.pipelines.incidents.ledger.quarantined_rows import QUARANTINE_OPTION, Quarantine
from forewarn.pipelines.incidents.ledger.sqlite_file import LedgerFile

__all__ = ["PASSWORD_VARIABLE", "LedgerDatabase", "LedgerError", "MissingLedgerError", "OpenMode"]

PASSWORD_VARIABLE = "FOREWARN_LEDGER_PASSWORD"
"""Environment variable with the password of the database."""

VERSION_TABLE = "ledger_version"
LOCK_TIMEOUT_SECONDS = 30
WRITER_LOCK_ID = 0x666F7265  # PostgreSQL advisory lock that all writers of a ledger take


class LedgerError(InputError):
    """The ledger cannot be opened or reached; one line, without a password."""


class MissingLedgerError(LedgerError):
    """There is no ledger where one is expected."""


class OpenMode(StrEnum):
    """Whether a ledger has to exist, must not exist, or either."""

    EXISTING = "existing"
    NEW = "new"
    EITHER = "either"


class LedgerDatabase:
    """Database with the tables of the ledger.

    Parameters
    ----------
    engine : Engine
        Its database has the newest schema.

    Attributes
    ----------
    term : int or None
        Term of the lease of this responder, which every write carries: none is made once a later
        responder has written. None: there is no lease.
    """

    def __init__(self, engine: Engine) -> None:
        self.quarantine = Quarantine()
        self.file: LedgerFile | None = None
        self.term: int | None = None
        self._joined = threading.local()  # its `connection` is that of the thread's transaction
        self.engine = engine.execution_options(**{QUARANTINE_OPTION: self.quarantine})

    @classmethod
    def open(
        cls, url: str, environment: Mapping[str, str], opening: OpenMode = OpenMode.EITHER
    ) -> LedgerDatabase:
        """Connect and migrate the tables to the newest schema.

        Raises
        ------
        MissingLedgerError
            If an existing ledger was expected and there is none; nothing is created.
        LedgerError
            If the address is invalid, the database does not answer, holds other tables, was written
            by a newer forewarn, or holds a ledger where a new one was expected.
        """
        address = _address(url, environment)
        path = Path(str(address.database)) if address.get_backend_name() == "sqlite" else None
        if path is not None and opening is OpenMode.EXISTING and LedgerFile.is_empty(path):
            raise _missing(address)
        created = path is not None and LedgerFile.create(path)
        database = cls(_engine(address))
        try:
            database.migrate(opening)
            if path is not None:
                _enable_write_ahead_log(database.engine)
                database.file = LedgerFile.from_path(path)
        except BaseException:
            database.engine.dispose()
            if created and path is not None and LedgerFile.is_empty(path):
                path.unlink(missing_ok=True)
            raise
        return database

    def migrate(self, opening: OpenMode = OpenMode.EITHER) -> None:
        """Migrate the tables to the newest schema in one transaction.

        Raises
        ------
        LedgerError
            If the database holds other tables, was written by a newer forewarn, or does not match
            `opening`.
        """
        # SQLite recreates a table to change it: foreign keys must not be enforced meanwhile.
        with self.writing(forewarn_migrates=True) as connection:
            _migrate(connection, opening)
        self.engine.dispose()  # its connections do not enforce foreign keys

    def _check_file(self) -> None:
        """Raise if the SQLite file was removed or replaced: its rows would be lost."""
        if self.file is None or self.file.is_same():
            return
        kind, change = (
            (LedgerError, "replaced")
            if self.file.path.exists()
            else (MissingLedgerError, "removed")
        )
        message = (
            f"was {change} while it was open; nothing more is written. Restore the file under "
            "this name and restart."
        )
        raise kind(f"{_name(self.engine.url)}: {message}")

    @property
    def address(self) -> str:
        """Address with which another process can open the ledger, without a password."""
        return self.engine.url._replace(password=None).render_as_string()

    def clock(self) -> Nanoseconds | None:
        """Return the time of the database server; None for SQLite, which has no own clock."""
        if self.engine.dialect.name == "sqlite":
            return None
        epoch = func.extract("epoch", func.clock_timestamp())
        with self.reading() as connection:
            seconds = connection.execute(select(epoch)).scalar_one()
        return Nanoseconds(int(seconds * 1_000_000) * 1_000)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a read-only connection with one snapshot of the ledger."""
        if (joined := self._joined_connection()) is not None:
            yield joined
            return
        self._check_file()
        with _convert_errors(self.engine.url), self.engine.connect() as connection:
            if connection.dialect.name == "postgresql":
                connection.execution_options(
                    isolation_level="REPEATABLE READ", postgresql_readonly=True
                )
            with connection.begin():
                yield connection

    @contextmanager
    def writing(self, **options: bool) -> Iterator[Connection]:
        """Yield the only writing connection; everything is committed at the end, or nothing.

        Rows that it reads are current and do not change until the end, because other writers wait.
        `options` are execution options of the connection.
        """
        if (joined := self._joined_connection()) is not None:
            yield joined
            return
        self._check_file()
        with _convert_errors(self.engine.url), self.engine.connect() as connection:
            connection.execution_options(forewarn_writes=True, **options)
            with connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.execute(select(func.pg_advisory_xact_lock(WRITER_LOCK_ID)))
                self._check_term(connection)
                yield connection

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make everything that this thread reads and writes in the block one writing transaction.

        A process that is killed in the block leaves nothing of it in the ledger.
        """
        with self.writing() as connection:
            self._joined.connection = connection
            try:
                yield
            finally:
                self._joined.connection = None

    def _joined_connection(self) -> Connection | None:
        """Return the connection of the transaction that this thread is in; None outside of one."""
        return getattr(self._joined, "connection", None)

    def last_term(self) -> int:
        """Return the term of the last responder with a lease that has written; 0 for none."""
        with self.reading() as connection:
            return lease_terms.last_term(connection)

    def _check_term(self, connection: Connection) -> None:
        """Record the term of this responder; raise if a later one has written already."""
        last = self.term and lease_terms.record_term(connection, self.term)
        if last != self.term:
            message = f"a responder with term {last} has taken over from term {self.term}"
            raise LedgerError(f"{message}; nothing is written", is_transient=True)


def _address(url: str, environment: Mapping[str, str]) -> URL:
    """Return the address with its password; messages do not repeat it, because it may hold one."""
    try:
        address = make_url(url)
    except ArgumentError:
        raise LedgerError(
            "[respond] ledger: not a database address, expected `sqlite:///PATH` or "
            "`postgresql://USER@HOST/NAME`"
        ) from None
    if address.password is not None or "password" in address.query:
        raise LedgerError(
            f"[respond] ledger: the address of {_name(address)} contains a password, expected it "
            f"in the environment variable {PASSWORD_VARIABLE}"
        )
    match address.get_backend_name():
        case "sqlite" if address.database and address.database != ":memory:":
            return URL.create("sqlite", database=address.database)
        case "postgresql" if address.database:
            password = environment.get(PASSWORD_VARIABLE)
            return address.set(drivername="postgresql+psycopg", password=password)
    raise LedgerError(
        f"[respond] ledger: got {_name(address)}, expected `sqlite:///PATH` or "
        "`postgresql://USER@HOST/NAME`"
    )


def _name(address: URL) -> str:
    """Return the name of a database for messages, without user and password."""
    if address.get_backend_name() == "sqlite":
        return f"`{address.database or 'a database in memory'}`"
    port = f":{address.port}" if address.port else ""
    return f"database `{address.database or ''}` on `{address.host or 'localhost'}{port}`"


def _engine(address: URL) -> Engine:
    if address.get_backend_name() == "postgresql":
        wait = f"-c lock_timeout={LOCK_TIMEOUT_SECONDS}s"
        return create_engine(
            address,
            pool_pre_ping=True,  # a restarted server is not an error
            connect_args={"connect_timeout": 10, "options": wait, "application_name": "forewarn"},
        )
    engine = create_engine(address, connect_args={"timeout": LOCK_TIMEOUT_SECONDS})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    """Disable implicit transactions: sqlite3 would begin one only before the first write."""
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
    """Switch to the write-ahead log, which is possible only outside of a transaction."""
    raw = engine.raw_connection()
    try:
        deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
        while not _switched_to_write_ahead_log(raw.cursor(), engine.url, deadline):
            # SQLite's time-out does not apply here while another process writes.
            time.sleep(0.02)
    finally:
        raw.close()


def _switched_to_write_ahead_log(cursor: DBAPICursor, address: URL, deadline: float) -> bool:
    """Return whether the log was switched; False while another process writes."""
    try:
        cursor.execute("PRAGMA journal_mode = WAL")
    except sqlite3.OperationalError as error:
        is_busy = (
            error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
        )  # the upper bits are the extended code
        if is_busy and time.monotonic() < deadline:
            return False
        raise LedgerError(f"the ledger, {_name(address)}: {error}", is_transient=True) from error
    return True


@contextmanager
def _convert_errors(address: URL) -> Iterator[None]:
    """Convert database errors to a `LedgerError` of one line."""
    try:
        yield
    except IntegrityError as error:
        raise LedgerError(
            f"the ledger, {_name(address)}, has no such incident or action: {error.orig}"
        ) from error
    except DBAPIError as error:
        lines = str(error.orig).strip().splitlines() or [type(error.orig).__name__]
        reason = lines[0].removesuffix(".")
        if reason == "file is not a database":
            reason = "is not a database, expected a ledger or a new file name"
            raise LedgerError(f"{_name(address)} {reason}") from error
        raise LedgerError(f"the ledger, {_name(address)}: {reason}", is_transient=True) from error
    except PoolTimeoutError as error:
        raise LedgerError(
            f"the ledger, {_name(address)}: all connections are in use", is_transient=True
        ) from error


def _missing(address: URL) -> MissingLedgerError:
    return MissingLedgerError(
        f"{_name(address)}: there is no ledger, and an empty one would lack all drains and vetoes. "
        "Restore it from a backup, or create an empty one with `forewarn respond --new-ledger`."
    )


def _migrate(connection: Connection, opening: OpenMode) -> None:
    """Migrate the tables within the transaction of the connection."""
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    scripts = _scripts()
    current = context.get_current_revision()
    name = _name(connection.engine.url)
    if current is None and (tables := inspect(connection).get_table_names()):
        raise LedgerError(
            f"{name} is not a ledger: it has {len(tables)} other tables, such as `{tables[0]}`, "
            "expected an empty database or a ledger"
        )
    if current is not None and current not in {step.revision for step in scripts.walk_revisions()}:
        raise LedgerError(
            f"{name} was written by a newer forewarn: its schema is `{current}`, this version "
            f"supports up to `{scripts.get_current_head()}`"
        )
    if current is None and opening is OpenMode.EXISTING:
        raise _missing(connection.engine.url)
    if current is not None and opening is OpenMode.NEW:
        raise LedgerError(f"{name} contains a ledger already, expected none for `--new-ledger`")
    steps = list(scripts.iterate_revisions("head", current or "base"))
    for step in reversed(steps):
        with Operations.context(context):
            step.module.upgrade()
        context.stamp(scripts, step.revision)


def _scripts() -> ScriptDirectory:
    folder = str(Path(str(migrations.__file__)).parent)
    return ScriptDirectory(folder, version_locations=[folder])
