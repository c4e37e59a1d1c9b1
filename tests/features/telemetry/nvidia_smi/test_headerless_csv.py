from __future__ import annotations

import pytest

from forewarn.features.telemetry.nvidia_smi.headerless_csv import find_header, is_headerless_csv

UUIDS = tuple(f"GPU-0a1b2c3d-0000-1111-2222-33334444555{gpu}" for gpu in range(3))
FIELDS = ("timestamp", "index", "uuid", "temperature.gpu", "utilization.gpu", "memory.used")


def rows(form: str) -> str:
    """Return three rounds of three GPUs."""
    return "".join(
        form.format(
            time=f"2025/03/01 00:{10 * tick:02}:03.123", gpu=gpu, uuid=UUIDS[gpu],
            celsius=40 + tick * (-1) ** gpu, watts=f"{200 + 10 * tick + gpu}.5{gpu}",
        )
        for tick in range(3)
        for gpu in range(3)
    )  # fmt: skip


PLAIN = rows("{time}, {gpu}, {uuid}, {celsius}, 88, 70123\n")
WITH_UNITS = rows("{time}, {gpu}, {uuid}, {celsius}, 88 %, {watts} W, 700.00 W, 70123 MiB\n")


def test_fields_are_as_told() -> None:
    header = find_header(PLAIN, [("index", "uuid"), FIELDS], [])
    assert header == (FIELDS, "user")


def test_told_fields_must_fit_the_values() -> None:
    wrong = ("timestamp", "uuid", "index", "temperature.gpu", "utilization.gpu", "memory.used")
    assert find_header(PLAIN, [wrong], []).source == "guess"


def test_header_of_other_file_counts_if_unique() -> None:
    assert find_header(PLAIN, [], [FIELDS, FIELDS]) == (FIELDS, "file")
    other = (*FIELDS[:-1], "memory.free")
    assert find_header(PLAIN, [], [FIELDS, other]).source == "guess"


def test_ambiguous_numbers_are_not_guessed() -> None:
    assert find_header(PLAIN, [], []).fields == ("timestamp", "index", "uuid", "?", "?", "?")


def test_values_with_units_show_temperature_and_power() -> None:
    text = WITH_UNITS.replace(" 700.00 W,", "")
    fields = ("timestamp", "index", "uuid", "temperature.gpu", "?", "power.draw", "?")
    assert find_header(text, [], []).fields == fields
    assert find_header(WITH_UNITS, [], []).fields.count("power.draw") == 0  # or the limit


def test_constant_power_can_be_a_limit() -> None:
    text = rows("{gpu}, {uuid}, 700.00 W\n")
    assert find_header(text, [], []).fields == ("index", "uuid", "?")


def test_times_of_scripts_are_no_columns() -> None:
    text = "".join(
        f"2025-03-01T00:10:00Z {line}\n" for line in rows("{gpu}, {uuid}, 3\n").split("\n")
    )
    assert is_headerless_csv(text)
    assert find_header(text, [], []).fields == ("index", "uuid", "?")


@pytest.mark.parametrize(
    ("text", "told", "is_one"),
    [
        (PLAIN, [], True),
        (f"index, uuid, x\n{PLAIN}", [], False),
        ("0, 41, 88\n", [], False),
        ("0, 41, 88\n", [("index", "temperature.gpu", "utilization.gpu")], True),
        ('{"a": 1, "uuid": 2}\n', [("index", "uuid")], False),
        ("hello, world\n", [], False),
        ("", [], False),
    ],
)
def test_recognised_by_names_or_told_fields(
    text: str, told: list[tuple[str, ...]], is_one: bool
) -> None:
    assert is_headerless_csv(text, told) == is_one


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("2026/04/25 16:06:06.780, 0 %, 2 MiB, 27, 11.64 W", True),
        ("0, 27, 0 %, 1410 MHz", True),
        ("web-1, 12 %, up", False),
        ("2026/04/25 16:06:06.780, 5, 12", False),
        ("0.5 %, 1.2MiB / 3GiB, a", False),
    ],
)
def test_numbers_with_units_make_a_table(row: str, expected: bool) -> None:
    assert is_headerless_csv(f"{row}\n{row}\n") == expected
