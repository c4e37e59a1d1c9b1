from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forewarn.pipelines.agent.sources.gpu_source import HangError, NoSourceError
from forewarn.pipelines.agent.sources.gpu_source_selection import NvmlWithFallback, open_source
from forewarn.pipelines.agent.sources.nvidia_smi import NvidiaSmi
from forewarn.pipelines.agent.sources.nvml import Nvml

WAIT = 60.0  # seconds; enough for an answer on a busy machine
CSV = "index, serial, pci.bus_id, temperature.gpu\n0, S0, 00000000:10:00.0, 40\n"


@pytest.fixture
def smi(tmp_path: Path) -> Callable[[str], NvidiaSmi]:
    """Return `smi(script)`, which creates a fake nvidia-smi."""

    def make(script: str) -> NvidiaSmi:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return NvidiaSmi(str(path))

    return make


Smi = Callable[[str], NvidiaSmi]


def test_csv_table_is_read(smi: Smi) -> None:
    answer = smi(f"printf '{CSV}'").read(WAIT)
    assert [(r.serial, r.pci, r.numbers) for r in answer.readings] == [
        ("S0", "0000:10:00", {"temperature_gpu": 40.0})
    ]


def test_unknown_field_is_dropped(smi: Smi) -> None:
    source = smi(
        'case "$1" in\n'
        """--help-query-gpu) printf '"index"\\n"serial"\\n"temperature.gpu"\\n' ;;\n"""
        '--query-gpu=index,*|*clocks*) echo "Field \\"clocks.sm\\" is not a valid field." ;;\n'
        f"--query-gpu=*) printf '{CSV}' ;;\nesac"
    )
    assert len(source.read(WAIT).readings) == 1
    assert "clocks.sm" not in source._fields


def test_endless_output_is_blind_and_bounded(smi: Smi) -> None:
    with pytest.raises(NoSourceError, match="printed more than 4 MiB"):
        smi(f"printf '{CSV}'; exec yes 0, S0, 00000000:10:00.0, 40").read(60)


def test_xml_fallback_without_table(smi: Smi, shared_data: Path) -> None:
    document = shared_data / "nvidia_smi_xml" / "a10g.xml"
    answer = smi(f'[ "$1" = -q ] && cat {document} || echo "no such option"').read(WAIT)
    assert len(answer.readings) == 1


def test_lost_gpus_next_to_others(smi: Smi) -> None:
    lost = "Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error"
    answer = smi(f"echo '{lost}'; printf '{CSV}'; exit 15").read(WAIT)
    assert (len(answer.readings), answer.lost) == (1, ("0000:3b:00",))


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Driver/library version mismatch'; exit 18", "exit code 18: 'Driver/library ver"),
        ("exit 0", "no table of GPUs: 'no output'"),
        ("exit 9", "ended with exit code 9"),
        ("kill -9 $$", "killed by signal 9"),
        (f"printf '{CSV}'; kill -11 $$", "killed by signal 11"),
        (r"printf '\\377\\000,,\\001\\n<x>'", "no table of GPUs"),
        ("echo 'No devices were found'; exit 6", "No devices were found"),
    ],
)
def test_output_without_table_is_error(smi: Smi, script: str, why: str) -> None:
    with pytest.raises(NoSourceError, match=why):
        smi(script).read(WAIT)


def test_incomplete_table_is_reported(smi: Smi) -> None:
    assert smi(f"printf '{CSV}'").read(WAIT).trouble == ""
    assert "exit code 3" in smi(f"printf '{CSV}'; exit 3").read(WAIT).trouble
    damaged = smi(f"printf '{CSV}1, S1\\n'").read(WAIT)
    assert (len(damaged.readings), "number of fields" in damaged.trouble) == (1, True)


def test_lost_gpu_without_other_output(smi: Smi) -> None:
    lost = "Unable to determine the device handle for GPU 0000:3B:00.0: GPU is lost."
    answer = smi(f"echo '{lost}'; exit 15").read(WAIT)
    assert (answer.readings, answer.lost) == ([], ("0000:3b:00",))
    assert "exit code 15" in answer.trouble


def test_hanging_program_raises(smi: Smi) -> None:
    with pytest.raises(HangError, match=r"not respond within 0\.2 s"):
        smi("exec sleep 1000").read(0.2)


def test_missing_program_raises() -> None:
    with pytest.raises(NoSourceError, match="No such file"):
        NvidiaSmi("/nowhere/nvidia-smi").read(WAIT)


