"""Where an agent gets readings from: NVML where it works, `nvidia-smi` otherwise."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from forewarn.features.telemetry.parsers.nvidia_smi_csv import (
    DAMAGED,
    lost_gpus,
    parse_query_gpu,
    query_fields,
    supported_fields,
)
from forewarn.features.telemetry.parsers.nvidia_smi_xml import parse_nvidia_smi_xml
from forewarn.features.telemetry.parsers.reading import GpuReading, Unread, pci_address

__all__ = [
    "Answer",
    "GpuSource",
    "HangError",
    "NoSourceError",
    "NvidiaSmi",
    "Nvml",
    "NvmlElseSmi",
    "open_source",
]


_LAST_WAIT = 0.5  # seconds
_SHOWN = 200  # characters of what a program said
_UNREAD = "a GPU that NVML names and cannot read"


class HangError(Exception):
    """A GPU or its driver did not answer in time: a finding of its own."""


class NoSourceError(Exception):
    """Nothing on this host can read a GPU."""


@dataclass(frozen=True, slots=True)
class Answer:
    """All GPUs of a host at one moment.

    Attributes
    ----------
    readings : list of GpuReading
    lost : tuple of str
        PCI addresses of GPUs that are called lost.
    unread : Unread
    trouble : str
        Why a GPU that is not among the readings may be there all the same; empty if the source
        had none.
    """

    readings: list[GpuReading]
    lost: tuple[str, ...] = ()
    unread: Unread = field(default_factory=Unread)
    trouble: str = ""


class GpuSource(Protocol):
    """Anything that can read the GPUs of this host."""

    def read(self, timeout: float) -> Answer:
        """Return all GPUs within so many seconds; raises HangError or NoSourceError.

        No GPU at all is a NoSourceError, and no statement on any of them.
        """
        ...


@dataclass(frozen=True, slots=True)
class _Output:
    """What a program printed, and how it ended."""

    text: str
    code: int

    def end(self) -> str:
        if self.code < 0:
            return f"was ended by signal {-self.code}"
        return f"ended with exit code {self.code}"

    def first_line(self) -> str:
        lines = (line.strip() for line in self.text.splitlines())
        return next((line[:_SHOWN] for line in lines if line), "it printed nothing")


@dataclass(slots=True)
class NvidiaSmi:
    """Readings by the program of the driver."""

    program: str = "nvidia-smi"
    _fields: tuple[str, ...] = field(default_factory=query_fields)

    def read(self, timeout: float) -> Answer:
        """Return all GPUs, by a query of fields where the driver knows them, else by XML."""
        output = self._ask(timeout)
        if "not a valid field" in output.text and not parse_query_gpu(output.text)[0]:
            known = supported_fields(self._run(timeout, "--help-query-gpu").text)
            self._fields = tuple(name for name in self._fields if name in known)
            output = self._ask(timeout)
        readings, unread = parse_query_gpu(output.text)
        lost = lost_gpus(output.text)
        if not readings:
            document = self._run(timeout, "-q", "-x")
            readings, unread = parse_nvidia_smi_xml(document.text[document.text.find("<") :])
            lost = tuple(dict.fromkeys(lost + lost_gpus(document.text)))
            output = document if readings else output
        readings = [reading for reading in readings if reading.pci not in lost]
        if output.code < 0:  # whatever it printed is cut off somewhere
            readings = []
        trouble = self._trouble(output, readings, unread)
        if not readings and not lost:
            raise NoSourceError(trouble)
        return Answer(readings, lost, unread, trouble)

    def _trouble(self, output: _Output, readings: list[GpuReading], unread: Unread) -> str:
        """Say why an absent GPU proves nothing: all fail while the driver is replaced."""
        if output.code != 0:
            return f"{self.program} {output.end()}: {output.first_line()!r}"
        if not readings:
            return f"{self.program} printed no table of GPUs: {output.first_line()!r}"
        return f"{self.program}: {DAMAGED}" if unread.counts[DAMAGED] else ""

    def _ask(self, timeout: float) -> _Output:
        return self._run(timeout, f"--query-gpu={','.join(self._fields)}", "--format=csv")

    def _run(self, timeout: float, *arguments: str) -> _Output:
        """Return what it prints, whatever its exit code: it fails where one of eight GPUs does."""
        try:
            running = subprocess.Popen(
                [self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            raise NoSourceError(f"{self.program}: {error.strerror}") from None
        try:
            printed, _ = running.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            _abandon(running)
            raise HangError(f"{self.program} gave no answer in {timeout:g} s") from None
        return _Output(printed.decode(errors="replace"), running.returncode)


def _abandon(running: subprocess.Popen[bytes]) -> None:
    """Kill a program, and leave it where it hangs in the driver and cannot be killed."""
    running.kill()
    if running.stdout is not None:
        running.stdout.close()
    with suppress(subprocess.TimeoutExpired):
        running.wait(_LAST_WAIT)


@dataclass(slots=True)
class Nvml:
    """Readings by the library of the driver.

    Attributes
    ----------
    library : module
        `pynvml`, or something that behaves like it.
    """

    library: Any
    _stuck: threading.Thread | None = None

    def read(self, timeout: float) -> Answer:
        """Return all GPUs; a call that hangs keeps its thread, and no second one is made."""
        if self._stuck is not None and self._stuck.is_alive():
            raise HangError("NVML still gives no answer")
        result: list[Answer | Exception] = []

        def work() -> None:
            try:
                result.append(self._read())
            except Exception as error:  # it belongs to whoever waits for it
                result.append(error)

        self._stuck = threading.Thread(target=work, daemon=True)
        self._stuck.start()
        self._stuck.join(timeout)
        if not result:
            raise HangError(f"NVML gave no answer in {timeout:g} s")
        if isinstance(result[0], NoSourceError):
            raise result[0]
        if isinstance(result[0], Exception):
            raise NoSourceError(f"NVML: {result[0]}") from result[0]
        return result[0]

    def _read(self) -> Answer:
        nvml = self.library
        nvml.nvmlInit()
        try:
            answer = self._all_gpus(_text(nvml.nvmlSystemGetDriverVersion()))
        finally:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
        if not answer.readings and not answer.lost:
            raise NoSourceError(answer.trouble or "NVML: it names no GPU")
        return answer

    def _all_gpus(self, driver: str) -> Answer:
        nvml, readings, lost, unread = self.library, [], [], Unread()
        for slot in range(nvml.nvmlDeviceGetCount()):
            try:
                handle = nvml.nvmlDeviceGetHandleByIndex(slot)
                readings.append(_device(nvml, handle, slot, driver))
            except nvml.NVMLError_GpuIsLost:
                lost.append(_address_of(nvml, slot))
            except nvml.NVMLError as error:
                unread.add(_UNREAD, str(error))
        trouble = f"NVML: {_UNREAD} ({unread.examples[_UNREAD]})" if unread else ""
        return Answer(readings, tuple(pci for pci in lost if pci), unread, trouble)


def _address_of(nvml: Any, slot: int) -> str | None:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(slot)
        return pci_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
    except nvml.NVMLError:
        return None


def _device(nvml: Any, handle: Any, slot: int, driver: str) -> GpuReading:
    """Read one GPU; what it does not support is left out."""

    def known(ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except nvml.NVMLError_GpuIsLost:
            raise
        except nvml.NVMLError:
            return None

    used = known(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
    memory = known(lambda: nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2))
    memory = memory or known(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
    power = known(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
    rows = known(lambda: nvml.nvmlDeviceGetRemappedRows(handle))
    mig = known(lambda: nvml.nvmlDeviceGetMigMode(handle))
    numbers = {
        "temperature_gpu": known(
            lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)
        ),
        "power_draw": None if power is None else power / 1000,
        "utilization_gpu": used and used.gpu,
        "utilization_memory": used and used.memory,
        "memory_used": memory and memory.used / 2**20,
        "clock_sm": known(lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
        "ecc_corrected": known(lambda: _ecc(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED)),
        "ecc_uncorrected": known(
            lambda: _ecc(nvml, handle, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)
        ),
        "rows_remapped": rows and rows[0] + rows[1],
        "pcie_replays": known(lambda: nvml.nvmlDeviceGetPcieReplayCounter(handle)),
        "pcie_link_width": known(lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
    }
    name = known(lambda: _text(nvml.nvmlDeviceGetName(handle)))
    return GpuReading(
        numbers={column: float(value) for column, value in numbers.items() if value is not None},
        texts={"gpu_type": name, "driver_version": driver} if name else {"driver_version": driver},
        serial=known(lambda: _text(nvml.nvmlDeviceGetSerial(handle))),
        uuid=known(lambda: _text(nvml.nvmlDeviceGetUUID(handle))),
        pci=pci_address(known(lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId)) or ""),
        slot=slot,
        mig=bool(mig and mig[0]),
    )


def _ecc(nvml: Any, handle: Any, kind: int) -> int:
    counted: int = nvml.nvmlDeviceGetTotalEccErrors(handle, kind, nvml.NVML_AGGREGATE_ECC)
    return counted


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


@dataclass(frozen=True, slots=True)
class NvmlElseSmi:
    """NVML, and where it fails the program: a process keeps the library of the driver before.

    After an upgrade of the driver NVML fails until the agent is started again; a program that is
    started anew has the new library.
    """

    nvml: Nvml
    smi: NvidiaSmi

    def read(self, timeout: float) -> Answer:
        """Return all GPUs; raises what NVML said where the program cannot read them either."""
        try:
            return self.nvml.read(timeout)
        except NoSourceError as error:
            try:
                return self.smi.read(timeout)
            except NoSourceError:
                raise error from None


def open_source(kind: str, timeout: float) -> GpuSource:
    """Return the source that a policy asks for: "nvml", "nvidia-smi", or "auto" for what works."""
    if kind == "nvidia-smi":
        return NvidiaSmi()
    library = _nvml()
    if library is not None:
        source = Nvml(library)
        if kind == "nvml":
            return source
        if _works(source, timeout):
            return NvmlElseSmi(source, NvidiaSmi())
    if kind == "nvml":
        raise NoSourceError("the library of NVML is not there")
    return NvidiaSmi()


def _works(source: Nvml, timeout: float) -> bool:
    try:
        source.read(timeout)
    except HangError:
        return True  # it is there, and in trouble: nvidia-smi would hang, too
    except NoSourceError:
        return False
    return True


def _nvml() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
