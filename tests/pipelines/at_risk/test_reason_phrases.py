from __future__ import annotations

from typing import Any

import pytest

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.pipelines.at_risk.reason_phrases import Mention, channel_of, phrase_reason, span_words

COLUMNS = (
    "temperature_gpu", "power_draw", "ecc_corrected", "rows_remapped", "xid", "gpu_type",
    "data_center", "expiration_date", "event",
)  # fmt: skip
WEEK, HALF_A_DAY = Nanoseconds(7 * DAY), Nanoseconds(12 * HOUR)
OTHERS = "the other GPUs of node-00054"


@pytest.mark.parametrize(
    ("feature", "channel"),
    [
        ("temperature_gpu[-0]", "temperature_gpu"),
        ("xid[-17]", "xid"),
        ("mean:power_draw:7d", "power_draw"),
        ("mean:temperature_gpu|power_draw:3h", "temperature_gpu|power_draw"),
        ("rate:grave xid:7d", "xid"),
        ("since:grave xid", "xid"),
        ("window_since:xid", "xid"),
        ("peers:machine_id:temperature_gpu:3h", "temperature_gpu"),
        ("category:gpu_type=NVIDIA A100=80GB", "gpu_type"),
        ("category:data_center=eu:west", "data_center"),
        ("category:gpu_type=A100 [80 GB]", "gpu_type"),
        ("days_until:expiration_date", "expiration_date"),
        ("count:xid=63", "xid"),
        ("failures:slot", "failures:slot"),
        # Future types of features refer to the column in their name.
        ("slope:ecc_corrected:7d[-3]", "ecc_corrected"),
        ("unknown name", "unknown name"),
    ],
)
def test_channel_of_feature(feature: str, channel: str) -> None:
    assert channel_of(feature, COLUMNS) == channel


def words(kind: str, column: str, value: float, others: list[float], **more: Any) -> str:
    span = more.pop("span", WEEK)
    return phrase_reason(
        Mention(kind, column, value, span, others, OTHERS if others else "", **more)
    )


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (("count", "rows_remapped", 7, [0, 0]), f"7 rows remapped this week; {OTHERS}: none"),
        (("count", "rows_remapped", 1, []), "1 row remapped this week"),
        (
            ("count", "ecc_corrected", 1240, [0, 3, 12]),
            f"1,240 corrected memory errors this week; {OTHERS}: 0 to 12",
        ),
        (("count", "smart_5_raw", 8, [0.0]), f"smart_5_raw rose by 8 this week; {OTHERS}: none"),
        (
            ("level", "temperature_gpu", 71.2, [58.0, 61.3]),
            f"temperature 71 °C this week; {OTHERS}: 58 to 61 °C",
        ),
        (
            ("level", "pcie_link_width", 8, [16.0, 16.0]),
            f"PCIe link width 8 lanes this week; {OTHERS}: 16 lanes",
        ),
        (("level", "vibration", 0.512, []), "vibration 0.51 this week"),
        (
            ("level", "temperature_gpu|power_draw", 9.0, [-1.0, 1.0]),
            f"temperature 9 °C above what its power draw explains, this week; {OTHERS}: -1 to 1 °C",
        ),
        (
            ("swing", "power_draw", 120.4, [80.0]),
            f"power draw varies by 120 W around its mean this week; {OTHERS}: 80 W",
        ),
        (("silent", "power_draw", 1.0, []), "no reading of power draw this week"),
        (("failures", "failures:serial", 2, []), "this GPU has failed twice before"),
        (("failures", "failures:slot", 1, []), "a GPU in this slot has failed once recently"),
        (("date", "expiration_date", -1340, []), "end of warranty 1,340 days ago"),
        (("date", "built", 12, []), "built in 12 days"),
        (
            ("duration", "throttled", 5.0 * HOUR, [0.0]),
            f"throttled for 5 h this week; {OTHERS}: never",
        ),
    ],
)  # fmt: skip
def test_text_for_every_kind(said: tuple[Any, ...], expected: str) -> None:
    assert words(*said) == expected


def test_change_contains_new_level() -> None:
    text = words("change", "temperature_gpu", 9.0, [-1.0, 2.0], now=71.0, span=HALF_A_DAY)
    assert text == (
        f"temperature rose by 9 to 71 °C in the last 12 h; {OTHERS}: changed by -1 to 2 °C"
    )


@pytest.mark.parametrize(
    ("column", "detail", "value", "now", "expected"),
    [
        ("xid", "63", 3, 2.2, "Xid 63 (row of memory remapped) 3 times this week, last 2 h ago"),
        (
            "xid",
            "63",
            1,
            0.3,
            "Xid 63 (row of memory remapped) once this week, within the last hour",
        ),
        ("xid", "888", 2, 90.0, "Xid 888: twice this week, last 4 days ago"),
        ("event", "63", 1, 5.0, "event 63: once this week, 5 h ago"),
    ],
)
def test_code_contains_meaning_and_time(
    column: str, detail: str, value: float, now: float, expected: str
) -> None:
    text = words("code", column, value, [0.0, 0.0], detail=detail, now=now)
    assert text == f"{expected}; {OTHERS}: never"


def test_category_contains_count() -> None:
    text = words("category", "driver_version", 31, [], detail="470.82", fleet=1800)
    assert text == "driver 470.82, shared by 31 of 1,800 GPUs"


def test_peer_range_excludes_outermost() -> None:
    text = words("level", "power_draw", 700.0, [0.0, *[300.0 + i for i in range(38)], 900.0])
    assert text.endswith("mostly 301 to 336 W")


@pytest.mark.parametrize(
    ("span", "expected"),
    [(7 * DAY, "this week"), (DAY, "in the last day"), (120 * DAY, "in the last 120 days")],
)
def test_span_text(span: int, expected: str) -> None:
    assert span_words(Nanoseconds(span)) == expected
