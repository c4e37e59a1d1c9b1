"""SuperBench: results judged by its rules, whose criteria are compared and never executed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forewarn.features.inspection.superbench import Criterion, SuperBenchError, parse_criterion
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.inspection.result_files import read_results

RULES = """
version: v0.8
superbench:
  rules:
    failure_rule:
      function: value
      criteria: 'lambda x:x>0'
      categories: FailedTest
      metrics:
        - mem-bw/return_code
    rule1:
      function: variance
      criteria: lambda x:x<-0.05
      categories: Mem
      metrics:
        - mem-bw/H2D_Mem_BW:\\d+
"""
RESULTS = [
    {"node": "sb-01", "mem-bw/return_code": 0, "mem-bw/H2D_Mem_BW:0": 25.6},
    {"node": "sb-02", "mem-bw/return_code": 0, "mem-bw/H2D_Mem_BW:0": 24.0},
    {"node": "sb-03", "mem-bw/return_code": 1, "mem-bw/H2D_Mem_BW:0": None},
]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "baseline.json").write_text(json.dumps({"mem-bw/H2D_Mem_BW:0": 25.6}))
    text = "".join(json.dumps(row) + "\n" for row in RESULTS)
    (tmp_path / "results.jsonl").write_text(text)
    options = ["--results", "results.jsonl", "--rules", "rules.yaml", "--baseline", "baseline.json"]
    paths = [name if name.startswith("-") else str(tmp_path / name) for name in options]
    return ["inspect", "superbench", *paths, "--at", "2025-03-01", "--out", str(tmp_path / "out")]


def test_rules_find_the_slow_and_the_failed_machine(files: list[str], tmp_path: Path) -> None:
    assert main(files) == 0
    rows = read_results(tmp_path / "out").to_pylist()
    assert len(rows) == 5
    bad = {(row["machine"], row["check"], row["slot"]): row["text"] for row in rows if row["text"]}
    assert bad == {
        ("sb-02", "mem-bw/H2D_Mem_BW", "0"): "rule1 (Mem)",
        ("sb-03", "mem-bw/return_code", None): "failure_rule (FailedTest)",
    }


@pytest.mark.parametrize(
    "criteria",
    [
        "lambda x: __import__('os').system('reboot')",
        "lambda x: x > y",
        "lambda x: x > 1 or x < 0",
        "lambda x: max(x, 1) > 0",
        'lambda label: bool(label["a"] + label["b"] >= 2)',
        "x > 0",
        "0.05",
        "lambda x: x > 1e",
    ],
)
def test_criterion_that_is_no_comparison_is_refused(
    criteria: str, files: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = RULES.replace("'lambda x:x>0'", json.dumps(criteria))
    (tmp_path / "rules.yaml").write_text(text)
    assert main(files) == 2
    error = capsys.readouterr().err
    assert "rules.yaml: rule failure_rule: `criteria` is" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "operator", "number"),
    [
        ("lambda x:x>0.05", ">", 0.05),
        ("lambda x: x < -0.05", "<", -0.05),
        ("lambda value: (value >= 1e-3)", ">=", 0.001),
        ("lambda x:x!=0", "!=", 0.0),
    ],
)
def test_comparison(text: str, operator: str, number: float) -> None:
    assert parse_criterion(text, "r") == Criterion(operator, number)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("rules.yaml", RULES.replace("value", "multi_rules"), "`function` is 'multi_rules'"),
        ("rules.yaml", "superbench: {rules: [", "is not YAML"),
        ("rules.yaml", "a: 1", "has no `superbench.rules`"),
        ("results.jsonl", '{"node": "../x", "a": 1}', "'../x'"),
        ("results.jsonl", '{"a": 1}', "line 1"),
        ("results.jsonl", '{"node": "n", "a": "fast"}', "expected a number"),
        ("baseline.json", "[1]", "is not a JSON object"),
    ],
)
def test_bad_file_is_one_line(
    name: str,
    text: str,
    words: str,
    files: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).write_text(text)
    assert main(files) == 2
    error = capsys.readouterr().err
    assert words in error
    assert name in error
    assert error.count("\n") == 1


def test_error_is_an_input_error() -> None:
    with pytest.raises(SuperBenchError, match="comparison with a number"):
        parse_criterion(None, "r")
