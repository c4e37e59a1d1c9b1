from __future__ import annotations

import pytest

from forewarn.evaluation.prediction.metrics.backtest_metrics import FleetMetrics
from forewarn.evaluation.prediction.metrics.paired_differences import PairedDifference
from forewarn.pipelines.backtest.report_results import (
    Method,
    best_result,
    rank_results,
    read_results,
)

SECTION = {
    "gbdt_sliding": FleetMetrics(list_precision=0.5, list_precision_interval=(0.4, 0.6)),
    "cnn_sliding": FleetMetrics(),
    "parallel_sliding": FleetMetrics(list_precision=0.7),
    "mlp_fixed": FleetMetrics(list_precision=0.9),
    "random": FleetMetrics(list_precision=0.1),
}
RESULTS = read_results(SECTION, "list_precision")


@pytest.mark.parametrize(
    ("key", "name", "strategy", "kind"),
    [
        ("parallel_variable", "parallel", "variable", "ensemble"),
        ("cascade_first_fixed", "cascade_first", "fixed", "model"),
        ("window_gbdt_sliding", "window_gbdt", "sliding", "baseline"),
        ("transformer_variable", "transformer", "variable", "model"),
        ("last_value", "last_value", "", "baseline"),
        ("fixed", "fixed", "", "model"),
    ],
)
def test_keys_are_method_and_strategy(key: str, name: str, strategy: str, kind: str) -> None:
    method = Method.from_key(key)
    assert (method.name, method.strategy, method.kind) == (name, strategy, kind)


def test_missing_results_rank_last() -> None:
    found = rank_results(RESULTS, "sliding")
    assert [one.method.name for one in found] == ["parallel", "gbdt", "random", "cnn"]


def test_best_result_has_value() -> None:
    top = best_result(RESULTS, "model", "ensemble")
    assert top is not None
    assert top.method.name == "mlp"
    assert best_result([one for one in RESULTS if one.method.name == "cnn"], "model") is None


def test_difference_is_read_from_either_method() -> None:
    section = {"gbdt_fixed": FleetMetrics(0.5), "rules_fixed": FleetMetrics(0.4)}
    given = {"gbdt_fixed": {"rules_fixed": PairedDifference(0.1, (0.02, 0.3))}}
    gbdt, rules = read_results(section, "list_precision", given)
    assert gbdt.against(rules) == PairedDifference(0.1, (0.02, 0.3))
    assert rules.against(gbdt) == PairedDifference(-0.1, (-0.3, -0.02))
    assert gbdt.against(gbdt) is None
