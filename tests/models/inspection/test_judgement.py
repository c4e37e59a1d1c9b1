"""Judgement of results: limits, siblings, accepted values, the fleet, and the second run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forewarn.features.errors import InputError
from forewarn.features.inspection.check_results import RESULTS
from forewarn.features.inspection.check_table import CheckTable
from forewarn.models.inspection.judgement import Judgement, judge

COLUMNS = RESULTS.names
VERSIONS = '{"hardware": "h100", "driver": "1"}'


def definition(**changes: Any) -> CheckTable:
    table: dict[str, Any] = {
        "command": ["bench"],
        "value": {"regex": r"(\d+)", "unit": "GB/s", "better": "higher"},
        "category": "gpu",
        "compare": ["fleet", "own"],
    }
    return CheckTable.model_validate(table | changes)


def rows(
    check: str,
    machine: str,
    values: Iterable[float | None],
    *,
    run: str = "1",
    day: int = 1,
    **fields: Any,
) -> Iterator[dict[str, Any]]:
    start = pd.Timestamp(f"2025-01-{day:02}", tz="UTC")
    for number, value in enumerate(values):
        yield {
            **dict.fromkeys(COLUMNS),
            "timestamp": start + pd.Timedelta(seconds=number),
            **{"machine": machine, "slot": "", "check": check, "run": run, "value": value},
            **{"unit": "GB/s", "status": "ok", "versions": VERSIONS, "set": "weekly"},
            **fields,
        }


def fleet_rows(
    bad: Mapping[str, float] | None = None, *, check: str = "bench", n: int = 20, day: int = 1
) -> list[dict[str, Any]]:
    """Return values of machines m00 to mNN; `bad` are factors by name of the machine."""
    generator = np.random.default_rng([day, len(check)])
    made: list[dict[str, Any]] = []
    for number in range(n):
        name = f"m{number:02}"
        values = 100.0 * (bad or {}).get(name, 1.0) * (1.0 + 0.01 * generator.standard_normal(10))
        made += rows(check, name, values, run=f"run {day}", day=day)
    return made


def judged(
    results: list[dict[str, Any]],
    accepted: list[dict[str, Any]] | None = None,
    checks: Mapping[str, CheckTable] | None = None,
) -> Judgement:
    return judge(
        pd.DataFrame(results, columns=COLUMNS),
        checks or {"bench": definition()},
        pd.DataFrame(accepted or [], columns=COLUMNS),
    )


def states(judgement: Judgement) -> dict[str, str]:
    bad = judgement.units[judgement.units["state"] != "ok"]
    return dict(zip(bad["machine"] + bad["slot"], bad["state"], strict=True))


def test_second_run_makes_a_suspect_defective() -> None:
    first = fleet_rows({"m03": 0.8})
    assert states(judged(first)) == {"m03": "suspect"}
    assert states(judged(first + fleet_rows({"m03": 0.8}, day=2))) == {"m03": "defective"}
    assert states(judged(first + fleet_rows(day=2))) == {}
    # Only the suspect runs again: its reference are the first runs of the others.
    again = list(rows("bench", "m03", [80.0] * 10, run="run 2", day=2))
    assert states(judged(first + again)) == {"m03": "defective"}


def test_absolute_limit_needs_no_second_run_and_no_fleet() -> None:
    limited = definition(limit={"min": 50.0})
    judgement = judged([*rows("bench", "a", [70.0, 40.0, 80.0])], checks={"bench": limited})
    row = judgement.units.iloc[0]
    assert (row["state"], row["compared"], row["value"], row["limit"]) == (
        *("failed", "limit"),
        *(40.0, 50.0),
    )


def test_prolog_is_judged_by_limits_only() -> None:
    results = fleet_rows({"m03": 0.5})
    for row in results:
        row["set"] = "prolog"
    assert states(judged(results)) == {}
    assert states(judged(results, checks={"bench": definition(limit={"min": 80.0})})) == {
        "m03": "failed"
    }


def test_seven_machines_are_compared_with_their_own_values_only() -> None:
    results = fleet_rows({"m03": 0.8}, n=7)
    assert states(judged(results)) == {}
    assert states(judged(results, fleet_rows(n=7))) == {"m03": "suspect"}


def test_own_baseline_sees_what_the_fleet_allows() -> None:
    """A machine that was 20 % faster than its fleet, and is now like the others, has lost that."""
    spread = {f"m{number:02}": 1.0 + 0.02 * number for number in range(20)}
    accepted = fleet_rows(spread)
    now = fleet_rows(spread | {"m19": 1.2}, day=2)
    judgement = judged(now, accepted)
    assert states(judgement) == {"m19": "suspect"}
    bad = judgement.units[judgement.units["machine"] == "m19"].iloc[0]
    assert bad["compared"] == "own"


def test_accepted_values_of_another_driver_are_not_used() -> None:
    old = fleet_rows(n=7)
    for row in old:
        row["versions"] = '{"hardware": "h100", "driver": "0"}'
    assert states(judged(fleet_rows({"m03": 0.8}, n=7), old)) == {}


def test_groups_are_of_equal_hardware() -> None:
    results = fleet_rows({f"m{number:02}": 0.5 for number in range(20)}, n=40)
    for row in results:
        if row["machine"] < "m20":
            row["versions"] = '{"hardware": "a100"}'
    judgement = judged(results)
    assert states(judgement) == {}
    assert [criterion.units for criterion in judgement.criteria] == [20, 20]


def test_one_gpu_of_eight_is_a_unit() -> None:
    results: list[dict[str, Any]] = []
    generator = np.random.default_rng(1)
    for machine in range(5):
        for slot in range(8):
            bad = 0.8 if (machine, slot) == (2, 5) else 1.0
            values = 100.0 * bad * (1.0 + 0.01 * generator.standard_normal(10))
            results += rows("bench", f"m{machine}", values, slot=f"gpu{slot}")
    assert states(judged(results)) == {"m2gpu5": "suspect"}


def test_equal_values_differ_from_siblings_accepted_or_repeats() -> None:
    equal = definition(value={"regex": r"(\d+)", "unit": "GB/s", "better": "equal"})
    results = [row for name in "abc" for row in rows("bench", name, [7.0, 7.0])]
    assert states(judged([*results, *rows("bench", "d", [8.0, 8.0])], checks={"bench": equal})) == {
        "d": "suspect"
    }
    unsteady = [*results, *rows("bench", "e", [7.0, 8.0])]
    assert states(judged(unsteady, checks={"bench": equal})) == {"e": "suspect"}
    alone = [*rows("bench", "f", [8.0])]
    assert states(judged(alone, checks={"bench": equal})) == {}
    assert states(judged(alone, [*rows("bench", "f", [7.0])], checks={"bench": equal})) == {
        "f": "suspect"
    }


def test_statuses_are_never_ok() -> None:
    results = [
        row
        for status in ("failed", "timeout", "degraded", "blind", "not_run")
        for row in rows("bench", status.replace("_", "-"), [None], status=status, text="why")
    ]
    assert states(judged(results)) == {
        "failed": "failed",
        "timeout": "failed",
        "degraded": "degraded",
        "blind": "blind",
        "not-run": "not_run",
    }


def test_check_whose_repeats_differ_more_than_machines_is_useless() -> None:
    generator = np.random.default_rng(1)
    results = [
        row
        for number in range(20)
        for row in rows("bench", f"m{number:02}", 100.0 * generator.lognormal(0.0, 0.5, 10))
    ]
    (criterion,) = judged(results).criteria
    assert criterion.useless
    assert criterion.repeat_spread is not None
    assert criterion.unit_spread is not None
    assert criterion.repeat_spread > criterion.unit_spread
    (steady,) = judged(fleet_rows()).criteria
    assert not steady.useless


def test_medoid_stands_with_the_reference_of_small_groups() -> None:
    (criterion,) = judged(fleet_rows({"m03": 0.8})).criteria
    assert criterion.medoid not in (None, "m03")
    (large,) = judged(fleet_rows(n=200)).criteria
    assert large.medoid is None


def test_double_row_is_rejected() -> None:
    twice = [*rows("bench", "a", [1.0]), *rows("bench", "a", [2.0])]
    with pytest.raises(InputError, match="two rows of check 'bench' on a"):
        judged(twice)


def test_more_checks_mean_a_stricter_rate() -> None:
    one = judged(fleet_rows())
    checks = {f"bench{number}": definition() for number in range(10)}
    many = judged([row for name in checks for row in fleet_rows(check=name)], checks=checks)
    assert many.false_alarms.rate == pytest.approx(one.false_alarms.rate / 10)


def test_few_machines_do_not_support_the_wanted_rate() -> None:
    few = judged(fleet_rows()).false_alarms
    assert few.learned_from == 20
    assert few.requested == pytest.approx(20 * 1e-4)
    # 20 units support 1 in 400, each of level and scatter.
    assert few.expected == pytest.approx(2 * 20 / 400)
    assert few.expected < few.bound
    many = judged(fleet_rows(n=1500)).false_alarms
    assert many.requested == many.expected == pytest.approx(0.15)
