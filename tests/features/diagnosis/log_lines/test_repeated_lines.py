"""Lines that repeat up to digits are searched once, and no match is lost."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_pattern import LogPattern, compile_pattern
from forewarn.features.diagnosis.log_lines.repeated_lines import RepeatedLines, any_digits
from forewarn.pipelines.diagnosis.parts.knowledge_base import load_patterns, pattern_tables

EXAMPLES = [
    (table["pattern"], line) for table in pattern_tables().values() for line in table["examples"]
]
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


@given(st.lists(BLOCKS, min_size=1, max_size=4))
def test_selection_loses_no_match(chunks: list[list[tuple[str, int, int]]]) -> None:
    expressions = (r"Xid \([^)]*\): (79|1[3-5])\b", r"loss 1\d\.", r"^7 1$")
    patterns = [
        LogPattern(str(n), each, "root", "gpu", "error", "says", "next")
        for n, each in enumerate(expressions)
    ]
    matcher, single = LogMatcher(patterns), [re.compile(each) for each in expressions]
    for blocks in chunks:
        text = text_of(blocks)
        lines = text.decode().split("\n")
        known = [each for each in lines if any(form.search(each) for form in single)]
        assert [text[m.start : m.end].decode() for m in matcher.lines(text)] == known
        errors = [text[start:end].decode() for start, end in matcher.error_lines(text)]
        assert errors == [each for each in lines if ERROR.search(each)]


def test_repeated_lines_are_left_out_later() -> None:
    repeated = RepeatedLines(lambda line: b"lost" in line)
    text = text_of([(STATEMENTS[0], 200, 30)]) + b"\n"
    assert repeated.select_new(text).text == b""
    selection = repeated.select_new(text + b"rank 3 was lost\n" + text)
    assert selection.text == b"rank 3 was lost"
    assert selection.original_offset(5) == len(text) + 5


def test_relevant_lines_stay_however_often() -> None:
    repeated = RepeatedLines(lambda line: b"lost 00" in line)
    text = b"".join(b"rank %02d was lost %02d times\n" % (n, n) for n in range(60))
    assert repeated.select_new(text).text.count(b"lost") == 60


@pytest.mark.parametrize("damage", [b"| [rank3]: NCCL error", b"|E", b""])
def test_lines_of_another_length_are_new(damage: bytes) -> None:
    repeated = RepeatedLines(lambda _: False)
    repeated.select_new(text_of([(STATEMENTS[0], 200, 30)]))
    other = line(STATEMENTS[0], 7).encode()[:-1] + damage
    assert repeated.select_new(other).text == other


@pytest.mark.parametrize(("expression", "example"), EXAMPLES)
@settings(max_examples=10)
@given(st.randoms(use_true_random=False))
def test_any_digits_covers_all_digits(expression: str, example: str, random: Random) -> None:
    """A line that matches with some digits matches the widened expression with zeros."""
    other = re.sub(r"\d", lambda _: str(random.randrange(10)), example).encode()
    wide = compile_pattern(any_digits(expression))
    for text in (example.encode(), other):
        if compile_pattern(expression).search(text):
            assert wide.search(re.sub(rb"[0-9]", b"0", text))


@pytest.mark.parametrize(
    ("expression", "widened"),
    [
        (r"a{2,3}\d[^5]b", r"a{2,3}\d[^]b"),
        (r"(?P<n1>x)[^a-z0-9]", r"(?P<n1>x)[^a-z0-9]"),
        (r"[^x5-7]1", r"[^x][0-9]"),
        (r"[^5-z]", "."),
        (r"\x37", "."),
        (r"\Q7\E", "."),
        (r"[\x30]", "."),
        (r"[[:alpha:]4]", r"[[:alpha:]40-9]"),
    ],
)
def test_classes_are_widened(expression: str, widened: str) -> None:
    assert any_digits(expression) == widened.replace("[^]", ".")


def test_progress_lines_are_irrelevant_to_knowledge_base() -> None:
    matcher = load_patterns()
    text = text_of([(STATEMENTS[0], 100, 50)])
    assert list(matcher.lines(text)) == []
    assert matcher._select(text + b"\nx").text == b"x"