class FakeNvml:
    """Fake pynvml with two GPUs, the second of which is lost."""

    NVML_TEMPERATURE_GPU = NVML_CLOCK_SM = NVML_AGGREGATE_ECC = nvmlMemory_v2 = 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1

    class NVMLError(Exception):
        pass

    class NVMLError_GpuIsLost(NVMLError):
        pass

    class NVMLError_Unknown(NVMLError):
        pass

    class NVMLError_ResetRequired(NVMLError):
        pass

    NVML_SUCCESS, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 0, 230

    def __init__(self, *, lost: bool = False, mismatch: bool = False, dumb: int = 0) -> None:
        self.lost, self.open, self.answers = lost, 0, threading.Event()
        self.errors: dict[str, Exception] = {}  # answers of the second GPU
        self.action: int | None = None  # recovery action of the second GPU
        self.answers.set()
        self.mismatch, self.dumb = mismatch, dumb  # number of GPUs at the end without a handle

    def nvmlInit(self) -> None:
        self.answers.wait()
        if self.mismatch:
            raise self.NVMLError("Driver/library version mismatch")
        self.open += 1

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index >= 2 - self.dumb:
            raise self.NVMLError("Unknown Error")
        if index and "handle" in self.errors:
            raise self.errors["handle"]
        return index

    def nvmlDeviceGetFieldValues(self, handle: int, numbers: list[int]) -> list[SimpleNamespace]:
        assert numbers == [230]
        if self.action is None:
            raise self.NVMLError("not supported")
        value = SimpleNamespace(uiVal=self.action if handle else 0)
        return [SimpleNamespace(nvmlReturn=0, value=value)]

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(busId=f"00000000:1{handle}:00.0".encode())

    def nvmlDeviceGetTemperature(self, handle: int, _: int) -> int:
        if handle == 1 and self.lost:
            raise self.NVMLError_GpuIsLost
        return 40 + handle

    def nvmlDeviceGetPowerUsage(self, _: int) -> int:
        return 99_500

    def nvmlDeviceGetUtilizationRates(self, _: int) -> SimpleNamespace:
        return SimpleNamespace(gpu=7, memory=3)

    def nvmlDeviceGetMemoryInfo(self, _: int, version: int = 0) -> SimpleNamespace:
        del version
        return SimpleNamespace(used=3 << 30)

    def nvmlDeviceGetTotalEccErrors(self, _: int, kind: int, __: int) -> int:
        return 5 + kind

    def nvmlDeviceGetRemappedRows(self, _: int) -> tuple[int, int, int, int]:
        return (2, 1, 0, 0)

    def __getattr__(self, name: str) -> Any:
        texts = {"GetSerial": "S", "GetUUID": b"GPU-", "GetName": "NVIDIA H100"}
        if error := self.__dict__["errors"].get(name.removeprefix("nvmlDeviceGet")):

            def failing(handle: int) -> str:
                if handle:
                    raise error
                raise self.NVMLError("not supported")

            return failing
        found = texts.get(name.removeprefix("nvmlDevice"))
        if name == "nvmlSystemGetDriverVersion":
            return lambda: b"550.1"
        if name == "nvmlDeviceGetName":
            return lambda _: found
        if isinstance(found, bytes):
            return lambda handle: found + str(handle).encode()
        if isinstance(found, str):
            return lambda handle: f"{found}{handle}"

        def unsupported(*_: object, **__: object) -> None:
            raise self.NVMLError("not supported")

        return unsupported


def test_nvml_units_equal_record_units() -> None:
    library = FakeNvml()
    first, second = Nvml(library).read(WAIT).readings
    assert first.numbers == {
        "temperature_gpu": 40.0,
        "power_draw": 99.5,
        "utilization_gpu": 7.0,
        "utilization_memory": 3.0,
        "memory_used": 3072.0,
        "ecc_corrected": 5.0,
        "ecc_uncorrected": 6.0,
        "rows_remapped": 3.0,
        "row_remap_failure": 0.0,
    }
    assert first.texts == {"gpu_type": "NVIDIA H100", "driver_version": "550.1"}
    assert (second.serial, second.uuid, second.pci, second.slot) == (
        "S1",
        "GPU-1",
        "0000:11:00",
        1,
    )
    assert library.open == 0


def test_lost_gpu_does_not_hide_others() -> None:
    answer = Nvml(FakeNvml(lost=True)).read(WAIT)
    assert ([r.serial for r in answer.readings], answer.lost) == (["S0"], ("0000:11:00",))


