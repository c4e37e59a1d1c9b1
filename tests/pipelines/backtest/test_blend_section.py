from __future__ import annotations

from forewarn.evaluation.prediction.metrics.intersection_worth import IntersectionWorth
from forewarn.evaluation.prediction.metrics.member_worth import BlendWorth, MemberWorth
from forewarn.evaluation.prediction.metrics.paired_differences import PairedDifference
from forewarn.pipelines.backtest.backtest_page import render_report
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.backtest.blend_section import blend_text, intersection_text, member_rows

EARNS, LOWERS = PairedDifference(0.02, (0.01, 0.04)), PairedDifference(-0.02, (-0.04, -0.01))
UNKNOWN = PairedDifference(0.001, (-0.01, 0.02))
WORTH = BlendWorth(
    0.18,
    {
        "cnn": MemberWorth(0.25, 0.12, LOWERS, EARNS),
        "linear": MemberWorth(0.75, 0.179, EARNS, UNKNOWN),
    },
)


def test_text_names_votes_and_sufficient_model() -> None:
    votes, alone = blend_text(WORTH)
    assert votes == (
        "Average precision of the blend: 0.180. Models, their vote, and what each adds to the "
        "others: Linear (strong prior) 75 %: earns its vote (+0.020, interval +0.010 to +0.040), "
        "1D-CNN 25 %: lowers the blend (-0.020, interval -0.040 to -0.010)."
    )
    assert alone == (
        "One model would do: the blend is not better than Linear (strong prior) alone (+0.001, "
        "interval -0.010 to +0.020)."
    )


def test_text_without_sufficient_model() -> None:
    needed = BlendWorth(0.2, {**WORTH.members, "linear": MemberWorth(0.75, 0.179, EARNS, EARNS)})
    assert len(blend_text(needed)) == 1


def test_blend_of_one_model_has_no_text() -> None:
    assert blend_text(None) == []
    assert blend_text(BlendWorth(0.1, {"gbdt": MemberWorth(1.0, 0.1, None, UNKNOWN)})) == []


def test_page_shows_row_per_model() -> None:
    report = BacktestReport("expanding", blend={"expanding": WORTH})
    page = render_report(report)
    assert [row.label for row in member_rows(WORTH)] == ["Linear (strong prior)", "1D-CNN"]
    for text in ("What each model adds to the blend", "One model would do", "lowers the blend"):
        assert text in page
    assert '"sufficient": "linear"' in report.to_json()
    assert "What each model adds" not in render_report(BacktestReport("expanding"))


def test_intersection_text_groups_by_verdict() -> None:
    worth = IntersectionWorth(
        23, 9, 64, 0.9, {"cnn": EARNS, "gbdt": UNKNOWN, "blend": PairedDifference(0.0)}
    )
    assert intersection_text(worth) == [
        "The intersection flags 23 of the 64 instances that each member may flag, on 9 GPUs. "
        "Compared with lists of its length, it is better: 1D-CNN (+0.020, interval +0.010 to "
        "+0.040); not distinguishable: GBDT (+0.001, interval -0.010 to +0.020); not comparable: "
        "Blend (+0.000)."
    ]
    assert intersection_text(None) == []
