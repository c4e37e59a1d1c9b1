"""Expressions widened to any digits lose no match."""

from __future__ import annotations

import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forewarn.features.diagnosis.log_lines.any_digits import any_digits
from forewarn.features.diagnosis.log_lines.log_pattern import compile_pattern
from forewarn.pipelines.diagnosis.parts.knowledge_base import pattern_tables

EXAMPLES = [
    (table["pattern"], line) for table in pattern_tables().values() for line in table["examples"]
]


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
