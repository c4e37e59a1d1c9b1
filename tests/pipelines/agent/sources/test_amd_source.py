"""The agent's source of AMD GPUs, with programs that print what amd-smi and rocm-smi print."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.agent.sources.amd_smi import AmdSmi
from forewarn.pipelines.agent.sources.gpu_source import HangError, NoSourceError
from forewarn.pipelines.agent.sources.gpu_source_selection import MixedSource, open_source
from forewarn.pipelines.agent.sources.nvidia_smi import NvidiaSmi

WAIT = 60.0  # seconds; enough for an answer on a busy machine
CARD = {"GPU use (%)": "7", "Unique ID": "0x51", "PCI Bus": "0000:21:00.0"}
Install = Callable[[str, str], str]


def static(*indexes: int) -> str:
    gpus = [
        {"gpu": n, "asic": {"asic_serial": f"0xA{n}"}, "bus": {"bdf": f"0000:0{n}:00.0"}}
        for n in indexes
    ]
    return json.dumps({"gpu_data": gpus})


def metric(*indexes: int) -> str:
    watts: Any = {"value": 300, "unit": "W"}
    return json.dumps([{"gpu": n, "power": {"socket_power": watts}} for n in indexes])


def amd_smi(*indexes: int) -> str:
    return f"if [ $1 = metric ]; then echo '{metric(*indexes)}'; else echo '{static(*indexes)}'; fi"


def test_metrics_get_identities_of_their_index(install: Install) -> None:
    poll = AmdSmi(install("amd-smi", amd_smi(0, 1))).read(WAIT)
    assert [(g.uuid, g.pci, g.numbers) for g in poll.readings] == [
        (f"0x00000000000000a{n}", f"0000:0{n}:00", {"power_draw": 300.0}) for n in range(2)
    ]
    assert (poll.lost, poll.trouble) == ((), "")


def test_identities_are_asked_again_after_a_loss(install: Install) -> None:
    source = AmdSmi(install("amd-smi", amd_smi(0, 1)))
    source.read(WAIT)
    install("amd-smi", f"[ $1 = metric ] && echo '{metric(0)}' || echo '{static(0)}'")
    assert [gpu.uuid for gpu in source.read(WAIT).readings] == ["0x00000000000000a0"]


def test_rocm_smi_stands_in(install: Install) -> None:
    fallback = install("rocm-smi", f"echo '{json.dumps({'card0': CARD})}'")
    for broken in ("/nowhere/amd-smi", install("amd-smi", "echo AMDSMI_STATUS_INIT_ERROR; exit 1")):
        (gpu,) = AmdSmi(broken, fallback).read(WAIT).readings
        assert (gpu.uuid, gpu.numbers) == ("0x0000000000000051", {"utilization_gpu": 7.0})


def test_error_names_amd_smi(install: Install) -> None:
    broken = install("amd-smi", "echo no driver; exit 3")
    with pytest.raises(NoSourceError, match="exit code 3: 'no driver'"):
        AmdSmi(broken, "/nowhere/rocm-smi").read(WAIT)
    with pytest.raises(HangError, match=r"not respond within 0\.2 s"):
        AmdSmi(install("amd-smi", "exec sleep 1000")).read(0.2)


def test_amd_host_needs_no_nvidia_program(install: Install) -> None:
    install("amd-smi", amd_smi(0))
    assert isinstance(open_source("auto", WAIT), AmdSmi)
    assert isinstance(open_source("nvidia-smi", WAIT), NvidiaSmi)


def test_mixed_host_has_both_vendors(install: Install) -> None:
    install("amd-smi", amd_smi(0))
    install("nvidia-smi", "printf 'index, serial, temperature.gpu\\n0, S0, 40\\n'")
    source = open_source("auto", WAIT)
    assert isinstance(source, MixedSource)
    poll = source.read(WAIT)
    assert [(g.serial or g.uuid, g.slot) for g in poll.readings] == [
        *(("S0", 0), ("0x00000000000000a0", None))
    ]
    assert poll.trouble == ""


def test_silent_vendor_is_trouble_and_no_loss(install: Install) -> None:
    install("amd-smi", amd_smi(0))
    install("nvidia-smi", "echo 'Driver/library version mismatch'; exit 18")
    poll = open_source("auto", WAIT).read(WAIT)
    assert len(poll.readings) == 1
    assert "Driver/library version mismatch" in poll.trouble
    install("amd-smi", "exit 1")
    with pytest.raises(NoSourceError, match="nvidia-smi"):
        open_source("auto", WAIT).read(WAIT)


@pytest.mark.parametrize(
    ("vendor", "source"), [("0x10de", NvidiaSmi), ("0x1002", AmdSmi), ("both", MixedSource)]
)
def test_tools_without_a_device_are_no_source(
    install: Install, tmp_path: Path, vendor: str, source: type
) -> None:
    install("amd-smi", amd_smi(0))
    install("nvidia-smi", "printf 'index, serial, temperature.gpu\\n0, S0, 40\\n'")
    vendors = ("0x10de", "0x1002") if vendor == "both" else (vendor,)
    for number, name in enumerate((*vendors, "0x1a03")):  # the last one is of a management board
        device = tmp_path / "pci" / f"0000:0{number}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{name}\n")
        (device / "class").write_text("0x030200\n")
    assert type(open_source("auto", WAIT)) is source
