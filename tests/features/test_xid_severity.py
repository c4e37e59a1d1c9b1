from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from forewarn.features.xid_catalogue import APPLICATION, DEGRADED, FATAL
from forewarn.features.xid_severity import severity


def _of(code: float) -> float:
    return float(severity(np.array([code], dtype=np.float32))[0])


def test_levels_rise_with_severity() -> None:
    assert 0 < APPLICATION < DEGRADED < FATAL


def test_no_xid_has_severity_zero() -> None:
    assert _of(0) == 0


@pytest.mark.parametrize("code", [48, 79, 95, 119, 120, 140])
def test_a_gpu_that_needs_a_reset_is_fatal(code: int) -> None:
    assert _of(code) == FATAL


@pytest.mark.parametrize("code", [63, 92, 94])
def test_repaired_memory_is_degraded(code: int) -> None:
    assert _of(code) == DEGRADED


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_application_faults_have_application_severity(code: int) -> None:
    assert _of(code) == APPLICATION


@pytest.mark.parametrize("code", [1023, 1024, 9999, 16_777_216, -1])
def test_unknown_codes_have_application_severity(code: int) -> None:
    assert _of(code) == APPLICATION


def test_shape_is_kept() -> None:
    codes = np.array([[0, 13], [63, 79]], dtype=np.float32)
    assert severity(codes).tolist() == [[0, APPLICATION], [DEGRADED, FATAL]]


def _catalogue(folder: Path) -> list[dict[str, str]]:
    path = folder.parent / "reference" / "xid_catalog.csv"
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_reset_or_reboot_request_is_fatal(shared_data: Path) -> None:
    listed = _catalogue(shared_data)
    asked = ("RESET_GPU", "RESTART_BM", "RESTART_VM")
    codes = [int(row["xid"]) for row in listed if row["suggested_action"].startswith(asked)]
    assert len(codes) > 10
    assert {code: _of(code) for code in codes} == dict.fromkeys(codes, FATAL)


def test_application_restart_is_not_fatal(shared_data: Path) -> None:
    listed = _catalogue(shared_data)
    codes = [int(row["xid"]) for row in listed if row["suggested_action"].startswith("RESTART_APP")]
    assert len(codes) > 40
    assert [code for code in codes if _of(code) == FATAL] == []
