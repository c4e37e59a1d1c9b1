"""Each shipped check finds a planted defect, and does not run where its program is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pipelines.inspection.planted_defects import DEFECTS, Files, Stub

from forewarn.features.inspection.check_table import CheckTable
from forewarn.features.inspection.check_values import CheckOutcome
from forewarn.pipelines.inspection.check_files import load_checks
from forewarn.pipelines.inspection.check_runner import CheckRunner, evaluate_measurement
from forewarn.pipelines.inspection.host_measurements import (
    differing_cores,
    file_system_use,
    measure,
)
from forewarn.pipelines.inspection.torch_measurements import MEASUREMENTS as TORCH_MEASUREMENTS

CHECKS = load_checks()
# Built-in measurements whose defect is planted below, without a file or a program.
ELSEWHERE = {
    *("differing_cores", "cpu_matrix_product", "scratch_write", "file_system_space"),
    *("file_system_inodes", "port_hardware_errors", "cmdb_gpus"),
    "neighbours",  # test_precheck.py
}


def test_every_check_has_a_defect() -> None:
    assert set(DEFECTS) | ELSEWHERE == set(CHECKS)
    assert len(CHECKS) >= 60
    assert sum("gpu" not in check.conditions for check in CHECKS.values()) >= 30
    assert all(check.description for check in CHECKS.values())


@pytest.mark.parametrize("name", list(DEFECTS))
def test_planted_defect_is_seen(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = CHECKS[name]
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setenv("FOREWARN_TORCH", str(tmp_path))
    before, after = DEFECTS[name]
    healthy = outcomes(check, before, tmp_path / "healthy", tmp_path / "bin")
    damaged = outcomes(check, after, tmp_path / "damaged", tmp_path / "bin")
    assert [o.status for o in healthy] == ["ok"] * len(healthy), healthy
    assert is_worse(check, healthy, damaged), damaged


def outcomes(
    check: CheckTable, state: Files | Stub, root: Path, folder: Path
) -> list[CheckOutcome]:
    write(root / "proc/driver/nvidia/gpus/0000:00:00.0/information", "")
    for name in {*check.programs, "python"}:
        write(folder / name, "#!/bin/sh\nexit 0\n")
    if isinstance(state, Stub):
        program = folder / (state.program or check.command[0])
        body = (
            state.output if state.output.startswith("case") else f"cat << 'END'\n{state.output}END"
        )
        write(program, f"#!/bin/sh\n{body}\nexit {state.code}\n")
    else:
        if "proc/driver/nvidia/gpus/0000:00:00.0/information" not in state.content:
            (root / "proc/driver/nvidia/gpus/0000:00:00.0/information").unlink()
            (root / "proc/driver/nvidia/gpus/0000:00:00.0").rmdir()
        for path, text in state.content.items():
            write(root / path, text)
        if check.value.builtin is not None:
            text = measure(check.value.builtin, check.value.args, root)
            return evaluate_measurement(check, 0, text)[0]
    if "gpu" in check.conditions:
        write(folder / "nvidia-smi", "#!/bin/sh\nexit 0\n", only_new=True)
    return CheckRunner(root, root=root).run(check, 60.0).outcomes


def write(path: Path, text: str, *, only_new: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not (only_new and path.exists()):
        path.write_text(text)
        path.chmod(0o755)


def is_worse(check: CheckTable, healthy: list[CheckOutcome], damaged: list[CheckOutcome]) -> bool:
    if any(outcome.status == "failed" for outcome in damaged):
        return True
    assert "fleet" in check.compare or "own" in check.compare, "nothing judges this value"
    before = {o.slot: o.value for o in healthy}
    pairs = [(before[o.slot], o.value) for o in damaged]
    changes = [new - old for old, new in pairs if old is not None and new is not None]
    better = {"higher": min(changes) < 0, "lower": max(changes) > 0, "equal": any(changes)}
    return better[check.value.better]


@pytest.mark.parametrize("name", [n for n, check in CHECKS.items() if check.programs])
def test_missing_program_is_not_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (outcome,) = CheckRunner(tmp_path, root=tmp_path).run(CHECKS[name], 60.0).outcomes
    assert outcome.status == "not_run"
    assert "not installed" in outcome.text


@pytest.mark.parametrize("name", sorted(TORCH_MEASUREMENTS))
def test_interpreter_without_torch_is_not_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "bin/python", '#!/bin/sh\nprintf \'{"not_run": "no PyTorch"}\'\n')
    write(tmp_path / "bin/nvidia-smi", "#!/bin/sh\n")
    monkeypatch.setenv("FOREWARN_TORCH", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    check = next(check for check in CHECKS.values() if check.value.builtin == name)
    (outcome,) = CheckRunner(tmp_path, root=tmp_path).run(check, 60.0).outcomes
    assert (outcome.status, outcome.text) == ("not_run", "no PyTorch")


def test_core_that_computes_otherwise_is_counted() -> None:
    results: Iterator[str] = iter(["a", *["b"] * (os.cpu_count() or 1)])
    if len(os.sched_getaffinity(0)) < 2:
        pytest.fail("a machine of one core cannot be tested")
    counted = differing_cores((), Path("/"), compute=lambda: next(results))
    assert counted == [(None, "1")]
    assert differing_cores((), Path("/"), compute=lambda: "same") == [(None, "0")]


def test_wrong_product_and_wrong_content_fail() -> None:
    for name in ("cpu_matrix_product", "scratch_write"):
        (outcome,) = evaluate_measurement(CHECKS[name], 0, '[[null, "-1"]]')[0]
        assert outcome.status == "failed"


def test_full_file_system_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "proc/mounts", "/dev/sda1 / ext4 rw 0 0\nproc /proc proc rw 0 0\n")
    sizes = (4096, 4096, 1000, 20, 20, 1000, 10, 10, 0, 255)
    monkeypatch.setattr("os.statvfs", lambda _: os.statvfs_result(sizes))
    assert file_system_use(["space"], tmp_path) == [("/", "98.0")]
    assert file_system_use(["inodes"], tmp_path) == [("/", "99.0")]
    for name, args in (("file_system_space", "space"), ("file_system_inodes", "inodes")):
        text = measure("file_system_use", [args], tmp_path)
        assert evaluate_measurement(CHECKS[name], 0, text)[0][0].status == "failed"


def test_errors_of_the_port_are_summed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    write(tmp_path / "sys/class/net/eth0/device/vendor", "")
    for errors in (0, 12):
        counters = [("rx_crc_errors_phy", errors), ("rx_symbol_err_phy", 1), ("rx_packets", 999)]
        monkeypatch.setattr(
            "forewarn.pipelines.agent.ethtool_statistics.ethtool_statistics",
            lambda _, counters=counters: counters,
        )
        text = measure("port_errors", [], tmp_path)
        (outcome,) = evaluate_measurement(CHECKS["port_hardware_errors"], 0, text)[0]
        assert (outcome.slot, outcome.value) == ("eth0", errors + 1.0)


def test_serials_are_compared_with_the_cmdb(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(tmp_path / "cmdb.csv", "gpu_serial,machine_id\n111,n1\n222,n1\n333,n2\n")
    write(tmp_path / "nvidia-smi", "#!/bin/sh\nprintf '111\\n444\\n'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("FOREWARN_MACHINE_ID", "n1")
    text = measure("cmdb_differences", [], tmp_path)
    assert evaluate_measurement(CHECKS["cmdb_gpus"], 0, text)[0][0].status == "not_run"
    monkeypatch.setenv("FOREWARN_CMDB", str(tmp_path / "cmdb.csv"))
    text = measure("cmdb_differences", [], tmp_path)
    (outcome,) = evaluate_measurement(CHECKS["cmdb_gpus"], 0, text)[0]
    assert (outcome.status, outcome.value) == ("failed", 2.0)
