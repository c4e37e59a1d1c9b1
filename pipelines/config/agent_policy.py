"""The policy file of an agent: what it collects and how often."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from forewarn.features.inspection.check_table import CheckName, CheckTable
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.telemetry.telemetry_rows import is_host_name
from forewarn.features.time_units import SECOND
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
    """What the collector may configure on an agent; no key names a program or a file.

    Attributes
    ----------
    interval : int
        Nanoseconds between two readings.
    hardware_every : int or None
        Nanoseconds between two looks for damage; None disables them.
    sources : tuple of {"gpu", "kernel_log", "proc"}
    report_xids : tuple of int
        Xids that are reported at once.
    timeout : int
        Nanoseconds after which a source of readings counts as hanging.
    """

    interval: Duration = parse_duration("10min")
    hardware_every: Annotated[Duration, Field(ge=SECOND)] | None = None
    sources: Annotated[tuple[Source, ...], Field(min_length=1)] = ("gpu", "kernel_log", "proc")
    report_xids: tuple[Annotated[int, Field(gt=0)], ...] = FATAL_XIDS
    timeout: Duration = parse_duration("30s")

    def as_json(self) -> dict[str, object]:
        """Return the policy as JSON values."""
        values = self.model_dump(mode="json", exclude_none=True)
        spans = values.keys() & {"interval", "hardware_every", "timeout"}
        return values | {name: f"{values[name] // 10**6}ms" for name in spans}

    def is_fatal(self, event: Mapping[str, Any]) -> bool:
        """Tell whether a kernel log event leads to a fault report."""
        code = event.get("code")
        if event["kind"] == "xid" and code in self.report_xids:
            return True
        reported_fatal = event.get("severity") == "fatal" and (
            event["kind"] == "sxid" or code in NVLINK_XIDS
        )
        return (
            event["kind"] in ("lost", "init_failed")
            or (event["kind"] == GPU_ERROR and event.get("severity") == "critical")
            or event.get("action") in FATAL_ACTIONS
            or reported_fatal
        )


class JobsTable(StrictTable):
    """What an agent saves about training jobs on its host; only its own policy can set it.

    Attributes
    ----------
    folder : Path or None
        Folder that receives a folder per job, for `forewarn diagnose`; shared by all hosts, or
        local. None disables it.
    every, ask_every : int
        Nanoseconds between two captures, and between two requests to worker servers.
    worker_port : int
        Loopback port of the worker server of local rank 0; the others follow. 0 disables it. A
        process that names its own socket is asked there.
    stacks : {"off", "server", "py-spy"}
        How stacks are captured while other probes show no activity.
    py_spy : str
        Path of py-spy.
    timeout : int
        Nanoseconds per request.
    log_mib : int
        Largest copy of a log; of a longer log the end is kept.
    keep : int
        Nanoseconds after the last write at which the folder of a job is deleted.
    most_gib : int
        Total size of all job folders; the least recently written are deleted first.
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
        Address, such as https://collector:8470; without it the agent can only print (`--once`).
    ca : Path or None
        Certificate authority to trust in addition to those of the system.
    machine_id : str
        By default FOREWARN_MACHINE_ID, which a container needs, else the host name.
    state : Path
        Folder for the spool and the read position in the kernel log.
    spool_mib : int
        Size of the spool; the oldest readings are dropped first, then the oldest fault reports.
    kernel_log : Path
        /dev/kmsg, or a file written by a log daemon.
    gpu : {"auto", "nvml", "nvidia-smi", "amd-smi", "npu-smi"}
        Source of the readings.
    collection : CollectionPolicy
        Used until the collector sends another one.
    jobs : JobsTable
        What is saved about training jobs.
    check : dict of str to CheckTable
        Custom checks.
    """

    collector: str | None = None
    ca: Path | None = None
    machine_id: str = Field(default_factory=_name_of_host, validate_default=True)
    state: Path = Path("/var/lib/forewarn-agent")
    spool_mib: Annotated[int, Field(gt=0, strict=True)] = 256
    kernel_log: Path = Path("/dev/kmsg")
    gpu: Literal["auto", "nvml", "nvidia-smi", "amd-smi", "npu-smi"] = "auto"
    collection: CollectionPolicy = CollectionPolicy()
    jobs: JobsTable = JobsTable()
    check: dict[CheckName, CheckTable] = Field(default_factory=dict, max_length=64)

    @field_validator("machine_id")
    @classmethod
    def _host(cls, text: str) -> str:
        if not is_host_name(text):
            raise ValueError("expected a name of letters, digits, dots and dashes")
        return text

    @field_validator("check")
    @classmethod
    def _agent_can_run(cls, checks: dict[str, CheckTable]) -> dict[str, CheckTable]:
        for name, check in checks.items():
            if not check.command:
                raise ValueError(f"`check.{name}` has no `command`, expected a program to run")
            if check.timeout > check.every:
                raise ValueError(
                    f"`check.{name}.timeout` is longer than `every`, expected at most `every`, "
                    "since runs do not overlap"
                )
        return checks

    @model_validator(mode="after")
    def _address(self) -> Self:
        if "@" in (self.collector or ""):
            raise ValueError(
                "`collector` contains a user name or a password (not shown), expected only an "
                "address: the token comes from FOREWARN_TOKEN"
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
        If it cannot be read, is not TOML, or has an unknown key or an invalid value.
    """
    try:
        return AgentPolicy.model_validate(read_toml(path))
    except ValidationError as error:
        raise SettingsError(f"{path}: {describe_validation_error(error)}.") from None
