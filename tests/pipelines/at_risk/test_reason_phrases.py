from __future__ import annotations

import pytest

from forewarn.pipelines.at_risk.reason_phrases import Reading, channel_of, in_words

NAN = float("nan")


@pytest.mark.parametrize(
    ("feature", "channel"),
    [
        ("temperature_gpu[-0]", "temperature_gpu"),
        ("xid[-17]", "xid"),
        ("mean:power_draw:7d", "power_draw"),
        ("spread:power_draw:12h", "power_draw"),
        ("trend:power_draw:12h", "power_draw"),
        ("mean:temperature_gpu|power_draw:3h", "temperature_gpu|power_draw"),
        ("rate:ecc_corrected:7d", "ecc_corrected"),
        ("rate:grave xid:7d", "xid"),
        ("since:ecc_corrected", "ecc_corrected"),
        ("since:grave xid", "xid"),
        ("window_since:xid", "xid"),
        ("peers:machine_id:temperature_gpu:3h", "temperature_gpu"),
        ("peers:gpu_type:grave xid:7d", "xid"),
        ("category:gpu_type=A100", "gpu_type"),
        ("category:gpu_type=NVIDIA A100=80GB", "gpu_type"),
        ("category:data_center=eu:west", "data_center"),
        ("category:gpu_type=A100 [80 GB]", "gpu_type"),
        ("days_until:expiration_date", "expiration_date"),
        ("count:xid", "xid"),
        ("count:xid=63", "xid"),
        ("severity:xid", "xid"),
        ("failures:serial", "failures:serial"),
        ("failures:slot", "failures:slot"),
    ],
)
def test_the_channel_of_a_feature(feature: str, channel: str) -> None:
    assert channel_of(feature) == channel


def words(name: str, value: float, usual: float = NAN, kind: str = "") -> str:
    return in_words(Reading(name, kind, value, usual, "3h"))


@pytest.mark.parametrize(
    ("name", "value", "usual", "expected"),
    [
        ("mean:clock_sm:7d", 980.4, 1410, "clock_sm 980 MHz on average over 7d (peers 1410)"),
        ("mean:vibration:2d", 0.5, NAN, "vibration 0.5 on average over 2d"),
        (
            "mean:temperature_gpu|power_draw:7d", 6.04, -0.1,
            "temperature_gpu given power_draw +6.04 °C on average over 7d (peers -0.1)",
        ),
        (
            "mean:temperature_gpu|power_draw:3h", -2.0, NAN,
            "temperature_gpu given power_draw -2 °C on average over 3h",
        ),
        ("spread:power_draw:12h", 120.4, 80.0, "power_draw varies by 120 W over 12h (peers 80)"),
        ("trend:power_draw:2d", 3.26, 0.1, "power_draw rose by 3.26 W within 2d (peers 0.1)"),
        ("trend:clock_sm:2d", -110.0, 0.0, "clock_sm fell by 110 MHz within 2d (peers 0)"),
        ("rate:ecc_corrected:7d", 41.0, 0.25, "ecc_corrected 41 an hour over 7d (peers 0.25)"),
        ("rate:grave xid:7d", 0.5, 0.0, "grave xid 0.5 an hour over 7d (peers 0)"),
        ("since:rows_remapped", 12.0, 168.0, "rows_remapped last seen 12 h ago (peers 168)"),
        ("window_since:xid", 1.5, 3.0, "xid last seen 1.5 h ago (peers 3)"),
        (
            "peers:machine_id:temperature_gpu:3h", 8.5, 0.0,
            "temperature_gpu +8.5 °C against others of its machine_id over 3h",
        ),
        (
            "peers:gpu_type:utilization_gpu:7d", -31.0, 0.0,
            "utilization_gpu -31 % against others of its gpu_type over 7d",
        ),
        (
            "peers:machine_id:temperature_gpu|power_draw:7d", 1.0, NAN,
            "temperature_gpu given power_draw +1 °C against others of its machine_id over 7d",
        ),
        ("category:gpu_type=A100", 1.0, 0.0, "gpu_type is A100"),
        ("category:gpu_type=A100", 0.0, 1.0, "gpu_type is not A100"),
        ("category:driver_version=535=b", 1.0, 1.0, "driver_version is 535=b"),
        ("category:data_center=eu:west:1", 1.0, 1.0, "data_center is eu:west:1"),
        ("days_until:expiration_date", 40.0, 100.0, "expiration_date in 40 days"),
        ("days_until:expiration_date", -3.5, 100.0, "expiration_date was 3.5 days ago"),
        ("count:xid", 4.0, 0.0, "xid 4 times within 3h (peers 0)"),
        ("count:error=error4", 1.0, 0.0, "error error4 once within 3h (peers 0)"),
        ("count:xid=63", 2.0, 0.0, "xid 63 2 times within 3h (peers 0)"),
        ("severity:xid", 3.0, 0.0, "xid that is fatal within 3h"),
        ("severity:xid", 2.0, 0.0, "xid of degraded hardware within 3h"),
        ("severity:xid", 1.0, 0.0, "xid of an application within 3h"),
        ("severity:xid", 0.0, 0.0, "no xid"),
        ("failures:serial", 2.0, 0.0, "2 earlier failures of this GPU"),
        ("failures:slot", 1.0, 0.0, "1 earlier failure of this slot"),
        ("failures:serial", 0.0, 0.0, "0 earlier failures of this GPU"),
    ],
)  # fmt: skip
def test_words_for_every_kind_of_feature(
    name: str, value: float, usual: float, expected: str
) -> None:
    assert words(name, value, usual) == expected


