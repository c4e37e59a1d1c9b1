"""Safety interlocks: when they are active, why, and until when."""

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


def active(**health: Any) -> tuple[Interlock, ...]:
    return active_interlocks(ResponderHealth(**health), settings=SETTINGS, now=NOW)


def ago(span: int) -> Nanoseconds:
    return Nanoseconds(NOW - span)


def overrides(*hours: int) -> list[Override]:
    return [Override(f"n{number}", "xid 79", ago(h * HOUR)) for number, h in enumerate(hours)]


def test_normal_health_has_no_interlock() -> None:
    assert active(list_length=19, usual_length=10, policy_since=ago(DAY)) == ()


def test_kill_switch_names_person_and_reason() -> None:
    (interlock,) = active(kill_switch=KillSwitchActivation("alice", NOW, "power works in hall 2"))
    why = "the kill switch is on, by alice: power works in hall 2"
    assert interlock == Interlock(why, None, kill_switch=True)


def test_three_overrides_trip_circuit_breaker() -> None:
    assert active(overrides=overrides(1, 2, 25)) == ()
    words = "3 or more actions were overridden within a day"
    assert active(overrides=overrides(1, 2, 23)) == (Interlock(words, Nanoseconds(NOW + HOUR)),)
    four = active(overrides=overrides(1, 2, 20, 23))
    assert four == (Interlock(words, Nanoseconds(NOW + 4 * HOUR)),)


def test_overrides_at_once_are_one_event() -> None:
    assert active(overrides=overrides(1, 1, 1, 2)) == ()
    by_others = [Override("n9", "xid 79", ago(HOUR), who=who) for who in ("ann", "tom")]
    assert active(overrides=[*overrides(1), *by_others]) != ()


def test_first_day_of_policy_blocks_all() -> None:
    (interlock,) = active(policy_since=ago(23 * HOUR))
    assert interlock == Interlock("the policy is in its first 1 day", Nanoseconds(NOW + HOUR))


def test_first_day_of_model_blocks_its_findings() -> None:
    (interlock,) = active(models_since={"m1": ago(23 * HOUR), "m0": ago(9 * DAY)})
    assert interlock == Interlock(
        "model m1 is in its first 1 day", Nanoseconds(NOW + HOUR), model="m1"
    )


def test_list_of_double_length_blocks_predictions() -> None:
    (interlock,) = active(list_length=20, usual_length=10)
    assert interlock == Interlock("the newest list has 20 rows, usually 10", None, model="")


def test_drifted_inputs_block_predictions() -> None:
    (interlock,) = active(drifted=("a", "b", "c", "d"))
    words = "the inputs of the model have drifted: a, b, c and 1 more"
    assert interlock == Interlock(words, None, model="")


def test_expired_drift_report_raises_alert() -> None:
    alive = ResponderHealth(
        last_list=NOW, last_loop=NOW, drifted=("a",), drifted_at=ago(7 * DAY - 1)
    )
    (interlock,) = active_interlocks(alive, settings=SETTINGS, now=NOW)
    assert interlock.until == NOW + 1
    assert missing_heartbeats(alive, settings=SETTINGS, now=NOW) == {}
    assert active_interlocks(alive, settings=SETTINGS, now=interlock.until) == ()
    (words,) = missing_heartbeats(alive, settings=SETTINGS, now=interlock.until).values()
    assert words.startswith("no drift report for more than 7 days: the last one named a,")


def test_freeze_is_half_open() -> None:
    freeze = Freeze(ago(HOUR), Nanoseconds(NOW + HOUR), "the demonstration")
    assert active(freezes=[freeze]) == (Interlock("freeze: the demonstration", freeze.end),)
    for now, number in ((freeze.start - 1, 0), (freeze.start, 1), (freeze.end, 0)):
        health = ResponderHealth(freezes=[freeze])
        assert len(active_interlocks(health, settings=SETTINGS, now=Nanoseconds(now))) == number


def test_missing_list_or_loop_raises_alert() -> None:
    alive = ResponderHealth(last_list=ago(26 * HOUR), last_loop=ago(HOUR // 4))
    assert missing_heartbeats(alive, settings=SETTINGS, now=NOW) == {}
    late = ResponderHealth(last_list=ago(27 * HOUR), last_loop=None)
    assert missing_heartbeats(late, settings=SETTINGS, now=NOW) == {
        "list": "no list for more than 26 h",
        "loop": "no loop so far",
    }


@pytest.mark.parametrize(
    ("model", "kinds", "is_blocked"),
    [
        (None, ("xid",), True),
        ("", ("at_risk",), True),
        ("", ("verdict",), True),
        ("", ("at_risk", "xid"), False),
        ("m1", ("at_risk",), True),
        ("m2", ("at_risk",), False),
    ],
)
def test_model_interlock_matches_model_version(
    model: str | None, kinds: tuple[str, ...], is_blocked: bool
) -> None:
    findings = [
        Finding("s", kind, FindingKind(kind), kind, "n0", NOW, NOW, model_version="m1")
        for kind in kinds
    ]
    assert Interlock("why", None, model=model).blocks(findings) is is_blocked
