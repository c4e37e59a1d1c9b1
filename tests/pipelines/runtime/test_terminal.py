"""Names from data cannot move the cursor, start a new line or change the text direction."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from forewarn.pipelines.at_risk.at_risk_list import AtRiskList, list_summary
from forewarn.pipelines.config.settings import load_settings
from forewarn.pipelines.detection.detection_text import verdict_text
from forewarn.pipelines.detection.task_result import UnjudgedTask
from forewarn.pipelines.doctor.data_problems import doctor_text
from forewarn.pipelines.doctor.examination import examine
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.terminal import escape_text, print_error, write_line

Capture = pytest.CaptureFixture[str]
Write = Callable[[pd.DataFrame, Path], Path]

EVIL = "n\x1b[2J\x1b]0;x\x07\nforewarn: all is well\u202e\u2066\u200b\x9b\x7f\udcff\r"

NAME = EVIL.replace("\udcff", "")  # tables hold no unpaired surrogate


def seen(text: str) -> bool:
    return all(c.isprintable() for c in text)


def test_invisible_characters_are_escaped() -> None:
    assert escape_text("node-0001 é 日本") == "node-0001 é 日本"
    assert escape_text(EVIL) == (
        "n\\x1b[2J\\x1b]0;x\\x07\\nforewarn: all is well\\u202e\\u2066\\u200b\\x9b\\x7f\\udcff\\r"
    )


@pytest.mark.parametrize("print_line", [write_line, print_error, note])
def test_printed_line_is_printable(print_line: Callable[[str], None], capsys: Capture) -> None:
    print_line(EVIL)
    output = capsys.readouterr()
    (line,) = (output.out + output.err).splitlines()
    assert seen(line)
    assert "\\x1b[2J" in line


def evil_list() -> AtRiskList:
    end = pd.to_datetime(["2025-03-01"], utc=True)
    table = {"rank": [1], "gpu_serial": [NAME], "machine_id": [NAME], "probability": [0.5]}
    table |= {"flagged": [True], "flagged_by": [""], "reasons": [NAME], "window_end": end}
    rows = pd.DataFrame(table | {"model_version": ["v"], "valid_until": end})
    unscored = pd.DataFrame({"gpu_serial": [NAME], "machine_id": [NAME], "reason": [NAME]})
    return AtRiskList(0, rows, unscored, 0.003, 24.0, "v")


def test_list_summary_has_line_per_gpu() -> None:
    lines = list_summary(evil_list()).split("\n")
    assert len(lines) == 3
    assert all(map(seen, lines))


def test_list_summary_omits_unknown_machine() -> None:
    made = evil_list()
    table = made.table.assign(machine_id=pd.Series([None], dtype="str"), gpu_serial="S1")
    assert "  S1 50 %: " in list_summary(dataclasses.replace(made, table=table))


def test_list_summary_formats_probability_like_page() -> None:
    made = evil_list()
    rare = made.table.assign(probability=0.0004, gpu_serial="S1", machine_id="m1")
    assert "  S1 on m1 under 0.1 %: " in list_summary(dataclasses.replace(made, table=rare))


def test_doctor_text_is_printable(
    fleet: pd.DataFrame, config: Path, tmp_path: Path, write: Write
) -> None:
    frame = fleet[fleet["timestamp"] < "2025-01-03"].copy()
    first = frame["gpu_serial"].iloc[0]
    frame["gpu_serial"] = frame["gpu_serial"].replace(first, NAME)
    records = write(pd.concat([frame, frame]), tmp_path / "records")
    assert all(map(seen, doctor_text(examine(records, load_settings(config))).split("\n")))


def test_unjudged_task_keeps_name_in_json() -> None:
    line = UnjudgedTask(EVIL, EVIL, 0.1).line()
    assert json.loads(json.dumps(line)) == line
    assert seen(escape_text(verdict_text(line)))
