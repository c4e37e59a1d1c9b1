from __future__ import annotations

from forewarn.response.follow_up.avoid_list import AvoidList, avoid_list


def test_highest_risk_machines_come_first() -> None:
    ranked = ["n3", "n1", "n3", "n2", "n4"]
    chosen = avoid_list(ranked, most=3)
    assert chosen == AvoidList(("n3", "n1", "n2"), beyond=1)
    assert chosen.option == "--exclude=n[1-3]"
    assert avoid_list(ranked).machines == ("n3", "n1", "n2", "n4")


def test_empty_list_gives_no_option() -> None:
    assert (avoid_list([]).option, avoid_list(["n1"], most=0).option) == ("", "")


def test_unusable_names_are_left_out() -> None:
    names = ["n1 --nodelist=n2", "--wrap=x", "n[1-9]", "a,b", "", "n1"]
    chosen = avoid_list(names)
    assert chosen.option == "--exclude=n1"
    assert chosen.unusable == tuple(names[:-1])
