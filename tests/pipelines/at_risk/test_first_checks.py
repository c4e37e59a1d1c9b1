from __future__ import annotations

from forewarn.pipelines.at_risk.first_checks import first_checks


def commands(*reasons: str) -> list[str]:
    return [check.command for check in first_checks(reasons)]


def test_each_check_comes_once_in_the_order_of_the_reasons() -> None:
    found = commands("xid 63, 4 events", "rows_remapped +2", "ecc_corrected 41 per hour")
    assert found == ["dmesg -T | grep -i xid", "nvidia-smi -q -d ECC,ROW_REMAPPER"]


def test_a_reason_about_two_things_is_about_the_first() -> None:
    assert commands("temperature_gpu above what power_draw explains") == [
        "nvidia-smi -q -d TEMPERATURE,PERFORMANCE"
    ]


def test_foreign_telemetry_has_no_check() -> None:
    assert first_checks(["vibration 41", "volt 170"]) == ()


def test_the_repair_history_has_no_command() -> None:
    (check,) = first_checks(["earlier failures of the slot 2"])
    assert check.command == ""
    assert "history" in check.what
