"""When forewarn only observes, why, and until when."""

from __future__ import annotations

from typing import Any

import pytest

from forewarn.features.time_units import DAY, HOUR, Nanoseconds
from forewarn.response.decision.interlocks import (
    Freeze,
    Interlock,
    KillSwitchActivation,
    ResponderHealth,
    active_interlocks,
    missing_heartbeats,
)
from forewarn.response.decision.manual_override import Override
from forewarn.response.state.finding import Finding, FindingKind
from forewarn.response.state.response_settings import ResponseSettings

NOW = Nanoseconds(100 * DAY)
SETTINGS = ResponseSettings()


def pulled(**vitals: Any) -> tuple[Interlock, ...]:
    return active_interlocks(ResponderHealth(**vitals), settings=SETTINGS, now=NOW)


def ago(span: int) -> Nanoseconds:
    return Nanoseconds(NOW - span)


def overrides(*hours: int) -> list[Override]:
    return [Override(f"n{number}", "xid 79", ago(h * HOUR)) for number, h in enumerate(hours)]


def test_nothing_brakes_where_all_is_as_usual() -> None:
    assert pulled(list_length=19, usual_length=10, policy_since=ago(DAY)) == ()


def test_the_kill_switch_says_who_and_why() -> None:
    (interlock,) = pulled(kill_switch=KillSwitchActivation("alice", NOW, "power works in hall 2"))
    why = "the kill switch is on, by alice: power works in hall 2"
    assert interlock == Interlock(why, None, kill_switch=True)


def test_three_overrides_in_a_day_brake_until_only_two_are_left() -> None:
    assert pulled(overrides=overrides(1, 2, 25)) == ()
    words = "3 or more actions were overridden within a day"
    assert pulled(overrides=overrides(1, 2, 23)) == (Interlock(words, Nanoseconds(NOW + HOUR)),)
    four = pulled(overrides=overrides(1, 2, 20, 23))
    assert four == (Interlock(words, Nanoseconds(NOW + 4 * HOUR)),)


def test_the_first_day_of_a_policy_brakes_all() -> None:
    (interlock,) = pulled(policy_since=ago(23 * HOUR))
    assert interlock == Interlock("the policy is in its first 1 day", Nanoseconds(NOW + HOUR))


def test_the_first_day_of_a_model_brakes_what_it_says() -> None:
    (interlock,) = pulled(models_since={"m1": ago(23 * HOUR), "m0": ago(9 * DAY)})
    assert interlock == Interlock(
        "model m1 is in its first 1 day", Nanoseconds(NOW + HOUR), model="m1"
    )


def test_a_list_of_twice_its_usual_length_brakes_predictions() -> None:
    (interlock,) = pulled(list_length=20, usual_length=10)
    assert interlock == Interlock(
        "the newest list has 20 rows, and usually it has 10", None, model=""
    )


def test_drifted_inputs_brake_predictions() -> None:
    (interlock,) = pulled(drifted=("a", "b", "c", "d"))
    words = "the inputs of the model have drifted: a, b, c and 1 more"
    assert interlock == Interlock(words, None, model="")


def test_a_report_of_drift_that_is_too_old_brakes_no_longer_and_says_so() -> None:
    alive = ResponderHealth(
        last_list=NOW, last_loop=NOW, drifted=("a",), drifted_at=ago(7 * DAY - 1)
    )
    (interlock,) = active_interlocks(alive, settings=SETTINGS, now=NOW)
    assert interlock.until == NOW + 1
    assert missing_heartbeats(alive, settings=SETTINGS, now=NOW) == {}
    assert active_interlocks(alive, settings=SETTINGS, now=interlock.until) == ()
    (words,) = missing_heartbeats(alive, settings=SETTINGS, now=interlock.until).values()
    assert words.startswith("no report of drift came for more than 7 days: the last said a,")


def test_a_freeze_brakes_from_its_start_up_to_its_end() -> None:
    freeze = Freeze(ago(HOUR), Nanoseconds(NOW + HOUR), "the demonstration")
    assert pulled(freezes=[freeze]) == (Interlock("freeze: the demonstration", freeze.end),)
    for now, number in ((freeze.start - 1, 0), (freeze.start, 1), (freeze.end, 0)):
        vitals = ResponderHealth(freezes=[freeze])
        assert len(active_interlocks(vitals, settings=SETTINGS, now=Nanoseconds(now))) == number


def test_a_list_or_a_loop_that_does_not_come_is_an_alert() -> None:
    alive = ResponderHealth(last_list=ago(26 * HOUR), last_loop=ago(HOUR // 4))
    assert missing_heartbeats(alive, settings=SETTINGS, now=NOW) == {}
    late = ResponderHealth(last_list=ago(27 * HOUR), last_loop=None)
    assert missing_heartbeats(late, settings=SETTINGS, now=NOW) == {
        "list": "no list came for more than 26 h",
        "loop": "no loop came so far",
    }


@pytest.mark.parametrize(
    ("model", "kinds", "stops"),
    [
        (None, ("xid",), True),
        ("", ("at_risk",), True),
        ("", ("verdict",), True),
        ("", ("at_risk", "xid"), False),
        ("m1", ("at_risk",), True),
        ("m2", ("at_risk",), False),
    ],
)
def test_a_brake_stops_what_rests_on_what_it_doubts(
    model: str | None, kinds: tuple[str, ...], stops: bool
) -> None:
    findings = [
        Finding("s", kind, FindingKind(kind), kind, "n0", NOW, NOW, model_version="m1")
        for kind in kinds
    ]
    assert Interlock("why", None, model=model).blocks(findings) is stops
