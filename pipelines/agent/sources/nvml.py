"""GPU source that uses NVML."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from forewarn.features.telemetry.parsers.gpu_reading import GpuReading, Unread, parse_pci_address
from forewarn.features.telemetry.parsers.quantity import parse_quantity
from forewarn.features.telemetry.parsers.recovery_action import action_number, parse_recovery_action
from forewarn.pipelines.agent.sources.gpu_source import GpuPoll, HangError, NoSourceError

__all__ = ["Nvml"]

_UNREAD = "a GPU that NVML lists but cannot read"


@dataclass(slots=True)
class Nvml:
    """GPU source that uses the driver's library.

    Attributes
    ----------
    library : module
        `pynvml` or a compatible object.
    only_damage : bool
        Read what shows damage and nothing else, which costs less.
    """

    library: Any
    only_damage: bool = False
    _stuck: threading.Thread | None = None
    _places: dict[int, str | None] = field(default_factory=dict)  # last address by index

    def read(self, timeout: float) -> GpuPoll:
        """Return all GPUs; a call that hangs keeps its thread, and no second call is made."""
        if self._stuck is not None and self._stuck.is_alive():
            raise HangError("NVML is still not responding")
        result: list[GpuPoll | Exception] = []

        def work() -> None:
            try:
                result.append(self._read())
            except Exception as error:  # raised again in the waiting thread
                result.append(error)

        self._stuck = threading.Thread(target=work, daemon=True)
        self._stuck.start()
        self._stuck.join(timeout)
        if not result:
            raise HangError(f"NVML did not respond within {timeout:g} s")
        if isinstance(result[0], NoSourceError):
            raise result[0]
        if isinstance(result[0], Exception):
            raise NoSourceError(f"NVML: {result[0]}") from result[0]
        return result[0]

    def _read(self) -> GpuPoll:
        nvml = self.library
        nvml.nvmlInit()
        try:
            answer = self._all_gpus(_text(nvml.nvmlSystemGetDriverVersion()))
        finally:
            with suppress(nvml.NVMLError):
                nvml.nvmlShutdown()
        if not answer.readings and not answer.lost:
            raise NoSourceError(answer.trouble or "NVML lists no GPU")
        return answer

    def _all_gpus(self, driver: str) -> GpuPoll:
        nvml, readings, lost, unread = self.library, [], [], Unread()
        for slot in range(nvml.nvmlDeviceGetCount()):
            try:
                device = _Device(nvml, nvml.nvmlDeviceGetHandleByIndex(slot))
                self._places[slot] = device.address() or self._places.get(slot)
                address = self._places[slot]
                readings.append(_read_device(device, slot, address, driver, self.only_damage))
            except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_Unknown) as error:
                # nvidia-smi prints "Unable to determine the device handle" for it.
                lost.append(self._places.get(slot))
                if lost[-1] is None:
                    unread.add(_UNREAD, str(error))
            except nvml.NVMLError as error:
                unread.add(_UNREAD, str(error))
        trouble = f"NVML: {_UNREAD} ({unread.examples[_UNREAD]})" if unread else ""
        return GpuPoll(readings, tuple(pci for pci in lost if pci), unread, trouble)


def _read_device(
    device: _Device, slot: int, pci: str | None, driver: str, only_damage: bool
) -> GpuReading:
    """Read one GPU without the values that it does not support."""
    nvml = device.nvml
    serial, uuid, name = (
        device.text(ask)
        for ask in (nvml.nvmlDeviceGetSerial, nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName)
    )
    if not (serial or uuid or name) and device.errors:
        raise device.errors[0]  # its identity is unknown
    numbers = device.damage() if only_damage else device.damage() | device.load()
    action = device.action()
    return GpuReading(
        numbers={n: float(value) for n, value in numbers.items() if value is not None}
        | action_number(action),
        texts={"gpu_type": name, "driver_version": driver} if name else {"driver_version": driver},
        serial=serial,
        uuid=uuid,
        pci=pci,
        slot=slot,
        action=action,
    )


@dataclass(frozen=True, slots=True)
class _Device:
    """A GPU with an NVML handle.

    Attributes
    ----------
    errors : list of Exception
        "Unknown error" answers so far.
    """

    nvml: Any
    handle: Any
    errors: list[Exception] = field(default_factory=list)
    _reset: list[bool] = field(default_factory=list)

    def known(self, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Return the answer of a query, or None if the GPU does not support it."""
        try:
            return ask(self.handle, *arguments, **options)
        except self.nvml.NVMLError_GpuIsLost:
            raise
        except self.nvml.NVMLError_ResetRequired:
            self._reset.append(True)
        except self.nvml.NVMLError_Unknown as error:
            self.errors.append(error)
        except self.nvml.NVMLError:
            pass
        return None

    def address(self) -> str | None:
        """Return its PCI address."""
        bus = self.known(self.nvml.nvmlDeviceGetPciInfo)
        return parse_pci_address(_text(bus.busId) if bus else "")

    def action(self) -> str | None:
        """Return the recovery action that the driver requests, or None.

        A required reset also follows from earlier answers.
        """
        number = getattr(self.nvml, "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", None)  # since 2024
        raw_action = None if number is None else self._field(number)
        action = None if raw_action is None else parse_recovery_action(str(raw_action))
        return "reset" if self._reset and action in (None, "none") else action

    def _field(self, number: int) -> int | None:
        """Return an integer NVML field, or None."""
        answers = self.known(self.nvml.nvmlDeviceGetFieldValues, [number])
        if not answers or answers[0].nvmlReturn != self.nvml.NVML_SUCCESS:
            return None
        return int(answers[0].value.uiVal)

    def text(self, ask: Callable[..., Any]) -> str | None:
        value = self.known(ask)
        return None if value is None else _text(value)

    def damage(self) -> dict[str, float | None]:
        """Return what shows damage."""
        rows = self.known(self.nvml.nvmlDeviceGetRemappedRows)
        return {
            "ecc_uncorrected": self._ecc_errors(self.nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
            "rows_remapped": rows and rows[0] + rows[1],
            "row_remap_failure": rows and rows[3],
            "pcie_link_width": self.known(self.nvml.nvmlDeviceGetCurrPcieLinkWidth),
        }

    def load(self) -> dict[str, float | None]:
        """Return the other metrics of a reading."""
        nvml, known = self.nvml, self.known
        used = known(nvml.nvmlDeviceGetUtilizationRates)
        power = known(nvml.nvmlDeviceGetPowerUsage)
        energy = known(nvml.nvmlDeviceGetTotalEnergyConsumption)
        return {
            "temperature_gpu": known(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            "power_draw": None if power is None else power / 1000,
            "utilization_gpu": used and used.gpu,
            "utilization_memory": used and used.memory,
            "memory_used": self._memory_used(),
            "clock_sm": known(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            "ecc_corrected": self._ecc_errors(nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
            "pcie_replays": known(nvml.nvmlDeviceGetPcieReplayCounter),
            "throttle_hardware": self._throttle_hardware(),
            "energy_consumption": None if energy is None else energy / 1000,
        }

    def _throttle_hardware(self) -> float | None:
        reasons = self.known(self.nvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return None if reasons is None else parse_quantity("throttle_hardware", f"{reasons:#x}")

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
