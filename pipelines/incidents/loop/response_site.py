"""A site as the loop and its commands need it: settings, with paths from where the file lies."""

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
from forewarn.pipelines.incidents.loop.site_check import SiteCheck
from forewarn.pipelines.incidents.replay.policy_file import policy_of_site
from forewarn.pipelines.incidents.schedulers.driver import Driver
from forewarn.pipelines.incidents.schedulers.slurm.slurm_command import SlurmCommand
from forewarn.pipelines.incidents.schedulers.slurm.slurm_driver import SlurmDriver
from forewarn.pipelines.serving.listener import Listener
from forewarn.pipelines.storage.records.failures_table import FAILURES_TABLE
from forewarn.response.policy.policy import Policy
from forewarn.response.state.pool import Pool, PoolMode
from forewarn.response.state.response_settings import ResponseSettings

__all__ = ["STOP_FILE", "ResponseSite"]

STOP_FILE: Final = "respond.stop"
"""Beside the configuration: while it is there, nothing more is taken out of service."""

_SQLITE: Final = "sqlite:///"


@dataclass(frozen=True, slots=True)
class ResponseSite:
    """A configuration whose paths are absolute.

    Attributes
    ----------
    settings : Settings
    folder : Path
        Where the configuration lies; where there is none, the working folder.
    """

    settings: Settings
    folder: Path

    @classmethod
    def from_config(cls, config: Path | None) -> ResponseSite:
        """Read a configuration.

        Raises
        ------
        SettingsError
            If it cannot be used.
        """
        folder = Path.cwd() if config is None else config.resolve().parent
        return cls(load_settings(config), folder)

    @property
    def table(self) -> RespondTable:
        """What the configuration says of acting."""
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
    def verdicts(self) -> Path | None:
        """File of verdicts, if there is one."""
        return self.folder / self.table.verdicts if self.table.verdicts else None

    @property
    def failures(self) -> Path:
        """Table of failures."""
        if self.table.failures:
            return self.folder / self.table.failures
        return self.records / FAILURES_TABLE

    @property
    def pools(self) -> dict[str, Pool]:
        """Pools of the configuration, as the core takes them."""
        return {name: self.table.pool(name) for name in self.table.pools}

    @property
    def core(self) -> ResponseSettings:
        """Spans and bounds of the configuration, as the core takes them."""
        return self.table.core()

    def policy(self) -> Policy:
        """Read the policy with the overlays of the site.

        Raises
        ------
        SettingsError
            If a file cannot be used.
        """
        return policy_of_site([self.folder / name for name in self.table.policy], self.settings)

    @property
    def acts(self) -> bool:
        """Whether anything may be done to a machine of some pool."""
        return any(pool.mode is not PoolMode.OBSERVE for pool in self.pools.values())

    def ledger(self) -> Ledger:
        """Open the ledger; where nothing but observing is allowed, make it if there is none.

        Raises
        ------
        MissingLedgerError
            If a pool may act and there is no ledger: a new one would know no drain and no veto.
        LedgerError
            If it cannot be opened.
        """
        opening = OpenMode.EXISTING if self.acts else OpenMode.EITHER
        return Ledger.open(self.ledger_url, opening=opening)

    def new_ledger(self) -> Ledger:
        """Make a ledger, and open it.

        Raises
        ------
        LedgerError
            If there is one already, or it cannot be made.
        """
        return Ledger.open(self.ledger_url, opening=OpenMode.NEW)

    @contextmanager
    def ledger_to_look_at(self) -> Iterator[Ledger]:
        """Open the ledger; where there is none yet, a temporary empty one: reading makes none.

        Raises
        ------
        LedgerError
            If it cannot be opened.
        """
        with TemporaryDirectory() as folder:
            try:
                ledger = Ledger.open(self.ledger_url, opening=OpenMode.EXISTING)
            except MissingLedgerError:
                ledger = Ledger.open(f"{_SQLITE}{folder}/empty.db", opening=OpenMode.NEW)
            with ledger:
                yield ledger

    def switch(self, ledger: Ledger | None) -> KillSwitch:
        """Return the kill switch, whose file lies beside the configuration."""
        return KillSwitch(self.folder / STOP_FILE, ledger)

    def check(self) -> SiteCheck | None:
        """Return the check before a machine comes back, if the site has one."""
        if not self.table.check:
            return None
        return SiteCheck(self.table.check, self.table.check_timeout / SECOND)

    def access(self, environment: Mapping[str, str]) -> AccessControl:
        """Return who may do what over the API.

        Raises
        ------
        AccessError
            If the tokens cannot be used.
        """
        return parse_access(environment.get(TOKENS_VARIABLE, ""))

    def listener(self) -> Listener:
        """Return where the API listens; loopback, unless the site says otherwise."""
        table = self.table
        certificate, key = (
            str(self.folder / name) if name else "" for name in (table.certificate, table.key)
        )
        return Listener("respond", table.host, table.port, certificate, key)

    def slurm(self) -> SlurmCommand:
        """Return how Slurm's programs are called."""
        conf = self.table.slurm_conf
        return SlurmCommand(
            conf=str(self.folder / conf) if conf else "",
            timeout=self.table.command_timeout / SECOND,
            before_changes=self.table.slurm_sudo,
        )

    def driver(self) -> Driver | None:
        """Return the scheduler; None where nobody may be asked."""
        if self.table.driver == "none":
            return None
        pools = {
            name: table.partition or name
            for name, table in self.table.pools.items()
            if not table.selector
        }
        return SlurmDriver(pools, self.slurm(), self.table.check_users)
