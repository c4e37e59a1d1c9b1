"""`forewarn advise checkpoint` on lists of known probabilities."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from forewarn.pipelines.cli.main import main

JOB = 'machines = ["n[1-125]"]\nstep = "2s"\nsave = "30s"\nrestart = "10min"\n'
AT = "2026-03-01T12:00:00Z"


def _lists(folder: Path, *, flagged: int = 0, date: str = "2026-03-01") -> Path:
    """Write a list of 1,000 GPUs on 125 machines, each of which fails with 0.27 % a day."""
    begin = pd.Timestamp(f"{date}T06:00:00Z")
    table = pd.DataFrame(
        {
            "gpu_serial": [f"S{n}" for n in range(1_000)],
            "machine_id": [f"n{n // 8 + 1}" for n in range(1_000)],
            "window_end": begin,
            "valid_until": begin + pd.Timedelta(days=1),
            "flagged": [n < flagged for n in range(1_000)],
            "probability": 0.0027,
        }
    )
    path = folder / "lists" / f"date={date}" / "at_risk.parquet"
    path.parent.mkdir(parents=True)
    table.to_parquet(path)
    return folder / "lists"


def _advise(
    capsys: pytest.CaptureFixture[str], folder: Path, text: str, *options: object
) -> dict[str, Any]:
    job = folder / "job.toml"
    job.write_text(text)
    command = ["advise", "checkpoint", "--json", "--at", AT, "--job", str(job)]
    assert main([*command, *map(str, options)]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_a_thousand_gpus_stop_a_job_on_most_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = _advise(capsys, tmp_path, JOB, "--at-risk", _lists(tmp_path))
    assert round(line["chance_of_interruption"], 2) == 0.93
    rate = -1_000 * math.log1p(-0.0027) / 86_400
    assert line["interval_steps"] == round(math.sqrt(2 * 30 / rate) / 2)
    assert line["lost_share"] < min(
        line["lost_share_at_a_third"], line["lost_share_at_three_times"]
    )
    assert line["save_now"] is None


def test_other_interruptions_add_to_the_rate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = _advise(capsys, tmp_path, f"{JOB}interruptions_per_day = 2\n")
    assert line["interruptions_per_day"] == pytest.approx(2)


@pytest.mark.parametrize(
    ("precision", "since", "save", "move"),
    [(0.5, "61s", True, False), (0.5, "59s", False, False), (0.9, "30min", True, True)],
)
def test_a_flag_is_worth_what_the_review_measured(
    precision: float,
    since: str,
    save: bool,
    move: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    review = tmp_path / "review.json"
    review.write_text(json.dumps({"precision": precision}))
    options = ("--at-risk", _lists(tmp_path, flagged=3), "--review", review)
    line = _advise(capsys, tmp_path, f'{JOB}since_save = "{since}"\nspares = 1\n', *options)
    assert line["flagged"] == {"n1": 0.0027}
    assert (line["save_now"], line["move_now"]) == (save, move)
    assert line["move_at_next_stop"]


@pytest.mark.parametrize(
    ("job", "date", "message"),
    [
        (JOB.replace('"30s"', '"0s"'), "2026-03-01", "save"),
        (f"{JOB}unit = 2\n", "2026-03-01", "unit"),
        (JOB, "2026-02-27", "no list that is valid at 2026-03-01T12:00:00Z"),
        (JOB.replace("n[1-125]", "m[1-2]"), "2026-03-01", "no machine of the job"),
        (JOB.replace("n[1-125]", "n[1"), "2026-03-01", "machines"),
    ],
)
def test_files_that_allow_no_advice_are_refused(
    job: str, date: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.toml"
    path.write_text(job)
    lists = _lists(tmp_path, date=date)
    options = ["--job", str(path), "--at-risk", str(lists), "--at", AT]
    assert main(["advise", "checkpoint", *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
