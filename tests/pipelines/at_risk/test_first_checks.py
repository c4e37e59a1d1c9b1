from __future__ import annotations

from forewarn.pipelines.at_risk.first_checks import first_checks


def commands(*reasons: str) -> list[str]:
    return [check.command for check in first_checks(reasons)]


def test_checks_are_unique_in_reason_order() -> None:
    found = commands("xid 63, 4 events", "rows_remapped +2", "ecc_corrected 41 per hour")
    assert found == ["dmesg -T | grep -i xid", "nvidia-smi -q -d ECC,ROW_REMAPPER"]


def test_first_keyword_decides() -> None:
    assert commands("temperature_gpu above what power_draw explains") == [
        "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"
    ]


def test_other_telemetry_has_no_check() -> None:
    assert first_checks(["vibration 41", "volt 170"]) == ()


def test_repair_history_has_no_command() -> None:
    (check,) = first_checks(["earlier failures of the slot 2"])
    assert check.command == ""
    assert "history" in check.what
