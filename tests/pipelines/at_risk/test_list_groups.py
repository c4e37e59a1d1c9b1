from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from forewarn.pipelines.at_risk.list_groups import flagged_machines, group_unscored, split_reasons


def table(*rows: tuple[str, str | None, float | None, bool]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["gpu_serial", "machine_id", "probability", "flagged"])
    return frame.assign(
        rank=range(1, len(rows) + 1), slot=0, flagged_by="", reasons="", valid_until=None
    )


def unscored(*rows: tuple[str, str | None, str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["gpu_serial", "machine_id", "reason"])


NO_UNSCORED = unscored()


def test_machines_are_ordered_by_expected_failures() -> None:
    found = flagged_machines(
        table(("a", "m1", 0.6, True), ("b", "m2", 0.4, True), ("c", "m2", 0.3, True)), NO_UNSCORED
    )
    assert [one.name for one in found] == ["m2", "m1"]
    assert found[0].expected == pytest.approx(0.7)
    assert [gpu.serial for gpu in found[0].gpus] == ["b", "c"]


def test_rank_orders_without_probabilities() -> None:
    found = flagged_machines(table(("a", "m2", None, True), ("b", "m1", None, True)), NO_UNSCORED)
    assert [(one.name, one.expected) for one in found] == [("m2", None), ("m1", None)]


def test_gpus_without_machine_form_own_groups() -> None:
    found = flagged_machines(
        table(("m1", None, 0.5, True), ("b", "m1", 0.4, True), ("c", None, 0.3, True)), NO_UNSCORED
    )
    assert [(one.name, len(one.gpus)) for one in found] == [("", 1), ("m1", 1), ("", 1)]


def test_machine_counts_unflagged_gpus() -> None:
    (found,) = flagged_machines(
        table(("a", "m1", 0.5, True), ("b", "m1", 0.1, False), ("c", "m2", 0.1, False)),
        unscored(("d", "m1", "stale"), ("e", "m1", "failed")),
    )
    assert (found.n_flagged, found.n_gpus, found.n_without_data) == (1, 4, 1)


def test_replaced_gpu_is_not_counted() -> None:
    left_out = unscored(("old", "m1", "stale"), ("d", "m1", "stale")).assign(replaced=[True, False])
    scored = table(("a", "m1", 0.5, True), ("new", "m1", 0.1, False))
    (machine,) = flagged_machines(scored, left_out)
    assert (machine.n_gpus, machine.n_without_data) == (3, 1)
    silent, replaced = group_unscored(scored, left_out)
    assert (silent.serials, silent.n_gpus) == (("d",), 3)
    assert (replaced.serials, replaced.n_gpus) == (("old",), 0)
    assert replaced.note == "another GPU is in its slot: it was replaced"


def test_silent_gpu_in_reporting_machine_is_first() -> None:
    found = group_unscored(
        table(("a", "m1", 0.5, False)),
        unscored(
            ("b", "m0", "failed"),
            ("c", "m0", "too new"),
            ("d", "m9", "gap"),
            ("e", "m8", "stale"),
            ("f", "m8", "stale"),
            ("g", "m1", "stale"),
        ),
    )
    assert [(one.machine, one.reason) for one in found] == [
        ("m1", "stale"),
        ("m8", "stale"),
        ("m9", "gap"),
        ("m0", "too new"),
        ("m0", "failed"),
    ]
    assert "fallen off the bus" in found[0].note
    assert "no GPU of this machine reports" in found[1].note
    assert [one.n_gpus for one in found] == [2, 2, 1, 2, 2]


def test_long_groups_show_first_serials() -> None:
    rows = [(f"s{i:02d}", None, "stale") for i in range(30)]
    (found,) = group_unscored(table(), unscored(*rows))
    assert found.n == 30
    assert found.serials == tuple(f"s{i:02d}" for i in range(8))


@pytest.mark.parametrize(
    ("reasons", "parts"),
    [
        ("a 1; b 2 | c", ("a 1; b 2", "c")),
        ("", ()),
        (None, ()),
        (float("nan"), ()),
        (" | a|", ("a",)),
    ],
)
def test_reasons_are_split(reasons: Any, parts: tuple[str, ...]) -> None:
    assert split_reasons(reasons) == parts