@pytest.mark.parametrize("error", [FakeNvml.NVMLError_GpuIsLost, FakeNvml.NVMLError_Unknown])
def test_gpu_without_handle_keeps_last_address(error: type) -> None:
    library = FakeNvml()
    source = Nvml(library)
    assert source.read(WAIT).lost == ()
    library.errors["handle"] = error()
    answer = source.read(WAIT)
    assert ([r.serial for r in answer.readings], answer.lost) == (["S0"], ("0000:11:00",))
    assert answer.trouble == ""
    assert Nvml(library).read(WAIT).trouble  # its last address is unknown


def test_unidentifiable_gpu_is_lost_at_address() -> None:
    library = FakeNvml()
    library.errors = dict.fromkeys(("Serial", "UUID", "Name"), library.NVMLError_Unknown())
    answer = Nvml(library).read(WAIT)
    assert ([r.pci for r in answer.readings], answer.lost) == (["0000:10:00"], ("0000:11:00",))


def test_nvml_reports_recovery_action() -> None:
    library = FakeNvml()
    assert [r.action for r in Nvml(library).read(WAIT).readings] == [None, None]
    library.action = 2
    assert [r.action for r in Nvml(library).read(WAIT).readings] == ["none", "reboot"]
    library.action = None
    library.errors["PcieReplayCounter"] = library.NVMLError_ResetRequired()
    first, second = Nvml(library).read(WAIT).readings
    assert (first.action, second.action) == (None, "reset")
    assert second.numbers["recovery_action"] == 1.0


LOST_WORDS = "Unable to determine the device handle for GPU1: 0000:3B:00.0: Unknown Error"


def test_nvml_states_use_smi_words(smi: Smi) -> None:
    table = (
        "index, serial, uuid, pci.bus_id, temperature.gpu\n"
        "0, S0, GPU-0, 00000000:10:00.0, [GPU requires reset]\n"
        "1, [Unknown Error], [Unknown Error], 00000000:19:00.0, [Unknown Error]\n"
    )
    answer = smi(f"echo '{LOST_WORDS}'; printf '{table}'; exit 15").read(WAIT)
    assert [(r.serial, r.action) for r in answer.readings] == [("S0", "reset")]
    assert answer.lost == ("0000:3b:00", "0000:19:00")


def test_lost_gpus_before_xml_document(smi: Smi, shared_data: Path) -> None:
    document = shared_data / "nvidia_smi_xml" / "a10g.xml"
    script = f"echo '{LOST_WORDS}'; [ \"$1\" = -q ] && cat {document}; exit 15"
    answer = smi(script).read(WAIT)
    assert (len(answer.readings), answer.lost) == (1, ("0000:3b:00",))


def test_partly_readable_nvml_reports_no_loss() -> None:
    answer = Nvml(FakeNvml(dumb=1)).read(WAIT)
    assert ([r.serial for r in answer.readings], answer.lost) == (["S0"], ())
    assert "Unknown Error" in answer.trouble


@pytest.mark.parametrize(
    ("library", "why"),
    [
        (FakeNvml(mismatch=True), "Driver/library version mismatch"),
        (FakeNvml(dumb=2), "Unknown Error"),
    ],
)
def test_nvml_without_gpu_raises(library: FakeNvml, why: str) -> None:
    with pytest.raises(NoSourceError, match=why):
        Nvml(library).read(WAIT)


def test_smi_fallback_after_driver_upgrade(smi: Smi) -> None:
    library = FakeNvml()
    source = NvmlWithFallback(Nvml(library), smi(f"printf '{CSV}'"))
    assert [reading.serial for reading in source.read(WAIT).readings] == ["S0", "S1"]
    library.mismatch = True
    assert [reading.numbers for reading in source.read(WAIT).readings] == [
        {"temperature_gpu": 40.0}
    ]
    source = NvmlWithFallback(Nvml(library), smi("exit 9"))
    with pytest.raises(NoSourceError, match="version mismatch"):
        source.read(WAIT)


def test_hanging_library_keeps_one_thread() -> None:
    library = FakeNvml()
    library.answers.clear()
    source = Nvml(library)
    with pytest.raises(HangError, match=r"not respond within 0\.1 s"):
        source.read(0.1)
    with pytest.raises(HangError, match="still"):
        source.read(WAIT)
    library.answers.set()
    assert source._stuck is not None
    source._stuck.join()
    assert len(source.read(WAIT).readings) == 2


def test_smi_without_nvml() -> None:
    """This machine has no GPU: the real library reports that and is dropped."""
    assert isinstance(open_source("auto", WAIT), NvidiaSmi)
    assert isinstance(open_source("nvidia-smi", WAIT), NvidiaSmi)
    with pytest.raises(NoSourceError, match="NVML"):
        open_source("nvml", WAIT).read(WAIT)
