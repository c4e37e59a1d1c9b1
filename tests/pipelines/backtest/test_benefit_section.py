from __future__ import annotations

from forewarn.evaluation.prediction.metrics.backtest_metrics import (
    DayMetrics,
    FleetMetrics,
    LeadTime,
)
from forewarn.evaluation.prediction.metrics.net_benefit import (
    BenefitAtLength,
    ListBenefit,
    NetBenefit,
)
from forewarn.evaluation.prediction.metrics.paired_differences import PairedDifference
from forewarn.pipelines.backtest.backtest_page import render_report
from forewarn.pipelines.backtest.backtest_report import BacktestReport
from forewarn.pipelines.backtest.backtest_summary import lead_sentences, short_table
from forewarn.pipelines.backtest.benefit_section import benefit_plot, benefit_section

COSTS: dict[str, object] = {
    "failure": 400.0,
    "prevented_share": 0.5,
    "actions": [["avoid", 2.0], ["drain", 30.0]],
}


def figures(alerts: int, hours: float | None, caught: int = 2) -> NetBenefit:
    return NetBenefit(
        alerts=alerts,
        precision=0.1 if alerts else None,
        precision_interval=(0.02, 0.2) if alerts else None,
        failures_caught=caught if alerts else 0,
        gpu_hours=hours,
        gpu_hours_interval=None if hours is None else (hours - 100, hours + 100),
    )


def worth(costs: dict[str, object] | None = COSTS) -> ListBenefit:
    hours = (lambda value: value) if costs else (lambda _: None)
    return ListBenefit(
        ranked_by="blend",
        costs=costs,
        days=20,
        failures=11,
        empty_days=4,
        curve=[BenefitAtLength(n, figures(20 * n, hours(100.0 - 50 * n))) for n in (1, 3, 9)],
        chosen=BenefitAtLength(1.5, figures(30, hours(321.0))),
        ways={
            "nothing": figures(0, hours(0.0)),
            "rules": figures(60, hours(-900.0)),
            "top_share": figures(60, hours(-800.0)),
            "top_k": figures(400, hours(-12_345.0)),
        },
    )


def test_sentences_contain_list_and_top_k() -> None:
    section = benefit_section(worth(), 0.02)
    text = " ".join(section["sentences"])
    assert "held 1.5 GPUs a day: 30 alerts in 20 days, of which 10 of 100 failed" in text
    assert "saved 321 GPU-hours (221 to 421) a month. It was empty on 4 days" in text
    assert (
        "top K (2 % of the fleet a day) would have cost 12,345 GPU-hours (12,245 to 12,445) a month"
        in text
    )
    labels = [label for label, _ in section["ways"]]
    assert labels[0] == "Nothing"
    assert labels[-1] == "What the probability justifies"
    assert len(labels) == 5


def test_no_gpu_hours_without_costs() -> None:
    section = benefit_section(worth(None), 0.02)
    assert "No costs are set in [list]" in section["sentences"][1]
    assert section["ways"] == []
    assert len(benefit_plot(worth(None)).axes) == 2
    assert len(benefit_plot(worth()).axes) == 3


def test_no_section_without_lists() -> None:
    lists = {"blend_variable": fleet(0.1, 3)}
    assert 'id="worth"' not in render_report(
        BacktestReport("variable", fleet=lists, worth={"variable": None})
    )
    assert 'id="worth"' in render_report(
        BacktestReport("variable", k=0.02, fleet=lists, worth={"variable": worth()})
    )


def fleet(precision: float, caught: int) -> FleetMetrics:
    return FleetMetrics(
        list_precision=precision,
        list_precision_interval=(precision / 2, precision * 2),
        failures_caught=caught,
        failures=48,
        lead_time_hours=LeadTime(p10=2.0, p50=9.0),
        average_precision=0.1,
        days=[DayMetrics("2025-01-20", listed=6, hits=1)],
    )


def demo_report(*names: str) -> BacktestReport:
    lists = {f"{name}_sliding": fleet(0.2 / (i + 1), 14 - i) for i, name in enumerate(names)}
    paired = {"blend_sliding": {"rules_sliding": PairedDifference(0.133, (0.02, 0.3))}}
    return BacktestReport(
        "sliding",
        fleet=lists,
        differences={"list_precision": paired if "rules" in names else {}},
        gpus=2000,
        prevalence=0.002,
    )


NAMES = ("blend", "gbdt", "rules", "logistic", "window_gbdt", "last_value", "random", "parallel",
         "cascade_first")  # fmt: skip


def test_summary_counts_failures_without_symptoms() -> None:
    assert lead_sentences(demo_report(*NAMES), 22) == [
        "Of 48 failures, 22 came without a sign (known only in a simulation) and 26 after signs.",
        "Daily lists of 6 of 2,000 GPUs named 14 of them before they failed, half of those at "
        "least 9 h ahead; fixed rules find 12 and chance finds 8.0.",
        "Of 100 GPUs on a list, 20 (10 to 40) failed within a day; of 100 random GPUs, 2.9.",
        "Compared with fixed rules, which need no training, this is better (difference 13.3, "
        "interval 2.0 to 30.0).",
    ]


def test_table_is_short_without_duplicates() -> None:
    rows = short_table(demo_report(*NAMES)).splitlines()[1:]
    assert [row.split("  ")[0] for row in rows][:3] == ["forewarn (blend)", "GBDT", "Fixed rules"]
    assert len(rows) == 7
    many = short_table(demo_report(*NAMES, "cnn", "mlp", "lstm")).splitlines()[1:]
    assert len(many) == 8
