from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.log_lines.log_pattern import (
    LogPattern,
    PatternError,
    compile_pattern,
)


def pattern(name: str, expression: str) -> LogPattern:
    return LogPattern(name, expression, "root", "application", "error", "says", "next")


def matched(text: bytes, *expressions: str) -> list[tuple[bytes, str]]:
    matcher = LogMatcher([pattern(str(n), text) for n, text in enumerate(expressions)])
    return [(text[m.start : m.end], m.pattern.id) for m in matcher.lines(text)]


def test_lines_in_order_with_first_pattern() -> None:
    text = b"one b\ntwo\nthree ab\nfour b"
    assert matched(text, "ab", "b$") == [(b"one b", "1"), (b"three ab", "0"), (b"four b", "1")]


def test_matches_do_not_span_lines() -> None:
    assert matched(b"a\nb\n", r"a\s*b", r"a[^x]b", "(?s)a.b") == []


def test_binary_text_is_searched() -> None:
    assert matched(b"\xff\xfe error\x00 12\n", "error. 12") == [(b"\xff\xfe error\x00 12", "0")]


def test_excluded_patterns_do_not_hide_others() -> None:
    matcher = LogMatcher([pattern("a", "x"), pattern("b", "xy")])
    assert [m.pattern.id for m in matcher.lines(b"xy\n", without={"a"})] == ["b"]


def test_empty_matcher_matches_nothing() -> None:
    assert matched(b"anything") == []
    assert LogMatcher([]).first(b"anything") is None


@pytest.mark.parametrize(
    "expression", [r"(a+)+$", r"(a|aa)+$", r"(.*a){12}$", r"^(([a-z])+.)+[A-Z]$", r"(a|a?)+b$"]
)
def test_pathological_expressions_run_in_linear_time(expression: str) -> None:
    """A backtracking engine needs 2 to the power of 100,000 steps for the first expression."""
    text = b"a" * 100_000 + b"!"
    assert matched(text, expression, "nothing") == []
    assert matched(text + b"\n" + b"a" * 9, "(a+)+$")[-1] == (b"a" * 9, "0")


def test_large_pattern_does_not_disable_others() -> None:
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
def test_unsupported_expressions_are_rejected(expression: str, problem: str) -> None:
    with pytest.raises(PatternError, match=problem):
        compile_pattern(expression)


LINES = st.lists(st.text(alphabet="abx ", max_size=6), max_size=8)
EXPRESSIONS = st.lists(
    st.sampled_from(["a", "ab", "^b", "x$", "a.b", "b|x", "(?i)A", r"\bab\b"]), max_size=4
)


@given(LINES, EXPRESSIONS)
def test_text_and_line_matching_agree(lines: list[str], expressions: list[str]) -> None:
    patterns = [pattern(str(n), expression) for n, expression in enumerate(expressions)]
    matcher, text = LogMatcher(patterns), "\n".join(lines).encode()
    expected = []
    for line in lines:
        fits = [p.id for p in patterns if compile_pattern(p.expression).search(line.encode())]
        expected += [(line.encode(), fits[0])] if fits else []
    assert [(text[m.start : m.end], m.pattern.id) for m in matcher.lines(text)] == expected
