"""State that an agent keeps across restarts: small files, each reset if it is corrupt."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading
from forewarn.pipelines.storage.files.atomic_files import write_atomic

__all__ = [
    "AgentState",
    "GpuInventoryFile",
    "LogPositionFile",
    "ScheduleFile",
    "StoredGpu",
    "move_aside",
]

_MAX_FILE_BYTES = 1 << 20  # hundreds of times the size of any of these files
_Whole = Annotated[int, Field(ge=0, lt=2**63)]
_File = TypeVar("_File", bound=BaseModel)


class _Stored(BaseModel):
    model_config = ConfigDict(strict=True)


class StoredGpu(_Stored):
    """Identifiers of a GPU."""

    serial: str | None = None
    uuid: str | None = None
    pci: str | None = None
    slot: int | None = None

    @classmethod
    def from_reading(cls, gpu: GpuReading) -> StoredGpu:
        """Return the identifiers of a reading."""
        return cls(serial=gpu.serial, uuid=gpu.uuid, pci=gpu.pci, slot=gpu.slot)

    def reading(self) -> GpuReading:
        """Return the identifiers as a reading without metrics."""
        return GpuReading(serial=self.serial, uuid=self.uuid, pci=self.pci, slot=self.slot)


class GpuInventoryFile(_Stored):
    """`gpus.json`: the GPU inventory of the host."""

    known: dict[str, StoredGpu] = {}
    missing: dict[str, StoredGpu] = {}

    @classmethod
    def from_readings(
        cls, known: Mapping[str, GpuReading], missing: Mapping[str, GpuReading]
    ) -> GpuInventoryFile:
        """Return the stored form of an inventory."""
        rolls = (
            {key: StoredGpu.from_reading(gpu) for key, gpu in gpus.items()}
            for gpus in (known, missing)
        )
        return cls(**dict(zip(("known", "missing"), rolls, strict=True)))

    def readings(self) -> tuple[dict[str, GpuReading], dict[str, GpuReading]]:
        """Return known and missing GPUs as readings without metrics."""
        known = {key: gpu.reading() for key, gpu in self.known.items()}
        return known, {key: gpu.reading() for key, gpu in self.missing.items()}


class ScheduleFile(_Stored):
    """`schedule.json`: the last reading time, in nanoseconds since 1970 UTC."""

    last: _Whole = 0


class LogPositionFile(_Stored):
    """`log.json`: the position in the kernel log, of /dev/kmsg or of a file."""

    boot: str = ""
    sequence: Annotated[int, Field(ge=-1, lt=2**63)] = -1
    inode: _Whole = 0
    offset: _Whole = 0
    head: str = ""
    skipping: bool = False


@dataclass(frozen=True, slots=True)
class AgentState:
    """State folder of an agent.

    Attributes
    ----------
    folder : Path
    say : callable
        Writes a line to the agent's log.
    """

    folder: Path
    say: Callable[[str], None]

    def load(self, name: str, kind: type[_File]) -> _File | None:
        """Return the content of a file; None if it is missing, or corrupt and moved aside."""
        path = self.folder / name
        if not path.exists():
            return None
        try:
            return kind.model_validate_json(_read_bounded(path))
        except (OSError, ValueError) as error:
            move_aside(path, _reason(error), self.say)
            return None

    def store(self, name: str, text: str) -> None:
        """Write a file; if that fails, the previous one stays and the agent continues."""
        with suppress(OSError):
            write_atomic(self.folder / name, text.encode())

    def sweep(self) -> None:
        """Remove stale temporary files of a killed process."""
        for path in self.folder.glob(".*.tmp"):
            with suppress(OSError):
                path.unlink()


def _read_bounded(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError("not a regular file")
    with path.open("rb") as file:
        content = file.read(_MAX_FILE_BYTES + 1)
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"larger than {_MAX_FILE_BYTES} bytes")
    return content


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, ValidationError):
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"]))
        return f"{key}: {problem['msg']}" if key else problem["msg"]
    return str(error)


def move_aside(path: Path, why: str, say: Callable[[str], None]) -> None:
    """Rename a file that the agent cannot use to `NAME.bad`, replacing an earlier one."""
    aside = path.with_name(f"{path.name}.bad")
    try:
        if aside.is_dir() and not aside.is_symlink():
            shutil.rmtree(aside)
        else:
            aside.unlink(missing_ok=True)
        path.replace(aside)
    except OSError as error:
        say(f"{path}: cannot be used ({why}) and cannot be renamed ({error.strerror})")
    else:
        say(f"{path}: cannot be used ({why}); renamed to {aside.name} and reset")
