from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.cut_line import whole_of_cut_line
from forewarn.features.diagnosis.log_lines.log_template import log_template

WHOLE = "[E424 01:11:21.160832730 x.cpp:629] [Rank 0] waited 600 s for 10.0.0.5:41317 in step 17"
OTHER = WHOLE.replace("Rank 0", "Rank 3").replace("21.160832730", "22.7").replace("17", "21")


@given(st.integers(6, len(OTHER) - 1))
def test_beginning_of_line_is_recognized(at: int) -> None:
    begin = OTHER[:at]
    is_whole = log_template(begin) == log_template(OTHER)  # only digits of a number are missing
    assert whole_of_cut_line(begin, [WHOLE]) == (None if is_whole else WHOLE)


@given(st.integers(1, len(OTHER) - 20))
def test_end_of_line_is_recognized(at: int) -> None:
    assert whole_of_cut_line(OTHER[at:], ["another line", WHOLE]) == WHOLE


@given(st.text(st.characters(categories=["L", "Zs"]), max_size=30))
def test_other_lines_are_no_parts(text: str) -> None:
    assert whole_of_cut_line("rank 3: " + text, [WHOLE]) is None


def test_whole_line_is_no_part() -> None:
    assert whole_of_cut_line(OTHER, [WHOLE]) is None
    assert whole_of_cut_line("", [WHOLE]) is None
    assert whole_of_cut_line("RuntimeError:", ["RuntimeError: lost a peer"]) is None
