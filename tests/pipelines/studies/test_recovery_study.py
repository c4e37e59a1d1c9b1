"""`forewarn simulate recovery` and `forewarn study recovery`, end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from forewarn.evaluation.simulation.recovery.recovery_method import MECHANISMS
from forewarn.pipelines.cli.main import main
from forewarn.pipelines.studies.recovery_study import SimulatedSite, break_even_figures


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]


def test_simulated_job_uses_all_of_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("simulate", "recovery", "--gpus", "256", "--days", "60", "--rate", "50")
    before, after = (
        _json(capsys, *words, "--method", name) for name in (MECHANISMS[0], MECHANISMS[-1])
    )
    for figures in (before, after):
        assert sum(figures["gpu_hours"].values()) == pytest.approx(256 * 60 * 24)
        assert figures["interruptions"] > 20
    assert after["effective_share"] > before["effective_share"] + 0.05


def test_study_compares_each_mechanism_with_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("study", "recovery", "--gpus", "512", "--seeds", "2", "--days", "60")
    figures = _json(capsys, *words, "--out", str(tmp_path))
    rows = {row["method"]: row for row in figures["mechanisms"]}
    assert tuple(rows) == MECHANISMS
    for name, row in rows.items():
        if name != MECHANISMS[0]:
            low, high = row["gain_interval"]
            assert low <= row["gain"] <= high
    shares = {name: row["effective_share"] for name, row in rows.items()}
    gain = shares["+ shrinking"] - shares["+ moves at stops"]  # not from moves at once
    assert rows["+ shrinking"]["gain"] == pytest.approx(gain)
    assert (tmp_path / "recovery.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "recovery.json").read_text())["mechanisms"]
    assert main([*words[:-2], "--days", "30"]) == 0
    assert "A move at once needs a precision of" in capsys.readouterr().out


def test_worse_predictions_make_moves_cost_more() -> None:
    site = SimulatedSite(days=30, rate=100.0, spares=1.0)
    rows = break_even_figures(site, 2_048, (0,))["rows"]
    gains = {(r["recall"], r["precision"]): r["gains"]["moves at once"] for r in rows}
    assert gains[0.6, 0.05] < 0 < gains[0.6, 0.9]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--days", "45"), "expected a multiple of 30"),
        (("--precision", "1.5"), "expected a share of at most 1"),
        (("--recall", "0"), "expected a number above 0"),
        (("--method", "+ magic"), "expected one of: poll and resubmit"),
    ],
)
def test_bad_options_are_one_line(
    words: tuple[str, str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["simulate", "recovery", *words])
    except SystemExit as error:  # of the parser
        code = int(error.code or 0)
    assert code == 2
    assert message in capsys.readouterr().err


def test_review_gives_precision_and_recall(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    review = tmp_path / "review.json"
    words = ("simulate", "recovery", "--gpus", "256", "--days", "60", "--rate", "50")
    review.write_text(json.dumps({"precision": 0.5, "caught": 2, "failures": 10}))
    stated = _json(capsys, *words, "--precision", "0.5", "--recall", "0.2")
    assert _json(capsys, *words, "--review", str(review)) == stated
    review.write_text(json.dumps({"precision": 0.0, "caught": 0, "failures": 10}))
    assert main([*words, "--review", str(review)]) == 2
    assert "no alert came true" in capsys.readouterr().err