@pytest.mark.parametrize(
    ("name", "kind", "value", "usual", "expected"),
    [
        ("temperature_gpu", "last", 81.26, 60.0, "temperature_gpu 81.3 °C (peers 60)"),
        ("vibration", "last", 0.0, NAN, "vibration 0"),
        ("pcie_link_width", "last", 8.0, 16.0, "pcie_link_width 8 lanes (peers 16)"),
        ("ecc_corrected", "gained", 41.0, 0.0, "ecc_corrected +41 within 3h (peers 0)"),
        ("ecc_corrected", "gained", 12_345.0, NAN, "ecc_corrected +12345 within 3h"),
        ("xid", "seen", 79.0, 0.0, "xid 79 within 3h"),
        ("xid", "seen", 0.0, 0.0, "no xid within 3h"),
    ],
)
def test_words_for_a_channel_of_the_window(
    name: str, kind: str, value: float, usual: float, expected: str
) -> None:
    assert words(name, value, usual, kind) == expected


@pytest.mark.parametrize(
    ("name", "kind", "title"),
    [
        ("mean:temperature_gpu|power_draw:3h", "", "temperature_gpu given power_draw"),
        ("peers:machine_id:power_draw:3h", "", "power_draw"),
        ("days_until:expiration_date", "", "expiration_date"),
        ("temperature_gpu", "last", "temperature_gpu"),
    ],
)
def test_a_missing_value_is_not_known(name: str, kind: str, title: str) -> None:
    assert words(name, NAN, 60.0, kind) == f"{title} not known"


@pytest.mark.parametrize("kind", ["mean", "spread", "trend", "rate", "peers:gpu_type"])
def test_a_span_without_a_value_is_longer_than_the_past(kind: str) -> None:
    assert words(f"{kind}:ecc_corrected:7d", NAN, 60.0) == "a past shorter than 7d"


@pytest.mark.parametrize(
    ("value", "text"),
    [(99.96, "100"), (1234.5, "1234"), (0.000123, "0.000123"), (7.0, "7")],
)
def test_numbers_have_as_many_digits_as_people_need(value: float, text: str) -> None:
    assert words("vibration", value, NAN, "last") == f"vibration {text}"
