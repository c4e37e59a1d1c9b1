from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_pattern import LogPattern, PatternError, compile_pattern


def pattern(name: str, expression: str) -> LogPattern:
    return LogPattern(name, expression, "root", "application", "error", "says", "next")


def matched(text: bytes, *expressions: str) -> list[tuple[bytes, str]]:
    matcher = LogMatcher([pattern(str(n), text) for n, text in enumerate(expressions)])
    return [(text[m.start : m.end], m.pattern.id) for m in matcher.lines(text)]


def test_lines_come_in_order_each_with_the_first_pattern_that_fits() -> None:
    text = b"one b\ntwo\nthree ab\nfour b"
    assert matched(text, "ab", "b$") == [(b"one b", "1"), (b"three ab", "0"), (b"four b", "1")]


def test_no_expression_reaches_over_the_end_of_a_line() -> None:
    assert matched(b"a\nb\n", r"a\s*b", r"a[^x]b", "(?s)a.b") == []


def test_bytes_that_are_no_text_are_searched_too() -> None:
    assert matched(b"\xff\xfe error\x00 12\n", "error. 12") == [(b"\xff\xfe error\x00 12", "0")]


def test_what_is_left_out_does_not_hide_others() -> None:
    matcher = LogMatcher([pattern("a", "x"), pattern("b", "xy")])
    assert [m.pattern.id for m in matcher.lines(b"xy\n", without={"a"})] == ["b"]


def test_no_patterns_match_nothing() -> None:
    assert matched(b"anything") == []
    assert LogMatcher([]).first(b"anything") is None


@pytest.mark.parametrize(
    "expression", [r"(a+)+$", r"(a|aa)+$", r"(.*a){12}$", r"^(([a-z])+.)+[A-Z]$", r"(a|a?)+b$"]
)
def test_expressions_that_make_others_hang_are_searched_at_once(expression: str) -> None:
    """With backtracking the first takes 2 to the power of 100,000 steps."""
    text = b"a" * 100_000 + b"!"
    assert matched(text, expression, "nothing") == []
    assert matched(text + b"\n" + b"a" * 9, "(a+)+$")[-1] == (b"a" * 9, "0")


def test_a_pattern_that_needs_many_states_does_not_blind_the_others() -> None:
    wide = [f"[ab]*a[ab]{{{n}}}x" for n in range(8, 14)]
    text = (b"ab" * 40 + b"ba" * 31 + b"\n") * 200 + b"No space left\n"
    assert matched(text, *wide, "No space") == [(b"No space left", "6")]


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("(?<=a)b", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(a", "missing"),
        ("a{1001}", "invalid repetition size"),
        ("(?:[a-z]{30}){30}.{900}.{900}.{900}.{900}", "too large"),
        ("é", "non-ASCII"),
        ("a*", "matches an empty line"),
    ],
)
def test_what_the_engine_does_not_know_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(PatternError, match=problem):
        compile_pattern(expression)


LINES = st.lists(st.text(alphabet="abx ", max_size=6), max_size=8)
EXPRESSIONS = st.lists(
    st.sampled_from(["a", "ab", "^b", "x$", "a.b", "b|x", "(?i)A", r"\bab\b"]), max_size=4
)


@given(LINES, EXPRESSIONS)
def test_a_whole_text_gives_what_each_line_gives(lines: list[str], expressions: list[str]) -> None:
    patterns = [pattern(str(n), expression) for n, expression in enumerate(expressions)]
    matcher, text = LogMatcher(patterns), "\n".join(lines).encode()
    expected = []
    for line in lines:
        fits = [p.id for p in patterns if compile_pattern(p.expression).search(line.encode())]
        expected += [(line.encode(), fits[0])] if fits else []
    assert [(text[m.start : m.end], m.pattern.id) for m in matcher.lines(text)] == expected
