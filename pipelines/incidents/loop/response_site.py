"""Site configuration of the loop and its commands, with absolute paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from forewarn.features.time_units import SECOND
from forewarn.pipelines.config.respond_tables import RespondTable
from forewarn.pipelines.config.settings import Settings, load_settings
from forewarn.pipelines.incidents.api.access_control import (
    TOKENS_VARIABLE,
    AccessControl,
    parse_access,
)
from forewarn.pipelines.incidents.ledger.database import MissingLedgerError, OpenMode
from forewarn.pipelines.incidents.ledger.kill_switch import KillSwitch
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.loop.leader_election import TermLease
from forewarn.pipelines.incidents.loop.site_check import SiteCheck
from forewarn.pipelines.incidents.messages.site_messages import SiteMessages, open_receivers
from forewarn.pipelines.incidents.replay.policy_file import policy_of_site
from forewarn.pipelines.incidents.schedulers.driver import Driver
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.incidents.schedulers.slurm.slurm_driver import SlurmDriver
from forewarn.pipelines.serving.listener import Listener
from forewarn.pipelines.storage.records.failures_table import FAILURES_TABLE
from forewarn.response.policy.policy import Policy
from forewarn.response.state.pool import Pool, PoolMode
from forewarn.response.state.response_settings import ResponseSettings

__all__ = ["DIAGNOSES_FOLDER", "STOP_FILE", "ResponseSite"]

STOP_FILE: Final = "respond.stop"
"""File next to the configuration; while it exists, forewarn takes no new action."""

DIAGNOSES_FOLDER: Final = "respond.diagnoses"
"""Folder next to the configuration for verdicts of diagnoses that the loop starts."""

_SQLITE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True)
class ResponseSite:
    """Configuration of a site, with paths resolved against its folder.

    Attributes
    ----------
    settings : Settings
    folder : Path
        Folder of the configuration file; the working folder if there is no file.
    """

    settings: Settings
    folder: Path

    @classmethod
    def from_config(cls, config: Path | None) -> ResponseSite:
        """Read a configuration.

        Raises
        ------
        SettingsError
            If it is invalid.
        """
        folder = Path.cwd() if config is None else config.resolve().parent
        return cls(load_settings(config), folder)

    @property
    def table(self) -> RespondTable:
        """The `[respond]` table of the configuration."""
        return self.settings.respond

    @property
    def ledger_url(self) -> str:
        """Address of the ledger; the path of an SQLite file is absolute."""
        url = self.table.ledger
        if not url.startswith(_SQLITE):
            return url
        return f"{_SQLITE}{self.folder / url.removeprefix(_SQLITE)}"

    @property
    def records(self) -> Path:
        """Folder of records."""
        return self.folder / (self.table.records or self.settings.site.records)

    @property
    def lists(self) -> Path:
        """Folder of daily lists."""
        return self.folder / (self.table.lists or self.settings.site.lists)

    @property
    def metrics(self) -> Path | None:
        """Folder for the metrics of jobs that end, if configured."""
        return self.folder / self.settings.site.metrics if self.settings.site.metrics else None

    @property
    def verdicts(self) -> Path | None:
        """File of verdicts, if configured."""
        return self.folder / self.table.verdicts if self.table.verdicts else None

    @property
    def own_diagnoses(self) -> Path:
        """Folder of the verdicts of diagnoses that the loop starts."""
        return self.folder / DIAGNOSES_FOLDER

    @property
    def diagnoses(self) -> list[Path]:
        """Files, and folders of files, of verdicts of `forewarn diagnose`."""
        return [*(self.folder / name for name in self.table.diagnoses), self.own_diagnoses]

    @property
    def inspections(self) -> Path | None:
        """File of judged inspections, if configured."""
        return self.folder / self.table.inspections if self.table.inspections else None

    @property
    def notices(self) -> Path | None:
        """Folder of notices to jobs, if configured."""
        return self.folder / self.table.notices if self.table.notices else None

    @property
    def failures(self) -> Path:
        """Table of failures."""
        if self.table.failures:
            return self.folder / self.table.failures
        return self.records / FAILURES_TABLE

    @property
    def pools(self) -> dict[str, Pool]:
        """Configured pools by name."""
        return {name: self.table.pool(name) for name in self.table.pools}

    @property
    def core(self) -> ResponseSettings:
        """Configured settings of the response."""
        return self.table.core()

    def policy(self) -> Policy:
        """Read the policy with the overlays of the site.

        Raises
        ------
        SettingsError
            If a file is invalid.
        """
        return policy_of_site([self.folder / name for name in self.table.policy], self.settings)

    @property
    def acts(self) -> bool:
        """Whether the mode of any pool permits actions."""
        return any(pool.mode is not PoolMode.OBSERVE for pool in self.pools.values())

    def ledger(self) -> Ledger:
        """Open the ledger; create it if it is missing and all pools only observe.

        Raises
        ------
        MissingLedgerError
            If a pool may act and there is no ledger: a new one would not know any drain or veto.
        LedgerError
            If the ledger cannot be opened.
        """
        opening = OpenMode.EXISTING if self.acts else OpenMode.EITHER
        return Ledger.open(self.ledger_url, opening=opening)

    def new_ledger(self) -> Ledger:
        """Create a ledger and open it.

        Raises
        ------
        LedgerError
            If there is one already, or it cannot be created.
        """
        return Ledger.open(self.ledger_url, opening=OpenMode.NEW)

    @contextmanager
    def ledger_to_look_at(self) -> Iterator[Ledger]:
        """Open the ledger for reading; if there is none, use a temporary empty one.

        Raises
        ------
        LedgerError
            If the ledger cannot be opened.
        """
        with TemporaryDirectory() as folder:
            try:
                ledger = Ledger.open(self.ledger_url, opening=OpenMode.EXISTING)
            except MissingLedgerError:
                ledger = Ledger.open(f"{_SQLITE}{folder}/empty.db", opening=OpenMode.NEW)
            with ledger:
                yield ledger

    def switch(self, ledger: Ledger | None) -> KillSwitch:
        """Return the kill switch, whose file lies next to the configuration."""
        return KillSwitch(self.folder / STOP_FILE, ledger)

    def check(self) -> SiteCheck | None:
        """Return the site check, if configured."""
        if not self.table.check:
            return None
        return SiteCheck(self.table.check, self.table.check_timeout / SECOND)

    def access(self, environment: Mapping[str, str]) -> AccessControl:
        """Return the access control of the API.

        Raises
        ------
        TokenError
            If the tokens are invalid.
        """
        return parse_access(environment.get(TOKENS_VARIABLE, ""))

    def listener(self) -> Listener:
        """Return the listener of the API; loopback by default."""
        table = self.table
        certificate, key = (
            str(self.folder / name) if name else "" for name in (table.certificate, table.key)
        )
        return Listener("respond", table.host, table.port, certificate, key)

    def slurm(self) -> SlurmCommand:
        """Return the way in which Slurm's programs are called."""
        conf = self.table.slurm_conf
        return SlurmCommand(
            conf=str(self.folder / conf) if conf else "",
            timeout=self.table.command_timeout / SECOND,
            before_changes=self.table.slurm_sudo,
        )

    def messages(self, ledger: Ledger, environment: Mapping[str, str]) -> SiteMessages:
        """Return the messages of the site.

        Raises
        ------
        InputError
            If the address or secret of a receiver is missing or invalid.
        """
        tables = self.settings.messages
        receivers = open_receivers(tables, self.folder, environment)
        return SiteMessages(ledger, tables, receivers, self.core.quiet)

    def lease(self) -> TermLease | None:
        """Return the lease by which one of several responders is elected, if configured."""
        if not self.table.kubernetes.lease:
            return None
        from forewarn.pipelines.incidents.loop.kubernetes_site import kubernetes_lease

        return kubernetes_lease(self.table, self.folder)

    def driver(self) -> Driver | None:
        """Return the scheduler; None if `driver` is `none`."""
        if self.table.driver == "none":
            return None
        if self.table.driver == "kubernetes":
            from forewarn.pipelines.incidents.loop.kubernetes_site import kubernetes_driver

            return kubernetes_driver(self.table, self.folder)
        pools = {
            name: table.partition or name
            for name, table in self.table.pools.items()
            if not table.selector
        }
        return SlurmDriver(pools, self.slurm(), self.table.check_users)
