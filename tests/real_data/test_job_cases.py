"""Jobs as their users had them: no wrong name, and nothing is called healthy unseen."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from forewarn.pipelines.cli.main import main

CASES = Path(__file__).resolve().parents[3] / "shared" / "data" / "job_cases"
ROWS = {
    row["case"]: row
    for row in csv.DictReader((CASES / "truth.csv").read_text(encoding="utf-8").splitlines())
}
MIN_RIGHT = 0.9  # the share that was asked for


def verdict(case: str, capsys: Any) -> dict[str, Any]:
    at = ["--at", ROWS[case]["at"]] if ROWS[case]["at"] else []
    assert main(["diagnose", "run", "--job", str(CASES / case), "--json", *at]) == 0
    line: dict[str, Any] = json.loads(capsys.readouterr().out)
    return line


def names(line: dict[str, Any]) -> set[str]:
    named = [line, *line["culprits"]]
    values = (value for each in named for value in (each["rank"], each["machine"]))
    return {str(value) for value in values if value is not None}


def named_in_steps(line: dict[str, Any]) -> set[str]:
    steps = {word.strip(",.:") for word in " ".join(line["next"]).split()}
    return steps.intersection(line["machines"])


def words(row: dict[str, str], *columns: str) -> set[str]:
    return {word for column in columns for word in row[column].split()}


@pytest.mark.parametrize("case", ROWS)
def test_no_healthy_rank_is_named(case: str, capsys: Any) -> None:
    row, line = ROWS[case], verdict(case, capsys)
    named = names(line)
    assert named_in_steps(line) <= {culprit["machine"] for culprit in line["culprits"]}
    assert line["next"]
    assert not named & words(row, "must_not_name")
    known = words(row, "ranks", "machines", "who_else_is_acceptable")
    assert named <= known or named & known


def test_most_jobs_are_judged_rightly(capsys: Any) -> None:
    """The kind is right, and the culprit, where somebody is to be named."""
    right = Counter[bool]()
    for case, row in ROWS.items():
        line = verdict(case, capsys)
        culprits = words(row, "ranks", "machines")
        is_named = bool(names(line) & (culprits | words(row, "who_else_is_acceptable")))
        kinds = {row["kind"]} | {kind for kind in ("hang", "ended") if kind in row["note"]}
        kinds |= {"ended"} if "nobody" in row["note"] else set()
        right[(line["kind"] in kinds or is_named) and is_named == bool(culprits)] += 1
        assert line["kind"] != "none" or row["kind"] == "none", case
    assert right[True] >= MIN_RIGHT * len(ROWS), right
