from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.hostlist import HostlistError, compress, expand

NAMES = st.text(string.ascii_lowercase + string.digits + "-._", min_size=1, max_size=8)


@given(st.lists(NAMES))
def test_compress_and_expand_round_trip(names: list[str]) -> None:
    assert sorted(expand(compress(names))) == sorted(set(names))


@given(st.sets(st.integers(0, 3000)))
def test_numbers_of_equal_width_become_ranges(numbers: set[int]) -> None:
    text = compress(f"n{number:04d}" for number in numbers)
    assert expand(text) == [f"n{number:04d}" for number in sorted(numbers)]
    assert text.count("n") == bool(numbers)


def test_a_fleet_becomes_short() -> None:
    names = [f"node-{number:05d}" for number in range(2500) if number not in {7, 1200}]
    assert compress(names) == "node-[00000-00006,00008-01199,01201-02499]"


def test_other_names_stay_separate() -> None:
    assert compress(["n9", "n10", "login", "n11", "login"]) == "login,n9,n[10-11]"
    assert compress([]) == ""


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("a", ["a"]),
        ("a,,b", ["a", "b"]),
        ("n[1]", ["n1"]),
        ("n[009-011]x", ["n009x", "n010x", "n011x"]),
        ("r[1-2]n[01,03]", ["r1n01", "r1n03", "r2n01", "r2n03"]),
    ],
)
def test_slurm_formats_are_read(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n[1-", "brackets"),
        ("n]1[", "brackets"),
        ("n[[1]]", "brackets"),
        ("n[]", "is not a range"),
        ("n[a-b]", "is not a range"),
        ("n[5-4]", "descending"),
        ("n[1-200000]", "more than 100000 names"),
        ("n[1-999999999999]", "more than 100000 names"),
        ("[1-400][1-400]", "more than 100000 names"),
        ("[1-60000],[1-60000]", "more than 100000 names"),
        ("a" * 1_000_001, "characters"),
    ],
)
def test_invalid_or_long_lists_are_rejected(text: str, message: str) -> None:
    with pytest.raises(HostlistError, match=message):
        expand(text)


@given(st.text("n[]-,01", max_size=30))
def test_any_text_is_read_or_rejected(text: str) -> None:
    try:
        names = expand(text)
    except HostlistError:
        return
    assert all("[" not in name and "," not in name for name in names)
