from __future__ import annotations

import json
from typing import Any

import pytest

from forewarn.features.telemetry.checks.check_result import CheckResult
from forewarn.features.telemetry.checks.dcgm_checks import (
    parse_dcgm_diagnostic,
    parse_dcgm_health,
)
from forewarn.features.telemetry.parsers.gpu_reading import GpuReading

WARNING = {"error_category": 7, "error_id": 5, "error_severity": 2, "warning": "Volatile DBEs: 4"}


def version_3(*results: dict[str, Any]) -> dict[str, Any]:
    tests = [{"name": "GPU Memory", "results": list(results)}, None]
    categories = [{"category": "Hardware", "tests": tests}]
    serials = {"0": "1650000000077", "1": "1650000000088"}
    return {
        "DCGM GPU Diagnostic": {
            "version": "3.3.5", "GPU Device Serials": serials, "test_categories": categories
        }
    }  # fmt: skip


def version_4(*results: dict[str, Any]) -> dict[str, Any]:
    tests = [{"name": "memory", "results": list(results), "test_summary": {"status": "Fail"}}]
    entities = [{"device_id": "2330", "entity_id": 1, "serial_num": "1650000000088"}]
    return {
        "DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]},
        "entity_groups": [{"entity_group": "GPU", "entity_group_id": 1, "entities": entities}],
        "metadata": {"DCGM Version": "4.2.3"},
    }


def of_gpu(result: CheckResult) -> tuple[str, str, str | None, int | None]:
    gpu = result.gpu or GpuReading()
    return result.check, result.severity, gpu.serial, gpu.slot


def test_version_3_names_gpus_by_serial() -> None:
    failed = {"gpu_id": "1", "status": "Fail", "warnings": [WARNING]}
    document = version_3(
        {"gpu_id": "0", "status": "PASS"}, failed, {"gpu_id": "2", "status": "Skip"}
    )
    results, unread = parse_dcgm_diagnostic(f"Successfully ran diagnostic.\n{json.dumps(document)}")
    assert [of_gpu(result) for result in results] == [
        ("dcgm diag gpu memory", "ok", "1650000000077", 0),
        ("dcgm diag gpu memory", "error", "1650000000088", 1),
    ]
    assert "Volatile DBEs: 4 (error 5, severity isolate)" in results[1].text
    assert not unread


def test_result_of_several_gpus_is_of_the_machine() -> None:
    (result,), _ = parse_dcgm_diagnostic(
        json.dumps(version_3({"gpu_ids": "0,1,2", "status": "Fail", "warnings": ["no driver"]}))
    )
    assert (result.gpu, result.severity) == (None, "error")
    assert "no driver" in result.text


def test_version_4_names_entities() -> None:
    switch = {"entity_group": "NvSwitch", "entity_id": 3, "status": "Warn"}
    gpus = [{"entity_group": "GPU", "entity_id": n, "status": "Fail"} for n in (0, 1)]
    results, unread = parse_dcgm_diagnostic(json.dumps(version_4(*gpus, switch), indent=2))
    assert [of_gpu(result) for result in results] == [
        ("dcgm diag memory", "error", None, 0),
        ("dcgm diag memory", "error", "1650000000088", 1),
        ("dcgm diag memory", "warning", None, None),
    ]
    assert "of NvSwitch 3" in results[2].text
    assert not unread


@pytest.mark.parametrize(
    ("stated", "severity"),
    [(1, "warning"), (2, "error"), (3, "error"), (5, "notice"), (6, "error"), (None, "error")],
)
def test_severity_of_failure_is_kept(stated: int | None, severity: str) -> None:
    warning = {**WARNING, "error_severity": stated}
    document = version_4({"entity_id": 0, "status": "Fail", "warnings": [warning]})
    (result,), _ = parse_dcgm_diagnostic(json.dumps(document))
    assert result.severity == severity


