"""Lines that repeat up to digits are judged once, and no line of interest is lost."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines import line_forms
from forewarn.features.diagnosis.log_lines.line_selection import (
    JoinedLines,
    LinePurpose,
    LineSelection,
    LineSelector,
)
from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_pattern import LogPattern
from forewarn.pipelines.diagnosis.parts.knowledge_base import load_patterns
from forewarn.pipelines.diagnosis.parts.log_reader import line_selector

NOTHING, PATTERN = LinePurpose(0), LinePurpose.PATTERN
STATEMENTS = (
    "iteration {:6d}/ 500000 | elapsed time per iteration (ms): {:7.1f} | lm loss: 2.31 |",
    "step {} loss {:.3f}",
    "NVRM: Xid (PCI:0000:3b:00): {:02d}, pid={:05.0f}, name=python3",
    "reading shard {:4d} failed after {:5.1f} s, retrying",
    "{} {:.0f}",
    "",
)
ERROR = re.compile("[Ee]rror|ERROR|[Ff]ailed")
# A statement, a number in it, and how often it is printed with growing numbers.
BLOCKS = st.lists(
    st.tuples(st.sampled_from(STATEMENTS), st.integers(0, 99), st.integers(1, 40)), max_size=12
)


def line(statement: str, number: int) -> str:
    return statement.format(number, number / 7)


def text_of(blocks: list[tuple[str, int, int]]) -> bytes:
    lines = [line(form, first + n) for form, first, repeats in blocks for n in range(repeats)]
    return "\n".join(lines).encode()


def selected(selection: LineSelection, text: bytes) -> bytes:
    return selection.joined(PATTERN, text).text


@given(st.lists(BLOCKS, min_size=1, max_size=4))
def test_selection_loses_no_match(chunks: list[list[tuple[str, int, int]]]) -> None:
    expressions = (r"Xid \([^)]*\): (79|1[3-5])\b", r"loss 1\d\.", r"^7 1$")
    patterns = [
        LogPattern(str(n), each, "root", "gpu", "error", "says", "next")
        for n, each in enumerate(expressions)
    ]
    matcher, single = LogMatcher(patterns), [re.compile(each) for each in expressions]
    selector = line_selector(matcher)
    for blocks in chunks:
        text = text_of(blocks)
        joined = selector.select(text).joined(PATTERN, text)
        lines = text.decode().split("\n")
        known = [each for each in lines if any(form.search(each) for form in single)]
        assert [text[m.start : m.end].decode() for m in matcher.lines(joined)] == known
        errors = [text[start:end].decode() for start, end in matcher.error_lines(joined)]
        assert errors == [each for each in lines if ERROR.search(each)]


def test_repeated_lines_are_left_out_later() -> None:
    selector = LineSelector(lambda line: PATTERN if b"lost" in line else NOTHING)
    text = text_of([(STATEMENTS[0], 200, 30)]) + b"\n"
    assert selected(selector.select(text), text) == b""
    text = text + b"rank 3 was lost\n" + text
    joined = selector.select(text).joined(PATTERN, text)
    assert joined.text == b"rank 3 was lost"
    assert joined.original_offset(5) == text.index(b"3 was lost")


def test_relevant_lines_stay_however_often() -> None:
    selector = LineSelector(lambda line: PATTERN if b"lost 00" in line else NOTHING)
    text = b"".join(b"rank %02d was lost %02d times\n" % (n, n) for n in range(60))
    assert selected(selector.select(text), text).count(b"lost") == 60


def test_lines_serve_only_their_purposes() -> None:
    selector = LineSelector(lambda line: PATTERN if b"x" in line else LinePurpose.FACT)
    text = b"x 1\n" * 20 + b"y 1\n" * 20
    selection = selector.select(text)
    assert selected(selection, text) == b"x 1\n" * 19 + b"x 1"
    assert selection.joined(LinePurpose.FACT, text).original_offset(0) == 80
    assert selection.joined(LinePurpose.REPORT, text).text == b""


@pytest.mark.parametrize("damage", [b"| [rank3]: NCCL error", b"|E", b""])
def test_lines_of_another_length_are_new(damage: bytes) -> None:
    selector = LineSelector(lambda _: NOTHING)
    selector.select(text_of([(STATEMENTS[0], 200, 30)]))
    other = line(STATEMENTS[0], 7).encode()[:-1] + damage
    assert selected(selector.select(other), other) == other


LETTERS = st.binary(max_size=24).map(lambda text: text.replace(b"\n", b""))


@given(LETTERS, LETTERS)
@example(b"a:", b"a9")
@example(b"a/", b"a0")
@example(b"\xb0", b"0")
def test_forms_differ_where_letters_do(first: bytes, second: bytes) -> None:
    def form(text: bytes) -> bytes:
        return re.sub(rb"[0-9]", b"0", text)

    selector = LineSelector(lambda _: NOTHING)
    selector.select((first + b"\n") * 16)
    expected = b"" if form(first) == form(second) else second
    assert selected(selector.select(second), second) == expected


def test_full_table_forgets_its_forms() -> None:
    selector = LineSelector(lambda line: PATTERN if b"lost" in line else NOTHING)
    letters = "abcdefghijklmnopqrst"
    unique = "".join(f"{a}{b}{c}{d} e\n" for a in letters for b in letters for c in letters
                     for d in letters).encode()  # fmt: skip
    assert len(unique) / 7 > line_forms.MAX_FORMS
    text = unique + b"lost\n" + b"step 1\n" * 16 + b"lost\n"
    joined = selector.select(text).joined(PATTERN, text)
    assert joined.text == unique + b"lost\nlost"


def test_part_of_lines_has_own_offsets() -> None:
    text = b"one\ntwo\nthree\n"
    selection = LineSelector(lambda _: PATTERN).select(text)
    joined = selection.joined(PATTERN, text, 4, 11)
    assert (joined.text, joined.original_offset(4)) == (b"two\nthr", 4)
    assert JoinedLines.whole(text).part_before(7) == b"one\ntwo"


def test_progress_lines_are_irrelevant_to_knowledge_base() -> None:
    selector = line_selector(load_patterns())
    text = text_of([(STATEMENTS[0], 100, 50)]) + b"\nx"
    assert selected(selector.select(text), text) == b"x"
