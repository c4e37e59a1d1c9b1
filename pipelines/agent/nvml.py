"""Readings by NVML, the library of the driver."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from forewarn.features.telemetry.parsers.reading import GpuReading, Unread, pci_address
from forewarn.pipelines.agent.gpu_answer import Answer, HangError, NoSourceError

__all__ = ["Nvml"]

_UNREAD = "a GPU that NVML names and cannot read"


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
    device = _Device(nvml, handle)
    numbers = device.numbers()
    name = device.text(nvml.nvmlDeviceGetName)
    mig = device.known(nvml.nvmlDeviceGetMigMode)
    bus = device.known(nvml.nvmlDeviceGetPciInfo)
    return GpuReading(
        numbers={column: float(value) for column, value in numbers.items() if value is not None},
        texts={"gpu_type": name, "driver_version": driver} if name else {"driver_version": driver},
        serial=device.text(nvml.nvmlDeviceGetSerial),
        uuid=device.text(nvml.nvmlDeviceGetUUID),
        pci=pci_address(_text(bus.busId) if bus else ""),
        slot=slot,
        mig=bool(mig and mig[0]),
    )


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU that NVML has a handle of."""

    nvml: Any
    handle: Any

    def known(self, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the answer to a question, None where the GPU does not support it."""
        try:
            return ask(self.handle, *arguments, **options)
        except self.nvml.NVMLError_GpuIsLost:
            raise
        except self.nvml.NVMLError:
            return None

    def text(self, ask: Callable[..., Any]) -> str | None:
        value = self.known(ask)
        return None if value is None else _text(value)

    def numbers(self) -> dict[str, float | None]:
        """Return the numbers of a reading."""
        nvml, known = self.nvml, self.known
        used = known(nvml.nvmlDeviceGetUtilizationRates)
        power = known(nvml.nvmlDeviceGetPowerUsage)
        rows = known(nvml.nvmlDeviceGetRemappedRows)
        return {
            "temperature_gpu": known(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            "power_draw": None if power is None else power / 1000,
            "utilization_gpu": used and used.gpu,
            "utilization_memory": used and used.memory,
            "memory_used": self._memory_used(),
            "clock_sm": known(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            "ecc_corrected": self._ecc_errors(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "ecc_uncorrected": self._ecc_errors(nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            "rows_remapped": rows and rows[0] + rows[1],
            "pcie_replays": known(nvml.nvmlDeviceGetPcieReplayCounter),
            "pcie_link_width": known(nvml.nvmlDeviceGetCurrPcieLinkWidth),
        }

    def _memory_used(self) -> float | None:
        nvml, ask = self.nvml, self.nvml.nvmlDeviceGetMemoryInfo
        memory = self.known(ask, version=nvml.nvmlMemory_v2) or self.known(ask)
        return None if memory is None else float(memory.used) / 2**20

    def _ecc_errors(self, kind: int) -> int | None:
        nvml = self.nvml
        count: int | None = self.known(
            nvml.nvmlDeviceGetTotalEccErrors, kind, nvml.NVML_AGGREGATE_ECC
        )
        return count


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
