"""Labels read once for each form of lines are those of every single line."""

from __future__ import annotations

import re

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_streams.labelled_lines import Values, read_labels

PREFIX = re.compile(
    rb"(?:\d{4}-\d\d-\d\dT[\d:.]+Z )?(?:(\w+)\| )?(?: *(\d{1,4}): )?"
    rb"(?:\[[Rr](?:ANK|ank) ?(\d+)\]:? )?"
)
TIME = re.compile(rb"(\d{4}-\d\d-\d\dT[\d:]+)(?:\.\d+)?Z")
PREFIXES = st.builds(
    "".join,
    st.tuples(
        st.sampled_from(
            ("", "2026-03-04T12:15:00Z ", "2026-03-04T12:15:00.5Z ", "2026-03-04T12:15:59Z ")
        ),
        st.sampled_from(("", "pod1| ", "pod2| ", "host17| ")),
        st.sampled_from(("", "0: ", "7: ", "17: ", "  3: ", "0006: ", "0007: ")),
        st.sampled_from(("", "[RANK 6] ", "[RANK 7] ", "[rank6]: ", "[Rank 12] ")),
    ),
)
RESTS = st.sampled_from(("step 1", "step 2", "step 10", "Traceback:", "  File x", "", "0: a", "é"))
LINES = st.lists(st.builds("".join, st.tuples(PREFIXES, RESTS)), max_size=40)


def line_by_line(lines: list[bytes], *, keeps_times: bool) -> dict[Values, bytes]:
    texts: dict[Values, bytes] = {}
    seconds: dict[Values, bytes] = {}
    for line in lines:
        match = PREFIX.match(line)
        assert match is not None
        values, rest = match.groups(), line[match.end() :]
        time = TIME.search(line, 0, match.end())
        if keeps_times and rest and time is not None:
            if seconds.get(values) != time[1]:
                rest = time[0] + b" " + rest
            seconds[values] = time[1]
        texts[values] = texts.get(values, b"") + rest + b"\n"
    return texts


@given(LINES, st.booleans(), st.booleans())
def test_lines_are_divided_as_line_by_line(lines: list[str], keeps_times: bool, ends: bool) -> None:
    coded = [line.encode() for line in lines]
    text = b"\n".join(coded) + b"\n" * (bool(coded) and (ends or not coded[-1]))
    labelled = read_labels(text, PREFIX, keeps_times=keeps_times)
    texts = {
        values: labelled.without_prefixes(np.flatnonzero(labelled.numbers == number))
        for number, values in enumerate(labelled.values)
    }
    expected = line_by_line(coded, keeps_times=keeps_times)
    assert list(texts) == list(expected)
    assert texts == {key: rest if rest.strip(b"\n") else b"" for key, rest in expected.items()}