def test_appended_documents_have_the_times_before_them() -> None:
    document = json.dumps(version_4({"entity_id": 0, "status": "Pass"}))
    text = f"2025-03-01T00:10:00Z\n{document}\nSat Mar  1 00:20:00 2025\n{document}\n"
    results, _ = parse_dcgm_diagnostic(text)
    times = [(result.time and result.time // 10**9 % 86400, result.utc) for result in results]
    assert times == [(600, True), (1200, False)]


def test_cut_and_failed_runs_are_counted() -> None:
    document = json.dumps(version_4({"entity_id": 0, "status": "Odd"}))
    _, unread = parse_dcgm_diagnostic(document + document[:50])
    assert "an unknown status of dcgm diag memory" in unread.counts
    assert any(why.startswith("a JSON document that is cut off") for why in unread.counts)
    failed = {"DCGM GPU Diagnostic": {"runtime_error": "no GPU"}}
    results, unread = parse_dcgm_diagnostic(json.dumps(failed))
    assert results == []
    assert unread.counts == {"a diagnostic of DCGM that did not run": 1}


def health(**gpus: dict[str, str]) -> str:
    children = {
        number.removeprefix("gpu"): {
            "children": {
                "Errors": {
                    "children": {
                        system: {"value": value, "overflow": ["PCIe replays", "are frequent"]}
                        for system, value in systems.items()
                    }
                }
            },
            "value": "Warning",
        }
        for number, systems in gpus.items()
    }
    overall = {"Overall Health": {"value": "Warning" if gpus else "Healthy"}}
    body = overall | ({"GPU": {"children": children}} if gpus else {})
    return json.dumps({"body": body, "header": ["Health Monitor Report"]}, indent=3)


def test_health_of_each_gpu_and_system() -> None:
    text = health(gpu2={"PCIe system": "Warning", "Memory system": "Failure"})
    results, unread = parse_dcgm_health(text)
    assert [of_gpu(result) for result in results] == [
        ("dcgm health pcie system", "warning", None, 2),
        ("dcgm health memory system", "error", None, 2),
    ]
    assert "PCIe replays are frequent" in results[0].text
    assert not unread


def test_healthy_machine_ends_all_of_its_checks() -> None:
    (result,), unread = parse_dcgm_health(health())
    assert of_gpu(result) == ("dcgm health", "ok", None, None)
    assert not unread


@pytest.mark.parametrize(("state", "severity"), [("Warning", "warning"), ("Failure", "error")])
def test_unhealthy_machine_without_incident_is_reported(state: str, severity: str) -> None:
    # DCGM 3.0 prints neither a single incident nor the number of its GPU.
    entity = {"20": {"value": state, "children": {"Errors": {}}}}
    body = {"Overall Health": {"value": state}, "GPU": {"children": entity}}
    (result,), unread = parse_dcgm_health(json.dumps({"body": body}))
    assert of_gpu(result) == ("dcgm health", severity, None, None)
    assert not unread


@pytest.mark.parametrize(("number", "slot"), [("20", None), ("7", 7)])
def test_state_in_place_of_gpu_names_none(number: str, slot: int | None) -> None:
    errors = {"children": {"NVLINK system": {"value": "Failure"}}}
    entity = {number: {"value": "Failure", "children": {"Errors": errors}}}
    body = {"Overall Health": {"value": "Failure"}, "GPU": {"children": entity}}
    (result,), _ = parse_dcgm_health(json.dumps({"body": body}))
    assert of_gpu(result) == ("dcgm health nvlink system", "error", None, slot)


def test_diagnostic_without_a_run_test_is_counted() -> None:
    results, unread = parse_dcgm_diagnostic(
        json.dumps(version_3({"gpu_id": "0", "status": "Skip"}, {"gpu_id": "1", "status": "Skip"}))
    )
    assert results == []
    assert unread.examples == {"a diagnostic of DCGM in which no test ran": "GPU Memory"}
