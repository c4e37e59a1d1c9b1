"""The plan of inspections: worth a minute, budget, limits, and the machines drawn at random."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forewarn.response.inspection.inspection_plan import (
    FoundDefects,
    MachineRisk,
    PlannedCheck,
    PlannedInspection,
    Risk,
    plan_inspections,
)

GPU = PlannedCheck("gemm", "gpu", 10.0)
DISK = PlannedCheck("disk", "storage", 5.0)


def planned(
    *machines: MachineRisk,
    checks: tuple[PlannedCheck, ...] = (GPU, DISK),
    past: FoundDefects | None = None,
    budget: float = 1000.0,
    most: int = 100,
    share: float = 0.0,
) -> list[PlannedInspection]:
    return plan_inspections(
        machines,
        checks,
        past or FoundDefects(),
        budget_minutes=budget,
        max_machines=most,
        seed="s",
        random_share=share,
    )


def at_risk(name: str, probability: float, **fields: object) -> MachineRisk:
    return MachineRisk(name, (Risk("at risk", probability, ("gpu",)),), **fields)  # type: ignore[arg-type]


def test_worth_is_probability_by_share_found_by_cost() -> None:
    (line,) = planned(at_risk("a", 0.2, cost=100.0))
    # Nothing is known of the check: it finds a half. The disk is not suspected.
    assert (line.machine, line.checks, line.minutes, line.reason) == ("a", ("gemm",), 10, "at risk")
    assert line.worth == pytest.approx(10.0)
    assert line.probability == pytest.approx(0.2)


def test_machines_are_in_the_order_of_their_worth_a_minute() -> None:
    lines = planned(at_risk("a", 0.1), at_risk("b", 0.4), at_risk("c", 0.1, cost=9.0), budget=20.0)
    assert [line.machine for line in lines] == ["c", "b"]


def test_cheap_check_of_a_less_likely_part_comes_first() -> None:
    machine = MachineRisk("a", (Risk("new", 0.3),))
    past = FoundDefects(by_category={"gpu": 1})  # 2 to 1 for the GPU, at twice the minutes
    (line,) = planned(machine, past=past, budget=5.0)
    assert line.checks == ("disk",)


def test_check_that_found_nothing_is_worth_little() -> None:
    other = PlannedCheck("stress", "gpu", 10.0)
    past = FoundDefects({("gemm", "gpu"): (0, 8), ("stress", "gpu"): (8, 8)})
    (line,) = planned(at_risk("a", 0.2), checks=(GPU, other), past=past, budget=10.0)
    assert line.checks == ("stress",)
    assert line.worth == pytest.approx(0.2 * 0.9)


def test_second_check_counts_for_what_the_first_leaves() -> None:
    other = PlannedCheck("stress", "gpu", 10.0)
    (line,) = planned(at_risk("a", 0.4), checks=(GPU, other))
    assert line.worth == pytest.approx(0.4 * 0.5 + 0.2 * 0.5)


def test_healthy_result_lowers_the_risk_and_ages() -> None:
    fresh = at_risk("a", 0.2, healthy={"gemm": 0.0})
    old = at_risk("b", 0.2, healthy={"gemm": 60.0})
    worth = {line.machine: line.worth for line in planned(fresh, old)}
    assert worth["a"] == pytest.approx(0.2 * 0.5 * 0.5)
    assert worth["b"] == pytest.approx(0.2 * 0.5, rel=0.01)


def test_only_results_after_a_repair_count_against_it() -> None:
    repaired = (Risk("repaired", 0.2, ("gpu",), days=10.0),)
    before, after = (MachineRisk(n, repaired, {"gemm": d}) for n, d in (("a", 12.0), ("b", 8.0)))
    worth = {line.machine: line.worth for line in planned(before, after)}
    assert worth == {"a": pytest.approx(0.1), "b": pytest.approx(0.05)}


def test_probability_counts_healthy_results_and_a_reason_as_one_defect() -> None:
    (line,) = planned(MachineRisk("a", (Risk("new", 0.3),)))
    assert line.probability == pytest.approx(0.3)  # 0.15 for the GPU, or 0.15 for the disk
    (line,) = planned(at_risk("a", 0.2, healthy={"gemm": 0.0}))
    assert line.probability == pytest.approx(0.1)  # the check finds a half


def test_reasons_with_the_same_words_are_named_once() -> None:
    risks = (Risk("routine", 0.1, ("gpu",)), Risk("routine", 0.1, ("storage",)))
    (line,) = planned(MachineRisk("a", risks))
    assert line.reason == "routine"
    assert line.probability == pytest.approx(1.0 - 0.9 * 0.9)


def test_tenth_of_the_budget_is_drawn_from_the_rest() -> None:
    machines = [at_risk(f"m{number:03}", 0.5 if number < 20 else 0.0) for number in range(100)]
    lines = planned(*machines, budget=1500.0, share=0.1)
    drawn = [line for line in lines if line.is_random]
    assert [line.checks for line in drawn] == [("gemm", "disk")] * 10
    assert not {line.machine for line in drawn} & {f"m{number:03}" for number in range(20)}
    assert lines == planned(*machines, budget=1500.0, share=0.1)
    assert all("at random" in line.reason for line in drawn)


@given(
    st.lists(st.floats(0.0, 1.0), max_size=12),
    st.floats(0.0, 200.0),
    st.integers(0, 5),
)
def test_plan_keeps_budget_and_limit(chances: list[float], budget: float, most: int) -> None:
    machines = [at_risk(f"m{number}", chance) for number, chance in enumerate(chances)]
    lines = planned(*machines, budget=budget, most=most, share=0.1)
    assert sum(line.minutes for line in lines) <= budget + 1e-9
    assert len(lines) <= most
    assert len({line.machine for line in lines}) == len(lines)
