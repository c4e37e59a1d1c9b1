from __future__ import annotations

import pytest

from forewarn.features.diagnosis.log_lines.log_template import log_template


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("shard 17 is short", "shard 3 is short"),
        ("lost 10.0.0.4:29500", "lost 10.0.0.12:1"),
        ("at 0x7f001 of /data/a/b.bin", "at 0xdead of /scratch/x"),
        ("2025-03-01T04:00:00Z broken", "2026-11-12T14:10:00.123Z broken"),
        ("job 550e8400-e29b-41d4-a716-446655440000", "job 123e4567-e89b-12d3-a456-426614174000"),
        ("took 3.5 s  on gpu7", "took 1e-4 s on gpu12"),
        ("s3://bucket/x is gone", "s3://other/y/z is gone"),
    ],
)
def test_lines_with_different_variables_share_template(first: str, second: str) -> None:
    assert log_template(first) == log_template(second)


def test_different_words_have_different_templates() -> None:
    assert log_template("shard 17 is short") != log_template("shard 17 is long")


def test_long_lines_are_truncated() -> None:
    assert len(log_template("word " * 1000)) <= 300
