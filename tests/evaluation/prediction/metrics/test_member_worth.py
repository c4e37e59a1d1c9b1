from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.evaluation.prediction.metrics.test_backtest_metrics import (
    COMMITTEE,
    NEVER,
    Row,
    protocol,
    table_of,
)

from forewarn.evaluation.prediction.metrics.backtest_metrics import strategy_metrics
from forewarn.evaluation.prediction.metrics.intersection_worth import intersection_worth
from forewarn.evaluation.prediction.metrics.member_worth import (
    BlendWorth,
    averages_without,
    measured_blend,
)
from forewarn.evaluation.prediction.metrics.paired_differences import PairedDifference
from forewarn.evaluation.prediction.metrics.score_table import ScoreTable
from forewarn.models.prediction.ensembles import Committee

# m1 fails. Model a ranks it second, b first, and so does their blend.
ROWS: list[Row] = [
    (0, "m1", 21, 30, 0.5, 0.9),
    (0, "m2", 21, NEVER, 0.8, 0.1),
    (0, "n1", 21, NEVER, 0.2, 0.2),
    (0, "n2", 21, NEVER, 0.1, 0.1),
]


def blended_table(committee: Committee = COMMITTEE, rows: list[Row] = ROWS) -> ScoreTable:
    table = table_of(rows)
    frame = table.frame.assign(score_blend=committee.blend(table.scores))
    return ScoreTable(frame, replace(protocol(k=0.5), committee=committee))


def measured(table: ScoreTable) -> BlendWorth:
    worth = measured_blend(table)
    assert worth is not None
    return worth


def test_worth_of_members_by_hand() -> None:
    worth = measured(blended_table())
    a, b = worth.members["a"], worth.members["b"]
    assert (worth.average_precision, a.average_precision, b.average_precision) == (1.0, 0.5, 1.0)
    assert (a.vote, b.vote) == (0.5, 0.5)
    # Without b the blend is a. In every draw that contains m, m2 stands before m1.
    assert b.added == PairedDifference(0.5, (0.5, 0.5))
    assert a.added == PairedDifference(0.0, (0.0, 0.0))
    assert a.ahead == PairedDifference(0.5, (0.5, 0.5))
    assert worth.sufficient == "b"
    assert worth.to_dict()["members"]["b"]["added"] == {"difference": 0.5, "interval": (0.5, 0.5)}


def test_blend_better_than_each_model_needs_several() -> None:
    # Each model ranks another healthy GPU first; both agree on m1.
    rows: list[Row] = [
        (0, "m1", 21, 30, 0.8, 0.8),
        (0, "m2", 21, NEVER, 0.9, 0.1),
        (0, "m3", 21, NEVER, 0.1, 0.9),
    ]
    worth = measured(blended_table(rows=rows))
    assert worth.average_precision == 1.0
    assert worth.sufficient is None
    assert [member.added for member in worth.members.values()] == 2 * [
        PairedDifference(0.5, (0.5, 0.5))
    ]


def test_only_model_adds_nothing_to_compare() -> None:
    worth = measured(blended_table(Committee(("a",), (("a", 0.5),))))
    assert worth.members["a"].added is None
    assert worth.sufficient is None


def test_model_without_vote_is_not_listed() -> None:
    table = blended_table(Committee(("a",), (("a", 0.5),)))
    assert list(measured(table).members) == ["a"]


def test_worth_is_unknown_without_failures_or_scores() -> None:
    healthy = [(*row[:3], NEVER, *row[4:]) for row in ROWS]
    assert measured_blend(blended_table(rows=healthy)) is None
    assert averages_without(table_of(ROWS)) == {}
    assert measured_blend(table_of(ROWS)) is None


def test_metrics_of_strategy_hold_worth() -> None:
    table = blended_table()
    assert strategy_metrics(table).blend == measured_blend(table)
    assert strategy_metrics(table).intersection == intersection_worth(table)


def test_intersection_is_compared_at_its_length() -> None:
    worth = intersection_worth(blended_table())
    assert worth is not None
    # Each model flags two; both flag m1 only. The first of a alone is m2, that of b is m1.
    assert (worth.flagged, worth.gpus, worth.allowed, worth.precision) == (1, 1, 2, 1.0)
    assert worth.same_length["a"] == PairedDifference(1.0, (1.0, 1.0))
    assert worth.same_length["b"] == PairedDifference(0.0, (0.0, 0.0))
    assert list(worth.same_length) == ["a", "b", "blend"]


def test_intersection_of_single_member_is_not_compared() -> None:
    assert intersection_worth(blended_table(Committee(("a",), (("a", 0.5),)))) is None


def test_empty_intersection_is_not_compared() -> None:
    rows = [(*row[:4], row[4], 1.0 - row[4]) for row in ROWS]
    assert intersection_worth(blended_table(rows=rows)) is None


@pytest.mark.parametrize("seed", range(5))
def test_windows_without_flags_have_no_weight(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows: list[Row] = [
        (window, f"m{gpu}", 24 * window + 21, 24 * window + 30 if gpu < 2 else NEVER, *scores)
        for window in range(3)
        for gpu, scores in enumerate(rng.random((8, 2)).tolist())
    ]
    table = blended_table(rows=rows)
    worth = intersection_worth(table)
    precision = strategy_metrics(table).methods["parallel"].precision_at_k
    assert (None if worth is None else worth.precision) == precision
