"""The messages of a site: its receivers, and their delivery next to the loop."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from forewarn.features.errors import InputError
from forewarn.features.time_units import MINUTE, SECOND, Nanoseconds
from forewarn.pipelines.config.message_tables import (
    ALERT_URL_RECEIVER,
    MessagesTable,
    check_address,
)
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.messages.alertmanager_receiver import POST_SECONDS, Alertmanager
from forewarn.pipelines.incidents.messages.change_messages import ChangeMessages, Route
from forewarn.pipelines.incidents.messages.http_receivers import (
    AlertUrl,
    PagerDuty,
    Slack,
    Webhook,
    parse_secret,
)
from forewarn.pipelines.incidents.messages.mail_receiver import Mail
from forewarn.pipelines.incidents.messages.message import alert_message
from forewarn.pipelines.incidents.messages.outbox import Outbox
from forewarn.pipelines.incidents.messages.receiver import Receiver, SendError
from forewarn.pipelines.runtime.alerts import ALERT_URL_VARIABLE, note_alert
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.http_post import HttpPoster
from forewarn.pipelines.runtime.progress import note
from forewarn.response.state.decision import Decision
from forewarn.response.state.finding import Severity
from forewarn.response.state.incident import Incident

__all__ = ["SiteMessages", "open_receivers"]

_POLL_SECONDS: Final = 5.0
_ROUND_SECONDS: Final = 10  # for which `--once` begins to send messages
_MAX_WAIT_SECONDS: Final = 40.0
_STUCK: Final = 30 * MINUTE  # as in the alert rule
_ALERTS_PATH: Final = "/api/v2/alerts"


def open_receivers(
    tables: Mapping[str, MessagesTable], folder: Path, environment: Mapping[str, str]
) -> dict[str, Receiver]:
    """Return the receivers of a configuration, and that of FOREWARN_ALERT_URL if it is set.

    Parameters
    ----------
    tables : mapping of str to MessagesTable
    folder : Path
        Folder of the configuration.
    environment : mapping of str to str

    Raises
    ------
    InputError
        If an address or a secret is missing or invalid.
    """
    receivers = {
        name: _receiver(name, table, folder, environment) for name, table in tables.items()
    }
    if address := environment.get(ALERT_URL_VARIABLE):
        receivers[ALERT_URL_RECEIVER] = AlertUrl(HttpPoster(address))
    return receivers


def _receiver(
    name: str, table: MessagesTable, folder: Path, environment: Mapping[str, str]
) -> Receiver:
    def from_environment(key: str, variable: str) -> str:
        value = environment.get(variable, "").strip() if variable else ""
        if variable and not value:
            raise InputError(
                f"messages.{name}.{key}: the environment variable {variable} is not set."
            )
        return value

    url = from_environment("url_variable", table.url_variable) or table.default_url
    secret = from_environment("secret_variable", table.secret_variable)
    try:
        check_address(url, email=table.kind == "email")
    except ValueError as error:
        raise InputError(f"messages.{name}: {error}.") from None
    ca = folder / table.ca if table.ca else None
    if table.kind == "email":
        return Mail(url, secret, table.sender, table.recipients, ca)
    if table.kind == "alertmanager":
        poster = HttpPoster(url.rstrip("/") + _ALERTS_PATH, ca)
        return Alertmanager(poster, secret, Severity(table.min_severity))
    poster = HttpPoster(url, ca)
    if table.kind == "slack":
        return Slack(poster)
    if table.kind == "pagerduty":
        return PagerDuty(poster, secret)
    return Webhook(poster, parse_secret(secret, table.secret_variable))


def _route(name: str, table: MessagesTable) -> Route:
    lowest, page = Severity(table.min_severity), Severity(table.page_severity)
    if table.kind == "pagerduty":  # only what wakes someone
        return Route(name, page, page, digests=False)
    return Route(name, lowest, page)


@dataclass(slots=True)
class SiteMessages:
    """Writes messages into the outbox after each round, and sends them from threads of their own.

    Attributes
    ----------
    ledger : Ledger
    tables : mapping of str to MessagesTable
    receivers : mapping of str to Receiver
        As returned by `open_receivers`.
    quiet : int
        Group wait of a new incident, nanoseconds.
    clock : Clock
    """

    ledger: Ledger
    tables: Mapping[str, MessagesTable]
    receivers: Mapping[str, Receiver]
    quiet: Nanoseconds
    clock: Clock = field(default_factory=SystemClock)
    _noted: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def outbox(self) -> Outbox:
        """The outbox in the ledger."""
        return Outbox(self.ledger)

    @property
    def _changes(self) -> ChangeMessages:
        routes = [_route(n, t) for n, t in self.tables.items() if t.kind != "alertmanager"]
        if ALERT_URL_RECEIVER in self.receivers:
            routes.append(Route(ALERT_URL_RECEIVER, Severity.NOTICE, incidents=False))
        return ChangeMessages(self.ledger, routes, self.quiet)

    # --- writing --------------------------------------------------------------------------------

    def write(self, decided: Sequence[tuple[Incident, Decision | None]], now: Nanoseconds) -> None:
        """Write messages about the changes of this round; see `ChangeMessages.write`."""
        self.outbox.register(self.receivers, now)
        if self.tables:
            self._changes.write(decided, now)

    def add_alert(self, connection: Connection, text: str, now: Nanoseconds) -> None:
        """Write an alert in the transaction of a connection."""
        self._changes.add_alert(connection, text, now)

    def stuck(self, now: Nanoseconds) -> dict[str, str]:
        """Return the text of an alert for each receiver; empty if it accepts messages."""
        return {
            f"messages {state.name}": ""
            if state.oldest is None or now - state.oldest < _STUCK
            else f"the receiver {state.name} has accepted nothing for 30 minutes, see "
            "`forewarn messages list`"
            for state in self.outbox.states(now)
        }

    # --- sending --------------------------------------------------------------------------------

    def start(self, ended: threading.Event) -> None:
        """Send until `ended`, in one thread per receiver: a slow one delays no other."""
        for name in self.receivers:
            self._thread(name, partial(self._repeat, name, ended)).start()

    def send_once(self) -> None:
        """Send what is due, and begin no message after ten seconds."""
        until = Nanoseconds(self.clock.now() + _ROUND_SECONDS * SECOND)
        threads = [self._thread(name, partial(self._try, name, until)) for name in self.receivers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_MAX_WAIT_SECONDS)

    def close(self) -> None:
        """Close the connections to the receivers."""
        for receiver in self.receivers.values():
            receiver.close()

    def warn(self, what: str, text: str) -> None:
        """Send an alert at once, once, without the ledger, which may be what is broken."""
        note_alert(what, text)
        message = alert_message(text, Nanoseconds(self.clock.now()))
        for name, receiver in self.receivers.items():
            if isinstance(receiver, Alertmanager):
                continue

            def send(name: str = name, receiver: Receiver = receiver) -> None:
                try:
                    receiver.send(message, Nanoseconds(self.clock.now()))
                except SendError as error:
                    note(f"the alert was not delivered to {name}: {error}")

            self._thread(name, send).start()

    def deliver(self, name: str, until: Nanoseconds | None = None) -> None:
        """Send the due messages of a receiver until none is left, one fails, or the time is over.

        Raises
        ------
        LedgerError
            If the ledger does not answer.
        """
        receiver = self.receivers[name]
        if isinstance(receiver, Alertmanager):
            self._post_incidents(name, receiver)
            return
        now = Nanoseconds(self.clock.now())
        while until is None or now < until:
            claimed = self.outbox.claim(name, now)
            if claimed is None:
                return
            try:
                receiver.send(claimed.message, now)
            except SendError as error:
                note(f"message {claimed.message.id} was not delivered to {name}: {error}")
                self.outbox.failed(name, claimed, error, Nanoseconds(self.clock.now()))
            else:
                self.outbox.accepted(name, claimed, Nanoseconds(self.clock.now()))
            now = Nanoseconds(self.clock.now())

    def _post_incidents(self, name: str, receiver: Alertmanager) -> None:
        now = Nanoseconds(self.clock.now())
        with self.ledger.database.reading() as connection:
            if self.outbox.waits(connection, name, now):
                return
        try:
            receiver.post_incidents(self.ledger, now)
        except SendError as error:
            note(f"the incidents were not delivered to {name}: {error}")
            self.outbox.failed(name, None, error, now)
        else:
            self.outbox.accepted(name, None, now)

    def _repeat(self, name: str, ended: threading.Event) -> None:
        is_polled = isinstance(self.receivers[name], Alertmanager)
        seconds = POST_SECONDS if is_polled else _POLL_SECONDS
        while not self.clock.wait(seconds, ended):
            self._try(name)

    def _try(self, name: str, until: Nanoseconds | None = None) -> None:
        """Send, and note an error of the ledger once; another error must not end the thread."""
        try:
            self.deliver(name, until)
        except LedgerError as error:
            if self._noted.get(name) != str(error):
                note(f"messages to {name} wait: {error}")
            self._noted[name] = str(error)
        except Exception:
            traceback.print_exc()
        else:
            self._noted.pop(name, None)

    def _thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        return threading.Thread(target=work, daemon=True, name=f"messages {name}")
