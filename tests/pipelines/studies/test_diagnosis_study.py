"""`forewarn study diagnosis` on the command line, with two jobs."""

from __future__ import annotations

import json
from typing import Any

from forewarn.pipelines.cli.main import main


def test_study_compares_diagnosis_with_baselines(capsys: Any) -> None:
    options = ["--jobs", "1", "--ranks", "8", "--seed", "1", "--json"]
    assert main(["study", "diagnosis", *options]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["methods"]["forewarn"] == {"jobs": 1, "right": 1.0, "wrong": 0.0}
    assert {"oldest log line", "lowest completed number", "without flight"} <= {*figures["methods"]}
    assert figures["soon"]["all parts, 180 s after"]["right"] == 1.0
    assert figures["false_hangs"]["job_days"] == 900 / 86_400
    assert figures["false_hangs"]["episodes"] == 0


def test_hang_study_includes_no_recorder(capsys: Any) -> None:
    assert main(["study", "diagnosis", "--jobs", "1", "--ranks", "8", "--hangs"]) == 0
    text = capsys.readouterr().out
    assert "without flight, 300 s after" in text
    assert "false hangs" not in text
