"""What agents collect and how often, and what one agent is told on its own host."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from forewarn.features.telemetry.telemetry_rows import is_host_name
from forewarn.features.xid_catalogue import FATAL_ACTIONS, FATAL_XIDS, NVLINK_XIDS
from forewarn.pipelines.config.toml_tables import (
    Duration,
    SettingsError,
    StrictTable,
    describe_validation_error,
    parse_duration,
    read_toml,
)

__all__ = ["AgentPolicy", "CollectionPolicy", "JobsTable", "load_policy"]

Source = Literal["gpu", "kernel_log", "proc"]


class CollectionPolicy(StrictTable):
    """What the collector may tell an agent: nothing in it names a program or a file."""

    interval: Duration = parse_duration("10min")
    sources: Annotated[tuple[Source, ...], Field(min_length=1)] = ("gpu", "kernel_log", "proc")
    report_xids: tuple[Annotated[int, Field(gt=0)], ...] = FATAL_XIDS
    timeout: Duration = parse_duration("30s")

    def as_told(self) -> dict[str, object]:
        """Return it as JSON holds it."""
        values = self.model_dump(mode="json")
        return values | {name: f"{values[name] // 10**6}ms" for name in ("interval", "timeout")}

    def is_fatal(self, event: Mapping[str, Any]) -> bool:
        """Tell whether an event of the kernel log makes a fault report."""
        code = event.get("code")
        if event["kind"] == "xid" and code in self.report_xids:
            return True
        said_fatal = event.get("severity") == "fatal" and (
            event["kind"] == "sxid" or code in NVLINK_XIDS
        )
        return (
            event["kind"] in ("lost", "init_failed")
            or event.get("action") in FATAL_ACTIONS
            or said_fatal
        )


class JobsTable(StrictTable):
    """What an agent saves of the training jobs of its host; only its own policy says so.

    Attributes
    ----------
    folder : Path or None
        In it a folder a job, for `forewarn diagnose`; shared by all hosts, or one of this host.
        None: nothing is looked at.
    every, ask_every : int
        Nanoseconds between two looks, and between two questions to worker servers.
    worker_port : int
        Port on loopback of the worker server of local rank 0, the others follow; 0: none. Where a
        process names a socket of its own, that is asked.
    stacks : {"off", "server", "py-spy"}
        How stacks are taken once another probe is idle.
    py_spy : str
        The program.
    timeout : int
        Nanoseconds of one question.
    log_mib : int
        Of a log that is copied; of a longer one the end is left.
    keep : int
        Nanoseconds for which the folder of a job is left that nobody writes to any more.
    most_gib : int
        Of all folders of jobs together; those that were written to last stay.
    """

    folder: Path | None = None
    every: Duration = parse_duration("10s")
    ask_every: Duration = parse_duration("30s")
    worker_port: Annotated[int, Field(ge=0, lt=65_536, strict=True)] = 0
    stacks: Literal["off", "server", "py-spy"] = "off"
    py_spy: Annotated[str, Field(min_length=1)] = "py-spy"
    timeout: Duration = parse_duration("10s")
    log_mib: Annotated[int, Field(gt=0, le=4096, strict=True)] = 64
    keep: Duration = parse_duration("30d")
    most_gib: Annotated[int, Field(gt=0, le=2**20, strict=True)] = 100


def _name_of_host() -> str:
    return os.environ.get("FOREWARN_MACHINE_ID") or socket.gethostname()


class AgentPolicy(StrictTable):
    """The policy file of an agent.

    Attributes
    ----------
    collector : str or None
        Address, such as https://collector:8470; without one the agent only prints (`--once`).
    ca : Path or None
        Certificate to trust beside those of the system.
    machine_id : str
        By default FOREWARN_MACHINE_ID, which a container needs, else the name of the host.
    state : Path
        Folder for the spool and for how far the kernel log was read.
    spool_mib : int
        Of what could not be sent yet; the oldest readings give way, then the oldest fault reports.
    kernel_log : Path
        /dev/kmsg, or a file that a log daemon writes.
    gpu : {"auto", "nvml", "nvidia-smi"}
        Where readings come from.
    collection : Collection
        Until the collector says otherwise.
    jobs : JobsTable
        What is saved of training jobs, for a diagnosis.
    """

    collector: str | None = None
    ca: Path | None = None
    machine_id: str = Field(default_factory=_name_of_host, validate_default=True)
    state: Path = Path("/var/lib/forewarn-agent")
    spool_mib: Annotated[int, Field(gt=0, strict=True)] = 256
    kernel_log: Path = Path("/dev/kmsg")
    gpu: Literal["auto", "nvml", "nvidia-smi"] = "auto"
    collection: CollectionPolicy = CollectionPolicy()
    jobs: JobsTable = JobsTable()

    @field_validator("machine_id")
    @classmethod
    def _host(cls, text: str) -> str:
        if not is_host_name(text):
            raise ValueError("expected a name of letters, digits, dots and dashes")
        return text

    @model_validator(mode="after")
    def _address(self) -> Self:
        if "@" in (self.collector or ""):
            raise ValueError(
                "`collector` holds a user name or a password (not shown), expected an address "
                "alone: the token comes from FOREWARN_TOKEN"
            )
        if self.collector is not None and not self.collector.startswith(("http://", "https://")):
            raise ValueError(
                f"`collector` is {self.collector!r}, expected an address such as "
                "https://collector:8470"
            )
        return self


def load_policy(path: Path) -> AgentPolicy:
    """Read the policy file of an agent.

    Raises
    ------
    SettingsError
        If it cannot be read, is no TOML, or has an unknown key or a wrong value.
    """
    try:
        return AgentPolicy.model_validate(read_toml(path))
    except ValidationError as error:
        raise SettingsError(f"{path}: {describe_validation_error(error)}.") from None
